package diff

import (
	"bytes"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"gic/harness/record"
	"gic/workloads"
)

// Two sets of five process runs, calculated by hand: every new value is larger than every old one, so U is 0 and the
// exact two-sided p is 2/C(10,5) = 2/252. The interval of the shift ends at the third smallest and third largest of the
// 25 ratios: P(U <= 2) = 4/252 makes 1 - 8/252 = 96.8 %, and the fourth would be 1 - 14/252 = 94.4 %.
func TestNumbersByHand(t *testing.T) {
	old, grown := []float64{100, 101, 102, 103, 104}, []float64{105, 106, 107, 108, 109}
	write := func(id string, values []float64) string {
		s := newSynth(id, 1)
		s.cases, s.repeat = 1, len(values)
		s.change = func(c *record.Case) bool {
			m := metric(t, "rtt", "s", workloads.Time, values[c.Index]*1e-8)
			m.Headline = true
			c.Metrics = []record.Metric{m}
			return true
		}
		return s.write(t, filepath.Join(t.TempDir(), id))
	}
	a, b := write("one", old), write("two", grown)
	for _, c := range []struct {
		limit   float64
		verdict Verdict
		word    string
	}{{0.04, Worse, "WORSE"}, {0.05, Same, "within 5 %"}, {0.125, Same, "within 12.5 %"}} {
		r, err := Compare(load(t, "OLD", a), load(t, "NEW", b), Options{Alpha: 0.05, Thresholds: map[string]float64{"time": c.limit}})
		if err != nil {
			t.Fatal(err)
		}
		m := r.Pairs[0].Metrics[0]
		near := func(what string, got, want float64) {
			t.Helper()
			if math.Abs(got-want) > 1e-9 {
				t.Errorf("%s is %.9g, want %.9g", what, got, want)
			}
		}
		near("p", m.P, 2./252)
		near("the level", m.Level, 1-8./252)
		near("delta", m.Delta, 107./102-1)
		// Ratios from below: 105/104, 106/104 = 1.01923, 105/103 = 1.01942; from above: 109/100, 109/101 = 1.07921, 108/100.
		near("the interval's low end", m.Low, 105./103-1)
		near("the interval's high end", m.High, 109./101-1)
		if m.Verdict != c.verdict {
			t.Errorf("threshold %g: %s, want %s", c.limit, m.Verdict, c.verdict)
		}
		for _, format := range []string{"table", "markdown"} {
			var out bytes.Buffer
			if err := r.Render(&out, format, 100); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(strings.ToLower(out.String()), strings.ToLower(c.word)) {
				t.Errorf("threshold %g: %s lacks %q:\n%s", c.limit, format, c.word, out.String())
			}
		}
	}
}
