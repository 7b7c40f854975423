/* A driver that posts the same request again as soon as the last one is complete finds the engine as quick each time. On the
 * GPU engine's device code in virtual time that is counted: by how often the lanes of a warp meet from one CQE to the next. A
 * queue of writes of two blocks, each with a word behind it, once went another way at every fourth visit; on an H200 those
 * took 1.6 us more than the others, which looked like a timer that was wrong. */
#include "test.h"

enum { TIMES = 24, SETTLED = 3 };

static const struct kind {
    const char *name;
    uint32_t bytes; /* of a write, in the WQE or by pointer; 0: none */
    int points, word, add;
} kinds[] = {
    {"a word", 0, 0, 1, 0},
    {"a fetch-and-add", 0, 0, 0, 1},
    {"16 B", 16, 0, 0, 0},
    {"16 B and a word", 16, 0, 1, 0},
    {"28 B and a word", 28, 0, 1, 0},
    {"32 B", 32, 0, 0, 0},
    {"32 B and a word", 32, 0, 1, 0},
    {"92 B and a word", 92, 0, 1, 0},
    {"128 B", 128, 0, 0, 0},
    {"128 B and a word", 128, 0, 1, 0},
    {"32 B and a fetch-and-add", 32, 0, 0, 1},
    {"200 B by pointer", 200, 1, 0, 0},
    {"200 B by pointer and a word", 200, 1, 1, 0},
    {"200 B by pointer and a fetch-and-add", 200, 1, 0, 1},
};

static struct steady {
    const struct kind *kind;
    struct rig r;
    struct rig_qp *qp;
    int collapsed;
    uint32_t posted, last; /* requests; block of the last WQE */
    uint32_t met[TIMES];   /* meetings until each was complete; 0: is not yet */
} st;

static uint8_t payload_byte(uint32_t i, uint32_t b) { return (uint8_t)(i * 7 + b); }

/* The last WQE alone asks for a CQE. */
static void post(void) {
    const struct kind *k = st.kind;
    struct rig_qp *q = st.qp;
    uint8_t *to = st.r.mem[1], payload[256];
    const uint32_t i = st.posted++;
    const uint64_t word = ~(uint64_t)i;
    for (uint32_t b = 0; b < sizeof payload; b++)
        payload[b] = payload_byte(i, b);
    memcpy(st.r.mem[0], payload, sizeof payload);
    st.last = q->posted;
    if (k->bytes && k->points)
        rig_write(q, to, st.r.key[1], st.r.mem[0], st.r.key[0], k->bytes, k->word || k->add ? 0 : 8);
    else if (k->bytes)
        rig_write_inline(q, to, st.r.key[1], payload, k->bytes, k->word || k->add ? 0 : 8);
    if (k->word || k->add)
        st.last = q->posted;
    if (k->word)
        rig_write_inline(q, to + 512, st.r.key[1], &word, 8, 8);
    if (k->add)
        rig_fetch_add(q, to + 520, st.r.key[1], 3, st.r.mem[0] + 512, st.r.key[0], 8);
    rig_ring(q);
}

static int is_complete(void) {
    if (!st.collapsed)
        return rig_cqe_there(st.qp, st.posted - 1);
    const uint8_t *cqe = st.qp->cqe;
    return __atomic_load_n(cqe + 63, __ATOMIC_ACQUIRE) >> 4 == 0 && get16(cqe + 60) == (st.last & 0xffff);
}
static void check_arrived(void) {
    const struct kind *k = st.kind;
    const uint8_t *to = st.r.mem[1];
    const uint32_t i = st.posted - 1;
    uint64_t word, sum;
    for (uint32_t b = 0; b < k->bytes; b++)
        CHECK_EQ(to[b], payload_byte(i, b));
    memcpy(&word, to + 512, 8);
    memcpy(&sum, to + 520, 8);
    CHECK_EQ(word, k->word ? ~(uint64_t)i : 0);
    CHECK_EQ(sum, k->add ? 3 * (i + 1) : 0);
}
static void drive(uint32_t meetings) {
    if (st.met[st.posted - 1] || !is_complete())
        return;
    check_arrived();
    st.met[st.posted - 1] = meetings;
    if (st.posted < TIMES)
        post();
}

#if defined(SOFTNIC_TEST_GPU)
extern void (*softnic_warp_met)(uint32_t meetings); /* test_warp.cc */
static void serve(void) {
    softnic_warp_met = drive;
    softnic_advance(st.r.nic[0], 0);
    softnic_warp_met = NULL;
}
#else
static void serve(void) {
    for (uint32_t i = 0; i < TIMES; i++) {
        softnic_advance(st.r.nic[0], 0);
        drive(i + 1);
    }
}
#endif

static void test_kind(const struct kind *kind, int collapsed) {
    st = (struct steady){.kind = kind, .r = rig_virtual(), .collapsed = collapsed};
    st.qp = rig_qp_add(st.r.nic[0], 1, collapsed, 0);
    memset(st.qp->cqe, 0xff, 64);
    post();
    serve();
    CHECK_EQ(st.posted, TIMES);
    CHECK(is_complete());
    const uint32_t usual = st.met[SETTLED] - st.met[SETTLED - 1];
    for (uint32_t i = SETTLED; i < TIMES; i++)
        if (st.met[i] - st.met[i - 1] != usual) {
            fprintf(stderr, "%s%s: number %u took %u meetings, number %u %u\n", kind->name,
                    collapsed ? ", collapsed CQ" : "", SETTLED, usual, i, st.met[i] - st.met[i - 1]);
            test_failures++;
            break;
        }
    rig_free(&st.r);
    bed_free(st.qp);
}

static void tests(void) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int collapsed = 0; collapsed < 2; collapsed++)
            test_kind(&kinds[i], collapsed);
}
int main(void) { return bed_run("steady_test", &test_failures, tests); }
