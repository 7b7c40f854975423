/* Support probes that several backends share: is there a CUDA device, where is a library, which version is
 * it.
 *
 * C++, host side. Nothing is linked: what is looked for is opened at run time and may be absent. A check
 * returns 0, or -ENOTSUP with one line in gic::error_text() that names what is missing and how to get it.
 */
#ifndef GIC_ABI_PROBE_H
#define GIC_ABI_PROBE_H

#include "driver.cuh"

#include <dlfcn.h>
#include <glob.h>
#include <unistd.h>

namespace gic {

/* A device=cuda:N that exists. `who` heads the text: "NVSHMEM". Initialises the driver, makes no context.
 *
 * The driver reads CUDA_MODULE_LOADING when it is initialised. Code that is loaded at its first launch waits for what runs
 * on the device, which may be waiting for it (the engine of softnic, another library's kernel): then neither ends, and no
 * deadline of a device spin helps. So everything is loaded at once, unless whoever started the process says otherwise. */
inline int probe_cuda(const char *who, const char *device) {
    if (strncmp(device, "cuda", 4) == 0)
        setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (strncmp(device, "cuda", 4) != 0)
        return fail(-ENOTSUP, "%s needs a CUDA device; device=%s has none%s", who, device,
                    lib ? "" : " (and this machine has no NVIDIA driver: libcuda.so.1 not found)");
    if (!lib)
        return fail(-ENOTSUP, "no CUDA driver: libcuda.so.1 not found; install the NVIDIA driver");
    auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(lib, "cuInit"));
    auto count = reinterpret_cast<int (*)(int *)>(dlsym(lib, "cuDeviceGetCount"));
    auto text = reinterpret_cast<int (*)(int, const char **)>(dlsym(lib, "cuGetErrorString"));
    if (!init || !count)
        return fail(-ENOTSUP, "libcuda.so.1 is no CUDA driver: it lacks cuInit or cuDeviceGetCount");
    int devices = 0, rc = init(0);
    if (rc == 0)
        rc = count(&devices);
    if (rc != 0) {
        const char *why = nullptr;
        if (text)
            text(rc, &why);
        return fail(-ENOTSUP, "no CUDA device: the driver answers %d (%s)", rc, why ? why : "unknown error");
    }
    uint32_t want = 0;
    if (device[4] == ':')
        want = (uint32_t)strtoul(device + 5, nullptr, 10);
    if (want >= (uint32_t)devices)
        return fail(-ENOTSUP, "no CUDA device %u: the driver shows %d", want, devices);
    return 0;
}

/* Where a library may be. Empty and NULL entries are skipped. */
struct LibraryHint {
    const char *file;  /* "libnccl.so.2" */
    const char *home;  /* variable that names its installation, "NCCL_HOME"; GIC_NCCL_HOME goes first */
    const char *wheel; /* its folder in a Python wheel, "nvidia/nccl/lib" */
};

/* First match of a glob pattern, "" for none. */
inline std::string glob_first(const std::string &pattern) {
    glob_t g;
    std::string found;
    if (glob(pattern.c_str(), 0, nullptr, &g) == 0 && g.gl_pathc > 0)
        found = g.gl_pathv[0];
    globfree(&g);
    return found;
}

/* The prefix of the python3 that a shell would start, "" for none: that of a virtual environment is on PATH alone. */
inline std::string python_prefix() {
    const char *path = getenv("PATH");
    std::string rest = path ? path : "";
    while (!rest.empty()) {
        const size_t colon = rest.find(':');
        const std::string dir = rest.substr(0, colon);
        rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
        if (!dir.empty() && access((dir + "/python3").c_str(), X_OK) == 0)
            return dir + "/..";
    }
    return "";
}

/* A file in the site-packages of the Python environments of this user and machine, "" for none. */
inline std::string find_in_python(const std::string &pattern) {
    const char *home = getenv("HOME"), *venv = getenv("VIRTUAL_ENV"), *conda = getenv("CONDA_PREFIX");
    const std::string roots[] = {venv ? venv : "", conda ? conda : "",
                                 python_prefix(),  home ? std::string(home) + "/.local" : "",
                                 "/usr/local",     "/usr"};
    for (const std::string &root : roots)
        if (!root.empty())
            for (const char *lib : {"/lib/python3*/site-packages/", "/lib/python3*/dist-packages/",
                                    "/lib/python3/dist-packages/"}) {
                std::string found = glob_first(root + lib + pattern);
                if (!found.empty())
                    return found;
            }
    return "";
}

/* The path to open: from the environment variable, a Python wheel, or the loader's own search ("file" itself,
 * when that opens). "" when it is nowhere. */
inline std::string find_library(const LibraryHint &hint) {
    const char *home = hint.home ? getenv((std::string("GIC_") + hint.home).c_str()) : nullptr;
    if (!home && hint.home)
        home = getenv(hint.home);
    if (home)
        for (const char *sub : {"/lib/", "/lib64/", "/"}) {
            std::string path = std::string(home) + sub + hint.file;
            if (access(path.c_str(), R_OK) == 0)
                return path;
        }
    if (hint.wheel) {
        std::string path = find_in_python(std::string(hint.wheel) + "/" + hint.file);
        if (!path.empty())
            return path;
    }
    if (void *lib = dlopen(hint.file, RTLD_LAZY | RTLD_LOCAL)) {
        dlclose(lib);
        return hint.file;
    }
    return "";
}

struct Version {
    int major, minor, patch;
    bool operator<(const Version &o) const {
        return major != o.major ? major < o.major : minor != o.minor ? minor < o.minor : patch < o.patch;
    }
    std::string text() const {
        return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
    }
};

/* A version that a backend can work with: from `low` on, below `high`. */
inline int check_version(const char *who, const std::string &path, Version v, Version low, Version high) {
    if (v < low || !(v < high))
        return fail(-ENOTSUP, "%s %s (%s) is not accepted: want at least %s, below %s", who, v.text().c_str(),
                    path.c_str(), low.text().c_str(), high.text().c_str());
    return 0;
}

} // namespace gic

#endif
