// Speed of the GPU engine, beside the copy engine's in the same run: message rate of 8-byte inline writes, put and
// completion, bandwidth. Payloads and counters are checked; what is wrong ends the program. One GPU, or with a second
// one the writes go there.
#include "gpu_bench_kernels.cuh"

#include <algorithm>
#include <string.h>
#include <time.h>

namespace {

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

struct Took {
    double p1, p50, p99, mean; // us
};
Took put_took(const rig::Setup &s, bool inline_, uint32_t bytes, uint32_t count) {
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
    cudaFreeHost(times);
    cudaFreeHost(took);
    const double us = 1e3 / khz;
    return {all[all.size() / 100] * us, all[all.size() / 2] * us, all[all.size() * 99 / 100] * us,
            span.ns / count / 1e3};
}
void put(const rig::Setup &s, bool inline_, uint32_t bytes) {
    const Took t = put_took(s, inline_, bytes, 2000);
    printf("| %4u | %-7s | %7u | %3u | %-4s | %-6s | %6.2f | %6.2f | %6.2f | %6.2f |\n", s.qps,
           inline_ ? "inline" : "pointer", bytes, s.sms, s.bell_on_host ? "host" : "gpu",
           s.writes == SOFTNIC_WRITES_STRICT ? "strict" : "runs", t.p1, t.p50, t.p99, t.mean);
    fflush(stdout);
}
// The same put with its queue in one place after the other: the medians of all, sorted.
void places(rig::Setup s) {
    std::vector<double> medians;
    for (s.place = 0; s.place < rig::PLACES; s.place++)
        medians.push_back(put_took(s, true, 8, 500).p50);
    std::sort(medians.begin(), medians.end());
    printf("| %4u | %-4s |", s.qps, s.bell_on_host ? "host" : "gpu");
    for (double m : medians)
        printf(" %.2f", m);
    printf(" | %.2f |\n", (medians[rig::PLACES / 2 - 1] + medians[rig::PLACES / 2]) / 2);
    fflush(stdout);
}

void ops(rig::Setup s) {
    const uint32_t count = 1000;
    uint64_t *wrong = pinned<uint64_t>(1);
    uint32_t *took = pinned<uint32_t>(count);
    int khz = 0;
    CUDA(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, s.device));
    s.qps = 2;
    s.last_to_self = true;
    for (int op = 0; op < OPS; op++) {
        rig::Pair pair(s);
        *wrong = 0;
        NIC(softnic_start(pair.nic[0]));
        op_and_wait<<<1, 1, 0, pair.stream>>>(pair.device_queues, (Op)op, count, took, wrong);
        CUDA(cudaGetLastError());
        if (!pair.finish())
            exit(1);
        softnic_hold(pair.nic[0]);
        if (*wrong)
            fail(op_names[op]);
        std::sort(took, took + count);
        const double us = 1e3 / khz;
        printf("| %-24s | %6.2f | %6.2f | %6.2f | %s |\n", op_names[op], took[count / 100] * us,
               took[count / 2] * us, took[count * 99 / 100] * us, *wrong ? "WRONG" : "ok");
        fflush(stdout);
    }
    cudaFreeHost(wrong);
    cudaFreeHost(took);
}

// Every word of the sources says where it is.
std::vector<uint32_t> sources(const rig::Pair &p) {
    std::vector<uint32_t> words(p.setup.slice / 4 * p.setup.qps);
    for (size_t i = 0; i < words.size(); i++)
        words[i] = (uint32_t)i * 2654435761u;
    return words;
}
void fill(rig::Pair &p) {
    const std::vector<uint32_t> sent = sources(p);
    CUDA(cudaMemcpy(p.mem[0], sent.data(), sent.size() * 4, cudaMemcpyDefault));
    CUDA(cudaDeviceSynchronize());
}
// Has every place what its QP's source begins with, and the NIC moved so many bytes? It is held.
bool filled(rig::Pair &p, uint32_t bytes, uint64_t moved) {
    const std::vector<uint32_t> sent = sources(p);
    std::vector<uint32_t> got(sent.size());
    const size_t slice = p.setup.slice / 4;
    CUDA(cudaMemcpy(got.data(), p.mem[1], got.size() * 4, cudaMemcpyDefault));
    bool same = true;
    for (size_t at = 0; at < got.size(); at += bytes / 4)
        same &= memcmp(&got[at], &sent[at / slice * slice], bytes) == 0;
    const softnic_counters n = p.counters();
    if (!same)
        fail("payload");
    if (n.payload_bytes != moved || n.error_cqes)
        fail("counters");
    return same;
}

void bandwidth(rig::Setup s, uint32_t bytes, double copy_engine) {
    // Rows go to places of their own, as far as 64 MiB go.
    const uint32_t places = std::max(8u, std::min(64u, (64u << 20) / bytes / s.qps));
    s.slice = (size_t)bytes * places;
    s.depth = 64;
    const uint32_t count = std::max(16u, std::min(64u, (256u << 20) / bytes / s.qps));
    rig::Pair pair(s);
    Times *times = pinned<Times>(s.qps);
    fill(pair);
    NIC(softnic_start(pair.nic[0]));
    double best = 0;
    for (uint32_t run = 0; run < 2; run++) {
        post_long<<<s.qps, 32, 0, pair.stream>>>(pair.device_queues, run * count, count, bytes, places,
                                                 times);
        CUDA(cudaGetLastError());
        if (!pair.finish())
            exit(1);
        const Span span = span_of(times, s.qps);
        if (!span.fine)
            fail("a write did not complete");
        best = std::max(best, (double)bytes * count * s.qps / span.ns);
    }
    softnic_hold(pair.nic[0]);
    const bool same = filled(pair, bytes, 2ull * bytes * count * s.qps);
    printf("| %4u | %9u | %3u | %8.1f | %5.0f %% | %s |\n", s.qps, bytes, s.sms, best,
           best / copy_engine * 100, same ? "ok" : "WRONG");
    fflush(stdout);
    cudaFreeHost(times);
}

// On demand: a put to a kernel that is away, to its completion; and what a control call costs beside one that is there.
void demand(rig::Setup s) {
    const uint32_t count = 50;
    s.presence = SOFTNIC_DEMAND;
    s.bell_on_host = true;
    rig::Pair pair(s);
    Times *times = pinned<Times>(1);
    uint32_t *took = pinned<uint32_t>(1);
    std::vector<double> called, pause;
    int khz = 0;
    CUDA(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, s.device));
    NIC(softnic_start(pair.nic[0]));
    for (uint32_t i = 0; i < count; i++) {
        CUDA(cudaDeviceSynchronize());
        usleep(3000);
        put_and_wait<<<1, 32, 0, pair.stream>>>(pair.device_queues, i, 1, true, 8, took, times);
        CUDA(cudaGetLastError());
        if (!pair.finish() || times->status)
            exit(1);
        called.push_back(*took * 1e3 / khz);
    }
    const uint64_t launches = softnic_launches(pair.nic[0]);
    NIC(softnic_stay(pair.nic[0], 1));
    for (uint32_t i = 0; i < count; i++) {
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        softnic_hold(pair.nic[0]);
        softnic_resume(pair.nic[0]);
        clock_gettime(CLOCK_MONOTONIC, &b);
        pause.push_back((double)(b.tv_sec - a.tv_sec) * 1e6 + (double)(b.tv_nsec - a.tv_nsec) * 1e-3);
    }
    std::sort(called.begin(), called.end());
    std::sort(pause.begin(), pause.end());
    printf("| a put when it is away | %6.1f | %6.1f | %6.1f | %llu launches for %u |\n", called[1],
           called[count / 2], called[count - 2], (unsigned long long)launches, count);
    printf("| hold and resume       | %6.1f | %6.1f | %6.1f | |\n", pause[1], pause[count / 2],
           pause[count - 2]);
    fflush(stdout);
    softnic_hold(pair.nic[0]); // it stays, and what frees memory waits for it
    cudaFreeHost(times);
    cudaFreeHost(took);
}

// The copy engine's, in one direction or in both at once: GB/s of one direction.
double copy_engine_bandwidth(int from, int to, bool both) {
    const size_t bytes = 64 << 20;
    const int ways = both ? 2 : 1, device[2] = {from, to};
    void *a[2], *b[2];
    cudaStream_t stream[2];
    cudaEvent_t e0[2], e1[2];
    for (int w = 0; w < ways; w++) {
        CUDA(cudaSetDevice(device[1 - w]));
        CUDA(cudaMalloc(&b[w], bytes));
        CUDA(cudaSetDevice(device[w]));
        CUDA(cudaMalloc(&a[w], bytes));
        CUDA(cudaStreamCreateWithFlags(&stream[w], cudaStreamNonBlocking));
        CUDA(cudaEventCreate(&e0[w]));
        CUDA(cudaEventCreate(&e1[w]));
    }
    double worst = 0;
    for (int i = 0; i < 2; i++) {
        for (int w = 0; w < ways; w++) {
            CUDA(cudaSetDevice(device[w]));
            CUDA(cudaEventRecord(e0[w], stream[w]));
            for (int k = 0; k < 16; k++)
                CUDA(cudaMemcpyPeerAsync(b[w], device[1 - w], a[w], device[w], bytes, stream[w]));
            CUDA(cudaEventRecord(e1[w], stream[w]));
        }
        worst = 0;
        for (int w = 0; w < ways; w++) {
            float ms = 0;
            CUDA(cudaStreamSynchronize(stream[w]));
            CUDA(cudaEventElapsedTime(&ms, e0[w], e1[w]));
            worst = std::max(worst, (double)ms);
        }
    }
    for (int w = 0; w < ways; w++) {
        cudaFree(a[w]);
        cudaFree(b[w]);
        cudaStreamDestroy(stream[w]);
    }
    cudaSetDevice(from);
    return 16.0 * (double)bytes / (worst * 1e6);
}

// Rows and their signals, as in expert parallelism.
void groups(rig::Setup s, uint32_t rows, uint32_t bytes, double copy_engine) {
    const uint32_t places = 32, count = 64 / (rows + 1);
    s.slice = (size_t)bytes * places + 4096;
    s.depth = 64;
    rig::Pair pair(s);
    Times *times = pinned<Times>(s.qps);
    fill(pair);
    NIC(softnic_start(pair.nic[0]));
    double best = 0;
    for (uint32_t run = 0; run < 3; run++) {
        post_groups<<<s.qps, 32, 0, pair.stream>>>(pair.device_queues, run * count * (rows + 1), count, rows,
                                                   bytes, places, times);
        CUDA(cudaGetLastError());
        if (!pair.finish())
            exit(1);
        const Span span = span_of(times, s.qps);
        if (!span.fine)
            fail("a group did not complete");
        best = std::max(best, (double)bytes * rows * count * s.qps / span.ns);
    }
    softnic_hold(pair.nic[0]);
    const softnic_counters n = pair.counters();
    const uint64_t atomics = 3ull * count * s.qps;
    bool same = n.wqe_atomic == atomics && n.wqe_write == atomics * rows && n.error_cqes == 0;
    for (const rig::Queue &q : pair.queues) {
        uint64_t sum = 0;
        CUDA(cudaMemcpy(&sum, (void *)(q.remote + (uint64_t)places * bytes), 8, cudaMemcpyDefault));
        same &= sum == 3ull * count;
    }
    if (!same)
        fail("groups");
    printf("| %4u | %4u | %9u | %3u | %8.1f | %5.0f %% | %s |\n", s.qps, rows, bytes, s.sms, best,
           best / copy_engine * 100, same ? "ok" : "WRONG");
    fflush(stdout);
    cudaFreeHost(times);
}

// Both devices write to each other at once, an engine on each.
void duplex(rig::Setup s, uint32_t bytes, double copy_engine) {
    const uint32_t places = 8;
    s.slice = (size_t)bytes * places;
    s.depth = 64;
    rig::Setup back = s;
    std::swap(back.device, back.peer_device);
    const uint32_t count = std::max(16u, std::min(64u, (512u << 20) / bytes / s.qps));
    rig::Pair there(s), home(back);
    rig::Pair *pairs[2] = {&there, &home};
    for (rig::Pair *p : pairs)
        fill(*p);
    Times *times[2] = {pinned<Times>(s.qps), pinned<Times>(s.qps)};
    double worst = 0;
    for (rig::Pair *p : pairs)
        NIC(softnic_start(p->nic[0]));
    for (uint32_t run = 0; run < 2; run++) {
        for (int w = 0; w < 2; w++) {
            CUDA(cudaSetDevice(pairs[w]->setup.device));
            post_long<<<s.qps, 32, 0, pairs[w]->stream>>>(pairs[w]->device_queues, run * count, count, bytes,
                                                          places, times[w]);
            CUDA(cudaGetLastError());
        }
        worst = 1e9;
        for (int w = 0; w < 2; w++) {
            if (!pairs[w]->finish())
                exit(1);
            const Span span = span_of(times[w], s.qps);
            if (!span.fine)
                fail("a write did not complete");
            worst = std::min(worst, (double)bytes * count * s.qps / span.ns);
        }
    }
    for (rig::Pair *p : pairs)
        softnic_hold(p->nic[0]);
    bool same = true;
    for (rig::Pair *p : pairs)
        same &= filled(*p, bytes, 2ull * bytes * count * s.qps);
    CUDA(cudaSetDevice(s.device));
    printf("| %4u | %9u | %3u | %8.1f | %5.0f %% | both ways, each: %s |\n", s.qps, bytes, s.sms, worst,
           worst / copy_engine * 100, same ? "ok" : "WRONG");
    fflush(stdout);
    cudaFreeHost(times[0]);
    cudaFreeHost(times[1]);
}

} // namespace

int main(int argc, char **argv) {
    rig::load_at_once();
    const char *what = argc > 1 ? argv[1] : "all";
    auto want = [&](const char *part) { return strcmp(what, "all") == 0 || strcmp(what, part) == 0; };
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("gpu_engine_bench: skipped: no CUDA device\n");
        return 0;
    }
    rig::Setup s;
    s.peer_device = devices > 1 ? 1 : 0;
    for (int d = 0; d < devices && d < 2 && devices > 1; d++) {
        CUDA(cudaSetDevice(d));
        CUDA(cudaDeviceEnablePeerAccess(1 - d, 0));
    }
    CUDA(cudaSetDevice(s.device));
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
    if (want("places")) {
        printf(
            "\n8 B inline put and completion, us: medians of %d places, sorted, and theirs\n| QPs | bell | "
            "medians | median |\n",
            rig::PLACES);
        for (bool host : {false, true})
            for (uint32_t qps : {1, 2, 4}) {
                s.bell_on_host = host;
                s.qps = qps;
                places(s);
            }
        s.bell_on_host = false;
    }
    if (want("demand")) {
        printf("\non demand, us\n| what | least | median | most | |\n");
        s.qps = 1;
        demand(s);
    }
    if (want("ops")) {
        printf("\nothers and completion, us\n| what | p1 | p50 | p99 | result |\n");
        s.qps = 1;
        ops(s);
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
        const double ce = copy_engine_bandwidth(s.device, s.peer_device, false);
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
        if (devices > 1) {
            const double both = copy_engine_bandwidth(s.device, s.peer_device, true);
            printf("both ways at once; copy engines %.1f each\n", both);
            s.qps = 1;
            for (uint32_t bytes : {1u << 20, 16u << 20})
                duplex(s, bytes, both);
        }
    }
    if (want("rows")) { // of the sizes that expert parallelism sends
        const double ce = copy_engine_bandwidth(s.device, s.peer_device, false);
        printf("\nwrites of rows by pointer, GB/s; copy engine %.1f\n| QPs | bytes | SMs | GB/s | of copy "
               "engine | payload |\n",
               ce);
        for (uint32_t sms : {1, 8})
            for (uint32_t qps : {1, 16, 64})
                for (uint32_t bytes : {4096, 7168, 14336, 65536}) {
                    s.sms = sms;
                    s.qps = qps;
                    bandwidth(s, bytes, ce);
                }
    }
    if (want("groups")) {
        const double ce = copy_engine_bandwidth(s.device, s.peer_device, false);
        printf("\nrows by pointer and an atomic behind them, GB/s of rows; copy engine %.1f\n| QPs | rows | "
               "bytes | "
               "SMs | GB/s | of copy engine | result |\n",
               ce);
        for (uint32_t sms : {1, 4})
            for (uint32_t qps : {1, 32, 64})
                for (uint32_t rows : {1, 4, 15}) {
                    s.sms = sms;
                    s.qps = qps;
                    groups(s, rows, 14336, ce);
                }
    }
    return failures != 0;
}
