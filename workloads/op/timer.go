package op

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"gic/workloads"
)

// The timer check: see Method.
const (
	checkDelay  = 50e-6
	checkLow    = 49.6e-6
	checkHigh   = 50.3e-6
	checkSpan   = 16384 // ns
	checkStep   = 10117 // ns, odd and nearest to the golden section of the span: any run of steps fills it evenly
	checkUnsure = 0.5e-6
	checkErrors = 2.45 // standard errors of the shift: of normal samples as far as two of a difference of medians
)

// isDelayed says which of the check's echoes the 50 us go to: one of each pair, and which one follows the Golay-Rudin-Shapiro
// sequence, which goes along with no turns of any length. A stack that takes longer at every so many-th message then shows that
// as often with the delay as without; in strict turns it was told apart as if by the timer.
func isDelayed(echo int) bool {
	pair := uint(echo / 2)
	swapped := bits.OnesCount(pair&(pair>>1)) % 2
	return echo%2 != swapped
}

// delays of the timer check's echoes, ns.
func (j *job) delays() []uint32 {
	d := make([]uint32, 2*j.checks)
	for i := range d {
		d[i] = part(i)
		if isDelayed(i) {
			d[i] += uint32(math.Round(checkDelay * 1e9))
		}
	}
	return d
}

// part is what both echoes of a pair are delayed by at least, ns.
func part(echo int) uint32 { return uint32(echo / 2 * checkStep % checkSpan) }

// checkTimer compares the undelayed and the delayed echoes of the timer check: by the median of all their differences, which of
// two shapes that are the same, one shifted, is the shift, also where they have two levels and a median is now the one
// and now the other (Hodges and Lehmann 1963).
func (j *job) checkTimer(s *workloads.Summary, check []float64) {
	if len(check) == 0 {
		return
	}
	var near, far []float64
	for i, t := range check {
		echo := i % (2 * j.checks)
		if t -= float64(part(echo)) * 1e-9; isDelayed(echo) {
			far = append(far, t)
		} else {
			near = append(near, t)
		}
	}
	slices.Sort(near)
	slices.Sort(far)
	moved := difference(near, far, 0.5)
	// Where the median of as many differences may lie if nothing but chance moves it (Mann and Whitney's variance,
	// checkErrors). The spread is the undelayed ones' alone: a timer that is wrong each time by another amount must not excuse
	// itself.
	n := float64(len(near))
	unsure := difference(near, near, min(1, 0.5+checkErrors*math.Sqrt((2*n+1)/(12*n*n))))
	s.Facts["timer_check"], s.Facts["timer_check_tolerance"] = moved, unsure
	missed := 0 // nothing makes a round trip shorter
	for _, t := range far {
		if t < near[len(near)/2]+checkDelay/2 {
			missed++
		}
	}
	var text string
	switch {
	case unsure > checkUnsure:
		text = fmt.Sprintf("round trips vary too much for the timer check: how far 50 us moved them is known to %.2f us", unsure*1e6)
	case missed > 0:
		text = fmt.Sprintf("%d of %d answers that were to be 50 us late came as if they were not", missed, len(far))
	case moved < checkLow-unsure || moved > checkHigh+unsure:
		text = fmt.Sprintf("a responder delay of 50 us moved the round trips by %.2f us (expected %.2f to %.2f)",
			moved*1e6, (checkLow-unsure)*1e6, (checkHigh+unsure)*1e6)
	default:
		return
	}
	s.Warnings = append(s.Warnings, workloads.Warning{Code: "timer_check", Text: text})
}

// difference is the quantile q of all differences of a value of `to` and one of `from`, both ascending, to a millionth of
// their range.
func difference(from, to []float64, q float64) float64 {
	want := q * float64(len(from)) * float64(len(to))
	low, high := to[0]-from[len(from)-1], to[len(to)-1]-from[0]
	for step := high - low; step > (high-low)*1e-6; step /= 2 {
		middle := low + (high-low)/2
		below := 0 // pairs
		for i, k := 0, 0; i < len(from); i++ {
			for k < len(to) && to[k]-from[i] <= middle {
				k++
			}
			below += k
		}
		if float64(below) >= want {
			high = middle
		} else {
			low = middle
		}
	}
	return low + (high-low)/2
}
