package attribution

import (
	"strings"
	"testing"

	"gic/harness/record"
)

// A linter keeps what it needs of a record, that may change afterwards, and gives up on long runs with a word.
func TestLinter(t *testing.T) {
	op := map[string]string{"op": "put", "size": "8"}
	l := NewLinter()
	for _, c := range append(synthetic(t, "minigda", "op", op, map[string]string{"qps": "1"}, 3, 0),
		synthetic(t, "nvshmem", "op", op, map[string]string{"qps": "4"}, 3, 0)...) {
		l.Add(0, c)
		*c = record.Case{}
	}
	lines := l.Lines(0)
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "! unequal-queues: ") || !strings.Contains(lines[0], "qps=4") {
		t.Errorf("lines %q, want unequal queues alone", lines)
	}
	if lines := l.Lines(1); lines != nil {
		t.Errorf("a run without records: %q", lines)
	}
	one := synthetic(t, "minigda", "op", op, nil, 1, 0)[0]
	for range mostLinted {
		l.Add(0, one)
	}
	if lines := l.Lines(0); len(lines) != 1 || !strings.Contains(lines[0], "not checked") {
		t.Errorf("a long run: %q", lines)
	}
}

// Each guideline finds its case, and nothing where it is kept.
func TestLintGuidelines(t *testing.T) {
	op := map[string]string{"op": "put", "size": "8"}
	rows := func(change func(library, floor *record.Case)) *Run {
		floor, library := synthetic(t, "minigda", "op", op, nil, 6, 0), synthetic(t, "nvshmem", "op", op, nil, 6, 0)
		for i := range floor {
			if change != nil {
				change(library[i], floor[i])
			}
		}
		return newRun(floor, library)
	}
	for _, tt := range []struct {
		code   string
		change func(library, floor *record.Case)
	}{
		{"", nil},
		{"unequal-queues", func(l, f *record.Case) { l.Config["qps"] = "4" }},
		{"created-not-asked", func(l, f *record.Case) { l.Config["dci"], l.Created = "0", map[string]string{"dci": "153"} }},
		{"missing-clocks", func(l, f *record.Case) { l.Host = nil }},
		{"loaded-without-carried", func(l, f *record.Case) {
			l.Axes, f.Axes = map[string]string{"background": "64"}, map[string]string{"background": "64"}
		}},
		{"connections-without-role", func(l, f *record.Case) { l.Workload, f.Workload = "connections", "connections" }},
		{"warm-up", func(l, f *record.Case) {
			if l.Index == 0 {
				l.Metrics[0].P50 *= 3
			}
		}},
		{"few-runs", func(l, f *record.Case) {
			if l.Index > 2 {
				l.Status, l.Reason = record.Skipped, "x"
			}
		}},
	} {
		var got []string
		for _, f := range rows(tt.change).Lint(nil) {
			got = append(got, f.Code)
		}
		if want := strings.Fields(tt.code); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("findings %v, want %v", got, want)
		}
	}
}
