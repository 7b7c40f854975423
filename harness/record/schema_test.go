package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"gic/backends"
	"gic/workloads"
)

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(SchemaJSON))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.AssertContent()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("run.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("run.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func validate(s *jsonschema.Schema, line []byte) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
	if err != nil {
		return err
	}
	return s.Validate(doc)
}

func TestSchemaTakesWhatTheWriterWrites(t *testing.T) {
	s := compileSchema(t)
	path := filepath.Join(t.TempDir(), FileName)
	w, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	full := testCase(rng, 0)
	full.Library = []Library{{Name: "libnccl", Version: "2.28.9", Path: "/lib/libnccl.so.2", SHA256: "ab"}}
	bare := &Case{Workload: "op", Backend: "nvshmem", NIC: "none", Device: "cuda", Ranks: 2, Status: Skipped, Reason: "no CUDA device"}
	failed := testCase(rng, 1)
	failed.Status, failed.Reason, failed.Stage, failed.Metrics = Failed, "rank 1: exit status 3", "run", nil
	bareHeader := &Header{ID: "x", Command: []string{}, Launch: "local", Ranks: 1, Repeat: 1}
	fullHeader := testHeader()
	fullHeader.Hosts = []Machine{{Hostname: "b", GPU: []any{map[string]any{"name": "x"}}, RDMA: []any{map[string]any{"device": "mlx5_0"}}}}
	fullHeader.Defaults = map[string]map[string]string{"minigda": {"batch": "1"}}
	for _, r := range []Record{fullHeader, bareHeader, full, bare, failed} {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	checkFile(t, s, path)
}

func checkFile(t *testing.T, s *jsonschema.Schema, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range bytes.Split(bytes.TrimSuffix(data, []byte{'\n'}), []byte{'\n'}) {
		if err := validate(s, line); err != nil {
			t.Errorf("%s:%d: %v", path, i+1, err)
		}
	}
}

// Every run file in the repository is valid, but those named bad-*, which tests of bad input keep.
func TestSchemaTakesEveryCommittedRun(t *testing.T) {
	s := compileSchema(t)
	root := "../.."
	n := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if d.IsDir() && (rel == "build" || rel == filepath.Join("results", "local") || strings.HasPrefix(d.Name(), ".") && rel != ".") {
			return filepath.SkipDir
		}
		if !d.IsDir() && strings.HasSuffix(rel, ".jsonl") && !strings.HasPrefix(d.Name(), "bad-") {
			n++
			checkFile(t, s, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n == 0 {
		t.Error("found no run file; this package's own testdata holds one")
	}
}

func TestSchemaRefuses(t *testing.T) {
	s := compileSchema(t)
	rng := rand.New(rand.NewPCG(1, 1))
	good := testCase(rng, 0)
	good.Type, good.ID = "case", CaseID(good)
	base, err := json.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	edit := func(f func(m map[string]any)) []byte {
		var m map[string]any
		if err := json.Unmarshal(base, &m); err != nil {
			t.Fatal(err)
		}
		f(m)
		line, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	metric := func(i int, f func(m map[string]any)) []byte {
		return edit(func(m map[string]any) { f(m["metrics"].([]any)[i].(map[string]any)) })
	}
	if err := validate(s, edit(func(map[string]any) {})); err != nil {
		t.Fatalf("the record that the others are made from: %v", err)
	}
	for name, line := range map[string][]byte{
		"typo in a case":       edit(func(m map[string]any) { m["staus"] = "ok" }),
		"typo in a metric":     metric(0, func(m map[string]any) { m["p95"] = 1 }),
		"typo in a counter":    edit(func(m map[string]any) { m["counters"].([]any)[0].(map[string]any)["exakt"] = true }),
		"typo in verify":       edit(func(m map[string]any) { m["verify"].(map[string]any)["bad"] = 1 }),
		"status unknown":       edit(func(m map[string]any) { m["status"] = "okay" }),
		"skipped, no reason":   edit(func(m map[string]any) { m["status"] = "skipped" }),
		"nic unknown":          edit(func(m map[string]any) { m["nic"] = "cx7" }),
		"nic missing":          edit(func(m map[string]any) { delete(m, "nic") }),
		"axis not a string":    edit(func(m map[string]any) { m["axes"] = map[string]any{"size": 8} }),
		"time without zone":    edit(func(m map[string]any) { m["start"] = "2026-01-01" }),
		"negative time":        metric(0, func(m map[string]any) { m["min"] = -1 }),
		"unit of another kind": metric(0, func(m map[string]any) { m["unit"] = "msg/s" }),
		"unit with a prefix":   metric(0, func(m map[string]any) { m["unit"] = "us" }),
		"raw and histogram":    metric(1, func(m map[string]any) { m["samples"] = []any{1.0} }),
		"neither":              metric(0, func(m map[string]any) { delete(m, "samples") }),
		"histogram unscaled":   metric(1, func(m map[string]any) { delete(m, "resolution") }),
		"id of another kind":   edit(func(m map[string]any) { m["id"] = "1" }),
		"type unknown":         edit(func(m map[string]any) { m["type"] = "row" }),
		"no type":              edit(func(m map[string]any) { delete(m, "type") }),
		"not an object":        []byte(`[1]`),
	} {
		if err := validate(s, line); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// The schema and the Go structs say the same: the same keys, required exactly where the struct always writes
// them, and nothing else allowed.
func TestSchemaMatchesTheStructs(t *testing.T) {
	var doc struct {
		Defs map[string]struct {
			Properties           map[string]any `json:"properties"`
			Required             []string       `json:"required"`
			AdditionalProperties any            `json:"additionalProperties"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal(SchemaJSON, &doc); err != nil {
		t.Fatal(err)
	}
	for def, typ := range map[string]reflect.Type{
		"run":     reflect.TypeFor[Header](),
		"machine": reflect.TypeFor[Machine](),
		"library": reflect.TypeFor[Library](),
		"case":    reflect.TypeFor[Case](),
		"metric":  reflect.TypeFor[Metric](),
		"counter": reflect.TypeFor[backends.Counter](),
		"verify":  reflect.TypeFor[workloads.Verification](),
		"warning": reflect.TypeFor[workloads.Warning](),
		"import":  reflect.TypeFor[Import](),
	} {
		d, ok := doc.Defs[def]
		if !ok {
			t.Errorf("no $defs/%s", def)
			continue
		}
		if d.AdditionalProperties != false {
			t.Errorf("%s: additionalProperties is %v, want false", def, d.AdditionalProperties)
		}
		fields := map[string]bool{} // name to required
		for i := range typ.NumField() {
			name, opts, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if name == "" || name == "-" {
				t.Errorf("%s.%s has no json name", typ, typ.Field(i).Name)
			}
			fields[name] = !strings.Contains(opts, "omitempty")
		}
		for name, required := range fields {
			if _, ok := d.Properties[name]; !ok {
				t.Errorf("%s: %s writes %q, the schema does not know it", def, typ, name)
			}
			if got := slices.Contains(d.Required, name); got != required {
				t.Errorf("%s: %q required=%v in the schema, %v in %s", def, name, got, required, typ)
			}
		}
		for name := range d.Properties {
			if _, ok := fields[name]; !ok {
				t.Errorf("%s: the schema knows %q, %s does not", def, name, typ)
			}
		}
	}
	var limit struct {
		Defs struct {
			Metric struct {
				Properties struct {
					Samples struct {
						MaxItems int `json:"maxItems"`
					} `json:"samples"`
				} `json:"properties"`
			} `json:"metric"`
			Case struct {
				Properties struct {
					Status struct {
						Enum []Status `json:"enum"`
					} `json:"status"`
				} `json:"properties"`
			} `json:"case"`
			Run struct {
				Properties struct {
					Schema struct {
						Const string `json:"const"`
					} `json:"schema"`
				} `json:"properties"`
			} `json:"run"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal(SchemaJSON, &limit); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(limit.Defs.Metric.Properties.Samples.MaxItems, limit.Defs.Case.Properties.Status.Enum, limit.Defs.Run.Properties.Schema.Const)
	if want := fmt.Sprint(MaxRaw, statuses, Schema); got != want {
		t.Errorf("limits, statuses and format: schema %s, code %s", got, want)
	}
}
