package cli

import (
	"encoding/xml"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gic/harness/record"
	"gic/harness/report/reporttest"
)

// sampleRun writes a run with everything that is plotted.
func sampleRun(t *testing.T, dir, id string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w, err := record.Create(filepath.Join(dir, record.FileName))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for i, rec := range reporttest.Run(3) {
		if h, ok := rec.(*record.Header); ok && i == 0 {
			h.ID = id
		}
		if err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
	}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestReportWritesAPage(t *testing.T) {
	dir := t.TempDir()
	sampleRun(t, filepath.Join(dir, "runs", "a"), "run-a")
	sampleRun(t, filepath.Join(dir, "runs", "b"), "run-b")
	out := filepath.Join(dir, "report.html")
	status, stdout, stderr := gic(t, "report", filepath.Join(dir, "runs"), "-o", out)
	if status != 0 || stdout != out+"\n" || stderr != "" {
		t.Fatalf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	page := readText(t, out)
	for _, text := range []string{
		`<h1>gic report: run-a, run-b</h1>`, `data-name="1-a-run.jsonl"`, `data-name="2-b-run.jsonl"`, `data-name="results.csv"`,
		"op: what is timed", "Goodput over size",
	} {
		if !strings.Contains(page, text) {
			t.Errorf("the page does not hold %q", text)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".report.html*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	status, stdout, stderr = gic(t, "report", filepath.Join(dir, "runs", "a"), "-o", "-")
	if status != 0 || !strings.HasPrefix(stdout, "<!DOCTYPE html>") || stderr != "" {
		t.Errorf("-o -: status %d, stdout %.40q, stderr %q", status, stdout, stderr)
	}
}

func TestReportAsMarkdown(t *testing.T) {
	dir := t.TempDir()
	sampleRun(t, dir, "run_a|b")
	status, stdout, stderr := gic(t, "report", dir, "--format", "markdown")
	if status != 0 || stderr != "" {
		t.Fatalf("status %d, stderr %q", status, stderr)
	}
	for _, text := range []string{`# gic report: run\_a`, "### op", "| point |", "## Method and machine", "AMD Ryzen 7 7840U", "built without CUDA"} {
		if !strings.Contains(stdout, text) {
			t.Errorf("the report does not say %q", text)
		}
	}
}

// A file that can stand nowhere is a mistake of the request, named as it was given.
func TestNowhereToWrite(t *testing.T) {
	dir := t.TempDir()
	sampleRun(t, dir, "run-a")
	for _, tt := range []struct{ out, why string }{
		{filepath.Join(dir, "none", "x"), "no such file or directory"}, {dir, "is a directory"},
	} {
		for _, args := range [][]string{
			{"report", dir, "-o", tt.out}, {"export", "--format", "csv", dir, "-o", tt.out},
			{"calibrate", paperRows + "/P-IB", "-o", tt.out},
		} {
			status, stdout, stderr := gic(t, args...)
			if want := "gic: write " + tt.out + ": " + tt.why + "\n"; status != exitUsage || stdout != "" || stderr != want {
				t.Errorf("gic %s: status %d, stdout %q, stderr %q, want %q", strings.Join(args, " "), status, stdout, stderr, want)
			}
		}
	}
}

// TestReportPlots reads every plot back: each is there as SVG and as PNG.
func TestReportPlots(t *testing.T) {
	dir := t.TempDir()
	sampleRun(t, dir, "run-a")
	plots := filepath.Join(dir, "plots")
	status, _, stderr := gic(t, "report", dir, "-o", filepath.Join(dir, "r.html"), "--plots", plots)
	if status != 0 || stderr != "" {
		t.Fatalf("status %d, stderr %q", status, stderr)
	}
	names, err := filepath.Glob(filepath.Join(plots, "*.svg"))
	if err != nil || len(names) < 15 {
		t.Fatalf("%d plots, %v", len(names), err)
	}
	for _, name := range names {
		d := xml.NewDecoder(strings.NewReader(readText(t, name)))
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		f, err := os.Open(strings.TrimSuffix(name, ".svg") + ".png")
		if err != nil {
			t.Fatal(err)
		}
		c, err := png.DecodeConfig(f)
		f.Close()
		if err != nil || c.Width < 1000 {
			t.Errorf("%s: %d pixels wide, %v", name, c.Width, err)
		}
	}
}

// TestReportOfDamagedRuns cuts and breaks a run file: what is left is reported, what is lost is named.
func TestReportOfDamagedRuns(t *testing.T) {
	dir := t.TempDir()
	sampleRun(t, dir, "run-a")
	whole := readText(t, filepath.Join(dir, record.FileName))
	lines := strings.SplitAfter(whole, "\n")
	lines[3] = `{"type":"case","id":5}` + "\n"
	lines[4] = "<script>alert(1)</script>\n"
	broken := strings.Join(lines, "")
	path := filepath.Join(dir, "broken.jsonl")
	if err := os.WriteFile(path, []byte(broken[:len(broken)-40]), 0o644); err != nil {
		t.Fatal(err)
	}
	status, page, stderr := gic(t, "report", path, "-o", "-")
	if status != 0 || stderr != "" {
		t.Fatalf("status %d, stderr %q", status, stderr)
	}
	for _, at := range []string{":4:", ":5:", "Some records could not be read"} {
		if !strings.Contains(page, at) {
			t.Errorf("the page does not name %q", at)
		}
	}
	if strings.Contains(page, "<script>alert") {
		t.Error("a broken line became markup")
	}
}

func TestReportBadInput(t *testing.T) {
	dir := t.TempDir()
	sampleRun(t, dir, "run-a")
	garbage := filepath.Join(dir, "garbage.jsonl")
	if err := os.WriteFile(garbage, []byte("this is no record\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args   []string
		status int
		want   []string
	}{
		{nil, 2, []string{"at least one DIR or FILE"}},
		{[]string{dir + "/nope"}, 2, []string{"/nope", "no such file"}},
		{[]string{garbage}, 2, []string{garbage, "no run file"}},
		{[]string{dir, "--format", "pdf"}, 2, []string{"--format pdf", "allowed: html, markdown"}},
		{[]string{dir, "-o", dir + "/no/such/folder.html"}, 2, []string{"/no/such"}},
		{[]string{dir, "--plots", garbage}, 1, []string{garbage}},
		{[]string{dir, "--plot", dir}, 2, []string{"--plots"}},
	} {
		status, _, stderr := gic(t, append([]string{"report"}, tt.args...)...)
		if status != tt.status || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: status %d, stderr %q", tt.args, status, stderr)
		}
		for _, w := range tt.want {
			if !strings.Contains(stderr, w) {
				t.Errorf("%q: stderr %q does not say %q", tt.args, stderr, w)
			}
		}
	}
}

// TestHistoryPlots draws a case over ten runs, the later of which are slower.
func TestHistoryPlots(t *testing.T) {
	dir := t.TempDir()
	for i := range 12 {
		run := filepath.Join(dir, "runs", string(rune('a'+i)))
		if err := os.MkdirAll(run, 0o755); err != nil {
			t.Fatal(err)
		}
		w, err := record.Create(filepath.Join(run, record.FileName))
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range reporttest.Run(2) {
			switch rec := rec.(type) {
			case *record.Header:
				rec.ID, rec.Time = "run-"+string(rune('a'+i)), rec.Time.AddDate(0, 0, i)
			case *record.Case:
				for j := range rec.Metrics {
					scale := 1 + 0.01*float64(i%3) + float64(i/6)
					m, err := record.FromSamples(rec.Metrics[j].Name, rec.Metrics[j].Unit, rec.Metrics[j].Class, []float64{rec.Metrics[j].P50 * scale})
					if err != nil {
						t.Fatal(err)
					}
					m.Headline = true
					rec.Metrics[j] = m
				}
			}
			if err := w.Write(rec); err != nil {
				t.Fatal(err)
			}
		}
		w.Close()
	}
	plots := filepath.Join(dir, "plots")
	status, stdout, stderr := gic(t, "history", "workload:op workload.size:8 backend:miniproxy", filepath.Join(dir, "runs"), "--plots", plots)
	if status != 0 || stderr != "" || !strings.Contains(stdout, "<- change") {
		t.Fatalf("status %d, stderr %q, stdout %q", status, stderr, stdout)
	}
	names, err := filepath.Glob(filepath.Join(plots, "*.svg"))
	if err != nil || len(names) != 2 {
		t.Fatalf("plots %v, %v", names, err)
	}
	for _, name := range names {
		if svg := readText(t, name); !strings.Contains(svg, "A: since run-g (2026-12-05 17:30Z)") || !strings.Contains(svg, "worse") {
			t.Errorf("%s does not show the change", name)
		}
	}
}
