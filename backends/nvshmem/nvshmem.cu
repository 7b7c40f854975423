// NVSHMEM: the support probe. There is no device code yet, so nothing is declared and no key exists.
#include "../abi/placeholder.cuh"

// The layouts and symbols that an adapter builds on are those of 3.4.5; version 4 may change them.
static const gic::Version oldest = {3, 4, 5}, above = {4, 0, 0};

static int probe(const struct gic_open *o) {
    if (int rc = gic::probe_cuda("nvshmem", o->device))
        return rc;
    std::string path = gic::find_library({"libnvshmem_host.so.3", "NVSHMEM_HOME", "nvidia/nvshmem/lib"});
    if (path.empty())
        return gic::fail(-ENOTSUP,
                         "NVSHMEM not found (libnvshmem_host.so.3): pip install nvidia-nvshmem-cu13, or set "
                         "NVSHMEM_HOME to an installation");
    void *lib = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (!lib)
        return gic::fail(-ENOTSUP, "NVSHMEM does not load: %s", dlerror());
    auto version =
        reinterpret_cast<void (*)(int *, int *, int *)>(dlsym(lib, "nvshmemx_vendor_get_version_info"));
    if (!version)
        return gic::fail(-ENOTSUP, "%s does not tell its version (no nvshmemx_vendor_get_version_info)",
                         path.c_str());
    gic::Version v = {0, 0, 0};
    version(&v.major, &v.minor, &v.patch);
    return gic::check_version("NVSHMEM", path, v, oldest, above);
}

GIC_PLACEHOLDER("nvshmem", probe)
