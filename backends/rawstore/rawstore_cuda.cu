// One workload on the handles of rawstore as CUDA kernels, one for each scope. The build compiles this for each
// GIC_WORKLOAD, so that they compile beside each other. rate and goodput are stream's kernel.
#include "backends/abi/kernel.cuh"
#include "backends/rawstore/handle.cuh"

#include "workloads/alltoall/alltoall.cuh"
#include "workloads/conform/conform.cuh"
#include "workloads/moe/moe.cuh"
#include "workloads/op/op.cuh"
#include "workloads/stream/stream.cuh"

#define GIC_JOIN_(a, b) a##b
#define GIC_JOIN(a, b) GIC_JOIN_(a, b)
using workload = GIC_JOIN(GIC_WORKLOAD, _workload);

#define GIC_KERNEL(lanes)                                                                                    \
    template int gic::launch_gpu<workload, rawstore_handle<lanes>>(                                          \
        gic::Gpu &, const rawstore_handle<lanes> &, const workload::Params &, uint32_t,                      \
        const volatile uint32_t *);

GIC_KERNEL(1)
GIC_KERNEL(32)
GIC_KERNEL(128)
