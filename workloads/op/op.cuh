// op: one operation at a time from rank 0 to rank 1 (others take part in the barriers only). Timed by clock64
// of the one device thread that posts.
#ifndef GIC_WORKLOADS_OP_CUH
#define GIC_WORKLOADS_OP_CUH

#include "../../backends/abi/driver.cuh"
#include "../barrier.cuh"

#include <vector>

struct op_workload {
    static constexpr const char *name = "op";

    enum Op : uint32_t { PUT, PUT_SIGNAL, ATOMIC, READ };
    enum LoopIndex { ISSUE, COMPLETION, ECHO, CHECK, LOOPS };

    // What a post says, and the posts of a round.
    struct Post {
        uint64_t dst, src, counter;
        uint64_t stride, end; // of a slot, of all
        uint32_t bytes, count;
    };

    struct Params {
        uint32_t op, bytes;
        uint32_t posts, rounds, warm_rounds; // issue: posts per round
        uint32_t iterations, warmup;         // completion and echo
        uint64_t delay_ns;                   // responder delay
        uint32_t checks;                     // echoes of the timer check
        const uint32_t *check_ns;            // and what each of them is delayed by beyond that
        uint64_t src, dst, stride;           // slot i of the areas: src + i * stride
        uint32_t slots;
        uint64_t barrier, request, reply, counter; // signal words
        uint64_t *ticks[LOOPS];                    // samples of clock64, by loop
        gic::Loop *loops;
        const Post *post;
    };

    static int parse(gic::Inputs &in, gic::Arena &mem, uint32_t nranks, Params *p) {
        in.agents = 1;
        p->op = in.u32("op");
        p->bytes = in.u32("bytes");
        p->posts = in.u32("posts");
        p->rounds = in.u32("rounds");
        p->warm_rounds = in.u32("warm_rounds");
        p->iterations = in.u32("iterations");
        p->warmup = in.u32("warmup");
        p->delay_ns = in.u64("delay_ns");
        size_t checks = 0;
        const uint32_t *check_ns = in.table<uint32_t>("check_ns", &checks);
        p->src = in.u64("src");
        p->dst = in.u64("dst");
        p->stride = in.u64("stride");
        p->slots = in.u32("slots");
        p->barrier = in.u64("barrier");
        p->request = in.u64("request");
        p->reply = in.u64("reply");
        p->counter = in.u64("counter");
        if (int rc = in.check())
            return rc;
        if (p->op > READ || p->slots == 0 || p->posts == 0 || nranks < 2)
            return gic::fail(-EINVAL,
                             "op: op=%u slots=%u posts=%u ranks=%u: need op <= 3, the rest positive, 2 ranks",
                             p->op, p->slots, p->posts, nranks);
        p->checks = (uint32_t)checks;
        p->check_ns = mem.upload(check_ns, checks);
        const uint32_t samples[LOOPS] = {p->rounds, p->iterations, p->iterations, p->checks};
        for (int i = 0; i < LOOPS; i++)
            p->ticks[i] = mem.array<uint64_t>(samples[i]);
        p->loops = mem.array<gic::Loop>(LOOPS);
        const Post post{p->dst, p->src, p->counter, p->stride, p->slots * p->stride, p->bytes, p->posts};
        p->post = mem.upload(&post, 1);
        return 0;
    }

    template <class H> static GIC_DEVICE int kernel(const H &h, gic::Self self, const Params &p) {
        if (self.agent != 0)
            return gic::OK;
        typename H::Agent agent(h, self);
        gic::RankBarrier barrier(p.barrier);
        GIC_TRY(barrier.wait(h, agent));
        if (h.rank == 0) {
            GIC_TRY(issue<H>(agent, self, p));
            GIC_TRY(completion(h, agent, self, p));
        }
        if (p.op == PUT || p.op == PUT_SIGNAL) {
            // The counts of both loops go on from each other: a signal word only grows.
            const Echo plain{p.warmup, p.iterations, nullptr, 0, ECHO};
            const Echo check{0, p.checks, p.check_ns, p.warmup + p.iterations, CHECK};
            // While rank 0 is at its first loops.
            const double rate = h.rank == 1 ? tick_rate() : 0;
            GIC_ROLLED // both loops are the same code
                for (uint32_t i = 0; i < 2; i++) {
                const Echo e = i == 0 ? plain : check;
                if (h.rank == 0)
                    GIC_TRY(request<H>(agent, self, p, e));
                else if (h.rank == 1)
                    GIC_TRY(respond<H>(agent, self, p, e, rate));
            }
        }
        GIC_TRY(agent.quiet());
        return barrier.wait(h, agent);
    }

    static void finish(const Params &p, gic::Arena &mem, gic::Results &out) {
        static const char *const names[LOOPS] = {"issue", "completion", "rtt", "rtt_check"};
        const uint32_t samples[LOOPS] = {p.rounds, p.iterations, p.iterations, p.checks};
        std::vector<gic::Loop> loops = mem.download(p.loops, LOOPS);
        std::vector<double> hz;
        for (int i = 0; i < LOOPS; i++) {
            if (!loops[i].ran() || samples[i] == 0)
                continue;
            const double rate = loops[i].ticks_per_ns(), per = i == ISSUE ? p.posts : 1;
            std::vector<double> ns;
            for (uint64_t t : mem.download(p.ticks[i], samples[i]))
                ns.push_back((double)t / rate / per);
            out.add(names[i], "ns", std::move(ns));
            hz.push_back(rate * 1e9);
        }
        if (!hz.empty())
            out.add("clock_hz", "1", std::move(hz));
    }

  private:
    struct Echo {
        uint32_t warmup, iterations;
        const uint32_t *more_ns; // delay of each echo beyond the responder's; nullptr: none
        uint64_t base;           // echoes of earlier loops
        LoopIndex loop;
    };

    static GIC_DEVICE uint64_t slot(const Params &p, uint64_t i) { return i % p.slots * p.stride; }

    // Starts the operation once, on the slot at `at`; completion not included.
    template <uint32_t OP, class Agent>
    static GIC_DEVICE int post(Agent &agent, const Post &what, uint64_t at) {
        if constexpr (OP == PUT)
            return agent.put(1, what.dst + at, what.src + at, what.bytes);
        else if constexpr (OP == PUT_SIGNAL)
            return agent.put_signal(1, what.dst + at, what.src + at, what.bytes, what.counter, 1);
        else if constexpr (OP == ATOMIC)
            return agent.signal(1, what.counter, 1);
        else
            return agent.get(1, what.dst + at, what.src + at, what.bytes);
    }

    static GIC_DEVICE void sample(const gic::Self &self, uint64_t *ticks, uint32_t warmup, uint32_t i,
                                  uint64_t from, uint64_t to) {
        if (self.lane == 0 && i >= warmup)
            ticks[i - warmup] = to - from;
    }
    static GIC_DEVICE void stamp(const gic::Self &self, gic::Stamp *at) {
        if (self.lane == 0)
            *at = gic::Stamp::now();
    }

    template <class H>
    static GIC_DEVICE int issue(typename H::Agent &agent, const gic::Self &self, const Params &p) {
        GIC_ROLLED
        for (uint32_t r = 0; r < p.warm_rounds + p.rounds; r++) {
            if (r == p.warm_rounds)
                stamp(self, &p.loops[ISSUE].begin);
            uint64_t ticks = 0;
            GIC_TRY(post_all(agent, p, &ticks));
            GIC_TRY(agent.flush(1));
            sample(self, p.ticks[ISSUE], p.warm_rounds, r, 0, ticks);
        }
        stamp(self, &p.loops[ISSUE].end);
        return gic::OK;
    }

    // The posts of a round, and what they took. Which operation it is is asked outside: inside, the jump through a table
    // was 45 ns of every post.
    template <class Agent> static GIC_DEVICE int post_all(Agent &agent, const Params &p, uint64_t *ticks_p) {
        switch (p.op) {
        case PUT:
            return post_all<PUT>(agent, p, ticks_p);
        case PUT_SIGNAL:
            return post_all<PUT_SIGNAL>(agent, p, ticks_p);
        case ATOMIC:
            return post_all<ATOMIC>(agent, p, ticks_p);
        default:
            return post_all<READ>(agent, p, ticks_p);
        }
    }
    // What the loop needs comes from memory, once. A parameter of the kernel would be loaded again in every turn, and the
    // post would wait for it.
    template <uint32_t OP, class Agent>
    static GIC_DEVICE int post_all(Agent &agent, const Params &p, uint64_t *ticks_p) {
        const Post what = *p.post;
        gic::arrived(what.dst | what.src | what.counter | what.stride | what.end | what.bytes | what.count);
        uint64_t at = 0;
        int status = gic::OK;
        const uint64_t from = gic::clock64();
        GIC_ROLLED
        for (uint32_t i = 0; i < what.count && status == gic::OK; i++) {
            status = post<OP>(agent, what, at);
            at += what.stride; // a division here would be a tenth of a short post
            at = at == what.end ? 0 : at;
        }
        *ticks_p = gic::clock64() - from;
        return status;
    }

    template <class H>
    static GIC_DEVICE int completion(const H &h, typename H::Agent &agent, const gic::Self &self,
                                     const Params &p) {
        GIC_ROLLED
        for (uint32_t i = 0; i < p.warmup + p.iterations; i++) {
            if (i == p.warmup)
                stamp(self, &p.loops[COMPLETION].begin);
            const uint64_t from = gic::clock64();
            uint64_t old = 0;
            GIC_TRY(complete(agent, p, slot(p, i), &old));
            gic::arrived(old); // whatever the handle does: the answer is here before the clock is read
            sample(self, p.ticks[COMPLETION], p.warmup, i, from, gic::clock64());
            if (p.op == ATOMIC && self.lane == 0) // the old values are this operation's payload
                *(uint64_t *)(h.window + p.dst + slot(p, i)) = old;
        }
        stamp(self, &p.loops[COMPLETION].end);
        return gic::OK;
    }

    // One operation and its completion; an atomic's is its answer.
    template <class Agent>
    static GIC_DEVICE int complete(Agent &agent, const Params &p, uint64_t at, uint64_t *old_p) {
        const Post what = *p.post;
        switch (p.op) {
        case ATOMIC:
            return agent.fetch_add(1, p.counter, 1, old_p);
        case PUT:
            GIC_TRY(post<PUT>(agent, what, at));
            break;
        case PUT_SIGNAL:
            GIC_TRY(post<PUT_SIGNAL>(agent, what, at));
            break;
        default:
            GIC_TRY(post<READ>(agent, what, at));
        }
        return agent.flush(1);
    }

    // One message of an echo, number `n` from 1, announced to whoever waits for n on `sig`.
    template <class Agent>
    static GIC_DEVICE int announce(Agent &agent, const Params &p, uint32_t peer, uint64_t sig, uint64_t n) {
        const uint64_t at = slot(p, n - 1);
        if (p.op == PUT)
            GIC_TRY(agent.notify(peer, p.dst + at, p.src + at, p.bytes, sig, n));
        else
            GIC_TRY(agent.put_signal(peer, p.dst + at, p.src + at, p.bytes, sig, 1));
        return agent.ring();
    }

    // An echo waits for no completion: without this the ring fills, and a later sample pays for it.
    template <class Agent> static GIC_DEVICE int make_room(Agent &agent, uint32_t peer, uint64_t n) {
        return n % 64 == 0 ? agent.flush(peer) : (int)gic::OK;
    }

    template <class H>
    static GIC_DEVICE int request(typename H::Agent &agent, const gic::Self &self, const Params &p,
                                  const Echo &e) {
        GIC_ROLLED
        for (uint32_t i = 0; i < e.warmup + e.iterations; i++) {
            if (i == e.warmup)
                stamp(self, &p.loops[e.loop].begin);
            const uint64_t n = e.base + i + 1, from = gic::clock64();
            GIC_TRY(announce(agent, p, 1, p.request, n));
            GIC_TRY(agent.wait(p.reply, n));
            sample(self, p.ticks[e.loop], e.warmup, i, from, gic::clock64());
            GIC_TRY(make_room(agent, 1, n));
        }
        stamp(self, &p.loops[e.loop].end);
        return gic::OK;
    }

    // Ticks of clock64 in a nanosecond, by globaltimer over 2 ms: that one steps by up to a microsecond on a GPU,
    // too coarse to take a delay by.
    static GIC_DEVICE double tick_rate() {
        const gic::Stamp begin = gic::Stamp::now();
        gic::Stamp end = begin;
        for (uint32_t polls = 0; end.timer - begin.timer < 2000000; end = gic::Stamp::now())
            gic::pause(polls++);
        return (double)(end.clock - begin.clock) / (double)(end.timer - begin.timer);
    }

    template <class H>
    static GIC_DEVICE int respond(typename H::Agent &agent, const gic::Self &self, const Params &p,
                                  const Echo &e, double rate) {
        GIC_ROLLED
        for (uint32_t i = 0; i < e.warmup + e.iterations; i++) {
            const uint64_t n = e.base + i + 1, delay_ns = p.delay_ns + (e.more_ns ? e.more_ns[i] : 0);
            const uint64_t ticks = (uint64_t)((double)delay_ns * rate); // known before the request is here
            GIC_TRY(agent.wait(p.request, n));
            // The delay is below 2 ms and nothing else is due meanwhile: it does not yield, which would
            // lengthen it by a time slice. One lane: those of a warp need not leave the wait together, and two
            // that delay one after the other make it twice as long (the timer check saw 100 us for 50).
            if (self.lane == 0)
                for (const uint64_t from = gic::clock64(); gic::clock64() - from < ticks;)
                    gic::pause(0);
            gic::sync_lanes(self);
            GIC_TRY(announce(agent, p, 0, p.reply, n));
            GIC_TRY(make_room(agent, 0, n));
        }
        return gic::OK;
    }
};

#endif
