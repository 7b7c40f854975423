// Which words of a window a read or write concerns, and how signals show in what is read.
#include "backends/ncclgin/signals.h"

#include <stdio.h>
#include <string.h>

#include <vector>

namespace {

int failures;

constexpr uint32_t signals = 6;
constexpr size_t window = 8 * signals + 20; // some bytes behind the words

// Every range of a small window against the definition, byte by byte.
void check_ranges() {
    for (uint64_t offset = 0; offset <= window; offset++)
        for (size_t bytes = 0; offset + bytes <= window; bytes++) {
            uint32_t within = 0, touched = 0;
            for (uint32_t w = 0; w < signals; w++) {
                uint32_t shared = 0;
                for (uint64_t at = 8 * w; at < 8 * w + 8; at++)
                    shared += at >= offset && at < offset + bytes;
                within += shared == 8;
                touched += shared > 0;
            }
            const auto a = ncclgin_signals::within(offset, bytes, signals);
            const auto b = ncclgin_signals::touched(offset, bytes, signals);
            if (a.count != within || b.count != touched || (a.count && a.first != (offset + 7) / 8) ||
                (b.count && b.first != offset / 8)) {
                failures++;
                printf("%zu bytes at %llu: within %u (want %u), touched %u (want %u)\n", bytes,
                       (unsigned long long)offset, a.count, within, b.count, touched);
            }
        }
}

// Words 1 and 4 have signals; every read must see them whole, and nothing else changed.
void check_show() {
    std::vector<uint8_t> memory(window), want(window);
    for (size_t i = 0; i < window; i++)
        want[i] = memory[i] = (uint8_t)(0x40 + i);
    const uint64_t values[signals] = {0, 0x1122334455667788, 0, 0, 1, 0};
    for (uint32_t w = 0; w < signals; w++)
        if (values[w])
            memcpy(&want[8 * w], &values[w], 8);
    for (uint64_t offset = 0; offset < window; offset++)
        for (size_t bytes = 1; offset + bytes <= window; bytes++) {
            std::vector<uint8_t> got(memory.begin() + (long)offset, memory.begin() + (long)(offset + bytes));
            const auto words = ncclgin_signals::touched(offset, bytes, signals);
            ncclgin_signals::show(words, values + words.first, offset, got.data(), bytes);
            if (memcmp(got.data(), &want[offset], bytes) != 0) {
                failures++;
                printf("%zu bytes at %llu do not show the signals\n", bytes, (unsigned long long)offset);
            }
        }
}

} // namespace

int main() {
    check_ranges();
    check_show();
    printf(failures ? "signals_test: %d failed\n" : "signals_test: ok\n", failures);
    return failures != 0;
}
