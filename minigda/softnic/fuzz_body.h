/* What the fuzzers run: bytes are a program for a driver that writes anything anywhere into its queues, doorbell
 * records, doorbells and consumer indices, registers, deregisters, frees, resets and lets time pass.
 *
 * Checked besides what the sanitizers see: guard bytes around the registered regions, that time advances return,
 * and that the counters agree with each other.
 *
 * WQEs are mostly well formed with one field spoilt, so that the deep parts are reached; some are pure noise.
 */
#ifndef SOFTNIC_FUZZ_BODY_H
#define SOFTNIC_FUZZ_BODY_H

#include "softnic.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* With SOFTNIC_TEST_GPU it is the GPU engine that is fuzzed, see test_warp.cc. */
#if defined(SOFTNIC_TEST_GPU)
struct softnic_attr bed_attr(struct softnic_attr attr);
#endif

enum { FUZZ_QPS = 3, FUZZ_DEPTH = 8, FUZZ_CQ = 4, FUZZ_REGION = 256, FUZZ_GUARD = 64, FUZZ_KEYS = 6 };

static uint64_t fuzz_seed;           /* to name in a failure; 0 under libFuzzer */
static uint32_t fuzz_qps = FUZZ_QPS; /* that are used */

struct fuzz_input {
    const uint8_t *at, *end;
};
static uint8_t fuzz_u8(struct fuzz_input *in) { return in->at < in->end ? *in->at++ : 0; }
static uint32_t fuzz_u32(struct fuzz_input *in) {
    uint32_t v = 0;
    for (int i = 0; i < 4; i++)
        v = v << 8 | fuzz_u8(in);
    return v;
}

struct fuzz_qp {
    _Alignas(64) uint8_t sq[FUZZ_DEPTH * 64];
    _Alignas(64) uint8_t cqe[FUZZ_CQ * 64];
    uint32_t dbr[2], cq_dbr[2];
    uint64_t bell;
    uint32_t qpn, cqn;
    uint16_t posted;
};

struct fuzz {
    struct softnic *nic[2];
    struct fuzz_qp qp[FUZZ_QPS];
    uint8_t *memory[2]; /* guard, region, guard: malloc'ed, so ASan knows its edges too */
    uint32_t key[FUZZ_KEYS];
};

/* What a program leaves behind, to compare engines by. */
struct fuzz_end {
    uint8_t memory[2][FUZZ_REGION];
    uint8_t cqe[FUZZ_QPS][FUZZ_CQ * 64];
    struct softnic_counters n[FUZZ_QPS];
    uint32_t state[FUZZ_QPS], syndrome[FUZZ_QPS];
};
static struct fuzz_end *fuzz_end; /* NULL: nobody asks */

#define FUZZ_REQUIRE(condition)                                                                              \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "fuzz: %s failed, seed %llu (%s)\n", #condition, (unsigned long long)fuzz_seed,  \
                    softnic_error());                                                                        \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

static void fuzz_put(uint8_t *p, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++)
        p[i] = (uint8_t)(v >> 8 * (bytes - 1 - i));
}

static uint64_t fuzz_address(struct fuzz *f, struct fuzz_input *in, int node) {
    uint64_t base = (uintptr_t)f->memory[node] + FUZZ_GUARD;
    uint8_t how = fuzz_u8(in);
    if (how < 230)
        return base + how / 2;
    if (how < 250)
        return base + FUZZ_REGION - 64 - how % 16;
    if (how < 253)
        return base - how % 32;
    return (uint64_t)fuzz_u32(in) << 32 | fuzz_u32(in);
}

static uint32_t fuzz_key(struct fuzz *f, struct fuzz_input *in, int node) {
    uint8_t how = fuzz_u8(in);
    if (how < 225)
        return f->key[node];
    if (how < 250)
        return f->key[how % FUZZ_KEYS];
    return fuzz_u32(in);
}

static uint32_t fuzz_bytes(struct fuzz_input *in) {
    uint8_t how = fuzz_u8(in);
    return how < 248 ? 1u + how % 64 : fuzz_u32(in);
}

/* A segment's place in the ring, counted from the WQE's first. */
static uint8_t *fuzz_seg(struct fuzz_qp *q, uint32_t i) {
    return q->sq + ((q->posted + i / 4) % FUZZ_DEPTH) * 64 + i % 4 * 16;
}

static void fuzz_data(struct fuzz *f, struct fuzz_qp *q, uint32_t seg, struct fuzz_input *in,
                      uint32_t bytes) {
    fuzz_put(fuzz_seg(q, seg), bytes, 4);
    fuzz_put(fuzz_seg(q, seg) + 4, fuzz_key(f, in, 0), 4);
    fuzz_put(fuzz_seg(q, seg) + 8, fuzz_address(f, in, 0), 8);
}

static void fuzz_wqe(struct fuzz *f, struct fuzz_qp *q, struct fuzz_input *in) {
    static const uint8_t opcodes[] = {0x00, 0x08, 0x08, 0x08, 0x0f, 0x10, 0x11,
                                      0x12, 0x14, 0x15, 0x14, 0x15, 0x23};
    uint8_t shape = fuzz_u8(in), opcode = opcodes[shape % sizeof opcodes], opmod = 0, ds = 1 + shape / 64;
    for (uint32_t i = 0; i < 8; i++) /* old noise stays where nothing is written */
        if (fuzz_u8(in) < 4)
            fuzz_put(fuzz_seg(q, i), fuzz_u32(in), 4);
    switch (opcode) {
    case 0x08:
    case 0x10:
        ds = (uint8_t)(2 + fuzz_u8(in) % 64 / 12);
        for (uint32_t s = 2; s < ds; s++) {
            uint32_t bytes = fuzz_bytes(in);
            fuzz_data(f, q, s, in, bytes);
            if (opcode == 0x08 && fuzz_u8(in) % 2) {
                uint32_t room = (ds - s) * 16 - 4;
                bytes = bytes > room && bytes < 64 ? room : bytes;
                fuzz_put(fuzz_seg(q, s), 0x80000000u | bytes, 4);
                s += (4 + bytes % 128 + 15) / 16 - 1;
            }
        }
        break;
    case 0x0f:
        ds = 2;
        fuzz_put(fuzz_seg(q, 1) + 8, fuzz_u8(in) % 16, 4);
        fuzz_put(fuzz_seg(q, 1) + 12, f->qp[fuzz_u8(in) % fuzz_qps].cqn + fuzz_u8(in) / 250, 4);
        break;
    case 0x23:
        ds = 2;
        fuzz_data(f, q, 1, in, fuzz_bytes(in));
        break;
    case 0x00:
        break;
    default:
        opmod = opcode >= 0x14 ? 8 + fuzz_u8(in) % 2 : 0;
        ds = opcode == 0x14 && opmod == 9 ? 5 : 4;
        fuzz_data(f, q, ds - 1u, in, opmod == 8 ? 4 : 8);
    }
    if (opcode != 0x00 && opcode != 0x0f && opcode != 0x23) {
        fuzz_put(fuzz_seg(q, 1), fuzz_address(f, in, 1) & ~(uint64_t)(fuzz_u8(in) < 200 ? 7 : 0), 8);
        fuzz_put(fuzz_seg(q, 1) + 8, fuzz_key(f, in, 1), 4);
    }
    uint8_t *c = fuzz_seg(q, 0);
    fuzz_put(c, (uint32_t)opmod << 24 | (uint32_t)q->posted << 8 | opcode, 4);
    fuzz_put(c + 4, q->qpn << 8 | ds, 4);
    fuzz_put(c + 8, fuzz_u8(in), 4);
    uint8_t spoil = fuzz_u8(in);
    if (spoil >= 250)
        c[spoil % 12] = fuzz_u8(in);
    q->posted = (uint16_t)(q->posted + (ds + 3) / 4);
}

static void fuzz_ring(struct fuzz *f, struct fuzz_qp *q, struct fuzz_input *in) {
    uint8_t how = fuzz_u8(in);
    if (how % 4 && softnic_qp_state(f->nic[0], q->qpn) == SOFTNIC_QP_ERROR) { /* most drivers recover */
        q->dbr[1] = 0;
        q->posted = 0;
        FUZZ_REQUIRE(softnic_qp_reset(f->nic[0], q->qpn) == 0);
        return;
    }
    if (how >= 250)
        q->posted = (uint16_t)fuzz_u32(in);
    fuzz_put((uint8_t *)&q->dbr[1], q->posted, 4);
    if (how % 32 == 7)
        q->dbr[1] = fuzz_u32(in);
    fuzz_put((uint8_t *)&q->bell, (uint64_t)q->posted << 40 | (uint64_t)q->qpn << 8, 8);
    if (how % 16 == 11)
        q->bell = fuzz_u32(in);
}

static uint32_t fuzz_register(struct fuzz *f, int node, uint32_t access) {
    uint32_t key = 0;
    FUZZ_REQUIRE(softnic_mr_register(f->nic[node], f->memory[node] + FUZZ_GUARD, FUZZ_REGION, access, &key) ==
                 0);
    return key;
}

/* Keys 0 and 1 are the usual ones of the two nodes; 2..5 are theirs with other rights. */
static void fuzz_keys(struct fuzz *f, struct fuzz_input *in) {
    uint32_t i = fuzz_u8(in) % FUZZ_KEYS;
    int node = i % 2;
    if (softnic_mr_deregister(f->nic[node], f->key[i]) == 0)
        f->key[i] = fuzz_register(f, node, i < 2 ? 15 : fuzz_u8(in) & 15);
}

static void fuzz_qp_make(struct fuzz *f, int i, struct fuzz_input *in) {
    struct fuzz_qp *q = &f->qp[i];
    uint8_t how = fuzz_u8(in);
    struct softnic_cq_attr cq = {q->cqe, FUZZ_CQ, how % 3 == 0, how % 4 ? NULL : &q->cq_dbr[0]};
    FUZZ_REQUIRE(softnic_cq_create(f->nic[0], &cq, &q->cqn) == 0);
    struct softnic_qp_attr qp = {q->sq, FUZZ_DEPTH, &q->dbr[1], &q->bell,
                                 how % 5 == 0 ? f->qp[0].cqn : q->cqn};
    FUZZ_REQUIRE(softnic_qp_create(f->nic[0], &qp, &q->qpn) == 0);
    FUZZ_REQUIRE(softnic_qp_connect(f->nic[0], q->qpn, how % 7 == 0 ? 0 : 1, 0) == 0);
}

static void fuzz_step(struct fuzz *f, struct fuzz_input *in) {
    uint8_t what = fuzz_u8(in);
    struct fuzz_qp *q = &f->qp[what % fuzz_qps];
    switch (what / FUZZ_QPS % 16) {
    default:
        fuzz_wqe(f, q, in);
        break;
    case 8:
    case 9:
    case 10:
        fuzz_ring(f, q, in);
        softnic_advance(f->nic[0], fuzz_u8(in) * 8u);
        break;
    case 11:
        softnic_advance(f->nic[0], fuzz_u32(in) % 100000);
        break;
    case 12:
        fuzz_keys(f, in);
        break;
    case 13:
        q->cq_dbr[0] = fuzz_u32(in);
        break;
    case 14:
        if (fuzz_u8(in) % 4)
            break;
        q->dbr[1] = fuzz_u8(in) % 8 ? 0 : fuzz_u32(in);
        q->posted = 0;
        FUZZ_REQUIRE(softnic_qp_reset(f->nic[0], q->qpn) == 0);
        break;
    case 15: /* noise over a block */
        for (int i = 0; i < 64; i++)
            q->sq[q->posted % FUZZ_DEPTH * 64 + i] = fuzz_u8(in);
        break;
    }
}

static void fuzz_guards(const struct fuzz *f) {
    for (int node = 0; node < 2; node++)
        for (int i = 0; i < FUZZ_GUARD; i++) {
            FUZZ_REQUIRE(f->memory[node][i] == 0xa5);
            FUZZ_REQUIRE(f->memory[node][FUZZ_GUARD + FUZZ_REGION + i] == 0xa5);
        }
}

static void fuzz_counters(const struct fuzz *f) {
    struct softnic_counters n;
    FUZZ_REQUIRE(softnic_counters_get(f->nic[0], SOFTNIC_ALL_QPS, &n) == 0);
    uint64_t kinds = n.wqe_write + n.wqe_read + n.wqe_atomic + n.wqe_nop + n.wqe_wait + n.wqe_dump;
    FUZZ_REQUIRE(n.wqe_write_inline <= n.wqe_write);
    FUZZ_REQUIRE(kinds <= n.wqes);
    FUZZ_REQUIRE(n.cqes + n.cqes_lost <= n.wqes + n.flushed + n.doorbells);
    FUZZ_REQUIRE(n.error_cqes <= n.cqes);
    FUZZ_REQUIRE(n.qps_used <= FUZZ_QPS);
}

static void fuzz_note(const struct fuzz *f) {
    memset(fuzz_end, 0, sizeof *fuzz_end);
    for (int node = 0; node < 2; node++)
        memcpy(fuzz_end->memory[node], f->memory[node] + FUZZ_GUARD, FUZZ_REGION);
    for (int i = 0; i < FUZZ_QPS; i++) {
        memcpy(fuzz_end->cqe[i], f->qp[i].cqe, sizeof f->qp[i].cqe);
        softnic_counters_get(f->nic[0], f->qp[i].qpn, &fuzz_end->n[i]);
        fuzz_end->state[i] = softnic_qp_state(f->nic[0], f->qp[i].qpn);
        fuzz_end->syndrome[i] = softnic_qp_syndrome(f->nic[0], f->qp[i].qpn);
    }
}

static void fuzz_one(const uint8_t *data, size_t size) {
    static struct fuzz f; /* queues must outlive the NIC */
    static const struct softnic_profile paced = {
        .message_rate = 1e7, .bandwidth = 1e9, .latency_ns = 1000, .fetch_ns = 100, .header_bytes = 30};
    struct fuzz_input in = {data, data + size};
    char job[64];
    snprintf(job, sizeof job, "gic-fuzz-%d", (int)getpid());
    uint8_t how = fuzz_u8(&in);
    memset(&f, 0, sizeof f);
    for (uint32_t node = 0; node < 2; node++) {
        struct softnic_attr attr = {.job = job,
                                    .node = node,
                                    .nodes = 2,
                                    .clock = SOFTNIC_VIRTUAL,
                                    .watch = how & 1 ? SOFTNIC_WATCH_BELL : SOFTNIC_WATCH_DBR,
                                    .max_qps = FUZZ_QPS,
                                    .max_mrs = FUZZ_KEYS,
                                    .trace_records = how & 4 ? 32 : 0};
        if (how & 2)
            attr.profile = paced;
#if defined(SOFTNIC_TEST_GPU)
        attr.trace_records = 0;
        attr = bed_attr(attr);
#endif
        FUZZ_REQUIRE(softnic_create(&attr, &f.nic[node]) == 0);
        /* At the same place in both of two runs that are compared: a WQE has it as payload too. */
        static uint8_t place[2][2 * FUZZ_GUARD + FUZZ_REGION] __attribute__((aligned(64)));
        f.memory[node] = fuzz_end ? place[node] : malloc(2 * FUZZ_GUARD + FUZZ_REGION);
        memset(f.memory[node], 0xa5, 2 * FUZZ_GUARD + FUZZ_REGION);
    }
    for (int i = 0; i < FUZZ_KEYS; i++)
        f.key[i] = fuzz_register(&f, i % 2, i < 2 ? 15 : fuzz_u8(&in) & 15);
    for (int i = 0; i < FUZZ_QPS; i++)
        fuzz_qp_make(&f, i, &in);
    while (in.at < in.end)
        fuzz_step(&f, &in);
    softnic_advance(f.nic[0], 1000000);
    fuzz_guards(&f);
    fuzz_counters(&f);
    if (fuzz_end)
        fuzz_note(&f);
    softnic_destroy(f.nic[0]);
    softnic_destroy(f.nic[1]);
    if (!fuzz_end) {
        free(f.memory[0]);
        free(f.memory[1]);
    }
}

#endif
