package attribution

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gic/harness/record"
	"gic/workloads"
)

// Pose makes the rows of a floor with these keys a library: `minigda:order=threadfence,scope=all`. The floor's
// other rows then explain it, which is how the methods are tested on known costs.
type Pose struct {
	Backend string
	Config  map[string]string
}

// ParsePose reads BACKEND:KEY=VALUE,...
func ParsePose(text string) (Pose, error) {
	backend, rest, ok := strings.Cut(text, ":")
	p := Pose{Backend: backend, Config: map[string]string{}}
	if !ok || backend == "" || rest == "" {
		return p, fmt.Errorf("%q is not of the form BACKEND:KEY=VALUE", text)
	}
	for part := range strings.SplitSeq(rest, ",") {
		k, v, ok := strings.Cut(part, "=")
		if !ok || k == "" || v == "" {
			return p, fmt.Errorf("%q: %q is not KEY=VALUE", text, part)
		}
		p.Config[k] = v
	}
	return p, nil
}

// Poses says whether any row of the runs poses so.
func (p Pose) Poses(runs []*Run) bool {
	return slices.ContainsFunc(runs, func(r *Run) bool { return slices.ContainsFunc(r.Rows, p.matches) })
}

func (p Pose) matches(w *Row) bool {
	if w.Backend() != p.Backend {
		return false
	}
	for k, v := range p.Config {
		if w.Config(k) != v && w.First().Config[k] != v {
			return false
		}
	}
	return true
}

// Floors are the backends that stand for a mechanism: the GPU posts, a CPU proxy posts, or no NIC takes part.
var Floors = []string{"minigda", "miniproxy", "rawstore"}

// Unsplit is a library row that has nothing to be measured against.
type Unsplit struct {
	Row     *Row
	Library *Library // nil for a floor that poses
	Metric  string
	Why     string
}

// Gaps finds the library rows of a run and the floor row that each is measured against. keep says which rows are
// asked for; nil takes all.
func (r *Run) Gaps(libraries []*Library, poses []Pose, keep func(*Row) bool) (gaps []*Gap, unsplit []Unsplit) {
	for _, w := range r.Rows {
		if keep != nil && !keep(w) {
			continue
		}
		lib, floor, ok := identify(w, libraries, poses)
		if !ok {
			continue
		}
		for _, metric := range w.Metrics() {
			if _, ok := w.Time(metric); !ok || !additive(w, metric) {
				continue
			}
			if w.Status() != record.OK && !w.issueOnly(metric) {
				unsplit = append(unsplit, Unsplit{w, lib, metric, "the row is " + string(w.Status())})
				continue
			}
			start, notes, why := r.start(w, lib, metric, floor, poses)
			if why != "" {
				unsplit = append(unsplit, Unsplit{w, lib, metric, why})
				continue
			}
			gaps = append(gaps, &Gap{Run: r, Metric: metric, Row: w, Floor: start, Library: lib, Notes: notes})
		}
	}
	slices.SortStableFunc(gaps, func(a, b *Gap) int { return a.compare(b) })
	return gaps, unsplit
}

// compare orders gaps for people: single operations first, then by point, mechanism and library.
func (g *Gap) compare(o *Gap) int {
	rank := func(g *Gap) int {
		i := slices.Index([]string{"op", "rate", "goodput", "alltoall", "moe"}, g.Row.First().Workload)
		if i < 0 {
			return 9
		}
		return i
	}
	title := func(g *Gap) string {
		if g.Library == nil {
			return ""
		}
		return g.Library.Title
	}
	axes := func(g *Gap) string { return strings.Join(sorted(g.Row.First().Axes), " ") }
	return cmp.Or(rank(g)-rank(o), len(g.Row.First().Axes)-len(o.Row.First().Axes), strings.Compare(axes(g), axes(o)),
		slices.Compare(g.Row.where(), o.Row.where()), strings.Compare(g.Floor.Backend(), o.Floor.Backend()), strings.Compare(title(g), title(o)))
}

// identify says which library a row is of, and which floor stands beside it.
func identify(w *Row, libraries []*Library, poses []Pose) (lib *Library, floor string, ok bool) {
	for _, p := range poses {
		if p.matches(w) {
			return nil, p.Backend, true
		}
	}
	for _, l := range libraries {
		if l.Matches(w) {
			return l, l.Floor, true
		}
	}
	return nil, "", false
}

// additive says whether a metric is a time or a rate: what adds up. Percentiles do not.
func additive(w *Row, metric string) bool {
	m, ok := w.Metric(metric)
	return ok && (m.Class == workloads.Time || m.Class == workloads.Rate) && !strings.HasSuffix(metric, "_p99") && !strings.HasSuffix(metric, "_p90")
}

// resources are keys that say how much of something there is. Rows of unequal resources are not subtracted.
var resources = []string{"qps", "workers"}

// amount is how much of a resource a row has, "" if it does not say.
func amount(w *Row, lib *Library, key string) string {
	c := w.First()
	if lib != nil && lib.Resources[key] != "" && w.setting(lib.Resources[key]) != "" {
		key = lib.Resources[key]
	}
	for _, suffix := range []string{"_per_peer", "_per_pe"} {
		if v := c.Created[key+suffix]; v != "" {
			return v
		}
	}
	if v := w.Config(key); v != "auto" {
		return v
	}
	return ""
}

// start chooses the floor row that a split starts from: verified, of the same place, of the same resources, each of
// its choices the default or the library's own; of those, the one with most defaults, then the fastest. why says that
// there is none.
func (r *Run) start(w *Row, lib *Library, metric, floor string, poses []Pose) (start *Row, notes []Note, why string) {
	var candidates []*Row
	unsafe := 0
	for _, o := range r.Rows {
		if o.Backend() != floor || o == w || !o.SamePlace(w) || slices.ContainsFunc(poses, func(p Pose) bool { return p.matches(o) }) {
			continue
		}
		if _, ok := o.Time(metric); !ok {
			continue
		}
		if o.Status() != record.OK {
			unsafe++
			continue
		}
		candidates = append(candidates, o)
	}
	if len(candidates) == 0 {
		if unsafe > 0 {
			return nil, nil, fmt.Sprintf("every %s row at this point is unsafe or unverified", floor)
		}
		return nil, nil, fmt.Sprintf("no %s row at this point, NIC and device", floor)
	}
	for _, k := range resources {
		want, have := amount(w, lib, k), ""
		if want == "" {
			continue
		}
		candidates = slices.DeleteFunc(candidates, func(o *Row) bool {
			v := amount(o, nil, k)
			if v != "" {
				have = v
			}
			return v != "" && v != want
		})
		if len(candidates) == 0 {
			return nil, nil, fmt.Sprintf("no %s row with %s=%s (but %s)", floor, k, want, have)
		}
	}
	if lib == nil {
		candidates = likePose(candidates, w, poses)
	}
	odd := map[*Row]int{}
	candidates = slices.DeleteFunc(candidates, func(o *Row) bool {
		g := &Gap{Run: r, Metric: metric, Row: w, Floor: o, Library: lib}
		n, ok := g.oddKeys()
		odd[o] = n
		return !ok
	})
	if len(candidates) == 0 {
		return nil, nil, fmt.Sprintf("no %s row whose choices are the defaults or the library's", floor)
	}
	least := slices.MinFunc(candidates, func(a, b *Row) int { return odd[a] - odd[b] })
	plain := slices.DeleteFunc(slices.Clone(candidates), func(o *Row) bool { return odd[o] != odd[least] })
	start = fastest(plain, metric)
	if best := fastest(candidates, metric); best != start {
		a, _ := best.Time(metric)
		b, _ := start.Time(metric)
		if a.Value < b.Value {
			notes = append(notes, Note{"faster-floor", fmt.Sprintf("%s is faster still (%s against %s): the split starts from the floor's defaults",
				best.Label(), micro(a.Value), micro(b.Value)), "ladder"})
		}
	}
	return start, notes, ""
}

// likePose keeps the floor rows that are like a posing row in everything but what it poses with, if there are any.
func likePose(candidates []*Row, w *Row, poses []Pose) []*Row {
	i := slices.IndexFunc(poses, func(p Pose) bool { return p.matches(w) })
	if i < 0 {
		return candidates
	}
	keys := keysOf(append(slices.Clone(candidates), w), w.Backend())
	like := slices.DeleteFunc(slices.Clone(candidates), func(o *Row) bool {
		return slices.ContainsFunc(keys, func(k string) bool {
			_, posed := poses[i].Config[k]
			return !posed && o.Config(k) != w.Config(k)
		})
	})
	if len(like) == 0 {
		return candidates
	}
	return like
}

// defaults are the values of a backend's keys where nothing was asked, as the run's header tells them; nil where it does
// not: then no choice is taken for one.
func (r *Run) defaults(backend string) map[string]string {
	if r.Header == nil {
		return nil
	}
	return r.Header.Defaults[backend]
}

// base is the default of a key, with auto replaced by what it became.
func (r *Run) base(backend, key string) string {
	def := r.defaults(backend)[key]
	if def == "auto" {
		return r.auto(backend, key)
	}
	return def
}

// oddKeys counts the floor row's choices that are not its defaults. ok is false where one of them is not the library's
// choice either: such a row explains nothing.
func (g *Gap) oddKeys() (n int, ok bool) {
	c := g.Floor.First()
	defaults := g.Run.defaults(c.Backend)
	choices := g.choices()
	for k, v := range c.Config {
		def, known := defaults[k]
		if termOfKey(c.Backend, k) == "" || !known || v == def || slices.Contains(resources, k) {
			continue
		}
		if def == "auto" {
			if is := g.Run.auto(c.Backend, k); is == v || is == "" {
				if is == "" {
					n++
				}
				continue
			}
		}
		if v == notGiven {
			n++
			continue
		}
		i := slices.IndexFunc(choices, func(c Choice) bool { return c.Key == k })
		if i < 0 || choices[i].Value != g.Floor.Config(k) {
			return 0, false
		}
		n++
	}
	return n, true
}

// auto is what a key's auto became in the rows of a run; "" if no row says.
func (r *Run) auto(backend, key string) string {
	for _, w := range r.Rows {
		if c := w.First(); c.Backend == backend && c.Config[key] == "auto" {
			if v := w.Config(key); v != "auto" {
				return v
			}
		}
	}
	return ""
}

// notGiven stands in reference rows for a value that the publication does not say.
const notGiven = "not given"

func fastest(rows []*Row, metric string) *Row {
	return slices.MinFunc(rows, func(a, b *Row) int {
		x, _ := a.Time(metric)
		y, _ := b.Time(metric)
		switch {
		case x.Value != y.Value && x.Value < y.Value:
			return -1
		case x.Value != y.Value:
			return 1
		}
		return strings.Compare(a.Label(), b.Label())
	})
}

// micro prints a time in microseconds.
func micro(f Femto) string { return number(float64(f)/1e9) + " us" }

// keysOf are the configuration keys that tell rows of a backend apart.
func keysOf(rows []*Row, backend string) []string {
	keys := map[string]bool{}
	for _, w := range rows {
		c := w.First()
		if c.Backend != backend {
			continue
		}
		for k := range c.Config {
			keys[k] = true
		}
		if w.Run != nil && w.Run.Header != nil {
			for k := range w.Run.Header.Defaults[backend] {
				keys[k] = true
			}
		}
	}
	delete(keys, "inline_limit") // inline is what it decides
	return slices.Sorted(maps.Keys(keys))
}
