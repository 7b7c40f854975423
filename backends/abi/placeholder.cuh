// A backend that can say what it is missing, and nothing else: what a library's adapter is until it has
// device code. It declares no capability and no key, and open ends where the support probe ends.
//
//   static int my_probe(const struct gic_open *o);   // 0 when all that the user must provide is there
//   GIC_PLACEHOLDER("mylib", my_probe)
#ifndef GIC_ABI_PLACEHOLDER_CUH
#define GIC_ABI_PLACEHOLDER_CUH

#include "adapter.cuh"
#include "probe.h"

namespace gic {

typedef int (*ProbeFunction)(const struct gic_open *o);

inline int placeholder_probe(const char *name, ProbeFunction probe, const struct gic_open *o) {
    return guarded([&]() -> int {
        if (int rc = Config(nullptr, 0, o).check())
            return rc;
        if (int rc = probe(o))
            return rc;
#if defined(__CUDACC__)
        return fail(-ENOTSUP, "this build of the %s backend has no device code", name);
#else
        return fail(-ENOTSUP, "this build of the %s backend has no device code (built without CUDA)", name);
#endif
    });
}

inline int placeholder_no_session() { return fail(-ENOTSUP, "no session: open never succeeds"); }

} // namespace gic

#define GIC_PLACEHOLDER(NAME, PROBE)                                                                         \
    static int placeholder_probe_(const struct gic_open *o) {                                                \
        return gic::placeholder_probe(NAME, PROBE, o);                                                       \
    }                                                                                                        \
    static int placeholder_open_(const struct gic_open *o, struct gic_session **) {                          \
        return gic::placeholder_probe(NAME, PROBE, o);                                                       \
    }                                                                                                        \
    extern "C" __attribute__((visibility("default"))) const struct gic_backend gic_backend_v1;               \
    const struct gic_backend gic_backend_v1 = {                                                              \
        NAME,                                                                                                \
        "0",                                                                                                 \
        sizeof(struct gic_backend),                                                                          \
        GIC_ABI_VERSION,                                                                                     \
        0,                                                                                                   \
        nullptr,                                                                                             \
        0,                                                                                                   \
        {},                                                                                                  \
        placeholder_probe_,                                                                                  \
        placeholder_open_,                                                                                   \
        [](struct gic_session *) {},                                                                         \
        [](struct gic_session *, uint64_t) { return gic::placeholder_no_session(); },                        \
        [](struct gic_session *, uint64_t, const void *, size_t) { return gic::placeholder_no_session(); },  \
        [](struct gic_session *, uint64_t, void *, size_t) { return gic::placeholder_no_session(); },        \
        [](struct gic_session *, const struct gic_run *, struct gic_result *) {                              \
            return gic::placeholder_no_session();                                                            \
        },                                                                                                   \
        [](struct gic_session *, const struct gic_counter **, uint32_t *) {                                  \
            return gic::placeholder_no_session();                                                            \
        },                                                                                                   \
        [](struct gic_session *, const struct gic_kv **, uint32_t *) {                                       \
            return gic::placeholder_no_session();                                                            \
        },                                                                                                   \
        []() -> const char * { return gic::error_text().c_str(); },                                          \
    };

#endif
