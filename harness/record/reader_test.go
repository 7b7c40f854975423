package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// lines writes records as the Writer does, without a file.
func lines(t testing.TB, records ...Record) []byte {
	t.Helper()
	var buf bytes.Buffer
	for _, r := range records {
		switch r := r.(type) {
		case *Header:
			r.Type, r.Schema = "run", Schema
		case *Case:
			r.Type, r.ID = "case", CaseID(r)
		}
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		buf.Write(append(line, '\n'))
	}
	return buf.Bytes()
}

// outline reads everything into one word per record: the header's id, the case's index, the text of what is bad.
func outline(t testing.TB, r io.Reader) []string {
	t.Helper()
	var out []string
	for rec, err := range Read("run.jsonl", r) {
		switch rec := rec.(type) {
		case *Header:
			out = append(out, "run "+rec.ID)
		case *Case:
			out = append(out, fmt.Sprintf("case %d", rec.Index))
		case *Bad:
			out = append(out, rec.Error())
		default:
			out = append(out, fmt.Sprint("error: ", err))
		}
	}
	return out
}

func threeCases(t testing.TB) (header, c0, c1, c2 string) {
	rng := rand.New(rand.NewPCG(1, 1))
	all := strings.SplitAfter(string(lines(t, testHeader(), testCase(rng, 0), testCase(rng, 1), testCase(rng, 2))), "\n")
	return all[0], all[1], all[2], all[3]
}

func TestReadGivesBackWhatWasWritten(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	want := []Record{testHeader(), testCase(rng, 0), testCase(rng, 1)}
	var got []Record
	for rec, err := range Read("x", bytes.NewReader(lines(t, want...))) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, rec)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReadNamesWhatIsBadAndGoesOn(t *testing.T) {
	h, c0, c1, c2 := threeCases(t)
	edit := func(line, old, new string) string {
		if !strings.Contains(line, old) {
			t.Fatalf("%q is not in the line", old)
		}
		return strings.Replace(line, old, new, 1)
	}
	newer := edit(h, Schema, "gic.run/9")
	for _, tc := range []struct {
		name, in string
		want     []string
	}{
		{"empty", "", nil},
		{"blank lines", "\n \n" + h + "\n\r\n" + c0, []string{"run 20261129-172900-1a2b", "case 0"}},
		{"last line without its end", h + strings.TrimSuffix(c0, "\n"), []string{"run 20261129-172900-1a2b", "case 0"}},
		{"torn", h + c0 + c1[:len(c1)/2], []string{"run 20261129-172900-1a2b", "case 0",
			"run.jsonl:3: torn last line, as of an interrupted run: not read"}},
		{"torn after one byte", h + "{", []string{"run 20261129-172900-1a2b",
			"run.jsonl:2: torn last line, as of an interrupted run: not read"}},
		{"torn, then resumed", h + c0[:100] + "\n" + c1, []string{"run 20261129-172900-1a2b",
			"run.jsonl:2: unexpected end of JSON input", "case 1"}},
		{"garbage inside", h + c0 + "hello\n" + c2, []string{"run 20261129-172900-1a2b", "case 0",
			"run.jsonl:3: invalid character 'h' looking for beginning of value", "case 2"}},
		{"other JSON", h + "[1,2]\n{}\nnull\n3\n{\"type\":\"row\"}\n" + c0, []string{"run 20261129-172900-1a2b",
			"run.jsonl:2: a JSON array is no record",
			`run.jsonl:3: type "" is not "run" or "case"`, `run.jsonl:4: type "" is not "run" or "case"`,
			"run.jsonl:5: a JSON number is no record",
			`run.jsonl:6: type "row" is not "run" or "case"`, "case 0"}},
		{"NaN", h + edit(c0, `"min":5.21e-8`, `"min":NaN`) + c1, []string{"run 20261129-172900-1a2b",
			"run.jsonl:2: invalid character 'N' looking for beginning of value", "case 1"}},
		{"number too large", h + edit(c0, `"min":5.21e-8`, `"min":1e999`) + c1, []string{"run 20261129-172900-1a2b",
			`run.jsonl:2: key "metrics.min" cannot be a JSON number 1e999`, "case 1"}},
		{"negative time", h + edit(c0, `"min":5.21e-8`, `"min":-5.21e-8`) + c1, []string{"run 20261129-172900-1a2b",
			"run.jsonl:2: case op/minigda: metric issue: min is negative: -5.21e-08", "case 1"}},
		{"mixed unit", h + edit(c0, `"unit":"s"`, `"unit":"us"`), []string{"run 20261129-172900-1a2b",
			`run.jsonl:2: case op/minigda: metric issue: unit "us" of class time is not "s"`}},
		{"other order of keys", h + "{ \"index\":4," + strings.TrimPrefix(edit(c0, `"index":0,`, ""), "{"),
			[]string{"run 20261129-172900-1a2b", "case 4"}},
		{"unknown schema", newer + c0 + "junk\n" + c1 + h + c2, []string{
			`run.jsonl:1: schema "gic.run/9" is not one this gic reads (gic.run/1)`,
			"run.jsonl:2: from here on 3 lines of the unknown schema were not read",
			"run 20261129-172900-1a2b", "case 2"}},
		{"unknown schema to the end", newer + c0, []string{
			`run.jsonl:1: schema "gic.run/9" is not one this gic reads (gic.run/1)`,
			"run.jsonl:2: from here on 1 lines of the unknown schema were not read"}},
		{"unknown schema of other types", edit(newer, `"ranks":2`, `"ranks":"two"`), []string{
			`run.jsonl:1: schema "gic.run/9" is not one this gic reads (gic.run/1)`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := outline(t, strings.NewReader(tc.in))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Order, count and line numbers hold over many batches, with bad lines sprinkled in.
func TestReadKeepsOrderOverManyBatches(t *testing.T) {
	_, c0, _, _ := threeCases(t)
	var in strings.Builder
	var want []string
	for i := range 3000 {
		if i%97 == 0 {
			in.WriteString("}\n")
			want = append(want, fmt.Sprintf("run.jsonl:%d: invalid character '}' looking for beginning of value", i+1))
			continue
		}
		in.WriteString(strings.Replace(c0, `"index":0`, fmt.Sprintf(`"index":%d`, i), 1))
		want = append(want, fmt.Sprintf("case %d", i))
	}
	if diff := cmp.Diff(want, outline(t, strings.NewReader(in.String()))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReadPassesOverHugeLines(t *testing.T) {
	h, c0, _, _ := threeCases(t)
	got := outline(t, io.MultiReader(strings.NewReader(h), io.LimitReader(zeros{}, maxLine+1), strings.NewReader("\n"+c0)))
	want := []string{"run 20261129-172900-1a2b", fmt.Sprintf("run.jsonl:2: line is longer than %d bytes", maxLine), "case 0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

func TestReadEndsWithTheReadersError(t *testing.T) {
	h, c0, c1, _ := threeCases(t)
	broken := errors.New("disk gone")
	got := outline(t, io.MultiReader(strings.NewReader(h+c0+c1[:50]), failing{broken}))
	want := []string{"run 20261129-172900-1a2b", "case 0", "run.jsonl:3: torn last line, as of an interrupted run: not read",
		"error: read run.jsonl: disk gone"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// A reader that is left early leaves no goroutine behind.
func TestReadStopsWhenLeft(t *testing.T) {
	_, c0, _, _ := threeCases(t)
	in := strings.Repeat(c0, 2000)
	before := runtime.NumGoroutine()
	for range 20 {
		for range Read("x", strings.NewReader(in)) {
			break
		}
	}
	// They end by themselves; this waits for it, it measures nothing.
	for range 1000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines before, %d after", before, runtime.NumGoroutine())
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	touch := func(name string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	touch("one/run.jsonl")
	touch("many/b[1]/run.jsonl")
	touch("many/a/run.jsonl")
	touch("empty/other.txt")
	touch("x[*]/c/run.jsonl")
	touch("many/a/deeper/run.jsonl")
	touch("deep/campaign/part/run.jsonl")
	touch("deep/campaign/other.txt")
	touch("deep/baselines/main/run.jsonl")
	if err := os.Symlink(filepath.Join(dir, "one"), filepath.Join(dir, "deep", "link")); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		path string
		want []string
	}{
		{"one", []string{"one/run.jsonl"}},
		{"one/run.jsonl", []string{"one/run.jsonl"}},
		{"many", []string{"many/a/deeper/run.jsonl", "many/a/run.jsonl", "many/b[1]/run.jsonl"}},
		{"deep", []string{"deep/campaign/part/run.jsonl", "deep/link/run.jsonl"}},
		{"x[*]", []string{"x[*]/c/run.jsonl"}},
	} {
		got, err := Files(filepath.Join(dir, tc.path))
		if err != nil {
			t.Error(err)
		}
		for i := range got {
			got[i], _ = filepath.Rel(dir, got[i])
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.path, diff)
		}
	}
	for _, path := range []string{"empty", "none"} {
		if got, err := Files(filepath.Join(dir, path)); err == nil {
			t.Errorf("%s: got %v", path, got)
		}
	}
}

// Any bytes: no panic, no line lost or counted twice, and the fast decoder takes and gives exactly what
// encoding/json does.
func FuzzRead(f *testing.F) {
	h, c0, c1, _ := threeCases(f)
	f.Add([]byte(h + c0 + c1))
	f.Add([]byte(h + c0[:len(c0)/2]))
	f.Add([]byte(`{"type":"case","Type":"run","axes":null,"host":{"a":[1,{"b":null}]}}` + "\n"))
	f.Add([]byte(strings.Replace(h, "/1", "/2", 1) + c0))
	f.Add([]byte("{\"type\":\"case\",\"axes\":{\"a\":\"\xff\\ud800\"},\"verify\":{},\"metrics\":[{}]}\n"))
	f.Add([]byte(`{"type":"case","counters":[{"value":18446744073709551615}],"seed":-1,"start":"x","ranks":1.0}` + "\n"))
	f.Add([]byte(plainHead(`"w"`, `{"a":"b"}`, "1", "1e-5") + plainMetric("1,2.5e-9", "1.25") + "\n"))
	f.Add([]byte(plainHead(`"\u003e"`, `{"a":"b"}`, "1", "0.25") + `,"host":{"a":[1,{"b":null}]},"imported":{"format":"f","file":"x","sha256":"y"}}` + "\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		n, foreign := 0, false
		for rec, err := range Read("fuzz", bytes.NewReader(in)) {
			if err != nil {
				t.Fatal(err)
			}
			_, unknown := headerLike(rec)
			foreign = foreign || unknown
			if _, ok := rec.(*Bad); !ok {
				if err := rec.check(); err != nil {
					t.Errorf("let through: %v", err)
				}
			}
			n++
		}
		want := 0
		for _, line := range bytes.Split(in, []byte{'\n'}) {
			if len(bytes.TrimSpace(line)) > 0 {
				want++
			}
			compareDecoders(t, line, new(Case), new(Case))
			compareDecoders(t, line, new(Header), new(Header))
		}
		if n != want && !foreign {
			t.Errorf("%d records from %d lines", n, want)
		}
	})
}

// Where parsers of JSON are known to differ, ours takes what encoding/json takes and gives what it gives.
func TestReaderIsAsStrictAsEncodingJSON(t *testing.T) {
	values := []string{
		"0", "-0", "01", "-", "+1", "1.", ".5", "1e", "1e+", "1E5", "1e400", "0x1", "1_0", "NaN", "Infinity", "-Infinity",
		"null", "nul", "nulll", "Null", "true", "tru", "false", "falsey", `""`, `"`, `"\u0041"`, `"\u00"`, `"\ud800"`, `"\ud83d\ude00"`,
		`"\x"`, `"\'"`, `"\/"`, "\"\x01\"", "\"\x7f\"", "\"\xff\"", "\"\xed\xa0\x80\"", "'a'", "[]", "[1,]", "[,1]", "[1 2]", "[1", "1]",
		"{}", `{"a":1,}`, `{"a"}`, `{a:1}`, `{"a":1 "b":2}`, `{"a":1,"a":2}`, `{1:2}`, "{} {}", "/**/1", "1//", "\u00a01", "\v1", "\xef\xbb\xbf1",
		strings.Repeat("[", 9000) + strings.Repeat("]", 9000), strings.Repeat("[", 10100) + strings.Repeat("]", 10100),
	}
	for _, v := range values {
		for _, format := range []string{
			`{"type":"case","host":{"x":%s}}`, `{"type":"case","workload":%s}`, `{"type":"case","duration":%s}`,
			`{"type":"case","index":%s}`, `{"type":"case","axes":%s}`, `{"type":"case","metrics":[{"samples":[%s]}]}`,
			`{"type":"case","unknown":%s}`, `{"type":"case","verify":%s,"Workload":"w"}`, `%s{"type":"case"}`, `{"type":"case"}%s`,
			`{"type":"case","start":%s}`, `{"type":"case","counters":[{"value":%s}]}`,
			// The same in lines that are otherwise as the Writer makes them.
			plainHead(`"w"`, "{}", "1", "%s"), plainHead(`"w"`, "%s", "1", "0"), plainHead("%s", "{}", "1", "0"), plainHead(`"w"`, "{}", "%s", "0"),
			plainHead(`"w"`, `{"a":"b","c":%s}`, "1", "0") + "}", plainHead(`"w"`, "{}", "1", "0") + `,"host":{"x":%s}}`,
			plainHead(`"w"`, "{}", "1", "%s") + "}", plainHead(`"w"`, "{}", "1", "0") + `,"facts":%s}`, plainHead(`"w"`, "{}", "%s", "0") + "}",
			plainHead(`"w"`, "{}", "1", "0") + plainMetric("%s", "1"), plainHead(`"w"`, "{}", "1", "0") + plainMetric("1,%s", "1"),
			plainHead(`"w"`, "{}", "1", "0") + plainMetric("1", "%s"), plainHead("%s", "{}", "1", "0") + "}", plainHead(`"w"`, "{}", "1", "0") + "}%s",
			plainHead(`"w"`, "{}", "1", "0") + `,"counters":[{"name":"c","unit":"1","value":%s,"exact":true}],"expected":{"a":%[1]s}}`,
			plainHead(`"w"`, "{}", "1", "0") + `,"warnings":[{"code":%s,"text":"x"}]}`, plainHead(`"w"`, "{}", "1", "0") + `,"verify":{"checked":%s,"wrong":0}}`,
			plainHead(`"w"`, "{}", "1", "0") + `,"imported":{"format":"f","file":"x","sha256":%s,"line":1}}`,
		} {
			compareDecoders(t, []byte(fmt.Sprintf(format, v)), new(Case), new(Case))
			compareDecoders(t, []byte(fmt.Sprintf(format, v)), new(Header), new(Header))
		}
	}
}

// plainHead begins a case as the Writer does, up to what is measured.
func plainHead(workload, axes, seed, duration string) string {
	return `{"type":"case","id":"0","index":0,"order":0,"workload":` + workload + `,"axes":` + axes + `,"backend":"b","config":{},"library":[{"name":"l"}],` +
		`"nic":"soft","device":"host","ranks":1,"seed":` + seed + `,"start":"2026-01-01T00:00:00Z","duration":` + duration + `,"status":"ok"`
}

// plainMetric ends such a case with a metric.
func plainMetric(samples, p50 string) string {
	return `,"metrics":[{"name":"m","unit":"s","class":"time","n":1,"samples":[` + samples + `],"min":1,"p50":` + p50 + `,"p90":1,"p99":1,"max":1,"mean":1}]}`
}

// leanDecoder reads all lines of a test, so that it has seen much before each.
var leanDecoder = newDecoder(&summary{})

func compareDecoders(t *testing.T, line []byte, a, b Record) {
	t.Helper()
	want, got := wordError(json.Unmarshal(line, a)), newDecoder(nil).unmarshal(line, b)
	if (want == nil) != (got == nil) || want != nil && want.Error() != got.Error() {
		t.Errorf("encoding/json: %v, ours: %v", want, got)
	}
	if want == nil && !reflect.DeepEqual(a, b) {
		t.Errorf("encoding/json and ours differ (-std +ours):\n%s", cmp.Diff(a, b))
	}
	c, isCase := a.(*Case)
	leanDecoder.parts.clear()
	lean := leanDecoder.newCase()
	if !isCase || !leanDecoder.plain(line, lean) {
		return
	}
	if trim(c); want != nil {
		t.Errorf("encoding/json: %v, the lean decoder took %s", want, line)
	} else if trim(lean); !reflect.DeepEqual(c, lean) {
		t.Errorf("encoding/json and the lean decoder differ (-std +ours):\n%s", cmp.Diff(c, lean))
	}
}
