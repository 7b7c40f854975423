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
    {"signal_every", "1", "1..4096", "every Nth WQE asks for a CQE"},
    {"scope", "qp", GDA_SCOPES, "what a flush completes: the own QP, one peer's, all"},
    {"depth", "1024", "64..32768", "blocks per send queue, a power of two"},
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

int check(const struct gic_open *open, gda_attr *attr_p) {
    gic::Config config(keys, key_count, open);
    if (int rc = config.check())
        return rc;
    const char *engine = gic::kv_find(open->nic_config, open->nic_config_count, "engine");
    *attr_p =
        attr_of(config, strncmp(open->device, "cuda", 4) == 0 && !(engine && strcmp(engine, "gpu") == 0));
    if (int rc = gda_check(attr_p))
        return rc;
    if (int rc = gda_fabric_probe(open))
        return rc;
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

// On a GPU only op, which measures the rungs of Table 4, has a kernel for each of them, and caller for the two that
// order=auto may become.
template <class W>
constexpr bool rungs = std::is_same_v<W, op_workload> || std::is_same_v<W, caller_workload>;
template <class W, gda_order O, gda_sharing S>
constexpr bool has_kernel = S != gda_sharing::exclusive ||
                            (std::is_same_v<W, caller_workload>
                                 ? O == gda_order::gpu_fence || O == gda_order::sys_release
                                 : rungs<W> != (O == gda_order::runtime));

// One workload on the handle type that the session's choices ask for.
template <class W> struct OnHandle {
    struct gic_session *s;
    const struct gic_run *run;

    template <gda_order O, gda_sharing S> int operator()() const {
        using H = gda_handle<O, S>;
        auto prepare = [this](uint32_t agents, H &h) {
            int rc = gda_begin(s->g, agents);
            gda_fill(s->g, &h);
            return rc;
        };
        auto done = [this](uint32_t, H &, int status) { return gda_end(s->g, status); };
        return gic::drive<W, has_kernel<W, O, S>>(gda_handle_of<O, S>(s->g), run, s->results, prepare, done,
                                                  s->g->fabric->gpu.get(), s->g->stop);
    }
};
struct OnWorkload {
    struct gic_session *s;
    const struct gic_run *run;

    template <class W> int operator()() const {
        return gda_dispatch(s->g->attr, OnHandle<W>{s, run}, rungs<W> || !s->g->fabric->gpu);
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
        GIC_CAP_NOTIFY | GIC_CAP_HOST_DEVICE | GIC_CAP_NIC_SOFT
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
