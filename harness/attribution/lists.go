package attribution

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gic/workloads"
)

// unsplit lists library rows without a floor, and what a row says within itself.
func (t *text) unsplit(a *Analysis) {
	if len(a.Unsplit) == 0 {
		return
	}
	type group struct{ name, why string }
	metrics, rows := map[group][]string{}, map[group][]*Row{}
	var order []group
	for _, u := range a.Unsplit {
		if _, ok := keyOfPublished(u.Row); ok {
			continue
		}
		g := group{u.name() + ", " + u.Row.Point(), u.Why}
		if metrics[g] == nil {
			order = append(order, g)
		}
		rows[g] = append(rows[g], u.Row)
		if !slices.Contains(metrics[g], u.Metric) {
			metrics[g] = append(metrics[g], u.Metric)
		}
	}
	if len(order) == 0 {
		return
	}
	t.line("")
	t.line("Library rows that nothing can be subtracted from:")
	for _, g := range order {
		name := g.name
		list := rows[g]
		slices.SortFunc(list, func(a, b *Row) int { return strings.Compare(a.key(), b.key()) })
		if n := len(slices.Compact(list)); n > 1 {
			name += fmt.Sprintf(" (%d rows)", n)
		}
		t.wrapped(fmt.Sprintf("%s: %s: %s", name, strings.Join(metrics[g], ", "), g.why), "  ", "      ")
	}
	for _, text := range within(a) {
		t.wrapped(text, "  ", "      ")
	}
}

// name is the library's title, or what the row says of itself.
func (u Unsplit) name() string {
	if u.Library != nil {
		return u.Library.Title
	}
	return u.Row.Label()
}

// keyOfPublished says whether a row is a difference or a fit, which stands among the effects.
func keyOfPublished(w *Row) (string, bool) {
	workload := w.First().Workload
	return workload, workload == effectWorkload || workload == clockWorkload
}

// within says what part of a time of a row is another time of it: what is issued of what is done.
func within(a *Analysis) []string {
	var out []string
	seen := map[*Row]bool{}
	for _, u := range a.Unsplit {
		if seen[u.Row] {
			continue
		}
		seen[u.Row] = true
		for _, name := range u.Row.Metrics() {
			whole, ok := strings.CutSuffix(name, "_issued")
			if !ok {
				continue
			}
			part, _ := u.Row.Time(name)
			if total, ok := u.Row.Time(whole); ok {
				out = append(out, fmt.Sprintf("%s: of %s us %s the last message is issued after %s us: %.0f %% of the time is not issue",
					u.Row.Label(), digits(float64(total.Value)/1e9), whole, digits(float64(part.Value)/1e9), 100*(1-float64(part.Value)/float64(total.Value))))
			}
		}
	}
	return out
}

// effects is what single choices change, by term: one line per stack, key and metric.
func (t *text) effects(a *Analysis) {
	if len(a.Effects) == 0 {
		return
	}
	t.line("")
	t.wrapped("What one choice changes, all else being equal: rows of one stack that differ in one key. Shares are of the first value. "+
		"Nothing of this is added to anything.", "", "")
	last := Name("")
	for i := 0; i < len(a.Effects); {
		e := a.Effects[i]
		if e.Term != last {
			t.line("  " + string(e.Term))
			last = e.Term
		}
		same := i + 1
		for same < len(a.Effects) && e.sameSeries(a.Effects[same]) {
			same++
		}
		t.wrapped(seriesText(a.Effects[i:same]), "    ", "        ")
		i = same
	}
}

func (e Effect) sameSeries(o Effect) bool {
	return e.Term == o.Term && e.Stack == o.Stack && e.Key == o.Key && e.Metric == o.Metric && e.FromWhat == o.FromWhat && e.FromWhat != ""
}

// seriesText is one stack over the values of a key.
func seriesText(list []Effect) string {
	e := list[0]
	if e.FromWhat == "" {
		text := fmt.Sprintf("%s, %s, %s: %s us", e.Stack, e.Metric, e.Change(), signedNumber(float64(e.Delta.Value)/1e9))
		if e.Note == "low" || e.Note == "high" {
			text += " (" + e.Note + " end of the published range)"
		}
		return text
	}
	unit, scale := unitOfClass(e)
	parts := []string{fmt.Sprintf("%s %s", e.FromWhat, digits(scale(e.From)))}
	for _, x := range list {
		r, _ := x.Relative()
		parts = append(parts, fmt.Sprintf("%s %s (%s)", x.ToWhat, digits(scale(x.To)), percent(r)))
	}
	text := fmt.Sprintf("%s, %s over %s, %s: %s", e.Stack, e.Metric, e.Key, unit, strings.Join(parts, ", "))
	if e.Note != "" {
		text += "; " + e.Note
	}
	return text
}

// unitOfClass is the unit in which people read a metric.
func unitOfClass(e Effect) (unit string, scale func(Quantity) float64) {
	switch e.Class {
	case workloads.Rate:
		return "M msg/s", func(q Quantity) float64 { return 1e9 / float64(q.Value) }
	case workloads.Bandwidth:
		return "GB/s", func(q Quantity) float64 { return 1e6 / float64(q.Value) }
	}
	if e.From.Value < 1e8 { // 100 ns
		return "ns", func(q Quantity) float64 { return float64(q.Value) / 1e6 }
	}
	return "us", func(q Quantity) float64 { return float64(q.Value) / 1e9 }
}

// digits prints four digits, as published tables do.
func digits(v float64) string {
	switch a := math.Abs(v); {
	case a >= 999.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 99.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func percent(r float64) string {
	if r >= 3 {
		return number(1+r) + "x"
	}
	return fmt.Sprintf("%+.0f%%", 100*r)
}

// costs is what one unit of work costs.
func (t *text) costs(a *Analysis) {
	if len(a.Costs) == 0 {
		return
	}
	t.line("")
	t.line("Unit costs of the floors, from this run:")
	rows := [][]string{{"unit", "us", "", "how"}}
	for _, c := range a.Costs {
		interval := ""
		if low, high, ok := c.Interval(); ok {
			interval = number(low*1e6) + ".." + number(high*1e6)
		}
		rows = append(rows, []string{c.Label(), number(float64(c.Value) / 1e9), interval, c.How})
	}
	t.table(rows, "lrll", "  ")
}

// findings are the guidelines that the comparison does not keep.
func (t *text) findings(a *Analysis) {
	if len(a.Findings) == 0 {
		return
	}
	t.line("")
	t.line("Before you compare:")
	for _, f := range a.Findings {
		t.wrapped(fmt.Sprintf("%s: %s (%s)", f.Code, f.Text, f.Anchor()), "  ", "      ")
	}
}
