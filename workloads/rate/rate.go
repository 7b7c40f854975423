// Package rate is the workload of message rate: how many small messages per second the threads of a rank submit
// and complete.
package rate

import (
	"gic/workloads"
	"gic/workloads/stream"
)

// Workload is the rate workload.
type Workload struct{}

var _ workloads.Workload = Workload{}

var limits = stream.Limits{
	Workload: "rate",
	Size:     "8", Messages: "4096", Warmup: "512",
	MaxSlots: 64, SlotBytes: 64 << 20,
	Metric: "message_rate", Unit: "msg/s", Class: workloads.Rate,
	PerMessage: func(int) float64 { return 1 },
}

// Name is "rate".
func (Workload) Name() string { return "rate" }

// Doc is one line for `gic list`.
func (Workload) Doc() string { return "message rate of many threads with small puts" }

// Method says what is timed.
func (Workload) Method() string {
	return `Every device thread of a sending rank puts ` + "`messages`" + ` messages to one peer, each into the next slot of its own ring of slots, and completes them with quiet at the end.
message_rate: messages of all threads divided by the time from the first post of the earliest thread to the return of the last thread's quiet, by globaltimer on the sending rank; summed over the sending ranks, which start together behind a barrier made of signals. time: that time on the slowest rank. One value per process run.
warmup messages per thread are sent and completed before, outside the time.`
}

// Axes are the swept parameters.
func (Workload) Axes() []workloads.Axis { return limits.Axes() }

// Prepare makes the job of a point.
func (Workload) Prepare(p workloads.Point, ranks int, seed uint64) (workloads.Job, error) {
	return limits.Prepare(p, ranks, seed)
}
