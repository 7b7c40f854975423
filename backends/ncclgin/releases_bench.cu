// What one put of NCCL's GDAKI device code costs by release: the same queue in GPU memory, the same caller, and the code of
// whichever nccl_device headers this is compiled with. There is no NCCL and no NIC: what device code reads of a context is
// laid out here, the doorbell is a word of host memory, and where a queue is to come round (nic=null) a warp for each queue
// does nothing but answer every WQE with a CQE at once. Times are therefore those of the GPU's own instructions.
//
//   make build/cuda/test/ncclgin_releases_bench NCCL_HOME=<a release's wheel> && build/cuda/test/ncclgin_releases_bench
//
// One JSON line for each measurement; `ns` are the rounds' means of a put, from all places.
#include <nccl.h>
#include <nccl_device.h>
// Which it includes where device code is compiled alone.
#include <nccl_device/gin/gdaki/doca_gpunetio/common/doca_gpunetio_verbs_def.h>
#include <nccl_device/gin/gdaki/doca_gpunetio/common/doca_gpunetio_verbs_dev.h>
#include <nccl_device/gin/gdaki/gin_gdaki_device_host_common.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define MUST(call)                                                                                           \
    do {                                                                                                     \
        cudaError_t e_ = (call);                                                                             \
        if (e_ != cudaSuccess) {                                                                             \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e_));                                      \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

namespace {

using Qp = doca_gpu_dev_verbs_qp;

constexpr int queues = 16, rounds = 20, posts = 100;

struct Job {
    ncclGinGdakiGPUContext *contexts; // one for each queue
    Qp *qps;
    ncclGinGdakiMemHandle *window;
    uint32_t depth;
    bool nic, value, sync;
    int sharing; // of ncclGin (2.30 on): 0 GPU, 1 CTA, 2 THREAD
    int messages, sm, used;
    unsigned *stop, *arrived;
    unsigned long long *begin, *end;
    unsigned long long *rounds_ns;
};

__device__ unsigned long long now() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}
__device__ int on_sm() {
    int sm;
    asm("mov.u32 %0, %%smid;" : "=r"(sm));
    return sm;
}

#if defined(__CUDA_ARCH__)
__device__ __forceinline__ ncclGinCtx context(const Job &j, int q) {
    ncclGinCtx c{};
    c.backend = NCCL_NET_DEVICE_GIN_GDAKI;
    c.nRanks = 1;
    c.handle = j.contexts + q;
#if NCCL_VERSION_CODE >= 23000
    c.resourceSharingMode = (uint8_t)j.sharing;
#endif
    return c;
}

template <bool VALUE> __device__ __forceinline__ void post(const ncclGinCtx &c, void *w, size_t at) {
    constexpr auto api = NCCL_NET_DEVICE_GIN_GDAKI;
    const auto device = cuda::thread_scope_device, thread = cuda::thread_scope_thread;
#if NCCL_VERSION_CODE < 23000
    if (VALUE)
        ncclGinApi_PutValue<api>::call(c, ncclCoopThread(), 0, w, at, (uint64_t)at, false, 0,
                                       ncclGinSignalInc, 0, false, nullptr, device, thread);
    else
        ncclGinApi_Put<api>::call(c, ncclCoopThread(), 0, true, w, at, w, 4096 + at, 8, false, 0,
                                  ncclGinSignalInc, 0, false, 0, false, nullptr, device, thread);
#else
    ncclGinSignalDescriptor none{};
    none.type = NCCL_GIN_SIGNAL_TYPE_NONE;
    if (VALUE)
        ncclGinApi_PutValue<api>::call(c, ncclCoopThread(), 0, w, at, (uint64_t)at, none, ncclGinSignalInc, 0,
                                       false, nullptr, device, thread);
    else
        ncclGinApi_Put<api>::call(c, ncclCoopThread(), 0, true, w, at, w, 4096 + at, 8, none,
                                  ncclGinSignalInc, 0, false, 0, false, nullptr, device, thread);
#endif
}

// Warp q answers queue q.
__device__ void null_nic(const Job &j) {
    const int q = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (q >= j.used)
        return;
    const Qp &qp = j.qps[q];
    auto *cqe = (volatile uint8_t *)qp.cq_sq.cqe_daddr;
    auto *record = (volatile uint32_t *)qp.sq_dbrec;
    uint64_t at = 0;
    for (;;) {
        const unsigned stop = lane == 0 ? *(volatile unsigned *)j.stop : 0;
        if (__shfl_sync(~0u, stop, 0))
            return;
        uint32_t said = lane == 0 ? *record : 0;
        said = __byte_perm(__shfl_sync(~0u, said, 0), 0, 0x0123);
        const uint16_t n = (uint16_t)(said - (uint32_t)at);
        for (int i = lane; i < n; i += 32) {
            const uint64_t index = at + i;
            cqe[(index & (j.depth - 1)) * 64 + 63] = (index & j.depth) != 0;
        }
        at += n;
        __syncwarp();
    }
}

#endif

template <bool VALUE> __global__ void __launch_bounds__(512) issue(const __grid_constant__ Job j) {
#if defined(__CUDA_ARCH__)
    if (j.nic && on_sm() == 0)
        return null_nic(j);
    if (on_sm() != j.sm || threadIdx.x)
        return;
    const ncclGinCtx c = context(j, 0);
    for (int r = 0; r < rounds; r++) {
        const unsigned long long t = now();
        for (int i = 0; i < posts; i++)
            post<VALUE>(c, j.window, 8 * i);
        j.rounds_ns[r] = now() - t;
        if (j.nic)
            doca_gpu_dev_verbs_wait(j.qps);
    }
    __threadfence();
    *(volatile unsigned *)j.stop = 1;
#endif
}

// Block 1 + q posts to queue q with all its threads.
template <bool VALUE> __global__ void __launch_bounds__(512) rate(const __grid_constant__ Job j, int lanes) {
#if defined(__CUDA_ARCH__)
    if (blockIdx.x == 0) {
        if (j.nic)
            null_nic(j);
        return;
    }
    const int q = blockIdx.x - 1;
    if ((int)threadIdx.x >= lanes)
        return;
    const ncclGinCtx c = context(j, q);
    atomicAdd(j.arrived, 1u);
    while (*(volatile unsigned *)j.arrived < (unsigned)(j.used * lanes))
        ;
    const unsigned long long t = now();
    const unsigned mask = lanes >= 32 ? ~0u : (1u << lanes) - 1;
    for (int i = 0; i < j.messages; i++) {
        post<VALUE>(c, j.window, 8 * ((i * lanes + threadIdx.x) % 512));
        if (j.sync)
            __syncwarp(mask);
    }
    atomicMin(j.begin, t);
    atomicMax(j.end, now());
    __threadfence();
    if (atomicAdd(j.arrived + 1, 1u) + 1 == (unsigned)(j.used * lanes))
        *(volatile unsigned *)j.stop = 1;
#endif
}

struct Memory {
    Job j{};
    std::vector<void *> gpu, host;

    template <class T> T *on_gpu(size_t n) {
        void *p;
        MUST(cudaMalloc(&p, n * sizeof(T)));
        MUST(cudaMemset(p, 0, n * sizeof(T)));
        gpu.push_back(p);
        return (T *)p;
    }
    Memory(uint32_t depth, int used, bool no_record, bool bell_on_gpu = false) {
        std::vector<Qp> qps(queues);
        std::vector<ncclGinGdakiGPUContext> contexts(queues);
        char *bells;
        MUST(cudaHostAlloc((void **)&bells, 64 * queues, cudaHostAllocMapped));
        host.push_back(bells);
        auto *records = on_gpu<uint32_t>(16 * queues);
        j.qps = on_gpu<Qp>(queues);
        auto *keys = on_gpu<uint32_t>(16);
        for (int q = 0; q < queues; q++) {
            Qp &qp = qps[q];
            memset(&qp, 0, sizeof qp);
            qp.sq_num = 100 + q;
            qp.sq_num_shift8 = qp.sq_num << 8;
            qp.sq_num_shift8_be = __builtin_bswap32(qp.sq_num_shift8);
            qp.sq_num_shift8_be_1ds = __builtin_bswap32(qp.sq_num_shift8 | 1);
            qp.sq_num_shift8_be_2ds = __builtin_bswap32(qp.sq_num_shift8 | 2);
            qp.sq_num_shift8_be_3ds = __builtin_bswap32(qp.sq_num_shift8 | 3);
            qp.sq_num_shift8_be_4ds = __builtin_bswap32(qp.sq_num_shift8 | 4);
            qp.sq_wqe_num = (uint16_t)depth;
            qp.sq_wqe_mask = (uint16_t)(depth - 1);
            qp.sq_wqe_daddr = on_gpu<uint8_t>(64 * depth);
            qp.sq_dbrec = (decltype(qp.sq_dbrec))(records + 16 * q);
            qp.sq_db = bell_on_gpu ? on_gpu<uint64_t>(8) : (uint64_t *)(bells + 64 * q);
            qp.nic_handler = DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_DB;
#if NCCL_VERSION_CODE >= 23000
            if (no_record)
                qp.nic_handler = DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_NO_DBR;
#endif
            auto *cqe = on_gpu<uint8_t>(64 * depth);
            MUST(cudaMemset(cqe, 0xf1, 64 * depth));
            qp.cq_sq.cqe_daddr = cqe;
            qp.cq_sq.cq_num = 200 + q;
            qp.cq_sq.cqe_num = depth;
            qp.cq_sq.cqe_mask = depth - 1;
            qp.cq_sq.cqe_size = 64;
            memset(&contexts[q], 0, sizeof contexts[q]);
            contexts[q].gdqp = j.qps + q;
            contexts[q].companion_gdqp = j.qps + q;
        }
        (void)no_record;
        MUST(cudaMemcpy(j.qps, qps.data(), queues * sizeof(Qp), cudaMemcpyHostToDevice));
        j.contexts = on_gpu<ncclGinGdakiGPUContext>(queues);
        MUST(cudaMemcpy(j.contexts, contexts.data(), queues * sizeof contexts[0], cudaMemcpyHostToDevice));
        ncclGinGdakiMemHandle window{};
        window.rkeys = (decltype(window.rkeys))keys;
        j.window = on_gpu<ncclGinGdakiMemHandle>(1);
        MUST(cudaMemcpy(j.window, &window, sizeof window, cudaMemcpyHostToDevice));
        j.depth = depth;
        j.used = used;
        j.stop = on_gpu<unsigned>(1);
        j.arrived = on_gpu<unsigned>(2);
        j.begin = on_gpu<unsigned long long>(1);
        j.end = on_gpu<unsigned long long>(1);
        j.rounds_ns = on_gpu<unsigned long long>(rounds);
        MUST(cudaMemset(j.begin, 0xff, 8));
    }
    ~Memory() {
        for (void *p : gpu)
            cudaFree(p);
        for (void *p : host)
            cudaFreeHost(p);
    }
};

void finish(const char *what) {
    for (int i = 0; i < 20000; i++) {
        const cudaError_t e = cudaStreamQuery(0);
        if (e == cudaSuccess)
            return;
        if (e != cudaErrorNotReady) {
            fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(e));
            exit(1);
        }
        struct timespec t = {0, 100000};
        nanosleep(&t, nullptr);
    }
    fprintf(stderr, "%s: it does not end\n", what);
    _Exit(1);
}

struct Point {
    uint32_t depth;
    bool nic, value, no_record;
    int sharing;
    bool bell_on_gpu;
};

void header(const char *kind, const Point &p) {
    static const char *const sharing[] = {"gpu", "cta", "thread"};
    printf("{\"bench\":\"%s\",\"release\":\"%d.%d.%d\",\"doorbell\":\"%s\",\"doorbell_in\":\"%s\","
           "\"sharing\":\"%s\","
           "\"nic\":\"%s\",\"depth\":%u,\"call\":\"%s\"",
           kind, NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH, p.no_record ? "no_record" : "record",
           p.bell_on_gpu ? "gpu" : "host", sharing[p.sharing], p.nic ? "null" : "none", p.depth,
           p.value ? "putValue" : "put");
}

void measure_issue(const Point &p) {
    header("issue", p);
    printf(",\"ns\":[");
    const char *comma = "";
    std::vector<double> all;
    for (int sm = 10; sm <= 129; sm += 17) {
        Memory m(p.depth, 1, p.no_record, p.bell_on_gpu);
        m.j.nic = p.nic;
        m.j.sm = sm;
        m.j.sharing = p.sharing;
        // A block on each multiprocessor, warps for the NIC.
        if (p.value)
            issue<true><<<132, 512>>>(m.j);
        else
            issue<false><<<132, 512>>>(m.j);
        MUST(cudaGetLastError());
        finish("issue");
        unsigned long long ns[rounds];
        MUST(cudaMemcpy(ns, m.j.rounds_ns, sizeof ns, cudaMemcpyDeviceToHost));
        for (int r = 2; r < rounds; r++) { // the first warm up
            printf("%s%.1f", comma, ns[r] / (double)posts);
            all.push_back(ns[r] / (double)posts);
            comma = ",";
        }
    }
    std::sort(all.begin(), all.end());
    printf("],\"median_ns\":%.1f}\n", all[all.size() / 2]);
    fflush(stdout);
}

void measure_rate(const Point &p, int lanes, bool sync) {
    std::vector<double> all;
    const int messages = lanes == 1 ? 4096 : 8192 / lanes;
    for (int run = 0; run < 5; run++) {
        Memory m(p.depth, queues, p.no_record);
        m.j.nic = p.nic;
        m.j.sharing = p.sharing;
        m.j.sync = sync;
        m.j.messages = messages;
        const int threads = p.nic ? 512 : 64; // of the NIC's block at least
        if (p.value)
            rate<true><<<1 + queues, threads>>>(m.j, lanes);
        else
            rate<false><<<1 + queues, threads>>>(m.j, lanes);
        MUST(cudaGetLastError());
        finish("rate");
        unsigned long long begin, end;
        MUST(cudaMemcpy(&begin, m.j.begin, 8, cudaMemcpyDeviceToHost));
        MUST(cudaMemcpy(&end, m.j.end, 8, cudaMemcpyDeviceToHost));
        all.push_back((double)queues * lanes * messages / (double)(end - begin) * 1e3);
    }
    std::sort(all.begin(), all.end());
    header("rate", p);
    printf(",\"queues\":%d,\"threads\":%d,\"syncwarp\":%s,\"messages\":%d,\"mmsg\":[%.3f,%.3f,%.3f,%.3f,%.3f]"
           ",\"median_mmsg\":%.3f}\n",
           queues, lanes, sync ? "true" : "false", messages, all[0], all[1], all[2], all[3], all[4], all[2]);
    fflush(stdout);
}

} // namespace

int main() {
#if NCCL_VERSION_CODE < 23000
    const int sharings = 1, doorbells = 1; // it has no others
#else
    const int sharings = 3, doorbells = 2;
#endif
    for (int no_record = 0; no_record < doorbells; no_record++)
        for (int sharing = 0; sharing < sharings; sharing++)
            for (bool value : {true, false}) {
                measure_issue({32768, false, value, no_record != 0, sharing, false});
                measure_issue({32768, false, value, no_record != 0, sharing, true});
                if (no_record == 0) // at it the null NIC looks
                    measure_issue({128, true, value, false, sharing, false});
            }
    for (int no_record = 0; no_record < doorbells; no_record++)
        for (int lanes : {1, 8, 32, 64})
            for (bool sync : {false, true}) {
                if (sync && lanes == 1)
                    continue;
                measure_rate({32768, false, true, no_record != 0, 0, false}, lanes, sync);
                if (no_record == 0)
                    measure_rate({128, true, true, false, 0, false}, lanes, sync);
            }
    return 0;
}
