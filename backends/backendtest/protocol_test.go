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
	for _, transport := range protocol.Transports {
		for _, scope := range []string{"thread", "warp"} {
			if !tr.open(2, func(o *backends.Open) { o.Config["scope"], o.Config["rc"] = scope, transport.RC }) ||
				tr.failed("window", tr.cluster.each(func(r *rank) error { return r.Window(16384) })) {
				continue
			}
			for _, call := range protocol.Calls {
				if strings.HasSuffix(call, "_warp") == (scope == "warp") {
					tr.compareProtocol(call, transport.Prefix+call+".trace", protocol.Lines, func() ([]string, error) {
						file := filepath.Join(Root(t), "backends", "nvshmem", "protocol", "testdata", transport.Prefix+call+".trace")
						want, err := nictrace.ReadFile(file)
						if err != nil {
							return nil, err
						}
						return protocol.Lines(want.Records), nil
					})
				}
			}
		}
	}
	tr.close()
	for _, f := range tr.findings {
		t.Error(f)
	}
}

// TestNCCLGINProtocol makes each call of NCCL's GIN device API (type GDAKI) and holds the NIC's trace to what is said of it.
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
			tr.compareProtocol(call, call+".trace", nccl.Lines, func() ([]string, error) { return nccl.Asked[call], nil })
		}
	}
	tr.close()
	for _, f := range tr.findings {
		t.Error(f)
	}
}

// compareProtocol makes one call and compares its trace, in words, with what is expected of it. name: of the file that it is
// recorded in.
func (tr *trial) compareProtocol(call, name string, lines func([]nictrace.Record) []string, expected func() ([]string, error)) {
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
	if dir := os.Getenv("GIC_PROTOCOL_DIR"); dir != "" {
		var file bytes.Buffer
		if err := nictrace.Write(&file, trace); err != nil {
			tr.errorf("%s: %v", call, err)
		} else if err := os.WriteFile(filepath.Join(dir, name), file.Bytes(), 0o644); err != nil {
			tr.errorf("%s: %v", call, err)
		}
		return
	}
	want, err := expected()
	if err != nil {
		tr.errorf("%s: %v", call, err)
		return
	}
	if diff := cmp.Diff(want, lines(trace.Records)); diff != "" {
		tr.errorf("%s: the NIC was asked something else than is expected of it (-want +got):\n%s", name, diff)
	}
}
