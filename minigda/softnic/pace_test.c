/* Profiles in virtual time: every deadline to the nanosecond, from the arithmetic of pace.c's comment. */
#include "test.h"

static struct rig rig_paced(struct softnic_profile profile) {
    return rig_make(
        (struct softnic_attr){.clock = SOFTNIC_VIRTUAL, .watch = SOFTNIC_WATCH_DBR, .profile = profile});
}

/* Nanoseconds from now until CQE n is there. Moves the clock. */
static uint64_t until_cqe(struct rig *r, struct rig_qp *q, uint32_t n, uint64_t limit) {
    uint64_t t = 0;
    softnic_advance(r->nic[0], 0);
    for (; !rig_cqe_there(q, n) && t < limit; t++)
        softnic_advance(r->nic[0], 1);
    return t;
}

/* Latency alone: data halfway, CQE at the end, the same for all of a batch. */
static void test_latency(void) {
    struct rig r = rig_paced((struct softnic_profile){.latency_ns = 3300});
    struct rig_qp *q = r.qp;
    rig_write_inline(q, r.mem[1], r.key[1], "a", 1, 8);
    rig_write_inline(q, r.mem[1] + 1, r.key[1], "b", 1, 8);
    rig_ring(q);
    softnic_advance(r.nic[0], 1649);
    CHECK_EQ(r.mem[1][0], 0);
    softnic_advance(r.nic[0], 1);
    CHECK_EQ(r.mem[1][0], 'a');
    CHECK_EQ(r.mem[1][1], 'b');
    softnic_advance(r.nic[0], 1649);
    CHECK(!rig_cqe_there(q, 0));
    softnic_advance(r.nic[0], 1);
    CHECK_OK(q, 0, 0x08, 0);
    CHECK_OK(q, 1, 0x08, 1);
    CHECK_EQ(softnic_now(r.nic[0]), 3300);
    rig_free(&r);
}

/* A long jump sees the same as many short steps: CQEs carry their own time. */
static void test_jump(void) {
    struct rig r = rig_paced((struct softnic_profile){.latency_ns = 1000, .message_rate = 1e6});
    rig_nop(r.qp, 8);
    for (int i = 0; i < 5; i++)
        rig_write_inline(r.qp, r.mem[1], r.key[1], "a", 1, 8);
    rig_ring(r.qp);
    softnic_advance(r.nic[0], 1000000);
    for (uint32_t i = 0; i < 6; i++) {
        const uint8_t *stamp = rig_cqe(r.qp, i) + 48;
        CHECK_EQ(get32(stamp + 4), i == 0 ? 0 : 1000 + 1000 * (i - 1));
    }
    CHECK_EQ(softnic_now(r.nic[0]), 1000000);
    rig_free(&r);
}

/* Rate: message k starts k intervals after the first, over all QPs of the NIC. NOPs are not messages. */
static void test_rate(void) {
    struct rig r = rig_paced((struct softnic_profile){.latency_ns = 1000, .message_rate = 10e6});
    struct rig_qp *a = r.qp, *b = rig_qp_add(r.nic[0], 1, 0, 0);
    for (int i = 0; i < 4; i++) {
        rig_write_inline(a, r.mem[1], r.key[1], "a", 1, 8);
        rig_write_inline(b, r.mem[1], r.key[1], "b", 1, 8);
    }
    rig_nop(b, 8);
    rig_ring(a);
    rig_ring(b);
    CHECK_EQ(until_cqe(&r, a, 0, 5000), 1000);
    CHECK_EQ(until_cqe(&r, a, 3, 5000), 300);
    CHECK_EQ(until_cqe(&r, b, 0, 5000), 100);
    CHECK_EQ(until_cqe(&r, b, 3, 5000), 300);
    CHECK_EQ(until_cqe(&r, b, 4, 5000), 0); /* the NOP behind it adds nothing */
    /* After a pause the server is idle: no saved-up burst. */
    softnic_advance(r.nic[0], 100000);
    for (int i = 0; i < 3; i++)
        rig_write_inline(a, r.mem[1], r.key[1], "a", 1, 8);
    rig_ring(a);
    CHECK_EQ(until_cqe(&r, a, 4, 5000), 1000);
    CHECK_EQ(until_cqe(&r, a, 6, 5000), 200);
    bed_free(b);
    rig_free(&r);
}

/* The published ceiling: 16 x 1,000 messages at 260 M msg/s take 61.5 us plus the latency. */
static void test_rate_cx7(void) {
    struct softnic_profile p;
    MUST(softnic_profile_find("cx7-200", &p));
    CHECK(p.message_rate == 260e6 && p.bandwidth == 24.8e9 && p.latency_ns == 3300);
    struct rig r = rig_paced(p);
    uint64_t start = softnic_now(r.nic[0]), first = 0;
    uint32_t cqes = 0;
    const int batches = BED_GPU ? 20 : 1000;        /* there every nanosecond is a launch */
    for (int batch = 0; batch < batches; batch++) { /* each is announced while the one before is under way */
        for (int i = 0; i < 8; i++)
            rig_write_inline(r.qp, r.mem[1], r.key[1], "12345678", 8, i == 7 ? 8 : 0);
        rig_ring(r.qp);
        softnic_advance(r.nic[0], 0);
        if (batch == 0)
            continue;
        until_cqe(&r, r.qp, cqes++, 10000);
        if (batch == 1)
            first = softnic_now(r.nic[0]);
    }
    CHECK_EQ(first - start, 3300 + 27); /* 7 x 3.846 ns later than the first message */
    /* 16 WQEs are under way per latency: one QP this short cannot reach the ceiling, latency bounds it. */
    uint64_t took = softnic_now(r.nic[0]) - first;
    CHECK(took >= (batches - 2) / 2 * 3300u && took <= (batches - 2) / 2 * 3300u + (batches - 2) * 40u);
    rig_free(&r);
}

/* "slow" is for tests: known, but no model to offer. Two messages are answered 50 us apart. */
static void test_slow(void) {
    struct softnic_profile p;
    MUST(softnic_profile_find("slow", &p));
    for (const char *const *name = softnic_profile_names(); *name; name++)
        CHECK(strcmp(*name, "slow") != 0);
    struct rig r = rig_paced(p);
    uint64_t start = softnic_now(r.nic[0]);
    for (int i = 0; i < 2; i++)
        rig_write_inline(r.qp, r.mem[1], r.key[1], "12345678", 8, 8);
    rig_ring(r.qp);
    softnic_advance(r.nic[0], 199999);
    CHECK(!rig_cqe_there(r.qp, 0));
    softnic_advance(r.nic[0], 1);
    CHECK_OK(r.qp, 0, 0x08, 0);
    softnic_advance(r.nic[0], 49999);
    CHECK(!rig_cqe_there(r.qp, 1));
    CHECK_EQ(until_cqe(&r, r.qp, 1, 1000000), 1);
    CHECK_EQ(softnic_now(r.nic[0]) - start, 250000);
    rig_free(&r);
}

/* Bandwidth: 1 GB/s is a byte per ns. An 8 B message has the latency; every further byte and every message in
 * front adds its time on the link. */
static void test_bandwidth(void) {
    struct rig r = rig_paced((struct softnic_profile){.latency_ns = 1000, .bandwidth = 1e9});
    struct rig_qp *q = r.qp;
    rig_write(q, r.mem[1], r.key[1], r.mem[0], r.key[0], 8, 8);
    rig_ring(q);
    CHECK_EQ(until_cqe(&r, q, 0, 10000), 1000);
    rig_write(q, r.mem[1], r.key[1], r.mem[0], r.key[0], 1008, 8);
    rig_ring(q);
    CHECK_EQ(until_cqe(&r, q, 1, 10000), 2000);
    softnic_advance(r.nic[0], 100000);
    rig_write(q, r.mem[1], r.key[1], r.mem[0], r.key[0], 500, 8);
    rig_read(q, r.mem[1], r.key[1], r.mem[0], r.key[0], 308, 8);
    rig_write(q, r.mem[1], r.key[1], r.mem[0], r.key[0], 8, 8);
    rig_ring(q);
    CHECK_EQ(until_cqe(&r, q, 2, 10000), 1492);        /* 500 - 8 + 1000 */
    CHECK_EQ(until_cqe(&r, q, 3, 10000), 1800 - 1492); /* 500 + 308 - 8 + 1000 */
    CHECK_EQ(until_cqe(&r, q, 4, 10000), 8);           /* sent 808 after the start */
    rig_free(&r);
}

/* Headers count on the link, not in the latency of the small message. */
static void test_header(void) {
    struct rig r =
        rig_paced((struct softnic_profile){.latency_ns = 1000, .bandwidth = 1e9, .header_bytes = 92});
    for (int i = 0; i < 3; i++)
        rig_write_inline(r.qp, r.mem[1], r.key[1], "12345678", 8, 8);
    rig_ring(r.qp);
    CHECK_EQ(until_cqe(&r, r.qp, 0, 10000), 1000);
    CHECK_EQ(until_cqe(&r, r.qp, 1, 10000), 100);
    CHECK_EQ(until_cqe(&r, r.qp, 2, 10000), 100);
    rig_free(&r);
}

/* The fetch is paid once per doorbell, not per WQE. */
static void test_fetch(void) {
    struct rig r = rig_paced((struct softnic_profile){.latency_ns = 1000, .fetch_ns = 400});
    for (int i = 0; i < 8; i++)
        rig_nop(r.qp, 8);
    rig_write_inline(r.qp, r.mem[1], r.key[1], "1", 1, 8);
    rig_ring(r.qp);
    CHECK_EQ(until_cqe(&r, r.qp, 0, 10000), 400);
    CHECK_EQ(until_cqe(&r, r.qp, 8, 10000), 1000);
    rig_free(&r);
}

/* A fenced WQE waits for the responses of reads and atomics, an unfenced one does not. */
static void test_fence(void) {
    static const uint8_t fence[] = {0x00, 0x80};
    for (int i = 0; i < 2; i++) {
        struct rig r = rig_paced((struct softnic_profile){.latency_ns = 1000});
        rig_read(r.qp, r.mem[1], r.key[1], r.mem[0], r.key[0], 8, 8);
        rig_write_inline(r.qp, r.mem[1], r.key[1], "1", 1, 8 | fence[i]);
        rig_ring(r.qp);
        CHECK_EQ(until_cqe(&r, r.qp, 0, 10000), 1000);
        CHECK_EQ(until_cqe(&r, r.qp, 1, 10000), i ? 1000 : 0);
        rig_free(&r);
    }
}

/* One QP's deadlines hold up no other: a 64 KiB write under way, a NOP elsewhere done at once. */
static void test_no_blocking(void) {
    struct rig r = rig_paced((struct softnic_profile){.latency_ns = 1000, .bandwidth = 1e8});
    struct rig_qp *b = rig_qp_add(r.nic[0], 1, 0, 0);
    rig_write(r.qp, r.mem[1], r.key[1], r.mem[0], r.key[0], RIG_BYTES, 8);
    rig_ring(r.qp);
    softnic_advance(r.nic[0], 10);
    rig_nop(b, 8);
    rig_ring(b);
    CHECK_EQ(until_cqe(&r, b, 0, 10000), 0);
    CHECK(!rig_cqe_there(r.qp, 0));
    bed_free(b);
    rig_free(&r);
}

static void tests(void) {
    test_latency();
    test_jump();
    test_rate();
    test_rate_cx7();
    test_slow();
    test_bandwidth();
    test_header();
    test_fetch();
    test_fence();
    test_no_blocking();
}

int main(void) { return bed_run("pace_test", &test_failures, tests); }
