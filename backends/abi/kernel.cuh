// The CUDA entry of a workload on a handle. One agent is one lane or one warp; threads beyond the last whole
// agent do not exist, since the launch is a multiple of h.lanes.
#ifndef GIC_ABI_KERNEL_CUH
#define GIC_ABI_KERNEL_CUH

#include "device.cuh"

#if defined(__CUDACC__)
// `status`: one word per agent, zero before the launch; what the agent's kernel returned.
template <class W, class H> __global__ void gic_kernel(H h, typename W::Params p, int *status) {
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    const gic::Self self{thread / h.lanes, gridDim.x * blockDim.x / h.lanes, thread % h.lanes, h.lanes};
    const int rc = W::template kernel<H>(h, self, p);
    if (rc != gic::OK && self.lane == 0)
        status[self.agent] = rc;
}
#endif

#endif
