package exporter

import (
	"fmt"
	"io"

	"gic/minigda/nictrace"
)

// IsTrace says whether a file is a NIC trace.
func IsTrace(file string) bool { return nictrace.Is(head(file)) }

// WriteTrace exports a NIC trace to perfetto: a track per QP with its doorbells as instants, and each WQE from when
// the NIC took it until the CQE that completes it (its own, or a later one of the QP). A WQE without one is an instant.
func WriteTrace(out io.Writer, in *nictrace.Trace) error {
	t := &nicTrace{w: newTraceWriter(out), in: in, pending: map[int][]*nictrace.Record{}}
	t.w.name("process_name", 1, 0, fmt.Sprintf("software NIC of rank %d", in.Rank))
	for i := range in.Records {
		t.record(&in.Records[i])
	}
	t.rest()
	return t.w.close()
}

// nicTrace pairs WQEs and CQEs.
type nicTrace struct {
	w       *traceWriter
	in      *nictrace.Trace
	start   uint64
	some    bool
	pending map[int][]*nictrace.Record // WQEs of a QP that are not complete, oldest first
	order   []int                      // QPs in the order of their first use
	wqes    int
}

func (t *nicTrace) at(ns uint64) float64 { return float64(int64(ns-t.start)) / 1e3 }

// track is a QP's: its number, or 0 of the NIC itself.
func (t *nicTrace) track(r *nictrace.Record) int {
	if r.QP < 0 {
		return 0
	}
	return int(t.in.QPs[r.QP].Number)
}

func (t *nicTrace) instant(name, cat string, r *nictrace.Record, args map[string]any) {
	t.w.add(event{Name: name, Phase: "i", Cat: cat, Time: t.at(r.Time), PID: 1, TID: t.track(r), Scope: "t", Args: args})
}

func (t *nicTrace) record(r *nictrace.Record) {
	if !t.some {
		t.start, t.some = r.Time, true
	}
	if _, known := t.pending[r.QP]; !known && r.QP >= 0 {
		t.pending[r.QP] = nil
		t.order = append(t.order, r.QP)
		t.w.name("thread_name", 1, t.track(r), fmt.Sprintf("QP %d to rank %d", t.track(r), t.in.QPs[r.QP].Peer))
	}
	switch r.Kind {
	case nictrace.Mark:
		t.instant("counters read", "mark", r, nil)
	case nictrace.Doorbell:
		t.instant("doorbell", "doorbell", r, map[string]any{"prod_idx": r.Index})
	case nictrace.WQE:
		t.pending[r.QP] = append(t.pending[r.QP], r)
	case nictrace.CQE:
		t.complete(r)
	}
}

// complete ends all WQEs of the QP up to the CQE's index, which wraps at 16 bits.
func (t *nicTrace) complete(cqe *nictrace.Record) {
	list := t.pending[cqe.QP]
	done := 0
	for done < len(list) && int16(cqe.Index-list[done].Index) >= 0 {
		t.slice(list[done], cqe)
		done++
	}
	t.pending[cqe.QP] = list[done:]
	if cqe.Syndrome != 0 {
		t.instant(fmt.Sprintf("error CQE, syndrome 0x%02x", cqe.Syndrome), "error", cqe, nil)
	}
}

// slice writes a WQE as an asynchronous event: those of a QP overlap.
func (t *nicTrace) slice(wqe, cqe *nictrace.Record) {
	t.wqes++
	id := fmt.Sprintf("0x%x", t.wqes)
	e := event{Name: nictrace.OpcodeName(wqe.Opcode), Phase: "b", Cat: "wqe", Time: t.at(wqe.Time), PID: 1, TID: t.track(wqe), ID: id, Args: wqeArgs(wqe)}
	t.w.add(e)
	e.Phase, e.Time, e.Args = "e", t.at(cqe.Time), map[string]any{"cqe_index": cqe.Index, "syndrome": cqe.Syndrome}
	t.w.add(e)
}

// rest writes the WQEs that no CQE completed.
func (t *nicTrace) rest() {
	for _, qp := range t.order {
		for _, wqe := range t.pending[qp] {
			t.instant(nictrace.OpcodeName(wqe.Opcode), "wqe", wqe, wqeArgs(wqe))
		}
	}
}

func wqeArgs(w *nictrace.Record) map[string]any {
	return map[string]any{
		"index": w.Index, "bytes": w.Bytes, "segments": w.DS, "fm_ce_se": fmt.Sprintf("0x%02x", w.FMCESE), "inline": w.Inline,
		"raddr": fmt.Sprintf("0x%x", w.Raddr),
	}
}
