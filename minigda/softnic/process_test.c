/* Real time: worker threads, two processes, bytes and atomics between them, control calls meanwhile. Nothing
 * here depends on how long something takes; every wait has a deadline that only a hang can reach. */
#define _GNU_SOURCE
#include "internal.h"
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* Waits for a condition; a hang fails the test instead of stopping it. */
#define AWAIT(condition)                                                                                     \
    do {                                                                                                     \
        double until_ = seconds() + 60;                                                                      \
        while (!(condition) && seconds() < until_)                                                           \
            sched_yield();                                                                                   \
        CHECK(condition);                                                                                    \
    } while (0)

static int shm_left(const char *job) {
    int n = 0;
    DIR *d = opendir("/dev/shm");
    for (struct dirent *e; d && (e = readdir(d));)
        n += strncmp(e->d_name, job, strlen(job)) == 0;
    closedir(d);
    return n;
}

/* A rank that failed half way has left its shared memory. */
static void shm_clean(const char *job) {
    char name[300];
    DIR *d = opendir("/dev/shm");
    for (struct dirent *e; d && (e = readdir(d));)
        if (strncmp(e->d_name, job, strlen(job)) == 0) {
            snprintf(name, sizeof name, "/%s", e->d_name);
            shm_unlink(name);
        }
    closedir(d);
}

static struct rig rig_real(uint32_t workers, enum softnic_watch watch, struct softnic_profile profile) {
    struct rig r = rig_make(
        (struct softnic_attr){.clock = SOFTNIC_REAL, .watch = watch, .workers = workers, .profile = profile});
    MUST(softnic_start(r.nic[0]));
    MUST(softnic_start(r.nic[1]));
    return r;
}

static void test_threads(uint32_t workers, enum softnic_watch watch, struct softnic_profile profile) {
    enum { QPS = 5, ROUNDS = 200 };
    struct rig r = rig_real(workers, watch, profile);
    struct rig_qp *q[QPS];
    for (int i = 0; i < QPS; i++)
        q[i] = i ? rig_qp_add(r.nic[0], i % 2, 0, 0) : r.qp;
    for (uint32_t round = 0; round < ROUNDS && !test_failures; round++) {
        for (int i = 0; i < QPS; i++) {
            uint64_t v = round * 1000 + (uint32_t)i;
            uint32_t to = i ? i % 2 : 1;
            rig_write_inline(q[i], r.mem[to] + i * 8, r.key[to], &v, 8, 0);
            rig_fetch_add(q[i], r.mem[to] + 1024, r.key[to], 1, r.mem[0] + 2048 + i * 8, r.key[0], 8);
            rig_ring(q[i]);
        }
        for (int i = 0; i < QPS; i++) {
            uint64_t got;
            uint32_t to = i ? i % 2 : 1;
            AWAIT(rig_cqe_there(q[i], round));
            memcpy(&got, r.mem[to] + i * 8, 8); /* visible before its CQE */
            CHECK_EQ(got, round * 1000 + (uint32_t)i);
        }
    }
    uint64_t sum[2];
    for (int i = 0; i < 2; i++)
        memcpy(&sum[i], r.mem[i] + 1024, 8);
    CHECK_EQ(sum[0], 2 * ROUNDS); /* QPs 2 and 4 */
    CHECK_EQ(sum[1], 3 * ROUNDS);
    struct softnic_counters n;
    MUST(softnic_counters_get(r.nic[0], SOFTNIC_ALL_QPS, &n));
    CHECK_EQ(n.wqes, 2 * QPS * ROUNDS);
    CHECK_EQ(n.cqes, QPS * ROUNDS);
    CHECK_EQ(n.qps_used, QPS);
    rig_free(&r);
    for (int i = 1; i < QPS; i++)
        free(q[i]);
}

/* Held: nothing moves however long one waits. Resumed: all of it. */
static void test_hold(void) {
    struct rig r = rig_real(2, SOFTNIC_WATCH_DBR, (struct softnic_profile){.latency_ns = 0});
    for (uint32_t i = 0; i < 100; i++) {
        softnic_hold(r.nic[0]);
        rig_nop(r.qp, 8);
        rig_ring(r.qp);
        for (int k = 0; k < 20; k++)
            sched_yield();
        CHECK(!rig_cqe_there(r.qp, i));
        softnic_resume(r.nic[0]);
        if (i % 2)
            AWAIT(rig_cqe_there(r.qp, i));
        else
            softnic_hold(r.nic[0]); /* at once again: no stale answer of the hold before */
        softnic_resume(r.nic[0]);
        AWAIT(rig_cqe_there(r.qp, i));
    }
    rig_free(&r);
}

/* Hold after hold with nothing between: when it returns every worker is out of its pass and stays out, and has not
 * answered with what it said for the hold before. */
static void test_hold_again(void) {
    enum { WORKERS = 3 };
    struct rig r = rig_real(WORKERS, SOFTNIC_WATCH_DBR, (struct softnic_profile){.latency_ns = 0});
    const struct shm_worker *w = r.nic[0]->shm->worker;
    for (int i = 0; i < 20000 && !test_failures; i++) {
        uint64_t epoch[WORKERS];
        softnic_hold(r.nic[0]);
        for (int k = 0; k < WORKERS; k++)
            epoch[k] = __atomic_load_n(&w[k].epoch, __ATOMIC_ACQUIRE);
        for (int spins = 0; spins < i % 64; spins++)
            __atomic_thread_fence(__ATOMIC_SEQ_CST);
        if (i % 256 == 0)
            sched_yield();
        for (int k = 0; k < WORKERS; k++) {
            CHECK_EQ(epoch[k] % 2, 0);
            CHECK_EQ(__atomic_load_n(&w[k].epoch, __ATOMIC_ACQUIRE), epoch[k]);
        }
        softnic_resume(r.nic[0]);
    }
    rig_free(&r);
}

/* Deregistration while a queue is hammering the region: after it has returned, no byte of it changes. */
static void test_deregister_running(void) {
    struct rig r = rig_real(1, SOFTNIC_WATCH_DBR, (struct softnic_profile){.latency_ns = 0});
    for (int lap = 0; lap < 50 && !test_failures; lap++) {
        struct rig_qp *q = rig_qp_add(r.nic[0], 1, 0, 0);
        void *mem;
        uint32_t key;
        MUST(softnic_mem_alloc(r.nic[1], 4096, &mem));
        MUST(softnic_mr_register(r.nic[1], mem, 4096, SOFTNIC_REMOTE_WRITE, &key));
        for (uint32_t i = 0; i < RIG_DEPTH; i++)
            rig_write(q, mem, key, r.mem[0], r.key[0], 4096, 8);
        rig_ring(q);
        AWAIT(rig_cqe_there(q, 0));
        MUST(softnic_mr_deregister(r.nic[1], key));
        memset(mem, 0x77, 4096);
        for (uint32_t i = 1; i < RIG_DEPTH; i++)
            AWAIT(rig_cqe_there(q, i));
        for (int i = 0; i < 4096; i++)
            CHECK_EQ(((uint8_t *)mem)[i], 0x77);
        MUST(softnic_mem_free(r.nic[1], mem)); /* a late store would fault */
        /* The QP's memory must outlive the NIC: keep it on a list. */
        struct softnic_counters n;
        MUST(softnic_counters_get(r.nic[0], q->qpn, &n));
        CHECK(n.wqes >= 1 && n.cqes == RIG_DEPTH);
        static struct rig_qp *kept[50];
        kept[lap] = q;
        if (lap == 49) {
            softnic_destroy(r.nic[0]);
            r.nic[0] = NULL;
            for (int k = 0; k < 50; k++)
                free(kept[k]);
        }
    }
    rig_free(&r);
}

/* A polled 8-byte word changes in one piece, by inline and by pointer, whatever writes it. */
static void test_no_tear(void) {
    struct rig r = rig_real(1, SOFTNIC_WATCH_DBR, (struct softnic_profile){.latency_ns = 0});
    struct rig_qp *q = r.qp;
    volatile uint64_t *word = (uint64_t *)(void *)r.mem[1];
    for (uint32_t i = 0; i < 2000 && !test_failures; i += 8) {
        for (uint32_t k = 0; k < 8; k++) {
            uint64_t v = (i + k) % 2 ? 0x0101010101010101ull * ((i + k) % 251) : ~0ull;
            memcpy(r.mem[0] + k * 8, &v, 8);
            if (k % 2)
                rig_write_inline(q, r.mem[1], r.key[1], &v, 8, 8);
            else
                rig_write(q, r.mem[1], r.key[1], r.mem[0] + k * 8, r.key[0], 8, 8);
        }
        rig_ring(q);
        double until = seconds() + 60;
        while (!rig_cqe_there(q, i + 7) && seconds() < until) {
            uint64_t seen = *word;
            CHECK(seen == (seen & 0xff) * 0x0101010101010101ull);
        }
        CHECK(rig_cqe_there(q, i + 7));
    }
    rig_free(&r);
}

/* ---- two processes ---- */

/* What the processes tell each other; in anonymous shared memory made before the fork. */
struct meeting {
    uint32_t ready[3], key[3], done[3];
    uintptr_t mem[3];
};

enum { RANKS = 3, LAPS = 300 };

/* Pages of a mapping that an access would still fault on. */
static size_t pages_absent(const void *base, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), absent = 0;
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    for (size_t i = 0; fd >= 0 && i < bytes / page; i++) {
        uint64_t entry = 0;
        off_t at = (off_t)(((uintptr_t)base / page + i) * sizeof entry);
        absent += pread(fd, &entry, sizeof entry, at) != sizeof entry || entry >> 63 == 0;
    }
    close(fd);
    return fd < 0 ? bytes / page : absent;
}

/* Each rank writes a pattern and then signals to both others, waits for theirs, checks; and all add to one word
 * of rank 0. */
static int rank_main(uint32_t me, const char *job, struct meeting *m) {
    struct softnic *nic;
    struct softnic_attr attr = {
        .job = job, .node = me, .nodes = RANKS, .watch = SOFTNIC_WATCH_DBR, .workers = 1 + me % 2};
    uint8_t *mem;
    MUST(softnic_create(&attr, &nic));
    MUST(softnic_mem_alloc(nic, RIG_BYTES, (void **)&mem));
    MUST(softnic_mr_register(nic, mem, RIG_BYTES, ALL_RIGHTS, &m->key[me]));
    m->mem[me] = (uintptr_t)mem;
    __atomic_store_n(&m->ready[me], 1, __ATOMIC_RELEASE);
    for (int i = 0; i < RANKS; i++)
        AWAIT(__atomic_load_n(&m->ready[i], __ATOMIC_ACQUIRE));
    MUST(softnic_start(nic));
    struct rig_qp *q[RANKS];
    for (uint32_t to = 0; to < RANKS; to++)
        q[to] = rig_qp_add(nic, to, 0, 0);
    /* Layout: a 1 KiB slot per sender at 4096, a signal per sender at 0, the common word at 2048. */
    uint32_t cqes = 0;
    for (uint64_t lap = 1; lap <= LAPS && !test_failures; lap++) {
        uint8_t *source = mem + 32768;
        for (uint32_t i = 0; i < 1024; i++)
            source[i] = (uint8_t)(lap * 31 + me * 7 + i);
        for (uint32_t to = 0; to < RANKS; to++) {
            uint8_t *there = (uint8_t *)m->mem[to];
            rig_write(q[to], there + 4096 + me * 1024, m->key[to], source, m->key[me], 1024, 0);
            rig_fetch_add(q[to], there + me * 8, m->key[to], 1, mem + 40000, m->key[me], 0);
            rig_fetch_add(q[to], (uint8_t *)m->mem[0] + 2048, to == 0 ? m->key[0] : 0, 3, mem + 40008,
                          m->key[me], 8);
            if (to != 0)
                q[to]->posted--; /* only rank 0 has the common word: take it back */
            rig_nop(q[to], 8);
            rig_ring(q[to]);
        }
        for (uint32_t from = 0; from < RANKS; from++) {
            AWAIT(__atomic_load_n((uint64_t *)(void *)(mem + from * 8), __ATOMIC_ACQUIRE) >= lap);
            for (uint32_t i = 0; i < 1024; i++)
                CHECK_EQ(mem[4096 + from * 1024 + i], (uint8_t)(lap * 31 + from * 7 + i));
        }
        for (uint32_t to = 0; to < RANKS; to++) /* rank 0's queue: the atomic and the NOP are signaled */
            AWAIT(rig_cqe_there(q[to], to == 0 ? 2 * cqes + 1 : cqes));
        cqes++;
        /* The slots are read; everybody has to be here before they are written again. */
        __atomic_store_n(&m->done[me], (uint32_t)lap, __ATOMIC_RELEASE);
        for (int i = 0; i < RANKS; i++)
            AWAIT(__atomic_load_n(&m->done[i], __ATOMIC_ACQUIRE) >= lap);
    }
    for (uint32_t to = 0; to < RANKS; to++) /* what was never written to as well */
        for (const struct mapping *map = nic->peers[to].maps; map; map = map->next)
            CHECK_EQ(pages_absent(map->base, map->bytes), 0);
    if (me == 0) {
        uint64_t sum;
        memcpy(&sum, mem + 2048, 8);
        CHECK_EQ(sum, 3ull * RANKS * LAPS);
    }
    /* Private memory of this process is no target for the others, and cannot become one. */
    uint32_t key;
    CHECK_EQ(softnic_mr_register(nic, q[0], 64, SOFTNIC_REMOTE_WRITE, &key), -EFAULT);
    softnic_destroy(nic);
    for (uint32_t to = 0; to < RANKS; to++)
        free(q[to]);
    return test_failures != 0;
}

static void test_processes(void) {
    struct meeting *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char job[64];
    strcpy(job, rig_job());
    pid_t pid[RANKS];
    for (uint32_t i = 0; i < RANKS; i++) {
        pid[i] = fork();
        if (pid[i] == 0)
            exit(rank_main(i, job, m));
    }
    for (int i = 0; i < RANKS; i++) {
        int status = -1;
        waitpid(pid[i], &status, 0);
        CHECK_EQ(status, 0);
    }
    CHECK_EQ(shm_left(job), 0);
    shm_clean(job);
    munmap(m, sizeof *m);
}

/* A fork inherits the process token, not the address space's identity: a child's private memory is not reached
 * through the parent's table. And a peer killed in mid-flight holds nothing up. */
static void test_killed_peer(void) {
    struct meeting *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char job[64], name[128];
    strcpy(job, rig_job());
    struct softnic_attr attr = {.job = job, .node = 0, .nodes = 2, .watch = SOFTNIC_WATCH_DBR};
    struct softnic *nic;
    uint8_t *mem;
    uint32_t key;
    MUST(softnic_create(&attr, &nic));
    MUST(softnic_mem_alloc(nic, RIG_BYTES, (void **)&mem));
    MUST(softnic_mr_register(nic, mem, RIG_BYTES, ALL_RIGHTS, &key));
    pid_t pid = fork();
    if (pid == 0) {
        struct softnic *child;
        void *theirs;
        attr.node = 1;
        MUST(softnic_create(&attr, &child));
        MUST(softnic_mem_alloc(child, RIG_BYTES, &theirs));
        MUST(softnic_mr_register(child, theirs, RIG_BYTES, ALL_RIGHTS, &m->key[1]));
        m->mem[1] = (uintptr_t)theirs;
        MUST(softnic_start(child));
        __atomic_store_n(&m->ready[1], 1, __ATOMIC_RELEASE);
        for (;;)
            pause();
    }
    AWAIT(__atomic_load_n(&m->ready[1], __ATOMIC_ACQUIRE));
    MUST(softnic_start(nic));
    struct rig_qp *q = rig_qp_add(nic, 1, 0, 0);
    rig_write_inline(q, (void *)m->mem[1], m->key[1], "1", 1, 8);
    rig_ring(q);
    AWAIT(rig_cqe_there(q, 0));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    MUST(softnic_mr_deregister(nic, key)); /* does not wait for the dead */
    softnic_destroy(nic);
    for (int i = 0; i < 2; i++) { /* what a killed process cannot clean up, its harness does */
        snprintf(name, sizeof name, i ? "/%s-nic1-mem1" : "/%s-nic1", job);
        CHECK_EQ(shm_unlink(name), 0);
    }
    CHECK_EQ(shm_left(job), 0);
    free(q);
    munmap(m, sizeof *m);
}

int main(void) {
    struct softnic_profile none = {.latency_ns = 0}, paced = {.latency_ns = 20000, .message_rate = 1e6};
    test_threads(1, SOFTNIC_WATCH_DBR, none);
    test_threads(3, SOFTNIC_WATCH_DBR, none);
    test_threads(2, SOFTNIC_WATCH_BELL, none);
    test_threads(2, SOFTNIC_WATCH_DBR, paced);
    test_hold();
    test_hold_again();
    test_deregister_running();
    test_no_tear();
    test_processes();
    test_killed_peer();
    return test_end("process_test");
}
