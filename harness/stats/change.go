package stats

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// Change is a place in a series from which on the values are others.
type Change struct {
	At     int     // index of the first value after the change
	Before float64 // median of the stretch up to the change before or the start
	After  float64 // median of the stretch up to the change behind or the end
	P      float64 // share of shuffled series with a split at least as clear
}

const (
	shuffles = 1999
	// minStretch keeps one odd value from being a stretch of its own.
	minStretch = 2
)

// Changes finds the change points of a series in time order by binary segmentation: of all splits into two
// stretches of at least two values, the one whose rank sums differ most (the Mann-Whitney statistic over its
// standard deviation) is a change if fewer than alpha of 1999 shuffled series hold one as clear; both stretches
// are then searched in the same way, at half of alpha each. Taking the best split of each shuffled series as well accounts for having
// looked at all of them. Ranks make one wild value count no more than the largest of any. The shuffles are
// drawn from the seed: the same series and seed give the same changes. Fewer than 10 values have no change that
// could be significant at 0.01, fewer than 8 none at 0.05.
func Changes(values []float64, alpha float64, seed uint64) []Change {
	rng := rand.New(rand.NewPCG(seed, uint64(len(values))))
	var at []int
	p := map[int]float64{}
	var search func(from, to int, alpha float64)
	search = func(from, to int, alpha float64) {
		split, clear := bestSplit(ranks(values[from:to]))
		if split == 0 {
			return
		}
		as := 1
		shuffled := ranks(values[from:to])
		for range shuffles {
			rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			// The tolerance makes equal splits equal whatever the order of summing.
			if _, c := bestSplit(shuffled); c >= clear*(1-1e-9) {
				as++
			}
		}
		share := float64(as) / (shuffles + 1)
		if share >= alpha {
			return
		}
		at = append(at, from+split)
		p[from+split] = share
		search(from, from+split, alpha/2)
		search(from+split, to, alpha/2)
	}
	search(0, len(values), alpha)
	slices.Sort(at)
	changes := make([]Change, len(at))
	for i, a := range at {
		from, to := 0, len(values)
		if i > 0 {
			from = at[i-1]
		}
		if i+1 < len(at) {
			to = at[i+1]
		}
		changes[i] = Change{At: a, Before: median(values[from:a]), After: median(values[a:to]), P: p[a]}
	}
	return changes
}

// bestSplit returns the length of the first stretch of the clearest split, and how clear it is; 0 for none.
func bestSplit(r []float64) (at int, clear float64) {
	n := float64(len(r))
	sum := 0.0
	for i := range len(r) - minStretch {
		sum += r[i]
		k := float64(i + 1)
		if i+1 < minStretch {
			continue
		}
		c := math.Abs(sum-k*(n+1)/2) / math.Sqrt(k*(n-k)*(n+1)/12)
		if c > clear {
			at, clear = i+1, c
		}
	}
	return at, clear
}

// ranks gives each value its rank from 1; equal ones share the middle of theirs.
func ranks(values []float64) []float64 {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(values[a], values[b]) })
	r := make([]float64, len(values))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && values[order[j]] == values[order[i]] {
			j++
		}
		for _, at := range order[i:j] {
			r[at] = float64(i+j+1) / 2
		}
		i = j
	}
	return r
}

func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	if n == 0 {
		return math.NaN()
	}
	return (s[(n-1)/2] + s[n/2]) / 2
}
