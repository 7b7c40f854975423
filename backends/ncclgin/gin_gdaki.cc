// Contexts of type GDAKI: softnic's queues as NCCL's device code knows send queues.
#include "backends/ncclgin/gin_job.h"

namespace ncclgin {

namespace {

// Where device code reads constants from.
bool device_place() { return job.fabric->gpu != nullptr; }

nccl_abi::Qp describe(const gda_qp &qp, bool on_gpu) {
    nccl_abi::Qp q = {};
    q.qpn = qp.qpn;
    q.qpn_word = qp.qpn << 8;
    q.qpn_be = mlx5_be32(q.qpn_word);
    for (uint32_t ds = 1; ds <= 4; ds++)
        q.qpn_ds_be[ds - 1] = mlx5_be32(q.qpn_word | ds);
    q.depth = (uint16_t)qp.depth;
    q.mask = (uint16_t)(qp.depth - 1);
    q.sq = qp.sq;
    q.dbrec = &qp.dbr->snd; // device code adds no offset
    q.doorbell = qp.bell;
    q.nic_handler = nccl_abi::NIC_HANDLER_GPU_DOORBELL;
    q.memory = q.cq.memory = on_gpu ? nccl_abi::MEMORY_GPU : nccl_abi::MEMORY_HOST;
    q.cq.cqe = qp.cqe;
    q.cq.cqn = qp.cqn;
    q.cq.depth = qp.cq_depth;
    q.cq.mask = qp.cq_depth - 1;
    q.cq.cqe_bytes = MLX5_CQE;
    q.cq.dbrec = &qp.dbr->rcv;
    return q;
}

// Under Job::lock. Big-endian keys of all ranks, one after the other.
int publish_keys(const std::vector<uint32_t> &keys, Block *block_p) {
    std::vector<uint32_t> words;
    for (uint32_t key : keys)
        words.push_back(mlx5_be32(key));
    const size_t bytes = words.size() * sizeof words[0];
    if (int rc = block_make(job.fabric, device_place(), bytes, block_p))
        return rc;
    return block_write(job.fabric, *block_p, 0, words.data(), bytes);
}

int name_block(const Block &block, size_t bytes, uint32_t access, uint32_t *key_p) {
    const int rc =
        softnic_mr_register(job.fabric->nic, block.addr, bytes, access | SOFTNIC_ZERO_BASED, key_p);
    return rc ? gic::fail(rc, "register %zu bytes: %s", bytes, softnic_error()) : 0;
}

// Under Job::lock. All that needs no peer.
int make_own(Coll *coll, int counters, Context *x) {
    gda_fabric *f = job.fabric;
    const size_t bytes = (size_t)counters * sizeof(uint64_t);
    std::vector<uint32_t> nodes = coll->nodes;
    nodes.insert(nodes.end(), coll->nranks,
                 coll->nodes[coll->rank]); // companions post to the own counters alone
    if (int rc = queues_make(f, job.depth, nodes, &x->queues))
        return rc;
    if (int rc = block_make(f, f->places.window_on_gpu, bytes, &x->counters))
        return rc;
    if (int rc = block_make(f, f->places.window_on_gpu, sizeof(uint64_t), &x->sink))
        return rc;
    // Remote rights: a companion's atomics go to its own NIC, by a remote key. Nobody else is told of it.
    if (int rc =
            name_block(x->counters, bytes, SOFTNIC_LOCAL_WRITE | SOFTNIC_REMOTE_ATOMIC | SOFTNIC_PEER_MAPPED,
                       &x->counters_key))
        return rc;
    return name_block(x->sink, sizeof(uint64_t), SOFTNIC_LOCAL_WRITE, &x->sink_key);
}

// Collective. Queue i to a rank is connected with that rank's queue to this one; a companion with itself.
int connect(Coll *coll, int status, Context *x) {
    const std::string said = gic::error_text();
    const uint32_t n = coll->nranks;
    std::vector<uint32_t> mine(n + 1), all((size_t)(n + 1) * n), remote(2 * n);
    mine[n] = (uint32_t)status;
    for (uint32_t r = 0; r < n && status == 0; r++)
        mine[r] = x->queues.qps[r].qpn;
    const int rc = coll->group->gather(mine.data(), all.data(), mine.size() * sizeof mine[0]);
    if (status)
        return gic::fail(status, "%s", said.c_str());
    if (rc)
        return rc;
    for (uint32_t r = 0; r < n; r++) {
        if (all[(size_t)r * (n + 1) + n])
            return gic::fail(-EIO, "rank %u cannot make its queues", r);
        remote[r] = all[(size_t)r * (n + 1) + coll->rank];
        remote[n + r] = x->queues.qps[n + r].qpn;
    }
    std::lock_guard<std::mutex> hold(job.lock);
    return queues_connect(job.fabric, x->queues, remote);
}

// Under Job::lock.
int publish(Coll *coll, Context *x) {
    gda_fabric *f = job.fabric;
    const uint32_t n = coll->nranks;
    std::vector<nccl_abi::Qp> qps;
    for (const gda_qp &qp : x->queues.qps)
        qps.push_back(describe(qp, f->places.queues_on_gpu));
    const size_t bytes = qps.size() * sizeof qps[0];
    if (int rc = block_make(f, device_place(), bytes, &x->device_qps))
        return rc;
    if (int rc = block_write(f, x->device_qps, 0, qps.data(), bytes))
        return rc;
    std::vector<uint32_t> keys = x->signals.keys;
    keys.resize(2 * n);
    keys[n + coll->rank] = x->counters_key;
    if (int rc = publish_keys(keys, &x->device_keys))
        return rc;
    auto *rkeys = (uint32_t *)x->device_keys.addr;
    nccl_abi::GdakiContext c = {};
    c.qps = (nccl_abi::Qp *)x->device_qps.addr;
    c.companions = c.qps + n;
    c.signals = {(uint64_t *)x->signals.own.addr, rkeys, mlx5_be32(x->signals.key)};
    c.counters = {(uint64_t *)x->counters.addr, rkeys + n, mlx5_be32(x->counters_key)};
    c.sink_lkey = mlx5_be32(x->sink_key);
    if (int rc = block_make(f, device_place(), sizeof c, &x->device_context))
        return rc;
    if (int rc = block_write(f, x->device_context, 0, &c, sizeof c))
        return rc;
    x->handle.type = nccl_abi::DEVICE_GIN_GDAKI;
    x->handle.version = nccl_abi::GDAKI_VERSION;
    x->handle.handle = x->device_context.addr;
    x->handle.bytes = sizeof c;
    x->handle.needs_progress = 0;
    return 0;
}

} // namespace

int context_make(Coll *coll, int signals, int counters, Context **context_p) {
    if (signals < 1 || counters < 1)
        return gic::fail(-EINVAL, "a context of %d signals and %d counters: want at least 1 of each", signals,
                         counters);
    auto x = std::make_unique<Context>();
    x->coll = coll;
    int rc;
    {
        std::lock_guard<std::mutex> hold(job.lock);
        rc = make_own(coll, counters, x.get());
    }
    rc = connect(coll, rc, x.get());
    rc = rc ? rc : mr_make(coll, (size_t)signals * sizeof(uint64_t), &x->signals);
    if (rc == 0) {
        std::lock_guard<std::mutex> hold(job.lock);
        rc = publish(coll, x.get());
    }
    if (rc) {
        const std::string said = gic::error_text();
        coll->group->give_up(); // who has come further waits no longer
        context_free(x.release());
        return gic::fail(rc, "%s", said.c_str());
    }
    std::lock_guard<std::mutex> hold(job.lock);
    coll->context = *context_p = x.release();
    job.served = nccl_abi::DEVICE_GIN_GDAKI;
    return 0;
}

void context_free(Context *x) {
    mr_release(x->coll, &x->signals);
    std::lock_guard<std::mutex> hold(job.lock);
    queues_free(job.fabric, &x->queues);
    for (uint32_t key : {x->counters_key, x->sink_key})
        if (key)
            softnic_mr_deregister(job.fabric->nic, key);
    for (Block *b : {&x->counters, &x->sink, &x->device_qps, &x->device_keys, &x->device_context})
        block_free(job.fabric, b);
    if (x->coll->context == x)
        x->coll->context = nullptr;
    delete x;
}

// Device code waits for the CQE of a WQE until the CQ's consumer index, which it keeps itself, is above it. Behind an error
// CQE nothing moves that any more: here it is put above all there will be.
int context_unblock(Context *x, bool all) {
    const size_t n = x->queues.qps.size(), peers = n / 2;
    auto *qps = (nccl_abi::Qp *)x->device_qps.addr;
    x->unblocked.resize(n);
    for (size_t i = 0; i < n; i++) {
        // A companion waits for its main queue.
        const bool failed = softnic_qp_syndrome(job.fabric->nic, x->queues.qps[i].qpn) ||
                            softnic_qp_syndrome(job.fabric->nic, x->queues.qps[i % peers].qpn);
        if (x->unblocked[i] || !(failed || all))
            continue;
        if (int rc = job.memory->store(&qps[i].cq.cons_idx, (uint64_t)1 << 63))
            return rc;
        x->unblocked[i] = true;
    }
    return 0;
}

int context_publish_mr(Mr *mr) {
    std::lock_guard<std::mutex> hold(job.lock);
    if (int rc = publish_keys(mr->keys, &mr->device_keys))
        return rc;
    const nccl_abi::MemHandle h = {(uint32_t *)mr->device_keys.addr, mlx5_be32(mr->key)};
    if (int rc = block_make(job.fabric, device_place(), sizeof h, &mr->device))
        return rc;
    return block_write(job.fabric, mr->device, 0, &h, sizeof h);
}

} // namespace ncclgin
