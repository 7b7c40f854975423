// Meeting point of all ranks inside a kernel, made of the workload's own signals.
//
// Every rank owns one 8-byte word per rank; rank r adds 1 to word r of every other rank and waits until the
// others have done so here. One word per source, not one sum: a fast rank that is a barrier ahead must not be
// taken for a slow one. Each call posts nranks - 1 signals.
#ifndef GIC_WORKLOADS_BARRIER_CUH
#define GIC_WORKLOADS_BARRIER_CUH

#include "../backends/abi/driver.cuh"

#include <vector>

#define GIC_TRY(call)                                                                                        \
    do {                                                                                                     \
        if (int gic_status_ = (call))                                                                        \
            return gic_status_;                                                                              \
    } while (0)

namespace gic {

// GridBarrier for many agents: on a GPU those of a block meet in hardware, and one thread of each block goes to the others
// of the launch. A thousand warps that count one word up and then poll it are in each other's way, and in that of those
// that still work. Called by every lane of every agent.
//
// Not to be used where an agent may leave the kernel without an error while others still meet.
struct BlockBarrier {
    GridBarrier grid;

    GIC_DEVICE int wait(const Self &self, const Env &env) { return meet(&grid, self, env); }

  private:
#if defined(__CUDACC__)
    static GIC_COLD int meet(GridBarrier *grid, Self self, Env env) {
        __shared__ int status;
        // A thread that has left the kernel is not waited for. Thread 0 is of the block's lowest agent (kernel.cuh);
        // without it nobody goes to the other blocks.
        const bool led = __syncthreads_or(threadIdx.x == 0);
        if (threadIdx.x == 0)
            status = cross(grid, self.agents < gridDim.x ? self.agents : gridDim.x, env);
        __syncthreads();
        return led ? status : (int)ERR_CANCELED;
    }
    // One thread of each of so many blocks. Nothing but the word is looked at for as long as a round of a workload may
    // take: who sleeps or reads host memory meanwhile is late, and the others then wait for him in the next round.
    static GIC_DEVICE int cross(GridBarrier *grid, uint32_t blocks, const Env &env) {
        constexpr uint32_t polls_per_spin = 64;
        int failure = OK;
        const uint32_t gen = load_acquire<Scope::device>(&grid->generation);
        fence_acq_rel<Scope::device>();
        if (fetch_add<Scope::device>(&grid->arrived, 1u) == blocks - 1) {
            store_relaxed<Scope::device>(&grid->arrived, 0u);
            store_release<Scope::device>(&grid->generation, gen + 1);
        } else {
            Spin spin(env);
            for (uint32_t polls = 1; load_acquire<Scope::device>(&grid->generation) == gen; polls++)
                if (polls % polls_per_spin == 0 && (failure = spin.failed()) != OK)
                    break;
        }
        fence_acq_rel<Scope::device>();
        return failure;
    }
#else
    static int meet(GridBarrier *grid, const Self &self, const Env &env) { return grid->wait(self, env); }
#endif
};

class RankBarrier {
  public:
    // `words`: offset of nranks words, zero before the launch, the same on every rank.
    GIC_DEVICE explicit RankBarrier(uint64_t words) : words_(words) {}

    // Called by one agent (all its lanes). What any rank's calling agent put here before its call is visible
    // to this agent afterwards.
    template <class H> GIC_DEVICE int wait(const H &h, typename H::Agent &agent) {
        epoch_++;
        for (uint32_t i = 1; i < h.nranks; i++)
            GIC_TRY(agent.signal((h.rank + i) % h.nranks, words_ + 8ull * h.rank, 1));
        GIC_TRY(agent.ring());
        for (uint32_t i = 1; i < h.nranks; i++)
            GIC_TRY(agent.wait(words_ + 8ull * ((h.rank + i) % h.nranks), epoch_));
        return OK;
    }

    // Called by every agent of the launch: all agents of all ranks have arrived. Puts of other agents than 0
    // are visible at their target only if those agents completed them before.
    template <class H, class Barrier>
    GIC_DEVICE int wait_all(const H &h, typename H::Agent &agent, const Self &self, Barrier *grid) {
        GIC_TRY(grid->wait(self, h.env));
        if (self.agent == 0)
            GIC_TRY(wait(h, agent));
        return grid->wait(self, h.env);
    }

  private:
    uint64_t words_, epoch_ = 0;
};

// Values of both clocks at one moment; a loop's two stamps give the tick rate of clock64 over it.
struct Stamp {
    uint64_t clock, timer;
    static GIC_DEVICE Stamp now() { return Stamp{clock64(), globaltimer()}; }
};

// A stretch of globaltimer on one agent; all zero: the agent was not used.
struct Interval {
    uint64_t begin, end;
};

// Stamps one end of a launch's clock measurement, on agent 0 alone.
GIC_DEVICE void stamp(const Self &self, Stamp *s) {
    if (self.agent == 0 && self.lane == 0)
        *s = Stamp::now();
}

// From here on the host alone.

// From the earliest begin to the latest end of n agents, ns.
inline double union_ns(const std::vector<Interval> &spans, size_t first, size_t n) {
    uint64_t begin = UINT64_MAX, end = 0;
    for (size_t i = first; i < first + n; i++) {
        if (spans[i].end == 0)
            continue;
        begin = spans[i].begin < begin ? spans[i].begin : begin;
        end = spans[i].end > end ? spans[i].end : end;
    }
    return end > begin ? (double)(end - begin) : 0;
}

// A stretch on one thread by both clocks.
struct Loop {
    Stamp begin, end;

    bool ran() const { return end.timer > begin.timer && end.clock > begin.clock; }
    double ticks_per_ns() const {
        return (double)(end.clock - begin.clock) / (double)(end.timer - begin.timer);
    }
};

// The effective clock of a launch, in Hz of clock64 by globaltimer: what agent 0 saw of both, from its first to its
// last instruction.
inline void add_clock(const Loop &launch, Results &out) {
    if (launch.ran())
        out.add("clock_hz", "1", {launch.ticks_per_ns() * 1e9});
}

} // namespace gic

#endif
