package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"gic/backends"
	"gic/backends/plugin"
	"gic/harness/machine"
	"gic/harness/plan"
	"gic/harness/run"
)

// Code of plugins never runs in gic itself: a plugin that crashes must not take gic along, and what it leaves
// behind in a process (threads, environment, an initialized driver) must not reach a measurement. So gic starts
// itself with a hidden command that answers in JSON on file descriptor 3: libraries print on the other two.

// childTimeout bounds a question to a plugin; the first CUDA call of a machine may take seconds.
const childTimeout = 60 * time.Second

// answerFD is where a hidden command answers when gic itself asks.
const answerFD = 3

// answerEnv set to "fd" makes it so.
const answerEnv = "GIC_ANSWER"

// probeRequest asks one plugin about several sessions.
type probeRequest struct {
	Name  string          `json:"name"`
	Path  string          `json:"path"` // empty for a backend that is part of gic
	Opens []backends.Open `json:"opens"`
}

// ask runs a hidden command of gic in its own process and decodes its answer.
func ask(ctx context.Context, answer any, stdin any, args ...string) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find gic's own executable: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, childTimeout)
	defer cancel()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.CommandContext(ctx, exe, args...)
	cmd.ExtraFiles = []*os.File{w}
	cmd.Env = append(os.Environ(), answerEnv+"=fd")
	cmd.WaitDelay = time.Second
	if stdin != nil {
		in, err := json.Marshal(stdin)
		if err != nil {
			w.Close()
			return err
		}
		cmd.Stdin = bytes.NewReader(in)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		w.Close()
		return err
	}
	w.Close()
	text := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(r) // a broken pipe shows as a short answer
		text <- b
	}()
	err = cmd.Wait()
	var b []byte
	select {
	case b = <-text:
	case <-time.After(time.Second): // a grandchild holds the pipe open
		return errors.New("no answer")
	}
	if ctx.Err() == context.DeadlineExceeded {
		return fmt.Errorf("no answer within %v", childTimeout)
	}
	if err != nil {
		return childError(err, stderr.String())
	}
	return json.Unmarshal(b, answer)
}

// childError says in one line why a child ended badly: its own last line, as a usage error where the child called it
// that, or what killed it. A signal in a
// plugin's code makes the Go runtime print its state; the first line of that names the signal.
func childError(err error, stderr string) error {
	if line, ok := strings.CutPrefix(lastLine(stderr), "gic: "); ok {
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == exitUsage {
			return usageError{errors.New(line)}
		}
		return errors.New(line)
	}
	for _, line := range strings.Split(stderr, "\n") {
		if strings.HasPrefix(line, "SIG") || strings.HasPrefix(line, "fatal error: ") {
			return fmt.Errorf("its process died: %s", line)
		}
	}
	return fmt.Errorf("its process died: %w", err)
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// reply writes the answer of a hidden command: to gic when it asks, to stdout for a person.
func (a *app) reply(v any) error {
	out := a.stdout
	if os.Getenv(answerEnv) == "fd" {
		f := os.NewFile(answerFD, "answer")
		defer f.Close()
		out = f
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// describe PATH prints what a plugin says of itself.
func (a *app) describe(args []string) error {
	if len(args) != 1 {
		return usagef("describe takes one argument, the path of a plugin")
	}
	p, err := plugin.Load(args[0])
	if errors.Is(err, plugin.ErrVersion) {
		return usageError{err}
	}
	if err != nil {
		return err
	}
	return a.reply(p.Info())
}

// probe reads a probeRequest from standard input.
func (a *app) probe(args []string) error {
	if len(args) != 0 {
		return usagef("probe takes no arguments; it reads a request from standard input")
	}
	var req probeRequest
	if err := json.NewDecoder(os.Stdin).Decode(&req); err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	b, err := openBackend(req.Name, req.Path)
	if err != nil {
		return err
	}
	answers := make([]plan.Refusal, len(req.Opens))
	for i, o := range req.Opens {
		if err := b.Probe(o); err != nil {
			answers[i] = refusal(err)
		}
	}
	return a.reply(answers)
}

// refusal keeps of a probe's error what the reason of a row needs: the row names the backend already.
func refusal(err error) plan.Refusal {
	reason := strings.TrimSuffix(oneLine(err), ": "+backends.ErrNotSupported.Error())
	var pe *plugin.Error
	if errors.As(err, &pe) {
		reason = strings.Join(strings.Fields(pe.Text), " ")
	}
	return plan.Refusal{Reason: reason, Invalid: !errors.Is(err, backends.ErrNotSupported)}
}

// openBackend gives the backend itself, in a process made for that.
func openBackend(name, path string) (backends.Backend, error) {
	if path != "" {
		return plugin.Load(path)
	}
	for _, b := range builtins {
		if b.name == name && b.open != nil {
			return b.open(), nil
		}
	}
	return nil, fmt.Errorf("backend %s is not part of gic and has no plugin", name)
}

// describeFile asks a plugin file for its Info, in another process.
func describeFile(ctx context.Context, path string) (*backends.Info, error) {
	var info backends.Info
	if err := ask(ctx, &info, nil, "describe", path); err != nil {
		return nil, err
	}
	if info.Name == "" {
		return nil, fmt.Errorf("%s: the plugin has no name", path)
	}
	return &info, nil
}

// rank is a rank process: package run starts it.
func (a *app) rank(args []string) error {
	status := run.RankMain(run.RankOptions{
		Workloads: workloadMap(), Open: openBackend,
		Sample: machine.Sample, Ports: machine.PortCounters, GPUs: cudaDevices,
	})
	if status != 0 {
		return exitError(status)
	}
	return nil
}
