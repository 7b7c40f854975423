package trace

import (
	"fmt"
	"slices"

	"gic/minigda/nictrace"
)

// Difference is one thing in which two traces differ, in words.
type Difference struct {
	Where string `json:"where"` // "QP 1 to rank 1", "all QPs"
	What  string `json:"what"`
}

// DiffOptions say what does not matter.
type DiffOptions struct {
	Batches   bool // how many WQEs a doorbell announced: it depends on timing where rings coalesce
	Addresses bool // where in the peer's memory
}

// Diff compares what two runs asked their NICs for: QPs, the WQEs of each in order, and the batches. QPs are paired by
// their peer and their order among those to it. Addresses count from the lowest one of each peer, for no two runs have
// their windows at the same place. Times and CQEs do not matter: CQEs follow from the WQEs.
func Diff(a, b *nictrace.Trace, x, y []nictrace.Record, ignore DiffOptions) []Difference {
	var out []Difference
	if a.Rank != b.Rank || a.Ranks != b.Ranks {
		out = append(out, Difference{"the traces", fmt.Sprintf("are of rank %d of %d and of rank %d of %d", a.Rank, a.Ranks, b.Rank, b.Ranks)})
	}
	qa, qb := used(a, x), used(b, y)
	for _, k := range keys(qa, qb) {
		left, right := qa[k], qb[k]
		where := fmt.Sprintf("QP %d to rank %d", k.nth+1, k.peer)
		switch {
		case left == nil:
			out = append(out, Difference{where, fmt.Sprintf("is used by the second alone: %d WQEs", len(right.wqes))})
		case right == nil:
			out = append(out, Difference{where, fmt.Sprintf("is used by the first alone: %d WQEs", len(left.wqes))})
		default:
			out = append(out, diffQueue(where, left, right, ignore)...)
		}
	}
	return out
}

type key struct {
	peer uint32
	nth  int
}

type usedQueue struct {
	queue
	base uint64
}

// used gives the queues that took WQEs.
func used(t *nictrace.Trace, records []nictrace.Record) map[key]*usedQueue {
	base := map[uint32]uint64{}
	list := queues(t, records)
	for qp, q := range list {
		for _, w := range q.wqes {
			if low, known := base[t.QPs[qp].Peer]; moves(w) && (!known || w.Raddr < low) {
				base[t.QPs[qp].Peer] = w.Raddr
			}
		}
	}
	out, next := map[key]*usedQueue{}, map[uint32]int{}
	for qp, q := range list {
		peer := t.QPs[qp].Peer
		if len(q.wqes) > 0 {
			out[key{peer, next[peer]}] = &usedQueue{q, base[peer]}
			next[peer]++
		}
	}
	return out
}

func keys(a, b map[key]*usedQueue) []key {
	var list []key
	for k := range a {
		list = append(list, k)
	}
	for k := range b {
		if a[k] == nil {
			list = append(list, k)
		}
	}
	slices.SortFunc(list, func(a, b key) int {
		if a.peer != b.peer {
			return int(int64(a.peer) - int64(b.peer))
		}
		return a.nth - b.nth
	})
	return list
}

func diffQueue(where string, a, b *usedQueue, ignore DiffOptions) []Difference {
	var out []Difference
	say := func(format string, args ...any) {
		out = append(out, Difference{where, fmt.Sprintf(format, args...)})
	}
	if len(a.wqes) != len(b.wqes) {
		say("%d WQEs, %d in the second", len(a.wqes), len(b.wqes))
	}
	differ, first := 0, -1
	for i := range min(len(a.wqes), len(b.wqes)) {
		if asked(a, i, ignore) != asked(b, i, ignore) {
			differ++
			if first < 0 {
				first = i
			}
		}
	}
	if differ > 0 {
		say("%d of %d WQEs differ; the first is its %s: %s; in the second: %s", differ, min(len(a.wqes), len(b.wqes)), ordinal(first+1),
			asked(a, first, ignore), asked(b, first, ignore))
	}
	if ignore.Batches || slices.Equal(a.batches, b.batches) {
		return out
	}
	if len(a.batches) != len(b.batches) {
		say("%d doorbells, %d in the second", len(a.batches), len(b.batches))
	}
	for i := range min(len(a.batches), len(b.batches)) {
		if a.batches[i] != b.batches[i] {
			say("its %s doorbell announces %d WQEs, %d in the second", ordinal(i+1), a.batches[i], b.batches[i])
			break
		}
	}
	return out
}

// asked says what a WQE asks for, but for what is ignored.
func asked(q *usedQueue, i int, ignore DiffOptions) string {
	w := q.wqes[i]
	s := act(w)
	if moves(w) && !ignore.Addresses {
		s += fmt.Sprintf(" at +0x%x", w.Raddr-q.base)
	}
	if w.FMCESE&nictrace.FenceMask != 0 {
		s += ", fenced"
	}
	if w.FMCESE&nictrace.CQUpdate != 0 {
		s += ", asks for a CQE"
	}
	return s
}
