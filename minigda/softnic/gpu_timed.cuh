// GPU engine with a profile: WQEs are fetched into the QP's shadow ring, given two deadlines and left alone until
// those have come. The rules are requester.c's and pace.c's; one WQE at a time, so that a profile's rate is the lower of
// the model's and of this engine's.
#ifndef SOFTNIC_GPU_TIMED_CUH
#define SOFTNIC_GPU_TIMED_CUH

#include "gpu_run.cuh"

namespace softnic_gpu {

GPU_FN uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

GPU_FN uint64_t link_ps(const gpu_args &a, uint64_t bytes) {
    if (a.bandwidth <= 0)
        return 0;
    return (uint64_t)((double)(bytes + a.header_bytes) * 1e12 / a.bandwidth + 0.5);
}

GPU_FN gpu_pend *pend_at(const gpu_cold &c, const gpu_qp &q, uint32_t index) {
    return (gpu_pend *)c.pend + (index & q.mask);
}

// Lane 0. One message through the NIC's two servers.
GPU_FN void pace(engine e, const struct wqe &wqe, uint64_t at_ps, gpu_pend *pend) {
    const gpu_args &a = e.a;
    gpu_pace *p = a.pace;
    const uint64_t on_link = link_ps(a, wqe.bytes), little = link_ps(a, 8);
    while (atomicCAS(&p->lock, 0u, 1u) != 0)
        __nanosleep(50);
    fence_gpu();
    const uint64_t start = later(at_ps, load64(&p->rate_free_ps));
    store64(&p->rate_free_ps, start + a.message_ps);
    uint64_t sent = later(start, load64(&p->link_free_ps));
    store64(&p->link_free_ps, sent + on_link);
    fence_gpu();
    atomicExch(&p->lock, 0u);
    sent += on_link > little ? on_link - little : 0;
    pend->land_ps = sent + a.latency_ps / 2;
    pend->done_ps = sent + a.latency_ps;
}

// Lane 0. wqe: nullptr for one that is going to fail.
GPU_FN void pace_message(engine e, gpu_cold &c, const struct wqe *wqe, uint64_t fetched_ps, gpu_pend *pend) {
    pend->land_ps = pend->done_ps = fetched_ps;
    const bool response = wqe && (wqe->action == WQE_READ || wqe->action == WQE_ATOMIC);
    if (wqe && (wqe->fm_ce_se & MLX5_CTRL_FENCE_MASK))
        pend->land_ps = pend->done_ps = fetched_ps = later(fetched_ps, c.response_ps);
    if (response || (wqe && wqe->action == WQE_WRITE))
        pace(e, *wqe, fetched_ps, pend);
    c.last_land_ps = pend->land_ps = later(pend->land_ps, c.last_land_ps);
    c.last_done_ps = pend->done_ps = later(pend->done_ps, c.last_done_ps);
    if (response)
        c.response_ps = pend->done_ps;
}

// Fetches one WQE and gives it its deadlines: true when a WAIT holds the queue.
GPU_CALL bool accept_one(engine e, gpu_qp &q, gpu_cold &c, uint32_t left, uint64_t fetched_ps) {
    const uint32_t lane = lane_id(), cons = q.cons;
    struct wqe_head head;
    struct wqe wqe;
    wqe.blocks = 1;
    int syndrome = fetch_one(e, q.sq, q, cons, left, &head);
    const bool known = syndrome == 0;
    if (!syndrome)
        syndrome = wqe_decode(e.w.words, &head, &wqe);
    if (!syndrome && wqe.action == WQE_WAIT) {
        const int passed = wait_passed(e, wqe);
        if (passed == 0)
            return true;
        if (passed < 0)
            syndrome = MLX5_SYND_LOCAL_QP_OP;
    }
    if (lane == 0) {
        gpu_pend pend{};
        pend.blocks = wqe.blocks;
        pend.syndrome = (uint8_t)syndrome;
        pend.ds = known ? head.ds : 0;
        pend.opcode = head.opcode;
        pend.fm_ce_se = head.fm_ce_se;
        pace_message(e, c, syndrome ? nullptr : &wqe, fetched_ps, &pend);
        *pend_at(c, q, cons) = pend;
        e.w.work++;
        if (syndrome)
            q.stopped = STOPPED_BAD_WQE;
        q.cons = cons + wqe.blocks;
    }
    if (!syndrome)
        for (uint32_t i = lane; i < wqe.blocks * 4u; i += 32) {
            const uint64_t slot = (cons + i / 4) & q.mask;
            store128((void *)(c.shadow + slot * MLX5_BB + i % 4 * 16),
                     pair{e.w.words[2 * i], e.w.words[2 * i + 1]});
        }
    __syncwarp();
    return false;
}

// Fetches all that the record announces. True: a WAIT holds the queue.
GPU_CALL bool accept_wqes(engine e, gpu_qp &q, gpu_cold &c) {
    const uint32_t lane = lane_id();
    const int32_t ahead = announced(e, q);
    if (ahead < 0 || (uint32_t)ahead + (q.cons - c.done) > q.mask + 1) {
        __syncwarp();
        if (lane == 0)
            q.stopped = STOPPED_OVERRUN;
        __syncwarp();
        return false;
    }
    if (ahead == 0)
        return false;
    const bool rung = q.seen != c.fetched; // a new doorbell: one more fetch
    __syncwarp();
    if (lane == 0) {
        c.n.qps_used = 1;
        if (rung) {
            c.fetched = q.seen;
            c.fetch_ps = e.w.now_ps + e.a.fetch_ps;
        }
    }
    __syncwarp();
    const uint64_t fetched_ps = later(e.w.now_ps, c.fetch_ps);
    const uint32_t end = q.cons + (uint32_t)ahead;
    while (q.cons != end && !q.stopped)
        if (accept_one(e, q, c, end - q.cons, fetched_ps))
            return true;
    return false;
}

GPU_FN void count_fetched(gpu_qp &q, const gpu_pend &pend) { // lane 0
    q.count[GPU_WQES]++;
    q.count[GPU_SEGMENTS] += pend.ds;
}

// The responder acts on what is due. True: a key has been asked for.
GPU_CALL bool land_due(engine e, gpu_qp &q, gpu_cold &c) {
    const uint32_t lane = lane_id();
    while (c.land != q.cons) {
        gpu_pend *pend = pend_at(c, q, c.land);
        if (pend->syndrome || pend->land_ps > e.w.now_ps)
            return false;
        struct wqe_head head;
        struct wqe wqe;
        int syndrome = fetch_one(e, c.shadow, q, c.land, q.cons - c.land, &head);
        const bool decoded = !syndrome && (syndrome = wqe_decode(e.w.words, &head, &wqe)) == 0;
        if (decoded)
            syndrome = execute(e, q, wqe);
        if (syndrome == ASK) {
            ask(e, q);
            return true;
        }
        __syncwarp();
        if (lane == 0) {
            q.asked = GPU_ASK_NO;
            count_fetched(q, *pend);
            if (decoded)
                count_one(e, q, wqe);
            e.w.work++;
            if (syndrome) {
                pend->syndrome = (uint8_t)syndrome;
            } else {
                q.payload += wqe.bytes;
                pend->bytes = wqe.action == WQE_WRITE ? 0 : wqe.bytes;
                c.land += pend->blocks;
            }
        }
        __syncwarp();
        if (syndrome)
            return false;
    }
    return false;
}

// Writes the CQEs that are due; true when the QP went to the error state.
GPU_CALL bool complete_due(engine e, gpu_qp &q, gpu_cold &c) {
    const uint32_t lane = lane_id();
    while (c.done != q.cons) {
        const uint32_t done = c.done;
        const gpu_pend pend = *pend_at(c, q, done);
        if (pend.done_ps > e.w.now_ps || (done == c.land && !pend.syndrome))
            return false;
        const bool failed = pend.syndrome != 0;
        const bool never_fetched = failed && q.stopped == STOPPED_BAD_WQE && done + pend.blocks == q.cons;
        bool lost = false;
        __syncwarp();
        if (failed)
            complete_failed(e, q, done, pend.opcode, pend.syndrome);
        else if (pend.fm_ce_se & MLX5_CTRL_CQ_UPDATE)
            lost = !complete(e, q, done, pend.opcode, pend.bytes, 0);
        if (lane == 0) {
            e.w.work++;
            if (never_fetched)
                count_fetched(q, pend);
            if (!failed)
                c.done = done + pend.blocks;
            if (failed || lost)
                q.cons = done + pend.blocks; // flush() walks the rest in the driver's queue
        }
        __syncwarp();
        if (failed || lost)
            return true;
    }
    return false;
}

GPU_CALL bool serve_timed(engine e, gpu_qp &q) {
    gpu_cold &c = cold_of(e, q);
    bool waits = q.stopped ? false : accept_wqes(e, q, c);
    waits |= land_due(e, q, c);
    if (complete_due(e, q, c))
        return flush(e, q);
    if (q.stopped == STOPPED_OVERRUN && c.done == q.cons) {
        complete_failed(e, q, q.cons, 0, MLX5_SYND_LOCAL_QP_OP);
        skip_to_record(q);
        return flush(e, q);
    }
    return waits || q.stopped || c.done != q.cons || bell_is_ahead(e, q);
}

// Earliest deadline of the QP, ~0 when nothing is pending.
GPU_FN uint64_t next_ps(engine e, const gpu_qp &q) {
    const gpu_cold &c = cold_of(e, q);
    uint64_t next = ~0ull;
    if (c.done == q.cons)
        return next;
    next = pend_at(c, q, c.done)->done_ps;
    const gpu_pend *land = pend_at(c, q, c.land);
    if (c.land != q.cons && !land->syndrome && land->land_ps < next)
        next = land->land_ps;
    return next;
}

// Whatever its state: returns whether to look again without a new doorbell.
GPU_FN bool serve(engine e, gpu_qp &q) {
    if (q.asked == GPU_ASKED)
        return true;
    if (q.state == SOFTNIC_QP_ERROR)
        return flush(e, q);
    if (q.state == SOFTNIC_QP_INIT)
        return false;
    if (e.a.timed)
        return serve_timed(e, q);
    return serve_now(e, q, record_of(e, q));
}

} // namespace softnic_gpu

#endif
