#include "miniproxy/proxy_worker.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <system_error>

namespace proxy {

static_assert(MAX_INLINE == GDA_INLINE_MAX, "the floors take the same values of `inline`");

namespace {

// The NIC reads WQEs after it has seen the doorbell record or the doorbell. Without this order it could fetch
// a block that is still half the previous lap's. A store to a real UAR would also need the write-combining
// buffer drained; softnic's doorbell is ordinary memory.
void store_to_nic(__be32 *word, __be32 v) { __atomic_store_n(word, v, __ATOMIC_RELEASE); }
void store_to_nic(uint64_t *word, uint64_t v) { __atomic_store_n(word, v, __ATOMIC_RELEASE); }

constexpr uint64_t BLOCKS_AHEAD = 8;
constexpr uint32_t PER_LINE = 64 / sizeof(Descriptor), TAKEN_PER_LOOK = 64, RING_PARTS = 8;

// The builtin, built for any x86-64, asks for the line to read, and the store would ask once more.
void prefetch_to_store(const void *line) {
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" ::"m"(*(const char *)line));
#else
    __builtin_prefetch(line, 1);
#endif
}

// One writer each; readers (stats) want no more than a whole value.
void bump(std::atomic<uint64_t> &counter, uint64_t by) {
    counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

__attribute__((format(printf, 1, 2))) std::string text(const char *fmt, ...) {
    char buf[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    return buf;
}

} // namespace

Host::Worker::Worker(const Host &host, uint32_t index)
    : fabric_(host.fabric_), attr_(host.attr_), index_(index), results_(host.rings_.results),
      result_slots_(host.rings_.result_slots), results_key_(host.results_key_), values_key_(host.values_key_),
      put_max_(host.rings_.put_max), error_(host.error_.get()), gate_(host.gate_.get()),
      shift_(host.rings_.shift) {
    for (uint32_t i = 0; i < fabric_->nranks * attr_.qps; i++) {
        const uint32_t peer = i / attr_.qps, own = index * attr_.qps + i % attr_.qps;
        const struct gda_qp *qp = &fabric_->qps[peer * fabric_->qps_per_peer + own];
        const size_t first = ((size_t)index * fabric_->nranks * attr_.qps + i) * qp->depth;
        queues_.push_back(
            Queue{qp, host.values_ ? host.values_ + first : nullptr, 0, 0, 0, 0, nullptr, 0, false, false});
    }
    for (uint32_t r = index; r < attr_.rings; r += attr_.workers)
        rings_.push_back(Ring{r, r / attr_.workers % attr_.qps, host.rings_.slots + ((size_t)r << shift_),
                              ((uint64_t)1 << shift_) - 1, host.rings_.progress + r, host.rings_.open + r, 0,
                              0, 0, 0, 0, false, std::vector<Span>((size_t)1 << shift_)});
}

int Host::Worker::start() {
    try {
        thread_ = std::thread([this] { run(); });
    } catch (const std::system_error &e) {
        return gic::fail(-EAGAIN, "start worker %u: %s", index_, e.what());
    }
    return 0;
}

void Host::Worker::stop() {
    quit_.store(true, std::memory_order_relaxed);
    if (thread_.joinable())
        thread_.join();
}

Stats Host::Worker::stats() const {
    return Stats{descriptors_.load(std::memory_order_relaxed), wqes_.load(std::memory_order_relaxed),
                 doorbells_.load(std::memory_order_relaxed)};
}

// Polls hot while there is work, then yields, and after a millisecond without any sleeps, longer each time: a
// proxy shares its processors with the device threads and the software NIC.
void Host::Worker::run() {
    constexpr uint64_t QUIET_NS = 1000000, SLEEP_MIN_NS = 1000, SLEEP_MAX_NS = 50000;
    uint32_t idle = 0;
    uint64_t since = 0, sleep = SLEEP_MIN_NS;
    while (!quit_.load(std::memory_order_relaxed)) {
        if (step() != 0) {
            idle = 0;
            since = 0;
            sleep = SLEEP_MIN_NS;
            continue;
        }
        gic::pause(idle++);
        // Each look takes the line that a device is about to write away from it.
        for (const uint64_t until = attr_.rest_ns ? gic::globaltimer() + attr_.rest_ns : 0;
             until && gic::globaltimer() < until;)
            gic::pause(0);
        if (idle < 64)
            continue;
        uint64_t now = gic::globaltimer();
        if (since == 0)
            since = now;
        if (now - since < QUIET_NS)
            continue;
        struct timespec ts = {0, (long)sleep};
        nanosleep(&ts, nullptr);
        sleep = std::min(sleep * 2, SLEEP_MAX_NS);
    }
}

size_t Host::Worker::step() {
    const size_t taken = sweep();
    size_t seen = 0;
    // While there is work the CQs can wait: each look at a CQE that has come is a line from another processor.
    unlooked_ += taken;
    if (taken == 0 || unlooked_ >= TAKEN_PER_LOOK) {
        unlooked_ = 0;
        seen = retire();
    }
    if (attr_.hold_ns)
        move_gate(taken);
    return seen + taken;
}

// Up to a batch from each ring.
size_t Host::Worker::sweep() {
    const uint32_t rings = (uint32_t)rings_.size();
    size_t taken = 0;
    for (uint32_t i = 0, at = first_; i < rings; i++) {
        Ring &r = rings_[at];
        at = at + 1 == rings ? 0 : at + 1;
        const Ring &next = rings_[at];
        // A device wrote them, so they are in nobody's cache: they come while this ring is served.
        const uint64_t soon = next.consumed + (rings == 1 ? attr_.batch : 0);
        for (uint32_t n = 0; n < attr_.batch; n += PER_LINE)
            __builtin_prefetch(&next.slots[(soon + n) & next.mask]);
        if (gic::load_relaxed(r.open))
            taken += take_from(r);
    }
    if (rings)
        first_ = first_ + 1 == rings ? 0 : first_ + 1;
    if (taken) {
        for (Queue &q : queues_)
            announce(q);
        bump(descriptors_, taken);
    }
    if (attr_.hold_ns) // what producers are told of has been announced
        for (Ring &r : rings_)
            tell(r);
    return taken;
}

void Host::Worker::tell(Ring &r) {
    if (r.consumed != r.told)
        gic::store_release(&r.progress->consumed, r.told = r.consumed);
}

void Host::Worker::move_gate(size_t taken) {
    bool posting = taken != 0, waiting = false;
    if (posting)
        idle_since_ = 0;
    else if (posting_ && idle_since_ == 0)
        posting = (idle_since_ = gic::globaltimer()) != 0;
    else if (posting_)
        posting = gic::globaltimer() - idle_since_ < attr_.hold_ns;
    for (const Queue &q : queues_)
        waiting = waiting || (q.done_idx != q.prod_idx && !q.failed);
    if (posting != posting_ || waiting != waiting_)
        gate_->change(posting - posting_, waiting - waiting_);
    posting_ = posting;
    waiting_ = waiting;
}

// Poll the CQs, then publish what that completes.
size_t Host::Worker::retire() {
    size_t seen = 0;
    for (Queue &q : queues_)
        if (q.done_idx != q.prod_idx)
            seen += poll(q);
    for (Ring &r : rings_)
        if (r.first != r.next || r.failed)
            complete(r);
    return seen;
}

size_t Host::Worker::poll(Queue &q) {
    const struct gda_qp &qp = *q.qp;
    size_t seen = 0;
    for (;; seen++, q.cons_idx++) {
        const struct mlx5_cqe *cqe = &qp.cqe[q.cons_idx & (qp.cq_depth - 1)];
        // The rest of the CQE is read only once its owner bit says that it is there.
        uint8_t op_own = __atomic_load_n(&cqe->op_own, __ATOMIC_ACQUIRE);
        if (!mlx5_op_own_ready(op_own, q.cons_idx, qp.cq_depth))
            break;
        uint16_t counter = mlx5_cqe_wqe_counter(cqe);
        if (mlx5_op_own_opcode(op_own) != MLX5_CQE_OP_REQ) {
            const struct mlx5_cqe_err *err = (const struct mlx5_cqe_err *)cqe;
            if (!q.failed)
                error_->set(text("QP 0x%x to rank %u: error CQE for WQE %u, syndrome 0x%02x", qp.qpn, qp.peer,
                                 counter, err->syndrome));
            q.failed = true;
            continue;
        }
        // The CQE names the first block of its WQE; all blocks up to its end are done.
        uint64_t first = q.done_idx + (uint16_t)(counter - (uint16_t)q.done_idx);
        struct mlx5_ctrl_seg ctrl;
        memcpy(&ctrl, block(q, first), sizeof ctrl);
        q.done_idx = first + mlx5_ds_blocks(mlx5_ctrl_ds(&ctrl));
    }
    if (seen)
        store_to_nic(qp.cq_dbrec, mlx5_be32((uint32_t)q.cons_idx & 0xffffff));
    return seen;
}

void Host::Worker::complete(Ring &r) {
    uint64_t at = r.completed;
    while (r.first != r.next && !r.failed) {
        const Span &s = r.spans[r.first & r.mask];
        if (s.queue->done_idx >= s.end) {
            at = s.upto;
            r.first++;
        } else if (s.queue->failed) {
            give_up(r, "");
        } else {
            break;
        }
    }
    if (r.failed) {
        at = r.consumed;
        r.first = r.next;
    }
    if (at != r.completed)
        gic::store_release(&r.progress->completed, r.completed = at);
}

// What a ring holds from here on is dropped. `why` is empty when the cause has been told already.
void Host::Worker::give_up(Ring &r, const std::string &why) {
    if (!why.empty())
        error_->set(text("ring %u, descriptor %llu: ", r.index, (unsigned long long)r.consumed) + why);
    r.failed = true;
    gic::store_relaxed(&r.progress->status, (int32_t)gic::ERR_IO);
}

// Up to a batch from one ring.
size_t Host::Worker::take_from(Ring &r) {
    const uint64_t before = r.consumed;
    uint32_t n = 0;
    while (n < attr_.batch) {
        n += take_words(r, attr_.batch - n);
        if (n == attr_.batch || take_one(r) == 0)
            break;
        n++;
    }
    // A producer that waits for room reads the line that this store takes away from it, or from its device.
    if (!attr_.hold_ns && (n < attr_.batch || r.consumed - r.told > r.mask / RING_PARTS))
        tell(r);
    if (r.failed)
        complete(r);
    return r.consumed - before;
}

// The ring's descriptors below `upto` need what has been posted to `q`.
void Host::Worker::note(Ring &r, Queue &q, uint64_t upto) {
    Span *last = &r.spans[(r.next - 1) & r.mask];
    if (r.first == r.next || last->queue != &q || last->end <= q.rung_idx)
        last = &r.spans[r.next++ & r.mask];
    *last = Span{&q, q.prod_idx, upto};
}

gda_place Host::Worker::place(const Queue &q, uint32_t peer) const {
    const struct gda_peer &to = fabric_->peers[peer];
    return {q.qp->sq, q.qp->depth - 1, mlx5_ctrl_word1(q.qp->qpn, 0), mlx5_be32(to.rkey), to.window};
}

// The puts of one word that travel in their WQE, at the front of the ring: what take_one() makes of them, with all that
// does not change from one to the next kept in registers. Stops at whatever else there is, for take_one() to look at.
uint32_t Host::Worker::take_words(Ring &r, uint32_t most) {
    constexpr uint32_t word = sizeof(uint64_t);
    // All of a descriptor but phase, peer and offsets.
    const Descriptor fixed = pack(Fields{Op::put, MAX_PEERS - 1, MAX_OFFSET - 1, MAX_OFFSET - 1, word, 0});
    const uint64_t peers = (uint64_t)(MAX_PEERS - 1) << PEER_SHIFT,
                   offsets = (MAX_OFFSET - 1) << OFFSET_SHIFT, window = fabric_->window_bytes;
    if (attr_.inline_max < word || put_max_ < word || window < word || r.failed)
        return 0;
    const uint8_t *const mine = fabric_->window;
    const uint64_t from = r.consumed, limit = window - word;
    uint64_t at = from, room = 0;
    uint32_t peer = UINT32_MAX;
    Queue *q = nullptr;
    gda_place to{};
    for (; at - from < most; at++) {
        Descriptor d;
        if (!take(&r.slots[at & r.mask], phase_of(at, shift_), &d))
            break;
        const uint32_t whom = (uint32_t)(d.head >> PEER_SHIFT) & (MAX_PEERS - 1);
        const uint64_t dst = d.head >> OFFSET_SHIFT, src = d.tail >> OFFSET_SHIFT;
        if ((((d.head | peers | offsets | 1) ^ (fixed.head | 1)) |
             ((d.tail | offsets | 1) ^ (fixed.tail | 1))) != 0 ||
            dst > limit || src > limit)
            break;
        if (whom != peer) {
            if (whom >= fabric_->nranks)
                break;
            if (q && at != r.consumed) {
                note(r, *q, at);
                r.consumed = at;
            }
            q = &queues_[whom * attr_.qps + r.queue];
            if (q->failed || q->fence || r.next - r.first + 2 > r.mask)
                break;
            peer = whom;
            to = place(*q, peer);
            room = q->qp->depth - (q->prod_idx - q->done_idx);
        }
        if (room-- == 0)
            break;
        uint64_t value;
        memcpy(&value, mine + src, word);
        gda_write_value(to, (uint32_t)q->prod_idx, 0, dst, value, word);
        posted(*q, 1);
        if (q->unrung == attr_.batch) {
            note(r, *q, r.consumed = at + 1);
            announce(*q);
        }
    }
    if (q && at != r.consumed)
        note(r, *q, r.consumed = at);
    return (uint32_t)(at - from);
}

// One operation. Returns the slots it took; 0 when there is none, or no room for it yet.
uint32_t Host::Worker::take_one(Ring &r) {
    uint64_t at = r.consumed;
    Descriptor d, d2;
    uint32_t slots = 1;
    if (r.next - r.first + 2 > r.mask || !take(&r.slots[at & r.mask], phase_of(at, shift_), &d))
        return 0;
    Fields f = unpack(d), operand{};
    if (r.failed) {
        r.consumed++;
        return 1;
    }
    if (f.op == Op::fetch_add) {
        if (!take(&r.slots[(at + 1) & r.mask], phase_of(at + 1, shift_), &d2))
            return 0;
        operand = unpack(d2);
        slots = 2;
    }
    if (!plain_put(f) || queues_[f.peer * attr_.qps + r.queue].failed) {
        std::string wrong = check(f, slots == 2 ? &operand : nullptr);
        if (wrong.empty() && queues_[f.peer * attr_.qps + r.queue].failed)
            wrong = text("the QP to rank %u is in error", f.peer);
        if (!wrong.empty()) {
            give_up(r, wrong);
            r.consumed += slots;
            return slots;
        }
    }
    Queue &q = queues_[f.peer * attr_.qps + r.queue];
    if (f.op == Op::fence)
        q.fence = true;
    else if (!build(q, f, slots == 2 ? operand.value : f.value))
        return 0;
    note(r, q, r.consumed += slots);
    if (q.unrung == attr_.batch)
        announce(q);
    return slots;
}

// A put that check() finds nothing wrong with, without its text.
bool Host::Worker::plain_put(const Fields &f) const {
    const uint64_t window = fabric_->window_bytes;
    return f.op == Op::put && f.peer < fabric_->nranks && f.bytes <= put_max_ && f.bytes <= window &&
           f.dst <= window - f.bytes && f.src <= window - f.bytes;
}

// What is wrong with a descriptor, or "".
std::string Host::Worker::check(const Fields &f, const Fields *operand) const {
    auto outside = [&](uint64_t offset, uint64_t bytes) {
        return bytes > fabric_->window_bytes || offset > fabric_->window_bytes - bytes;
    };
    auto range = [&](const char *whose, uint64_t offset, uint64_t bytes) {
        return text("offset %llu, %llu bytes: outside %s window of %llu bytes", (unsigned long long)offset,
                    (unsigned long long)bytes, whose, (unsigned long long)fabric_->window_bytes);
    };
    if (f.peer >= fabric_->nranks)
        return text("peer %u: there are %u ranks", f.peer, fabric_->nranks);
    switch (f.op) {
    case Op::put:
    case Op::get:
        if (f.bytes > (f.op == Op::put ? put_max_ : MAX_BYTES))
            return text("%u bytes: a %s moves at most %u", f.bytes, f.op == Op::put ? "put" : "get",
                        f.op == Op::put ? put_max_ : MAX_BYTES);
        if (outside(f.dst, f.bytes))
            return range(f.op == Op::put ? "the peer's" : "this rank's", f.dst, f.bytes);
        if (outside(f.src, f.bytes))
            return range(f.op == Op::put ? "this rank's" : "the peer's", f.src, f.bytes);
        return "";
    case Op::value:
        if (f.bytes != 1 && f.bytes != 2 && f.bytes != 4 && f.bytes != 8)
            return text("a value of %u bytes: allowed are 1, 2, 4, 8", f.bytes);
        return outside(f.dst, f.bytes) ? range("the peer's", f.dst, f.bytes) : "";
    case Op::signal:
    case Op::fetch_add:
        if (f.dst % 8 != 0)
            return text("an atomic at offset %llu: not a multiple of 8", (unsigned long long)f.dst);
        if (outside(f.dst, 8))
            return range("the peer's", f.dst, 8);
        if (f.op == Op::signal)
            return "";
        if (f.src >= result_slots_)
            return text("result slot %llu: there are %u", (unsigned long long)f.src, result_slots_);
        if (operand->op != Op::operand)
            return text("operation %u behind a fetch_add: must be its operand (%u)", (unsigned)operand->op,
                        (unsigned)Op::operand);
        return "";
    case Op::fence:
        return "";
    default:
        return text("operation %u: not one of 1..%u, or an operand alone", (unsigned)f.op,
                    (unsigned)Op::fence);
    }
}

// Append one WQE. False when the send queue has no room; then nothing has changed, but that what waits for a
// doorbell has been announced, since only its completion can make room.
bool Host::Worker::build(Queue &q, const Fields &f, uint64_t immediate) {
    const bool is_inline = f.op == Op::put && f.bytes != 0 && f.bytes <= attr_.inline_max;
    const bool is_atomic = f.op == Op::signal || f.op == Op::fetch_add;
    const uint32_t ds = is_inline ? mlx5_inline_ds(2, f.bytes) : is_atomic ? 4 : 3;
    uint64_t end = q.prod_idx + mlx5_ds_blocks(ds);
    if (end - q.done_idx > q.qp->depth) {
        announce(q);
        return false;
    }
    const gda_place to = place(q, f.peer);
    const uint32_t at = (uint32_t)q.prod_idx;
    const uint64_t theirs = f.op == Op::get ? f.src : f.dst;
    const uint32_t flags = gda_flags(q.fence ? MLX5_CTRL_FENCE : 0);
    if (is_atomic) {
        // A signal's old value interests nobody: it lands in the slot behind the agents'.
        const uint64_t slot = f.op == Op::signal ? result_slots_ : f.src;
        gda_write_fetch_add(to, at, flags, theirs, immediate, results_key_, (uintptr_t)(results_ + slot));
    } else if (f.op == Op::value && q.values) {
        uint64_t *value = q.values + (at & to.mask); // free again when its block is
        *value = immediate;
        gda_write_pointer(to, at, flags, MLX5_OP_RDMA_WRITE, theirs, f.bytes, values_key_, (uintptr_t)value);
    } else if (f.op == Op::value) {
        gda_write_value(to, at, flags, theirs, immediate, f.bytes);
    } else if (is_inline && f.bytes <= sizeof(uint64_t)) {
        uint64_t value = 0; // in memory order, as gda_write_value wants it
        memcpy(&value, fabric_->window + f.src, f.bytes);
        gda_write_value(to, at, flags, theirs, value, f.bytes);
    } else if (is_inline) {
        gda_write_inline(to, at, flags, theirs, fabric_->window + f.src, f.bytes);
    } else {
        const bool get = f.op == Op::get;
        gda_write_pointer(to, at, flags, get ? MLX5_OP_RDMA_READ : MLX5_OP_RDMA_WRITE, theirs, f.bytes,
                          fabric_->window_key, (uintptr_t)(fabric_->window + (get ? f.dst : f.src)));
    }
    posted(q, (uint32_t)(end - q.prod_idx));
    q.fence = false;
    return true;
}

// A WQE of so many blocks has been written at prod_idx.
void Host::Worker::posted(Queue &q, uint32_t blocks) {
    q.last = (struct mlx5_ctrl_seg *)block(q, q.prod_idx);
    q.prod_idx += blocks;
    q.unrung++;
    // The NIC has read the block that a store takes from it; ask for that a few WQEs before.
    prefetch_to_store(block(q, q.prod_idx + BLOCKS_AHEAD));
}

// Ring for all that waits. The last WQE brings a CQE that retires the ones before.
void Host::Worker::announce(Queue &q) {
    if (q.unrung == 0)
        return;
    q.last->fm_ce_se |= MLX5_CTRL_CQ_UPDATE;
    bump(wqes_, q.unrung);
    bump(doorbells_, 1);
    store_to_nic(&q.qp->dbr->snd, mlx5_dbr_value(q.prod_idx));
    store_to_nic(q.qp->bell, mlx5_doorbell_value(q.prod_idx, q.qp->qpn));
    q.rung_idx = q.prod_idx;
    q.unrung = 0;
}

} // namespace proxy
