// GPU engine: runs of small WRITEs, one a lane, and the visit that finds them.
#ifndef SOFTNIC_GPU_RUN_CUH
#define SOFTNIC_GPU_RUN_CUH

#include "gpu_serve.cuh"

namespace softnic_gpu {

// What a lane's block is. Only a WRITE of one piece and a NOP can be executed beside others.
enum kind : uint32_t { KIND_OTHER, KIND_NOP, KIND_LONG, KIND_WORD };

struct small { // a lane's WQE
    uint64_t to;
    uint64_t from; // an address; of an inline word its value
    uint32_t bytes;
    uint32_t flags; // fm_ce_se, ds << 8, opcode << 16, FROM_MEMORY, INLINE, FAR
    kind what;
};
enum : uint32_t {
    FLAG_CQE = MLX5_CTRL_CQ_UPDATE,
    FROM_MEMORY = 1u << 24,
    INLINE = 1u << 25,
    FAR = 1u << 26,
    SMALL = 1u << 27, // a WRITE of one block and one piece: it may have others beside it
};

GPU_FN uint32_t ds_of(const small &s) { return s.flags >> 8 & 0xff; }
GPU_FN uint32_t opcode_of(const small &s) { return s.flags >> 16 & 0xff; }

// Looks at the block at `index`.
GPU_FN small look(engine e, const gpu_qp &q, uint32_t index, uint32_t left) {
    const uint64_t at = q.sq + (uint64_t)(index & q.mask) * MLX5_BB;
    uint64_t words[WQE_BLOCK_WORDS];
    GPU_UNROLL
    for (int i = 0; i < 3; i++) {
        const pair v = load128((const void *)(at + 16 * i));
        words[2 * i] = v.lo;
        words[2 * i + 1] = v.hi;
    }
    small s;
    s.what = KIND_OTHER;
    s.bytes = 0;
    s.to = s.from = 0;
    const struct wqe_head head = wqe_head(words);
    s.flags = head.fm_ce_se | (uint32_t)head.ds << 8 | (uint32_t)head.opcode << 16;
    if (wqe_check_head(&head, index, q.qpn, left) || head.ds > 4)
        return s;
    if (head.opcode == MLX5_OP_NOP) {
        s.what = KIND_NOP;
        return s;
    }
    wqe_small put;
    if (!wqe_decode_small(words, &head, &put))
        return s;
    const gpu_key *k = key_find(e, q.node, put.rkey);
    s.to = k ? key_apply(k, put.raddr, put.bytes, SOFTNIC_REMOTE_WRITE) : 0;
    if (s.to == 0)
        return s;
    if (k->far)
        s.flags |= FAR;
    s.bytes = put.bytes;
    const bool word = is_word(s.to, put.bytes);
    if (put.is_inline) {
        s.flags |= INLINE;
        s.from = word ? words[4] >> 32 | words[5] << 32 : at + 36;
        s.what = word ? KIND_WORD : KIND_LONG;
        return s;
    }
    const gpu_key *local = key_find(e, e.a.self, put.lkey);
    s.from = local ? key_apply(local, put.addr, put.bytes, 0) : 0;
    if (s.from == 0)
        return s;
    s.flags |= FROM_MEMORY;
    s.what = word && (s.from & (put.bytes - 1)) == 0 ? KIND_WORD : KIND_LONG;
    return s;
}

// Copies of the lanes in `mask`, up to this many bytes each, spread over all lanes.
enum { SPREAD_MAX = 1024 };
GPU_FN void copy_spread(uint32_t mask, uint64_t to, uint64_t from, uint32_t bytes) {
    const uint32_t lane = lane_id();
    const bool mine = mask >> lane & 1;
    const uint32_t align = (uint32_t)(to | from);
    const uint32_t shift = (align & 15) == 0 ? 4 : (align & 3) == 0 ? 2 : 0;
    uint32_t ends = mine ? (bytes + (1u << shift) - 1) >> shift : 0; // units up to and with this lane's
    GPU_UNROLL
    for (int d = 1; d < 32; d *= 2) {
        const uint32_t before = __shfl_up_sync(ALL, ends, d);
        ends += lane >= (uint32_t)d ? before : 0;
    }
    const uint32_t total = __shfl_sync(ALL, ends, 31);
    for (uint32_t first = 0; first < total; first += 32) {
        const uint32_t unit = first + lane;
        uint32_t owner = 0; // lanes whose units are all before this one
        GPU_UNROLL
        for (int d = 16; d > 0; d /= 2)
            owner += __shfl_sync(ALL, ends, owner + d - 1) <= unit ? d : 0;
        owner &= 31;
        const uint32_t begin = __shfl_sync(ALL, ends, owner ? owner - 1 : 0) * (owner != 0);
        const uint64_t dst = __shfl_sync(ALL, to, owner), src = __shfl_sync(ALL, from, owner);
        const uint32_t size = __shfl_sync(ALL, bytes, owner), sh = __shfl_sync(ALL, shift, owner);
        if (unit >= total)
            continue;
        const uint32_t at = (unit - begin) << sh;
        if (sh == 4 && at + 16 <= size)
            store128((void *)(dst + at), load128((const void *)(src + at)));
        else if (sh == 2 && at + 4 <= size)
            store32((void *)(dst + at), load32((const void *)(src + at)));
        else
            GPU_ROLLED
        for (uint32_t i = at; i < size && i < at + (1u << sh); i++)
            store8((void *)(dst + i), load8(src + i));
    }
    __syncwarp();
}

GPU_CALL void copy_spread_call(uint32_t mask, uint64_t to, uint64_t from, uint32_t bytes) {
    copy_spread(mask, to, from, bytes);
}
// Are the copies of the lanes in `mask` together worth the help of other warps? Calling them takes some microseconds, in
// which this one copies several rows.
constexpr uint32_t MUCH = 3 * SHARE_FROM;
GPU_FN bool is_much(uint32_t bytes, uint32_t mask) {
    const uint32_t mine = mask >> lane_id() & 1 ? bytes : 0;
    return __reduce_add_sync(ALL, mine < SHARE_FROM ? mine : MUCH) >= MUCH;
}

GPU_CALL void copy_each(engine e, uint32_t mask, uint64_t to, uint64_t from, uint32_t bytes, bool far,
                        bool others) {
    // Several in a row, at other nodes (so that source and target are apart), are one job.
    const uint32_t lane = lane_id(), first = mask ? __ffs(mask) - 1 : 0;
    if (others && (mask & (mask - 1)) && ((mask >> first) & ((mask >> first) + 1)) == 0 &&
        is_much(bytes, mask)) {
        for (uint32_t l = first; mask >> l; l += COPIES) {
            const uint32_t left = 32 - __clz(mask) - l, count = left < COPIES ? left : COPIES;
            const uint32_t from_lane = (l + lane) & 31;
            const uint64_t t = __shfl_sync(ALL, to, from_lane), f = __shfl_sync(ALL, from, from_lane);
            copy_shared(e.a, e.w.index, count, t, f, __shfl_sync(ALL, bytes, from_lane), far);
            if (l + COPIES > 31)
                break;
        }
        return;
    }
    for (; mask; mask &= mask - 1) {
        const int l = __ffs(mask) - 1;
        copy_big(e.a, e.w.index, __shfl_sync(ALL, to, l), __shfl_sync(ALL, from, l),
                 __shfl_sync(ALL, bytes, l), far);
    }
}

// What a visit has done so far, in registers: into the QP and the warp before anything else looks at those.
struct visit {
    uint32_t cons, dirty;
    uint32_t wqes, writes, inlines, segments, cqes;
    uint32_t last, opcode; // of the last WQE that asked for a CQE, if cqes
    uint64_t payload;
};

GPU_FN visit visit_begin(engine e, const gpu_qp &q) {
    return visit{q.cons, e.w.dirty, 0, 0, 0, 0, 0, 0, 0, 0};
}

GPU_FN void visit_end(engine e, gpu_qp &q, visit &v) {
    const uint32_t lane = lane_id();
    if (v.cqes && lane < 7)
        store64((void *)(q.cqe + 8 * lane), cqe_word(e, lane, 0, 0));
    __syncwarp();
    if (lane == 0) {
        if (v.cqes) {
            e.w.tail = cqe_tail(q, v.last, v.opcode, mlx5_op_own(MLX5_CQE_OP_REQ, 0));
            v.dirty |= q.far ? DIRTY | DIRTY_FAR : DIRTY;
            q.count[GPU_CQES] += v.cqes;
            q.prod += v.cqes;
        }
        e.w.dirty = v.dirty;
        e.w.work += v.wqes;
        q.cons = v.cons;
        q.count[GPU_WQES] += v.wqes;
        q.count[GPU_WRITES] += v.writes;
        q.count[GPU_INLINES] += v.inlines;
        q.count[GPU_SEGMENTS] += v.segments;
        q.payload += v.payload;
        if (v.wqes)
            q.asked = GPU_ASK_NO;
        if (v.writes != v.wqes)
            bump(&cold_of(e, q).n.wqe_nop, v.wqes - v.writes);
    }
    __syncwarp();
}

// The lanes from `done` on that may act together: returns the first that may not. Of [done, it) only `done` can be a NOP.
GPU_FN uint32_t together(engine e, const gpu_qp &q, const small &s, uint32_t done, uint32_t run) {
    const uint32_t lane = lane_id();
    const bool later = lane > done && lane < run;
    if (e.a.strict)
        return done + 1;
    // Ascending is disjoint; anything else waits, be it needed or not.
    const uint64_t before = __shfl_up_sync(ALL, s.to + s.bytes, 1);
    uint32_t stop = __ballot_sync(ALL, later && (s.what == KIND_NOP || s.to < before ||
                                                 (q.node == e.a.self && (s.flags & FROM_MEMORY))));
    const uint32_t longs = __ballot_sync(ALL, lane >= done && lane < run && s.what == KIND_LONG);
    if (longs) // a word behind a longer write may be its flag
        stop |= __ballot_sync(ALL, later && s.what == KIND_WORD) & (0u - (longs & (0u - longs)));
    return stop ? __ffs(stop) - 1 : run;
}

GPU_FN void act(engine e, const gpu_qp &q, const small &s, uint32_t run, visit &v) {
    const uint32_t lane = lane_id();
    for (uint32_t done = 0; done < run;) {
        const uint32_t end = run - done > 1 ? together(e, q, s, done, run) : run;
        const bool in = lane >= done && lane < end;
        const uint32_t words = __ballot_sync(ALL, in && s.what == KIND_WORD);
        const uint32_t longs = __ballot_sync(ALL, in && s.what == KIND_LONG);
        const bool far = __ballot_sync(ALL, in && (s.flags & FAR)) != 0;
        if ((words && (v.dirty & DIRTY_LONG)) || (e.a.strict && v.dirty && (words | longs))) {
            fence_warp(v.dirty & DIRTY_FAR);
            v.dirty = 0;
        }
        if (in && s.what == KIND_WORD)
            store_word(s.to, s.flags & FROM_MEMORY ? load_word(s.from, s.bytes) : s.from, s.bytes);
        if (longs) {
            if (__ballot_sync(ALL, (longs >> lane & 1) && s.bytes > SPREAD_MAX) ||
                (longs & (longs - 1)) == 0 || q.node == e.a.self)
                copy_each(e, longs, s.to, s.from, s.bytes, far,
                          q.node != e.a.self && e.a.warps * gridDim.x > 1);
            else
                copy_spread_call(longs, s.to, s.from, s.bytes);
        }
        v.dirty |= (words | longs ? DIRTY : 0) | (far ? DIRTY_FAR : 0) | (longs ? DIRTY_LONG : 0);
        __syncwarp();
        done = end;
    }
}

// Counts `run` lanes' WQEs.
GPU_FN void count_run(const small &s, uint32_t run, visit &v) {
    const bool in = lane_id() < run;
    v.writes += __popc(__ballot_sync(ALL, in && s.what != KIND_NOP));
    v.inlines += __popc(__ballot_sync(ALL, in && (s.flags & INLINE)));
    v.segments += __reduce_add_sync(ALL, in ? ds_of(s) : 0);
    if (__ballot_sync(ALL, s.bytes >> 26) == 0) // the sum fits 32 bits
        v.payload += __reduce_add_sync(ALL, in ? s.bytes : 0);
    else
        for (uint32_t i = 0; i < run; i++)
            v.payload += __shfl_sync(ALL, s.bytes, i);
    v.wqes += run;
}

// CQEs of a run at a QP that has no collapsed CQ of its own, one by one: false when one was lost.
GPU_CALL bool complete_run(engine e, gpu_qp &q, uint32_t cqes, uint32_t first, uint32_t opcode) {
    for (; cqes; cqes &= cqes - 1) {
        const int l = __ffs(cqes) - 1;
        if (!complete(e, q, first + l, __shfl_sync(ALL, opcode, l), 0, 0))
            return false;
    }
    return true;
}

GPU_CALL bool record_ahead(engine e, gpu_qp &q) {
    complete_failed(e, q, q.cons, 0, MLX5_SYND_LOCAL_QP_OP);
    skip_to_record(q);
    return flush(e, q);
}

// No profile: fetch, execute, complete. prod: the record's. Returns whether the QP must be looked at again without a new
// doorbell.
GPU_CALL bool serve_now(engine e, gpu_qp &q, uint32_t prod) {
    const uint32_t lane = lane_id();
    const bool rung = prod != q.seen;
    visit v = visit_begin(e, q);
    const uint32_t ahead = (prod - v.cons) & 0xffff;
    __syncwarp();
    if (rung && lane == 0) {
        q.seen = (uint16_t)prod;
        q.count[GPU_DOORBELLS]++;
        e.w.work++;
        if (q.count[GPU_WQES] == 0 && ahead && ahead <= q.mask + 1)
            cold_of(e, q).n.qps_used = 1;
    }
    __syncwarp();
    if (ahead > q.mask + 1)
        return record_ahead(e, q);
    if (ahead == 0)
        return bell_is_ahead(e, q);
    uint32_t left = ahead, end = left > VISIT_BLOCKS ? left - VISIT_BLOCKS : 0;
    const bool simple = q.simple_cq;
    bool single = q.next >= GPU_NEXT_ALONE;
    while (left > end) {
        small s;
        s.what = KIND_OTHER;
        s.flags = s.bytes = 0;
        s.to = s.from = 0;
        if (lane < left && !single && !q.dc)
            s = look(e, q, v.cons + lane, left - lane);
        single = false;
        const uint32_t other = __ballot_sync(ALL, s.what == KIND_OTHER);
        uint32_t run = other ? __ffs(other) - 1 : 32;
        if (run == 0) {
            visit_end(e, q, v);
            const int what = serve_one(e, q, left);
            if (what == ONE_NOT_YET)
                return true;
            left -= q.cons - v.cons;
            if (what == ONE_FAILED)
                return flush(e, q);
            v = visit_begin(e, q);
            continue;
        }
        if (!simple && run > 1 && e.a.cqs[q.cq].dbrec) // each of its CQEs can be the one that does not fit
            run = 1;
        act(e, q, s, run, v);
        count_run(s, run, v);
        const uint32_t cqes = __ballot_sync(ALL, lane < run && (s.flags & FLAG_CQE)), first = v.cons;
        v.cons += run;
        left -= run;
        if (cqes == 0)
            continue;
        if (simple) {
            const uint32_t last = 31 - __clz(cqes);
            v.last = first + last;
            v.opcode = __shfl_sync(ALL, opcode_of(s), last);
            v.cqes += __popc(cqes);
            continue;
        }
        visit_end(e, q, v);
        if (!complete_run(e, q, cqes, first, opcode_of(s)))
            return flush(e, q);
        v = visit_begin(e, q);
    }
    visit_end(e, q, v);
    return left > 0 || bell_is_ahead(e, q);
}

} // namespace softnic_gpu

#endif
