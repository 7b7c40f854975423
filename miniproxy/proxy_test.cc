// The proxy end to end over softnic: what device threads ask for is what lands, in order, once.
#include "miniproxy/test_bed.h"

#include <algorithm>
#include <map>

using namespace proxy;

namespace {

const Attr kDefault{4, 64, 1, 16, 220, false, false};
template <Handoff F> using Agent = typename Handle<F>::Agent;

#define OK(call)                                                                                             \
    do {                                                                                                     \
        int got_ = (call);                                                                                   \
        CHECK(got_ == gic::OK, "status %d", got_);                                                           \
    } while (0)
#define IS(call, want)                                                                                       \
    do {                                                                                                     \
        int got_ = (call);                                                                                   \
        CHECK(got_ == (want), "status %d", got_);                                                            \
    } while (0)

constexpr uint64_t FILL = 0xA5;
uint8_t pattern(uint64_t i) { return (uint8_t)(i * 131 + 17); }

// What two windows must hold: the operations applied by the test itself. Whole windows are compared, so every
// byte that nobody wrote is a guard.
class Expected {
  public:
    explicit Expected(Bed &bed) : bed_(bed) {
        for (uint32_t r = 0; r < 2; r++) {
            w_[r].assign(Bed::WINDOW, FILL);
            for (uint64_t i = 0; i < 8192; i++)
                w_[r][i] = (uint8_t)(pattern(i) + 89 * r); // sources
            memset(&w_[r][WORDS], 0, 4096);
            memcpy(bed.window(r), w_[r].data(), Bed::WINDOW);
        }
    }
    void copy(uint32_t to, uint64_t dst, uint32_t from, uint64_t src, uint32_t bytes) {
        memcpy(&w_[to][dst], &w_[from][src], bytes);
    }
    void set(uint32_t to, uint64_t dst, uint64_t value, uint32_t bytes) {
        memcpy(&w_[to][dst], &value, bytes);
    }
    void add(uint32_t to, uint64_t at, uint64_t value) {
        uint64_t old;
        memcpy(&old, &w_[to][at], 8);
        set(to, at, old + value, 8);
    }
    void check(const char *what) {
        for (uint32_t r = 0; r < 2; r++)
            for (uint64_t i = 0; i < Bed::WINDOW; i++)
                CHECK(bed_.window(r)[i] == w_[r][i], "%s: rank %u byte %llu is %02x, want %02x", what, r,
                      (unsigned long long)i, bed_.window(r)[i], w_[r][i]);
    }
    static constexpr uint64_t WORDS = 61440; // zeroed words for signals

  private:
    Bed &bed_;
    std::vector<uint8_t> w_[2];
};

// Every word of device.cuh, to the other rank and to itself, on both hand-offs.
template <Handoff F> void test_operations(uint32_t inline_max) {
    Attr attr = kDefault;
    attr.inline_max = inline_max;
    Bed bed(2, attr, SOFTNIC_REAL);
    Expected want(bed);
    Handle<F> h = bed.handle<F>(0);
    Agent<F> a(h, gic::Self{0, 1, 0, 1});
    uint64_t dst = 8192 + 3;
    const uint64_t W = Expected::WORDS;
    for (uint32_t peer = 0; peer < 2; peer++) {
        for (uint32_t bytes : {0u, 1u, 8u, 12u, 13u, 28u, 29u, 64u, 92u, 93u, 220u, 221u, 4096u}) {
            OK(a.put(peer, dst, bytes % 7, bytes));
            want.copy(peer, dst, 0, bytes % 7, bytes);
            dst += bytes + 5;
        }
        for (uint32_t bytes : {1u, 2u, 4u, 8u}) {
            OK(a.put_value(peer, dst, 0xf1e2d3c4b5a69788, bytes));
            want.set(peer, dst, 0xf1e2d3c4b5a69788, bytes);
            dst += bytes + 5;
        }
        OK(a.signal(peer, W, 3));
        OK(a.signal(peer, W, ~(uint64_t)0)); // adds modulo 2^64
        want.add(peer, W, 2);
        OK(a.put_signal(peer, dst, 64, 100, W + 8, 7));
        want.copy(peer, dst, 0, 64, 100);
        want.add(peer, W + 8, 7);
        dst += 105;
        OK(a.notify(peer, 0, 0, 8, W + 16, 0x1122334455667788));
        want.set(peer, W + 16, 0x1122334455667788, 8);
        OK(a.notify(peer, dst, 512, 300, W + 24, 1));
        want.copy(peer, dst, 0, 512, 300);
        want.set(peer, W + 24, 1, 8);
        dst += 305;
        OK(a.put_each(peer, 1, [&](uint32_t) { return gic::Message{dst, 1024, 33}; }));
        want.copy(peer, dst, 0, 1024, 33);
        dst += 38;
        for (uint32_t bytes : {0u, 1u, 13u, 1000u}) {
            OK(a.get(peer, dst, 2048, bytes));
            want.copy(0, dst, peer, 2048, bytes);
            dst += bytes + 5;
        }
        OK(a.fence(peer));
        uint64_t old = 0;
        OK(a.fetch_add(peer, W + 32, 5, &old));
        CHECK(old == 0, "first old value is %llu", (unsigned long long)old);
        OK(a.fetch_add(peer, W + 32, 0x8000000000000000, &old));
        CHECK(old == 5, "second old value is %llu", (unsigned long long)old);
        want.set(peer, W + 32, 0x8000000000000005, 8);
        OK(a.flush(peer));
        OK(a.ring());
    }
    OK(a.quiet());
    a.gpu_visible();
    want.check(F == Handoff::tuned ? "tuned" : "baseline");
    CHECK(bed.host(0).error().empty(), "%s", bed.host(0).error().c_str());
}

// Signal and wait between two ranks' threads: what was put before is there when wait returns.
template <Handoff F> void test_signal_and_wait() {
    Bed bed(2, kDefault, SOFTNIC_REAL);
    constexpr uint64_t ROUNDS = 200;
    auto side = [&](uint32_t me) {
        Handle<F> h = bed.handle<F>(me);
        Agent<F> a(h, gic::Self{0, 1, 0, 1});
        uint32_t peer = 1 - me;
        for (uint64_t n = 1; n <= ROUNDS; n++) {
            if (me == 1) {
                OK(a.wait(0, n));
                a.gpu_visible();
                for (uint64_t i = 0; i < 64; i++)
                    CHECK(bed.window(1)[1024 + i] == (uint8_t)(n + i), "round %llu", (unsigned long long)n);
                OK(a.signal(peer, 0, 1));
            } else {
                for (uint64_t i = 0; i < 64; i++)
                    bed.window(0)[2048 + i] = (uint8_t)(n + i);
                if (n % 2)
                    OK(a.put_signal(peer, 1024, 2048, 64, 0, 1));
                else
                    OK(a.notify(peer, 1024, 2048, 64, 0, n));
                OK(a.wait(0, n));
            }
        }
        OK(a.quiet());
    };
    std::thread other(side, 1);
    side(0);
    other.join();
}

// Many laps of ring and queue, WQEs of one to four blocks that lie around the queue's end.
template <Handoff F> void test_wrap() {
    Bed bed(1, kDefault, SOFTNIC_REAL);
    Handle<F> h = bed.handle<F>(0);
    constexpr uint32_t N = 1500;
    uint32_t seed = 1;
    for (uint32_t part = 0; part < 3; part++) { // a new agent goes on where the last one stopped
        Agent<F> a(h, gic::Self{0, 1, 0, 1});
        for (uint32_t i = 0; i < N; i++) {
            uint32_t bytes = 1 + (seed = seed * 1103515245 + 12345) / 65536 % 250, at = (i % 64) * 256;
            if (i % 64 == 0) {
                OK(a.quiet());
                for (uint32_t b = 0; b < 64 * 256; b++)
                    bed.window(0)[b] = pattern(b + i + part), bed.window(0)[16384 + b] = 0;
            }
            OK(a.put(0, 16384 + at, at, bytes));
            if (i % 64 == 63) {
                OK(a.quiet());
                for (uint32_t b = 0; b < 64 * 256; b++)
                    CHECK(bed.window(0)[16384 + b] == 0 ||
                              bed.window(0)[16384 + b] == pattern(b + i - 63 + part),
                          "part %u, put %u: byte %u", part, i, b);
                CHECK(memcmp(&bed.window(0)[16384 + at], &bed.window(0)[at], bytes) == 0, "put %u", i);
            }
        }
        OK(a.quiet());
    }
    Stats s = bed.host(0).stats();
    CHECK(s.descriptors == 3 * N && s.wqes == 3 * N, "%llu descriptors", (unsigned long long)s.descriptors);
}

// How many doorbells a worker rings for what it finds, one sweep at a time.
void test_chains() {
    auto bed_of = [](uint32_t batch) {
        Attr attr = kDefault;
        attr.batch = batch;
        return std::make_unique<Bed>(2, attr, SOFTNIC_VIRTUAL);
    };
    auto expect = [](Bed &bed, uint64_t taken, uint64_t wqes, uint64_t doorbells) {
        size_t got = bed.host(0).step(0);
        Stats s = bed.host(0).stats();
        CHECK(got == taken && s.wqes == wqes && s.doorbells == doorbells,
              "took %zu, WQEs %llu, doorbells %llu; want %llu, %llu, %llu", got, (unsigned long long)s.wqes,
              (unsigned long long)s.doorbells, (unsigned long long)taken, (unsigned long long)wqes,
              (unsigned long long)doorbells);
    };
    constexpr Handoff F = Handoff::tuned;
    { // one ring, B=4: 10 descriptors in 4 + 4 + 2
        auto bed = bed_of(4);
        Handle<F> h = bed->handle<F>(0);
        Agent<F> a(h, gic::Self{0, 1, 0, 1});
        for (uint64_t i = 0; i < 10; i++)
            OK(a.put_value(1, 8 * i, i + 1, 8));
        expect(*bed, 4, 4, 1);
        expect(*bed, 4, 8, 2);
        expect(*bed, 2, 10, 3);
        expect(*bed, 0, 10, 3);
        bed->advance();
        expect(*bed, 3, 10, 3); // three CQEs: the last WQE of each chain is signaled
        struct softnic_counters c;
        softnic_counters_get(bed->fabric(0)->nic, SOFTNIC_ALL_QPS, &c);
        CHECK(c.wqes == 10 && c.cqes == 3, "NIC: %llu WQEs, %llu CQEs", (unsigned long long)c.wqes,
              (unsigned long long)c.cqes);
        OK(a.quiet());
        for (uint64_t i = 0; i < 10; i++)
            CHECK(bed->word(1, 8 * i) == i + 1, "word %llu", (unsigned long long)i);
    }
    { // B=1: one doorbell each
        auto bed = bed_of(1);
        Handle<F> h = bed->handle<F>(0);
        Agent<F> a(h, gic::Self{0, 1, 0, 1});
        for (uint64_t i = 0; i < 3; i++)
            OK(a.put_value(1, 8 * i, 1, 8));
        for (uint64_t i = 1; i <= 3; i++)
            expect(*bed, 1, i, i);
        bed->pump(1);
    }
    { // B=4, two rings with three each to one peer: a chain goes across rings, 4 + 2
        auto bed = bed_of(4);
        Handle<F> h = bed->handle<F>(0);
        Agent<F> a(h, gic::Self{0, 2, 0, 1}), b(h, gic::Self{1, 2, 0, 1});
        for (uint64_t i = 0; i < 3; i++) {
            OK(a.put_value(1, 8 * i, 1, 8));
            OK(b.put_value(1, 64 + 8 * i, 1, 8));
        }
        expect(*bed, 6, 6, 2);
        bed->pump(1);
    }
    { // B=4, two peers by turns: one doorbell per QP and sweep
        auto bed = bed_of(4);
        Handle<F> h = bed->handle<F>(0);
        Agent<F> a(h, gic::Self{0, 1, 0, 1});
        for (uint64_t i = 0; i < 4; i++)
            OK(a.put_value((uint32_t)i % 2, 8 * i, 1, 8));
        expect(*bed, 4, 4, 2);
        bed->pump(1);
    }
    { // a fetch_add's two slots are one WQE and never split; a fence alone is none
        auto bed = bed_of(4);
        Handle<F> h = bed->handle<F>(0);
        Agent<F> a(h, gic::Self{0, 1, 0, 1});
        OK(a.get(1, 0, 64, 8));
        OK(a.fence(1));
        OK(a.put_signal(1, 128, 0, 8, 256, 1));
        expect(*bed, 4, 3, 1);
        bed->pump(1);
        OK(a.quiet());
    }
}

// A full ring: nobody overwrites what has not been taken, and a deadline ends the wait.
void test_full_ring() {
    Bed bed(1, kDefault, SOFTNIC_VIRTUAL);
    gic::Env brief{&bed.stop, 2000000};
    {
        Handle<Handoff::tuned> h = bed.host(0).handle<Handoff::tuned>(brief, 1);
        Agent<Handoff::tuned> a(h, gic::Self{0, 1, 0, 1});
        for (uint64_t i = 0; i < 64; i++)
            OK(a.put_value(0, 8 * i, i + 1, 8));
        IS(a.put_value(0, 0, 99, 8), gic::ERR_TIMEOUT);
        IS(a.put_signal(0, 0, 0, 8, 0, 1), gic::ERR_TIMEOUT);
        IS(a.flush(0), gic::ERR_TIMEOUT);
        bed.pump(1);
        OK(a.flush(0));
        for (uint64_t i = 0; i < 64; i++)
            CHECK(bed.word(0, 8 * i) == i + 1, "word %llu", (unsigned long long)i);
        OK(a.put_value(0, 0, 7, 8)); // a private ring is as good as before
        bed.pump(1);
        OK(a.quiet());
        CHECK(bed.word(0, 0) == 7, "the put after the timeout is lost");
        bed.stop = 1;
        IS(a.wait(0, 8), gic::ERR_CANCELED);
        OK(a.put_value(0, 0, 9, 8));
        IS(a.quiet(), gic::ERR_CANCELED);
        bed.stop = 0;
        IS(a.wait(0, 100), gic::ERR_TIMEOUT);
        bed.pump(1);
        OK(bed.host(0).drain(brief));
    }
    // With reserved slots that nobody fills a shared ring cannot go on, and says so to all.
    Handle<Handoff::baseline> h = bed.host(0).handle<Handoff::baseline>(brief, 1);
    Agent<Handoff::baseline> a(h, gic::Self{1, 2, 0, 1}), b(h, gic::Self{1, 2, 0, 1});
    for (uint64_t i = 0; i < 64; i++)
        OK(a.put_value(0, 8 * i, i + 1, 8));
    IS(a.put_value(0, 0, 99, 8), gic::ERR_TIMEOUT);
    bed.pump(1);
    CHECK(b.put_value(0, 0, 1, 8) == gic::OK && b.flush(0) != gic::OK, "a ring with a hole goes on");
    CHECK(bed.host(0).drain(brief) != gic::OK, "drained a ring with a hole");
}

// Several agents, rings and workers, peers mixed: every message once, and in the order its agent gave.
template <Handoff F> void test_order(uint32_t agents, Attr attr) {
    constexpr uint32_t EACH = 60;
    Bed bed(2, attr, SOFTNIC_VIRTUAL, 64, true);
    Handle<F> h = bed.handle<F>(0);
    std::vector<std::unique_ptr<Agent<F>>> a;
    for (uint32_t i = 0; i < agents; i++)
        a.push_back(std::make_unique<Agent<F>>(h, gic::Self{i, agents, 0, 1}));
    auto at = [&](uint32_t agent, uint32_t n) { return 8 * ((uint64_t)agent * EACH + n); };
    const uint64_t source = Bed::WINDOW / 2;
    uint32_t seed = 7;
    for (uint32_t n = 0; n < EACH; n++)
        for (uint32_t i = 0; i < agents; i++) {
            const uint64_t value = at(i, n) + 1;
            memcpy(bed.window(0) + source + at(i, n), &value, sizeof value);
            if (n % 5 < 2) // what the worker has a loop for, and what it has not
                OK(a[i]->put_value(n % 2, at(i, n), value, 8));
            else
                OK(a[i]->put(n % 2, at(i, n), source + at(i, n), 8));
            if ((seed = seed * 1103515245 + 12345) / 65536 % 5 == 0)
                bed.host(0).step(seed / 65536 % attr.workers);
            if (seed / 65536 % 11 == 0)
                bed.advance();
            if (n % 16 == 15)
                bed.pump(attr.workers);
        }
    bed.pump(attr.workers);
    OK(bed.host(0).drain(bed.env));
    std::vector<struct softnic_trace> trace(65536);
    size_t count = trace.size();
    uint64_t lost;
    CHECK(softnic_trace_read(bed.fabric(0)->nic, trace.data(), &count, &lost) == 0 && lost == 0, "%s",
          softnic_error());
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> last; // (peer, agent) -> n + 1
    std::vector<int> times(agents * EACH);
    for (size_t i = 0; i < count; i++) {
        if (trace[i].kind != SOFTNIC_TRACE_WQE)
            continue;
        // Which peer: the QP says; the offset says which message.
        uint32_t peer = ~0u;
        for (const struct gda_qp &qp : bed.fabric(0)->qps)
            if (qp.qpn == trace[i].qpn)
                peer = qp.peer;
        uint64_t index = (trace[i].raddr - bed.fabric(0)->peers[peer].window) / 8;
        uint32_t agent = (uint32_t)index / EACH, n = (uint32_t)index % EACH;
        CHECK(index < times.size() && n % 2 == peer, "a write to rank %u word %llu", peer,
              (unsigned long long)index);
        times[index]++;
        uint32_t &next = last[std::make_pair(peer, agent)];
        CHECK(n >= next, "agent %u peer %u: message %u behind %u", agent, peer, n, next);
        next = n + 1;
    }
    for (uint32_t i = 0; i < agents * EACH; i++) {
        CHECK(times[i] == 1, "agent %u message %u: %d times", i / EACH, i % EACH, times[i]);
        CHECK(bed.word(i % EACH % 2, 8 * i) == 8 * i + 1, "message %u lost", i);
    }
}

// Old values of concurrent fetch_adds: each once, and the word is their sum.
template <Handoff F> void test_fetch_add(uint32_t agents, Attr attr) {
    Bed bed(2, attr, SOFTNIC_REAL);
    Handle<F> h = bed.handle<F>(0);
    constexpr uint32_t EACH = 50;
    std::vector<uint64_t> old(agents * EACH);
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < agents; i++)
        threads.emplace_back([&, i] {
            Agent<F> a(h, gic::Self{i, agents, 0, 1});
            for (uint32_t n = 0; n < EACH; n++)
                OK(a.fetch_add(1, 512, 1, &old[i * EACH + n]));
        });
    for (std::thread &t : threads)
        t.join();
    std::sort(old.begin(), old.end());
    for (uint32_t i = 0; i < old.size(); i++)
        CHECK(old[i] == i, "old value %u is %llu", i, (unsigned long long)old[i]);
    CHECK(bed.word(1, 512) == old.size(), "the word is %llu", (unsigned long long)bed.word(1, 512));
}

// fence() behind a get sets the fence bit of the next WQE to that peer; otherwise there is nothing to wait for.
void test_fence() {
    Bed bed(2, kDefault, SOFTNIC_VIRTUAL, 64, true);
    Handle<Handoff::tuned> h = bed.handle<Handoff::tuned>(0);
    Agent<Handoff::tuned> a(h, gic::Self{0, 1, 0, 1});
    OK(a.put(1, 0, 0, 64));
    OK(a.fence(1)); // nothing handed over
    OK(a.get(1, 0, 64, 8));
    OK(a.fence(1));
    OK(a.put(0, 0, 0, 8));
    OK(a.put(1, 0, 0, 8));
    OK(a.put(1, 64, 0, 8));
    bed.pump(1);
    OK(a.quiet());
    OK(a.fence(1)); // the get is complete
    OK(a.put(1, 0, 0, 64));
    bed.pump(1);
    CHECK(bed.host(0).stats().descriptors == 7, "%llu descriptors",
          (unsigned long long)bed.host(0).stats().descriptors);
    struct softnic_trace trace[64];
    size_t count = 64;
    uint64_t lost;
    CHECK(softnic_trace_read(bed.fabric(0)->nic, trace, &count, &lost) == 0 && lost == 0, "%s",
          softnic_error());
    std::string to_self, to_peer;
    for (size_t i = 0; i < count; i++)
        if (trace[i].kind == SOFTNIC_TRACE_WQE)
            (trace[i].qpn == bed.fabric(0)->qps[0].qpn ? to_self : to_peer) +=
                (trace[i].fm_ce_se & MLX5_CTRL_FENCE_MASK) == MLX5_CTRL_FENCE ? 'F' : '.';
    CHECK(to_self == "." && to_peer == "..F..", "to itself %s, to the peer %s", to_self.c_str(),
          to_peer.c_str());
}

// What an agent must refuse by itself.
void test_arguments() {
    Bed bed(2, kDefault, SOFTNIC_VIRTUAL);
    Handle<Handoff::tuned> h = bed.handle<Handoff::tuned>(0);
    Agent<Handoff::tuned> a(h, gic::Self{0, 8, 0, 1}), none(h, gic::Self{4, 8, 0, 1});
    uint64_t old;
    const int bad = gic::ERR_INVAL;
    IS(a.put(2, 0, 0, 8), bad);
    IS(a.put(1, MAX_OFFSET, 0, 8), bad);
    IS(a.put(1, 0, MAX_OFFSET, 8), bad);
    IS(a.put(1, 0, 0, MAX_BYTES + 1), bad);
    IS(a.put_value(1, 0, 0, 3), bad);
    IS(a.signal(1, 4, 1), bad);
    IS(a.fetch_add(1, 4, 1, &old), bad);
    IS(a.notify(1, 0, 0, 8, 4, 1), bad);
    IS(a.put_signal(1, 0, 0, 8, 4, 1), bad);
    IS(a.put_each(1, 2, [](uint32_t) { return gic::Message{0, 0, 8}; }), bad);
    IS(a.wait(4, 0), bad);
    IS(a.fence(2), bad);
    IS(a.flush(2), bad);
    IS(none.put(1, 0, 0, 8), bad); // four private rings: the fifth agent has none
    IS(none.fetch_add(1, 0, 1, &old), bad);
    IS(none.fence(1), bad);
    IS(none.flush(1), bad);
    CHECK(bed.host(0).step(0) == 0, "something was posted");
}

// What goes into the WQE and what is pointed to, as the NIC counts it.
void test_inline() {
    constexpr Handoff F = Handoff::tuned;
    struct Case {
        uint32_t inline_max;
        bool only;
        uint64_t inlined; // of put 8 B, put 100 B, put_value 8 B
        int large;        // status of a put of 1000 B
    };
    for (const Case &c : {Case{0, false, 0, gic::OK}, Case{8, false, 2, gic::OK},
                          Case{100, false, 3, gic::OK}, Case{972, true, 3, gic::ERR_INVAL}}) {
        Bed bed(1, Attr{1, 64, 1, 16, c.inline_max, c.only, false}, SOFTNIC_VIRTUAL);
        Handle<F> h = bed.handle<F>(0);
        Agent<F> a(h, gic::Self{0, 1, 0, 1});
        for (uint32_t i = 0; i < 100; i++)
            bed.window(0)[i] = pattern(i);
        OK(a.put(0, 1024, 0, 8));
        OK(a.put(0, 2048, 0, 100));
        OK(a.put_value(0, 3072, 0x0102030405060708, 8));
        bed.pump(1);
        struct softnic_counters n;
        softnic_counters_get(bed.fabric(0)->nic, SOFTNIC_ALL_QPS, &n);
        CHECK(n.wqe_write == 3 && n.wqe_write_inline == c.inlined, "limit %u: %llu of %llu inline",
              c.inline_max, (unsigned long long)n.wqe_write_inline, (unsigned long long)n.wqe_write);
        CHECK(bed.word(0, 3072) == 0x0102030405060708 &&
                  memcmp(bed.window(0) + 1024, bed.window(0), 8) == 0 &&
                  memcmp(bed.window(0) + 2048, bed.window(0), 100) == 0,
              "limit %u: payload", c.inline_max);
        IS(a.put(0, 4096, 0, 1000), c.large);
        bed.pump(1);
        OK(a.quiet());
    }
}

// With hold_ns the NIC executes nothing while workers post, and everything once they have not for so long.
void test_held() {
    constexpr Handoff F = Handoff::tuned;
    constexpr uint32_t AGENTS = 4, EACH = 100;
    Attr attr{AGENTS, 128, 2, 16, 28, false, false};
    attr.hold_ns = 100000000;
    Bed bed(2, attr, SOFTNIC_REAL, 256);
    auto put = [&](uint32_t agent, bool all) {
        Handle<F> h = bed.handle<F>(0);
        Agent<F> a(h, gic::Self{agent, AGENTS, 0, 1});
        for (uint64_t i = 0; i < EACH; i++)
            OK(a.put(1, 16384 + 8 * (agent * EACH + i), 8 * i, 8));
        OK(a.submitted());
        if (all)
            OK(a.quiet());
    };
    auto executed = [&] {
        struct softnic_counters c;
        softnic_counters_get(bed.fabric(0)->nic, SOFTNIC_ALL_QPS, &c);
        return c.wqes;
    };
    bed.host(0).hold();
    const uint64_t start = gic::globaltimer();
    for (uint32_t i = 0; i < AGENTS; i++)
        put(i, false);
    uint64_t moved = 0;
    for (uint64_t i = 0; i < AGENTS * EACH; i++)
        moved += bed.word(1, 16384 + 8 * i) != 0;
    // Of a machine that stopped for longer nothing is claimed.
    CHECK(moved == 0 || gic::globaltimer() - start > attr.hold_ns, "%llu puts executed while the NIC is held",
          (unsigned long long)moved);
    OK(bed.host(0).drain(bed.env));
    bed.host(0).release();
    CHECK(executed() == AGENTS * EACH, "%llu WQEs", (unsigned long long)executed());

    // More than the queues hold: the NIC makes room. Several launches, agents of several threads.
    for (uint32_t round = 0; round < 3; round++) {
        bed.host(0).hold();
        std::vector<std::thread> threads;
        for (uint32_t i = 0; i < AGENTS; i++)
            threads.emplace_back([&, i] {
                for (uint32_t n = 0; n < 2; n++)
                    put(i, n == 1);
            });
        for (std::thread &t : threads)
            t.join();
        OK(bed.host(0).drain(bed.env));
        bed.host(0).release();
    }
    CHECK(executed() == 7 * AGENTS * EACH, "%llu WQEs", (unsigned long long)executed());
}

void test_attributes() {
    Bed bed(1, kDefault, SOFTNIC_VIRTUAL);
    std::unique_ptr<Host> host;
    auto refused = [&](Attr attr, const char *text) {
        CHECK(Host::create(bed.fabric(0), attr, &host) == -EINVAL, "accepted: %s", text);
        CHECK(gic::error_text() == text, "said: %s", gic::error_text().c_str());
    };
    refused({0, 64, 1, 1, 0, false, false}, "rings=0: allowed are 1..32");
    refused({33, 64, 1, 1, 0, false, false}, "rings=33: allowed are 1..32");
    refused({1, 32, 1, 1, 0, false, false}, "ring_depth=32: allowed are 64..65536");
    refused({1, 96, 1, 1, 0, false, false}, "ring_depth=96: not a power of two");
    refused({1, 64, 9, 1, 0, false, false}, "workers=9: allowed are 1..8");
    refused({1, 64, 1, 17, 0, false, false}, "batch=17: allowed are 1..16");
    refused({1, 64, 1, 1, 973, false, false}, "inline=973: allowed are 0..972");
    refused({1, 64, 1, 1, 0, false, false, false, 1, 10001}, "rest_ns=10001: allowed are 0..10000");
    refused({1, 64, 2, 1, 0, false, false}, "1 QPs per peer for 2 workers: each worker needs 1");
}

} // namespace

int main() {
    test_attributes();
    test_arguments();
    test_inline();
    test_fence();
    test_operations<Handoff::tuned>(220);
    test_operations<Handoff::baseline>(972);
    test_operations<Handoff::tuned>(0);
    test_signal_and_wait<Handoff::tuned>();
    test_signal_and_wait<Handoff::baseline>();
    test_wrap<Handoff::tuned>();
    test_wrap<Handoff::baseline>();
    test_chains();
    test_held();
    test_full_ring();
    test_order<Handoff::tuned>(4, {4, 64, 1, 4, 220, false, false});
    test_order<Handoff::tuned>(6, {8, 64, 3, 16, 220, false, false});
    test_order<Handoff::baseline>(6, {2, 128, 2, 3, 220, false, true});
    test_order<Handoff::tuned>(6, {8, 64, 2, 4, 220, false, false, false, 3}); // rings dealt to several QPs
    test_order<Handoff::tuned>(
        4, {4, 64, 1, 4, 220, false, false, false, 1, 500}); // rings left alone now and then
    test_fetch_add<Handoff::tuned>(4, kDefault);
    test_fetch_add<Handoff::baseline>(6, {2, 64, 2, 4, 220, false, true});
    printf("ok\n");
    return 0;
}
