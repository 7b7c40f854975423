package exporter

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// traceMagic begins a trace file of the software NIC (softnic.h, softnic_trace_save): the magic, the size of a
// record and their number as 32-bit words, then the records in the order in which the NIC acted.
const traceMagic = "SNTRACE1"

// traceRecord is struct softnic_trace.
type traceRecord struct {
	Time   uint64 // ns
	QPN    uint32
	Index  uint16 // doorbell: new producer index; WQE, CQE: WQE index
	Kind   uint8
	Opcode uint8
	Bytes  uint32
	DS     uint8
	FM     uint8
	Syn    uint8
	_      uint8
	Raddr  uint64
}

// The kinds of records.
const (
	traceDoorbell = 1
	traceWQE      = 2
	traceCQE      = 3
)

const traceRecordSize = 32

// opcodeNames are the opcodes that the NIC executes (minigda/mlx5/wqe.h).
var opcodeNames = map[uint8]string{
	0x00: "NOP", 0x08: "RDMA_WRITE", 0x0f: "WAIT", 0x10: "RDMA_READ", 0x11: "ATOMIC_CS", 0x12: "ATOMIC_FA", 0x14: "MASKED_CS",
	0x15: "MASKED_FA", 0x23: "DUMP",
}

// IsTrace says whether a file is a NIC trace.
func IsTrace(file string) bool { return string(head(file)) == traceMagic }

// WriteTrace exports a NIC trace file to perfetto: a track per QP with its doorbells as instants, and each WQE from
// when the NIC took it until the CQE that completes it (its own, or a later one of the QP). A WQE without one is an
// instant.
func WriteTrace(out io.Writer, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("read trace: %w", err)
	}
	defer f.Close()
	if err := writeTrace(out, bufio.NewReaderSize(f, 1<<20)); err != nil {
		return fmt.Errorf("read trace %s: %w", file, err)
	}
	return nil
}

func writeTrace(out io.Writer, in io.Reader) error {
	var h struct {
		Magic       [8]byte
		Size, Count uint32
	}
	if err := binary.Read(in, binary.LittleEndian, &h); err != nil {
		return fmt.Errorf("header: %w", err)
	}
	if string(h.Magic[:]) != traceMagic {
		return fmt.Errorf("begins with %q, not with %s", h.Magic[:], traceMagic)
	}
	if h.Size != traceRecordSize {
		return fmt.Errorf("records of %d bytes; allowed: %d", h.Size, traceRecordSize)
	}
	t := &nicTrace{w: newTraceWriter(out), pending: map[uint32][]traceRecord{}}
	t.w.name("process_name", 1, 0, "software NIC")
	buf := make([]byte, traceRecordSize)
	for i := range h.Count {
		if _, err := io.ReadFull(in, buf); err != nil {
			return fmt.Errorf("record %d of %d: %w", i+1, h.Count, err)
		}
		var r traceRecord
		if _, err := binary.Decode(buf, binary.LittleEndian, &r); err != nil {
			return err
		}
		if err := t.record(&r); err != nil {
			return fmt.Errorf("record %d of %d: %w", i+1, h.Count, err)
		}
	}
	if _, err := in.Read(buf[:1]); !errors.Is(err, io.EOF) {
		return fmt.Errorf("there is more behind the %d records that the header tells of", h.Count)
	}
	t.rest()
	return t.w.close()
}

// nicTrace pairs WQEs and CQEs.
type nicTrace struct {
	w       *traceWriter
	start   uint64
	some    bool
	pending map[uint32][]traceRecord // WQEs of a QP that are not complete, oldest first
	order   []uint32                 // QPs in the order of their first use
	wqes    int
}

func (t *nicTrace) at(ns uint64) float64 { return float64(int64(ns-t.start)) / 1e3 }

func (t *nicTrace) record(r *traceRecord) error {
	if !t.some {
		t.start, t.some = r.Time, true
	}
	if _, known := t.pending[r.QPN]; !known {
		t.pending[r.QPN] = nil
		t.order = append(t.order, r.QPN)
		t.w.name("thread_name", 1, int(r.QPN), fmt.Sprintf("QP %d", r.QPN))
	}
	switch r.Kind {
	case traceDoorbell:
		t.w.add(event{Name: "doorbell", Phase: "i", Cat: "doorbell", Time: t.at(r.Time), PID: 1, TID: int(r.QPN), Scope: "t",
			Args: map[string]any{"prod_idx": r.Index}})
	case traceWQE:
		t.pending[r.QPN] = append(t.pending[r.QPN], *r)
	case traceCQE:
		t.complete(r)
	default:
		return fmt.Errorf("kind %d is not one of %d, %d, %d", r.Kind, traceDoorbell, traceWQE, traceCQE)
	}
	return nil
}

// complete ends all WQEs of the QP up to the CQE's index, which wraps at 16 bits.
func (t *nicTrace) complete(cqe *traceRecord) {
	list := t.pending[cqe.QPN]
	done := 0
	for done < len(list) && int16(cqe.Index-list[done].Index) >= 0 {
		t.slice(&list[done], cqe)
		done++
	}
	t.pending[cqe.QPN] = list[done:]
	if cqe.Syn != 0 {
		t.w.add(event{Name: fmt.Sprintf("error CQE, syndrome 0x%02x", cqe.Syn), Phase: "i", Cat: "error", Time: t.at(cqe.Time),
			PID: 1, TID: int(cqe.QPN), Scope: "t"})
	}
}

// slice writes a WQE as an asynchronous event: those of a QP overlap.
func (t *nicTrace) slice(wqe, cqe *traceRecord) {
	t.wqes++
	id := fmt.Sprintf("0x%x", t.wqes)
	e := event{Name: opcodeName(wqe.Opcode), Phase: "b", Cat: "wqe", Time: t.at(wqe.Time), PID: 1, TID: int(wqe.QPN), ID: id, Args: wqeArgs(wqe)}
	t.w.add(e)
	e.Phase, e.Time, e.Args = "e", t.at(cqe.Time), map[string]any{"cqe_index": cqe.Index, "syndrome": cqe.Syn}
	t.w.add(e)
}

// rest writes the WQEs that no CQE completed.
func (t *nicTrace) rest() {
	for _, qpn := range t.order {
		for _, wqe := range t.pending[qpn] {
			t.w.add(event{Name: opcodeName(wqe.Opcode), Phase: "i", Cat: "wqe", Time: t.at(wqe.Time), PID: 1, TID: int(qpn), Scope: "t",
				Args: wqeArgs(&wqe)})
		}
	}
}

func wqeArgs(w *traceRecord) map[string]any {
	return map[string]any{
		"index": w.Index, "bytes": w.Bytes, "segments": w.DS, "fm_ce_se": fmt.Sprintf("0x%02x", w.FM),
		"raddr": fmt.Sprintf("0x%x", w.Raddr),
	}
}

func opcodeName(op uint8) string {
	if name, ok := opcodeNames[op]; ok {
		return name
	}
	return fmt.Sprintf("opcode 0x%02x", op)
}
