#include "minigda/gda_replay.h"

#include <errno.h>

#include <algorithm>
#include <map>
#include <set>

namespace {

constexpr uint32_t nobody = ~0u;
constexpr uint32_t long_past = 1u << 30; // so many blocks ago; no program has as many

uint32_t kind_of(gda_replay_part part, uint8_t bits = 0) { return gda_replay_kind(part, bits, 0, 0); }

bool moves_bytes(uint8_t opcode) {
    return opcode == MLX5_OP_RDMA_WRITE || opcode == MLX5_OP_RDMA_READ || opcode == MLX5_OP_ATOMIC_FA ||
           opcode == MLX5_OP_MASKED_FA;
}
// One opcode for all that adds.
uint8_t plain(uint8_t opcode) { return opcode == MLX5_OP_MASKED_FA ? (uint8_t)MLX5_OP_ATOMIC_FA : opcode; }

const char *op_name(gda_replay_op op) {
    static const char *const names[] = {"put", "put_value", "signal", "put_signal", "notify",
                                        "get", "fetch_add", "flush",  "quiet"};
    return names[(uint32_t)op];
}

// Queue pairs that took WQEs: their number among those to the same peer, by their numbers.
std::map<uint32_t, uint32_t> places(const gda_trace &t, uint32_t *per_peer_p) {
    std::set<uint32_t> used;
    for (const struct softnic_trace &r : gda_trace_last_run(t))
        if (r.kind == SOFTNIC_TRACE_WQE)
            used.insert(r.qpn);
    std::map<uint32_t, uint32_t> count, nth;
    *per_peer_p = 1;
    for (const gda_trace_qp &q : t.qps)
        if (used.count(q.qpn) && q.peer < t.ranks) {
            nth[q.qpn] = count[q.peer]++;
            *per_peer_p = std::max(*per_peer_p, count[q.peer]);
        }
    return nth;
}

} // namespace

int gda_replay_needs(const gda_trace &t, uint32_t *qps_per_peer_p, uint32_t *depth_p) {
    if (t.lost)
        return gic::fail(-ENOTSUP, "replay: the trace was full, %llu records are missing",
                         (unsigned long long)t.lost);
    uint32_t depth = 64;
    const auto nth = places(t, qps_per_peer_p);
    for (const gda_trace_qp &q : t.qps)
        if (nth.count(q.qpn))
            depth = std::max(depth, q.depth);
    *depth_p = depth;
    for (const struct softnic_trace &r : gda_trace_last_run(t))
        if (r.kind == SOFTNIC_TRACE_CQE && r.syndrome)
            return gic::fail(-ENOTSUP, "replay: the traced run ended in an error CQE on QP %u", r.qpn);
    return 0;
}

gda_replay::gda_replay(gda *g, const gda_trace &trace, const gda_replay_options &options,
                       const gic_comm *comm)
    : g_(g), trace_(trace), options_(options), comm_(comm) {}

int gda_replay::learn(uint32_t agents, gda_replay_plan *plan_p) {
    agents_ = agents;
    size_t wqes = 0;
    for (const struct softnic_trace &r : trace_.records)
        wqes += r.kind == SOFTNIC_TRACE_WQE;
    // An operation is a WQE at least; flushes and quiets without any come beside.
    capacity_ = (uint32_t)(2 * wqes + 1024);
    mem_ = std::make_unique<gic::Arena>(g_->fabric->gpu.get());
    plan_ = gda_replay_plan{};
    plan_.states = mem_->array<gda_replay_state>(agents);
    plan_.journal = mem_->array<gda_replay_entry>((size_t)agents * capacity_);
    plan_.capacity = capacity_;
    plan_.shared = mem_->array<uint8_t>(g_->fabric->qps.size());
    learned_ = false;
    *plan_p = plan_;
    return 0;
}

// Collective: a rank's own failure, or that another one has failed.
int gda_replay::agree(int rc) const {
    const std::string said = gic::error_text();
    std::vector<int32_t> status(g_->fabric->nranks);
    const int32_t mine = rc;
    if (int failed = comm_->allgather(comm_->arg, &mine, status.data(), sizeof mine))
        return gic::fail(failed, "replay: exchange the ranks' status: %s", strerror(-failed));
    if (rc)
        return gic::fail(rc, "%s", said.c_str());
    for (size_t r = 0; r < status.size(); r++)
        if (status[r])
            return gic::fail(status[r], "replay: rank %zu cannot replay its trace", r);
    return 0;
}

int gda_replay::build() {
    int rc = 0;
    const auto states = mem_->download(plan_.states, agents_);
    const auto all = mem_->download(plan_.journal, (size_t)agents_ * capacity_);
    journal_.assign(agents_, {});
    for (uint32_t a = 0; a < agents_ && rc == 0; a++) {
        if (states[a].overflow)
            rc = gic::fail(-ENOTSUP,
                           "replay: device thread %u does %u operations, more than the trace explains", a,
                           states[a].next);
        else
            journal_[a].assign(all.begin() + (ptrdiff_t)a * capacity_,
                               all.begin() + (ptrdiff_t)a * capacity_ + states[a].next);
    }
    if (rc == 0)
        rc = read_trace();
    if (rc == 0)
        rc = find_bases();
    if (rc == 0)
        rc = tie();
    // What is collective is done by all or by none.
    if ((rc = agree(rc)) != 0)
        return rc;
    if ((rc = rings()) != 0)
        return rc;
    find_scope();
    find_serial();
    if ((rc = agree(lay_out())) != 0)
        return rc;
    learned_ = true;
    return 0;
}

int gda_replay::read_trace() {
    uint32_t per_peer;
    const auto nth = places(trace_, &per_peer);
    if (per_peer > g_->attr.qps)
        return gic::fail(-EINVAL, "replay: the trace has %u QPs to a peer, there are %u", per_peer,
                         g_->attr.qps);
    queues_.assign(g_->fabric->qps.size(), Queue{});
    struct At {
        uint64_t next = 0, waiting = 0, bell_ns = 0; // waiting: first WQE without CQE
        std::vector<uint16_t> bells;
    };
    std::map<uint32_t, At> at;
    std::map<uint32_t, uint32_t> place; // QP number to queue
    for (const gda_trace_qp &q : trace_.qps)
        if (nth.count(q.qpn))
            place[q.qpn] = q.peer * g_->attr.qps + nth.at(q.qpn);
    uint64_t order = 0;
    for (const struct softnic_trace &r : gda_trace_last_run(trace_)) {
        if (!place.count(r.qpn) || r.kind == SOFTNIC_TRACE_MARK)
            continue;
        Queue &q = queues_[place.at(r.qpn)];
        At &here = at[r.qpn];
        if (r.kind == SOFTNIC_TRACE_DOORBELL) {
            here.bells.push_back(r.index);
            here.bell_ns = r.time_ns;
        } else if (r.kind == SOFTNIC_TRACE_WQE) {
            const uint32_t blocks = mlx5_ds_blocks(r.ds);
            if (!q.wqes.empty() &&
                r.index != (uint16_t)(q.wqes.back().record.index + mlx5_ds_blocks(q.wqes.back().record.ds)))
                return gic::fail(-ENOTSUP, "replay: QP %u has a gap before WQE %u", r.qpn, r.index);
            Wqe w{};
            w.record = r;
            w.pos = here.next;
            w.order = order++;
            w.done_ns = UINT64_MAX;
            w.bell_ns = here.bell_ns ? here.bell_ns : r.time_ns;
            w.agent = nobody;
            here.next += blocks;
            const uint16_t end = (uint16_t)(r.index + blocks);
            while (!here.bells.empty() && (int16_t)(here.bells.front() - end) <= 0) {
                w.seen |= here.bells.front() == end;
                here.bells.erase(here.bells.begin());
            }
            q.wqes.push_back(w);
        } else {
            while (here.waiting < q.wqes.size() &&
                   (int16_t)(r.index - q.wqes[here.waiting].record.index) >= 0)
                q.wqes[here.waiting++].done_ns = r.time_ns;
        }
    }
    return 0;
}

// The base of each peer's window: the one under which most WQEs lie where an operation aims.
int gda_replay::find_bases() {
    const uint32_t ranks = g_->fabric->nranks;
    base_.assign(ranks, 0);
    std::vector<std::set<std::pair<uint64_t, uint32_t>>> aims(ranks);
    for (const auto &list : journal_)
        for (const gda_replay_entry &e : list)
            if (e.op < gda_replay_op::flush && e.peer < ranks) {
                using op = gda_replay_op;
                const bool word = e.op == op::signal || e.op == op::put_signal || e.op == op::notify;
                if (e.op != op::signal && !(e.op == op::notify && e.bytes == 8))
                    aims[e.peer].insert({e.at, e.bytes});
                if (word)
                    aims[e.peer].insert({e.sig, 8});
            }
    for (uint32_t peer = 0; peer < ranks; peer++) {
        std::vector<std::pair<uint64_t, uint32_t>> there;
        for (uint32_t i = 0; i < g_->attr.qps; i++)
            for (const Wqe &w : queues_[peer * g_->attr.qps + i].wqes)
                if (moves_bytes(w.record.opcode))
                    there.push_back({w.record.raddr, w.record.bytes});
        if (there.empty())
            continue;
        std::sort(there.begin(), there.end());
        there.erase(std::unique(there.begin(), there.end()), there.end());
        std::map<uint64_t, uint32_t> votes;
        const size_t some = 64;
        for (size_t i = 0; i < there.size() && i < some; i++) {
            const auto &w = there[i * there.size() / std::min(there.size(), some)];
            size_t n = 0;
            for (const auto &aim : aims[peer])
                if (aim.second == w.second && n++ < 4 * some)
                    votes[w.first - aim.first]++;
        }
        uint32_t best = 0;
        for (const auto &candidate : votes) {
            if (candidate.first & 4095) // windows begin on a page
                continue;
            uint32_t hits = 0;
            for (const auto &w : there)
                hits += aims[peer].count({w.first - candidate.first, w.second}) != 0;
            if (hits > best) {
                best = hits;
                base_[peer] = candidate.first;
            }
        }
        if (best == 0 && !aims[peer].empty())
            return gic::fail(-ENOTSUP, "replay: no WQE to rank %u lies where an operation of the kernel aims",
                             peer);
    }
    return 0;
}

int gda_replay::tie() {
    last_.assign((size_t)agents_ * queues_.size(), 0);
    affinity_.assign((size_t)agents_ * g_->fabric->nranks, 0);
    for (uint32_t a = 0; a < agents_; a++)
        for (uint32_t e = 0; e < journal_[a].size(); e++)
            if (int rc = tie_operation(a, e))
                return rc;
    for (Queue &q : queues_) {
        uint32_t first = nobody;
        q.shared = false;
        for (const Wqe &w : q.wqes)
            if (w.agent != nobody) {
                q.shared |= first != nobody && w.agent != first;
                first = w.agent;
            }
    }
    return tie_extras();
}

int gda_replay::tie_operation(uint32_t agent, uint32_t entry) {
    using op = gda_replay_op;
    using part = gda_replay_part;
    const gda_replay_entry &e = entry_of(agent, entry);
    const uint8_t write = MLX5_OP_RDMA_WRITE;
    int rc = 0;
    switch (e.op) {
    case op::put:
        return tie_payload(agent, entry, part::payload, write, e.at, e.bytes, false);
    case op::put_value:
        return tie_payload(agent, entry, part::value, write, e.at, e.bytes, true);
    case op::signal:
        return tie_add(agent, entry, e.sig, part::add);
    case op::put_signal:
        rc = tie_payload(agent, entry, part::payload, write, e.at, e.bytes, false);
        return rc ? rc : tie_add(agent, entry, e.sig, part::add);
    case op::notify:
        if (e.bytes != 8)
            rc = tie_payload(agent, entry, part::payload, write, e.at, e.bytes, false);
        return rc ? rc : tie_payload(agent, entry, part::value, write, e.sig, 8, true);
    case op::get:
        return tie_payload(agent, entry, part::read, MLX5_OP_RDMA_READ, e.at, e.bytes, false);
    case op::fetch_add:
        return tie_add(agent, entry, e.at, part::counter);
    default:
        return 0;
    }
}

// An agent's next WQE of that kind at that place; it stays on the queue it uses.
gda_replay::Wqe *gda_replay::take(uint32_t agent, uint32_t peer, uint8_t opcode, uint64_t at, uint32_t bytes,
                                  bool whole) {
    uint32_t &affinity = affinity_[(size_t)agent * g_->fabric->nranks + peer];
    Wqe *best = nullptr;
    uint32_t best_queue = 0;
    for (uint32_t i = 0; i < g_->attr.qps; i++) {
        const uint32_t qi = peer * g_->attr.qps + i;
        Queue &q = queues_[qi];
        const uint64_t from = last_[(size_t)agent * queues_.size() + qi];
        // WQEs of a queue are by position; the agent's own tied ones lie before `from`.
        auto w = std::lower_bound(q.wqes.begin(), q.wqes.end(), from,
                                  [](const Wqe &x, uint64_t pos) { return x.pos < pos; });
        for (; w != q.wqes.end(); ++w)
            if (!w->used && plain(w->record.opcode) == opcode && w->record.raddr == base_[peer] + at &&
                (w->record.bytes == bytes || (!whole && w->record.bytes < bytes && w->record.bytes)))
                break;
        if (w == q.wqes.end())
            continue;
        const bool mine = affinity == qi + 1, best_mine = best && affinity == best_queue + 1;
        if (!best || (mine && !best_mine) || (mine == best_mine && w->order < best->order)) {
            best = &*w;
            best_queue = qi;
        }
    }
    if (best) {
        affinity = best_queue + 1;
        last_[(size_t)agent * queues_.size() + best_queue] = best->pos + 1;
        best->used = true;
    }
    return best;
}

// The next atomic on the queue that the agent uses at the peer, wherever it aims outside of what operations aim at.
gda_replay::Wqe *gda_replay::take_foreign(uint32_t agent, uint32_t peer) {
    const uint32_t affinity = affinity_[(size_t)agent * g_->fabric->nranks + peer];
    for (uint32_t i = 0; i < g_->attr.qps; i++) {
        const uint32_t qi = peer * g_->attr.qps + i;
        if (affinity && affinity != qi + 1)
            continue;
        uint64_t &last = last_[(size_t)agent * queues_.size() + qi];
        for (Wqe &w : queues_[qi].wqes)
            if (w.pos >= last && !w.used && plain(w.record.opcode) == MLX5_OP_ATOMIC_FA) {
                w.used = true;
                last = w.pos + 1;
                affinity_[(size_t)agent * g_->fabric->nranks + peer] = qi + 1;
                return &w;
            }
    }
    return nullptr;
}

int gda_replay::tie_payload(uint32_t agent, uint32_t entry, gda_replay_part part, uint8_t opcode, uint64_t at,
                            uint32_t bytes, bool whole) {
    const uint32_t peer = entry_of(agent, entry).peer;
    uint32_t delta = 0;
    do {
        Wqe *w = take(agent, peer, opcode, at + delta, bytes - delta, whole);
        if (!w)
            return fail_entry(agent, entry,
                              delta ? "only the beginning of it is in the trace"
                                    : "the trace has no WQE for it");
        w->agent = agent;
        w->entry = entry;
        w->delta = delta;
        w->part = part;
        delta += w->record.bytes;
    } while (delta < bytes);
    return 0;
}

int gda_replay::tie_add(uint32_t agent, uint32_t entry, uint64_t at, gda_replay_part part) {
    const uint32_t peer = entry_of(agent, entry).peer;
    Wqe *w = take(agent, peer, MLX5_OP_ATOMIC_FA, at, 8, true);
    if (!w)
        w = take_foreign(agent, peer);
    if (!w)
        return fail_entry(agent, entry, "the trace has no atomic for its signal");
    w->agent = agent;
    w->entry = entry;
    w->part = part;
    return 0;
}

int gda_replay::fail_entry(uint32_t agent, uint32_t entry, const char *what) const {
    const gda_replay_entry &e = entry_of(agent, entry);
    return gic::fail(-ENOTSUP, "replay: device thread %u, operation %u (%s of %u bytes to rank %u): %s",
                     agent, entry + 1, op_name(e.op), e.bytes, e.peer, what);
}

int gda_replay::tie_extras() {
    using part = gda_replay_part;
    extras_ = 0;
    for (size_t qi = 0; qi < queues_.size(); qi++) {
        std::vector<Wqe> &list = queues_[qi].wqes;
        for (size_t i = 0; i < list.size(); i++) {
            Wqe &w = list[i];
            if (w.agent != nobody)
                continue;
            extras_++;
            size_t next = i;
            while (next < list.size() && list[next].agent == nobody)
                next++;
            if (i == 0 && next == list.size())
                return gic::fail(-ENOTSUP, "replay: no operation of the kernel uses QP %u", w.record.qpn);
            const uint32_t agent = i ? list[i - 1].agent : list[next].agent;
            while (next < list.size() && list[next].agent != agent)
                next++;
            const uint32_t after = i ? list[i - 1].entry : 0;
            const uint32_t before = next < list.size() ? list[next].entry : (uint32_t)journal_[agent].size();
            w.agent = agent;
            w.entry = next < list.size() ? before : after;
            for (uint32_t e = i ? after : 0; e < before; e++) {
                const gda_replay_entry &x = entry_of(agent, e);
                if (x.op == gda_replay_op::quiet ||
                    (x.op == gda_replay_op::flush && x.peer == peer_of((uint32_t)qi))) {
                    w.entry = e;
                    break;
                }
            }
            const uint8_t opcode = w.record.opcode;
            if (opcode == MLX5_OP_NOP)
                w.part = part::nop;
            else if (opcode == MLX5_OP_RDMA_READ && w.record.bytes <= 8)
                w.part = part::touch;
            else if (plain(opcode) == MLX5_OP_ATOMIC_FA)
                w.part = part::nudge;
            else
                return gic::fail(
                    -ENOTSUP,
                    "replay: WQE %u of QP %u (opcode 0x%02x, %u bytes) belongs to no operation of the "
                    "kernel",
                    w.record.index, w.record.qpn, opcode, w.record.bytes);
        }
    }
    return check_order();
}

// What an agent posts to a queue must come in the order of its operations.
int gda_replay::check_order() {
    for (const Queue &q : queues_) {
        std::map<uint32_t, uint32_t> entry;
        for (const Wqe &w : q.wqes) {
            auto known = entry.find(w.agent);
            if (known != entry.end() && w.entry < known->second)
                return fail_entry(w.agent, w.entry,
                                  "the trace has it behind a later operation on the same QP");
            entry[w.agent] = w.entry;
        }
    }
    return 0;
}

// The first entry from that of a WQE on, before entry `before`, in which the agent rings for a batch that is not full.
uint32_t gda_replay::ringing_entry(uint32_t queue, const Wqe &w, uint32_t before) const {
    using op = gda_replay_op;
    for (uint32_t e = w.entry; e < before && e < journal_[w.agent].size(); e++) {
        const gda_replay_entry &x = entry_of(w.agent, e);
        const bool here = x.peer == peer_of(queue);
        if (x.op == op::ring || x.op == op::quiet || (here && (x.op == op::flush || x.op == op::fetch_add)))
            return e;
    }
    return nobody;
}

uint64_t gda_replay::place_rings(const Bells &bells) {
    uint64_t n = 0;
    for (size_t qi = 0; qi < queues_.size(); qi++) {
        Queue &q = queues_[qi];
        uint32_t pending = 0, group = 0;
        for (size_t i = 0; i < q.wqes.size(); i++) {
            Wqe &w = q.wqes[i];
            group++;
            const bool last =
                i + 1 == q.wqes.size() || q.wqes[i + 1].agent != w.agent || q.wqes[i + 1].entry != w.entry;
            if (bells.by_wqe || last) {
                pending += group;
                group = 0;
            }
            w.ring = Wqe::NONE;
            if (bells.by != Bells::MODEL && w.seen)
                w.ring = Wqe::POST;
            if (bells.by != Bells::SEEN && group == 0 && pending >= bells.batch)
                w.ring = Wqe::POST;
            if (bells.by == Bells::MODEL && w.ring == Wqe::NONE && last) {
                size_t next = i + 1; // the agent's
                while (next < q.wqes.size() && q.wqes[next].agent != w.agent)
                    next++;
                w.ring_entry =
                    ringing_entry((uint32_t)qi, w, next < q.wqes.size() ? q.wqes[next].entry : nobody);
                if (w.ring_entry != nobody) // on a shared queue a later doorbell could go back behind others'
                    w.ring = w.ring_entry == w.entry || q.shared ? Wqe::POST : Wqe::LATE;
            }
            if (w.ring != Wqe::NONE)
                pending = group = 0;
            else if (bells.by == Bells::MODEL && w.seen)
                return refuted;
            n += w.ring != Wqe::NONE;
        }
    }
    return n;
}

// Collective.
int gda_replay::rings() {
    std::vector<Bells> choices;
    const uint32_t stated = options_.batch ? options_.batch : 1;
    choices.push_back({Bells::MODEL, false, stated});
    for (auto by : {Bells::MODEL, Bells::SEEN, Bells::EITHER})
        for (bool by_wqe : {false, true})
            for (uint32_t b = 1; b <= 256; b++)
                if (by != Bells::SEEN || (b == 1 && !by_wqe))
                    choices.push_back({by, by_wqe, b});
    std::vector<uint64_t> mine, all(choices.size() * g_->fabric->nranks);
    for (const Bells &c : choices)
        mine.push_back(place_rings(c));
    const size_t bytes = mine.size() * sizeof mine[0];
    if (int rc = comm_->allgather(comm_->arg, mine.data(), all.data(), bytes))
        return gic::fail(rc, "replay: exchange the numbers of doorbells: %s", strerror(-rc));
    uint64_t seen = 0, off = UINT64_MAX;
    const Bells *best = nullptr;
    for (size_t i = 0; i < choices.size() && off != 0; i++) {
        const Bells &c = choices[i];
        uint64_t sum = 0;
        for (size_t r = 0; r < g_->fabric->nranks && sum != refuted; r++) {
            const uint64_t of = all[r * choices.size() + i];
            sum = of == refuted ? refuted : sum + of;
        }
        if (c.by == Bells::SEEN)
            seen = sum;
        const uint64_t want = options_.doorbells;
        const uint64_t far = want == 0        ? (c.by == Bells::SEEN ? 0 : refuted)
                             : sum == refuted ? refuted
                             : sum > want     ? sum - want
                                              : want - sum;
        if (far < off) {
            off = far;
            best = &c;
        }
    }
    if (!best || (off != 0 && (!options_.timed || off * 10 > options_.doorbells)))
        return gic::fail(
            -ENOTSUP,
            "replay: the NICs saw %llu doorbells of %llu that were rung, and no batch explains the rest",
            (unsigned long long)seen, (unsigned long long)options_.doorbells);
    place_rings(*best);
    if (best->by != Bells::SEEN)
        bells_how_ = "one per " + std::to_string(best->batch) +
                     (best->by_wqe ? " WQEs" : " WQEs, by operation") +
                     (off ? ", off by " + std::to_string(off) + " of those rung" : "");
    return 0;
}

// Does each flush wait for what other queues (of its peer, or all) have outstanding?
bool gda_replay::scope_holds(bool all, uint32_t *cases_p) const {
    *cases_p = 0;
    for (size_t qi = 0; qi < queues_.size(); qi++) {
        const std::vector<Wqe> &own = queues_[qi].wqes;
        for (size_t i = 0; i + 1 < own.size(); i++) {
            const Wqe &before = own[i];
            if (own[i + 1].agent != before.agent || own[i + 1].entry == before.entry)
                continue;
            bool flushed = false;
            for (uint32_t e = before.entry; e < own[i + 1].entry && !flushed; e++) {
                const gda_replay_entry &x = entry_of(before.agent, e);
                flushed = x.op == gda_replay_op::quiet ||
                          (x.op == gda_replay_op::flush && x.peer == peer_of((uint32_t)qi));
            }
            for (size_t other = 0; flushed && other < queues_.size(); other++) {
                if (other == qi || (!all && peer_of((uint32_t)other) != peer_of((uint32_t)qi)))
                    continue;
                for (const Wqe &w : queues_[other].wqes) {
                    if (w.bell_ns > before.bell_ns)
                        break;
                    if (!(w.record.fm_ce_se & MLX5_CTRL_CQ_UPDATE) || w.agent == before.agent ||
                        w.done_ns <= before.done_ns)
                        continue;
                    (*cases_p)++;
                    if (w.done_ns > own[i + 1].bell_ns)
                        return false;
                }
            }
        }
    }
    return *cases_p >= scope_evidence;
}

void gda_replay::find_scope() {
    if (options_.scope >= 0) {
        scope_ = (gda_scope)options_.scope;
        scope_how_ = "asked for";
        return;
    }
    uint32_t cases = 0;
    const bool all = scope_holds(true, &cases);
    const uint32_t of_all = cases;
    const bool peer = scope_holds(false, &cases);
    // Every case for all is one for peer if they are of the same peer: the narrower one explains it as well then.
    if (peer && !(all && of_all > cases))
        scope_ = gda_scope::peer;
    else
        scope_ = all ? gda_scope::all : gda_scope::qp;
    scope_how_ = scope_ == gda_scope::qp
                     ? "no wider one is borne out by the trace"
                     : "borne out " + std::to_string(all ? of_all : cases) + " times, never refuted";
}

// Are WQEs beside the operations posted behind the CQEs of other queues, in every quiet?
void gda_replay::find_serial() {
    uint32_t cases = 0;
    serial_ = false;
    std::map<std::pair<uint32_t, uint32_t>, std::vector<const Wqe *>> quiets;
    for (const Queue &q : queues_)
        for (const Wqe &w : q.wqes)
            if (entry_of(w.agent, w.entry).op == gda_replay_op::quiet)
                quiets[{w.agent, w.entry}].push_back(&w);
    for (auto &one : quiets) {
        auto &list = one.second;
        std::sort(list.begin(), list.end(), [](const Wqe *x, const Wqe *y) { return x->order < y->order; });
        for (size_t i = 1; i < list.size(); i++) {
            if (list[i]->record.qpn == list[i - 1]->record.qpn)
                continue;
            if (list[i]->bell_ns < list[i - 1]->done_ns)
                return;
            cases++;
        }
    }
    serial_ = cases >= serial_evidence;
}

gda_replay::Step gda_replay::step_of(const Placed &placed) const {
    const Wqe &w = *placed.wqe;
    const std::vector<Wqe> &q = queues_[placed.queue].wqes;
    Step step{};
    gda_replay_item &i = step.item;
    i.queue = placed.queue;
    i.pos = (uint32_t)w.pos;
    step.more.delta = w.delta;
    step.more.bytes = w.record.bytes;
    for (size_t k = (size_t)(&w - q.data()) + 1; k-- > 0 && !step.more.signaled;)
        if (q[k].record.fm_ce_se & MLX5_CTRL_CQ_UPDATE)
            step.more.signaled = (uint32_t)q[k].pos + 1;
    uint8_t bits = 0;
    if (w.record.flags & SOFTNIC_TRACE_INLINE)
        bits |= GDA_REPLAY_INLINE;
    if (w.ring == Wqe::POST)
        bits |= GDA_REPLAY_RING;
    if (w.delta == 0 && w.record.bytes == entry_of(w.agent, w.entry).bytes)
        bits |= GDA_REPLAY_WHOLE;
    if (step.more.signaled == i.pos + 1)
        bits |= GDA_REPLAY_SELF;
    i.kind = gda_replay_kind(w.part, bits, w.record.fm_ce_se, (uint8_t)mlx5_ds_blocks(w.record.ds));
    const uint64_t end = w.pos + i.blocks(), depth = g_->fabric->qps[placed.queue].depth;
    if (end > depth) {
        // The WQE that has the last of the blocks which this one takes.
        auto in_way = std::upper_bound(q.begin(), q.end(), end - depth - 1,
                                       [](uint64_t pos, const Wqe &x) { return pos < x.pos; });
        i.room = (uint32_t)(in_way - 1)->pos + 1;
    }
    return step;
}

void gda_replay::put_await(Placed *placed) {
    steps_.push_back({{(uint32_t)placed->wqe->pos, 0, placed->queue, kind_of(gda_replay_part::await)}, {}});
    placed->wqe = nullptr;
}

// The WQE whose CQE completes an agent's last one: itself, or the next one that asks for a CQE if others posted all in
// between (who need not wait for this agent: they did not in the trace).
const gda_replay::Wqe *gda_replay::completed_by(const Placed &placed) const {
    const std::vector<Wqe> &q = queues_[placed.queue].wqes;
    for (const Wqe *w = placed.wqe; w != q.data() + q.size(); w++) {
        if (w != placed.wqe && w->agent == placed.wqe->agent)
            return nullptr;
        if (w->record.fm_ce_se & MLX5_CTRL_CQ_UPDATE)
            return w;
    }
    return nullptr;
}

// One entry: doorbells that were left to it, its WQEs in the order of the trace, what it waits for. `last`: by queue,
// the agent's last WQE that was not waited for.
int gda_replay::lay_out_entry(uint32_t agent, uint32_t entry, std::vector<Placed> list,
                              std::vector<Placed> *last) {
    using op = gda_replay_op;
    const gda_replay_entry &x = entry_of(agent, entry);
    std::vector<Placed> &rung = late_[{agent, entry}];
    std::stable_sort(rung.begin(), rung.end(),
                     [](const Placed &a, const Placed &b) { return a.wqe->bell_ns < b.wqe->bell_ns; });
    for (const Placed &late : rung) {
        Step step = step_of(late);
        step.item.pos += step.item.blocks();
        step.item.kind = kind_of(gda_replay_part::ring);
        steps_.push_back(step);
    }
    std::sort(list.begin(), list.end(),
              [](const Placed &a, const Placed &b) { return a.wqe->order < b.wqe->order; });
    for (const Placed &p : list) {
        for (Placed &other : *last)
            if (serial_ && x.op == op::quiet && other.wqe && other.queue != p.queue &&
                other.wqe->done_ns <= p.wqe->bell_ns)
                put_await(&other);
        steps_.push_back(step_of(p));
        if (p.wqe->ring == Wqe::LATE)
            late_[{agent, p.wqe->ring_entry}].push_back(p);
        (*last)[p.queue] = p;
    }
    if (x.op != op::flush && x.op != op::quiet && x.op != op::fetch_add)
        return 0;
    for (Placed &p : *last) {
        if (!p.wqe || (x.op != op::quiet && peer_of(p.queue) != x.peer))
            continue;
        if (x.op == op::fetch_add && !(p.wqe->record.fm_ce_se & MLX5_CTRL_CQ_UPDATE))
            continue; // it waits for its own alone
        p.wqe = completed_by(p);
        if (!p.wqe)
            return fail_entry(agent, entry, "nothing behind the last WQE asks for the CQE to wait for");
        put_await(&p);
    }
    return 0;
}

// GDA_REPLAY_SHORT, of an item that is alone in its entry. A payload of 8 bytes goes by value where it is aligned.
bool gda_replay::short_way(const gda_replay_entry &e, const gda_replay_item &i) const {
    using op = gda_replay_op;
    if (i.blocks() != 1 || !(i.bits() & GDA_REPLAY_WHOLE) || queues_[i.queue].shared ||
        ((i.bits() & GDA_REPLAY_RING) && !(i.bits() & GDA_REPLAY_SELF)))
        return false;
    const bool carried = (i.bits() & GDA_REPLAY_INLINE) != 0;
    if (e.op == op::put)
        return i.part() == gda_replay_part::payload && e.bytes != 0 &&
               (!carried || (e.bytes == 8 && e.low == 0));
    return (e.op == op::put_value || e.op == op::notify) && i.part() == gda_replay_part::value && carried &&
           e.bytes == 8;
}

int gda_replay::lay_out() {
    std::vector<std::vector<std::vector<Placed>>> by(agents_);
    for (uint32_t a = 0; a < agents_; a++)
        by[a].resize(journal_[a].size());
    for (size_t q = 0; q < queues_.size(); q++)
        for (const Wqe &w : queues_[q].wqes)
            by[w.agent][w.entry].push_back({&w, (uint32_t)q});
    starts_.clear();
    steps_.clear();
    late_.clear();
    for (uint32_t a = 0; a < agents_; a++) {
        starts_.push_back((uint32_t)steps_.size());
        std::vector<Placed> last(queues_.size(), Placed{nullptr, 0});
        for (uint32_t e = 0; e < journal_[a].size(); e++) {
            const size_t before = steps_.size();
            if (int rc = lay_out_entry(a, e, by[a][e], &last))
                return rc;
            if (steps_.size() == before)
                steps_.push_back({{0, 0, 0, kind_of(gda_replay_part::nothing)}, {}});
            gda_replay_item &last_item = steps_.back().item;
            last_item.kind |= kind_of({}, GDA_REPLAY_LAST);
            if (steps_.size() == before + 1 && short_way(entry_of(a, e), last_item))
                last_item.kind |= kind_of({}, GDA_REPLAY_SHORT);
        }
        steps_.push_back({{0, 0, 0, kind_of(gda_replay_part::end)}, {}});
    }
    return 0;
}

int gda_replay::replay(uint32_t agents, gda_replay_plan *plan_p) {
    if (!learned_ || agents != agents_)
        return gic::fail(-EINVAL, "replay: %u device threads, learned %u", agents, learned_ ? agents_ : 0);
    mem_ = std::make_unique<gic::Arena>(g_->fabric->gpu.get());
    std::vector<uint32_t> bases;
    std::vector<uint8_t> shared;
    for (size_t i = 0; i < queues_.size(); i++) {
        bases.push_back(g_->queues[i].reserved);
        shared.push_back(queues_[i].shared);
    }
    std::vector<gda_replay_item> items;
    std::vector<gda_replay_more> more;
    for (const Step &step : steps_) {
        const uint32_t base = bases[step.item.queue], room = step.item.room ? step.item.room : -long_past;
        items.push_back({base + step.item.pos, base + room, step.item.queue, step.item.kind});
        more.push_back(step.more);
    }
    plan_ = gda_replay_plan{};
    std::vector<gda_replay_state> states(agents);
    for (uint32_t a = 0; a < agents; a++)
        states[a].next = starts_[a];
    plan_.states = mem_->upload(states.data(), states.size());
    plan_.replaying = 1;
    plan_.items = mem_->upload(items.data(), items.size());
    plan_.more = mem_->upload(more.data(), more.size());
    plan_.bases = mem_->upload(bases.data(), bases.size());
    plan_.shared = mem_->upload(shared.data(), shared.size());
    *plan_p = plan_;
    return 0;
}

// The queues go on behind the trace.
void gda_replay::done() {
    for (size_t i = 0; i < queues_.size(); i++) {
        const std::vector<Wqe> &list = queues_[i].wqes;
        if (list.empty())
            continue;
        gda_queue &q = g_->queues[i];
        const uint32_t base = q.reserved;
        const Wqe &last = list.back();
        q.reserved = q.rung = base + (uint32_t)last.pos + mlx5_ds_blocks(last.record.ds);
        for (size_t k = list.size(); k-- > 0;)
            if (list[k].record.fm_ce_se & MLX5_CTRL_CQ_UPDATE) {
                const uint32_t end = base + (uint32_t)list[k].pos + 1;
                q.cons = gda_after(end, q.cons) ? end : q.cons;
                break;
            }
        q.turn = gda_turn_word(q.reserved, 0);
        q.pending = 0;
    }
    learned_ = false;
}

void gda_replay::facts(gic::Facts *facts) const {
    uint64_t wqes = 0;
    uint32_t used = 0, shared = 0;
    for (const Queue &q : queues_) {
        wqes += q.wqes.size();
        used += !q.wqes.empty();
        shared += q.shared;
    }
    static const char *const scopes[] = {"qp", "peer", "all"};
    facts->set("replay.wqes", wqes);
    facts->set("replay.qps", used);
    facts->set("replay.qps_shared", shared);
    facts->set("replay.extra_wqes", extras_);
    facts->set("replay.scope", std::string(scopes[(uint32_t)scope_]));
    facts->set("replay.scope.how", scope_how_);
    facts->set("replay.doorbells.how", bells_how_);
}
