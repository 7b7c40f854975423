/* The GPU engine's keeper, a thread that looks after the kernel; with DEMAND it also calls it and sends it away.
 *
 * DEMAND in a few words. Away: the keeper looks at the doorbell words and launches the kernel when one has changed. Here:
 * the kernel says when it was idle for long enough; then the keeper remembers the doorbells and asks it to leave, upon
 * which every warp looks at all its records once more. So a doorbell that was rung before is served, and one that was
 * rung after it differs from what is remembered and calls the kernel again. A launch remembers them too, before the
 * kernel's first look. What a kernel left half done without a doorbell to tell of it (a WAIT whose CQE came in the last
 * pass, a request with a delay) calls it again as long as it makes progress.
 */
#include "gpu_host.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum {
    KEEPER_NAP_NS =
        100000, /* between two looks at a kernel that is here, or at the doorbells of one long away */
    DEMAND_NAP_NS = 20000, /* the same of one that may leave, or has left lately */
    LOOK_EVERY = 100,      /* naps between two looks at whether the kernel still runs */
    AWAKE_NS = 1000000,    /* after it left the doorbells are looked at without a nap for so long */
    LATELY_NS = 100000000, /* and with short ones for so long */
    IDLE_MAX_US = 1000000,
    MAKE_WAY = 100000, /* looks at whether a control call still wants the lock */
};

int demand_check(const struct softnic_attr *a) {
    if (a->presence == SOFTNIC_WINDOW)
        return a->idle_us ? softnic_fail(-EINVAL, "create: idle_us %u: of presence DEMAND", a->idle_us) : 0;
    if (a->presence != SOFTNIC_DEMAND)
        return softnic_fail(-EINVAL, "create: unknown presence %d", (int)a->presence);
    if (a->engine != SOFTNIC_ENGINE_GPU)
        return softnic_fail(-EINVAL,
                            "create: presence DEMAND: of the GPU engine; the CPU engine always serves");
    if (a->watch != SOFTNIC_WATCH_DBR)
        return softnic_fail(-EINVAL,
                            "create: presence DEMAND: its doorbells are in host memory, which the GPU "
                            "engine does not poll; want watch DBR");
    if (a->idle_us > IDLE_MAX_US)
        return softnic_fail(-EINVAL, "create: idle_us %u; at most %d", a->idle_us, IDLE_MAX_US);
    return 0;
}

/* ---- doorbells ---- */

static uint64_t bell_now(const struct bell *b) { return __atomic_load_n(b->word, __ATOMIC_ACQUIRE); }

void demand_look(struct softnic *nic) {
    struct bell *bells = nic->gpu->bells;
    for (uint32_t i = 0; i < nic->qp_count; i++)
        if (bells[i].word)
            bells[i].last = bell_now(&bells[i]);
}

int demand_rung(const struct softnic *nic) {
    const struct gpu *g = nic->gpu;
    for (uint32_t i = 0; i < nic->qp_count; i++)
        if (g->bells[i].word && bell_now(&g->bells[i]) != g->bells[i].last)
            return 1;
    return 0;
}

int demand_called(const struct softnic *nic) {
    return nic->gpu->called || nic->gpu->stay || demand_rung(nic);
}

int demand_left(const struct softnic *nic) {
    const struct gpu *g = nic->gpu;
    for (uint32_t i = 0; i < nic->qp_count; i++) {
        const struct qp *qp = nic->qps[i];
        if (!qp)
            continue;
        if (g->side[i].asked == GPU_ASKED ||
            (qp->active && (g->progress || (nic->timed && qp->done != qp->cons))))
            return 1;
    }
    return 0;
}

void gpu_qp_call(struct softnic *nic, const struct qp *qp) {
    struct gpu *g = nic->gpu;
    if (g->demand && bell_now(&g->bells[qp->index]) != 0)
        g->called = 1;
}

/* ---- the thread ---- */

static int present(const struct gpu *g) { return g->started && g->holds == 0 && !g->broken; }

static void nap(long ns) {
    struct timespec ts = {0, ns};
    nanosleep(&ts, NULL);
}

/* The kernel is here. */
static void look_after(struct softnic *nic, uint32_t naps) {
    struct gpu *g = nic->gpu;
    __atomic_store_n(&g->mail->heartbeat, g->mail->heartbeat + 1, __ATOMIC_RELAXED);
    const int asked = __atomic_load_n(&g->mail->ask, __ATOMIC_ACQUIRE) != 0;
    const int gone = __atomic_load_n(&g->mail->reason, __ATOMIC_ACQUIRE) != 0 ||
                     (naps % LOOK_EVERY == 0 && g->ops->done(g->dev) != 0);
    const int idle = g->demand && !g->stay && __atomic_load_n(&g->mail->idle, __ATOMIC_ACQUIRE) != 0;
    if (!asked && !gone && !idle && !gpu_keys_stale(nic))
        return;
    if (gpu_leave(nic) == 0 && (!g->demand || demand_called(nic)))
        gpu_launch(nic, 0);
}

static void *keeper_main(void *arg) {
    struct softnic *nic = arg;
    struct gpu *g = nic->gpu;
    uint64_t left_ns = 0;
    prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul);
    pthread_mutex_lock(&g->lock);
    for (uint32_t turn = 0; !g->stop_keeper; turn++) {
        if (g->broken || (!g->resident && !(g->demand && present(g)))) {
            pthread_cond_wait(&g->changed, &g->lock);
            continue;
        }
        if (g->resident)
            look_after(nic, turn);
        else if (demand_called(nic))
            gpu_launch(nic, 0);
        const int here = g->resident, may_leave = g->demand && !g->stay;
        pthread_mutex_unlock(&g->lock);
        const uint64_t now = nic_monotonic_ns();
        if (here) {
            left_ns = now;
            nap(may_leave ? DEMAND_NAP_NS : KEEPER_NAP_NS);
        } else if (now - left_ns < AWAKE_NS) {
            spin_pause(turn);
        } else {
            nap(now - left_ns < LATELY_NS ? DEMAND_NAP_NS : KEEPER_NAP_NS);
        }
        for (uint32_t polls = 0; __atomic_load_n(&g->wanting, __ATOMIC_ACQUIRE) && polls < MAKE_WAY; polls++)
            spin_pause(polls);
        pthread_mutex_lock(&g->lock);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

int gpu_keeper_start(struct softnic *nic) {
    struct gpu *g = nic->gpu;
    if (g->keeping)
        return 0;
    sigset_t all, old;
    sigfillset(&all); /* signals are the application's */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int error = pthread_create(&g->keeper, NULL, keeper_main, nic);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error)
        return softnic_fail(-error, "start keeper thread: %s", strerror(error));
    g->keeping = 1;
    return 0;
}

void gpu_keeper_stop(struct softnic *nic) {
    struct gpu *g = nic->gpu;
    if (g->keeping)
        pthread_join(g->keeper, NULL);
    g->keeping = 0;
}

/* A doorbell word must be one that this thread can load while the device stores to it. */
int demand_qp_check(const struct softnic *nic, const struct softnic_qp_attr *attr) {
    const struct gpu *g = nic->gpu;
    if (!g->demand)
        return 0;
    if (!attr->doorbell)
        return softnic_fail(-EINVAL, "create QP: no doorbell; presence DEMAND wants one in host memory");
    if (g->ops->where(g->dev, attr->doorbell) != GPU_MEM_HOST)
        return softnic_fail(
            -EINVAL,
            "create QP: the doorbell at %p is not in host memory that the device reaches, and "
            "presence DEMAND cannot see it",
            (const void *)attr->doorbell);
    return 0;
}
