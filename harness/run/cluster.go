package run

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"gic/harness/record"
)

// Cluster is the agents of a run, one per rank, and the listener at which their rank processes meet. It serves
// one Run at a time.
type Cluster struct {
	kind    string
	hub     *hub
	agents  []agent
	hosts   []record.Machine
	names   *jobNames
	binding string
	closed  sync.Once
}

// Local is a cluster of n ranks on this machine.
func Local(n int) (*Cluster, error) {
	if n < 1 {
		return nil, fmt.Errorf("%w: %d ranks: at least 1 is needed", ErrUsage, n)
	}
	names, err := newJobNames()
	if err != nil {
		return nil, err
	}
	h, err := newHub("127.0.0.1:0", newToken(), nil)
	if err != nil {
		names.close()
		return nil, err
	}
	c := &Cluster{kind: "local", hub: h, names: names}
	id := hostID()
	for range n {
		c.agents = append(c.agents, newLocalAgent(id))
	}
	return c, nil
}

// Size is the number of ranks.
func (c *Cluster) Size() int { return len(c.agents) }

// Kind is local, mpirun, srun or torchrun: record.Header.Launch.
func (c *Cluster) Kind() string { return c.kind }

// Hosts are the machines of the hosts other than this one, as far as their agents described them.
func (c *Cluster) Hosts() []record.Machine { return c.hosts }

// Close ends the agents.
func (c *Cluster) Close() error {
	c.closed.Do(func() {
		for _, a := range c.agents {
			a.close()
		}
		c.hub.close()
		c.names.close()
	})
	return nil
}

// spansHosts says whether the first n ranks are on more than one host.
func (c *Cluster) spansHosts(n int) bool {
	for _, a := range c.agents[:min(n, len(c.agents))] {
		if a.host() != c.agents[0].host() {
			return true
		}
	}
	return false
}

// localRank is the place of a rank among the ranks of its host.
func (c *Cluster) localRank(rank int) int {
	n := 0
	for _, a := range c.agents[:rank] {
		if a.host() == c.agents[rank].host() {
			n++
		}
	}
	return n
}

// hostID tells machines apart that cannot share memory: the boot for machines, the name for containers on one.
func hostID() string {
	name, _ := os.Hostname()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return name + " " + strings.TrimSpace(string(boot))
}

// remoteAgent is an agent in another process, over its connection.
type remoteAgent struct {
	c    *conn
	rank int
	id   string

	mu      sync.Mutex
	lost    string
	waiting map[string]func(exit) // by job
	gone    chan struct{}         // closed with the connection
}

var _ agent = (*remoteAgent)(nil)

func newRemoteAgent(a arrival) *remoteAgent {
	r := &remoteAgent{c: a.c, rank: a.h.Rank, id: a.h.Host, waiting: map[string]func(exit){}, gone: make(chan struct{})}
	go r.read()
	return r
}

// read hands out exits; when the connection breaks, every process of the agent counts as ended with it.
func (r *remoteAgent) read() {
	defer close(r.gone)
	for {
		m, err := r.c.recv()
		if err != nil {
			r.mu.Lock()
			r.lost = fmt.Sprintf("agent of rank %d lost: %v", r.rank, err)
			waiting := r.waiting
			r.waiting = map[string]func(exit){}
			r.mu.Unlock()
			for job, f := range waiting {
				f(exit{Job: job, Rank: r.rank, Status: r.lost})
			}
			return
		}
		if m.Exit == nil {
			continue
		}
		r.mu.Lock()
		f := r.waiting[m.Exit.Job]
		delete(r.waiting, m.Exit.Job)
		r.mu.Unlock()
		if f != nil {
			f(*m.Exit)
		}
	}
}

func (r *remoteAgent) start(o startOrder, onExit func(exit)) error {
	r.mu.Lock()
	lost := r.lost
	if lost == "" {
		r.waiting[o.Job] = onExit
	}
	r.mu.Unlock()
	if lost != "" {
		return fmt.Errorf("start rank %d: %s", o.Rank, lost)
	}
	o.Token = "" // the agent has it
	// A failed send breaks the connection, which read reports.
	if err := r.c.send(message{Start: &o}); err != nil {
		r.c.close()
	}
	return nil
}

func (r *remoteAgent) host() string     { return r.id }
func (r *remoteAgent) kill(job string)  { _ = r.c.send(message{Kill: job}) }
func (r *remoteAgent) clean(job string) { _ = r.c.send(message{Clean: job}) }

// close lets the agent hang up, so that it has read the message; one that does not is hung up on.
func (r *remoteAgent) close() {
	_ = r.c.send(message{Finish: true})
	select {
	case <-r.gone:
	case <-time.After(handshakeTimeout):
	}
	r.c.close()
}

// otherHosts are the machines that the agents of other hosts described, one per host.
func otherHosts(agents []hello, own string) []record.Machine {
	var out []record.Machine
	seen := map[string]bool{own: true}
	for _, h := range agents {
		if !h.Agent || seen[h.Host] {
			continue
		}
		seen[h.Host] = true
		m := record.Machine{Hostname: h.Hostname}
		if len(h.Machine) > 0 {
			if err := json.Unmarshal(h.Machine, &m); err != nil {
				m.Absent = append(m.Absent, "machine: "+err.Error())
			}
		}
		out = append(out, m)
	}
	return out
}
