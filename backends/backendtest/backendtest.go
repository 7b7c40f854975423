// Package backendtest is the conformance suite: what every backend must do, written once. A capability that is
// declared must work, one that is not must be refused; payload, guards and NIC counters are checked on every
// workload; errors, stops and deadlines come back as the errors of package backends.
//
// Ranks are processes, because a plugin may keep global state: TestBackend starts the running test binary again,
// and there turns into a rank that serves the suite. A hung rank is killed with its case and named.
package backendtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gic/backends"
	"gic/workloads"
)

// Target is a backend under test and where it is to run.
type Target struct {
	Name string
	// Open makes the backend; it is called once in every rank process.
	Open func() (backends.Backend, error)
	// Device, NIC and NICConfig as in backends.Open.
	Device, NIC string
	NICConfig   map[string]string
	// Config is laid over the keys' defaults in every case.
	Config map[string]string
	// Threaded is laid over the configuration where a rank has several device threads: a backend may need more
	// queues, or a rule for sharing them.
	Threaded map[string]string
	// Workloads it has a device half for. Without conform a backend that declares more than the others need fails.
	Workloads []workloads.Workload
	// Largest says under which settings ("key=value") it takes payloads up to so many bytes only.
	Largest map[string]int
	// NoSpin: it has no device threads, so no device deadline either.
	NoSpin bool
}

// caseTimeout bounds one case; generous, since only a hang reaches it.
const caseTimeout = 3 * time.Minute

// deviceTimeout is the deadline of a device spin, where the case is not about it.
const deviceTimeout = 20 * time.Second

// TestBackend runs the whole suite. Each case is a subtest that lists everything wrong it found.
func TestBackend(t *testing.T, target Target) {
	serveIfRank(t, target)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for _, f := range find(t, target, c.run) {
				t.Error(f)
			}
		})
	}
}

// find runs one case and returns what is wrong with the target.
func find(t *testing.T, target Target, run func(*trial)) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), caseTimeout)
	defer cancel()
	tr := &trial{t: t, ctx: ctx, target: target}
	run(tr)
	tr.close()
	return tr.findings
}

// trial is one case under way.
type trial struct {
	t        *testing.T
	ctx      context.Context
	target   Target
	findings []string
	cluster  *cluster
	clusters int
	refused  bool // the last run ended with EINVAL or ErrNotSupported
	// unsupported: with ErrNotSupported.
	unsupported bool
	hung        bool              // a run passed the device deadline: the case ends soon
	facts       map[string]string // of rank 0, from openUnder
}

func (tr *trial) errorf(format string, args ...any) {
	tr.findings = append(tr.findings, fmt.Sprintf(format, args...))
}

// start brings up fresh rank processes and ends those of before; false when they cannot be started.
func (tr *trial) start(ranks int) bool { return tr.startTogether(ranks, 1) }

// startTogether is start with so many ranks in a process.
func (tr *trial) startTogether(ranks, together int) bool {
	tr.close()
	if tr.ctx.Err() != nil {
		return false // what used up the time is a finding already
	}
	tr.clusters++
	job := fmt.Sprintf("gic-bt%d-%d-%d", os.Getpid(), time.Now().UnixNano()%1e9, tr.clusters)
	c, err := startCluster(tr.ctx, tr.t, tr.target, ranks, together, job)
	if err != nil {
		tr.errorf("start ranks: %v", err)
		return false
	}
	tr.cluster = c
	return true
}

// close ends the rank processes; nothing named after the job may be left in shared memory.
func (tr *trial) close() {
	if tr.cluster == nil {
		return
	}
	c := tr.cluster
	tr.cluster = nil
	for i, err := range c.each(func(r *rank) error { return r.Close() }) {
		if err != nil {
			tr.errorf("rank %d: close: %v", i, err)
		}
	}
	if tr.ctx.Err() == nil { // a rank killed at the deadline could not clean up
		tr.noLeftovers(c, "after close")
	}
	c.stop()
	for _, name := range c.leftovers() {
		os.Remove(filepath.Join("/dev/shm", name))
	}
}

func (tr *trial) noLeftovers(c *cluster, when string) {
	if left := c.leftovers(); len(left) > 0 {
		tr.errorf("%s /dev/shm still holds %s", when, strings.Join(left, ", "))
	}
}

// params are the parameters of a session with the target's defaults.
func (tr *trial) params(config map[string]string) backends.Open {
	return backends.Open{Device: tr.target.Device, NIC: tr.target.NIC, NICConfig: tr.target.NICConfig,
		Config: tr.config(config), Timeout: deviceTimeout}
}

// config is every key's default, then the target's own, then what is given.
func (tr *trial) config(over map[string]string) map[string]string {
	out := map[string]string{}
	if tr.cluster != nil {
		for _, k := range tr.cluster.info.Keys {
			out[k.Name] = k.Default
		}
	}
	for _, m := range []map[string]string{tr.target.Config, over} {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}

// open starts fresh ranks and opens the backend on all of them; false when it does not open, which is a finding.
func (tr *trial) open(ranks int, o func(*backends.Open)) bool { return tr.openTogether(ranks, 1, o) }

// openTogether is open with so many ranks in a process.
func (tr *trial) openTogether(ranks, together int, o func(*backends.Open)) bool {
	if !tr.startTogether(ranks, together) {
		return false
	}
	p := tr.params(nil)
	if o != nil {
		o(&p)
	}
	return !tr.failed("open", tr.cluster.each(func(r *rank) error { return r.open(p) }))
}

// failed turns the ranks' errors of a call that should have worked into findings. Ranks that only ended because
// another one failed are left out.
func (tr *trial) failed(call string, errs []error) bool {
	bad, stopped := false, false
	for _, err := range errs {
		stopped = stopped || (err != nil && !errors.Is(err, backends.ErrCanceled))
	}
	for i, err := range errs {
		if err != nil && !(stopped && errors.Is(err, backends.ErrCanceled)) {
			tr.errorf("rank %d: %s: %v", i, call, err)
			bad = true
		}
	}
	return bad
}
