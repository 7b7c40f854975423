// The adapter: what it refuses, and what it says of itself. What it runs is tested by the conformance suite.
#include "backends/miniproxy/miniproxy.cu"
#include "miniproxy/check.h"

#include <unistd.h>

#include <map>

namespace {

int alone(void *, const void *mine, void *all, size_t bytes) { return memcpy(all, mine, bytes), 0; }
int no_wait(void *) { return 0; }
const struct gic_comm kAlone = {nullptr, alone, no_wait};
uint32_t stop_word;

// One rank with the given keys over their defaults.
struct gic_open open_of(std::vector<struct gic_kv> *kv, std::map<std::string, const char *> given) {
    static const struct gic_kv nic[] = {{"engine", "cpu"}, {"watch", "dbr"}};
    static std::string job = shm_prefix("gic-miniproxytest-") + "0";
    for (const struct gic_key &k : keys)
        kv->push_back(gic_kv{k.name, given.count(k.name) ? given[k.name] : k.value});
    struct gic_open open = {};
    open.struct_size = sizeof open;
    open.nranks = 1;
    open.job = job.c_str();
    open.device = "host";
    open.nic = "soft";
    open.nic_config = nic;
    open.nic_config_count = 2;
    open.config = kv->data();
    open.config_count = (uint32_t)kv->size();
    open.comm = &kAlone;
    open.stop = &stop_word;
    open.timeout_ns = 5000000000;
    return open;
}

void test_refusals() {
    struct Case {
        std::map<std::string, const char *> given;
        int status;
        const char *text;
    };
    const Case cases[] = {
        {{}, 0, ""},
        {{{"rings", "33"}}, -EINVAL, "rings=33: want an integer in 1..32"},
        {{{"workers", "0"}}, -EINVAL, "workers=0: want an integer in 1..8"},
        {{{"batch", "x"}}, -EINVAL, "batch=x: want an integer in 1..16"},
        {{{"ring_depth", "96"}}, -EINVAL, "ring_depth=96: want a power of two"},
        {{{"depth", "65"}}, -EINVAL, "depth=65: want a power of two"},
        {{{"handoff", "fast"}}, -EINVAL, "handoff=fast: want one of baseline|tuned"},
        {{{"ring_mode", "shared"}},
         -EINVAL,
         "handoff=tuned with ring_mode=shared: a tuned ring has one producer; want ring_mode=private or "
         "handoff=baseline"},
        {{{"ring_mode", "shared"}, {"handoff", "baseline"}}, 0, ""},
        {{{"workers", "8"}, {"rings", "4"}}, -EINVAL, "workers=8 with rings=4: each worker needs a ring"},
        {{{"counter", "gpu"}}, -ENOTSUP, "counter=gpu: the CPU has no mapping of GPU memory without GDRCopy"},
    };
    for (const Case &c : cases) {
        std::vector<struct gic_kv> kv;
        struct gic_open open = open_of(&kv, c.given);
        gic::error_text().clear();
        int rc = gic_backend_v1.probe(&open);
        CHECK(rc == c.status && strcmp(gic_backend_v1.last_error(), c.text) == 0, "status %d, said: %s", rc,
              gic_backend_v1.last_error());
        struct gic_session *s = nullptr;
        if (c.status)
            CHECK(gic_backend_v1.open(&open, &s) == c.status && !s, "open takes what probe refuses");
    }
}

void test_session(const char *batch, bool exact) {
    std::vector<struct gic_kv> kv;
    struct gic_open open = open_of(&kv, {{"batch", batch}, {"rings", "4"}, {"workers", "2"}});
    const struct gic_backend &b = gic_backend_v1;
    struct gic_session *s = nullptr;
    CHECK(b.open(&open, &s) == 0, "%s", b.last_error());
    struct gic_run run = {sizeof run, "nothing", nullptr, 0, nullptr, 0};
    struct gic_result result = {};
    CHECK(b.run(s, &run, &result) == -EINVAL && !strcmp(b.last_error(), "run before window"), "%s",
          b.last_error());
    CHECK(b.window(s, 4096) == 0, "%s", b.last_error());
    CHECK(b.run(s, &run, &result) == -ENOTSUP, "an unknown workload runs");
    CHECK(b.window(s, ((uint64_t)1 << 40) + 1) == -EINVAL, "a window beyond a descriptor's reach");
    CHECK(prepare(s, 4, false) == 0 && prepare(s, 5, false) == -ENOTSUP, "agents and rings");
    CHECK(!strcmp(b.last_error(), "ring_mode=private: 5 device threads for rings=4; want a ring for each"),
          "%s", b.last_error());

    // One put by hand: what the counters then say, and which of them another run must repeat.
    {
        proxy::Handle<Handoff::tuned> h = s->host->handle<Handoff::tuned>(s->env, 1);
        proxy::Handle<Handoff::tuned>::Agent a(h, gic::Self{0, 1, 0, 1});
        CHECK(a.put(0, 0, 64, 8) == 0 && a.signal(0, 128, 1) == 0 && a.quiet() == 0, "put");
    }
    const struct gic_counter *list;
    uint32_t count;
    CHECK(b.counters(s, &list, &count) == 0, "%s", b.last_error());
    std::map<std::string, struct gic_counter> by_name;
    for (uint32_t i = 0; i < count; i++)
        by_name[list[i].name] = list[i];
    for (const char *name : {"wqes", "descriptors"})
        CHECK(by_name[name].value == 2 && by_name[name].exact, "%s", name);
    for (const char *name : {"wqe_write", "wqe_write_inline", "wqe_atomic", "qps_used"})
        CHECK(by_name[name].value == 1 && by_name[name].exact, "%s", name);
    for (const char *name : {"doorbells", "cqes"})
        CHECK(by_name[name].value >= 1 && by_name[name].exact == exact, "batch %s: %s", batch, name);

    const struct gic_kv *facts_list;
    CHECK(b.facts(s, &facts_list, &count) == 0, "%s", b.last_error());
    for (const struct gic_kv &want : std::vector<struct gic_kv>{{"rings", "4"},
                                                                {"workers", "2"},
                                                                {"qps", "2"},
                                                                {"ring_mode", "private"},
                                                                {"counter", "host"},
                                                                {"runnable_threads", "7"}}) {
        const char *got = gic::kv_find(facts_list, count, want.key);
        CHECK(got && !strcmp(got, want.value), "%s=%s, want %s", want.key, got ? got : "", want.value);
    }
    b.close(s);
}

// The record says of each launch whether the NIC was held in it: hold=on is not for every workload.
void test_hold() {
    for (const char *hold : {"off", "on"}) {
        std::vector<struct gic_kv> kv;
        struct gic_open open = open_of(&kv, {{"hold", hold}});
        struct gic_session *s = nullptr;
        CHECK(gic_backend_v1.open(&open, &s) == 0, "%s", gic_backend_v1.last_error());
        CHECK(gic_backend_v1.window(s, 4096) == 0, "%s", gic_backend_v1.last_error());
        for (const bool posts : {true, false}) {
            CHECK(prepare(s, 1, posts) == 0 && finish(s, gic::OK) == 0, "%s", gic_backend_v1.last_error());
            const struct gic_kv *list;
            uint32_t count;
            CHECK(gic_backend_v1.facts(s, &list, &count) == 0, "%s", gic_backend_v1.last_error());
            const char *got = gic::kv_find(list, count, "hold"), *want = posts ? hold : "off";
            CHECK(got && !strcmp(got, want), "hold=%s: fact %s, want %s", hold, got ? got : "", want);
        }
        gic_backend_v1.close(s);
    }
}

} // namespace

int main() {
    atexit([] { shm_unlink_all(shm_prefix("gic-miniproxytest-")); });
    test_refusals();
    test_session("1", true);
    test_session("16", false);
    test_hold();
    printf("ok\n");
    return 0;
}
