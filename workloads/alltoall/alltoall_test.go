package alltoall

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gic/backends"
	"gic/workloads"
	"gic/workloads/worktest"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "matrix")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return "file:" + path
}

func small(axes ...string) []string {
	return append([]string{"bytes", "16", "iterations", "3", "warmup", "1"}, axes...)
}

// uneven has empty and odd parts, and an empty one to itself.
const uneven = "0, 5, 16 # from 0\n\n3\t8 0\r\n1 0 7\n"

func TestVerify(t *testing.T) {
	worktest.CheckVerify(t, worktest.Prepare(t, Workload{}, 2, small("bytes", "13")...), 2, 0, 1)
	worktest.CheckVerify(t, worktest.Prepare(t, Workload{}, 3, small("matrix", write(t, uneven))...), 3, 0, 1, 2)
}

func TestCases(t *testing.T) {
	worktest.Case(t, "uniform", worktest.Prepare(t, Workload{}, 2, small()...), 2)
	worktest.Case(t, "uneven", worktest.Prepare(t, Workload{}, 3, small("matrix", write(t, uneven), "threads", "2")...), 3)
	worktest.Case(t, "many_threads", worktest.Prepare(t, Workload{}, 4, small("matrix", "skew:2", "threads", "6")...), 4)
}

func TestOps(t *testing.T) {
	o := worktest.Prepare(t, Workload{}, 3, small("matrix", write(t, uneven))...).Ops(1)
	var want workloads.Ops // 4 rounds: 3 bytes to 0, own part local, nothing but a signal to 2; 2 barrier signals
	want.Add(backends.OpPutSignal, 4, 3)
	want.Add(backends.OpSignal, 4+8, 8)
	if o != want {
		t.Errorf("%+v, expected %+v", o, want)
	}
}

func TestMatrix(t *testing.T) {
	m, err := parseMatrix("skew:2.5", 3, 10)
	if err != nil || m[1][0] != 25 || m[1][1] != 10 || m[2][2] != 10 {
		t.Errorf("skew: %v, %v", m, err)
	}
	for _, c := range []struct{ text, want string }{
		{"", "line 0: 0 rows, expected 2"},
		{"1 2\n", "line 1: 1 rows, expected 2"},
		{"1 2\n3 4\n5 6\n", "line 3: more than 2 rows"},
		{"# ranks\n1 2 3\n", "line 2: 3 values, expected 2"},
		{"1 2\n3 -4\n", `line 2: "-4" is not allowed: an integer in 0..1073741824`},
		{"1 2\n3 x\n", `line 2: "x" is not allowed`},
		{"1 1073741825\n3 4\n", `line 1: "1073741825" is not allowed`},
		{"0 0\n0 0\n", "no bytes to send"},
		{strings.Repeat("1", 2<<20), "line 1: bufio.Scanner: token too long"},
	} {
		if _, err := readMatrix(strings.NewReader(c.text), 2); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.20q: error %v, expected %q", c.text, err, c.want)
		}
	}
}

func TestPrepareErrors(t *testing.T) {
	w := Workload{}
	worktest.Errors(t, w, 1, "alltoall: ranks=1 is not allowed: at least 2")
	worktest.Errors(t, w, 2, "bytes=0 is not allowed", "bytes", "0")
	worktest.Errors(t, w, 2, "threads=0 is not allowed", "threads", "0")
	worktest.Errors(t, w, 2, "matrix=random is not allowed: uniform | skew:<x> | file:<path>", "matrix", "random")
	worktest.Errors(t, w, 2, "matrix=skew:0.5 is not allowed", "matrix", "skew:0.5")
	worktest.Errors(t, w, 2, "matrix=skew:NaN is not allowed", "matrix", "skew:NaN")
	worktest.Errors(t, w, 2, "a part of at most 1073741824 bytes", "matrix", "skew:2", "bytes", "1G")
	worktest.Errors(t, w, 2, "no such file", "matrix", "file:/nonexistent")
	worktest.Errors(t, w, 3, "line 2: 2 values, expected 3, one per rank", "matrix", write(t, "1 2 3\n1 2\n"))
	worktest.Errors(t, w, 128, "window of", "bytes", "1G")
}

func TestSummarize(t *testing.T) {
	// 16 bytes to each of 2 ranks: 32 bytes in 2 us (the slower rank), half of them really sent.
	job := worktest.Prepare(t, Workload{}, 2, small("iterations", "1")...)
	result := func(ns float64) workloads.RankResult {
		return workloads.RankResult{Series: []backends.Series{{Name: "iteration", Values: []float64{ns}}}}
	}
	s, err := job.Summarize([]workloads.RankResult{result(1000), result(2000)})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range s.Metrics {
		want := map[string]float64{"time": 2e-6, "algbw": 32 / 2e-6, "busbw": 16 / 2e-6}[m.Name]
		if len(m.Samples) != 1 || math.Abs(m.Samples[0]-want) > 1e-9*want {
			t.Errorf("%s: %v, expected %g", m.Name, m.Samples, want)
		}
	}
	if _, err := job.Summarize([]workloads.RankResult{result(1000), result(0)}); err != nil {
		t.Errorf("one rank alone without a time: %v", err)
	}
	if _, err := job.Summarize([]workloads.RankResult{result(0), result(0)}); err == nil {
		t.Error("an iteration without a time, and no error")
	}
}
