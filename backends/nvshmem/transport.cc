// The transport as libnvshmem_host calls it. See transport.h for what it is and transport_abi.h for the calls.
//
// Order of the calls: prepare() (ours, makes the NIC); nvshmemt_init, can_reach_peer, connect_endpoints (makes the
// queues), get_mem_handle of the heap, add_device_remote_mem_handles; from then on the library's own barriers run over
// the NIC; get_mem_handle of local buffers; release_mem_handle and finalize; release().
#include "backends/nvshmem/transport.h"

#include "backends/nvshmem/queues.h"
#include "backends/nvshmem/transport_abi.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <string.h>

namespace {

using nvshmem_abi::Handle;
using nvshmem_abi::Transport;

constexpr uint32_t all_rights = SOFTNIC_LOCAL_WRITE | SOFTNIC_REMOTE_WRITE | SOFTNIC_REMOTE_READ |
                                SOFTNIC_REMOTE_ATOMIC | SOFTNIC_PEER_MAPPED;

// What a PE tells the others of a region of its heap, in a Handle.
struct Region {
    char magic[8];
    uint32_t pe, key;
    uint64_t addr, bytes;
};
static_assert(sizeof(Region) <= sizeof(Handle), "travels in a handle");
constexpr char magic[8] = "gic-nvs";

// One NVSHMEM job per process.
struct {
    gda_fabric *fabric = nullptr;
    nvshmem_queues::Knobs knobs{};
    std::vector<uint32_t> heap_keys;
    gic::Facts facts;
    gic::Counters counters;
} job;

nvshmemi_ibgda_device_state_t *state_of(const Transport *t) {
    return static_cast<nvshmemi_ibgda_device_state_t *>(t->shared);
}

// What a call answers the library. Its own messages do not have the reason, so it goes to stderr.
template <class F> int answer(const char *call, F f) {
    const int rc = gic::guarded(f);
    if (rc == 0)
        return 0;
    fprintf(stderr, "gic: NVSHMEM transport: rank %u: %s: %s\n", job.fabric ? job.fabric->rank : 0, call,
            gic::error_text().c_str());
    return 7; // NVSHMEM's "internal error"
}

int refuse(const char *call) {
    return answer(call,
                  [call] { return gic::fail(-ENOTSUP, "softnic's transport does not serve %s", call); });
}
int refuse_rma(Transport *, int, ...) { return refuse("rma (host-initiated put or get)"); }
int refuse_amo(Transport *, int, ...) { return refuse("amo (host-initiated atomic)"); }

int can_reach_peer(int *reach_p, void *, Transport *) {
    *reach_p = nvshmem_abi::GPU_WRITE | nvshmem_abi::GPU_READ | nvshmem_abi::GPU_ATOMICS;
    return 0;
}

int connect_endpoints(Transport *t, int *, int) {
    return answer("connect_endpoints", [t]() -> int {
        gda_fabric *f = job.fabric;
        if (!t->shared)
            return gic::fail(-EINVAL, "the library gave no device state");
        if ((uint32_t)t->npes != f->nranks || (uint32_t)t->pe != f->rank)
            return gic::fail(-EINVAL, "PE %d of %d, but prepared for rank %u of %u", t->pe, t->npes, f->rank,
                             f->nranks);
        return nvshmem_queues::build(f, job.knobs, t->log2_granularity, state_of(t));
    });
}

int register_memory(void *addr, size_t bytes, uint32_t access, uint32_t *key_p) {
    int rc = softnic_mr_register(job.fabric->nic, addr, bytes, access, key_p);
    return rc ? gic::fail(rc, "%s", softnic_error()) : 0;
}

// Is it memory that the CPU engine reaches?
int host_memory(const void *addr, bool *host_p) {
    cudaPointerAttributes a;
    const cudaError_t e = cudaPointerGetAttributes(&a, addr);
    if (e != cudaSuccess)
        return gic::fail(-EIO, "cudaPointerGetAttributes(%p): %s", addr, cudaGetErrorString(e));
    *host_p = a.type == cudaMemoryTypeHost || a.type == cudaMemoryTypeUnregistered;
    return 0;
}

int get_mem_handle(Handle *handle, void *addr, size_t bytes, Transport *t, bool local_only) {
    return answer("get_mem_handle", [=]() -> int {
        bool host = false;
        if (int rc = host_memory(addr, &host))
            return rc;
        if (!host)
            return gic::fail(-ENOTSUP,
                             "%zu bytes at %p are GPU memory, which engine=cpu does not reach: want %s",
                             bytes, addr, local_only ? "host memory" : "NVSHMEM_HEAP_KIND=SYSMEM");
        Region r = {{}, (uint32_t)t->pe, 0, (uint64_t)(uintptr_t)addr, bytes};
        memcpy(r.magic, magic, sizeof magic);
        if (int rc =
                register_memory(addr, bytes, local_only ? (uint32_t)SOFTNIC_LOCAL_WRITE : all_rights, &r.key))
            return rc;
        memset(handle, 0, sizeof *handle);
        memcpy(handle, &r, sizeof r);
        if (local_only)
            return nvshmem_queues::add_local(job.fabric, state_of(t), r.addr, bytes, true, r.key);
        job.heap_keys.push_back(r.key);
        return nvshmem_queues::set_lkey(state_of(t), (uint64_t)(uintptr_t)t->heap_base, r.addr, bytes, r.key);
    });
}

int region_of(const Handle *handle, Region *r) {
    memcpy(r, handle, sizeof *r);
    return memcmp(r->magic, magic, sizeof magic)
               ? gic::fail(-EINVAL, "a handle that this transport did not make")
               : 0;
}

int release_mem_handle(Handle *handle, Transport *t) {
    return answer("release_mem_handle", [=]() -> int {
        Region r;
        if (int rc = region_of(handle, &r))
            return rc;
        if (r.pe != (uint32_t)t->pe)
            return 0;
        for (size_t i = 0; i < job.heap_keys.size(); i++)
            if (job.heap_keys[i] == r.key)
                job.heap_keys.erase(job.heap_keys.begin() + (long)i--);
        // A heap that was withdrawn has no key any more.
        const int rc = softnic_mr_deregister(job.fabric->nic, r.key);
        return rc && rc != -EINVAL ? gic::fail(rc, "%s", softnic_error()) : 0;
    });
}

// The heaps of all PEs lie side by side in one shared memory, which every PE maps whole.
int add_remote(Transport *t, int stride, Handle *handles, uint64_t offset, size_t bytes) {
    for (int pe = 0; pe < t->npes; pe++) {
        Region r;
        if (int rc = region_of(&handles[pe * stride + t->index], &r))
            return rc;
        if (int rc =
                nvshmem_queues::set_rkey(state_of(t), (uint32_t)t->npes, (uint32_t)pe, offset, bytes, r.key))
            return rc;
        if (pe == t->pe)
            continue;
        if (offset != 0 || r.bytes != bytes)
            return gic::fail(-ENOTSUP,
                             "a heap of PE %d in several registrations (%llu bytes at %llu): want one", pe,
                             (unsigned long long)r.bytes, (unsigned long long)offset);
        auto *here = static_cast<uint8_t *>(t->heap_base) + (int64_t)(pe - t->pe) * (int64_t)bytes;
        if (int rc = softnic_mr_attach(job.fabric->nic, (uint32_t)pe, r.key, here))
            return gic::fail(rc, "%s", softnic_error());
    }
    return 0;
}
int add_device_remote_mem_handles(Transport *t, int stride, Handle *handles, uint64_t offset, size_t bytes) {
    return answer("add_device_remote_mem_handles",
                  [=] { return add_remote(t, stride, handles, offset, bytes); });
}

int finalize(Transport *) { return 0; } // release() frees; peers may be in their last barrier still
int show_info(Transport *, int) { return 0; }

int init(Transport **transport_p, int interface) {
    if (interface / 10000 != nvshmem_abi::plugin_interface / 10000)
        return gic::fail(-ENOTSUP, "the library's plugin interface is %d, this transport's %d", interface,
                         nvshmem_abi::plugin_interface);
    if (!job.fabric)
        return gic::fail(-EINVAL, "prepare() was not called; nothing says which NIC to make");
    if (int rc = nvshmem_queues::read_knobs(&job.knobs))
        return rc;
    static char path[] =
        "/sys/devices/softnic"; // the library looks at paths only to choose among several devices
    static char *paths[] = {path};
    auto *t = new Transport();
    t->interface = interface;
    t->type = nvshmem_abi::TYPE_IBGDA;
    t->operations.can_reach_peer = can_reach_peer;
    t->operations.connect_endpoints = connect_endpoints;
    t->operations.get_mem_handle = get_mem_handle;
    t->operations.release_mem_handle = release_mem_handle;
    t->operations.finalize = finalize;
    t->operations.show_info = show_info;
    t->operations.rma = refuse_rma;
    t->operations.amo = refuse_amo;
    t->operations.add_device_remote_mem_handles = add_device_remote_mem_handles;
    t->device_paths = paths;
    t->attributes = nvshmem_abi::CONNECTED;
    t->n_devices = 1;
    t->is_successfully_initialized = true;
    t->no_proxy = true;
    t->max_operation_bytes = 1u << 30;
    t->host_endian_atomics_from = 8;
    *transport_p = t;
    return 0;
}

// ---- for the program that loads it ----

int prepare(const struct gic_open *open) {
    return gic::guarded([&]() -> int {
        if (job.fabric)
            return gic::fail(-EALREADY, "the transport is prepared already");
        return gda_fabric_open(open, SOFTNIC_REAL, 0, &job.fabric);
    });
}

int error() {
    if (!job.fabric)
        return gic::fail(-EINVAL, "the transport is not prepared");
    for (const gda_qp &qp : job.fabric->qps)
        if (const uint8_t syndrome = softnic_qp_syndrome(job.fabric->nic, qp.qpn))
            return gic::fail(-EIO, "error CQE on QP %u to rank %u: syndrome 0x%02x", qp.qpn, qp.peer,
                             syndrome);
    return 0;
}

int counters(const struct gic_counter **counters_p, uint32_t *count_p) {
    return gic::guarded([&]() -> int {
        job.counters.clear();
        if (job.fabric)
            gda_fabric_counters(job.fabric, &job.counters);
        job.counters.publish(counters_p, count_p);
        return 0;
    });
}

int facts(const struct gic_kv **facts_p, uint32_t *count_p) {
    return gic::guarded([&]() -> int {
        if (job.fabric)
            gda_fabric_facts(job.fabric, &job.facts);
        job.facts.publish(facts_p, count_p);
        return 0;
    });
}

int withdraw_heap() {
    for (uint32_t key : job.heap_keys)
        if (int rc = softnic_mr_deregister(job.fabric->nic, key))
            return gic::fail(rc, "%s", softnic_error());
    job.heap_keys.clear();
    return 0;
}

void release() {
    gda_fabric_close(job.fabric);
    job.fabric = nullptr;
    job.heap_keys.clear();
}

const char *last_error() { return gic::error_text().c_str(); }

} // namespace

GIC_EXPORT int nvshmemt_init(Transport **transport_p, void *, int interface) {
    return answer("init", [&] { return init(transport_p, interface); });
}

GIC_EXPORT const struct gic_nvshmem_transport gic_nvshmem_transport_v1 = {
    sizeof(struct gic_nvshmem_transport), prepare, error, counters, facts, withdraw_heap, release, last_error,
};
