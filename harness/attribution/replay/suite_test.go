package replay

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gic/backends"
	"gic/harness/plan"
	"gic/harness/record"
)

// traced is a case with trace files in dir.
func traced(t *testing.T, dir, backend string, config map[string]string, change func(*record.Case)) *record.Case {
	t.Helper()
	c := &record.Case{Workload: "op", Axes: map[string]string{"op": "put", "size": "8"}, Backend: backend, Config: config, Created: map[string]string{},
		NIC: "soft", NICConfig: map[string]string{"trace": "on", "profile": "cx7-200", "threads": "2"}, Device: "host", Ranks: 2, Seed: 7, Status: record.OK,
		Counters: []backends.Counter{{Name: "doorbells", Value: 96, Exact: true}}}
	c.ID = record.CaseID(c)
	for rank, suffix := range []string{"", ".rank1"} {
		path := filepath.Join(dir, fmt.Sprintf("%s-%s-nic%d-0.trace", backend, c.ID, rank))
		if err := os.WriteFile(path, []byte(path), 0o644); err != nil {
			t.Fatal(err)
		}
		h := sha256.Sum256([]byte(path))
		c.Created["trace"+suffix], c.Created["trace.sha256"+suffix] = path, hex.EncodeToString(h[:])
	}
	if change != nil {
		change(c)
	}
	return c
}

func TestPlan(t *testing.T) {
	dir := t.TempDir()
	gda := traced(t, dir, "minigda", map[string]string{"batch": "4", "scope": "peer", "order": "threadfence", "sharing": "warp"}, nil)
	again := traced(t, dir, "minigda", gda.Config, func(c *record.Case) { c.Index = 1 })
	lib := traced(t, dir, "nvshmem", map[string]string{"mode": "ibgda", "note": ""}, func(c *record.Case) { c.Counters[0].Exact = false })
	rate := traced(t, dir, "nvshmem", map[string]string{"mode": "ibgda"}, func(c *record.Case) {
		c.Workload, c.Axes = "rate", map[string]string{"threads": "4"}
		c.Counters = nil
	})
	failed := traced(t, dir, "ncclgin", nil, func(c *record.Case) { c.Status = record.Failed })
	plain := traced(t, dir, "deepep", nil, func(c *record.Case) { c.Created = map[string]string{"trace": "off"} })
	other := traced(t, dir, "deepep", nil, func(c *record.Case) { c.Workload = "conform" })
	p, err := NewPlan([]*record.Case{gda, again, lib, rate, failed, plain, other}, "minigda:qps=2")
	if err != nil {
		t.Fatal(err)
	}
	want := []Block{
		{"op:op=put,size=8", []string{
			"minigda:batch=4,order=threadfence,scope=peer,sharing=warp",
			"replay:doorbells=96,lanes=32,of=" + Key(gda) + ",scope=peer,stated_batch=4,trace=" + gda.Created["trace"],
			"nvshmem:mode=ibgda",
			"replay:doorbells=96,doorbells_timed=on,of=" + Key(lib) + ",trace=" + lib.Created["trace"],
		}},
		{"rate:threads=4", []string{"nvshmem:mode=ibgda", "replay:of=" + Key(rate) + ",trace=" + rate.Created["trace"], "minigda:qps=2"}},
	}
	if d := cmp.Diff(want, p.Blocks); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if p.Ranks != 2 || p.Seed != 7 || p.NIC != "soft:threads=2" || p.Profile != "cx7-200" || p.Device != "host" || len(p.Left) != 3 {
		t.Errorf("%+v", p)
	}
	text, err := p.YAML()
	if err != nil {
		t.Fatal(err)
	}
	suite, err := plan.ParseSuite("replay.yaml", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if len(suite.Blocks) != 2 || suite.Ranks != 2 || len(suite.Blocks[0].Backends) != 4 {
		t.Errorf("as a suite: %+v", suite)
	}
}

func TestPlanRefuses(t *testing.T) {
	dir := t.TempDir()
	config := map[string]string{"batch": "1"}
	good := traced(t, dir, "minigda", config, nil)
	change := func(f func(c *record.Case)) []*record.Case {
		return []*record.Case{good, traced(t, dir, "nvshmem", maps.Clone(config), f)}
	}
	for name, c := range map[string]struct {
		cases []*record.Case
		want  string
	}{
		"nothing":        {nil, "nothing to replay: no case; trace a run with --nic soft:trace=on"},
		"nothing traced": {[]*record.Case{{Workload: "op", Backend: "fake", Status: record.OK, Created: map[string]string{}}}, "it was not traced"},
		"other bytes":    {change(func(c *record.Case) { c.Created["trace.sha256.rank1"] = strings.Repeat("0", 64) }), "trace of rank 1: "},
		"no hash":        {change(func(c *record.Case) { delete(c.Created, "trace.sha256") }), "no trace and hash of rank 0"},
		"no file":        {change(func(c *record.Case) { c.Created["trace"] = filepath.Join(dir, "gone.trace") }), "no such file"},
		"ranks":          {change(func(c *record.Case) { c.Ranks = 1 }), "1 ranks, the one before 2"},
		"seed":           {change(func(c *record.Case) { c.Seed = 8 }), "seed 8, the one before 7"},
		"device":         {change(func(c *record.Case) { c.Device = "cuda" }), "device=cuda, the one before host"},
		"NIC":            {change(func(c *record.Case) { c.NICConfig = nil }), "another NIC"},
		"a comma":        {change(func(c *record.Case) { c.Config["note"] = "a,b" }), `note="a,b" cannot be written`},
	} {
		_, err := NewPlan(c.cases, "minigda")
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %q", name, err, c.want)
		}
	}
}
