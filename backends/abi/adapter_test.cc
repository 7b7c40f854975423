// Configuration glue of the adapters: which values pass, and what a refusal says.
#include "backends/abi/adapter.cuh"
#include "backends/abi/check.h"
#include "backends/abi/probe.h"
#include "backends/abi/share.h"

#include <algorithm>

namespace {

const gic_key keys[] = {
    {"n", "4", "1..256", ""}, {"mode", "bb", "a|bb|bbb", ""}, {"free", "", "", ""}, {"one", "x", "x", ""}};

int check(std::vector<gic_kv> given) {
    gic_open open{};
    open.config = given.data();
    open.config_count = (uint32_t)given.size();
    return gic::Config(keys, 4, &open).check();
}

void check_values() {
    const struct {
        const char *key, *value;
        bool good;
    } cases[] = {
        {"n", "1", true},        {"n", "256", true},
        {"n", "0", false},       {"n", "257", false},
        {"n", "", false},        {"n", "-1", false},
        {"n", " 1", false},      {"n", "1 ", false},
        {"n", "+1", false},      {"n", "0x10", false},
        {"n", "1..2", false},    {"n", "99999999999999999999", false},
        {"mode", "a", true},     {"mode", "bb", true},
        {"mode", "bbb", true},   {"mode", "b", false},
        {"mode", "", false},     {"mode", "a|bb", false},
        {"mode", "|", false},    {"mode", "a|bb|bbb", false},
        {"mode", "bbbb", false}, {"mode", "A", false},
        {"one", "x", true},      {"one", "y", false},
        {"one", "", false},      {"free", "a|b", true},
        {"free", "", true},      {"other", "1", false},
    };
    for (const auto &c : cases) {
        const int rc = check({{c.key, c.value}});
        CHECK(rc == (c.good ? 0 : -EINVAL), "%s=%s: %d", c.key, c.value, rc);
        if (!c.good) {
            const std::string &text = gic::error_text();
            CHECK(text.find(c.key) != std::string::npos && text.find('\n') == std::string::npos, "\"%s\"",
                  text.c_str());
        }
    }
    CHECK(check({}) == 0, "defaults");
}

void check_lookup() {
    const gic_kv given[] = {{"mode", "bbb"}, {"n", "17"}};
    gic_open open{};
    open.config = given;
    open.config_count = 2;
    const gic::Config c(keys, 4, &open);
    CHECK(c.choice("mode") == 2 && c.u32("n") == 17 && strcmp(c.text("one"), "x") == 0, "given and default");
}

// The status that tells most wins, and every agent runs.
void check_launch() {
    uint32_t ran = 0;
    const int rc = gic::launch_host(5, 1, [&](gic::Self self) {
        __atomic_fetch_add(&ran, 1, __ATOMIC_RELAXED);
        return self.agent == 1   ? (int)gic::ERR_TIMEOUT
               : self.agent == 3 ? (int)gic::ERR_IO
               : self.agent == 4 ? (int)gic::ERR_CANCELED
                                 : (int)gic::OK;
    });
    CHECK(rc == gic::ERR_IO && ran == 5, "status %d of %u agents", rc, ran);
    CHECK(gic::error_text() == "device thread 3: error CQE", "\"%s\"", gic::error_text().c_str());
}

void check_storage() {
    gic::Facts facts;
    facts.set("a", 1);
    facts.set("b", "x");
    facts.set("a", 2);
    const gic_kv *kv;
    uint32_t n;
    facts.publish(&kv, &n);
    CHECK(n == 2 && strcmp(gic::kv_find(kv, n, "a"), "2") == 0 && !gic::kv_find(kv, n, "c"), "facts");
    CHECK(gic::guarded([]() -> int { throw std::bad_alloc(); }) == -ENOMEM, "no exception crosses the ABI");
}

struct NoGpu final : gic::Gpu {
    explicit NoGpu(bool mps) { mps_ = mps, name_ = "GPU", multiprocessors_ = 132; }
    int map(void *, size_t) override { return 0; }
    int unmap(void *) override { return 0; }
    int alloc(size_t, void **) override { return 0; }
    int free(void *) override { return 0; }
    int upload(void *, const void *, size_t) override { return 0; }
    int download(void *, const void *, size_t) override { return 0; }
    int wait(const volatile uint32_t *, uint64_t) override { return 0; }
};

// Each rank is given as its device and process, "a1"; '-' has no device.
void check_sharing() {
    const struct {
        const char *ranks, *how; // how: of rank 0; "" when refused
        bool mps;
        uint32_t sharers, neighbours;
    } cases[] = {
        {"a1", "one_gpu_per_rank", false, 1, 1},
        {"a1 b2", "one_gpu_per_rank", false, 1, 1},
        {"a1 a2", "", false, 2, 1},
        {"a1 a2", "mps", true, 2, 1},
        {"a1 a1", "ranks_in_process", false, 2, 2},
        {"a1 a1", "ranks_in_process", true, 2, 2},
        {"a1 a1 a2", "", false, 3, 2},
        {"a1 a1 a2", "mps", true, 3, 2},
        {"a1 b1", "one_gpu_per_rank", false, 1, 2},
        {"a1 -2", "", false, 1, 1},
        {"a1 a1 b2 b2", "ranks_in_process", false, 2, 2},
    };
    for (const auto &c : cases) {
        std::vector<gic::GpuPlace> all;
        for (const char *s = c.ranks; *s; s += s[2] ? 3 : 2) {
            gic::GpuPlace p{{}, (uint64_t)s[1]};
            p.uuid[0] = s[0] == '-' ? 0 : s[0];
            all.push_back(p);
        }
        NoGpu gpu(c.mps);
        const int rc = gic::share_gpu(all, 0, &gpu, true);
        if (!*c.how) {
            CHECK(rc == -ENOTSUP && gic::error_text().find('\n') == std::string::npos, "%s: %d", c.ranks, rc);
            continue;
        }
        CHECK(rc == 0 && strcmp(gpu.sharing(), c.how) == 0 && gpu.sharers() == c.sharers &&
                  gpu.neighbours() == c.neighbours,
              "%s: %d, %s, %u on the device, %u in the process", c.ranks, rc, gpu.sharing(), gpu.sharers(),
              gpu.neighbours());
    }
    NoGpu gpu(false);
    gic::share_gpu({{{'a'}, 1}, {{'a'}, 2}}, 0, &gpu, true);
    CHECK(gic::error_text() == "2 ranks on one GPU without MPS would be time-sliced, and no time taken would "
                               "mean anything: start "
                               "nvidia-cuda-mps-control -d, use a GPU for each rank, or ranks_in_process=2",
          "\"%s\"", gic::error_text().c_str());
    gic::share_gpu({{{'a'}, 1}, {{'a'}, 2}}, 0, &gpu, false);
    CHECK(gic::error_text() == "2 ranks on one GPU without MPS would be time-sliced, and no time taken would "
                               "mean anything: start nvidia-cuda-mps-control -d, or use a GPU for each rank",
          "\"%s\"", gic::error_text().c_str());
    CHECK(gic::process_token() != 0 && gic::process_token() == gic::process_token(),
          "one process, one token");
}

gic::Placement placement(std::vector<gic_kv> args) {
    gic_run run{};
    run.workload = "w";
    run.args = args.data();
    run.arg_count = (uint32_t)args.size();
    gic::Inputs in(&run);
    return gic::Placement::of(in);
}

// Places go evenly over the multiprocessors, and each queue is met in all parts of the device.
void check_places() {
    uint32_t queue = 99;
    const gic::Placement none = placement({});
    CHECK(none.sm_of(132) == 0 && none.queue_of(4, &queue) == 0 && queue == 0 && !none.scan(), "no inputs");
    const gic::Placement one = placement({{"placement", "7"}, {"first_qp", "3"}, {"places", "1"}});
    CHECK(one.sm_of(132) == 7 && one.queue_of(4, &queue) == 0 && queue == 3, "one place");
    CHECK(one.queue_of(3, &queue) == -ENOTSUP && gic::error_text() == "first_qp=3: there are 3 to a peer",
          "\"%s\"", gic::error_text().c_str());
    uint32_t met[8][4] = {}, last = 0;
    for (int i = 0; i < 32; i++) {
        const std::string at = std::to_string(i);
        const gic::Placement p = placement({{"place", at.c_str()}, {"places", "32"}, {"placed", "1"}});
        const uint32_t sm = p.sm_of(132);
        CHECK(p.queue_of(8, &queue) == 0 && queue < 8 && sm > last && sm <= 132, "place %d: %u, %u", i, sm,
              queue);
        last = sm;
        met[queue][(sm - 1) * 4 / 132]++;
        const gic::Placement idle = placement({{"place", at.c_str()}, {"places", "32"}, {"placed", "0"}});
        CHECK(idle.sm_of(132) == 0, "a rank that is not placed");
    }
    for (auto &q : met)
        for (uint32_t n : q)
            CHECK(n == 1, "a queue was met %u times in a quarter of the device", n);
}

// A kernel of 134 registers in blocks of 256 threads fits a multiprocessor once. With a block on every one of them and an
// engine on one the last block never came, and 1,024 agents waited for it until their deadline.
void check_grid() {
    const struct {
        uint32_t agents, registers, engine, sharers, blocks, threads;
        bool resident;
    } cases[] = {
        {64, 134, 8, 1, 64, 32, true},      {1024, 134, 0, 1, 132, 256, true},
        {1024, 134, 1, 1, 131, 256, true},  {1024, 134, 8, 1, 124, 288, true},
        {1024, 96, 1, 1, 132, 256, true}, // two to a multiprocessor: nobody waits for the engine's
        {1024, 96, 1, 2, 130, 256, true}, // 2 x 132 do not fit the 130 that two engines leave
        {1024, 134, 1, 2, 130, 256, false}, {4096, 64, 1, 1, 131, 1024, true},
        {4096, 80, 1, 1, 131, 1024, false}, {4, 32, 132, 1, 0, 0, false}, // engines everywhere
    };
    for (const auto &c : cases) {
        NoGpu gpu(false);
        gpu.set_sharers(c.sharers);
        gpu.set_engine(c.engine);
        const gic::GpuGrid g = gic::gpu_grid(gpu, c.agents, [&](uint32_t threads) {
            return threads == 0 ? 0 : std::min(65536 / (c.registers * threads), 2048 / threads);
        });
        CHECK(g.blocks == c.blocks && g.threads == c.threads && g.resident == c.resident,
              "%u agents, %u registers, engine %u, %u ranks: %u blocks of %u threads, %s", c.agents,
              c.registers, c.engine, c.sharers, g.blocks, g.threads,
              g.resident ? "resident" : "not resident");
    }
    NoGpu gpu(false);
    gpu.set_sharers(2);
    gic::Facts facts;
    facts.set("engine.sms", 4u);
    const struct gic_kv *list;
    uint32_t n;
    facts.publish(&list, &n);
    gic::note_engine(&gpu, list, n);
    CHECK(gpu.engines() == 8, "%u", gpu.engines());
    gic::note_engine(&gpu, nullptr, 0);
    CHECK(gpu.engines() == 0, "%u", gpu.engines());
}

// Whoever asks for a CUDA device, found or not, has all code loaded at once from then on, and who has decided is left alone.
void check_loading() {
    const char *name = "CUDA_MODULE_LOADING";
    const auto after = [&](const char *before, const char *device) {
        if (before)
            setenv(name, before, 1);
        else
            unsetenv(name);
        gic::probe_cuda("test", device);
        const char *value = getenv(name);
        return std::string(value ? value : "unset");
    };
    CHECK(after(nullptr, "host") == "unset", "%s", after(nullptr, "host").c_str());
    CHECK(after(nullptr, "cuda:9999") == "EAGER", "%s", after(nullptr, "cuda:9999").c_str());
    CHECK(after("LAZY", "cuda:9999") == "LAZY", "%s", after("LAZY", "cuda:9999").c_str());
}

} // namespace

int main() {
    check_values();
    check_lookup();
    check_launch();
    check_storage();
    check_sharing();
    check_grid();
    check_places();
    check_loading();
    return failures != 0;
}
