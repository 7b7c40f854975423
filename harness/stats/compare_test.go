package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/perf/benchmath"
)

var near = cmpopts.EquateApprox(1e-9, 1e-12)

func TestCompareKnownAnswers(t *testing.T) {
	for _, tc := range []struct {
		name            string
		old, new        []float64
		delta, p        float64
		low, high, from float64 // interval and level
	}{
		// Complete separation: U = 0 has probability 1/C(8,4) on either side. The interval is all of the ratios.
		{"4 against 4 apart", []float64{1, 2, 3, 4}, []float64{10, 20, 30, 40}, 9, 2.0 / 70, 10.0/4 - 1, 40 - 1, 1 - 2.0/70},
		// Three values on a side reach no level of 0.95: the interval has no bounds.
		{"3 against 3", []float64{1, 2, 3}, []float64{10, 20, 30}, 9, 0.1, math.Inf(-1), math.Inf(1), 1},
		// 5 against 5: P(U<=2) = 4/252 a side, P(U<=3) = 7/252 would be too much; so the third ratio from either end.
		{"5 against 5 apart", []float64{1, 1, 1, 1, 1}, []float64{2, 3, 4, 5, 6}, 3, 2.0 / 252, 1, 5, 1 - 8.0/252},
	} {
		c, err := Compare(tc.old, tc.new)
		if err != nil {
			t.Fatal(err)
		}
		got := []float64{c.Delta, c.Low, c.High, c.Level}
		if diff := cmp.Diff([]float64{tc.delta, tc.low, tc.high, tc.from}, got, near); diff != "" {
			t.Errorf("%s: delta, low, high, level (-want +got):\n%s", tc.name, diff)
		}
		// With ties the exact distribution is another one.
		if tc.name != "5 against 5 apart" && math.Abs(c.P-tc.p) > 1e-12 {
			t.Errorf("%s: p = %v, want %v", tc.name, c.P, tc.p)
		}
	}
}

func TestCompareRefusesWhatHasNoRatio(t *testing.T) {
	for _, tc := range [][2][]float64{{nil, {1}}, {{1}, nil}, {{-1, 1}, {1, 2}}, {{1, math.NaN()}, {1}}, {{1}, {math.Inf(1)}}} {
		if _, err := Compare(tc[0], tc[1]); err == nil {
			t.Errorf("Compare(%v, %v) is no error", tc[0], tc[1])
		}
	}
	c, err := Compare([]float64{0, 1, 2, 3}, []float64{1, 2, 3, 4})
	if err != nil || !math.IsNaN(c.Delta) || c.Bounded() {
		t.Errorf("with a zero: delta %v, interval bounded %v, error %v; want NaN, false, nil", c.Delta, c.Bounded(), err)
	}
	c, err = Compare([]float64{5, 5, 5, 5}, []float64{5, 5, 5, 5})
	if err != nil || c.P != 1 || c.Delta != 0 {
		t.Errorf("all equal: p %v, delta %v, error %v; want 1, 0, nil", c.P, c.Delta, err)
	}
}

// The interval must hold the true ratio at least as often as it says, for distributions that are not normal too.
func TestIntervalCoversTheTruth(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	draw := map[string]func() float64{
		"lognormal":   func() float64 { return math.Exp(0.3 * rng.NormFloat64()) },
		"exponential": func() float64 { return rng.ExpFloat64() + 1e-9 },
		"two modes":   func() float64 { return []float64{1, 3}[rng.IntN(2)] * math.Exp(0.01*rng.NormFloat64()) },
	}
	for _, name := range []string{"lognormal", "exponential", "two modes"} {
		for _, n := range []int{4, 7, 12} {
			const trials, truth = 2000, 1.25
			held := 0
			for range trials {
				old, new := make([]float64, n), make([]float64, n)
				for i := range n {
					old[i], new[i] = draw[name](), truth*draw[name]()
				}
				c, err := Compare(old, new)
				if err != nil {
					t.Fatal(err)
				}
				if c.Low <= truth-1 && truth-1 <= c.High {
					held++
				}
			}
			// 2000 trials at 0.95 have a standard deviation of 0.005.
			if share := float64(held) / trials; share < Confidence-0.015 {
				t.Errorf("%s, n=%d: the interval held the truth in %.3f of the trials", name, n, share)
			}
		}
	}
}

func TestLargeSamplesUseTheNormalApproximation(t *testing.T) {
	k1, _ := tail(50, 50)
	k2, _ := tail(50, 51)
	if k2 < k1 || k2 > k1+30 {
		t.Errorf("bound for 50 against 51 is %d, for 50 against 50, counted exactly, %d", k2, k1)
	}
}

func TestHolm(t *testing.T) {
	for _, tc := range []struct{ p, want []float64 }{
		// The worked example of the method: sorted 0.005*4, 0.01*3, 0.03*2, 0.04*1 raised to the one before.
		{[]float64{0.01, 0.04, 0.03, 0.005}, []float64{0.03, 0.06, 0.06, 0.02}},
		{[]float64{0.5, 0.9}, []float64{1, 1}},
		{[]float64{0.02}, []float64{0.02}},
		{nil, []float64{}},
	} {
		if diff := cmp.Diff(tc.want, Holm(tc.p), near); diff != "" {
			t.Errorf("Holm(%v) (-want +got):\n%s", tc.p, diff)
		}
	}
}

// Under true null hypotheses with uniform p-values, a family rejects something with probability alpha.
func TestHolmHoldsTheFamilyRate(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 1))
	const trials = 4000
	alarms := 0
	for range trials {
		p := make([]float64, 30)
		for i := range p {
			p[i] = rng.Float64()
		}
		for _, q := range Holm(p) {
			if q < 0.05 {
				alarms++
				break
			}
		}
	}
	if share := float64(alarms) / trials; share > 0.06 || share < 0.04 {
		t.Errorf("a family of true nulls raised an alarm in %.3f of the trials, want 0.05", share)
	}
}

func TestSmallestPAndRunsNeeded(t *testing.T) {
	for _, tc := range []struct {
		n1, n2 int
		want   float64
	}{{4, 4, 2.0 / 70}, {5, 5, 2.0 / 252}, {4, 8, 2.0 / 495}, {1, 1, 1}, {0, 5, 1}} {
		if got := SmallestP(tc.n1, tc.n2); math.Abs(got-tc.want) > 1e-12 {
			t.Errorf("SmallestP(%d, %d) = %v, want %v", tc.n1, tc.n2, got, tc.want)
		}
	}
	for _, tc := range []struct{ tests, want int }{{1, 4}, {2, 5}, {6, 5}, {7, 6}, {100, 8}, {1000, 9}} {
		if got := RunsNeeded(tc.tests, 0.05); got != tc.want {
			t.Errorf("RunsNeeded(%d) = %d, want %d", tc.tests, got, tc.want)
		}
	}
}

func TestGeomean(t *testing.T) {
	for _, tc := range []struct {
		v    []float64
		want float64
	}{{[]float64{1, 4}, 2}, {[]float64{0.5, 2}, 1}, {[]float64{7}, 7}, {nil, math.NaN()}, {[]float64{1, 0}, math.NaN()}, {[]float64{1, -1}, math.NaN()}} {
		if got := Geomean(tc.v); !cmp.Equal(tc.want, got, near, cmpopts.EquateNaNs()) {
			t.Errorf("Geomean(%v) = %v, want %v", tc.v, got, tc.want)
		}
	}
}

func TestWarmUp(t *testing.T) {
	for _, tc := range []struct {
		v    []float64
		want bool
	}{
		{[]float64{10, 5, 5.1, 4.9}, true}, {[]float64{1, 5, 5.1, 4.9}, true}, {[]float64{5.2, 5, 5.1, 4.9}, false},
		{[]float64{5, 10, 5.1, 4.9}, false}, {[]float64{10, 5, 5}, false}, {[]float64{5, 5, 5, 5}, false}, {nil, false},
	} {
		if got := WarmUp(tc.v); got != tc.want {
			t.Errorf("WarmUp(%v) = %v", tc.v, got)
		}
	}
}

func TestChangesFindsSteps(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 1))
	series := func(levels ...float64) []float64 {
		var v []float64
		for _, l := range levels {
			for range 12 {
				v = append(v, l*(1+0.01*rng.NormFloat64()))
			}
		}
		return v
	}
	for _, tc := range []struct {
		name   string
		values []float64
		want   []int
	}{
		{"one step", series(1, 1.2), []int{12}},
		{"up and down", series(1, 1.3, 1.1), []int{12, 24}},
		{"one wild value is no step", append(append(series(1), 50), series(1)...), nil},
		{"constant", []float64{3, 3, 3, 3, 3, 3, 3, 3, 3, 3}, nil},
		{"too short", []float64{1, 1, 9, 9, 9}, nil},
		{"nothing", nil, nil},
	} {
		var got []int
		for _, c := range Changes(tc.values, 0.01, 1) {
			got = append(got, c.At)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
	v := series(1, 1.2)
	c := Changes(v, 0.01, 1)
	if len(c) != 1 || math.Abs(c[0].Before-1) > 0.02 || math.Abs(c[0].After-1.2) > 0.02 || c[0].P > 0.002 {
		t.Errorf("step from 1 to 1.2: %+v", c)
	}
	if diff := cmp.Diff(c, Changes(v, 0.01, 1)); diff != "" {
		t.Errorf("the same seed gives other changes:\n%s", diff)
	}
}

// Series without a change must not show one more often than alpha, whatever their length.
func TestChangesFalseAlarms(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 1))
	const trials = 300
	alarms := 0
	for i := range trials {
		v := make([]float64, 6+i%20)
		for k := range v {
			v[k] = math.Exp(rng.NormFloat64())
		}
		if len(Changes(v, 0.05, uint64(i))) > 0 {
			alarms++
		}
	}
	// 300 trials at 0.05 have a standard deviation of 0.013.
	if share := float64(alarms) / trials; share > 0.05+0.026 {
		t.Errorf("%.3f of series without a change show one", share)
	}
}

// TestMannWhitneyIsBenchmath: remembered or not, each answer is benchmath's own.
func TestMannWhitneyIsBenchmath(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for range 3000 {
		draw := func() []float64 {
			v := make([]float64, 1+rng.IntN(7))
			for i := range v {
				if v[i] = rng.Float64(); rng.IntN(6) == 0 {
					v[i] = 0.5 // ties
				}
			}
			return v
		}
		a, b := draw(), draw()
		x := benchmath.NewSample(slices.Clone(a), &benchmath.DefaultThresholds)
		y := benchmath.NewSample(slices.Clone(b), &benchmath.DefaultThresholds)
		want := benchmath.AssumeNothing.Compare(x, y).P
		c, err := Compare(a, b)
		if err != nil || c.P != want {
			t.Fatalf("%v against %v: p is %v (%v), benchmath says %v", a, b, c.P, err, want)
		}
	}
}
