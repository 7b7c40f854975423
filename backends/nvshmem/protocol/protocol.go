// Package protocol says what NVSHMEM's IBGDA device code asks of a NIC for one call of its API. The traces in testdata
// are the software NIC's own, of one call each (backends/nvshmem/protocol.cuh), as a GPU made them; the tests here state
// them in words and need no GPU. The conformance tests record them anew where there is one (backends/backendtest).
package protocol

import (
	"fmt"
	"strings"

	"gic/minigda/nictrace"
)

// Calls are what protocol.cuh can make; those that a whole warp makes together end in _warp.
var Calls = []string{"put", "put_warp", "put_each_warp", "p", "p_warp", "g", "get", "put_signal_add", "put_signal_set",
	"signal_add", "signal_set", "atomic_add", "atomic_inc", "atomic_set", "atomic_and", "atomic_or", "atomic_xor", "atomic_swap",
	"atomic_compare_swap", "atomic_fetch", "atomic_fetch_add", "atomic_fetch_and", "atomic_add_32", "atomic_swap_32", "fence", "quiet"}

// Transports are the kinds of queue pair that carry a call, and what the names of their traces begin with.
var Transports = []struct{ RC, Prefix string }{{"2", ""}, {"0", "dc_"}}

// Lines are the records of a trace without what differs between two runs (times, addresses, where in its queue a call
// began): per WQE its opcode, payload, 16-byte segments and what it asks for; the doorbells by how many blocks each
// announced; the CQEs. Queues are numbered as they appear.
func Lines(records []nictrace.Record) []string {
	var out []string
	queue := map[int]int{}
	announced := map[int]uint16{} // by queue: producer index of its last doorbell
	first := map[int]uint16{}     // index of its first WQE
	for i := range records {
		if r := &records[i]; r.Kind == nictrace.WQE {
			if _, ok := first[r.QP]; !ok {
				first[r.QP] = r.Index
				announced[r.QP] = r.Index
			}
		}
	}
	for i := range records {
		r := &records[i]
		if r.Kind == nictrace.Mark {
			continue
		}
		q, ok := queue[r.QP]
		if !ok {
			q = len(queue)
			queue[r.QP] = q
		}
		switch r.Kind {
		case nictrace.Doorbell:
			out = append(out, fmt.Sprintf("queue %d: doorbell for %d blocks", q, r.Index-announced[r.QP]))
			announced[r.QP] = r.Index
		case nictrace.WQE:
			out = append(out, fmt.Sprintf("queue %d: %s", q, wqe(r)))
		case nictrace.CQE:
			out = append(out, fmt.Sprintf("queue %d: CQE of block %d", q, r.Index-first[r.QP]))
		}
	}
	return out
}

func wqe(r *nictrace.Record) string {
	words := []string{nictrace.OpcodeName(r.Opcode)}
	if r.Opcode != nictrace.NOP {
		words = append(words, fmt.Sprintf("%d B", r.Bytes))
	}
	if r.Inline {
		words = append(words, "inline")
	}
	words = append(words, fmt.Sprintf("%d segments", r.DS))
	if r.FMCESE&nictrace.CQUpdate != 0 {
		words = append(words, "asks for a CQE")
	}
	if r.FMCESE&nictrace.FenceMask != 0 {
		words = append(words, "fenced")
	}
	return strings.Join(words, ", ")
}
