package attribution

import (
	"math"
	"slices"
	"testing"

	"gic/harness/record"
)

// nvshmemRun is what the suite nvshmem writes of its first block, in the keys of both backends, with the times of the
// model: queues in host memory, where the safe default order is sys-release, and NVSHMEM's fences are of system scope.
func nvshmemRun(t *testing.T) *Run {
	t.Helper()
	op := map[string]string{"op": "put", "size": "8"}
	var groups [][]*record.Case
	for _, order := range []string{"sys-release", "sys-fence"} {
		for _, sharing := range []string{"exclusive", "handoff"} {
			c := synthetic(t, "minigda", "op", op, map[string]string{"order": order, "sharing": sharing, "inline": "off"}, 3, 0)
			for _, c := range c {
				if order == "sys-release" {
					c.Config["order"], c.Created = "auto", map[string]string{"order": order}
				}
				c.ID = record.CaseID(c)
			}
			groups = append(groups, c)
		}
	}
	for _, level := range []string{"public", "internal"} {
		like := map[string]string{"order": "sys-fence", "sharing": "handoff"}
		if level == "public" {
			like["plant"] = "delay"
		}
		c := synthetic(t, "nvshmem", "op", op, like, 3, 0)
		for _, c := range c {
			c.Config = map[string]string{"path": "auto", "rc": "1", "map": "cta", "batch": "32", "scope": "thread", "level": level, "completion": "all", "signals": "fenced"}
			c.Created = map[string]string{"path": "ibgda", "queues": "host", "rc_per_pe": "1", "batch": "32"}
			c.ID = record.CaseID(c)
		}
		groups = append(groups, c)
	}
	run := newRun(groups...)
	run.Header.Defaults["minigda"]["order"], run.Header.Defaults["minigda"]["inline"] = "auto", "auto"
	return run
}

// The built-in file of NVSHMEM reads the rows of gic's own backend: every rung of issue is there, and what the public
// entry adds is in the residual.
func TestNVSHMEMBackendRows(t *testing.T) {
	a, err := Analyse(nvshmemRun(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Unsplit) > 0 || len(a.Judgements) != 6 {
		t.Fatalf("%d gaps, %+v not split; want three metrics of two rows", len(a.Judgements), a.Unsplit)
	}
	for _, j := range a.Judgements {
		s, level := j.Ladder(), j.Gap.Row.Config("level")
		if j.Gap.Floor.Config("inline") != "off" || j.Gap.Floor.Config("order") != "sys-release" {
			t.Errorf("the split starts from %s", j.Gap.Floor.Label())
		}
		if j.Gap.Metric != "issue" {
			continue
		}
		got := map[Name]float64{Residual: math.Round(s.Residual.Value.Seconds() * 1e9)}
		for _, p := range s.Parts {
			got[p.Terms[0]] = math.Round(p.Value.Seconds() * 1e9)
		}
		want := map[Name]float64{Ordering: orderCost["sys-fence"] - orderCost["sys-release"], QueueSharing: shareCost["handoff"], Residual: 0}
		if level == "public" {
			want[Residual] = plantDelay
		}
		for n, v := range want {
			if got[n] != v {
				t.Errorf("level=%s: %s is %g ns, want %g", level, n, got[n], v)
			}
		}
		if len(s.Missing) > 0 || !slices.ContainsFunc(s.Same, func(c Choice) bool { return c.Key == "inline" }) {
			t.Errorf("level=%s: missing %v, same %v", level, s.Missing, s.Same)
		}
	}
	// What the public entry costs over the internal one stands among the effects, under its term.
	e := a.effect(t, QueueManagement, "issue", "nvshmem", "level", "public")
	if math.Round(e.Delta.Value.Seconds()*1e9) != plantDelay {
		t.Errorf("public over internal is %v", e.Delta.Value)
	}
}
