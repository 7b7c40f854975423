// GPU engine: what nearly all visits are, WRITEs of one block at a QP whose collapsed CQ is its own. The same rules as in
// gpu_run.cuh, in fewer steps: no call inside, and the keys in shared memory.
#ifndef SOFTNIC_GPU_FAST_CUH
#define SOFTNIC_GPU_FAST_CUH

#include "gpu_run.cuh"

namespace softnic_gpu {

// The slot of `key` in a table in shared memory, found and applied in one go: 0 when it is not there or does not
// allow it.
GPU_FN uint64_t resolve_shared(const gpu_key *keys, uint32_t mask, uint32_t node, uint32_t key, uint64_t va,
                               uint32_t bytes, uint32_t access, uint32_t *far_p) {
    for (uint32_t i = gpu_key_slot(node, key) & mask;; i = (i + 1) & mask) {
        const uint4 a = *(const uint4 *)&keys[i].key;
        const ulonglong2 range = *(const ulonglong2 *)&keys[i].va;
        const uint64_t base = keys[i].base;
        if (a.x == 0)
            return 0;
        if (a.x != key || a.y != node)
            continue;
        const uint64_t offset = va - range.x;
        *far_p = a.w;
        const bool fine = (a.z & access) == access && offset <= range.y && bytes <= range.y - offset && base;
        return fine ? base + offset : 0;
    }
}

// What a lane's block is to serve_fast().
enum fast : uint32_t { FAST_NOT, FAST_NOP, FAST_WORD, FAST_LONG };

// What is left of the announced blocks.
enum rest : uint32_t { REST_NONE, REST_MORE, REST_OTHER, REST_WAITS };

struct fast_wqe {
    uint64_t to, from; // from: an address, or an inline word
    uint32_t bytes;
    uint32_t flags; // as struct small
    fast what;
};

// The WRITE or NOP in the block at `at`, with index `index`; keys: in shared memory.
GPU_FN fast_wqe fast_look(engine e, const gpu_key *keys, uint64_t at, uint32_t index, uint32_t left,
                          uint32_t qpn, uint32_t node) {
    uint64_t words[6];
    fast_wqe f;
    f.to = f.from = 0;
    f.bytes = 0;
    f.what = FAST_NOT;
    GPU_UNROLL
    for (int i = 0; i < 3; i++) {
        const pair v = load128((const void *)(at + 16 * i));
        words[2 * i] = v.lo;
        words[2 * i + 1] = v.hi;
    }
    const struct wqe_head head = wqe_head(words);
    struct wqe_small put;
    f.flags = head.fm_ce_se | (uint32_t)head.ds << 8 | (uint32_t)head.opcode << 16;
    if (wqe_check_head(&head, index, qpn, left) || head.ds > 4)
        return f;
    if (head.opcode == MLX5_OP_NOP) {
        f.what = FAST_NOP;
        return f;
    }
    uint32_t far = 0, ignored;
    if (!wqe_decode_small(words, &head, &put))
        return f;
    f.flags |= SMALL;
    f.to =
        resolve_shared(keys, e.a.key_mask, node, put.rkey, put.raddr, put.bytes, SOFTNIC_REMOTE_WRITE, &far);
    f.bytes = put.bytes;
    if (far)
        f.flags |= FAR;
    bool word = is_word(f.to, put.bytes);
    if (put.is_inline) {
        f.flags |= INLINE;
        f.from = word ? words[4] >> 32 | words[5] << 32 : at + 36;
    } else {
        f.flags |= FROM_MEMORY;
        f.from = resolve_shared(keys, e.a.key_mask, e.a.self, put.lkey, put.addr, put.bytes, 0, &ignored);
        word = word && (f.from & (put.bytes - 1)) == 0;
        if (f.from == 0)
            return f;
    }
    if (f.to)
        f.what = word ? FAST_WORD : FAST_LONG;
    return f;
}

// The leading lanes that can act together: all words and NOPs, or all longer writes. Those that write the same place as
// the next one leave it to that.
GPU_FN uint32_t fast_run(const fast_wqe &f, uint32_t lane, bool *covered_p) {
    const bool longs = __shfl_sync(ALL, f.what, 0) == FAST_LONG;
    const uint64_t end = f.to + f.bytes, before = __shfl_up_sync(ALL, f.what == FAST_NOP ? 0 : end, 1);
    const uint32_t size = __shfl_up_sync(ALL, f.bytes, 1);
    const bool covers = f.what == FAST_WORD && before == end && size <= f.bytes;
    const bool fits = longs ? f.what == FAST_LONG : f.what == FAST_WORD || f.what == FAST_NOP;
    const bool over = lane > 0 && f.what != FAST_NOP && f.to < before && !covers;
    const uint32_t stop = __ballot_sync(ALL, !fits || over);
    const uint32_t run = stop ? __ffs(stop) - 1 : 32;
    const uint32_t cover = __ballot_sync(ALL, covers && lane > 0 && lane < run);
    *covered_p = cover >> 1 >> lane & 1;
    return run;
}

// The longer writes of a run: short ones side by side, others one after the other.
GPU_FN void fast_copy(const fast_wqe &f, uint32_t lane, uint32_t run) {
    if (run > 1 && __ballot_sync(ALL, lane < run && f.bytes > SPREAD_MAX) == 0) {
        copy_spread(ALL >> (32 - run), f.to, f.from, f.bytes);
        return;
    }
    for (uint32_t l = 0; l < run; l++) {
        const uint64_t to = __shfl_sync(ALL, f.to, l), from = __shfl_sync(ALL, f.from, l);
        copy_one(to, from, __shfl_sync(ALL, f.bytes, l), lane);
    }
}
// What comes next, whose flags lane 0 has, is found to go by itself.
GPU_FN void goes_alone(gpu_qp &q, uint32_t lane, uint32_t flags) {
    if (lane == 0)
        q.next = flags & SMALL ? GPU_NEXT_ANY : GPU_NEXT_ALONE;
    __syncwarp();
}

// A visit's sums into the QP and the warp, and the first part of its last CQE.
struct sums {
    uint32_t wqes, writes, inlines, segments, cqes;
    uint32_t last; // opcode << 16 | index of the last WQE that asked for a CQE
    uint32_t dirt;
    uint64_t payload;
};
// The CQEs of a run that begins at index `cons`, whose lanes in `asked` want one. flags: each lane's, as struct small.
GPU_FN void sums_cqes(sums &t, uint32_t asked, uint32_t flags, uint32_t cons) {
    if (asked) {
        const uint32_t b = 31 - __clz(asked);
        t.last = (__shfl_sync(ALL, flags, b) & 0xff0000) | ((cons + b) & 0xffff);
        t.cqes += __popc(asked);
    }
}
// Adds the rest of a run: each lane's flags and payload bytes, `puts` of them WRITEs.
GPU_FN void sums_add(sums &t, uint32_t lane, uint32_t run, uint32_t flags, uint32_t bytes, uint32_t puts) {
    const bool in = lane < run;
    t.segments += __reduce_add_sync(ALL, in ? flags >> 8 & 0xff : 0);
    t.payload += __reduce_add_sync(ALL, in ? bytes : 0);
    t.inlines += __popc(__ballot_sync(ALL, in && (flags & INLINE)));
    t.wqes += run;
    t.writes += puts;
}
// A visit's last CQE at a collapsed CQ, before the visit is counted: who waits for it does not wait for that. alone: no other
// QP of the pass shares its fence, and it is written here; else its end is left to the pass (tails_out).
GPU_FN void cqe_out(engine e, gpu_qp &q, uint32_t lane, uint32_t cqes, uint32_t last, uint32_t bytes,
                    uint32_t &dirt, bool alone) {
    if (cqes == 0)
        return;
    if (lane < 7)
        store64((void *)(q.cqe + 8 * lane), cqe_word(e, lane, bytes, 0));
    dirt |= q.far ? DIRTY | DIRTY_FAR : DIRTY;
    const uint64_t tail = cqe_tail(q, last & 0xffff, last >> 16, mlx5_op_own(MLX5_CQE_OP_REQ, 0));
    if (alone) {
        fence_warp(dirt & DIRTY_FAR);
        dirt = 0;
        if (lane == 0) {
            store64((void *)(q.cqe + 56), tail);
            store64(&e.a.cqs[q.cq].prod, q.prod + cqes);
        }
    } else if (lane == 0) {
        e.w.tail = tail;
    }
}
template <bool ring>
GPU_FN void fast_end(engine e, gpu_qp &q, uint32_t lane, sums t, uint32_t prod, uint32_t cons) {
    const bool rung = prod != q.seen;
    const uint32_t more = lane == GPU_WQES       ? t.wqes
                          : lane == GPU_SEGMENTS ? t.segments
                          : lane == GPU_WRITES   ? t.writes
                          : lane == GPU_INLINES  ? t.inlines
                          : lane == GPU_CQES     ? t.cqes
                                                 : (uint32_t)rung;
    uint32_t had = 0;
    if (lane < GPU_COUNTS)
        had = q.count[lane];
    __syncwarp();
    if (lane < GPU_COUNTS)
        q.count[lane] = had + more;
    if (lane == 0) {
        if (had == 0)
            cold_of(e, q).n.qps_used = 1;
        if (t.writes != t.wqes)
            bump(&cold_of(e, q).n.wqe_nop, t.wqes - t.writes);
        q.seen = (uint16_t)prod;
        q.cons = cons;
        q.payload += t.payload;
        q.asked = GPU_ASK_NO;
        if (t.cqes) {
            q.prod += t.cqes;
            if (ring)
                store64(&e.a.cqs[q.cq].prod, q.prod);
        }
        e.w.dirty = t.dirt;
        e.w.work += t.wqes;
    }
    __syncwarp();
}

// A lane's word. What it is read from is not written by the same visit.
struct word_wqe {
    uint64_t to;
    uint64_t value; // FROM_MEMORY: where it is
    uint32_t bytes; // 0: a NOP, or not `fits`
    uint32_t flags; // as struct small
    bool fits;
};
GPU_FN void word_fetch(uint64_t at, uint64_t words[6]) {
    GPU_UNROLL
    for (int i = 0; i < 3; i++) {
        const pair v = load128((const void *)(at + 16 * i));
        words[2 * i] = v.lo;
        words[2 * i + 1] = v.hi;
    }
}
GPU_FN word_wqe word_look(engine e, const gpu_key *keys, const uint64_t words[6], uint32_t index,
                          uint32_t left, uint32_t qpn, uint32_t node) {
    word_wqe w = {0, 0, 0, 0, false};
    const struct wqe_head head = wqe_head(words);
    struct wqe_small put;
    w.flags = head.fm_ce_se | (uint32_t)head.ds << 8 | (uint32_t)head.opcode << 16;
    if (wqe_check_head(&head, index, qpn, left) || head.ds > 4)
        return w;
    if (!wqe_decode_small(words, &head, &put)) {
        w.fits = head.opcode == MLX5_OP_NOP;
        return w;
    }
    w.flags |= SMALL;
    uint32_t far, ignored;
    w.to =
        resolve_shared(keys, e.a.key_mask, node, put.rkey, put.raddr, put.bytes, SOFTNIC_REMOTE_WRITE, &far);
    if (w.to == 0 || !is_word(w.to, put.bytes))
        return w;
    if (put.is_inline) {
        w.value = words[4] >> 32 | words[5] << 32;
        w.flags |= INLINE;
    } else {
        const uint64_t from =
            resolve_shared(keys, e.a.key_mask, e.a.self, put.lkey, put.addr, put.bytes, 0, &ignored);
        if (from == 0 || (from & (put.bytes - 1)) || node == e.a.self)
            return w;
        w.value = from;
        w.flags |= FROM_MEMORY;
    }
    if (far)
        w.flags |= FAR;
    w.bytes = put.bytes;
    w.fits = true;
    return w;
}

// The same for blocks that are looked at in the next round. Two of a block's segments wait in the warp's words, since
// registers for all of it are not there: a compiler that has to put loads aside waits for them at once.
GPU_FN void word_ahead(engine e, uint64_t at, uint32_t lane, pair *target_p) {
    async128(&e.w.words[2 * lane], (const void *)at);
    *target_p = load128((const void *)(at + 16));
    async128(&e.w.words[64 + 2 * lane], (const void *)(at + 32));
}
GPU_FN void word_arrived(engine e, uint32_t lane, pair target, uint64_t words[6]) {
    async_wait();
    const ulonglong2 first = *(const ulonglong2 *)&e.w.words[2 * lane];
    const ulonglong2 last = *(const ulonglong2 *)&e.w.words[64 + 2 * lane];
    words[0] = first.x;
    words[1] = first.y;
    words[2] = target.lo;
    words[3] = target.hi;
    words[4] = last.x;
    words[5] = last.y;
}

// Words and NOPs at a QP whose collapsed CQ is its own, in registers and without a call: the shortest visit, which is
// what a message rate and a small put's latency are made of. deep: the next blocks are on their way while these are looked
// at, which is worth it to a warp that has nothing else to do meanwhile.
template <bool deep>
GPU_FN rest serve_words(engine e, const gpu_key *keys, gpu_qp &q, uint32_t prod, bool alone) {
    const uint32_t lane = lane_id(), mask = q.mask, qpn = q.qpn, node = q.node;
    const uint64_t sq = q.sq;
    uint32_t cons = q.cons, left = (prod - cons) & 0xffff, visits = 8;
    if (left == 0 || left > mask + 1)
        return left || prod != q.seen ? REST_OTHER : REST_NONE;
    sums t = {0, 0, 0, 0, 0, 0, e.w.dirty, 0};
    if (t.dirt & DIRTY_LONG)
        return REST_OTHER;
    uint64_t words[6];
    pair target = {0, 0};
    uint32_t run = 0, puts;
    word_wqe w;
    // deep: a word of the round before, which is stored when this one's blocks have been looked at. By then its value is
    // there, and the register that waits for it is the next one's.
    uint64_t put_to = 0, put_value = 0;
    uint32_t put_bytes = 0;
    for (;;) {
        w = {0, 0, 0, 0, false};
        if (deep) {
            if (run != 32) { // the first round, and behind one that ended early
                async_wait();
                if (lane < left)
                    word_ahead(e, sq + (uint64_t)((cons + lane) & mask) * MLX5_BB, lane, &target);
            }
            word_arrived(e, lane, target, words);
            __syncwarp(); // they have been read before others take their place
            if (lane + 32 < left)
                word_ahead(e, sq + (uint64_t)((cons + 32 + lane) & mask) * MLX5_BB, lane, &target);
        } else if (lane < left) {
            word_fetch(sq + (uint64_t)((cons + lane) & mask) * MLX5_BB, words);
        }
        if (lane < left)
            w = word_look(e, keys, words, cons + lane, left - lane, qpn, node);
        if (deep && put_bytes)
            store_word(put_to, put_value, put_bytes);
        put_value = w.value;
        if (w.bytes < 8 && (w.flags & FROM_MEMORY) && w.bytes)
            put_value = load_word(w.value, w.bytes);
        load64_if(w.bytes == 8 && (w.flags & FROM_MEMORY), w.value, &put_value);
        // Up to what is neither, and to a word that lies before the one in front; one that covers that one replaces it.
        const uint64_t end = w.to + w.bytes, before = __shfl_up_sync(ALL, end, 1);
        const uint32_t size = __shfl_up_sync(ALL, w.bytes, 1);
        const bool behind = lane > 0 && w.bytes, covers = behind && before == end && size <= w.bytes;
        const uint32_t stop = __ballot_sync(ALL, !w.fits || (behind && size && w.to < before && !covers));
        run = stop ? __ffs(stop) - 1 : 32;
        puts = 0;
        const bool in = lane < run;
        const uint32_t covered = __ballot_sync(ALL, covers && in) >> 1;
        put_to = w.to;
        put_bytes = in && !(covered >> lane & 1) ? w.bytes : 0;
        if (run == 0) {
            goes_alone(q, lane, w.flags);
            break;
        }
        if (!deep && put_bytes)
            store_word(put_to, put_value, put_bytes);
        puts = __popc(__ballot_sync(ALL, in && w.bytes));
        t.dirt |= (puts ? DIRTY : 0) | (__ballot_sync(ALL, in && (w.flags & FAR)) ? DIRTY_FAR : 0);
        sums_cqes(t, __ballot_sync(ALL, in && (w.flags & FLAG_CQE)), w.flags, cons);
        cons += run;
        left -= run;
        if (left == 0 || --visits == 0)
            break;
        sums_add(t, lane, run, w.flags, w.bytes, puts);
    }
    if (deep) {
        async_wait(); // what comes next has the words for itself
        if (put_bytes)
            store_word(put_to, put_value, put_bytes);
    }
    cqe_out(e, q, lane, t.cqes, t.last, 0, t.dirt, alone);
    sums_add(t, lane, run, w.flags, w.bytes, puts); // the last one's
    if (t.wqes)
        fast_end<false>(e, q, lane, t, prod, cons);
    return run == 0 ? REST_OTHER : left ? REST_MORE : REST_NONE;
}
GPU_CALL rest serve_words_deep(engine e, const gpu_key *keys, gpu_qp &q, uint32_t prod, bool alone) {
    return serve_words<true>(e, keys, q, prod, alone);
}

// The same for all WRITEs of one block and one piece, longer ones too: a call, but none inside. What it leaves is
// serve_now()'s. ring: the QP's CQ is a ring of its own, and each CQE is written.
template <bool ring>
GPU_CALL rest serve_fast(engine e, const gpu_key *keys, gpu_qp &q, uint32_t prod, bool alone) {
    const uint32_t lane = lane_id(), mask = q.mask;
    uint32_t cons = q.cons, left = (prod - cons) & 0xffff, visits = 8;
    if (left == 0 || left > mask + 1)
        return REST_OTHER;
    sums t = {0, 0, 0, 0, 0, 0, e.w.dirty, 0};
    bool other = false, had_long = false;
    uint32_t run, puts;
    fast_wqe f;
    for (;;) {
        f.to = f.from = 0;
        f.bytes = f.flags = 0;
        f.what = FAST_NOT;
        if (lane < left)
            f = fast_look(e, keys, q.sq + (uint64_t)((cons + lane) & mask) * MLX5_BB, cons + lane,
                          left - lane, q.qpn, q.node);
        bool covered;
        run = fast_run(f, lane, &covered);
        const bool longs = __shfl_sync(ALL, f.what, 0) == FAST_LONG;
        // Much is for all warps; in this node's own memory one write may be the next one's source.
        other = run == 0 || (longs && is_much(f.bytes, ALL >> (32 - run))) ||
                (q.node == e.a.self && __ballot_sync(ALL, lane < run && (f.flags & FROM_MEMORY)));
        if (other) {
            if (run == 0)
                goes_alone(q, lane, f.flags);
            run = puts = 0;
            break;
        }
        had_long |= longs;
        if (longs) {
            fast_copy(f, lane, run);
        } else {
            if (t.dirt & DIRTY_LONG) { // a word may be the flag of what was written before
                fence_warp(t.dirt & DIRTY_FAR);
                t.dirt = 0;
            }
            if (lane < run && f.what == FAST_WORD && !covered)
                store_word(f.to, f.flags & FROM_MEMORY ? load_word(f.from, f.bytes) : f.from, f.bytes);
        }
        const bool in = lane < run;
        puts = __popc(__ballot_sync(ALL, in && f.what != FAST_NOP));
        if (puts)
            t.dirt |= DIRTY | (longs ? DIRTY_LONG : 0) |
                      (__ballot_sync(ALL, in && (f.flags & FAR)) ? DIRTY_FAR : 0);
        const uint32_t asked = __ballot_sync(ALL, in && (f.flags & FLAG_CQE));
        if (ring && asked) {
            ring_cqes(e, q, lane, asked, t.cqes, cons + lane, f.flags >> 16 & 0xff, 0, t.dirt & DIRTY_FAR);
            t.dirt = 0;
        }
        sums_cqes(t, asked, f.flags, cons);
        cons += run;
        left -= run;
        if (left == 0 || --visits == 0)
            break;
        sums_add(t, lane, run, f.flags, f.bytes, puts);
    }
    if (!ring)
        cqe_out(e, q, lane, t.cqes, t.last, 0, t.dirt, alone);
    sums_add(t, lane, run, f.flags, f.bytes, puts); // the last one's
    if (t.wqes) {
        fast_end<ring>(e, q, lane, t, prod, cons);
        if (!other &&
            lane == 0) // a longer write and its flag, likely: looking for words alone would be in vain
            q.next = had_long ? GPU_NEXT_LONG : GPU_NEXT_ANY;
        __syncwarp();
    }
    return other ? REST_OTHER : left ? REST_MORE : REST_NONE;
}

} // namespace softnic_gpu

#endif
