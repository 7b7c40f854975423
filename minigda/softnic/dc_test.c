/* DC queue pairs: every kind of request does what it does on an RC queue pair, at the node that its address vector names. */
#include "test.h"

#include <errno.h>

enum { LENGTH = 0x01, QP_OP = 0x02, PROT = 0x04, FLUSH = 0x05, ACCESS = 0x13, RETRY = 0x15 };

static const uint64_t dc_key = 0x1122334455667788;

struct dc {
    struct rig r;
    struct rig_qp *qp; /* DC, on nic 0 */
    uint32_t dct[2];
};

static struct rig_qp *dc_qp_add(struct softnic *nic) {
    struct rig_qp *q = bed_alloc(sizeof *q);
    struct softnic_cq_attr cq = {q->cqe, RIG_CQ_DEPTH, 0, NULL};
    MUST(softnic_cq_create(nic, &cq, &q->cqn));
    struct softnic_qp_attr qp = {q->sq, RIG_DEPTH, q->dbr + 4, &q->bell, q->cqn};
    MUST(softnic_qp_create(nic, &qp, &q->qpn));
    return q;
}

static struct dc dc_make(struct softnic_attr attr) {
    struct dc d;
    d.r = rig_make(attr);
    for (int i = 0; i < 2; i++)
        MUST(softnic_dct_create(d.r.nic[i], dc_key + (uint64_t)i, &d.dct[i]));
    d.qp = dc_qp_add(d.r.nic[0]);
    MUST(softnic_qp_connect_dc(d.r.nic[0], d.qp->qpn));
    return d;
}
static struct dc dc_virtual(void) {
    return dc_make((struct softnic_attr){.clock = SOFTNIC_VIRTUAL, .watch = SOFTNIC_WATCH_DBR});
}
static void dc_free(struct dc *d) {
    rig_free(&d->r);
    bed_free(d->qp);
}

/* Makes the WQE that begins at block `start` and ends at q->posted one with an address vector, of 16 or 48 bytes. */
static void address(struct rig_qp *q, uint32_t start, uint32_t lid, uint32_t dct, uint64_t key,
                    int extended) {
    uint8_t segs[64][16];
    q->posted = start;
    const uint32_t ds = rig_seg(q, 0)[7], more = extended ? 3 : 1;
    for (uint32_t i = 1; i < ds; i++)
        memcpy(segs[i], rig_seg(q, i), 16);
    memset(rig_seg(q, 1), 0, 16);
    put64(rig_seg(q, 1), key);
    put32(rig_seg(q, 1) + 8, dct | (extended ? 0x80000000u : 0));
    put16(rig_seg(q, 1) + 14, lid);
    for (uint32_t i = 2; i < 1 + more; i++)
        memset(rig_seg(q, i), 0xee, 16);
    for (uint32_t i = 1; i < ds; i++)
        memcpy(rig_seg(q, i + more), segs[i], 16);
    rig_seg(q, 0)[7] = (uint8_t)(ds + more);
    rig_advance_index(q, (ds + more + 3) / 4);
}

/* Request `kind` on words of `to` and `from`; the same for both queue pairs. */
enum { KINDS = 8 };
static void post(struct rig_qp *q, int kind, uint8_t *to, uint32_t rkey, uint8_t *from, uint32_t lkey) {
    static const char text[] =
        "what is carried in a WQE may be as long as several of its blocks, and is no less whole";
    switch (kind) {
    case 0:
        rig_write(q, to, rkey, from, lkey, 200, 8);
        return;
    case 1:
        rig_write_inline(q, to + 256, rkey, text, 8, 8);
        return;
    case 2:
        rig_write_inline(q, to + 320, rkey, text, sizeof text, 8);
        return;
    case 3:
        rig_read(q, to, rkey, from + 512, lkey, 100, 8);
        return;
    case 4:
        rig_fetch_add(q, to + 768, rkey, 7, from + 768, lkey, 8);
        return;
    case 5: /* masked compare-and-swap of 8 bytes: two blocks, with a vector still two */
        rig_ctrl(q, 0x14, 0x09, 5, 8);
        rig_raddr(q, 1, to + 776, rkey);
        put64(rig_seg(q, 2), 0x0102030405060708);
        put64(rig_seg(q, 2) + 8, 0);
        put64(rig_seg(q, 3), ~0ull);
        put64(rig_seg(q, 3) + 8, 0);
        rig_data(q, 4, from + 776, lkey, 8);
        rig_advance_index(q, 2);
        return;
    case 6: /* two pieces */
        rig_ctrl(q, 0x08, 0, 4, 8);
        rig_raddr(q, 1, to + 1024, rkey);
        rig_data(q, 2, from, lkey, 16);
        rig_data(q, 3, from + 64, lkey, 16);
        rig_advance_index(q, 1);
        return;
    default:
        rig_nop(q, 8);
    }
}

/* Rounds of all kinds, now to the peer and now to the own node, in a ring that is soon full. */
static void test_kinds(int extended, uint64_t latency_ns) {
    struct softnic_attr attr = {.clock = SOFTNIC_VIRTUAL, .watch = SOFTNIC_WATCH_DBR};
    attr.profile.latency_ns = latency_ns;
    struct dc d = dc_make(attr);
    struct rig *r = &d.r;
    struct rig_qp *rc[2] = {rig_qp_add(r->nic[0], 0, 0, 0), r->qp}; /* to the own node, to the peer */
    for (int i = 0; i < RIG_BYTES; i++)
        r->mem[0][i] = (uint8_t)(i % 8192 * 37 >> 3); /* the same for both */
    uint32_t cqes = 0, had[2] = {0, 0};
    for (int round = 0; round < 6; round++)
        for (int kind = 0; kind < KINDS; kind++) {
            const int node = round % 3 == 1 ? 0 : 1;
            /* RC: targets at 16384, local at 0; DC: 24576, 8192; 4096 in between, so that the own node's lie apart. */
            post(rc[node], kind, r->mem[node] + 16384, r->key[node], r->mem[0], r->key[0]);
            rig_ring(rc[node]);
            const uint32_t start = d.qp->posted;
            post(d.qp, kind, r->mem[node] + 24576, r->key[node], r->mem[0] + 8192, r->key[0]);
            if (kind != 7)
                address(d.qp, start, (uint32_t)node + 1, d.dct[node], dc_key + (uint64_t)node, extended);
            rig_ring(d.qp);
            softnic_advance(r->nic[0], latency_ns);
            CHECK_OK(d.qp, cqes, rig_cqe(rc[node], had[node])[56], start);
            CHECK(rig_cqe_there(rc[node], had[node]));
            cqes++;
            had[node]++;
        }
    for (int node = 0; node < 2; node++)
        CHECK(memcmp(r->mem[node] + 16384, r->mem[node] + 24576, 8192) == 0);
    CHECK(memcmp(r->mem[0], r->mem[0] + 8192, 8192) == 0);
    struct softnic_counters dc, one, two;
    MUST(softnic_counters_get(r->nic[0], d.qp->qpn, &dc));
    MUST(softnic_counters_get(r->nic[0], rc[0]->qpn, &one));
    MUST(softnic_counters_get(r->nic[0], rc[1]->qpn, &two));
    CHECK_EQ(dc.wqes, one.wqes + two.wqes);
    CHECK_EQ(dc.wqe_write, one.wqe_write + two.wqe_write);
    CHECK_EQ(dc.wqe_read, one.wqe_read + two.wqe_read);
    CHECK_EQ(dc.wqe_atomic, one.wqe_atomic + two.wqe_atomic);
    CHECK_EQ(dc.payload_bytes, one.payload_bytes + two.payload_bytes);
    CHECK_EQ(dc.wqe_bytes, one.wqe_bytes + two.wqe_bytes + 6u * (KINDS - 1) * (extended ? 48 : 16));
    CHECK_EQ(dc.cqes, cqes);
    bed_free(rc[0]);
    dc_free(&d);
}

/* A good write, a bad one, one more: as on an RC queue pair, whose last is flushed. */
static void check_bad(const char *name, uint32_t lid, uint32_t dct, uint64_t key, uint32_t ds, int local,
                      int syndrome) {
    struct dc d = dc_virtual();
    struct rig *r = &d.r;
    const int before = test_failures;
    rig_write(d.qp, r->mem[1], r->key[1], r->mem[0], r->key[0], 8, 8);
    address(d.qp, 0, 2, d.dct[1], dc_key + 1, 0);
    rig_write(d.qp, r->mem[1] + 64, r->key[1], r->mem[0], local ? r->key[0] + 0x100 : r->key[0], 8, 0);
    address(d.qp, 1, lid, dct == 0 ? d.dct[1] : dct == 1 ? r->key[1] : dct, key, ds == 3);
    if (ds)
        d.qp->sq[64 + 7] = (uint8_t)ds;
    d.qp->posted = 2;
    rig_write(d.qp, r->mem[1] + 128, r->key[1], r->mem[0], r->key[0], 8, 8);
    address(d.qp, 2, 2, d.dct[1], dc_key + 1, 0);
    r->mem[0][0] = 0x77;
    rig_ring(d.qp);
    softnic_advance(r->nic[0], 0);
    CHECK_OK(d.qp, 0, 0x08, 0);
    CHECK_ERR(d.qp, 1, 0x08, 1, syndrome);
    CHECK_ERR(d.qp, 2, 0x08, 2, FLUSH);
    CHECK_EQ(softnic_qp_syndrome(r->nic[0], d.qp->qpn), syndrome);
    CHECK_EQ(r->mem[1][0], 0x77);
    CHECK_EQ(r->mem[1][64], 0);
    CHECK_EQ(r->mem[1][128], 0);
    if (test_failures != before)
        fprintf(stderr, "  in: %s\n", name);
    dc_free(&d);
}
static void test_bad(void) {
    check_bad("no LID", 0, 0, dc_key + 1, 0, 0, RETRY);
    check_bad("a LID too far", 3, 0, dc_key + 1, 0, 0, RETRY);
    check_bad("the last LID", 0xffff, 0, dc_key + 1, 0, 0, RETRY);
    check_bad("no such DCT", 2, 0x4243, dc_key + 1, 0, 0, RETRY);
    check_bad("a key of memory", 2, 1, dc_key + 1, 0, 0, RETRY);
    check_bad("the key of another DCT", 2, 0, dc_key, 0, 0, ACCESS);
    check_bad("a bad local key", 2, 0, dc_key + 1, 0, 1, PROT);
    check_bad("no room for the vector", 2, 0, dc_key + 1, 1, 0, QP_OP);
    check_bad("no room for the long vector", 2, 0, dc_key + 1, 3, 0, QP_OP);
}

/* The number of a DCT is no key of memory. */
static void test_number(void) {
    struct dc d = dc_virtual();
    struct rig_qp *q = d.r.qp;
    CHECK(d.dct[1] != 0 && d.dct[1] <= 0xffffff);
    CHECK_EQ(softnic_mr_deregister(d.r.nic[1], d.dct[1]), -EINVAL);
    rig_write(q, (void *)(uintptr_t)(dc_key + 1), d.dct[1], d.r.mem[0], d.r.key[0], 8, 8);
    rig_ring(q);
    softnic_advance(d.r.nic[0], 0);
    CHECK_ERR(q, 0, 0x08, 0, ACCESS);
    dc_free(&d);
}

/* A DCT that came after the queue pair, and one of a node that has gone. */
static void test_late(void) {
    struct dc d = dc_virtual();
    uint32_t later;
    rig_write(d.qp, d.r.mem[1], d.r.key[1], d.r.mem[0], d.r.key[0], 8, 8);
    address(d.qp, 0, 2, d.dct[1], dc_key + 1, 0);
    rig_ring(d.qp);
    softnic_advance(d.r.nic[0], 0);
    CHECK_OK(d.qp, 0, 0x08, 0);
    MUST(softnic_dct_create(d.r.nic[1], 5, &later));
    rig_write(d.qp, d.r.mem[1], d.r.key[1], d.r.mem[0], d.r.key[0], 8, 8);
    address(d.qp, 1, 2, later, 5, 0);
    rig_ring(d.qp);
    softnic_advance(d.r.nic[0], 0);
    CHECK_OK(d.qp, 1, 0x08, 1);
    softnic_destroy(d.r.nic[1]);
    d.r.nic[1] = NULL;
    rig_write(d.qp, d.r.mem[0], d.r.key[1], d.r.mem[0], d.r.key[0], 8, 8);
    address(d.qp, 2, 2, later, 5, 0);
    rig_ring(d.qp);
    softnic_advance(d.r.nic[0], 0);
    CHECK_ERR(d.qp, 2, 0x08, 2, RETRY);
    dc_free(&d);
}

static void test_connect(void) {
    struct dc d = dc_virtual();
    CHECK_EQ(softnic_qp_connect_dc(d.r.nic[0], d.qp->qpn), -EISCONN);
    CHECK_EQ(softnic_qp_connect(d.r.nic[0], d.qp->qpn, 1, 0), -EISCONN);
    CHECK_EQ(softnic_qp_connect_dc(d.r.nic[0], 0x4711), -EINVAL);
    dc_free(&d);
    struct softnic_attr attr =
        bed_attr((struct softnic_attr){.clock = SOFTNIC_VIRTUAL, .job = rig_job(), .nodes = 2});
    struct softnic *alone;
    MUST(softnic_create(&attr, &alone));
    struct rig_qp *q = dc_qp_add(alone);
    CHECK_EQ(softnic_qp_connect_dc(alone, q->qpn), -ENXIO);
    softnic_destroy(alone);
    bed_free(q);
    attr.nodes = 1;
    attr.job = rig_job();
    attr.profile.latency_ns = 100;
    MUST(softnic_create(&attr, &alone));
    q = dc_qp_add(alone);
    CHECK_EQ(softnic_qp_connect_dc(alone, q->qpn), BED_GPU ? -ENOTSUP : 0);
    softnic_destroy(alone);
    bed_free(q);
}

static void tests(void) {
    test_kinds(0, 0);
    test_kinds(1, 0);
    if (!BED_GPU) /* whose DC queue pairs have no profile */
        test_kinds(1, 700);
    test_bad();
    test_number();
    test_late();
    test_connect();
}

int main(void) { return bed_run("dc_test", &test_failures, tests); }
