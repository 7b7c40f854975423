/* NIC life cycle, errors, clock, and the registry of the NICs of this process. */
#include "internal.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static __thread char error_text[256] = "no error";

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct softnic *registry;

int softnic_fail(int status, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(error_text, sizeof error_text, fmt, ap);
    va_end(ap);
    return status;
}

const char *softnic_error(void) { return error_text; }

void spin_pause(uint32_t polls) {
    if (polls >= 64) {
        sched_yield();
        return;
    }
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

void lock_take(uint32_t *lock) {
    for (uint32_t polls = 0; __atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE); polls++)
        spin_pause(polls);
}

void lock_drop(uint32_t *lock) { __atomic_store_n(lock, 0, __ATOMIC_RELEASE); }

uint64_t nic_monotonic_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t nic_clock_ps(const struct softnic *nic) {
    if (nic->clock == SOFTNIC_VIRTUAL)
        return nic->now_ps;
    return (nic_monotonic_ns() - nic->start_ns) * PS_PER_NS;
}

uint64_t softnic_now(const struct softnic *nic) { return nic_clock_ps(nic) / PS_PER_NS; }

static struct softnic *registry_find(const char *job, uint32_t node) {
    struct softnic *nic = registry;
    while (nic && (nic->node != node || strcmp(nic->job, job) != 0))
        nic = nic->next;
    return nic;
}

int nic_all_here(const struct softnic *nic) {
    uint32_t here = 0;
    pthread_mutex_lock(&registry_lock);
    for (const struct softnic *n = registry; n; n = n->next)
        here += strcmp(n->job, nic->job) == 0;
    pthread_mutex_unlock(&registry_lock);
    return here == nic->nodes;
}

uint8_t *nic_private_memory(const struct softnic *nic, uint32_t node, uint32_t mr, uint64_t tag) {
    uint8_t *base = NULL;
    pthread_mutex_lock(&registry_lock);
    const struct softnic *owner = registry_find(nic->job, node);
    if (owner && mr < owner->max_mrs && __atomic_load_n(&owner->mrs[mr].tag, __ATOMIC_ACQUIRE) == tag)
        base = (uint8_t *)(uintptr_t)owner->mrs[mr].addr;
    pthread_mutex_unlock(&registry_lock);
    return base;
}

void nic_pause_gpus(struct gpu_nics *held) {
    held->count = 0;
    pthread_mutex_lock(&registry_lock);
    for (struct softnic *n = registry; n && held->count < GPU_NICS; n = n->next)
        if (n->gpu)
            held->nic[held->count++] = n;
    pthread_mutex_unlock(&registry_lock); /* keepers take it while they hold what pausing waits for */
    for (uint32_t i = 0; i < held->count; i++)
        nic_pause(held->nic[i]);
}

void nic_unpause_gpus(const struct gpu_nics *held) {
    for (uint32_t i = 0; i < held->count; i++)
        nic_unpause(held->nic[i]);
}

static void registry_add(struct softnic *nic) {
    pthread_mutex_lock(&registry_lock);
    nic->next = registry;
    registry = nic;
    pthread_mutex_unlock(&registry_lock);
}

static void registry_remove(struct softnic *nic) {
    pthread_mutex_lock(&registry_lock);
    for (struct softnic **at = &registry; *at; at = &(*at)->next)
        if (*at == nic) {
            *at = nic->next;
            break;
        }
    pthread_mutex_unlock(&registry_lock);
}

static int check_range(const char *what, double v, double low, double high) {
    if (v == 0 || (v >= low && v <= high))
        return 0;
    return softnic_fail(-EINVAL, "create: profile %s %g is outside %g..%g (0 = unlimited)", what, v, low,
                        high);
}

static int check_attr(const struct softnic_attr *a) {
    size_t length = a->job ? strlen(a->job) : 0;
    if (length == 0 || length > 180 || strchr(a->job, '/'))
        return softnic_fail(-EINVAL, "create: job name \"%s\" must be 1..180 characters without '/'",
                            a->job ? a->job : "");
    if (a->nodes == 0 || a->nodes > MAX_NODES || a->node >= a->nodes)
        return softnic_fail(-EINVAL, "create: node %u of %u; nodes must be 1..%d and node below it", a->node,
                            a->nodes, MAX_NODES);
    if (a->clock != SOFTNIC_REAL && a->clock != SOFTNIC_VIRTUAL)
        return softnic_fail(-EINVAL, "create: unknown clock %d", (int)a->clock);
    if (a->watch != SOFTNIC_WATCH_BELL && a->watch != SOFTNIC_WATCH_DBR)
        return softnic_fail(-EINVAL, "create: unknown watch %d", (int)a->watch);
    if (a->engine != SOFTNIC_ENGINE_CPU && a->engine != SOFTNIC_ENGINE_GPU)
        return softnic_fail(-EINVAL, "create: unknown engine %d", (int)a->engine);
    if (a->writes != SOFTNIC_WRITES_RUNS && a->writes != SOFTNIC_WRITES_STRICT)
        return softnic_fail(-EINVAL, "create: unknown order of writes %d", (int)a->writes);
    uint32_t limit = a->clock == SOFTNIC_VIRTUAL ? 1 : MAX_WORKERS;
    if (a->workers > limit)
        return softnic_fail(-EINVAL, "create: %u workers; at most %u", a->workers, limit);
    if (a->max_qps > 65536 || a->max_mrs > 65536)
        return softnic_fail(-EINVAL, "create: max_qps %u, max_mrs %u; at most 65536", a->max_qps, a->max_mrs);
    if (a->trace_records > UINT32_MAX)
        return softnic_fail(-EINVAL, "create: %zu trace records; at most 2^32 - 1", a->trace_records);
    int status = demand_check(a);
    if (status)
        return status;
    const struct softnic_profile *p = &a->profile;
    status = check_range("message_rate", p->message_rate, 1, 1e12);
    if (!status)
        status = check_range("bandwidth", p->bandwidth, 1e6, 1e15);
    if (!status)
        status = check_range("latency_ns", (double)p->latency_ns, 1, 1e12);
    if (!status)
        status = check_range("fetch_ns", (double)p->fetch_ns, 1, 1e12);
    return status ? status : check_range("header_bytes", p->header_bytes, 1, 65536);
}

static int workers_make(struct softnic *nic) {
    nic->workers = aligned_alloc(64, nic->worker_count * sizeof *nic->workers);
    if (!nic->workers)
        return -ENOMEM;
    memset(nic->workers, 0, nic->worker_count * sizeof *nic->workers);
    uint32_t share = nic->max_qps / nic->worker_count + 1;
    for (uint32_t i = 0; i < nic->worker_count; i++) {
        struct worker *w = &nic->workers[i];
        w->nic = nic;
        w->index = i;
        w->watch = calloc(share, sizeof *w->watch);
        w->qps = calloc(share, sizeof *w->qps);
        w->active = calloc(share, sizeof *w->active);
        if (!w->watch || !w->qps || !w->active)
            return -ENOMEM;
    }
    return 0;
}

static int tables_make(struct softnic *nic, const struct softnic_attr *attr) {
    nic->job = strdup(attr->job);
    nic->qps = calloc(nic->max_qps, sizeof *nic->qps);
    nic->cqs = calloc(nic->max_cqs, sizeof *nic->cqs);
    nic->mrs = aligned_alloc(64, nic->max_mrs * sizeof *nic->mrs);
    nic->mr_busy = calloc(nic->max_mrs, 1);
    nic->mr_variant = calloc(nic->max_mrs, 1);
    nic->peers = calloc(nic->nodes, sizeof *nic->peers);
    if (!nic->job || !nic->qps || !nic->cqs || !nic->mrs || !nic->mr_busy || !nic->mr_variant || !nic->peers)
        return -ENOMEM;
    memset(nic->mrs, 0, nic->max_mrs * sizeof *nic->mrs);
    if (attr->trace_records) {
        nic->trace.capacity = attr->trace_records;
        nic->trace.records = calloc(attr->trace_records, sizeof *nic->trace.records);
        if (!nic->trace.records)
            return -ENOMEM;
    }
    return workers_make(nic);
}

int softnic_create(const struct softnic_attr *attr, struct softnic **nic_p) {
    *nic_p = NULL;
    int status = check_attr(attr);
    if (status)
        return status;
    struct softnic *nic = calloc(1, sizeof *nic);
    if (!nic)
        return softnic_fail(-ENOMEM, "create: out of memory");
    nic->node = attr->node;
    nic->nodes = attr->nodes;
    nic->clock = attr->clock;
    nic->watch = attr->watch;
    nic->profile = attr->profile;
    nic->timed = attr->profile.message_rate > 0 || attr->profile.bandwidth > 0 || attr->profile.latency_ns ||
                 attr->profile.fetch_ns;
    if (attr->profile.message_rate > 0)
        nic->message_ps = (uint64_t)(1e12 / attr->profile.message_rate + 0.5);
    nic->worker_count = attr->workers && attr->engine == SOFTNIC_ENGINE_CPU ? attr->workers : 1;
    nic->max_qps = attr->max_qps ? attr->max_qps : 4096 + 256;
    nic->max_cqs = nic->max_qps + 256;
    nic->max_mrs = (attr->max_mrs ? attr->max_mrs : 1024) + 1; /* slot 0 is no key */
    nic->start_ns = nic_monotonic_ns();
    pthread_mutex_init(&nic->map_lock, NULL);
    status = tables_make(nic, attr);
    if (status)
        softnic_fail(status, "create: out of memory for %u QPs, %u MRs, %zu trace records", nic->max_qps,
                     nic->max_mrs, attr->trace_records);
    else
        status = shm_node_create(nic);
    if (!status && attr->engine == SOFTNIC_ENGINE_GPU) {
        struct gpu_nics held;
        nic_pause_gpus(&held);
        status = gpu_create(nic, attr);
        nic_unpause_gpus(&held);
    }
    if (status) {
        softnic_destroy(nic);
        return status;
    }
    registry_add(nic);
    *nic_p = nic;
    return 0;
}

static void memories_free(struct softnic *nic) {
    for (uint32_t i = 0; i < MAX_MEMS; i++)
        if (nic->mems[i].addr)
            shm_memory_destroy(nic, &nic->mems[i]);
}

void softnic_destroy(struct softnic *nic) {
    if (!nic)
        return;
    if (nic->gpu)
        gpu_stop(nic);
    else if (nic->workers)
        workers_stop(nic);
    registry_remove(nic);
    struct gpu_nics held = {.count = 0};
    if (nic->gpu)
        nic_pause_gpus(&held);
    if (nic->shm) {
        /* Peers must not act on our keys any more, and those that do act must have finished. */
        __atomic_store_n(&nic->shm->state, SHM_GONE, __ATOMIC_RELEASE);
        for (uint32_t i = 1; i < nic->max_mrs; i++)
            __atomic_store_n(&nic->shm->mrs[i].tag, 0, __ATOMIC_RELEASE);
        shm_changed(nic);
        shm_grace(nic, 2000000000u);
        memories_free(nic);
        shm_node_destroy(nic);
    }
    for (uint32_t i = 0; nic->peers && i < nic->nodes; i++)
        peer_close(nic, &nic->peers[i]);
    gpu_destroy(nic);
    nic_unpause_gpus(&held);
    for (uint32_t i = 0; nic->qps && i < nic->qp_count; i++)
        qp_free(nic->qps[i]);
    for (uint32_t i = 0; nic->cqs && i < nic->cq_count; i++)
        free(nic->cqs[i]);
    for (uint32_t i = 0; nic->workers && i < nic->worker_count; i++) {
        free(nic->workers[i].watch);
        free(nic->workers[i].qps);
        free(nic->workers[i].active);
    }
    pthread_mutex_destroy(&nic->map_lock);
    free(nic->workers);
    free(nic->trace.records);
    free(nic->peers);
    free(nic->mr_busy);
    free(nic->mr_variant);
    free(nic->mrs);
    free(nic->cqs);
    free(nic->qps);
    free(nic->job);
    free(nic);
}
