package figures

import (
	"fmt"
	"math"
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
					s.add(*fig)
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
	fig.Head = []string{"row", "operations", "min, " + unit, "p50", "p90", "p99", "p99.9", "max", "p99 over process runs", "n"}
	l.X = plot.Axis{Label: report.Clean(m.Name) + ", " + unit, Scale: plot.Log10}
	for ci := range m.Cells {
		c := &m.Cells[ci]
		if !drawn(c) || !c.PerOp {
			continue
		}
		metrics := samples.of(u.Number, c.Row.ID, m.Name)
		if len(metrics) == 0 || len(l.Series) == plot.MaxSeries {
			continue
		}
		if only {
			return fig, nil
		}
		series, row, err := curveOf(metrics, scale)
		if err != nil {
			bad = append(bad, fmt.Sprintf("%s: %v", c.Row.Label, err))
			continue
		}
		series.Name = report.Clean(c.Row.Label + " " + c.Row.Where)
		l.Series = append(l.Series, series)
		fig.Rows = append(fig.Rows, append([]string{series.Name}, row...))
		ev.add(c)
	}
	if len(l.Series) == 0 {
		return nil, bad
	}
	l.Note = report.Clean(ev.note(join(sec.Common), "drawn to p99.9; markers at p50, p90 and p99, their bars: range over the process runs"))
	fig.Text = fmt.Sprintf("Cumulative share of operations by %s, %s, for %d rows.", m.Name, unit, len(l.Series))
	return fig, bad
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
