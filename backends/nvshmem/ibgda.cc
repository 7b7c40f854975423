// The transport for NVSHMEM's IBGDA: device code fills the queues and rings. Host part only, but for handler=host, where
// the library's proxy thread comes by (progress) and rings what the device code has announced.
#include "backends/nvshmem/job.h"
#include "backends/nvshmem/queues.h"

#include <errno.h>

namespace nvshmem_job {

const bool cpu_posts = false;

namespace {

nvshmem_queues::Knobs knobs;
nvshmem_queues::Announced announced;

nvshmemi_ibgda_device_state_t *state_of(const Transport *t) {
    return static_cast<nvshmemi_ibgda_device_state_t *>(t->shared);
}

int refuse(const char *call) {
    return answer(call,
                  [call] { return gic::fail(-ENOTSUP, "the IBGDA transport does not serve %s", call); });
}
int refuse_rma(Transport *, int, nvshmem_abi::RmaVerb, nvshmem_abi::Memory *, nvshmem_abi::Memory *,
               nvshmem_abi::RmaBytes, int) {
    return refuse("rma (host-initiated put or get)");
}
int refuse_amo(Transport *, int, void *, nvshmem_abi::AmoVerb, nvshmem_abi::Atomic *, nvshmem_abi::AmoBytes,
               int) {
    return refuse("amo (host-initiated atomic)");
}

int can_reach_peer(int *reach_p, void *, Transport *) {
    *reach_p = nvshmem_abi::GPU_WRITE | nvshmem_abi::GPU_READ | nvshmem_abi::GPU_ATOMICS;
    return 0;
}

int connect_endpoints(Transport *t, int *, int) {
    return answer("connect_endpoints", [t]() -> int {
        if (!t->shared)
            return gic::fail(-EINVAL, "the library gave no device state");
        if (int rc = check_job(t))
            return rc;
        Locked proxy_waits;
        return nvshmem_queues::build(job.fabric, knobs, t->log2_granularity, state_of(t), &announced);
    });
}

int get_mem_handle(Handle *handle, void *addr, size_t bytes, Transport *t, bool local_only) {
    return answer("get_mem_handle", [=]() -> int {
        Region r;
        if (int rc = register_region(t, addr, bytes, local_only, handle, &r))
            return rc;
        if (local_only)
            return nvshmem_queues::add_local(job.fabric, state_of(t), r.addr, bytes, r.host != 0, r.key);
        return nvshmem_queues::set_lkey(state_of(t), (uint64_t)(uintptr_t)t->heap_base, r.addr, bytes, r.key);
    });
}

int add_remote(Transport *t, int stride, const Handle *handles, uint64_t offset, size_t bytes) {
    for (int pe = 0; pe < t->npes; pe++) {
        Region r;
        if (int rc = region_of(&handles[pe * stride + t->index], &r))
            return rc;
        if (int rc =
                nvshmem_queues::set_rkey(state_of(t), (uint32_t)t->npes, (uint32_t)pe, offset, bytes, r.key))
            return rc;
    }
    return attach_heaps(t, stride, handles, offset, bytes);
}
int add_device_remote_mem_handles(Transport *t, int stride, Handle *handles, uint64_t offset, size_t bytes) {
    return answer("add_device_remote_mem_handles",
                  [=] { return add_remote(t, stride, handles, offset, bytes); });
}

// The proxy thread, over and over.
int progress(Transport *) {
    Locked here;
    if (job.fabric && !job.leaving)
        nvshmem_queues::ring(job.fabric, &announced);
    return 0;
}

int init(Transport **transport_p, int interface) {
    Transport *t = nullptr;
    if (int rc = make_transport(interface, &t))
        return rc;
    if (int rc = nvshmem_queues::read_knobs(&knobs)) {
        delete t;
        return rc;
    }
    if (knobs.host_rings && job.fabric->places.gpu_engine) {
        delete t;
        return gic::fail(-ENOTSUP,
                         "NVSHMEM_IBGDA_NIC_HANDLER=cpu_host_memory: a thread of this machine cannot "
                         "store to the doorbell records of engine=gpu; want engine=cpu");
    }
    t->type = nvshmem_abi::TYPE_IBGDA;
    t->operations.can_reach_peer = can_reach_peer;
    t->operations.connect_endpoints = connect_endpoints;
    t->operations.get_mem_handle = get_mem_handle;
    t->operations.rma = refuse_rma;
    t->operations.amo = refuse_amo;
    t->operations.add_device_remote_mem_handles = add_device_remote_mem_handles;
    t->operations.progress = knobs.host_rings ? progress : nullptr;
    t->no_proxy = !knobs.host_rings;
    *transport_p = t;
    return 0;
}

} // namespace
} // namespace nvshmem_job

GIC_EXPORT int nvshmemt_init(nvshmem_abi::Transport **transport_p, void *, int interface) {
    return nvshmem_job::answer("init", [&] { return nvshmem_job::init(transport_p, interface); });
}
