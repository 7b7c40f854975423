// The half of the backend that holds NCCL: one session is one NCCL job of all ranks. Loaded by ncclgin.cu.
//
// NCCL reads its environment once per process, and the harness gives every session of every rank a process of its own.
#include "backends/abi/gpu.h"
#include "backends/abi/ranks.h"
#include "backends/ncclgin/handle.cuh"
#include "backends/ncclgin/ncclgin.h"
#include "backends/ncclgin/net.h"
#include "backends/ncclgin/protocol.cuh"
#include "backends/ncclgin/signals.h"
#include "backends/ncclgin/watch.h"
#include "backends/ncclgin/words.h"

#include "workloads/alltoall/alltoall.cuh"
#include "workloads/caller/caller.cuh"
#include "workloads/conform/conform.cuh"
#include "workloads/goodput/goodput.cuh"
#include "workloads/moe/moe.cuh"
#include "workloads/op/op.cuh"
#include "workloads/rate/rate.cuh"

#include <algorithm>

#include <cuda_runtime_api.h>
#include <dlfcn.h>

namespace {

using ncclgin_backend::Type;
using Served = gic::Workloads<op_workload, rate_workload, goodput_workload, alltoall_workload, moe_workload,
                              conform_workload, caller_workload, protocol_workload>;

constexpr uint32_t signals = 16384;   // the window's first 128 KiB may be signal words
constexpr uint32_t max_agents = 4096; // with a counter or scratch of their own
constexpr size_t page = 4096;

} // namespace

struct gic_session {
    gic::Ranks ranks;
    const volatile uint32_t *stop;
    uint64_t timeout_ns;
    std::unique_ptr<gic::Gpu> gpu;
    Type type;
    bool soft, in_wqe, counter, withdraw;
    uint32_t comm_count, contexts_per_comm;

    const struct gic_ncclgin_net *net = nullptr; // over softnic
    ncclComm_t comms[ncclgin_comms] = {};
    ncclgin_shared shared{}; // windows, window and scratch: of the window there is
    bool dev_comms[ncclgin_comms] = {};
    bool broken = false;                           // a run failed: NCCL's device code goes on from no error
    bool unclean = false;                          // some call failed
    bool lost = false;                             // a kernel did not end
    std::unique_ptr<ncclgin_backend::Watch> watch; // over softnic, while a kernel runs
    void *memory = nullptr;
    bool on_host = false; // the window is host memory, which NCCL does not register: see describe_window()
    uint64_t window_bytes = 0, memory_bytes = 0;
    gic::Results results;
    gic::Facts facts;
    gic::Counters counters;
};

namespace {

int nccl_failed(ncclResult_t result, const char *call, ncclComm_t comm) {
    const char *last = ncclGetLastError(comm);
    return gic::fail(-EIO, "%s: %s%s%s", call, ncclGetErrorString(result), last && *last ? ": " : "",
                     last ? last : "");
}
#define NCCL(comm, call)                                                                                     \
    do {                                                                                                     \
        const ncclResult_t result_ = (call);                                                                 \
        if (result_ != ncclSuccess)                                                                          \
            return nccl_failed(result_, #call, comm);                                                        \
    } while (0)

int net_failed(const gic_session *s, int rc) { return rc ? gic::fail(rc, "%s", s->net->last_error()) : 0; }

std::string beside(const char *file) {
    Dl_info info;
    const std::string path = dladdr((const void *)&beside, &info) && info.dli_fname ? info.dli_fname : "";
    return path.substr(0, path.rfind('/') + 1) + file;
}

// NCCL loads the same file by its path. Never closed.
int load_net(const struct gic_ncclgin_net **net_p) {
    const std::string path = beside(GIC_NCCLGIN_NET_FILE);
    void *lib = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return gic::fail(-ENOTSUP, "NCCL's plugin for softnic does not load: %s", dlerror());
    auto *net = static_cast<const struct gic_ncclgin_net *>(dlsym(lib, GIC_NCCLGIN_NET_SYMBOL));
    if (!net || net->struct_size != sizeof *net)
        return gic::fail(-ENOTSUP, "%s is not of this build", path.c_str());
    *net_p = net;
    return 0;
}

int prepare_net(gic_session *s, const struct gic_open *open, uint32_t depth) {
    const struct gic_ncclgin_net *net = nullptr;
    if (int rc = s->ranks.agree(load_net(&net), "load NCCL's plugin for softnic"))
        return rc;
    const struct gic_ncclgin_attr attr = {sizeof attr, ncclgin_backend::type_name(s->type), depth};
    if (int rc = net->prepare(open, &attr))
        return gic::fail(rc, "%s", net->last_error());
    s->net = net;
    const struct gic_kv *facts;
    uint32_t count;
    if (int rc = net_failed(s, net->facts(&facts, &count)))
        return rc;
    gic::note_engine(s->gpu.get(), facts, count);
    const char *window = gic::kv_find(facts, count, "window");
    s->on_host = window && strcmp(window, "host") == 0;
    return 0;
}

void set_environment(const gic_session *s, const struct gic_open *open) {
    auto set = [](const char *name, const std::string &value) { setenv(name, value.c_str(), 1); };
    set("NCCL_GIN_NCONTEXTS", std::to_string(s->contexts_per_comm));
    set("NCCL_NVLS_ENABLE", "0"); // of no use here, and a multicast object may outlive its process
    // NCCL refuses two ranks of one host on one GPU; as two hosts they are fine, and one LSA team no longer.
    if (s->gpu->sharers() > 1)
        set("NCCL_HOSTID", std::string(open->job) + "-" + std::to_string(s->ranks.rank));
    if (s->soft)
        set("NCCL_NET_PLUGIN", beside(GIC_NCCLGIN_NET_FILE));
    const bool none = strcmp(open->nic, "none") == 0;
    if (s->soft || none)
        setenv("NCCL_SOCKET_IFNAME", "lo", 0); // both are of one host
    if (!s->soft && !none) {
        set("NCCL_IB_HCA", std::string("=") + open->nic);
        set("NCCL_GIN_TYPE", s->type == Type::PROXY ? "2" : "3");
    }
}

// All communicators beside each other, since each takes NCCL a while.
int make_comms(gic_session *s) {
    std::vector<ncclUniqueId> ids(s->comm_count), all(ids.size() * s->ranks.nranks);
    int rc = 0;
    for (size_t c = 0; c < ids.size() && rc == 0 && s->ranks.rank == 0; c++) {
        const ncclResult_t made = ncclGetUniqueId(&ids[c]);
        rc = made == ncclSuccess ? 0 : nccl_failed(made, "ncclGetUniqueId", nullptr);
    }
    if ((rc = s->ranks.agree(rc, "make unique ids")))
        return rc;
    if ((rc = s->ranks.gather(ids.data(), all.data(), ids.size() * sizeof ids[0], "the unique ids")))
        return rc;
    NCCL(nullptr, ncclGroupStart());
    ncclResult_t first = ncclSuccess;
    for (size_t c = 0; c < ids.size() && first == ncclSuccess; c++)
        first = ncclCommInitRank(&s->comms[c], (int)s->ranks.nranks, all[c], (int)s->ranks.rank);
    const ncclResult_t ended = ncclGroupEnd();
    if (first == ncclSuccess)
        first = ended;
    return first == ncclSuccess ? 0 : nccl_failed(first, "ncclCommInitRank", nullptr);
}

int make_dev_comm(gic_session *s, uint32_t c) {
    ncclDevCommRequirements needs = {};
    if (s->type != Type::LSA) {
        needs.ginForceEnable = true;
        needs.ginContextCount = (int)s->contexts_per_comm;
        needs.ginSignalCount = signals;
        needs.ginCounterCount = max_agents;
        needs.railGinBarrierCount = 1;
    }
    NCCL(s->comms[c], ncclDevCommCreate(s->comms[c], &needs, &s->shared.comms[c]));
    s->dev_comms[c] = true;
    return 0;
}

// What NCCL made must be what was asked for.
int check_comm(const gic_session *s, const ncclDevComm &d) {
    if (d.rank != (int)s->ranks.rank || d.nRanks != (int)s->ranks.nranks)
        return gic::fail(-EIO, "NCCL says rank %d of %d to rank %u of %u", d.rank, d.nRanks, s->ranks.rank,
                         s->ranks.nranks);
    if (s->type == Type::LSA) {
        if (d.lsaSize != d.nRanks)
            return gic::fail(-ENOTSUP, "path=lsa: %d of %d ranks are in this rank's LSA team%s", d.lsaSize,
                             d.nRanks,
                             s->gpu->sharers() > 1
                                 ? " (ranks that share a GPU are hosts of their own to NCCL): want a GPU for "
                                   "each rank"
                                 : "");
        return 0;
    }
    if (d.ginContextCount != s->contexts_per_comm)
        return gic::fail(-EIO, "NCCL made %u GIN contexts, %u were asked for", d.ginContextCount,
                         s->contexts_per_comm);
    const int want = s->type == Type::PROXY ? NCCL_NET_DEVICE_GIN_PROXY : NCCL_NET_DEVICE_GIN_GDAKI;
    for (uint32_t c = 0; c < d.ginContextCount; c++)
        if (d.ginTypes[c] != want)
            return gic::fail(-EIO, "path=%s, but GIN context %u is of NCCL's type %u, not %d",
                             ncclgin_backend::type_name(s->type), c, d.ginTypes[c], want);
    return 0;
}

int start(gic_session *s, const struct gic_open *open) {
    gic::Config c(ncclgin_backend::keys, ncclgin_backend::key_count, open);
    s->type = ncclgin_backend::type_of(c, open);
    s->soft = strcmp(open->nic, "soft") == 0;
    s->in_wqe = strcmp(c.text("inline"), "on") == 0;
    s->counter = strcmp(c.text("completion"), "counter") == 0;
    s->withdraw = strcmp(c.text("fault"), "withdraw") == 0;
    ncclgin_shared &h = s->shared;
    h.rank = s->ranks.rank;
    h.nranks = s->ranks.nranks;
    h.lanes = c.u32("lanes");
    h.contexts = s->type == Type::LSA ? 1 : c.u32("contexts");
    h.signals = s->type == Type::LSA ? 0 : signals;
    h.proxy = s->type == Type::PROXY;
    h.sync = strcmp(c.text("syncwarp"), "on") == 0;
    h.counted = s->counter;
    s->comm_count = (h.contexts + ncclgin_per_comm - 1) / ncclgin_per_comm;
    s->contexts_per_comm = std::min(h.contexts, ncclgin_per_comm);
    if (int rc = s->ranks.open_gpu(open->device, &s->gpu))
        return rc;
    set_environment(s, open);
    if (int rc = s->soft ? prepare_net(s, open, c.u32("depth")) : 0)
        return rc;
    if (int rc = s->ranks.agree(make_comms(s), "start NCCL"))
        return rc;
    for (uint32_t i = 0; i < s->comm_count; i++) {
        int rc = make_dev_comm(s, i);
        if (rc == 0)
            rc = check_comm(s, h.comms[i]);
        if ((rc = s->ranks.agree(rc, "start NCCL")))
            return rc;
    }
    if (s->counter) {
        void *issued = nullptr;
        if (int rc = s->gpu->alloc(max_agents * sizeof(uint64_t), &issued))
            return rc;
        h.issued = static_cast<uint64_t *>(issued);
    }
    return 0;
}

int drop_window(gic_session *s) {
    for (uint32_t c = 0; c < s->comm_count; c++)
        if (ncclWindow_t w = s->shared.windows[c]) {
            s->shared.windows[c] = nullptr;
            if (s->on_host) {
                if (int rc = s->gpu->free(w))
                    return rc;
            } else {
                NCCL(s->comms[c], ncclCommWindowDeregister(s->comms[c], w));
            }
        }
    if (void *memory = s->memory) {
        s->memory = nullptr;
        s->shared.window = nullptr;
        if (s->on_host)
            if (int rc = net_failed(s, s->net->window_deregister(memory)))
                return rc;
        if (s->net)
            return net_failed(s, s->net->window_free(memory));
        NCCL(s->comms[0], ncclMemFree(memory));
    }
    return 0;
}

// Its steps end when all ranks come to them. Where anything has failed NCCL is told to give up, which waits for nobody;
// unless a kernel is still there, for which it would wait.
void end_nccl(gic_session *s) {
    std::vector<uint8_t> all(s->ranks.nranks);
    const uint8_t mine = s->unclean;
    bool clean = s->ranks.gather(&mine, all.data(), 1, "the end") == 0;
    for (uint8_t unclean : all)
        clean = clean && !unclean;
    if (clean && drop_window(s) != 0)
        clean = false;
    for (uint32_t c = 0; c < ncclgin_comms && !s->lost; c++) {
        if (!s->comms[c])
            continue;
        if (clean && s->dev_comms[c])
            ncclDevCommDestroy(s->comms[c], &s->shared.comms[c]);
        if (clean)
            ncclCommDestroy(s->comms[c]);
        else
            ncclCommAbort(s->comms[c]);
    }
}

void close_session(struct gic_session *s) {
    if (!s)
        return;
    s->watch.reset();
    end_nccl(s);
    if (s->net)
        s->net->release();
    delete s;
}

int open_session(const struct gic_open *open, struct gic_session **session_p) {
    return gic::guarded([&]() -> int {
        auto s = std::make_unique<gic_session>();
        s->ranks = {(uint32_t)open->rank, (uint32_t)open->nranks, open->comm};
        s->stop = open->stop;
        s->timeout_ns = open->timeout_ns;
        if (int rc = start(s.get(), open)) {
            const std::string said = gic::error_text();
            s->unclean = true;
            close_session(s.release());
            return gic::fail(rc, "%s", said.c_str());
        }
        *session_p = s.release();
        return 0;
    });
}

int alloc_window(gic_session *s, uint64_t bytes) {
    if (s->net)
        return net_failed(s, s->net->window_alloc(bytes, &s->memory));
    NCCL(s->comms[0], ncclMemAlloc(&s->memory, bytes));
    return 0;
}

// NCCL 2.28.9 registers no host memory (cuMem on a NUMA node: "invalid argument"), which is what engine=cpu reaches. Its
// device code takes two things from a window, the handles that the plugin has given for the memory and an offset, so
// windows of these two serve it.
int describe_window(gic_session *s) {
    void *handles[ncclgin_comms * ncclgin_per_comm] = {};
    const uint32_t count = s->comm_count * s->contexts_per_comm;
    if (int rc = net_failed(s, s->net->window_register(s->memory, s->memory_bytes, handles, count)))
        return rc;
    for (uint32_t c = 0; c < s->comm_count; c++) {
        ncclWindow_vidmem w = {};
        for (uint32_t i = 0; i < s->contexts_per_comm; i++)
            w.ginWins[i] = handles[c * s->contexts_per_comm + i];
        void *on_gpu = nullptr;
        if (int rc = s->gpu->alloc(sizeof w, &on_gpu))
            return rc;
        s->shared.windows[c] = static_cast<ncclWindow_t>(on_gpu);
        if (int rc = s->gpu->upload(on_gpu, &w, sizeof w))
            return rc;
    }
    return 0;
}

int register_window(gic_session *s) {
    if (s->on_host)
        return describe_window(s);
    for (uint32_t c = 0; c < s->comm_count; c++)
        NCCL(s->comms[c], ncclCommWindowRegister(s->comms[c], s->memory, s->memory_bytes,
                                                 &s->shared.windows[c], NCCL_WIN_COLL_SYMMETRIC));
    for (uint32_t c = 0; c < s->comm_count; c++)
        if (!s->shared.windows[c])
            return gic::fail(
                -ENOTSUP,
                "ncclCommWindowRegister gives no window: NCCL's symmetric memory is not supported here");
    return 0;
}

// Bytes, words, counters: all zero.
int make_window(gic_session *s, uint64_t bytes) {
    s->shared.window = static_cast<uint8_t *>(s->memory);
    s->window_bytes = bytes;
    const std::vector<uint8_t> zeros(s->memory_bytes);
    if (s->on_host)
        memset(s->memory, 0, s->memory_bytes);
    else if (int rc = s->gpu->upload(s->memory, zeros.data(), s->memory_bytes))
        return rc;
    if (s->type == Type::LSA)
        return 0;
    if (int rc = ncclgin_clear_signals(*s->gpu, s->shared, 0, s->shared.signals))
        return rc;
    if (!s->counter)
        return 0;
    if (int rc = s->gpu->upload(s->shared.issued, zeros.data(), max_agents * sizeof(uint64_t)))
        return rc;
    return ncclgin_clear_counters(*s->gpu, s->shared, max_agents);
}

int window(struct gic_session *s, uint64_t bytes) {
    return gic::guarded([&]() -> int {
        if (bytes == 0)
            return gic::fail(-EINVAL, "window of 0 bytes");
        s->shared.scratch = (bytes + page - 1) / page * page;
        const uint64_t scratch = s->shared.proxy ? 8ull * ncclgin_scratch * max_agents : 0;
        s->memory_bytes = std::max<uint64_t>(s->shared.scratch + scratch, max_agents * sizeof(uint64_t));
        int rc = s->ranks.agree(drop_window(s), "drop the window");
        if (rc == 0)
            rc = s->ranks.agree(alloc_window(s, s->memory_bytes), "allocate the window");
        if (rc == 0)
            rc = s->ranks.agree(register_window(s), "register the window");
        if (rc == 0)
            rc = s->ranks.agree(make_window(s, bytes), "make the window");
        s->unclean |= rc != 0;
        return rc;
    });
}

int check_range(const gic_session *s, uint64_t offset, size_t bytes) {
    if (!s->memory)
        return gic::fail(-EINVAL, "no window yet");
    if (offset > s->window_bytes || bytes > s->window_bytes - offset)
        return gic::fail(-ERANGE, "%zu bytes at offset %llu: the window has %llu", bytes,
                         (unsigned long long)offset, (unsigned long long)s->window_bytes);
    return 0;
}

// A word that is written is one that no signal has come to.
int write(struct gic_session *s, uint64_t offset, const void *src, size_t bytes) {
    return gic::guarded([&]() -> int {
        if (int rc = check_range(s, offset, bytes))
            return rc;
        if (bytes == 0)
            return 0;
        const auto words = ncclgin_signals::within(offset, bytes, s->shared.signals);
        if (int rc = ncclgin_clear_signals(*s->gpu, s->shared, words.first, words.count))
            return rc;
        if (!s->on_host)
            return s->gpu->upload(s->shared.window + offset, src, bytes);
        memcpy(s->shared.window + offset, src, bytes);
        return 0;
    });
}

// A word that signals have come to reads as their sum, whatever the window holds at its place.
int read(struct gic_session *s, uint64_t offset, void *dst, size_t bytes) {
    return gic::guarded([&]() -> int {
        if (int rc = check_range(s, offset, bytes))
            return rc;
        if (bytes == 0)
            return 0;
        if (s->on_host)
            memcpy(dst, s->shared.window + offset, bytes);
        else if (int rc = s->gpu->download(dst, s->shared.window + offset, bytes))
            return rc;
        const auto words = ncclgin_signals::touched(offset, bytes, s->shared.signals);
        std::vector<uint64_t> sums(words.count);
        if (int rc = ncclgin_read_signals(*s->gpu, s->shared, words.first, words.count, sums.data()))
            return rc;
        ncclgin_signals::show(words, sums.data(), offset, static_cast<uint8_t *>(dst), bytes);
        return 0;
    });
}

int before_run(gic_session *s, uint32_t agents) {
    if (!s->memory)
        return gic::fail(-EINVAL, "no window yet");
    if (s->broken)
        return gic::fail(
            -EIO, "an earlier run of this session failed, and NCCL's device code goes on from no error");
    if ((s->counter || s->shared.proxy) && agents > max_agents)
        return gic::fail(-ENOTSUP, "%u agents: at most %u have a counter or scratch", agents, max_agents);
    if (!s->net)
        return 0;
    if (s->withdraw) {
        s->withdraw = false;
        if (int rc = s->ranks.agree(net_failed(s, s->net->withdraw()), "withdraw the windows"))
            return rc;
    }
    if (int rc = net_failed(s, s->net->begin()))
        return rc;
    // A kernel may set it, too: gic::KernelReport.
    s->watch = std::make_unique<ncclgin_backend::Watch>(s->net, const_cast<uint32_t *>(s->gpu->stop_word()));
    return 0;
}

// NCCL's device code takes no notice of an error CQE: the NIC knows of it.
int after_run(gic_session *s, int status) {
    s->watch.reset();
    s->broken |= status != 0 && status != -ENOTSUP; // that one was not launched
    s->lost |= status != 0 && cudaStreamQuery((cudaStream_t)s->gpu->stream()) == cudaErrorNotReady;
    if (!s->net)
        return status;
    const std::string said = gic::error_text();
    int rc = s->net->end(status == 0);
    if (s->net->error() != 0 || rc != 0) {
        s->broken = true;
        return gic::fail(-EIO, "%s", s->net->last_error());
    }
    return status ? gic::fail(status, "%s", said.c_str()) : 0;
}

template <class W> struct OnCode {
    struct gic_session *s;
    const struct gic_run *run;

    template <ncclgin_code C, bool MANY> int go() const {
        ncclgin_handle<C, MANY> h;
        static_cast<ncclgin_shared &>(h) = s->shared;
        h.env = {s->gpu->stop_word(), s->timeout_ns};
        auto prepare = [this](uint32_t agents, ncclgin_handle<C, MANY> &) { return before_run(s, agents); };
        auto done = [this](uint32_t, ncclgin_handle<C, MANY> &, int status) { return after_run(s, status); };
        return gic::drive<W>(h, run, s->results, prepare, done, s->gpu.get(), s->stop);
    }
    template <ncclgin_code C> int lanes() const {
        return s->shared.lanes > 1 ? go<C, true>() : go<C, false>();
    }

    int operator()() const {
        constexpr bool lone = std::is_same_v<W, caller_workload> || std::is_same_v<W, protocol_workload>;
        constexpr bool values = std::is_same_v<W, op_workload> || std::is_same_v<W, rate_workload> ||
                                std::is_same_v<W, goodput_workload> || std::is_same_v<W, conform_workload>;
        if (!values && s->in_wqe)
            return gic::fail(-ENOTSUP, "%s is not built for inline=on", W::name);
        if constexpr (lone) {
            if (s->type == Type::LSA || s->shared.lanes > 1)
                return gic::fail(-ENOTSUP, "%s is built for path=gdaki or proxy and lanes=1 alone", W::name);
            return go<ncclgin_code::GIN, false>();
        } else {
            if (s->type == Type::LSA)
                return lanes<ncclgin_code::LSA>();
            if constexpr (values)
                if (s->in_wqe)
                    return lanes<ncclgin_code::INLINE>();
            return lanes<ncclgin_code::GIN>();
        }
    }
};
struct OnWorkload {
    struct gic_session *s;
    const struct gic_run *run;
    template <class W> int operator()() const { return OnCode<W>{s, run}(); }
};

int run(struct gic_session *s, const struct gic_run *run, struct gic_result *result_p) {
    return gic::guarded([&] {
        s->results.clear();
        int rc = Served::dispatch(run->workload, OnWorkload{s, run});
        if (rc == 0)
            s->results.publish(result_p);
        s->unclean |= rc != 0 && rc != -ENOTSUP;
        return rc;
    });
}

// Those of the NIC. The atomics of counters, one behind each WAIT, are apart from those that the operations make.
int counters(struct gic_session *s, const struct gic_counter **counters_p, uint32_t *count_p) {
    return gic::guarded([&]() -> int {
        s->counters.clear();
        if (s->net) {
            const struct gic_counter *list;
            uint32_t n;
            if (int rc = net_failed(s, s->net->counters(&list, &n)))
                return rc;
            uint64_t waits = 0;
            for (uint32_t i = 0; i < n; i++)
                if (strcmp(list[i].name, "wqe_wait") == 0)
                    waits = list[i].value;
            for (uint32_t i = 0; i < n; i++) {
                const bool atomics = strcmp(list[i].name, "wqe_atomic") == 0;
                s->counters.add(list[i].name, list[i].unit, list[i].value - (atomics ? waits : 0),
                                list[i].exact);
            }
        }
        s->counters.publish(counters_p, count_p);
        return 0;
    });
}

int facts(struct gic_session *s, const struct gic_kv **facts_p, uint32_t *count_p) {
    return gic::guarded([&]() -> int {
        gic::Facts &f = s->facts;
        if (s->net) {
            const struct gic_kv *list;
            uint32_t n;
            if (int rc = net_failed(s, s->net->facts(&list, &n)))
                return rc;
            for (uint32_t i = 0; i < n; i++)
                f.set(list[i].key, std::string(list[i].value));
        }
        const ncclDevComm &d = s->shared.comms[0];
        f.set("path", std::string(ncclgin_backend::type_name(s->type))); // as read back, or open() had failed
        f.set("nccl.headers", std::to_string(NCCL_MAJOR) + "." + std::to_string(NCCL_MINOR) + "." +
                                  std::to_string(NCCL_PATCH));
        f.set("nccl.comms", s->comm_count);
        f.set("nccl.window", std::string(s->on_host ? "handles" : "registered"));
        f.set("nccl.lsa_size", (uint64_t)d.lsaSize);
        if (s->type != Type::LSA) {
            f.set("nccl.contexts", (uint64_t)d.ginContextCount * s->comm_count);
            f.set("nccl.gin_type", (uint64_t)d.ginTypes[0]);
        }
        f.set("nccl.hosts",
              std::string(s->gpu->sharers() > 1 ? "one per rank (NCCL_HOSTID)" : "as they are"));
        gic::add_gpu_facts(&f, *s->gpu);
        f.publish(facts_p, count_p);
        return 0;
    });
}

int no_probe(const struct gic_open *) { return 0; } // libncclgin.so has done it

const char *last_error() { return gic::error_text().c_str(); }

} // namespace

GIC_EXPORT const int gic_ncclgin_headers_v1 = NCCL_VERSION_CODE;

GIC_EXPORT const struct gic_backend gic_ncclgin_session_v1 = {
    "ncclgin",
    "1",
    sizeof(struct gic_backend),
    GIC_ABI_VERSION,
    0,
    nullptr,
    0,
    {},
    no_probe,
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
