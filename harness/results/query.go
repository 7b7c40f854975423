package results

import (
	"fmt"
	"slices"
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
	Metrics []*Grid  `json:"metrics"`
	Records int      `json:"records"`
	Bad     []string `json:"bad,omitempty"`
	Notes   []string `json:"notes,omitempty"`
}

// Grid is the table of a metric.
type Grid struct {
	Metric string          `json:"metric"`
	Unit   string          `json:"unit"`
	Class  workloads.Class `json:"class"`
	Rows   []string        `json:"row_keys"`
	Cols   []string        `json:"col_keys"`
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
	return a, q.layOut(a, entries, row)
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

// projectionKeys are the keys of a projection, without their orders.
func projectionKeys(p string) []string {
	var out []string
	depth := 0
	for part := range strings.FieldsFuncSeq(p, func(r rune) bool {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		}
		return depth == 0 && (r == ',' || r == ' ')
	}) {
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

// layOut fills the tables.
func (q *Query) layOut(a *Answer, entries []entry, row string) error {
	var parser benchproc.ProjectionParser
	filter, err := benchproc.NewFilter("*")
	if err != nil {
		return err
	}
	parse := func(what, text string) (*benchproc.Projection, error) {
		p, err := parser.Parse(text, filter)
		if err != nil {
			return nil, fmt.Errorf("projection %s %q: %s", what, text, oneLine(err.Error()))
		}
		return p, nil
	}
	rows, err := parse("row", row)
	if err != nil {
		return err
	}
	cols, err := parse("col", q.Col)
	if err != nil {
		return err
	}
	if _, err := parse("ignore", strings.Join(append(slices.Clone(never), q.Ignore), " ")); err != nil {
		return err
	}
	residue := parser.Residue()
	type at struct {
		metric   string
		row, col benchproc.Key
	}
	cells := map[at]*Cell{}
	grids := map[string]*Grid{}
	rowKeys, colKeys := map[string][]benchproc.Key{}, map[string][]benchproc.Key{}
	for _, e := range entries {
		res := result(e.kv)
		if ok, err := filter.Apply(res); err != nil || !ok {
			continue
		}
		rk, ck, rest := rows.Project(res), cols.Project(res), residue.Project(res)
		for _, m := range e.metrics {
			if len(q.Metrics) > 0 && !slices.Contains(q.Metrics, m.name) || len(q.Metrics) == 0 && !m.headline {
				continue
			}
			g := grids[m.name]
			if g == nil {
				g = &Grid{Metric: m.name, Unit: m.unit, Class: m.class}
				grids[m.name] = g
				a.Metrics = append(a.Metrics, g)
			}
			if g.Unit != m.unit {
				return fmt.Errorf("metric %s has unit %s and %s: no common table", m.name, g.Unit, m.unit)
			}
			key := at{m.name, rk, ck}
			c := cells[key]
			if c == nil {
				c = &Cell{Status: e.status}
				cells[key] = c
				rowKeys[m.name], colKeys[m.name] = append(rowKeys[m.name], rk), append(colKeys[m.name], ck)
			}
			if slices.Index(severity, e.status) > slices.Index(severity, c.Status) {
				c.Status = e.status
			}
			c.values = append(c.values, m.value)
			if !slices.Contains(c.keys, rest) {
				c.keys = append(c.keys, rest)
			}
		}
	}
	var mixed []benchproc.Key
	for _, g := range a.Metrics {
		rk, ck := unique(rowKeys[g.Metric]), unique(colKeys[g.Metric])
		benchproc.SortKeys(rk)
		benchproc.SortKeys(ck)
		g.Rows, g.RowValues = columns(rows, rk)
		g.Cols, g.ColValues = columns(cols, ck)
		for _, r := range rk {
			line := make([]*Cell, len(ck))
			for i, c := range ck {
				line[i] = cells[at{g.Metric, r, c}]
				if line[i] == nil {
					continue
				}
				if err := line[i].finish(); err != nil {
					return err
				}
				if len(line[i].keys) > 1 {
					mixed = append(mixed, line[i].keys...)
				}
			}
			g.Cells = append(g.Cells, line)
		}
		g.geomean()
	}
	if len(mixed) > 0 {
		var names []string
		for _, f := range benchproc.NonSingularFields(mixed) {
			names = append(names, f.Name)
		}
		slices.Sort(names)
		a.Notes = append(a.Notes, fmt.Sprintf("some cells mix different values of %s: put them into --row, --col or --ignore", strings.Join(names, ", ")))
	}
	return nil
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
