// What agents of a launch share, and the waits of one: for a slot, a lock, a turn, a completion. They are calls that get and
// give values (gda_post.cuh).
#ifndef MINIGDA_GDA_COLD_CUH
#define MINIGDA_GDA_COLD_CUH

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

#endif
