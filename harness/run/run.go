// Package run measures a plan. It starts fresh rank processes for every plan.Outer, lets them meet over TCP,
// has them measure the outer's points one after another, and hands one record.Case per planned point to the
// caller, whatever happens: a crash, a hang or a lost host becomes a row that says what, which rank, where.
//
// Three kinds of process take part, all of them the same binary:
//
//   - the coordinator calls Run; it is agent 0 when a launcher (mpirun, srun, torchrun) started gic;
//   - an agent per rank starts and ends the rank processes of its rank. Without a launcher the agents are part
//     of the coordinator (Local); with one, each further process calls Serve and does what agent 0 asks (Gather);
//   - a rank process, started as `gic rank`, calls RankMain: it opens one backend, measures, and ends.
//
// A rank process carries its control connection only; it prints nothing. What its libraries print is kept (the
// tail of it) for the record of a failure.
package run

import (
	"errors"
	"time"

	"gic/backends"
	"gic/harness/plan"
	"gic/harness/record"
	"gic/workloads"
)

// RankArg is the hidden first argument by which the binary knows that it is a rank process:
//
//	if len(os.Args) > 1 && os.Args[1] == run.RankArg { os.Exit(run.RankMain(run.RankOptions{...})) }
const RankArg = "rank"

// ErrUsage marks errors of the caller's request (a rank count, a rendezvous or a NIC that makes no sense): one
// line for the user, exit status 2.
var ErrUsage = errors.New("usage")

// Defaults of Options.
const (
	DefaultTimeout  = 60 * time.Second
	DefaultGrace    = 2 * time.Second
	DefaultRestarts = 3
)

// Options of a run. Only Workloads is required.
type Options struct {
	Workloads map[string]workloads.Workload
	// Plugin finds a backend by name: the path of its shared object, or "" for one that is part of the binary.
	// What it returns is passed to RankOptions.Open in the rank processes. nil: "" for all.
	Plugin func(backend string) (string, error)
	// Cluster is where ranks run; nil is Local(plan.Ranks). Run does not close it.
	Cluster *Cluster
	// Timeout bounds each point, and opening a backend. A single device spin ends a tenth of it
	// earlier, so that the device's own error, which knows more, comes first.
	Timeout time.Duration
	// Grace is how long a stopped rank may take to end by itself before its process group is killed.
	Grace time.Duration
	// Restarts bounds how often the remaining points of one outer are tried again in fresh processes after a
	// point took its processes down; what is left then is recorded as failed, not run.
	Restarts int
	// Resume leaves out what an earlier run of the same plan has finished.
	Resume *Resume
	// Progress is called from Run's goroutine before each point and after each record.
	Progress func(Progress)
}

// Progress is where a run stands.
type Progress struct {
	Done, Planned int // records
	Outer         *plan.Outer
	Point         workloads.Point // the one about to be measured; nil while ranks start
	Last          *record.Case    // the one just recorded, else nil
}

// RankOptions are what a rank process needs of the main program.
type RankOptions struct {
	Workloads map[string]workloads.Workload
	// Open finds a backend by name and by what Options.Plugin gave for it.
	Open func(name, plugin string) (backends.Backend, error)
	// Sample gives facts of this machine at the sample (CPU frequency, clocks) for record.Case.Host; may be nil. It is
	// asked before a run, too: of that the keys gpu_* are kept, as gpu_*_before.
	Sample func() map[string]any
	// Ports snapshots the counters of the RDMA ports; what moved during a run becomes record.Case.Host's
	// "rdma_ports". May be nil, and empty where there is no device.
	Ports func() map[string]uint64
	// GPUs counts the CUDA devices, to spread the local ranks over them; nil means one per local rank.
	GPUs func() int
}
