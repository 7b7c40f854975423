package exporter

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// traceFile writes a trace as softnic_trace_save does.
func traceFile(records ...traceRecord) []byte {
	var b bytes.Buffer
	b.WriteString(traceMagic)
	binary.Write(&b, binary.LittleEndian, []uint32{traceRecordSize, uint32(len(records))})
	binary.Write(&b, binary.LittleEndian, records)
	return b.Bytes()
}

// A WQE lasts until the CQE that completes it, its own or a later one, also where the 16-bit index wraps; a WQE of
// another QP is not touched; one without a CQE is an instant.
func TestNICTrace(t *testing.T) {
	file := traceFile(
		traceRecord{Time: 1000, QPN: 7, Kind: traceDoorbell, Index: 1},
		traceRecord{Time: 2000, QPN: 7, Kind: traceWQE, Index: 0xfffe, Opcode: 0x08, Bytes: 8, DS: 3},
		traceRecord{Time: 3000, QPN: 9, Kind: traceWQE, Index: 0, Opcode: 0x10},
		traceRecord{Time: 4000, QPN: 7, Kind: traceWQE, Index: 0xffff, Opcode: 0x08},
		traceRecord{Time: 5000, QPN: 7, Kind: traceWQE, Index: 0, Opcode: 0x12},
		traceRecord{Time: 6000, QPN: 7, Kind: traceWQE, Index: 1, Opcode: 0x77},
		traceRecord{Time: 9500, QPN: 7, Kind: traceCQE, Index: 0, Syn: 0x13},
	)
	var out bytes.Buffer
	if err := writeTrace(&out, bytes.NewReader(file)); err != nil {
		t.Fatal(err)
	}
	var tr trace
	if err := json.Unmarshal(out.Bytes(), &tr); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range tr.Events {
		if e.Phase != "M" {
			got = append(got, fmt.Sprintf("%s %s qp=%d ts=%g id=%s", e.Phase, e.Name, e.TID, e.Time, e.ID))
		}
	}
	want := []string{
		"i doorbell qp=7 ts=0 id=",
		"b RDMA_WRITE qp=7 ts=1 id=0x1", "e RDMA_WRITE qp=7 ts=8.5 id=0x1",
		"b RDMA_WRITE qp=7 ts=3 id=0x2", "e RDMA_WRITE qp=7 ts=8.5 id=0x2",
		"b ATOMIC_FA qp=7 ts=4 id=0x3", "e ATOMIC_FA qp=7 ts=8.5 id=0x3",
		"i error CQE, syndrome 0x13 qp=7 ts=8.5 id=",
		"i opcode 0x77 qp=7 ts=5 id=", "i RDMA_READ qp=9 ts=2 id=",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The record's layout, byte by byte, as softnic.h has it.
func TestNICTraceLayout(t *testing.T) {
	raw := make([]byte, traceRecordSize)
	for i := range raw {
		raw[i] = byte(i)
	}
	var r traceRecord
	if n, err := binary.Decode(raw, binary.LittleEndian, &r); err != nil || n != traceRecordSize {
		t.Fatal(n, err)
	}
	want := traceRecord{
		Time: 0x0706050403020100, QPN: 0x0b0a0908, Index: 0x0d0c, Kind: 0x0e, Opcode: 0x0f, Bytes: 0x13121110, DS: 0x14, FM: 0x15, Syn: 0x16,
		Raddr: 0x1f1e1d1c1b1a1918,
	}
	if r != want {
		t.Errorf("%+v, want %+v", r, want)
	}
}

func TestNICTraceRefused(t *testing.T) {
	whole := traceFile(traceRecord{Kind: traceWQE}, traceRecord{Kind: traceCQE})
	odd := bytes.Clone(whole)
	odd[8] = 40
	for _, c := range []struct {
		name, want string
		data       []byte
	}{
		{"empty", "header: EOF", nil},
		{"magic", "begins with", []byte("SNTRACE2aaaaaaaa")},
		{"size", "records of 40 bytes; allowed: 32", odd},
		{"cut", "record 2 of 2: unexpected EOF", whole[:len(whole)-3]},
		{"more", "there is more behind the 2 records", append(bytes.Clone(whole), 0)},
		{"kind", "record 1 of 1: kind 9 is not one of", traceFile(traceRecord{Kind: 9})},
	} {
		if err := writeTrace(&bytes.Buffer{}, bytes.NewReader(c.data)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func FuzzNICTrace(f *testing.F) {
	f.Add(traceFile(traceRecord{Kind: traceDoorbell}, traceRecord{Kind: traceWQE, QPN: 1}, traceRecord{Kind: traceCQE, QPN: 1, Syn: 3}))
	f.Fuzz(func(t *testing.T, data []byte) {
		var out bytes.Buffer
		if writeTrace(&out, bytes.NewReader(data)) == nil && !json.Valid(out.Bytes()) {
			t.Errorf("not JSON: %s", out.Bytes())
		}
	})
}
