// Package backends says what a communication stack is to the harness. It is the bottom of the Go side and
// imports nothing of ours; package plugin implements it over the C ABI of abi/backend.h, package fake in
// process.
//
// The words (put, signal, flush, ...) and what each guarantees are those of abi/device.cuh.
package backends

import (
	"context"
	"errors"
	"time"
)

// ErrNotSupported marks "cannot run here": the row is skipped with the error's text as its reason, not failed.
var ErrNotSupported = errors.New("not supported")

// Errors that tell how a run ended; a failing call wraps one of them where it applies.
var (
	ErrTimeout  = errors.New("deadline passed")
	ErrCanceled = errors.New("stopped")
)

// Caps is what a backend declares it can do. A declared capability must work.
type Caps uint32

// The bits of gic_cap in abi/backend.h.
const (
	CapPut Caps = 1 << iota
	CapPutValue
	CapPutSignal
	CapSignal
	CapWait
	CapGet
	CapFetchAdd
	CapFence
	CapFlush
	CapQuiet
	CapGPUVisible
	CapNotify
	// CapMoE: dispatch and combine of the workload moe as whole operations of the library's own.
	CapMoE
)

// Where a backend can run.
const (
	CapHostDevice Caps = 1 << (iota + 16)
	CapCUDADevice
	CapNICSoft
	CapNICMlx5
	CapNICNone
	// CapRanksInProcess: sessions of several ranks of a case may be open in one process.
	CapRanksInProcess
)

// Op is one operation of a workload's message list, as in gic_op.
type Op int

// The operations, in the order of gic_op.
const (
	OpPut Op = iota
	OpPutValue
	OpSignal
	OpPutSignal
	OpGet
	OpFetchAdd
	OpNotifyWord
	OpNotify
	NumOps
)

// Lowering is the NIC work that one operation becomes.
type Lowering struct {
	Writes  uint64 `json:"writes"`
	Reads   uint64 `json:"reads"`
	Atomics uint64 `json:"atomics"`
}

// Key is one configuration key of a backend or one axis of a workload: its name, default and allowed values.
type Key struct {
	Name    string `json:"name"`
	Default string `json:"default"`
	Allowed string `json:"allowed"` // "a|b|c", "1..256" (integer range), "0..8|all" (both), or "" for free text
	Help    string `json:"help"`
}

// Info is what a backend says of itself without being opened.
type Info struct {
	Name     string           `json:"name"`
	Version  string           `json:"version"`
	Caps     Caps             `json:"caps"`
	Keys     []Key            `json:"keys"`
	Lowering [NumOps]Lowering `json:"lowering"`
}

// Comm is the collective exchange among the ranks of a case. Both calls block until every rank has called.
type Comm interface {
	// Allgather returns every rank's bytes, by rank. All ranks pass the same length.
	Allgather(ctx context.Context, mine []byte) ([][]byte, error)
	Barrier(ctx context.Context) error
}

// Open are the parameters of one session.
type Open struct {
	Rank, Ranks int
	Job         string            // unique per case and process run; prefix of shared-memory names
	Device      string            // "host" or "cuda:N"
	NIC         string            // "soft", "none", or an RDMA device
	NICConfig   map[string]string // soft: engine, profile, threads, watch, doorbell, trace
	Config      map[string]string // every key of Info.Keys, defaults filled in
	Comm        Comm
	Timeout     time.Duration // of a single device spin
}

// Blob is a table input of a run: a little-endian array that the device half knows by name.
type Blob struct {
	Name string
	Data []byte
}

// Run is one call of a workload's kernel on one rank.
type Run struct {
	Workload string
	Args     map[string]string // scalar inputs of the device half
	Blobs    []Blob
}

// Series is a named list of numbers that a kernel measured. Unit is "ns", "B" or "1".
type Series struct {
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Values []float64 `json:"values"`
}

// Counter is a NIC counter of one rank. Exact ones are a function of the case alone.
type Counter struct {
	Name  string `json:"name"`
	Unit  string `json:"unit"`
	Value uint64 `json:"value"`
	Exact bool   `json:"exact"`
}

// Backend is one communication stack.
type Backend interface {
	Info() Info
	// Probe says whether the backend can run with these parameters on this machine: nil, an error wrapping
	// ErrNotSupported that names the first thing missing, or another error for a configuration that makes no
	// sense. It creates nothing; Open.Comm is not used.
	Probe(Open) error
	// Open is collective over the ranks of a case.
	Open(context.Context, Open) (Session, error)
}

// Session is an opened backend on one rank. Its methods are called from one goroutine at a time. All offsets
// count from the start of this rank's window.
type Session interface {
	// Window allocates and registers the window, the same size on every rank, zeroed. Collective; a second
	// call replaces the first.
	Window(bytes uint64) error
	Write(offset uint64, data []byte) error
	Read(offset uint64, data []byte) error
	// Run runs one kernel to its end on this rank; on return all that this rank posted is complete.
	Run(Run) ([]Series, error)
	// Counters are monotonic since Open.
	Counters() ([]Counter, error)
	// Facts say what was really created and loaded, as key to value.
	Facts() (map[string]string, error)
	// Stop makes every device spin return ErrCanceled. It may be called from any goroutine.
	Stop()
	Close() error
}
