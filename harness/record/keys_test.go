package record

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFlatten(t *testing.T) {
	c := &Case{
		Index: 2, Workload: "op", Axes: map[string]string{"size": "8", "op": "put"},
		Backend: "minigda", Config: map[string]string{"qps": "1", "batch": "16"},
		NIC: "soft", NICConfig: map[string]string{"profile": "cx7-200", "engine": "cpu"},
		Device: "host", Ranks: 2, Seed: 18446744073709551615,
	}
	want := []KeyValue{
		{"workload", "op"}, {"workload.op", "put"}, {"workload.size", "8"},
		{"backend", "minigda"}, {"backend.batch", "16"}, {"backend.qps", "1"},
		{"nic", "soft"}, {"nic.engine", "cpu"}, {"nic.profile", "cx7-200"},
		{"device", "host"}, {"ranks", "2"}, {"seed", "18446744073709551615"}, {"index", "2"},
	}
	if diff := cmp.Diff(want, Flatten(c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A case that is told in full has the ID of one that was recorded so.
func TestComplete(t *testing.T) {
	full := &Case{
		Workload: "op", Axes: map[string]string{"a": "1", "op": "put", "placement": "0", "z": "9"},
		Backend: "minigda", Config: map[string]string{"agent": "auto", "qps": "1"}, NIC: "soft",
		NICConfig: map[string]string{"engine": "cpu"}, Device: "host", Ranks: 2,
	}
	less := *full
	less.Axes, less.Config = map[string]string{"op": "put"}, map[string]string{}
	keys, id := Identity(&less)
	want, wantID := Identity(full)
	more := []KeyValue{{"workload.z", "9"}, {"backend.qps", "1"}, {"workload.a", "1"}, {"backend.agent", "auto"}, {"workload.placement", "0"}}
	got, gotID := Complete(keys, more)
	if diff := cmp.Diff(want, got); diff != "" || gotID != wantID || gotID == id {
		t.Errorf("id %s, want %s (-want +got):\n%s", gotID, wantID, diff)
	}
}

// The ID must not move between versions, or old and new runs of one case would no longer pair.
func TestCaseIDIsStable(t *testing.T) {
	c := testCase(rand.New(rand.NewPCG(1, 1)), 0)
	const want = "d588ff21f0155a9e"
	if got := CaseID(c); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	// Another insertion order, another process run, other results.
	d := testCase(rand.New(rand.NewPCG(9, 9)), 5)
	d.Axes = map[string]string{}
	for _, k := range []string{"threads", "size", "op"} {
		d.Axes[k] = c.Axes[k]
	}
	d.Status, d.Reason, d.Metrics, d.Seed, d.Created = Failed, "x", nil, 99, nil
	if got := CaseID(d); got != want {
		t.Errorf("got %s for another process run, want %s", got, want)
	}
}

func TestCaseIDTellsKeysApart(t *testing.T) {
	base := func() *Case { return testCase(rand.New(rand.NewPCG(1, 1)), 0) }
	set := func(m map[string]string, k, v string) map[string]string {
		m = maps.Clone(m)
		m[k] = v
		return m
	}
	seen := map[string]string{CaseID(base()): "base"}
	for name, f := range map[string]func(c *Case){
		"workload":         func(c *Case) { c.Workload = "rate" },
		"axis":             func(c *Case) { c.Axes = set(c.Axes, "size", "16") },
		"axis more":        func(c *Case) { c.Axes = set(c.Axes, "x", "") },
		"backend":          func(c *Case) { c.Backend = "miniproxy" },
		"config":           func(c *Case) { c.Config = set(c.Config, "batch", "1") },
		"key moved":        func(c *Case) { c.Axes = set(c.Axes, "batch", "16"); delete(c.Config, "batch") },
		"value as key":     func(c *Case) { c.Axes["op"] = "put13:workload.size1:8"; delete(c.Axes, "size") },
		"nic":              func(c *Case) { c.NIC = "mlx5" },
		"nic config":       func(c *Case) { c.NICConfig = set(c.NICConfig, "engine", "gpu") },
		"device":           func(c *Case) { c.Device = "cuda" },
		"ranks":            func(c *Case) { c.Ranks = 4 },
		"config and batch": func(c *Case) { c.Config = set(c.Config, "batch", "116") },
	} {
		c := base()
		f(c)
		id := CaseID(c)
		if other, ok := seen[id]; ok {
			t.Errorf("%s and %s have the ID %s", name, other, id)
		}
		seen[id] = name
	}
}
