package diff

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gic/harness/record"
)

// Unlike is a part of the state in which the two sides were measured, and in which they differ. A difference in
// it would be taken for one of what is compared.
type Unlike struct {
	Key      string
	Old, New []string // values found on each side
	Cases    int      // concerned, 0 for all
}

// UnlikeError is a diff that was refused.
type UnlikeError struct{ Keys []Unlike }

func (e *UnlikeError) Error() string { return strings.Join(e.Lines(), "; ") }

// Lines says each difference in one line, with the flag that allows it.
func (e *UnlikeError) Lines() []string {
	var out []string
	for _, u := range e.Keys {
		of := ""
		if u.Cases > 0 {
			of = fmt.Sprintf(" (%s)", plural(u.Cases, "case"))
		}
		out = append(out, fmt.Sprintf("unlike states: %s is %s in OLD and %s in NEW%s; --allow %s compares all the same",
			u.Key, values(u.Old), values(u.New), of, u.Key))
	}
	return out
}

func values(v []string) string {
	if len(v) == 0 {
		return "absent"
	}
	const most = 4
	q := make([]string, 0, most)
	for i, s := range v {
		if i == most {
			q = append(q, "...")
			break
		}
		if s == "" {
			s = "unknown"
		}
		q = append(q, s)
	}
	return strings.Join(q, " | ")
}

// identityState are the keys of a case that are state rather than a choice under study: measured under others,
// cases are not the same.
func identityState(key string) bool {
	return key == "nic" || strings.HasPrefix(key, "nic.") || key == "device"
}

// machineState is what a header says of the machine, as far as it changes results by itself.
func machineState(h *record.Header) []record.KeyValue {
	var name, cpu, cpus, gpu, driver []string
	for _, m := range append([]record.Machine{h.Host}, h.Hosts...) {
		name = append(name, m.Hostname)
		cpu = append(cpu, plain(m.CPU["model"]))
		cpus = append(cpus, plain(m.CPU["cpus"]))
		for _, g := range m.GPU {
			g, _ := g.(map[string]any)
			gpu = append(gpu, plain(g["name"]))
			driver = append(driver, plain(g["driver"]))
		}
	}
	shared := strconv.Itoa(max(1, h.RanksInProcess))
	if len(h.Imported) > 0 {
		shared = "" // another tool does not say
	}
	return []record.KeyValue{
		{Key: "ranks_in_process", Value: shared},
		{Key: "host.name", Value: counted(name)},
		{Key: "host.cpu", Value: counted(cpu)},
		{Key: "host.cpus", Value: counted(cpus)},
		{Key: "host.gpu", Value: counted(gpu)},
		{Key: "host.driver", Value: strings.Join(slices.Compact(slices.Sorted(slices.Values(driver))), ", ")},
	}
}

func plain(v any) string {
	if v == nil {
		return ""
	}
	return strings.Join(strings.Fields(fmt.Sprint(v)), " ")
}

// counted writes a list as "8 x H200", whatever its order.
func counted(list []string) string {
	count := map[string]int{}
	for _, s := range list {
		count[s]++
	}
	var out []string
	for _, s := range slices.Sorted(maps.Keys(count)) {
		if s == "" {
			continue
		}
		if count[s] > 1 {
			s = fmt.Sprintf("%d x %s", count[s], s)
		}
		out = append(out, s)
	}
	if out == nil {
		return "none"
	}
	return strings.Join(out, ", ")
}

// states collects the machine states of a side.
func (s *Set) states() map[string][]string {
	out := map[string][]string{}
	for _, r := range s.runs {
		for _, kv := range r.state {
			if r.imported != nil && unsaid(kv.Value) {
				continue
			}
			if !slices.Contains(out[kv.Key], kv.Value) {
				out[kv.Key] = append(out[kv.Key], kv.Value)
			}
		}
	}
	return out
}

// allows says whether a key, or a group that it is in, was allowed to differ.
func (o *Options) allows(key string) bool {
	if o.AllowAll {
		return true
	}
	in := func(group string) bool { return key == group || strings.HasPrefix(key, group+".") }
	if slices.ContainsFunc(o.Allow, in) {
		return true
	}
	return slices.ContainsFunc(o.Across, func(a Across) bool { return in(a.Key) })
}

// unlikeMachines lists the machine keys in which the sides differ, or one side in itself. What was allowed is
// returned apart: it becomes a note.
func unlikeMachines(old, new *Set, o *Options) (refused, allowed []Unlike) {
	a, b := old.states(), new.states()
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if old.foreign() != new.foreign() && len(b[key]) == 0 {
			continue // the imported side does not say it
		}
		if len(a[key]) == 1 && slices.Equal(a[key], b[key]) {
			continue
		}
		u := Unlike{Key: key, Old: a[key], New: b[key]}
		if o.allows(key) {
			allowed = append(allowed, u)
		} else {
			refused = append(refused, u)
		}
	}
	return refused, allowed
}

// unlikePairs lists what differs between the sides of single pairs: libraries and seeds. Another build of a backend's
// own plugin is told, and no reason to refuse.
func unlikePairs(pairs []*Pair, o *Options) (refused, allowed []Unlike) {
	byKey := map[string]*Unlike{}
	builds := map[string]bool{} // keys that are the code under test
	add := func(key string, old, new []string) {
		u := byKey[key]
		if u == nil {
			u = &Unlike{Key: key}
			byKey[key] = u
		}
		u.Cases++
		for _, v := range old {
			if !slices.Contains(u.Old, v) {
				u.Old = append(u.Old, v)
			}
		}
		for _, v := range new {
			if !slices.Contains(u.New, v) {
				u.New = append(u.New, v)
			}
		}
	}
	for _, p := range pairs {
		if p.imported() {
			a, b := p.old.libraries(), p.new.libraries()
			for key := range a {
				if !agree(a[key], b[key]) {
					add(key, a[key], b[key])
				}
			}
			continue
		}
		if !slices.Equal(p.old.seeds, p.new.seeds) || len(p.old.seeds) > 1 {
			add("seed", numbers(p.old.seeds), numbers(p.new.seeds))
		}
		if !p.old.ran() || !p.new.ran() {
			continue // no library was loaded by what did not run
		}
		a, b := p.old.libraries(), p.new.libraries()
		keys := maps.Clone(a)
		maps.Copy(keys, b)
		for key := range keys {
			if p.old.backend != p.new.backend && (key == plugin(p.old.backend) || key == plugin(p.new.backend)) {
				continue // goes with the backend, which was allowed to differ
			}
			if len(a[key]) != 1 || !slices.Equal(a[key], b[key]) {
				add(key, a[key], b[key])
				builds[key] = builds[key] || key == plugin(p.old.backend) && key == plugin(p.new.backend) && len(a[key]) == 1 && len(b[key]) == 1
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		if o.allows(key) || builds[key] {
			allowed = append(allowed, *byKey[key])
		} else {
			refused = append(refused, *byKey[key])
		}
	}
	return refused, allowed
}

// plugin is the key of the library that is the backend itself: to compare two builds of it is what a diff is for, while
// one side with two builds is a mix.
func plugin(backend string) string { return "library.lib" + backend }

func numbers(list []uint64) []string {
	var out []string
	for _, n := range list {
		out = append(out, fmt.Sprint(n))
	}
	return out
}

func (k *caseSet) libraries() map[string][]string {
	out := map[string][]string{}
	for _, kv := range k.library {
		out[kv.Key] = append(out[kv.Key], kv.Value)
	}
	for _, v := range out {
		slices.Sort(v)
	}
	return out
}

// ran says whether any process run measured something.
func (k *caseSet) ran() bool {
	return slices.ContainsFunc(k.runs, func(p processRun) bool { return len(p.values) > 0 && p.status != record.Skipped })
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
