// What a post costs on a GPU, beside a bare posting loop: the same stores to the same kinds of places in the same
// order, from constants, with nothing looked up, counted or checked. Nobody consumes: a launch posts fewer WQEs than
// the ring holds. Every figure is taken on every fourth multiprocessor (which one a queue's memory is near to changes it by
// half), and both loops on the same ones, one after the other; printed are medians and the span over them.
//
//   make cuda && build/cuda/test/gda_bench
#include "minigda/gda_replay.cuh"

#include "minigda/gpu_bench.cuh"

using namespace gpu_bench;

namespace {

constexpr uint32_t depth = 4096, slots = 64, stride = 64;

struct Place {
    bool host; // queue and doorbell record; the doorbell is in host memory always
    gda_shared h;
    gda_queue queue; // as it is before a launch
};

Place place(bool host) {
    Place p{};
    p.host = host;
    gda_queue q{};
    q.blocks = (uint8_t *)memory(host, depth * 64);
    q.dbr = (uint32_t *)memory(host, 64);
    q.bell = (uint64_t *)memory(true, 64);
    q.cqe = (const struct mlx5_cqe *)memory(true, 64);
    q.remote = 0x7f0000000000;
    q.qpn_word = mlx5_ctrl_word1(0x123, 0);
    q.rkey_word = mlx5_be32(0x456);
    q.qpn = 0x123;
    q.depth = depth;
    q.mask = depth - 1;
    q.window = (uint8_t *)memory(false, slots * stride);
    q.lkey_word = mlx5_be32(0x789);
    p.h.nranks = 1;
    p.h.window = q.window;
    p.h.env = gic::Env{(const volatile uint32_t *)memory(true, 64), 1000000000};
    p.h.lanes = 1;
    p.h.window_key = 0x789;
    p.h.queues = (gda_queue *)memory(false, sizeof q);
    p.queue = q;
    p.h.cursors = (gda_cursor *)memory(false, sizeof(gda_cursor));
    p.h.choices = gda_choices{gda_order::gpu_fence, gda_scope::qp, 1, 1, 1, 28, 0, 28, GDA_PUT_MAX, 0};
    return p;
}

template <gda_order O, gda_sharing S>
__global__ void post(const __grid_constant__ gda_handle<O, S> h, uint32_t sm, uint64_t *ticks, int *status) {
    if (elsewhere(sm, ticks) || threadIdx.x >= (gda_lanes(S) ? 32 : 1))
        return;
    constexpr uint32_t lanes = gda_lanes(S) ? 32 : 1; // a parameter would be loaded again for every post
    const gic::Self self{0, 1, threadIdx.x, lanes};
    typename gda_handle<O, S>::Agent agent(h, self);
    GIC_ROLLED
    for (uint32_t lap = 0; lap < 2; lap++) {
        const uint32_t n = lap ? posts : warm;
        uint64_t at = 0;
        const uint64_t from = gic::clock64();
        GIC_ROLLED
        for (uint32_t i = 0; i < n; i += lanes) {
            const int s = agent.put_each(0, lanes, [&](uint32_t lane) {
                return gic::Message{at + lane * stride, at + lane * stride, 8};
            });
            if (s != gic::OK) { // at once, as in a workload
                *status = s;
                return;
            }
            at = at == (slots / 2) * stride || lanes > 1 ? 0 : at + stride;
        }
        if (threadIdx.x == 0)
            *ticks = gic::clock64() - from;
    }
}

// The same posts, from a program.
template <gda_order O>
__global__ void replay(const __grid_constant__ gda_replay_handle<O> h, uint32_t sm, uint64_t *ticks,
                       int *status) {
    if (elsewhere(sm, ticks) || threadIdx.x)
        return;
    gda_replay_agent<O> agent(h, gic::Self{0, 1, 0, 1});
    GIC_ROLLED
    for (uint32_t lap = 0; lap < 2; lap++) {
        const uint32_t n = lap ? posts : warm;
        uint64_t at = 0;
        const uint64_t from = gic::clock64();
        GIC_ROLLED
        for (uint32_t i = 0; i < n; i++) {
            const int s = agent.put(0, at, at, 8);
            if (s != gic::OK) {
                *status = s;
                return;
            }
            at = at == (slots / 2) * stride ? 0 : at + stride;
        }
        *ticks = gic::clock64() - from;
    }
}

// `agents` of one block share the queue, as warps or as the lanes of full warps: until the last one is done.
template <gda_sharing S>
__global__ void share(const __grid_constant__ gda_handle<gda_order::runtime, S> h, uint32_t agents,
                      bool packed, uint32_t sm, uint64_t *ticks, int *status) {
    if (elsewhere(sm, ticks))
        return;
    if constexpr (gda_in_block(S))
        h.enter_block();
    __shared__ uint64_t from;
    __shared__ uint32_t left;
    if (threadIdx.x == 0) {
        left = 0;
        from = gic::clock64();
    }
    __syncthreads();
    const uint32_t agent_number = packed ? threadIdx.x : threadIdx.x / 32;
    if (agent_number >= agents || (!packed && threadIdx.x % 32))
        return;
    gda_agent<gda_order::runtime, S> agent(h, gic::Self{agent_number, agents, 0, 1});
    uint64_t at = 0;
    GIC_ROLLED
    for (uint32_t i = 0; i < posts / agents; i++) {
        const int s = agent.put(0, at, at, 8);
        if (s != gic::OK) {
            *status = s;
            return;
        }
        at = at == (slots / 2) * stride ? 0 : at + stride;
    }
    if (atomicAdd(&left, 1u) == agents - 1)
        *ticks = gic::clock64() - from;
}

// By pointer, batch a power of two.
template <gda_order O, bool VALUE, uint32_t lanes>
__global__ void bare(const gda_queue *queue, uint8_t *window, uint32_t key, uint32_t batch, uint32_t sm,
                     uint64_t *ticks) {
    if (elsewhere(sm, ticks) || threadIdx.x >= lanes)
        return;
    const gda_place q{queue->blocks, depth - 1, queue->qpn_word, queue->rkey_word, queue->remote};
    uint32_t *dbr = queue->dbr;
    uint64_t *bell = queue->bell;
    uint32_t next = 0;
    GIC_ROLLED
    for (uint32_t lap = 0; lap < 2; lap++) {
        const uint32_t n = lap ? posts : warm;
        uint64_t at = 0;
        const uint64_t from = gic::clock64();
        GIC_ROLLED
        for (uint32_t i = 0; i < n; i += lanes) {
            const uint64_t here = at + threadIdx.x * stride;
            if (VALUE)
                gda_write_value(q, next + threadIdx.x, gda_flags(MLX5_CTRL_CQ_UPDATE), here,
                                *(const uint64_t *)(window + here), 8);
            else
                gda_write_pointer(q, next + threadIdx.x, gda_flags(MLX5_CTRL_CQ_UPDATE), MLX5_OP_RDMA_WRITE,
                                  here, 8, key, (uint64_t)(uintptr_t)(window + here));
            next += lanes;
            if (lanes > 1)
                __syncwarp();
            if ((next & (batch - 1)) == 0 && threadIdx.x == 0)
                gda_announce<O>(dbr, bell, next, q.qpn_word);
            at = at == (slots / 2) * stride || lanes > 1 ? 0 : at + stride;
        }
        if (threadIdx.x == 0)
            *ticks = gic::clock64() - from;
    }
}

struct Figure {
    std::vector<double> ns; // by multiprocessor
    int registers;
};

template <class K, class L>
Figure scan(const Bench &bench, const char *name, const Place &p, K kernel, L launch) {
    Figure f;
    cudaFuncAttributes attr;
    MUST(cudaFuncGetAttributes(&attr, kernel));
    f.registers = attr.numRegs;
    if (attr.localSizeBytes)
        printf("  %s: %zu bytes of local memory per thread\n", name, attr.localSizeBytes);
    f.ns = bench.scan(name, [&](uint32_t sm, uint64_t *ticks) {
        MUST(cudaMemset(p.h.cursors, 0, sizeof(gda_cursor)));
        MUST(cudaMemcpy(p.h.queues, &p.queue, sizeof p.queue, cudaMemcpyHostToDevice));
        launch(sm, ticks);
    });
    return f;
}

template <gda_order O, gda_sharing S>
Figure measure(const Bench &bench, const char *name, Place p, uint32_t batch, bool value, uint32_t lanes) {
    p.h.choices.order = O == gda_order::runtime ? gda_order::gpu_fence : O;
    p.h.choices.batch = batch;
    p.h.choices.inline_max = p.h.choices.inline_one = value ? 28 : 0;
    p.queue.by_value = value;
    p.h.lanes = lanes;
    gda_handle<O, S> h{};
    static_cast<gda_shared &>(h) = p.h;
    return scan(bench, name, p, post<O, S>, [&](uint32_t sm, uint64_t *ticks) {
        post<O, S><<<2 * bench.sms, 32>>>(h, sm, ticks, bench.status);
    });
}
template <gda_order O, uint32_t lanes>
Figure measure_bare(const Bench &bench, const char *name, Place p, uint32_t batch, bool value) {
    auto kernel = value ? bare<O, true, lanes> : bare<O, false, lanes>;
    return scan(bench, name, p, kernel, [&](uint32_t sm, uint64_t *ticks) {
        kernel<<<2 * bench.sms, 32>>>(p.h.queues, p.h.window, p.h.window_key, batch, sm, ticks);
    });
}

// As gda_replay.h makes it of a trace of these posts.
template <gda_order O>
Figure measure_replay(const Bench &bench, const char *name, Place p, uint32_t batch, bool value) {
    static_assert(warm + posts <= depth, "nothing waits for a slot");
    std::vector<gda_replay_item> items;
    for (uint32_t i = 0; i < warm + posts; i++) {
        const bool ring = (i + 1) % batch == 0;
        items.push_back(
            {i, 0, 0,
             gda_replay_kind(gda_replay_part::payload,
                             GDA_REPLAY_LAST | GDA_REPLAY_WHOLE | GDA_REPLAY_SELF | GDA_REPLAY_SHORT |
                                 (ring ? GDA_REPLAY_RING : 0) | (value ? GDA_REPLAY_INLINE : 0),
                             MLX5_CTRL_CQ_UPDATE, 1)});
    }
    items.push_back({0, 0, 0, gda_replay_kind(gda_replay_part::end, 0, 0, 0)});
    // The agent comes to the queue with its first item, which goes the long way.
    items[0].kind &= ~gda_replay_kind({}, GDA_REPLAY_SHORT, 0, 0);
    p.h.landings = (gda_landing *)memory(false, sizeof(gda_landing));
    gda_replay_handle<O> h{};
    static_cast<gda_shared &>(h) = p.h;
    const auto states = (gda_replay_state *)memory(false, sizeof(gda_replay_state));
    const auto program = (gda_replay_item *)memory(false, items.size() * sizeof(gda_replay_item));
    MUST(cudaMemcpy(program, items.data(), items.size() * sizeof items[0], cudaMemcpyHostToDevice));
    h.plan = {states,
              nullptr,
              0,
              1,
              program,
              nullptr,
              (const uint32_t *)memory(false, 64),
              (const uint8_t *)memory(false, 64)};
    return scan(bench, name, p, replay<O>, [&](uint32_t sm, uint64_t *ticks) {
        MUST(cudaMemset(states, 0, sizeof *states));
        replay<O><<<2 * bench.sms, 32>>>(h, sm, ticks, bench.status);
    });
}

void print(const char *name, const Place &p, uint32_t batch, bool value, uint32_t lanes, const Figure &f,
           const Figure &b) {
    std::vector<double> ratio;
    for (size_t i = 0; i < f.ns.size(); i++)
        ratio.push_back(b.ns[i] / f.ns[i]);
    printf("%-31s %-4s %-7s %3u %3u %8.1f (%6.1f..%6.1f) %3d %8.1f %3d %6.3f (%.3f..%.3f) %7.2f\n", name,
           p.host ? "host" : "gpu", value ? "inline" : "pointer", batch, lanes, median(f.ns), least(f.ns),
           most(f.ns), f.registers, median(b.ns), b.registers, median(ratio), least(ratio), most(ratio),
           1e3 / median(f.ns));
}
template <gda_order O, gda_sharing S>
void row(const Bench &bench, const char *name, const Place &p, uint32_t batch, bool value) {
    constexpr gda_order order = O == gda_order::runtime ? gda_order::gpu_fence : O;
    constexpr uint32_t lanes = gda_lanes(S) ? 32 : 1;
    const Figure b = measure_bare<order, lanes>(bench, name, p, batch, value);
    print(name, p, batch, value, lanes, measure<O, S>(bench, name, p, batch, value, lanes), b);
}
template <gda_sharing S>
void share_row(const Bench &bench, const char *name, Place p, uint32_t agents, bool packed, uint32_t batch) {
    const Figure b = measure_bare<gda_order::gpu_fence, 1>(bench, name, p, batch, false);
    p.h.choices.batch = batch;
    p.h.choices.inline_max = p.h.choices.inline_one = 0;
    p.queue.by_value = false;
    p.h.cursors = (gda_cursor *)memory(false, agents * sizeof(gda_cursor));
    gda_handle<gda_order::runtime, S> h{};
    static_cast<gda_shared &>(h) = p.h;
    const Figure f = scan(bench, name, p, share<S>, [&](uint32_t sm, uint64_t *ticks) {
        MUST(cudaMemset(p.h.cursors, 0, agents * sizeof(gda_cursor)));
        share<S><<<2 * bench.sms, packed ? (agents + 31) / 32 * 32 : 32 * agents>>>(h, agents, packed, sm,
                                                                                    ticks, bench.status);
    });
    print(name, p, batch, false, agents, f, b);
    MUST(cudaFree(p.h.cursors));
}
template <gda_order O>
void replay_row(const Bench &bench, const char *name, const Place &p, uint32_t batch, bool value) {
    const Figure b = measure_bare<O, 1>(bench, name, p, batch, value);
    print(name, p, batch, value, 1, measure_replay<O>(bench, name, p, batch, value), b);
}

} // namespace

int main() {
    const Bench bench("8 B puts on one queue, doorbell in host memory; bare: the same stores alone");
    printf("%-31s %-4s %-7s %3s %3s %25s %3s %8s %3s %21s %7s\n", "", "ring", "payload", "B", "l.",
           "ns per post", "reg", "bare ns", "reg", "bare / this", "M/s");
    const Place gpu = place(false), host = place(true);
    using o = gda_order;
    using s = gda_sharing;
    for (const Place &p : {gpu, host})
        for (bool value : {false, true}) {
            if (p.host && value)
                continue;
            row<o::none, s::exclusive>(bench, "none", p, 1, value);
            row<o::gpu_fence, s::exclusive>(bench, "gpu-fence", p, 1, value);
            row<o::gpu_fence_dbr, s::exclusive>(bench, "gpu-fence+dbr", p, 1, value);
            row<o::gpu_release, s::exclusive>(bench, "gpu-release", p, 1, value);
            row<o::threadfence, s::exclusive>(bench, "threadfence", p, 1, value);
            row<o::sys_release, s::exclusive>(bench, "sys-release", p, 1, value);
            row<o::sys_fence, s::exclusive>(bench, "sys-fence", p, 1, value);
        }
    for (bool value : {false, true}) {
        row<o::gpu_fence, s::exclusive>(bench, "one thread", gpu, 16, value);
        row<o::sys_release, s::exclusive>(bench, "one thread, sys-release", gpu, 16, value);
        row<o::none, s::exclusive>(bench, "one thread, none", gpu, 16, value);
        row<o::gpu_fence, s::bare>(bench, "the agent without bookkeeping", gpu, 1, value);
        row<o::gpu_fence, s::bare>(bench, "the agent without bookkeeping", gpu, 16, value);
        row<o::gpu_fence, s::spare>(bench, "nothing kept in registers", gpu, 1, value);
        row<o::gpu_fence, s::spare>(bench, "nothing kept in registers", gpu, 16, value);
        row<o::runtime, s::exclusive>(bench, "one thread, order a branch", gpu, 1, value);
        row<o::runtime, s::exclusive>(bench, "one thread, order a branch", gpu, 16, value);
        row<o::gpu_fence, s::group>(bench, "one warp, own queue", gpu, 32, value);
        row<o::gpu_fence, s::bare_group>(bench, "the same without bookkeeping", gpu, 32, value);
        row<o::runtime, s::warp>(bench, "one warp, shared queue", gpu, 32, value);
        row<o::runtime, s::lock>(bench, "lock", gpu, 1, value);
        row<o::runtime, s::handoff>(bench, "handoff", gpu, 1, value);
        replay_row<o::gpu_fence>(bench, "replay", gpu, 1, value);
        replay_row<o::gpu_fence>(bench, "replay", gpu, 16, value);
        replay_row<o::sys_release>(bench, "replay, sys-release", gpu, 1, value);
    }
    replay_row<o::sys_release>(bench, "replay, sys-release", host, 1, false);
    // Agents of one block; l.: how many. (A launch of many warps has room for 16 of them: registers.)
    for (bool packed : {false, true})
        for (uint32_t agents : {1u, 2u, 16u, 32u, 256u}) {
            if (!packed && agents > 16)
                continue;
            share_row<s::lock>(bench, packed ? "lock, gpu, lanes" : "lock, gpu, warps", gpu, agents, packed,
                               1);
            share_row<s::block_lock>(bench, packed ? "lock, block, lanes" : "lock, block, warps", gpu, agents,
                                     packed, 1);
            share_row<s::handoff>(bench, packed ? "handoff, gpu, lanes" : "handoff, gpu, warps", gpu, agents,
                                  packed, 32);
            share_row<s::block_handoff>(bench, packed ? "handoff, block, lanes" : "handoff, block, warps",
                                        gpu, agents, packed, 32);
        }
    return 0;
}
