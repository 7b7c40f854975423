// Replay in virtual time: a floor's own trace, replayed, asks the same of the NIC and takes the same time to the
// nanosecond; and a cost planted into a floor that poses as a library is found on its side, code or choices.

// A doorbell costs what the test says: `order=sys-release`, which nothing else here uses.
#include "minigda/gda_queue.cuh"
template <gda_order O>
GIC_DEVICE void gda_announce(uint32_t *dbr, uint64_t *bell, uint32_t next, uint32_t qpn_word);
template <>
void gda_announce<gda_order::sys_release>(uint32_t *dbr, uint64_t *bell, uint32_t next, uint32_t qpn_word);

#include "minigda/gda_replay.h"
#include "minigda/gda_virtual.h"

#include <map>

using namespace gda_test;

namespace {

uint64_t bell_ns; // what a doorbell takes

constexpr uint64_t window_bytes = 1 << 20;
constexpr gda_order rung = gda_order::sys_release;

// What a kernel measured: times in ns, by rank and agent.
using Times = std::vector<std::vector<std::vector<uint64_t>>>;

struct Trial {
    std::vector<gda_trace> traces;
    std::vector<std::vector<uint64_t>>
        counts; // by rank: wqes, writes, inline, atomics, reads, nops, cqes, doorbells
    Times times;
    uint64_t elapsed = 0;
};

std::string &folder() {
    static std::string dir;
    return dir;
}

std::vector<uint64_t> count(gda *g) {
    gic::Counters c;
    gda_counters(g, &c);
    const gic_counter *list;
    uint32_t n;
    c.publish(&list, &n);
    std::vector<uint64_t> v;
    for (const char *name : {"wqes", "wqe_write", "wqe_write_inline", "wqe_atomic", "wqe_read", "wqe_nop",
                             "cqes", "wqe_bytes", "payload_bytes", "doorbells", "doorbells_seen"})
        for (uint32_t i = 0; i < n; i++)
            if (strcmp(list[i].name, name) == 0)
                v.push_back(list[i].value);
    return v;
}

// One launch of `kernel(handle, self, times)` on every rank, in virtual time, and what it asked of the NICs.
template <class H, class K>
Trial launch(Rig &rig, const std::vector<H> &handles, const std::vector<uint32_t> &agents, K kernel) {
    Trial t;
    std::vector<struct softnic *> nics;
    std::vector<std::vector<uint64_t>> before;
    for (gda *g : rig.g) {
        nics.push_back(g->fabric->nic);
        softnic_trace_clear(g->fabric->nic);
        before.push_back(count(g));
    }
    Virtual clock(nics);
    std::vector<std::function<void()>> threads;
    t.times.resize(rig.g.size());
    std::vector<int> status(rig.g.size());
    for (size_t r = 0; r < rig.g.size(); r++) {
        t.times[r].resize(agents[r]);
        for (uint32_t a = 0; a < agents[r]; a++)
            threads.push_back([&, r, a] {
                const gic::Self self{a, agents[r], 0, 1};
                int rc = kernel(handles[r], self, clock, t.times[r][a]);
                if (rc == gic::OK) {
                    typename H::Agent agent(handles[r], self);
                    rc = agent.quiet();
                }
                if (rc)
                    status[r] = rc;
            });
    }
    const uint64_t from = clock.now();
    clock.run(std::move(threads));
    t.elapsed = clock.now() - from;
    for (size_t r = 0; r < rig.g.size(); r++) {
        CHECK(status[r] == 0, "rank %zu: %d", r, status[r]);
        MUST(gda_end(rig.g[r], status[r]));
        std::vector<uint64_t> after = count(rig.g[r]);
        for (size_t i = 0; i < after.size(); i++)
            after[i] -= before[r][i];
        t.counts.push_back(after);
        const std::string path = folder() + "/trace";
        if (softnic_trace_save(rig.g[r]->fabric->nic, path.c_str())) {
            CHECK(false, "%s", softnic_error());
            continue;
        }
        t.traces.emplace_back();
        MUST(gda_trace_read(path.c_str(), &t.traces.back()));
        unlink(path.c_str());
    }
    return t;
}

const std::vector<gic_kv> nic_config(const char *profile) { return {{"trace", "on"}, {"profile", profile}}; }

// A floor with `attr`; Handle may be a floor that poses as a library.
template <gda_order O, gda_sharing S, template <gda_order, gda_sharing> class Handle, class K>
Trial measure(uint32_t ranks, const gda_attr &attr, const std::vector<uint32_t> &agents, K kernel,
              const char *profile = "cx7-200") {
    Rig rig(ranks, attr, SOFTNIC_VIRTUAL, window_bytes, nic_config(profile));
    std::vector<Handle<O, S>> handles(ranks);
    for (uint32_t r = 0; r < ranks; r++) {
        MUST(gda_begin(rig.g[r], agents[r]));
        gda_fill(rig.g[r], &handles[r]);
    }
    return launch(rig, handles, agents, kernel);
}

struct Replayed {
    Trial trial;
    std::vector<gda_scope> scope;
    int status = 0;
    std::string error;
};

template <class K>
Replayed replay(const std::vector<gda_trace> &traces, const std::vector<uint32_t> &agents, K kernel,
                gda_replay_options options = {}, const char *profile = "cx7-200") {
    using H = gda_replay_handle<rung>;
    const uint32_t ranks = (uint32_t)traces.size();
    gda_attr a = defaults();
    a.order = rung;
    a.sharing = gda_sharing::handoff;
    a.inline_max = 0;
    a.qps = 1;
    for (const gda_trace &t : traces) {
        uint32_t qps, depth;
        MUST(gda_replay_needs(t, &qps, &depth));
        a.qps = std::max(a.qps, qps);
        a.depth = std::max(a.depth, depth);
    }
    Rig rig(ranks, a, SOFTNIC_VIRTUAL, window_bytes, nic_config(profile));
    std::vector<std::unique_ptr<gda_replay>> replays;
    std::vector<std::vector<uint8_t>> windows;
    std::vector<H> handles(ranks);
    for (uint32_t r = 0; r < ranks; r++) {
        replays.push_back(std::make_unique<gda_replay>(rig.g[r], traces[r], options, rig.g[r]->fabric->comm));
        windows.emplace_back(rig.window(r), rig.window(r) + window_bytes);
        MUST(replays[r]->learn(agents[r], &handles[r].plan));
        MUST(gda_begin(rig.g[r], agents[r]));
        gda_fill(rig.g[r], &handles[r]);
    }
    launch(rig, handles, agents, kernel);
    Replayed out;
    std::vector<int> status(ranks);
    std::vector<std::string> said(ranks);
    on_all(ranks, [&](uint32_t r) {
        status[r] = replays[r]->build();
        said[r] = gic::error_text();
    });
    for (uint32_t r = 0; r < ranks; r++)
        if (status[r]) {
            if (out.error.empty() || said[r].find("cannot replay its trace") == std::string::npos)
                out.error = said[r];
            out.status = status[r];
        }
    if (out.status)
        return out;
    for (uint32_t r = 0; r < ranks; r++) {
        memcpy(rig.window(r), windows[r].data(), window_bytes);
        MUST(replays[r]->replay(agents[r], &handles[r].plan));
        MUST(gda_begin(rig.g[r], agents[r]));
        gda_fill(rig.g[r], &handles[r]);
        handles[r].choices.scope = replays[r]->scope();
        out.scope.push_back(replays[r]->scope());
    }
    out.trial = launch(rig, handles, agents, kernel);
    for (auto &r : replays)
        r->done();
    return out;
}

// What was asked of the NIC, as text: per QP in use the WQEs with their places, flags and batches.
std::string asked(const gda_trace &t) {
    const auto records = gda_trace_last_run(t);
    std::map<uint32_t, uint64_t> bases; // by peer: no two runs have their windows at the same place
    for (const gda_trace_qp &q : t.qps)
        for (const auto &r : records)
            if (r.kind == SOFTNIC_TRACE_WQE && r.raddr && r.qpn == q.qpn)
                bases[q.peer] = bases.count(q.peer) ? std::min(bases[q.peer], r.raddr) : r.raddr;
    std::string out;
    for (const gda_trace_qp &q : t.qps) {
        std::string line;
        for (const auto &r : records) {
            if (r.qpn != q.qpn)
                continue;
            char text[96] = "";
            if (r.kind == SOFTNIC_TRACE_WQE)
                snprintf(text, sizeof text, " %02x/%u/%u/%02x/%u@%llx", r.opcode, r.bytes, r.ds, r.fm_ce_se,
                         r.flags, r.raddr ? (unsigned long long)(r.raddr - bases[q.peer]) : 0ull);
            else if (r.kind == SOFTNIC_TRACE_DOORBELL)
                snprintf(text, sizeof text, " |");
            line += text;
        }
        if (!line.empty())
            out += "to " + std::to_string(q.peer) + ":" + line + "\n";
    }
    return out;
}

void same(const Trial &a, const Trial &b, const std::string &what) {
    CHECK(a.elapsed == b.elapsed, "%s: %llu ns, replayed %llu ns", what.c_str(),
          (unsigned long long)a.elapsed, (unsigned long long)b.elapsed);
    CHECK(a.times == b.times, "%s: the kernel's own times differ", what.c_str());
    CHECK(a.counts == b.counts, "%s: counts differ", what.c_str());
    for (size_t r = 0; r < a.counts.size() && a.counts != b.counts; r++)
        for (size_t i = 0; i < a.counts[r].size(); i++)
            fprintf(stderr, "  rank %zu counter %zu: %llu, replayed %llu\n", r, i,
                    (unsigned long long)a.counts[r][i], (unsigned long long)b.counts[r][i]);
    for (size_t r = 0; r < a.traces.size(); r++)
        CHECK(asked(a.traces[r]) == asked(b.traces[r]), "%s: rank %zu was asked\n%s\nreplayed\n%s",
              what.c_str(), r, asked(a.traces[r]).substr(0, 600).c_str(),
              asked(b.traces[r]).substr(0, 600).c_str());
}

// --- kernels -----------------------------------------------------------------------------------------------

#define TRY(call)                                                                                            \
    do {                                                                                                     \
        if (int s_ = (call))                                                                                 \
            return s_;                                                                                       \
    } while (0)

// Rank 0: puts and flushes of `bytes`, `burst` puts at a time, each agent to slots of its own.
auto puts(uint32_t bytes, uint32_t burst, uint32_t rounds) {
    return [=](const auto &h, gic::Self self, Virtual &clock, std::vector<uint64_t> &times) -> int {
        using H = std::decay_t<decltype(h)>;
        if (h.rank != 0)
            return gic::OK;
        typename H::Agent agent(h, self);
        const uint64_t area = 4096 + 65536ull * self.agent, stride = (bytes + 63) / 64 * 64;
        for (uint32_t i = 0; i < rounds; i++) {
            const uint64_t from = clock.now();
            for (uint32_t k = 0; k < burst; k++) {
                const uint64_t at = area + (uint64_t)(k % 8) * stride;
                TRY(agent.put(1, at, at, bytes));
            }
            TRY(agent.flush(1));
            times.push_back(clock.now() - from);
        }
        return gic::OK;
    };
}

// Round trips between ranks 0 and 1 with a payload, and everything else that the contract has, on the way.
auto echo(uint32_t rounds) {
    return [=](const auto &h, gic::Self self, Virtual &clock, std::vector<uint64_t> &times) -> int {
        using H = std::decay_t<decltype(h)>;
        typename H::Agent agent(h, self);
        const uint32_t peer = h.rank ^ 1;
        const uint64_t words = 64ull * (self.agent + 1), data = 8192 + 4096ull * self.agent;
        uint64_t old = 0;
        for (uint32_t i = 1; i <= rounds; i++) {
            const uint64_t from = clock.now();
            if (h.rank == 0) {
                TRY(agent.put_signal(peer, data, data, 100, words, 1));
                TRY(agent.ring());
                TRY(agent.wait(words, i));
            } else {
                TRY(agent.wait(words, i));
                TRY(agent.put(peer, data, data, 24));
                TRY(agent.signal(peer, words, 1));
                TRY(agent.ring());
            }
            TRY(agent.notify(peer, data + 1024, data + 1024, 8, words + 8, i));
            TRY(agent.ring());
            TRY(agent.wait(words + 8, i));
            TRY(agent.notify(peer, data + 2048, data, 200, words + 16, i));
            TRY(agent.ring());
            TRY(agent.wait(words + 16, i));
            if (i % 4 == 0) {
                TRY(agent.get(peer, data + 3072, data, 64));
                TRY(agent.fence(peer));
                TRY(agent.put_value(peer, words + 24, i, 4));
                TRY(agent.flush(peer));
                TRY(agent.fetch_add(peer, words + 32, 1, &old));
                CHECK(old == i / 4 - 1, "old value %llu in round %u", (unsigned long long)old, i);
            }
            times.push_back(clock.now() - from);
        }
        TRY(agent.quiet());
        return gic::OK;
    };
}

// Every rank puts a part to every other one and waits for theirs.
auto exchange(uint32_t rounds) {
    return [=](const auto &h, gic::Self self, Virtual &clock, std::vector<uint64_t> &times) -> int {
        using H = std::decay_t<decltype(h)>;
        typename H::Agent agent(h, self);
        for (uint32_t i = 1; i <= rounds; i++) {
            const uint64_t from = clock.now();
            for (uint32_t k = 1 + self.agent; k < h.nranks; k += self.agents) {
                const uint32_t peer = (h.rank + k) % h.nranks;
                TRY(agent.put_signal(peer, 65536 * (1 + h.rank), 65536 * (1 + h.nranks), 1000 * (1 + peer),
                                     8 * h.rank, 1));
            }
            TRY(agent.ring());
            for (uint32_t k = 1 + self.agent; k < h.nranks; k += self.agents)
                TRY(agent.wait(8 * ((h.rank + k) % h.nranks), i));
            TRY(agent.quiet());
            times.push_back(clock.now() - from);
        }
        return gic::OK;
    };
}

// Agent 0 of rank 0 puts little and flushes often; agent 1 keeps the link busy meanwhile.
auto uneven(uint32_t rounds) {
    return [=](const auto &h, gic::Self self, Virtual &clock, std::vector<uint64_t> &times) -> int {
        using H = std::decay_t<decltype(h)>;
        if (h.rank != 0)
            return gic::OK;
        typename H::Agent agent(h, self);
        const uint32_t bytes = self.agent ? 60000 : 8;
        for (uint32_t i = 0; i < (self.agent ? rounds / 2 : rounds); i++) {
            const uint64_t at = 65536ull * (1 + self.agent), from = clock.now();
            TRY(agent.put(1, at, at, bytes));
            TRY(agent.flush(1));
            times.push_back(clock.now() - from);
        }
        return gic::OK;
    };
}

// --- a floor's own trace -----------------------------------------------------------------------------------

template <gda_order O, gda_sharing S> using Floor = gda_handle<O, S>;

template <gda_sharing S, class K>
void own_trace(const std::string &what, uint32_t ranks, gda_attr a, const std::vector<uint32_t> &agents,
               K kernel, int scope = -1) {
    constexpr gda_order O = S == gda_sharing::exclusive ? rung : gda_order::runtime;
    a.order = rung;
    a.sharing = S;
    const Trial floor = measure<O, S, Floor>(ranks, a, agents, kernel);
    uint64_t wqes = 0, doorbells = 0;
    for (const auto &c : floor.counts) {
        wqes += c[0];
        doorbells += c[9];
    }
    CHECK(wqes > 20 && floor.elapsed > 3300, "%s: %llu WQEs in %llu ns", what.c_str(),
          (unsigned long long)wqes, (unsigned long long)floor.elapsed);
    gda_replay_options options;
    options.doorbells = doorbells;
    options.scope = scope;
    options.batch = a.batch;
    const Replayed again = replay(floor.traces, agents, kernel, options);
    CHECK(again.status == 0, "%s: %s", what.c_str(), again.error.c_str());
    if (again.status == 0)
        same(floor, again.trial, what);
}

void check_own_traces() {
    for (uint64_t bell : {0, 40}) {
        bell_ns = bell;
        for (uint32_t batch : {1u, 4u})
            for (uint32_t every : {1u, 3u})
                for (uint32_t inline_max : {0u, 28u, 300u}) {
                    gda_attr a = defaults();
                    a.batch = batch;
                    a.signal_every = every;
                    a.inline_max = inline_max;
                    a.depth = 128;
                    const std::string how = "batch " + std::to_string(batch) + ", signal_every " +
                                            std::to_string(every) + ", inline " + std::to_string(inline_max) +
                                            ", doorbell " + std::to_string(bell) + " ns";
                    own_trace<gda_sharing::exclusive>("puts, " + how, 2, a, {1, 1}, puts(100, 5, 20));
                    own_trace<gda_sharing::exclusive>("echo, " + how, 2, a, {1, 1}, echo(12));
                    own_trace<gda_sharing::exclusive>("exchange, " + how, 4, a, {1, 1, 1, 1}, exchange(4));
                }
        gda_attr a = defaults();
        a.depth = 64; // slots are reused within a burst: 200 puts
        own_trace<gda_sharing::exclusive>("full queue", 2, a, {1, 1}, puts(8, 200, 3));
        a.depth = 256;
        for (uint32_t qps : {2u, 3u}) {
            a.qps = qps;
            for (gda_scope scope : {gda_scope::qp, gda_scope::peer, gda_scope::all}) {
                a.scope = scope;
                own_trace<gda_sharing::exclusive>("two agents, scope " + std::to_string((int)scope), 2, a,
                                                  {2, 2}, echo(8), (int)scope); // too few flushes to tell by
                own_trace<gda_sharing::exclusive>("uneven, scope " + std::to_string((int)scope), 2, a, {2, 1},
                                                  uneven(40));
            }
        }
        a.scope = gda_scope::qp;
        a.qps = 1;
        own_trace<gda_sharing::handoff>("handoff", 2, a, {3, 3}, echo(8));
        own_trace<gda_sharing::lock>("lock", 2, a, {3, 3}, puts(8, 7, 10));
    }
}

// --- planted costs -----------------------------------------------------------------------------------------

uint64_t post_ns;          // what the library's own code takes before each post
bool ring_each;            // it rings once more, as if each put were a batch of its own, by a NOP
bool one_lock, lock_taken; // one lock for all agents, around each post

// A floor that poses as a library.
template <gda_order O, gda_sharing S> class library_agent : public gda_agent<O, S> {
    using base = gda_agent<O, S>;

  public:
    using base::base;
    int put(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes) {
        while (one_lock && lock_taken)
            sched_yield();
        lock_taken = one_lock;
        Virtual::take(post_ns);
        lock_taken = false;
        TRY(base::put(peer, dst, src, bytes));
        return ring_each ? base::ring() : (int)gic::OK;
    }
};
template <gda_order O, gda_sharing S> struct Library : gda_handle<O, S> {
    using Agent = library_agent<O, S>;
};

struct Split {
    uint64_t library, replay, floor;
    int64_t code() const { return (int64_t)(library - replay); }
    int64_t choices() const { return (int64_t)(replay - floor); }
};

template <class K>
Split split(const gda_attr &library, const gda_attr &floor, const std::vector<uint32_t> &agents, K kernel) {
    constexpr gda_sharing S = gda_sharing::exclusive;
    const Trial lib = measure<rung, S, Library>(2, library, agents, kernel);
    post_ns = 0;
    ring_each = one_lock = false;
    const Trial plain = measure<rung, S, Floor>(2, floor, agents, kernel);
    gda_replay_options options;
    options.doorbells = 0;
    for (const auto &c : lib.counts)
        options.doorbells += c[9];
    const Replayed again = replay(lib.traces, agents, kernel, options);
    CHECK(again.status == 0, "%s", again.error.c_str());
    return {lib.elapsed, again.trial.elapsed, plain.elapsed};
}

void check_split(const char *what, const Split &s, int64_t code, int64_t choices) {
    auto near = [](int64_t got, int64_t want) {
        const int64_t off = got > want ? got - want : want - got;
        return off * 10 <= (want > 0 ? want : -want);
    };
    printf("%-34s library %llu, replay %llu, floor %llu ns: code %lld (planted %lld), choices %lld (%lld)\n",
           what, (unsigned long long)s.library, (unsigned long long)s.replay, (unsigned long long)s.floor,
           (long long)s.code(), (long long)code, (long long)s.choices(), (long long)choices);
    CHECK(near(s.code(), code), "%s: code %lld ns, planted %lld", what, (long long)s.code(), (long long)code);
    CHECK(near(s.choices(), choices), "%s: choices %lld ns, planted %lld", what, (long long)s.choices(),
          (long long)choices);
}

void check_planted() {
    gda_attr a = defaults();
    a.order = rung;
    a.depth = 256;
    bell_ns = 50;
    const uint32_t rounds = 30;

    // Nothing planted: nothing found.
    check_split("nothing", split(a, a, {1, 1}, puts(8, 4, rounds)), 0, 0);

    // Code: 400 ns before each of 4 posts of a burst. The first three posts are under way meanwhile, but the burst
    // ends when the last one, which comes 4 delays late, is complete.
    post_ns = 400;
    check_split("400 ns before each post", split(a, a, {1, 1}, puts(8, 4, rounds)), 4 * 400 * rounds, 0);

    // Choices: twice the doorbells. Bursts of 4 in batches of 2 ring twice, each by itself four times.
    gda_attr batched = a;
    batched.batch = 2;
    check_split("a second doorbell for two WQEs", split(a, batched, {1, 1}, puts(8, 4, rounds)), 0,
                2 * (int64_t)bell_ns * rounds);
    ring_each = true;
    check_split("a doorbell for each of a batch", split(batched, batched, {1, 1}, puts(8, 4, rounds)), 0,
                2 * (int64_t)bell_ns * rounds);

    // A WQE beside the operation (with signal_every=8 a flush asks by a NOP) is hidden behind the put that it follows.
    gda_attr seldom = a;
    seldom.signal_every = 8;
    check_split("a NOP and its doorbell to flush", split(seldom, a, {1, 1}, puts(8, 4, rounds)), 0, 0);

    // Both at once are told apart.
    post_ns = 400;
    check_split("a delay and a second doorbell", split(a, batched, {1, 1}, puts(8, 4, rounds)),
                4 * 400 * rounds, 2 * (int64_t)bell_ns * rounds);

    // Code: one lock for all agents, who have queues of their own.
    gda_attr wide = a;
    wide.qps = 2;
    post_ns = 300;
    one_lock = true;
    const Split locked = split(wide, wide, {2, 1}, puts(8, 1, rounds));
    CHECK(locked.choices() == 0, "a lock is no choice of the NIC: %lld ns", (long long)locked.choices());
    CHECK(locked.code() >= 300 * (int64_t)rounds, "a lock of 300 ns: %lld ns in %u rounds",
          (long long)locked.code(), rounds);

    // Choices: a wider quiet.
    bell_ns = 0;
    gda_attr all = wide;
    all.scope = gda_scope::all;
    const Split scope = split(all, wide, {2, 1}, uneven(60));
    CHECK(scope.code() == 0 && scope.choices() > 10000, "a wider quiet: code %lld ns, choices %lld ns",
          (long long)scope.code(), (long long)scope.choices());
    printf("%-34s code %lld, choices %lld\n", "a quiet over all queues", (long long)scope.code(),
           (long long)scope.choices());
}

// --- what cannot be replayed -------------------------------------------------------------------------------

template <class Change> void refused(const char *what, Change change, const char *want) {
    gda_attr a = defaults();
    a.order = rung;
    a.signal_every = 2;
    Trial floor = measure<rung, gda_sharing::exclusive, Floor>(2, a, {1, 1}, puts(8, 3, 4));
    gda_replay_options options;
    change(floor.traces[0], options);
    const Replayed r = replay(floor.traces, {1, 1}, puts(8, 3, 4), options);
    CHECK(r.status != 0 && r.error.find(want) != std::string::npos, "%s: status %d, \"%s\", want \"%s\"",
          what, r.status, r.error.c_str(), want);
}

struct softnic_trace *nth_wqe(gda_trace &t, uint32_t n) {
    for (auto &r : t.records)
        if (r.kind == SOFTNIC_TRACE_WQE && n-- == 0)
            return &r;
    return nullptr;
}

void check_refused() {
    bell_ns = 0;
    using T = gda_trace;
    using O = gda_replay_options;
    refused(
        "another size", [](T &t, O &) { nth_wqe(t, 1)->bytes = 16; }, "has no WQE for it");
    refused(
        "another place", [](T &t, O &) { nth_wqe(t, 2)->raddr += 4096 * 3; }, "has no WQE for it");
    refused(
        "no CQE asked for",
        [](T &t, O &) {
            for (auto &r : t.records)
                r.fm_ce_se = 0;
        },
        "asks for the CQE to wait for");
    refused(
        "a foreign opcode", [](T &t, O &) { nth_wqe(t, 3)->opcode = MLX5_OP_DUMP; },
        "belongs to no operation");
    refused(
        "doorbells of another run", [](T &, O &o) { o.doorbells = 5; }, "no batch explains the rest");
    refused(
        "a gap", [](T &t, O &) { nth_wqe(t, 2)->index += 4; }, "has a gap");
    gda_trace t{};
    uint32_t qps, depth;
    t.ranks = 2;
    t.lost = 3;
    CHECK(gda_replay_needs(t, &qps, &depth) == -ENOTSUP, "a trace with lost records");
}

// What softnic_due() promises.
void check_due() {
    Rig rig(1, defaults(), SOFTNIC_VIRTUAL, window_bytes, nic_config("cx7-200"));
    struct softnic *nic = rig.g[0]->fabric->nic;
    MUST(gda_begin(rig.g[0], 1));
    const auto h = gda_handle_of<rung, gda_sharing::exclusive>(rig.g[0]);
    CHECK(softnic_due(nic) == UINT64_MAX, "nothing is due of nothing");
    gda_agent<rung, gda_sharing::exclusive> agent(h, gic::Self{0, 1, 0, 1});
    MUST(agent.put(0, 0, 64, 8));
    softnic_advance(nic, 0);
    CHECK(softnic_due(nic) == 1650, "due in %llu ns", (unsigned long long)softnic_due(nic));
    softnic_advance(nic, 1650);
    CHECK(softnic_due(nic) == 1650, "then in %llu ns", (unsigned long long)softnic_due(nic));
    softnic_advance(nic, 1650);
    CHECK(softnic_due(nic) == UINT64_MAX, "it is complete");
    MUST(agent.flush(0));
}

} // namespace

template <>
void gda_announce<gda_order::sys_release>(uint32_t *dbr, uint64_t *bell, uint32_t next, uint32_t qpn_word) {
    Virtual::take(bell_ns);
    gic::store_release(dbr, gda_record(next));
    gic::store_release(bell, gda_door(next, qpn_word));
}

int main() {
    char dir[] = "/tmp/gic-gdatest-XXXXXX";
    if (!mkdtemp(dir))
        return 1;
    folder() = dir;
    setenv("GIC_TRACE_DIR", dir, 1);
    check_due();
    check_own_traces();
    check_planted();
    check_refused();
    for (const char *name : {"/*.trace"}) { // what the fabrics saved when they were closed
        glob_t found;
        if (glob((folder() + name).c_str(), 0, nullptr, &found) == 0)
            for (size_t i = 0; i < found.gl_pathc; i++)
                unlink(found.gl_pathv[i]);
        globfree(&found);
    }
    CHECK(rmdir(dir) == 0, "%s is not empty", dir);
    return failures() != 0;
}
