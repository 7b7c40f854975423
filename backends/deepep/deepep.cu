// DeepEP: the support probe. There is no adapter code yet, so nothing is declared and no key exists.
#include "../abi/placeholder.cuh"

// DeepEP is an extension of PyTorch with no library of its own: what counts is the installed Python package,
// and for its low-latency and internode kernels NVSHMEM.
static int probe(const struct gic_open *o) {
    if (int rc = gic::probe_cuda("deepep", o->device))
        return rc;
    if (gic::find_in_python("torch/__init__.py").empty())
        return gic::fail(-ENOTSUP,
                         "PyTorch not found: activate a Python environment that has torch and deep_ep");
    std::string module = gic::find_in_python("deep_ep_cpp*.so");
    if (module.empty())
        module = gic::find_in_python("deep_ep/_C*.so");
    if (module.empty())
        return gic::fail(-ENOTSUP,
                         "DeepEP not found (Python package deep_ep): build and install it from its own "
                         "repository into the active Python environment");
    return 0;
}

GIC_PLACEHOLDER("deepep", probe)
