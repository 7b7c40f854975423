// mini-gda against running engines: several threads on a queue, several ranks in one process and in several, error
// CQEs, and the held NIC of order=none.
#include "minigda/gda_test.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

using namespace gda_test;

namespace {

constexpr uint64_t guard = 4096, payload = 1 << 16; // window: guard, sources, guard, targets, guard, counters
constexpr uint64_t src_at = guard, dst_at = src_at + payload + guard, word_at = dst_at + payload + guard;
constexpr uint64_t window_bytes = word_at + 4096;

uint8_t pattern(uint32_t rank, uint64_t i) { return (uint8_t)(i * 131 + (i >> 8) * 17 + rank * 59 + 1); }

void fill(uint8_t *w, uint32_t rank) {
    memset(w, 0xa5, window_bytes);
    for (uint64_t i = 0; i < payload; i++)
        w[src_at + i] = pattern(rank, i);
    memset(w + word_at, 0, 4096);
}
// The first `bytes` of the targets came from `from`, the rest and the guards are untouched.
void verify(const uint8_t *w, uint32_t from, uint64_t bytes, const std::string &what) {
    uint64_t wrong = 0, first = 0;
    for (uint64_t i = src_at + payload; i < word_at; i++) {
        const bool target = i >= dst_at && i < dst_at + bytes;
        const uint8_t want = target ? pattern(from, i - dst_at) : (uint8_t)0xa5;
        if (w[i] != want && wrong++ == 0)
            first = i;
    }
    for (uint64_t i = 0; i < guard; i++)
        wrong += w[i] != 0xa5;
    CHECK(wrong == 0, "%s: %llu wrong bytes, first at %llu", what.c_str(), (unsigned long long)wrong,
          (unsigned long long)first);
}

// Each agent moves its own share of the targets in `size` byte puts and adds 1 to a counter behind each.
struct Share {
    gda_attr a;
    uint32_t agents, size;

    template <gda_order O, gda_sharing S> int operator()() const {
        const std::string what = "order " + std::to_string((int)a.order) + " sharing " +
                                 std::to_string((int)a.sharing) + " agents " + std::to_string(agents) +
                                 " qps " + std::to_string(a.qps) + " batch " + std::to_string(a.batch) +
                                 " size " + std::to_string(size) + " inline " + std::to_string(a.inline_max);
        Rig rig(2, a, SOFTNIC_REAL, window_bytes);
        fill(rig.window(0), 0);
        fill(rig.window(1), 1);
        const uint32_t each = (uint32_t)(payload / size / agents); // messages of one agent
        MUST((rig.run<O, S>(0, agents, [&](const gda_handle<O, S> &h, gic::Self self) {
            typename gda_handle<O, S>::Agent agent(h, self);
            for (uint32_t i = 0; i < each; i++) {
                const uint64_t at = (uint64_t)size * (self.agent * each + i);
                if (int s = agent.put_signal(1, dst_at + at, src_at + at, size, word_at, 1))
                    return s;
            }
            return agent.flush(1);
        })));
        const uint64_t n = (uint64_t)each * agents, per_agent = 2ull * each, every = a.signal_every;
        const uint64_t nops = agents * (per_agent % every != 0);
        verify(rig.window(1), 0, (uint64_t)size * n, what);
        const uint64_t seen = *(volatile uint64_t *)(rig.window(1) + word_at);
        CHECK(seen == n, "%s: %llu signals of %llu", what.c_str(), (unsigned long long)seen,
              (unsigned long long)n);
        const struct {
            const char *name;
            uint64_t want;
        } rows[] = {{"wqe_write", n},
                    {"wqe_write_inline", size <= a.inline_max ? n : 0},
                    {"wqe_atomic", n},
                    {"wqe_nop", nops},
                    {"cqes", agents * (per_agent / every) + nops},
                    {"error_cqes", 0},
                    {"qps_used", agents < a.qps ? agents : a.qps}};
        for (const auto &r : rows)
            CHECK(rig.count(0, r.name) == r.want, "%s: %s is %llu, want %llu", what.c_str(), r.name,
                  (unsigned long long)rig.count(0, r.name), (unsigned long long)r.want);
        CHECK(rig.count(0, "doorbells") >= rig.count(0, "doorbells_seen"),
              "%s: the NIC saw doorbells nobody rang", what.c_str());
        return 0;
    }
};

void check_sharing() {
    for (uint32_t sharing = 0; sharing < (uint32_t)gda_sharing::bare; sharing++)
        for (uint32_t batch : {1u, 16u})
            for (uint32_t size : {8u, 200u}) {
                gda_attr a = defaults();
                a.sharing = (gda_sharing)sharing;
                a.qps = gda_exclusive(a.sharing) ? 8 : batch == 1 ? 1 : 2;
                a.batch = batch;
                a.signal_every = batch == 1 ? 1 : 3;
                a.depth = 128; // 16,384 WQEs: every queue comes round
                a.inline_max = size == 200 && batch == 1 ? 256 : 28;
                gda_dispatch(a, Share{a, 8, size});
            }
}

// Indices count on over 2^32: the queues begin one round of the NIC's 16 bits below.
struct Over {
    gda_attr a;

    template <gda_order O, gda_sharing S> int operator()() const {
        const std::string what = "over 2^32, sharing " + std::to_string((int)a.sharing);
        constexpr uint32_t start = 0u - 65536, posts = 65536 + 500;
        Rig rig(2, a, SOFTNIC_REAL, window_bytes);
        fill(rig.window(0), 0);
        fill(rig.window(1), 1);
        MUST(gda_begin(rig.g[0], 1)); // makes the places
        MUST(gda_end(rig.g[0], 0));
        for (size_t i = 0; i < rig.g[0]->fabric->qps.size(); i++) {
            gda_queue &q = rig.g[0]->queues[i];
            gda_cursor &c = rig.g[0]->cursors[i];
            q.reserved = q.rung = q.cons = q.signaled = start;
            q.turn = gda_turn_word(start, 0);
            c.next = c.cons = c.last = c.signaled = start;
        }
        MUST((rig.run<O, S>(0, 1, [&](const gda_handle<O, S> &h, gic::Self self) {
            typename gda_handle<O, S>::Agent agent(h, self);
            for (uint32_t i = 0; i < posts; i++)
                if (int s =
                        agent.put(1, dst_at + 8 * (i % (payload / 8)), src_at + 8 * (i % (payload / 8)), 8))
                    return s;
            return agent.flush(1);
        })));
        verify(rig.window(1), 0, payload, what);
        CHECK(rig.count(0, "wqe_write") == posts, "%s: %llu writes", what.c_str(),
              (unsigned long long)rig.count(0, "wqe_write"));
        return 0;
    }
};
void check_over() {
    for (uint32_t sharing = 0; sharing < (uint32_t)gda_sharing::bare; sharing++) {
        gda_attr a = defaults();
        a.sharing = (gda_sharing)sharing;
        a.batch = 8;
        gda_dispatch(a, Over{a});
    }
}

// A launch of bare agents that fits the queue is delivered and counted like any other.
template <gda_sharing S> void check_bare() {
    gda_attr a = defaults();
    a.sharing = S;
    a.batch = 16;
    a.depth = 1024;
    Rig rig(2, a, SOFTNIC_REAL, window_bytes);
    fill(rig.window(0), 0);
    fill(rig.window(1), 1);
    constexpr uint32_t posts = 992; // of 8 bytes, and a rest that fills no batch
    using H = gda_handle<gda_order::gpu_fence, S>;
    MUST((rig.run<gda_order::gpu_fence, S>(0, 1, [&](const H &h, gic::Self self) {
        typename H::Agent agent(h, self);
        for (uint32_t i = 0; i < posts; i += h.lanes)
            if (int s = agent.put_each(1, h.lanes, [&](uint32_t l) {
                    return gic::Message{dst_at + 8 * (i + l), src_at + 8 * (i + l), 8};
                }))
                return s;
        for (uint32_t i = 0; i < 3; i++)
            if (int s = agent.put_value(1, word_at, i + 1, 8))
                return s;
        return agent.flush(1);
    })));
    verify(rig.window(1), 0, 8 * posts, "bare");
    CHECK(*(volatile uint64_t *)(rig.window(1) + word_at) == 3, "bare: the last value");
    CHECK(rig.count(0, "cqes") == posts + 3, "bare: every WQE has its CQE");
    a.batch = 12;
    CHECK(gda_check(&a) == -EINVAL, "bare with a batch that is no power of two");
}

// A host thread rings for several agents; the NIC is woken by nothing else.
void check_ringer() {
    for (uint32_t batch : {1u, 8u}) {
        gda_attr a = defaults();
        a.host_rings = true;
        a.qps = 4;
        a.batch = batch;
        a.order = gda_order::sys_release;
        gda_dispatch(a, Share{a, 4, 8});
    }
}

// Every rung, 131,072 WQEs through 64 blocks.
void check_orders() {
    for (uint32_t order = 0; order < (uint32_t)gda_order::runtime; order++) {
        gda_attr a = defaults();
        a.order = (gda_order)order;
        a.batch = 16;
        a.signal_every = 4;
        a.depth = 64;
        gda_dispatch(a, Share{a, 1, order == 0 ? 8u : 1u});
    }
}

// Warps that post groups together, several on one queue.
template <gda_sharing S> void check_groups() {
    gda_attr a = defaults();
    a.sharing = S;
    a.depth = 256;
    a.signal_every = 8;
    Rig rig(2, a, SOFTNIC_REAL, window_bytes);
    fill(rig.window(0), 0);
    fill(rig.window(1), 1);
    using H = gda_handle<gda_order::runtime, S>;
    const uint32_t warps = 4, groups = (uint32_t)(payload / 16 / 32 / warps);
    MUST((rig.run<gda_order::runtime, S>(0, warps, [&](const H &h, gic::Self self) {
        typename H::Agent agent(h, self);
        for (uint32_t r = 0; r < groups; r++)
            if (int s = agent.put_each(1, 32, [&](uint32_t i) {
                    const uint64_t at = 16ull * ((self.agent * groups + r) * 32 + i);
                    return gic::Message{dst_at + at, src_at + at, 16};
                }))
                return s;
        return (int)gic::OK;
    })));
    verify(rig.window(1), 0, payload, "groups");
    CHECK(rig.count(0, "wqe_write") == payload / 16, "every message is one write");
    CHECK(rig.count(0, "cqes") == payload / 16 / 8, "every 8th of each warp's is signaled");
}

// Two ranks echo: an 8-byte word, a payload with a word behind it, a payload with a signal; then a get, and
// fetch_adds whose old values are all different.
template <class H> int echo(const H &h, gic::Self self, bool both_ways) {
    typename H::Agent agent(h, self);
    const uint32_t peer = 1 - h.rank;
    for (uint64_t n = 1; n <= 300; n++) {
        const uint64_t at = (n - 1) * 200, sig = word_at + 8 * (n % 3);
        auto announce = [&]() -> int {
            if (n % 3 == 0)
                return agent.notify(peer, 0, 0, 8, sig, n);
            if (n % 3 == 1)
                return agent.notify(peer, dst_at + at, src_at + at, 200, sig, n);
            return agent.put_signal(peer, dst_at + at, src_at + at, 200, sig, 3);
        };
        const uint64_t expected = n % 3 == 2 ? n + 1 : n; // the signal's word grows by 3 from 0
        if (h.rank == 0) {
            if (int s = announce())
                return s;
            if (int s = agent.ring())
                return s;
        }
        if (int s = agent.wait(sig, expected))
            return s;
        agent.gpu_visible();
        if (n % 3 != 0)
            for (uint64_t i = 0; i < 200; i++)
                if (h.window[dst_at + at + i] != pattern(peer, at + i))
                    return gic::ERR_INVAL; // announced before it was there
        if (h.rank == 1) {
            if (int s = announce())
                return s;
            if (int s = agent.ring())
                return s;
        }
    }
    if (!both_ways)
        return agent.quiet();
    if (int s = agent.get(peer, dst_at + 61000, src_at + 1000, 3000))
        return s;
    if (int s = agent.flush(peer))
        return s;
    for (uint64_t i = 0; i < 3000; i++)
        if (h.window[dst_at + 61000 + i] != pattern(peer, 1000 + i))
            return gic::ERR_INVAL;
    for (uint64_t i = 0; i < 50; i++) {
        uint64_t old = ~0ull;
        if (int s = agent.fetch_add(peer, word_at + 64, 5, &old))
            return s;
        if (old != 5 * i)
            return gic::ERR_INVAL;
    }
    return agent.quiet();
}

void check_echo() {
    for (const char *watch : {"bell", "dbr"})
        for (uint32_t batch : {1u, 4u})
            for (uint32_t inline_max : {0u, 28u}) {
                gda_attr a = defaults();
                a.batch = batch;
                a.signal_every = batch;
                a.inline_max = inline_max;
                Rig rig(2, a, SOFTNIC_REAL, window_bytes, {{"watch", watch}, {"threads", "2"}});
                fill(rig.window(0), 0);
                fill(rig.window(1), 1);
                using H = gda_handle<gda_order::gpu_fence, gda_sharing::exclusive>;
                on_all(2, [&](uint32_t rank) {
                    MUST((rig.run<gda_order::gpu_fence, gda_sharing::exclusive>(
                        rank, 1, [](const H &h, gic::Self self) { return echo(h, self, true); })));
                });
                CHECK(rig.count(0, "wqe_read") == 1 && rig.count(0, "wqe_atomic") == 150,
                      "reads and atomics");
                CHECK(rig.count(0, "wqe_write") == 100 + 200 + 100,
                      "writes: words, payloads with words, payloads");
                CHECK(rig.count(0, "doorbells") >= 300, "an echo cannot share a doorbell");
            }
}

struct PutOnce {
    Rig *rig;
    uint64_t dst;

    template <gda_order O, gda_sharing S> int operator()() const {
        return rig->run<O, S>(0, 1, [&](const gda_handle<O, S> &h, gic::Self self) {
            gda_agent<O, S> agent(h, self);
            if (int s = agent.put(1, dst, src_at, 8))
                return s;
            return agent.flush(1);
        });
    }
};

// A put past the peer's window: an error CQE with its syndrome in the text; then the queues work again.
void check_error() {
    for (uint32_t sharing = 0; sharing < (uint32_t)gda_sharing::bare; sharing++) {
        gda_attr a = defaults();
        a.sharing = (gda_sharing)sharing;
        Rig rig(2, a, SOFTNIC_REAL, window_bytes);
        auto attempt = [&](uint64_t dst) { return gda_dispatch(a, PutOnce{&rig, dst}); };
        fill(rig.window(0), 0);
        fill(rig.window(1), 1);
        for (int round = 0; round < 2; round++) {
            CHECK(attempt(window_bytes + (1 << 20)) == gic::ERR_IO, "sharing %u: no error", sharing);
            CHECK(gic::error_text().find("syndrome 0x13 (remote access error)") != std::string::npos,
                  "sharing %u: \"%s\"", sharing, gic::error_text().c_str());
            MUST(attempt(dst_at));
        }
        verify(rig.window(1), 0, 8, "after an error");
        CHECK(rig.count(0, "error_cqes") == 2, "one error CQE each");
    }
}

// order=none: nothing is served while a kernel only posts; a flush lets the NIC run, and holds it again.
void check_held() {
    gda_attr a = defaults();
    a.order = gda_order::none;
    a.depth = 256;
    Rig rig(2, a, SOFTNIC_REAL, window_bytes);
    fill(rig.window(0), 0);
    fill(rig.window(1), 1);
    using H = gda_handle<gda_order::none, gda_sharing::exclusive>;
    const struct timespec nap = {0, 3000000};
    MUST((rig.run<gda_order::none, gda_sharing::exclusive>(0, 1, [&](const H &h, gic::Self self) {
        H::Agent agent(h, self);
        for (uint32_t round = 0; round < 4; round++) {
            for (uint64_t i = 0; i < 64; i++)
                if (int s = agent.put(1, dst_at + 8 * (64 * round + i), src_at + 8 * (64 * round + i), 8))
                    return s;
            nanosleep(&nap, nullptr);
            CHECK(rig.count(0, "wqes") == 64 * round, "round %u: the NIC read a queue that nothing orders",
                  round);
            if (int s = agent.flush(1))
                return s;
            CHECK(rig.count(0, "wqes") == 64 * (round + 1), "round %u: flush", round);
        }
        return (int)gic::OK;
    })));
    verify(rig.window(1), 0, 64 * 4 * 8, "held");
    gic::Facts facts;
    gda_facts(rig.g[0], &facts);
    const gic_kv *kv;
    uint32_t n;
    facts.publish(&kv, &n);
    const char *unsafe = gic::kv_find(kv, n, "unsafe");
    CHECK(unsafe && strcmp(unsafe, "order=none") == 0, "not marked unsafe");
}

// What makes no sense is refused with both numbers.
void check_refusals() {
    gda_attr a = defaults();
    a.qps = 2;
    Rig rig(1, a, SOFTNIC_VIRTUAL, window_bytes);
    CHECK(gda_begin(rig.g[0], 3) == -ENOTSUP, "3 agents on 2 exclusive QPs");
    CHECK(gic::error_text().find("3 device threads but qps=2") != std::string::npos, "\"%s\"",
          gic::error_text().c_str());
    a = defaults();
    a.batch = 64;
    CHECK(gda_check(&a) == -EINVAL, "a batch as deep as the queue");
    a = defaults();
    a.depth = 96;
    CHECK(gda_check(&a) == -EINVAL, "a depth that is no power of two");
    a = defaults();
    a.sharing = gda_sharing::lock;
    a.signal_every = 16;
    Rig shared(1, a, SOFTNIC_VIRTUAL, window_bytes);
    MUST(gda_begin(shared.g[0], 3));
    CHECK(gda_begin(shared.g[0], 5) == -ENOTSUP, "5 sharers with 15 unsignaled WQEs each in 64 blocks");
    a = defaults();
    a.sharing = gda_sharing::block_lock;
    a.qps = GDA_BLOCK_QUEUES / 2;
    CHECK(gda_check(&a, 2) == 0, "as many queues as a block takes");
    CHECK(gda_check(&a, 3) == -EINVAL, "more queues than a block takes");
    CHECK(gic::error_text().find("lock=block: 32 queue pairs to each of 3 ranks") == 0, "\"%s\"",
          gic::error_text().c_str());
}

// gic_comm among forked processes.
struct SharedComm {
    pthread_barrier_t barrier;
    uint8_t data[1 << 16];
};
struct ProcessComm {
    SharedComm *shared;
    uint32_t rank, n;
};
int process_meet(void *arg) {
    pthread_barrier_wait(&((ProcessComm *)arg)->shared->barrier);
    return 0;
}
int process_gather(void *arg, const void *mine, void *all, size_t bytes) {
    ProcessComm *c = (ProcessComm *)arg;
    if (bytes * c->n > sizeof c->shared->data)
        return -EMSGSIZE;
    memcpy(c->shared->data + bytes * c->rank, mine, bytes);
    process_meet(arg);
    memcpy(all, c->shared->data, bytes * c->n);
    process_meet(arg);
    return 0;
}

int rank_process(SharedComm *shared, uint32_t rank, const char *job) {
    ProcessComm pc{shared, rank, 2};
    const gic_comm comm{&pc, process_gather, process_meet};
    const volatile uint32_t stop = 0;
    gic_open open{};
    open.rank = (int32_t)rank;
    open.nranks = 2;
    open.job = job;
    open.device = "host";
    open.nic = "soft";
    open.comm = &comm;
    open.stop = &stop;
    open.timeout_ns = 20000000000ull;
    const gda_attr a = defaults();
    gda_fabric *fabric;
    gda *g;
    MUST(gda_fabric_open(&open, SOFTNIC_REAL, 2, &fabric));
    MUST(gda_open(fabric, &open, &a, &g));
    for (uint64_t bytes : {window_bytes / 2, window_bytes}) // the second replaces the first
        MUST(gda_window(g, bytes));
    fill(g->fabric->window, rank);
    process_meet(&pc);
    MUST(gda_begin(g, 1));
    using H = gda_handle<gda_order::gpu_fence, gda_sharing::exclusive>;
    const H h = gda_handle_of<gda_order::gpu_fence, gda_sharing::exclusive>(g);
    MUST(gda_end(g, gic::launch_host(1, 1, [&](gic::Self self) { return echo(h, self, false); })));
    process_meet(&pc);
    uint8_t *w = g->fabric->window;
    for (uint64_t n = 3; n <= 300; n += 3) // the turns that carry a word only leave their targets alone
        for (uint64_t i = 0; i < 200; i++) {
            CHECK(w[dst_at + (n - 1) * 200 + i] == 0xa5, "rank %u: byte of turn %u", rank, (uint32_t)n);
            w[dst_at + (n - 1) * 200 + i] = pattern(1 - rank, (n - 1) * 200 + i);
        }
    verify(w, 1 - rank, 60000, "processes");
    gda_close(g);
    return failures() != 0;
}

void check_processes() {
    auto *shared = (SharedComm *)mmap(nullptr, sizeof(SharedComm), PROT_READ | PROT_WRITE,
                                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t attr;
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->barrier, &attr, 2);
    atexit(sweep);
    const std::string job = "gic-gdafork-" + std::to_string(getpid());
    pid_t pids[2];
    for (uint32_t rank = 0; rank < 2; rank++)
        if ((pids[rank] = fork()) == 0)
            _exit(rank_process(shared, rank, job.c_str()));
    for (pid_t pid : pids) {
        int status = 0;
        waitpid(pid, &status, 0);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "rank process ended with %d", status);
    }
    munmap(shared, sizeof *shared);
}

} // namespace

int main() {
    check_processes(); // first: no threads yet
    check_echo();
    check_sharing();
    check_orders();
    check_groups<gda_sharing::warp>();
    check_groups<gda_sharing::block_warp>();
    check_over();
    check_ringer();
    check_bare<gda_sharing::bare>();
    check_bare<gda_sharing::bare_group>();
    check_error();
    check_held();
    check_refusals();
    return failures() != 0;
}
