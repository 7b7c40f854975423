package importer

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"gic/harness/record"
)

var update = flag.Bool("update", false, "rewrite the golden files from what the importers give")

// allowNCCL stands for the command line's allow-list.
func allowNCCL(environ []string) map[string]string {
	out := map[string]string{}
	for _, kv := range environ {
		if k, v, _ := strings.Cut(kv, "="); strings.HasPrefix(k, "NCCL_") || strings.HasPrefix(k, "SLURM_") {
			out[k] = v
		}
	}
	return out
}

// describe prints a result as text, each case on lines of its own.
func describe(r *Result) string {
	var b strings.Builder
	kv := func(m map[string]string) string {
		var a []string
		for _, k := range slices.Sorted(maps.Keys(m)) {
			a = append(a, k+"="+m[k])
		}
		return strings.Join(a, " ")
	}
	for _, c := range r.Cases {
		fmt.Fprintf(&b, "%d: %s %s | %s %s | nic=%s %s device=%s ranks=%d index=%d %s", c.Imported.Line, c.Workload, kv(c.Axes),
			c.Backend, kv(c.Config), c.NIC, kv(c.NICConfig), c.Device, c.Ranks, c.Index, c.Status)
		if c.Reason != "" {
			fmt.Fprintf(&b, " (%s)", c.Reason)
		}
		b.WriteByte('\n')
		for _, m := range c.Metrics {
			star := " "
			if m.Headline {
				star = "*"
			}
			fmt.Fprintf(&b, "   %s %s = %.9g %s n=%d", star, m.Name, m.P50, m.Unit, m.N)
			if m.N > 1 {
				fmt.Fprintf(&b, " min %.9g max %.9g", m.Min, m.Max)
			}
			b.WriteByte('\n')
		}
		facts, _ := json.Marshal(c.Facts)
		fmt.Fprintf(&b, "     facts %s\n", facts)
		for _, w := range c.Warnings {
			fmt.Fprintf(&b, "     warning %s: %s\n", w.Code, w.Text)
		}
	}
	host, _ := json.Marshal(r.Host)
	fmt.Fprintf(&b, "host %s\nenv %s\n", host, kv(r.Env))
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "problem %v\n", p)
	}
	for _, p := range r.Notes {
		fmt.Fprintf(&b, "note %v\n", p)
	}
	return b.String()
}

var samples = []struct{ file, format, set string }{
	{"nccl.json", "nccl-tests", ""},
	{"nccl-bad.json", "nccl-tests", ""},
	{"nccl.txt", "nccl-tests", ""},
	{"perftest-bw.txt", "perftest", ""},
	{"perftest-lat.txt", "perftest", ""},
	{"perftest-bad.txt", "perftest", ""},
	{"perftest.json", "perftest", ""},
	{"nvshmem.txt", "nvshmem", ""},
	{"nvshmem-coll.txt", "nvshmem", ""},
	{"nvshmem-perf.txt", "nvshmem", ""},
	{"deepep-ll.txt", "deepep", "workload.tokens=128"},
	{"deepep-intranode.txt", "deepep", "ranks=8"},
	{"deepep-internode.txt", "deepep", "ranks=16"},
	{"deepep-elastic.txt", "deepep", ""},
	{"collectivex.json", "collectivex", ""},
	{"bench.txt", "benchfmt", ""},
	{"small.csv", "csv", ""},
	{"facts.csv", "csv", ""},
}

func parseSample(t testing.TB, file, set string) *Result {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	opt := Options{Env: allowNCCL}
	if set != "" {
		if opt.Set, err = CheckSet([]string{set}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Parse(file, data, opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Each sample is found to be of its format, and gives exactly the rows, problems and notes of its golden file.
func TestSamples(t *testing.T) {
	for _, s := range samples {
		t.Run(s.file, func(t *testing.T) {
			r := parseSample(t, s.file, s.set)
			if r.Source.Format != s.format {
				t.Errorf("taken for %s, want %s", r.Source.Format, s.format)
			}
			got := describe(r)
			golden := filepath.Join("testdata", s.file+".want")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(record.SchemaJSON))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("run.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("run.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// All samples together, twice, make one run file: valid by the schema, read back as written, every file a process
// run of its own, every case naming its file.
func TestWrite(t *testing.T) {
	var results []*Result
	for range 2 {
		for _, s := range samples {
			results = append(results, parseSample(t, s.file, s.set))
		}
	}
	dir := t.TempDir()
	path, err := Write(dir, results, record.Header{Gic: "test", Command: []string{"gic", "import"}})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sch := schema(t)
	for i, line := range bytes.Split(bytes.TrimSpace(data), []byte("\n")) {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
		if err == nil {
			err = sch.Validate(doc)
		}
		if err != nil {
			t.Fatalf("line %d: %v\n%s", i+1, err, line)
		}
	}
	if bytes.Contains(data, []byte("SECRET")) || bytes.Contains(data, []byte("/home/someone")) {
		t.Error("the environment that a tool dumped went into the run")
	}
	n, seen := 0, map[string]bool{}
	for rec, err := range record.ReadFile(path) {
		if err != nil {
			t.Fatal(err)
		}
		switch rec := rec.(type) {
		case *record.Bad:
			t.Error(rec)
		case *record.Header:
			if len(rec.Imported) != len(results) || rec.Launch != "import" {
				t.Errorf("header names %d files by %s, want %d by import", len(rec.Imported), rec.Launch, len(results))
			}
		case *record.Case:
			n++
			if rec.Imported == nil || rec.Imported.File == "" || len(rec.Imported.SHA256) != 64 || rec.Verify != nil {
				t.Errorf("case %s: imported %+v, verify %v", rec.ID, rec.Imported, rec.Verify)
			}
			key := fmt.Sprint(rec.ID, rec.Index)
			if seen[key] {
				t.Errorf("case %s process run %d is there twice", rec.ID, rec.Index)
			}
			seen[key] = true
		}
	}
	want := 0
	for _, r := range results {
		want += len(r.Cases)
	}
	if n != want || n == 0 {
		t.Errorf("%d cases written, want %d", n, want)
	}
	if _, err := Write(dir, results, record.Header{Gic: "test", Command: []string{"gic"}}); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("second import into the folder: %v", err)
	}
}

// What cannot be imported at all is refused with one line that says why.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ name, data, format, set, want string }{
		{"empty", "", "", "", "is empty"},
		{"unknown", "hello\n", "", "", "looks like none of nccl-tests"},
		{"format", "x", "wonder", "", `format "wonder" is not one of`},
		{"own", `{"type":"run","schema":"gic.run/1"}`, "", "", "is a run of gic already"},
		{"two", "[tuning] x\n&&&& PERF a___b___size__1___latency 1 -us\n", "", "", "say which"},
		{"no ranks", "&&&& PERF alltoall___b___size__1___latency 1 -us\n", "", "", "give ranks=N"},
		{"contradiction", "&&&& PERF shmem_put_latency___b___size__1___latency 1 -us\n", "", "ranks=4", "ranks=4, but the file says 2"},
		{"nothing", "&&&& PERF shmem_put_latency___b___size__1___latency 0 -us\n", "", "", "line 1: latency is 0: it was not measured"},
		{"csv column", "workload,backend,metric,value,unit,colour\n", "", "", `column "colour" is not known; allowed:`},
		{"csv value", "workload,backend,metric,unit\n", "", "", "either a column value"},
		{"csv twice", "workload,backend,metric,unit,unit,value\n", "", "", `column "unit" is there twice`},
		{"version", `{"version":4,"nccl_version":1,"results":[]}`, "", "", `JSON version "4" is not read; allowed: 3`},
		{"cut", `{"version":3,"nccl_version":1,"results":[`, "", "", "cut off at the end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			opt := Options{Format: c.format}
			if c.set != "" {
				var err error
				if opt.Set, err = CheckSet([]string{c.set}); err != nil {
					t.Fatal(err)
				}
			}
			_, err := Parse("f", []byte(c.data), opt)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want one line with %q", err, c.want)
			}
		})
	}
}

func TestCheckSet(t *testing.T) {
	for text, want := range map[string]string{
		"ranks":         "is not KEY=VALUE",
		"ranks=0":       "allowed: 1..",
		"nic=wire":      "allowed: soft, mlx5, none, unknown",
		"device=tpu":    "allowed: host, cuda, unknown",
		"colour=red":    `key "colour" is not known; allowed:`,
		"machine.x=1":   "is not workload.AXIS",
		"workload.A=1":  "is not workload.AXIS",
		"backend.qps=4": "",
	} {
		_, err := CheckSet([]string{text})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := CheckSet([]string{"ranks=2", "ranks=3"}); err == nil {
		t.Error("a key given twice is taken")
	}
}

// A MiB is 2^20 bytes, a GB 1e9, a Gb 1e9 bits, an Mpps 1e6 messages.
func TestUnits(t *testing.T) {
	for name, want := range map[string]string{
		"us": "s 1e-06", "ns": "s 1e-09", "ms": "s 0.001", "s": "s 1", "MiB/s": "B/s 1.048576e+06", "GB/s": "B/s 1e+09",
		"GB/sec": "B/s 1e+09", "Gb/s": "B/s 1.25e+08", "MMPS": "msg/s 1e+06", "Mpps": "msg/s 1e+06", "GiB/s": "B/s 1.073741824e+09",
	} {
		if u := units[name]; fmt.Sprintf("%s %g", u.base, u.scale) != want {
			t.Errorf("%s: %s %g, want %s", name, u.base, u.scale, want)
		}
	}
	if _, ok := units["GB"]; ok {
		t.Error("GB is no rate")
	}
}

// An import of 100,000 lines is linear work; what a line costs shows in BenchmarkParse.
func bigBenchfmt(lines int) []byte {
	var b bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&b, "BenchmarkOp/op=put/size=%d/backend=minigda/batch=%d/nic=soft/device=host/ranks=2 1000 %d.5 issue-ns/op\n", 8<<(i%10), i%50, 50+i%7)
	}
	return b.Bytes()
}

func BenchmarkParse(b *testing.B) {
	data := bigBenchfmt(100000)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		r, err := Parse("big", data, Options{})
		if err != nil || len(r.Cases) != 100000 {
			b.Fatal(err)
		}
	}
}

// The samples are long: give -fuzzminimizetime 20x, or the fuzzer spends its time on making them short.
func FuzzParse(f *testing.F) {
	for _, s := range samples {
		data, err := os.ReadFile(filepath.Join("testdata", s.file))
		if err != nil {
			f.Fatal(err)
		}
		for i, name := range Formats() {
			if name == s.format {
				f.Add(data, byte(i))
			}
		}
	}
	set, err := CheckSet([]string{"workload.set=1"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte, which byte) {
		names := Formats()
		checkParse(t, data, Options{Format: names[int(which)%len(names)]})
		checkParse(t, data, Options{Set: set, As: "x"})
	})
}

// checkParse is what must hold of any bytes at all: an error of one line, records that are fit to be written and
// hold no zero, problems that name a line of the file.
func checkParse(t *testing.T, data []byte, opt Options) {
	t.Helper()
	r, err := Parse("f", data, opt)
	if err != nil && strings.Contains(err.Error(), "\n") {
		t.Errorf("error of several lines: %v", err)
	}
	if r == nil {
		return
	}
	for _, c := range r.Cases {
		if err := record.Check(c); err != nil {
			t.Error(err)
		}
		for _, m := range c.Metrics {
			if m.Min <= 0 {
				t.Errorf("metric %s of %s is %v", m.Name, c.Workload, m.Min)
			}
		}
	}
	for _, p := range append(r.Problems, r.Notes...) {
		if strings.Contains(p.Error(), "\n") || p.Line < 0 || p.Line > 1+bytes.Count(data, []byte("\n")) {
			t.Errorf("problem %q", p.Error())
		}
	}
}

// Samples with a few bytes changed, cut out or moved, as the fuzzer would, from a fixed seed.
func TestMutations(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const marks = "0123456789{}[]\":,\n -.x"
	for range 3000 {
		s := samples[rng.IntN(len(samples))]
		data, err := os.ReadFile(filepath.Join("testdata", s.file))
		if err != nil {
			t.Fatal(err)
		}
		for range 1 + rng.IntN(20) {
			i := rng.IntN(len(data))
			j := min(len(data), i+rng.IntN(50))
			switch rng.IntN(4) {
			case 0:
				data[i] = byte(rng.IntN(256))
			case 1:
				data[i] = marks[rng.IntN(len(marks))]
			case 2:
				data = slices.Delete(data, i, j)
			case 3:
				data = slices.Insert(data, j, slices.Clone(data[i:j])...)
			}
			if len(data) == 0 {
				data = []byte{'x'}
			}
		}
		checkParse(t, data, Options{Format: s.format})
		if t.Failed() {
			t.Fatalf("with %q", data)
		}
	}
}
