/* Every class of error: the syndrome, the QP's state, and the flush of what follows. */
#include "test.h"

#include <errno.h>

enum { /* IB syndromes as the CQE carries them */
       LENGTH = 0x01,
       QP_OP = 0x02,
       PROT = 0x04,
       FLUSH = 0x05,
       INVAL_REQ = 0x12,
       ACCESS = 0x13,
       RETRY = 0x15,
};

/* Posts: a good unsignaled write, the bad WQE, two more. Expects: the write done, one error CQE for the bad
 * one whether signaled or not, the rest flushed, nothing written by them. */
struct bad {
    const char *name;
    int syndrome;
    uint8_t opcode; /* in the error CQE */
    uint8_t blocks; /* of the bad WQE, as far as the NIC can tell */
    void (*post)(struct rig *r);
};

static void post_opcode(struct rig *r) { rig_ctrl(r->qp, 0x0a, 0, 3, 0); }
static void post_opcode_umr(struct rig *r) { rig_ctrl(r->qp, 0x25, 0, 3, 8); }
static void post_ds_zero(struct rig *r) { rig_ctrl(r->qp, 0x08, 0, 0, 8); }
static void post_ds_short(struct rig *r) { rig_ctrl(r->qp, 0x08, 0, 1, 8); }
static void post_ds_beyond(struct rig *r) { rig_ctrl(r->qp, 0x00, 0, 20, 8); }
static void post_opmod(struct rig *r) {
    rig_ctrl(r->qp, 0x08, 3, 3, 8);
    rig_raddr(r->qp, 1, r->mem[1], r->key[1]);
    rig_inline(r->qp, 2, "1", 1);
}
static void post_index(struct rig *r) {
    rig_ctrl(r->qp, 0x00, 0, 1, 8);
    put16(rig_seg(r->qp, 0) + 1, 0x0777);
}
static void post_qpn(struct rig *r) {
    rig_ctrl(r->qp, 0x00, 0, 1, 8);
    put16(rig_seg(r->qp, 0) + 5, r->qp->qpn + 1);
}
static void write_with(struct rig *r, uint64_t raddr, uint32_t rkey, uint64_t addr, uint32_t lkey,
                       uint32_t n) {
    rig_ctrl(r->qp, 0x08, 0, 3, 8);
    rig_raddr(r->qp, 1, (void *)(uintptr_t)raddr, rkey);
    rig_data(r->qp, 2, (void *)(uintptr_t)addr, lkey, n);
}
#define TO ((uintptr_t)r->mem[1])
#define FROM ((uintptr_t)r->mem[0])
static void post_rkey_zero(struct rig *r) { write_with(r, TO, 0, FROM, r->key[0], 8); }
static void post_rkey_variant(struct rig *r) { write_with(r, TO, r->key[1] ^ 1, FROM, r->key[0], 8); }
static void post_rkey_huge(struct rig *r) { write_with(r, TO, 0xffffff01, FROM, r->key[0], 8); }
static void post_raddr_below(struct rig *r) { write_with(r, TO - 1, r->key[1], FROM, r->key[0], 8); }
static void post_raddr_end(struct rig *r) {
    write_with(r, TO + RIG_BYTES - 7, r->key[1], FROM, r->key[0], 8);
}
static void post_raddr_wrap(struct rig *r) { write_with(r, UINT64_MAX - 3, r->key[1], FROM, r->key[0], 8); }
static void post_lkey(struct rig *r) { write_with(r, TO, r->key[1], FROM, r->key[0] + 1, 8); }
static void post_laddr_end(struct rig *r) {
    write_with(r, TO, r->key[1], FROM + RIG_BYTES - 4, r->key[0], 8);
}
static void post_laddr_wrap(struct rig *r) { write_with(r, TO, r->key[1], UINT64_MAX, r->key[0], 8); }
static void post_length_zero(struct rig *r) { write_with(r, TO, r->key[1], FROM, r->key[0], 0); }
static void post_length_huge(struct rig *r) { write_with(r, TO, r->key[1], FROM, r->key[0], 0x7fffffff); }
static void post_inline_long(struct rig *r) { /* more inline bytes than the WQE has room for */
    rig_ctrl(r->qp, 0x08, 0, 3, 8);
    rig_raddr(r->qp, 1, r->mem[1], r->key[1]);
    put32(rig_seg(r->qp, 2), 0x80000000u | 13);
}
static void post_inline_huge(struct rig *r) {
    rig_ctrl(r->qp, 0x08, 0, 3, 8);
    rig_raddr(r->qp, 1, r->mem[1], r->key[1]);
    put32(rig_seg(r->qp, 2), 0xffffffffu);
}
static void post_read_inline(struct rig *r) {
    rig_ctrl(r->qp, 0x10, 0, 3, 8);
    rig_raddr(r->qp, 1, r->mem[1], r->key[1]);
    rig_inline(r->qp, 2, "12", 2);
}
static void atomic_with(struct rig *r, uint64_t raddr, uint32_t opcode, uint32_t opmod, uint32_t ds,
                        uint32_t bytes) {
    rig_ctrl(r->qp, opcode, opmod, ds, 8);
    rig_raddr(r->qp, 1, (void *)(uintptr_t)raddr, r->key[1]);
    memset(rig_seg(r->qp, 2), 0, 16);
    rig_data(r->qp, 3, r->mem[0], r->key[0], bytes);
}
static void post_atomic_unaligned(struct rig *r) { atomic_with(r, TO + 4, 0x12, 0, 4, 8); }
static void post_masked_unaligned(struct rig *r) { atomic_with(r, TO + 2, 0x15, 8, 4, 4); }
static void post_atomic_ds(struct rig *r) { atomic_with(r, TO, 0x12, 0, 3, 8); }
static void post_atomic_room(struct rig *r) { atomic_with(r, TO, 0x12, 0, 4, 4); }
static void post_masked_opmod(struct rig *r) { atomic_with(r, TO, 0x15, 0x0a, 4, 8); }
static void post_wait_cq(struct rig *r) {
    rig_ctrl(r->qp, 0x0f, 0, 2, 8);
    memset(rig_seg(r->qp, 1), 0, 16);
    put32(rig_seg(r->qp, 1) + 12, 0x7777);
}
static void post_dump_key(struct rig *r) {
    rig_ctrl(r->qp, 0x23, 0, 2, 8);
    rig_data(r->qp, 1, r->mem[0], 0, 1);
}

static const struct bad bads[] = {
    {"SEND", QP_OP, 0x0a, 1, post_opcode},
    {"UMR", QP_OP, 0x25, 1, post_opcode_umr},
    {"ds 0", QP_OP, 0x08, 1, post_ds_zero},
    {"ds 1 for a WRITE", QP_OP, 0x08, 1, post_ds_short},
    {"ds beyond the doorbell record", QP_OP, 0x00, 1, post_ds_beyond},
    {"opmod of a WRITE", QP_OP, 0x08, 1, post_opmod},
    {"index of another slot", QP_OP, 0x00, 1, post_index},
    {"another QP's number", QP_OP, 0x00, 1, post_qpn},
    {"rkey 0", ACCESS, 0x08, 1, post_rkey_zero},
    {"rkey of another variant", ACCESS, 0x08, 1, post_rkey_variant},
    {"rkey beyond the table", ACCESS, 0x08, 1, post_rkey_huge},
    {"remote address below the region", ACCESS, 0x08, 1, post_raddr_below},
    {"remote range over the end", ACCESS, 0x08, 1, post_raddr_end},
    {"remote range around the address space", ACCESS, 0x08, 1, post_raddr_wrap},
    {"lkey wrong", PROT, 0x08, 1, post_lkey},
    {"local range over the end", PROT, 0x08, 1, post_laddr_end},
    {"local range around the address space", PROT, 0x08, 1, post_laddr_wrap},
    {"byte count 0 = 2^31", LENGTH, 0x08, 1, post_length_zero},
    {"byte count 2^31 - 1", LENGTH, 0x08, 1, post_length_huge},
    {"inline longer than the WQE", LENGTH, 0x08, 1, post_inline_long},
    {"inline of 2^31 - 1", LENGTH, 0x08, 1, post_inline_huge},
    {"inline READ", QP_OP, 0x10, 1, post_read_inline},
    {"atomic on 4 of 8", INVAL_REQ, 0x12, 1, post_atomic_unaligned},
    {"masked atomic on 2 of 4", INVAL_REQ, 0x15, 1, post_masked_unaligned},
    {"atomic without result segment", QP_OP, 0x12, 1, post_atomic_ds},
    {"atomic with 4 bytes for 8", LENGTH, 0x12, 1, post_atomic_room},
    {"masked atomic of 16 bytes", QP_OP, 0x15, 1, post_masked_opmod},
    {"WAIT on no CQ", QP_OP, 0x0f, 1, post_wait_cq},
    {"DUMP without key", PROT, 0x23, 1, post_dump_key},
};

static void run_bad(const struct bad *bad, struct softnic_profile profile, int unsignaled) {
    struct rig r = rig_make(
        (struct softnic_attr){.clock = SOFTNIC_VIRTUAL, .watch = SOFTNIC_WATCH_DBR, .profile = profile});
    struct rig_qp *q = r.qp;
    int failed = test_failures;
    rig_write_inline(q, r.mem[1] + 512, r.key[1], "good", 4, 0);
    bad->post(&r);
    uint8_t *ctrl = rig_seg(q, 0);
    if (unsignaled)
        ctrl[11] = 0;
    rig_advance_index(q, bad->blocks);
    rig_write_inline(q, r.mem[1] + 600, r.key[1], "lost", 4, 0);
    rig_nop(q, 8);
    rig_ring(q);
    softnic_advance(r.nic[0], 1000000);
    CHECK(memcmp(r.mem[1] + 512, "good", 4) == 0);
    CHECK_EQ(r.mem[1][600], 0);
    CHECK_ERR(q, 0, bad->opcode, 1, bad->syndrome);
    CHECK_ERR(q, 1, 0x08, 2, FLUSH);
    CHECK_ERR(q, 2, 0x00, 3, FLUSH);
    CHECK(!rig_cqe_there(q, 3));
    CHECK_EQ(softnic_qp_state(r.nic[0], q->qpn), SOFTNIC_QP_ERROR);
    CHECK_EQ(softnic_qp_syndrome(r.nic[0], q->qpn), bad->syndrome);
    /* What is posted later is flushed too. */
    rig_nop(q, 0);
    rig_ring(q);
    softnic_advance(r.nic[0], 1000000);
    CHECK_ERR(q, 3, 0x00, 4, FLUSH);
    struct softnic_counters n;
    MUST(softnic_counters_get(r.nic[0], q->qpn, &n));
    CHECK_EQ(n.wqes, 2);
    CHECK_EQ(n.flushed, 3);
    CHECK_EQ(n.cqes, 4);
    CHECK_EQ(n.error_cqes, 4);
    CHECK_EQ(n.payload_bytes, 4);
    CHECK_EQ(softnic_qp_syndrome(r.nic[0], q->qpn), bad->syndrome); /* the flushes did not hide it */
    if (failed != test_failures)
        fprintf(stderr, "  in \"%s\"%s\n", bad->name, profile.latency_ns ? " (timed)" : "");
    rig_free(&r);
}

static void test_bad_wqes(void) {
    struct softnic_profile none = {.latency_ns = 0}, timed = {.latency_ns = 1000};
    for (uint32_t i = 0; i < sizeof bads / sizeof *bads; i++) {
        run_bad(&bads[i], none, 0);
        run_bad(&bads[i], none, 1);
        run_bad(&bads[i], timed, 0);
    }
}

/* Each right on its own opens exactly its own operation. */
static void test_rights(void) {
    static const struct {
        uint8_t opcode;
        uint32_t right;
    } ops[] = {{0x08, SOFTNIC_REMOTE_WRITE}, {0x10, SOFTNIC_REMOTE_READ}, {0x12, SOFTNIC_REMOTE_ATOMIC}};
    for (int op = 0; op < 3; op++)
        for (uint32_t rights = 0; rights < 16; rights++) {
            struct rig r = rig_virtual();
            struct rig_qp *q = r.qp;
            uint32_t key;
            MUST(softnic_mr_register(r.nic[1], r.mem[1], 4096, rights, &key));
            if (op == 0)
                rig_write(q, r.mem[1], key, r.mem[0], r.key[0], 8, 8);
            else if (op == 1)
                rig_read(q, r.mem[1], key, r.mem[0], r.key[0], 8, 8);
            else
                rig_fetch_add(q, r.mem[1], key, 1, r.mem[0], r.key[0], 8);
            rig_ring(q);
            softnic_advance(r.nic[0], 0);
            if (rights & ops[op].right)
                CHECK_OK(q, 0, ops[op].opcode, 0);
            else
                CHECK_ERR(q, 0, ops[op].opcode, 0, ACCESS);
            rig_free(&r);
        }
    /* Local write is needed for results only. */
    for (int op = 0; op < 3; op++) {
        struct rig r = rig_virtual();
        struct rig_qp *q = r.qp;
        uint32_t lkey;
        MUST(softnic_mr_register(r.nic[0], r.mem[0], 4096, 0, &lkey));
        if (op == 0)
            rig_write(q, r.mem[1], r.key[1], r.mem[0], lkey, 8, 8);
        else if (op == 1)
            rig_read(q, r.mem[1], r.key[1], r.mem[0], lkey, 8, 8);
        else
            rig_fetch_add(q, r.mem[1], r.key[1], 1, r.mem[0], lkey, 8);
        rig_ring(q);
        softnic_advance(r.nic[0], 0);
        if (op == 0)
            CHECK_OK(q, 0, ops[op].opcode, 0);
        else
            CHECK_ERR(q, 0, ops[op].opcode, 0, PROT);
        rig_free(&r);
    }
}

/* A key that was used (and is cached) is dead after deregistration, also when its slot is taken again. */
static void test_stale_key(void) {
    for (int again = 0; again < 2; again++) {
        struct softnic_attr attr = {.clock = SOFTNIC_VIRTUAL, .watch = SOFTNIC_WATCH_DBR, .max_mrs = 2};
        struct rig r = rig_make(attr);
        struct rig_qp *q = r.qp;
        uint32_t key, next;
        MUST(softnic_mr_register(r.nic[1], r.mem[1], 64, SOFTNIC_REMOTE_WRITE, &key));
        rig_write_inline(q, r.mem[1], key, "1", 1, 8);
        rig_ring(q);
        softnic_advance(r.nic[0], 0);
        CHECK_OK(q, 0, 0x08, 0);
        MUST(softnic_mr_deregister(r.nic[1], key));
        CHECK_EQ(softnic_mr_deregister(r.nic[1], key), -EINVAL);
        if (again) {
            MUST(softnic_mr_register(r.nic[1], r.mem[1], 64, SOFTNIC_REMOTE_WRITE, &next));
            CHECK_EQ(next >> 8, key >> 8);
            CHECK(next != key);
        }
        rig_write_inline(q, r.mem[1], key, "2", 1, 8);
        rig_ring(q);
        softnic_advance(r.nic[0], 0);
        CHECK_ERR(q, 1, 0x08, 1, ACCESS);
        CHECK_EQ(r.mem[1][0], '1');
        rig_free(&r);
    }
}

/* The doorbell record further ahead than the queue is deep, or behind the NIC. */
static void test_index_out_of_range(void) {
    static const uint32_t records[] = {2 + RIG_DEPTH + 1, 2 + 0x8000, 0xffff, 1, 0};
    struct softnic_profile profiles[2] = {{.latency_ns = 0}, {.latency_ns = 1000}};
    for (uint32_t i = 0; i < 2 * sizeof records / sizeof *records; i++) {
        struct rig r = rig_make((struct softnic_attr){
            .clock = SOFTNIC_VIRTUAL, .watch = SOFTNIC_WATCH_DBR, .profile = profiles[i % 2]});
        struct rig_qp *q = r.qp;
        rig_nop(q, 8);
        rig_nop(q, 8);
        rig_ring(q);
        softnic_advance(r.nic[0], 5000);
        CHECK_OK(q, 1, 0x00, 1);
        q->posted = records[i / 2];
        rig_ring(q);
        softnic_advance(r.nic[0], 5000);
        CHECK_ERR(q, 2, 0x00, 2, QP_OP);
        CHECK(!rig_cqe_there(q, 3));
        CHECK_EQ(softnic_qp_state(r.nic[0], q->qpn), SOFTNIC_QP_ERROR);
        rig_free(&r);
    }
}

/* Reset brings a broken QP back: indices at zero, work flows again. */
static void test_reset(void) {
    struct softnic_profile profiles[2] = {{.latency_ns = 0}, {.latency_ns = 1000}};
    for (int i = 0; i < 2; i++) {
        struct rig r = rig_make((struct softnic_attr){
            .clock = SOFTNIC_VIRTUAL, .watch = SOFTNIC_WATCH_DBR, .profile = profiles[i]});
        struct rig_qp *q = r.qp;
        rig_write_inline(q, r.mem[1], 0, "x", 1, 8);
        rig_ring(q);
        softnic_advance(r.nic[0], 5000);
        CHECK_ERR(q, 0, 0x08, 0, ACCESS);
        memset(q->dbr, 0, 8);
        q->posted = 0;
        MUST(softnic_qp_reset(r.nic[0], q->qpn));
        CHECK_EQ(softnic_qp_state(r.nic[0], q->qpn), SOFTNIC_QP_RTS);
        softnic_advance(r.nic[0], 5000);
        CHECK(!rig_cqe_there(q, 1));
        rig_write_inline(q, r.mem[1], r.key[1], "x", 1, 8);
        rig_ring(q);
        softnic_advance(r.nic[0], 5000);
        CHECK_OK(q, 1, 0x08, 0);
        CHECK_EQ(r.mem[1][0], 'x');
        rig_free(&r);
    }
}

/* After a reset the record soon holds the value it had before: as many WQEs as last time, any number, both ways
 * of watching. */
static void test_reset_same_count(void) {
    for (uint32_t count = 1; count <= RIG_DEPTH; count++)
        for (int watch = 0; watch < 2; watch++) {
            struct rig r = rig_make((struct softnic_attr){
                .clock = SOFTNIC_VIRTUAL, .watch = watch ? SOFTNIC_WATCH_DBR : SOFTNIC_WATCH_BELL});
            struct rig_qp *q = r.qp;
            for (uint32_t lap = 0; lap < 3; lap++) {
                for (uint32_t i = 0; i < count; i++)
                    rig_nop(q, 8);
                rig_ring(q);
                softnic_advance(r.nic[0], 0);
                CHECK_OK(q, (lap + 1) * count - 1, 0x00, count - 1);
                memset(q->dbr, 0, 8);
                q->posted = 0;
                MUST(softnic_qp_reset(r.nic[0], q->qpn));
            }
            rig_free(&r);
        }
}

/* A peer that is gone does not answer: retries are exhausted. */
static void test_peer_gone(void) {
    struct rig r = rig_virtual();
    uint8_t *to = r.mem[1];
    softnic_destroy(r.nic[1]);
    r.nic[1] = NULL;
    rig_write_inline(r.qp, to, r.key[1], "x", 1, 8);
    rig_ring(r.qp);
    softnic_advance(r.nic[0], 0);
    CHECK_ERR(r.qp, 0, 0x08, 0, RETRY);
    rig_free(&r);
}

static void test_arguments(void) {
    struct softnic *nic = NULL;
    struct softnic_attr attr = {.job = "a/b", .nodes = 1};
    CHECK_EQ(softnic_create(&attr, &nic), -EINVAL);
    CHECK(strstr(softnic_error(), "a/b") != NULL);
    attr.job = rig_job();
    attr.node = 1;
    CHECK_EQ(softnic_create(&attr, &nic), -EINVAL);
    attr.node = 0;
    attr.nodes = 2;
    attr.clock = SOFTNIC_VIRTUAL;
    attr.workers = 2;
    CHECK_EQ(softnic_create(&attr, &nic), -EINVAL);
    attr.workers = 0;
    attr.profile.bandwidth = 1;
    CHECK_EQ(softnic_create(&attr, &nic), -EINVAL);
    attr.profile.bandwidth = 0;
    attr.max_qps = 1;
    attr.watch = SOFTNIC_WATCH_DBR;
    MUST(softnic_create(&attr, &nic));
    struct softnic *twin;
    CHECK_EQ(softnic_create(&attr, &twin), -EEXIST);
    CHECK_EQ(softnic_start(nic), -EINVAL);
    uint32_t cqn, qpn, key;
    struct rig_qp *q = bed_alloc(sizeof *q);
    struct softnic_cq_attr cq = {q->cqe, 3, 0, NULL};
    CHECK_EQ(softnic_cq_create(nic, &cq, &cqn), -EINVAL);
    cq = (struct softnic_cq_attr){q->cqe + 8, 4, 0, NULL};
    CHECK_EQ(softnic_cq_create(nic, &cq, &cqn), -EINVAL);
    cq = (struct softnic_cq_attr){q->cqe, 4, 0, NULL};
    MUST(softnic_cq_create(nic, &cq, &cqn));
    struct softnic_qp_attr bad[] = {
        {q->sq, 3, q->dbr + 4, &q->bell, cqn},  {q->sq, 65536, q->dbr + 4, &q->bell, cqn},
        {q->sq + 16, 4, q->dbr + 4, NULL, cqn}, {q->sq, 4, NULL, NULL, cqn},
        {q->sq, 4, q->dbr + 3, NULL, cqn},      {q->sq, 4, q->dbr + 4, NULL, cqn + 1},
    };
    for (uint32_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_EQ(softnic_qp_create(nic, &bad[i], &qpn), -EINVAL);
    struct softnic_qp_attr good = {q->sq, 4, q->dbr + 4, NULL, cqn};
    MUST(softnic_qp_create(nic, &good, &qpn));
    CHECK_EQ(softnic_qp_create(nic, &good, &cqn), -ENOMEM);
    CHECK_EQ(softnic_qp_connect(nic, qpn, 2, 0), -EINVAL);
    CHECK_EQ(softnic_qp_connect(nic, qpn, 1, 0), -ENXIO);
    CHECK_EQ(softnic_qp_connect(nic, qpn + 1, 0, 0), -EINVAL);
    CHECK_EQ(softnic_qp_state(nic, qpn), SOFTNIC_QP_INIT);
    /* Node 1 is not here, so it could not reach private memory. */
    CHECK_EQ(softnic_mr_register(nic, q, 64, SOFTNIC_REMOTE_WRITE, &key), -EFAULT);
    CHECK_EQ(softnic_mr_register(nic, q, 0, 0, &key), -EINVAL);
    CHECK_EQ(softnic_mr_register(nic, q, SIZE_MAX, 0, &key), -EINVAL);
    CHECK_EQ(softnic_mr_register(nic, q, 64, 64, &key), -EINVAL);
    void *mem;
    MUST(softnic_mem_alloc(nic, 100, &mem));
    MUST(softnic_mr_register(nic, mem, 100, SOFTNIC_REMOTE_WRITE, &key));
    CHECK_EQ(softnic_mem_free(nic, mem), -EBUSY);
    MUST(softnic_mr_deregister(nic, key));
    MUST(softnic_mem_free(nic, mem));
    CHECK_EQ(softnic_mem_free(nic, mem), -EINVAL);
    struct softnic_profile profile;
    CHECK_EQ(softnic_profile_find("cx9", &profile), -ENOENT);
    CHECK(strstr(softnic_error(), "cx7-200") != NULL);
    softnic_destroy(nic);
    bed_free(q);
}

/* A program without CUDA says so; the rest of what the engine is asked for is checked first or beside it. */
static void test_no_gpu(void) {
    struct softnic *nic;
    struct softnic_attr attr = {.job = rig_job(), .nodes = 1, .engine = SOFTNIC_ENGINE_GPU};
    CHECK_EQ(softnic_gpu_built(), 0);
    CHECK_EQ(softnic_create(&attr, &nic), -ENOTSUP);
    CHECK(strstr(softnic_error(), "built without CUDA") != NULL);
    attr.engine = 7;
    CHECK_EQ(softnic_create(&attr, &nic), -EINVAL);
    attr = (struct softnic_attr){.job = rig_job(), .nodes = 1, .clock = SOFTNIC_VIRTUAL};
    MUST(softnic_create(&attr, &nic));
    void *addr;
    CHECK_EQ(softnic_mem_alloc_gpu(nic, 4096, &addr), -ENOTSUP);
    CHECK_EQ(softnic_mem_share_gpu(nic, &attr, 64), -ENOTSUP);
    CHECK_EQ(softnic_engine_error(nic), 0);
    softnic_destroy(nic);
}

static void tests(void) {
    test_bad_wqes();
    test_rights();
    test_stale_key();
    test_index_out_of_range();
    test_reset();
    test_reset_same_count();
    test_peer_gone();
    test_arguments();
    if (!BED_GPU)
        test_no_gpu();
}

int main(void) { return bed_run("error_test", &test_failures, tests); }
