// Host side of mini-gda: queues and agents' places in memory that device threads and the NIC share, and the
// handle that a kernel gets.
//
// Functions return 0 or a negative errno and leave one line in gic::error_text(). One thread at a time.
#ifndef MINIGDA_GDA_H
#define MINIGDA_GDA_H

#include "minigda/gda.cuh"
#include "minigda/gda_host.h"

#include <pthread.h>

struct gda_attr {
    gda_order order;
    gda_sharing sharing;
    gda_scope scope;
    uint32_t qps, batch, signal_every, depth; // qps per peer; depth: power of two, 64..32768
    uint32_t inline_max;                      // 0: nothing goes inline
    bool inline_only;                         // refuse what does not fit instead of pointing to it
    uint32_t lanes;                           // of an agent that has some (gda_lanes); 0: a warp's
    bool host_rings;                          // kernels leave doorbells in memory, and a thread rings them
    bool hold;                                // the NIC looks at the queues only while an agent waits for it
};

struct gda {
    struct gda_attr attr;
    struct gda_fabric *fabric;
    // Between launches the host's copies are the state. With a GPU a launch works on its own copies, in GPU memory:
    // gda_begin uploads, gda_end downloads. Landings and the gate are shared, in host memory.
    gda_queue *queues, *device_queues;
    gda_cursor *cursors, *device_cursors;
    gda_landing *landings;
    gda_gate *gate;
    std::vector<gda_block_words> block; // gda_in_block, on threads of this machine: the words during a launch
    uint32_t landing_key, agents_max;   // agents there are cursors for
    uint32_t agents;                    // of the last launch
    uint64_t slot_waits, doorbells;     // of cursors that were replaced
    bool broken;                        // the last launch failed: the queues' state is unknown
    bool monitoring;
    uint32_t stop_monitor;
    pthread_t monitor;
    // host_rings: a word per queue, 64 bytes apart, in place of its doorbell; the thread that hands them on.
    uint64_t *bells;
    bool ringing;
    uint32_t stop_ringer;
    pthread_t ringer;
    const volatile uint32_t *stop; // of gic_open
    uint64_t timeout_ns;
};

// Sanity of the choices alone, for so many ranks.
int gda_check(const struct gda_attr *attr, uint32_t nranks = 1);

// Collective. Takes over the fabric (no queue pairs yet), also when it fails.
int gda_open(struct gda_fabric *fabric, const struct gic_open *open, const struct gda_attr *attr,
             struct gda **gda_p);
void gda_close(struct gda *gda);
int gda_window(struct gda *gda, uint64_t bytes); // collective

// Before a launch of `agents`: checks them against the queues (-ENOTSUP when so many cannot post with these
// choices: in a sweep of both a skipped row), makes their places, and holds the NIC for order=none. After a launch that failed it first resets all queue pairs.
int gda_begin(struct gda *gda, uint32_t agents);
// After the launch. `status`: the launch's. Lets the NIC go on; gives the reason of an error CQE. Returns the
// run's status.
int gda_end(struct gda *gda, int status);

// The part of the device handle that does not depend on its type. Valid for one launch, after gda_begin.
void gda_fill(const struct gda *gda, gda_shared *shared);

void gda_facts(const struct gda *gda, gic::Facts *facts);
void gda_counters(const struct gda *gda, gic::Counters *counters);

// Names as in the paper's Table 4 and in the header comments: "gpu-fence", "handoff", "qp". In enum order,
// separated by '|'.
#define GDA_ORDERS "none|gpu-fence|gpu-fence+dbr|gpu-release|threadfence|sys-release|sys-fence"
#define GDA_SHARINGS "exclusive|lock|handoff|warp"
#define GDA_LOCKS "gpu|block"
#define GDA_SCOPES "qp|peer|all"
const char *gda_order_host(gda_order order); // what it becomes on device=host
const char *gda_order_ptx(gda_order order);  // and on device=cuda

template <gda_order O, gda_sharing S> gda_handle<O, S> gda_handle_of(const struct gda *gda) {
    gda_handle<O, S> h{};
    gda_fill(gda, &h);
    return h;
}

// What types of handle an F of gda_dispatch takes: its own `has`, otherwise a type per rung where queues are exclusive
// (the minimal path) and one for all rungs where agents share them.
template <class F, gda_order O, gda_sharing S, class = void> struct gda_takes {
    static constexpr bool value = gda_exclusive(S) == (O != gda_order::runtime);
};
template <class F, gda_order O, gda_sharing S>
struct gda_takes<F, O, S, std::enable_if_t<F::template has<O, S> || true>> {
    static constexpr bool value = F::template has<O, S>;
};
template <gda_order O, gda_sharing S, class F> int gda_dispatch_as(F &f) {
    if constexpr (gda_takes<F, O, S>::value)
        return f.template operator()<O, S>();
    else if constexpr (gda_takes<F, gda_order::runtime, S>::value)
        return f.template operator()<gda_order::runtime, S>();
    else
        return gic::fail(
            -ENOTSUP,
            "no kernel has been built that posts so (order, sharing, lock, agent, state, bare) here");
}
template <gda_sharing S, class F> int gda_dispatch_order(gda_order order, F &f) {
    using o = gda_order;
    switch (order) {
    case o::none:
        return gda_dispatch_as<o::none, S>(f);
    case o::gpu_fence:
        return gda_dispatch_as<o::gpu_fence, S>(f);
    case o::gpu_fence_dbr:
        return gda_dispatch_as<o::gpu_fence_dbr, S>(f);
    case o::gpu_release:
        return gda_dispatch_as<o::gpu_release, S>(f);
    case o::threadfence:
        return gda_dispatch_as<o::threadfence, S>(f);
    case o::sys_release:
        return gda_dispatch_as<o::sys_release, S>(f);
    default:
        return gda_dispatch_as<o::sys_fence, S>(f);
    }
}
// Calls f.template operator()<O, S>() for the choices in `attr`; O is `runtime` where F has no type for the rung.
template <class F> int gda_dispatch(const struct gda_attr &attr, F f) {
    using s = gda_sharing;
    switch (attr.sharing) {
    case s::lock:
        return gda_dispatch_order<s::lock>(attr.order, f);
    case s::handoff:
        return gda_dispatch_order<s::handoff>(attr.order, f);
    case s::warp:
        return gda_dispatch_order<s::warp>(attr.order, f);
    case s::group:
        return gda_dispatch_order<s::group>(attr.order, f);
    case s::spare:
        return gda_dispatch_order<s::spare>(attr.order, f);
    case s::block_lock:
        return gda_dispatch_order<s::block_lock>(attr.order, f);
    case s::block_handoff:
        return gda_dispatch_order<s::block_handoff>(attr.order, f);
    case s::block_warp:
        return gda_dispatch_order<s::block_warp>(attr.order, f);
    case s::bare:
        return gda_dispatch_order<s::bare>(attr.order, f);
    case s::bare_group:
        return gda_dispatch_order<s::bare_group>(attr.order, f);
    default:
        return gda_dispatch_order<s::exclusive>(attr.order, f);
    }
}

#endif
