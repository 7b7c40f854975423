package exporter

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gic/harness/diff"
	"gic/harness/record"
	"gic/harness/stats"
)

// benchstat builds the benchstat of the module version that go.mod pins. Where that cannot be done the test is
// skipped, but not in CI.
func benchstat(t *testing.T) string {
	t.Helper()
	tool := filepath.Join(t.TempDir(), "benchstat")
	if out, err := exec.Command("go", "build", "-o", tool, "golang.org/x/perf/cmd/benchstat").CombinedOutput(); err != nil {
		text := fmt.Sprintf("cannot build benchstat: %v: %s", err, out)
		if os.Getenv("CI") == "true" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	return tool
}

// benchRow is what benchstat says about one benchmark in one unit.
type benchRow struct {
	old, new float64
	vs       string // "~", "+1.5%", "-2%"
	p        float64
	n        string
}

// runBenchstat compares two exports. A word of complaint is an error: warnings that a result lacks samples or that
// all are equal are no complaints about the file.
func runBenchstat(t *testing.T, tool, before, after string) map[string]benchRow {
	t.Helper()
	cmd := exec.Command(tool, "-format", "csv", before, after)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) || err != nil {
		t.Fatalf("benchstat: %v: %s", err, stderr.String())
	}
	for line := range strings.Lines(stderr.String()) {
		if !strings.Contains(line, "need >=") && !strings.Contains(line, "all samples are equal") {
			t.Errorf("benchstat complains: %s", line)
		}
	}
	rows := map[string]benchRow{}
	r := csv.NewReader(strings.NewReader(string(out)))
	r.FieldsPerRecord = -1
	lines, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	unit := ""
	for _, f := range lines {
		switch {
		case len(f) != 7 || f[0] == "geomean":
		case f[0] == "":
			unit = f[1]
		default:
			row := benchRow{vs: f[5]}
			row.old, row.new = number(t, f[1]), number(t, f[3])
			p, n, _ := strings.Cut(strings.TrimPrefix(f[6], "p="), " ")
			row.p, row.n = number(t, p), n
			rows[f[0]+" "+unit] = row
		}
	}
	return rows
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatalf("benchstat printed %q for a number", text)
	}
	return v
}

// benchstat reads the export of two run sets, counts as many samples as there were process runs, finds the same
// medians, and agrees with harness/stats and with `gic diff` about what changed, in which direction.
func TestBenchstatAgrees(t *testing.T) {
	tool := benchstat(t)
	const repeat = 12
	effects := map[string]effect{"faster": {0.8, 0.01}, "slower": {1.3, 0.01}, "same": {1, 0.01}, "noisy": {1.03, 0.3}}
	base := map[string]effect{}
	for op, e := range effects {
		base[op] = effect{1, e.noise}
	}
	before, after := synth("old", 3, repeat, base), synth("new", 4, repeat, effects)
	dir := t.TempDir()
	files := map[string]string{}
	for name, run := range map[string]Run{"old": before, "new": after} {
		for _, c := range run.Cases {
			for i := range c.Metrics {
				c.Metrics[i].Headline = true
			}
		}
		files[name] = filepath.Join(dir, name+".txt")
		if err := os.WriteFile(files[name], []byte(export(t, "benchfmt", run)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	rows := runBenchstat(t, tool, files["old"], files["new"])
	verdicts := diffVerdicts(t, before, after)
	direction := map[string]string{"faster": "-", "slower": "+", "same": "~", "noisy": "~"}
	for op := range effects {
		for _, metric := range []string{"rtt", "message_rate", "goodput"} {
			a, b, first := values(before, op, metric), values(after, op, metric), example(before, op)
			unit := ""
			for i := range first.Metrics {
				if first.Metrics[i].Name == metric {
					unit = benchUnit(&first.Metrics[i])
				}
			}
			row, ok := rows[BenchName(first)+" "+unit]
			if !ok {
				t.Errorf("benchstat has no row %s %s: %v", BenchName(first), unit, rows)
				continue
			}
			c, err := stats.Compare(a, b)
			if err != nil {
				t.Fatal(err)
			}
			if row.n != fmt.Sprintf("n=%d", repeat) {
				t.Errorf("%s %s: benchstat counts %s, want %d process runs", op, metric, row.n, repeat)
			}
			if apart(row.old, c.Old.Median) || apart(row.new, c.New.Median) {
				t.Errorf("%s %s: benchstat's medians %g, %g; ours %g, %g", op, metric, row.old, row.new, c.Old.Median, c.New.Median)
			}
			if off := row.p - c.P; off < -0.001 || off > 0.001 { // it prints three decimals
				t.Errorf("%s %s: benchstat's p %g, ours %g", op, metric, row.p, c.P)
			}
			want := direction[op]
			if metric != "rtt" && want != "~" { // of a rate, more is better
				want = map[string]string{"-": "+", "+": "-"}[want]
			}
			if row.vs[:1] != want {
				t.Errorf("%s %s: benchstat says %s, the change was made %s", op, metric, row.vs, want)
			}
			significant := map[bool]string{true: "changed", false: "~"}
			if mine := c.P < 0.05; significant[mine] != significant[row.vs != "~"] {
				t.Errorf("%s %s: benchstat says %s, harness/stats p=%g", op, metric, row.vs, c.P)
			}
			verdict := verdicts[op+" "+metric]
			wantVerdict := map[string][]diff.Verdict{"faster": {diff.Better}, "slower": {diff.Worse}, "same": {diff.Same, diff.Unclear}, "noisy": {diff.Same, diff.Unclear}}[op]
			if !slices.Contains(wantVerdict, verdict) {
				t.Errorf("%s %s: gic diff says %q, benchstat %s: want one of %v", op, metric, verdict, row.vs, wantVerdict)
			}
		}
	}
}

func apart(a, b float64) bool { return a/b-1 > 1e-6 || a/b-1 < -1e-6 }

func example(run Run, op string) *record.Case {
	for _, c := range run.Cases {
		if c.Axes["op"] == op {
			return c
		}
	}
	return nil
}

// values are one per process run.
func values(run Run, op, metric string) []float64 {
	var out []float64
	for _, c := range run.Cases {
		for _, m := range c.Metrics {
			if c.Axes["op"] == op && m.Name == metric {
				out = append(out, m.P50)
			}
		}
	}
	return out
}

// diffVerdicts is what `gic diff` says, by operation and metric.
func diffVerdicts(t *testing.T, before, after Run) map[string]diff.Verdict {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, run Run) string {
		path := filepath.Join(dir, name+".jsonl")
		w, err := record.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		err = w.Write(run.Header)
		for _, c := range run.Cases {
			if err == nil {
				err = w.Write(c)
			}
		}
		if err = errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a, err := diff.NewSet("old", "p50")
	if err != nil {
		t.Fatal(err)
	}
	b, err := diff.NewSet("new", "p50")
	if err != nil {
		t.Fatal(err)
	}
	if err := diff.Load(a, b, []string{write("old", before)}, []string{write("new", after)}, nil, nil); err != nil {
		t.Fatal(err)
	}
	r, err := diff.Compare(a, b, diff.Options{Alpha: 0.05})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]diff.Verdict{}
	for _, p := range r.Pairs {
		op := ""
		for _, kv := range p.Old.Keys {
			if kv.Key == "workload.op" {
				op = kv.Value
			}
		}
		for _, m := range p.Metrics {
			out[op+" "+m.Name] = m.Verdict
		}
	}
	return out
}
