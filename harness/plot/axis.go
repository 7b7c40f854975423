package plot

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
)

// span is the range of an axis: what the values need and a little air.
func span(a Axis, values []float64) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if drawable(v, a.Scale) {
			low, high = min(low, v), max(high, v)
		}
	}
	switch {
	case low > high && a.Scale == Linear:
		return 0, 1
	case low > high:
		return 1, 10
	case a.Scale != Linear:
		f := max(math.Pow(high/low, 0.05), 1.15)
		return low / f, high * f
	}
	pad := 0.05 * (high - low)
	if a.Zero {
		low = min(low, 0)
		pad = 0.05 * (high - low)
	}
	if pad == 0 {
		pad = max(math.Abs(high)*0.1, 1e-12)
	}
	high += pad
	if low != 0 || !a.Zero {
		low -= pad
	}
	return low, high
}

// ticks of an axis over a range: labelled major ones, and unlabelled minor ones on a logarithmic scale.
func ticks(a Axis, low, high float64) []plot.Tick {
	switch a.Scale {
	case Log2:
		return powersOfTwo(a, low, high)
	case Log10:
		if high/low > 5 {
			return decades(low, high)
		}
	}
	return linear(low, high)
}

// linear ticks stand at 1, 2 or 5 times a power of ten.
func linear(low, high float64) []plot.Tick {
	const most = 6
	step := math.Pow(10, math.Floor(math.Log10((high-low)/most)))
	for _, f := range []float64{1, 2, 5, 10} {
		if (high-low)/(step*f) <= most {
			step *= f
			break
		}
	}
	var out []plot.Tick
	for i := math.Ceil(low / step); i*step <= high*(1+1e-12); i++ {
		out = append(out, plot.Tick{Value: i * step, Label: tickText(i * step)})
	}
	return out
}

// decades labels powers of ten; over two decades or less also 2 and 5 times them, over many not all.
func decades(low, high float64) []plot.Tick {
	n := math.Log10(high / low)
	every := int(math.Ceil(n / 7))
	var out []plot.Tick
	for e := int(math.Floor(math.Log10(low))); float64(e) <= math.Log10(high); e++ {
		for m := 1; m < 10; m++ {
			v, err := strconv.ParseFloat(strconv.Itoa(m)+"e"+strconv.Itoa(e), 64)
			if err != nil || v < low || v > high {
				continue
			}
			label := ""
			if m == 1 && e%every == 0 || n <= 2.2 && (m == 2 || m == 5) {
				label = tickText(v)
			}
			if label == "" && every > 1 && m > 1 {
				continue
			}
			out = append(out, plot.Tick{Value: v, Label: label})
		}
	}
	return out
}

func powersOfTwo(a Axis, low, high float64) []plot.Tick {
	first, last := int(math.Ceil(math.Log2(low))), int(math.Floor(math.Log2(high)))
	every := max((last-first+9)/9, 1)
	var out []plot.Tick
	for e := first; e <= last; e++ {
		if e%every == 0 {
			out = append(out, plot.Tick{Value: math.Exp2(float64(e)), Label: a.text(math.Exp2(float64(e)))})
		}
	}
	return out
}

// xTicks stand where the data are, if they are few; a label that would touch the one before it is left out.
func xTicks(a Axis, low, high float64, data []float64) []plot.Tick {
	data = slices.DeleteFunc(slices.Clone(data), func(v float64) bool { return !drawable(v, a.Scale) })
	slices.Sort(data)
	data = slices.Compact(data)
	if a.Scale == Log10 || len(data) == 0 || len(data) > 10 {
		return ticks(a, low, high)
	}
	at := func(v float64) float64 { return (v - low) / (high - low) }
	if a.Scale != Linear {
		at = func(v float64) float64 { return math.Log(v/low) / math.Log(high/low) }
	}
	var out []plot.Tick
	last := math.Inf(-1)
	for _, v := range data {
		t := plot.Tick{Value: v}
		if at(v)-last >= 0.065 {
			t.Label, last = a.text(v), at(v)
		}
		out = append(out, t)
	}
	return out
}

func (a Axis) text(v float64) string {
	if a.Bytes && v >= 1024 {
		for _, s := range []struct {
			scale float64
			name  string
		}{{1 << 30, "G"}, {1 << 20, "M"}, {1 << 10, "K"}} {
			if q := v / s.scale; q >= 1 && q == math.Trunc(q) {
				return tickText(q) + s.name
			}
		}
	}
	return tickText(v)
}

// tickText is a number without trailing zeros.
func tickText(v float64) string {
	if math.Abs(v) < 1e-12 {
		return "0"
	}
	if a := math.Abs(v); a >= 1e6 || a < 1e-3 {
		return strings.NewReplacer("e+0", "e", "e-0", "e-", "e+", "e").Replace(strconv.FormatFloat(v, 'g', 3, 64))
	}
	return strconv.FormatFloat(math.Round(v*1e6)/1e6, 'f', -1, 64)
}
