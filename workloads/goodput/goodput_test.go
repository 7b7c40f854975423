package goodput

import (
	"math"
	"slices"
	"strings"
	"testing"

	"gic/backends"
	"gic/workloads"
	"gic/workloads/worktest"
)

func TestVerify(t *testing.T) {
	worktest.CheckVerify(t, worktest.Prepare(t, Workload{}, 2, "size", "100", "messages", "3"), 2, 1)
}

func TestCases(t *testing.T) {
	worktest.Case(t, "pair", worktest.Prepare(t, Workload{}, 2, "size", "100", "messages", "3", "warmup", "1"), 2)
}

func TestSummarize(t *testing.T) {
	job := worktest.Prepare(t, Workload{}, 2, "size", "4K", "messages", "10", "threads", "2")
	s, err := job.Summarize([]workloads.RankResult{{Series: []backends.Series{{Name: "elapsed", Values: []float64{1000}}}}, {}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.Metrics[0].Samples[0], 2*10*4096/1e-6; got != want {
		t.Errorf("goodput %g, expected %g", got, want)
	}
}

// Copies that a backend timed stand beside the goodput; of two senders they add up, as it does.
func TestSummarizeCopies(t *testing.T) {
	job := worktest.Prepare(t, Workload{}, 2, "size", "4K", "messages", "10", "pattern", "all")
	series := func(name string, v float64) backends.Series { return backends.Series{Name: name, Values: []float64{v}} }
	sender := func(ns float64) workloads.RankResult {
		return workloads.RankResult{Series: []backends.Series{series("elapsed", 1000), series("copied", ns), series("copied_bytes", 4e4),
			series("copied_large", 2*ns), series("copied_large_bytes", 1e6)}}
	}
	s, err := job.Summarize([]workloads.RankResult{sender(1000), sender(500)})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"copy_bandwidth": 4e4/1e-6 + 4e4/5e-7, "copy_bandwidth_large": 1e6/2e-6 + 1e6/1e-6,
		"copy_share": 2 * (10 * 4096 / 1e-6) / (1e6/2e-6 + 1e6/1e-6)} {
		i := slices.IndexFunc(s.Metrics, func(m workloads.Metric) bool { return m.Name == name })
		if i < 0 || len(s.Metrics[i].Samples) != 1 || math.Abs(s.Metrics[i].Samples[0]-want) > 1e-9*want {
			t.Errorf("%s: %+v, expected %g", name, s.Metrics, want)
		}
	}
	plain, err := worktest.Prepare(t, Workload{}, 2).Summarize([]workloads.RankResult{{Series: []backends.Series{series("elapsed", 1000)}}, {}})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range plain.Metrics {
		if strings.HasPrefix(m.Name, "copy_") {
			t.Errorf("%s of a backend that took none: %v", m.Name, m.Samples)
		}
	}
}

// The slots of many threads or of large messages stay within a bound.
func TestWindowIsBounded(t *testing.T) {
	for _, c := range []struct {
		size, threads string
		most          uint64
	}{{"1M", "1", 64 << 20}, {"8", "1024", 64 << 20}, {"1M", "64", 192 << 20}} {
		job := worktest.Prepare(t, Workload{}, 2, "size", c.size, "threads", c.threads)
		if n := job.WindowBytes(); n > c.most {
			t.Errorf("size %s threads %s: window of %d bytes, expected at most %d", c.size, c.threads, n, c.most)
		}
	}
}

func TestKnee(t *testing.T) {
	for _, c := range []struct {
		name   string
		points []Point
		want   int // 0: none
	}{
		{"none", nil, 0},
		{"nothing moved", []Point{{8, 0}}, 0},
		{"one", []Point{{8, 1}}, 8},
		{"exactly 90 %", []Point{{8, 1}, {64, 89.9}, {512, 90}, {4096, 100}}, 512},
		{"unsorted", []Point{{4096, 100}, {512, 95}, {8, 1}}, 512},
		{"falls again", []Point{{8, 50}, {64, 100}, {512, 60}}, 64},
	} {
		knee, ok := Knee(c.points, 0.9)
		if ok != (c.want != 0) || knee.Size != c.want {
			t.Errorf("%s: %v %t, expected %d", c.name, knee, ok, c.want)
		}
	}
}
