// minigda as a backend: the GPU-submission floor behind the C ABI.
#include "backends/abi/adapter.cuh"
#include "minigda/gda.h"
#include "workloads/alltoall/alltoall.cuh"
#include "workloads/caller/caller.cuh"
#include "workloads/conform/conform.cuh"
#include "workloads/goodput/goodput.cuh"
#include "workloads/moe/moe.cuh"
#include "workloads/op/op.cuh"
#include "workloads/rate/rate.cuh"

namespace {

using Served = gic::Workloads<op_workload, rate_workload, goodput_workload, alltoall_workload, moe_workload,
                              caller_workload, conform_workload>;

constexpr const char *version = "1";

const struct gic_key keys[] = {
    {"qps", "1", "1..528", "queue pairs per peer; agent a posts to QP a % qps"},
    {"batch", "1", "1..256", "WQEs per doorbell"},
    {"order", "auto", "auto|" GDA_ORDERS,
     "ordering before the doorbell; auto: the cheapest safe one, gpu-fence, or sys-release where CUDA "
     "threads post "
     "to a NIC that is a thread of this machine (none: issue only, unsafe)"},
    {"inline", "auto", "auto|on|off", "payload in the WQE: up to inline_limit, always, never"},
    {"inline_limit", "28", "8..972", "largest payload that inline=auto puts into the WQE, in bytes"},
    {"sharing", "exclusive", GDA_SHARINGS, "who may post to one QP"},
    {"lock", "gpu", GDA_LOCKS,
     "where lock or turn of a shared QP lie: GPU memory, or the memory of the block that all agents are in "
     "(placement=warps|lanes)"},
    {"signal_every", "1", "1..4096", "every Nth WQE asks for a CQE"},
    {"scope", "qp", GDA_SCOPES, "what a flush completes: the own QP, one peer's, all"},
    {"depth", "1024", "64..32768", "blocks per send queue, a power of two"},
    {"agent", "auto", "auto|thread|warp|block",
     "who posts as one: a thread, or the lanes of a warp or of a block of 128 together; auto: a warp where "
     "sharing=warp, otherwise a thread"},
    {"state", "registers", "registers|memory",
     "where an agent keeps its place in a queue between two calls: registers (fast loops) or device memory "
     "(few registers, for kernels that compute)"},
    {"ringer", "gpu", "gpu|host",
     "who stores to the doorbell: the device thread, or a host thread that the device thread leaves it to"},
    {"hold", "off", "off|on",
     "op, rate, goodput: the NIC looks at the queues only while an agent waits for it, posting is timed "
     "alone"},
    {"bare", "off", "off|on",
     "no bookkeeping at all, the yardstick of posting: nothing checks for a free slot (unsafe)"},
};
constexpr uint32_t key_count = sizeof keys / sizeof *keys;

// cpu_reads: CUDA threads post, and a thread of this machine is the NIC.
gda_attr attr_of(const gic::Config &c, bool cpu_reads) {
    gda_attr a{};
    a.qps = c.u32("qps");
    a.batch = c.u32("batch");
    a.order = c.choice("order") ? (gda_order)(c.choice("order") - 1)
              : cpu_reads       ? gda_order::sys_release
                                : gda_order::gpu_fence;
    a.sharing = (gda_sharing)c.choice("sharing");
    a.hold = c.choice("hold") == 1;
    a.host_rings = c.choice("ringer") == 1;
    const bool exclusive = a.sharing == gda_sharing::exclusive, bare = c.choice("bare") == 1;
    const uint32_t agent = c.choice("agent");
    if (exclusive && agent >= 2) {
        a.sharing = bare ? gda_sharing::bare_group : gda_sharing::group;
        a.lanes = agent == 2 ? 32 : 128;
    } else if (exclusive && bare) {
        a.sharing = gda_sharing::bare;
    } else if (exclusive && c.choice("state") == 1) {
        a.sharing = gda_sharing::spare;
    } else if (!exclusive && c.choice("lock") == 1) {
        a.sharing = (gda_sharing)((uint32_t)a.sharing - (uint32_t)gda_sharing::lock +
                                  (uint32_t)gda_sharing::block_lock);
    }
    a.scope = (gda_scope)c.choice("scope");
    a.signal_every = c.u32("signal_every");
    a.depth = c.u32("depth");
    a.inline_max = c.u32("inline_limit");
    if (strcmp(c.text("inline"), "off") == 0)
        a.inline_max = 0;
    else if (strcmp(c.text("inline"), "on") == 0)
        a.inline_max = GDA_INLINE_MAX, a.inline_only = true;
    return a;
}

// Do the keys that say who posts, and how, go together?
int check_agent(const gic::Config &config) {
    const gda_sharing sharing = (gda_sharing)config.choice("sharing");
    const bool exclusive = sharing == gda_sharing::exclusive, memory = config.choice("state") == 1,
               bare = config.choice("bare") == 1;
    const uint32_t agent = config.choice("agent"), own = sharing == gda_sharing::warp ? 2 : 1;
    if (agent != 0 && !exclusive && agent != own)
        return gic::fail(-EINVAL, "agent=%s with sharing=%s: want sharing=exclusive or agent=%s",
                         config.text("agent"), config.text("sharing"), own == 2 ? "warp" : "thread");
    if (exclusive && config.choice("lock") == 1)
        return gic::fail(-EINVAL,
                         "lock=block with sharing=exclusive: nobody shares a queue; want sharing=lock, "
                         "handoff or warp");
    if ((bare || memory) && !exclusive)
        return gic::fail(-EINVAL, "%s with sharing=%s: want sharing=exclusive",
                         bare ? "bare=on" : "state=memory", config.text("sharing"));
    if (memory && (bare || agent >= 2))
        return gic::fail(-EINVAL,
                         "state=memory with %s: an agent that keeps nothing is one thread, and not bare",
                         bare ? "bare=on" : config.text("agent"));
    return 0;
}

int check(const struct gic_open *open, gda_attr *attr_p) {
    gic::Config config(keys, key_count, open);
    if (int rc = config.check())
        return rc;
    const char *engine = gic::kv_find(open->nic_config, open->nic_config_count, "engine");
    *attr_p =
        attr_of(config, strncmp(open->device, "cuda", 4) == 0 && !(engine && strcmp(engine, "gpu") == 0));
    if (int rc = check_agent(config))
        return rc;
    if (int rc = gda_check(attr_p, (uint32_t)open->nranks))
        return rc;
    if (int rc = gda_fabric_probe(open))
        return rc;
    if (attr_p->host_rings && strcmp(gda_fabric_watch(open), "bell") != 0)
        return gic::fail(
            -ENOTSUP,
            "ringer=host with watch=%s: the NIC takes the record and waits for no doorbell; want "
            "watch=bell",
            gda_fabric_watch(open));
    if (attr_p->host_rings && gda_fabric_places(open).doorbells_on_gpu)
        return gic::fail(
            -ENOTSUP,
            "ringer=host with doorbell=gpu: a processor cannot store into GPU memory; want doorbell=host");
    // On a GPU nothing orders the record before the bell then, and the engine takes the index from the record.
    if (attr_p->order == gda_order::gpu_fence && strncmp(open->device, "cuda", 4) == 0 &&
        strcmp(gda_fabric_watch(open), "bell") == 0)
        return gic::fail(-ENOTSUP, "order=gpu-fence does not order the doorbell record before the doorbell, "
                                   "which watch=bell relies on; want watch=dbr");
    return 0;
}

} // namespace

struct gic_session {
    gda *g = nullptr;
    bool hold = false; // as configured
    gic::Results results;
    gic::Facts facts;
    gic::Counters counters;
};

namespace {

int probe(const struct gic_open *open) {
    return gic::guarded([&] {
        gda_attr attr;
        return check(open, &attr);
    });
}

void close_session(struct gic_session *s) {
    if (s)
        gda_close(s->g);
    delete s;
}

int open_session(const struct gic_open *open, struct gic_session **session_p) {
    return gic::guarded([&] {
        gda_attr attr;
        if (int rc = check(open, &attr))
            return rc;
        gda_fabric *fabric;
        const uint32_t qps = (uint32_t)open->nranks * attr.qps;
        if (int rc = gda_fabric_open(open, SOFTNIC_REAL, qps, &fabric))
            return rc;
        auto s = std::make_unique<gic_session>();
        if (int rc = gda_open(fabric, open, &attr, &s->g))
            return rc;
        s->hold = attr.hold;
        *session_p = s.release();
        return 0;
    });
}

int window(struct gic_session *s, uint64_t bytes) {
    return gic::guarded([&] { return gda_window(s->g, bytes); });
}
int write(struct gic_session *s, uint64_t offset, const void *src, size_t bytes) {
    return gda_fabric_write(s->g->fabric, offset, src, bytes);
}
int read(struct gic_session *s, uint64_t offset, void *dst, size_t bytes) {
    return gda_fabric_read(s->g->fabric, offset, dst, bytes);
}

// The handle types that each workload has a kernel for (minigda_cuda.cu), and code for threads of this machine: op
// measures every rung of Table 4, rate and goodput, whose kernel is one, and caller those that order=auto may become;
// elsewhere the rung is a branch.
template <class W, gda_order O, gda_sharing S> constexpr bool has_kernel_for() {
    using o = gda_order;
    using s = gda_sharing;
    constexpr bool op = std::is_same_v<W, op_workload>, caller = std::is_same_v<W, caller_workload>,
                   conform = std::is_same_v<W, conform_workload>,
                   stream = std::is_same_v<W, rate_workload> || std::is_same_v<W, goodput_workload>;
    constexpr bool any = O == o::runtime, safe = O == o::gpu_fence || O == o::sys_release,
                   main = safe || O == o::none;
    switch (S) {
    case s::exclusive:
        return op ? !any : caller ? safe : stream ? any || main : any;
    case s::group:
        return caller ? false : op || stream ? any || safe : any;
    case s::spare:
        return op || caller ? safe : conform && any;
    case s::bare:
        return (op || stream) && main;
    case s::bare_group:
        return stream && main;
    case s::block_lock: // all agents in one block: of workloads that can be asked for it
    case s::block_handoff:
    case s::block_warp:
        return (op || stream || conform) && any;
    default:
        return any;
    }
}

} // namespace
template <gda_order O, gda_sharing S> struct gic::ChoosesQueue<gda_handle<O, S>> : std::true_type {};
namespace {

// One workload on the handle type that the session's choices ask for.
template <class W> struct OnHandle {
    struct gic_session *s;
    const struct gic_run *run;

    template <gda_order O, gda_sharing S> static constexpr bool has = has_kernel_for<W, O, S>();

    template <gda_order O, gda_sharing S> int operator()() const {
        using H = gda_handle<O, S>;
        auto prepare = [this](uint32_t agents, H &h) {
            int rc = gda_begin(s->g, agents);
            gda_fill(s->g, &h);
            return rc;
        };
        auto done = [this](uint32_t, H &, int status) { return gda_end(s->g, status); };
        return gic::drive<W>(gda_handle_of<O, S>(s->g), run, s->results, prepare, done,
                             s->g->fabric->gpu.get(), s->g->stop);
    }
};
struct OnWorkload {
    struct gic_session *s;
    const struct gic_run *run;

    template <class W> int operator()() const {
        constexpr bool posts = std::is_same_v<W, op_workload> || std::is_same_v<W, rate_workload> ||
                               std::is_same_v<W, goodput_workload>;
        s->g->attr.hold =
            s->hold && posts; // others poll memory by themselves, which a NIC that stands still never writes
        return gda_dispatch(s->g->attr, OnHandle<W>{s, run});
    }
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

int counters(struct gic_session *s, const struct gic_counter **counters_p, uint32_t *count_p) {
    return gic::guarded([&] {
        s->counters.clear();
        gda_counters(s->g, &s->counters);
        s->counters.publish(counters_p, count_p);
        return 0;
    });
}

int facts(struct gic_session *s, const struct gic_kv **facts_p, uint32_t *count_p) {
    return gic::guarded([&] {
        gda_facts(s->g, &s->facts);
        s->facts.publish(facts_p, count_p);
        return 0;
    });
}

const char *last_error() { return gic::error_text().c_str(); }

} // namespace

GIC_EXPORT const struct gic_backend gic_backend_v1 = {
    "minigda",
    version,
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
        {1, 0, 0}, // notify of 8 bytes
        {2, 0, 0}, // notify of more
    },
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
