package op

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"gic/backends"
	"gic/workloads"
	"gic/workloads/worktest"
)

// small keeps the windows and counts of a test small.
func small(axes ...string) []string {
	return append([]string{"iterations", "5", "warmup", "2", "posts", "3", "rounds", "2", "timer_check", "2"}, axes...)
}

// receivers of each operation's payload.
var receivers = map[string][]int{"put": {1}, "put_signal": {0, 1}, "atomic": {0, 1}, "read": {0}}

func TestVerify(t *testing.T) {
	for _, op := range names {
		for _, size := range []string{"8", "24", "9"} {
			if op == "atomic" && size != "8" {
				continue
			}
			t.Run(op+"/"+size, func(t *testing.T) {
				worktest.CheckVerify(t, worktest.Prepare(t, Workload{}, 2, small("op", op, "size", size)...), 2, receivers[op]...)
			})
		}
	}
}

func TestCases(t *testing.T) {
	for _, op := range names {
		worktest.Case(t, op, worktest.Prepare(t, Workload{}, 2, small("op", op)...), 2)
	}
	worktest.Case(t, "put_24_ranks_3", worktest.Prepare(t, Workload{}, 3, small("op", "put", "size", "24")...), 3)
	worktest.Case(t, "no_timer_check", worktest.Prepare(t, Workload{}, 2, small("op", "put", "timer_check", "0")...), 2)
}

func TestOps(t *testing.T) {
	// 3 posts x (2 warm-up + 2) rounds = 12; 2 + 5 completions = 7; 7 + 2 x 2 echoes = 11; 2 barriers.
	for _, c := range []struct {
		op, size string
		rank     int
		want     map[backends.Op]uint64
		payload  uint64
	}{
		{"put", "8", 0, map[backends.Op]uint64{backends.OpSignal: 2, backends.OpPut: 19, backends.OpNotifyWord: 11}, 32 * 8},
		{"put", "8", 1, map[backends.Op]uint64{backends.OpSignal: 2, backends.OpNotifyWord: 11}, 13 * 8},
		{"put", "64", 0, map[backends.Op]uint64{backends.OpSignal: 2, backends.OpPut: 19, backends.OpNotify: 11}, 16 + 30*64},
		{"put_signal", "64", 0, map[backends.Op]uint64{backends.OpSignal: 2, backends.OpPutSignal: 30}, 16 + 30*64},
		{"put_signal", "64", 1, map[backends.Op]uint64{backends.OpSignal: 2, backends.OpPutSignal: 11}, 16 + 11*64},
		{"atomic", "8", 0, map[backends.Op]uint64{backends.OpSignal: 14, backends.OpFetchAdd: 7}, 21 * 8},
		{"read", "64", 0, map[backends.Op]uint64{backends.OpSignal: 2, backends.OpGet: 19}, 16 + 19*64},
		{"read", "64", 1, map[backends.Op]uint64{backends.OpSignal: 2}, 16},
		{"put", "8", 2, map[backends.Op]uint64{backends.OpSignal: 2}, 16},
	} {
		ranks := max(2, c.rank+1)
		o := worktest.Prepare(t, Workload{}, ranks, small("op", c.op, "size", c.size)...).Ops(c.rank)
		barrier := uint64(2 * (ranks - 2)) // beyond that of two ranks
		for op, n := range o.Count {
			want := c.want[backends.Op(op)]
			if backends.Op(op) == backends.OpSignal {
				want += barrier
			}
			if n != want {
				t.Errorf("%s %s rank %d: operation %d: %d, expected %d", c.op, c.size, c.rank, op, n, want)
			}
		}
		if o.PayloadBytes != c.payload+8*barrier {
			t.Errorf("%s %s rank %d: %d payload bytes, expected %d", c.op, c.size, c.rank, o.PayloadBytes, c.payload+8*barrier)
		}
	}
}

func TestPrepareErrors(t *testing.T) {
	w := Workload{}
	worktest.Errors(t, w, 1, "ranks=1 is not allowed: at least 2")
	worktest.Errors(t, w, 2, "op=putt is not allowed: put|put_signal|atomic|read", "op", "putt")
	worktest.Errors(t, w, 2, "size=64 is not allowed with op=atomic: 8", "op", "atomic", "size", "64")
	for _, c := range [][3]string{
		{"size", "0", "8..1048576"}, {"size", "2M", "8..1048576"}, {"size", "-8", ""}, {"size", "x", ""}, {"size", "", ""},
		{"size", "99999999999999999999", ""}, {"size", "9999999999G", ""},
		{"iterations", "0", ""}, {"warmup", "1000001", ""}, {"posts", "0", ""}, {"posts", "32769", ""}, {"rounds", "0", ""},
		{"responder_delay", "1000001", ""}, {"timer_check", "100001", ""},
	} {
		worktest.Errors(t, w, 2, "op: "+c[0]+"="+c[1]+" is not allowed: an integer in "+c[2], c[0], c[1])
	}
}

// The initiator alone is placed: the responder must not land beside it.
func TestPlacement(t *testing.T) {
	job := worktest.Prepare(t, Workload{}, 3, "placement", "7")
	for rank, want := range []string{"7", "0", "0"} {
		run, err := job.Run(rank)
		if err != nil || run.Args["placement"] != want {
			t.Errorf("rank %d: placement %q, expected %s (%v)", rank, run.Args["placement"], want, err)
		}
	}
	worktest.Errors(t, Workload{}, 2, "placement=1025 is not allowed", "placement", "1025")
}

// With several places there is an issue time for each, and every operation's other samples.
func TestPlaces(t *testing.T) {
	job := worktest.Prepare(t, Workload{}, 2, small("op", "read", "places", "3", "rounds", "2", "iterations", "2")...).(workloads.Sweep)
	results := make([]workloads.RankResult, 2)
	results[0].Series = []backends.Series{
		{Name: "issue", Unit: "ns", Values: []float64{100, 102, 150, 152, 90, 92}},
		{Name: "completion", Unit: "ns", Values: []float64{1, 2, 3, 4, 5, 6}},
		{Name: "place_multiprocessor", Unit: "1", Values: []float64{0, 44, 88}},
		{Name: "place_queue", Unit: "1", Values: []float64{0, 1, 0}},
	}
	s, err := job.Summarize(results)
	if err != nil {
		t.Fatal(err)
	}
	near := cmpopts.EquateApprox(0, 1e-15)
	if d := cmp.Diff([]float64{101e-9, 151e-9, 91e-9}, s.Metrics[0].Samples, near); d != "" || len(s.Metrics[1].Samples) != 6 {
		t.Errorf("%+v (-want +got):\n%s", s.Metrics, d)
	}
	if d := cmp.Diff([]float64{0, 44, 88}, s.Facts["place_multiprocessor"]); d != "" {
		t.Errorf("%v", s.Facts)
	}
	for i, want := range []string{"0", "1", "2"} {
		if run, err := job.RunAt(0, i); err != nil || run.Args["place"] != want || run.Args["places"] != "3" {
			t.Errorf("run %d: %v (%v)", i, run.Args, err)
		}
	}
	results[0].Series[0].Values = results[0].Series[0].Values[:5]
	if _, err := job.Summarize(results); err == nil || !strings.Contains(err.Error(), "rank 0 gave 5 values of issue, expected 6") {
		t.Errorf("got %v", err)
	}
}

func TestSummarize(t *testing.T) {
	job := worktest.Prepare(t, Workload{}, 2, small("op", "put")...)
	summarize := func(delayed float64, hz ...float64) workloads.Summary {
		t.Helper()
		results := make([]workloads.RankResult, 2)
		results[0].Series = []backends.Series{
			{Name: "issue", Unit: "ns", Values: []float64{100, 300}},
			{Name: "completion", Unit: "ns", Values: []float64{1000, 2000, 3000, 4000, 5000}},
			{Name: "rtt", Unit: "ns", Values: []float64{7000, 6000, 6000, 6000, 6000}},
			{Name: "rtt_check", Unit: "ns", Values: []float64{6000, delayed, 6000 + checkStep, delayed + checkStep}},
			{Name: "clock_hz", Unit: "1", Values: hz},
		}
		s, err := job.Summarize(results)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := summarize(56000, 2e9, 2.01e9)
	want := map[string][]float64{
		"issue": {200e-9}, "put_completion": {1e-6, 2e-6, 3e-6, 4e-6, 5e-6},
		"rtt": {7e-6, 6e-6, 6e-6, 6e-6, 6e-6}, "one_way": {3.5e-6, 3e-6, 3e-6, 3e-6, 3e-6},
	}
	if len(s.Metrics) != len(want) {
		t.Errorf("%d metrics, expected %d", len(s.Metrics), len(want))
	}
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }
	for _, m := range s.Metrics {
		if !slices.EqualFunc(m.Samples, want[m.Name], near) || m.Unit != "s" || m.Class != workloads.Time {
			t.Errorf("%s: %v %s, expected %v s", m.Name, m.Samples, m.Unit, want[m.Name])
		}
	}
	if len(s.Warnings) != 0 {
		t.Errorf("warnings %v, expected none", s.Warnings)
	}
	if moved, ok := s.Facts["timer_check"].(float64); !ok || !near(moved, 50e-6) {
		t.Errorf("timer_check %v, expected 50e-6", s.Facts["timer_check"])
	}
	for _, c := range []struct {
		delayed float64
		hz      []float64
		code    string
	}{
		{55500, []float64{2e9}, "timer_check"}, {56400, []float64{2e9}, "timer_check"},
		{56000, []float64{2e9, 1.9e9}, "clock_moved"},
	} {
		s := summarize(c.delayed, c.hz...)
		if len(s.Warnings) != 1 || s.Warnings[0].Code != c.code {
			t.Errorf("delayed %g hz %v: warnings %v, expected %s", c.delayed, c.hz, s.Warnings, c.code)
		}
	}
}

func TestSummarizeSlotWait(t *testing.T) {
	job := worktest.Prepare(t, Workload{}, 2, small("op", "read")...)
	_, results := worktest.Simulated(t, job, 2)
	results[0].Counters = []backends.Counter{{Name: "slot_waits", Value: 3}}
	s, err := job.Summarize(results)
	if err != nil || len(s.Warnings) != 1 || s.Warnings[0].Code != "slot_wait" {
		t.Errorf("warnings %v, error %v; expected slot_wait", s.Warnings, err)
	}
}

func TestMetricsOfEachOperation(t *testing.T) {
	for op, want := range map[string][]string{
		"put":        {"issue", "put_completion", "rtt", "one_way"},
		"put_signal": {"issue", "put_completion", "rtt", "one_way"},
		"atomic":     {"issue", "completion"},
		"read":       {"issue", "completion"},
	} {
		job := worktest.Prepare(t, Workload{}, 2, small("op", op)...)
		_, results := worktest.Simulated(t, job, 2)
		s, err := job.Summarize(results)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range s.Metrics {
			got = append(got, m.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: metrics %v, expected %v", op, got, want)
		}
		results[0].Series = nil
		if _, err := job.Summarize(results); err == nil {
			t.Errorf("%s: no series, and no error", op)
		}
	}
}
