package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gic/minigda/nictrace"
)

// sample is a file of another tool from the importers' test data.
func sample(name string) string { return filepath.Join("../importer/testdata", name) }

// What other tools measured is imported, shown, and exported in every format.
func TestImportAndExport(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	status, stdout, stderr := gic(t, "import", sample("nccl.json"), sample("perftest-lat.txt"), "--out", dir)
	if status != 0 || !strings.Contains(stdout, "6 rows of nccl-tests") || !strings.Contains(stdout, "3 rows of perftest") {
		t.Fatalf("status %d\n%s%s", status, stdout, stderr)
	}
	t.Setenv("NCCL_TESTS_ONLY", "1")
	raw, err := os.ReadFile(filepath.Join(dir, "run.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(raw), `"NCCL_GIN_TYPE":"3"`) || strings.Contains(string(raw), "AWS_SECRET") || strings.Contains(string(raw), "/home/someone") {
		t.Error("of the environment that nccl-tests dumps, exactly the allow-list is to be kept")
	}
	status, stdout, _ = gic(t, "show", dir)
	for _, want := range []string{"not measured by gic", "nccl.json (nccl-tests)", "perftest-lat.txt (perftest)", "(imported)"} {
		if status != 0 || !strings.Contains(stdout, want) {
			t.Errorf("show: status %d, want %q in\n%s", status, want, stdout)
		}
	}
	for format, want := range map[string]string{
		"benchfmt": "Unit one_way-sec/op better=lower", "csv": "workload,", "nccl-tests": "# Avg bus bandwidth",
		"prometheus": "# TYPE gic_time_seconds gauge", "perfetto": `"traceEvents"`,
	} {
		status, stdout, stderr = gic(t, "export", "--format", format, dir)
		if status != 0 || !strings.Contains(stdout, want) {
			t.Errorf("export %s: status %d, no %q: %s", format, status, want, stderr)
		}
		file := filepath.Join(t.TempDir(), "out")
		if status, _, stderr = gic(t, "export", "--format", format, dir, "-o", file); status != 0 {
			t.Errorf("export %s -o: status %d: %s", format, status, stderr)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != stdout {
			t.Errorf("export %s -o differs from stdout: %v", format, err)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Values that cannot be taken are named with file and line and make the status 1; the others are written.
func TestImportNamesWhatItCannotTake(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	status, stdout, stderr := gic(t, "import", sample("perftest-bad.txt"), "--out", dir)
	if status != 1 || !strings.Contains(stderr, "perftest-bad.txt:3: BW average is 0: it was not measured") ||
		!strings.Contains(stderr, "8 values could not be imported") || !strings.Contains(stdout, "4 rows") {
		t.Errorf("status %d\n%s%s", status, stdout, stderr)
	}
}

func TestImportAndExportBadInput(t *testing.T) {
	dir := t.TempDir()
	trace := filepath.Join(dir, "nic.trace")
	var empty bytes.Buffer
	if err := nictrace.Write(&empty, &nictrace.Trace{Ranks: 1}); err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(dir, "cut.trace")
	for name, b := range map[string][]byte{trace: empty.Bytes(), cut: empty.Bytes()[:20]} {
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	taken := filepath.Join(dir, "taken")
	if status, _, stderr := gic(t, "import", sample("nccl.json"), "--out", taken); status != 0 {
		t.Fatal(stderr)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"import"}, "at least one FILE"},
		{[]string{"import", "--from", "wonder", "x"}, "allowed: nccl-tests, perftest"},
		{[]string{"import", filepath.Join(dir, "none")}, "no such file"},
		{[]string{"import", dir}, "is a folder; allowed: a file"},
		{[]string{"import", sample("nccl.json"), "--set", "ranks=many"}, "ranks=many is not allowed"},
		{[]string{"import", sample("nccl.json"), "--set", "ranks=4"}, "ranks=4, but the file says 8"},
		{[]string{"import", sample("nccl.json"), sample("nccl.json"), "--out", filepath.Join(dir, "x")}, "are the same bytes"},
		{[]string{"import", sample("deepep-intranode.txt")}, "give ranks=N"},
		{[]string{"import", sample("nccl.json"), "--out", taken}, "is there already"},
		{[]string{"import", filepath.Join(taken, "run.jsonl")}, "is a run of gic already"},
		{[]string{"export", taken}, "needs --format: one of benchfmt"},
		{[]string{"export", "--format", "wonder", taken}, "allowed: benchfmt, csv"},
		{[]string{"export", "--format", "csv"}, "at least one DIR or FILE"},
		{[]string{"export", "--format", "csv", sample("nccl.json")}, "is no run file"},
		{[]string{"export", "--format", "csv", trace}, "allowed: perfetto"},
		{[]string{"export", "--format", "perfetto", cut}, "ends after 20 bytes"},
		{[]string{"export", "--format", "perfetto", trace, taken}, "exported alone"},
		{[]string{"export", "--format", "perfetto", taken, trace}, "is a NIC trace"},
	} {
		status, stdout, stderr := gic(t, c.args...)
		if status != 2 || stdout != "" || !strings.Contains(stderr, c.want) || strings.Count(strings.TrimSpace(stderr), "\n") != 0 {
			t.Errorf("%v: status %d, stdout %q, stderr %q, want one line with %q", c.args, status, stdout, stderr, c.want)
		}
	}
	status, stdout, stderr := gic(t, "export", "--format", "perfetto", trace)
	if status != 0 || !json.Valid([]byte(stdout)) {
		t.Errorf("empty trace: status %d, %q, %s", status, stdout, stderr)
	}
}
