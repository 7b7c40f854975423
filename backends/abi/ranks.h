/* What sessions of several ranks need beside their library: exchanges that report which rank failed, and the GPU that
 * ranks may share.
 *
 * C++, host side. Functions return 0 or a negative errno and leave one line in gic::error_text(). All are collective.
 */
#ifndef GIC_ABI_RANKS_H
#define GIC_ABI_RANKS_H

#include "share.h"

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

    /* Opens "cuda:N" and learns who shares it; see share_gpu(). */
    int open_gpu(const char *device, std::unique_ptr<Gpu> *gpu_p, bool in_process = false) const {
        const int rc = Gpu::open(device, gpu_p);
        // All take part in the exchange, also those that have no device: the others must not wait for them.
        const std::string said = error_text();
        GpuPlace mine{{}, process_token()};
        if (rc == 0)
            memcpy(mine.uuid, (*gpu_p)->uuid().data(), sizeof mine.uuid);
        std::vector<GpuPlace> all(nranks);
        if (int failed = gather(&mine, all.data(), sizeof mine, "GPU identities"))
            return failed;
        return rc ? fail(rc, "%s", said.c_str()) : share_gpu(all, rank, gpu_p->get(), in_process);
    }
};

} // namespace gic

#endif
