// caller: what a kernel that computes pays for holding communication code, and for using it.
//
// Four variants of one kernel, run in turn in one process: `absent` has no communication code; the other three are
// the same binary with a branch, taken by nobody (dormant), by one thread or warp per block that sends its messages
// before the block's work (send), or that also waits for their completion while the block waits for it (wait).
// A block is timed from its first instruction to after its last thread's work, a kernel from its first block's
// begin to its last block's end, by globaltimer; completion of what `send` left open is outside.
//
// Every thread holds `live` values across the communication code. The work is one fused multiply-add per value and
// iteration, of a map whose every bit depends on all iterations before (v * v + c, chaotic for this c), so that the
// sum of all results proves that nothing was left out.
//
// On a CUDA device launch() in caller_launch.cuh does what kernel() does on threads of this machine, where a block is
// one thread that does the work of all.
#ifndef GIC_WORKLOADS_CALLER_CUH
#define GIC_WORKLOADS_CALLER_CUH

#include "../../backends/abi/driver.cuh"
#include "../barrier.cuh"

#include <math.h>

// Loops over a thread's values, which are registers.
#if defined(__CUDACC__)
#define GIC_CALLER_UNROLL _Pragma("unroll")
#define GIC_CALLER_UNROLL_4 _Pragma("unroll 4")
#else
#define GIC_CALLER_UNROLL
#define GIC_CALLER_UNROLL_4
#endif

struct caller_workload {
    static constexpr const char *name = "caller";
    static constexpr bool own_launch = true; // blocks of many threads, several kernels

    enum Work : uint32_t { COMPUTE, STREAM };
    enum Variant : uint32_t { ABSENT, DORMANT, SEND, WAIT, VARIANTS };
    static constexpr uint32_t INPUTS = 64; // different values that threads begin with
    static constexpr float C = -1.9f;
    static constexpr uint32_t THREADS_MAX = 256;
    static constexpr uint32_t BOUND = 8;  // blocks per multiprocessor that a bounded kernel is compiled for
    static constexpr uint32_t TIGHT = 28; // or registers: three more than `absent` needs (compute, live=8)

    struct Params {
        uint32_t sends, peer; // does this rank send, and to whom
        uint32_t work, live, blocks, threads, iterations;
        uint32_t apart;           // on a CUDA device: the communication code is called through a pointer
        uint32_t bound;           // on a CUDA device: BOUND, TIGHT, or 1 for the registers the compiler likes
        uint32_t bytes, messages; // per block
        uint32_t rounds, warmup, variants;
        uint64_t src, dst, stride, sums; // sums: a window word per variant, what its results add up to
        float *in;     // COMPUTE: INPUTS values. STREAM: one per result, the same values over and over
        uint32_t *out; // COMPUTE: one per thread. STREAM: `live` per thread and iteration
        uint64_t results;
        gic::GridBarrier *grid;
        gic::Loop *loops; // [variant][round][block], of the rounds behind the warm-up
        gic::Loop *alone; // [round][block] of `absent` without an engine beside it, on a CUDA device
        uint32_t *shape;  // on a CUDA device: Shape of `absent` and of the others
        int32_t *status;  // per block, on a CUDA device
        uint64_t *taken;  // per variant, on a CUDA device: the sums before they go to the window
        uint64_t *sender; // on a CUDA device: where the code is that is called
    };
    struct Shape {
        uint32_t registers, local_bytes, blocks_per_sm;
    };

    static int parse(gic::Inputs &in, gic::Arena &mem, uint32_t nranks, Params *p) {
        p->sends = in.u32("sends");
        p->peer = in.u32("peer");
        p->work = in.u32("work");
        p->live = in.u32("live");
        p->bound = in.u32("bound");
        p->apart = in.u32("apart");
        p->blocks = in.u32("blocks");
        p->threads = in.u32("threads");
        p->iterations = in.u32("iterations");
        p->bytes = in.u32("bytes");
        p->messages = in.u32("messages");
        p->rounds = in.u32("rounds");
        p->warmup = in.u32("warmup");
        p->src = in.u64("src");
        p->dst = in.u64("dst");
        p->stride = in.u64("stride");
        p->sums = in.u64("sums");
        if (int rc = in.check())
            return rc;
        if (p->work > STREAM || p->peer >= nranks || p->blocks == 0 || p->threads == 0 ||
            p->iterations == 0 || p->rounds == 0 || p->threads > THREADS_MAX ||
            (p->bound != 1 && p->bound != BOUND && p->bound != TIGHT) ||
            (p->live != 8 && p->live != 16 && p->live != 32 && p->live != 64))
            return gic::fail(-EINVAL,
                             "caller: work=%u peer=%u blocks=%u threads=%u iterations=%u rounds=%u live=%u",
                             p->work, p->peer, p->blocks, p->threads, p->iterations, p->rounds, p->live);
        if (p->bound == TIGHT && (p->work != COMPUTE || p->live != 8 || !p->apart))
            return gic::fail(-ENOTSUP, "caller: bound=%u is for work=compute, live=8, call=apart", TIGHT);
        p->variants = p->messages ? (uint32_t)VARIANTS : (uint32_t)SEND;
        in.agents = p->sends ? p->blocks : 1;
        if (!p->sends)
            return 0;
        p->results = (uint64_t)p->blocks * p->threads;
        if (p->work == STREAM)
            p->results *= (uint64_t)p->live * p->iterations;
        p->in = mem.array<float>(p->work == STREAM ? p->results : INPUTS);
        p->out = mem.array<uint32_t>(p->results);
        p->grid = mem.array<gic::GridBarrier>(1);
        p->loops = mem.array<gic::Loop>((size_t)p->variants * p->rounds * p->blocks);
        p->alone = mem.array<gic::Loop>((size_t)p->rounds * p->blocks);
        p->shape = mem.array<uint32_t>(2 * sizeof(Shape) / sizeof(uint32_t));
        p->status = mem.array<int32_t>(p->blocks);
        p->taken = mem.array<uint64_t>(VARIANTS);
        p->sender = mem.array<uint64_t>(1);
        return 0;
    }

    // Which variant comes i-th in a round: each at every place, forwards and backwards.
    static uint32_t turn(const Params &p, uint32_t round, uint32_t i) {
        const uint32_t at = round / 2 + i;
        return round % 2 ? p.variants - 1 - at % p.variants : at % p.variants;
    }
    static gic::Loop *loops_of(const Params &p, uint32_t variant, uint32_t round) {
        return p.loops + ((size_t)variant * p.rounds + round) * p.blocks;
    }

    // Value i of what threads begin with: 64 different ones in [-1, 1).
    static GIC_HD float input(uint64_t i) { return (float)(i % INPUTS) / 32.0f - 1.0f; }

    // What one thread holds and does.
    template <uint32_t W, uint32_t N> struct Thread {
        float v[N];

        GIC_DEVICE void load(const Params &p, uint64_t thread) {
            const uint64_t all = (uint64_t)p.blocks * p.threads;
            GIC_CALLER_UNROLL
            for (uint32_t k = 0; k < N; k++)
                v[k] = p.in[W == COMPUTE ? (thread + k) % INPUTS : k * all + thread];
        }
        GIC_DEVICE void run(const Params &p, uint64_t thread) {
            if constexpr (W == COMPUTE)
                compute(p, thread);
            else
                stream(p, thread);
        }

      private:
        static GIC_DEVICE uint32_t bits(float f) {
            uint32_t u;
            memcpy(&u, &f, sizeof u);
            return u;
        }
        static GIC_DEVICE float step(float x) { return fmaf(x, x, C); }

        GIC_DEVICE void compute(const Params &p, uint64_t thread) {
            GIC_CALLER_UNROLL_4
            for (uint32_t i = 0; i < p.iterations; i++)
                GIC_CALLER_UNROLL
            for (uint32_t k = 0; k < N; k++)
                v[k] = step(v[k]);
            uint32_t sum = 0;
            GIC_CALLER_UNROLL
            for (uint32_t k = 0; k < N; k++)
                sum += bits(v[k]);
            p.out[thread] = sum;
        }
        GIC_DEVICE void stream(const Params &p, uint64_t thread) {
            const uint64_t all = (uint64_t)p.blocks * p.threads;
            const float *in = p.in + thread;
            uint32_t *out = p.out + thread;
            GIC_ROLLED
            for (uint32_t i = 1;; i++) {
                GIC_CALLER_UNROLL
                for (uint32_t k = 0; k < N; k++)
                    out[k * all] = bits(step(v[k]));
                if (i == p.iterations)
                    return;
                in += N * all;
                out += N * all;
                GIC_CALLER_UNROLL
                for (uint32_t k = 0; k < N; k++)
                    v[k] = in[k * all];
            }
        }
    };

    // One block's messages, by the lanes of one agent.
    template <class H>
    static GIC_DEVICE int send(const H &h, const gic::Self &self, const Params &p, bool wait) {
        typename H::Agent agent(h, self);
        const uint64_t first = (uint64_t)self.agent * p.messages;
        GIC_ROLLED
        for (uint32_t m = 0; m < p.messages; m += h.lanes) {
            const uint32_t n = p.messages - m < h.lanes ? p.messages - m : h.lanes;
            GIC_TRY(agent.put_each(p.peer, n, [&](uint32_t i) {
                const uint64_t at = (first + m + i) * p.stride;
                return gic::Message{p.dst + at, p.src + at, p.bytes};
            }));
        }
        return wait ? agent.flush(p.peer) : agent.ring();
    }

    // On a CUDA device.
    template <class H>
    static int launch(gic::Gpu &gpu, const H &h, const Params &p, uint32_t agents,
                      const volatile uint32_t *stop);
    static int launch_alone(gic::Gpu &gpu, const Params &p, const volatile uint32_t *stop);

#if !defined(__CUDACC__)
    // On threads of this machine.
    template <class H> static int kernel(const H &h, gic::Self self, const Params &p) {
        if (!p.sends)
            return gic::OK;
        for (uint64_t i = self.agent; i < (p.work == STREAM ? p.results : INPUTS); i += self.agents)
            p.in[i] = input(i);
        for (uint32_t round = 0; round < p.warmup + p.rounds; round++)
            for (uint32_t i = 0; i < p.variants; i++) {
                const uint32_t variant = turn(p, round, i);
                GIC_TRY(p.grid->wait(self, h.env)); // all inputs are there, all sums are taken
                const gic::Stamp begin = gic::Stamp::now();
                if (variant == SEND || variant == WAIT)
                    GIC_TRY(send(h, self, p, variant == WAIT));
                work_on_host(p, self.agent);
                if (round >= p.warmup)
                    loops_of(p, variant, round - p.warmup)[self.agent] = gic::Loop{begin, gic::Stamp::now()};
                if (variant == SEND) {
                    typename H::Agent agent(h, self);
                    GIC_TRY(agent.quiet());
                }
                GIC_TRY(p.grid->wait(self, h.env)); // all results are there
                if (self.agent == 0)
                    *(uint64_t *)(h.window + p.sums + 8 * variant) += collect_on_host(p);
            }
        return gic::OK;
    }

#endif

    static void finish(const Params &p, gic::Arena &mem, gic::Results &out) {
        if (!p.sends)
            return;
        static const char *const names[VARIANTS] = {"absent", "dormant", "send", "send_wait"};
        const size_t n = (size_t)p.rounds * p.blocks;
        std::vector<double> hz;
        for (uint32_t v = 0; v < p.variants; v++)
            times(p, mem.download(loops_of(p, v, 0), n), names[v], out, &hz);
        const std::vector<gic::Loop> alone = mem.download(p.alone, n);
        if (alone[0].ran())
            times(p, alone, "alone", out, &hz);
        if (!hz.empty())
            out.add("clock_hz", "1", std::move(hz));
        const std::vector<uint32_t> shape = mem.download(p.shape, 6);
        if (shape[0] == 0)
            return; // threads of this machine have none
        out.add("registers", "1", {(double)shape[0], (double)shape[3]});
        out.add("local_bytes", "B", {(double)shape[1], (double)shape[4]});
        out.add("blocks_per_sm", "1", {(double)shape[2], (double)shape[5]});
    }

  private:
    template <uint32_t W> static void work_of(const Params &p, uint64_t thread) {
        switch (p.live) {
        case 8:
            return one<W, 8>(p, thread);
        case 16:
            return one<W, 16>(p, thread);
        case 32:
            return one<W, 32>(p, thread);
        default:
            return one<W, 64>(p, thread);
        }
    }
    template <uint32_t W, uint32_t N> static void one(const Params &p, uint64_t thread) {
        Thread<W, N> t;
        t.load(p, thread);
        t.run(p, thread);
    }
    static void work_on_host(const Params &p, uint32_t block) {
        for (uint64_t i = 0; i < p.threads; i++)
            p.work == STREAM ? work_of<STREAM>(p, (uint64_t)block * p.threads + i)
                             : work_of<COMPUTE>(p, (uint64_t)block * p.threads + i);
    }
    static uint64_t collect_on_host(const Params &p) {
        uint64_t sum = 0;
        for (uint64_t i = 0; i < p.results; i++) {
            sum += p.out[i];
            p.out[i] = 0;
        }
        return sum;
    }

    // The kernel's time in each round, and what clock64 ran at in all of them.
    static void times(const Params &p, const std::vector<gic::Loop> &loops, const char *what,
                      gic::Results &out, std::vector<double> *hz) {
        std::vector<double> ns;
        double ticks = 0, spent = 0;
        for (uint32_t r = 0; r < p.rounds; r++) {
            std::vector<gic::Interval> spans;
            for (uint32_t b = 0; b < p.blocks; b++) {
                const gic::Loop &l = loops[(size_t)r * p.blocks + b];
                spans.push_back(gic::Interval{l.begin.timer, l.end.timer});
                ticks += (double)(l.end.clock - l.begin.clock);
                spent += (double)(l.end.timer - l.begin.timer);
            }
            ns.push_back(gic::union_ns(spans, 0, p.blocks));
        }
        out.add(what, "ns", std::move(ns));
        hz->push_back(spent > 0 ? ticks / spent * 1e9 : 0);
    }
};

#endif
