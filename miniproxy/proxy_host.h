// The host side of the CPU proxy: rings, and the workers that turn descriptors into mlx5 work requests.
//
// A Host borrows a gda_fabric (NIC, window, connected QPs) and adds what the proxy needs: the rings and
// progress words in memory that device threads reach, and the worker threads. Worker w posts to QP w of each
// peer and to no other, so nothing between workers is shared.
//
// A sweep of a worker: take up to `batch` descriptors from each open ring; ring a QP's doorbell as soon as
// `batch` WQEs wait for it, and what is left at the end of the sweep. The last WQE of each doorbell is
// signaled. Then, if there was nothing to take, and after every 64 descriptors in any case: poll the CQs and
// move the rings' completion counters, in ring order.
//
// A worker trusts no descriptor: an operation, peer, range or size that makes no sense, and a QP in error,
// end the ring they came from. Its status becomes ERR_IO, what it holds is dropped, its counters go on moving
// so that nobody waits for it, and error() has one line about the first such event. The other rings go on.
//
// Threads: one thread at a time calls the functions here, except step() of different workers. The fabric's
// window may be replaced only while no descriptor is in flight.
#ifndef MINIPROXY_PROXY_HOST_H
#define MINIPROXY_PROXY_HOST_H

#include "minigda/gda_host.h"
#include "miniproxy/proxy.cuh"

#include <memory>
#include <string>
#include <vector>

namespace proxy {

constexpr uint32_t MAX_WORKERS = 8, MAX_BATCH = 16, MAX_QPS = 4, MIN_RING_DEPTH = 64, MAX_RING_DEPTH = 65536,
                   MAX_REST_NS = 10000;
constexpr uint32_t MAX_INLINE = 972;         // what fits the longest WQE
constexpr uint32_t MAX_SHARED_AGENTS = 4096; // result slots when agents share rings

struct Attr {
    uint32_t rings;      // 1..MAX_RINGS; ring r belongs to worker r % workers
    uint32_t ring_depth; // descriptors; power of two, MIN_RING_DEPTH..MAX_RING_DEPTH
    uint32_t workers;    // 1..MAX_WORKERS
    uint32_t batch;      // 1..MAX_BATCH
    // A put of at most so many bytes travels inside its WQE; 0..MAX_INLINE. Below 8 a put_value does not either:
    // its value waits in memory beside the send queue.
    uint32_t inline_max;
    bool inline_only; // larger puts are refused instead of pointed to
    bool shared;      // agents may share a ring
    // Device code on a GPU: a put is handed over behind no order, so what the kernel itself wrote must have been
    // ordered by it (gpu_visible) before. The worker sees the descriptor itself whole in any case.
    bool posted = false;
    // Per worker and peer, 1..MAX_QPS; ring r of a worker's posts to QP r / workers % qps, so that what one agent does to
    // one peer stays on one QP. More than one: for a NIC that serves QPs in parallel.
    uint32_t qps = 1;
    uint32_t rest_ns =
        0; // that a worker leaves all its rings alone after it found them empty, 0..MAX_REST_NS
    // Between hold() and release() the NIC stands still while a worker posts, and looks at the queues only when something
    // is to be completed and no worker has found anything to post for so long: posting alone. 0: never.
    uint32_t hold_ns = 0;
};

// Since the Host was made.
struct Stats {
    uint64_t descriptors; // taken from the rings; dropped ones too
    uint64_t wqes;        // posted
    uint64_t doorbells;   // rung
};

class Host {
  public:
    // `fabric` has been connected with attr.workers * attr.qps QPs per peer and CQs that are rings (not collapsed) of at
    // least the SQ's depth; it outlives the Host. 0 or a negative errno with a line in gic::error_text().
    static int create(struct gda_fabric *fabric, const Attr &attr, std::unique_ptr<Host> *host_p);
    ~Host(); // joins the workers; descriptors in flight are abandoned

    // Start the worker threads, once.
    int start();

    // One sweep of one worker, by hand: never together with start(). Returns descriptors taken plus CQEs
    // seen.
    size_t step(uint32_t worker);

    // Around a launch, with hold_ns: release() also if it failed, and after drain() if not. Other control calls of the NIC
    // are made outside.
    void hold();
    void release();

    // Before and after a launch on a GPU, whose producers live in its memory. Nothing without one.
    int begin();
    int end();

    // Wait until all that was ever handed over is complete. OK, ERR_IO, ERR_TIMEOUT or ERR_CANCELED.
    int drain(const gic::Env &env);

    std::string error() const; // "" while nothing went wrong
    Stats stats() const;

    // For one launch; made anew after the fabric's window has been replaced.
    template <Handoff F, bool MANY = false>
    Handle<F, MANY> handle(const gic::Env &env, uint32_t lanes) const {
        Handle<F, MANY> h{fabric_->rank, fabric_->nranks, fabric_->window, env, lanes, rings_};
        h.rings.producer = device_producer_;
        return h;
    }

  private:
    class Worker;
    struct Error; // text behind a lock
    struct Gate;  // when the NIC looks
    Host(struct gda_fabric *fabric, const Attr &attr);
    int allocate();

    struct gda_fabric *fabric_;
    Attr attr_;
    Rings rings_{};
    Producer *device_producer_ = nullptr; // rings_.producer, or the GPU's copy
    uint32_t results_key_ = 0;
    uint64_t *values_ =
        nullptr; // by worker, peer and block of the send queue; only where nothing goes inline
    uint32_t values_key_ = 0;
    std::unique_ptr<Error> error_;
    std::unique_ptr<Gate> gate_;
    std::vector<std::unique_ptr<Worker>> workers_;
};

} // namespace proxy

#endif
