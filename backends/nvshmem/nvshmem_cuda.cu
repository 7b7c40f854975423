// One workload on NVSHMEM's handles as CUDA kernels. The build compiles this for each GIC_WORKLOAD and GIC_PART, so
// that they compile beside each other: part 1 calls the API, whose code is in libnvshmem_device.a; parts 2 and 3 have it
// compiled into the kernel, the API and the level below it.
#if GIC_PART != 1
#define NVSHMEM_ENABLE_ALL_DEVICE_INLINING
#endif
#include <nvshmem.h>
#include <nvshmemx.h>

#include "backends/abi/kernel.cuh"

#define GIC_JOIN_(a, b) a##b
#define GIC_JOIN(a, b) GIC_JOIN_(a, b)
#define GIC_UNTIMED_conform 1
#if GIC_JOIN(GIC_UNTIMED_, GIC_WORKLOAD)
#define NVSHMEM_PUT __device__ __noinline__
#endif
#include "backends/nvshmem/handle.cuh"
#include "backends/nvshmem/protocol.cuh"

#include "workloads/alltoall/alltoall.cuh"
#include "workloads/conform/conform.cuh"
#include "workloads/moe/moe.cuh"
#include "workloads/op/op.cuh"
#include "workloads/stream/stream.cuh"

// caller launches kernels of its own. A library in an archive is called, never inlined: there is nothing to set apart.
// 8 blocks leave a thread 32 registers, which no kernel with the library's code inside does with.
#define GIC_LAUNCHES_caller 1
#if GIC_JOIN(GIC_LAUNCHES_, GIC_WORKLOAD)
#include "workloads/caller/caller_launch.cuh"

template <nvshmem_level L, uint32_t LANES> struct gic_caller::Built<nvshmem_handle<L, LANES>> {
    static constexpr bool bounded = L == nvshmem_level::PUBLIC, apart = false;
};
#endif
using workload = GIC_JOIN(GIC_WORKLOAD, _workload);

#define GIC_KERNEL(level, lanes)                                                                             \
    template int gic::launch_gpu<workload, nvshmem_handle<nvshmem_level::level, lanes>>(                     \
        gic::Gpu &, const nvshmem_handle<nvshmem_level::level, lanes> &, const workload::Params &, uint32_t, \
        const volatile uint32_t *);

#if GIC_PART == 1
GIC_KERNEL(PUBLIC, 1)
GIC_KERNEL(PUBLIC, 32)
#if !GIC_JOIN(GIC_LAUNCHES_, GIC_WORKLOAD)
GIC_KERNEL(PUBLIC, 128)
#else
template int gic::launch_gpu_alone<workload>(gic::Gpu &, const workload::Params &, const volatile uint32_t *);
#endif
#elif GIC_PART == 2
GIC_KERNEL(INLINED, 1)
#elif GIC_PART == 3
GIC_KERNEL(INTERNAL, 1)
#endif
