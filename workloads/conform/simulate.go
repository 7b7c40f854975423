package conform

import (
	"encoding/binary"
	"fmt"

	"gic/backends"
	"gic/workloads"
)

// player carries out the scripts in memory: every step is complete at once, and an agent goes on until it must wait.
type player struct {
	j       *job
	windows [][]byte
	next    [][]int // rank, agent: step
}

// Simulate leaves the windows as the kernels would, in 1 us.
func (j *job) Simulate(windows []workloads.Memory) ([]workloads.RankResult, error) {
	p := &player{j: j, windows: make([][]byte, len(windows)), next: make([][]int, len(windows))}
	for rank, m := range windows {
		p.windows[rank] = make([]byte, j.bytes)
		p.next[rank] = make([]int, j.script.agents)
		if err := m.Read(0, p.windows[rank]); err != nil {
			return nil, err
		}
	}
	if err := p.play(); err != nil {
		return nil, err
	}
	results := make([]workloads.RankResult, len(windows))
	for rank, m := range windows {
		if err := m.Write(0, p.windows[rank]); err != nil {
			return nil, err
		}
		results[rank].Series = []backends.Series{{Name: "elapsed", Unit: "ns", Values: []float64{1000}}}
	}
	return results, nil
}

func (p *player) play() error {
	for {
		moved, left := false, false
		for rank, agents := range p.next {
			p.meet(rank)
			for id := range agents {
				steps := p.j.script.steps[rank][id]
				for agents[id] < len(steps) && p.step(rank, &steps[agents[id]]) {
					agents[id]++
					moved = true
				}
				left = left || agents[id] < len(steps)
			}
		}
		if !left {
			return nil
		}
		if !moved && !p.meeting() {
			return fmt.Errorf("conform: case=%s waits for what never comes", p.j.point["case"])
		}
	}
}

// meeting says whether the agents of some rank have all arrived.
func (p *player) meeting() bool {
	for rank := range p.next {
		if p.arrived(rank) {
			return true
		}
	}
	return false
}

func (p *player) arrived(rank int) bool {
	for id, next := range p.next[rank] {
		steps := p.j.script.steps[rank][id]
		if next == len(steps) || steps[next].op != opMeet {
			return false
		}
	}
	return true
}

func (p *player) meet(rank int) {
	if p.arrived(rank) {
		for id := range p.next[rank] {
			p.next[rank][id]++
		}
	}
}

func (p *player) at(rank int, l loc, n int) []byte {
	return p.windows[rank][p.j.offset(l):][:n]
}

func (p *player) word(rank int, l loc) uint64 { return binary.LittleEndian.Uint64(p.at(rank, l, 8)) }

// add returns the old value.
func (p *player) add(rank int, l loc, n uint64) uint64 {
	old := p.word(rank, l)
	binary.LittleEndian.PutUint64(p.at(rank, l, 8), old+n)
	return old
}

// step carries one out; false when it has to wait.
func (p *player) step(rank int, s *step) bool {
	put := func(dst, src loc, n int) { copy(p.at(s.peer, dst, n), p.at(rank, src, n)) }
	switch s.op {
	case opPut:
		put(s.dst, s.src, s.bytes)
	case opPutEach:
		for _, m := range s.messages {
			put(m.dst, m.src, m.bytes)
		}
	case opPutValue:
		copy(p.at(s.peer, s.dst, s.bytes), little(s.value))
	case opSignal:
		p.add(s.peer, s.sig, s.value)
	case opPutSignal:
		put(s.dst, s.src, s.bytes)
		p.add(s.peer, s.sig, s.value)
	case opNotify:
		if s.bytes != 8 {
			put(s.dst, s.src, s.bytes)
		}
		copy(p.at(s.peer, s.sig, 8), little(s.value))
	case opGet:
		copy(p.at(rank, s.dst, s.bytes), p.at(s.peer, s.src, s.bytes))
	case opFetchAdd:
		copy(p.at(rank, s.dst, 8), little(p.add(s.peer, s.sig, s.value)))
	case opClaim:
		p.add(s.peer, s.dst.plus(8*int(p.add(s.peer, s.sig, s.value)/s.value)), 1)
	case opWait, opPoll:
		return p.word(rank, s.sig) >= s.value
	case opCopy:
		copy(p.at(rank, s.dst, s.bytes), p.at(rank, s.src, s.bytes))
	case opMeet:
		return false // meet takes all agents on at once
	case opFence, opFlush, opQuiet, opGPUVisible, opRing:
	}
	return true
}

func little(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }
