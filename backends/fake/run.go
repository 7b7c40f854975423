package fake

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"gic/backends"
	"gic/workloads"
)

// outcome is what rank 0 tells the others of a run.
type outcome struct {
	Series [][]backends.Series `json:"series"` // by rank
	Err    string              `json:"err"`
	Skip   bool                `json:"skip"`
}

// Run has rank 0 carry out the work of all ranks on their windows.
func (s *session) Run(r backends.Run) ([]backends.Series, error) {
	series, err := s.run(r)
	if err != nil && s.ctx.Err() != nil && !errors.Is(err, backends.ErrCanceled) {
		err = fmt.Errorf("fake: run: %w", backends.ErrCanceled)
	}
	return series, err
}

func (s *session) run(r backends.Run) ([]backends.Series, error) {
	if err := s.misbehave(callRun, &r); err != nil {
		return nil, err
	}
	if s.window == nil {
		return nil, errors.New("fake: run: no window")
	}
	if err := s.open.Comm.Barrier(s.ctx); err != nil { // all windows are filled
		return nil, err
	}
	job, err := s.job(r)
	var mine []byte
	if s.open.Rank == 0 {
		var out outcome
		if err == nil {
			out.Series, err = s.simulate(job)
		}
		if err != nil {
			out.Err, out.Skip = err.Error(), errors.Is(err, backends.ErrNotSupported)
		}
		if mine, err = json.Marshal(out); err != nil {
			return nil, err
		}
	}
	text, err := s.fromRoot(mine)
	if err != nil {
		return nil, err
	}
	var out outcome
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, err
	}
	switch {
	case out.Skip:
		return nil, fmt.Errorf("%s: %w", out.Err, backends.ErrNotSupported)
	case out.Err != "":
		return nil, errors.New("fake: run: " + out.Err)
	}
	s.count(job.Ops(s.open.Rank), &r)
	if s.faulty(faultCorrupt, &r) {
		if err := s.window.invert(); err != nil {
			return nil, err
		}
	}
	return out.Series[s.open.Rank], nil
}

// job prepares the same job as the harness has, from the kernel's arguments.
func (s *session) job(r backends.Run) (workloads.Job, error) {
	w := s.backend.workloads[r.Workload]
	if w == nil {
		return nil, fmt.Errorf("workload %s is not known: %w", r.Workload, backends.ErrNotSupported)
	}
	p, seed, err := workloads.PointOf(r.Args)
	if err != nil {
		return nil, err
	}
	return w.Prepare(p, s.open.Ranks, seed)
}

func (s *session) simulate(job workloads.Job) ([][]backends.Series, error) {
	sim, ok := job.(workloads.Simulator)
	if !ok {
		return nil, fmt.Errorf("the workload cannot be carried out in Go: %w", backends.ErrNotSupported)
	}
	var windows []workloads.Memory
	for rank := range s.open.Ranks {
		w, err := openWindow(s.windowName(rank), s.window.bytes)
		if err != nil {
			return nil, err
		}
		defer w.close()
		windows = append(windows, w)
	}
	results, err := sim.Simulate(windows)
	if err != nil {
		return nil, err
	}
	if len(results) != s.open.Ranks {
		return nil, fmt.Errorf("the simulation gave %d results for %d ranks", len(results), s.open.Ranks)
	}
	var series [][]backends.Series
	for _, r := range results {
		series = append(series, r.Series)
	}
	return series, nil
}

// fromRoot gives rank 0's bytes to all. An exchange has one length for all ranks, so the length goes first.
func (s *session) fromRoot(mine []byte) ([]byte, error) {
	lengths, err := s.open.Comm.Allgather(s.ctx, binary.LittleEndian.AppendUint64(nil, uint64(len(mine))))
	if err != nil {
		return nil, err
	}
	buf := make([]byte, binary.LittleEndian.Uint64(lengths[0]))
	copy(buf, mine)
	all, err := s.open.Comm.Allgather(s.ctx, buf)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

var counterNames = [...]string{"wqes", "wqe_write", "wqe_read", "wqe_atomic"}

// count is what a NIC would have counted, had one carried out the list.
func (s *session) count(ops workloads.Ops, r *backends.Run) {
	for op, l := range s.backend.Info().Lowering {
		n := ops.Count[op]
		s.counters[1] += n * l.Writes
		s.counters[2] += n * l.Reads
		s.counters[3] += n * l.Atomics
	}
	if s.faulty(faultMiscount, r) {
		s.counters[1]++
	}
	s.counters[0] = s.counters[1] + s.counters[2] + s.counters[3]
	s.payload += ops.PayloadBytes
}

func (s *session) Counters() ([]backends.Counter, error) {
	if err := s.misbehave(callCounters, nil); err != nil {
		return nil, err
	}
	var out []backends.Counter
	for i, name := range counterNames {
		out = append(out, backends.Counter{Name: name, Unit: "1", Value: s.counters[i], Exact: true})
	}
	return append(out, backends.Counter{Name: "payload_bytes", Unit: "B", Value: s.payload, Exact: true}), nil
}

// window is a rank's window: a file that lives in memory.
type window struct {
	f     *os.File
	bytes uint64
}

var _ workloads.Memory = (*window)(nil)

func createWindow(name string, bytes uint64) (*window, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(int64(bytes)); err != nil {
		f.Close()
		os.Remove(name)
		return nil, err
	}
	return &window{f, bytes}, nil
}

func openWindow(name string, bytes uint64) (*window, error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return &window{f, bytes}, nil
}

func (w *window) close() { w.f.Close() }

func (w *window) check(what string, offset uint64, n int) error {
	if w == nil {
		return fmt.Errorf("fake: %s: no window", what)
	}
	if offset > w.bytes || uint64(n) > w.bytes-offset {
		return fmt.Errorf("fake: %s of %d bytes at %d is outside the window of %d bytes", what, n, offset, w.bytes)
	}
	return nil
}

func (w *window) Write(offset uint64, data []byte) error {
	if err := w.check("write", offset, len(data)); err != nil {
		return err
	}
	_, err := w.f.WriteAt(data, int64(offset))
	return err
}

func (w *window) Read(offset uint64, data []byte) error {
	if err := w.check("read", offset, len(data)); err != nil {
		return err
	}
	_, err := w.f.ReadAt(data, int64(offset))
	return err
}

// invert flips every bit, so that whatever is checked is found.
func (w *window) invert() error {
	buf := make([]byte, 1<<16)
	for at := uint64(0); at < w.bytes; at += uint64(len(buf)) {
		part := buf[:min(uint64(len(buf)), w.bytes-at)]
		if err := w.Read(at, part); err != nil {
			return err
		}
		for i := range part {
			part[i] = ^part[i]
		}
		if err := w.Write(at, part); err != nil {
			return err
		}
	}
	return nil
}
