/* Queues: wrap-around, full rings, completion queues, WAIT across QPs, doorbells, counters, trace. */
#include "test.h"

#include <errno.h>

static void serve(struct rig *r) {
    rig_ring(r->qp);
    softnic_advance(r->nic[0], 0);
}

/* 70,000 WQEs through 16 blocks: the ring wraps 4,375 times, the 16-bit index once, the CQ's owner bit 547
 * times per direction. Every value and every CQE is looked at. */
static void test_wrap(void) {
    struct rig r = rig_virtual();
    struct rig_qp *q = r.qp;
    uint32_t cqes = 0;
    for (uint32_t i = 0; i < 70000 && test_failures == 0;) {
        uint32_t burst = 1 + i % RIG_DEPTH;
        for (uint32_t k = 0; k < burst; k++, i++) {
            uint64_t value = i * 0x0001000100010001ull;
            rig_write_inline(q, r.mem[1] + k * 8, r.key[1], &value, 8, k + 1 == burst ? 8 : 0);
        }
        serve(&r);
        CHECK_OK(q, cqes, 0x08, q->posted - 1);
        cqes++;
        CHECK(!rig_cqe_there(q, cqes));
        for (uint32_t k = 0; k < burst; k++) {
            uint64_t got;
            memcpy(&got, r.mem[1] + k * 8, 8);
            CHECK_EQ(got, (i - burst + k) * 0x0001000100010001ull);
        }
    }
    rig_free(&r);
}

/* A queue of depth 1, and the deepest: 32,768 announced at once with a record that is half the index space on. */
static void test_depths(void) {
    static const uint32_t depths[] = {1, 32768};
    for (int d = 0; d < 2; d++) {
        struct rig r = rig_virtual();
        uint32_t depth = depths[d], cqn, qpn;
        struct rig_qp *q = r.qp;
        uint8_t *sq = bed_alloc(depth * 64ull), *dbr = bed_alloc(8);
        memset(q->cqe, 0xff, 64);
        struct softnic_cq_attr cq = {q->cqe, 1, 1, NULL};
        MUST(softnic_cq_create(r.nic[0], &cq, &cqn));
        struct softnic_qp_attr qp = {sq, depth, dbr + 4, NULL, cqn};
        MUST(softnic_qp_create(r.nic[0], &qp, &qpn));
        MUST(softnic_qp_connect(r.nic[0], qpn, 1, 0));
        uint32_t posted = 0;
        for (int lap = 0; lap < 5; lap++) {
            for (uint32_t i = 0; i < depth; i++, posted++) {
                uint8_t *c = sq + posted % depth * 64;
                memset(c, 0, 16);
                put16(c + 1, posted & 0xffff);
                c[4] = (uint8_t)(qpn >> 16);
                put16(c + 5, qpn);
                c[7] = 1;
                c[11] = i + 1 == depth ? 8 : 0;
            }
            put32(dbr + 4, posted & 0xffff);
            softnic_advance(r.nic[0], 0);
            CHECK_EQ(get16(q->cqe + 60), (posted - 1) & 0xffff);
            CHECK_EQ(q->cqe[63], 0x00);
        }
        struct softnic_counters n;
        MUST(softnic_counters_get(r.nic[0], qpn, &n));
        CHECK_EQ(n.wqes, 5ull * depth);
        CHECK_EQ(n.doorbells, 5);
        bed_free(sq);
        bed_free(dbr);
        rig_free(&r);
    }
}

/* A full queue of 64 announced at once, of writes by pointer, inline and mixed with NOPs, of sizes below and above a
 * word, aligned and not, that touch each other or leave gaps: an engine may execute what it finds together, and has to
 * have executed all of it. (Bug: 32 longer writes that the GPU engine executed side by side were none.) */
static void post_many(struct rig *r, struct rig_qp *q, uint8_t *sq, uint32_t posted, int kind, uint32_t bytes,
                      uint32_t step) {
    uint8_t *w = sq + posted % 64 * 64;
    int nop = kind == 2 && posted % 5 == 3, by_pointer = kind == 0 || (kind == 2 && posted % 3);
    uint32_t ds = nop ? 1 : by_pointer ? 3 : 2 + (4 + bytes + 15) / 16;
    memset(w, 0, 64);
    put16(w + 1, posted & 0xffff);
    w[3] = nop ? 0x00 : 0x08;
    put32(w + 4, q->qpn << 8 | ds);
    w[11] = posted % 64 == 63 ? 8 : 0;
    if (nop)
        return;
    put64(w + 16, (uintptr_t)r->mem[1] + posted % 64 * step);
    put32(w + 24, r->key[1]);
    if (by_pointer) {
        put32(w + 32, bytes);
        put32(w + 36, r->key[0]);
        put64(w + 40, (uintptr_t)r->mem[0] + posted % 64 * step);
    } else {
        put32(w + 32, 0x80000000u | bytes);
        memcpy(w + 36, r->mem[0] + posted % 64 * step, bytes);
    }
}

static void test_many(void) {
    static const uint32_t sizes[] = {4, 8, 9, 24, 28, 64, 100, 1000};
    struct rig r = rig_virtual();
    struct rig_qp *q = bed_alloc(sizeof *q);
    uint8_t *sq = bed_alloc(64 * 64);
    struct softnic_cq_attr cq = {q->cqe, 1, 1, NULL};
    MUST(softnic_cq_create(r.nic[0], &cq, &q->cqn));
    struct softnic_qp_attr qp = {sq, 64, q->dbr + 4, &q->bell, q->cqn};
    MUST(softnic_qp_create(r.nic[0], &qp, &q->qpn));
    MUST(softnic_qp_connect(r.nic[0], q->qpn, 1, 0));
    for (uint32_t i = 0; i < RIG_BYTES; i++)
        r.mem[0][i] = (uint8_t)(i * 2654435761u >> 11);
    for (uint32_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int kind = 0; kind < 3; kind++)
            for (uint32_t gap = 0; gap < 24; gap += 8) {
                uint32_t bytes = sizes[s], step = bytes + gap, failed = 0;
                if (kind > 0 && bytes > 28)
                    continue; /* what does not fit one block */
                memset(r.mem[1], 0x5a, RIG_BYTES);
                uint32_t first = q->posted;
                for (uint32_t i = 0; i < 64; i++)
                    post_many(&r, q, sq, q->posted++, kind, bytes, step);
                rig_ring(q);
                softnic_advance(r.nic[0], 0);
                CHECK_EQ(get16(q->cqe + 60), (q->posted - 1) & 0xffff);
                for (uint32_t at = 0; at < 64 * step; at++) {
                    int nop = kind == 2 && (first + at / step) % 5 == 3;
                    failed += r.mem[1][at] != (nop || at % step >= bytes ? 0x5a : r.mem[0][at]);
                }
                CHECK_EQ(failed, 0);
            }
    bed_free(q);
    bed_free(sq);
    rig_free(&r);
}

/* Collapsed: one CQE for ever. op_own goes from invalid to 0 and stays, wqe_counter is cumulative. */
static void test_collapsed(void) {
    struct rig r = rig_virtual();
    struct rig_qp *q = rig_qp_add(r.nic[0], 1, 1, 1);
    memset(q->cq_dbr, 0, 8); /* a driver of a collapsed CQ never writes it: no overrun */
    CHECK_EQ(q->cqe[63], 0xf1);
    CHECK_EQ(get16(q->cqe + 60), 0xffff);
    for (uint32_t i = 0; i < 300; i++) {
        rig_nop(q, 8);
        rig_ring(q);
        softnic_advance(r.nic[0], 0);
        CHECK_EQ(q->cqe[63], 0x00);
        CHECK_EQ(get16(q->cqe + 60), i);
        CHECK_EQ(q->cqe[64 + 63], 0);
    }
    rig_write_inline(q, r.mem[1], 0, "1", 1, 0);
    rig_ring(q);
    softnic_advance(r.nic[0], 0);
    CHECK_EQ(q->cqe[63], 0xd0);
    CHECK_EQ(q->cqe[55], 0x13);
    CHECK_EQ(get16(q->cqe + 60), 300);
    bed_free(q);
    rig_free(&r);
}

/* With a consumer index the CQ may be full, not overrun: then the CQE is lost and the QP stops. */
static void test_cq_overrun(void) {
    static const uint32_t garbage[] = {0x00ffffff, 0x00000100, 0xff000000};
    struct rig r = rig_virtual();
    struct rig_qp *q = rig_qp_add(r.nic[0], 1, 0, 1);
    for (uint32_t i = 0; i < 3 * RIG_CQ_DEPTH; i++) {
        put32(q->cq_dbr, i < RIG_CQ_DEPTH ? 0 : i + 1 - RIG_CQ_DEPTH); /* exactly one free */
        rig_nop(q, 8);
        rig_ring(q);
        softnic_advance(r.nic[0], 0);
        CHECK_OK(q, i, 0x00, i);
    }
    rig_nop(q, 8);
    rig_ring(q);
    softnic_advance(r.nic[0], 0);
    CHECK(!rig_cqe_there(q, 3 * RIG_CQ_DEPTH));
    CHECK_EQ(softnic_qp_state(r.nic[0], q->qpn), SOFTNIC_QP_ERROR);
    struct softnic_counters n;
    MUST(softnic_counters_get(r.nic[0], q->qpn, &n));
    CHECK_EQ(n.cqes, 3 * RIG_CQ_DEPTH);
    CHECK_EQ(n.cqes_lost, 1);
    /* A CQ that overran stays dead, though there is room again and the QP is reset. */
    put32(q->cq_dbr, 3 * RIG_CQ_DEPTH);
    memset(q->dbr, 0, 8);
    q->posted = 0;
    MUST(softnic_qp_reset(r.nic[0], q->qpn));
    rig_nop(q, 8);
    rig_ring(q);
    softnic_advance(r.nic[0], 0);
    CHECK(!rig_cqe_there(q, 3 * RIG_CQ_DEPTH));
    bed_free(q);
    rig_free(&r);
    for (int i = 0; i < 3; i++) { /* consumer indices that cannot be: in range is all that counts */
        r = rig_virtual();
        q = rig_qp_add(r.nic[0], 1, 0, 1);
        put32(q->cq_dbr, garbage[i]);
        rig_nop(q, 8);
        rig_ring(q);
        softnic_advance(r.nic[0], 0);
        CHECK_EQ(softnic_qp_state(r.nic[0], q->qpn), i == 1 ? SOFTNIC_QP_ERROR : SOFTNIC_QP_RTS);
        bed_free(q);
        rig_free(&r);
    }
}

/* Bug: what was announced together with the WQE whose CQE was lost went on being executed. */
static void test_cq_overrun_stops(void) {
    for (int timed = 0; timed < 2; timed++) {
        struct rig r = rig_make((struct softnic_attr){
            .clock = SOFTNIC_VIRTUAL,
            .watch = SOFTNIC_WATCH_DBR,
            .profile = {.latency_ns = timed ? 100 : 0, .message_rate = timed ? 1e6 : 0}});
        struct rig_qp *q = rig_qp_add(r.nic[0], 1, 0, 1);
        put32(q->cq_dbr, 0xffffff & -(RIG_CQ_DEPTH - 2)); /* two free */
        for (uint32_t i = 0; i < 6; i++)
            rig_write_inline(q, r.mem[1] + i, r.key[1], "x", 1, 8);
        rig_ring(q);
        softnic_advance(r.nic[0], 100000);
        CHECK_OK(q, 1, 0x08, 1);
        CHECK(!rig_cqe_there(q, 2));
        for (uint32_t i = 0; i < 6; i++)
            CHECK_EQ(r.mem[1][i], i < 3 ? 'x' : 0);
        struct softnic_counters n;
        MUST(softnic_counters_get(r.nic[0], q->qpn, &n));
        CHECK_EQ(n.wqes, 3);
        CHECK_EQ(n.flushed, 3);
        CHECK_EQ(n.cqes, 2);
        CHECK_EQ(n.cqes_lost, 4);
        bed_free(q);
        rig_free(&r);
    }
}

/* WAIT {0, 0, index, cqn}: what stands behind it starts when that CQ has the CQE of that index. */
static void post_wait(struct rig_qp *q, uint32_t index, uint32_t cqn) {
    rig_ctrl(q, 0x0f, 0, 2, 0);
    memset(rig_seg(q, 1), 0xee, 8);
    put32(rig_seg(q, 1) + 8, index);
    put32(rig_seg(q, 1) + 12, cqn);
    rig_advance_index(q, 1);
}

static void test_wait(uint64_t latency_ns) {
    struct rig r = rig_make((struct softnic_attr){
        .clock = SOFTNIC_VIRTUAL, .watch = SOFTNIC_WATCH_DBR, .profile = {.latency_ns = latency_ns}});
    struct rig_qp *main_qp = r.qp, *companion = rig_qp_add(r.nic[0], 0, 0, 0);
    /* A counter in my own memory grows when main's WQEs 1 and 2 are complete. */
    post_wait(companion, 1, main_qp->cqn);
    rig_fetch_add(companion, r.mem[0] + 512, r.key[0], 1, r.mem[0] + 600, r.key[0], 8);
    post_wait(companion, 2, main_qp->cqn);
    rig_fetch_add(companion, r.mem[0] + 512, r.key[0], 1, r.mem[0] + 600, r.key[0], 8);
    rig_ring(companion);
    static const uint8_t counter[] = {0, 0, 1, 2};
    for (uint32_t i = 0; i < 4; i++) {
        softnic_advance(r.nic[0], 3 * latency_ns);
        CHECK_EQ(r.mem[0][512], counter[i]);
        rig_write_inline(main_qp, r.mem[1], r.key[1], "1", 1, 8);
        rig_ring(main_qp);
    }
    CHECK_OK(companion, 0, 0x12, 1);
    CHECK_OK(companion, 1, 0x12, 3);
    struct softnic_counters n;
    MUST(softnic_counters_get(r.nic[0], companion->qpn, &n));
    CHECK_EQ(n.wqes, 4);
    CHECK_EQ(n.wqe_wait, 2);
    CHECK_EQ(n.wqe_atomic, 2);
    CHECK_EQ(n.wqe_bytes, 2 * (32 + 64));
    bed_free(companion);
    rig_free(&r);
}

/* As NCCL's counters are made: a put with a CQE on one QP, and on its companion, connected to this node itself, a WAIT for
 * that WQE's index and an add to a counter of this node. Zero-based regions. Both rings wrap several times. */
static void test_companion(int collapsed) {
    struct rig r = rig_make((struct softnic_attr){.clock = SOFTNIC_VIRTUAL, .watch = SOFTNIC_WATCH_DBR});
    struct rig_qp *put = rig_qp_add(r.nic[0], 1, collapsed, 0),
                  *companion = rig_qp_add(r.nic[0], 0, collapsed, 0);
    const uint32_t zero = SOFTNIC_ZERO_BASED;
    uint32_t here, there;
    MUST(softnic_mr_register(r.nic[0], r.mem[0], RIG_BYTES, ALL_RIGHTS | zero, &here));
    MUST(softnic_mr_register(r.nic[1], r.mem[1], RIG_BYTES, ALL_RIGHTS | zero, &there));
    MUST(softnic_peers_map(r.nic[0]));
    memset(r.mem[0] + 8192, 'p', 5000);
    for (uint32_t i = 0; i < 40; i++) {
        rig_write(put, (void *)(uintptr_t)(i * 16), there, (void *)(uintptr_t)(8192 + i), here, 1 + i * 100,
                  8);
        post_wait(companion, put->posted - 1, put->cqn);
        rig_fetch_add(companion, (void *)(uintptr_t)64, here, 1, (void *)(uintptr_t)128, here, 8);
        rig_ring(companion);
        softnic_advance(r.nic[0], 0);
        CHECK_EQ(r.mem[0][64], i); /* the put has not been announced */
        rig_ring(put);
        softnic_advance(r.nic[0], 0);
        CHECK_EQ(r.mem[0][64], i + 1);
        CHECK_EQ(r.mem[0][128], i);
        CHECK_EQ(r.mem[1][i * 16], 'p');
        CHECK_EQ(get16(rig_cqe(companion, collapsed ? 0 : i) + 60), companion->posted - 1);
    }
    struct softnic_counters n;
    MUST(softnic_counters_get(r.nic[0], companion->qpn, &n));
    CHECK_EQ(n.wqe_wait, 40);
    CHECK_EQ(n.wqe_atomic, 40);
    CHECK_EQ(n.error_cqes, 0);
    bed_free(companion);
    bed_free(put);
    rig_free(&r);
}

/* Two QPs wait for each other for ever; a third goes on, and the NIC can be taken down. */
static void test_wait_deadlock(void) {
    struct rig r = rig_virtual();
    struct rig_qp *a = rig_qp_add(r.nic[0], 1, 0, 0), *b = rig_qp_add(r.nic[0], 1, 0, 0);
    post_wait(a, 0, b->cqn);
    post_wait(b, 0, a->cqn);
    rig_ring(a);
    rig_ring(b);
    rig_nop(r.qp, 8);
    serve(&r);
    CHECK_OK(r.qp, 0, 0x00, 0);
    bed_free(a);
    bed_free(b);
    rig_free(&r);
}

/* The doorbell only wakes; the record says how far. DOCA rings, writes the record and rings again. */
static void test_bell(void) {
    struct rig r = rig_make((struct softnic_attr){.clock = SOFTNIC_VIRTUAL, .watch = SOFTNIC_WATCH_BELL});
    struct rig_qp *q = r.qp;
    softnic_advance(r.nic[0], 0); /* the one look that a new connection gets */
    rig_nop(q, 8);
    put32(q->dbr + 4, 1); /* no doorbell: the NIC does not look */
    softnic_advance(r.nic[0], 100);
    CHECK(!rig_cqe_there(q, 0));
    rig_ring(q);
    softnic_advance(r.nic[0], 0);
    CHECK_OK(q, 0, 0x00, 0);
    /* Rung with the record still behind; the record follows, the second ring is the same word. */
    rig_nop(q, 8);
    put32((uint8_t *)&q->bell, 2 << 8);
    softnic_advance(r.nic[0], 0);
    CHECK(!rig_cqe_there(q, 1));
    put32(q->dbr + 4, 2);
    softnic_advance(r.nic[0], 0);
    CHECK_OK(q, 1, 0x00, 1);
    rig_free(&r);
}

/* One UAR word for two QPs: the first's ring is overwritten before the NIC looks. */
static void test_shared_bell(void) {
    struct rig r = rig_make((struct softnic_attr){.clock = SOFTNIC_VIRTUAL, .watch = SOFTNIC_WATCH_BELL});
    struct rig_qp *q[2];
    uint64_t *word = bed_alloc(sizeof *word);
    for (int i = 0; i < 2; i++) {
        q[i] = bed_alloc(sizeof *q[i]);
        memset(q[i], 0, sizeof *q[i]);
        struct softnic_cq_attr cq = {q[i]->cqe, RIG_CQ_DEPTH, 0, NULL};
        MUST(softnic_cq_create(r.nic[0], &cq, &q[i]->cqn));
        struct softnic_qp_attr qp = {q[i]->sq, RIG_DEPTH, q[i]->dbr + 4, word, q[i]->cqn};
        MUST(softnic_qp_create(r.nic[0], &qp, &q[i]->qpn));
        MUST(softnic_qp_connect(r.nic[0], q[i]->qpn, 1, 0));
    }
    for (int i = 0; i < 2; i++) {
        rig_nop(q[i], 8);
        rig_ring(q[i]);
        *word = q[i]->bell;
    }
    softnic_advance(r.nic[0], 0);
    CHECK_OK(q[0], 0, 0x00, 0);
    CHECK_OK(q[1], 0, 0x00, 0);
    bed_free(q[0]);
    bed_free(q[1]);
    rig_free(&r);
    bed_free(word);
}

/* What was rung before the connection is served after it. */
static void test_rung_before_connect(void) {
    for (int watch = 0; watch < 2; watch++) {
        struct rig r = rig_make((struct softnic_attr){
            .clock = SOFTNIC_VIRTUAL, .watch = watch ? SOFTNIC_WATCH_DBR : SOFTNIC_WATCH_BELL});
        struct rig_qp *q = bed_alloc(sizeof *q);
        memset(q, 0, sizeof *q);
        struct softnic_cq_attr cq = {q->cqe, RIG_CQ_DEPTH, 0, NULL};
        MUST(softnic_cq_create(r.nic[0], &cq, &q->cqn));
        struct softnic_qp_attr qp = {q->sq, RIG_DEPTH, q->dbr + 4, &q->bell, q->cqn};
        MUST(softnic_qp_create(r.nic[0], &qp, &q->qpn));
        rig_nop(q, 8);
        rig_ring(q);
        softnic_advance(r.nic[0], 0);
        CHECK(!rig_cqe_there(q, 0));
        MUST(softnic_qp_connect(r.nic[0], q->qpn, 1, 0));
        softnic_advance(r.nic[0], 0);
        CHECK_OK(q, 0, 0x00, 0);
        bed_free(q);
        rig_free(&r);
    }
}

/* Several QPs, one CQ: CQEs carry the QP's number. */
static void test_shared_cq(void) {
    struct rig r = rig_virtual();
    struct rig_qp *a = r.qp, *b = bed_alloc(sizeof *b);
    memset(b, 0, sizeof *b);
    struct softnic_qp_attr qp = {b->sq, RIG_DEPTH, b->dbr + 4, &b->bell, a->cqn};
    MUST(softnic_qp_create(r.nic[0], &qp, &b->qpn));
    MUST(softnic_qp_connect(r.nic[0], b->qpn, 1, 0));
    rig_nop(b, 8);
    rig_ring(b);
    softnic_advance(r.nic[0], 0);
    rig_nop(a, 8);
    serve(&r);
    CHECK_EQ(get32(rig_cqe(a, 0) + 56), b->qpn);
    CHECK_EQ(get32(rig_cqe(a, 1) + 56), a->qpn);
    bed_free(b);
    rig_free(&r);
}

static void test_counters(void) {
    struct rig r = rig_virtual();
    struct rig_qp *q = r.qp, *idle = rig_qp_add(r.nic[0], 1, 0, 0);
    rig_write(q, r.mem[1], r.key[1], r.mem[0], r.key[0], 100, 0); /* 48 bytes of WQE */
    rig_write_inline(q, r.mem[1], r.key[1], "12345678", 8, 8);    /* 48 */
    serve(&r);
    rig_write_inline(q, r.mem[1], r.key[1], q->sq, 60, 0);          /* 96 */
    rig_read(q, r.mem[1], r.key[1], r.mem[0], r.key[0], 50, 0);     /* 48 */
    rig_fetch_add(q, r.mem[1], r.key[1], 1, r.mem[0], r.key[0], 8); /* 64 */
    rig_nop(q, 8);                                                  /* 16 */
    serve(&r);
    struct softnic_counters n, all;
    MUST(softnic_counters_get(r.nic[0], q->qpn, &n));
    MUST(softnic_counters_get(r.nic[0], SOFTNIC_ALL_QPS, &all));
    CHECK(memcmp(&n, &all, sizeof n) == 0);
    CHECK_EQ(n.wqes, 6);
    CHECK_EQ(n.wqe_write, 3);
    CHECK_EQ(n.wqe_write_inline, 2);
    CHECK_EQ(n.wqe_read, 1);
    CHECK_EQ(n.wqe_atomic, 1);
    CHECK_EQ(n.wqe_nop, 1);
    CHECK_EQ(n.wqe_bytes, 48 + 48 + 96 + 48 + 64 + 16);
    CHECK_EQ(n.payload_bytes, 100 + 8 + 60 + 50 + 8);
    CHECK_EQ(n.doorbells, 2);
    CHECK_EQ(n.cqes, 3);
    CHECK_EQ(n.error_cqes, 0);
    CHECK_EQ(n.qps_used, 1);
    CHECK_EQ(softnic_counters_get(r.nic[0], 1, &n), -EINVAL);
    bed_free(idle);
    rig_free(&r);
}

/* QPs and CQs that end: their number, memory and place are free, their counts stay, other queues do not notice. */
static void test_ends(void) {
    struct rig r = rig_virtual();
    struct softnic_counters n;
    uint32_t first_qpn = 0;
    for (int lap = 0; lap < 3; lap++) {
        struct rig_qp *q = rig_qp_add(r.nic[0], 1, lap % 2, 0), *other = rig_qp_add(r.nic[0], 1, 0, 0);
        if (lap == 0)
            first_qpn = q->qpn;
        CHECK_EQ(q->qpn, first_qpn);
        rig_nop(q, 8);
        rig_ring(q);
        post_wait(other, 7, q->cqn); /* is looked at in every pass */
        rig_ring(other);
        softnic_advance(r.nic[0], 0);
        CHECK_OK(q, 0, 0x00, 0);
        CHECK_EQ(softnic_cq_destroy(r.nic[0], q->cqn), -EBUSY);
        rig_nop(q, 8);
        rig_ring(q); /* too late */
        MUST(softnic_qp_destroy(r.nic[0], q->qpn));
        CHECK_EQ(softnic_qp_destroy(r.nic[0], q->qpn), -EINVAL);
        MUST(softnic_cq_destroy(r.nic[0], q->cqn));
        CHECK_EQ(softnic_cq_destroy(r.nic[0], q->cqn), -EINVAL);
        softnic_advance(r.nic[0], 0);
        CHECK(lap % 2 || !rig_cqe_there(q, 1));
        CHECK_ERR(other, 0, 0x0f, 0, 0x02); /* waits for a CQ that is no more */
        MUST(softnic_qp_destroy(r.nic[0], other->qpn));
        MUST(softnic_cq_destroy(r.nic[0], other->cqn));
        rig_nop(r.qp, 8);
        serve(&r);
        CHECK_OK(r.qp, (uint32_t)lap, 0x00, lap);
        MUST(softnic_counters_get(r.nic[0], SOFTNIC_ALL_QPS, &n));
        CHECK_EQ(n.wqe_nop, 2 * (lap + 1));
        CHECK_EQ(n.wqes, 3 * (lap + 1));
        CHECK_EQ(n.error_cqes, lap + 1);
        CHECK_EQ(softnic_counters_get(r.nic[0], q->qpn, &n), -EINVAL);
        bed_free(q);
        bed_free(other);
    }
    rig_free(&r);
}

static void check_trace(const struct softnic_trace *t, int kind, uint32_t index, uint32_t opcode,
                        uint64_t time_ns) {
    CHECK_EQ(t->kind, kind);
    CHECK_EQ(t->index, index);
    CHECK_EQ(t->opcode, opcode);
    CHECK_EQ(t->time_ns, time_ns);
}

/* The records of test_trace() in the file, byte by byte; nictrace_test.go reads such files in general. */
static void check_packed(const uint8_t *bytes, size_t n) {
    const uint8_t records[] = {
        0x01, 0x00, 0xa4, 0x13, 0x02,                   /* doorbell on QP 0, +1234 ns, to 2 */
        0x0a, 0x00, 0x00, 0x08, 0x88, 0x03, 0x00, 0x64, /* write, fenced, 100 bytes, then raddr */
    };
    const size_t header = 8 + 16 + 24 + 32 + 8;
    uint32_t qps, regions, sum, crc = ~0u;
    memcpy(&qps, bytes + header - 8, 4);
    memcpy(&regions, bytes + header - 4, 4);
    CHECK_EQ(qps, 1);
    CHECK(regions >= 1);
    CHECK(memcmp(bytes + header + qps * 24 + regions * 24, records, sizeof records) == 0);
    for (size_t i = 0; i < n - 4; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? 0xedb88320u : 0);
    }
    memcpy(&sum, bytes + n - 4, 4);
    CHECK_EQ(sum, ~crc);
}

static void test_trace(void) {
    struct rig r = rig_make(
        (struct softnic_attr){.clock = SOFTNIC_VIRTUAL, .watch = SOFTNIC_WATCH_DBR, .trace_records = 6});
    struct rig_qp *q = r.qp;
    softnic_advance(r.nic[0], 1234);
    rig_write(q, r.mem[1] + 8, r.key[1], r.mem[0], r.key[0], 100, 0x88);
    rig_nop(q, 0);
    serve(&r);
    softnic_advance(r.nic[0], 1000);
    rig_write_inline(q, r.mem[1], 0, "1", 1, 0);
    serve(&r);
    struct softnic_trace t[16];
    size_t count = 16;
    uint64_t lost;
    MUST(softnic_trace_read(r.nic[0], t, &count, &lost));
    CHECK_EQ(count, 6);
    CHECK_EQ(lost, 1);
    check_trace(&t[0], SOFTNIC_TRACE_DOORBELL, 2, 0, 1234);
    check_trace(&t[1], SOFTNIC_TRACE_WQE, 0, 0x08, 1234);
    CHECK_EQ(t[1].bytes, 100);
    CHECK_EQ(t[1].ds, 3);
    CHECK_EQ(t[1].fm_ce_se, 0x88);
    CHECK_EQ(t[1].raddr, (uintptr_t)r.mem[1] + 8);
    CHECK_EQ(t[1].qpn, q->qpn);
    check_trace(&t[2], SOFTNIC_TRACE_CQE, 0, 0x0, 1234);
    check_trace(&t[3], SOFTNIC_TRACE_WQE, 1, 0x00, 1234);
    check_trace(&t[4], SOFTNIC_TRACE_DOORBELL, 3, 0, 2234);
    check_trace(&t[5], SOFTNIC_TRACE_WQE, 2, 0x08, 2234);
    char path[] = "/tmp/gic-trace-XXXXXX";
    close(mkstemp(path));
    MUST(softnic_trace_save(r.nic[0], path));
    FILE *f = fopen(path, "rb");
    uint8_t bytes[512];
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    unlink(path);
    CHECK(n > 8 && memcmp(bytes, "SNTRACE2", 8) == 0);
    check_packed(bytes, n);
    CHECK_EQ(softnic_trace_save(r.nic[0], "/no/such/place"), -ENOENT);
    struct softnic_counters n_of;
    MUST(softnic_trace_clear(r.nic[0]));
    MUST(softnic_counters_get(r.nic[0], q->qpn, &n_of)); /* of one QP: no mark */
    MUST(softnic_counters_get(r.nic[0], SOFTNIC_ALL_QPS, &n_of));
    MUST(softnic_trace_clear(r.nic[0]));
    MUST(softnic_counters_get(r.nic[0], SOFTNIC_ALL_QPS, &n_of));
    count = 16;
    MUST(softnic_trace_read(r.nic[0], t, &count, &lost));
    CHECK_EQ(count, 1);
    CHECK_EQ(lost, 0);
    check_trace(&t[0], SOFTNIC_TRACE_MARK, 1, 0, 2234);
    rig_free(&r);
    r = rig_virtual();
    CHECK_EQ(softnic_trace_read(r.nic[0], t, &count, &lost), -ENODATA);
    CHECK_EQ(softnic_trace_clear(r.nic[0]), -ENODATA);
    rig_free(&r);
}

static void tests(void) {
    test_wrap();
    test_depths();
    test_many();
    test_collapsed();
    test_cq_overrun();
    test_cq_overrun_stops();
    test_wait(0);
    test_wait(700);
    test_companion(0);
    test_companion(1);
    test_wait_deadlock();
    test_bell();
    test_shared_bell();
    test_rung_before_connect();
    test_shared_cq();
    test_counters();
    test_ends();
    if (!BED_GPU) /* which keeps none */
        test_trace();
}

int main(void) { return bed_run("queue_test", &test_failures, tests); }
