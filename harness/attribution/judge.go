package attribution

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Verdicts of a comparison of methods.
const (
	Consistent   = "consistent"
	Inconsistent = "inconsistent"
	NotCompared  = "not compared"
)

// Account is what one method says of a gap: a split, or why it sees nothing.
type Account struct {
	Method string
	Split  *Split // nil if blind
	Blind  string
}

// Against is two methods' numbers for the same terms.
type Against struct {
	Terms  []Name
	A, B   string // methods
	ValueA Quantity
	ValueB Quantity
	Agree  bool
}

// Judgement is what the methods together say of a gap.
type Judgement struct {
	Gap      *Gap
	Accounts []Account
	Verdict  string
	Compared []Against
	// Disagree are the terms in which two methods differ, the largest difference first.
	Disagree []Name
	Why      string
}

// Judge asks each method about a gap and compares what they say, term by term, where both see it: two numbers agree
// if their intervals overlap, or if they are within 10 % of the larger, or within 2 % of the gap. The error is a
// defect of a method or of the records, never a disagreement.
func Judge(g *Gap, methods ...Method) (*Judgement, error) {
	j := &Judgement{Gap: g}
	for _, m := range methods {
		s, err := m.Split(g)
		switch {
		case errors.Is(err, ErrBlind):
			j.Accounts = append(j.Accounts, Account{Method: m.Name(), Blind: strings.TrimPrefix(err.Error(), ErrBlind.Error()+": ")})
			continue
		case err != nil:
			return nil, fmt.Errorf("%s of %s: %w", m.Name(), g.Title(), err)
		}
		if err := s.Check(); err != nil {
			return nil, err
		}
		j.Accounts = append(j.Accounts, Account{Method: m.Name(), Split: s})
	}
	j.compare()
	return j, nil
}

// compare compares all pairs of accounts.
func (j *Judgement) compare() {
	_, _, gap, _ := j.Gap.Times()
	least := max(gap.Value, -gap.Value) / 50
	seeing := 0
	for i, a := range j.Accounts {
		if a.Split == nil {
			continue
		}
		seeing++
		for _, b := range j.Accounts[i+1:] {
			if b.Split != nil {
				j.Compared = append(j.Compared, against(a.Split, b.Split, least)...)
			}
		}
	}
	slices.SortStableFunc(j.Compared, func(a, b Against) int {
		return int(min(max(distance(b)-distance(a), -1), 1))
	})
	j.Verdict = Consistent
	for _, c := range j.Compared {
		if !c.Agree {
			j.Verdict = Inconsistent
			for _, n := range c.Terms {
				if !slices.Contains(j.Disagree, n) {
					j.Disagree = append(j.Disagree, n)
				}
			}
		}
	}
	switch {
	case seeing < 2:
		j.Verdict, j.Why = NotCompared, "only one method sees this row"
	case len(j.Compared) == 0:
		j.Verdict, j.Why = NotCompared, "no term is seen by two methods"
	}
}

func distance(a Against) Femto {
	return max(a.ValueA.Value-a.ValueB.Value, a.ValueB.Value-a.ValueA.Value)
}

// against compares two splits: each set of terms that both cover and neither can take apart further, and what is
// left if both leave the same to it.
func against(a, b *Split, least Femto) []Against {
	var out []Against
	for _, terms := range common(a, b) {
		x, y := sum(a, terms), sum(b, terms)
		out = append(out, Against{terms, a.Method, b.Method, x, y, agree(x, y, least)})
	}
	if len(out) > 0 && partsSeen(a, b) && partsSeen(b, a) {
		out = append(out, Against{[]Name{Residual}, a.Method, b.Method, a.Residual, b.Residual, agree(a.Residual, b.Residual, least)})
	}
	return out
}

// common are the finest sets of terms that are sums of whole parts on both sides.
func common(a, b *Split) [][]Name {
	group := map[Name]int{}
	next := 0
	join := func(names []Name) {
		next++
		for _, n := range names {
			old, seen := group[n]
			group[n] = next
			if seen {
				for k, v := range group {
					if v == old {
						group[k] = next
					}
				}
			}
		}
	}
	for _, s := range []*Split{a, b} {
		for _, p := range s.Parts {
			join(p.Terms)
		}
	}
	sets := map[int][]Name{}
	for _, t := range terms {
		if id, ok := group[t.Name]; ok {
			sets[id] = append(sets[id], t.Name)
		}
	}
	var out [][]Name
	done := map[int]bool{}
	for _, t := range terms {
		id, ok := group[t.Name]
		if !ok || done[id] {
			continue
		}
		done[id] = true
		covered := func(s *Split) bool {
			return !slices.ContainsFunc(sets[id], func(n Name) bool { return !slices.Contains(s.Covers, n) })
		}
		if covered(a) && covered(b) {
			out = append(out, sets[id])
		}
	}
	return out
}

// sum adds the parts of a split that are within a set of terms.
func sum(s *Split, names []Name) Quantity {
	var out Quantity
	for _, p := range s.Parts {
		if !slices.ContainsFunc(p.Terms, func(n Name) bool { return !slices.Contains(names, n) }) {
			out = out.Add(p.Quantity)
		}
	}
	return out
}

// partsSeen says whether all parts of a split are of terms that the other one speaks of, too: then what they leave over is
// the same.
func partsSeen(s, other *Split) bool {
	for _, p := range s.Parts {
		if slices.ContainsFunc(p.Terms, func(n Name) bool { return !slices.Contains(other.Covers, n) }) {
			return false
		}
	}
	return true
}
