package plan

import (
	"fmt"
	"strconv"
	"strings"
)

// Part is a share of a plan: number K of N, from 1. The zero value is all of it.
type Part struct{ K, N int }

// maxParts catches typing errors.
const maxParts = 10000

// ParsePart reads "k/n".
func ParsePart(text string) (Part, error) {
	a, b, _ := strings.Cut(text, "/")
	k, err1 := strconv.Atoi(a)
	n, err2 := strconv.Atoi(b)
	if err1 != nil || err2 != nil || k < 1 || k > n || n > maxParts {
		return Part{}, fmt.Errorf("allowed: k/n with 1 <= k <= n <= %d, 2/4 say", maxParts)
	}
	return Part{k, n}, nil
}

// String gives the part in the form that ParsePart reads, "" for all of a plan.
func (p Part) String() string {
	if p.N == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", p.K, p.N)
}

// starting is what starting a set of processes weighs beside measuring a point.
const starting = 4

// Part gives share K of N: all shares in turn are the plan, in its order. What is compared with each other in one
// process run stays in one share; beyond that the shares start about equally many processes and points. What will
// not run weighs nothing.
func (p *Plan) Part(part Part) *Plan {
	if part.N == 0 {
		return p
	}
	out := *p
	out.Outers = nil
	total := 0
	for i := range p.Outers {
		total += p.Outers[i].weight()
	}
	for at, before := 0, 0; at < len(p.Outers); {
		end, weight := at, 0
		for end < len(p.Outers) && together(&p.Outers[at], &p.Outers[end]) {
			weight += p.Outers[end].weight()
			end++
		}
		// The share in which the middle of the group lies.
		k := 0
		if total > 0 {
			k = min((2*before+weight)*part.N/(2*total), part.N-1)
		}
		if k == part.K-1 {
			out.Outers = append(out.Outers, p.Outers[at:end]...)
		}
		before += weight
		at = end
	}
	return &out
}

func (o *Outer) weight() int {
	if o.Skip != "" {
		return 0
	}
	return starting + len(o.Points)
}

// together says whether two outers must be in one share.
func together(a, b *Outer) bool {
	return a.Index == b.Index && a.Group == b.Group && (a.Skip == "") == (b.Skip == "")
}
