package backendtest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gic/backends"
	nccl "gic/backends/ncclgin/protocol"
	"gic/backends/nvshmem/protocol"
	"gic/minigda/nictrace"
)

// TestNVSHMEMProtocol makes each call of NVSHMEM's device API once and compares the NIC's trace with the recorded one.
// With GIC_PROTOCOL_DIR it records them there instead.
func TestNVSHMEMProtocol(t *testing.T) {
	if device() == "host" {
		t.Skip("needs a GPU: set GIC_TEST_DEVICE=cuda:N")
	}
	t.Setenv("GIC_TRACE_DIR", t.TempDir())
	target := softTarget(t, "nvshmem", nil)
	target.NICConfig["trace"] = "on"
	serveIfRank(t, target)
	ctx, cancel := context.WithTimeout(t.Context(), caseTimeout)
	defer cancel()
	tr := &trial{t: t, ctx: ctx, target: target}
	for _, scope := range []string{"thread", "warp"} {
		if tr.open(2, func(o *backends.Open) { o.Config["scope"] = scope }) &&
			!tr.failed("window", tr.cluster.each(func(r *rank) error { return r.Window(16384) })) {
			for _, call := range protocol.Calls {
				if strings.HasSuffix(call, "_warp") == (scope == "warp") {
					tr.compareProtocol(call, "nvshmem", protocol.Lines)
				}
			}
		}
	}
	tr.close()
	for _, f := range tr.findings {
		t.Error(f)
	}
}

// TestNCCLGINProtocol does so with each call of NCCL's GIN device API (type GDAKI).
func TestNCCLGINProtocol(t *testing.T) {
	if device() == "host" {
		t.Skip("needs a GPU: set GIC_TEST_DEVICE=cuda:N")
	}
	t.Setenv("GIC_TRACE_DIR", t.TempDir())
	target := softTarget(t, "ncclgin", nil)
	target.NICConfig["trace"] = "on"
	serveIfRank(t, target)
	ctx, cancel := context.WithTimeout(t.Context(), caseTimeout)
	defer cancel()
	tr := &trial{t: t, ctx: ctx, target: target}
	if tr.open(2, nil) && !tr.failed("window", tr.cluster.each(func(r *rank) error { return r.Window(16384) })) {
		for _, call := range nccl.Calls {
			tr.compareProtocol(call, "ncclgin", nccl.Lines)
		}
	}
	tr.close()
	for _, f := range tr.findings {
		t.Error(f)
	}
}

// compareProtocol makes one call and compares its trace with that in the backend's folder, in words.
func (tr *trial) compareProtocol(call, backend string, lines func([]nictrace.Record) []string) {
	run := backends.Run{Workload: "protocol", Args: map[string]string{"call": call}}
	count := func() bool {
		return tr.failed(call+": counters", tr.cluster.each(func(r *rank) error { _, err := r.Counters(); return err }))
	}
	if count() || tr.failed(call, tr.cluster.run(func(r *rank) error { _, err := r.Run(run); return err })) || count() {
		return
	}
	facts, err := tr.cluster.ranks[0].Facts()
	if err != nil {
		tr.errorf("%s: facts: %v", call, err)
		return
	}
	// A run that asked nothing of the NIC leaves no file.
	trace := &nictrace.Trace{Ranks: 2}
	if read, err := nictrace.ReadFile(facts["trace"]); err == nil {
		trace = read
		trace.Records = trace.LastRun()
	} else if !errors.Is(err, fs.ErrNotExist) {
		tr.errorf("%s: %v", call, err)
		return
	}
	name := call + ".trace"
	if dir := os.Getenv("GIC_PROTOCOL_DIR"); dir != "" {
		var file bytes.Buffer
		if err := nictrace.Write(&file, trace); err != nil {
			tr.errorf("%s: %v", call, err)
		} else if err := os.WriteFile(filepath.Join(dir, name), file.Bytes(), 0o644); err != nil {
			tr.errorf("%s: %v", call, err)
		}
		return
	}
	want, err := nictrace.ReadFile(filepath.Join(Root(tr.t), "backends", backend, "protocol", "testdata", name))
	if err != nil {
		tr.errorf("%s: %v", call, err)
		return
	}
	if diff := cmp.Diff(lines(want.Records), lines(trace.Records)); diff != "" {
		tr.errorf("%s: the NIC was asked something else than when this was recorded (-want +got):\n%s", call, diff)
	}
}
