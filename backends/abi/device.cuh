// The device-side contract: what a workload's kernel may use, whatever the stack below it.
//
// The same source is compiled by g++ (device threads are threads of this machine, device=host) and by nvcc
// (device=cuda). A workload is a template over a *handle* H; a backend provides H. A handle is a trivially
// copyable struct:
//
//   struct H {
//       uint32_t rank, nranks;
//       uint8_t *window;   // this rank's window, as its device threads address it
//       gic::Env env;
//       uint32_t lanes;    // lanes of one agent: 1 (an agent is a thread), 32 (a warp), more (a thread block)
//       class Agent;       // constructed once per agent and kernel: Agent(const H &, gic::Self)
//   };
//
// An Agent is one independent submitter. Offsets count bytes from the start of a rank's window. Every
// function returns gic::OK or a negative gic::Status and never blocks past env.timeout_ns:
//
//   int put(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes);
//       move bytes of my window at src to the peer's window at dst.
//   template <class F> int put_each(uint32_t peer, uint32_t n, F message);
//       n puts, 1 <= n <= lanes; message(i) gives put number i as gic::Message. One warp-wide cooperative post
//       where the configuration says so, otherwise n single ones.
//   int put_value(uint32_t peer, uint64_t dst, uint64_t value, uint32_t bytes);      // 1, 2, 4 or 8 bytes
//   int signal(uint32_t peer, uint64_t sig, uint64_t add);
//       add to the peer's 8-byte word at sig. Strong: all that *this agent* put to that peer before is
//       visible to whoever saw the signal through wait().
//   int put_signal(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes, uint64_t sig, uint64_t add);
//   int notify(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes, uint64_t sig, uint64_t value);
//       deliver the payload and then make the peer's wait(sig, value) return, by the cheapest means this
//       stack has (`value` grows by 1 per call on one sig). bytes == 8: the polled word at sig *is* the
//       payload, and dst and src are unused.
//   int wait(uint64_t sig, uint64_t at_least);
//       until my own word at sig >= at_least; what the signal promised is then visible to this agent.
//   int get(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes);               // peer's src -> my dst
//   int fetch_add(uint32_t peer, uint64_t off, uint64_t add, uint64_t *old_p);        // blocking
//   int fence(uint32_t peer);   order to one peer, no completion
//   int flush(uint32_t peer);   rings what is pending; on return all that this agent issued to the peer is
//                               complete within the configured completion scope
//   int quiet();                rings and completes everything of this rank's agent at all peers
//   void gpu_visible();         receive-side: what a CQE or a flag announced becomes visible to this agent
//   int ring();                 announce what is pending (a partial batch), without waiting
//
// An adapter documents what its library's calls really give for each of these words.
#ifndef GIC_ABI_DEVICE_CUH
#define GIC_ABI_DEVICE_CUH

#include <stddef.h>
#include <stdint.h>

#if defined(__CUDACC__)
#include <cuda/atomic>
#define GIC_DEVICE __device__ __forceinline__
#define GIC_HD __host__ __device__ __forceinline__
// Before a loop whose body holds operations of an agent: a GPU inlines them all, and copies of them cost compile
// time and instruction cache.
#define GIC_ROLLED _Pragma("unroll 1")
#define GIC_UNROLLED _Pragma("unroll")
// Off the hot path: a call, which keeps the path short and, on a GPU, its registers few. Such a function takes and
// returns values: a reference to an agent would put the agent's state into memory.
#define GIC_COLD __device__ __noinline__
#else
#include <sched.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif
#define GIC_DEVICE inline
#define GIC_HD inline
#define GIC_ROLLED
#define GIC_UNROLLED
#define GIC_COLD __attribute__((noinline))
#endif

namespace gic {

enum Status : int {
    OK = 0,
    ERR_IO = -5,         // an error CQE
    ERR_INVAL = -22,     // an argument the handle cannot serve
    ERR_NOTSUP = -95,    // an operation the stack does not have
    ERR_TIMEOUT = -110,  // a spin passed env.timeout_ns
    ERR_CANCELED = -125, // the stop word was set
};

// Who an agent is within one launch.
struct Self {
    uint32_t agent, agents; // this agent, of how many
    uint32_t lane, lanes; // this lane of the agent; on the host always lane 0, which runs all lanes in loops
};

struct Message {
    uint64_t dst, src;
    uint32_t bytes;
};

// Limits of every device spin.
struct Env {
    const volatile uint32_t *stop;
    uint64_t timeout_ns;
};

// Scope of an order or atomic. On the host all are the same.
enum class Scope { block, device, system };

#if defined(__CUDACC__)

template <Scope S, class T> GIC_DEVICE auto ref(T *p) {
    if constexpr (S == Scope::block)
        return cuda::atomic_ref<T, cuda::thread_scope_block>(*p);
    else if constexpr (S == Scope::device)
        return cuda::atomic_ref<T, cuda::thread_scope_device>(*p);
    else
        return cuda::atomic_ref<T, cuda::thread_scope_system>(*p);
}
template <Scope S = Scope::system, class T> GIC_DEVICE T load_relaxed(const T *p) {
    return ref<S>(const_cast<T *>(p)).load(cuda::memory_order_relaxed);
}
template <Scope S = Scope::system, class T> GIC_DEVICE T load_acquire(const T *p) {
    return ref<S>(const_cast<T *>(p)).load(cuda::memory_order_acquire);
}
template <Scope S = Scope::system, class T> GIC_DEVICE void store_relaxed(T *p, T v) {
    ref<S>(p).store(v, cuda::memory_order_relaxed);
}
template <Scope S = Scope::system, class T> GIC_DEVICE void store_release(T *p, T v) {
    ref<S>(p).store(v, cuda::memory_order_release);
}
template <Scope S = Scope::device, class T> GIC_DEVICE T fetch_add(T *p, T v) {
    return ref<S>(p).fetch_add(v, cuda::memory_order_relaxed);
}
template <Scope S = Scope::device, class T> GIC_DEVICE T fetch_max(T *p, T v) {
    return ref<S>(p).fetch_max(v, cuda::memory_order_relaxed);
}
template <Scope S = Scope::device, class T> GIC_DEVICE bool cas_acquire(T *p, T expect, T v) {
    return ref<S>(p).compare_exchange_strong(expect, v, cuda::memory_order_acquire,
                                             cuda::memory_order_relaxed);
}
// Returns when the value is here. What an atomic or a load gives is waited for by the first instruction that looks at it,
// which may be long after the clock has been read (56 ns were seen for an atomic at a peer): this is one.
GIC_DEVICE void arrived(uint64_t value) {
    if (value == UINT64_MAX)
        asm volatile("nanosleep.u32 0;" ::: "memory");
}
template <Scope S> GIC_DEVICE void fence_acq_rel() {
    if constexpr (S == Scope::block)
        cuda::atomic_thread_fence(cuda::memory_order_acq_rel, cuda::thread_scope_block);
    else if constexpr (S == Scope::device)
        cuda::atomic_thread_fence(cuda::memory_order_acq_rel, cuda::thread_scope_device);
    else
        cuda::atomic_thread_fence(cuda::memory_order_acq_rel, cuda::thread_scope_system);
}
template <Scope S> GIC_DEVICE void fence_seq_cst() {
    static_assert(S != Scope::block, "nothing asks for it");
    if constexpr (S == Scope::device)
        __threadfence();
    else
        __threadfence_system();
}
GIC_DEVICE uint64_t clock64() { return (uint64_t)::clock64(); }
GIC_DEVICE uint64_t globaltimer() {
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}
// A failed poll. The first ones go on at once: most polls read host memory, which takes long enough.
GIC_DEVICE void pause(uint32_t polls) {
    if (polls >= 64)
        __nanosleep(20);
}
// More lanes than a warp's are a whole thread block.
GIC_DEVICE void sync_lanes(const Self &s) {
    if (s.lanes > 32)
        __syncthreads();
    else if (s.lanes > 1)
        __syncwarp();
}
template <class T> GIC_DEVICE T broadcast(const Self &s, T v) { // lane 0's value to all lanes
    if (s.lanes <= 32)
        return s.lanes > 1 ? __shfl_sync(0xffffffffu, v, 0) : v;
    __shared__ T slot;
    if (s.lane == 0)
        slot = v;
    __syncthreads();
    v = slot;
    __syncthreads(); // the next one must not overtake who has still to look
    return v;
}
// for (uint32_t i = lane_first(s); i < n; i += lane_step(s)): each lane takes its share; on the host the one
// thread of the agent takes all.
GIC_DEVICE uint32_t lane_first(const Self &s) { return s.lane; }
GIC_DEVICE uint32_t lane_step(const Self &s) { return s.lanes; }
GIC_DEVICE void copy(void *dst, const void *src, size_t n) { memcpy(dst, src, n); }

#else

template <Scope S = Scope::system, class T> inline T load_relaxed(const T *p) {
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}
template <Scope S = Scope::system, class T> inline T load_acquire(const T *p) {
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
template <Scope S = Scope::system, class T> inline void store_relaxed(T *p, T v) {
    __atomic_store_n(p, v, __ATOMIC_RELAXED);
}
template <Scope S = Scope::system, class T> inline void store_release(T *p, T v) {
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}
template <Scope S = Scope::device, class T> inline T fetch_add(T *p, T v) {
    return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
template <Scope S = Scope::device, class T> inline T fetch_max(T *p, T v) {
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (old < v && !__atomic_compare_exchange_n(p, &old, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
}
template <Scope S = Scope::device, class T> inline bool cas_acquire(T *p, T expect, T v) {
    return __atomic_compare_exchange_n(p, &expect, v, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}
#if defined(GIC_ARRIVED) // a test that looks at what is waited for
inline void arrived(uint64_t value) { GIC_ARRIVED(value); }
#else
inline void arrived(uint64_t) {}
#endif
template <Scope S> inline void fence_acq_rel() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }
template <Scope S> inline void fence_seq_cst() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
// The time-stamp counter; what it counts in is calibrated against globaltimer over each timed loop.
inline uint64_t clock64() {
#if defined(__x86_64__)
    return __rdtsc();
#elif defined(__aarch64__)
    uint64_t t;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
    return t;
#else
#error "no cycle counter known for this processor"
#endif
}
inline uint64_t globaltimer() { // CLOCK_MONOTONIC, ns
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}
// A failed poll. With more spinning threads than processors a spin that never yields costs a thousandfold.
inline void pause(uint32_t polls) {
    if (polls < 64) {
#if defined(__x86_64__)
        _mm_pause();
#endif
    } else {
        sched_yield();
    }
}
inline void sync_lanes(const Self &) {}
template <class T> inline T broadcast(const Self &, T v) { return v; }
inline uint32_t lane_first(const Self &) { return 0; }
inline uint32_t lane_step(const Self &) { return 1; }
inline void copy(void *dst, const void *src, size_t n) { memcpy(dst, src, n); }

#endif

// A bounded spin: `for (Spin spin(env); !ready();) if (int s = spin.failed()) return s;`
//
// On a GPU the stop word is host memory, and a device reads one word of it three times in a microsecond: 132
// multiprocessors that look at once are 45 us late for what they wait for, and then keep the others waiting until those
// look too. So they look at it every 4096 polls, which is a few milliseconds.
class Spin {
  public:
    GIC_DEVICE explicit Spin(const Env &env) : env_(env) {}
    // One poll found nothing: pause, and say whether to give up. OK means go on.
    GIC_DEVICE int failed() {
        pause(polls_);
        if ((++polls_ & 255u) != 0)
            return OK;
        const uint64_t now = globaltimer();
        if (start_ == 0)
            start_ = now;
        const bool late = now - start_ > env_.timeout_ns;
        if ((late || polls_ % polls_per_look == 0) && env_.stop && *env_.stop)
            return ERR_CANCELED;
        return late ? (int)ERR_TIMEOUT : (int)OK;
    }

  private:
#if defined(__CUDACC__)
    static constexpr uint32_t polls_per_look = 4096;
#else
    static constexpr uint32_t polls_per_look = 256;
#endif
    Env env_;
    uint32_t polls_ = 0;
    uint64_t start_ = 0;
};

// Meeting point of all agents of one launch; zeroed memory is a valid initial state.
struct GridBarrier {
    uint32_t arrived, generation;

    GIC_DEVICE int wait(const Self &self, const Env &env) {
        int status = OK;
        sync_lanes(self);
        if (self.lane == 0) {
            uint32_t gen = load_acquire<Scope::device>(&generation);
            fence_acq_rel<Scope::device>();
            if (fetch_add<Scope::device>(&arrived, 1u) == self.agents - 1) {
                store_relaxed<Scope::device>(&arrived, 0u);
                store_release<Scope::device>(&generation, gen + 1);
            } else {
                for (Spin spin(env); load_acquire<Scope::device>(&generation) == gen;)
                    if ((status = spin.failed()) != OK)
                        break;
            }
            fence_acq_rel<Scope::device>();
        }
        return broadcast(self, status);
    }
};

} // namespace gic

#endif
