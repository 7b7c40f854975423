// conform: every agent plays a script of single words of the contract (backends/abi/device.cuh) that the Go half
// wrote, so that what is expected of each word is said in one place, there. Nothing here is worth timing.
#ifndef GIC_WORKLOADS_CONFORM_CUH
#define GIC_WORKLOADS_CONFORM_CUH

#include "../../backends/abi/driver.cuh"
#include "../barrier.cuh"

struct conform_workload {
    static constexpr const char *name = "conform";

    // As in script.go.
    enum Op : uint64_t {
        PUT,
        PUT_EACH, // the `bytes` messages from number `src` on
        PUT_VALUE,
        SIGNAL,
        PUT_SIGNAL,
        NOTIFY,
        GET,
        FETCH_ADD, // the old value is stored at dst
        CLAIM,     // fetch_add at sig, then 1 to the word of the list at dst that the old value names
        WAIT,
        POLL, // wait's loop without its promise: a relaxed load
        FENCE,
        FLUSH,
        QUIET,
        GPU_VISIBLE,
        RING,
        COPY, // within this rank's window, by this agent's own loads and stores
        MEET, // of all agents of this rank
        OPS
    };
    struct Step {
        uint64_t op, peer, dst, src, bytes, sig, value;
    };
    struct Message {
        uint64_t dst, src, bytes;
    };

    struct Params {
        const uint64_t *first; // agent a plays steps first[a] to first[a + 1]
        const Step *steps;
        const Message *messages;
        gic::GridBarrier *grid;
        gic::Interval *span;
    };

    static int parse(gic::Inputs &in, gic::Arena &mem, uint32_t nranks, Params *p) {
        in.agents = in.u32("agents");
        size_t firsts = 0, steps = 0, messages = 0;
        const uint64_t *first = in.table<uint64_t>("first", &firsts);
        const Step *step = in.table<Step>("steps", &steps);
        const Message *message = in.table<Message>("messages", &messages);
        if (int rc = in.check())
            return rc;
        if (in.agents == 0 || firsts != (size_t)in.agents + 1 || first[in.agents] != steps)
            return gic::fail(-EINVAL, "conform: %zu script bounds for %u agents and %zu steps", firsts,
                             in.agents, steps);
        for (uint32_t a = 0; a < in.agents; a++)
            if (first[a] > first[a + 1])
                return gic::fail(-EINVAL, "conform: the script of agent %u ends before it begins", a);
        for (size_t i = 0; i < steps; i++) {
            const Step &s = step[i];
            if (s.op >= OPS || s.peer >= nranks || (s.op == CLAIM && s.value == 0) ||
                (s.op == PUT_EACH && (s.src > messages || s.bytes > messages - s.src)))
                return gic::fail(-EINVAL, "conform: step %zu: op=%llu peer=%llu of %u ranks", i,
                                 (unsigned long long)s.op, (unsigned long long)s.peer, nranks);
        }
        p->first = mem.upload(first, firsts);
        p->steps = mem.upload(step, steps);
        p->messages = mem.upload(message, messages);
        p->grid = mem.array<gic::GridBarrier>(1);
        p->span = mem.array<gic::Interval>(1);
        return 0;
    }

    template <class H> static GIC_DEVICE int kernel(const H &h, gic::Self self, const Params &p) {
        typename H::Agent agent(h, self);
        const uint64_t begin = gic::globaltimer();
        for (uint64_t i = p.first[self.agent]; i < p.first[self.agent + 1]; i++)
            GIC_TRY(play(h, agent, self, p, p.steps[i]));
        if (self.agent == 0 && self.lane == 0)
            *p.span = gic::Interval{begin, gic::globaltimer()};
        return gic::OK;
    }

    static void finish(const Params &p, gic::Arena &mem, gic::Results &out) {
        out.add("elapsed", "ns", {gic::union_ns(mem.download(p.span, 1), 0, 1)});
    }

  private:
    template <class H>
    static GIC_DEVICE int play(const H &h, typename H::Agent &agent, const gic::Self &self, const Params &p,
                               const Step &s) {
        const uint32_t peer = (uint32_t)s.peer, bytes = (uint32_t)s.bytes;
        uint64_t old = 0;
        switch (s.op) {
        case PUT:
            return agent.put(peer, s.dst, s.src, bytes);
        case PUT_EACH:
            return put_each(h, agent, p, s);
        case PUT_VALUE:
            return agent.put_value(peer, s.dst, s.value, bytes);
        case SIGNAL:
            return agent.signal(peer, s.sig, s.value);
        case PUT_SIGNAL:
            return agent.put_signal(peer, s.dst, s.src, bytes, s.sig, s.value);
        case NOTIFY:
            return agent.notify(peer, s.dst, s.src, bytes, s.sig, s.value);
        case GET:
            return agent.get(peer, s.dst, s.src, bytes);
        case FETCH_ADD:
            GIC_TRY(agent.fetch_add(peer, s.sig, s.value, &old));
            if (self.lane == 0)
                *(uint64_t *)(h.window + s.dst) = old;
            return gic::OK;
        case CLAIM: // `bytes` entries, and one behind them for an old value that nothing can explain
            GIC_TRY(agent.fetch_add(peer, s.sig, s.value, &old));
            old = old % s.value != 0 || old / s.value > s.bytes ? s.bytes : old / s.value;
            return agent.fetch_add(peer, s.dst + 8 * old, 1, &old);
        case WAIT:
            return agent.wait(s.sig, s.value);
        case POLL:
            for (gic::Spin spin(h.env); gic::load_relaxed((const uint64_t *)(h.window + s.sig)) < s.value;)
                GIC_TRY(spin.failed());
            return gic::OK;
        case FENCE:
            return agent.fence(peer);
        case FLUSH:
            return agent.flush(peer);
        case QUIET:
            return agent.quiet();
        case GPU_VISIBLE:
            agent.gpu_visible();
            return gic::OK;
        case RING:
            return agent.ring();
        case COPY:
            copy(h, self, s);
            return gic::OK;
        default:
            return p.grid->wait(self, h.env);
        }
    }

    template <class H>
    static GIC_DEVICE int put_each(const H &h, typename H::Agent &agent, const Params &p, const Step &s) {
        const Message *list = p.messages + s.src;
        for (uint64_t m = 0; m < s.bytes; m += h.lanes) {
            const uint64_t left = s.bytes - m;
            GIC_TRY(
                agent.put_each((uint32_t)s.peer, left < h.lanes ? (uint32_t)left : h.lanes, [&](uint32_t i) {
                    const Message &one = list[m + i];
                    return gic::Message{one.dst, one.src, (uint32_t)one.bytes};
                }));
        }
        return gic::OK;
    }

    // From the last byte to the first: what arrives late is looked at early.
    template <class H> static GIC_DEVICE void copy(const H &h, const gic::Self &self, const Step &s) {
        gic::sync_lanes(self);
        volatile uint8_t *to = h.window + s.dst;
        const volatile uint8_t *from = h.window + s.src;
        for (uint64_t i = gic::lane_first(self); i < s.bytes; i += gic::lane_step(self))
            to[s.bytes - 1 - i] = from[s.bytes - 1 - i];
        gic::sync_lanes(self);
    }
};

#endif
