// Type PROXY: NCCL's thread takes descriptors from its own queues in host memory and calls here; this posts what they
// ask for to softnic, one queue for each rank.
#include "backends/ncclgin/gin_job.h"

#include "minigda/gda_wqe.cuh"

#include <algorithm>

#include <sched.h>

namespace ncclgin {

namespace {

// NCCL has at most 32 requests for each of the 8 receives that the properties tell, of two WQEs each; longer puts take
// one WQE for each GiB.
constexpr uint32_t least_depth = 1024;
constexpr size_t chunk = (size_t)1 << 30;
constexpr uint64_t room_timeout_ns = 10000000000u;

// A request is what completes it: rank + 1 above, the block behind its last one below. Never null, which NCCL takes for
// "try again" in one place and does not expect in another.
constexpr uint64_t low = ((uint64_t)1 << 48) - 1;
void *request_of(uint32_t rank, uint64_t end) { return (void *)((uint64_t)(rank + 1) << 48 | (end & low)); }

uint64_t now_ns() {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

// Takes CQEs. -EIO after an error one.
int poll(Coll *coll, uint32_t rank) {
    const gda_qp &qp = coll->queues.qps[rank];
    Posted &p = coll->posted[rank];
    while (p.done_idx != p.prod_idx) {
        const struct mlx5_cqe *cqe = &qp.cqe[p.cons_idx & (qp.cq_depth - 1)];
        // The rest of the CQE is there once its owner bit says so.
        const uint8_t op_own = __atomic_load_n(&cqe->op_own, __ATOMIC_ACQUIRE);
        if (!mlx5_op_own_ready(op_own, p.cons_idx, qp.cq_depth))
            return 0;
        if (mlx5_op_own_opcode(op_own) != MLX5_CQE_OP_REQ) {
            const auto *e = (const struct mlx5_cqe_err *)cqe;
            return gic::fail(-EIO, "error CQE on QP %u to rank %u: syndrome 0x%02x, WQE %u", qp.qpn, rank,
                             e->syndrome, mlx5_be16(e->wqe_counter));
        }
        // Every WQE is of one block.
        p.done_idx += (uint16_t)(mlx5_cqe_wqe_counter(cqe) + 1 - (uint16_t)p.done_idx);
        p.cons_idx++;
    }
    return 0;
}

int await_room(Coll *coll, uint32_t rank, uint32_t wqes) {
    const gda_qp &qp = coll->queues.qps[rank];
    Posted &p = coll->posted[rank];
    if (wqes > qp.depth)
        return gic::fail(-ENOTSUP, "a put of %u requests: the queue has room for %u", wqes, qp.depth);
    for (uint64_t until = now_ns() + room_timeout_ns; p.prod_idx + wqes - p.done_idx > qp.depth;
         sched_yield()) {
        if (int rc = poll(coll, rank))
            return rc;
        if (job.given_up)
            return gic::fail(-ECANCELED, "QP %u to rank %u: the run is given up", qp.qpn, rank);
        if (now_ns() > until)
            return gic::fail(-ETIMEDOUT, "QP %u to rank %u: no room for %u requests", qp.qpn, rank, wqes);
    }
    return 0;
}

// The mailbox of `rank`, or its table where that is reached.
const Region &signals_of(const Coll *coll, const Put &put) {
    const Mr &m = *put.signal;
    return put.rank != coll->rank ? m.theirs[put.rank] : m.relayed ? m.box : m.own;
}

int check(const Coll *coll, const Put &put) {
    if (put.rank >= coll->nranks)
        return gic::fail(-EINVAL, "a put to rank %u of %u", put.rank, coll->nranks);
    if (put.bytes && (!put.src || !put.dst))
        return gic::fail(-EINVAL, "a put of %zu bytes without memory", put.bytes);
    if (put.bytes && !put.src->reached)
        return gic::fail(-ENOTSUP,
                         "a put from GPU memory, which engine=cpu does not reach: want window=host");
    if (put.bytes && !put.dst->keys[put.rank])
        return gic::fail(-ENOTSUP,
                         "a put to memory of rank %u that engine=cpu does not reach: want window=host",
                         put.rank);
    // The library stores the value and takes its offset by way of a wrong pointer (2.28.9): the offset is wild.
    if (put.bytes && (put.src_offset > put.src->bytes || put.bytes > put.src->bytes - put.src_offset))
        return gic::fail(
            -ERANGE,
            "a put of %zu bytes from offset %llu of %zu: out of range (with type PROXY, putValue of NCCL "
            "2.28.9 does this: use put)",
            put.bytes, (unsigned long long)put.src_offset, put.src->bytes);
    if (put.signal && (put.signal_offset % 8 || put.signal_offset + 8 > put.signal->bytes))
        return gic::fail(-ERANGE, "a signal at offset %llu of %zu", (unsigned long long)put.signal_offset,
                         put.signal->bytes);
    if (put.signal && !put.signal->keys[put.rank])
        return gic::fail(-ENOTSUP, "a signal to rank %u, whose table is not reached", put.rank);
    return 0;
}

gda_place place_of(const gda_qp &qp, uint32_t rkey) {
    return {qp.sq, qp.depth - 1, mlx5_ctrl_word1(qp.qpn, 0), mlx5_be32(rkey), 0};
}

void ring(const gda_qp &qp, uint64_t prod_idx) {
    // The engine must find whole WQEs below the record, and the record above the doorbell.
    __atomic_store_n(&qp.dbr->snd, mlx5_dbr_value(prod_idx), __ATOMIC_RELEASE);
    __atomic_store_n(qp.bell, mlx5_doorbell_value(prod_idx, qp.qpn), __ATOMIC_RELEASE);
}

void raise(std::atomic<uint64_t> *word, uint64_t to) {
    for (uint64_t was = word->load(std::memory_order_relaxed); was < to;)
        if (word->compare_exchange_weak(was, to, std::memory_order_release))
            return;
}

// Not a request: what the NIC is asked for stays what it would be without a mailbox.
void raise_mailbox(const Region &box, uint64_t word, uint64_t words) {
    auto *mailbox = (Mailbox *)box.addr;
    raise(&mailbox->high, word + 1);
    raise(&mailbox->deep, words - word);
}

int hand_on(Coll *coll, Relay::Words *batch) {
    if (batch->count == 0)
        return 0;
    coll->relayed += batch->count;
    const int rc = job.relay->add(*batch);
    batch->count = 0;
    return rc;
}

int relay_one(Coll *coll, Mr *mr) {
    auto *box = (Mailbox *)mr->box.addr;
    auto *words = (uint64_t *)((uint8_t *)mr->box.addr + sizeof(Mailbox));
    const uint64_t count = mr->bytes / 8; // peers wrote the two: not believed beyond this
    const uint64_t high = std::min(box->high.load(std::memory_order_acquire), count);
    const uint64_t deep = std::min(box->deep.load(std::memory_order_acquire), count);
    Relay::Words batch;
    batch.count = 0;
    for (uint64_t i = count - deep; i < high; i++) {
        if (__atomic_load_n(&words[i], __ATOMIC_RELAXED) == 0)
            continue;
        batch.addr[batch.count] = (uint64_t *)mr->own.addr + i;
        batch.delta[batch.count++] = __atomic_exchange_n(&words[i], 0, __ATOMIC_ACQUIRE);
        if (batch.count < Relay::MAX_WORDS)
            continue;
        if (int rc = hand_on(coll, &batch))
            return rc;
    }
    return hand_on(coll, &batch);
}

} // namespace

int proxy_start(Coll *coll) {
    gda_fabric *f = job.fabric;
    const uint32_t n = coll->nranks;
    int rc;
    {
        std::lock_guard<std::mutex> hold(job.lock);
        rc = queues_make(f, job.depth > least_depth ? job.depth : least_depth, coll->nodes, &coll->queues);
        rc = rc ? rc : block_make(f, false, sizeof(uint64_t), &coll->sink);
        if (rc == 0 &&
            (rc = softnic_mr_register(f->nic, coll->sink.addr, sizeof(uint64_t),
                                      SOFTNIC_LOCAL_WRITE | SOFTNIC_ZERO_BASED, &coll->sink_key)) != 0)
            rc = gic::fail(rc, "register a word: %s", softnic_error());
    }
    const std::string said = gic::error_text();
    std::vector<uint32_t> mine(n + 1), all((size_t)(n + 1) * n), remote(n);
    mine[n] = (uint32_t)rc;
    for (uint32_t r = 0; r < n && rc == 0; r++)
        mine[r] = coll->queues.qps[r].qpn;
    const int gathered = coll->group->gather(mine.data(), all.data(), mine.size() * sizeof mine[0]);
    if (rc)
        return gic::fail(rc, "%s", said.c_str());
    if (gathered)
        return gathered;
    for (uint32_t r = 0; r < n; r++) {
        if (all[(size_t)r * (n + 1) + n])
            return gic::fail(-EIO, "rank %u cannot make its queues", r);
        remote[r] = all[(size_t)r * (n + 1) + coll->rank];
    }
    coll->posted.assign(n, Posted());
    std::lock_guard<std::mutex> hold(job.lock);
    return queues_connect(f, coll->queues, remote);
}

void proxy_stop(Coll *coll) {
    std::lock_guard<std::mutex> hold(job.lock);
    queues_free(job.fabric, &coll->queues);
    if (coll->sink_key)
        softnic_mr_deregister(job.fabric->nic, coll->sink_key);
    block_free(job.fabric, &coll->sink);
}

int proxy_post(Coll *coll, const Put &put, void **request_p) {
    if (int rc = check(coll, put))
        return rc;
    const gda_qp &qp = coll->queues.qps[put.rank];
    Posted &p = coll->posted[put.rank];
    const uint32_t writes = (uint32_t)((put.bytes + chunk - 1) / chunk),
                   wqes = writes + (put.signal != nullptr);
    if (int rc = await_room(coll, put.rank, wqes ? wqes : 1))
        return rc;
    uint32_t left = wqes;
    auto flags = [&left] {
        return gda_flags(--left == 0 ? MLX5_CTRL_CQ_UPDATE : 0);
    }; // one CQE, for the last
    for (size_t at = 0; at < put.bytes; at += chunk) {
        const size_t bytes = put.bytes - at < chunk ? put.bytes - at : chunk;
        gda_write_pointer(place_of(qp, put.dst->keys[put.rank]), (uint32_t)p.prod_idx++, flags(),
                          MLX5_OP_RDMA_WRITE, put.dst_offset + at, (uint32_t)bytes, put.src->key,
                          put.src_offset + at);
    }
    if (put.signal) {
        if (put.signal->relayed)
            raise_mailbox(signals_of(coll, put), put.signal_offset / 8, put.signal->bytes / 8);
        gda_write_fetch_add(place_of(qp, put.signal->keys[put.rank]), (uint32_t)p.prod_idx++, flags(),
                            put.signal_offset, put.value, coll->sink_key, 0);
    }
    if (wqes == 0) { // nothing to do, but behind what came before
        left = 1;
        gda_write_nop(place_of(qp, 0), (uint32_t)p.prod_idx++, flags());
    }
    ring(qp, p.prod_idx);
    *request_p = request_of(put.rank, p.prod_idx);
    return 0;
}

void *proxy_lost() { return request_of(UINT16_MAX - 1, low); }

int proxy_test(Coll *coll, void *request, int *done_p) {
    *done_p = job.given_up;
    if (job.given_up || request == proxy_lost())
        return 0;
    const uint64_t word = (uint64_t)request, above = word >> 48, end = word & low;
    if (above == 0 || above > coll->nranks)
        return gic::fail(-EINVAL, "a request that iput did not give: %p", request);
    if (int rc = poll(coll, (uint32_t)(above - 1)))
        return rc;
    *done_p = coll->posted[above - 1].done_idx >= end;
    return 0;
}

int proxy_relay(Coll *coll) {
    std::lock_guard<std::mutex> hold(coll->mrs_lock); // windows come and go meanwhile
    for (Mr *mr : coll->mrs)
        if (mr->relayed)
            if (int rc = relay_one(coll, mr))
                return rc;
    return 0;
}

} // namespace ncclgin
