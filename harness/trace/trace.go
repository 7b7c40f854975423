// Package trace tells what a trace of the software NIC (minigda/nictrace) holds: as lines in words, as counts, as the
// difference of two, and as JSON and CSV. Times are for display only: what two traces share is what was asked of the
// NIC, not when.
package trace

import (
	"fmt"
	"slices"
	"strings"

	"gic/minigda/nictrace"
)

// Words says a record in words, without its time and QP.
func Words(t *nictrace.Trace, r *nictrace.Record) string {
	switch r.Kind {
	case nictrace.Mark:
		return fmt.Sprintf("counters read, for the %s time", ordinal(int(r.Index)+1))
	case nictrace.Doorbell:
		return fmt.Sprintf("doorbell: blocks below %d are posted", r.Index)
	case nictrace.CQE:
		if r.Syndrome != 0 {
			return fmt.Sprintf("error CQE for WQE %d: syndrome 0x%02x", r.Index, r.Syndrome)
		}
		return fmt.Sprintf("CQE for WQE %d", r.Index)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "WQE %d: %s", r.Index, act(r))
	if moves(r) {
		fmt.Fprintf(&b, " at 0x%x", r.Raddr)
	}
	if n := r.Blocks(); n != 1 {
		fmt.Fprintf(&b, ", %d blocks", n)
	}
	if r.FMCESE&nictrace.FenceMask != 0 {
		b.WriteString(", fenced")
	}
	if r.FMCESE&nictrace.CQUpdate != 0 {
		b.WriteString(", asks for a CQE")
	}
	return b.String()
}

func act(r *nictrace.Record) string {
	switch r.Opcode {
	case nictrace.NOP:
		return "no operation"
	case nictrace.RDMAWrite:
		how := "by pointer"
		if r.Inline {
			how = "inline"
		}
		return fmt.Sprintf("write of %d B, %s,", r.Bytes, how)
	case nictrace.RDMARead:
		return fmt.Sprintf("read of %d B", r.Bytes)
	case nictrace.AtomicFA, nictrace.MaskedFA:
		return fmt.Sprintf("fetch-and-add of %d B", r.Bytes)
	case nictrace.AtomicCS, nictrace.MaskedCS:
		return fmt.Sprintf("compare-and-swap of %d B", r.Bytes)
	case nictrace.Wait:
		return "wait for another CQ"
	case nictrace.Dump:
		return "dump"
	}
	return nictrace.OpcodeName(r.Opcode)
}

func moves(r *nictrace.Record) bool {
	switch r.Opcode {
	case nictrace.RDMAWrite, nictrace.RDMARead, nictrace.AtomicFA, nictrace.MaskedFA, nictrace.AtomicCS, nictrace.MaskedCS:
		return true
	}
	return false
}

func ordinal(n int) string {
	suffix := "th"
	if n%100/10 != 1 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprintf("%d%s", n, suffix)
}

// Shape is what WQEs are counted by.
type Shape struct {
	Opcode string `json:"opcode"`
	Bytes  uint32 `json:"bytes"`
	Inline bool   `json:"inline"`
	WQEs   uint64 `json:"wqes"`
}

// Batch is how many doorbells announced so many WQEs.
type Batch struct {
	WQEs      int    `json:"wqes"`
	Doorbells uint64 `json:"doorbells"`
}

// Stats count what one QP, or all together, was asked for.
type Stats struct {
	QP       uint32 `json:"qp,omitempty"` // number; 0 of all
	Peer     int    `json:"peer"`         // -1 of all
	Depth    uint32 `json:"depth,omitempty"`
	WQEs     uint64 `json:"wqes"`
	Signaled uint64 `json:"signaled"` // asked for a CQE
	Fenced   uint64 `json:"fenced"`
	// Doorbells that the NIC saw: rings may coalesce before it looks.
	Doorbells uint64  `json:"doorbells"`
	CQEs      uint64  `json:"cqes"`
	Errors    uint64  `json:"error_cqes"`
	Writes    uint64  `json:"writes"`
	Inline    uint64  `json:"writes_inline"`
	WQEBytes  uint64  `json:"wqe_bytes"`     // 16 per segment
	Payload   uint64  `json:"payload_bytes"` // of writes, reads and atomics
	Shapes    []Shape `json:"shapes"`        // by opcode, bytes, inline
	Batches   []Batch `json:"batches"`       // by size
}

// InlineShare is the part of the writes whose payload is in the WQE, 0 without writes.
func (s *Stats) InlineShare() float64 {
	if s.Writes == 0 {
		return 0
	}
	return float64(s.Inline) / float64(s.Writes)
}

func (s *Stats) wqe(r *nictrace.Record) {
	s.WQEs++
	s.WQEBytes += 16 * uint64(r.DS)
	if moves(r) {
		s.Payload += uint64(r.Bytes)
	}
	if r.FMCESE&nictrace.CQUpdate != 0 {
		s.Signaled++
	}
	if r.FMCESE&nictrace.FenceMask != 0 {
		s.Fenced++
	}
	if r.Opcode == nictrace.RDMAWrite {
		s.Writes++
		if r.Inline {
			s.Inline++
		}
	}
	name := nictrace.OpcodeName(r.Opcode)
	for i := range s.Shapes {
		if x := &s.Shapes[i]; x.Opcode == name && x.Bytes == r.Bytes && x.Inline == r.Inline {
			x.WQEs++
			return
		}
	}
	s.Shapes = append(s.Shapes, Shape{name, r.Bytes, r.Inline, 1})
}

func (s *Stats) batch(wqes int) {
	s.Doorbells++
	for i := range s.Batches {
		if s.Batches[i].WQEs == wqes {
			s.Batches[i].Doorbells++
			return
		}
	}
	s.Batches = append(s.Batches, Batch{wqes, 1})
}

func (s *Stats) sort() {
	slices.SortFunc(s.Batches, func(a, b Batch) int { return a.WQEs - b.WQEs })
	slices.SortFunc(s.Shapes, func(a, b Shape) int {
		if c := strings.Compare(a.Opcode, b.Opcode); c != 0 {
			return c
		}
		if a.Bytes != b.Bytes {
			return int(int64(a.Bytes) - int64(b.Bytes))
		}
		if a.Inline != b.Inline && a.Inline {
			return 1
		}
		return -1
	})
}

// Count counts records per QP, in the order of the QPs' numbers, used ones only, and over all.
func Count(t *nictrace.Trace, records []nictrace.Record) (perQP []Stats, total Stats) {
	all := make([]Stats, len(t.QPs))
	for qp, list := range queues(t, records) {
		s := &all[qp]
		s.QP, s.Peer, s.Depth = t.QPs[qp].Number, int(t.QPs[qp].Peer), t.QPs[qp].Depth
		for _, b := range list.batches {
			s.batch(b)
			total.batch(b)
		}
		for _, w := range list.wqes {
			s.wqe(w)
			total.wqe(w)
		}
		s.CQEs, s.Errors = list.cqes, list.errors
		total.CQEs, total.Errors = total.CQEs+s.CQEs, total.Errors+s.Errors
	}
	total.Peer = -1
	total.sort()
	for i := range all {
		if s := &all[i]; s.WQEs+s.Doorbells+s.CQEs > 0 {
			s.sort()
			perQP = append(perQP, *s)
		}
	}
	return perQP, total
}

// queue is what one QP was asked for, in order.
type queue struct {
	wqes         []*nictrace.Record
	batches      []int // WQEs that each doorbell announced, as far as the records show them
	cqes, errors uint64
}

// queues sorts records by QP. A doorbell's WQEs are those that the NIC took after it and whose index is below its own.
func queues(t *nictrace.Trace, records []nictrace.Record) []queue {
	list := make([]queue, len(t.QPs))
	type bell struct{ index uint16 }
	open := make([][]bell, len(t.QPs)) // doorbells whose WQEs are still to come
	for i := range records {
		r := &records[i]
		if r.QP < 0 {
			continue
		}
		q := &list[r.QP]
		switch r.Kind {
		case nictrace.Doorbell:
			open[r.QP] = append(open[r.QP], bell{r.Index})
			q.batches = append(q.batches, 0)
		case nictrace.CQE:
			q.cqes++
			if r.Syndrome != 0 {
				q.errors++
			}
		case nictrace.WQE:
			q.wqes = append(q.wqes, r)
			bells := open[r.QP]
			for len(bells) > 0 && int16(bells[0].index-r.Index) <= 0 {
				bells = bells[1:]
			}
			open[r.QP] = bells
			if len(bells) > 0 {
				q.batches[len(q.batches)-len(bells)]++
			}
		}
	}
	return list
}
