// One workload on the handles of miniproxy as CUDA kernels. The build compiles this once for each GIC_WORKLOAD;
// miniproxy.cu, compiled by the host compiler, refers to what is instantiated here.
#include "backends/abi/kernel.cuh"
#include "miniproxy/proxy.cuh"

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

#define GIC_KERNEL(handoff, many)                                                                            \
    template int gic::launch_gpu<workload, proxy::Handle<proxy::Handoff::handoff, many>>(                    \
        gic::Gpu &, const proxy::Handle<proxy::Handoff::handoff, many> &, const workload::Params &,          \
        uint32_t, const volatile uint32_t *);

// 1 and 7: an agent is a thread. 2: a warp.
GIC_KERNEL(baseline, GIC_PART == 2)
GIC_KERNEL(tuned, GIC_PART == 2)
#if GIC_PART == 7 // caller's only
template int gic::launch_gpu_alone<workload>(gic::Gpu &, const workload::Params &, const volatile uint32_t *);
#endif
