package trace

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"gic/minigda/nictrace"
)

// Event is a record for other programs.
type Event struct {
	Time     uint64  `json:"time_ns"`
	QP       uint32  `json:"qp,omitempty"`
	Peer     *uint32 `json:"peer,omitempty"`
	Kind     string  `json:"kind"` // doorbell, wqe, cqe, mark
	Index    uint16  `json:"index"`
	Opcode   string  `json:"opcode,omitempty"`
	Bytes    uint32  `json:"bytes,omitempty"`
	Inline   bool    `json:"inline,omitempty"`
	Segments uint8   `json:"segments,omitempty"`
	Flags    uint8   `json:"fm_ce_se,omitempty"`
	Raddr    string  `json:"raddr,omitempty"`
	Syndrome uint8   `json:"syndrome,omitempty"`
}

var kinds = map[nictrace.Kind]string{nictrace.Doorbell: "doorbell", nictrace.WQE: "wqe", nictrace.CQE: "cqe", nictrace.Mark: "mark"}

// EventOf names a record's parts.
func EventOf(t *nictrace.Trace, r *nictrace.Record) Event {
	e := Event{Time: r.Time, Kind: kinds[r.Kind], Index: r.Index, Syndrome: r.Syndrome}
	if r.QP >= 0 {
		e.QP, e.Peer = t.QPs[r.QP].Number, &t.QPs[r.QP].Peer
	}
	if r.Kind == nictrace.WQE {
		e.Opcode, e.Bytes, e.Inline, e.Segments, e.Flags = nictrace.OpcodeName(r.Opcode), r.Bytes, r.Inline, r.DS, r.FMCESE
		if moves(r) {
			e.Raddr = fmt.Sprintf("0x%x", r.Raddr)
		}
	}
	return e
}

// document is a trace as JSON.
type document struct {
	Rank    uint32            `json:"rank"`
	Ranks   uint32            `json:"ranks"`
	Clock   string            `json:"clock"`
	Profile string            `json:"profile"`
	Lost    uint64            `json:"lost"`
	QPs     []nictrace.QP     `json:"qps"`
	Regions []nictrace.Region `json:"regions"`
	Records []Event           `json:"records"`
}

// WriteJSON writes a trace's header and the records as one JSON object.
func WriteJSON(w io.Writer, t *nictrace.Trace, records []nictrace.Record) error {
	d := document{t.Rank, t.Ranks, "real", t.Profile, t.Lost, t.QPs, t.Regions, make([]Event, len(records))}
	if t.Virtual {
		d.Clock = "virtual"
	}
	for i := range records {
		d.Records[i] = EventOf(t, &records[i])
	}
	return json.NewEncoder(w).Encode(d)
}

// WriteCSV writes the records, a line each.
func WriteCSV(w io.Writer, t *nictrace.Trace, records []nictrace.Record) error {
	c := csv.NewWriter(w)
	c.Write([]string{"time_ns", "qp", "peer", "kind", "index", "opcode", "bytes", "inline", "segments", "fm_ce_se", "raddr", "syndrome"})
	for i := range records {
		e := EventOf(t, &records[i])
		n := func(v uint64) string { return strconv.FormatUint(v, 10) }
		line := []string{n(e.Time), "", "", e.Kind, n(uint64(e.Index)), e.Opcode, "", "", "", "", e.Raddr, ""}
		if e.Peer != nil {
			line[1], line[2] = n(uint64(e.QP)), n(uint64(*e.Peer))
		}
		switch e.Kind {
		case "wqe":
			line[6], line[7], line[8], line[9] = n(uint64(e.Bytes)), strconv.FormatBool(e.Inline), n(uint64(e.Segments)), n(uint64(e.Flags))
		case "cqe":
			line[11] = n(uint64(e.Syndrome))
		}
		c.Write(line)
	}
	c.Flush()
	return c.Error()
}
