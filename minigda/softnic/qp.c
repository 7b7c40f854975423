/* Queue pairs: creation, connection, reset, counters. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int check(const struct softnic *nic, const struct softnic_qp_attr *a) {
    if (!a->sq || (uintptr_t)a->sq % MLX5_BB)
        return softnic_fail(-EINVAL, "create QP: send queue at %p is not 64-byte aligned", a->sq);
    if (a->depth == 0 || (a->depth & (a->depth - 1)) || a->depth > MAX_DEPTH)
        return softnic_fail(-EINVAL, "create QP: depth %u is not a power of two up to %d", a->depth,
                            MAX_DEPTH);
    if (!a->dbrec || (uintptr_t)a->dbrec % 4)
        return softnic_fail(-EINVAL, "create QP: doorbell record at %p is not 4-byte aligned", a->dbrec);
    if ((nic->watch == SOFTNIC_WATCH_BELL && !a->doorbell) || (uintptr_t)a->doorbell % 8)
        return softnic_fail(-EINVAL, "create QP: doorbell at %p is not 8-byte aligned", a->doorbell);
    if (a->cqn - CQN_BASE >= nic->cq_count || !nic->cqs[a->cqn - CQN_BASE])
        return softnic_fail(-EINVAL, "create QP: no CQ 0x%x", a->cqn);
    return nic->gpu ? gpu_qp_check(nic, a) : 0;
}

void qp_free(struct qp *qp) {
    if (!qp)
        return;
    free(qp->pend);
    free(qp->shadow);
    free(qp);
}

/* Puts a QP into its place and has it watched. */
static int enter(struct softnic *nic, struct qp *qp) {
    struct gpu_nics held = {.count = 0};
    if (nic->gpu && nic->timed) /* it allocates */
        nic_pause_gpus(&held);
    nic_pause(nic); /* the CQ's lock is needed from its second QP on */
    int status = nic->gpu ? gpu_qp_added(nic, qp) : 0;
    if (!status) {
        qp->cq->users++;
        nic->qps[qp->index] = qp;
        if (qp->index == nic->qp_count)
            nic->qp_count++;
        if (!nic->gpu)
            uar_watch(&nic->workers[qp->index % nic->worker_count], qp);
    }
    nic_unpause(nic);
    nic_unpause_gpus(&held);
    return status;
}

int softnic_qp_create(struct softnic *nic, const struct softnic_qp_attr *attr, uint32_t *qpn_p) {
    *qpn_p = 0;
    int status = check(nic, attr);
    if (status)
        return status;
    uint32_t index = 0;
    while (index < nic->qp_count && nic->qps[index])
        index++;
    if (index == nic->max_qps)
        return softnic_fail(-ENOMEM, "create QP: all %u are in use", nic->max_qps);
    struct qp *qp = aligned_alloc(64, sizeof *qp);
    if (!qp)
        return softnic_fail(-ENOMEM, "create QP: out of memory");
    memset(qp, 0, sizeof *qp);
    if (nic->timed && !nic->gpu) {
        qp->pend = calloc(attr->depth, sizeof *qp->pend);
        qp->shadow = aligned_alloc(64, (size_t)attr->depth * MLX5_BB);
        if (!qp->pend || !qp->shadow) {
            qp_free(qp);
            return softnic_fail(-ENOMEM, "create QP: out of memory for depth %u", attr->depth);
        }
    }
    qp->index = index;
    qp->qpn = QPN_BASE + qp->index;
    qp->sq = attr->sq;
    qp->mask = attr->depth - 1;
    qp->dbrec = attr->dbrec;
    qp->bell = attr->doorbell;
    qp->cq = nic->cqs[attr->cqn - CQN_BASE];
    qp->state = SOFTNIC_QP_INIT;
    status = enter(nic, qp);
    if (status) {
        qp_free(qp);
        return status;
    }
    *qpn_p = qp->qpn;
    return 0;
}

static struct qp *find(const struct softnic *nic, uint32_t qpn) {
    uint32_t i = qpn - QPN_BASE;
    return i < nic->qp_count ? nic->qps[i] : NULL;
}

/* What was rung before the QP was ready has to be found without another ring. */
static void look_again(struct softnic *nic, struct qp *qp) {
    struct worker *w = &nic->workers[qp->index % nic->worker_count];
    if (nic->gpu)
        gpu_qp_call(nic, qp);
    if (qp->active)
        return;
    qp->active = 1;
    if (!nic->gpu) /* that one takes the flag along */
        w->active[w->active_count++] = qp;
}

int softnic_qp_connect(struct softnic *nic, uint32_t qpn, uint32_t node, uint32_t remote_qpn) {
    struct qp *qp = find(nic, qpn);
    if (!qp)
        return softnic_fail(-EINVAL, "connect: no QP 0x%x", qpn);
    if (node >= nic->nodes)
        return softnic_fail(-EINVAL, "connect: node %u of a job of %u", node, nic->nodes);
    if (qp->state != SOFTNIC_QP_INIT || qp->connected)
        return softnic_fail(-EISCONN, "connect: QP 0x%x is connected to node %u", qpn, qp->node);
    if (node != nic->node) {
        int status = peer_open(nic, node);
        if (status)
            return status;
        if (nic->gpu)
            gpu_keys_changed(nic);
        else
            peer_map_all(nic, node);
    }
    nic_pause(nic);
    qp->node = node;
    qp->remote_qpn = remote_qpn;
    qp->connected = 1;
    qp->state = SOFTNIC_QP_RTS;
    look_again(nic, qp);
    nic_unpause(nic);
    return 0;
}

int softnic_qp_connect_dc(struct softnic *nic, uint32_t qpn) {
    struct qp *qp = find(nic, qpn);
    if (!qp)
        return softnic_fail(-EINVAL, "connect: no QP 0x%x", qpn);
    if (qp->state != SOFTNIC_QP_INIT || qp->connected)
        return softnic_fail(-EISCONN, "connect: QP 0x%x is connected to node %u", qpn, qp->node);
    if (nic->gpu && nic->timed)
        return softnic_fail(-ENOTSUP, "connect: the GPU engine serves no DC queue pair with profile %s",
                            nic->profile.name);
    int status = softnic_peers_map(nic);
    if (status)
        return status;
    if (nic->gpu)
        gpu_keys_changed(nic);
    nic_pause(nic);
    qp->node = nic->node;
    qp->dc = 1;
    qp->connected = 1;
    qp->state = SOFTNIC_QP_RTS;
    look_again(nic, qp);
    nic_unpause(nic);
    return 0;
}

int softnic_qp_reset(struct softnic *nic, uint32_t qpn) {
    struct qp *qp = find(nic, qpn);
    if (!qp)
        return softnic_fail(-EINVAL, "reset: no QP 0x%x", qpn);
    nic_pause(nic);
    qp->cons = qp->land = qp->done = 0;
    qp->seen = qp->fetched = 0;
    qp->stopped = STOPPED_NOT;
    qp->syndrome = 0;
    qp->last_land_ps = qp->last_done_ps = qp->fetch_ps = qp->response_ps = 0;
    qp->state = qp->connected ? SOFTNIC_QP_RTS : SOFTNIC_QP_INIT;
    if (nic->gpu)
        gpu_qp_rewatch(nic, qp);
    else
        uar_rewatch(&nic->workers[qp->index % nic->worker_count], qp);
    look_again(nic, qp);
    nic_unpause(nic);
    return 0;
}

static void add(struct softnic_counters *to, const struct softnic_counters *more) {
    /* All fields are uint64_t, so they add up as an array. */
    uint64_t *sum = (uint64_t *)to;
    const uint64_t *one = (const uint64_t *)more;
    for (size_t f = 0; f < sizeof *to / sizeof *sum; f++)
        sum[f] += one[f];
}

int softnic_qp_destroy(struct softnic *nic, uint32_t qpn) {
    struct qp *qp = find(nic, qpn);
    if (!qp)
        return softnic_fail(-EINVAL, "destroy QP: no QP 0x%x", qpn);
    struct gpu_nics held = {.count = 0};
    if (nic->gpu && nic->timed)
        nic_pause_gpus(&held);
    nic_pause(nic);
    if (nic->gpu)
        gpu_qp_free(nic, qp->index);
    else
        uar_unwatch(&nic->workers[qp->index % nic->worker_count], qp);
    add(&nic->ended, &qp->n);
    qp->cq->users--;
    nic->qps[qp->index] = NULL;
    nic_unpause(nic);
    nic_unpause_gpus(&held);
    qp_free(qp);
    return 0;
}

/* As the engine has it now. */
static struct qp_status status_of(const struct softnic *nic, const struct qp *qp) {
    struct qp_status s;
    if (nic->gpu && gpu_qp_status(nic, qp, &s.state, &s.syndrome))
        return s;
    s.state = __atomic_load_n(&qp->state, __ATOMIC_ACQUIRE);
    s.syndrome = __atomic_load_n(&qp->syndrome, __ATOMIC_RELAXED);
    return s;
}

enum softnic_qp_state softnic_qp_state(const struct softnic *nic, uint32_t qpn) {
    const struct qp *qp = find(nic, qpn);
    return qp ? (enum softnic_qp_state)status_of(nic, qp).state : SOFTNIC_QP_ERROR;
}

uint8_t softnic_qp_syndrome(const struct softnic *nic, uint32_t qpn) {
    const struct qp *qp = find(nic, qpn);
    return qp ? (uint8_t)status_of(nic, qp).syndrome : 0;
}

int softnic_counters_get(const struct softnic *nic, uint32_t qpn, struct softnic_counters *counters_p) {
    struct softnic *mutable = (struct softnic *)(uintptr_t)nic;
    memset(counters_p, 0, sizeof *counters_p);
    const struct qp *qp = find(nic, qpn);
    if (!qp && qpn != SOFTNIC_ALL_QPS)
        return softnic_fail(-EINVAL, "counters: no QP 0x%x", qpn);
    nic_pause(mutable);
    if (qp) {
        *counters_p = qp->n;
    } else {
        *counters_p = nic->ended;
        for (uint32_t i = 0; i < nic->qp_count; i++)
            if (nic->qps[i])
                add(counters_p, &nic->qps[i]->n);
        trace_mark(mutable);
    }
    nic_unpause(mutable);
    return softnic_engine_error(nic);
}
