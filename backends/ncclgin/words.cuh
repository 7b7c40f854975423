// The kernels behind words.h, compiled with op's.
#ifndef BACKENDS_NCCLGIN_WORDS_CUH
#define BACKENDS_NCCLGIN_WORDS_CUH

#include "backends/abi/cuda_check.h"
#include "backends/ncclgin/words.h"

namespace ncclgin_words {

enum What { READ, CLEAR_SIGNALS, CLEAR_COUNTERS };

template <What W>
__global__ void each(const __grid_constant__ ncclgin_shared h, uint32_t first, uint32_t count,
                     uint64_t *sums) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    if constexpr (W == READ) {
        sums[i] = ncclgin_call::signal_sum(h, first + i);
    } else {
        for (uint32_t c = 0; c < h.contexts; c++)
            if constexpr (W == CLEAR_SIGNALS)
                ncclgin_call::context(h, c).resetSignal(first + i);
            else
                ncclgin_call::context(h, c).resetCounter(first + i);
    }
}

template <What W>
int launch(gic::Gpu &gpu, const ncclgin_shared &h, uint32_t first, uint32_t count, uint64_t *sums) {
    if (count == 0)
        return 0;
    each<W><<<(count + 127) / 128, 128, 0, (cudaStream_t)gpu.stream()>>>(h, first, count, sums);
    GIC_CUDA(cudaGetLastError());
    return gpu.wait(nullptr, 0);
}

} // namespace ncclgin_words

int ncclgin_read_signals(gic::Gpu &gpu, const ncclgin_shared &h, uint32_t first, uint32_t count,
                         uint64_t *sums) {
    if (count == 0)
        return 0;
    gic::Arena mem(&gpu);
    auto *on_gpu = mem.array<uint64_t>(count);
    if (int rc = ncclgin_words::launch<ncclgin_words::READ>(gpu, h, first, count, on_gpu))
        return rc;
    return gpu.download(sums, on_gpu, count * sizeof *sums);
}
int ncclgin_clear_signals(gic::Gpu &gpu, const ncclgin_shared &h, uint32_t first, uint32_t count) {
    return ncclgin_words::launch<ncclgin_words::CLEAR_SIGNALS>(gpu, h, first, count, nullptr);
}
int ncclgin_clear_counters(gic::Gpu &gpu, const ncclgin_shared &h, uint32_t count) {
    return ncclgin_words::launch<ncclgin_words::CLEAR_COUNTERS>(gpu, h, 0, count, nullptr);
}

#endif
