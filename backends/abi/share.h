// Which ranks share this rank's CUDA device, and whether they run beside each other there.
//
// Ranks with processes of their own do so only under MPS; without it the driver gives each the whole device for
// milliseconds in turn, and every time taken is of that. Ranks of one process share a context and need no MPS. But
// then a call that waits for the device (one that frees or maps memory) waits for the other ranks' kernels, too,
// which may be waiting for the caller: see Gpu::neighbours().
#ifndef GIC_ABI_SHARE_H
#define GIC_ABI_SHARE_H

#include "adapter.cuh"
#include "driver.cuh"
#include "gpu.h"

#include <sys/random.h>

namespace gic {

// Tells this process from all others. (A process id does not, across containers.)
inline uint64_t process_token() {
    static const uint64_t token = [] {
        uint64_t t = 0;
        return getrandom(&t, sizeof t, 0) == (ssize_t)sizeof t && t ? t : 1;
    }();
    return token;
}

// What a rank tells the others: its device, all zero for none, and its process.
struct GpuPlace {
    char uuid[16];
    uint64_t process;
};

// What the places of all ranks mean for one of them. 0 with its Gpu's sharers and neighbours set; -ENOTSUP when a rank
// has no device, or when ranks on one device would be time-sliced. in_process: the backend's ranks can share a process, so
// that this is a way out to name.
inline int share_gpu(const std::vector<GpuPlace> &all, uint32_t rank, Gpu *gpu, bool in_process) {
    const GpuPlace &mine = all[rank];
    const char none[sizeof mine.uuid] = {};
    uint32_t sharers = 0, neighbours = 0, together = 0;
    for (uint32_t r = 0; r < all.size(); r++) {
        const bool here = all[r].process == mine.process,
                   same = memcmp(all[r].uuid, mine.uuid, sizeof mine.uuid) == 0;
        if (memcmp(all[r].uuid, none, sizeof none) == 0)
            return fail(-ENOTSUP, "rank %u has no CUDA device", r);
        sharers += same;
        neighbours += here;
        together += same && here;
    }
    gpu->set_sharers(sharers);
    gpu->set_neighbours(neighbours, together == sharers);
    if (together < sharers && !gpu->mps())
        return fail(-ENOTSUP,
                    "%u ranks on one %s without MPS would be time-sliced, and no time taken would mean "
                    "anything: start nvidia-cuda-mps-control -d%s use a GPU for each rank%s",
                    sharers, gpu->name().c_str(), in_process ? "," : ", or",
                    in_process ? (", or ranks_in_process=" + std::to_string(sharers)).c_str() : "");
    return 0;
}

// Tells `gpu` what the engine of this rank's NIC takes of it, from the facts that the NIC gives (gda_fabric_facts).
inline void note_engine(Gpu *gpu, const struct gic_kv *facts, uint32_t count) {
    const char *sms = kv_find(facts, count, "engine.sms");
    gpu->set_engine(sms ? (uint32_t)strtoul(sms, nullptr, 10) : 0);
}

// How the device is shared, and how the latest kernel lay on it: the same words in every backend's record.
inline void add_gpu_facts(Facts *facts, const Gpu &gpu) {
    const GpuShape &shape = gpu.shape;
    facts->set("gpu", gpu.name());
    facts->set("gpu.mps", std::string(gpu.mps() ? "yes" : "no"));
    facts->set("gpu.ranks", gpu.sharers());
    facts->set("gpu.sharing", std::string(gpu.sharing()));
    facts->set("kernel.blocks", shape.blocks);
    facts->set("kernel.threads", shape.threads);
    facts->set("kernel.registers", shape.registers);
    facts->set("kernel.local_bytes", shape.local_bytes);
    facts->set("kernel.multiprocessor", shape.multiprocessor);
}

} // namespace gic

#endif
