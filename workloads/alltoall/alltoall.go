// Package alltoall is the workload in which every rank sends a part to every rank, sized by a matrix.
package alltoall

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"gic/backends"
	"gic/workloads"
	"gic/workloads/window"
)

// Workload is the alltoall workload.
type Workload struct{}

var (
	_ workloads.Workload  = Workload{}
	_ workloads.Simulator = (*job)(nil)
)

// Name is "alltoall".
func (Workload) Name() string { return "alltoall" }

// Doc is one line for `gic list`.
func (Workload) Doc() string { return "every rank to every rank, bytes per peer from a matrix" }

// Method says what is timed.
func (Workload) Method() string {
	return `Every rank puts row[peer] bytes to each peer with a signal behind them (a signal alone for 0 bytes), copies its own part locally, and waits for the signals of all others. The agents of a rank share the peers.
time: per iteration, on each rank from the first agent's first post until the last agent has seen its incoming signals and its quiet has returned (by globaltimer), then the largest over the ranks. Every iteration starts behind a barrier of all ranks, outside the time. Warm-up iterations are dropped.
algbw: bytes of one rank, its own part included, averaged over the ranks, divided by time; busbw: algbw x (n-1)/n, for n ranks. For the uniform matrix both are the formulas of nccl-tests' alltoall_perf.`
}

// Axes are the swept parameters.
func (Workload) Axes() []workloads.Axis {
	key := func(name, value, allowed, help string) workloads.Axis {
		return workloads.Axis{Key: backends.Key{Name: name, Default: value, Allowed: allowed, Help: help}}
	}
	return []workloads.Axis{
		key("bytes", "4K", "1..1073741824", "bytes per rank and peer (matrix=uniform, skew)"),
		key("matrix", "uniform", "", "uniform | skew:<x> (rank 0 gets x >= 1 times the bytes) | file:<path> (ranks x ranks integers, row = sender)"),
		key("threads", "1", "1..65536", "device threads of a rank"),
		key("iterations", "100", "1..100000", "timed iterations"),
		key("warmup", "10", "0..100000", "iterations before, dropped"),
	}
}

type job struct {
	ranks                       int
	seed                        uint64
	point                       workloads.Point
	threads, iterations, warmup int
	matrix                      [][]uint64 // [sender][receiver]
	bytes                       uint64
	barrier, arrived            window.Words
	source                      [][]window.Slots // [sender][receiver], one slot each
	target                      [][]window.Slots // [receiver][sender]
}

// Prepare makes the job of a point.
func (Workload) Prepare(p workloads.Point, ranks int, seed uint64) (workloads.Job, error) {
	j := &job{ranks: ranks, seed: seed, point: p}
	if err := j.parse(); err != nil {
		return nil, fmt.Errorf("alltoall: %w", err)
	}
	j.layout()
	if err := workloads.CheckWindow(j.bytes, "bytes"); err != nil {
		return nil, fmt.Errorf("alltoall: %w", err)
	}
	return j, nil
}

func (j *job) parse() error {
	if j.ranks < 2 {
		return fmt.Errorf("ranks=%d is not allowed: at least 2", j.ranks)
	}
	var bytes int
	for _, a := range []struct {
		axis      string
		low, high int
		value     *int
	}{
		{"bytes", 1, 1 << 30, &bytes},
		{"threads", 1, 65536, &j.threads},
		{"iterations", 1, 1e5, &j.iterations},
		{"warmup", 0, 1e5, &j.warmup},
	} {
		v, err := j.point.Within(a.axis, a.low, a.high)
		if err != nil {
			return err
		}
		*a.value = v
	}
	var err error
	j.matrix, err = parseMatrix(j.point["matrix"], j.ranks, uint64(bytes))
	return err
}

// layout gives each part its own guarded area. The ranks' areas differ; the window is the largest of them.
func (j *job) layout() {
	part := func(l *window.Layout, n uint64) window.Slots { return l.Slots(1, n) }
	j.source, j.target = make([][]window.Slots, j.ranks), make([][]window.Slots, j.ranks)
	for rank := range j.ranks {
		var l window.Layout
		j.barrier, j.arrived = l.Words(j.ranks), l.Words(j.ranks)
		for peer := range j.ranks {
			j.source[rank] = append(j.source[rank], part(&l, j.matrix[rank][peer]))
		}
		for peer := range j.ranks {
			j.target[rank] = append(j.target[rank], part(&l, j.matrix[peer][rank]))
		}
		j.bytes = max(j.bytes, l.Bytes())
	}
}

// WindowBytes is the window each rank needs.
func (j *job) WindowBytes() uint64 { return j.bytes }

// Needs are the capabilities the kernel uses.
func (j *job) Needs() backends.Caps {
	return backends.CapPutSignal | backends.CapSignal | backends.CapWait | backends.CapQuiet
}

// Run gives the kernel's inputs.
func (j *job) Run(rank int) (backends.Run, error) {
	args := j.point.Args(j.seed)
	for key, v := range map[string]uint64{
		"threads": uint64(j.threads), "iterations": uint64(j.iterations), "warmup": uint64(j.warmup),
		"barrier": j.barrier.Offset, "arrived": j.arrived.Offset,
	} {
		args[key] = strconv.FormatUint(v, 10)
	}
	var peers []byte
	for peer := range j.ranks {
		for _, v := range []uint64{
			j.matrix[rank][peer], j.source[rank][peer].Offset, j.target[peer][rank].Offset,
			j.target[rank][peer].Offset, j.target[rank][peer].Stride,
		} {
			peers = binary.LittleEndian.AppendUint64(peers, v)
		}
	}
	return backends.Run{Workload: "alltoall", Args: args, Blobs: []backends.Blob{{Name: "peers", Data: peers}}}, nil
}

// Fill writes the rank's window before the run.
func (j *job) Fill(rank int, m workloads.Memory) error {
	for _, w := range []window.Words{j.barrier, j.arrived} {
		if err := w.Clear(m); err != nil {
			return err
		}
	}
	for peer := range j.ranks {
		if err := j.source[rank][peer].Fill(m, j.image(rank, peer)); err != nil {
			return err
		}
		if err := j.target[rank][peer].Fill(m, window.Empty); err != nil {
			return err
		}
	}
	return nil
}

// image is the part that `from` sends to `to`.
func (j *job) image(from, to int) window.Image {
	return func(_ int, buf []byte) bool {
		window.Pattern(j.seed, from, to, buf)
		return true
	}
}

// Ops is the message list of one rank.
func (j *job) Ops(rank int) workloads.Ops {
	var o workloads.Ops
	rounds := uint64(j.warmup + j.iterations)
	o.Add(backends.OpSignal, rounds*uint64(j.ranks-1), 8)
	for peer, bytes := range j.matrix[rank] {
		switch {
		case peer == rank:
		case bytes == 0:
			o.Add(backends.OpSignal, rounds, 8)
		default:
			o.Add(backends.OpPutSignal, rounds, bytes)
		}
	}
	return o
}

// Verify checks the rank's window after the run.
func (j *job) Verify(rank int, m workloads.Memory) (workloads.Verification, error) {
	c := window.NewCheck(rank, m)
	for peer := range j.ranks {
		if err := j.source[rank][peer].Wipe(m); err != nil {
			return c.Result, err
		}
		if err := c.Guards(fmt.Sprintf("source for rank %d", peer), j.source[rank][peer]); err != nil {
			return c.Result, err
		}
	}
	for peer := range j.ranks {
		name := fmt.Sprintf("part from rank %d", peer)
		if err := c.Slots(name, j.target[rank][peer], j.image(peer, rank)); err != nil {
			return c.Result, err
		}
		want := uint64(j.warmup + j.iterations)
		if peer == rank {
			want = 0
		}
		if err := c.Word(fmt.Sprintf("signal of rank %d", peer), j.arrived.At(peer), want); err != nil {
			return c.Result, err
		}
	}
	return c.Result, nil
}

// Simulate moves the parts; an iteration takes 1 ns per byte of the rank's row and 1 us per peer.
func (j *job) Simulate(windows []workloads.Memory) ([]workloads.RankResult, error) {
	results := make([]workloads.RankResult, j.ranks)
	for from := range j.ranks {
		ns := 0.0
		for to, bytes := range j.matrix[from] {
			ns += 1000 + float64(bytes)
			err := window.Copy(windows[to], j.target[to][from].Offset, windows[from], j.source[from][to].Offset, bytes)
			if err != nil {
				return nil, err
			}
			if from == to {
				continue
			}
			if err := j.arrived.Set(windows[to], from, uint64(j.warmup+j.iterations)); err != nil {
				return nil, err
			}
		}
		results[from].Series = []backends.Series{
			{Name: "iteration", Unit: "ns", Values: slices.Repeat([]float64{ns}, j.iterations)},
			workloads.SimulatedClock(),
		}
	}
	return results, j.barrier.SetBarrier(windows, j.warmup+j.iterations)
}

// Summarize takes the slowest rank of each iteration.
func (j *job) Summarize(results []workloads.RankResult) (workloads.Summary, error) {
	total, hash := describe(j.matrix)
	s := workloads.Summary{Facts: map[string]any{"matrix_hash": hash, "matrix_bytes": total}}
	times, err := workloads.Slowest(results, j.ranks, "iteration", j.iterations)
	if err != nil {
		return s, fmt.Errorf("alltoall: %w", err)
	}
	if hz := workloads.LaunchClocks(results); hz != nil {
		s.Facts["clock_hz"] = hz
	}
	n := float64(j.ranks)
	algbw, busbw := make([]float64, len(times)), make([]float64, len(times))
	for i, t := range times {
		if t <= 0 {
			return s, fmt.Errorf("alltoall: iteration %d took no time", i)
		}
		algbw[i] = float64(total) / n / t
		busbw[i] = algbw[i] * (n - 1) / n
	}
	s.Metrics = []workloads.Metric{
		{Name: "time", Unit: "s", Class: workloads.Time, Samples: times, Headline: true},
		{Name: "algbw", Unit: "B/s", Class: workloads.Bandwidth, Samples: algbw},
		{Name: "busbw", Unit: "B/s", Class: workloads.Bandwidth, Samples: busbw, Headline: true},
	}
	return s, nil
}
