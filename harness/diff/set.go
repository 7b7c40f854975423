package diff

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"gic/harness/record"
	"gic/harness/results"
	"gic/workloads"
)

// Set is one side of a diff: all process runs of all cases in some run files, reduced to what is compared.
type Set struct {
	Label string
	Paths []string
	// Bad are the lines that could not be used, each with file and line. The others are all here.
	Bad []string
	// Repeated counts process runs that were recorded again: the last counts. FirstRepeated names the first.
	Repeated      int
	FirstRepeated string
	Records       int // cases read, without those that the filter left out

	runs   []*runInfo
	cases  []*caseSet
	byID   map[string]*caseSet
	stat   func(*record.Metric) float64
	files  []string
	intern map[string]string
	repeat int // process runs of a case that are likely to come
	// defaults of axes and keys as the headers tell them, by "workload.NAME" or "backend.NAME" and key.
	defaults map[string]map[string]string
	// What process runs are cut from: many small slices at once.
	floats []float64
	uints  []uint64
}

// runInfo is one header.
type runInfo struct {
	id, gic string
	time    time.Time
	state   []record.KeyValue
	env     map[string]string
	kernel  string
	// imported are the files of a run that other tools measured; nil for one of ours.
	imported []record.Import
}

// caseSet is one case over its process runs.
type caseSet struct {
	id       string
	keys     []record.KeyValue // what makes it this case, in the order of record.Flatten
	workload string
	backend  string
	metrics  []metricInfo
	counters []counterInfo
	runs     []processRun
	seeds    []uint64
	created  map[string]string
	library  []record.KeyValue // library.NAME and its version and hash
	loaded   []record.Library  // the last from which it was made
	work     map[string]string // hashes of generated work
	codes    []string          // of warnings
	imported bool              // another tool's result
	source   *record.Import    // of such a case, of its first record
}

type metricInfo struct {
	name, unit string
	class      workloads.Class
	headline   bool
}

type counterInfo struct {
	name  string
	exact bool // in every process run
}

// processRun is one case in one process run. Values and counts are parallel to the case's metrics and counters.
type processRun struct {
	run, index, file, line int32
	start                  int64 // Unix ns
	status                 record.Status
	reason                 string
	crowded                bool
	messages               uint64
	expected               uint64 // NIC operations of the message list, for records without messages
	values                 []float64
	counts                 []uint64
	clock                  float64 // Hz, median within the run; 0 where not known
}

// GCPercent is a setting of the collector that suits programs that make a diff and end: most of what is read is
// garbage at once, and what stays is small.
const GCPercent = 300

// missing marks a counter that a process run does not have.
const missing = math.MaxUint64

// Stats are the summaries of a process run that can be compared, by name.
var Stats = map[string]func(*record.Metric) float64{
	"p50":  func(m *record.Metric) float64 { return m.P50 },
	"p90":  func(m *record.Metric) float64 { return m.P90 },
	"p99":  func(m *record.Metric) float64 { return m.P99 },
	"max":  func(m *record.Metric) float64 { return m.Max },
	"mean": func(m *record.Metric) float64 { return m.Mean },
}

// NewSet makes an empty side. stat is a name in Stats.
func NewSet(label, stat string) (*Set, error) {
	f := Stats[stat]
	if f == nil {
		return nil, fmt.Errorf("statistic %q is not one of %s", stat, strings.Join(slices.Sorted(maps.Keys(Stats)), ", "))
	}
	return &Set{Label: label, byID: map[string]*caseSet{}, stat: f, intern: map[string]string{}}, nil
}

// Read adds the run files of a path: a file, a run's folder or a folder of such.
func (s *Set) Read(path string, filter *results.Filter) error {
	files, err := record.Files(path)
	if err != nil {
		return err
	}
	s.Paths = append(s.Paths, path)
	for _, f := range files {
		if err := s.readFile(f, filter); err != nil {
			return err
		}
	}
	return nil
}

// Load reads both sides at the same time.
func Load(old, new *Set, oldPaths, newPaths []string, oldFilter, newFilter *results.Filter) error {
	read := func(s *Set, paths []string, filter *results.Filter) error {
		for _, p := range paths {
			if err := s.Read(p, filter); err != nil {
				return err
			}
		}
		return nil
	}
	failed := make(chan error, 1)
	go func() { failed <- read(new, newPaths, newFilter) }()
	err := read(old, oldPaths, oldFilter)
	return cmp.Or(err, <-failed)
}

func (s *Set) readFile(path string, filter *results.Filter) error {
	s.files = append(s.files, path)
	file := int32(len(s.files) - 1)
	var header *record.Header
	run := int32(-1)
	for at, err := range record.ReadSummaries(path, wanted) {
		if err != nil {
			return err
		}
		switch rec := at.Record.(type) {
		case *record.Header:
			header, run = rec, s.addRun(rec)
			s.repeat = min(rec.Repeat, 64) // whatever it claims
		case *record.Case:
			if run < 0 {
				return fmt.Errorf("%s is no run file: it does not begin with a header", path)
			}
			if filter.Match(keysFor(filter, header, rec)) {
				s.add(rec, run, file, int32(at.Line))
			}
		case *record.Bad:
			s.Bad = append(s.Bad, strings.Join(strings.Fields(rec.Error()), " "))
		}
	}
	if run < 0 {
		if len(s.Bad) > 0 {
			return fmt.Errorf("%s is no run file: %s", path, s.Bad[len(s.Bad)-1])
		}
		return fmt.Errorf("%s is no run file: it is empty", path)
	}
	return nil
}

// wanted are the facts that a diff reads.
func wanted(key string) bool {
	return key == "oversubscribed" || key == "gpu_sm_clock" || key == "cpu_frequency_max" || strings.HasSuffix(key, "_hash")
}

// keysFor spares records without a filter the flattening.
func keysFor(f *results.Filter, h *record.Header, c *record.Case) []record.KeyValue {
	if f == nil {
		return nil
	}
	return results.Keys(h, c)
}

func (s *Set) addRun(h *record.Header) int32 {
	for i, r := range s.runs {
		if r.id == h.ID {
			return int32(i)
		}
	}
	s.learnDefaults("workload.", h.AxisDefaults)
	s.learnDefaults("backend.", h.Defaults)
	s.runs = append(s.runs, &runInfo{id: h.ID, gic: h.Gic, time: h.Time, state: machineState(h), env: h.Env, kernel: h.Host.Kernel, imported: h.Imported})
	return int32(len(s.runs) - 1)
}

// add adds one process run of a case.
func (s *Set) add(c *record.Case, run, file, line int32) {
	bad := func(format string, args ...any) {
		s.Bad = append(s.Bad, fmt.Sprintf("%s:%d: ", s.files[file], line)+fmt.Sprintf(format, args...))
	}
	k := s.byID[setKey(c.ID, c.Imported != nil)]
	switch {
	case k == nil:
		keys, want := record.Identity(c)
		if want != c.ID {
			bad("id %q is not the hash %q of the case's keys: not used", c.ID, want)
			return
		}
		k = s.newCase(c, keys)
	case !k.sameKeys(c):
		bad("id %q is that of a case with other keys: not used", c.ID)
		return
	}
	p := processRun{
		run: run, index: int32(c.Index), file: file, line: line, start: c.Start.UnixNano(),
		status: record.Status(s.own(string(c.Status))), crowded: crowded(c), messages: c.Messages, clock: clock(c),
	}
	for _, n := range c.Expected {
		p.expected += n
	}
	if c.Status != record.OK {
		p.reason = s.own(strings.Join(strings.Fields(c.Reason), " "))
	}
	if err := s.addValues(k, &p, c); err != nil {
		bad("%v: not used", err)
		return
	}
	s.Records++
	k.note(s, c)
	for i := range k.runs {
		if o := &k.runs[i]; o.run == run && o.index == p.index {
			if s.Repeated++; s.Repeated == 1 {
				s.FirstRepeated = fmt.Sprintf("%s:%d repeats process run %d of %s:%d", s.files[file], line, p.index, s.files[o.file], o.line)
			}
			*o = p
			return
		}
	}
	k.runs = append(k.runs, p)
}

// addValues puts metrics and counters at their places in p.
func (s *Set) addValues(k *caseSet, p *processRun, c *record.Case) error {
	p.values = cut(&s.floats, len(k.metrics), max(len(k.metrics), len(c.Metrics)))
	for i := range p.values {
		p.values[i] = math.NaN()
	}
	for i := range c.Metrics {
		m := &c.Metrics[i]
		at := slices.IndexFunc(k.metrics, func(x metricInfo) bool { return x.name == m.Name })
		if at < 0 {
			k.metrics = append(k.metrics, metricInfo{s.own(m.Name), s.own(m.Unit), workloads.Class(s.own(string(m.Class))), m.Headline})
			p.values = append(p.values, s.stat(m))
			continue
		}
		if k.metrics[at].unit != m.Unit || k.metrics[at].class != m.Class {
			return fmt.Errorf("metric %s has unit %q, others of the case have %q", m.Name, m.Unit, k.metrics[at].unit)
		}
		p.values[at] = s.stat(m)
	}
	p.counts = cut(&s.uints, len(k.counters), max(len(k.counters), len(c.Counters)))
	for i := range p.counts {
		p.counts[i] = missing
	}
	for _, n := range c.Counters {
		at := slices.IndexFunc(k.counters, func(x counterInfo) bool { return x.name == n.Name })
		if at < 0 {
			k.counters = append(k.counters, counterInfo{s.own(n.Name), n.Exact})
			p.counts = append(p.counts, n.Value)
			continue
		}
		k.counters[at].exact = k.counters[at].exact && n.Exact
		p.counts[at] = n.Value
	}
	return nil
}

// cut takes a slice off a stock.
func cut[T any](stock *[]T, n, most int) []T {
	const chunk = 8192
	if len(*stock) < most {
		*stock = make([]T, max(chunk, most))
	}
	out := (*stock)[:n:most]
	*stock = (*stock)[most:]
	return out
}

// setKey keeps another tool's result apart from a measured one of the same case.
func setKey(id string, imported bool) string {
	if imported {
		return id + " imported"
	}
	return id
}

func (s *Set) newCase(c *record.Case, keys []record.KeyValue) *caseSet {
	for i, kv := range keys {
		keys[i] = record.KeyValue{Key: s.own(kv.Key), Value: s.own(kv.Value)}
	}
	k := &caseSet{id: strings.Clone(c.ID), keys: keys, workload: s.own(c.Workload), backend: s.own(c.Backend)}
	k.runs = make([]processRun, 0, s.repeat)
	if c.Imported != nil {
		k.imported, k.source = true, &record.Import{
			Format: s.own(c.Imported.Format), File: s.own(c.Imported.File), SHA256: s.own(c.Imported.SHA256), Line: c.Imported.Line,
		}
	}
	s.byID[setKey(k.id, k.imported)] = k
	s.cases = append(s.cases, k)
	return k
}

// note keeps what a record tells beside its values, once.
func (k *caseSet) note(s *Set, c *record.Case) {
	if !slices.Contains(k.seeds, c.Seed) {
		k.seeds = append(k.seeds, c.Seed)
	}
	if k.created == nil && len(c.Created) > 0 {
		k.created = c.Created
	}
	if !slices.Equal(k.loaded, c.Library) {
		k.loaded = c.Library
		for _, l := range c.Library {
			kv := record.KeyValue{Key: s.own("library." + l.Name), Value: s.own(libraryText(l))}
			if !slices.Contains(k.library, kv) {
				k.library = append(k.library, kv)
			}
		}
	}
	for key, v := range c.Facts {
		if text, ok := v.(string); ok && strings.HasSuffix(key, "_hash") {
			if k.work == nil {
				k.work = map[string]string{}
			}
			k.work[s.own(key)] = s.own(text)
		}
	}
	for _, w := range c.Warnings {
		if !slices.Contains(k.codes, w.Code) {
			k.codes = append(k.codes, s.own(w.Code))
		}
	}
}

func libraryText(l record.Library) string {
	var parts []string
	if l.Version != "" {
		parts = append(parts, l.Version)
	}
	if len(l.SHA256) >= 12 {
		parts = append(parts, "sha256:"+l.SHA256[:12])
	}
	return cmp.Or(strings.Join(parts, " "), l.Path, "unknown")
}

// sameKeys says whether c has the keys of the case, without allocating.
func (k *caseSet) sameKeys(c *record.Case) bool {
	if len(k.keys) != 5+len(c.Axes)+len(c.Config)+len(c.NICConfig) {
		return false
	}
	for _, kv := range k.keys {
		var v string
		ok := true
		switch kv.Key {
		case "workload":
			v = c.Workload
		case "backend":
			v = c.Backend
		case "nic":
			v = c.NIC
		case "device":
			v = c.Device
		case "ranks":
			if n, err := strconv.Atoi(kv.Value); err != nil || n != c.Ranks {
				return false
			}
			continue
		default:
			group, name, _ := strings.Cut(kv.Key, ".")
			switch group {
			case "workload":
				v, ok = c.Axes[name]
			case "backend":
				v, ok = c.Config[name]
			default:
				v, ok = c.NICConfig[name]
			}
		}
		if !ok || v != kv.Value {
			return false
		}
	}
	return true
}

// own returns a copy of s shared by all equal strings of the set. A decoded string may hold its whole line.
func (s *Set) own(text string) string {
	if t, ok := s.intern[text]; ok {
		return t
	}
	t := strings.Clone(text)
	s.intern[t] = t
	return t
}

// crowded says whether more threads wanted to run than there were CPUs.
func crowded(c *record.Case) bool {
	return c.Host["oversubscribed"] == true ||
		slices.ContainsFunc(c.Warnings, func(w workloads.Warning) bool { return w.Code == "oversubscribed" })
}

// clock is the SM or CPU clock that the record tells, 0 for none.
func clock(c *record.Case) float64 {
	for _, v := range []any{c.Host["gpu_sm_clock"], c.Host["cpu_frequency_max"]} {
		switch v := v.(type) {
		case float64:
			return v
		case []any:
			top := 0.0
			for _, x := range v {
				if f, ok := x.(float64); ok {
					top = max(top, f)
				}
			}
			if top > 0 {
				return top
			}
		}
	}
	return 0
}

// status of a case is the worst of its process runs, with the reason of the first that has it.
func (k *caseSet) status() (record.Status, string) {
	worst, reason := -1, ""
	for i := range k.runs {
		if at := slices.Index(severity, k.runs[i].status); at > worst {
			worst, reason = at, k.runs[i].reason
		}
	}
	return severity[max(worst, 0)], reason
}

var severity = []record.Status{record.OK, record.Skipped, record.Unsafe, record.Unverified, record.Timeout, record.Failed}

// measured are the process runs whose values count: those that are ok, or unsafe where the case is that by design.
func (k *caseSet) measured() []*processRun {
	var out []*processRun
	for i := range k.runs {
		if s := k.runs[i].status; s == record.OK || s == record.Unsafe {
			out = append(out, &k.runs[i])
		}
	}
	slices.SortStableFunc(out, func(a, b *processRun) int { return cmp.Compare(a.start, b.start) })
	return out
}

func (k *caseSet) key(name string) (string, bool) {
	for _, kv := range k.keys {
		if kv.Key == name {
			return kv.Value, true
		}
	}
	return "", false
}
