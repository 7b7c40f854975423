/* softnic: a software ConnectX.
 *
 * An engine that consumes real mlx5 send queues (layouts: ../mlx5) which a driver lays out in memory: work
 * queue entries, doorbell record, 64-bit doorbell, completion queue. It executes them in order per QP against
 * registered memory of this and of other processes of the host, and writes CQEs as the hardware would. There
 * is no wire: what it tells about is what a driver asks of a NIC, not how fast a NIC answers.
 *
 * One `struct softnic` is one NIC port of one rank. All NICs of one job find each other by the job's name in
 * shared memory; each initiator executes its own work requests and, acting as the responder, checks the keys,
 * bounds and rights that the *owner* registered before it touches the owner's memory.
 *
 * The NIC never trusts its driver: a bad opcode, segment, index, key, range or right becomes an error CQE
 * with the right syndrome, the QP goes to the error state and the rest of its queue is flushed.
 *
 * Two clocks. SOFTNIC_REAL: worker threads serve the queues. SOFTNIC_VIRTUAL: nothing happens until the
 * caller says softnic_advance(); every result is then a function of the calls alone (for tests and the
 * oracle).
 *
 * Functions return 0 or a negative errno; softnic_error() has one line with the offending value. Control
 * calls (everything but the queues themselves) may be made from any one thread at a time while workers run.
 */
#ifndef SOFTNIC_H
#define SOFTNIC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct softnic;

enum softnic_clock { SOFTNIC_REAL, SOFTNIC_VIRTUAL };

/* What wakes the engine for a QP: the 64-bit doorbell word, or the doorbell record in memory. With BELL the
 * producer index still comes from the doorbell record, as on hardware; a doorbell word may be overwritten by
 * a later one before it is seen. */
enum softnic_watch { SOFTNIC_WATCH_BELL, SOFTNIC_WATCH_DBR };

/* Who serves the queues. CPU: threads of this process, over memory that it can load and store. GPU: a small kernel
 * that stays on a few multiprocessors of one CUDA device between softnic_start and softnic_hold, over memory that
 * the device reaches (its own, its peers', mapped host memory). Same semantics: the tests of one run on the other.
 * The GPU engine is in the program only where gpu_engine.cu is linked; -ENOTSUP otherwise.
 *
 * While the kernel runs, cudaDeviceSynchronize, cudaFree and whatever else waits for the device do not return; see
 * enum softnic_presence. What is posted while it is away is served when it comes. The kernel also leaves when the
 * process stops answering, and comes back when it does again; control calls give up with an error
 * (softnic_engine_error) when it does not come or leave (patience_ms). */
enum softnic_engine { SOFTNIC_ENGINE_CPU, SOFTNIC_ENGINE_GPU };

/* GPU engine: when its kernel is on the device. WINDOW: between softnic_start and softnic_hold; start it around the
 * measured launches alone. DEMAND, for programs that know nothing of it: a thread of this process watches the doorbell
 * words, launches the kernel when one has changed, and has it leave when nothing was to be done for idle_us; a doorbell
 * that came meanwhile brings it back. A launch looks at all doorbell records, so nothing is lost. So whatever waits for
 * the device returns some idle_us after the last request; softnic_stay() keeps the kernel there.
 * DEMAND wants watch = DBR and each QP's doorbell in host memory that the device can store to, on words of their own or
 * shared: a doorbell in device memory cannot be seen from here (-EINVAL). A queue that is announced by its record alone
 * is not looked at while the kernel is away. The device needs room for it: a grid that has blocks on every
 * multiprocessor and waits for the NIC can wait for ever, unless softnic_stay() came first. */
enum softnic_presence { SOFTNIC_WINDOW, SOFTNIC_DEMAND };

/* GPU engine: what of a QP's order is kept between writes. Always: all earlier requests of the QP are visible with a
 * CQE at the latest, to an atomic or read behind them, and to a later write of the same bytes. STRICT: every write is
 * visible before the next one, as the CPU engine does; a fence per WQE. RUNS: writes of up to 8 aligned bytes
 * ("words") are visible after all earlier longer writes, so payload then flag holds, but a run of words, and a run of
 * longer writes, lands together in no order. */
enum softnic_writes { SOFTNIC_WRITES_RUNS, SOFTNIC_WRITES_STRICT };

/* Shapes the answers in time. All zero: as fast as it goes. */
struct softnic_profile {
    char name[32];
    double message_rate;   /* messages per second the NIC accepts at most; 0 = unlimited */
    double bandwidth;      /* payload bytes per second on the link; 0 = unlimited */
    uint64_t latency_ns;   /* doorbell seen -> CQE visible, for an 8 B write (data lands halfway) */
    uint64_t fetch_ns;     /* WQE fetch: added once per doorbell visit */
    uint32_t header_bytes; /* per message on the link, counted against bandwidth */
};
/* By name: "none", "cx7-200" (200 Gb/s; paper Table 5: 260 M msg/s, 24.8 GB/s, 3.30 us), and "slow", which models
 * nothing: messages land 50 us apart and are answered after 0.2 ms, so that tests see who does not wait. -ENOENT:
 * unknown. */
int softnic_profile_find(const char *name, struct softnic_profile *profile_p);
/* Names of the models known to softnic_profile_find, NULL-terminated. */
const char *const *softnic_profile_names(void);

struct softnic_attr {
    const char *job; /* prefix of every shared-memory name: "/<job>-nic<node>..." */
    uint32_t node, nodes;
    enum softnic_clock clock;
    enum softnic_watch watch;
    uint32_t workers; /* threads of the cpu engine (REAL); QPs are spread over them. 0 = 1 */
    uint32_t max_qps; /* 0 = 4096 + slack */
    uint32_t max_mrs; /* 0 = 1024 */
    struct softnic_profile profile;
    size_t trace_records; /* capacity of the binary trace, 0 = off; CPU engine only */
    enum softnic_engine engine;
    /* GPU engine; ignored by the other: */
    int device;                 /* CUDA device */
    uint32_t sms;               /* multiprocessors it takes, up to 8; 0 = 1 */
    uint32_t warps;             /* warps on each that serve queues, up to 16; 0 = 16 */
    enum softnic_writes writes; /* RUNS or STRICT */
    enum softnic_presence presence;
    uint32_t idle_us; /* DEMAND: 0 = 2000, up to 1000000 */
    /* How long the process waits for the kernel to come or to leave before it gives up; the kernel leaves when the process
     * has been silent for half of it. 0 = 10000, 100 to 600000 */
    uint32_t patience_ms;
};
/* Is SOFTNIC_ENGINE_GPU linked into this program? */
int softnic_gpu_built(void);

/* Creates the shared segment of this node. Peers may be created later. Not started. */
int softnic_create(const struct softnic_attr *attr, struct softnic **nic_p);
/* Stops workers, unmaps and unlinks everything this node made. NULL is fine. */
void softnic_destroy(struct softnic *nic);
const char *softnic_error(void); /* of the calling thread; never NULL */

/* 0, or the reason why the engine serves no more (GPU engine: the kernel failed or did not leave). */
int softnic_engine_error(const struct softnic *nic);

/* REAL only: start the workers; hold them (no queue is touched once hold returns) and let them go on. A GPU engine's
 * kernel is on the device only in between. */
int softnic_start(struct softnic *nic);
void softnic_hold(struct softnic *nic);
void softnic_resume(struct softnic *nic);
/* DEMAND: on: the kernel is on the device when this returns and stays; off: it leaves when idle, as before. Does not
 * nest. -EINVAL: WINDOW, where softnic_hold and softnic_resume do this, or the CPU engine. */
int softnic_stay(struct softnic *nic, int on);
/* Launches of the GPU engine's kernel since creation. */
uint64_t softnic_launches(const struct softnic *nic);

/* VIRTUAL only: serve all that is due up to now + ns, in a fixed order, and move the clock there. */
void softnic_advance(struct softnic *nic, uint64_t ns);
uint64_t softnic_now(const struct softnic *nic); /* ns of the NIC's clock */
/* VIRTUAL only: how long to advance until something is due of what was announced before the last softnic_advance(),
 * UINT64_MAX for nothing. */
uint64_t softnic_due(const struct softnic *nic);

/* Zeroed shared memory that peers in other processes can be given access to. Page aligned. Freed by
 * softnic_destroy or softnic_mem_free (which fails with -EBUSY while an MR lies in it). */
int softnic_mem_alloc(struct softnic *nic, size_t bytes, void **addr_p);
int softnic_mem_free(struct softnic *nic, void *addr);
/* GPU engine: the same in the memory of its device (exported to peers by CUDA IPC). -ENOTSUP with the other engine.
 */
int softnic_mem_alloc_gpu(struct softnic *nic, size_t bytes, void **addr_p);
/* GPU engine: gives peers access to device memory that the caller owns and keeps until softnic_mem_free, which only
 * withdraws it: of cudaMalloc, or of cuMemCreate with a POSIX file descriptor as its handle's type, mapped, all of it
 * within one physical allocation. Peers on other devices of this process are granted access to it. */
int softnic_mem_share_gpu(struct softnic *nic, void *addr, size_t bytes);

enum softnic_access {
    SOFTNIC_LOCAL_WRITE = 1,
    SOFTNIC_REMOTE_WRITE = 2,
    SOFTNIC_REMOTE_READ = 4,
    SOFTNIC_REMOTE_ATOMIC = 8,
    SOFTNIC_PEER_MAPPED = 16, /* peers find this memory by softnic_mr_attach */
    SOFTNIC_ZERO_BASED = 32,  /* addresses in WQEs are offsets from the region's start */
};
/* Any memory of this process may be registered; remote rights need memory of softnic_mem_alloc (-EFAULT
 * otherwise), unless every peer lives in this process or SOFTNIC_PEER_MAPPED is among the access bits. lkey == rkey,
 * host byte order. Local read is implied.
 */
int softnic_mr_register(struct softnic *nic, void *addr, size_t bytes, uint32_t access, uint32_t *key_p);
int softnic_mr_deregister(struct softnic *nic, uint32_t key);
/* Memory that somebody else shares between the processes: the first byte of node's region `key`, which was registered
 * with SOFTNIC_PEER_MAPPED, is at `addr` in this process. Rights and bounds stay those that its owner registered. Until
 * then a request that names the key fails. The mapping must last until the owner has deregistered the key or this
 * NIC is destroyed. -ENXIO: no such node; -ENOENT: it has no such key; -EINVAL: not registered for this. */
int softnic_mr_attach(struct softnic *nic, uint32_t node, uint32_t key, void *addr);
/* Maps what all peers have shared and registered so far, instead of at the first use: opening device memory may wait for
 * kernels, and those for the NIC. For after the exchange in which everybody has registered. -ENXIO: a peer has no NIC;
 * -EFAULT: memory of a peer cannot be mapped here. */
int softnic_peers_map(struct softnic *nic);

/* Completion queue in the driver's memory: `depth` (power of two) 64-byte CQEs, presented to the driver as
 * hardware does (the NIC initialises op_own to invalid | owner 1). Collapsed: only CQE 0 is used, overwritten
 * each time. `dbrec`: the driver's consumer index (__be32, low 24 bits), NULL = overrun is not checked. */
struct softnic_cq_attr {
    void *cqe;
    uint32_t depth;
    int collapsed;
    const void *dbrec;
};
int softnic_cq_create(struct softnic *nic, const struct softnic_cq_attr *attr, uint32_t *cqn_p);
int softnic_cq_destroy(struct softnic *nic, uint32_t cqn); /* -EBUSY while a QP uses it */

/* Send queue in the driver's memory: `depth` (power of two, <= 32768) 64-byte basic blocks; `dbrec` the
 * __be32 send counter (index of the next free block, low 16 bits), zero at first; `doorbell` the 64-bit word of
 * the UAR (may be NULL when the record is watched, and may be shared by QPs). All of it must stay readable until
 * softnic_qp_destroy or softnic_destroy has returned. GPU engine: all of it is memory that the device reaches (the
 * caller's own device memory, host memory that CUDA has mapped, softnic_mem_alloc's), and what is watched is not in host
 * memory (-EINVAL). */
struct softnic_qp_attr {
    void *sq;
    uint32_t depth;
    const void *dbrec;
    const void *doorbell;
    uint32_t cqn;
};
int softnic_qp_create(struct softnic *nic, const struct softnic_qp_attr *attr, uint32_t *qpn_p);
/* RC: all of this QP's requests go to that node (its own included). Maps the peer's memory registered so far;
 * later registrations are found at first use. The peer must exist (-ENXIO) and be registered. */
int softnic_qp_connect(struct softnic *nic, uint32_t qpn, uint32_t node, uint32_t remote_qpn);
/* Dynamically connected transport, as mlx5 has it. A DCT is what peers may send to, under a number of 24 bits of the node's
 * own; it lasts as long as the NIC. A DC queue pair's requests go to any node (its own included): behind the control
 * segment each has an address vector with the LID of the node (node + 1), the number of a DCT there and that one's key.
 * It is the compact one of 16 bytes, or with MLX5_EXT_AV that of 48, whose other 32 bytes are not looked at. A NOP,
 * WAIT or DUMP has none. Nobody of that LID or number: MLX5_SYND_TRANSPORT_RETRY; another key: REMOTE_ACCESS. Requests
 * of a queue pair are executed in order, whoever they go to. */
int softnic_dct_create(struct softnic *nic, uint64_t dc_key, uint32_t *dctn_p);
/* In the place of softnic_qp_connect. All peers must exist (-ENXIO). -ENOTSUP: the GPU engine with a profile. */
int softnic_qp_connect_dc(struct softnic *nic, uint32_t qpn);
/* Back from error to ready: indices to zero, as after a RESET..RTS transition. The caller has cleared its own,
 * the doorbell record included, before. CQEs already written stay; the CQ's indices go on. */
int softnic_qp_reset(struct softnic *nic, uint32_t qpn);
/* Nothing of the QP is touched once it returns; WQEs not yet executed are dropped. Its counts stay in those of all
 * QPs; its number may be given to a later QP. */
int softnic_qp_destroy(struct softnic *nic, uint32_t qpn);

enum softnic_qp_state { SOFTNIC_QP_INIT, SOFTNIC_QP_RTS, SOFTNIC_QP_ERROR };
enum softnic_qp_state softnic_qp_state(const struct softnic *nic, uint32_t qpn);
/* Syndrome of the QP's first error since it was created or reset, 0 if it had none. A collapsed CQ shows only the
 * latest CQE, which after an error is soon that of a flush. */
uint8_t softnic_qp_syndrome(const struct softnic *nic, uint32_t qpn);

/* Exact counts since creation, taken with the workers paused. `wqes` are those consumed in the ready state, a
 * failing one included; `flushed` come on top. error_cqes is part of cqes. wqe_write counts pointer and
 * inline together; wqe_write_inline those inline.
 */
struct softnic_counters {
    uint64_t wqes, wqe_write, wqe_write_inline, wqe_read, wqe_atomic, wqe_nop, wqe_wait, wqe_dump;
    uint64_t wqe_bytes;     /* bytes of WQEs fetched: 16 per segment */
    uint64_t payload_bytes; /* moved by writes, reads and atomics */
    uint64_t doorbells; /* distinct doorbell-record values seen with new work (timed: rings can coalesce) */
    uint64_t cqes, error_cqes, flushed;
    uint64_t qps_used;  /* QPs that executed at least one WQE */
    uint64_t cqes_lost; /* the CQ had overrun */
};
#define SOFTNIC_ALL_QPS UINT32_MAX
int softnic_counters_get(const struct softnic *nic, uint32_t qpn, struct softnic_counters *counters_p);

/* Trace: records in the order the NIC acted. A MARK lies where softnic_counters_get(SOFTNIC_ALL_QPS) counted, so
 * that what lies between two marks is what the difference of their counters counts. */
enum softnic_trace_kind {
    SOFTNIC_TRACE_DOORBELL = 1,
    SOFTNIC_TRACE_WQE = 2,
    SOFTNIC_TRACE_CQE = 3,
    SOFTNIC_TRACE_MARK = 4
};
enum { SOFTNIC_TRACE_INLINE = 1 };
struct softnic_trace {
    uint64_t time_ns;
    uint32_t qpn;   /* MARK: 0 */
    uint16_t index; /* DOORBELL: new producer index; WQE, CQE: WQE index; MARK: which, from 0 */
    uint8_t kind;
    uint8_t opcode;   /* WQE: mlx5 opcode; CQE: CQE opcode */
    uint32_t bytes;   /* WQE: payload bytes */
    uint8_t ds;       /* WQE: 16-byte segments */
    uint8_t fm_ce_se; /* WQE: as posted */
    uint8_t syndrome; /* CQE: error syndrome */
    uint8_t flags;    /* WQE: SOFTNIC_TRACE_INLINE: some of the payload is in the WQE */
    uint64_t raddr;   /* WQE: remote address */
};
/* Copies up to *count_p records out and says how many there were, and how many did not fit the capacity. */
int softnic_trace_read(struct softnic *nic, struct softnic_trace *records, size_t *count_p, uint64_t *lost_p);
/* Writes a trace file: the NIC, its QPs, its registered memory and the records, packed (trace.c has the format).
 * -EINVAL when a record is of no QP of this NIC. */
int softnic_trace_save(struct softnic *nic, const char *path);
/* Forgets the records, so that the next file begins here. The marks go on. */
int softnic_trace_clear(struct softnic *nic);

#ifdef __cplusplus
}
#endif
#endif
