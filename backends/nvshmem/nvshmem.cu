// NVSHMEM as a backend: the half that needs nothing of NVIDIA's. See nvshmem.h.
#include "backends/nvshmem/nvshmem.h"

#include "backends/abi/relay.h"

namespace {

// Versions whose transport interface and device state are those restated and tested here.
constexpr gic::Version accepted[] = {{3, 4, 5}};

constexpr const char *force = "GIC_NVSHMEM_FORCE";

// What open() works with, found by find(); once per process.
struct {
    void *library = nullptr; // libnvshmem_host, never closed
    gic::Version version{};
} loaded;

int find_nvshmem() {
    const char *file = "libnvshmem_host.so.3";
    std::string path = gic::find_library({file, "NVSHMEM_HOME", "nvidia/nvshmem/lib"});
    if (path.empty())
        return gic::fail(
            -ENOTSUP,
            "NVSHMEM not found (%s): pip install nvidia-nvshmem-cu13==%s, or set GIC_NVSHMEM_HOME to an "
            "installation",
            file, accepted[0].text().c_str());
    // For the whole process: gic_nvshmem.so finds it by its SONAME.
    void *lib = dlopen(path.c_str(), RTLD_LAZY | RTLD_GLOBAL);
    if (!lib)
        return gic::fail(-ENOTSUP, "NVSHMEM does not load: %s", dlerror());
    auto tell =
        reinterpret_cast<void (*)(int *, int *, int *)>(dlsym(lib, "nvshmemx_vendor_get_version_info"));
    if (!tell)
        return gic::fail(-ENOTSUP, "%s does not tell its version (no nvshmemx_vendor_get_version_info)",
                         path.c_str());
    gic::Version v = {0, 0, 0};
    tell(&v.major, &v.minor, &v.patch);
    if (int rc = gic::relay::check_version("NVSHMEM", accepted, force, path, v))
        return rc;
    loaded.library = lib;
    loaded.version = v;
    return 0;
}

int load_session() {
    if (gic::relay::half)
        return 0;
    return gic::relay::load_half("nvshmem", nvshmem_backend::session_file, nvshmem_backend::session_symbol,
                                 &gic::relay::half, nullptr);
}

// A real NIC: NVSHMEM's own transports, untouched, with all that they ask of a machine.
int probe_nic(const char *nic) {
    const std::string path = std::string("/sys/class/infiniband/") + nic;
    if (access(path.c_str(), R_OK) != 0)
        return gic::fail(-ENOTSUP, "nic=%s: no RDMA device of that name (%s is not there)", nic,
                         path.c_str());
    return 0;
}

int probe(const struct gic_open *open) {
    return gic::guarded([&]() -> int {
        if (int rc = nvshmem_backend::check_keys(open))
            return rc;
        if (!nvshmem_backend::soft(open) && !nvshmem_backend::no_nic(open))
            if (int rc = probe_nic(open->nic))
                return rc;
        if (int rc = gic::probe_cuda("nvshmem", open->device))
            return rc;
        if (!loaded.library)
            if (int rc = find_nvshmem())
                return rc;
        return gic::relay::find_half("nvshmem", nvshmem_backend::session_file);
    });
}

int open_session(const struct gic_open *open, struct gic_session **session_p) {
    if (int rc = probe(open))
        return rc;
    if (int rc = gic::guarded(load_session))
        return rc;
    return gic::relay::open(open, session_p);
}
// The other half's facts, and the library that was found.
int facts(struct gic_session *s, const struct gic_kv **facts_p, uint32_t *count_p) {
    return gic::relay::facts(s, facts_p, count_p, [](gic::Facts &all) {
        // As it says itself; where it lies the loader knows.
        all.set("nvshmem.version", loaded.version.text());
        if (gic::relay::forced(force))
            all.set("nvshmem.forced", std::string("yes"));
    });
}

} // namespace

GIC_EXPORT const struct gic_backend gic_backend_v1 = {
    "nvshmem",
    "1",
    sizeof(struct gic_backend),
    GIC_ABI_VERSION,
#if defined(GIC_CUDA_PLUGIN)
    GIC_CAP_PUT | GIC_CAP_PUT_VALUE | GIC_CAP_PUT_SIGNAL | GIC_CAP_SIGNAL | GIC_CAP_WAIT | GIC_CAP_GET |
        GIC_CAP_FETCH_ADD | GIC_CAP_FENCE | GIC_CAP_FLUSH | GIC_CAP_QUIET | GIC_CAP_GPU_VISIBLE |
        GIC_CAP_NOTIFY | GIC_CAP_CUDA_DEVICE | GIC_CAP_NIC_SOFT | GIC_CAP_NIC_NONE | GIC_CAP_NIC_MLX5,
#else
    0,
#endif
    nvshmem_backend::keys,
    nvshmem_backend::key_count,
    {nvshmem_backend::lowering[0], nvshmem_backend::lowering[1], nvshmem_backend::lowering[2],
     nvshmem_backend::lowering[3], nvshmem_backend::lowering[4], nvshmem_backend::lowering[5],
     nvshmem_backend::lowering[6], nvshmem_backend::lowering[7]},
    probe,
    open_session,
    gic::relay::close,
    gic::relay::window,
    gic::relay::write,
    gic::relay::read,
    gic::relay::run,
    gic::relay::counters,
    facts,
    gic::relay::last_error,
};
