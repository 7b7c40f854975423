package figures

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"gic/harness/plot"
	"gic/harness/record"
	"gic/harness/report"
	"gic/workloads"
)

const (
	distributionKind = "Latency distribution"
	maxDistributions = 8 // figures in a run; the tables hold p99 of the rest
)

// percents are where a distribution is drawn. The last operation of a thousand is a number in the table: it would
// squeeze all others into a corner.
var percents = func() []float64 {
	p := []float64{0.1, 0.5}
	for v := 1.0; v <= 99; v++ {
		p = append(p, v)
	}
	return append(p, 99.2, 99.5, 99.8, 99.9)
}()

// told are the percentiles that tables show, drawn with the range over the process runs.
var told = []float64{50, 90, 99}

// distributions draws the operations of a point's rows: one curve per row over all its process runs together.
func (s *Set) distributions(u *report.RunView, samples *Samples) {
	if samples == nil {
		s.missing(distributionKind, "the samples of the records were not kept")
		return
	}
	drawn, left := 0, 0
	var bad []string
	for si := range u.Sections {
		sec := &u.Sections[si]
		for pi := range sec.Points {
			p := &sec.Points[pi]
			for mi := range p.Metrics {
				m := &p.Metrics[mi]
				if !m.Shown || m.Class != workloads.Time {
					continue
				}
				fig, errs := distribution(u, samples, sec, p, m, drawn >= maxDistributions)
				bad = append(bad, errs...)
				switch {
				case fig != nil && drawn < maxDistributions:
					drawn++
					s.Add(*fig)
				case fig != nil:
					left++
				}
			}
		}
	}
	switch {
	case drawn == 0 && len(bad) == 0:
		s.missing(distributionKind, "no headline time has several operations per process run")
	case left > 0:
		s.missing(distributionKind, "of %d more points: only the first %d are drawn; p99 is in the tables, the samples are in the records", left, drawn)
	}
	if len(bad) > 0 {
		s.missing(distributionKind, "of %d rows: %s", len(bad), bad[0])
	}
	if samples.full {
		s.missing(distributionKind, "of what follows the first %d distributions in the records", maxMetrics)
	}
}

// distribution draws one metric of a point, nil if it has no distribution. With only is asked just whether.
func distribution(
	u *report.RunView, samples *Samples, sec *report.SectionView, p *report.PointView, m *report.MetricView, only bool,
) (*Figure, []string) {
	var ev evidence
	var bad []string
	l := &plot.Lines{
		Title: report.Clean(strings.TrimSpace(fmt.Sprintf("%s: %s %s %s", distributionKind, sec.Workload, m.Name, p.Title))),
		Y:     plot.Axis{Label: "operations not slower, %", Zero: true},
	}
	fig := &Figure{ID: l.Title, Kind: distributionKind, Plot: l}
	unit, scale := report.Unit(m.Class, m.Base, lowest(m), lowest(m))
	fig.Head = []string{"row", "operations", report.WithUnit("min", unit), "p50", "p90", "p99", "p99.9", "max", "p99 over process runs", "n"}
	l.X = plot.Axis{Label: report.WithUnit(report.Clean(m.Name), unit), Scale: plot.Log10}
	cells, of := chosen(u, samples, m)
	if only && len(cells) > 0 {
		return fig, nil
	}
	if len(cells) < of {
		l.Title += fmt.Sprintf(" (%d of %d rows)", len(cells), of)
	}
	var rows []*report.RowView
	for _, c := range cells {
		rows = append(rows, c.Row)
	}
	list, common := names(rows, "")
	for i, c := range cells {
		series, row, err := curveOf(samples.of(u.Number, c.Row, m.Name), scale)
		if err != nil {
			bad = append(bad, fmt.Sprintf("%s: %v", c.Row.Label, err))
			continue
		}
		series.Name = list[i]
		l.Series = append(l.Series, series)
		fig.Rows = append(fig.Rows, append([]string{series.Name}, row...))
		ev.add(c)
	}
	if len(l.Series) == 0 {
		return nil, bad
	}
	l.Note = report.Clean(ev.note(join(sec.Common), common, "drawn to p99.9; markers at p50, p90 and p99, their bars: range over the process runs"))
	fig.Text = fmt.Sprintf("Cumulative share of operations by %s, of %s.", report.WithUnit(m.Name, unit), count(len(l.Series), "row"))
	return fig, bad
}

// chosen are the cells of a point whose distributions are drawn, in their order, and how many there are: if a
// figure cannot tell all apart, first the best of each backend, then those with the best medians.
func chosen(u *report.RunView, samples *Samples, m *report.MetricView) ([]*report.CellView, int) {
	var all []*report.CellView
	for i := range m.Cells {
		c := &m.Cells[i]
		if drawn(c) && c.PerOp && len(samples.of(u.Number, c.Row, m.Name)) > 0 {
			all = append(all, c)
		}
	}
	if len(all) <= plot.MaxSeries {
		return all, len(all)
	}
	order := slices.Clone(all)
	slices.SortStableFunc(order, func(a, b *report.CellView) int { return cmp.Compare(a.Median, b.Median) })
	seen := map[string]bool{}
	first := map[*report.CellView]bool{}
	for _, c := range order {
		first[c] = !seen[c.Row.Backend]
		seen[c.Row.Backend] = true
	}
	slices.SortStableFunc(order, func(a, b *report.CellView) int {
		switch {
		case first[a] == first[b]:
			return 0
		case first[a]:
			return -1
		}
		return 1
	})
	order = order[:plot.MaxSeries]
	return slices.DeleteFunc(slices.Clone(all), func(c *report.CellView) bool { return !slices.Contains(order, c) }), len(all)
}

func lowest(m *report.MetricView) float64 {
	low := math.Inf(1)
	for i := range m.Cells {
		if c := &m.Cells[i]; drawn(c) && c.Median > 0 {
			low = min(low, c.Median)
		}
	}
	return low
}

// curveOf is the distribution of all process runs together, with the spread between them.
func curveOf(metrics []record.Metric, scale float64) (plot.Series, []string, error) {
	s := plot.Series{Bare: true}
	all, err := record.Merge(metrics...)
	if err != nil {
		return s, nil, err
	}
	low, high := make([]float64, len(told)), make([]float64, len(told))
	for i := range metrics {
		d, err := record.Merge(metrics[i])
		if err != nil {
			return s, nil, err
		}
		for j, p := range told {
			v := d.Percentile(p) / scale
			if i == 0 {
				low[j], high[j] = v, v
			}
			low[j], high[j] = min(low[j], v), max(high[j], v)
		}
	}
	for _, p := range percents {
		pt := plot.Point{X: all.Percentile(p) / scale, Y: p}
		for j, t := range told {
			if t == p && len(metrics) > 1 {
				pt.XLow, pt.XHigh = low[j], high[j]
			}
		}
		s.Points = append(s.Points, pt)
	}
	row := []string{fmt.Sprint(all.N), report.Number(all.Min / scale)}
	for _, p := range []float64{50, 90, 99, 99.9} {
		row = append(row, report.Number(all.Percentile(p)/scale))
	}
	row = append(row, report.Number(all.Max/scale), report.Number(low[2])+".."+report.Number(high[2]), fmt.Sprint(len(metrics)))
	return s, row, nil
}
