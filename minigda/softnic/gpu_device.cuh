// GPU engine: loads, stores, fences, and how a warp copies. Everything here is called by whole warps.
#ifndef SOFTNIC_GPU_DEVICE_CUH
#define SOFTNIC_GPU_DEVICE_CUH

#include "gpu.h"

#if defined(__CUDACC__)
#define GPU_UNROLL _Pragma("unroll")
#define GPU_ROLLED _Pragma("unroll 1")
#else
#include "gpu_warp.h"
#define GPU_UNROLL
#define GPU_ROLLED
#endif
#define GPU_FN __device__ static __forceinline__
#define GPU_CALL __device__ static __noinline__

namespace softnic_gpu {

constexpr uint32_t ALL = 0xffffffffu;

#if defined(__CUDACC__)

GPU_FN uint32_t lane_id() {
    uint32_t lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}
GPU_FN uint64_t clock_ns() {
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

// ---- words that others change ----

GPU_FN uint32_t load32(const void *p) {
    uint32_t v;
    asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
GPU_FN uint64_t load64(const void *p) {
    uint64_t v;
    asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
GPU_FN uint32_t load32_acquire(const void *p) {
    uint32_t v;
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
GPU_FN uint64_t load64_acquire(const void *p) {
    uint64_t v;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
// *v_p becomes the word at p, if `go`: in the register that *v_p has, so that nothing waits for it but who uses it.
GPU_FN void load64_if(bool go, uint64_t p, uint64_t *v_p) {
    asm volatile("{\n\t.reg .pred go;\n\tsetp.ne.u32 go, %1, 0;\n\t@go ld.relaxed.sys.u64 %0, [%2];\n\t}"
                 : "+l"(*v_p)
                 : "r"((uint32_t)go), "l"(p)
                 : "memory");
}
GPU_FN void store8(void *p, uint32_t v) {
    asm volatile("st.relaxed.sys.u8 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
GPU_FN void store16(void *p, uint32_t v) {
    asm volatile("st.relaxed.sys.u16 [%0], %1;" ::"l"(p), "h"((uint16_t)v) : "memory");
}
GPU_FN void store32(void *p, uint32_t v) {
    asm volatile("st.relaxed.sys.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
GPU_FN void store64(void *p, uint64_t v) {
    asm volatile("st.relaxed.sys.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
struct pair {
    uint64_t lo, hi;
};
GPU_FN pair load128(const void *p) {
    pair v;
    asm volatile("ld.relaxed.sys.v2.u64 {%0, %1}, [%2];" : "=l"(v.lo), "=l"(v.hi) : "l"(p) : "memory");
    return v;
}
GPU_FN void store128(void *p, pair v) {
    asm volatile("st.relaxed.sys.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(v.lo), "l"(v.hi) : "memory");
}

// 16 bytes from memory to this warp's shared memory, on their way while the lane does something else. Only after
// async_wait() are they there, and only for the lane that asked for them.
GPU_FN void async128(void *shared, const void *p) {
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(shared)), "l"(p)
        : "memory");
}
GPU_FN void async_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

GPU_FN void fence_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
GPU_FN void fence_sys() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

#endif // else those of gpu_warp.h

// A word that others change may be another for each lane that loads it; what lanes branch by must not be.
GPU_FN uint32_t first_lanes(uint32_t v) { return __shfl_sync(ALL, v, 0); }

// What this warp's lanes stored so far is visible before what any of them stores next: to this device, or `far`
// to everybody.
GPU_FN void fence_warp(bool far) {
    __syncwarp();
    if (far)
        fence_sys();
    else
        fence_gpu();
    __syncwarp();
}

// ---- copies ----

// A word of 1, 2, 4 or 8 bytes: whole, since somebody may poll it.
GPU_FN void store_word(uint64_t to, uint64_t value, uint32_t bytes) {
    void *p = (void *)to;
    if (bytes == 8)
        store64(p, value);
    else if (bytes == 4)
        store32(p, (uint32_t)value);
    else if (bytes == 2)
        store16(p, (uint32_t)value);
    else
        store8(p, (uint32_t)value);
}
GPU_FN uint64_t load_word(uint64_t from, uint32_t bytes) {
    const void *p = (const void *)from;
    if (bytes == 8)
        return load64(p);
    if (bytes == 4)
        return load32(p);
    if (bytes == 2)
        return *(const volatile uint16_t *)p;
    return *(const volatile uint8_t *)p;
}
GPU_FN bool is_word(uint64_t to, uint32_t bytes) {
    return bytes <= 8 && bytes != 0 && ((bytes & (bytes - 1)) | (to & (bytes - 1))) == 0;
}

GPU_FN uint8_t load8(uint64_t p) { return *(const volatile uint8_t *)p; }

GPU_FN void copy_bytes(uint64_t to, uint64_t from, uint32_t bytes, uint32_t lane) {
    GPU_ROLLED
    for (uint32_t i = lane; i < bytes; i += 32)
        store8((void *)(to + i), load8(from + i));
}

// 16 bytes a lane, `unroll` of them on their way at once, and of the rest half as many, and so on. Both aligned; bytes a
// multiple of 16.
template <int unroll>
GPU_FN void copy_units(uint64_t to, uint64_t from, uint64_t bytes, uint32_t lane, uint64_t at = 0) {
    GPU_ROLLED
    for (; at + lane * 16u + (unroll - 1) * 512u < bytes; at += unroll * 512u) {
        pair v[unroll];
        GPU_UNROLL
        for (int i = 0; i < unroll; i++)
            v[i] = load128((const void *)(from + at + lane * 16u + i * 512u));
        GPU_UNROLL
        for (int i = 0; i < unroll; i++)
            store128((void *)(to + at + lane * 16u + i * 512u), v[i]);
    }
    if constexpr (unroll > 1)
        copy_units<unroll / 2>(to, from, bytes, lane, at);
}

// Words of 4 bytes at the target out of two at the source, whose offset within its words is `skew` bytes.
GPU_FN void copy_skewed(uint64_t to, uint64_t from, uint64_t bytes, uint32_t lane) {
    const uint32_t skew = (uint32_t)(from & 3) * 8;
    const uint64_t base = from & ~(uint64_t)3;
    GPU_ROLLED
    for (uint64_t at = lane * 4u; at < bytes; at += 128) {
        const uint32_t lo = load32((const void *)(base + at));
        const uint32_t hi = skew ? load32((const void *)(base + at + 4)) : 0;
        store32((void *)(to + at), __funnelshift_r(lo, hi, skew));
    }
}

// Ranges that overlap, as memmove: each round loads all it moves before it stores, towards the side of the source.
GPU_CALL void copy_overlapping(uint64_t to, uint64_t from, uint64_t bytes, uint32_t lane) {
    const uint64_t rounds = (bytes + 31) / 32;
    for (uint64_t r = 0; r < rounds; r++) {
        const uint64_t at = (to > from ? rounds - 1 - r : r) * 32 + lane;
        const uint8_t v = at < bytes ? load8(from + at) : 0;
        __syncwarp();
        if (at < bytes)
            store8((void *)(to + at), v);
        __syncwarp();
    }
}

// By a warp; the source may be shared memory. Ranges must not overlap.
template <int unroll> GPU_FN void copy_apart(uint64_t to, uint64_t from, uint64_t bytes, uint32_t lane) {
    if (((to | from) & 15) == 0 && bytes >= 16) {
        const uint64_t body = bytes & ~(uint64_t)15;
        copy_units<unroll>(to, from, body, lane);
        copy_bytes(to + body, from + body, (uint32_t)(bytes - body), lane);
        return;
    }
    const bool even = ((to ^ from) & 15) == 0;
    uint32_t head = (uint32_t)(0 - to) & (even ? 15 : 3);
    if (head > bytes)
        head = (uint32_t)bytes;
    copy_bytes(to, from, head, lane);
    to += head;
    from += head;
    bytes -= head;
    const uint64_t body = bytes & ~(uint64_t)(even ? 15 : 3);
    if (even)
        copy_units<unroll>(to, from, body, lane);
    else
        copy_skewed(to, from, body, lane);
    copy_bytes(to + body, from + body, (uint32_t)(bytes - body), lane);
}

GPU_FN bool apart(uint64_t a, uint64_t b, uint64_t bytes) { return a - b >= bytes && b - a >= bytes; }

GPU_CALL void copy_warp(uint64_t to, uint64_t from, uint64_t bytes) {
    const uint32_t lane = lane_id();
    if (!apart(to, from, bytes))
        copy_overlapping(to, from, bytes, lane);
    else
        copy_apart<8>(to, from, bytes, lane);
}

// A copy that one round of the warp carries, at once; others in rounds. Ranges must not overlap.
GPU_FN void copy_one(uint64_t to, uint64_t from, uint32_t bytes, uint32_t lane) {
    const uint32_t bits = (uint32_t)(to | from | bytes);
    if ((bits & 15) == 0 && bytes <= 512) {
        if (lane * 16 < bytes)
            store128((void *)(to + lane * 16), load128((const void *)(from + lane * 16)));
    } else if ((bits & 3) == 0 && bytes <= 128) {
        if (lane * 4 < bytes)
            store32((void *)(to + lane * 4), load32((const void *)(from + lane * 4)));
    } else {
        copy_apart<4>(to, from, bytes, lane);
    }
}

} // namespace softnic_gpu

#endif
