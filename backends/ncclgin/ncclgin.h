/* The two halves of the NCCL GIN backend, and what both must know.
 *
 * libncclgin.so (ncclgin.cu) is the plugin that gic loads everywhere: keys, the support probe, and the search for NCCL. It
 * is linked against nothing of NVIDIA's. On open() it loads, in this order and by path, libnccl.so.2 of the installation that
 * it has found, and gic_ncclgin.so (session.cc and the kernels, compiled with NCCL's own headers), which lies beside it and
 * needs that library; from then on it hands every call on. Over softnic the session loads gic_ncclgin_net.so (net.h).
 */
#ifndef BACKENDS_NCCLGIN_NCCLGIN_H
#define BACKENDS_NCCLGIN_NCCLGIN_H

#include "backends/abi/adapter.cuh"

namespace ncclgin_backend {

constexpr const char *session_file = "gic_ncclgin.so";
constexpr const char *session_symbol = "gic_ncclgin_session_v1"; // of type struct gic_backend
// NCCL_VERSION_CODE of the headers that gic_ncclgin.so was compiled with, an int: device code and library must agree.
constexpr const char *headers_symbol = "gic_ncclgin_headers_v1";

const struct gic_key keys[] = {
    {"path", "auto", "auto|gdaki|proxy|lsa",
     "what moves the bytes: the GPU's own WQEs, NCCL's proxy thread, or loads and stores at the peer's "
     "memory (LSA); "
     "auto: lsa with nic=none, else gdaki"},
    {"contexts", "1", "1..16",
     "GIN contexts (a queue pair per peer each); an agent stays on one. NCCL 2.28 has 4 to a communicator: "
     "more take more "
     "communicators"},
    {"lanes", "1", "1|2|4|8|16|32|64",
     "threads that submit together on one context: the Coop of NCCL's calls"},
    {"syncwarp", "off", "off|on",
     "lanes above 1: a sync of the lanes (__syncwarp) behind each put that every lane makes"},
    {"inline", "off", "off|on", "8-byte puts: gin.putValue instead of gin.put"},
    {"completion", "flush", "flush|counter",
     "what a flush waits for: gin.flush, or the counter that each put increments"},
    {"depth", "128", "64..32768",
     "blocks per send queue over softnic, a power of two (NCCL's own default is 128)"},
    {"fault", "none", "none|withdraw",
     "for tests: take the windows' keys away after init, so that peers see error CQEs"},
};
constexpr uint32_t key_count = sizeof keys / sizeof *keys;

// Over the NIC. The WAIT and the atomic of a put's counter (completion=counter) are the companion queue pair's and
// counted apart.
constexpr struct gic_lowering lowering[GIC_OP_COUNT] = {
    {1, 0, 0}, // put
    {1, 0, 0}, // put_value
    {0, 0, 1}, // signal
    {1, 0, 1}, // put_signal
    {0, 0, 0}, // get
    {0, 0, 0}, // fetch_add
    {1, 0, 1}, // notify of 8 bytes
    {1, 0, 1}, // notify of more
};

enum class Type { GDAKI, PROXY, LSA };

inline Type type_of(const gic::Config &c, const struct gic_open *open) {
    const char *type = c.text("path");
    if (strcmp(type, "auto") == 0)
        return strcmp(open->nic, "none") == 0 ? Type::LSA : Type::GDAKI;
    return strcmp(type, "lsa") == 0 ? Type::LSA : strcmp(type, "proxy") == 0 ? Type::PROXY : Type::GDAKI;
}
inline const char *type_name(Type t) {
    return t == Type::GDAKI ? "gdaki" : t == Type::PROXY ? "proxy" : "lsa";
}

// Keys against each other and against nic. No look at the machine.
inline int check_keys(const struct gic_open *open) {
    gic::Config c(keys, key_count, open);
    if (int rc = c.check())
        return rc;
    const Type type = type_of(c, open);
    const bool none = strcmp(open->nic, "none") == 0, soft = strcmp(open->nic, "soft") == 0;
    const bool many = c.u32("lanes") > 1, counter = strcmp(c.text("completion"), "counter") == 0,
               in_wqe = strcmp(c.text("inline"), "on") == 0;
    const uint32_t depth = c.u32("depth");
    if (depth & (depth - 1))
        return gic::fail(-EINVAL, "depth=%u: want a power of two", depth);
    if (type != Type::LSA && none)
        return gic::fail(-ENOTSUP, "path=%s needs a NIC: --nic soft, or the name of an RDMA device",
                         type_name(type));
    if (type == Type::LSA && !none)
        return gic::fail(-ENOTSUP, "path=lsa uses no NIC: --nic none");
    if (strcmp(c.text("syncwarp"), "on") == 0 && !many)
        return gic::fail(-ENOTSUP, "syncwarp=on: one lane has nobody to sync with; want lanes above 1");
    if (in_wqe && type != Type::GDAKI)
        return gic::fail(-ENOTSUP, "inline=on with path=%s: %s", type_name(type),
                         type == Type::LSA ? "there is no WQE"
                                           : "putValue of NCCL 2.28.9's proxy writes through a wild pointer");
    if (counter && (type == Type::LSA || many || in_wqe))
        return gic::fail(
            -ENOTSUP,
            "completion=counter is built for gin.put by one lane: want path=gdaki or proxy, lanes=1, "
            "inline=off");
    if (strcmp(c.text("fault"), "none") != 0 && !soft)
        return gic::fail(-ENOTSUP, "fault=%s needs --nic soft", c.text("fault"));
    return 0;
}

} // namespace ncclgin_backend

#endif
