/* The fuzzer's body from a seeded generator, so that every `make test` runs it, with any compiler. */
#include "fuzz_body.h"
#include "test.h"

enum { PROGRAMS = 5000, MAX_BYTES = 2048 };

static uint64_t state;

static uint64_t next_random(void) { /* splitmix64 */
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

/* A failure names its seed: run with it as the only argument. */
int main(int argc, char **argv) {
    static uint8_t bytes[MAX_BYTES];
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1, last = argc > 1 ? first : PROGRAMS;
    for (uint64_t seed = first; seed <= last; seed++) {
        state = seed;
        size_t size = 64 + next_random() % (MAX_BYTES - 64);
        for (size_t i = 0; i < size; i++)
            bytes[i] = (uint8_t)next_random();
        fuzz_seed = seed;
        fuzz_one(bytes, size);
    }
    return test_end("softnic_fuzz_test");
}
