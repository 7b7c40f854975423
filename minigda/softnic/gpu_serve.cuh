// GPU engine: what one warp does with one QP. The same rules as requester.c, responder.c and completer.c, where they are
// explained; here is how 32 lanes keep them.
//
// A visit fetches up to 32 blocks, one a lane. The leading ones that are WRITEs of one block and one piece (and NOPs)
// are executed side by side, in as few steps as their order allows; everything else goes one at a time through
// serve_one(). A CQE is written in two parts: all but its last 8 bytes at once, these after the fence that makes the
// QP's stores visible. Where a QP has a collapsed CQ of its own only the last CQE of a visit is written, and the fence is
// shared by all QPs that the warp visits in one pass.
#ifndef SOFTNIC_GPU_SERVE_CUH
#define SOFTNIC_GPU_SERVE_CUH

#include "gpu_warp_state.cuh"

namespace softnic_gpu {

// ---- one WQE, whatever it is ----

// Block `index & mask` of a ring into words: 16 bytes by each of 4 lanes.
GPU_FN void block_in(uint64_t ring, uint32_t slot, uint64_t *words) {
    const uint32_t lane = lane_id();
    __syncwarp(); // all have done with what is there
    if (lane < 4) {
        const pair v = load128((const void *)(ring + (uint64_t)slot * MLX5_BB + lane * 16));
        words[lane * 2] = v.lo;
        words[lane * 2 + 1] = v.hi;
    }
    __syncwarp();
}

// Fetches the WQE at `index` into the warp's words: 0 or the syndrome. As many of the announced blocks at once as the warp
// can: the way to the queue is long, and how many it takes is in the first.
enum { FETCH_AT_ONCE = 8 }; // blocks
GPU_FN void fetch_blocks(engine e, uint64_t ring, uint32_t mask, uint32_t index, uint32_t available,
                         struct wqe_head *head_p) {
    const uint32_t lane = lane_id();
    __syncwarp(); // all have done with what is there
    if (lane / 4 < available) {
        const uint64_t block = ring + (uint64_t)((index + lane / 4) & mask) * MLX5_BB;
        const pair v = load128((const void *)(block + lane % 4 * 16));
        e.w.words[lane * 2] = v.lo;
        e.w.words[lane * 2 + 1] = v.hi;
    }
    __syncwarp();
    *head_p = wqe_head(e.w.words);
}
GPU_CALL int fetch_one(engine e, uint64_t ring, const gpu_qp &q, uint32_t index, uint32_t available,
                       struct wqe_head *head_p) {
    fetch_blocks(e, ring, q.mask, index, available, head_p);
    if (const int s = wqe_check_head(head_p, index, q.qpn, available))
        return s;
    const uint32_t blocks = mlx5_ds_blocks(head_p->ds);
    for (uint32_t b = FETCH_AT_ONCE; b < blocks; b++)
        block_in(ring, (index + b) & q.mask, e.w.words + b * WQE_BLOCK_WORDS);
    return 0;
}

// The local pieces: checked, or with `remote` moved to or from there.
GPU_CALL int pieces(engine e, const gpu_qp &q, const struct wqe &wqe, uint64_t remote, uint32_t *dirt_p) {
    const bool read = wqe.action == WQE_READ;
    uint32_t segment = wqe.segment;
    for (uint32_t i = 0; i < wqe.pieces; i++) {
        wqe_piece piece;
        if (const int s = wqe_piece_next(e.w.words, wqe.ds, &segment, &piece))
            return s;
        uint64_t at = (uint64_t)piece.data;
        uint32_t dirt = 0;
        if (!piece.data)
            if (const int s = resolve_local(e, q, piece.lkey, piece.addr, piece.bytes,
                                            read ? SOFTNIC_LOCAL_WRITE : 0, &at, &dirt))
                return s;
        if (remote == 0)
            continue;
        const uint64_t to = read ? at : remote, from = read ? remote : at;
        if (read)
            *dirt_p = dirt;
        if (!piece.data && is_word(to, piece.bytes) && (from & (piece.bytes - 1)) == 0) {
            if (lane_id() == 0)
                store_word(to, load_word(from, piece.bytes), piece.bytes);
        } else if (piece.data && is_word(to, piece.bytes)) {
            uint64_t v = 0;
            for (uint32_t b = 0; b < piece.bytes; b++)
                v |= (uint64_t)piece.data[b] << 8 * b;
            if (lane_id() == 0)
                store_word(to, v, piece.bytes);
        } else {
            copy_big(e.a, e.w.index, to, from, piece.bytes, (*dirt_p & DIRTY_FAR) != 0);
        }
        dirty(e, *dirt_p | DIRTY_LONG);
        remote += piece.bytes;
    }
    return 0;
}

GPU_CALL int move_pieces(engine e, const gpu_qp &q, const struct wqe &wqe) {
    uint32_t dirt = 0;
    if (const int s = pieces(e, q, wqe, 0, &dirt))
        return s;
    if (wqe.bytes == 0)
        return 0;
    uint64_t remote;
    const uint32_t right = wqe.action == WQE_READ ? SOFTNIC_REMOTE_READ : SOFTNIC_REMOTE_WRITE;
    if (const int s = resolve(e, q, q.node, wqe.rkey, wqe.raddr, wqe.bytes, right, &remote, &dirt))
        return s;
    // Behind what is under way: a flag behind its payload, the same bytes behind what was written there.
    clean(e);
    return pieces(e, q, wqe, remote, &dirt);
}

// Lane 0: one read-modify-write for all NICs of the host, in one way to the word where masks allow it.
GPU_FN uint64_t atomic_8(const struct wqe &wqe, unsigned long long *word) {
    if (!wqe.compare && wqe.boundary == 0)
        return atomicAdd_system(word, (unsigned long long)wqe.swap_add);
    if (wqe.compare && wqe.swap_mask == 0)
        return load64(word);
    if (wqe.compare && wqe.swap_mask == ~0ull && wqe.compare_mask == ~0ull)
        return atomicCAS_system(word, (unsigned long long)wqe.compare_value,
                                (unsigned long long)wqe.swap_add);
    if (wqe.compare && wqe.swap_mask == ~0ull && wqe.compare_mask == 0)
        return atomicExch_system(word, (unsigned long long)wqe.swap_add);
    uint64_t old = load64(word), next;
    while (wqe_atomic_apply(&wqe, old, &next)) {
        const uint64_t seen = atomicCAS_system(word, (unsigned long long)old, (unsigned long long)next);
        if (seen == old)
            break;
        old = seen;
    }
    return old;
}
GPU_FN uint32_t atomic_4(const struct wqe &wqe, uint32_t *word) {
    const uint32_t swap = (uint32_t)wqe.swap_add, all = ~0u;
    if (!wqe.compare && wqe.boundary == 0)
        return atomicAdd_system(word, swap);
    if (wqe.compare && wqe.swap_mask == 0)
        return load32(word);
    if (wqe.compare && wqe.swap_mask == all && wqe.compare_mask == all)
        return atomicCAS_system(word, (uint32_t)wqe.compare_value, swap);
    if (wqe.compare && wqe.swap_mask == all && wqe.compare_mask == 0)
        return atomicExch_system(word, swap);
    uint32_t old = load32(word);
    uint64_t next;
    while (wqe_atomic_apply(&wqe, old, &next)) {
        const uint32_t seen = atomicCAS_system(word, old, (uint32_t)next);
        if (seen == old)
            break;
        old = seen;
    }
    return old;
}

GPU_CALL int atomic_one(engine e, const gpu_qp &q, const struct wqe &wqe) {
    uint64_t result, word;
    uint32_t dirt, word_dirt;
    if (const int s = resolve_local(e, q, wqe.first.lkey, wqe.first.addr, wqe.operand, SOFTNIC_LOCAL_WRITE,
                                    &result, &dirt))
        return s;
    if (const int s =
            resolve(e, q, q.node, wqe.rkey, wqe.raddr, wqe.operand, SOFTNIC_REMOTE_ATOMIC, &word, &word_dirt))
        return s;
    if ((wqe.raddr | word) % wqe.operand != 0)
        return MLX5_SYND_REMOTE_INVAL_REQ;
    // The fence that this needs may have to reach further than what it follows: who sees the atomic sees the rest.
    if (e.w.dirty)
        dirty(e, word_dirt);
    clean(e);
    if (lane_id() == 0) {
        uint64_t old;
        if (wqe.operand == 8)
            old = atomic_8(wqe, (unsigned long long *)word);
        else
            old = mlx5_be32(atomic_4(wqe, (uint32_t *)word));
        if (is_word(result, wqe.operand))
            store_word(result, old, wqe.operand);
        else
            for (uint32_t i = 0; i < wqe.operand; i++)
                store8((void *)(result + i), (uint32_t)(old >> 8 * i));
    }
    dirty(e, dirt);
    return 0;
}

GPU_FN int execute(engine e, const gpu_qp &q, const struct wqe &wqe) {
    uint32_t dirt;
    switch (wqe.action) {
    case WQE_WRITE:
    case WQE_READ:
        return move_pieces(e, q, wqe);
    case WQE_ATOMIC:
        return atomic_one(e, q, wqe);
    case WQE_TOUCH:
        clean(e);
        return pieces(e, q, wqe, 0, &dirt);
    default:
        return 0;
    }
}

// A WAIT's CQ: 1 passed, 0 not yet, -1 no such CQ.
GPU_FN int wait_passed(engine e, const struct wqe &wqe) {
    const uint32_t i = wqe.wait_cqn - CQN_BASE;
    if (i >= e.a.cq_count || !e.a.cqs[i].exists)
        return -1;
    const uint32_t done = first_lanes((uint32_t)load64_acquire(&e.a.cqs[i].prod));
    return (int32_t)(done - wqe.wait_index) > 0;
}

GPU_FN void count_one(engine e, gpu_qp &q, const struct wqe &wqe) { // lane 0
    softnic_counters &n = cold_of(e, q).n;
    switch (wqe.action) {
    case WQE_WRITE:
        q.count[GPU_WRITES]++;
        q.count[GPU_INLINES] += wqe.is_inline;
        break;
    case WQE_READ:
        bump(&n.wqe_read, 1);
        break;
    case WQE_ATOMIC:
        bump(&n.wqe_atomic, 1);
        break;
    case WQE_WAIT:
        bump(&n.wqe_wait, 1);
        break;
    case WQE_TOUCH:
        bump(&n.wqe_dump, 1);
        break;
    default:
        bump(&n.wqe_nop, 1);
    }
}

// The QP has to be looked at again when the host has answered.
GPU_FN void ask(engine e, gpu_qp &q) {
    if (lane_id() == 0) {
        q.asked = GPU_ASKED;
        *(volatile uint32_t *)&e.a.mail->ask = 1;
    }
    __syncwarp();
}

// Takes the fetched WQE of a DC QP apart: its address, and the rest of it in the warp's words.
GPU_CALL int take_apart_dc(engine e, struct wqe_head *head, struct wqe *wqe, struct wqe_av *av) {
    const uint32_t lane = lane_id(), ds = head->ds;
    int syndrome = wqe_address(e.w.words, head, av);
    if (!syndrome && av->segments) {
        head->ds = (uint8_t)(ds - av->segments);
        const uint32_t end = 2u * head->ds, shift = 2u * av->segments;
        for (uint32_t first = 2; first < end; first += 32) {
            const uint32_t i = first + lane;
            const uint64_t word = i < end ? e.w.words[i + shift] : 0;
            __syncwarp();
            if (i < end)
                e.w.words[i] = word;
            __syncwarp();
        }
    }
    if (!syndrome)
        syndrome = wqe_decode(e.w.words, head, wqe);
    wqe->blocks = (uint8_t)mlx5_ds_blocks(ds);
    return syndrome;
}

// As dct_check(), or ASK; the QP then goes there.
GPU_CALL int go_to(engine e, gpu_qp &q, const struct wqe_av &av) {
    const uint32_t node = av.lid - 1;
    const gpu_key *k = key_find(e, node, av.dct);
    if (!k)
        return e.a.fresh || q.asked == GPU_ANSWERED ? (int)MLX5_SYND_TRANSPORT_RETRY : ASK;
    if (!(k->access & ACCESS_DCT))
        return MLX5_SYND_TRANSPORT_RETRY;
    if (k->va != av.key)
        return MLX5_SYND_REMOTE_ACCESS;
    __syncwarp();
    if (lane_id() == 0)
        q.node = node;
    __syncwarp();
    return 0;
}

enum one { ONE_DONE, ONE_NOT_YET, ONE_FAILED };

// Fetches and executes the WQE at q.cons, of which `left` blocks are announced.
GPU_CALL int serve_one(engine e, gpu_qp &q, uint32_t left) {
    const uint32_t lane = lane_id(), cons = q.cons;
    struct wqe_head head;
    struct wqe wqe;
    wqe.blocks = 1;
    wqe.bytes = 0;
    int syndrome = fetch_one(e, q.sq, q, cons, left, &head);
    const uint32_t ds = syndrome ? 0 : head.ds;
    struct wqe_av av;
    av.segments = 0;
    if (!syndrome)
        syndrome = q.dc ? take_apart_dc(e, &head, &wqe, &av) : wqe_decode(e.w.words, &head, &wqe);
    if (!syndrome && wqe.action == WQE_WAIT) {
        const int passed = wait_passed(e, wqe);
        if (passed == 0)
            return ONE_NOT_YET;
        if (passed < 0)
            syndrome = MLX5_SYND_LOCAL_QP_OP;
    }
    const bool decoded = syndrome == 0;
    if (!syndrome && av.segments)
        syndrome = go_to(e, q, av);
    if (!syndrome)
        syndrome = execute(e, q, wqe);
    if (syndrome == ASK) {
        ask(e, q);
        return ONE_NOT_YET;
    }
    __syncwarp();
    if (lane == 0) {
        e.w.work++;
        q.asked = GPU_ASK_NO;
        q.next = GPU_NEXT_ANY;
        q.count[GPU_WQES]++;
        q.count[GPU_SEGMENTS] += ds;
        if (decoded)
            count_one(e, q, wqe);
        if (!syndrome)
            q.payload += wqe.bytes;
        q.cons = cons + wqe.blocks;
    }
    __syncwarp();
    if (syndrome) {
        complete_failed(e, q, cons, head.opcode, (uint32_t)syndrome);
        return ONE_FAILED;
    }
    if (head.fm_ce_se & MLX5_CTRL_CQ_UPDATE)
        if (!complete(e, q, cons, head.opcode, wqe.action == WQE_WRITE ? 0 : wqe.bytes, 0))
            return ONE_FAILED;
    return ONE_DONE;
}

// ---- the doorbell record ----

// What it says. Where it is what is watched, the pass has just loaded it.
GPU_FN uint32_t record_of(engine e, const gpu_qp &q) {
    const uint32_t v = e.a.bell ? first_lanes(load32_acquire((const void *)q.dbrec)) : (uint32_t)q.watch_last;
    return mlx5_be32(v) & 0xffff;
}

// The announced blocks from cons on, or -1 when the record is ahead of the ring.
GPU_FN int32_t announced(engine e, gpu_qp &q) {
    const uint32_t prod = mlx5_be32(first_lanes(load32_acquire((const void *)q.dbrec))) & 0xffff;
    const uint32_t ahead = (prod - q.cons) & 0xffff;
    const bool rung = prod != q.seen;
    __syncwarp();
    if (rung && lane_id() == 0) {
        q.seen = (uint16_t)prod;
        q.count[GPU_DOORBELLS]++;
        e.w.work++;
    }
    __syncwarp();
    return ahead <= q.mask + 1 ? (int32_t)ahead : -1;
}

// The doorbell names an index that the record does not have yet: the driver is between two rings.
GPU_FN bool bell_is_ahead(engine e, const gpu_qp &q) {
    if (!e.a.bell)
        return false;
    const uint64_t bell = load64_acquire((const void *)q.watch);
    return bell != 0 && mlx5_doorbell_qpn(bell) == q.qpn && mlx5_doorbell_index(bell) != q.seen;
}

// cons to where the record says.
GPU_FN void skip_to_record(gpu_qp &q) {
    __syncwarp();
    if (lane_id() == 0)
        q.cons += (uint16_t)(q.seen - (uint16_t)q.cons);
    __syncwarp();
}

// In the error state every WQE completes as flushed.
GPU_CALL bool flush(engine e, gpu_qp &q) {
    int32_t ahead = announced(e, q);
    if (ahead < 0) {
        skip_to_record(q);
        ahead = 0;
    }
    uint32_t left = (uint32_t)ahead, budget = VISIT_BLOCKS;
    while (left > 0 && budget > 0) {
        const uint32_t cons = q.cons;
        block_in(q.sq, cons & q.mask, e.w.words);
        const struct wqe_head head = wqe_head(e.w.words);
        const bool known = wqe_check_head(&head, cons, q.qpn, left) == 0;
        const uint32_t blocks = known ? mlx5_ds_blocks(head.ds) : 1;
        complete(e, q, cons, known ? head.opcode : 0, 0, MLX5_SYND_WR_FLUSH);
        if (lane_id() == 0) {
            cold_of(e, q).n.flushed++;
            q.cons = cons + blocks;
        }
        __syncwarp();
        left -= blocks;
        budget -= blocks < budget ? blocks : budget;
    }
    if (lane_id() == 0)
        cold_of(e, q).land = cold_of(e, q).done = q.cons;
    __syncwarp();
    return left > 0 || bell_is_ahead(e, q);
}

} // namespace softnic_gpu

#endif
