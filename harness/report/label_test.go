package report

import (
	"strings"
	"testing"

	"gic/harness/record"

	"github.com/google/go-cmp/cmp"
)

// Labels that do not fit say what is not as usual, and the usual is said once: the default where any row has it, else what
// most have. No two rows get one label, and a key that some rows lack is never left to the reader.
func TestUnusualLabels(t *testing.T) {
	labelled := func(mark string, parts ...string) *row {
		w := &row{backend: "lib", mark: mark}
		for _, p := range parts {
			k, v, _ := strings.Cut(p, "=")
			w.parts = append(w.parts, record.KeyValue{Key: k, Value: v})
		}
		return w
	}
	u := &run{header: &record.Header{Defaults: map[string]map[string]string{"lib": {"rc": "2", "order": "auto", "level": "public"}}}}
	rows := []*row{
		labelled("", "level=public", "order=fence", "rc=1", "path=a"), labelled("", "level=inlined", "order=fence", "rc=1", "path=a"),
		labelled("", "level=public", "order=fence", "rc=2", "path=a"), labelled("", "level=public", "order=none", "rc=1", "path=a", "more=x"),
		labelled(" (imported)", "level=public", "order=fence", "rc=1", "path=a", "more=y"),
	}
	labels, keys := u.usual(rows)
	want := []string{"lib rc=1", "lib level=inlined rc=1", "lib", "lib order=none rc=1 more=x", "lib rc=1 more=y (imported)"}
	if d := cmp.Diff(want, labels); d != "" {
		t.Errorf("labels (-want +got):\n%s", d)
	}
	if want := "rows of lib, where they do not say otherwise: level=public order=fence path=a rc=2"; keys != want {
		t.Errorf("%q, want %q", keys, want)
	}
	if labels, keys := u.usual([]*row{{backend: "lib"}, {backend: "lib"}}); labels != nil || keys != "" {
		t.Errorf("rows that say nothing: %q, %q", labels, keys)
	}
}
