package run

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gic/backends"
	"gic/harness/record"
)

// set is one set of rank processes, as the coordinator sees it. Everything happens in the coordinator's
// goroutine, driven by events; the ranks are kept in step by orders: open, window, one point after another, end.
type set struct {
	cluster *Cluster
	job     string
	opt     *Options
	ranks   []*member
	shared  int // ranks of a process
	events  chan event
	done    chan struct{} // closed when nobody takes events any more
	epoch   int           // of the order being carried out; exchanges of other epochs are void
	gathers map[int][]*gather
	blame   *failure         // why exchanges of this epoch cannot complete
	settle  <-chan time.Time // when exited ranks count as gone although their connection is still open
	stopped bool
	removed bool
}

// member is one rank.
type member struct {
	c      *conn
	stage  string
	exit   *exit
	lost   bool // the connection broke
	opened *opened
	ready  bool
	result *pointResult
	err    *rankError // of open or window
	killed bool
}

type event struct {
	rank int
	c    *conn // connected
	m    *message
	err  error // connection broke
	exit *exit
}

// gone says whether the rank's process has ended and everything that it said has been heard: its exit comes another
// way than its messages and may overtake them.
func (m *member) gone() bool { return m.exit != nil && (m.c == nil || m.lost) }

// settled stops waiting for the connections of exited ranks to end.
func (s *set) settled() {
	s.settle = nil
	for _, m := range s.ranks {
		m.lost = m.lost || m.exit != nil
	}
}

// failure is why a set could not do what it was asked.
type failure struct {
	status record.Status
	stage  string
	reason string
	rank   int // who failed; -1: nobody in particular
	output map[string]any
}

func (f *failure) Error() string { return f.reason }

// reapTimeout bounds the wait for the exit of a killed process: only a process stuck in the kernel takes so long.
const reapTimeout = 10 * time.Second

// settleTimeout bounds the wait for the end of an exited rank's connection. It ends with the process unless the
// process has passed it on.
const settleTimeout = time.Second

func newSet(c *Cluster, n, shared int, opt *Options) *set {
	s := &set{cluster: c, shared: max(1, shared), job: c.names.name(), opt: opt, done: make(chan struct{}),
		events: make(chan event, 8*n), gathers: map[int][]*gather{}}
	for range n {
		s.ranks = append(s.ranks, &member{stage: "start"})
	}
	return s
}

func (s *set) post(e event) {
	select {
	case s.events <- e:
	case <-s.done:
		if e.c != nil {
			e.c.close()
		}
	}
}

// start starts the processes and sees them open their backend.
func (s *set) start(ctx context.Context, order openOrder) *failure {
	s.cluster.hub.expect(s.job, func(a arrival) {
		if a.h.Rank < 0 || a.h.Rank >= len(s.ranks) {
			a.c.close()
			return
		}
		s.post(event{rank: a.h.Rank, c: a.c})
	})
	for i := 0; i < len(s.ranks); i += s.shared {
		last := s.last(i)
		o := startOrder{Job: s.job, Rank: i, More: last - i, Address: s.cluster.hub.address, Token: s.cluster.hub.token,
			Binding: s.cluster.binding}
		err := s.cluster.agents[i].start(o, func(e exit) {
			for r := i; r <= last; r++ {
				e := e
				e.Rank = r
				s.post(event{rank: r, exit: &e})
			}
		})
		if err != nil {
			for _, m := range s.ranks[i:] {
				m.exit = &exit{Rank: i, Status: "not started"}
			}
			return &failure{status: record.Failed, stage: "start", reason: err.Error(), rank: i}
		}
	}
	if f := s.await(ctx, func(m *member) bool { return m.c != nil }); f != nil {
		return f
	}
	order.Epoch = s.epoch
	for i, m := range s.ranks {
		order.LocalRank = s.cluster.localRank(i)
		s.send(m, message{Open: &order})
	}
	return s.await(ctx, func(m *member) bool { return m.opened != nil })
}

// last is the last rank of the process whose first one is given.
func (s *set) last(first int) int { return min(first+s.shared, len(s.ranks)) - 1 }

// process is the first rank of a rank's process: its agent has started it.
func (s *set) process(rank int) int { return rank / s.shared * s.shared }

// window has every rank allocate its window.
func (s *set) window(ctx context.Context, bytes uint64) *failure {
	s.nextEpoch()
	for _, m := range s.ranks {
		m.ready = false
		s.send(m, message{Window: &windowOrder{Bytes: bytes, Epoch: s.epoch}})
	}
	return s.await(ctx, func(m *member) bool { return m.ready })
}

// point measures one point and returns the results by rank.
func (s *set) point(ctx context.Context, o pointOrder) ([]*pointResult, *failure) {
	s.nextEpoch()
	o.Epoch = s.epoch
	for _, m := range s.ranks {
		m.result = nil
		s.send(m, message{Point: &o})
	}
	f := s.await(ctx, func(m *member) bool { return m.result != nil })
	if f != nil {
		return nil, f
	}
	results := make([]*pointResult, len(s.ranks))
	for i, m := range s.ranks {
		results[i] = m.result
	}
	return results, nil
}

func (s *set) nextEpoch() {
	s.epoch++
	s.gathers = map[int][]*gather{}
	s.blame = nil
}

// send drops what a broken connection does not take; the reader reports the break.
func (s *set) send(m *member, msg message) {
	if m.c != nil && m.c.send(msg) != nil {
		m.c.close()
	}
}

// await handles events until every rank has what is asked, and otherwise says why not: a rank died, a rank
// reported an error, the deadline passed, the run was canceled. After a rank's own error the others get the
// grace period to come back too (with an error of the exchange that can no longer complete, or because they
// are stopped), so that the cause is known before anything is killed.
func (s *set) await(ctx context.Context, has func(*member) bool) *failure {
	deadline := time.NewTimer(s.opt.Timeout)
	defer deadline.Stop()
	var grace <-chan time.Time
	for {
		if f := s.dead(); f != nil {
			return f
		}
		if f := s.errored(); f != nil {
			if s.blame == nil {
				s.blame = f
				s.failGathers()
				grace = time.After(s.opt.Grace)
				if f.status != record.Skipped {
					s.orderStop()
				}
			}
			if s.all(func(m *member) bool { return has(m) || m.err != nil }) {
				return s.blame
			}
		} else if s.all(has) {
			return nil
		}
		select {
		case e := <-s.events:
			s.handle(e)
		case <-s.settle:
			s.settled()
		case <-grace:
			return s.blame
		case <-deadline.C:
			return s.late(has)
		case <-ctx.Done():
			return &failure{status: record.Failed, reason: context.Cause(ctx).Error(), rank: -1}
		}
	}
}

func (s *set) all(has func(*member) bool) bool {
	for _, m := range s.ranks {
		if !has(m) {
			return false
		}
	}
	return true
}

func (s *set) handle(e event) {
	m := s.ranks[e.rank]
	switch {
	case e.exit != nil:
		m.exit = e.exit
		if s.settle == nil {
			s.settle = time.After(settleTimeout)
		}
	case e.c != nil && m.c != nil:
		e.c.close() // a rank connects once
	case e.c != nil:
		m.c = e.c
		m.stage = "connect"
		if s.stopped {
			s.send(m, message{Stop: true})
		}
		go s.read(e.rank, e.c)
	case e.err != nil:
		m.lost = true
	case e.m != nil:
		s.message(e.rank, e.m)
	}
}

func (s *set) read(rank int, c *conn) {
	for {
		m, err := c.recv()
		if err != nil {
			s.post(event{rank: rank, err: err})
			return
		}
		s.post(event{rank: rank, m: &m})
	}
}

func (s *set) message(rank int, msg *message) {
	m := s.ranks[rank]
	switch {
	case msg.Stage != "":
		m.stage = msg.Stage
	case msg.Opened != nil:
		m.opened = msg.Opened
	case msg.Ready:
		m.ready = true
	case msg.Err != nil:
		m.err = msg.Err
	case msg.Result != nil:
		m.result = msg.Result
	case msg.Gather != nil:
		s.gather(rank, msg.Gather)
	}
}

// gather serves the exchanges among the ranks: the answer goes out when the last part is in.
func (s *set) gather(rank int, g *gather) {
	if g.Epoch != s.epoch {
		return
	}
	if s.blame != nil || s.stopped {
		why := "the case is being stopped"
		if s.blame != nil {
			why = s.blame.reason
		}
		s.send(s.ranks[rank], message{Gather: &gather{Epoch: g.Epoch, Seq: g.Seq, Err: why}})
		return
	}
	parts := s.gathers[g.Seq]
	if parts == nil {
		parts = make([]*gather, len(s.ranks))
		s.gathers[g.Seq] = parts
	}
	parts[rank] = g
	answer := gather{Epoch: g.Epoch, Seq: g.Seq}
	for r, p := range parts {
		if p == nil {
			return
		}
		if len(p.Data) != len(parts[0].Data) {
			answer.Err = fmt.Sprintf("ranks 0 and %d exchange different lengths: %d and %d bytes", r, len(parts[0].Data), len(p.Data))
		}
		answer.All = append(answer.All, p.Data)
	}
	if answer.Err != "" || len(parts[0].Data) == 0 {
		answer.All = nil
	}
	delete(s.gathers, g.Seq)
	for _, m := range s.ranks {
		s.send(m, message{Gather: &answer})
	}
}

// failGathers ends the exchanges that are waiting: each tells who is missing and why it will not come.
func (s *set) failGathers() {
	why := "the case is being stopped"
	if s.blame != nil {
		why = s.blame.reason
	}
	for _, seq := range slices.Sorted(maps.Keys(s.gathers)) {
		var missing []string
		for r, p := range s.gathers[seq] {
			if p == nil {
				missing = append(missing, fmt.Sprint(r))
			}
		}
		text := fmt.Sprintf("no part of rank %s: %s", strings.Join(missing, ", "), why)
		for r, p := range s.gathers[seq] {
			if p != nil {
				s.send(s.ranks[r], message{Gather: &gather{Epoch: s.epoch, Seq: seq, Err: text}})
			}
		}
	}
	s.gathers = map[int][]*gather{}
}

// dead reports a rank whose process has ended before it came back. A broken connection alone waits for the exit
// that explains it; a process that lives on without one is ended by the deadline.
func (s *set) dead() *failure {
	for i, m := range s.ranks {
		cameBack := m.result != nil || m.err != nil
		if m.gone() && !(s.stopped && (m.exit.OK || cameBack)) {
			return s.death(i)
		}
	}
	return nil
}

func (s *set) death(i int) *failure {
	m := s.ranks[i]
	f := &failure{status: record.Failed, stage: m.stage, rank: i,
		reason: fmt.Sprintf("rank %d ended in %s: %s", i, m.stage, m.exit.Status)}
	if first := s.process(i); s.last(first) > first { // any of them may be the cause
		var at []string
		for r := first; r <= s.last(first); r++ {
			at = append(at, fmt.Sprintf("rank %d in %s", r, s.ranks[r].stage))
		}
		f.reason = fmt.Sprintf("a process ended, %s: %s", strings.Join(at, ", "), m.exit.Status)
	}
	if line := lastLine(m.exit.Output); line != "" {
		f.reason += ": " + line
	}
	return f
}

// errored reports the first rank, in time, that came back with an error; blame holds it from then on. A rank
// that was only told of another's failure is no cause.
func (s *set) errored() *failure {
	if s.blame != nil {
		return s.blame
	}
	for i, m := range s.ranks {
		e := m.err
		if e == nil && m.result != nil {
			e = m.result.Err
		}
		if e == nil {
			continue
		}
		f := &failure{status: record.Failed, stage: e.Stage, rank: i, reason: fmt.Sprintf("rank %d: %s", i, e.Text)}
		switch e.Kind {
		case kindNotSupported:
			f.status, f.reason = record.Skipped, notSupportedReason(e.Text)
		case kindTimeout:
			f.status = record.Timeout
		}
		return f
	}
	return nil
}

// notSupportedReason leaves out the sentinel's own words: the row already says that it is skipped.
func notSupportedReason(text string) string {
	text = strings.TrimPrefix(text, backends.ErrNotSupported.Error()+": ")
	return strings.TrimSuffix(text, ": "+backends.ErrNotSupported.Error())
}

// late says who has not come back in time. A rank that waits in an exchange for another's part is not to blame.
func (s *set) late(has func(*member) bool) *failure {
	f := &failure{status: record.Timeout, rank: -1}
	blamed := false
	var missing []string
	for i, m := range s.ranks {
		if has(m) {
			continue
		}
		text := fmt.Sprintf("rank %d in %s", i, m.stage)
		waits := s.waits(i)
		if waits {
			text += " waiting for others"
		}
		if f.rank < 0 || !blamed && !waits {
			f.rank, f.stage, blamed = i, m.stage, !waits
		}
		missing = append(missing, text)
	}
	f.reason = fmt.Sprintf("no answer within %v: %s", s.opt.Timeout, strings.Join(missing, ", "))
	return f
}

// waits says whether a rank has given its part to an exchange that is not complete.
func (s *set) waits(rank int) bool {
	for _, parts := range s.gathers {
		if parts[rank] != nil {
			return true
		}
	}
	return false
}

func (s *set) orderStop() {
	if s.stopped {
		return
	}
	s.stopped = true
	s.failGathers()
	for _, m := range s.ranks {
		s.send(m, message{Stop: true})
	}
}

// end lets the ranks close their sessions and leave. The failure it returns is of the end alone: everything
// measured before stands.
func (s *set) end(ctx context.Context) *failure {
	s.nextEpoch()
	for _, m := range s.ranks {
		s.send(m, message{End: &endOrder{Epoch: s.epoch}})
	}
	f := s.awaitExits(ctx, s.opt.Timeout)
	if f == nil {
		for i, m := range s.ranks {
			if !m.exit.OK {
				f = s.death(i)
				break
			}
		}
	}
	s.remove(f)
	return f
}

func (s *set) awaitExits(ctx context.Context, d time.Duration) *failure {
	t := time.NewTimer(d)
	defer t.Stop()
	for !s.all((*member).gone) {
		select {
		case e := <-s.events:
			s.handle(e)
		case <-s.settle:
			s.settled()
		case <-t.C:
			return s.late((*member).gone)
		case <-ctx.Done():
			return s.late((*member).gone)
		}
	}
	return nil
}

// remove ends what still runs (stop word, grace, kill), cleans up, and completes the failure f with how the ranks
// ended.
func (s *set) remove(f *failure) {
	if s.removed {
		return
	}
	s.removed = true
	background := context.Background()
	s.orderStop()
	if !s.all((*member).gone) && s.awaitExits(background, s.opt.Grace) != nil {
		for i, m := range s.ranks {
			if m.exit == nil {
				m.killed = true
				s.cluster.agents[s.process(i)].kill(s.job)
			}
		}
		s.awaitExits(background, reapTimeout)
	}
	s.cluster.hub.forget(s.job)
	close(s.done)
	for i, m := range s.ranks {
		if m.c != nil {
			m.c.close()
		}
		s.cluster.agents[i].clean(s.job)
	}
	for len(s.events) > 0 {
		if e := <-s.events; e.c != nil {
			e.c.close()
		}
	}
	if f != nil {
		s.explain(f)
	}
}

// explain adds to a failure how its ranks ended, and what they printed.
func (s *set) explain(f *failure) {
	f.output = map[string]any{}
	var killed []string
	for i, m := range s.ranks {
		switch {
		case m.exit == nil:
			killed = append(killed, fmt.Sprintf("rank %d does not die", i))
		case m.killed:
			killed = append(killed, fmt.Sprintf("rank %d killed", i))
		}
		if m.exit == nil || i != s.process(i) {
			continue // nothing, or what its process's first rank says
		}
		if m.exit.Output != "" {
			f.output[fmt.Sprintf("output.rank%d", i)] = m.exit.Output
		}
		f.output[fmt.Sprintf("exit.rank%d", i)] = m.exit.Status
	}
	switch {
	case len(killed) > 0:
		f.reason += "; " + strings.Join(killed, ", ") + fmt.Sprintf(" %v after the stop word", s.opt.Grace)
	case f.status == record.Timeout:
		f.reason += "; ended at the stop word"
	}
}

// lastLine is the line of a process's output that most likely names the trouble.
func lastLine(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	const limit = 300
	for i := len(lines) - 1; i >= 0; i-- {
		if l := strings.TrimSpace(lines[i]); l != "" {
			if len(l) > limit {
				l = l[:limit]
			}
			return strings.ToValidUTF8(l, "?")
		}
	}
	return ""
}

// allSkipped says whether every rank came back from the point saying that it cannot run: then the set is sound
// and can go on.
func (s *set) allSkipped() bool {
	return !s.stopped && s.all(func(m *member) bool {
		return m.exit == nil && m.result != nil && m.result.Err != nil && m.result.Err.Kind == kindNotSupported
	})
}
