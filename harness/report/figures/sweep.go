package figures

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"gic/harness/plot"
	"gic/harness/record"
	"gic/harness/report"
	"gic/workloads"
	"gic/workloads/goodput"
)

// SweepKind is the Kind of curves over a key.
const SweepKind = "Curves"

// kind is a figure of a metric over one key.
type kind struct {
	title    string
	key      string // as in record.Flatten
	class    workloads.Class
	workload string // "" for any
	not      []string
	x        plot.Axis
	y        plot.Scale
	knee     bool // mark the first X that reaches 90 % of the best
	optional bool // nothing is missing without it
}

var kinds = []kind{
	{title: "Latency against size", key: "workload.size", class: workloads.Time, not: []string{"goodput", "rate", "moe"},
		x: plot.Axis{Label: "message size, B", Scale: plot.Log2, Bytes: true}, y: plot.Log10},
	{title: "Latency against QPs", key: "backend.qps", class: workloads.Time, not: []string{"moe"}, optional: true,
		x: plot.Axis{Label: "QPs per peer", Scale: plot.Log2}, y: plot.Log10},
	{title: "Message rate against QPs", key: "backend.qps", class: workloads.Rate,
		x: plot.Axis{Label: "QPs per peer", Scale: plot.Log2}},
	{title: "Message rate against threads", key: "workload.threads", class: workloads.Rate,
		x: plot.Axis{Label: "threads", Scale: plot.Log2}},
	{title: "Message rate against batch", key: "backend.batch", class: workloads.Rate,
		x: plot.Axis{Label: "batch, WQEs per doorbell", Scale: plot.Log2}},
	{title: "Message rate against workers", key: "backend.workers", class: workloads.Rate, optional: true,
		x: plot.Axis{Label: "proxy workers", Scale: plot.Log2}},
	{title: "Message rate against size", key: "workload.size", class: workloads.Rate, optional: true,
		x: plot.Axis{Label: "message size, B", Scale: plot.Log2, Bytes: true}},
	{title: "Goodput over size", key: "workload.size", class: workloads.Bandwidth, workload: "goodput", knee: true,
		x: plot.Axis{Label: "message size, B", Scale: plot.Log2, Bytes: true}},
	{title: "All-to-all over size", key: "workload.bytes", class: workloads.Time, workload: "alltoall", optional: true,
		x: plot.Axis{Label: "bytes per pair, B", Scale: plot.Log2, Bytes: true}, y: plot.Log10},
	{title: "Bus bandwidth over size", key: "workload.bytes", class: workloads.Bandwidth, workload: "alltoall", optional: true,
		x: plot.Axis{Label: "bytes per pair, B", Scale: plot.Log2, Bytes: true}},
	{title: "MoE dispatch and combine by tokens", key: "workload.tokens", class: workloads.Time, workload: "moe",
		x: plot.Axis{Label: "tokens per rank", Scale: plot.Log2}, y: plot.Log10},
}

// effort are the quiet axes as keys: a curve may run over different values of them.
var effort = func() []string {
	var keys []string
	for _, k := range quiet {
		keys = append(keys, "workload."+k)
	}
	return keys
}()

// facet is what goes into one figure: one metric, all axes but the swept one equal.
type facet struct {
	workload, metric, base string
	axes                   []record.KeyValue
	curves                 []*curve
	byKey                  map[string]*curve
}

type curve struct {
	name   string          // set when drawn
	row    *report.RowView // the first
	points []curvePoint
}

type curvePoint struct {
	x    float64
	text string // of x
	cell *report.CellView
}

// sweep draws the figures of a kind.
func (s *Set) sweep(u *report.RunView, k kind) {
	facets := k.facets(u, effort)
	if slices.ContainsFunc(facets, (*facet).collides) {
		facets = k.facets(u, nil)
	}
	vary := varying(facets)
	figures, seen := 0, map[string]bool{}
	for _, f := range facets {
		for _, c := range f.curves {
			for _, p := range c.points {
				seen[p.text] = true
			}
		}
		f.curves = slices.DeleteFunc(f.curves, func(c *curve) bool { return len(c.points) < 2 })
		if len(f.curves) == 0 {
			continue
		}
		parts := slices.Collect(slices.Chunk(f.curves, plot.MaxSeries))
		for i, curves := range parts {
			figures++
			s.Add(k.draw(f, curves, vary, i, len(parts)))
		}
	}
	if figures > 0 || k.optional {
		return
	}
	name := k.key[strings.Index(k.key, ".")+1:]
	switch what := string(k.class); {
	case len(seen) == 0 && k.workload != "":
		s.missing(k.title, "no %s of %s was measured with a number for %s", what, k.workload, name)
	case len(seen) == 0:
		s.missing(k.title, "no %s was measured with a number for %s", what, name)
	case len(seen) == 1:
		s.missing(k.title, "all cases have %s=%s", name, first(seen))
	default:
		s.missing(k.title, "no case was measured at two values of %s with everything else equal", name)
	}
}

func first(m map[string]bool) string {
	for k := range m {
		return k
	}
	return ""
}

// facets groups the cells of a run. Of the keys, those in ignore do not separate.
func (k kind) facets(u *report.RunView, ignore []string) []*facet {
	var out []*facet
	byKey := map[string]*facet{}
	for si := range u.Sections {
		sec := &u.Sections[si]
		if k.workload != "" && sec.Workload != k.workload || slices.Contains(k.not, sec.Workload) {
			continue
		}
		for pi := range sec.Points {
			for mi := range sec.Points[pi].Metrics {
				m := &sec.Points[pi].Metrics[mi]
				if !m.Shown || m.Class != k.class {
					continue
				}
				for ci := range m.Cells {
					c := &m.Cells[ci]
					x, ok := report.ParseNumber(value(c.Row.Keys, k.key))
					if !drawn(c) || !ok || x <= 0 || math.IsInf(x, 0) {
						continue
					}
					k.place(c, x, sec.Workload, m, ignore, byKey, &out)
				}
			}
		}
	}
	for _, f := range out {
		for _, c := range f.curves {
			slices.SortStableFunc(c.points, func(a, b curvePoint) int { return cmp.Compare(a.x, b.x) })
		}
	}
	return out
}

// place puts a cell on the curve that it belongs to.
func (k kind) place(
	c *report.CellView, x float64, workload string, m *report.MetricView, ignore []string, byKey map[string]*facet, out *[]*facet,
) {
	facetKey, curveKey := workload+"\x00"+m.Name, ""
	var axes []record.KeyValue
	for _, kv := range c.Row.Keys {
		switch {
		case kv.Key == k.key || slices.Contains(ignore, kv.Key):
		case strings.HasPrefix(kv.Key, "workload."):
			axes = append(axes, kv)
			facetKey += "\x00" + kv.Key + "=" + kv.Value
		default:
			curveKey += "\x00" + kv.Key + "=" + kv.Value
		}
	}
	f := byKey[facetKey]
	if f == nil {
		f = &facet{workload: workload, metric: m.Name, base: m.Base, axes: axes, byKey: map[string]*curve{}}
		byKey[facetKey] = f
		*out = append(*out, f)
	}
	cv := f.byKey[curveKey]
	if cv == nil {
		cv = &curve{row: c.Row}
		f.byKey[curveKey] = cv
		f.curves = append(f.curves, cv)
	}
	cv.points = append(cv.points, curvePoint{x, value(c.Row.Keys, k.key), c})
}

// collides says that a curve has two values at one X.
func (f *facet) collides() bool {
	for _, c := range f.curves {
		for i := 1; i < len(c.points); i++ {
			if c.points[i].x == c.points[i-1].x {
				return true
			}
		}
	}
	return false
}

// varying are the axes that differ between facets: they belong into titles.
func varying(facets []*facet) map[string]bool {
	values := map[string]string{}
	vary := map[string]bool{}
	for _, f := range facets {
		for _, kv := range f.axes {
			if v, ok := values[kv.Key]; ok && v != kv.Value {
				vary[kv.Key] = true
			}
			values[kv.Key] = kv.Value
		}
	}
	return vary
}

// draw makes one figure of curves.
func (k kind) draw(f *facet, curves []*curve, vary map[string]bool, part, parts int) Figure {
	low, high := math.Inf(1), 0.0
	var ev evidence
	var rows []*report.RowView
	for _, c := range curves {
		rows = append(rows, c.row)
		for _, p := range c.points {
			low, high = min(low, p.cell.Median), max(high, p.cell.Median)
			ev.add(p.cell)
		}
	}
	unit, scale := report.Unit(k.class, f.base, low, high)
	var title, rest []record.KeyValue
	for _, kv := range f.axes {
		if vary[kv.Key] {
			title = append(title, kv)
		} else {
			rest = append(rest, kv)
		}
	}
	l := &plot.Lines{
		Title: report.Clean(strings.TrimSpace(fmt.Sprintf("%s: %s %s", k.title, f.metric, text(title)))),
		X:     k.x, Y: plot.Axis{Label: report.WithUnit(report.Clean(f.metric), unit), Scale: k.y, Zero: k.y == plot.Linear},
		Ring: "first size that reaches 90 % of its best",
	}
	if parts > 1 {
		l.Title += fmt.Sprintf(" (%d of %d)", part+1, parts)
	}
	list, common := names(rows, k.key)
	for i, c := range curves {
		c.name = list[i]
	}
	l.Note = report.Clean(ev.note(join(rest), common, ""))
	fig := Figure{
		ID: k.title + " " + f.metric + " " + text(title), Kind: SweepKind, Plot: l,
		Head: []string{"series", k.x.Label, report.WithUnit(f.metric, unit), "low", "high", "n"},
	}
	var said []string
	for _, c := range curves {
		s := plot.Series{Name: c.name}
		for _, p := range c.points {
			lo, hi := p.cell.Interval()
			s.Points = append(s.Points, plot.Point{X: p.x, Y: p.cell.Median / scale, Low: lo / scale, High: hi / scale})
			fig.Rows = append(fig.Rows, []string{
				c.name, p.text, report.Number(p.cell.Median / scale), report.Number(lo / scale), report.Number(hi / scale),
				fmt.Sprint(p.cell.N),
			})
		}
		if k.knee {
			if x, ok := c.knee(); ok {
				at := slices.IndexFunc(c.points, func(p curvePoint) bool { return p.x == x })
				s.Rings = []plot.Ring{{X: x, Y: s.Points[at].Y}}
				said = append(said, c.name+" at "+c.points[at].text)
			}
		}
		l.Series = append(l.Series, s)
	}
	fig.Text = fmt.Sprintf("%s, over %s, of %s.", report.WithUnit(f.metric, unit), k.x.Label, count(len(curves), "configuration"))
	if said != nil {
		fig.Text += " 90 % of the best: " + strings.Join(said, "; ") + "."
	}
	fig.Text = report.Clean(fig.Text)
	return fig
}

// knee is the first size at 90 % of the curve's best.
func (c *curve) knee() (float64, bool) {
	var pts []goodput.Point
	for _, p := range c.points {
		pts = append(pts, goodput.Point{Size: int(p.x), Goodput: p.cell.Median})
	}
	k, ok := goodput.Knee(pts, 0.9)
	return float64(k.Size), ok
}
