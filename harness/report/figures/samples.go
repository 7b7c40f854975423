package figures

import (
	"slices"
	"strings"

	"gic/harness/record"
	"gic/harness/report"
	"gic/workloads"
)

// maxMetrics bounds what Samples keeps: distributions of a few cases are looked at, not of thousands.
const maxMetrics = 20_000

// Samples keeps what a distribution is drawn from: the headline times of records, with the samples of every
// operation. The zero value is empty and ready.
type Samples struct {
	runs []map[string]map[int]record.Metric // per run: case and metric to the process runs
	kept int
	full bool
}

// Add looks at a case, which a report counts to its run of this number.
func (s *Samples) Add(run int, c *record.Case) {
	for len(s.runs) <= run {
		s.runs = append(s.runs, map[string]map[int]record.Metric{})
	}
	s.addCase(s.runs[run], c)
}

// sampleKey tells an imported row from a measured one of the same case.
func sampleKey(id, imported, metric string) string { return id + "\x00" + imported + "\x00" + metric }

func (s *Samples) addCase(run map[string]map[int]record.Metric, c *record.Case) {
	imported := ""
	if c.Imported != nil {
		imported = c.Imported.File
	}
	for i := range c.Metrics {
		m := &c.Metrics[i]
		key := sampleKey(c.ID, imported, m.Name)
		if c.Status != record.OK { // recorded again, and no longer ok
			delete(run[key], c.Index)
			continue
		}
		if !m.Headline || m.Class != workloads.Time || m.N < 2 {
			continue
		}
		if s.kept >= maxMetrics {
			s.full = true
			return
		}
		if run[key] == nil {
			run[key] = map[int]record.Metric{}
		}
		own := *m
		own.Name, own.Unit, own.HDR = strings.Clone(m.Name), strings.Clone(m.Unit), strings.Clone(m.HDR)
		own.Samples = slices.Clone(m.Samples)
		run[key][c.Index] = own
		s.kept++
	}
}

// of gives the process runs of a row in a metric, of the run with this number.
func (s *Samples) of(run int, r *report.RowView, metric string) []record.Metric {
	if s == nil || run >= len(s.runs) {
		return nil
	}
	byIndex := s.runs[run][sampleKey(r.ID, r.Imported, metric)]
	var out []record.Metric
	for _, i := range sortedInts(byIndex) {
		out = append(out, byIndex[i])
	}
	return out
}

func sortedInts(m map[int]record.Metric) []int {
	keys := make([]int, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
