#include "backends/nvshmem/queues.h"

#include "backends/abi/ranks.h"

#include <errno.h>
#include <string.h>

namespace nvshmem_queues {

namespace {

constexpr uint32_t max_queues = 512; // RC per PE, DC

// The text of NVSHMEM_<name>, or nullptr.
const char *env(const char *name) {
    const std::string full = std::string("NVSHMEM_") + name;
    const char *text = getenv(full.c_str());
    return text && *text ? text : nullptr;
}

int read_number(const char *name, uint64_t value, uint64_t low, uint64_t high, uint32_t *number_p) {
    const char *text = env(name);
    if (text && !gic::parse_u64(text, &value))
        return gic::fail(-EINVAL, "NVSHMEM_%s=%s: not a number", name, text);
    if (value < low || value > high)
        return gic::fail(-ENOTSUP, "NVSHMEM_%s=%llu: want %llu..%llu", name, (unsigned long long)value,
                         (unsigned long long)low, (unsigned long long)high);
    *number_p = (uint32_t)value;
    return 0;
}

uint32_t power_of_two_from(uint32_t n) {
    uint32_t p = 1;
    while (p < n)
        p *= 2;
    return p;
}

int read_map(const char *name, const char *choices, nvshmemi_ibgda_device_qp_map_type_t *map_p) {
    const char *text = env(name);
    const int choice = text ? gic::index_in(choices, text) : 0;
    if (choice < 0)
        return gic::fail(-ENOTSUP, "NVSHMEM_%s=%s: want one of %s", name, text, choices);
    *map_p = (nvshmemi_ibgda_device_qp_map_type_t)(NVSHMEMI_IBGDA_DEVICE_QP_MAP_TYPE_CTA + choice);
    return 0;
}

int read_dc(Knobs *k) {
    if (int rc = read_number("IBGDA_NUM_DCI", 1, 1, max_queues, &k->dcis))
        return rc;
    if (int rc = read_number("IBGDA_NUM_SHARED_DCI", 1, 1, k->dcis, &k->shared_dcis))
        return rc;
    if (int rc = read_number("IBGDA_NUM_DCT", 2, 1, NVSHMEMI_IBGDA_MAX_CONST_DCTS, &k->dcts))
        return rc;
    if (int rc = read_map("IBGDA_DCI_MAP_BY", "cta|sm|warp|dct", &k->dci_map))
        return rc;
    if (k->rc_per_pe > 0 && k->dcis > 1)
        return gic::fail(
            -ENOTSUP,
            "NVSHMEM_IBGDA_NUM_DCI=%u with NVSHMEM_IBGDA_NUM_RC_PER_PE=%u: DC queue pairs carry nothing "
            "beside RC ones here; want one, or no RC",
            k->dcis, k->rc_per_pe);
    return 0;
}

// A GPU that writes to the doorbell is what `auto` ends at too where it can; `cpu` would need a view of GPU memory.
int read_handler(bool *host_p) {
    const char *text = env("IBGDA_NIC_HANDLER");
    const int choice = text ? gic::index_in("auto|gpu|cpu_host_memory", text) : 0;
    if (choice < 0)
        return gic::fail(-ENOTSUP, "NVSHMEM_IBGDA_NIC_HANDLER=%s: want one of auto|gpu|cpu_host_memory",
                         text);
    *host_p = choice == 2;
    return 0;
}

template <class T> int in_gpu(gda_fabric *f, size_t n, T **p) {
    void *addr = nullptr;
    int rc = f->gpu->alloc(n * sizeof(T), &addr);
    *p = (T *)addr;
    return rc;
}

// One queue pair as the device sees it. `self` and `cq_self` are where the two structs will lie in GPU memory.
void describe(const gda_qp &qp, nvshmemi_ibgda_device_qp_type_t type, const Knobs &knobs, uint8_t *ibuf,
              uint32_t ibuf_key, nvshmemi_ibgda_device_qp_t *self, nvshmemi_ibgda_device_cq_t *cq_self,
              nvshmemi_ibgda_device_qp_t *q, nvshmemi_ibgda_device_cq_t *c) {
    nvshmemi_init_ibgda_device_qp((*q));
    memset(&q->mvars, 0, sizeof q->mvars);
    q->mvars.version = (1 << 16) + (int)sizeof q->mvars;
    q->qp_type = type;
    q->qpn = qp.qpn;
    q->dev_idx = 0;
    q->ibuf.nslots = knobs.fetch_slots;
    q->ibuf.buf = ibuf;
    q->ibuf.lkey = q->ibuf.rkey = mlx5_be32(ibuf_key);
    q->tx_wq.nwqes = (uint16_t)qp.depth;
    q->tx_wq.wqe = qp.sq;
    q->tx_wq.dbrec = &qp.dbr->snd; // the device adds no offset
    q->tx_wq.bf = qp.bell;
    q->tx_wq.cq = cq_self;
    q->tx_wq.prod_idx = &self->mvars.tx_wq.prod_idx;

    nvshmemi_init_ibgda_device_cq((*c));
    c->qp_type = type;
    c->qpn = qp.qpn;
    c->cqn = qp.cqn;
    c->cqe = qp.cqe;
    c->ncqes = qp.depth; // of a collapsed CQ: how far a producer may be ahead
    c->dbrec = &qp.dbr->rcv;
    c->prod_idx = &self->mvars.tx_wq.prod_idx;
    c->cons_idx = &self->mvars.tx_wq.cons_idx;
    c->resv_head = &self->mvars.tx_wq.resv_head;
    c->ready_head = &self->mvars.tx_wq.ready_head;
}

} // namespace

int read_knobs(Knobs *k) {
    if (int rc = read_number("IBGDA_NUM_RC_PER_PE", 2, 0, max_queues, &k->rc_per_pe))
        return rc;
    if (int rc = read_dc(k))
        return rc;
    if (int rc = read_number("QP_DEPTH", 1024, NVSHMEMI_IBGDA_MIN_QP_DEPTH, NVSHMEMI_IBGDA_MAX_QP_DEPTH,
                             &k->depth))
        return rc;
    if (k->depth & (k->depth - 1))
        return gic::fail(-ENOTSUP, "NVSHMEM_QP_DEPTH=%u: want a power of two", k->depth);
    if (int rc = read_number("IBGDA_NUM_REQUESTS_IN_BATCH", 32, 1, k->depth, &k->batch))
        return rc;
    k->batch = power_of_two_from(k->batch);
    if (int rc = read_number(k->rc_per_pe ? "IBGDA_NUM_FETCH_SLOTS_PER_RC" : "IBGDA_NUM_FETCH_SLOTS_PER_DCI",
                             1024, 1, 65536, &k->fetch_slots))
        return rc;
    k->fetch_slots = power_of_two_from(k->fetch_slots);
    if (int rc = read_handler(&k->host_rings))
        return rc;
    return read_map("IBGDA_RC_MAP_BY", "cta|sm|warp", &k->map);
}

void ring(const gda_fabric *f, Announced *a) {
    for (size_t i = 0; i < a->rung.size(); i++) {
        const gda_qp &qp = f->qps[i];
        const uint64_t next = __atomic_load_n(&a->words[i], __ATOMIC_ACQUIRE);
        if (next == a->rung[i])
            continue;
        // The NIC must not see the doorbell before the record, nor the record before the WQEs.
        __atomic_store_n(&qp.dbr->snd, mlx5_dbr_value(next), __ATOMIC_RELEASE);
        __atomic_store_n(qp.bell, mlx5_doorbell_value(next, qp.qpn), __ATOMIC_RELEASE);
        a->rung[i] = next;
    }
}

namespace {

// The queue pairs as the device sees them, and where they will lie. CQs of DC queue pairs come first.
struct Lists {
    nvshmemi_ibgda_device_qp_t *dcis = nullptr, *rcs = nullptr;
    nvshmemi_ibgda_device_cq_t *cqs = nullptr;
    std::vector<nvshmemi_ibgda_device_qp_t> dci, rc; // zeroed
    std::vector<nvshmemi_ibgda_device_cq_t> cq;
};

// RC: queue pair 0 to this rank itself stands in for the one DCI that must exist; nothing ever posts to it, since a PE reaches
// its own heap by loads and stores. The own PE's RC entries stay zeroed and are never read.
int describe_all(gda_fabric *f, const Knobs &knobs, const Announced *announced, Lists *l) {
    const size_t n = f->qps.size(), own = (size_t)f->rank * knobs.rc_per_pe;
    const bool dc = knobs.rc_per_pe == 0;
    const size_t slots = (size_t)NVSHMEMI_IBGDA_IBUF_SLOT_SIZE * (knobs.fetch_slots + 1);
    l->dci.resize(dc ? n : 1);
    l->rc.resize(dc ? 0 : n);
    l->cq.resize(l->dci.size() + l->rc.size());
    if (int rc = in_gpu(f, l->dci.size(), &l->dcis))
        return rc;
    if (int rc = dc ? 0 : in_gpu(f, n, &l->rcs))
        return rc;
    if (int rc = in_gpu(f, l->cq.size(), &l->cqs))
        return rc;
    void *ibufs;
    uint32_t key = 0;
    const size_t used = dc ? n : n - knobs.rc_per_pe + 1;
    if (int rc = gda_fabric_alloc_data(f, used * slots, &ibufs, &key))
        return rc;
    auto *ibuf = (uint8_t *)ibufs;
    for (size_t i = 0; i < n; i++) {
        const bool stands_in = !dc && i == own;
        if (!dc && f->qps[i].peer == f->rank && !stands_in)
            continue;
        const size_t d = dc ? i : 0, c = dc || stands_in ? d : i + 1;
        nvshmemi_ibgda_device_qp_t *qp = dc || stands_in ? &l->dci[d] : &l->rc[i];
        describe(f->qps[i],
                 dc || stands_in ? NVSHMEMI_IBGDA_DEVICE_QP_TYPE_DCI : NVSHMEMI_IBGDA_DEVICE_QP_TYPE_RC,
                 knobs, ibuf, key, dc || stands_in ? &l->dcis[d] : &l->rcs[i], &l->cqs[c], qp, &l->cq[c]);
        if (knobs.host_rings && !stands_in)
            qp->tx_wq.bf = &announced->words[i];
        ibuf += slots;
    }
    if (int rc = f->gpu->upload(l->dcis, l->dci.data(), l->dci.size() * sizeof l->dci[0]))
        return rc;
    if (int rc = dc ? 0 : f->gpu->upload(l->rcs, l->rc.data(), n * sizeof l->rc[0]))
        return rc;
    return f->gpu->upload(l->cqs, l->cq.data(), l->cq.size() * sizeof l->cq[0]);
}

// Makes this PE's DCTs and fills in those of all, in the compact form that a WQE takes over.
int make_dcts(gda_fabric *f, uint32_t per_pe, nvshmemi_ibgda_device_state_t *state) {
    if ((uint64_t)per_pe * f->nranks > NVSHMEMI_IBGDA_MAX_CONST_DCTS)
        return gic::fail(-ENOTSUP, "NVSHMEM_IBGDA_NUM_DCT=%u for each of %u PEs: want at most %d of all",
                         per_pe, f->nranks, NVSHMEMI_IBGDA_MAX_CONST_DCTS);
    constexpr uint64_t dc_key = 0x6769632d6463; // and the PE's number
    std::vector<uint32_t> mine(per_pe), all((size_t)per_pe * f->nranks);
    for (uint32_t &dct : mine)
        if (int rc = softnic_dct_create(f->nic, dc_key + f->rank, &dct))
            return gic::fail(rc, "%s", softnic_error());
    const gic::Ranks ranks = {f->rank, f->nranks, f->comm};
    if (int rc = ranks.gather(mine.data(), all.data(), per_pe * sizeof(uint32_t), "DCT numbers"))
        return rc;
    for (size_t i = 0; i < all.size(); i++) {
        const uint32_t pe = (uint32_t)(i / per_pe);
        nvshmemi_ibgda_device_dct_t *dct = &state->constmem.dcts[i];
        dct->key.dc_key = mlx5_be64(dc_key + pe);
        dct->dqp_dct = mlx5_be32(all[i]);
        dct->rlid = mlx5_be16((uint16_t)(pe + 1));
    }
    return 0;
}

} // namespace

int build(gda_fabric *f, const Knobs &knobs, size_t log2_granularity, nvshmemi_ibgda_device_state_t *state,
          Announced *announced) {
    const bool dc = knobs.rc_per_pe == 0;
    if (int rc = dc ? gda_fabric_connect_dc(f, knobs.dcis, knobs.depth, 0)
                    : gda_fabric_connect(f, knobs.rc_per_pe, knobs.depth, 0))
        return rc;
    if (knobs.host_rings) {
        void *words;
        if (int rc = gda_fabric_alloc(f, f->qps.size() * sizeof(uint64_t), &words, nullptr))
            return rc;
        announced->words = static_cast<uint64_t *>(words);
        announced->rung.assign(f->qps.size(), 0);
    }
    Lists lists;
    if (int rc = describe_all(f, knobs, announced, &lists))
        return rc;
    const uint32_t groups = dc ? knobs.dcis : knobs.rc_per_pe;
    uint8_t *switches;
    if (int rc = in_gpu(f, groups, &switches))
        return rc;

    memset(state, 0, sizeof *state);
    if (int rc = dc ? make_dcts(f, knobs.dcts, state) : 0)
        return rc;
    state->version = (1 << 16) + (int)sizeof *state;
    state->num_shared_dcis = dc ? knobs.shared_dcis : 1;
    state->num_exclusive_dcis = dc ? knobs.dcis - knobs.shared_dcis : 0;
    state->dci_map_type = knobs.dci_map;
    state->ndcts_per_pe = dc ? knobs.dcts : 1; // the device takes a modulo by these two
    state->num_dct_groups = 1;
    state->num_qp_groups = groups;
    state->num_rc_per_pe = knobs.rc_per_pe;
    state->rc_map_type = knobs.map;
    state->num_requests_in_batch = knobs.batch;
    state->log2_cumem_granularity = log2_granularity;
    state->num_devices_initialized = 1;
    state->nic_buf_on_gpumem = f->places.queues_on_gpu; // where not, the device orders at system scope
    state->use_async_postsend = knobs.host_rings;
    state->support_half_av_seg = true;
    state->may_skip_cst = true; // softnic's payload is visible before its CQE
    state->globalmem.qp_group_switches = switches;
    state->globalmem.cqs = lists.cqs;
    state->globalmem.dcis = lists.dcis;
    state->globalmem.rcs = lists.rcs;
    return 0;
}

namespace {

struct Chunks {
    uint64_t first, count;
};
Chunks chunks(const nvshmemi_ibgda_device_state_t *state, uint64_t offset, size_t bytes) {
    const uint64_t first = offset >> state->log2_cumem_granularity;
    return {first, ((offset + bytes - 1) >> state->log2_cumem_granularity) - first + 1};
}

} // namespace

int set_lkey(nvshmemi_ibgda_device_state_t *state, uint64_t heap, uint64_t addr, size_t bytes, uint32_t key) {
    const Chunks c = chunks(state, addr - heap, bytes);
    if (c.first + c.count > NVSHMEMI_IBGDA_MAX_CONST_LKEYS)
        return gic::fail(-ENOTSUP, "a symmetric heap of more than %u chunks of %zu bytes",
                         NVSHMEMI_IBGDA_MAX_CONST_LKEYS, (size_t)1 << state->log2_cumem_granularity);
    for (uint64_t i = c.first; i < c.first + c.count; i++)
        state->constmem.lkeys[i] = {mlx5_be32(key), addr + bytes};
    return 0;
}

int set_rkey(nvshmemi_ibgda_device_state_t *state, uint32_t npes, uint32_t pe, uint64_t offset, size_t bytes,
             uint32_t key) {
    const Chunks c = chunks(state, offset, bytes);
    if ((c.first + c.count) * npes > NVSHMEMI_IBGDA_MAX_CONST_RKEYS)
        return gic::fail(-ENOTSUP, "%llu chunks of the symmetric heap of %u PEs: more than %u keys",
                         (unsigned long long)(c.first + c.count), npes, NVSHMEMI_IBGDA_MAX_CONST_RKEYS);
    for (uint64_t i = c.first; i < c.first + c.count; i++)
        state->constmem.rkeys[i * npes + pe] = {mlx5_be32(key), offset + bytes};
    return 0;
}

int add_local(gda_fabric *f, nvshmemi_ibgda_device_state_t *state, uint64_t addr, size_t bytes,
              bool system_scope, uint32_t key) {
    nvshmemi_ibgda_device_local_only_mhandle_t one, *in_list;
    nvshmemi_init_ibgda_device_local_only_memhandle(one);
    one.start = addr;
    one.end = addr + bytes - 1;
    one.is_sysmem_scope = system_scope;
    one.lkeys[0] = mlx5_be32(key);
    one.next = state->globalmem.local_only_mhandle_head;
    if (int rc = in_gpu(f, 1, &in_list))
        return rc;
    if (int rc = f->gpu->upload(in_list, &one, sizeof one))
        return rc;
    state->globalmem.local_only_mhandle_head = in_list;
    return 0;
}

} // namespace nvshmem_queues
