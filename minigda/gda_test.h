// Test rig: the ranks of one case in this process, over one softnic each.
//
// Real time: engines run on their threads, kernels on launch_host's. Virtual time: nothing moves until step(),
// so a test on one thread is deterministic.
#ifndef MINIGDA_GDA_TEST_H
#define MINIGDA_GDA_TEST_H

#include "minigda/gda.h"

#include <functional>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

namespace gda_test {

inline int &failures() {
    static int n;
    return n;
}
#define CHECK(cond, ...)                                                                                     \
    do {                                                                                                     \
        if (!(cond)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #cond);                                       \
            fprintf(stderr, __VA_ARGS__);                                                                    \
            fprintf(stderr, "\n");                                                                           \
            __atomic_fetch_add(&gda_test::failures(), 1, __ATOMIC_RELAXED);                                  \
        }                                                                                                    \
    } while (0)
#define MUST(call)                                                                                           \
    do {                                                                                                     \
        if (int rc_ = (call)) {                                                                              \
            fprintf(stderr, "%s:%d: %s: %d: %s\n", __FILE__, __LINE__, #call, rc_,                           \
                    gic::error_text().c_str());                                                              \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

// gic_comm among threads of this process.
class Comm {
  public:
    explicit Comm(uint32_t n) : ranks_(n), n_(n) {
        pthread_barrier_init(&barrier_, nullptr, n);
        for (uint32_t i = 0; i < n; i++)
            ranks_[i] = Rank{this, i, {&ranks_[i], gather, meet}};
    }
    ~Comm() { pthread_barrier_destroy(&barrier_); }
    const gic_comm *of(uint32_t rank) const { return &ranks_[rank].comm; }

  private:
    struct Rank {
        Comm *all;
        uint32_t rank;
        gic_comm comm;
    };
    static int gather(void *arg, const void *mine, void *all, size_t bytes) {
        Rank *r = (Rank *)arg;
        Comm *c = r->all;
        if (r->rank == 0)
            c->data_.resize(bytes * c->n_);
        pthread_barrier_wait(&c->barrier_);
        memcpy(c->data_.data() + bytes * r->rank, mine, bytes);
        pthread_barrier_wait(&c->barrier_);
        memcpy(all, c->data_.data(), bytes * c->n_);
        pthread_barrier_wait(&c->barrier_);
        return 0;
    }
    static int meet(void *arg) {
        pthread_barrier_wait(&((Rank *)arg)->all->barrier_);
        return 0;
    }
    std::vector<Rank> ranks_;
    uint32_t n_;
    pthread_barrier_t barrier_;
    std::vector<uint8_t> data_;
};

// A test that gives up midway leaves its NICs' shared memory: this takes it away when the process ends.
inline void sweep() {
    const std::string pid = std::to_string(getpid());
    for (const char *kind : {"gdatest", "gdafork"}) {
        glob_t found;
        const std::string pattern = std::string("/dev/shm/gic-") + kind + "-" + pid + "*";
        if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
            for (size_t i = 0; i < found.gl_pathc; i++)
                unlink(found.gl_pathv[i]);
        globfree(&found);
    }
}

inline gda_attr defaults() {
    gda_attr a{};
    a.order = gda_order::gpu_fence;
    a.sharing = gda_sharing::exclusive;
    a.scope = gda_scope::qp;
    a.qps = 1;
    a.batch = 1;
    a.signal_every = 1;
    a.depth = 64;
    a.inline_max = GDA_INLINE_ONE_BLOCK;
    return a;
}

// f(rank) on one thread per rank, at once.
inline void on_all(uint32_t n, const std::function<void(uint32_t)> &f) {
    struct Arg {
        const std::function<void(uint32_t)> *f;
        uint32_t rank;
        pthread_t thread;
    };
    std::vector<Arg> args(n);
    for (uint32_t i = 0; i < n; i++) {
        args[i] = Arg{&f, i, {}};
        pthread_create(
            &args[i].thread, nullptr,
            [](void *a) -> void * {
                (*((Arg *)a)->f)(((Arg *)a)->rank);
                return nullptr;
            },
            &args[i]);
    }
    for (Arg &a : args)
        pthread_join(a.thread, nullptr);
}

class Rig {
  public:
    Rig(uint32_t n, const gda_attr &attr, enum softnic_clock clock, uint64_t window,
        std::vector<gic_kv> nic = {}, uint64_t timeout_ns = 20000000000ull)
        : comm_(n), g(n), clock_(clock) {
        static int serial = (atexit(sweep), 0);
        job_ = "gic-gdatest-" + std::to_string(getpid()) + "-" + std::to_string(serial++);
        on_all(n, [&](uint32_t rank) {
            gic_open open{};
            open.struct_size = sizeof open;
            open.rank = (int32_t)rank;
            open.nranks = (int32_t)n;
            open.job = job_.c_str();
            open.device = "host";
            open.nic = "soft";
            open.nic_config = nic.data();
            open.nic_config_count = (uint32_t)nic.size();
            open.comm = comm_.of(rank);
            open.stop = &stop;
            open.timeout_ns = timeout_ns;
            gda_fabric *fabric;
            MUST(gda_fabric_open(&open, clock, n * attr.qps, &fabric));
            MUST(gda_open(fabric, &open, &attr, &g[rank]));
            MUST(gda_window(g[rank], window));
        });
    }
    ~Rig() {
        on_all((uint32_t)g.size(), [&](uint32_t rank) { gda_close(g[rank]); });
    }
    Rig(const Rig &) = delete;

    // One kernel on one rank: kernel(handle, self) -> status, as many agents as asked for.
    template <gda_order O, gda_sharing S, class F> int run(uint32_t rank, uint32_t agents, F kernel) {
        if (int rc = gda_begin(g[rank], agents))
            return rc;
        const auto h = gda_handle_of<O, S>(g[rank]);
        int rc = gic::launch_host(agents, h.lanes, [&](gic::Self self) {
            int status = kernel(h, self);
            if (status == gic::OK && clock_ == SOFTNIC_REAL) {
                typename gda_handle<O, S>::Agent agent(h, self);
                status = agent.quiet();
            }
            return status;
        });
        return gda_end(g[rank], rc);
    }
    void step(uint64_t ns = 1000) {
        for (gda *r : g)
            softnic_advance(r->fabric->nic, ns);
    }
    uint8_t *window(uint32_t rank) { return g[rank]->fabric->window; }
    uint64_t count(uint32_t rank, const char *name) {
        gic::Counters c;
        gda_counters(g[rank], &c);
        const gic_counter *list;
        uint32_t n;
        c.publish(&list, &n);
        for (uint32_t i = 0; i < n; i++)
            if (strcmp(list[i].name, name) == 0)
                return list[i].value;
        CHECK(false, "no counter %s", name);
        return ~0ull;
    }

  private:
    Comm comm_;

  public:
    std::vector<gda *> g;
    volatile uint32_t stop = 0;

  private:
    enum softnic_clock clock_;
    std::string job_;
};

} // namespace gda_test

#endif
