package figures

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gic/harness/plot"
	"gic/harness/record"
	"gic/harness/report"
	"gic/harness/report/reporttest"
	"gic/harness/results"
	"gic/harness/stats"
	"gic/workloads"
)

func load(t *testing.T, records []record.Record) (*report.View, *Samples) {
	t.Helper()
	r, s := report.New(), &Samples{}
	for _, rec := range records {
		r.Add(rec)
		if c, ok := rec.(*record.Case); ok {
			s.Add(r.Runs()-1, c)
		}
	}
	return r.View(), s
}

func find(t *testing.T, s *Set, title string) Figure {
	t.Helper()
	for _, f := range s.Figures {
		if strings.HasPrefix(f.Plot.Name(), title) {
			return f
		}
	}
	t.Fatalf("no figure %q", title)
	return Figure{}
}

// TestCurvesAreTheTable takes the points of a figure back to the cells that the table shows.
func TestCurvesAreTheTable(t *testing.T) {
	v, samples := load(t, reporttest.Run(6))
	u := &v.Runs[0]
	f := find(t, Of(u, samples), "Goodput over size")
	l := f.Plot.(*plot.Lines)
	if l.X.Scale != plot.Log2 || !strings.HasSuffix(l.Y.Label, "GB/s") || !strings.Contains(l.Note, "nic=soft device=host; 2 ranks") ||
		!strings.Contains(l.Note, "n=6 process runs; bars: 95 % interval") {
		t.Errorf("axes %+v %+v, note %q", l.X, l.Y, l.Note)
	}
	points := 0
	for _, sec := range u.Sections {
		if sec.Workload != "goodput" {
			continue
		}
		for _, p := range sec.Points {
			for _, c := range p.Metrics[0].Cells {
				for _, s := range l.Series {
					x, _ := report.ParseNumber(p.Axes["size"])
					for _, pt := range s.Points {
						if s.Name == c.Row.Label && pt.X == x {
							points++
							want := plot.Point{X: x, Y: c.Median / 1e9, Low: c.Low / 1e9, High: c.High / 1e9}
							if d := cmp.Diff(want, pt); d != "" {
								t.Errorf("%s at %g (-want +got):\n%s", s.Name, x, d)
							}
						}
					}
				}
			}
		}
	}
	if points != 8 {
		t.Errorf("%d points found in the table, want 8", points)
	}
	for _, s := range l.Series { // size/(size+300) first reaches 90 % of its best at 4096 of these sizes
		if len(s.Rings) != 1 || s.Rings[0].X != 4096 {
			t.Errorf("%s: rings %v", s.Name, s.Rings)
		}
	}
}

// TestOnlyRowsThatAreRightAreDrawn looks for the rows that failed, were skipped, unsafe or unverified.
func TestOnlyRowsThatAreRightAreDrawn(t *testing.T) {
	v, samples := load(t, reporttest.Run(3))
	for _, f := range Of(&v.Runs[0], samples).Figures {
		for _, row := range f.Rows {
			for _, word := range []string{"order=none", "inline=on", "ncclgin", "nvshmem"} {
				if strings.Contains(strings.Join(row, " "), word) {
					t.Errorf("%s shows %q", f.Plot.Name(), row)
				}
			}
		}
	}
}

func TestGapsAddUp(t *testing.T) {
	v, samples := load(t, reporttest.Run(3))
	bars := 0
	for _, f := range Of(&v.Runs[0], samples).Figures {
		b, ok := f.Plot.(*plot.Bars)
		if !ok {
			continue
		}
		for _, g := range b.Groups {
			for _, bar := range g.Bars {
				bars++
				if len(bar.Parts) != 2 || bar.Parts[0] <= 0 || bar.Parts[1] < 0 {
					t.Errorf("%s, %s: %s has parts %v", b.Title, g.Title, bar.Label, bar.Parts)
				}
				if strings.Contains(bar.Text, "best") && bar.Parts[1] != 0 {
					t.Errorf("%s: the floor has a gap: %v", b.Title, bar.Parts)
				}
				if b.Parts[0] != "reached" && !(bar.Low <= bar.Parts[0]+bar.Parts[1]*(1+1e-12) && bar.Parts[0]+bar.Parts[1] <= bar.High*(1+1e-12)) {
					t.Errorf("%s: %v is not within %g..%g", b.Title, bar.Parts, bar.Low, bar.High)
				}
			}
		}
	}
	if bars < 30 {
		t.Errorf("only %d bars", bars)
	}
}

// A figure names the floors that it has, not those of other NICs.
func TestGapsNameTheirFloors(t *testing.T) {
	for want, backends := range map[string][]string{
		"rawstore": {"nvshmem", "rawstore", "rawstore", "ncclgin"}, "minigda or miniproxy": {"miniproxy", "nvshmem", "minigda"}, "minigda": {"minigda"},
	} {
		var rows []*report.RowView
		for _, b := range backends {
			rows = append(rows, &report.RowView{Backend: b})
		}
		if got := floorsOf(rows); got != want {
			t.Errorf("%v: %q, want %q", backends, got, want)
		}
	}
}

func TestNamesTellRowsApart(t *testing.T) {
	row := func(backend string, parts ...string) *report.RowView {
		r := &report.RowView{Backend: backend, Where: "soft/host"}
		for i := 0; i < len(parts); i += 2 {
			r.Parts = append(r.Parts, record.KeyValue{Key: parts[i], Value: parts[i+1]})
		}
		return r
	}
	tests := []struct {
		name   string
		rows   []*report.RowView
		key    string
		want   []string
		common string
	}{
		{"short labels stay", []*report.RowView{row("minigda", "batch", "1"), row("miniproxy")}, "", []string{"minigda batch=1", "miniproxy"}, ""},
		{"the swept key goes", []*report.RowView{row("minigda", "batch", "1", "qps", "2")}, "backend.qps", []string{"minigda batch=1"}, ""},
		{"what all share is said once", []*report.RowView{
			row("minigda", "batch", "1", "inline", "auto", "order", "gpu-fence", "sharing", "exclusive"),
			row("minigda", "batch", "2", "inline", "auto", "order", "gpu-fence", "sharing", "exclusive"), row("miniproxy", "workers", "1"),
		}, "", []string{"minigda batch=1", "minigda batch=2", "miniproxy workers=1"}, "minigda inline=auto order=gpu-fence sharing=exclusive"},
		{"equal labels get numbers", []*report.RowView{row("a"), row("a")}, "", []string{"a", "a (2)"}, ""},
	}
	for _, tt := range tests {
		list, common := names(tt.rows, tt.key)
		if d := cmp.Diff(tt.want, list); d != "" || common != tt.common {
			t.Errorf("%s: common %q (-want +got):\n%s", tt.name, common, d)
		}
	}
}

func TestGapFiguresKeepToOneScale(t *testing.T) {
	var points []gapPoint
	for _, longest := range []float64{1, 2, 11, 13, 200, 1} {
		points = append(points, gapPoint{longest: longest, cells: make([]*report.CellView, 2)})
	}
	points = append(points, gapPoint{longest: 1, cells: make([]*report.CellView, maxBars)})
	var got [][]float64
	for _, chunk := range chunkGaps(points) {
		var c []float64
		for _, g := range chunk {
			c = append(c, g.longest)
		}
		got = append(got, c)
	}
	if d := cmp.Diff([][]float64{{1, 2, 11}, {13}, {200}, {1}, {1}}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestHistoryFigure draws a series with a change for the worse, one for the better, and an exact counter.
func TestHistoryFigure(t *testing.T) {
	low, high := 0.9e-6, 1.2e-6
	s := &results.Series{
		Name: "minigda", Metric: "rtt", Unit: "s", Class: workloads.Time,
		Keys:    []record.KeyValue{{Key: "nic", Value: "soft"}, {Key: "device", Value: "host"}, {Key: "ranks", Value: "2"}},
		Changes: []stats.Change{{At: 2, Before: 1e-6, After: 2e-6}, {At: 4, Before: 2e-6, After: 1e-6}},
	}
	for i, v := range []float64{1e-6, 1e-6, 2e-6, 2e-6, 1e-6} {
		p := results.Point{Run: string(rune('a' + i)), Time: time.Date(2026, 11, 1+i, 0, 0, 0, 0, time.UTC), N: 6, Median: v}
		if i == 0 {
			p.Low, p.High = &low, &high
		}
		s.Points = append(s.Points, p)
	}
	f := History(s)
	h := f.Plot.(*plot.History)
	want := []plot.Change{{At: 2, Before: 1, After: 2, Verdict: "worse"}, {At: 4, Before: 2, After: 1, Verdict: "better"}}
	if d := cmp.Diff(want, h.Changes); d != "" {
		t.Errorf("changes (-want +got):\n%s", d)
	}
	if d := cmp.Diff(plot.Measured{Run: "a", Time: s.Points[0].Time, Value: 1, Low: 0.9, High: 1.2}, h.Runs[0]); d != "" {
		t.Errorf("first run (-want +got):\n%s", d)
	}
	if h.Note != "nic=soft device=host; 2 ranks; n=6 process runs each; bars: 95 % interval of the median, where there are enough process runs for one. Not times of hardware" {
		t.Errorf("note %q", h.Note)
	}
	if len(f.Rows) != 5 || f.Rows[2][6] != "1.00 to 2.00 worse" {
		t.Errorf("rows %v", f.Rows)
	}
	s.Class, s.Exact, s.Unit, s.Metric = "", true, "", "doorbells_per_message"
	if v := History(s).Plot.(*plot.History).Changes[0].Verdict; v != "" {
		t.Errorf("a counter's change is called %s", v)
	}
	History(&results.Series{Name: "empty"})
}
