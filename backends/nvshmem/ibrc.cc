// The transport for NVSHMEM's proxy channel, under the name of the vendor's for InfiniBand RC: the library's proxy thread
// calls rma and amo for each request that device code has enqueued; one becomes one work request, signaled, on the queue
// pair to that PE, as the vendor's does it.
//
// It serves what the vendor's serves without GDRCopy (put, get, p, g, an 8-byte add, a signal), and a fetch-and-add, which
// the vendor's hands to the target's processor. A queue pair works in order, so that there is no fence.
//
// Everything is in host memory: a thread of this process writes the queues.
#include "backends/nvshmem/job.h"
#include "minigda/gda_wqe.cuh"

#include <device_host_transport/nvshmem_common_transport.h>

#include <errno.h>
#include <sched.h>
#include <string.h>

namespace nvshmem_job {

const bool cpu_posts = true;

namespace {

constexpr uint32_t depth_least = 64, depth_most = 32768, depth_default = 1024;

// One send queue as its only writer keeps it. Every WQE takes one block and asks for a CQE.
struct Queue {
    gda_qp *qp;
    uint64_t head; // blocks posted
    uint64_t done; // of which complete
    bool failed;   // an error CQE; softnic keeps its syndrome
};

// By PE. The proxy thread and the program's own calls share them, under the job's lock.
std::vector<Queue> queues;
uint64_t *old_value; // where an add's goes that nobody asked for
uint32_t old_value_key;
uint32_t depth = depth_default;

void poll(Queue &q) {
    const struct mlx5_cqe *cqe = q.qp->cqe; // the only one: the latest
    if (mlx5_op_own_opcode(__atomic_load_n(&cqe->op_own, __ATOMIC_ACQUIRE)) == MLX5_CQE_OP_REQ_ERR) {
        q.failed = true;
        return;
    }
    const uint16_t last = mlx5_be16(__atomic_load_n(&cqe->wqe_counter, __ATOMIC_ACQUIRE));
    q.done += (uint16_t)(last + 1 - (uint16_t)q.done);
}

// Until at most `left` of the queue's requests are open. A failed queue has none: the program learns of it from error().
int drain(Queue &q, uint64_t left) {
    uint64_t since = 0;
    for (uint32_t polls = 0;; polls++) {
        if (q.failed || q.head - q.done <= left)
            return 0;
        poll(q);
        if (polls < 4096)
            continue;
        sched_yield();
        if (job.leaving)
            return 0;
        const uint64_t now = gic::globaltimer();
        since = since ? since : now;
        if (now - since > job.timeout_ns)
            return gic::fail(-ETIMEDOUT, "QP %u to rank %u: %llu requests are not complete after %llu ms",
                             q.qp->qpn, q.qp->peer, (unsigned long long)(q.head - q.done),
                             (unsigned long long)(job.timeout_ns / 1000000));
    }
}

gda_place place_of(const Queue &q, uint32_t rkey) {
    return {q.qp->sq, q.qp->depth - 1, mlx5_ctrl_word1(q.qp->qpn, 0), mlx5_be32(rkey), 0};
}

// `write` builds the WQE at its place.
template <class F> int post(Queue &q, F write) {
    if (int rc = drain(q, depth - 1))
        return rc;
    if (q.failed)
        return 0;
    write((uint32_t)q.head, gda_flags(MLX5_CTRL_CQ_UPDATE));
    q.head++;
    // The NIC must not see the doorbell before the record, nor the record before the WQE.
    __atomic_store_n(&q.qp->dbr->snd, mlx5_dbr_value(q.head), __ATOMIC_RELEASE);
    __atomic_store_n(q.qp->bell, mlx5_doorbell_value(q.head, q.qp->qpn), __ATOMIC_RELEASE);
    return 0;
}

struct Target {
    uint64_t addr;
    uint32_t key;
};
int target_of(const nvshmem_abi::Memory *m, Target *target_p) {
    Region r;
    if (!m->handle)
        return gic::fail(-EINVAL, "memory at %p without a handle", m->addr);
    if (int rc = region_of(m->handle, &r))
        return rc;
    *target_p = {(uint64_t)(uintptr_t)m->addr, r.key};
    return 0;
}

int do_rma(int pe, const nvshmem_abi::RmaVerb &verb, const nvshmem_abi::Memory *remote,
           const nvshmem_abi::Memory *local, const nvshmem_abi::RmaBytes &size) {
    const uint64_t bytes = (uint64_t)size.elements * (uint64_t)size.element_bytes;
    Target to = {}, from = {};
    if (int rc = target_of(remote, &to))
        return rc;
    Queue &q = queues[(size_t)pe];
    const gda_place place = place_of(q, to.key);
    if (verb.what == NVSHMEMI_OP_P) {
        if (bytes == 0 || bytes > 8)
            return gic::fail(-ENOTSUP, "p of %llu bytes", (unsigned long long)bytes);
        uint64_t value = 0;
        memcpy(&value, local->addr, bytes); // of the caller's stack
        return post(q, [&](uint32_t at, uint32_t flags) {
            gda_write_value(place, at, flags, to.addr, value, (uint32_t)bytes);
        });
    }
    const bool get = verb.what == NVSHMEMI_OP_GET || verb.what == NVSHMEMI_OP_G;
    if (!get && verb.what != NVSHMEMI_OP_PUT)
        return gic::fail(-ENOTSUP, "rma of kind %d", verb.what);
    if (bytes > MLX5_MESSAGE_MAX)
        return gic::fail(-ENOTSUP, "rma of %llu bytes in one request", (unsigned long long)bytes);
    if (int rc = target_of(local, &from))
        return rc;
    if (int rc = post(q, [&](uint32_t at, uint32_t flags) {
            gda_write_pointer(place, at, flags, get ? MLX5_OP_RDMA_READ : MLX5_OP_RDMA_WRITE, to.addr,
                              (uint32_t)bytes, from.key, from.addr);
        }))
        return rc;
    return verb.is_nbi ? 0 : drain(q, 0);
}

int rma(Transport *, int pe, nvshmem_abi::RmaVerb verb, nvshmem_abi::Memory *remote,
        nvshmem_abi::Memory *local, nvshmem_abi::RmaBytes size, int) {
    Locked here;
    if (job.leaving)
        return 0;
    return answer("rma", [&] { return do_rma(pe, verb, remote, local, size); });
}

// The device waits for the flag of its element; the value must be there before.
int fetched(Queue &q, nvshmem_abi::Atomic *a) {
    if (int rc = drain(q, 0))
        return rc;
    if (!q.failed && !job.leaving)
        __atomic_store_n(&static_cast<uint64_t *>(a->result)[1], a->result_flag, __ATOMIC_RELEASE);
    return 0;
}

int do_amo(int pe, const nvshmem_abi::AmoVerb &verb, nvshmem_abi::Atomic *a,
           const nvshmem_abi::AmoBytes &size) {
    Target to = {}, result = {(uint64_t)(uintptr_t)old_value, old_value_key};
    if (int rc = target_of(&a->remote, &to))
        return rc;
    Queue &q = queues[(size_t)pe];
    const gda_place place = place_of(q, to.key);
    const bool set = verb.what == NVSHMEMI_AMO_SIGNAL || verb.what == NVSHMEMI_AMO_SIGNAL_SET,
               fetch = verb.what == NVSHMEMI_AMO_FETCH_ADD;
    if (size.element_bytes != 8 ||
        !(set || fetch || verb.what == NVSHMEMI_AMO_ADD || verb.what == NVSHMEMI_AMO_SIGNAL_ADD))
        return gic::fail(-ENOTSUP,
                         "atomic of kind %d and %d bytes: want 8 bytes and an add, a fetch_add or a signal",
                         verb.what, size.element_bytes);
    if (set)
        return post(
            q, [&](uint32_t at, uint32_t flags) { gda_write_value(place, at, flags, to.addr, a->value, 8); });
    if (fetch) {
        const nvshmem_abi::Memory own = {a->result, 0, a->result_handle};
        if (int rc = target_of(&own, &result))
            return rc;
    }
    if (int rc = post(q, [&](uint32_t at, uint32_t flags) {
            gda_write_fetch_add(place, at, flags, to.addr, a->value, result.key, result.addr);
        }))
        return rc;
    return fetch ? fetched(q, a) : 0;
}

int amo(Transport *, int pe, void *, nvshmem_abi::AmoVerb verb, nvshmem_abi::Atomic *a,
        nvshmem_abi::AmoBytes size, int) {
    Locked here;
    if (job.leaving)
        return 0;
    return answer("amo", [&] { return do_amo(pe, verb, a, size); });
}

int quiet(Transport *, int pe, int) {
    Locked here;
    if (job.leaving)
        return 0;
    return answer("quiet", [&] { return drain(queues[(size_t)pe], 0); });
}

// The proxy thread, over and over.
int progress(Transport *) {
    Locked here;
    if (job.leaving)
        return 0;
    for (Queue &q : queues)
        if (q.head != q.done && !q.failed)
            poll(q);
    return 0;
}

int can_reach_peer(int *reach_p, void *, Transport *) {
    *reach_p = nvshmem_abi::CPU_WRITE | nvshmem_abi::CPU_READ | nvshmem_abi::CPU_ATOMICS;
    return 0;
}

int connect_endpoints(Transport *t, int *, int) {
    return answer("connect_endpoints", [t]() -> int {
        if (int rc = check_job(t))
            return rc;
        Locked proxy_waits;
        if (int rc = gda_fabric_connect(job.fabric, 1, depth, 0))
            return rc;
        void *addr;
        if (int rc = gda_fabric_alloc(job.fabric, sizeof *old_value, &addr, &old_value_key))
            return rc;
        old_value = static_cast<uint64_t *>(addr);
        queues.clear();
        for (gda_qp &qp : job.fabric->qps)
            queues.push_back(Queue{&qp, 0, 0, false});
        return 0;
    });
}

int get_mem_handle(Handle *handle, void *addr, size_t bytes, Transport *t, bool local_only) {
    return answer("get_mem_handle", [=]() -> int {
        Region r;
        return register_region(t, addr, bytes, local_only, handle, &r);
    });
}

int add_device_remote_mem_handles(Transport *t, int stride, Handle *handles, uint64_t offset, size_t bytes) {
    return answer("add_device_remote_mem_handles",
                  [=] { return attach_heaps(t, stride, handles, offset, bytes); });
}

int read_knobs() {
    const char *text = getenv("NVSHMEM_QP_DEPTH"), *per_device = getenv("NVSHMEM_IB_NUM_RC_PER_DEVICE");
    uint64_t value = depth_default;
    if (text && *text &&
        (!gic::parse_u64(text, &value) || value < depth_least || value > depth_most || (value & (value - 1))))
        return gic::fail(-ENOTSUP, "NVSHMEM_QP_DEPTH=%s: want a power of two in %u..%u", text, depth_least,
                         depth_most);
    depth = (uint32_t)value;
    if (per_device && strcmp(per_device, "1") != 0)
        return gic::fail(-ENOTSUP, "NVSHMEM_IB_NUM_RC_PER_DEVICE=%s: want 1", per_device);
    return 0;
}

int init(Transport **transport_p, int interface) {
    if (int rc = read_knobs())
        return rc;
    Transport *t = nullptr;
    if (int rc = make_transport(interface, &t))
        return rc;
    t->operations.can_reach_peer = can_reach_peer;
    t->operations.connect_endpoints = connect_endpoints;
    t->operations.get_mem_handle = get_mem_handle;
    t->operations.add_device_remote_mem_handles = add_device_remote_mem_handles;
    t->operations.rma = rma;
    t->operations.amo = amo;
    t->operations.quiet = quiet;
    t->operations.progress = progress;
    *transport_p = t;
    return 0;
}

} // namespace
} // namespace nvshmem_job

GIC_EXPORT int nvshmemt_init(nvshmem_abi::Transport **transport_p, void *, int interface) {
    return nvshmem_job::answer("init", [&] { return nvshmem_job::init(transport_p, interface); });
}
