package protocol

import (
	"maps"
	"os"
	"path/filepath"
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

// Every call's trace, as a GPU made it, says what is said of the call.
func TestCalls(t *testing.T) {
	for _, call := range Calls {
		trace, err := nictrace.ReadFile(filepath.Join("testdata", call+".trace"))
		if err != nil {
			t.Error(err)
			continue
		}
		if diff := cmp.Diff(Asked[call], Lines(trace.Records)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", call, diff)
		}
	}
	files, err := os.ReadDir("testdata")
	if err != nil || len(files) != len(Calls) {
		t.Errorf("%d traces (%v) of %d calls", len(files), err, len(Calls))
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
