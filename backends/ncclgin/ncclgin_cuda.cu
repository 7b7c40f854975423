// The workloads on NCCL's handles as CUDA kernels. The build compiles this for each GIC_PART, so that they compile beside
// each other; reading the headers takes longer than compiling a small kernel, so a part has several.
#include "backends/abi/kernel.cuh"
#include "backends/ncclgin/handle.cuh"

#define GIC_KERNEL(workload, code, many)                                                                     \
    template int gic::launch_gpu<workload, ncclgin_handle<ncclgin_code::code, many>>(                        \
        gic::Gpu &, const ncclgin_handle<ncclgin_code::code, many> &, const workload::Params &, uint32_t,    \
        const volatile uint32_t *);
#define GIC_KERNELS(workload)                                                                                \
    GIC_KERNEL(workload, GIN, false)                                                                         \
    GIC_KERNEL(workload, GIN, true)                                                                          \
    GIC_KERNEL(workload, LSA, false)                                                                         \
    GIC_KERNEL(workload, LSA, true)
#define GIC_KERNELS_INLINE(workload)                                                                         \
    GIC_KERNELS(workload)                                                                                    \
    GIC_KERNEL(workload, INLINE, false)                                                                      \
    GIC_KERNEL(workload, INLINE, true)

#if GIC_PART == 1
#include "backends/ncclgin/protocol.cuh"
#include "backends/ncclgin/words.cuh"
#include "workloads/op/op.cuh"
GIC_KERNELS_INLINE(op_workload)
GIC_KERNEL(protocol_workload, GIN, false)
#elif GIC_PART == 2
#include "workloads/stream/stream.cuh"
GIC_KERNELS_INLINE(stream_workload)
#elif GIC_PART == 3
#include "workloads/conform/conform.cuh"
GIC_KERNELS_INLINE(conform_workload)
#elif GIC_PART == 4
#include "workloads/alltoall/alltoall.cuh"
#include "workloads/moe/moe.cuh"
GIC_KERNELS(alltoall_workload)
GIC_KERNELS(moe_workload)
#elif GIC_PART == 5
#include "workloads/caller/caller_launch.cuh"
GIC_KERNEL(caller_workload, GIN, false)
template int gic::launch_gpu_alone<caller_workload>(gic::Gpu &, const caller_workload::Params &,
                                                    const volatile uint32_t *);
#endif
