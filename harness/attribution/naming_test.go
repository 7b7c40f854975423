package attribution

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	"gic/harness/record"
	"gic/workloads"
)

// engines is a run of one point on both engines of the software NIC: floor and library, their defaults in the header, as
// a run of gic has them.
func engines(t *testing.T) *Run {
	t.Helper()
	run := newRun()
	run.Header.Defaults = map[string]map[string]string{
		"minigda": {"order": "auto", "inline": "auto", "sharing": "exclusive", "qps": "1", "batch": "1", "scope": "qp"},
		"nvshmem": {"path": "auto", "rc": "2", "level": "public", "completion": "all"},
	}
	run.Header.AxisDefaults = map[string]map[string]string{"rate": {"threads": "1", "size": "8", "messages": "4096"}}
	for engine, slower := range map[string]float64{"cpu": 1, "gpu": 2} {
		add := func(backend string, config, created map[string]string, seconds ...float64) {
			full := maps.Clone(run.Header.Defaults[backend])
			maps.Copy(full, config)
			for i, v := range seconds {
				m, err := record.FromSamples("message_rate", "msg/s", workloads.Rate, []float64{1 / (v * slower)})
				if err != nil {
					t.Fatal(err)
				}
				m.Headline = true
				c := &record.Case{Type: "case", Workload: "rate", Axes: map[string]string{"threads": "16", "size": "8", "messages": "4096"}, Backend: backend,
					Config: full, Created: created, NIC: "soft", NICConfig: map[string]string{"engine": engine, "threads": "1", "watch": "auto", "profile": "none"},
					Device: "cuda", Ranks: 2, Seed: 1, Index: i, Status: record.OK, Metrics: []record.Metric{m}}
				c.ID = record.CaseID(c)
				run.Add(c)
			}
		}
		add("minigda", map[string]string{"qps": "16"}, map[string]string{"order": "gpu-fence", "qps": "16"}, 36.6e-9, 36.7e-9, 36.9e-9)
		add("nvshmem", map[string]string{"rc": "16"}, map[string]string{"path": "ibgda", "qps": "16"}, 350.2e-9, 350.9e-9, 353.1e-9)
	}
	return run
}

// Rows are named by what was asked of them, and where two engines stand in one run, each point says its own: twice the
// same line with other figures tells nobody anything.
func TestRowsAreToldApart(t *testing.T) {
	a, err := Analyse(engines(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Text(&out, []*Analysis{a}, DefaultWidth); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{
		"rate size=8 nic.engine=cpu, floor minigda\n", "rate size=8 nic.engine=gpu, floor minigda\n",
		"[1] NVSHMEM IBGDA rc=16  1/message_rate", "[2] NVSHMEM IBGDA rc=16  1/message_rate",
		" 36.7    350.9  +314.2        0.0    +314.2  ns\n", // three digits of the smaller one
		// A command that does not fit is broken behind a comma, where its spec may be.
		"gic run --device cuda --nic soft:engine=gpu --workload 'rate:threads=16'\n", "inline=auto|off,\n        qps=16'\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q", want)
		}
	}
	for _, never := range []string{"level=public", "completion=all", "watch=auto", "messages=4096"} {
		if strings.Contains(text, never) {
			t.Errorf("the text has %q, which nobody asked for", never)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// The command that measures missing rungs measures them where the gap is: the same device, NIC and queues.
func TestMissingRungsAreMeasuredWhereTheGapIs(t *testing.T) {
	a, err := Analyse(engines(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range a.Judgements {
		got, engine := j.MissingRungs(), ""
		if j.Gap.Floor.First().NICConfig["engine"] == "gpu" {
			engine = " --nic soft:engine=gpu"
		}
		head := "gic run --device cuda" + engine + " --workload 'rate:threads=16' --backend 'minigda:order=gpu-fence|threadfence,"
		if !strings.HasPrefix(got, head) || !strings.HasSuffix(got, ",qps=16'") {
			t.Errorf("%s\nwant %s...,qps=16'", got, head)
		}
	}
	run := engines(t)
	for _, w := range run.Rows {
		for _, c := range w.Cases {
			c.NIC, c.NICConfig, c.Ranks, c.Seed, c.Device = "none", nil, 4, 7, "host"
		}
	}
	g := &Gap{Run: run, Floor: run.Rows[0]}
	if got, want := g.place(), " --nic none --ranks 4 --seed 7"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// What a printed interval is of lies in it, however the sum above it was rounded.
func TestIntervalHoldsItsNumber(t *testing.T) {
	q, err := FromRuns("x", []float64{206.4e-9, 206.6e-9, 206.9e-9})
	if err != nil {
		t.Fatal(err)
	}
	s := scale{"us", 1e9, 2}
	for printed, want := range map[int64]string{20: "0.20..0.21", 21: "0.21..0.21", 22: "0.21..0.22"} {
		if got := s.interval(q, printed); got != want {
			t.Errorf("interval around %s is %s, want %s", s.print(printed), got, want)
		}
	}
}

// Where library rows have nothing that adds up, that is said, not that there are none.
func TestNothingToSplit(t *testing.T) {
	for _, c := range []struct {
		backend string
		created map[string]string
		want    string
	}{
		{"nvshmem", map[string]string{"path": "p2p"}, "No row of nvshmem here has a time or a message rate: that is what adds up, and can be split."},
		{"rawstore", nil, "No library row here. --as rawstore:KEY=VALUE lets a row of a floor pose as a library."},
	} {
		run := newRun()
		m, err := record.FromSamples("goodput", "B/s", workloads.Bandwidth, []float64{1e9})
		if err != nil {
			t.Fatal(err)
		}
		for _, backend := range []string{"rawstore", c.backend} {
			row := &record.Case{Type: "case", Workload: "goodput", Axes: map[string]string{"size": "4096"}, Backend: backend, Created: c.created,
				NIC: "none", Device: "cuda", Ranks: 2, Status: record.OK, Metrics: []record.Metric{m}}
			row.ID = record.CaseID(row)
			run.Add(row)
		}
		a, err := Analyse(run, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := a.Nothing(); got != c.want {
			t.Errorf("%s: %q, want %q", c.backend, got, c.want)
		}
	}
}
