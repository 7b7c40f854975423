// The transport without NVSHMEM and without a GPU: two processes drive it as libnvshmem_host does, and one of them posts
// as the device code does, by what the device state says alone. The layouts that NVSHMEM's packages publish are compared
// with an independent table.
//
// Needs NVSHMEM's headers, CUDA's and libibverbs' (make cuda-deps; package libibverbs-dev).
#if __has_include(<device_host_transport/nvshmem_common_ibgda.h>) && __has_include(<infiniband/mlx5dv.h>) &&             \
    __has_include(<cuda_runtime_api.h>)

#include "backends/nvshmem/ibgda.cc"
#include "backends/nvshmem/queues.cc"
#include "backends/nvshmem/transport.cc"

#include "backends/nvshmem/pair.h"

using namespace nvshmem_job;

namespace {

// ---- the layouts that 3.4.5 publishes ----

#define AT(type, member, offset)                                                                             \
    CHECK(offsetof(type, member) == offset, #type "." #member " is at %zu, was %d", offsetof(type, member),  \
          offset)

void check_layouts() {
    using State = nvshmemi_ibgda_device_state_t;
    CHECK(sizeof(State) == 8384, "%zu", sizeof(State));
    AT(State, num_shared_dcis, 4);
    AT(State, ndcts_per_pe, 16);
    AT(State, num_qp_groups, 20);
    AT(State, num_rc_per_pe, 28);
    AT(State, rc_map_type, 32);
    AT(State, num_requests_in_batch, 36);
    AT(State, log2_cumem_granularity, 40);
    AT(State, num_devices_initialized, 48);
    AT(State, nic_buf_on_gpumem, 52);
    AT(State, may_skip_cst, 54);
    AT(State, constmem.lkeys, 56);
    AT(State, constmem.rkeys, 56 + 64 * 16);
    AT(State, constmem.dcts, 56 + 2 * 64 * 16);
    AT(State, globalmem.qp_group_switches, 56 + 2 * 64 * 16 + 128 * 48);
    AT(State, globalmem.rcs, 56 + 2 * 64 * 16 + 128 * 48 + 24);
    using Qp = nvshmemi_ibgda_device_qp_t;
    CHECK(sizeof(Qp) == 184, "%zu", sizeof(Qp));
    AT(Qp, qpn, 8);
    AT(Qp, ibuf.buf, 24);
    AT(Qp, tx_wq.nwqes, 40);
    AT(Qp, tx_wq.wqe, 48);
    AT(Qp, tx_wq.dbrec, 56);
    AT(Qp, tx_wq.bf, 64);
    AT(Qp, tx_wq.cq, 72);
    AT(Qp, tx_wq.prod_idx, 80);
    AT(Qp, mvars, 88);
    using Cq = nvshmemi_ibgda_device_cq_t;
    CHECK(sizeof(Cq) == 72, "%zu", sizeof(Cq));
    AT(Cq, cqe, 16);
    AT(Cq, prod_idx, 24);
    AT(Cq, ncqes, 60);
}

// ---- knobs ----

void check_knobs() {
    nvshmem_queues::Knobs k;
    const char *const names[] = {
        "NVSHMEM_IBGDA_NUM_RC_PER_PE",  "NVSHMEM_QP_DEPTH",          "NVSHMEM_IBGDA_NUM_REQUESTS_IN_BATCH",
        "NVSHMEM_IBGDA_RC_MAP_BY",      "NVSHMEM_IBGDA_NIC_HANDLER", "NVSHMEM_IBGDA_NUM_DCI",
        "NVSHMEM_IBGDA_NUM_SHARED_DCI", "NVSHMEM_IBGDA_NUM_DCT",     "NVSHMEM_IBGDA_DCI_MAP_BY"};
    for (const char *name : names)
        unsetenv(name);
    CHECK(nvshmem_queues::read_knobs(&k) == 0, "%s", last_error());
    CHECK(k.rc_per_pe == 2 && k.depth == 1024 && k.batch == 32 && k.fetch_slots == 1024 &&
              k.map == NVSHMEMI_IBGDA_DEVICE_QP_MAP_TYPE_CTA && k.dcis == 1 && k.shared_dcis == 1 &&
              k.dcts == 2 && k.dci_map == NVSHMEMI_IBGDA_DEVICE_QP_MAP_TYPE_CTA,
          "defaults are %u %u %u %u", k.rc_per_pe, k.depth, k.batch, k.fetch_slots);
    const struct {
        const char *name, *value;
        bool good;
    } cases[] = {
        {names[0], "1", true},      {names[0], "512", true},   {names[0], "0", true},
        {names[0], "513", false},   {names[0], "two", false},  {names[1], "128", true},
        {names[1], "32768", true},  {names[1], "64", false},   {names[1], "1000", false},
        {names[1], "65536", false}, {names[2], "1", true},     {names[2], "33", true},
        {names[2], "0", false},     {names[2], "2048", false}, {names[3], "warp", true},
        {names[3], "sm", true},     {names[3], "dct", false},  {names[4], "auto", true},
        {names[4], "gpu", true},    {names[4], "cpu", false},  {names[4], "cpu_host_memory", true},
        {names[5], "1", true},      {names[5], "2", false},    {names[5], "0", false}, // beside RC
        {names[6], "1", true},      {names[6], "2", false},    {names[7], "128", true},
        {names[7], "0", false},     {names[7], "129", false},  {names[8], "dct", true},
        {names[8], "pe", false},
    };
    for (const auto &c : cases) {
        setenv(c.name, c.value, 1);
        CHECK((nvshmem_queues::read_knobs(&k) == 0) == c.good, "%s=%s", c.name, c.value);
        CHECK(c.good || (strstr(last_error(), c.name) && strstr(last_error(), c.value)), "%s=%s: \"%s\"",
              c.name, c.value, last_error());
        CHECK(!c.good || k.host_rings == (strcmp(c.value, "cpu_host_memory") == 0), "%s=%s: host_rings",
              c.name, c.value);
        if (strcmp(c.value, "33") == 0)
            CHECK(k.batch == 64, "a batch of 33 became %u", k.batch);
        unsetenv(c.name);
    }
    setenv(names[0], "0", 1);
    setenv(names[5], "8", 1);
    setenv(names[6], "3", 1);
    setenv(names[8], "warp", 1);
    CHECK(nvshmem_queues::read_knobs(&k) == 0, "%s", last_error());
    CHECK(k.rc_per_pe == 0 && k.dcis == 8 && k.shared_dcis == 3 &&
              k.dci_map == NVSHMEMI_IBGDA_DEVICE_QP_MAP_TYPE_WARP,
          "%u DCIs, %u shared", k.dcis, k.shared_dcis);
    setenv(names[6], "9", 1);
    CHECK(nvshmem_queues::read_knobs(&k) == -ENOTSUP && strstr(last_error(), "NUM_SHARED_DCI=9: want 1..8"),
          "\"%s\"", last_error());
    for (const char *name : names)
        unsetenv(name);
}

// ---- keys ----

void check_keys() {
    auto state = std::make_unique<nvshmemi_ibgda_device_state_t>();
    state->log2_cumem_granularity = 20; // chunks of 1 MiB
    CHECK(nvshmem_queues::set_rkey(state.get(), 3, 1, 2u << 20, 3u << 20, 0x1234) == 0, "%s", last_error());
    for (uint32_t chunk = 0; chunk < 6; chunk++)
        for (uint32_t pe = 0; pe < 3; pe++) {
            const auto &k = state->constmem.rkeys[chunk * 3 + pe];
            const bool set = pe == 1 && chunk >= 2 && chunk < 5;
            CHECK(k.key == (set ? mlx5_be32(0x1234) : 0) && k.next_addr == (set ? 5u << 20 : 0),
                  "chunk %u of PE %u: key 0x%x to %llu", chunk, pe, k.key, (unsigned long long)k.next_addr);
        }
    CHECK(nvshmem_queues::set_rkey(state.get(), 3, 0, 20u << 20, 1u << 20, 1) == 0, "the last that fits");
    CHECK(nvshmem_queues::set_rkey(state.get(), 3, 0, 21u << 20, 1u << 20, 1) == -ENOTSUP, "one too many");
    CHECK(nvshmem_queues::set_lkey(state.get(), 1u << 30, (1u << 30) + (1u << 20), 100, 0x77) == 0, "%s",
          last_error());
    CHECK(state->constmem.lkeys[1].key == mlx5_be32(0x77) &&
              state->constmem.lkeys[1].next_addr == (1u << 30) + (1u << 20) + 100,
          "a part of a chunk");
    CHECK(state->constmem.lkeys[2].key == 0, "the chunk behind it");
}

// ---- two processes ----

bool host_rings; // the library's proxy thread rings what device code has announced
bool dc;         // DC queue pairs carry everything
constexpr uint32_t dcis = 3, dcts = 2;

nvshmemi_ibgda_device_qp_t *queue_to_peer(const nvshmemi_ibgda_device_state_t *state) {
    return dc ? &state->globalmem.dcis[1] : &state->globalmem.rcs[1 * state->num_rc_per_pe];
}

// The WQE of `ds` segments as one to PE 1: a DC queue pair's has the first 16 bytes of one of that PE's DCTs behind its control
// segment, as device code copies them. Returns its bytes.
size_t to_peer(const nvshmemi_ibgda_device_state_t *state, uint8_t *wqe, uint32_t ds) {
    if (!dc)
        return ds * 16;
    const nvshmemi_ibgda_device_dct_t *dct = &state->constmem.dcts[1 * state->ndcts_per_pe + 1];
    memmove(wqe + 32, wqe + 16, (ds - 1) * 16);
    memcpy(wqe + 16, dct, 16);
    wqe[7] = (uint8_t)(ds + 1);
    return (ds + 1) * 16;
}

// Posts one WQE, announces it and waits for its completion as the device code does: by wqe_counter of the
// one CQE.
void post(nvshmemi_ibgda_device_qp_t *qp, uint16_t *next, const uint8_t *wqe, size_t bytes) {
    memcpy((uint8_t *)qp->tx_wq.wqe + (size_t)(*next % qp->tx_wq.nwqes) * 64, wqe, bytes);
    const uint16_t index = *next;
    *next = (uint16_t)(index + (bytes + 63) / 64);
    if (host_rings) {
        __atomic_store_n((uint64_t *)qp->tx_wq.bf, (uint64_t)*next, __ATOMIC_RELEASE);
    } else {
        __atomic_store_n(qp->tx_wq.dbrec, mlx5_be32(*next), __ATOMIC_RELEASE);
        __atomic_store_n((uint64_t *)qp->tx_wq.bf, mlx5_doorbell_value(*next, qp->qpn), __ATOMIC_RELEASE);
    }
    const auto *cqe = (const struct mlx5_cqe *)qp->tx_wq.cq->cqe;
    uint64_t until = gic::globaltimer() + 60000000000u;
    while (mlx5_be16(__atomic_load_n(&cqe->wqe_counter, __ATOMIC_ACQUIRE)) != index &&
           gic::globaltimer() < until) {
        if (host_rings)
            progress(nullptr); // as the library's proxy thread does
        sched_yield();
    }
    CHECK(gic::globaltimer() < until, "no CQE for WQE %u", index);
}

// A write of 64 bytes at `offset` of the own heap to the same place of PE 1's, by the keys that the state gives.
void put(nvshmemi_ibgda_device_state_t *state, uint16_t *next, uint64_t offset) {
    nvshmemi_ibgda_device_qp_t *qp = queue_to_peer(state);
    alignas(64) uint8_t wqe[128] = {};
    mlx5_ctrl_set((struct mlx5_ctrl_seg *)wqe, *next, MLX5_OP_RDMA_WRITE, 0, qp->qpn, 3, MLX5_CTRL_CQ_UPDATE);
    mlx5_raddr_set((struct mlx5_raddr_seg *)(wqe + 16), (uint64_t)(uintptr_t)heaps + heap_bytes + offset,
                   mlx5_be32(state->constmem.rkeys[1].key));
    mlx5_data_set((struct mlx5_data_seg *)(wqe + 32), 64, mlx5_be32(state->constmem.lkeys[0].key),
                  (uint64_t)(uintptr_t)heaps + offset);
    post(qp, next, wqe, to_peer(state, wqe, 3));
}

// A fetch-and-add of 5 on PE 1's word at `offset`; the old value goes to the queue's internal buffer.
uint64_t fetch_add(nvshmemi_ibgda_device_state_t *state, uint16_t *next, uint64_t offset) {
    nvshmemi_ibgda_device_qp_t *qp = queue_to_peer(state);
    alignas(64) uint8_t wqe[128] = {};
    mlx5_ctrl_set((struct mlx5_ctrl_seg *)wqe, *next, MLX5_OP_ATOMIC_FA, 0, qp->qpn, 4, MLX5_CTRL_CQ_UPDATE);
    mlx5_raddr_set((struct mlx5_raddr_seg *)(wqe + 16), (uint64_t)(uintptr_t)heaps + heap_bytes + offset,
                   mlx5_be32(state->constmem.rkeys[1].key));
    mlx5_atomic_set((struct mlx5_atomic_seg *)(wqe + 32), 5, 0);
    uint8_t *slot =
        (uint8_t *)qp->ibuf.buf + (size_t)NVSHMEMI_IBGDA_IBUF_SLOT_SIZE * qp->ibuf.nslots; // the last
    mlx5_data_set((struct mlx5_data_seg *)(wqe + 48), 8, mlx5_be32(qp->ibuf.lkey), (uint64_t)(uintptr_t)slot);
    post(qp, next, wqe, to_peer(state, wqe, 4));
    uint64_t old;
    memcpy(&old, slot, sizeof old);
    return old;
}

void check_dc_state(const nvshmemi_ibgda_device_state_t *state) {
    CHECK(state->num_rc_per_pe == 0 && state->num_shared_dcis == 1 && state->num_exclusive_dcis == dcis - 1 &&
              state->ndcts_per_pe == dcts && state->num_dct_groups == 1 && state->num_qp_groups == dcis &&
              state->dci_map_type == NVSHMEMI_IBGDA_DEVICE_QP_MAP_TYPE_DCT && state->support_half_av_seg,
          "the state's knobs");
    for (uint32_t i = 0; i < dcis; i++) {
        const auto &dci = state->globalmem.dcis[i];
        CHECK(dci.qp_type == NVSHMEMI_IBGDA_DEVICE_QP_TYPE_DCI && dci.tx_wq.nwqes == 1024 &&
                  dci.tx_wq.cq == &state->globalmem.cqs[i] && dci.tx_wq.cq->qpn == dci.qpn &&
                  dci.tx_wq.prod_idx == &dci.mvars.tx_wq.prod_idx,
              "DCI %u", i);
        for (uint32_t other = 0; other < i; other++)
            CHECK(dci.qpn != state->globalmem.dcis[other].qpn &&
                      dci.tx_wq.wqe != state->globalmem.dcis[other].tx_wq.wqe &&
                      dci.ibuf.buf != state->globalmem.dcis[other].ibuf.buf,
                  "DCI %u is DCI %u", i, other);
    }
    for (uint32_t i = 0; i < 2 * dcts; i++) {
        const auto &dct = state->constmem.dcts[i];
        CHECK(mlx5_be16(dct.rlid) == i / dcts + 1 && (mlx5_be32(dct.dqp_dct) & ~MLX5_QPN_MASK) == 0,
              "the address of DCT %u", i);
        CHECK(i % dcts == 0 || dct.dqp_dct != state->constmem.dcts[i - 1].dqp_dct, "DCT %u is the one before",
              i);
    }
}

void check_state(const nvshmemi_ibgda_device_state_t *state, uint32_t pe) {
    if (dc) {
        check_dc_state(state);
        return;
    }
    CHECK(state->num_rc_per_pe == 2 && state->num_requests_in_batch == 32 &&
              state->num_devices_initialized == 1 && state->num_shared_dcis == 1 &&
              !state->nic_buf_on_gpumem && state->use_async_postsend == host_rings,
          "the state's knobs");
    const nvshmemi_ibgda_device_qp_t *rcs = state->globalmem.rcs;
    for (uint32_t i = 0; i < 2; i++) {
        const auto &own = rcs[pe * 2 + i], &other = rcs[(1 - pe) * 2 + i];
        CHECK(own.qpn == 0 && own.tx_wq.wqe == nullptr, "a queue pair to the own PE");
        CHECK(other.qp_type == NVSHMEMI_IBGDA_DEVICE_QP_TYPE_RC && other.tx_wq.nwqes == 1024, "RC %u", i);
        CHECK(other.tx_wq.prod_idx == &other.mvars.tx_wq.prod_idx &&
                  other.tx_wq.cq->prod_idx == other.tx_wq.prod_idx,
              "where the indices of RC %u are", i);
        CHECK(other.tx_wq.cq->qpn == other.qpn, "the CQ of RC %u", i);
    }
    CHECK(state->globalmem.dcis[0].qp_type == NVSHMEMI_IBGDA_DEVICE_QP_TYPE_DCI, "the DCI");
}

int run_pe(int pe, const char *job_name) {
    const struct gic_comm comm = {&pe, allgather, barrier};
    const std::vector<gic_kv> nic = {{"watch", "dbr"}};
    const gic_open open = open_of(pe, job_name, &comm, nic);
    Transport *t = nullptr;
    CHECK(nvshmemt_init(&t, nullptr, nvshmem_abi::plugin_interface) != 0, "init before prepare()");
    MUST(prepare(&open));
    CHECK(prepare(&open) == -EALREADY, "prepare() twice");
    job.fabric->gpu = std::make_unique<HostGpu>();
    CHECK(nvshmemt_init(&t, nullptr, 40000) != 0, "another interface");
    MUST(nvshmemt_init(&t, nullptr, nvshmem_abi::plugin_interface));
    CHECK(t->n_devices == 1 && t->no_proxy != host_rings && t->is_successfully_initialized &&
              t->type == nvshmem_abi::TYPE_IBGDA,
          "what the library reads of the transport");
    CHECK(!t->operations.fence && !t->operations.quiet && !t->operations.progress == !host_rings,
          "what it must not find");
    CHECK(t->operations.rma(t, 1, {}, nullptr, nullptr, {}, 0) != 0 && strstr(last_error(), "rma"), "rma: %s",
          last_error());
    CHECK(t->operations.amo(t, 1, nullptr, {}, nullptr, {}, 0) != 0 && strstr(last_error(), "amo"), "amo: %s",
          last_error());
    int reach = 0;
    CHECK(t->operations.can_reach_peer(&reach, nullptr, t) == 0 && reach == 0x380, "reach 0x%x", reach);

    auto state = std::make_unique<nvshmemi_ibgda_device_state_t>();
    uint8_t *heap = heaps + (size_t)pe * heap_bytes;
    t->shared = state.get();
    t->pe = pe;
    t->npes = 3;
    t->log2_granularity = 29;
    t->heap_base = heap;
    CHECK(t->operations.connect_endpoints(t, nullptr, 1) != 0, "a PE too many");
    t->npes = 2;
    MUST(t->operations.connect_endpoints(t, nullptr, 1));
    check_state(state.get(), (uint32_t)pe);

    Handle mine, all[2], foreign = {};
    MUST(t->operations.get_mem_handle(&mine, heap, heap_bytes, t, false));
    MUST(allgather(&pe, &mine, all, sizeof mine));
    CHECK(t->operations.add_device_remote_mem_handles(t, 1, &foreign, 0, heap_bytes) != 0,
          "somebody else's handle");
    MUST(t->operations.add_device_remote_mem_handles(t, 1, all, 0, heap_bytes));
    CHECK(t->operations.add_device_remote_mem_handles(t, 1, all, heap_bytes, heap_bytes) != 0,
          "a heap in two parts");

    uint16_t next = 0;
    const uint64_t seven = 7;
    if (pe == 1)
        memcpy(heap + 512, &seven, sizeof seven);
    barrier(&pe);
    if (pe == 0) {
        memset(heap + 256, 0x5a, 64);
        put(state.get(), &next, 256);
        CHECK(fetch_add(state.get(), &next, 512) == 7, "the old value");
        CHECK(error() == 0, "%s", last_error());
        check_counters({{"wqes", 2},
                        {"wqe_write", 1},
                        {"wqe_atomic", 1},
                        {"cqes", 2},
                        {"error_cqes", 0},
                        {"payload_bytes", 72},
                        {"wqe_bytes", dc ? 144u : 112u}});
    }
    barrier(&pe);
    if (pe == 1) {
        uint64_t word;
        memcpy(&word, heap + 512, sizeof word);
        CHECK(word == 12, "the word is %llu", (unsigned long long)word);
        for (int i = 0; i < 64; i++)
            CHECK(heap[256 + i] == 0x5a, "byte %d is 0x%02x", i, heap[256 + i]);
        CHECK(heap[255] == 0 && heap[320] == 0, "the bytes around");
        MUST(withdraw_heap());
    }
    barrier(&pe);
    if (pe == 0) {
        check_error_word([&] { put(state.get(), &next, 1024); }); // to a heap that is gone
        CHECK(error() == -EIO && strstr(last_error(), "syndrome 0x13") &&
                  strstr(last_error(), dc ? "on DC QP " : "to rank 1"),
              "%s", last_error());
    }
    barrier(&pe);
    CHECK(heap[1024] == 0, "a put behind a withdrawn key has landed");
    Handle local;
    MUST(t->operations.get_mem_handle(&local, &next, sizeof next, t, true));
    const auto *one = state->globalmem.local_only_mhandle_head;
    CHECK(one && one->start == (uint64_t)(uintptr_t)&next && one->end == one->start + sizeof next - 1 &&
              !one->next,
          "a local buffer");
    CHECK(t->operations.release_mem_handle(&foreign, t) != 0, "to release somebody else's handle");
    MUST(t->operations.release_mem_handle(&mine, t));
    MUST(t->operations.release_mem_handle(&all[1 - pe], t)); // a peer's: nothing to do
    MUST(t->operations.finalize(t));
    release();
    delete t;
    return failures;
}

} // namespace

int main() {
    // What the transport tells of the calls that it refuses here; a sanitizer's report does not go through it.
    FILE *nowhere = fopen("/dev/null", "w");
    stderr = nowhere;
    check_layouts();
    check_knobs();
    check_keys();
    int bad = failures + check_pair(run_pe);
    setenv("NVSHMEM_IBGDA_NIC_HANDLER", "cpu_host_memory", 1);
    host_rings = true;
    failures = 0;
    bad += check_pair(run_pe);
    unsetenv("NVSHMEM_IBGDA_NIC_HANDLER");
    dc = true;
    setenv("NVSHMEM_IBGDA_NUM_RC_PER_PE", "0", 1);
    setenv("NVSHMEM_IBGDA_NUM_DCI", "3", 1);
    setenv("NVSHMEM_IBGDA_DCI_MAP_BY", "dct", 1);
    for (bool host : {false, true}) {
        host_rings = host;
        setenv("NVSHMEM_IBGDA_NIC_HANDLER", host ? "cpu_host_memory" : "gpu", 1);
        failures = 0;
        bad += check_pair(run_pe);
    }
    printf(bad ? "transport_test: %d failed\n" : "transport_test: ok\n", bad);
    fclose(nowhere);
    return bad != 0;
}

#else

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main() {
    printf("transport_test: built without NVSHMEM's, CUDA's or libibverbs' headers: make cuda-deps, "
           "libibverbs-dev\n");
    const char *ci = getenv("CI");
    return ci && strcmp(ci, "true") == 0; // there they are installed
}

#endif
