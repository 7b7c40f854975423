package report

import (
	"bytes"
	"strings"
	"testing"
)

// TestViewIsTheTable holds the model for other renderers to what `gic show` prints: the same texts, in the same
// order, with the same footnotes.
func TestViewIsTheTable(t *testing.T) {
	r := New()
	for _, rec := range quick() {
		r.Add(rec)
	}
	var table bytes.Buffer
	if err := r.Render(&table, "table", 400); err != nil {
		t.Fatal(err)
	}
	rest := strings.Join(strings.Fields(table.String()), " ")
	next := func(text string) {
		t.Helper()
		text = strings.Join(strings.Fields(text), " ")
		at := strings.Index(rest, text)
		if at < 0 {
			t.Fatalf("the table does not go on with %q; the rest is\n%.600s", text, rest)
		}
		rest = rest[at+len(text):]
	}
	for _, u := range r.View().Runs {
		for _, l := range u.Head {
			next(l)
		}
		next(u.Claim)
		cells := 0
		for _, s := range u.Sections {
			next(s.Workload + ":")
			for _, p := range s.Points {
				for _, m := range p.Metrics {
					if !m.Shown {
						continue
					}
					next(m.Name + ", " + m.Unit)
					for _, c := range m.Cells {
						if x := c.Text; x != (CellText{}) {
							next(strings.Join([]string{x.Where, x.Median, x.Range, x.P99, x.Ratio, x.Gap, x.N, x.Check}, " "))
							cells++
						}
					}
				}
				next(p.Skipped)
			}
			for _, l := range s.Below {
				next(l)
			}
		}
		next(u.Never)
		for _, l := range u.Notes {
			next(l)
		}
		for _, l := range u.Totals {
			next(l)
		}
		if cells < 20 {
			t.Errorf("only %d cells were compared", cells)
		}
	}
}
