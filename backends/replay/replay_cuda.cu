// One workload on the handles of replay as CUDA kernels, as minigda_cuda.cu; replay.cu says which there are.
#include "backends/abi/kernel.cuh"
#include "minigda/gda_replay.cuh"

#include "workloads/alltoall/alltoall.cuh"
#include "workloads/moe/moe.cuh"
#include "workloads/op/op.cuh"
#include "workloads/stream/stream.cuh"

#define GIC_JOIN_(a, b) a##b
#define GIC_JOIN(a, b) GIC_JOIN_(a, b)
using workload = GIC_JOIN(GIC_WORKLOAD, _workload);

#define GIC_KERNEL(order)                                                                                    \
    template int gic::launch_gpu<workload, gda_replay_handle<gda_order::order>>(                             \
        gic::Gpu &, const gda_replay_handle<gda_order::order> &, const workload::Params &, uint32_t,         \
        const volatile uint32_t *);

#if GIC_PART == 1
GIC_KERNEL(runtime)
#elif GIC_PART == 2 // op's and stream's
GIC_KERNEL(gpu_fence)
GIC_KERNEL(sys_release)
#else
#error "no such part"
#endif
