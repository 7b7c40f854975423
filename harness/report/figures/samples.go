package figures

import (
	"slices"
	"strings"

	"gic/harness/record"
	"gic/workloads"
)

// maxMetrics bounds what Samples keeps: distributions of a few cases are looked at, not of thousands.
const maxMetrics = 20_000

// Samples keeps what a distribution is drawn from: the headline times of records, with the samples of every
// operation. The zero value is empty and ready.
type Samples struct {
	runs []map[string]map[int]record.Metric // per run: case ID and metric to the process runs
	id   string
	kept int
	full bool
}

// Add looks at a record; records come in the order in which they are added to a report.
func (s *Samples) Add(rec record.Record) {
	switch rec := rec.(type) {
	case *record.Header:
		if len(s.runs) == 0 || s.id != rec.ID {
			s.id = rec.ID
			s.runs = append(s.runs, map[string]map[int]record.Metric{})
		}
	case *record.Case:
		if len(s.runs) == 0 {
			s.runs = append(s.runs, map[string]map[int]record.Metric{})
		}
		s.addCase(s.runs[len(s.runs)-1], rec)
	}
}

func (s *Samples) addCase(run map[string]map[int]record.Metric, c *record.Case) {
	for i := range c.Metrics {
		m := &c.Metrics[i]
		key := c.ID + "\x00" + m.Name
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

// of gives the process runs of a case in a metric, of the run with this number.
func (s *Samples) of(run int, id, metric string) []record.Metric {
	if s == nil || run >= len(s.runs) {
		return nil
	}
	byIndex := s.runs[run][id+"\x00"+metric]
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
