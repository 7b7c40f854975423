package diff

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"gic/harness/stats"
)

// note adds a note to a pair, one for all pairs that share its text; p may be nil.
func (r *Result) note(p *Pair, code, text string) {
	i := slices.IndexFunc(r.Notes, func(n Note) bool { return n.Code == code && n.Text == text })
	if i < 0 {
		i = len(r.Notes)
		r.Notes = append(r.Notes, Note{Code: code, Text: text})
	}
	if p != nil && !slices.Contains(p.Notes, i) {
		at, _ := slices.BinarySearch(p.Notes, i)
		p.Notes = slices.Insert(p.Notes, at, i)
		r.Notes[i].Cases++
	}
}

// clockTolerance is how far the clocks of two sides may be apart without a note.
const clockTolerance = 0.01

// collectNotes looks for reasons to doubt the verdicts.
func (r *Result) collectNotes(allowed []Unlike) {
	for _, p := range r.Pairs {
		if p.new == nil || p.Metrics == nil {
			continue
		}
		r.pairNotes(p)
	}
	r.importNotes()
	for _, u := range allowed {
		r.note(nil, "unlike", fmt.Sprintf("allowed to differ: %s is %s in OLD and %s in NEW", u.Key, values(u.Old), values(u.New)))
	}
	r.powerNote()
	r.orderNote()
	for _, s := range []*Set{r.Old, r.New} {
		if s.Repeated > 0 {
			r.note(nil, "repeated", fmt.Sprintf("%s: %s recorded again, the last counts (%s)", s.Label, plural(s.Repeated, "process run"), s.FirstRepeated))
		}
	}
	a, b := r.Old.environment(), r.New.environment()
	if r.Old.foreign() != r.New.foreign() { // another tool's file need not say it
		a, b = both(a, b), both(b, a)
	}
	if d := differences(a, b); d != "" {
		r.note(nil, "environment", "the environment differs: "+d)
	}
}

func (r *Result) pairNotes(p *Pair) {
	a, b := p.old.measured(), p.new.measured()
	if len(a) < MinRuns || len(b) < MinRuns {
		r.note(p, "few_runs", fmt.Sprintf("fewer than %d process runs on a side: times, rates and bandwidths are not judged", MinRuns))
	} else if !p.claims {
		r.note(p, "oversubscribed", "more threads than CPUs: times, rates and bandwidths are not judged (--allow oversubscribed does)")
	}
	if slices.Contains(p.old.codes, "clock_moved") || slices.Contains(p.new.codes, "clock_moved") {
		r.note(p, "clock_moved", "a clock moved during a measurement")
	}
	if x, y := meanClock(a), meanClock(b); x > 0 && y > 0 && math.Abs(y/x-1) > clockTolerance {
		r.note(p, "clocks", fmt.Sprintf("clocks differ by more than %g %% between the sides", clockTolerance*100))
	}
	if d := differences(p.old.created, p.new.created); d != "" && !p.imported() {
		r.note(p, "unequal_resources", "resources created differ (old/new): "+d)
	}
	for _, side := range []struct {
		label string
		k     *caseSet
		runs  []*processRun
	}{{r.Old.Label, p.old, a}, {r.New.Label, p.new, b}} {
		for i, m := range side.k.metrics {
			if m.headline && stats.WarmUp(column(side.runs, i)) {
				r.note(p, "warm_up", "the first process run stands apart from the others ("+side.label+"): warm-up?")
				break
			}
		}
	}
}

func meanClock(runs []*processRun) float64 {
	sum, n := 0.0, 0
	for _, x := range runs {
		if x.clock > 0 {
			sum += x.clock
			n++
		}
	}
	return sum / float64(max(n, 1))
}

// differences lists the keys of two maps whose values differ, as key a/b.
func differences(a, b map[string]string) string {
	keys := maps.Clone(a)
	if keys == nil {
		keys = map[string]string{}
	}
	maps.Copy(keys, b)
	var out []string
	const most = 6
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if a[k] == b[k] {
			continue
		}
		if len(out) == most {
			out = append(out, "...")
			break
		}
		show := func(m map[string]string) string {
			if v, ok := m[k]; ok {
				return fmt.Sprintf("%q", v)
			}
			return "unset"
		}
		out = append(out, k+" "+strings.ReplaceAll(show(a)+"/"+show(b), `"`, ""))
	}
	return strings.Join(out, ", ")
}

// both is the part of a whose keys b has too.
func both(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.DeleteFunc(out, func(k, _ string) bool { _, ok := b[k]; return !ok })
	return out
}

// environment is that of all runs of a side; a variable with several values has them all.
func (s *Set) environment() map[string]string {
	out := map[string]string{}
	for _, x := range s.runs {
		for k, v := range x.env {
			if old, ok := out[k]; ok && old != v {
				v = old + "|" + v
			}
			out[k] = v
		}
	}
	return out
}

// powerNote says when no difference at all could have been found.
func (r *Result) powerNote() {
	best := 1.0
	low := 0
	for _, p := range r.Pairs {
		for _, m := range p.Metrics {
			if m.Tested {
				best = min(best, stats.SmallestP(m.NOld, m.NNew))
				if low == 0 {
					low = min(m.NOld, m.NNew)
				}
				low = min(low, m.NOld, m.NNew)
			}
		}
	}
	if r.Tests == 0 {
		return
	}
	if best*float64(r.Tests) > r.Options.Alpha {
		r.note(nil, "few_runs_for_tests", fmt.Sprintf(
			"%s at alpha %g over the whole diff: with %s a side no difference, however clear, is significant; %d would do (or fewer cases, with --filter)",
			plural(r.Tests, "test"), r.Options.Alpha, plural(low, "process run"), stats.RunsNeeded(r.Tests, r.Options.Alpha)))
	}
}

// orderNote says when one side was measured wholly before the other.
func (r *Result) orderNote() {
	span := func(s *Set) (first, last int64) {
		first, last = math.MaxInt64, math.MinInt64
		for _, k := range s.cases {
			if k.imported {
				continue // files tell the time of day, if anything, not the order
			}
			for _, x := range k.measured() {
				first, last = min(first, x.start), max(last, x.start)
			}
		}
		return first, last
	}
	a0, a1 := span(r.Old)
	b0, b1 := span(r.New)
	if a0 <= a1 && b0 <= b1 && (a1 < b0 || b1 < a0) {
		r.note(nil, "not_interleaved", "one side was measured wholly before the other: what drifted in between looks like a change; alternating runs of both, each side a folder of runs, guard against it")
	}
}
