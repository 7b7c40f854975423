package protocol

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gic/minigda/nictrace"
)

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

// What each call asks of the NIC.
var calls = map[string][]string{
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

// What each call asks is said of every call, and of no other.
func TestWords(t *testing.T) {
	if diff := cmp.Diff(slices.Sorted(slices.Values(Calls)), slices.Sorted(maps.Keys(calls))); diff != "" {
		t.Errorf("calls stated in words (-want +got):\n%s", diff)
	}
}

// Lines forgets which queue the NIC looked at first and when it completed what, and nothing else.
func TestLines(t *testing.T) {
	main := []nictrace.Record{
		{Kind: nictrace.Doorbell, QP: 3, Index: 8},
		{Kind: nictrace.WQE, QP: 3, Index: 7, Opcode: nictrace.RDMAWrite, DS: 3, Bytes: 64, FMCESE: nictrace.CQUpdate},
		{Kind: nictrace.CQE, QP: 3, Index: 7},
		{Kind: nictrace.Doorbell, QP: 3, Index: 8},
	}
	companion := []nictrace.Record{
		{Kind: nictrace.Doorbell, QP: 4, Index: 2},
		{Kind: nictrace.WQE, QP: 4, Index: 0, Opcode: nictrace.Wait, DS: 2, FMCESE: nictrace.CQUpdate},
		{Kind: nictrace.CQE, QP: 4, Index: 0},
		{Kind: nictrace.WQE, QP: 4, Index: 1, Opcode: nictrace.AtomicFA, DS: 4, Bytes: 8, FMCESE: nictrace.CQUpdate},
		{Kind: nictrace.CQE, QP: 4, Index: 1},
	}
	other := slices.Clone(companion)
	other[2], other[3] = other[3], other[2]
	for _, records := range [][]nictrace.Record{slices.Concat(main, companion), slices.Concat(other, main)} {
		if diff := cmp.Diff(calls["put_counter"], Lines(records)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	for i, change := range []func(r []nictrace.Record){
		func(r []nictrace.Record) { r[1].Bytes++ },
		func(r []nictrace.Record) { r[0].Index++ },
		func(r []nictrace.Record) { r[2].Kind = nictrace.Mark },
		func(r []nictrace.Record) { r[len(main)+1].Opcode = nictrace.NOP },
	} {
		records := slices.Concat(main, companion)
		change(records)
		if cmp.Equal(calls["put_counter"], Lines(records)) {
			t.Errorf("change %d goes unseen", i)
		}
	}
}
