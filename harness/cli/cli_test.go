package cli

import (
	"bytes"
	"cmp"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	gocmp "github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// childEnv makes the test binary be gic.
const childEnv = "GIC_TEST_AS_GIC"

// TestMain lets the test binary stand in for gic: rank processes, and the questions to plugins, are gic itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Getenv(childEnv) != "" || slices.Contains([]string{"rank", "describe", "probe"}, os.Args[1])) {
		os.Exit(Run(os.Stdout, os.Stderr, os.Args[1:]))
	}
	// A process under the race detector sleeps for a second before it ends; these tests start hundreds.
	os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0"))
	os.Exit(m.Run())
}

// gic runs a command in this process.
func gic(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	status = Run(&out, &err, args)
	return status, out.String(), err.String()
}

// buildDir is where make leaves gic and the plugins; GIC_BUILD names it for make B=DIR.
func buildDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(cmp.Or(os.Getenv("GIC_BUILD"), "../../build"))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// needs skips a test for want of a file or program, except where nothing may be skipped.
func needs(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s: %v (CI=true: nothing is skipped)", what, err)
	}
	t.Skipf("%s: %v", what, err)
}

// withPlugins lets gic find the built plugins.
func withPlugins(t *testing.T) {
	t.Helper()
	_, err := os.Stat(filepath.Join(buildDir(t), "libminigda.so"))
	needs(t, "the plugins are built by make", err)
	t.Setenv(pluginPathEnv, buildDir(t))
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".stdout")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := gocmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", file, d)
	}
}

// narrow fails on lines that do not fit.
func narrow(t *testing.T, what, text string) {
	t.Helper()
	for _, line := range strings.Split(text, "\n") {
		if n := utf8.RuneCountInString(line); n > width {
			t.Errorf("%s: a line has %d columns, allowed %d: %q", what, n, width, line)
		}
		if strings.TrimRight(line, " ") != line {
			t.Errorf("%s: a line ends in spaces: %q", what, line)
		}
	}
}

func TestGolden(t *testing.T) {
	t.Setenv(pluginPathEnv, "")
	tests := []struct {
		name string
		args []string
	}{
		{"help", nil},
		{"help-run", []string{"help", "run"}},
		{"help-list", []string{"list", "--help"}},
		{"help-show", []string{"show", "-h"}},
		{"help-report", []string{"report", "-h"}},
		{"help-import", []string{"import", "-h"}},
		{"help-export", []string{"export", "-h"}},
		{"help-doctor", []string{"help", "doctor"}},
		{"help-version", []string{"help", "version"}},
		{"help-help", []string{"help", "help"}},
		{"list-models-profiles", []string{"list", "models", "profiles"}},
		{"dry-run", []string{"run", "--dry-run", "--nic", "none", "--workload", "op:size=8..32*2,op=put|read", "--workload", "rate:threads=1|2",
			"--backend", "fake:fault=none|error", "--backend", "nvshmem", "--ranks", "3", "--repeat", "4", "--seed", "7"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			status, stdout, stderr := gic(t, tt.args...)
			if status != 0 || stderr != "" {
				t.Fatalf("status %d, stderr %q", status, stderr)
			}
			narrow(t, tt.name, stdout)
			golden(t, tt.name, stdout)
		})
	}
}

func TestHelpIsTheSameByEveryWay(t *testing.T) {
	for _, c := range commands() {
		if c.hidden {
			continue
		}
		_, want, _ := gic(t, "help", c.name)
		if want == "" {
			t.Errorf("gic help %s says nothing", c.name)
		}
		if c.name == "help" || c.name == "version" {
			continue
		}
		for _, flag := range []string{"--help", "-h"} {
			if _, got, _ := gic(t, c.name, flag); got != want {
				t.Errorf("gic %s %s differs from gic help %s", c.name, flag, c.name)
			}
		}
	}
}

var example = regexp.MustCompile(`^\s*\$ (.*\bgic\b.*)$`)

// examples are the commands that a text shows: "$ gic run ...", also behind mpirun.
func examples(text string) []string {
	var list []string
	for _, line := range strings.Split(text, "\n") {
		if m := example.FindStringSubmatch(line); m != nil {
			// A comment may follow at a distance.
			command, _, _ := strings.Cut(m[1], "   ")
			list = append(list, strings.TrimSpace(command))
		}
	}
	return list
}

// split takes a command apart as a shell would, as far as examples need it.
func split(t *testing.T, command string) []string {
	t.Helper()
	var words []string
	word, quoted, any := "", false, false
	for _, c := range command {
		switch {
		case c == '\'':
			quoted, any = !quoted, true
		case c == ' ' && !quoted:
			if any {
				words = append(words, word)
			}
			word, any = "", false
		case strings.ContainsRune("|*&;<>$`\"\\?", c) && !quoted:
			t.Errorf("a shell would interpret %q in: %s", c, command)
		default:
			word += string(c)
			any = true
		}
	}
	if quoted {
		t.Errorf("a quote is not closed in: %s", command)
	}
	if any {
		words = append(words, word)
	}
	return words
}

// TestExamplesWork runs every command that the help and the README show, runs as dry runs.
func TestExamplesWork(t *testing.T) {
	texts := map[string]string{"help": helpTop + helpRun + helpList + helpShow + helpReport + helpImport + helpExport + helpDoctor + helpVersion + helpHelp}
	for _, name := range []string{"README.md", "backends/README.md"} {
		b, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Logf("no %s", name)
			continue
		}
		texts[name] = string(b)
	}
	count := 0
	for from, text := range texts {
		for _, command := range examples(text) {
			words := split(t, command)
			at := slices.IndexFunc(words, func(w string) bool { return w == "gic" || strings.HasSuffix(w, "/gic") })
			if at < 0 {
				t.Errorf("%s: no gic in %q", from, command)
				continue
			}
			count++
			checkExample(t, from, command, words[at+1:])
		}
	}
	if count < 15 {
		t.Errorf("only %d examples found", count)
	}
}

func checkExample(t *testing.T, from, command string, args []string) {
	t.Helper()
	if len(args) > 0 && args[0] == "run" {
		r, err := parseRun(args[1:])
		if err != nil {
			t.Errorf("%s: %s: %v", from, command, err)
			return
		}
		if r.resume != "" {
			return // the folder is an example too
		}
		var rest []string
		for i := 1; i < len(args); i++ {
			if args[i] == "--backend-path" { // a file the reader is about to make
				i++
				continue
			}
			rest = append(rest, args[i])
		}
		if len(r.backendPaths) > 0 {
			return
		}
		args = append([]string{"run", "--dry-run"}, rest...)
	}
	if len(args) > 0 && (args[0] == "show" || args[0] == "report") { // the folders are examples too
		f, _ := newShowFlags()
		if args[0] == "report" {
			f, _ = newReportFlags()
		}
		if err := f.parse(args[1:]); err != nil || f.all.NArg() == 0 {
			t.Errorf("%s: %s: %v", from, command, err)
		}
		return
	}
	if exampleFlags := map[string]func() *flags{
		"import": func() *flags { f, _ := newImportFlags(); return f },
		"export": func() *flags { f, _ := newExportFlags(); return f },
	}[args[0]]; exampleFlags != nil { // their files are examples too
		f := exampleFlags()
		if err := f.parse(args[1:]); err != nil || f.all.NArg() == 0 {
			t.Errorf("%s: %s: %v", from, command, err)
		}
		return
	}
	if status, _, stderr := gic(t, args...); status != 0 {
		t.Errorf("%s: %s: status %d: %s", from, command, status, stderr)
	}
}

func TestBadInput(t *testing.T) {
	t.Setenv(pluginPathEnv, "")
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	suite := write("bad.yaml", "backends: [fake]\nblock:\n  - workload: op\n")
	typo := write("typo.yaml", "backends: [fake]\nblocks:\n  - workload: op:size\n")
	garbage := write("garbage.jsonl", "this is no record\n")
	empty := write("empty.jsonl", "")
	os.Mkdir(filepath.Join(dir, "done"), 0o755)
	write("done/run.jsonl", "{}\n")
	run := func(args ...string) []string { return append([]string{"run"}, args...) }
	tests := []struct {
		args []string
		want []string // the value, and what is allowed
	}{
		{[]string{"rnu"}, []string{`"rnu"`, `did you mean "run"?`, "known: run, list, show, attribute, report, "}},
		{[]string{"--suite", "quick"}, []string{"--suite", "gic run --suite"}},
		{[]string{"help", "me"}, []string{`"me"`, "known: run"}},
		{[]string{"help", "run", "list"}, []string{`"run list"`, "one command"}},
		{[]string{"version", "2"}, []string{`"2"`, "no arguments"}},
		{[]string{"list", "suite"}, []string{`"suite"`, `did you mean "suites"?`, "known: workloads"}},
		{[]string{"list", "--jsn"}, []string{"--jsn", "did you mean --json?", "gic list has: --json"}},
		{[]string{"doctor", "who"}, []string{`"who"`, "no argument"}},
		{[]string{"show"}, []string{"at least one DIR or FILE"}},
		{[]string{"show", dir + "/nope"}, []string{"/nope", "no such file"}},
		{[]string{"show", garbage}, []string{garbage, "no run file"}},
		{[]string{"show", empty}, []string{empty, "no run file"}},
		{[]string{"show", dir, "--format", "xml"}, []string{"--format xml", "allowed: table, markdown, csv, json, nccl-tests"}},
		{[]string{"describe"}, []string{"one argument"}},
		{run("op"), []string{`"op"`, "--workload op"}},
		{run("--rank", "2"), []string{"--rank", "did you mean --ranks?", "--suite"}},
		{run("-r", "2"), []string{"-r", "--suite"}},
		{run("--ranks"), []string{"--ranks"}},
		{run("--ranks", "0"), []string{"--ranks 0", "allowed: 1..256"}},
		{run("--ranks", "1K"), []string{"--ranks 1K", "allowed: 1..256"}},
		{run("--ranks", "two"), []string{"--ranks two", "allowed: 1..256"}},
		{run("--repeat", "-1"), []string{"--repeat -1", "allowed: 1..10000"}},
		{run("--seed", "x"), []string{"--seed x", "non-negative integer"}},
		{run("--timeout", "fast"), []string{"--timeout fast", "30s"}},
		{run("--timeout", "0s"), []string{"--timeout 0s", "more than 0"}},
		{run("--device", "gpu"), []string{"--device gpu", "allowed: auto, host, cuda"}},
		{run("--format", "xml"), []string{"--format xml", "allowed: table"}},
		{run("--suite", "qick"), []string{`"qick"`, `did you mean "quick"?`, "known: quick, paper, paper-gpu, nvshmem, ncclgin, nvlink, nvlink-softnic, moe, or a YAML file"}},
		{run("--suite", dir+"/nope.yaml"), []string{"/nope.yaml", "no such file", "known: quick"}},
		{run("--suite", suite), []string{suite, `line 2: unknown field "block"`}},
		{run("--suite", typo), []string{typo, `line 3: "op:size" at character 8`, "key=v|v"}},
		{run("--suite", "quick", "--workload", "opp"), []string{`"opp" in suite quick`, `did you mean "op"?`, "known: op, rate"}},
		{run("--workload", "goodptu"), []string{`"goodptu"`, `did you mean "goodput"?`, "known: op, rate, goodput"}},
		{run("--workload", "op:"+"siz=8", "--backend", "fake"), []string{`"siz"`, "it has: op, size"}},
		{run("--workload", "op:size=7", "--backend", "fake"), []string{"size=7", "allowed: 8..1048576"}},
		{run("--workload", "op:size=8|1G", "--backend", "fake"), []string{"size=1G", "allowed: 8..1048576"}},
		{run("--workload", "op:op=put|putt", "--backend", "fake"), []string{"op=putt", "allowed: put|put_signal|atomic|read"}},
		{run("--workload", "op:size"), []string{`"op:size" at character 8`, "key=v|v"}},
		{run("--workload", "op:size=9..1"), []string{`"9..1" is empty`, "at character 9"}},
		{run("--workload", "op:op=atomic,size=16", "--backend", "fake"), []string{"size=16", "atomic", "8"}},
		{run("--workload", "moe:routing=zipf", "--backend", "fake"), []string{"zipf", "power:"}},
		{run("--workload", "op", "--backend", "fake", "--ranks", "1"), []string{"ranks=1", "at least 2"}},
		{run("--workload", "op", "--backend", "minigad"), []string{`"minigad"`, `did you mean "minigda"?`, "known: minigda, miniproxy, rawstore, nvshmem, ncclgin, deepep"}},
		{run("--workload", "op", "--backend", "fake:fualt=none"), []string{`"fualt"`, "it has: fault"}},
		{run("--workload", "op", "--backend", "fake:fault=divine"), []string{"fault=divine", "allowed: none|crash"}},
		{run("--backend-path", dir+"/nope.so"), []string{"/nope.so", "shared object"}},
		{run("--backend-path", garbage), []string{garbage, "load backend"}},
		{run("--nic", "mlx9_9"), []string{"--nic mlx9_9", "known: soft, none"}},
		{run("--nic", "soft:engine=fpga"), []string{"engine=fpga", "allowed: cpu|gpu"}},
		{run("--nic", "soft:engin=cpu"), []string{`"engin"`, "it has: engine"}},
		{run("--nic-profile", "cx9"), []string{"profile=cx9", "allowed: none|cx7-200"}},
		{run("--nic", "none", "--nic-profile", "cx7-200"), []string{"--nic-profile cx7-200", "--nic none"}},
		{run("--rendezvous", "node1:7000"), []string{"--rendezvous node1:7000", "mpirun, srun or torchrun"}},
		{run("--out", dir+"/done"), []string{dir + "/done", "allowed: another folder", "--resume"}},
		{run("--workload", "op", "--backend", "fake", "--nic", "none", "--out", garbage+"/sub"), []string{"garbage.jsonl/sub", "not a directory"}},
		{run("--resume", dir), []string{dir, "has no run.jsonl"}},
		{run("--resume", dir+"/done"), []string{"done/run.jsonl"}},
		{run("--resume", dir+"/done", "--ranks", "4"), []string{"--ranks", "allowed beside it: --part, --format, --timeout, --rendezvous"}},
	}
	for _, tt := range tests {
		status, stdout, stderr := gic(t, tt.args...)
		name := strings.Join(tt.args, " ")
		if status != exitUsage {
			t.Errorf("gic %s: status %d, want %d; stderr %q", name, status, exitUsage, stderr)
			continue
		}
		if stdout != "" || !strings.HasPrefix(stderr, "gic: ") || strings.Count(stderr, "\n") != 1 {
			t.Errorf("gic %s: want exactly one line on stderr; stdout %q, stderr %q", name, stdout, stderr)
		}
		for _, want := range tt.want {
			if !strings.Contains(stderr, want) {
				t.Errorf("gic %s: %q lacks %q", name, stderr, want)
			}
		}
	}
	if left, _ := filepath.Glob("results"); left != nil {
		t.Errorf("a usage error left %v behind", left)
	}
}
