// The GPU engine while it runs: threads of the device post meanwhile, control calls come in between, memory comes and
// goes, another process is the peer. What each WQE does is the business of the tests that test_gpu.cc runs.
#include "gpu_rig.cuh"

#include <cuda.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

namespace {

int failures;
#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s: CHECK(%s) failed (%s)\n", __FILE__, __LINE__, __func__, #condition,  \
                    softnic_error());                                                                        \
            failures++;                                                                                      \
        }                                                                                                    \
    } while (0)

// `count` words to consecutive places, each with a CQE; *bad_p: 1 when one did not complete.
__global__ void words(const rig::Queue *queues, uint32_t first, uint32_t count, uint64_t value,
                      uint32_t *bad) {
    const rig::Queue q = queues[blockIdx.x];
    uint32_t cons = first;
    if (threadIdx.x)
        return;
    for (uint32_t i = first; i < first + count; i++) {
        if (i - cons >= q.depth && !rig::wait(q, i - q.depth + 1, &cons))
            break;
        rig::write(q, i, q.remote + (i - first) * 8, true, value + i - first, 8, true);
        rig::ring(q, i + 1);
    }
    if (!rig::wait(q, first + count, &cons))
        *bad = 1;
}

// A payload by pointer, then the word that says so, again and again, and a thread that looks: *bad counts payloads
// that were older than their word.
__global__ void ping(const rig::Queue *queues, uint32_t laps, uint32_t bytes, bool small, uint32_t *bad) {
    const rig::Queue q = queues[0];
    uint64_t *payload = (uint64_t *)q.remote, *flag = (uint64_t *)(q.remote + 32768),
             *source = (uint64_t *)q.local;
    if (blockIdx.x == 0) {
        uint32_t cons = 0;
        for (uint32_t lap = 1; lap <= laps; lap++) {
            for (uint32_t i = threadIdx.x; i < bytes / 8; i += 32)
                source[i] = lap;
            __syncwarp();
            if (threadIdx.x == 0) {
                __threadfence();
                rig::write(q, 2 * lap - 2, (uint64_t)payload, small, small ? lap : (uint64_t)source, bytes,
                           false);
                rig::write(q, 2 * lap - 1, (uint64_t)flag, true, lap, 8, true);
                rig::ring(q, 2 * lap);
                if (!rig::wait(q, 2 * lap, &cons))
                    *bad = 1u << 30;
            }
            __syncwarp();
        }
        return;
    }
    uint64_t seen = 0;
    while (seen < laps && *(volatile uint32_t *)bad < 1u << 30) {
        uint64_t now;
        asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(now) : "l"(flag) : "memory");
        if (now == seen)
            continue;
        seen = now;
        for (uint32_t i = threadIdx.x; i < bytes / 8; i += 32)
            if (*(volatile uint64_t *)(payload + i) < seen)
                atomicAdd(bad, 1u);
        __syncwarp();
    }
}

uint32_t *flag() {
    static uint32_t *word;
    if (!word)
        CUDA(cudaHostAlloc((void **)&word, 64, cudaHostAllocMapped));
    *word = 0;
    return word;
}

bool served(rig::Pair &p, uint32_t first, uint32_t count, uint64_t value) {
    uint32_t *bad = flag();
    words<<<(uint32_t)p.queues.size(), 32, 0, p.stream>>>(p.device_queues, first, count, value, bad);
    return cudaGetLastError() == cudaSuccess && p.finish() && !*bad;
}

bool landed(rig::Pair &p, uint32_t count, uint64_t value) {
    static uint64_t *got; // not cudaMemcpy to just any memory: that waits for the kernel
    if (!got)
        CUDA(cudaHostAlloc((void **)&got, 4096, 0));
    for (size_t q = 0; q < p.queues.size(); q++) {
        CUDA(cudaMemcpyAsync(got, (void *)p.queues[q].remote, count * 8, cudaMemcpyDeviceToHost, p.stream));
        CUDA(cudaStreamSynchronize(p.stream));
        for (uint32_t i = 0; i < count; i++)
            if (got[i] != value + i)
                return false;
    }
    return true;
}

// Held and let go again and again, in between and while threads post: nothing is lost, nothing moves while held, and the
// device is free of the kernel.
void test_hold() {
    rig::Setup s;
    s.qps = 5;
    s.sms = 2;
    rig::Pair p(s);
    uint32_t at = 0;
    NIC(softnic_start(p.nic[0]));
    for (uint32_t lap = 0; lap < 20 && !failures; lap++, at += 100) {
        uint32_t *bad = flag();
        if (lap % 2)
            softnic_hold(p.nic[0]);
        words<<<s.qps, 32, 0, p.stream>>>(p.device_queues, at, 100, 1000 * lap, bad);
        if (lap % 2) {
            usleep(200);
            CHECK(cudaStreamQuery(p.stream) == cudaErrorNotReady);
        }
        for (int k = 0; k < 3; k++) {
            softnic_resume(p.nic[0]);
            if (k < 2)
                softnic_hold(p.nic[0]);
        }
        CHECK(p.finish() && !*bad);
        CHECK(landed(p, 100, 1000 * lap));
        const softnic_counters n = p.counters(); // pauses too
        CHECK(n.wqes == (lap + 1) * s.qps * 100 && n.cqes == n.wqes && n.qps_used == s.qps);
    }
    softnic_hold(p.nic[0]);
    CHECK(cudaDeviceSynchronize() == cudaSuccess); // would not return beside the kernel
    CHECK(softnic_engine_error(p.nic[0]) == 0);
}

// Keys that are registered, and go, while the kernel runs.
void test_keys() {
    rig::Setup s;
    rig::Pair p(s);
    NIC(softnic_start(p.nic[0]));
    CHECK(served(p, 0, 10, 1));
    uint32_t at = 10;
    for (int lap = 0; lap < 5; lap++) {
        uint8_t *mem;
        uint32_t key;
        NIC(softnic_mem_alloc_gpu(p.nic[1], 65536, (void **)&mem));
        NIC(softnic_mr_register(p.nic[1], mem, 65536, SOFTNIC_REMOTE_WRITE, &key));
        p.queues[0].rkey = key;
        p.queues[0].remote = (uint64_t)mem;
        CUDA(cudaMemcpyAsync(p.device_queues, p.queues.data(), sizeof(rig::Queue), cudaMemcpyHostToDevice,
                             p.stream));
        CHECK(served(p, at, 10, 100 * lap));
        at += 10;
        CHECK(landed(p, 10, 100 * lap));
        NIC(softnic_mr_deregister(p.nic[1], key));
        NIC(softnic_mem_free(p.nic[1], mem));
    }
    CHECK(softnic_qp_state(p.nic[0], p.queues[0].qpn) == SOFTNIC_QP_RTS);
    CHECK(!served(p, at, 1, 0)); // the key is dead
    CHECK(softnic_qp_state(p.nic[0], p.queues[0].qpn) == SOFTNIC_QP_ERROR);
    CHECK(softnic_qp_syndrome(p.nic[0], p.queues[0].qpn) == MLX5_SYND_REMOTE_ACCESS);
    NIC(softnic_qp_destroy(p.nic[0], p.queues[0].qpn));
    CHECK(p.counters().wqes == 61);
}

// Of the peer: this device, and the last one where there are several.
std::vector<int> peer_devices() {
    int count = 0;
    CUDA(cudaGetDeviceCount(&count));
    return count > 1 ? std::vector<int>{0, count - 1} : std::vector<int>{0};
}

// The word behind a payload is never seen before it: longer than a word in any case, words under strict order.
void order_towards(int peer) {
    for (int strict = 0; strict < 2; strict++)
        for (uint32_t bytes : {8u, 64u, 4096u, 32768u}) {
            if (bytes == 8 && !strict)
                continue;
            rig::Setup s;
            s.peer_device = peer;
            s.slice = 65536;
            s.writes = strict ? SOFTNIC_WRITES_STRICT : SOFTNIC_WRITES_RUNS;
            rig::Pair p(s);
            uint32_t *bad = flag();
            NIC(softnic_start(p.nic[0]));
            ping<<<2, 32, 0, p.stream>>>(p.device_queues, 2000, bytes, bytes == 8, bad);
            CHECK(p.finish());
            CHECK(*bad == 0);
        }
}

void test_order() {
    for (int peer : peer_devices())
        order_towards(peer);
}

// Delays are kept: no CQE before its time, and no more messages than the rate allows.
void test_profile() {
    rig::Setup s;
    s.profile.latency_ns = 200000;
    s.profile.message_rate = 1e5;
    rig::Pair p(s);
    NIC(softnic_start(p.nic[0]));
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    CHECK(served(p, 0, 100, 7));
    clock_gettime(CLOCK_MONOTONIC, &b);
    const double took = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9;
    CHECK(took >= 99e-5 + 200e-6);
    CHECK(landed(p, 100, 7));
}

// ---- on demand ----

bool away(rig::Pair &p) { // it leaves; 10 s
    for (int i = 0; i < 100000; i++) {
        const uint64_t before = softnic_launches(p.nic[0]);
        usleep(p.setup.idle_us + 2000);
        // Beside the kernel this would not return.
        if (cudaDeviceSynchronize() != cudaSuccess)
            return false;
        if (softnic_launches(p.nic[0]) == before)
            return true;
    }
    return false;
}

// A program that knows nothing of the kernel: it posts, waits, allocates and frees.
void test_demand() {
    rig::Setup s;
    s.qps = 4;
    s.presence = SOFTNIC_DEMAND;
    s.bell_on_host = true;
    s.idle_us = 500;
    rig::Pair p(s);
    NIC(softnic_start(p.nic[0]));
    CHECK(away(p) && softnic_launches(p.nic[0]) == 0);
    uint32_t at = 0;
    for (uint32_t lap = 0; lap < 30 && !failures; lap++, at += 50) {
        const uint64_t launches = softnic_launches(p.nic[0]);
        void *some;
        CUDA(cudaMalloc(&some, 1 << 20));
        CHECK(served(p, at, 50, 100 * lap));
        CUDA(cudaFree(some)); // waits for the kernel
        CUDA(cudaDeviceSynchronize());
        CHECK(landed(p, 50, 100 * lap));
        if (lap % 5 == 4) {
            CHECK(away(p));
            CHECK(p.counters().wqes == (lap + 1) * s.qps * 50);
        } else if (lap % 5 == 2) {
            usleep(s.idle_us + lap * 10); // about when it leaves
        }
        CHECK(softnic_launches(p.nic[0]) - launches <= 3);
    }
    CHECK(softnic_launches(p.nic[0]) >= 6);
    // It stays.
    NIC(softnic_stay(p.nic[0], 1));
    const uint64_t launches = softnic_launches(p.nic[0]);
    for (uint32_t lap = 0; lap < 5; lap++, at += 50) {
        usleep(3 * s.idle_us);
        CHECK(served(p, at, 50, 7 * lap));
    }
    CHECK(softnic_launches(p.nic[0]) == launches);
    NIC(softnic_stay(p.nic[0], 0));
    CHECK(away(p));
    CHECK(softnic_engine_error(p.nic[0]) == 0);
    // Memory that comes and goes meanwhile.
    uint8_t *mem;
    uint32_t key;
    NIC(softnic_mem_alloc_gpu(p.nic[1], 65536, (void **)&mem));
    NIC(softnic_mr_register(p.nic[1], mem, 65536, SOFTNIC_REMOTE_WRITE, &key));
    NIC(softnic_peers_map(p.nic[0]));
    for (auto &q : p.queues) {
        q.rkey = key;
        q.remote = (uint64_t)mem + (uint64_t)(&q - p.queues.data()) * 4096;
    }
    CUDA(cudaMemcpy(p.device_queues, p.queues.data(), sizeof(rig::Queue) * s.qps, cudaMemcpyHostToDevice));
    CHECK(served(p, at, 50, 3));
    CHECK(landed(p, 50, 3));
    NIC(softnic_mr_deregister(p.nic[1], key));
    NIC(softnic_mem_free(p.nic[1], mem));
}

// The kernel comes and goes while the program captures a graph, which what the keeper calls must not spoil.
void test_capture() {
    rig::Setup s;
    s.presence = SOFTNIC_DEMAND;
    s.bell_on_host = true;
    s.idle_us = 500;
    rig::Pair p(s);
    cudaStream_t captured;
    CUDA(cudaStreamCreateWithFlags(&captured, cudaStreamNonBlocking));
    NIC(softnic_start(p.nic[0]));
    CHECK(away(p));
    uint32_t *bad = flag(), *other;
    CUDA(cudaHostAlloc((void **)&other, 64, cudaHostAllocMapped));
    CUDA(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
    words<<<1, 32, 0, p.stream>>>(p.device_queues, 0, 20, 5, bad);
    CHECK(cudaGetLastError() == cudaSuccess);
    words<<<1, 32, 0, captured>>>(p.device_queues, 20, 20, 6, other);
    usleep(30000); // launched, served, left
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(captured, &graph) == cudaSuccess);
    CHECK(softnic_launches(p.nic[0]) >= 1);
    CHECK(p.finish() && *bad == 0 && landed(p, 20, 5));
    cudaGraphExec_t exec;
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphLaunch(exec, p.stream));
    CHECK(p.finish() && *other == 0 && landed(p, 20, 6));
    CHECK(softnic_engine_error(p.nic[0]) == 0);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(captured);
    cudaFreeHost(other);
}

// One block posts a word and tells the others, which fill the device, when it has arrived.
__global__ void crowd(rig::Queue q, uint32_t index, uint32_t *told, uint32_t *bad) {
    extern __shared__ uint8_t all[];
    uint64_t start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    all[threadIdx.x] = 1;
    if (threadIdx.x)
        return;
    atomicAdd(told, 1u);
    if (blockIdx.x == 0) {
        while (*(volatile uint32_t *)told != gridDim.x) {
            asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
            if (now - start > 2000000000ull)
                *bad |= 1;
            if (*bad)
                break;
        }
        uint32_t cons = index;
        rig::write(q, index, q.remote, true, index, 8, true);
        rig::ring(q, index + 1);
        if (!rig::wait(q, index + 1, &cons))
            *bad |= 2;
        __threadfence();
        *(volatile uint32_t *)told = ~0u;
    }
    while (*(volatile uint32_t *)told != ~0u) {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        if (now - start > 6000000000ull) {
            *bad |= 4;
            break;
        }
    }
}

// A grid on every multiprocessor, with nearly all of its shared memory, beside a kernel that was there first; and one that
// leaves a multiprocessor, beside which the kernel comes when it is called. (To a multiprocessor that others hold it
// cannot: they have chosen how much of it is shared memory.)
void test_crowd() {
    rig::Setup s;
    s.presence = SOFTNIC_DEMAND;
    s.bell_on_host = true;
    rig::Pair p(s);
    int sms = 0;
    uint32_t *told;
    const int shared = 190 * 1024;
    CUDA(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, s.device));
    CUDA(cudaMalloc(&told, 4));
    CUDA(cudaFuncSetAttribute(crowd, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    NIC(softnic_start(p.nic[0]));
    for (uint32_t lap = 0; lap < 4 && !failures; lap++) {
        const bool first = lap % 2;
        CHECK(away(p));
        CUDA(cudaMemset(told, 0, 4));
        CUDA(cudaDeviceSynchronize());
        if (first)
            NIC(softnic_stay(p.nic[0], 1));
        uint32_t *bad = flag();
        crowd<<<first ? sms : sms - 1, 512, shared, p.stream>>>(p.queues[0], lap, told, bad);
        CUDA(cudaGetLastError());
        CHECK(p.finish() && *bad == 0);
        NIC(softnic_stay(p.nic[0], 0));
    }
    cudaFree(told);
}

// Neither waits for the other for ever. The kernel finds no room: the call that wants it there says so, and when it comes
// after all, nobody answers it and it leaves.
__global__ void hog(const uint32_t *told) {
    uint64_t start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (*(const volatile uint32_t *)told == 0 && now - start < 8000000000ull);
}
void test_patience() {
    rig::Setup s;
    s.patience_ms = 300;
    rig::Pair p(s);
    int sms = 0;
    CUDA(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, s.device));
    uint32_t *told = flag();
    hog<<<2 * sms, 1024, 0, p.stream>>>(told); // every thread that the device has
    CUDA(cudaGetLastError());
    CHECK(softnic_start(p.nic[0]) == -ETIMEDOUT && strstr(softnic_error(), "no room") &&
          strstr(softnic_error(), "300 ms"));
    CHECK(softnic_engine_error(p.nic[0]) == -ETIMEDOUT);
    CHECK(cudaStreamQuery(p.stream) == cudaErrorNotReady);
    *(volatile uint32_t *)told = 1;
    CHECK(p.finish());
    CHECK(cudaDeviceSynchronize() == cudaSuccess); // returns when the kernel has left
    CHECK(softnic_start(p.nic[0]) == -ETIMEDOUT);
}

// What an engine cannot do it says.
void test_refusals() {
    softnic *nic;
    softnic_attr a{};
    char job[64];
    snprintf(job, sizeof job, "gic-rig-refuse-%d", (int)getpid());
    a.job = job;
    a.nodes = 1;
    a.engine = SOFTNIC_ENGINE_GPU;
    a.watch = SOFTNIC_WATCH_DBR;
    a.patience_ms = 99;
    CHECK(softnic_create(&a, &nic) == -EINVAL && strstr(softnic_error(), "patience_ms 99"));
    a.patience_ms = 0;
    a.trace_records = 10;
    CHECK(softnic_create(&a, &nic) == -ENOTSUP && strstr(softnic_error(), "trace"));
    a.trace_records = 0;
    a.sms = 9;
    CHECK(softnic_create(&a, &nic) == -EINVAL && strstr(softnic_error(), "9"));
    a.sms = 0;
    a.device = 99;
    CHECK(softnic_create(&a, &nic) == -ENOTSUP && strstr(softnic_error(), "99"));
    a.device = 0;
    NIC(softnic_create(&a, &nic));
    void *host, *device, *plain = aligned_alloc(64, 4096);
    uint32_t cqn, qpn, key;
    CUDA(cudaHostAlloc(&host, 4096, cudaHostAllocMapped));
    CUDA(cudaMalloc(&device, 4096));
    softnic_cq_attr cq{plain, 1, 1, nullptr};
    CHECK(softnic_cq_create(nic, &cq, &cqn) == -EFAULT);
    cq.cqe = device;
    NIC(softnic_cq_create(nic, &cq, &cqn));
    softnic_qp_attr qp{host, 16, plain, nullptr, cqn};
    CHECK(softnic_qp_create(nic, &qp, &qpn) == -EFAULT);
    qp.dbrec = host;
    CHECK(softnic_qp_create(nic, &qp, &qpn) == -EINVAL && strstr(softnic_error(), "host memory"));
    qp.dbrec = (uint8_t *)device + 128;
    NIC(softnic_qp_create(nic, &qp, &qpn));
    CHECK(softnic_mr_register(nic, plain, 4096, 0, &key) == -EFAULT);
    CHECK(softnic_mem_share_gpu(nic, device, 1 << 30) == -EINVAL && strstr(softnic_error(), "allocation"));
    CHECK(softnic_mem_share_gpu(nic, plain, 4096) < 0);
    CHECK(softnic_stay(nic, 1) == -EINVAL);
    NIC(softnic_mr_register(nic, host, 4096, 0, &key));
    softnic_destroy(nic);
    a.presence = SOFTNIC_DEMAND;
    NIC(softnic_create(&a, &nic));
    NIC(softnic_cq_create(nic, &cq, &cqn));
    softnic_qp_attr unseen{device, 16, (uint8_t *)device + 2048, (uint8_t *)device + 2112, cqn};
    CHECK(softnic_qp_create(nic, &unseen, &qpn) == -EINVAL && strstr(softnic_error(), "not in host memory"));
    softnic_destroy(nic);
    cudaFreeHost(host);
    cudaFree(device);
    free(plain);
}

// ---- processes ----

#include "gpu_test_processes.cuh"

bool any_device() {
    const pid_t pid = fork(); // asking makes a context
    if (pid == 0) {
        int count = 0;
        _exit(cudaGetDeviceCount(&count) == cudaSuccess && count > 0 ? 0 : 1);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    return status == 0;
}

} // namespace

int main(int argc, char **argv) {
    rig::load_at_once();
    if (!any_device()) {
        printf("gpu_engine_test: skipped: no CUDA device\n");
        return 0;
    }
    const struct {
        const char *name;
        void (*run)();
    } tests[] = {{"processes", test_processes}, {"silence", test_silence},  {"hold", test_hold},
                 {"keys", test_keys},           {"order", test_order},      {"profile", test_profile},
                 {"demand", test_demand},       {"capture", test_capture},  {"crowd", test_crowd},
                 {"refusals", test_refusals},   {"patience", test_patience}};
    for (const auto &t : tests) { // those that fork first, which a process with a context must not
        if (argc > 1 && strcmp(argv[1], t.name) != 0)
            continue;
        const int before = failures;
        t.run();
        printf("gpu_engine_test: %s: %s\n", t.name, failures == before ? "ok" : "failed");
        fflush(stdout);
    }
    printf("gpu_engine_test: %s, %d failed\n", failures ? "failed" : "ok", failures);
    return failures != 0;
}
