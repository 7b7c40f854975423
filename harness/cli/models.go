package cli

import (
	"fmt"

	"gic/workloads/moe"
)

// models lists the model shapes of the moe workload.
func models() []modelEntry {
	var list []modelEntry
	for _, m := range moe.Models() {
		list = append(list, modelEntry{m.Name, fmt.Sprintf("hidden %d, %d experts, top %d", m.Hidden, m.Experts, m.TopK)})
	}
	return list
}
