/* Completer: writes CQEs, and moves a QP to the error state. */
#include "internal.h"

#include <string.h>

/* The eight bytes that carry op_own are stored last, as one: whoever sees the owner bit sees the rest. */
static void store_cqe(uint8_t *to, const struct mlx5_cqe *cqe) {
    uint64_t words[MLX5_CQE / 8];
    memcpy(words, cqe, sizeof words);
    uint64_t *out = (uint64_t *)(void *)to;
    for (int i = 0; i < 7; i++)
        __atomic_store_n(out + i, words[i], __ATOMIC_RELAXED);
    __atomic_store_n(out + 7, words[7], __ATOMIC_RELEASE);
}

/* Is there a free CQE? The consumer index is the driver's: any nonsense in it reads as full. */
static int has_room(struct cq *cq) {
    if (!cq->dbrec || cq->collapsed)
        return 1;
    uint32_t cons = mlx5_be32(__atomic_load_n(cq->dbrec, __ATOMIC_ACQUIRE));
    return (((uint32_t)cq->prod - cons) & 0xffffff) < cq->depth;
}

static int cq_push(struct cq *cq, struct mlx5_cqe *cqe, uint8_t cqe_opcode) {
    int shared = cq->users > 1;
    if (shared)
        lock_take(&cq->lock);
    int written = !cq->overrun && has_room(cq);
    if (written) {
        uint32_t slot = cq->collapsed ? 0 : (uint32_t)cq->prod & (cq->depth - 1);
        /* A collapsed CQ has no laps: its reader goes by wqe_counter. */
        uint32_t lap = cq->collapsed ? 0 : (cq->prod & cq->depth) != 0;
        cqe->op_own = mlx5_op_own(cqe_opcode, lap);
        store_cqe(cq->cqe + (size_t)slot * MLX5_CQE, cqe);
        __atomic_store_n(&cq->prod, cq->prod + 1, __ATOMIC_RELEASE);
    } else {
        cq->overrun = 1;
    }
    if (shared)
        lock_drop(&cq->lock);
    return written;
}

int completer_cqe(struct worker *w, struct qp *qp, uint16_t index, uint8_t opcode, uint32_t bytes,
                  int syndrome) {
    union {
        struct mlx5_cqe ok;
        struct mlx5_cqe_err err;
    } cqe;
    uint8_t cqe_opcode = syndrome ? MLX5_CQE_OP_REQ_ERR : MLX5_CQE_OP_REQ;
    memset(&cqe, 0, sizeof cqe);
    if (syndrome) {
        cqe.err.syndrome = (uint8_t)syndrome;
    } else {
        cqe.ok.byte_cnt = mlx5_be32(bytes);
        cqe.ok.timestamp = mlx5_be64(w->now_ps / PS_PER_NS);
    }
    cqe.ok.sop_drop_qpn = mlx5_opcode_qpn(opcode, qp->qpn);
    cqe.ok.wqe_counter = mlx5_be16(index);
    if (cq_push(qp->cq, &cqe.ok, cqe_opcode)) {
        qp->n.cqes++;
        qp->n.error_cqes += syndrome != 0;
        if (UNLIKELY(w->nic->trace.records != NULL))
            trace_cqe(w, qp, index, cqe_opcode, syndrome);
        return 1;
    }
    /* As on hardware a CQ that overran takes no more CQEs and its QPs cannot go on. */
    qp->n.cqes_lost++;
    __atomic_store_n(&qp->state, SOFTNIC_QP_ERROR, __ATOMIC_RELEASE);
    return 0;
}

void completer_fail(struct worker *w, struct qp *qp, uint16_t index, uint8_t opcode, int syndrome) {
    if (qp->syndrome == 0)
        __atomic_store_n(&qp->syndrome, (uint8_t)syndrome, __ATOMIC_RELAXED);
    __atomic_store_n(&qp->state, SOFTNIC_QP_ERROR, __ATOMIC_RELEASE);
    completer_cqe(w, qp, index, opcode, 0, syndrome);
}
