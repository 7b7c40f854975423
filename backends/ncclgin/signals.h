/* Where the words of a window are NCCL's signals: word n, at offset 8 n, is signal n. Pure arithmetic, no GPU. */
#ifndef BACKENDS_NCCLGIN_SIGNALS_H
#define BACKENDS_NCCLGIN_SIGNALS_H

#include <stddef.h>
#include <stdint.h>

#include <algorithm>

namespace ncclgin_signals {

struct Words {
    uint32_t first, count;
};

/* Words that lie wholly within [offset, offset + bytes), of the first `signals`: a write of them puts their signals to 0. */
inline Words within(uint64_t offset, size_t bytes, uint32_t signals) {
    const uint64_t first = std::min<uint64_t>((offset + 7) / 8, signals),
                   end = std::min<uint64_t>((offset + bytes) / 8, signals);
    return {(uint32_t)first, (uint32_t)(end > first ? end - first : 0)};
}

/* Words that share a byte with it: what a read of them must look at. */
inline Words touched(uint64_t offset, size_t bytes, uint32_t signals) {
    const uint64_t first = std::min<uint64_t>(offset / 8, signals),
                   end = std::min<uint64_t>((offset + bytes + 7) / 8, signals);
    return {(uint32_t)first, (uint32_t)(bytes && end > first ? end - first : 0)};
}

/* What was read from the window, `bytes` at `offset`, with the words that signals have come to in the place of what the
 * window holds there. `sums` are those of `words`. */
inline void show(Words words, const uint64_t *sums, uint64_t offset, uint8_t *read, size_t bytes) {
    for (uint32_t i = 0; i < words.count; i++)
        for (uint32_t b = 0; sums[i] != 0 && b < 8; b++) {
            const uint64_t at = 8ull * (words.first + i) + b;
            if (at >= offset && at < offset + bytes)
                read[at - offset] = (uint8_t)(sums[i] >> (8 * b));
        }
}

} // namespace ncclgin_signals

#endif
