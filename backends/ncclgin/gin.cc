// NCCL's GIN table, version 11. See net.h for what the plugin is and table_abi.h for the calls.
//
// Order of the calls, for each of up to four contexts of a communicator: listen, connect; type GDAKI: create_context;
// type PROXY: reg_mr_sym of NCCL's signals, and of a host buffer; close_listen. Then reg_mr_sym of every window, those of
// before first. At the end dereg_mr_sym, destroy_context (GDAKI), close_coll, finalize; after an abort the same, and
// nobody answers any more.
#include "backends/ncclgin/gin.h"

#include "backends/ncclgin/gin_job.h"

#include <unistd.h>

namespace ncclgin {

using namespace nccl_abi;

namespace {

// What a rank tells the others in NCCL's listen handle.
struct Hello {
    char magic[8];
    uint32_t node;
    int32_t pid;
    Address address;
    char job[48]; // its end, where it is longer
};
static_assert(sizeof(Hello) <= HANDLE_BYTES, "travels in a handle");
constexpr char magic[8] = "gic-gin";

std::string job_tag(const std::string &name) {
    constexpr size_t most = sizeof(Hello::job) - 1;
    return name.size() > most ? name.substr(name.size() - most) : name;
}

void tell(const char *call) {
    const char *said = gic::error_text().c_str();
    fprintf(stderr, "gic: NCCL plugin: rank %u: %s: %s\n", job.fabric ? job.fabric->rank : 0, call, said);
    if (job.logger)
        job.logger(LOG_WARN, ~0ul, __FILE__, __LINE__, "GIN/softnic: %s: %s", call, said);
}

Result refuse(const char *call) {
    gic::fail(-ENOTSUP, "not served: softnic's plugin does not need it");
    tell(call);
    return INTERNAL_ERROR;
}

// What a call answers NCCL, whose own messages do not have the reason.
Result told(const char *call, int rc) {
    if (rc == 0)
        return SUCCESS;
    tell(call);
    return rc == -ENOTSUP || rc == -EINVAL || rc == -ERANGE ? INVALID_USAGE : SYSTEM_ERROR;
}
template <class F> Result answer(const char *call, F f) {
    const int rc = gic::guarded([&]() -> int {
        if (!job.fabric)
            return gic::fail(-EINVAL, "prepare() was not called; nothing says which NIC to make");
        if (int entered = job.memory->enter())
            return entered;
        return f();
    });
    return told(call, rc);
}

} // namespace

int check_nccl(int code, const char *path) {
    // 22809 is 2.28.9. The table is older than the device structs, which these versions alone have like this.
    if (code >= 22807 && code <= 22809)
        return 0;
    const char *force = getenv("GIC_NCCL_FORCE");
    if (force && strcmp(force, "1") == 0)
        return 0;
    return gic::fail(-ENOTSUP,
                     "%s is NCCL %d.%d.%d: the plugin knows 2.28.7 to 2.28.9; GIC_NCCL_FORCE=1 tries it",
                     path, code / 10000, code / 100 % 100, code % 100);
}

namespace {

Result init(void **ctx_p, uint64_t, Logger logger) {
    *ctx_p = &job; // any address: NCCL does not always give it back
    job.logger = logger;
    return answer("init", [] { return check_loaded_nccl(); });
}

Result devices(int *count_p) {
    *count_p = 1;
    return SUCCESS;
}

Result get_properties(int device, Properties *p) {
    return answer("getProperties", [=]() -> int {
        if (device != 0)
            return gic::fail(-EINVAL, "device %d: there is one", device);
        properties(job.type, p);
        return 0;
    });
}

Result listen(void *, int, void *handle, void **listen_p) {
    return answer("listen", [=]() -> int {
        std::unique_ptr<Listener> l;
        if (int rc = Listener::open(&l))
            return rc;
        Hello h = {};
        memcpy(h.magic, magic, sizeof magic);
        h.node = job.fabric->rank;
        h.pid = (int32_t)getpid();
        h.address = l->address();
        strcpy(h.job, job_tag(job.name).c_str());
        memset(handle, 0, HANDLE_BYTES);
        memcpy(handle, &h, sizeof h);
        *listen_p = l.release();
        return 0;
    });
}

// All ranks of one job, each a process of its own.
int check_hellos(const std::vector<Hello> &hellos, uint32_t rank) {
    const uint32_t n = (uint32_t)hellos.size();
    for (uint32_t r = 0; r < n; r++) {
        const Hello &h = hellos[r];
        if (memcmp(h.magic, magic, sizeof magic) != 0)
            return gic::fail(-EINVAL, "rank %u has another NCCL plugin", r);
        if (h.job != job_tag(job.name))
            return gic::fail(-EINVAL, "rank %u is of job %.47s, this one of %s", r, h.job, job.name.c_str());
        if (h.node >= job.fabric->nranks)
            return gic::fail(-EINVAL, "rank %u says it is number %u of %u", r, h.node, job.fabric->nranks);
        for (uint32_t s = 0; s < r; s++)
            if (hellos[s].node == h.node)
                return gic::fail(-ENOTSUP,
                                 "ranks %u and %u of a communicator are in one process: want one for each", s,
                                 r);
    }
    if (hellos[rank].node != job.fabric->rank)
        return gic::fail(-EINVAL, "rank %u of the communicator is number %u, not this process", rank,
                         hellos[rank].node);
    return 0;
}

int make_coll(const std::vector<Hello> &hellos, uint32_t rank, const Listener &mine,
              std::unique_ptr<Coll> *coll_p) {
    auto c = std::make_unique<Coll>();
    c->rank = rank;
    c->nranks = (uint32_t)hellos.size();
    for (const Hello &h : hellos)
        c->nodes.push_back(h.node);
    if (int rc = Group::form(mine, hellos[0].address, rank, c->nranks, exchange_timeout_ns, &c->group))
        return rc;
    if (int rc = job.type == DEVICE_GIN_PROXY ? proxy_start(c.get()) : 0) {
        const std::string said = gic::error_text();
        proxy_stop(c.get());
        return gic::fail(rc, "%s", said.c_str());
    }
    *coll_p = std::move(c);
    return 0;
}

Result connect(void *, void **handles, int nranks, int rank, void *listen, void **coll_p) {
    return answer("connect", [=]() -> int {
        if (nranks < 1 || rank < 0 || rank >= nranks)
            return gic::fail(-EINVAL, "rank %d of %d", rank, nranks);
        std::vector<Hello> hellos((size_t)nranks);
        for (int r = 0; r < nranks; r++)
            memcpy(&hellos[(size_t)r], handles[r], sizeof hellos[0]);
        if (int rc = check_hellos(hellos, (uint32_t)rank))
            return rc;
        std::unique_ptr<Coll> coll;
        if (int rc = make_coll(hellos, (uint32_t)rank, *(const Listener *)listen, &coll))
            return rc;
        std::lock_guard<std::mutex> hold(job.lock);
        job.contexts_made++;
        job.colls.push_back(coll.get());
        *coll_p = coll.release();
        return 0;
    });
}

Result create_context(void *coll, int signals, int counters, void **context_p, DeviceHandle **handle_p) {
    return answer("createContext", [=]() -> int {
        if (job.type != DEVICE_GIN_GDAKI)
            return gic::fail(-EINVAL, "with type proxy NCCL makes the context itself");
        Context *x = nullptr;
        if (int rc = context_make((Coll *)coll, signals, counters, &x))
            return rc;
        *context_p = x;
        *handle_p = &x->handle;
        return 0;
    });
}

Result reg_mr_sym(void *coll_, void *data, size_t bytes, int pointer, uint64_t flags, void **mr_p,
                  void **device_p) {
    return answer("regMrSym", [=]() -> int {
        auto *coll = (Coll *)coll_;
        if (pointer != POINTER_CUDA && pointer != POINTER_HOST)
            return gic::fail(-ENOTSUP, "memory of type %d: want host (1) or CUDA (2)", pointer);
        auto mr = std::make_unique<Mr>();
        // The flag asks for strong order, which only the table of signals has.
        if (int rc = mr_register(coll, data, bytes, job.type == DEVICE_GIN_PROXY && (flags & MR_FORCE_ORDER),
                                 mr.get()))
            return rc;
        if (int rc = job.type == DEVICE_GIN_GDAKI ? context_publish_mr(mr.get()) : 0) {
            const std::string said = gic::error_text();
            mr_release(coll, mr.get());
            return gic::fail(rc, "%s", said.c_str());
        }
        std::lock_guard<std::mutex> hold(coll->mrs_lock);
        coll->mrs.push_back(mr.get());
        *device_p = job.type == DEVICE_GIN_GDAKI ? mr->device.addr : mr.get();
        *mr_p = mr.release();
        return 0;
    });
}

Result reg_mr_sym_dmabuf(void *, void *, size_t, int, uint64_t, int, uint64_t, void **, void **) {
    return refuse("regMrSymDmaBuf");
}

// From here to close_coll: a failure is told and otherwise nothing, since NCCL would leave the rest of its end undone.
Result dereg_mr_sym(void *coll_, void *mr_) {
    auto *coll = (Coll *)coll_;
    auto *mr = (Mr *)mr_;
    answer("deregMrSym", [=]() -> int {
        {
            std::lock_guard<std::mutex> hold(coll->mrs_lock);
            for (size_t i = 0; i < coll->mrs.size(); i++)
                if (coll->mrs[i] == mr)
                    coll->mrs.erase(coll->mrs.begin() + (long)i--);
        }
        const int rc = mr_release(coll, mr);
        delete mr;
        return rc;
    });
    return SUCCESS;
}

Result destroy_context(void *context) {
    answer("destroyContext", [=]() -> int {
        if (context)
            context_free((Context *)context);
        return 0;
    });
    return SUCCESS;
}

Result close_coll(void *coll_) {
    auto *coll = (Coll *)coll_;
    answer("closeColl", [=]() -> int {
        coll_free(coll);
        return 0;
    });
    return SUCCESS;
}

Result close_listen(void *listen) {
    delete (Listener *)listen;
    return SUCCESS;
}

// NCCL looks at the answers of neither test nor progress: what they fail of is kept for error().
Result keep(Result result) {
    if (result != SUCCESS) {
        std::lock_guard<std::mutex> hold(job.lock);
        if (job.failure.empty())
            job.failure = gic::error_text();
    }
    return result;
}

// Polled all the time by NCCL's thread: tells of a failure once.
Result quietly(int rc, const char *call) {
    if (rc == 0)
        return SUCCESS;
    bool first;
    {
        std::lock_guard<std::mutex> hold(job.lock);
        first = job.failure.empty();
        if (first)
            job.failure = gic::error_text();
    }
    if (first)
        tell(call);
    return REMOTE_ERROR;
}

// At an error NCCL's thread ends, and device code waits for it for ever. In a run it therefore has a request that is done
// once the run is given up, and the reason stays with error().
// NCCL's thread has its time from here: no CUDA on this way.
Result post(const char *call, Coll *coll, const Put &put, void **request_p) {
    const int rc = gic::guarded([&]() -> int {
        if (job.type != DEVICE_GIN_PROXY)
            return gic::fail(-EINVAL, "with type gdaki device code posts");
        job.served = DEVICE_GIN_PROXY;
        return proxy_post(coll, put, request_p);
    });
    if (rc && job.running) {
        quietly(rc, call);
        *request_p = proxy_lost();
        return SUCCESS;
    }
    return keep(told(call, rc));
}

Result iput(void *coll, uint64_t src_offset, void *src, size_t bytes, uint64_t dst_offset, void *dst,
            uint32_t rank, void **request_p) {
    const Put put = {rank, (Mr *)src, (Mr *)dst, src_offset, dst_offset, bytes, nullptr, 0, 0};
    return post("iput", (Coll *)coll, put, request_p);
}

Result iput_signal(void *coll, uint64_t src_offset, void *src, size_t bytes, uint64_t dst_offset, void *dst,
                   uint32_t rank, uint64_t signal_offset, void *signal, uint64_t value, uint32_t op,
                   void **request_p) {
    if (op != SIGNAL_INC && op != SIGNAL_ADD)
        return keep(answer("iputSignal", [=]() -> int {
            return gic::fail(-ENOTSUP, "signal operation %u: want increment (1) or add (2)", op);
        }));
    const Put put = {rank,         (Mr *)src,     (Mr *)dst,
                     src_offset,   dst_offset,    bytes,
                     (Mr *)signal, signal_offset, op == SIGNAL_INC ? 1 : value};
    return post("iputSignal", (Coll *)coll, put, request_p);
}

Result test(void *coll, void *request, int *done_p) {
    return quietly(gic::guarded([=] { return proxy_test((Coll *)coll, request, done_p); }), "test");
}

Result progress(void *coll_) {
    auto *coll = (Coll *)coll_;
    return quietly(gic::guarded([=]() -> int {
                       static thread_local bool entered; // NCCL's thread has no device of its own
                       if (!entered)
                           if (int rc = job.memory->enter())
                               return rc;
                       entered = true;
                       return proxy_relay(coll);
                   }),
                   "ginProgress");
}

Result query_last_error(void *context, bool *error_p) {
    *error_p = true;
    return answer("queryLastError", [=]() -> int {
        *error_p = coll_error(((const Context *)context)->coll) != 0;
        return 0;
    });
}

Result finalize(void *) { return SUCCESS; } // of one communicator; the NIC stays until release()

} // namespace

// The first queue pair that has seen an error CQE.
int queues_error(const Queues &queues) {
    for (const gda_qp &qp : queues.qps)
        if (const uint8_t syndrome = softnic_qp_syndrome(job.fabric->nic, qp.qpn))
            return gic::fail(-EIO, "error CQE on QP %u to rank %u: syndrome 0x%02x", qp.qpn, qp.peer,
                             syndrome);
    return 0;
}

int coll_error(const Coll *coll) {
    if (int rc = queues_error(coll->queues))
        return rc;
    if (int rc = coll->context ? queues_error(coll->context->queues) : 0)
        return rc;
    const int rc = softnic_engine_error(job.fabric->nic);
    return rc ? gic::fail(-EIO, "the engine has ended: %s", softnic_error()) : 0;
}

namespace {

// The window of window_alloc, and are there so many communicators?
int check_window(void *addr, size_t bytes, uint32_t count) {
    std::lock_guard<std::mutex> hold(job.lock);
    if (count != job.colls.size())
        return gic::fail(-EINVAL, "handles for %u GIN communicators: there are %zu", count, job.colls.size());
    for (const Region &r : job.windows)
        if (r.addr == addr && bytes && bytes <= r.bytes)
            return 0;
    return gic::fail(-EINVAL, "%zu bytes at %p are no window of window_alloc", bytes, addr);
}

} // namespace

int window_register(void *addr, size_t bytes, void **handles_p, uint32_t count) {
    if (int rc = check_window(addr, bytes, count))
        return rc;
    for (uint32_t i = 0; i < count; i++) {
        Coll *coll = job.colls[i];
        void *mr = nullptr;
        if (reg_mr_sym(coll, addr, bytes, POINTER_CUDA, 0, &mr, &handles_p[i]) != SUCCESS) {
            const std::string said = gic::error_text();
            window_deregister(addr);
            return gic::fail(-EIO, "%s", said.c_str());
        }
        std::lock_guard<std::mutex> hold(job.lock);
        job.shown.push_back({addr, coll, (Mr *)mr});
    }
    return 0;
}

int window_deregister(void *addr) {
    for (size_t i = 0; i < job.shown.size(); i++) {
        const Job::Shown one = job.shown[i];
        if (one.addr != addr)
            continue;
        job.shown.erase(job.shown.begin() + (long)i--);
        dereg_mr_sym(one.coll, one.mr);
    }
    return 0;
}

// Whatever NCCL has left of it, after an abort say.
void coll_free(Coll *coll) {
    for (size_t i = 0; i < job.shown.size(); i++)
        if (job.shown[i].coll == coll)
            job.shown.erase(job.shown.begin() + (long)i--);
    if (coll->context)
        context_free(coll->context);
    for (Mr *mr : coll->mrs) {
        mr_release(coll, mr);
        delete mr;
    }
    proxy_stop(coll);
    std::lock_guard<std::mutex> hold(job.lock);
    job.old.insert(job.old.end(), coll->old.begin(), coll->old.end());
    for (size_t i = 0; i < job.colls.size(); i++)
        if (job.colls[i] == coll)
            job.colls.erase(job.colls.begin() + (long)i--);
    delete coll;
}

} // namespace ncclgin

extern "C" __attribute__((visibility("default"))) const nccl_abi::GinTable ncclGinPlugin_v11 = {
    "gic_softnic",
    ncclgin::init,
    ncclgin::devices,
    ncclgin::get_properties,
    ncclgin::listen,
    ncclgin::connect,
    ncclgin::create_context,
    ncclgin::reg_mr_sym,
    ncclgin::reg_mr_sym_dmabuf,
    ncclgin::dereg_mr_sym,
    ncclgin::destroy_context,
    ncclgin::close_coll,
    ncclgin::close_listen,
    ncclgin::iput,
    ncclgin::iput_signal,
    ncclgin::test,
    ncclgin::progress,
    ncclgin::query_last_error,
    ncclgin::finalize,
};
