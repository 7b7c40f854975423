package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mpirun starts the built gic under the real Open MPI, in a folder of its own. files are what it left in
// results/local.
func mpirun(t *testing.T, n string, args ...string) (status int, stdout, stderr string, files []string) {
	t.Helper()
	path, err := exec.LookPath("mpirun")
	needs(t, "Open MPI (Debian: openmpi-bin)", err)
	gic := filepath.Join(buildDir(t), "gic")
	_, err = os.Stat(gic)
	needs(t, "build/gic is built by make", err)
	cmd := exec.Command(path, append([]string{"-n", n, "--oversubscribe", gic}, args...)...)
	cmd.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	cmd.Dir = t.TempDir()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	files, err = filepath.Glob(filepath.Join(cmd.Dir, "results/local/*/*"))
	if err != nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String(), files
}

func TestMpirun(t *testing.T) {
	status, stdout, stderr, files := mpirun(t, "4", "run", "--suite", "quick", "--repeat", "1")
	if status != exitOK {
		t.Errorf("status %d, stderr %s", status, stderr)
	}
	if len(files) != 1 || filepath.Base(files[0]) != "run.jsonl" {
		t.Fatalf("%v is left, want one run.jsonl", files)
	}
	h, cases := readRunFile(t, filepath.Dir(files[0]))
	if h.Launch != "mpirun" || h.Ranks != 4 || len(cases) != h.Cases {
		t.Errorf("launch %q, %d ranks, %d of %d records", h.Launch, h.Ranks, len(cases), h.Cases)
	}
	if n := strings.Count(stdout, "run.jsonl\n"); n != 1 {
		t.Errorf("the path of the records is printed %d times: more than agent 0 speaks", n)
	}
	narrow(t, "the table", stdout)
	noTraces(t)
}

func TestMpirunWithOtherRanks(t *testing.T) {
	status, stdout, stderr, files := mpirun(t, "4", "run", "--ranks", "3")
	if status != exitUsage || stdout != "" || files != nil {
		t.Errorf("status %d, stdout %q", status, stdout)
	}
	if n := strings.Count(stderr, "gic: --ranks 3 is not the world size of mpirun; allowed: 4, or no --ranks"); n != 1 {
		t.Errorf("the reason is told %d times: %s", n, stderr)
	}
}

// Bad input ends every agent, also when only agent 0 can see that it is bad.
func TestMpirunBadInput(t *testing.T) {
	for _, args := range [][]string{{"--workload", "op:size=7", "--backend", "minigda"}, {"--suite", "nope"}, {"--rank", "4"}} {
		status, _, stderr, files := mpirun(t, "4", append([]string{"run"}, args...)...)
		if n := strings.Count(stderr, "gic: "); status != exitUsage || n != 1 || files != nil {
			t.Errorf("%v: status %d, %d lines of gic: %s", args, status, n, stderr)
		}
	}
}

func TestMpirunDryRun(t *testing.T) {
	status, stdout, _, files := mpirun(t, "4", "run", "--dry-run")
	if status != exitOK || files != nil || strings.Count(stdout, "Plan suite quick: 4 ranks") != 1 {
		t.Errorf("status %d, stdout %q", status, stdout)
	}
}
