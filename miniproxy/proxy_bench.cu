// What handing a put to the CPU proxy costs a GPU thread, beside a bare loop of the same stores. Rings and progress are
// in host memory. First no worker runs, and the progress says that everything is free; then a thread of the host takes
// the descriptors, which a worker would also turn into WQEs, looking at an empty ring again at once or after a while.
// On every fourth multiprocessor; printed are medians and the span.
//
//   make cuda && build/cuda/test/proxy_bench
#include "miniproxy/proxy.cuh"

#include "minigda/gpu_bench.cuh"

#include <sched.h>
#include <time.h>

#include <atomic>
#include <thread>

using namespace gpu_bench;
using namespace proxy;

namespace {

constexpr uint32_t shift = 12, slots = 64, stride = 64;

template <Handoff F>
__global__ void hand_over(const __grid_constant__ Handle<F> h, uint32_t sm, uint64_t *ticks, int *status) {
    if (elsewhere(sm, ticks) || threadIdx.x)
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
    if (elsewhere(sm, ticks) || threadIdx.x)
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

template <Handoff F> void row(const Bench &bench, const char *name, Handle<F> h, bool posted) {
    h.rings.posted = posted;
    cudaFuncAttributes attr;
    MUST(cudaFuncGetAttributes(&attr, hand_over<F>));
    const std::vector<double> b = bench.scan(name, [&](uint32_t sm, uint64_t *t) {
        bare<F><<<2 * bench.sms, 32>>>(h.rings.slots, posted, sm, t);
    });
    const std::vector<double> f = bench.scan(name, [&](uint32_t sm, uint64_t *t) {
        MUST(cudaMemset(h.rings.producer, 0, sizeof(Producer)));
        hand_over<F><<<2 * bench.sms, 32>>>(h, sm, t, bench.status);
    });
    printf("%-16s %8.1f (%6.1f..%6.1f) %4d %7zu %8.1f %8.3f\n", name, median(f), least(f), most(f),
           attr.numRegs, attr.localSizeBytes, median(b), median(b) / median(f));
}

// Takes descriptors in order, as a worker does, and says every 16 that their slots are free.
class Reader {
  public:
    Reader(const Rings &rings, uint64_t rest_ns)
        : rings_(rings), rest_ns_(rest_ns), thread_([this] { run(); }) {}
    ~Reader() {
        quit_ = true;
        thread_.join();
    }
    uint64_t taken() const { return taken_.load(std::memory_order_acquire); }

  private:
    static uint64_t now() {
        struct timespec ts;
        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
    }
    bool take(uint64_t at) const {
        const Descriptor *d = rings_.slots + (at & rings_.mask);
        const uint64_t phase = phase_of(at, rings_.shift);
        return (__atomic_load_n(&d->head, __ATOMIC_ACQUIRE) & 1) == phase &&
               (__atomic_load_n(&d->tail, __ATOMIC_ACQUIRE) & 1) == phase;
    }
    void run() {
        uint32_t empty = 0;
        while (!quit_) {
            const uint64_t before = taken_.load(std::memory_order_relaxed);
            uint64_t at = before;
            while (at - before < 16 && take(at))
                at++;
            if (at != before) {
                __atomic_store_n(&rings_.progress->consumed, at, __ATOMIC_RELEASE);
                taken_.store(at, std::memory_order_release);
                empty = 0;
                continue;
            }
            if (++empty % 65536 == 0)
                sched_yield();
            for (const uint64_t until = rest_ns_ ? now() + rest_ns_ : 0; until && now() < until;)
                __builtin_ia32_pause();
        }
    }
    Rings rings_;
    uint64_t rest_ns_;
    std::atomic<bool> quit_{false};
    std::atomic<uint64_t> taken_{0};
    std::thread thread_;
};

// The same with a reader; the ring goes on from launch to launch.
template <Handoff F>
void row_read(const Bench &bench, const char *name, Handle<F> h, bool posted, uint64_t rest_ns) {
    h.rings.posted = posted;
    Reader reader(h.rings, rest_ns);
    uint64_t launched = 0;
    const std::vector<double> f = bench.scan(name, [&](uint32_t sm, uint64_t *t) {
        hand_over<F><<<2 * bench.sms, 32>>>(h, sm, t, bench.status);
        MUST(cudaDeviceSynchronize());
        launched += warm + posts;
        for (uint64_t tries = 0; reader.taken() < launched; sched_yield())
            if (++tries == 10000000) {
                fprintf(stderr, "%s: %llu of %llu descriptors arrived\n", name,
                        (unsigned long long)reader.taken(), (unsigned long long)launched);
                exit(1);
            }
    });
    printf("%-16s %8.1f (%6.1f..%6.1f) read, an empty ring again after %llu ns\n", name, median(f), least(f),
           most(f), (unsigned long long)rest_ns);
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
    const Bench bench("8 B puts handed to a ring in host memory; bare: the same stores alone");
    printf("%-16s %25s %4s %7s %8s %8s\n", "", "ns per post", "regs", "local B", "bare ns", "ratio");
    row(bench, "tuned, posted", handle<Handoff::tuned>(), true);
    row(bench, "tuned, ordered", handle<Handoff::tuned>(), false);
    row(bench, "baseline", handle<Handoff::baseline>(), false);
    for (uint64_t rest_ns : {0, 50, 200, 1000})
        row_read(bench, "tuned, posted", handle<Handoff::tuned>(), true, rest_ns);
    for (uint64_t rest_ns : {0, 200})
        row_read(bench, "tuned, ordered", handle<Handoff::tuned>(), false, rest_ns);
    row_read(bench, "baseline", handle<Handoff::baseline>(), false, 0);
    return 0;
}
