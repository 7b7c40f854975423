// Package moe is the workload of expert parallelism: dispatch of token rows to the ranks of their experts, a
// stand-in for the experts, and combine, which brings the rows back and reduces them with the gate weights.
package moe

import (
	"fmt"
	"strconv"
	"strings"

	"gic/backends"
	"gic/workloads"
	"gic/workloads/routing"
	"gic/workloads/window"
)

// Workload is the moe workload.
type Workload struct{}

var (
	_ workloads.Workload  = Workload{}
	_ workloads.Simulator = (*job)(nil)
)

// Name is "moe".
func (Workload) Name() string { return "moe" }

// Doc is one line for `gic list`.
func (Workload) Doc() string { return "dispatch and combine of a mixture of experts" }

// Method says what is timed.
func (Workload) Method() string {
	return `Experts lie in blocks by rank. layout=expert sends one row per (token, expert); layout=rank one per (token, rank). Messages to one expert of one rank (layout=rank: to one rank) form a channel, which ends with one strong signal, on every iteration, also when it is empty. One agent sends a channel in order, or several share it (share): each completes its own rows, and the last one signals. What stays on its rank is copied locally, by all agents, as they all share the experts' products and the reduction.
dispatch: on each rank from the first agent's first post until the last agent has seen the signals of all incoming channels; completion at the sender is not included. Then, outside the time, each expert multiplies its rows by a factor of its own; with layout=rank the products of one (token, rank) are summed with their gate weights there (fp32, rounded once to bf16).
combine: from the first post of the rows back until the owner has reduced all its tokens (layout=expert: with the gate weights; fp32 in fixed order, rounded once to bf16). reduce: that reduction alone, contained in combine.
All times are by globaltimer on each rank, per iteration; the sample is the largest over the ranks. Both halves start behind a barrier of all ranks, outside the time. Warm-up iterations are dropped. Rows are bf16; the received rows, the rows sent back and the result are checked byte by byte, the result also against a float64 reference, within the bound that bf16 rounding implies.
A library with dispatch and combine of its own (deepep) gets the same rows and routing. dispatch, combine: from behind a barrier of all ranks to the end of the operation, in a CUDA graph, the experts' factor in between, outside the time; empty: the same with nothing in between. pair: both back to back, without a barrier. *_kernel: the kernel on the rank that came last; *_wait: how much longer it ran on another. *_launch: the call on the host. *_logical, *_wire: a rank's bytes by that time, of all selections, and of the messages to other ranks.`
}

// Axes are the swept parameters.
func (Workload) Axes() []workloads.Axis {
	key := func(name, value, allowed, help string) workloads.Axis {
		return workloads.Axis{Key: backends.Key{Name: name, Default: value, Allowed: allowed, Help: help}}
	}
	return []workloads.Axis{
		key("model", "mixtral-8x7b", strings.Join(modelNames(), "|"), "shape by name, or custom: give hidden, experts and topk"),
		key("hidden", "0", "0..65536", "elements of a row, a multiple of 8; 0: the model's"),
		key("experts", "0", "0..4096", "experts of all ranks, a multiple of the ranks; 0: the model's"),
		key("topk", "0", "0..64", "experts per token; 0: the model's"),
		key("tokens", "16", "1..65536", "tokens per rank"),
		key("layout", "expert", "expert|rank", "one message per (token, expert), or per (token, rank)"),
		key("routing", "uniform", "", routing.Specs),
		key("masked", "0", "", "fraction of the entries struck out, 0 to 1"),
		key("threads", "1", "1..65536", "device threads of a rank"),
		key("share", "1", "0..4096", "agents that send one channel, each completing what it put; 0: as many as there are for each, at least one"),
		key("iterations", "20", "1..100000", "timed iterations"),
		key("warmup", "3", "0..100000", "iterations before, dropped"),
	}
}

// maxEntries bounds the routing table that every rank builds.
const maxEntries = 1 << 24

type job struct {
	ranks              int
	seed               uint64
	point              workloads.Point
	shape              shape
	tokens             int
	byRank             bool
	threads, share     int
	iterations, warmup int
	masked             float64

	table *routing.Table
	plan  *plan

	bytes                 uint64
	barrier               window.Words
	dispatched            window.Words // channel * ranks + source rank
	combined              window.Words // expert rank * channels + channel
	x, recv, y, back, out window.Slots
}

// Prepare makes the job of a point.
func (Workload) Prepare(p workloads.Point, ranks int, seed uint64) (workloads.Job, error) {
	j := &job{ranks: ranks, seed: seed, point: p}
	if err := j.parse(); err != nil {
		return nil, fmt.Errorf("moe: %w", err)
	}
	var err error
	j.table, err = routing.Generate(routing.Config{
		Ranks: ranks, Tokens: j.tokens, Experts: j.shape.experts, TopK: j.shape.topk,
		Spec: p["routing"], Masked: j.masked, Seed: seed,
	})
	if err != nil {
		return nil, fmt.Errorf("moe: %w", err)
	}
	j.plan = newPlan(j.table, j.byRank)
	row := uint64(j.shape.hidden) * 2
	var l window.Layout
	j.barrier = l.Words(ranks)
	j.dispatched, j.combined = l.Words(ranks*j.plan.channels), l.Words(ranks*j.plan.channels)
	j.x, j.out = l.Slots(j.tokens, row), l.Slots(j.tokens, row)
	j.recv, j.y = l.Slots(j.plan.maxRecv, row), l.Slots(j.plan.maxRecv, row)
	j.back = l.Slots(j.plan.maxBack, row)
	j.bytes = l.Bytes()
	if err := workloads.CheckWindow(j.bytes, "tokens, topk or hidden"); err != nil {
		return nil, fmt.Errorf("moe: %w", err)
	}
	return j, nil
}

func (j *job) parse() error {
	p := j.point
	if j.ranks < 1 {
		return fmt.Errorf("ranks=%d is not allowed: at least 1", j.ranks)
	}
	model, err := p.OneOf("model", modelNames()...)
	if err != nil {
		return err
	}
	if model < len(models) {
		j.shape = models[model]
	}
	var hidden, experts, topk int
	for _, a := range []struct {
		axis      string
		low, high int
		value     *int
	}{
		{"hidden", 0, 65536, &hidden},
		{"experts", 0, 4096, &experts},
		{"topk", 0, 64, &topk},
		{"tokens", 1, 65536, &j.tokens},
		{"threads", 1, 65536, &j.threads},
		{"share", 0, 4096, &j.share},
		{"iterations", 1, 1e5, &j.iterations},
		{"warmup", 0, 1e5, &j.warmup},
	} {
		if *a.value, err = p.Within(a.axis, a.low, a.high); err != nil {
			return err
		}
	}
	for _, o := range []struct {
		axis  string
		given int
		value *int
	}{{"hidden", hidden, &j.shape.hidden}, {"experts", experts, &j.shape.experts}, {"topk", topk, &j.shape.topk}} {
		if o.given != 0 {
			*o.value = o.given
		}
		if *o.value == 0 {
			return fmt.Errorf("%s=0 is not allowed with model=custom: give hidden, experts and topk", o.axis)
		}
	}
	switch {
	case j.shape.hidden%8 != 0:
		return fmt.Errorf("hidden=%d is not allowed: a multiple of 8", j.shape.hidden)
	case j.shape.experts%j.ranks != 0:
		return fmt.Errorf("experts=%d is not allowed: a multiple of ranks=%d", j.shape.experts, j.ranks)
	case j.shape.topk > j.shape.experts:
		return fmt.Errorf("topk=%d is not allowed: at most experts=%d", j.shape.topk, j.shape.experts)
	}
	if entries := j.ranks * j.tokens * j.shape.topk; entries > maxEntries {
		return fmt.Errorf("tokens=%d is not allowed: ranks x tokens x topk is %d, at most %d", j.tokens, entries, maxEntries)
	}
	layout, err := p.OneOf("layout", "expert", "rank")
	if err != nil {
		return err
	}
	j.byRank = layout == 1
	j.masked, err = strconv.ParseFloat(p["masked"], 64)
	if err != nil || !(j.masked >= 0 && j.masked <= 1) {
		return fmt.Errorf("masked=%s is not allowed: a number in 0..1", p["masked"])
	}
	return nil
}

// WindowBytes is the window each rank needs.
func (j *job) WindowBytes() uint64 { return j.bytes }

// Needs are the capabilities the kernel uses.
func (j *job) Needs() backends.Caps {
	return backends.CapPut | backends.CapSignal | backends.CapWait | backends.CapQuiet
}

// Fill writes the rank's window before the run.
func (j *job) Fill(rank int, m workloads.Memory) error {
	for _, w := range []window.Words{j.barrier, j.dispatched, j.combined} {
		if err := w.Clear(m); err != nil {
			return err
		}
	}
	if err := j.x.Fill(m, j.sourceRow(rank)); err != nil {
		return err
	}
	for _, s := range []window.Slots{j.recv, j.y, j.back, j.out} {
		if err := s.Fill(m, window.Empty); err != nil {
			return err
		}
	}
	return nil
}

// Ops is the message list of one rank.
func (j *job) Ops(rank int) workloads.Ops {
	var o workloads.Ops
	rounds, others := uint64(j.warmup+j.iterations), uint64(j.ranks-1)
	channels := uint64(j.plan.channels)
	// Two barriers, and a signal per channel of another rank in dispatch and in combine.
	o.Add(backends.OpSignal, rounds*others*(2+2*channels), 8)
	rows := uint64(j.plan.sent(rank) + j.plan.returned(rank))
	o.Add(backends.OpPut, rounds*rows, j.x.Size)
	return o
}

// Summarize takes the slowest rank of each iteration.
func (j *job) Summarize(results []workloads.RankResult) (workloads.Summary, error) {
	st := j.table.Stats()
	rows := 0
	for rank := range j.ranks {
		rows += j.plan.sent(rank)
	}
	s := workloads.Summary{Facts: map[string]any{
		"routing_hash":           j.table.Hash(),
		"hidden":                 j.shape.hidden,
		"experts":                j.shape.experts,
		"topk":                   j.shape.topk,
		"dtype":                  "bf16",
		"max_mean_expert":        st.MaxMeanExpert,
		"max_mean_rank":          st.MaxMeanRank,
		"gini":                   st.Gini,
		"assignments":            st.Assignments,
		"dedup_copies":           st.Copies,
		"dispatch_messages":      rows,
		"combine_messages":       rows,
		"dispatch_logical_bytes": uint64(st.Assignments) * j.x.Size,
		"combine_logical_bytes":  uint64(st.Assignments) * j.x.Size,
		"dispatch_wire_bytes":    uint64(rows) * j.x.Size,
		"combine_wire_bytes":     uint64(rows) * j.x.Size,
	}}
	if hz := workloads.LaunchClocks(results); hz != nil {
		s.Facts["clock_hz"] = hz
	}
	for _, name := range []string{"dispatch", "combine", "reduce"} {
		times, err := workloads.Slowest(results, j.ranks, name, j.iterations)
		if err != nil {
			return s, fmt.Errorf("moe: %w", err)
		}
		s.Metrics = append(s.Metrics, workloads.Metric{
			Name: name, Unit: "s", Class: workloads.Time, Samples: times, Headline: name != "reduce",
		})
	}
	return s, nil
}
