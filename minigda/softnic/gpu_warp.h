// A warp on a processor: the GPU engine's device code compiled by g++, for machines without a GPU.
//
// The 32 lanes are coroutines of one thread. Each runs to the next place where lanes meet (a vote, a shuffle, a
// __syncwarp) and hands over to the next lane; when the last one has come, all go on with what they left there. So the first
// lane is always ahead of the others: what it stores before the lanes have met is seen by the rest, as it may be on a
// GPU, where they may come in any order; here from the lowest or from the highest (`downwards`). Lanes that come to
// different places, or do not come, end the program.
//
// One block: in virtual time one warp, in real time as many as asked for, a thread each. Fences order the processor's
// stores, atomics are plain.
#ifndef SOFTNIC_GPU_WARP_H
#define SOFTNIC_GPU_WARP_H

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define __device__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))

// Aligned as a device wants them: UBSan sees one that is not.
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(16) ulonglong2 {
    unsigned long long x, y;
};

namespace softnic_warp {

enum { LANES = 32, STACK = 256 * 1024 };
enum meeting : uint32_t { MEET_SYNC, MEET_VOTE, MEET_SHUFFLE, MEET_REDUCE };

struct Warp {
    void *sp[LANES], *home; // saved stack pointers
    uint32_t lane;          // running
    uint32_t round[LANES];  // meetings so far
    uint32_t place[2][LANES];
    uint64_t left[2][LANES];
    void (*body)(void *);
    void *arg;
    uint32_t number, warps; // in the block
    struct Barrier *block;  // of all warps, nullptr where there is one
};
extern thread_local Warp *warp;
struct Barrier;
void block_barrier(Barrier *b);

extern bool downwards;
// Runs body(arg) as all lanes of warp `number` of `warps`, those of the others being run elsewhere meanwhile.
void run(void (*body)(void *), void *arg, uint32_t number = 0, uint32_t warps = 1, Barrier *block = nullptr);
// What each lane brought to this meeting, by lane. Valid until this lane's next one but one.
const uint64_t *meet(uint32_t place, uint64_t brought);

inline uint32_t lane() { return warp->lane; }
inline uint32_t thread() { return warp->number * LANES + warp->lane; }

template <class T> uint64_t pack(T v) {
    static_assert(sizeof(T) <= 8, "a lane brings one register pair");
    uint64_t u = 0;
    memcpy(&u, &v, sizeof v);
    return u;
}
template <class T> T unpack(uint64_t u) {
    T v;
    memcpy(&v, &u, sizeof v);
    return v;
}

struct index {
    uint32_t x;
};

} // namespace softnic_warp

#define threadIdx (softnic_warp::index{softnic_warp::thread()})
#define blockIdx (softnic_warp::index{0})
#define gridDim (softnic_warp::index{1})
#define blockDim (softnic_warp::index{softnic_warp::warp->warps * 32})

namespace softnic_warp {

// `place` tells the meetings of the code apart: kind and line.
inline uint32_t vote(uint32_t place, bool p) {
    const uint64_t *all = meet(place, p);
    uint32_t bits = 0;
    for (uint32_t i = 0; i < LANES; i++)
        bits |= (uint32_t)all[i] << i;
    return bits;
}
template <class T> T shuffle(uint32_t place, T v, uint32_t from) {
    return unpack<T>(meet(place, pack(v))[from % LANES]);
}
template <class T> T shuffle_up(uint32_t place, T v, uint32_t by) {
    return unpack<T>(meet(place, pack(v))[lane() >= by ? lane() - by : lane()]);
}
inline uint32_t sum(uint32_t place, uint32_t v) {
    const uint64_t *all = meet(place, v);
    uint32_t s = 0;
    for (uint32_t i = 0; i < LANES; i++)
        s += (uint32_t)all[i];
    return s;
}

} // namespace softnic_warp

#define SOFTNIC_WARP_AT(kind) (softnic_warp::kind | (uint32_t)__LINE__ << 8)
#define __syncwarp() (void)softnic_warp::meet(SOFTNIC_WARP_AT(MEET_SYNC), 0)
#define __syncthreads()                                                                                      \
    do {                                                                                                     \
        __syncwarp();                                                                                        \
        if (softnic_warp::lane() == 0 && softnic_warp::warp->block)                                          \
            softnic_warp::block_barrier(softnic_warp::warp->block);                                          \
        __syncwarp();                                                                                        \
    } while (0)
#define __ballot_sync(mask, p) softnic_warp::vote(SOFTNIC_WARP_AT(MEET_VOTE), p)
#define __shfl_sync(mask, v, from) softnic_warp::shuffle(SOFTNIC_WARP_AT(MEET_SHUFFLE), v, from)
#define __shfl_up_sync(mask, v, by) softnic_warp::shuffle_up(SOFTNIC_WARP_AT(MEET_SHUFFLE), v, by)
#define __shfl_xor_sync(mask, v, with)                                                                       \
    softnic_warp::shuffle(SOFTNIC_WARP_AT(MEET_SHUFFLE), v, softnic_warp::lane() ^ (with))
#define __reduce_add_sync(mask, v) softnic_warp::sum(SOFTNIC_WARP_AT(MEET_REDUCE), v)

inline int __ffs(uint32_t v) { return __builtin_ffs((int)v); }
inline int __popc(uint32_t v) { return __builtin_popcount(v); }
inline int __clz(uint32_t v) { return v ? __builtin_clz(v) : 32; }
inline uint32_t __funnelshift_r(uint32_t lo, uint32_t hi, uint32_t by) {
    return (uint32_t)(((uint64_t)hi << 32 | lo) >> (by & 31));
}
inline void __nanosleep(uint32_t) { sched_yield(); }
// Two cycles a nanosecond. Who looks at it polls: somebody else may want the processor.
inline uint64_t real_ns() {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}
inline uint64_t clock64() {
    if (softnic_warp::lane() == 0)
        sched_yield();
    return real_ns() * 2;
}

template <class T> T atomicAdd(T *p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
template <class T> T atomicOr(T *p, T v) { return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST); }
template <class T> T atomicAnd(T *p, T v) { return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST); }
template <class T> T atomicExch(T *p, T v) { return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); }
template <class T> T atomicCAS(T *p, T expected, T v) {
    __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}
template <class T> T atomicAdd_system(T *p, T v) { return atomicAdd(p, v); }
template <class T> T atomicExch_system(T *p, T v) { return atomicExch(p, v); }
template <class T> T atomicCAS_system(T *p, T expected, T v) { return atomicCAS(p, expected, v); }

namespace softnic_gpu {

inline uint32_t lane_id() { return softnic_warp::lane(); }
inline uint64_t clock_ns() {
    if (softnic_warp::lane() == 0)
        sched_yield();
    return real_ns();
}

template <class T> T warp_load(const void *p) { return __atomic_load_n((const T *)p, __ATOMIC_ACQUIRE); }
template <class T> void warp_store(void *p, T v) { __atomic_store_n((T *)p, v, __ATOMIC_RELEASE); }
inline uint32_t load32(const void *p) { return warp_load<uint32_t>(p); }
inline uint64_t load64(const void *p) { return warp_load<uint64_t>(p); }
inline uint32_t load32_acquire(const void *p) { return warp_load<uint32_t>(p); }
inline uint64_t load64_acquire(const void *p) { return warp_load<uint64_t>(p); }
inline void load64_if(bool go, uint64_t p, uint64_t *v_p) {
    if (go)
        *v_p = load64((const void *)p);
}
inline void store8(void *p, uint32_t v) { warp_store(p, (uint8_t)v); }
inline void store16(void *p, uint32_t v) { warp_store(p, (uint16_t)v); }
inline void store32(void *p, uint32_t v) { warp_store(p, v); }
inline void store64(void *p, uint64_t v) { warp_store(p, v); }
struct pair {
    uint64_t lo, hi;
};
inline void aligned_16(const void *p) {
    if ((uintptr_t)p & 15) {
        fprintf(stderr, "gpu_warp: 16 bytes at %p\n", p);
        abort();
    }
}
inline pair load128(const void *p) {
    aligned_16(p);
    return {load64(p), load64((const uint64_t *)p + 1)};
}
inline void store128(void *p, pair v) {
    aligned_16(p);
    store64(p, v.lo);
    store64((uint64_t *)p + 1, v.hi);
}
inline void async128(void *shared, const void *p) { store128(shared, load128(p)); }
inline void async_wait() {}
inline void fence_gpu() {}
inline void fence_sys() {}

} // namespace softnic_gpu

#endif
