// The post path of one agent: reserve a slot, write the WQE, order, doorbell record, order, doorbell; and the
// completion path: poll a collapsed CQ. gda.cuh puts the contract's operations on top.
//
// One agent holds its place at one peer (gda_cursor) in registers and changes it when it turns to another
// peer, so the path to one peer touches nothing but the queue.
#ifndef MINIGDA_GDA_POST_CUH
#define MINIGDA_GDA_POST_CUH

#include "minigda/gda_order.cuh"
#include "minigda/gda_wqe.cuh"

// What every agent of a launch shares; the base of the handle.
struct gda_shared {
    uint32_t rank, nranks;
    uint8_t *window; // this rank's
    gic::Env env;
    uint32_t lanes;
    uint32_t window_key, landing_key;
    gda_choices choices;
    gda_queue *queues;     // [peer * qps + i]
    gda_cursor *cursors;   // [agent * nranks + peer]
    gda_landing *landings; // as cursors
    gda_gate *gate;        // of order=none
};

template <gda_order O, gda_sharing S> class gda_poster {
  protected:
    static constexpr bool exclusive = S == gda_sharing::exclusive;
    static constexpr bool in_turn = S == gda_sharing::handoff || S == gda_sharing::warp;
    static constexpr uint32_t nobody = ~0u;

    GIC_DEVICE gda_poster(const gda_shared &h, const gic::Self &self) : h_(h), self_(self) {}
    gda_poster(const gda_poster &) = delete;
    gda_poster &operator=(const gda_poster &) = delete;
    GIC_DEVICE ~gda_poster() { leave(); }

    GIC_DEVICE gda_queue *queue_of(uint32_t peer) const {
        return h_.queues + (size_t)peer * h_.choices.qps + self_.agent % h_.choices.qps;
    }
    GIC_DEVICE gda_cursor *cursor_of(uint32_t peer) const {
        return h_.cursors + (size_t)self_.agent * h_.nranks + peer;
    }
    GIC_DEVICE uint64_t *landing_at(uint32_t peer) const {
        return &h_.landings[(size_t)self_.agent * h_.nranks + peer].old;
    }

    // Turns to `peer`: all lanes know its queue, lane 0 alone keeps the cursor.
    GIC_DEVICE int turn_to(uint32_t peer) { return peer == peer_ ? (int)gic::OK : change_peer(peer); }
    GDA_COLD int change_peer(uint32_t peer) {
        if (peer >= h_.nranks)
            return gic::ERR_INVAL;
        leave();
        peer_ = peer;
        q_ = queue_of(peer);
        place_ = gda_place{q_->blocks,          q_->depth - 1, q_->qpn, mlx5_ctrl_word1(q_->qpn, 0),
                           mlx5_be32(q_->rkey), q_->remote,    q_->dbr, q_->bell};
        c_ = *cursor_of(peer);
        return gic::OK;
    }
    GDA_COLD void leave() {
        if (peer_ == nobody || self_.lane != 0)
            return;
        *cursor_of(peer_) = c_;
        behind_ |= c_.pending != 0;
        peer_ = nobody;
    }

    // --- reserve -------------------------------------------------------------------------------------------

    // `blocks` consecutive free slots; under lock sharing the lock is held until publish().
    GIC_DEVICE int reserve(uint32_t blocks, uint64_t *index_p) {
        if constexpr (exclusive) {
            *index_p = c_.next;
            return c_.next + blocks - c_.cons <= place_.mask + 1 ? (int)gic::OK : make_room(c_.next + blocks);
        } else if constexpr (S == gda_sharing::lock) {
            if (int s = lock(q_))
                return s;
            *index_p = q_->reserved;
            int s = make_room(q_->reserved + blocks);
            if (s)
                unlock(q_);
            return s;
        } else {
            *index_p = gic::fetch_add<gic::Scope::device>(&q_->reserved, (uint64_t)blocks);
            return make_room(*index_p + blocks);
        }
    }

    // Waits until the blocks below `end` fit the queue. Never rings: the host has checked that a full queue
    // always holds an announced, signaled WQE.
    GDA_COLD int make_room(uint64_t end) {
        const uint64_t depth = (uint64_t)place_.mask + 1;
        if constexpr (!exclusive)
            c_.cons = gic::load_acquire<gic::Scope::device>(&q_->cons);
        if (end <= c_.cons + depth)
            return gic::OK;
        // What is complete already was only not looked at: that is no wait.
        if (int s = look())
            return s;
        if (end <= c_.cons + depth)
            return gic::OK;
        c_.slot_waits++;
        return wait_completed(end - depth);
    }

    // --- completion bits -----------------------------------------------------------------------------------

    // gda_flags() of the agent's next WQE, which starts at `index`.
    GIC_DEVICE uint32_t flags_of(uint64_t index, bool signal = false) {
        uint32_t flags = 0;
        if (c_.fence) {
            flags = gda_flags(MLX5_CTRL_FENCE);
            c_.fence = 0;
        }
        c_.last = index + 1;
        if (++c_.since >= h_.choices.signal_every || signal) {
            c_.since = 0;
            c_.signaled = index + 1;
            flags |= gda_flags(MLX5_CTRL_CQ_UPDATE);
        }
        return flags;
    }

    // --- publish and announce
    // --------------------------------------------------------------------------------

    // The blocks [index, index + blocks) hold `wqes` complete WQEs.
    GIC_DEVICE int publish(uint64_t index, uint32_t blocks, uint32_t wqes) {
        const uint64_t next = index + blocks;
        if constexpr (exclusive) {
            c_.next = next;
            c_.pending += wqes;
            if (c_.pending >= h_.choices.batch)
                announce_own();
            return gic::OK;
        } else if constexpr (S == gda_sharing::lock) {
            q_->reserved = next;
            q_->ready = next;
            note_signaled();
            c_.pending += wqes;
            if ((q_->pending += wqes) >= h_.choices.batch) {
                c_.pending = q_->pending = 0;
                announce_locked(q_, next);
            }
            unlock(q_);
            return gic::OK;
        } else {
            // The turn: everything reserved before is published. Acquire, so that this thread's announcement
            // also covers what the others wrote.
            for (gic::Spin spin(h_.env); gic::load_acquire<gic::Scope::device>(&q_->ready) != index;)
                if (int s = spin.failed())
                    return s;
            note_signaled();
            c_.pending += wqes;
            if ((q_->pending += wqes) >= h_.choices.batch) {
                c_.pending = q_->pending = 0;
                if (int s = lock(q_))
                    return s;
                announce_locked(q_, next);
                unlock(q_);
            }
            gic::store_release<gic::Scope::device>(&q_->ready, next);
            return gic::OK;
        }
    }

    GIC_DEVICE void announce(uint32_t *dbr, uint64_t *bell, uint64_t next, uint32_t qpn) const {
        if constexpr (O == gda_order::runtime)
            gda_announce_as(h_.choices.order, dbr, bell, next, qpn);
        else
            gda_announce<O>(dbr, bell, next, qpn);
    }
    GIC_DEVICE void announce_own() {
        announce(place_.dbr, place_.bell, c_.next, place_.qpn);
        c_.pending = 0;
        c_.doorbells++;
        note_signaled();
    }
    GIC_DEVICE void announce_locked(gda_queue *q, uint64_t next) const {
        announce(q->dbr, q->bell, next, q->qpn);
        q->rung = next;
        q->doorbells++;
    }
    // For agents whose completion scope takes in this queue. Under exclusive sharing only what is announced:
    // nobody else could ring for it. The turn or the lock keeps it monotonic otherwise.
    GIC_DEVICE void note_signaled() {
        if (h_.choices.scope == gda_scope::qp)
            return;
        if (exclusive || c_.signaled > gic::load_relaxed<gic::Scope::device>(&q_->signaled))
            gic::store_release<gic::Scope::device>(&q_->signaled, c_.signaled);
    }

    // Announces all that is published and not announced, whoever posted it.
    GDA_COLD int ring_shared(gda_queue *q) const {
        if (int s = lock(q))
            return s;
        const uint64_t ready = gic::load_acquire<gic::Scope::device>(&q->ready);
        if (ready > q->rung) {
            if constexpr (S == gda_sharing::lock)
                q->pending = 0;
            announce_locked(q, ready);
        }
        unlock(q);
        return gic::OK;
    }
    // Announces what this agent has posted at the peer it is turned to.
    GIC_DEVICE int ring_own() {
        if (c_.pending == 0)
            return gic::OK;
        if constexpr (exclusive) {
            announce_own();
            return gic::OK;
        } else {
            c_.pending = 0;
            return ring_shared(q_);
        }
    }
    GIC_DEVICE int lock(gda_queue *q) const {
        for (gic::Spin spin(h_.env); !gic::cas_acquire<gic::Scope::device>(&q->lock, 0u, 1u);)
            if (int s = spin.failed())
                return s;
        return gic::OK;
    }
    GIC_DEVICE void unlock(gda_queue *q) const { gic::store_release<gic::Scope::device>(&q->lock, 0u); }

    // --- complete
    // --------------------------------------------------------------------------------------------

    // One look at a collapsed CQ. Moves *cons_p, a lower bound of what is complete, which must have been
    // known before the look: the NIC gives 16 bits of the index, and a queue never holds more than 32768
    // blocks.
    GIC_DEVICE static int poll(gda_queue *q, uint64_t *cons_p) {
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
        const uint16_t ahead = (uint16_t)((tail >> 16) + 1 - (uint32_t)*cons_p);
        if (ahead > q->depth)
            return gic::ERR_IO; // a counter that no WQE in the queue can have
        *cons_p += ahead;
        return gic::OK;
    }

    // One look at the queue this agent is turned to.
    GDA_COLD int look() {
        if (int s = poll(q_, &c_.cons))
            return s;
        keep(q_, c_.cons, exclusive);
        return gic::OK;
    }
    // Waits until the WQE with index `end - 1`, announced and signaled, or a later one is complete.
    GDA_COLD int wait_completed(uint64_t end) {
        if (end <= c_.cons)
            return gic::OK;
        gda_gate_pass pass(h_.gate, h_.env, unordered_rung());
        return wait_queue(q_, end, &c_.cons, exclusive, false);
    }
    // The same for any queue. `own`: this agent is the only one that writes q->cons.
    GDA_COLD int wait_queue(gda_queue *q, uint64_t end, uint64_t *cons_p, bool own, bool ring) const {
        for (gic::Spin spin(h_.env);;) {
            if (!own) {
                const uint64_t shared = gic::load_acquire<gic::Scope::device>(&q->cons);
                if (shared > *cons_p)
                    *cons_p = shared;
            }
            const uint64_t known = *cons_p;
            if (int s = poll(q, cons_p))
                return s;
            if (*cons_p != known)
                keep(q, *cons_p, own);
            if (*cons_p >= end)
                return gic::OK;
            if (ring)
                if (int s = ring_shared(q))
                    return s;
            if (int s = spin.failed())
                return s;
        }
    }
    GIC_DEVICE void keep(gda_queue *q, uint64_t cons, bool own) const {
        if constexpr (exclusive) {
            if (own && h_.choices.scope != gda_scope::qp)
                gic::store_release<gic::Scope::device>(&q->cons, cons);
        } else {
            // A reader of cons must find a CQE at least as new.
            gic::fence_acq_rel<gic::Scope::device>();
            gic::fetch_max<gic::Scope::device>(&q->cons, cons);
        }
    }
    GIC_DEVICE bool unordered_rung() const {
        if constexpr (O == gda_order::runtime)
            return h_.choices.order == gda_order::none;
        else
            return O == gda_order::none;
    }

    // All that this agent posted at the peer it is turned to is complete.
    GDA_COLD int complete_own() {
        if (c_.since) {
            // No CQE was asked for behind the last one: a NOP asks for it.
            uint64_t index;
            if (int s = reserve(1, &index))
                return s;
            gda_write_nop(place_, index, flags_of(index, true));
            if (int s = publish(index, 1, 1))
                return s;
        }
        if (int s = ring_own())
            return s;
        if (int s = wait_completed(c_.last))
            return s;
        c_.unordered = 0;
        return gic::OK;
    }

    // All that is announced and signaled on another agent's queue is complete.
    GDA_COLD int complete_other(gda_queue *q) {
        const uint64_t end = gic::load_acquire<gic::Scope::device>(&q->signaled);
        uint64_t cons = gic::load_acquire<gic::Scope::device>(&q->cons);
        if (end <= cons)
            return gic::OK;
        gda_gate_pass pass(h_.gate, h_.env, unordered_rung());
        return wait_queue(q, end, &cons, false, !exclusive);
    }
    GDA_COLD int complete_peer(uint32_t peer) {
        gda_queue *own = queue_of(peer);
        GIC_ROLLED
        for (uint32_t i = 0; i < h_.choices.qps; i++) {
            gda_queue *q = h_.queues + (size_t)peer * h_.choices.qps + i;
            if (q != own)
                if (int s = complete_other(q))
                    return s;
        }
        return gic::OK;
    }

    const gda_shared &h_;
    gic::Self self_;
    uint32_t peer_ = nobody;
    bool behind_ = true; // there may be peers other than peer_ with WQEs that wait for a doorbell
    gda_queue *q_ = nullptr;
    gda_place place_{};
    gda_cursor c_{};
};

#endif
