// moe: dispatch rows to experts, let the experts work, combine the rows at their tokens' owners. Which row
// goes where is decided beforehand (moe.go): the kernel reads tables, the same for every stack.
//
// Rows are bf16. A weighted sum of rows accumulates in fp32 in the order of its terms and is rounded once, to
// nearest even. Weights and rows have so few significant bits that every product is exact in fp32: fused or
// not, the sum is the same.
#ifndef GIC_WORKLOADS_MOE_CUH
#define GIC_WORKLOADS_MOE_CUH

#include "../../backends/abi/driver.cuh"
#include "../barrier.cuh"
#include "../window/window.cuh"

struct moe_workload {
    static constexpr const char *name = "moe";

    // Messages to one rank that share a signal; peer == rank: local copies without one.
    struct Channel {
        uint64_t peer, first, count, sig;
    };
    struct Move {
        uint64_t src, dst;
    };
    struct Exchange {
        const Channel *channels;
        const Move *moves;
        const uint64_t *waits; // my signal words, one per incoming channel of another rank
        uint32_t channel_count, wait_count;
    };

    // out[i] = sum of weight * in[row] over `count` terms from `first`.
    struct Sum {
        uint64_t first, count;
    };
    struct Term {
        uint32_t row;
        float weight;
    };
    struct Sums {
        const Sum *sums;
        const Term *terms;
        uint32_t count;
        uint64_t in, out; // offsets of row 0
    };

    // Target areas that get filler before the last iteration: offset and bytes.
    struct Range {
        uint64_t offset, bytes;
    };

    enum Phase { DISPATCH, COMBINE, REDUCE, PHASES };

    struct Params {
        uint32_t hidden, iterations, warmup, agents;
        uint64_t barrier;
        Exchange dispatch, combine;
        Sums expert, reduce;
        const Range *targets;
        uint32_t target_count;
        gic::GridBarrier *grid;
        gic::Interval *spans[PHASES]; // iteration * agents + agent
        gic::Loop *launch;
    };

    static int parse(gic::Inputs &in, gic::Arena &mem, uint32_t nranks, Params *p) {
        in.threads = in.u32("threads");
        p->agents = in.threads; // with more lanes fewer of them are used
        p->hidden = in.u32("hidden");
        p->iterations = in.u32("iterations");
        p->warmup = in.u32("warmup");
        p->barrier = in.u64("barrier");
        size_t n = 0;
        const Range *targets = in.table<Range>("targets", &n);
        p->target_count = (uint32_t)n;
        p->targets = mem.upload(targets, n);
        exchange_tables(in, mem, "dispatch", &p->dispatch);
        exchange_tables(in, mem, "combine", &p->combine);
        sum_tables(in, mem, "expert", &p->expert);
        sum_tables(in, mem, "reduce", &p->reduce);
        if (int rc = in.check())
            return rc;
        for (const Exchange *e : {&p->dispatch, &p->combine})
            for (const Channel &c : mem.download(e->channels, e->channel_count))
                if (c.peer >= nranks)
                    return gic::fail(-EINVAL, "moe: channel to rank %llu of %u", (unsigned long long)c.peer,
                                     nranks);
        p->grid = mem.array<gic::GridBarrier>(1);
        p->launch = mem.array<gic::Loop>(1);
        for (int i = 0; i < PHASES; i++)
            p->spans[i] = mem.array<gic::Interval>((size_t)p->iterations * p->agents);
        return 0;
    }

    template <class H> static GIC_DEVICE int kernel(const H &h, gic::Self self, const Params &p) {
        typename H::Agent agent(h, self);
        gic::RankBarrier barrier(p.barrier);
        const uint32_t rounds = p.warmup + p.iterations;
        gic::stamp(self, &p.launch->begin);
        for (uint32_t i = 0; i < rounds; i++) {
            const uint64_t at = i < p.warmup ? UINT64_MAX : (uint64_t)(i - p.warmup) * p.agents + self.agent;
            if (i + 1 == rounds) { // so that what is checked afterwards came in the last iteration
                GIC_TRY(p.grid->wait(self, h.env)); // all agents have reduced
                for (uint32_t t = 0; t < p.target_count; t++)
                    gic::refill(h, self, p.targets[t].offset, p.targets[t].bytes);
            }
            GIC_TRY(barrier.wait_all(h, agent, self, p.grid));
            uint64_t begin = gic::globaltimer();
            GIC_TRY(exchange(h, agent, self, p, p.dispatch, i + 1));
            record(self, p.spans[DISPATCH], at, begin);

            GIC_TRY(p.grid->wait(self, h.env)); // every agent's incoming rows are here
            weigh(h, self, p.hidden, p.expert);
            GIC_TRY(barrier.wait_all(h, agent, self, p.grid));

            begin = gic::globaltimer();
            GIC_TRY(exchange(h, agent, self, p, p.combine, i + 1));
            GIC_TRY(p.grid->wait(self, h.env));
            const uint64_t reduce = gic::globaltimer();
            weigh(h, self, p.hidden, p.reduce);
            record(self, p.spans[REDUCE], at, reduce);
            record(self, p.spans[COMBINE], at, begin);
            GIC_TRY(agent.quiet()); // the next iteration reuses the sources
        }
        gic::stamp(self, &p.launch->end);
        return gic::OK;
    }

    static void finish(const Params &p, gic::Arena &mem, gic::Results &out) {
        static const char *const names[PHASES] = {"dispatch", "combine", "reduce"};
        for (int phase = 0; phase < PHASES; phase++) {
            const auto spans = mem.download(p.spans[phase], (size_t)p.iterations * p.agents);
            std::vector<double> ns;
            for (uint32_t i = 0; i < p.iterations; i++)
                ns.push_back(gic::union_ns(spans, (size_t)i * p.agents, p.agents));
            out.add(names[phase], "ns", std::move(ns));
        }
        gic::add_clock(mem.download(p.launch, 1)[0], out);
    }

  private:
    static void exchange_tables(gic::Inputs &in, gic::Arena &mem, const std::string &stem, Exchange *e) {
        size_t channels = 0, moves = 0, waits = 0;
        const Channel *channel = in.table<Channel>((stem + ".channels").c_str(), &channels);
        const Move *move = in.table<Move>((stem + ".moves").c_str(), &moves);
        const uint64_t *wait = in.table<uint64_t>((stem + ".waits").c_str(), &waits);
        e->channels = mem.upload(channel, channels);
        e->moves = mem.upload(move, moves);
        e->waits = mem.upload(wait, waits);
        e->channel_count = (uint32_t)channels;
        e->wait_count = (uint32_t)waits;
    }
    static void sum_tables(gic::Inputs &in, gic::Arena &mem, const std::string &stem, Sums *s) {
        size_t sums = 0, terms = 0;
        const Sum *sum = in.table<Sum>((stem + ".sums").c_str(), &sums);
        const Term *term = in.table<Term>((stem + ".terms").c_str(), &terms);
        s->sums = mem.upload(sum, sums);
        s->terms = mem.upload(term, terms);
        s->count = (uint32_t)sums;
        s->in = in.u64((stem + ".in").c_str());
        s->out = in.u64((stem + ".out").c_str());
    }

    static GIC_DEVICE void record(const gic::Self &self, gic::Interval *spans, uint64_t at, uint64_t begin) {
        const uint64_t end = gic::globaltimer();
        if (self.lane == 0 && at != UINT64_MAX)
            spans[at] = gic::Interval{begin, end};
    }

    // Sends this agent's channels, then waits for its share of the incoming ones.
    template <class H>
    static GIC_DEVICE int exchange(const H &h, typename H::Agent &agent, const gic::Self &self,
                                   const Params &p, const Exchange &e, uint64_t round) {
        const uint32_t bytes = p.hidden * 2;
        for (uint32_t c = self.agent; c < e.channel_count; c += self.agents) {
            const Channel &channel = e.channels[c];
            const Move *moves = e.moves + channel.first;
            if (channel.peer == h.rank) {
                for (uint64_t m = 0; m < channel.count; m++)
                    gic::copy_local(h, self, moves[m].dst, moves[m].src, bytes);
                continue;
            }
            const uint32_t peer = (uint32_t)channel.peer;
            for (uint64_t m = 0; m < channel.count; m += h.lanes) {
                const uint64_t left = channel.count - m;
                GIC_TRY(agent.put_each(peer, left < h.lanes ? (uint32_t)left : h.lanes, [&](uint32_t i) {
                    return gic::Message{moves[m + i].dst, moves[m + i].src, bytes};
                }));
            }
            GIC_TRY(agent.signal(peer, channel.sig, 1));
        }
        GIC_TRY(agent.ring());
        for (uint32_t w = self.agent; w < e.wait_count; w += self.agents)
            GIC_TRY(agent.wait(e.waits[w], round));
        return gic::OK;
    }

    static GIC_DEVICE float from_bf16(uint16_t v) {
        const uint32_t bits = (uint32_t)v << 16;
        float f;
        memcpy(&f, &bits, sizeof f);
        return f;
    }
    static GIC_DEVICE uint16_t to_bf16(float f) { // finite numbers only
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
    }

    // The agents share the output rows, the lanes of one its columns.
    template <class H>
    static GIC_DEVICE void weigh(const H &h, const gic::Self &self, uint32_t hidden, const Sums &s) {
        const uint64_t row_bytes = (uint64_t)hidden * 2;
        for (uint32_t i = self.agent; i < s.count; i += self.agents) {
            const Sum &sum = s.sums[i];
            uint16_t *out = (uint16_t *)(h.window + s.out + i * row_bytes);
            for (uint32_t col = gic::lane_first(self); col < hidden; col += gic::lane_step(self)) {
                float acc = 0;
                for (uint64_t t = 0; t < sum.count; t++) {
                    const Term &term = s.terms[sum.first + t];
                    const uint16_t *row = (const uint16_t *)(h.window + s.in + term.row * row_bytes);
                    acc += term.weight * from_bf16(row[col]);
                }
                out[col] = to_bf16(acc);
            }
        }
        gic::sync_lanes(self);
    }
};

#endif
