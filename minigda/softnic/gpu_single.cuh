// GPU engine: requests one by one at a QP whose CQ is its own, without a profile: reads, atomics, waits, and the writes in
// front of them. The same rules as serve_one()'s, in as few instructions as a warp alone can do them with: it is their
// number that such a request takes, more than its ways to memory. Whatever is wrong with one is left to serve_one().
//
// A visit fetches up to FETCH_AT_ONCE blocks in one go and executes them in order, so that a put and its signal cost one way
// to the queue.
#ifndef SOFTNIC_GPU_SINGLE_CUH
#define SOFTNIC_GPU_SINGLE_CUH

#include "gpu_fast.cuh"

namespace softnic_gpu {

// One request, checked as far as keys and lengths go.
enum lone_kind : uint32_t { LONE_NOT, LONE_NOP, LONE_WAIT, LONE_WAITS, LONE_WRITE, LONE_READ, LONE_ATOMIC };
struct lone {
    uint64_t remote, local; // addresses here; local: what is written, or where a result goes
    uint32_t bytes;         // payload; of an atomic its operand
    uint32_t far;           // FAR_...
    lone_kind kind;
};
enum : uint32_t { FAR_REMOTE = 1, FAR_LOCAL = 2 };
enum { LANE_DCT = 2 };

GPU_FN lone_kind lone_wait(engine e, const uint64_t *words, const struct wqe_head &head) {
    struct wqe w;
    w.wait_index = wqe_be_lo(words[3]);
    w.wait_cqn = wqe_be_hi(words[3]) & MLX5_QPN_MASK;
    int passed = head.ds == 2 ? wait_passed(e, w) : -1;
    for (int polls = 0; passed == 0 && e.w.count == 1 && polls < 16;
         polls++) // this warp has nothing else to serve
        passed = wait_passed(e, w);
    return passed > 0 ? LONE_WAIT : passed == 0 ? LONE_WAITS : LONE_NOT;
}

// As wqe_decode() and the checks of move_pieces() and atomic_one(), for one piece. words: the same to all lanes; ten of
// them may be looked at, of a DC queue pair 16, whose address vector is taken out: words_p and head_p are then as an RC queue
// pair's, but for the control segment, and node_p is where the request goes.
template <bool dc>
GPU_FN lone lone_look(engine e, const gpu_key *keys, const uint64_t **words_p, struct wqe_head *head_p,
                      uint32_t *node_p) {
    const uint32_t op = head_p->opcode, lane = lane_id();
    const uint64_t *words = *words_p;
    lone l = {0, 0, 0, 0, LONE_NOT};
    if (op == MLX5_OP_NOP || op == MLX5_OP_WAIT) {
        l.kind = op == MLX5_OP_NOP ? LONE_NOP : lone_wait(e, words, *head_p);
        return l;
    }
    struct wqe_av av = {0, 0, 0, 0};
    if (dc) {
        if (wqe_address(words, head_p, &av))
            return l;
        *words_p = words += 2 * av.segments;
        head_p->ds = (uint8_t)(head_p->ds - av.segments);
        *node_p = av.lid - 1;
    }
    const struct wqe_head head = *head_p;
    // Loads first and few branches: most of what a request takes is steps that wait for the one before.
    const ulonglong2 *segments = (const ulonglong2 *)words;
    const ulonglong2 target = segments[1], third = segments[2], fourth = segments[3];
    const bool write = op == MLX5_OP_RDMA_WRITE, read = op == MLX5_OP_RDMA_READ, moves = write | read;
    const bool swaps = op == MLX5_OP_MASKED_CS, masked = swaps | (op == MLX5_OP_MASKED_FA);
    const bool half = masked & (head.opmod == MLX5_OPMOD_MASKED_4);
    const uint32_t segment = moves ? 2 : swaps & !half ? 4 : 3;
    const ulonglong2 piece = moves ? third : segment == 3 ? fourth : segments[4];
    const uint32_t count = wqe_be_lo(piece.x), length = count & MLX5_BYTE_COUNT, operand = half ? 4 : 8;
    const bool is_inline = (count & MLX5_INLINE) != 0;
    l.bytes = moves ? length : operand;
    bool fine = moves | masked | (op == MLX5_OP_ATOMIC_FA) | (op == MLX5_OP_ATOMIC_CS);
    fine &= half | (head.opmod == (masked ? MLX5_OPMOD_MASKED_8 : 0));
    fine &= (length != 0) & (length <= MLX5_MESSAGE_MAX) & (length >= l.bytes) & (l.bytes < SHARE_FROM);
    fine &=
        is_inline ? write & ((4 + length + MLX5_DS - 1) / MLX5_DS == head.ds - 2u) : head.ds == segment + 1;
    if (!fine)
        return l;
    // Both ends at once: even lanes look for the remote one, odd lanes for the local one; and a lane for the DCT, which is
    // an entry of no bytes at the address that its key is.
    const bool here = lane & 1, dct = dc && lane == LANE_DCT;
    const uint32_t right = dct     ? (uint32_t)ACCESS_DCT
                           : here  ? (write ? 0 : SOFTNIC_LOCAL_WRITE)
                           : write ? SOFTNIC_REMOTE_WRITE
                           : read  ? SOFTNIC_REMOTE_READ
                                   : SOFTNIC_REMOTE_ATOMIC;
    const uint64_t va = dct ? av.key : wqe_be64(here ? piece.y : target.x);
    const uint32_t key = dct ? av.dct : here ? wqe_be_hi(piece.x) : wqe_be_lo(target.y);
    uint32_t far = 0;
    const uint64_t at = resolve_shared(keys, e.a.key_mask, here ? e.a.self : *node_p, key, va,
                                       dct ? 0 : l.bytes, right, &far);
    if (dc && !__shfl_sync(ALL, at != 0, LANE_DCT))
        return l;
    l.far = __ballot_sync(ALL, at && far) & (FAR_REMOTE | FAR_LOCAL);
    l.remote = __shfl_sync(ALL, at, 0);
    l.local = is_inline ? (uint64_t)(words + 2 * segment) + 4 : __shfl_sync(ALL, at, 1);
    if (l.remote == 0 || l.local == 0)
        return l;
    if (moves) {
        if (is_inline || apart(l.remote, l.local, l.bytes))
            l.kind = write ? LONE_WRITE : LONE_READ;
    } else if (is_word(l.local, operand) && ((wqe_be64(target.x) | l.remote) & (operand - 1)) == 0) {
        l.kind = LONE_ATOMIC;
    }
    return l;
}

GPU_FN bool is_inline_data(engine e, uint64_t at) { return at - (uint64_t)e.w.words < sizeof e.w.words; }

// A word as such, since somebody may poll it.
GPU_FN void lone_copy(uint64_t to, uint64_t from, uint32_t bytes, uint32_t lane) {
    if (is_word(to, bytes) && ((from & (bytes - 1)) == 0 || (bytes == 8 && (from & 3) == 0))) {
        uint64_t v;
        if (bytes == 8 && (from & 7)) // inline data begin in the middle of a word
            v = load32((const void *)from) | (uint64_t)load32((const void *)(from + 4)) << 32;
        else
            v = load_word(from, bytes);
        if (lane == 0)
            store_word(to, v, bytes);
    } else {
        copy_one(to, from, bytes, lane);
    }
    __syncwarp();
}

// Lane 0. Returns what the word was, as it goes to the initiator.
GPU_FN uint64_t lone_atomic(const uint64_t *words, const struct wqe_head &head, uint64_t word) {
    const bool masked = head.opcode == MLX5_OP_MASKED_FA, half = masked && head.opmod == MLX5_OPMOD_MASKED_4;
    if (half && wqe_be_hi(words[4]) == 0) // no boundary
        return mlx5_be32(atomicAdd_system((uint32_t *)word, wqe_be_lo(words[4])));
    if (head.opcode == MLX5_OP_ATOMIC_FA || (masked && !half && words[5] == 0))
        return atomicAdd_system((unsigned long long *)word, (unsigned long long)wqe_be64(words[4]));
    struct wqe w;
    wqe_decode(words, &head, &w);
    return w.operand == 8 ? atomic_8(w, (unsigned long long *)word)
                          : mlx5_be32(atomic_4(w, (uint32_t *)word));
}

// What a visit did; several sums to a register, of at most FETCH_AT_ONCE requests.
struct lone_sums {
    uint32_t counts; // of WQEs, CQEs << 8, segments << 16
    uint32_t kinds;  // of WAITs, atomics << 8, reads << 16, NOPs << 24
    uint32_t writes; // and inline ones << 16
    uint32_t last;   // opcode << 16 | index of the last that asked for a CQE
    uint32_t bytes;  // in that CQE
    uint32_t payload, dirt;
    bool was_long; // one of them: no word
    bool was_big;  // one of them: more than a block
};
GPU_FN void count_lone(lone_sums &t, const lone &l, uint32_t ds, bool is_inline) {
    t.counts += 1 + (ds << 16);
    t.was_big |= ds > 4;
    t.kinds += l.kind == LONE_WAIT     ? 1
               : l.kind == LONE_ATOMIC ? 1 << 8
               : l.kind == LONE_READ   ? 1 << 16
               : l.kind == LONE_NOP    ? 1 << 24
                                       : 0;
    t.was_long |= !is_word(l.remote, l.bytes);
    if (l.kind == LONE_WRITE)
        t.writes += is_inline ? 1 | 1 << 16 : 1;
    t.payload += l.bytes;
}

// What is likely to come next. Only after some visits of nothing but writes of one block does a queue go back to where many
// of those are executed side by side: a put and a signal may have been announced one by one. A write of several blocks is
// never executed so; a queue of such ones that went back all the same would find that out at every fourth visit, which then
// takes 1.6 us more than the others.
GPU_FN uint8_t next_likely(uint32_t before, const lone_sums &t) {
    if (t.kinds | t.was_big)
        return GPU_NEXT_ALONE;
    if (before >= GPU_NEXT_ALONE && before < GPU_NEXT_ALONE_LAST)
        return (uint8_t)(before + 1);
    return t.was_long ? GPU_NEXT_LONG : GPU_NEXT_ANY;
}

// A visit's counts.
GPU_FN void lone_end(engine e, gpu_qp &q, uint32_t lane, const lone_sums &t, uint32_t prod, uint32_t cons,
                     uint32_t node, bool many) {
    const bool rung = prod != q.seen;
    const uint32_t wqes = t.counts & 255, cqes = t.counts >> 8 & 255;
    const uint32_t more = lane == GPU_WQES       ? wqes
                          : lane == GPU_SEGMENTS ? t.counts >> 16
                          : lane == GPU_WRITES   ? t.writes & 0xffff
                          : lane == GPU_INLINES  ? t.writes >> 16
                          : lane == GPU_CQES     ? cqes
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
        if (t.kinds) {
            bump(&n.wqe_wait, t.kinds & 255);
            bump(&n.wqe_atomic, t.kinds >> 8 & 255);
            bump(&n.wqe_read, t.kinds >> 16 & 255);
            bump(&n.wqe_nop, t.kinds >> 24);
        }
        q.seen = (uint16_t)prod;
        q.cons = cons;
        q.node = node;
        q.payload += t.payload;
        q.asked = GPU_ASK_NO;
        q.next = many ? (uint8_t)GPU_NEXT_LONG : next_likely(q.next, t);
        if (cqes) {
            q.prod += cqes;
            if (q.ring_cq)
                store64(&e.a.cqs[q.cq].prod, q.prod);
        }
        e.w.dirty = t.dirt;
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

// Needs this write to `node` no fence in front of it, as in serve_fast()? before: where the last one went.
GPU_FN bool beside(engine e, const lone &l, const lone_sums &t, uint32_t node, uint32_t before) {
    return l.kind == LONE_WRITE && t.kinds == 0 && node != e.a.self && node == before &&
           !((t.dirt & DIRTY_LONG) && is_word(l.remote, l.bytes));
}

// Long writes as far as was fetched: worth being done by several warps. words: of the first one.
GPU_FN bool is_many(const lone &l, const uint64_t *words, uint32_t blocks) {
    if (l.kind != LONE_WRITE || blocks < FETCH_AT_ONCE || l.bytes < MUCH / 32)
        return false;
    const uint32_t op = wqe_be_lo(words[lane_id() % FETCH_AT_ONCE * WQE_BLOCK_WORDS]) & 0xff;
    return __ballot_sync(ALL, op != MLX5_OP_RDMA_WRITE) == 0;
}

// What is announced, as far as it was fetched. REST_OTHER: nothing was done. Keys in shared memory. dc: of a DC queue pair.
template <bool dc>
GPU_CALL rest serve_single(engine e, const gpu_key *keys, gpu_qp &q, uint32_t prod, bool alone) {
    const uint32_t lane = lane_id(), mask = q.mask, qpn = q.qpn;
    uint32_t cons = q.cons, left = (prod - cons) & 0xffff, at = 0, node = q.node;
    if (left == 0 || left > mask + 1)
        return REST_OTHER;
    const uint32_t fetched = left < FETCH_AT_ONCE ? left : (uint32_t)FETCH_AT_ONCE;
    struct wqe_head head;
    fetch_blocks(e, q.sq, mask, cons, left, &head);
    lone_sums t = {0, 0, 0, 0, 0, 0, e.w.dirty, false, false};
    bool waits = false, many = false;
    GPU_ROLLED
    while (at < fetched) {
        const uint64_t *words = e.w.words + at * WQE_BLOCK_WORDS;
        head = wqe_head(words);
        const uint32_t blocks = mlx5_ds_blocks(head.ds);
        if (wqe_check_head(&head, cons, qpn, left) || at + blocks > fetched)
            break;
        const uint32_t ds = head.ds, before = node;
        uint32_t there = node;
        const lone l = lone_look<dc>(e, keys, &words, &head, &there);
        waits = l.kind == LONE_WAITS;
        many = !dc && is_many(l, words, fetched - at);
        if (l.kind == LONE_NOT || waits || many)
            break;
        node = there;
        const bool is_inline = l.kind == LONE_WRITE && is_inline_data(e, l.local);
        // Behind what is under way; who sees an atomic sees the rest.
        if (l.bytes && t.dirt && !beside(e, l, t, node, before)) {
            fence_warp((t.dirt & DIRTY_FAR) || (l.kind == LONE_ATOMIC && (l.far & FAR_REMOTE)));
            t.dirt = 0;
        }
        if (l.kind == LONE_ATOMIC) {
            if (lane == 0)
                store_word(l.local, lone_atomic(words, head, l.remote), l.bytes);
            t.dirt |= l.far & FAR_LOCAL ? DIRTY | DIRTY_FAR : DIRTY;
        } else if (l.bytes) {
            const bool write = l.kind == LONE_WRITE;
            lone_copy(write ? l.remote : l.local, write ? l.local : l.remote, l.bytes, lane);
            t.dirt |= (l.far & (write ? FAR_REMOTE : FAR_LOCAL) ? DIRTY | DIRTY_FAR : DIRTY) | DIRTY_LONG;
        }
        if (head.fm_ce_se & MLX5_CTRL_CQ_UPDATE) {
            t.last = (uint32_t)head.opcode << 16 | (cons & 0xffff);
            t.bytes = l.kind == LONE_WRITE ? 0 : l.bytes;
            if (q.ring_cq) {
                ring_cqes(e, q, lane, 1, t.counts >> 8 & 255, cons, head.opcode, t.bytes, t.dirt & DIRTY_FAR);
                t.dirt = 0;
            }
            t.counts += 1 << 8;
        }
        count_lone(t, l, ds, is_inline);
        cons += blocks;
        left -= blocks;
        at += blocks;
    }
    if (t.counts) {
        if (q.simple_cq)
            cqe_out(e, q, lane, t.counts >> 8 & 255, t.last, t.bytes, t.dirt, alone);
        lone_end(e, q, lane, t, prod, cons, node, many);
        return left ? REST_MORE : REST_NONE;
    }
    if (waits && prod != q.seen) // it was rung all the same
        rung_in_vain(e, q, lane, prod);
    __syncwarp();
    if (many && lane == 0)
        q.next = GPU_NEXT_LONG;
    __syncwarp();
    return waits ? REST_WAITS : REST_OTHER;
}

} // namespace softnic_gpu

#endif
