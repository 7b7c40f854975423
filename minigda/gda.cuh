// mini-gda: the submission path a GPU thread cannot do without, with every choice of the paper a parameter.
//
// gda_handle is the device handle of backends/abi/device.cuh over mlx5 send queues; gda.h fills it. The same
// code is compiled by g++ for threads of this machine and by nvcc for CUDA threads. What its words give:
//
//   put, put_value   one RDMA_WRITE: inline up to choices.inline_max bytes, else by pointer
//   get              one RDMA_READ
//   signal           one 8-byte ATOMIC_FA. Strong: all of an agent's requests to one peer go to one RC queue
//                    pair, whose requests the responder executes in order
//   put_signal       both, published together
//   notify           8 bytes: one RDMA_WRITE of the polled word. More: the payload, then a write of the word
//   fetch_add        ATOMIC_FA that asks for a CQE, and a wait for it
//   fence            nothing for writes (RC order); the next WQE carries the fence bit when reads or atomics
//   may
//                    be outstanding
//   flush            locally complete by the CQE of the agent's last WQE at that peer (a NOP when that one
//   asked
//                    for none); RC's CQE also says that the peer's NIC has it. Scope peer and all: also what
//                    other agents announced on the other queue pairs of that peer, of all peers
//   quiet            flush at every peer
//   gpu_visible      an acquire at system scope
//
// A post that fills a batch rings; a smaller rest waits for ring(), flush(), quiet() or further posts.
#ifndef MINIGDA_GDA_CUH
#define MINIGDA_GDA_CUH

#include "minigda/gda_post.cuh"
#include "minigda/gda_spare.cuh"

template <gda_order O, gda_sharing S> class gda_agent;

template <gda_order O, gda_sharing S> struct gda_handle : gda_shared {
    using Agent = gda_agent<O, S>;
    static constexpr bool block_memory = gda_in_block(S);
#if defined(__CUDACC__)
    GIC_DEVICE void enter_block() const { gda_block_enter(queues, nranks * choices.qps); }
    GIC_DEVICE void leave_block(uint32_t agents) const {
        gda_block_leave(queues, nranks * choices.qps, agents);
    }
#endif
};
template <gda_order O> struct gda_handle<O, gda_sharing::spare> : gda_shared {
    using Agent = gda_spare_agent<O>;
};

template <gda_order O, gda_sharing S> class gda_agent : gda_poster<O, S> {
    using base = gda_poster<O, S>;
    using base::behind_;
    using base::brink_;
    using base::c_;
    using base::edge_;
    using base::fit_;
    using base::from_;
    using base::h_;
    using base::peer_;
    using base::self_;
    using base::t_;
    using cold = typename base::cold;

  public:
    GIC_DEVICE gda_agent(const gda_handle<O, S> &h, const gic::Self &self) : base(h, self) {}

    GIC_DEVICE int put(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes) {
        if constexpr (gda_exclusive(S) && !gda_lanes(S))
            if (GDA_LIKELY(put_short(peer, dst, src, bytes)))
                return gic::OK;
        int status = lead(peer, [&] {
            return post(put_blocks(bytes), 1, [&](uint32_t at) {
                const uint32_t flags = this->flags_of(at);
                if (this->leads())
                    write_put(at, flags, dst, src, bytes);
            });
        });
        if (status == gic::OK)
            fit(bytes);
        return status;
    }

    template <class F> GIC_DEVICE int put_each(uint32_t peer, uint32_t n, F message) {
        if constexpr (!gda_lanes(S)) {
            // n is 1; a loop around it would load all constants anew in front of it
            (void)n;
            const gic::Message m = message(0);
            return put(peer, m.dst, m.src, m.bytes);
        }
        if constexpr (base::group)
            if (GDA_LIKELY((peer == peer_) & (n - 1 < h_.lanes) & (base::bare | (brink_ - c_.next >= n))))
                return put_group_short(n, message);
        if (gda_lanes(S) && base::one_block(h_.choices))
            return put_group(peer, n, message);
        GIC_ROLLED
        for (uint32_t i = 0; i < n; i++) {
            const gic::Message m = message(i);
            if (int s = put(peer, m.dst, m.src, m.bytes))
                return s;
        }
        return gic::OK;
    }

    GIC_DEVICE int put_value(uint32_t peer, uint64_t dst, uint64_t value, uint32_t bytes) {
        if (bytes == 0 || bytes > 8 || (bytes & (bytes - 1)))
            return gic::ERR_INVAL;
        if constexpr (gda_exclusive(S) && !gda_lanes(S))
            if (bytes == 8 && t_.by_value && GDA_LIKELY(open_to(peer))) {
                write_short(true, c_.next, dst, gda_value(value));
                advance(1);
                return gic::OK;
            }
        if (bytes < 8)
            value &= ((uint64_t)1 << (8 * bytes)) - 1;
        return lead(peer,
                    [&] { return post(1, 1, [&](uint32_t at) { write_value(at, dst, value, bytes); }); });
    }

    GIC_DEVICE int signal(uint32_t peer, uint64_t sig, uint64_t add) {
        return lead(peer, [&] { return post(1, 1, [&](uint32_t at) { write_signal(at, sig, add); }); });
    }

    GIC_DEVICE int put_signal(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes, uint64_t sig,
                              uint64_t add) {
        return lead(peer, [&] {
            const uint32_t blocks = put_blocks(bytes);
            return post(blocks ? blocks + 1 : 0, 2, [&](uint32_t at) {
                const uint32_t flags = this->flags_of(at);
                if (this->leads())
                    write_put(at, flags, dst, src, bytes);
                write_signal(at + blocks, sig, add);
            });
        });
    }

    GIC_DEVICE int notify(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes, uint64_t sig,
                          uint64_t value) {
        if (bytes == 8)
            return put_value(peer, sig, value, 8);
        return lead(peer, [&] {
            const uint32_t blocks = put_blocks(bytes);
            return post(blocks ? blocks + 1 : 0, 2, [&](uint32_t at) {
                const uint32_t flags = this->flags_of(at);
                if (this->leads())
                    write_put(at, flags, dst, src, bytes);
                write_value(at + blocks, sig, value, 8);
            });
        });
    }

    GIC_DEVICE int wait(uint64_t sig, uint64_t at_least) {
        return solo([&] {
            const uint64_t *word = (const uint64_t *)(h_.window + sig);
            return gic::load_acquire(word) >= at_least ? (int)gic::OK : cold::wait_word(h_, word, at_least);
        });
    }

    GIC_DEVICE int get(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes) {
        return lead(peer, [&] {
            return post(bytes <= GDA_PUT_MAX, 1, [&](uint32_t at) {
                const uint32_t flags = this->flags_of(at);
                if (this->leads())
                    gda_write_pointer(this->place(), at, flags, MLX5_OP_RDMA_READ, src, bytes, h_.window_key,
                                      (uint64_t)(uintptr_t)(h_.window + dst));
                c_.bits |= GDA_UNORDERED;
            });
        });
    }

    GIC_DEVICE int fetch_add(uint32_t peer, uint64_t off, uint64_t add, uint64_t *old_p) {
        uint64_t old = 0;
        int status = lead(peer, [&] {
            int s = post(1, 1, [&](uint32_t at) {
                const uint32_t flags = this->flags_of(at, true);
                if (this->leads())
                    gda_write_fetch_add(this->place(), at, flags, off, add, h_.landing_key, this->landing());
                c_.last = at + 1;
            });
            if (s == gic::OK && (s = this->ring_own()) == gic::OK &&
                (s = this->wait_completed(c_.last)) == gic::OK)
                old = gic::load_acquire((const uint64_t *)(uintptr_t)this->landing());
            return s;
        });
        *old_p = gda_form(S) == gda_sharing::warp ? gic::broadcast(self_, old) : old;
        return status;
    }

    GIC_DEVICE int fence(uint32_t peer) {
        return lead(peer, [&] {
            if (c_.bits & GDA_UNORDERED)
                c_.bits |= GDA_FENCE;
            else
                c_.bits &= ~GDA_FENCE;
            this->refit();
            return (int)gic::OK;
        });
    }

    GIC_DEVICE int flush(uint32_t peer) {
        if (h_.choices.scope == gda_scope::all)
            return quiet();
        if (int s = lead(peer, [&] { return complete(); }))
            return s;
        if (h_.choices.scope == gda_scope::qp)
            return gic::OK;
        return solo([&] { return cold::complete_peer(h_, self_.agent, peer); });
    }

    GIC_DEVICE int quiet() {
        this->leave();
        const int status = apart_quiet(h_, self_);
        behind_ &= status != gic::OK;
        return status;
    }

    GIC_DEVICE void gpu_visible() { gic::fence_acq_rel<gic::Scope::system>(); }

    GIC_DEVICE int ring() {
        this->settle();
        if (peer_ != base::nobody)
            if (int s = together([&] { return this->ring_own(); }))
                return s;
        if (gda_form(S) == gda_sharing::warp ? !gic::broadcast(self_, behind_) : !behind_)
            return gic::OK;
        GIC_ROLLED
        for (uint32_t i = 0; i < h_.nranks; i++)
            if (int s = lead(i, [&] { return this->ring_own(); }))
                return s;
        behind_ = false;
        return gic::OK;
    }

  private:
    // What is seldom called and long is done by a second agent of the same number, in a function of its own, while
    // this one is turned to nobody.
    GIC_COLD static int apart_quiet(const gda_shared &h, gic::Self self) {
        gda_agent agent(static_cast<const gda_handle<O, S> &>(h), self);
        return agent.quiet_here();
    }
    // The last WQE at that peer asks for a CQE: where it did not, a NOP behind it does.
    GIC_COLD static int apart_ask(const gda_shared &h, gic::Self self, uint32_t peer) {
        gda_agent agent(static_cast<const gda_handle<O, S> &>(h), self);
        if (int s = agent.turn_to(peer))
            return s;
        return agent.post(1, 1, [&](uint32_t at) {
            const uint32_t flags = agent.flags_of(at, true);
            if (agent.leads())
                gda_write_nop(agent.place(), at, flags);
        });
    }

    GIC_DEVICE int quiet_here() {
        GIC_ROLLED
        for (uint32_t peer = 0; peer < h_.nranks; peer++)
            if (int s = lead(peer, [&] { return complete(); }))
                return s;
        if (h_.choices.scope == gda_scope::qp)
            return gic::OK;
        return solo([&] {
            GIC_ROLLED
            for (uint32_t peer = 0; peer < h_.nranks; peer++)
                if (int s = cold::complete_peer(h_, self_.agent, peer))
                    return s;
            return (int)gic::OK;
        });
    }

    // At the peer it is turned to.
    GIC_DEVICE int complete() {
        if (!base::bare && c_.since) {
            const uint32_t peer = peer_;
            this->leave();
            if (int s = apart_ask(h_, self_, peer))
                return s;
            if (int s = this->turn_to(peer))
                return s;
        }
        return this->complete_own();
    }

    // Lane 0 acts for the agent; all lanes get its status. What it saw, they see (sync_lanes).
    template <class F> GIC_DEVICE int solo(F act) {
        if constexpr (!gda_lanes(S)) {
            return act();
        } else {
            gic::sync_lanes(self_);
            int status = self_.lane == 0 ? act() : (int)gic::OK;
            return gic::broadcast(self_, status);
        }
    }
    // The same for what changes the agent's state, which in a group all lanes have.
    template <class F> GIC_DEVICE int together(F act) {
        if constexpr (base::group) {
            gic::sync_lanes(self_);
            return act();
        } else {
            return solo(act);
        }
    }
    template <class F> GIC_DEVICE int lead(uint32_t peer, F act) {
        if (int s = this->turn_to(peer))
            return s;
        return together(act);
    }

    // --- the short way: see refit() ------------------------------------------------------------------------

    // Puts of this size have been seen to be one block, by pointer.
    GIC_DEVICE void fit(uint32_t bytes) {
        if constexpr (gda_exclusive(S))
            fit_ = bytes > h_.choices.inline_max ? bytes : 0;
    }
    GIC_DEVICE bool open_to(uint32_t peer) const {
        return (peer == peer_) & (base::bare | (c_.next != edge_));
    }
    // By pointer the stores come before anything branches, and carry the condition; so does the load of a payload that
    // goes by value, which is on its way then. False: it has to go the long way.
    GIC_DEVICE bool put_short(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes) {
        const uint64_t from = (uint64_t)(uintptr_t)t_.window + src; // which may be nobody's yet
        const bool open = open_to(peer), last = c_.next + 1 == edge_;
        const bool value = open & (bytes == 8) & (t_.by_value != 0) & ((src & 7) == 0);
        const bool points = open & (base::bare ? !t_.by_value : (bytes == fit_) & (bytes != 0));
        const uint64_t payload = gda_load_if(value, from);
        write_short(points, c_.next, dst, gda_data(bytes, t_.lkey_word, from));
        if (!GDA_LIKELY(points)) {
            if (!value)
                return put_carried(open, dst, from, bytes);
            write_short(true, c_.next, dst, gda_value(payload));
        }
        if constexpr (base::counted) {
            c_.next++;
            if (last)
                this->reach();
        } else {
            advance(1);
        }
        return true;
    }
    // What goes into the WQE and is no aligned word, over as many blocks as it takes.
    GIC_DEVICE bool put_carried(bool open, uint64_t dst, uint64_t from, uint32_t bytes) {
        if constexpr (base::counted) {
            const uint32_t at = c_.next, blocks = mlx5_ds_blocks(mlx5_inline_ds(2, bytes));
            if (open & (bytes - 1 < h_.choices.inline_max) & (brink_ - at >= blocks)) {
                gda_write_inline(this->place(), at, gda_flags(MLX5_CTRL_CQ_UPDATE), dst,
                                 (const uint8_t *)(uintptr_t)from, bytes);
                this->settle();
                c_.next = from_ = at + blocks;
                c_.last = at + 1;
                c_.pending++;
                this->reach();
                return true;
            }
        }
        return false;
    }
    GIC_DEVICE void write_short(bool go, uint32_t at, uint64_t dst, gda_segment payload) const {
        const gda_place q = this->place();
        gda_store_if(go, q.at(at), gda_ctrl(q, at, MLX5_OP_RDMA_WRITE, 3, gda_flags(MLX5_CTRL_CQ_UPDATE)),
                     gda_raddr(q, dst), payload);
    }
    GIC_DEVICE void advance(uint32_t wqes) {
        c_.next += wqes;
        if constexpr (base::counted) {
            if (c_.next == edge_)
                this->reach();
            return;
        }
        bool full;
        if constexpr (base::bare) {
            full = (c_.next & (h_.choices.batch - 1)) < wqes;
        } else {
            c_.last = c_.next;
            c_.pending += wqes;
            full = c_.pending >= h_.choices.batch;
        }
        if (full)
            this->announce_next();
    }

    // Reserve, write, publish. `blocks` 0: the arguments asked for something no WQE can carry.
    template <class F> GIC_DEVICE int post(uint32_t blocks, uint32_t wqes, F write) {
        if (blocks == 0)
            return gic::ERR_INVAL;
        uint32_t index;
        if (int s = this->reserve(blocks, &index))
            return s;
        write(index);
        const int status = this->publish(index, blocks, wqes);
        this->refit();
        return status;
    }

    GIC_DEVICE uint32_t put_blocks(uint32_t bytes) const {
        if (base::bare)
            return 1;
        if (bytes <= h_.choices.inline_one)
            return 1;
        if (bytes <= h_.choices.inline_max)
            return mlx5_ds_blocks(mlx5_inline_ds(2, bytes));
        return bytes <= h_.choices.put_max;
    }

    GIC_DEVICE void write_put(uint32_t at, uint32_t flags, uint64_t dst, uint64_t src, uint32_t bytes) const {
        const uint8_t *from = h_.window + src;
        if (bytes == 8 && h_.choices.inline_max >= 8 && ((uintptr_t)from & 7) == 0)
            gda_write_value(this->place(), at, flags, dst, *(const uint64_t *)from, 8);
        else if (!base::bare && bytes && bytes <= h_.choices.inline_max)
            gda_write_inline(this->place(), at, flags, dst, from, bytes);
        else
            gda_write_pointer(this->place(), at, flags, MLX5_OP_RDMA_WRITE, dst, bytes, h_.window_key,
                              (uint64_t)(uintptr_t)from);
    }

    GIC_DEVICE void write_value(uint32_t at, uint64_t dst, uint64_t value, uint32_t bytes) {
        const uint32_t flags = this->flags_of(at);
        if (!this->leads())
            return;
        if (h_.choices.inline_max >= 8)
            return gda_write_value(this->place(), at, flags, dst, value, bytes);
        // Nothing goes inline: the value waits in memory, one word per slot, until its WQE is complete.
        const gda_queue *q = cold::queue(h_, self_, peer_);
        uint64_t *word = q->values + (at & t_.mask);
        *word = value;
        gda_write_pointer(this->place(), at, flags, MLX5_OP_RDMA_WRITE, dst, bytes, q->values_key,
                          (uint64_t)(uintptr_t)word);
    }

    GIC_DEVICE void write_signal(uint32_t at, uint64_t sig, uint64_t add) {
        const uint32_t flags = this->flags_of(at);
        if (this->leads())
            gda_write_fetch_add(this->place(), at, flags, sig, add, h_.landing_key, this->landing());
        c_.bits |= GDA_UNORDERED;
    }

    // n single-block puts by one reservation, built by all lanes, published and rung once.
    template <class F> GIC_DEVICE int put_group(uint32_t peer, uint32_t n, F message) {
        if (n == 0)
            return gic::OK;
        if (n > h_.lanes)
            return gic::ERR_INVAL;
        uint32_t first = 0;
        if (int s = lead(peer, [&] { return this->reserve(n, &first); }))
            return s;
        uint32_t since = c_.since, fence = c_.bits & GDA_FENCE;
        const uint32_t every = base::bare ? 1 : h_.choices.signal_every;
        if constexpr (!base::group) {
            first = gic::broadcast(self_, first);
            since = gic::broadcast(self_, since);
            fence = gic::broadcast(self_, fence);
        }
        bool refused = false;
        GIC_ROLLED
        for (uint32_t i = gic::lane_first(self_); i < n; i += gic::lane_step(self_)) {
            const gic::Message m = message(i);
            uint32_t flags = fence && i == 0 ? gda_flags(MLX5_CTRL_FENCE) : 0;
            if (every == 1 || (since + i + 1) % every == 0)
                flags |= gda_flags(MLX5_CTRL_CQ_UPDATE);
            if (m.bytes <= GDA_PUT_MAX) {
                write_put(first + i, flags, m.dst, m.src, m.bytes);
                fit(m.bytes);
            } else { // its slot is taken: the others' must not be lost with it
                refused = true;
                gda_write_nop(this->place(), first + i, flags);
            }
        }
        // Lane 0's announcement covers what every lane wrote.
        int status = together([&] {
            const uint32_t rest = every == 1 ? 0 : (since + n) % every;
            c_.since = rest;
            c_.last = first + n;
            if (rest < n)
                this->keep_signaled(first + n - rest);
            c_.bits &= ~GDA_FENCE;
            const int published = this->publish(first, n, n);
            this->refit();
            return published;
        });
        return refused ? (int)gic::ERR_INVAL : status;
    }
    // No lane waits for another before it builds its WQE: its slot is its own, and that all have theirs is what
    // lane 0 announces.
    template <class F> GIC_DEVICE int put_group_short(uint32_t n, F message) {
        int status = gic::OK;
        GIC_ROLLED
        for (uint32_t i = gic::lane_first(self_); i < n; i += gic::lane_step(self_)) {
            const gic::Message m = message(i);
            const uint32_t at = c_.next + i, flags = gda_flags(MLX5_CTRL_CQ_UPDATE);
            const uint8_t *from = t_.window + m.src;
            const bool points = (m.bytes == fit_) & (m.bytes != 0);
            write_short(points, at, m.dst, gda_data(m.bytes, t_.lkey_word, (uint64_t)(uintptr_t)from));
            if (!GDA_LIKELY(points)) {
                if ((m.bytes == 8) & (t_.by_value != 0) & ((m.src & 7) == 0)) {
                    write_short(true, at, m.dst, gda_value(*(const uint64_t *)from));
                } else if (m.bytes <= GDA_PUT_MAX) {
                    write_put(at, flags, m.dst, m.src, m.bytes);
                    fit(m.bytes);
                } else {
                    gda_write_nop(this->place(), at, flags);
                    status = gic::ERR_INVAL;
                }
            }
#if defined(__CUDACC__)
            break; // there are no more messages than lanes
#endif
        }
        gic::sync_lanes(self_);
        advance(n);
        return status;
    }
};

#endif
