// Host side of the floors: one rank's NIC, its window, its queue pairs and what it knows of its peers.
//
// gda_fabric is what a submitter over mlx5 queues needs before it posts the first WQE, whether GPU threads
// post (minigda) or a host worker does (miniproxy): a softnic made from the case's nic_config, connected RC
// queue pairs to every rank (this one included), a window registered for all remote rights, and the peers'
// window addresses and keys. It posts nothing.
//
// Functions return 0 or a negative errno and leave one line in gic::error_text(). Calls marked collective
// exchange data over gic_open.comm: every rank makes them in the same order. One thread at a time.
#ifndef MINIGDA_GDA_HOST_H
#define MINIGDA_GDA_HOST_H

#include "backends/abi/adapter.cuh"
#include "backends/abi/gpu.h"
#include "minigda/mlx5/mlx5.h"
#include "minigda/softnic/softnic.h"

#include <string>
#include <vector>

// What a peer's window is called in a WQE: the owner's virtual address and remote key.
struct gda_peer {
    uint64_t window;
    uint32_t rkey;
};

constexpr uint32_t gda_any_peer = UINT32_MAX;

// One connected queue pair and its completion queue; memory owned by the fabric, zeroed, never moved.
struct gda_qp {
    uint8_t *sq;          // depth blocks of 64 bytes
    struct mlx5_dbr *dbr; // alone in its cache line
    uint64_t *bell;       // the 64-bit doorbell word, alone in its cache line
    struct mlx5_cqe *cqe; // cq_depth entries; one when collapsed
    __be32 *cq_dbrec;     // consumer index, nullptr when collapsed (no overrun check)
    uint32_t depth;       // power of two
    uint32_t cq_depth;    // power of two
    uint32_t qpn, cqn;
    uint32_t peer; // gda_any_peer: a DC initiator
    bool collapsed;
};
std::string gda_qp_name(const struct gda_qp &qp); // for messages

// Where the fabric puts what the NIC and device threads share, and who serves it: keys of --nic soft.
struct gda_places {
    bool gpu_engine;    // softnic's kernel on the device instead of threads of this process
    uint32_t sms;       // that it takes
    bool queues_on_gpu; // send queues, CQEs
    bool window_on_gpu; // window, landings
    bool
        doorbells_on_gpu; // the 64-bit doorbells; the GPU engine's doorbell records are on the GPU in any case
    bool strict;          // each write of a QP before the next one; else runs of words land together
    bool on_demand;       // the GPU engine comes when a doorbell calls it, and stays from begin to end
};

struct gda_mapping { // an anonymous mapping of the fabric
    void *addr;
    size_t bytes;
    uint32_t key; // 0: not registered
};

struct gda_fabric {
    uint32_t rank, nranks;
    const struct gic_comm *comm; // the harness' own, until close
    struct softnic *nic;
    enum softnic_clock clock;
    std::unique_ptr<gic::Gpu> gpu; // device=cuda: all memory below is mapped for it, under the same addresses

    uint8_t *window; // this rank's; nullptr before gda_fabric_window
    uint64_t window_bytes;
    uint32_t window_key;                // lkey and rkey, host byte order
    std::vector<struct gda_peer> peers; // by rank, this one included

    uint32_t qps_per_peer;          // 0: DC initiators
    std::vector<struct gda_qp> qps; // [peer * qps_per_peer + i]

    struct gda_places places;
    uint32_t workers;    // engine threads; of the GPU engine 0
    std::string profile; // name, "none" when unshaped
    std::string watch, doorbell;
    std::string trace;           // file the trace goes to, "off" without
    mutable uint32_t trace_cuts; // files of single runs saved so far
    std::vector<gda_mapping> blocks;

    // Of gda_fabric_counters: WQEs of each QP when it was last asked, and the sum of the QPs used in between.
    std::vector<uint64_t> wqes_seen;
    uint64_t qps_used;
};

// Can a fabric be made from these parameters (device, nic, nic_config)? Creates nothing. -ENOTSUP or -EINVAL.
// `cpu_posts`: a thread of this process writes the queues.
int gda_fabric_probe(const struct gic_open *open, bool cpu_posts = false);
// Of parameters that gda_fabric_probe takes.
struct gda_places gda_fabric_places(const struct gic_open *open);

// What the engine is to poll: as configured, or by default the doorbell word of threads of this machine and the
// record of CUDA threads, whose weaker orders leave the two unordered.
const char *gda_fabric_watch(const struct gic_open *open);

// Makes and starts this rank's NIC. `max_qps` bounds what gda_fabric_connect may create. SOFTNIC_VIRTUAL is
// for tests: the caller advances the clock.
int gda_fabric_open(const struct gic_open *open, enum softnic_clock clock, uint32_t max_qps,
                    struct gda_fabric **fabric_p);
// Stops the NIC and frees everything. With trace=on it first writes <job>-nic<rank>.trace (softnic_trace_save) into
// the folder GIC_TRACE_DIR, by default the current one, if there is anything that gda_fabric_facts has not saved.
// nullptr is fine.
void gda_fabric_close(struct gda_fabric *fabric);

// Collective: `per_peer` queue pairs to every rank, QP i of rank a to rank b connected with QP i of b to a.
// `sq_depth` blocks each (power of two, 64..32768). `cq_depth` 0 makes a collapsed CQ of one CQE, otherwise a
// ring of that many (power of two). Once per fabric.
int gda_fabric_connect(struct gda_fabric *fabric, uint32_t per_peer, uint32_t sq_depth, uint32_t cq_depth);

// Collective, in its place: `count` DC initiators, which go to any rank. A post names the rank's DCT; who posts makes those
// (softnic_dct_create) and exchanges them.
int gda_fabric_connect_dc(struct gda_fabric *fabric, uint32_t count, uint32_t sq_depth, uint32_t cq_depth);

// Collective: as gic_backend.window.
int gda_fabric_window(struct gda_fabric *fabric, uint64_t bytes);
int gda_fabric_write(struct gda_fabric *fabric, uint64_t offset, const void *src, size_t bytes);
int gda_fabric_read(struct gda_fabric *fabric, uint64_t offset, void *dst, size_t bytes);

// Zeroed, page-aligned host memory of this rank that device threads and the NIC can reach, registered for local
// writes when `key_p` is given. Lives until close.
int gda_fabric_alloc(struct gda_fabric *fabric, size_t bytes, void **addr_p, uint32_t *key_p);

// The same with the window: with window=gpu device memory, which only device threads and the NIC reach.
int gda_fabric_alloc_data(struct gda_fabric *fabric, size_t bytes, void **addr_p, uint32_t *key_p);

// Around a launch: the GPU engine is on the device only in between (see softnic_presence; with presence=demand, for
// programs that wait for the device when they like, also when a doorbell calls it), the other one always serves.
// gda_fabric_end also compares each QP's doorbell with its record where the record is what the engine watches: -EIO
// when a doorbell is missing. Pass it whether the launch was fine; after a failed one it only ends.
// gda_fabric_ready, collective and before gda_fabric_begin, comes behind everything that allocates, maps or frees for the
// launch: ranks of one process wait there for one another (gic::Gpu::neighbours). Nothing where each has its own.
int gda_fabric_ready(struct gda_fabric *fabric);
int gda_fabric_begin(struct gda_fabric *fabric);
int gda_fabric_end(struct gda_fabric *fabric, bool fine);
// All QPs as new, after an error. Between launches.
int gda_fabric_reset(struct gda_fabric *fabric);

// 0, or -EIO with a text that names the first QP with an error CQE, its peer, WQE and syndrome.
int gda_fabric_error(const struct gda_fabric *fabric);

// What was created, as facts: qps, sq_depth, cq, engine, engine_threads (engine.sms, engine.warps
// and engine.writes of the GPU engine), watch, doorbell, queue and window (where: host or gpu), profile, trace. With
// trace=on a call behind a run saves what was traced since the last one as <job>-nic<rank>-<n>.trace, n from 0, beside
// the file above; the fact trace is then its path.
void gda_fabric_facts(const struct gda_fabric *fabric, gic::Facts *facts);
// Has a WQE been traced since the last call of gda_fabric_facts?
bool gda_fabric_traced(const struct gda_fabric *fabric);
// The NIC's counters under the names of backend.h, all exact but doorbells_seen (rings can coalesce before
// the NIC looks). `doorbells`, those rung, is the submitter's to add. `all_p`: what was read for it, since each reading of
// all ends a run in the trace.
void gda_fabric_counters(struct gda_fabric *fabric, gic::Counters *counters,
                         struct softnic_counters *all_p = nullptr);

#endif
