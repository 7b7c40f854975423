/* Requester: fetches WQEs that the doorbell record announces and has them executed in order.
 *
 * Without a profile a WQE is fetched, executed and completed at once. With one it is fetched into the QP's
 * shadow ring and given two deadlines, landing (the responder acts) and done (the CQE): the worker goes on to
 * other QPs meanwhile.
 */
#include "responder.h"

enum { BLOCKS_AHEAD = 8 };

/* What one visit adds to the QP's counters. */
struct tally {
    uint32_t wqes, segments, writes, inlines;
    uint64_t payload;
};

static void tally_add(struct qp *qp, const struct tally *t) {
    qp->n.wqes += t->wqes;
    qp->n.wqe_bytes += (uint64_t)t->segments * MLX5_DS;
    qp->n.wqe_write += t->writes;
    qp->n.wqe_write_inline += t->inlines;
    qp->n.payload_bytes += t->payload;
}

static void count_decoded(struct qp *qp, const struct wqe *wqe) {
    switch (wqe->action) {
    case WQE_WRITE:
        qp->n.wqe_write++;
        qp->n.wqe_write_inline += wqe->is_inline;
        break;
    case WQE_READ:
        qp->n.wqe_read++;
        break;
    case WQE_ATOMIC:
        qp->n.wqe_atomic++;
        break;
    case WQE_WAIT:
        qp->n.wqe_wait++;
        break;
    case WQE_TOUCH:
        qp->n.wqe_dump++;
        break;
    default:
        qp->n.wqe_nop++;
    }
}

/* Takes a fetched WQE apart, at *words_p. Of a DC QP's the address goes to the worker, and *words_p is then the rest. */
static int take_apart_dc(struct worker *w, struct qp *qp, const uint64_t **words_p, struct wqe_head *head,
                         struct wqe *wqe) {
    const uint64_t *words = *words_p;
    const uint32_t ds = head->ds;
    int syndrome = wqe_address(words, head, &w->av);
    qp->av = w->av.segments;
    wqe->blocks = (uint8_t)mlx5_ds_blocks(ds);
    if (syndrome)
        return syndrome;
    if (qp->av) {
        head->ds = (uint8_t)(ds - qp->av);
        memcpy(w->words, words, MLX5_DS);
        memcpy(w->words + 2, words + 2 + 2 * qp->av, (head->ds - 1u) * MLX5_DS);
        *words_p = w->words;
    }
    syndrome = wqe_decode(*words_p, head, wqe);
    wqe->blocks = (uint8_t)mlx5_ds_blocks(ds);
    return syndrome;
}
static inline int take_apart(struct worker *w, struct qp *qp, const uint64_t **words_p, struct wqe_head *head,
                             struct wqe *wqe) {
    return UNLIKELY(qp->dc) ? take_apart_dc(w, qp, words_p, head, wqe) : wqe_decode(*words_p, head, wqe);
}

/* Executes what has just been taken apart. */
static inline int run(struct worker *w, struct qp *qp, const struct wqe *wqe, const uint64_t *words) {
    if (UNLIKELY(qp->av)) {
        const uint32_t node = w->av.lid - 1;
        const int syndrome = dct_check(w->nic, node, w->av.dct, w->av.key);
        if (syndrome)
            return syndrome;
        qp->node = node;
    }
    return responder_run(w, qp, wqe, words);
}

/* A WAIT's CQ: 1 passed, 0 not yet, -1 no such CQ. CQE counts are compared modulo 2^32. */
static int wait_passed(const struct softnic *nic, const struct wqe *wqe) {
    uint32_t i = wqe->wait_cqn - CQN_BASE;
    if (i >= nic->cq_count || !nic->cqs[i])
        return -1;
    uint32_t done = (uint32_t)__atomic_load_n(&nic->cqs[i]->prod, __ATOMIC_ACQUIRE);
    return (int32_t)(done - wqe->wait_index) > 0;
}

/* Looks at the doorbell record: the announced blocks from cons on, or -1 when it is ahead of the ring. */
static int32_t announced(struct worker *w, struct qp *qp) {
    uint16_t prod = (uint16_t)mlx5_be32(__atomic_load_n(qp->dbrec, __ATOMIC_ACQUIRE));
    uint16_t ahead = (uint16_t)(prod - (uint16_t)qp->cons);
    if (prod != qp->seen) {
        qp->seen = prod;
        qp->n.doorbells++;
        w->work++;
        if (UNLIKELY(w->nic->trace.records != NULL))
            trace_doorbell(w, qp);
    }
    return LIKELY(ahead <= qp->mask + 1) ? (int32_t)ahead : -1;
}

/* The doorbell register names an index that the record does not have yet: the driver is between two rings. */
static int bell_is_ahead(const struct softnic *nic, const struct qp *qp) {
    if (nic->watch != SOFTNIC_WATCH_BELL)
        return 0;
    uint64_t bell = __atomic_load_n(qp->bell, __ATOMIC_ACQUIRE);
    return bell != 0 && mlx5_doorbell_qpn(bell) == qp->qpn && mlx5_doorbell_index(bell) != qp->seen;
}

/* In the error state every WQE, posted before or after, completes as flushed, signaled or not. */
static int flush(struct worker *w, struct qp *qp) {
    int32_t ahead = announced(w, qp);
    if (ahead < 0) {
        qp->cons = qp->cons + (uint16_t)(qp->seen - (uint16_t)qp->cons);
        ahead = 0;
    }
    uint32_t left = (uint32_t)ahead, budget = VISIT_BLOCKS;
    while (left > 0 && budget > 0) {
        uint64_t words[WQE_BLOCK_WORDS];
        wqe_fetch_block(qp->sq, qp->cons & qp->mask, words);
        struct wqe_head head = wqe_head(words);
        uint32_t blocks = mlx5_ds_blocks(head.ds);
        int known = head.index == (uint16_t)qp->cons && head.qpn == qp->qpn && blocks > 0 && blocks <= left;
        if (!known)
            blocks = 1;
        completer_cqe(w, qp, (uint16_t)qp->cons, known ? head.opcode : 0, 0, MLX5_SYND_WR_FLUSH);
        qp->n.flushed++;
        w->work++;
        qp->cons += blocks;
        left -= blocks;
        budget -= blocks < budget ? blocks : budget;
    }
    qp->land = qp->done = qp->cons;
    return left > 0 || bell_is_ahead(w->nic, qp);
}

static void used(struct qp *qp) {
    if (UNLIKELY(qp->n.qps_used == 0))
        qp->n.qps_used = 1;
}

static inline void ask_block(const struct qp *qp, uint32_t index) {
    __builtin_prefetch(qp->sq + (size_t)(index & qp->mask) * MLX5_BB);
}

/* No profile: fetch, execute, complete. One function, because this loop is the speed of the engine. */
static int serve_now(struct worker *w, struct qp *qp, const struct qp *next) {
    struct softnic *nic = w->nic;
    int32_t ahead = announced(w, qp);
    if (UNLIKELY(ahead < 0)) {
        completer_fail(w, qp, (uint16_t)qp->cons, 0, MLX5_SYND_LOCAL_QP_OP);
        qp->cons += (uint16_t)(qp->seen - (uint16_t)qp->cons);
        return flush(w, qp);
    }
    if (ahead == 0)
        return bell_is_ahead(nic, qp);
    used(qp);
    const int tracing = nic->trace.records != NULL, plain = !tracing && !qp->dc;
    const uint8_t *soon = next ? next->sq + (size_t)(next->cons & next->mask) * MLX5_BB : NULL;
    uint32_t left = (uint32_t)ahead, cons = qp->cons, end = left > VISIT_BLOCKS ? left - VISIT_BLOCKS : 0;
    struct tally t = {0};
    int again = 0, syndrome = 0;
    struct wqe wqe;
    struct wqe_head head;
    uint64_t words[WQE_MAX_WORDS];

    /* The driver's processor has just written what comes, so a block is asked for some WQEs before it is read. What
     * has not been announced is left to the driver. */
    for (uint32_t i = 0; i < BLOCKS_AHEAD && i < left; i++)
        ask_block(qp, cons + i);
    while (left > end) {
        if (left > BLOCKS_AHEAD)
            ask_block(qp, cons + BLOCKS_AHEAD);
        if (soon) {
            __builtin_prefetch(soon);
            soon += MLX5_BB;
        }
        wqe.blocks = 1; /* what a WQE takes whose head makes no sense */
        syndrome = wqe_fetch(qp->sq, qp->mask, cons, qp->qpn, left, words, &head);
        t.wqes++;
        if (UNLIKELY(syndrome))
            break;
        t.segments += head.ds;
        struct wqe_small small;
        uint32_t bytes = 0; /* in the CQE; 0 for a write */
        if (LIKELY(plain && wqe_decode_small(words, &head, &small))) {
            t.writes++;
            t.inlines += small.is_inline;
            syndrome = responder_write_small(w, qp, words, &small);
            if (UNLIKELY(syndrome))
                break;
            t.payload += small.bytes;
        } else {
            const uint64_t *at = words;
            syndrome = take_apart(w, qp, &at, &head, &wqe);
            if (UNLIKELY(syndrome))
                break;
            int passed = wqe.action == WQE_WAIT ? wait_passed(nic, &wqe) : 1;
            if (passed == 0) { /* not consumed: it is fetched again later */
                t.wqes--;
                t.segments -= head.ds;
                again = 1;
                break;
            }
            if (passed < 0) {
                syndrome = MLX5_SYND_LOCAL_QP_OP;
                break;
            }
            count_decoded(qp, &wqe);
            if (UNLIKELY(tracing))
                trace_wqe(w, qp, (uint16_t)cons, &wqe);
            syndrome = run(w, qp, &wqe, at);
            if (UNLIKELY(syndrome))
                break;
            t.payload += wqe.bytes;
            bytes = wqe.action == WQE_WRITE ? 0 : wqe.bytes;
        }
        if (head.fm_ce_se & MLX5_CTRL_CQ_UPDATE &&
            UNLIKELY(!completer_cqe(w, qp, (uint16_t)cons, head.opcode, bytes, 0)))
            end = left; /* nothing behind a lost CQE is executed */
        cons += wqe.blocks;
        left -= wqe.blocks;
    }
    w->work += t.wqes;
    qp->cons = cons;
    tally_add(qp, &t);
    if (UNLIKELY(syndrome)) {
        completer_fail(w, qp, (uint16_t)cons, head.opcode, syndrome);
        qp->cons += wqe.blocks;
        return flush(w, qp);
    }
    if (UNLIKELY(qp->state == SOFTNIC_QP_ERROR))
        return flush(w, qp);
    return again || left > 0 || bell_is_ahead(nic, qp);
}

/* ---- timed ---- */

static void shadow_store(struct qp *qp, const uint64_t *words, uint32_t blocks) {
    for (uint32_t b = 0; b < blocks; b++)
        memcpy(qp->shadow + (size_t)((qp->cons + b) & qp->mask) * MLX5_BB, words + b * WQE_BLOCK_WORDS,
               MLX5_BB);
}

/* Fetches one WQE and gives it its deadlines: 1 when a WAIT holds the queue. */
static int accept_one(struct worker *w, struct qp *qp, uint32_t left, uint64_t fetched_ps) {
    struct softnic *nic = w->nic;
    uint64_t words[WQE_MAX_WORDS];
    struct wqe_head head;
    struct wqe wqe = {.blocks = 1};
    int syndrome = wqe_fetch(qp->sq, qp->mask, qp->cons, qp->qpn, left, words, &head);
    const uint8_t ds = syndrome ? 0 : head.ds;
    const uint64_t *at = words;
    if (!syndrome)
        syndrome = take_apart(w, qp, &at, &head, &wqe);
    if (!syndrome && wqe.action == WQE_WAIT) {
        int passed = wait_passed(nic, &wqe);
        if (passed == 0)
            return 1;
        if (passed < 0)
            syndrome = MLX5_SYND_LOCAL_QP_OP;
    }
    struct pend *pend = &qp->pend[qp->cons & qp->mask];
    *pend = (struct pend){.blocks = wqe.blocks,
                          .syndrome = (uint8_t)syndrome,
                          .ds = ds,
                          .opcode = head.opcode,
                          .fm_ce_se = head.fm_ce_se};
    pace_message(nic, qp, syndrome ? NULL : &wqe, fetched_ps, pend);
    w->work++;
    if (syndrome) {
        qp->stopped = STOPPED_BAD_WQE;
    } else {
        if (nic->trace.records)
            trace_wqe(w, qp, (uint16_t)qp->cons, &wqe);
        shadow_store(qp, words, wqe.blocks);
    }
    qp->cons += wqe.blocks;
    return 0;
}

/* Fetches all that the doorbell record announces. 1: a WAIT holds the queue. */
static int accept_wqes(struct worker *w, struct qp *qp) {
    int32_t ahead = announced(w, qp);
    /* Blocks whose CQE is still to come are the NIC's; a record that runs over them is ahead of the ring. */
    if (ahead < 0 || (uint32_t)ahead + (qp->cons - qp->done) > qp->mask + 1) {
        qp->stopped = STOPPED_OVERRUN;
        return 0;
    }
    if (ahead == 0)
        return 0;
    used(qp);
    uint64_t fetched_ps = w->now_ps;
    if (qp->seen != qp->fetched) { /* a new doorbell: one more fetch */
        qp->fetched = qp->seen;
        qp->fetch_ps = w->now_ps + w->nic->profile.fetch_ns * PS_PER_NS;
    }
    if (fetched_ps < qp->fetch_ps)
        fetched_ps = qp->fetch_ps;
    uint32_t end = qp->cons + (uint32_t)ahead;
    while (qp->cons != end && !qp->stopped)
        if (accept_one(w, qp, end - qp->cons, fetched_ps))
            return 1;
    return 0;
}

static void count_fetched(struct qp *qp, const struct pend *pend) {
    qp->n.wqes++;
    qp->n.wqe_bytes += (uint64_t)pend->ds * MLX5_DS;
}

/* The responder acts on what is due. */
static void land_due(struct worker *w, struct qp *qp) {
    uint64_t words[WQE_MAX_WORDS];
    while (qp->land != qp->cons) {
        struct pend *pend = &qp->pend[qp->land & qp->mask];
        if (pend->syndrome || pend->land_ps > w->now_ps)
            return;
        struct wqe_head head;
        struct wqe wqe;
        int syndrome = wqe_fetch(qp->shadow, qp->mask, qp->land, qp->qpn, qp->cons - qp->land, words, &head);
        const uint64_t *at = words;
        if (!syndrome)
            syndrome = take_apart(w, qp, &at, &head, &wqe);
        /* Counted here: what is flushed before its landing was not executed. */
        count_fetched(qp, pend);
        if (!syndrome) {
            count_decoded(qp, &wqe);
            syndrome = run(w, qp, &wqe, at);
        }
        w->work++;
        if (syndrome) {
            pend->syndrome = (uint8_t)syndrome;
            return;
        }
        qp->n.payload_bytes += wqe.bytes;
        pend->bytes = wqe.action == WQE_WRITE ? 0 : wqe.bytes;
        qp->land += pend->blocks;
    }
}

/* Writes the CQEs that are due; 1 when the QP went to the error state. */
static int complete_due(struct worker *w, struct qp *qp) {
    while (qp->done != qp->cons) {
        const struct pend *pend = &qp->pend[qp->done & qp->mask];
        if (pend->done_ps > w->now_ps || (qp->done == qp->land && !pend->syndrome))
            return 0;
        w->work++;
        if (pend->syndrome) {
            if (qp->stopped == STOPPED_BAD_WQE && qp->done + pend->blocks == qp->cons)
                count_fetched(qp, pend);
            completer_fail(w, qp, (uint16_t)qp->done, pend->opcode, pend->syndrome);
            qp->cons = qp->done + pend->blocks; /* flush() walks the rest in the driver's queue */
            return 1;
        }
        int lost = (pend->fm_ce_se & MLX5_CTRL_CQ_UPDATE) &&
                   !completer_cqe(w, qp, (uint16_t)qp->done, pend->opcode, pend->bytes, 0);
        qp->done += pend->blocks;
        if (lost) {
            qp->cons = qp->done;
            return 1;
        }
    }
    return 0;
}

static int serve_timed(struct worker *w, struct qp *qp) {
    int waits = qp->stopped ? 0 : accept_wqes(w, qp);
    land_due(w, qp);
    if (complete_due(w, qp))
        return flush(w, qp);
    if (qp->stopped == STOPPED_OVERRUN && qp->done == qp->cons) {
        completer_fail(w, qp, (uint16_t)qp->cons, 0, MLX5_SYND_LOCAL_QP_OP);
        qp->cons += (uint16_t)(qp->seen - (uint16_t)qp->cons);
        return flush(w, qp);
    }
    return waits || qp->stopped || qp->done != qp->cons || bell_is_ahead(w->nic, qp);
}

int requester_serve(struct worker *w, struct qp *qp, const struct qp *next) {
    if (qp->state == SOFTNIC_QP_ERROR)
        return flush(w, qp);
    if (qp->state == SOFTNIC_QP_INIT)
        return 0;
    return w->nic->timed ? serve_timed(w, qp) : serve_now(w, qp, next);
}
