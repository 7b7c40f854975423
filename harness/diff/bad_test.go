package diff

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gic/harness/record"
)

// What cannot be read is named with file and line, and nothing else is lost.
func TestBadRecords(t *testing.T) {
	s := newSynth("one", 1)
	path := s.write(t, t.TempDir())
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(strings.TrimSuffix(string(whole), "\n"), "\n")
	records := len(lines) - 1
	edit := func(line int, from, to string) []string {
		out := slices.Clone(lines)
		if out[line] = strings.Replace(out[line], from, to, 1); out[line] == lines[line] {
			t.Fatalf("line %d holds no %q", line, from)
		}
		return out
	}
	for _, tc := range []struct {
		name  string
		lines []string
		bad   int // lines named
		want  string
		repts int
	}{
		{"truncated", slices.Concat(lines[:len(lines)-1], []string{lines[len(lines)-1][:200]}), 1, fmt.Sprintf(":%d: torn last line", len(lines)), 0},
		{"a flipped key", edit(3, `"size":`, `"sizd":`), 1, ":4: id", 0},
		{"a flipped id", edit(3, `"id":"`, `"id":"f`), 1, ":4: id", 0},
		{"NaN", edit(3, `"min":`, `"min":NaN,"x":`), 1, ":4: ", 0},
		{"infinite", edit(3, `"p99":`, `"p99":1e999,"x":`), 1, ":4: ", 0},
		{"mixed units", edit(3, `"unit":"s"`, `"unit":"us"`), 1, `:4: case op/minigda: metric rtt: unit "us"`, 0},
		{"no JSON", edit(3, `{`, `<`), 1, ":4: ", 0},
		{"a duplicate", slices.Concat(lines[:3], lines[2:]), 0, ":4 repeats process run 0 of", 1},
		{"another schema", slices.Concat(lines, []string{"\n", strings.Replace(lines[0], "gic.run/1", "gic.run/9", 1), lines[1], lines[2]}), 2, `schema "gic.run/9"`, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), record.FileName)
			if err := os.WriteFile(file, []byte(strings.Join(tc.lines, "")), 0o644); err != nil {
				t.Fatal(err)
			}
			got := load(t, "NEW", file)
			told := strings.Join(append(slices.Clone(got.Bad), got.FirstRepeated), "\n")
			if len(got.Bad) != tc.bad || got.Repeated != tc.repts || !strings.Contains(told, file) || !strings.Contains(told, tc.want) {
				t.Errorf("told %d bad lines and %d repeats, want %d and %d with %q:\n%s", len(got.Bad), got.Repeated, tc.bad, tc.repts, tc.want, told)
			}
			if want := records - min(tc.bad, 1) + tc.repts; tc.name != "another schema" && got.Records != want {
				t.Errorf("%d records were read, want %d", got.Records, want)
			}
			if _, err := Compare(load(t, "OLD", path), got, Options{Alpha: 0.05}); err != nil {
				t.Error(err)
			}
		})
	}
}

// Any single flipped bit is survived: every line is a record or named.
func TestFlippedBits(t *testing.T) {
	s := newSynth("one", 1)
	s.cases, s.repeat = 2, 2
	path := s.write(t, t.TempDir())
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	old := load(t, "OLD", path)
	rng := rand.New(rand.NewPCG(8, 1))
	file := filepath.Join(t.TempDir(), record.FileName)
	header := strings.IndexByte(string(whole), '\n') + 1
	for range 400 {
		text := slices.Clone(whole)
		at := header + rng.IntN(len(text)-header)
		text[at] ^= 1 << rng.IntN(8)
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
		got := load(t, "NEW", file)
		lines := strings.Count(string(text), "\n") - 1
		if text[len(text)-1] != '\n' {
			lines++
		}
		if n := got.Records + len(got.Bad); n != lines {
			t.Fatalf("bit at %d: %d lines, %d records and %d bad ones", at, lines, got.Records, len(got.Bad))
		}
		r, err := Compare(old, got, Options{Alpha: 0.05})
		var unlike *UnlikeError
		if err != nil && !errors.As(err, &unlike) {
			t.Fatalf("bit at %d: %v", at, err)
		}
		if err == nil {
			var b strings.Builder
			if err := r.Render(&b, "table", 100); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A hundred thousand lines of rubbish behind a header are named, not fatal, and do not flood the reader.
func TestManyBadLines(t *testing.T) {
	s := newSynth("one", 1)
	path := s.write(t, t.TempDir())
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	const n = 100000
	if _, err := f.WriteString(strings.Repeat("{\"type\":\"case\"}\n", n)); err != nil {
		t.Fatal(err)
	}
	f.Close()
	got := load(t, "NEW", path)
	if len(got.Bad) != n || got.Records != 24 {
		t.Fatalf("%d bad lines and %d records, want %d and 24", len(got.Bad), got.Records, n)
	}
	r, err := Compare(got, got, Options{Alpha: 0.05})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := r.Render(&b, "table", 100); err != nil {
		t.Fatal(err)
	}
	if b.Len() > 20000 || !strings.Contains(b.String(), "199980 more such lines") {
		t.Errorf("a table of %d bytes:\n%.2000s", b.Len(), b.String())
	}
}
