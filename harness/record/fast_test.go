package record

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPlainIsTaken: what the Writer writes takes the fast way, so that the tests of it test something.
func TestPlainIsTaken(t *testing.T) {
	_, c0, _, _ := threeCases(t)
	if !newDecoder(false).plain([]byte(strings.TrimSuffix(c0, "\n")), new(Case)) {
		t.Error("a line of the Writer is not of the plain form")
	}
}

// TestPlainAgrees holds the decoder to encoding/json on lines that are damaged in each place.
func TestPlainAgrees(t *testing.T) {
	_, c0, _, _ := threeCases(t)
	line := []byte(strings.TrimSuffix(c0, "\n"))
	for i := range line {
		compareDecoders(t, line[:i], new(Case), new(Case))
		for _, c := range []byte{'"', ',', '-', '0', 'e', '{', ']', '\\', 0, 0xff, ' '} {
			bad := bytes.Clone(line)
			bad[i] = c
			if i%7 == int(c)%7 { // all places, not all of them with all bytes
				compareDecoders(t, bad, new(Case), new(Case))
			}
		}
		if t.Failed() {
			t.Fatalf("at byte %d: %.60q", i, line[max(0, i-20):])
		}
	}
	for _, odd := range []string{
		`{"type":"case","axes":{"a":"1","a":"2"},"axes":{"b":"3"}}`, `{"type":"case","metrics":[{"n":1},{"n":1.0}]}`,
		`{"type":"case","seed":01}`, `{"type":"case","seed":-0}`, `{"type":"case","duration":1e999}`, `{"type":"case","duration":.5}`,
		`{"type":"case","facts":{"a":[1,{"b":null}],"c":{}}}`, `{"type":"case","host":null,"verify":{"checked":1,"first":"x"}}`,
		`{"type":"case","metrics":[],"counters":[],"warnings":[],"library":[],"axes":{}}`, `{"type":"case"}x`, `{"type":"case",}`,
		`{"type":"case","status":"µ","expected":{"a":18446744073709551616}}`, `{"type":"case","start":"2026-13-01T00:00:00Z"}`, `{}`, ``,
	} {
		compareDecoders(t, []byte(odd), new(Case), new(Case))
	}
}

// TestReadSummaries: all but the raw samples, and the same complaints.
func TestReadSummaries(t *testing.T) {
	h, c0, c1, c2 := threeCases(t)
	rng := rand.New(rand.NewPCG(5, 5))
	var b strings.Builder
	b.WriteString(h + c0 + c1)
	for range 300 { // one byte of a case is another
		bad := []byte(c2)
		bad[rng.IntN(len(bad)-1)] = "0-9e.,\"x}"[rng.IntN(9)]
		b.Write(bad)
	}
	for _, s := range []string{"-5.21e-8", "5.21e999", "5.21e-8,5.21e-8", ""} {
		b.WriteString(strings.Replace(c2, `"samples":[5.21e-8]`, `"samples":[`+s+`]`, 1))
	}
	path := filepath.Join(t.TempDir(), FileName)
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	type line struct {
		At     int
		Case   *Case
		Header *Header
		Bad    string
	}
	collect := func(lean bool) (out []line) {
		for at, err := range readLines(path, lean) {
			if err != nil {
				t.Fatal(err)
			}
			l := line{At: at.Line}
			switch rec := at.Record.(type) {
			case *Case:
				if !lean {
					trim(rec)
				}
				l.Case = rec
			case *Header:
				l.Header = rec
			case *Bad:
				l.Bad = rec.Error()
			}
			out = append(out, l)
		}
		return out
	}
	if diff := cmp.Diff(collect(false), collect(true)); diff != "" {
		t.Errorf("(-all +summaries):\n%s", diff)
	}
}
