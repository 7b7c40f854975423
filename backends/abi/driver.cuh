// Host side of running a workload's kernel in an adapter: inputs in, launch, samples out.
//
// A workload's device half is a struct:
//
//   struct op_workload {
//       static constexpr const char *name = "op";
//       struct Params { ... };                       // trivially copyable; device pointers from Arena
//       static int parse(gic::Inputs &in, gic::Arena &mem, uint32_t nranks, Params *p);  // sets in.threads
//       too template <class H> static GIC_DEVICE int kernel(const H &h, gic::Self self, const Params &p);
//       static void finish(const Params &p, gic::Arena &mem, gic::Results &out);
//   };
//
// An adapter lists the workloads it serves in one line and calls gic::drive for the one asked for.
#ifndef GIC_ABI_DRIVER_CUH
#define GIC_ABI_DRIVER_CUH

#include "backend.h"
#include "device.cuh"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memory>
#include <string>
#include <vector>

namespace gic {

// One line of error text per thread; what gic_backend.last_error returns.
inline std::string &error_text() {
    static thread_local std::string text;
    return text;
}
__attribute__((format(printf, 2, 3))) inline int fail(int status, const char *fmt, ...) {
    char buf[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    error_text() = buf;
    return status;
}

// Named scalar and table inputs of one run. A missing or malformed one is remembered; check() reports the
// first.
class Inputs {
  public:
    explicit Inputs(const struct gic_run *run) : run_(run) {}
    uint32_t threads = 1; // device threads of the launch

    const char *text(const char *key) {
        for (uint32_t i = 0; i < run_->arg_count; i++)
            if (strcmp(run_->args[i].key, key) == 0)
                return run_->args[i].value;
        note("missing input \"%s\"", key);
        return "";
    }
    uint64_t u64(const char *key) {
        const char *s = text(key);
        char *end = nullptr;
        errno = 0;
        unsigned long long v = strtoull(s, &end, 10);
        if (*s == '\0' || *s == '-' || *end != '\0' || errno != 0)
            note("input \"%s\" is not an unsigned integer", key);
        return v;
    }
    uint32_t u32(const char *key) {
        uint64_t v = u64(key);
        if (v > UINT32_MAX)
            note("input \"%s\" is above 4294967295", key);
        return (uint32_t)v;
    }
    template <class T> const T *table(const char *name, size_t *count_p) {
        for (uint32_t i = 0; i < run_->blob_count; i++) {
            if (strcmp(run_->blobs[i].name, name) != 0)
                continue;
            if (run_->blobs[i].bytes % sizeof(T) != 0)
                note("table \"%s\" is not a whole number of entries", name);
            *count_p = run_->blobs[i].bytes / sizeof(T);
            return static_cast<const T *>(run_->blobs[i].data);
        }
        note("missing table \"%s\"", name);
        *count_p = 0;
        return nullptr;
    }
    int check() const { return first_.empty() ? 0 : fail(-EINVAL, "%s: %s", run_->workload, first_.c_str()); }

  private:
    void note(const char *fmt, const char *what) {
        char buf[256];
        snprintf(buf, sizeof buf, fmt, what);
        if (first_.empty())
            first_ = buf;
    }
    const struct gic_run *run_;
    std::string first_;
};

// Arrays the kernel reads and writes, freed after the run. On the host device memory and host memory are one.
class Arena {
  public:
    Arena() = default;
    Arena(const Arena &) = delete;
    Arena &operator=(const Arena &) = delete;
    ~Arena() {
        for (void *p : blocks_)
            free(p);
    }
    template <class T> T *array(size_t n) { // zeroed, 64-byte aligned
        size_t bytes = ((n ? n : 1) * sizeof(T) + 63) & ~(size_t)63;
        void *p = aligned_alloc(64, bytes);
        if (!p)
            throw std::bad_alloc();
        memset(p, 0, bytes);
        blocks_.push_back(p);
        return static_cast<T *>(p);
    }
    template <class T> T *upload(const T *src, size_t n) {
        T *p = array<T>(n);
        if (n)
            memcpy(p, src, n * sizeof(T));
        return p;
    }
    template <class T> std::vector<T> download(const T *p, size_t n) { return std::vector<T>(p, p + n); }

  private:
    std::vector<void *> blocks_;
};

// Collects named series; owns the storage that gic_result points into until the next run.
class Results {
  public:
    void add(const char *name, const char *unit, std::vector<double> values) {
        items_.push_back(Item{name, unit, std::move(values)});
    }
    void clear() { items_.clear(); }
    void publish(struct gic_result *out) {
        view_.clear();
        for (const Item &it : items_)
            view_.push_back(gic_series{it.name.c_str(), it.unit.c_str(), it.values.data(), it.values.size()});
        out->series = view_.data();
        out->series_count = (uint32_t)view_.size();
    }

  private:
    struct Item {
        std::string name, unit;
        std::vector<double> values;
    };
    std::vector<Item> items_;
    std::vector<struct gic_series> view_;
};

// Runs kernel(self) on `agents` threads of this machine and returns the first bad status in agent order.
template <class F> int launch_host(uint32_t agents, uint32_t lanes, F kernel) {
    struct Slot {
        F *kernel;
        Self self;
        int status;
        pthread_t thread;
    };
    std::vector<Slot> slots(agents);
    auto entry = [](void *arg) -> void * {
        Slot *s = static_cast<Slot *>(arg);
        s->status = (*s->kernel)(s->self);
        return nullptr;
    };
    uint32_t started = 0;
    int rc = 0;
    for (; started < agents; started++) {
        slots[started] = Slot{&kernel, Self{started, agents, 0, lanes}, 0, {}};
        if (started + 1 == agents)
            break; // the caller's thread is the last agent
        int err = pthread_create(&slots[started].thread, nullptr, entry, &slots[started]);
        if (err) {
            // The agents already running would wait for the missing ones: nothing can be salvaged.
            fprintf(stderr, "gic: start device thread %u of %u: %s\n", started, agents, strerror(err));
            abort();
        }
    }
    entry(&slots[agents - 1]);
    for (uint32_t i = 0; i + 1 < agents; i++)
        pthread_join(slots[i].thread, nullptr);
    for (uint32_t i = 0; i < agents && rc == 0; i++)
        if (slots[i].status != OK)
            rc = fail(slots[i].status, "device thread %u: %s", i,
                      slots[i].status == ERR_TIMEOUT    ? "a wait passed its deadline"
                      : slots[i].status == ERR_CANCELED ? "stopped by the harness"
                      : slots[i].status == ERR_IO       ? "error CQE"
                      : slots[i].status == ERR_NOTSUP   ? "operation not supported"
                                                        : "invalid argument");
    return rc;
}

// Parse, launch, collect. `h` is the adapter's device handle.
template <class W, class H> int drive(const H &h, const struct gic_run *run, Results &results) {
    Inputs in(run);
    Arena mem;
    typename W::Params p{};
    if (int rc = W::parse(in, mem, h.nranks, &p))
        return rc;
    if (int rc = in.check())
        return rc;
    if (in.threads == 0 || in.threads % h.lanes != 0)
        return fail(-EINVAL, "%s: threads=%u is not a positive multiple of the %u lanes of a warp", W::name,
                    in.threads, h.lanes);
    int rc = launch_host(in.threads / h.lanes, h.lanes,
                         [&](Self self) { return W::template kernel<H>(h, self, p); });
    if (rc)
        return rc;
    W::finish(p, mem, results);
    return 0;
}

} // namespace gic

#endif
