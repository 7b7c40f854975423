package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// agent starts and ends the rank processes of one rank. Its methods return at once; they are safe to call for a
// job that has ended.
type agent interface {
	// start starts the rank process of a job. onExit is called exactly once, from another goroutine.
	start(o startOrder, onExit func(exit)) error
	// kill ends the process group of a job's rank process.
	kill(job string)
	// clean removes what a job has left in shared memory on this host, when all its processes have ended.
	clean(job string)
	host() string
	close()
}

// localAgent is an agent for processes of this machine.
type localAgent struct {
	hostID string

	mu      sync.Mutex
	running map[string]int // process ids by job; a process group each
}

var _ agent = (*localAgent)(nil)

func newLocalAgent(host string) *localAgent {
	return &localAgent{hostID: host, running: map[string]int{}}
}

func (a *localAgent) host() string { return a.hostID }
func (a *localAgent) close()       {}

func (a *localAgent) start(o startOrder, onExit func(exit)) error {
	out := &tail{}
	var cmd *exec.Cmd
	var err error
	fork(func() {
		// The lock spans the fork, so that a kill never misses a process that was just started.
		a.mu.Lock()
		defer a.mu.Unlock()
		if cmd, err = startRank(o, out); err == nil {
			a.running[o.Job] = cmd.Process.Pid
		}
	})
	if err != nil {
		return fmt.Errorf("start rank %d: %w", o.Rank, err)
	}
	go func() {
		e := exit{Job: o.Job, Rank: o.Rank}
		pid := cmd.Process.Pid
		// Still a zombie, its id cannot be another's: the moment to end what it has started itself.
		waitExited(pid)
		a.mu.Lock()
		delete(a.running, o.Job)
		a.mu.Unlock()
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		werr := cmd.Wait()
		e.Status, e.OK = statusText(cmd.ProcessState, werr)
		e.Output = out.String()
		onExit(e)
	}()
	return nil
}

func (a *localAgent) kill(job string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if pid, ok := a.running[job]; ok {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
}

func (a *localAgent) clean(job string) { removeShared(job) }

// forker is a goroutine on a thread of its own that never ends: the parent-death signal of a child is sent when
// the thread that started it ends, not the process, so no other thread may start one.
var forker = sync.OnceValue(func() chan func() {
	c := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range c {
			f()
		}
	}()
	return c
})

func fork(f func()) {
	done := make(chan struct{})
	forker() <- func() {
		defer close(done)
		f()
	}
	<-done
}

// startRank starts this binary again as a rank process, in a process group of its own, to be killed should this
// process die. Its order comes through a pipe at file descriptor 3.
func startRank(o startOrder, out *tail) (*exec.Cmd, error) {
	order, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	defer w.Close()
	// The kernel's link, not the path: a rebuild during a long run must not change what is measured.
	cmd := exec.Command("/proc/self/exe", RankArg)
	cmd.Args[0] = os.Args[0]
	cmd.ExtraFiles = []*os.File{r}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Env = rankEnv(os.Environ())
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := w.Write(order); err != nil { // at most a page: never blocks
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		return nil, err
	}
	return cmd, nil
}

// rankEnv keeps the token away from libraries under test, and Go's own stack traces out of a crash's tail
// unless they were asked for. CUDA loads all kernels at once unless told otherwise: loading one waits for the
// kernels that run, which may be waiting for it.
func rankEnv(env []string) []string {
	var out []string
	trace, loading := false, false
	for _, kv := range env {
		if strings.HasPrefix(kv, "GIC_TOKEN=") || strings.HasPrefix(kv, "GIC_TOKEN_FILE=") {
			continue
		}
		trace = trace || strings.HasPrefix(kv, "GOTRACEBACK=")
		loading = loading || strings.HasPrefix(kv, "CUDA_MODULE_LOADING=")
		out = append(out, kv)
	}
	if !trace {
		out = append(out, "GOTRACEBACK=none")
	}
	if !loading {
		out = append(out, "CUDA_MODULE_LOADING=EAGER")
	}
	return out
}

// waitExited returns when the child has ended, and leaves it to be waited for.
func waitExited(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

func statusText(s *os.ProcessState, err error) (text string, ok bool) {
	if s == nil {
		return fmt.Sprintf("wait: %v", err), false
	}
	ws, isUnix := s.Sys().(syscall.WaitStatus)
	if isUnix && ws.Signaled() {
		name := unix.SignalName(ws.Signal())
		if name == "" {
			name = fmt.Sprint(int(ws.Signal()))
		}
		return fmt.Sprintf("signal %s (%s)", name, ws.Signal()), false
	}
	return s.String(), s.Success()
}

// sharedDir is where shm_open makes its objects.
const sharedDir = "/dev/shm"

// removeShared removes the shared memory of a job. Job names end at their serial number, which is of fixed
// width, so that no job's name begins another's.
func removeShared(job string) {
	if !strings.HasPrefix(job, jobPrefix) || strings.ContainsAny(job, "*?[/") {
		return
	}
	names, _ := filepath.Glob(filepath.Join(sharedDir, job+"*"))
	for _, n := range names {
		_ = os.RemoveAll(n)
	}
}

// tail keeps the beginning and the end of what a process prints: a crash explains itself in its first lines or
// in its last.
type tail struct {
	mu         sync.Mutex
	head, last []byte
	dropped    int
}

const (
	headBytes = 2 << 10
	lastBytes = 4 << 10
)

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	if room := headBytes - len(t.head); room > 0 {
		k := min(room, len(p))
		t.head = append(t.head, p[:k]...)
		p = p[k:]
	}
	t.last = append(t.last, p...)
	if over := len(t.last) - lastBytes; over > 0 {
		t.dropped += over
		t.last = append(t.last[:0], t.last[over:]...)
	}
	return n, nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	mid := ""
	if t.dropped > 0 {
		mid = fmt.Sprintf("\n[%d bytes left out]\n", t.dropped)
	}
	return strings.ToValidUTF8(string(t.head)+mid+string(t.last), "?")
}
