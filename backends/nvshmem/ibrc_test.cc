// The proxy channel's transport without NVSHMEM and without a GPU: two processes drive it as the library's proxy thread does.
// What it is given by value is laid out as transport_abi.h says; the kinds of operations are the published header's.
//
// Needs NVSHMEM's headers, CUDA's and libibverbs' (make cuda-deps; package libibverbs-dev).
#if __has_include(<device_host_transport/nvshmem_common_transport.h>) && __has_include(<cuda_runtime_api.h>)

#include "backends/nvshmem/ibrc.cc"
#include "backends/nvshmem/transport.cc"

#include "backends/nvshmem/pair.h"

using namespace nvshmem_job;
using namespace nvshmem_abi;

namespace {

static_assert(offsetof(g_elem_t, data) == 0 && offsetof(g_elem_t, flag) == 8 && sizeof(g_elem_t) == 16,
              "a fetched value and its flag");

struct Pe {
    Transport *t;
    uint8_t *heap;
    Handle handles[2];

    uint64_t *word(uint64_t offset) const { return (uint64_t *)(heap + offset); }
    Memory here(uint64_t offset) { return {heap + offset, offset, &handles[t->pe]}; }
    Memory there(uint64_t offset) { // at the other PE, by its own address
        return {heaps + (1 - t->pe) * heap_bytes + offset, offset, &handles[1 - t->pe]};
    }
    int rma(int what, uint64_t remote, uint64_t local, size_t bytes, bool nbi = true, int is_proxy = 1) {
        Memory to = there(remote), from = here(local);
        return t->operations.rma(t, 1 - t->pe, {what, nbi, 0, nullptr}, &to, &from, {bytes, 1, 1, 1},
                                 is_proxy);
    }
    int p(uint64_t remote, uint64_t value, int bytes) {
        Memory to = there(remote), from = {&value, 0, nullptr};
        return t->operations.rma(t, 1 - t->pe, {NVSHMEMI_OP_P, 0, 0, nullptr}, &to, &from, {1, bytes, 1, 1},
                                 1);
    }
    int amo(int what, uint64_t remote, uint64_t value, int bytes = 8, g_elem_t *result = nullptr,
            uint64_t flag = 0) {
        Atomic a = {};
        a.remote = there(remote);
        a.value = value;
        a.result = result;
        a.result_flag = flag;
        a.result_handle = result ? &handles[t->pe] : nullptr;
        return t->operations.amo(t, 1 - t->pe, nullptr, {what, 0, 0, 0}, &a, {0, bytes}, 1);
    }
    int quiet(int is_proxy = 1) { return t->operations.quiet(t, 1 - t->pe, is_proxy); }
};

void check_knobs() {
    const struct {
        const char *name, *value;
        bool good;
    } cases[] = {{"NVSHMEM_QP_DEPTH", "128", true},           {"NVSHMEM_QP_DEPTH", "100", false},
                 {"NVSHMEM_QP_DEPTH", "65536", false},        {"NVSHMEM_QP_DEPTH", "many", false},
                 {"NVSHMEM_IB_NUM_RC_PER_DEVICE", "1", true}, {"NVSHMEM_IB_NUM_RC_PER_DEVICE", "2", false}};
    unsetenv("NVSHMEM_QP_DEPTH");
    unsetenv("NVSHMEM_IB_NUM_RC_PER_DEVICE");
    CHECK(read_knobs() == 0 && depth == 1024, "the default depth is %u", depth);
    for (const auto &c : cases) {
        setenv(c.name, c.value, 1);
        CHECK((read_knobs() == 0) == c.good, "%s=%s", c.name, c.value);
        CHECK(c.good || (strstr(last_error(), c.name) && strstr(last_error(), c.value)), "%s=%s: \"%s\"",
              c.name, c.value, last_error());
        unsetenv(c.name);
    }
}

// What a queue of the default's sixteenth makes of more requests than it holds, and the values that came.
constexpr uint32_t many = 200;

void operate(Pe &pe) {
    memset(pe.heap + 4096, 0x5a, 64);
    MUST(pe.rma(NVSHMEMI_OP_PUT, 256, 4096, 64));
    MUST(pe.p(512, 0x1122334455667788, 8));
    MUST(pe.p(520, 0xab, 1));
    MUST(pe.amo(NVSHMEMI_AMO_SIGNAL_ADD, 528, 5));
    MUST(pe.amo(NVSHMEMI_AMO_ADD, 528, 6));
    MUST(pe.amo(NVSHMEMI_AMO_SIGNAL_SET, 536, 9));
    for (uint32_t i = 0; i < many; i++)
        MUST(pe.p(1024 + 8 * i, i + 1, 8));
    MUST(pe.quiet());
    MUST(pe.rma(NVSHMEMI_OP_GET, 2048 * 4, 4096 + 64, 64, false)); // blocking: there when it returns
    CHECK(pe.heap[4096 + 64] == 0x77 && pe.heap[4096 + 127] == 0x77, "what was got");
    auto *element = (g_elem_t *)(pe.heap + 4096 + 256);
    MUST(pe.amo(NVSHMEMI_AMO_FETCH_ADD, 544, 3, 8, element, 41));
    CHECK(element->data == 7 && element->flag == 41, "fetched %llu, flag %llu",
          (unsigned long long)element->data, (unsigned long long)element->flag);
    MUST(pe.rma(NVSHMEMI_OP_PUT, 320, 4096, 8, false, 0)); // the program's own
    MUST(pe.quiet(0));
    CHECK(error() == 0, "%s", last_error());
    check_counters({{"wqes", 9 + many},
                    {"wqe_write", 5 + many},
                    {"wqe_write_inline", 3 + many},
                    {"wqe_read", 1},
                    {"wqe_atomic", 3},
                    {"cqes", 9 + many},
                    {"error_cqes", 0},
                    {"qps_used", 1}});
}

void refuse(Pe &pe) {
    CHECK(pe.amo(NVSHMEMI_AMO_XOR, 528, 1) != 0 && strstr(last_error(), "atomic of kind 7"), "%s",
          last_error());
    CHECK(pe.amo(NVSHMEMI_AMO_ADD, 528, 1, 4) != 0 && strstr(last_error(), "4 bytes"), "%s", last_error());
    CHECK(pe.p(512, 0, 16) != 0 && strstr(last_error(), "p of 16 bytes"), "%s", last_error());
    CHECK(pe.rma(NVSHMEMI_OP_PUT_SIGNAL, 256, 4096, 8) != 0 && strstr(last_error(), "kind 3"), "%s",
          last_error());
    Memory nowhere = {pe.heap, 0, nullptr}, from = pe.here(0);
    CHECK(pe.t->operations.rma(pe.t, 1 - pe.t->pe, {NVSHMEMI_OP_PUT, 1, 0, nullptr}, &nowhere, &from,
                               {8, 1, 1, 1}, 1) != 0 &&
              strstr(last_error(), "without a handle"),
          "%s", last_error());
}

void check_landed(const Pe &pe) {
    for (int i = 0; i < 64; i++)
        CHECK(pe.heap[256 + i] == 0x5a, "byte %d is 0x%02x", i, pe.heap[256 + i]);
    CHECK(pe.heap[255] == 0 && *pe.word(328) == 0, "the bytes around");
    CHECK(*pe.word(512) == 0x1122334455667788 && *pe.word(520) == 0xab, "values");
    CHECK(*pe.word(528) == 11 && *pe.word(536) == 9 && *pe.word(544) == 10, "words %llu %llu %llu",
          (unsigned long long)*pe.word(528), (unsigned long long)*pe.word(536),
          (unsigned long long)*pe.word(544));
    for (uint32_t i = 0; i < many; i++)
        CHECK(*pe.word(1024 + 8 * i) == i + 1, "value %u", i);
}

int run_pe(int index, const char *job_name) {
    const struct gic_comm comm = {&index, allgather, barrier};
    const std::vector<gic_kv> nic = {{"watch", "dbr"}};
    const gic_open open = open_of(index, job_name, &comm, nic);
    Pe pe = {};
    pe.heap = heaps + (size_t)index * heap_bytes;
    MUST(prepare(&open));
    job.fabric->gpu = std::make_unique<HostGpu>();
    setenv("NVSHMEM_QP_DEPTH", "64", 1);
    MUST(nvshmemt_init(&pe.t, nullptr, plugin_interface));
    Transport *t = pe.t;
    CHECK(t->type == 0 && !t->no_proxy && !t->atomics_complete_on_quiet && t->operations.progress,
          "what the library reads of the transport");
    // With either of these the library would add a round trip to waits, and a fence would be a quiet.
    CHECK(!t->operations.fence && !t->operations.enforce_cst && !t->operations.enforce_cst_at_target,
          "what it must not find");
    int reach = 0;
    CHECK(t->operations.can_reach_peer(&reach, nullptr, t) == 0 && reach == 0x70, "reach 0x%x", reach);
    t->pe = index;
    t->npes = 2;
    t->heap_base = pe.heap;
    MUST(t->operations.connect_endpoints(t, nullptr, 1));
    Handle mine;
    MUST(t->operations.get_mem_handle(&mine, pe.heap, heap_bytes, t, false));
    MUST(allgather(&index, &mine, pe.handles, sizeof mine));
    MUST(t->operations.add_device_remote_mem_handles(t, 1, pe.handles, 0, heap_bytes));
    if (index == 1) {
        *pe.word(544) = 7;
        memset(pe.heap + 8192, 0x77, 64);
    }
    barrier(&index);
    if (index == 0) {
        operate(pe);
        refuse(pe);
    }
    barrier(&index);
    if (index == 1) {
        check_landed(pe);
        MUST(withdraw_heap());
    }
    barrier(&index);
    if (index == 0) { // an error CQE is no hang, neither for what is posted nor for what comes behind
        check_error_word([&] {
            MUST(pe.rma(NVSHMEMI_OP_PUT, 600, 4096, 8));
            MUST(pe.quiet());
        });
        CHECK(error() == -EIO && strstr(last_error(), "syndrome 0x13"), "%s", last_error());
        for (uint32_t i = 0; i < many; i++)
            MUST(pe.p(608, 1, 8));
        MUST(pe.quiet());
    }
    barrier(&index);
    CHECK(*pe.word(600) == 0 && *pe.word(608) == 0, "a put behind a withdrawn key has landed");
    MUST(t->operations.progress(t));
    MUST(t->operations.finalize(t));
    release();
    MUST(t->operations.progress(t)); // the proxy thread may still come by
    MUST(pe.quiet());
    delete t;
    return failures;
}

} // namespace

int main() {
    // What the transport tells of the calls that it refuses here; a sanitizer's report does not go through it.
    FILE *nowhere = fopen("/dev/null", "w");
    stderr = nowhere;
    check_knobs();
    const int bad = failures + check_pair(run_pe);
    printf(bad ? "ibrc_test: %d failed\n" : "ibrc_test: ok\n", bad);
    fclose(nowhere);
    return bad != 0;
}

#else

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main() {
    printf("ibrc_test: built without NVSHMEM's or CUDA's headers: make cuda-deps\n");
    const char *ci = getenv("CI");
    return ci && strcmp(ci, "true") == 0; // there they are installed
}

#endif
