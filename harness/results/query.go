package results

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchproc"

	"gic/harness/record"
	"gic/harness/stats"
	"gic/workloads"
)

// Query asks for metrics over the records of some runs, laid out by projections as benchstat has them: a list of
// keys, each with an order if wanted (key@num, key@alpha, key@(a b), which also filters).
type Query struct {
	Filter *Filter
	// Row, Col and Ignore are projections. Without Row, rows are told apart by the keys that vary among the
	// matching records and are neither in Col nor in Ignore; without Col there is one column.
	Row, Col, Ignore string
	Metrics          []string // names; empty: the headline metrics
	Stat             func(*record.Metric) float64
}

// never tell records of one cell apart: they are what a cell is made of.
var never = []string{"index", "run", "gic", "status", "suite", "launch"}

// Answer is one table per metric.
type Answer struct {
	Metrics []*Grid `json:"metrics"`
	Records int     `json:"records"`
	// Places are the NIC and device of the records, each once: "soft/host".
	Places []string `json:"places,omitempty"`
	Bad    []string `json:"bad,omitempty"`
	Notes  []string `json:"notes,omitempty"`
}

// Grid is the table of a metric.
type Grid struct {
	Metric string          `json:"metric"`
	Unit   string          `json:"unit"`
	Class  workloads.Class `json:"class"`
	// Alone: CUDA threads measured themselves in all of it, so that it is of hardware whatever the NIC is.
	Alone bool     `json:"alone,omitempty"`
	Rows  []string `json:"row_keys"`
	Cols  []string `json:"col_keys"`
	// RowValues and ColValues are the values of those keys, per row and per column.
	RowValues [][]string `json:"rows"`
	ColValues [][]string `json:"cols"`
	Cells     [][]*Cell  `json:"cells"` // by row and column; nil where there is no record
	Geomean   []float64  `json:"-"`     // per column, NaN where it makes no sense
}

// Cell is the process runs that fall into one row and column.
type Cell struct {
	N      int           `json:"n"`
	Median float64       `json:"median"`
	Low    *float64      `json:"low"` // of the 95 % interval; null with too few process runs
	High   *float64      `json:"high"`
	Status record.Status `json:"status"` // the worst

	values []float64
	keys   []benchproc.Key // what else is in it
}

// entry is a matching record, reduced.
type entry struct {
	kv      []record.KeyValue
	status  record.Status
	metrics []entryMetric
}

func (e *entry) key(name string) string {
	for _, kv := range e.kv {
		if kv.Key == name {
			return kv.Value
		}
	}
	return ""
}

type entryMetric struct {
	name, unit string
	class      workloads.Class
	headline   bool
	value      float64
}

// Ask reads the files and answers. A projection that cannot be read, and a key that no record has, are errors.
func (q *Query) Ask(files []string) (*Answer, error) {
	a := &Answer{}
	entries, err := q.read(files, a)
	if err != nil {
		return nil, err
	}
	if u := q.Filter.Unknown(); u != nil {
		return nil, fmt.Errorf("no record has the key %s of the filter; keys: %s", strings.Join(u, ", "), strings.Join(q.Filter.Known(), ", "))
	}
	a.Records = len(entries)
	if len(entries) == 0 {
		return a, nil
	}
	for _, p := range []string{q.Row, q.Col, q.Ignore} {
		if err := knownKeys(p, entries); err != nil {
			return nil, err
		}
	}
	row := q.Row
	if strings.TrimSpace(row) == "" {
		row = strings.Join(varyingKeys(entries, projectionKeys(q.Col), projectionKeys(q.Ignore)), ",")
	}
	inOrder := *q
	inOrder.Col = ordered(q.Col, entries)
	return a, inOrder.layOut(a, entries, ordered(row, entries))
}

// ordered gives the keys of a projection that have no order, and whose values are all numbers, that of numbers: runs
// measure in a shuffled order, which benchproc would keep.
func ordered(projection string, entries []entry) string {
	var out []string
	for _, part := range splitProjection(projection) {
		key := strings.Trim(part, `"`)
		numbers := !strings.Contains(part, "@")
		for i := range entries {
			if v := entries[i].key(key); numbers && v != "" {
				_, err := strconv.ParseFloat(v, 64)
				numbers = err == nil
			}
		}
		if numbers && key != ".config" {
			part += "@num"
		}
		out = append(out, part)
	}
	return strings.Join(out, ",")
}

func (q *Query) read(files []string, a *Answer) ([]entry, error) {
	intern := map[string]string{}
	own := func(s string) string {
		if t, ok := intern[s]; ok {
			return t
		}
		t := strings.Clone(s)
		intern[t] = t
		return t
	}
	var out []entry
	for _, file := range files {
		var header *record.Header
		for rec, err := range record.ReadFile(file) {
			if err != nil {
				return nil, err
			}
			switch rec := rec.(type) {
			case *record.Header:
				header = rec
			case *record.Bad:
				a.Bad = append(a.Bad, oneLine(rec.Error()))
			case *record.Case:
				kv := Keys(header, rec)
				if !q.Filter.Match(kv) {
					continue
				}
				for i := range kv {
					kv[i] = record.KeyValue{Key: own(kv[i].Key), Value: own(kv[i].Value)}
				}
				e := entry{kv: kv, status: record.Status(own(string(rec.Status)))}
				for i := range rec.Metrics {
					m := &rec.Metrics[i]
					e.metrics = append(e.metrics, entryMetric{own(m.Name), own(m.Unit), workloads.Class(own(string(m.Class))), m.Headline, q.Stat(m)})
				}
				out = append(out, e)
			}
		}
	}
	return out, nil
}

// splitProjection cuts a projection into its keys, each with its order.
func splitProjection(p string) []string {
	depth := 0
	return strings.FieldsFunc(p, func(r rune) bool {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		}
		return depth == 0 && (r == ',' || r == ' ')
	})
}

// projectionKeys are the keys of a projection, without their orders.
func projectionKeys(p string) []string {
	var out []string
	for _, part := range splitProjection(p) {
		key, _, _ := strings.Cut(part, "@")
		if key = strings.Trim(key, `"`); key != "" {
			out = append(out, key)
		}
	}
	return out
}

func knownKeys(projection string, entries []entry) error {
	for _, k := range projectionKeys(projection) {
		if k == ".config" {
			continue
		}
		known := map[string]bool{}
		for _, e := range entries {
			for _, kv := range e.kv {
				known[kv.Key] = true
			}
		}
		if !known[k] {
			var list []string
			for k := range known {
				list = append(list, k)
			}
			slices.Sort(list)
			return fmt.Errorf("no record has the key %q of the projection %q; keys: %s", k, projection, strings.Join(list, ", "))
		}
	}
	return nil
}

// varyingKeys lists the keys that are not the same in all records, but for those that are used otherwise.
func varyingKeys(entries []entry, used ...[]string) []string {
	skip := slices.Concat(append(used, never)...)
	var order []string
	first := map[string]string{}
	varies := map[string]bool{}
	for _, e := range entries {
		for _, kv := range e.kv {
			if v, ok := first[kv.Key]; !ok {
				first[kv.Key] = kv.Value
				order = append(order, kv.Key)
			} else if v != kv.Value {
				varies[kv.Key] = true
			}
		}
	}
	var out []string
	for _, k := range order {
		// A key that only some records have tells these from the others; the workload and backend do that already.
		if !slices.Contains(skip, k) && (varies[k] || k == "workload" || k == "backend") {
			out = append(out, k)
		}
	}
	return out
}

// layout is the projections of a query, and the cells that records fall into.
type layout struct {
	rows, cols, residue *benchproc.Projection
	filter              *benchproc.Filter // what the projections leave out
	cells               map[place]*Cell
	rowKeys, colKeys    map[string][]benchproc.Key // by metric
}

// place is where a cell stands.
type place struct {
	metric   string
	row, col benchproc.Key
}

func newLayout(row, col, ignore string) (*layout, error) {
	var parser benchproc.ProjectionParser
	l := &layout{cells: map[place]*Cell{}, rowKeys: map[string][]benchproc.Key{}, colKeys: map[string][]benchproc.Key{}}
	var err error
	if l.filter, err = benchproc.NewFilter("*"); err != nil {
		return nil, err
	}
	for _, x := range []struct {
		what, text string
		to         **benchproc.Projection
	}{{"row", row, &l.rows}, {"col", col, &l.cols}, {"ignore", strings.Join(append(slices.Clone(never), ignore), " "), new(*benchproc.Projection)}} {
		if *x.to, err = parser.Parse(x.text, l.filter); err != nil {
			return nil, fmt.Errorf("projection %s %q: %s", x.what, x.text, oneLine(err.Error()))
		}
	}
	l.residue = parser.Residue()
	return l, nil
}

// layOut fills the tables.
func (q *Query) layOut(a *Answer, entries []entry, row string) error {
	l, err := newLayout(row, q.Col, q.Ignore)
	if err != nil {
		return err
	}
	grids := map[string]*Grid{}
	for _, e := range entries {
		res := result(e.kv)
		if ok, err := l.filter.Apply(res); err != nil || !ok {
			continue
		}
		rk, ck, rest := l.rows.Project(res), l.cols.Project(res), l.residue.Project(res)
		workload, nic, device := e.key("workload"), e.key("nic"), e.key("device")
		if at := nic + "/" + device; len(e.metrics) > 0 && !slices.Contains(a.Places, at) {
			a.Places = append(a.Places, at)
		}
		for _, m := range e.metrics {
			if len(q.Metrics) > 0 && !slices.Contains(q.Metrics, m.name) || len(q.Metrics) == 0 && !m.headline {
				continue
			}
			g := grids[m.name]
			if g == nil {
				g = &Grid{Metric: m.name, Unit: m.unit, Class: m.class, Alone: true}
				grids[m.name] = g
				a.Metrics = append(a.Metrics, g)
			}
			if g.Unit != m.unit {
				return fmt.Errorf("metric %s has unit %s and %s: no common table", m.name, g.Unit, m.unit)
			}
			g.Alone = g.Alone && device == "cuda" && workloads.OnDevice(workload, m.name)
			l.add(place{m.name, rk, ck}, e.status, m.value, rest)
		}
	}
	var names []string
	for _, g := range a.Metrics {
		mixed, err := l.fill(g)
		if err != nil {
			return err
		}
		names = append(names, mixed...)
	}
	if len(names) > 0 {
		slices.Sort(names)
		names = slices.Compact(names)
		a.Notes = append(a.Notes, fmt.Sprintf("some cells mix different values of %s: put them into --row, --col or --ignore", strings.Join(names, ", ")))
	}
	return nil
}

// add puts one value into its cell; rest is what else its record is.
func (l *layout) add(at place, status record.Status, value float64, rest benchproc.Key) {
	c := l.cells[at]
	if c == nil {
		c = &Cell{Status: status}
		l.cells[at] = c
		l.rowKeys[at.metric], l.colKeys[at.metric] = append(l.rowKeys[at.metric], at.row), append(l.colKeys[at.metric], at.col)
	}
	if slices.Index(severity, status) > slices.Index(severity, c.Status) {
		c.Status = status
	}
	c.values = append(c.values, value)
	if !slices.Contains(c.keys, rest) {
		c.keys = append(c.keys, rest)
	}
}

// fill sorts the cells of a metric into its table, and returns the names of the keys of which one of them mixes values.
func (l *layout) fill(g *Grid) (mixed []string, err error) {
	rk, ck := unique(l.rowKeys[g.Metric]), unique(l.colKeys[g.Metric])
	benchproc.SortKeys(rk)
	benchproc.SortKeys(ck)
	g.Rows, g.RowValues = columns(l.rows, rk)
	g.Cols, g.ColValues = columns(l.cols, ck)
	for _, r := range rk {
		line := make([]*Cell, len(ck))
		for i, c := range ck {
			if line[i] = l.cells[place{g.Metric, r, c}]; line[i] == nil {
				continue
			}
			if err := line[i].finish(); err != nil {
				return nil, err
			}
			if len(line[i].keys) > 1 {
				for _, f := range benchproc.NonSingularFields(line[i].keys) {
					mixed = append(mixed, f.Name)
				}
			}
		}
		g.Cells = append(g.Cells, line)
	}
	g.geomean()
	return mixed, nil
}

func unique(keys []benchproc.Key) []benchproc.Key {
	seen := map[benchproc.Key]bool{}
	var out []benchproc.Key
	for _, k := range keys {
		if !seen[k] {
			seen[k] = true
			out = append(out, k)
		}
	}
	return out
}

// columns are the fields of a projection and their values in some keys.
func columns(p *benchproc.Projection, keys []benchproc.Key) (names []string, values [][]string) {
	fields := p.FlattenedFields()
	for _, f := range fields {
		names = append(names, f.Name)
	}
	for _, k := range keys {
		line := make([]string, len(fields))
		for i, f := range fields {
			line[i] = k.Get(f)
		}
		values = append(values, line)
	}
	return names, values
}

func (c *Cell) finish() error {
	s, err := stats.Summarize(c.values)
	if err != nil {
		return err
	}
	c.N, c.Median = s.N, s.Median
	if s.Bounded() {
		c.Low, c.High = &s.Low, &s.High
	}
	return nil
}

// geomean is over the rows that have a value in every column, so that columns can be compared.
func (g *Grid) geomean() {
	values := make([][]float64, len(g.ColValues))
	for _, line := range g.Cells {
		if slices.Contains(line, nil) {
			continue
		}
		for i, c := range line {
			values[i] = append(values[i], c.Median)
		}
	}
	for _, v := range values {
		g.Geomean = append(g.Geomean, stats.Geomean(v))
	}
}
