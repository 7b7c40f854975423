// rate: the kernel is stream's.
#ifndef GIC_WORKLOADS_RATE_CUH
#define GIC_WORKLOADS_RATE_CUH

#include "../stream/stream.cuh"

struct rate_workload : stream_workload {
    using device_half = stream_workload;
    static constexpr const char *name = "rate";
};

#endif
