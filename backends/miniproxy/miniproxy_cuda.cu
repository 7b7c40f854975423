// One workload on one handle of miniproxy as a CUDA kernel: what `make cuda-check` compiles, without a GPU, so that
// the device half stays CUDA code. GIC_WORKLOAD is the workload's name; nothing here is linked or run.
#include "backends/abi/kernel.cuh"
#include "miniproxy/proxy.cuh"

#include "workloads/alltoall/alltoall.cuh"
#include "workloads/conform/conform.cuh"
#include "workloads/goodput/goodput.cuh"
#include "workloads/moe/moe.cuh"
#include "workloads/op/op.cuh"
#include "workloads/rate/rate.cuh"

#define GIC_JOIN_(a, b) a##b
#define GIC_JOIN(a, b) GIC_JOIN_(a, b)
using workload = GIC_JOIN(GIC_WORKLOAD, _workload);
using handle = proxy::Handle<proxy::Handoff::tuned>;

template __global__ void gic_kernel<workload, handle>(handle, workload::Params, int *);
