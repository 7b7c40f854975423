package scale

import (
	"fmt"
	"maps"
	"strconv"

	"gic/harness/attribution/oracle"
	"gic/harness/record"
	"gic/workloads"
	"gic/workloads/moe"
	"gic/workloads/routing"
)

// FromAxes makes the question of the axes of the workload moe, every axis present, as the workload itself reads them.
// A model with too few experts for the ranks gets more if more is set: the next multiple of the ranks.
func FromAxes(axes map[string]string, ranks int, seed uint64, more bool) (*MoE, error) {
	p := workloads.Point(axes)
	m := &MoE{Routing: routing.Config{Ranks: ranks, Spec: axes["routing"], Seed: seed}}
	known := axes["model"] == "custom"
	for _, shape := range moe.Models() {
		if shape.Name == axes["model"] {
			m.Hidden, m.Routing.Experts, m.Routing.TopK, known = shape.Hidden, shape.Experts, shape.TopK, true
		}
	}
	if !known {
		return nil, fmt.Errorf("model=%s is none that gic list models has, nor custom", axes["model"])
	}
	given := false
	for _, a := range []struct {
		axis      string
		low, high int
		to        *int
	}{
		{"hidden", 0, 65536, &m.Hidden}, {"experts", 0, 4096, &m.Routing.Experts}, {"topk", 0, 64, &m.Routing.TopK},
		{"tokens", 1, 65536, &m.Routing.Tokens}, {"threads", 1, 65536, &m.Threads},
	} {
		v, err := p.Within(a.axis, a.low, a.high)
		if err != nil {
			return nil, err
		}
		if v != 0 {
			*a.to = v
			given = given || a.axis == "experts"
		}
	}
	if m.Hidden == 0 || m.Routing.Experts == 0 || m.Routing.TopK == 0 {
		return nil, fmt.Errorf("model=custom needs hidden, experts and topk")
	}
	layout, err := p.OneOf("layout", "expert", "rank")
	if err != nil {
		return nil, err
	}
	m.ByRank = layout == 1
	if m.Routing.Masked, err = strconv.ParseFloat(axes["masked"], 64); err != nil || !(m.Routing.Masked >= 0 && m.Routing.Masked <= 1) {
		return nil, fmt.Errorf("masked=%s is not allowed: a number in 0..1", axes["masked"])
	}
	if extra := m.Routing.Experts % ranks; extra != 0 {
		if given || !more {
			return nil, fmt.Errorf("experts=%d is not allowed: a multiple of ranks=%d", m.Routing.Experts, ranks)
		}
		m.Routing.Experts += ranks - extra
	}
	if m.Routing.TopK > m.Routing.Experts {
		return nil, fmt.Errorf("topk=%d is not allowed: at most experts=%d", m.Routing.TopK, m.Routing.Experts)
	}
	if entries := ranks * m.Routing.Tokens * m.Routing.TopK; entries > 1<<26 {
		return nil, fmt.Errorf("tokens=%d is not allowed: ranks x tokens x topk is %d, at most %d", m.Routing.Tokens, entries, 1<<26)
	}
	return m, nil
}

// maxBeside bounds the ranks of a record that is simulated for a table.
const maxBeside = 64

// ForCase makes the question of a measured record of moe.
func ForCase(c *record.Case) (*MoE, error) {
	if c.Ranks > maxBeside {
		return nil, fmt.Errorf("ranks=%d: gic predict --workload moe simulates more than %d", c.Ranks, maxBeside)
	}
	m, err := FromAxes(c.Axes, c.Ranks, c.Seed, false)
	if err != nil {
		return nil, err
	}
	m.Backend, m.Settings = c.Backend, oracle.Conditions{}
	maps.Copy(m.Settings, oracle.CaseConditions(c))
	for axis := range c.Axes { // of moe: none of them is a condition of a constant
		delete(m.Settings, axis)
	}
	delete(m.Settings, "senders")
	return m, nil
}
