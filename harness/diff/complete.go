package diff

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"gic/harness/record"
)

// learnDefaults takes over what a header says of the defaults of the axes of workloads, or the keys of backends.
func (s *Set) learnDefaults(prefix string, by map[string]map[string]string) {
	if s.defaults == nil {
		s.defaults = map[string]map[string]string{}
	}
	for name, defaults := range by {
		s.defaults[prefix+name] = defaults
	}
}

// absent is a key that cases of one side lack, with the default that the other side has for it.
type absent struct {
	side  string
	kv    record.KeyValue
	cases int
}

// complete gives the measured cases of a side the axes and keys that came to be after them, at the default that the other
// side tells: an axis is added so that its default is what was done before. They are the same cases as before, only
// told in full.
func (s *Set) complete(other *Set) []absent {
	count := map[record.KeyValue]int{}
	for _, k := range s.cases {
		if k.imported {
			continue
		}
		var more []record.KeyValue
		for _, of := range [...]struct{ group, name string }{{"workload", k.workload}, {"backend", k.backend}} {
			defaults := other.defaults[of.group+"."+of.name]
			for key, v := range defaults {
				kv := record.KeyValue{Key: of.group + "." + key, Value: v}
				if _, has := k.key(kv.Key); !has {
					more = append(more, kv)
				}
			}
		}
		if more == nil {
			continue
		}
		k.keys, k.id = record.Complete(k.keys, more)
		for _, kv := range more {
			count[kv]++
		}
	}
	var out []absent
	for _, kv := range slices.SortedFunc(maps.Keys(count), func(a, b record.KeyValue) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value))
	}) {
		out = append(out, absent{s.Label, kv, count[kv]})
	}
	return out
}

func (r *Result) completionNotes(list []absent) {
	for _, a := range list {
		r.note(nil, "default", fmt.Sprintf("%s does not say %s: %s taken for its default, %s", a.side, a.kv.Key, plural(a.cases, "case"), a.kv.Value))
	}
}
