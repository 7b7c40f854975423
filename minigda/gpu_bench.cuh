// What the benches of device code share: memory, one acting block on a chosen multiprocessor, the SM clock, and figures
// over multiprocessors. A kernel writes the cycles of its timed posts to ticks[0]; ticks[1] is the claim of its launch.
#ifndef MINIGDA_GPU_BENCH_CUH
#define MINIGDA_GPU_BENCH_CUH

#include "backends/abi/device.cuh"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define MUST(call)                                                                                           \
    do {                                                                                                     \
        const cudaError_t error_ = (call);                                                                   \
        if (error_ != cudaSuccess) {                                                                         \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error_));                                  \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

namespace gpu_bench {

// Posts that are timed, and those before them.
constexpr uint32_t warm = 128, posts = 2048;

inline void *memory(bool host, size_t bytes) { // zeroed
    void *p;
    if (host) {
        MUST(cudaHostAlloc(&p, bytes, cudaHostAllocMapped));
        memset(p, 0, bytes);
    } else {
        MUST(cudaMalloc(&p, bytes));
        MUST(cudaMemset(p, 0, bytes));
    }
    return p;
}

// One block of a launch acts: the first on multiprocessor `sm`. `ticks`: zero before the launch.
__device__ inline bool elsewhere(uint32_t sm, uint64_t *ticks) {
    __shared__ bool mine;
    uint32_t here;
    asm("mov.u32 %0, %%smid;" : "=r"(here));
    if (threadIdx.x == 0)
        mine = here == sm && atomicExch((uint32_t *)(ticks + 1), 1u) == 0;
    __syncthreads();
    return !mine;
}

static __global__ void clocks(uint64_t *out) {
    const uint64_t t0 = gic::globaltimer(), c0 = gic::clock64();
    while (gic::globaltimer() - t0 < 20000000)
        ;
    out[0] = gic::clock64() - c0;
    out[1] = gic::globaltimer() - t0;
}

// The device that is measured, and where kernels write.
struct Bench {
    int sms;
    double hz;       // of the SM clock: clock64 over 20 ms of globaltimer
    uint64_t *ticks; // two words for each multiprocessor
    int *status;     // of a kernel that failed; zero before

    // Prints what the figures are of.
    explicit Bench(const char *what) {
        cudaDeviceProp prop;
        MUST(cudaGetDeviceProperties(&prop, 0));
        sms = prop.multiProcessorCount;
        ticks = (uint64_t *)memory(false, 16 * (size_t)sms);
        status = (int *)memory(false, sizeof *status);
        clocks<<<1, 1>>>(ticks);
        uint64_t t[2];
        MUST(cudaMemcpy(t, ticks, sizeof t, cudaMemcpyDeviceToHost));
        hz = (double)t[0] / (double)t[1] * 1e9;
        printf("device=cuda (%s, %d multiprocessors, SM clock %.0f MHz), no NIC: nobody consumes. %s\n"
               "ns per post by clock64 over %u posts: median (min..max) over every fourth multiprocessor\n",
               prop.name, sms, hz / 1e6, what, posts);
    }

    // ns per post on every fourth multiprocessor, in their order. launch(sm, ticks) starts a kernel for one. A kernel
    // that failed or acted nowhere ends the program: what it took is no figure.
    template <class L> std::vector<double> scan(const char *name, L launch) const {
        MUST(cudaMemset(ticks, 0, 16 * (size_t)sms));
        for (int sm = 0; sm < sms; sm += 4)
            launch((uint32_t)sm, ticks + 2 * sm);
        std::vector<uint64_t> taken(2 * (size_t)sms);
        int failed;
        MUST(cudaMemcpy(taken.data(), ticks, 16 * (size_t)sms, cudaMemcpyDeviceToHost));
        MUST(cudaMemcpy(&failed, status, sizeof failed, cudaMemcpyDeviceToHost));
        if (failed) {
            fprintf(stderr, "%s: a post returned %d\n", name, failed);
            exit(1);
        }
        std::vector<double> ns;
        for (int sm = 0; sm < sms; sm += 4) {
            if (taken[2 * (size_t)sm] == 0) {
                fprintf(stderr, "%s: no block ran on multiprocessor %d of %d\n", name, sm, sms);
                exit(1);
            }
            ns.push_back((double)taken[2 * (size_t)sm] / hz * 1e9 / posts);
        }
        return ns;
    }
};

inline double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}
inline double least(const std::vector<double> &v) { return *std::min_element(v.begin(), v.end()); }
inline double most(const std::vector<double> &v) { return *std::max_element(v.begin(), v.end()); }

} // namespace gpu_bench

#endif
