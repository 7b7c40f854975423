// Package nictrace reads the trace files of the software NIC (minigda/softnic/trace.c writes them and has the
// format): what one rank's NIC was asked to do, in the order in which it acted.
package nictrace

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strings"
)

// Magic begins a trace file.
const Magic = "SNTRACE2"

const family = "SNTRACE" // of all versions

// Kind of a record.
type Kind uint8

// The kinds.
const (
	Doorbell Kind = 1 + iota // the NIC saw a new producer index
	WQE                      // it took a work queue entry
	CQE                      // it wrote a completion
	Mark                     // its counters were read: a run lies between two of them
)

// Opcodes that the NIC executes (minigda/mlx5/mlx5.h).
const (
	NOP       = 0x00
	RDMAWrite = 0x08
	Wait      = 0x0f
	RDMARead  = 0x10
	AtomicCS  = 0x11
	AtomicFA  = 0x12
	MaskedCS  = 0x14
	MaskedFA  = 0x15
	Dump      = 0x23
)

var opcodeNames = map[uint8]string{
	NOP: "NOP", RDMAWrite: "RDMA_WRITE", Wait: "WAIT", RDMARead: "RDMA_READ", AtomicCS: "ATOMIC_CS", AtomicFA: "ATOMIC_FA",
	MaskedCS: "MASKED_CS", MaskedFA: "MASKED_FA", Dump: "DUMP",
}

// OpcodeName gives the name of a WQE's opcode.
func OpcodeName(op uint8) string {
	if name, ok := opcodeNames[op]; ok {
		return name
	}
	return fmt.Sprintf("opcode 0x%02x", op)
}

// Bits of FMCESE.
const (
	CQUpdate  = 0x08 // asks for a CQE
	FenceMask = 0xe0
	Fence     = 0x80 // waits for the responses of earlier reads and atomics
)

// Record is one thing the NIC did.
type Record struct {
	Time   uint64 // ns since the NIC's time 0
	QP     int    // index into Trace.QPs, -1 for a Mark
	Index  uint16 // Doorbell: new producer index; WQE, CQE: index of the WQE's first block; Mark: which
	Kind   Kind
	Opcode uint8 // WQE: opcode; CQE: opcode of the CQE
	// Of WQEs.
	FMCESE uint8
	DS     uint8 // 16-byte segments
	Inline bool  // some of the payload is in the WQE
	Bytes  uint32
	Raddr  uint64
	// Of CQEs: 0 for a good one.
	Syndrome uint8
}

// Blocks is how many 64-byte basic blocks a WQE takes.
func (r *Record) Blocks() uint16 { return uint16((r.DS + 3) / 4) }

// QP is a queue pair of the traced NIC.
type QP struct {
	Number, CQ     uint32
	Peer, RemoteQP uint32
	Depth          uint32 // blocks of the send queue
	CQDepth        uint32 // 0: collapsed
}

// Region is registered memory of the traced rank.
type Region struct {
	Addr, Bytes uint64
	Key, Access uint32
}

// Trace is one file.
type Trace struct {
	Rank, Ranks uint32
	Virtual     bool   // the NIC's clock was a test's
	Watch       uint32 // enum softnic_watch
	Start       uint64 // CLOCK_MONOTONIC at time 0, ns: puts the traces of one host on one axis
	Lost        uint64 // records that did not fit
	Profile     string
	QPs         []QP
	Regions     []Region
	Records     []Record
}

// Is says whether a file begins as a trace of any version.
func Is(head []byte) bool { return bytes.HasPrefix(head, []byte(family)) }

// ReadFile reads a trace file.
func ReadFile(path string) (*Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read trace: %w", err)
	}
	defer f.Close()
	t, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("read trace %s: %w", path, err)
	}
	return t, nil
}

// Read reads a trace to its end. An error says what is wrong and where.
func Read(in io.Reader) (*Trace, error) {
	d := &decoder{in: bufio.NewReaderSize(in, 1<<16)}
	t, err := d.trace()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("ends after %d bytes, within %s", d.read, d.what)
	}
	return t, err
}

// decoder reads and sums up.
type decoder struct {
	in   *bufio.Reader
	crc  uint32
	read int64
	what string // being read
	one  [1]byte
}

func (d *decoder) ReadByte() (byte, error) {
	b, err := d.in.ReadByte()
	if err != nil {
		return 0, err
	}
	d.one[0] = b
	d.crc = crc32.Update(d.crc, crc32.IEEETable, d.one[:])
	d.read++
	return b, nil
}

func (d *decoder) fixed(v any) error {
	b := make([]byte, binary.Size(v))
	n, err := io.ReadFull(d.in, b)
	d.read += int64(n)
	if err != nil {
		return err
	}
	d.crc = crc32.Update(d.crc, crc32.IEEETable, b)
	_, err = binary.Decode(b, binary.LittleEndian, v)
	return err
}

func (d *decoder) uvarint() (uint64, error) {
	v, err := binary.ReadUvarint(d)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, fmt.Errorf("%s: a number of more than 64 bits", d.what)
	}
	return v, err
}

func (d *decoder) varint() (uint64, error) {
	v, err := d.uvarint()
	return v>>1 ^ -(v & 1), err
}

type fileHeader struct {
	Node, Nodes, Clock, Watch uint32
	Start, Records, Lost      uint64
	Profile                   [32]byte
	QPs, Regions              uint32
}

func (d *decoder) trace() (*Trace, error) {
	d.what = "the header"
	var magic [8]byte
	if err := d.fixed(&magic); err != nil {
		return nil, err
	}
	if string(magic[:]) != Magic {
		if Is(magic[:]) {
			return nil, fmt.Errorf("is a trace of version %q; allowed: %q", magic[len(family):], Magic[len(family):])
		}
		return nil, fmt.Errorf("begins with %q, not with %s", magic[:], Magic)
	}
	var h fileHeader
	if err := d.fixed(&h); err != nil {
		return nil, err
	}
	if h.Nodes == 0 || h.Node >= h.Nodes || h.Clock > 1 {
		return nil, fmt.Errorf("the header has rank %d of %d and clock %d", h.Node, h.Nodes, h.Clock)
	}
	t := &Trace{Rank: h.Node, Ranks: h.Nodes, Virtual: h.Clock == 1, Watch: h.Watch, Start: h.Start, Lost: h.Lost,
		Profile: strings.TrimRight(string(h.Profile[:]), "\x00")}
	d.what = "the list of QPs"
	for i := range h.QPs {
		var q QP
		if err := d.fixed(&q); err != nil {
			return nil, err
		}
		if q.Depth == 0 || q.Depth > 1<<15 || q.Depth&(q.Depth-1) != 0 {
			return nil, fmt.Errorf("QP %d of %d has a depth of %d blocks; allowed: a power of two up to 32768", i+1, h.QPs, q.Depth)
		}
		t.QPs = append(t.QPs, q)
	}
	d.what = "the list of memory regions"
	for range h.Regions {
		var r Region
		if err := d.fixed(&r); err != nil {
			return nil, err
		}
		t.Regions = append(t.Regions, r)
	}
	if err := d.records(t, h.Records); err != nil {
		return nil, err
	}
	d.what = "the checksum"
	want := d.crc
	var sum uint32
	if err := d.fixed(&sum); err != nil {
		return nil, err
	}
	if sum != want {
		return nil, fmt.Errorf("checksum 0x%08x, its contents have 0x%08x: damaged", sum, want)
	}
	d.what = "what comes behind"
	if _, err := d.in.ReadByte(); err == nil {
		return nil, fmt.Errorf("has bytes behind the %d records that the header tells of", h.Records)
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return t, nil
}

// packing is what a QP's records are packed against.
type packing struct {
	doorbell, wqe, cqe uint16
	last               Record
}

const (
	kindBits = 0x07
	sameQP   = 0x08
	usual    = 0x10
)

func (d *decoder) records(t *Trace, count uint64) error {
	packed := make([]packing, len(t.QPs))
	time, qp := uint64(0), -1
	for i := range count {
		d.what = fmt.Sprintf("record %d of %d", i+1, count)
		head, err := d.ReadByte()
		if err != nil {
			return err
		}
		r := Record{Kind: Kind(head & kindBits), QP: -1}
		if r.Kind < Doorbell || r.Kind > Mark || head&^(kindBits|sameQP|usual) != 0 {
			return fmt.Errorf("%s begins with 0x%02x, which no record does", d.what, head)
		}
		if r.Kind != Mark {
			if head&sameQP == 0 {
				v, err := d.uvarint()
				if err != nil {
					return err
				}
				qp = int(min(v, uint64(len(t.QPs))))
			}
			if qp < 0 || qp >= len(t.QPs) {
				return fmt.Errorf("%s is of none of the %d QPs", d.what, len(t.QPs))
			}
			r.QP = qp
		}
		delta, err := d.varint()
		if err != nil {
			return err
		}
		time += delta
		r.Time = time
		index, err := d.uvarint()
		if err != nil {
			return err
		}
		if index > 0xffff {
			return fmt.Errorf("%s moves its index by %d; allowed: up to 65535", d.what, index)
		}
		switch r.Kind {
		case Mark:
			r.Index = uint16(index)
		case Doorbell:
			p := &packed[qp]
			p.doorbell += uint16(index)
			r.Index = p.doorbell
		case WQE:
			err = d.wqe(&r, &packed[qp], uint16(index), head&usual != 0)
		case CQE:
			p := &packed[qp]
			p.cqe += uint16(index)
			r.Index = p.cqe
			if head&usual == 0 {
				var s [2]uint8
				err = d.fixed(&s)
				r.Opcode, r.Syndrome = s[0], s[1]
			}
		}
		if err != nil {
			return err
		}
		t.Records = append(t.Records, r)
	}
	return nil
}

func (d *decoder) wqe(r *Record, p *packing, index uint16, same bool) error {
	r.Index = p.wqe + index
	if same {
		last := &p.last
		r.Opcode, r.FMCESE, r.DS, r.Inline, r.Bytes = last.Opcode, last.FMCESE, last.DS, last.Inline, last.Bytes
	} else {
		var s [4]uint8
		if err := d.fixed(&s); err != nil {
			return err
		}
		bytes, err := d.uvarint()
		if err != nil {
			return err
		}
		if s[2] > 63 || s[3] > 1 || bytes > 1<<32-1 {
			return fmt.Errorf("%s is a WQE of %d segments, flags 0x%02x and %d bytes", d.what, s[2], s[3], bytes)
		}
		r.Opcode, r.FMCESE, r.DS, r.Inline, r.Bytes = s[0], s[1], s[2], s[3] == 1, uint32(bytes)
	}
	moved, err := d.varint()
	r.Raddr = p.last.Raddr + moved
	p.wqe = r.Index + r.Blocks()
	p.last = *r
	return err
}

// LastRun gives the records between the last two marks: the last run whose counters were read before and after.
// Without two marks it is all of them.
func (t *Trace) LastRun() []Record {
	end := len(t.Records)
	for i := len(t.Records) - 1; i >= 0; i-- {
		if t.Records[i].Kind != Mark {
			continue
		}
		if end == len(t.Records) {
			end = i
			continue
		}
		return t.Records[i+1 : end]
	}
	return t.Records
}
