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
    {"path", "auto", "auto|ibgda|p2p",
     "what moves the bytes: IBGDA's queues, or loads and stores at the peer's memory; auto: p2p with "
     "nic=none"},
    {"rc", "2", "1..512", "RC queue pairs per PE (IBGDA_NUM_RC_PER_PE)"},
    {"map", "cta", "cta|sm|warp", "which of them a thread posts to: by its block, multiprocessor or warp"},
    {"batch", "32", "1..1024", "requests in a doorbell batch, rounded up to a power of two"},
    {"depth", "1024", "128..32768", "blocks per send queue, a power of two (QP_DEPTH)"},
    {"heap", "256", "1..1024", "symmetric heap of each PE, MiB (SYMMETRIC_SIZE)"},
    {"scope", "thread", "thread|warp", "who calls the library: a thread, or a warp together"},
    {"level", "public", "public|inlined|internal",
     "the API over the library's archive, the API compiled into the kernel, or the IBGDA functions below it"},
    {"signals", "fenced", "fenced|queue",
     "order of a signal behind earlier puts: nvshmem_fence, as the API wants, or the queue pair's own"},
    {"completion", "all", "all|queue",
     "what a flush waits for: nvshmem_quiet, or the own queue pair (level=internal)"},
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

inline bool over_nic(const gic::Config &c, const struct gic_open *open) {
    const char *path = c.text("path");
    return strcmp(path, "auto") == 0 ? strcmp(open->nic, "none") != 0 : strcmp(path, "ibgda") == 0;
}

// Keys against each other and against nic. No look at the machine.
inline int check_keys(const struct gic_open *open) {
    gic::Config c(keys, key_count, open);
    if (int rc = c.check())
        return rc;
    const bool nic = over_nic(c, open), soft = strcmp(open->nic, "soft") == 0,
               none = strcmp(open->nic, "none") == 0;
    if (!soft && !none)
        return gic::fail(-ENOTSUP, "nic=%s: nvshmem over a real NIC is not served yet; want soft or none",
                         open->nic);
    if (nic && none)
        return gic::fail(-ENOTSUP, "path=ibgda needs a NIC: --nic soft");
    if (!nic && soft)
        return gic::fail(-ENOTSUP, "path=p2p uses no NIC: --nic none");
    if (nic)
        for (const char *key : {"engine", "doorbell"}) {
            const char *value = gic::kv_find(open->nic_config, open->nic_config_count, key);
            if (value && strcmp(value, "gpu") == 0)
                return gic::fail(
                    -ENOTSUP, "%s=gpu: NVSHMEM's queues are served by engine=cpu from host memory alone yet",
                    key);
        }
    const uint32_t depth = c.u32("depth");
    if (depth & (depth - 1))
        return gic::fail(-EINVAL, "depth=%u: want a power of two", depth);
    if (c.u32("batch") > depth)
        return gic::fail(-EINVAL, "batch=%u with depth=%u: a batch must fit the queue", c.u32("batch"),
                         depth);
    const bool internal = strcmp(c.text("level"), "internal") == 0;
    if (internal && !nic)
        return gic::fail(-ENOTSUP, "level=internal posts to queues: want path=ibgda");
    if (strcmp(c.text("completion"), "queue") == 0 && !internal)
        return gic::fail(-ENOTSUP,
                         "completion=queue: the public API completes everything; want level=internal");
    if (strcmp(c.text("level"), "public") != 0 && strcmp(c.text("scope"), "warp") == 0)
        return gic::fail(-ENOTSUP, "level=%s is built for scope=thread alone", c.text("level"));
    if (strcmp(c.text("fault"), "none") != 0 && !nic)
        return gic::fail(-ENOTSUP, "fault=%s needs a NIC", c.text("fault"));
    return 0;
}

} // namespace nvshmem_backend

#endif
