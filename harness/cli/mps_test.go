package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gic/harness/machine"
	"gic/harness/plan"
)

func TestWantsMPS(t *testing.T) {
	with := func(device string, ranks int) *plan.Plan {
		return &plan.Plan{Outers: []plan.Outer{{Device: "host", Ranks: 8}, {Device: device, Ranks: ranks}}}
	}
	for _, c := range []struct {
		p    *plan.Plan
		gpus int
		want bool
	}{
		{with("cuda", 2), 1, true},
		{with("cuda", 2), 2, false},
		{with("cuda", 1), 1, false},
		{with("cuda", 2), 0, false},
		{with("host", 2), 1, false},
	} {
		if got := wantsMPS(c.p, c.gpus); got != c.want {
			t.Errorf("%+v on %d GPUs: %v, want %v", c.p.Outers[1], c.gpus, got, c.want)
		}
	}
}

// Where ranks would be time-sliced they share a process, and no more of them than share a GPU.
func TestRanksOfAProcess(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, name := range []string{mpsPipe, mpsLog} {
		t.Setenv(name, "") // restored after the test
		os.Unsetenv(name)
	}
	for _, c := range []struct{ ranks, gpus, want int }{{2, 0, 1}, {2, 1, 2}, {2, 2, 1}, {4, 2, 2}, {3, 2, 2}, {5, 1, 5}} {
		if got := ranksInProcess(c.ranks, c.gpus); got != c.want {
			t.Errorf("%d ranks on %d GPUs: %d in a process, want %d", c.ranks, c.gpus, got, c.want)
		}
		p := &plan.Plan{InProcess: c.want, Outers: []plan.Outer{{Device: "cuda", Ranks: c.ranks}}}
		if wantsMPS(p, c.gpus) {
			t.Errorf("%d ranks on %d GPUs, %d in a process, want MPS", c.ranks, c.gpus, c.want)
		}
	}
	t.Setenv(mpsPipe, "/mine")
	if got := ranksInProcess(2, 1); got != 1 {
		t.Errorf("under MPS: %d in a process", got)
	}
	os.Unsetenv(mpsPipe)
	fakeMPS(t, "0")
	if got := ranksInProcess(2, 1); got != 1 {
		t.Errorf("with a control program: %d in a process", got)
	}
}

// A control program that keeps what it is told.
func fakeMPS(t *testing.T, status string) (log string) {
	dir := t.TempDir()
	log = filepath.Join(dir, "said")
	script := "#!/bin/sh\necho \"$*|$(cat)|$CUDA_MPS_PIPE_DIRECTORY\" >>" + log + "\necho no GPU here >&2\nexit " + status + "\n"
	if err := os.WriteFile(filepath.Join(dir, mpsControl), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("TMPDIR", t.TempDir())
	for _, name := range []string{mpsPipe, mpsLog} {
		t.Setenv(name, "") // restored after the test
		os.Unsetenv(name)
	}
	return log
}

func TestStartMPS(t *testing.T) {
	log := fakeMPS(t, "0")
	t.Setenv(machine.VisibleEnv, "1")
	stop, err := startMPS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pipe := os.Getenv(mpsPipe)
	if info, err := os.Stat(pipe); err != nil || !info.IsDir() {
		t.Fatalf("pipe folder %q: %v", pipe, err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	said, _ := os.ReadFile(log)
	if want := "-d||" + pipe + "\n|quit|" + pipe + "\n"; string(said) != want {
		t.Errorf("told %q, want %q", said, want)
	}
	if v := os.Getenv(machine.VisibleEnv); v != "1" {
		t.Errorf("%s is %q after the run", machine.VisibleEnv, v)
	}
	if _, err := os.Stat(filepath.Dir(pipe)); !os.IsNotExist(err) || os.Getenv(mpsPipe) != "" {
		t.Errorf("left behind: %s (%v), %s=%s", filepath.Dir(pipe), err, mpsPipe, os.Getenv(mpsPipe))
	}
}

func TestStartMPSLeavesTheUsersAlone(t *testing.T) {
	log := fakeMPS(t, "0")
	t.Setenv(mpsPipe, "/mine")
	stop, err := startMPS(t.Context())
	if err != nil || stop() != nil {
		t.Fatal(err)
	}
	if said, err := os.ReadFile(log); err == nil {
		t.Errorf("told %q", said)
	}
	if os.Getenv(mpsPipe) != "/mine" {
		t.Errorf("%s=%s", mpsPipe, os.Getenv(mpsPipe))
	}
}

func TestStartMPSFails(t *testing.T) {
	fakeMPS(t, "1")
	_, err := startMPS(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no GPU here") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
	if os.Getenv(mpsPipe) != "" {
		t.Errorf("%s=%s is left", mpsPipe, os.Getenv(mpsPipe))
	}
}
