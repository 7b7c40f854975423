package backendtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gic/backends"
)

// A rank process has two sockets: on one it serves the suite's calls, over the other it exchanges with its peers. One of
// several ranks has two for each.
const (
	rankEnv    = "GIC_BACKENDTEST_RANK" // "ranks-of-the-process ranks target"
	callsFD    = 3
	exchangeFD = 4
)

// cluster is the rank processes of one case.
type cluster struct {
	ctx   context.Context
	job   string
	hub   *Hub
	info  backends.Info
	ranks []*rank
}

// rank is one rank process as the suite sees it; it is a backends.Session once open.
type rank struct {
	c      *cluster
	rank   int
	calls  *rpc.Client
	cmd    *exec.Cmd
	output *bytes.Buffer // read only after the process has ended
	exited chan struct{}
	opened bool
}

var _ backends.Session = (*rank)(nil)

// startCluster starts n ranks, so many to a process.
func startCluster(ctx context.Context, t *testing.T, target Target, n, together int, job string) (*cluster, error) {
	c := &cluster{ctx: ctx, job: job, hub: NewHub(n)}
	for len(c.ranks) < n {
		ranks, err := startRanks(c, t, target, len(c.ranks), min(together, n-len(c.ranks)), n)
		if err != nil {
			c.stop()
			return nil, err
		}
		c.ranks = append(c.ranks, ranks...)
	}
	for _, r := range c.ranks {
		var reply InfoReply
		if err := r.call("Info", 0, &reply, func() *WireError { return reply.Err }); err != nil {
			c.stop()
			return nil, fmt.Errorf("load backend: %w", err)
		}
		c.info = reply.Info
	}
	return c, nil
}

// runPattern selects exactly the running test again.
func runPattern(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// startRanks starts a process of `count` ranks from number `first` on.
func startRanks(c *cluster, t *testing.T, target Target, first, count, n int) ([]*rank, error) {
	var mine []net.Conn // of a rank its calls, then its exchange
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	for range 2 * count {
		a, b, err := socketPair()
		if err != nil {
			return nil, err
		}
		mine, theirs = append(mine, a), append(theirs, b)
	}
	// A subtest of TestBackend runs in the parent only: its rank is the test that called TestBackend.
	name, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.Command(os.Args[0], "-test.run", runPattern(name), "-test.timeout", (2 * caseTimeout).String())
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %s", rankEnv, count, n, target.Name),
		"GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0") // a second per process otherwise
	cmd.ExtraFiles = theirs
	output, exited := &bytes.Buffer{}, make(chan struct{})
	cmd.Stdout, cmd.Stderr = output, output
	cmd.WaitDelay = 10 * time.Second
	// What ends the suite's whole group (Ctrl-C, timeout) must not take the ranks along: they see it end, and clean up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
		close(exited)
	}()
	var ranks []*rank
	for i := range count {
		server := rpc.NewServer()
		if err := server.RegisterName("Exchange", &exchange{c: c, rank: first + i}); err != nil {
			return nil, err
		}
		go server.ServeConn(mine[2*i+1])
		ranks = append(ranks, &rank{c: c, rank: first + i, cmd: cmd, output: output, exited: exited, calls: rpc.NewClient(mine[2*i])})
	}
	return ranks, nil
}

func socketPair() (mine net.Conn, theirs *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	f := os.NewFile(uintptr(fds[0]), "calls")
	defer f.Close()
	mine, err = net.FileConn(f)
	return mine, os.NewFile(uintptr(fds[1]), "peer"), err
}

// stop ends the processes: they leave when their socket closes, and are killed when they do not.
func (c *cluster) stop() {
	c.hub.Break()
	for _, r := range c.ranks {
		r.calls.Close()
	}
	for _, r := range c.ranks {
		select {
		case <-r.exited:
		case <-time.After(5 * time.Second):
			r.kill()
			<-r.exited
		}
	}
}

func (r *rank) kill() { _ = r.cmd.Process.Kill() } // it may have ended by itself

// each makes one call on every rank at once and returns the errors by rank. When one fails, ranks that wait for
// it in an exchange are let go.
func (c *cluster) each(call func(*rank) error) []error {
	errs := make([]error, len(c.ranks))
	var wg sync.WaitGroup
	for i, r := range c.ranks {
		wg.Go(func() {
			if errs[i] = call(r); errs[i] != nil {
				c.hub.Break()
			}
		})
	}
	wg.Wait()
	return errs
}

// run is each for runs of kernels: when a rank fails, the others would wait for it in device code, so they are
// stopped.
func (c *cluster) run(call func(*rank) error) []error {
	return c.each(func(r *rank) error {
		err := call(r)
		if err != nil {
			for _, other := range c.ranks {
				if other != r {
					other.Stop()
				}
			}
		}
		return err
	})
}

// leftovers are the names in shared memory that belong to the job.
func (c *cluster) leftovers() []string {
	found, _ := filepath.Glob("/dev/shm/*" + c.job + "*") // the pattern is well formed
	for i := range found {
		found[i] = filepath.Base(found[i])
	}
	return found
}

// call makes a remote call. A rank that does not answer before the case ends is killed and named.
func (r *rank) call(method string, args, reply any, failed func() *WireError) error {
	pending := r.calls.Go("Rank."+method, args, reply, make(chan *rpc.Call, 1))
	select {
	case <-pending.Done:
	case <-r.c.ctx.Done():
		r.kill()
		return fmt.Errorf("%s did not return before the case's deadline", strings.ToLower(method))
	}
	if pending.Error != nil {
		select {
		case <-r.exited:
			return fmt.Errorf("the rank's process ended in %s (%v): %s", strings.ToLower(method), r.cmd.ProcessState,
				strings.TrimSpace(r.output.String()))
		case <-time.After(time.Second):
			return fmt.Errorf("%s: %w", strings.ToLower(method), pending.Error)
		}
	}
	if e := failed(); e != nil {
		return e
	}
	return nil
}

func (r *rank) simple(method string, args any) error {
	var reply Reply
	return r.call(method, args, &reply, func() *WireError { return reply.Err })
}

func (r *rank) with(o backends.Open) backends.Open {
	o.Rank, o.Ranks, o.Job, o.Comm = r.rank, len(r.c.ranks), r.c.job, nil
	return o
}

func (r *rank) probe(o backends.Open) error { return r.simple("Probe", r.with(o)) }

func (r *rank) open(o backends.Open) error {
	err := r.simple("Open", r.with(o))
	r.opened = err == nil
	return err
}

func (r *rank) Window(bytes uint64) error { return r.simple("Window", bytes) }
func (r *rank) Write(offset uint64, data []byte) error {
	return r.simple("Write", Access{offset, data, 0})
}
func (r *rank) Read(offset uint64, data []byte) error {
	var reply ReadReply
	err := r.call("Read", Access{offset, nil, len(data)}, &reply, func() *WireError { return reply.Err })
	copy(data, reply.Data)
	return err
}
func (r *rank) Run(run backends.Run) ([]backends.Series, error) {
	var reply RunReply
	err := r.call("Run", run, &reply, func() *WireError { return reply.Err })
	return reply.Series, err
}
func (r *rank) Counters() ([]backends.Counter, error) {
	var reply CountersReply
	err := r.call("Counters", 0, &reply, func() *WireError { return reply.Err })
	return reply.Counters, err
}
func (r *rank) Facts() (map[string]string, error) {
	var reply FactsReply
	err := r.call("Facts", 0, &reply, func() *WireError { return reply.Err })
	return reply.Facts, err
}
func (r *rank) Stop() { _ = r.simple("Stop", 0) } // a rank that is gone shows in the call it was stopped in
func (r *rank) Close() error {
	if !r.opened {
		return nil
	}
	r.opened = false
	return r.simple("Close", 0)
}

// The other side: what runs in a rank's process. The types that cross are exported because net/rpc wants it.

// Answers and arguments of a rank's calls.
type (
	Reply     struct{ Err *WireError }
	InfoReply struct {
		Err  *WireError
		Info backends.Info
	}
	Access struct {
		Offset uint64
		Data   []byte
		Bytes  int
	}
	ReadReply struct {
		Err  *WireError
		Data []byte
	}
	RunReply struct {
		Err    *WireError
		Series []backends.Series
	}
	CountersReply struct {
		Err      *WireError
		Counters []backends.Counter
	}
	FactsReply struct {
		Err   *WireError
		Facts map[string]string
	}
)

// WireError is an error that crossed a process boundary and still knows which sentinels and errno it wraps.
type WireError struct {
	Text                           string
	NotSupported, Timeout, Stopped bool
	Errno                          int
}

func (e *WireError) Error() string { return e.Text }

func (e *WireError) Unwrap() []error {
	var errs []error
	for is, err := range map[error]bool{backends.ErrNotSupported: e.NotSupported, backends.ErrTimeout: e.Timeout,
		backends.ErrCanceled: e.Stopped} {
		if err {
			errs = append(errs, is)
		}
	}
	if e.Errno != 0 {
		errs = append(errs, syscall.Errno(e.Errno))
	}
	return errs
}

func toWire(err error) *WireError {
	if err == nil {
		return nil
	}
	e := &WireError{Text: err.Error(), NotSupported: errors.Is(err, backends.ErrNotSupported),
		Timeout: errors.Is(err, backends.ErrTimeout), Stopped: errors.Is(err, backends.ErrCanceled)}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		e.Errno = int(errno)
	}
	return e
}

// server is the rank in its own process.
type server struct {
	backend backends.Backend
	err     error // of making the backend
	comm    backends.Comm
	session backends.Session
	busy    sync.Mutex // held by the one call under way; not by Stop
}

var errNoSession = errors.New("backendtest: no session")

func (s *server) Info(_ int, out *InfoReply) error {
	if out.Err = toWire(s.err); s.err == nil {
		out.Info = s.backend.Info()
	}
	return nil
}

func (s *server) Probe(o backends.Open, out *Reply) error {
	out.Err = toWire(s.backend.Probe(o))
	return nil
}

func (s *server) Open(o backends.Open, out *Reply) error {
	o.Comm = s.comm
	session, err := s.backend.Open(context.Background(), o)
	if err == nil {
		s.session = session
	}
	out.Err = toWire(err)
	return nil
}

// with answers a call on the session, if there is one.
func (s *server) with(f func() error) *WireError {
	s.busy.Lock()
	defer s.busy.Unlock()
	if s.session == nil {
		return toWire(errNoSession)
	}
	return toWire(f())
}

func (s *server) Window(bytes uint64, out *Reply) error {
	out.Err = s.with(func() error { return s.session.Window(bytes) })
	return nil
}

func (s *server) Write(a Access, out *Reply) error {
	out.Err = s.with(func() error { return s.session.Write(a.Offset, a.Data) })
	return nil
}

func (s *server) Read(a Access, out *ReadReply) error {
	out.Data = make([]byte, a.Bytes)
	out.Err = s.with(func() error { return s.session.Read(a.Offset, out.Data) })
	return nil
}

func (s *server) Run(r backends.Run, out *RunReply) error {
	out.Err = s.with(func() (err error) { out.Series, err = s.session.Run(r); return })
	return nil
}

func (s *server) Counters(_ int, out *CountersReply) error {
	out.Err = s.with(func() (err error) { out.Counters, err = s.session.Counters(); return })
	return nil
}

func (s *server) Facts(_ int, out *FactsReply) error {
	out.Err = s.with(func() (err error) { out.Facts, err = s.session.Facts(); return })
	return nil
}

func (s *server) Stop(_ int, _ *Reply) error {
	if session := s.session; session != nil { // not with: the call it is to end holds busy
		session.Stop()
	}
	return nil
}

func (s *server) Close(_ int, out *Reply) error {
	out.Err = s.with(func() error { return s.session.Close() })
	s.session = nil
	return nil
}

// leave closes a session that the suite left open, because it was itself ended: no shared memory stays behind. A
// backend that does not return is given up.
func (s *server) leave() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if s.session != nil {
			s.session.Stop()
			s.busy.Lock() // the call under way comes back now
			_ = s.session.Close()
		}
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
	}
}

// exchange serves a rank's allgathers and barriers in the suite's process.
type exchange struct {
	c    *cluster
	rank int
}

// Gathered is the answer to an allgather.
type Gathered struct {
	Err   *WireError
	Parts [][]byte
}

// Allgather is called by net/rpc.
func (e *exchange) Allgather(mine []byte, out *Gathered) error {
	parts, err := e.c.hub.gather(e.c.ctx, e.rank, mine)
	out.Err = toWire(err)
	for _, p := range parts { // gob has no empty slices
		out.Parts = append(out.Parts, append([]byte{0}, p...))
	}
	return nil
}

type remoteComm struct{ calls *rpc.Client }

func (c remoteComm) Allgather(ctx context.Context, mine []byte) ([][]byte, error) {
	var out Gathered
	pending := c.calls.Go("Exchange.Allgather", mine, &out, make(chan *rpc.Call, 1))
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-pending.Done:
	}
	if pending.Error != nil {
		return nil, pending.Error
	}
	if out.Err != nil {
		return nil, out.Err
	}
	for i := range out.Parts {
		out.Parts[i] = out.Parts[i][1:]
	}
	return out.Parts, nil
}

func (c remoteComm) Barrier(ctx context.Context) error {
	_, err := c.Allgather(ctx, []byte{})
	return err
}

// serveIfRank turns a rank's process into a server until the suite closes its socket. It returns in the suite's
// own process, and in a rank that belongs to another target of the same test.
func serveIfRank(t *testing.T, target Target) {
	f := strings.SplitN(os.Getenv(rankEnv), " ", 3)
	if len(f) != 3 || f[2] != target.Name {
		return
	}
	count, err := strconv.Atoi(f[0])
	if err != nil {
		t.Fatalf("%s: %v", rankEnv, err)
	}
	backend, failed := target.Open()
	var ranks sync.WaitGroup
	for i := range count {
		calls, err := net.FileConn(os.NewFile(uintptr(callsFD+2*i), "calls"))
		if err != nil {
			t.Fatal(err)
		}
		peers, err := net.FileConn(os.NewFile(uintptr(exchangeFD+2*i), "exchange"))
		if err != nil {
			t.Fatal(err)
		}
		s := &server{comm: remoteComm{rpc.NewClient(peers)}, backend: backend, err: failed}
		srv := rpc.NewServer()
		if err := srv.RegisterName("Rank", s); err != nil {
			t.Fatal(err)
		}
		ranks.Go(func() {
			srv.ServeConn(calls)
			s.leave()
		})
	}
	ranks.Wait()
	os.Exit(0)
}
