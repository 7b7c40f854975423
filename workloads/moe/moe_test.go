package moe

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"gic/backends"
	"gic/workloads"
	"gic/workloads/routing"
	"gic/workloads/window"
	"gic/workloads/worktest"
)

func trace(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trace")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return "trace:" + path
}

func small(axes ...string) []string {
	return append([]string{
		"model", "custom", "hidden", "8", "experts", "4", "topk", "2", "tokens", "3", "iterations", "2", "warmup", "1",
	}, axes...)
}

// onlyFirst sends all tokens of two ranks to experts of rank 0, one of them twice to that rank, one nowhere.
const onlyFirst = "0 1\n0 -1\n-1 -1\n1 0\n-1 0\n1 -1\n"

func TestVerify(t *testing.T) {
	for _, layout := range []string{"expert", "rank"} {
		worktest.CheckVerify(t, worktest.Prepare(t, Workload{}, 2, small("layout", layout)...), 2, 0, 1)
		worktest.CheckVerify(t, worktest.Prepare(t, Workload{}, 2,
			small("layout", layout, "routing", trace(t, onlyFirst))...), 2, 0, 1)
		worktest.CheckVerify(t, worktest.Prepare(t, Workload{}, 1, small("layout", layout)...), 1, 0)
	}
}

func TestCases(t *testing.T) {
	for _, layout := range []string{"expert", "rank"} {
		worktest.Case(t, layout, worktest.Prepare(t, Workload{}, 2, small("layout", layout)...), 2)
		worktest.Case(t, layout+"_empty", worktest.Prepare(t, Workload{}, 2,
			small("layout", layout, "routing", trace(t, onlyFirst), "threads", "2")...), 2)
		worktest.Case(t, layout+"_ranks_4", worktest.Prepare(t, Workload{}, 4,
			small("layout", layout, "experts", "8", "topk", "3", "masked", "0.2", "threads", "2", "routing", "power:1.2")...), 4)
	}
	// More agents than channels: several share one, and some have no row of it.
	worktest.Case(t, "expert_shared", worktest.Prepare(t, Workload{}, 2, small("threads", "12", "share", "0")...), 2)
	worktest.Case(t, "rank_shared", worktest.Prepare(t, Workload{}, 2,
		small("layout", "rank", "hidden", "264", "tokens", "2", "threads", "4", "share", "3")...), 2)
	worktest.Case(t, "all_masked", worktest.Prepare(t, Workload{}, 2, small("masked", "1")...), 2)
}

func TestOps(t *testing.T) {
	// Rank 0 has 4 assignments, all local; rank 1 sends 4 rows (expert) or 3 (rank) and rank 0 returns them. 3
	// rounds, 2 barriers each, 2 channels per pair (expert) or 1 in each direction.
	for _, c := range []struct {
		layout        string
		rank          int
		puts, signals uint64
	}{{"expert", 0, 3 * 4, 3 * (2 + 2*2)}, {"expert", 1, 3 * 4, 3 * (2 + 2*2)}, {"rank", 0, 3 * 3, 3 * (2 + 2)}, {"rank", 1, 3 * 3, 3 * (2 + 2)}} {
		o := worktest.Prepare(t, Workload{}, 2, small("layout", c.layout, "routing", trace(t, onlyFirst))...).Ops(c.rank)
		var want workloads.Ops
		want.Add(backends.OpPut, c.puts, 16)
		want.Add(backends.OpSignal, c.signals, 8)
		if o != want {
			t.Errorf("%s rank %d: %+v, expected %+v", c.layout, c.rank, o, want)
		}
	}
}

func TestFacts(t *testing.T) {
	job := worktest.Prepare(t, Workload{}, 2, small("layout", "rank", "routing", trace(t, onlyFirst))...)
	_, results := worktest.Simulated(t, job, 2)
	s, err := job.Summarize(results)
	if err != nil {
		t.Fatal(err)
	}
	for fact, want := range map[string]any{
		"assignments": 7, "dedup_copies": 5, "max_mean_rank": 2.0, "max_mean_expert": 16.0 / 7,
		"dispatch_messages": 3, "dispatch_wire_bytes": uint64(48), "dispatch_logical_bytes": uint64(112), "dtype": "bf16",
	} {
		if s.Facts[fact] != want {
			t.Errorf("%s: %v, expected %v", fact, s.Facts[fact], want)
		}
	}
	if h, _ := s.Facts["routing_hash"].(string); len(h) != 64 {
		t.Errorf("routing_hash %q", h)
	}
	var names []string
	for _, m := range s.Metrics {
		names = append(names, m.Name)
		if len(m.Samples) != 2 {
			t.Errorf("%s: %d samples, expected 2", m.Name, len(m.Samples))
		}
	}
	if !slices.Equal(names, []string{"dispatch", "combine", "reduce"}) {
		t.Errorf("metrics %v", names)
	}
}

// The float64 reference alone must refuse a result whose bytes are not compared, when it is off by more than
// rounding: one expert's factor wrong, one gate left out.
func TestReferenceRefuses(t *testing.T) {
	j := worktest.Prepare(t, Workload{}, 2, small("hidden", "64", "tokens", "8")...).(*job)
	windows, _ := worktest.Simulated(t, j, 2)
	check := func() uint64 {
		c := window.NewCheck(0, windows[0])
		if err := j.verifyResult(0, windows[0], c); err != nil {
			t.Fatal(err)
		}
		return c.Result.Wrong
	}
	if wrong := check(); wrong != 0 {
		t.Fatalf("%d bytes of a right result are refused", wrong)
	}
	right := slices.Clone(windows[0])
	terms := j.reduceSums(0)[0]
	for name, bad := range map[string][]term{
		"without its last term": terms[:len(terms)-1],
		"with the gate doubled": {terms[0], {terms[1].row, 2 * terms[1].weight}},
	} {
		copy(windows[0], right)
		row := make([]byte, j.x.Size)
		err := weigh(bad, func(i int) ([]byte, error) {
			in := make([]byte, j.x.Size)
			return in, windows[0].Read(j.back.At(i), in)
		}, row)
		if err != nil {
			t.Fatal(err)
		}
		copy(windows[0][j.out.At(0):], row)
		if wrong := check(); wrong < 64 {
			t.Errorf("a token reduced %s: only %d bytes are refused", name, wrong)
		}
	}
}

// Every product is exact in fp32, so that fused and separate multiply-adds agree.
func TestProductsAreExact(t *testing.T) {
	for e := range 64 {
		for g := range 128 {
			w := factor(e) * float32(128+g) / 1024
			if float64(w) != float64(factor(e))*float64(128+g)/1024 {
				t.Fatalf("expert %d gate %d: weight is rounded", e, g)
			}
			for x := range 128 {
				v := float32(128+x) / 128
				if float64(w*v) != float64(w)*float64(v) {
					t.Fatalf("expert %d gate %d element %d: product is rounded", e, g, x)
				}
			}
		}
	}
}

func TestFactorsDiffer(t *testing.T) {
	seen := map[float32]int{}
	for e := range 64 {
		f := factor(e)
		if other, ok := seen[f]; ok {
			t.Errorf("experts %d and %d have the factor %g", other, e, f)
		}
		seen[f] = e
	}
}

func TestBF16(t *testing.T) {
	for _, c := range []struct {
		in   float32
		want uint16
	}{
		{0, 0}, {1, 0x3f80}, {-2, 0xc000}, {1 + 1.0/256, 0x3f80}, {1 + 3.0/256, 0x3f82}, {1 + 1.0/256 + 1e-6, 0x3f81},
		{1.9999, 0x4000},
	} {
		if got := toBF16(c.in); got != c.want {
			t.Errorf("%g: 0x%04x, expected 0x%04x", c.in, got, c.want)
		}
	}
	for v := range 1 << 16 {
		if f := fromBF16(uint16(v)); !math.IsNaN(float64(f)) && toBF16(f) != uint16(v) {
			t.Fatalf("0x%04x does not survive", v)
		}
	}
}

func TestSourceRowsStayInRange(t *testing.T) {
	j := worktest.Prepare(t, Workload{}, 2, small()...).(*job)
	row := make([]byte, 4096)
	j.sourceRow(1)(5, row)
	for i := 0; i < len(row); i += 2 {
		if v := math.Abs(float64(fromBF16(binary.LittleEndian.Uint16(row[i:])))); v < 0.25 || v >= 4 {
			t.Fatalf("element %d is %g", i/2, v)
		}
	}
}

func TestPrepareErrors(t *testing.T) {
	w := Workload{}
	worktest.Errors(t, w, 3, "moe: experts=8 is not allowed: a multiple of ranks=3")
	worktest.Errors(t, w, 0, "ranks=0 is not allowed")
	worktest.Errors(t, w, 2, "model=gpt-2 is not allowed: deepseek-v3|", "model", "gpt-2")
	worktest.Errors(t, w, 2, "hidden=0 is not allowed with model=custom", "model", "custom", "experts", "4", "topk", "2")
	worktest.Errors(t, w, 2, "topk=9 is not allowed: at most experts=8", "topk", "9")
	worktest.Errors(t, w, 2, "topk=65 is not allowed: an integer in 0..64", "topk", "65")
	worktest.Errors(t, w, 2, "hidden=12 is not allowed: a multiple of 8", "hidden", "12")
	worktest.Errors(t, w, 2, "tokens=0 is not allowed", "tokens", "0")
	worktest.Errors(t, w, 2, "layout=token is not allowed: expert|rank", "layout", "token")
	worktest.Errors(t, w, 2, "masked=1.5 is not allowed: a number in 0..1", "masked", "1.5")
	worktest.Errors(t, w, 2, "masked=NaN is not allowed", "masked", "NaN")
	worktest.Errors(t, w, 2, "routing=zipf is not allowed: "+routing.Specs, "routing", "zipf")
	worktest.Errors(t, w, 8, "tokens=65536 is not allowed: ranks x tokens x topk is 33554432, at most 16777216",
		"tokens", "65536", "experts", "64", "topk", "64")
	worktest.Errors(t, w, 2, "window of", "tokens", "8192", "experts", "64", "topk", "64", "hidden", "64K")
	worktest.Errors(t, w, 2, "line 1: 3 experts, expected topk=2", "routing", trace(t, "1 2 3\n"))
}

func TestModels(t *testing.T) {
	for _, m := range models {
		if m.hidden%8 != 0 || m.topk > m.experts || m.hidden == 0 || m.topk == 0 {
			t.Errorf("%+v makes no sense", m)
		}
		for _, layout := range []string{"expert", "rank"} {
			job := worktest.Prepare(t, Workload{}, 2, "model", m.name, "hidden", "8", "tokens", "2", "layout", layout)
			windows, _ := worktest.Simulated(t, job, 2)
			for rank, mem := range windows {
				if v, err := job.Verify(rank, mem); err != nil || v.Wrong != 0 {
					t.Errorf("%s %s rank %d: %+v %v", m.name, layout, rank, v, err)
				}
			}
		}
	}
}
