// rawstore as a backend: the floor of nic=none. Device threads load and store the peer's memory themselves; there is no
// queue, no protocol and no copy in between. See handle.cuh for the words, README.md for what is measured.
#include "backends/abi/probe.h"
#include "backends/rawstore/handle.cuh"
#include "backends/rawstore/memory.h"

#include "workloads/alltoall/alltoall.cuh"
#include "workloads/conform/conform.cuh"
#include "workloads/goodput/goodput.cuh"
#include "workloads/moe/moe.cuh"
#include "workloads/op/op.cuh"
#include "workloads/rate/rate.cuh"

namespace {

using Served = gic::Workloads<op_workload, rate_workload, goodput_workload, alltoall_workload, moe_workload,
                              conform_workload>;

const struct gic_key keys[] = {
    {"scope", "thread", "thread|warp|block",
     "who acts as one: a thread, or a warp or a block of 128 threads together"},
    {"copy", "auto", "auto|store|bulk",
     "large payloads: 16-byte stores, or bulk copies through shared memory (TMA, from sm_90 on); auto: bulk "
     "for a thread "
     "by itself, where there is any"},
    {"bulk_from", "2048", "16..1048576", "smallest payload of copy=bulk, in bytes; below it stores"},
    {"order", "release", "release|fence",
     "a flag behind its payload: one release at system scope, or a fence at system scope and a relaxed store "
     "or add"},
    {"wait", "acquire", "acquire|fence",
     "what follows the flag that is seen: the polling load itself acquires, or relaxed loads and one fence"},
};
constexpr uint32_t key_count = sizeof keys / sizeof *keys;

bool on_cuda(const struct gic_open *open) { return strncmp(open->device, "cuda", 4) == 0; }

int check(const struct gic_open *open) {
    gic::Config config(keys, key_count, open);
    if (int rc = config.check())
        return rc;
    if (strcmp(open->nic, "none") != 0)
        return gic::fail(-ENOTSUP, "rawstore uses no NIC: want --nic none, not %s", open->nic);
    if (open->nranks > (int32_t)rawstore_max_ranks)
        return gic::fail(-ENOTSUP, "%d ranks: rawstore maps at most %u", open->nranks, rawstore_max_ranks);
    if (strcmp(open->device, "host") == 0)
        return strcmp(config.text("copy"), "bulk") == 0
                   ? gic::fail(-ENOTSUP, "copy=bulk needs a CUDA device of sm_90; device=host has none")
                   : 0;
    if (!gic::Gpu::built())
        return gic::fail(-ENOTSUP, "device=%s: this build of rawstore has no CUDA code (make cuda)",
                         open->device);
    return gic::probe_cuda("rawstore", open->device);
}

} // namespace

struct gic_session {
    gic::Ranks ranks;
    const volatile uint32_t *stop;
    uint64_t timeout_ns;
    uint32_t lanes, bulk_from;
    bool fenced, fenced_wait;
    std::unique_ptr<gic::Gpu> gpu; // none: threads of this machine
    std::unique_ptr<rawstore_memory> memory;
    gic::Results results;
    gic::Facts facts;
};

namespace {

int probe(const struct gic_open *open) {
    return gic::guarded([&] { return check(open); });
}

int start(gic_session *s, const struct gic_open *open) {
    const gic::Config config(keys, key_count, open);
    static const uint32_t lanes[] = {1, 32, 128};
    s->lanes = lanes[config.choice("scope")];
    s->fenced = config.choice("order") == 1;
    s->fenced_wait = config.choice("wait") == 1;
    s->bulk_from = rawstore_no_bulk;
    if (!on_cuda(open)) {
        s->memory = rawstore_host_memory(s->ranks, open->job);
        return s->ranks.agree(0, "open");
    }
    if (int rc = s->ranks.open_gpu(open->device, &s->gpu))
        return rc;
#if defined(GIC_CUDA_PLUGIN)
    if (int rc = rawstore_device_memory(s->ranks, *s->gpu, &s->memory))
        return rc;
    const bool store = strcmp(config.text("copy"), "store") == 0,
               bulk = strcmp(config.text("copy"), "bulk") == 0;
    if (bulk && !s->memory->bulk())
        return gic::fail(-ENOTSUP, "copy=bulk: one %s has no bulk copies (sm_90 has); want copy=store",
                         s->gpu->name().c_str());
    // A group's lanes have as much under way by themselves, without the way through shared memory.
    if (bulk || (!store && s->lanes == 1 && s->memory->bulk()))
        s->bulk_from = config.u32("bulk_from");
    return 0;
#else
    return -ENOTSUP; // open_gpu() has said why
#endif
}

int open_session(const struct gic_open *open, struct gic_session **session_p) {
    return gic::guarded([&]() -> int {
        if (int rc = check(open))
            return rc;
        auto s = std::make_unique<gic_session>();
        s->ranks = {(uint32_t)open->rank, (uint32_t)open->nranks, open->comm};
        s->stop = open->stop;
        s->timeout_ns = open->timeout_ns;
        if (int rc = start(s.get(), open))
            return rc;
        *session_p = s.release();
        return 0;
    });
}

void close_session(struct gic_session *s) {
    if (!s)
        return;
    s->memory.reset(); // before its GPU
    delete s;
}

int window(struct gic_session *s, uint64_t bytes) {
    return gic::guarded(
        [&]() -> int { return bytes ? s->memory->window(bytes) : gic::fail(-EINVAL, "window of 0 bytes"); });
}

int check_range(const gic_session *s, uint64_t offset, size_t bytes) {
    const uint64_t size = s->memory->bytes();
    if (size == 0)
        return gic::fail(-EINVAL, "no window yet");
    if (offset > size || bytes > size - offset)
        return gic::fail(-ERANGE, "%zu bytes at offset %llu: the window has %llu", bytes,
                         (unsigned long long)offset, (unsigned long long)size);
    return 0;
}
int write(struct gic_session *s, uint64_t offset, const void *src, size_t bytes) {
    if (int rc = check_range(s, offset, bytes))
        return rc;
    return bytes ? s->memory->write(offset, src, bytes) : 0;
}
int read(struct gic_session *s, uint64_t offset, void *dst, size_t bytes) {
    if (int rc = check_range(s, offset, bytes))
        return rc;
    return bytes ? s->memory->read(offset, dst, bytes) : 0;
}

// Beside the goodput of a sender, what plain copies of the same size and large ones reach over the same link. On the
// other ranks until the senders have done with their windows.
int add_ceiling(gic_session *s, const struct gic_run *run) {
    gic::Inputs in(run);
    const uint32_t sends = in.u32("sends"), peer = in.u32("peer"), bytes = in.u32("bytes");
    if (int rc = in.check())
        return rc;
    rawstore_ceiling c;
    if (!sends)
        return 0;
    if (int rc = s->memory->ceiling(peer, bytes, &c))
        return rc;
    s->results.add("copied", "ns", {c.sized_ns});
    s->results.add("copied_bytes", "B", {(double)c.sized_bytes});
    s->results.add("copied_large", "ns", {c.whole_ns});
    s->results.add("copied_large_bytes", "B", {(double)c.whole_bytes});
    return 0;
}

template <class W> struct OnScope {
    struct gic_session *s;
    const struct gic_run *run;

    template <uint32_t LANES> int go() const {
        rawstore_handle<LANES> h{};
        h.rank = s->ranks.rank;
        h.nranks = s->ranks.nranks;
        h.window = s->memory->at(h.rank);
        h.env = {s->gpu ? s->gpu->stop_word() : s->stop, s->timeout_ns};
        h.lanes = LANES;
        h.bulk_from = s->bulk_from;
        h.fenced = s->fenced;
        h.fenced_wait = s->fenced_wait;
        for (uint32_t r = 0; r < h.nranks; r++)
            h.peers[r] = s->memory->at(r);
        auto prepare = [](uint32_t, rawstore_handle<LANES> &) { return 0; };
        auto done = [](uint32_t, rawstore_handle<LANES> &, int status) { return status; };
        return gic::drive<W>(h, run, s->results, prepare, done, s->gpu.get(), s->stop);
    }
    int operator()() const {
        if (s->memory->bytes() == 0)
            return gic::fail(-EINVAL, "no window yet");
        const int rc = s->lanes == 1 ? go<1>() : s->lanes == 32 ? go<32>() : go<128>();
        if (!std::is_same_v<W, goodput_workload>)
            return rc;
        return s->ranks.agree(rc ? rc : add_ceiling(s, run), "goodput and copies");
    }
};
struct OnWorkload {
    struct gic_session *s;
    const struct gic_run *run;
    template <class W> int operator()() const { return OnScope<W>{s, run}(); }
};

int run(struct gic_session *s, const struct gic_run *run, struct gic_result *result_p) {
    return gic::guarded([&] {
        s->results.clear();
        int rc = Served::dispatch(run->workload, OnWorkload{s, run});
        if (rc == 0)
            s->results.publish(result_p);
        return rc;
    });
}

// Nothing counts stores.
int counters(struct gic_session *, const struct gic_counter **counters_p, uint32_t *count_p) {
    *counters_p = nullptr;
    *count_p = 0;
    return 0;
}

int facts(struct gic_session *s, const struct gic_kv **facts_p, uint32_t *count_p) {
    return gic::guarded([&] {
        gic::Facts &f = s->facts;
        const bool cuda = s->gpu != nullptr;
        s->memory->facts(f);
        f.set("lanes", s->lanes);
        f.set("payload",
              std::string(!cuda                              ? "memcpy"
                          : s->bulk_from == rawstore_no_bulk ? "stores"
                                                             : "stores, bulk copies from bulk_from on"));
        f.set("flag", std::string(!cuda       ? s->fenced ? "fence, relaxed atomic" : "release atomic"
                                  : s->fenced ? "fence.acq_rel.sys, st/red.relaxed.sys"
                                              : "st/red.release.sys"));
        f.set("notify8", std::string(cuda ? "st.relaxed.sys" : "relaxed atomic"));
        f.set("poll", std::string(!cuda ? s->fenced_wait ? "relaxed atomic, fence" : "acquire atomic"
                                  : s->fenced_wait ? "ld.relaxed.sys, fence.acq_rel.sys"
                                                   : "ld.acquire.sys"));
        f.set("completion", std::string(cuda ? "fence.acq_rel.sys, no acknowledgement by the peer"
                                             : "fence, no acknowledgement by the peer"));
        if (cuda)
            gic::add_gpu_facts(&f, *s->gpu);
        f.publish(facts_p, count_p);
        return 0;
    });
}

const char *last_error() { return gic::error_text().c_str(); }

} // namespace

GIC_EXPORT const struct gic_backend gic_backend_v1 = {
    "rawstore",
    "1",
    sizeof(struct gic_backend),
    GIC_ABI_VERSION,
    GIC_CAP_PUT | GIC_CAP_PUT_VALUE | GIC_CAP_PUT_SIGNAL | GIC_CAP_SIGNAL | GIC_CAP_WAIT | GIC_CAP_GET |
        GIC_CAP_FETCH_ADD | GIC_CAP_FENCE | GIC_CAP_FLUSH | GIC_CAP_QUIET | GIC_CAP_GPU_VISIBLE |
        GIC_CAP_NOTIFY | GIC_CAP_HOST_DEVICE | GIC_CAP_NIC_NONE
#if defined(GIC_CUDA_PLUGIN)
        | GIC_CAP_CUDA_DEVICE
#endif
    ,
    keys,
    key_count,
    {}, // no NIC works
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
