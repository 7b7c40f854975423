// Replay by the wall clock, as ratios within one run: what replaying itself takes, and whether costs planted into a
// floor that poses as a library come out on their side (gda_replay_test.cc has the same in virtual time). One thread,
// 8-byte inline puts; the NIC is served between laps by this same thread, so that only posting is timed. Lanes
// alternate lap by lap; each figure is that of the quietest tenth of its laps: other work can only add.
#include "minigda/gda_replay.h"
#include "minigda/gda_test.h"

#include <algorithm>

using namespace gda_test;

namespace {

constexpr uint32_t depth = 512, posts = 448, laps = 150; // a lap fits the queue: no slot is waited for
constexpr double delay_ns = 25;

gda_attr attr(uint32_t batch, gda_order order, gda_sharing sharing) {
    gda_attr a = defaults();
    a.order = order;
    a.sharing = sharing;
    a.batch = batch;
    a.depth = depth;
    return a;
}

double ticks_per_ns() {
    const uint64_t c0 = gic::clock64(), t0 = gic::globaltimer();
    while (gic::globaltimer() - t0 < 20000000)
        ;
    return (double)(gic::clock64() - c0) / (double)(gic::globaltimer() - t0);
}
uint64_t delay_ticks;
inline void delay() {
    for (const uint64_t from = gic::clock64(); gic::clock64() - from < delay_ticks;)
        ;
}

template <class Agent> __attribute__((noinline)) int post(Agent &agent, bool delayed) {
    for (uint32_t i = 0; i < posts; i++) {
        if (delayed)
            delay();
        if (int s = agent.put(0, 4096 + 8 * (i & 255), 8 * (i & 255), 8))
            return s;
    }
    return agent.ring();
}

struct Lane {
    virtual ~Lane() {}
    virtual void lap(bool timed) = 0;
    std::vector<double> ns;
    double quiet() {
        std::sort(ns.begin(), ns.end());
        return ns[ns.size() / 10];
    }
};

template <class H> void one_lap(Rig &rig, typename H::Agent &agent, bool delayed, Lane *lane, bool timed) {
    const uint64_t from = gic::globaltimer();
    MUST(post(agent, delayed));
    const uint64_t to = gic::globaltimer();
    rig.step();
    MUST(agent.flush(0));
    if (timed)
        lane->ns.push_back((double)(to - from) / posts);
}

template <gda_order O, gda_sharing S> struct FloorLane : Lane {
    using H = gda_handle<O, S>;
    Rig rig;
    bool delayed;
    H h;
    std::unique_ptr<typename H::Agent> agent;

    FloorLane(const gda_attr &a, bool delays, std::vector<gic_kv> nic = {})
        : rig(1, a, SOFTNIC_VIRTUAL, 1 << 16, nic), delayed(delays), h(begin()) {
        agent = std::make_unique<typename H::Agent>(h, gic::Self{0, 1, 0, 1});
    }
    H begin() {
        MUST(gda_begin(rig.g[0], 1));
        return gda_handle_of<O, S>(rig.g[0]);
    }
    void lap(bool timed) override { one_lap<H>(rig, *agent, delayed, this, timed); }
};

// Replays what `laps` laps of a floor lane asked of the NIC.
template <gda_order O> struct ReplayLane : Lane {
    using H = gda_replay_handle<O>;
    Rig rig;
    std::unique_ptr<gda_replay> replay;
    H h{};
    std::unique_ptr<typename H::Agent> agent;

    static gda_attr replay_attr() {
        gda_attr a = attr(1, O, gda_sharing::handoff);
        a.inline_max = 0;
        return a;
    }
    ReplayLane(const gda_trace &trace, uint32_t batch, uint64_t doorbells)
        : rig(1, replay_attr(), SOFTNIC_VIRTUAL, 1 << 16) {
        gda_replay_options options;
        options.batch = batch;
        options.doorbells = doorbells;
        replay = std::make_unique<gda_replay>(rig.g[0], trace, options, rig.g[0]->fabric->comm);
        MUST(replay->learn(1, &h.plan));
        start();
        for (uint32_t i = 0; i < laps; i++)
            lap(false);
        agent.reset();
        MUST(gda_end(rig.g[0], 0));
        MUST(replay->build());
        MUST(replay->replay(1, &h.plan));
        start();
    }
    void start() {
        MUST(gda_begin(rig.g[0], 1));
        gda_fill(rig.g[0], &h);
        agent = std::make_unique<typename H::Agent>(h, gic::Self{0, 1, 0, 1});
    }
    void lap(bool timed) override { one_lap<H>(rig, *agent, false, this, timed); }
};

// R: the order of the replay, which no trace shows.
template <gda_order R, gda_order O, gda_sharing S>
std::unique_ptr<Lane> replay_of(const gda_attr &a, bool delays) {
    gda_trace trace;
    uint64_t doorbells;
    std::string saved; // when the fabric is closed
    const std::string path = "/tmp/gic-gdatest-" + std::to_string(getpid()) + ".trace";
    {
        FloorLane<O, S> traced(a, delays, {{"trace", "on"}});
        struct softnic *nic = traced.rig.g[0]->fabric->nic;
        saved = traced.rig.g[0]->fabric->trace;
        for (uint32_t i = 0; i < laps; i++)
            traced.lap(false);
        traced.agent.reset(); // writes its counts back
        doorbells = traced.rig.count(0, "doorbells");
        if (softnic_trace_save(nic, path.c_str())) {
            fprintf(stderr, "%s\n", softnic_error());
            exit(1);
        }
        softnic_trace_clear(nic);
    }
    MUST(gda_trace_read(path.c_str(), &trace));
    unlink(path.c_str());
    unlink(saved.c_str());
    return std::make_unique<ReplayLane<R>>(trace, a.batch, doorbells);
}

int missed;
void ratio(const char *what, double value, double low, double high) {
    const bool ok = value >= low && value <= high;
    printf("ratio %-62s %6.2f  target %.2f..%.2f  %s\n", what, value, low, high, ok ? "ok" : "MISSED");
    missed += !ok;
}

} // namespace

int main() {
    char dir[] = "/tmp/gic-gdatest-XXXXXX";
    if (!mkdtemp(dir))
        return 1;
    setenv("GIC_TRACE_DIR", dir, 1);
    delay_ticks = (uint64_t)(delay_ns * ticks_per_ns());
    constexpr gda_order cheap = gda_order::gpu_fence, dear = gda_order::threadfence;
    constexpr gda_sharing own = gda_sharing::exclusive, lock = gda_sharing::lock;
    const gda_attr plain = attr(1, cheap, own), fenced = attr(1, dear, own), batched = attr(16, dear, own),
                   locked = attr(1, cheap, lock);

    FloorLane<cheap, own> floor(plain, false), delayed(plain, true);
    FloorLane<dear, own> rings(fenced, false), rings_less(batched, false);
    FloorLane<gda_order::runtime, lock> with_lock(locked, false);
    const auto floor_again = replay_of<cheap, cheap, own>(plain, false),
               delayed_again = replay_of<cheap, cheap, own>(plain, true),
               rings_again = replay_of<dear, dear, own>(fenced, false),
               rings_less_again = replay_of<dear, dear, own>(batched, false),
               lock_again = replay_of<cheap, gda_order::runtime, lock>(locked, false);
    std::vector<Lane *> lanes = {&floor,
                                 &delayed,
                                 &rings,
                                 &rings_less,
                                 &with_lock,
                                 floor_again.get(),
                                 delayed_again.get(),
                                 rings_again.get(),
                                 rings_less_again.get(),
                                 lock_again.get()};
    std::vector<double> spin;
    for (uint32_t i = 0; i < laps; i++) {
        for (Lane *lane : lanes)
            lane->lap(true);
        const uint64_t from = gic::globaltimer();
        for (uint32_t k = 0; k < posts; k++)
            delay();
        spin.push_back((double)(gic::globaltimer() - from) / posts);
    }
    std::sort(spin.begin(), spin.end());
    const double planted = spin[spin.size() / 10];
    const double f = floor.quiet(), d = delayed.quiet(), r = rings.quiet(), rl = rings_less.quiet(),
                 l = with_lock.quiet(), fa = floor_again->quiet(), da = delayed_again->quiet(),
                 ra = rings_again->quiet(), rla = rings_less_again->quiet(), la = lock_again->quiet();
    printf("ns per 8 B inline put, and of its replay: floor %.2f, %.2f; delayed %.2f, %.2f; threadfence "
           "batch 1 %.2f, "
           "%.2f, batch 16 %.2f, %.2f; lock %.2f, %.2f\n",
           f, fa, d, da, r, ra, rl, rla, l, la);
    ratio("a floor's own trace, replayed, over the floor (gpu-fence)", fa / f, 0.9, 2.5);
    ratio("the same where a doorbell costs (threadfence)", ra / r, 0.9, 1.5);
    // library - replay, and replay - floor, what replaying itself takes taken off by the floor's own replay.
    ratio("a delay per post, found as code, over what it is", (d - f - (da - fa)) / planted, 0.9, 1.1);
    ratio("a lock, found as code, over what it is", (l - f - (la - fa)) / (l - f), 0.9, 1.1);
    // Where doorbells are dear they hide a part of what replaying takes: the truth lies between taking it off and not.
    ratio("15 more doorbells of 16, found as choice at least, over it", (ra - rla) / (r - rl), 0.6, 1.05);
    ratio("15 more doorbells of 16, found as choice at most, over it", (ra - rl) / (r - rl), 0.95, 1.9);
    CHECK(rmdir(dir) == 0, "%s is not empty", dir);
    return missed != 0 || failures() != 0;
}
