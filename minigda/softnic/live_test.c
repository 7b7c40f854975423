/* The engine at work while a driver posts: requests of all kinds from a seed on several queues, rings at any time, waits
 * only for room. Everything arrives, once. On the GPU engine's device code its kernel comes on demand or stays. */
#include "test.h"

#include <time.h>

enum { QPS = 3, STEPS = 1500, WIDEST = 2 };

static uint64_t state;
static uint32_t draw(uint32_t below) { /* splitmix64 */
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (uint32_t)(z ^ z >> 31) % below;
}

static void nap_us(long us) {
    struct timespec ts = {0, us * 1000};
    nanosleep(&ts, NULL);
}

struct live {
    struct softnic *nic[2];
    uint8_t *mem[2];
    uint32_t key[2];
    struct rig_qp *qp[QPS];
    uint64_t *bell;
    uint32_t done[QPS], cqes[QPS]; /* done: blocks known to be free again */
    int collapsed;
};

static struct live live_make(uint32_t warps, int collapsed) {
    struct live l = {.collapsed = collapsed};
    struct softnic_attr attr = bed_attr((struct softnic_attr){.watch = SOFTNIC_WATCH_DBR, .nodes = 2});
    attr.job = rig_job();
    attr.warps = warps;
    if (BED_GPU) {
        attr.presence = SOFTNIC_DEMAND;
        attr.idle_us = 50;
    }
    for (uint32_t i = 0; i < 2; i++) {
        attr.node = i;
        MUST(softnic_create(&attr, &l.nic[i]));
        l.mem[i] = bed_memory(l.nic[i], RIG_BYTES);
        MUST(softnic_mr_register(l.nic[i], l.mem[i], RIG_BYTES, ALL_RIGHTS, &l.key[i]));
    }
    void *bells;
    MUST(softnic_mem_alloc(l.nic[0], 4096, &bells));
    l.bell = bells;
    for (int i = 0; i < QPS; i++) {
        struct rig_qp *q = l.qp[i] = bed_alloc(sizeof *q);
        struct softnic_cq_attr cq = {q->cqe, collapsed ? 1 : RIG_CQ_DEPTH, collapsed, NULL};
        MUST(softnic_cq_create(l.nic[0], &cq, &q->cqn));
        struct softnic_qp_attr qp = {q->sq, RIG_DEPTH, q->dbr + 4, &l.bell[8 * i], q->cqn};
        MUST(softnic_qp_create(l.nic[0], &qp, &q->qpn));
        MUST(softnic_qp_connect(l.nic[0], q->qpn, 1, 0));
    }
    MUST(softnic_peers_map(l.nic[0]));
    MUST(softnic_start(l.nic[0]));
    return l;
}

static void live_ring(struct live *l, int k) {
    rig_ring(l->qp[k]);
    __atomic_store_n(&l->bell[8 * k], l->qp[k]->bell, __ATOMIC_RELEASE);
}

/* Takes in what the CQ says; a CQE names its WQE's first block, so that the last one's others are still counted as used. */
static void live_poll(struct live *l, int k) {
    const struct rig_qp *q = l->qp[k];
    const uint8_t *cqe = l->collapsed ? q->cqe : rig_cqe(q, l->cqes[k]);
    if (l->collapsed ? __atomic_load_n(cqe + 63, __ATOMIC_ACQUIRE) >> 4 == 0xf
                     : !rig_cqe_there(q, l->cqes[k]))
        return;
    CHECK_EQ(cqe[63] >> 4, 0); /* no error */
    const uint16_t ahead = (uint16_t)(get16(cqe + 60) + 1 - l->done[k]);
    if (ahead <= RIG_DEPTH)
        l->done[k] += ahead;
    l->cqes[k]++;
}

static int live_room(struct live *l, int k) {
    struct rig_qp *q = l->qp[k];
    for (uint32_t tries = 0; q->posted - l->done[k] > RIG_DEPTH - 2 * WIDEST; tries++) {
        if (tries == 0)
            live_ring(l, k);
        live_poll(l, k);
        if (tries > 1000)
            nap_us(50);
        if (tries > 200000 || test_failures)
            return 0;
    }
    return 1;
}

/* Posts one of any kind; returns what it adds to the word that all atomics go to. */
static uint32_t live_post(struct live *l, int k, uint64_t value) {
    struct rig_qp *q = l->qp[k];
    uint8_t *here = l->mem[0] + 16384 * (k + 1), *there = l->mem[1] + 16384 * (k + 1), bytes[40];
    switch (draw(8)) {
    case 0:
        rig_fetch_add(q, l->mem[1] + 8, l->key[1], 1 + k, here, l->key[0], 8);
        return 1 + (uint32_t)k;
    case 1:
        rig_nop(q, 8);
        return 0;
    case 2:
        rig_write(q, there + 8192, l->key[1], l->mem[0] + draw(4096), l->key[0], 1 + draw(3000), 8);
        return 0;
    case 3: /* two blocks */
        memset(bytes, (int)value, sizeof bytes);
        rig_write_inline(q, there + 4096, l->key[1], bytes, sizeof bytes, 8);
        return 0;
    case 4:
        rig_read(q, there + 8192, l->key[1], here + 4096, l->key[0], 1 + draw(2000), 8);
        return 0;
    default:
        rig_write_inline(q, there + 8 * draw(64), l->key[1], &value, 8, 8);
        return 0;
    }
}

static void test_live(uint32_t warps, int collapsed, int stay) {
    struct live l = live_make(warps, collapsed);
    uint64_t sum = 0;
    if (stay)
        MUST(softnic_stay(l.nic[0], 1));
    for (uint32_t step = 0; step < STEPS && !test_failures; step++) {
        const int k = (int)draw(QPS);
        CHECK(live_room(&l, k));
        sum += live_post(&l, k, step);
        if (draw(3))
            live_ring(&l, k);
        if (draw(300) == 0)
            nap_us(draw(200));
    }
    /* The last of each queue, behind all its others: then everything is there. */
    for (int k = 0; k < QPS && !test_failures; k++) {
        CHECK(live_room(&l, k));
        const uint64_t last = 0xabcd0000u + (uint64_t)k;
        rig_write_inline(l.qp[k], l.mem[1] + 16 + 8 * k, l.key[1], &last, 8, 8);
        live_ring(&l, k);
        const uint64_t *word = (const uint64_t *)(const void *)(l.mem[1] + 16 + 8 * k);
        for (int i = 0; i < 100000 && __atomic_load_n(word, __ATOMIC_ACQUIRE) != last; i++)
            nap_us(100);
        CHECK_EQ(__atomic_load_n(word, __ATOMIC_ACQUIRE), last);
    }
    CHECK_EQ(*(uint64_t *)(void *)(l.mem[1] + 8), sum);
    struct softnic_counters n;
    MUST(softnic_counters_get(l.nic[0], SOFTNIC_ALL_QPS, &n));
    CHECK_EQ(n.wqes, STEPS + QPS);
    CHECK_EQ(n.cqes, STEPS + QPS);
    CHECK_EQ(n.error_cqes, 0);
    softnic_destroy(l.nic[0]);
    softnic_destroy(l.nic[1]);
    for (int k = 0; k < QPS; k++)
        bed_free(l.qp[k]);
}

static void tests(void) {
    for (int collapsed = 0; collapsed < 2; collapsed++) {
        state = 7;
        test_live(1, collapsed, 0);
        if (BED_GPU) {
            test_live(2, collapsed, 1);
            test_live(2, collapsed, 0);
        }
    }
}

int main(void) { return bed_run("live_test", &test_failures, tests); }
