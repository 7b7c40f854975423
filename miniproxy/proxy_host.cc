#include "miniproxy/proxy_worker.h"

#include <errno.h>

namespace proxy {

namespace {

bool power_of_two(uint32_t v) { return v != 0 && (v & (v - 1)) == 0; }

int in_range(const char *what, uint32_t v, uint32_t low, uint32_t high) {
    if (v < low || v > high)
        return gic::fail(-EINVAL, "%s=%u: allowed are %u..%u", what, v, low, high);
    return 0;
}

int check(const struct gda_fabric *fabric, const Attr &a) {
    int rc;
    if ((rc = in_range("rings", a.rings, 1, MAX_RINGS)) ||
        (rc = in_range("workers", a.workers, 1, MAX_WORKERS)) ||
        (rc = in_range("batch", a.batch, 1, MAX_BATCH)) || (rc = in_range("qps", a.qps, 1, MAX_QPS)) ||
        (rc = in_range("inline", a.inline_max, 0, MAX_INLINE)) ||
        (rc = in_range("rest_ns", a.rest_ns, 0, MAX_REST_NS)) ||
        (rc = in_range("ring_depth", a.ring_depth, MIN_RING_DEPTH, MAX_RING_DEPTH)))
        return rc;
    if (!power_of_two(a.ring_depth))
        return gic::fail(-EINVAL, "ring_depth=%u: not a power of two", a.ring_depth);
    if (fabric->nranks > MAX_PEERS)
        return gic::fail(-ENOTSUP, "%u ranks: a descriptor names at most %u peers", fabric->nranks,
                         MAX_PEERS);
    if (fabric->qps_per_peer < a.workers * a.qps)
        return gic::fail(-EINVAL, "%u QPs per peer for %u workers: each worker needs %u",
                         fabric->qps_per_peer, a.workers, a.qps);
    for (const struct gda_qp &qp : fabric->qps)
        if (qp.collapsed || qp.cq_depth < qp.depth)
            return gic::fail(-EINVAL, "QP 0x%x: its CQ must be a ring of at least the SQ's %u entries",
                             qp.qpn, qp.depth);
    return 0;
}

} // namespace

Host::Host(struct gda_fabric *fabric, const Attr &attr)
    : fabric_(fabric), attr_(attr), error_(new Error), gate_(new Gate{fabric->nic}) {}

int Host::create(struct gda_fabric *fabric, const Attr &attr, std::unique_ptr<Host> *host_p) {
    if (int rc = check(fabric, attr))
        return rc;
    std::unique_ptr<Host> host(new Host(fabric, attr));
    if (int rc = host->allocate())
        return rc;
    for (uint32_t w = 0; w < attr.workers; w++)
        host->workers_.push_back(std::make_unique<Worker>(*host, w));
    *host_p = std::move(host);
    return 0;
}

Host::~Host() = default;

int Host::allocate() {
    Rings &r = rings_;
    void *slots, *progress, *producer, *open, *results, *values = nullptr;
    int rc;
    r.count = attr_.rings;
    r.shift = (uint32_t)__builtin_ctz(attr_.ring_depth);
    r.mask = attr_.ring_depth - 1;
    r.shared = attr_.shared;
    r.put_max = attr_.inline_only ? attr_.inline_max : MAX_BYTES;
    r.result_slots = attr_.shared ? MAX_SHARED_AGENTS : attr_.rings;
    // One slot more: where the old values of signals land.
    size_t result_bytes = (r.result_slots + 1) * sizeof(uint64_t);
    if ((rc = gda_fabric_alloc(fabric_, sizeof(Descriptor) * r.count << r.shift, &slots, nullptr)) ||
        (rc = gda_fabric_alloc(fabric_, sizeof(Progress) * r.count, &progress, nullptr)) ||
        (rc = gda_fabric_alloc(fabric_, sizeof(Producer) * r.count, &producer, nullptr)) ||
        (rc = gda_fabric_alloc(fabric_, MAX_RINGS, &open, nullptr)) ||
        (rc = gda_fabric_alloc(fabric_, result_bytes, &results, &results_key_)))
        return rc;
    size_t value_bytes =
        sizeof(uint64_t) * attr_.workers * attr_.qps * fabric_->nranks * fabric_->qps[0].depth;
    if (attr_.inline_max < sizeof(uint64_t) &&
        (rc = gda_fabric_alloc(fabric_, value_bytes, &values, &values_key_)) != 0)
        return rc;
    values_ = (uint64_t *)values;
    r.slots = (Descriptor *)slots;
    r.progress = (Progress *)progress;
    r.producer = device_producer_ = (Producer *)producer;
    r.posted = attr_.posted;
    r.held = attr_.hold_ns != 0;
    if (fabric_->gpu) {
        void *device;
        if ((rc = fabric_->gpu->alloc(sizeof(Producer) * r.count, &device)) != 0)
            return rc;
        device_producer_ = (Producer *)device;
    }
    r.open = (uint8_t *)open;
    r.results = (uint64_t *)results;
    return 0;
}

int Host::start() {
    for (auto &w : workers_)
        if (int rc = w->start())
            return rc;
    return 0;
}

size_t Host::step(uint32_t worker) { return workers_.at(worker)->step(); }

void Host::hold() {
    if (attr_.hold_ns)
        gate_->set(true);
}

void Host::release() {
    if (attr_.hold_ns)
        gate_->set(false);
}

int Host::begin() {
    if (!fabric_->gpu)
        return 0;
    return fabric_->gpu->upload(device_producer_, rings_.producer, sizeof(Producer) * rings_.count);
}

int Host::end() {
    if (!fabric_->gpu)
        return 0;
    return fabric_->gpu->download(rings_.producer, device_producer_, sizeof(Producer) * rings_.count);
}

int Host::drain(const gic::Env &env) {
    for (uint32_t r = 0; r < rings_.count; r++) {
        const Progress *p = &rings_.progress[r];
        uint64_t head = gic::load_relaxed(&rings_.producer[r].head);
        for (gic::Spin spin(env); gic::load_acquire(&p->completed) < head;) {
            if (int s = gic::load_relaxed(&p->status))
                return s;
            if (int s = spin.failed())
                return s;
        }
        if (int s = gic::load_relaxed(&p->status))
            return s;
    }
    return gic::OK;
}

std::string Host::error() const {
    std::lock_guard<std::mutex> hold(error_->lock);
    return error_->text;
}

Stats Host::stats() const {
    Stats sum{};
    for (const auto &w : workers_) {
        Stats s = w->stats();
        sum.descriptors += s.descriptors;
        sum.wqes += s.wqes;
        sum.doorbells += s.doorbells;
    }
    return sum;
}

} // namespace proxy
