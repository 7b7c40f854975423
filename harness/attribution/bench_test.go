package attribution

import (
	"strconv"
	"testing"

	"gic/harness/record"
)

// BenchmarkAnalyse splits the gaps of 200 library rows beside 800 floor rows, of 5 process runs each.
func BenchmarkAnalyse(b *testing.B) {
	var groups [][]*record.Case
	for point := range 50 {
		axes := map[string]string{"op": "put", "size": strconv.Itoa(8 << (point % 10)), "iterations": strconv.Itoa(100 + point)}
		for order := range orderCost {
			for sharing := range shareCost {
				groups = append(groups, synthetic(b, "minigda", "op", axes, map[string]string{"order": order, "sharing": sharing}, 5, 0.01))
			}
			groups = append(groups, synthetic(b, "acme", "op", axes, map[string]string{"order": order, "sharing": "lock", "plant": "delay"}, 5, 0.01))
		}
	}
	for b.Loop() {
		a, err := Analyse(newRun(groups...), Options{Libraries: []*Library{acme()}})
		if err != nil {
			b.Fatal(err)
		}
		if len(a.Judgements) != 600 {
			b.Fatalf("%d gaps", len(a.Judgements))
		}
	}
}
