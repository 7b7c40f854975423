// Package fake is a backend without a communication stack: the Go half of the workload moves the bytes
// (workloads.Simulator), so that the harness can be tested where there is nothing else. Its times mean nothing.
// On request it misbehaves, at a chosen rank and call, in the ways in which real stacks do.
//
// The ranks' windows are files in shared memory, named after the job like those of any backend; rank 0 carries
// out the work of all ranks on them.
package fake

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"gic/backends"
	"gic/workloads"
)

// The faults.
const (
	faultNone      = "none"
	faultCrash     = "crash"     // the process kills itself
	faultHang      = "hang"      // the call returns only at the stop word
	faultHangDeaf  = "hang-deaf" // the call never returns
	faultCorrupt   = "corrupt"   // the window is wrong after a run
	faultMiscount  = "miscount"  // one NIC write too many is counted
	faultError     = "error"     // the call fails
	faultSkip      = "skip"      // the call is not supported
	faultSlowStart = "slow-start"
	faultUnsafe    = "unsafe" // the session says that its results are unsafe
)

// The calls at which crash, hang, hang-deaf, error and skip happen.
const (
	callOpen     = "open"
	callWindow   = "window"
	callWrite    = "write"
	callRun      = "run"
	callCounters = "counters"
	callFacts    = "facts"
	callRead     = "read"
	callClose    = "close"
)

// Backend is the fake. Make it with New.
type Backend struct {
	workloads map[string]workloads.Workload
}

var _ backends.Backend = (*Backend)(nil)

// New makes a fake that can carry out the given workloads.
func New(works ...workloads.Workload) *Backend {
	b := &Backend{workloads: map[string]workloads.Workload{}}
	for _, w := range works {
		b.workloads[w.Name()] = w
	}
	return b
}

// Info declares every operation, so that every workload can be asked of it.
func (b *Backend) Info() backends.Info {
	faults := []string{faultNone, faultCrash, faultHang, faultHangDeaf, faultCorrupt, faultMiscount, faultError, faultSkip,
		faultSlowStart, faultUnsafe}
	calls := []string{callOpen, callWindow, callWrite, callRun, callCounters, callFacts, callRead, callClose}
	return backends.Info{
		Name:    "fake",
		Version: "1",
		Caps:    backends.CapNotify<<1 - 1 | backends.CapHostDevice | backends.CapNICNone | backends.CapRanksInProcess,
		Keys: []backends.Key{
			{Name: "fault", Default: faultNone, Allowed: strings.Join(faults, "|"), Help: "how to misbehave"},
			{Name: "fault_rank", Default: "0", Allowed: "0..4095", Help: "the rank that misbehaves"},
			{Name: "fault_call", Default: callRun, Allowed: strings.Join(calls, "|"), Help: "the call in which to crash, hang, fail or skip"},
			{Name: "fault_when", Default: "", Allowed: "", Help: "axis:value, to misbehave at these points only; empty for all (runs only)"},
			{Name: "fault_delay", Default: "100", Allowed: "0..600000", Help: "of slow-start, in milliseconds"},
		},
		Lowering: [backends.NumOps]backends.Lowering{
			backends.OpPut:        {Writes: 1},
			backends.OpPutValue:   {Writes: 1},
			backends.OpSignal:     {Atomics: 1},
			backends.OpPutSignal:  {Writes: 1, Atomics: 1},
			backends.OpGet:        {Reads: 1},
			backends.OpFetchAdd:   {Atomics: 1},
			backends.OpNotifyWord: {Writes: 1},
			backends.OpNotify:     {Writes: 2},
		},
	}
}

// Probe accepts device=host and nic=none: no NIC takes part, and no record may say that one did.
func (b *Backend) Probe(o backends.Open) error {
	if o.Device != "host" {
		return fmt.Errorf("device=%s: fake runs with device=host only: %w", o.Device, backends.ErrNotSupported)
	}
	if o.NIC != "none" {
		return fmt.Errorf("nic=%s: fake runs with nic=none only: %w", o.NIC, backends.ErrNotSupported)
	}
	for name, v := range o.Config {
		i := slices.IndexFunc(b.Info().Keys, func(k backends.Key) bool { return k.Name == name })
		if i < 0 {
			return fmt.Errorf("fake: %s is no key of it", name)
		}
		if k := b.Info().Keys[i]; !allowed(k.Allowed, v) {
			return fmt.Errorf("fake: %s=%s is not allowed: %s", name, v, k.Allowed)
		}
	}
	return nil
}

// allowed checks a value against backends.Key.Allowed.
func allowed(list, v string) bool {
	low, high, isRange := strings.Cut(list, "..")
	if !isRange {
		return list == "" || slices.Contains(strings.Split(list, "|"), v)
	}
	n, err := strconv.Atoi(v)
	lo, errLow := strconv.Atoi(low)
	hi, errHigh := strconv.Atoi(high)
	return err == nil && errLow == nil && errHigh == nil && n >= lo && n <= hi
}

// Open is collective.
func (b *Backend) Open(ctx context.Context, o backends.Open) (backends.Session, error) {
	if err := b.Probe(o); err != nil {
		return nil, err
	}
	s := &session{backend: b, open: o, stop: make(chan struct{}), config: map[string]string{}}
	s.ctx, s.cancel = context.WithCancel(ctx)
	for _, k := range b.Info().Keys {
		s.config[k.Name] = k.Default
		if v, ok := o.Config[k.Name]; ok {
			s.config[k.Name] = v
		}
	}
	if s.faulty(faultSlowStart, nil) {
		ms, err := strconv.Atoi(s.config["fault_delay"])
		if err != nil {
			return nil, fmt.Errorf("fake: fault_delay=%s is not an integer", s.config["fault_delay"])
		}
		select {
		case <-time.After(time.Duration(ms) * time.Millisecond):
		case <-ctx.Done():
			return nil, backends.ErrCanceled
		}
	}
	if err := s.misbehave(callOpen, nil); err != nil {
		return nil, err
	}
	return s, o.Comm.Barrier(ctx)
}

type session struct {
	backend  *Backend
	open     backends.Open
	config   map[string]string
	ctx      context.Context // done when stopped: no exchange outlives Stop
	cancel   context.CancelFunc
	stop     chan struct{}
	stopOnce sync.Once
	window   *window
	counters [4]uint64 // by counterNames
	payload  uint64
}

var _ backends.Session = (*session)(nil)

// faulty says whether this rank has the fault, at this run if one is given.
func (s *session) faulty(fault string, run *backends.Run) bool {
	if s.config["fault"] != fault || s.config["fault_rank"] != strconv.Itoa(s.open.Rank) {
		return false
	}
	when := s.config["fault_when"]
	if when == "" {
		return true
	}
	if run == nil {
		return false
	}
	p, _, err := workloads.PointOf(run.Args)
	axis, value, _ := strings.Cut(when, ":")
	return err == nil && p[axis] == value
}

// misbehave carries out the fault of a call.
func (s *session) misbehave(call string, run *backends.Run) error {
	if s.config["fault_call"] != call || !s.faulty(s.config["fault"], run) {
		return nil
	}
	switch s.config["fault"] {
	case faultCrash:
		fmt.Fprintf(os.Stderr, "fake: crash in %s\n", call)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way
	case faultHang:
		select {
		case <-s.stop:
		case <-s.ctx.Done():
		}
		return fmt.Errorf("fake: %s: %w", call, backends.ErrCanceled)
	case faultHangDeaf:
		select {}
	case faultError:
		return fmt.Errorf("fake: %s: fault=error", call)
	case faultSkip:
		return fmt.Errorf("%s with fault=skip: %w", call, backends.ErrNotSupported)
	}
	return nil
}

func (s *session) windowName(rank int) string {
	return fmt.Sprintf("/dev/shm/%s-fake%d", s.open.Job, rank)
}

// Window makes this rank's file.
func (s *session) Window(bytes uint64) error {
	if err := s.misbehave(callWindow, nil); err != nil {
		return err
	}
	s.closeWindow()
	w, err := createWindow(s.windowName(s.open.Rank), bytes)
	if err != nil {
		return fmt.Errorf("fake: window: %w", err)
	}
	s.window = w
	return s.open.Comm.Barrier(s.ctx)
}

func (s *session) closeWindow() {
	if s.window != nil {
		s.window.close()
		os.Remove(s.windowName(s.open.Rank))
		s.window = nil
	}
}

func (s *session) Write(offset uint64, data []byte) error {
	if err := s.misbehave(callWrite, nil); err != nil {
		return err
	}
	return s.window.Write(offset, data)
}

func (s *session) Read(offset uint64, data []byte) error {
	if err := s.misbehave(callRead, nil); err != nil {
		return err
	}
	return s.window.Read(offset, data)
}

func (s *session) Facts() (map[string]string, error) {
	if err := s.misbehave(callFacts, nil); err != nil {
		return nil, err
	}
	f := map[string]string{"engine": "go", "runnable_threads": "1", "library.fake.version": "1"}
	if s.faulty(faultUnsafe, nil) {
		f["unsafe"] = "fault=unsafe"
	}
	return f, nil
}

func (s *session) Stop() {
	s.stopOnce.Do(func() { close(s.stop) })
	s.cancel()
}

func (s *session) Close() error {
	if err := s.misbehave(callClose, nil); err != nil {
		return err
	}
	s.closeWindow()
	return nil
}
