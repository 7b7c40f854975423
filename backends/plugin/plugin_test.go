package plugin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gic/backends"
	"gic/backends/backendtest"
	"gic/backends/plugin"

	"github.com/google/go-cmp/cmp"
)

var mock struct {
	sync.Once
	b   backends.Backend
	dir string
}

func TestMain(m *testing.M) {
	code := m.Run()
	if mock.dir != "" {
		os.RemoveAll(mock.dir)
	}
	os.Exit(code)
}

// open loads the mock, once per process.
func load(t *testing.T) backends.Backend {
	t.Helper()
	mock.Do(func() {
		so := backendtest.Compile(t, "testdata/mock.c", "-D_GNU_SOURCE", "-Wno-unused-result")
		dir, err := os.MkdirTemp("", "gic-plugin-test")
		if err != nil {
			t.Fatal(err)
		}
		mock.dir = dir
		if err := os.Rename(so, filepath.Join(dir, "libmock.so")); err != nil {
			t.Fatal(err)
		}
		b, err := plugin.Load(filepath.Join(dir, "libmock.so"))
		if err != nil {
			t.Fatal(err)
		}
		mock.b = b
	})
	if mock.b == nil {
		backendtest.Need(t, "the mock backend, which did not build")
	}
	return mock.b
}

func params(config map[string]string) backends.Open {
	return backends.Open{Ranks: 1, Job: "gic-test", Device: "host", NIC: "none", Config: config,
		NICConfig: map[string]string{"engine": "cpu"}, Comm: backendtest.NewHub(1).Rank(0), Timeout: time.Minute}
}

func open(t *testing.T) backends.Session {
	t.Helper()
	s, err := load(t).Open(context.Background(), params(nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestInfo(t *testing.T) {
	want := backends.Info{
		Name: "mock", Version: "1.2",
		Caps: backends.CapPut | backends.CapNotify | backends.CapHostDevice | backends.CapNICNone,
		Keys: []backends.Key{
			{Name: "probe", Help: "what probe answers"},
			{Name: "open", Default: "ok", Allowed: "ok|fail|silent|nothing|positive", Help: "what open answers"},
		},
	}
	want.Lowering[backends.OpPut] = backends.Lowering{Writes: 1, Reads: 2, Atomics: 3}
	want.Lowering[backends.OpNotify] = backends.Lowering{Writes: 4, Reads: 5, Atomics: 6}
	got := load(t).Info()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("info (-want +got):\n%s", d)
	}
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var back backends.Info
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(got, back); d != "" {
		t.Errorf("after JSON (-want +got):\n%s", d)
	}
}

func TestLoadRefuses(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text.so")
	if err := os.WriteFile(text, []byte("no library\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	bad := func(flag string) string {
		return backendtest.Compile(t, "testdata/mock.c", "-D_GNU_SOURCE", "-Wno-unused-result", "-Wno-unused-function", "-D"+flag)
	}
	next := func(structs, tables int) string {
		var s, t int
		fmt.Sscanf(plugin.ABI(), "%d.%d", &s, &t)
		return fmt.Sprintf("%d.%d", s+structs, t+tables)
	}
	for _, c := range []struct{ path, want string }{
		{"no/such.so", "no such file"},
		{text, "file too short|invalid ELF header"},
		{bad("BAD_SYMBOL"), "no symbol gic_backend_v1: not a gic backend"},
		{bad("BAD_STRUCTS"), fmt.Sprintf("mock 1.2 was built for ABI %s, this gic wants %s: build it again (make)", next(1, 0), plugin.ABI())},
		{bad("BAD_TABLES"), fmt.Sprintf("mock 1.2 was built for ABI %s, this gic wants %s: build it again (make)", next(0, 1), plugin.ABI())},
		{bad("BAD_OLD"), "mock 1.2 was built for ABI 0.1, this gic wants " + plugin.ABI()},
		{bad("BAD_SIZE"), "mock has struct_size"},
		{bad("BAD_NAME"), "name is empty"},
		{bad("BAD_FUNCTION"), "mock: function run is NULL"},
		{bad("BAD_KEY"), `key 1: name "probe" is empty or given twice`},
	} {
		_, err := plugin.Load(c.path)
		if err == nil {
			t.Errorf("%s: loaded, want an error with %q", c.path, c.want)
			continue
		}
		found := false
		for _, w := range strings.Split(c.want, "|") {
			found = found || strings.Contains(err.Error(), w)
		}
		if !found || !strings.Contains(err.Error(), c.path) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %q, want one line with the path and %q", c.path, err, c.want)
		}
	}
}

func TestProbe(t *testing.T) {
	b := load(t)
	if err := b.Probe(params(nil)); err != nil {
		t.Errorf("probe: %v", err)
	}
	err := b.Probe(params(map[string]string{"probe": "absent"}))
	if !errors.Is(err, backends.ErrNotSupported) || err.Error() != "no mock device: plug one in" {
		t.Errorf("absent: %v, want the plugin's text, wrapping ErrNotSupported", err)
	}
	err = b.Probe(params(map[string]string{"probe": "senseless"}))
	if !errors.Is(err, syscall.EINVAL) || err.Error() != "mock: probe: probe=senseless makes no sense (EINVAL)" {
		t.Errorf("senseless: %v", err)
	}
	o := params(nil)
	o.Rank = 1
	if err := b.Probe(o); err == nil || !strings.Contains(err.Error(), "rank 1 of 1") {
		t.Errorf("rank 1 of 1: %v", err)
	}
	if err := b.Probe(params(map[string]string{"a": "b\x00c"})); err == nil || !strings.Contains(err.Error(), "NUL") {
		t.Errorf("NUL in a value: %v", err)
	}
}

func TestOpenErrors(t *testing.T) {
	b := load(t)
	for want, errText := range map[string]string{
		"fail":     "mock: open: open=fail is not 3 (EINVAL)",
		"silent":   "mock: open: cannot allocate memory (ENOMEM)",
		"nothing":  "mock: open: returned 0 but no session",
		"positive": "mock: open: returned 7, which is no status (EPROTO)",
	} {
		_, err := b.Open(context.Background(), params(map[string]string{"open": want}))
		if err == nil || err.Error() != errText {
			t.Errorf("open=%s: %v, want %s", want, err, errText)
		}
	}
	o := params(nil)
	o.Comm = nil
	if _, err := b.Open(context.Background(), o); err == nil {
		t.Error("opened without a Comm")
	}
}

// A peer that never comes: the context ends the exchange, and the error says so.
func TestOpenCanceled(t *testing.T) {
	o := params(nil)
	o.Ranks, o.Comm = 2, backendtest.NewHub(2).Rank(0)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	_, err := load(t).Open(ctx, o)
	if !errors.Is(err, backends.ErrCanceled) || !strings.Contains(err.Error(), "exchange with the peers (ECANCELED)") {
		t.Errorf("open with a missing peer: %v", err)
	}
}

type brokenComm struct{ err error }

func (c brokenComm) Allgather(context.Context, []byte) ([][]byte, error) { return nil, c.err }
func (c brokenComm) Barrier(context.Context) error                       { return c.err }

type crookedComm struct{ parts [][]byte }

func (c crookedComm) Allgather(context.Context, []byte) ([][]byte, error) { return c.parts, nil }
func (c crookedComm) Barrier(context.Context) error                       { return nil }

func TestExchangeErrors(t *testing.T) {
	cause := errors.New("rank 1 closed its connection")
	for _, c := range []struct {
		comm backends.Comm
		is   error
		text string
	}{
		{brokenComm{cause}, syscall.EIO, "mock: open: exchange with the peers (EIO): rank 1 closed its connection"},
		{brokenComm{cause}, cause, "rank 1"},
		{brokenComm{context.DeadlineExceeded}, backends.ErrTimeout, "(ETIMEDOUT)"},
		{brokenComm{backends.ErrCanceled}, backends.ErrCanceled, "(ECANCELED)"},
		{crookedComm{[][]byte{{1, 2, 3, 4}, {1}}}, syscall.EIO, "2 parts for 1 ranks"},
		{crookedComm{[][]byte{{1}}}, syscall.EIO, "rank 0 gave 1 bytes, this rank 4"},
	} {
		o := params(nil)
		o.Comm = c.comm
		_, err := load(t).Open(context.Background(), o)
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v: error %v, want %v and %q", c.comm, err, c.is, c.text)
		}
	}
}

func TestExchangeAmongRanks(t *testing.T) {
	const n = 4
	hub := backendtest.NewHub(n)
	b := load(t)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() {
			o := params(nil)
			o.Rank, o.Ranks, o.Comm = r, n, hub.Rank(r)
			s, err := b.Open(context.Background(), o)
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
				return
			}
			defer s.Close()
			for range 100 {
				if _, err := s.Run(backends.Run{Workload: "barrier"}); err != nil {
					t.Errorf("rank %d: %v", r, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestWindow(t *testing.T) {
	s := open(t)
	if err := s.Window(4096); err != nil {
		t.Fatal(err)
	}
	data := []byte("seeded pattern")
	if err := s.Write(100, data); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(data)+2)
	if err := s.Read(99, got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff("\x00seeded pattern\x00", string(got)); d != "" {
		t.Errorf("read back (-want +got):\n%s", d)
	}
	if err := s.Read(4090, got); !errors.Is(err, syscall.ERANGE) || err.Error() != "mock: read: outside the window (ERANGE)" {
		t.Errorf("read across the end: %v", err)
	}
	if err := s.Write(1<<63, nil); !errors.Is(err, syscall.ERANGE) {
		t.Errorf("write far outside: %v", err)
	}
	if err := s.Write(4096, nil); err != nil {
		t.Errorf("empty write at the end: %v", err)
	}
}

func TestRun(t *testing.T) {
	s := open(t)
	got, err := s.Run(backends.Run{Workload: "echo", Args: map[string]string{"a": "1"}, Blobs: []backends.Blob{
		{Name: "table", Data: []byte{1, 2, 250}}, {Name: "empty"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := []backends.Series{
		{Name: "values", Unit: "ns", Values: []float64{3, 253, 0, 0}},
		{Name: "table", Unit: "1", Values: []float64{}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("series (-want +got):\n%s", d)
	}
	got, err = s.Run(backends.Run{Workload: "count", Args: map[string]string{"n": "100000"}})
	if err != nil || len(got[0].Values) != 100000 || got[0].Values[99999] != 99999 {
		t.Errorf("100000 values: %d, %v", len(got[0].Values), err)
	}
	if _, err := s.Run(backends.Run{Workload: "crooked"}); err == nil || !strings.Contains(err.Error(), "series 0 has a NULL") {
		t.Errorf("series without a unit: %v", err)
	}
	for errno, is := range map[string]error{
		"5": syscall.EIO, "22": syscall.EINVAL, "95": backends.ErrNotSupported, "110": backends.ErrTimeout,
		"125": backends.ErrCanceled, "4000": syscall.Errno(4000),
	} {
		_, err := s.Run(backends.Run{Workload: "status", Args: map[string]string{"errno": errno}})
		if !errors.Is(err, is) || !strings.Contains(err.Error(), "as asked") {
			t.Errorf("errno %s: %v, want %v", errno, err, is)
		}
	}
}

func TestCountersAndFacts(t *testing.T) {
	s := open(t)
	for i := range 2 {
		got, err := s.Counters()
		if err != nil {
			t.Fatal(err)
		}
		want := []backends.Counter{
			{Name: "wqes", Unit: "1", Value: uint64(3 * (i + 1)), Exact: true},
			{Name: "doorbells", Unit: "1", Value: 1<<64 - 1},
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("counters (-want +got):\n%s", d)
		}
	}
	got, err := s.Facts()
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"where": "gic-test/host/none", "engine": "cpu", "counts": "0+1", "library.libmock.version": "1.2"} {
		if got[key] != want {
			t.Errorf("fact %s is %q, want %q", key, got[key], want)
		}
	}
	if len(got["library.libmock.sha256"]) != 64 || filepath.Base(got["library.libmock.path"]) != "libmock.so" {
		t.Errorf("the loaded plugin is not told: %v", got)
	}
}

func TestStop(t *testing.T) {
	s := open(t)
	time.AfterFunc(20*time.Millisecond, s.Stop)
	if _, err := s.Run(backends.Run{Workload: "spin"}); !errors.Is(err, backends.ErrCanceled) {
		t.Errorf("spin after Stop: %v", err)
	}
	// Stopped for good: a barrier does not wait either.
	if _, err := s.Run(backends.Run{Workload: "spin"}); !errors.Is(err, backends.ErrCanceled) {
		t.Errorf("second spin: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s.Stop() // after Close it has nothing left to set
	if err := s.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if err := s.Window(64); err == nil || !strings.Contains(err.Error(), "session is closed") {
		t.Errorf("window after close: %v", err)
	}
}

func TestSpinDeadline(t *testing.T) {
	o := params(nil)
	o.Timeout = time.Millisecond
	s, err := load(t).Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Run(backends.Run{Workload: "spin"}); !errors.Is(err, backends.ErrTimeout) {
		t.Errorf("spin with a deadline: %v", err)
	}
}

func TestLoaded(t *testing.T) {
	load(t)
	libs, err := plugin.Loaded()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range libs {
		if l.Name == "libmock" {
			if l.Version != "1.2" || len(l.SHA256) != 64 || filepath.Base(l.Path) != "libmock.so" {
				t.Errorf("the mock is %+v", l)
			}
			return
		}
	}
	t.Errorf("the mock is not among %+v", libs)
}
