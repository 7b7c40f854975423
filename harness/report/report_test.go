package report

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gic/harness/record"
)

var update = flag.Bool("update", false, "rewrite testdata")

func render(t testing.TB, records []record.Record, format string, width int) string {
	t.Helper()
	r := New()
	for _, rec := range records {
		r.Add(rec)
	}
	var b strings.Builder
	if err := r.Render(&b, format, width); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".stdout")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), rewrite with -update:\n%s", path, diff)
	}
}

func TestGolden(t *testing.T) {
	for name, records := range map[string][]record.Record{"quick": quick(), "trouble": trouble()} {
		for _, format := range Formats() {
			t.Run(name+"-"+format, func(t *testing.T) { golden(t, name+"-"+format, render(t, records, format, 0)) })
		}
	}
}
