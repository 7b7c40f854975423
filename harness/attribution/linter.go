package attribution

import (
	"fmt"
	"maps"

	"gic/harness/record"
)

// mostLinted bounds the records that a Linter keeps: looking at pairs of rows of a longer run takes longer than its
// table.
const mostLinted = 5000

// Linter checks the runs of a table against the guidelines while their records pass by (report.Lint). It keeps of them
// what the guidelines look at.
type Linter struct {
	runs map[int]*Run
	kept map[int]int
}

// NewLinter makes a linter without records.
func NewLinter() *Linter { return &Linter{runs: map[int]*Run{}, kept: map[int]int{}} }

// Add takes a record of a run. The record may be changed afterwards.
func (l *Linter) Add(run int, c *record.Case) {
	if l.kept[run]++; l.kept[run] > mostLinted {
		delete(l.runs, run)
		return
	}
	if l.runs[run] == nil {
		l.runs[run] = &Run{}
	}
	light := &record.Case{
		ID: c.ID, Index: c.Index, Workload: c.Workload, Axes: maps.Clone(c.Axes), Backend: c.Backend, Config: maps.Clone(c.Config),
		Created: maps.Clone(c.Created), NIC: c.NIC, NICConfig: maps.Clone(c.NICConfig), Device: c.Device, Ranks: c.Ranks, Seed: c.Seed,
		Status: c.Status, Imported: c.Imported, Facts: map[string]any{"clock": c.Facts["clock"]}, Host: map[string]any{},
	}
	for k, v := range c.Host {
		if isClock(k) {
			light.Host[k] = v
		}
	}
	for _, m := range c.Metrics {
		m.Samples, m.HDR = nil, ""
		light.Metrics = append(light.Metrics, m)
	}
	l.runs[run].Add(light)
}

// Lines are what a run's rows do not keep, one per guideline, with where it is explained. How few process runs there
// are stands in the table itself and is left out.
func (l *Linter) Lines(run int) []string {
	if l.kept[run] > mostLinted {
		return []string{fmt.Sprintf("not checked whether these rows compare: more than %d records (%s#before-you-compare)", mostLinted, Page)}
	}
	r := l.runs[run]
	if r == nil {
		return nil
	}
	var out []string
	for _, f := range r.Lint(nil) {
		if f.Code != "few-runs" {
			out = append(out, fmt.Sprintf("! %s: %s (%s)", f.Code, f.Text, f.Anchor()))
		}
	}
	return out
}
