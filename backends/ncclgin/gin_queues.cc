#include "backends/ncclgin/gin_job.h"

#include <sys/mman.h>

namespace ncclgin {

namespace {

constexpr size_t page = 4096, line = 64;

} // namespace

int block_make(gda_fabric *f, bool on_gpu, size_t bytes, Block *block_p) {
    Block b;
    b.on_gpu = on_gpu;
    b.bytes = (bytes + page - 1) / page * page;
    if (on_gpu) {
        if (int rc = f->gpu->alloc(b.bytes, &b.addr))
            return rc;
    } else {
        b.addr = mmap(nullptr, b.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (b.addr == MAP_FAILED)
            return gic::fail(-ENOMEM, "map %zu bytes: %s", b.bytes, strerror(errno));
        if (int rc = f->gpu ? f->gpu->map(b.addr, b.bytes) : 0) {
            munmap(b.addr, b.bytes);
            return rc;
        }
    }
    *block_p = b;
    return 0;
}

int block_write(gda_fabric *f, const Block &block, size_t offset, const void *from, size_t bytes) {
    if (block.on_gpu)
        return f->gpu->upload((uint8_t *)block.addr + offset, from, bytes);
    memcpy((uint8_t *)block.addr + offset, from, bytes);
    return 0;
}

int block_read(const gda_fabric *f, const Block &block, size_t offset, void *to, size_t bytes) {
    if (block.on_gpu)
        return f->gpu->download(to, (const uint8_t *)block.addr + offset, bytes);
    memcpy(to, (const uint8_t *)block.addr + offset, bytes);
    return 0;
}

// A failure here has nobody to tell: the memory stays until the process ends.
void block_free(gda_fabric *f, Block *block) {
    if (block->addr && block->on_gpu)
        f->gpu->free(block->addr);
    else if (block->addr && (!f->gpu || f->gpu->unmap(block->addr) == 0))
        munmap(block->addr, block->bytes);
    *block = Block();
}

int queues_make(gda_fabric *f, uint32_t depth, const std::vector<uint32_t> &nodes, Queues *q) {
    const size_t n = nodes.size();
    const gda_places &p = f->places;
    q->qps.assign(n, gda_qp());
    int rc = block_make(f, p.queues_on_gpu, n * depth * MLX5_BB, &q->sq);
    rc = rc ? rc : block_make(f, p.queues_on_gpu, n * depth * MLX5_CQE, &q->cqe);
    rc = rc ? rc : block_make(f, p.gpu_engine, n * line, &q->records);
    rc = rc ? rc : block_make(f, p.doorbells_on_gpu, n * line, &q->bells);
    for (size_t i = 0; i < n && rc == 0; i++) {
        gda_qp &qp = q->qps[i];
        qp.sq = (uint8_t *)q->sq.addr + i * depth * MLX5_BB;
        qp.cqe = (struct mlx5_cqe *)q->cqe.addr + i * depth;
        qp.dbr = (struct mlx5_dbr *)((uint8_t *)q->records.addr + i * line);
        qp.bell = (uint64_t *)((uint8_t *)q->bells.addr + i * line);
        qp.depth = qp.cq_depth = depth;
        qp.peer = nodes[i];
        qp.collapsed = false;
        struct softnic_cq_attr cq = {};
        cq.cqe = qp.cqe;
        cq.depth = depth;
        // Neither NCCL's device code nor our proxy tells how far it has read: a CQ has a CQE for each slot of its queue.
        if ((rc = softnic_cq_create(f->nic, &cq, &qp.cqn)) != 0)
            return gic::fail(rc, "create CQ: %s", softnic_error());
        struct softnic_qp_attr attr = {};
        attr.sq = qp.sq;
        attr.depth = depth;
        attr.dbrec = &qp.dbr->snd;
        attr.doorbell = qp.bell;
        attr.cqn = qp.cqn;
        if ((rc = softnic_qp_create(f->nic, &attr, &qp.qpn)) != 0)
            return gic::fail(rc, "create QP: %s", softnic_error());
        f->qps.push_back(qp); // so that facts and counters know of it
        f->wqes_seen.resize(f->qps.size());
    }
    return rc;
}

int queues_connect(gda_fabric *f, const Queues &queues, const std::vector<uint32_t> &remote_qpns) {
    for (size_t i = 0; i < queues.qps.size(); i++) {
        const gda_qp &qp = queues.qps[i];
        if (int rc = softnic_qp_connect(f->nic, qp.qpn, qp.peer, remote_qpns[i]))
            return gic::fail(rc, "connect QP %u to rank %u: %s", qp.qpn, qp.peer, softnic_error());
    }
    return 0;
}

// NCCL rings, stores the record, and rings again; the engine may look at the record alone.
int queues_check_doorbells(const gda_fabric *f, const Queues &q) {
    const size_t n = q.qps.size();
    std::vector<uint8_t> records(n * line), bells(n * line);
    if (int rc = block_read(f, q.records, 0, records.data(), n * line))
        return rc;
    if (int rc = block_read(f, q.bells, 0, bells.data(), n * line))
        return rc;
    for (size_t i = 0; i < n; i++) {
        struct mlx5_dbr record;
        uint64_t bell;
        memcpy(&record, &records[i * line], sizeof record);
        memcpy(&bell, &bells[i * line], sizeof bell);
        const uint32_t said = mlx5_be32(record.snd) & 0xffff, rung = mlx5_doorbell_index(bell);
        if (bell == 0 ? said != 0 : rung != said || mlx5_doorbell_qpn(bell) != q.qps[i].qpn)
            return gic::fail(
                -EIO, "QP %u: its doorbell record says %u and its doorbell %u of QP %u: one was not rung",
                q.qps[i].qpn, said, rung, mlx5_doorbell_qpn(bell));
    }
    return 0;
}

void queues_free(gda_fabric *f, Queues *queues) {
    for (const gda_qp &qp : queues->qps) {
        if (qp.qpn)
            softnic_qp_destroy(f->nic, qp.qpn);
        if (qp.cqn)
            softnic_cq_destroy(f->nic, qp.cqn);
        for (size_t i = 0; i < f->qps.size(); i++)
            if (qp.qpn && f->qps[i].qpn == qp.qpn) {
                f->qps.erase(f->qps.begin() + (long)i);
                f->wqes_seen.erase(f->wqes_seen.begin() + (long)i);
                break;
            }
    }
    for (Block *b : {&queues->sq, &queues->cqe, &queues->records, &queues->bells})
        block_free(f, b);
    queues->qps.clear();
}

} // namespace ncclgin
