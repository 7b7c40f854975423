package caller

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"gic/backends"
	"gic/workloads"
	"gic/workloads/worktest"
)

func small(axes ...string) []string {
	return append([]string{"messages", "2", "blocks", "3", "threads", "32", "iterations", "5", "rounds", "2", "warmup", "1"}, axes...)
}

func TestVerify(t *testing.T) {
	for _, work := range []string{"compute", "stream"} {
		worktest.CheckVerify(t, worktest.Prepare(t, Workload{}, 2, small("work", work, "size", "13")...), 2, 0, 1)
	}
	worktest.CheckVerify(t, worktest.Prepare(t, Workload{}, 3, small("messages", "0")...), 3, 0)
}

func TestCases(t *testing.T) {
	worktest.Case(t, "compute", worktest.Prepare(t, Workload{}, 2, small()...), 2)
	worktest.Case(t, "stream_16", worktest.Prepare(t, Workload{}, 3, small("work", "stream", "live", "16", "size", "100")...), 3)
	worktest.Case(t, "compute_32_dormant", worktest.Prepare(t, Workload{}, 2, small("live", "32", "messages", "0")...), 2)
	worktest.Case(t, "compute_64", worktest.Prepare(t, Workload{}, 2, small("live", "64", "blocks", "1", "threads", "96")...), 2)
}

func TestOps(t *testing.T) {
	job := worktest.Prepare(t, Workload{}, 3, small("size", "7168")...)
	var want workloads.Ops
	want.Add(backends.OpPut, 2*3*3*2, 7168) // variants that send, rounds, blocks, messages
	if o := job.Ops(0); o != want {
		t.Errorf("rank 0: %+v, expected %+v", o, want)
	}
	for _, rank := range []int{1, 2} {
		if o := job.Ops(rank); o != (workloads.Ops{}) {
			t.Errorf("rank %d: %+v, expected nothing", rank, o)
		}
	}
	if o := worktest.Prepare(t, Workload{}, 2, small("messages", "0")...).Ops(0); o.Count != [backends.NumOps]uint64{} {
		t.Errorf("messages=0: %+v, expected nothing", o)
	}
}

func TestPrepareErrors(t *testing.T) {
	w := Workload{}
	worktest.Errors(t, w, 1, "caller: ranks=1 is not allowed: at least 2")
	worktest.Errors(t, w, 2, "work=copy is not allowed: compute|stream", "work", "copy")
	worktest.Errors(t, w, 2, "live=24 is not allowed: 8|16|32|64", "live", "24")
	worktest.Errors(t, w, 2, "threads=100 is not allowed: a multiple of 32", "threads", "100")
	worktest.Errors(t, w, 2, "call=far is not allowed: inlined|apart", "call", "far")
	worktest.Errors(t, w, 2, "bound=2 is not allowed: 1|8", "bound", "2")
	worktest.Errors(t, w, 2, "blocks=0 is not allowed", "blocks", "0")
	worktest.Errors(t, w, 2, "work=stream writes 70866960384 values", "work", "stream", "blocks", "528", "iterations", "65536")
	worktest.Errors(t, w, 2, "lower size, messages or blocks", "size", "1M", "messages", "1024", "blocks", "16384")
}

// The multiply-add of Go's double precision, rounded to single, must be that of a device: exact, rounded once.
func TestFMA32(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	exact := func(x, y, z float32) float32 {
		f := func(v float32) *big.Float { return new(big.Float).SetPrec(300).SetFloat64(float64(v)) }
		r, _ := new(big.Float).SetPrec(300).Add(new(big.Float).SetPrec(300).Mul(f(x), f(y)), f(z)).Float32()
		return r
	}
	for range 200000 {
		x := math.Float32frombits(0x3f000000 | rng.Uint32()&0x007fffff)
		y := math.Float32frombits(0x3f000000 | rng.Uint32()&0x007fffff)
		// Far apart in size, so that ties of the first rounding occur.
		z := math.Float32frombits((100+rng.Uint32N(40))<<23 | rng.Uint32()&0x00000fff<<11 | rng.Uint32()&0x80000000)
		got, want := fma32(x, y, z), exact(x, y, z)
		if got != want {
			t.Fatalf("fma32(%g, %g, %g) = %g, expected %g", x, y, z, got, want)
		}
	}
	// 1 + 2^-23 times 1 plus half of the last place and a little: the plain way rounds the little away.
	x, z := float32(1+0x1p-12), float32(0x1p-60)
	if got, want := fma32(x, x, z), exact(x, x, z); got != want {
		t.Errorf("fma32 near a tie = %x, expected %x", got, want)
	} else if float32(float64(x)*float64(x)+float64(z)) == want {
		t.Error("the tie does not tell one rounding from two")
	}
}

// Each step must change the sum, or work that was left out would not be seen.
func TestSumTellsIterations(t *testing.T) {
	seen := map[uint64]string{}
	for _, n := range []string{"1", "2", "63", "64", "1023", "1024", "1025"} {
		job := worktest.Prepare(t, Workload{}, 2, small("iterations", n)...).(*job)
		if was, ok := seen[job.sum()]; ok {
			t.Errorf("iterations=%s and %s give the same sum", was, n)
		}
		seen[job.sum()] = n
	}
}

func TestSummarize(t *testing.T) {
	job := worktest.Prepare(t, Workload{}, 2, small("iterations", "1000")...)
	results := make([]workloads.RankResult, 2)
	results[0].Series = []backends.Series{
		{Name: "absent", Values: []float64{1000, 1200}}, {Name: "dormant", Values: []float64{1000, 1000}},
		{Name: "send", Values: []float64{1250, 1500}}, {Name: "send_wait", Values: []float64{2000, 2400}},
		{Name: "alone", Values: []float64{900, 900}}, {Name: "clock_hz", Values: []float64{2e9, 1.5e9}},
		{Name: "registers", Values: []float64{29, 32}}, {Name: "local_bytes", Values: []float64{0, 8}},
		{Name: "blocks_per_sm", Values: []float64{8, 7}},
	}
	s, err := job.Summarize(results)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]float64{}
	for _, m := range s.Metrics {
		got[m.Name] = m.Samples
	}
	for name, want := range map[string][]float64{
		"absent": {1e-6, 1.2e-6}, "send": {1.25e-6, 1.5e-6}, "kept_dormant": {1, 1.2}, "kept_send": {0.8, 0.8}, "kept_wait": {0.5, 0.5},
		"alone": {9e-7, 9e-7},
	} {
		same := func(a, b float64) bool { return math.Abs(a-b) < 1e-9*b }
		if !slices.EqualFunc(got[name], want, same) {
			t.Errorf("%s: %v, expected %v", name, got[name], want)
		}
	}
	for fact, want := range map[string]float64{
		"registers_absent": 29, "registers_code": 32, "local_bytes_code": 8, "blocks_per_sm_absent": 8,
		"throughput_absent": 3 * 32 * 8 * 1000 / 1.1e-6,
	} {
		if v, ok := s.Facts[fact].(float64); !ok || math.Abs(v-want) > 1e-9*want {
			t.Errorf("fact %s: %v, expected %g", fact, s.Facts[fact], want)
		}
	}
	if len(s.Warnings) != 1 || s.Warnings[0].Code != "clock_moved" {
		t.Errorf("warnings %v, expected clock_moved", s.Warnings)
	}
	results[0].Series = results[0].Series[1:]
	if _, err := job.Summarize(results); err == nil {
		t.Error("no time of absent, and no error")
	}
}
