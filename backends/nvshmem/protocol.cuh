// protocol: one call of NVSHMEM's device API by PE 0 to PE 1, for the NIC's trace of it. What the adapter's words never
// use (SET, the other atomics, g, a p by a whole warp) is here too. Nothing is timed.
#ifndef BACKENDS_NVSHMEM_PROTOCOL_CUH
#define BACKENDS_NVSHMEM_PROTOCOL_CUH

#include "backends/abi/driver.cuh"
#include "backends/nvshmem/handle.cuh"

struct protocol_workload {
    static constexpr const char *name = "protocol";
    // In this order; a `_warp` is called by all lanes of a warp (scope=warp), the others by one thread.
#define GIC_PROTOCOL_CALLS(X)                                                                                \
    X(put)                                                                                                   \
    X(put_warp)                                                                                              \
    X(put_each_warp)                                                                                         \
    X(p)                                                                                                     \
    X(p_warp)                                                                                                \
    X(g)                                                                                                     \
    X(get)                                                                                                   \
    X(put_signal_add)                                                                                        \
    X(put_signal_set)                                                                                        \
    X(signal_add)                                                                                            \
    X(signal_set)                                                                                            \
    X(atomic_add)                                                                                            \
    X(atomic_inc)                                                                                            \
    X(atomic_set)                                                                                            \
    X(atomic_and)                                                                                            \
    X(atomic_or)                                                                                             \
    X(atomic_xor)                                                                                            \
    X(atomic_swap)                                                                                           \
    X(atomic_compare_swap)                                                                                   \
    X(atomic_fetch)                                                                                          \
    X(atomic_fetch_add)                                                                                      \
    X(atomic_fetch_and)                                                                                      \
    X(atomic_add_32)                                                                                         \
    X(atomic_swap_32)                                                                                        \
    X(fence)                                                                                                 \
    X(quiet)
    enum Call : uint32_t {
#define X(name) CALL_##name,
        GIC_PROTOCOL_CALLS(X)
#undef X
            CALLS
    };
    struct Params {
        uint32_t call;
    };
    enum : uint64_t { SOURCE = 0, TARGET = 4096, WORD = 8192 }; // offsets in the window

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

#if defined(__CUDA_ARCH__)
    template <class H> static GIC_DEVICE int kernel(const H &h, gic::Self self, const Params &p) {
        const bool whole_warp =
            p.call == CALL_put_warp || p.call == CALL_put_each_warp || p.call == CALL_p_warp;
        if (h.rank != 0 || whole_warp != (self.lanes == 32))
            return h.rank == 0 ? (int)gic::ERR_NOTSUP : (int)gic::OK;
        make(p.call, h.window, self.lane);
        return gic::OK;
    }

  private:
    static GIC_DEVICE void make(uint32_t call, uint8_t *window, uint32_t lane) {
        constexpr size_t bytes = 64;
        uint8_t *src = window + SOURCE, *dst = window + TARGET;
        auto *word = (uint64_t *)(window + WORD);
        auto *word32 = (uint32_t *)word;
        volatile uint64_t kept;
        switch (call) {
        case CALL_put:
            return nvshmem_putmem_nbi(dst, src, bytes, 1);
        case CALL_put_warp:
            return nvshmemx_putmem_nbi_warp(dst, src, bytes, 1);
        case CALL_put_each_warp:
            return nvshmem_putmem_nbi(dst + bytes * lane, src + bytes * lane, bytes, 1);
        case CALL_p:
            return nvshmem_uint64_p(word, 1, 1);
        case CALL_p_warp:
            return nvshmem_uint64_p((uint64_t *)dst + lane, 1, 1);
        case CALL_g:
            kept = nvshmem_uint64_g(word, 1);
            return;
        case CALL_get:
            return nvshmem_getmem_nbi(src, dst, bytes, 1);
        case CALL_put_signal_add:
            return nvshmem_putmem_signal_nbi(dst, src, bytes, word, 1, NVSHMEM_SIGNAL_ADD, 1);
        case CALL_put_signal_set:
            return nvshmem_putmem_signal_nbi(dst, src, bytes, word, 1, NVSHMEM_SIGNAL_SET, 1);
        case CALL_signal_add:
            return nvshmemx_signal_op(word, 1, NVSHMEM_SIGNAL_ADD, 1);
        case CALL_signal_set:
            return nvshmemx_signal_op(word, 1, NVSHMEM_SIGNAL_SET, 1);
        case CALL_atomic_add:
            return nvshmem_uint64_atomic_add(word, 1, 1);
        case CALL_atomic_inc:
            return nvshmem_uint64_atomic_inc(word, 1);
        case CALL_atomic_set:
            return nvshmem_uint64_atomic_set(word, 1, 1);
        case CALL_atomic_and:
            return nvshmem_uint64_atomic_and(word, 1, 1);
        case CALL_atomic_or:
            return nvshmem_uint64_atomic_or(word, 1, 1);
        case CALL_atomic_xor:
            return nvshmem_uint64_atomic_xor(word, 1, 1);
        case CALL_atomic_swap:
            kept = nvshmem_uint64_atomic_swap(word, 1, 1);
            return;
        case CALL_atomic_compare_swap:
            kept = nvshmem_uint64_atomic_compare_swap(word, 0, 1, 1);
            return;
        case CALL_atomic_fetch:
            kept = nvshmem_uint64_atomic_fetch(word, 1);
            return;
        case CALL_atomic_fetch_add:
            kept = nvshmem_uint64_atomic_fetch_add(word, 1, 1);
            return;
        case CALL_atomic_fetch_and:
            kept = nvshmem_uint64_atomic_fetch_and(word, 1, 1);
            return;
        case CALL_atomic_add_32:
            return nvshmem_uint32_atomic_add(word32, 1, 1);
        case CALL_atomic_swap_32:
            kept = nvshmem_uint32_atomic_swap(word32, 1, 1);
            return;
        case CALL_fence:
            return nvshmem_fence();
        default:
            return nvshmem_quiet();
        }
    }
#else
    template <class H> static GIC_DEVICE int kernel(const H &, gic::Self, const Params &) {
        return gic::ERR_NOTSUP;
    }
#endif
};

#endif
