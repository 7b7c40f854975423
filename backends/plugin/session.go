package plugin

/*
#include "backend.h"

int gicGoExchange(uintptr_t session, void *mine, void *all, size_t bytes);

static int comm_allgather(void *arg, const void *mine, void *all, size_t bytes) {
	return gicGoExchange((uintptr_t)arg, (void *)mine, all, bytes);
}
static int comm_barrier(void *arg) { return gicGoExchange((uintptr_t)arg, NULL, NULL, 0); }
static void comm_init(struct gic_comm *c, uintptr_t session) {
	c->arg = (void *)session;
	c->allgather = comm_allgather;
	c->barrier = comm_barrier;
}

static int call_open(const struct gic_backend *b, const struct gic_open *o, struct gic_session **s) {
	return b->open(o, s);
}
static void call_close(const struct gic_backend *b, struct gic_session *s) { b->close(s); }
static int call_window(const struct gic_backend *b, struct gic_session *s, uint64_t n) { return b->window(s, n); }
static int call_write(const struct gic_backend *b, struct gic_session *s, uint64_t off, const void *p, size_t n) {
	return b->write(s, off, p, n);
}
static int call_read(const struct gic_backend *b, struct gic_session *s, uint64_t off, void *p, size_t n) {
	return b->read(s, off, p, n);
}
static int call_run(const struct gic_backend *b, struct gic_session *s, const struct gic_run *r, struct gic_result *res) {
	return b->run(s, r, res);
}
static int call_counters(const struct gic_backend *b, struct gic_session *s, const struct gic_counter **c, uint32_t *n) {
	return b->counters(s, c, n);
}
static int call_facts(const struct gic_backend *b, struct gic_session *s, const struct gic_kv **f, uint32_t *n) {
	return b->facts(s, f, n);
}
*/
import "C"

import (
	"context"
	"fmt"
	"runtime"
	"runtime/cgo"
	"sync"
	"sync/atomic"
	"unsafe"

	"gic/backends"
)

// session is one opened backend. The ABI promises a plugin that all calls on a session come from one OS thread,
// so a goroutine locked to a thread of its own makes them; the thread ends with the session.
type session struct {
	p         *Plugin
	libraries map[string]string // facts of what is loaded, nil until asked for
	c         *C.struct_gic_session
	mem       arena // lives until close: gic_open's comm and stop
	comm      backends.Comm
	ranks     int
	ctx       context.Context // of every exchange; done once the session is stopped
	cancel    context.CancelFunc
	handle    cgo.Handle // of this session, in gic_comm.arg
	work      chan func()
	// commErr is the last failed exchange inside the current call; it tells which rank was missing.
	commErr error

	mu   sync.Mutex // guards stop against close
	stop *C.uint32_t
}

var _ backends.Session = (*session)(nil)

// Open opens the plugin on this rank. When ctx ends while it is opening, it is stopped as by Session.Stop.
func (p *Plugin) Open(ctx context.Context, o backends.Open) (backends.Session, error) {
	if o.Comm == nil {
		return nil, fmt.Errorf("%s: open: no Comm given", p.info.Name)
	}
	s := &session{p: p, comm: o.Comm, ranks: o.Ranks, work: make(chan func())}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.handle = cgo.NewHandle(s)
	s.stop = (*C.uint32_t)(s.mem.alloc(C.sizeof_uint32_t))
	comm := (*C.struct_gic_comm)(s.mem.alloc(C.sizeof_struct_gic_comm))
	C.comm_init(comm, C.uintptr_t(s.handle))
	var call arena // what the plugin may look at only during open
	defer call.free()
	co, err := call.open(o, s.stop, comm)
	if err != nil {
		s.release()
		return nil, fmt.Errorf("%s: open: %w", p.info.Name, err)
	}
	go s.serve()
	unwatch := context.AfterFunc(ctx, s.Stop)
	err = s.do("open", func() C.int { return C.call_open(p.b, co, &s.c) })
	unwatch()
	if err == nil && s.c == nil {
		err = fmt.Errorf("%s: open: returned 0 but no session", p.info.Name)
	}
	if err != nil {
		s.release()
		return nil, err
	}
	return s, nil
}

// serve runs the session's calls on one thread. It never unlocks: Go ends a thread whose goroutine exits locked,
// and with it whatever the plugin left in thread-local storage.
func (s *session) serve() {
	runtime.LockOSThread()
	for f := range s.work {
		f()
	}
}

// do makes one call on the session's thread.
func (s *session) do(call string, f func() C.int) error {
	if s.work == nil {
		return fmt.Errorf("%s: %s: session is closed", s.p.info.Name, call)
	}
	done := make(chan error)
	s.work <- func() {
		s.commErr = nil
		done <- s.p.status(call, f(), s.commErr)
	}
	return <-done
}

// release frees what is ours; the plugin's part is closed or was never opened.
func (s *session) release() {
	s.cancel()
	s.mu.Lock()
	s.stop = nil
	s.mu.Unlock()
	close(s.work)
	s.work = nil
	s.handle.Delete()
	s.mem.free()
}

func (s *session) Window(bytes uint64) error {
	return s.do("window", func() C.int { return C.call_window(s.p.b, s.c, C.uint64_t(bytes)) })
}

func (s *session) Write(offset uint64, data []byte) error {
	return s.do("write", func() C.int {
		return C.call_write(s.p.b, s.c, C.uint64_t(offset), unsafe.Pointer(unsafe.SliceData(data)), C.size_t(len(data)))
	})
}

func (s *session) Read(offset uint64, data []byte) error {
	return s.do("read", func() C.int {
		return C.call_read(s.p.b, s.c, C.uint64_t(offset), unsafe.Pointer(unsafe.SliceData(data)), C.size_t(len(data)))
	})
}

func (s *session) Run(r backends.Run) ([]backends.Series, error) {
	var mem arena
	defer mem.free()
	cr, err := mem.run(r)
	if err != nil {
		return nil, fmt.Errorf("%s: run: %w", s.p.info.Name, err)
	}
	res := (*C.struct_gic_result)(mem.alloc(C.sizeof_struct_gic_result))
	if err := s.do("run", func() C.int { return C.call_run(s.p.b, s.c, cr, res) }); err != nil {
		return nil, err
	}
	out, err := goSeries(res)
	return out, s.wrap("run", err)
}

func (s *session) Counters() ([]backends.Counter, error) {
	var list *C.struct_gic_counter
	var n C.uint32_t
	if err := s.do("counters", func() C.int { return C.call_counters(s.p.b, s.c, &list, &n) }); err != nil {
		return nil, err
	}
	out, err := goCounters(list, n)
	return out, s.wrap("counters", err)
}

func (s *session) Facts() (map[string]string, error) {
	var list *C.struct_gic_kv
	var n C.uint32_t
	if err := s.do("facts", func() C.int { return C.call_facts(s.p.b, s.c, &list, &n) }); err != nil {
		return nil, err
	}
	out, err := goFacts(list, n)
	if err != nil {
		return nil, s.wrap("facts", err)
	}
	return out, s.wrap("facts", s.addLibraries(out))
}

// addLibraries says which files this process really loaded, under the names of abi/backend.h; what the backend
// itself says of a library goes first. They are read once: by the first call after a run, stacks have loaded
// what they use.
func (s *session) addLibraries(facts map[string]string) error {
	if s.libraries == nil {
		libs, err := Loaded()
		if err != nil {
			return fmt.Errorf("list loaded libraries: %w", err)
		}
		s.libraries = map[string]string{}
		for _, l := range libs {
			prefix := "library." + l.Name + "."
			for key, value := range map[string]string{"version": l.Version, "path": l.Path, "sha256": l.SHA256} {
				if value != "" {
					s.libraries[prefix+key] = value
				}
			}
		}
	}
	for key, value := range s.libraries {
		if _, ok := facts[key]; !ok {
			facts[key] = value
		}
	}
	return nil
}

func (s *session) wrap(call string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s: %w", s.p.info.Name, call, err)
}

// Stop sets the word that every device spin looks at and ends a blocked exchange.
func (s *session) Stop() {
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		atomic.StoreUint32((*uint32)(unsafe.Pointer(s.stop)), 1)
	}
}

func (s *session) Close() error {
	if s.work == nil {
		return nil
	}
	err := s.do("close", func() C.int { C.call_close(s.p.b, s.c); return 0 })
	s.release()
	return err
}
