// Replay: a workload's kernel over mini-gda's posting, with another stack's NIC work.
//
// The kernel is the same as ever, so that what it waits for (words, completions) and what it times are the workload's
// own. What each of its operations becomes on the NIC is not chosen here but taken from a *program*, which gda_replay.h
// makes from a trace: which queue pair and slot, inline or pointer, which flags, behind which WQE a doorbell, and the
// WQEs that no operation explains. The same type also *learns*: it runs the kernel by mini-gda's own choices and
// writes down the operations of each agent in order, which is what a trace is matched with.
//
//   put ... fetch_add, flush, quiet, ring   the WQEs and doorbells of this agent's next entry of the program, then
//                                           what it waits for
//   wait, gpu_visible                       as mini-gda's
//   fence                                   nothing: fences are flags of the program's WQEs
//
// A queue pair that several agents used is filled in the traced order: each agent waits for its turn. One that a
// single agent used is filled without atomics. Slots are reused only behind a CQE, as ever.
//
// A replay bounds what it replays from below, so that a post must be no more than its stores: the next item of the
// program is on its way while one is carried out, and put has a short way (GDA_REPLAY_SHORT), as gda_agent's has.
#ifndef MINIGDA_GDA_REPLAY_CUH
#define MINIGDA_GDA_REPLAY_CUH

#include "minigda/gda.cuh"

enum class gda_replay_op : uint32_t {
    put,
    put_value,
    signal,
    put_signal,
    notify,
    get,
    fetch_add,
    flush,
    quiet,
    ring,
    fence // never noted
};

// What a kernel did, in the order in which the agent did it.
struct gda_replay_entry {
    gda_replay_op op;
    uint32_t peer, bytes;
    uint32_t low; // of the payload's address in this rank's window: three bits
    uint64_t at;  // payload, value, counter: offset in the peer's window
    uint64_t sig; // signal or polled word
};

enum class gda_replay_part : uint8_t {
    payload, // of put, put_signal, notify: `bytes` from `delta` on, by RDMA_WRITE
    value,   // put_value's, or notify's word
    add,     // a signal, by ATOMIC_FA
    read,    // get: `bytes` from `delta` on
    counter, // fetch_add
    nop,     // beside the operations
    touch,   // beside the operations: RDMA_READ of up to 8 bytes
    nudge,   // beside the operations: ATOMIC_FA of 0
    // From here on nothing is posted.
    await,   // wait until the WQE at `pos` is complete
    ring,    // a doorbell for the blocks before `pos`
    nothing, // an entry without anything
    end      // of the program
};
enum : uint8_t {
    GDA_REPLAY_INLINE = 1,
    GDA_REPLAY_RING = 2,
    GDA_REPLAY_LAST = 4,  // of its entry
    GDA_REPLAY_WHOLE = 8, // delta is 0, and bytes are the operation's
    GDA_REPLAY_SELF = 16, // signaled is behind this WQE
    // Of the short way: a whole put in one block, by pointer or 8 bytes that go inline, or a value of 8 bytes that does,
    // alone in its entry, on a queue of this agent alone; a doorbell has SELF.
    GDA_REPLAY_SHORT = 32
};

// What every post needs, in one piece for a GPU to load. Blocks are counted from the first of the trace on the queue,
// until a launch gets the program: pos and room are indices then.
struct alignas(16) gda_replay_item {
    uint32_t pos;   // block; await: of the WQE waited for
    uint32_t room;  // behind the WQE (its block + 1) whose completion frees the slots; 0: they are free
    uint32_t queue; // of gda_shared.queues
    uint32_t kind;  // gda_replay_kind()

    GIC_HD gda_replay_part part() const { return (gda_replay_part)(kind >> 24); }
    GIC_HD uint32_t bits() const { return kind >> 16; }
    GIC_HD uint8_t fm_ce_se() const { return (uint8_t)(kind >> 8); }
    GIC_HD uint32_t blocks() const { return kind & 0xff; }
};
// And what few do.
struct gda_replay_more {
    uint32_t delta, bytes; // without WHOLE
    // Doorbells without SELF: behind the last WQE announced so far that asks for a CQE; 0: none.
    uint32_t signaled;
};
GIC_HD constexpr uint32_t gda_replay_kind(gda_replay_part part, uint8_t bits, uint8_t fm_ce_se,
                                          uint8_t blocks) {
    return (uint32_t)part << 24 | (uint32_t)bits << 16 | (uint32_t)fm_ce_se << 8 | blocks;
}

struct alignas(64) gda_replay_state { // of one agent
    uint32_t next;                    // learning: entry; replaying: item
    uint32_t overflow;                // learning: entries that did not fit
};

struct gda_replay_plan {
    gda_replay_state *states;
    gda_replay_entry *journal; // learning: [agent * capacity + entry]
    uint32_t capacity;
    uint32_t replaying; // 0: learning
    const gda_replay_item *items;
    const gda_replay_more *more; // as items
    const uint32_t *bases;       // [queue]: index of its block 0
    const uint8_t *shared;       // [queue]: several agents post to it
};

template <gda_order O> class gda_replay_agent;

template <gda_order O> struct gda_replay_handle : gda_handle<gda_order::runtime, gda_sharing::handoff> {
    using Agent = gda_replay_agent<O>;
    gda_replay_plan plan;
};

template <gda_order O> class gda_replay_agent {
    using learner = gda_agent<gda_order::runtime, gda_sharing::handoff>;
    using op = gda_replay_op;
    using part = gda_replay_part;

  public:
    GIC_DEVICE gda_replay_agent(const gda_replay_handle<O> &h, const gic::Self &self)
        : h_(h), self_(self), plan_(h.plan), next_(h.plan.states[self.agent].next) {
        if (plan_.replaying)
            item_ = plan_.items[next_];
    }
    GIC_DEVICE ~gda_replay_agent() {
        plan_.states[self_.agent].next = next_;
        leave();
    }

    GIC_DEVICE int put(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes) {
        if (GDA_LIKELY(put_short(dst, src, bytes)))
            return gic::OK;
        return act(op::put, peer, bytes, args{dst, src, 0, 0});
    }
    template <class F> GIC_DEVICE int put_each(uint32_t peer, uint32_t n, F message) {
        GIC_ROLLED
        for (uint32_t i = 0; i < n; i++) {
            const gic::Message m = message(i);
            if (int s = put(peer, m.dst, m.src, m.bytes))
                return s;
        }
        return gic::OK;
    }
    GIC_DEVICE int put_value(uint32_t peer, uint64_t dst, uint64_t value, uint32_t bytes) {
        if (bytes < 8)
            value &= ((uint64_t)1 << (8 * bytes)) - 1;
        if (value_short(dst, value))
            return gic::OK;
        return act(op::put_value, peer, bytes, args{dst, 0, dst, value});
    }
    GIC_DEVICE int signal(uint32_t peer, uint64_t sig, uint64_t add) {
        return act(op::signal, peer, 8, args{0, 0, sig, add});
    }
    GIC_DEVICE int put_signal(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes, uint64_t sig,
                              uint64_t add) {
        return act(op::put_signal, peer, bytes, args{dst, src, sig, add});
    }
    GIC_DEVICE int notify(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes, uint64_t sig,
                          uint64_t value) {
        if (value_short(sig, value))
            return gic::OK;
        return act(op::notify, peer, bytes, args{dst, src, sig, value});
    }
    GIC_DEVICE int get(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes) {
        return act(op::get, peer, bytes, args{src, dst, 0, 0});
    }
    GIC_DEVICE int fetch_add(uint32_t peer, uint64_t off, uint64_t add, uint64_t *old_p) {
        if (int s = act(op::fetch_add, peer, 8, args{off, 0, off, add}))
            return s;
        *old_p = gic::load_acquire((const uint64_t *)landing_at(peer)); // learning lands there, too
        return gic::OK;
    }
    GIC_DEVICE int wait(uint64_t sig, uint64_t at_least) {
        const uint64_t *word = (const uint64_t *)(h_.window + sig);
        for (gic::Spin spin(h_.env); gic::load_acquire(word) < at_least;)
            if (int s = spin.failed())
                return s;
        return gic::OK;
    }
    GIC_DEVICE int fence(uint32_t peer) {
        return plan_.replaying ? (int)gic::OK : learn(h_, self_, op::fence, peer, 0, args{});
    }
    GIC_DEVICE int flush(uint32_t peer) {
        if (int s = act(op::flush, peer, 0, args{}))
            return s;
        if (h_.choices.scope == gda_scope::qp || !plan_.replaying)
            return gic::OK;
        if (h_.choices.scope == gda_scope::peer)
            return complete_others(h_, at_, peer * h_.choices.qps, h_.choices.qps);
        return complete_others(h_, at_, 0, h_.nranks * h_.choices.qps);
    }
    GIC_DEVICE int quiet() {
        if (int s = act(op::quiet, 0, 0, args{}))
            return s;
        return h_.choices.scope == gda_scope::qp || !plan_.replaying
                   ? (int)gic::OK
                   : complete_others(h_, at_, 0, h_.nranks * h_.choices.qps);
    }
    GIC_DEVICE void gpu_visible() { gic::fence_acq_rel<gic::Scope::system>(); }
    GIC_DEVICE int ring() { return act(op::ring, 0, 0, args{}); }

  private:
    // at: payload, value, counter in the peer's window; local: in this rank's; sig: signal, polled word, value, counter.
    struct args {
        uint64_t at, local, sig, value;
    };

    GIC_DEVICE int act(op what, uint32_t peer, uint32_t bytes, const args &a) {
        return plan_.replaying ? play(bytes, a) : note(what, peer, bytes, a);
    }

    // By mini-gda's own choices, and noted.
    GIC_DEVICE int note(op what, uint32_t peer, uint32_t bytes, const args &a) {
        if (int s = learn(h_, self_, what, peer, bytes, a))
            return s;
        if (next_ < plan_.capacity)
            plan_.journal[(size_t)self_.agent * plan_.capacity + next_] =
                gda_replay_entry{what, peer, bytes, (uint32_t)a.local & 7, a.at, a.sig};
        else
            plan_.states[self_.agent].overflow++;
        next_++;
        return gic::OK;
    }
    // A call, and an agent for it alone: what it has posted is rung (batch=1) and kept in its cursors.
    GIC_COLD static int learn(const gda_replay_handle<O> &h, gic::Self self, op what, uint32_t peer,
                              uint32_t bytes, args a) {
        learner agent(h, self);
        uint64_t old;
        switch (what) {
        case op::put:
            return agent.put(peer, a.at, a.local, bytes);
        case op::put_value:
            return agent.put_value(peer, a.at, a.value, bytes);
        case op::signal:
            return agent.signal(peer, a.sig, a.value);
        case op::put_signal:
            return agent.put_signal(peer, a.at, a.local, bytes, a.sig, a.value);
        case op::notify:
            return agent.notify(peer, a.at, a.local, bytes, a.sig, a.value);
        case op::get:
            return agent.get(peer, a.local, a.at, bytes);
        case op::fetch_add:
            return agent.fetch_add(peer, a.at, a.value, &old);
        case op::flush:
            return agent.flush(peer);
        case op::quiet:
            return agent.quiet();
        case op::fence:
            return agent.fence(peer);
        default:
            return agent.ring();
        }
    }

    // The item behind the one that is carried out, which is loaded behind that one's stores and before the fence that
    // waits for them: later it would be one more way to the memory and back, which the floor does not have, and earlier
    // the compiler takes it apart or copies it on the way, for which the thread waits. (It did, before each fence.)
    // There is one: an agent's last is `end`.
    GIC_DEVICE void load_next() { item_ = plan_.items[++next_]; }

    // The short way, of the next item. Learning has none: no item says it is short.
    GIC_DEVICE bool is_short(const gda_replay_item &i, part of) const {
        constexpr uint32_t mask = gda_replay_kind((part)0xff, GDA_REPLAY_SHORT, 0, 0);
        return GDA_LIKELY(((i.kind & mask) == gda_replay_kind(of, GDA_REPLAY_SHORT, 0, 0)) &
                          (i.queue == at_) & !gda_after(i.room, cons_));
    }
    // Behind the stores of one: `next` is the block behind it.
    GIC_DEVICE void end_short(bool ring, uint32_t next) {
        load_next();
        if (!ring)
            return;
        rung_++;
        announce(next);
        if (h_.choices.scope != gda_scope::qp)
            gic::store_release<gic::Scope::device>(&q_->signaled, next);
    }
    // False: it has to go the long way.
    GIC_DEVICE bool value_short(uint64_t dst, uint64_t value) {
        const gda_replay_item i = item_;
        if (!is_short(i, part::value))
            return false;
        const bool ring = (i.bits() & GDA_REPLAY_RING) != 0;
        const uint32_t next = i.pos + 1;
        gda_store_if(true, place_.at(i.pos),
                     gda_ctrl(place_, i.pos, MLX5_OP_RDMA_WRITE, 3, gda_flags(i.fm_ce_se())),
                     gda_raddr(place_, dst), gda_value(value));
        end_short(ring, next);
        return true;
    }
    GIC_DEVICE bool put_short(uint64_t dst, uint64_t src, uint32_t bytes) {
        const gda_replay_item i = item_;
        if (!is_short(i, part::payload))
            return false;
        const bool value = (i.bits() & GDA_REPLAY_INLINE) != 0, ring = (i.bits() & GDA_REPLAY_RING) != 0;
        const uint32_t next = i.pos + 1;
        const uint64_t from = (uint64_t)(uintptr_t)h_.window + src;
        const uint64_t payload = gda_load_if(value, from);
        const uint32_t flags = gda_flags(i.fm_ce_se());
        const gda_segment ctrl = gda_ctrl(place_, i.pos, MLX5_OP_RDMA_WRITE, 3, flags),
                          raddr = gda_raddr(place_, dst);
        gda_segment *const to = place_.at(i.pos);
        gda_store_if(!value, to, ctrl, raddr, gda_data(bytes, lkey_word_, from));
        if (value)
            gda_store_if(true, to, ctrl, raddr, gda_value(payload));
        end_short(ring, next);
        return true;
    }

    // This agent's next entry.
    GIC_DEVICE int play(uint32_t bytes, const args &a) {
        GIC_ROLLED
        for (;;) {
            const gda_replay_item i = item_;
            if (i.part() == part::end) // the kernel does more than it did when its operations were learned
                return gic::ERR_INVAL;
            if (int s = i.part() < part::await ? post(i, a, bytes) : follow(i))
                return s;
            if (i.bits() & GDA_REPLAY_LAST)
                return gic::OK;
        }
    }
    GIC_DEVICE int follow(const gda_replay_item &i) {
        load_next();
        if (i.part() == part::nothing)
            return gic::OK;
        if (i.queue != at_)
            turn(i.queue);
        if (i.part() == part::await)
            return wait_done(i.pos + 1);
        ring_to(i.pos, i);
        return gic::OK;
    }

    GIC_DEVICE uint64_t *landing_at(uint32_t peer) const {
        return &h_.landings[(size_t)self_.agent * h_.nranks + peer].old;
    }

    GIC_DEVICE void turn(uint32_t queue) {
        leave();
        at_ = queue;
        q_ = h_.queues + queue;
        shared_ = plan_.shared[queue];
        base_ = plan_.bases[queue];
        cons_ = gic::load_acquire<gic::Scope::device>(&q_->cons);
        place_ = gda_place{q_->blocks, q_->depth - 1, q_->qpn_word, q_->rkey_word, q_->remote};
        lkey_word_ = q_->lkey_word;
        dbr_ = q_->dbr;
        bell_ = q_->bell;
        landing_ = (uint64_t)(uintptr_t)landing_at(queue / h_.choices.qps);
    }
    GIC_DEVICE void leave() {
        if (at_ == none || shared_)
            return;
        gic::store_release<gic::Scope::device>(&q_->cons, cons_);
        q_->doorbells += rung_;
        rung_ = 0;
    }

    // `bytes`: the operation's.
    GIC_DEVICE int post(const gda_replay_item &i, const args &a, uint32_t bytes) {
        if (i.queue != at_)
            turn(i.queue);
        const uint32_t index = i.pos, next = index + i.blocks();
        if (shared_)
            for (gic::Spin spin(h_.env); (uint32_t)gic::load_acquire<gic::Scope::device>(&q_->turn) != index;)
                if (int s = spin.failed())
                    return s;
        if (gda_after(i.room, cons_))
            if (int s = wait_done(i.room))
                return s;
        uint32_t delta = 0;
        if (!(i.bits() & GDA_REPLAY_WHOLE)) {
            delta = plan_.more[next_].delta;
            bytes = plan_.more[next_].bytes;
        }
        write(i, a, index, delta, bytes);
        load_next();
        if (i.bits() & GDA_REPLAY_RING)
            ring_to(next, i);
        if (shared_)
            gic::store_release<gic::Scope::device>(&q_->turn, gda_turn_word(next, 0));
        return gic::OK;
    }

    GIC_DEVICE void ring_to(uint32_t next, const gda_replay_item &i) {
        announce(next);
        if (shared_)
            q_->doorbells++;
        else
            rung_++;
        if (h_.choices.scope == gda_scope::qp)
            return;
        if (i.bits() & GDA_REPLAY_SELF)
            gic::store_release<gic::Scope::device>(&q_->signaled, i.pos + 1);
        else if (const uint32_t signaled = plan_.more[next_ - 1].signaled) // the next item is loaded
            gic::store_release<gic::Scope::device>(&q_->signaled, base_ + signaled);
    }
    GIC_DEVICE void announce(uint32_t next) const {
        if constexpr (O == gda_order::runtime)
            gda_cold_order::announce(h_.choices.order, dbr_, bell_, next, place_.qpn_word);
        else
            gda_announce<O>(dbr_, bell_, next, place_.qpn_word);
    }

    GIC_DEVICE void write(const gda_replay_item &i, const args &a, uint32_t index, uint32_t delta,
                          uint32_t bytes) const {
        const uint32_t flags = gda_flags(i.fm_ce_se());
        const uint8_t *local = h_.window + a.local + delta;
        if (i.part() == part::payload) {
            if (!(i.bits() & GDA_REPLAY_INLINE))
                gda_write_pointer(place_, index, flags, MLX5_OP_RDMA_WRITE, a.at + delta, bytes,
                                  h_.window_key, (uint64_t)(uintptr_t)local);
            else if (bytes == 8 && ((uintptr_t)local & 7) == 0)
                gda_write_value(place_, index, flags, a.at + delta, *(const uint64_t *)local, 8);
            else
                gda_write_inline(place_, index, flags, a.at + delta, local, bytes);
            return;
        }
        switch (i.part()) {
        case part::value:
            if (i.bits() & GDA_REPLAY_INLINE) {
                gda_write_value(place_, index, flags, a.sig, a.value, bytes);
            } else {
                uint64_t *word = q_->values + (index & place_.mask);
                *word = a.value;
                gda_write_pointer(place_, index, flags, MLX5_OP_RDMA_WRITE, a.sig, bytes, q_->values_key,
                                  (uint64_t)(uintptr_t)word);
            }
            return;
        case part::add:
        case part::counter:
            return gda_write_fetch_add(place_, index, flags, a.sig, a.value, h_.landing_key, landing_);
        case part::read:
            return gda_write_pointer(place_, index, flags, MLX5_OP_RDMA_READ, a.at + delta, bytes,
                                     h_.window_key, (uint64_t)(uintptr_t)local);
        case part::touch:
            return gda_write_pointer(place_, index, flags, MLX5_OP_RDMA_READ, 0, bytes, h_.landing_key,
                                     landing_);
        case part::nudge:
            return gda_write_fetch_add(place_, index, flags, 0, 0, h_.landing_key, landing_);
        default:
            return gda_write_nop(place_, index, flags);
        }
    }

    // Waits until the WQE with index `end - 1`, or a later one, is complete on the queue this agent is turned to.
    GIC_DEVICE int wait_done(uint32_t end) { return wait_queue(h_, q_, end, &cons_, !shared_); }

    // `own`: nobody else moves q->cons.
    GIC_DEVICE static int wait_queue(const gda_replay_handle<O> &h, gda_queue *q, uint32_t end,
                                     uint32_t *cons_p, bool own) {
        for (gic::Spin spin(h.env); gda_after(end, *cons_p);) {
            if (!own) {
                const uint32_t known = gic::load_acquire<gic::Scope::device>(&q->cons);
                *cons_p = gda_after(known, *cons_p) ? known : *cons_p;
            }
            const uint32_t before = *cons_p;
            if (int s = gda_cold<gda_sharing::handoff>::poll(q, cons_p))
                return s;
            if (*cons_p != before)
                keep(h, q, *cons_p, own);
            if (!gda_after(end, *cons_p))
                return gic::OK;
            if (int s = spin.failed())
                return s;
        }
        return gic::OK;
    }
    // What others may go by. Only the owner of a queue of its own moves it there.
    GIC_DEVICE static void keep(const gda_replay_handle<O> &h, gda_queue *q, uint32_t cons, bool own) {
        if (own) {
            if (h.choices.scope != gda_scope::qp)
                gic::store_release<gic::Scope::device>(&q->cons, cons);
        } else if (h.plan.shared[q - h.queues]) {
            // A reader of cons must find a CQE at least as new.
            gic::fence_acq_rel<gic::Scope::device>();
            for (uint32_t seen = gic::load_relaxed<gic::Scope::device>(&q->cons); gda_after(cons, seen);
                 seen = gic::load_relaxed<gic::Scope::device>(&q->cons))
                if (gic::cas_acquire<gic::Scope::device>(&q->cons, seen, cons))
                    return;
        }
    }

    // What is announced and signaled on other queues than `own`. (A call, and so not a member: an agent that a call is
    // handed lives in memory.)
    GIC_COLD static int complete_others(const gda_replay_handle<O> &h, uint32_t own, uint32_t first,
                                        uint32_t n) {
        GIC_ROLLED
        for (uint32_t i = first; i < first + n; i++) {
            gda_queue *q = h.queues + i;
            const uint32_t end = gic::load_acquire<gic::Scope::device>(&q->signaled);
            uint32_t cons = gic::load_acquire<gic::Scope::device>(&q->cons);
            if (i == own || !gda_after(end, cons))
                continue;
            if (int s = wait_queue(h, q, end, &cons, false))
                return s;
        }
        return gic::OK;
    }

    static constexpr uint32_t none = ~0u;
    const gda_replay_handle<O> &h_;
    gic::Self self_;
    gda_replay_plan plan_;
    uint32_t next_;
    gda_replay_item item_{}; // replaying: of next_
    uint32_t at_ = none;
    bool shared_ = false;
    gda_queue *q_ = nullptr;
    gda_place place_{};
    uint32_t *dbr_ = nullptr;
    uint64_t *bell_ = nullptr;
    uint32_t base_ = 0, cons_ = 0, rung_ = 0, lkey_word_ = 0;
    uint64_t landing_ = 0;
};

#endif
