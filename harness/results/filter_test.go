package results

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gic/harness/record"
)

func keysOf(text string) []record.KeyValue {
	var kv []record.KeyValue
	for part := range strings.FieldsSeq(text) {
		k, v, _ := strings.Cut(part, "=")
		kv = append(kv, record.KeyValue{Key: k, Value: strings.ReplaceAll(v, "_", " ")})
	}
	return kv
}

func TestFilter(t *testing.T) {
	kv := keysOf("workload=op backend=minigda backend.batch=16 status=ok host=node_one nic.profile=cx7-200")
	for _, tc := range []struct {
		filter string
		want   bool
	}{
		{"", true}, {"*", true}, {"workload:op", true}, {"workload:rate", false}, {"-workload:rate", true},
		{"workload:op backend:minigda", true}, {"workload:op AND backend:miniproxy", false}, {"workload:rate OR backend:minigda", true},
		{"workload:op backend:(minigda OR miniproxy) backend.batch:16 -status:skipped", true},
		{"backend:(miniproxy OR nvshmem)", false}, {`host:"node one"`, true}, {`"host":"node one"`, true}, {"host:/^node/", true},
		{"backend:/proxy/", false}, {"nic.profile:cx7-200", true}, {"-(workload:op backend:miniproxy)", true}, {"backend.qps:4", false},
	} {
		f, err := NewFilter(tc.filter)
		if err != nil {
			t.Errorf("%q: %v", tc.filter, err)
			continue
		}
		if got := f.Match(kv); got != tc.want {
			t.Errorf("%q: %v, want %v", tc.filter, got, tc.want)
		}
	}
}

func TestFilterErrors(t *testing.T) {
	for _, text := range []string{"workload", "workload:", ":op", "(workload:op", "workload:op)", `host:"x`, "host:/[/", "host:/x", "-", "a:(b OR", "OR", ".name:x", "/size:4k", ".unit:s"} {
		f, err := NewFilter(text)
		if err == nil {
			t.Errorf("%q is no error: %+v", text, f)
			continue
		}
		if !strings.Contains(err.Error(), "filter") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %q does not name the filter in one line", text, err)
		}
	}
}

func TestFilterKeys(t *testing.T) {
	for _, tc := range []struct {
		text string
		want []string
	}{
		{"*", nil}, {"a:b", []string{"a"}}, {"a:b c:d a:e", []string{"a", "c"}}, {`"x y":z`, []string{"x y"}}, {`a:"b:c" d:e`, []string{"a", "d"}},
		{"a:/b:c/ d:e", []string{"a", "d"}}, {"a:(b OR c OR /(d:e)/) f:g", []string{"a", "f"}}, {"-(a:b OR -c:d)", []string{"a", "c"}},
		{"a:/(b/c:d)[/e:]/ f:g", []string{"a", "f"}}, {`a:("b)c" OR d) e:f`, []string{"a", "e"}},
	} {
		if _, err := NewFilter(tc.text); err != nil {
			t.Errorf("%q: %v", tc.text, err)
		}
		if diff := cmp.Diff(tc.want, filterKeys(tc.text)); diff != "" {
			t.Errorf("keys of %q (-want +got):\n%s", tc.text, diff)
		}
	}
	f, err := NewFilter("wrkload:op backend:minigda")
	if err != nil {
		t.Fatal(err)
	}
	if u := f.Unknown(); u != nil {
		t.Errorf("before any record, %v is unknown", u)
	}
	f.Match(keysOf("workload=op backend=minigda"))
	if diff := cmp.Diff([]string{"wrkload"}, f.Unknown()); diff != "" {
		t.Errorf("unknown keys (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"backend", "workload"}, f.Known()); diff != "" {
		t.Errorf("known keys (-want +got):\n%s", diff)
	}
}

// FuzzFilter: whatever the text, a filter is an error or answers; a key that decides is one that filterKeys found.
func FuzzFilter(f *testing.F) {
	for _, s := range []string{"", "*", "a:b", `-(a:"b c" OR /x/:y) d:(e OR /f(g)/)`, "a:/\\//", "a:(/)/)", "\xff:\x00", "((((", `a:"\x`, "a:b,c@(d e)", "OR:AND", "-*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1000 {
			return
		}
		filter, err := NewFilter(text)
		if err != nil {
			return
		}
		got := filter.Match(keysOf("workload=op backend=minigda"))
		if again := filter.Match(keysOf("workload=op backend=minigda")); again != got {
			t.Errorf("%q: %v, then %v", text, got, again)
		}
		// A filter without a key cannot tell records apart.
		if len(filter.keys) == 0 && filter.Match(nil) != got {
			t.Errorf("%q tells records apart, but no key was found in it", text)
		}
		_ = filter.Unknown()
	})
}
