package stats

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"

	mstats "github.com/aclements/go-moremath/stats"
	"golang.org/x/perf/benchmath"
)

// Comparison is what two sets of process runs say about each other.
type Comparison struct {
	Old, New Summary
	// Delta is new/old-1 of the medians; Low and High bound the shift at Level, which is at least Confidence.
	// All are NaN where a value is zero, and the bounds infinite where there are too few values.
	Delta, Low, High float64
	Level            float64
	// P is the two-sided p-value of the Mann-Whitney test, exact for small samples: how often two sets that
	// differ in nothing are at least as far apart. It is 1 where the test can say nothing.
	P float64
}

// Bounded says whether the interval of the shift is finite.
func (c Comparison) Bounded() bool {
	return !math.IsNaN(c.Low) && !math.IsNaN(c.High) && !math.IsInf(c.Low, 0) && !math.IsInf(c.High, 0)
}

// Compare compares two sets of one value per process run, assuming nothing about their distribution. The
// interval is the one that belongs to the test: order statistics of all ratios new/old (Hodges and Lehmann),
// widened where needed to hold the ratio of the medians. Negative, NaN and infinite values are errors.
func Compare(old, new []float64) (Comparison, error) {
	c := Comparison{Delta: math.NaN(), Low: math.NaN(), High: math.NaN(), P: 1}
	var err error
	if c.Old, err = Summarize(old); err != nil {
		return c, fmt.Errorf("old: %w", err)
	}
	if c.New, err = Summarize(new); err != nil {
		return c, fmt.Errorf("new: %w", err)
	}
	if c.Old.Min < 0 || c.New.Min < 0 {
		return c, fmt.Errorf("negative value %g: no ratio", min(c.Old.Min, c.New.Min))
	}
	x := benchmath.NewSample(slices.Clone(old), &benchmath.DefaultThresholds)
	y := benchmath.NewSample(slices.Clone(new), &benchmath.DefaultThresholds)
	c.P = mannWhitney(x, y)
	if c.Old.Min == 0 || c.New.Min == 0 {
		return c, nil
	}
	c.Delta = c.New.Median/c.Old.Median - 1
	c.Low, c.High, c.Level = shift(x.Values, y.Values)
	c.Low, c.High = min(c.Low, c.Delta), max(c.High, c.Delta)
	return c, nil
}

// ranking is all that the test sees of two samples without ties: their sizes, and how many pairs have the old value
// first.
type ranking struct{ old, new, before int }

// pValues are those of small samples: a diff of many cases meets the same few again and again.
var pValues sync.Map // ranking to float64

// mannWhitney is benchmath's test, asked once for each order of values.
func mannWhitney(x, y *benchmath.Sample) float64 {
	key, tied := rank(x.Values, y.Values)
	if tied || key.old*key.new > exactPairs {
		return benchmath.AssumeNothing.Compare(x, y).P
	}
	if p, ok := pValues.Load(key); ok {
		return p.(float64)
	}
	p := benchmath.AssumeNothing.Compare(x, y).P
	pValues.Store(key, p)
	return p
}

// rank goes through two ascending samples; tied says that two values are equal.
func rank(old, new []float64) (r ranking, tied bool) {
	r.old, r.new = len(old), len(new)
	i := 0
	for j, v := range new {
		for i < len(old) && old[i] < v {
			i++
		}
		if i < len(old) && old[i] == v || j > 0 && new[j-1] == v {
			return r, true
		}
		r.before += i
	}
	for i := 1; i < len(old); i++ {
		if old[i] == old[i-1] {
			return r, true
		}
	}
	return r, false
}

// shift bounds the ratio of two ascending samples, minus one.
func shift(old, new []float64) (low, high, level float64) {
	k, level := tail(len(old), len(new))
	if k == 0 {
		return math.Inf(-1), math.Inf(1), 1
	}
	ratios := make([]float64, 0, len(old)*len(new))
	for _, o := range old {
		for _, n := range new {
			ratios = append(ratios, n/o)
		}
	}
	slices.Sort(ratios)
	return ratios[k-1] - 1, ratios[len(ratios)-k] - 1, level
}

type sizes struct{ old, new int }

type tailResult struct {
	k     int
	level float64
}

var tails sync.Map // sizes to tailResult

// exactPairs is the largest product of sizes for which the distribution of U is counted out.
const exactPairs = 2500

// tail returns the k-th ratio from either end that bounds the shift with Confidence, 0 for none, and the level
// that this reaches.
func tail(n1, n2 int) (k int, level float64) {
	key := sizes{min(n1, n2), max(n1, n2)}
	if r, ok := tails.Load(key); ok {
		t := r.(tailResult)
		return t.k, t.level
	}
	pairs := n1 * n2
	t := tailResult{level: 1}
	if pairs > exactPairs {
		mean, sd := float64(pairs)/2, math.Sqrt(float64(pairs)*float64(n1+n2+1)/12)
		z := mstats.InvCDF(mstats.StdNormal)(1 - (1-Confidence)/2)
		t = tailResult{max(int(mean-z*sd), 0), Confidence}
	} else {
		u := mstats.UDist{N1: n1, N2: n2}
		for k := 1; k <= pairs/2; k++ {
			// The true ratio lies beyond the k-th pair if U is less than k.
			outside := 2 * u.CDF(float64(k-1))
			if outside > 1-Confidence {
				break
			}
			t = tailResult{k, 1 - outside}
		}
	}
	tails.Store(key, t)
	return t.k, t.level
}

// Holm adjusts the p-values of a family of tests so that, if each is held against alpha, the chance that any
// true null hypothesis is rejected is at most alpha, whatever their dependence (Holm 1979). The order is kept.
func Holm(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p[a], p[b]) })
	adjusted := make([]float64, len(p))
	floor := 0.0
	for rank, i := range order {
		floor = max(floor, min(1, p[i]*float64(len(p)-rank)))
		adjusted[i] = floor
	}
	return adjusted
}

// SmallestP is the smallest p-value that n1 against n2 values without ties can reach: 2/C(n1+n2, n1).
func SmallestP(n1, n2 int) float64 {
	if n1 < 1 || n2 < 1 {
		return 1
	}
	ways := 1.0
	for i := 1; i <= n1; i++ {
		ways *= float64(n2+i) / float64(i)
	}
	return min(1, 2/ways)
}

// RunsNeeded is the number of process runs per side from which a family of that many tests can reject anything
// at all: SmallestP times the number of tests is at most alpha.
func RunsNeeded(tests int, alpha float64) int {
	for n := 2; n < 1000; n++ {
		if SmallestP(n, n)*float64(max(tests, 1)) <= alpha {
			return n
		}
	}
	return 1000
}

// Geomean is the geometric mean, NaN for no values and for values that are not positive.
func Geomean(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sum := 0.0
	for _, v := range values {
		if !(v > 0) {
			return math.NaN()
		}
		sum += math.Log(v)
	}
	return math.Exp(sum / float64(len(values)))
}

// WarmUp says whether the first of some process runs, in the order in which they ran, stands apart: it is an
// extreme, and farther from its nearest neighbour than all others are from each other. Fewer than four values
// say nothing.
func WarmUp(values []float64) bool {
	if len(values) < 4 {
		return false
	}
	low, high := slices.Min(values[1:]), slices.Max(values[1:])
	away := max(values[0]-high, low-values[0])
	return away > high-low && away > 0
}
