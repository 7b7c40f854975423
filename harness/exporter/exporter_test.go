package exporter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gic/backends"
	"gic/harness/importer"
	"gic/harness/record"
	"gic/workloads"
)

var start = time.Date(2026, 11, 29, 17, 30, 0, 0, time.UTC)

// effect is how a case's median moves from one run set to another, and how much process runs scatter.
type effect struct{ scale, noise float64 }

// synth makes a run set of several cases, the metrics of each scaled by its effect.
func synth(id string, seed uint64, repeat int, effects map[string]effect) Run {
	rng := rand.New(rand.NewPCG(seed, 1))
	run := Run{Header: &record.Header{
		Type: "run", Schema: record.Schema, ID: id, Time: start, Gic: "test", Command: []string{"gic"}, Launch: "local", Ranks: 2,
		Repeat: repeat, Host: record.Machine{Hostname: "laptop", OS: "linux", Kernel: "6", CPU: map[string]any{"model": "A CPU"}},
	}}
	var ops []string
	for op := range effects {
		ops = append(ops, op)
	}
	slices.Sort(ops)
	for i := range repeat {
		for _, op := range ops {
			e := effects[op]
			c := &record.Case{
				Type: "case", Index: i, Order: len(run.Cases), Workload: "op", Axes: map[string]string{"op": op, "size": "8"},
				Backend: "minigda", Config: map[string]string{"batch": "16", "size": "x y/z%"}, NIC: "soft",
				NICConfig: map[string]string{"engine": "cpu"}, Device: "host", Ranks: 2, Seed: 3,
				Start: start.Add(time.Duration(len(run.Cases)) * time.Second), Duration: 0.5, Status: record.OK,
				Counters: []backends.Counter{{Name: "doorbells", Unit: "1", Value: 63, Exact: true}},
				Verify:   &workloads.Verification{Checked: 64},
			}
			drift := math.Exp(e.noise * rng.NormFloat64())
			for _, m := range []workloads.Metric{
				{Name: "rtt", Unit: "s", Class: workloads.Time, Samples: ops100(3e-6*e.scale*drift, rng)},
				{Name: "message_rate", Unit: "msg/s", Class: workloads.Rate, Samples: []float64{2e7 / e.scale / drift}},
				{Name: "goodput", Unit: "B/s", Class: workloads.Bandwidth, Samples: []float64{5e9 / e.scale / drift}},
			} {
				metric, err := record.FromSamples(m.Name, m.Unit, m.Class, m.Samples)
				if err != nil {
					panic(err)
				}
				c.Metrics = append(c.Metrics, metric)
			}
			c.ID = record.CaseID(c)
			run.Cases = append(run.Cases, c)
		}
	}
	return run
}

func ops100(v float64, rng *rand.Rand) []float64 {
	out := make([]float64, 50)
	for i := range out {
		out[i] = v * math.Exp(0.05*rng.NormFloat64())
	}
	return out
}

func export(t testing.TB, format string, runs ...Run) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, format, runs); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A benchfmt export is imported again as what it was: the same cases under the same IDs, as many process runs, the
// same values to the last bit.
func TestBenchfmtRoundTrip(t *testing.T) {
	run := synth("a", 1, 3, map[string]effect{"put": {1, 0.01}, "read": {2, 0.01}})
	odd := *run.Cases[0]
	odd.Workload, odd.Backend, odd.Axes = "Odd-work", "collectivex/x y", map[string]string{"matrix": "file:/tmp/a b%20", "size": "8-4"}
	odd.Seed, odd.ID = 3, ""
	odd.ID = record.CaseID(&odd)
	share, err := record.FromSamples("waiting_loss", "1", workloads.Number, []float64{0.188})
	if err != nil {
		t.Fatal(err)
	}
	odd.Metrics = append(slices.Clone(odd.Metrics), share)
	run.Cases = append(run.Cases, &odd)
	text := export(t, "benchfmt", run)
	if strings.Contains(text, "Unit waiting_loss-1 better") {
		t.Errorf("a number has no better direction:\n%s", text)
	}
	r, err := importer.Parse("x", []byte(text), importer.Options{})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if len(r.Problems)+len(r.Notes) > 0 {
		t.Errorf("problems %v, notes %v\n%s", r.Problems, r.Notes, text)
	}
	if len(r.Cases) != len(run.Cases) {
		t.Fatalf("%d cases, want %d", len(r.Cases), len(run.Cases))
	}
	type flat struct {
		ID      string
		Index   int
		Metrics map[string]float64
	}
	flatten := func(c *record.Case) flat {
		f := flat{c.ID, c.Index, map[string]float64{}}
		for _, m := range c.Metrics {
			f.Metrics[m.Name] = m.P50
			if m.N > 1 {
				f.Metrics[m.Name+"_p99"] = m.P99
			}
		}
		return f
	}
	for i, c := range run.Cases {
		if diff := cmp.Diff(flatten(c), flatten(r.Cases[i])); diff != "" {
			t.Errorf("case %d (-exported +imported):\n%s", i, diff)
		}
	}
}

// A csv export gives one row per case again, its value the median over process runs; one of nccl-tests the times as
// far as that format has digits.
func TestTableRoundTrip(t *testing.T) {
	run := synth("a", 1, 3, map[string]effect{"put": {1, 0.01}, "read": {2, 0.01}})
	for _, c := range run.Cases {
		delete(c.Config, "size") // spaces are no part of a table's label
		c.Axes["size"] = "65536" // of 8 bytes, nccl-tests' digits leave nothing
		c.ID = record.CaseID(c)
	}
	for _, format := range []string{"csv", "nccl-tests"} {
		r, err := importer.Parse("x", []byte(export(t, format, run)), importer.Options{})
		if err != nil {
			t.Fatalf("%s: %v", format, err)
		}
		if len(r.Problems) > 0 {
			t.Errorf("%s: %v", format, r.Problems)
		}
		rows := map[string]*record.Case{}
		for _, c := range r.Cases {
			rows[c.Axes["op"]] = c
		}
		for op, scale := range map[string]float64{"put": 1, "read": 2} {
			c := rows[op]
			if c == nil || c.Backend != "minigda" || c.NIC != "soft" || c.Device != "host" || c.Ranks != 2 {
				t.Errorf("%s: row of %s is %+v", format, op, c)
				continue
			}
			if format == "csv" && c.ID != run.Cases[0].ID && c.ID != run.Cases[1].ID {
				t.Errorf("csv: case %s is none of the exported", c.ID)
			}
			found := false
			for _, m := range c.Metrics {
				want, ok := map[string]float64{"rtt": 3e-6 * scale, "message_rate": 2e7 / scale, "goodput": 5e9 / scale}[m.Name]
				found = found || ok
				if ok && math.Abs(m.P50/want-1) > 0.1 {
					t.Errorf("%s: %s of %s is %g, want about %g", format, m.Name, op, m.P50, want)
				}
			}
			if !found {
				t.Errorf("%s: no metric of %s", format, op)
			}
		}
	}
}

var promLine = regexp.MustCompile(`^([a-z_]+)\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*",?)*)\} (\S+)$`)

// Every line of the Prometheus export is one of the text format: HELP and TYPE once and before the samples of
// their family, which stand together; no two samples have the same labels; the numbers are in base units.
func TestPrometheus(t *testing.T) {
	run := synth("a", 1, 3, map[string]effect{"put": {1, 0.01}})
	tricky := *run.Cases[0]
	tricky.Backend, tricky.Status, tricky.Reason, tricky.Metrics = "a\"b\\c\nd\xff", record.Skipped, "no", nil
	tricky.ID = record.CaseID(&tricky)
	run.Cases = append(run.Cases, &tricky)
	text := export(t, "prometheus", run)
	done, current := map[string]bool{}, ""
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, _, _ := strings.Cut(rest, " ")
			if done[name] {
				t.Errorf("HELP of %s twice", name)
			}
			done[name], current = true, name
			continue
		}
		if strings.HasPrefix(line, "# TYPE ") {
			if line != "# TYPE "+current+" gauge" {
				t.Errorf("line %q inside %s", line, current)
			}
			continue
		}
		m := promLine.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("not a line of the format: %q", line)
			continue
		}
		if m[1] != current {
			t.Errorf("%s among the samples of %s", m[1], current)
		}
		if v, err := strconv.ParseFloat(m[3], 64); err != nil || v <= 0 {
			t.Errorf("value of %q", line)
		}
		if seen[m[1]+m[2]] {
			t.Errorf("sample %q twice", line)
		}
		seen[m[1]+m[2]] = true
	}
	for _, want := range []string{
		`metric="rtt",stat="median"} 3`, "gic_rate_messages_per_second{", "gic_bandwidth_bytes_per_second{", `axis_op="put"`, `backend_batch="16"`,
		`counter="doorbells",unit="1",exact="true"} 63`, `backend="a\"b\\c\nd` + "\ufffd", `status="skipped"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// Two keys that become one label are refused: one of them would be lost.
func TestPrometheusLabelClash(t *testing.T) {
	run := synth("a", 1, 1, map[string]effect{"put": {1, 0}})
	run.Cases[0].Config = map[string]string{"a.b": "1", "a_b": "2"}
	if err := Write(&bytes.Buffer{}, "prometheus", []Run{run}); err == nil || !strings.Contains(err.Error(), "backend_a_b") {
		t.Errorf("error %v", err)
	}
}

type trace struct {
	Events []struct {
		Name  string         `json:"name"`
		Phase string         `json:"ph"`
		Time  float64        `json:"ts"`
		Dur   *float64       `json:"dur"`
		TID   int            `json:"tid"`
		ID    string         `json:"id"`
		Args  map[string]any `json:"args"`
	} `json:"traceEvents"`
}

func TestPerfetto(t *testing.T) {
	run := synth("a", 1, 2, map[string]effect{"put": {1, 0.01}, "read": {2, 0.01}})
	other := *run.Cases[0]
	other.Backend, other.Start, other.Order = "fake", time.Time{}, 9
	other.ID = record.CaseID(&other)
	run.Cases = append(run.Cases, &other)
	var tr trace
	if err := json.Unmarshal([]byte(export(t, "perfetto", run)), &tr); err != nil {
		t.Fatal(err)
	}
	var slices, counters []string
	for _, e := range tr.Events {
		switch e.Phase {
		case "X":
			slices = append(slices, fmt.Sprintf("%s tid %d at %.0f for %.0f", e.Name, e.TID, e.Time, *e.Dur))
		case "C":
			counters = append(counters, fmt.Sprintf("%s %v", e.Name, e.Args["value"]))
		}
	}
	want := []string{
		"op ok tid 1 at 0 for 500000", "op ok tid 1 at 1000000 for 500000", "op ok tid 1 at 2000000 for 500000", "op ok tid 1 at 3000000 for 500000",
		"op ok tid 2 at 0 for 500000",
	}
	if diff := cmp.Diff(want, slices); diff != "" {
		t.Errorf("slices (-want +got):\n%s", diff)
	}
	if len(counters) != 5 || counters[0] != "minigda doorbells 63" {
		t.Errorf("counters %v", counters)
	}
}

func TestLoad(t *testing.T) {
	run := synth("a", 1, 2, map[string]effect{"put": {1, 0.01}})
	path := filepath.Join(t.TempDir(), "run.jsonl")
	w, err := record.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	again := *run.Cases[1]
	again.Duration = 9
	for _, r := range []record.Record{run.Header, run.Cases[0], run.Cases[1], run.Header, &again} {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString("{\"type\":\"ca")
	f.Close()
	runs, bad, err := Load([]string{path})
	if err != nil || len(runs) != 1 || len(runs[0].Cases) != 2 || runs[0].Cases[1].Duration != 9 || len(bad) != 1 || !bad[0].Torn {
		t.Errorf("runs %+v, bad %v, error %v: want one run, its repeated record once, one torn line", runs, bad, err)
	}
	if err := Write(&bytes.Buffer{}, "wonder", runs); err == nil || !strings.Contains(err.Error(), "use one of benchfmt, csv") {
		t.Errorf("unknown format: %v", err)
	}
}
