package nictrace

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
)

// Write writes a trace as the software NIC does.
func Write(w io.Writer, t *Trace) error {
	var b bytes.Buffer
	h := fileHeader{Node: t.Rank, Nodes: t.Ranks, Watch: t.Watch, Start: t.Start, Records: uint64(len(t.Records)), Lost: t.Lost,
		QPs: uint32(len(t.QPs)), Regions: uint32(len(t.Regions))}
	if t.Virtual {
		h.Clock = 1
	}
	if len(t.Profile) > len(h.Profile) {
		return fmt.Errorf("write trace: profile %q is longer than %d bytes", t.Profile, len(h.Profile))
	}
	copy(h.Profile[:], t.Profile)
	b.WriteString(Magic)
	for _, v := range []any{h, t.QPs, t.Regions} {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			return fmt.Errorf("write trace: %w", err)
		}
	}
	e := encoder{b: &b, packed: make([]packing, len(t.QPs)), qp: -1}
	for i := range t.Records {
		if err := e.record(&t.Records[i]); err != nil {
			return fmt.Errorf("write trace: record %d: %w", i+1, err)
		}
	}
	b.Write(binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(b.Bytes())))
	_, err := w.Write(b.Bytes())
	return err
}

type encoder struct {
	b      *bytes.Buffer
	packed []packing
	time   uint64
	qp     int
}

func (e *encoder) uvarint(v uint64) { e.b.Write(binary.AppendUvarint(nil, v)) }
func (e *encoder) varint(v uint64)  { e.b.Write(binary.AppendVarint(nil, int64(v))) }

func (e *encoder) record(r *Record) error {
	if r.Kind != Mark && (r.QP < 0 || r.QP >= len(e.packed)) {
		return fmt.Errorf("of QP %d; there are %d", r.QP, len(e.packed))
	}
	head := byte(r.Kind)
	var p *packing
	if r.Kind != Mark {
		p = &e.packed[r.QP]
		if r.QP == e.qp {
			head |= sameQP
		}
	} else {
		p = &packing{}
	}
	last := &p.last
	switch {
	case r.Kind == WQE && r.Opcode == last.Opcode && r.FMCESE == last.FMCESE && r.DS == last.DS && r.Inline == last.Inline && r.Bytes == last.Bytes,
		r.Kind == CQE && r.Opcode == 0 && r.Syndrome == 0:
		head |= usual
	}
	e.b.WriteByte(head)
	if r.Kind != Mark && r.QP != e.qp {
		e.uvarint(uint64(r.QP))
		e.qp = r.QP
	}
	e.varint(r.Time - e.time)
	e.time = r.Time
	switch r.Kind {
	case Mark:
		e.uvarint(uint64(r.Index))
	case Doorbell:
		e.uvarint(uint64(r.Index - p.doorbell))
		p.doorbell = r.Index
	case WQE:
		e.uvarint(uint64(r.Index - p.wqe))
		p.wqe = r.Index + r.Blocks()
		if head&usual == 0 {
			flags := byte(0)
			if r.Inline {
				flags = 1
			}
			e.b.Write([]byte{r.Opcode, r.FMCESE, r.DS, flags})
			e.uvarint(uint64(r.Bytes))
		}
		e.varint(r.Raddr - last.Raddr)
		p.last = *r
	case CQE:
		e.uvarint(uint64(r.Index - p.cqe))
		p.cqe = r.Index
		if head&usual == 0 {
			e.b.Write([]byte{r.Opcode, r.Syndrome})
		}
	default:
		return fmt.Errorf("kind %d", r.Kind)
	}
	return nil
}
