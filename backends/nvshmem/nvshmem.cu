// NVSHMEM as a backend: the half that needs nothing of NVIDIA's. See nvshmem.h.
#include "backends/nvshmem/nvshmem.h"

#include "backends/abi/probe.h"

#include <dlfcn.h>

namespace {

// Versions whose transport interface and device state are those restated and tested here.
constexpr gic::Version accepted[] = {{3, 4, 5}};

bool forced() {
    const char *force = getenv("GIC_NVSHMEM_FORCE");
    return force && strcmp(force, "1") == 0;
}

int check_version(const std::string &path, gic::Version v) {
    std::string list;
    for (const gic::Version &a : accepted) {
        if (!(a < v) && !(v < a))
            return 0;
        list += (list.empty() ? "" : ", ") + a.text();
    }
    if (forced())
        return 0;
    return gic::fail(-ENOTSUP, "NVSHMEM %s (%s) is not accepted: want %s (GIC_NVSHMEM_FORCE=1 tries it)",
                     v.text().c_str(), path.c_str(), list.c_str());
}

// What open() works with, found by find(); once per process.
struct {
    void *library = nullptr; // libnvshmem_host, never closed
    gic::Version version{};
    const struct gic_backend *session = nullptr; // of gic_nvshmem.so
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
    if (int rc = check_version(path, v))
        return rc;
    loaded.library = lib;
    loaded.version = v;
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
    const std::string path = own_folder() + nvshmem_backend::session_file;
    if (access(path.c_str(), R_OK) != 0)
        return gic::fail(
            -ENOTSUP,
            "this build of the nvshmem backend has no device code (built without CUDA): %s is not there",
            path.c_str());
    return 0;
}

int load_session() {
    if (loaded.session)
        return 0;
    const std::string path = own_folder() + nvshmem_backend::session_file;
    void *lib = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return gic::fail(-ENOTSUP, "the device code of the nvshmem backend does not load: %s", dlerror());
    auto *session = static_cast<const struct gic_backend *>(dlsym(lib, nvshmem_backend::session_symbol));
    if (!session || session->abi != GIC_ABI_VERSION || session->struct_size != sizeof *session)
        return gic::fail(-ENOTSUP, "%s is not of this build", path.c_str());
    loaded.session = session;
    return 0;
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
        // Code that is loaded at its first launch waits for the device, on which a kernel may be waiting for it.
        setenv("CUDA_MODULE_LOADING", "EAGER", 0);
        if (int rc = gic::probe_cuda("nvshmem", open->device))
            return rc;
        if (!loaded.library)
            if (int rc = find_nvshmem())
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
        all.set("nvshmem.version",
                loaded.version.text()); // as it says itself; where it lies the loader knows
        if (forced())
            all.set("nvshmem.forced", std::string("yes"));
        all.publish(facts_p, count_p);
        return 0;
    });
}

const char *last_error() { return gic::error_text().c_str(); }

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
    close_session,
    window,
    write,
    read,
    run,
    counters,
    facts,
    last_error,
};
