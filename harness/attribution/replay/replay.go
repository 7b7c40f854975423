// Package replay splits a gap by replaying the library's own NIC trace. A row of the backend replay
// (minigda/gda_replay.h) has the point, NIC and ranks of the row that it replays, and times the same kernel, which waits
// for the same words and completions, while what each operation asks of the NIC is the library's, posted by the minimal
// path. So
//
//	T_library - T_replay   is the library's own code
//	T_replay  - T_floor    are the library's choices, as far as a NIC sees them
//
// What no NIC sees is in the first: ordering before the doorbell, the doorbell's path, queue management, a proxy.
package replay

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"gic/backends"
	"gic/harness/attribution"
	"gic/harness/record"
)

// Backend is the backend whose rows are replays.
const Backend = "replay"

// Key names the configuration that a replay row is of: its configuration key "of" holds it. Point and NIC are those
// of the replay row itself.
func Key(c *record.Case) string {
	h := sha256.New()
	fmt.Fprintln(h, c.Backend)
	for _, k := range slices.Sorted(maps.Keys(c.Config)) {
		fmt.Fprintf(h, "%s=%s\n", k, c.Config[k])
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// Visible are the choices that a NIC sees, and a replay keeps.
func Visible() []attribution.Name {
	return []attribution.Name{
		attribution.QueueSharing, attribution.DoorbellBatching, attribution.Placement, attribution.CompletionScope,
		attribution.SignalProtocol, attribution.Algorithm,
	}
}

// Method is the replay's way to split a gap.
type Method struct{}

var _ attribution.Method = Method{}

// Name of the method.
func (Method) Name() string { return "replay" }

// Split gives the replay's account: one part of all choices that a NIC sees, and the residual. It is blind where the
// run has no replay of the row.
func (m Method) Split(g *attribution.Gap) (*attribution.Split, error) {
	row, err := find(g.Run, g.Row)
	if err != nil {
		return nil, err
	}
	took, ok := row.Time(g.Metric)
	if !ok {
		return nil, attribution.Blind("the replay of %s has no %s", g.Row.Label(), g.Metric)
	}
	_, base, _, ok := g.Times()
	if !ok {
		return nil, fmt.Errorf("replay: a row has no %s", g.Metric)
	}
	s := &attribution.Split{Method: m.Name(), Gap: g, Covers: Visible()}
	part := attribution.Part{Terms: Visible(), Quantity: took.Sub(base), What: "what is asked of the NIC",
		How: fmt.Sprintf("%s, the replay of this row's trace, minus the floor", row.Source())}
	// Posting from a program costs a little more than posting from arguments. The floor's own replay tells how much; dear
	// doorbells hide a part of it, so that the truth lies between taking it off and not.
	if own, err := find(g.Run, g.Floor); err == nil {
		if of, ok := own.Time(g.Metric); ok {
			s.Notes = append(s.Notes, attribution.Note{Code: "replay-overhead", Anchor: "replay",
				Text: fmt.Sprintf("the replay of the floor's own trace (%s) takes %v more than the floor; that is taken off", own.Source(), of.Sub(base).Value)})
			most := part.Value
			part.Quantity = took.Sub(of)
			part.How = fmt.Sprintf("%s, the replay of this row's trace, minus %s, that of the floor's", row.Source(), own.Source())
			part.Spread = &attribution.Spread{Low: min(part.Value, most), High: max(part.Value, most), Of: "what replaying takes, taken off or not"}
		}
	} else {
		s.Notes = append(s.Notes, attribution.Note{Code: "replay-overhead", Anchor: "replay",
			Text: "the floor's own trace was not replayed: what replaying itself takes is among the choices"})
	}
	s.Parts = []attribution.Part{part}
	if how := row.First().Created["replay.scope.how"]; how != "" {
		s.Notes = append(s.Notes, attribution.Note{Code: "replay-scope", Anchor: "replay",
			Text: fmt.Sprintf("the replay's flushes complete %s: %s", row.First().Created["replay.scope"], how)})
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	return s, nil
}

// find gives the replay of a row, with the row's counts.
func find(run *attribution.Run, w *attribution.Row) (*attribution.Row, error) {
	key := Key(w.First())
	for _, r := range run.Rows {
		if r.Backend() != Backend || r.First().Config["of"] != key || !r.SamePlace(w) {
			continue
		}
		if r.Status() != record.OK {
			return nil, attribution.Blind("the replay of %s is %s: %s", w.Label(), r.Status(), r.First().Reason)
		}
		if name, was, is, ok := differs(w.First(), r.First()); ok {
			return nil, attribution.Blind("the replay of %s has %s = %d, the row %d: it is not of that work", w.Label(), name, is, was)
		}
		return r, nil
	}
	return nil, attribution.Blind("this run has no replay of %s; gic replay makes one of a run with --nic soft:trace=on", w.Label())
}

// differs names an exact counter that two rows have and in which they differ.
func differs(a, b *record.Case) (name string, was, is uint64, found bool) {
	for _, x := range a.Counters {
		i := slices.IndexFunc(b.Counters, func(y backends.Counter) bool { return y.Name == x.Name })
		if i >= 0 && x.Exact && b.Counters[i].Exact && x.Value != b.Counters[i].Value {
			return x.Name, x.Value, b.Counters[i].Value, true
		}
	}
	return "", 0, 0, false
}
