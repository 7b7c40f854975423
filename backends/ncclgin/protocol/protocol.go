// Package protocol says what NCCL's GIN device code (type GDAKI) asks of a NIC for one call of its API. The traces in
// testdata are the software NIC's own, of one call each (backends/ncclgin/protocol.cuh), as a GPU made them; the tests here
// state them in words and need no GPU. The conformance tests record them anew where there is one (backends/backendtest).
package protocol

import (
	"fmt"
	"slices"
	"strings"

	"gic/backends/nvshmem/protocol"
	"gic/minigda/nictrace"
)

// Calls are what protocol.cuh can make.
var Calls = []string{"put", "put_empty", "put_value", "put_value_1", "signal_inc", "signal_add", "put_signal_inc",
	"put_value_signal_inc", "put_counter", "put_signal_counter", "flush", "barrier"}

// Lines are those of a trace by queue: what the queue was asked, and how many CQEs came of it. GDAKI rings before and behind
// the doorbell record, so a doorbell that announces nothing new is left out; when a CQE comes among the WQEs of its queue,
// and which of two queues the NIC looks at first, is the NIC's matter. A queue of WAITs is the companion, and comes last.
func Lines(records []nictrace.Record) []string {
	asked := map[string][]string{}
	cqes := map[string]int{}
	var queues []string
	for _, line := range protocol.Lines(records) {
		queue, what, _ := strings.Cut(line, ": ")
		if _, ok := asked[queue]; !ok {
			queues = append(queues, queue)
			asked[queue] = nil
		}
		switch {
		case what == "doorbell for 0 blocks":
		case strings.HasPrefix(what, "CQE"):
			cqes[queue]++
		default:
			asked[queue] = append(asked[queue], what)
		}
	}
	waits := func(queue string) int {
		if strings.Contains(strings.Join(asked[queue], "\n"), "WAIT") {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(queues, func(a, b string) int { return waits(a) - waits(b) })
	var out []string
	for _, queue := range queues {
		name := "main"
		if waits(queue) == 1 {
			name = "companion"
		}
		for _, what := range asked[queue] {
			out = append(out, name+": "+what)
		}
		out = append(out, fmt.Sprintf("%s: %d CQEs", name, cqes[queue]))
	}
	return out
}
