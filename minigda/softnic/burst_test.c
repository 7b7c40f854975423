/* Hundreds of blocks announced at once, to a NIC with nothing else to do: words in ascending order and not, the same word again,
 * NOPs, and now and then what goes another way. The GPU engine fetches such blocks ahead of those that it looks at, and must not
 * be taken in by where a round ends. */
#include "test.h"

enum { DEPTH = 1024, WORDS = 4096 };

static uint64_t state = 1;
static uint32_t draw(uint32_t below) { /* splitmix64 */
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (uint32_t)(z ^ z >> 31) % below;
}

struct burst {
    struct rig r;
    uint8_t *sq, *dbr, *cqe;
    uint32_t qpn, posted;
    uint64_t want[WORDS];
};

static uint8_t *segment(struct burst *b, uint32_t i) { return b->sq + b->posted % DEPTH * 64 + i * 16; }
static void control(struct burst *b, uint32_t opcode, uint32_t ds, int last) {
    uint8_t *c = segment(b, 0);
    memset(c, 0, 64);
    put16(c + 1, b->posted & 0xffff);
    c[3] = (uint8_t)opcode;
    c[4] = (uint8_t)(b->qpn >> 16);
    put16(c + 5, b->qpn);
    c[7] = (uint8_t)ds;
    c[11] = last ? 8 : 0;
}

/* One block: a word at place `at`, in the WQE or by pointer to the word that has its value. */
static void word(struct burst *b, uint32_t at, int points, int last) {
    const uint32_t i = b->posted % DEPTH;
    const uint64_t value = ((uint64_t)b->posted << 32) + at + 1;
    uint8_t *from = b->r.mem[0] + i * 8;
    memcpy(from, &value, 8);
    control(b, 0x08, 3, last);
    put64(segment(b, 1), (uintptr_t)(b->r.mem[1] + at * 8));
    put32(segment(b, 1) + 8, b->r.key[1]);
    if (points) {
        put32(segment(b, 2), 8);
        put32(segment(b, 2) + 4, b->r.key[0]);
        put64(segment(b, 2) + 8, (uintptr_t)from);
    } else {
        put32(segment(b, 2), 0x80000008u);
        memcpy(segment(b, 2) + 4, &value, 8);
    }
    b->want[at] = value;
    b->posted++;
}

/* 24 bytes, which are no word. */
static void longer(struct burst *b, uint32_t at, int last) {
    control(b, 0x08, 4, last);
    put64(segment(b, 1), (uintptr_t)(b->r.mem[1] + at * 8));
    put32(segment(b, 1) + 8, b->r.key[1]);
    put32(segment(b, 2), 0x80000018u);
    for (uint32_t i = 0; i < 3; i++) {
        b->want[at + i] = ((uint64_t)b->posted << 32) + i;
        memcpy(segment(b, 2) + 4 + 8 * i, &b->want[at + i], 8);
    }
    b->posted++;
}

static void announce(struct burst *b) {
    uint8_t bytes[4];
    uint32_t record;
    put32(bytes, b->posted & 0xffff);
    memcpy(&record, bytes, 4);
    __atomic_store_n((uint32_t *)(void *)(b->dbr + 4), record, __ATOMIC_RELEASE);
    softnic_advance(b->r.nic[0], 0);
}

/* odd: of how many blocks one is none of the usual. */
static void test_bursts(uint32_t odd) {
    struct burst *b = calloc(1, sizeof *b);
    b->r = rig_virtual();
    b->sq = bed_alloc(DEPTH * 64);
    b->dbr = bed_alloc(8);
    b->cqe = bed_alloc(64);
    memset(b->cqe, 0xff, 64);
    uint32_t cqn;
    struct softnic_cq_attr cq = {b->cqe, 1, 1, NULL};
    MUST(softnic_cq_create(b->r.nic[0], &cq, &cqn));
    struct softnic_qp_attr qp = {b->sq, DEPTH, b->dbr + 4, NULL, cqn};
    MUST(softnic_qp_create(b->r.nic[0], &qp, &b->qpn));
    MUST(softnic_qp_connect(b->r.nic[0], b->qpn, 1, 0));
    uint32_t at = 0;
    for (int lap = 0; lap < 12 && test_failures == 0; lap++) {
        const uint32_t n = lap < 2 ? DEPTH : 60 + draw(DEPTH - 60);
        for (uint32_t i = 0; i < n; i++) {
            const int last = i + 1 == n;
            const uint32_t what = draw(odd);
            if (what == 0)
                at = draw(WORDS - 3); /* often back */
            else if (what == 1 && at)
                at--; /* the same word again */
            if (what == 2) {
                control(b, 0x00, 1, last);
                b->posted++;
            } else if (what == 3) {
                longer(b, at, last);
            } else {
                word(b, at, what & 4, last);
            }
            at = (at + 1) % (WORDS - 3);
        }
        announce(b);
        CHECK_EQ(b->cqe[63], 0);
        CHECK_EQ(get16(b->cqe + 60), (b->posted - 1) & 0xffff);
        CHECK(memcmp(b->r.mem[1], b->want, sizeof b->want) == 0);
    }
    struct softnic_counters c;
    MUST(softnic_counters_get(b->r.nic[0], b->qpn, &c));
    CHECK_EQ(c.wqes, b->posted);
    CHECK_EQ(c.doorbells, 12);
    rig_free(&b->r);
    bed_free(b->sq);
    bed_free(b->dbr);
    bed_free(b->cqe);
    free(b);
}

static void tests(void) {
    test_bursts(100000);
    test_bursts(200);
    test_bursts(20);
    test_bursts(6);
}
int main(void) { return bed_run("burst_test", &test_failures, tests); }
