// Package sim is a discrete-event simulation of NICs, their queues and those who post to them, in virtual time: what
// the oracle uses beyond one machine. The NIC is the one of softnic's profiles (minigda/softnic/pace.c): one
// message-rate server and one link, first come first served, a latency until the data lands and one until the
// completion is visible. Added to that are the receiving side's link and message rate, so that an incast is one, and
// a factor on the message rate for NICs that cycle through many connections.
//
// Everything is an integer number of picoseconds and every tie has an order, so that a simulation is a function of
// its input and seed alone.
package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Time is picoseconds.
type Time int64

// Seconds converts a time from seconds, to the nearest picosecond.
func Seconds(s float64) Time { return Time(math.Round(s * 1e12)) }

// Seconds of a time.
func (t Time) Seconds() float64 { return float64(t) / 1e12 }

// NIC is the model of every NIC.
type NIC struct {
	MessageRate float64 // messages sent per second at most; 0 = unlimited
	ReceiveRate float64 // messages received per second at most; 0 = unlimited
	Bandwidth   float64 // bytes per second in each direction; 0 = unlimited
	Header      float64 // bytes per packet on the link
	MTU         int     // payload bytes of a packet; 0 = a message is one packet
	Fetch       Time    // doorbell to WQE, per doorbell
	Land        Time    // WQE to the data at the peer, for 8 bytes on an idle link
	Done        Time    // WQE to the completion, likewise
}

// Post is what posting costs a device thread: WQE per message and Doorbell per at most Batch messages to one peer.
type Post struct {
	WQE, Doorbell Time
	Batch         int
	Depth         int // messages of one thread under way at most; 0 = unlimited
}

// Proxy posts for the device threads: a thread hands a descriptor over in Enqueue, one of Workers threads takes at
// most Batch descriptors to one peer at once, which takes it Post + WR each.
type Proxy struct {
	Enqueue, Post, WR Time
	Batch, Workers    int
}

// Segment is what a thread sends to one peer in a row: Count messages of Bytes, then a signal of 8 bytes if Signal.
type Segment struct {
	Peer   int32
	Bytes  int32
	Count  int32
	Signal bool
}

// Thread is a device thread of a node and its program.
type Thread struct {
	Node    int
	Program []Segment
	// Next, if not nil, gives the program piece by piece instead: a large one need not exist at once.
	Next func() (Segment, bool)
	// Poisson > 0: messages come at random with this rate, whatever posting costs (an open queue).
	Poisson float64
}

// Config is a simulation.
type Config struct {
	Nodes   int
	NIC     NIC
	Slow    []float64 // factor on the time per message by node; nil = 1
	Post    Post
	Proxy   *Proxy // nil: the threads post themselves
	Threads []Thread
	Seed    uint64
	Limit   uint64 // events at most; 0 = unlimited
}

// Result is what came out.
type Result struct {
	Events   uint64 // doorbells, hand-offs, workers' turns and arrivals
	Messages uint64
	Bytes    uint64 // payload
	// Signaled is per node when the last signal for it had landed, Landed when the last message had, Completed when
	// the last completion of its own messages was visible.
	Signaled, Landed, Completed []Time
	Waited                      []Time // per node: sum over its messages of the wait for the message-rate server
	Sent                        []uint64
}

// End is the time of the last landing.
func (r *Result) End() Time { return last(r.Landed) }

// LastSignal is when the last node had its last signal.
func (r *Result) LastSignal() Time { return last(r.Signaled) }

func last(ts []Time) Time {
	var end Time
	for _, t := range ts {
		end = max(end, t)
	}
	return end
}

type message struct {
	at     Time // arrival at the peer's link
	thread int32
	peer   int32
	bytes  int32
	signal bool
}

// node is a NIC.
type node struct {
	perMessage         Time
	rateFree, linkFree Time
	inRate, inLink     Time
	flight             fifo[message] // in the order of arrival: nothing overtakes on the way out
}

// thread is a Thread at work.
type thread struct {
	node    int32
	program []Segment // what comes behind the current one
	more    func() (Segment, bool)
	current Segment
	done    int32 // messages of the current segment already posted
	ready   int32 // messages behind the next doorbell
	posted  uint64
	// completions, in order: their number and the times of the last Depth ones
	completed uint64
	latest    Time
	times     []Time
	builtAt   Time // when the blocked batch was built
	blocked   bool
	poisson   *rand.Rand
	rate      float64
}

type worker struct {
	queue fifo[message]
	batch []message
	busy  bool
}

type simulation struct {
	cfg                           *Config
	heap                          heap
	nodes                         []node
	threads                       []thread
	workers                       []worker
	firstNode, firstWorker        int32 // sources: threads, then nodes, then workers
	perMessage, perReceived, word Time  // word: 8 bytes on the link
	usual                         int32
	usualOnLink                   Time
	res                           *Result
	err                           error // of a program
}

// Run simulates.
func Run(cfg *Config) (*Result, error) {
	s, err := start(cfg)
	if err != nil {
		return nil, err
	}
	for {
		at, source, ok := s.heap.top()
		if !ok || s.err != nil {
			return s.res, s.err
		}
		if s.res.Events++; cfg.Limit > 0 && s.res.Events > cfg.Limit {
			return nil, fmt.Errorf("more than %d events at %.6g s", cfg.Limit, at.Seconds())
		}
		switch {
		case source >= s.firstWorker:
			s.turn(source, at)
		case source >= s.firstNode:
			s.arrive(source, at)
		case cfg.Proxy != nil:
			s.handOff(source, at)
		default:
			s.doorbell(source, at)
		}
	}
}

func start(cfg *Config) (*simulation, error) {
	if cfg.Nodes < 1 || cfg.Proxy == nil && cfg.Post.Batch < 1 || cfg.Proxy != nil && (cfg.Proxy.Batch < 1 || cfg.Proxy.Workers < 1) {
		return nil, fmt.Errorf("%d nodes, batch %d: at least 1 of each", cfg.Nodes, cfg.Post.Batch)
	}
	n := cfg.Nodes
	s := &simulation{cfg: cfg, nodes: make([]node, n), threads: make([]thread, len(cfg.Threads)), res: &Result{
		Signaled: make([]Time, n), Landed: make([]Time, n), Completed: make([]Time, n), Waited: make([]Time, n), Sent: make([]uint64, n),
	}}
	s.perMessage, s.perReceived = period(cfg.NIC.MessageRate), period(cfg.NIC.ReceiveRate)
	s.word, s.usual = s.linkTime(8), -1
	s.firstNode = int32(len(cfg.Threads))
	s.firstWorker = s.firstNode + int32(n)
	for i := range s.nodes {
		s.nodes[i].perMessage = s.perMessage
		if cfg.Slow != nil {
			s.nodes[i].perMessage = Time(math.Round(float64(s.perMessage) * cfg.Slow[i]))
		}
	}
	if cfg.Proxy != nil {
		s.workers = make([]worker, n*cfg.Proxy.Workers)
	}
	s.heap.init(int(s.firstWorker) + len(s.workers))
	for i := range cfg.Threads {
		if err := s.begin(int32(i), &cfg.Threads[i]); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func period(rate float64) Time {
	if rate <= 0 {
		return 0
	}
	return Time(math.Round(1e12 / rate))
}

func (s *simulation) begin(id int32, of *Thread) error {
	if of.Node < 0 || of.Node >= s.cfg.Nodes {
		return fmt.Errorf("thread %d is on node %d of %d", id, of.Node, s.cfg.Nodes)
	}
	t := &s.threads[id]
	t.node, t.program, t.more = int32(of.Node), of.Program, of.Next
	if of.Poisson > 0 {
		t.rate, t.poisson = of.Poisson, rand.New(rand.NewPCG(s.cfg.Seed, uint64(id)))
	}
	if depth := s.cfg.Post.Depth; depth > 0 {
		if depth < s.cfg.Post.Batch {
			return fmt.Errorf("depth %d is less than the batch of %d", depth, s.cfg.Post.Batch)
		}
		t.times = make([]Time, depth)
	}
	s.next(id, t, 0)
	return s.err
}

// advance makes the next segment that has messages the current one; false at the end of the program.
func (s *simulation) advance(id int32, t *thread) bool {
	for t.left() == 0 {
		switch {
		case t.more != nil:
			seg, ok := t.more()
			if !ok {
				return false
			}
			t.current = seg
		case len(t.program) > 0:
			t.current, t.program = t.program[0], t.program[1:]
		default:
			return false
		}
		t.done = 0
		if seg := &t.current; seg.Peer < 0 || int(seg.Peer) >= s.cfg.Nodes || seg.Count < 0 || seg.Bytes < 0 {
			s.err = fmt.Errorf("thread %d sends %d messages of %d bytes to node %d of %d", id, seg.Count, seg.Bytes, seg.Peer, s.cfg.Nodes)
			return false
		}
	}
	return true
}

// onLink is how long a message occupies a link. Most messages are signals or of one size, so that those two are kept.
func (s *simulation) onLink(bytes int32) Time {
	switch bytes {
	case 8:
		return s.word
	case s.usual:
		return s.usualOnLink
	}
	s.usual, s.usualOnLink = bytes, s.linkTime(bytes)
	return s.usualOnLink
}

func (s *simulation) linkTime(bytes int32) Time {
	nic := &s.cfg.NIC
	if nic.Bandwidth <= 0 {
		return 0
	}
	packets := int32(1)
	if nic.MTU > 0 && bytes > int32(nic.MTU) {
		packets = (bytes + int32(nic.MTU) - 1) / int32(nic.MTU)
	}
	return Time(math.Round((float64(bytes) + nic.Header*float64(packets)) * 1e12 / nic.Bandwidth))
}

// next plans a thread's next doorbell (or hand-off) from `now`, when it begins to build it.
func (s *simulation) next(id int32, t *thread, now Time) {
	if !s.advance(id, t) {
		return
	}
	switch {
	case t.poisson != nil:
		t.ready = 1
		s.heap.push(now+Seconds(t.poisson.ExpFloat64()/t.rate), id)
		return
	case s.cfg.Proxy != nil:
		t.ready = 1
		s.heap.push(now+s.cfg.Proxy.Enqueue, id)
		return
	}
	p := &s.cfg.Post
	t.ready = min(int32(p.Batch), t.left())
	at := now + Time(t.ready)*p.WQE + p.Doorbell
	if p.Depth > 0 {
		if need := t.posted + uint64(t.ready); need > uint64(p.Depth) {
			if need -= uint64(p.Depth); need > t.completed {
				t.blocked, t.builtAt = true, at
				return
			}
			at = max(at, t.times[(need-1)%uint64(p.Depth)])
		}
	}
	s.heap.push(at, id)
}

// left are the messages of the current segment that are not posted.
func (t *thread) left() int32 {
	n := t.current.Count - t.done
	if t.current.Signal {
		n++
	}
	return n
}

// take is the next message of a thread's program.
func (t *thread) take(id int32) message {
	seg := &t.current
	m := message{thread: id, peer: seg.Peer, bytes: seg.Bytes}
	if t.done == seg.Count {
		m.bytes, m.signal = 8, true
	}
	t.done++
	t.posted++
	return m
}

func (s *simulation) doorbell(id int32, at Time) {
	s.heap.pop()
	t := &s.threads[id]
	for range t.ready {
		s.send(t.node, t.take(id), at+s.cfg.NIC.Fetch)
	}
	s.next(id, t, at)
}

// handOff gives a descriptor to the thread's worker.
func (s *simulation) handOff(id int32, at Time) {
	s.heap.pop()
	t := &s.threads[id]
	w := int(t.node)*s.cfg.Proxy.Workers + int(id)%s.cfg.Proxy.Workers
	s.workers[w].queue.push(t.take(id))
	if !s.workers[w].busy {
		s.serve(w, at)
	}
	s.next(id, t, at)
}

// serve lets a worker take what is there for one peer.
func (s *simulation) serve(w int, now Time) {
	x, p := &s.workers[w], s.cfg.Proxy
	x.batch = append(x.batch[:0], *x.queue.front())
	x.queue.drop()
	for len(x.batch) < p.Batch && x.queue.len() > 0 && x.queue.front().peer == x.batch[0].peer {
		x.batch = append(x.batch, *x.queue.front())
		x.queue.drop()
	}
	x.busy = true
	s.heap.push(now+p.Post+Time(len(x.batch))*p.WR, s.firstWorker+int32(w))
}

// turn rings a worker's doorbell.
func (s *simulation) turn(source int32, at Time) {
	s.heap.pop()
	w := int(source - s.firstWorker)
	x := &s.workers[w]
	for _, m := range x.batch {
		s.send(int32(w/s.cfg.Proxy.Workers), m, at+s.cfg.NIC.Fetch)
	}
	if x.busy = x.queue.len() > 0; x.busy {
		s.serve(w, at)
	}
}

// send passes a message through the sending NIC; f is when its WQE is there.
func (s *simulation) send(from int32, m message, f Time) {
	n := &s.nodes[from]
	start := max(f, n.rateFree)
	n.rateFree = start + n.perMessage
	sent := max(start, n.linkFree)
	n.linkFree = sent + s.onLink(m.bytes)
	m.at = sent + s.cfg.NIC.Land
	if n.flight.push(m); n.flight.len() == 1 {
		s.heap.push(m.at, s.firstNode+from)
	}
	s.res.Waited[from] += start - f
	s.res.Sent[from]++
}

// arrive takes the first message under way from a node through the receiving NIC.
func (s *simulation) arrive(source int32, at Time) {
	from := &s.nodes[source-s.firstNode]
	m := *from.flight.front()
	if from.flight.drop(); from.flight.len() > 0 {
		s.heap.replace(from.flight.front().at)
	} else {
		s.heap.pop()
	}
	to := &s.nodes[m.peer]
	start := max(at, to.inRate, to.inLink)
	onLink := s.onLink(m.bytes)
	to.inRate, to.inLink = start+s.perReceived, start+onLink
	landed := start + max(0, onLink-s.word)
	r := s.res
	r.Messages++
	r.Bytes += uint64(m.bytes)
	r.Landed[m.peer] = max(r.Landed[m.peer], landed)
	if m.signal {
		r.Signaled[m.peer] = max(r.Signaled[m.peer], landed)
	}
	s.complete(m.thread, landed+s.cfg.NIC.Done-s.cfg.NIC.Land)
}

// complete tells a thread that one more of its messages is done, and lets it go on if it waited for that.
func (s *simulation) complete(id int32, done Time) {
	t := &s.threads[id]
	t.latest = max(t.latest, done) // completions are seen in order
	s.res.Completed[t.node] = max(s.res.Completed[t.node], done)
	if t.times == nil {
		return
	}
	depth := uint64(len(t.times))
	t.times[t.completed%depth] = t.latest
	t.completed++
	if t.blocked && t.completed >= t.posted+uint64(t.ready)-depth {
		t.blocked = false
		s.heap.push(max(t.builtAt, t.latest), id)
	}
}
