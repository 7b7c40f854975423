package protocol

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gic/minigda/nictrace"
)

// WQEs as Lines writes them.
const (
	write     = "RDMA_WRITE, 64 B, 3 segments"
	inline8   = "RDMA_WRITE, 8 B, inline, 3 segments"
	warp8     = "RDMA_WRITE, 256 B, inline, 19 segments" // 32 values of 8 bytes, in five blocks
	read      = "RDMA_READ, 64 B, 3 segments"
	read8     = "RDMA_READ, 8 B, 3 segments"
	maskedAdd = "MASKED_FA, 8 B, 4 segments"
	maskedSet = "MASKED_CS, 8 B, 5 segments" // compare mask 0: it always matches; takes two blocks
	fetchAdd  = "ATOMIC_FA, 8 B, 4 segments"
	swap      = "ATOMIC_CS, 8 B, 4 segments"
	add32     = "MASKED_FA, 4 B, 4 segments"
	set32     = "MASKED_CS, 4 B, 4 segments"
	nop       = "NOP, 2 segments"
	nopOfOne  = "NOP, 1 segments"
	cqe       = ", asks for a CQE"

	// Over DC.
	dcWrite     = "RDMA_WRITE, 64 B, 4 segments"
	dcMaskedAdd = "MASKED_FA, 8 B, 5 segments"
	dcMaskedSet = "MASKED_CS, 8 B, 6 segments"
)

// lone is one WQE that is announced and completed by itself.
func lone(w string) []string {
	return []string{"doorbell for 1 blocks", w + cqe, "CQE of block 0"}
}

// setting is a masked compare-and-swap of 8 bytes, which asks for no CQE: the NOP behind it does, in the same doorbell.
var setting = []string{"doorbell for 3 blocks", maskedSet, nop + cqe, "CQE of block 2"}

// What each call asks of the NIC.
var calls = map[string][]string{
	// A put is one WRITE that points to its payload, whatever its size; nothing goes inline but p.
	"put":      lone(write),
	"put_warp": lone(write),
	// p carries its value in the WQE.
	"p": lone(inline8),
	// 32 neighbouring lanes share one WRITE of five blocks; it asks for no CQE, the NOP behind it does.
	"p_warp": {"doorbell for 6 blocks", warp8, nopOfOne + cqe, "CQE of block 5"},
	// g and get are READs; g waits for its own.
	"g":   lone(read8),
	"get": lone(read),
	// put_signal is a WRITE and an atomic on one queue with one doorbell; the signal's place in the queue is all that
	// orders it. ADD is one block; SET takes two and a NOP.
	"put_signal_add": {"doorbell for 2 blocks", write, maskedAdd + cqe, "CQE of block 1"},
	"put_signal_set": {"doorbell for 4 blocks", write, maskedSet, nop + cqe, "CQE of block 3"},
	"signal_add":     lone(maskedAdd),
	"signal_set":     setting,
	// Atomics of 8 bytes: adding kinds are masked fetch-and-adds, also those without a result; fetching, setting and
	// bitwise kinds are masked compare-and-swaps that always match. Only FETCH_ADD and COMPARE_SWAP are the plain atomics.
	"atomic_add":          lone(maskedAdd),
	"atomic_inc":          lone(maskedAdd),
	"atomic_xor":          lone(maskedAdd), // carries cut behind every bit
	"atomic_fetch":        setting,         // that swaps no bit: a plain read costs three blocks
	"atomic_set":          setting,
	"atomic_and":          setting,
	"atomic_or":           setting,
	"atomic_swap":         setting,
	"atomic_fetch_and":    setting,
	"atomic_fetch_add":    lone(fetchAdd),
	"atomic_compare_swap": lone(swap),
	// Those of 4 bytes fit one block.
	"atomic_add_32":  lone(add32),
	"atomic_swap_32": lone(set32),
	"put_each_warp":  group(write),
	// Both only wait for CQEs.
	"fence": nil,
	"quiet": nil,
}

// withNOP is an atomic that takes two blocks and asks for no CQE: the NOP behind it does, in the same doorbell.
func withNOP(atomic string) []string {
	return []string{"doorbell for 3 blocks", atomic, nop + cqe, "CQE of block 2"}
}

// What each call asks of the NIC over a DC queue pair. A WRITE or READ has a segment more, the address vector, and fits its
// block still. Any atomic then takes two blocks, and so does not ask for its CQE itself: three blocks for what is one over RC.
var dcCalls = map[string][]string{
	"put":           lone(dcWrite),
	"put_warp":      lone(dcWrite),
	"put_each_warp": group(dcWrite),
	"p":             lone("RDMA_WRITE, 8 B, inline, 4 segments"),
	// Two halves, each with its NOP and its CQE, in one doorbell.
	"p_warp": {"doorbell for 8 blocks", "RDMA_WRITE, 128 B, inline, 12 segments", nopOfOne + cqe, "CQE of block 3",
		"RDMA_WRITE, 128 B, inline, 12 segments", nopOfOne + cqe, "CQE of block 7"},
	"g":                   lone("RDMA_READ, 8 B, 4 segments"),
	"get":                 lone("RDMA_READ, 64 B, 4 segments"),
	"put_signal_add":      {"doorbell for 4 blocks", dcWrite, dcMaskedAdd, nop + cqe, "CQE of block 3"},
	"put_signal_set":      {"doorbell for 4 blocks", dcWrite, dcMaskedSet, nop + cqe, "CQE of block 3"},
	"signal_add":          withNOP(dcMaskedAdd),
	"signal_set":          withNOP(dcMaskedSet),
	"atomic_add":          withNOP(dcMaskedAdd),
	"atomic_inc":          withNOP(dcMaskedAdd),
	"atomic_xor":          withNOP(dcMaskedAdd),
	"atomic_fetch":        withNOP(dcMaskedSet),
	"atomic_set":          withNOP(dcMaskedSet),
	"atomic_and":          withNOP(dcMaskedSet),
	"atomic_or":           withNOP(dcMaskedSet),
	"atomic_swap":         withNOP(dcMaskedSet),
	"atomic_fetch_and":    withNOP(dcMaskedSet),
	"atomic_fetch_add":    withNOP("ATOMIC_FA, 8 B, 5 segments"),
	"atomic_compare_swap": withNOP("ATOMIC_CS, 8 B, 5 segments"),
	"atomic_add_32":       withNOP("MASKED_FA, 4 B, 5 segments"),
	"atomic_swap_32":      withNOP("MASKED_CS, 4 B, 5 segments"),
	"fence":               nil,
	"quiet":               nil,
}

// group is put_each_warp: 32 puts by the lanes of a warp are 32 WRITEs with one doorbell, and one CQE for the last.
func group(write string) []string {
	out := []string{"doorbell for 32 blocks"}
	for range 31 {
		out = append(out, write)
	}
	return append(out, write+cqe, "CQE of block 31")
}

// By what the names of a transport's traces begin with.
var stated = map[string]map[string][]string{"": calls, "dc_": dcCalls}

func TestCalls(t *testing.T) {
	for _, transport := range Transports {
		for _, call := range Calls {
			name := transport.Prefix + call
			trace, err := nictrace.ReadFile(filepath.Join("testdata", name+".trace"))
			if err != nil {
				t.Error(err)
				continue
			}
			var want []string
			for _, line := range stated[transport.Prefix][call] {
				want = append(want, "queue 0: "+line)
			}
			if diff := cmp.Diff(want, Lines(trace.Records)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	}
}

// Every trace is of a call that is known, and the other way round.
func TestTraces(t *testing.T) {
	files, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, f := range files {
		have = append(have, strings.TrimSuffix(f.Name(), ".trace"))
	}
	var want []string
	for _, transport := range Transports {
		for _, call := range Calls {
			want = append(want, transport.Prefix+call)
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values(Calls)), slices.Sorted(maps.Keys(stated[transport.Prefix]))); diff != "" {
			t.Errorf("calls stated in words, %q (-want +got):\n%s", transport.Prefix, diff)
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("traces (-want +got):\n%s", diff)
	}
}

// Lines forgets what differs between two runs and nothing else.
func TestLines(t *testing.T) {
	one := []nictrace.Record{
		{Kind: nictrace.Mark, QP: -1},
		{Kind: nictrace.Doorbell, QP: 3, Index: 2},
		{Kind: nictrace.WQE, QP: 3, Index: 65535, Opcode: nictrace.RDMAWrite, DS: 3, Bytes: 64, Raddr: 4096},
		{Kind: nictrace.WQE, QP: 3, Index: 0, Opcode: nictrace.MaskedCS, DS: 5, Bytes: 8, FMCESE: nictrace.CQUpdate | nictrace.Fence},
		{Kind: nictrace.CQE, QP: 3, Index: 0},
	}
	other := slices.Clone(one)
	for i := range other {
		r := &other[i]
		r.Time += 1000
		if r.Kind != nictrace.Mark {
			r.QP, r.Index, r.Raddr = 7, r.Index+100, r.Raddr+64
		}
	}
	want := []string{"queue 0: doorbell for 3 blocks", "queue 0: RDMA_WRITE, 64 B, 3 segments",
		"queue 0: MASKED_CS, 8 B, 5 segments, asks for a CQE, fenced", "queue 0: CQE of block 1"}
	for _, records := range [][]nictrace.Record{one, other} {
		if diff := cmp.Diff(want, Lines(records)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	other[2].Bytes++
	if cmp.Equal(want, Lines(other)) {
		t.Error("a payload of another size goes unseen")
	}
}
