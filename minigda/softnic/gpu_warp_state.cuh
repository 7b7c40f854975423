// GPU engine: what a warp keeps while it serves queue pairs, how it finds keys, and how it writes completions.
//
// A QP's struct gpu_qp and the warp's struct gpu_warp lie in shared memory. Lane 0 writes them; whoever lets it write says
// __syncwarp() before others read.
#ifndef SOFTNIC_GPU_WARP_STATE_CUH
#define SOFTNIC_GPU_WARP_STATE_CUH

#include "gpu_copy.cuh"
#include "internal.h"

namespace softnic_gpu {

// What the warp knows that looks at the host for all of them.
struct gpu_watcher {
    uint64_t looked, since;   // clock; when the host's heartbeat changed
    uint64_t stirred;         // when somebody had something to do
    uint32_t heartbeat, idle; // idle: the host has been told
};

// What a warp has under way.
struct gpu_warp {
    alignas(16) uint64_t words[WQE_MAX_WORDS]; // the WQE that serve_one() looks at
    uint64_t now_ps;
    uint64_t tail;  // last 8 bytes of a CQE whose rest is written; 0: none (a CQE has a QPN)
    uint32_t dirty; // DIRTY_...: stores that no fence has followed
    uint32_t work;  // things done, to tell an idle pass
    uint32_t told;  // what `work` was when the board was last told of it
    uint32_t last;  // this pass is the last one
    uint32_t index; // in the engine
    // What the warp serves: QP `index + k * stride` of the engine is its k-th, `step` places apart in shared memory.
    uint32_t stride, step, count;
    gpu_qp *qps;
    gpu_watcher watch;

    __device__ gpu_qp &at(uint32_t k) const { return qps[k * step]; }
};
enum { DIRTY = 1, DIRTY_FAR = 2, DIRTY_LONG = 4 };

struct engine {
    const gpu_args &a;
    const gpu_key *keys;
    gpu_warp &w;
};

// A count in memory that only this QP's warp adds to; it does not wait for it.
GPU_FN void bump(uint64_t *count, uint32_t by) {
    if (by)
        atomicAdd((unsigned long long *)count, (unsigned long long)by);
}

GPU_FN gpu_cold &cold_of(engine e, const gpu_qp &q) { return e.a.cold[q.qpn - QPN_BASE]; }

GPU_FN void dirty(engine e, uint32_t what) {
    __syncwarp();
    if (lane_id() == 0)
        e.w.dirty |= what;
    __syncwarp();
}
GPU_FN void clean(engine e) {
    const uint32_t d = e.w.dirty;
    if (d == 0)
        return;
    fence_warp(d & DIRTY_FAR);
    if (lane_id() == 0)
        e.w.dirty = 0;
    __syncwarp();
}

// ---- keys ----

GPU_FN const gpu_key *key_find(engine e, uint32_t node, uint32_t key) {
    const uint32_t mask = e.a.key_mask;
    for (uint32_t i = gpu_key_slot(node, key) & mask;; i = (i + 1) & mask) {
        const gpu_key *k = &e.keys[i];
        if (k->key == key && k->node == node)
            return key ? k : nullptr;
        if (k->key == 0)
            return nullptr;
    }
}
GPU_FN uint64_t key_apply(const gpu_key *k, uint64_t va, uint64_t bytes, uint32_t access) {
    const uint64_t offset = va - k->va;
    const bool ok = (k->access & access) == access && offset <= k->len && bytes <= k->len - offset;
    return ok && k->base ? k->base + offset : 0;
}

constexpr int ASK = -1; // the host has to look first whether there is such a key

// 0 and the address here, or the syndrome for a remote request, or ASK.
GPU_FN int resolve(engine e, const gpu_qp &q, uint32_t node, uint32_t key, uint64_t va, uint64_t bytes,
                   uint32_t access, uint64_t *at_p, uint32_t *dirt_p) {
    const gpu_key *k = key_find(e, node, key);
    if (!k) {
        if (!e.a.fresh && q.asked != GPU_ANSWERED)
            return ASK;
        return node != e.a.self && e.a.gone[node] ? MLX5_SYND_TRANSPORT_RETRY : MLX5_SYND_REMOTE_ACCESS;
    }
    *at_p = key_apply(k, va, bytes, access);
    if (*at_p) {
        *dirt_p = k->far ? DIRTY | DIRTY_FAR : DIRTY;
        return 0;
    }
    const uint64_t offset = va - k->va;
    const bool allowed = (k->access & access) == access && offset <= k->len && bytes <= k->len - offset;
    return allowed ? MLX5_SYND_REMOTE_OP : MLX5_SYND_REMOTE_ACCESS;
}
GPU_FN int resolve_local(engine e, const gpu_qp &q, uint32_t key, uint64_t va, uint64_t bytes,
                         uint32_t access, uint64_t *at_p, uint32_t *dirt_p) {
    const int s = resolve(e, q, e.a.self, key, va, bytes, access, at_p, dirt_p);
    return s > 0 ? MLX5_SYND_LOCAL_PROT : s;
}

// ---- completion ----

GPU_FN void set_state(engine e, gpu_qp &q, uint32_t state, uint32_t syndrome) { // lane 0
    q.state = (uint8_t)state;
    if (q.syndrome == 0)
        q.syndrome = (uint8_t)syndrome;
    *(volatile uint16_t *)&e.a.status[q.qpn - QPN_BASE] = (uint16_t)(state | (uint32_t)q.syndrome << 8);
}

// Word i of a CQE, 0 to 6.
GPU_FN uint64_t cqe_word(engine e, uint32_t i, uint32_t bytes, uint32_t syndrome) {
    if (i == 5)
        return syndrome ? 0 : (uint64_t)mlx5_be32(bytes) << 32;
    if (i == 6)
        return syndrome ? (uint64_t)syndrome << 56 : mlx5_be64(e.w.now_ps / PS_PER_NS);
    return 0;
}
GPU_FN uint64_t cqe_tail(const gpu_qp &q, uint32_t index, uint32_t opcode, uint32_t op_own) {
    return (uint64_t)mlx5_opcode_qpn((uint8_t)opcode, q.qpn) | (uint64_t)mlx5_be16((uint16_t)index) << 32 |
           (uint64_t)op_own << 56;
}

// A CQ that other QPs may use too, or a ring: one CQE, at once. False: the CQ has overrun.
GPU_CALL bool cq_push(engine e, gpu_qp &q, uint32_t index, uint32_t opcode, uint32_t bytes,
                      uint32_t syndrome) {
    gpu_cq &cq = e.a.cqs[q.cq];
    const uint32_t lane = lane_id();
    clean(e);
    if (lane == 0 && cq.shared)
        while (atomicCAS(&cq.lock, 0u, 1u) != 0)
            __nanosleep(100);
    __syncwarp();
    fence_gpu(); // what the last holder stored
    const uint64_t prod = load64(&cq.prod);
    bool room = load32(&cq.overrun) == 0;
    if (room && cq.dbrec && !cq.collapsed) {
        const uint32_t cons = mlx5_be32(first_lanes(load32_acquire((const void *)cq.dbrec)));
        room = (((uint32_t)prod - cons) & 0xffffff) < cq.depth;
    }
    if (room) {
        const uint64_t at = cq.cqe + (cq.collapsed ? 0 : (prod & (cq.depth - 1)) * MLX5_CQE);
        const uint32_t lap = cq.collapsed ? 0 : (prod & cq.depth) != 0;
        if (lane < 7)
            store64((void *)(at + 8 * lane), cqe_word(e, lane, bytes, syndrome));
        fence_warp(q.far);
        if (lane == 0) {
            const uint32_t op = syndrome ? MLX5_CQE_OP_REQ_ERR : MLX5_CQE_OP_REQ;
            store64((void *)(at + 56), cqe_tail(q, index, opcode, mlx5_op_own((uint8_t)op, lap)));
            fence_sys();
            store64(&cq.prod, prod + 1);
            q.prod = prod + 1;
        }
    } else if (lane == 0) {
        store32(&cq.overrun, 1);
    }
    __syncwarp();
    if (lane == 0 && cq.shared) {
        fence_gpu();
        atomicExch(&cq.lock, 0u);
    }
    __syncwarp();
    return room;
}

// CQEs of the lanes in `asked` in the QP's own ring, behind `before` that this visit has written already: one a lane, each
// whole, and all that the warp stored before them. Of more than fit the last ones stay.
GPU_FN void ring_cqes(engine e, gpu_qp &q, uint32_t lane, uint32_t asked, uint32_t before, uint32_t index,
                      uint32_t opcode, uint32_t bytes, bool far) {
    const uint32_t behind = asked >> lane >> 1, depth = q.cq_mask + 1;
    const bool mine = (asked >> lane & 1) && (uint32_t)__popc(behind) < depth;
    const uint64_t n = q.prod + before + __popc(asked & ((1u << lane) - 1));
    const uint64_t at = q.cqe + (n & q.cq_mask) * MLX5_CQE;
    if (mine) {
        store128((void *)at, pair{0, 0});
        store128((void *)(at + 16), pair{0, 0});
        store128((void *)(at + 32), pair{0, cqe_word(e, 5, bytes, 0)});
        store64((void *)(at + 48), cqe_word(e, 6, bytes, 0));
    }
    fence_warp(far || q.far);
    if (mine)
        store64((void *)(at + 56),
                cqe_tail(q, index, opcode, mlx5_op_own(MLX5_CQE_OP_REQ, (n & depth) != 0)));
    __syncwarp();
}

// As completer_cqe(): false when the CQE is lost and the QP in the error state.
GPU_CALL bool complete(engine e, gpu_qp &q, uint32_t index, uint32_t opcode, uint32_t bytes,
                       uint32_t syndrome) {
    const uint32_t lane = lane_id();
    bool written = true;
    if (q.simple_cq) {
        if (lane < 7)
            store64((void *)(q.cqe + 8 * lane), cqe_word(e, lane, bytes, syndrome));
        if (lane == 0) {
            const uint32_t op = syndrome ? MLX5_CQE_OP_REQ_ERR : MLX5_CQE_OP_REQ;
            e.w.tail = cqe_tail(q, index, opcode, mlx5_op_own((uint8_t)op, 0));
            e.w.dirty |= q.far ? DIRTY | DIRTY_FAR : DIRTY;
            q.prod++;
        }
    } else {
        written = cq_push(e, q, index, opcode, bytes, syndrome);
    }
    if (lane == 0) {
        e.w.work++;
        gpu_cold &c = cold_of(e, q);
        if (written) {
            q.count[GPU_CQES]++;
            if (syndrome)
                c.n.error_cqes++;
        } else {
            c.n.cqes_lost++;
            set_state(e, q, SOFTNIC_QP_ERROR, 0);
        }
    }
    __syncwarp();
    return written;
}
GPU_CALL void complete_failed(engine e, gpu_qp &q, uint32_t index, uint32_t opcode, uint32_t syndrome) {
    if (lane_id() == 0)
        set_state(e, q, SOFTNIC_QP_ERROR, syndrome);
    __syncwarp();
    complete(e, q, index, opcode, 0, syndrome);
}

} // namespace softnic_gpu

#endif
