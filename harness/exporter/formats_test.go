package exporter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"gic/harness/record"
	"gic/minigda/nictrace"
)

// measured are the runs of a committed result.
func measured(t *testing.T) []Run {
	t.Helper()
	runs, bad, err := Load([]string{"../../results/2026-11-29-h200/paper-gpu/run.jsonl"})
	if err != nil || bad != nil {
		t.Fatal(err, bad)
	}
	return runs
}

// Prometheus' own parser reads the export, finds each line, and gets the labels and values that went in.
func TestPrometheusParserReadsIt(t *testing.T) {
	odd := synth("a", 1, 3, map[string]effect{"put": {1, 0.01}})
	tricky := *odd.Cases[0]
	tricky.Backend, tricky.Status, tricky.Reason, tricky.Metrics = "a\"b\\c\nd\xff", record.Skipped, "no", nil
	tricky.ID = record.CaseID(&tricky)
	odd.Cases = append(odd.Cases, &tricky)
	for name, runs := range map[string][]Run{"synthetic": {odd}, "h200": measured(t)} {
		text := export(t, "prometheus", runs...)
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		samples := 0
		backends := map[string]bool{}
		for _, f := range families {
			if f.GetType() != dto.MetricType_GAUGE || f.GetHelp() == "" {
				t.Errorf("%s: %s is a %v, help %q", name, f.GetName(), f.GetType(), f.GetHelp())
			}
			for _, m := range f.Metric {
				samples++
				if v := m.GetGauge().GetValue(); math.IsNaN(v) || v < 0 {
					t.Errorf("%s: %s is %v", name, f.GetName(), v)
				}
				for _, l := range m.Label {
					if l.GetName() == "backend" {
						backends[l.GetValue()] = true
					}
				}
			}
		}
		lines := 0
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "#") {
				lines++
			}
		}
		if samples != lines || lines < 10 {
			t.Errorf("%s: %d samples in %d lines", name, samples, lines)
		}
		if want := "a\"b\\c\nd\ufffd"; name == "synthetic" && !backends[want] {
			t.Errorf("no backend %q among %v", want, backends)
		}
	}
}

// checkEvents holds a trace to the Trace Event Format (JSON object form): what each phase must have, of what type, and
// that the slices of a thread lie beside or inside each other, since viewers draw nothing else.
func checkEvents(t *testing.T, text []byte) (phases map[string]int) {
	t.Helper()
	var tr struct {
		Unit   string           `json:"displayTimeUnit"`
		Events []map[string]any `json:"traceEvents"`
	}
	if err := json.Unmarshal(text, &tr); err != nil || tr.Unit != "ns" && tr.Unit != "ms" {
		t.Fatal(err, tr.Unit)
	}
	type track struct{ pid, tid float64 }
	type slice struct{ from, to float64 }
	slices_, open, named := map[track][]slice{}, map[string]float64{}, map[track]bool{}
	phases = map[string]int{}
	for i, e := range tr.Events {
		number := func(key string) float64 {
			v, ok := e[key].(float64)
			if !ok || v < 0 {
				t.Errorf("event %d: %s is %v: %v", i, key, e[key], e)
			}
			return v
		}
		name, _ := e["name"].(string)
		phase, _ := e["ph"].(string)
		args, _ := e["args"].(map[string]any)
		at := track{number("pid"), number("tid")}
		ts := number("ts")
		if name == "" || at.pid != math.Trunc(at.pid) || at.tid != math.Trunc(at.tid) {
			t.Errorf("event %d has no name or no whole pid and tid: %v", i, e)
		}
		phases[phase]++
		switch phase {
		case "M":
			if n, ok := args["name"].(string); !ok || n == "" || !slices.Contains([]string{"process_name", "thread_name"}, name) {
				t.Errorf("event %d names nothing: %v", i, e)
			}
			named[at] = true
		case "X":
			slices_[at] = append(slices_[at], slice{ts, ts + number("dur")})
			if !named[at] {
				t.Errorf("event %d is on a track without a name: %v", i, e)
			}
		case "C":
			for k, v := range args {
				if _, ok := v.(float64); !ok {
					t.Errorf("event %d: counter %s is %v", i, k, v)
				}
			}
			if len(args) == 0 {
				t.Errorf("event %d counts nothing: %v", i, e)
			}
		case "i":
			if s, ok := e["s"]; ok && s != "g" && s != "p" && s != "t" {
				t.Errorf("event %d: scope %v", i, s)
			}
		case "b", "e":
			key := fmt.Sprint(e["cat"], e["id"], at.pid)
			if e["cat"] == nil || e["id"] == nil {
				t.Errorf("event %d: no category or id: %v", i, e)
			}
			if start, ok := open[key]; phase == "e" && (!ok || ts < start) {
				t.Errorf("event %d ends what did not begin: %v", i, e)
			}
			if delete(open, key); phase == "b" {
				open[key] = ts
			}
		default:
			t.Errorf("event %d: phase %q", i, phase)
		}
	}
	for key := range open {
		t.Errorf("%s does not end", key)
	}
	for at, list := range slices_ {
		slices.SortFunc(list, func(a, b slice) int {
			if a.from != b.from {
				return int(math.Copysign(1, a.from-b.from))
			}
			return int(math.Copysign(1, b.to-a.to))
		})
		var around []slice
		for _, s := range list {
			for len(around) > 0 && around[len(around)-1].to <= s.from {
				around = around[:len(around)-1]
			}
			if n := len(around); n > 0 && s.to > around[n-1].to+0.001 {
				t.Errorf("track %v: %v and %v overlap", at, around[n-1], s)
			}
			around = append(around, s)
		}
	}
	return phases
}

func TestPerfettoIsTraceEventFormat(t *testing.T) {
	runs := measured(t)
	phases := checkEvents(t, []byte(export(t, "perfetto", runs...)))
	if phases["X"] != len(runs[0].Cases) || phases["C"] == 0 || phases["M"] < 3 {
		t.Errorf("events %v for %d cases", phases, len(runs[0].Cases))
	}
	var out bytes.Buffer
	in := &nictrace.Trace{Ranks: 1, QPs: []nictrace.QP{{Number: 7}}, Records: []nictrace.Record{
		{Time: 1000, Kind: nictrace.Doorbell, Index: 1}, {Time: 2000, Kind: nictrace.WQE, Opcode: nictrace.RDMAWrite},
		{Time: 3000, Kind: nictrace.CQE}, {Time: 4000, Kind: nictrace.WQE, Index: 1, Opcode: nictrace.RDMARead}, {Time: 5000, QP: -1, Kind: nictrace.Mark},
	}}
	if err := WriteTrace(&out, in); err != nil {
		t.Fatal(err)
	}
	if phases := checkEvents(t, out.Bytes()); phases["b"] != 1 || phases["e"] != 1 || phases["i"] != 3 {
		t.Errorf("events %v of a NIC trace", phases)
	}
}
