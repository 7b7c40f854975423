// GPU engine: reads, atomics, waits and inline writes of several blocks at a QP whose CQ is its own, without a
// profile. The same rules as serve_one()'s, in as few instructions as a warp alone can do them with: it is their
// number that such a request takes, more than its ways to memory. Whatever is wrong with one is left to serve_one().
#ifndef SOFTNIC_GPU_SINGLE_CUH
#define SOFTNIC_GPU_SINGLE_CUH

#include "gpu_fast.cuh"

namespace softnic_gpu {

// What is to be copied: nothing, or bytes that lie apart.
struct move {
    uint64_t to, from;
    uint32_t bytes;
};

// The WQE in the warp's words, checked as far as keys and lengths go; 0: somebody else's.
GPU_FN bool single_write(engine e, const gpu_key *keys, const gpu_qp &q, const struct wqe &w, move *m,
                         uint32_t *far_p) {
    m->to = resolve_shared(keys, e.a.key_mask, q.node, w.rkey, w.raddr, w.bytes, SOFTNIC_REMOTE_WRITE, far_p);
    m->from = (uint64_t)w.first.data;
    m->bytes = w.bytes;
    return w.pieces == 1 && w.first.data && m->to && w.bytes;
}
GPU_FN bool single_read(engine e, const gpu_key *keys, const gpu_qp &q, const struct wqe &w, move *m,
                        uint32_t *far_p) {
    uint32_t ignored;
    m->to = resolve_shared(keys, e.a.key_mask, e.a.self, w.first.lkey, w.first.addr, w.bytes,
                           SOFTNIC_LOCAL_WRITE, far_p);
    m->from =
        resolve_shared(keys, e.a.key_mask, q.node, w.rkey, w.raddr, w.bytes, SOFTNIC_REMOTE_READ, &ignored);
    m->bytes = w.bytes;
    return w.pieces == 1 && m->to && m->from && w.bytes < SHARE_FROM && apart(m->to, m->from, w.bytes);
}
GPU_FN bool single_atomic(engine e, const gpu_key *keys, const gpu_qp &q, const struct wqe &w, move *m,
                          uint32_t *far_p, uint32_t *word_far_p) {
    m->to = resolve_shared(keys, e.a.key_mask, e.a.self, w.first.lkey, w.first.addr, w.operand,
                           SOFTNIC_LOCAL_WRITE, far_p);
    m->from = resolve_shared(keys, e.a.key_mask, q.node, w.rkey, w.raddr, w.operand, SOFTNIC_REMOTE_ATOMIC,
                             word_far_p);
    m->bytes = w.operand;
    return m->to && m->from && is_word(m->to, w.operand) && (w.raddr | m->from) % w.operand == 0;
}

GPU_FN void copy_single(const move &m, uint32_t lane) {
    if (!is_word(m.to, m.bytes) || (m.from & (m.bytes - 1) & 3)) {
        copy_apart<4>(m.to, m.from, m.bytes, lane);
        return;
    }
    uint64_t v;
    if (m.bytes == 8 && (m.from & 7)) // inline data begin in the middle of a word
        v = load32((const void *)m.from) | (uint64_t)load32((const void *)(m.from + 4)) << 32;
    else
        v = load_word(m.from, m.bytes);
    if (lane == 0)
        store_word(m.to, v, m.bytes);
}

// What a visit of up to VISITS requests did; several sums to a register.
enum { VISITS = 4 };
struct single_sums {
    uint32_t counts; // of WQEs, CQEs << 8, segments << 16
    uint32_t kinds;  // of WAITs, atomics << 8, reads << 16, inline writes << 24
    uint32_t last;   // opcode << 16 | index of the last that asked for a CQE
    uint32_t bytes;  // in that CQE
    uint32_t payload, dirt;
};
enum : uint32_t { IS_WAIT = 1, IS_ATOMIC = 1 << 8, IS_READ = 1 << 16, IS_INLINE = 1 << 24 };

// A visit's end: counts, and the first part of its CQE.
GPU_FN void single_end(engine e, gpu_qp &q, uint32_t lane, const single_sums &t, uint32_t prod,
                       uint32_t cons) {
    const bool rung = prod != q.seen;
    const uint32_t wqes = t.counts & 255, cqes = t.counts >> 8 & 255, inlines = t.kinds >> 24;
    uint32_t dirt = t.dirt;
    if (cqes && q.simple_cq) {
        if (lane < 7)
            store64((void *)(q.cqe + 8 * lane), cqe_word(e, lane, t.bytes, 0));
        dirt |= q.far ? DIRTY | DIRTY_FAR : DIRTY;
    }
    const uint32_t more = lane == GPU_WQES                            ? wqes
                          : lane == GPU_SEGMENTS                      ? t.counts >> 16
                          : lane == GPU_WRITES || lane == GPU_INLINES ? inlines
                          : lane == GPU_CQES                          ? cqes
                                                                      : (uint32_t)rung;
    uint32_t had = 0;
    if (lane < GPU_COUNTS)
        had = q.count[lane];
    __syncwarp();
    if (lane < GPU_COUNTS)
        q.count[lane] = had + more;
    if (lane == 0) {
        softnic_counters &n = cold_of(e, q).n;
        if (had == 0)
            n.qps_used = 1;
        bump(&n.wqe_wait, t.kinds & 255);
        bump(&n.wqe_atomic, t.kinds >> 8 & 255);
        bump(&n.wqe_read, t.kinds >> 16 & 255);
        q.seen = (uint16_t)prod;
        q.cons = cons;
        q.payload += t.payload;
        q.asked = GPU_ASK_NO;
        q.next = GPU_NEXT_LONG; // as in a put and its signal
        if (cqes) {
            q.prod += cqes;
            if (q.ring_cq)
                store64(&e.a.cqs[q.cq].prod, q.prod);
            else
                e.w.tail = cqe_tail(q, t.last & 0xffff, t.last >> 16, mlx5_op_own(MLX5_CQE_OP_REQ, 0));
        }
        e.w.dirty = dirt;
        e.w.work += wqes;
    }
    __syncwarp();
}

GPU_FN void rung_in_vain(engine e, gpu_qp &q, uint32_t lane, uint32_t prod) {
    __syncwarp();
    if (lane == 0) {
        q.seen = (uint16_t)prod;
        q.count[GPU_DOORBELLS]++;
        if (q.count[GPU_WQES] == 0)
            cold_of(e, q).n.qps_used = 1;
        e.w.work++;
    }
    __syncwarp();
}

// Up to a few, one after the other. REST_OTHER: nothing was done. Keys in shared memory.
GPU_CALL rest serve_single(engine e, const gpu_key *keys, gpu_qp &q, uint32_t prod) {
    const uint32_t lane = lane_id(), mask = q.mask, qpn = q.qpn;
    uint32_t cons = q.cons, left = (prod - cons) & 0xffff;
    if (left == 0 || left > mask + 1)
        return REST_OTHER;
    single_sums t = {0, 0, 0, 0, 0, e.w.dirty};
    bool waits = false;
    GPU_ROLLED
    for (int visits = VISITS; left > 0 && visits > 0; visits--) {
        struct wqe_head head;
        struct wqe w;
        move m = {0, 0, 0};
        uint32_t far = 0, word_far = 0;
        fetch_blocks(e, q.sq, mask, cons, left, &head);
        bool fine = wqe_check_head(&head, cons, qpn, left) == 0 && head.ds <= 4 * FETCH_AT_ONCE &&
                    wqe_decode(e.w.words, &head, &w) == 0;
        if (fine && w.action == WQE_WAIT) {
            const int passed = wait_passed(e, w);
            waits = passed == 0;
            fine = passed > 0;
        } else if (fine) {
            fine = w.action == WQE_ATOMIC  ? single_atomic(e, keys, q, w, &m, &far, &word_far)
                   : w.action == WQE_READ  ? single_read(e, keys, q, w, &m, &far)
                   : w.action == WQE_WRITE ? single_write(e, keys, q, w, &m, &far)
                                           : false;
        }
        if (!fine)
            break;
        // Behind what is under way; who sees an atomic sees the rest.
        if (m.bytes && t.dirt) {
            fence_warp((t.dirt & DIRTY_FAR) || word_far);
            t.dirt = 0;
        }
        if (w.action == WQE_ATOMIC) {
            if (lane == 0) {
                const uint64_t old = w.operand == 8 ? atomic_8(w, (unsigned long long *)m.from)
                                                    : mlx5_be32(atomic_4(w, (uint32_t *)m.from));
                store_word(m.to, old, w.operand);
            }
            t.kinds += IS_ATOMIC;
            t.dirt |= far ? DIRTY | DIRTY_FAR : DIRTY;
        } else if (m.bytes) {
            copy_single(m, lane);
            t.dirt |= (far ? DIRTY | DIRTY_FAR : DIRTY) | DIRTY_LONG;
            t.kinds += w.action == WQE_READ ? IS_READ : IS_INLINE;
        } else {
            t.kinds += IS_WAIT;
        }
        __syncwarp(); // all have done with the words
        if (head.fm_ce_se & MLX5_CTRL_CQ_UPDATE) {
            t.last = (uint32_t)head.opcode << 16 | (cons & 0xffff);
            t.bytes = w.action == WQE_WRITE ? 0 : m.bytes;
            if (q.ring_cq) {
                ring_cqes(e, q, lane, 1, t.counts >> 8 & 255, cons, head.opcode, t.bytes, t.dirt & DIRTY_FAR);
                t.dirt = 0;
            }
            t.counts += 1 << 8;
        }
        t.counts += 1 + ((uint32_t)head.ds << 16);
        t.payload += m.bytes;
        cons += w.blocks;
        left -= w.blocks;
    }
    if (t.counts == 0) {
        if (waits && prod != q.seen) // it was rung all the same
            rung_in_vain(e, q, lane, prod);
        return waits ? REST_WAITS : REST_OTHER;
    }
    single_end(e, q, lane, t, prod, cons);
    return left ? REST_MORE : REST_NONE;
}

} // namespace softnic_gpu

#endif
