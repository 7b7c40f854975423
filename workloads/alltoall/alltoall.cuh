// alltoall: every rank puts its part of a byte matrix to every rank, and knows when all parts for it are
// here.
#ifndef GIC_WORKLOADS_ALLTOALL_CUH
#define GIC_WORKLOADS_ALLTOALL_CUH

#include "../../backends/abi/driver.cuh"
#include "../barrier.cuh"
#include "../window/window.cuh"

struct alltoall_workload {
    static constexpr const char *name = "alltoall";

    // One rank as seen from this one, this one included.
    struct Peer {
        uint64_t bytes, src, dst; // what it gets: from my window at src to its window at dst
        uint64_t here, room;      // where its part arrives here, padding included
    };

    struct Params {
        uint32_t iterations, warmup, agents;
        uint64_t barrier, arrived; // signal words; arrived: one per source rank
        const Peer *peers;
        gic::GridBarrier *grid;
        gic::Interval *spans; // iteration * agents + agent
        gic::Loop *launch;
    };

    static int parse(gic::Inputs &in, gic::Arena &mem, uint32_t nranks, Params *p) {
        in.threads = in.u32("threads");
        p->agents = in.threads; // with more lanes fewer of them are used
        p->iterations = in.u32("iterations");
        p->warmup = in.u32("warmup");
        p->barrier = in.u64("barrier");
        p->arrived = in.u64("arrived");
        size_t count = 0;
        const Peer *peers = in.table<Peer>("peers", &count);
        if (int rc = in.check())
            return rc;
        if (count != nranks)
            return gic::fail(-EINVAL, "alltoall: table \"peers\" has %zu entries for %u ranks", count,
                             nranks);
        p->peers = mem.upload(peers, count);
        p->grid = mem.array<gic::GridBarrier>(1);
        p->launch = mem.array<gic::Loop>(1);
        p->spans = mem.array<gic::Interval>((size_t)p->iterations * p->agents);
        return 0;
    }

    template <class H> static GIC_DEVICE int kernel(const H &h, gic::Self self, const Params &p) {
        typename H::Agent agent(h, self);
        gic::RankBarrier barrier(p.barrier);
        const uint32_t rounds = p.warmup + p.iterations;
        gic::stamp(self, &p.launch->begin);
        for (uint32_t i = 0; i < rounds; i++) {
            if (i + 1 == rounds) { // so that what is checked afterwards came in the last iteration
                GIC_TRY(p.grid->wait(self, h.env)); // the one before has arrived, for all agents
                for (uint32_t r = 0; r < h.nranks; r++)
                    gic::refill(h, self, p.peers[r].here, p.peers[r].room);
            }
            GIC_TRY(barrier.wait_all(h, agent, self, p.grid));
            const uint64_t begin = gic::globaltimer();
            GIC_TRY(exchange(h, agent, self, p, i + 1));
            const uint64_t end = gic::globaltimer();
            if (self.lane == 0 && i >= p.warmup)
                p.spans[(uint64_t)(i - p.warmup) * p.agents + self.agent] = gic::Interval{begin, end};
        }
        gic::stamp(self, &p.launch->end);
        return gic::OK;
    }

    static void finish(const Params &p, gic::Arena &mem, gic::Results &out) {
        const auto spans = mem.download(p.spans, (size_t)p.iterations * p.agents);
        std::vector<double> ns;
        for (uint32_t i = 0; i < p.iterations; i++)
            ns.push_back(gic::union_ns(spans, (size_t)i * p.agents, p.agents));
        out.add("iteration", "ns", std::move(ns));
        gic::add_clock(mem.download(p.launch, 1)[0], out);
    }

  private:
    template <class H>
    static GIC_DEVICE int exchange(const H &h, typename H::Agent &agent, const gic::Self &self,
                                   const Params &p, uint64_t round) {
        // Each rank begins with its right neighbour, so that no rank is everybody's first target.
        for (uint32_t i = 1 + self.agent; i < h.nranks; i += self.agents) {
            const uint32_t peer = (h.rank + i) % h.nranks;
            const Peer &to = p.peers[peer];
            const uint64_t sig = p.arrived + 8ull * h.rank;
            GIC_TRY(to.bytes ? agent.put_signal(peer, to.dst, to.src, (uint32_t)to.bytes, sig, 1)
                             : agent.signal(peer, sig, 1));
        }
        GIC_TRY(agent.ring());
        const Peer &own = p.peers[h.rank];
        gic::copy_shared(h, self, own.dst, own.src, own.bytes);
        for (uint32_t i = 1 + self.agent; i < h.nranks; i += self.agents)
            GIC_TRY(agent.wait(p.arrived + 8ull * ((h.rank + i) % h.nranks), round));
        return agent.quiet();
    }
};

#endif
