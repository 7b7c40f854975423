package replay

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gic/backends"
	"gic/harness/attribution"
	"gic/harness/record"
)

// run makes rows of 8 process runs each with a little noise.
type run struct {
	t     *testing.T
	run   *attribution.Run
	noise float64
	rng   *rand.Rand
}

func newRun(t *testing.T, noise float64) *run {
	return &run{t, &attribution.Run{Header: &record.Header{}}, noise, rand.New(rand.NewPCG(3, 4))}
}

func (r *run) row(backend string, config map[string]string, ns float64, change func(*record.Case)) *attribution.Row {
	r.t.Helper()
	for i := range 8 {
		c := &record.Case{Type: "case", Index: i, Workload: "op", Axes: map[string]string{"op": "put", "size": "8"}, Backend: backend,
			Config: maps.Clone(config), NIC: "soft", NICConfig: map[string]string{"profile": "none"}, Device: "host", Ranks: 2, Seed: 1, Status: record.OK,
			Counters: []backends.Counter{{Name: "wqes", Unit: "1", Value: 100, Exact: true}, {Name: "doorbells_seen", Unit: "1", Value: uint64(r.rng.IntN(90))}}}
		if change != nil {
			change(c)
		}
		c.ID = record.CaseID(c)
		m, err := record.FromSamples("issue", "s", "time", []float64{ns * 1e-9 * (1 + r.noise*r.rng.NormFloat64())})
		if err != nil {
			r.t.Fatal(err)
		}
		m.Headline = true
		c.Metrics = []record.Metric{m}
		r.run.Add(c)
	}
	return r.run.Rows[len(r.run.Rows)-1]
}

func (r *run) replay(of *attribution.Row, ns float64, change func(*record.Case)) {
	r.row(Backend, map[string]string{"of": Key(of.First()), "trace": "x-nic0-0.trace"}, ns, change)
}

var (
	plain   = map[string]string{"batch": "1", "order": "auto"}
	library = map[string]string{"mode": "ibgda"}
)

// Costs planted as code and as choices come out on their side, with the overhead of replaying taken off where the
// floor's own replay tells it; the parts sum to the gap.
func TestPlanted(t *testing.T) {
	const floor, overhead = 100.0, 8.0
	for _, c := range []struct{ code, choices float64 }{{0, 0}, {400, 0}, {0, 250}, {400, 250}, {-20, 250}, {4610, 520}} {
		for _, noise := range []float64{0, 0.003} {
			for _, known := range []bool{true, false} {
				r := newRun(t, noise)
				f := r.row("minigda", plain, floor, nil)
				lib := r.row("nvshmem", library, floor+c.code+c.choices, nil)
				r.replay(lib, floor+c.choices+overhead, nil)
				if known {
					r.replay(f, floor+overhead, nil)
				}
				s, err := Method{}.Split(&attribution.Gap{Run: r.run, Metric: "issue", Row: lib, Floor: f})
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Check(); err != nil {
					t.Error(err)
				}
				extra := overhead
				if known {
					extra = 0
				}
				what := fmt.Sprintf("code %g, choices %g, noise %g, overhead known %v", c.code, c.choices, noise, known)
				near(t, what+": choices", s.Parts[0].Quantity, c.choices+extra, floor)
				near(t, what+": code", s.Residual, c.code-extra, floor)
			}
		}
	}
}

// near wants 10 % of what was planted, or its interval to hold it; of nothing planted 3 % of the floor.
func near(t *testing.T, what string, q attribution.Quantity, want, floor float64) {
	t.Helper()
	got := q.Value.Seconds() * 1e9
	low, high, ok := q.Interval()
	if math.Abs(got-want) > max(math.Abs(want)/10, 0.03*floor) && !(ok && low*1e9 <= want && want <= high*1e9) {
		t.Errorf("%s: %.1f ns (%.1f..%.1f), planted %.1f", what, got, low*1e9, high*1e9, want)
	}
}

func TestBlind(t *testing.T) {
	for name, c := range map[string]struct {
		make func(r *run, lib *attribution.Row)
		want string
	}{
		"no replay":      {func(*run, *attribution.Row) {}, "gic replay makes one"},
		"of another row": {func(r *run, _ *attribution.Row) { r.replay(r.run.Rows[0], 100, nil) }, "no replay of nvshmem"},
		"at another point": {func(r *run, lib *attribution.Row) {
			r.replay(lib, 100, func(c *record.Case) { c.Axes = map[string]string{"size": "64"} })
		}, "no replay of nvshmem"},
		"under another model": {func(r *run, lib *attribution.Row) {
			r.replay(lib, 100, func(c *record.Case) { c.NICConfig = map[string]string{"profile": "cx7-200"} })
		}, "no replay"},
		"of other work": {func(r *run, lib *attribution.Row) {
			r.replay(lib, 100, func(c *record.Case) { c.Counters[0].Value = 99 })
		}, "has wqes = 99, the row 100"},
		"that could not be": {func(r *run, lib *attribution.Row) {
			r.replay(lib, 100, func(c *record.Case) { c.Status, c.Reason = record.Skipped, "no atomic" })
		}, "is skipped: no atomic"},
	} {
		r := newRun(t, 0)
		f := r.row("minigda", plain, 100, nil)
		lib := r.row("nvshmem", library, 500, nil)
		c.make(r, lib)
		_, err := Method{}.Split(&attribution.Gap{Run: r.run, Metric: "issue", Row: lib, Floor: f})
		if !errors.Is(err, attribution.ErrBlind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestKey(t *testing.T) {
	a := &record.Case{Backend: "minigda", Config: map[string]string{"batch": "1", "qps": "2"}}
	b := &record.Case{Backend: "minigda", Config: map[string]string{"qps": "2", "batch": "1"}, Seed: 9, NICConfig: map[string]string{"trace": "on"}}
	c := &record.Case{Backend: "minigda", Config: map[string]string{"batch": "12", "qps": ""}}
	if Key(a) != Key(b) || Key(a) == Key(c) || len(Key(a)) != 12 {
		t.Errorf("%s, %s, %s", Key(a), Key(b), Key(c))
	}
}
