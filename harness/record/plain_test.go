package record

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestPlainIsTaken: what the Writer writes takes the fast way, so that the tests of it test something.
func TestPlainIsTaken(t *testing.T) {
	_, c0, _, _ := threeCases(t)
	if !newDecoder(nil).plain([]byte(strings.TrimSuffix(c0, "\n")), new(Case)) {
		t.Error("a line of the Writer is not of the plain form")
	}
}

// TestCommittedRunsArePlain: nor is it only what the tests make up.
func TestCommittedRunsArePlain(t *testing.T) {
	files, err := filepath.Glob("../../results/*/*/" + FileName)
	if err != nil || files == nil {
		t.Fatal("no committed runs: ", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d := newDecoder(&summary{})
		for i, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
			if !bytes.HasPrefix(line, []byte(`{"type":"case"`)) {
				continue
			}
			if !d.plain(line, new(Case)) {
				t.Errorf("%s:%d is not of the plain form", file, i+1)
			}
			compareDecoders(t, line, new(Case), new(Case))
		}
	}
}

// TestNumbers: a number is what strconv makes of it, however it is written.
func TestNumbers(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	check := func(text string) {
		t.Helper()
		want, err := strconv.ParseFloat(text, 64)
		s := &scanner{}
		s.start([]byte(text))
		n := s.number()
		got := s.value(n)
		if s.bad != (err != nil) || s.i != len(text) || !s.bad && math.Float64bits(got) != math.Float64bits(want) {
			t.Errorf("%s: %v (bad: %v, %d bytes), want %v (%v)", text, got, s.bad, s.i, want, err)
		}
		if !n.large() && err != nil {
			t.Errorf("%s is too large, and not seen to be", text)
		}
	}
	for range 20000 {
		v := math.Float64frombits(rng.Uint64() >> 1)
		if math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		check(strconv.FormatFloat(v, 'e', -1, 64))
		v = math.Abs(rng.NormFloat64()) * math.Pow(10, float64(rng.IntN(40)-20))
		check(strconv.FormatFloat(v, 'f', rng.IntN(25), 64))
		check(strconv.FormatFloat(v, 'g', 1+rng.IntN(18), 64))
		check(strconv.FormatFloat(math.Round(v*1e9)/1e9, 'f', -1, 64))
		check(strconv.FormatUint(rng.Uint64()>>rng.IntN(64), 10) + "e" + strconv.Itoa(rng.IntN(60)-30))
	}
	for _, text := range []string{
		"0", "-0", "0.0", "0e5", "9007199254740993", "9007199254740992", "9007199254740993e22", "1e22", "1e23", "1e-22", "1e-23",
		"9999999999999999999", "99999999999999999999", "0.1", "0.0000000000000000000001", "1e308", "1e309", "1e-400", "1e99999999999999999999",
		"1E+5", "1e05", "123456789.12345678", "12345678", "1234567.8", strings.Repeat("9", 400), "0." + strings.Repeat("0", 400) + "1",
	} {
		check(text)
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
		`{"type":"case","imported":{"format":"csv","file":"a","sha256":"","line":-3}}`, `{"type":"case","id":"a\u003e\\\"b","index":0}`, `{"type":"case","id":"\ud800","index":0}`, `{"type":"case","seed":01}`, `{"type":"case","seed":-0}`, `{"type":"case","duration":1e999}`, `{"type":"case","duration":.5}`,
		`{"type":"case","facts":{"a":[1,{"b":null}],"c":{}}}`, `{"type":"case","host":null,"verify":{"checked":1,"first":"x"}}`,
		`{"type":"case","metrics":[],"counters":[],"warnings":[],"library":[],"axes":{}}`, `{"type":"case"}x`, `{"type":"case",}`,
		`{"type":"case","status":"µ","expected":{"a":18446744073709551616}}`, `{"type":"case","start":"2026-13-01T00:00:00Z"}`, `{}`, ``,
	} {
		compareDecoders(t, []byte(odd), new(Case), new(Case))
	}
}

func copyCase(t *testing.T, c *Case) *Case {
	t.Helper()
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	out := new(Case)
	if err := json.Unmarshal(b, out); err != nil {
		t.Fatal(err)
	}
	return out
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
	few := func(key string) bool { return key == "cpus" }
	collect := func(lean *summary, keep func(string) bool) (out []line) {
		for at, err := range readLines(path, lean) {
			if err != nil {
				t.Fatal(err)
			}
			l := line{At: at.Line}
			switch rec := at.Record.(type) {
			case *Case:
				if lean == nil {
					trim(rec)
				}
				l.Case = copyCase(t, rec) // summaries are the loop's for a moment only
				for _, m := range []map[string]any{l.Case.Facts, l.Case.Host} {
					maps.DeleteFunc(m, func(key string, _ any) bool { return !keep(key) })
				}
			case *Header:
				l.Header = rec
			case *Bad:
				l.Bad = rec.Error()
			}
			out = append(out, l)
		}
		return out
	}
	every := func(string) bool { return true }
	all := collect(nil, every)
	if diff := cmp.Diff(all, collect(&summary{}, every)); diff != "" {
		t.Errorf("(-all +summaries):\n%s", diff)
	}
	if diff := cmp.Diff(collect(nil, few), collect(&summary{few}, few), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-all +summaries of few keys):\n%s", diff)
	}
	if _, ok := all[1].Case.Host["cpus"]; !ok {
		t.Error("the test's cases do not have the key that it is about")
	}
}
