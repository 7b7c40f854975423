package attribution

import (
	"encoding/xml"
	"html"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gic/harness/record"
)

// The section holds every gap with the numbers of the text, is well-formed, and refers to what is there.
func TestHTML(t *testing.T) {
	a := published(t, "P-IB")
	section, err := HTML([]*Analysis{a})
	if err != nil {
		t.Fatal(err)
	}
	text := string(section)
	wellFormed(t, text)
	said := html.UnescapeString(text)
	for _, want := range []string{"NVSHMEM IBGDA api=public", "+4.09", "4.09 to 4.45", "0.16 to 0.52", "interaction", "loaded-without-carried", Page} {
		if !strings.Contains(said, want) {
			t.Errorf("the section does not say %q", want)
		}
	}
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(text, -1) {
		if ids[m[1]] {
			t.Errorf("id %s is there twice", m[1])
		}
		ids[m[1]] = true
	}
	for _, m := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(text, -1) {
		if !ids[m[1]] {
			t.Errorf("a link leads to %s, which is not there", m[1])
		}
	}
	if n := strings.Count(text, "<svg"); n != len(a.Judgements) {
		t.Errorf("%d pictures of %d gaps", n, len(a.Judgements))
	}
	if none, err := HTML([]*Analysis{published(t, "P-H100")}); err != nil || none != "" {
		t.Errorf("a run without gaps gives %q, %v", none, err)
	}
}

func wellFormed(t *testing.T, text string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	d.Strict = true
	for {
		if _, err := d.Token(); err == io.EOF {
			return
		} else if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
	}
}

// What a record says cannot become markup.
func TestHTMLEscapes(t *testing.T) {
	evil := `<script>alert("x")</script>`
	op := map[string]string{"op": "put", "size": "8"}
	floor := synthetic(t, "minigda", "op", op, nil, 1, 0)
	library := synthetic(t, "acme", "op", op, map[string]string{"order": "sys-release", "note": evil}, 1, 0)
	library[0].Axes = map[string]string{"op": "put", "size": "8"}
	run := newRun(floor, library)
	run.Header.Host.Hostname = evil
	a, err := Analyse(run, Options{Libraries: []*Library{{Name: "acme", Title: evil, Match: Match{Backend: "acme"}, Floor: "minigda"}}})
	if err != nil {
		t.Fatal(err)
	}
	section, err := HTML([]*Analysis{a})
	if err != nil {
		t.Fatal(err)
	}
	if text := string(section); text == "" || strings.Contains(text, "<script") {
		t.Errorf("a record's text became markup, or nothing was written: %.200s", text)
	} else {
		wellFormed(t, text)
	}
}

// A line that is no record is left out and named; the others are split all the same.
func TestLoadNamesBadLines(t *testing.T) {
	data, err := os.ReadFile("../../results/paper/P-IB/run.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(data), "\n")
	lines[5] = "{\"type\":\"case\",\"nonsense\n"
	file := filepath.Join(t.TempDir(), record.FileName)
	if err := os.WriteFile(file, []byte(strings.Join(lines, "")), 0o644); err != nil {
		t.Fatal(err)
	}
	runs, err := Load([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	if len(runs[0].Bad) != 1 || runs[0].Bad[0].Line != 6 || len(runs[0].Rows) < 100 {
		t.Errorf("bad lines %v, %d rows", runs[0].Bad, len(runs[0].Rows))
	}
}
