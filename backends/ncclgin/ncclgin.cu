// NCCL GIN: the support probe. There is no device code yet, so nothing is declared and no key exists.
#include "../abi/placeholder.cuh"

// 2.28.9 is the first release whose GIN we have read and run; version 3 may change it.
static const gic::Version oldest = {2, 28, 9}, above = {3, 0, 0};

static int probe(const struct gic_open *o) {
    if (int rc = gic::probe_cuda("ncclgin", o->device))
        return rc;
    std::string path = gic::find_library({"libnccl.so.2", "NCCL_HOME", "nvidia/nccl/lib"});
    if (path.empty())
        return gic::fail(
            -ENOTSUP, "NCCL not found (libnccl.so.2): pip install nvidia-nccl-cu13, or set NCCL_HOME to an "
                      "installation");
    void *lib = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (!lib)
        return gic::fail(-ENOTSUP, "NCCL does not load: %s", dlerror());
    auto version = reinterpret_cast<int (*)(int *)>(dlsym(lib, "ncclGetVersion"));
    int code = 0;
    if (!version || version(&code) != 0)
        return gic::fail(-ENOTSUP, "%s does not tell its version (ncclGetVersion)", path.c_str());
    // 22809 is 2.28.9 (NCCL_VERSION of nccl.h, since 2.9).
    return gic::check_version("NCCL", path, {code / 10000, code / 100 % 100, code % 100}, oldest, above);
}

GIC_PLACEHOLDER("ncclgin", probe)
