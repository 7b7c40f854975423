// Host side of running a workload's kernel in an adapter: inputs in, launch, samples out.
//
// A workload's device half is a struct:
//
//   struct op_workload {
//       static constexpr const char *name = "op";
//       struct Params { ... };                       // trivially copyable; device pointers from Arena
//       static int parse(gic::Inputs &in, gic::Arena &mem, uint32_t nranks, Params *p);  // sets in.threads
//       or in.agents too template <class H> static GIC_DEVICE int kernel(const H &h, gic::Self self, const
//       Params &p); static void finish(const Params &p, gic::Arena &mem, gic::Results &out);
//   };
//
// An adapter lists the workloads it serves in one line and calls gic::drive for the one asked for.
#ifndef GIC_ABI_DRIVER_CUH
#define GIC_ABI_DRIVER_CUH

#include "backend.h"
#include "device.cuh"
#include "gpu.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
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
    uint32_t agents = 0;  // when not 0: that many agents, however many lanes each has; threads is unused

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
    // As u32, 0 where the workload has no such input.
    uint32_t optional_u32(const char *key) {
        for (uint32_t i = 0; i < run_->arg_count; i++)
            if (strcmp(run_->args[i].key, key) == 0)
                return u32(key);
        return 0;
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

// Arrays the kernel reads and writes, freed after the run: in host memory, or with a Gpu in its memory, where the
// host reaches them by upload() and download() alone. A failed call throws what error_text() says.
class Arena {
  public:
    explicit Arena(Gpu *gpu = nullptr) : gpu_(gpu) {}
    Arena(const Arena &) = delete;
    Arena &operator=(const Arena &) = delete;
    ~Arena() {
        for (void *p : blocks_)
            if (gpu_)
                gpu_->free(p);
            else
                free(p);
    }
    template <class T> T *array(size_t n) { // zeroed, 64-byte aligned
        const size_t bytes = ((n ? n : 1) * sizeof(T) + 63) & ~(size_t)63;
        void *p = nullptr;
        if (gpu_) {
            must(gpu_->alloc(bytes, &p));
        } else {
            p = aligned_alloc(64, bytes);
            if (!p)
                throw std::bad_alloc();
            memset(p, 0, bytes);
        }
        blocks_.push_back(p);
        return static_cast<T *>(p);
    }
    template <class T> T *upload(const T *src, size_t n) {
        T *p = array<T>(n);
        if (n && gpu_)
            must(gpu_->upload(p, src, n * sizeof(T)));
        else if (n)
            memcpy(p, src, n * sizeof(T));
        return p;
    }
    template <class T> std::vector<T> download(const T *p, size_t n) {
        if (!gpu_)
            return std::vector<T>(p, p + n);
        std::vector<T> v(n);
        if (n)
            must(gpu_->download(v.data(), p, n * sizeof(T)));
        return v;
    }

  private:
    static void must(int rc) {
        if (rc)
            throw std::runtime_error(error_text());
    }
    Gpu *gpu_;
    std::vector<void *> blocks_;
};

// Where a run puts its agents: inputs that a workload may have, all 0 without them.
//   placement   multiprocessor of this rank's agent 0, from 1 (0: where the device puts it)
//   first_qp    of agent 0 of every rank: its first queue pair, of those to a peer
//   together    all agents in one block: 1 as warps, 2 as lanes of full warps
//   place, places, placed   run `place` of `places`, which go evenly over the multiprocessors (of the ranks that say
//               placed=1), and from one to the next over the queues: with Q queues, each is met all over the device
struct Placement {
    uint32_t sm, queue, place, places, placed, together;

    static Placement of(Inputs &in) {
        Placement p{in.optional_u32("placement"), in.optional_u32("first_qp"), in.optional_u32("place"),
                    in.optional_u32("places"),    in.optional_u32("placed"),   in.optional_u32("together")};
        return p;
    }
    bool scan() const { return places > 1; }
    uint32_t sm_of(uint32_t multiprocessors) const {
        return scan() && placed ? 1 + (uint32_t)((uint64_t)place * multiprocessors / places) : sm;
    }
    // The queue of agent 0, given how many there are to a peer. -ENOTSUP for one too many.
    int queue_of(uint32_t queues, uint32_t *queue_p) const {
        *queue_p = scan() ? place % queues : queue;
        return *queue_p < queues ? 0 : fail(-ENOTSUP, "first_qp=%u: there are %u to a peer", queue, queues);
    }
};

// An adapter says so of a handle whose agent 0 posts to queue choices.first_qp of choices.qps.
template <class H> struct ChoosesQueue : std::false_type {};

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

inline const char *status_text(int status) {
    switch (status) {
    case OK:
        return "ok";
    case ERR_TIMEOUT:
        return "a wait passed its deadline";
    case ERR_CANCELED:
        return "stopped by the harness";
    case ERR_IO:
        return "error CQE";
    case ERR_NOTSUP:
        return "operation not supported";
    default:
        return "invalid argument";
    }
}

// The status worth reporting: agents that time out because another one failed must not hide its reason.
inline int worse_status(int a, int b) {
    auto weight = [](int s) { return s == OK ? 0 : s == ERR_CANCELED ? 1 : s == ERR_TIMEOUT ? 2 : 3; };
    return weight(b) > weight(a) ? b : a;
}

// Runs kernel(self) on `agents` threads of this machine, which start together, and returns the most telling
// bad status (the lowest agent's among equals).
template <class F> int launch_host(uint32_t agents, uint32_t lanes, F kernel) {
    struct Gate {
        pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        pthread_cond_t open = PTHREAD_COND_INITIALIZER;
        int go = 0; // 1: run, -1: another thread could not be started
        bool pass() {
            pthread_mutex_lock(&lock);
            while (go == 0)
                pthread_cond_wait(&open, &lock);
            pthread_mutex_unlock(&lock);
            return go > 0;
        }
        void set(int value) {
            pthread_mutex_lock(&lock);
            go = value;
            pthread_cond_broadcast(&open);
            pthread_mutex_unlock(&lock);
        }
    } gate;
    struct Slot {
        F *kernel;
        Gate *gate;
        Self self;
        int status;
        pthread_t thread;
    };
    std::vector<Slot> slots(agents);
    auto entry = [](void *arg) -> void * {
        Slot *s = static_cast<Slot *>(arg);
        if (s->gate->pass())
            s->status = (*s->kernel)(s->self);
        return nullptr;
    };
    // The caller's thread is the last agent.
    uint32_t started = 0;
    int err = 0;
    for (uint32_t i = 0; i < agents; i++)
        slots[i] = Slot{&kernel, &gate, Self{i, agents, 0, lanes}, OK, {}};
    for (; started + 1 < agents; started++)
        if ((err = pthread_create(&slots[started].thread, nullptr, entry, &slots[started])) != 0)
            break;
    gate.set(err ? -1 : 1);
    if (!err)
        entry(&slots[agents - 1]);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(slots[i].thread, nullptr);
    if (err)
        return fail(-err, "start device thread %u of %u: %s", started, agents, strerror(err));
    uint32_t worst = 0;
    for (uint32_t i = 1; i < agents; i++)
        if (worse_status(slots[worst].status, slots[i].status) != slots[worst].status)
            worst = i;
    if (int rc = slots[worst].status)
        return fail(rc, "device thread %u: %s", worst, status_text(rc));
    return OK;
}

// Two workloads may share one kernel: a workload with a type `device_half` is launched as that one.
template <class W, class = void> struct DeviceHalf { using type = W; };
template <class W> struct DeviceHalf<W, std::void_t<typename W::device_half>> {
    using type = typename W::device_half;
};

// A workload with `static constexpr bool own_launch = true` has kernels of its own on a CUDA device, for blocks of many
// threads, say. It launches them itself,
//   template <class H> static int launch(Gpu &, const H &, const Params &, uint32_t agents, const volatile uint32_t *stop)
// and after done(), when no engine of the NIC is on the device any more, what it wants to compare with:
//   static int launch_alone(Gpu &, const Params &, const volatile uint32_t *stop)
// Memory of both is parse()'s: freeing some waits for all kernels, and the engine is one.
template <class W, class = void> struct OwnLaunch : std::false_type {};
template <class W> struct OwnLaunch<W, std::enable_if_t<W::own_launch>> : std::true_type {};

// As launch_host, on a CUDA device. Defined in kernel.cuh and instantiated where nvcc compiles it.
template <class W, class H>
int launch_gpu(Gpu &gpu, const H &h, const typename W::Params &p, uint32_t agents,
               const volatile uint32_t *stop);
template <class W> int launch_gpu_alone(Gpu &gpu, const typename W::Params &p, const volatile uint32_t *stop);

// Parse, launch, complete, collect. `h` is the adapter's device handle.
//   int prepare(uint32_t agents, H &h)   before the launch: size per-agent resources, or refuse (-ENOTSUP: a
//   combination of thread count and configuration that cannot be is a skipped row, not a failure)
//   int done(uint32_t agents, H &h, int status)   after the last agent has returned; its status is the run's
// Each agent ends with a quiet, so that on return all that this rank posted is complete. With `gpu` its threads
// are the device threads; `stop` is then gic_open.stop (the handle has the device's own stop word). `Kernel` false:
// no CUDA kernel has been built for these types, and `gpu` is nullptr.
template <class W, bool Kernel = true, class H, class P, class D>
int drive(H h, const struct gic_run *run, Results &results, P prepare, D done, Gpu *gpu = nullptr,
          const volatile uint32_t *stop = nullptr) {
    Inputs in(run);
    Arena mem(gpu);
    typename W::Params p{};
    if (int rc = W::parse(in, mem, h.nranks, &p))
        return rc;
    if (int rc = in.check())
        return rc;
    if (in.agents == 0 && (in.threads == 0 || in.threads % h.lanes != 0))
        return fail(-ENOTSUP, "%s: threads=%u is not a positive multiple of the %u lanes of a warp", W::name,
                    in.threads, h.lanes);
    uint32_t agents = in.agents ? in.agents : in.threads / h.lanes;
    const Placement at = Placement::of(in);
    if (int rc = in.check())
        return rc;
    if (gpu)
        gpu->placement = at.sm_of(gpu->multiprocessors()), gpu->placement_near = at.scan(),
        gpu->together = at.together;
    else if (at.sm || at.together)
        return fail(-ENOTSUP, "placement=%s: needs a CUDA device",
                    at.together == 1   ? "warps"
                    : at.together == 2 ? "lanes"
                                       : std::to_string(at.sm).c_str());
    if (!ChoosesQueue<H>::value && at.queue)
        return fail(-ENOTSUP, "first_qp=%u: here agents do not choose their queue", at.queue);
    if (int rc = prepare(agents, h))
        return rc;
    if constexpr (ChoosesQueue<H>::value)
        if (int rc = at.queue_of(h.choices.qps, &h.choices.first_qp))
            return done(agents, h, rc);
    int rc;
    if (gpu) {
#if defined(GIC_CUDA_PLUGIN)
        if constexpr (Kernel)
            rc = launch_gpu<typename DeviceHalf<W>::type>(*gpu, h, p, agents, stop);
        else
            rc = fail(-ENOTSUP, "%s has no kernel for this configuration", W::name);
#else
        (void)stop;
        rc = fail(-ENOTSUP, "built without CUDA");
#endif
    } else {
        rc = launch_host(agents, h.lanes, [&](Self self) {
            int status = W::template kernel<H>(h, self, p);
            if (status != OK)
                return status;
            typename H::Agent agent(h, self);
            return agent.quiet();
        });
    }
    if ((rc = done(agents, h, rc)) != 0)
        return rc;
#if defined(GIC_CUDA_PLUGIN)
    if constexpr (Kernel && OwnLaunch<W>::value)
        if (gpu && (rc = launch_gpu_alone<W>(*gpu, p, stop)) != 0)
            return rc;
#endif
    W::finish(p, mem, results);
    if (at.scan() && at.placed && gpu)
        results.add("place_multiprocessor", "1", {(double)gpu->shape.multiprocessor});
    if constexpr (ChoosesQueue<H>::value)
        if (at.scan() && at.placed)
            results.add("place_queue", "1", {(double)h.choices.first_qp});
    return 0;
}
template <class W, class H> int drive(const H &h, const struct gic_run *run, Results &results) {
    return drive<W>(
        h, run, results, [](uint32_t, H &) { return 0; }, [](uint32_t, H &, int status) { return status; });
}

} // namespace gic

#endif
