package cli

import (
	"gic/workloads"
	"gic/workloads/alltoall"
	"gic/workloads/caller"
	"gic/workloads/conform"
	"gic/workloads/goodput"
	"gic/workloads/moe"
	"gic/workloads/op"
	"gic/workloads/rate"
)

// workloadList is the list to which a new workload is added. The order is that of tables.
func workloadList() []workloads.Workload {
	return []workloads.Workload{op.Workload{}, rate.Workload{}, goodput.Workload{}, alltoall.Workload{}, moe.Workload{},
		caller.Workload{}, conform.Workload{}} // in no suite: it measures nothing
}
