package oracle

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gic/harness/record"
)

// tiny is a platform with round numbers.
const tiny = `
schema: gic.platform/1
name: tiny
about: a test
source: nowhere
nic: mlx5
device: cuda
conditions: {clock: "1e9"}
constants:
  - {name: issue, for: {backend: minigda}, value: 1, unit: us, source: a, valid: {size: 8..64, clock: 1e9}}
  - {name: issue, for: {backend: minigda, order: sys-fence}, value: 3, unit: us, source: b, valid: {size: "8"}}
  - {name: issue_segment, value: 100, unit: ns, source: c}
  - {name: cqe, value: 2, unit: us, source: d}
  - {name: arrive, value: 0.5, unit: "1", source: d}
  - {name: wqe, value: 100, unit: ns, source: e, valid: {batch: 1..16, order: gpu-fence}}
  - {name: doorbell_wqe, value: 400, unit: ns, source: e}
  - {name: nic_rate, value: 20, unit: Mmsg/s, source: f}
  - {name: link, value: 10, unit: GB/s, source: g}
  - {name: header, value: 50, unit: B, source: g}
  - {name: mtu, value: 1000, unit: B, source: g}
  - {name: post, for: {backend: miniproxy}, value: 300, unit: ns, source: h, valid: {workers: 1..4, rings: 1..32}}
  - {name: ring, for: {backend: miniproxy}, value: 10, unit: ns, source: h}
  - {name: wr, for: {backend: miniproxy}, value: 50, unit: ns, source: h}
  - {name: issue, for: {backend: miniproxy}, value: 0.1, unit: us, source: h}
  - {name: cqe_host, value: -0.25, unit: us, source: h}
absent:
  - {name: fetch, why: nobody looked}
`

func parse(t *testing.T, text string) *Platform {
	t.Helper()
	p, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPredict(t *testing.T) {
	p := parse(t, tiny)
	for _, tt := range []struct {
		quantity string
		q        Conditions
		value    float64
		formula  string
		none     string
	}{
		{"issue", Conditions{"size": "8"}, 1e-6, "issue", ""},
		{"issue", Conditions{"size": "28"}, 1.1e-6, "issue + segments * issue_segment", ""},
		{"issue", Conditions{"size": "29"}, 1e-6, "issue", ""}, // by pointer
		{"issue", Conditions{"size": "8", "order": "sys-fence"}, 3e-6, "issue", ""},
		{"issue", Conditions{"size": "16", "order": "sys-fence"}, 0, "", "issue{backend=minigda order=sys-fence}: size=16 is outside its validity size=8"},
		{"issue", Conditions{"size": "65"}, 0, "", "issue{backend=minigda}: size=65 is outside its validity size=8..64"},
		{"issue", Conditions{"size": "8", "clock": "2e9"}, 0, "", "issue{backend=minigda}: clock=2e9 is outside its validity clock=1e9"},
		{"issue", Conditions{"size": "8", "backend": "nvshmem"}, 0, "", "tiny has no constant issue for backend=nvshmem"},
		{"issue", Conditions{"size": "8", "batch": "4"}, 200e-9, "wqe + doorbell_wqe / batch", ""},
		{"issue", Conditions{"size": "8", "op": "read"}, 0, "", "op=read has no model, only put has"},
		{"put_completion", Conditions{"size": "8"}, 3e-6, "issue + cqe", ""},
		{"put_completion", Conditions{"size": "8", "scope": "all"}, 3e-6, "issue + cqe", ""},
		{"put_completion", Conditions{"size": "8", "scope": "all", "qps": "4"}, 0, "", "scope=all of qps=4: what polling several queues adds is no constant of tiny"},
		{"put_completion", Conditions{"size": "8", "inline": "off"}, 0, "", "tiny has no constant fetch: nobody looked"},
		{"rtt", Conditions{"size": "8"}, 4e-6, "2 * (issue + arrive * cqe)", ""},
		{"put_completion", Conditions{"size": "8", "queue": "host"}, 2.75e-6, "issue + cqe + cqe_host", ""},
		{"put_completion", Conditions{"backend": "miniproxy", "rings": "4"}, 2.49e-6, "issue + post + ring * rings / workers + wr + cqe", ""},
		{"put_completion", Conditions{"backend": "miniproxy", "rings": "4", "counter": "host"}, 0, "", "counter=host: that of a tuned hand-off is in GPU memory where its constants are from"},
		{"message_rate", Conditions{"backend": "miniproxy", "rings": "8", "workers": "2", "batch": "1"}, 2 / 390e-9, "min(workers / ((post + ring * rings / workers) / batch + wr), nic_rate)", ""},
		{"message_rate", Conditions{"backend": "miniproxy", "rings": "8", "ring_mode": "shared"}, 0, "", "ring_mode=shared: its constants are of rings with one producer each"},
		{"message_rate", Conditions{"backend": "miniproxy", "rings": "64"}, 0, "", "post{backend=miniproxy}: rings=64 is outside its validity rings=1..32"},
		{"message_rate", Conditions{"backend": "miniproxy", "rings": "8", "workers": "8"}, 0, "", "post{backend=miniproxy}: workers=8 is outside its validity workers=1..4"},
		{"message_rate", Conditions{"batch": "1"}, 2e6, "min(threads / (wqe + doorbell_wqe / batch), nic_rate)", ""},
		{"message_rate", Conditions{"batch": "16", "threads": "8", "qps": "8"}, 20e6, "min(threads / (wqe + doorbell_wqe / batch), nic_rate)", ""},
		{"message_rate", Conditions{"batch": "32"}, 0, "", "wqe: batch=32 is outside its validity batch=1..16"},
		{"message_rate", Conditions{"threads": "2"}, 0, "", "threads=2 share qps=1, which sharing=exclusive excludes"},
		{"message_rate", Conditions{"batch": "1", "senders": "3"}, 6e6, "senders * min(threads / (wqe + doorbell_wqe / batch), nic_rate)", ""},
		{"goodput", Conditions{"size": "1950", "threads": "8", "qps": "8", "batch": "16"}, 1950 / 2050. * 10e9, "", ""},
		{"goodput", Conditions{"size": "100", "threads": "8", "qps": "8", "batch": "16"}, 100 * 20e6, "", ""},
		{"goodput_peak", Conditions{"threads": "8", "qps": "8", "batch": "16"}, (1 << 20) / (float64(1<<20) + 1049*50) * 10e9, "", ""},
		{"jitter", Conditions{}, 0, "", "the oracle has no model of jitter"},
	} {
		a := p.Predict(Query{tt.quantity, tt.q.WithDefaults()})
		if a.None != tt.none || math.Abs(a.Value-tt.value) > 1e-9*tt.value || tt.formula != "" && a.Formula != tt.formula {
			t.Errorf("%s %v: %v %q %q, expected %v %q %q", tt.quantity, tt.q, a.Value, a.Formula, a.None, tt.value, tt.formula, tt.none)
		}
		if a.OK() != (tt.none == "") || !a.OK() && (a.Value != 0 || a.Used != nil) {
			t.Errorf("%s %v: no prediction with a number: %+v", tt.quantity, tt.q, a)
		}
	}
	// Constants that give no time give no prediction.
	zero := parse(t, strings.Replace(tiny, "value: 1, unit: us, source: a", "value: 0, unit: us, source: a", 1))
	if a := zero.Predict(Query{"issue", Conditions{"size": "8"}.WithDefaults()}); a.OK() || a.Used != nil {
		t.Errorf("an issue of 0 s: %+v", a)
	}
	// What is not stated is not assumed: only WithDefaults fills in.
	if a := p.Predict(Query{"message_rate", Conditions{"backend": "minigda", "size": "8", "sharing": "exclusive", "order": "gpu-fence", "batch": "1"}}); a.None != "threads is not stated" {
		t.Errorf("without threads: %v %q", a.Value, a.None)
	}
}

// The paper's clock model: T(f) = C/f + B within the clocks it was fitted over.
func TestClock(t *testing.T) {
	p, err := Load("P-RoCE")
	if err != nil {
		t.Fatal(err)
	}
	q := Conditions{"backend": "nvshmem", "path": "ibgda", "api": "public", "size": "8", "clock": "1e9"}
	if a := p.Predict(Query{"issue", q}); math.Abs(a.Value-(10313e-9+1.44e-6)) > 1e-12 {
		t.Errorf("issue at 1 GHz: %v %q", a.Value, a.None)
	}
	for _, clock := range []string{"501e6", "1.98e9", ""} {
		if a := p.Predict(Query{"issue", q.With("clock", clock)}); a.OK() || !strings.Contains(a.None, "clock") {
			t.Errorf("clock=%q: %v %q", clock, a.Value, a.None)
		}
	}
}

func TestExplain(t *testing.T) {
	a := parse(t, tiny).Predict(Query{"rtt", Conditions{"size": "8"}.WithDefaults()})
	want := []string{
		"= 2 * (issue + arrive * cqe)", "= 2 * (1 us + 0.5 * 2 us)",
		"issue{backend=minigda} = 1 us; a; valid for clock=1e9 size=8..64", "arrive = 0.5; d", "cqe = 2 us; d",
	}
	if d := cmp.Diff(want, a.Explain()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// Intervals of independent constants add up as squares, through whatever the formula does with them.
func TestSpread(t *testing.T) {
	p := parse(t, strings.NewReplacer(
		"value: 1, unit: us, source: a", "value: 1, low: 0.7, high: 1.3, unit: us, source: a",
		"value: 2, unit: us, source: d", "value: 2, low: 1.6, high: 2.4, unit: us, source: d").Replace(tiny))
	a := p.Predict(Query{"put_completion", Conditions{"size": "8"}.WithDefaults()})
	if a.Low == nil || math.Abs(*a.Low-2.5e-6) > 1e-12 || math.Abs(*a.High-3.5e-6) > 1e-12 {
		t.Errorf("put_completion: %v, expected 2.5 to 3.5 us", a)
	}
	if a = p.Predict(Query{"rtt", Conditions{"size": "8"}.WithDefaults()}); a.Low == nil || math.Abs(*a.High-a.Value-2*math.Hypot(0.3e-6, 0.2e-6)) > 1e-12 {
		t.Errorf("rtt: %+v", a)
	}
	if a = p.Predict(Query{"message_rate", Conditions{}.WithDefaults()}); a.Low != nil {
		t.Errorf("message_rate has no constant with an interval: %+v", a)
	}
}

func TestWithin(t *testing.T) {
	for _, tt := range []struct {
		value, valid string
		want         bool
	}{
		{"8", "8", true}, {"8.0", "8", true}, {"1K", "1024", true}, {"8", "8..92", true}, {"92", "8..92", true}, {"93", "8..92", false},
		{"cold", "cold|warm", true}, {"hot", "cold|warm", false}, {"4", "1|4..8", true}, {"3", "1|4..8", false}, {"x", "1..2", false},
		{"1.98e9", "1.962e9..1.98e9", true}, {"nan", "0..1", false}, {"inf", "0..1e308", false}, {"gpu-fence", "gpu-fence", true},
	} {
		if got := within(tt.value, tt.valid); got != tt.want {
			t.Errorf("%s within %s: %v", tt.value, tt.valid, got)
		}
	}
}

func TestHuman(t *testing.T) {
	for _, tt := range []struct {
		value float64
		unit  string
		want  string
	}{
		{0.7e-6, "s", "700 ns"}, {4.03e-6, "s", "4.03 us"}, {0.5, "s", "500 ms"}, {2, "s", "2.00 s"}, {260e6, "msg/s", "260 M msg/s"},
		{24.8e9, "B/s", "24.8 GB/s"}, {512, "B", "512 B"}, {0.41, "1", "0.410"}, {0, "s", "0 ns"}, {1e-12, "s", "0.00100 ns"},
	} {
		if got := Human(tt.value, tt.unit); got != tt.want {
			t.Errorf("%g %s: %q, expected %q", tt.value, tt.unit, got, tt.want)
		}
	}
}

// A record is asked about under its own conditions: created resources count for more than what was asked for.
func TestQueryFor(t *testing.T) {
	c := &record.Case{Workload: "op", Axes: map[string]string{"op": "put", "size": "8"}, Backend: "minigda",
		Config:  map[string]string{"order": "auto", "batch": "1", "sharing": "exclusive", "qps": "1", "inline": "auto", "inline_limit": "28"},
		Created: map[string]string{"order": "sys-release", "queue": "host", "kernel.blocks": "1"},
		Host:    map[string]any{"gpu_sm_clock": []any{1.98e9}}, Ranks: 2}
	q, ok := QueryFor(c, "put_completion")
	if !ok || q.Conditions["order"] != "sys-release" || q.Conditions["queue"] != "host" || q.Conditions["clock"] != "1.98e+09" || q.Conditions["threads"] != "1" {
		t.Errorf("%v %v", ok, q.Conditions)
	}
	if _, ok := QueryFor(c, "one_way"); ok {
		t.Error("one_way has a model")
	}
	c.Workload, c.Ranks, c.Facts = "rate", 4, map[string]any{"senders": 2.0}
	if q, ok := QueryFor(c, "message_rate"); !ok || q.Conditions["senders"] != "2" {
		t.Errorf("%v %v", ok, q.Conditions)
	}
}

// The embedded platforms are what Marshal writes, and parse.
func TestEmbedded(t *testing.T) {
	for _, name := range Names() {
		p, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		data, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		again := parse(t, string(data))
		if d := cmp.Diff(p, again); d != "" {
			t.Errorf("%s (-want +got)\n%s", name, d)
		}
	}
}

// Whatever a platform file holds, reading it and predicting from it does not crash, and errors are one line.
func FuzzParse(f *testing.F) {
	f.Add([]byte(tiny))
	f.Add([]byte("schema: gic.platform/1\nname: x\nconstants:\n  - name: cqe\n"))
	f.Add([]byte("constants: [null]"))
	f.Add([]byte("schema: &a gic.platform/1\nname: *a"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse(data)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
			return
		}
		for _, quantity := range Quantities() {
			a := p.Predict(Query{quantity, Conditions{"clock": "1e9", "active": "2"}.WithDefaults()})
			if a.OK() && (!(a.Value > 0) || math.IsInf(a.Value, 0)) {
				t.Errorf("%s is %v", quantity, a.Value)
			}
		}
	})
}

// The published tuned hand-over is a single posted store: it predicts no row that puts a fence before it, which is gic's own
// default on a GPU.
func TestTunedHandOverIsPosted(t *testing.T) {
	p, err := Load("P-IB")
	if err != nil {
		t.Fatal(err)
	}
	for payload, ok := range map[string]bool{"": true, "posted": true, "ordered": false} {
		q := Conditions{"backend": "miniproxy", "handoff": "tuned", "size": "8"}
		if payload != "" {
			q["payload"] = payload
		}
		a := p.Predict(Query{"issue", q.WithDefaults()})
		if a.OK() != ok || !ok && !strings.Contains(a.None, "payload=ordered") {
			t.Errorf("payload=%s: ok %v (%s), want %v", payload, a.OK(), a.None, ok)
		}
	}
}
