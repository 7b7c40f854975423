package conform

import "gic/workloads/window"

// caseOf is one case: the words it is about, and the script that puts them to the test.
type caseOf struct {
	name, doc string
	write     func(*script)
}

// cases in the order of `gic list`. A word that a stack may lack is only in the cases that are about it.
var cases = []caseOf{
	{"sizes", "put of every size around the limits of WQEs and pages, at odd offsets", sizes},
	{"many", "more puts without a completion than a queue holds", many},
	{"each", "put_each: a group, a single message, a part of a group", each},
	{"value", "put_value of 1, 2, 4 and 8 bytes touches these bytes only", value},
	{"signal", "signal is strong, adds, and wait returns at its value and not before", signal},
	{"put_signal", "put_signal: the payload is there when the signal is seen", putSignal},
	{"notify", "notify of 8 bytes and of other sizes: the payload is there when wait returns", notify},
	{"get", "get of every size, at odd offsets", get},
	{"fetch_add", "fetch_add: each old value goes to one agent of all ranks", fetchAdd},
	{"fence", "fence keeps puts to one peer in their order", fence},
	{"fence_get", "fence keeps a later put from overtaking a get", fenceGet},
	{"flag", "gpu_visible: behind a flag put after a fence, without wait", flagged},
	{"visible", "gpu_visible: behind a flag put after a quiet, without wait", visible},
	{"visible_get", "gpu_visible: what a get fetched, behind its flush", visibleGet},
	{"flush", "flush: the source may be overwritten", flush},
	{"quiet", "quiet: the sources at all peers may be overwritten", quiet},
	{"quiet_get", "quiet: a third rank finds the bytes at the peer", quietGet},
}

func caseNames() []string {
	var names []string
	for _, c := range cases {
		names = append(names, c.name)
	}
	return names
}

// Where something changes: 8-byte words; 12 bytes of a WQE's first inline segment, then 16 each: 28 end the first
// 64-byte block, 92 the second, 156 the third; 972 fill the largest WQE; cache lines; pages.
var edges = []int{1, 2, 3, 4, 7, 8, 9, 11, 12, 13, 16, 27, 28, 29, 32, 43, 44, 45, 60, 63, 64, 65, 76, 91, 92, 93, 108,
	128, 155, 156, 157, 512, 971, 972, 973, 1024, 4095, 4096, 4097, 65535, 65536}

// upTo are the edges that the largest payload allows, and that one.
func (s *script) upTo() []int {
	var list []int
	for _, n := range edges {
		if n < s.largest {
			list = append(list, n)
		}
	}
	return append(list, s.largest)
}

// varied is the payload of a round: the largest, and sizes that take other paths.
func (s *script) varied(round int) int {
	return min(s.largest, []int{s.largest, 29, 1, 972, 28, 93, 8, s.largest, 13, 4096}[round%10])
}

// place gives every edge two placements, one aligned, one not. Targets are everyone's when peers put there.
func (a actor) place(rank int, dst area) []placed {
	var list []placed
	for i, n := range a.s.upTo() {
		for _, skew := range [][2]int{{0, 0}, {(3*i + 1) % 8, (5*i + 2) % 8}} {
			list = append(list, placed{a.s.alloc(rank, dst, n, skew[0]), a.s.alloc(a.rank, source, n, skew[1]), n})
		}
	}
	return list
}

func sizes(s *script) {
	s.barrier()
	s.each(func(a actor) {
		list := a.place(everyone, target)
		for _, p := range a.peers() {
			for _, x := range list {
				a.put(p, x.dst, x.src, x.bytes)
				s.expect(p, x.dst, a.rank, x.src, x.bytes, "a put of %d bytes by %v", x.bytes, a)
			}
		}
	})
	s.finish()
}

// many puts fill a queue of up to 1024: the same ones again and again, and the NIC's counts tell whether one is missing.
func many(s *script) {
	const puts, laps = 64, 20
	s.barrier()
	s.each(func(a actor) {
		list := make([]placed, puts)
		for i := range list {
			n := min(s.largest, []int{8, 13, 1, 29, 3}[i%5])
			list[i] = placed{s.alloc(everyone, target, n, i%8), s.alloc(a.rank, source, n, i%3), n}
			for _, p := range a.peers() {
				s.expect(p, list[i].dst, a.rank, list[i].src, n, "put %d of many by %v", i, a)
			}
		}
		for range laps {
			for _, x := range list {
				for _, p := range a.peers() {
					a.put(p, x.dst, x.src, x.bytes)
				}
			}
		}
	})
	s.finish()
}

func each(s *script) {
	done := s.words(s.ranks * s.agents)
	lists := map[actor][]placed{}
	s.each(func(a actor) { lists[a] = a.place(everyone, target) })
	s.barrier()
	s.each(func(a actor) {
		list := lists[a]
		few, one := len(list)-6, len(list)-1
		for _, p := range a.peers() {
			for _, part := range [][]placed{list[:few], list[few:one], list[one:]} {
				for _, x := range part {
					s.expect(p, x.dst, a.rank, x.src, x.bytes, "a put of %d bytes of a group by %v", x.bytes, a)
				}
				a.putEach(p, part)
			}
			a.signal(p, s.of(done, a), 1)
			s.expectWord(p, s.of(done, a), 1, "signal of %v", a)
		}
		a.ring()
		for _, p := range a.peers() {
			a.wait(s.of(done, a.at(p)), 1)
			for i, x := range lists[a.at(p)] {
				if i%5 == 0 { // the whole is checked after the run
					a.observe(x.dst, p, x.src, x.bytes, "a put of %d bytes of a group by %v, when signalled", x.bytes, a.at(p))
				}
			}
		}
	})
	s.finish()
}

// at is the agent of the same number at another rank.
func (a actor) at(rank int) actor { return actor{a.s, rank, a.id} }

// of is the word of an agent in a list with one for each.
func (s *script) of(list loc, a actor) loc { return list.plus(8 * (a.rank*s.agents + a.id)) }

// observe has an agent look at a place: what it finds is kept and checked.
func (a actor) observe(at loc, from int, src loc, n int, format string, args ...any) {
	keep := a.s.alloc(a.rank, seen, n, int(at.off%8))
	a.copy(keep, at, n)
	a.s.expect(a.rank, keep, from, src, n, format, args...)
}

func value(s *script) {
	done := s.words(s.ranks * s.agents)
	s.barrier()
	s.each(func(a actor) {
		type one struct {
			at    loc
			value uint64
			bytes int
		}
		var list []one
		for _, n := range []int{1, 2, 4, 8} {
			for skew := 0; skew < 8; skew += n {
				// More bits than are sent; also none and all.
				v := window.Mix(uint64(a.rank*1000 + a.id*100 + n*10 + skew))
				if skew == 0 && n == 8 {
					v |= 1 << 63
				}
				list = append(list, one{s.alloc(everyone, target, n, skew), v, n})
			}
			list = append(list, one{s.alloc(everyone, target, n, 0), 0, n}, one{s.alloc(everyone, target, n, 0), ^uint64(0), n})
		}
		for _, p := range a.peers() {
			for _, x := range list {
				a.putValue(p, x.at, x.value, x.bytes)
				s.expectData(p, x.at, little(x.value)[:x.bytes], "a value of %d bytes by %v", x.bytes, a)
			}
			a.signal(p, s.of(done, a), 1)
			s.expectWord(p, s.of(done, a), 1, "signal of %v", a)
		}
		a.ring()
		for _, p := range a.peers() {
			a.wait(s.of(done, a.at(p)), 1)
		}
	})
	s.finish()
}

// rounds is the frame of the cases in which a payload is announced and looked at when it must be there: each agent
// sends to its namesake at every peer, waits for theirs, looks at the first and last bytes, and lets the sender
// overwrite them. `send` starts the message of a round and announces it; `arrived` waits for one.
func (s *script) rounds(what string, size func(round int) int, send func(a actor, peer, round int, x placed),
	arrived func(a actor, from, round int)) {
	ack := s.words(s.ranks * s.agents)
	to := map[actor]loc{}
	s.each(func(a actor) { to[a] = s.alloc(everyone, target, s.largest, a.rank%3) })
	from := s.alloc(everyone, source, 2*s.largest+s.passes+1, 1)
	payload := func(a actor, round int) placed { return placed{to[a], from.plus(round), size(round)} } // another one each time
	s.barrier()
	s.each(func(a actor) {
		for round := range s.passes {
			mine := payload(a, round)
			for _, p := range a.peers() {
				send(a, p, round, mine)
				s.expect(p, mine.dst, a.rank, mine.src, mine.bytes, "payload %d of %s by %v", round, what, a)
			}
			a.ring()
			for _, p := range a.peers() {
				arrived(a, p, round)
				x := payload(a.at(p), round)
				for _, at := range []int{max(0, x.bytes-32), 0} { // what comes last, first
					a.observe(x.dst.plus(at), p, x.src.plus(at), min(32, x.bytes), "payload %d of %s by %v, from byte %d, when announced",
						round, what, a.at(p), at)
				}
				a.signal(p, s.of(ack, a), 1)
			}
			a.ring()
			for _, p := range a.peers() {
				a.wait(s.of(ack, a.at(p)), uint64(round+1))
			}
		}
		for _, p := range a.peers() {
			s.expectWord(p, s.of(ack, a), uint64(s.passes), "acknowledgements of %v", a)
		}
	})
	s.finish()
}

// signalAdds are the signals of successive rounds, over the whole width of the word.
func signalAdds(round int) uint64 { return []uint64{1, 3, 1 << 32, 1, 255, 1 << 40}[round%6] }

// signalSum is the word after a round.
func signalSum(round int) uint64 {
	var sum uint64
	for i := range round + 1 {
		sum += signalAdds(i)
	}
	return sum
}

func signal(s *script) {
	word := s.words(s.ranks * s.agents)
	s.signalRounds("signal", word, func(a actor, peer, round int, x placed) {
		half := x.bytes / 2 // two puts: strong means all that came before
		if half > 0 {
			a.put(peer, x.dst, x.src, half)
		}
		a.put(peer, x.dst.plus(half), x.src.plus(half), x.bytes-half)
		a.signal(peer, s.of(word, a), signalAdds(round))
	})
}

func putSignal(s *script) {
	word := s.words(s.ranks * s.agents)
	s.signalRounds("put_signal", word, func(a actor, peer, round int, x placed) {
		a.putSignal(peer, x.dst, x.src, x.bytes, s.of(word, a), signalAdds(round))
	})
}

func (s *script) signalRounds(what string, word loc, send func(a actor, peer, round int, x placed)) {
	s.each(func(a actor) {
		for _, p := range a.peers() {
			s.expectWord(p, s.of(word, a), signalSum(s.passes-1), "signals of %v", a)
		}
	})
	s.rounds(what, s.varied, send, func(a actor, from, round int) {
		at := s.of(word, a.at(from))
		a.wait(at, 0)
		a.wait(at, signalSum(round))
		if round > 0 { // long passed
			a.wait(at, signalSum(round-1))
		}
	})
}

func notify(s *script) {
	word, payloadWord := s.words(s.ranks*s.agents), s.words(s.ranks*s.agents)
	s.each(func(a actor) {
		for _, p := range a.peers() {
			s.expectWord(p, s.of(word, a), uint64(s.passes), "word of %v", a)
			s.expectWord(p, s.of(payloadWord, a), uint64(s.passes), "payload word of %v", a)
		}
	})
	size := func(round int) int {
		if n := s.varied(round); n != 8 { // that is the other kind
			return n
		}
		return 7
	}
	s.rounds("notify", size, func(a actor, peer, round int, x placed) {
		// Eight bytes: the word is the payload, dst and src are unused. First, so that who has seen it has not yet
		// seen the other.
		a.notify(peer, loc{}, loc{}, 8, s.of(payloadWord, a), uint64(round+1))
		a.notify(peer, x.dst, x.src, x.bytes, s.of(word, a), uint64(round+1))
	}, func(a actor, from, round int) {
		at := s.of(payloadWord, a.at(from))
		a.wait(at, uint64(round+1))
		keep := s.alloc(a.rank, seen, 8, 0)
		a.copy(keep, at, 8)
		s.expectWord(a.rank, keep, uint64(round+1), "payload word %d of %v, when announced", round+1, a.at(from))
		a.wait(s.of(word, a.at(from)), uint64(round+1))
	})
}

func get(s *script) {
	s.barrier()
	s.each(func(a actor) {
		for _, p := range a.peers() {
			for _, x := range a.place(a.rank, seen) {
				a.get(p, x.dst, x.src, x.bytes)
				s.expect(a.rank, x.dst, p, x.src, x.bytes, "a get of %d bytes from rank %d by %v", x.bytes, p, a)
			}
		}
	})
	s.finish()
}

func fetchAdd(s *script) {
	const claims, unit = 8, 1<<33 + 7
	entries := (s.ranks - 1) * s.agents * claims
	counter, list := s.words(1), s.words(entries+1)
	own := s.words(s.ranks * s.agents)
	adds := []uint64{1, 1 << 63, 1<<63 - 2, 5, 1 << 32, 1} // over the whole width, and around it
	s.barrier()
	s.each(func(a actor) {
		for range claims {
			for _, p := range a.peers() {
				a.claim(p, counter, unit, list, entries)
			}
		}
		for _, p := range a.peers() { // a word of its own: every old value is known
			at, sum := s.of(own, a), uint64(0)
			for _, n := range adds {
				old := s.alloc(a.rank, seen, 8, 0)
				a.fetchAdd(p, old, at, n)
				s.expectWord(a.rank, old, sum, "old value of the word of %v at rank %d", a, p)
				sum += n
			}
			s.expectWord(p, at, sum, "word of %v", a)
		}
	})
	for rank := range s.ranks {
		s.expectWord(rank, counter, uint64(entries)*unit, "counter")
		for i := range entries {
			s.expectWord(rank, list.plus(8*i), 1, "times that the old value %d was given out", i)
		}
	}
	s.finish()
}

func fence(s *script) {
	word := s.words(s.ranks * s.agents)
	s.signalRounds("fence", word, func(a actor, peer, round int, x placed) {
		for i := range 2 { // other bytes first
			a.put(peer, x.dst, x.src.plus(1+i*x.bytes), x.bytes)
			a.fence(peer)
		}
		a.put(peer, x.dst, x.src, x.bytes)
		a.fence(peer)
		a.signal(peer, s.of(word, a), signalAdds(round))
	})
}

func fenceGet(s *script) {
	s.barrier()
	s.each(func(a actor) {
		at := s.alloc(everyone, target, s.largest, 0)
		from := s.alloc(a.rank, source, s.largest+s.passes, 0)
		for _, p := range a.peers() {
			there := []placed{{at, from, s.largest}} // puts over each other
			a.put(p, at, from, s.largest)
			for round := 1; round < s.passes; round++ {
				n := s.varied(round)
				old := s.alloc(a.rank, seen, n, 3)
				a.fence(p)
				a.get(p, old, at, n)
				a.fence(p)
				a.put(p, at, from.plus(round), n)
				for _, x := range there {
					s.expect(a.rank, old, a.rank, x.src, min(n, x.bytes), "get %d of %v from rank %d, ahead of the put behind the fence", round, a, p)
				}
				there = append(there, placed{at, from.plus(round), n})
			}
			for i, x := range there {
				s.expect(p, at, a.rank, x.src, x.bytes, "put %d of %v", i, a)
			}
		}
	})
	s.finish()
}

// flagRounds announces payloads by a flag that is itself put, and looks for it without wait.
func (s *script) flagRounds(what string, order func(a actor, peer int), raise func(a actor, peer int, at loc, round int)) {
	word := s.words(s.ranks * s.agents)
	s.each(func(a actor) {
		for _, p := range a.peers() {
			s.expectWord(p, s.of(word, a), uint64(s.passes), "flag of %v", a)
		}
	})
	s.rounds(what, s.varied, func(a actor, peer, round int, x placed) {
		a.put(peer, x.dst, x.src, x.bytes)
		order(a, peer)
		raise(a, peer, s.of(word, a), round)
	}, func(a actor, from, round int) {
		a.poll(s.of(word, a.at(from)), uint64(round+1))
		a.gpuVisible()
	})
}

func flagged(s *script) {
	s.flagRounds("flag", func(a actor, peer int) { a.fence(peer) },
		func(a actor, peer int, at loc, round int) { a.putValue(peer, at, uint64(round+1), 8) })
}

func visible(s *script) {
	s.flagRounds("visible", func(a actor, _ int) { a.quiet() },
		func(a actor, peer int, at loc, round int) { a.put(peer, at, flag(round), 8) })
}

func visibleGet(s *script) {
	s.barrier()
	s.each(func(a actor) {
		for _, p := range a.peers() {
			for round := range s.passes {
				n := s.varied(round)
				to, from := s.alloc(a.rank, seen, n, round%8), s.alloc(a.rank, source, n, 0)
				a.get(p, to, from, n)
				s.expect(a.rank, to, p, from, n, "get %d from rank %d by %v", round, p, a)
				a.flush(p)
				a.gpuVisible()
				a.observe(to, p, from, n, "get %d from rank %d by %v, as seen behind its flush", round, p, a)
			}
		}
	})
	s.finish()
}

// reuse puts from one place, completes, and overwrites it, round by round.
func (s *script) reuse(complete func(a actor, peers []int)) {
	s.barrier()
	s.each(func(a actor) {
		from, next := s.alloc(a.rank, source, s.largest, 0), s.alloc(a.rank, source, s.largest+s.passes, 0)
		held := from
		for round := range s.passes {
			n := s.varied(round)
			to := s.alloc(everyone, target, n, 0)
			for _, p := range a.peers() {
				a.put(p, to, from, n)
				s.expect(p, to, a.rank, held, n, "put %d by %v, whose source was overwritten after its completion", round, a)
			}
			complete(a, a.peers())
			held = next.plus(round)
			a.copy(from, held, s.largest)
		}
	})
	s.finish()
}

func flush(s *script) {
	s.reuse(func(a actor, peers []int) {
		for _, p := range peers {
			a.flush(p)
		}
	})
}

func quiet(s *script) { s.reuse(func(a actor, _ []int) { a.quiet() }) }

func quietGet(s *script) {
	word := s.words(s.ranks * s.agents)
	s.barrier()
	to, from := make([]loc, s.agents), make([]loc, s.agents)
	for id := range s.agents {
		to[id], from[id] = s.alloc(everyone, target, s.largest, 0), s.alloc(everyone, source, s.largest, 5)
	}
	s.each(func(a actor) {
		middle, third := (a.rank+1)%s.ranks, (a.rank+2)%s.ranks
		a.put(middle, to[a.id], from[a.id], s.largest)
		s.expect(middle, to[a.id], a.rank, from[a.id], s.largest, "put by %v", a)
		a.quiet()
		told := a.rank // with two ranks the third is the first
		if s.ranks > 2 {
			a.signal(third, s.of(word, a), 1)
			s.expectWord(third, s.of(word, a), 1, "signal of %v", a)
			a.ring()
			told = (a.rank + s.ranks - 2) % s.ranks
			a.wait(s.of(word, a.at(told)), 1)
		}
		back := s.alloc(a.rank, seen, s.largest, 0)
		a.get((told+1)%s.ranks, back, to[a.id], s.largest)
		s.expect(a.rank, back, told, from[a.id], s.largest, "put by %v, as a third rank found it at the peer", a.at(told))
	})
	s.finish()
}
