package importer

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gic/harness/record"
	"gic/workloads"
)

// source is a file being read.
type source struct {
	name string
	data []byte
	opt  Options
	imp  record.Import
	// process is the process run that readings belong to; a parser counts it up where the tool started anew.
	process  int
	pending  []*pending
	byKey    map[string]*pending // by case and process run
	problems []*Problem
	notes    []*Problem
	env      map[string]string
	host     record.Machine
	fatal    error
}

// reading is one result as a file gives it: one case, some of its metrics. Empty fields are unknown.
type reading struct {
	line         int
	workload     string
	axes, config map[string]string
	backend      string
	nic, device  string
	nicConfig    map[string]string
	ranks        int
	seed         uint64
	metrics      []workloads.Metric
	facts        map[string]any
	library      []record.Library
	warnings     []workloads.Warning
	start        time.Time
	status       record.Status // "" is ok
	reason       string
}

// pending is a case in one process run whose samples are still being collected.
type pending struct {
	c       *record.Case
	process int
	metrics []workloads.Metric
}

func (s *source) problem(line int, format string, args ...any) {
	s.problems = append(s.problems, &Problem{s.name, line, fmt.Sprintf(format, args...)})
}

func (s *source) note(line int, format string, args ...any) {
	s.notes = append(s.notes, &Problem{s.name, line, fmt.Sprintf(format, args...)})
}

// passed notes a line that is none of the format's.
func (s *source) passed(line int, text string) {
	s.note(line, "passed over: %s", quote(text))
}

// quote shows the beginning of a text.
func quote(text string) string {
	const most = 60
	text = strings.TrimSpace(text)
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "..."
	}
	return strconv.Quote(text)
}

// lines are the lines of the file with their numbers, without their ends.
func (s *source) lines() iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		n := 0
		for line := range bytes.Lines(s.data) {
			n++
			if !yield(n, string(bytes.TrimRight(line, "\r\n"))) {
				return
			}
		}
	}
}

// quantity reads a number that was measured. What is no number, zero, negative or not finite is a problem.
func (s *source) quantity(line int, what, text string) (float64, bool) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil && !math.IsInf(v, 0) {
		s.problem(line, "%s is %s, not a number", what, quote(text))
		return 0, false
	}
	return v, s.positive(line, what, v)
}

// positive refuses what no measurement gives. Tools print 0 where they measured nothing.
func (s *source) positive(line int, what string, v float64) bool {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		s.problem(line, "%s is %v", what, v)
	case v == 0:
		s.problem(line, "%s is 0: it was not measured", what)
	case v < 0:
		s.problem(line, "%s is negative: %v", what, v)
	default:
		return true
	}
	return false
}

// count reads a positive integer.
func (s *source) count(line int, what, text string) (int, bool) {
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < 1 {
		s.problem(line, "%s is %s, not a positive integer", what, quote(text))
		return 0, false
	}
	return int(v), true
}

// seconds, rate and bandwidth make metrics of values in base units.
func seconds(name string, headline bool, v ...float64) workloads.Metric {
	return workloads.Metric{Name: name, Unit: "s", Class: workloads.Time, Samples: v, Headline: headline}
}

func rate(name string, headline bool, v ...float64) workloads.Metric {
	return workloads.Metric{Name: name, Unit: "msg/s", Class: workloads.Rate, Samples: v, Headline: headline}
}

func bandwidth(name string, headline bool, v ...float64) workloads.Metric {
	return workloads.Metric{Name: name, Unit: "B/s", Class: workloads.Bandwidth, Samples: v, Headline: headline}
}

var keyName = regexp.MustCompile(`^[a-z][a-z0-9_.]*$`)

// set gives a reading a key that it lacks.
func (r *reading) set(kv record.KeyValue) error {
	group, key, dotted := strings.Cut(kv.Key, ".")
	if !dotted {
		return r.setPlain(kv)
	}
	var m *map[string]string
	switch group {
	case "workload":
		m = &r.axes
	case "backend":
		m = &r.config
	case "nic":
		m = &r.nicConfig
	}
	if m == nil || !keyName.MatchString(key) {
		return fmt.Errorf("key %q is not workload.AXIS, backend.KEY or nic.KEY", kv.Key)
	}
	if have, ok := (*m)[key]; ok && have != kv.Value {
		return fmt.Errorf("%s=%s, but the file says %s", kv.Key, kv.Value, have)
	}
	*m = maps.Clone(*m) // readings of one file share their maps
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = kv.Value
	return nil
}

func (r *reading) setPlain(kv record.KeyValue) error {
	check := func(have *string, allowed ...string) error {
		if len(allowed) > 0 && !slices.Contains(allowed, kv.Value) {
			return fmt.Errorf("%s=%s is not allowed; allowed: %s", kv.Key, kv.Value, strings.Join(allowed, ", "))
		}
		if *have != "" && *have != kv.Value {
			return fmt.Errorf("%s=%s, but the file says %s", kv.Key, kv.Value, *have)
		}
		*have = kv.Value
		return nil
	}
	switch kv.Key {
	case "workload":
		return check(&r.workload)
	case "nic":
		return check(&r.nic, "soft", "mlx5", "none", "unknown")
	case "device":
		return check(&r.device, "host", "cuda", "unknown")
	case "ranks":
		n, err := strconv.Atoi(kv.Value)
		if err != nil || n < 1 || n > 1<<20 {
			return fmt.Errorf("ranks=%s is not allowed; allowed: 1..%d", kv.Value, 1<<20)
		}
		if r.ranks != 0 && r.ranks != n {
			return fmt.Errorf("ranks=%d, but the file says %d", n, r.ranks)
		}
		r.ranks = n
		return nil
	}
	return fmt.Errorf("key %q is not known; allowed: ranks, nic, device, workload, workload.AXIS, backend.KEY, nic.KEY", kv.Key)
}

// add takes a reading. One that has been read before in this process run gives more samples of its metrics.
func (s *source) add(r reading) {
	for _, kv := range s.opt.Set {
		if err := r.set(kv); err != nil {
			s.fatal = err
			return
		}
	}
	if s.opt.As != "" {
		r.backend = s.opt.As
	}
	if r.ranks == 0 {
		s.fatal = errRanks
		return
	}
	for _, m := range []map[string]string{r.axes, r.config, r.nicConfig} {
		for k := range m {
			if !keyName.MatchString(k) {
				s.problem(r.line, "key %q is not lower-case letters, digits, _ and .", k)
				return
			}
		}
	}
	c := &record.Case{
		Type: "case", Workload: r.workload, Axes: r.axes, Backend: r.backend, Config: r.config, NIC: r.nic,
		NICConfig: r.nicConfig, Device: r.device, Ranks: r.ranks, Seed: r.seed, Library: r.library, Start: r.start,
		Status: r.status, Reason: r.reason, Facts: r.facts, Warnings: r.warnings,
	}
	if c.NIC == "" {
		c.NIC = "unknown"
	}
	if c.Device == "" {
		c.Device = "unknown"
	}
	if c.Status == "" {
		c.Status = record.OK
	}
	from := s.imp
	from.Line = r.line
	c.Imported = &from
	c.ID = record.CaseID(c)
	key := c.ID + "/" + strconv.Itoa(s.process)
	p := s.byKey[key]
	if p == nil {
		p = &pending{c: c, process: s.process}
		s.byKey[key] = p
		s.pending = append(s.pending, p)
	} else if c.Status != record.OK && p.c.Status == record.OK {
		p.c.Status, p.c.Reason = c.Status, c.Reason
	}
	for _, m := range r.metrics {
		p.addMetric(m)
	}
}

func (p *pending) addMetric(m workloads.Metric) {
	for i := range p.metrics {
		have := &p.metrics[i]
		if have.Name == m.Name && have.Unit == m.Unit {
			have.Samples = append(have.Samples[:len(have.Samples):len(have.Samples)], m.Samples...)
			return
		}
	}
	p.metrics = append(p.metrics, m)
}

// finish makes the records. Process runs of a case are numbered from 0 in the order of the file.
func (s *source) finish() []*record.Case {
	next := map[string]int{}
	var out []*record.Case
	for _, p := range s.pending {
		c := p.c
		line := c.Imported.Line
		ok := true
		for _, m := range p.metrics {
			metric, err := record.FromSamples(m.Name, m.Unit, m.Class, m.Samples)
			if err != nil {
				s.problem(line, "%v", err)
				ok = false
				continue
			}
			metric.Headline = m.Headline
			c.Metrics = append(c.Metrics, metric)
		}
		if len(c.Metrics) == 0 && (c.Status == record.OK || c.Status == record.Unverified) {
			if ok {
				s.problem(line, "%s of %s has no metric", c.Workload, c.Backend)
			}
			continue
		}
		c.Index = next[c.ID]
		c.Order = len(out)
		c.Warnings = append(c.Warnings, workloads.Warning{
			Code: "imported",
			Text: fmt.Sprintf("from %s (%s), not measured or verified by gic", s.name, s.imp.Format),
		})
		if err := record.Check(c); err != nil {
			s.problem(line, "%v", err)
			continue
		}
		next[c.ID]++
		out = append(out, c)
	}
	for _, list := range [][]*Problem{s.problems, s.notes} {
		slices.SortStableFunc(list, func(a, b *Problem) int { return a.Line - b.Line })
	}
	return out
}
