// An agent that keeps nothing between its calls: its place is in GPU memory (gda_cursor) and each call loads what it
// needs, stores WQEs by 8 bytes, and copies inline payload by words. A post takes longer than gda_agent's by that, and
// the kernel that contains it some twenty registers less: for kernels that compute, and now and then send.
//
// What the words give is said in gda.cuh; queues are exclusive and the completion scope is the queue.
#ifndef MINIGDA_GDA_SPARE_CUH
#define MINIGDA_GDA_SPARE_CUH

#include "minigda/gda_post.cuh"

template <gda_order O> class gda_spare_agent {
    using cold = gda_cold<gda_sharing::spare>;

  public:
    template <class H> GIC_DEVICE gda_spare_agent(const H &h, const gic::Self &self) : h_(h), self_(self) {}
    gda_spare_agent(const gda_spare_agent &) = delete;

    GIC_DEVICE int put(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes) {
        return post(peer, put_blocks(bytes), 1, [&](const Queue &q, uint32_t at) {
            write_put(q, at, flags_of(q, at, false), dst, src, bytes);
        });
    }
    template <class F> GIC_DEVICE int put_each(uint32_t peer, uint32_t n, F message) {
        if (peer >= h_.nranks)
            return gic::ERR_INVAL;
        if (n == 0)
            return gic::OK;
        if (n > 1) // an agent is one lane
            return gic::ERR_INVAL;
        const Queue q = queue(peer);
        // Before the message is known: what it is need not be kept while this waits.
        if (int s = reserve(q, put_blocks(h_.choices.inline_max)))
            return s;
        const gic::Message m = message(0);
        const uint32_t blocks = put_blocks(m.bytes);
        if (blocks == 0)
            return gic::ERR_INVAL;
        const uint32_t at = q.c()->next;
        write_put(q, at, flags_of(q, at, false), m.dst, m.src, m.bytes);
        publish(q, at + blocks, 1);
        return gic::OK;
    }
    GIC_DEVICE int put_value(uint32_t peer, uint64_t dst, uint64_t value, uint32_t bytes) {
        if (bytes == 0 || bytes > 8 || (bytes & (bytes - 1)))
            return gic::ERR_INVAL;
        return post(peer, 1, 1, [&](const Queue &q, uint32_t at) { write_value(q, at, dst, value, bytes); });
    }
    GIC_DEVICE int signal(uint32_t peer, uint64_t sig, uint64_t add) {
        return post(peer, 1, 1, [&](const Queue &q, uint32_t at) { write_add(q, at, false, sig, add); });
    }
    GIC_DEVICE int put_signal(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes, uint64_t sig,
                              uint64_t add) {
        const uint32_t blocks = put_blocks(bytes);
        return post(peer, blocks ? blocks + 1 : 0, 2, [&](const Queue &q, uint32_t at) {
            write_put(q, at, flags_of(q, at, false), dst, src, bytes);
            write_add(q, at + blocks, false, sig, add);
        });
    }
    GIC_DEVICE int notify(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes, uint64_t sig,
                          uint64_t value) {
        if (bytes == 8)
            return put_value(peer, sig, value, 8);
        const uint32_t blocks = put_blocks(bytes);
        return post(peer, blocks ? blocks + 1 : 0, 2, [&](const Queue &q, uint32_t at) {
            write_put(q, at, flags_of(q, at, false), dst, src, bytes);
            write_value(q, at + blocks, sig, value, 8);
        });
    }
    GIC_DEVICE int wait(uint64_t sig, uint64_t at_least) {
        const uint64_t *word = (const uint64_t *)(h_.window + sig);
        return gic::load_acquire(word) >= at_least ? (int)gic::OK : cold::wait_word(h_, word, at_least);
    }
    GIC_DEVICE int get(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes) {
        return post(peer, bytes <= GDA_PUT_MAX, 1, [&](const Queue &q, uint32_t at) {
            head(q, at, MLX5_OP_RDMA_READ, bytes ? 3 : 2, flags_of(q, at, false), src);
            if (bytes)
                store(q, at, 2, gda_data(bytes, q.q()->lkey_word, (uint64_t)(uintptr_t)(h_.window + dst)));
            q.c()->bits |= GDA_UNORDERED;
        });
    }
    GIC_DEVICE int fetch_add(uint32_t peer, uint64_t off, uint64_t add, uint64_t *old_p) {
        *old_p = 0;
        if (int s = post(peer, 1, 1, [&](const Queue &q, uint32_t at) { write_add(q, at, true, off, add); }))
            return s;
        const Queue q = queue(peer);
        ring(q);
        if (int s = wait_completed(q, q.c()->last))
            return s;
        *old_p = gic::load_acquire((const uint64_t *)(uintptr_t)q.landing());
        return gic::OK;
    }
    GIC_DEVICE int fence(uint32_t peer) {
        if (peer >= h_.nranks)
            return gic::ERR_INVAL;
        gda_cursor *c = queue(peer).c();
        c->bits = c->bits & GDA_UNORDERED ? c->bits | GDA_FENCE : c->bits & ~GDA_FENCE;
        return gic::OK;
    }
    GIC_DEVICE int flush(uint32_t peer) {
        if (peer >= h_.nranks)
            return gic::ERR_INVAL;
        const Queue q = queue(peer);
        if (q.c()->since) // no CQE was asked for behind the last WQE: a NOP asks for it
            if (int s = post(peer, 1, 1, [&](const Queue &, uint32_t at) {
                    store(q, at, 0, ctrl(q, at, MLX5_OP_NOP, 1, flags_of(q, at, true)));
                }))
                return s;
        ring(q);
        if (int s = wait_completed(q, q.c()->last))
            return s;
        q.c()->bits &= ~GDA_UNORDERED;
        return gic::OK;
    }
    GIC_DEVICE int quiet() {
        GIC_ROLLED
        for (uint32_t peer = 0; peer < h_.nranks; peer++)
            if (int s = flush(peer))
                return s;
        return gic::OK;
    }
    GIC_DEVICE void gpu_visible() { gic::fence_acq_rel<gic::Scope::system>(); }
    GIC_DEVICE int ring() {
        GIC_ROLLED
        for (uint32_t peer = 0; peer < h_.nranks; peer++)
            ring(queue(peer));
        return gic::OK;
    }

  private:
    // One queue and its cursor, by their number: a register where two pointers are four.
    struct Queue {
        const gda_shared &h;
        uint32_t i;
        GIC_DEVICE gda_queue *q() const { return h.queues + number(); }
        GIC_DEVICE gda_cursor *c() const { return h.cursors + number(); }
        GIC_DEVICE uint64_t landing() const { return (uint64_t)(uintptr_t)&h.landings[number()].old; }

      private:
        // The address is computed again for every use: a compiler must not see that it is the same.
        GIC_DEVICE uint32_t number() const {
            uint32_t n = i;
#if defined(__CUDACC__)
            asm volatile("" : "+r"(n));
#endif
            return n;
        }
    };
    GIC_DEVICE Queue queue(uint32_t peer) const { return {h_, (uint32_t)cold::place(h_, self_, peer)}; }

    // Reserve, write, publish. `blocks` 0: the arguments asked for something no WQE can carry.
    template <class F> GIC_DEVICE int post(uint32_t peer, uint32_t blocks, uint32_t wqes, F write) {
        if (peer >= h_.nranks || blocks == 0)
            return gic::ERR_INVAL;
        const Queue q = queue(peer);
        if (int s = reserve(q, blocks))
            return s;
        const uint32_t at = q.c()->next;
        write(q, at);
        publish(q, at + blocks, wqes);
        return gic::OK;
    }
    GIC_DEVICE void publish(const Queue &q, uint32_t next, uint32_t wqes) {
        q.c()->next = next;
        if ((q.c()->pending += wqes) >= h_.choices.batch)
            announce(q);
    }
    GIC_DEVICE int reserve(const Queue &q, uint32_t blocks) {
        const uint32_t end = q.c()->next + blocks - (q.q()->mask + 1);
        if (!gda_after(end, q.c()->cons))
            return gic::OK;
        uint32_t cons = q.c()->cons;
        if (int s = cold::poll(q.q(), &cons))
            return s;
        q.c()->cons = cons;
        if (!gda_after(end, cons))
            return gic::OK;
        q.c()->slot_waits++;
        return wait_completed(q, end);
    }
    GIC_DEVICE int wait_completed(const Queue &q, uint32_t end) {
        uint32_t cons = q.c()->cons;
        if (!gda_after(end, cons))
            return gic::OK;
        gda_gate_pass pass(h_.gate, h_.env);
        for (gic::Spin spin(h_.env);;) {
            if (int s = cold::poll(q.q(), &cons))
                return s;
            if (!gda_after(end, cons))
                break;
            if (int s = spin.failed())
                return s;
        }
        q.c()->cons = cons;
        return gic::OK;
    }
    GIC_DEVICE void ring(const Queue &q) {
        if (q.c()->pending)
            announce(q);
    }
    GIC_DEVICE void announce(const Queue &q) {
        if constexpr (O == gda_order::runtime)
            gda_cold_order::announce(h_.choices.order, q.q()->dbr, q.q()->bell, q.c()->next, q.q()->qpn_word);
        else
            gda_announce<O>(q.q()->dbr, q.q()->bell, q.c()->next, q.q()->qpn_word);
        q.c()->pending = 0;
        q.c()->doorbells++;
    }

    // gda_flags() of the next WQE, which starts at `at`.
    GIC_DEVICE uint32_t flags_of(const Queue &q, uint32_t at, bool signal) {
        uint32_t flags = 0;
        if (q.c()->bits & GDA_FENCE) {
            flags = gda_flags(MLX5_CTRL_FENCE);
            q.c()->bits &= ~GDA_FENCE;
        }
        q.c()->last = at + 1;
        const uint32_t since = q.c()->since + 1;
        const bool ask = signal || since >= h_.choices.signal_every;
        q.c()->since = ask ? 0 : since;
        return ask ? flags | gda_flags(MLX5_CTRL_CQ_UPDATE) : flags;
    }

    GIC_DEVICE uint32_t put_blocks(uint32_t bytes) const {
        if (bytes <= h_.choices.inline_one)
            return 1;
        if (bytes <= h_.choices.inline_max)
            return mlx5_ds_blocks(mlx5_inline_ds(2, bytes));
        return bytes <= h_.choices.put_max;
    }
    // Segment `i` of the WQE at `at`.
    GIC_DEVICE static void store(const Queue &q, uint32_t at, uint32_t i, gda_segment s) {
        uint64_t *to = (uint64_t *)(q.q()->blocks + (size_t)(at & q.q()->mask) * MLX5_BB) + 2 * i;
        to[0] = s.lo;
        to[1] = s.hi;
    }
    GIC_DEVICE static gda_segment ctrl(const Queue &q, uint32_t at, uint8_t opcode, uint32_t ds,
                                       uint32_t flags) {
        return gda_ctrl(gda_place{nullptr, 0, q.q()->qpn_word, 0, 0}, at, opcode, ds, flags);
    }
    GIC_DEVICE static void head(const Queue &q, uint32_t at, uint8_t opcode, uint32_t ds, uint32_t flags,
                                uint64_t offset) {
        store(q, at, 0, ctrl(q, at, opcode, ds, flags));
        store(q, at, 1, gda_raddr(gda_place{nullptr, 0, 0, q.q()->rkey_word, q.q()->remote}, offset));
    }
    GIC_DEVICE void write_put(const Queue &q, uint32_t at, uint32_t flags, uint64_t dst, uint64_t src,
                              uint32_t bytes) const {
        const uint8_t *from = h_.window + src;
        const bool carried = bytes && bytes <= h_.choices.inline_max;
        head(q, at, MLX5_OP_RDMA_WRITE, carried ? mlx5_inline_ds(2, bytes) : bytes ? 3 : 2, flags, dst);
        if (carried)
            carry(q, at, from, bytes);
        else if (bytes)
            store(q, at, 2, gda_data(bytes, q.q()->lkey_word, (uint64_t)(uintptr_t)from));
    }
    // Length and payload, by words; the last segment is padded.
    GIC_DEVICE static void carry(const Queue &q, uint32_t at, const uint8_t *from, uint32_t bytes) {
        uint32_t word = gda_be32(bytes | MLX5_INLINE);
        GIC_ROLLED
        for (uint32_t i = 0; i < 4 * (mlx5_inline_ds(2, bytes) - 2); i++) {
            const uint32_t byte = 32 + 4 * i; // from the WQE's begin
            ((uint32_t *)(q.q()->blocks +
                          (size_t)((at + byte / 64) & q.q()->mask) * MLX5_BB))[byte % 64 / 4] = word;
            word = 0;
            GIC_ROLLED
            for (uint32_t k = 4; k-- > 0;)
                word = word << 8 | (4 * i + k < bytes ? from[4 * i + k] : 0);
        }
    }
    GIC_DEVICE void write_value(const Queue &q, uint32_t at, uint64_t dst, uint64_t value, uint32_t bytes) {
        if (bytes < 8)
            value &= ((uint64_t)1 << (8 * bytes)) - 1;
        head(q, at, MLX5_OP_RDMA_WRITE, 3, flags_of(q, at, false), dst);
        if (q.q()->by_value)
            return store(q, at, 2, gda_inline(bytes, (uint32_t)value, (uint32_t)(value >> 32), 0));
        // Nothing goes inline: the value waits in memory, one word per slot, until its WQE is complete.
        uint64_t *word = q.q()->values + (at & q.q()->mask);
        *word = value;
        store(q, at, 2, gda_data(bytes, mlx5_be32(q.q()->values_key), (uint64_t)(uintptr_t)word));
    }
    GIC_DEVICE void write_add(const Queue &q, uint32_t at, bool signal, uint64_t off, uint64_t add) {
        head(q, at, MLX5_OP_ATOMIC_FA, 4, flags_of(q, at, signal), off);
        store(q, at, 2, gda_atomic(add));
        store(q, at, 3, gda_data(8, mlx5_be32(h_.landing_key), q.landing()));
        q.c()->last = at + 1;
        q.c()->bits |= GDA_UNORDERED;
    }
    const gda_shared &h_;
    const gic::Self self_;
};

#endif
