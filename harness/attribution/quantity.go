package attribution

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"gic/harness/stats"
)

// Femto is a time in femtoseconds. Integers make sums exact whatever their order: the parts of a split are its gap,
// not nearly its gap. It holds two and a half hours.
type Femto int64

// Seconds converts.
func (f Femto) Seconds() float64 { return float64(f) / 1e15 }

// ToFemto rounds a time in seconds.
func ToFemto(seconds float64) Femto { return Femto(math.Round(seconds * 1e15)) }

func (f Femto) String() string { return strconv.FormatFloat(float64(f)/1e9, 'g', 6, 64) + " us" }

// MarshalJSON writes seconds; all digits, so that a reader can add up.
func (f Femto) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, f.Seconds(), 'g', -1, 64), nil
}

// replicates is the number of bootstrap replicates. 2000 put the ends of a 95 % interval on 50 values each.
const replicates = 2000

// Quantity is a time and what is known of its spread. Quantities of one run that go back to the same rows move
// together when they are added, so that the spread of a difference is not overstated.
type Quantity struct {
	Value Femto
	// Runs is the smallest number of process runs behind any part of it; 0 for an exact number.
	Runs int
	reps []float64 // seconds, one per bootstrap replicate; nil: no interval
}

// Exact is a number without spread, a count for instance. It leaves the interval of what it is combined with.
func Exact(seconds float64) Quantity { return Quantity{Value: ToFemto(seconds)} }

// FromRuns is the median over process runs, its spread a bootstrap over them (percentile method). The replicates
// are drawn from key, so that the same row gives the same ones wherever it is used. One process run, or one
// published figure, has no spread that could be known.
func FromRuns(key string, values []float64) (Quantity, error) {
	s, err := stats.Summarize(values)
	if err != nil {
		return Quantity{}, fmt.Errorf("%s: %w", key, err)
	}
	if math.Abs(s.Max) > 9000 || math.Abs(s.Min) > 9000 {
		return Quantity{}, fmt.Errorf("%s: %g s is longer than 9000 s", key, s.Max)
	}
	q := Quantity{Value: ToFemto(s.Median), Runs: len(values)}
	if len(values) < 2 {
		return q, nil
	}
	h := fnv.New64a()
	h.Write([]byte(key))
	rng := rand.New(rand.NewPCG(h.Sum64(), uint64(len(values))))
	q.reps = make([]float64, replicates)
	draw := make([]float64, len(values))
	for i := range q.reps {
		for k := range draw {
			draw[k] = values[rng.IntN(len(values))]
		}
		slices.Sort(draw)
		n := len(draw)
		q.reps[i] = (draw[(n-1)/2] + draw[n/2]) / 2
	}
	return q, nil
}

// Interval holds the middle 95 % of the replicates, and the value. ok is false where there is none.
func (q Quantity) Interval() (low, high float64, ok bool) {
	if q.reps == nil {
		return 0, 0, false
	}
	s := slices.Sorted(slices.Values(q.reps))
	tail := (1 - stats.Confidence) / 2
	low, high = s[int(tail*float64(len(s)))], s[min(int((1-tail)*float64(len(s))), len(s)-1)]
	v := q.Value.Seconds()
	return min(low, v), max(high, v), true
}

// Known says whether the quantity has an interval, or needs none because it is exact.
func (q Quantity) Known() bool { return q.reps != nil || q.Runs == 0 }

// Basis says in words what the interval is, or why there is none.
func (q Quantity) Basis() string {
	switch {
	case q.Runs == 0:
		return "exact"
	case q.reps == nil && q.Runs == 1:
		return "no interval: one figure"
	case q.reps == nil:
		return "no interval: a part of it is one figure"
	case q.Runs < 6:
		return fmt.Sprintf("bootstrap over %d process runs, hardly more than their range", q.Runs)
	}
	return fmt.Sprintf("95 %% bootstrap over %d process runs", q.Runs)
}

// combine applies f to the values and to each pair of replicates.
func (q Quantity) combine(o Quantity, value Femto, f func(a, b float64) float64) Quantity {
	out := Quantity{Value: value, Runs: fewer(q.Runs, o.Runs)}
	if !q.Known() || !o.Known() || q.reps == nil && o.reps == nil {
		return out
	}
	at := func(x Quantity, i int) float64 {
		if x.reps == nil {
			return x.Value.Seconds()
		}
		return x.reps[i]
	}
	out.reps = make([]float64, replicates)
	for i := range out.reps {
		out.reps[i] = f(at(q, i), at(o, i))
	}
	return out
}

// fewer is the smaller number of process runs, 0 standing for an exact number.
func fewer(a, b int) int {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// Add is the sum.
func (q Quantity) Add(o Quantity) Quantity {
	return q.combine(o, q.Value+o.Value, func(a, b float64) float64 { return a + b })
}

// Sub is the difference.
func (q Quantity) Sub(o Quantity) Quantity {
	return q.combine(o, q.Value-o.Value, func(a, b float64) float64 { return a - b })
}

// Scale multiplies with a plain number.
func (q Quantity) Scale(by float64) Quantity {
	out := Quantity{Value: Femto(math.Round(float64(q.Value) * by)), Runs: q.Runs}
	if q.reps != nil {
		out.reps = make([]float64, len(q.reps))
		for i, v := range q.reps {
			out.reps[i] = v * by
		}
	}
	return out
}
