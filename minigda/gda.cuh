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

template <gda_order O, gda_sharing S> class gda_agent;

template <gda_order O, gda_sharing S> struct gda_handle : gda_shared { using Agent = gda_agent<O, S>; };

template <gda_order O, gda_sharing S> class gda_agent : gda_poster<O, S> {
    using base = gda_poster<O, S>;
    using base::behind_;
    using base::c_;
    using base::h_;
    using base::peer_;
    using base::place_;
    using base::q_;
    using base::self_;

  public:
    GIC_DEVICE gda_agent(const gda_handle<O, S> &h, const gic::Self &self) : base(h, self) {}

    GIC_DEVICE int put(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes) {
        return lead(peer, [&] {
            const uint32_t blocks = put_blocks(bytes);
            return post(blocks, 1, [&](uint64_t at) { write_put(at, this->flags_of(at), dst, src, bytes); });
        });
    }

    template <class F> GIC_DEVICE int put_each(uint32_t peer, uint32_t n, F message) {
        if (S == gda_sharing::warp && h_.choices.inline_max <= GDA_INLINE_ONE_BLOCK &&
            !h_.choices.inline_only)
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
        if (bytes < 8)
            value &= ((uint64_t)1 << (8 * bytes)) - 1;
        return lead(peer, [&] {
            return post(1, 1, [&](uint64_t at) { write_value(at, this->flags_of(at), dst, value, bytes); });
        });
    }

    GIC_DEVICE int signal(uint32_t peer, uint64_t sig, uint64_t add) {
        return lead(peer, [&] { return post(1, 1, [&](uint64_t at) { write_signal(at, sig, add); }); });
    }

    GIC_DEVICE int put_signal(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes, uint64_t sig,
                              uint64_t add) {
        return lead(peer, [&] {
            const uint32_t blocks = put_blocks(bytes);
            return post(blocks ? blocks + 1 : 0, 2, [&](uint64_t at) {
                write_put(at, this->flags_of(at), dst, src, bytes);
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
            return post(blocks ? blocks + 1 : 0, 2, [&](uint64_t at) {
                write_put(at, this->flags_of(at), dst, src, bytes);
                write_value(at + blocks, this->flags_of(at + blocks), sig, value, 8);
            });
        });
    }

    GIC_DEVICE int wait(uint64_t sig, uint64_t at_least) {
        return together([&] {
            const uint64_t *word = (const uint64_t *)(h_.window + sig);
            if (gic::load_acquire(word) >= at_least)
                return (int)gic::OK;
            gda_gate_pass pass(h_.gate, h_.env, this->unordered_rung());
            for (gic::Spin spin(h_.env); gic::load_acquire(word) < at_least;)
                if (int s = spin.failed())
                    return s;
            return (int)gic::OK;
        });
    }

    GIC_DEVICE int get(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes) {
        return lead(peer, [&] {
            return post(bytes <= GDA_PUT_MAX, 1, [&](uint64_t at) {
                gda_write_pointer(place_, at, this->flags_of(at), MLX5_OP_RDMA_READ, src, bytes,
                                  h_.window_key, (uint64_t)(uintptr_t)(h_.window + dst));
                c_.unordered = 1;
            });
        });
    }

    GIC_DEVICE int fetch_add(uint32_t peer, uint64_t off, uint64_t add, uint64_t *old_p) {
        uint64_t old = 0;
        int status = lead(peer, [&] {
            int s = post(1, 1, [&](uint64_t at) {
                gda_write_fetch_add(place_, at, this->flags_of(at, true), off, add, h_.landing_key,
                                    landing());
            });
            if (s == gic::OK && (s = this->ring_own()) == gic::OK &&
                (s = this->wait_completed(c_.last)) == gic::OK)
                old = gic::load_acquire((const uint64_t *)(uintptr_t)landing());
            return s;
        });
        *old_p = gic::broadcast(self_, old);
        return status;
    }

    GIC_DEVICE int fence(uint32_t peer) {
        return lead(peer, [&] {
            c_.fence = c_.unordered;
            return (int)gic::OK;
        });
    }

    GDA_COLD int flush(uint32_t peer) {
        if (h_.choices.scope == gda_scope::all)
            return quiet();
        return lead(peer, [&] {
            if (int s = this->complete_own())
                return s;
            return h_.choices.scope == gda_scope::qp ? (int)gic::OK : this->complete_peer(peer);
        });
    }

    GDA_COLD int quiet() {
        // From the peer it is turned to on: that one's place need not be written back twice.
        const uint32_t first = peer_ == base::nobody ? 0 : peer_;
        GIC_ROLLED
        for (uint32_t i = 0; i < h_.nranks; i++)
            if (int s = lead((first + i) % h_.nranks, [&] { return this->complete_own(); }))
                return s;
        if (h_.choices.scope == gda_scope::qp)
            return gic::OK;
        return together([&] {
            GIC_ROLLED
            for (uint32_t peer = 0; peer < h_.nranks; peer++)
                if (int s = this->complete_peer(peer))
                    return s;
            return (int)gic::OK;
        });
    }

    GIC_DEVICE void gpu_visible() { gic::fence_acq_rel<gic::Scope::system>(); }

    GIC_DEVICE int ring() {
        if (peer_ != base::nobody)
            if (int s = together([&] { return this->ring_own(); }))
                return s;
        if (!gic::broadcast(self_, behind_))
            return gic::OK;
        GIC_ROLLED
        for (uint32_t i = 0; i < h_.nranks; i++)
            if (int s = lead(i, [&] { return this->ring_own(); }))
                return s;
        behind_ = false;
        return gic::OK;
    }

  private:
    // Lane 0 acts for the agent; all lanes get its status. What it saw, they see (sync_lanes).
    template <class F> GIC_DEVICE int together(F act) {
        if constexpr (S != gda_sharing::warp) {
            return act();
        } else {
            gic::sync_lanes(self_);
            int status = self_.lane == 0 ? act() : (int)gic::OK;
            return gic::broadcast(self_, status);
        }
    }
    template <class F> GIC_DEVICE int lead(uint32_t peer, F act) {
        if (int s = this->turn_to(peer))
            return s;
        return together(act);
    }

    // Reserve, write, publish. `blocks` 0: the arguments asked for something no WQE can carry.
    template <class F> GIC_DEVICE int post(uint32_t blocks, uint32_t wqes, F write) {
        if (blocks == 0)
            return gic::ERR_INVAL;
        uint64_t index;
        if (int s = this->reserve(blocks, &index))
            return s;
        write(index);
        return this->publish(index, blocks, wqes);
    }

    GIC_DEVICE uint32_t put_blocks(uint32_t bytes) const {
        if (bytes <= h_.choices.inline_max && bytes > GDA_INLINE_ONE_BLOCK)
            return mlx5_ds_blocks(mlx5_inline_ds(2, bytes));
        if (bytes > h_.choices.inline_max && (h_.choices.inline_only || bytes > GDA_PUT_MAX))
            return 0;
        return 1;
    }

    GIC_DEVICE void write_put(uint64_t at, uint32_t flags, uint64_t dst, uint64_t src, uint32_t bytes) const {
        const uint8_t *from = h_.window + src;
        if (bytes == 8 && h_.choices.inline_max >= 8 && ((uintptr_t)from & 7) == 0)
            gda_write_value(place_, at, flags, dst, *(const uint64_t *)from, 8);
        else if (bytes && bytes <= h_.choices.inline_max)
            gda_write_inline(place_, at, flags, dst, from, bytes);
        else
            gda_write_pointer(place_, at, flags, MLX5_OP_RDMA_WRITE, dst, bytes, h_.window_key,
                              (uint64_t)(uintptr_t)from);
    }

    GIC_DEVICE void write_value(uint64_t at, uint32_t flags, uint64_t dst, uint64_t value,
                                uint32_t bytes) const {
        if (h_.choices.inline_max >= 8)
            return gda_write_value(place_, at, flags, dst, value, bytes);
        // Nothing goes inline: the value waits in memory, one word per slot, until its WQE is complete.
        uint64_t *word = q_->values + ((uint32_t)at & place_.mask);
        *word = value;
        gda_write_pointer(place_, at, flags, MLX5_OP_RDMA_WRITE, dst, bytes, q_->values_key,
                          (uint64_t)(uintptr_t)word);
    }

    GIC_DEVICE void write_signal(uint64_t at, uint64_t sig, uint64_t add) {
        gda_write_fetch_add(place_, at, this->flags_of(at), sig, add, h_.landing_key, landing());
        c_.unordered = 1;
    }
    GIC_DEVICE uint64_t landing() const { return (uint64_t)(uintptr_t)this->landing_at(peer_); }

    // n single-block puts by one reservation, built by all lanes, published and rung once.
    template <class F> GIC_DEVICE int put_group(uint32_t peer, uint32_t n, F message) {
        if (n == 0)
            return gic::OK;
        if (n > h_.lanes)
            return gic::ERR_INVAL;
        uint64_t first = 0;
        if (int s = lead(peer, [&] { return this->reserve(n, &first); }))
            return s;
        first = gic::broadcast(self_, first);
        const uint32_t since = gic::broadcast(self_, c_.since), every = h_.choices.signal_every;
        const uint32_t fence = gic::broadcast(self_, c_.fence);
        bool refused = false;
        GIC_ROLLED
        for (uint32_t i = gic::lane_first(self_); i < n; i += gic::lane_step(self_)) {
            const gic::Message m = message(i);
            uint32_t flags = fence && i == 0 ? gda_flags(MLX5_CTRL_FENCE) : 0;
            if (every == 1 || (since + i + 1) % every == 0)
                flags |= gda_flags(MLX5_CTRL_CQ_UPDATE);
            if (m.bytes <= GDA_PUT_MAX) {
                write_put(first + i, flags, m.dst, m.src, m.bytes);
            } else { // its slot is taken: the others' must not be lost with it
                refused = true;
                gda_write_nop(place_, first + i, flags);
            }
        }
        // Lane 0's announcement covers what every lane wrote.
        gic::sync_lanes(self_);
        int status = together([&] {
            const uint32_t rest = every == 1 ? 0 : (since + n) % every;
            c_.since = rest;
            c_.last = first + n;
            if (rest < n)
                c_.signaled = first + n - rest;
            c_.fence = 0;
            return this->publish(first, n, n);
        });
        return refused ? (int)gic::ERR_INVAL : status;
    }
};

#endif
