// Package plan expands suites, workloads, backends and axes into the cases of a run, in the order in which they
// will be measured. It starts nothing.
package plan

import (
	"gic/workloads"
)

// NIC is a parsed --nic.
type NIC struct {
	Kind   string            // soft, none, or mlx5
	Device string            // the RDMA device, for mlx5
	Config map[string]string // soft: engine, profile, threads, watch, doorbell, trace
}

// Plan is a whole run.
type Plan struct {
	Suite  string
	Seed   uint64
	Ranks  int
	Repeat int
	// InProcess is how many ranks share a process, neighbours by number; 0 and 1: none do.
	InProcess int
	Outers    []Outer // in measuring order: process runs interleave the backends
}

// Outer is one set of fresh rank processes: one backend configuration and one process run, with the points
// swept inside in this (seeded, shuffled) order.
type Outer struct {
	Workload string
	Backend  string
	Config   map[string]string
	NIC      NIC
	Device   string // host, or cuda
	Ranks    int
	Index    int // process run, from 0
	Seed     uint64
	Points   []workloads.Point
	// Group is what is compared with each other: the workload with its outer axes.
	Group string
	// Skip is the reason, when it is known beforehand that these cannot run.
	Skip string
}

// Records is the number of lines the run will write.
func (p *Plan) Records() int {
	n := 0
	for i := range p.Outers {
		n += len(p.Outers[i].Points)
	}
	return n
}

// Processes is the number of processes that so many ranks take.
func (p *Plan) Processes(ranks int) int {
	shared := max(1, p.InProcess)
	return (ranks + shared - 1) / shared
}

// Starts is the number of rank processes the run will start.
func (p *Plan) Starts() int {
	n := 0
	for i := range p.Outers {
		if p.Outers[i].Skip == "" {
			n += p.Processes(p.Outers[i].Ranks)
		}
	}
	return n
}
