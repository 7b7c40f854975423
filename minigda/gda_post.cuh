// The post path of one agent: reserve a slot, write the WQE, order, doorbell record, order, doorbell; and the
// completion path: poll a collapsed CQ. gda.cuh puts the contract's operations on top.
//
// One agent holds its place at one peer (gda_cursor) in registers and changes it when it turns to another
// peer, so the path to one peer touches nothing but the queue. Whatever waits is a call (gda_cold) that gets and
// gives values: those registers stay registers, and a kernel has one copy of each wait however often it posts.
#ifndef MINIGDA_GDA_POST_CUH
#define MINIGDA_GDA_POST_CUH

#include "minigda/gda_block.cuh"
#include "minigda/gda_nap.cuh"
#include "minigda/gda_order.cuh"
#include "minigda/gda_wqe.cuh"

#include <type_traits>

// What every agent of a launch shares; the base of the handle.
struct gda_shared {
    uint32_t rank, nranks;
    uint8_t *window; // this rank's
    gic::Env env;
    uint32_t lanes;
    uint32_t window_key, landing_key;
    gda_choices choices;
    gda_queue *queues;      // [peer * qps + i]
    gda_cursor *cursors;    // as queues; where agents share them [agent * nranks + peer]
    gda_landing *landings;  // as cursors
    gda_gate *gate;         // while the NIC is held as long as nobody waits for it, otherwise nullptr
    gda_block_words *block; // of agents in one block of threads of this machine: as queues
};

// Of the queue that an agent posts to, at every peer.
template <gda_sharing S> GIC_DEVICE uint32_t gda_queue_number(const gda_shared &h, uint32_t agent) {
    const uint32_t i = agent + h.choices.first_qp;
    if constexpr (gda_exclusive(S)) // there are no more agents than queues
        return i < h.choices.qps ? i : i - h.choices.qps;
    else
        return i % h.choices.qps;
}

// What a wait for completions has learned.
struct gda_seen {
    uint32_t cons;
    int status;
};

// What an agent holds in registers while it is turned to one peer: of its queue there, and gda_cursor's of the same
// names (doorbells: rung since it turned there).
struct gda_counts {
    uint32_t next, cons, last, since, pending, bits, doorbells;
};
struct gda_turn {
    uint8_t *blocks;
    uint64_t remote;
    uint32_t *dbr;
    uint64_t *bell;
    uint8_t *window;
    uint32_t qpn_word, rkey_word, lkey_word, mask, by_value;
    gda_counts counts;
};

// The waits, and what else is off the hot path. `self`: of the agent.
template <gda_sharing S> struct gda_cold {
    static constexpr bool exclusive = gda_exclusive(S);
    static constexpr uint32_t nobody = ~0u;
    // Of what agents that share a queue tell each other: where it is, and whom it is ordered for. A WQE that is seen
    // there is covered by the announcement of whoever saw it, whose order is the NIC's: an order holds for all that is
    // known to lie before it, by whatever scope it came to be known.
    static constexpr gic::Scope scope = gda_in_block(S) ? gic::Scope::block : gic::Scope::device;
    using words = std::conditional_t<gda_in_block(S), gda_block_words, gda_queue>;

    GIC_DEVICE static words *words_of(const gda_shared &h, gda_queue *q) {
        if constexpr (gda_in_block(S))
            return gda_block_memory(h) + (q - h.queues);
        else
            return q;
    }
    GIC_DEVICE static gda_queue *queue(const gda_shared &h, const gic::Self &self, uint32_t peer) {
        return h.queues + (size_t)peer * h.choices.qps + gda_queue_number<S>(h, self.agent);
    }
    // Of the cursors and the landings; under exclusive sharing the queue's own number.
    GIC_DEVICE static size_t place(const gda_shared &h, const gic::Self &self, uint32_t peer) {
        return exclusive ? (size_t)peer * h.choices.qps + gda_queue_number<S>(h, self.agent)
                         : (size_t)self.agent * h.nranks + peer;
    }
    GIC_DEVICE static bool leads(const gic::Self &self) { return !gda_lanes(S) || self.lane == 0; }

    // From peer `from`, where the agent leaves its counts, to peer `to`; either may be nobody.
    GIC_COLD static gda_turn turn(const gda_shared &h, gic::Self self, uint32_t from, gda_counts now,
                                  uint32_t to) {
        if (from != nobody && leads(self)) {
            gda_cursor *c = h.cursors + place(h, self, from);
            c->next = now.next;
            c->cons = now.cons;
            c->last = now.last;
            c->since = now.since;
            c->pending = now.pending;
            c->bits = now.bits;
            c->doorbells += now.doorbells;
        }
        if (to == nobody)
            return {};
        if constexpr (exclusive && gda_lanes(S))
            gic::sync_lanes(self); // what lane 0 left of this place before
        const gda_queue *q = queue(h, self, to);
        const gda_cursor *c = h.cursors + place(h, self, to);
        return {q->blocks,
                q->remote,
                q->dbr,
                q->bell,
                q->window,
                q->qpn_word,
                q->rkey_word,
                q->lkey_word,
                q->mask,
                q->by_value,
                {c->next, c->cons, c->last, c->since, c->pending, c->bits, 0}};
    }

    // Waits for an 8-byte word of this rank's window.
    GIC_COLD static int wait_word(const gda_shared &h, const uint64_t *word, uint64_t at_least) {
        gda_gate_pass pass(h.gate, h.env);
        for (gic::Spin spin(h.env); gic::load_acquire(word) < at_least;)
            if (int s = spin.failed())
                return s;
        return gic::OK;
    }

    // Waits until the WQE with index `end - 1`, announced and signaled, or a later one is complete.
    GIC_COLD static gda_seen wait(const gda_shared &h, gic::Self self, uint32_t peer, uint32_t cons,
                                  uint32_t end) {
        gda_gate_pass pass(h.gate, h.env);
        const int status = wait_queue(h, queue(h, self, peer), end, &cons, exclusive, false);
        return {cons, status};
    }

    // Waits until the blocks below `end` fit the queue. Never rings: the host has checked that a full queue
    // always holds an announced, signaled WQE.
    GIC_COLD static gda_seen make_room(const gda_shared &h, gic::Self self, uint32_t peer, uint32_t cons,
                                       uint32_t end) {
        gda_queue *q = queue(h, self, peer);
        const uint32_t depth = q->mask + 1;
        // What is complete already was only not looked at: that is no wait.
        int status = poll(q, &cons);
        if (status == gic::OK)
            keep(h, q, cons, exclusive);
        if (status != gic::OK || end - cons <= depth)
            return {cons, status};
        h.cursors[place(h, self, peer)].slot_waits++;
        gda_gate_pass pass(h.gate, h.env);
        status = wait_queue(h, q, end - depth, &cons, exclusive, false);
        return {cons, status};
    }

    // For agents whose completion scope takes in the queue at `peer`: where the latest signaled WQE ends, and that
    // it is announced. Under exclusive sharing the latter alone tells others, who could not ring for it. The turn or
    // the lock keeps it monotonic otherwise.
    GIC_COLD static void keep_signaled(const gda_shared &h, gic::Self self, uint32_t peer, uint32_t end) {
        h.cursors[place(h, self, peer)].signaled = end;
    }
    GIC_COLD static void note_signaled(const gda_shared &h, gic::Self self, uint32_t peer) {
        words *w = words_of(h, queue(h, self, peer));
        const uint32_t signaled = h.cursors[place(h, self, peer)].signaled;
        if (exclusive || gda_after(signaled, gic::load_relaxed<scope>(&w->signaled)))
            gic::store_release<scope>(&w->signaled, signaled);
    }

    // All that is announced and signaled on the other queues of this peer is complete.
    GIC_COLD static int complete_peer(const gda_shared &h, uint32_t agent, uint32_t peer) {
        const uint32_t own = gda_queue_number<S>(h, agent);
        GIC_ROLLED
        for (uint32_t i = 0; i < h.choices.qps; i++)
            if (i != own)
                if (int s = complete_other(h, h.queues + (size_t)peer * h.choices.qps + i))
                    return s;
        return gic::OK;
    }

    // Announces all that is published, whoever posted it, or finds that somebody else has announced what lies below
    // `end`, also while it waits to do so itself.
    GIC_COLD static int ring_shared(const gda_shared &h, gda_queue *q, uint32_t end) {
        words *w = words_of(h, q);
        gic::Spin spin(h.env);
        for (uint32_t polls = 0; !gic::cas_acquire<scope>(&w->lock, 0u, 1u); polls++) {
            if (!gda_after(end, gic::load_relaxed<scope>(&w->rung)))
                return gic::OK;
            gda_nap(gda_in_block(S) ? gda_block_lock_nap(polls) : gda_lock_nap(polls));
            if (int s = spin.failed())
                return s;
        }
        const uint64_t doorbells = w->doorbells; // on its way beside the next two
        const uint32_t ready = (uint32_t)gic::load_acquire<scope>(&w->turn);
        if (gda_after(ready, gic::load_relaxed<scope>(&w->rung))) {
            if constexpr (gda_form(S) == gda_sharing::lock)
                w->pending = 0;
            gda_cold_order::announce(h.choices.order, q->dbr, q->bell, ready, q->qpn_word);
            gic::store_relaxed<scope>(&w->rung, ready);
            w->doorbells = doorbells + 1;
        }
        unlock(w);
        return gic::OK;
    }

    GIC_DEVICE static int lock(const gda_shared &h, words *w) {
        return gic::cas_acquire<scope>(&w->lock, 0u, 1u) ? (int)gic::OK : wait_lock(h, w);
    }
    GIC_DEVICE static void unlock(words *w) { gic::store_release<scope>(&w->lock, 0u); }

    // The turn of handoff and warp: everything reserved before is published. Whoever takes it has a fence behind its
    // WQEs, and moves the word on by one read-modify-write: such a chain is observed as a whole, so that an announcement
    // behind an acquire of the last word covers what all of them wrote, and no fence lies between two turns.
    struct turn_taken {
        uint32_t posted;
        int status;
    };
    GIC_DEVICE static turn_taken take_turn(const gda_shared &h, words *w, uint32_t index, uint32_t blocks) {
        const uint64_t now = gic::load_acquire<scope>(&w->turn);
        if ((uint32_t)now == index)
            return {(uint32_t)(now >> 32), gic::OK};
        return wait_turn(h, w, index, blocks);
    }
    GIC_DEVICE static void pass_turn(words *w, uint32_t index, uint32_t posted, uint32_t blocks,
                                     uint32_t wqes) {
        const uint64_t step = gda_turn_word(index + blocks, posted + wqes) - gda_turn_word(index, posted);
        gic::fetch_add<scope>(&w->turn, step);
    }

    // One look at a collapsed CQ. Moves *cons_p, a lower bound of what is complete, which must have been
    // known before the look: the NIC gives 16 bits of the index, and a queue never holds more than 32768
    // blocks.
    GIC_DEVICE static int poll(gda_queue *q, uint32_t *cons_p) {
        // wqe_counter, signature and op_own: one load, or counter and opcode could be of two completions.
        const uint32_t tail = mlx5_be32(gic::load_acquire((const uint32_t *)&q->cqe->wqe_counter));
        const uint32_t opcode = mlx5_op_own_opcode((uint8_t)tail);
        if (opcode == MLX5_CQE_OP_INVALID) // as the NIC left it: nothing completed yet
            return gic::OK;
        if (opcode != MLX5_CQE_OP_REQ) {
            if (gic::load_relaxed(&q->syndrome) == 0)
                gic::store_relaxed(&q->syndrome, (uint32_t)((const struct mlx5_cqe_err *)q->cqe)->syndrome);
            return gic::ERR_IO;
        }
        const uint16_t ahead = (uint16_t)((tail >> 16) + 1 - *cons_p);
        if (ahead > q->depth)
            return gic::ERR_IO; // a counter that no WQE in the queue can have
        *cons_p += ahead;
        return gic::OK;
    }

  private:
    GIC_COLD static int wait_lock(const gda_shared &h, words *w) {
        gic::Spin spin(h.env);
        for (uint32_t polls = 0; !gic::cas_acquire<scope>(&w->lock, 0u, 1u); polls++) {
            gda_nap(gda_in_block(S) ? gda_block_lock_nap(polls) : gda_lock_nap(polls));
            if (int s = spin.failed())
                return s;
        }
        return gic::OK;
    }
    GIC_COLD static turn_taken wait_turn(const gda_shared &h, words *w, uint32_t index, uint32_t blocks) {
        gic::Spin spin(h.env);
        for (uint32_t looks = 1;; looks++) {
            const uint64_t now = gic::load_acquire<scope>(&w->turn);
            const uint32_t before = index - (uint32_t)now; // blocks that others have to publish first
            if (before == 0)
                return {(uint32_t)(now >> 32), gic::OK};
            if constexpr (!gda_in_block(S))
                gda_nap(gda_turn_nap(blocks == 1 ? before : before / blocks));
            else if (looks % gda_block_looks() != 0)
                continue;
            if (int s = spin.failed())
                return {0, s};
        }
    }
    // `own`: this agent is the only one that writes the queue's cons.
    GIC_DEVICE static int wait_queue(const gda_shared &h, gda_queue *q, uint32_t end, uint32_t *cons_p,
                                     bool own, bool ring) {
        for (gic::Spin spin(h.env);;) {
            if (!own) {
                const uint32_t shared = gic::load_acquire<scope>(&words_of(h, q)->cons);
                if (gda_after(shared, *cons_p))
                    *cons_p = shared;
            }
            const uint32_t known = *cons_p;
            if (int s = poll(q, cons_p))
                return s;
            if (*cons_p != known)
                keep(h, q, *cons_p, own);
            if (!gda_after(end, *cons_p))
                return gic::OK;
            if constexpr (!exclusive) // others look at the same words, which the NIC has to write
                gda_nap(gda_room_nap(end - *cons_p));
            if (ring)
                if (int s = ring_shared(h, q, end))
                    return s;
            if (int s = spin.failed())
                return s;
        }
    }
    GIC_DEVICE static void keep(const gda_shared &h, gda_queue *q, uint32_t cons, bool own) {
        words *w = words_of(h, q);
        if constexpr (exclusive) {
            if (own && h.choices.scope != gda_scope::qp)
                gic::store_release<scope>(&w->cons, cons);
        } else {
            // A reader of cons must find a CQE at least as new.
            gic::fence_acq_rel<scope>();
            for (uint32_t seen = gic::load_relaxed<scope>(&w->cons); gda_after(cons, seen);
                 seen = gic::load_relaxed<scope>(&w->cons))
                if (gic::cas_acquire<scope>(&w->cons, seen, cons))
                    return;
        }
    }
    GIC_DEVICE static int complete_other(const gda_shared &h, gda_queue *q) {
        const words *w = words_of(h, q);
        const uint32_t end = gic::load_acquire<scope>(&w->signaled);
        uint32_t cons = gic::load_acquire<scope>(&w->cons);
        if (!gda_after(end, cons))
            return gic::OK;
        gda_gate_pass pass(h.gate, h.env);
        return wait_queue(h, q, end, &cons, false, !exclusive);
    }
};

template <gda_order O, gda_sharing S> class gda_poster {
  protected:
    static constexpr bool exclusive = gda_exclusive(S), bare = gda_bare(S);
    // All lanes of an agent keep the same state, and lane 0 alone stores and waits; in `warp` lane 0 alone has it.
    static constexpr bool group = exclusive && gda_lanes(S);
    static constexpr bool counted = exclusive && !bare && !group; // has the short way that settle() is about
    static constexpr uint32_t nobody = ~0u;
    using cold = gda_cold<S>;
    static constexpr gic::Scope scope = cold::scope;

    GIC_DEVICE gda_poster(const gda_shared &h, const gic::Self &self) : h_(h), self_(self) {}
    gda_poster(const gda_poster &) = delete;
    gda_poster &operator=(const gda_poster &) = delete;
    GIC_DEVICE ~gda_poster() { leave(); }

    GIC_DEVICE bool leads() const { return cold::leads(self_); }
    GIC_DEVICE uint64_t landing() const {
        return (uint64_t)(uintptr_t)&h_.landings[cold::place(h_, self_, peer_)].old;
    }
    GIC_DEVICE gda_place place() const {
        return gda_place{t_.blocks, t_.mask, t_.qpn_word, t_.rkey_word, t_.remote};
    }

    GIC_DEVICE int turn_to(uint32_t peer) {
        settle();
        if (peer == peer_)
            return gic::OK;
        if (peer >= h_.nranks)
            return gic::ERR_INVAL;
        behind_ |= peer_ != nobody && c_.pending != 0;
        t_ = cold::turn(h_, self_, peer_, c_, peer);
        c_ = t_.counts;
        peer_ = peer;
        fit_ = 0;
        refit();
        if constexpr (!exclusive) {
            q_ = cold::queue(h_, self_, peer);
            words_ = cold::words_of(h_, q_);
        }
        return gic::OK;
    }
    GIC_DEVICE void leave() {
        if (peer_ == nobody)
            return;
        settle();
        behind_ |= c_.pending != 0;
        cold::turn(h_, self_, peer_, c_, nobody);
        peer_ = nobody;
    }

    // The short way of a put (gda_agent::put): for posts that need no more than free slots, of WQEs that all ask for a CQE and
    // order nothing. It is open while c_.next has not reached edge_, and changes c_.next alone; edge_ is where the next thing
    // has to be done, ringing or looking for room. A WQE of more blocks than one settles what came before it, looks for its
    // room up to brink_, and aims anew. Whatever else looks at the agent's
    // counts calls settle() before, and whatever changes them refit() after. The lanes of a group have a short way of
    // their own, as long as there is room up to brink_.
    GIC_DEVICE void refit() {
        if constexpr (exclusive && !bare) {
            const bool plain = (h_.choices.signal_every == 1) & (h_.choices.scope == gda_scope::qp) &
                               !(c_.bits & GDA_FENCE) & (!group || one_block(h_.choices));
            brink_ = plain ? c_.cons + t_.mask + 1 : c_.next;
            aim();
        }
    }
    // Every put takes one block.
    GIC_DEVICE static bool one_block(const gda_choices &c) {
        return c.inline_max <= GDA_INLINE_ONE_BLOCK && !c.inline_only;
    }
    GIC_DEVICE void aim() {
        if constexpr (counted) {
            const uint32_t room = brink_ - c_.next, left = h_.choices.batch - c_.pending;
            from_ = c_.next;
            edge_ = c_.next + (room < left ? room : left);
        }
    }
    // What was posted the short way since the last aim().
    GIC_DEVICE void settle() {
        if constexpr (counted) {
            const uint32_t posted = c_.next - from_;
            c_.pending += posted;
            if (posted)
                c_.last = c_.next;
            from_ = c_.next;
        }
    }
    // At edge_. The counts come first: the stores of the WQE are on their way meanwhile, and the fence waits for them.
    GIC_DEVICE void reach() {
        settle();
        const bool ring = c_.pending >= h_.choices.batch;
        if (ring) {
            c_.pending = 0;
            c_.doorbells++;
        }
        aim();
        if (ring)
            announce(t_.dbr, t_.bell, c_.next, t_.qpn_word);
    }

    // --- reserve -------------------------------------------------------------------------------------------

    // `blocks` consecutive free slots; under lock sharing the lock is held until publish().
    GIC_DEVICE int reserve(uint32_t blocks, uint32_t *index_p) {
        if constexpr (exclusive) {
            *index_p = c_.next;
            return bare || c_.next + blocks - c_.cons <= t_.mask + 1 ? (int)gic::OK
                                                                     : make_room(c_.next + blocks);
        } else if constexpr (gda_form(S) == gda_sharing::lock) {
            typename cold::words *w = words_;
            if (int s = cold::lock(h_, w))
                return s;
            const uint32_t reserved = w->reserved;
            batch_ =
                w->pending; // loaded here, beside the rest, and not by publish(), which would wait for it
            *index_p = reserved;
            int s = make_room(reserved + blocks);
            if (s)
                cold::unlock(w);
            return s;
        } else {
            *index_p = gic::fetch_add<scope>(&words_->reserved, blocks);
            return make_room(*index_p + blocks);
        }
    }
    GIC_DEVICE int make_room(uint32_t end) {
        if constexpr (!exclusive) {
            c_.cons = gic::load_acquire<scope>(&words_->cons);
            if (end - c_.cons <= t_.mask + 1)
                return gic::OK;
        }
        gda_seen seen{c_.cons, gic::OK};
        if (leads())
            seen = cold::make_room(h_, self_, peer_, c_.cons, end);
        return learn(seen);
    }
    GIC_DEVICE int learn(gda_seen seen) {
        c_.cons = group ? gic::broadcast(self_, seen.cons) : seen.cons;
        return group ? gic::broadcast(self_, seen.status) : seen.status;
    }

    // --- completion bits -----------------------------------------------------------------------------------

    // gda_flags() of the agent's next WQE, which starts at `index`.
    GIC_DEVICE uint32_t flags_of(uint32_t index, bool signal = false) {
        if constexpr (bare)
            return gda_flags(MLX5_CTRL_CQ_UPDATE);
        uint32_t flags = 0;
        if (c_.bits & GDA_FENCE) {
            flags = gda_flags(MLX5_CTRL_FENCE);
            c_.bits &= ~GDA_FENCE;
        }
        c_.last = index + 1;
        if (++c_.since >= h_.choices.signal_every || signal) {
            c_.since = 0;
            flags |= gda_flags(MLX5_CTRL_CQ_UPDATE);
            keep_signaled(index + 1);
        }
        return flags;
    }
    GIC_DEVICE void keep_signaled(uint32_t end) {
        if (h_.choices.scope != gda_scope::qp && leads())
            cold::keep_signaled(h_, self_, peer_, end);
    }
    GIC_DEVICE void note_signaled() {
        if (h_.choices.scope != gda_scope::qp && leads())
            cold::note_signaled(h_, self_, peer_);
    }

    // --- publish and announce ------------------------------------------------------------------------------

    // The blocks [index, index + blocks) hold `wqes` complete WQEs.
    GIC_DEVICE int publish(uint32_t index, uint32_t blocks, uint32_t wqes) {
        const uint32_t next = index + blocks;
        if constexpr (bare) {
            c_.next = next;
            if ((next & (h_.choices.batch - 1)) < wqes)
                announce_own();
            return gic::OK;
        } else if constexpr (exclusive) {
            c_.next = next;
            c_.pending += wqes;
            if (c_.pending >= h_.choices.batch)
                announce_own();
            return gic::OK;
        } else {
            return publish_shared(words_, index, blocks, wqes);
        }
    }
    GIC_DEVICE int publish_shared(typename cold::words *w, uint32_t index, uint32_t blocks, uint32_t wqes) {
        const uint32_t next = index + blocks, batch = h_.choices.batch;
        if constexpr (gda_form(S) == gda_sharing::lock) {
            note_signaled();
            const uint32_t pending = batch_ + wqes;
            const bool ring = pending >= batch;
            c_.pending = ring ? 0 : c_.pending + wqes;
            w->pending = ring ? 0 : pending;
            w->reserved = next;
            w->turn = gda_turn_word(next, 0);
            if (ring) {
                gic::store_relaxed<scope>(&w->rung, next);
                announce(t_.dbr, t_.bell, next, t_.qpn_word);
                c_.doorbells++;
            }
            cold::unlock(w);
            return gic::OK;
        } else {
            gic::fence_acq_rel<scope>();
            const auto turn = cold::take_turn(h_, w, index, blocks);
            if (turn.status)
                return turn.status;
            if (h_.choices.scope != gda_scope::qp) {
                note_signaled();
                gic::fence_acq_rel<scope>(); // the next turn finds it
            }
            // The turn goes on before the doorbell: the next agent need not wait for that.
            cold::pass_turn(w, index, turn.posted, blocks, wqes);
            const bool ring = turn.posted % batch + wqes >= batch;
            c_.pending = ring ? 0 : c_.pending + wqes;
            return ring ? cold::ring_shared(h_, q_, next) : (int)gic::OK;
        }
    }

    GIC_DEVICE void announce(uint32_t *dbr, uint64_t *bell, uint32_t next, uint32_t qpn_word) const {
        if constexpr (O == gda_order::runtime)
            gda_cold_order::announce(h_.choices.order, dbr, bell, next, qpn_word);
        else
            gda_announce<O>(dbr, bell, next, qpn_word);
    }
    GIC_DEVICE void announce_next() {
        if (leads())
            announce(t_.dbr, t_.bell, c_.next, t_.qpn_word);
        c_.pending = 0;
        c_.doorbells++;
    }
    GIC_DEVICE void announce_own() {
        announce_next();
        if constexpr (!bare)
            note_signaled();
    }
    // Announces what this agent has posted at the peer it is turned to.
    GIC_DEVICE int ring_own() {
        if constexpr (bare) {
            if (c_.next & (h_.choices.batch - 1))
                announce_own();
            return gic::OK;
        } else {
            if (c_.pending == 0)
                return gic::OK;
            if constexpr (exclusive) {
                announce_own();
                return gic::OK;
            } else {
                c_.pending = 0;
                return cold::ring_shared(h_, q_, c_.last);
            }
        }
    }

    // --- complete ------------------------------------------------------------------------------------------

    GIC_DEVICE int wait_completed(uint32_t end) {
        if (!gda_after(end, c_.cons))
            return gic::OK;
        gda_seen seen{c_.cons, gic::OK};
        if (leads())
            seen = cold::wait(h_, self_, peer_, c_.cons, end);
        return learn(seen);
    }

    // All that this agent posted at the peer it is turned to is complete. Its last WQE asked for a CQE.
    GIC_DEVICE int complete_own() {
        if constexpr (bare)
            c_.last = c_.next;
        if (int s = ring_own())
            return s;
        if (int s = wait_completed(c_.last))
            return s;
        c_.bits &= ~GDA_UNORDERED;
        return gic::OK;
    }

    const gda_shared &h_;
    gic::Self self_;
    uint32_t peer_ = nobody;
    bool behind_ = true; // there may be peers other than peer_ with WQEs that wait for a doorbell

    gda_turn t_{}; // of peer_; its counts are c_'s
    gda_counts c_{};
    gda_queue *q_ = nullptr; // where agents share queues and every post touches it
    typename cold::words *words_ = nullptr;
    // Of the short way: see refit(); and the size of puts that may take it (0: none has been looked at).
    uint32_t brink_ = 0, edge_ = 0, from_ = 0, fit_ = 0;
    uint32_t batch_ = 0; // lock: gda_queue.pending, while it is held
};

#endif
