package check

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gic/harness/attribution/oracle"
)

var update = flag.Bool("update", false, "write the platform files anew from the rows")

func readRows(t *testing.T) []*Row {
	t.Helper()
	rows, err := ReadRows("../../../../results/paper")
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func measured(workload string) bool {
	return slices.Contains([]string{"op", "rate", "goodput", "alltoall", "moe", "caller"}, workload)
}

func derive(t *testing.T, rows []*Row) map[string]*oracle.Platform {
	t.Helper()
	out := map[string]*oracle.Platform{}
	for name := range recipes {
		p, err := Derive(name, rows)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = p
	}
	return out
}

// The embedded platforms are what the recipes make of the rows, to the byte.
func TestPlatformFiles(t *testing.T) {
	for name, p := range derive(t, readRows(t)) {
		want, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		file := "../platforms/" + name + ".yaml"
		if *update {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the rows give: go test ./harness/attribution/oracle/check -update\n%s", file, cmp.Diff(string(want), string(got)))
		}
		if _, err := oracle.Parse(got); err != nil {
			t.Error(err)
		}
	}
}

// The bounds that the oracle is held to.
func TestErrors(t *testing.T) {
	tab := Run(readRows(t), embedded(t), measured)
	if tab.HeldOut < tab.Outside {
		t.Errorf("%d rows of gic's workloads are held out and %d outside: at least half of what is no constant must be held out", tab.HeldOut, tab.Outside)
	}
	if tab.Median > 0.10 {
		t.Errorf("median error is %.1f %%, at most 10 %% is allowed", 100*tab.Median)
	}
	for _, o := range tab.Misses {
		if o.Cause == "" {
			t.Errorf("%s: %+.1f %% is a miss without a cause", o.ID, 100*o.Error)
		}
	}
	for id := range causes {
		if !slices.ContainsFunc(tab.Misses, func(o *Outcome) bool { return o.ID == id }) {
			t.Errorf("%s has a cause, but is no miss", id)
		}
	}
	for _, o := range tab.Outcomes {
		if o.Status == Outside && o.Reason == "" {
			t.Errorf("%s is outside without a reason", o.ID)
		}
	}
}

func embedded(t *testing.T) map[string]*oracle.Platform {
	t.Helper()
	out := map[string]*oracle.Platform{}
	for _, name := range oracle.Names() {
		p, err := oracle.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = p
	}
	return out
}

// The NIC profile cx7-200 of softnic and the platform P-IB tell the same of the same NIC.
func TestProfile(t *testing.T) {
	source, err := os.ReadFile("../../../../minigda/softnic/pace.c")
	if err != nil {
		t.Fatal(err)
	}
	_, profile, found := strings.Cut(string(source), `.name = "cx7-200"`)
	if !found {
		t.Fatal("pace.c has no profile cx7-200")
	}
	profile, _, _ = strings.Cut(profile, "},")
	p := embedded(t)["P-IB"]
	v, _, reason := p.Lookup(oracle.Conditions{"size": "8"}, "nic_rate", "cqe")
	if reason != "" {
		t.Fatal(reason)
	}
	peak := p.Predict(oracle.Query{Quantity: "goodput_peak", Conditions: oracle.Conditions{"backend": "minigda", "threads": "saturating", "order": "gpu-fence"}})
	for field, want := range map[string]float64{"message_rate": v["nic_rate"], "latency_ns": v["cqe"] * 1e9, "bandwidth": peak.Value} {
		m := regexp.MustCompile(`\.` + field + ` = ([0-9.e]+)`).FindStringSubmatch(profile)
		if m == nil {
			t.Errorf("the profile has no %s", field)
			continue
		}
		got, err := strconv.ParseFloat(m[1], 64)
		if err != nil || math.Abs(got/want-1) > 0.01 {
			t.Errorf("the profile's %s is %s, the platform has %g", field, m[1], want)
		}
	}
}

// No row predicts itself: with another value of a held-out row (and of its duplicates), the constants and so its
// prediction are what they were. The reverse keeps the test honest: every constant row does change a constant.
func TestNoRowPredictsItself(t *testing.T) {
	rows := readRows(t)
	before := derive(t, rows)
	text := values(before)
	tab := Run(rows, before, measured)
	for i, o := range tab.Outcomes {
		r := rows[i]
		undo := perturb(rows, r)
		after := derive(t, rows)
		undo()
		changed := values(after) != text
		switch o.Status {
		case Constant:
			if !changed {
				t.Errorf("%s is said to be a constant, but changes none", r.ID)
			}
		default:
			p, q := before[r.Platform], after[r.Platform]
			query := oracle.Query{Quantity: r.Quantity, Conditions: r.Conditions}
			if x, y := p.Predict(query), q.Predict(query); x.Value != y.Value || x.None != y.None {
				t.Errorf("%s: its own value changes its prediction from %v to %v", r.ID, x.Value, y.Value)
			}
			if changed {
				t.Errorf("%s is %s, but changes a constant", r.ID, o.Status)
			}
		}
	}
}

// perturb changes a row and all rows of the same measurement.
func perturb(rows []*Row, r *Row) (undo func()) {
	group := r.ID
	if r.Same != "" {
		group = r.Same
	}
	old := map[*Row]float64{}
	for _, x := range rows {
		if x.ID == group || x.Same == group {
			old[x] = x.Value
			x.Value *= 1.25
		}
	}
	return func() {
		for x, v := range old {
			x.Value = v
		}
	}
}

// values are the constants of the platforms as text, to compare them.
func values(platforms map[string]*oracle.Platform) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(platforms)) {
		for _, k := range platforms[name].Constants {
			fmt.Fprintln(&b, name, k.ID(), k.Value)
		}
	}
	return b.String()
}
