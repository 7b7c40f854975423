// The post path of one agent: reserve a slot, write the WQE, order, doorbell record, order, doorbell; and the
// completion path: poll a collapsed CQ. gda.cuh puts the contract's operations on top.
//
// One agent holds its place at one peer (gda_cursor) in registers and changes it when it turns to another
// peer, so the path to one peer touches nothing but the queue. Whatever waits is a call (gda_cold) that gets and
// gives values: those registers stay registers, and a kernel has one copy of each wait however often it posts.
#ifndef MINIGDA_GDA_POST_CUH
#define MINIGDA_GDA_POST_CUH

#include "minigda/gda_cold.cuh"

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
