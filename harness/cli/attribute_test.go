package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gic/harness/record"
)

// paperDir is the published figures from here.
const paperDir = "../../results/paper"

func TestAttributeGolden(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
	}{
		{"help-attribute", []string{"help", "attribute"}},
		{"attribute-terms", []string{"attribute", "--terms"}},
		{"attribute-nvshmem", []string{"attribute", paperDir, "--platform", "P-IB", "--case", "backend:nvshmem workload:op backend.api:public"}},
		{"attribute-p-ib", []string{"attribute", paperDir, "--platform", "P-IB"}},
		{"attribute-p-roce", []string{"attribute", paperDir, "--platform", "P-RoCE"}},
		{"attribute-brief", []string{"attribute", paperDir, "--format", "brief"}},
		{"attribute-markdown", []string{"attribute", paperDir, "--platform", "P-GB200", "--case", "backend:ncclgin workload:op", "--format", "markdown"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, stdout, stderr := gic(t, tt.args...)
			if status != 0 || stderr != "" {
				t.Fatalf("status %d, stderr %q", status, stderr)
			}
			if tt.name != "attribute-markdown" {
				narrow(t, tt.name, stdout)
			}
			golden(t, tt.name, stdout)
		})
	}
}

// What makes no sense is one line and status 2: what is wrong, the value, what is allowed.
func TestAttributeRefuses(t *testing.T) {
	empty := t.TempDir()
	text := filepath.Join(empty, "notes.txt")
	if err := os.WriteFile(text, []byte("hello\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(empty, "bad.yaml")
	if err := os.WriteFile(bad, []byte("name: x\ntitle: y\nmatch: {backend: z}\nfloor: nvshmem\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		args []string
		want []string
	}{
		{"nothing", nil, []string{"at least one DIR or FILE"}},
		{"no such folder", []string{filepath.Join(empty, "no")}, []string{"no such file"}},
		{"empty folder", []string{t.TempDir()}, []string{record.FileName}},
		{"no run", []string{text}, []string{"is no run file"}},
		{"platform", []string{paperDir, "--platform", "P-X"}, []string{"P-X", "P-GB200, P-H100, P-IB, P-RoCE"}},
		{"case", []string{paperDir, "--case", "backend:("}, []string{"--case"}},
		{"case of no key", []string{paperDir, "--case", "backend.colour:red"}, []string{"backend.colour", "backend.order"}},
		{"case of no record", []string{paperDir, "--case", "backend:openshmem"}, []string{"openshmem", "no record matches"}},
		{"order", []string{paperDir, "--order", "luck"}, []string{"luck", "ordering"}},
		{"format", []string{paperDir, "--format", "pdf"}, []string{"pdf", "json"}},
		{"pose", []string{paperDir, "--as", "minigda"}, []string{"minigda", "KEY=VALUE"}},
		{"pose of no floor", []string{paperDir, "--as", "nvshmem:api=public"}, []string{"nvshmem", "minigda, miniproxy"}},
		{"pose of no row", []string{paperDir, "--as", "minigda:order=soon"}, []string{"order=soon", "no row"}},
		{"library", []string{paperDir, "--library", bad}, []string{"bad.yaml", `"nvshmem"`, "minigda, miniproxy, rawstore"}},
		{"no library", []string{paperDir, "--library", filepath.Join(empty, "none.yaml")}, []string{"none.yaml"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, stdout, stderr := gic(t, append([]string{"attribute"}, tt.args...)...)
			if status != exitUsage || stdout != "" {
				t.Errorf("status %d, stdout %q", status, stdout)
			}
			if strings.Count(stderr, "\n") != 1 {
				t.Errorf("not one line: %q", stderr)
			}
			for _, w := range tt.want {
				if !strings.Contains(stderr, w) {
					t.Errorf("%q does not say %q", stderr, w)
				}
			}
		})
	}
}

// The JSON adds up in the digits that it prints, and every number says how it came about.
func TestAttributeJSON(t *testing.T) {
	status, stdout, stderr := gic(t, "attribute", paperDir, "--format", "json")
	if status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	type quantity struct {
		Value json.Number
		Basis string
	}
	var out struct {
		Runs []struct {
			Platform string
			Gaps     []struct {
				Library string
				Metric  string
				Gap     quantity
				Methods []struct {
					Method  string
					NotSeen string `json:"not_seen"`
					Parts   []struct {
						Time quantity
						How  string
					}
					Residual *quantity
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(stdout), &out); err != nil {
		t.Fatal(err)
	}
	femto := func(n json.Number) int64 {
		v, err := n.Float64()
		if err != nil {
			t.Fatal(err)
		}
		f := v * 1e15
		if f < 0 {
			return int64(f - 0.5)
		}
		return int64(f + 0.5)
	}
	gaps, splits := 0, 0
	for _, r := range out.Runs {
		for _, g := range r.Gaps {
			gaps++
			for _, m := range g.Methods {
				if (m.NotSeen == "") == (m.Residual == nil) {
					t.Errorf("%s %s: %s is seen and not seen, or neither", g.Library, g.Metric, m.Method)
				}
				if m.Residual == nil {
					continue
				}
				splits++
				sum := femto(m.Residual.Value)
				for _, p := range m.Parts {
					sum += femto(p.Time.Value)
					if p.How == "" || p.Time.Basis == "" {
						t.Errorf("%s %s: a part of %s does not say how it came about", g.Library, g.Metric, m.Method)
					}
				}
				if sum != femto(g.Gap.Value) {
					t.Errorf("%s %s, %s: parts and residual are %d fs, the gap %d fs", g.Library, g.Metric, m.Method, sum, femto(g.Gap.Value))
				}
			}
		}
	}
	if len(out.Runs) != 4 || gaps < 40 || splits < 45 {
		t.Errorf("%d runs, %d gaps, %d splits: the paper has more", len(out.Runs), gaps, splits)
	}
}

// The examples of the help text parse, and those on the published figures run.
func TestAttributeExamples(t *testing.T) {
	n := 0
	for _, command := range examples(helpAttribute) {
		words := split(t, command)
		for i, w := range words {
			if w == "results/paper" {
				words[i] = paperDir
			}
		}
		n++
		if strings.Contains(command, "results/local") {
			f, _ := newAttributeFlags()
			if err := f.parse(words[2:]); err != nil {
				t.Errorf("%s: %v", command, err)
			}
			continue
		}
		if status, _, stderr := gic(t, words[1:]...); status != 0 {
			t.Errorf("%s: status %d: %s", command, status, stderr)
		}
	}
	if n != 6 {
		t.Errorf("%d examples, want 6", n)
	}
}

// A report of runs that hold gaps shows them; one of others has no such section.
func TestReportShowsAttribution(t *testing.T) {
	for platform, want := range map[string]bool{"P-IB": true, "P-H100": false} {
		status, page, stderr := gic(t, "report", filepath.Join(paperDir, platform), "-o", "-")
		if status != 0 {
			t.Fatalf("status %d: %s", status, stderr)
		}
		if got := strings.Contains(page, `<section id="attribution"`) && strings.Contains(page, `href="#attribution"`); got != want {
			t.Errorf("%s: the section is there: %v, want %v", platform, got, want)
		}
	}
}

// A table says which guidelines of a comparison its rows do not keep, each once, with where that is explained.
func TestTablesAreLinted(t *testing.T) {
	for _, format := range []string{"table", "markdown"} {
		status, stdout, stderr := gic(t, "show", filepath.Join(paperDir, "P-GB200"), "--format", format)
		if status != 0 {
			t.Fatalf("status %d: %s", status, stderr)
		}
		if format == "table" {
			narrow(t, format, stdout)
		}
		for _, code := range []string{"created-not-asked", "loaded-without-carried", "warm-up"} {
			if n := strings.Count(strings.Join(strings.Fields(stdout), ""), "docs/attribution.md#"+code); n != 1 {
				t.Errorf("%s: %s is said %d times, want once", format, code, n)
			}
		}
	}
	if _, stdout, _ := gic(t, "show", filepath.Join(paperDir, "P-GB200"), "--format", "csv"); strings.Contains(stdout, "docs/attribution.md") {
		t.Error("csv holds remarks")
	}
}
