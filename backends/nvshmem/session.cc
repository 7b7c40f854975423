// The half of the backend that holds NVSHMEM: one session is one NVSHMEM job of all ranks. Loaded by nvshmem.cu.
//
// NVSHMEM gives up by exit() when its init fails; the harness runs every rank in a process of its own and reports the
// end of it, and what NVSHMEM wrote to stderr before.
#include "backends/abi/ranks.h"
#include "backends/nvshmem/created.h"
#include "backends/nvshmem/handle.cuh"
#include "backends/nvshmem/nvshmem.h"
#include "backends/nvshmem/protocol.cuh"
#include "backends/nvshmem/transport.h"

#include "workloads/alltoall/alltoall.cuh"
#include "workloads/caller/caller.cuh"
#include "workloads/conform/conform.cuh"
#include "workloads/goodput/goodput.cuh"
#include "workloads/moe/moe.cuh"
#include "workloads/op/op.cuh"
#include "workloads/rate/rate.cuh"

#include <nvshmem_host.h>

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace {

using Served = gic::Workloads<op_workload, rate_workload, goodput_workload, alltoall_workload, moe_workload,
                              caller_workload, conform_workload, protocol_workload>;
using nvshmem_backend::Path;

enum class Heap { any, one, pieces }; // vmm=auto, off, on

} // namespace

struct gic_session {
    uint32_t rank, nranks;
    gic::Ranks ranks;
    const volatile uint32_t *stop;
    uint64_t timeout_ns;
    std::unique_ptr<gic::Gpu> gpu;
    Path path;
    bool withdraw, fenced_signals, own_queue, by_lanes, host_rings, host_heap;
    Heap heap_made;
    std::string nic;
    nvshmem_level level;
    uint32_t lanes;
    uint64_t heap_bytes;

    const struct gic_nvshmem_transport *transport = nullptr; // prepared
    bool initialised = false;                                // NVSHMEM is
    bool broken = false;                                     // a run failed: NVSHMEM goes on from no error
    bool unclean = false;                                    // some call failed
    int heap_lock = -1;
    nvshmem_created created{};
    uint8_t *window = nullptr;
    uint64_t window_bytes = 0;
    gic::Results results;
    gic::Facts facts;
};

namespace {

void set_variable(const char *name, const std::string &value) { setenv(name, value.c_str(), 1); }

void set_environment(const gic_session *s, const gic::Config &c) {
    const bool ibgda = s->path == Path::ibgda;
    set_variable("NVSHMEM_SYMMETRIC_SIZE", std::to_string(s->heap_bytes));
    // A second transport would add its round trip to every wait.
    set_variable("NVSHMEM_REMOTE_TRANSPORT", s->path == Path::ibrc ? "ibrc" : "none");
    set_variable("NVSHMEM_DISABLE_NVLS", "1");
    set_variable("NVSHMEM_DISABLE_P2P", s->path == Path::p2p ? "0" : "1");
    set_variable("NVSHMEM_IB_ENABLE_IBGDA", ibgda ? "1" : "0");
    if (s->heap_made != Heap::any)
        set_variable("NVSHMEM_DISABLE_CUDA_VMM", s->heap_made == Heap::pieces ? "0" : "1");
    if (s->path == Path::p2p || s->nic == "soft") {
        set_variable("NVSHMEM_DISABLE_GDRCOPY", "1");
        setenv("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "lo", 0); // both are of one host
    } else {
        set_variable("NVSHMEM_HCA_LIST", s->nic);
    }
    if (s->path == Path::p2p)
        return;
    if (s->host_heap)
        set_variable("NVSHMEM_HEAP_KIND", "SYSMEM");
    set_variable("NVSHMEM_QP_DEPTH", c.text("depth"));
    if (!ibgda)
        return;
    set_variable("NVSHMEM_IBGDA_NUM_RC_PER_PE", c.text("rc"));
    set_variable("NVSHMEM_IBGDA_RC_MAP_BY", c.text("map"));
    set_variable("NVSHMEM_IBGDA_NUM_DCI", c.text("dci"));
    set_variable("NVSHMEM_IBGDA_NUM_SHARED_DCI", c.text("shared_dci"));
    set_variable("NVSHMEM_IBGDA_NUM_DCT", c.text("dct"));
    set_variable("NVSHMEM_IBGDA_DCI_MAP_BY", c.text("dci_map"));
    set_variable("NVSHMEM_IBGDA_NUM_REQUESTS_IN_BATCH", c.text("batch"));
    set_variable("NVSHMEM_IBGDA_NIC_HANDLER", s->host_rings ? "cpu_host_memory" : "gpu");
}

// NVSHMEM gives the shared memory of every job on a host this one name, opens what is there, and leaves it behind.
constexpr const char *heap_name = "/sysmem_symm_heap";

// Rank 0: no other job of ours on this host has the name meanwhile, and nothing is left of one that ended badly. The
// lock is an abstract socket: it goes with the process, whatever becomes of it.
int lock_heap(gic_session *s) {
    struct sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    strcpy(name.sun_path + 1, "gic-nvshmem-sysmem-heap");
    s->heap_lock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (s->heap_lock < 0)
        return gic::fail(-errno, "make a socket: %s", strerror(errno));
    const socklen_t length =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name.sun_path + 1));
    if (bind(s->heap_lock, (const struct sockaddr *)&name, length) != 0)
        return gic::fail(-EBUSY,
                         "another run on this host uses NVSHMEM's one SYSMEM heap (%s): wait for its end",
                         heap_name + 1);
    shm_unlink(heap_name);
    return 0;
}

std::string beside(const char *file) {
    Dl_info info;
    const std::string path = dladdr((const void *)&beside, &info) && info.dli_fname ? info.dli_fname : "";
    return path.substr(0, path.rfind('/') + 1) + file;
}

// Its SONAME is that of the vendor's file: NVSHMEM's own dlopen then finds this one. Never closed.
int load_transport(Path kind, const struct gic_nvshmem_transport **transport_p) {
    const std::string path =
        beside(kind == Path::ibrc ? GIC_NVSHMEM_TRANSPORT_IBRC : GIC_NVSHMEM_TRANSPORT_IBGDA);
    void *lib = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return gic::fail(-ENOTSUP, "the transport does not load: %s", dlerror());
    auto *t = static_cast<const struct gic_nvshmem_transport *>(dlsym(lib, GIC_NVSHMEM_TRANSPORT_SYMBOL));
    if (!t || t->struct_size != sizeof *t)
        return gic::fail(-ENOTSUP, "%s is not of this build", path.c_str());
    *transport_p = t;
    return 0;
}

int prepare_transport(gic_session *s, const struct gic_open *open) {
    const struct gic_nvshmem_transport *t = nullptr;
    if (int rc = s->ranks.agree(load_transport(s->path, &t), "load the transport"))
        return rc;
    if (int rc = t->prepare(open))
        return gic::fail(rc, "%s", t->last_error());
    s->transport = t;
    const struct gic_kv *facts;
    uint32_t count;
    if (int rc = t->facts(&facts, &count))
        return gic::fail(rc, "%s", t->last_error());
    gic::note_engine(s->gpu.get(), facts, count);
    t->on_error(const_cast<volatile uint32_t *>(s->gpu->stop_word()));
    return s->ranks.agree(s->rank == 0 && s->host_heap ? lock_heap(s) : 0, "take the symmetric heap");
}

int init_nvshmem(gic_session *s) {
    nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
    int rc = s->rank == 0 ? nvshmemx_get_uniqueid(&id) : 0;
    if ((rc = s->ranks.agree(rc ? gic::fail(-EIO, "nvshmemx_get_uniqueid answers %d", rc) : 0,
                             "make a unique id")))
        return rc;
    // NVSHMEM keeps the pointer.
    static nvshmemx_uniqueid_t used;
    std::vector<nvshmemx_uniqueid_t> all(s->nranks);
    if ((rc = s->ranks.gather(&id, all.data(), sizeof id, "the unique id")))
        return rc;
    used = all[0];
    nvshmemx_init_attr_t attr = NVSHMEMX_INIT_ATTR_INITIALIZER;
    if ((rc = nvshmemx_set_attr_uniqueid_args((int)s->rank, (int)s->nranks, &used, &attr)))
        return gic::fail(-EIO, "nvshmemx_set_attr_uniqueid_args answers %d", rc);
    if ((rc = nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attr)))
        return gic::fail(-EIO, "nvshmemx_init_attr answers %d", rc);
    s->initialised = true;
    if (nvshmem_my_pe() != (int)s->rank || nvshmem_n_pes() != (int)s->nranks)
        return gic::fail(-EIO, "NVSHMEM says PE %d of %d to rank %u of %u", nvshmem_my_pe(), nvshmem_n_pes(),
                         s->rank, s->nranks);
    return 0;
}

void finalize_nvshmem(gic_session *s) {
    if (!s->initialised)
        return;
    // Its barrier ends when all ranks come to it, and it goes over the NIC. Where anything has failed the process ends
    // soon, and the job with it; which ranks an exchange still reaches then, nobody knows.
    std::vector<uint8_t> all(s->nranks);
    const uint8_t mine = s->unclean;
    if (s->ranks.gather(&mine, all.data(), 1, "the end") != 0)
        return;
    for (uint8_t unclean : all)
        if (unclean)
            return;
    if (s->window)
        nvshmem_free(s->window);
    nvshmem_finalize();
}

void close_session(struct gic_session *s) {
    if (!s)
        return;
    finalize_nvshmem(s);
    if (s->transport) {
        s->transport->on_error(nullptr);
        s->transport->release();
    }
    if (s->heap_lock >= 0) {
        shm_unlink(heap_name);
        close(s->heap_lock);
    }
    delete s;
}

int start(gic_session *s, const struct gic_open *open) {
    gic::Config c(nvshmem_backend::keys, nvshmem_backend::key_count, open);
    s->path = nvshmem_backend::path_of(c, open);
    s->nic = open->nic;
    s->host_rings = c.choice("handler") == 1;
    s->host_heap = nvshmem_backend::heap_in_host(open);
    s->heap_made = (Heap)c.choice("vmm");
    if (s->heap_made == Heap::any && s->nic == "soft" && !s->host_heap)
        s->heap_made = Heap::one;
    s->withdraw = strcmp(c.text("fault"), "withdraw") == 0;
    s->fenced_signals = strcmp(c.text("signals"), "fenced") == 0;
    s->own_queue = strcmp(c.text("completion"), "queue") == 0;
    s->by_lanes = strcmp(c.text("quiet"), "warp") == 0;
    s->level = (nvshmem_level)c.choice("level");
    static const uint32_t lanes[] = {1, 32, 128};
    s->lanes = lanes[c.choice("scope")];
    s->heap_bytes = (uint64_t)c.u32("heap") << 20;
    set_environment(s, c);
    if (int rc = s->ranks.open_gpu(open->device, &s->gpu))
        return rc;
    if (int rc = nvshmem_backend::soft(open) ? prepare_transport(s, open) : 0)
        return rc;
    int rc = init_nvshmem(s);
    if (rc == 0)
        rc = nvshmem_read_created(s->path == Path::ibgda, (s->rank + 1) % s->nranks, &s->created);
    if (rc == 0 && s->heap_made != Heap::any && s->created.heap_in_pieces != (s->heap_made == Heap::pieces))
        rc = gic::fail(-ENOTSUP, "vmm=%s, but NVSHMEM made its heap %s", c.text("vmm"),
                       s->created.heap_in_pieces ? "of pieces"
                                                 : "in one: the device or driver lacks what pieces need");
    if ((rc = s->ranks.agree(rc, "start NVSHMEM")))
        return rc;
    if (s->heap_lock >= 0)
        shm_unlink(heap_name); // everybody has it mapped
    return 0;
}

int open_session(const struct gic_open *open, struct gic_session **session_p) {
    return gic::guarded([&]() -> int {
        auto s = std::make_unique<gic_session>();
        s->rank = (uint32_t)open->rank;
        s->nranks = (uint32_t)open->nranks;
        s->ranks = {s->rank, s->nranks, open->comm};
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

// The bytes must go where the configuration says, on every pair.
int check_path(const gic_session *s) {
    std::vector<bool> mapped(s->nranks);
    for (uint32_t pe = 0; pe < s->nranks; pe++)
        mapped[pe] = nvshmem_ptr(s->window, (int)pe) != nullptr;
    return nvshmem_backend::check_path(s->path, s->rank, mapped);
}

int window(struct gic_session *s, uint64_t bytes) {
    return gic::guarded([&]() -> int {
        if (bytes == 0)
            return gic::fail(-EINVAL, "window of 0 bytes");
        // The same on every rank, so all refuse. NVSHMEM takes a little of the heap for itself.
        if (bytes > s->heap_bytes && !s->created.heap_in_pieces)
            return gic::fail(-ENOTSUP, "a window of %llu bytes does not fit heap=%llu MiB",
                             (unsigned long long)bytes, (unsigned long long)(s->heap_bytes >> 20));
        if (s->window)
            nvshmem_free(s->window);
        s->window = static_cast<uint8_t *>(nvshmem_malloc(bytes));
        s->window_bytes = bytes;
        if (!s->window)
            return gic::fail(-ENOMEM, "nvshmem_malloc(%llu) answers NULL with heap=%llu MiB",
                             (unsigned long long)bytes, (unsigned long long)(s->heap_bytes >> 20));
        int rc = 0;
        if (s->created.heap_in_host) {
            memset(s->window, 0, bytes);
        } else {
            const std::vector<uint8_t> zeros(bytes);
            rc = s->gpu->upload(s->window, zeros.data(), bytes);
        }
        rc = s->ranks.agree(rc ? rc : check_path(s), "make the window");
        s->unclean |= rc != 0;
        return rc;
    });
}

int check_range(const gic_session *s, uint64_t offset, size_t bytes) {
    if (!s->window)
        return gic::fail(-EINVAL, "no window yet");
    if (offset > s->window_bytes || bytes > s->window_bytes - offset)
        return gic::fail(-ERANGE, "%zu bytes at offset %llu: the window has %llu", bytes,
                         (unsigned long long)offset, (unsigned long long)s->window_bytes);
    return 0;
}

int write(struct gic_session *s, uint64_t offset, const void *src, size_t bytes) {
    if (int rc = check_range(s, offset, bytes))
        return rc;
    if (!s->created.heap_in_host)
        return bytes ? s->gpu->upload(s->window + offset, src, bytes) : 0;
    memcpy(s->window + offset, src, bytes);
    return 0;
}

int read(struct gic_session *s, uint64_t offset, void *dst, size_t bytes) {
    if (int rc = check_range(s, offset, bytes))
        return rc;
    if (!s->created.heap_in_host)
        return bytes ? s->gpu->download(dst, s->window + offset, bytes) : 0;
    memcpy(dst, s->window + offset, bytes);
    return 0;
}

int before_run(gic_session *s) {
    if (!s->window)
        return gic::fail(-EINVAL, "no window yet");
    if (s->broken)
        return gic::fail(-EIO, "an earlier run of this session failed, and NVSHMEM goes on from no error");
    if (s->withdraw) {
        s->withdraw = false;
        int rc = s->transport->withdraw_heap();
        if ((rc = s->ranks.agree(rc ? gic::fail(rc, "%s", s->transport->last_error()) : 0,
                                 "withdraw the heap")))
            return rc;
    }
    const int rc = s->transport ? s->transport->begin() : 0;
    return rc ? gic::fail(rc, "%s", s->transport->last_error()) : 0;
}

// NVSHMEM's device code ends the kernel, or goes on, after an error CQE: the NIC knows what it was.
int after_run(gic_session *s, int status) {
    const std::string said = gic::error_text();
    int ended = 0;
    if (s->transport) {
        const int error = s->transport->error();
        const std::string cause = error ? s->transport->last_error() : "";
        if ((ended = s->transport->end(status == 0)) != 0)
            ended = gic::fail(ended, "%s", s->transport->last_error());
        if (error)
            ended = gic::fail(-EIO, "%s", cause.c_str());
    }
    s->broken |= status != 0 || ended != 0;
    if (ended)
        return ended;
    return status ? gic::fail(status, "%s", said.c_str()) : 0;
}

template <class W> struct OnLevel {
    struct gic_session *s;
    const struct gic_run *run;

    template <nvshmem_level L, uint32_t LANES> int go() const {
        nvshmem_handle<L, LANES> h{};
        h.rank = s->rank;
        h.nranks = s->nranks;
        h.window = s->window;
        h.env = {s->gpu->stop_word(), s->timeout_ns};
        h.fenced_signals = s->fenced_signals;
        h.own_queue = s->own_queue;
        h.by_lanes = s->by_lanes;
        h.mapped = s->path == Path::p2p;
        h.lanes = LANES;
        auto prepare = [this](uint32_t, nvshmem_handle<L, LANES> &) { return before_run(s); };
        auto done = [this](uint32_t, nvshmem_handle<L, LANES> &, int status) { return after_run(s, status); };
        return gic::drive<W>(h, run, s->results, prepare, done, s->gpu.get(), s->stop);
    }
    // What nvshmem_cuda.cu has: the library's code is compiled into the kernels that time it.
    template <nvshmem_level L> static constexpr bool built() {
        constexpr bool inlined = L == nvshmem_level::INLINED;
        return std::is_same_v<W, op_workload> || std::is_same_v<W, rate_workload> ||
               std::is_same_v<W, goodput_workload> || std::is_same_v<W, conform_workload> ||
               (inlined && std::is_same_v<W, caller_workload>);
    }
    template <nvshmem_level L> int go_if_built() const {
        if constexpr (built<L>())
            return go<L, 1>();
        else
            return gic::fail(-ENOTSUP, "%s is not built for this level: want level=public", W::name);
    }
    int operator()() const {
        if (s->level == nvshmem_level::INLINED)
            return go_if_built<nvshmem_level::INLINED>();
        if (s->level == nvshmem_level::INTERNAL)
            return go_if_built<nvshmem_level::INTERNAL>();
        if (s->lanes == 1)
            return go<nvshmem_level::PUBLIC, 1>();
        if (s->lanes == 32)
            return go<nvshmem_level::PUBLIC, 32>();
        if constexpr (std::is_same_v<W, caller_workload>)
            return gic::fail(-ENOTSUP, "caller: one sender in a block: want scope=thread or warp");
        else
            return go<nvshmem_level::PUBLIC, 128>();
    }
};
struct OnWorkload {
    struct gic_session *s;
    const struct gic_run *run;
    template <class W> int operator()() const { return OnLevel<W>{s, run}(); }
};

int run(struct gic_session *s, const struct gic_run *run, struct gic_result *result_p) {
    return gic::guarded([&] {
        s->results.clear();
        int rc = Served::dispatch(run->workload, OnWorkload{s, run});
        if (rc == 0)
            s->results.publish(result_p);
        s->unclean |= rc != 0;
        return rc;
    });
}

int counters(struct gic_session *s, const struct gic_counter **counters_p, uint32_t *count_p) {
    *counters_p = nullptr;
    *count_p = 0;
    if (!s->transport)
        return 0; // no NIC
    int rc = s->transport->counters(counters_p, count_p);
    return rc ? gic::fail(rc, "%s", s->transport->last_error()) : 0;
}

int facts(struct gic_session *s, const struct gic_kv **facts_p, uint32_t *count_p) {
    return gic::guarded([&]() -> int {
        gic::Facts &f = s->facts;
        const nvshmem_created &c = s->created;
        if (s->transport) {
            const struct gic_kv *list;
            uint32_t n;
            if (int rc = s->transport->facts(&list, &n))
                return gic::fail(rc, "%s", s->transport->last_error());
            for (uint32_t i = 0; i < n; i++)
                f.set(list[i].key, std::string(list[i].value));
        }
        if (s->path == Path::ibgda) {
            f.set("rc_per_pe", c.rc_per_pe);
            f.set("rc_map", std::string(c.map));
            f.set("batch", c.batch);
            f.set("dcis", c.dcis);
            if (c.rc_per_pe == 0) {
                f.set("dcis_shared", c.shared_dcis);
                f.set("dci_map", std::string(c.dci_map));
                f.set("dcts_per_pe", c.dcts);
            }
            f.set("sq_depth", c.depth);
            f.set("queues", std::string(c.queues_in_gpu ? "gpu" : "host"));
            f.set("handler", std::string(c.host_rings ? "host" : "gpu"));
        }
        f.set("path", std::string(nvshmem_backend::path_name(s->path)));
        f.set("transport", std::string(s->transport ? "softnic" : "library"));
        f.set("peer_pointer",
              std::string(s->path == Path::p2p ? "mapped" : "null")); // or window() had failed
        f.set("heap", std::string(c.heap_in_host ? "host" : "gpu"));
        if (!c.heap_in_host)
            f.set("vmm", std::string(c.heap_in_pieces ? "on" : "off"));
        f.set("connectivity", c.connectivity);
        gic::add_gpu_facts(&f, *s->gpu);
        f.publish(facts_p, count_p);
        return 0;
    });
}

int no_probe(const struct gic_open *) { return 0; } // libnvshmem.so has done it

const char *last_error() { return gic::error_text().c_str(); }

} // namespace

GIC_EXPORT const struct gic_backend gic_nvshmem_session_v1 = {
    "nvshmem",
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
