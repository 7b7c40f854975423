package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"gic/harness/machine"
	"gic/harness/plan"
)

// The control program of CUDA's Multi-Process Service, and the variables by which it and its clients meet.
const (
	mpsControl = "nvidia-cuda-mps-control"
	mpsPipe    = "CUDA_MPS_PIPE_DIRECTORY"
	mpsLog     = "CUDA_MPS_LOG_DIRECTORY"
)

// mpsDeadline bounds each word with the daemon.
const mpsDeadline = 20 * time.Second

// wantsMPS says whether ranks of a plan must share a GPU: without MPS the driver would give each of them the whole
// GPU in turn, for milliseconds.
func wantsMPS(p *plan.Plan, gpus int) bool {
	if gpus == 0 {
		return false
	}
	for i := range p.Outers {
		if o := &p.Outers[i]; o.Device == "cuda" && p.Processes(o.Ranks) > gpus {
			return true
		}
	}
	return false
}

// usersMPS says whether processes started here belong to a daemon that is the user's.
func usersMPS() bool {
	if os.Getenv(mpsPipe) != "" {
		return true
	}
	_, err := os.Stat("/tmp/nvidia-mps/control") // where a daemon is without the variable
	return err == nil
}

// ranksInProcess is how many ranks are to share a process so that none is time-sliced: 1 where each has a GPU or there
// is MPS, otherwise the ranks of a GPU.
func ranksInProcess(ranks, gpus int) int {
	if gpus == 0 || ranks <= gpus || usersMPS() {
		return 1
	}
	if _, err := exec.LookPath(mpsControl); err == nil {
		return 1
	}
	return (ranks + gpus - 1) / gpus
}

// startMPS starts a daemon of this run alone, which all processes started from now on belong to, and gives the
// function that ends it. It leaves a daemon that the user has started to do its work, and does nothing on a
// machine without the control program: there the backends refuse what would be time-sliced.
func startMPS(ctx context.Context) (stop func() error, err error) {
	none := func() error { return nil }
	control, err := exec.LookPath(mpsControl)
	if usersMPS() || err != nil {
		return none, nil
	}
	dir, err := os.MkdirTemp("", "gic-mps-")
	if err != nil {
		return none, fmt.Errorf("start MPS: %w", err)
	}
	for name, sub := range map[string]string{mpsPipe: "pipe", mpsLog: "log"} {
		path := filepath.Join(dir, sub)
		if err := os.Mkdir(path, 0o755); err != nil {
			return none, fmt.Errorf("start MPS: %w", err)
		}
		os.Setenv(name, path)
	}
	shown, limited := os.LookupEnv(machine.VisibleEnv)
	clear := func() {
		os.Unsetenv(mpsPipe)
		os.Unsetenv(mpsLog)
		if limited {
			os.Setenv(machine.VisibleEnv, shown)
		}
		os.RemoveAll(dir)
	}
	if limited {
		// By identity: an index would be applied twice, by the daemon, which shows its clients devices from 0 on, and by
		// the clients.
		os.Setenv(machine.VisibleEnv, strings.Join(machine.CUDADevices(), ","))
	}
	if err := tellMPS(ctx, "", control, "-d"); err != nil {
		clear()
		return none, fmt.Errorf("start MPS, since ranks share a GPU: %w", err)
	}
	return func() error {
		defer clear()
		// Not the run's context, which may have ended.
		if err := tellMPS(context.Background(), "quit\n", control); err != nil {
			return fmt.Errorf("end MPS: %w", err)
		}
		return nil
	}, nil
}

func tellMPS(ctx context.Context, say, control string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, mpsDeadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, control, args...)
	cmd.Stdin = strings.NewReader(say)
	cmd.WaitDelay = time.Second
	// The daemon keeps what it inherits: a pipe for its output would never end.
	out, err := os.CreateTemp("", "gic-mps-out-")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(out.Name())
		line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
		return fmt.Errorf("%s %s: %w: %s", mpsControl, strings.Join(args, " "), err, line)
	}
	return nil
}
