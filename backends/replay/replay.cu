// replay as a backend: the NIC work of another row, from its traces, posted by the minimal path (minigda/gda_replay.h).
//
// A row of it has the point, NIC and ranks of the row that was traced, so that the times of both, and of a floor, may be
// subtracted: what the traced row takes beyond it is that stack's own code, what it takes beyond the floor are that
// stack's choices. Each run launches the kernel twice: once to learn its operations, which counts for nothing, and once
// to replay.
#include "backends/abi/adapter.cuh"
#include "minigda/gda_replay.h"
#include "workloads/alltoall/alltoall.cuh"
#include "workloads/goodput/goodput.cuh"
#include "workloads/moe/moe.cuh"
#include "workloads/op/op.cuh"
#include "workloads/rate/rate.cuh"

namespace {

using Served = gic::Workloads<op_workload, rate_workload, goodput_workload, alltoall_workload, moe_workload>;

constexpr const char *version = "1";

const struct gic_key keys[] = {
    {"trace", "", "",
     "trace of rank 0, a file ...-nic0-N.trace; those of the other ranks lie beside it, with their number"},
    {"doorbells", "0", "0..4294967295",
     "how many doorbells all ranks of the traced run rang; 0: as many as their NICs saw"},
    {"doorbells_timed", "off", "off|on",
     "that number depends on timing: the nearest that a batch gives will do"},
    {"stated_batch", "0", "0..256", "WQEs per doorbell that the traced row states; 0: none"},
    {"scope", "auto", "auto|" GDA_SCOPES, "what a flush completes; auto: what the trace bears out"},
    {"order", "auto", "auto|gpu-fence|gpu-fence+dbr|gpu-release|threadfence|sys-release|sys-fence",
     "ordering before the doorbell, which no trace shows; auto: the cheapest safe one, gpu-fence"},
    {"lanes", "1", "1|32", "lanes of one agent of the traced row"},
    {"of", "", "", "the case that is replayed, for the record"},
};
constexpr uint32_t key_count = sizeof keys / sizeof *keys;

struct choices {
    std::vector<std::string> paths; // by rank
    gda_replay_options options;
    gda_order order;
    uint32_t lanes;
};

int trace_paths(const char *first, int32_t nranks, std::vector<std::string> *paths_p) {
    const std::string path = first, mark = "-nic0-";
    const size_t at = path.rfind(mark);
    if (path.empty())
        return gic::fail(-EINVAL,
                         "trace: no file; want the trace of rank 0 of a run with --nic soft:trace=on");
    if (at == std::string::npos)
        return gic::fail(-EINVAL, "trace=%s: is not the trace of rank 0: want ...-nic0-N.trace", first);
    for (int32_t r = 0; r < nranks; r++)
        paths_p->push_back(path.substr(0, at) + "-nic" + std::to_string(r) + "-" +
                           path.substr(at + mark.size()));
    return 0;
}

int check(const struct gic_open *open, choices *c_p) {
    gic::Config config(keys, key_count, open);
    if (int rc = config.check())
        return rc;
    const bool cuda = strncmp(open->device, "cuda", 4) == 0;
    const char *engine = gic::kv_find(open->nic_config, open->nic_config_count, "engine");
    c_p->options.doorbells = config.u32("doorbells");
    c_p->options.timed = strcmp(config.text("doorbells_timed"), "on") == 0;
    c_p->options.batch = config.u32("stated_batch");
    c_p->options.scope = (int)config.choice("scope") - 1;
    // As the floor's order=auto.
    c_p->order = config.choice("order")                            ? (gda_order)config.choice("order")
                 : cuda && !(engine && strcmp(engine, "gpu") == 0) ? gda_order::sys_release
                                                                   : gda_order::gpu_fence;
    c_p->lanes = config.u32("lanes");
    if (cuda && c_p->lanes != 1)
        return gic::fail(-ENOTSUP, "lanes=%u on %s: there a replay has agents of one lane only", c_p->lanes,
                         open->device);
    if (int rc = trace_paths(config.text("trace"), open->nranks, &c_p->paths))
        return rc;
    return gda_fabric_probe(open);
}

} // namespace

struct gic_session {
    gda *g = nullptr;
    choices chosen;
    const struct gic_comm *comm = nullptr;
    std::unique_ptr<gda_replay> replay;
    gic::Results results, learned;
    gic::Facts facts;
    gic::Counters all, counters;
    std::vector<uint64_t> hidden; // of launches that learned, by counter
};

namespace {

int probe(const struct gic_open *open) {
    return gic::guarded([&] {
        choices c;
        return check(open, &c);
    });
}

void close_session(struct gic_session *s) {
    if (s) {
        s->replay.reset(); // has memory of the device that goes with the fabric
        gda_close(s->g);
    }
    delete s;
}

// Collective: what each rank's trace needs, the same on all.
int needs(const struct gic_open *open, const choices &c, gda_trace *trace_p, gda_attr *a_p) {
    const std::string &path = c.paths[(size_t)open->rank];
    uint32_t mine[3] = {}; // QPs per peer, depth, -status
    int rc = gda_trace_read(path.c_str(), trace_p);
    if (rc == 0 && (trace_p->rank != (uint32_t)open->rank || trace_p->ranks != (uint32_t)open->nranks))
        rc = gic::fail(-EINVAL, "trace %s is of rank %u of %u, this is rank %d of %d", path.c_str(),
                       trace_p->rank, trace_p->ranks, open->rank, open->nranks);
    if (rc == 0)
        rc = gda_replay_needs(*trace_p, &mine[0], &mine[1]);
    mine[2] = (uint32_t)-rc;
    const std::string said = gic::error_text();
    std::vector<uint32_t> all(3 * (size_t)open->nranks);
    if (int failed = open->comm->allgather(open->comm->arg, mine, all.data(), sizeof mine))
        return gic::fail(failed, "replay: exchange what the traces need: %s", strerror(-failed));
    if (rc)
        return gic::fail(rc, "%s", said.c_str());
    *a_p = gda_attr{};
    a_p->order = c.order;
    a_p->sharing = gda_sharing::handoff;
    a_p->scope = gda_scope::qp;
    a_p->batch = a_p->signal_every = 1;
    a_p->inline_max = 0;
    a_p->qps = 1;
    a_p->depth = 64;
    for (int32_t r = 0; r < open->nranks; r++) {
        if (all[3 * (size_t)r + 2])
            return gic::fail(-(int)all[3 * (size_t)r + 2], "replay: rank %d cannot replay its trace", r);
        a_p->qps = std::max(a_p->qps, all[3 * (size_t)r]);
        a_p->depth = std::max(a_p->depth, all[3 * (size_t)r + 1]);
    }
    return 0;
}

int open_session(const struct gic_open *open, struct gic_session **session_p) {
    return gic::guarded([&] {
        auto s = std::make_unique<gic_session>();
        if (int rc = check(open, &s->chosen))
            return rc;
        gda_trace trace;
        gda_attr attr;
        if (int rc = needs(open, s->chosen, &trace, &attr))
            return rc;
        gda_fabric *fabric;
        if (int rc = gda_fabric_open(open, SOFTNIC_REAL, (uint32_t)open->nranks * attr.qps, &fabric))
            return rc;
        if (int rc = gda_open(fabric, open, &attr, &s->g))
            return rc;
        s->comm = open->comm;
        s->replay = std::make_unique<gda_replay>(s->g, trace, s->chosen.options, open->comm);
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

// Which workloads measure posting, and which kernels replay_cuda.cu has.
template <class W>
constexpr bool posting =
    std::is_same_v<W, op_workload> || std::is_same_v<W, rate_workload> || std::is_same_v<W, goodput_workload>;
template <class W, gda_order O>
constexpr bool has_kernel = O == gda_order::runtime ||
                            (posting<W> && (O == gda_order::gpu_fence || O == gda_order::sys_release));

std::vector<gic_counter> counted(struct gic_session *s) {
    s->all.clear();
    gda_counters(s->g, &s->all);
    const gic_counter *list;
    uint32_t n;
    s->all.publish(&list, &n);
    return {list, list + n};
}

int meet(struct gic_session *s) {
    const int rc = s->comm->barrier(s->comm->arg);
    return rc ? gic::fail(rc, "replay: wait for all ranks: %s", strerror(-rc)) : 0;
}

// The first launch, of which only the operations count; then the program.
template <class W, bool kernel, class H> int learn(struct gic_session *s, const struct gic_run *run, H h) {
    gda_fabric *f = s->g->fabric;
    std::vector<uint8_t> before(f->window_bytes);
    if (int rc = gda_fabric_read(f, 0, before.data(), before.size()))
        return rc;
    const std::vector<gic_counter> from = counted(s);
    // Nobody posts before all have kept their windows: what has arrived would come back with them.
    if (int rc = meet(s))
        return rc;
    s->learned.clear();
    auto prepare = [s](uint32_t agents, H &handle) {
        if (int rc = s->replay->learn(agents, &handle.plan))
            return rc;
        int rc = gda_begin(s->g, agents);
        gda_fill(s->g, &handle);
        handle.lanes = s->chosen.lanes;
        return rc;
    };
    auto done = [s](uint32_t, H &, int status) { return gda_end(s->g, status); };
    if (int rc = gic::drive<W, kernel>(h, run, s->learned, prepare, done, f->gpu.get(), s->g->stop))
        return rc;
    if (int rc = s->replay->build()) // every rank has come to its end here
        return rc;
    if (int rc = gda_fabric_write(f, 0, before.data(), before.size()))
        return rc;
    const std::vector<gic_counter> to = counted(s);
    s->hidden.resize(to.size());
    for (size_t i = 0; i < to.size(); i++)
        s->hidden[i] += to[i].value - from[i].value;
    return meet(s); // nor before all have them back
}

template <class W> struct OnHandle {
    struct gic_session *s;
    const struct gic_run *run;

    template <gda_order O> int on() const {
        using H = gda_replay_handle<O>;
        H h{};
        gda_fill(s->g, &h);
        h.lanes = s->chosen.lanes;
        constexpr bool kernel = has_kernel<W, O>;
        if (int rc = learn<W, kernel>(s, run, h))
            return rc;
        auto prepare = [this](uint32_t agents, H &handle) {
            if (int rc = s->replay->replay(agents, &handle.plan))
                return rc;
            int rc = gda_begin(s->g, agents);
            gda_fill(s->g, &handle);
            handle.lanes = s->chosen.lanes;
            handle.choices.scope = s->replay->scope();
            return rc;
        };
        auto done = [this](uint32_t, H &, int status) {
            const int rc = gda_end(s->g, status);
            if (rc == 0)
                s->replay->done();
            return rc;
        };
        return gic::drive<W, kernel>(h, run, s->results, prepare, done, s->g->fabric->gpu.get(), s->g->stop);
    }
};
struct OnWorkload {
    struct gic_session *s;
    const struct gic_run *run;

    template <class W> int operator()() const {
        // Where posting is what is measured the defaults have types of their own, as on the floor; for the others a
        // branch per doorbell.
        const OnHandle<W> handle{s, run};
        if constexpr (posting<W>) {
            if (s->g->attr.order == gda_order::gpu_fence)
                return handle.template on<gda_order::gpu_fence>();
            if (s->g->attr.order == gda_order::sys_release)
                return handle.template on<gda_order::sys_release>();
        }
        return handle.template on<gda_order::runtime>();
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
        const std::vector<gic_counter> list = counted(s);
        for (size_t i = 0; i < list.size(); i++)
            s->counters.add(list[i].name, list[i].unit,
                            list[i].value - (i < s->hidden.size() ? s->hidden[i] : 0), list[i].exact);
        s->counters.publish(counters_p, count_p);
        return 0;
    });
}

int facts(struct gic_session *s, const struct gic_kv **facts_p, uint32_t *count_p) {
    return gic::guarded([&] {
        gda_facts(s->g, &s->facts);
        s->replay->facts(&s->facts);
        s->facts.publish(facts_p, count_p);
        return 0;
    });
}

const char *last_error() { return gic::error_text().c_str(); }

} // namespace

GIC_EXPORT const struct gic_backend gic_backend_v1 = {
    "replay",
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
