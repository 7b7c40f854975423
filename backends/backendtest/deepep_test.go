package backendtest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"gic/backends"
	"gic/backends/plugin"
	"gic/workloads"
	"gic/workloads/moe"
)

func deepepTarget(t *testing.T) Target {
	path := Built(t, "libdeepep.so")
	return Target{Name: "deepep", Open: func() (backends.Backend, error) { return plugin.Load(path) },
		Device: "host", NIC: "none", Config: map[string]string{"library": "double"}, NoSpin: true}
}

// DeepEP takes part with whole operations, which harness/cli puts to the test; this is all that every backend has. Its test
// double needs no GPU.
func TestDeepEP(t *testing.T) { TestBackend(t, deepepTarget(t)) }

// A kernel that never ends is waited for in a thread that nobody can stop: the call comes back all the same, says where it
// was, and the session can be left.
func TestDeepEPHang(t *testing.T) {
	target := deepepTarget(t)
	serveIfRank(t, target)
	for _, finding := range find(t, target, func(tr *trial) {
		if !tr.open(2, func(o *backends.Open) { o.Config["fault"], o.Timeout = "hang", 2*time.Second }) {
			return
		}
		p := base(moe.Workload{})
		for axis, value := range map[string]string{"hidden": "2048", "tokens": "2", "iterations": "1", "warmup": "0"} {
			p[axis] = value
		}
		job, err := tr.job(moe.Workload{}, p, 2)
		if err != nil {
			tr.errorf("%v", err)
			return
		}
		job = workloads.For(job, tr.cluster.info.Caps)
		if tr.failed("window", tr.cluster.each(func(r *rank) error { return r.Window(job.WindowBytes()) })) ||
			tr.failed("fill", tr.cluster.each(func(r *rank) error { return job.Fill(r.rank, r) })) {
			return
		}
		run := func(r *rank) error {
			in, err := job.Run(r.rank)
			if err == nil {
				_, err = r.Run(in)
			}
			return err
		}
		errs := tr.cluster.run(run) // the last rank hangs
		if !errors.Is(errs[1], backends.ErrTimeout) || !strings.Contains(errs[1].Error(), "no progress for 2000 ms in ") {
			tr.errorf("the rank that hangs: %v, want ErrTimeout and what it was doing", errs[1])
		}
		if !errors.Is(errs[0], backends.ErrCanceled) {
			tr.errorf("its peer: %v, want ErrCanceled", errs[0])
		}
		if err := run(tr.cluster.ranks[1]); err == nil || !strings.Contains(err.Error(), "Python was given up in ") {
			tr.errorf("another run of the rank that hangs: %v, want that Python was given up", err)
		}
		for _, r := range tr.cluster.ranks {
			if err := r.Close(); err != nil {
				tr.errorf("rank %d: close: %v", r.rank, err)
			}
		}
	}) {
		t.Error(finding)
	}
}
