package rate

import (
	"math"
	"testing"

	"gic/backends"
	"gic/workloads"
	"gic/workloads/worktest"
)

func small(axes ...string) []string {
	return append([]string{"messages", "3", "warmup", "2", "threads", "2"}, axes...)
}

func TestVerify(t *testing.T) {
	for _, size := range []string{"8", "13"} {
		worktest.CheckVerify(t, worktest.Prepare(t, Workload{}, 3, small("size", size)...), 3, 1)
		worktest.CheckVerify(t, worktest.Prepare(t, Workload{}, 3, small("size", size, "pattern", "all")...), 3, 0, 1, 2)
		worktest.CheckVerify(t, worktest.Prepare(t, Workload{}, 2, small("size", size, "pattern", "self")...), 2, 0, 1)
		worktest.CheckVerify(t, worktest.Prepare(t, Workload{}, 1, small("size", size, "pattern", "self")...), 1, 0)
	}
}

func TestCases(t *testing.T) {
	worktest.Case(t, "pair", worktest.Prepare(t, Workload{}, 2, small()...), 2)
	worktest.Case(t, "all_ranks_3", worktest.Prepare(t, Workload{}, 3, small("pattern", "all", "size", "13")...), 3)
	worktest.Case(t, "wrapped", worktest.Prepare(t, Workload{}, 2, "messages", "70", "warmup", "1", "size", "1"), 2)
}

func TestOps(t *testing.T) {
	for _, c := range []struct {
		ranks, rank   int
		pattern       string
		puts, signals uint64
	}{
		{2, 0, "pair", 10, 3}, {2, 1, "pair", 0, 3},
		{3, 0, "pair", 10, 6}, {3, 2, "pair", 0, 6}, {4, 2, "pair", 10, 9},
		{3, 2, "all", 10, 6}, {1, 0, "self", 10, 0}, {2, 1, "self", 10, 3},
	} {
		o := worktest.Prepare(t, Workload{}, c.ranks, small("pattern", c.pattern)...).Ops(c.rank)
		var want workloads.Ops
		want.Add(backends.OpPut, c.puts, 8)
		want.Add(backends.OpSignal, c.signals, 8)
		if o != want {
			t.Errorf("%+v: %+v, expected %+v", c, o, want)
		}
	}
}

func TestPrepareErrors(t *testing.T) {
	w := Workload{}
	worktest.Errors(t, w, 1, "rate: ranks=1 is not allowed: at least 2, or pattern=self")
	worktest.Errors(t, w, 2, "pattern=ring is not allowed: pair|all|self", "pattern", "ring")
	worktest.Errors(t, w, 2, "size=0 is not allowed: an integer in 1..1048576", "size", "0")
	worktest.Errors(t, w, 2, "threads=0 is not allowed", "threads", "0")
	worktest.Errors(t, w, 2, "messages=0 is not allowed", "messages", "0")
	worktest.Errors(t, w, 2, "warmup=-1 is not allowed", "warmup", "-1")
	worktest.Errors(t, w, 2, "window of", "threads", "65536", "size", "1M")
}

func TestSummarize(t *testing.T) {
	// Ranks 0 and 2 send 2 threads x 3 messages in 2 and 4 us.
	job := worktest.Prepare(t, Workload{}, 4, small()...)
	results := make([]workloads.RankResult, 4)
	results[0].Series = []backends.Series{{Name: "elapsed", Values: []float64{2000}}}
	results[2].Series = []backends.Series{{Name: "elapsed", Values: []float64{4000}}}
	results[1].Series = []backends.Series{{Name: "clock_hz", Values: []float64{1.98e9}}}
	s, err := job.Summarize(results)
	if err != nil {
		t.Fatal(err)
	}
	if hz, ok := s.Facts["clock_hz"].([]float64); !ok || len(hz) != 1 || hz[0] != 1.98e9 {
		t.Errorf("clock_hz %v, expected the one clock that was measured", s.Facts["clock_hz"])
	}
	for _, m := range s.Metrics {
		want := map[string]float64{"message_rate": 6/2e-6 + 6/4e-6, "time": 4e-6}[m.Name]
		if len(m.Samples) != 1 || math.Abs(m.Samples[0]-want) > 1e-9*want {
			t.Errorf("%s: %v, expected %g", m.Name, m.Samples, want)
		}
	}
	results[2].Series = nil
	if _, err := job.Summarize(results); err == nil {
		t.Error("a sender without a time, and no error")
	}
}
