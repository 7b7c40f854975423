package workloads

import (
	"maps"
	"math"
	"strings"
	"testing"

	"gic/backends"
)

func TestPointSurvivesArgs(t *testing.T) {
	p := Point{"op": "put", "size": "64K", "routing": "trace:/a=b,c"}
	args := p.Args(1<<64 - 1)
	args["bytes"] = "65536" // the kernel's own
	got, seed, err := PointOf(args)
	if err != nil || seed != 1<<64-1 || !maps.Equal(got, p) {
		t.Errorf("%v %d %v, expected %v", got, seed, err, p)
	}
	if _, _, err := PointOf(map[string]string{"axis.op": "put"}); err == nil {
		t.Error("no seed, and no error")
	}
}

func TestInt(t *testing.T) {
	for text, want := range map[string]int{"0": 0, "8": 8, "4K": 4096, "4k": 4096, "2M": 2 << 20, "1G": 1 << 30} {
		if got, err := (Point{"size": text}).Int("size"); err != nil || got != want {
			t.Errorf("%q: %d %v, expected %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "K", "-1", "-1K", "1.5", "8B", "1KK", "9223372036854775808", "9223372036854775807K", "0x8"} {
		if got, err := (Point{"size": text}).Int("size"); err == nil || !strings.Contains(err.Error(), "size="+text) {
			t.Errorf("%q: %d, error %v", text, got, err)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{[]float64{3}, 3}, {[]float64{3, 1}, 2}, {[]float64{5, 1, 3}, 3}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := Median(c.values); got != c.want {
			t.Errorf("%v: %g, expected %g", c.values, got, c.want)
		}
	}
	if !math.IsNaN(Median(nil)) {
		t.Error("the median of nothing is a number")
	}
}

func TestSlowest(t *testing.T) {
	result := func(ns ...float64) RankResult {
		return RankResult{Series: []backends.Series{{Name: "x", Values: ns}}}
	}
	got, err := Slowest([]RankResult{result(1e9, 4e9), result(3e9, 2e9)}, 2, "x", 2)
	if err != nil || got[0] != 3 || got[1] != 4 {
		t.Errorf("%v %v, expected 3 4", got, err)
	}
	for name, results := range map[string][]RankResult{
		"a rank missing": {result(1, 2)}, "a value missing": {result(1, 2), result(1)}, "a series missing": {result(1, 2), {}},
	} {
		if _, err := Slowest(results, 2, "x", 2); err == nil {
			t.Errorf("%s, and no error", name)
		}
	}
}
