// Package record is the result format: one run is one file of JSON Lines, append-only. The first line is a
// Header, every other line a Case: one case in one process run. Everything later (tables, diffs, reports) reads
// only this.
//
// Values are in base units (s, B, msg/s, B/s, Hz) from the moment they are read; names carry no unit suffix.
package record

import (
	"time"

	"gic/backends"
	"gic/workloads"
)

// Schema names the format. Any change of meaning bumps the number.
const Schema = "gic.run/1"

// Status of a case.
type Status string

// The statuses. Only OK rows support claims.
const (
	OK         Status = "ok"
	Skipped    Status = "skipped"    // cannot run here; Reason says why
	Failed     Status = "failed"     // an error or a crash; Reason and Stage say what and where
	Timeout    Status = "timeout"    // a deadline passed
	Unverified Status = "unverified" // ran, but payload, guard, counter or path proof is wrong
	Unsafe     Status = "unsafe"     // deliberately without the ordering that makes it correct
)

// Header is the first line of a run.
type Header struct {
	Type    string    `json:"type"` // "run"
	Schema  string    `json:"schema"`
	ID      string    `json:"id"` // unique per run
	Time    time.Time `json:"time"`
	Gic     string    `json:"gic"` // version of gic
	Command []string  `json:"command"`
	Suite   string    `json:"suite,omitempty"`
	Seed    uint64    `json:"seed"`
	Ranks   int       `json:"ranks"`
	// RanksInProcess is how many ranks shared a process; 0, as 1: each had its own.
	RanksInProcess int               `json:"ranks_in_process,omitempty"`
	Repeat         int               `json:"repeat"`
	Cases          int               `json:"cases"`           // planned lines
	Launch         string            `json:"launch"`          // local, mpirun, srun, torchrun
	Host           Machine           `json:"host"`            // of the coordinator
	Hosts          []Machine         `json:"hosts,omitempty"` // of the other hosts, when there are several
	Env            map[string]string `json:"env,omitempty"`   // by allow-list
	// Defaults of the backends' keys, by backend, so that a report need not show what was left alone.
	Defaults map[string]map[string]string `json:"defaults,omitempty"`
	// AxisDefaults are those of the workloads' axes, by workload. A case of an older run that lacks an axis or a key is
	// the one that has its default here: what is added later is added so.
	AxisDefaults map[string]map[string]string `json:"axis_defaults,omitempty"`
	// Imported names the files that the cases were taken from. Nothing of such a run was measured by gic.
	Imported []Import `json:"imported,omitempty"`
}

// Import says which file of which other tool a result was taken from.
type Import struct {
	Format string `json:"format"`
	File   string `json:"file"` // as it was named
	SHA256 string `json:"sha256"`
	Line   int    `json:"line,omitempty"` // of a case: the first one it was read from
}

// Machine is what the run ran on. Sections are absent where there is nothing to tell.
type Machine struct {
	Hostname string         `json:"hostname"`
	OS       string         `json:"os"`
	Kernel   string         `json:"kernel"`
	CPU      map[string]any `json:"cpu"`              // model, allowed, online, numa_nodes, governor, frequency, memlock, ...
	GPU      []any          `json:"gpu,omitempty"`    // per device
	RDMA     []any          `json:"rdma,omitempty"`   // per device and port
	Absent   []string       `json:"absent,omitempty"` // what could not be read, and why
}

// Library is one library really loaded by a rank.
type Library struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Path    string `json:"path,omitempty"`
	SHA256  string `json:"sha256,omitempty"`
}

// Case is one case in one process run.
type Case struct {
	Type  string `json:"type"`  // "case"
	ID    string `json:"id"`    // stable hash of the case's keys (not of the process run)
	Index int    `json:"index"` // process run, from 0
	Order int    `json:"order"` // position in which it was measured within the run

	Workload string            `json:"workload"`
	Axes     map[string]string `json:"axes"`
	Backend  string            `json:"backend"`
	Config   map[string]string `json:"config"`            // asked, defaults filled in
	Created  map[string]string `json:"created,omitempty"` // what really exists; differs from what was asked
	Library  []Library         `json:"library,omitempty"`

	NIC       string            `json:"nic"` // soft, mlx5, none, unknown
	NICConfig map[string]string `json:"nic_config,omitempty"`
	Device    string            `json:"device"` // host, cuda
	Ranks     int               `json:"ranks"`
	Seed      uint64            `json:"seed"`

	Start    time.Time `json:"start"`
	Duration float64   `json:"duration"` // s, of this point, verification included

	Status Status `json:"status"`
	Reason string `json:"reason,omitempty"`
	Stage  string `json:"stage,omitempty"` // last stage reached when not ok

	Metrics  []Metric                `json:"metrics,omitempty"`
	Counters []backends.Counter      `json:"counters,omitempty"` // summed over ranks, of this run alone
	Messages uint64                  `json:"messages,omitempty"` // operations in the message list, summed over ranks
	Expected map[string]uint64       `json:"expected,omitempty"` // wqe_write, wqe_read, wqe_atomic from the message list
	Verify   *workloads.Verification `json:"verify,omitempty"`   // summed over ranks
	Facts    map[string]any          `json:"facts,omitempty"`
	Host     map[string]any          `json:"host,omitempty"` // at the sample: cpus, runnable_threads, cpu_frequency, ...
	Warnings []workloads.Warning     `json:"warnings,omitempty"`
	// Imported is set on reference rows: another tool's result. Its status ok means that the tool gave the number
	// without an objection; gic neither measured nor verified it, so that it is never a best floor.
	Imported *Import `json:"imported,omitempty"`
}

// Metric is a measured quantity: raw samples up to MaxRaw, above that an HdrHistogram (V2 compressed, base64)
// in units of Resolution. Summary values are always present.
type Metric struct {
	Name     string          `json:"name"`
	Unit     string          `json:"unit"`
	Class    workloads.Class `json:"class"`
	Headline bool            `json:"headline,omitempty"`
	N        int             `json:"n"`
	Samples  []float64       `json:"samples,omitempty"`
	HDR      string          `json:"hdr,omitempty"`
	// Resolution is the value of one histogram unit, in Unit.
	Resolution float64 `json:"resolution,omitempty"`
	Min        float64 `json:"min"`
	P50        float64 `json:"p50"`
	P90        float64 `json:"p90"`
	P99        float64 `json:"p99"`
	Max        float64 `json:"max"`
	Mean       float64 `json:"mean"`
}

// MaxRaw is the largest number of samples kept raw in a line.
const MaxRaw = 64
