// Package stats turns a handful of numbers into the few that a table shows: the median over process runs with
// its interval, percentiles, and the spread. It knows nothing of records.
//
// The process run is the sampling unit. What happens inside one process (thousands of operations) is summarized
// to one value first, its median; only these values, one per process run, are samples here. Operations inside
// one process share its memory layout, its clocks and its luck, so counting them as samples would claim an
// accuracy that is not there.
//
// Doubts travel as data ([]error) beside the numbers, as in golang.org/x/perf/benchmath: they do not stop an
// analysis, and belong under the table. Nothing is ever removed as an outlier.
package stats

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// Confidence is the level of every interval.
const Confidence = 0.95

// Percentile returns the p-th percentile (0 < p <= 100) of values in ascending order by nearest rank: the
// smallest value such that at least p % of the values are not larger. It is always one of the values; there is
// no interpolation, so p99 of few values is their maximum. It returns NaN for no values.
func Percentile(sorted []float64, p float64) float64 {
	n := len(sorted)
	if n == 0 {
		return math.NaN()
	}
	// The tolerance keeps p/100*n of an integer from rounding up to the next rank.
	rank := int(math.Ceil(p/100*float64(n) - 1e-9))
	return sorted[min(max(rank, 1), n)-1]
}

// Summary is what a set of process runs says. Low and High bound the median at Level, which is at least
// Confidence; they are infinite (-Inf, +Inf) where there are too few values for that, with a warning.
type Summary struct {
	N         int
	Median    float64 // middle value, or the mean of the two middle ones
	Low, High float64
	Level     float64
	Min, Max  float64
	Warnings  []error
}

// Bounded says whether the interval is finite.
func (s Summary) Bounded() bool {
	return s.N > 0 && !math.IsInf(s.Low, 0) && !math.IsInf(s.High, 0)
}

// Spread is the full range of the process runs relative to their median: (max-min)/median. It is NaN for a
// median of zero and for no values.
func (s Summary) Spread() float64 {
	if s.N == 0 || s.Median == 0 {
		return math.NaN()
	}
	return (s.Max - s.Min) / s.Median
}

// ErrNoValues says that there was nothing to summarize.
var ErrNoValues = errors.New("no values")

// Summarize summarizes one value per process run, making no assumption about their distribution. The values
// are not changed. A NaN or infinite value is an error: it must have been refused before.
func Summarize(values []float64) (Summary, error) {
	if len(values) == 0 {
		return Summary{}, ErrNoValues
	}
	for i, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return Summary{}, fmt.Errorf("value %d of %d is %v", i+1, len(values), v)
		}
	}
	sample := benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds)
	s := benchmath.AssumeNothing.Summary(sample, Confidence)
	return Summary{
		N:        len(values),
		Median:   s.Center,
		Low:      s.Lo,
		High:     s.Hi,
		Level:    s.Confidence,
		Min:      sample.Values[0],
		Max:      sample.Values[len(values)-1],
		Warnings: s.Warnings,
	}, nil
}
