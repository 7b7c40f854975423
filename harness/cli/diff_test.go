package cli

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	gocmp "github.com/google/go-cmp/cmp"

	"gic/backends"
	"gic/harness/record"
	"gic/workloads"
)

// fixture writes runs with round numbers below the working directory, which becomes a temporary one: old and new
// differ in one doorbell count and one time, batch1 in the batch of all cases.
func fixture(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	t.Setenv("GIC_RESULTS", "store")
	fixtureRun(t, "old", 0, func(*record.Case) float64 { return 1 })
	fixtureRun(t, "new", 1, func(c *record.Case) float64 {
		if c.Axes["size"] == "8" && c.Backend == "minigda" {
			c.Counters[0].Value = 1000
		}
		if c.Axes["size"] == "64" && c.Backend == "miniproxy" {
			return 1.5
		}
		return 1
	})
	fixtureRun(t, "batch1", 2, func(c *record.Case) float64 {
		c.Config["batch"] = "1"
		if c.Backend == "minigda" {
			c.Counters[0].Value = 1000
		}
		return 1
	})
}

func fixtureRun(t *testing.T, dir string, day int, change func(c *record.Case) float64) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w, err := record.Create(filepath.Join(dir, record.FileName))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 3, 1+day, 12, 0, 0, 0, time.UTC)
	const repeat = 7
	h := &record.Header{ID: "run-" + dir, Time: start, Gic: "v1", Command: []string{"gic", "run"}, Suite: "quick", Seed: 1, Ranks: 2, Repeat: repeat,
		Cases: repeat * 5, Launch: "local", Host: record.Machine{Hostname: "node1", OS: "Linux", Kernel: "6.1", CPU: map[string]any{"model": "Test CPU", "cpus": 8}}}
	if err := w.Write(h); err != nil {
		t.Fatal(err)
	}
	for index := range repeat {
		for i, backend := range []string{"minigda", "miniproxy", "minigda", "miniproxy", "nvshmem"} {
			c := &record.Case{
				Index: index, Order: index*5 + i, Workload: "op", Axes: map[string]string{"op": "put", "size": []string{"8", "64"}[i/2%2]},
				Backend: backend, Config: map[string]string{"batch": "16"}, NIC: "soft", NICConfig: map[string]string{"profile": "none"},
				Device: "host", Ranks: 2, Seed: 1, Start: start.Add(time.Duration(index*5+i) * time.Second), Status: record.OK, Messages: 1000,
				Counters: []backends.Counter{{Name: "doorbells", Unit: "1", Value: 100, Exact: true}, {Name: "wqes", Unit: "1", Value: 1000, Exact: true}},
				Host:     map[string]any{"cpus": 8},
			}
			by := change(c)
			m, err := record.FromSamples("rtt", "s", workloads.Time, []float64{by * 2e-6 * (1 + float64((index*3+i+day)%7)/1000)})
			if err != nil {
				t.Fatal(err)
			}
			m.Headline = true
			c.Metrics = []record.Metric{m}
			if backend == "nvshmem" {
				c.Status, c.Reason, c.Metrics, c.Counters = record.Skipped, "nvshmem needs a CUDA device", nil, nil
			}
			if err := w.Write(c); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestGoldenResults holds what the commands over results print, at 100 columns.
func TestGoldenResults(t *testing.T) {
	here, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	fixture(t)
	for _, tc := range []struct {
		name   string
		args   []string
		status int
	}{
		{"diff-table", []string{"diff", "old", "new"}, 1},
		{"diff-markdown", []string{"diff", "old", "new", "--format", "markdown"}, 1},
		{"diff-json", []string{"diff", "old", "new", "--format", "json", "--filter", "workload.size:8 backend:minigda"}, 1},
		{"diff-junit", []string{"diff", "old", "new", "--format", "junit"}, 1},
		{"diff-github", []string{"diff", "old", "new", "--format", "github"}, 1},
		{"diff-clean", []string{"diff", "old", "old"}, 0},
		{"diff-across", []string{"diff", "old", "batch1", "--across", "backend.batch"}, 1},
		{"diff-no-pair", []string{"diff", "old", "batch1", "--filter", "-backend:nvshmem"}, 3},
		{"results-list", []string{"results", "list", "."}, 0},
		{"results-query", []string{"results", "query", ".", "--filter", "backend:(minigda OR miniproxy)", "--row", "workload.size@num", "--col", "backend,backend.batch"}, 0},
		{"results-prune", []string{"results", "prune", ".", "--keep", "2"}, 0},
		{"results-verify", []string{"results", "verify", "old", "new"}, 0},
		{"history", []string{"history", "backend:minigda workload.size:8", "."}, 0},
		{"help-diff", []string{"diff", "--help"}, 0},
		{"help-results", []string{"results", "query", "-h"}, 0},
		{"help-baseline", []string{"baseline", "save", "-h"}, 0},
		{"help-history", []string{"help", "history"}, 0},
	} {
		status, stdout, stderr := gic(t, tc.args...)
		if status != tc.status || stderr != "" {
			t.Errorf("%s: status %d, want %d; stderr %q", tc.name, status, tc.status, stderr)
		}
		for line := range strings.SplitSeq(stdout, "\n") {
			if n := len([]rune(line)); n > width && !slices.Contains([]string{"diff-markdown", "diff-json", "diff-junit", "diff-github"}, tc.name) {
				t.Errorf("%s: a line of %d columns: %s", tc.name, n, line)
			}
		}
		golden := filepath.Join(here, tc.name+".stdout")
		if *update {
			if err := os.WriteFile(golden, []byte(stdout), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(string(want), stdout); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

func TestBaselineCommands(t *testing.T) {
	fixture(t)
	ok := func(want string, args ...string) {
		t.Helper()
		status, stdout, stderr := gic(t, args...)
		if status != 0 || !strings.Contains(stdout, want) {
			t.Errorf("%s: status %d, %q, %q; want %q", strings.Join(args, " "), status, stdout, stderr, want)
		}
	}
	ok("no baselines", "baseline", "list")
	ok("baseline main: 1 run", "baseline", "save", "main", "old")
	ok("copies", "baseline", "save", "kept", "old", "new", "--copy", "--results", "elsewhere")
	ok("references", "baseline", "list")
	ok("no regression", "diff", "old", "--baseline", "main")
	if status, _, _ := gic(t, "diff", "new", "--baseline", "main"); status != 1 {
		t.Errorf("diff of new with the baseline: status %d, want 1", status)
	}
	ok("baseline main names it", "results", "prune", "old", "--older-than", "1h", "--yes")
	ok("removed baseline main", "baseline", "rm", "main")
	ok("removed 1 run file", "results", "prune", "old", "--older-than", "1h", "--yes")
	if _, err := os.Stat("old"); err == nil {
		t.Error("the pruned run is still there")
	}
}

func TestStepSummary(t *testing.T) {
	fixture(t)
	t.Setenv("GITHUB_STEP_SUMMARY", "summary.md")
	os.WriteFile("summary.md", []byte("before\n"), 0o644)
	status, stdout, _ := gic(t, "diff", "old", "new", "--format", "github")
	text, err := os.ReadFile("summary.md")
	if err != nil || status != 1 || !strings.HasPrefix(string(text), "before\n## gic diff: 2 regressions") {
		t.Errorf("status %d, summary %q, %v", status, text, err)
	}
	if n := strings.Count(stdout, "::error "); n != 2 {
		t.Errorf("%d errors in:\n%s", n, stdout)
	}
}

func TestResultsBadInput(t *testing.T) {
	fixture(t)
	os.WriteFile("garbage.jsonl", []byte("rubbish\n"), 0o644)
	os.WriteFile("empty.jsonl", nil, 0o644)
	fixtureRun(t, "other", 3, func(c *record.Case) float64 { c.NICConfig["profile"] = "cx7-200"; return 1 })
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{[]string{"diff"}, []string{"OLD and NEW", "none"}},
		{[]string{"diff", "old"}, []string{"OLD and NEW", "1: old"}},
		{[]string{"diff", "old", "new", "third"}, []string{"3: old new third"}},
		{[]string{"diff", "old", "nope"}, []string{"nope", "no such file"}},
		{[]string{"diff", "old", "garbage.jsonl"}, []string{"garbage.jsonl is no run file", "garbage.jsonl:1"}},
		{[]string{"diff", "old", "empty.jsonl"}, []string{"empty.jsonl is no run file: it is empty"}},
		{[]string{"diff", "old", "other"}, []string{"unlike states: nic.profile is none in OLD and cx7-200 in NEW", "--allow nic.profile"}},
		{[]string{"diff", "old", "new", "--threshold", "time"}, []string{`"time"`, "classes: time, rate, bandwidth, counter"}},
		{[]string{"diff", "old", "new", "--threshold", "speed=5%"}, []string{`"speed=5%"`, "classes: time"}},
		{[]string{"diff", "old", "new", "--threshold", "time=NaN"}, []string{`"NaN"`, "percentage like 5%"}},
		{[]string{"diff", "old", "new", "--threshold", "time=-1%"}, []string{`"-1%"`, "percentage"}},
		{[]string{"diff", "old", "new", "--alpha", "1"}, []string{"--alpha 1", "between 0 and 1"}},
		{[]string{"diff", "old", "new", "--alpha", "NaN"}, []string{"--alpha NaN", "between 0 and 1"}},
		{[]string{"diff", "old", "new", "--format", "xml"}, []string{"--format xml", "allowed: table, markdown, json, junit, github"}},
		{[]string{"diff", "old", "new", "--stat", "p95"}, []string{"--stat p95", "allowed: p50, p90, p99, max, mean"}},
		{[]string{"diff", "old", "new", "--filter", "workload"}, []string{`filter "workload"`, "expected key:value"}},
		{[]string{"diff", "old", "new", "--filter", "wrkload:op"}, []string{"wrkload", "keys there: backend"}},
		{[]string{"diff", "old", "new", "--across", "backend.bach"}, []string{"--across backend.bach", "backend.batch"}},
		{[]string{"diff", "old", "new", "--across", "backend.batch=1"}, []string{`"backend.batch=1"`, "KEY=OLD:NEW"}},
		{[]string{"diff", "old", "new", "--allow", "hst"}, []string{"--allow hst", "host.cpu"}},
		{[]string{"diff", "old", "new", "--baseline", "main"}, []string{"--baseline takes one", "old new"}},
		{[]string{"diff", "new", "--baseline", "main"}, []string{`no baseline "main"`, "there are none"}},
		{[]string{"baseline"}, []string{"save, list, rm"}},
		{[]string{"baseline", "sav"}, []string{`"sav"`, `did you mean "save"?`}},
		{[]string{"baseline", "save", "main"}, []string{"NAME and at least one DIR", `"main"`}},
		{[]string{"baseline", "save", "../up", "old"}, []string{`"../up"`, "letters, digits"}},
		{[]string{"baseline", "save", "main", "garbage.jsonl"}, []string{"garbage.jsonl is no run file"}},
		{[]string{"baseline", "rm", "main"}, []string{`no baseline "main"`}},
		{[]string{"results"}, []string{"list, query, prune, verify"}},
		{[]string{"results", "lst"}, []string{`"lst"`, `did you mean "list"?`}},
		{[]string{"results", "list", "nope"}, []string{"nope", "no such file"}},
		{[]string{"results", "query", "workload:op"}, []string{"workload:op", "--filter 'workload:op'"}},
		{[]string{"results", "list"}, []string{"no results in store", "GIC_RESULTS"}},
		{[]string{"results", "query", "old", "--row", "workload.sise"}, []string{`"workload.sise"`, "workload.size"}},
		{[]string{"results", "query", "old", "--filter", "backend:nope"}, []string{`"backend:nope"`, "no record matches"}},
		{[]string{"results", "prune", "old"}, []string{"--keep N or --older-than AGE"}},
		{[]string{"results", "prune", "old", "--older-than", "soon"}, []string{"--older-than soon", "30d or 12h"}},
		{[]string{"results", "prune", "old", "--keep", "0"}, []string{"--keep 0"}},
		{[]string{"history"}, []string{"FILTER first"}},
		{[]string{"history", "backend:nope", "old"}, []string{`"backend:nope"`}},
	} {
		status, stdout, stderr := gic(t, tc.args...)
		if status != exitUsage || stdout != "" || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: status %d, stdout %q, stderr %q; want 2 and one line", strings.Join(tc.args, " "), status, stdout, stderr)
		}
		for _, w := range tc.want {
			if !strings.Contains(stderr, w) {
				t.Errorf("%s: no %q in %q", strings.Join(tc.args, " "), w, stderr)
			}
		}
	}
}

// The commands that the help shows parse.
func TestResultsExamplesParse(t *testing.T) {
	count := 0
	for _, text := range []string{helpDiff, helpResults, helpBaseline, helpHistory} {
		for _, command := range examples(text) {
			args := split(t, command)[1:]
			fixture(t)
			status, _, stderr := gic(t, args...)
			// The folders and baselines are examples: what may go wrong is that they are not there.
			if status == exitUsage && !strings.Contains(stderr, "no such file") && !strings.Contains(stderr, "no baseline") && !strings.Contains(stderr, "no results in") {
				t.Errorf("%s: %s", command, stderr)
			}
			count++
		}
	}
	if count < 15 {
		t.Errorf("only %d examples found", count)
	}
}

// The commands of the gate's page and workflow parse, and the workflow is YAML.
func TestGateDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/ci-gate.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../docs/examples/gate.yml")
	if err != nil {
		t.Fatal(err)
	}
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct{ Run string }
		}
	}
	if err := yaml.Unmarshal(text, &workflow); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(page), "\n")
	for _, s := range workflow.Jobs["gate"].Steps {
		lines = append(lines, strings.TrimSuffix(s.Run, " > gic.xml || true"))
	}
	count := 0
	for _, line := range lines {
		command, rest, _ := strings.Cut(line, " ")
		if command != "gic" && !strings.HasSuffix(command, "/gic") {
			continue
		}
		count++
		args := split(t, rest)
		f := map[string]func() *flags{
			"run":      func() *flags { return newRunFlags().flags },
			"diff":     func() *flags { f, _ := newDiffFlags(); return f },
			"baseline": func() *flags { f, _ := newBaselineFlags(args[1]); return f },
		}[args[0]]
		if f == nil {
			t.Errorf("%s: no such command", line)
			continue
		}
		if err := f().parse(args[1:]); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if count < 11 {
		t.Errorf("only %d commands found", count)
	}
}

// The example workflow and the three lines of the page, run as they stand: a change that only rebuilds passes, one that
// rings more doorbells fails the job, with the annotation, the step summary and a JUnit file that says so. Only the
// number of process runs is cut, and what fetches and builds the two checkouts is replaced by finished ones, the
// base's plugin being another build.
func TestGateWorkflowRuns(t *testing.T) {
	_, err := os.Stat(filepath.Join(buildDir(t), "gic"))
	needs(t, "gic with its plugins", err)
	text, err := os.ReadFile("../../docs/examples/gate.yml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/ci-gate.md")
	if err != nil {
		t.Fatal(err)
	}
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct{ Run, If, Uses string }
		}
	}
	if err := yaml.Unmarshal(text, &workflow); err != nil {
		t.Fatal(err)
	}
	steps := workflow.Jobs["gate"].Steps
	// The page's lines are the workflow's, but for where things are.
	_, recipe, _ := strings.Cut(string(page), "```sh\n")
	recipe, _, _ = strings.Cut(recipe, "```")
	recipe = strings.NewReplacer("build-base/gic", "base/build/gic", "results/local/", "results/", "\nbuild/gic", "\nhead/build/gic").Replace(recipe)
	for line := range strings.Lines(recipe) {
		if !strings.Contains(string(text), "- run: "+line) {
			t.Errorf("the page's %q is no step of the workflow", line)
		}
	}

	dir := t.TempDir()
	for _, side := range []string{"base", "head"} {
		build := filepath.Join(dir, side, "build")
		if err := os.MkdirAll(build, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, side, "Makefile"), "all:\n\t@test -x build/gic\n")
		for _, name := range []string{"gic", "libminigda.so", "libminiproxy.so"} {
			b, err := os.ReadFile(filepath.Join(buildDir(t), name))
			if err != nil {
				t.Fatal(err)
			}
			if side == "base" && name == "libminigda.so" {
				b = append(b, 0) // another hash, the same code
			}
			if err := os.WriteFile(filepath.Join(build, name), b, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	job := func(before func(step string)) (failed bool, out string) {
		for _, s := range steps {
			if s.Run == "" || failed && s.If != "always()" {
				continue
			}
			before(s.Run)
			cmd := exec.Command("bash", "-e", "-c", strings.ReplaceAll(s.Run, "--repeat 8", "--repeat 2"))
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "GITHUB_STEP_SUMMARY="+filepath.Join(dir, "summary.md"), pluginPathEnv+"=", "GITHUB_ACTIONS=true")
			text, err := cmd.CombinedOutput()
			if out += string(text); err != nil && cmd.ProcessState == nil {
				t.Fatal(err)
			}
			failed = failed || err != nil
		}
		return failed, out
	}
	check := func(what, file string, has ...string) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range has {
			if !strings.Contains(string(b), s) {
				t.Errorf("%s: %s lacks %q:\n%.2000s", what, file, s, b)
			}
		}
	}
	failed, out := job(func(string) {})
	if failed {
		t.Fatalf("a change that only rebuilds fails:\n%s", out)
	}
	check("rebuilt", "gic.xml", `failures="0"`, `name="gic diff"`)
	check("rebuilt", "summary.md", "no regression", "library.libminigda")

	for _, f := range []string{"gic.xml", "summary.md"} {
		os.Remove(filepath.Join(dir, f))
	}
	steps = slices.DeleteFunc(steps, func(s struct{ Run, If, Uses string }) bool { return strings.Contains(s.Run, " run ") })
	failed, out = job(func(step string) {
		if strings.Contains(step, "--format github") {
			ringMore(t, filepath.Join(dir, "results", "head", record.FileName))
		}
	})
	if !failed || !strings.Contains(out, "::error") || !strings.Contains(out, "doorbells_per_message") {
		t.Errorf("a change that rings more doorbells: failed %v\n%s", failed, out)
	}
	check("more doorbells", "gic.xml", "<failure ", "doorbells_per_message")
	check("more doorbells", "summary.md", `doorbells\_per\_message`, "3 regressions")
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// ringMore changes the records of a run as a backend does that does not batch any more.
func ringMore(t *testing.T, path string) {
	t.Helper()
	var all []record.Record
	for rec, err := range record.ReadFile(path) {
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := rec.(*record.Case); ok && c.Workload == "rate" && c.Backend == "minigda" {
			for i := range c.Counters {
				if c.Counters[i].Name == "doorbells" {
					c.Counters[i].Value *= 2
				}
			}
		}
		all = append(all, rec)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	w, err := record.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range all {
		if err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// Real runs: the same work twice is no regression; a batch that is not used any more is one, whatever the clock says.
func TestDiffRealRuns(t *testing.T) {
	bin := filepath.Join(buildDir(t), "gic")
	_, err := os.Stat(bin)
	needs(t, "gic with its plugins", err)
	dir := t.TempDir()
	run := func(name string, args ...string) string {
		t.Helper()
		out := filepath.Join(dir, name)
		cmd := exec.Command(bin, append([]string{"run", "--suite", "quick", "--repeat", "2", "--out", out}, args...)...)
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("gic run %v: %v\n%s", args, err, text)
		}
		return out
	}
	a, b := run("a"), run("b")
	if status, stdout, stderr := gic(t, "diff", a, b); status != 0 {
		t.Errorf("two runs of quick: status %d\n%s%s", status, stdout, stderr)
	}
	sixteen := run("sixteen", "--workload", "rate", "--backend", "minigda:batch=16")
	one := run("one", "--workload", "rate", "--backend", "minigda:batch=1")
	status, stdout, stderr := gic(t, "diff", "--across", "backend.batch", sixteen, one, "--format", "json")
	var d struct {
		Exit  int
		Cases []struct {
			Name, Cause string
			Regression  bool
		}
	}
	if err := json.Unmarshal([]byte(stdout), &d); err != nil || status != 1 || d.Exit != 1 || len(d.Cases) == 0 {
		t.Fatalf("batch 16 against 1: status %d, %v\n%s%s", status, err, stdout, stderr)
	}
	for _, c := range d.Cases {
		if !c.Regression || c.Cause != "doorbells_per_message" {
			t.Errorf("%s: regression %v, cause %q; want true, doorbells_per_message", c.Name, c.Regression, c.Cause)
		}
	}
	if status, stdout, stderr := gic(t, "results", "verify", dir); status != 0 {
		t.Errorf("verify: status %d\n%s%s", status, stdout, stderr)
	}
}
