package workloads

import "slices"

// onDevice are the metrics that hold no wait for the NIC, by workload.
var onDevice = map[string][]string{
	"op":     {"issue"},
	"caller": {"absent", "alone", "dormant", "send", "kept_dormant", "kept_send"},
	"moe":    {"reduce"},
}

// OnDevice says whether a metric measures device threads alone: what they do is in it, and nothing that waits for the
// NIC. With CUDA threads over a software NIC these metrics, and no others, are figures of hardware. An issue time that
// waited for a slot says so in a warning (slot_wait).
func OnDevice(workload, metric string) bool { return slices.Contains(onDevice[workload], metric) }
