package diff

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"gic/backends"
	"gic/harness/record"
	"gic/workloads"
)

// synth makes run files of known content.
type synth struct {
	id     string
	cases  int
	repeat int
	start  time.Time
	host   string
	// change may alter a case before it is written; false leaves it out.
	change func(c *record.Case) bool
	header func(h *record.Header)
	rng    *rand.Rand
}

func newSynth(id string, seed uint64) *synth {
	return &synth{
		id: id, cases: 3, repeat: 8, host: "node1", rng: rand.New(rand.NewPCG(seed, 1)),
		start: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
}

func (s *synth) write(t testing.TB, dir string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, record.FileName)
	w, err := record.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	h := &record.Header{
		ID: s.id, Time: s.start, Gic: "test", Command: []string{"gic", "run"}, Seed: 1, Ranks: 2, Repeat: s.repeat,
		Cases: s.cases * s.repeat, Launch: "local",
		Host: record.Machine{Hostname: s.host, OS: "Linux", Kernel: "6.1", CPU: map[string]any{"model": "Test CPU", "cpus": 8}},
	}
	if s.header != nil {
		s.header(h)
	}
	if err := w.Write(h); err != nil {
		t.Fatal(err)
	}
	order := 0
	for index := range s.repeat {
		for i := range s.cases {
			c := s.one(t, i, index, order)
			order++
			if s.change != nil && !s.change(c) {
				continue
			}
			c.ID = ""
			if err := w.Write(c); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// one is a case of 1000 messages: 16 a doorbell, one CQE each, 2 us round trips with 1 % of noise.
func (s *synth) one(t testing.TB, i, index, order int) *record.Case {
	noise := func(v float64) float64 { return v * math.Exp(0.01*s.rng.NormFloat64()) }
	samples := make([]float64, 8)
	centre := noise(2e-6)
	for k := range samples {
		samples[k] = noise(centre)
	}
	rtt := metric(t, "rtt", "s", workloads.Time, samples...)
	rate := metric(t, "message_rate", "msg/s", workloads.Rate, noise(5e6))
	side := metric(t, "one_way", "s", workloads.Time, centre/2)
	rtt.Headline, rate.Headline = true, true
	return &record.Case{
		Index: index, Order: order, Workload: "op",
		Axes:    map[string]string{"size": strconv.Itoa(8 << (i % 8)), "op": "put", "iterations": strconv.Itoa(1000 + i/8)},
		Backend: "minigda", Config: map[string]string{"batch": "16", "qps": "1"},
		Created: map[string]string{"qps": "2"}, NIC: "soft",
		NICConfig: map[string]string{"engine": "cpu", "profile": "none"}, Device: "host", Ranks: 2, Seed: 1,
		Start: s.start.Add(time.Duration(order) * time.Millisecond), Duration: 0.001, Status: record.OK,
		Metrics: []record.Metric{rtt, rate, side},
		Counters: []backends.Counter{
			{Name: "wqes", Unit: "1", Value: 1000, Exact: true}, {Name: "cqes", Unit: "1", Value: 1000, Exact: true},
			{Name: "doorbells", Unit: "1", Value: 63, Exact: true}, {Name: "payload_bytes", Unit: "B", Value: 8000, Exact: true},
			{Name: "wqe_bytes", Unit: "B", Value: 64000, Exact: true}, {Name: "wqe_write_inline", Unit: "1", Value: 1000, Exact: true},
			{Name: "slot_waits", Unit: "1", Value: uint64(s.rng.IntN(5))}, {Name: "qps_used", Unit: "1", Value: 2, Exact: true},
		},
		Messages: 1000, Expected: map[string]uint64{"wqe_write": 1000},
		Verify: &workloads.Verification{Checked: 8000}, Host: map[string]any{"cpus": 8, "cpu_frequency_max": 2.1e9},
	}
}

func metric(t testing.TB, name, unit string, class workloads.Class, v ...float64) record.Metric {
	t.Helper()
	m, err := record.FromSamples(name, unit, class, v)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// counter returns a counter of a case, to change it.
func counter(c *record.Case, name string) *backends.Counter {
	for i := range c.Counters {
		if c.Counters[i].Name == name {
			return &c.Counters[i]
		}
	}
	panic(fmt.Sprintf("no counter %s", name))
}

// scale multiplies a metric.
func scale(t testing.TB, c *record.Case, name string, by float64) {
	for i := range c.Metrics {
		if m := &c.Metrics[i]; m.Name == name {
			v := make([]float64, len(m.Samples))
			for k := range v {
				v[k] = m.Samples[k] * by
			}
			n := metric(t, m.Name, m.Unit, m.Class, v...)
			n.Headline = m.Headline
			*m = n
		}
	}
}

func load(t testing.TB, label string, paths ...string) *Set {
	t.Helper()
	s, err := NewSet(label, "p50")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		if err := s.Read(p, nil); err != nil {
			t.Fatal(err)
		}
	}
	return s
}
