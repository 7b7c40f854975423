// Package op is the workload of single operations: what it costs to issue one, to issue and complete one, and to
// have it answered.
package op

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"gic/backends"
	"gic/workloads"
	"gic/workloads/window"
)

// Workload is the op workload.
type Workload struct{}

var (
	_ workloads.Workload  = Workload{}
	_ workloads.Simulator = (*job)(nil)
	_ workloads.Sweep     = (*job)(nil)
)

// Name is "op".
func (Workload) Name() string { return "op" }

// Doc is one line for `gic list`.
func (Workload) Doc() string {
	return "one operation at a time from rank 0 to rank 1: issue, completion, round trip"
}

// Method says what is timed.
func (Workload) Method() string {
	return `One device thread of rank 0 works on rank 1; other ranks only join the barriers at both ends.
issue: a round is ` + "`posts`" + ` back-to-back operations, timed from before the first to after the last, divided by their number; the ring is flushed between rounds, outside the timed part. The value of a process run is the median over the rounds; with places=N there are N of them, one per place, and the process run's is their median. posts must stay below the backend's queue depth, or the value includes waits for slots. For atomic it is an add without result.
put_completion (put, put_signal): per operation, from before the put until flush to rank 1 returns. completion (read, atomic): per operation, get and flush, or a fetch-and-add until its old value is here.
rtt (put, put_signal): per operation, from before rank 0's message until rank 0 sees rank 1's answer of the same size, each stack with its own notification (put: notify; put_signal: a put with a signal behind it). one_way is rtt / 2, never a time across two clocks. Every 64 echoes both ranks flush, after the sample, so that no ring fills.
All samples are taken by clock64 on the posting thread and converted with the tick rate that the loop itself measures against globaltimer. Warm-up operations come first in the same loop and are dropped.
Timer check: in a second echo loop rank 1 delays one of every two answers by 50 us and the other not (which of the two follows the Golay-Rudin-Shapiro sequence, so that what a stack does at every so many-th message falls to both alike), both longer by a part of 16 us that goes through that range evenly and is subtracted from the sample: a round trip ends with a poll, and a delay that is always the same moves where between two polls it falls. The delayed round trips must be longer by 49.6 to 50.3 us, as the median of all differences of a delayed and an undelayed one (Hodges and Lehmann's shift), give or take what that of as many undelayed ones among themselves may be off by chance (2.45 standard errors, for normal samples as far as two of a difference of medians; fact timer_check_tolerance); otherwise, or when that is above 0.5 us, the row carries the warning timer_check.`
}

var names = []string{"put", "put_signal", "atomic", "read"}

const (
	opPut = iota
	opPutSignal
	opAtomic
	opRead
)

const (
	warmRounds = 2
	barriers   = 2 // of all ranks in one run of the kernel
	// maxSlotBytes bounds the slots that successive operations rotate through.
	maxSlotBytes = 1 << 20
)

// Axes are the swept parameters.
func (Workload) Axes() []workloads.Axis {
	key := func(name, value, allowed, help string) workloads.Axis {
		return workloads.Axis{Key: backends.Key{Name: name, Default: value, Allowed: allowed, Help: help}}
	}
	return append([]workloads.Axis{
		key("op", "put", "put|put_signal|atomic|read", "operation"),
		key("size", "8", "8..1048576", "payload bytes of one operation"),
		key("iterations", "1000", "1..1000000", "operations per latency loop"),
		key("warmup", "100", "0..1000000", "operations before each latency loop, dropped"),
		key("posts", "256", "1..32768", "back-to-back operations per issue round; below the queue depth"),
		key("rounds", "20", "1..10000", "issue rounds"),
		key("responder_delay", "0", "0..1000000", "ns that rank 1 waits before it answers"),
		key("timer_check", "50", "0..100000", "delayed echoes of the timer check, and as many undelayed ones; 0 leaves it out"),
	}, workloads.PlacementAxes()...)
}

type job struct {
	ranks                   int
	seed                    uint64
	point                   workloads.Point
	op, size                int
	iterations, warmup      int
	posts, rounds           int
	delay, checks           int // checks: pairs of echoes
	placement               workloads.Placement
	bytes                   uint64
	barrier                 window.Words
	request, reply, counter window.Words
	source, target          window.Slots
}

// Prepare makes the job of a point.
func (Workload) Prepare(p workloads.Point, ranks int, seed uint64) (workloads.Job, error) {
	j := &job{ranks: ranks, seed: seed, point: p}
	if ranks < 2 {
		return nil, fmt.Errorf("op: ranks=%d is not allowed: at least 2", ranks)
	}
	var err error
	if j.op, err = p.OneOf("op", names...); err != nil {
		return nil, fmt.Errorf("op: %w", err)
	}
	for _, a := range []struct {
		axis      string
		low, high int
		value     *int
	}{
		{"size", 8, 1 << 20, &j.size},
		{"iterations", 1, 1e6, &j.iterations},
		{"warmup", 0, 1e6, &j.warmup},
		{"posts", 1, 32768, &j.posts},
		{"rounds", 1, 10000, &j.rounds},
		{"responder_delay", 0, 1e6, &j.delay},
		{"timer_check", 0, 1e5, &j.checks},
	} {
		if *a.value, err = p.Within(a.axis, a.low, a.high); err != nil {
			return nil, fmt.Errorf("op: %w", err)
		}
	}
	if err := j.placement.Parse(p); err != nil {
		return nil, fmt.Errorf("op: %w", err)
	}
	if j.op == opAtomic && j.size != 8 {
		return nil, fmt.Errorf("op: size=%s is not allowed with op=atomic: 8", p["size"])
	}
	if !j.echoes() {
		j.checks = 0
	}
	var l window.Layout
	j.barrier = l.Words(ranks)
	j.request, j.reply, j.counter = l.Words(1), l.Words(1), l.Words(1)
	slots := min(j.posts, max(1, maxSlotBytes/j.size))
	j.source = l.Slots(slots, uint64(j.size))
	j.target = l.Slots(slots, uint64(j.size))
	j.bytes = l.Bytes()
	return j, nil
}

// echoes says whether the operation has a round trip.
func (j *job) echoes() bool { return j.op == opPut || j.op == opPutSignal }

// Operations of each phase.
func (j *job) issued() int    { return j.posts * (warmRounds + j.rounds) }
func (j *job) completed() int { return j.warmup + j.iterations }
func (j *job) echoed() int {
	if !j.echoes() {
		return 0
	}
	return j.warmup + j.iterations + 2*j.checks
}

// WindowBytes is the window each rank needs.
func (j *job) WindowBytes() uint64 { return j.bytes }

// Needs are the capabilities the kernel uses.
func (j *job) Needs() backends.Caps {
	need := backends.CapSignal | backends.CapWait | backends.CapFlush | backends.CapQuiet
	switch j.op {
	case opPut:
		need |= backends.CapPut | backends.CapNotify
	case opPutSignal:
		need |= backends.CapPutSignal
	case opAtomic:
		need |= backends.CapFetchAdd
	case opRead:
		need |= backends.CapGet
	}
	return need
}

// Runs is the number of placements.
func (j *job) Runs() int { return j.placement.Runs() }

// Run gives the kernel's inputs at the first placement.
func (j *job) Run(rank int) (backends.Run, error) { return j.RunAt(rank, 0) }

// RunAt gives the kernel's inputs; they are the same for every rank, but for the placement, which is the initiator's.
func (j *job) RunAt(rank, i int) (backends.Run, error) {
	args := j.point.Args(j.seed)
	j.placement.Put(args, i, rank == 0)
	for key, v := range map[string]uint64{
		"op": uint64(j.op), "bytes": uint64(j.size),
		"posts": uint64(j.posts), "rounds": uint64(j.rounds), "warm_rounds": warmRounds,
		"iterations": uint64(j.iterations), "warmup": uint64(j.warmup), "delay_ns": uint64(j.delay),
		"src": j.source.Offset, "dst": j.target.Offset, "stride": j.target.Stride, "slots": uint64(j.target.Count),
		"barrier": j.barrier.Offset, "request": j.request.Offset, "reply": j.reply.Offset, "counter": j.counter.Offset,
	} {
		args[key] = strconv.FormatUint(v, 10)
	}
	var table []byte
	for _, d := range j.delays() {
		table = binary.LittleEndian.AppendUint32(table, d)
	}
	return backends.Run{Workload: "op", Args: args, Blobs: []backends.Blob{{Name: "check_ns", Data: table}}}, nil
}

// Fill writes the rank's window before the run.
func (j *job) Fill(rank int, m workloads.Memory) error {
	for _, w := range []window.Words{j.barrier, j.request, j.reply, j.counter} {
		if err := w.Clear(m); err != nil {
			return err
		}
	}
	if err := j.source.Fill(m, window.Source(j.seed, rank)); err != nil {
		return err
	}
	return j.target.Fill(m, window.Empty)
}

// Ops is the message list of one rank.
func (j *job) Ops(rank int) workloads.Ops {
	var o workloads.Ops
	o.Add(backends.OpSignal, barriers*uint64(j.ranks-1), 8)
	if rank > 1 {
		return o
	}
	size, n := uint64(j.size), uint64(j.echoed())
	echo := backends.OpPutSignal
	if j.op == opPut {
		if echo = backends.OpNotify; j.size == 8 {
			echo = backends.OpNotifyWord
		}
	}
	o.Add(echo, n, size)
	if rank == 1 {
		return o
	}
	issued, completed := uint64(j.issued()), uint64(j.completed())
	switch j.op {
	case opPut:
		o.Add(backends.OpPut, issued+completed, size)
	case opPutSignal:
		o.Add(backends.OpPutSignal, issued+completed, size)
	case opAtomic:
		o.Add(backends.OpSignal, issued, 8)
		o.Add(backends.OpFetchAdd, completed, 8)
	case opRead:
		o.Add(backends.OpGet, issued+completed, size)
	}
	return o
}

// arrived is the image of a rank's target area after the run.
func (j *job) arrived(rank int) window.Image {
	slots := j.target.Count
	written := func(from, n int) window.Image {
		return func(i int, buf []byte) bool {
			if i >= n {
				return false
			}
			window.Pattern(j.seed, from, i, buf)
			return true
		}
	}
	switch {
	case rank == 0 && j.op == opRead:
		return written(1, slots)
	case rank == 0 && j.op == opAtomic:
		// Slot i holds the old value of the last fetch-and-add that used it.
		return func(i int, buf []byte) bool {
			last := (j.completed()-1-i)/slots*slots + i
			if i >= j.completed() {
				return false
			}
			binary.LittleEndian.PutUint64(buf, uint64(j.issued()+last))
			return true
		}
	case rank == 0 && j.echoes() && !(j.op == opPut && j.size == 8):
		return written(1, j.echoed())
	case rank == 1 && j.echoes():
		return written(0, slots)
	}
	return window.Empty
}

// count is the value of the counter word after the run.
func (j *job) count(rank int) uint64 {
	if rank != 1 || j.op == opPut || j.op == opRead {
		return 0
	}
	return uint64(j.issued() + j.completed())
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
	err := c.Word("counter", j.counter.Offset, j.count(rank))
	return c.Result, err
}

// Simulate leaves the windows as the kernels would.
func (j *job) Simulate(windows []workloads.Memory) ([]workloads.RankResult, error) {
	results := make([]workloads.RankResult, j.ranks)
	for rank, m := range windows {
		// The image is drawn from the source that the peer really holds.
		peer := windows[1-min(rank, 1)]
		err := j.target.Update(m, j.arrived(rank), func(i int, buf []byte) error {
			if j.op == opAtomic {
				return nil
			}
			return peer.Read(j.source.At(i), buf)
		})
		if err != nil {
			return nil, err
		}
		if err := j.counter.Set(m, 0, j.count(rank)); err != nil {
			return nil, err
		}
	}
	if err := j.barrier.SetBarrier(windows, barriers); err != nil {
		return nil, err
	}
	if err := j.request.Set(windows[1], 0, uint64(j.echoed())); err != nil {
		return nil, err
	}
	if err := j.reply.Set(windows[0], 0, uint64(j.echoed())); err != nil {
		return nil, err
	}
	add := func(name string, n int, ns float64) {
		if n > 0 {
			s := backends.Series{Name: name, Unit: "ns", Values: slices.Repeat([]float64{ns}, n)}
			results[0].Series = append(results[0].Series, s)
		}
	}
	add("issue", j.rounds, 100)
	add("completion", j.iterations, 1000)
	if j.echoes() {
		add("rtt", j.iterations, 2000)
		if d := j.delays(); len(d) > 0 {
			s := backends.Series{Name: "rtt_check", Unit: "ns"}
			for _, ns := range d {
				s.Values = append(s.Values, 2000+float64(ns))
			}
			results[0].Series = append(results[0].Series, s)
		}
	}
	loops := len(results[0].Series)
	results[0].Series = append(results[0].Series,
		backends.Series{Name: "clock_hz", Unit: "1", Values: slices.Repeat([]float64{1e9}, loops)})
	return results, nil
}

// Summarize turns rank 0's series into metrics.
func (j *job) Summarize(results []workloads.RankResult) (workloads.Summary, error) {
	s := workloads.Summary{Facts: map[string]any{"issue_rounds": j.rounds, "posts": j.posts, "slots": j.target.Count}}
	if len(results) != j.ranks {
		return s, fmt.Errorf("op: %d results for %d ranks", len(results), j.ranks)
	}
	var err error
	take := func(series string, n int) []float64 {
		v := workloads.Seconds(results[0].Get(series))
		if n *= j.Runs(); len(v) != n && err == nil {
			err = fmt.Errorf("op: rank 0 gave %d values of %s, expected %d", len(v), series, n)
		}
		return v
	}
	metric := func(name string, samples []float64, headline bool) {
		s.Metrics = append(s.Metrics, workloads.Metric{
			Name: name, Unit: "s", Class: workloads.Time, Samples: samples, Headline: headline,
		})
	}
	issue := take("issue", j.rounds)
	completion := take("completion", j.iterations)
	var rtt, check []float64
	if j.echoes() {
		rtt, check = take("rtt", j.iterations), take("rtt_check", 2*j.checks)
	}
	if err != nil {
		return s, err
	}
	metric("issue", workloads.Medians(issue, j.Runs()), true)
	j.placement.Facts(&s, results[0])
	if !j.echoes() {
		metric("completion", completion, true)
	} else {
		metric("put_completion", completion, true)
		metric("rtt", rtt, true)
		half := make([]float64, len(rtt))
		for i, t := range rtt {
			half[i] = t / 2
		}
		metric("one_way", half, false)
		j.checkTimer(&s, check)
	}
	workloads.AddClocks(&s, results[0].Get("clock_hz"))
	for _, c := range results[0].Counters {
		if c.Name == "slot_waits" && c.Value > 0 {
			// All other loops flush before the ring can fill.
			s.Warnings = append(s.Warnings, workloads.Warning{
				Code: "slot_wait",
				Text: fmt.Sprintf("issue includes %d waits for a free slot: posts=%d does not fit the queue", c.Value, j.posts),
			})
		}
	}
	return s, nil
}
