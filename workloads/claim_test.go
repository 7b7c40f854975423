package workloads_test

import (
	"slices"
	"testing"

	"gic/workloads"
	"gic/workloads/caller"
	"gic/workloads/goodput"
	"gic/workloads/moe"
	"gic/workloads/op"
	"gic/workloads/rate"
	"gic/workloads/worktest"
)

// Of every workload exactly the metrics that do not wait for the NIC are of the device alone; a name that no metric
// has any more fails here.
func TestOnDevice(t *testing.T) {
	for _, c := range []struct {
		w    workloads.Workload
		axes []string
		want []string
	}{
		{op.Workload{}, nil, []string{"issue"}},
		{op.Workload{}, []string{"op", "atomic"}, []string{"issue"}},
		{rate.Workload{}, []string{"messages", "2", "warmup", "0"}, nil},
		{goodput.Workload{}, []string{"size", "8", "messages", "2", "warmup", "0"}, nil},
		{moe.Workload{}, []string{"tokens", "1", "hidden", "64", "experts", "4", "topk", "2"}, []string{"reduce"}},
		{caller.Workload{}, []string{"iterations", "1"}, []string{"absent", "dormant", "kept_dormant", "kept_send", "send"}},
	} {
		job := worktest.Prepare(t, c.w, 2, c.axes...)
		_, results := worktest.Simulated(t, job, 2)
		s, err := job.Summarize(results)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range s.Metrics {
			if workloads.OnDevice(c.w.Name(), m.Name) {
				got = append(got, m.Name)
			}
		}
		if slices.Sort(got); !slices.Equal(got, c.want) {
			t.Errorf("%s %v: %v, expected %v", c.w.Name(), c.axes, got, c.want)
		}
	}
	if workloads.OnDevice("rate", "issue") {
		t.Error("a metric that the workload does not have")
	}
}
