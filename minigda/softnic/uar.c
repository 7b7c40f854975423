/* UAR: finds the queues that have been rung.
 *
 * The words that are watched (doorbells or doorbell records, wherever the driver put them) are listed
 * densely, so that thousands of quiet queues cost one load each. Found queues are served one behind: their
 * context and WQEs are on the way from memory while the one before is served.
 */
#include "internal.h"

enum { AHEAD = 16 };

static uint64_t watch_load(const struct softnic *nic, const void *word) {
    return nic->watch == SOFTNIC_WATCH_BELL ? __atomic_load_n((const uint64_t *)word, __ATOMIC_ACQUIRE)
                                            : __atomic_load_n((const uint32_t *)word, __ATOMIC_ACQUIRE);
}

/* The record starts at 0 and so does the NIC; a doorbell that was rung before this QP existed is not its. */
void uar_watch(struct worker *w, struct qp *qp) {
    uint32_t slot =
        qp->index / w->nic->worker_count; /* QPs come in turn; that of one that ended is taken again */
    struct watch *watch = &w->watch[slot];
    int bell = w->nic->watch == SOFTNIC_WATCH_BELL;
    watch->word = bell ? (const void *)qp->bell : qp->dbrec;
    watch->last = bell ? watch_load(w->nic, watch->word) : 0;
    w->qps[slot] = qp;
    if (slot == w->count)
        __atomic_store_n(&w->count, w->count + 1, __ATOMIC_RELEASE);
}

/* A word that nobody rings takes the place of the QP's. */
void uar_unwatch(struct worker *w, struct qp *qp) {
    static const uint64_t quiet;
    uint32_t slot = qp->index / w->nic->worker_count, kept = 0;
    w->watch[slot] = (struct watch){.word = &quiet};
    w->qps[slot] = NULL;
    for (uint32_t i = 0; i < w->active_count; i++)
        if (w->active[i] != qp)
            w->active[kept++] = w->active[i];
    w->active_count = kept;
}

/* After a reset the record may soon hold the very value it had when it was last looked at. */
void uar_rewatch(struct worker *w, const struct qp *qp) {
    struct watch *watch = &w->watch[qp->index / w->nic->worker_count];
    watch->last = watch_load(w->nic, watch->word);
}

/* Serves queue j of n while the memory that the next two will need is on its way: a cold queue costs some
 * six misses, which would otherwise add up one after the other. */
static void serve(struct worker *w, struct qp **rung, uint32_t j, uint32_t n) {
    struct qp *qp = rung[j], *next = j + 1 < n ? rung[j + 1] : NULL;
    if (j + 2 < n)
        __builtin_prefetch(rung[j + 2]->cq, 1);
    if (next) {
        const struct cq *cq = next->cq;
        __builtin_prefetch(next->sq + (size_t)(next->cons & next->mask) * MLX5_BB);
        __builtin_prefetch(cq->cqe + (cq->collapsed ? 0 : (cq->prod & (cq->depth - 1)) * MLX5_CQE), 1);
    }
    if (requester_serve(w, qp, next) && !qp->active) {
        qp->active = 1;
        w->active[w->active_count++] = qp;
    }
}

/* Queues that need another look without a new doorbell. */
static void scan_active(struct worker *w) {
    uint32_t kept = 0, count = w->active_count;
    for (uint32_t i = 0; i < count; i++) {
        struct qp *qp = w->active[i];
        if (requester_serve(w, qp, NULL))
            w->active[kept++] = qp;
        else
            qp->active = 0;
    }
    w->active_count = kept;
}

int uar_scan(struct worker *w) {
    struct qp *rung[AHEAD];
    uint32_t n = 0, count = __atomic_load_n(&w->count, __ATOMIC_ACQUIRE);
    uint64_t before = w->work;
    scan_active(w);
    for (uint32_t i = 0; i < count; i++) {
        struct watch *watch = &w->watch[i];
        uint64_t now = watch_load(w->nic, watch->word);
        if (LIKELY(now == watch->last))
            continue;
        watch->last = now;
        struct qp *qp = w->qps[i];
        for (size_t line = 0; line < sizeof *qp; line += 64)
            __builtin_prefetch((const char *)qp + line, 1);
        rung[n++] = qp;
        if (n < AHEAD)
            continue;
        for (uint32_t j = 0; j + 2 < n; j++)
            serve(w, rung, j, n);
        rung[0] = rung[n - 2]; /* these wait for their successors */
        rung[1] = rung[n - 1];
        n = 2;
    }
    for (uint32_t j = 0; j < n; j++)
        serve(w, rung, j, n);
    return w->work != before;
}
