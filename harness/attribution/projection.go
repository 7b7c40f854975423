package attribution

import (
	"fmt"
	"slices"
	"strings"

	"gic/harness/record"
)

// Projection is what the floor becomes with a library's choices at a point where the library itself was not measured:
// the explained part of a gap that nobody has measured.
type Projection struct {
	Library *Library
	Floor   *Row
	Metric  string
	Parts   []Part
	Missing []Choice
}

// Projections are made for libraries that have no row to split, at the floor's default rows of single operations.
func (r *Run) Projections(libraries []*Library, gaps []*Gap) []Projection {
	var out []Projection
	for _, l := range libraries {
		if len(l.Choices) == 0 || slices.ContainsFunc(gaps, func(g *Gap) bool { return g.Library == l }) {
			continue
		}
		for _, w := range r.Rows {
			c := w.First()
			if c.Backend != l.Floor || c.Workload != "op" || c.Axes["op"] != "put" || w.Status() != record.OK || !r.atDefaults(w) || c.Axes["cpu"] != "" {
				continue
			}
			for _, metric := range w.Metrics() {
				if !slices.Contains([]string{"issue", "put_completion"}, metric) {
					continue
				}
				twice := slices.ContainsFunc(out, func(p Projection) bool { return p.Library == l && p.Metric == metric })
				if p, ok := r.project(l, w, metric); ok && !twice {
					out = append(out, p)
				}
			}
		}
	}
	return out
}

// project takes the choices one at a time: the floor as if it were the library's row.
func (r *Run) project(l *Library, floor *Row, metric string) (Projection, bool) {
	g := &Gap{Run: r, Metric: metric, Row: floor, Floor: floor, Library: l}
	c := &climb{g: g, found: map[uint]*Row{}}
	for _, w := range r.Rows {
		if w.Backend() == floor.Backend() && w.SamePlace(floor) && w.Status() == record.OK {
			if _, ok := w.Time(metric); ok {
				c.rows = append(c.rows, w)
			}
		}
	}
	c.keys = keysOf(c.rows, floor.Backend())
	p := Projection{Library: l, Floor: floor, Metric: metric}
	for _, choice := range l.Choices {
		if !acts(choice.Workloads, choice.Metrics, g) || len(choice.When) > 0 || choice.Value == "" || floor.Config(choice.Key) == choice.Value {
			continue
		}
		c.toggles = append(c.toggles, choice)
	}
	s := &Split{Gap: g}
	c.chain(s)
	p.Parts, p.Missing = s.Parts, s.Missing
	return p, len(p.Parts) > 0
}

// atDefaults says whether a row leaves every key that expresses a term at the backend's default.
func (r *Run) atDefaults(w *Row) bool {
	g := &Gap{Run: r, Row: w, Floor: w}
	n, ok := g.oddKeys()
	return n == 0 && ok
}

// projections are floors with the choices of libraries that have no row here.
func (t *text) projections(a *Analysis) {
	if len(a.Projections) == 0 {
		return
	}
	t.line("")
	t.wrapped("Libraries without a row of single operations here: what their documented choices make of the floor:", "", "")
	for _, p := range a.Projections {
		q, _ := p.Floor.Time(p.Metric)
		parts := []string{"floor " + micro(q.Value)}
		sum := q
		for _, part := range p.Parts {
			sum = sum.Add(part.Quantity)
			parts = append(parts, fmt.Sprintf("%s (%s) %s", joinNames(part.Terms), part.What, signedMicro(part.Value)))
		}
		parts = append(parts, "together "+micro(sum.Value))
		for _, m := range p.Missing {
			parts = append(parts, fmt.Sprintf("no rung for %s (%s=%s)", termOfKey(p.Floor.Backend(), m.Key), m.Key, m.Value))
		}
		t.wrapped(fmt.Sprintf("%s, %s of %s: %s", p.Library.Title, p.Metric, p.Floor.Point(), strings.Join(parts, "; ")), "  ", "      ")
	}
}
