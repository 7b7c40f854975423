// The kernel of the workloads that keep the queues full: every thread of a sending rank puts messages of one
// size to one peer, each into its own slot, and the agents complete them all at the end.
//
// Timed by globaltimer: from the first post of the earliest agent to the return of the last agent's quiet.
#ifndef GIC_WORKLOADS_STREAM_CUH
#define GIC_WORKLOADS_STREAM_CUH

#include "../../backends/abi/driver.cuh"
#include "../barrier.cuh"

struct stream_workload {
    // What a post says: slot i of a thread's ring is at i * stride, a ring takes `ring` bytes.
    struct Post {
        uint64_t dst, src, stride, ring;
        uint32_t bytes;
    };

    struct Params {
        uint32_t sends, peer;                    // does this rank send, and to whom
        uint32_t bytes, messages, warmup, slots; // messages and slots per thread
        uint64_t src, dst, stride, barrier;
        gic::GridBarrier *grid;
        uint32_t agents;
        gic::Interval *spans; // per agent
        gic::Interval *posts; // per agent: until its last post has returned
        gic::Loop *launch;
        const Post *post;
    };

    static int parse(gic::Inputs &in, gic::Arena &mem, uint32_t nranks, Params *p) {
        in.threads = in.u32("threads");
        p->sends = in.u32("sends");
        p->peer = in.u32("peer");
        p->bytes = in.u32("bytes");
        p->messages = in.u32("messages");
        p->warmup = in.u32("warmup");
        p->slots = in.u32("slots");
        p->src = in.u64("src");
        p->dst = in.u64("dst");
        p->stride = in.u64("stride");
        p->barrier = in.u64("barrier");
        if (int rc = in.check())
            return rc;
        if (p->slots == 0 || p->peer >= nranks)
            return gic::fail(-EINVAL, "slots=%u peer=%u ranks=%u: need slots > 0 and peer < ranks", p->slots,
                             p->peer, nranks);
        if (!p->sends)
            in.agents = 1;
        p->agents = p->sends ? in.threads : 1; // with more lanes fewer of them are used
        p->grid = mem.array<gic::GridBarrier>(1);
        p->spans = mem.array<gic::Interval>(p->agents);
        p->posts = mem.array<gic::Interval>(p->agents);
        p->launch = mem.array<gic::Loop>(1);
        const Post post{p->dst, p->src, p->stride, p->slots * p->stride, p->bytes};
        p->post = mem.upload(&post, 1);
        return 0;
    }

    template <class H> static GIC_DEVICE int kernel(const H &h, gic::Self self, const Params &p) {
        typename H::Agent agent(h, self);
        gic::RankBarrier barrier(p.barrier);
        gic::stamp(self, &p.launch->begin);
        GIC_TRY(barrier.wait_all(h, agent, self, p.grid));
        if (p.sends) {
            GIC_TRY(send(h, agent, self, p, p.warmup));
            GIC_TRY(agent.quiet());
        }
        GIC_TRY(barrier.wait_all(h, agent, self, p.grid));
        if (p.sends) {
            const uint64_t begin = gic::globaltimer();
            GIC_TRY(send(h, agent, self, p, p.messages));
            GIC_TRY(submitted(agent, 0));
            const uint64_t posted = gic::globaltimer();
            GIC_TRY(agent.quiet());
            const uint64_t end = gic::globaltimer();
            if (self.lane == 0) {
                p.spans[self.agent] = gic::Interval{begin, end};
                p.posts[self.agent] = gic::Interval{begin, posted};
            }
        }
        GIC_TRY(barrier.wait_all(h, agent, self, p.grid));
        gic::stamp(self, &p.launch->end);
        return gic::OK;
    }

    static void finish(const Params &p, gic::Arena &mem, gic::Results &out) {
        gic::add_clock(mem.download(p.launch, 1)[0], out);
        if (!p.sends)
            return;
        out.add("elapsed", "ns", {gic::union_ns(mem.download(p.spans, p.agents), 0, p.agents)});
        out.add("posted", "ns", {gic::union_ns(mem.download(p.posts, p.agents), 0, p.agents)});
    }

  private:
    // Where somebody else posts for the agents and posting is timed alone, an agent has `int submitted()`: until the NIC
    // has been told of all that this agent issued. Otherwise a post has been posted when it returns.
    template <class A> static GIC_DEVICE auto submitted(A &agent, int) -> decltype(agent.submitted()) {
        return agent.submitted();
    }
    template <class A> static GIC_DEVICE int submitted(A &, long) { return gic::OK; }

    template <class H>
    static GIC_DEVICE int send(const H &h, typename H::Agent &agent, const gic::Self &self, const Params &p,
                               uint32_t messages) {
        const Post what = *p.post; // from memory, once: a parameter would be loaded again for every message
        const uint64_t first = (uint64_t)self.agent * h.lanes * what.ring;
        const uint64_t dst = what.dst + first, src = what.src + first;
        uint64_t slot = 0; // counted, since a division is a tenth of a short post
        GIC_ROLLED
        for (uint32_t j = 0; j < messages; j++) {
            GIC_TRY(agent.put_each(p.peer, h.lanes, [&](uint32_t i) {
                const uint64_t at = i * what.ring + slot;
                return gic::Message{dst + at, src + at, what.bytes};
            }));
            slot = slot + what.stride == what.ring ? 0 : slot + what.stride;
        }
        return gic::OK;
    }
};

#endif
