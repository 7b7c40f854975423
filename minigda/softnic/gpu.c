/* Host side of the GPU engine: brings the queues to the kernel and back, and looks after it while it runs.
 *
 * The kernel is "resident" between launch() and leave(). Outside, the host's structs are the state; a launch takes them
 * along and what comes back is added to them. So every control call works as with the other engine: it pauses, which
 * here means that the kernel leaves, changes what it likes, and goes on.
 *
 * A residence is to the peers what a pass of a worker is (shm_worker.epoch): who deregisters memory waits until it ends.
 * The keeper, a thread that sleeps most of the time, sees to it that it does: it watches the generation of every peer's
 * table and relaunches when one has changed. The same when the kernel met a key that is not in its table, and when it
 * left by itself because the keeper had been silent (a stopped process).
 */
#include "gpu.h"
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    KEEPER_NAP_NS = 100000,
    LEAVE_POLL_NS = 5000,
    LOOK_EVERY = 100, /* naps between two looks at whether the kernel still runs */
};
#define LEAVE_NS 10000000000u  /* for the kernel to leave; the longest copy takes a fraction */
#define SILENCE_NS 5000000000u /* of the host, after which the kernel leaves */

/* A table in pinned memory and its twin on the device. */
struct table {
    void *host, *dev;
    size_t bytes;
};

/* What a QP has beside struct qp. */
struct side {
    uint64_t watch_last;
    uint8_t rewatch, asked;
    void *pend, *shadow;
};

struct gpu {
    const struct gpu_ops *ops;
    struct gpu_dev *dev;
    uint32_t sms, warps, strict;
    pthread_mutex_t lock; /* all below; also held while the kernel comes and goes */
    pthread_cond_t changed;
    pthread_t keeper;
    int keeping, stop_keeper;
    uint32_t holds;
    int started, resident;
    int broken; /* negative errno: the kernel failed, or never left and the device must not be touched */
    char broken_text[200];
    struct table qps, cold, cqs, keys, gone, board, pace;
    struct gpu_mail *mail;
    uint16_t *status;
    struct side *side;
    uint32_t key_slots, key_count;
    uint64_t first_ns;
    uint64_t *generation; /* by node, as of the key table */
    int stale;            /* the key table must be built anew whatever the generations say */
};

__attribute__((weak)) const struct gpu_ops *gpu_ops_linked(void) { return NULL; }

int softnic_gpu_built(void) { return gpu_ops_linked() != NULL; }

static void nap(long ns) {
    struct timespec ts = {0, ns};
    nanosleep(&ts, NULL);
}

static int broke(struct gpu *g, int status) {
    if (g->broken == 0) {
        snprintf(g->broken_text, sizeof g->broken_text, "%s", softnic_error());
        __atomic_store_n(&g->broken, status, __ATOMIC_RELEASE);
    }
    return status;
}

int softnic_engine_error(const struct softnic *nic) {
    const struct gpu *g = nic->gpu;
    int status = g ? __atomic_load_n(&g->broken, __ATOMIC_ACQUIRE) : 0;
    return status ? softnic_fail(status, "%s", g->broken_text) : 0;
}

/* ---- tables ---- */

static int table_make(struct gpu *g, struct table *t, size_t bytes) {
    int status = g->ops->pinned(g->dev, bytes, &t->host);
    if (!status)
        status = g->ops->alloc(g->dev, bytes, &t->dev);
    t->bytes = bytes;
    return status;
}
static void table_free(struct gpu *g, struct table *t) {
    if (t->dev)
        g->ops->free(g->dev, t->dev);
    if (t->host)
        g->ops->pinned_free(g->dev, t->host);
    *t = (struct table){0};
}
static int table_up(struct gpu *g, const struct table *t, size_t bytes) {
    return bytes ? g->ops->upload(g->dev, t->dev, t->host, bytes) : 0;
}
static int table_down(struct gpu *g, const struct table *t, size_t bytes) {
    return bytes ? g->ops->download(g->dev, t->host, t->dev, bytes) : 0;
}

static uint64_t addr_of(const void *p) { return (uintptr_t)p; }

static void qp_out(const struct softnic *nic, const struct qp *qp, struct gpu_qp *im, struct gpu_cold *cold) {
    const struct gpu *g = nic->gpu;
    const struct side *side = &g->side[qp->index];
    memset(im, 0, sizeof *im);
    memset(cold, 0, sizeof *cold);
    im->sq = addr_of(qp->sq);
    im->dbrec = addr_of(qp->dbrec);
    im->watch = nic->watch == SOFTNIC_WATCH_BELL ? addr_of(qp->bell) : addr_of(qp->dbrec);
    im->watch_last = side->watch_last;
    im->rewatch = side->rewatch;
    im->asked = side->asked;
    im->cqe = addr_of(qp->cq->cqe);
    im->prod = qp->cq->prod;
    im->mask = qp->mask;
    im->qpn = qp->qpn;
    im->cq = qp->cq->cqn - CQN_BASE;
    im->node = qp->node;
    im->cons = qp->cons;
    im->seen = qp->seen;
    im->state = qp->state;
    im->syndrome = qp->syndrome;
    im->again = qp->active;
    im->simple_cq = qp->cq->collapsed && qp->cq->users == 1;
    im->far = qp->cq->far;
    im->stopped = qp->stopped;
    cold->last_land_ps = qp->last_land_ps;
    cold->last_done_ps = qp->last_done_ps;
    cold->fetch_ps = qp->fetch_ps;
    cold->response_ps = qp->response_ps;
    cold->pend = addr_of(side->pend);
    cold->shadow = addr_of(side->shadow);
    cold->land = qp->land;
    cold->done = qp->done;
    cold->fetched = qp->fetched;
    g->status[qp->index] = (uint16_t)(qp->state | qp->syndrome << 8);
}

static void counts_in(struct softnic_counters *n, const struct gpu_qp *im, const struct gpu_cold *cold) {
    const uint64_t *more = (const uint64_t *)&cold->n;
    uint64_t *sum = (uint64_t *)n, used = n->qps_used | cold->n.qps_used;
    for (size_t f = 0; f < sizeof *n / sizeof *sum; f++)
        sum[f] += more[f];
    n->qps_used = used;
    n->wqes += im->count[GPU_WQES];
    n->wqe_write += im->count[GPU_WRITES];
    n->wqe_write_inline += im->count[GPU_INLINES];
    n->wqe_bytes += (uint64_t)im->count[GPU_SEGMENTS] * MLX5_DS;
    n->payload_bytes += im->payload;
    n->doorbells += im->count[GPU_DOORBELLS];
    n->cqes += im->count[GPU_CQES];
}

static void qp_in(struct softnic *nic, struct qp *qp, const struct gpu_qp *im, const struct gpu_cold *cold) {
    struct side *side = &nic->gpu->side[qp->index];
    side->watch_last = im->watch_last;
    side->rewatch = im->rewatch;
    side->asked = im->asked;
    qp->cons = im->cons;
    qp->seen = im->seen;
    qp->state = im->state;
    qp->syndrome = im->syndrome;
    qp->active = im->again;
    qp->stopped = im->stopped;
    qp->last_land_ps = cold->last_land_ps;
    qp->last_done_ps = cold->last_done_ps;
    qp->fetch_ps = cold->fetch_ps;
    qp->response_ps = cold->response_ps;
    qp->land = cold->land;
    qp->done = cold->done;
    qp->fetched = cold->fetched;
    counts_in(&qp->n, im, cold);
}

/* Slots of QPs and CQs that are gone stay in the tables, as QPs that are never ready. */
static void queues_out(struct softnic *nic) {
    struct gpu *g = nic->gpu;
    struct gpu_qp *qps = g->qps.host;
    struct gpu_cold *cold = g->cold.host;
    struct gpu_cq *cqs = g->cqs.host;
    for (uint32_t i = 0; i < nic->qp_count; i++)
        if (nic->qps[i]) {
            qp_out(nic, nic->qps[i], &qps[i], &cold[i]);
        } else {
            memset(&qps[i], 0, sizeof qps[i]);
            qps[i].watch = addr_of(&((struct gpu_board *)g->board.dev)->rsvd);
            qps[i].dbrec = qps[i].watch;
            qps[i].qpn = QPN_BASE + i;
        }
    for (uint32_t i = 0; i < nic->cq_count; i++) {
        const struct cq *cq = nic->cqs[i];
        memset(&cqs[i], 0, sizeof cqs[i]);
        if (cq)
            cqs[i] = (struct gpu_cq){.cqe = addr_of(cq->cqe),
                                     .dbrec = addr_of(cq->dbrec),
                                     .depth = cq->depth,
                                     .collapsed = cq->collapsed,
                                     .shared = cq->users > 1,
                                     .exists = 1,
                                     .overrun = cq->overrun,
                                     .far = cq->far,
                                     .prod = cq->prod};
    }
}

static void queues_in(struct softnic *nic) {
    struct gpu *g = nic->gpu;
    const struct gpu_qp *qps = g->qps.host;
    const struct gpu_cold *cold = g->cold.host;
    const struct gpu_cq *cqs = g->cqs.host;
    for (uint32_t i = 0; i < nic->cq_count; i++)
        if (nic->cqs[i]) {
            nic->cqs[i]->prod = cqs[i].prod;
            nic->cqs[i]->overrun = cqs[i].overrun;
        }
    for (uint32_t i = 0; i < nic->qp_count; i++)
        if (nic->qps[i])
            qp_in(nic, nic->qps[i], &qps[i], &cold[i]);
}

/* ---- the key table ---- */

void gpu_keys_changed(struct softnic *nic) { __atomic_store_n(&nic->gpu->stale, 1, __ATOMIC_SEQ_CST); }

static uint64_t generation_of(const struct softnic *nic, uint32_t node) {
    const struct shm_node *shm = node == nic->node ? nic->shm : nic->peers[node].shm;
    if (!shm)
        return 0;
    return (uint64_t)(__atomic_load_n(&shm->state, __ATOMIC_ACQUIRE) == SHM_READY) << 63 |
           __atomic_load_n(&shm->generation, __ATOMIC_ACQUIRE);
}

static int keys_stale(const struct softnic *nic) {
    const struct gpu *g = nic->gpu;
    int stale = __atomic_load_n(&g->stale, __ATOMIC_ACQUIRE);
    for (uint32_t n = 0; n < nic->nodes && !stale; n++)
        stale = g->generation[n] != generation_of(nic, n);
    return stale;
}

static void key_add(struct gpu *g, const struct gpu_key *key) {
    struct gpu_key *keys = g->keys.host;
    uint32_t i = gpu_key_slot(key->node, key->key) & (g->key_slots - 1);
    while (keys[i].key)
        i = (i + 1) & (g->key_slots - 1);
    keys[i] = *key;
}

/* The live keys of one node: counted, or with `add` put into the table. */
static uint32_t keys_of(struct softnic *nic, uint32_t node, int add) {
    struct gpu *g = nic->gpu;
    const struct peer *peer = &nic->peers[node];
    int self = node == nic->node;
    if (!self && (!peer->shm || __atomic_load_n(&peer->shm->state, __ATOMIC_ACQUIRE) != SHM_READY))
        return 0;
    const struct shm_mr *table = self ? nic->mrs : peer->shm->mrs;
    uint32_t limit = self ? nic->max_mrs : peer->max_mrs, count = 0;
    for (uint32_t slot = 1; slot < limit; slot++) {
        uint32_t key = (uint32_t)__atomic_load_n(&table[slot].tag, __ATOMIC_ACQUIRE);
        struct shm_mr mr;
        if (key == 0 || !mr_entry_read(table, limit, key, &mr))
            continue;
        if (add && count < g->key_count) {
            const uint8_t *base = mr_base(nic, node, key, &mr);
            enum gpu_kind kind = base ? g->ops->where(g->dev, base) : GPU_MEM_NONE;
            if (kind == GPU_MEM_OTHER)
                g->ops->reach(g->dev, base);
            key_add(g, &(struct gpu_key){.key = key,
                                         .node = node,
                                         .access = mr.access,
                                         .far = kind != GPU_MEM_OWN,
                                         .va = mr.va,
                                         .len = mr.len,
                                         .base = kind == GPU_MEM_NONE ? 0 : addr_of(base)});
        }
        count++;
    }
    return count;
}

static int keys_build(struct softnic *nic) {
    struct gpu *g = nic->gpu;
    uint32_t count = 0, slots = 64;
    __atomic_store_n(&g->stale, 0, __ATOMIC_SEQ_CST);
    for (uint32_t n = 0; n < nic->nodes; n++) {
        g->generation[n] = generation_of(nic, n);
        ((uint8_t *)g->gone.host)[n] = n != nic->node && nic->peers[n].shm && !(g->generation[n] >> 63 & 1);
    }
    for (uint32_t n = 0; n < nic->nodes; n++)
        count += keys_of(nic, n, 0);
    count += 16; /* what is registered between counting and adding; more than that waits for the next build */
    while (slots < 2 * count)
        slots *= 2;
    if (slots * sizeof(struct gpu_key) > g->keys.bytes) {
        table_free(g, &g->keys);
        int status = table_make(g, &g->keys, slots * sizeof(struct gpu_key));
        if (status)
            return status;
    }
    memset(g->keys.host, 0, slots * sizeof(struct gpu_key));
    g->key_slots = slots;
    g->key_count = count;
    for (uint32_t n = 0; n < nic->nodes && g->key_count; n++) {
        uint32_t added = keys_of(nic, n, 1);
        g->key_count -= added < g->key_count ? added : g->key_count;
    }
    g->key_count = count;
    int status = table_up(g, &g->keys, slots * sizeof(struct gpu_key));
    return status ? status : table_up(g, &g->gone, nic->nodes);
}

/* ---- coming and going ---- */

static int keys_shared(const struct gpu *g) { return g->key_slots <= GPU_KEYS_SHARED; }

static size_t shared_bytes(const struct gpu *g, uint32_t qps, uint32_t warps, uint32_t blocks) {
    uint32_t rows = (qps + warps * blocks - 1) / (warps * blocks);
    return (size_t)warps * g->ops->warp_bytes + (size_t)rows * warps * sizeof(struct gpu_qp) +
           (keys_shared(g) ? g->key_slots * sizeof(struct gpu_key) : 0);
}

static struct gpu_args args_of(const struct softnic *nic, uint64_t end_ps) {
    const struct gpu *g = nic->gpu;
    const int virtual = nic->clock == SOFTNIC_VIRTUAL;
    return (struct gpu_args){.qps = g->qps.dev,
                             .cold = g->cold.dev,
                             .cqs = g->cqs.dev,
                             .keys = g->keys.dev,
                             .gone = g->gone.dev,
                             .pace = g->pace.dev,
                             .board = g->board.dev,
                             .mail = g->mail,
                             .status = g->status,
                             .qp_count = nic->qp_count,
                             .cq_count = nic->cq_count,
                             .key_mask = g->key_slots - 1,
                             .keys_shared = (uint32_t)keys_shared(g),
                             .self = nic->node,
                             .warps = virtual ? 1 : g->warps,
                             .bell = nic->watch == SOFTNIC_WATCH_BELL,
                             .timed = (uint32_t)nic->timed,
                             .strict = g->strict,
                             .is_virtual = (uint32_t) virtual,
                             .fresh = (uint32_t) virtual,
                             .header_bytes = nic->profile.header_bytes,
                             .now_ps = nic->now_ps,
                             .end_ps = end_ps,
                             .first_ns = g->first_ns,
                             .silence_ns = SILENCE_NS,
                             .message_ps = nic->message_ps,
                             .latency_ps = nic->profile.latency_ns * PS_PER_NS,
                             .fetch_ps = nic->profile.fetch_ns * PS_PER_NS,
                             .bandwidth = nic->profile.bandwidth};
}

/* QPs that wait for a key: the table that is built now is newer than their question. */
static void answer(struct softnic *nic) {
    for (uint32_t i = 0; i < nic->qp_count; i++)
        if (nic->gpu->side[i].asked == GPU_ASKED) {
            nic->gpu->side[i].asked = GPU_ANSWERED;
            gpu_keys_changed(nic);
        }
}

/* Waits until the kernel has its multiprocessors: one that fills the device may be launched next. */
static int arrive(const struct gpu *g) {
    uint64_t deadline = nic_monotonic_ns() + LEAVE_NS;
    for (uint32_t i = 0, polls = 0; i < g->sms; polls++) {
        if (__atomic_load_n(&g->mail->here[i], __ATOMIC_ACQUIRE)) {
            i++;
            continue;
        }
        if (polls < 4096) {
            spin_pause(polls);
            continue;
        }
        if (nic_monotonic_ns() > deadline)
            return softnic_fail(-ETIMEDOUT,
                                "GPU engine: no room on the device for %u multiprocessors within %u s",
                                g->sms, (unsigned)(LEAVE_NS / 1000000000u));
        nap(LEAVE_POLL_NS);
    }
    return 0;
}

/* Enqueues tables, kernel, tables. The epoch is odd before the keys are read, see the head of internal.h. */
static int launch(struct softnic *nic, uint64_t end_ps) {
    struct gpu *g = nic->gpu;
    uint64_t *epoch = &nic->shm->worker[0].epoch;
    if (g->broken)
        return g->broken;
    __atomic_store_n(epoch, *epoch + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&nic->shm->built_ns, nic_monotonic_ns(), __ATOMIC_SEQ_CST);
    answer(nic);
    int status = keys_stale(nic) ? keys_build(nic) : 0;
    if (!status) {
        queues_out(nic);
        g->mail->stop = g->mail->ask = g->mail->reason = 0;
        memset(g->mail->here, 0, sizeof g->mail->here);
        g->mail->heartbeat++;
        status = table_up(g, &g->qps, nic->qp_count * sizeof(struct gpu_qp));
    }
    if (!status)
        status = table_up(g, &g->cold, nic->qp_count * sizeof(struct gpu_cold));
    if (!status)
        status = table_up(g, &g->cqs, nic->cq_count * sizeof(struct gpu_cq));
    if (!status) /* nothing is open and nobody has to leave; jobs keep their tickets */
        status = table_up(g, &g->board, offsetof(struct gpu_board, jobs));
    if (!status) {
        struct gpu_args args = args_of(nic, end_ps);
        uint32_t blocks = args.is_virtual ? 1 : g->sms;
        status = g->ops->launch(g->dev, &args, blocks,
                                (uint32_t)shared_bytes(g, nic->qp_count, args.warps, blocks));
    }
    if (!status)
        status = table_down(g, &g->qps, nic->qp_count * sizeof(struct gpu_qp));
    if (!status)
        status = table_down(g, &g->cold, nic->qp_count * sizeof(struct gpu_cold));
    if (!status)
        status = table_down(g, &g->cqs, nic->cq_count * sizeof(struct gpu_cq));
    __atomic_store_n(&g->resident, 1, __ATOMIC_RELEASE);
    if (!status && nic->clock == SOFTNIC_REAL)
        status = arrive(g);
    return status ? broke(g, status) : 0;
}

/* Waits until the kernel has left and takes its tables in. */
static int collect(struct softnic *nic) {
    struct gpu *g = nic->gpu;
    uint64_t *epoch = &nic->shm->worker[0].epoch, deadline = nic_monotonic_ns() + LEAVE_NS;
    int done;
    for (uint32_t polls = 0; (done = g->ops->done(g->dev)) == 0; polls++) {
        if (nic_monotonic_ns() > deadline)
            done = softnic_fail(-ETIMEDOUT, "GPU engine: the kernel did not leave within %u s",
                                (unsigned)(LEAVE_NS / 1000000000u));
        if (done)
            break;
        if (polls > 16)
            nap(LEAVE_POLL_NS);
    }
    __atomic_store_n(&g->resident, 0, __ATOMIC_RELEASE);
    if (done > 0)
        queues_in(nic);
    __atomic_store_n(epoch, *epoch + 1, __ATOMIC_RELEASE);
    return done > 0 ? 0 : broke(g, done);
}

static int leave(struct softnic *nic) {
    struct gpu *g = nic->gpu;
    if (!g->resident)
        return 0;
    __atomic_store_n(&g->mail->stop, 1, __ATOMIC_RELEASE);
    return collect(nic);
}

static int wanted(const struct gpu *g) { return g->started && g->holds == 0 && !g->broken; }

static int settle(struct softnic *nic) { /* the lock is held */
    struct gpu *g = nic->gpu;
    int status = 0;
    if (g->resident && !wanted(g))
        status = leave(nic);
    else if (!g->resident && wanted(g))
        status = launch(nic, 0);
    pthread_cond_signal(&g->changed);
    return status;
}

void gpu_pause(struct softnic *nic) {
    pthread_mutex_lock(&nic->gpu->lock);
    nic->gpu->holds++;
    settle(nic);
    pthread_mutex_unlock(&nic->gpu->lock);
}

void gpu_unpause(struct softnic *nic) {
    pthread_mutex_lock(&nic->gpu->lock);
    nic->gpu->holds--;
    settle(nic);
    pthread_mutex_unlock(&nic->gpu->lock);
}

void gpu_relaunch(struct softnic *nic) {
    struct gpu *g = nic->gpu;
    pthread_mutex_lock(&g->lock);
    if (g->resident && leave(nic) == 0)
        launch(nic, 0);
    pthread_mutex_unlock(&g->lock);
}

void gpu_advance(struct softnic *nic, uint64_t end_ps) {
    struct gpu *g = nic->gpu;
    pthread_mutex_lock(&g->lock);
    if (launch(nic, end_ps) == 0 && collect(nic) == 0)
        nic->now_ps = end_ps;
    pthread_mutex_unlock(&g->lock);
}

/* ---- the keeper ---- */

static void *keeper_main(void *arg) {
    struct softnic *nic = arg;
    struct gpu *g = nic->gpu;
    pthread_mutex_lock(&g->lock);
    for (uint32_t naps = 0; !g->stop_keeper; naps++) {
        if (!g->resident || g->broken) {
            pthread_cond_wait(&g->changed, &g->lock);
            continue;
        }
        __atomic_store_n(&g->mail->heartbeat, g->mail->heartbeat + 1, __ATOMIC_RELAXED);
        int asked = __atomic_load_n(&g->mail->ask, __ATOMIC_ACQUIRE) != 0;
        int gone = __atomic_load_n(&g->mail->reason, __ATOMIC_ACQUIRE) != 0 ||
                   (naps % LOOK_EVERY == 0 && g->ops->done(g->dev) != 0);
        if ((asked || gone || keys_stale(nic)) && leave(nic) == 0)
            launch(nic, 0);
        pthread_mutex_unlock(&g->lock);
        nap(KEEPER_NAP_NS);
        pthread_mutex_lock(&g->lock);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

int gpu_start(struct softnic *nic) {
    struct gpu *g = nic->gpu;
    int status = 0;
    if (!g->keeping) {
        int error = pthread_create(&g->keeper, NULL, keeper_main, nic);
        if (error)
            return softnic_fail(-error, "start keeper thread: %s", strerror(error));
        g->keeping = 1;
    }
    pthread_mutex_lock(&g->lock);
    g->started = 1;
    status = settle(nic);
    pthread_mutex_unlock(&g->lock);
    nic->running = status == 0;
    return status;
}

void gpu_stop(struct softnic *nic) {
    struct gpu *g = nic->gpu;
    pthread_mutex_lock(&g->lock);
    g->started = 0;
    settle(nic);
    g->stop_keeper = 1;
    pthread_cond_signal(&g->changed);
    pthread_mutex_unlock(&g->lock);
    if (g->keeping)
        pthread_join(g->keeper, NULL);
    g->keeping = 0;
    nic->running = 0;
}

/* ---- creation and control ---- */

static int tables_make(struct softnic *nic) {
    struct gpu *g = nic->gpu;
    void *mail, *status_words;
    int status = table_make(g, &g->qps, nic->max_qps * sizeof(struct gpu_qp));
    if (!status)
        status = table_make(g, &g->cold, nic->max_qps * sizeof(struct gpu_cold));
    if (!status)
        status = table_make(g, &g->cqs, nic->max_cqs * sizeof(struct gpu_cq));
    if (!status)
        status = table_make(g, &g->gone, nic->nodes);
    if (!status)
        status = table_make(g, &g->board, sizeof(struct gpu_board));
    if (!status)
        status = table_make(g, &g->pace, sizeof(struct gpu_pace));
    if (!status)
        status = g->ops->pinned(g->dev, sizeof *g->mail, &mail);
    if (status)
        return status;
    g->mail = mail;
    status = g->ops->pinned(g->dev, nic->max_qps * sizeof *g->status, &status_words);
    if (!status)
        g->status = status_words;
    return status;
}

/* One launch before anybody waits for one: the code is loaded, and the device's clock is known. */
static int warm_up(struct softnic *nic) {
    struct gpu *g = nic->gpu;
    int status = keys_build(nic);
    if (status)
        return status;
    struct gpu_args args = args_of(nic, 0);
    args.is_virtual = args.warps = 1;
    status = g->ops->launch(g->dev, &args, 1, (uint32_t)shared_bytes(g, 0, 1, 1));
    if (!status)
        status = collect(nic);
    nic->shm->worker[0].epoch = 0;
    g->first_ns = g->mail->first_ns;
    return status;
}

int gpu_create(struct softnic *nic, const struct softnic_attr *attr) {
    const struct gpu_ops *ops = gpu_ops_linked();
    if (!ops)
        return softnic_fail(-ENOTSUP, "create: engine=gpu: built without CUDA");
    if (attr->trace_records)
        return softnic_fail(-ENOTSUP, "create: the GPU engine keeps no trace; want engine=cpu or no trace");
    if (attr->sms > GPU_MAX_SMS || attr->warps > GPU_MAX_WARPS)
        return softnic_fail(-EINVAL, "create: %u multiprocessors of %u warps; at most %d of %d", attr->sms,
                            attr->warps, GPU_MAX_SMS, GPU_MAX_WARPS);
    struct gpu *g = calloc(1, sizeof *g);
    nic->gpu = g;
    if (!g)
        return softnic_fail(-ENOMEM, "create: out of memory");
    g->ops = ops;
    g->sms = attr->sms ? attr->sms : 1;
    g->warps = attr->warps ? attr->warps : GPU_MAX_WARPS;
    g->strict = attr->writes == SOFTNIC_WRITES_STRICT;
    g->stale = 1;
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    g->side = calloc(nic->max_qps, sizeof *g->side);
    g->generation = calloc(nic->nodes, sizeof *g->generation);
    if (!g->side || !g->generation)
        return softnic_fail(-ENOMEM, "create: out of memory for %u QPs", nic->max_qps);
    int status = ops->open(attr->device, &g->dev);
    if (!status)
        status = tables_make(nic);
    return status ? status : warm_up(nic);
}

/* A kernel that never left still uses all this, and calls that free would wait for it. */
void gpu_destroy(struct softnic *nic) {
    struct gpu *g = nic->gpu;
    if (!g)
        return;
    if (g->dev && g->broken != -ETIMEDOUT) {
        for (uint32_t i = 0; g->side && i < nic->max_qps; i++)
            gpu_qp_free(nic, i);
        struct table *tables[] = {&g->qps, &g->cold, &g->cqs, &g->keys, &g->gone, &g->board, &g->pace};
        for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
            table_free(g, tables[i]);
        if (g->mail)
            g->ops->pinned_free(g->dev, g->mail);
        if (g->status)
            g->ops->pinned_free(g->dev, g->status);
        g->ops->close(g->dev);
    }
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->changed);
    free(g->side);
    free(g->generation);
    free(g);
    nic->gpu = NULL;
}

static int reachable(const struct softnic *nic, const char *what, const void *addr, int *far_p) {
    enum gpu_kind kind = nic->gpu->ops->where(nic->gpu->dev, addr);
    if (kind == GPU_MEM_NONE)
        return softnic_fail(-EFAULT, "%s at %p is not memory that the device reaches", what, addr);
    *far_p = kind != GPU_MEM_OWN;
    return 0;
}

int gpu_qp_check(const struct softnic *nic, const struct softnic_qp_attr *attr) {
    const struct gpu *g = nic->gpu;
    int far, status = reachable(nic, "create QP: send queue", attr->sq, &far);
    if (!status)
        status = reachable(nic, "create QP: doorbell record", attr->dbrec, &far);
    const int bell = nic->watch == SOFTNIC_WATCH_BELL;
    if (!status && bell)
        status = reachable(nic, "create QP: doorbell", attr->doorbell, &far);
    if (status)
        return status;
    const void *watched = bell ? attr->doorbell : attr->dbrec;
    if (nic->clock == SOFTNIC_REAL && g->ops->where(g->dev, watched) == GPU_MEM_HOST)
        return softnic_fail(-EINVAL,
                            "create QP: the %s at %p is in host memory, which the GPU engine does not poll",
                            bell ? "doorbell" : "doorbell record", watched);
    size_t shared = shared_bytes(g, nic->qp_count + 1, g->warps, g->sms);
    if (shared > GPU_SHARED_MAX)
        return softnic_fail(-ENOMEM, "create QP: %u are too many for %u multiprocessors", nic->qp_count + 1,
                            g->sms);
    return 0;
}

/* Paused. */
int gpu_qp_added(struct softnic *nic, struct qp *qp) {
    struct gpu *g = nic->gpu;
    struct side *side = &g->side[qp->index];
    *side = (struct side){.rewatch = nic->watch == SOFTNIC_WATCH_BELL};
    int status = 0;
    if (nic->timed) {
        size_t depth = (size_t)qp->mask + 1;
        status = g->ops->alloc(g->dev, depth * sizeof(struct gpu_pend), &side->pend);
        if (!status)
            status = g->ops->alloc(g->dev, depth * MLX5_BB, &side->shadow);
        if (status)
            gpu_qp_free(nic, qp->index);
    }
    return status;
}

void gpu_qp_free(struct softnic *nic, uint32_t index) {
    struct side *side = &nic->gpu->side[index];
    if (side->pend)
        nic->gpu->ops->free(nic->gpu->dev, side->pend);
    if (side->shadow)
        nic->gpu->ops->free(nic->gpu->dev, side->shadow);
    *side = (struct side){0};
}

void gpu_qp_rewatch(struct softnic *nic, const struct qp *qp) {
    nic->gpu->side[qp->index].rewatch = 1;
    nic->gpu->side[qp->index].asked = GPU_ASK_NO;
}

int gpu_qp_status(const struct softnic *nic, const struct qp *qp, uint32_t *state_p, uint32_t *syndrome_p) {
    const struct gpu *g = nic->gpu;
    if (!__atomic_load_n(&g->resident, __ATOMIC_ACQUIRE))
        return 0;
    uint32_t status = __atomic_load_n(&g->status[qp->index], __ATOMIC_ACQUIRE);
    *state_p = status & 0xff;
    *syndrome_p = status >> 8;
    return 1;
}

/* Paused. What the CPU engine stores into a new CQ. */
int gpu_cq_init(struct softnic *nic, struct cq *cq) {
    struct gpu *g = nic->gpu;
    int far = 0, status = reachable(nic, "create CQ: CQEs", cq->cqe, &far);
    if (!status && cq->dbrec) {
        int ignored;
        status = reachable(nic, "create CQ: doorbell record", cq->dbrec, &ignored);
    }
    if (status)
        return status;
    cq->far = (uint32_t)far;
    status =
        g->ops->fill(g->dev, cq->cqe + 63, MLX5_CQE, MLX5_OP_OWN_INITIAL, 1, cq->collapsed ? 1 : cq->depth);
    if (!status && cq->collapsed)
        status = g->ops->fill(g->dev, cq->cqe + 60, MLX5_CQE, 0xff, 2, 1);
    while (!status && (status = g->ops->done(g->dev)) == 0)
        ;
    return status > 0 ? 0 : status;
}

int gpu_mr_check(const struct softnic *nic, const void *addr, size_t bytes) {
    int far, status = reachable(nic, "register memory: the region", addr, &far);
    return status
               ? status
               : reachable(nic, "register memory: the region's end", (const uint8_t *)addr + bytes - 1, &far);
}

int gpu_memory_alloc(struct softnic *nic, size_t bytes, void **addr_p) {
    return nic->gpu->ops->alloc(nic->gpu->dev, bytes, addr_p);
}
void gpu_memory_free(struct softnic *nic, void *addr) {
    if (nic->gpu->broken != -ETIMEDOUT)
        nic->gpu->ops->free(nic->gpu->dev, addr);
}
int gpu_memory_share(struct softnic *nic, void *addr, uint8_t *handle, uint64_t *offset_p) {
    return nic->gpu->ops->share(nic->gpu->dev, addr, handle, offset_p);
}
uint8_t *gpu_memory_open(struct softnic *nic, const uint8_t *handle) {
    void *base;
    return nic->gpu->ops->open_shared(nic->gpu->dev, handle, &base) ? NULL : base;
}
void gpu_memory_close(struct softnic *nic, uint8_t *base) {
    if (nic->gpu->broken != -ETIMEDOUT)
        nic->gpu->ops->close_shared(nic->gpu->dev, base);
}
int gpu_host_map(struct softnic *nic, void *addr, size_t bytes) {
    return nic->gpu->ops->host_map(nic->gpu->dev, addr, bytes);
}
void gpu_host_unmap(struct softnic *nic, void *addr) {
    if (nic->gpu->broken != -ETIMEDOUT)
        nic->gpu->ops->host_unmap(nic->gpu->dev, addr);
}
