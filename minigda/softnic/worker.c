/* Workers: threads that serve the queues in real time, and the one step of virtual time. */
#include "internal.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum {
    BUSY_LOADS = 2048,       /* watched words looked at in vain before the processor is offered to others */
    IDLE_YIELD_NS = 1000000, /* yielding goes on so long before the first sleep */
    SLEEP_MIN_NS = 5000,
    SLEEP_MAX_NS = 50000,
};

int worker_pass(struct worker *w) {
    uint64_t *epoch = &w->nic->shm->worker[w->index].epoch;
    /* Deregistration (in this or a peer's process) invalidates a key and then reads the epoch; we set the
     * epoch and then read keys. Both sides need the full barrier, or each could miss the other. */
    __atomic_store_n(epoch, *epoch + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    w->now_ps = nic_clock_ps(w->nic);
    int busy = uar_scan(w);
    __atomic_store_n(epoch, *epoch + 1, __ATOMIC_RELEASE);
    return busy;
}

/* Earliest deadline of this worker's queues, UINT64_MAX when nothing is pending. */
uint64_t worker_next_ps(const struct worker *w) {
    uint64_t next = UINT64_MAX;
    if (!w->nic->timed)
        return next;
    for (uint32_t i = 0; i < w->active_count; i++) {
        const struct qp *qp = w->active[i];
        if (qp->done == qp->cons)
            continue;
        uint64_t done = qp->pend[qp->done & qp->mask].done_ps;
        next = done < next ? done : next;
        if (qp->land == qp->cons || qp->pend[qp->land & qp->mask].syndrome)
            continue;
        uint64_t land = qp->pend[qp->land & qp->mask].land_ps;
        next = land < next ? land : next;
    }
    return next;
}

/* Says "held" with the number of the hold it saw, so that a hold right after a resume is not answered by the
 * stale word of the one before. */
static void park(struct worker *w) {
    struct softnic *nic = w->nic;
    for (uint32_t polls = 0;
         __atomic_load_n(&nic->hold, __ATOMIC_SEQ_CST) && !__atomic_load_n(&nic->stop, __ATOMIC_ACQUIRE);
         polls++) {
        __atomic_store_n(&w->held, __atomic_load_n(&nic->hold_seq, __ATOMIC_SEQ_CST), __ATOMIC_RELEASE);
        if (polls < 256) {
            spin_pause(polls);
        } else {
            struct timespec ts = {0, SLEEP_MAX_NS};
            nanosleep(&ts, NULL);
        }
    }
}

/* An idle worker polls a little, then yields, then sleeps ever longer: with more ranks than processors
 * somebody else needs the processor, and a rank that waits for minutes must not burn one. */
struct idle {
    uint32_t loads;
    uint64_t since_ps, sleep_ns;
};

static void rest(struct worker *w, struct idle *idle) {
    if (idle->loads < BUSY_LOADS) {
        idle->loads += 16 + w->count;
        spin_pause(0);
        return;
    }
    uint64_t now = w->now_ps, next = worker_next_ps(w);
    if (idle->since_ps == 0) {
        idle->since_ps = now;
        idle->sleep_ns = SLEEP_MIN_NS;
    }
    uint64_t until = next > now ? (next - now) / PS_PER_NS : 0;
    if (now - idle->since_ps < (uint64_t)IDLE_YIELD_NS * PS_PER_NS || until < 2 * idle->sleep_ns) {
        sched_yield();
        return;
    }
    struct timespec ts = {0, (long)idle->sleep_ns};
    nanosleep(&ts, NULL);
    idle->sleep_ns = idle->sleep_ns * 2 < SLEEP_MAX_NS ? idle->sleep_ns * 2 : SLEEP_MAX_NS;
}

static void *worker_main(void *arg) {
    struct worker *w = arg;
    struct idle idle = {0};
    prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul);
    while (!__atomic_load_n(&w->nic->stop, __ATOMIC_ACQUIRE)) {
        if (__atomic_load_n(&w->nic->hold, __ATOMIC_ACQUIRE))
            park(w);
        else if (worker_pass(w))
            idle = (struct idle){0};
        else
            rest(w, &idle);
    }
    return NULL;
}

int workers_start(struct softnic *nic) {
    sigset_t all, old;
    int status = 0;
    sigfillset(&all); /* signals are the application's */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (uint32_t i = 0; i < nic->worker_count && status == 0; i++) {
        status = pthread_create(&nic->workers[i].thread, NULL, worker_main, &nic->workers[i]);
        nic->workers[i].started = status == 0;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (status) {
        workers_stop(nic);
        return softnic_fail(-status, "start worker thread: %s", strerror(status));
    }
    nic->running = 1;
    return 0;
}

void workers_stop(struct softnic *nic) {
    __atomic_store_n(&nic->stop, 1, __ATOMIC_RELEASE);
    for (uint32_t i = 0; i < nic->worker_count; i++) {
        if (nic->workers[i].started)
            pthread_join(nic->workers[i].thread, NULL);
        nic->workers[i].started = 0;
    }
    nic->running = 0;
}

/* Control calls hold the workers while they change what those use. The number grows after the hold is up: a
 * worker that answers with it sees the hold. */
void nic_pause(struct softnic *nic) {
    if (nic->gpu) {
        gpu_pause(nic);
        return;
    }
    __atomic_add_fetch(&nic->hold, 1, __ATOMIC_SEQ_CST);
    uint32_t seq = __atomic_add_fetch(&nic->hold_seq, 1, __ATOMIC_SEQ_CST);
    for (uint32_t i = 0; i < nic->worker_count; i++)
        for (uint32_t polls = 0;
             nic->workers[i].started && __atomic_load_n(&nic->workers[i].held, __ATOMIC_ACQUIRE) != seq;
             polls++)
            spin_pause(polls);
}

void nic_unpause(struct softnic *nic) {
    if (nic->gpu)
        gpu_unpause(nic);
    else
        __atomic_sub_fetch(&nic->hold, 1, __ATOMIC_SEQ_CST);
}

int softnic_start(struct softnic *nic) {
    if (nic->clock != SOFTNIC_REAL)
        return softnic_fail(-EINVAL, "start: a NIC in virtual time is driven by softnic_advance()");
    if (nic->running)
        return softnic_fail(-EALREADY, "start: the workers run already");
    return nic->gpu ? gpu_start(nic) : workers_start(nic);
}

void softnic_hold(struct softnic *nic) {
    if (nic->held_by_user)
        return;
    nic->held_by_user = 1;
    nic_pause(nic);
}

void softnic_resume(struct softnic *nic) {
    if (!nic->held_by_user)
        return;
    nic->held_by_user = 0;
    nic_unpause(nic);
}

/* One pass can make work for another (a WAIT that its CQE releases), so passes go on until one finds nothing;
 * then time jumps to the next deadline. */
void softnic_advance(struct softnic *nic, uint64_t ns) {
    if (nic->clock != SOFTNIC_VIRTUAL)
        return;
    uint64_t end = nic->now_ps + ns * PS_PER_NS;
    if (nic->gpu) {
        gpu_advance(nic, end);
        return;
    }
    struct worker *w = &nic->workers[0];
    for (;;) {
        while (worker_pass(w))
            ;
        uint64_t next = worker_next_ps(w);
        if (next > end || next <= nic->now_ps)
            break;
        nic->now_ps = next;
    }
    nic->now_ps = end;
}

uint64_t softnic_due(const struct softnic *nic) {
    uint64_t next = worker_next_ps(&nic->workers[0]);
    if (next == UINT64_MAX)
        return next;
    return next <= nic->now_ps ? 0 : (next - nic->now_ps + PS_PER_NS - 1) / PS_PER_NS;
}
