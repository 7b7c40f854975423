/* The GPU engine on demand: when its kernel is called, what it finds, and that no request is lost between two of them.
 * In virtual time each step is ours; in real time keeper and kernel are threads. Other engines only refuse. */
#include "test.h"

#include <errno.h>
#include <time.h>

static void refused(struct softnic_attr attr, int status, const char *text) {
    struct softnic *nic;
    attr.job = rig_job();
    attr.nodes = 1;
    CHECK_EQ(softnic_create(&attr, &nic), status);
    CHECK(nic == NULL);
    CHECK(strstr(softnic_error(), text) != NULL);
}

static void test_attributes(void) {
    const struct softnic_attr gpu = bed_attr((struct softnic_attr){.watch = SOFTNIC_WATCH_DBR});
    struct softnic_attr a = gpu;
    a.idle_us = 5;
    refused(a, -EINVAL, "idle_us 5");
    a.presence = (enum softnic_presence)7;
    refused(a, -EINVAL, "presence 7");
    a.presence = SOFTNIC_DEMAND;
    a.engine = SOFTNIC_ENGINE_CPU;
    refused(a, -EINVAL, "CPU engine");
    a.engine = SOFTNIC_ENGINE_GPU;
    a.watch = SOFTNIC_WATCH_BELL;
    refused(a, -EINVAL, "want watch DBR");
    a.watch = SOFTNIC_WATCH_DBR;
    a.idle_us = 1000001;
    refused(a, -EINVAL, "1000001");
    struct softnic *nic;
    a = gpu;
    a.job = rig_job();
    a.nodes = 1;
    MUST(softnic_create(&a, &nic));
    CHECK_EQ(softnic_stay(nic, 1), -EINVAL);
    softnic_destroy(nic);
}

#if defined(SOFTNIC_TEST_GPU)

extern void (*softnic_warp_kernel_ended)(void); /* test_warp.cc */

/* Two NICs of one job, the second one quiet; QPs of the first, whose doorbells lie in host memory. */
enum { QPS = 3 };
struct demand {
    struct softnic *nic[2];
    uint8_t *mem[2];
    uint32_t key[2];
    struct rig_qp *qp[QPS];
    uint64_t *bell; /* one cache line a QP, or one word for all */
    int shared;
};

static struct demand demand_make(struct softnic_attr attr, int shared) {
    struct demand d = {.shared = shared};
    attr = bed_attr(attr);
    attr.job = rig_job();
    attr.nodes = 2;
    attr.watch = SOFTNIC_WATCH_DBR;
    attr.presence = SOFTNIC_DEMAND;
    for (uint32_t i = 0; i < 2; i++) {
        attr.node = i;
        MUST(softnic_create(&attr, &d.nic[i]));
        d.mem[i] = bed_memory(d.nic[i], RIG_BYTES);
        MUST(softnic_mr_register(d.nic[i], d.mem[i], RIG_BYTES, ALL_RIGHTS, &d.key[i]));
    }
    void *bells;
    MUST(softnic_mem_alloc(d.nic[0], 4096, &bells));
    d.bell = bells;
    for (int i = 0; i < QPS; i++) {
        struct rig_qp *q = d.qp[i] = bed_alloc(sizeof *q);
        struct softnic_cq_attr cq = {q->cqe, RIG_CQ_DEPTH, 0, NULL};
        MUST(softnic_cq_create(d.nic[0], &cq, &q->cqn));
        struct softnic_qp_attr qp = {q->sq, RIG_DEPTH, q->dbr + 4, &d.bell[shared ? 0 : 8 * i], q->cqn};
        MUST(softnic_qp_create(d.nic[0], &qp, &q->qpn));
    }
    return d;
}
static void demand_connect(struct demand *d) {
    for (int i = 0; i < QPS; i++)
        MUST(softnic_qp_connect(d->nic[0], d->qp[i]->qpn, 1, 0));
    MUST(softnic_peers_map(d->nic[0]));
}
static struct demand demand_virtual(int shared) {
    struct demand d = demand_make((struct softnic_attr){.clock = SOFTNIC_VIRTUAL}, shared);
    demand_connect(&d);
    return d;
}
static void demand_free(struct demand *d) {
    softnic_destroy(d->nic[0]);
    softnic_destroy(d->nic[1]);
    for (int i = 0; i < QPS; i++)
        bed_free(d->qp[i]);
}

/* Writes `value` to word `at` of the peer; announced in the record alone. */
static void announce(struct demand *d, int qp, uint32_t at, uint64_t value) {
    struct rig_qp *q = d->qp[qp];
    rig_write_inline(q, d->mem[1] + 8 * at, d->key[1], &value, 8, 8);
    rig_ring(q); /* its own word, which nobody watches */
}
static void ring(struct demand *d, int qp) {
    struct rig_qp *q = d->qp[qp];
    __atomic_store_n(&d->bell[d->shared ? 0 : 8 * qp], q->bell, __ATOMIC_RELEASE);
}
static void post(struct demand *d, int qp, uint32_t at, uint64_t value) {
    announce(d, qp, at, value);
    ring(d, qp);
}
static uint64_t word(const struct demand *d, uint32_t at) {
    return __atomic_load_n((const uint64_t *)(const void *)(d->mem[1] + 8 * at), __ATOMIC_ACQUIRE);
}

static void test_called_by_doorbell(void) {
    struct demand d = demand_virtual(0);
    softnic_advance(d.nic[0], 1000);
    CHECK_EQ(softnic_launches(d.nic[0]), 0); /* nothing rang: not even for being connected */
    announce(&d, 0, 0, 11);
    softnic_advance(d.nic[0], 1000);
    CHECK_EQ(softnic_launches(d.nic[0]), 0); /* a record alone calls nobody */
    CHECK_EQ(word(&d, 0), 0);
    post(&d, 1, 1, 22); /* another queue's doorbell does, and all records are looked at */
    softnic_advance(d.nic[0], 1000);
    CHECK_EQ(softnic_launches(d.nic[0]), 1);
    CHECK_EQ(word(&d, 0), 11);
    CHECK_EQ(word(&d, 1), 22);
    CHECK_OK(d.qp[0], 0, 0x08, 0);
    CHECK_OK(d.qp[1], 0, 0x08, 0);
    CHECK_EQ(softnic_now(d.nic[0]), 3000);
    for (int i = 0; i < 5; i++)
        softnic_advance(d.nic[0], 1000);
    CHECK(softnic_launches(d.nic[0]) <= 2); /* progress was made: perhaps one more look, then none */
    demand_free(&d);
}

/* A doorbell that rings when the kernel has looked at everything for the last time. */
static struct demand *late;
static int late_left;
static void ring_late(void) {
    if (late_left == 0)
        return;
    late_left--;
    post(late, late_left % QPS, 10 + (uint32_t)late_left, 100 + (uint64_t)late_left);
}
static void test_rung_at_the_end(void) {
    for (int shared = 0; shared < 2; shared++) {
        struct demand d = demand_virtual(shared);
        late = &d;
        late_left = 7;
        softnic_warp_kernel_ended = ring_late;
        post(&d, 0, 0, 1);
        softnic_advance(d.nic[0], 1000);
        softnic_warp_kernel_ended = NULL;
        CHECK_EQ(late_left, 0);
        for (uint32_t i = 0; i < 7; i++)
            CHECK_EQ(word(&d, 10 + i), 100 + i);
        struct softnic_counters n;
        MUST(softnic_counters_get(d.nic[0], SOFTNIC_ALL_QPS, &n));
        CHECK_EQ(n.wqes, 8);
        CHECK_EQ(n.cqes, 8);
        demand_free(&d);
    }
}

/* Of two rings on one word only the second can be seen. */
static void test_shared_word(void) {
    struct demand d = demand_virtual(1);
    post(&d, 0, 0, 5);
    post(&d, 1, 1, 6);
    post(&d, 2, 2, 7);
    softnic_advance(d.nic[0], 1000);
    for (uint32_t i = 0; i < QPS; i++)
        CHECK_EQ(word(&d, i), 5 + i);
    demand_free(&d);
}

static void test_rung_before_ready(void) {
    struct demand d = demand_make((struct softnic_attr){.clock = SOFTNIC_VIRTUAL}, 0);
    post(&d, 2, 0, 9);
    softnic_advance(d.nic[0], 1000);
    CHECK_EQ(word(&d, 0), 0);
    demand_connect(&d);
    softnic_advance(d.nic[0], 1000);
    CHECK_EQ(word(&d, 0), 9);
    demand_free(&d);
}

/* A WAIT on another queue's CQE holds its queue, not the device. */
static void test_wait(void) {
    struct demand d = demand_virtual(0);
    struct rig_qp *q = d.qp[1];
    rig_ctrl(q, 0x0f, 0, 2, 0);
    memset(rig_seg(q, 1), 0, 16);
    put32(rig_seg(q, 1) + 8, 0);
    put32(rig_seg(q, 1) + 12, d.qp[0]->cqn);
    rig_advance_index(q, 1);
    post(&d, 1, 1, 3);
    for (int i = 0; i < 5; i++)
        softnic_advance(d.nic[0], 1000);
    CHECK_EQ(word(&d, 1), 0);
    const uint64_t before = softnic_launches(d.nic[0]);
    CHECK(before <= 3);
    for (int i = 0; i < 5; i++)
        softnic_advance(d.nic[0], 1000);
    CHECK_EQ(softnic_launches(d.nic[0]), before);
    post(&d, 0, 0, 2);
    softnic_advance(d.nic[0], 1000);
    softnic_advance(d.nic[0], 1000);
    CHECK_EQ(word(&d, 0), 2);
    CHECK_EQ(word(&d, 1), 3);
    CHECK_OK(d.qp[1], 0, 0x08, 1);
    demand_free(&d);
}

/* A request under way is waited for: its CQE comes without another ring. */
static void test_delay(void) {
    struct softnic_attr attr = {.clock = SOFTNIC_VIRTUAL, .profile = {.latency_ns = 50000}};
    struct demand d = demand_make(attr, 0);
    demand_connect(&d);
    post(&d, 0, 0, 4);
    softnic_advance(d.nic[0], 10000);
    CHECK_EQ(word(&d, 0), 0);
    CHECK(!rig_cqe_there(d.qp[0], 0));
    softnic_advance(d.nic[0], 30000);
    CHECK_EQ(word(&d, 0), 4);
    CHECK(!rig_cqe_there(d.qp[0], 0));
    softnic_advance(d.nic[0], 20000);
    CHECK_OK(d.qp[0], 0, 0x08, 0);
    demand_free(&d);
}

static void test_doorbell_unseen(void) {
    struct demand d = demand_virtual(0);
    struct rig_qp *q = bed_alloc(sizeof *q);
    struct softnic_qp_attr attr = {q->sq, RIG_DEPTH, q->dbr + 4, &q->bell, d.qp[0]->cqn};
    uint32_t qpn;
    CHECK_EQ(softnic_qp_create(d.nic[0], &attr, &qpn), -EINVAL);
    CHECK(strstr(softnic_error(), "not in host memory") != NULL);
    attr.doorbell = NULL;
    CHECK_EQ(softnic_qp_create(d.nic[0], &attr, &qpn), -EINVAL);
    CHECK(strstr(softnic_error(), "no doorbell") != NULL);
    bed_free(q);
    demand_free(&d);
}

/* ---- real time ---- */

static uint32_t ended;
static void count_ended(void) { __atomic_add_fetch(&ended, 1, __ATOMIC_ACQ_REL); }

static void nap_us(long us) {
    struct timespec ts = {0, us * 1000};
    nanosleep(&ts, NULL);
}
static int await_word(const struct demand *d, uint32_t at, uint64_t value) {
    for (int i = 0; i < 100000; i++) {
        if (word(d, at) == value)
            return 1;
        nap_us(100);
    }
    return 0;
}
/* All kernels but the first `more` have ended: the device is free but for those. */
static int await_away(const struct demand *d, uint32_t since, uint32_t stays) {
    for (int i = 0; i < 100000; i++) {
        if (__atomic_load_n(&ended, __ATOMIC_ACQUIRE) - since + stays == softnic_launches(d->nic[0]))
            return 1;
        nap_us(100);
    }
    return 0;
}

static struct demand demand_real(uint32_t idle_us, uint32_t *since) {
    struct demand d = demand_make((struct softnic_attr){.clock = SOFTNIC_REAL, .idle_us = idle_us}, 0);
    demand_connect(&d);
    *since = ended; /* kernels that warmed up */
    MUST(softnic_start(d.nic[0]));
    return d;
}

static void test_comes_and_goes(void) {
    uint32_t since;
    struct demand d = demand_real(200, &since);
    CHECK(await_away(&d, since, 0));
    for (uint32_t lap = 1; lap <= 4; lap++) {
        const uint64_t before = softnic_launches(d.nic[0]);
        post(&d, (int)(lap % QPS), 0, lap);
        CHECK(await_word(&d, 0, lap));
        CHECK(await_away(&d, since, 0));
        CHECK_EQ(softnic_launches(d.nic[0]), before + 1); /* one ring, one launch */
    }
    softnic_hold(d.nic[0]);
    post(&d, 0, 1, 77);
    nap_us(1000);
    CHECK_EQ(word(&d, 1), 0);
    softnic_resume(d.nic[0]);
    CHECK(await_word(&d, 1, 77));
    MUST(softnic_stay(d.nic[0], 1));
    const uint64_t there = softnic_launches(d.nic[0]);
    CHECK(await_away(&d, since, 1));
    for (uint32_t lap = 1; lap <= 4; lap++) {
        post(&d, 0, 2, lap);
        CHECK(await_word(&d, 2, lap));
        nap_us(500); /* more than idle_us */
    }
    CHECK_EQ(softnic_launches(d.nic[0]), there);
    MUST(softnic_stay(d.nic[0], 0));
    CHECK(await_away(&d, since, 0));
    CHECK_EQ(softnic_engine_error(d.nic[0]), 0);
    demand_free(&d);
}

/* Rings at the very time when it leaves, and control calls in between. */
static void test_nothing_lost(void) {
    uint32_t since, at[QPS] = {0};
    struct demand d = demand_real(1, &since);
    for (uint32_t lap = 1; lap <= 60 && !test_failures; lap++) {
        const int qp = (int)(lap % QPS);
        post(&d, qp, 8 + (uint32_t)qp, lap);
        at[qp] = lap;
        if (lap % 3 == 0)
            nap_us(lap * 7 % 120);
        if (lap % 7 == 0) {
            struct softnic_counters n;
            MUST(softnic_counters_get(d.nic[0], SOFTNIC_ALL_QPS, &n));
        }
        CHECK(await_word(&d, 8 + (uint32_t)qp, lap));
    }
    CHECK(await_away(&d, since, 0));
    struct softnic_counters n;
    MUST(softnic_counters_get(d.nic[0], SOFTNIC_ALL_QPS, &n));
    CHECK_EQ(n.wqes, 60);
    for (uint32_t i = 0; i < QPS; i++)
        CHECK_EQ(word(&d, 8 + i), at[i]);
    demand_free(&d);
}

/* What several warps do together: copies that all of them take chunks of, one long or several that follow each other, and a
 * counter that waits for another warp's queue. */
static void test_warps(uint32_t warps) {
    struct softnic_attr attr = {.clock = SOFTNIC_REAL, .warps = warps};
    struct demand d = demand_make(attr, 0);
    demand_connect(&d);
    MUST(softnic_start(d.nic[0]));
    struct rig_qp *q = d.qp[0], *companion = d.qp[1];
    for (uint32_t i = 0; i < RIG_BYTES; i++)
        d.mem[0][i] = (uint8_t)(i * 31 + (i >> 8));
    for (uint32_t lap = 1; lap <= 6 && !test_failures; lap++) {
        memset(d.mem[1], 0, RIG_BYTES);
        uint32_t from[8], to[8], bytes[8], n = lap % 2 ? 1 : 8;
        for (uint32_t k = 0; k < n; k++) { /* odd places and lengths too */
            bytes[k] = n == 1 ? 40000 + 777 * lap : 5000 + 111 * lap + k;
            from[k] = n == 1 ? lap : k * 6000 + k * lap;
            to[k] = 64 + (n == 1 ? 3 * lap : k * 6200);
            rig_write(q, d.mem[1] + to[k], d.key[1], d.mem[0] + from[k], d.key[0], bytes[k],
                      k + 1 == n ? 8 : 0);
        }
        rig_ctrl(companion, 0x0f, 0, 2, 0);
        memset(rig_seg(companion, 1), 0, 16);
        put32(rig_seg(companion, 1) + 8, lap - 1);
        put32(rig_seg(companion, 1) + 12, q->cqn);
        rig_advance_index(companion, 1);
        uint64_t done = lap;
        rig_write_inline(companion, d.mem[1], d.key[1], &done, 8, 8);
        rig_ring(companion);
        ring(&d, 1);
        rig_ring(q);
        ring(&d, 0);
        CHECK(await_word(&d, 0, lap));
        for (uint32_t k = 0; k < n; k++)
            CHECK(memcmp(d.mem[1] + to[k], d.mem[0] + from[k], bytes[k]) == 0);
        CHECK(d.mem[1][to[0] - 1] == 0 && d.mem[1][to[n - 1] + bytes[n - 1]] == 0);
    }
    CHECK_EQ(softnic_engine_error(d.nic[0]), 0);
    demand_free(&d);
}

static void tests(void) {
    test_attributes();
    test_called_by_doorbell();
    test_rung_at_the_end();
    test_shared_word();
    test_rung_before_ready();
    test_wait();
    test_delay();
    test_doorbell_unseen();
    softnic_warp_kernel_ended = count_ended;
    test_comes_and_goes();
    test_nothing_lost();
    softnic_warp_kernel_ended = NULL;
    test_warps(1);
    test_warps(3);
}
#else
static void tests(void) { test_attributes(); }
#endif

int main(void) { return bed_run("demand_test", &test_failures, tests); }
