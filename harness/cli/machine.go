package cli

import (
	"context"
	"time"

	"gic/harness/machine"
	"gic/harness/record"
	"gic/workloads"
)

// machineTimeout bounds reading the machine: the tools it may ask can hang on a sick driver.
const machineTimeout = 20 * time.Second

func readMachine() record.Machine {
	ctx, cancel := context.WithTimeout(context.Background(), machineTimeout)
	defer cancel()
	return machine.Read(ctx)
}

func rdmaDevices() []string { return machine.Devices() }

// cudaDevices counts the GPUs that CUDA shows here.
func cudaDevices() int { return len(machine.CUDADevices()) }

// workloadMap gives the workloads by name, as the ranks look them up.
func workloadMap() map[string]workloads.Workload {
	m := map[string]workloads.Workload{}
	for _, w := range workloadList() {
		m[w.Name()] = w
	}
	return m
}
