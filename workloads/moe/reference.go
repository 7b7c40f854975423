package moe

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"gic/backends"
	"gic/workloads"
	"gic/workloads/routing"
	"gic/workloads/window"
)

// bf16 is the upper half of a float32.
func fromBF16(v uint16) float32 { return math.Float32frombits(uint32(v) << 16) }

// toBF16 rounds a finite number to nearest even.
func toBF16(f float32) uint16 {
	b := math.Float32bits(f)
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// sourceRow is the image of a rank's token rows: random sign and significand, size in [1/4, 4).
func (j *job) sourceRow(rank int) window.Image {
	return func(token int, buf []byte) bool {
		window.Pattern(j.seed, rank, token, buf)
		for i := 0; i < len(buf); i += 2 {
			v := binary.LittleEndian.Uint16(buf[i:])
			exponent := uint16(125 + v>>7&3)
			binary.LittleEndian.PutUint16(buf[i:], v&0x807f|exponent<<7)
		}
		return true
	}
}

// weigh computes a weighted sum of rows as the kernel does: fp32, in the order of the terms, rounded once. The
// products are exact, so that a fused multiply-add gives the same.
func weigh(terms []term, row func(i int) ([]byte, error), out []byte) error {
	if len(terms) == 1 {
		in, err := row(terms[0].row)
		if err != nil {
			return err
		}
		for i := 0; i < len(out); i += 2 { // a sum begins at +0, which a -0 does not change
			v := 0 + float32(terms[0].weight*fromBF16(binary.LittleEndian.Uint16(in[i:])))
			binary.LittleEndian.PutUint16(out[i:], toBF16(v))
		}
		return nil
	}
	acc := make([]float32, len(out)/2)
	for _, t := range terms {
		in, err := row(t.row)
		if err != nil {
			return err
		}
		for i := range acc {
			acc[i] += float32(t.weight * fromBF16(binary.LittleEndian.Uint16(in[2*i:])))
		}
	}
	for i, v := range acc {
		binary.LittleEndian.PutUint16(out[2*i:], toBF16(v))
	}
	return nil
}

// expertRow computes the row that expert rank d makes of its received row.
func (j *job) expertRow(recv int, o origin, out []byte) {
	x := make([]byte, j.x.Size)
	j.sourceRow(o.owner)(o.token, x)
	weigh(j.plan.expertTerms(recv, o), func(int) ([]byte, error) { return x, nil }, out)
}

// expected are the images of a rank's areas after the run.
type expected struct{ recv, y, back, out window.Image }

func (j *job) expect(rank int) expected {
	var here []origin
	j.plan.received(rank, func(_ int, o origin) { here = append(here, o) })
	// What comes back to this rank, by row of the back area.
	type returning struct {
		recv int
		from origin
	}
	back := make([]returning, j.plan.maxBack)
	rows := 0
	j.plan.each(func(_, recv int, o origin) {
		if o.owner == rank {
			back[o.back] = returning{recv, o}
			rows++
		}
	})
	sums := j.reduceSums(rank)
	e := expected{
		recv: func(i int, buf []byte) bool {
			return i < len(here) && j.sourceRow(here[i].owner)(here[i].token, buf)
		},
		y: func(i int, buf []byte) bool {
			if i < len(here) {
				j.expertRow(i, here[i], buf)
			}
			return i < len(here)
		},
		back: func(i int, buf []byte) bool {
			if i < rows {
				j.expertRow(back[i].recv, back[i].from, buf)
			}
			return i < rows
		},
	}
	e.out = func(token int, buf []byte) bool {
		// All its terms are made of one row of tokens.
		x, row := make([]byte, j.x.Size), make([]byte, j.x.Size)
		j.sourceRow(rank)(token, x)
		weigh(sums[token], func(i int) ([]byte, error) {
			weigh(j.plan.expertTerms(back[i].recv, back[i].from), func(int) ([]byte, error) { return x, nil }, row)
			return row, nil
		}, buf)
		return true
	}
	return e
}

// Verify checks the rank's window after the run.
func (j *job) Verify(rank int, m workloads.Memory) (workloads.Verification, error) {
	c := window.NewCheck(rank, m)
	for _, s := range []struct {
		name string
		area window.Slots
	}{{"token rows", j.x}, {"expert rows", j.y}} {
		if err := s.area.Wipe(m); err != nil {
			return c.Result, err
		}
		if err := c.Guards(s.name, s.area); err != nil {
			return c.Result, err
		}
	}
	e := j.expect(rank)
	for _, a := range []struct {
		name  string
		area  window.Slots
		image window.Image
	}{{"received rows", j.recv, e.recv}, {"returned rows", j.back, e.back}, {"result", j.out, e.out}} {
		if err := c.Slots(a.name, a.area, a.image); err != nil {
			return c.Result, err
		}
	}
	if c.Result.Wrong > 0 {
		return c.Result, nil
	}
	// The bytes are those of the kernel's own arithmetic; that this is the right result is a second question.
	err := j.verifyResult(rank, m, c)
	return c.Result, err
}

// verifyResult compares every token's row with a float64 reference made of the routing and the token rows alone.
//
// Bound: with u = 2^-8 the unit roundoff of bf16, each term is rounded at most once on the wire and the sum once
// at the end; n fp32 additions add at most n * 2^-24 each. So |result - reference| <= (2u + u^2 + n * 2^-23) * S,
// S being the sum of the terms' magnitudes.
func (j *job) verifyResult(rank int, m workloads.Memory, c *window.Check) error {
	const u = 1.0 / 256
	const chunk = 64 // tokens whose references are made beside each other
	row := make([]byte, j.x.Size)
	wants, sizes := make([][]float64, chunk), make([][]float64, chunk)
	bound := 2*u + u*u + float64(j.shape.topk)/(1<<23)
	for first := 0; first < j.tokens; first += chunk {
		n := min(chunk, j.tokens-first)
		window.Parallel(n, j.x.Size, func(i int) { wants[i], sizes[i] = j.reference(rank, first+i) })
		for k := range n {
			token, want, size := first+k, wants[k], sizes[k]
			if err := m.Read(j.out.At(token), row); err != nil {
				return err
			}
			for i := range want {
				got := float64(fromBF16(binary.LittleEndian.Uint16(row[2*i:])))
				if math.Abs(got-want[i]) <= bound*size[i] {
					continue
				}
				if c.Result.Wrong == 0 {
					c.Result.First = fmt.Sprintf("rank %d: token %d element %d: %g, expected %g within %.2g",
						rank, token, i, got, want[i], bound*size[i])
				}
				c.Result.Wrong += 2
			}
		}
	}
	return nil
}

// reference is a token's result in float64, and the sum of its terms' magnitudes.
func (j *job) reference(rank, token int) (want, size []float64) {
	x := make([]byte, j.x.Size)
	j.sourceRow(rank)(token, x)
	want, size = make([]float64, j.shape.hidden), make([]float64, j.shape.hidden)
	experts, gates := j.table.At(rank, token)
	for k, e := range experts {
		if e == routing.Masked {
			continue
		}
		w := float64(gates[k]) * float64(factor(int(e)))
		for i := range want {
			t := w * float64(fromBF16(binary.LittleEndian.Uint16(x[2*i:])))
			want[i] += t
			size[i] += math.Abs(t)
		}
	}
	return want, size
}

// Simulate moves and weighs the rows that the windows really hold.
func (j *job) Simulate(windows []workloads.Memory) ([]workloads.RankResult, error) {
	rounds := binary.LittleEndian.AppendUint64(nil, uint64(j.warmup+j.iterations))
	move := func(rank int, e exchange) error {
		for c := 0; c < len(e.channels); c += 4 {
			peer, first, count, sig := int(e.channels[c]), e.channels[c+1], e.channels[c+2], e.channels[c+3]
			for i := first; i < first+count; i++ {
				if err := window.Copy(windows[peer], e.moves[2*i+1], windows[rank], e.moves[2*i], j.x.Size); err != nil {
					return err
				}
			}
			if err := windows[peer].Write(sig, rounds); err != nil {
				return err
			}
		}
		for i := 0; i < len(e.local); i += 2 {
			if err := window.Copy(windows[rank], e.local[i+1], windows[rank], e.local[i], j.x.Size); err != nil {
				return err
			}
		}
		return nil
	}
	sum := func(m workloads.Memory, sums [][]term, in, out window.Slots) error {
		buf := make([]byte, j.x.Size)
		for i, terms := range sums {
			err := weigh(terms, func(row int) ([]byte, error) {
				b := make([]byte, j.x.Size)
				return b, m.Read(in.At(row), b)
			}, buf)
			if err != nil {
				return err
			}
			if err := m.Write(out.At(i), buf); err != nil {
				return err
			}
		}
		return nil
	}
	steps := []func(rank int) error{
		func(rank int) error { d, _ := j.exchanges(rank); return move(rank, d) },
		func(rank int) error { return sum(windows[rank], j.expertSums(rank), j.recv, j.y) },
		func(rank int) error { _, c := j.exchanges(rank); return move(rank, c) },
		func(rank int) error { return sum(windows[rank], j.reduceSums(rank), j.back, j.out) },
	}
	for _, step := range steps {
		for rank := range j.ranks {
			if err := step(rank); err != nil {
				return nil, err
			}
		}
	}
	results := make([]workloads.RankResult, j.ranks)
	for rank := range results {
		results[rank].Series = append(results[rank].Series, workloads.SimulatedClock())
		for _, s := range []struct {
			name string
			ns   float64
		}{{"dispatch", 10e3}, {"combine", 20e3}, {"reduce", 5e3}} {
			results[rank].Series = append(results[rank].Series,
				backends.Series{Name: s.name, Unit: "ns", Values: slices.Repeat([]float64{s.ns}, j.iterations)})
		}
	}
	return results, j.barrier.SetBarrier(windows, 2*(j.warmup+j.iterations))
}
