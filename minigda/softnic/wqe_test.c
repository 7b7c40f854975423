/* Every opcode: bytes of a WQE in, bytes at the target and of the CQE out. */
#include "test.h"
#include "wqe.h"

static void fill(uint8_t *p, uint32_t bytes, uint32_t seed) {
    for (uint32_t i = 0; i < bytes; i++)
        p[i] = (uint8_t)((i * 2654435761u + seed * 40503u) >> 13);
}

static void serve(struct rig *r) {
    rig_ring(r->qp);
    softnic_advance(r->nic[0], 0);
}

static void test_nop(void) {
    struct rig r = rig_virtual();
    struct rig_qp *q = r.qp;
    CHECK_EQ(q->cqe[63], 0xf1);
    CHECK_EQ(q->cqe[64 * 63 + 63], 0xf1);
    rig_nop(q, 8);
    rig_ring(q);
    CHECK(!rig_cqe_there(q, 0)); /* virtual time stands still */
    softnic_advance(r.nic[0], 0);
    CHECK_OK(q, 0, 0x00, 0);
    /* A NOP may be of any size; only its control segment is written. */
    rig_ctrl(q, 0x00, 0, 7, 8);
    rig_advance_index(q, 2);
    rig_nop(q, 8);
    serve(&r);
    CHECK_OK(q, 1, 0x00, 1);
    CHECK_OK(q, 2, 0x00, 3);
    rig_free(&r);
}

static void test_write_pointer(void) {
    static const uint32_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 63, 64, 1001, 4096, 30000};
    struct rig r = rig_virtual();
    struct rig_qp *q = r.qp;
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint32_t n = sizes[i];
        fill(r.mem[0], n + 8, i);
        memset(r.mem[1], 0x5a, RIG_BYTES);
        rig_write(q, r.mem[1] + 100 + i, r.key[1], r.mem[0] + 3, r.key[0], n, 8);
        serve(&r);
        CHECK_OK(q, i, 0x08, i);
        CHECK_EQ(get32(rig_cqe(q, i) + 44), 0); /* byte_cnt is for responses */
        CHECK(memcmp(r.mem[1] + 100 + i, r.mem[0] + 3, n) == 0);
        CHECK_EQ(r.mem[1][99 + i], 0x5a);
        CHECK_EQ(r.mem[1][100 + i + n], 0x5a);
    }
    rig_free(&r);
}

/* 1 to 960 bytes of inline data: up to 16 blocks, and with 16 blocks in the ring every WQE wraps somewhere. */
static void test_write_inline(void) {
    static const uint32_t sizes[] = {1, 2, 4, 8, 12, 13, 28, 29, 44, 60, 61, 128, 200, 256, 500, 956};
    struct rig r = rig_virtual();
    struct rig_qp *q = r.qp;
    uint8_t bytes[1024];
    for (uint32_t i = 0; i < 64; i++) {
        uint32_t n = sizes[i % 16], at = q->posted;
        fill(bytes, n, i);
        memset(r.mem[1], 0x5a, 2048);
        rig_write_inline(q, r.mem[1] + 64, r.key[1], bytes, n, 8);
        serve(&r);
        CHECK_OK(q, i, 0x08, at);
        CHECK(memcmp(r.mem[1] + 64, bytes, n) == 0);
        CHECK_EQ(r.mem[1][63], 0x5a);
        CHECK_EQ(r.mem[1][64 + n], 0x5a);
    }
    rig_free(&r);
}

/* What a full warp's cooperative put of NVSHMEM posts: 32 values inline over 5 blocks, no CQE, then a NOP. */
static void test_warp_inline_then_nop(void) {
    struct rig r = rig_virtual();
    struct rig_qp *q = r.qp;
    uint8_t bytes[256];
    fill(bytes, sizeof bytes, 5);
    rig_write_inline(q, r.mem[1], r.key[1], bytes, 256, 0);
    rig_nop(q, 8);
    serve(&r);
    CHECK_OK(q, 0, 0x00, 5);
    CHECK(!rig_cqe_there(q, 1));
    CHECK(memcmp(r.mem[1], bytes, 256) == 0);
    rig_free(&r);
}

/* Gather lists, mixed with inline data, and zero bytes: a WRITE without any piece. */
static void test_write_pieces(void) {
    struct rig r = rig_virtual();
    struct rig_qp *q = r.qp;
    fill(r.mem[0], 4096, 9);
    rig_ctrl(q, 0x08, 0, 5, 8);
    rig_raddr(q, 1, r.mem[1], r.key[1]);
    rig_data(q, 2, r.mem[0] + 1000, r.key[0], 10);
    rig_inline(q, 3, "abc", 3);
    rig_data(q, 4, r.mem[0] + 2000, r.key[0], 20);
    rig_advance_index(q, 2);
    rig_ctrl(q, 0x08, 0, 2, 8);
    rig_raddr(q, 1, NULL, 0); /* no byte, no check */
    rig_advance_index(q, 1);
    serve(&r);
    CHECK_OK(q, 0, 0x08, 0);
    CHECK_OK(q, 1, 0x08, 2);
    CHECK(memcmp(r.mem[1], r.mem[0] + 1000, 10) == 0);
    CHECK(memcmp(r.mem[1] + 10, "abc", 3) == 0);
    CHECK(memcmp(r.mem[1] + 13, r.mem[0] + 2000, 20) == 0);
    CHECK_EQ(r.mem[1][33], 0);
    rig_free(&r);
}

static void test_read(void) {
    struct rig r = rig_virtual();
    struct rig_qp *q = r.qp;
    fill(r.mem[1], 4096, 3);
    rig_read(q, r.mem[1] + 17, r.key[1], r.mem[0] + 5, r.key[0], 999, 8);
    rig_read(q, r.mem[1] + 8, r.key[1], r.mem[0] + 2048, r.key[0], 8, 8);
    /* Scatter. */
    rig_ctrl(q, 0x10, 0, 4, 8);
    rig_raddr(q, 1, r.mem[1] + 500, r.key[1]);
    rig_data(q, 2, r.mem[0] + 3000, r.key[0], 3);
    rig_data(q, 3, r.mem[0] + 3100, r.key[0], 40);
    rig_advance_index(q, 1);
    serve(&r);
    CHECK_OK(q, 0, 0x10, 0);
    CHECK_EQ(get32(rig_cqe(q, 0) + 44), 999);
    CHECK(memcmp(r.mem[0] + 5, r.mem[1] + 17, 999) == 0);
    CHECK_EQ(r.mem[0][4], 0);
    CHECK_EQ(r.mem[0][1004], 0);
    CHECK(memcmp(r.mem[0] + 2048, r.mem[1] + 8, 8) == 0);
    CHECK_EQ(get32(rig_cqe(q, 2) + 44), 43);
    CHECK(memcmp(r.mem[0] + 3000, r.mem[1] + 500, 3) == 0);
    CHECK(memcmp(r.mem[0] + 3100, r.mem[1] + 503, 40) == 0);
    rig_free(&r);
}

/* ---- atomics: one row per case; results from the definitions, worked out by hand ---- */

struct atomic_case {
    const char *name;
    uint8_t opcode, opmod, bytes;
    /* As posted: swap or add, compare or boundary, swap mask, compare mask. */
    uint64_t a, b, c, d;
    uint64_t before, after;
};

static const struct atomic_case atomics[] = {
    {"CS equal", 0x11, 0, 8, 77, 5, 0, 0, 5, 77},
    {"CS different", 0x11, 0, 8, 77, 5, 0, 0, 6, 6},
    {"FA", 0x12, 0, 8, 3, 99, 0, 0, 0xfffffffffffffffe, 1},
    {"masked CS 8 swap all", 0x14, 9, 8, 0x1122334455667788, 0, ~0ull, 0, 42, 0x1122334455667788},
    {"masked CS 8 OR", 0x14, 9, 8, 0xf0, 0, 0xf0, 0, 0x0f, 0xff},
    {"masked CS 8 AND", 0x14, 9, 8, 0, 0, 0xf0, 0, 0xff, 0x0f},
    {"masked CS 8 hit by mask", 0x14, 9, 8, 0xaa00, 0x12, 0xff00, 0xff, 0x5512, 0xaa12},
    {"masked CS 8 miss", 0x14, 9, 8, 0xaa00, 0x13, 0xff00, 0xff, 0x5512, 0x5512},
    {"masked CS 8 all by a part, hit", 0x14, 9, 8, 0xabcdef0123, 0x12, ~0ull, 0xff, 0x5512, 0xabcdef0123},
    {"masked CS 8 all by a part, miss", 0x14, 9, 8, 0xabcdef0123, 0x13, ~0ull, 0xff, 0x5512, 0x5512},
    {"masked CS 8 all by all, hit", 0x14, 9, 8, 0xabcdef0123, 0x5512, ~0ull, ~0ull, 0x5512, 0xabcdef0123},
    {"masked CS 8 all by all, miss", 0x14, 9, 8, 0xabcdef0123, 0x5512, ~0ull, ~0ull, 0x15512, 0x15512},
    {"masked CS 8 nothing", 0x14, 9, 8, 0xabcdef0123, 0x5512, 0, ~0ull, 0x5512, 0x5512},
    {"masked FA 8 add", 0x15, 9, 8, 0x100000001, 0, 0, 0, 0xffffffff, 0x200000000},
    {"masked FA 8 xor", 0x15, 9, 8, 0xff00ff, ~0ull, 0, 0, 0x0ff0f0, 0xf0f00f},
    {"masked FA 8 two fields", 0x15, 9, 8, 0x0000000100000001, 0x0000000080000000, 0, 0, 0x00000005ffffffff,
     0x0000000600000000},
    {"masked FA 8 bytes", 0x15, 9, 8, 0x0101010101010101, 0x8080808080808080, 0, 0, 0xff00ff7fff00ff01,
     0x0001008000010002},
    {"masked CS 4 swap all", 0x14, 8, 4, 0xcafe0001, 0, 0xffffffff, 0, 7, 0xcafe0001},
    {"masked CS 4 hit", 0x14, 8, 4, 0x00005500, 0x7, 0xff00, 0xf, 0x00aa11f7, 0x00aa55f7},
    {"masked CS 4 miss", 0x14, 8, 4, 0x00005500, 0x8, 0xff00, 0xf, 0x00aa11f7, 0x00aa11f7},
    {"masked CS 4 all by all, hit", 0x14, 8, 4, 0xabcd, 0xf00d5512, 0xffffffff, 0xffffffff, 0xf00d5512,
     0xabcd},
    {"masked CS 4 all by all, miss", 0x14, 8, 4, 0xabcd, 0x5512, 0xffffffff, 0xffffffff, 0xf00d5512,
     0xf00d5512},
    {"masked CS 4 all by a part, miss", 0x14, 8, 4, 0xabcd, 0x13, 0xffffffff, 0xff, 0x5512, 0x5512},
    {"masked CS 4 nothing", 0x14, 8, 4, 0xabcd, 0x5512, 0, 0xffffffff, 0x5512, 0x5512},
    {"masked FA 4 add", 0x15, 8, 4, 2, 0, 0, 0, 0xffffffff, 1},
    {"masked FA 4 xor", 0x15, 8, 4, 0xffff0000, 0xffffffff, 0, 0, 0x12345678, 0xedcb5678},
    {"masked FA 4 halves", 0x15, 8, 4, 0x00010001, 0x00008000, 0, 0, 0x0001ffff, 0x00020000},
};

static void post_atomic(struct rig *r, const struct atomic_case *c) {
    struct rig_qp *q = r->qp;
    int wide_cs = c->opcode == 0x14 && c->bytes == 8;
    uint32_t ds = wide_cs ? 5 : 4;
    rig_ctrl(q, c->opcode, c->opmod, ds, 8);
    rig_raddr(q, 1, r->mem[1] + 64, r->key[1]);
    uint8_t *s = rig_seg(q, 2);
    memset(s, 0xee, 16); /* what is not operand does not matter */
    if (c->bytes == 8) {
        put64(s, c->a);
        put64(s + 8, c->b);
        if (wide_cs) {
            put64(rig_seg(q, 3), c->c);
            put64(rig_seg(q, 3) + 8, c->d);
        }
    } else {
        put32(s, (uint32_t)c->a);
        put32(s + 4, (uint32_t)c->b);
        if (c->opcode == 0x14) {
            put32(s + 8, (uint32_t)c->c);
            put32(s + 12, (uint32_t)c->d);
        }
    }
    rig_data(q, ds - 1, r->mem[0] + 40, r->key[0], c->bytes);
    rig_advance_index(q, (ds + 3) / 4);
}

static void test_atomics(void) {
    struct rig r = rig_virtual();
    struct rig_qp *q = r.qp;
    for (uint32_t i = 0; i < sizeof atomics / sizeof *atomics; i++) {
        const struct atomic_case *c = &atomics[i];
        int failed = test_failures;
        uint32_t at = q->posted;
        memset(r.mem[0], 0x33, 64);
        memset(r.mem[1], 0x44, 128);
        memcpy(r.mem[1] + 64, &c->before, c->bytes); /* host order */
        post_atomic(&r, c);
        serve(&r);
        CHECK_OK(q, i, c->opcode, at);
        CHECK_EQ(get32(rig_cqe(q, i) + 44), c->bytes);
        uint64_t after = 0, old = 0;
        memcpy(&after, r.mem[1] + 64, c->bytes);
        CHECK_EQ(after, c->after);
        CHECK_EQ(r.mem[1][64 + c->bytes], 0x44);
        CHECK_EQ(r.mem[0][40 + c->bytes], 0x33);
        if (c->bytes == 8) { /* 8-byte results in host order, 4-byte ones big-endian */
            memcpy(&old, r.mem[0] + 40, 8);
            CHECK_EQ(old, c->before);
        } else {
            CHECK_EQ(get32(r.mem[0] + 40), c->before);
        }
        if (failed != test_failures)
            fprintf(stderr, "  in atomic case \"%s\"\n", c->name);
    }
    rig_free(&r);
}

/* Requests of all kinds announced at once, to this node's own memory: each sees what the one before it did, source and
 * target overlap, and one lies across any eight blocks that are fetched together. */
static void test_in_a_row(void) {
    struct rig r = rig_virtual();
    struct rig_qp *q = rig_qp_add(r.nic[0], 0, 0, 0);
    const uint32_t key = r.key[0];
    uint8_t *m = r.mem[0], *want = malloc(4096), flag[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (uint32_t lap = 0; lap < 3; lap++) {
        const uint32_t first = 6 * lap, at = q->posted;
        fill(m, 4096, 30 + lap);
        memcpy(want, m, 4096);
        uint64_t word, old;
        memcpy(&old, m, 8);
        word = old + 5;
        rig_fetch_add(q, m, key, 5, m + 8, key, 0);
        memcpy(want + 8, &old, 8);
        memcpy(want, &word, 8);
        rig_write(q, m + 300, key, m + 260, key, 501, 8);
        memmove(want + 300, want + 260, 501);
        rig_nop(q, 0);
        rig_write(q, m + 16, key, m, key, 8, 8);
        memcpy(want + 16, want, 8);
        rig_nop(q, 8);
        rig_write_inline(q, m + 24, key, flag, 8, 0);
        memcpy(want + 24, flag, 8);
        rig_nop(q, 0);
        rig_write_inline(q, m + 1204, key, "0123456789abcdefghijklmnopqrstuvwxyzABCD", 40,
                         8); /* blocks 7 and 8 */
        memcpy(want + 1204, "0123456789abcdefghijklmnopqrstuvwxyzABCD", 40);
        rig_read(q, m + 1200, key, m + 1216, key, 64, 8);
        memmove(want + 1216, want + 1200, 64);
        rig_fetch_add(q, m + 16, key, 1, m + 2000, key, 8);
        memcpy(want + 2000, want + 16, 8);
        word++;
        memcpy(want + 16, &word, 8);
        rig_ring(q);
        softnic_advance(r.nic[0], 0);
        CHECK_OK(q, first, 0x08, at + 1);
        CHECK_EQ(get32(rig_cqe(q, first) + 44), 0);
        CHECK_OK(q, first + 1, 0x08, at + 3);
        CHECK_EQ(get32(rig_cqe(q, first + 1) + 44), 0);
        CHECK_OK(q, first + 2, 0x00, at + 4);
        CHECK_OK(q, first + 3, 0x08, at + 7);
        CHECK_OK(q, first + 4, 0x10, at + 9);
        CHECK_EQ(get32(rig_cqe(q, first + 4) + 44), 64);
        CHECK_OK(q, first + 5, 0x12, at + 10);
        CHECK(memcmp(m, want, 4096) == 0);
    }
    struct softnic_counters n;
    MUST(softnic_counters_get(r.nic[0], q->qpn, &n));
    CHECK_EQ(n.wqes, 30);
    CHECK_EQ(n.wqe_atomic, 6);
    CHECK_EQ(n.wqe_read, 3);
    CHECK_EQ(n.wqe_nop, 9);
    CHECK_EQ(n.wqe_write, 12);
    CHECK_EQ(n.wqe_write_inline, 6);
    CHECK_EQ(n.payload_bytes, 3 * (8 + 501 + 8 + 8 + 40 + 64 + 8));
    free(want);
    rig_free(&r);
    bed_free(q);
}

/* Hundreds of words announced at once, inline and by pointer, NOPs among them, and here and there something else. */
static void test_many_words(void) {
    enum { DEPTH = 256, CELLS = 1024 };
    struct rig r = rig_virtual();
    uint8_t *sq = bed_alloc(DEPTH * 64), *dbr = bed_alloc(8);
    uint32_t cqn, qpn, posted = 0, others = 0, nops = 0;
    uint64_t *from = (uint64_t *)(void *)r.mem[0], *to = (uint64_t *)(void *)r.mem[1], want[CELLS + 8] = {0};
    struct softnic_cq_attr cq = {r.qp->cqe, 1, 1, NULL};
    MUST(softnic_cq_create(r.nic[0], &cq, &cqn));
    struct softnic_qp_attr qp = {sq, DEPTH, dbr + 4, NULL, cqn};
    MUST(softnic_qp_create(r.nic[0], &qp, &qpn));
    MUST(softnic_qp_connect(r.nic[0], qpn, 1, 0));
    for (uint32_t i = 0; i < CELLS + 8; i++)
        from[i] = 0x9e3779b97f4a7c15u * (i + 1);
    for (uint32_t lap = 0; lap < 8; lap++) {
        const uint32_t count = DEPTH - 31 * lap % 97, odd = lap ? 7 + 29 * lap : ~0u;
        for (uint32_t i = 0; i < count; i++, posted++) {
            uint8_t *c = sq + posted % DEPTH * 64;
            const uint32_t cell = posted % CELLS, bytes = i == odd ? 24 : 8;
            const int nop = i % 37 == 36, inlined = !nop && i != odd && i % 5;
            const uint64_t value = 0xabcdef0100000000u + posted;
            memset(c, 0xee, 64);
            memset(c, 0, 16);
            put16(c + 1, posted & 0xffff);
            c[3] = nop ? 0x00 : 0x08;
            c[4] = (uint8_t)(qpn >> 16);
            put16(c + 5, qpn);
            c[7] = nop ? 1 : 3;
            c[11] = i + 1 == count ? 8 : 0;
            put64(c + 16, (uintptr_t)&to[cell]);
            put32(c + 24, r.key[1]);
            put32(c + 32, inlined ? 0x80000000u | bytes : bytes);
            put32(c + 36, r.key[0]);
            put64(c + 40, (uintptr_t)&from[cell]);
            if (inlined)
                memcpy(c + 36, &value, 8);
            if (!nop)
                memcpy(&want[cell], inlined ? &value : &from[cell], bytes);
            nops += (uint32_t)nop;
            others += i == odd && !nop;
        }
        put32(dbr + 4, posted & 0xffff);
        softnic_advance(r.nic[0], 0);
        CHECK_EQ(get16(r.qp->cqe + 60), (posted - 1) & 0xffff);
        CHECK_EQ(r.qp->cqe[63], 0x00);
        CHECK(memcmp(to, want, sizeof want) == 0);
    }
    struct softnic_counters n;
    MUST(softnic_counters_get(r.nic[0], qpn, &n));
    CHECK_EQ(n.wqes, posted);
    CHECK_EQ(n.wqe_nop, nops);
    CHECK_EQ(n.payload_bytes, 8 * (posted - nops) + 16 * others);
    CHECK(others > 4);
    bed_free(sq);
    bed_free(dbr);
    rig_free(&r);
}

/* DUMP reads its local memory and moves nothing; it has a CQE like the others. */
static void test_dump(void) {
    struct rig r = rig_virtual();
    rig_ctrl(r.qp, 0x23, 0, 2, 8);
    rig_data(r.qp, 1, r.mem[0], r.key[0], 1);
    rig_advance_index(r.qp, 1);
    serve(&r);
    CHECK_OK(r.qp, 0, 0x23, 0);
    rig_free(&r);
}

/* Fence bits, signature and immediate change nothing here; only bit 3 asks for a CQE. */
static void test_flags(void) {
    struct rig r = rig_virtual();
    struct rig_qp *q = r.qp;
    static const uint8_t flags[] = {0x00, 0x80, 0x20, 0x02, 0x88, 0x2a};
    for (uint32_t i = 0; i < sizeof flags; i++) {
        uint32_t garbage = 0xdeadbeef;
        uint8_t *c = rig_seg(q, 0);
        rig_write_inline(q, r.mem[1] + i * 8, r.key[1], "12345678", 8, flags[i]);
        c[8] = 0x77;
        c[9] = 0x11;
        c[10] = 0x99;
        memcpy(c + 12, &garbage, 4);
    }
    serve(&r);
    CHECK_OK(q, 0, 0x08, 4);
    CHECK_OK(q, 1, 0x08, 5);
    CHECK(!rig_cqe_there(q, 2));
    for (uint32_t i = 0; i < sizeof flags; i++)
        CHECK(memcmp(r.mem[1] + i * 8, "12345678", 8) == 0);
    rig_free(&r);
}

/* put_signal: the payload, then the signal behind it, on one QP. And a QP connected to its own node, where
 * source and target may overlap. */
static void test_self(void) {
    struct rig r = rig_virtual();
    struct rig_qp *q = rig_qp_add(r.nic[0], 0, 0, 0);
    fill(r.mem[0], 1000, 7);
    uint8_t want[1000];
    memcpy(want, r.mem[0], 1000);
    rig_write(q, r.mem[0] + 10, r.key[0], r.mem[0], r.key[0], 990, 0);
    rig_fetch_add(q, r.mem[0] + 2048, r.key[0], 5, r.mem[0] + 4096, r.key[0], 8);
    rig_ring(q);
    softnic_advance(r.nic[0], 0);
    CHECK_OK(q, 0, 0x12, 1);
    CHECK(memcmp(r.mem[0] + 10, want, 990) == 0);
    CHECK_EQ(r.mem[0][2048], 5);
    bed_free(q);
    rig_free(&r);
}

/* Memory of malloc serves peers too as long as all of them live in one process. */
static void test_private_memory(void) {
    struct rig r = rig_virtual();
    uint8_t *mine = bed_alloc(256), *theirs = bed_alloc(256);
    uint32_t lkey, rkey;
    memcpy(mine, "private", 8);
    MUST(softnic_mr_register(r.nic[0], mine, 256, 0, &lkey));
    MUST(softnic_mr_register(r.nic[1], theirs, 256, SOFTNIC_REMOTE_WRITE, &rkey));
    rig_write(r.qp, theirs + 8, rkey, mine, lkey, 8, 8);
    serve(&r);
    CHECK_OK(r.qp, 0, 0x08, 0);
    CHECK(memcmp(theirs + 8, "private", 8) == 0);
    rig_free(&r);
    bed_free(mine);
    bed_free(theirs);
}

/* Zero-based: WQEs say offsets, on both sides; the region's bounds hold. */
static void test_zero_based(void) {
    struct rig r = rig_virtual();
    struct rig_qp *q = r.qp;
    uint32_t lkey, rkey;
    MUST(softnic_mr_register(r.nic[0], r.mem[0] + 100, 64, SOFTNIC_LOCAL_WRITE | SOFTNIC_ZERO_BASED, &lkey));
    MUST(softnic_mr_register(r.nic[1], r.mem[1] + 200, 64, ALL_RIGHTS | SOFTNIC_ZERO_BASED, &rkey));
    fill(r.mem[0], 300, 3);
    rig_write(q, (void *)8, rkey, (void *)4, lkey, 56, 8);
    rig_read(q, (void *)8, rkey, NULL, lkey, 3, 8);
    serve(&r);
    CHECK_OK(q, 0, 0x08, 0);
    CHECK_OK(q, 1, 0x10, 1);
    CHECK(memcmp(r.mem[1] + 208, r.mem[0] + 104, 56) == 0);
    CHECK(memcmp(r.mem[0] + 100, r.mem[1] + 208, 3) == 0);
    rig_write(q, (void *)8, rkey, NULL, lkey, 57, 8);
    serve(&r);
    CHECK_ERR(q, 2, 0x08, 2, 0x13);
    rig_free(&r);
}

/* Whatever wqe_decode_small() takes, wqe_decode() makes the same of; and it takes what small puts are made of. */
static void test_decode_small(void) {
    uint32_t taken = 0, random = 1;
    for (uint32_t i = 0; i < 400000; i++) {
        uint64_t words[WQE_BLOCK_WORDS];
        uint8_t *bytes = (uint8_t *)words;
        for (uint32_t k = 0; k < sizeof words; k++) {
            random = random * 1664525 + 1013904223;
            bytes[k] = (uint8_t)(random >> 24);
        }
        bytes[0] = random >> 8 & 15 ? 0 : bytes[0];
        bytes[3] = random >> 12 & 15 ? 0x08 : bytes[3];
        bytes[7] = (uint8_t)(random >> 16 & 7);
        put32(bytes + 32, (random >> 20 & 1) << 31 | (random >> 21 & 3 ? random >> 3 & 31 : random >> 2));
        struct wqe_head head = wqe_head(words);
        struct wqe_small small;
        struct wqe wqe = {0};
        if (!wqe_decode_small(words, &head, &small))
            continue;
        taken++;
        CHECK_EQ(wqe_decode(words, &head, &wqe), 0);
        CHECK_EQ(wqe.action, WQE_WRITE);
        CHECK(wqe.pieces == 1 && wqe.blocks == 1 && wqe.bytes == wqe.first.bytes);
        CHECK_EQ(small.raddr, wqe.raddr);
        CHECK_EQ(small.rkey, wqe.rkey);
        CHECK_EQ(small.bytes, wqe.bytes);
        CHECK_EQ(small.is_inline, wqe.is_inline);
        CHECK_EQ(small.addr, wqe.first.addr);
        CHECK_EQ(small.lkey, wqe.first.lkey);
        CHECK(!small.is_inline || wqe.first.data == bytes + 36);
    }
    CHECK(taken > 20000);
}

static void tests(void) {
    test_nop();
    test_write_pointer();
    test_write_inline();
    test_warp_inline_then_nop();
    test_write_pieces();
    test_read();
    test_atomics();
    test_in_a_row();
    test_many_words();
    test_dump();
    test_flags();
    test_self();
    test_private_memory();
    test_zero_based();
    test_decode_small();
}

int main(void) { return bed_run("wqe_test", &test_failures, tests); }
