package moe

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"

	"gic/backends"
	"gic/workloads"
	"gic/workloads/window"
)

// operation is the job for a library that has dispatch and combine as operations of its own (backends.CapMoE): it is
// given the token rows, the routing and the experts' factors, and leaves the rows that it received and the result in
// the window. How it brings a row back is its own business, so that there is no area of returned rows.
//
// A run is a fixed number of pairs of dispatch and combine, whatever they take: the message list is known beforehand.
type operation struct {
	j            *job
	bytes        uint64
	format       window.Words // one word: significant bits of an element on its way to the experts
	x, recv, out window.Slots
}

var (
	_ workloads.Whole = (*job)(nil)
	_ workloads.Job   = (*operation)(nil)
)

// Pairs beside those of the axes: replays of a graph of `iterations` pairs, before the measured ones, measured, and
// under a profiler of kernels; and runs of the graph that takes the time of each half, all but the last for warm-up.
const (
	graphWarm   = 2
	graphTimed  = 10
	graphTraced = 1
	halvesRuns  = 2
)

// WholeCaps is moe.
func (j *job) WholeCaps() backends.Caps { return backends.CapMoE }

// Whole is the job for such a library.
func (j *job) Whole() workloads.Job {
	o := &operation{j: j}
	row := uint64(j.shape.hidden) * 2
	var l window.Layout
	o.format = l.Words(1)
	o.x, o.out = l.Slots(j.tokens, row), l.Slots(j.tokens, row)
	o.recv = l.Slots(j.plan.maxRecv, row)
	o.bytes = l.Bytes()
	return o
}

// pairs are the pairs of dispatch and combine of one run. Only with one row per expert do libraries send and receive
// in two phases.
func (o *operation) pairs() int {
	each := o.j.warmup + o.j.iterations
	n := each + (graphWarm+graphTimed+graphTraced)*o.j.iterations + halvesRuns*each
	if !o.j.byRank {
		n += each
	}
	return n
}

// WindowBytes is the window each rank needs.
func (o *operation) WindowBytes() uint64 { return o.bytes }

// Needs are the capabilities of the library.
func (o *operation) Needs() backends.Caps { return backends.CapMoE }

// Fill writes the rank's window before the run.
func (o *operation) Fill(rank int, m workloads.Memory) error {
	if err := o.format.Clear(m); err != nil {
		return err
	}
	if err := o.x.Fill(m, o.j.sourceRow(rank)); err != nil {
		return err
	}
	for _, s := range []window.Slots{o.recv, o.out} {
		if err := s.Fill(m, window.Empty); err != nil {
			return err
		}
	}
	return nil
}

// Run gives the library's inputs: of this rank's tokens `experts` (int32, -1: struck out) and `gates` (float32), of all
// experts `factors` (float32). Received rows belong in the order of expert, source rank and token, with layout=rank of
// source rank and token. routing_hash is that of the table of all ranks.
func (o *operation) Run(rank int) (backends.Run, error) {
	args := o.j.point.Args(o.j.seed)
	for key, v := range map[string]int{
		"hidden": o.j.shape.hidden, "experts": o.j.shape.experts, "topk": o.j.shape.topk, "tokens": o.j.tokens,
		"iterations": o.j.iterations, "warmup": o.j.warmup, "pairs": o.pairs(),
		"graph_warm": graphWarm, "graph_timed": graphTimed, "graph_traced": graphTraced, "halves_runs": halvesRuns,
	} {
		args[key] = strconv.Itoa(v)
	}
	for key, v := range map[string]uint64{
		"x": o.x.Offset, "recv": o.recv.Offset, "recv_rows": uint64(o.recv.Count), "out": o.out.Offset, "format": o.format.Offset,
	} {
		args[key] = strconv.FormatUint(v, 10)
	}
	args["layout"] = "expert"
	if o.j.byRank {
		args["layout"] = "rank"
	}
	args["routing_hash"] = o.j.table.Hash()
	n := o.j.tokens * o.j.shape.topk
	experts, gates := make([]byte, 0, 4*n), make([]byte, 0, 4*n)
	for token := range o.j.tokens {
		e, g := o.j.table.At(rank, token)
		for k := range e {
			experts = binary.LittleEndian.AppendUint32(experts, uint32(e[k]))
			gates = binary.LittleEndian.AppendUint32(gates, math.Float32bits(g[k]))
		}
	}
	factors := make([]byte, 0, 4*o.j.shape.experts)
	for e := range o.j.shape.experts {
		factors = binary.LittleEndian.AppendUint32(factors, math.Float32bits(factor(e)))
	}
	return backends.Run{Workload: "moe", Args: args, Blobs: []backends.Blob{
		{Name: "experts", Data: experts}, {Name: "gates", Data: gates}, {Name: "factors", Data: factors},
	}}, nil
}

// Ops is the message list of one rank: of each pair, a put per row that it sends or returns to another rank, and with
// one row per expert a signal per pair of an expert and another rank in each direction. A library that sends one row
// per rank has signals of its own design; none of them runs over a NIC that counts.
func (o *operation) Ops(rank int) workloads.Ops {
	var ops workloads.Ops
	pairs := uint64(o.pairs())
	ops.Add(backends.OpPut, pairs*uint64(o.j.plan.sent(rank)+o.j.plan.returned(rank)), o.x.Size)
	if !o.j.byRank {
		ops.Add(backends.OpSignal, pairs*2*uint64(o.j.plan.channels)*uint64(o.j.ranks-1), 4)
	}
	return ops
}

// Significant bits of the formats in which rows travel.
const (
	bitsBF16 = 8
	bitsE4M3 = 4
)

// Verify checks the rank's window after the run: received rows byte by byte, or where they travelled in fewer bits
// within their rounding; the result against the float64 reference.
func (o *operation) Verify(rank int, m workloads.Memory) (workloads.Verification, error) {
	c := window.NewCheck(rank, m)
	var word [8]byte
	if err := m.Read(o.format.At(0), word[:]); err != nil {
		return c.Result, err
	}
	bits := binary.LittleEndian.Uint64(word[:])
	if bits != bitsBF16 && bits != bitsE4M3 {
		return c.Result, fmt.Errorf("moe: the library left %d significant bits as the format of rows; allowed: %d, %d", bits, bitsBF16, bitsE4M3)
	}
	if err := o.x.Wipe(m); err != nil {
		return c.Result, err
	}
	if err := c.Guards("token rows", o.x); err != nil {
		return c.Result, err
	}
	if err := c.Guards("result", o.out); err != nil {
		return c.Result, err
	}
	want := o.j.expect(rank).recv
	travel := 0.0 // largest relative error of a row's element at the experts
	if bits == bitsBF16 {
		if err := c.Slots("received rows", o.recv, want); err != nil {
			return c.Result, err
		}
	} else {
		// Half a unit in the last place, and the rounding back to bf16.
		travel = math.Pow(2, -float64(bits)) * (1 + 1.0/128)
		if err := o.verifyRounded(rank, m, c, want, travel); err != nil {
			return c.Result, err
		}
	}
	if c.Result.Wrong > 0 {
		return c.Result, nil
	}
	return c.Result, o.verifySums(rank, m, c, travel)
}

// verifyRounded compares the received rows within a relative error; slots without a row must be as they were filled.
func (o *operation) verifyRounded(rank int, m workloads.Memory, c *window.Check, image window.Image, travel float64) error {
	if err := c.Guards("received rows", o.recv); err != nil {
		return err
	}
	got, want := make([]byte, o.recv.Size), make([]byte, o.recv.Size)
	for i := range o.recv.Count {
		if err := m.Read(o.recv.At(i), got); err != nil {
			return err
		}
		if !image(i, want) {
			if err := c.Bytes("received rows", o.recv.At(i), slices.Repeat([]byte{window.Filler}, len(got)), func(int) string {
				return fmt.Sprintf("slot %d, which gets no row", i)
			}); err != nil {
				return err
			}
			continue
		}
		c.Result.Checked += uint64(len(got))
		for k := 0; k < len(got); k += 2 {
			g, w := element(got, k/2), element(want, k/2)
			o.compare(c, fmt.Sprintf("rank %d: received row %d element %d", rank, i, k/2), g, w, travel*math.Abs(w))
		}
	}
	return nil
}

// verifySums compares the result with the reference within its bound (verifyResult), widened by what a row may have
// lost on its way to the expert.
func (o *operation) verifySums(rank int, m workloads.Memory, c *window.Check, travel float64) error {
	const u = 1.0 / 256
	bound := (1+travel)*(1+u)*(1+u) - 1 + float64(o.j.shape.topk)/(1<<23)
	if o.j.byRank { // products are summed before they are rounded, and the sum of the gates may be rounded too
		bound += float64(o.j.shape.topk) / (1 << 22)
	}
	row := make([]byte, o.out.Size)
	for token := range o.j.tokens {
		if err := m.Read(o.out.At(token), row); err != nil {
			return err
		}
		c.Result.Checked += uint64(len(row))
		want, size := o.j.reference(rank, token)
		for i := range want {
			o.compare(c, fmt.Sprintf("rank %d: token %d element %d", rank, token, i), element(row, i), want[i], bound*size[i])
		}
	}
	return nil
}

func element(row []byte, i int) float64 {
	return float64(fromBF16(binary.LittleEndian.Uint16(row[2*i:])))
}

func (o *operation) compare(c *window.Check, what string, got, want, bound float64) {
	if math.Abs(got-want) <= bound {
		return
	}
	if c.Result.Wrong == 0 {
		c.Result.First = fmt.Sprintf("%s: %g, expected %g within %.2g", what, got, want, bound)
	}
	c.Result.Wrong += 2
}

// halves are the two operations, as the library's series name them.
var halves = []string{"dispatch", "combine"}

// Summarize makes the metrics. Each rank gives, in ns:
//
//	dispatch, combine              per iteration, from behind a barrier of all ranks to the end of the operation
//	empty                          the same with nothing in between
//	pair                           per replay of the graph of pairs, the time of one pair
//	dispatch_kernel, ...           per traced pair, how long the kernel ran, its wait for slower ranks included (may lack)
//	dispatch_launch, ...           per iteration, what the call took on the host
//	dispatch_send, _recv, ...      per iteration, the phases (may lack)
//
// and dispatch_message, combine_message, dispatch_row, combine_row (B), pairs (1).
func (o *operation) Summarize(results []workloads.RankResult) (workloads.Summary, error) {
	s, err := o.facts(results)
	if err != nil {
		return s, fmt.Errorf("moe: %w", err)
	}
	type timed struct {
		name     string
		n        int
		headline bool
		optional bool
	}
	list := []timed{{"dispatch", o.j.iterations, true, false}, {"combine", o.j.iterations, true, false},
		{"pair", graphTimed, true, false}, {"empty", o.j.iterations, false, false}}
	for _, half := range halves {
		list = append(list, timed{half + "_launch", o.j.iterations, false, false})
		for _, phase := range []string{"_send", "_recv"} {
			list = append(list, timed{half + phase, o.j.iterations, false, true})
		}
	}
	slowest := map[string][]float64{}
	for _, t := range list {
		if t.optional && !given(results, t.name) {
			continue
		}
		times, err := workloads.Slowest(results, o.j.ranks, t.name, t.n)
		if err != nil {
			return s, fmt.Errorf("moe: %w", err)
		}
		slowest[t.name] = times
		s.Metrics = append(s.Metrics, workloads.Metric{Name: t.name, Unit: "s", Class: workloads.Time, Samples: times, Headline: t.headline})
	}
	for _, half := range halves {
		if err := o.kernels(&s, results, half); err != nil {
			return s, fmt.Errorf("moe: %w", err)
		}
		for _, kind := range []string{"logical", "wire"} {
			bytes := float64(s.Facts[half+"_"+kind+"_bytes"].(uint64)) / float64(o.j.ranks)
			rate := make([]float64, o.j.iterations)
			for i, t := range slowest[half] {
				rate[i] = bytes / t
			}
			s.Metrics = append(s.Metrics, workloads.Metric{Name: half + "_" + kind, Unit: "B/s", Class: workloads.Bandwidth, Samples: rate})
		}
	}
	return s, nil
}

// given says whether some rank has the series: then every rank must.
func given(results []workloads.RankResult, name string) bool {
	return slices.ContainsFunc(results, func(r workloads.RankResult) bool { return r.Get(name) != nil })
}

// kernels splits what the kernels of one half took: the rank that came last waited for nobody, and what the others
// took longer is their waiting.
func (o *operation) kernels(s *workloads.Summary, results []workloads.RankResult, half string) error {
	name := half + "_kernel"
	if !given(results, name) {
		s.Warnings = append(s.Warnings, workloads.Warning{Code: "no_kernel_times", Text: "no durations of " + half + "'s kernel: the profiler gave none"})
		return nil
	}
	n := graphTraced * o.j.iterations
	fastest, wait := make([]float64, n), make([]float64, n)
	for rank, r := range results {
		values := workloads.Seconds(r.Get(name))
		if len(values) != n {
			return fmt.Errorf("rank %d gave %d values of %s, expected %d", rank, len(values), name, n)
		}
		for i, v := range values {
			if rank == 0 || v < fastest[i] {
				fastest[i] = v
			}
			wait[i] = max(wait[i], v)
		}
	}
	for i := range wait {
		wait[i] -= fastest[i]
	}
	s.Metrics = append(s.Metrics, workloads.Metric{Name: name, Unit: "s", Class: workloads.Time, Samples: fastest},
		workloads.Metric{Name: half + "_wait", Unit: "s", Class: workloads.Time, Samples: wait})
	return nil
}

// facts are those of the job, and the bytes and messages of the library's algorithm. Logical bytes are those of every
// selection, local ones included; wire bytes those of the messages to other ranks. The bandwidths are of one rank, on
// average, by the time of the slowest.
func (o *operation) facts(results []workloads.RankResult) (workloads.Summary, error) {
	st := o.j.table.Stats()
	rows := 0
	for rank := range o.j.ranks {
		rows += o.j.plan.sent(rank)
	}
	f := map[string]any{
		"routing_hash": o.j.table.Hash(), "hidden": o.j.shape.hidden, "experts": o.j.shape.experts, "topk": o.j.shape.topk,
		"max_mean_expert": st.MaxMeanExpert, "max_mean_rank": st.MaxMeanRank, "gini": st.Gini,
		"assignments": st.Assignments, "dedup_copies": st.Copies, "pairs": o.pairs(),
	}
	if !o.j.byRank {
		f["dispatch_signals"] = o.j.shape.experts * (o.j.ranks - 1)
		f["combine_signals"] = o.j.shape.experts * (o.j.ranks - 1)
	}
	s := workloads.Summary{Facts: f}
	for rank, r := range results {
		if done := r.Get("pairs"); len(done) != 1 || done[0] != float64(o.pairs()) {
			return s, fmt.Errorf("rank %d made %v pairs of dispatch and combine, expected %d", rank, done, o.pairs())
		}
	}
	for _, half := range halves {
		message, err := same(results, half+"_message")
		if err != nil {
			return s, err
		}
		row, err := same(results, half+"_row")
		if err != nil {
			return s, err
		}
		f[half+"_messages"] = rows
		f[half+"_message_bytes"] = uint64(message)
		f[half+"_row_bytes"] = uint64(row)
		f[half+"_logical_bytes"] = uint64(st.Assignments) * uint64(row)
		f[half+"_wire_bytes"] = uint64(rows) * uint64(message)
	}
	return s, nil
}

// same is the one value of a series, alike on all ranks.
func same(results []workloads.RankResult, name string) (float64, error) {
	first := 0.0
	for rank, r := range results {
		v := r.Get(name)
		if len(v) != 1 || rank > 0 && v[0] != first {
			return 0, fmt.Errorf("rank %d gave %v as %s, rank 0 %v", rank, v, name, results[0].Get(name))
		}
		first = v[0]
	}
	return first, nil
}
