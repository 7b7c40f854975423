package run

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"gic/backends"
	"gic/harness/plan"
	"gic/harness/record"
	"gic/workloads"
)

func TestRunGivesARecordPerPoint(t *testing.T) {
	t.Parallel()
	p := testPlan(3, "", "64", "8", "1K")
	got, err := measure(t, t.Context(), p, Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for i, c := range got {
		order = append(order, c.Axes["size"])
		if c.Status != record.OK || c.Order != i || c.Ranks != 3 || c.NIC != "none" || c.Device != "host" {
			t.Errorf("record %d: %+v", i, c)
		}
		size, _ := workloads.Point(c.Axes).Int("size")
		want := &workloads.Verification{Checked: uint64(3 * size)}
		if d := cmp.Diff(want, c.Verify); d != "" {
			t.Errorf("verification (-want +got):\n%s", d)
		}
		if d := cmp.Diff(map[string]uint64{"wqe_write": 3, "wqe_read": 0, "wqe_atomic": 0}, c.Expected); d != "" {
			t.Errorf("expected (-want +got):\n%s", d)
		}
		counters := map[string]uint64{}
		for _, k := range c.Counters {
			counters[k.Name] = k.Value
		}
		// Of this run alone, although counters go on through the process.
		if counters["wqe_write"] != 3 || counters["payload_bytes"] != uint64(3*size) {
			t.Errorf("counters of size %d: %v", size, counters)
		}
		if len(c.Metrics) != 1 || c.Metrics[0].N != 3 || !c.Metrics[0].Headline || c.Metrics[0].Max != float64(size+2)*1e-9 {
			t.Errorf("metrics: %+v", c.Metrics)
		}
		if len(c.Library) != 1 || c.Library[0].Name != "fake" || c.Library[0].Version != "1" || c.Created["engine"] != "go" {
			t.Errorf("libraries %v, created %v", c.Library, c.Created)
		}
		if c.Facts["ring"] != size || c.Host["cpus"] == nil || c.Host["runnable_threads"] != 3 {
			t.Errorf("facts %v, host %v", c.Facts, c.Host)
		}
		// What the ports moved during this run alone; a counter that stood still is left out.
		if d := cmp.Diff(map[string]any{"mlx5_0/1/port_xmit_packets": 10.0}, c.Host["rdma_ports"]); d != "" {
			t.Errorf("port counters (-want +got):\n%s", d)
		}
	}
	if d := cmp.Diff([]string{"64", "8", "1K"}, order); d != "" {
		t.Errorf("points not in the planned order (-want +got):\n%s", d)
	}
	// The clocks are looked at before and after each run.
	for i, c := range got {
		before, _ := c.Host["gpu_sm_clock_before"].(float64)
		if after := c.Host["gpu_sm_clock"].(float64); before < 1 || after != before+1 {
			t.Errorf("record %d: clocks %v before and %v after", i, c.Host["gpu_sm_clock_before"], after)
		}
	}
	// One set of processes swept all points.
	if got[0].Host["pid"] != got[2].Host["pid"] {
		t.Errorf("points were measured in different processes")
	}
}

func TestOutersRunInPlannedOrderInFreshProcesses(t *testing.T) {
	t.Parallel()
	p := testPlan(2, "")
	p.Outers = nil
	var want []string
	for index := range 2 {
		for _, delay := range []string{"1", "2"} { // stands for two backends
			o := testOuter(2, "fault_delay="+delay, "8")
			o.Index = index
			p.Outers = append(p.Outers, o)
			want = append(want, fmt.Sprint(index, " ", delay))
		}
	}
	var progress []int
	got, err := measure(t, t.Context(), p, Options{Progress: func(p Progress) {
		if p.Last != nil {
			progress = append(progress, p.Done)
		}
		if p.Planned != 4 {
			t.Errorf("planned %d", p.Planned)
		}
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	pids := map[any]bool{}
	for _, c := range got {
		order = append(order, fmt.Sprint(c.Index, " ", c.Config["fault_delay"]))
		pids[c.Host["pid"]] = true
	}
	if d := cmp.Diff(want, order); d != "" {
		t.Errorf("order (-want +got):\n%s", d)
	}
	if len(pids) != 4 {
		t.Errorf("%d processes of rank 0, want 4", len(pids))
	}
	if d := cmp.Diff([]int{1, 2, 3, 4}, progress); d != "" {
		t.Errorf("progress (-want +got):\n%s", d)
	}
	if got[0].ID != got[2].ID || got[0].ID == got[1].ID {
		t.Errorf("ids do not name the case: %s %s %s", got[0].ID, got[1].ID, got[2].ID)
	}
}

// The runs of a sweep are checked one by one, and are one record.
func TestSweep(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		config string
		status record.Status
		wrong  uint64
	}{
		{"", record.OK, 0},
		{"fault=corrupt,fault_rank=1,fault_when=run:b", record.Unverified, 8},
	} {
		p := testPlan(2, tc.config)
		p.Outers[0].Points = []workloads.Point{{"size": "8", "runs": "abc"}}
		got, err := measure(t, t.Context(), p, Options{}, nil)
		if err != nil || len(got) != 1 {
			t.Fatalf("%s: %d records, %v", tc.config, len(got), err)
		}
		c := got[0]
		if c.Status != tc.status || c.Verify.Checked != 2*3*8 || c.Verify.Wrong != tc.wrong || c.Messages != 6 || c.Expected["wqe_write"] != 6 {
			t.Errorf("%s: %s %q, verify %+v, %d messages, expected %v", tc.config, c.Status, c.Reason, c.Verify, c.Messages, c.Expected)
		}
		if d := cmp.Diff([]float64{8e-9, 8e-9, 8e-9, 9e-9, 9e-9, 9e-9}, c.Metrics[0].Samples, cmpopts.EquateApprox(1e-6, 0)); d != "" {
			t.Errorf("%s: samples (-want +got):\n%s", tc.config, d)
		}
	}
}

// Ranks of one process are ranks like any others; they share a GPU.
func TestRanksInProcess(t *testing.T) {
	t.Parallel()
	p := testPlan(5, "", "8", "64")
	p.InProcess = 2
	p.Outers[0].Backend, p.Outers[0].Device = "telling", "cuda"
	got, err := measure(t, t.Context(), p, Options{}, nil)
	if err != nil || len(got) != 2 {
		t.Fatalf("%d records, %v", len(got), err)
	}
	for _, c := range got {
		if c.Status != record.OK || c.Verify.Checked == 0 {
			t.Errorf("%s %s", c.Status, c.Reason)
		}
		var pids, devices []string
		for i, last := 0, []string{"", ""}; i < 5; i++ { // a fact stands for the ranks that agree with rank 0
			for k, name := range []string{"pid", "device"} {
				last[k] = c.Created[name]
				if v, ok := c.Created[fmt.Sprintf("%s.rank%d", name, i)]; ok {
					last[k] = v
				}
			}
			pids, devices = append(pids, last[0]), append(devices, last[1])
		}
		if pids[0] != pids[1] || pids[2] != pids[3] || pids[0] == pids[2] || pids[4] == pids[0] || pids[4] == pids[2] {
			t.Errorf("processes of the ranks: %v", pids)
		}
		if d := cmp.Diff([]string{"cuda:0", "cuda:0", "cuda:1", "cuda:1", "cuda:2"}, devices); d != "" {
			t.Errorf("devices (-want +got):\n%s", d)
		}
		if c.Created["ranks_in_process"] != "2" {
			t.Errorf("created %v", c.Created)
		}
	}
}

func TestFaultsOfRanksInProcess(t *testing.T) {
	t.Parallel()
	hang, deaf := Options{Timeout: hangTimeout, Grace: time.Minute}, Options{Timeout: hangTimeout, Grace: 50 * time.Millisecond}
	var wg sync.WaitGroup
	for _, tc := range []struct {
		config string
		opt    Options
		status record.Status
		reason string
	}{
		{"fault=crash,fault_rank=1", Options{}, record.Failed, "rank 1 in run: signal SIGKILL"},
		{"fault=crash,fault_rank=2", Options{}, record.Failed, "rank 2 ended in run: signal SIGKILL"},
		{"fault=error,fault_rank=1", Options{}, record.Failed, "rank 1: "},
		{"fault=hang,fault_rank=1", hang, record.Timeout, "rank 1 in run"},
		{"fault=hang-deaf,fault_rank=0", deaf, record.Timeout, "rank 0 in run"},
		{"fault=skip,fault_rank=1", Options{}, record.Skipped, "with fault=skip"},
	} {
		wg.Go(func() {
			p := testPlan(3, tc.config, "8")
			p.InProcess = 2
			got, err := measure(t, t.Context(), p, tc.opt, nil)
			if err != nil || len(got) != 1 {
				t.Errorf("%s: %d records, %v", tc.config, len(got), err)
				return
			}
			if c := got[0]; c.Status != tc.status || !strings.Contains(c.Reason, tc.reason) {
				t.Errorf("%s: %s %s", tc.config, c.Status, c.Reason)
			}
		})
	}
	wg.Wait()
}

func TestWrongResultsAreUnverified(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		config string
		status record.Status
		reason string
	}{
		{"fault=corrupt,fault_rank=1", record.Unverified, "payload: 8 of 16 bytes wrong, first: rank 1: byte 0"},
		{"fault=miscount", record.Unverified, "path proof: wqe_write is 3, the message list makes 2"},
		{"fault=unsafe,fault_rank=1", record.Unsafe, "fault=unsafe"},
		{"fault=slow-start,fault_rank=1,fault_delay=50", record.OK, ""},
	} {
		got, err := measure(t, t.Context(), testPlan(2, tc.config, "8"), Options{}, nil)
		if err != nil || len(got) != 1 {
			t.Fatalf("%s: %d records, error %v", tc.config, len(got), err)
		}
		if c := got[0]; c.Status != tc.status || !strings.HasPrefix(c.Reason, tc.reason) {
			t.Errorf("%s: %s %q, want %s %q", tc.config, c.Status, c.Reason, tc.status, tc.reason)
		}
	}
}

// A configuration without ordering is issue-only: every time that waits for the NIC is left out.
func TestUnsafeKeepsIssueOnly(t *testing.T) {
	t.Parallel()
	for config, want := range map[string][]string{"fault=unsafe": {"issue", "posting_rate"}, "": {"put", "issue", "posting_rate"}} {
		got, err := measure(t, t.Context(), testPlan(2, config, fmt.Sprint(issueSize)), Options{}, nil)
		if err != nil || len(got) != 1 {
			t.Fatalf("%q: %d records, error %v", config, len(got), err)
		}
		var names, codes []string
		for _, m := range got[0].Metrics {
			names = append(names, m.Name)
			if !m.Headline && config != "" {
				t.Errorf("%q: %s is not shown", config, m.Name)
			}
		}
		for _, w := range got[0].Warnings {
			codes = append(codes, w.Code)
		}
		if d := cmp.Diff(want, names); d != "" {
			t.Errorf("%q: metrics (-want +got):\n%s", config, d)
		}
		if slices.Contains(codes, "timer_check") != (config == "") || !slices.Contains(codes, "other") {
			t.Errorf("%q: warnings %v", config, codes)
		}
	}
}

func TestASkippedPointLeavesTheSetSound(t *testing.T) {
	t.Parallel()
	// With one rank every rank says so.
	got, err := measure(t, t.Context(), testPlan(1, "fault=skip,fault_when=size:64", "8", "64", "16"), Options{}, nil)
	if err != nil || len(got) != 3 {
		t.Fatalf("%d records, error %v", len(got), err)
	}
	if got[0].Status != record.OK || got[1].Status != record.Skipped || got[2].Status != record.OK {
		t.Errorf("statuses %s %s %s", got[0].Status, got[1].Status, got[2].Status)
	}
	if got[0].Host["pid"] != got[2].Host["pid"] {
		t.Errorf("the set was not kept")
	}
}

func TestRowsThatCannotRun(t *testing.T) {
	t.Parallel()
	outer := func(edit func(*plan.Outer)) plan.Outer {
		o := testOuter(2, "", "8")
		edit(&o)
		return o
	}
	for _, tc := range []struct {
		outer  plan.Outer
		status record.Status
		reason string
	}{
		{outer(func(o *plan.Outer) { o.Skip = "no CUDA device" }), record.Skipped, "no CUDA device"},
		{outer(func(o *plan.Outer) { o.Skip, o.Points = "no CUDA device", nil }), record.Skipped, "no CUDA device"},
		{outer(func(o *plan.Outer) { o.Points[0]["need"] = "cuda" }), record.Skipped, "fake has no device=cuda"},
		{outer(func(o *plan.Outer) { o.NIC.Kind = "soft" }), record.Skipped, "nic=soft: fake runs with nic=none only"},
		{outer(func(o *plan.Outer) { o.Workload = "nothing" }), record.Failed, "workload nothing is not known"},
		{outer(func(o *plan.Outer) { o.Backend, o.Ranks = "nothing", 1 }), record.Failed, "rank 0: backend nothing is not known"},
		{outer(func(o *plan.Outer) { o.Points[0]["size"] = "x" }), record.Failed, "size=x is not allowed"},
		{outer(func(o *plan.Outer) { o.Points[0]["panic"], o.Ranks = "verify", 1 }), record.Failed, "rank 0: panic: verify of the test"},
	} {
		p := testPlan(2, "")
		p.Outers = []plan.Outer{tc.outer}
		got, err := measure(t, t.Context(), p, Options{}, nil)
		if err != nil || len(got) != 1 {
			t.Fatalf("%s: %d records, error %v", tc.reason, len(got), err)
		}
		if got[0].Status != tc.status || !strings.HasPrefix(got[0].Reason, tc.reason) {
			t.Errorf("%s %q, want %s %q", got[0].Status, got[0].Reason, tc.status, tc.reason)
		}
	}
}

func TestSinkErrorEndsTheRun(t *testing.T) {
	t.Parallel()
	full := errors.New("disk full")
	got, err := measure(t, t.Context(), testPlan(2, "", "8", "64", "16"), Options{}, func(record.Case) error { return full })
	if !errors.Is(err, full) || len(got) != 1 {
		t.Errorf("%d records, error %v", len(got), err)
	}
}

func TestResumeCompletes(t *testing.T) {
	t.Parallel()
	p := testPlan(2, "fault=crash,fault_when=size:64", "8", "64", "16")
	first, err := measure(t, t.Context(), p, Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var r Resume
	for i := range first[:2] {
		r.Add(&first[i])
	}
	second, err := measure(t, t.Context(), p, Options{Resume: &r}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, c := range second {
		rows = append(rows, fmt.Sprint(c.Axes["size"], " ", c.Order))
	}
	if d := cmp.Diff([]string{"64 2", "16 3"}, rows); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestResumeAdd(t *testing.T) {
	var r Resume
	for i, s := range []record.Status{record.OK, record.Skipped, record.Unsafe, record.Failed, record.Timeout, record.Unverified} {
		r.Add(&record.Case{ID: "a", Index: i, Order: i, Status: s})
	}
	r.Add(&record.Case{ID: "a", Index: 0, Order: 6, Status: record.Failed}) // measured again, and lost
	r.Add(&record.Case{ID: "a", Index: 3, Order: 7, Status: record.OK})
	want := Resume{Done: map[Key]bool{{"a", 1}: true, {"a", 2}: true, {"a", 3}: true}, Order: 8}
	if d := cmp.Diff(want, r); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	c, err := Local(2)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = Run(t.Context(), testPlan(3, "", "8"), Options{Workloads: testWorkloads(), Cluster: c}, nil)
	if !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "3 ranks asked, allowed: 1..2") {
		t.Errorf("too many ranks: %v", err)
	}
	c.agents[1].(*localAgent).hostID = "elsewhere"
	err = Run(t.Context(), testPlan(2, "", "8"), Options{Workloads: testWorkloads(), Cluster: c}, nil)
	if !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "nic=none is for the ranks of one host") {
		t.Errorf("two hosts: %v", err)
	}
	if _, err := Local(0); !errors.Is(err, ErrUsage) {
		t.Errorf("no ranks: %v", err)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	c, err := Local(1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := dial(c.hub.address, "guess", hello{Job: "gic-x", Rank: 0}); !errors.Is(err, errRefused) {
		t.Errorf("wrong token: %v", err)
	}
	// The right token, but nobody expects this job: the connection is closed.
	k, err := dial(c.hub.address, c.hub.token, hello{Job: "gic-x", Rank: 0})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.recv(); err == nil {
		t.Error("a stranger was answered")
	}
	k.close()
}

// Not beside others: a child that one of them starts has this lock, too, between its fork and its exec.
func TestStaleSharedMemoryIsRemoved(t *testing.T) {
	// A run that was killed: its mark is there, its lock is not.
	n, err := newJobNames()
	if err != nil {
		t.Fatal(err)
	}
	job := n.name()
	object := sharedDir + "/" + job + "-nic0"
	if err := os.WriteFile(object, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	removeStale()
	if _, err := os.Stat(object); err != nil {
		t.Errorf("shared memory of a living run: %v", err)
	}
	n.lock.Close()
	removeStale()
	for _, path := range []string{object, n.lock.Name()} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is still there", path)
			os.Remove(path)
		}
	}
}

func TestJobNamesAreNoPrefixOfEachOther(t *testing.T) {
	n := &jobNames{prefix: newPrefix()}
	names := map[string]bool{}
	for range 11 {
		names[n.name()] = true
	}
	for a := range names {
		for b := range names {
			if a != b && strings.HasPrefix(b, a) {
				t.Errorf("%s begins %s", a, b)
			}
		}
	}
}

func TestOversubscription(t *testing.T) {
	t.Parallel()
	cpus := allowedCPUs()
	if cpus == 0 || cpus > 16 {
		t.Skipf("%d CPUs: would need as many rank processes", cpus)
	}
	got, err := measure(t, t.Context(), testPlan(cpus+1, "", "8"), Options{}, nil)
	if err != nil || len(got) != 1 {
		t.Fatalf("%d records, error %v", len(got), err)
	}
	want := []workloads.Warning{{Code: "oversubscribed", Text: fmt.Sprintf("%d runnable threads on %d CPUs", cpus+1, cpus)}}
	if d := cmp.Diff(want, got[0].Warnings); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestPathProof(t *testing.T) {
	info := backends.Info{}
	info.Lowering[backends.OpPutSignal] = backends.Lowering{Writes: 1, Atomics: 1}
	info.Lowering[backends.OpGet] = backends.Lowering{Reads: 2}
	var ops workloads.Ops
	ops.Add(backends.OpPutSignal, 10, 8)
	ops.Add(backends.OpGet, 3, 8)
	count := func(w, r, a uint64) []backends.Counter {
		return []backends.Counter{{Name: "wqe_write", Value: w}, {Name: "wqe_read", Value: r}, {Name: "wqe_atomic", Value: a}}
	}
	for _, tc := range []struct {
		nic      string
		counters []backends.Counter
		verify   workloads.Verification
		wrong    []string
	}{
		{"soft", count(10, 6, 10), workloads.Verification{Checked: 104}, nil},
		{"soft", count(9, 6, 10), workloads.Verification{Checked: 104}, []string{"path proof: wqe_write is 9, the message list makes 10"}},
		{"soft", count(10, 6, 0), workloads.Verification{Checked: 104}, []string{"path proof: wqe_atomic is 0, the message list makes 10"}},
		{"soft", append(count(10, 6, 10), backends.Counter{Name: "error_cqes", Value: 2}), workloads.Verification{Checked: 104}, []string{"2 error CQEs"}},
		{"soft", count(10, 6, 10), workloads.Verification{}, []string{"payload: none of 104 bytes was checked"}},
		{"none", nil, workloads.Verification{Checked: 104}, nil},
		{"mlx5", count(10, 6, 10)[:2], workloads.Verification{Checked: 104}, []string{"path proof: b does not count wqe_atomic, 10 expected"}},
	} {
		c := &record.Case{Backend: "b", NIC: tc.nic, Counters: tc.counters, Verify: &tc.verify}
		if d := cmp.Diff(tc.wrong, checkRun(c, ops, info)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if d := cmp.Diff(map[string]uint64{"wqe_write": 10, "wqe_read": 6, "wqe_atomic": 10}, c.Expected); d != "" {
			t.Errorf("expected (-want +got):\n%s", d)
		}
	}
}

func TestTailKeepsBothEnds(t *testing.T) {
	var w tail
	for range 1000 {
		fmt.Fprint(&w, "0123456789")
	}
	s := w.String()
	if !strings.HasPrefix(s, "0123456789") || !strings.HasSuffix(s, "0123456789") ||
		!strings.Contains(s, fmt.Sprintf("[%d bytes left out]", 10000-headBytes-lastBytes)) {
		t.Errorf("%d bytes: %.60q", len(s), s)
	}
}
