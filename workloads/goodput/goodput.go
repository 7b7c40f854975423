// Package goodput is the workload of payload bandwidth over message size.
package goodput

import (
	"gic/workloads"
	"gic/workloads/stream"
)

// Workload is the goodput workload.
type Workload struct{}

var _ workloads.Workload = Workload{}

var limits = stream.Limits{
	Workload: "goodput",
	Size:     "4K", Messages: "256", Warmup: "32",
	MaxSlots: 64, SlotBytes: 16 << 20,
	Metric: "goodput", Unit: "B/s", Class: workloads.Bandwidth,
	PerMessage: func(size int) float64 { return float64(size) },
}

// Name is "goodput".
func (Workload) Name() string { return "goodput" }

// Doc is one line for `gic list`.
func (Workload) Doc() string { return "payload bandwidth over message size" }

// Method says what is timed.
func (Workload) Method() string {
	return `As rate, with larger messages. goodput: payload bytes alone (no headers, no signals) of all threads divided by the time from the first post of the earliest thread to the return of the last thread's quiet, by globaltimer on the sending rank; summed over the sending ranks. The figure to quote from a sweep is the first size that reaches 90 % of the best.
copy_bandwidth: where the backend takes it (rawstore), plain copies of the same size between the same two memories, one behind the other, after the run: by the GPU's copy engine, on device=host by memcpy. copy_bandwidth_large: of copies of 256 MiB (8 MiB), what the link gives; copy_share: goodput over that.
warmup messages per thread are sent and completed before, outside the time.`
}

// Axes are the swept parameters.
func (Workload) Axes() []workloads.Axis { return limits.Axes() }

// Prepare makes the job of a point.
func (Workload) Prepare(p workloads.Point, ranks int, seed uint64) (workloads.Job, error) {
	return limits.Prepare(p, ranks, seed)
}

// Point is the goodput of one message size.
type Point struct {
	Size    int     // bytes
	Goodput float64 // B/s
}

// Knee returns the smallest size whose goodput reaches the fraction of the best one, and false when no point has
// a positive goodput. The points may come in any order.
func Knee(points []Point, fraction float64) (Point, bool) {
	var best, knee Point
	for _, p := range points {
		if p.Goodput > best.Goodput {
			best = p
		}
	}
	for _, p := range points {
		if p.Goodput > 0 && p.Goodput >= fraction*best.Goodput && (knee.Size == 0 || p.Size < knee.Size) {
			knee = p
		}
	}
	return knee, knee.Size != 0
}
