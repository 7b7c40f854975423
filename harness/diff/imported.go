package diff

import (
	"fmt"
	"slices"
	"strings"
)

// Other tools say less of their results than gic records: an imported case pairs by the keys that it says, and
// nothing is concluded from the others. They are told in a note.

// unsaid says whether a value of an imported case or machine tells nothing.
func unsaid(v string) bool { return v == "" || v == "unknown" || v == "none" }

// says gives a key of a case, false if the case lacks it or is imported and leaves it open. That no NIC took part
// is a statement, of a case.
func (k *caseSet) says(name string) (string, bool) {
	v, ok := k.key(name)
	if k.imported && (v == "" || v == "unknown") {
		return "", false
	}
	return v, ok
}

// said are the keys by which an imported case pairs, without those left out of the pairing.
func (o *Options) said(k *caseSet, without ...Across) (names []string, values string) {
	var b strings.Builder
	for _, kv := range k.keys {
		covers := func(a Across) bool { return a.covers(kv.Key) }
		if _, ok := k.says(kv.Key); !ok || slices.ContainsFunc(o.dropped, covers) || slices.ContainsFunc(without, covers) {
			continue
		}
		names = append(names, kv.Key)
		fmt.Fprintf(&b, "%d:%s", len(kv.Value), kv.Value)
	}
	return names, b.String()
}

// index finds measured cases by the values of some keys.
type index struct {
	measured []*caseSet
	byNames  map[string]map[string][]*caseSet
}

func newIndex(cases []*caseSet, o *Options, old bool) *index {
	x := &index{byNames: map[string]map[string][]*caseSet{}}
	for _, k := range cases {
		if !k.imported && o.takes(k, old) {
			x.measured = append(x.measured, k)
		}
	}
	return x
}

func (x *index) find(names []string, values string) []*caseSet {
	key := strings.Join(names, "\x00")
	at := x.byNames[key]
	if at == nil {
		at = map[string][]*caseSet{}
		for _, k := range x.measured {
			var b strings.Builder
			all := true
			for _, n := range names {
				v, ok := k.key(n)
				if all = all && ok; !all {
					break
				}
				fmt.Fprintf(&b, "%d:%s", len(v), v)
			}
			if all {
				at[b.String()] = append(at[b.String()], k)
			}
		}
		x.byNames[key] = at
	}
	return at[values]
}

// pairImported pairs the imported cases that are still without a partner with measured ones of the other side,
// wherever there is no choice. Where there is one, it is named.
func (p *pairing) pairImported(old, new *Set, o *Options) {
	p.reasons = map[*caseSet]string{}
	used := map[*caseSet]bool{}
	// An imported old row takes its partner from NEW, an imported new row from OLD.
	p.fit(p.gone, newIndex(new.cases, o, false), o, new.Label, func(imported, measured *caseSet) {
		p.pairs = append(p.pairs, &Pair{old: imported, new: measured})
		used[imported], used[measured] = true, true
	})
	p.fit(p.added, newIndex(old.cases, o, true), o, old.Label, func(imported, measured *caseSet) {
		p.pairs = append(p.pairs, &Pair{old: measured, new: imported})
		used[imported], used[measured] = true, true
	})
	taken := func(k *caseSet) bool { return used[k] }
	p.gone, p.added = slices.DeleteFunc(p.gone, taken), slices.DeleteFunc(p.added, taken)
}

// fit finds the partners of the imported ones of some cases on the side that is called label.
func (p *pairing) fit(cases []*caseSet, x *index, o *Options, label string, pairUp func(imported, measured *caseSet)) {
	only := map[*caseSet][]*caseSet{} // by the measured case that is their only choice
	for _, k := range cases {
		if !k.imported {
			continue
		}
		found := x.find(o.said(k))
		if i := slices.IndexFunc(found, func(m *caseSet) bool { return m.id == k.id }); i >= 0 {
			pairUp(k, found[i])
			continue
		}
		switch len(found) {
		case 0:
		case 1:
			only[found[0]] = append(only[found[0]], k)
		default:
			p.reasons[k] = fmt.Sprintf("imported: fits %s of %s, which differ in %s: choose with --filter-%s", plural(len(found), "case"), label,
				choices(found), strings.ToLower(label))
			for _, m := range found {
				p.reasons[m] = fmt.Sprintf("an imported row fits this case and %d more", len(found)-1)
			}
		}
	}
	for _, m := range x.measured {
		switch list := only[m]; len(list) {
		case 0:
		case 1:
			delete(p.reasons, m)
			pairUp(list[0], m)
		default:
			why := fmt.Sprintf("imported: %d rows fit the same case of %s; they differ in %s: choose with a filter", len(list), label, choices(list))
			p.reasons[m] = why
			for _, k := range list {
				p.reasons[k] = why
			}
		}
	}
}

// choices lists the keys in which cases differ, with their values.
func choices(cases []*caseSet) string {
	var out []string
	for _, kv := range union(cases) {
		var v []string
		for _, k := range cases {
			have, ok := k.key(kv)
			if !ok {
				have = "none"
			}
			if !slices.Contains(v, have) {
				v = append(v, have)
			}
		}
		if len(v) > 1 {
			out = append(out, kv+" ("+values(v)+")")
		}
	}
	return strings.Join(out, ", ")
}

func union(cases []*caseSet) []string {
	var out []string
	for _, k := range cases {
		for _, kv := range k.keys {
			if !slices.Contains(out, kv.Key) {
				out = append(out, kv.Key)
			}
		}
	}
	return out
}

// apartImported finds the keys each of which alone keeps imported cases from pairing with measured ones.
func apartImported(p *pairing, o *Options) []Unlike {
	var out []Unlike
	look := func(cases, others []*caseSet, old bool) {
		x := newIndex(others[:min(len(others), hintCases)], o, !old)
		for _, k := range cases[:min(len(cases), hintCases)] {
			if !k.imported || p.reasons[k] != "" {
				continue
			}
			names, _ := o.said(k)
			for _, key := range names {
				found := x.find(o.said(k, Across{Key: key}))
				mineValue, _ := k.key(key)
				if len(found) == 0 {
					continue
				}
				if v, ok := found[0].key(key); ok && v == mineValue {
					continue // a key below it does
				}
				i := slices.IndexFunc(out, func(u Unlike) bool { return u.Key == key })
				if i < 0 {
					i = len(out)
					out = append(out, Unlike{Key: key})
				}
				out[i].Cases++
				mine, theirs := &out[i].New, &out[i].Old
				if old {
					mine, theirs = theirs, mine
				}
				add := func(to *[]string, k *caseSet) {
					if v, ok := k.key(key); ok && !slices.Contains(*to, v) {
						*to = append(*to, v)
					}
				}
				add(mine, k)
				add(theirs, found[0])
			}
		}
	}
	look(p.gone, p.added, true)
	look(p.added, p.gone, false)
	slices.SortStableFunc(out, func(a, b Unlike) int { return b.Cases - a.Cases })
	return out
}

// imported says whether a side of the pair is another tool's, and the other is ours.
func (p *Pair) imported() bool {
	return p.old != nil && p.new != nil && p.old.imported != p.new.imported
}

// mark is what stands behind the name of a case that another tool measured.
func (p *Pair) mark() string {
	old, new := p.old != nil && p.old.imported, p.new != nil && p.new.imported
	switch {
	case old && new, old && p.new == nil, new && p.old == nil:
		return " (imported)"
	case old:
		return " (OLD imported)"
	case new:
		return " (NEW imported)"
	}
	return ""
}

// silent are the keys that the imported side of a pair does not say.
func (p *Pair) silent() []string {
	imported, measured := p.old, p.new
	if p.new.imported {
		imported, measured = p.new, p.old
	}
	var out []string
	for _, kv := range measured.keys {
		if _, ok := imported.says(kv.Key); !ok {
			out = append(out, kv.Key)
		}
	}
	said := imported.libraries()
	for _, kv := range measured.library {
		if !slices.Contains(out, kv.Key) && len(said[kv.Key]) == 0 {
			out = append(out, kv.Key)
		}
	}
	return out
}

// agree says whether what an imported row says of a library is what was measured: tools tell a version, or less.
func agree(a, b []string) bool {
	if len(a) == 0 || len(b) == 0 {
		return true
	}
	if len(a) != 1 || len(b) != 1 {
		return false
	}
	return unsaid(a[0]) || unsaid(b[0]) || a[0] == b[0] ||
		strings.HasPrefix(a[0], b[0]+" ") || strings.HasPrefix(b[0], a[0]+" ")
}

// foreign says that nothing of a side was measured by gic.
func (s *Set) foreign() bool {
	return len(s.runs) > 0 && !slices.ContainsFunc(s.runs, func(r *runInfo) bool { return r.imported == nil })
}

// sources names the files that a side was imported from.
func (s *Set) sources() []string {
	var out []string
	for _, r := range s.runs {
		for _, m := range r.imported {
			if text := m.Format + " " + m.File; !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	return out
}

// importNotes says what imported rows leave open.
func (r *Result) importNotes() {
	for _, p := range r.Pairs {
		if !p.imported() {
			continue
		}
		side := "OLD"
		if p.new.imported {
			side = "NEW"
		}
		r.note(p, "imported", side+" is another tool's result, not measured or verified by gic")
		if list := p.silent(); list != nil {
			r.note(p, "imported", fmt.Sprintf("imported: %s does not say %s", side, strings.Join(list, ", ")))
		}
	}
	for _, s := range []*Set{r.Old, r.New} {
		if list := s.silentStates(); list != nil && r.Old.foreign() != r.New.foreign() {
			r.note(nil, "imported", fmt.Sprintf("imported: %s does not say %s", s.Label, strings.Join(list, ", ")))
		}
	}
}

// silentStates are the machine keys that no run of a foreign side says.
func (s *Set) silentStates() []string {
	if !s.foreign() {
		return nil
	}
	var out []string
	said := s.states()
	for _, kv := range s.runs[0].state {
		if len(said[kv.Key]) == 0 {
			out = append(out, kv.Key)
		}
	}
	return out
}

// unsaid says whether a key is one that the imported side of the pair leaves open.
func (p *Pair) unsaid(key string) bool {
	if !p.imported() {
		return false
	}
	k := p.old
	if p.new.imported {
		k = p.new
	}
	_, ok := k.says(key)
	return !ok
}
