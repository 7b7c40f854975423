// caller's kernels on a CUDA device, and their launch. Compiled by nvcc only.
#ifndef GIC_WORKLOADS_CALLER_LAUNCH_CUH
#define GIC_WORKLOADS_CALLER_LAUNCH_CUH

#include "backends/abi/kernel.cuh"

#include "caller.cuh"

#if defined(__CUDACC__)

namespace gic_caller {

using Params = caller_workload::Params;

GIC_DEVICE uint64_t thread_of() { return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; }

// The values are in registers here, whatever the compiler would rather do: load them late, say.
template <class T, uint32_t N> GIC_DEVICE void pin(T (&v)[N]) {
#pragma unroll
    for (uint32_t k = 0; k < N; k++)
        asm volatile("" : "+f"(v[k])::"memory");
}

GIC_DEVICE void begin_block(gic::Loop *loops) {
    if (loops && threadIdx.x == 0)
        loops[blockIdx.x].begin = gic::Stamp::now();
}
GIC_DEVICE void end_block(gic::Loop *loops) {
    __syncthreads();
    if (loops && threadIdx.x == 0)
        loops[blockIdx.x].end = gic::Stamp::now();
}

// Compiled for so many resident blocks of the largest size: 1 leaves the registers to the compiler. A check of the sources
// that does not optimise (GIC_UNBOUNDED) bounds none: what is not inlined then may want more than its kernel is given.
#ifndef GIC_UNBOUNDED
#define GIC_CALLER_BOUND(blocks) __launch_bounds__(caller_workload::THREADS_MAX, blocks)
#define GIC_CALLER_TIGHT __maxnreg__(caller_workload::TIGHT)
#else
#define GIC_CALLER_BOUND(blocks) __launch_bounds__(caller_workload::THREADS_MAX, 1)
#define GIC_CALLER_TIGHT __launch_bounds__(caller_workload::THREADS_MAX, 1)
#endif

template <uint32_t W, uint32_t N> GIC_DEVICE void absent_body(const Params &p, gic::Loop *loops) {
    begin_block(loops);
    caller_workload::Thread<W, N> t;
    t.load(p, thread_of());
    pin(t.v);
    t.run(p, thread_of());
    end_block(loops);
}
template <uint32_t W, uint32_t N, uint32_t B>
__global__ void GIC_CALLER_BOUND(B) absent(const __grid_constant__ Params p, gic::Loop *loops) {
    absent_body<W, N>(p, loops);
}
template <uint32_t W, uint32_t N>
__global__ void GIC_CALLER_TIGHT absent_tight(const __grid_constant__ Params p, gic::Loop *loops) {
    absent_body<W, N>(p, loops);
}

// What a library gives that is linked, not included: the kernel knows nothing of it but where it is.
template <class H> using Sender = int (*)(const H &, const Params &, const gic::Self &, bool);
template <class H>
__device__ __noinline__ int send_apart(const H &h, const Params &p, const gic::Self &self, bool wait) {
    return caller_workload::send(h, self, p, wait);
}
template <class H> __global__ void find_sender(uint64_t *to) { *to = (uint64_t)(Sender<H>)send_apart<H>; }

template <uint32_t W, uint32_t N, bool Apart, class H>
GIC_DEVICE void code_body(const H &h, const Params &p, uint32_t variant, gic::Loop *loops,
                          volatile uint32_t *stop) {
    begin_block(loops);
    caller_workload::Thread<W, N> t;
    t.load(p, thread_of());
    pin(t.v);
    if (variant != caller_workload::DORMANT) {
        if (threadIdx.x < h.lanes) {
            const gic::Self self{blockIdx.x, gridDim.x, threadIdx.x, h.lanes};
            const bool wait = variant == caller_workload::WAIT;
            int status;
            if constexpr (Apart)
                status = ((Sender<H>)*p.sender)(h, p, self, wait);
            else
                status = caller_workload::send(h, self, p, wait);
            if (status != gic::OK && threadIdx.x == 0) {
                p.status[blockIdx.x] = status;
                *stop = 1;
            }
        }
        if (variant == caller_workload::WAIT)
            __syncthreads();
        else
            __syncwarp(); // else the sender's lanes may work apart from its warp's others: that warp would work twice
    }
    pin(t.v);
    t.run(p, thread_of());
    end_block(loops);
}

template <uint32_t W, uint32_t N, uint32_t B, bool Apart, class H>
__global__ void GIC_CALLER_BOUND(B) code(const __grid_constant__ H h, const __grid_constant__ Params p,
                                         uint32_t variant, gic::Loop *loops, volatile uint32_t *stop) {
    code_body<W, N, Apart>(h, p, variant, loops, stop);
}
// With so few registers only a call leaves the values in them: of code that is inlined the compiler keeps some of the
// values in memory all along, also in the loop that a dormant kernel is about.
template <uint32_t W, uint32_t N, class H>
__global__ void GIC_CALLER_TIGHT code_tight(const __grid_constant__ H h, const __grid_constant__ Params p,
                                            uint32_t variant, gic::Loop *loops, volatile uint32_t *stop) {
    code_body<W, N, true>(h, p, variant, loops, stop);
}

// What every agent posted is complete.
template <class H>
__global__ void complete(const __grid_constant__ H h, const __grid_constant__ Params p,
                         volatile uint32_t *stop) {
    if (threadIdx.x >= h.lanes)
        return;
    const gic::Self self{blockIdx.x, gridDim.x, threadIdx.x, h.lanes};
    typename H::Agent agent(h, self);
    const int status = agent.quiet();
    if (status != gic::OK && threadIdx.x == 0) {
        p.status[blockIdx.x] = status;
        *stop = 1;
    }
}

// Inputs for `absent` and the others.
template <int = 0> __global__ void inputs(Params p, uint64_t n) {
    for (uint64_t i = thread_of(); i < n; i += (uint64_t)gridDim.x * blockDim.x)
        p.in[i] = caller_workload::input(i);
}

// Adds the results up into `sum` and clears them.
template <int = 0> __global__ void collect(Params p, uint32_t variant) {
    unsigned long long mine = 0;
    for (uint64_t i = thread_of(); i < p.results; i += (uint64_t)gridDim.x * blockDim.x) {
        mine += p.out[i];
        p.out[i] = 0;
    }
    for (int step = 16; step; step /= 2)
        mine += __shfl_down_sync(0xffffffffu, mine, step);
    if (threadIdx.x % 32 == 0)
        atomicAdd((unsigned long long *)&p.taken[variant], mine);
}

// Into the window, where the check looks for it; the agents' stores to it are done.
template <int = 0> __global__ void publish(Params p, uint64_t *words) {
    for (uint32_t i = threadIdx.x; i < p.variants; i += blockDim.x)
        words[i] = p.taken[i];
    __threadfence_system();
}

using Absent = void (*)(Params, gic::Loop *);
template <class H> using Code = void (*)(H, Params, uint32_t, gic::Loop *, volatile uint32_t *);

// The kernels of a point.
template <uint32_t W, uint32_t B> Absent absent_for(uint32_t live) {
    switch (live) {
    case 8:
        return absent<W, 8, B>;
    case 16:
        return absent<W, 16, B>;
    case 32:
        return absent<W, 32, B>;
    default:
        return absent<W, 64, B>;
    }
}
template <uint32_t W> Absent absent_for(const Params &p) {
    return p.bound > 1 ? absent_for<W, caller_workload::BOUND>(p.live) : absent_for<W, 1>(p.live);
}
inline Absent absent_for(const Params &p) {
    if (p.bound == caller_workload::TIGHT)
        return absent_tight<caller_workload::COMPUTE, 8>;
    return p.work == caller_workload::STREAM ? absent_for<caller_workload::STREAM>(p)
                                             : absent_for<caller_workload::COMPUTE>(p);
}
template <uint32_t W, uint32_t B, bool Apart, class H> Code<H> code_for(uint32_t live) {
    switch (live) {
    case 8:
        return code<W, 8, B, Apart, H>;
    case 16:
        return code<W, 16, B, Apart, H>;
    case 32:
        return code<W, 32, B, Apart, H>;
    default:
        return code<W, 64, B, Apart, H>;
    }
}
// Which of the kernels there are for a handle. A backend specialises it for code that ptxas does not fit into the
// registers that BOUND blocks leave (bounded), or that is called as a library's is anyhow (apart).
template <class H> struct Built { static constexpr bool bounded = true, apart = true; };

template <class H> int check_built(const Params &p) {
    if (p.bound > 1 && !Built<H>::bounded)
        return gic::fail(-ENOTSUP,
                         "caller: bound=%u: this backend's code does not compile to the registers that so "
                         "many blocks leave a thread; want bound=1",
                         p.bound);
    if (p.apart && !Built<H>::apart)
        return gic::fail(-ENOTSUP, "caller: call=apart: not built for this backend; want call=inlined");
    return 0;
}

template <uint32_t W, uint32_t B, class H> Code<H> code_for(const Params &p) {
    if constexpr (Built<H>::apart)
        if (p.apart)
            return code_for<W, B, true, H>(p.live);
    return code_for<W, B, false, H>(p.live);
}
template <uint32_t W, class H> Code<H> code_for(const Params &p) {
    if constexpr (W == caller_workload::COMPUTE)
        if (p.bound == caller_workload::TIGHT)
            return code_tight<W, 8, H>;
    if constexpr (Built<H>::bounded)
        if (p.bound > 1)
            return code_for<W, caller_workload::BOUND, H>(p);
    return code_for<W, 1, H>(p);
}

template <class K> int shape_of(K kernel, const Params &p, caller_workload::Shape *shape_p) {
    cudaFuncAttributes attr;
    GIC_CUDA(cudaFuncGetAttributes(&attr, kernel));
    int per_sm = 0;
    if (p.threads <= (uint32_t)attr.maxThreadsPerBlock)
        GIC_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel, (int)p.threads, 0));
    *shape_p =
        caller_workload::Shape{(uint32_t)attr.numRegs, (uint32_t)attr.localSizeBytes, (uint32_t)per_sm};
    if (per_sm == 0)
        return gic::fail(-ENOTSUP, "caller: threads=%u do not fit one multiprocessor with %d registers each",
                         p.threads, attr.numRegs);
    return 0;
}

constexpr uint32_t helpers = 256; // threads of a block of the helper kernels

// Queues every round; the caller waits.
template <class H>
int rounds(gic::Gpu &gpu, const H &h, const Params &p, Absent absent, Code<H> code,
           volatile uint32_t *stop_word) {
    cudaStream_t stream = (cudaStream_t)gpu.stream();
    const uint32_t wide = 8 * gpu.multiprocessors(), lanes = h.lanes > 32 ? h.lanes : 32;
    for (uint32_t round = 0; round < p.warmup + p.rounds; round++)
        for (uint32_t i = 0; i < p.variants; i++) {
            const uint32_t variant = caller_workload::turn(p, round, i);
            gic::Loop *loops =
                round < p.warmup ? nullptr : caller_workload::loops_of(p, variant, round - p.warmup);
            if (variant == caller_workload::ABSENT)
                absent<<<p.blocks, p.threads, 0, stream>>>(p, loops);
            else
                code<<<p.blocks, p.threads, 0, stream>>>(h, p, variant, loops, stop_word);
            if (variant == caller_workload::SEND || variant == caller_workload::WAIT)
                complete<H><<<p.blocks, lanes, 0, stream>>>(h, p, stop_word);
            collect<><<<wide, helpers, 0, stream>>>(p, variant);
            GIC_CUDA(cudaGetLastError());
        }
    publish<><<<1, 32, 0, stream>>>(p, (uint64_t *)(h.window + p.sums));
    GIC_CUDA(cudaGetLastError());
    return 0;
}

} // namespace gic_caller

template <class H>
int caller_workload::launch(gic::Gpu &gpu, const H &h, const Params &p, uint32_t agents,
                            const volatile uint32_t *stop) {
    volatile uint32_t *stop_word = gpu.arm();
    if (!p.sends)
        return 0;
    if (int rc = gic_caller::check_built<H>(p))
        return rc;
    const gic_caller::Absent absent = gic_caller::absent_for(p);
    const gic_caller::Code<H> code =
        p.work == STREAM ? gic_caller::code_for<STREAM, H>(p) : gic_caller::code_for<COMPUTE, H>(p);
    if (h.lanes > p.threads)
        return gic::fail(-ENOTSUP, "caller: threads=%u are fewer than the %u lanes of an agent", p.threads,
                         h.lanes);
    Shape shapes[2];
    if (int rc = gic_caller::shape_of(absent, p, &shapes[0]))
        return rc;
    if (int rc = gic_caller::shape_of(code, p, &shapes[1]))
        return rc;
    static_assert(sizeof shapes == 6 * sizeof(uint32_t), "as finish() reads them");
    if (int rc = gpu.upload(p.shape, shapes, sizeof shapes))
        return rc;
    gic_caller::inputs<><<<8 * gpu.multiprocessors(), gic_caller::helpers, 0, (cudaStream_t)gpu.stream()>>>(
        p, p.work == STREAM ? p.results : (uint64_t)INPUTS);
    if constexpr (gic_caller::Built<H>::apart)
        gic_caller::find_sender<H><<<1, 1, 0, (cudaStream_t)gpu.stream()>>>(p.sender);
    if (int rc = gic_caller::rounds(gpu, h, p, absent, code, stop_word))
        return rc;
    if (int rc = gpu.wait(stop, h.env.timeout_ns))
        return rc;
    gpu.shape = gic::GpuShape{p.blocks, p.threads, shapes[1].registers, shapes[1].local_bytes, 0};
    std::vector<int32_t> status(agents);
    if (int rc = gpu.download(status.data(), p.status, agents * sizeof(int32_t)))
        return rc;
    uint32_t worst = 0;
    for (uint32_t i = 1; i < agents; i++)
        if (gic::worse_status(status[worst], status[i]) != status[worst])
            worst = i;
    if (int rc = status[worst])
        return gic::fail(rc, "block %u: %s", worst, gic::status_text(rc));
    return 0;
}

// As often as beside the others, warm-up included.
inline int caller_workload::launch_alone(gic::Gpu &gpu, const Params &p, const volatile uint32_t *stop) {
    if (!p.sends)
        return 0;
    gpu.arm();
    for (uint32_t round = 0; round < p.warmup + p.rounds; round++) {
        gic::Loop *loops = round < p.warmup ? nullptr : p.alone + (size_t)(round - p.warmup) * p.blocks;
        gic_caller::absent_for(p)<<<p.blocks, p.threads, 0, (cudaStream_t)gpu.stream()>>>(p, loops);
        GIC_CUDA(cudaGetLastError());
    }
    return gpu.wait(stop, 0);
}

#endif
#endif
