package sim

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	us = Time(1e6)
	ns = Time(1e3)
)

// cx7 is softnic's profile cx7-200: CQE 3.30 us after the doorbell, data halfway.
var cx7 = NIC{MessageRate: 260e6, Bandwidth: 24.8e9, Land: 1650 * ns, Done: 3300 * ns}

func run(t testing.TB, cfg Config) *Result {
	t.Helper()
	r, err := Run(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got/want-1) <= tolerance) { // NaN fails too
		t.Errorf("%s: %g, expected %g within %g %%", what, got, want, 100*tolerance)
	}
}

// flow is one thread on node 0 that sends n messages to node 1.
func flow(bytes, n int32) []Thread {
	return []Thread{{Program: []Segment{{Peer: 1, Bytes: bytes, Count: n}}}}
}

// softnic's own figures (minigda/softnic/pace_test.c): eight 8 B messages behind one doorbell complete 3.30 us and
// 7 / 260 M msg/s after it.
func TestLikeSoftnic(t *testing.T) {
	r := run(t, Config{Nodes: 2, NIC: cx7, Post: Post{Batch: 8}, Threads: flow(8, 8)})
	if want := 3300*ns + 7*3846; r.Completed[0] != want {
		t.Errorf("completed at %d ps, expected %d", r.Completed[0], want)
	}
	// One message of 24.8 kB is on the link for 1 us, 8 B of which the latency has already.
	r = run(t, Config{Nodes: 2, NIC: cx7, Post: Post{Batch: 1}, Threads: flow(24800, 1)})
	if want := 3300*ns + 1*us - 323; r.Completed[0] != want {
		t.Errorf("completed at %d ps, expected %d", r.Completed[0], want)
	}
}

// A deterministic pipeline: each stage's time per message is known, the slowest one gives the rate.
func TestPipeline(t *testing.T) {
	const n = 100000
	for _, c := range []struct {
		name   string
		cfg    Config
		period float64 // s per message
	}{
		{"posting, a + d/B", Config{NIC: cx7, Post: Post{WQE: 190 * ns, Doorbell: 369 * ns, Batch: 16}, Threads: flow(8, n)}, 190e-9 + 369e-9/16},
		{"NIC's message rate", Config{NIC: cx7, Post: Post{Batch: 16}, Threads: flow(8, n)}, 1 / 260e6},
		{"link", Config{NIC: cx7, Post: Post{Batch: 16}, Threads: flow(4096, n)}, 4096 / 24.8e9},
		{"link with headers", Config{NIC: NIC{Bandwidth: 25e9, Header: 48, MTU: 4096}, Post: Post{Batch: 16}, Threads: flow(8192, n)}, (8192 + 2*48) / 25e9},
		{"depth over latency", Config{NIC: cx7, Post: Post{Batch: 1, Depth: 16}, Threads: flow(8, n)}, 3300e-9 / 16},
		{"receiver's message rate", Config{NIC: NIC{MessageRate: 260e6, ReceiveRate: 100e6}, Post: Post{Batch: 16}, Threads: flow(8, n)}, 1 / 100e6},
		{"proxy worker, (post + 16 wr)/16", Config{NIC: cx7, Proxy: &Proxy{Enqueue: 10 * ns, Post: 336 * ns, WR: 48 * ns, Batch: 16, Workers: 1}, Threads: flow(8, n)}, 48e-9 + 336e-9/16},
		{"proxy worker, one at a time", Config{NIC: cx7, Proxy: &Proxy{Enqueue: 10 * ns, Post: 336 * ns, WR: 48 * ns, Batch: 1, Workers: 1}, Threads: flow(8, n)}, 384e-9},
		{"proxy, slow hand-off", Config{NIC: cx7, Proxy: &Proxy{Enqueue: 2270 * ns, Post: 336 * ns, WR: 48 * ns, Batch: 16, Workers: 1}, Threads: flow(8, n)}, 2270e-9},
	} {
		c.cfg.Nodes = 2
		r := run(t, c.cfg)
		if r.Messages != n {
			t.Errorf("%s: %d messages, expected %d", c.name, r.Messages, n)
		}
		near(t, c.name, (r.End()-c.cfg.NIC.Land).Seconds()/n, c.period, 0.001)
	}
}

// A thread with two messages under way at most posts the third when the first is complete, not when it has landed; and
// a WQE is sent when it has been fetched.
func TestDepthAndFetch(t *testing.T) {
	r := run(t, Config{Nodes: 2, NIC: NIC{Land: 1 * us, Done: 5 * us}, Post: Post{WQE: 1100 * ns, Batch: 1, Depth: 2}, Threads: flow(8, 3)})
	if want := 1100*ns + 5*us + 1*us; r.Landed[1] != want {
		t.Errorf("the third message landed at %d ps, expected %d", r.Landed[1], want)
	}
	r = run(t, Config{Nodes: 2, NIC: NIC{Fetch: 200 * ns, Land: 1 * us, Done: 5 * us}, Post: Post{WQE: 1100 * ns, Batch: 1, Depth: 1}, Threads: flow(8, 2)})
	if want := 1100*ns + 200*ns + 5*us + 200*ns + 1*us; r.Landed[1] != want {
		t.Errorf("the second message landed at %d ps, expected %d", r.Landed[1], want)
	}
}

// A worker chains descriptors to one peer alone.
func TestChains(t *testing.T) {
	const n = 1000
	program := func(run int32) []Segment {
		var list []Segment
		for i := int32(0); i < n/run; i++ {
			list = append(list, Segment{Peer: 1 + i%2, Bytes: 8, Count: run})
		}
		return list
	}
	for run, want := range map[int32]float64{1: 384e-9, 2: (336e-9 + 2*48e-9) / 2, 4: (336e-9 + 4*48e-9) / 4} {
		cfg := Config{Nodes: 3, Proxy: &Proxy{Enqueue: 1 * ns, Post: 336 * ns, WR: 48 * ns, Batch: 16, Workers: 1}, Threads: []Thread{{Program: program(run)}}}
		r, err := Run(&cfg)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "time per message", r.End().Seconds()/n, want, 0.02)
	}
}

// An M/D/1 queue waits rho D / 2 (1 - rho) on average.
func TestRandomArrivals(t *testing.T) {
	const n = 1000000
	for _, rho := range []float64{0.3, 0.7, 0.9} {
		threads := flow(8, n)
		threads[0].Poisson = rho * 260e6
		r := run(t, Config{Nodes: 2, NIC: NIC{MessageRate: 260e6}, Post: Post{Batch: 1}, Threads: threads, Seed: 1})
		wait := r.Waited[0].Seconds() / n
		near(t, "mean wait", wait, rho/(2*(1-rho))/260e6, 0.03)
	}
}

// Many senders to one receiver share its link: none is lost, and the end is when it has taken all of it.
func TestIncast(t *testing.T) {
	const senders, n, bytes = 16, 1000, 4096
	cfg := Config{Nodes: senders + 1, NIC: cx7, Post: Post{Batch: 16}}
	for i := range senders {
		cfg.Threads = append(cfg.Threads, Thread{Node: i + 1, Program: []Segment{{Peer: 0, Bytes: bytes, Count: n}}})
	}
	r := run(t, cfg)
	link := Seconds(bytes / 24.8e9)
	if want := cx7.Land + senders*n*link - Seconds(8/24.8e9); r.Landed[0] != want {
		t.Errorf("landed at %d ps, expected %d", r.Landed[0], want)
	}
	if r.Bytes != senders*n*bytes {
		t.Errorf("%d bytes, expected %d", r.Bytes, senders*n*bytes)
	}
}

// A signal lands behind the messages before it, and counts for its peer alone.
func TestSignal(t *testing.T) {
	r := run(t, Config{Nodes: 3, NIC: cx7, Post: Post{Batch: 4}, Threads: []Thread{{Program: []Segment{
		{Peer: 1, Bytes: 4096, Count: 3, Signal: true}, {Peer: 2, Signal: true}, {Peer: 1},
	}}}})
	link := Seconds(4096 / 24.8e9)
	want := []Time{0, cx7.Land + 3*link, cx7.Land + 3*link + Seconds(8/24.8e9)}
	if d := cmp.Diff(want, r.Signaled); d != "" {
		t.Errorf("signaled (-want +got)\n%s", d)
	}
	if r.Messages != 5 {
		t.Errorf("%d messages, expected 5", r.Messages)
	}
}

func TestSame(t *testing.T) {
	cfg := func(seed uint64) Config {
		c := Config{Nodes: 4, NIC: cx7, Post: Post{Batch: 1}, Seed: seed}
		for i := range 16 {
			c.Threads = append(c.Threads, Thread{Node: i % 4, Poisson: 50e6, Program: []Segment{{Peer: int32(i+1) % 4, Bytes: 256, Count: 1000}}})
		}
		return c
	}
	a, b, c := run(t, cfg(1)), run(t, cfg(1)), run(t, cfg(2))
	if d := cmp.Diff(a, b); d != "" {
		t.Errorf("two runs of one seed differ\n%s", d)
	}
	if cmp.Equal(a.Landed, c.Landed) {
		t.Error("another seed gave the same")
	}
}

func TestRefused(t *testing.T) {
	for want, cfg := range map[string]Config{
		"0 nodes, batch 1: at least 1 of each":                {Post: Post{Batch: 1}},
		"thread 0 is on node 2 of 2":                          {Nodes: 2, Post: Post{Batch: 1}, Threads: []Thread{{Node: 2}}},
		"thread 0 sends 1 messages of 8 bytes to node 5 of 2": {Nodes: 2, Post: Post{Batch: 1}, Threads: []Thread{{Program: []Segment{{Peer: 5, Bytes: 8, Count: 1}}}}},
		"depth 1 is less than the batch of 2":                 {Nodes: 2, Post: Post{Batch: 2, Depth: 1}, Threads: flow(8, 1)},
		"more than 10 events at 0 s":                          {Nodes: 2, Post: Post{Batch: 1}, Threads: flow(8, 100), Limit: 10},
	} {
		if _, err := Run(&cfg); err == nil || err.Error() != want {
			t.Errorf("error %v, expected %q", err, want)
		}
	}
}

// BenchmarkAllToAll says how many events one core simulates per second.
func BenchmarkAllToAll(b *testing.B) {
	cfg := Config{Nodes: 256, NIC: cx7, Post: Post{WQE: 190 * ns, Doorbell: 369 * ns, Batch: 16}}
	for i := range 256 * 8 {
		t := Thread{Node: i % 256}
		for p := 1; p < 256; p++ {
			t.Program = append(t.Program, Segment{Peer: int32(i+p) % 256, Bytes: 14336, Count: 1, Signal: true})
		}
		cfg.Threads = append(cfg.Threads, t)
	}
	var events uint64
	for b.Loop() {
		events += run(b, cfg).Events
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
}
