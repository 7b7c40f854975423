// One workload on the handles of minigda as CUDA kernels. The build compiles this once for each GIC_WORKLOAD (and,
// for op, each GIC_PART), so that they compile beside each other; minigda.cu, compiled by the host compiler, refers
// to what is instantiated here.
//
// rate and goodput are stream's kernel. minigda.cu says which workload has which (has_kernel_for).
#include "backends/abi/kernel.cuh"
#include "minigda/gda.cuh"

#include "workloads/alltoall/alltoall.cuh"
#include "workloads/conform/conform.cuh"
#include "workloads/moe/moe.cuh"
#include "workloads/op/op.cuh"
#include "workloads/stream/stream.cuh"

#define GIC_JOIN_(a, b) a##b
#define GIC_JOIN(a, b) GIC_JOIN_(a, b)
// caller launches kernels of its own.
#define GIC_LAUNCHES_caller 1
#if GIC_JOIN(GIC_LAUNCHES_, GIC_WORKLOAD)
#include "workloads/caller/caller_launch.cuh"
#endif
using workload = GIC_JOIN(GIC_WORKLOAD, _workload);

#define GIC_KERNEL(order, sharing)                                                                           \
    template int gic::launch_gpu<workload, gda_handle<gda_order::order, gda_sharing::sharing>>(              \
        gic::Gpu &, const gda_handle<gda_order::order, gda_sharing::sharing> &, const workload::Params &,    \
        uint32_t, const volatile uint32_t *);

#if GIC_PART == 1
GIC_KERNEL(runtime, lock)
#elif GIC_PART == 2
GIC_KERNEL(runtime, handoff)
GIC_KERNEL(runtime, warp)
#elif GIC_PART == 3 // op's
GIC_KERNEL(none, exclusive)
GIC_KERNEL(gpu_fence, exclusive)
GIC_KERNEL(gpu_fence_dbr, exclusive)
GIC_KERNEL(gpu_release, exclusive)
#elif GIC_PART == 4 // op's
GIC_KERNEL(threadfence, exclusive)
GIC_KERNEL(sys_release, exclusive)
GIC_KERNEL(sys_fence, exclusive)
GIC_KERNEL(gpu_fence, spare)
GIC_KERNEL(sys_release, spare)
#elif GIC_PART == 5 // op's and stream's
GIC_KERNEL(runtime, group)
GIC_KERNEL(gpu_fence, group)
GIC_KERNEL(sys_release, group)
GIC_KERNEL(none, bare)
GIC_KERNEL(gpu_fence, bare)
GIC_KERNEL(sys_release, bare)
#elif GIC_PART == 6
GIC_KERNEL(runtime, exclusive)
GIC_KERNEL(runtime, group)
#elif GIC_PART == 7  // caller's
GIC_KERNEL(gpu_fence, exclusive)
GIC_KERNEL(sys_release, exclusive)
template int gic::launch_gpu_alone<workload>(gic::Gpu &, const workload::Params &, const volatile uint32_t *);
#elif GIC_PART == 8  // stream's
GIC_KERNEL(runtime, exclusive)
GIC_KERNEL(none, exclusive)
GIC_KERNEL(gpu_fence, exclusive)
GIC_KERNEL(sys_release, exclusive)
GIC_KERNEL(none, bare_group)
GIC_KERNEL(gpu_fence, bare_group)
GIC_KERNEL(sys_release, bare_group)
#elif GIC_PART == 9  // conform's
GIC_KERNEL(runtime, spare)
#elif GIC_PART == 10 // caller's
GIC_KERNEL(gpu_fence, spare)
GIC_KERNEL(sys_release, spare)
#elif GIC_PART == 11
GIC_KERNEL(runtime, block_lock)
GIC_KERNEL(runtime, block_handoff)
GIC_KERNEL(runtime, block_warp)
#endif
