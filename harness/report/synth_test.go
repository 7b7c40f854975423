package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"gic/harness/record"
	"gic/workloads"
)

// synth makes the records of a run that could have been.
type synth struct {
	rng     *rand.Rand
	records []record.Record
	order   int
}

var synthStart = time.Date(2026, 11, 29, 17, 30, 0, 0, time.UTC)

func newSynth(repeat, cases int) *synth {
	s := &synth{rng: rand.New(rand.NewPCG(7, 11))}
	s.records = append(s.records, &record.Header{
		Type: "run", Schema: record.Schema, ID: "20261129-173000-4f1c", Time: synthStart, Gic: "0.1.0",
		Command: []string{"gic", "run"}, Suite: "quick", Seed: 1, Ranks: 2, Repeat: repeat, Cases: cases, Launch: "local",
		Host: record.Machine{Hostname: "laptop", OS: "linux", Kernel: "6.12.9", CPU: map[string]any{
			"model": "AMD Ryzen 7 7840U", "allowed": "0-1", "cpus": 2.0, "governor": "performance",
		}},
		Defaults: map[string]map[string]string{
			"minigda":   {"batch": "1", "inline": "auto", "order": "seq_cst", "qps": "1", "sharing": "exclusive"},
			"miniproxy": {"handoff": "tuned", "rings": "1", "workers": "1"},
		},
	})
	return s
}

// spec is one case; its process runs follow from it.
type spec struct {
	workload string
	axes     map[string]string
	backend  string
	config   map[string]string
	metrics  []metricSpec
	edit     func(c *record.Case) // per process run
}

type metricSpec struct {
	name  string
	class workloads.Class
	value float64 // typical
	ops   int     // samples per process run
	quiet bool    // no headline
}

var unitOf = map[workloads.Class]string{workloads.Time: "s", workloads.Rate: "msg/s", workloads.Bandwidth: "B/s", workloads.Number: "1"}

func (s *synth) add(repeat int, sp spec) {
	for i := range repeat {
		s.order++
		c := &record.Case{
			Type: "case", Index: i, Order: s.order, Workload: sp.workload, Axes: sp.axes, Backend: sp.backend, Config: sp.config,
			NIC: "soft", NICConfig: map[string]string{"engine": "cpu", "profile": "none"}, Device: "host", Ranks: 2, Seed: 1,
			Start: synthStart.Add(time.Duration(s.order) * time.Second), Duration: 0.1, Status: record.OK,
			Verify: &workloads.Verification{Checked: 65536},
			Host:   map[string]any{"cpus": 2.0, "runnable_threads": 4.0, "oversubscribed": true},
		}
		drift := math.Exp(0.03 * s.rng.NormFloat64()) // of this process
		for _, m := range sp.metrics {
			v := make([]float64, m.ops)
			for j := range v {
				v[j] = m.value * drift * math.Exp(0.2*s.rng.NormFloat64())
			}
			if m.ops == 1 {
				v[0] = m.value * drift
			}
			metric, err := record.FromSamples(m.name, unitOf[m.class], m.class, v)
			if err != nil {
				panic(err)
			}
			metric.Headline = !m.quiet
			c.Metrics = append(c.Metrics, metric)
		}
		if sp.edit != nil {
			sp.edit(c)
		}
		c.ID = record.CaseID(c)
		s.records = append(s.records, c)
	}
}

func (s *synth) skip(sp spec, reason string) {
	sp.metrics = nil
	sp.edit = func(c *record.Case) {
		c.Status, c.Reason, c.Verify, c.Host, c.Duration = record.Skipped, reason, nil, nil, 0
	}
	s.add(1, sp)
}

var (
	gdaConfig   = map[string]string{"batch": "1", "inline": "auto", "order": "seq_cst", "qps": "1", "sharing": "exclusive"}
	proxyConfig = map[string]string{"handoff": "tuned", "rings": "1", "workers": "1"}
)

func with(m map[string]string, kv ...string) map[string]string {
	out := map[string]string{}
	for k, v := range m {
		out[k] = v
	}
	for i := 0; i < len(kv); i += 2 {
		out[kv[i]] = kv[i+1]
	}
	return out
}

// libraries adds the rows of the libraries, which cannot run on this machine.
func (s *synth) libraries(workload string, axes map[string]string) {
	s.skip(spec{workload: workload, axes: axes, backend: "nvshmem", config: map[string]string{"transport": "ibgda"}},
		"built without CUDA: install the CUDA toolkit and NVSHMEM 3.4 or newer, then run make")
	s.skip(spec{workload: workload, axes: axes, backend: "ncclgin", config: map[string]string{"type": "gdaki"}},
		"built without CUDA: install the CUDA toolkit and NCCL 2.28 or newer, then run make")
	if workload == "moe" {
		s.skip(spec{workload: workload, axes: axes, backend: "deepep", config: map[string]string{}}, "no CUDA device")
	} else {
		s.skip(spec{workload: workload, axes: axes, backend: "deepep", config: map[string]string{}},
			"deepep runs moe only: it has no single operations")
	}
}

// quick is a run as the default suite makes it on two cores: all is well.
func quick() []record.Record {
	const repeat = 3
	s := newSynth(repeat, 0)
	us := 1e-6
	for _, op := range []string{"put", "put_signal"} {
		for i, size := range []string{"8", "1K", "64K"} {
			axes := map[string]string{"op": op, "size": size, "iterations": "1000", "warmup": "100", "posts": "256", "rounds": "20", "responder_delay": "0", "timer_check": "50"}
			f := []float64{1, 1.2, 6}[i]
			times := func(issue, put, rtt float64) []metricSpec {
				return []metricSpec{{"issue", workloads.Time, issue, 1, false}, {"put_completion", workloads.Time, put * f, 1000, false},
					{"rtt", workloads.Time, rtt * f, 1000, false}, {"one_way", workloads.Time, rtt * f / 2, 1000, true}}
			}
			s.add(repeat, spec{workload: "op", axes: axes, backend: "minigda", config: gdaConfig, metrics: times(62e-9, 3.1*us, 7.3*us)})
			s.add(repeat, spec{workload: "op", axes: axes, backend: "miniproxy", config: proxyConfig, metrics: times(21e-9, 5.9*us, 13.8*us)})
			s.libraries("op", axes)
		}
	}
	for _, threads := range []string{"1", "2"} {
		axes := map[string]string{"size": "8", "threads": threads, "messages": "20000", "warmup": "1000", "pattern": "pair"}
		rate := func(v float64) []metricSpec {
			return []metricSpec{{"message_rate", workloads.Rate, v, 1, false}, {"time", workloads.Time, 20000 / v, 1, true}}
		}
		for i, batch := range []string{"1", "16"} {
			s.add(repeat, spec{workload: "rate", axes: axes, backend: "minigda", config: with(gdaConfig, "batch", batch), metrics: rate([]float64{1.79e6, 4.7e6}[i])})
		}
		s.add(repeat, spec{workload: "rate", axes: axes, backend: "miniproxy", config: proxyConfig, metrics: rate(1.1e6)})
		s.libraries("rate", axes)
	}
	for i, size := range []string{"1K", "16K", "64K", "256K"} {
		axes := map[string]string{"size": size, "threads": "1", "messages": "2000", "warmup": "100", "pattern": "pair"}
		v := []float64{0.9e9, 3.1e9, 5.2e9, 5.3e9}[i]
		s.add(repeat, spec{workload: "goodput", axes: axes, backend: "minigda", config: gdaConfig, metrics: []metricSpec{{"goodput", workloads.Bandwidth, v, 1, false}}})
		s.add(repeat, spec{workload: "goodput", axes: axes, backend: "miniproxy", config: proxyConfig, metrics: []metricSpec{{"goodput", workloads.Bandwidth, 0.6 * v, 1, false}}})
		s.libraries("goodput", axes)
	}
	axes := map[string]string{"bytes": "4K", "matrix": "uniform", "threads": "1", "iterations": "100", "warmup": "10"}
	a2a := func(t float64) []metricSpec {
		return []metricSpec{{"time", workloads.Time, t, 100, false}, {"algbw", workloads.Bandwidth, 8192 / t, 100, true}, {"busbw", workloads.Bandwidth, 4096 / t, 100, false}}
	}
	s.add(repeat, spec{workload: "alltoall", axes: axes, backend: "minigda", config: gdaConfig, metrics: a2a(11 * us)})
	s.add(repeat, spec{workload: "alltoall", axes: axes, backend: "miniproxy", config: proxyConfig, metrics: a2a(19 * us)})
	s.libraries("alltoall", axes)
	for _, layout := range []string{"expert", "rank"} {
		axes := map[string]string{"model": "mixtral-8x7b", "hidden": "0", "experts": "0", "topk": "0", "tokens": "16", "layout": layout,
			"routing": "uniform", "masked": "0", "threads": "1", "iterations": "20", "warmup": "3"}
		moe := func(d float64) []metricSpec {
			return []metricSpec{{"dispatch", workloads.Time, d, 20, false}, {"combine", workloads.Time, 1.7 * d, 20, false}, {"reduce", workloads.Time, d / 4, 20, true}}
		}
		s.add(repeat, spec{workload: "moe", axes: axes, backend: "minigda", config: gdaConfig, metrics: moe(210 * us)})
		s.add(repeat, spec{workload: "moe", axes: axes, backend: "miniproxy", config: proxyConfig, metrics: moe(330 * us)})
		s.libraries("moe", axes)
	}
	for _, r := range s.records[1:] {
		if c := r.(*record.Case); c.Status == record.OK {
			c.Warnings = append(c.Warnings, workloads.Warning{Code: oversubscribed, Text: "4 runnable threads on 2 CPUs: times include waiting for a CPU"})
		}
	}
	s.records[0].(*record.Header).Cases = len(s.records) - 1
	return s.records
}

// trouble is a run in which everything went wrong that can, with configurations in plenty.
func trouble() []record.Record {
	const repeat = 5
	s := newSynth(repeat, 200)
	us := 1e-6
	axes := map[string]string{"op": "put", "size": "8", "iterations": "1000"}
	times := func(issue, put float64) []metricSpec {
		return []metricSpec{{"issue", workloads.Time, issue, 1, false}, {"put_completion", workloads.Time, put, 200, false}}
	}
	fail := func(status record.Status, reason, stage string, from int) func(c *record.Case) {
		return func(c *record.Case) {
			if c.Index >= from {
				c.Status, c.Reason, c.Stage, c.Metrics, c.Verify = status, reason, stage, nil, nil
			}
		}
	}
	for _, order := range []string{"seq_cst", "release", "relaxed"} {
		for _, sharing := range []string{"exclusive", "lock", "warp"} {
			for i, batch := range []string{"1", "16"} {
				sp := spec{workload: "op", axes: axes, backend: "minigda", config: with(gdaConfig, "order", order, "sharing", sharing, "batch", batch),
					metrics: times([]float64{62e-9, 24e-9}[i], 3.1*us)}
				switch order + " " + sharing + " " + batch {
				case "release lock 16":
					sp.edit = fail(record.Failed, "rank 1: killed by signal 11", "run op", 3)
				case "release warp 1":
					sp.edit = fail(record.Timeout, "rank 0: no progress for 10s", "wait for completion", 0)
				case "relaxed warp 16":
					sp.edit = func(c *record.Case) {
						c.Status, c.Reason = record.Unverified, "path proof: wqe_write is 0, the message list makes 1000"
						c.Verify = &workloads.Verification{Checked: 65536, Wrong: 24, First: "offset 4096: 0x00, want 0x5a"}
					}
				case "relaxed exclusive 1":
					sp.edit = func(c *record.Case) {
						if c.Index == 2 {
							c.Metrics = c.Metrics[:1]
						}
					}
				case "seq_cst warp 1":
					sp.edit = func(c *record.Case) {
						c.Warnings = append(c.Warnings, workloads.Warning{Code: "timer_check",
							Text: fmt.Sprintf("a delay of 50 us showed as %.1f us", 50.6+float64(c.Index)/10)})
					}
				case "release exclusive 1":
					sp.edit = func(c *record.Case) { delete(c.Host, "oversubscribed") }
				case "release exclusive 16":
					sp.edit = func(c *record.Case) { c.Verify = nil }
				}
				s.add(repeat, sp)
			}
		}
	}
	s.add(repeat, spec{workload: "op", axes: axes, backend: "minigda", config: with(gdaConfig, "order", "none"), metrics: times(19e-9, 0.4*us)[:1],
		edit: func(c *record.Case) {
			c.Status, c.Reason = record.Unsafe, "order=none: issue only, the engine is stopped"
		}})
	s.add(repeat, spec{workload: "op", axes: axes, backend: "miniproxy", config: proxyConfig, metrics: times(21e-9, 5.9*us)})
	s.add(repeat, spec{workload: "op", axes: axes, backend: "a-library-of-an-absurdly-long-name-that-nobody-would-choose", config: map[string]string{
		"transport": "something/with/a/very/long/path/that/has/no/spaces/at/all/and/goes/on/beyond/any/column.so", "threads": "1"}, metrics: times(12345e-9, 4.0e-2)})
	s.add(repeat, spec{workload: "op", axes: axes, backend: "a-library-of-an-absurdly-long-name-that-nobody-would-choose", config: map[string]string{
		"transport": "plain", "threads": "1"}, metrics: times(12345e-9, 4.0e-2)})
	s.add(repeat, spec{workload: "op", axes: axes, backend: "othernic", config: nil, metrics: times(30e-9, 2*us),
		edit: func(c *record.Case) { c.NIC, c.NICConfig, c.Device = "mlx5", nil, "cuda"; c.Host = nil }})
	s.libraries("op", axes)
	axes = with(axes, "op", "read")
	s.add(repeat, spec{workload: "op", axes: axes, backend: "minigda", config: gdaConfig, edit: fail(record.Failed, "rank 0: exit status 3", "open", 0)})
	s.skip(spec{workload: "op", axes: axes, backend: "miniproxy", config: proxyConfig}, "the proxy posts no reads")
	s.libraries("op", axes)
	return s.records
}
