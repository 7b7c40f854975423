// Package protocol says in words what NCCL's GIN device code (type GDAKI) asks of a NIC for one call of its API. Where there
// is a GPU the conformance tests (backends/backendtest) make each call (backends/ncclgin/protocol.cuh) and hold the software
// NIC's trace of it to these words.
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

// WQEs as Lines writes them. Each asks for a CQE.
const (
	write    = "RDMA_WRITE, 64 B, 3 segments, asks for a CQE"
	inline8  = "RDMA_WRITE, 8 B, inline, 3 segments, asks for a CQE"
	inline1  = "RDMA_WRITE, 1 B, inline, 3 segments, asks for a CQE"
	fetchAdd = "ATOMIC_FA, 8 B, 4 segments, asks for a CQE"
	nop      = "NOP, 1 segments, asks for a CQE"
	wait     = "WAIT, 0 B, 2 segments, asks for a CQE"
)

// posted are WQEs that a queue is asked with one doorbell.
func posted(queue string, wqes ...string) []string {
	out := []string{fmt.Sprintf("%s: doorbell for %d blocks", queue, len(wqes))}
	for _, w := range wqes {
		out = append(out, queue+": "+w)
	}
	return append(out, fmt.Sprintf("%s: %d CQEs", queue, len(wqes)))
}

// Asked is what each call asks of the NIC, as Lines says it.
var Asked = map[string][]string{
	// A put is one WRITE that points to its payload; an empty one is a NOP.
	"put":       posted("main", write),
	"put_empty": posted("main", nop),
	// putValue carries its value in the WQE.
	"put_value":   posted("main", inline8),
	"put_value_1": posted("main", inline1),
	// A signal is a fetch-and-add on the peer's table; increments and additions are the same.
	"signal_inc": posted("main", fetchAdd),
	"signal_add": posted("main", fetchAdd),
	// With a signal: both on one queue, with one doorbell. The place in the queue is all that orders them.
	"put_signal_inc":       posted("main", write, fetchAdd),
	"put_value_signal_inc": posted("main", inline8, fetchAdd),
	// A counter: on the companion queue, whose other end is this rank, a WAIT for the put's CQE and a fetch-and-add on the
	// own table.
	"put_counter":        slices.Concat(posted("main", write), posted("companion", wait, fetchAdd)),
	"put_signal_counter": slices.Concat(posted("main", write, fetchAdd), posted("companion", wait, fetchAdd)),
	// Only waits for CQEs.
	"flush": nil,
	// A signal to every other rank of the team.
	"barrier": posted("main", fetchAdd),
}

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
