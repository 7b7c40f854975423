package workloads

import (
	"fmt"
	"math"
	"slices"

	"gic/backends"
)

// Seconds converts the nanoseconds of a series.
func Seconds(ns []float64) []float64 {
	s := make([]float64, len(ns))
	for i, v := range ns {
		s[i] = v / 1e9
	}
	return s
}

// Median of values that need not be sorted; NaN for none.
func Median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Slowest returns, in seconds, the largest value over the ranks for each of the n iterations of a series of
// nanoseconds.
func Slowest(results []RankResult, ranks int, series string, n int) ([]float64, error) {
	if len(results) != ranks {
		return nil, fmt.Errorf("%d results for %d ranks", len(results), ranks)
	}
	slowest := make([]float64, n)
	for rank, r := range results {
		values := Seconds(r.Get(series))
		if len(values) != n {
			return nil, fmt.Errorf("rank %d gave %d values of %s, expected %d", rank, len(values), series, n)
		}
		for i, v := range values {
			slowest[i] = max(slowest[i], v)
		}
	}
	return slowest, nil
}

// AddClocks records what the loops of a run measured of the device's cycle counter (clock64), Hz by the device's wall
// clock: the effective clock beside the sample. Loops that disagree make a warning.
func AddClocks(s *Summary, hz []float64) {
	if len(hz) == 0 {
		return
	}
	if s.Facts == nil {
		s.Facts = map[string]any{}
	}
	s.Facts[clockHz] = few(hz)
	if slices.Max(hz) > 1.01*slices.Min(hz) {
		s.Warnings = append(s.Warnings, Warning{
			Code: "clock_moved",
			Text: fmt.Sprintf("clock64 ran at %.4g to %.4g Hz in the loops of one run", slices.Min(hz), slices.Max(hz)),
		})
	}
}

// clockHz is the series of AddClocks.
const clockHz = "clock_hz"

// LaunchClocks gives the effective clock of each rank's device over its launch, Hz, for the fact clock_hz; nil when
// no rank measured one.
func LaunchClocks(results []RankResult) []float64 {
	var hz []float64
	for _, r := range results {
		hz = append(hz, r.Get(clockHz)...)
	}
	return few(hz)
}

// few is what a record keeps of many clocks: the least, the median, the largest.
func few(hz []float64) []float64 {
	if len(hz) <= 16 {
		return hz
	}
	return []float64{slices.Min(hz), Median(hz), slices.Max(hz)}
}

// SimulatedClock is the series of a Simulator that stands for the clock of a launch.
func SimulatedClock() backends.Series {
	return backends.Series{Name: clockHz, Unit: "1", Values: []float64{1e9}}
}
