package report

import (
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gic/harness/record"
	"gic/workloads"
)

// threeRuns writes a case of three process runs, of which one is ten times slower.
func threeRuns(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), record.FileName)
	w, err := record.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(r record.Record) {
		t.Helper()
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	write(&record.Header{ID: "p", Command: []string{"gic"}, Launch: "local", Ranks: 2, Repeat: 3, Cases: 3, Gic: "test"})
	for index, scale := range []float64{1, 1, 10} {
		var samples []float64
		for k := range 10 {
			samples = append(samples, scale*float64(k+1)*1e-6)
		}
		m, err := record.FromSamples("rtt", "s", workloads.Time, samples)
		if err != nil {
			t.Fatal(err)
		}
		m.Headline = true
		write(&record.Case{Index: index, Workload: "op", Backend: "minigda", NIC: "soft", Device: "host", Ranks: 2, Status: record.OK,
			Metrics: []record.Metric{m}, Verify: &workloads.Verification{Checked: 8}})
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPercentilesOfAllSamples: p90 of all samples is in the slow run; the median of the runs' own is what a report
// falls back to that keeps no samples.
func TestPercentilesOfAllSamples(t *testing.T) {
	path := threeRuns(t)
	for _, x := range []struct {
		name      string
		summaries bool
		p90       float64
		legend    string
	}{{"merged", false, 70e-6, "all process runs together"}, {"thin", true, 9e-6, "median over process runs of each one's own p99"}} {
		r := New()
		read := record.ReadLines
		if x.summaries {
			read = func(path string) iter.Seq2[record.Located, error] { return record.ReadSummaries(path, nil) }
		}
		for at, err := range read(path) {
			if err != nil {
				t.Fatal(err)
			}
			r.AddAt(path, at)
		}
		if got := r.runs[0].sections()[0].points[0].metrics[0].cells[0].p90; got < x.p90*0.999 || got > x.p90*1.001 {
			t.Errorf("%s: p90 is %g, want %g", x.name, got, x.p90)
		}
		var b strings.Builder
		if err := r.Render(&b, "table", 200); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), x.legend) {
			t.Errorf("%s: the table does not say what p99 is:\n%s", x.name, b.String())
		}
	}
}

// TestRepeatedNamesPlace: a process run that was recorded twice is named with both its lines.
func TestRepeatedNamesPlace(t *testing.T) {
	src, err := os.ReadFile(threeRuns(t))
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.Collect(strings.Lines(string(src)))
	path := filepath.Join(t.TempDir(), record.FileName)
	if err := os.WriteFile(path, []byte(lines[0]+lines[1]+lines[1]), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := r.Render(&b, "table", 1000); err != nil {
		t.Fatal(err)
	}
	if want := path + ":3: "; !strings.Contains(b.String(), want) || !strings.Contains(b.String(), path+":2)") {
		t.Errorf("the table does not name %s and line 2:\n%s", want, b.String())
	}
}
