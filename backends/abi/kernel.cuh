// The CUDA entry of a workload on a handle, and its launch. Compiled by nvcc only.
//
// How agents lie on the device: agent a is a warp of block a % blocks, and there is one block per multiprocessor
// until every multiprocessor has one (gpu_grid: one less for each that the NIC's engine fills, where a multiprocessor holds
// but one block of the kernel); a thread agent (lanes 1) has its warp to itself, the other 31 lanes leave
// at once, as do those that an agent of up to 31 lanes does not use; an agent of more than 32 lanes is a block. So up
// to as many agents as multiprocessors each have one of their own (the paper's "SMs" column equals its agents), and
// more share them as warps, never as diverging threads of one warp.
//
// With Gpu::together all are in one block instead: a warp each, or, of agents that are a lane, the lanes of full warps,
// which then diverge.
//
// Which multiprocessor agent 0 has is the device's choice, or with Gpu::placement that of the caller: then there is a
// block on every multiprocessor, and those that have agents are counted from the one that is asked for. An engine of the
// NIC may fill that one: then agent 0 runs elsewhere, which is refused unless Gpu::placement_near.
#ifndef GIC_ABI_KERNEL_CUH
#define GIC_ABI_KERNEL_CUH

#include "cuda_check.h"

#if defined(__CUDACC__)

namespace gic {

// What a kernel tells the host beside its samples: one status per agent, the multiprocessor of agent 0, and through
// the launch's stop word, that an agent has failed: those that wait for it need not wait for their deadline, at
// which its reason would be lost among theirs.
struct KernelReport {
    int32_t *status;
    uint32_t *multiprocessor;
    volatile uint32_t *stop;
    uint32_t blocks; // that have agents
    uint32_t packed; // agents are lanes of full warps
    // With a placement: a word per block of the launch, 1 where a block has its multiprocessor's, and one that counts
    // the blocks that have looked. All zero at first; nullptr without a placement.
    uint32_t *claims;
    uint32_t first; // multiprocessor that agent 0 is to have
};

// A handle may keep something in the memory of the block that all agents of its launch are in (the adapter sees to that,
// by Gpu::together). Then it has `static constexpr bool block_memory = true`,
//   void enter_block() const             called by all threads of the block before the first agent does anything
//   void leave_block(agents) const       by lane 0 of each of so many agents behind the last thing it does
template <class H, class = void> struct BlockMemory : std::false_type {};
template <class H> struct BlockMemory<H, std::enable_if_t<H::block_memory>> : std::true_type {};

GIC_DEVICE uint32_t multiprocessor() {
    uint32_t sm;
    asm("mov.u32 %0, %%smid;" : "=r"(sm));
    return sm;
}

// Which of the launch's blocks this one is, counted from the multiprocessor that is asked for. A block whose
// multiprocessor has another one (an engine may fill one) takes what is left over when all have looked.
GIC_DEVICE uint32_t placed_block(const KernelReport &r, const Env &env) {
    __shared__ uint32_t place;
    if (threadIdx.x == 0) {
        uint32_t *claims = r.claims, *looked = r.claims + gridDim.x, at = multiprocessor() % gridDim.x;
        const bool own = atomicExch(&claims[at], 1u) == 0;
        __threadfence();
        atomicAdd(looked, 1u);
        if (!own) {
            for (Spin spin(env); load_acquire<Scope::device>(looked) < gridDim.x;)
                if (spin.failed())
                    break; // the kernel's own waits will say why
            for (at = 0; at < gridDim.x && atomicExch(&claims[at], 1u) != 0;)
                at++;
        }
        place = (at + gridDim.x - r.first) % gridDim.x;
    }
    __syncthreads();
    return place;
}

} // namespace gic

template <class W, class H>
__global__ void gic_kernel(const __grid_constant__ H h, const __grid_constant__ typename W::Params p,
                           uint32_t agents, gic::KernelReport report) {
    const uint32_t block = report.claims ? gic::placed_block(report, h.env) : blockIdx.x;
    const uint32_t warp = report.packed ? threadIdx.x : h.lanes > 32 ? 0 : threadIdx.x / 32;
    const uint32_t lane = report.packed ? 0 : threadIdx.x - 32 * warp;
    const gic::Self self{warp * report.blocks + block, agents, lane, h.lanes};
    if (block >= report.blocks)
        return;
    if constexpr (gic::BlockMemory<H>::value)
        h.enter_block();
    if (self.agent >= agents || lane >= h.lanes)
        return;
    if (self.agent == 0 && self.lane == 0)
        *report.multiprocessor = gic::multiprocessor();
    int rc = W::template kernel<H>(h, self, p);
    if (rc == gic::OK) {
        typename H::Agent agent(h, self);
        rc = agent.quiet();
    }
    if constexpr (gic::BlockMemory<H>::value)
        if (self.lane == 0)
            h.leave_block(agents);
    if (rc != gic::OK && self.lane == 0) {
        report.status[self.agent] = rc;
        *report.stop = 1;
    }
}

namespace gic {

// Blocks and threads for so many agents, all of which must be resident at once, as must those of the other ranks
// that share the device: agents wait for one another.
template <class K> int gpu_shape(Gpu &gpu, K kernel, uint32_t agents, uint32_t lanes, GpuShape *shape_p) {
    if (lanes == 0 || lanes > 1024 || (lanes > 32 && lanes % 32 != 0))
        return fail(-EINVAL, "%u lanes per agent: want at most 32, or a multiple of it up to 1024", lanes);
    GpuShape s{};
    if (gpu.together && (lanes > 32 || (gpu.together == 2 && lanes != 1)))
        return fail(-ENOTSUP, "placement=%s: an agent has %u lanes, want %s",
                    gpu.together == 1 ? "warps" : "lanes", lanes, gpu.together == 1 ? "at most 32" : "1");
    cudaFuncAttributes attr;
    GIC_CUDA(cudaFuncGetAttributes(&attr, kernel));
    s.registers = (uint32_t)attr.numRegs;
    s.local_bytes = (uint32_t)attr.localSizeBytes;
    cudaError_t asked = cudaSuccess;
    const auto per_sm = [&](uint32_t threads) {
        int blocks = 0;
        if (threads <= (uint32_t)attr.maxThreadsPerBlock) {
            const auto e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, (int)threads, 0);
            asked = e == cudaSuccess ? asked : e;
        }
        return (uint32_t)blocks;
    };
    const uint32_t all = gpu.multiprocessors(), left = gpu.engines_leave();
    bool resident;
    if (gpu.together || lanes > 32) {
        s.blocks = gpu.together ? 1 : agents;
        s.threads = gpu.together == 1 ? 32 * agents : gpu.together ? (agents + 31) / 32 * 32 : lanes;
        resident = per_sm(s.threads) * left >= s.blocks * gpu.sharers();
    } else {
        const GpuGrid grid = gpu_grid(gpu, agents, per_sm);
        s.blocks = grid.blocks;
        s.threads = grid.threads;
        resident = grid.resident;
    }
    const uint32_t on_one = per_sm(s.threads);
    GIC_CUDA(asked);
    if (gpu.together && on_one == 0)
        return fail(-ENOTSUP,
                    "placement=%s: %u agents in one block are %u threads of %u registers, more than a %s "
                    "multiprocessor holds; want fewer threads%s",
                    gpu.together == 1 ? "warps" : "lanes", agents, s.threads, s.registers, gpu.name().c_str(),
                    gpu.together == 1 && lanes == 1 ? ", or placement=lanes" : "");
    if (gpu.placement > all)
        return fail(-ENOTSUP, "placement=%u: one %s has %u multiprocessors", gpu.placement,
                    gpu.name().c_str(), all);
    if (gpu.placement && s.blocks > all)
        return fail(-ENOTSUP, "placement=%u: %u blocks, but one %s has %u multiprocessors", gpu.placement,
                    s.blocks, gpu.name().c_str(), all);
    if (gpu.placement) // a block on every one
        resident = on_one * left >= all * gpu.sharers();
    if (!resident)
        return fail(-ENOTSUP,
                    "%u agents of this kernel (%u registers per thread) and those of %u ranks are not "
                    "resident at once on one %s, of whose multiprocessors the NIC's engine fills %u",
                    agents, s.registers, gpu.sharers(), gpu.name().c_str(), gpu.engines());
    *shape_p = s;
    return 0;
}

template <class W, class H>
int launch_agents(Gpu &gpu, const H &h, const typename W::Params &p, uint32_t agents,
                  const volatile uint32_t *stop) {
    GpuShape shape;
    if (int rc = gpu_shape(gpu, gic_kernel<W, H>, agents, h.lanes, &shape))
        return rc;
    Arena mem(&gpu);
    KernelReport report{mem.array<int32_t>(agents),
                        mem.array<uint32_t>(1),
                        gpu.arm(),
                        shape.blocks,
                        gpu.together == 2,
                        nullptr,
                        0};
    uint32_t blocks = shape.blocks;
    if (gpu.placement) {
        blocks = gpu.multiprocessors();
        report.claims = mem.array<uint32_t>(blocks + 1);
        report.first = gpu.placement - 1;
    }
    gic_kernel<W, H><<<blocks, shape.threads, 0, (cudaStream_t)gpu.stream()>>>(h, p, agents, report);
    GIC_CUDA(cudaGetLastError());
    if (int rc = gpu.wait(stop, h.env.timeout_ns))
        return rc;
    shape.multiprocessor = mem.download(report.multiprocessor, 1)[0];
    gpu.shape = shape;
    const std::vector<int32_t> status = mem.download(report.status, agents);
    uint32_t worst = 0;
    for (uint32_t i = 1; i < agents; i++)
        if (worse_status(status[worst], status[i]) != status[worst])
            worst = i;
    if (int rc = status[worst])
        return fail(rc, "device thread %u: %s", worst, status_text(rc));
    if (gpu.placement && !gpu.placement_near && shape.multiprocessor != report.first)
        return fail(-ENOTSUP, "placement=%u: no block came to multiprocessor %u, agent 0 ran on %u",
                    gpu.placement, report.first, shape.multiprocessor);
    return OK;
}

template <class W, class H>
int launch_gpu(Gpu &gpu, const H &h, const typename W::Params &p, uint32_t agents,
               const volatile uint32_t *stop) {
    if constexpr (OwnLaunch<W>::value)
        return W::template launch<H>(gpu, h, p, agents, stop);
    else
        return launch_agents<W>(gpu, h, p, agents, stop);
}
template <class W>
int launch_gpu_alone(Gpu &gpu, const typename W::Params &p, const volatile uint32_t *stop) {
    return W::launch_alone(gpu, p, stop);
}

} // namespace gic
#endif

#endif
