/* Completion queues. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

static int power_of_two(uint32_t v) { return v && (v & (v - 1)) == 0; }

static void init_cqes(struct cq *cq) {
    struct mlx5_cqe *cqe = (struct mlx5_cqe *)(void *)cq->cqe;
    for (uint32_t i = 0; i < (cq->collapsed ? 1 : cq->depth); i++)
        __atomic_store_n(&cqe[i].op_own, MLX5_OP_OWN_INITIAL, __ATOMIC_RELEASE);
    if (cq->collapsed) /* "the WQE before the first one is complete" */
        cqe->wqe_counter = 0xffff;
}

int softnic_cq_create(struct softnic *nic, const struct softnic_cq_attr *attr, uint32_t *cqn_p) {
    *cqn_p = 0;
    if (!attr->cqe || (uintptr_t)attr->cqe % MLX5_CQE)
        return softnic_fail(-EINVAL, "create CQ: CQEs at %p are not 64-byte aligned", attr->cqe);
    if (!power_of_two(attr->depth) || attr->depth > 1u << 22)
        return softnic_fail(-EINVAL, "create CQ: depth %u is not a power of two up to 4194304", attr->depth);
    if ((uintptr_t)attr->dbrec % 4)
        return softnic_fail(-EINVAL, "create CQ: doorbell record %p is not 4-byte aligned", attr->dbrec);
    uint32_t index = 0;
    while (index < nic->cq_count && nic->cqs[index])
        index++;
    if (index == nic->max_cqs)
        return softnic_fail(-ENOMEM, "create CQ: all %u are in use", nic->max_cqs);
    struct cq *cq = calloc(1, sizeof *cq);
    if (!cq)
        return softnic_fail(-ENOMEM, "create CQ: out of memory");
    cq->cqe = attr->cqe;
    cq->dbrec = attr->dbrec;
    cq->depth = attr->depth;
    cq->collapsed = attr->collapsed != 0;
    cq->cqn = CQN_BASE + index;
    nic_pause(nic); /* a WAIT may name any CQ */
    int status = nic->gpu ? gpu_cq_init(nic, cq) : 0;
    if (!status) {
        if (!nic->gpu)
            init_cqes(cq);
        nic->cqs[index] = cq;
        if (index == nic->cq_count)
            nic->cq_count++;
        *cqn_p = cq->cqn;
    } else {
        free(cq);
    }
    nic_unpause(nic);
    return status;
}

int softnic_cq_destroy(struct softnic *nic, uint32_t cqn) {
    uint32_t i = cqn - CQN_BASE;
    struct cq *cq = i < nic->cq_count ? nic->cqs[i] : NULL;
    if (!cq)
        return softnic_fail(-EINVAL, "destroy CQ: no CQ 0x%x", cqn);
    if (cq->users)
        return softnic_fail(-EBUSY, "destroy CQ: %u QPs use CQ 0x%x", cq->users, cqn);
    nic_pause(nic);
    nic->cqs[i] = NULL;
    nic_unpause(nic);
    free(cq);
    return 0;
}
