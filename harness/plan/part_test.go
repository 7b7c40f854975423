package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func partPlan(t *testing.T) *Plan {
	return mustExpand(t, toyRequest(t, 7, "w:a=1..9,b=put|get <- full:q=1..4 puts absent", "v:o=x|y <- full:q=2|3 puts", "w:a=20..90+10 <- full"))
}

// The shares of a plan are the plan: each record in one of them, in its order.
func TestPartsMakeTheWhole(t *testing.T) {
	p := partPlan(t)
	for _, n := range []int{1, 2, 3, 7, len(p.Outers) - 1, len(p.Outers), 2 * len(p.Outers)} {
		var all []Outer
		for k := 1; k <= n; k++ {
			part := p.Part(Part{k, n})
			if part.Seed != p.Seed || part.Repeat != p.Repeat || part.Ranks != p.Ranks {
				t.Fatalf("part %d/%d: %+v", k, n, part)
			}
			all = append(all, part.Outers...)
		}
		if d := cmp.Diff(p.Outers, all); d != "" {
			t.Fatalf("%d parts (-whole +union):\n%s", n, d)
		}
	}
	if d := cmp.Diff(p, p.Part(Part{})); d != "" {
		t.Errorf("no part (-whole +got):\n%s", d)
	}
}

// The same command tomorrow measures the same share.
func TestPartIsDeterministic(t *testing.T) {
	for k := 1; k <= 3; k++ {
		a, b := partPlan(t).Part(Part{k, 3}), partPlan(t).Part(Part{k, 3})
		if d := cmp.Diff(a, b); d != "" {
			t.Errorf("part %d/3: %s", k, d)
		}
	}
}

// Backends that are compared with each other are measured by one command.
func TestPartKeepsGroupsTogether(t *testing.T) {
	p := partPlan(t)
	for _, n := range []int{2, 3, 5, 12} {
		at := map[string]int{}
		for k := 1; k <= n; k++ {
			for _, o := range p.Part(Part{k, n}).Outers {
				key := fmt.Sprintf("%s #%d %v", o.Group, o.Index, o.Skip == "")
				if was, ok := at[key]; ok && was != k {
					t.Errorf("%d parts: %s is in parts %d and %d", n, key, was, k)
				}
				at[key] = k
			}
		}
	}
}

func TestPartsAreAboutEqual(t *testing.T) {
	var blocks []string
	for i := range 40 { // groups of equal weight
		blocks = append(blocks, fmt.Sprintf("w:o=x,a=%d <- full", i+10), fmt.Sprintf("v:o=%s,a=%d <- full", "xy"[i%2:i%2+1], i+10))
	}
	p := mustExpand(t, toyRequest(t, 1, blocks...))
	p.Repeat = 30
	for _, n := range []int{2, 3} {
		var sizes []int
		for k := 1; k <= n; k++ {
			w := 0
			for _, o := range p.Part(Part{k, n}).Outers {
				w += o.weight()
			}
			sizes = append(sizes, w)
		}
		if slices.Max(sizes) > 2*slices.Min(sizes) {
			t.Errorf("%d parts weigh %v", n, sizes)
		}
	}
}

func TestParsePart(t *testing.T) {
	for _, text := range []string{"1/1", "2/4", "4/4"} {
		if p, err := ParsePart(text); err != nil || p.String() != text {
			t.Errorf("%s: %v, %v", text, p, err)
		}
	}
	for _, text := range []string{"", "1", "0/4", "5/4", "-1/4", "1/0", "1/4/2", "a/b", "1/10001", "1.5/2"} {
		if p, err := ParsePart(text); err == nil || !strings.Contains(err.Error(), "1 <= k <= n") {
			t.Errorf("%q: %v, error %v", text, p, err)
		}
	}
}
