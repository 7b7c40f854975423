package report

import (
	"testing"

	"gic/workloads"
)

// Numbers have no better direction: no row is the best, and none has a ratio or a gap. Times and rates beside them keep
// theirs.
func TestNumbersHaveNoBest(t *testing.T) {
	s := newSynth(2, 2)
	for i, backend := range []string{"minigda", "miniproxy"} {
		s.add(2, spec{workload: "caller", axes: map[string]string{"size": "8"}, backend: backend, config: map[string]string{},
			metrics: []metricSpec{{"absent", workloads.Time, float64(i+1) * 1e-6, 1, false},
				{"registers", workloads.Number, float64(30 + i), 1, false}}})
	}
	r := New()
	for _, rec := range s.records {
		r.Add(rec)
	}
	best := map[string]int{}
	for _, u := range r.View().Runs {
		for _, section := range u.Sections {
			for _, p := range section.Points {
				for _, m := range p.Metrics {
					for _, c := range m.Cells {
						if c.Best {
							best[m.Name]++
						}
						if m.Name == "registers" && (c.Text.Ratio != "-" || c.Text.Gap != "-") {
							t.Errorf("registers: ratio %q, gap %q", c.Text.Ratio, c.Text.Gap)
						}
					}
				}
			}
		}
	}
	if best["absent"] != 1 || best["registers"] != 0 {
		t.Errorf("best rows: %v, want one of absent and none of registers", best)
	}
}
