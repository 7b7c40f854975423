/* The fuzzer's body from a seeded generator, so that every `make test` runs it, with any compiler. */
#include "fuzz_body.h"
#include "test.h"

enum { PROGRAMS = BED_GPU ? 300 : 5000, MAX_BYTES = 2048 };

static uint64_t state;

static uint64_t next_random(void) { /* splitmix64 */
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static uint64_t first = 1, last = PROGRAMS;

/* A program on both engines, or on the CPU engine with its short way for small writes and without it, which is what
 * keeping a trace means: the same bytes, CQEs, counts and state. (With more than one QP, their order is each engine's
 * own.) */
static void compare(uint8_t *bytes, size_t size) {
    static struct fuzz_end ends[2];
    for (int second = 0; second < 2; second++) {
        fuzz_end = &ends[second];
#if defined(SOFTNIC_TEST_GPU)
        fuzz_qps = 1;
        bed_cpu(second);
#else
        bytes[0] ^= 4;
#endif
        fuzz_one(bytes, size);
    }
#if defined(SOFTNIC_TEST_GPU)
    bed_cpu(0);
    fuzz_qps = FUZZ_QPS;
#endif
    fuzz_end = NULL;
    const char *what = memcmp(ends[0].memory, ends[1].memory, sizeof ends[0].memory) ? "bytes"
                       : memcmp(ends[0].cqe, ends[1].cqe, sizeof ends[0].cqe)        ? "CQEs"
                       : memcmp(ends[0].n, ends[1].n, sizeof ends[0].n)              ? "counters"
                       : memcmp(ends[0].state, ends[1].state, sizeof ends[0].state) ||
                               memcmp(ends[0].syndrome, ends[1].syndrome, sizeof ends[0].syndrome)
                           ? "state"
                           : NULL;
    if (what) {
        fprintf(stderr, "seed %llu: %s differ\n", (unsigned long long)fuzz_seed, what);
        test_failures++;
    }
}

static void tests(void) {
    static uint8_t bytes[MAX_BYTES];
    for (uint64_t seed = first; seed <= last && test_failures < 10; seed++) {
        state = seed;
        size_t size = 64 + next_random() % (MAX_BYTES - 64);
        for (size_t i = 0; i < size; i++)
            bytes[i] = (uint8_t)next_random();
        fuzz_seed = seed;
        fuzz_one(bytes, size);
        compare(bytes, size);
    }
}

/* A failure names its seed: run with it as the only argument. */
int main(int argc, char **argv) {
    if (argc > 1)
        first = last = strtoull(argv[1], NULL, 10);
    return bed_run("softnic_fuzz_test", &test_failures, tests);
}
