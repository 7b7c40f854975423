package attribution

import (
	"slices"
	"testing"
)

// coarse is a method that sees some terms together, as a replay does.
type coarse struct {
	terms []Name
	part  float64 // s
}

func (coarse) Name() string { return "coarse" }

func (c coarse) Split(g *Gap) (*Split, error) {
	s := &Split{Method: "coarse", Gap: g, Covers: c.terms, Parts: []Part{{Terms: c.terms, Quantity: Exact(c.part), How: "test"}}}
	return s, s.Close()
}

// A method that cannot tell terms apart is compared with the sum of what another says of them, and only where that one
// speaks of all of them.
func TestJudgeComparesSums(t *testing.T) {
	op := map[string]string{"op": "put", "size": "8"}
	library := synthetic(t, "acme", "op", op, map[string]string{"sharing": "handoff", "scope": "all", "qps": "4", "plant": "delay"}, 1, 0)
	run := newRun(append(floorRows(t, 1, 0), library)...)
	gaps, _ := run.Gaps([]*Library{acme()}, nil, nil)
	g := gaps[slices.IndexFunc(gaps, func(g *Gap) bool { return g.Metric == "put_completion" })]
	visible := []Name{QueueSharing, DoorbellBatching, Placement, CompletionScope, SignalProtocol, Algorithm}
	truth := (400 + 3*pollCost) * 1e-9
	for _, tt := range []struct {
		name    string
		method  coarse
		lib     *Library
		verdict string
		compare bool
	}{
		{"right", coarse{visible, truth}, acme(), Consistent, true},
		{"wrong", coarse{visible, truth * 1.5}, acme(), Inconsistent, true},
		{"a term that no rung speaks of", coarse{append(slices.Clone(visible), Wire), truth * 2}, acme(), NotCompared, false},
	} {
		g.Library = tt.lib
		j, err := Judge(g, Ladder{}, tt.method)
		if err != nil {
			t.Fatal(err)
		}
		if j.Verdict != tt.verdict || (len(j.Compared) > 0) != tt.compare {
			t.Errorf("%s: %s (%s), compared %d; want %s", tt.name, j.Verdict, j.Sentence(), len(j.Compared), tt.verdict)
		}
		if tt.verdict == Inconsistent && !slices.Equal(j.Disagree, append(slices.Clone(visible), Residual)) {
			t.Errorf("%s: disagree in %v", tt.name, j.Disagree)
		}
	}
	// A choice without a rung: the ladder no longer speaks of its term.
	missing := acme()
	missing.Choices = append([]Choice{{Key: "batch", Value: "64", Source: []string{"acme.c:9"}}}, missing.Choices...)
	g.Library = missing
	if j, err := Judge(g, Ladder{}, coarse{visible, truth * 2}); err != nil || j.Verdict != NotCompared {
		t.Errorf("with a missing rung: %v, %v", j.Verdict, err)
	}
}
