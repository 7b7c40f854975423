package attribution

import (
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
		return p, fmt.Errorf("%q is not BACKEND:KEY=VALUE,...", text)
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

func (p Pose) matches(w *Row) bool {
	if w.Backend() != p.Backend {
		return false
	}
	for k, v := range p.Config {
		if w.Config(k) != v {
			return false
		}
	}
	return true
}

// Floors are the backends that stand for a mechanism.
var Floors = []string{"minigda", "miniproxy"}

// Unsplit is a library row that has nothing to be measured against.
type Unsplit struct {
	Row    *Row
	Metric string
	Why    string
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
			start, notes, why := r.start(w, metric, floor, poses)
			if why != "" {
				unsplit = append(unsplit, Unsplit{w, metric, why})
				continue
			}
			gaps = append(gaps, &Gap{Run: r, Metric: metric, Row: w, Floor: start, Library: lib, Notes: notes})
		}
	}
	return gaps, unsplit
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

// resources are keys that say how much of something there is. Rows of unequal resources are compared only where
// there are no others.
var resources = []string{"qps", "workers"}

// start chooses the floor row that a split starts from: verified, of the same place, of the same resources, with
// the floor's own choices at their defaults; where no such row is there, the best of them. why says that there is
// none at all.
func (r *Run) start(w *Row, metric, floor string, poses []Pose) (start *Row, notes []Note, why string) {
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
		return nil, nil, fmt.Sprintf("no %s row with %s at this point, NIC and device", floor, metric)
	}
	for _, k := range resources {
		want := w.Config(k)
		if want == "" {
			continue
		}
		same := slices.DeleteFunc(slices.Clone(candidates), func(o *Row) bool { return o.Config(k) != want })
		if len(same) > 0 {
			candidates = same
		}
	}
	plain := slices.DeleteFunc(slices.Clone(candidates), func(o *Row) bool { return !r.atDefaults(o) })
	if len(plain) > 0 {
		start = fastest(plain, metric)
	} else {
		start = fastest(candidates, metric)
	}
	if best := fastest(candidates, metric); best != start {
		a, _ := best.Time(metric)
		b, _ := start.Time(metric)
		if a.Value < b.Value {
			notes = append(notes, Note{"faster_floor", fmt.Sprintf("%s is faster still (%s against %s): the split starts from the floor's defaults",
				best.Label(), micro(a.Value), micro(b.Value)), "ladder"})
		}
	}
	return start, notes, ""
}

// atDefaults says whether a row leaves every key that expresses a term at the backend's default.
func (r *Run) atDefaults(w *Row) bool {
	if r.Header == nil {
		return false
	}
	c := w.First()
	defaults := r.Header.Defaults[c.Backend]
	for k, v := range c.Config {
		if termOfKey(c.Backend, k) == "" {
			continue
		}
		if d, ok := defaults[k]; !ok || d != v {
			return false
		}
	}
	return defaults != nil
}

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
