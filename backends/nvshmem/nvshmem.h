/* The two halves of the NVSHMEM backend, and what both must know.
 *
 * libnvshmem.so (nvshmem.cu) is the plugin that gic loads everywhere: keys, the support probe, and the search for NVSHMEM.
 * It is linked against nothing of NVIDIA's. On open() it loads, in this order and by path, libnvshmem_host.so.3 of the
 * installation that it has found, and gic_nvshmem.so (session.cc and the kernels), which lies beside it, holds
 * libnvshmem_device.a and needs that library; from then on it hands every call on.
 */
#ifndef BACKENDS_NVSHMEM_NVSHMEM_H
#define BACKENDS_NVSHMEM_NVSHMEM_H

#include "backends/abi/adapter.cuh"

namespace nvshmem_backend {

constexpr const char *session_file = "gic_nvshmem.so";
constexpr const char *session_symbol = "gic_nvshmem_session_v1"; // of type struct gic_backend

const struct gic_key keys[] = {
    {"path", "auto", "auto|ibgda|ibrc|p2p",
     "what moves the bytes: IBGDA's queues, the proxy channel, or loads and stores at the peer's memory; "
     "auto: "
     "p2p with nic=none, else ibgda"},
    {"transport", "auto", "auto|own|vendor",
     "the library's host half for a NIC: the one of this repository, over the software NIC, or the library's "
     "own, "
     "untouched, over a real one; auto: what the NIC is"},
    {"handler", "gpu", "gpu|host",
     "who stores to the doorbell of path=ibgda: the device thread, or the library's proxy thread for it "
     "(IBGDA_NIC_HANDLER)"},
    {"rc", "2", "0..512",
     "RC queue pairs per PE (IBGDA_NUM_RC_PER_PE); 0: DC queue pairs, which go to every PE, carry "
     "everything"},
    {"map", "cta", "cta|sm|warp", "which of them a thread posts to: by its block, multiprocessor or warp"},
    {"dci", "1", "1..512", "DC queue pairs of a PE, with rc=0 (IBGDA_NUM_DCI)"},
    {"shared_dci", "1", "1..512",
     "of those the ones that thread blocks share; each of the others belongs to one block "
     "(IBGDA_NUM_SHARED_DCI)"},
    {"dci_map", "cta", "cta|sm|warp|dct",
     "which of those a thread posts to: by its block, multiprocessor, warp or DCT (IBGDA_DCI_MAP_BY)"},
    {"dct", "2", "1..64", "DCTs of a PE, with rc=0: what its peers' DC queue pairs address (IBGDA_NUM_DCT)"},
    {"batch", "32", "1..1024", "requests in a doorbell batch, rounded up to a power of two"},
    {"depth", "1024", "128..32768", "blocks per send queue, a power of two (QP_DEPTH)"},
    {"heap", "256", "1..8192", "symmetric heap of each PE, MiB (SYMMETRIC_SIZE)"},
    {"vmm", "auto", "auto|off|on",
     "a heap in GPU memory is one allocation, or pieces that the library maps as it grows "
     "(DISABLE_CUDA_VMM); "
     "auto: one over the software NIC, else as the library likes"},
    {"scope", "thread", "thread|warp|block",
     "who calls the library: a thread, or a warp or a block of 128 threads together"},
    {"level", "public", "public|inlined|internal",
     "the API over the library's archive, the API compiled into the kernel, or the IBGDA functions below it"},
    {"signals", "fenced", "fenced|queue",
     "order of a signal behind earlier puts: nvshmem_fence, as the API wants, or the queue pair's own"},
    {"completion", "all", "all|queue",
     "what a flush waits for: nvshmem_quiet, or the own queue pair (level=internal)"},
    {"quiet", "lane", "lane|warp",
     "scope=warp: one lane calls nvshmem_quiet, the only form that the API has, and looks at all queue pairs "
     "in turn; or all "
     "lanes call the function below it together, as the library's own collectives do"},
    {"fault", "none", "none|withdraw",
     "for tests: take the heap's key away after init, so that peers see error CQEs"},
};
constexpr uint32_t key_count = sizeof keys / sizeof *keys;

// Over the NIC. Of puts that a warp posts together each is one WQE too; the NOP of a SET or of a coalesced p is not
// in these words.
constexpr struct gic_lowering lowering[GIC_OP_COUNT] = {
    {1, 0, 0}, // put
    {1, 0, 0}, // put_value
    {0, 0, 1}, // signal
    {1, 0, 1}, // put_signal
    {0, 1, 0}, // get
    {0, 0, 1}, // fetch_add
    {1, 0, 0}, // notify of 8 bytes
    {1, 0, 1}, // notify of more
};

enum class Path { ibgda, ibrc, p2p };

inline bool soft(const struct gic_open *open) { return strcmp(open->nic, "soft") == 0; }
inline bool no_nic(const struct gic_open *open) { return strcmp(open->nic, "none") == 0; }

inline Path path_of(const gic::Config &c, const struct gic_open *open) {
    const uint32_t choice = c.choice("path");
    return choice ? (Path)(choice - 1) : no_nic(open) ? Path::p2p : Path::ibgda;
}

// A setting of --nic soft, `value` where it is not given.
inline const char *nic_setting(const struct gic_open *open, const char *key, const char *value) {
    const char *given = gic::kv_find(open->nic_config, open->nic_config_count, key);
    return given ? given : value;
}
inline bool gpu_engine(const struct gic_open *open) {
    return soft(open) && strcmp(nic_setting(open, "engine", "cpu"), "gpu") == 0;
}
// Is the symmetric heap in host memory? Where softnic's threads serve, or when it is asked for.
inline bool heap_in_host(const struct gic_open *open) {
    return soft(open) && (!gpu_engine(open) || strcmp(nic_setting(open, "window", "auto"), "host") == 0);
}

// What of the queues goes together.
inline int check_queues(const gic::Config &c, const struct gic_open *open) {
    const Path path = path_of(c, open);
    const uint32_t depth = c.u32("depth"), rc = c.u32("rc");
    if (depth & (depth - 1))
        return gic::fail(-EINVAL, "depth=%u: want a power of two", depth);
    if (c.u32("batch") > depth)
        return gic::fail(-EINVAL, "batch=%u with depth=%u: a batch must fit the queue", c.u32("batch"),
                         depth);
    if (rc == 0) {
        if (path != Path::ibgda)
            return gic::fail(-ENOTSUP, "rc=0: DC queue pairs are of path=ibgda");
        if (c.u32("shared_dci") > c.u32("dci"))
            return gic::fail(-EINVAL, "shared_dci=%u with dci=%u: want at most all", c.u32("shared_dci"),
                             c.u32("dci"));
        if (c.u32("dct") * (uint32_t)open->nranks > 128)
            return gic::fail(-ENOTSUP, "dct=%u for each of %d ranks: want at most 128 of all", c.u32("dct"),
                             open->nranks);
        if (gpu_engine(open) && strcmp(nic_setting(open, "profile", "none"), "none") != 0)
            return gic::fail(-ENOTSUP,
                             "rc=0 with engine=gpu and profile=%s: its DC queue pairs have no profile",
                             nic_setting(open, "profile", "none"));
        return 0;
    }
    for (const struct gic_key &k : keys) // dci, shared_dci, dci_map, dct
        if (strstr(k.name, "dc") && strcmp(c.text(k.name), k.value) != 0)
            return gic::fail(-EINVAL,
                             "%s=%s with rc=%u: DC queue pairs carry nothing beside RC ones; want rc=0",
                             k.name, c.text(k.name), rc);
    return 0;
}

// The software NIC's keys.
inline int check_soft(const gic::Config &c, const struct gic_open *open) {
    const bool gpu = gpu_engine(open);
    if (gpu && path_of(c, open) == Path::ibrc)
        return gic::fail(-ENOTSUP,
                         "path=ibrc with engine=gpu: the proxy thread cannot store into queues in GPU "
                         "memory; want engine=cpu");
    if (gpu && c.choice("handler") == 1)
        return gic::fail(-ENOTSUP, "handler=host with engine=gpu: the proxy thread cannot store to doorbell "
                                   "records in GPU memory; want engine=cpu");
    if (strcmp(nic_setting(open, "doorbell", "host"), "gpu") == 0)
        return gic::fail(-ENOTSUP, "doorbell=gpu: %s; want doorbell=host",
                         gpu ? "softnic's kernel comes when a thread of this machine sees a doorbell"
                             : "the processor cannot load GPU memory");
    return 0;
}

inline const char *path_name(Path path) {
    static const char *const names[] = {"ibgda", "ibrc", "p2p"};
    return names[(int)path];
}

// What NVSHMEM really has: mapped[pe], is PE's heap mapped at `rank`? Then it loads and stores, and asks no transport. (Where
// it asks one, the NIC's counts are held to the messages.)
inline int check_path(Path path, uint32_t rank, const std::vector<bool> &mapped) {
    for (uint32_t pe = 0; pe < mapped.size(); pe++) {
        if (pe == rank)
            continue;
        if (path != Path::p2p && mapped[pe])
            return gic::fail(-EIO, "path=%s, but PE %u's heap is mapped here: NVSHMEM would load and store",
                             path_name(path), pe);
        if (path == Path::p2p && !mapped[pe])
            return gic::fail(-ENOTSUP, "path=p2p, but NVSHMEM does not map PE %u's heap here", pe);
    }
    return 0;
}

// Keys against each other and against nic. No look at the machine.
inline int check_keys(const struct gic_open *open) {
    gic::Config c(keys, key_count, open);
    if (int rc = c.check())
        return rc;
    const Path path = path_of(c, open);
    const bool nic = path != Path::p2p;
    if (nic && no_nic(open))
        return gic::fail(-ENOTSUP, "path=%s needs a NIC: --nic soft", c.text("path"));
    if (!nic && !no_nic(open))
        return gic::fail(-ENOTSUP, "path=p2p uses no NIC: --nic none");
    const uint32_t transport = c.choice("transport");
    if (transport == 2 && (soft(open) || no_nic(open)))
        return gic::fail(-ENOTSUP,
                         "transport=vendor drives a real ConnectX: --nic DEV on a machine that has one");
    if (transport == 1 && !soft(open))
        return gic::fail(-ENOTSUP, "transport=own is for the software NIC: want --nic soft");
    if (int rc = soft(open) ? check_soft(c, open) : 0)
        return rc;
    if (int rc = check_queues(c, open))
        return rc;
    if (strcmp(c.text("vmm"), "on") == 0 && heap_in_host(open))
        return gic::fail(-ENOTSUP, "vmm=on: the heap is in host memory; want engine=gpu");
    const bool internal = strcmp(c.text("level"), "internal") == 0;
    if (internal && path != Path::ibgda)
        return gic::fail(-ENOTSUP, "level=internal posts to queues: want path=ibgda");
    if (c.choice("handler") == 1 && path != Path::ibgda)
        return gic::fail(-ENOTSUP, "handler=host forwards IBGDA's doorbells: want path=ibgda");
    if (strcmp(c.text("completion"), "queue") == 0 && !internal)
        return gic::fail(-ENOTSUP,
                         "completion=queue: the public API completes everything; want level=internal");
    if (strcmp(c.text("quiet"), "warp") == 0 && strcmp(c.text("scope"), "warp") != 0)
        return gic::fail(-ENOTSUP, "quiet=warp with scope=%s: want scope=warp", c.text("scope"));
    if (strcmp(c.text("level"), "public") != 0 && strcmp(c.text("scope"), "thread") != 0)
        return gic::fail(-ENOTSUP, "level=%s is built for scope=thread alone", c.text("level"));
    if (strcmp(c.text("fault"), "none") != 0 && !soft(open))
        return gic::fail(-ENOTSUP, "fault=%s needs the software NIC", c.text("fault"));
    return 0;
}

} // namespace nvshmem_backend

#endif
