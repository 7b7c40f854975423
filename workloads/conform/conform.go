// Package conform is the workload of the conformance suite (backends/backendtest): each word of the device contract
// by itself and in the combinations that the contract speaks of. It measures nothing.
//
// A case is a script: what every agent of every rank does, word by word, and what the windows must hold for it
// (cases.go). Where the contract says that something is there at a certain moment, the agent copies it aside at that
// moment, and the copy is checked after the run. The device half plays the scripts of conform.cuh; Simulate plays
// them in memory.
package conform

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gic/backends"
	"gic/workloads"
	"gic/workloads/window"
)

// Workload is the conform workload.
type Workload struct{}

var (
	_ workloads.Workload  = Workload{}
	_ workloads.Simulator = (*job)(nil)
)

// Name is "conform".
func (Workload) Name() string { return "conform" }

// Doc is one line for `gic list`.
func (Workload) Doc() string {
	return "checks, not a measurement: each word of the device contract, for the conformance suite"
}

// Method says what each case checks.
func (Workload) Method() string {
	var b strings.Builder
	b.WriteString("Nothing here is a measurement; elapsed is how long the slowest rank's script took. Every rank does the same " +
		"towards all peers, with each device thread a submitter of its own. What must be there at a moment is copied at that " +
		"moment and checked after the run, like all targets, the bytes around them, words and guards.")
	for _, c := range cases {
		fmt.Fprintf(&b, "\n%s: %s.", c.name, c.doc)
	}
	return b.String()
}

// Axes are the swept parameters.
func (Workload) Axes() []workloads.Axis {
	key := func(name, value, allowed, help string) workloads.Axis {
		return workloads.Axis{Key: backends.Key{Name: name, Default: value, Allowed: allowed, Help: help}}
	}
	return []workloads.Axis{
		key("case", cases[0].name, strings.Join(caseNames(), "|"), "what is checked"),
		key("threads", "1", "1..64", "device threads (agents) of a rank"),
		key("largest", "4096", "8..65536", "largest payload, in bytes"),
		key("passes", "20", "1..64", "rounds of the cases that announce or overwrite"),
		key("placement", "0", "0|warps", "0: where the device puts the device threads; warps: all in one block, a warp each"),
	}
}

type job struct {
	point     workloads.Point
	seed      uint64
	script    *script
	placement workloads.Placement

	bytes                uint64
	words, flags         window.Words
	source, target, seen window.Slots // one slot each
}

// Prepare makes the job of a point.
func (Workload) Prepare(p workloads.Point, ranks int, seed uint64) (workloads.Job, error) {
	if ranks < 2 {
		return nil, fmt.Errorf("conform: ranks=%d is not allowed: at least 2", ranks)
	}
	which, err := p.OneOf("case", caseNames()...)
	if err != nil {
		return nil, fmt.Errorf("conform: %w", err)
	}
	var threads, largest, passes int
	for _, a := range []struct {
		axis      string
		low, high int
		value     *int
	}{
		{"threads", 1, 64, &threads},
		{"largest", 8, 65536, &largest},
		{"passes", 1, flagWords, &passes},
	} {
		if *a.value, err = p.Within(a.axis, a.low, a.high); err != nil {
			return nil, fmt.Errorf("conform: %w", err)
		}
	}
	s := newScript(ranks, threads, largest, passes)
	cases[which].write(s)
	j := &job{point: p, seed: seed, script: s}
	// Not lanes of one warp: a step may wait for what another device thread does in its next one, and where a compiler lets
	// the lanes of a warp meet between two steps, that is never done.
	if _, err := p.OneOf("placement", "0", "warps"); err != nil {
		return nil, fmt.Errorf("conform: %w", err)
	}
	if err := j.placement.Parse(workloads.Point{"placement": p["placement"], "first_qp": "0", "places": "1"}); err != nil {
		return nil, fmt.Errorf("conform: %w", err)
	}
	var l window.Layout
	j.words = l.Words(int(s.end(everyone, words) / 8))
	j.flags = l.Words(flagWords)
	j.source = l.Slots(1, s.end(everyone, source))
	j.target = l.Slots(1, s.end(everyone, target))
	j.seen = l.Slots(1, s.end(everyone, seen))
	j.bytes = l.Bytes()
	if err := workloads.CheckWindow(j.bytes, "largest, passes or threads"); err != nil {
		return nil, fmt.Errorf("conform: %w", err)
	}
	return j, nil
}

// offset of a place in the window.
func (j *job) offset(l loc) uint64 {
	switch l.area {
	case source:
		return j.source.Offset + l.off
	case target:
		return j.target.Offset + l.off
	case seen:
		return j.seen.Offset + l.off
	case words:
		return j.words.Offset + l.off
	case flags:
		return j.flags.Offset + l.off
	default:
		return 0
	}
}

// WindowBytes is the window each rank needs.
func (j *job) WindowBytes() uint64 { return j.bytes }

// Needs are the capabilities of the words in the script.
func (j *job) Needs() backends.Caps { return j.script.needs }

// Ops is the message list of one rank.
func (j *job) Ops(rank int) workloads.Ops { return j.script.ops[rank] }

// Run gives the scripts of a rank's agents, as conform.cuh reads them.
func (j *job) Run(rank int) (backends.Run, error) {
	var first, steps, messages []byte
	put := func(b *[]byte, values ...uint64) {
		for _, v := range values {
			*b = binary.LittleEndian.AppendUint64(*b, v)
		}
	}
	count, sent := 0, 0
	for _, agent := range j.script.steps[rank] {
		put(&first, uint64(count))
		for _, s := range agent {
			src := j.offset(s.src)
			if s.op == opPutEach {
				src = uint64(sent)
				sent += len(s.messages)
			}
			put(&steps, uint64(s.op), uint64(s.peer), j.offset(s.dst), src, uint64(s.bytes), j.offset(s.sig), s.value)
			for _, m := range s.messages {
				put(&messages, j.offset(m.dst), j.offset(m.src), uint64(m.bytes))
			}
		}
		count += len(agent)
	}
	put(&first, uint64(count))
	args := j.point.Args(j.seed)
	args["agents"] = strconv.Itoa(j.script.agents)
	if p := j.placement.Together(); p > 0 {
		args["together"] = strconv.Itoa(p)
	}
	return backends.Run{Workload: "conform", Args: args, Blobs: []backends.Blob{
		{Name: "first", Data: first}, {Name: "steps", Data: steps}, {Name: "messages", Data: messages}}}, nil
}

// Fill writes the rank's window before the run.
func (j *job) Fill(rank int, m workloads.Memory) error {
	if err := j.words.Clear(m); err != nil {
		return err
	}
	var constants []byte
	for i := range flagWords {
		constants = append(constants, little(uint64(i+1))...)
	}
	if err := m.Write(j.flags.Offset, constants); err != nil {
		return err
	}
	if err := j.source.Fill(m, window.Source(j.seed, rank)); err != nil {
		return err
	}
	if err := j.target.Fill(m, window.Empty); err != nil {
		return err
	}
	return j.seen.Fill(m, window.Empty)
}

// expected are the bytes of an area after the run.
func (j *job) expected(rank int, a area, size uint64) []byte {
	data := make([]byte, size)
	if a != words {
		data = bytes.Repeat([]byte{window.Filler}, int(size))
	}
	sources := map[int][]byte{}
	for _, w := range j.script.wants[rank] {
		if w.at.area != a {
			continue
		}
		found := w.data
		if found == nil {
			all := sources[w.rank]
			if all == nil {
				all = make([]byte, j.source.Size)
				window.Pattern(j.seed, w.rank, 0, all)
				sources[w.rank] = all
			}
			found = all[w.from.off:][:w.bytes]
		}
		copy(data[w.at.off:], found)
	}
	return data
}

// whose says what a byte of an area is for.
func (j *job) whose(rank int, a area, at uint64) string {
	for _, w := range slices.Backward(j.script.wants[rank]) {
		if w.at.area == a && w.at.off <= at && at < w.at.off+uint64(w.bytes) {
			return w.what()
		}
	}
	return "belongs to nothing"
}

// Verify checks the rank's window after the run.
func (j *job) Verify(rank int, m workloads.Memory) (workloads.Verification, error) {
	c := window.NewCheck(rank, m)
	if err := j.source.Wipe(m); err != nil {
		return c.Result, err
	}
	for _, x := range []struct {
		name  string
		slots window.Slots
	}{{"source", j.source}, {"target", j.target}, {"copies", j.seen}} {
		if err := c.Guards(x.name, x.slots); err != nil {
			return c.Result, err
		}
	}
	for _, x := range []struct {
		name         string
		area         area
		offset, size uint64
	}{
		{"word", words, j.words.Offset, 8 * uint64(j.words.Count)},
		{"target", target, j.target.Offset, j.target.Size},
		{"copies", seen, j.seen.Offset, j.seen.Size},
	} {
		err := c.Bytes(x.name, x.offset, j.expected(rank, x.area, x.size), func(i int) string {
			return j.whose(rank, x.area, uint64(i))
		})
		if err != nil {
			return c.Result, err
		}
	}
	return c.Result, nil
}

// Summarize tells how long it took, since a row without a metric counts as one that went wrong.
func (j *job) Summarize(results []workloads.RankResult) (workloads.Summary, error) {
	elapsed, err := workloads.Slowest(results, j.script.ranks, "elapsed", 1)
	if err != nil {
		return workloads.Summary{}, fmt.Errorf("conform: %w", err)
	}
	return workloads.Summary{
		Metrics: []workloads.Metric{{Name: "elapsed", Unit: "s", Class: workloads.Time, Samples: elapsed}},
	}, nil
}
