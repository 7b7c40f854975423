// The CUDA entry of a workload on a handle, and its launch. Compiled by nvcc only.
//
// How agents lie on the device: agent a is a warp of block a % blocks, and there is one block per multiprocessor
// until every multiprocessor has one; a thread agent (lanes 1) has its warp to itself, the other 31 lanes leave
// at once. So up to as many agents as multiprocessors each have one of their own (the paper's "SMs" column equals
// its agents), and more share them as warps, never as diverging threads of one warp.
#ifndef GIC_ABI_KERNEL_CUH
#define GIC_ABI_KERNEL_CUH

#include "cuda_check.h"

#if defined(__CUDACC__)

namespace gic {

// What a kernel tells the host beside its samples: one status per agent, the multiprocessor of agent 0, and through
// the launch's stop word, that an agent has failed: those that wait for it need not wait for their deadline, at
// which its reason would be lost among theirs.
struct KernelReport {
    int32_t *status;
    uint32_t *multiprocessor;
    volatile uint32_t *stop;
};

} // namespace gic

template <class W, class H>
__global__ void gic_kernel(const __grid_constant__ H h, const __grid_constant__ typename W::Params p,
                           uint32_t agents, gic::KernelReport report) {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const gic::Self self{warp * gridDim.x + blockIdx.x, agents, h.lanes == 1 ? 0 : lane, h.lanes};
    if (self.agent >= agents || lane >= h.lanes)
        return;
    if (self.agent == 0 && self.lane == 0) {
        uint32_t sm;
        asm("mov.u32 %0, %%smid;" : "=r"(sm));
        *report.multiprocessor = sm;
    }
    int rc = W::template kernel<H>(h, self, p);
    if (rc == gic::OK) {
        typename H::Agent agent(h, self);
        rc = agent.quiet();
    }
    if (rc != gic::OK && self.lane == 0) {
        report.status[self.agent] = rc;
        *report.stop = 1;
    }
}

namespace gic {

// Blocks and threads for so many agents, all of which must be resident at once, as must those of the other ranks
// that share the device: agents wait for one another.
template <class K> int gpu_shape(Gpu &gpu, K kernel, uint32_t agents, uint32_t lanes, GpuShape *shape_p) {
    if (lanes != 1 && lanes != 32)
        return fail(-EINVAL, "%u lanes per agent: want 1 or 32", lanes);
    GpuShape s{};
    s.blocks = agents < gpu.multiprocessors() ? agents : gpu.multiprocessors();
    s.threads = 32 * ((agents + s.blocks - 1) / s.blocks);
    cudaFuncAttributes attr;
    GIC_CUDA(cudaFuncGetAttributes(&attr, kernel));
    s.registers = (uint32_t)attr.numRegs;
    s.local_bytes = (uint32_t)attr.localSizeBytes;
    int per_sm = 0;
    if (s.threads <= (uint32_t)attr.maxThreadsPerBlock)
        GIC_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel, (int)s.threads, 0));
    if ((uint32_t)per_sm * gpu.multiprocessors() < s.blocks * gpu.sharers())
        return fail(
            -ENOTSUP,
            "%u agents of this kernel (%u registers per thread) and those of %u ranks are not resident at "
            "once on one %s",
            agents, s.registers, gpu.sharers(), gpu.name().c_str());
    *shape_p = s;
    return 0;
}

template <class W, class H>
int launch_agents(Gpu &gpu, const H &h, const typename W::Params &p, uint32_t agents,
                  const volatile uint32_t *stop) {
    GpuShape shape;
    if (int rc = gpu_shape(gpu, gic_kernel<W, H>, agents, h.lanes, &shape))
        return rc;
    Arena mem(&gpu);
    KernelReport report{mem.array<int32_t>(agents), mem.array<uint32_t>(1), gpu.arm()};
    gic_kernel<W, H><<<shape.blocks, shape.threads, 0, (cudaStream_t)gpu.stream()>>>(h, p, agents, report);
    GIC_CUDA(cudaGetLastError());
    if (int rc = gpu.wait(stop, h.env.timeout_ns))
        return rc;
    shape.multiprocessor = mem.download(report.multiprocessor, 1)[0];
    gpu.shape = shape;
    const std::vector<int32_t> status = mem.download(report.status, agents);
    uint32_t worst = 0;
    for (uint32_t i = 1; i < agents; i++)
        if (worse_status(status[worst], status[i]) != status[worst])
            worst = i;
    if (int rc = status[worst])
        return fail(rc, "device thread %u: %s", worst, status_text(rc));
    return OK;
}

template <class W, class H>
int launch_gpu(Gpu &gpu, const H &h, const typename W::Params &p, uint32_t agents,
               const volatile uint32_t *stop) {
    if constexpr (OwnLaunch<W>::value)
        return W::template launch<H>(gpu, h, p, agents, stop);
    else
        return launch_agents<W>(gpu, h, p, agents, stop);
}
template <class W>
int launch_gpu_alone(Gpu &gpu, const typename W::Params &p, const volatile uint32_t *stop) {
    return W::launch_alone(gpu, p, stop);
}

} // namespace gic
#endif

#endif
