// Package scale predicts the dispatch and combine of a mixture of experts on more ranks than there are machines: the
// messages of workloads/moe, from the same routing, through a simulation (package sim) of one NIC per rank with a
// platform's constants.
//
// What a rank does with its data is not in it: copies of rows that stay, the experts, the reduction at the end of
// combine.
package scale

import (
	"fmt"
	"math"

	"gic/harness/attribution/oracle"
	"gic/harness/attribution/oracle/sim"
	"gic/workloads/routing"
)

// MoE is a question: the axes of the workload moe, and who posts how.
type MoE struct {
	Routing  routing.Config
	Hidden   int  // elements of a row; 2 bytes each
	ByRank   bool // layout=rank
	Threads  int  // device threads of a rank
	Backend  string
	Settings oracle.Conditions // batch, order, handoff, workers, cpu, qps (per peer), ...
}

// Answer is the prediction, or the reason why there is none.
type Answer struct {
	Platform string        `json:"platform"`
	Ranks    int           `json:"ranks"`
	Dispatch float64       `json:"dispatch"` // s, of the slowest rank
	Combine  float64       `json:"combine"`  // s, without the reduction
	Active   int           `json:"active"`   // connections that each NIC cycles through
	Slowdown float64       `json:"slowdown"` // of the time per message, by them
	Messages uint64        `json:"messages"` // of dispatch, all ranks, signals included
	Bytes    uint64        `json:"bytes"`    // payload of dispatch
	Events   uint64        `json:"events"`   // simulated, both halves
	Hash     string        `json:"routing_hash"`
	Used     []*oracle.Use `json:"constants,omitempty"`
	None     string        `json:"no_prediction,omitempty"`
	// Bound: None, but Dispatch and Combine hold as what it takes at least, without what active connections cost.
	Bound bool `json:"bound,omitempty"`
}

// maxSegments bounds what is simulated: channels from every rank to every rank.
const maxSegments = 1 << 27

// Predict simulates one iteration of both halves.
func Predict(p *oracle.Platform, m *MoE) (*Answer, error) {
	r := &m.Routing
	if r.Ranks < 2 {
		return nil, fmt.Errorf("ranks=%d is not allowed: at least 2", r.Ranks)
	}
	if r.Experts%r.Ranks != 0 {
		return nil, fmt.Errorf("experts=%d is not allowed: a multiple of ranks=%d", r.Experts, r.Ranks)
	}
	a := &Answer{Platform: p.Name, Ranks: r.Ranks, Slowdown: 1}
	cfg := sim.Config{Nodes: r.Ranks, Seed: r.Seed}
	if !m.constants(p, a, &cfg) {
		return a, nil
	}
	channels := r.Experts / r.Ranks
	if m.ByRank {
		channels = 1
	}
	if n := r.Ranks * r.Ranks * channels; n > maxSegments {
		return nil, fmt.Errorf("ranks=%d with %d channels each: %d channels in all, at most %d; layout=rank has one per pair", r.Ranks, channels, n, maxSegments)
	}
	table, err := routing.Generate(*r)
	if err != nil {
		return nil, err
	}
	a.Hash = table.Hash()
	rows := count(table, channels, m.ByRank)
	for i, half := range []*float64{&a.Dispatch, &a.Combine} {
		cfg.Threads = rows.threads(m.Threads, int32(2*m.Hidden), i == 1)
		res, err := sim.Run(&cfg)
		if err != nil {
			return nil, err
		}
		*half = res.LastSignal().Seconds()
		a.Events += res.Events
		if i == 0 {
			a.Messages, a.Bytes = res.Messages, res.Bytes
		}
	}
	return a, nil
}

// constants fills in the simulation's model. false: there is no prediction, not even a bound.
func (m *MoE) constants(p *oracle.Platform, a *Answer, cfg *sim.Config) bool {
	// Constants are of 8-byte messages by pointer; what a row takes longer is its time on the link.
	q := m.Settings.With("backend", m.Backend, "size", "8", "inline", "off").WithDefaults()
	names := []string{"cqe", "arrive", "fetch", "nic_rate", "link", "header", "mtu"}
	if m.Backend == "miniproxy" {
		names = append(names, "issue", "post", "wr")
		if p.Has(q, "ring") {
			names = append(names, "ring")
		}
	} else {
		names = append(names, "wqe", "doorbell_wqe")
	}
	v, used, reason := p.Lookup(q, names...)
	if a.Used, a.None = used, reason; reason != "" {
		return false
	}
	latency := v["cqe"] + v["fetch"]
	cfg.NIC = sim.NIC{
		MessageRate: v["nic_rate"], ReceiveRate: v["nic_rate"], Bandwidth: v["link"], Header: v["header"], MTU: int(v["mtu"]),
		Land: sim.Seconds(v["arrive"]*v["cqe"] + v["fetch"]), Done: sim.Seconds(latency),
	}
	batch, err := q.Number("batch")
	if err != nil || batch < 1 || batch != math.Trunc(batch) {
		a.None = fmt.Sprintf("batch=%s is not a number of WQEs", q["batch"])
		return false
	}
	cfg.Post = sim.Post{WQE: sim.Seconds(v["wqe"]), Doorbell: sim.Seconds(v["doorbell_wqe"]), Batch: int(batch)}
	if m.Backend == "miniproxy" {
		workers, err := q.Number("workers")
		if err != nil || workers < 1 || workers != math.Trunc(workers) {
			a.None = fmt.Sprintf("workers=%s is not a number of threads", q["workers"])
			return false
		}
		if ring, ok := v["ring"]; ok {
			rings, err := q.Number("rings")
			if err != nil {
				a.None = err.Error()
				return false
			}
			v["post"] += ring * rings / workers
		}
		if q["ring_mode"] == "shared" {
			a.None = "ring_mode=shared: its constants are of rings with one producer each"
			return false
		}
		cfg.Proxy = &sim.Proxy{Enqueue: sim.Seconds(v["issue"]), Post: sim.Seconds(v["post"]), WR: sim.Seconds(v["wr"]), Batch: int(batch), Workers: int(workers)}
	}
	return m.connections(p, a, cfg, q)
}

// connections is what the number of active connections does to the message rate.
func (m *MoE) connections(p *oracle.Platform, a *Answer, cfg *sim.Config, q oracle.Conditions) bool {
	if q["qps"] == "" {
		q = q.With("qps", "1") // of a proxy: a worker has one to each peer
	}
	qps, err := q.Number("qps")
	if err != nil || qps < 1 || qps != math.Trunc(qps) {
		a.None = fmt.Sprintf("qps=%s is not a number of queues per peer", q["qps"])
		return false
	}
	a.Active = (m.Routing.Ranks - 1) * int(qps)
	q = q.With("pattern", "alltoall", "active", fmt.Sprint(a.Active))
	if p.Has(q, "duplex_rate") {
		v, used, reason := p.Lookup(q, "duplex_rate")
		if reason == "" {
			cfg.NIC.MessageRate = min(cfg.NIC.MessageRate, v["duplex_rate"])
			a.Used = append(a.Used, used...)
		}
	}
	kept := p.Predict(oracle.Query{Quantity: "rate_kept", Conditions: q})
	if !kept.OK() {
		a.None, a.Bound = kept.None, true
		return true
	}
	a.Slowdown = 1 / kept.Value
	a.Used = append(a.Used, kept.Used...)
	cfg.Slow = make([]float64, cfg.Nodes)
	for i := range cfg.Slow {
		cfg.Slow[i] = a.Slowdown
	}
	return true
}

// rows counts the rows from each owner to each channel of each expert rank.
type rows struct {
	ranks, channels int
	n               []int32 // (owner * ranks + expert rank) * channels + channel
}

func count(t *routing.Table, channels int, byRank bool) *rows {
	r := &rows{t.Ranks, channels, make([]int32, t.Ranks*t.Ranks*channels)}
	local := t.Experts / t.Ranks
	seen := make([]int, t.Ranks) // the last token that has gone to a rank, plus 1
	for owner := range t.Ranks {
		for token := range t.Tokens {
			experts, _ := t.At(owner, token)
			for _, e := range experts {
				if e == routing.Masked {
					continue
				}
				rank, channel := int(e)/local, int(e)%local
				if byRank {
					if seen[rank] == owner*t.Tokens+token+1 {
						continue
					}
					seen[rank], channel = owner*t.Tokens+token+1, 0
				}
				r.n[(owner*t.Ranks+rank)*channels+channel]++
			}
		}
	}
	return r
}

// threads are the device threads of all ranks: as in the workload, channels go round the agents, beginning with the
// right neighbour, and each ends with a signal, also when it is empty.
func (r *rows) threads(perRank int, bytes int32, combine bool) []sim.Thread {
	var list []sim.Thread
	for rank := range r.ranks {
		for agent := range perRank {
			at := agent // of the channels in the order of peers
			list = append(list, sim.Thread{Node: rank, Next: func() (sim.Segment, bool) {
				if at >= (r.ranks-1)*r.channels { // the last peer is the rank itself
					return sim.Segment{}, false
				}
				peer, channel := (rank+1+at/r.channels)%r.ranks, at%r.channels
				at += perRank
				from, to := rank, peer
				if combine {
					from, to = peer, rank
				}
				return sim.Segment{Peer: int32(peer), Bytes: bytes, Count: r.n[(from*r.ranks+to)*r.channels+channel], Signal: true}, true
			}})
		}
	}
	return list
}
