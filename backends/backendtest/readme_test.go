package backendtest

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gic/backends"
	"gic/backends/plugin"
	"gic/workloads"
	"gic/workloads/conform"
	"gic/workloads/op"
)

// tinyEnv tells rank processes where their suite has built the backend.
const tinyEnv = "GIC_BACKENDTEST_TINY"

// tiny takes the backend out of backends/README.md, makes the given replacements in it, and builds it with the page's
// own flags.
func tiny(t *testing.T, replace ...string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(Root(t), "backends", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, code, ok := strings.Cut(string(page), "\n```c++\n")
	code, _, end := strings.Cut(code, "\n```\n")
	if !ok || !end {
		t.Fatal("backends/README.md holds no c++ block")
	}
	for i := 0; i < len(replace); i += 2 {
		if strings.Count(code, replace[i]) != 1 {
			t.Fatalf("backends/README.md does not hold %q once", replace[i])
		}
		code = strings.Replace(code, replace[i], replace[i+1], 1)
	}
	var args []string
	for line := range strings.Lines(string(page)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "c++ "); ok {
			args = strings.Fields(rest)
		}
	}
	if args == nil {
		t.Fatal("backends/README.md does not say how to build the backend")
	}
	compiler, err := exec.LookPath("c++")
	if err != nil {
		Need(t, "a C++ compiler (c++)")
	}
	dir := t.TempDir()
	source, lib := filepath.Join(dir, "tiny.cu"), filepath.Join(dir, "libtiny.so")
	if err := os.WriteFile(source, []byte(code+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for i, a := range args {
		switch a {
		case "tiny.cu":
			args[i] = source
		case "libtiny.so":
			args[i] = lib
		}
	}
	build := exec.Command(compiler, append(args, "-Wall", "-Wextra", "-Werror")...)
	build.Dir = Root(t)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build.Args, err, out)
	}
	return lib
}

// The page's backend passes the suite.
func TestReadmeBackendConforms(t *testing.T) {
	lib := os.Getenv(tinyEnv)
	if lib == "" {
		lib = tiny(t)
		t.Setenv(tinyEnv, lib)
	}
	TestBackend(t, Target{Name: "tiny", Open: func() (backends.Backend, error) { return plugin.Load(lib) },
		Device: "host", NIC: "none", Workloads: []workloads.Workload{op.Workload{}, conform.Workload{}}})
}

// The page's command runs it, and the rows are verified.
func TestReadmeBackendRuns(t *testing.T) {
	gic, lib := Built(t, "gic"), tiny(t)
	page, err := os.ReadFile(filepath.Join(Root(t), "backends", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var args []string
	for line := range strings.Lines(string(page)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "build/gic run "); ok {
			args = append([]string{"run"}, strings.Fields(strings.ReplaceAll(rest, "./libtiny.so", lib))...)
		}
	}
	if args == nil {
		t.Fatal("backends/README.md does not say how to run the backend")
	}
	out := filepath.Join(t.TempDir(), "out")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, gic, append(args, "--out", out)...)
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, text)
	}
	records, err := os.ReadFile(filepath.Join(out, "run.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	cases := 0
	for line := range strings.Lines(string(records)) {
		var c struct {
			Type, Backend, Status, Reason, NIC string
			Verify                             workloads.Verification
		}
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		if c.Type != "case" {
			continue
		}
		cases++
		if c.Backend != "tiny" || c.Status != "ok" || c.NIC != "none" || c.Verify.Checked == 0 {
			t.Errorf("a row is %+v, want a verified one of tiny", c)
		}
	}
	if cases == 0 {
		t.Errorf("no case was recorded:\n%s", text)
	}
}
