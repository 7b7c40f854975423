// The one way in which CUDA calls are checked: GIC_CUDA(call) returns from the calling function with a status
// and a line that names the call, where it stands, and CUDA's own text.
#ifndef GIC_ABI_CUDA_CHECK_H
#define GIC_ABI_CUDA_CHECK_H

#include "driver.cuh"

#include <cuda_runtime_api.h>

namespace gic {

inline int cuda_failed(cudaError_t error, const char *call, const char *file, int line) {
    int status = -EIO;
    if (error == cudaErrorMemoryAllocation)
        status = -ENOMEM;
    else if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver ||
             error == cudaErrorInvalidDevice || error == cudaErrorSystemDriverMismatch)
        status = -ENOTSUP;
    const char *base = strrchr(file, '/');
    return fail(status, "%s (%s:%d): CUDA error %d, %s", call, base ? base + 1 : file, line, (int)error,
                cudaGetErrorString(error));
}

} // namespace gic

#define GIC_CUDA(call)                                                                                       \
    do {                                                                                                     \
        const cudaError_t gic_error_ = (call);                                                               \
        if (gic_error_ != cudaSuccess)                                                                       \
            return gic::cuda_failed(gic_error_, #call, __FILE__, __LINE__);                                  \
    } while (0)

#endif
