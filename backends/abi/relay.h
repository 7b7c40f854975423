/* For a plugin of two halves: the one that gic loads is linked against nothing of the library's, so that its probe answers
 * on any machine; the other needs the library and is loaded when a session opens. The calls of an open session go on to
 * it, and a failure brings its text back.
 *
 * C++, host side. All calls are those of struct gic_backend.
 */
#ifndef GIC_ABI_RELAY_H
#define GIC_ABI_RELAY_H

#include "driver.cuh"
#include "probe.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

namespace gic::relay {

inline const struct gic_backend *half; // the other one, once it is loaded; for the life of the process

inline int pass_on(int rc) { return rc ? fail(rc, "%s", half->last_error()) : 0; }

inline int open(const struct gic_open *open, struct gic_session **session_p) {
    return pass_on(half->open(open, session_p));
}
inline void close(struct gic_session *s) {
    if (s)
        half->close(s);
}
inline int window(struct gic_session *s, uint64_t bytes) { return pass_on(half->window(s, bytes)); }
inline int write(struct gic_session *s, uint64_t offset, const void *src, size_t bytes) {
    return pass_on(half->write(s, offset, src, bytes));
}
inline int read(struct gic_session *s, uint64_t offset, void *dst, size_t bytes) {
    return pass_on(half->read(s, offset, dst, bytes));
}
inline int run(struct gic_session *s, const struct gic_run *run, struct gic_result *result_p) {
    return pass_on(half->run(s, run, result_p));
}
inline int counters(struct gic_session *s, const struct gic_counter **counters_p, uint32_t *count_p) {
    return pass_on(half->counters(s, counters_p, count_p));
}

/* The other half's facts, and what `add` sets in the list. The list is kept until the next call. */
template <class Add>
int facts(struct gic_session *s, const struct gic_kv **facts_p, uint32_t *count_p, Add add) {
    static Facts all; // one session per process at a time
    const struct gic_kv *list;
    uint32_t n;
    if (int rc = pass_on(half->facts(s, &list, &n)))
        return rc;
    return guarded([&] {
        for (uint32_t i = 0; i < n; i++)
            all.set(list[i].key, std::string(list[i].value));
        add(all);
        all.publish(facts_p, count_p);
        return 0;
    });
}

inline const char *last_error() { return error_text().c_str(); }

/* $NAME=1: a version that is not accepted is tried, and the record says so. */
inline bool forced(const char *variable) {
    const char *force = getenv(variable);
    return force && strcmp(force, "1") == 0;
}

/* 0, or -ENOTSUP where v, found at `path`, is none of `accepted` and not forced. */
template <size_t N>
int check_version(const char *library, const Version (&accepted)[N], const char *force,
                  const std::string &path, Version v) {
    std::string list;
    for (const Version &a : accepted) {
        if (!(a < v) && !(v < a))
            return 0;
        list += (list.empty() ? "" : ", ") + a.text();
    }
    if (forced(force))
        return 0;
    return fail(-ENOTSUP, "%s %s (%s) is not accepted: want %s (%s=1 tries it)", library, v.text().c_str(),
                path.c_str(), list.c_str(), force);
}

/* `file` in the folder of this plugin. */
inline std::string beside(const char *file) {
    Dl_info info;
    if (!dladdr((const void *)&beside, &info) || !info.dli_fname)
        return file;
    const std::string path = info.dli_fname;
    const size_t slash = path.rfind('/');
    return (slash == std::string::npos ? "./" : path.substr(0, slash + 1)) + file;
}

/* Is the other half there? -ENOTSUP where the backend was built without it. */
inline int find_half(const char *backend, const char *file) {
    const std::string path = beside(file);
    if (access(path.c_str(), R_OK) != 0)
        return fail(-ENOTSUP,
                    "this build of the %s backend has no device code (built without CUDA): %s is not there",
                    backend, path.c_str());
    return 0;
}

/* Loads it; `symbol` is its struct gic_backend. library_p may be NULL. `half` is for the caller to set. */
inline int load_half(const char *backend, const char *file, const char *symbol,
                     const struct gic_backend **half_p, void **library_p) {
    const std::string path = beside(file);
    void *lib = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return fail(-ENOTSUP, "the device code of the %s backend does not load: %s", backend, dlerror());
    auto *found = static_cast<const struct gic_backend *>(dlsym(lib, symbol));
    if (!found || (found->abi == GIC_ABI_VERSION && found->struct_size != sizeof *found))
        return fail(-ENOTSUP, "%s is not of this build", path.c_str());
    if (found->abi != GIC_ABI_VERSION)
        return fail(
            -ENOTSUP, "%s was built for version %u.%u of the ABI, this %s plugin for %u.%u: run make again",
            path.c_str(), found->abi >> 16, found->abi & 0xffff, backend, GIC_ABI_STRUCTS, GIC_ABI_TABLES);
    *half_p = found;
    if (library_p)
        *library_p = lib;
    return 0;
}

} // namespace gic::relay

#endif
