package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gic/backends"
	"gic/backends/fake"
	"gic/harness/plan"
	"gic/harness/record"
	"gic/workloads"
)

// issueSize is the size at which the test workload also gives an issue time, and warnings.
const issueSize = 24

// testPorts is a port of which each snapshot shows ten packets more.
func testPorts() func() map[string]uint64 {
	var packets atomic.Uint64
	return func() map[string]uint64 {
		return map[string]uint64{"mlx5_0/1/port_xmit_packets": packets.Add(10), "mlx5_0/1/symbol_error": 3}
	}
}

// The test binary is also the rank process, and, for launches, the whole of `gic run`.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == RankArg {
		var samples atomic.Int64
		os.Exit(RankMain(RankOptions{
			Workloads: testWorkloads(),
			Open: func(name, plugin string) (backends.Backend, error) {
				switch name {
				case "fake":
					return fake.New(ring{}), nil
				case "littering":
					return littering{fake.New(ring{})}, nil
				case "telling":
					return telling{fake.New(ring{})}, nil
				}
				return nil, fmt.Errorf("backend %s is not known", name)
			},
			Sample: func() map[string]any {
				return map[string]any{"pid": os.Getpid(), "gpu_sm_clock": samples.Add(1)}
			},
			Ports: testPorts(),
		}))
	}
	if len(os.Args) > 1 && os.Args[1] == "gic-run" {
		if err := launchedMain(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // the tests mostly wait for processes
		panic(err)
	}
	status := m.Run()
	if left := children(); status == 0 && len(left) > 0 {
		fmt.Fprintln(os.Stderr, "processes left behind:", left)
		status = 1
	}
	os.Exit(status)
}

// littering is the fake with bad manners that real stacks have: it starts a process and makes shared memory that
// it forgets, and its Close is collective.
type littering struct{ *fake.Backend }

type litteringSession struct {
	backends.Session
	comm  backends.Comm
	child int
}

func (l littering) Open(ctx context.Context, o backends.Open) (backends.Session, error) {
	cmd := exec.Command("sleep", "600")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if err := os.WriteFile(fmt.Sprintf("%s/%s-litter%d", sharedDir, o.Job, o.Rank), nil, 0o600); err != nil {
		return nil, err
	}
	s, err := l.Backend.Open(ctx, o)
	return &litteringSession{s, o.Comm, cmd.Process.Pid}, err
}

func (s *litteringSession) Facts() (map[string]string, error) {
	f, err := s.Session.Facts()
	if err == nil {
		f["child"] = strconv.Itoa(s.child)
	}
	return f, err
}

func (s *litteringSession) Close() error {
	return errors.Join(s.comm.Barrier(context.Background()), s.Session.Close())
}

// telling is the fake whose facts name its process and its device.
type telling struct{ *fake.Backend }

type tellingSession struct {
	backends.Session
	device string
}

func (b telling) Open(ctx context.Context, o backends.Open) (backends.Session, error) {
	device := o.Device
	o.Device = "host"
	s, err := b.Backend.Open(ctx, o)
	return &tellingSession{s, device}, err
}

func (s *tellingSession) Facts() (map[string]string, error) {
	f, err := s.Session.Facts()
	if err == nil {
		f["pid"], f["device"] = strconv.Itoa(os.Getpid()), s.device
	}
	return f, err
}

// launchedMain is one process of a launch; agent 0 writes its records to a file.
func launchedMain(out string) error {
	l, ok, err := Discover(os.Environ())
	if err != nil || !ok {
		return fmt.Errorf("no launch: %v", err)
	}
	rv, err := RendezvousFromEnv(os.Environ())
	if err != nil {
		return err
	}
	if t := os.Getenv("TEST_TIMEOUT"); t != "" {
		if rv.Timeout, err = time.ParseDuration(t); err != nil {
			return err
		}
	}
	rv.Machine = func() record.Machine { return record.Machine{Hostname: "other"} }
	if l.Rank != 0 {
		return Serve(context.Background(), l, rv)
	}
	c, err := Gather(context.Background(), l, rv)
	if err != nil {
		return err
	}
	defer c.Close()
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	p := testPlan(l.Size, os.Getenv("TEST_CONFIG"), "8", "64")
	err = Run(context.Background(), p, Options{Workloads: testWorkloads(), Cluster: c, Timeout: 30 * time.Second},
		func(c record.Case) error { return json.NewEncoder(f).Encode(c) })
	return errors.Join(err, f.Close())
}

// children lists the living child processes of this one.
func children() []int { return childrenOf(os.Getpid()) }

func childrenOf(parent int) []int {
	var out []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		// pid (comm) state ppid
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(f) > 1 && f[1] == strconv.Itoa(parent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			out = append(out, pid)
		}
	}
	return out
}

func testWorkloads() map[string]workloads.Workload {
	return map[string]workloads.Workload{"ring": ring{}}
}

// ring: every rank puts `size` bytes to the next rank.
type ring struct{}

type ringJob struct {
	size, ranks int
	seed        uint64
	p           workloads.Point
}

func (ring) Name() string           { return "ring" }
func (ring) Doc() string            { return "" }
func (ring) Method() string         { return "" }
func (ring) Axes() []workloads.Axis { return nil }

func (ring) Prepare(p workloads.Point, ranks int, seed uint64) (workloads.Job, error) {
	size, err := p.Within("size", 1, 1<<20)
	if err != nil {
		return nil, err
	}
	j := &ringJob{size, ranks, seed, p}
	if p["runs"] != "" {
		return ringSweep{j}, nil
	}
	return j, nil
}

// The axis runs makes a sweep of the job.
type ringSweep struct{ *ringJob }

func (j ringSweep) Runs() int { return len(j.p["runs"]) }
func (j ringSweep) RunAt(_, i int) (backends.Run, error) {
	run, err := j.Run(0)
	run.Args["axis.size"] = strconv.Itoa(j.size)
	run.Args["axis.run"] = j.p["runs"][i : i+1]
	return run, err
}

func (j *ringJob) WindowBytes() uint64 { return uint64(2 * j.size) }
func (j *ringJob) Needs() backends.Caps {
	if j.p["need"] == "cuda" {
		return backends.CapPut | backends.CapCUDADevice
	}
	return backends.CapPut
}
func (j *ringJob) Run(int) (backends.Run, error) {
	return backends.Run{Workload: "ring", Args: j.p.Args(j.seed)}, nil
}
func (j *ringJob) pattern(rank int) []byte {
	return bytes.Repeat([]byte{byte(j.seed) + byte(rank) + 1}, j.size)
}
func (j *ringJob) Fill(rank int, m workloads.Memory) error {
	if err := m.Write(0, j.pattern(rank)); err != nil {
		return err
	}
	return m.Write(uint64(j.size), make([]byte, j.size))
}
func (j *ringJob) Ops(int) (o workloads.Ops) {
	o.Add(backends.OpPut, 1, uint64(j.size))
	return o
}
func (j *ringJob) Verify(rank int, m workloads.Memory) (v workloads.Verification, err error) {
	if j.p["panic"] == "verify" {
		panic("verify of the test")
	}
	if err := m.Write(0, make([]byte, j.size)); err != nil {
		return v, err
	}
	got := make([]byte, j.size)
	if err := m.Read(uint64(j.size), got); err != nil {
		return v, err
	}
	for i, b := range j.pattern((rank + j.ranks - 1) % j.ranks) {
		v.Checked++
		if got[i] != b {
			v.Wrong++
			if v.First == "" {
				v.First = fmt.Sprintf("byte %d is %#x, not %#x", i, got[i], b)
			}
		}
	}
	return v, nil
}
func (j *ringJob) Simulate(windows []workloads.Memory) ([]workloads.RankResult, error) {
	results := make([]workloads.RankResult, len(windows))
	for r, w := range windows {
		buf := make([]byte, j.size)
		if err := w.Read(0, buf); err != nil {
			return nil, err
		}
		if err := windows[(r+1)%len(windows)].Write(uint64(j.size), buf); err != nil {
			return nil, err
		}
		results[r].Series = []backends.Series{{Name: "t", Unit: "ns", Values: []float64{float64(j.size + r)}}}
	}
	return results, nil
}
func (j *ringJob) Summarize(rs []workloads.RankResult) (workloads.Summary, error) {
	var m workloads.Metric
	for _, r := range rs {
		for _, t := range r.Get("t") {
			m.Samples = append(m.Samples, t*1e-9)
		}
	}
	m.Name, m.Unit, m.Class, m.Headline = "put", "s", workloads.Time, true
	sum := workloads.Summary{Metrics: []workloads.Metric{m}, Facts: map[string]any{"ring": j.size}}
	if j.size == issueSize {
		sum.Metrics = append(sum.Metrics, workloads.Metric{Name: "issue", Unit: "s", Class: workloads.Time, Samples: []float64{1e-9}},
			workloads.Metric{Name: "posting_rate", Unit: "msg/s", Class: workloads.Rate, Samples: []float64{1e9}})
		sum.Warnings = []workloads.Warning{{Code: "timer_check", Text: "off"}, {Code: "other", Text: "stays"}}
	}
	return sum, nil
}

// testPlan is one outer of the fake with the given "k=v,.." configuration and sizes.
func testPlan(ranks int, config string, sizes ...string) plan.Plan {
	p := plan.Plan{Seed: 7, Ranks: ranks, Repeat: 1}
	p.Outers = append(p.Outers, testOuter(ranks, config, sizes...))
	return p
}

func testOuter(ranks int, config string, sizes ...string) plan.Outer {
	o := plan.Outer{Workload: "ring", Backend: "fake", Config: map[string]string{}, NIC: plan.NIC{Kind: "none"},
		Device: "host", Ranks: ranks, Seed: 7}
	for _, k := range (*fake.Backend)(nil).Info().Keys {
		o.Config[k.Name] = k.Default
	}
	for kv := range strings.SplitSeq(config, ",") {
		if k, v, ok := strings.Cut(kv, "="); ok {
			o.Config[k] = v
		}
	}
	for _, s := range sizes {
		o.Points = append(o.Points, workloads.Point{"size": s})
	}
	return o
}

// measure runs a plan on a cluster of its own, and checks that nothing of it stays behind.
func measure(t *testing.T, ctx context.Context, p plan.Plan, opt Options, sink func(record.Case) error) ([]record.Case, error) {
	t.Helper()
	c, err := Local(neededRanks(&p))
	if err != nil {
		t.Fatal(err)
	}
	opt.Workloads, opt.Cluster = testWorkloads(), c
	if opt.Timeout == 0 {
		opt.Timeout = time.Minute
	}
	if opt.Timeout < hangTimeout {
		t.Fatalf("a timeout of %v, want at least %v: healthy steps take so long on a busy machine", opt.Timeout, hangTimeout)
	}
	var got []record.Case
	err = Run(ctx, p, opt, func(c record.Case) error {
		got = append(got, c)
		if sink != nil {
			return sink(c)
		}
		return nil
	})
	for i, a := range c.agents {
		if n := len(a.(*localAgent).running); n > 0 {
			t.Errorf("rank %d still runs", i)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(sharedDir, c.names.prefix+"-*")); len(left) > 0 {
		t.Errorf("shared memory left behind: %v", left)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(sharedDir, c.names.prefix+"*")); len(left) > 0 {
		t.Errorf("shared memory left behind: %v", left)
	}
	return got, err
}
