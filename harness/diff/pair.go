package diff

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gic/harness/record"
)

// Across names a key in which the cases of a pair may differ: the key itself and those below it ("backend" is
// also backend.batch). With values, only cases with Old on the old side and New on the new side take part.
type Across struct {
	Key      string
	Old, New string
	Values   bool
}

// ParseAcross reads KEY or KEY=OLD:NEW.
func ParseAcross(text string) (Across, error) {
	key, rest, ok := strings.Cut(text, "=")
	a := Across{Key: key, Values: ok}
	if key == "" {
		return a, fmt.Errorf("%q names no key; allowed: KEY or KEY=OLD:NEW", text)
	}
	if ok {
		if a.Old, a.New, ok = strings.Cut(rest, ":"); !ok || a.Old == "" || a.New == "" {
			return a, fmt.Errorf("%q does not give two values; allowed: KEY or KEY=OLD:NEW", text)
		}
	}
	return a, nil
}

func (a Across) covers(key string) bool { return key == a.Key || strings.HasPrefix(key, a.Key+".") }

// AmbiguousError is a case with several partners.
type AmbiguousError struct {
	Case     string
	Keys     []string
	Old, New []string // of each case, the keys that tell those of its side apart
	Values   bool     // two values were named, and are not enough
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("several cases differ from %s in %s only: OLD has %s, NEW has %s; %s",
		e.Case, strings.Join(e.Keys, ", "), values(e.Old), values(e.New), e.advice())
}

// advice is how to leave one case on each side: two values of the key, or a filter if that is not enough.
func (e *AmbiguousError) advice() string {
	if !e.Values {
		return fmt.Sprintf("name two values with --across %s=OLD:NEW", e.Keys[0])
	}
	var flags []string
	for _, side := range []struct {
		flag  string
		cases []string
	}{{"--filter-old", e.Old}, {"--filter-new", e.New}} {
		if len(side.cases) > 1 {
			key, value, _ := strings.Cut(strings.Fields(side.cases[0])[0], "=")
			flags = append(flags, fmt.Sprintf("%s '%s:%s'", side.flag, key, value))
		}
	}
	return "choose one of a side, as with " + strings.Join(flags, " ")
}

// pairing is which cases belong together.
type pairing struct {
	pairs       []*Pair
	gone, added []*caseSet
	// reasons are why imported cases, and those that they may belong to, were not paired.
	reasons map[*caseSet]string
}

// reduced is what two cases must have in common to be a pair.
func (o *Options) reduced(k *caseSet) string {
	if len(o.dropped) == 0 {
		return k.id
	}
	var b strings.Builder
	for _, kv := range k.keys {
		if !slices.ContainsFunc(o.dropped, func(a Across) bool { return a.covers(kv.Key) }) {
			fmt.Fprintf(&b, "%d:%s%d:%s", len(kv.Key), kv.Key, len(kv.Value), kv.Value)
		}
	}
	return b.String()
}

// takes says whether a case takes part: it has the value that --across gives for its side.
func (o *Options) takes(k *caseSet, old bool) bool {
	for _, a := range o.Across {
		if !a.Values {
			continue
		}
		want := a.New
		if old {
			want = a.Old
		}
		if v, ok := k.key(a.Key); !ok || v != want {
			return false
		}
	}
	return true
}

// pair finds the pairs of the two sides.
func pair(old, new *Set, o *Options) (*pairing, error) {
	type group struct{ old, new []*caseSet }
	groups := map[string]*group{}
	var order []*group
	at := func(k *caseSet) *group {
		key := setKey(o.reduced(k), k.imported)
		g := groups[key]
		if g == nil {
			g = &group{}
			groups[key] = g
			order = append(order, g)
		}
		return g
	}
	for _, k := range old.cases {
		if o.takes(k, true) {
			g := at(k)
			g.old = append(g.old, k)
		}
	}
	for _, k := range new.cases {
		if o.takes(k, false) {
			g := at(k)
			g.new = append(g.new, k)
		}
	}
	out := &pairing{}
	for _, g := range order {
		a, b := g.old, g.new
		if len(a) > 1 || len(b) > 1 {
			// Those that are the very same case belong together; of the others there may be one on a side.
			a, b = nil, slices.Clone(g.new)
			for _, k := range g.old {
				i := slices.IndexFunc(b, func(x *caseSet) bool { return x.id == k.id })
				if i < 0 {
					a = append(a, k)
					continue
				}
				out.pairs = append(out.pairs, &Pair{old: k, new: b[i]})
				b = slices.Delete(b, i, i+1)
			}
			if len(a) > 1 && len(b) > 0 || len(b) > 1 && len(a) > 0 {
				return nil, ambiguous(g.old, g.new, o)
			}
		}
		switch {
		case len(a) == 1 && len(b) == 1:
			out.pairs = append(out.pairs, &Pair{old: a[0], new: b[0]})
		default:
			out.gone, out.added = append(out.gone, a...), append(out.added, b...)
		}
	}
	out.pairImported(old, new, o)
	return out, nil
}

func ambiguous(old, new []*caseSet, o *Options) error {
	e := &AmbiguousError{Values: slices.ContainsFunc(o.Across, func(a Across) bool { return a.Values })}
	for _, a := range o.dropped {
		e.Keys = append(e.Keys, a.Key)
	}
	dropped := func(key string) bool {
		return slices.ContainsFunc(o.dropped, func(a Across) bool { return a.covers(key) })
	}
	collect := func(cases []*caseSet) (out []string) {
		for _, k := range cases {
			var all, apart []string
			for _, kv := range k.keys {
				if !dropped(kv.Key) {
					continue
				}
				all = append(all, kv.Key+"="+kv.Value)
				if slices.ContainsFunc(cases, func(x *caseSet) bool { v, ok := x.key(kv.Key); return !ok || v != kv.Value }) {
					apart = append(apart, kv.Key+"="+kv.Value)
				}
			}
			if apart == nil { // the only one of its side
				apart = all[:min(len(all), 1)]
			}
			out = append(out, strings.Join(apart, " "))
		}
		slices.Sort(out)
		return out
	}
	e.Case, e.Old, e.New = old[0].workload+" on "+old[0].backend, collect(old), collect(new)
	return e
}

// hintCases bounds the search for the key that keeps cases apart.
const hintCases = 2000

// apart finds the keys each of which alone keeps unpaired cases from being pairs.
func apart(p *pairing) []Unlike {
	if len(p.gone) == 0 || len(p.added) == 0 {
		return nil
	}
	gone, added := p.gone[:min(len(p.gone), hintCases)], p.added[:min(len(p.added), hintCases)]
	keys := map[string]bool{}
	for _, k := range append(slices.Clone(gone), added...) {
		for _, kv := range k.keys {
			keys[kv.Key] = true
		}
	}
	var out []Unlike
	without := func(k *caseSet, key string) string {
		var b strings.Builder
		b.WriteString(setKey("", k.imported))
		for _, kv := range k.keys {
			if kv.Key != key {
				b.WriteString(kv.Key + "\x00" + kv.Value + "\x00")
			}
		}
		return b.String()
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		byRest := map[string]*caseSet{}
		for _, k := range gone {
			byRest[without(k, key)] = k
		}
		u := Unlike{Key: key}
		for _, k := range added {
			g := byRest[without(k, key)]
			if g == nil {
				continue
			}
			u.Cases++
			if a, _ := g.key(key); !slices.Contains(u.Old, a) {
				u.Old = append(u.Old, a)
			}
			if b, _ := k.key(key); !slices.Contains(u.New, b) {
				u.New = append(u.New, b)
			}
		}
		if u.Cases > 0 {
			out = append(out, u)
		}
	}
	slices.SortStableFunc(out, func(a, b Unlike) int { return b.Cases - a.Cases })
	return out
}

// checkKeys refuses keys of --across and --allow that nothing has.
func checkKeys(old, new *Set, o *Options) error {
	known := map[string]bool{"seed": true}
	for _, s := range []*Set{old, new} {
		for _, r := range s.runs {
			for _, kv := range r.state {
				known[kv.Key] = true
			}
		}
		for _, k := range s.cases {
			for _, keys := range [][]record.KeyValue{k.keys, k.library} {
				for _, kv := range keys {
					known[kv.Key] = true
				}
			}
			for _, c := range k.counters {
				known["counter."+c.name] = true
			}
		}
	}
	has := func(a Across) bool {
		for k := range known {
			if a.covers(k) {
				return true
			}
		}
		return false
	}
	list := func() string { return strings.Join(slices.Sorted(maps.Keys(known)), ", ") }
	for _, a := range o.Across {
		if !has(a) {
			return fmt.Errorf("--across %s: no case has such a key; there are %s", a.Key, list())
		}
		if strings.HasPrefix(a.Key, "counter") {
			return fmt.Errorf("--across %s: a counter is no key of a case; --allow accepts its growth", a.Key)
		}
	}
	for _, k := range o.Allow {
		// A list of allowances may be written once for many diffs, so well-known groups may be absent.
		if !has(Across{Key: k}) && !slices.Contains([]string{"oversubscribed", "library", "nic", "host", "counter"}, k) &&
			!strings.HasPrefix(k, "library.") && !strings.HasPrefix(k, "counter.") {
			return fmt.Errorf("--allow %s: not known here; there are oversubscribed, %s", k, list())
		}
	}
	return nil
}

// scope is within which cases a key is compared to see whether it tells them apart: those of its workload, of its
// backend, or all.
func (k *caseSet) scope(key string) string {
	switch {
	case strings.HasPrefix(key, "workload."):
		return k.workload + "\x00" + key
	case strings.HasPrefix(key, "backend."):
		return k.backend + "\x00" + key
	}
	return "\x00" + key
}

// name is a case in words, for messages.
func (k *caseSet) name(vary map[string]bool) string {
	parts := []string{k.workload}
	add := func(kv record.KeyValue, prefix string) {
		if _, said := k.says(kv.Key); !said {
			return
		}
		if name, ok := strings.CutPrefix(kv.Key, prefix); ok && vary[k.scope(kv.Key)] {
			parts = append(parts, name+"="+kv.Value)
		}
	}
	for _, kv := range k.keys {
		add(kv, "workload.")
	}
	parts = append(parts, k.backend)
	for _, kv := range k.keys {
		add(kv, "backend.")
	}
	for _, kv := range k.keys {
		if identityState(kv.Key) || kv.Key == "ranks" {
			if _, said := k.says(kv.Key); said && vary[k.scope(kv.Key)] {
				parts = append(parts, kv.Key+"="+kv.Value)
			}
		}
	}
	return strings.Join(parts, " ")
}
