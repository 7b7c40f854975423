// protocol: one call of NCCL's device API by rank 0 to rank 1 on one context, for the NIC's trace of it. Nothing is timed.
#ifndef BACKENDS_NCCLGIN_PROTOCOL_CUH
#define BACKENDS_NCCLGIN_PROTOCOL_CUH

#include "backends/abi/driver.cuh"
#include "backends/ncclgin/handle.cuh"

struct protocol_workload {
    static constexpr const char *name = "protocol";
#define GIC_PROTOCOL_CALLS(X)                                                                                \
    X(put)                                                                                                   \
    X(put_empty)                                                                                             \
    X(put_value)                                                                                             \
    X(put_value_1)                                                                                           \
    X(signal_inc)                                                                                            \
    X(signal_add)                                                                                            \
    X(put_signal_inc)                                                                                        \
    X(put_value_signal_inc)                                                                                  \
    X(put_counter)                                                                                           \
    X(put_signal_counter)                                                                                    \
    X(flush)                                                                                                 \
    X(barrier)
    enum Call : uint32_t {
#define X(name) CALL_##name,
        GIC_PROTOCOL_CALLS(X)
#undef X
            CALLS
    };
    struct Params {
        uint32_t call;
    };
    enum : uint64_t { SOURCE = 0, TARGET = 4096 }; // offsets in the window
    enum : uint32_t { SIGNAL = 1024, COUNTER = 0 };

    static int parse(gic::Inputs &in, gic::Arena &, uint32_t nranks, Params *p) {
        static const char *const names[] = {
#define X(name) #name,
            GIC_PROTOCOL_CALLS(X)
#undef X
        };
        in.agents = 1;
        const char *call = in.text("call");
        for (p->call = 0; p->call < CALLS && strcmp(names[p->call], call) != 0;)
            p->call++;
        if (int rc = in.check())
            return rc;
        if (p->call == CALLS || nranks < 2)
            return gic::fail(-EINVAL, "protocol: call=%s with %u ranks: want a known call and two ranks",
                             call, nranks);
        return 0;
    }

    static void finish(const Params &, gic::Arena &, gic::Results &) {}

#if defined(__CUDACC__)
    template <class H> static GIC_DEVICE int kernel(const H &h, gic::Self, const Params &p) {
        const ncclGin gin = ncclgin_call::context(h, 0);
        if (p.call == CALL_barrier) { // of all ranks, and none but this one has a signal in it
            ncclGinBarrierSession<ncclCoopThread> barrier(ncclCoopThread(), gin, ncclTeamWorld(gin.comm),
                                                          gin.comm.railGinBarrier, 0);
            barrier.sync(ncclCoopThread(), cuda::memory_order_acq_rel, ncclGinFenceLevel::Relaxed);
        } else if (h.rank == 0) {
            make(gin, h.windows[0], p.call);
        }
        return gic::OK;
    }

  private:
    static GIC_DEVICE void make(const ncclGin &gin, ncclWindow_t w, uint32_t call) {
        const ncclTeam world = ncclTeamWorld(gin.comm);
        const size_t bytes = 64;
        const ncclGin_SignalInc inc{SIGNAL};
        const ncclGin_CounterInc count{COUNTER};
        switch (call) {
        case CALL_put:
            return gin.put(world, 1, w, TARGET, w, SOURCE, bytes);
        case CALL_put_empty:
            return gin.put(world, 1, w, TARGET, w, SOURCE, 0);
        case CALL_put_value:
            return gin.putValue(world, 1, w, TARGET, (uint64_t)1);
        case CALL_put_value_1:
            return gin.putValue(world, 1, w, TARGET, (uint8_t)1);
        case CALL_signal_inc:
            return gin.signal(world, 1, inc);
        case CALL_signal_add:
            return gin.signal(world, 1, ncclGin_SignalAdd{SIGNAL, 3});
        case CALL_put_signal_inc:
            return gin.put(world, 1, w, TARGET, w, SOURCE, bytes, inc);
        case CALL_put_value_signal_inc:
            return gin.putValue(world, 1, w, TARGET, (uint64_t)1, inc);
        case CALL_put_counter:
            return gin.put(world, 1, w, TARGET, w, SOURCE, bytes, ncclGin_None{}, count);
        case CALL_put_signal_counter:
            return gin.put(world, 1, w, TARGET, w, SOURCE, bytes, inc, count);
        default:
            return gin.flush(ncclCoopThread());
        }
    }
#else
    template <class H> static GIC_DEVICE int kernel(const H &, gic::Self, const Params &) {
        return gic::ERR_NOTSUP;
    }
#endif
};

#endif
