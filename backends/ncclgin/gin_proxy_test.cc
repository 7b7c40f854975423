// The plugin without NCCL and without a GPU, type PROXY: two processes call it as NCCL's proxy thread does. The table of
// signals is, as NCCL's is, memory that the engine and the other process do not reach.
#include "backends/ncclgin/gin_test.h"

int ncclgin::Memory::open(const char *, std::unique_ptr<Memory> *memory_p) {
    *memory_p = std::make_unique<ncclgin_test::HostMemory>();
    return 0;
}
int ncclgin::Relay::open(std::unique_ptr<Relay> *relay_p) {
    *relay_p = std::make_unique<ncclgin_test::HostRelay>();
    return 0;
}

namespace {

using namespace nccl_abi;
using namespace ncclgin_test;

const GinTable &gin = ncclGinPlugin_v11;
const struct gic_ncclgin_net &plugin = gic_ncclgin_net_v1;

constexpr size_t window_bytes = 8192, signals = 100, inlines = 16;

struct Opened {
    Rank rank;
    void *coll = nullptr;
    std::vector<uint64_t> table = std::vector<uint64_t>(signals), values = std::vector<uint64_t>(inlines);
    std::vector<uint8_t> on_gpu = std::vector<uint8_t>(window_bytes);
    uint8_t *window = nullptr;
    void *table_mr = nullptr, *values_mr = nullptr, *window_mr = nullptr, *gpu_mr = nullptr;

    Opened(int rank_, const char *job) : rank(rank_, job) {
        MUST(rank.prepare("proxy"));
        Properties p;
        MUST(gin.get_properties(0, &p));
        CHECK(p.device_type == DEVICE_GIN_PROXY && p.max_recvs && !(p.max_recvs & (p.max_recvs - 1)),
              "%d, %d", p.device_type, p.max_recvs);
        coll = rank.connect();
        known[table.data()] = {-1, signals * 8, ncclgin::Place::GPU};
        known[on_gpu.data()] = {-1, window_bytes, ncclgin::Place::GPU};
        void *memory = nullptr;
        MUST(plugin.window_alloc(window_bytes, &memory));
        window = (uint8_t *)memory;
        table_mr = reg(table.data(), signals * 8, POINTER_CUDA, MR_FORCE_ORDER);
        values_mr = reg(values.data(), inlines * 8, POINTER_HOST, 0);
        MUST(plugin.window_register(window, window_bytes, &window_mr, 1)); // NCCL does not take host memory
        gpu_mr = reg(on_gpu.data(), window_bytes, POINTER_CUDA, 0);        // no error until it is used
        barrier(nullptr);
    }
    void *reg(void *addr, size_t bytes, int pointer, uint64_t flags) {
        void *mr = nullptr, *device = nullptr;
        MUST(gin.reg_mr_sym(coll, addr, bytes, pointer, flags, &mr, &device));
        CHECK(device == mr, "NCCL gives back the device's handle");
        CHECK((uint64_t)device >> 63 == 0, "of which it keeps 63 bits");
        return mr;
    }
    void close() {
        barrier(nullptr);
        MUST(plugin.window_deregister(window));
        for (void *mr : {gpu_mr, table_mr})
            MUST(gin.dereg_mr_sym(coll, mr));
        std::vector<uint64_t>().swap(values); // NCCL frees it before it says so
        MUST(gin.dereg_mr_sym(coll, values_mr));
        MUST(gin.close_coll(coll));
        barrier(nullptr);
        plugin.release();
        known.clear();
    }
    void put(uint64_t at, size_t bytes, uint64_t to, uint32_t peer, void **request_p) {
        MUST(gin.iput(coll, at, window_mr, bytes, to, window_mr, peer, request_p));
        CHECK(*request_p, "a null request");
    }
    void signal(uint32_t peer, uint32_t id, uint32_t op, uint64_t value, void **request_p) {
        MUST(gin.iput_signal(coll, 0, nullptr, 0, 0, nullptr, peer, 8 * id, table_mr, value, op, request_p));
    }
    // 0: done.
    int await(void *request) {
        int done = 0, rc = 0;
        for (uint64_t until = gic::globaltimer() + deadline_ns; rc == 0 && !done; sched_yield()) {
            rc = gin.test(coll, request, &done);
            if (gic::globaltimer() > until)
                return 1;
        }
        return rc;
    }
    bool await_word(uint32_t id, uint64_t value) {
        for (uint64_t until = gic::globaltimer() + deadline_ns; table[id] != value; sched_yield()) {
            MUST(gin.progress(coll));
            if (gic::globaltimer() > until)
                return false;
        }
        return true;
    }
};

void check_traffic(int rank, const char *job) {
    Opened o(rank, job);
    CHECK(fact("signals") == "relayed" && fact("gin_type") == "none" && fact("window") == "host", "%s",
          fact("signals").c_str());
    void *request = nullptr, *last = nullptr;
    if (rank == 0) {
        for (int i = 0; i < 100; i++)
            o.window[i] = (uint8_t)(i + 1);
        // More than a lap, nobody asking meanwhile.
        for (int i = 0; i < 1500; i++)
            o.put(0, 100, 4096 + 3, 1, &request);
        MUST(gin.iput_signal(o.coll, 1, o.window_mr, 8, 1024, o.window_mr, 1, 8 * 7, o.table_mr, 99,
                             SIGNAL_INC, &last));
        CHECK(o.await(last) == 0 && o.await(request) == 0, "%s", gic::error_text().c_str());
        o.signal(1, signals - 1, SIGNAL_ADD, 41, &last);
        o.signal(1, signals - 1, SIGNAL_ADD, 1, &last);
        CHECK(o.await(last) == 0, "signals");
        for (uint32_t id = 10; id < 80; id++) // more than the relay takes at once
            o.signal(1, id, SIGNAL_ADD, id, &last);
        CHECK(o.await(last) == 0, "many signals");
        o.put(0, 0, 0, 1, &last); // of nothing
        CHECK(o.await(last) == 0, "an empty put");
        o.values[3] = 0x1122334455667788;
        MUST(gin.iput(o.coll, 24, o.values_mr, 8, 2048, o.window_mr, 1, &last));
        CHECK(o.await(last) == 0, "a value");
        o.signal(0, 5, SIGNAL_INC, 0, &last); // to itself
        CHECK(o.await_word(5, 1), "a signal to itself");
        CHECK(counter("wqe_write") == 1502 && counter("wqe_atomic") == 74 && counter("wqe_nop") == 1,
              "%llu writes", (unsigned long long)counter("wqe_write"));
        CHECK(fact("gin_type") == "proxy", "%s", fact("gin_type").c_str());
    } else {
        CHECK(o.await_word(7, 1), "the signal of a put: %llu", (unsigned long long)o.table[7]);
        // What it said it had written is here.
        for (int i = 0; i < 8; i++)
            CHECK(o.window[1024 + i] == i + 2, "byte %d", i);
        for (int i = 0; i < 100; i++)
            CHECK(o.window[4096 + 3 + i] == (uint8_t)(i + 1), "byte %d", i);
        CHECK(o.window[4096 + 2] == 0 && o.window[4096 + 103] == 0, "the bytes around");
        CHECK(o.await_word(signals - 1, 42), "added %llu", (unsigned long long)o.table[signals - 1]);
        for (uint32_t id = 10; id < 80; id++)
            CHECK(o.await_word(id, id), "signal %u: %llu", id, (unsigned long long)o.table[id]);
        CHECK(o.table[9] == 0 && o.table[80] == 0, "signals that nobody gave");
        o.table[signals - 1] = 0; // as resetSignal does
        CHECK(counter("words_relayed") >= 72, "relayed");
    }
    barrier(nullptr);
    if (rank == 0) {
        o.signal(1, signals - 1, SIGNAL_ADD, 3, &last);
        CHECK(o.await(last) == 0, "a signal after a reset");
    } else {
        CHECK(o.await_word(signals - 1, 3), "after a reset: %llu", (unsigned long long)o.table[signals - 1]);
        uint64_t value;
        memcpy(&value, o.window + 2048, sizeof value);
        CHECK(value == 0x1122334455667788, "the value");
    }
    MUST(plugin.error());
    o.close();
}

// What NCCL is not to ask is refused in a line, and kept for error(): NCCL does not look at every answer.
void check_refused(int rank, const char *job) {
    Opened o(rank, job);
    void *request = nullptr;
    int done = 0;
    REFUSES(gin.iput(o.coll, 0, o.window_mr, 8, 0, o.window_mr, 2, &request), "rank 2 of 2");
    CHECK(plugin.error() == -EIO && strstr(plugin.last_error(), "rank 2 of 2"), "%s", plugin.last_error());
    // The library's defect: the value's place in the buffer comes from the wrong pointer.
    REFUSES(gin.iput(o.coll, (uint64_t)-0x7f00, o.values_mr, 8, 0, o.window_mr, 1, &request), "putValue");
    REFUSES(gin.iput(o.coll, 0, o.gpu_mr, 8, 0, o.window_mr, 1, &request), "want window=host");
    REFUSES(gin.iput(o.coll, 0, o.window_mr, 8, 0, o.gpu_mr, 1, &request), "want window=host");
    REFUSES(gin.iput(o.coll, 0, nullptr, 8, 0, o.window_mr, 1, &request), "without memory");
    REFUSES(gin.iput_signal(o.coll, 0, nullptr, 0, 0, nullptr, 1, 8 * signals, o.table_mr, 1, SIGNAL_INC,
                            &request),
            "a signal at offset 800");
    REFUSES(gin.iput_signal(o.coll, 0, nullptr, 0, 0, nullptr, 1, 0, o.table_mr, 1, 3, &request),
            "signal operation 3");
    REFUSES(gin.test(o.coll, nullptr, &done), "iput did not give");
    void *context = nullptr;
    DeviceHandle *h = nullptr;
    REFUSES(gin.create_context(o.coll, 8, 4, &context, &h), "NCCL makes the context itself");
    CHECK(counter("wqes") == 0, "something was posted");
    o.close();
}

void check_error(int rank, const char *job) {
    Opened o(rank, job);
    void *request = nullptr;
    if (rank == 1)
        MUST(plugin.withdraw());
    barrier(nullptr);
    if (rank == 0) {
        o.put(0, 8, 0, 1, &request);
        CHECK(o.await(request) == REMOTE_ERROR, "a put to memory that is gone");
        CHECK(plugin.error() == -EIO && strstr(plugin.last_error(), "syndrome 0x13"), "%s",
              plugin.last_error());
        CHECK(counter("error_cqes") == 1, "%llu", (unsigned long long)counter("error_cqes"));
    }
    CHECK(o.window[0] == 0, "it has arrived");
    o.close();
}

// In a run NCCL's thread hears of no failure, at which it would end and leave device code to wait for it; what it asks for
// is done when the run is given up, and the reason is left.
void check_run_ends(int rank, const char *job) {
    Opened o(rank, job);
    void *posted = nullptr, *refused = nullptr;
    int done = 1;
    if (rank == 1)
        MUST(plugin.withdraw());
    barrier(nullptr);
    if (rank == 0) {
        MUST(plugin.begin());
        o.put(0, 8, 0, 1, &posted);
        CHECK(o.await(posted) == REMOTE_ERROR, "a put to memory that is gone");
        MUST(gin.iput(o.coll, 0, nullptr, 8, 0, o.window_mr, 1, &refused));
        MUST(gin.test(o.coll, refused, &done));
        CHECK(refused && !done, "what was not posted is done");
        MUST(plugin.unblock(0));
        for (void *request : {posted, refused}) {
            MUST(gin.test(o.coll, request, &done));
            CHECK(done, "NCCL still waits");
        }
        CHECK(plugin.end(0) == 0 && plugin.error() == -EIO && strstr(plugin.last_error(), "syndrome 0x13"),
              "%s", plugin.last_error());
        REFUSES(gin.iput(o.coll, 0, nullptr, 8, 0, o.window_mr, 1, &refused), "without memory");
    }
    o.close();
}

void check_engine(int rank, const char *job) {
    Rank r(rank, job);
    r.nic.push_back({"engine", "gpu"});
    REFUSES(r.prepare("proxy"), "engine=gpu");
}

} // namespace

int main() {
    make_shared();
    stderr = fopen("/dev/null", "w"); // what the plugin tells; a sanitizer's report does not go through it
    int bad = 0;
    bad += in_pair("traffic", check_traffic);
    bad += in_pair("refused", check_refused);
    bad += in_pair("error", check_error);
    bad += in_pair("run ends", check_run_ends);
    bad += in_pair("engine", check_engine);
    printf(bad ? "gin_proxy_test: %d failed\n" : "gin_proxy_test: ok\n", bad);
    fclose(stderr);
    return bad != 0;
}
