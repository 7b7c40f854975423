package cli

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"gic/backends"
	"gic/backends/plugin"
	"gic/workloads"
)

// tablesOf are the points whose tables stand for those of a workload; axes that are not named have their default.
var tablesOf = map[string][]workloads.Point{
	"op":       {{"op": "put", "size": "64", "places": "3"}, {"op": "put_signal"}, {"op": "atomic"}, {"op": "read"}},
	"rate":     {{"threads": "4", "messages": "64"}, {"pattern": "pair", "places": "3", "messages": "16"}},
	"goodput":  {{"size": "512", "messages": "16"}},
	"alltoall": {{"matrix": "uniform"}, {"matrix": "skew:2"}},
	"moe": {{"tokens": "8", "layout": "expert", "hidden": "128", "experts": "8", "topk": "2"},
		{"tokens": "8", "layout": "rank", "hidden": "128", "experts": "8", "topk": "2"}},
	"caller":  {{"work": "compute"}, {"work": "stream"}},
	"conform": {{}},
}

// tables is what gic and the kernels of a workload tell each other at these points: a hash of the arguments and blobs
// of every rank, and the series that come back.
func tables(t *testing.T, w workloads.Workload) string {
	t.Helper()
	const ranks = 2
	hash := sha256.New()
	points := tablesOf[w.Name()]
	if points == nil {
		t.Fatalf("the tables of workload %s have no point in tablesOf", w.Name())
	}
	for _, p := range points {
		point := workloads.Point{}
		for _, a := range w.Axes() {
			point[a.Name] = a.Default
		}
		for axis, value := range p {
			if _, is := point[axis]; !is {
				t.Fatalf("workload %s has no axis %s", w.Name(), axis)
			}
			point[axis] = value
		}
		job, err := w.Prepare(point, ranks, 1)
		if err != nil {
			t.Fatalf("%s %s: %v", w.Name(), pairs(point), err)
		}
		jobs := []workloads.Job{job}
		if whole, ok := job.(workloads.Whole); ok {
			jobs = append(jobs, whole.Whole())
		}
		for _, j := range jobs {
			for rank := range ranks {
				in, err := j.Run(rank)
				if err != nil {
					t.Fatalf("%s %s: rank %d: %v", w.Name(), pairs(point), rank, err)
				}
				hashRun(hash, in)
			}
			if s, ok := j.(workloads.Simulator); ok {
				hashSeries(t, hash, s, j, ranks)
			}
		}
	}
	return hex.EncodeToString(hash.Sum(nil)[:8])
}

func hashRun(to interface{ Write([]byte) (int, error) }, in backends.Run) {
	fmt.Fprintf(to, "run %s\n", in.Workload)
	for _, k := range slices.Sorted(maps.Keys(in.Args)) {
		if k != "seed" && !strings.HasPrefix(k, "axis.") { // those are for backends in Go
			fmt.Fprintf(to, "%s=%s\n", k, in.Args[k])
		}
	}
	for _, b := range in.Blobs {
		fmt.Fprintf(to, "%s %d ", b.Name, len(b.Data))
		to.Write(b.Data)
	}
}

func hashSeries(t *testing.T, to interface{ Write([]byte) (int, error) }, s workloads.Simulator, j workloads.Job, ranks int) {
	t.Helper()
	windows := make([]workloads.Memory, ranks)
	for r := range windows {
		m := make(flat, j.WindowBytes())
		if err := j.Fill(r, m); err != nil {
			t.Fatal(err)
		}
		windows[r] = m
	}
	results, err := s.Simulate(windows)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		for _, series := range slices.SortedFunc(slices.Values(r.Series), func(a, b backends.Series) int { return cmp.Compare(a.Name, b.Name) }) {
			fmt.Fprintf(to, "series %s %s\n", series.Name, series.Unit)
		}
	}
}

// flat is a window in memory.
type flat []byte

func (f flat) Write(offset uint64, data []byte) error { copy(f[offset:], data); return nil }
func (f flat) Read(offset uint64, data []byte) error  { copy(data, f[offset:]); return nil }

// TestTablesHaveAVersion: a plugin that was built before a workload's tables changed is refused by GIC_ABI_TABLES alone.
func TestTablesHaveAVersion(t *testing.T) {
	type versioned struct {
		Version int               `json:"version"`
		Tables  map[string]string `json:"tables"`
	}
	now := versioned{plugin.Tables, map[string]string{}}
	for _, w := range workloadList() {
		now.Tables[w.Name()] = tables(t, w)
	}
	file := filepath.Join("testdata", "tables.json")
	var kept versioned
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &kept)
	}
	if err != nil && !*update {
		t.Fatal(err)
	}
	d := gocmp.Diff(kept.Tables, now.Tables)
	if d != "" && kept.Version == now.Version {
		t.Fatalf("workloads' tables are not those of version %d (-that +these): raise GIC_ABI_TABLES in backends/abi/backend.h, then go test ./harness/cli -run TestTables -update\n%s",
			kept.Version, d)
	}
	if *update {
		text, err := json.MarshalIndent(now, "", "  ")
		if err == nil {
			err = os.WriteFile(file, append(text, '\n'), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := gocmp.Diff(kept, now); d != "" {
		t.Errorf("%s (-want +got), write it anew with -update:\n%s", file, d)
	}
}

// compileMock builds the mock backend of package plugin.
func compileMock(t *testing.T, so string, flags ...string) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	needs(t, "a C compiler", err)
	args := append([]string{"-D_GNU_SOURCE", "-w", "-shared", "-fPIC", "-I../..", "-o", so, "../../backends/plugin/testdata/mock.c"}, flags...)
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// A plugin in build/ that is older or newer than gic ends a run before it starts; what only looks says it and goes on.
func TestPluginOfAnotherVersion(t *testing.T) {
	dir := t.TempDir()
	compile := func(name, what string) string {
		so := filepath.Join(dir, "lib"+name+".so")
		compileMock(t, so, "-D"+what)
		return so
	}
	old := compile("minigda", "BAD_OLD")
	t.Setenv(pluginPathEnv, dir)
	want := old + ": mock 1.2 was built for ABI 0.1, this gic wants " + plugin.ABI() + ": build it again (make)"
	for _, args := range [][]string{
		{"run", "--workload", "op", "--backend", "minigda", "--backend", "fake", "--nic", "none"},
		{"run", "--suite", "quick", "--dry-run"},
		{"run", "--workload", "op", "--backend-path", old, "--backend", "mock", "--dry-run"},
	} {
		status, stdout, stderr := gic(t, args...)
		if status != exitUsage || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%v: status %d, stdout %q, stderr %q, want one line with %q", args, status, stdout, stderr, want)
		}
	}
	compile("miniproxy", "BAD_TABLES")
	if status, _, stderr := gic(t, "run", "--suite", "quick", "--dry-run"); status != exitUsage || !strings.HasSuffix(stderr, "; 1 more plugin is as unfit\n") {
		t.Errorf("two of them: status %d, stderr %q", status, stderr)
	}
	// A run that does not ask for it is not held up by it.
	if status, _, stderr := gic(t, "run", "--workload", "op", "--backend", "fake", "--nic", "none", "--dry-run"); status != exitOK {
		t.Errorf("without it: status %d, stderr %q", status, stderr)
	}
	for _, command := range []string{"list", "doctor"} {
		status, stdout, _ := gic(t, command)
		if text := strings.Join(strings.Fields(stdout), " "); status != exitOK || !strings.Contains(text, "was built for ABI 0.1, this gic wants "+plugin.ABI()) {
			t.Errorf("gic %s: status %d, and nothing of the old plugin:\n%s", command, status, stdout)
		}
	}
}
