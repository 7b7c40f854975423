package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"gic/harness/record"
	"gic/harness/stats"
	"gic/workloads"
)

// section is one workload of a run.
type section struct {
	workload string
	common   []record.KeyValue // axes that have one value over all points
	points   []*point
	ranks    []int
	thin     bool // see Report
}

// point is one point of a workload: rows that do the same work.
type point struct {
	thin    bool   // see Report
	title   string // the axes that vary, "" if none does
	axes    map[string]string
	ranks   int
	rows    []*row // in printing order
	metrics []*comparison
}

// comparison is one metric of a point over its rows.
type comparison struct {
	name, unit string
	class      workloads.Class
	headline   bool
	cells      []*cell
}

// cell is one row in one metric.
type cell struct {
	row     *row
	runs    int // process runs with a value
	ops     int // samples inside them
	missing bool
	alien   bool // the metric is one that another backend alone takes
	perOp   bool // several samples per process run: percentiles mean something
	stats   stats.Summary
	// Over the samples inside process runs. p90 and p99 are of the samples of all process runs together
	// (record.Merge). In a report too long for that (Report.thin) they are medians over process runs of each run's
	// own percentile, which is one of them, never a mean of two.
	min, p90, p99, max float64
	unmerged           string // why the samples of the process runs could not be put together
	best               bool
	base               *cell // the best floor that it may be compared with, nil if there is none
	expected           *Expectation
}

// ratio is the cell's value over that of the best floor, NaN without one.
func (c *cell) ratio() float64 {
	if c.base == nil || c.base.stats.Median == 0 || c.runs == 0 {
		return math.NaN()
	}
	return c.stats.Median / c.base.stats.Median
}

// gap is the cell's value minus that of the best floor, NaN without one.
func (c *cell) gap() float64 {
	if c.base == nil || c.runs == 0 {
		return math.NaN()
	}
	return c.stats.Median - c.base.stats.Median
}

// severity orders the statuses of a row's process runs: the row has the worst.
var severity = []record.Status{
	record.OK, record.Skipped, record.Unsafe, record.Unverified, record.Timeout, record.Failed,
}

// settle derives a row's status, reasons and warnings from its process runs.
func (w *row) settle() {
	w.status, w.reasons, w.warnings = record.OK, nil, nil
	w.place = w.placeKey()
	w.measured, w.checked, w.oversubscribed = false, true, false
	worst := 0
	for i := range w.samples {
		s := &w.samples[i]
		if at := slices.Index(severity, s.status); at > worst {
			worst, w.status = at, s.status
		}
		if s.reason != "" {
			if r := (reason{s.status, s.reason}); !slices.Contains(w.reasons, r) {
				w.reasons = append(w.reasons, r)
			}
		}
		for _, warn := range s.warnings {
			if !slices.ContainsFunc(w.warnings, func(v workloads.Warning) bool { return v.Code == warn.Code }) {
				w.warnings = append(w.warnings, warn)
			}
		}
		w.measured = w.measured || len(s.values) > 0
		w.checked = w.checked && s.checked
		w.oversubscribed = w.oversubscribed || s.crowded
	}
}

// counted is the status of the process runs whose values make the row's: those that are ok, or else those that
// were measured but prove nothing.
func (w *row) counted() record.Status {
	for _, status := range []record.Status{record.OK, record.Unsafe, record.Unverified} {
		for i := range w.samples {
			if w.samples[i].status == status && len(w.samples[i].values) > 0 {
				return status
			}
		}
	}
	return record.OK
}

// cell computes the row's cell for a metric.
func (w *row) cell(name string, thin bool) *cell {
	c := &cell{row: w}
	status := w.counted()
	var p50, p90, p99 []float64
	var parts []record.Metric
	okRuns := 0
	for i := range w.samples {
		s := &w.samples[i]
		if s.status == record.OK {
			okRuns++
		}
		if s.status != status {
			continue
		}
		for _, v := range s.values {
			if v.name != name {
				continue
			}
			if len(p50) == 0 {
				c.min, c.max, c.expected = v.min, v.max, v.expected
			}
			c.min, c.max = min(c.min, v.min), max(c.max, v.max)
			c.ops += v.n
			c.perOp = c.perOp || v.n > 1
			if thin = thin || v.raw == nil && v.n > 1; !thin {
				parts = append(parts, v.metric())
			}
			p50, p90, p99 = append(p50, v.p50), append(p90, v.p90), append(p99, v.p99)
		}
	}
	c.runs = len(p50)
	c.missing = w.imported == "" && okRuns > 0 && c.runs < okRuns // other tools have other metrics
	if c.runs == 0 {
		return c
	}
	// Records hold finite numbers only, so that there is nothing to go wrong.
	c.stats, _ = stats.Summarize(p50)
	slices.Sort(p90)
	slices.Sort(p99)
	c.p90, c.p99 = p90[len(p90)/2], p99[len(p99)/2]
	if !c.perOp || thin || len(parts) < 2 {
		return c
	}
	if d, err := record.Merge(parts...); err == nil {
		c.p90, c.p99 = d.Percentile(90), d.Percentile(99)
	} else {
		c.unmerged = err.Error()
	}
	return c
}

// metric is what record.Merge needs of a value.
func (v *value) metric() record.Metric {
	m := record.Metric{Name: v.name, Unit: v.unit, Class: v.class, N: v.n, Min: v.min, Max: v.max, Mean: v.mean}
	if v.raw == nil {
		m.Samples = []float64{v.p50} // the only one
		return m
	}
	m.Samples, m.HDR, m.Resolution = v.raw.samples, v.raw.hdr, v.raw.resolution
	return m
}

// emptyCell is the cell of a row at a point where no row has a metric.
func (w *row) emptyCell() *cell {
	return &cell{row: w, missing: slices.ContainsFunc(w.samples, func(s sample) bool { return s.status == record.OK })}
}

// sections groups a run's rows.
func (u *run) sections() []*section {
	for _, w := range u.rows {
		w.settle()
	}
	var sections []*section
	byName := map[string]*section{}
	rows := map[*section][]*row{}
	for _, w := range u.rows {
		s := byName[w.workload]
		if s == nil {
			s = &section{workload: w.workload, thin: u.of.thin}
			byName[w.workload] = s
			sections = append(sections, s)
		}
		rows[s] = append(rows[s], w)
	}
	scope := u.rows
	for _, s := range sections {
		if u.header != nil && u.header.Defaults != nil {
			scope = rows[s]
		}
		u.labelRows(rows[s], scope)
		s.group(rows[s])
	}
	return sections
}

// group sorts a section's rows into points and compares them.
func (s *section) group(rows []*row) {
	values := map[string]map[string]bool{} // axis to its values
	for _, w := range rows {
		for k, v := range w.axes {
			if values[k] == nil {
				values[k] = map[string]bool{}
			}
			values[k][v] = true
		}
		if !slices.Contains(s.ranks, w.ranks) {
			s.ranks = append(s.ranks, w.ranks)
		}
	}
	slices.Sort(s.ranks)
	var varying []string
	for _, k := range slices.Sorted(maps.Keys(values)) {
		if len(values[k]) > 1 {
			varying = append(varying, k)
			continue
		}
		for v := range values[k] {
			s.common = append(s.common, record.KeyValue{Key: k, Value: v})
		}
	}
	byKey := map[string]*point{}
	var key strings.Builder
	for _, w := range rows {
		key.Reset()
		fmt.Fprintf(&key, "%d", w.ranks)
		for _, k := range varying {
			v, ok := w.axes[k]
			if n, number := parseNumber(v); number { // 1K is 1024
				v = strconv.FormatFloat(n, 'g', -1, 64)
			}
			fmt.Fprintf(&key, "\x00%t%s", ok, v)
		}
		p := byKey[key.String()]
		if p == nil {
			p = &point{thin: s.thin, axes: w.axes, ranks: w.ranks, title: pointTitle(w, varying, len(s.ranks) > 1)}
			byKey[key.String()] = p
			s.points = append(s.points, p)
		}
		p.rows = append(p.rows, w)
	}
	slices.SortStableFunc(s.points, func(a, b *point) int {
		for _, k := range varying {
			if c := compareNatural(a.axes[k], b.axes[k]); c != 0 {
				return c
			}
		}
		return a.ranks - b.ranks
	})
	s.compare()
}

// compare compares the rows of all points. Points share nothing, so all CPUs work.
func (s *section) compare() {
	const chunk = 256
	var wg sync.WaitGroup
	for points := range slices.Chunk(s.points, chunk) {
		wg.Go(func() {
			for _, p := range points {
				p.compare()
			}
		})
	}
	wg.Wait()
}

func pointTitle(w *row, varying []string, ranks bool) string {
	var parts []string
	for _, k := range varying {
		if v, ok := w.axes[k]; ok {
			parts = append(parts, k+"="+v)
		}
	}
	if ranks {
		parts = append(parts, "ranks="+strconv.Itoa(w.ranks))
	}
	return strings.Join(parts, " ")
}

// compare builds the point's metrics, finds the best floor of each, and points every cell to it.
func (p *point) compare() {
	slices.SortStableFunc(p.rows, compareRows)
	byName := map[string]*comparison{}
	gives := map[string]map[string]bool{} // which backends give a metric
	for _, w := range p.rows {
		for i := range w.samples {
			for _, v := range w.samples[i].values {
				if gives[v.name] == nil {
					gives[v.name] = map[string]bool{}
				}
				gives[v.name][w.backend] = true
				m := byName[v.name]
				if m == nil {
					m = &comparison{name: v.name, unit: v.unit, class: v.class}
					byName[v.name] = m
					p.metrics = append(p.metrics, m)
				}
				m.headline = m.headline || v.headline
			}
		}
	}
	shares := map[string]bool{} // which backends give one that another gives, too
	for _, by := range gives {
		if len(by) > 1 {
			maps.Copy(shares, by)
		}
	}
	for _, m := range p.metrics {
		best := map[string]*cell{}
		for _, w := range p.rows {
			c := w.cell(m.name, p.thin)
			m.cells = append(m.cells, c)
			// What one backend alone takes, beside what all do, is not missing from the others.
			if by := gives[m.name]; len(by) == 1 && !by[w.backend] && shares[w.backend] {
				c.missing, c.alien = false, true
			}
			if m.class == workloads.Number { // of a register count or a share neither more nor less is better by itself
				continue
			}
			if !IsFloor(w.backend) || w.imported != "" || w.status != record.OK || !w.checked || c.missing || c.runs == 0 {
				continue
			}
			if b := best[w.place]; b == nil || m.better(c.stats.Median, b.stats.Median) {
				best[w.place] = c
			}
		}
		for _, c := range m.cells {
			c.base = best[c.row.place]
			c.best = c.base == c
		}
	}
}

func (m *comparison) better(a, b float64) bool {
	if m.class == workloads.Time {
		return a < b
	}
	return a > b
}

// placeKey names the NIC and device of a row: rows of different places are not compared.
func (w *row) placeKey() string {
	var b strings.Builder
	b.WriteString(w.nic + "/" + w.device)
	for _, kv := range sortedKeys(w.nicConfig) {
		b.WriteString("\x00" + kv.Key + "=" + kv.Value)
	}
	return b.String()
}

func compareRows(a, b *row) int {
	rank := func(w *row) int {
		if i := slices.Index(floors, w.backend); i >= 0 {
			return i
		}
		return len(floors)
	}
	return cmp.Or(
		rank(a)-rank(b),
		cmp.Compare(a.backend, b.backend),
		compareMaps(a.config, b.config),
		cmp.Compare(a.nic, b.nic),
		cmp.Compare(a.device, b.device),
		compareMaps(a.nicConfig, b.nicConfig),
	)
}

func compareMaps(a, b map[string]string) int {
	keys := slices.Collect(maps.Keys(a))
	for k := range b {
		if _, ok := a[k]; !ok {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		if c := compareNatural(a[k], b[k]); c != 0 {
			return c
		}
	}
	return 0
}

// compareNatural orders numbers, with binary suffixes or not, by value and before words.
func compareNatural(a, b string) int {
	if a == b {
		return 0
	}
	x, okA := parseNumber(a)
	y, okB := parseNumber(b)
	switch {
	case okA && okB && x != y:
		return cmp.Compare(x, y)
	case okA != okB && okA:
		return -1
	case okA != okB:
		return 1
	}
	return cmp.Compare(a, b)
}

// parseNumber reads a number that may carry a binary suffix K, M or G.
func parseNumber(s string) (float64, bool) {
	scale := 1.0
	if n := len(s); n > 1 {
		switch s[n-1] {
		case 'K', 'k':
			scale = 1 << 10
		case 'M', 'm':
			scale = 1 << 20
		case 'G', 'g':
			scale = 1 << 30
		}
		if scale > 1 {
			s = s[:n-1]
		}
	}
	if s == "" || s[0] != '-' && s[0] != '+' && s[0] != '.' && (s[0] < '0' || s[0] > '9') {
		return 0, false // no "inf", "nan"
	}
	v, err := strconv.ParseFloat(s, 64)
	return v * scale, err == nil && !math.IsNaN(v)
}

// shown are the metrics that tables show: the headlines, or all if none is one.
func (p *point) shown() []*comparison {
	var out []*comparison
	for _, m := range p.metrics {
		if m.headline {
			out = append(out, m)
		}
	}
	if out == nil {
		return p.metrics
	}
	return out
}
