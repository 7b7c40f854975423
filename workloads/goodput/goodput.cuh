// goodput: the kernel is stream's.
#ifndef GIC_WORKLOADS_GOODPUT_CUH
#define GIC_WORKLOADS_GOODPUT_CUH

#include "../stream/stream.cuh"

struct goodput_workload : stream_workload {
    using device_half = stream_workload;
    static constexpr const char *name = "goodput";
};

#endif
