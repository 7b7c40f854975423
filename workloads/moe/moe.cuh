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

    // Messages to another rank that share a signal.
    struct Channel {
        uint64_t peer, first, count, sig;
    };
    struct Move {
        uint64_t src, dst;
    };
    struct Exchange {
        const Channel *channels;
        const Move *moves;     // of the channels
        const Move *local;     // within this rank
        const uint64_t *waits; // my signal words, one per incoming channel
        uint32_t *arrived;     // per channel: agents that have completed their share of it
        uint32_t channel_count, local_count, wait_count;
    };

    // How the agents share the channels: agent a has the shares a, a + agents, ... of those of all channels. Of a channel
    // without rows one agent signals.
    struct Share {
        uint32_t members;    // that have a share of this channel; 0: this one is not among them
        uint32_t begin, end; // rows
    };
    struct Shares {
        uint32_t channels, each;

        GIC_HD Shares(uint32_t channel_count, uint32_t agents, uint32_t want)
            : channels(channel_count), each(want                                      ? want
                                            : channel_count && agents > channel_count ? agents / channel_count
                                                                                      : 1) {}
        GIC_HD uint32_t count() const { return channels * each; }
        GIC_HD uint32_t channel(uint32_t s) const { return s % channels; }
        GIC_HD Share of(uint32_t s, uint32_t rows) const {
            const uint32_t member = s / channels, members = rows == 0 ? 1 : rows < each ? rows : each;
            if (member >= members)
                return Share{0, 0, 0};
            return Share{members, (uint32_t)((uint64_t)rows * member / members),
                         (uint32_t)((uint64_t)rows * (member + 1) / members)};
        }
    };

    static constexpr uint32_t COLUMNS = sizeof(gic::Unit) / 2; // bf16 in a unit
    // Of a piece of a sum: a unit for each lane, but some for a lone thread.
    static GIC_HD constexpr uint32_t weigh_units(uint32_t lanes) { return lanes > 32 ? lanes : 32; }

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

    enum Leg { DISPATCH, COMBINE, LEGS };
    enum Span { DISPATCHED, COMBINED, REDUCED, SPANS };

    struct Params {
        uint32_t hidden, iterations, warmup, agents;
        uint32_t share; // agents of a channel; 0: as many as there are for each
        uint64_t barrier;
        Exchange exchange[LEGS];
        Sums sums[LEGS]; // the experts' rows, the tokens' rows
        const Range *targets;
        uint32_t target_count;
        gic::BlockBarrier *grid;
        gic::Interval *spans[SPANS]; // iteration * agents + agent
        gic::Loop *launch;
    };

    static int parse(gic::Inputs &in, gic::Arena &mem, uint32_t nranks, Params *p) {
        in.threads = in.u32("threads");
        p->agents = in.threads; // with more lanes fewer of them are used
        p->hidden = in.u32("hidden");
        p->iterations = in.u32("iterations");
        p->warmup = in.u32("warmup");
        p->share = in.u32("share");
        p->barrier = in.u64("barrier");
        size_t n = 0;
        const Range *targets = in.table<Range>("targets", &n);
        p->target_count = (uint32_t)n;
        p->targets = mem.upload(targets, n);
        exchange_tables(in, mem, "dispatch", &p->exchange[DISPATCH]);
        exchange_tables(in, mem, "combine", &p->exchange[COMBINE]);
        sum_tables(in, mem, "expert", &p->sums[DISPATCH]);
        sum_tables(in, mem, "reduce", &p->sums[COMBINE]);
        if (int rc = in.check())
            return rc;
        if (p->hidden == 0 || p->hidden % COLUMNS != 0)
            return gic::fail(-EINVAL, "moe: hidden=%u: want a positive multiple of %u", p->hidden, COLUMNS);
        for (const Exchange &e : p->exchange)
            for (const Channel &c : mem.download(e.channels, e.channel_count))
                if (c.peer >= nranks)
                    return gic::fail(-EINVAL, "moe: channel to rank %llu of %u", (unsigned long long)c.peer,
                                     nranks);
        p->grid = mem.array<gic::BlockBarrier>(1);
        p->launch = mem.array<gic::Loop>(1);
        for (int i = 0; i < SPANS; i++)
            p->spans[i] = mem.array<gic::Interval>((size_t)p->iterations * p->agents);
        return 0;
    }

    template <class H> static GIC_DEVICE int kernel(const H &h, gic::Self self, const Params &p) {
        typename H::Agent agent(h, self);
        gic::RankBarrier barrier(p.barrier);
        const uint32_t rounds = p.warmup + p.iterations;
        bool sent = false; // rows that this agent has not completed
        gic::stamp(self, &p.launch->begin);
        GIC_ROLLED
        for (uint32_t i = 0; i < 2 * rounds; i++) { // dispatch and combine are the same code
            const uint32_t round = i / 2, leg = i % 2;
            const uint64_t at =
                round < p.warmup ? UINT64_MAX : (uint64_t)(round - p.warmup) * p.agents + self.agent;
            if (leg == DISPATCH && round + 1 == rounds) { // so that what is checked afterwards came now
                GIC_TRY(p.grid->wait(self, h.env));       // all agents have reduced
                for (uint32_t t = 0; t < p.target_count; t++)
                    gic::refill(h, self, p.targets[t].offset, p.targets[t].bytes);
            }
            GIC_TRY(barrier.wait_all(h, agent, self, p.grid));
            const uint64_t begin = gic::globaltimer();
            GIC_TRY(exchange(h, agent, self, p, p.exchange[leg], round + 1, &sent));
            if (leg == DISPATCH)
                record(self, p.spans[DISPATCHED], at, begin);
            GIC_TRY(p.grid->wait(self, h.env)); // every agent's incoming rows are here
            const uint64_t arrived = gic::globaltimer();
            weigh(h, self, p.hidden, p.sums[leg]);
            if (leg == DISPATCH)
                continue;
            record(self, p.spans[REDUCED], at, arrived);
            record(self, p.spans[COMBINED], at, begin);
            // The next iteration reuses the sources. Agents without any do not wait for completions: a thousand fences
            // would be in the way of those that still reduce.
            if (sent)
                GIC_TRY(agent.quiet());
            sent = false;
        }
        gic::stamp(self, &p.launch->end);
        return gic::OK;
    }

    static void finish(const Params &p, gic::Arena &mem, gic::Results &out) {
        static const char *const names[SPANS] = {"dispatch", "combine", "reduce"};
        for (int phase = 0; phase < SPANS; phase++) {
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
        size_t channels = 0, moves = 0, locals = 0, waits = 0;
        const Channel *channel = in.table<Channel>((stem + ".channels").c_str(), &channels);
        const Move *move = in.table<Move>((stem + ".moves").c_str(), &moves);
        const Move *stay = in.table<Move>((stem + ".local").c_str(), &locals);
        const uint64_t *wait = in.table<uint64_t>((stem + ".waits").c_str(), &waits);
        e->channels = mem.upload(channel, channels);
        e->moves = mem.upload(move, moves);
        e->local = mem.upload(stay, locals);
        e->waits = mem.upload(wait, waits);
        e->arrived = mem.array<uint32_t>(channels);
        e->channel_count = (uint32_t)channels;
        e->local_count = (uint32_t)locals;
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

    // Sends this agent's shares of the channels, copies its share of the rows that stay, and waits for its share of the
    // incoming channels. Where there are agents without a row to send, the copies begin with them.
    template <class H>
    static GIC_DEVICE int exchange(const H &h, typename H::Agent &agent, const gic::Self &self,
                                   const Params &p, const Exchange &e, uint64_t round, bool *sent_p) {
        const uint32_t bytes = p.hidden * 2;
        const Shares shares(e.channel_count, self.agents, p.share);
        GIC_ROLLED
        for (uint32_t s = self.agent; s < shares.count(); s += self.agents)
            GIC_TRY(send(h, agent, self, e, shares, s, bytes, sent_p));
        GIC_TRY(agent.ring());
        const uint32_t units = bytes / sizeof(gic::Unit), piece = gic::piece_units(self.lanes, 8);
        gic::Pieces pieces(e.local_count, (units + piece - 1) / piece, self.agents - 1 - self.agent,
                           self.agents);
        GIC_ROLLED
        for (; pieces.more(); pieces.next()) {
            const Move move = e.local[pieces.row];
            const uint32_t begin = pieces.part * piece, end = begin + piece < units ? begin + piece : units;
            gic::copy_units(h.window + move.dst, h.window + move.src, begin, end, gic::lane_first(self),
                            gic::lane_step(self));
        }
        GIC_ROLLED
        for (uint32_t w = self.agents - 1 - self.agent; w < e.wait_count; w += self.agents)
            GIC_TRY(agent.wait(e.waits[w], round));
        return gic::OK;
    }

    // A channel's signal is behind all its rows: an agent that has sent them all signals at once, as a signal is behind
    // the agent's own puts; of several, each completes what it has put, and the last one signals.
    template <class H>
    static GIC_DEVICE int send(const H &h, typename H::Agent &agent, const gic::Self &self, const Exchange &e,
                               const Shares &shares, uint32_t s, uint32_t bytes, bool *sent_p) {
        const uint32_t c = shares.channel(s);
        const Channel channel = e.channels[c];
        const uint32_t rows = (uint32_t)channel.count, peer = (uint32_t)channel.peer;
        const Share mine = shares.of(s, rows);
        if (mine.members == 0)
            return gic::OK;
        const Move *moves = e.moves + channel.first;
        *sent_p |= mine.begin < mine.end;
        GIC_ROLLED
        for (uint32_t m = mine.begin; m < mine.end; m += h.lanes) {
            const uint32_t left = mine.end - m;
            GIC_TRY(agent.put_each(peer, left < h.lanes ? left : h.lanes, [&](uint32_t i) {
                return gic::Message{moves[m + i].dst, moves[m + i].src, bytes};
            }));
        }
        if (mine.members > 1) {
            GIC_TRY(agent.quiet());
            if (!last(self, e.arrived + c, mine.members))
                return gic::OK;
        }
        return agent.signal(peer, channel.sig, 1);
    }

    // Counts this agent in; true for the last of so many, behind what the others did before. The count is 0 again then.
    static GIC_DEVICE bool last(const gic::Self &self, uint32_t *arrived, uint32_t members) {
        bool is_last = false;
        gic::sync_lanes(self);
        if (self.lane == 0) {
            gic::fence_acq_rel<gic::Scope::device>();
            is_last = gic::fetch_add<gic::Scope::device>(arrived, 1u) == members - 1;
            gic::fence_acq_rel<gic::Scope::device>();
            if (is_last)
                gic::store_relaxed<gic::Scope::device>(arrived, 0u);
        }
        return gic::broadcast(self, is_last);
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

    // The agents share the output rows in pieces of columns, the lanes of one the columns of a piece.
    template <class H>
    static GIC_DEVICE void weigh(const H &h, const gic::Self &self, uint32_t hidden, const Sums &s) {
        const uint64_t row_bytes = (uint64_t)hidden * 2;
        const uint32_t units = hidden / COLUMNS, piece = weigh_units(self.lanes);
        gic::Pieces pieces(s.count, (units + piece - 1) / piece, self.agent, self.agents);
        GIC_ROLLED
        for (; pieces.more(); pieces.next()) {
            const Sum sum = s.sums[pieces.row];
            const uint32_t begin = pieces.part * piece, end = begin + piece < units ? begin + piece : units;
            uint8_t *out = h.window + s.out + pieces.row * row_bytes;
            GIC_ROLLED
            for (uint32_t u = begin + gic::lane_first(self); u < end; u += gic::lane_step(self)) {
                const uint64_t at = sizeof(gic::Unit) * u;
                gic::store_unit(out + at, weigh_unit(h.window + s.in + at, row_bytes, s.terms + sum.first,
                                                     (uint32_t)sum.count));
            }
        }
        gic::sync_lanes(self);
    }

    // A unit of columns of one sum. The rows of several terms are under way before the first one is added; they are added
    // in their order.
    static GIC_DEVICE gic::Unit weigh_unit(const uint8_t *in, uint64_t row_bytes, const Term *terms,
                                           uint32_t count) {
        constexpr uint32_t deep = 8;
        float acc[COLUMNS] = {};
        GIC_ROLLED
        for (uint32_t t = 0; t < count; t += deep) {
            Term term[deep] = {};
            gic::Unit x[deep] = {};
            GIC_UNROLLED
            for (uint32_t k = 0; k < deep; k++)
                if (t + k < count)
                    term[k] = terms[t + k];
            GIC_UNROLLED
            for (uint32_t k = 0; k < deep; k++)
                if (t + k < count)
                    x[k] = gic::load_unit(in + term[k].row * row_bytes);
            GIC_UNROLLED
            for (uint32_t k = 0; k < deep; k++)
                if (t + k < count)
                    add(acc, term[k].weight, x[k]);
        }
        gic::Unit out;
        GIC_UNROLLED
        for (uint32_t i = 0; i < COLUMNS / 2; i++)
            out.w[i] = to_bf16(acc[2 * i]) | (uint32_t)to_bf16(acc[2 * i + 1]) << 16;
        return out;
    }
    static GIC_DEVICE void add(float (&acc)[COLUMNS], float weight, const gic::Unit &x) {
        GIC_UNROLLED
        for (uint32_t i = 0; i < COLUMNS / 2; i++) {
            acc[2 * i] += weight * from_bf16((uint16_t)x.w[i]);
            acc[2 * i + 1] += weight * from_bf16((uint16_t)(x.w[i] >> 16));
        }
    }
};

#endif
