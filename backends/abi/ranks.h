/* What sessions of several ranks need beside their library: exchanges that report which rank failed, and the GPU that
 * ranks may share.
 *
 * C++, host side. Functions return 0 or a negative errno and leave one line in gic::error_text(). All are collective.
 */
#ifndef GIC_ABI_RANKS_H
#define GIC_ABI_RANKS_H

#include "driver.cuh"

namespace gic {

struct Ranks {
    uint32_t rank, nranks;
    const struct gic_comm *comm; // the harness' own, until close

    /* all: nranks * bytes. `what` is exchanged: "the unique id". */
    int gather(const void *mine, void *all, size_t bytes, const char *what) const {
        const int rc = comm->allgather(comm->arg, mine, all, bytes);
        return rc ? fail(rc, "rank %u: exchange %s: %s", rank, what, strerror(-rc)) : 0;
    }

    /* rc here, with its text, or what another rank met while it did `what`: "open the GPU". */
    int agree(int rc, const char *what) const {
        const std::string said = error_text();
        std::vector<int> all(nranks);
        if (int failed = gather(&rc, all.data(), sizeof rc, what))
            return failed;
        if (rc)
            return fail(rc, "%s", said.c_str());
        for (uint32_t r = 0; r < nranks; r++)
            if (all[r])
                return fail(all[r] == -ENOTSUP ? -ENOTSUP : -EIO, "rank %u: %s: %s", r, what,
                            strerror(-all[r]));
        return 0;
    }

    /* Opens "cuda:N" and counts who shares it. Ranks that do must run beside each other, which they do under MPS alone. */
    int open_gpu(const char *device, std::unique_ptr<Gpu> *gpu_p) const {
        if (int rc = agree(Gpu::open(device, gpu_p), "open the GPU"))
            return rc;
        Gpu &gpu = **gpu_p;
        char mine[16] = {};
        memcpy(mine, gpu.uuid().data(), sizeof mine);
        std::vector<char> all(sizeof mine * nranks);
        if (int rc = gather(mine, all.data(), sizeof mine, "GPU identities"))
            return rc;
        uint32_t sharers = 0;
        for (uint32_t r = 0; r < nranks; r++)
            sharers += memcmp(&all[sizeof mine * r], mine, sizeof mine) == 0;
        gpu.set_sharers(sharers);
        if (sharers > 1 && !gpu.mps())
            return fail(-ENOTSUP,
                        "%u ranks on one %s without MPS would be time-sliced, and no time taken would mean "
                        "anything: start nvidia-cuda-mps-control -d, or use a GPU for each rank",
                        sharers, gpu.name().c_str());
        return 0;
    }
};

} // namespace gic

#endif
