/* Tables of the GPU engine: QPs and CQs as the kernel takes them along and brings them back, and the keys of all nodes. */
#include "gpu_host.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int gpu_table_make(struct gpu *g, struct table *t, size_t bytes) {
    int status = g->ops->pinned(g->dev, bytes, &t->host);
    if (!status)
        status = g->ops->alloc(g->dev, bytes, &t->dev);
    t->bytes = bytes;
    return status;
}
void gpu_table_free(struct gpu *g, struct table *t) {
    if (t->dev)
        g->ops->free(g->dev, t->dev);
    if (t->host)
        g->ops->pinned_free(g->dev, t->host);
    *t = (struct table){0};
}
int gpu_table_up(struct gpu *g, const struct table *t, size_t bytes) {
    return bytes ? g->ops->upload(g->dev, t->dev, t->host, bytes) : 0;
}
int gpu_table_down(struct gpu *g, const struct table *t, size_t bytes) {
    return bytes ? g->ops->download(g->dev, t->host, t->dev, bytes) : 0;
}

enum {
    GPU_KEYS_ROOM = 65536,
    REMOTE_RIGHTS = SOFTNIC_REMOTE_WRITE | SOFTNIC_REMOTE_READ | SOFTNIC_REMOTE_ATOMIC,
};

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
    im->dc = qp->dc;
    im->cons = qp->cons;
    im->seen = qp->seen;
    im->state = qp->state;
    im->syndrome = qp->syndrome;
    im->again = qp->active;
    im->simple_cq = qp->cq->collapsed && qp->cq->users == 1;
    im->ring_cq = !qp->cq->collapsed && qp->cq->users == 1 && !qp->cq->dbrec;
    im->cq_mask = qp->cq->depth - 1;
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
void gpu_queues_out(struct softnic *nic) {
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

/* Has it done anything at all? */
static int progressed(const struct gpu_qp *im, const struct gpu_cold *cold) {
    const uint64_t *n = (const uint64_t *)&cold->n;
    uint64_t all = 0;
    for (size_t f = 0; f < sizeof cold->n / sizeof *n; f++)
        all |= n[f];
    for (int c = 0; c < GPU_COUNTS; c++)
        all |= im->count[c];
    return all != 0;
}

void gpu_queues_in(struct softnic *nic) {
    struct gpu *g = nic->gpu;
    g->progress = 0;
    const struct gpu_qp *qps = g->qps.host;
    const struct gpu_cold *cold = g->cold.host;
    const struct gpu_cq *cqs = g->cqs.host;
    for (uint32_t i = 0; i < nic->cq_count; i++)
        if (nic->cqs[i]) {
            nic->cqs[i]->prod = cqs[i].prod;
            nic->cqs[i]->overrun = cqs[i].overrun;
        }
    for (uint32_t i = 0; i < nic->qp_count; i++)
        if (nic->qps[i]) {
            g->progress |= progressed(&qps[i], &cold[i]);
            qp_in(nic, nic->qps[i], &qps[i], &cold[i]);
        }
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

int gpu_keys_stale(const struct softnic *nic) {
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
            /* What peers may not touch need not be opened: opening may wait for kernels. */
            const int ours = self || (mr.access & REMOTE_RIGHTS);
            const uint8_t *base = ours ? mr_base(nic, node, key, &mr) : NULL;
            enum gpu_kind kind = base ? g->ops->where(g->dev, base) : GPU_MEM_NONE;
            if (kind == GPU_MEM_NONE && ours && mr.mem_slot != NO_MEM)
                g->unmapped = key;
            if (kind == GPU_MEM_OTHER && g->ops->reach(g->dev, base) != 0)
                g->unmapped = key;
            key_add(g, &(struct gpu_key){.key = key,
                                         .node = node,
                                         .access = mr.access,
                                         .far = kind != GPU_MEM_OWN ||
                                                (!self && peer->shm->device != nic->shm->device),
                                         .va = mr.va,
                                         .len = mr.len,
                                         .base = kind != GPU_MEM_NONE     ? addr_of(base)
                                                 : mr.access & ACCESS_DCT ? GPU_BASE_DCT
                                                                          : 0});
        }
        count++;
    }
    return count;
}

/* At once what will do for good, up to a size: making it larger later frees device memory, which waits for kernels. */
static size_t room_for(const struct softnic *nic, uint32_t slots) {
    const size_t all = 2 * (size_t)nic->nodes * nic->max_mrs;
    size_t room = slots;
    while (room < all && room < GPU_KEYS_ROOM)
        room *= 2;
    return room;
}

int gpu_keys_build(struct softnic *nic) {
    struct gpu *g = nic->gpu;
    uint32_t count = 0, slots = 64;
    __atomic_store_n(&g->stale, 0, __ATOMIC_SEQ_CST);
    g->unmapped = 0;
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
        gpu_table_free(g, &g->keys);
        int status = gpu_table_make(g, &g->keys, room_for(nic, slots) * sizeof(struct gpu_key));
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
    int status = gpu_table_up(g, &g->keys, slots * sizeof(struct gpu_key));
    return status ? status : gpu_table_up(g, &g->gone, nic->nodes);
}

int gpu_keys_map(struct softnic *nic) {
    struct gpu *g = nic->gpu;
    pthread_mutex_lock(&g->lock); /* held, so the keeper does not build */
    int status = gpu_keys_stale(nic) ? gpu_keys_build(nic) : 0;
    uint32_t key = g->unmapped;
    pthread_mutex_unlock(&g->lock);
    if (status || key == 0)
        return status;
    char why[200];
    snprintf(why, sizeof why, "%s", softnic_error());
    return softnic_fail(-EFAULT, "map peers' memory: that of key 0x%x: %s", key, why);
}
