package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gic/backends"
	"gic/harness/attribution/replay"
	"gic/harness/record"
)

func readCases(t *testing.T, dir string) []*record.Case {
	t.Helper()
	var list []*record.Case
	for rec, err := range record.ReadFile(filepath.Join(dir, "run.jsonl")) {
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := rec.(*record.Case); ok {
			list = append(list, c)
		}
	}
	return list
}

// A traced run, replayed: every row has a replay with the row's exact counters, doorbells included, and its payload
// arrived; and gic attribute shows the replay's account.
func TestReplay(t *testing.T) {
	withPlugins(t)
	_, err := os.Stat(filepath.Join(buildDir(t), "libreplay.so"))
	needs(t, "the plugins are built by make", err)
	dir := t.TempDir()
	t.Setenv(traceDirEnv, "") // the traces go into the folder of the run
	traced, out := filepath.Join(dir, "traced"), filepath.Join(dir, "out")
	status, _, stderr := gic(t, "run", "--workload", "op:op=put|put_signal|atomic|read,size=8|100,iterations=40,rounds=3,posts=64,warmup=5,timer_check=1",
		"--workload", "rate:threads=2,messages=200,warmup=20", "--workload", "alltoall:iterations=5,warmup=1",
		"--backend", "minigda:batch=1|4,qps=2,signal_every=3", "--backend", "miniproxy", "--nic", "soft:trace=on", "--repeat", "1", "--ranks", "3", "--out", traced)
	if status != 0 {
		t.Fatalf("traced run: status %d: %s", status, stderr)
	}
	if left, _ := filepath.Glob("*.trace"); left != nil || os.Getenv(traceDirEnv) != "" {
		t.Errorf("traces in the current folder: %v; %s=%s", left, traceDirEnv, os.Getenv(traceDirEnv))
	}
	if err := os.Rename(traced, traced+"-moved"); err != nil { // and with it
		t.Fatal(err)
	}
	traced += "-moved"
	if status, _, stderr = gic(t, "replay", traced, "--out", out, "--repeat", "1"); status != 0 {
		t.Fatalf("replay: status %d: %s", status, stderr)
	}
	was := slices.DeleteFunc(readCases(t, traced), func(c *record.Case) bool { return c.Status == record.Skipped }) // atomics have one size
	rows := map[string]*record.Case{}
	for _, c := range was {
		rows[c.Workload+record.CaseID(&record.Case{Axes: c.Axes})+replay.Key(c)] = c
	}
	replays := 0
	for _, c := range readCases(t, out) {
		if c.Backend != replay.Backend {
			continue
		}
		replays++
		row := rows[c.Workload+record.CaseID(&record.Case{Axes: c.Axes})+c.Config["of"]]
		if row == nil {
			t.Errorf("a replay of no row: %v", c.Config)
			continue
		}
		if c.Status != record.OK || c.Verify == nil || c.Verify.Wrong != 0 {
			t.Errorf("replay of %s %v %v: %s %s", row.Backend, row.Axes, row.Config, c.Status, c.Reason)
			continue
		}
		for _, want := range row.Counters {
			if got := counterOf(c, want.Name); got != nil && want.Exact && got.Value != want.Value {
				t.Errorf("replay of %s %v: %s is %d, the row had %d", row.Backend, row.Axes, want.Name, got.Value, want.Value)
			}
		}
		for i := range row.Metrics {
			if len(c.Metrics) != len(row.Metrics) || c.Metrics[i].Name != row.Metrics[i].Name {
				t.Errorf("replay of %s: metrics %d of %d", row.Backend, len(c.Metrics), len(row.Metrics))
				break
			}
		}
	}
	if replays != len(was) || replays == 0 {
		t.Errorf("%d replays of %d rows", replays, len(was))
	}
	status, stdout, stderr := gic(t, "attribute", out, "--as", "minigda:batch=4", "--format", "json")
	if status != 0 || !json.Valid([]byte(stdout)) || !strings.Contains(stdout, "the replay of this row's trace") {
		t.Errorf("attribute: status %d: %s", status, stderr)
	}
}

func counterOf(c *record.Case, name string) *backends.Counter {
	for i := range c.Counters {
		if c.Counters[i].Name == name {
			return &c.Counters[i]
		}
	}
	return nil
}

// What no trace of a run is, is refused by the rank that finds it, in one line.
func TestReplayBadTraces(t *testing.T) {
	withPlugins(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"bad": "SNTRACE2, but no more", "old": "SNTRACE1 and what it had"} {
		for _, rank := range []string{"0", "1"} {
			if err := os.WriteFile(filepath.Join(dir, name+"-nic"+rank+"-0.trace"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for file, want := range map[string]string{
		"bad-nic0-0.trace":  "its checksum is wrong",
		"old-nic0-0.trace":  `version "1"; allowed: "2"`,
		"gone-nic0-0.trace": "No such file",
	} {
		out := filepath.Join(dir, file+".run")
		_, _, _ = gic(t, "run", "--workload", "op:size=8", "--backend", "replay:trace="+filepath.Join(dir, file), "--repeat", "1", "--out", out)
		for _, c := range readCases(t, out) {
			if c.Backend == replay.Backend && c.Status == record.OK || !strings.Contains(c.Reason, want) || strings.Contains(c.Reason, "\n") {
				t.Errorf("%s: %s %q, want %q", file, c.Status, c.Reason, want)
			}
		}
	}
}

// A configuration that makes no sense starts nothing.
func TestReplayOfRankOne(t *testing.T) {
	withPlugins(t)
	status, _, stderr := gic(t, "run", "--workload", "op:size=8", "--backend", "replay:trace=/tmp/x-nic1-0.trace", "--out", filepath.Join(t.TempDir(), "out"))
	if status != 2 || !strings.Contains(stderr, "is not the trace of rank 0: want ...-nic0-N.trace") {
		t.Errorf("status %d: %s", status, stderr)
	}
}

func TestReplayBadInput(t *testing.T) {
	dir := t.TempDir()
	untraced := filepath.Join(dir, "run")
	if err := os.Mkdir(untraced, 0o755); err != nil {
		t.Fatal(err)
	}
	w, err := record.Create(filepath.Join(untraced, "run.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(&record.Header{ID: "x", Schema: record.Schema, Command: []string{"gic", "run"}, Launch: "local", Ranks: 2, Repeat: 1}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "at least one DIR or FILE"},
		{[]string{filepath.Join(dir, "none")}, "no such file"},
		{[]string{untraced}, "trace a run with --nic soft:trace=on"},
		{[]string{untraced, "--wonder"}, "unknown flag --wonder"},
	} {
		status, stdout, stderr := gic(t, append([]string{"replay"}, c.args...)...)
		if status != 2 || stdout != "" || !strings.Contains(stderr, c.want) || strings.Count(strings.TrimSpace(stderr), "\n") != 0 {
			t.Errorf("%v: status %d, stdout %q, stderr %q, want one line with %q", c.args, status, stdout, stderr, c.want)
		}
	}
	status, stdout, _ := gic(t, "replay", "-h")
	if status != 0 {
		t.Errorf("help: status %d", status)
	}
	narrow(t, "help-replay", stdout)
	golden(t, "help-replay", stdout)
}
