package run

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gic/harness/plan"
	"gic/harness/record"
)

// calls of the fake, and the stage in which each shows.
var callStages = []struct{ call, stage string }{
	{"open", "open"}, {"window", "window"}, {"write", "fill"}, {"run", "run"}, {"counters", "counters"},
	{"facts", "facts"}, {"read", "verify"},
}

func TestFaultsAreRecordedWithRankAndStage(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	for _, fault := range []struct {
		name   string
		opt    Options
		status record.Status
		reason []string
	}{
		// The hung rank ends at the stop word, well within the grace period.
		{"hang", Options{Timeout: hangTimeout, Grace: time.Minute}, record.Timeout, []string{"rank 1 in", "ended at the stop word"}},
		{"hang-deaf", Options{Timeout: hangTimeout, Grace: 50 * time.Millisecond}, record.Timeout, []string{"rank 1 in", "rank 1 killed"}},
		{"crash", Options{}, record.Failed, []string{"rank 1 ended in", "signal SIGKILL", "fake: crash in"}},
		{"error", Options{}, record.Failed, []string{"rank 1: ", "fault=error"}},
		{"skip", Options{}, record.Skipped, []string{"with fault=skip"}},
	} {
		for _, cs := range callStages {
			wg.Go(func() {
				name := fault.name + " in " + cs.call
				p := testPlan(2, "fault_rank=1,fault="+fault.name+",fault_call="+cs.call, "8")
				got, err := measure(t, t.Context(), p, fault.opt, nil)
				if err != nil || len(got) != 1 {
					t.Errorf("%s: %d records, error %v", name, len(got), err)
					return
				}
				c := got[0]
				if c.Status != fault.status || c.Stage != cs.stage {
					t.Errorf("%s: status %s stage %q, want %s %q; reason: %s", name, c.Status, c.Stage, fault.status, cs.stage, c.Reason)
				}
				for _, r := range fault.reason {
					if !strings.Contains(c.Reason, r) {
						t.Errorf("%s: reason %q does not say %q", name, c.Reason, r)
					}
				}
				if strings.Contains(c.Reason, "\n") {
					t.Errorf("%s: reason has several lines: %q", name, c.Reason)
				}
			})
		}
		if fault.name != "hang" { // the hung ones only wait: all at once
			wg.Wait()
		}
	}
}

// hangTimeout must outlast every healthy step on a busy machine; a test that needs a hang waits this long.
const hangTimeout = 8 * time.Second

func TestOtherPointsOfALostSetAreMeasuredInFreshProcesses(t *testing.T) {
	t.Parallel()
	p := testPlan(2, "fault=crash,fault_when=size:64", "8", "64", "16", "32")
	got, err := measure(t, t.Context(), p, Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, c := range got {
		restarted := ""
		for _, w := range c.Warnings {
			restarted += " " + w.Code
		}
		rows = append(rows, c.Axes["size"]+" "+string(c.Status)+restarted)
	}
	if d := cmp.Diff([]string{"8 ok", "64 failed", "16 ok restarted", "32 ok restarted"}, rows); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got[0].Host["pid"] == got[2].Host["pid"] || got[2].Host["pid"] != got[3].Host["pid"] {
		t.Errorf("processes: %v %v %v", got[0].Host["pid"], got[2].Host["pid"], got[3].Host["pid"])
	}
	if out, _ := got[1].Facts["output.rank0"].(string); !strings.Contains(out, "fake: crash in run") {
		t.Errorf("what the rank printed is not kept: %v", got[1].Facts)
	}
}

func TestRestartsAreBounded(t *testing.T) {
	t.Parallel()
	p := testPlan(1, "fault=crash", "1", "2", "3", "4")
	got, err := measure(t, t.Context(), p, Options{Restarts: 1}, nil)
	if err != nil || len(got) != 4 {
		t.Fatalf("%d records, error %v", len(got), err)
	}
	for i, c := range got {
		notRun := strings.HasPrefix(c.Reason, "not run: 2 process sets of this case were lost before")
		if c.Status != record.Failed || notRun != (i >= 2) {
			t.Errorf("record %d: %s %q", i, c.Status, c.Reason)
		}
	}
}

// One rank refuses each point, and the set is lost with it: no reason to leave out the points that follow.
func TestRefusalsAreNoLosses(t *testing.T) {
	t.Parallel()
	p := testPlan(2, "fault=skip,fault_rank=1", "1", "2", "3", "4", "5")
	got, err := measure(t, t.Context(), p, Options{Restarts: 1}, nil)
	if err != nil || len(got) != 5 {
		t.Fatalf("%d records, error %v", len(got), err)
	}
	for i, c := range got {
		if c.Status != record.Skipped || strings.Contains(c.Reason, "not run") {
			t.Errorf("record %d: %s %q", i, c.Status, c.Reason)
		}
	}
}

func TestWindowFailureGivesUpTheLargestPointsOnly(t *testing.T) {
	t.Parallel()
	got, err := measure(t, t.Context(), testPlan(1, "fault=error,fault_call=window", "8", "64", "64"), Options{}, nil)
	if err != nil || len(got) != 3 {
		t.Fatalf("%d records, error %v", len(got), err)
	}
	if got[0].Axes["size"] != "64" || got[1].Axes["size"] != "64" || got[2].Axes["size"] != "8" {
		t.Errorf("order of giving up: %v %v %v", got[0].Axes, got[1].Axes, got[2].Axes)
	}
	if !strings.Contains(got[0].Reason, "window of 128 bytes") || !strings.Contains(got[2].Reason, "window of 16 bytes") {
		t.Errorf("reasons %q, %q", got[0].Reason, got[2].Reason)
	}
}

func TestCloseTroubleIsAWarning(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{"crash", "error"} {
		got, err := measure(t, t.Context(), testPlan(2, "fault_call=close,fault="+fault, "8"), Options{}, nil)
		if err != nil || len(got) != 1 {
			t.Fatalf("%d records, error %v", len(got), err)
		}
		w := got[0].Warnings
		if got[0].Status != record.OK || len(w) != 1 || w[0].Code != "close" || !strings.Contains(w[0].Text, "rank 0 ended in close") {
			t.Errorf("%s: %s, warnings %v", fault, got[0].Status, w)
		}
	}
	got, err := measure(t, t.Context(), testPlan(2, "fault_call=close,fault=hang-deaf,fault_rank=1", "8"),
		Options{Timeout: hangTimeout, Grace: 50 * time.Millisecond}, nil)
	if err != nil || len(got) != 1 {
		t.Fatalf("%d records, error %v", len(got), err)
	}
	if w := got[0].Warnings; got[0].Status != record.OK || len(w) != 1 || !strings.Contains(w[0].Text, "rank 1 in close") {
		t.Errorf("%s, warnings %v", got[0].Status, w)
	}
}

// A rank's own children and forgotten shared memory go with it, also when it ends well; and its Close may use the
// exchange. measure checks the shared memory.
func TestNothingOutlivesARank(t *testing.T) {
	t.Parallel()
	p := testPlan(2, "fault=crash,fault_when=size:64", "8", "64")
	p.Outers[0].Backend = "littering"
	q := testOuter(2, "", "8")
	q.Backend = "littering"
	p.Outers = append(p.Outers, q)
	got, err := measure(t, t.Context(), p, Options{}, nil)
	if err != nil || len(got) != 3 {
		t.Fatalf("%d records, error %v", len(got), err)
	}
	if got[0].Status != record.OK || got[1].Status != record.Failed || got[2].Status != record.OK {
		t.Errorf("%s, %s, %s", got[0].Status, got[1].Status, got[2].Status)
	}
	for _, w := range got[2].Warnings {
		if w.Code == "close" {
			t.Errorf("warning %v", w)
		}
	}
	for _, c := range []record.Case{got[0], got[2]} {
		for _, key := range []string{"child", "child.rank1"} {
			// Its kill was sent before the rank was reaped; dying takes its time, and reaping it is init's.
			deadline := time.Now().Add(time.Minute)
			for alive(c.Created[key]) {
				if time.Now().After(deadline) {
					t.Fatalf("%s: process %s lives on", key, c.Created[key])
				}
				time.Sleep(time.Millisecond)
			}
		}
	}
}

func alive(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ") && !strings.Contains(string(stat), ") X ")
}

func TestKilledRankLeavesAFailure(t *testing.T) {
	t.Parallel()
	// The second outer hangs; its rank is killed from outside as soon as it is there.
	p := testPlan(2, "")
	p.Outers = []plan.Outer{testOuter(2, "fault=hang,fault_rank=1,fault_call=run", "8"), testOuter(2, "", "8")}
	c, err := Local(2)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	a := c.agents[1].(*localAgent)
	killed := false
	var got []record.Case
	err = Run(t.Context(), p, Options{Workloads: testWorkloads(), Cluster: c, Timeout: time.Minute, Progress: func(p Progress) {
		if p.Point != nil && !killed {
			killed = true
			a.mu.Lock()
			defer a.mu.Unlock()
			for _, pid := range a.running {
				_ = syscall.Kill(pid, syscall.SIGSEGV)
			}
		}
	}}, func(c record.Case) error { got = append(got, c); return nil })
	if err != nil || len(got) != 2 {
		t.Fatalf("%d records, error %v", len(got), err)
	}
	if got[0].Status != record.Failed || !strings.HasPrefix(got[0].Reason, "rank 1 ended in") || got[1].Status != record.OK {
		t.Errorf("%s %q, then %s", got[0].Status, got[0].Reason, got[1].Status)
	}
}

func TestCancelKeepsWhatIsMeasured(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{"hang", "hang-deaf"} {
		ctx, cancel := context.WithCancel(t.Context())
		p := testPlan(2, "fault_when=size:64,fault="+fault, "8", "64", "16")
		got, err := measure(t, ctx, p, Options{Grace: 100 * time.Millisecond, Progress: func(p Progress) {
			if p.Point["size"] == "64" {
				cancel()
			}
		}}, nil)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v", fault, err)
		}
		if len(got) != 1 || got[0].Axes["size"] != "8" || got[0].Status != record.OK {
			t.Errorf("%s: records %+v", fault, got)
		}
	}
}

func TestCancelBetweenAndDuringStart(t *testing.T) {
	t.Parallel()
	for _, config := range []string{"fault=hang,fault_call=open", "fault=hang-deaf,fault_call=open", "fault=slow-start,fault_delay=600000"} {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		got, err := measure(t, ctx, testPlan(2, config, "8"), Options{Grace: 100 * time.Millisecond, Progress: func(Progress) {
			if n++; n == 1 { // ranks are about to start
				time.AfterFunc(200*time.Millisecond, cancel)
			}
		}}, nil)
		if !errors.Is(err, context.Canceled) || len(got) != 0 {
			t.Errorf("%s: %d records, error %v", config, len(got), err)
		}
	}
}
