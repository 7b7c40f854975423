// The bed of softnic's tests on the GPU engine: each program runs its tests over mapped host memory and over memory
// whose pages live on the device, with both orders of writes. Skipped where no device is.
#include "softnic.h"

#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <set>

namespace {

struct Mode {
    const char *name;
    bool managed;
    enum softnic_writes writes;
};
const Mode modes[] = {
    {"host memory", false, SOFTNIC_WRITES_RUNS},
    {"host memory, strict", false, SOFTNIC_WRITES_STRICT},
    {"device memory", true, SOFTNIC_WRITES_RUNS},
};
const Mode *mode = modes;
bool cpu;
std::set<void *> kept; // of bed_memory

void must(cudaError_t e, const char *what) {
    if (e == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(e));
    exit(1);
}

} // namespace

extern "C" {

void *bed_alloc(size_t bytes) {
    void *addr = nullptr;
    if (mode->managed) {
        must(cudaMallocManaged(&addr, bytes), "cudaMallocManaged");
        must(cudaMemAdvise(addr, bytes, cudaMemAdviseSetPreferredLocation,
                           cudaMemLocation{cudaMemLocationTypeDevice, 0}),
             "cudaMemAdvise");
    } else {
        must(cudaHostAlloc(&addr, bytes, cudaHostAllocMapped | cudaHostAllocPortable), "cudaHostAlloc");
    }
    memset(addr, 0, bytes);
    return addr;
}
void bed_free(void *addr) {
    if (addr)
        must(mode->managed ? cudaFree(addr) : cudaFreeHost(addr), "free");
}

void bed_cpu(int on) { cpu = on != 0; }
struct softnic_attr bed_attr(struct softnic_attr attr) {
    attr.engine = cpu ? SOFTNIC_ENGINE_CPU : SOFTNIC_ENGINE_GPU;
    attr.writes = mode->writes;
    if (attr.max_qps == 0)
        attr.max_qps = 64;
    return attr;
}

void *bed_memory(struct softnic *nic, size_t bytes) {
    void *addr = nullptr;
    if (mode->managed) {
        addr = bed_alloc(bytes);
        kept.insert(addr);
    } else if (softnic_mem_alloc(nic, bytes, &addr)) {
        fprintf(stderr, "softnic_mem_alloc: %s\n", softnic_error());
        exit(1);
    }
    return addr;
}

int bed_run(const char *name, int *failures, void (*tests)(void)) {
    int count = 0, all = 0;
    const cudaError_t e = cudaGetDeviceCount(&count);
    if (e != cudaSuccess || count == 0) {
        printf("%s: skipped: no CUDA device: %s\n", name, e ? cudaGetErrorString(e) : "none");
        return 0;
    }
    for (const Mode &m : modes) {
        mode = &m;
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        *failures = 0;
        tests();
        for (void *addr : kept)
            bed_free(addr);
        kept.clear();
        clock_gettime(CLOCK_MONOTONIC, &b);
        printf("%s on the GPU engine, %s: %s, %d failed (%.1f s)\n", name, m.name,
               *failures ? "failed" : "ok", *failures,
               (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9);
        fflush(stdout);
        all += *failures;
    }
    return all != 0;
}
}
