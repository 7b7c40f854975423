package figures

import (
	"fmt"
	"slices"
	"strings"

	"gic/harness/record"
	"gic/harness/report"
)

// longName is how many characters of a name fit into a legend's line.
const longName = 44

// names tell rows apart in one figure. Where the labels of a backend are too long, the parts that all its rows
// share are taken out and returned in common, to be said once. The swept key, if any, is in neither.
func names(rows []*report.RowView, key string) (list []string, common string) {
	places, ranks := map[string]bool{}, map[string]bool{}
	var backends []string
	for _, r := range rows {
		places[r.Where], ranks[value(r.Keys, "ranks")] = true, true
		backends = appendNew(backends, r.Backend)
	}
	shared := map[string][]record.KeyValue{}
	var said []string
	for _, b := range backends {
		shared[b] = sharedParts(rows, b, key)
		if shared[b] != nil {
			said = append(said, b+" "+text(shared[b]))
		}
	}
	used := map[string]int{}
	for _, r := range rows {
		name := r.Backend
		for _, kv := range r.Parts {
			if "backend."+kv.Key != key && !slices.Contains(shared[r.Backend], kv) {
				name += " " + kv.Key + "=" + kv.Value
			}
		}
		name += r.Mark
		if len(places) > 1 {
			name += " " + r.Where
		}
		if len(ranks) > 1 {
			name += " ranks=" + value(r.Keys, "ranks")
		}
		name = report.Clean(name)
		if used[name]++; used[name] > 1 {
			name += fmt.Sprintf(" (%d)", used[name])
		}
		list = append(list, name)
	}
	return list, strings.Join(said, "; ")
}

// sharedParts are the parts that all rows of a backend have, nil if none of their labels is too long.
func sharedParts(rows []*report.RowView, backend, key string) []record.KeyValue {
	var shared []record.KeyValue
	long, first := false, true
	for _, r := range rows {
		if r.Backend != backend {
			continue
		}
		parts := slices.DeleteFunc(slices.Clone(r.Parts), func(kv record.KeyValue) bool { return "backend."+kv.Key == key })
		long = long || len(backend)+1+len(text(parts))+len(r.Mark) > longName
		if first {
			shared, first = parts, false
			continue
		}
		shared = slices.DeleteFunc(shared, func(kv record.KeyValue) bool { return !slices.Contains(parts, kv) })
	}
	if !long || len(shared) == 0 {
		return nil
	}
	return shared
}

// text writes keys with all of their names.
func text(keys []record.KeyValue) string {
	var parts []string
	for _, kv := range keys {
		parts = append(parts, strings.TrimPrefix(kv.Key, "workload.")+"="+kv.Value)
	}
	return strings.Join(parts, " ")
}
