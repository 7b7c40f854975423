package results

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchproc"

	"gic/harness/record"
)

// Keys gives what a filter or a projection can say of a record: the keys of record.Flatten, and status, run,
// suite, host, gic and launch. The header may be nil.
func Keys(h *record.Header, c *record.Case) []record.KeyValue {
	kv := append(record.Flatten(c), record.KeyValue{Key: "status", Value: string(c.Status)})
	if h != nil {
		kv = append(kv, record.KeyValue{Key: "run", Value: h.ID}, record.KeyValue{Key: "suite", Value: h.Suite},
			record.KeyValue{Key: "host", Value: h.Host.Hostname}, record.KeyValue{Key: "gic", Value: h.Gic},
			record.KeyValue{Key: "launch", Value: h.Launch})
	}
	return kv
}

// Filter is a condition on records in the syntax of golang.org/x/perf/benchproc, as benchstat has it: key:value,
// key:"value", key:/regexp/, key:(a OR b), AND (or a space), OR, - for not, parentheses, * for everything. A key
// that a record does not have is empty there.
type Filter struct {
	text string
	keys []string
	f    *benchproc.Filter
	seen map[string]bool // keys of the records, of the first ones and those that the filter asks for
	n    int             // records looked at
}

// sampleKeys is how many records are asked for all their keys, to know what can be asked for.
const sampleKeys = 1000

// NewFilter parses a filter; the empty one takes everything.
func NewFilter(text string) (*Filter, error) {
	if strings.TrimSpace(text) == "" {
		return &Filter{}, nil
	}
	f, err := newFilter(text)
	if err != nil {
		return nil, fmt.Errorf("filter %q: %w", text, err)
	}
	keys := filterKeys(text)
	for _, k := range keys {
		if strings.HasPrefix(k, ".") || strings.HasPrefix(k, "/") {
			return nil, fmt.Errorf("filter %q: no key begins with %q; keys are workload, workload.AXIS, backend, "+
				"backend.KEY, nic, nic.KEY, device, ranks, seed, index, status, run, suite, host, gic, launch", text, k[:1])
		}
	}
	return &Filter{text: text, keys: keys, f: f, seen: map[string]bool{}}, nil
}

// newFilter keeps a panic of the parser from reaching the user as one.
func newFilter(text string) (f *benchproc.Filter, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("cannot be read: %v", p)
		}
	}()
	f, err = benchproc.NewFilter(text)
	if err != nil {
		return nil, fmt.Errorf("%s", strings.Join(strings.Fields(err.Error()), " "))
	}
	return f, nil
}

// Match says whether a record with these keys passes. Not safe for concurrent use.
func (f *Filter) Match(kv []record.KeyValue) bool {
	if f == nil || f.f == nil {
		return true
	}
	f.n++
	for _, k := range f.keys {
		f.seen[k] = f.seen[k] || slices.ContainsFunc(kv, func(v record.KeyValue) bool { return v.Key == k })
	}
	if f.n <= sampleKeys {
		for _, v := range kv {
			f.seen[v.Key] = true
		}
	}
	m, err := f.f.Match(result(kv))
	return err == nil && m.All()
}

// Known lists the keys that records had, sorted.
func (f *Filter) Known() []string {
	var out []string
	for k, ok := range f.seen {
		if ok {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// Unknown are the keys of the filter that no record had so far: most likely misspelt. None before any record.
func (f *Filter) Unknown() []string {
	if f == nil || f.n == 0 {
		return nil
	}
	var out []string
	for _, k := range f.keys {
		if !f.seen[k] {
			out = append(out, k)
		}
	}
	return out
}

// result puts keys into the form that benchproc works on. The one value stands for the record as a whole.
func result(kv []record.KeyValue) *benchfmt.Result {
	r := &benchfmt.Result{Name: benchfmt.Name("Gic"), Iters: 1, Values: []benchfmt.Value{{Value: 1, Unit: "record"}}}
	for _, v := range kv {
		r.SetConfig(v.Key, v.Value)
	}
	return r
}

// filterKeys finds the keys of a filter that has been parsed already, so that only valid syntax is met.
func filterKeys(text string) []string {
	var keys []string
	add := func(k string) {
		if !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	inValue := false // what follows a colon is a value, and a list of them is in parentheses
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '"':
			end := quoted(text, i)
			word, err := strconv.Unquote(text[i:end])
			if err == nil && !inValue && end < len(text) && text[end] == ':' {
				add(word)
			}
			inValue, i = false, end
		case c == '/' && inValue:
			i++
			for i < len(text) && text[i] != '/' {
				if text[i] == '\\' {
					i++
				}
				i++
			}
			inValue, i = false, i+1
		case c == ':':
			inValue, i = true, i+1
		case c == '(' && inValue:
			i = closing(text, i)
			inValue = false
		case strings.IndexByte(" ()-*,@\t\n", c) >= 0:
			i++
		default:
			end := i
			for end < len(text) && strings.IndexByte(" ():@,\t\n", text[end]) < 0 {
				end++
			}
			if !inValue && end < len(text) && text[end] == ':' {
				add(text[i:end])
			}
			inValue, i = false, max(end, i+1)
		}
	}
	return keys
}

// quoted returns the end of the string that starts at i.
func quoted(text string, i int) int {
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// closing returns the end of the list of values whose parenthesis is at i. Slashes and quotes may hide others.
func closing(text string, i int) int {
	start := true // of a value, where a slash begins a regexp
	for i++; i < len(text); {
		switch c := text[i]; {
		case c == '"':
			i, start = quoted(text, i), false
		case c == '/' && start:
			for i++; i < len(text) && text[i] != '/'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			i, start = i+1, false
		case c == ')':
			return i + 1
		default:
			i, start = i+1, c == ' '
		}
	}
	return len(text)
}
