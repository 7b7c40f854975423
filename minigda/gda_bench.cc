// What a post costs, as ratios within one run. One thread, 8-byte inline puts into a queue that fits the L1 cache;
// the NIC is served between laps by this same thread (virtual time), so that only posting is timed and the queue
// stays in this core's cache. Rungs alternate lap by lap; each figure is that of the
// quietest tenth of its laps: other work on the machine can only add.
#include "minigda/gda_test.h"

#include <algorithm>

using namespace gda_test;

namespace {

constexpr uint32_t depth = 512, posts = 448, laps = 2000; // a lap fits the queue: no slot is waited for

template <gda_order O> struct Lane {
    Rig rig;
    gda_handle<O, gda_sharing::exclusive> h;
    std::vector<double> ns;

    static gda_attr attr(uint32_t batch) {
        gda_attr a = defaults();
        a.order = O;
        a.batch = batch;
        a.depth = depth;
        return a;
    }
    explicit Lane(uint32_t batch) : rig(1, attr(batch), SOFTNIC_VIRTUAL, 1 << 16) {
        MUST(gda_begin(rig.g[0], 1));
        h = gda_handle_of<O, gda_sharing::exclusive>(rig.g[0]);
    }
    __attribute__((noinline)) int post(gda_agent<O, gda_sharing::exclusive> &agent) {
        for (uint32_t i = 0; i < posts; i++)
            if (int s = agent.put(0, 4096 + 8 * (i & 255), 8 * (i & 255), 8))
                return s;
        return gic::OK;
    }
    void lap() {
        gda_agent<O, gda_sharing::exclusive> agent(h, gic::Self{0, 1, 0, 1});
        const uint64_t from = gic::globaltimer();
        MUST(post(agent));
        const uint64_t to = gic::globaltimer();
        MUST(agent.ring());
        rig.step();
        MUST(agent.flush(0));
        ns.push_back((double)(to - from) / posts);
    }
    double quiet() {
        std::sort(ns.begin(), ns.end());
        return ns[ns.size() / 10];
    }
};

// The same bytes to the same kinds of places, from constants: no index, no checks, no order.
struct Bare {
    alignas(64) gda_segment ring[depth * 4] = {};
    alignas(64) uint32_t dbr = 0;
    alignas(64) uint64_t bell = 0;
    std::vector<double> ns;

    __attribute__((noinline)) void post() {
        for (uint32_t i = 0; i < posts; i++) {
            gda_segment *seg = ring + (size_t)(i & (depth - 1)) * 4;
            seg[0] = gda_segment{i, 8};
            seg[1] = gda_segment{i * 8, 77};
            seg[2] = gda_segment{8, i};
            gic::store_relaxed(&dbr, i);
            gic::store_relaxed(&bell, (uint64_t)i);
        }
    }
    void lap() {
        const uint64_t from = gic::globaltimer();
        post();
        ns.push_back((double)(gic::globaltimer() - from) / posts);
    }
    double quiet() {
        std::sort(ns.begin(), ns.end());
        return ns[ns.size() / 10];
    }
};

int missed;
void ratio(const char *what, double value, double target) {
    const bool ok = value >= target;
    printf("ratio %-58s %6.2f  target >= %.2f  %s\n", what, value, target, ok ? "ok" : "MISSED");
    missed += !ok;
}

} // namespace

int main() {
    Lane<gda_order::threadfence> sc1(1), sc16(16);
    Lane<gda_order::gpu_release> rel1(1), rel16(16);
    Lane<gda_order::gpu_fence> fence1(1);
    Bare *bare = new Bare;
    for (uint32_t i = 0; i < laps; i++) {
        sc1.lap();
        sc16.lap();
        rel1.lap();
        rel16.lap();
        fence1.lap();
        bare->lap();
    }
    const double b = bare->quiet(), s1 = sc1.quiet(), s16 = sc16.quiet(), r1 = rel1.quiet(),
                 r16 = rel16.quiet(), f1 = fence1.quiet();
    printf("ns per 8 B inline put, one thread: bare stores %.2f; gpu-fence batch 1 %.2f; gpu-release batch 1 "
           "%.2f, "
           "batch 16 %.2f; threadfence batch 1 %.2f, batch 16 %.2f\n",
           b, f1, r1, r16, s1, s16);
    printf("ratio %-58s %6.2f  (reported: release is free on x86)\n", "gpu-release, batch 16 over batch 1",
           r1 / r16);
    ratio("threadfence, batch 16 over batch 1 (msg/s)", s1 / s16, 2.5);
    ratio("bare stores over a gpu-fence post, batch 1 (ns)", b / f1, 0.40);
    delete bare;
    return missed != 0;
}
