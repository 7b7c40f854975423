package scale

import (
	"maps"
	"math"
	"strconv"
	"strings"
	"testing"

	"gic/backends"
	"gic/harness/attribution/oracle"
	"gic/harness/attribution/oracle/sim"
	"gic/harness/record"
	"gic/workloads"
	"gic/workloads/moe"
	"gic/workloads/routing"
)

func platform(t testing.TB, name string) *oracle.Platform {
	t.Helper()
	p, err := oracle.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func small(ranks, tokens, experts, topk int) *MoE {
	return &MoE{
		Routing: routing.Config{Ranks: ranks, Tokens: tokens, Experts: experts, TopK: topk, Spec: "uniform", Seed: 1},
		Hidden:  7168, ByRank: true, Threads: 1, Backend: "minigda", Settings: oracle.Conditions{"batch": "16"},
	}
}

func predict(t testing.TB, p *oracle.Platform, m *MoE) *Answer {
	t.Helper()
	a, err := Predict(p, m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got/want-1) <= tolerance) { // NaN fails too
		t.Errorf("%s: %g, expected %g within %g %%", what, got, want, 100*tolerance)
	}
}

// One token, one row each way: two WQEs, a doorbell, the way to the peer, the row's time on the link, the signal's.
func TestOneRow(t *testing.T) {
	p := platform(t, "P-IB")
	m := small(2, 1, 2, 2)
	a := predict(t, p, m)
	v, _, reason := p.Lookup(oracle.Conditions{"backend": "minigda", "size": "8", "order": "gpu-fence", "batch": "16"},
		"wqe", "doorbell_wqe", "cqe", "arrive", "fetch", "link", "header")
	if reason != "" {
		t.Fatal(reason)
	}
	bytes := 2 * 7168.0
	want := 2*v["wqe"] + v["doorbell_wqe"] + v["arrive"]*v["cqe"] + v["fetch"] + (bytes+4*v["header"])/v["link"]
	near(t, "dispatch", a.Dispatch, want, 1e-4)
	near(t, "combine", a.Combine, want, 1e-4)
	if a.Messages != 4 || a.Bytes != 2*(14336+8) || a.Active != 1 || a.None != "" {
		t.Errorf("%+v", a)
	}
}

// Many rows fill the link: with everybody sending as much as it receives, that is the time.
func TestLinkBound(t *testing.T) {
	p := platform(t, "P-IB")
	m := small(8, 4096, 8, 8) // every token to every rank
	a := predict(t, p, m)
	v, _, _ := p.Lookup(oracle.Conditions{"size": "8"}, "link", "header")
	near(t, "dispatch", a.Dispatch, 7*4096*(14336+4*v["header"])/v["link"], 0.01)
	if a.Messages != 8*7*4097 {
		t.Errorf("%d messages, expected %d", a.Messages, 8*7*4097)
	}
}

// One hot rank is an incast: its link takes what all the others send.
func TestHotRank(t *testing.T) {
	p := platform(t, "P-IB")
	m := small(8, 512, 8, 1)
	m.Routing.Spec = "hot:1000000"
	a := predict(t, p, m)
	v, _, _ := p.Lookup(oracle.Conditions{"size": "8"}, "link", "header")
	near(t, "dispatch", a.Dispatch, 7*512*(14336+4*v["header"])/v["link"], 0.01)
}

// The paper's all-to-all: flat up to 1,350 active connections per NIC, 59 % less near 3,000. Small messages, so that
// the NIC's message rate is what is measured.
func TestAllToAllDecline(t *testing.T) {
	p := platform(t, "P-H100")
	rate := func(ranks, qps int) float64 {
		active := (ranks - 1) * qps
		kept := p.Predict(oracle.Query{Quantity: "rate_kept", Conditions: oracle.Conditions{"pattern": "alltoall", "active": strconv.Itoa(active)}})
		if !kept.OK() {
			t.Fatal(kept.None)
		}
		cfg := sim.Config{Nodes: ranks, NIC: sim.NIC{MessageRate: 152e6}, Post: sim.Post{Batch: 32}}
		for rank := range ranks {
			cfg.Slow = append(cfg.Slow, 1/kept.Value)
			var program []sim.Segment
			for i := range active {
				program = append(program, sim.Segment{Peer: int32((rank + 1 + i%(ranks-1)) % ranks), Bytes: 8, Count: 32})
			}
			cfg.Threads = append(cfg.Threads, sim.Thread{Node: rank, Program: program})
		}
		r, err := sim.Run(&cfg)
		if err != nil {
			t.Fatal(err)
		}
		return float64(r.Messages) / float64(ranks) / r.End().Seconds()
	}
	few, onset, many := rate(32, 1), rate(32, 43), rate(32, 96) // 31, 1,333 and 2,976 connections
	near(t, "rate with few connections", few, 152e6, 0.01)
	near(t, "rate below the onset", onset, few, 0.01)
	near(t, "rate near 3,000 connections", many, 0.41*few, 0.02)
}

// Beyond what was measured there is no prediction, but a bound that says so.
func TestBound(t *testing.T) {
	m := small(4, 4, 8, 2)
	m.Settings = m.Settings.With("qps", "2000")
	a := predict(t, platform(t, "P-IB"), m)
	if !a.Bound || !strings.Contains(a.None, "active=6000 is outside its validity active=1..3000") || a.Dispatch <= 0 {
		t.Errorf("%+v", a)
	}
	a = predict(t, platform(t, "P-RoCE"), m)
	if a.Bound || a.None == "" || a.Dispatch != 0 {
		t.Errorf("P-RoCE has no constants of posting: %+v", a)
	}
}

func TestProxy(t *testing.T) {
	m := small(2, 2000, 2, 1)
	m.Hidden, m.Backend, m.Settings = 8, "miniproxy", oracle.Conditions{"batch": "16", "cpu": "cold"}
	p := platform(t, "P-IB")
	a := predict(t, p, m)
	if a.None != "" || a.Active != 1 {
		t.Fatalf("%+v", a)
	}
	v, _, reason := p.Lookup(oracle.Conditions{"backend": "miniproxy", "size": "8", "cpu": "cold", "batch": "16", "workers": "1", "handoff": "tuned", "payload": "posted"}, "issue")
	if reason != "" {
		t.Fatal(reason)
	}
	// One thread hands over more slowly than a worker posts in chains, so that the hand-off is the time.
	near(t, "dispatch", a.Dispatch, v["issue"]*float64(a.Messages)/2, 0.1)
}

// The messages are those of the workload, to the last one.
func TestSameWork(t *testing.T) {
	for _, layout := range []string{"expert", "rank"} {
		m := small(8, 32, 64, 4)
		m.Routing.Spec, m.Routing.Masked, m.ByRank = "power:1.2", 0.1, layout == "rank"
		a := predict(t, platform(t, "P-IB"), m)
		point := workloads.Point{}
		for _, x := range (moe.Workload{}).Axes() {
			point[x.Name] = x.Default
		}
		for k, v := range map[string]string{"model": "custom", "hidden": "7168", "experts": "64", "topk": "4", "tokens": "32", "layout": layout,
			"routing": "power:1.2", "masked": "0.1", "iterations": "1", "warmup": "0"} {
			point[k] = v
		}
		job, err := moe.Workload{}.Prepare(point, 8, 1)
		if err != nil {
			t.Fatal(err)
		}
		var puts, signals uint64
		for rank := range 8 {
			ops := job.Ops(rank)
			puts += ops.Count[backends.OpPut]
			signals += ops.Count[backends.OpSignal]
		}
		barriers := uint64(2 * 8 * 7)
		if want := (puts + signals - barriers) / 2; a.Messages != want {
			t.Errorf("layout=%s: %d messages in dispatch, the workload has %d", layout, a.Messages, want)
		}
	}
}

// A measured record asks the question that it answers.
func TestForCase(t *testing.T) {
	axes := map[string]string{}
	for _, x := range (moe.Workload{}).Axes() {
		axes[x.Name] = x.Default
	}
	c := &record.Case{Workload: "moe", Axes: axes, Backend: "minigda", Config: map[string]string{"batch": "16", "order": "gpu-fence", "sharing": "exclusive", "qps": "1", "scope": "qp"}, Ranks: 2, Seed: 3}
	m, err := ForCase(c)
	if err != nil {
		t.Fatal(err)
	}
	if m.Routing.Experts != 8 || m.Routing.Tokens != 16 || m.Routing.Seed != 3 || m.Hidden != 4096 || m.ByRank || m.Settings["batch"] != "16" || m.Settings["tokens"] != "" {
		t.Errorf("%+v", m)
	}
	if a := predict(t, platform(t, "P-IB"), m); a.None != "" || a.Dispatch <= 0 {
		t.Errorf("%+v", a)
	}
	for want, change := range map[string]map[string]string{
		"model=gpt is none":                       {"model": "gpt"},
		"model=custom needs":                      {"model": "custom"},
		"experts=9 is not allowed: a multiple of": {"experts": "9"},
		"topk=9 is not allowed: at most":          {"topk": "9"},
		"masked=2 is not allowed":                 {"masked": "2"},
		"layout=x is not allowed":                 {"layout": "x"},
		"tokens=0 is not allowed":                 {"tokens": "0"},
	} {
		bad := maps.Clone(axes)
		maps.Copy(bad, change)
		if _, err := FromAxes(bad, 2, 1, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, expected %q", change, err, want)
		}
	}
	if m, err := FromAxes(axes, 3, 1, true); err != nil || m.Routing.Experts != 9 {
		t.Errorf("3 ranks: %+v %v", m, err)
	}
	c.Ranks = 128
	if _, err := ForCase(c); err == nil {
		t.Error("128 ranks are simulated for a table")
	}
}

// BenchmarkMoE says how many events one core simulates per second.
func BenchmarkMoE(b *testing.B) {
	p := platform(b, "P-IB")
	m := small(512, 128, 512, 8)
	var events uint64
	for b.Loop() {
		events += predict(b, p, m).Events
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
}
