// The floor where a CPU proxy submits: device threads hand 16-byte descriptors to host workers, which post
// them to the NIC. What the words of device.cuh give here is said in miniproxy/proxy.cuh.
#include "backends/abi/adapter.cuh"
#include "minigda/gda_host.h"
#include "miniproxy/proxy_host.h"
#include "workloads/alltoall/alltoall.cuh"
#include "workloads/caller/caller.cuh"
#include "workloads/conform/conform.cuh"
#include "workloads/goodput/goodput.cuh"
#include "workloads/moe/moe.cuh"
#include "workloads/op/op.cuh"
#include "workloads/rate/rate.cuh"

namespace {

using proxy::Handoff;
using workloads = gic::Workloads<op_workload, rate_workload, goodput_workload, alltoall_workload,
                                 moe_workload, caller_workload, conform_workload>;

const struct gic_key keys[] = {
    {"agent", "thread", "thread|warp", "who hands over as one: a thread, or the lanes of a warp together"},
    {"rings", "32", "1..32", "descriptor rings in host memory"},
    {"ring_mode", "private", "private|shared", "one producer per ring, or agents share rings"},
    {"ring_depth", "1024", "64..65536", "descriptors per ring, a power of two"},
    {"handoff", "tuned", "baseline|tuned",
     "baseline: atomic reservation, progress read every time, system-scope fence; tuned: cached, posted"},
    {"payload", "ordered", "ordered|posted",
     "device=cuda, handoff=tuned: the hand-off orders what the kernel wrote before, or the kernel does "
     "itself"},
    {"workers", "1", "1..8", "CPU threads; ring r belongs to worker r mod workers"},
    {"worker_qps", "1", "1..4",
     "QPs of a worker per peer, its rings dealt to them in turn: for an engine of several threads"},
    {"rest", "0", "0..10000", "ns that a worker leaves its rings alone after it found all of them empty"},
    {"batch", "16", "1..16", "descriptors a worker chains at most behind one doorbell"},
    {"inline", "auto", "auto|on|off", "payload in the WQE: up to inline_limit, always, never"},
    {"inline_limit", "28", "8..972", "largest payload that inline=auto puts into the WQE, in bytes"},
    {"depth", "1024", "64..32768", "basic blocks per send queue, a power of two"},
    {"hold", "off", "off|on",
     "rate, goodput: the NIC looks at the queues only while the workers have nothing to post; what they post "
     "is timed alone, as posting_rate"},
    {"counter", "host", "host|gpu", "memory of the completion counters"},
};
constexpr uint32_t key_count = sizeof keys / sizeof *keys;

// Rings that stay empty so long have been emptied; a device fills one of them every 0.1 us.
constexpr uint32_t hold_ns = 20000;

gic::Config config_of(const struct gic_open *open) { return gic::Config(keys, key_count, open); }

proxy::Attr attr_of(const gic::Config &c) {
    const bool on = strcmp(c.text("inline"), "on") == 0, off = strcmp(c.text("inline"), "off") == 0;
    proxy::Attr a{};
    a.rings = c.u32("rings");
    a.ring_depth = c.u32("ring_depth");
    a.workers = c.u32("workers");
    a.qps = c.u32("worker_qps");
    a.rest_ns = c.u32("rest");
    a.batch = c.u32("batch");
    a.inline_max = on ? proxy::MAX_INLINE : off ? 0 : c.u32("inline_limit");
    a.inline_only = on;
    a.shared = strcmp(c.text("ring_mode"), "shared") == 0;
    a.posted = strcmp(c.text("payload"), "posted") == 0;
    a.hold_ns = strcmp(c.text("hold"), "on") == 0 ? hold_ns : 0;
    return a;
}

// There are no kernels of these for agents of a warp.
template <class W>
constexpr bool threads_only = std::is_same_v<W, alltoall_workload> || std::is_same_v<W, caller_workload>;

bool tuned(const gic::Config &c) { return strcmp(c.text("handoff"), "tuned") == 0; }

int power_of_two(const gic::Config &c, const char *key) {
    uint32_t v = c.u32(key);
    return v & (v - 1) ? gic::fail(-EINVAL, "%s=%u: want a power of two", key, v) : 0;
}

int probe_config(const struct gic_open *open) {
    gic::Config c = config_of(open);
    int rc;
    if ((rc = c.check()) || (rc = power_of_two(c, "ring_depth")) || (rc = power_of_two(c, "depth")))
        return rc;
    proxy::Attr a = attr_of(c);
    if (tuned(c) && a.shared)
        return gic::fail(-EINVAL, "handoff=tuned with ring_mode=shared: a tuned ring has one producer; want "
                                  "ring_mode=private or handoff=baseline");
    if (a.posted && !tuned(c))
        return gic::fail(-EINVAL,
                         "payload=posted with handoff=baseline: baseline fences every hand-off; want "
                         "handoff=tuned or payload=ordered");
    if (a.posted && strncmp(open->device, "cuda", 4) != 0)
        return gic::fail(-ENOTSUP,
                         "payload=posted: needs a CUDA device; a processor's stores are in order anyhow");
    if (a.workers > a.rings)
        return gic::fail(-EINVAL, "workers=%u with rings=%u: each worker needs a ring", a.workers, a.rings);
    if (strcmp(c.text("counter"), "gpu") == 0)
        return gic::fail(-ENOTSUP, "counter=gpu: the CPU has no mapping of GPU memory without GDRCopy");
    if (open->nranks > (int32_t)proxy::MAX_PEERS)
        return gic::fail(-ENOTSUP, "%d ranks: a descriptor names at most %u peers", open->nranks,
                         proxy::MAX_PEERS);
    return 0;
}

} // namespace

struct gic_session {
    struct gda_fabric *fabric = nullptr;
    std::unique_ptr<proxy::Host> host; // borrows the fabric
    proxy::Attr attr{};
    bool tuned = false, warps = false;
    gic::Env env{};
    const volatile uint32_t *stop = nullptr; // gic_open.stop
    uint32_t agents = 0;                     // of the last launch
    bool held = false;                       // the NIC, in it
    gic::Results results;
    gic::Facts facts;
    gic::Counters counters;

    gic_session() = default;
    gic_session(const gic_session &) = delete;
    gic_session &operator=(const gic_session &) = delete;
    ~gic_session() {
        host.reset();
        gda_fabric_close(fabric);
    }
};

namespace {

int probe(const struct gic_open *open) {
    return gic::guarded([&] {
        int rc = gda_fabric_probe(open, true);
        return rc ? rc : probe_config(open);
    });
}

int open_session(const struct gic_open *open, struct gic_session **session_p) {
    return gic::guarded([&] {
        int rc = probe(open);
        if (rc)
            return rc;
        gic::Config c = config_of(open);
        auto s = std::make_unique<gic_session>();
        s->attr = attr_of(c);
        s->tuned = tuned(c);
        s->warps = strcmp(c.text("agent"), "warp") == 0;
        s->stop = open->stop;
        s->env = gic::Env{open->stop, open->timeout_ns};
        uint32_t depth = c.u32("depth"), per_peer = s->attr.workers * s->attr.qps,
                 qps = (uint32_t)open->nranks * per_peer;
        if ((rc = gda_fabric_open(open, SOFTNIC_REAL, qps, &s->fabric)) ||
            (rc = gda_fabric_connect(s->fabric, per_peer, depth, depth)) ||
            (rc = proxy::Host::create(s->fabric, s->attr, &s->host)) || (rc = s->host->start()))
            return rc;
        *session_p = s.release();
        return 0;
    });
}

void close_session(struct gic_session *s) { delete s; }

int window(struct gic_session *s, uint64_t bytes) {
    return gic::guarded([&] {
        if (bytes > proxy::MAX_OFFSET)
            return gic::fail(-EINVAL, "window of %llu bytes: a descriptor reaches %llu",
                             (unsigned long long)bytes, (unsigned long long)proxy::MAX_OFFSET);
        return gda_fabric_window(s->fabric, bytes);
    });
}

int write_window(struct gic_session *s, uint64_t offset, const void *src, size_t bytes) {
    return gda_fabric_write(s->fabric, offset, src, bytes);
}
int read_window(struct gic_session *s, uint64_t offset, void *dst, size_t bytes) {
    return gda_fabric_read(s->fabric, offset, dst, bytes);
}

int prepare(struct gic_session *s, uint32_t agents, bool hold) {
    if (!s->attr.shared && agents > s->attr.rings)
        return gic::fail(-ENOTSUP, "ring_mode=private: %u device threads for rings=%u; want a ring for each",
                         agents, s->attr.rings);
    if (agents > proxy::MAX_SHARED_AGENTS)
        return gic::fail(-ENOTSUP, "%u device threads: want at most %u", agents, proxy::MAX_SHARED_AGENTS);
    s->agents = agents;
    int rc;
    if ((rc = s->host->begin()) != 0 || (rc = gda_fabric_ready(s->fabric)) != 0)
        return rc;
    s->held = hold && s->attr.hold_ns;
    if (s->held)
        s->host->hold();
    return 0;
}

// The run is over when the workers have completed what the kernel left in the rings.
int finish(struct gic_session *s, int status) {
    const std::string said = gic::error_text();
    const int ended = s->host->end();
    if (ended == 0 && status == gic::OK && (status = s->host->drain(s->env)) != gic::OK)
        gic::fail(status, "complete the rings: %s", gic::status_text(status));
    s->host->release();
    if (ended)
        return status ? gic::fail(status, "%s", said.c_str()) : ended;
    std::string why = s->host->error();
    return status == gic::ERR_IO && !why.empty() ? gic::fail(status, "%s", why.c_str()) : status;
}

template <Handoff F, bool MANY> struct Launch {
    struct gic_session *s;
    const struct gic_run *run;

    template <class W> int operator()() {
        gic::Gpu *gpu = s->fabric->gpu.get();
        const gic::Env env{gpu ? gpu->stop_word() : s->stop, s->env.timeout_ns};
        // Others wait for memory that a NIC which stands still never writes.
        constexpr bool hold = std::is_same_v<W, rate_workload> || std::is_same_v<W, goodput_workload>;
        return gic::drive<W, !(MANY && threads_only<W>)>(
            s->host->handle<F, MANY>(env, MANY ? 32 : 1), run, s->results,
            [this](uint32_t agents, proxy::Handle<F, MANY> &) { return prepare(s, agents, hold); },
            [this](uint32_t, proxy::Handle<F, MANY> &, int status) { return finish(s, status); }, gpu,
            s->stop);
    }
};

template <Handoff F> int launch(struct gic_session *s, const struct gic_run *run) {
    return s->warps ? workloads::dispatch(run->workload, Launch<F, true>{s, run})
                    : workloads::dispatch(run->workload, Launch<F, false>{s, run});
}

int run(struct gic_session *s, const struct gic_run *run, struct gic_result *result_p) {
    return gic::guarded([&] {
        if (!s->fabric->window)
            return gic::fail(-EINVAL, "run before window");
        s->results.clear();
        const int rc = s->tuned ? launch<Handoff::tuned>(s, run) : launch<Handoff::baseline>(s, run);
        s->results.publish(result_p);
        return rc;
    });
}

// With a batch of one every WQE has its doorbell and its CQE; above that it depends on how many descriptors a
// worker finds.
int counters(struct gic_session *s, const struct gic_counter **counters_p, uint32_t *count_p) {
    return gic::guarded([&] {
        const bool fixed = s->attr.batch == 1;
        gic::Counters nic;
        const struct gic_counter *list;
        uint32_t count;
        gda_fabric_counters(s->fabric, &nic);
        nic.publish(&list, &count);
        proxy::Stats stats = s->host->stats();
        s->counters.clear();
        for (uint32_t i = 0; i < count; i++)
            s->counters.add(list[i].name, list[i].unit, list[i].value,
                            list[i].exact && (fixed || strcmp(list[i].name, "cqes") != 0));
        s->counters.add("doorbells", "1", stats.doorbells, fixed);
        s->counters.add("descriptors", "1", stats.descriptors, true);
        s->counters.publish(counters_p, count_p);
        return 0;
    });
}

int facts(struct gic_session *s, const struct gic_kv **facts_p, uint32_t *count_p) {
    return gic::guarded([&] {
        gda_fabric_facts(s->fabric, &s->facts);
        s->facts.set("agent", std::string(s->warps ? "warp" : "thread"));
        s->facts.set("rings", s->attr.rings);
        s->facts.set("ring_depth", s->attr.ring_depth);
        s->facts.set("ring_mode", std::string(s->attr.shared ? "shared" : "private"));
        s->facts.set("workers", s->attr.workers);
        s->facts.set("worker_qps", s->attr.qps);
        s->facts.set("completion_scope", std::string("ring"));
        s->facts.set("counter", std::string("host"));
        s->facts.set("hold", std::string(s->held ? "on" : "off"));
        s->facts.set("payload", std::string(s->attr.posted ? "posted" : "ordered"));
        const uint32_t agents = s->fabric->gpu ? 1 : s->agents; // one thread waits for the kernel
        s->facts.set("runnable_threads", agents + s->attr.workers + s->fabric->workers);
        s->facts.publish(facts_p, count_p);
        return 0;
    });
}

const char *last_error() { return gic::error_text().c_str(); }

} // namespace

GIC_EXPORT const struct gic_backend gic_backend_v1 = {
    "miniproxy",
    "1",
    sizeof(struct gic_backend),
    GIC_ABI_VERSION,
    GIC_CAP_PUT | GIC_CAP_PUT_VALUE | GIC_CAP_PUT_SIGNAL | GIC_CAP_SIGNAL | GIC_CAP_WAIT | GIC_CAP_GET |
        GIC_CAP_FETCH_ADD | GIC_CAP_FENCE | GIC_CAP_FLUSH | GIC_CAP_QUIET | GIC_CAP_GPU_VISIBLE |
        GIC_CAP_NOTIFY | GIC_CAP_HOST_DEVICE | GIC_CAP_NIC_SOFT | GIC_CAP_RANKS_IN_PROCESS
#if defined(GIC_CUDA_PLUGIN)
        | GIC_CAP_CUDA_DEVICE
#endif
    ,
    keys,
    key_count,
    {
        {1, 0, 0}, // put
        {1, 0, 0}, // put_value
        {0, 0, 1}, // signal
        {1, 0, 1}, // put_signal
        {0, 1, 0}, // get
        {0, 0, 1}, // fetch_add
        {1, 0, 0}, // notify of a word
        {2, 0, 0}, // notify
    },
    probe,
    open_session,
    close_session,
    window,
    write_window,
    read_window,
    run,
    counters,
    facts,
    last_error,
};
