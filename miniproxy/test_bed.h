// Ranks of one test process: fabrics joined by a comm of threads, and a proxy on each.
#ifndef MINIPROXY_TEST_BED_H
#define MINIPROXY_TEST_BED_H

#include "miniproxy/check.h"
#include "miniproxy/proxy_host.h"

#include <string.h>
#include <unistd.h>

#include <functional>
#include <thread>

namespace proxy {

class Bed {
  public:
    static constexpr uint64_t WINDOW = 1 << 16;

    // With SOFTNIC_VIRTUAL nothing moves but by pump(); with SOFTNIC_REAL the workers run.
    Bed(uint32_t ranks, const Attr &attr, enum softnic_clock clock, uint32_t sq_depth = 64,
        bool trace = false)
        : ranks_(ranks) {
        static int beds;
        if (beds == 0) {
            atexit(unlink_all);
            // The tests read the trace from the NIC; its file goes where unlink_all finds it.
            setenv("GIC_TRACE_DIR", "/dev/shm", 1);
        }
        job_ = prefix() + std::to_string(beds++);
        pthread_barrier_init(&barrier_, nullptr, ranks);
        gathered_.resize(ranks);
        everyone([&](Rank &r) {
            struct gic_kv nic[] = {{"engine", "cpu"}, {"profile", "none"},  {"threads", "1"},
                                   {"watch", "dbr"},  {"doorbell", "host"}, {"trace", trace ? "on" : "off"}};
            struct gic_open open = {};
            r.comm = gic_comm{&r, allgather, barrier};
            open.struct_size = sizeof open;
            open.rank = (int32_t)r.index;
            open.nranks = (int32_t)ranks;
            open.job = job_.c_str();
            open.device = "host";
            open.nic = "soft";
            open.nic_config = nic;
            open.nic_config_count = sizeof nic / sizeof *nic;
            open.comm = &r.comm;
            open.stop = &stop;
            open.timeout_ns = TIMEOUT;
            ok(gda_fabric_open(&open, clock, ranks * attr.workers * attr.qps, &r.fabric));
            ok(gda_fabric_connect(r.fabric, attr.workers * attr.qps, sq_depth, sq_depth));
            ok(gda_fabric_window(r.fabric, WINDOW));
            ok(Host::create(r.fabric, attr, &r.host));
            if (clock == SOFTNIC_REAL)
                ok(r.host->start());
        });
    }
    ~Bed() {
        for (Rank &r : ranks_)
            r.host.reset();
        everyone([&](Rank &r) { gda_fabric_close(r.fabric); });
        pthread_barrier_destroy(&barrier_);
    }

    Host &host(uint32_t rank) { return *ranks_[rank].host; }
    struct gda_fabric *fabric(uint32_t rank) {
        return ranks_[rank].fabric;
    }
    uint8_t *window(uint32_t rank) { return ranks_[rank].fabric->window; }
    template <Handoff F> Handle<F> handle(uint32_t rank) { return host(rank).handle<F>(env, 1); }
    uint64_t word(uint32_t rank, uint64_t offset) {
        return __atomic_load_n((uint64_t *)(window(rank) + offset), __ATOMIC_ACQUIRE);
    }

    // VIRTUAL: sweep all workers and let the NICs finish, until nothing moves.
    void pump(uint32_t workers) {
        for (int quiet = 0; quiet < 2;) {
            size_t moved = 0;
            for (Rank &r : ranks_)
                for (uint32_t w = 0; w < workers; w++)
                    moved += r.host->step(w);
            for (Rank &r : ranks_)
                softnic_advance(r.fabric->nic, 1000);
            quiet = moved ? 0 : quiet + 1;
        }
    }
    void advance() {
        for (Rank &r : ranks_)
            softnic_advance(r.fabric->nic, 1000);
    }

    static constexpr uint64_t TIMEOUT = 20000000000; // of what must succeed
    uint32_t stop = 0;
    gic::Env env{&stop, TIMEOUT};

  private:
    struct Rank {
        Bed *bed;
        uint32_t index;
        struct gic_comm comm;
        struct gda_fabric *fabric;
        std::unique_ptr<Host> host;
    };

    static std::string prefix() { return shm_prefix("gic-proxytest-"); }
    static void unlink_all() { shm_unlink_all(prefix()); }

    static void ok(int rc) { CHECK(rc == 0, "%d: %s", rc, gic::error_text().c_str()); }

    void everyone(std::function<void(Rank &)> f) {
        std::vector<std::thread> threads;
        for (uint32_t i = 0; i < ranks_.size(); i++) {
            ranks_[i].bed = this;
            ranks_[i].index = i;
            threads.emplace_back([&, i] { f(ranks_[i]); });
        }
        for (std::thread &t : threads)
            t.join();
    }
    static int barrier(void *arg) {
        pthread_barrier_wait(&((Rank *)arg)->bed->barrier_);
        return 0;
    }
    static int allgather(void *arg, const void *mine, void *all, size_t bytes) {
        Rank *r = (Rank *)arg;
        r->bed->gathered_[r->index] = mine;
        barrier(arg);
        for (size_t i = 0; i < r->bed->gathered_.size(); i++)
            memcpy((uint8_t *)all + i * bytes, r->bed->gathered_[i], bytes);
        return barrier(arg);
    }

    std::string job_;
    std::vector<Rank> ranks_;
    pthread_barrier_t barrier_;
    std::vector<const void *> gathered_;
};

} // namespace proxy

#endif
