package report

import (
	"math"
	"strconv"
	"strings"

	"gic/workloads"
)

// unit is a human unit: a value divided by scale is in it.
type unit struct {
	name  string
	scale float64
}

// unitFor chooses one unit for all cells of a comparison, so that its numbers stand below each other: the one
// in which the smallest is at least 1 (times), M msg/s and GB/s (1e9) as is usual unless that leaves no digits.
func unitFor(m *comparison) unit {
	low, high := math.Inf(1), 0.0
	for _, c := range m.cells {
		if c.runs > 0 && c.stats.Median > 0 {
			low, high = min(low, c.stats.Median), max(high, c.stats.Median)
		}
	}
	return unitBetween(m.class, m.unit, low, high)
}

// unitBetween is the unit for values between low and high.
func unitBetween(class workloads.Class, base string, low, high float64) unit {
	switch class {
	case workloads.Time:
		switch {
		case low < 1e-6:
			return unit{"ns", 1e-9}
		case low < 1e-3:
			return unit{"us", 1e-6}
		case low < 1:
			return unit{"ms", 1e-3}
		}
		return unit{"s", 1}
	case workloads.Rate:
		if high < 1e4 {
			return unit{"k msg/s", 1e3}
		}
		return unit{"M msg/s", 1e6}
	case workloads.Bandwidth:
		if high < 1e7 {
			return unit{"MB/s", 1e6}
		}
		return unit{"GB/s", 1e9}
	}
	if base == "1" {
		return unit{"", 1} // a share, a count: "kept_send, 1" would tell nobody anything
	}
	return unit{base, 1}
}

// WithUnit is a metric's name with its unit, if it has any.
func WithUnit(name, unit string) string {
	if unit == "" {
		return name
	}
	return name + ", " + unit
}

// number prints three digits, and all digits of the integer part up to five.
func number(v float64) string {
	a := math.Abs(v)
	switch {
	case a == 0:
		return "0"
	case a >= 99999.5 || a < 0.000995:
		s := strconv.FormatFloat(v, 'e', 2, 64)
		return strings.NewReplacer("e+0", "e", "e+", "e", "e-0", "e-").Replace(s)
	case a >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.9995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case a >= 0.09995:
		return strconv.FormatFloat(v, 'f', 3, 64)
	case a >= 0.009995:
		return strconv.FormatFloat(v, 'f', 4, 64)
	}
	return strconv.FormatFloat(v, 'f', 5, 64)
}

// signed prints number with its sign.
func signed(v float64) string {
	if s := number(v); v <= 0 || s == "0" {
		return s
	} else {
		return "+" + s
	}
}

// times prints a ratio.
func times(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "-"
	}
	if v < 0.01 || v >= 99999.5 {
		return number(v) + "x"
	}
	if v < 9.995 {
		return strconv.FormatFloat(v, 'f', 2, 64) + "x"
	}
	return number(v) + "x"
}
