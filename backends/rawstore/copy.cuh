// How a payload moves: by the lanes' own loads and stores, or by the bulk copies of sm_90 (TMA), which one thread starts
// and which go through shared memory. Included by handle.cuh.
#ifndef BACKENDS_RAWSTORE_COPY_CUH
#define BACKENDS_RAWSTORE_COPY_CUH

#include "backends/abi/device.cuh"

#define GIC_RAWSTORE_TRY(call)                                                                               \
    do {                                                                                                     \
        if (int status_ = (call))                                                                            \
            return status_;                                                                                  \
    } while (0)

GIC_DEVICE bool rawstore_aligned(const void *to, const void *from, uint32_t to_what) {
    return (((uintptr_t)to | (uintptr_t)from) & (to_what - 1)) == 0;
}

// Loads of a lane under way: of a thread by itself, of one in a group.
constexpr uint32_t rawstore_deep_alone = 8, rawstore_deep = 16;

// One value of 1, 2, 4 or 8 bytes.
GIC_DEVICE int rawstore_store(uint8_t *to, uint64_t value, uint32_t bytes) {
    switch (bytes) {
    case 1:
        *(volatile uint8_t *)to = (uint8_t)value;
        return gic::OK;
    case 2:
        *(volatile uint16_t *)to = (uint16_t)value;
        return gic::OK;
    case 4:
        gic::store_relaxed((uint32_t *)to, (uint32_t)value);
        return gic::OK;
    case 8:
        gic::store_relaxed((uint64_t *)to, value);
        return gic::OK;
    default:
        return gic::ERR_INVAL;
    }
}

#if defined(__CUDACC__)

// Nobody asks for the old value: a reduction, which needs no answer from the peer.
GIC_DEVICE void rawstore_add(uint64_t *at, uint64_t add, bool fenced) {
    if (fenced) {
        gic::fence_acq_rel<gic::Scope::system>();
        asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(at)), "l"(add)
                     : "memory");
    } else {
        asm volatile("red.release.sys.global.add.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(at)), "l"(add)
                     : "memory");
    }
}

// REMOTE sources are loaded past the L1 cache, in which an earlier get may have left them.
template <bool REMOTE, class T> GIC_DEVICE T rawstore_load(const T *p) {
    if constexpr (!REMOTE)
        return *p;
    else if constexpr (sizeof(T) == 16) {
        uint4 v;
        asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(__cvta_generic_to_global(p))
                     : "memory");
        return v;
    } else {
        return *(const volatile T *)p;
    }
}

// Units of one type. What a lane moves in a time is the bytes it has under way, since each round waits for its loads: many
// loads before the first store, and a last round of what is left, not unit by unit. One thread by itself takes fewer, for
// the sake of kernels with a thousand of them in a block.
template <bool REMOTE, uint32_t DEEP, uint32_t STEP, class T>
GIC_DEVICE void rawstore_copy_units(T *to, const T *from, uint32_t n, uint32_t first) {
    GIC_ROLLED
    for (uint32_t i = first; i < n; i += DEEP * STEP) {
        const uint32_t left = n - i;
        const T *here = from + i;
        T *there = to + i, v[DEEP];
        GIC_UNROLLED
        for (uint32_t k = 0; k < DEEP; k++)
            v[k] = rawstore_load<REMOTE>(here + (k * STEP < left ? k * STEP : 0));
        GIC_UNROLLED
        for (uint32_t k = 0; k < DEEP; k++)
            if (k * STEP < left)
                there[k * STEP] = v[k];
    }
}

// The share of one payload of a lane of STEP: units `first`, `first` + STEP, ...
template <bool REMOTE, uint32_t DEEP, uint32_t STEP>
GIC_COLD void rawstore_copy(uint8_t *to, const uint8_t *from, uint32_t bytes, uint32_t first) {
    uint32_t done = 0;
    if (rawstore_aligned(to, from, 16))
        rawstore_copy_units<REMOTE, DEEP, STEP>((uint4 *)to, (const uint4 *)from, bytes / 16, first),
            done = bytes / 16 * 16;
    else if (rawstore_aligned(to, from, 8))
        rawstore_copy_units<REMOTE, DEEP, STEP>((uint64_t *)to, (const uint64_t *)from, bytes / 8, first),
            done = bytes / 8 * 8;
    rawstore_copy_units<REMOTE, rawstore_deep_alone, STEP>(to + done, from + done, bytes - done, first);
}

// `count` payloads of `units` 16-byte units by a warp; lane i has the addresses of payload i. Short ones are taken together,
// their units in turn; long ones one after the other, which spares the search for a unit's payload.
struct rawstore_group {
    static GIC_COLD void copy(uint8_t *to, const uint8_t *from, uint32_t units, uint32_t count,
                              uint32_t lane) {
        if (units >= 32 * rawstore_deep) {
            GIC_ROLLED
            for (uint32_t i = 0; i < count; i++)
                rawstore_copy_units<false, rawstore_deep, 32>(
                    (uint4 *)__shfl_sync(~0u, (unsigned long long)to, (int)i),
                    (const uint4 *)__shfl_sync(~0u, (unsigned long long)from, (int)i), units, lane);
            return;
        }
        constexpr uint32_t deep = 8;
        const uint32_t total = units * count;
        GIC_ROLLED
        for (uint32_t base = 0; base < total; base += 32 * deep) {
            uint4 v[deep];
            uint4 *at[deep];
            GIC_UNROLLED
            for (uint32_t k = 0; k < deep; k++) {
                const uint32_t u = base + 32 * k + lane, in = u < total ? u : total - 1, of = in / units;
                uint8_t *there = (uint8_t *)__shfl_sync(~0u, (unsigned long long)to, (int)of);
                const uint8_t *here = (const uint8_t *)__shfl_sync(~0u, (unsigned long long)from, (int)of);
                at[k] = u < total ? (uint4 *)there + (in - of * units) : nullptr;
                v[k] = ((const uint4 *)here)[in - of * units];
            }
            GIC_UNROLLED
            for (uint32_t k = 0; k < deep; k++)
                if (at[k])
                    *at[k] = v[k];
        }
    }
};

#else

inline void rawstore_add(uint64_t *at, uint64_t add, bool fenced) {
    if (fenced)
        gic::fence_acq_rel<gic::Scope::system>();
    __atomic_fetch_add(at, add, fenced ? __ATOMIC_RELAXED : __ATOMIC_RELEASE);
}
template <bool REMOTE, uint32_t DEEP, uint32_t STEP>
inline void rawstore_copy(uint8_t *to, const uint8_t *from, uint32_t bytes, uint32_t) {
    memcpy(to, from, bytes);
}

#endif

// The order of loads into stages and stores out of them, of one payload. `chunks` of this engine have gone before, whose
// stages and phases go on here; returns how many then, or rawstore_failed. An engine has `size` bytes in a stage and
//   void wait_read()                        until of the stores begun, at most stages - ahead - 1 have not read their stage
//   void load(stage, from, bytes)           begins one
//   bool loaded(stage, phase)               waits for the load that ends this phase of its stage, false if it never comes
//   void store(to, stage, bytes)            begins one
constexpr uint32_t rawstore_stages = 6, rawstore_ahead = 4; // loads under way; the rest is being stored
constexpr uint32_t rawstore_failed = UINT32_MAX;

template <class E>
GIC_DEVICE uint32_t rawstore_pipeline(const E &engine, uint8_t *to, const uint8_t *from, uint32_t bytes,
                                      uint32_t chunks) {
    const uint32_t size = engine.size, n = (bytes + size - 1) / size;
    GIC_ROLLED
    for (uint32_t i = 0; i < n + rawstore_ahead; i++) {
        if (i < n) {
            const uint32_t left = bytes - i * size;
            engine.wait_read(); // the stage's last chunk, which is `stages` before this one, among them
            engine.load((chunks + i) % rawstore_stages, from + i * size, left < size ? left : size);
        }
        if (i >= rawstore_ahead) {
            const uint32_t k = i - rawstore_ahead, number = chunks + k, left = bytes - k * size;
            if (!engine.loaded(number % rawstore_stages, number / rawstore_stages & 1))
                return rawstore_failed;
            engine.store(to + k * size, number % rawstore_stages, left < size ? left : size);
        }
    }
    return chunks + n;
}

#if defined(__CUDACC__) && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900)

// The bulk copies of one warp of an agent: its first lane starts them. A chunk goes from global memory into a stage of
// shared memory (announced by the stage's mbarrier) and from there to the other global memory (a bulk group).
//
// Bulk copies are done by the asynchronous proxy: what threads have stored before is fenced into it, and complete()
// makes what it has stored part of what this thread has done, so that a release behind it covers it.
class rawstore_bulk {
  public:
    static constexpr uint32_t room = 44 << 10; // shared memory of a block's warps together

    static GIC_DEVICE bool fits(const void *to, const void *from) { return rawstore_aligned(to, from, 16); }

    GIC_DEVICE rawstore_bulk(uint32_t from, uint32_t lane) : leads_(from != UINT32_MAX && lane % 32 == 0) {
        if (leads_)
            prepare();
    }
    GIC_DEVICE ~rawstore_bulk() {
        if (leads_)
            release();
    }
    // Both aligned, `bytes` a multiple of 16.
    GIC_DEVICE int copy(uint8_t *to, const uint8_t *from, uint32_t bytes) {
        if (!leads_)
            return gic::OK;
        chunks_ = run(to, from, bytes, chunks_);
        return chunks_ == rawstore_failed ? (int)gic::ERR_TIMEOUT : (int)gic::OK;
    }
    // As copy, of `count` payloads, whose addresses the lanes hold.
    GIC_DEVICE int copy_each(uint8_t *to, const uint8_t *from, uint32_t bytes, uint32_t count) {
        int status = gic::OK;
        GIC_ROLLED
        for (uint32_t i = 0; i < count && status == gic::OK; i++) {
            uint8_t *there = (uint8_t *)__shfl_sync(~0u, (unsigned long long)to, (int)i);
            const uint8_t *here = (const uint8_t *)__shfl_sync(~0u, (unsigned long long)from, (int)i);
            status = __shfl_sync(~0u, copy(there, here, bytes), 0);
        }
        return status;
    }
    GIC_DEVICE int complete() const {
        if (leads_)
            asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
        return gic::OK;
    }

  private:
    struct Shared {
        alignas(128) uint8_t data[room];
        uint64_t full[32][rawstore_stages];
    };
    static GIC_DEVICE Shared &shared() {
        __shared__ Shared s;
        return s;
    }
    static GIC_DEVICE uint32_t at(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
    static GIC_DEVICE uint64_t *full(uint32_t stage) { return &shared().full[threadIdx.x / 32][stage]; }

    static GIC_COLD void prepare() {
        for (uint32_t s = 0; s < rawstore_stages; s++)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(full(s))) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    static GIC_COLD void release() {
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
        for (uint32_t s = 0; s < rawstore_stages; s++)
            asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(at(full(s))) : "memory");
    }
    // What rawstore_pipeline() works with: `stages` of `size` bytes each, from `buffers` on.
    struct Engine {
        uint32_t buffers, size;

        GIC_DEVICE void wait_read() const {
            asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(rawstore_stages - rawstore_ahead - 1)
                         : "memory");
        }
        GIC_DEVICE void load(uint32_t stage, const uint8_t *from, uint32_t bytes) const {
            const uint32_t bar = at(full(stage));
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                         : "memory");
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
                         "[%3];" ::"r"(buffers + stage * size),
                         "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(bar)
                         : "memory");
        }
        GIC_DEVICE bool loaded(uint32_t stage, uint32_t phase) const {
            uint32_t done = 0;
            for (uint32_t polls = 0; !done && polls < 1u << 24; polls++) // a poll waits a while by itself
                asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
                             "selp.u32 %0, 1, 0, p; }"
                             : "=r"(done)
                             : "r"(at(full(stage))), "r"(phase)
                             : "memory");
            return done;
        }
        GIC_DEVICE void store(uint8_t *to, uint32_t stage, uint32_t bytes) const {
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                             __cvta_generic_to_global(to)),
                         "r"(buffers + stage * size), "r"(bytes)
                         : "memory");
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        }
    };
    static GIC_COLD uint32_t run(uint8_t *to, const uint8_t *from, uint32_t bytes, uint32_t chunks) {
        const uint32_t size = room / (blockDim.x / 32) / rawstore_stages / 128 * 128;
        const Engine engine{at(shared().data) + threadIdx.x / 32 * (size * rawstore_stages), size};
        asm volatile("fence.proxy.async.global;" ::: "memory");
        return rawstore_pipeline(engine, to, from, bytes, chunks);
    }

    bool leads_;
    uint32_t chunks_ = 0; // their stages and phases go on from put to put
};

#else

// Threads of this machine have none, nor have older GPUs: a session takes stores there.
class rawstore_bulk {
  public:
    static GIC_DEVICE bool fits(const void *, const void *) { return false; }
    GIC_DEVICE rawstore_bulk(uint32_t, uint32_t) {}
    GIC_DEVICE int copy(uint8_t *, const uint8_t *, uint32_t) { return gic::ERR_NOTSUP; }
    GIC_DEVICE int copy_each(uint8_t *, const uint8_t *, uint32_t, uint32_t) { return gic::ERR_NOTSUP; }
    GIC_DEVICE int complete() const { return gic::OK; }
};

#endif

#endif
