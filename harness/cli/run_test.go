package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gic/harness/record"
	"gic/harness/run"
)

// readRunFile reads a run's records.
func readRunFile(t *testing.T, dir string) (*record.Header, []*record.Case) {
	t.Helper()
	var header *record.Header
	var cases []*record.Case
	for rec, err := range record.ReadFile(filepath.Join(dir, record.FileName)) {
		if err != nil {
			t.Fatal(err)
		}
		switch rec := rec.(type) {
		case *record.Header:
			if header != nil {
				t.Fatalf("%s has two headers", dir)
			}
			header = rec
		case *record.Case:
			cases = append(cases, rec)
		case *record.Bad:
			t.Fatal(rec)
		}
	}
	if header == nil {
		t.Fatalf("%s has no header", dir)
	}
	return header, cases
}

// fakeRun are the arguments of a run that needs nothing but this binary.
func fakeRun(out string, more ...string) []string {
	return append([]string{"run", "--nic", "none", "--out", out}, more...)
}

func countStatus(cases []*record.Case) map[record.Status]int {
	n := map[record.Status]int{}
	for _, c := range cases {
		n[c.Status]++
	}
	return n
}

// noTraces fails when a run left shared memory behind. Other runs on this machine do not count: each holds a lock
// on a file of its prefix while it lives.
func noTraces(t *testing.T) {
	t.Helper()
	var left []string
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		left = left[:0]
		paths, err := filepath.Glob("/dev/shm/gic-??????????-*")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if !heldByARun(path[:len("/dev/shm/gic-0123456789")] + ".lock") {
				left = append(left, path)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) { // another run may just have been ending
			t.Errorf("left behind: %v", left)
			return
		}
	}
}

func heldByARun(lock string) bool {
	f, err := os.OpenFile(lock, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil
}

func TestRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	t.Setenv("NCCL_IB_HCA", "mlx5_0")
	t.Setenv("GIC_TOKEN", "not for the record")
	t.Setenv("HOME_OF_SECRETS", "nor this")
	args := fakeRun(dir, "--workload", "op:size=8|64,iterations=20,timer_check=0", "--backend", "fake", "--backend", "nvshmem", "--repeat", "2", "--ranks", "3", "--seed", "5")
	t.Setenv(pluginPathEnv, "")
	status, stdout, stderr := gic(t, args...)
	if status != exitOK {
		t.Fatalf("status %d, stderr %q", status, stderr)
	}
	narrow(t, "the table", stdout)
	file := filepath.Join(dir, record.FileName)
	if want := "\n" + file + "\n4 ok, 2 skipped\n"; !strings.HasSuffix(stdout, want) {
		t.Errorf("stdout ends in %q, want %q", stdout[max(0, len(stdout)-len(want)):], want)
	}
	h, cases := readRunFile(t, dir)
	if d := cmp.Diff(map[record.Status]int{record.OK: 4, record.Skipped: 2}, countStatus(cases)); d != "" {
		t.Errorf("statuses (-want +got):\n%s", d)
	}
	if h.Ranks != 3 || h.Repeat != 2 || h.Seed != 5 || h.Cases != 6 || h.Launch != "local" || h.Host.Hostname == "" || h.Gic != Version() {
		t.Errorf("header: %+v", h)
	}
	if d := cmp.Diff(append([]string{"gic"}, args...), h.Command); d != "" {
		t.Errorf("command (-want +got):\n%s", d)
	}
	if h.Env["NCCL_IB_HCA"] != "mlx5_0" || h.Env["HOME_OF_SECRETS"] != "" || h.Env["GIC_TOKEN"] != "" {
		t.Errorf("environment in the record: %v", h.Env)
	}
	for _, format := range []string{"table", "markdown", "csv", "json", "nccl-tests"} {
		status, shown, stderr := gic(t, "show", dir, "--format", format)
		if status != exitOK || shown == "" || stderr != "" {
			t.Errorf("gic show --format %s: status %d, %d bytes, stderr %q", format, status, len(shown), stderr)
		}
		if format == "table" && !strings.HasPrefix(stdout, shown) {
			t.Errorf("gic show prints another table than the run (-run +show):\n%s", cmp.Diff(stdout, shown))
		}
	}
}

func TestRunPrintsFormatsPurely(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	status, stdout, stderr := gic(t, fakeRun(dir, "--workload", "op:iterations=20", "--backend", "fake", "--repeat", "1", "--format", "csv")...)
	_, shown, _ := gic(t, "show", dir, "--format", "csv")
	if status != exitOK || stdout != shown || !strings.Contains(stderr, "1 ok") {
		t.Errorf("status %d, stderr %q, (-show +run):\n%s", status, stderr, cmp.Diff(shown, stdout))
	}
}

func TestExitStatus(t *testing.T) {
	tests := []struct {
		backend string
		more    []string
		want    int
		status  record.Status
	}{
		{"fake", nil, exitOK, record.OK},
		{"fake:fault=unsafe", nil, exitOK, record.Unsafe},
		{"fake:fault=skip", nil, exitOK, record.Skipped},
		{"fake:fault=error", nil, exitFailed, record.Failed},
		{"fake:fault=crash", nil, exitFailed, record.Failed},
		{"fake:fault=corrupt", nil, exitFailed, record.Unverified},
		{"fake:fault=miscount", nil, exitFailed, record.Unverified},
		{"fake:fault=hang", []string{"--timeout", "500ms"}, exitFailed, record.Timeout},
		{"fake:fault=hang-deaf", []string{"--timeout", "500ms"}, exitFailed, record.Timeout},
	}
	for _, tt := range tests {
		t.Run(tt.backend, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "out")
			args := fakeRun(dir, append(tt.more, "--workload", "op:iterations=20,timer_check=0", "--backend", tt.backend, "--repeat", "1")...)
			status, stdout, stderr := gic(t, args...)
			if status != tt.want {
				t.Errorf("status %d, want %d; stderr %q", status, tt.want, stderr)
			}
			_, cases := readRunFile(t, dir)
			if len(cases) != 1 || cases[0].Status != tt.status {
				t.Fatalf("records: %v, want one that is %s", countStatus(cases), tt.status)
			}
			if c := cases[0]; tt.want == exitFailed && (c.Reason == "" || !strings.Contains(stderr, string(c.Status)+": op:iterations=20,timer_check=0 on "+tt.backend+", process run 1")) {
				t.Errorf("reason %q, stderr %q: the failure is not told while it happens", c.Reason, stderr)
			}
			if want := fmt.Sprintf("\n1 %s\n", tt.status); !strings.HasSuffix(stdout, want) {
				t.Errorf("stdout %q does not end in %q", stdout, want)
			}
			noTraces(t)
		})
	}
}

// start runs gic as a process of its own.
func start(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), childEnv+"=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd, &stderr
}

// waitLines waits until a run file has n lines.
func waitLines(t *testing.T, dir string, n int) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for {
		b, _ := os.ReadFile(filepath.Join(dir, record.FileName))
		if bytes.Count(b, []byte("\n")) >= n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %d lines in %s after a minute", n, dir)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// endWithin waits for a process to end and returns its exit status.
func endWithin(t *testing.T, cmd *exec.Cmd, limit time.Duration) int {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-done:
		return cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		t.Fatalf("still there %v after the signal", limit)
		return 0
	}
}

func TestInterruptAndResume(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "out")
			const repeat = 400
			cmd, stderr := start(t, fakeRun(dir, "--workload", "op:size=8|64,iterations=20,timer_check=0", "--backend", "fake", "--repeat", fmt.Sprint(repeat))...)
			waitLines(t, dir, 4)
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if status := endWithin(t, cmd, time.Minute); status != exitInterrupted {
				t.Fatalf("status %d, want %d; stderr %s", status, exitInterrupted, stderr)
			}
			_, cases := readRunFile(t, dir)
			if n := countStatus(cases); n[record.OK] < 3 || n[record.OK] == 2*repeat || len(cases) != n[record.OK] {
				t.Fatalf("after the signal: %v", n)
			}
			if want := fmt.Sprintf("%d of %d records are kept, finish them with: gic run --resume %s", len(cases), 2*repeat, dir); !strings.Contains(stderr.String(), want) {
				t.Errorf("stderr %q lacks %q", stderr, want)
			}
			noTraces(t)
			shorten(t, dir, repeat, 3)
			resumeAndCheck(t, dir, cases)
		})
	}
}

// shorten rewrites the command of a run, so that a test need not finish a long one.
func shorten(t *testing.T, dir string, from, to int) {
	t.Helper()
	h, cases := readRunFile(t, dir)
	for i, arg := range h.Command {
		if arg == fmt.Sprint(from) && h.Command[i-1] == "--repeat" {
			h.Command[i] = fmt.Sprint(to)
		}
	}
	h.Cases, h.Repeat = h.Cases/from*to, to
	file := filepath.Join(dir, record.FileName)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	w, err := record.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Write(h); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		if c.Index < to {
			if err := w.Write(c); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// resumeAndCheck finishes a run and holds every planned record against the file: each is there once.
func resumeAndCheck(t *testing.T, dir string, had []*record.Case) {
	t.Helper()
	status, stdout, stderr := gic(t, "run", "--resume", dir)
	if status != exitOK {
		t.Fatalf("resume: status %d, stderr %q", status, stderr)
	}
	h, cases := readRunFile(t, dir)
	if len(cases) != h.Cases || !strings.HasSuffix(stdout, fmt.Sprintf("\n%d ok\n", h.Cases)) {
		t.Errorf("%d records of %d; stdout ends in %q", len(cases), h.Cases, lastLine(stdout))
	}
	seen := map[run.Key]bool{}
	orders := map[int]bool{}
	for _, c := range cases {
		key := run.Key{ID: c.ID, Index: c.Index}
		if seen[key] || orders[c.Order] {
			t.Errorf("twice: %s #%d, order %d", c.ID, c.Index, c.Order)
		}
		seen[key], orders[c.Order] = true, true
	}
	if len(had) > 0 && !cmp.Equal(had[0], cases[0]) {
		t.Errorf("resume changed a record (-before +after):\n%s", cmp.Diff(had[0], cases[0]))
	}
	// What is finished stays so: another resume measures nothing.
	if status, again, _ := gic(t, "run", "--resume", dir); status != exitOK || again != stdout {
		t.Errorf("a second resume: status %d, (-first +second):\n%s", status, cmp.Diff(stdout, again))
	}
}

// A campaign in parts, into one folder by several commands, is the campaign.
func TestParts(t *testing.T) {
	whole, parted := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "parts")
	flags := []string{"--workload", "op:size=8|64,iterations=20,timer_check=0", "--workload", "rate:messages=4,warmup=0", "--backend", "fake", "--repeat", "2"}
	if status, _, stderr := gic(t, fakeRun(whole, flags...)...); status != exitOK {
		t.Fatalf("status %d, stderr %q", status, stderr)
	}
	_, want := readRunFile(t, whole)
	const parts = 3
	had := 0
	for k := 1; k <= parts; k++ {
		part := fmt.Sprintf("%d/%d", k, parts)
		args := []string{"run", "--resume", parted, "--part", part}
		if k == 1 {
			args = append(fakeRun(parted, flags...), "--part", part)
		}
		status, _, stderr := gic(t, args...)
		if status != exitOK {
			t.Fatalf("part %s: status %d, stderr %q", part, status, stderr)
		}
		h, cases := readRunFile(t, parted)
		if h.Cases != len(want) || len(cases) <= had {
			t.Errorf("part %s: %d records behind %d, %d planned; the whole has %d", part, len(cases), had, h.Cases, len(want))
		}
		had = len(cases)
		missing := fmt.Sprintf("this was part %s; %d of %d records are there, measure the others with: gic run --resume %s", part, had, len(want), parted)
		if strings.Contains(stderr, missing) != (k < parts) {
			t.Errorf("part %s: stderr %q", part, stderr)
		}
	}
	_, got := readRunFile(t, parted)
	keys := func(cases []*record.Case) (list []string) {
		for i, c := range cases {
			list = append(list, fmt.Sprintf("%s #%d", c.ID, c.Index))
			if c.Order != i {
				t.Errorf("record %d has order %d", i, c.Order)
			}
		}
		return list
	}
	if d := cmp.Diff(keys(want), keys(got)); d != "" {
		t.Errorf("(-whole +parts):\n%s", d)
	}
	if status, stdout, _ := gic(t, append(fakeRun(filepath.Join(t.TempDir(), "dry"), flags...), "--part", "3/3", "--dry-run")...); status != exitOK || !strings.Contains(stdout, "Plan from the command line") {
		t.Errorf("dry run of a part: status %d, %q", status, stdout)
	}
	if status, _, stderr := gic(t, append(fakeRun(filepath.Join(t.TempDir(), "bad"), flags...), "--part", "4/3")...); status != exitUsage || !strings.Contains(stderr, "--part 4/3 is not allowed; allowed: k/n with 1 <= k <= n") {
		t.Errorf("--part 4/3: status %d, stderr %q", status, stderr)
	}
}

func TestResumeMeasuresFailuresAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	if status, _, stderr := gic(t, fakeRun(dir, "--workload", "op:size=8|64,iterations=20,timer_check=0", "--backend", "fake", "--repeat", "2")...); status != exitOK {
		t.Fatalf("status %d, stderr %q", status, stderr)
	}
	h, cases := readRunFile(t, dir)
	file := filepath.Join(dir, record.FileName)
	os.Remove(file)
	w, err := record.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(h); err != nil {
		t.Fatal(err)
	}
	cases[1].Status, cases[1].Reason, cases[1].Metrics = record.Failed, "the cable was out", nil
	for _, c := range cases {
		if err := w.Write(c); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	status, stdout, stderr := gic(t, "run", "--resume", dir)
	if status != exitOK || !strings.HasSuffix(stdout, "\n4 ok\n") {
		t.Errorf("status %d, stderr %q, stdout ends in %q", status, stderr, lastLine(stdout))
	}
	if _, after := readRunFile(t, dir); len(after) != 5 || after[4].ID != cases[1].ID || after[4].Index != cases[1].Index {
		t.Errorf("%d records after the resume, want the failed one measured again behind the others", len(after))
	}
}

func TestResumeRefusesAnotherPlan(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	suite := filepath.Join(t.TempDir(), "s.yaml")
	write := func(sizes string) {
		text := "repeat: 1\nbackends: [fake]\nblocks:\n  - workload: op:iterations=20,timer_check=0,size=" + sizes + "\n"
		if err := os.WriteFile(suite, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("8|64")
	if status, _, stderr := gic(t, fakeRun(dir, "--suite", suite)...); status != exitOK {
		t.Fatalf("status %d, stderr %q", status, stderr)
	}
	for sizes, want := range map[string]string{"8|64|128": "had 2 records to write, its command now gives 3", "8|128": "is not in the plan of its command now"} {
		write(sizes)
		status, _, stderr := gic(t, "run", "--resume", dir)
		if status != exitUsage || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("sizes %s: status %d, stderr %q, want %q", sizes, status, stderr, want)
		}
	}
}

func TestSecondInterruptEndsAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	cmd, stderr := start(t, fakeRun(dir, "--workload", "op:iterations=20,timer_check=0", "--backend", "fake:fault=hang-deaf", "--repeat", "1", "--timeout", "10m")...)
	waitLines(t, dir, 1)
	ranks := waitChildren(t, cmd.Process.Pid, 2)
	for range 2 {
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			break // the first one may have been enough
		}
		time.Sleep(50 * time.Millisecond)
	}
	if status := endWithin(t, cmd, time.Minute); status != exitInterrupted {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
	for _, pid := range ranks {
		deadline := time.Now().Add(30 * time.Second)
		for syscall.Kill(pid, 0) == nil {
			if time.Now().After(deadline) {
				t.Errorf("rank process %d is still there", pid)
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// waitChildren waits until a process has n children.
func waitChildren(t *testing.T, pid, n int) []int {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		var pids []int
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		for _, task := range tasks {
			b, _ := os.ReadFile(task)
			for _, f := range strings.Fields(string(b)) {
				var child int
				if _, err := fmt.Sscan(f, &child); err == nil {
					pids = append(pids, child)
				}
			}
		}
		if len(pids) >= n {
			return pids
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d has %d children after a minute, want %d", pid, len(pids), n)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestRecordedEnv(t *testing.T) {
	got := recordedEnv([]string{"NCCL_DEBUG=INFO", "NVSHMEM_IB_ENABLE_IBGDA=1", "GIC_TOKEN=x", "GIC_TOKEN_FILE=/x", "GIC_ANSWER=fd",
		"NCCL_IB_PKEY=7", "SLURM_JWT=x", "UCX_AUTH=x", "PATH=/bin", "AWS_SECRET_ACCESS_KEY=x", "TORCH_API_KEY=x", "LD_LIBRARY_PATH=/lib",
		"CUDA_VISIBLE_DEVICES=0", "MY_NCCL_X=1", "broken", "SLURM_SPANK_password=x"})
	want := map[string]string{"NCCL_DEBUG": "INFO", "NVSHMEM_IB_ENABLE_IBGDA": "1", "NCCL_IB_PKEY": "7", "LD_LIBRARY_PATH": "/lib", "CUDA_VISIBLE_DEVICES": "0"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestRunHonoursTheStore: without --out a run goes where the store commands look for it.
func TestRunHonoursTheStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	t.Setenv("GIC_RESULTS", dir)
	status, _, stderr := gic(t, "run", "--nic", "none", "--workload", "op:size=8,iterations=20,timer_check=0", "--backend", "fake", "--repeat", "1")
	if found, _ := filepath.Glob(filepath.Join(dir, "*", record.FileName)); len(found) != 1 {
		t.Errorf("status %d, %d runs in the store: %s", status, len(found), stderr)
	}
}
