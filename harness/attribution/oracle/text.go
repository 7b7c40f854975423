package oracle

import (
	"fmt"
	"math"
	"strconv"
)

// human are the units that a value of a base unit is shown in, largest first.
var human = map[string][]struct {
	unit  string
	scale float64
}{
	"s":     {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}},
	"msg/s": {{"M msg/s", 1e6}, {"k msg/s", 1e3}, {"msg/s", 1}},
	"B/s":   {{"GB/s", 1e9}, {"MB/s", 1e6}, {"kB/s", 1e3}, {"B/s", 1}},
}

// Human writes a value of a base unit with three significant digits in a unit that suits it.
func Human(value float64, unit string) string {
	for i, u := range human[unit] {
		if math.Abs(value) >= u.scale || i == len(human[unit])-1 {
			return digits3(value/u.scale) + " " + u.unit
		}
	}
	if unit == "1" {
		return digits3(value)
	}
	if value == math.Trunc(value) && math.Abs(value) < 1e9 {
		return fmt.Sprintf("%.0f %s", value, unit)
	}
	return digits3(value) + " " + unit
}

func digits3(v float64) string {
	if v == 0 {
		return "0"
	}
	decimals := 2 - int(math.Floor(math.Log10(math.Abs(v))))
	return strconv.FormatFloat(v, 'f', min(max(decimals, 0), 6), 64)
}
