package conform

import (
	"encoding/binary"
	"fmt"

	"gic/backends"
	"gic/workloads"
)

// opcode is a word of the contract, or what a script needs besides; the numbers are conform.cuh's.
type opcode uint64

const (
	opPut opcode = iota
	opPutEach
	opPutValue
	opSignal
	opPutSignal
	opNotify
	opGet
	opFetchAdd
	opClaim
	opWait
	opPoll
	opFence
	opFlush
	opQuiet
	opGPUVisible
	opRing
	opCopy
	opMeet
)

// area is a part of the window.
type area int

const (
	noArea area = iota
	source      // seeded bytes
	target      // filler before a run, what peers put afterwards
	seen        // filler before a run; what a rank's own loads found there and then
	words       // zero before a run: signals, counters
	flags       // constants: word k holds k + 1
	areas
)

// flagWords is the length of flags, and so the most rounds that a flag can count.
const flagWords = 64

// loc is a place in every rank's window.
type loc struct {
	area area
	off  uint64
}

func (l loc) plus(n int) loc { return loc{l.area, l.off + uint64(n)} }

type step struct {
	op       opcode
	peer     int
	dst, src loc
	bytes    int // PutEach, Claim: entries of the list
	sig      loc
	value    uint64
	messages []placed // PutEach
}

// placed is a payload and its two ends.
type placed struct {
	dst, src loc
	bytes    int
}

// want is what a place must hold after the run: bytes of a rank's source, or those given.
type want struct {
	at    loc
	rank  int
	from  loc
	bytes int
	data  []byte

	format string // what it is, put into words only for who asks
	args   []any
}

func (w want) what() string { return fmt.Sprintf(w.format, w.args...) }

// script is what all agents of all ranks do, and what it must lead to.
type script struct {
	ranks, agents, largest, passes int

	size  [][areas]uint64 // rank: bytes given out
	steps [][][]step      // rank, agent
	wants [][]want        // rank; a later one covers an earlier one
	needs backends.Caps
	ops   []workloads.Ops // rank

	barrierAt loc
	barriers  uint64
}

func newScript(ranks, agents, largest, passes int) *script {
	s := &script{ranks: ranks, agents: agents, largest: largest, passes: passes, steps: make([][][]step, ranks),
		wants: make([][]want, ranks), ops: make([]workloads.Ops, ranks), size: make([][areas]uint64, ranks)}
	for r := range s.steps {
		s.steps[r] = make([][]step, agents)
		s.size[r][flags] = 8 * flagWords
	}
	s.barrierAt = s.words(ranks)
	return s
}

// margin is the least number of bytes between two places, to see who writes too far.
const margin = 16

// everyone's places are apart from those of all ranks, a single rank's from its own only.
const everyone = -1

// alloc gives out n bytes at an address that leaves `skew` when divided by 8.
func (s *script) alloc(rank int, a area, n, skew int) loc {
	at := s.end(rank, a)
	at = (at+margin+7)/8*8 + uint64(skew)
	s.reserve(rank, a, at+uint64(n)+margin)
	return loc{a, at}
}

// words are of everyone.
func (s *script) words(n int) loc {
	at := s.end(everyone, words)
	s.reserve(everyone, words, at+8*uint64(n))
	return loc{words, at}
}

func (s *script) end(rank int, a area) uint64 {
	if rank != everyone {
		return s.size[rank][a]
	}
	var end uint64
	for r := range s.size {
		end = max(end, s.size[r][a])
	}
	return end
}

func (s *script) reserve(rank int, a area, end uint64) {
	for r := range s.size {
		if rank == everyone || rank == r {
			s.size[r][a] = end
		}
	}
}

func flag(round int) loc { return loc{flags, 8 * uint64(round)} }

func (s *script) expect(rank int, at loc, from int, src loc, bytes int, format string, args ...any) {
	s.wants[rank] = append(s.wants[rank], want{at: at, rank: from, from: src, bytes: bytes, format: format, args: args})
}

func (s *script) expectData(rank int, at loc, data []byte, format string, args ...any) {
	s.wants[rank] = append(s.wants[rank], want{at: at, bytes: len(data), data: data, format: format, args: args})
}

func (s *script) expectWord(rank int, at loc, value uint64, format string, args ...any) {
	s.expectData(rank, at, binary.LittleEndian.AppendUint64(nil, value), format, args...)
}

// each calls f for every agent of every rank.
func (s *script) each(f func(a actor)) {
	for rank := range s.ranks {
		for id := range s.agents {
			f(actor{s, rank, id})
		}
	}
}

// barrier is of all agents of all ranks: RankBarrier of barrier.cuh in the words of a script.
func (s *script) barrier() {
	s.barriers++
	s.each(func(a actor) {
		a.add(step{op: opMeet})
		if a.id == 0 {
			for _, p := range a.peers() {
				a.signal(p, s.barrierAt.plus(8*a.rank), 1)
			}
			a.ring()
			for _, p := range a.peers() {
				a.wait(s.barrierAt.plus(8*p), s.barriers)
			}
		}
		a.add(step{op: opMeet})
	})
}

// finish completes everything and says what the barrier's words hold.
func (s *script) finish() {
	s.each(func(a actor) { a.quiet() })
	s.barrier()
	for rank := range s.ranks {
		for from := range s.ranks {
			if from != rank {
				s.expectWord(rank, s.barrierAt.plus(8*from), s.barriers, "barrier word of rank %d", from)
			}
		}
	}
}

// actor writes the script of one agent.
type actor struct {
	s        *script
	rank, id int
}

func (a actor) String() string { return fmt.Sprintf("agent %d of rank %d", a.id, a.rank) }

// peers are the other ranks, each actor's in an order of its own.
func (a actor) peers() []int {
	var list []int
	for i := 1; i < a.s.ranks; i++ {
		list = append(list, (a.rank+i)%a.s.ranks)
	}
	return list
}

func (a actor) add(st step) { a.s.steps[a.rank][a.id] = append(a.s.steps[a.rank][a.id], st) }

// issue adds a step that is in the message list.
func (a actor) issue(st step, op backends.Op, need backends.Caps, n, bytes int) {
	a.add(st)
	a.s.needs |= need
	a.s.ops[a.rank].Add(op, uint64(n), uint64(bytes))
}

// plain adds one that is not.
func (a actor) plain(st step, need backends.Caps) {
	a.add(st)
	a.s.needs |= need
}

func (a actor) put(peer int, dst, src loc, n int) {
	a.issue(step{op: opPut, peer: peer, dst: dst, src: src, bytes: n}, backends.OpPut, backends.CapPut, 1, n)
}

func (a actor) putEach(peer int, list []placed) {
	a.plain(step{op: opPutEach, peer: peer, bytes: len(list), messages: list}, backends.CapPut)
	for _, m := range list {
		a.s.ops[a.rank].Add(backends.OpPut, 1, uint64(m.bytes))
	}
}

func (a actor) putValue(peer int, dst loc, value uint64, n int) {
	a.issue(step{op: opPutValue, peer: peer, dst: dst, value: value, bytes: n}, backends.OpPutValue, backends.CapPutValue, 1, n)
}

func (a actor) signal(peer int, sig loc, add uint64) {
	a.issue(step{op: opSignal, peer: peer, sig: sig, value: add}, backends.OpSignal, backends.CapSignal, 1, 8)
}

func (a actor) putSignal(peer int, dst, src loc, n int, sig loc, add uint64) {
	st := step{op: opPutSignal, peer: peer, dst: dst, src: src, bytes: n, sig: sig, value: add}
	a.issue(st, backends.OpPutSignal, backends.CapPutSignal, 1, n)
}

func (a actor) notify(peer int, dst, src loc, n int, sig loc, value uint64) {
	op := backends.OpNotify
	if n == 8 {
		op = backends.OpNotifyWord
	}
	st := step{op: opNotify, peer: peer, dst: dst, src: src, bytes: n, sig: sig, value: value}
	a.issue(st, op, backends.CapNotify, 1, n)
}

func (a actor) get(peer int, dst, src loc, n int) {
	a.issue(step{op: opGet, peer: peer, dst: dst, src: src, bytes: n}, backends.OpGet, backends.CapGet, 1, n)
}

// fetchAdd leaves the old value at dst.
func (a actor) fetchAdd(peer int, dst, word loc, add uint64) {
	st := step{op: opFetchAdd, peer: peer, dst: dst, sig: word, value: add}
	a.issue(st, backends.OpFetchAdd, backends.CapFetchAdd, 1, 8)
}

// claim adds to a counter, and 1 to the entry of a list that the old value names; one more entry takes old values
// that cannot be.
func (a actor) claim(peer int, counter loc, add uint64, list loc, entries int) {
	st := step{op: opClaim, peer: peer, dst: list, sig: counter, value: add, bytes: entries}
	a.issue(st, backends.OpFetchAdd, backends.CapFetchAdd, 2, 8)
}

func (a actor) wait(sig loc, atLeast uint64) {
	a.plain(step{op: opWait, sig: sig, value: atLeast}, backends.CapWait)
}
func (a actor) poll(word loc, atLeast uint64) {
	a.plain(step{op: opPoll, sig: word, value: atLeast}, 0)
}
func (a actor) fence(peer int) { a.plain(step{op: opFence, peer: peer}, backends.CapFence) }
func (a actor) flush(peer int) { a.plain(step{op: opFlush, peer: peer}, backends.CapFlush) }
func (a actor) quiet()         { a.plain(step{op: opQuiet}, backends.CapQuiet) }
func (a actor) gpuVisible()    { a.plain(step{op: opGPUVisible}, backends.CapGPUVisible) }
func (a actor) ring()          { a.plain(step{op: opRing}, 0) }

// copy moves bytes within the rank's own window.
func (a actor) copy(dst, src loc, n int) {
	a.plain(step{op: opCopy, dst: dst, src: src, bytes: n}, 0)
}
