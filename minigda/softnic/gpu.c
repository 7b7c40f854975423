/* Host side of the GPU engine: brings the queues to the kernel and back. gpu_keeper.c looks after it while it runs.
 *
 * The kernel is "resident" between gpu_launch() and gpu_leave(). Outside, the host's structs are the state; a launch takes them
 * along and what comes back is added to them. So every control call works as with the other engine: it pauses, which
 * here means that the kernel leaves, changes what it likes, and goes on.
 *
 * A residence is to the peers what a pass of a worker is (shm_worker.epoch): who deregisters memory waits until it ends.
 * The keeper, a thread that sleeps most of the time, sees to it that it does: it watches the generation of every peer's
 * table and relaunches when one has changed. The same when the kernel met a key that is not in its table, and when it
 * left by itself because the keeper had been silent (a stopped process).
 */
#include "gpu_host.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    LEAVE_POLL_NS = 5000,
    IDLE_US = 2000,
    PATIENCE_MS = 10000, /* the longest copy takes a fraction */
    PATIENCE_MIN_MS = 100,
    PATIENCE_MAX_MS = 600000
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

/* ---- coming and going ---- */

static int keys_shared(const struct gpu *g) { return g->key_slots <= GPU_KEYS_SHARED; }

static size_t shared_bytes(const struct gpu *g, uint32_t qps, uint32_t warps, uint32_t blocks) {
    uint32_t rows = (qps + warps * blocks - 1) / (warps * blocks);
    return sizeof(struct gpu_args) + (size_t)warps * g->ops->warp_bytes +
           (size_t)rows * warps * sizeof(struct gpu_qp) +
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
                             .silence_ns = g->patience_ns / 2,
                             .idle_ns = g->idle_ns,
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
int gpu_arrive(const struct gpu *g) {
    uint64_t deadline = nic_monotonic_ns() + g->patience_ns;
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
                                "GPU engine: no room on the device for %u multiprocessors within %u ms",
                                g->sms, (unsigned)(g->patience_ns / 1000000u));
        nap(LEAVE_POLL_NS);
    }
    return 0;
}

/* Enqueues tables, kernel, tables. The epoch is odd before the keys are read, see the head of internal.h. */
int gpu_launch(struct softnic *nic, uint64_t end_ps) {
    struct gpu *g = nic->gpu;
    uint64_t *epoch = &nic->shm->worker[0].epoch;
    if (g->broken)
        return g->broken;
    __atomic_store_n(epoch, *epoch + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&nic->shm->built_ns, nic_monotonic_ns(), __ATOMIC_SEQ_CST);
    answer(nic);
    if (g->demand) {
        g->called = 0;
        demand_look(nic);
    }
    int status = gpu_keys_stale(nic) ? gpu_keys_build(nic) : 0;
    if (!status) {
        gpu_queues_out(nic);
        g->mail->stop = g->mail->ask = g->mail->reason = g->mail->idle = 0;
        memset(g->mail->here, 0, sizeof g->mail->here);
        g->mail->heartbeat++;
        status = gpu_table_up(g, &g->qps, nic->qp_count * sizeof(struct gpu_qp));
    }
    if (!status)
        status = gpu_table_up(g, &g->cold, nic->qp_count * sizeof(struct gpu_cold));
    if (!status)
        status = gpu_table_up(g, &g->cqs, nic->cq_count * sizeof(struct gpu_cq));
    if (!status) /* nothing is open and nobody has to leave; jobs keep their tickets */
        status = gpu_table_up(g, &g->board, offsetof(struct gpu_board, jobs));
    if (!status) {
        struct gpu_args args = args_of(nic, end_ps);
        uint32_t blocks = args.is_virtual ? 1 : g->sms;
        status = g->ops->launch(g->dev, &args, blocks,
                                (uint32_t)shared_bytes(g, nic->qp_count, args.warps, blocks));
    }
    if (!status)
        status = gpu_table_down(g, &g->qps, nic->qp_count * sizeof(struct gpu_qp));
    if (!status)
        status = gpu_table_down(g, &g->cold, nic->qp_count * sizeof(struct gpu_cold));
    if (!status)
        status = gpu_table_down(g, &g->cqs, nic->cq_count * sizeof(struct gpu_cq));
    __atomic_store_n(&g->resident, 1, __ATOMIC_RELEASE);
    g->launches++;
    if (!status && nic->clock == SOFTNIC_REAL && (!g->demand || g->stay))
        status = gpu_arrive(g);
    return status ? broke(g, status) : 0;
}

/* Waits until the kernel has left and takes its tables in. */
int gpu_collect(struct softnic *nic) {
    struct gpu *g = nic->gpu;
    uint64_t *epoch = &nic->shm->worker[0].epoch, deadline = nic_monotonic_ns() + g->patience_ns;
    int done;
    for (uint32_t polls = 0; (done = g->ops->done(g->dev)) == 0; polls++) {
        if (nic_monotonic_ns() > deadline)
            done = softnic_fail(-ETIMEDOUT, "GPU engine: the kernel did not leave within %u ms",
                                (unsigned)(g->patience_ns / 1000000u));
        if (done)
            break;
        if (polls > 16)
            nap(LEAVE_POLL_NS);
    }
    __atomic_store_n(&g->resident, 0, __ATOMIC_RELEASE);
    if (done > 0)
        gpu_queues_in(nic);
    __atomic_store_n(epoch, *epoch + 1, __ATOMIC_RELEASE);
    if (done <= 0)
        return broke(g, done);
    if (g->demand)
        g->called = demand_left(nic);
    return 0;
}

int gpu_leave(struct softnic *nic) {
    struct gpu *g = nic->gpu;
    if (!g->resident)
        return 0;
    if (g->demand)
        demand_look(nic);
    __atomic_store_n(&g->mail->stop, 1, __ATOMIC_RELEASE);
    return gpu_collect(nic);
}

static void take(struct gpu *g) {
    __atomic_add_fetch(&g->wanting, 1, __ATOMIC_ACQ_REL);
    pthread_mutex_lock(&g->lock);
    __atomic_sub_fetch(&g->wanting, 1, __ATOMIC_ACQ_REL);
}
static void drop(struct gpu *g) { pthread_mutex_unlock(&g->lock); }

/* With DEMAND, and unless it has to stay, it is the keeper who launches. */
static int wanted(const struct gpu *g) { return g->started && g->holds == 0 && !g->broken; }

static int settle(struct softnic *nic) { /* the lock is held */
    struct gpu *g = nic->gpu;
    int status = 0;
    if (g->resident && !wanted(g))
        status = gpu_leave(nic);
    else if (!g->resident && wanted(g) && (!g->demand || g->stay))
        status = gpu_launch(nic, 0);
    pthread_cond_signal(&g->changed);
    return status;
}

void gpu_pause(struct softnic *nic) {
    take(nic->gpu);
    nic->gpu->holds++;
    settle(nic);
    drop(nic->gpu);
}

void gpu_unpause(struct softnic *nic) {
    take(nic->gpu);
    nic->gpu->holds--;
    settle(nic);
    drop(nic->gpu);
}

void gpu_relaunch(struct softnic *nic) {
    struct gpu *g = nic->gpu;
    take(g);
    if (g->resident && gpu_leave(nic) == 0)
        settle(nic);
    drop(g);
}

int softnic_stay(struct softnic *nic, int on) {
    struct gpu *g = nic->gpu;
    if (!g || !g->demand)
        return softnic_fail(-EINVAL, "stay: the engine is not there on demand");
    take(g);
    g->stay = on != 0;
    int status = settle(nic);
    if (!status && g->stay && g->resident && nic->clock == SOFTNIC_REAL)
        status = gpu_arrive(g);
    drop(g);
    return status ? status : softnic_engine_error(nic);
}

uint64_t softnic_launches(const struct softnic *nic) {
    uint64_t launches = 0;
    if (nic->gpu) {
        take(nic->gpu);
        launches = nic->gpu->launches;
        drop(nic->gpu);
    }
    return launches;
}

/* With DEMAND as its keeper would: when a doorbell calls, also one that rings while the kernel is about to end. */
void gpu_advance(struct softnic *nic, uint64_t end_ps) {
    struct gpu *g = nic->gpu;
    int status = 0;
    take(g);
    if (!g->demand)
        status = gpu_launch(nic, end_ps) || gpu_collect(nic);
    else if (demand_called(nic))
        do
            status = gpu_launch(nic, end_ps) || gpu_collect(nic);
        while (!status && demand_rung(nic));
    if (!status)
        nic->now_ps = end_ps;
    drop(g);
}

int gpu_start(struct softnic *nic) {
    struct gpu *g = nic->gpu;
    int status = softnic_engine_error(nic);
    if (!status)
        status = gpu_keeper_start(nic);
    if (status)
        return status;
    take(g);
    g->started = 1;
    status = settle(nic);
    drop(g);
    nic->running = status == 0;
    return status;
}

void gpu_stop(struct softnic *nic) {
    struct gpu *g = nic->gpu;
    take(g);
    g->started = 0;
    settle(nic);
    g->stop_keeper = 1;
    pthread_cond_signal(&g->changed);
    drop(g);
    gpu_keeper_stop(nic);
    nic->running = 0;
}

/* ---- creation and control ---- */

static int tables_make(struct softnic *nic) {
    struct gpu *g = nic->gpu;
    void *mail, *status_words;
    int status = gpu_table_make(g, &g->qps, nic->max_qps * sizeof(struct gpu_qp));
    if (!status)
        status = gpu_table_make(g, &g->cold, nic->max_qps * sizeof(struct gpu_cold));
    if (!status)
        status = gpu_table_make(g, &g->cqs, nic->max_cqs * sizeof(struct gpu_cq));
    if (!status)
        status = gpu_table_make(g, &g->gone, nic->nodes);
    if (!status)
        status = gpu_table_make(g, &g->board, sizeof(struct gpu_board));
    if (!status)
        status = gpu_table_make(g, &g->pace, sizeof(struct gpu_pace));
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
    int status = gpu_keys_build(nic);
    if (status)
        return status;
    struct gpu_args args = args_of(nic, 0);
    args.is_virtual = args.warps = 1;
    args.idle_ns = 0;
    status = g->ops->launch(g->dev, &args, 1, (uint32_t)shared_bytes(g, 0, 1, 1));
    if (!status)
        status = gpu_collect(nic);
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
    const uint32_t patience_ms = attr->patience_ms ? attr->patience_ms : PATIENCE_MS;
    if (patience_ms < PATIENCE_MIN_MS || patience_ms > PATIENCE_MAX_MS)
        return softnic_fail(-EINVAL, "create: patience_ms %u; %d to %d", patience_ms, PATIENCE_MIN_MS,
                            PATIENCE_MAX_MS);
    struct gpu *g = calloc(1, sizeof *g);
    nic->gpu = g;
    if (!g)
        return softnic_fail(-ENOMEM, "create: out of memory");
    g->ops = ops;
    g->sms = attr->sms ? attr->sms : 1;
    g->warps = attr->warps ? attr->warps : GPU_MAX_WARPS;
    g->strict = attr->writes == SOFTNIC_WRITES_STRICT;
    g->demand = attr->presence == SOFTNIC_DEMAND;
    g->idle_ns = g->demand ? 1000ull * (attr->idle_us ? attr->idle_us : IDLE_US) : 0;
    g->patience_ns = 1000000ull * patience_ms;
    g->stale = 1;
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    g->side = calloc(nic->max_qps, sizeof *g->side);
    g->generation = calloc(nic->nodes, sizeof *g->generation);
    g->bells = calloc(g->demand ? nic->max_qps : 1, sizeof *g->bells);
    if (!g->side || !g->generation || !g->bells)
        return softnic_fail(-ENOMEM, "create: out of memory for %u QPs", nic->max_qps);
    int status = ops->open(attr->device, &g->dev);
    if (!status)
        status = tables_make(nic);
    if (!status)
        nic->shm->device = ops->identity(g->dev);
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
            gpu_table_free(g, tables[i]);
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
    free(g->bells);
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
    status = demand_qp_check(nic, attr);
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
    if (g->demand)
        g->bells[qp->index] = (struct bell){.word = qp->bell};
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
    if (nic->gpu->demand)
        nic->gpu->bells[index] = (struct bell){0};
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
    for (uint32_t polls = 0; !status && (status = g->ops->done(g->dev)) == 0; polls++)
        spin_pause(polls);
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
static enum gpu_share how(uint32_t kind) { return kind == SHM_GPU_FD ? GPU_SHARE_FD : GPU_SHARE_IPC; }

int gpu_memory_share(struct softnic *nic, void *addr, size_t bytes, struct shm_mem *area) {
    enum gpu_share by = GPU_SHARE_IPC;
    int status = nic->gpu->ops->share(nic->gpu->dev, addr, bytes, &by, area->handle, &area->offset);
    area->kind = by == GPU_SHARE_FD ? SHM_GPU_FD : SHM_GPU_IPC;
    return status;
}
void gpu_memory_unshare(struct softnic *nic, const struct shm_mem *area) {
    nic->gpu->ops->unshare(nic->gpu->dev, how(area->kind), area->handle);
}
uint8_t *gpu_memory_open(struct softnic *nic, const struct shm_mem *area) {
    void *base;
    return nic->gpu->ops->open_shared(nic->gpu->dev, how(area->kind), area->handle, &base) ? NULL : base;
}
void gpu_memory_close(struct softnic *nic, uint32_t kind, uint8_t *base) {
    if (nic->gpu->broken != -ETIMEDOUT)
        nic->gpu->ops->close_shared(nic->gpu->dev, how(kind), base);
}
int gpu_host_map(struct softnic *nic, void *addr, size_t bytes) {
    return nic->gpu->ops->host_map(nic->gpu->dev, addr, bytes);
}
void gpu_host_unmap(struct softnic *nic, void *addr) {
    if (nic->gpu->broken != -ETIMEDOUT)
        nic->gpu->ops->host_unmap(nic->gpu->dev, addr);
}
