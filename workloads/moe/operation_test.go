package moe

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"gic/backends"
	"gic/workloads"
	"gic/workloads/worktest"
)

// whole is the job for a library with operations of its own.
func whole(t *testing.T, axes ...string) *operation {
	t.Helper()
	return workloads.For(worktest.Prepare(t, Workload{}, 2, small(axes...)...), backends.CapMoE).(*operation)
}

// done is a rank's window after a right run: rows that lost `loss` of their value on the way, and the result of them.
func done(t *testing.T, o *operation, rank int, bits uint64, loss float32) worktest.Memory {
	t.Helper()
	m := worktest.Filled(t, o, 2)[rank]
	if err := o.format.Set(m, 0, bits); err != nil {
		t.Fatal(err)
	}
	e := o.j.expect(rank)
	write := func(at uint64, row []byte) {
		if err := m.Write(at, row); err != nil {
			t.Fatal(err)
		}
	}
	row := make([]byte, o.recv.Size)
	for i := range o.recv.Count {
		if e.recv(i, row) {
			for k := 0; k < len(row); k += 2 {
				v := fromBF16(binary.LittleEndian.Uint16(row[k:]))
				binary.LittleEndian.PutUint16(row[k:], toBF16(v-loss*v))
			}
			write(o.recv.At(i), row)
		}
	}
	for token := range o.j.tokens {
		want, _ := o.j.reference(rank, token)
		for i, v := range want {
			binary.LittleEndian.PutUint16(row[2*i:], toBF16(float32(v)*(1-loss)))
		}
		write(o.out.At(token), row)
	}
	return m
}

func TestOperationVerify(t *testing.T) {
	for _, layout := range []string{"expert", "rank"} {
		o := whole(t, "layout", layout, "hidden", "64", "routing", trace(t, onlyFirst))
		verify := func(m worktest.Memory) workloads.Verification {
			v, err := o.Verify(0, worktest.Memory(bytes.Clone(m)))
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		for _, f := range []struct {
			bits uint64
			loss float32
		}{{bitsBF16, 0}, {bitsE4M3, 0}, {bitsE4M3, 1.0 / 17}} {
			right := done(t, o, 0, f.bits, f.loss)
			if v := verify(right); v.Wrong != 0 || v.Checked == 0 {
				t.Errorf("%s, %d bits: a right run gives %+v", layout, f.bits, v)
			}
			for name, at := range map[string]uint64{"a received row": o.recv.At(1), "the result": o.out.At(1),
				"a guard of the result": o.out.At(0) - 1, "a guard of the rows": o.recv.At(0) - 1, "a token row's guard": o.x.At(0) - 1} {
				bad := worktest.Memory(bytes.Clone(right))
				bad[at|1] ^= 0x40 // an exponent, or a guard byte
				if v := verify(bad); v.Wrong == 0 || v.First == "" {
					t.Errorf("%s, %d bits: %s changed is not found: %+v", layout, f.bits, name, v)
				}
			}
			if v := verify(done(t, o, 0, f.bits, f.loss+1.0/8)); v.Wrong == 0 {
				t.Errorf("%s, %d bits: rows that lost an eighth are accepted", layout, f.bits)
			}
			// Exchanged rows of two sources, which no count shows.
			bad := worktest.Memory(bytes.Clone(right))
			a, b := bad[o.recv.At(0):][:o.recv.Size], bad[o.recv.At(o.recv.Count-1):][:o.recv.Size]
			for i := range a {
				a[i], b[i] = b[i], a[i]
			}
			if v := verify(bad); v.Wrong == 0 {
				t.Errorf("%s, %d bits: exchanged rows are accepted", layout, f.bits)
			}
		}
		// Rank 1 receives nothing: its slots stay as they were.
		empty := done(t, o, 1, bitsE4M3, 0)
		if v, err := o.Verify(1, worktest.Memory(bytes.Clone(empty))); err != nil || v.Wrong != 0 {
			t.Errorf("%s: rank without rows: %+v %v", layout, v, err)
		}
		empty[o.recv.At(0)] ^= 1
		if v, err := o.Verify(1, empty); err != nil || v.Wrong != 1 {
			t.Errorf("%s: a row at the rank without any: %+v %v", layout, v, err)
		}
		if _, err := o.Verify(0, done(t, o, 0, 5, 0)); err == nil || !strings.Contains(err.Error(), "5 significant bits") {
			t.Errorf("%s: 5 bits: %v", layout, err)
		}
	}
}

// A result that leaves out a term, or takes it twice, must be refused although FP8 has lost a part of every row.
func TestOperationRefusesSums(t *testing.T) {
	o := whole(t, "hidden", "64", "tokens", "8")
	right := done(t, o, 0, bitsE4M3, 1.0/32)
	for k := range 2 {
		for _, times := range []float64{0, 2} {
			bad := worktest.Memory(bytes.Clone(right))
			experts, gates := o.j.table.At(0, 3)
			x, row := make([]byte, o.x.Size), make([]byte, o.out.Size)
			o.j.sourceRow(0)(3, x)
			for i := range 64 {
				sum := 0.0
				for e, g := range gates {
					n := 1.0
					if e == k {
						n = times
					}
					sum += n * float64(g) * float64(factor(int(experts[e]))) * element(x, i)
				}
				binary.LittleEndian.PutUint16(row[2*i:], toBF16(float32(sum)))
			}
			copy(bad[o.out.At(3):], row)
			if v, err := o.Verify(0, bad); err != nil || v.Wrong < 64 {
				t.Errorf("entry %d taken %g times: %+v %v", k, times, v, err)
			}
		}
	}
}

func TestOperationOps(t *testing.T) {
	// As in TestOps, but without barriers. 2 iterations, 1 warm-up: 3 + 26 + 6 pairs, one row per expert 3 more.
	for _, c := range []struct {
		layout              string
		pairs, puts, signal uint64
	}{{"expert", 38, 4, 2 * 2}, {"rank", 35, 3, 0}} {
		o := whole(t, "layout", c.layout, "routing", trace(t, onlyFirst))
		for rank := range 2 {
			var want workloads.Ops
			want.Add(backends.OpPut, c.pairs*c.puts, 16)
			want.Add(backends.OpSignal, c.pairs*c.signal, 4)
			if got := o.Ops(rank); got != want {
				t.Errorf("%s rank %d: %+v, expected %+v", c.layout, rank, got, want)
			}
		}
	}
}

func TestOperationRun(t *testing.T) {
	o := whole(t, "routing", trace(t, onlyFirst))
	run, err := o.Run(1)
	if err != nil {
		t.Fatal(err)
	}
	if run.Args["routing_hash"] != o.j.table.Hash() || run.Args["pairs"] != "38" || run.Args["layout"] != "expert" {
		t.Errorf("arguments %v", run.Args)
	}
	var experts []int32
	for i := 0; i < len(run.Blobs[0].Data); i += 4 {
		experts = append(experts, int32(binary.LittleEndian.Uint32(run.Blobs[0].Data[i:])))
	}
	if !slices.Equal(experts, []int32{1, 0, -1, 0, 1, -1}) {
		t.Errorf("experts %v", experts)
	}
	if len(run.Blobs[1].Data) != 24 || len(run.Blobs[2].Data) != 16 {
		t.Errorf("%d bytes of gates, %d of factors", len(run.Blobs[1].Data), len(run.Blobs[2].Data))
	}
}

// results are two ranks' series: rank 1 takes longer, and its kernels waited.
func results(o *operation, drop string) []workloads.RankResult {
	var out []workloads.RankResult
	for rank := range 2 {
		var r workloads.RankResult
		add := func(name, unit string, values ...float64) {
			if name != drop {
				r.Series = append(r.Series, backends.Series{Name: name, Unit: unit, Values: values})
			}
		}
		many := func(n int, v float64) []float64 { return slices.Repeat([]float64{v * float64(1+rank)}, n) }
		n := o.j.iterations
		for i, half := range halves {
			add(half, "ns", many(n, 1000*float64(1+i))...)
			add(half+"_launch", "ns", many(n, 10)...)
			add(half+"_kernel", "ns", many(n, 500)...)
			add(half+"_send", "ns", many(n, 300)...)
			add(half+"_recv", "ns", many(n, 200)...)
			add(half+"_message", "B", 40)
			add(half+"_row", "B", 16)
		}
		add("pair", "ns", many(graphTimed, 3000)...)
		add("empty", "ns", many(n, 5)...)
		add("pairs", "1", float64(o.pairs()))
		out = append(out, r)
	}
	return out
}

func TestOperationSummarize(t *testing.T) {
	o := whole(t, "routing", trace(t, onlyFirst))
	s, err := o.Summarize(results(o, ""))
	if err != nil {
		t.Fatal(err)
	}
	first := map[string]float64{}
	for _, m := range s.Metrics {
		first[m.Name] = m.Samples[0]
	}
	// 7 selections of 16 B, 4 of them from another rank in messages of 40 B; 2 us for the slowest rank.
	for name, want := range map[string]float64{"dispatch": 2e-6, "combine": 4e-6, "pair": 6e-6, "dispatch_kernel": 5e-7,
		"dispatch_wait": 5e-7, "dispatch_send": 6e-7, "combine_launch": 2e-8, "empty": 1e-8,
		"dispatch_logical": 7 * 16 / 2 / 2e-6, "dispatch_wire": 4 * 40 / 2 / 2e-6} {
		if got := first[name]; math.Abs(got-want) > 1e-9*want {
			t.Errorf("%s: %g, expected %g", name, got, want)
		}
	}
	for name, want := range map[string]any{"dispatch_messages": 4, "dispatch_message_bytes": uint64(40), "dispatch_wire_bytes": uint64(160),
		"dispatch_logical_bytes": uint64(112), "dispatch_signals": 4, "pairs": 38} {
		if s.Facts[name] != want {
			t.Errorf("fact %s: %v, expected %v", name, s.Facts[name], want)
		}
	}
	for drop, want := range map[string]string{
		"pair": "rank 0 gave 0 values of pair, expected 10", "pairs": "rank 0 made [] pairs of dispatch and combine, expected 38",
		"dispatch_row": "rank 0 gave [] as dispatch_row", "combine": "rank 0 gave 0 values of combine, expected 2",
	} {
		if _, err := o.Summarize(results(o, drop)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without %s: %v, expected %q", drop, err, want)
		}
	}
	for _, drop := range []string{"dispatch_send", "combine_kernel"} { // what not every library or machine can tell
		s, err := o.Summarize(results(o, drop))
		if err != nil {
			t.Errorf("without %s: %v", drop, err)
		}
		if kernels := drop == "combine_kernel"; kernels != (len(s.Warnings) == 1) {
			t.Errorf("without %s: warnings %v", drop, s.Warnings)
		}
	}
	uneven := results(o, "")
	uneven[1].Series = slices.DeleteFunc(uneven[1].Series, func(s backends.Series) bool { return s.Name == "dispatch_send" })
	if _, err := o.Summarize(uneven); err == nil || !strings.Contains(err.Error(), "rank 1 gave 0 values of dispatch_send") {
		t.Errorf("phases on one rank alone: %v", err)
	}
}
