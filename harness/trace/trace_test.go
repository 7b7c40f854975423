package trace

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gic/minigda/nictrace"
)

const write, nop, add = nictrace.RDMAWrite, nictrace.NOP, nictrace.AtomicFA

// small has two QPs to rank 1 and one to rank 0 that nobody uses; the index of the first wraps.
func small() *nictrace.Trace {
	return &nictrace.Trace{Rank: 0, Ranks: 2, Profile: "none",
		QPs: []nictrace.QP{{Number: 256, Peer: 0, Depth: 64}, {Number: 257, Peer: 1, Depth: 64}, {Number: 258, Peer: 1, Depth: 64}},
		Records: []nictrace.Record{
			{Time: 5, QP: -1, Kind: nictrace.Mark},
			{Time: 1000, QP: 1, Kind: nictrace.Doorbell, Index: 1},
			{Time: 1000, QP: 1, Kind: nictrace.WQE, Index: 0xfffe, Opcode: write, DS: 3, Bytes: 8, Inline: true, Raddr: 0x1000},
			{Time: 1001, QP: 1, Kind: nictrace.WQE, Index: 0xffff, Opcode: write, DS: 3, Bytes: 100, Raddr: 0x1008, FMCESE: nictrace.CQUpdate},
			{Time: 1002, QP: 2, Kind: nictrace.Doorbell, Index: 2},
			{Time: 1003, QP: 1, Kind: nictrace.WQE, Index: 0, Opcode: nop, DS: 1, FMCESE: nictrace.CQUpdate | nictrace.Fence},
			{Time: 1004, QP: 2, Kind: nictrace.WQE, Index: 0, Opcode: add, DS: 5, Bytes: 8, Raddr: 0x2000},
			{Time: 1500, QP: 1, Kind: nictrace.CQE, Index: 0xffff},
			{Time: 1600, QP: 1, Kind: nictrace.CQE, Index: 0, Opcode: 13, Syndrome: 0x13},
			{Time: 1700, QP: 1, Kind: nictrace.Doorbell, Index: 2},
			{Time: 1700, QP: 1, Kind: nictrace.WQE, Index: 1, Opcode: write, DS: 3, Bytes: 8, Inline: true, Raddr: 0x1000},
			{Time: 1800, QP: -1, Kind: nictrace.Mark, Index: 1},
		}}
}

func TestCount(t *testing.T) {
	tr := small()
	qps, total := Count(tr, tr.LastRun())
	want := []Stats{
		{QP: 257, Peer: 1, Depth: 64, WQEs: 4, Signaled: 2, Fenced: 1, Doorbells: 2, CQEs: 2, Errors: 1, Writes: 3, Inline: 2, WQEBytes: 160, Payload: 116,
			Shapes:  []Shape{{"NOP", 0, false, 1}, {"RDMA_WRITE", 8, true, 2}, {"RDMA_WRITE", 100, false, 1}},
			Batches: []Batch{{1, 1}, {3, 1}}},
		{QP: 258, Peer: 1, Depth: 64, WQEs: 1, Doorbells: 1, WQEBytes: 80, Payload: 8, Shapes: []Shape{{"ATOMIC_FA", 8, false, 1}}, Batches: []Batch{{1, 1}}},
	}
	if d := cmp.Diff(want, qps); d != "" {
		t.Errorf("per QP (-want +got):\n%s", d)
	}
	if total.WQEs != 5 || total.Doorbells != 3 || total.CQEs != 2 || total.Payload != 124 || total.Peer != -1 || len(total.Batches) != 2 {
		t.Errorf("total: %+v", total)
	}
	if s := total.InlineShare(); s < 0.66 || s > 0.67 {
		t.Errorf("inline share %v", s)
	}
}

// Whatever the order of records is, each WQE belongs to one batch at most, and nothing is counted twice.
func TestCountAnything(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		tr := small()
		tr.Records = nil
		wqes, bells := 0, 0
		for range 50 {
			r := nictrace.Record{QP: rng.IntN(3), Kind: nictrace.Kind(1 + rng.IntN(3)), Index: uint16(rng.Uint32()), DS: uint8(1 + rng.IntN(63))}
			wqes += b(r.Kind == nictrace.WQE)
			bells += b(r.Kind == nictrace.Doorbell)
			tr.Records = append(tr.Records, r)
		}
		_, total := Count(tr, tr.Records)
		batched, rung := 0, 0
		for _, x := range total.Batches {
			batched += x.WQEs * int(x.Doorbells)
			rung += int(x.Doorbells)
		}
		if int(total.WQEs) != wqes || batched > wqes || rung != bells || int(total.Doorbells) != bells {
			t.Fatalf("%d WQEs, %d in batches, %d doorbells: %+v", wqes, batched, bells, total)
		}
	}
}

func b(v bool) int {
	if v {
		return 1
	}
	return 0
}

func TestWords(t *testing.T) {
	tr := small()
	var got []string
	for i := range tr.Records {
		got = append(got, Words(tr, &tr.Records[i]))
	}
	want := []string{
		"counters read, for the 1st time",
		"doorbell: blocks below 1 are posted",
		"WQE 65534: write of 8 B, inline, at 0x1000",
		"WQE 65535: write of 100 B, by pointer, at 0x1008, asks for a CQE",
		"doorbell: blocks below 2 are posted",
		"WQE 0: no operation, fenced, asks for a CQE",
		"WQE 0: fetch-and-add of 8 B at 0x2000, 2 blocks",
		"CQE for WQE 65535",
		"error CQE for WQE 0: syndrome 0x13",
		"doorbell: blocks below 2 are posted",
		"WQE 1: write of 8 B, inline, at 0x1000",
		"counters read, for the 2nd time",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Each change of what was asked is found and named; moving the windows or the clock is none.
func TestDiff(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(tr *nictrace.Trace)
		ignore DiffOptions
		want   []string
	}{
		{"nothing", func(*nictrace.Trace) {}, DiffOptions{}, nil},
		{"time", func(tr *nictrace.Trace) { tr.Records[3].Time += 1e6 }, DiffOptions{}, nil},
		{"window", func(tr *nictrace.Trace) {
			for i := range tr.Records {
				tr.Records[i].Raddr += 1 << 30
			}
		}, DiffOptions{}, nil},
		{"numbers of the QPs", func(tr *nictrace.Trace) { tr.QPs[1].Number = 999 }, DiffOptions{}, nil},
		{"size", func(tr *nictrace.Trace) { tr.Records[3].Bytes = 101 }, DiffOptions{},
			[]string{"QP 1 to rank 1: 1 of 4 WQEs differ; the first is its 2nd: write of 100 B, by pointer, at +0x8, asks for a CQE; in the second: write of 101 B, by pointer, at +0x8, asks for a CQE"}},
		{"placement", func(tr *nictrace.Trace) { tr.Records[2].Inline = false }, DiffOptions{}, []string{"write of 8 B, inline, at +0x0; in the second: write of 8 B, by pointer"}},
		{"address", func(tr *nictrace.Trace) { tr.Records[3].Raddr += 8 }, DiffOptions{}, []string{"at +0x8, asks for a CQE; in the second: write of 100 B, by pointer, at +0x10"}},
		{"address ignored", func(tr *nictrace.Trace) { tr.Records[3].Raddr += 8 }, DiffOptions{Addresses: true}, nil},
		{"fence", func(tr *nictrace.Trace) { tr.Records[5].FMCESE = nictrace.CQUpdate }, DiffOptions{}, []string{"no operation, fenced, asks for a CQE; in the second: no operation, asks"}},
		{"no CQE asked", func(tr *nictrace.Trace) { tr.Records[3].FMCESE = 0 }, DiffOptions{}, []string{"1 of 4 WQEs differ"}},
		{"one WQE less", func(tr *nictrace.Trace) { tr.Records = append(tr.Records[:9:9], tr.Records[11:]...) }, DiffOptions{},
			[]string{"QP 1 to rank 1: 4 WQEs, 3 in the second", "2 doorbells, 1 in the second"}},
		{"a batch", func(tr *nictrace.Trace) { tr.Records[1].Index = 0 }, DiffOptions{}, []string{"its 1st doorbell announces 3 WQEs, 2 in the second"}},
		{"a batch ignored", func(tr *nictrace.Trace) { tr.Records[1].Index = 0 }, DiffOptions{Batches: true}, nil},
		{"another QP", func(tr *nictrace.Trace) { tr.Records[6].QP = 0 }, DiffOptions{},
			[]string{"QP 1 to rank 0: is used by the second alone: 1 WQEs", "QP 2 to rank 1: is used by the first alone: 1 WQEs"}},
		{"rank", func(tr *nictrace.Trace) { tr.Rank = 1 }, DiffOptions{}, []string{"the traces: are of rank 0 of 2 and of rank 1 of 2"}},
	} {
		a, b := small(), small()
		c.change(b)
		got := Diff(a, b, a.Records, b.Records, c.ignore)
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want %d", c.name, got, len(c.want))
			continue
		}
		for i, d := range got {
			if line := d.Where + ": " + d.What; !strings.Contains(line, c.want[i]) {
				t.Errorf("%s: %q, want %q", c.name, line, c.want[i])
			}
		}
	}
}

func TestExports(t *testing.T) {
	tr := small()
	var j, c bytes.Buffer
	if err := WriteJSON(&j, tr, tr.Records); err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(j.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	if err := WriteCSV(&c, tr, tr.Records); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(&c).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Records) != len(tr.Records) || len(lines) != len(tr.Records)+1 {
		t.Errorf("%d records, %d lines of %d", len(d.Records), len(lines)-1, len(tr.Records))
	}
	if d := cmp.Diff([]string{"1001", "257", "1", "wqe", "65535", "RDMA_WRITE", "100", "false", "3", "8", "0x1008", ""}, lines[4]); d != "" {
		t.Errorf("csv (-want +got):\n%s", d)
	}
	if e := d.Records[8]; e.Kind != "cqe" || e.Syndrome != 0x13 || e.Peer == nil || *e.Peer != 1 {
		t.Errorf("json: %+v", e)
	}
}
