/* For softnic's tests: CHECK, a bed that says which engine is tested, and a rig of NICs whose queues are filled byte
 * by byte. With SOFTNIC_TEST_GPU the same tests run on the GPU engine, see test_gpu.cc.
 *
 * The WQEs here are written from the published layouts with numbers only; nothing of mlx5.h's encoders or
 * constants is used, so that both cannot be wrong together.
 */
#ifndef SOFTNIC_TEST_H
#define SOFTNIC_TEST_H

#include "softnic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int test_failures __attribute__((unused));

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s: CHECK(%s) failed\n", __FILE__, __LINE__, __func__, #condition);      \
            test_failures++;                                                                                 \
        }                                                                                                    \
    } while (0)
#define CHECK_EQ(got, want)                                                                                  \
    do {                                                                                                     \
        unsigned long long got_ = (unsigned long long)(got), want_ = (unsigned long long)(want);             \
        if (got_ != want_) {                                                                                 \
            fprintf(stderr, "%s:%d: %s: %s = 0x%llx, want 0x%llx\n", __FILE__, __LINE__, __func__, #got,     \
                    got_, want_);                                                                            \
            test_failures++;                                                                                 \
        }                                                                                                    \
    } while (0)
/* For what the rest of a test stands on. */
#define MUST(call)                                                                                           \
    do {                                                                                                     \
        int status_ = (call);                                                                                \
        if (status_ != 0) {                                                                                  \
            fprintf(stderr, "%s:%d: %s = %d: %s\n", __FILE__, __LINE__, #call, status_, softnic_error());    \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

#define UNUSED __attribute__((unused))

static UNUSED void put16(uint8_t *p, uint32_t v) {
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}
static UNUSED void put32(uint8_t *p, uint32_t v) {
    put16(p, v >> 16);
    put16(p + 2, v);
}
static UNUSED void put64(uint8_t *p, uint64_t v) {
    put32(p, (uint32_t)(v >> 32));
    put32(p + 4, (uint32_t)v);
}
static UNUSED uint32_t get16(const uint8_t *p) { return (uint32_t)p[0] << 8 | p[1]; }
static UNUSED uint32_t get32(const uint8_t *p) { return get16(p) << 16 | get16(p + 2); }

static UNUSED int test_end(const char *name) {
    if (test_failures)
        fprintf(stderr, "%s: %d failed\n", name, test_failures);
    else
        printf("%s: ok\n", name);
    return test_failures != 0;
}

/* Memory for queues and private regions: zeroed, of whole cache lines, for the engine and this thread. */
#if defined(SOFTNIC_TEST_GPU)
enum { BED_GPU = 1 };
void *bed_alloc(size_t bytes);
void bed_free(void *addr);
struct softnic_attr bed_attr(struct softnic_attr attr); /* the same on the engine under test */
void *bed_memory(struct softnic *nic, size_t bytes);    /* for peers; goes with the NIC */
void bed_cpu(int on);                                   /* the CPU engine instead, until told otherwise */
int bed_run(const char *name, int *failures, void (*tests)(void));
#else
enum { BED_GPU = 0 };
static UNUSED void *bed_alloc(size_t bytes) {
    bytes = (bytes + 63) & ~(size_t)63;
    void *addr = aligned_alloc(64, bytes);
    memset(addr, 0, bytes);
    return addr;
}
static UNUSED void bed_free(void *addr) { free(addr); }
static UNUSED struct softnic_attr bed_attr(struct softnic_attr attr) { return attr; }
static UNUSED void *bed_memory(struct softnic *nic, size_t bytes) {
    void *addr;
    MUST(softnic_mem_alloc(nic, bytes, &addr));
    return addr;
}
static UNUSED int bed_run(const char *name, int *failures, void (*tests)(void)) {
    (void)failures;
    tests();
    return test_end(name);
}
#endif

enum { RIG_DEPTH = 16, RIG_CQ_DEPTH = 64, RIG_BYTES = 65536 };

/* One QP with all its memory. dbr: 8 bytes, the send counter is the second word. */
struct rig_qp {
    _Alignas(64) uint8_t sq[RIG_DEPTH * 64];
    _Alignas(64) uint8_t cqe[RIG_CQ_DEPTH * 64];
    _Alignas(64) uint8_t dbr[8];
    _Alignas(64) uint8_t cq_dbr[8];
    _Alignas(64) uint64_t bell;
    uint32_t qpn, cqn, posted; /* posted: next free block */
};

struct rig {
    struct softnic *nic[2];
    uint8_t *mem[2];   /* of bed_memory, RIG_BYTES */
    uint32_t key[2];   /* all rights */
    struct rig_qp *qp; /* on nic 0, connected to nic 1 */
};

static UNUSED char *rig_job(void) {
    static char job[64];
    static int n;
    snprintf(job, sizeof job, "gic-test-%d-%d", (int)getpid(), n++);
    return job;
}

static UNUSED struct rig_qp *rig_qp_add(struct softnic *nic, uint32_t to, int collapsed, int dbrec) {
    struct rig_qp *q = bed_alloc(sizeof *q);
    memset(q->sq, 0xa5, sizeof q->sq);
    struct softnic_cq_attr cq = {q->cqe, RIG_CQ_DEPTH, collapsed, dbrec ? q->cq_dbr : NULL};
    MUST(softnic_cq_create(nic, &cq, &q->cqn));
    struct softnic_qp_attr qp = {q->sq, RIG_DEPTH, q->dbr + 4, &q->bell, q->cqn};
    MUST(softnic_qp_create(nic, &qp, &q->qpn));
    MUST(softnic_qp_connect(nic, q->qpn, to, 0));
    return q;
}

enum {
    ALL_RIGHTS = SOFTNIC_LOCAL_WRITE | SOFTNIC_REMOTE_WRITE | SOFTNIC_REMOTE_READ | SOFTNIC_REMOTE_ATOMIC
};

static UNUSED struct rig rig_make(struct softnic_attr attr) {
    struct rig r;
    attr = bed_attr(attr);
    attr.job = rig_job();
    attr.nodes = 2;
    for (uint32_t i = 0; i < 2; i++) {
        attr.node = i;
        MUST(softnic_create(&attr, &r.nic[i]));
    }
    for (uint32_t i = 0; i < 2; i++) {
        r.mem[i] = bed_memory(r.nic[i], RIG_BYTES);
        MUST(softnic_mr_register(r.nic[i], r.mem[i], RIG_BYTES, ALL_RIGHTS, &r.key[i]));
    }
    r.qp = rig_qp_add(r.nic[0], 1, 0, 0);
    return r;
}

static UNUSED struct rig rig_virtual(void) {
    return rig_make((struct softnic_attr){.clock = SOFTNIC_VIRTUAL, .watch = SOFTNIC_WATCH_DBR});
}

static UNUSED void rig_free(struct rig *r) {
    softnic_destroy(r->nic[0]);
    softnic_destroy(r->nic[1]);
    bed_free(r->qp);
}

/* Block `i` of the WQE being built, at its place in the ring. */
static UNUSED uint8_t *rig_block(struct rig_qp *q, uint32_t i) {
    return q->sq + ((q->posted + i) % RIG_DEPTH) * 64;
}
/* Segment `i` of the WQE being built: 16 bytes; wraps with the ring. */
static UNUSED uint8_t *rig_seg(struct rig_qp *q, uint32_t i) { return rig_block(q, i / 4) + i % 4 * 16; }

/* Control segment: opmod, index, opcode | QPN, ds | 0 0 0 fm_ce_se | imm. */
static UNUSED void rig_ctrl(struct rig_qp *q, uint32_t opcode, uint32_t opmod, uint32_t ds, uint32_t flags) {
    uint8_t *c = rig_seg(q, 0);
    memset(c, 0, 16);
    c[0] = (uint8_t)opmod;
    put16(c + 1, q->posted & 0xffff);
    c[3] = (uint8_t)opcode;
    c[4] = (uint8_t)(q->qpn >> 16);
    put16(c + 5, q->qpn);
    c[7] = (uint8_t)ds;
    c[11] = (uint8_t)flags;
}
static UNUSED void rig_raddr(struct rig_qp *q, uint32_t seg, const void *raddr, uint32_t rkey) {
    put64(rig_seg(q, seg), (uintptr_t)raddr);
    put32(rig_seg(q, seg) + 8, rkey);
    put32(rig_seg(q, seg) + 12, 0);
}
static UNUSED void rig_data(struct rig_qp *q, uint32_t seg, const void *addr, uint32_t lkey, uint32_t bytes) {
    put32(rig_seg(q, seg), bytes);
    put32(rig_seg(q, seg) + 4, lkey);
    put64(rig_seg(q, seg) + 8, (uintptr_t)addr);
}
/* Inline data: header and bytes from segment `seg` on, over as many blocks as it takes. */
static UNUSED void rig_inline(struct rig_qp *q, uint32_t seg, const void *bytes, uint32_t n) {
    put32(rig_seg(q, seg), 0x80000000u | n);
    for (uint32_t i = 0; i < n; i++)
        rig_seg(q, seg + (4 + i) / 16)[(4 + i) % 16] = ((const uint8_t *)bytes)[i];
}
static UNUSED void rig_advance_index(struct rig_qp *q, uint32_t blocks) { q->posted += blocks; }
/* Doorbell record (16 bits), then the doorbell. */
static UNUSED void rig_ring(struct rig_qp *q) {
    uint8_t bell[8];
    uint32_t record;
    uint64_t word;
    uint8_t bytes[4];
    put32(bytes, q->posted & 0xffff);
    memcpy(&record, bytes, 4);
    __atomic_store_n((uint32_t *)(void *)(q->dbr + 4), record, __ATOMIC_RELEASE);
    put32(bell, (q->posted & 0xffff) << 8);
    put32(bell + 4, q->qpn << 8);
    memcpy(&word, bell, 8);
    __atomic_store_n(&q->bell, word, __ATOMIC_RELEASE);
}

/* The usual WQEs; each rings nothing. */
static UNUSED void rig_nop(struct rig_qp *q, uint32_t flags) {
    rig_ctrl(q, 0x00, 0, 1, flags);
    rig_advance_index(q, 1);
}
static UNUSED void rig_write(struct rig_qp *q, void *to, uint32_t rkey, const void *from, uint32_t lkey,
                             uint32_t bytes, uint32_t flags) {
    rig_ctrl(q, 0x08, 0, 3, flags);
    rig_raddr(q, 1, to, rkey);
    rig_data(q, 2, from, lkey, bytes);
    rig_advance_index(q, 1);
}
static UNUSED void rig_write_inline(struct rig_qp *q, void *to, uint32_t rkey, const void *bytes, uint32_t n,
                                    uint32_t flags) {
    uint32_t ds = 2 + (4 + n + 15) / 16;
    rig_ctrl(q, 0x08, 0, ds, flags);
    rig_raddr(q, 1, to, rkey);
    rig_inline(q, 2, bytes, n);
    rig_advance_index(q, (ds + 3) / 4);
}
static UNUSED void rig_read(struct rig_qp *q, const void *from, uint32_t rkey, void *to, uint32_t lkey,
                            uint32_t bytes, uint32_t flags) {
    rig_ctrl(q, 0x10, 0, 3, flags);
    rig_raddr(q, 1, from, rkey);
    rig_data(q, 2, to, lkey, bytes);
    rig_advance_index(q, 1);
}
/* ATOMIC_FA: raddr, {add, 0}, data. */
static UNUSED void rig_fetch_add(struct rig_qp *q, void *word, uint32_t rkey, uint64_t add, void *old,
                                 uint32_t lkey, uint32_t flags) {
    rig_ctrl(q, 0x12, 0, 4, flags);
    rig_raddr(q, 1, word, rkey);
    put64(rig_seg(q, 2), add);
    put64(rig_seg(q, 2) + 8, 0);
    rig_data(q, 3, old, lkey, 8);
    rig_advance_index(q, 1);
}

/* CQE number n (0 first) of a ring: op_own at 63 with opcode and owner, wqe_counter at 60, QPN at 57, WQE
 * opcode at 56, syndrome at 55. */
static UNUSED const uint8_t *rig_cqe(const struct rig_qp *q, uint32_t n) {
    return q->cqe + (n % RIG_CQ_DEPTH) * 64;
}
static UNUSED int rig_cqe_there(const struct rig_qp *q, uint32_t n) {
    uint8_t own = __atomic_load_n(rig_cqe(q, n) + 63, __ATOMIC_ACQUIRE);
    return own >> 4 != 0xf && (own & 1) == (n / RIG_CQ_DEPTH & 1);
}
#define CHECK_CQE(q, n, op, wqe_op, counter)                                                                 \
    do {                                                                                                     \
        const uint8_t *c_ = rig_cqe(q, n);                                                                   \
        CHECK(rig_cqe_there(q, n));                                                                          \
        CHECK_EQ(c_[63], (op) << 4 | ((n) / RIG_CQ_DEPTH & 1));                                              \
        CHECK_EQ(get16(c_ + 60), (counter)&0xffff);                                                          \
        CHECK_EQ(c_[56], wqe_op);                                                                            \
        CHECK_EQ(get32(c_ + 56) & 0xffffff, (q)->qpn);                                                       \
    } while (0)
#define CHECK_OK(q, n, wqe_op, counter) CHECK_CQE(q, n, 0x0, wqe_op, counter)
#define CHECK_ERR(q, n, wqe_op, counter, syndrome)                                                           \
    do {                                                                                                     \
        CHECK_CQE(q, n, 0xd, wqe_op, counter);                                                               \
        CHECK_EQ(rig_cqe(q, n)[55], syndrome);                                                               \
    } while (0)

#endif
