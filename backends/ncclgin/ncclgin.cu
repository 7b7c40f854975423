// NCCL GIN as a backend: the half that needs nothing of NVIDIA's. See ncclgin.h.
#include "backends/ncclgin/ncclgin.h"

#include "backends/abi/relay.h"

namespace {

// Versions whose device interface is the one this backend was written for and run with.
constexpr gic::Version accepted[] = {{2, 28, 9}};

constexpr const char *force = "GIC_NCCL_FORCE";

// 22809 is 2.28.9 (NCCL_VERSION of nccl.h, since 2.9).
gic::Version version_of(int code) { return {code / 10000, code / 100 % 100, code % 100}; }

// What open() works with, found by find_nccl(); once per process.
struct {
    void *library = nullptr; // libnccl, never closed
    std::string path;
    gic::Version version{};
} loaded;

int find_nccl() {
    const char *file = "libnccl.so.2";
    std::string path = gic::find_library({file, "NCCL_HOME", "nvidia/nccl/lib"});
    if (path.empty())
        return gic::fail(
            -ENOTSUP,
            "NCCL not found (%s): pip install nvidia-nccl-cu13==%s, or set GIC_NCCL_HOME to an installation",
            file, accepted[0].text().c_str());
    // For the whole process: gic_ncclgin.so finds it by its SONAME.
    void *lib = dlopen(path.c_str(), RTLD_LAZY | RTLD_GLOBAL);
    if (!lib)
        return gic::fail(-ENOTSUP, "NCCL does not load: %s", dlerror());
    auto tell = reinterpret_cast<int (*)(int *)>(dlsym(lib, "ncclGetVersion"));
    int code = 0;
    if (!tell || tell(&code) != 0)
        return gic::fail(-ENOTSUP, "%s does not tell its version (ncclGetVersion)", path.c_str());
    if (int rc = gic::relay::check_version("NCCL", accepted, force, path, version_of(code)))
        return rc;
    loaded.library = lib;
    loaded.path = path;
    loaded.version = version_of(code);
    return 0;
}

int load_session() {
    if (gic::relay::half)
        return 0;
    const struct gic_backend *session = nullptr;
    void *lib = nullptr;
    if (int rc = gic::relay::load_half("ncclgin", ncclgin_backend::session_file,
                                       ncclgin_backend::session_symbol, &session, &lib))
        return rc;
    auto *headers = static_cast<const int *>(dlsym(lib, ncclgin_backend::headers_symbol));
    if (!headers)
        return gic::fail(-ENOTSUP, "%s is not of this build", ncclgin_backend::session_file);
    // Kernels read what the library writes; its layout differs from release to release, so no force helps here.
    const gic::Version h = version_of(*headers);
    if (h < loaded.version || loaded.version < h)
        return gic::fail(
            -ENOTSUP,
            "NCCL %s (%s), but the device code was compiled with the headers of %s: build it with those "
            "of this library (make NCCL_HOME=...)",
            loaded.version.text().c_str(), loaded.path.c_str(), h.text().c_str());
    gic::relay::half = session;
    return 0;
}

// A real NIC by its name.
int find_nic(const char *nic) {
    if (strcmp(nic, "soft") == 0 || strcmp(nic, "none") == 0)
        return 0;
    const std::string path = std::string("/sys/class/infiniband/") + nic;
    if (access(path.c_str(), F_OK) != 0)
        return gic::fail(-ENOTSUP, "nic=%s: no such RDMA device (%s); want soft, none or one that is there",
                         nic, path.c_str());
    return 0;
}

int probe(const struct gic_open *open) {
    return gic::guarded([&]() -> int {
        if (int rc = ncclgin_backend::check_keys(open))
            return rc;
        if (int rc = gic::probe_cuda("ncclgin", open->device))
            return rc;
        if (int rc = find_nic(open->nic))
            return rc;
        if (!loaded.library)
            if (int rc = find_nccl())
                return rc;
        return gic::relay::find_half("ncclgin", ncclgin_backend::session_file);
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
        all.set("nccl.version", loaded.version.text());
        if (gic::relay::forced(force))
            all.set("nccl.forced", std::string("yes"));
    });
}

} // namespace

GIC_EXPORT const struct gic_backend gic_backend_v1 = {
    "ncclgin",
    "1",
    sizeof(struct gic_backend),
    GIC_ABI_VERSION,
#if defined(GIC_CUDA_PLUGIN)
    GIC_CAP_PUT | GIC_CAP_PUT_VALUE | GIC_CAP_PUT_SIGNAL | GIC_CAP_SIGNAL | GIC_CAP_WAIT | GIC_CAP_FLUSH |
        GIC_CAP_QUIET | GIC_CAP_GPU_VISIBLE | GIC_CAP_NOTIFY | GIC_CAP_CUDA_DEVICE | GIC_CAP_NIC_SOFT |
        GIC_CAP_NIC_MLX5 | GIC_CAP_NIC_NONE,
#else
    0,
#endif
    ncclgin_backend::keys,
    ncclgin_backend::key_count,
    {ncclgin_backend::lowering[0], ncclgin_backend::lowering[1], ncclgin_backend::lowering[2],
     ncclgin_backend::lowering[3], ncclgin_backend::lowering[4], ncclgin_backend::lowering[5],
     ncclgin_backend::lowering[6], ncclgin_backend::lowering[7]},
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
