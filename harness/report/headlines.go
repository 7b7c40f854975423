package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"gic/harness/record"
	"gic/workloads"
)

// Headline is one metric of a workload's first measured point.
type Headline struct {
	Workload, Point, Metric, Unit string
	Of                            string     // as in MetricView
	Points                        int        // of the workload
	Rows                          int        // of the point, with a number
	Cells                         []CellView // the best of each backend and place, the best floor first
}

// Headlines are the shown metrics of the first point that has numbers.
func (s *SectionView) Headlines() []Headline {
	for i := range s.Points {
		if out := s.Points[i].headlines(s.Workload, len(s.Points)); out != nil {
			return out
		}
	}
	return nil
}

func (p *PointView) headlines(workload string, points int) (out []Headline) {
	for _, m := range p.Metrics {
		if !m.Shown {
			continue
		}
		h := Headline{Workload: workload, Point: p.Title, Metric: m.Name, Unit: m.Unit, Of: m.Of, Points: points}
		h.Cells, h.Rows = m.bestOfBackends()
		if len(h.Cells) > 0 {
			out = append(out, h)
		}
	}
	return out
}

// bestOfBackends are the best rows of each backend and place, the best floor first, and how many rows there are.
func (m *MetricView) bestOfBackends() (best []CellView, rows int) {
	better := func(a, b *CellView) bool {
		if m.Class == workloads.Time {
			return a.Median < b.Median
		}
		return a.Median > b.Median
	}
	for i := range m.Cells {
		c := &m.Cells[i]
		if c.N == 0 || c.Row.Status != record.OK {
			continue
		}
		rows++
		at := slices.IndexFunc(best, func(o CellView) bool {
			return o.Row.Backend == c.Row.Backend && o.Row.Where == c.Row.Where && o.Row.Imported == c.Row.Imported
		})
		switch {
		case at < 0:
			best = append(best, *c)
		case !best[at].Best && (c.Best || better(c, &best[at])):
			best[at] = *c
		}
	}
	slices.SortStableFunc(best, func(a, b CellView) int {
		switch {
		case a.Best == b.Best:
			return 0
		case a.Best:
			return -1
		}
		return 1
	})
	return best, rows
}

// longTable is how many lines a run's tables have before they end with their headlines.
const longTable = 24

// writeHeadlines ends long tables in short: a terminal shows the end.
func (u *run) writeHeadlines(w io.Writer, sections []*section, tables [][]line, n *notes, width int) {
	lines := 0
	for _, t := range tables {
		lines += len(t)
	}
	if lines < longTable {
		return
	}
	var out []string
	for _, s := range sections {
		for _, p := range s.points {
			v := p.view(nil, n)
			if list := v.headlines(s.workload, len(s.points)); list != nil {
				for i := range list {
					out = append(out, list[i].text())
				}
				break
			}
		}
	}
	if out == nil {
		return
	}
	fmt.Fprintln(w)
	writeWrapped(w, "in short: of each workload the first point, of each backend the best row; medians, and how many times the best floor's", width, "", "  ")
	for _, l := range out {
		writeWrapped(w, l, width, "  ", "      ")
	}
	fmt.Fprintln(w)
}

// text is a headline in one line: "op size=8 issue, ns: miniproxy 7.13, minigda 11.3 (1.58x)".
func (h *Headline) text() string {
	name := WithUnit(strings.Join(strings.Fields(h.Workload+" "+h.Point+" "+h.Metric), " "), h.Unit)
	if h.Of != "" {
		name += " (" + h.Of + ")"
	}
	places := map[string]bool{}
	for i := range h.Cells {
		places[h.Cells[i].Row.Where] = true
	}
	var parts []string
	for i := range h.Cells {
		c := &h.Cells[i]
		s := c.Row.Backend
		if len(places) > 1 {
			s += " on " + c.Row.Where
		}
		if c.Row.Imported != "" {
			s += " (imported)"
		}
		s += " " + c.Text.Median
		if strings.HasSuffix(c.Text.Ratio, "x") {
			s += " (" + c.Text.Ratio + ")"
		}
		parts = append(parts, s)
	}
	return name + ": " + strings.Join(parts, ", ")
}
