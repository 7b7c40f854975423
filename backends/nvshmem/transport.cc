// What both transports are made of: the NIC and its memory. See transport.h for what a transport is, transport_abi.h for
// the library's calls, ibgda.cc and ibrc.cc for those that move data.
//
// Order of the calls: prepare() (ours, makes the NIC); nvshmemt_init, can_reach_peer, connect_endpoints (makes the
// queues), get_mem_handle of the heap, add_device_remote_mem_handles; from then on the library's own barriers run over
// the NIC; get_mem_handle of local buffers; release_mem_handle and finalize; release().
#include "backends/nvshmem/transport.h"

#include "backends/nvshmem/job.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <string.h>
#include <time.h>

namespace nvshmem_job {

Job job;

namespace {

constexpr char magic[8] = "gic-nvs";
constexpr uint32_t heap_rights =
    SOFTNIC_LOCAL_WRITE | SOFTNIC_REMOTE_WRITE | SOFTNIC_REMOTE_READ | SOFTNIC_REMOTE_ATOMIC;

// Is it memory that the CPU engine reaches?
int host_memory(const void *addr, bool *host_p) {
    cudaPointerAttributes a;
    const cudaError_t e = cudaPointerGetAttributes(&a, addr);
    if (e != cudaSuccess)
        return gic::fail(-EIO, "cudaPointerGetAttributes(%p): %s", addr, cudaGetErrorString(e));
    *host_p = a.type == cudaMemoryTypeHost || a.type == cudaMemoryTypeUnregistered;
    return 0;
}

int release_region(const Handle *handle, const Transport *t) {
    Region r;
    if (int rc = region_of(handle, &r))
        return rc;
    if (r.pe != (uint32_t)t->pe)
        return 0;
    for (size_t i = 0; i < job.heap.size(); i++)
        if (job.heap[i].key == r.key)
            job.heap.erase(job.heap.begin() + (long)i--);
    // A heap that was withdrawn has no key any more.
    int rc = softnic_mr_deregister(job.fabric->nic, r.key);
    if (rc && rc != -EINVAL)
        return gic::fail(rc, "%s", softnic_error());
    if (r.shared && (rc = softnic_mem_free(job.fabric->nic, (void *)(uintptr_t)r.addr)) != 0)
        return gic::fail(rc, "%s", softnic_error());
    return 0;
}
int release_mem_handle(Handle *handle, Transport *t) {
    return answer("release_mem_handle", [=] { return release_region(handle, t); });
}

int finalize(Transport *) { return 0; } // release() frees; peers may be in their last barrier still
int show_info(Transport *, int) { return 0; }

} // namespace

int report(const char *call) {
    fprintf(stderr, "gic: NVSHMEM transport: rank %u: %s: %s\n", job.fabric ? job.fabric->rank : 0, call,
            gic::error_text().c_str());
    return 7; // NVSHMEM's "internal error"
}

int make_transport(int interface, Transport **transport_p) {
    if (interface / 10000 != nvshmem_abi::plugin_interface / 10000)
        return gic::fail(-ENOTSUP, "the library's plugin interface is %d, this transport's %d", interface,
                         nvshmem_abi::plugin_interface);
    if (!job.fabric)
        return gic::fail(-EINVAL, "prepare() was not called; nothing says which NIC to make");
    static char path[] =
        "/sys/devices/softnic"; // the library looks at paths only to choose among several devices
    static char *paths[] = {path};
    auto *t = new Transport();
    t->interface = interface;
    t->operations.release_mem_handle = release_mem_handle;
    t->operations.finalize = finalize;
    t->operations.show_info = show_info;
    t->device_paths = paths;
    t->attributes = nvshmem_abi::CONNECTED;
    t->n_devices = 1;
    t->is_successfully_initialized = true;
    t->max_operation_bytes = 1u << 30;
    t->host_endian_atomics_from = 8;
    *transport_p = t;
    return 0;
}

int check_job(const Transport *t) {
    const gda_fabric *f = job.fabric;
    if ((uint32_t)t->npes != f->nranks || (uint32_t)t->pe != f->rank)
        return gic::fail(-EINVAL, "PE %d of %d, but prepared for rank %u of %u", t->pe, t->npes, f->rank,
                         f->nranks);
    return 0;
}

int register_region(const Transport *t, void *addr, size_t bytes, bool local_only, Handle *handle,
                    Region *region_p) {
    bool host = false;
    if (int rc = host_memory(addr, &host))
        return rc;
    if (!host && !job.fabric->places.gpu_engine)
        return gic::fail(-ENOTSUP, "%zu bytes at %p are GPU memory, which engine=cpu does not reach: want %s",
                         bytes, addr, local_only ? "host memory" : "NVSHMEM_HEAP_KIND=SYSMEM");
    Region r = {{}, (uint32_t)t->pe, 0, (uint64_t)(uintptr_t)addr, bytes, host, !host && !local_only};
    memcpy(r.magic, magic, sizeof magic);
    // Peers have the host's heaps mapped by the library; a GPU's they must open.
    uint32_t rights = local_only ? (uint32_t)SOFTNIC_LOCAL_WRITE : heap_rights;
    if (!local_only && host)
        rights |= SOFTNIC_PEER_MAPPED;
    if (r.shared)
        if (int rc = softnic_mem_share_gpu(job.fabric->nic, addr, bytes))
            return gic::fail(rc, "%s", softnic_error());
    if (int rc = softnic_mr_register(job.fabric->nic, addr, bytes, rights, &r.key))
        return gic::fail(rc, "%s", softnic_error());
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &r, sizeof r);
    if (!local_only)
        job.heap.push_back(r);
    *region_p = r;
    return 0;
}

int region_of(const Handle *handle, Region *r) {
    memcpy(r, handle, sizeof *r);
    return memcmp(r->magic, magic, sizeof magic)
               ? gic::fail(-EINVAL, "a handle that this transport did not make")
               : 0;
}

// The host's heaps of all PEs lie side by side in one shared memory, which every PE maps whole.
int attach_heaps(const Transport *t, int stride, const Handle *handles, uint64_t offset, size_t bytes) {
    bool shared = false;
    for (int pe = 0; pe < t->npes; pe++) {
        Region r;
        if (int rc = region_of(&handles[pe * stride + t->index], &r))
            return rc;
        shared |= r.shared != 0;
        if (pe == t->pe || r.shared)
            continue;
        if (offset != 0 || r.bytes != bytes)
            return gic::fail(-ENOTSUP,
                             "a heap of PE %d in several registrations (%llu bytes at %llu): want one", pe,
                             (unsigned long long)r.bytes, (unsigned long long)offset);
        auto *here = static_cast<uint8_t *>(t->heap_base) + (int64_t)(pe - t->pe) * (int64_t)bytes;
        if (int rc = softnic_mr_attach(job.fabric->nic, (uint32_t)pe, r.key, here))
            return gic::fail(rc, "%s", softnic_error());
    }
    // Now: to open a peer's memory may wait for kernels, and soon one waits for the NIC.
    if (shared)
        if (int rc = softnic_peers_map(job.fabric->nic))
            return gic::fail(rc, "%s", softnic_error());
    return 0;
}

// ---- for the program that loads it ----

namespace {

int prepare(const struct gic_open *open) {
    return gic::guarded([&]() -> int {
        if (job.fabric)
            return gic::fail(-EALREADY, "the transport is prepared already");
        struct gic_open view = *open;
        std::vector<gic_kv> nic(open->nic_config, open->nic_config + open->nic_config_count);
        if (gda_fabric_places(open).gpu_engine)
            nic.push_back({"presence", "demand"}); // the library waits for the device whenever it likes
        view.nic_config = nic.data();
        view.nic_config_count = (uint32_t)nic.size();
        if (int rc = gda_fabric_probe(&view, cpu_posts))
            return rc;
        job.timeout_ns = open->timeout_ns ? open->timeout_ns : 60000000000u;
        job.leaving = false;
        return gda_fabric_open(&view, SOFTNIC_REAL, 0, &job.fabric);
    });
}

int error() {
    if (!job.fabric)
        return gic::fail(-EINVAL, "the transport is not prepared");
    for (const gda_qp &qp : job.fabric->qps)
        if (const uint8_t syndrome = softnic_qp_syndrome(job.fabric->nic, qp.qpn))
            return gic::fail(-EIO, "error CQE on %s: syndrome 0x%02x", gda_qp_name(qp).c_str(), syndrome);
    const int rc = softnic_engine_error(job.fabric->nic);
    return rc ? gic::fail(rc, "%s", softnic_error()) : 0;
}

void on_error(volatile uint32_t *word) { job.error_word = word; }

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
    for (const Region &r : job.heap)
        if (int rc = softnic_mr_deregister(job.fabric->nic, r.key))
            return gic::fail(rc, "%s", softnic_error());
    job.heap.clear();
    return 0;
}

void release() {
    job.leaving = true;
    Locked no_call;
    gda_fabric_close(job.fabric);
    job.fabric = nullptr;
    job.heap.clear();
}

const char *last_error() { return gic::error_text().c_str(); }

// Looks for an error CQE while a launch lasts: the library's device code may wait on behind one.
struct Watcher {
    pthread_t thread;
    bool running = false;
    std::atomic<bool> stop{false};
} watcher;

void *watch(void *) {
    const struct timespec nap = {0, 5000000};
    while (!watcher.stop) {
        for (const gda_qp &qp : job.fabric->qps)
            if (softnic_qp_syndrome(job.fabric->nic, qp.qpn)) {
                *job.error_word = 1;
                return nullptr;
            }
        nanosleep(&nap, nullptr);
    }
    return nullptr;
}

int begin() {
    if (int rc = gda_fabric_begin(job.fabric))
        return rc;
    if (!job.error_word)
        return 0;
    watcher.stop = false;
    const int error = pthread_create(&watcher.thread, nullptr, watch, nullptr);
    watcher.running = error == 0;
    return error ? gic::fail(-error, "start a thread: %s", strerror(error)) : 0;
}

int end(int fine) {
    if (watcher.running) {
        watcher.stop = true;
        pthread_join(watcher.thread, nullptr);
        watcher.running = false;
    }
    return gda_fabric_end(job.fabric, fine != 0);
}

} // namespace
} // namespace nvshmem_job

GIC_EXPORT const struct gic_nvshmem_transport gic_nvshmem_transport_v1 = {
    sizeof(struct gic_nvshmem_transport),
    nvshmem_job::prepare,
    nvshmem_job::error,
    nvshmem_job::counters,
    nvshmem_job::facts,
    nvshmem_job::withdraw_heap,
    nvshmem_job::release,
    nvshmem_job::last_error,
    nvshmem_job::begin,
    nvshmem_job::end,
    nvshmem_job::on_error,
};
