// NCCL GIN as a backend: the half that needs nothing of NVIDIA's. See ncclgin.h.
#include "backends/ncclgin/ncclgin.h"

#include "backends/abi/probe.h"

#include <dlfcn.h>

namespace {

// Versions whose device interface is the one this backend was written for and run with.
constexpr gic::Version accepted[] = {{2, 28, 9}};

bool forced() {
    const char *force = getenv("GIC_NCCL_FORCE");
    return force && strcmp(force, "1") == 0;
}

// 22809 is 2.28.9 (NCCL_VERSION of nccl.h, since 2.9).
gic::Version version_of(int code) { return {code / 10000, code / 100 % 100, code % 100}; }

int check_version(const std::string &path, gic::Version v) {
    std::string list;
    for (const gic::Version &a : accepted) {
        if (!(a < v) && !(v < a))
            return 0;
        list += (list.empty() ? "" : ", ") + a.text();
    }
    if (forced())
        return 0;
    return gic::fail(-ENOTSUP, "NCCL %s (%s) is not accepted: want %s (GIC_NCCL_FORCE=1 tries it)",
                     v.text().c_str(), path.c_str(), list.c_str());
}

// What open() works with, found by find_nccl(); once per process.
struct {
    void *library = nullptr; // libnccl, never closed
    std::string path;
    gic::Version version{};
    const struct gic_backend *session = nullptr; // of gic_ncclgin.so
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
    if (int rc = check_version(path, version_of(code)))
        return rc;
    loaded.library = lib;
    loaded.path = path;
    loaded.version = version_of(code);
    return 0;
}

// The folder of this plugin, with a slash.
std::string own_folder() {
    Dl_info info;
    if (!dladdr((const void *)&own_folder, &info) || !info.dli_fname)
        return "";
    const std::string path = info.dli_fname;
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? "./" : path.substr(0, slash + 1);
}

int find_session() {
    const std::string path = own_folder() + ncclgin_backend::session_file;
    if (access(path.c_str(), R_OK) != 0)
        return gic::fail(
            -ENOTSUP,
            "this build of the ncclgin backend has no device code (built without CUDA): %s is not there",
            path.c_str());
    return 0;
}

int load_session() {
    if (loaded.session)
        return 0;
    const std::string path = own_folder() + ncclgin_backend::session_file;
    void *lib = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return gic::fail(-ENOTSUP, "the device code of the ncclgin backend does not load: %s", dlerror());
    auto *session = static_cast<const struct gic_backend *>(dlsym(lib, ncclgin_backend::session_symbol));
    auto *headers = static_cast<const int *>(dlsym(lib, ncclgin_backend::headers_symbol));
    if (!session || !headers || session->abi != GIC_ABI_VERSION || session->struct_size != sizeof *session)
        return gic::fail(-ENOTSUP, "%s is not of this build", path.c_str());
    // Kernels read what the library writes; its layout differs from release to release, so no force helps here.
    const gic::Version h = version_of(*headers);
    if (h < loaded.version || loaded.version < h)
        return gic::fail(
            -ENOTSUP,
            "NCCL %s (%s), but the device code was compiled with the headers of %s: build it with those "
            "of this library (make NCCL_HOME=...)",
            loaded.version.text().c_str(), loaded.path.c_str(), h.text().c_str());
    loaded.session = session;
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
        // Code that is loaded at its first launch waits for the device, on which a kernel may be waiting for it.
        setenv("CUDA_MODULE_LOADING", "EAGER", 0);
        if (int rc = gic::probe_cuda("ncclgin", open->device))
            return rc;
        if (int rc = find_nic(open->nic))
            return rc;
        if (!loaded.library)
            if (int rc = find_nccl())
                return rc;
        return find_session();
    });
}

// A status of the other half, with its text.
int pass_on(int rc) { return rc ? gic::fail(rc, "%s", loaded.session->last_error()) : 0; }

int open_session(const struct gic_open *open, struct gic_session **session_p) {
    if (int rc = probe(open))
        return rc;
    if (int rc = gic::guarded(load_session))
        return rc;
    return pass_on(loaded.session->open(open, session_p));
}
void close_session(struct gic_session *s) {
    if (s)
        loaded.session->close(s);
}
int window(struct gic_session *s, uint64_t bytes) { return pass_on(loaded.session->window(s, bytes)); }
int write(struct gic_session *s, uint64_t offset, const void *src, size_t bytes) {
    return pass_on(loaded.session->write(s, offset, src, bytes));
}
int read(struct gic_session *s, uint64_t offset, void *dst, size_t bytes) {
    return pass_on(loaded.session->read(s, offset, dst, bytes));
}
int run(struct gic_session *s, const struct gic_run *run, struct gic_result *result_p) {
    return pass_on(loaded.session->run(s, run, result_p));
}
int counters(struct gic_session *s, const struct gic_counter **counters_p, uint32_t *count_p) {
    return pass_on(loaded.session->counters(s, counters_p, count_p));
}

// The other half's facts, and the library that was found.
int facts(struct gic_session *s, const struct gic_kv **facts_p, uint32_t *count_p) {
    static gic::Facts all; // one session per process at a time
    const struct gic_kv *list;
    uint32_t n;
    if (int rc = pass_on(loaded.session->facts(s, &list, &n)))
        return rc;
    return gic::guarded([&] {
        for (uint32_t i = 0; i < n; i++)
            all.set(list[i].key, std::string(list[i].value));
        all.set("nccl.version", loaded.version.text()); // as it says itself; where it lies the loader knows
        if (forced())
            all.set("nccl.forced", std::string("yes"));
        all.publish(facts_p, count_p);
        return 0;
    });
}

const char *last_error() { return gic::error_text().c_str(); }

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
    close_session,
    window,
    write,
    read,
    run,
    counters,
    facts,
    last_error,
};
