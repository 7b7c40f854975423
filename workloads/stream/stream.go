// Package stream is what the workloads that keep the queues full have in common: each thread of a sending rank
// puts messages of one size to one peer, every message into the next slot of its own ring of slots.
package stream

import (
	"fmt"
	"slices"
	"strconv"

	"gic/backends"
	"gic/workloads"
	"gic/workloads/window"
)

// Limits of a workload's axes, and its defaults.
type Limits struct {
	Workload               string
	Size, Messages, Warmup string // defaults
	MaxSlots               int    // most slots per thread
	SlotBytes              int    // most bytes of the slots of all threads together, beyond one each
	Metric, Unit           string
	Class                  workloads.Class
	PerMessage             func(size int) float64 // units of the metric that one message counts for
}

// Axes are the swept parameters.
func (l Limits) Axes() []workloads.Axis {
	key := func(name, value, allowed, help string) workloads.Axis {
		return workloads.Axis{Key: backends.Key{Name: name, Default: value, Allowed: allowed, Help: help}}
	}
	return append([]workloads.Axis{
		key("size", l.Size, "1..1048576", "payload bytes of one message"),
		key("threads", "1", "1..65536", "device threads of a sending rank"),
		key("messages", l.Messages, "1..10000000", "messages per thread, timed"),
		key("warmup", l.Warmup, "0..10000000", "messages per thread before, not timed"),
		key("pattern", "pair", "pair|all|self", "pair: each even rank sends to the next one; all: every rank to the next one; self: every rank to itself, one rank is enough"),
	}, workloads.PlacementAxes()...)
}

const (
	pair = iota
	all
	self
)

// Job is a stream at one point.
type Job struct {
	limits                          Limits
	ranks                           int
	seed                            uint64
	point                           workloads.Point
	size, threads, messages, warmup int
	placement                       workloads.Placement
	slots                           int // per thread
	pattern                         int
	bytes                           uint64
	barrier                         window.Words
	source, target                  window.Slots
}

var (
	_ workloads.Job       = (*Job)(nil)
	_ workloads.Simulator = (*Job)(nil)
	_ workloads.Sweep     = (*Job)(nil)
)

// Prepare makes the job of a point.
func (l Limits) Prepare(p workloads.Point, ranks int, seed uint64) (workloads.Job, error) {
	j := &Job{limits: l, ranks: ranks, seed: seed, point: p}
	if err := j.parse(); err != nil {
		return nil, fmt.Errorf("%s: %w", l.Workload, err)
	}
	j.slots = max(1, min(j.messages, l.MaxSlots, l.SlotBytes/j.size/j.threads))
	var layout window.Layout
	j.barrier = layout.Words(ranks)
	j.source = layout.Slots(j.slots*j.threads, uint64(j.size))
	j.target = layout.Slots(j.slots*j.threads, uint64(j.size))
	j.bytes = layout.Bytes()
	if err := workloads.CheckWindow(j.bytes, "size or threads"); err != nil {
		return nil, fmt.Errorf("%s: %w", l.Workload, err)
	}
	return j, nil
}

func (j *Job) parse() error {
	p := j.point
	var err error
	if j.pattern, err = p.OneOf("pattern", "pair", "all", "self"); err != nil {
		return err
	}
	if j.ranks < 2 && j.pattern != self {
		return fmt.Errorf("ranks=%d is not allowed: at least 2, or pattern=self", j.ranks)
	}
	for _, a := range []struct {
		axis      string
		low, high int
		value     *int
	}{
		{"size", 1, 1 << 20, &j.size},
		{"threads", 1, 65536, &j.threads},
		{"messages", 1, 1e7, &j.messages},
		{"warmup", 0, 1e7, &j.warmup},
	} {
		v, err := p.Within(a.axis, a.low, a.high)
		if err != nil {
			return err
		}
		*a.value = v
	}
	return j.placement.Parse(p)
}

// peer is the rank that `rank` sends to.
func (j *Job) peer(rank int) (peer int, sends bool) {
	switch j.pattern {
	case self:
		return rank, true
	case all:
		return (rank + 1) % j.ranks, true
	}
	return (rank + 1) % j.ranks, rank%2 == 0 && rank+1 < j.ranks
}

// sender is the rank whose messages arrive at `rank`.
func (j *Job) sender(rank int) (sender int, receives bool) {
	from := (rank + j.ranks - 1) % j.ranks
	if j.pattern == self {
		from = rank
	}
	_, sends := j.peer(from)
	return from, sends
}

// WindowBytes is the window each rank needs.
func (j *Job) WindowBytes() uint64 { return j.bytes }

// Needs are the capabilities the kernel uses.
func (j *Job) Needs() backends.Caps {
	return backends.CapPut | backends.CapQuiet | backends.CapSignal | backends.CapWait
}

// Runs is the number of placements.
func (j *Job) Runs() int { return j.placement.Runs() }

// Run gives the kernel's inputs at the first placement.
func (j *Job) Run(rank int) (backends.Run, error) { return j.RunAt(rank, 0) }

// RunAt gives the kernel's inputs.
func (j *Job) RunAt(rank, i int) (backends.Run, error) {
	args := j.point.Args(j.seed)
	peer, sends := j.peer(rank)
	j.placement.Put(args, i, sends)
	args["sends"] = "0"
	if sends {
		args["sends"] = "1"
	}
	for key, v := range map[string]uint64{
		"peer": uint64(peer), "threads": uint64(j.threads), "bytes": uint64(j.size),
		"messages": uint64(j.messages), "warmup": uint64(j.warmup), "slots": uint64(j.slots),
		"src": j.source.Offset, "dst": j.target.Offset, "stride": j.target.Stride, "barrier": j.barrier.Offset,
	} {
		args[key] = strconv.FormatUint(v, 10)
	}
	return backends.Run{Workload: j.limits.Workload, Args: args}, nil
}

// Fill writes the rank's window before the run.
func (j *Job) Fill(rank int, m workloads.Memory) error {
	if err := j.barrier.Clear(m); err != nil {
		return err
	}
	if err := j.source.Fill(m, window.Source(j.seed, rank)); err != nil {
		return err
	}
	return j.target.Fill(m, window.Empty)
}

// barriers of all ranks in one run of the kernel.
const barriers = 3

// Ops is the message list of one rank.
func (j *Job) Ops(rank int) workloads.Ops {
	var o workloads.Ops
	o.Add(backends.OpSignal, barriers*uint64(j.ranks-1), 8)
	if _, sends := j.peer(rank); sends {
		o.Add(backends.OpPut, uint64(j.threads)*uint64(j.messages+j.warmup), uint64(j.size))
	}
	return o
}

// Verify checks the rank's window after the run.
func (j *Job) Verify(rank int, m workloads.Memory) (workloads.Verification, error) {
	c := window.NewCheck(rank, m)
	if err := j.source.Wipe(m); err != nil {
		return c.Result, err
	}
	if err := c.Guards("source", j.source); err != nil {
		return c.Result, err
	}
	image := window.Image(window.Empty)
	if from, receives := j.sender(rank); receives {
		image = window.Source(j.seed, from)
	}
	err := c.Slots("target", j.target, image)
	return c.Result, err
}

// Simulate moves the slots and gives every sender 1 us per message and thread.
func (j *Job) Simulate(windows []workloads.Memory) ([]workloads.RankResult, error) {
	results := make([]workloads.RankResult, j.ranks)
	for rank, m := range windows {
		results[rank].Series = append(results[rank].Series, workloads.SimulatedClock())
		peer, sends := j.peer(rank)
		if !sends {
			continue
		}
		for i := range j.source.Count {
			err := window.Copy(windows[peer], j.target.At(i), m, j.source.At(i), j.source.Size)
			if err != nil {
				return nil, err
			}
		}
		results[rank].Series = append(results[rank].Series,
			backends.Series{Name: "elapsed", Unit: "ns", Values: []float64{1000 * float64(j.messages)}},
			backends.Series{Name: "posted", Unit: "ns", Values: []float64{500 * float64(j.messages)}})
	}
	return results, j.barrier.SetBarrier(windows, barriers)
}

// Summarize adds up the senders' rates; the time is the slowest one's.
func (j *Job) Summarize(results []workloads.RankResult) (workloads.Summary, error) {
	s := workloads.Summary{Facts: map[string]any{"slots": j.slots}}
	if len(results) != j.ranks {
		return s, fmt.Errorf("%s: %d results for %d ranks", j.limits.Workload, len(results), j.ranks)
	}
	n := j.Runs()
	sum, slowest, posting := make([]float64, n), make([]float64, n), make([]float64, n)
	senders, posters := 0, 0
	for rank, r := range results {
		if _, sends := j.peer(rank); !sends {
			continue
		}
		elapsed, posted := workloads.Seconds(r.Get("elapsed")), workloads.Seconds(r.Get("posted"))
		if len(elapsed) != n || slices.Min(elapsed) <= 0 {
			return s, fmt.Errorf("%s: rank %d gave no elapsed time", j.limits.Workload, rank)
		}
		messages := float64(j.threads) * float64(j.messages)
		for i, t := range elapsed {
			sum[i] += messages * j.limits.PerMessage(j.size) / t
			slowest[i] = max(slowest[i], t)
		}
		if senders++; senders == 1 {
			j.placement.Facts(&s, r)
		}
		if len(posted) == n && slices.Min(posted) > 0 {
			posters++
			for i, t := range posted {
				posting[i] += messages / t
			}
		}
	}
	s.Facts["senders"] = senders
	if hz := workloads.LaunchClocks(results); hz != nil {
		s.Facts["clock_hz"] = hz
	}
	s.Metrics = []workloads.Metric{
		{Name: j.limits.Metric, Unit: j.limits.Unit, Class: j.limits.Class, Samples: sum, Headline: true},
		{Name: "time", Unit: "s", Class: workloads.Time, Samples: slowest},
	}
	if posters == senders && senders > 0 {
		// Until the last post has returned, completion left out: what the submission path alone takes.
		s.Metrics = append(s.Metrics, workloads.Metric{Name: "posting_rate", Unit: "msg/s", Class: workloads.Rate,
			Samples: posting})
	}
	s.Metrics = append(s.Metrics, j.copied(results, sum)...)
	return s, nil
}

// copied are the bandwidths of plain copies between the same windows, where a backend took them beside its puts: of the
// size of a message, one behind the other, and of large ones, which is what the link gives; and the share of the latter
// that the puts reached. Summed over the senders, as goodput is.
func (j *Job) copied(results []workloads.RankResult, goodput []float64) (out []workloads.Metric) {
	sum := func(series string) []float64 {
		sum := make([]float64, len(goodput))
		senders := 0
		for _, r := range results {
			took, bytes := workloads.Seconds(r.Get(series)), r.Get(series+"_bytes")
			if len(took) != len(sum) || len(bytes) != len(sum) || slices.Min(took) <= 0 {
				continue
			}
			senders++
			for i := range sum {
				sum[i] += bytes[i] / took[i]
			}
		}
		if senders == 0 {
			return nil
		}
		return sum
	}
	if sized := sum("copied"); sized != nil {
		out = append(out, workloads.Metric{Name: "copy_bandwidth", Unit: "B/s", Class: workloads.Bandwidth, Samples: sized})
	}
	if large := sum("copied_large"); large != nil {
		share := make([]float64, len(large))
		for i := range share {
			share[i] = goodput[i] / large[i]
		}
		out = append(out,
			workloads.Metric{Name: "copy_bandwidth_large", Unit: "B/s", Class: workloads.Bandwidth, Samples: large, Headline: true},
			workloads.Metric{Name: "copy_share", Unit: "1", Class: workloads.Number, Samples: share, Headline: true})
	}
	return out
}
