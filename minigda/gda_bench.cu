// What a post costs on a GPU, beside a bare posting loop: the same stores to the same kinds of places in the same
// order, from constants, with nothing looked up, counted or checked. Nobody consumes: a launch posts fewer WQEs than
// the ring holds. Every figure is taken on every fourth multiprocessor (which one a queue's memory is near to changes it by
// half), and both loops on the same ones, one after the other; printed are medians and the span over them.
//
//   nvcc -O3 -std=c++17 -arch=sm_90 -I. minigda/gda_bench.cu -o gda_bench && ./gda_bench
#include "minigda/gda.cuh"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#define MUST(call)                                                                                           \
    do {                                                                                                     \
        const cudaError_t error_ = (call);                                                                   \
        if (error_ != cudaSuccess) {                                                                         \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error_));                                  \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

namespace {

constexpr uint32_t depth = 4096, warm = 128, posts = 2048, slots = 64, stride = 64;

struct Place {
    bool host; // queue and doorbell record; the doorbell is in host memory always
    gda_shared h;
    gda_queue queue; // as it is before a launch
    uint64_t *ticks;
    int *status;
};

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

Place place(bool host) {
    Place p{};
    p.host = host;
    gda_queue q{};
    q.blocks = (uint8_t *)memory(host, depth * 64);
    q.dbr = (uint32_t *)memory(host, 64);
    q.bell = (uint64_t *)memory(true, 64);
    q.cqe = (const struct mlx5_cqe *)memory(true, 64);
    q.remote = 0x7f0000000000;
    q.qpn_word = mlx5_ctrl_word1(0x123, 0);
    q.rkey_word = mlx5_be32(0x456);
    q.qpn = 0x123;
    q.depth = depth;
    q.mask = depth - 1;
    q.window = (uint8_t *)memory(false, slots * stride);
    q.lkey_word = mlx5_be32(0x789);
    p.h.nranks = 1;
    p.h.window = q.window;
    p.h.env = gic::Env{(const volatile uint32_t *)memory(true, 64), 1000000000};
    p.h.lanes = 1;
    p.h.window_key = 0x789;
    p.h.queues = (gda_queue *)memory(false, sizeof q);
    p.queue = q;
    p.h.cursors = (gda_cursor *)memory(false, sizeof(gda_cursor));
    p.h.choices = gda_choices{gda_order::gpu_fence, gda_scope::qp, 1, 1, 1, 28, 0, 28, GDA_PUT_MAX, 0};
    MUST(cudaMalloc(&p.ticks, 16 * 1024));
    MUST(cudaMalloc(&p.status, 4));
    MUST(cudaMemset(p.status, 0, 4));
    return p;
}

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

template <gda_order O, gda_sharing S>
__global__ void post(const __grid_constant__ gda_handle<O, S> h, uint32_t sm, uint64_t *ticks, int *status) {
    if (elsewhere(sm, (uint32_t *)(ticks + 1)) || threadIdx.x >= h.lanes)
        return;
    const gic::Self self{0, 1, threadIdx.x, h.lanes};
    gda_agent<O, S> agent(h, self);
    int s = gic::OK;
    GIC_ROLLED
    for (uint32_t lap = 0; lap < 2 && s == gic::OK; lap++) {
        const uint32_t n = lap ? posts : warm;
        uint64_t at = 0;
        const uint64_t from = gic::clock64();
        GIC_ROLLED
        for (uint32_t i = 0; i < n && s == gic::OK; i += h.lanes) {
            s = agent.put_each(0, h.lanes, [&](uint32_t lane) {
                return gic::Message{at + lane * stride, at + lane * stride, 8};
            });
            at = at == (slots / 2) * stride || h.lanes > 1 ? 0 : at + stride;
        }
        if (threadIdx.x == 0)
            *ticks = gic::clock64() - from;
    }
    if (s != gic::OK)
        *status = s;
}

// By pointer, batch a power of two.
template <gda_order O, bool VALUE>
__global__ void bare(const gda_queue *queue, uint8_t *window, uint32_t key, uint32_t batch, uint32_t lanes,
                     uint32_t sm, uint64_t *ticks) {
    if (elsewhere(sm, (uint32_t *)(ticks + 1)) || threadIdx.x >= lanes)
        return;
    const gda_place q{queue->blocks, depth - 1, queue->qpn_word, queue->rkey_word, queue->remote};
    uint32_t *dbr = queue->dbr;
    uint64_t *bell = queue->bell;
    uint32_t next = 0;
    GIC_ROLLED
    for (uint32_t lap = 0; lap < 2; lap++) {
        const uint32_t n = lap ? posts : warm;
        uint64_t at = 0;
        const uint64_t from = gic::clock64();
        GIC_ROLLED
        for (uint32_t i = 0; i < n; i += lanes) {
            const uint64_t here = at + threadIdx.x * stride;
            if (VALUE)
                gda_write_value(q, next + threadIdx.x, gda_flags(MLX5_CTRL_CQ_UPDATE), here,
                                *(const uint64_t *)(window + here), 8);
            else
                gda_write_pointer(q, next + threadIdx.x, gda_flags(MLX5_CTRL_CQ_UPDATE), MLX5_OP_RDMA_WRITE,
                                  here, 8, key, (uint64_t)(uintptr_t)(window + here));
            next += lanes;
            if (lanes > 1)
                __syncwarp();
            if ((next & (batch - 1)) == 0 && threadIdx.x == 0)
                gda_announce<O>(dbr, bell, next, q.qpn_word);
            at = at == (slots / 2) * stride || lanes > 1 ? 0 : at + stride;
        }
        if (threadIdx.x == 0)
            *ticks = gic::clock64() - from;
    }
}

int sms;
double hz;

struct Figure {
    std::vector<double> ns; // by multiprocessor
    int registers;
    double median() const {
        std::vector<double> v = ns;
        std::sort(v.begin(), v.end());
        return v[v.size() / 2];
    }
};

template <class K, class L> Figure scan(const Place &p, K kernel, uint32_t lanes, L launch) {
    Figure f;
    cudaFuncAttributes attr;
    MUST(cudaFuncGetAttributes(&attr, kernel));
    f.registers = attr.numRegs;
    if (attr.localSizeBytes)
        printf("  (%zu bytes of local memory)\n", attr.localSizeBytes);
    MUST(cudaMemset(p.ticks, 0, 16 * 1024));
    for (int sm = 0; sm < sms; sm += 4) {
        MUST(cudaMemset(p.h.cursors, 0, sizeof(gda_cursor)));
        MUST(cudaMemcpy(p.h.queues, &p.queue, sizeof p.queue, cudaMemcpyHostToDevice));
        launch((uint32_t)sm, p.ticks + 2 * sm);
    }
    std::vector<uint64_t> taken(2 * sms);
    int status;
    MUST(cudaMemcpy(taken.data(), p.ticks, 16 * sms, cudaMemcpyDeviceToHost));
    MUST(cudaMemcpy(&status, p.status, 4, cudaMemcpyDeviceToHost));
    if (status) {
        printf("  status %d\n", status);
        MUST(cudaMemset(p.status, 0, 4));
    }
    for (int sm = 0; sm < sms; sm += 4)
        if (taken[2 * sm])
            f.ns.push_back((double)taken[2 * sm] / hz * 1e9 / posts);
    (void)lanes;
    return f;
}

template <gda_order O, gda_sharing S> Figure measure(Place p, uint32_t batch, bool value, uint32_t lanes) {
    p.h.choices.order = O == gda_order::runtime ? gda_order::gpu_fence : O;
    p.h.choices.batch = batch;
    p.h.choices.inline_max = p.h.choices.inline_one = value ? 28 : 0;
    p.queue.by_value = value;
    p.h.lanes = lanes;
    gda_handle<O, S> h{};
    static_cast<gda_shared &>(h) = p.h;
    return scan(p, post<O, S>, lanes,
                [&](uint32_t sm, uint64_t *ticks) { post<O, S><<<2 * sms, 32>>>(h, sm, ticks, p.status); });
}
template <gda_order O> Figure measure_bare(Place p, uint32_t batch, bool value, uint32_t lanes) {
    auto kernel = value ? bare<O, true> : bare<O, false>;
    return scan(p, kernel, lanes, [&](uint32_t sm, uint64_t *ticks) {
        kernel<<<2 * sms, 32>>>(p.h.queues, p.h.window, p.h.window_key, batch, lanes, sm, ticks);
    });
}

template <gda_order O, gda_sharing S>
void row(const char *name, const Place &p, uint32_t batch, bool value, uint32_t lanes = 1) {
    const Figure b =
        measure_bare < O == gda_order::runtime ? gda_order::gpu_fence : O > (p, batch, value, lanes);
    const Figure f = measure<O, S>(p, batch, value, lanes);
    std::vector<double> ratio;
    for (size_t i = 0; i < f.ns.size() && i < b.ns.size(); i++)
        ratio.push_back(b.ns[i] / f.ns[i]);
    std::sort(ratio.begin(), ratio.end());
    printf("%-34s %-4s %-7s B=%-3u lanes=%-2u %7.1f ns (%6.1f..%6.1f) %3d regs  bare %7.1f ns %3d regs  "
           "ratio %.3f "
           "(%.3f..%.3f) %8.2f M/s\n",
           name, p.host ? "host" : "gpu", value ? "inline" : "pointer", batch, lanes, f.median(),
           *std::min_element(f.ns.begin(), f.ns.end()), *std::max_element(f.ns.begin(), f.ns.end()),
           f.registers, b.median(), b.registers, ratio[ratio.size() / 2], ratio.front(), ratio.back(),
           1e3 / f.median());
}

__global__ void clocks(uint64_t *out) {
    const uint64_t t0 = gic::globaltimer(), c0 = gic::clock64();
    while (gic::globaltimer() - t0 < 20000000)
        ;
    out[0] = gic::clock64() - c0;
    out[1] = gic::globaltimer() - t0;
}

} // namespace

int main() {
    cudaDeviceProp prop;
    MUST(cudaGetDeviceProperties(&prop, 0));
    sms = prop.multiProcessorCount;
    Place gpu = place(false), host = place(true);
    clocks<<<1, 1>>>(gpu.ticks);
    uint64_t t[2];
    MUST(cudaMemcpy(t, gpu.ticks, sizeof t, cudaMemcpyDeviceToHost));
    hz = (double)t[0] / (double)t[1] * 1e9;
    printf("%s, %d multiprocessors, %.0f MHz\n", prop.name, sms, hz / 1e6);
    using o = gda_order;
    using s = gda_sharing;
    for (const Place &p : {gpu, host})
        for (bool value : {false, true}) {
            if (p.host && value)
                continue;
            row<o::none, s::exclusive>("none", p, 1, value);
            row<o::gpu_fence, s::exclusive>("gpu-fence", p, 1, value);
            row<o::gpu_fence_dbr, s::exclusive>("gpu-fence+dbr", p, 1, value);
            row<o::gpu_release, s::exclusive>("gpu-release", p, 1, value);
            row<o::threadfence, s::exclusive>("threadfence", p, 1, value);
            row<o::sys_release, s::exclusive>("sys-release", p, 1, value);
            row<o::sys_fence, s::exclusive>("sys-fence", p, 1, value);
        }
    for (bool value : {false, true}) {
        row<o::gpu_fence, s::exclusive>("one thread", gpu, 16, value);
        row<o::sys_release, s::exclusive>("one thread, sys-release", gpu, 16, value);
        row<o::none, s::exclusive>("one thread, none", gpu, 16, value);
        row<o::gpu_fence, s::bare>("the agent without bookkeeping", gpu, 1, value);
        row<o::gpu_fence, s::bare>("the agent without bookkeeping", gpu, 16, value);
        row<o::runtime, s::exclusive>("one thread, order a branch", gpu, 1, value);
        row<o::runtime, s::exclusive>("one thread, order a branch", gpu, 16, value);
        row<o::gpu_fence, s::group>("one warp, own queue", gpu, 32, value, 32);
        row<o::gpu_fence, s::bare_group>("the same without bookkeeping", gpu, 32, value, 32);
        row<o::runtime, s::warp>("one warp, shared queue", gpu, 32, value, 32);
        row<o::runtime, s::lock>("lock", gpu, 1, value);
        row<o::runtime, s::handoff>("handoff", gpu, 1, value);
    }
    return 0;
}
