package protocol

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gic/minigda/nictrace"
)

// What each call asks is said of every call, and of no other.
func TestWords(t *testing.T) {
	if diff := cmp.Diff(slices.Sorted(slices.Values(Calls)), slices.Sorted(maps.Keys(Asked))); diff != "" {
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
		if diff := cmp.Diff(Asked["put_counter"], Lines(records)); diff != "" {
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
		if cmp.Equal(Asked["put_counter"], Lines(records)) {
			t.Errorf("change %d goes unseen", i)
		}
	}
}
