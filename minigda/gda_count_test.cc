// How many WQEs, doorbells and CQEs a configuration makes, as formulas; completion scopes; every spin's deadline
// and stop word. Virtual time on one thread, but where a flush needs the NIC to move: then a second one moves it.
#include "minigda/gda_test.h"
#include "minigda/gda_trace.h"

using namespace gda_test;

namespace {

constexpr uint64_t window_bytes = 1 << 16;

// f() while another thread moves the NICs on.
template <class F> int stepping(Rig &rig, F f) {
    struct Stepper {
        Rig *rig;
        uint32_t stop;
    } st{&rig, 0};
    pthread_t thread;
    pthread_create(
        &thread, nullptr,
        [](void *a) -> void * {
            Stepper *s = (Stepper *)a;
            while (!__atomic_load_n(&s->stop, __ATOMIC_ACQUIRE)) {
                s->rig->step();
                sched_yield();
            }
            return nullptr;
        },
        &st);
    int rc = f();
    __atomic_store_n(&st.stop, 1u, __ATOMIC_RELEASE);
    pthread_join(thread, nullptr);
    return rc;
}

struct Want {
    uint64_t write, atomic, nop, cqes, doorbells, bytes, payload;
    uint64_t qps_used; // counted once per stretch between two looks at the counters
};
void expect(Rig &rig, const Want &w, const std::string &what) {
    const struct {
        const char *name;
        uint64_t want;
    } rows[] = {{"wqe_write", w.write},
                {"wqe_atomic", w.atomic},
                {"wqe_nop", w.nop},
                {"wqes", w.write + w.atomic + w.nop},
                {"cqes", w.cqes},
                {"error_cqes", 0},
                {"doorbells", w.doorbells},
                {"wqe_bytes", w.bytes},
                {"payload_bytes", w.payload},
                {"qps_used", w.qps_used}};
    for (const auto &r : rows)
        CHECK(rig.count(0, r.name) == r.want, "%s: %s is %llu, want %llu", what.c_str(), r.name,
              (unsigned long long)rig.count(0, r.name), (unsigned long long)r.want);
}

uint64_t ceil_div(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// n puts of 8 bytes, then n put_signals, each followed by a flush.
struct Count {
    gda_attr a;
    uint32_t n;

    template <gda_order O, gda_sharing S> int operator()() const {
        const std::string what = "order " + std::to_string((int)a.order) + " sharing " +
                                 std::to_string((int)a.sharing) + " batch " + std::to_string(a.batch) +
                                 " signal_every " + std::to_string(a.signal_every) + " n " +
                                 std::to_string(n);
        Rig rig(2, a, SOFTNIC_VIRTUAL, window_bytes);
        MUST(gda_begin(rig.g[0], 1));
        const auto h = gda_handle_of<O, S>(rig.g[0]);
        const gic::Self self{0, 1, 0, h.lanes};
        { // an agent writes its counts back when it goes
            typename gda_handle<O, S>::Agent agent(h, self);
            for (uint32_t i = 0; i < n; i++)
                MUST(agent.put(1, 8 * i, 8 * i, 8));
            MUST(stepping(rig, [&] { return agent.flush(1); }));
        }
        const uint32_t every = a.signal_every, batch = a.batch;
        const uint64_t nop = n % every != 0;
        Want w{n, 0, nop, n / every + nop, ceil_div(n + nop, batch), n * 48ull + nop * 16, n * 8ull, 1};
        expect(rig, w, what + ": put");
        if (!gda_exclusive(S)) // those count a batch on from where a flush cut in
            return 0;
        {
            typename gda_handle<O, S>::Agent agent(h, self);
            for (uint32_t i = 0; i < n; i++)
                MUST(agent.put_signal(1, 8 * i, 8 * i, 8, 8 * 1024, 1));
            MUST(stepping(rig, [&] { return agent.flush(1); }));
        }
        const uint64_t nop2 = 2ull * n % every != 0;
        const uint64_t per = ceil_div(batch, 2); // both WQEs of a put_signal are published at once
        w.write += n;
        w.atomic += n;
        w.nop += nop2;
        w.cqes += 2ull * n / every + nop2;
        // Rings after every `per` operations; a rest, or the NOP behind them, rings once more.
        w.doorbells += n / per + (n % per != 0 || nop2);
        w.bytes += n * 48ull + n * 64ull + nop2 * 16;
        w.payload += n * 16ull;
        w.qps_used++;
        expect(rig, w, what + ": put_signal");
        CHECK(*(uint64_t *)(rig.window(1) + 8 * 1024) == n, "%s: signals", what.c_str());
        return 0;
    }
};

void check_formulas() {
    for (uint32_t batch : {1u, 2u, 3u, 16u, 256u})
        for (uint32_t every : {1u, 2u, 7u, 64u})
            for (uint32_t n : {1u, 5u, 64u, 300u}) {
                gda_attr a = defaults();
                a.depth = 1024;
                a.batch = batch;
                a.signal_every = every;
                gda_dispatch(a, Count{a, n});
            }
    for (uint32_t order = 0; order < (uint32_t)gda_order::runtime; order++)
        for (uint32_t sharing = 0; sharing < (uint32_t)gda_sharing::bare; sharing++)
            for (uint32_t scope = 0; scope < (sharing == (uint32_t)gda_sharing::spare ? 1 : 3); scope++) {
                gda_attr a = defaults();
                a.depth = 256;
                a.batch = 4;
                a.signal_every = 3;
                a.order = (gda_order)order;
                a.sharing = (gda_sharing)sharing;
                a.scope = (gda_scope)scope;
                gda_dispatch(a, Count{a, 50});
            }
}

// A warp's group: one reservation, one publication, one doorbell at most.
void check_group() {
    for (uint32_t batch : {1u, 32u, 64u})
        for (uint32_t every : {1u, 5u}) {
            gda_attr a = defaults();
            a.sharing = gda_sharing::warp;
            a.depth = 1024;
            a.batch = batch;
            a.signal_every = every;
            Rig rig(2, a, SOFTNIC_VIRTUAL, window_bytes);
            MUST(gda_begin(rig.g[0], 1));
            const auto h = gda_handle_of<gda_order::runtime, gda_sharing::warp>(rig.g[0]);
            gda_agent<gda_order::runtime, gda_sharing::warp> agent(h, gic::Self{0, 1, 0, h.lanes});
            for (uint64_t i = 0; i < 32 * 6; i++)
                *(uint64_t *)(rig.window(0) + 8 * i) = 1000 + i;
            for (uint64_t round = 0; round < 6; round++)
                MUST(agent.put_each(1, 32, [&](uint32_t i) {
                    const uint64_t at = 8 * (32 * round + i);
                    return gic::Message{4096 + at, at, 8};
                }));
            MUST(stepping(rig, [&] { return agent.flush(1); }));
            const uint64_t n = 32 * 6, nop = n % every != 0;
            const uint64_t groups = ceil_div(batch, 32);
            const Want w{n,
                         0,
                         nop,
                         n / every + nop,
                         6 / groups + (6 % groups != 0 || (nop && batch > 1)) + (nop && batch == 1),
                         n * 48 + nop * 16,
                         n * 8,
                         1};
            expect(rig, w,
                   "group, batch " + std::to_string(batch) + " signal_every " + std::to_string(every));
            for (uint64_t i = 0; i < n; i++)
                CHECK(*(uint64_t *)(rig.window(1) + 4096 + 8 * i) == 1000 + i, "message %u", (uint32_t)i);
            CHECK(agent.put_each(1, 33,
                                 [](uint32_t) {
                                     return gic::Message{0, 0, 8};
                                 }) == gic::ERR_INVAL,
                  "a group of more than the lanes");
        }
}

using Own = gda_agent<gda_order::gpu_fence, gda_sharing::exclusive>;

// Two agents, two QPs per peer: what agent 0's flush waits for of agent 1's.
void check_scopes() {
    for (uint32_t scope = 0; scope < 3; scope++) {
        gda_attr a = defaults();
        a.qps = 2;
        a.scope = (gda_scope)scope;
        Rig rig(2, a, SOFTNIC_VIRTUAL, window_bytes, {}, 5000000);
        MUST(gda_begin(rig.g[0], 2));
        const auto h = gda_handle_of<gda_order::gpu_fence, gda_sharing::exclusive>(rig.g[0]);
        Own mine(h, gic::Self{0, 2, 0, 1}), other(h, gic::Self{1, 2, 0, 1});
        MUST(other.put(0, 0, 8, 8)); // to rank 0 itself
        CHECK(mine.flush(1) == (scope == 2 ? gic::ERR_TIMEOUT : gic::OK), "scope %u, other peer", scope);
        rig.step();
        MUST(other.put(1, 0, 8, 8));
        CHECK(mine.flush(1) == (scope >= 1 ? gic::ERR_TIMEOUT : gic::OK), "scope %u, same peer", scope);
        CHECK(mine.quiet() == (scope >= 1 ? gic::ERR_TIMEOUT : gic::OK), "scope %u, quiet", scope);
        rig.step();
        MUST(mine.flush(1));
        MUST(mine.quiet());
        MUST(other.quiet());
    }
}

// Partial batches at several peers wait for ring(), which announces all of them once.
void check_ring() {
    gda_attr a = defaults();
    a.batch = 8;
    Rig rig(3, a, SOFTNIC_VIRTUAL, window_bytes);
    MUST(gda_begin(rig.g[0], 1));
    const auto h = gda_handle_of<gda_order::gpu_fence, gda_sharing::exclusive>(rig.g[0]);
    {
        Own agent(h, gic::Self{0, 1, 0, 1});
        for (uint32_t peer = 0; peer < 3; peer++)
            MUST(agent.put_value(peer, 0, 7 + peer, 8));
    }
    rig.step();
    CHECK(rig.count(0, "wqes") == 0, "a partial batch was announced");
    Own agent(h, gic::Self{0, 1, 0, 1}); // takes up the place of the one before
    MUST(agent.ring());
    MUST(agent.ring());
    rig.step();
    for (uint32_t peer = 0; peer < 3; peer++)
        CHECK(*(uint64_t *)rig.window(peer) == 7 + peer, "peer %u", peer);
    CHECK(rig.count(0, "wqes") == 3 && rig.count(0, "doorbells_seen") == 3, "3 doorbells for 3 queues");
    MUST(agent.quiet());
}

// Queue of 64 blocks, 72,000 posts: the slots come round 1,125 times, the 16-bit index once.
void check_wrap() {
    for (uint32_t batch : {1u, 16u}) {
        gda_attr a = defaults();
        a.batch = batch;
        a.signal_every = 8;
        Rig rig(2, a, SOFTNIC_VIRTUAL, window_bytes);
        MUST(gda_begin(rig.g[0], 1));
        const auto h = gda_handle_of<gda_order::gpu_fence, gda_sharing::exclusive>(rig.g[0]);
        {
            Own agent(h, gic::Self{0, 1, 0, 1});
            for (uint64_t i = 0; i < 72000; i++) {
                MUST(agent.put_value(1, 8 * (i % 4096), i, 8));
                if (i % 48 == 47)
                    rig.step();
            }
            rig.step();
            MUST(agent.flush(1));
        }
        for (uint64_t i = 72000 - 4096; i < 72000; i++)
            CHECK(*(uint64_t *)(rig.window(1) + 8 * (i % 4096)) == i, "word %llu", (unsigned long long)i);
        expect(rig, Want{72000, 0, 0, 9000, 72000 / batch, 72000 * 48, 72000 * 8, 1}, "wrap");
        // The slots came back before they were needed: finding that out is no wait.
        CHECK(rig.count(0, "slot_waits") == 0, "counted %u waits", (uint32_t)rig.count(0, "slot_waits"));
    }
}

void check_run(const Rig &rig, const gda_trace &t, bool pointers) {
    uint32_t kinds[5] = {};
    for (const struct softnic_trace &r : gda_trace_last_run(t)) {
        kinds[r.kind]++;
        if (r.kind == SOFTNIC_TRACE_WQE)
            CHECK((r.flags & SOFTNIC_TRACE_INLINE) == !pointers && r.bytes == (pointers ? 100 : 8),
                  "flags %u, %u bytes", r.flags, r.bytes);
    }
    CHECK(kinds[SOFTNIC_TRACE_DOORBELL] == 10 && kinds[SOFTNIC_TRACE_WQE] == 40 &&
              kinds[SOFTNIC_TRACE_CQE] == 20 && kinds[SOFTNIC_TRACE_MARK] == 0,
          "%u doorbells, %u WQEs, %u CQEs, %u marks", kinds[1], kinds[2], kinds[3], kinds[4]);
    const gda_fabric *f = rig.g[0]->fabric;
    CHECK(t.rank == 0 && t.ranks == 1 && !t.real_time && t.lost == 0 && t.profile == "none", "the header");
    CHECK(t.qps.size() == 1 && t.qps[0].qpn == f->qps[0].qpn && t.qps[0].peer == 0 && t.qps[0].depth == 64 &&
              t.qps[0].cq_depth == 0,
          "the queue pair");
    bool window = false;
    for (const gda_trace_region &r : t.regions)
        window |=
            r.va == (uint64_t)(uintptr_t)f->window && r.bytes >= f->window_bytes && r.key == f->window_key;
    CHECK(window, "no region is the window");
}

// No damaged file is taken for a trace.
void check_damage(const std::string &path) {
    std::vector<uint8_t> good;
    FILE *f = fopen(path.c_str(), "rb");
    for (int c; f && (c = getc(f)) != EOF;)
        good.push_back((uint8_t)c);
    if (f)
        fclose(f);
    const std::string bad = path + ".bad";
    for (size_t i = 0; i < 2 * good.size(); i++) {
        std::vector<uint8_t> bytes = good;
        if (i < good.size())
            bytes.resize(i);
        else
            bytes[i - good.size()] ^= (uint8_t)(1u << i % 8);
        f = fopen(bad.c_str(), "wb");
        CHECK(f && (bytes.empty() || fwrite(bytes.data(), bytes.size(), 1, f) == 1), "write %s", bad.c_str());
        if (f)
            fclose(f);
        gda_trace t;
        CHECK(gda_trace_read(bad.c_str(), &t) == -EBADMSG, "damage %zu was not seen", i);
    }
    unlink(bad.c_str());
    gda_trace t;
    CHECK(gda_trace_read(bad.c_str(), &t) == -ENOENT, "a file that is not there");
}

// The trace on disk is that in memory, and has every doorbell, WQE and CQE that the counters count, between the marks
// at which they were read. Each run gets a file of its own.
void check_trace() {
    char dir[] = "/tmp/gic-gdatest-XXXXXX";
    CHECK(mkdtemp(dir), "no folder");
    setenv("GIC_TRACE_DIR", dir, 1);
    std::string last;
    {
        gda_attr a = defaults();
        a.batch = 4;
        a.signal_every = 2;
        Rig rig(1, a, SOFTNIC_VIRTUAL, window_bytes, {{"trace", "on"}});
        last = rig.g[0]->fabric->trace;
        MUST(gda_begin(rig.g[0], 1));
        const auto h = gda_handle_of<gda_order::gpu_fence, gda_sharing::exclusive>(rig.g[0]);
        Own agent(h, gic::Self{0, 1, 0, 1});
        for (uint32_t run = 0; run < 3; run++) {
            const uint64_t before = rig.count(0, "wqes");
            for (uint32_t i = 0; i < 40; i++) {
                MUST(agent.put(0, 8 * i, 8, run == 1 ? 100 : 8));
                rig.step();
            }
            MUST(agent.flush(0));
            CHECK(rig.count(0, "wqes") - before == 40, "run %u", run);
            if (run == 2) // the rest is saved when the fabric is closed
                break;
            std::vector<struct softnic_trace> here(1000);
            size_t count = here.size();
            uint64_t lost;
            MUST(softnic_trace_read(rig.g[0]->fabric->nic, here.data(), &count, &lost));
            here.resize(count);
            gic::Facts facts;
            gda_facts(rig.g[0], &facts);
            std::string path;
            const gic_kv *list;
            uint32_t n;
            facts.publish(&list, &n);
            for (uint32_t i = 0; i < n; i++)
                if (strcmp(list[i].key, "trace") == 0)
                    path = list[i].value;
            gda_trace t;
            MUST(gda_trace_read(path.c_str(), &t));
            CHECK(t.records.size() == count &&
                      memcmp(t.records.data(), here.data(), count * sizeof here[0]) == 0,
                  "run %u: the file's %zu records are not those of the NIC", run, t.records.size());
            check_run(rig, t, run == 1);
            unlink(path.c_str());
        }
    }
    gda_trace t;
    MUST(gda_trace_read(last.c_str(), &t));
    CHECK(t.records.size() > 40, "%zu records of the last run", t.records.size());
    check_damage(last);
    unlink(last.c_str());
    CHECK(rmdir(dir) == 0, "more files than expected in %s", dir);
}

template <gda_sharing S> constexpr gda_order order_of() {
    return gda_exclusive(S) ? gda_order::gpu_fence : gda_order::runtime;
}

// What agents tell each other of the first queue.
template <gda_sharing S> auto &first_words(Rig &rig) {
    if constexpr (gda_in_block(S))
        return rig.g[0]->block[0];
    else
        return rig.g[0]->queues[0];
}

// Every place where a device thread can wait, with nobody to end the wait.
template <gda_sharing S> void check_spins() {
    for (int status : {(int)gic::ERR_TIMEOUT, (int)gic::ERR_CANCELED}) {
        for (int spot = 0; spot < 8; spot++) {
            gda_attr a = defaults();
            a.sharing = S;
            a.qps = 2;
            if (spot == 6 && S == gda_sharing::spare)
                continue;
            a.scope = spot == 6 ? gda_scope::peer : gda_scope::qp;
            const uint64_t timeout = status == gic::ERR_TIMEOUT ? 2000000 : 60000000000ull;
            Rig rig(1, a, SOFTNIC_VIRTUAL, window_bytes, {}, timeout);
            MUST(gda_begin(rig.g[0], 2));
            const auto h = gda_handle_of<order_of<S>(), S>(rig.g[0]);
            using A = typename gda_handle<order_of<S>(), S>::Agent;
            auto own = std::make_unique<A>(h, gic::Self{0, 2, 0, h.lanes});
            A &agent = *own, other(h, gic::Self{1, 2, 0, h.lanes});
            if (spot == 6)
                MUST(other.put(0, 0, 8, 8));
            if (status == gic::ERR_CANCELED)
                rig.stop = 1;
            auto &q = first_words<S>(rig);
            uint64_t old;
            int got = gic::OK;
            switch (spot) {
            case 0: // slot reuse
                for (uint32_t i = 0; i < 65 && got == gic::OK; i++)
                    got = agent.put(0, 0, 8, 8);
                break;
            case 1:
                got = agent.wait(512, 1);
                break;
            case 2:
                got = agent.fetch_add(0, 0, 1, &old);
                break;
            case 3:
                MUST(agent.put(0, 0, 8, 8));
                got = agent.flush(0);
                break;
            case 4:
                MUST(agent.put(0, 0, 8, 8));
                got = agent.quiet();
                break;
            case 5: // the lock's holder never lets go
                if (gda_exclusive(S))
                    continue;
                q.lock = 1;
                got = agent.put(0, 0, 8, 8);
                break;
            case 6: // another agent's completion
                got = agent.flush(0);
                break;
            case 7: // a slot before ours is never published
                if (gda_form(S) != gda_sharing::handoff && gda_form(S) != gda_sharing::warp)
                    continue;
                q.reserved = 1;
                got = agent.put(0, 0, 8, 8);
                break;
            }
            CHECK(got == status, "sharing %d, spin %d: status %d, want %d", (int)S, spot, got, status);
            own.reset(); // writes its counts back
            CHECK(rig.count(0, "slot_waits") == (spot == 0), "sharing %d, spin %d: slot waits", (int)S, spot);
            q.lock = 0;
        }
    }
}

// Agents that share a queue by turns: however many wait, few look at the turn word while one has its turn, and a turn
// takes no longer for it. In a model: a look takes `look` ns, who sees its turn passes it on `hold` ns later, and comes
// again at once.
void check_naps() {
    constexpr uint64_t turns = 20000, hold = 150, look = 450;
    auto simulate = [&](uint32_t agents, double oversleep, double *looks_p) {
        std::vector<uint64_t> at(agents, 0),
            slot(agents); // when the agent has looked next; whose turn it waits for
        for (uint32_t i = 0; i < agents; i++)
            slot[i] = i;
        uint64_t passed = 0, since = 0, looks = 0; // turns, when the last was passed on
        while (passed < turns) {
            const size_t a = std::min_element(at.begin(), at.end()) - at.begin();
            const uint64_t seen = at[a] >= since ? passed : passed - 1; // the word as it was then
            looks++;
            if (slot[a] == seen && seen == passed) {
                since = at[a] + hold;
                passed++;
                slot[a] += agents;
                at[a] = since + look;
            } else {
                at[a] += look + (uint64_t)(oversleep * gda_turn_nap((uint32_t)(slot[a] - seen)));
            }
        }
        *looks_p = (double)looks / turns;
        return (double)since / turns;
    };
    double looks;
    const double few = simulate(4, 1, &looks);
    for (uint32_t agents : {32u, 64u, 128u, 256u, 1024u})
        for (double oversleep : {0.5, 1.0, 2.0}) {
            const double took = simulate(agents, oversleep, &looks);
            CHECK(looks < 16 && took < 2 * few,
                  "%u agents that sleep %g times as long: %.1f looks a turn, %.0f ns, 4 agents %.0f", agents,
                  oversleep, looks, took, few);
        }
}

} // namespace

int main() {
    check_naps();
    check_formulas();
    check_group();
    check_scopes();
    check_ring();
    check_wrap();
    check_trace();
    check_spins<gda_sharing::exclusive>();
    check_spins<gda_sharing::lock>();
    check_spins<gda_sharing::handoff>();
    check_spins<gda_sharing::warp>();
    check_spins<gda_sharing::block_lock>();
    check_spins<gda_sharing::block_handoff>();
    check_spins<gda_sharing::block_warp>();
    check_spins<gda_sharing::group>();
    check_spins<gda_sharing::spare>();
    return failures() != 0;
}
