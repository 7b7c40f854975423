/* The host's side of what lies outside of the window: NCCL's signals and counters. Kernels of a moment; no launch of a
 * workload may be under way, on any rank.
 *
 * 0 or a negative errno with a line in gic::error_text().
 */
#ifndef BACKENDS_NCCLGIN_WORDS_H
#define BACKENDS_NCCLGIN_WORDS_H

#include "backends/abi/gpu.h"
#include "backends/ncclgin/handle.cuh"

// Signals first..first+count of this rank: `sums` over the contexts, or zero.
int ncclgin_read_signals(gic::Gpu &gpu, const ncclgin_shared &h, uint32_t first, uint32_t count,
                         uint64_t *sums);
int ncclgin_clear_signals(gic::Gpu &gpu, const ncclgin_shared &h, uint32_t first, uint32_t count);
// Counters 0..count of every context, zero.
int ncclgin_clear_counters(gic::Gpu &gpu, const ncclgin_shared &h, uint32_t count);

#endif
