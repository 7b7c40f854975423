package attribution

import (
	"math"
	"strconv"
	"strings"
)

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
		return trim(strconv.FormatFloat(v, 'f', 2, 64))
	case a >= 0.09995:
		return trim(strconv.FormatFloat(v, 'f', 3, 64))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// trim takes the zeros behind the second decimal away: 0.520 is 0.52, 1 is 1.
func trim(s string) string {
	if strings.HasSuffix(s, ".00") {
		return strings.TrimSuffix(s, ".00")
	}
	if len(s)-strings.IndexByte(s, '.') > 3 {
		return strings.TrimSuffix(s, "0")
	}
	return s
}

func signedNumber(v float64) string {
	if v > 0 {
		return "+" + number(v)
	}
	return number(v)
}

func signedMicro(f Femto) string {
	if f > 0 {
		return "+" + micro(f)
	}
	return micro(f)
}
