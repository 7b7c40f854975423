package figures

import (
	"fmt"
	"math"
	"strings"

	"gic/harness/plot"
	"gic/harness/report"
	"gic/harness/results"
	"gic/workloads"
)

// History draws a case over runs with its change points.
func History(s *results.Series) Figure {
	low, high := math.Inf(1), 0.0
	lowRuns, highRuns, bounded := math.MaxInt, 0, 0
	for _, p := range s.Points {
		if p.Median > 0 {
			low, high = min(low, p.Median), max(high, p.Median)
		}
		lowRuns, highRuns = min(lowRuns, p.N), max(highRuns, p.N)
		if p.Low != nil && p.High != nil {
			bounded++
		}
	}
	unit, scale := report.Unit(s.Class, s.Unit, low, high)
	label := report.WithUnit(s.Metric, unit)
	h := &plot.History{
		Title: report.Clean(s.Name + ": " + s.Metric), Y: plot.Axis{Label: report.Clean(label), Zero: s.Exact},
	}
	fig := Figure{
		ID: s.Name + " " + s.Metric, Kind: "History", Plot: h, Head: []string{"run", "time", label, "low", "high", "n", "change"},
		Text: report.Clean(fmt.Sprintf("%s of %s over %s, with %s.", label, s.Name, count(len(s.Points), "run"), count(len(s.Changes), "change point"))),
	}
	for i, p := range s.Points {
		m := plot.Measured{Run: report.Clean(p.Run), Time: p.Time, Value: p.Median / scale}
		row := []string{m.Run, p.Time.UTC().Format("2006-01-02 15:04") + "Z", report.Number(m.Value), "", "", fmt.Sprint(p.N), ""}
		if p.Low != nil && p.High != nil {
			m.Low, m.High = *p.Low/scale, *p.High/scale
			row[3], row[4] = report.Number(m.Low), report.Number(m.High)
		}
		if c, ok := s.Change(i); ok {
			ch := plot.Change{At: i, Before: c.Before / scale, After: c.After / scale, Verdict: verdict(s.Class, c.Before, c.After)}
			h.Changes = append(h.Changes, ch)
			row[6] = strings.TrimSpace(fmt.Sprintf("%s to %s %s", report.Number(ch.Before), report.Number(ch.After), ch.Verdict))
		}
		h.Runs = append(h.Runs, m)
		fig.Rows = append(fig.Rows, row)
	}
	h.Note = report.Clean(historyNote(s, lowRuns, highRuns, bounded))
	return fig
}

// verdict needs a direction, which counters do not have.
func verdict(class workloads.Class, before, after float64) string {
	switch {
	case class == "" || before == after:
		return ""
	case (class == workloads.Time) == (after > before):
		return "worse"
	}
	return "better"
}

func historyNote(s *results.Series, low, high, bounded int) string {
	parts := []string{"nic=" + value(s.Keys, "nic") + " device=" + value(s.Keys, "device"), value(s.Keys, "ranks") + " ranks"}
	switch {
	case len(s.Points) == 0:
		return strings.Join(parts, "; ")
	case low == high:
		parts = append(parts, "n="+count(low, "process run")+" each")
	default:
		parts = append(parts, fmt.Sprintf("n=%d to %d process runs", low, high))
	}
	switch {
	case s.Exact:
		parts = append(parts, "an exact counter: no spread")
	case bounded == len(s.Points):
		parts = append(parts, "bars: 95 % interval of the median")
	case bounded > 0:
		parts = append(parts, "bars: 95 % interval of the median, where there are enough process runs for one")
	default:
		parts = append(parts, "no intervals: too few process runs")
	}
	note := strings.Join(parts, "; ")
	alone := value(s.Keys, "device") == "cuda" && workloads.OnDevice(value(s.Keys, "workload"), s.Metric)
	if value(s.Keys, "nic") == "soft" && !alone || value(s.Keys, "device") == "host" {
		note += ". Not times of hardware"
	}
	return note
}
