package report

import (
	"strings"
	"testing"

	"gic/harness/record"
)

// imported turns the records of a synthetic run into what an importer makes.
func imported(records []record.Record, file, backend string, better float64) []record.Record {
	from := record.Import{Format: "csv", File: file, SHA256: strings.Repeat("0", 64)}
	var out []record.Record
	for _, rec := range records {
		switch rec := rec.(type) {
		case *record.Header:
			h := *rec
			h.ID, h.Imported, h.Launch, h.Cases = "import-"+file, []record.Import{from}, "import", 0
			h.Host = record.Machine{Hostname: "unknown", OS: "unknown", Kernel: "unknown"}
			out = append(out, &h)
		case *record.Case:
			if rec.Backend != "minigda" || rec.Workload != "op" {
				continue
			}
			c := *rec
			c.Backend, c.Imported = backend, &from
			c.Axes = map[string]string{"op": rec.Axes["op"], "size": rec.Axes["size"]}
			if c.Axes["size"] == "1K" {
				c.Axes["size"] = "1024"
			}
			c.Metrics = append([]record.Metric(nil), c.Metrics...)
			for i := range c.Metrics {
				m := &c.Metrics[i]
				for _, v := range []*float64{&m.Min, &m.P50, &m.P90, &m.P99, &m.Max, &m.Mean} {
					*v *= better
				}
			}
			c.ID = record.CaseID(&c)
			out = append(out, &c)
		}
	}
	return out
}

// Imported rows stand at the points of the run beside them, whichever was given first and however a size was
// spelled, marked, with their file; they are never the floor that others are held against, not even under a
// floor's name and with better numbers.
func TestImportedRowsStandBeside(t *testing.T) {
	measured := quick()
	for _, backend := range []string{"perftest", "minigda"} {
		other := imported(measured, "other.csv", backend, 0.25)
		alone := render(t, measured, "csv", 0)
		for _, order := range [][]record.Record{append(append([]record.Record{}, measured...), other...), append(append([]record.Record{}, other...), measured...)} {
			text := render(t, order, "table", 0)
			if strings.Count(text, "gic run quick") != 1 || !strings.Contains(text, "not measured by gic: other.csv (csv)") {
				t.Errorf("%s: head does not name the run and the import:\n%s", backend, text[:400])
			}
			if !strings.Contains(text, backend+" (imported)") {
				t.Errorf("%s: no row is marked imported", backend)
			}
			r := New()
			for _, rec := range order {
				r.Add(rec)
			}
			if len(r.runs) != 1 {
				t.Fatalf("%s: %d runs, want the import to join the measured one", backend, len(r.runs))
			}
			rows := 0
			for _, s := range r.runs[0].sections() {
				for _, p := range s.points {
					own := false
					for _, w := range p.rows {
						own = own || w.imported == ""
					}
					for i, w := range p.rows {
						if w.imported == "" {
							continue
						}
						rows++
						if !own {
							t.Errorf("%s: point %q holds imported rows only", backend, p.title)
						}
						for _, m := range p.metrics {
							if m.cells[i].best {
								t.Errorf("%s: an imported row is the best floor of %s at %q", backend, m.name, p.title)
							}
						}
					}
				}
			}
			if rows != 6 {
				t.Errorf("%s: %d imported rows, want 6", backend, rows)
			}
			joined := "\n" + render(t, order, "csv", 0)
			for line := range strings.Lines(alone) {
				if !strings.Contains(joined, "\n"+line) {
					t.Errorf("%s: beside the import, this line of the measured run is another:\n%s", backend, line)
				}
			}
		}
	}
}

// A row that another tool gave as unsafe stands where it has a number, and nowhere else.
func TestImportedUnsafeRows(t *testing.T) {
	measured := quick()
	other := imported(measured, "x/other.csv", "perftest", 1)
	metric := ""
	for _, rec := range other {
		if c, ok := rec.(*record.Case); ok {
			c.Status, c.Reason, c.Metrics = record.Unsafe, "a control", c.Metrics[1:2]
			metric = c.Metrics[0].Name
		}
	}
	r := New()
	for _, rec := range append(append([]record.Record{}, measured...), other...) {
		r.Add(rec)
	}
	shown := 0
	for _, s := range r.runs[0].sections() {
		for _, p := range s.points {
			for _, m := range p.metrics {
				for _, c := range m.cells {
					if c.row.imported != "" && !c.foreign() {
						if shown++; m.name != metric {
							t.Errorf("the row stands under %s, which it does not have", m.name)
						}
					}
				}
			}
		}
	}
	if shown == 0 {
		t.Error("the row stands nowhere")
	}
}

// A tool that does not have a metric of ours has not failed to measure it; two files under one backend's name are
// told apart.
func TestImportedRowsOfOtherMetrics(t *testing.T) {
	measured := quick()
	first, second := imported(measured, "x/first.csv", "perftest", 1), imported(measured, "x/second.csv", "perftest", 1)
	for _, rec := range append(append([]record.Record{}, first...), second...) {
		if c, ok := rec.(*record.Case); ok {
			c.Metrics = c.Metrics[1:2]
		}
	}
	all := append(append(append([]record.Record{}, measured...), first...), second...)
	for _, format := range []string{"table", "markdown", "csv", "json"} {
		text := render(t, all, format, 0)
		if strings.Contains(text, "missing") {
			t.Errorf("%s: a metric that the other tool does not have is called missing:\n%s", format, text)
		}
		if format != "csv" && (!strings.Contains(text, "perftest (imported first.csv)") || !strings.Contains(text, "perftest (imported second.csv)")) {
			t.Errorf("%s: rows of two files cannot be told apart", format)
		}
	}
	r := New()
	for _, rec := range all {
		r.Add(rec)
	}
	if r.Failed() != 0 {
		t.Errorf("%d cases failed, want none", r.Failed())
	}
}
