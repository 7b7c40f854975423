// Package reporttest makes records of a run for the tests of what prints and draws reports: every workload, swept
// over what is plotted, with rows that are skipped, failed, unsafe and unverified, and values that follow from a
// seed.
package reporttest

import (
	"maps"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"gic/backends"
	"gic/harness/record"
	"gic/workloads"
)

// Start is when the run began.
var Start = time.Date(2026, 11, 29, 17, 30, 0, 0, time.UTC)

// Header is the header of a run with this many process runs.
func Header(id string, repeat int) *record.Header {
	return &record.Header{
		Type: "run", Schema: record.Schema, ID: id, Time: Start, Gic: "0.1.0", Command: []string{"gic", "run"}, Suite: "quick",
		Seed: 1, Ranks: 2, Repeat: repeat, Launch: "local",
		Host: record.Machine{
			Hostname: "laptop", OS: "linux", Kernel: "6.12.9",
			CPU:    map[string]any{"model": "AMD Ryzen 7 7840U", "cpus": 2.0, "governor": "performance", "memlock": 8388608.0},
			GPU:    []any{map[string]any{"name": "none", "bar1": map[string]any{"size": 256.0}}},
			Absent: []string{"rdma: no /sys/class/infiniband"},
		},
		Env: map[string]string{"NCCL_DEBUG": "INFO"},
		Defaults: map[string]map[string]string{
			"minigda":   {"batch": "1", "qps": "1"},
			"miniproxy": {"handoff": "tuned"},
		},
	}
}

type maker struct {
	rng     *rand.Rand
	repeat  int
	records []record.Record
}

// floor is a backend and its value where the other has another one.
type floor struct {
	backend string
	value   float64
}

type metric struct {
	name  string
	class workloads.Class
	value float64
	ops   int
}

// Run is the records of one run: a header and its cases.
func Run(repeat int) []record.Record {
	m := &maker{rng: rand.New(rand.NewPCG(3, 5)), repeat: repeat}
	m.records = append(m.records, Header("20261129-173000-4f1c", repeat))
	for _, size := range []int{8, 64, 512, 4096} {
		axes := map[string]string{"op": "put", "size": strconv.Itoa(size), "iterations": "1000"}
		slope := 1 + float64(size)/2000
		for _, b := range []floor{{"minigda", 1}, {"miniproxy", 2.6}} {
			m.add("op", axes, b.backend, nil, []metric{
				{"put_completion", workloads.Time, 1.3e-6 * b.value * slope, 200}, {"rtt", workloads.Time, 2.5e-6 * b.value * slope, 200},
			}, nil)
		}
		m.idle("op", axes, "nvshmem", record.Skipped, "built without CUDA")
		g := map[string]string{"size": strconv.Itoa(size), "threads": "1"}
		for _, b := range []floor{{"minigda", 9e9}, {"miniproxy", 7e9}} {
			m.add("goodput", g, b.backend, nil, []metric{{"goodput", workloads.Bandwidth, b.value * float64(size) / (float64(size) + 300), 1}}, nil)
		}
	}
	for _, n := range []int{1, 4, 16} {
		v := strconv.Itoa(n)
		speed := 3e6 * math.Sqrt(float64(n))
		one := map[string]string{"threads": "1"}
		m.add("rate", one, "minigda", map[string]string{"qps": v}, []metric{{"message_rate", workloads.Rate, speed, 1}}, nil)
		m.add("rate", one, "minigda", map[string]string{"batch": v, "qps": "2"}, []metric{{"message_rate", workloads.Rate, 2 * speed, 1}}, nil)
		m.add("rate", map[string]string{"threads": v}, "miniproxy", nil, []metric{{"message_rate", workloads.Rate, speed / 2, 1}}, nil)
		for _, b := range []floor{{"minigda", 20e-6}, {"miniproxy", 34e-6}} {
			m.add("moe", map[string]string{"model": "qwen3-235b", "tokens": v}, b.backend, nil, []metric{
				{"dispatch", workloads.Time, b.value * float64(n+2), 20}, {"combine", workloads.Time, 1.4 * b.value * float64(n+2), 20},
			}, nil)
		}
	}
	put := map[string]string{"op": "put", "size": "8", "iterations": "1000"}
	m.idle("op", put, "ncclgin", record.Failed, "rank 1 exited with signal 11")
	m.add("op", put, "minigda", map[string]string{"order": "none"}, []metric{{"put_completion", workloads.Time, 0.9e-6, 200}}, func(c *record.Case) {
		c.Status, c.Reason = record.Unsafe, "no order between WQE and doorbell"
	})
	m.add("op", put, "minigda", map[string]string{"inline": "on"}, []metric{{"put_completion", workloads.Time, 0.9e-6, 200}}, func(c *record.Case) {
		c.Status, c.Reason, c.Verify = record.Unverified, "payload differs", &workloads.Verification{Checked: 64, Wrong: 8, First: "rank 1 offset 16"}
	})
	m.records[0].(*record.Header).Cases = len(m.records) - 1
	return m.records
}

func (m *maker) add(workload string, axes map[string]string, backend string, config map[string]string, metrics []metric, edit func(*record.Case)) {
	units := map[workloads.Class]string{workloads.Time: "s", workloads.Rate: "msg/s", workloads.Bandwidth: "B/s"}
	full := map[string]string{"handoff": "tuned"}
	if backend != "miniproxy" {
		full = map[string]string{"batch": "1", "qps": "1"}
	}
	maps.Copy(full, config)
	for i := range m.repeat {
		c := m.base(workload, axes, backend, full, i)
		c.Verify = &workloads.Verification{Checked: 65536}
		c.Messages = 1000
		c.Counters = []backends.Counter{
			{Name: "wqes", Unit: "1", Value: 1000, Exact: true}, {Name: "wqe_read", Unit: "1", Exact: true},
			{Name: "doorbells", Unit: "1", Value: 63, Exact: true}, {Name: "slot_waits", Unit: "1", Value: uint64(i)},
		}
		drift := math.Exp(0.05 * m.rng.NormFloat64())
		for _, spec := range metrics {
			v := make([]float64, spec.ops)
			for j := range v {
				v[j] = spec.value * drift
				if spec.ops > 1 {
					v[j] *= math.Exp(0.2 * m.rng.NormFloat64())
				}
			}
			rec, err := record.FromSamples(spec.name, units[spec.class], spec.class, v)
			if err != nil {
				panic(err) // the values above are sound
			}
			rec.Headline = true
			c.Metrics = append(c.Metrics, rec)
		}
		if edit != nil {
			edit(c)
		}
		m.records = append(m.records, c)
	}
}

func (m *maker) idle(workload string, axes map[string]string, backend string, status record.Status, reason string) {
	c := m.base(workload, axes, backend, map[string]string{}, 0)
	c.Status, c.Reason, c.Host = status, reason, nil
	m.records = append(m.records, c)
}

func (m *maker) base(workload string, axes map[string]string, backend string, config map[string]string, index int) *record.Case {
	c := &record.Case{
		Type: "case", Index: index, Order: len(m.records), Workload: workload, Axes: axes, Backend: backend, Config: config,
		NIC: "soft", NICConfig: map[string]string{"profile": "none"}, Device: "host", Ranks: 2, Seed: 1,
		Start: Start.Add(time.Duration(len(m.records)) * time.Second), Duration: 0.1, Status: record.OK,
		Library: []record.Library{{Name: "lib" + backend + ".so", Path: "build/lib" + backend + ".so"}},
		Host:    map[string]any{"cpus": 2.0, "runnable_threads": 4.0, "oversubscribed": true},
	}
	c.ID = record.CaseID(c)
	return c
}
