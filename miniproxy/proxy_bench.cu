// What handing a put to the CPU proxy costs a GPU thread, beside a bare loop of the same stores. Rings and progress are
// in host memory, no worker runs, and the progress says that everything is free. On every fourth multiprocessor;
// printed are medians and the span.
//
//   nvcc -O3 -std=c++17 -arch=sm_90 -I. miniproxy/proxy_bench.cu -o proxy_bench && ./proxy_bench
#include "miniproxy/proxy.cuh"

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

using namespace proxy;

namespace {

constexpr uint32_t shift = 12, warm = 128, posts = 2048, slots = 64, stride = 64;

// One block of a launch acts: the first on multiprocessor `sm`. `claimed`: zero before the launch.
__device__ bool elsewhere(uint32_t sm, uint32_t *claimed) {
    __shared__ bool mine;
    uint32_t here;
    asm("mov.u32 %0, %%smid;" : "=r"(here));
    if (threadIdx.x == 0)
        mine = here == sm && atomicExch(claimed, 1u) == 0;
    __syncthreads();
    return !mine;
}

template <Handoff F>
__global__ void hand_over(const __grid_constant__ Handle<F> h, uint32_t sm, uint64_t *ticks, int *status) {
    if (elsewhere(sm, (uint32_t *)(ticks + 1)) || threadIdx.x)
        return;
    typename Handle<F>::Agent agent(h, gic::Self{0, 1, 0, 1});
    int s = gic::OK;
    GIC_ROLLED
    for (uint32_t lap = 0; lap < 2 && s == gic::OK; lap++) {
        const uint32_t n = lap ? posts : warm;
        uint64_t at = 0;
        const uint64_t from = gic::clock64();
        GIC_ROLLED
        for (uint32_t i = 0; i < n && s == gic::OK; i++) {
            s = agent.put(0, at, at, 8);
            at = at == (slots - 1) * stride ? 0 : at + stride;
        }
        *ticks = gic::clock64() - from;
    }
    if (s != gic::OK)
        *status = s;
}

template <Handoff F> __global__ void bare(Descriptor *ring, bool posted, uint32_t sm, uint64_t *ticks) {
    if (elsewhere(sm, (uint32_t *)(ticks + 1)) || threadIdx.x)
        return;
    uint32_t next = 0;
    GIC_ROLLED
    for (uint32_t lap = 0; lap < 2; lap++) {
        const uint32_t n = lap ? posts : warm;
        const uint64_t from = gic::clock64();
        GIC_ROLLED
        for (uint32_t i = 0; i < n; i++, next++)
            publish<F>(ring + (next & ((1u << shift) - 1)), Descriptor{next, i}, 1, posted);
        *ticks = gic::clock64() - from;
    }
}

__global__ void clocks(uint64_t *out) {
    const uint64_t t0 = gic::globaltimer(), c0 = gic::clock64();
    while (gic::globaltimer() - t0 < 20000000)
        ;
    out[0] = gic::clock64() - c0;
    out[1] = gic::globaltimer() - t0;
}

void *memory(bool host, size_t bytes) {
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

int sms;
double hz;
uint64_t *ticks;
int *status;

template <class L> std::vector<double> scan(L launch) {
    MUST(cudaMemset(ticks, 0, 16 * 1024));
    for (int sm = 0; sm < sms; sm += 4)
        launch((uint32_t)sm, ticks + 2 * sm);
    std::vector<uint64_t> taken(2 * sms);
    int failed;
    MUST(cudaMemcpy(taken.data(), ticks, 16 * sms, cudaMemcpyDeviceToHost));
    MUST(cudaMemcpy(&failed, status, 4, cudaMemcpyDeviceToHost));
    if (failed)
        printf("status %d\n", failed);
    std::vector<double> ns;
    for (int sm = 0; sm < sms; sm += 4)
        if (taken[2 * sm])
            ns.push_back((double)taken[2 * sm] / hz * 1e9 / posts);
    std::sort(ns.begin(), ns.end());
    return ns;
}

template <Handoff F> void row(const char *name, Handle<F> h, bool posted) {
    h.rings.posted = posted;
    cudaFuncAttributes attr;
    MUST(cudaFuncGetAttributes(&attr, hand_over<F>));
    const std::vector<double> b =
        scan([&](uint32_t sm, uint64_t *t) { bare<F><<<2 * sms, 32>>>(h.rings.slots, posted, sm, t); });
    const std::vector<double> f = scan([&](uint32_t sm, uint64_t *t) {
        MUST(cudaMemset(h.rings.producer, 0, sizeof(Producer)));
        hand_over<F><<<2 * sms, 32>>>(h, sm, t, status);
    });
    printf("%-16s %7.1f ns (%6.1f..%6.1f) %3d regs %zu local  bare %7.1f ns  ratio %.3f\n", name,
           f[f.size() / 2], f.front(), f.back(), attr.numRegs, attr.localSizeBytes, b[b.size() / 2],
           b[b.size() / 2] / f[f.size() / 2]);
}

template <Handoff F> Handle<F> handle() {
    Handle<F> h{};
    h.nranks = 1;
    h.window = (uint8_t *)memory(false, slots * stride);
    h.env = gic::Env{(const volatile uint32_t *)memory(true, 64), 1000000000};
    h.lanes = 1;
    h.rings.slots = (Descriptor *)memory(true, sizeof(Descriptor) << shift);
    h.rings.progress = (Progress *)memory(true, sizeof(Progress));
    h.rings.producer = (Producer *)memory(false, sizeof(Producer));
    h.rings.open = (uint8_t *)memory(true, MAX_RINGS);
    h.rings.count = 1;
    h.rings.shift = shift;
    h.rings.mask = (1u << shift) - 1;
    h.rings.put_max = MAX_BYTES;
    return h;
}

} // namespace

int main() {
    cudaDeviceProp prop;
    MUST(cudaGetDeviceProperties(&prop, 0));
    sms = prop.multiProcessorCount;
    MUST(cudaMalloc(&ticks, 16 * 1024));
    MUST(cudaMalloc(&status, 4));
    MUST(cudaMemset(status, 0, 4));
    clocks<<<1, 1>>>(ticks);
    uint64_t t[2];
    MUST(cudaMemcpy(t, ticks, sizeof t, cudaMemcpyDeviceToHost));
    hz = (double)t[0] / (double)t[1] * 1e9;
    row("tuned, posted", handle<Handoff::tuned>(), true);
    row("tuned, ordered", handle<Handoff::tuned>(), false);
    row("baseline", handle<Handoff::baseline>(), false);
    return 0;
}
