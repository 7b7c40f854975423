// Speed of the GPU engine, beside the copy engine's in the same run: message rate of 8-byte inline writes, put and
// completion, bandwidth. Payloads and counters are checked; what is wrong ends the program. One GPU, or with a second
// one the writes go there.
#include "gpu_rig.cuh"

#include <algorithm>
#include <string.h>

namespace {

struct Times {
    uint64_t start, end, status;
};

__device__ uint64_t timer() {
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

// What write `i` of QP `qp` carries.
__host__ __device__ uint64_t value_of(uint32_t qp, uint32_t i) {
    return (uint64_t)(qp + 1) << 32 | (i * 2654435761u);
}

// One QP a block: `count` writes of 8 bytes inline, announced `batch` at a time, each batch with one CQE or each write
// with its own. Write i goes to word i % slots of the QP's slice.
__global__ void post_words(const rig::Queue *queues, uint32_t first, uint32_t count, uint32_t batch,
                           uint32_t signal_every, uint32_t slots, Times *times) {
    const rig::Queue q = queues[blockIdx.x];
    if (threadIdx.x)
        return;
    uint32_t cons = first, end = first + count;
    bool fine = true;
    times[blockIdx.x].start = timer();
    for (uint32_t i = first; i != end && fine; i++) {
        if (i - cons >= q.depth)
            fine = rig::wait(q, i - q.depth / 2, &cons);
        const uint32_t done = i + 1 - first;
        const bool last = done % batch == 0 || i + 1 == end;
        rig::write(q, i, q.remote + i % slots * 8, true, value_of(blockIdx.x, i), 8,
                   last || done % signal_every == 0);
        if (last)
            rig::ring(q, i + 1);
    }
    fine = fine && rig::wait(q, end, &cons);
    times[blockIdx.x].end = timer();
    times[blockIdx.x].status = fine ? 0 : 1;
}

// One QP a block: a write, its completion, again. The cycles of each in `took`.
__global__ void put_and_wait(const rig::Queue *queues, uint32_t first, uint32_t count, bool inline_,
                             uint32_t bytes, uint32_t *took, Times *times) {
    const rig::Queue q = queues[blockIdx.x];
    if (threadIdx.x)
        return;
    uint32_t cons = first;
    bool fine = true;
    times[blockIdx.x].start = timer();
    for (uint32_t i = first; i != first + count && fine; i++) {
        const uint64_t before = clock64();
        rig::write(q, i, q.remote, inline_, inline_ ? value_of(blockIdx.x, i) : q.local, bytes, true);
        rig::ring(q, i + 1);
        fine = rig::wait(q, i + 1, &cons);
        took[blockIdx.x * count + i - first] = (uint32_t)(clock64() - before);
    }
    times[blockIdx.x].end = timer();
    times[blockIdx.x].status = fine ? 0 : 1;
}

// One QP a block: `count` writes of `bytes` each by pointer, all announced at once, to PLACES places in turn.
enum { PLACES = 8 };
__global__ void post_long(const rig::Queue *queues, uint32_t first, uint32_t count, uint32_t bytes,
                          Times *times) {
    const rig::Queue q = queues[blockIdx.x];
    if (threadIdx.x)
        return;
    uint32_t cons = first;
    times[blockIdx.x].start = timer();
    for (uint32_t i = first; i != first + count; i++)
        rig::write(q, i, q.remote + (uint64_t)(i % PLACES) * bytes, false, q.local, bytes,
                   i + 1 == first + count);
    rig::ring(q, first + count);
    const bool fine = rig::wait(q, first + count, &cons);
    times[blockIdx.x].end = timer();
    times[blockIdx.x].status = fine ? 0 : 1;
}

struct Span {
    double ns;
    bool fine;
};
Span span_of(const Times *times, uint32_t blocks) {
    uint64_t start = ~0ull, end = 0, bad = 0;
    for (uint32_t i = 0; i < blocks; i++) {
        start = std::min(start, times[i].start);
        end = std::max(end, times[i].end);
        bad |= times[i].status;
    }
    return {(double)(end - start), bad == 0};
}

int failures;
void fail(const char *what) {
    printf("  FAILED: %s\n", what);
    failures++;
}

template <class T> T *pinned(size_t n) {
    T *p;
    CUDA(cudaHostAlloc((void **)&p, n * sizeof(T), cudaHostAllocMapped));
    memset(p, 0, n * sizeof(T));
    return p;
}

void rate(const rig::Setup &s, uint32_t batch, uint32_t signal_every, uint32_t slots, uint32_t count) {
    rig::Pair pair(s);
    Times *times = pinned<Times>(s.qps);
    double best = 0;
    NIC(softnic_start(pair.nic[0]));
    for (uint32_t run = 0; run < 3; run++) {
        post_words<<<s.qps, 32, 0, pair.stream>>>(pair.device_queues, run * count, count, batch, signal_every,
                                                  slots, times);
        CUDA(cudaGetLastError());
        if (!pair.finish())
            exit(1);
        const Span span = span_of(times, s.qps);
        if (!span.fine)
            fail("a post did not complete");
        best = std::max(best, (double)s.qps * count / span.ns * 1e3);
    }
    softnic_hold(pair.nic[0]);
    const softnic_counters n = pair.counters();
    const uint64_t wqes = 3ull * s.qps * count;
    if (n.wqes != wqes || n.wqe_write_inline != wqes || n.payload_bytes != wqes * 8 || n.error_cqes)
        fail("counters");
    std::vector<uint64_t> got(s.slice / 8 * s.qps);
    CUDA(cudaMemcpy(got.data(), pair.mem[1], s.slice * s.qps, cudaMemcpyDefault));
    uint64_t wrong = 0;
    for (uint32_t qp = 0; qp < s.qps; qp++)
        for (uint32_t i = 3 * count - std::min(3 * count, slots); i < 3 * count; i++)
            wrong += got[qp * (s.slice / 8) + i % slots] != value_of(qp, i);
    if (wrong)
        fail("payload");
    printf("| %4u | %3u | %6u | %6u | %3u | %-4s | %-6s | %8.1f | %6.1f | %s |\n", s.qps, batch, signal_every,
           slots, s.sms, s.bell_on_host ? "host" : "gpu",
           s.writes == SOFTNIC_WRITES_STRICT ? "strict" : "runs", best, (double)n.wqes / (double)n.doorbells,
           wrong ? "WRONG" : "ok");
    fflush(stdout);
    cudaFreeHost(times);
}

void put(const rig::Setup &s, bool inline_, uint32_t bytes) {
    const uint32_t count = 2000;
    rig::Pair pair(s);
    Times *times = pinned<Times>(s.qps);
    uint32_t *took = pinned<uint32_t>(s.qps * count);
    NIC(softnic_start(pair.nic[0]));
    int khz = 0;
    CUDA(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, s.device));
    put_and_wait<<<s.qps, 32, 0, pair.stream>>>(pair.device_queues, 0, count, inline_, bytes, took, times);
    CUDA(cudaGetLastError());
    if (!pair.finish())
        exit(1);
    softnic_hold(pair.nic[0]);
    const Span span = span_of(times, s.qps);
    if (!span.fine)
        fail("a put did not complete");
    std::vector<uint32_t> all(took + 0, took + s.qps * count);
    std::sort(all.begin(), all.end());
    const double us = 1e3 / khz;
    printf("| %4u | %-7s | %7u | %3u | %-4s | %-6s | %6.2f | %6.2f | %6.2f | %6.2f |\n", s.qps,
           inline_ ? "inline" : "pointer", bytes, s.sms, s.bell_on_host ? "host" : "gpu",
           s.writes == SOFTNIC_WRITES_STRICT ? "strict" : "runs", all[all.size() / 100] * us,
           all[all.size() / 2] * us, all[all.size() * 99 / 100] * us, span.ns / count / 1e3);
    fflush(stdout);
    cudaFreeHost(times);
    cudaFreeHost(took);
}

void bandwidth(rig::Setup s, uint32_t bytes, double copy_engine) {
    s.slice = (size_t)bytes * PLACES;
    s.depth = 64;
    const uint32_t count = std::max(2u * PLACES, std::min(64u, (256u << 20) / bytes / s.qps));
    rig::Pair pair(s);
    Times *times = pinned<Times>(s.qps);
    CUDA(cudaMemset(pair.mem[0], 0x5c, s.slice * s.qps));
    CUDA(cudaDeviceSynchronize());
    NIC(softnic_start(pair.nic[0]));
    double best = 0;
    for (uint32_t run = 0; run < 2; run++) {
        post_long<<<s.qps, 32, 0, pair.stream>>>(pair.device_queues, run * count, count, bytes, times);
        CUDA(cudaGetLastError());
        if (!pair.finish())
            exit(1);
        const Span span = span_of(times, s.qps);
        if (!span.fine)
            fail("a write did not complete");
        best = std::max(best, (double)bytes * count * s.qps / span.ns);
    }
    softnic_hold(pair.nic[0]);
    std::vector<uint8_t> got(s.slice * s.qps);
    CUDA(cudaMemcpy(got.data(), pair.mem[1], got.size(), cudaMemcpyDefault));
    bool same = true;
    for (uint8_t b : got)
        same &= b == 0x5c;
    if (!same)
        fail("payload");
    printf("| %4u | %9u | %3u | %8.1f | %5.0f %% | %s |\n", s.qps, bytes, s.sms, best,
           best / copy_engine * 100, same ? "ok" : "WRONG");
    fflush(stdout);
    cudaFreeHost(times);
}

double copy_engine_bandwidth(int from, int to) {
    const size_t bytes = 64 << 20;
    void *a, *b;
    cudaStream_t stream;
    cudaEvent_t e0, e1;
    CUDA(cudaSetDevice(to));
    CUDA(cudaMalloc(&b, bytes));
    CUDA(cudaSetDevice(from));
    CUDA(cudaMalloc(&a, bytes));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaEventCreate(&e0));
    CUDA(cudaEventCreate(&e1));
    float ms = 0;
    for (int i = 0; i < 2; i++) {
        CUDA(cudaEventRecord(e0, stream));
        for (int k = 0; k < 8; k++)
            CUDA(cudaMemcpyPeerAsync(b, to, a, from, bytes, stream));
        CUDA(cudaEventRecord(e1, stream));
        CUDA(cudaStreamSynchronize(stream));
        CUDA(cudaEventElapsedTime(&ms, e0, e1));
    }
    cudaFree(a);
    cudaFree(b);
    cudaStreamDestroy(stream);
    return 8.0 * (double)bytes / (ms * 1e6);
}

} // namespace

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "all";
    auto want = [&](const char *part) { return strcmp(what, "all") == 0 || strcmp(what, part) == 0; };
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("gpu_engine_bench: skipped: no CUDA device\n");
        return 0;
    }
    rig::Setup s;
    s.peer_device = devices > 1 ? 1 : 0;
    if (devices > 1)
        cudaDeviceEnablePeerAccess(1, 0);
    printf("from device %d to device %d\n", s.device, s.peer_device);
    if (want("put")) {
        printf("\nput and completion, us\n| QPs | how | bytes | SMs | bell | writes | p1 | p50 | p99 | mean "
               "|\n");
        for (bool host : {false, true})
            for (uint32_t qps : {1, 2, 4, 16}) {
                s.bell_on_host = host;
                s.qps = qps;
                put(s, true, 8);
            }
        s.bell_on_host = false;
        s.qps = 1;
        put(s, false, 8);
        for (uint32_t bytes : {64, 1024, 4096, 16384})
            put(s, false, bytes);
    }
    if (want("rate")) {
        printf("\n8-byte inline writes, M/s\n| QPs | B | signal | slots | SMs | bell | writes | rate | per "
               "bell | payload |\n");
        s.bell_on_host = false;
        for (uint32_t sms : {1, 2, 4}) {
            s.sms = sms;
            s.qps = 128;
            rate(s, 16, 16, 4096, 40000);
        }
        rate(s, 16, 1, 4096, 40000);
        s.bell_on_host = true;
        rate(s, 16, 16, 4096, 40000);
        s.bell_on_host = false;
        s.sms = 1;
        rate(s, 16, 1, 4096, 40000);
        rate(s, 16, 16, 1, 20000);
        rate(s, 1, 1, 4096, 10000);
        s.qps = 64;
        rate(s, 16, 16, 4096, 40000);
        s.qps = 1;
        rate(s, 16, 16, 4096, 100000);
        s.qps = 128;
        s.writes = SOFTNIC_WRITES_STRICT;
        rate(s, 16, 16, 4096, 10000);
        s.writes = SOFTNIC_WRITES_RUNS;
    }
    if (want("bandwidth")) {
        const double ce = copy_engine_bandwidth(s.device, s.peer_device);
        printf("\nwrites by pointer, GB/s; copy engine %.1f\n| QPs | bytes | SMs | GB/s | of copy engine | "
               "payload |\n",
               ce);
        for (uint32_t sms : {1, 2, 4, 8})
            for (uint32_t bytes : {1u << 20, 16u << 20}) {
                s.sms = sms;
                s.qps = 1;
                bandwidth(s, bytes, ce);
            }
        s.sms = 8;
        s.qps = 4;
        bandwidth(s, 1 << 20, ce);
        s.qps = 16;
        bandwidth(s, 65536, ce);
        bandwidth(s, 4096, ce);
    }
    return failures != 0;
}
