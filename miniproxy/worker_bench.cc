// What a message costs a worker, beside a loop that only reads descriptors and writes WQEs, doorbell records and doorbells: on lines
// that it has had itself, and on lines that another processor has just had, which writes the descriptors (in the
// place of a device) and reads the WQEs (in the place of a NIC). The NIC stands still while the worker posts. Then the
// software NIC is served by that other processor while the worker posts, and both wait for each other's lines.
#include "miniproxy/test_bed.h"

#include "minigda/gda_wqe.cuh"

#include <errno.h>
#include <sched.h>

#include <algorithm>
#include <atomic>

using namespace proxy;

namespace {

constexpr Handoff F = Handoff::tuned;
constexpr uint32_t N = 1024, LIVE = 8192, RING = 16384, ROUNDS = 200, WARMUP = 20, STRIDE = 64, SLOTS = 64;

// The first two processors that this process may use.
bool processors(int cpu[2]) {
    cpu_set_t set;
    int n = 0;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    for (int i = 0; i < CPU_SETSIZE && n < 2; i++)
        if (CPU_ISSET(i, &set))
            cpu[n++] = i;
    return n == 2;
}

void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (cpu >= 0 && cpu < CPU_SETSIZE)
        CPU_SET(cpu, &set);
    CHECK(sched_setaffinity(0, sizeof set, &set) == 0, "processor %d: %s", cpu, strerror(errno));
}

// Runs what it is given on another processor, and waits for it.
class Other {
  public:
    explicit Other(int cpu) : thread_([this, cpu] { serve(cpu); }) {}
    ~Other() {
        (*this)(nullptr);
        thread_.join();
    }
    void operator()(std::function<void()> work) {
        work_ = std::move(work);
        turn_.store(1, std::memory_order_release);
        while (turn_.load(std::memory_order_acquire) != 0)
            gic::pause(0);
    }

  private:
    void serve(int cpu) {
        pin(cpu);
        for (bool more = true; more; turn_.store(0, std::memory_order_release)) {
            while (turn_.load(std::memory_order_acquire) != 1)
                gic::pause(0);
            if ((more = (bool)work_))
                work_();
        }
    }
    std::function<void()> work_;
    std::atomic<int> turn_{0};
    std::thread thread_;
};

// clock64() per ns
double tick() {
    const uint64_t ns = gic::globaltimer(), c = gic::clock64();
    while (gic::globaltimer() - ns < 20000000) {
    }
    return (double)(gic::clock64() - c) / (double)(gic::globaltimer() - ns);
}

struct Figure {
    double median;
    char text[40]; // with the range from the 10th to the 90th percentile
};
Figure figure(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    Figure f{v[v.size() / 2], ""};
    snprintf(f.text, sizeof f.text, "%.1f (%.1f..%.1f)", f.median, v[v.size() / 10], v[v.size() * 9 / 10]);
    return f;
}

// 8 B puts of one device thread per ring.
void fill(const Handle<F> &h, uint32_t rings, uint32_t messages) {
    for (uint32_t r = 0; r < rings; r++) {
        Handle<F>::Agent a(h, gic::Self{r, rings, 0, 1});
        for (uint32_t i = 0; i < messages / rings; i++)
            CHECK(a.put(0, i % SLOTS * STRIDE, 8192 + i % SLOTS * STRIDE, 8) == gic::OK, "put");
    }
}

// The yardstick. Memory of its own, laid out as the worker's.
struct Bare {
    std::vector<Descriptor> rings;
    uint8_t *sq, *window;
    uint32_t *record;
    uint64_t *bell, read = 0;

    explicit Bare(uint32_t count) : rings((size_t)count * RING) {
        sq = (uint8_t *)aligned_alloc(4096, N * MLX5_BB + 4096 + 16384);
        CHECK(sq, "memory");
        memset(sq, 0, N * MLX5_BB + 4096 + 16384);
        record = (uint32_t *)(sq + N * MLX5_BB);
        bell = (uint64_t *)(sq + N * MLX5_BB + 1024);
        window = sq + N * MLX5_BB + 4096;
    }
    ~Bare() { free(sq); }
    Bare(const Bare &) = delete;

    void fill(uint32_t count) {
        for (uint32_t r = 0; r < count; r++)
            for (uint32_t i = 0; i < N / count; i++) {
                const uint64_t at = i % SLOTS * STRIDE;
                rings[(size_t)r * RING + i] = pack(Fields{Op::put, 0, at, 8192 + at, 8, 0});
            }
    }
    void look() {
        for (uint32_t i = 0; i < N * MLX5_BB / 8; i++)
            read += gic::load_relaxed((uint64_t *)sq + i);
    }
    // By turns as the worker's sweeps, a batch from each ring.
    void post(uint32_t count, uint32_t batch) {
        const gda_place to{sq, N - 1, mlx5_ctrl_word1(0x100, 0), mlx5_be32(0x1234), 0x10000};
        uint32_t next = 0;
        for (uint32_t from = 0; from < N / count; from += batch)
            for (uint32_t r = 0; r < count; r++) {
                for (uint32_t i = from; i < from + batch; i++, next++) {
                    const Descriptor d = rings[(size_t)r * RING + i];
                    uint64_t value;
                    memcpy(&value, window + (d.tail >> OFFSET_SHIFT), sizeof value);
                    gda_write_value(to, next, i + 1 == from + batch ? gda_flags(MLX5_CTRL_CQ_UPDATE) : 0,
                                    d.head >> OFFSET_SHIFT, value, sizeof value);
                }
                gic::store_release(record, mlx5_dbr_value(next));
                gic::store_release(bell, mlx5_doorbell_value(next, 0x100));
            }
    }
};

// `other`: nullptr for lines that the worker has had itself.
void held(uint32_t rings, uint32_t batch, Other *other, double per_ns) {
    Bed bed(1, Attr{rings, RING, 1, batch, 28, false, false}, SOFTNIC_VIRTUAL, N);
    const Handle<F> h = bed.handle<F>(0);
    Bare bare(rings);
    std::vector<double> loop, post, nic, retire;
    auto elsewhere = [&](std::function<void()> work) { other ? (*other)(work) : work(); };
    auto timed = [&](std::vector<double> *to, uint32_t round, auto work) {
        const uint64_t start = gic::clock64();
        work();
        const uint64_t end = gic::clock64();
        if (round >= WARMUP)
            to->push_back((double)(end - start) / per_ns / N);
    };
    for (uint32_t round = 0; round < ROUNDS + WARMUP; round++) {
        elsewhere([&] { bare.fill(rings), bare.look(); });
        timed(&loop, round, [&] { bare.post(rings, batch); });
        elsewhere([&] { fill(h, rings, N); });
        timed(&post, round, [&] {
            for (size_t taken = 0; taken < N;)
                taken += bed.host(0).step(0);
        });
        elsewhere([&] { timed(&nic, round, [&] { bed.advance(); }); });
        timed(&retire, round, [&] {
            while (bed.host(0).step(0) != 0) {
            }
        });
        CHECK(bed.host(0).drain(bed.env) == gic::OK, "%s", bed.host(0).error().c_str());
    }
    const Figure b = figure(loop), w = figure(post);
    printf("%5u %5u %-7s %18s %18s %5.2f %18s %16s\n", rings, batch, other ? "other's" : "own", b.text,
           w.text, b.median / w.median, figure(nic).text, figure(retire).text);
    fflush(stdout);
}

void live(uint32_t rings, uint32_t batch, uint32_t qps, Other &other, int cpu, double per_ns) {
    Attr attr{rings, RING, 1, batch, 28, false, false};
    attr.qps = qps;
    Bed bed(1, attr, SOFTNIC_VIRTUAL, N);
    const Handle<F> h = bed.handle<F>(0);
    std::vector<double> each;
    for (uint32_t round = 0; round < 40; round++) {
        other([&] { fill(h, rings, LIVE); });
        std::atomic<bool> ready{false}, stop{false};
        std::thread nic([&] {
            pin(cpu);
            for (ready = true; !stop.load(std::memory_order_relaxed);)
                bed.advance();
        });
        while (!ready)
            gic::pause(0);
        const uint64_t start = gic::clock64();
        for (bool done = false; !done;) {
            bed.host(0).step(0);
            done = true;
            for (uint32_t r = 0; r < rings; r++)
                done = done && h.rings.progress[r].completed == h.rings.producer[r].head;
        }
        const uint64_t end = gic::clock64();
        stop = true;
        nic.join();
        if (round >= 5)
            each.push_back((double)(end - start) / per_ns / LIVE);
    }
    printf("%5u %5u %4u %18s\n", rings, batch, qps, figure(each).text);
    fflush(stdout);
}

} // namespace

// worker_bench [CPU OTHER]: the processors to use
int main(int argc, char **argv) {
    int cpu[2] = {0, 0};
    const bool two = processors(cpu) || argc > 2;
    if (argc > 2)
        cpu[0] = atoi(argv[1]), cpu[1] = atoi(argv[2]);
    pin(cpu[0]);
    const double per_ns = tick();
    printf("ns a message by clock64, median (p10..p90) of %u rounds of %u; loop: reads and writes, nothing "
           "else;\n"
           "ratio: loop / worker; NIC: the software NIC, on a thread of this machine\n",
           ROUNDS, N);
    printf("%5s %5s %-7s %18s %18s %5s %18s %16s\n", "rings", "batch", "lines", "loop", "worker", "ratio",
           "NIC", "retire");
    for (uint32_t batch : {16u, 1u})
        for (uint32_t rings : {1u, 8u, 32u})
            held(rings, batch, nullptr, per_ns);
    if (!two) {
        printf("one processor: no lines of another's\n");
        return 0;
    }
    Other other(cpu[1]);
    for (uint32_t batch : {16u, 1u})
        for (uint32_t rings : {1u, 8u, 32u})
            held(rings, batch, &other, per_ns);
    printf("the software NIC on another processor meanwhile, until all is complete\n%5s %5s %4s %18s\n",
           "rings", "batch", "QPs", "ns");
    for (uint32_t qps : {1u, 4u})
        for (uint32_t rings : {8u, 32u})
            live(rings, 16, qps, other, cpu[1], per_ns);
    return 0;
}
