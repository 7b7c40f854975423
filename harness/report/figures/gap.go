package figures

import (
	"fmt"
	"slices"
	"strings"

	"gic/harness/plot"
	"gic/harness/report"
	"gic/workloads"
)

const (
	gapKind = "Gap to the floor"
	maxGaps = 16 // figures in a run
	maxBars = 18 // in a figure: about a page
	// Bars that differ by more than this are not drawn to one scale: the small ones could not be seen.
	maxRatio = 12
)

// gapPoint is one group of bars and how long its longest is.
type gapPoint struct {
	title   string
	cells   []*report.CellView
	longest float64
}

// gaps draws, per workload and headline metric, what rows need more than the best floor of their point, or reach
// less.
func (s *Set) gaps(u *report.RunView) {
	before, left := len(s.Figures), 0
	for si := range u.Sections {
		sec := &u.Sections[si]
		var names []string
		for _, p := range sec.Points {
			for _, m := range p.Metrics {
				if m.Shown {
					names = appendNew(names, m.Name)
				}
			}
		}
		for _, name := range names {
			class, base, points := gapPoints(sec, name)
			chunks := chunkGaps(points)
			for i, chunk := range chunks {
				if len(s.Figures)-before >= maxGaps {
					left += len(chunk)
					continue
				}
				s.Add(gapFigure(sec, name, class, base, chunk, i, len(chunks)))
			}
		}
	}
	if len(s.Figures) == before {
		s.missing(gapKind, "no point has a verified floor and another row to compare with it")
	}
	if left > 0 {
		s.missing(gapKind, "of %d more points: their gaps are in the tables", left)
	}
}

// gapPoints are the points that have a floor and something beside it.
func gapPoints(sec *report.SectionView, name string) (class workloads.Class, base string, out []gapPoint) {
	for pi := range sec.Points {
		p := &sec.Points[pi]
		for mi := range p.Metrics {
			m := &p.Metrics[mi]
			if m.Name != name || !m.Shown {
				continue
			}
			g := gapPoint{title: p.Title}
			for ci := range m.Cells {
				if c := &m.Cells[ci]; drawn(c) && c.Floor > 0 {
					g.cells = append(g.cells, c)
					g.longest = max(g.longest, c.Median, c.Floor)
				}
			}
			if len(g.cells) > 1 {
				class, base = m.Class, m.Base
				out = append(out, g)
			}
		}
	}
	return class, base, out
}

// chunkGaps splits points over figures: by their number and, since bars begin at zero, by their size.
func chunkGaps(points []gapPoint) [][]gapPoint {
	var out [][]gapPoint
	bars, low, high := 0, 0.0, 0.0
	for _, g := range points {
		lo, hi := min(low, g.longest), max(high, g.longest)
		if len(out) == 0 || bars+len(g.cells) > maxBars || hi > maxRatio*lo {
			out = append(out, nil)
			bars, lo, hi = 0, g.longest, g.longest
		}
		out[len(out)-1] = append(out[len(out)-1], g)
		bars += len(g.cells)
		low, high = lo, hi
	}
	return out
}

func gapFigure(
	sec *report.SectionView, name string, class workloads.Class, base string, points []gapPoint, part, parts int,
) Figure {
	var ev evidence
	low, high := points[0].longest, 0.0
	var rows []*report.RowView
	for _, g := range points {
		for _, c := range g.cells {
			rows = append(rows, c.Row)
			low, high = min(low, c.Median), max(high, c.Median)
			ev.add(c)
		}
	}
	unit, scale := report.Unit(class, base, low, high)
	b := &plot.Bars{
		Title: report.Clean(fmt.Sprintf("%s: %s %s", gapKind, sec.Workload, name)),
		X:     plot.Axis{Label: report.WithUnit(report.Clean(name), unit)},
	}
	if parts > 1 {
		b.Title += fmt.Sprintf(" (%d of %d)", part+1, parts)
	}
	fig := Figure{
		ID: b.Title, Kind: gapKind, Plot: b, Head: []string{"point", "row", report.WithUnit(name, unit), "low", "high", "floor", "gap", "ratio", "n"},
	}
	b.Parts = []string{"up to the best verified floor", "above it (slower)"}
	if class != workloads.Time {
		b.Parts = []string{"reached", "short of the best verified floor"}
	}
	label, common := gapNames(rows)
	for _, g := range points {
		group := plot.Group{Title: report.Clean(g.title)}
		for _, c := range g.cells {
			bar, row := gapBar(c, label[c.Row], class, scale)
			group.Bars = append(group.Bars, bar)
			fig.Rows = append(fig.Rows, append([]string{group.Title}, row...))
		}
		b.Groups = append(b.Groups, group)
	}
	b.Note = report.Clean(ev.note(join(sec.Common), common, ""))
	fig.Text = fmt.Sprintf("%s of each row as one bar: the part that the best floor (%s, verified, same "+
		"point, NIC and device) needs or reaches, and the gap to it; %s.", name, floorsOf(rows), count(len(points), "point"))
	return fig
}

// floorsOf names the floors among rows: raw stores where no NIC takes part.
func floorsOf(rows []*report.RowView) string {
	var names []string
	for _, r := range rows {
		if report.IsFloor(r.Backend) && !slices.Contains(names, r.Backend) {
			names = append(names, r.Backend)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " or ")
}

// gapBar is a row beside its floor.
func gapBar(c *report.CellView, label string, class workloads.Class, scale float64) (plot.Bar, []string) {
	lo, hi := c.Interval()
	v, floor := c.Median/scale, c.Floor/scale
	bar := plot.Bar{Label: label, Text: report.Number(v), Low: lo / scale, High: hi / scale}
	gap := v - floor
	switch {
	case class == workloads.Time:
		bar.Parts = []float64{min(v, floor), max(gap, 0)}
	default:
		bar.Parts = []float64{v, max(-gap, 0)}
	}
	if c.Best {
		bar.Text += " (best floor)"
	} else if c.Text.Ratio != "" {
		bar.Text += " (" + c.Text.Ratio + ")"
	}
	return bar, []string{
		bar.Label, report.Number(v), report.Number(lo / scale), report.Number(hi / scale), report.Number(floor),
		signed(gap), c.Text.Ratio, fmt.Sprint(c.N),
	}
}

// gapNames names rows of several points: one name for what is the same configuration.
func gapNames(rows []*report.RowView) (label map[*report.RowView]string, common string) {
	var distinct []*report.RowView
	byKey := map[string]int{}
	at := make([]int, len(rows))
	for i, r := range rows {
		key := r.Label + "\x00" + r.Where + "\x00" + value(r.Keys, "ranks")
		n, ok := byKey[key]
		if !ok {
			n = len(distinct)
			byKey[key] = n
			distinct = append(distinct, r)
		}
		at[i] = n
	}
	list, common := names(distinct, "")
	label = map[*report.RowView]string{}
	for i, r := range rows {
		label[r] = list[at[i]]
	}
	return label, common
}

func signed(v float64) string {
	if v > 0 {
		return "+" + report.Number(v)
	}
	return report.Number(v)
}
