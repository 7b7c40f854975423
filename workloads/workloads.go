// Package workloads says what a piece of work is to the harness. Each folder below holds one workload in two
// halves: Go (axes, sizes, inputs, expected messages, checks, metrics) and a device half in a .cuh, a kernel
// template over a device handle that names no backend (backends/abi/device.cuh).
//
// Identical work: everything that decides what is sent (sizes, routing, seeds, payload) is made here, from the
// point and the seed alone, the same on every rank and for every backend.
package workloads

import (
	"fmt"
	"strconv"

	"gic/backends"
)

// Axis is a swept parameter of a workload.
type Axis struct {
	backends.Key
	// Outer axes need new rank processes; inner ones are swept inside one process.
	Outer bool
}

// Point is one combination of axis values; every axis is present.
type Point map[string]string

// Int returns the value of an integer axis; sizes may carry the binary suffixes K, M and G.
func (p Point) Int(axis string) (int, error) {
	s, mult := p[axis], 1
	if n := len(s); n > 0 {
		switch s[n-1] {
		case 'K', 'k':
			mult = 1 << 10
		case 'M', 'm':
			mult = 1 << 20
		case 'G', 'g':
			mult = 1 << 30
		}
		if mult > 1 {
			s = s[:n-1]
		}
	}
	v, err := strconv.Atoi(s)
	if err != nil || v < 0 || v > int(^uint(0)>>1)/mult {
		return 0, fmt.Errorf("%s=%s is not an integer", axis, p[axis])
	}
	return v * mult, nil
}

// Memory is a rank's window as the host sees it, outside timed regions.
type Memory interface {
	Write(offset uint64, data []byte) error
	Read(offset uint64, data []byte) error
}

// Ops counts the operations a rank issues in one Run, by backends.Op, and the payload bytes they move.
type Ops struct {
	Count        [backends.NumOps]uint64
	PayloadBytes uint64
}

// Verification is the outcome of checking a rank's window after a run.
type Verification struct {
	Checked uint64 `json:"checked"` // bytes compared
	Wrong   uint64 `json:"wrong"`   // bytes that differ
	First   string `json:"first,omitempty"`
}

// Class says how a metric compares.
type Class string

// The classes of metrics.
const (
	Time      Class = "time"      // unit "s", lower is better
	Rate      Class = "rate"      // unit "msg/s", higher is better
	Bandwidth Class = "bandwidth" // unit "B/s", higher is better
	Number    Class = "number"    // unit "1": a share, a count, cycles; no direction is better
)

// Metric is one measured quantity of a case in one process run. Values are in base units (s, msg/s, B/s).
// Samples holds one value per operation or iteration where the definition has them, else exactly one: the
// process run's value.
type Metric struct {
	Name    string    `json:"name"` // "issue", "put_completion", "rtt", "message_rate", "goodput", "dispatch", ...
	Unit    string    `json:"unit"`
	Class   Class     `json:"class"`
	Samples []float64 `json:"samples"`
	// Headline: the table shows it.
	Headline bool `json:"headline,omitempty"`
}

// RankResult is what one rank brings back from one point.
type RankResult struct {
	Series   []backends.Series
	Counters []backends.Counter // of this run alone
	Verify   Verification
}

// Get returns the values of a series, nil if the kernel gave none of that name.
func (r RankResult) Get(name string) []float64 {
	for _, s := range r.Series {
		if s.Name == name {
			return s.Values
		}
	}
	return nil
}

// Summary is what a point's results mean: the metrics, facts for the record ("routing_hash", "gini", ...;
// numbers or strings), and warnings (a failed self-check, say).
type Summary struct {
	Metrics  []Metric
	Facts    map[string]any
	Warnings []Warning
}

// Warning travels with a number into the record and the table's footnotes.
type Warning struct {
	Code string `json:"code"` // "timer_check", "oversubscribed", ...
	Text string `json:"text"`
}

// Job is one point made concrete for a number of ranks and a seed. Its methods are pure: every rank and the
// coordinator builds the same one.
type Job interface {
	// WindowBytes is the window each rank needs.
	WindowBytes() uint64
	// Needs are the capabilities the kernel uses at this point.
	Needs() backends.Caps
	// Run gives the kernel's inputs for a rank. Every rank of the case runs, idle ones too.
	Run(rank int) (backends.Run, error)
	// Fill writes source patterns, target filler and guards before the run.
	Fill(rank int, m Memory) error
	// Ops is the exact message list of the rank's Run.
	Ops(rank int) Ops
	// Verify wipes the sources, then checks targets and guards.
	Verify(rank int, m Memory) (Verification, error)
	// Summarize turns the ranks' results (by rank) into metrics.
	Summarize(results []RankResult) (Summary, error)
}

// Sweep is a Job that a point carries out several times, each time in a window filled anew and checked afterwards, and
// differently placed. Ops are those of one run. Summarize gets each series of a rank as the runs gave it, one behind
// the other.
type Sweep interface {
	Job
	Runs() int
	// RunAt gives the kernel's inputs of run i for a rank; Run is RunAt with i = 0.
	RunAt(rank, i int) (backends.Run, error)
}

// Runs is how often a point carries out a job.
func Runs(j Job) int {
	if s, ok := j.(Sweep); ok {
		return s.Runs()
	}
	return 1
}

// Workload is one kind of work.
type Workload interface {
	Name() string
	// Doc is one line for `gic list`; Method says what is timed, by which clock, from where to where.
	Doc() string
	Method() string
	Axes() []Axis
	// Prepare makes the job of a point. A combination that makes no sense is an error with the axis, the
	// value and what is allowed.
	Prepare(p Point, ranks int, seed uint64) (Job, error)
}
