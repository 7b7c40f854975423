package attribution

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gic/harness/record"
	"gic/workloads"
)

// grid is a run in which every combination of n two-valued choices was measured, with random times, and a library
// above it.
func grid(t *testing.T, n int, rng *rand.Rand, leaveOut func(mask int) bool) (*Run, *Library, []float64) {
	t.Helper()
	keys := []string{"order", "sharing", "batch", "inline", "scope", "doorbell"}[:n]
	defaults := map[string]string{}
	lib := &Library{Name: "acme", Title: "Acme", Match: Match{Backend: "acme"}, Floor: "minigda"}
	for _, k := range keys {
		defaults[k] = "a"
		lib.Choices = append(lib.Choices, Choice{Key: k, Value: "b", Source: []string{"acme.c:1"}})
	}
	run := newRun()
	run.Header.Defaults = map[string]map[string]string{"minigda": defaults}
	row := func(backend string, config map[string]string, v float64) {
		m, err := record.FromSamples("issue", "s", workloads.Time, []float64{v})
		if err != nil {
			t.Fatal(err)
		}
		m.Headline = true
		c := &record.Case{Type: "case", Workload: "op", Axes: map[string]string{"op": "put"}, Backend: backend, Config: config, NIC: "soft", Device: "host",
			Ranks: 2, Status: record.OK, Metrics: []record.Metric{m}}
		c.ID = record.CaseID(c)
		run.Add(c)
	}
	times := make([]float64, 1<<n)
	for mask := range times {
		times[mask] = (1 + rng.Float64()) * 1e-6
		if leaveOut != nil && leaveOut(mask) {
			continue
		}
		config := map[string]string{}
		for i, k := range keys {
			config[k] = "a"
			if mask&(1<<i) != 0 {
				config[k] = "b"
			}
		}
		row("minigda", config, times[mask])
	}
	row("acme", map[string]string{}, (2+3*rng.Float64())*1e-6)
	return run, lib, times
}

// Whatever the times, whatever the order, however many combinations are missing: parts and residual sum to the gap
// exactly, a Shapley part is the mean over all orders, and the parts of a complete grid sum to its last rung.
func TestLadderProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for try := range 120 {
		n := 1 + try%6
		var out func(int) bool
		if try%3 == 2 {
			out = func(mask int) bool { return mask != 0 && rng.IntN(3) == 0 }
		}
		run, lib, times := grid(t, n, rng, out)
		gaps, _ := run.Gaps([]*Library{lib}, nil, nil)
		if len(gaps) != 1 {
			t.Fatalf("%d gaps, want 1", len(gaps))
		}
		order := make([]string, n)
		for i, c := range lib.Choices {
			order[i] = c.Key
		}
		rng.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, l := range []Ladder{{}, {Order: order}, {Order: order[:1]}} {
			s, err := l.Split(gaps[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Check(); err != nil {
				t.Error(err)
			}
			if len(s.Parts)+len(s.Missing) != n {
				t.Errorf("%d parts and %d missing rungs of %d choices", len(s.Parts), len(s.Missing), n)
			}
			for _, p := range s.Parts {
				if p.Spread != nil && (p.Value < p.Spread.Low-Femto(n) || p.Value > p.Spread.High+Femto(n)) {
					t.Errorf("part %v lies outside its spread %+v", p.Value, p.Spread)
				}
			}
			if out != nil {
				continue
			}
			sum := Femto(0)
			for _, p := range s.Parts {
				sum += p.Value
			}
			// A mean over orders is rounded to a femtosecond per combination.
			if want := ToFemto(times[len(times)-1]) - ToFemto(times[0]); abs(sum-want) > Femto(len(times)) {
				t.Errorf("parts sum to %v, the last rung is %v above the floor", sum, want)
			}
		}
		if out == nil {
			checkShapley(t, gaps[0], times, n)
		}
	}
}

func abs(f Femto) Femto { return max(f, -f) }

// checkShapley compares with the mean over all orders, walked one by one.
func checkShapley(t *testing.T, g *Gap, times []float64, n int) {
	t.Helper()
	s, err := Ladder{}.Split(g)
	if err != nil {
		t.Fatal(err)
	}
	keyOf := func(p Part) int {
		name, _, _ := strings.Cut(p.What, " ")
		return slices.Index([]string{"order", "sharing", "batch", "inline", "scope", "doorbell"}, name)
	}
	mean := make([]float64, n)
	orders := 0
	var walk func(mask int, done []int)
	walk = func(mask int, done []int) {
		if len(done) == n {
			orders++
			at := 0
			for _, i := range done {
				mean[i] += times[at|1<<i] - times[at]
				at |= 1 << i
			}
			return
		}
		for i := range n {
			if mask&(1<<i) == 0 {
				walk(mask|1<<i, append(done, i))
			}
		}
	}
	walk(0, nil)
	for _, p := range s.Parts {
		i := keyOf(p)
		if want := mean[i] / float64(orders); math.Abs(p.Value.Seconds()-want) > 1e-13 {
			t.Errorf("%s: %g s, the mean over %d orders is %g", p.What, p.Value.Seconds(), orders, want)
		}
	}
}

// acme is a library whose own keys are the floor's.
func acme() *Library {
	l := &Library{Name: "acme", Title: "Acme", Match: Match{Backend: "acme"}, Floor: "minigda"}
	for _, k := range []string{"order", "sharing", "scope"} {
		l.Choices = append(l.Choices, Choice{Key: k, From: k, Source: []string{"acme.c:1"}})
	}
	return l
}

// An additive machine gives every choice its cost in every order, and no spread.
func TestLadderOfAnAdditiveMachine(t *testing.T) {
	run := newRun(floorRows(t, 1, 0)...)
	op := map[string]string{"op": "put", "size": "8"}
	for _, c := range synthetic(t, "acme", "op", op, map[string]string{"order": "sys-release", "sharing": "handoff", "scope": "all", "qps": "16", "plant": "delay"}, 1, 0) {
		run.Add(c)
	}
	lib := acme()
	gaps, unsplit := run.Gaps([]*Library{lib}, nil, nil)
	if len(gaps) != 3 || len(unsplit) != 0 {
		t.Fatalf("%d gaps, %v not split", len(gaps), unsplit)
	}
	for _, order := range [][]string{nil, {"ordering", "queue-sharing", "completion-scope"}, {"scope", "sharing", "order"}} {
		for _, g := range gaps {
			s, err := Ladder{Order: order}.Split(g)
			if err != nil {
				t.Fatal(err)
			}
			want := map[Name]float64{Ordering: 1670, QueueSharing: 400, CompletionScope: 0, Residual: plantDelay}
			switch g.Metric {
			case "put_completion":
				want[CompletionScope] = 15 * pollCost
			case "rtt":
				want = map[Name]float64{Ordering: 2 * 1670, QueueSharing: 800, CompletionScope: 0, Residual: 2 * plantDelay}
			}
			got := map[Name]float64{Residual: s.Residual.Value.Seconds() * 1e9}
			for _, p := range s.Parts {
				got[p.Terms[0]] += p.Value.Seconds() * 1e9
				if p.Spread != nil && abs(p.Spread.High-p.Spread.Low) > 5 {
					t.Errorf("%s of %s depends on the order: %+v", p.Terms[0], g.Metric, p.Spread)
				}
			}
			for name, v := range want {
				if math.Abs(got[name]-v) > 1e-3 {
					t.Errorf("%s, order %v: %s is %g ns, want %g", g.Metric, order, name, got[name], v)
				}
			}
		}
	}
}

// Where choices interact, the spread over the orders is what they take from each other.
func TestLadderShowsInteraction(t *testing.T) {
	run := newRun(floorRows(t, 1, 0)...)
	op := map[string]string{"op": "put", "size": "8"}
	for _, c := range synthetic(t, "acme", "op", op, map[string]string{"order": "threadfence", "sharing": "lock"}, 1, 0) {
		run.Add(c)
	}
	lib := acme()
	gaps, _ := run.Gaps([]*Library{lib}, nil, nil)
	s, err := Ladder{}.Split(gaps[0])
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(s.Residual.Value.Seconds()*1e9, " ")
	for _, p := range s.Parts {
		got += fmt.Sprintf("%s %.0f (%.0f..%.0f) ", p.Terms[0], p.Value.Seconds()*1e9, p.Spread.Low.Seconds()*1e9, p.Spread.High.Seconds()*1e9)
	}
	if want := "0 ordering 445 (370..520) queue-sharing 165 (90..240) "; got != want {
		t.Errorf("got %q, want %q: half of the hidden 150 ns each", got, want)
	}
}

// Rows of unequal resources, of another place, unsafe ones, and floors whose own choices nobody makes explain nothing.
func TestFloorIsOfTheSameKind(t *testing.T) {
	op := map[string]string{"op": "put", "size": "8"}
	lib := acme()
	library := synthetic(t, "acme", "op", op, map[string]string{"qps": "4"}, 1, 0)
	for _, tt := range []struct {
		name   string
		floor  map[string]string
		change func(c *record.Case)
		want   string
	}{
		{"queues", map[string]string{"qps": "1"}, nil, "no minigda row with qps=4 (but 1)"},
		{"created queues", map[string]string{"qps": "4"}, func(c *record.Case) { c.Created = map[string]string{"qps_per_peer": "2"} }, "no minigda row with qps=4 (but 2)"},
		{"nic", map[string]string{"qps": "4"}, func(c *record.Case) { c.NIC = "mlx5" }, "no minigda row at this point"},
		{"ranks", map[string]string{"qps": "4"}, func(c *record.Case) { c.Ranks = 3 }, "no minigda row at this point"},
		{"size", map[string]string{"qps": "4"}, func(c *record.Case) { c.Axes = map[string]string{"op": "put", "size": "16"} }, "no minigda row at this point"},
		{"unsafe", map[string]string{"qps": "4"}, func(c *record.Case) { c.Status, c.Reason = record.Unsafe, "x" }, "every minigda row at this point is unsafe"},
		{"choice", map[string]string{"qps": "4", "sharing": "handoff"}, nil, "no minigda row whose choices are the defaults or the library's"},
		{"fine", map[string]string{"qps": "4"}, nil, ""},
	} {
		floor := synthetic(t, "minigda", "op", op, tt.floor, 1, 0)
		if tt.change != nil {
			tt.change(floor[0])
		}
		_, unsplit := newRun(library, floor).Gaps([]*Library{lib}, nil, nil)
		if tt.want == "" {
			if len(unsplit) != 0 {
				t.Errorf("%s: %v not split", tt.name, unsplit)
			}
			continue
		}
		if len(unsplit) != 3 || !strings.Contains(unsplit[0].Why, tt.want) {
			t.Errorf("%s: %+v, want %q", tt.name, unsplit, tt.want)
		}
	}
}

// A floor row that asks for what auto is, too, is at the default.
func TestAutoIsADefault(t *testing.T) {
	op := map[string]string{"op": "put", "size": "8"}
	lib := &Library{Name: "acme", Title: "Acme", Match: Match{Backend: "acme"}, Floor: "minigda",
		Choices: []Choice{{Key: "order", Value: "sys-release", Source: []string{"acme.c:1"}}}}
	asked := synthetic(t, "minigda", "op", op, map[string]string{"order": "gpu-fence"}, 1, 0)
	auto := synthetic(t, "minigda", "op", op, map[string]string{"order": "auto", "batch": "16"}, 1, 0)
	auto[0].Created = map[string]string{"order": "gpu-fence"}
	run := newRun(synthetic(t, "acme", "op", op, map[string]string{"order": "sys-release"}, 1, 0), asked, auto)
	run.Header.Defaults["minigda"]["order"] = "auto"
	gaps, unsplit := run.Gaps([]*Library{lib}, nil, nil)
	if len(unsplit) > 0 || len(gaps) != 3 || gaps[0].Floor.Cases[0] != asked[0] {
		t.Errorf("%d gaps, %+v not split; want the row that asks for gpu-fence as the start", len(gaps), unsplit)
	}
}

// A choice takes its value from the library's own key, depends on what was created, is undone by the library's own keys,
// and a resource has the library's own name.
func TestLibraryKeys(t *testing.T) {
	op := map[string]string{"op": "put", "size": "8"}
	lib, err := ParseLibrary("acme.yaml", []byte(`
name: acme
title: Acme
match: {backend: acme, config: {path: [direct]}}
floor: minigda
resources: {qps: rc}
terms: {level: queue-management}
choices:
  - {key: order, value: sys-release, when: {queues: host}, source: [a]}
  - {key: order, value: threadfence, source: [a]}
  - {key: sharing, from: mode, value: lock, source: [a]}
  - {key: scope, value: all, when: {quiet: "*"}, undone: {quiet: own}, source: [a]}
`))
	if err != nil {
		t.Fatal(err)
	}
	// The library's times are those of the floor with the same choices, by hand.
	row := func(config, created map[string]string, like map[string]string) []*record.Case {
		c := synthetic(t, "acme", "op", op, like, 1, 0)
		c[0].Config, c[0].Created = config, created
		c[0].ID = record.CaseID(c[0])
		return c
	}
	all := row(map[string]string{"path": "direct", "rc": "4", "mode": "handoff", "quiet": "all"}, map[string]string{"queues": "host", "rc_per_pe": "4"},
		map[string]string{"order": "sys-release", "sharing": "handoff", "scope": "all", "qps": "4"})
	own := row(map[string]string{"path": "direct", "rc": "4", "mode": "handoff", "quiet": "own"}, map[string]string{"queues": "host", "rc_per_pe": "4"},
		map[string]string{"order": "sys-release", "sharing": "handoff", "scope": "qp", "qps": "4"})
	other := row(map[string]string{"path": "proxy", "rc": "4"}, nil, map[string]string{"qps": "4"})
	run := newRun(append(floorRows(t, 1, 0), all, own, other)...)
	a, err := Analyse(run, Options{Libraries: []*Library{lib}})
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Judgements) != 6 || len(a.Unsplit) != 0 {
		t.Fatalf("%d gaps, %+v not split; want those of two rows", len(a.Judgements), a.Unsplit)
	}
	for _, j := range a.Judgements {
		s := j.Ladder()
		if j.Gap.Floor.Config("qps") != "4" {
			t.Errorf("the floor has qps=%s, the library 4", j.Gap.Floor.Config("qps"))
		}
		if j.Gap.Metric != "put_completion" || j.Gap.Row.Config("quiet") != "all" {
			continue
		}
		got := map[Name]float64{}
		for _, p := range s.Parts {
			got[p.Terms[0]] = math.Round(p.Value.Seconds() * 1e9)
			if p.Terms[0] == CompletionScope && (p.Spread == nil || !strings.Contains(p.Spread.Of, "swapped in the library (to quiet=own")) {
				t.Errorf("completion scope does not say what it is in the library: %+v", p.Spread)
			}
		}
		if got[Ordering] != 1670 || got[QueueSharing] != 400 || got[CompletionScope] != 3*pollCost || s.Residual.Value != 0 {
			t.Errorf("parts %v, residual %v", got, s.Residual.Value)
		}
	}
}

// A floor row that is unsafe on this NIC is a rung in issue time, and in nothing else; it is never the start.
func TestUnsafeRungs(t *testing.T) {
	op := map[string]string{"op": "put", "size": "8"}
	floor := synthetic(t, "minigda", "op", op, nil, 1, 0)
	rung := synthetic(t, "minigda", "op", op, map[string]string{"order": "threadfence"}, 1, 0)
	rung[0].Status, rung[0].Reason = record.Unsafe, "GPU scope, and a processor reads"
	library := synthetic(t, "acme", "op", op, map[string]string{"order": "threadfence", "plant": "delay"}, 1, 0)
	gaps, _ := newRun(floor, rung, library).Gaps([]*Library{acme()}, nil, nil)
	for _, g := range gaps {
		s, err := Ladder{}.Split(g)
		if err != nil {
			t.Fatal(err)
		}
		if g.Metric != "issue" {
			if len(s.Parts) != 0 || len(s.Missing) != 1 {
				t.Errorf("%s: an unsafe row is a rung: %+v", g.Metric, s.Parts)
			}
			continue
		}
		if len(s.Parts) != 1 || s.Parts[0].Value != ToFemto(520e-9) || !strings.Contains(s.Parts[0].How, "unsafe on this NIC") {
			t.Errorf("issue: %+v", s.Parts)
		}
	}
	library[0].Status, library[0].Reason = record.Unsafe, "x"
	gaps, unsplit := newRun(floor, library).Gaps([]*Library{acme()}, nil, nil)
	if len(gaps) != 1 || gaps[0].Metric != "issue" || len(unsplit) != 2 || unsplit[0].Why != "the row is unsafe" {
		t.Errorf("%d gaps of an unsafe library row, %+v not split", len(gaps), unsplit)
	}
}
