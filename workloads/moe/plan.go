package moe

import (
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"

	"gic/backends"
	"gic/workloads/routing"
)

// copied is one row on its way: from its token's owner to an expert rank and, weighted, back.
type copied struct {
	token int
	ks    uint64 // which of the token's top-k entries it serves
	back  int    // row of the owner's back area
}

// origin tells whose row arrived at an expert rank.
type origin struct {
	owner int
	copied
}

// plan is the movement of all rows, for all ranks.
type plan struct {
	table    *routing.Table
	byRank   bool
	channels int // per pair of ranks: one per local expert, or one
	// rows by [expert rank][channel][owner], in the order of tokens.
	rows [][][][]copied
	// first row of each of those in the expert rank's receive area.
	first [][][]int
	// terms of each token's reduction by [owner][token]: (expert rank, row of its areas), in the order of the
	// back area.
	returns          [][][]place
	maxRecv, maxBack int
}

type place struct{ rank, row int }

func newPlan(t *routing.Table, byRank bool) *plan {
	p := &plan{table: t, byRank: byRank, channels: t.Experts / t.Ranks}
	if byRank {
		p.channels = 1
	}
	p.rows, p.first = make([][][][]copied, t.Ranks), make([][][]int, t.Ranks)
	for d := range t.Ranks {
		p.rows[d], p.first[d] = make([][][]copied, p.channels), make([][]int, p.channels)
		for c := range p.channels {
			p.rows[d][c], p.first[d][c] = make([][]copied, t.Ranks), make([]int, t.Ranks)
		}
	}
	for owner := range t.Ranks {
		back := 0
		for token := range t.Tokens {
			back = p.route(owner, token, back)
		}
		p.maxBack = max(p.maxBack, back)
	}
	p.returns = make([][][]place, t.Ranks)
	for owner := range t.Ranks {
		p.returns[owner] = make([][]place, t.Tokens)
	}
	for d := range t.Ranks {
		recv := 0
		for c := range p.channels {
			for owner, rows := range p.rows[d][c] {
				p.first[d][c][owner] = recv
				recv += len(rows)
			}
		}
		p.maxRecv = max(p.maxRecv, recv)
	}
	p.collect()
	return p
}

// route appends the copies of one token, in the order in which they come back; `back` is the first one's row.
func (p *plan) route(owner, token, back int) int {
	experts, _ := p.table.At(owner, token)
	local := p.table.Experts / p.table.Ranks
	if !p.byRank {
		for k, e := range experts {
			if e == routing.Masked {
				continue
			}
			d, c := int(e)/local, int(e)%local
			p.rows[d][c][owner] = append(p.rows[d][c][owner], copied{token, 1 << k, back})
			back++
		}
		return back
	}
	for d := range p.table.Ranks {
		var ks uint64
		for k, e := range experts {
			if e != routing.Masked && int(e)/local == d {
				ks |= 1 << k
			}
		}
		if ks != 0 {
			p.rows[d][0][owner] = append(p.rows[d][0][owner], copied{token, ks, back})
			back++
		}
	}
	return back
}

// collect inverts the rows: where each token's returning rows come from, by their place in the back area.
func (p *plan) collect() {
	type returning struct {
		token int
		at    place
	}
	byBack := make([][]returning, p.table.Ranks)
	for owner := range byBack {
		byBack[owner] = make([]returning, p.maxBack)
	}
	count := make([]int, p.table.Ranks)
	p.each(func(d, recv int, o origin) {
		byBack[o.owner][o.back] = returning{o.token, place{d, recv}}
		count[o.owner]++
	})
	for owner, list := range byBack {
		for _, r := range list[:count[owner]] {
			p.returns[owner][r.token] = append(p.returns[owner][r.token], r.at)
		}
	}
}

// each visits every row at every expert rank, in receive order.
func (p *plan) each(visit func(d, recv int, o origin)) {
	for d := range p.rows {
		p.received(d, func(recv int, o origin) { visit(d, recv, o) })
	}
}

// received visits the rows of one expert rank.
func (p *plan) received(d int, visit func(recv int, o origin)) {
	for c := range p.rows[d] {
		for owner, rows := range p.rows[d][c] {
			for i, r := range rows {
				visit(p.first[d][c][owner]+i, origin{owner, r})
			}
		}
	}
}

// sent counts the rows that a rank dispatches to others, returned those that it sends back to others.
func (p *plan) sent(rank int) int {
	n := 0
	for d := range p.rows {
		for c := range p.rows[d] {
			if d != rank {
				n += len(p.rows[d][c][rank])
			}
		}
	}
	return n
}

func (p *plan) returned(rank int) int {
	n := 0
	for c := range p.rows[rank] {
		for owner, rows := range p.rows[rank][c] {
			if owner != rank {
				n += len(rows)
			}
		}
	}
	return n
}

// term is a row and what it is multiplied by.
type term struct {
	row    int
	weight float32
}

// factor is what an expert multiplies rows by: 4 significant bits, sign and size different for neighbours, so
// that a row at the wrong expert shows.
func factor(expert int) float32 {
	i := (expert*37 + 11) % 64
	f := float32(8+i%8) / 8 * float32(int(1)<<(i/8%4)) / 4
	if i >= 32 {
		return -f
	}
	return f
}

// expertTerms are the terms of the row that an expert rank makes of a received one: the experts' factors, with
// layout=rank times the gate weights.
func (p *plan) expertTerms(recv int, o origin) []term {
	experts, gates := p.table.At(o.owner, o.token)
	var terms []term
	for ks := o.ks; ks != 0; ks &= ks - 1 {
		k := bits.TrailingZeros64(ks)
		w := factor(int(experts[k]))
		if p.byRank {
			w *= gates[k]
		}
		terms = append(terms, term{recv, w})
	}
	return terms
}

// reduceTerms are the terms of a token's result at its owner; `row` is the first one's row in the back area.
func (p *plan) reduceTerms(owner, token, row int) []term {
	_, gates := p.table.At(owner, token)
	experts, _ := p.table.At(owner, token)
	var terms []term
	if p.byRank {
		for i := range p.returns[owner][token] {
			terms = append(terms, term{row + i, 1})
		}
		return terms
	}
	for k, e := range experts {
		if e != routing.Masked {
			terms = append(terms, term{row + len(terms), gates[k]})
		}
	}
	return terms
}

// tables builds the kernel's blobs.
type tables []backends.Blob

func (t *tables) words(name string, values ...uint64) {
	data := make([]byte, 0, 8*len(values))
	for _, v := range values {
		data = binary.LittleEndian.AppendUint64(data, v)
	}
	*t = append(*t, backends.Blob{Name: name, Data: data})
}

func (t *tables) sums(name string, sums [][]term) {
	var ranges []uint64
	var data []byte
	n := 0
	for _, terms := range sums {
		ranges = append(ranges, uint64(n), uint64(len(terms)))
		n += len(terms)
		for _, x := range terms {
			data = binary.LittleEndian.AppendUint32(data, uint32(x.row))
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x.weight))
		}
	}
	t.words(name+".sums", ranges...)
	*t = append(*t, backends.Blob{Name: name + ".terms", Data: data})
}

// exchange is the device half's Exchange: channels of 4 words, their moves of 2, the moves within the rank, and the words
// to wait for.
type exchange struct{ channels, moves, local, waits []uint64 }

func (e *exchange) channel(peer int, sig uint64, n int, move func(i int) (src, dst uint64)) {
	e.channels = append(e.channels, uint64(peer), uint64(len(e.moves)/2), uint64(n), sig)
	for i := range n {
		src, dst := move(i)
		e.moves = append(e.moves, src, dst)
	}
}

func (e *exchange) stay(n int, move func(i int) (src, dst uint64)) {
	for i := range n {
		src, dst := move(i)
		e.local = append(e.local, src, dst)
	}
}

func (t *tables) exchange(name string, e exchange) {
	t.words(name+".channels", e.channels...)
	t.words(name+".moves", e.moves...)
	t.words(name+".local", e.local...)
	t.words(name+".waits", e.waits...)
}

// expertSums and reduceSums are all of a rank's weighted sums, by output row.
func (j *job) expertSums(rank int) [][]term {
	var sums [][]term
	j.plan.received(rank, func(recv int, o origin) { sums = append(sums, j.plan.expertTerms(recv, o)) })
	return sums
}

func (j *job) reduceSums(rank int) [][]term {
	var sums [][]term
	row := 0
	for token := range j.tokens {
		terms := j.plan.reduceTerms(rank, token, row)
		row += len(terms)
		sums = append(sums, terms)
	}
	return sums
}

// exchanges are a rank's dispatch and combine. Each begins with the right neighbour, so that no rank is
// everybody's first target.
func (j *job) exchanges(rank int) (dispatch, combine exchange) {
	p := j.plan
	for i := 1; i <= j.ranks; i++ {
		peer := (rank + i) % j.ranks
		for c := range p.channels {
			out, first := p.rows[peer][c][rank], p.first[peer][c][rank]
			there := func(i int) (uint64, uint64) { return j.x.At(out[i].token), j.recv.At(first + i) }
			back, from := p.rows[rank][c][peer], p.first[rank][c][peer]
			home := func(i int) (uint64, uint64) { return j.y.At(from + i), j.back.At(back[i].back) }
			if peer == rank {
				dispatch.stay(len(out), there)
				combine.stay(len(back), home)
				continue
			}
			dispatch.channel(peer, j.dispatched.At(c*j.ranks+rank), len(out), there)
			combine.channel(peer, j.combined.At(rank*p.channels+c), len(back), home)
			dispatch.waits = append(dispatch.waits, j.dispatched.At(c*j.ranks+peer))
			combine.waits = append(combine.waits, j.combined.At(peer*p.channels+c))
		}
	}
	return dispatch, combine
}

// Run gives the kernel's inputs.
func (j *job) Run(rank int) (backends.Run, error) {
	args := j.point.Args(j.seed)
	for key, v := range map[string]uint64{
		"hidden": uint64(j.shape.hidden), "threads": uint64(j.threads), "share": uint64(j.share),
		"iterations": uint64(j.iterations), "warmup": uint64(j.warmup), "barrier": j.barrier.Offset,
		"expert.in": j.recv.Offset, "expert.out": j.y.Offset, "reduce.in": j.back.Offset, "reduce.out": j.out.Offset,
	} {
		args[key] = strconv.FormatUint(v, 10)
	}
	var t tables
	dispatch, combine := j.exchanges(rank)
	t.exchange("dispatch", dispatch)
	t.exchange("combine", combine)
	t.sums("expert", j.expertSums(rank))
	t.sums("reduce", j.reduceSums(rank))
	var targets []uint64
	for _, s := range []struct{ offset, bytes uint64 }{
		{j.recv.Offset, uint64(j.recv.Count) * j.recv.Stride},
		{j.back.Offset, uint64(j.back.Count) * j.back.Stride},
		{j.out.Offset, uint64(j.out.Count) * j.out.Stride},
	} {
		targets = append(targets, s.offset, s.bytes)
	}
	t.words("targets", targets...)
	return backends.Run{Workload: "moe", Args: args, Blobs: t}, nil
}
