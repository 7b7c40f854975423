package results

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"gic/harness/record"
	"gic/harness/stats"
	"gic/workloads"
)

// Series is one metric or one exact counter of one case over runs, oldest first.
type Series struct {
	CaseID string            `json:"case"`
	Name   string            `json:"name"` // the case, by the keys that vary among the cases asked for
	Keys   []record.KeyValue `json:"-"`
	Metric string            `json:"metric"` // or the counter, per message: doorbells_per_message
	Unit   string            `json:"unit"`
	Class  workloads.Class   `json:"class,omitempty"` // "" for counters
	Points []Point           `json:"points"`
	// Changes are the places from which on values are others, as indices into Points (stats.Changes; for exact
	// counters wherever the value is not the one before).
	Changes []stats.Change `json:"changes,omitempty"`
	Exact   bool           `json:"exact,omitempty"`
}

// Point is one run.
type Point struct {
	Run    string    `json:"run"`
	Time   time.Time `json:"time"`
	Gic    string    `json:"gic"`
	Host   string    `json:"host"`
	N      int       `json:"n"` // process runs
	Median float64   `json:"median"`
	Low    *float64  `json:"low"` // of the 95 % interval; null with too few process runs
	High   *float64  `json:"high"`
}

// Change says whether a change point is at a point, and gives it.
func (s *Series) Change(point int) (stats.Change, bool) {
	for _, c := range s.Changes {
		if c.At == point {
			return c, true
		}
	}
	return stats.Change{}, false
}

// HistoryOptions say what to follow.
type HistoryOptions struct {
	Filter  *Filter
	Metrics []string // names; empty: the headline metrics
	Alpha   float64  // of a change point
	Seed    uint64   // of the shuffles
}

// historyCase collects one case.
type historyCase struct {
	keys []record.KeyValue
	name []string
	runs map[*record.Header]*historyRun
}

type historyRun struct {
	values map[string][]float64
	metric map[string]record.Metric // without samples
	counts map[string]float64       // exact ones, per message
	varied map[string]bool
}

// History follows cases over the runs in some files. Process runs that are not ok do not count.
func History(files []string, o HistoryOptions) (series []*Series, bad []string, err error) {
	cases := map[string]*historyCase{}
	var order []string
	var headers []*record.Header
	for _, file := range files {
		var header *record.Header
		for rec, err := range record.ReadFile(file) {
			if err != nil {
				return nil, nil, err
			}
			switch rec := rec.(type) {
			case *record.Bad:
				bad = append(bad, oneLine(rec.Error()))
			case *record.Header:
				if i := slices.IndexFunc(headers, func(h *record.Header) bool { return h.ID == rec.ID }); i >= 0 {
					header = headers[i]
					continue
				}
				header = rec
				headers = append(headers, rec)
			case *record.Case:
				if header == nil || !o.Filter.Match(keysFor(o.Filter, header, rec)) || rec.Status != record.OK {
					continue
				}
				c := cases[rec.ID]
				if c == nil {
					flat := record.Flatten(rec)
					c = &historyCase{keys: cloneKeys(flat[:len(flat)-2]), runs: map[*record.Header]*historyRun{}}
					id := strings.Clone(rec.ID)
					cases[id] = c
					order = append(order, id)
				}
				c.add(header, rec)
			}
		}
	}
	slices.SortStableFunc(headers, func(a, b *record.Header) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.ID, b.ID)) })
	vary := varyingCaseKeys(cases)
	for _, id := range order {
		series = append(series, cases[id].series(id, caseName(cases[id].keys, vary), headers, o)...)
	}
	return series, bad, nil
}

func cloneKeys(kv []record.KeyValue) []record.KeyValue {
	out := make([]record.KeyValue, len(kv))
	for i, v := range kv {
		out[i] = record.KeyValue{Key: strings.Clone(v.Key), Value: strings.Clone(v.Value)}
	}
	return out
}

func (c *historyCase) add(h *record.Header, rec *record.Case) {
	r := c.runs[h]
	if r == nil {
		r = &historyRun{values: map[string][]float64{}, metric: map[string]record.Metric{}, counts: map[string]float64{}, varied: map[string]bool{}}
		c.runs[h] = r
	}
	for i := range rec.Metrics {
		m := rec.Metrics[i]
		name := strings.Clone(m.Name)
		if len(c.name) == 0 || !slices.Contains(c.name, name) {
			c.name = append(c.name, name)
		}
		r.values[name] = append(r.values[name], m.P50)
		r.metric[name] = record.Metric{Unit: strings.Clone(m.Unit), Class: workloads.Class(strings.Clone(string(m.Class))), Headline: m.Headline}
	}
	for _, k := range rec.Counters {
		if !k.Exact || rec.Messages == 0 {
			continue
		}
		name, v := strings.Clone(k.Name), float64(k.Value)/float64(rec.Messages)
		if old, ok := r.counts[name]; ok && old != v {
			r.varied[name] = true
		}
		r.counts[name] = v
	}
}

// series makes the series of a case: its metrics, and the exact counters that changed.
func (c *historyCase) series(id, name string, headers []*record.Header, o HistoryOptions) []*Series {
	var out []*Series
	for _, metric := range c.name {
		s := &Series{CaseID: id, Name: name, Keys: c.keys, Metric: metric}
		wanted := slices.Contains(o.Metrics, metric)
		var medians []float64
		for _, h := range headers {
			r := c.runs[h]
			if r == nil || len(r.values[metric]) == 0 {
				continue
			}
			m := r.metric[metric]
			s.Unit, s.Class = m.Unit, m.Class
			wanted = wanted || len(o.Metrics) == 0 && m.Headline
			sum, err := stats.Summarize(r.values[metric])
			if err != nil {
				continue // records hold finite values only
			}
			p := point(h, sum.N, sum.Median)
			if sum.Bounded() {
				p.Low, p.High = &sum.Low, &sum.High
			}
			s.Points = append(s.Points, p)
			medians = append(medians, sum.Median)
		}
		if wanted {
			s.Changes = stats.Changes(medians, o.Alpha, o.Seed)
			out = append(out, s)
		}
	}
	return append(out, c.counterSeries(id, name, headers, o)...)
}

func point(h *record.Header, n int, median float64) Point {
	return Point{Run: h.ID, Time: h.Time.UTC(), Gic: h.Gic, Host: h.Host.Hostname, N: n, Median: median}
}

// historyCounters are the counters that a history follows.
var historyCounters = []string{"doorbells", "cqes", "wqes", "payload_bytes"}

func (c *historyCase) counterSeries(id, name string, headers []*record.Header, o HistoryOptions) []*Series {
	var out []*Series
	for _, counter := range historyCounters {
		metric := counter + "_per_message"
		if counter == "payload_bytes" {
			metric = "bytes_per_message"
		}
		s := &Series{CaseID: id, Name: name, Keys: c.keys, Metric: metric, Unit: "1", Exact: true}
		if counter == "payload_bytes" {
			s.Unit = "B"
		}
		for _, h := range headers {
			r := c.runs[h]
			if r == nil || r.varied[counter] {
				continue
			}
			v, ok := r.counts[counter]
			if !ok {
				continue
			}
			s.Points = append(s.Points, point(h, 1, v))
			if n := len(s.Points); n > 1 && s.Points[n-2].Median != v {
				s.Changes = append(s.Changes, stats.Change{At: n - 1, Before: s.Points[n-2].Median, After: v})
			}
		}
		if len(s.Changes) > 0 || slices.Contains(o.Metrics, metric) && len(s.Points) > 0 {
			out = append(out, s)
		}
	}
	return out
}

func varyingCaseKeys(cases map[string]*historyCase) map[string]bool {
	first, vary := map[string]string{}, map[string]bool{}
	for _, c := range cases {
		scope := map[string]string{}
		for _, kv := range c.keys {
			scope[kv.Key] = kv.Value
		}
		for _, kv := range c.keys {
			key := kv.Key
			switch {
			case strings.HasPrefix(key, "workload."):
				key = scope["workload"] + "\x00" + key
			case strings.HasPrefix(key, "backend."):
				key = scope["backend"] + "\x00" + key
			}
			if v, ok := first[key]; !ok {
				first[key] = kv.Value
			} else if v != kv.Value {
				vary[kv.Key] = true
			}
		}
	}
	return vary
}

func caseName(keys []record.KeyValue, vary map[string]bool) string {
	var parts []string
	for _, kv := range keys {
		switch group, name, below := strings.Cut(kv.Key, "."); {
		case kv.Key == "workload" || kv.Key == "backend":
			parts = append(parts, kv.Value)
		case vary[kv.Key] && below && group != "nic":
			parts = append(parts, name+"="+kv.Value)
		case vary[kv.Key]:
			parts = append(parts, kv.Key+"="+kv.Value)
		}
	}
	return strings.Join(parts, " ")
}

// Shift is a change as a relative step, NaN from zero.
func Shift(c stats.Change) float64 {
	if c.Before == 0 {
		return math.NaN()
	}
	return c.After/c.Before - 1
}
