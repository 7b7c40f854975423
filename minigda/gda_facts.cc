// What a fabric tells of itself: what was really made, what the NIC was asked for, and its trace.
#include "minigda/gda_host.h"

#include "backends/abi/share.h"

#include <string.h>

bool gda_fabric_traced(const struct gda_fabric *f) {
    uint64_t lost;
    size_t count = 0;
    softnic_trace_read(f->nic, nullptr, &count, &lost);
    std::vector<struct softnic_trace> records(count);
    softnic_trace_read(f->nic, records.data(), &count, &lost);
    for (const struct softnic_trace &r : records)
        if (r.kind == SOFTNIC_TRACE_WQE)
            return true;
    return false;
}

namespace {

// Saves what was traced since the last cut, so that each run has a file of its own, and says where.
std::string cut_trace(const gda_fabric *f) {
    if (f->trace == "off" || !gda_fabric_traced(f))
        return f->trace;
    std::string path = f->trace;
    path.insert(path.size() - strlen(".trace"), "-" + std::to_string(f->trace_cuts));
    if (softnic_trace_save(f->nic, path.c_str()) != 0)
        return std::string("not saved: ") + softnic_error();
    f->trace_cuts++;
    softnic_trace_clear(f->nic);
    return path;
}

} // namespace

void gda_fabric_facts(const struct gda_fabric *f, gic::Facts *facts) {
    if (!f->qps.empty()) {
        const gda_qp &qp = f->qps[0];
        facts->set("qps", f->qps.size());
        facts->set("qps_per_peer", f->qps_per_peer);
        facts->set("sq_depth", qp.depth);
        facts->set("cq", qp.collapsed ? std::string("collapsed") : "ring:" + std::to_string(qp.cq_depth));
    }
    const struct gda_places &p = f->places;
    auto place = [](bool on_gpu) { return std::string(on_gpu ? "gpu" : "host"); };
    facts->set("engine", std::string(p.gpu_engine ? "gpu" : "cpu"));
    if (p.gpu_engine) {
        facts->set("engine.sms", p.sms);
        facts->set("engine.warps", 16u);
        facts->set("engine.writes", std::string(p.strict ? "strict" : "runs"));
        facts->set("engine.presence", std::string(p.on_demand ? "demand" : "window"));
    } else {
        facts->set("engine_threads", f->workers);
    }
    if (f->gpu) {
        facts->set("queue", place(p.queues_on_gpu));
        facts->set("window", place(p.window_on_gpu));
    }
    facts->set("watch", f->watch);
    facts->set("doorbell", f->doorbell);
    facts->set("profile", f->profile);
    facts->set("trace", cut_trace(f));
    if (f->gpu)
        gic::add_gpu_facts(facts, *f->gpu);
}

void gda_fabric_counters(struct gda_fabric *f, gic::Counters *counters, struct softnic_counters *all_p) {
    struct softnic_counters c = {};
    // A QP counts once between two calls: what a run used must not depend on the runs before it.
    f->wqes_seen.resize(f->qps.size());
    for (size_t i = 0; i < f->qps.size(); i++) {
        softnic_counters_get(f->nic, f->qps[i].qpn, &c);
        f->qps_used += c.wqes != f->wqes_seen[i];
        f->wqes_seen[i] = c.wqes;
    }
    softnic_counters_get(f->nic, SOFTNIC_ALL_QPS, &c);
    counters->add("wqes", "1", c.wqes, true);
    counters->add("wqe_write", "1", c.wqe_write, true);
    counters->add("wqe_write_inline", "1", c.wqe_write_inline, true);
    counters->add("wqe_read", "1", c.wqe_read, true);
    counters->add("wqe_atomic", "1", c.wqe_atomic, true);
    counters->add("wqe_nop", "1", c.wqe_nop, true);
    counters->add("cqes", "1", c.cqes, true);
    counters->add("error_cqes", "1", c.error_cqes, true);
    counters->add("wqe_bytes", "B", c.wqe_bytes, true);
    counters->add("payload_bytes", "B", c.payload_bytes, true);
    counters->add("qps_used", "1", f->qps_used, true);
    counters->add("doorbells_seen", "1", c.doorbells, false);
    if (all_p)
        *all_p = c;
}
