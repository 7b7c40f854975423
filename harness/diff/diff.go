// Package diff compares two sets of process runs, case by case, and says what became worse.
//
// Cases pair by their keys (record.Flatten without seed and index), so that a number only ever stands against
// one of the same work and configuration; --across KEY lets the cases of a pair differ in that key. States that
// change results by themselves (machine, GPU, driver, NIC kind and profile, device, loaded libraries, seed) must
// be alike, or the diff is refused, unless allowed.
//
// The first thing compared are the NIC counters declared exact, per message of the message list, by equality:
// they hold on the noisiest machine. One that grows is a regression of its own, and the likely cause of worse
// times beside it. Times, rates and bandwidths compare by statistics (package stats): one value per process run,
// Mann-Whitney, adjusted by Holm over all tests of the diff, so that a diff of like against like raises a false
// alarm with probability alpha at most. A regression is worse by more than a threshold and significant; what was
// ok and is not any more is one too.
package diff

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"

	"gic/harness/record"
	"gic/harness/report"
	"gic/harness/stats"
	"gic/workloads"
)

// Verdict is the outcome of a comparison.
type Verdict string

// The verdicts. Unclear is neither shown to be the same nor to differ.
const (
	Same         Verdict = "same"
	Better       Verdict = "better"
	Worse        Verdict = "worse"
	Unclear      Verdict = "unclear"
	Incomparable Verdict = "incomparable"
)

// MinRuns is the number of process runs per side below which no time, rate or bandwidth is judged.
const MinRuns = 4

// Exit statuses of a diff.
const (
	ExitOK         = 0
	ExitRegression = 1
	ExitNoPair     = 3
)

// Options say how to compare.
type Options struct {
	Across []Across
	// Allow lists state keys that may differ, or groups of them ("host"); "oversubscribed" judges the times of
	// oversubscribed rows, and "counter.NAME" accepts that this counter grows.
	Allow    []string
	AllowAll bool
	// Thresholds are relative changes by class (time, rate, bandwidth, counter) up to which all is the same.
	Thresholds map[string]float64
	Alpha      float64
	AllMetrics bool // judge all metrics, not only the headline ones

	dropped []Across // keys left out of the pairing
}

// DefaultThresholds are 5 % for what is timed, and nothing for exact counters.
func DefaultThresholds() map[string]float64 {
	return map[string]float64{"time": 0.05, "rate": 0.05, "bandwidth": 0.05, "counter": 0}
}

// Pair is one case on both sides; one of them may be absent.
type Pair struct {
	Old, New   *Case             // nil where absent
	Name       string            // the case in words, without keys that all cases share
	Differs    []record.KeyValue // keys in which the pair differs, as OLD -> NEW
	Counters   []Counter
	Metrics    []Metric
	Verdict    Verdict
	Regression bool
	// Cause is the likely cause of a change: an exact counter per message ("doorbells_per_message"), or the new
	// status of a case that was ok ("failed", "missing", ...); "" if none is known. Causes are all of them.
	Cause  string
	Causes []string
	Reason string // of a status that is not ok
	Notes  []int  // indices into Result.Notes

	old, new *caseSet
	claims   bool   // times may be judged
	doubts   []Note // found while comparing, not yet in Result.Notes
}

func (p *Pair) doubt(code, text string) { p.doubts = append(p.doubts, Note{Code: code, Text: text}) }

// Case is one side of a pair.
type Case struct {
	ID     string
	Keys   []record.KeyValue
	Status record.Status
	Reason string
	Runs   int // process runs
	// Imported names the file of a case that another tool measured; nil for one of ours.
	Imported *record.Import
}

// Counter is one NIC counter of a pair.
type Counter struct {
	Name             string // "doorbells_per_message"; "qps_used", which is not per message, keeps its name
	Exact            bool   // declared exact, and constant, on both sides
	Old, New         float64
	OldCount         uint64 // of one process run
	NewCount         uint64
	Verdict          Verdict
	Changed          bool
	Accepted         bool // grew, but that was allowed
	cost             bool
	rank             int
	oldSpan, newSpan [2]float64
}

// Metric is one metric of a pair.
type Metric struct {
	Name, Unit string
	Class      workloads.Class
	Headline   bool
	stats.Comparison
	NOld, NNew int
	Tested     bool    // a member of the family that Holm adjusts over
	Adjusted   float64 // p-value after Holm; 1 if not tested
	Verdict    Verdict
	Why        string // of a verdict that the numbers do not show
}

// Group is the geometric mean of new/old over the cases of a workload and backend.
type Group struct {
	Workload, Backend, Metric string
	Class                     workloads.Class
	Ratio                     float64
	Cases                     int
}

// Note is a doubt or a fact about some cases, or all.
type Note struct {
	Code, Text string
	Cases      int // 0: about the diff as a whole
}

// Result is a diff.
type Result struct {
	Old, New *Set
	Options  Options
	Shared   []record.KeyValue // keys that all cases have in common
	Pairs    []*Pair           // by workload, axes, backend and configuration
	Added    []*Pair           // cases that only NEW has
	Groups   []Group
	Notes    []Note
	Hints    []string // why cases found no partner
	Tests    int      // size of the family
	Paired   int      // pairs with two sides
}

// Compare makes the diff. It is an *UnlikeError if states differ that were not allowed to, an *AmbiguousError if
// a case has several partners.
func Compare(old, new *Set, o Options) (*Result, error) {
	if o.Thresholds == nil {
		o.Thresholds = DefaultThresholds()
	}
	if !(o.Alpha > 0 && o.Alpha < 1) {
		return nil, fmt.Errorf("alpha %v is not between 0 and 1", o.Alpha)
	}
	told := slices.Concat(old.complete(new), new.complete(old))
	if err := checkKeys(old, new, &o); err != nil {
		return nil, err
	}
	o.dropped = slices.Clone(o.Across)
	for _, k := range o.Allow {
		if identityState(k) {
			o.dropped = append(o.dropped, Across{Key: k})
		}
	}
	if o.AllowAll {
		o.dropped = append(o.dropped, Across{Key: "nic"}, Across{Key: "device"})
	}
	p, err := pair(old, new, &o)
	if err != nil {
		return nil, err
	}
	refused, allowed := unlikeMachines(old, new, &o)
	hints := append(apart(p), apartImported(p, &o)...)
	for _, u := range hints {
		if identityState(u.Key) {
			refused = append(refused, u)
		}
	}
	r2, a2 := unlikePairs(p.pairs, &o)
	refused, allowed = append(refused, r2...), append(allowed, a2...)
	if refused != nil {
		return nil, &UnlikeError{refused}
	}
	r := &Result{Old: old, New: new, Options: o, Paired: len(p.pairs)}
	r.fill(p)
	r.judge()
	r.collectNotes(allowed)
	r.completionNotes(told)
	for _, u := range hints {
		r.Hints = append(r.Hints, fmt.Sprintf("%s of the cases without a partner differ in %s only (%s in OLD, %s in NEW): --across %s pairs them",
			fmt.Sprint(u.Cases), u.Key, values(u.Old), values(u.New), u.Key))
	}
	r.groups()
	return r, nil
}

// fill turns the pairing into sorted pairs, with names and statuses.
func (r *Result) fill(p *pairing) {
	r.Pairs = p.pairs
	for _, k := range p.gone {
		r.Pairs = append(r.Pairs, &Pair{old: k, Reason: p.reasons[k]})
	}
	first := map[string]int{} // where a workload comes first: runs measure in shuffled order, but plan in a meaningful one
	for i, k := range r.Old.cases {
		if _, ok := first[k.workload]; !ok {
			first[k.workload] = i
		}
	}
	slices.SortStableFunc(r.Pairs, func(a, b *Pair) int {
		return cmp.Or(first[a.old.workload]-first[b.old.workload], compareKeys(a.old.keys, b.old.keys))
	})
	for _, k := range p.added {
		r.Added = append(r.Added, &Pair{new: k, Reason: p.reasons[k]})
	}
	all := slices.Concat(r.Pairs, r.Added)
	vary := r.varying(all)
	for _, p := range all {
		k := cmp.Or(p.old, p.new)
		if p.old != nil {
			p.Old = p.old.face()
		}
		if p.new != nil {
			p.New = p.new.face()
		}
		p.Name = k.name(vary) + p.mark()
		if p.old == nil || p.new == nil {
			continue
		}
		for _, kv := range p.old.keys {
			if p.unsaid(kv.Key) {
				continue
			}
			if v, ok := p.new.key(kv.Key); !ok || v != kv.Value {
				p.Differs = append(p.Differs, record.KeyValue{Key: kv.Key, Value: kv.Value + " -> " + cmp.Or(v, "none")})
			}
		}
		for _, kv := range p.new.keys {
			if _, ok := p.old.key(kv.Key); !ok && !p.unsaid(kv.Key) {
				p.Differs = append(p.Differs, record.KeyValue{Key: kv.Key, Value: "none -> " + kv.Value})
			}
		}
	}
}

// compareKeys orders cases of one workload by their keys, numbers by value.
func compareKeys(a, b []record.KeyValue) int {
	for i := range min(len(a), len(b)) {
		if c := cmp.Or(cmp.Compare(a[i].Key, b[i].Key), report.CompareNatural(a[i].Value, b[i].Value)); c != 0 {
			return c
		}
	}
	return len(a) - len(b)
}

func (k *caseSet) face() *Case {
	c := &Case{ID: k.id, Keys: k.keys, Runs: len(k.runs), Imported: k.source}
	c.Status, c.Reason = k.status()
	return c
}

// varying finds the keys that tell the cases of one workload or of one backend apart, by caseSet.scope. Those of
// the place that all cases share go to Shared.
func (r *Result) varying(all []*Pair) map[string]bool {
	first := map[string]string{}
	vary := map[string]bool{}
	add := func(k *caseSet) {
		if k == nil {
			return
		}
		for _, kv := range k.keys {
			if _, said := k.says(kv.Key); !said {
				continue
			}
			s := k.scope(kv.Key)
			if v, ok := first[s]; !ok {
				first[s] = kv.Value
			} else if v != kv.Value {
				vary[s] = true
			}
		}
	}
	for _, p := range all {
		add(p.old)
		add(p.new)
	}
	for _, a := range r.Options.dropped {
		for s := range vary {
			_, k, _ := strings.Cut(s, "\x00")
			if a.covers(k) && k != "backend" && k != "workload" {
				delete(vary, s)
			}
		}
	}
	for _, key := range []string{"device", "ranks"} {
		if v, ok := first["\x00"+key]; ok && !vary["\x00"+key] {
			r.Shared = append(r.Shared, record.KeyValue{Key: key, Value: v})
		}
	}
	for _, s := range slices.Sorted(maps.Keys(first)) {
		if key, ok := strings.CutPrefix(s, "\x00"); ok && strings.HasPrefix(key, "nic") && !vary[s] {
			r.Shared = append(r.Shared, record.KeyValue{Key: key, Value: first[s]})
		}
	}
	return vary
}

// judge compares all pairs, then adjusts and decides.
func (r *Result) judge() {
	// Pairs share nothing, so all CPUs compare.
	const chunk = 256
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for pairs := range slices.Chunk(r.Pairs, chunk) {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			for _, x := range pairs {
				if x.new != nil && r.comparable(x) {
					r.compareCounters(x)
					r.compareMetrics(x)
				}
			}
		})
	}
	wg.Wait()
	var tested []*Metric
	var p []float64
	for _, x := range r.Pairs {
		for _, n := range x.doubts {
			r.note(x, n.Code, n.Text)
		}
		for i := range x.Metrics {
			if m := &x.Metrics[i]; m.Tested {
				tested, p = append(tested, m), append(p, m.P)
			}
		}
	}
	r.Tests = len(tested)
	for i, q := range stats.Holm(p) {
		tested[i].Adjusted = q
	}
	for _, x := range r.Pairs {
		for i := range x.Metrics {
			r.decideMetric(&x.Metrics[i])
		}
		r.decide(x)
	}
}

// comparable settles pairs by their statuses; true if there are numbers to compare on both sides.
func (r *Result) comparable(p *Pair) bool {
	a, b := p.Old.Status, p.New.Status
	p.Reason = p.New.Reason
	switch {
	case a == record.OK && b == record.OK, a == record.Unsafe && b == record.Unsafe:
		return true
	case p.imported():
		p.Verdict, p.Reason = Incomparable, fmt.Sprintf("%s in OLD, %s in NEW, one of them imported: %s", a, b, cmp.Or(p.New.Reason, p.Old.Reason, "no reason given"))
	case a == record.OK:
		p.Verdict, p.Regression, p.Cause = Worse, true, string(b)
	case a == record.Skipped && b == record.Skipped:
		p.Verdict = Same
	case b == record.OK && a != record.Skipped && a != record.Unsafe:
		p.Verdict, p.Reason = Better, p.Old.Reason
	default:
		p.Verdict = Incomparable
		p.Reason = cmp.Or(p.New.Reason, p.Old.Reason)
	}
	if p.Cause != "" {
		p.Causes = []string{p.Cause}
	}
	return false
}

// decide gives a compared pair its verdict, and names the likely cause.
func (r *Result) decide(p *Pair) {
	if p.new == nil {
		p.Verdict, p.Reason = Incomparable, cmp.Or(p.Reason, "only OLD has this case")
		// What another tool measured cannot go missing, and another tool need not measure it.
		if p.Old.Status == record.OK && !p.old.imported && !r.New.foreign() {
			p.Verdict, p.Regression, p.Cause, p.Causes = Worse, true, "missing", []string{"missing"}
		}
		return
	}
	if p.Verdict != "" {
		return
	}
	count := map[Verdict]int{}
	for _, c := range p.Counters {
		if c.Exact && c.cost && !c.Accepted {
			count[c.Verdict]++
		}
	}
	judged := 0
	for _, m := range p.Metrics {
		if m.Headline || r.Options.AllMetrics {
			count[m.Verdict]++
			judged++
		}
	}
	switch {
	case count[Worse] > 0:
		p.Verdict, p.Regression = Worse, true
	case count[Better] > 0:
		p.Verdict = Better
	case count[Unclear] > 0:
		p.Verdict = Unclear
	case judged > 0 && count[Incomparable] == judged:
		p.Verdict = Incomparable
	default:
		p.Verdict = Same
	}
	p.blame(count)
}

// blame names the counters that changed along with the verdict: exact ones, those that explain its direction
// first; timed ones only where no exact one did.
func (p *Pair) blame(count map[Verdict]int) {
	if count[Worse] == 0 && count[Better] == 0 && !slices.ContainsFunc(p.Counters, func(c Counter) bool { return c.Exact && c.Changed }) {
		return
	}
	if p.Verdict == Worse && slices.ContainsFunc(p.Metrics, func(m Metric) bool { return m.Verdict == Worse && m.Why == missingMetric }) {
		p.Cause, p.Causes = "metric_missing", []string{"metric_missing"}
		return
	}
	list := slices.Clone(p.Counters)
	like := func(c Counter) int {
		switch {
		case c.Verdict == p.Verdict:
			return 0
		case c.Verdict == Worse || c.Verdict == Better:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(list, func(a, b Counter) int { return cmp.Or(like(a)-like(b), a.rank-b.rank) })
	for _, exact := range []bool{true, false} {
		for _, c := range list {
			if c.Changed && c.Exact == exact {
				p.Causes = append(p.Causes, c.Name)
			}
		}
		if p.Causes != nil {
			p.Cause = p.Causes[0]
			return
		}
	}
}

// groups makes the geometric means.
func (r *Result) groups() {
	type key struct{ workload, backend, metric string }
	ratios := map[key][]float64{}
	class := map[key]workloads.Class{}
	var order []key
	for _, p := range r.Pairs {
		for _, m := range p.Metrics {
			if !m.Headline || !(m.Delta > -1) || math.IsInf(m.Delta, 0) {
				continue
			}
			k := key{p.old.workload, p.old.backend, m.Name}
			if ratios[k] == nil {
				order = append(order, k)
				class[k] = m.Class
			}
			ratios[k] = append(ratios[k], 1+m.Delta)
		}
	}
	slices.SortFunc(order, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.workload, b.workload), cmp.Compare(a.metric, b.metric), cmp.Compare(a.backend, b.backend))
	})
	for _, k := range order {
		r.Groups = append(r.Groups, Group{k.workload, k.backend, k.metric, class[k], stats.Geomean(ratios[k]), len(ratios[k])})
	}
}

// Regressions are the pairs that make the diff fail.
func (r *Result) Regressions() []*Pair {
	var out []*Pair
	for _, p := range r.Pairs {
		if p.Regression {
			out = append(out, p)
		}
	}
	return out
}

// Exit is the exit status that the diff calls for.
func (r *Result) Exit() int {
	switch {
	case r.Paired == 0:
		return ExitNoPair
	case slices.ContainsFunc(r.Pairs, func(p *Pair) bool { return p.Regression }):
		return ExitRegression
	}
	return ExitOK
}

// Count is how many pairs have each verdict; pairs skipped on both sides are under "skipped".
func (r *Result) Count() map[string]int {
	out := map[string]int{}
	for _, p := range r.Pairs {
		if p.skipped() {
			out["skipped"]++
		} else {
			out[string(p.Verdict)]++
		}
	}
	return out
}

func (p *Pair) skipped() bool {
	return p.Old != nil && p.New != nil && p.Old.Status == record.Skipped && p.New.Status == record.Skipped
}
