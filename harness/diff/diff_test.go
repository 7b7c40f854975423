package diff

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gic/harness/record"
	"gic/workloads"
)

// An axis that has another value than its default is another case; a key that no header tells pairs nothing.
func TestOnlyDefaultsAreTaken(t *testing.T) {
	for _, tc := range []struct {
		name     string
		defaults map[string]map[string]string
		value    string
		paired   int
	}{
		{"the default", map[string]map[string]string{"op": {"places": "1"}}, "1", 3},
		{"another value", map[string]map[string]string{"op": {"places": "1"}}, "8", 0},
		{"of another workload", map[string]map[string]string{"rate": {"places": "1"}}, "1", 0},
		{"nobody says", nil, "1", 0},
	} {
		dir := t.TempDir()
		a, b := newSynth("one", 1), newSynth("two", 2)
		b.header = func(h *record.Header) { h.AxisDefaults = tc.defaults }
		b.change = func(c *record.Case) bool { c.Axes["places"] = tc.value; return true }
		old, new := a.write(t, filepath.Join(dir, "a")), b.write(t, filepath.Join(dir, "b"))
		for i, sides := range [][2]string{{old, new}, {new, old}} { // whichever is the older one
			r, err := Compare(load(t, "OLD", sides[0]), load(t, "NEW", sides[1]), Options{Alpha: 0.05})
			if err != nil {
				t.Fatal(err)
			}
			if r.Paired != tc.paired {
				t.Errorf("%s, order %d: %d pairs, want %d", tc.name, i, r.Paired, tc.paired)
			}
		}
	}
}

// scenario is one change of NEW against OLD and what the diff must make of it.
type scenario struct {
	name    string
	old     func(t *testing.T, c *record.Case) bool
	new     func(t *testing.T, c *record.Case) bool
	header  func(h *record.Header) // of NEW
	repeat  int                    // 8 if 0
	options Options
	exit    int
	verdict Verdict // of the first case
	cause   string
	note    string // code that must be there
}

func first(c *record.Case) bool { return c.Axes["size"] == "8" }

// on changes the first case only.
func on(f func(t *testing.T, c *record.Case)) func(*testing.T, *record.Case) bool {
	return func(t *testing.T, c *record.Case) bool {
		if first(c) {
			f(t, c)
		}
		return true
	}
}

func status(s record.Status) func(*testing.T, *record.Case) bool {
	return on(func(_ *testing.T, c *record.Case) {
		c.Status, c.Reason, c.Metrics, c.Counters = s, "because of "+string(s), nil, nil
	})
}

func set(name string, v uint64) func(*testing.T, *record.Case) bool {
	return on(func(_ *testing.T, c *record.Case) { counter(c, name).Value = v })
}

func times(name string, by float64) func(*testing.T, *record.Case) bool {
	return on(func(t *testing.T, c *record.Case) { scale(t, c, name, by) })
}

// loss gives the first case a metric that is a share.
func loss(v float64) func(*testing.T, *record.Case) bool {
	return on(func(t *testing.T, c *record.Case) {
		m := metric(t, "loss", "1", workloads.Number, v)
		m.Headline = true
		c.Metrics = append(slices.Clone(c.Metrics), m)
	})
}

var scenarios = []scenario{
	{name: "the same", verdict: Unclear},
	{name: "axes and keys that came later", verdict: Unclear, note: "default",
		new: func(_ *testing.T, c *record.Case) bool {
			c.Axes["places"], c.Config["agent"] = "1", "auto"
			return true
		},
		header: func(h *record.Header) {
			h.AxisDefaults = map[string]map[string]string{"op": {"op": "put", "size": "64", "places": "1"}}
			h.Defaults = map[string]map[string]string{"minigda": {"qps": "1", "batch": "1", "agent": "auto"}}
		}},
	{name: "a counter grows", new: set("doorbells", 1000), exit: 1, verdict: Worse, cause: "doorbells_per_message"},
	{name: "a counter grows by one", new: set("cqes", 1001), exit: 1, verdict: Worse, cause: "cqes_per_message"},
	{name: "a counter grows on three process runs", new: set("wqes", 1001), repeat: 3, exit: 1, verdict: Worse, cause: "wqes_per_message"},
	{name: "bytes grow", new: set("payload_bytes", 8001), exit: 1, verdict: Worse, cause: "bytes_per_message"},
	{name: "a counter shrinks", new: set("doorbells", 1), verdict: Better, cause: "doorbells_per_message"},
	{name: "a counter may grow", new: set("doorbells", 1000), options: Options{Allow: []string{"counter.doorbells"}}, verdict: Unclear, cause: "doorbells_per_message"},
	{name: "a counter grows within the threshold", new: set("doorbells", 64),
		options: Options{Thresholds: map[string]float64{"time": 0.05, "rate": 0.05, "counter": 0.02}}, verdict: Unclear, cause: "doorbells_per_message"},
	{name: "another mix of WQEs is no regression", new: set("wqe_write_inline", 0), verdict: Unclear, cause: "wqe_write_inline_per_message"},
	{name: "a timed counter decides nothing", new: set("slot_waits", 1000000), verdict: Unclear},
	{name: "twice the messages, twice the doorbells", new: on(func(_ *testing.T, c *record.Case) {
		c.Messages = 2000
		for i := range c.Counters {
			c.Counters[i].Value *= 2
		}
		counter(c, "qps_used").Value /= 2 // resources are not work
	}), verdict: Unclear},
	{name: "an exact counter that varies", new: on(func(_ *testing.T, c *record.Case) { counter(c, "wqes").Value += uint64(c.Index) }),
		verdict: Unclear, note: "exact_varied"},
	{name: "time grows", new: times("rtt", 1.3), exit: 1, verdict: Worse},
	{name: "time shrinks", new: times("rtt", 0.7), verdict: Better},
	{name: "time grows with a counter", new: func(t *testing.T, c *record.Case) bool { set("doorbells", 500)(t, c); return times("rtt", 1.3)(t, c) },
		exit: 1, verdict: Worse, cause: "doorbells_per_message"},
	{name: "time grows within the threshold", new: times("rtt", 1.04), verdict: Unclear},
	{name: "time grows within a threshold of its own", new: times("rtt", 1.3),
		options: Options{Thresholds: map[string]float64{"time": 0.5, "rate": 0.05}}, verdict: Unclear},
	{name: "a rate falls", new: times("message_rate", 0.7), exit: 1, verdict: Worse},
	{name: "a rate rises", new: times("message_rate", 1.3), verdict: Better},
	{name: "a metric off the headline", new: times("one_way", 3), verdict: Unclear},
	{name: "a metric off the headline, asked for", new: times("one_way", 3), options: Options{AllMetrics: true}, exit: 1, verdict: Worse},
	{name: "three process runs are too few", new: times("rtt", 9), repeat: 3, verdict: Unclear, note: "few_runs"},
	{name: "four process runs are too few for six tests", new: times("rtt", 9), repeat: 4, verdict: Unclear, note: "few_runs_for_tests"},
	{name: "oversubscribed", new: on(func(t *testing.T, c *record.Case) { scale(t, c, "rtt", 9); c.Host["oversubscribed"] = true }),
		verdict: Unclear, note: "oversubscribed"},
	{name: "oversubscribed, asked for", new: on(func(t *testing.T, c *record.Case) { scale(t, c, "rtt", 9); c.Host["oversubscribed"] = true }),
		options: Options{Allow: []string{"oversubscribed"}}, exit: 1, verdict: Worse},
	{name: "a number grows: no direction of it is better", old: loss(0.1), new: loss(0.9), verdict: Unclear},
	{name: "a metric is gone", new: on(func(_ *testing.T, c *record.Case) { c.Metrics = c.Metrics[1:] }), exit: 1, verdict: Worse, cause: "metric_missing"},
	{name: "now failed", new: status(record.Failed), exit: 1, verdict: Worse, cause: "failed"},
	{name: "now timeout", new: status(record.Timeout), exit: 1, verdict: Worse, cause: "timeout"},
	{name: "now unverified", new: status(record.Unverified), exit: 1, verdict: Worse, cause: "unverified"},
	{name: "now skipped", new: status(record.Skipped), exit: 1, verdict: Worse, cause: "skipped"},
	{name: "now unsafe", new: status(record.Unsafe), exit: 1, verdict: Worse, cause: "unsafe"},
	{name: "one process run of eight failed", new: func(t *testing.T, c *record.Case) bool { return c.Index != 3 || status(record.Failed)(t, c) },
		exit: 1, verdict: Worse, cause: "failed"},
	{name: "now missing", new: func(_ *testing.T, c *record.Case) bool { return !first(c) }, exit: 1, verdict: Worse, cause: "missing"},
	{name: "skipped on both sides", old: status(record.Skipped), new: status(record.Skipped), verdict: Same},
	{name: "failed on both sides", old: status(record.Failed), new: status(record.Timeout), verdict: Incomparable},
	{name: "was skipped, is ok", old: status(record.Skipped), verdict: Incomparable},
	{name: "was failed, is ok", old: status(record.Failed), verdict: Better},
	{name: "was failed, is missing", old: status(record.Failed), new: func(_ *testing.T, c *record.Case) bool { return !first(c) }, verdict: Incomparable},
	{name: "not the same work", old: on(func(_ *testing.T, c *record.Case) { c.Facts = map[string]any{"routing_hash": "a"} }),
		new: on(func(t *testing.T, c *record.Case) {
			c.Facts = map[string]any{"routing_hash": "b"}
			scale(t, c, "rtt", 9)
		}),
		verdict: Incomparable, note: "other_work"},
	{name: "unequal resources", new: on(func(_ *testing.T, c *record.Case) { c.Created["qps"] = "9" }), verdict: Unclear, note: "unequal_resources"},
	{name: "a clock moved", new: on(func(_ *testing.T, c *record.Case) { c.Host["cpu_frequency_max"] = 2.0e9 }), verdict: Unclear, note: "clocks"},
	{name: "warm-up", new: on(func(t *testing.T, c *record.Case) {
		if c.Index == 0 {
			scale(t, c, "rtt", 3)
		}
	}), verdict: Unclear, note: "warm_up"},
	{name: "another environment", header: func(h *record.Header) { h.Env = map[string]string{"NCCL_DEBUG": "INFO"} }, verdict: Unclear, note: "environment"},
}

func TestScenarios(t *testing.T) {
	for _, tc := range scenarios {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			var paths [2]string
			for i, change := range []func(*testing.T, *record.Case) bool{tc.old, tc.new} {
				s := newSynth([]string{"one", "two"}[i], uint64(10+i))
				s.start = s.start.Add(time.Duration(i) * time.Hour)
				if tc.repeat > 0 {
					s.repeat = tc.repeat
				}
				if change != nil {
					s.change = func(c *record.Case) bool { return change(t, c) }
				}
				if i == 1 {
					s.header = tc.header
				}
				paths[i] = s.write(t, filepath.Join(dir, s.id))
			}
			tc.options.Alpha = 0.05
			r, err := Compare(load(t, "OLD", paths[0]), load(t, "NEW", paths[1]), tc.options)
			if err != nil {
				t.Fatal(err)
			}
			p := r.Pairs[0]
			if v, _ := p.old.key("workload.size"); v != "8" {
				t.Fatalf("the first pair is %s", p.Name)
			}
			// The two sides are independent noise of 1 %: same or unclear, by chance.
			verdict := p.Verdict
			if tc.verdict == Unclear && verdict == Same {
				verdict = Unclear
			}
			got := []any{r.Exit(), verdict, p.Cause}
			if diff := cmp.Diff([]any{tc.exit, tc.verdict, tc.cause}, got); diff != "" {
				t.Errorf("exit, verdict, cause (-want +got):\n%s", diff)
			}
			if tc.note != "" && !slices.ContainsFunc(r.Notes, func(n Note) bool { return n.Code == tc.note }) {
				t.Errorf("no note %s; there are %v", tc.note, r.Notes)
			}
			for _, x := range append(r.Pairs[1:], r.Added...) {
				if x.Regression {
					t.Errorf("%s was not changed, and is a regression: %s", x.Name, x.summary())
				}
			}
			for _, f := range Formats() {
				var b strings.Builder
				if err := r.Render(&b, f, 100); err != nil {
					t.Errorf("%s: %v", f, err)
				}
				if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") || strings.Contains(b.String(), "%!") {
					t.Errorf("%s shows what is no number:\n%s", f, b.String())
				}
			}
		})
	}
}

func TestAcross(t *testing.T) {
	dir := t.TempDir()
	batch := func(id string, values ...string) string {
		s := newSynth(id, 1)
		s.change = func(c *record.Case) bool {
			i := int(c.Axes["size"][0]) % len(values) // any split over the cases
			c.Config["batch"] = values[i]
			return true
		}
		return s.write(t, filepath.Join(dir, id))
	}
	sixteen, one, mixed := batch("sixteen", "16"), batch("one", "1"), batch("mixed", "1", "16")
	doubled := newSynth("doubled", 1)
	doubled.cases = 1
	both := doubled.write(t, filepath.Join(dir, "both"))
	two := newSynth("doubled2", 1)
	two.cases = 1
	two.change = func(c *record.Case) bool { c.Config["batch"] = "4"; return true }
	both2 := two.write(t, filepath.Join(dir, "both2"))
	diffOf := func(old, new []string, keys ...string) (*Result, error) {
		o := Options{Alpha: 0.05}
		for _, k := range keys {
			a, err := ParseAcross(k)
			if err != nil {
				t.Fatal(err)
			}
			o.Across = append(o.Across, a)
		}
		return Compare(load(t, "OLD", old...), load(t, "NEW", new...), o)
	}
	r, err := diffOf([]string{sixteen}, []string{one}, "backend.batch")
	if err != nil || r.Paired != 3 {
		t.Fatalf("across backend.batch: %v, want 3 pairs", err)
	}
	if want := []record.KeyValue{{Key: "backend.batch", Value: "16 -> 1"}}; !cmp.Equal(r.Pairs[0].Differs, want) {
		t.Errorf("the pair differs in %v, want %v", r.Pairs[0].Differs, want)
	}
	if r, err = diffOf([]string{sixteen}, []string{one}); err != nil || r.Exit() != ExitNoPair ||
		len(r.Hints) == 0 || !strings.Contains(r.Hints[0], "--across backend.batch") {
		t.Errorf("without across: %v, want exit 3 and a hint", err)
	}
	if r, err = diffOf([]string{mixed}, []string{one}, "backend.batch"); err != nil || r.Paired != 3 {
		t.Errorf("cases that are the same pair with each other: %v", err)
	}
	// Two partners: refused, unless the values are named.
	_, err = diffOf([]string{both, both2}, []string{batch("x", "8")}, "backend.batch")
	var ambiguous *AmbiguousError
	if !errors.As(err, &ambiguous) || !strings.Contains(err.Error(), "backend.batch=16 | backend.batch=4") {
		t.Errorf("two partners: %v", err)
	}
	// With two values named it takes a filter; what all cases of a side share is not said.
	e := &AmbiguousError{Case: "op on minigda", Keys: []string{"backend"}, Old: []string{"backend.batch=16", "backend.batch=4"}, New: []string{"backend=fake"}, Values: true}
	if got, want := e.Error(), "several cases differ from op on minigda in backend only: OLD has backend.batch=16 | backend.batch=4, NEW has backend=fake; "+
		"choose one of a side, as with --filter-old 'backend.batch:16'"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if r, err = diffOf([]string{both, both2}, []string{both, both2}, "backend.batch=16:4"); err != nil || r.Paired != 1 || r.Exit() != 0 {
		t.Errorf("named values: %v", err)
	}
	if _, err = diffOf([]string{both}, []string{both}, "backend.bach"); err == nil || !strings.Contains(err.Error(), "backend.batch") {
		t.Errorf("an unknown key: %v, want the known ones", err)
	}
	for _, bad := range []string{"", "=1:2", "backend.batch=1", "backend.batch=1:", "backend.batch=:1"} {
		if _, err := ParseAcross(bad); err == nil {
			t.Errorf("ParseAcross(%q) is no error", bad)
		}
	}
}

// resampled makes a set with the same cases whose process runs are drawn from those of s.
func resampled(s *Set, draw func(k *caseSet) (old, new []processRun)) (*Set, *Set) {
	var sides [2]*Set
	for i := range sides {
		sides[i] = &Set{Label: "side", runs: s.runs, byID: map[string]*caseSet{}}
	}
	for _, k := range s.cases {
		a, b := *k, *k
		a.runs, b.runs = draw(k)
		sides[0].cases, sides[1].cases = append(sides[0].cases, &a), append(sides[1].cases, &b)
	}
	return sides[0], sides[1]
}

// A set of runs against itself, resampled a thousand times, must raise no more alarms than alpha: no diff may call
// anything worse or better, at a threshold of 0, more often. Both without replacement (the process runs are dealt
// to two sides) and with (each side draws its own).
func TestFalseAlarms(t *testing.T) {
	s := newSynth("pool", 42)
	s.cases, s.repeat = 12, 16
	pool := load(t, "POOL", s.write(t, t.TempDir()))
	const diffs, alpha = 1000, 0.05
	for name, draw := range map[string]func(rng *rand.Rand, k *caseSet) (a, b []processRun){
		"dealt": func(rng *rand.Rand, k *caseSet) (a, b []processRun) {
			runs := slices.Clone(k.runs)
			rng.Shuffle(len(runs), func(i, j int) { runs[i], runs[j] = runs[j], runs[i] })
			return runs[:len(runs)/2], runs[len(runs)/2:]
		},
		"drawn": func(rng *rand.Rand, k *caseSet) (a, b []processRun) {
			for range len(k.runs) / 2 {
				a, b = append(a, k.runs[rng.IntN(len(k.runs))]), append(b, k.runs[rng.IntN(len(k.runs))])
			}
			return a, b
		},
	} {
		rng := rand.New(rand.NewPCG(1, 2))
		alarms, failed := 0, 0
		for range diffs {
			old, new := resampled(pool, func(k *caseSet) (a, b []processRun) { return draw(rng, k) })
			r, err := Compare(old, new, Options{Alpha: alpha, Thresholds: map[string]float64{"time": 0, "rate": 0, "bandwidth": 0}})
			if err != nil {
				t.Fatal(err)
			}
			if r.Tests != 24 {
				t.Fatalf("%d tests, want 24", r.Tests)
			}
			if slices.ContainsFunc(r.Pairs, func(p *Pair) bool { return p.Verdict == Worse || p.Verdict == Better }) {
				alarms++
			}
			if r.Exit() != 0 {
				failed++
			}
		}
		if alarms > alpha*diffs {
			t.Errorf("%s: %d of %d diffs of a set against itself raise an alarm, %d fail; want at most %g of them", name, alarms, diffs, failed, alpha)
		}
		if name == "dealt" && alarms == 0 {
			t.Errorf("%s: no alarm at all in %d diffs: the test has no power", name, diffs)
		}
	}
}
