package attribution

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Sums are exact whatever their order; an interval survives exact numbers and ends at one published figure.
func TestQuantities(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	runs := func(key string, centre float64, n int) Quantity {
		v := make([]float64, n)
		for i := range v {
			v[i] = centre * math.Exp(0.05*rng.NormFloat64())
		}
		q, err := FromRuns(key, v)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	a, b, one := runs("a", 3e-6, 9), runs("b", 1e-6, 9), runs("one", 2e-6, 1)
	d := a.Sub(b)
	low, high, ok := d.Interval()
	if !ok || !(low < 2e-6 && 2e-6 < high) || high-low > 0.5e-6 {
		t.Errorf("interval of a-b is %g..%g, %v", low, high, ok)
	}
	if same := a.Sub(a); same.Value != 0 {
		t.Errorf("a-a = %v", same.Value)
	} else if low, high, _ := same.Interval(); low != 0 || high != 0 {
		t.Errorf("a-a lies in %g..%g: a row must move with itself", low, high)
	}
	if _, _, ok := a.Add(one).Interval(); ok || a.Add(one).Runs != 1 {
		t.Errorf("a + one figure has an interval")
	}
	if _, _, ok := a.Scale(2).Add(Exact(1e-6)).Interval(); !ok {
		t.Errorf("an exact number took the interval away")
	}
	if q, _ := FromRuns("long", []float64{1e4}); q.Runs != 0 {
		t.Errorf("10,000 s were taken: %v", q)
	}
	again, _ := FromRuns("k", []float64{1, 2, 3})
	first, _ := FromRuns("k", []float64{1, 2, 3})
	for i := range first.reps {
		if first.reps[i] != again.reps[i] {
			t.Fatal("replicates differ between two calls")
		}
	}
}

// The bootstrap interval of a median holds the true median about as often as it says.
func TestIntervalCoverage(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const tries = 300
	inside := 0
	for i := range tries {
		v := make([]float64, 11)
		for k := range v {
			v[k] = 1e-6 * math.Exp(0.2*rng.NormFloat64())
		}
		q, _ := FromRuns(string(rune('a'+i%26))+string(rune('a'+i/26)), v)
		if low, high, _ := q.Interval(); low <= 1e-6 && 1e-6 <= high {
			inside++
		}
	}
	if share := float64(inside) / tries; share < 0.90 || share > 1 {
		t.Errorf("%.0f %% of the intervals hold the median, want about 95 %%", 100*share)
	}
}

// Two numbers agree within 10 % of the larger, or where their intervals meet; an exact one is a point.
func TestAgree(t *testing.T) {
	runs := func(key string, v ...float64) Quantity {
		q, err := FromRuns(key, v)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	wide := runs("wide", -0.2e-6, 0.1e-6, 0.5e-6, 0.6e-6, 0.9e-6)
	for _, tt := range []struct {
		name string
		a, b Quantity
		want bool
	}{
		{"within 10 %", Exact(1e-6), Exact(1.09e-6), true},
		{"beyond 10 %", Exact(1e-6), Exact(1.2e-6), false},
		{"nothing, in an interval", wide, Exact(0), true},
		{"nothing, below all", runs("above", 0.5e-6, 0.6e-6, 0.7e-6), Exact(0), false},
		{"intervals meet", wide, runs("other", 0.8e-6, 1.5e-6, 2e-6), true},
		{"one figure has no interval", wide, runs("one", 5e-6), false},
	} {
		if got := agree(tt.a, tt.b, 0); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
