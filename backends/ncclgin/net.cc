// NCCL's NET table, version 11, which must be there for the GIN table (gin.cc) to be looked at, and the plugin's own
// table (net.h).
//
// NCCL calls init, devices, getProperties and finalize of NET, and nothing else as long as its ranks need no messages of
// its own.
#include "backends/ncclgin/net.h"

#include "backends/ncclgin/gin.h"

#include <dlfcn.h>

namespace ncclgin {

using namespace nccl_abi;

Job job;

void properties(DeviceType type, Properties *p) {
    *p = Properties();
    p->name = "softnic";
    p->guid = 0x736f66746e6963; // "softnic"
    p->pointers = POINTER_HOST | POINTER_CUDA;
    p->speed = 200000;
    p->port = 1;
    p->max_comms = 1 << 16;
    p->max_recvs = 8;
    p->device_type = type;
    p->device_version = type == DEVICE_GIN_GDAKI   ? GDAKI_VERSION
                        : type == DEVICE_GIN_PROXY ? PROXY_VERSION
                                                   : 0;
    p->virtual_of.count = 1;
    p->max_p2p_bytes = p->max_coll_bytes = (size_t)1 << 30;
    p->max_multi_request = 1;
}

// The NCCL that has called: it is loaded, if not by this name.
int check_loaded_nccl() {
    void *lib = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
    if (!lib)
        return 0; // linked statically: whoever does that has built it
    int code = 0;
    auto version = reinterpret_cast<int (*)(int *)>(dlsym(lib, "ncclGetVersion"));
    const int rc = version && version(&code) == 0 ? check_nccl(code, "libnccl.so.2") : 0;
    dlclose(lib);
    return rc;
}

namespace {

// ---- NET ----

Result net_init(void **ctx_p, uint64_t, void *, Logger logger, void *) {
    *ctx_p = &job;
    job.logger = logger;
    return SUCCESS;
}
Result net_devices(int *count_p) {
    *count_p = 1;
    return SUCCESS;
}
Result net_properties(int, Properties *p) {
    properties(DEVICE_HOST, p);
    return SUCCESS;
}
Result net_finalize(void *) { return SUCCESS; }
Result net_attributes(void *, void *) { return SUCCESS; }

Result refuse(const char *call) {
    fprintf(stderr,
            "gic: NCCL plugin: rank %u: %s: not served: softnic's plugin carries no messages of NCCL's own "
            "(collectives between ranks that do not reach each other by P2P)\n",
            job.fabric ? job.fabric->rank : 0, call);
    return INTERNAL_ERROR;
}
// One function for each call, since the table has them by type.
Result no_listen(void *, int, void *, void **) { return refuse("NET listen"); }
Result no_connect(void *, int, void *, void **, DeviceHandle **) { return refuse("NET connect"); }
Result no_accept(void *, void **, DeviceHandle **) { return refuse("NET accept"); }
Result no_reg_mr(void *, void *, size_t, int, void **) { return refuse("NET regMr"); }
Result no_reg_dmabuf(void *, void *, size_t, int, uint64_t, int, void **) {
    return refuse("NET regMrDmaBuf");
}
Result no_dereg_mr(void *, void *) { return refuse("NET deregMr"); }
Result no_isend(void *, void *, size_t, int, void *, void *, void **) { return refuse("NET isend"); }
Result no_irecv(void *, int, void **, size_t *, int *, void **, void **, void **) {
    return refuse("NET irecv");
}
Result no_iflush(void *, int, void **, int *, void **, void **) { return refuse("NET iflush"); }
Result no_test(void *, int *, int *) { return refuse("NET test"); }
Result no_close_send(void *) { return refuse("NET closeSend"); }
Result no_close_recv(void *) { return refuse("NET closeRecv"); }
Result no_close_listen(void *) { return refuse("NET closeListen"); }

// ---- for the program that loads it ----

const char *const type_names = "gdaki|proxy";

// The parameters with the defaults of this use.
struct Parameters {
    std::vector<struct gic_kv> nic;
    struct gic_open open;

    const char *value(const char *key) const { return gic::kv_find(nic.data(), (uint32_t)nic.size(), key); }
    void given_or(const char *key, const char *value_) {
        if (!value(key))
            nic.push_back({key, value_});
    }
    Parameters(const struct gic_open *from, DeviceType type) : open(*from) {
        nic.assign(from->nic_config, from->nic_config + from->nic_config_count);
        const bool cuda = strncmp(from->device, "cuda", 4) == 0;
        given_or("engine", type == DEVICE_GIN_GDAKI && cuda ? "gpu" : "cpu");
        if (strcmp(value("engine"), "gpu") == 0)
            given_or("presence", "demand");
        open.nic_config = nic.data();
        open.nic_config_count = (uint32_t)nic.size();
    }
};

int check_depth(uint32_t depth) {
    if (depth < 64 || depth > 32768 || (depth & (depth - 1)))
        return gic::fail(-EINVAL, "depth=%u: want a power of two in 64..32768", depth);
    return 0;
}

void forget() {
    for (std::vector<Region> *list : {&job.windows, &job.old}) {
        for (Region &r : *list)
            job.memory->drop(&r);
        list->clear();
    }
    job.relay.reset();
    job.memory.reset();
    job.type = DEVICE_HOST;
    job.served = DEVICE_HOST;
    job.contexts_made = 0;
    job.running = job.given_up = false;
    job.failure.clear();
    job.logger = nullptr;
}

void release() {
    if (!job.fabric)
        return;
    job.memory->enter();
    while (!job.colls.empty())
        coll_free(job.colls.back());
    gda_fabric_close(job.fabric);
    job.fabric = nullptr;
    forget();
}

int prepare_fabric(const struct gic_open *open) {
    // A thread of this process posts with type proxy.
    if (int rc = gda_fabric_probe(open, job.type == DEVICE_GIN_PROXY))
        return rc;
    std::unique_ptr<Memory> memory;
    if (int rc = Memory::open(open->device, &memory))
        return rc;
    job.memory = std::move(memory);
    if (int rc = job.type == DEVICE_GIN_PROXY ? Relay::open(&job.relay) : 0)
        return rc;
    return gda_fabric_open(open, SOFTNIC_REAL, 0, &job.fabric);
}

int prepare(const struct gic_open *open, const struct gic_ncclgin_attr *attr) {
    return gic::guarded([&]() -> int {
        if (job.fabric)
            return gic::fail(-EALREADY, "the plugin is prepared already: want a process for each rank");
        if (attr->struct_size != sizeof *attr)
            return gic::fail(-EINVAL, "attributes of %u bytes: want %zu", attr->struct_size, sizeof *attr);
        const int type = attr->type ? gic::index_in(type_names, attr->type) : -1;
        if (type < 0)
            return gic::fail(-EINVAL, "type=%s: want one of %s", attr->type ? attr->type : "", type_names);
        job.type = type == 0 ? DEVICE_GIN_GDAKI : DEVICE_GIN_PROXY;
        job.depth = attr->depth ? attr->depth : 128;
        job.name = open->job;
        const Parameters p(open, job.type);
        int rc = check_depth(job.depth);
        rc = rc ? rc : prepare_fabric(&p.open);
        if (rc) {
            const std::string said = gic::error_text();
            forget();
            return gic::fail(rc, "%s", said.c_str());
        }
        return 0;
    });
}

int need_job() { return job.fabric ? 0 : gic::fail(-EINVAL, "the plugin is not prepared"); }

int begin() {
    if (int rc = need_job())
        return rc;
    if (int rc = gda_fabric_begin(job.fabric))
        return rc;
    job.given_up = false;
    job.running = true;
    return 0;
}

int end(int fine) {
    return gic::guarded([=]() -> int {
        if (int rc = need_job())
            return rc;
        std::lock_guard<std::mutex> hold(job.lock);
        job.running = false;
        int rc =
            gda_fabric_end(job.fabric, false); // its own look at the doorbells is for queues of one block
        for (const Coll *c : job.colls)
            if (rc == 0 && fine && c->context && job.fabric->watch == "dbr")
                rc = queues_check_doorbells(job.fabric, c->context->queues);
        return rc;
    });
}

int unblock(int all) {
    return gic::guarded([=]() -> int {
        if (int rc = need_job())
            return rc;
        static thread_local bool entered;
        if (int rc = entered ? 0 : job.memory->enter())
            return rc;
        entered = true;
        std::lock_guard<std::mutex> hold(job.lock);
        job.given_up = true;
        for (Coll *c : job.colls)
            if (int rc = c->context ? context_unblock(c->context, all != 0) : 0)
                return rc;
        return 0;
    });
}

int window_alloc(uint64_t bytes, void **addr_p) {
    return gic::guarded([=]() -> int {
        if (int rc = need_job())
            return rc;
        if (bytes == 0)
            return gic::fail(-EINVAL, "window of 0 bytes");
        if (int rc = job.memory->enter())
            return rc;
        std::lock_guard<std::mutex> hold(job.lock);
        Region r;
        if (int rc =
                job.memory->create(bytes, job.fabric->places.window_on_gpu ? Place::GPU : Place::HOST, &r))
            return rc;
        job.windows.push_back(r);
        *addr_p = r.addr;
        return 0;
    });
}

int window_free(void *addr) {
    return gic::guarded([=]() -> int {
        if (int rc = need_job())
            return rc;
        std::lock_guard<std::mutex> hold(job.lock);
        for (size_t i = 0; i < job.windows.size(); i++)
            if (job.windows[i].addr == addr) {
                Region r = job.windows[i];
                job.windows.erase(job.windows.begin() + (long)i);
                return job.memory->drop(&r);
            }
        return gic::fail(-EINVAL, "%p is no window of window_alloc", addr);
    });
}

int show_window(void *addr, uint64_t bytes, void **handles_p, uint32_t count) {
    return gic::guarded([=]() -> int {
        if (int rc = need_job())
            return rc;
        return window_register(addr, bytes, handles_p, count);
    });
}

int hide_window(void *addr) {
    return gic::guarded([=]() -> int {
        if (int rc = need_job())
            return rc;
        return window_deregister(addr);
    });
}

int error() {
    return gic::guarded([]() -> int {
        if (int rc = need_job())
            return rc;
        std::lock_guard<std::mutex> hold(job.lock);
        if (!job.failure.empty())
            return gic::fail(-EIO, "%s", job.failure.c_str());
        for (const Coll *c : job.colls)
            if (int rc = coll_error(c))
                return rc;
        return 0;
    });
}

int counters(const struct gic_counter **counters_p, uint32_t *count_p) {
    return gic::guarded([=]() -> int {
        if (int rc = need_job())
            return rc;
        std::lock_guard<std::mutex> hold(job.lock);
        job.counters.clear();
        struct softnic_counters c = {};
        gda_fabric_counters(job.fabric, &job.counters, &c);
        job.counters.add("wqe_wait", "1", c.wqe_wait, true);
        if (job.type == DEVICE_GIN_PROXY) {
            uint64_t relayed = 0;
            for (const Coll *coll : job.colls)
                relayed += coll->relayed;
            job.counters.add("words_relayed", "1", relayed, false); // several signals of one word go together
        }
        job.counters.publish(counters_p, count_p);
        return 0;
    });
}

int facts(const struct gic_kv **facts_p, uint32_t *count_p) {
    return gic::guarded([=]() -> int {
        if (int rc = need_job())
            return rc;
        std::lock_guard<std::mutex> hold(job.lock);
        gic::Facts &f = job.facts;
        const gda_fabric *fabric = job.fabric;
        gda_fabric_facts(fabric, &f);
        const DeviceType served = job.served;
        f.set("gin_type", std::string(served == DEVICE_GIN_GDAKI   ? "gdaki"
                                      : served == DEVICE_GIN_PROXY ? "proxy"
                                                                   : "none"));
        f.set("contexts", (uint64_t)job.contexts_made);
        f.set("qps_per_peer", (uint64_t)job.contexts_made); // companions post to the own NIC
        f.set("window", std::string(fabric->places.window_on_gpu ? "gpu" : "host"));
        f.set("signals", std::string(job.type == DEVICE_GIN_PROXY   ? "relayed"
                                     : fabric->places.window_on_gpu ? "gpu"
                                                                    : "host"));
        f.set("engine.launches", softnic_launches(fabric->nic));
        f.publish(facts_p, count_p);
        return 0;
    });
}

int withdraw() {
    return gic::guarded([]() -> int {
        if (int rc = need_job())
            return rc;
        std::lock_guard<std::mutex> hold(job.lock);
        for (Coll *c : job.colls) {
            std::lock_guard<std::mutex> list(c->mrs_lock);
            for (Mr *mr : c->mrs)
                if (int rc = mr_withdraw(mr))
                    return rc;
        }
        return 0;
    });
}

const char *last_error() { return gic::error_text().c_str(); }

} // namespace

} // namespace ncclgin

extern "C" __attribute__((visibility("default"))) const nccl_abi::NetTable ncclNetPlugin_v11 = {
    "gic_softnic",
    ncclgin::net_init,
    ncclgin::net_devices,
    ncclgin::net_properties,
    ncclgin::no_listen,
    ncclgin::no_connect,
    ncclgin::no_accept,
    ncclgin::no_reg_mr,
    ncclgin::no_reg_dmabuf,
    ncclgin::no_dereg_mr,
    ncclgin::no_isend,
    ncclgin::no_irecv,
    ncclgin::no_iflush,
    ncclgin::no_test,
    ncclgin::no_close_send,
    ncclgin::no_close_recv,
    ncclgin::no_close_listen,
    nullptr,
    nullptr,
    nullptr,
    ncclgin::net_finalize,
    ncclgin::net_attributes,
};

GIC_EXPORT const struct gic_ncclgin_net gic_ncclgin_net_v1 = {
    sizeof(struct gic_ncclgin_net),
    ncclgin::prepare,
    ncclgin::begin,
    ncclgin::end,
    ncclgin::unblock,
    ncclgin::window_alloc,
    ncclgin::window_free,
    ncclgin::show_window,
    ncclgin::hide_window,
    ncclgin::error,
    ncclgin::counters,
    ncclgin::facts,
    ncclgin::withdraw,
    ncclgin::release,
    ncclgin::last_error,
};
