package attribution

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"gic/harness/record"
	"gic/harness/stats"
	"gic/workloads"
)

// Page is the method page; a finding's anchor is a heading of it.
const Page = "docs/attribution.md"

// Finding is one thing that makes a comparison weaker than it looks, with the rows that it is about.
type Finding struct {
	Code, Text string
	Rows       []*Row
}

// Anchor is where the method page explains the finding.
func (f Finding) Anchor() string { return Page + "#" + f.Code }

// check is one guideline.
type check struct {
	code string
	// run looks at all rows of a run at once.
	run func(rows []*Row) []Finding
}

// checks are the guidelines for a comparison, in the order of the method page. Each code is a heading there.
var checks = []check{
	{"unequal-queues", unequalQueues},
	{"created-not-asked", createdNotAsked},
	{"missing-clocks", missingClocks},
	{"loaded-without-carried", loadedWithoutCarried},
	{"connections-without-role", connectionsWithoutRole},
	{"warm-up", warmUp},
	{"few-runs", fewRuns},
}

// Lint checks the rows of a run against the guidelines. What it finds are notes; nothing is removed.
func (r *Run) Lint(keep func(*Row) bool) []Finding {
	rows := r.Rows
	if keep != nil {
		rows = slices.DeleteFunc(slices.Clone(rows), func(w *Row) bool { return !keep(w) })
	}
	var out []Finding
	for _, c := range checks {
		for _, f := range c.run(rows) {
			f.Code = c.code
			out = append(out, f)
		}
	}
	return out
}

// unequalQueues finds points at which a library and its floor have no row of equal queues.
func unequalQueues(rows []*Row) []Finding {
	var odd []*Row
	said := map[string]bool{}
	var pairs []string
	floorsAt := map[string][]*Row{}
	for _, o := range rows {
		if slices.Contains(Floors, o.Backend()) {
			floorsAt[o.place()] = append(floorsAt[o.place()], o)
		}
	}
	for _, w := range rows {
		if slices.Contains(Floors, w.Backend()) || w.Status() != record.OK {
			continue
		}
		var floors []*Row
		equal, key := false, ""
		for _, k := range resources {
			var here []*Row
			for _, o := range floorsAt[w.place()] {
				if o.SamePlace(w) && share(o, w) && amount(o, nil, k) != "" {
					here = append(here, o)
				}
			}
			if amount(w, nil, k) == "" || len(here) == 0 {
				continue
			}
			floors, key = here, k
			equal = slices.ContainsFunc(here, func(o *Row) bool { return amount(o, nil, k) == amount(w, nil, k) })
			break
		}
		if key == "" || equal {
			continue
		}
		odd = append(odd, w)
		text := fmt.Sprintf("%s with %s=%s against %s with %s=%s", w.Backend(), key, amount(w, nil, key), floors[0].Backend(), key, amount(floors[0], nil, key))
		if !said[text] {
			said[text] = true
			pairs = append(pairs, text)
		}
	}
	if odd == nil {
		return nil
	}
	return []Finding{{Text: "unequal resources on the two sides, and no floor row with equal ones: " + list(pairs, 3), Rows: odd}}
}

// share says whether two rows have a metric in common.
func share(a, b *Row) bool {
	return slices.ContainsFunc(a.Metrics(), func(m string) bool { return slices.Contains(b.Metrics(), m) })
}

// createdNotAsked finds rows whose configuration asks for another number than was created.
func createdNotAsked(rows []*Row) []Finding {
	var odd []*Row
	var what []string
	for _, w := range rows {
		c := w.First()
		for _, k := range []string{"qps", "rc", "dci", "rings", "workers", "contexts", "batch"} {
			asked, ok := c.Config[k]
			if !ok || asked == "auto" {
				continue
			}
			created := cmp.Or(c.Created[k+"_per_peer"], c.Created[k+"_per_pe"])
			if created == "" && k != "qps" { // created.qps counts all peers
				created = c.Created[k]
			}
			if created == "" {
				created = c.Config[k+"_created"]
			}
			if created != "" && created != asked {
				odd = append(odd, w)
				if text := fmt.Sprintf("%s asked for %s=%s, %s created", c.Backend, k, asked, created); !slices.Contains(what, text) {
					what = append(what, text)
				}
			}
		}
	}
	if odd == nil {
		return nil
	}
	return []Finding{{Text: "not what was asked for, but what was created is compared: " + list(what, 3), Rows: odd}}
}

// missingClocks finds rows that do not say at which clocks they were measured.
func missingClocks(rows []*Row) []Finding {
	var odd []*Row
	for _, w := range rows {
		if w.Status() != record.OK {
			continue
		}
		c := w.First()
		text, _ := c.Facts["clock"].(string)
		given := text != "" && text != "not given"
		for k, v := range c.Host {
			given = given || isClock(k) && v != nil
		}
		if !given {
			odd = append(odd, w)
		}
	}
	if odd == nil {
		return nil
	}
	return []Finding{{Text: fmt.Sprintf("%s without the clocks at which they were measured", plural(len(odd), "row")), Rows: odd}}
}

// isClock says whether a key of a record's host part is a clock.
func isClock(key string) bool {
	return strings.Contains(key, "clock") || strings.HasPrefix(key, "cpu_frequency")
}

// loadedWithoutCarried finds latencies under load without the traffic that was carried beside them.
func loadedWithoutCarried(rows []*Row) []Finding {
	var odd []*Row
	for _, w := range rows {
		c := w.First()
		loaded := c.Workload == "loaded"
		for k, v := range c.Axes {
			loaded = loaded || (k == "background" || k == "load") && v != "0" && v != "none"
		}
		if !loaded || w.Status() != record.OK {
			continue
		}
		latency, carried := false, false
		for _, m := range w.Metrics() {
			metric, _ := w.Metric(m)
			latency = latency || metric.Class == workloads.Time
			carried = carried || strings.HasPrefix(m, "carried") && metric.Class == workloads.Rate
		}
		if latency && !carried {
			odd = append(odd, w)
		}
	}
	if odd == nil {
		return nil
	}
	return []Finding{{Text: fmt.Sprintf("%s under load without the carried rate: a stack that carries less waits less", plural(len(odd), "latency")), Rows: odd}}
}

// connectionsWithoutRole finds rows over many connections that do not say who sends and who receives.
func connectionsWithoutRole(rows []*Row) []Finding {
	var odd []*Row
	for _, w := range rows {
		c := w.First()
		role, has := c.Axes["role"]
		if c.Workload == "connections" && w.Status() == record.OK && (!has || role == "" || role == "not given") {
			odd = append(odd, w)
		}
	}
	if odd == nil {
		return nil
	}
	return []Finding{{Text: fmt.Sprintf("%s over connections without the role (send, receive, both): limits differ tenfold by it", plural(len(odd), "row")), Rows: odd}}
}

// warmUp finds results that depend on the warm-up: rows that differ in its length alone, and first process runs that
// stand apart.
func warmUp(rows []*Row) []Finding {
	var out []Finding
	groups := map[string][]*Row{}
	var order []string
	var first []*Row
	for _, w := range rows {
		c := w.First()
		if w.Status() != record.OK {
			continue
		}
		if _, ok := c.Axes["warmup"]; ok {
			id := w.without("workload.warmup")
			if groups[id] == nil {
				order = append(order, id)
			}
			groups[id] = append(groups[id], w)
		}
		for _, metric := range w.Metrics() {
			var values []float64
			for _, c := range w.Cases {
				for _, m := range c.Metrics {
					if m.Name == metric && c.Status == record.OK {
						values = append(values, m.P50)
					}
				}
			}
			if stats.WarmUp(values) && !slices.Contains(first, w) {
				first = append(first, w)
			}
		}
	}
	for _, id := range order {
		g := groups[id]
		for _, metric := range g[0].Metrics() {
			low, high := g[0], g[0]
			least, most := math.Inf(1), math.Inf(-1)
			for _, w := range g {
				if q, ok := w.Time(metric); ok {
					if v := q.Value.Seconds(); v < least {
						least, low = v, w
					}
					if v := q.Value.Seconds(); v > most {
						most, high = v, w
					}
				}
			}
			if most > least*(1+tolerance) && least > 0 {
				out = append(out, Finding{Text: fmt.Sprintf("the warm-up alone changes %s of %s %.1f times (warmup=%s against %s)", metric,
					low.stack("workload.warmup"), most/least, high.First().Axes["warmup"], low.First().Axes["warmup"]), Rows: []*Row{low, high}})
			}
		}
	}
	if first != nil {
		out = append(out, Finding{Text: fmt.Sprintf("the first process run of %s stands apart from the others", plural(len(first), "row")), Rows: first})
	}
	return out
}

// fewRuns finds measured rows of too few process runs for an interval.
func fewRuns(rows []*Row) []Finding {
	var odd []*Row
	for _, w := range rows {
		ok := 0
		for _, c := range w.Cases {
			if c.Status == record.OK {
				ok++
			}
		}
		if !w.Imported() && ok > 0 && ok < 6 {
			odd = append(odd, w)
		}
	}
	if odd == nil {
		return nil
	}
	return []Finding{{Text: fmt.Sprintf("%s of fewer than 6 process runs: their intervals are hardly more than the range", plural(len(odd), "row")), Rows: odd}}
}

// list joins the first texts and says how many more there are.
func list(texts []string, most int) string {
	if len(texts) > most {
		return fmt.Sprintf("%s, and %d more", strings.Join(texts[:most], "; "), len(texts)-most)
	}
	return strings.Join(texts, "; ")
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if s, ok := strings.CutSuffix(what, "y"); ok {
		return fmt.Sprintf("%d %sies", n, s)
	}
	return fmt.Sprintf("%d %ss", n, what)
}
