package record

import (
	"math"
	"math/rand/v2"
	"time"

	"gic/backends"
	"gic/workloads"
)

func testHeader() *Header {
	return &Header{
		ID: "20261129-172900-1a2b", Time: time.Date(2026, 11, 29, 17, 29, 0, 0, time.UTC), Gic: "0.1",
		Command: []string{"gic", "run"}, Suite: "quick", Seed: 1, Ranks: 2, Repeat: 3, Cases: 12, Launch: "local",
		Host: Machine{Hostname: "laptop", OS: "linux", Kernel: "6.12.0", CPU: map[string]any{
			"model": "x", "allowed": 2.0, "frequency": 2.5e9,
		}, Absent: []string{"GPU: no driver library"}},
		Env: map[string]string{"NCCL_DEBUG": "WARN"},
	}
}

// latencies are log-normal, as per-operation times tend to be.
func latencies(rng *rand.Rand, n int, median float64) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = median * math.Exp(0.2*rng.NormFloat64())
	}
	return v
}

func mustMetric(name, unit string, class workloads.Class, samples []float64) Metric {
	m, err := FromSamples(name, unit, class, samples)
	if err != nil {
		panic(err)
	}
	return m
}

// testCase is a realistic full record.
func testCase(rng *rand.Rand, index int) *Case {
	put := mustMetric("put_completion", "s", workloads.Time, latencies(rng, 1000, 3e-6))
	put.Headline = true
	return &Case{
		Index: index, Order: 7,
		Workload: "op", Axes: map[string]string{"op": "put", "size": "8", "threads": "1"},
		Backend: "minigda", Config: map[string]string{"batch": "16", "qps": "1", "order": "seq_cst", "inline": "auto"},
		Created: map[string]string{"qps": "1", "sq_depth": "1024"},
		NIC:     "soft", NICConfig: map[string]string{"engine": "cpu", "profile": "none", "doorbell": "host"},
		Device: "host", Ranks: 2, Seed: 1,
		Start: time.Date(2026, 11, 29, 17, 29, 1, 500, time.UTC), Duration: 0.0123, Status: OK,
		Metrics: []Metric{
			mustMetric("issue", "s", workloads.Time, []float64{5.21e-8}),
			put,
			mustMetric("message_rate", "msg/s", workloads.Rate, []float64{19.2e6}),
		},
		Counters: []backends.Counter{
			{Name: "wqe_write", Unit: "1", Value: 1000, Exact: true}, {Name: "doorbells", Unit: "1", Value: 63, Exact: true},
			{Name: "cqes", Unit: "1", Value: 63, Exact: true}, {Name: "payload", Unit: "B", Value: 8000, Exact: true},
		},
		Expected: map[string]uint64{"wqe_write": 1000},
		Verify:   &workloads.Verification{Checked: 8192},
		Facts:    map[string]any{"routing_hash": "abc", "gini": 0.25},
		Host:     map[string]any{"cpus": 2.0, "runnable_threads": 4.0},
		Warnings: []workloads.Warning{{Code: "oversubscribed", Text: "4 threads on 2 CPUs"}},
	}
}
