package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPercentileIsNearestRank(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	// The five-value set is the usual textbook example of the method.
	five := []float64{15, 20, 35, 40, 50}
	for _, tc := range []struct {
		values []float64
		p      float64
		want   float64
	}{
		{five, 5, 15}, {five, 30, 20}, {five, 40, 20}, {five, 50, 35}, {five, 100, 50},
		{hundred, 1, 1}, {hundred, 50, 50}, {hundred, 90, 90}, {hundred, 99, 99}, {hundred, 99.1, 100},
		{hundred, 100, 100}, {hundred, 29, 29}, {hundred, 57, 57},
		{[]float64{7}, 0.1, 7}, {[]float64{7}, 99, 7},
		{[]float64{1, 2, 3}, 99, 3}, {[]float64{1, 2}, 50, 1},
	} {
		if got := Percentile(tc.values, tc.p); got != tc.want {
			t.Errorf("Percentile(%d values, %v) = %v, want %v", len(tc.values), tc.p, got, tc.want)
		}
	}
	if got := Percentile(nil, 50); !math.IsNaN(got) {
		t.Errorf("Percentile of nothing = %v, want NaN", got)
	}
}

// Every whole percentile of every n up to 200 must be the value whose rank the definition gives, computed here
// in integers.
func TestPercentileRanksHaveNoRoundingError(t *testing.T) {
	for n := 1; n <= 200; n++ {
		v := make([]float64, n)
		for i := range v {
			v[i] = float64(i + 1)
		}
		for p := 1; p <= 100; p++ {
			want := float64((p*n + 99) / 100)
			if got := Percentile(v, float64(p)); got != want {
				t.Fatalf("n=%d p=%d: got rank %v, want %v", n, p, got, want)
			}
		}
	}
}

func TestSummarize(t *testing.T) {
	in := []float64{5, 1, 3}
	s, err := Summarize(in)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]float64{5, 1, 3}, in); diff != "" {
		t.Errorf("input changed (-want +got):\n%s", diff)
	}
	if s.N != 3 || s.Median != 3 || s.Min != 1 || s.Max != 5 {
		t.Errorf("got %+v", s)
	}
	if s.Bounded() || len(s.Warnings) != 1 {
		t.Errorf("three runs cannot bound a 95 %% interval: %+v", s)
	}
	if got, want := s.Spread(), 4.0/3; got != want {
		t.Errorf("spread %v, want %v", got, want)
	}
	if s, _ := Summarize([]float64{1, 2, 3, 10}); s.Median != 2.5 {
		t.Errorf("median of four = %v, want 2.5", s.Median)
	}
	// Order statistics 1 and 6 of six values hold the median with probability 1-2/64 = 0.96875.
	s, _ = Summarize([]float64{6, 5, 4, 3, 2, 1})
	if !s.Bounded() || s.Low != 1 || s.High != 6 || math.Abs(s.Level-0.96875) > 1e-12 || len(s.Warnings) != 0 {
		t.Errorf("six runs: %+v", s)
	}
}

func TestSummarizeRefusesWhatIsNoNumber(t *testing.T) {
	if _, err := Summarize(nil); err != ErrNoValues {
		t.Errorf("nothing: %v", err)
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if _, err := Summarize([]float64{1, bad}); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
	if got := (Summary{N: 2}).Spread(); !math.IsNaN(got) {
		t.Errorf("spread around zero = %v", got)
	}
}

// The interval must hold the true median at least as often as it says, on skewed and heavy-tailed noise too.
func TestIntervalCoversTheMedian(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, d := range map[string]struct {
		draw   func() float64
		median float64
	}{
		"normal":    {rng.NormFloat64, 0},
		"lognormal": {func() float64 { return math.Exp(rng.NormFloat64()) }, 1},
		"exp":       {rng.ExpFloat64, math.Ln2},
		"cauchy":    {func() float64 { return math.Tan(math.Pi * (rng.Float64() - 0.5)) }, 0},
	} {
		for _, n := range []int{6, 10, 25} {
			const trials = 4000
			hit, level := 0, 0.0
			for range trials {
				v := make([]float64, n)
				for i := range v {
					v[i] = d.draw()
				}
				s, err := Summarize(v)
				if err != nil {
					t.Fatal(err)
				}
				if s.Low <= d.median && d.median <= s.High {
					hit++
				}
				level = s.Level
			}
			got := float64(hit) / trials
			// Four standard errors of a proportion of 0.95.
			if slack := 4 * math.Sqrt(0.05*0.95/trials); got < Confidence-slack || math.Abs(got-level) > slack {
				t.Errorf("%s n=%d: the interval held the median in %.3f of the trials, says %.3f", name, n, got, level)
			}
		}
	}
}

func TestPercentileAgreesWithCounting(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		v := make([]float64, 1+rng.IntN(50))
		for i := range v {
			v[i] = math.Floor(rng.Float64() * 20) // with ties
		}
		slices.Sort(v)
		for _, p := range []float64{1, 10, 50, 90, 99, 99.9} {
			got := Percentile(v, p)
			notLarger, smaller := 0, 0
			for _, x := range v {
				if x <= got {
					notLarger++
				}
				if x < got {
					smaller++
				}
			}
			need := p / 100 * float64(len(v))
			if float64(notLarger) < need-1e-9 || float64(smaller) >= need {
				t.Fatalf("p%v of %v = %v", p, v, got)
			}
		}
	}
}
