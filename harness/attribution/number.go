package attribution

import (
	"strings"

	"gic/harness/report"
)

// number prints what tables print, without zeros behind the second decimal: 0.520 is 0.52, 1.00 is 1.
func number(v float64) string {
	s := report.Number(v)
	point := strings.IndexByte(s, '.')
	if point < 0 || strings.ContainsRune(s, 'e') {
		return s
	}
	for len(s)-point > 3 && strings.HasSuffix(s, "0") {
		s = s[:len(s)-1]
	}
	return strings.TrimSuffix(s, ".00")
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
