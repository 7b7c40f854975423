package exporter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gic/minigda/nictrace"
)

// A WQE lasts until the CQE that completes it, its own or a later one, also where the 16-bit index wraps; a WQE of
// another QP is not touched; one without a CQE is an instant.
func TestNICTrace(t *testing.T) {
	const write, read, add = nictrace.RDMAWrite, nictrace.RDMARead, nictrace.AtomicFA
	in := &nictrace.Trace{Ranks: 2, QPs: []nictrace.QP{{Number: 7, Peer: 1}, {Number: 9}}, Records: []nictrace.Record{
		{Time: 1000, Kind: nictrace.Doorbell, Index: 1},
		{Time: 2000, Kind: nictrace.WQE, Index: 0xfffe, Opcode: write, Bytes: 8, DS: 3},
		{Time: 3000, QP: 1, Kind: nictrace.WQE, Opcode: read},
		{Time: 4000, Kind: nictrace.WQE, Index: 0xffff, Opcode: write},
		{Time: 5000, Kind: nictrace.WQE, Index: 0, Opcode: add},
		{Time: 6000, Kind: nictrace.WQE, Index: 1, Opcode: 0x77},
		{Time: 7000, QP: -1, Kind: nictrace.Mark},
		{Time: 9500, Kind: nictrace.CQE, Index: 0, Syndrome: 0x13},
	}}
	var out bytes.Buffer
	if err := WriteTrace(&out, in); err != nil {
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
		"i counters read qp=0 ts=6 id=",
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
