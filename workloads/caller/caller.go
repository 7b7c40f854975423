// Package caller is the workload of what communication costs the kernel that calls it: registers, resident blocks
// and lost throughput, with the code there and unused, used, and waited for.
package caller

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"gic/backends"
	"gic/workloads"
	"gic/workloads/window"
)

// Workload is the caller workload.
type Workload struct{}

var (
	_ workloads.Workload  = Workload{}
	_ workloads.Simulator = (*job)(nil)
)

// Name is "caller".
func (Workload) Name() string { return "caller" }

// Doc is one line for `gic list`.
func (Workload) Doc() string {
	return "what communication costs the kernel that calls it: registers, resident blocks, throughput"
}

// Method says what is timed.
func (Workload) Method() string {
	return `Rank 0 runs a kernel of ` + "`blocks`" + ` blocks; each sends ` + "`messages`" + ` messages to rank 1 and does its work, one fused multiply-add per value and iteration: on registers (compute), or from one array in memory to another (stream). Every thread holds ` + "`live`" + ` values across the communication code. Other ranks only receive.
Four variants: absent has no communication code; dormant has it behind a branch that nobody takes; in send one agent (a thread, or a warp where the backend posts by warps) per block posts the messages, and the block works; in send_wait the block's work starts when the agent's flush has returned. The last three are the same binary.
absent, dormant, send, send_wait: time from the first block's first to the last block's last instruction, by globaltimer, one sample per round. A round runs every variant once, each time in another order; what send left open is completed after the timed part.
kept_dormant, kept_send, kept_wait: throughput relative to absent in the same round, absent's time by the variant's; 1 minus it is the lost throughput. Where the NIC is an engine on the GPU it is resident in every variant, absent included; alone is absent's time without it, measured after the others.
On a CUDA device the facts give registers and local memory (spills) per thread and the blocks of one multiprocessor, as compiled, for absent and for the others; with bound=8 the compiler keeps to the registers that 8 resident blocks of 256 threads leave each thread, and spills the rest. On threads of this machine a block is one thread that does the work of all its threads.`
}

// The variants, in the device half's order, and the most rounds of which every sample is kept.
var variants = []string{"absent", "dormant", "send", "send_wait"}

const (
	silent = 2 // variants that post nothing
	// inputs and c are those of caller.cuh.
	inputs = 64
	c      = float32(-1.9)
	// maxResults bounds the arrays of work=stream, 4 B each for input and result.
	maxResults = 1 << 32
)

// Axes are the swept parameters.
func (Workload) Axes() []workloads.Axis {
	key := func(name, value, allowed, help string) workloads.Axis {
		return workloads.Axis{Key: backends.Key{Name: name, Default: value, Allowed: allowed, Help: help}}
	}
	return []workloads.Axis{
		key("work", "compute", "compute|stream", "multiply-adds on registers, or from memory to memory"),
		key("live", "8", "8|16|32|64", "values a thread holds across the communication code"),
		key("messages", "1", "0..1024", "messages of a block; 0: absent and dormant only"),
		key("size", "8", "1..1048576", "payload bytes of one message"),
		key("blocks", "1", "1..16384", "blocks of the kernel, each with one sender"),
		key("threads", "256", "32..256", "threads of a block, a multiple of 32"),
		key("call", "inlined", "inlined|apart", "communication code in the kernel, or called through a pointer, as that of a linked library, on a CUDA device"),
		key("bound", "1", "1|8|28", "resident blocks per multiprocessor that the kernels are compiled for, on a CUDA device; 1: registers as the compiler likes; 28: as many registers a thread, three more than absent needs (work=compute, live=8, call=apart)"),
		key("iterations", "1024", "1..16777216", "multiply-adds per value"),
		key("rounds", "10", "1..10000", "times each variant runs"),
		key("warmup", "2", "0..10000", "rounds before, not timed"),
	}
}

type job struct {
	ranks                     int
	seed                      uint64
	point                     workloads.Point
	stream                    bool
	live, messages, size      int
	blocks, threads           int
	iterations, rounds, drops int
	call, bound               int
	bytes                     uint64
	sums                      window.Words
	source, target            window.Slots
}

// Prepare makes the job of a point.
func (Workload) Prepare(p workloads.Point, ranks int, seed uint64) (workloads.Job, error) {
	j := &job{ranks: ranks, seed: seed, point: p}
	if err := j.parse(); err != nil {
		return nil, fmt.Errorf("caller: %w", err)
	}
	var l window.Layout
	j.sums = l.Words(len(variants))
	j.source = l.Slots(j.blocks*j.messages, uint64(j.size))
	j.target = l.Slots(j.blocks*j.messages, uint64(j.size))
	j.bytes = l.Bytes()
	if err := workloads.CheckWindow(j.bytes, "size, messages or blocks"); err != nil {
		return nil, fmt.Errorf("caller: %w", err)
	}
	return j, nil
}

func (j *job) parse() error {
	p := j.point
	if j.ranks < 2 {
		return fmt.Errorf("ranks=%d is not allowed: at least 2", j.ranks)
	}
	work, err := p.OneOf("work", "compute", "stream")
	if err != nil {
		return err
	}
	j.stream = work == 1
	if _, err := p.OneOf("live", "8", "16", "32", "64"); err != nil {
		return err
	}
	if j.call, err = p.OneOf("call", "inlined", "apart"); err != nil {
		return err
	}
	if _, err := p.OneOf("bound", "1", "8", "28"); err != nil {
		return err
	}
	for _, a := range []struct {
		axis      string
		low, high int
		value     *int
	}{
		{"live", 8, 64, &j.live},
		{"messages", 0, 1024, &j.messages},
		{"size", 1, 1 << 20, &j.size},
		{"blocks", 1, 16384, &j.blocks},
		{"threads", 32, 256, &j.threads},
		{"bound", 1, 28, &j.bound},
		{"iterations", 1, 1 << 24, &j.iterations},
		{"rounds", 1, 10000, &j.rounds},
		{"warmup", 0, 10000, &j.drops},
	} {
		if *a.value, err = p.Within(a.axis, a.low, a.high); err != nil {
			return err
		}
	}
	if j.threads%32 != 0 {
		return fmt.Errorf("threads=%d is not allowed: a multiple of 32", j.threads)
	}
	if n := j.results(); n > maxResults {
		return fmt.Errorf("work=stream writes %d values, at most %d are allowed; lower live, blocks, threads or iterations", n, uint64(maxResults))
	}
	return nil
}

// results is the number of values that one run of the kernel writes.
func (j *job) results() uint64 {
	n := uint64(j.blocks) * uint64(j.threads)
	if j.stream {
		n *= uint64(j.live) * uint64(j.iterations)
	}
	return n
}

// ran are the variants that this point has.
func (j *job) ran() []string {
	if j.messages == 0 {
		return variants[:silent]
	}
	return variants
}

// WindowBytes is the window each rank needs.
func (j *job) WindowBytes() uint64 { return j.bytes }

// Needs are the capabilities the kernel uses.
func (j *job) Needs() backends.Caps {
	return backends.CapPut | backends.CapFlush | backends.CapQuiet
}

// Run gives the kernel's inputs.
func (j *job) Run(rank int) (backends.Run, error) {
	args := j.point.Args(j.seed)
	b2i := map[bool]uint64{true: 1}
	for key, v := range map[string]uint64{
		"sends": b2i[rank == 0], "peer": 1, "work": b2i[j.stream], "live": uint64(j.live), "apart": uint64(j.call), "bound": uint64(j.bound),
		"blocks": uint64(j.blocks), "threads": uint64(j.threads), "iterations": uint64(j.iterations),
		"bytes": uint64(j.size), "messages": uint64(j.messages), "rounds": uint64(j.rounds), "warmup": uint64(j.drops),
		"src": j.source.Offset, "dst": j.target.Offset, "stride": j.target.Stride, "sums": j.sums.Offset,
	} {
		args[key] = strconv.FormatUint(v, 10)
	}
	return backends.Run{Workload: "caller", Args: args}, nil
}

// Fill writes the rank's window before the run.
func (j *job) Fill(rank int, m workloads.Memory) error {
	if err := j.sums.Clear(m); err != nil {
		return err
	}
	if err := j.source.Fill(m, window.Source(j.seed, rank)); err != nil {
		return err
	}
	return j.target.Fill(m, window.Empty)
}

// Ops is the message list of one rank.
func (j *job) Ops(rank int) workloads.Ops {
	var o workloads.Ops
	if rank == 0 {
		sending := uint64(len(j.ran()) - silent)
		o.Add(backends.OpPut, sending*uint64(j.drops+j.rounds)*uint64(j.blocks)*uint64(j.messages), uint64(j.size))
	}
	return o
}

// sum is what the results of one variant add up to over all rounds.
func (j *job) sum() uint64 {
	var results [inputs]uint32 // of a thread's value that began as input i
	steps := j.iterations
	if j.stream {
		steps = 1
	}
	for i := range results {
		v := float32(i)/32 - 1
		for range steps {
			v = fma32(v, v, c)
		}
		results[i] = math.Float32bits(v)
	}
	if !j.stream { // a thread adds its values up, which begin at its own number
		values := results
		for i := range results {
			results[i] = 0
			for k := range j.live {
				results[i] += values[(i+k)%inputs]
			}
		}
	}
	n, once := j.results(), uint64(0)
	for i, r := range results {
		once += (n + inputs - 1 - uint64(i)) / inputs * uint64(r)
	}
	return once * uint64(j.drops+j.rounds)
}

// fma32 is x*y + z rounded once, to single precision, as a GPU and fmaf of C do it. The product is exact in double
// precision; a sum that is not is made odd in its last bit towards the exact one, so that the second rounding sees on
// which side of a tie it lies (Boldo and Melquiond, Emulation of FMA and Correctly Rounded Sums, 2008).
func fma32(x, y, z float32) float32 {
	p, q := float64(x)*float64(y), float64(z)
	s := p + q
	back := s - p
	e := (p - (s - back)) + (q - back)
	if e != 0 && math.Float64bits(s)&1 == 0 {
		s = math.Nextafter(s, math.Copysign(math.Inf(1), e))
	}
	return float32(s)
}

// arrived is the image of a rank's target area after the run.
func (j *job) arrived(rank int) window.Image {
	if rank == 1 {
		return window.Source(j.seed, 0)
	}
	return window.Empty
}

// Verify checks the rank's window after the run.
func (j *job) Verify(rank int, m workloads.Memory) (workloads.Verification, error) {
	c := window.NewCheck(rank, m)
	if err := j.source.Wipe(m); err != nil {
		return c.Result, err
	}
	if err := c.Guards("source", j.source); err != nil {
		return c.Result, err
	}
	if err := c.Slots("target", j.target, j.arrived(rank)); err != nil {
		return c.Result, err
	}
	for i := range j.sums.Count {
		want := uint64(0)
		if rank == 0 && i < len(j.ran()) {
			want = j.sum()
		}
		if err := c.Word("sum of the results of "+variants[i], j.sums.At(i), want); err != nil {
			return c.Result, err
		}
	}
	return c.Result, nil
}

// Simulate leaves the windows as the kernels would.
func (j *job) Simulate(windows []workloads.Memory) ([]workloads.RankResult, error) {
	results := make([]workloads.RankResult, j.ranks)
	for i := range j.source.Count {
		if err := window.Copy(windows[1], j.target.At(i), windows[0], j.source.At(i), j.source.Size); err != nil {
			return nil, err
		}
	}
	for i, name := range j.ran() {
		if err := j.sums.Set(windows[0], i, j.sum()); err != nil {
			return nil, err
		}
		results[0].Series = append(results[0].Series,
			backends.Series{Name: name, Unit: "ns", Values: slices.Repeat([]float64{float64(1000 + 10*i)}, j.rounds)})
	}
	results[0].Series = append(results[0].Series,
		backends.Series{Name: "clock_hz", Unit: "1", Values: slices.Repeat([]float64{1e9}, len(j.ran()))})
	return results, nil
}

// Summarize turns rank 0's series into metrics.
func (j *job) Summarize(results []workloads.RankResult) (workloads.Summary, error) {
	s := workloads.Summary{Facts: map[string]any{}}
	if len(results) != j.ranks {
		return s, fmt.Errorf("caller: %d results for %d ranks", len(results), j.ranks)
	}
	times := make([][]float64, len(j.ran()))
	for i, name := range j.ran() {
		times[i] = workloads.Seconds(results[0].Get(name))
		if len(times[i]) != j.rounds || slices.Min(times[i]) <= 0 {
			return s, fmt.Errorf("caller: rank 0 gave %d times of %s, expected %d above 0", len(times[i]), name, j.rounds)
		}
		s.Metrics = append(s.Metrics, workloads.Metric{Name: name, Unit: "s", Class: workloads.Time, Samples: times[i], Headline: i == 0})
		s.Facts["throughput_"+name] = j.work() / workloads.Median(times[i])
	}
	s.Facts["throughput_unit"] = "multiply-adds/s"
	if j.stream {
		s.Facts["throughput_unit"] = "B/s"
	}
	for i, name := range []string{"kept_dormant", "kept_send", "kept_wait"}[:len(times)-1] {
		kept := make([]float64, j.rounds)
		for round, t := range times[i+1] {
			kept[round] = times[0][round] / t
		}
		s.Metrics = append(s.Metrics, workloads.Metric{Name: name, Unit: "1", Class: workloads.Number, Samples: kept, Headline: true})
	}
	if alone := workloads.Seconds(results[0].Get("alone")); len(alone) > 0 {
		s.Metrics = append(s.Metrics, workloads.Metric{Name: "alone", Unit: "s", Class: workloads.Time, Samples: alone, Headline: true})
	}
	for _, name := range []string{"registers", "local_bytes", "blocks_per_sm"} {
		if v := results[0].Get(name); len(v) == 2 {
			s.Facts[name+"_absent"], s.Facts[name+"_code"] = v[0], v[1]
		}
	}
	workloads.AddClocks(&s, results[0].Get("clock_hz"))
	return s, nil
}

// work is what one run of the kernel does: multiply-adds, or bytes read and written.
func (j *job) work() float64 {
	if j.stream {
		return 8 * float64(j.results())
	}
	return float64(j.results()) * float64(j.live) * float64(j.iterations)
}
