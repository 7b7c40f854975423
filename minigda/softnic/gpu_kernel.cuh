// GPU engine: what a block does from its launch until it leaves.
#ifndef SOFTNIC_GPU_KERNEL_CUH
#define SOFTNIC_GPU_KERNEL_CUH

#include "gpu_single.cuh"
#include "gpu_timed.cuh"

namespace softnic_gpu {

// The last warp of the first block looks at the host every 20 us, hands its word on to the others, and gives up when the
// host is silent. No other warp reads host memory unless a queue lies there.
// It tells the host when nobody had anything to do for a.idle_ns.
enum { LOOK_CYCLES = 40000 };
GPU_FN void tell_idle(const gpu_args &a, gpu_watcher &me, bool busy, uint64_t ns) { // lane 0
    if (busy || load32(&a.board->stirred) || me.stirred == 0) {
        store32(&a.board->stirred, 0);
        me.stirred = ns;
    }
    const uint32_t idle = ns - me.stirred > a.idle_ns;
    if (idle != me.idle)
        store32(&a.mail->idle, idle);
    me.idle = idle;
}
GPU_FN void watch_host(const gpu_args &a, gpu_watcher &me, bool busy) {
    const uint64_t now = __shfl_sync(ALL, clock64(), 0);
    if (now - me.looked < LOOK_CYCLES)
        return;
    const uint32_t stop = load32(&a.mail->stop), heartbeat = load32(&a.mail->heartbeat);
    const uint64_t ns = clock_ns();
    __syncwarp();
    if (lane_id() == 0) {
        me.looked = now;
        if (heartbeat != me.heartbeat || me.since == 0) {
            me.heartbeat = heartbeat;
            me.since = ns;
        }
        const uint32_t reason = stop ? GPU_LEFT_ASKED : ns - me.since > a.silence_ns ? GPU_LEFT_SILENCE : 0;
        if (reason) {
            store32(&a.mail->reason, reason);
            store32(&a.board->leave, 1);
        }
        if (a.idle_ns)
            tell_idle(a, me, busy, ns);
    }
    __syncwarp();
}
// What this warp has done since it last told.
GPU_FN void stir(engine e) {
    if (e.a.idle_ns && lane_id() == 0 && e.w.told != e.w.work) {
        e.w.told = e.w.work;
        store32(&e.a.board->stirred, 1);
    }
    __syncwarp();
}

GPU_FN void load_share(const gpu_args &a, const gpu_warp &w) {
    for (uint32_t k = 0; k < w.count; k++) {
        const uint64_t *from = (const uint64_t *)&a.qps[w.index + k * w.stride];
        uint64_t *to = (uint64_t *)&w.at(k);
        for (uint32_t i = lane_id(); i < sizeof(gpu_qp) / 8; i += 32)
            to[i] = from[i];
    }
    __syncwarp();
    for (uint32_t k = lane_id(); k < w.count; k += 32) {
        gpu_qp &q = w.at(k);
        if (q.rewatch)
            q.watch_last = a.bell ? load64((const void *)q.watch) : load32((const void *)q.watch);
        q.rewatch = 0;
    }
    __syncwarp();
}
GPU_FN void store_share(const gpu_args &a, const gpu_warp &w) {
    __syncwarp();
    for (uint32_t k = 0; k < w.count; k++) {
        const uint64_t *from = (const uint64_t *)&w.at(k);
        uint64_t *to = (uint64_t *)&a.qps[w.index + k * w.stride];
        for (uint32_t i = lane_id(); i < sizeof(gpu_qp) / 8; i += 32)
            to[i] = from[i];
    }
}

// The last bytes of the CQEs that this pass has held back, one a lane.
GPU_FN void tails_out(engine e, uint32_t k, uint64_t tail) {
    if (__ballot_sync(ALL, tail != 0) == 0)
        return;
    clean(e);
    if (tail) {
        const gpu_qp &q = e.w.at(k);
        store64((void *)(q.cqe + 56), tail);
        store64(&e.a.cqs[q.cq].prod, q.prod);
    }
    __syncwarp();
}

// Many words announced, at a warp with little else to do, in this device's memory: of another's what is fetched ahead, by
// copies that are not ordered loads, would have to be as fresh as the record. record: the doorbell record's index.
enum { DEEP = 64 };
GPU_FN bool is_deep(uint32_t queues, uint32_t far, uint32_t cons, uint32_t record) {
    return (queues <= 2) & (far == 0) & (((record - cons) & 0xffff) >= DEEP);
}

enum { FEW = 2 };
// Serves the QPs `first + bit` of todo, in whatever state they are. keys: in shared memory, or nullptr.
GPU_CALL void serve_each(engine e, const gpu_key *keys, uint32_t first, uint32_t todo) {
    const uint32_t lane = lane_id();
    const bool alone = (todo & (todo - 1)) == 0;
    uint64_t tail = 0; // this lane's QP's
    for (; todo; todo &= todo - 1) {
        const uint32_t b = __ffs(todo) - 1;
        gpu_qp &q = e.w.at(first + b);
        // All loads first, and no branches, as in scan().
        const uint32_t simple = q.simple_cq, ring = q.ring_cq, state = q.state, asked = q.asked, dc = q.dc;
        const uint32_t next = q.next, cons = q.cons, record = mlx5_be32((uint32_t)q.watch_last) & 0xffff;
        const bool plain = (keys != nullptr) & ((simple | ring) != 0) & (state == SOFTNIC_QP_RTS) &
                           (asked != GPU_ASKED) & ((e.a.bell | e.a.timed | e.a.strict) == 0);
        rest left = REST_OTHER;
        if (plain && dc)
            left = serve_single<true>(e, keys, q, record, alone);
        else if (plain && simple && next == GPU_NEXT_ANY && is_deep(e.w.count, q.far, cons, record))
            left = serve_words_deep(e, keys, q, record, alone);
        // Of so few none is beside others: a longer write, or one and its flag.
        const bool few = next == GPU_NEXT_LONG && ((record - cons) & 0xffff) <= FEW;
        for (int tries = 0; plain && !dc && left == REST_OTHER && tries < 2; tries++) {
            const bool single = q.next >= GPU_NEXT_ALONE || (few && tries == 0);
            left = single      ? serve_single<false>(e, keys, q, record, alone)
                   : q.ring_cq ? serve_fast<true>(e, keys, q, record, alone)
                               : serve_fast<false>(e, keys, q, record, alone);
            if (single == (q.next >= GPU_NEXT_ALONE))
                break; // nor is it the other's
        }
        const bool again = left == REST_OTHER ? serve(e, q) : left != REST_NONE;
        if (lane == b)
            tail = e.w.tail;
        __syncwarp();
        if (lane == 0) {
            q.again = again;
            e.w.tail = 0;
        }
        __syncwarp();
    }
    tails_out(e, first + lane, tail);
}

// The time of CQEs. Reading it takes long, so that without a profile it is read in idle passes and behind busy ones, and is
// some microseconds old.
GPU_FN void look_at_clock(engine e) {
    if (!e.a.is_virtual && lane_id() == 0)
        e.w.now_ps = (clock_ns() - e.a.first_ns) * PS_PER_NS;
    __syncwarp();
}

// Looks at 32 QPs, one a lane, and serves those that have been rung, as far as that takes no call. Returns the others.
GPU_FN uint32_t scan(engine e, const gpu_key *keys, uint32_t first) {
    const uint32_t lane = lane_id(), k = first + lane;
    uint64_t value = 0;
    bool rung = false, usual = false;
    if (k < e.w.count) {
        gpu_qp &q = e.w.at(k);
        // All loads first, and no branches: this is what a pass takes.
        const uint64_t watch = q.watch, last = q.watch_last;
        const uint32_t again = q.again, asked = q.asked, simple = q.simple_cq, state = q.state, next = q.next;
        const uint32_t dc = q.dc, cons = q.cons, far = q.far;
        value = e.a.bell ? load64_acquire((const void *)watch) : load32_acquire((const void *)watch);
        rung = (value != last) | (again != 0);
        usual = (asked != GPU_ASKED) & (simple != 0) & (state == SOFTNIC_QP_RTS) & (next == GPU_NEXT_ANY) &
                (dc == 0) & !is_deep(e.w.count, far, cons, mlx5_be32((uint32_t)value) & 0xffff);
        if (rung) {
            q.watch_last = value;
            q.again = 0;
        }
    }
    const uint32_t todo = __ballot_sync(ALL, rung);
    if (todo == 0)
        return 0;
    if (e.a.timed)
        look_at_clock(e);
    __syncwarp();
    if (!keys || e.a.bell || e.a.timed || e.a.strict)
        return todo;
    const uint32_t words = todo & __ballot_sync(ALL, usual);
    if (words == 0)
        return todo;
    const bool alone = (todo & (todo - 1)) == 0;
    uint64_t tail = 0;
    uint32_t more = 0, other = todo & ~words;
    for (uint32_t bits = words; bits; bits &= bits - 1) {
        const uint32_t b = __ffs(bits) - 1;
        const uint32_t record = (uint32_t)__shfl_sync(ALL, value, b);
        const rest left = serve_words<false>(e, keys, e.w.at(first + b), mlx5_be32(record) & 0xffff, alone);
        more |= (uint32_t)(left == REST_MORE) << b;
        other |= (uint32_t)(left == REST_OTHER) << b;
        if (lane == b)
            tail = e.w.tail;
        __syncwarp();
        if (lane == 0)
            e.w.tail = 0;
        __syncwarp();
    }
    if (more >> lane & 1)
        e.w.at(k).again = 1;
    tails_out(e, k, tail);
    look_at_clock(e);
    return other;
}

// Virtual time: passes until one finds nothing, then to the next deadline.
GPU_CALL bool step_on(engine e) {
    __syncwarp();
    const bool worked = e.w.work != 0;
    uint64_t next = ~0ull;
    if (!worked && e.a.timed)
        for (uint32_t k = 0; k < e.w.count; k++) {
            const uint64_t one = next_ps(e, e.w.at(k));
            next = one < next ? one : next;
        }
    const bool jump = !worked && next <= e.a.end_ps && next > e.w.now_ps;
    __syncwarp();
    if (lane_id() == 0) {
        e.w.work = 0;
        if (jump)
            e.w.now_ps = next;
    }
    __syncwarp();
    return worked || jump;
}

// What makes a warp leave its passes.
enum why : uint32_t { WHY_OTHER, WHY_ROUND, WHY_HELP, WHY_LEAVE };
struct passes_state {
    uint32_t first; // QPs being looked at
    uint32_t todo;  // WHY_OTHER: of those to be served otherwise
    uint32_t open;  // WHY_HELP: lanes 0 to 3: jobs
};

static_assert(offsetof(gpu_board, leave) == offsetof(gpu_board, open) + 16, "leave lies behind open[4]");

// The passes of a warp for as long as they need no call, which would cost them registers. `served`: what the last call
// returned has been served.
GPU_CALL why passes(engine e, const gpu_key *keys, bool watches, bool served, passes_state *state) {
    passes_state s = *state;
    for (uint32_t round = 0;; served = false) {
        const uint32_t open = lane_id() < 5 ? load32(&e.a.board->open[0] + lane_id()) : 0; // and leave
        if (!served && (s.todo = scan(e, keys, s.first)) != 0) {
            *state = s;
            return WHY_OTHER;
        }
        s.first += 32;
        if (s.first < e.w.count)
            continue;
        s.first = 0;
        const uint32_t any = __ballot_sync(ALL, open != 0);
        if (watches)
            watch_host(e.a, e.w.watch, any != 0);
        if ((round++ & 15) == 0) {
            look_at_clock(e);
            stir(e);
        }
        if (!(any | e.a.is_virtual))
            continue;
        const bool go = any >> 4 & 1;
        if (go && !e.w.last) { // once more, for what came before it
            __syncwarp();
            if (lane_id() == 0)
                e.w.last = 1;
            __syncwarp();
            continue;
        }
        s.open = open;
        *state = s;
        return e.a.is_virtual ? WHY_ROUND : go ? WHY_LEAVE : WHY_HELP;
    }
}

GPU_FN void run(engine e, const gpu_key *keys) {
    const bool watches = !e.a.is_virtual && blockIdx.x == 0 && threadIdx.x / 32 == e.a.warps - 1;
    passes_state state = {0, 0, 0};
    bool served = false;
    for (;;) {
        const why reason = passes(e, keys, watches, served, &state);
        served = reason == WHY_OTHER;
        if (served) {
            serve_each(e, keys, state.first, state.todo);
            stir(e);
        } else if (reason == WHY_HELP)
            help(e.a.board, e.w.index, state.open);
        else if (reason == WHY_LEAVE || !step_on(e))
            return;
    }
}

// shared: as many bytes as gpu.c's shared_bytes() says, aligned to 16, which every part of it keeps.
static_assert(sizeof(gpu_warp) % 16 == 0 && alignof(gpu_warp) <= 16 && sizeof(gpu_qp) % 16 == 0 &&
                  alignof(gpu_key) == 16,
              "the keys in shared memory, behind the warps and any number of QPs, are loaded by 16 bytes");
static_assert(sizeof(gpu_args) % 16 == 0, "the warps lie behind the arguments");

// The arguments too are looked at in shared memory: where a launch puts them they are reached through the first-level cache,
// which every poll of a doorbell empties, so that each look at one would be a way to memory.
GPU_FN void engine_block(const gpu_args &given, void *shared) {
    const uint32_t warp = threadIdx.x / 32;
    gpu_args &a = *(gpu_args *)shared;
    for (uint32_t i = threadIdx.x; i < sizeof a / 8; i += blockDim.x)
        ((uint64_t *)&a)[i] = ((const uint64_t *)&given)[i];
    __syncthreads();
    gpu_warp *warps = (gpu_warp *)(&a + 1);
    gpu_qp *qps = (gpu_qp *)(warps + a.warps);
    const uint32_t stride = a.warps * gridDim.x, first = warp * gridDim.x + blockIdx.x;
    const uint32_t rows = (a.qp_count + stride - 1) / stride;
    gpu_key *keys = (gpu_key *)(qps + rows * a.warps);
    if (a.keys_shared) {
        const uint64_t *from = (const uint64_t *)a.keys;
        uint64_t *to = (uint64_t *)keys;
        for (uint32_t i = threadIdx.x; i < (a.key_mask + 1) * (sizeof(gpu_key) / 8); i += blockDim.x)
            to[i] = from[i];
    }
    __syncthreads();
    if (threadIdx.x == 0)
        store32(&a.mail->here[blockIdx.x], 1);
    gpu_warp &w = warps[warp];
    if (lane_id() == 0) {
        w.now_ps = a.now_ps;
        w.tail = 0;
        w.dirty = w.work = w.told = w.last = 0;
        w.watch = gpu_watcher{0, 0, 0, 0, 0};
        w.index = first;
        w.stride = stride;
        w.step = a.warps;
        w.count = first < a.qp_count ? (a.qp_count - first + stride - 1) / stride : 0;
        w.qps = qps + warp;
    }
    __syncwarp();
    load_share(a, w);
    run(engine{a, a.keys_shared ? keys : a.keys, w}, a.keys_shared ? keys : nullptr);
    store_share(a, w);
    if (a.is_virtual && lane_id() == 0) {
        a.mail->now_ps = w.now_ps;
        a.mail->first_ns = clock_ns();
    }
}

} // namespace softnic_gpu

#endif
