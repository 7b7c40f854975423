// Package figures says what of a report can be drawn, and draws it with package plot: curves over a key that was
// swept while all else stayed equal, distributions, gaps to the floor. The numbers are those of the report's
// tables; only distributions need the records themselves (Samples).
//
// A figure that the data do not support is not drawn; a Missing says why.
package figures

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gic/harness/plot"
	"gic/harness/record"
	"gic/harness/report"
)

// Figure is one figure with its numbers as a table, for those who cannot see it or want to compute with it.
type Figure struct {
	ID   string // unique in a run, fit for file names and anchors
	Kind string // title of its kind
	Plot plot.Figure
	Text string // one sentence on what it shows
	Head []string
	Rows [][]string
}

// Missing is a kind of figure that could not be drawn, or not whole.
type Missing struct{ Kind, Reason string }

// Set is the figures of a run.
type Set struct {
	Figures []Figure
	Missing []Missing
	ids     map[string]int
}

// Of draws what a run supports. Samples may be nil: then there are no distributions.
func Of(u *report.RunView, samples *Samples) *Set {
	s := &Set{}
	for _, k := range kinds {
		s.sweep(u, k)
	}
	s.distributions(u, samples)
	s.gaps(u)
	return s
}

// Add adds a figure under an ID that no other one has.
func (s *Set) Add(f Figure) {
	if s.ids == nil {
		s.ids = map[string]int{}
	}
	f.ID = slug(f.ID)
	if s.ids[f.ID]++; s.ids[f.ID] > 1 {
		f.ID += "-" + strconv.Itoa(s.ids[f.ID])
	}
	s.Figures = append(s.Figures, f)
}

func (s *Set) missing(kind, format string, args ...any) {
	s.Missing = append(s.Missing, Missing{kind, fmt.Sprintf(format, args...)})
}

// slug keeps letters, digits and dashes.
func slug(s string) string {
	var b strings.Builder
	dash := false
	for _, r := range strings.ToLower(s) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
			dash = false
		} else if !dash && b.Len() > 0 {
			b.WriteByte('-')
			dash = true
		}
		if b.Len() > 80 {
			break
		}
	}
	return strings.TrimRight(b.String(), "-")
}

// drawn says whether a cell's number may stand in a figure: it was measured, and what was measured is right.
func drawn(c *report.CellView) bool {
	return c.N > 0 && c.Row.Status == record.OK && !math.IsNaN(c.Median)
}

// evidence collects what a figure's note has to say of its cells.
type evidence struct {
	places, ranks   []string
	low, high       int // process runs
	bounded, ranged bool
	crowded         bool
	soft, imported  bool
}

func (e *evidence) add(c *report.CellView) {
	r := c.Row
	e.places = appendNew(e.places, "nic="+r.NIC+" device="+r.Device)
	e.ranks = appendNew(e.ranks, value(r.Keys, "ranks"))
	if e.low == 0 || c.N < e.low {
		e.low = c.N
	}
	e.high = max(e.high, c.N)
	e.bounded, e.ranged = e.bounded || c.Bounded, e.ranged || !c.Bounded
	e.crowded = e.crowded || r.Oversubscribed
	e.imported = e.imported || r.Imported != ""
	e.soft = e.soft || r.NIC == "soft" && !c.Alone || r.Device == "host"
}

func (e *evidence) runs() string {
	if e.low == e.high {
		return "n=" + count(e.low, "process run")
	}
	return fmt.Sprintf("n=%d to %d process runs", e.low, e.high)
}

// note is the line under a title: of axes and configurations what all share; spread is what the bars are, "" for
// the usual.
func (e *evidence) note(axes, common, spread string) string {
	if spread == "" {
		switch {
		case e.bounded && e.ranged:
			spread = "bars: 95 % interval of the median, or the range of too few process runs for one"
		case e.bounded:
			spread = "bars: 95 % interval of the median"
		case e.high < 2:
			spread = "no spread: one process run"
		default:
			spread = "bars: range of the process runs, too few for an interval"
		}
	}
	parts := []string{strings.Join(e.places, " and "), strings.Join(e.ranks, "/") + " ranks"}
	for _, s := range []string{axes, common} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	parts = append(parts, e.runs(), spread)
	s := strings.Join(parts, "; ")
	if e.crowded {
		s += ". Oversubscribed: more threads than CPUs"
	}
	if e.soft {
		s += ". Not times of hardware"
	}
	if e.imported {
		s += ". Imported rows: not measured here"
	}
	return s
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func appendNew(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

func value(keys []record.KeyValue, key string) string {
	for _, kv := range keys {
		if kv.Key == key {
			return kv.Value
		}
	}
	return ""
}

// quiet are axes that say how long is measured, not what.
var quiet = []string{"messages", "iterations", "warmup", "rounds", "posts", "timer_check"}

// join writes keys as tables do, without what says little: how long was measured, and axes that are off.
func join(keys []record.KeyValue) string {
	var parts []string
	for _, kv := range keys {
		if kv.Value == "0" || slices.Contains(quiet, strings.TrimPrefix(kv.Key, "workload.")) {
			continue
		}
		parts = append(parts, strings.TrimPrefix(kv.Key, "workload.")+"="+kv.Value)
	}
	return strings.Join(parts, " ")
}
