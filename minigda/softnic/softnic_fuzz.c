/* libFuzzer entry: a driver gone mad over a small NIC in virtual time. See fuzz_body.h; softnic_fuzz_test.c runs the same
 * body from a seeded generator. */
#include "fuzz_body.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_one(data, size);
    return 0;
}
