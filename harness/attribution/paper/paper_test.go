package paper

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"gic/harness/record"
)

var update = flag.Bool("update", false, "write the run.jsonl files of results/paper anew")

const (
	dir  = "../../../results/paper"
	name = "results/paper"
)

// lines are the records of a platform as a file holds them.
func lines(t *testing.T, platform string) []byte {
	t.Helper()
	s, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	h, cases, err := s.Run(dir, name, platform)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), record.FileName)
	w, err := record.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(h); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		if err := w.Write(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The committed records are what the csv files say, and follow the schema.
func TestRecordsAreTheTables(t *testing.T) {
	s, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := jsonschema.NewCompiler().Compile("../../record/schema/run.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, platform := range s.Names() {
		file := filepath.Join(dir, platform, record.FileName)
		want := lines(t, platform)
		if *update {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); diff != "" {
			t.Errorf("%s is not what the csv files say; -update writes it anew (-csv +committed):\n%s", file, diff)
		}
		for line := range bytes.Lines(got) {
			var v any
			if err := json.Unmarshal(line, &v); err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(v); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

// figure is one number of a table and where it must stand in the records.
type figure struct {
	platform, table, workload string
	axes, config              map[string]string // those that must be so
	backend, metric           string
	value                     float64 // base unit
}

// find returns the values of the records that a figure can be.
func (f figure) find(cases []*record.Case) (values []float64) {
	holds := func(have, want map[string]string) bool {
		for k, v := range want {
			if have[k] != v {
				return false
			}
		}
		return true
	}
	for _, c := range cases {
		if c.Facts["table"] != f.table || c.Workload != f.workload || c.Backend != f.backend || !holds(c.Axes, f.axes) || !holds(c.Config, f.config) {
			continue
		}
		for _, m := range c.Metrics {
			if m.Name == f.metric {
				values = append(values, m.P50)
			}
		}
	}
	return values
}

// committed are the records of a platform.
func committed(t *testing.T, platform string) []*record.Case {
	t.Helper()
	var cases []*record.Case
	for rec, err := range record.ReadFile(filepath.Join(dir, platform, record.FileName)) {
		if err != nil {
			t.Fatal(err)
		}
		switch rec := rec.(type) {
		case *record.Case:
			cases = append(cases, rec)
		case *record.Bad:
			t.Fatal(rec)
		}
	}
	return cases
}

// Every cell of the tables, read from a copy that has nothing to do with the csv files, stands in the records once.
func TestTablesAreInTheRecords(t *testing.T) {
	text, err := os.ReadFile("testdata/tables.md")
	if err != nil {
		t.Fatal(err)
	}
	figures := tableFigures(t, string(text))
	if len(figures) != wantFigures {
		t.Errorf("%d figures in the tables, want %d: the test reads fewer cells than there are", len(figures), wantFigures)
	}
	records := map[string][]*record.Case{}
	for _, f := range figures {
		if records[f.platform] == nil {
			records[f.platform] = committed(t, f.platform)
		}
		values := f.find(records[f.platform])
		if len(values) != 1 || math.Abs(values[0]-f.value) > 1e-9*f.value {
			t.Errorf("%s %s: %s %v of %s %v: records say %v, the table %g", f.platform, f.table, f.metric, f.config, f.workload, f.axes, values, f.value)
		}
	}
}

// wantFigures counts the cells of Tables 3 to 7 and 9 to 11, so that a cell that is not read is missed.
const wantFigures = 58 + 28 + 14 + 18 + 24 + 24 + 14

// Records of the paper say that they are references: what they are from, on what state, and of how many runs.
func TestProvenance(t *testing.T) {
	s, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, platform := range s.Names() {
		for _, c := range committed(t, platform) {
			if c.Imported == nil || c.Imported.Line < 2 || !strings.HasPrefix(c.Imported.File, name+"/"+platform+"/") {
				t.Errorf("%s: %s of %s does not say which line it is from: %v", platform, c.Workload, c.Backend, c.Imported)
			}
			for _, fact := range []string{"table", "n", "clock", "statistic"} {
				if v, _ := c.Facts[fact].(string); v == "" {
					t.Errorf("%s: %s of %s (%s:%d) has no %s", platform, c.Workload, c.Backend, c.Imported.File, c.Imported.Line, fact)
				}
			}
			if c.NIC != "mlx5" || c.Device != "cuda" || c.Verify != nil {
				t.Errorf("%s: %s of %s: nic=%s device=%s verified=%v", platform, c.Workload, c.Backend, c.NIC, c.Device, c.Verify)
			}
			if (c.Config["order"] == "none") != (c.Status == record.Unsafe) {
				t.Errorf("%s: order=%s is %s", platform, c.Config["order"], c.Status)
			}
		}
	}
}

// What the text says beside the tables, and the tables that are lists, each figure by what it says.
func TestTextFigures(t *testing.T) {
	for _, f := range textFigures() {
		if values := f.find(committed(t, f.platform)); len(values) != 1 || math.Abs(values[0]-f.value) > 1e-9*f.value {
			t.Errorf("%s %s: %s of %s %v %v: records say %v, the paper %g", f.platform, f.table, f.metric, f.backend, f.axes, f.config, values, f.value)
		}
	}
}

// No figure stands in the records that these tests do not hold against the paper.
func TestEveryFigureIsChecked(t *testing.T) {
	text, err := os.ReadFile("testdata/tables.md")
	if err != nil {
		t.Fatal(err)
	}
	figures := append(tableFigures(t, string(text)), textFigures()...)
	s, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, platform := range s.Names() {
		for _, c := range committed(t, platform) {
			for _, m := range c.Metrics {
				n++
				if !slices.ContainsFunc(figures, func(f figure) bool {
					return f.platform == platform && f.metric == m.Name && len(f.find([]*record.Case{c})) == 1
				}) {
					t.Errorf("%s: %s of %s %v %v (%s) is held against nothing", platform, m.Name, c.Backend, c.Axes, c.Config, c.Facts["table"])
				}
			}
		}
	}
	if n != len(figures) {
		t.Errorf("%d figures in the records, %d in these tests", n, len(figures))
	}
}

// tableFigures reads the cells of the tables and says where each must be.
func tableFigures(t *testing.T, text string) []figure {
	t.Helper()
	var figures []figure
	title := ""
	var head []string
	group := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "## "); ok {
			title, head = rest, nil
			continue
		}
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") {
			if line == "" {
				head = nil
			}
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if head == nil {
			head = cells
			continue
		}
		if strings.HasPrefix(title, "Table 5") {
			if cells[0] != "" {
				group = cells[0]
			}
			cells[0] = group
		}
		figures = append(figures, rowFigures(t, title, head, cells)...)
	}
	return figures
}

// rowFigures maps one row of a table. Lookups are by the row's own words.
func rowFigures(t *testing.T, title string, head, cells []string) []figure {
	t.Helper()
	num := func(s string, unit float64) float64 {
		s, _, _ = strings.Cut(s, " (")
		v, err := strconv.ParseFloat(strings.ReplaceAll(s, ",", ""), 64)
		if err != nil {
			t.Fatalf("%s: %v", title, err)
		}
		return v * unit
	}
	op := map[string]string{"op": "put", "size": "8"}
	with := func(m map[string]string, kv ...string) map[string]string {
		out := map[string]string{}
		for k, v := range m {
			out[k] = v
		}
		for i := 0; i < len(kv); i += 2 {
			out[kv[i]] = kv[i+1]
		}
		return out
	}
	var out []figure
	add := func(platform, table, workload string, axes, config map[string]string, backend, metric, cell string, unit float64) {
		if cell != "-" {
			out = append(out, figure{platform, table, workload, axes, config, backend, metric, num(cell, unit)})
		}
	}
	switch number, _, _ := strings.Cut(title, ":"); number {
	case "Table 3":
		who, ok := table3[cells[0]]
		if !ok {
			t.Fatalf("%s: row %q is not known", title, cells[0])
		}
		for i, platform := range []string{"P-IB", "P-GB200"} {
			for k, metric := range []string{"issue", "put_completion", "rtt"} {
				add(platform, number, "op", op, who.config, who.backend, metric, cells[1+3*i+k], us)
			}
		}
	case "Table 4":
		order := table4[strings.Trim(cells[0], "`")]
		if strings.HasPrefix(cells[0], "`__threadfence") {
			order = "threadfence"
		}
		if order == "" {
			t.Fatalf("%s: row %q is not known", title, cells[0])
		}
		for i, platform := range []string{"P-IB", "P-GB200"} {
			issue, completion, _ := strings.Cut(cells[1+i], " / ")
			add(platform, number, "op", op, map[string]string{"order": order}, "minigda", "issue", issue, us)
			add(platform, number, "op", op, map[string]string{"order": order}, "minigda", "put_completion", completion, us)
		}
	case "Table 5":
		backend, config := "minigda", map[string]string{"qps": cells[2], "sms": cells[3], "batch": cells[4]}
		switch {
		case strings.HasPrefix(cells[0], "NVSHMEM"):
			backend = "nvshmem"
		case strings.Contains(cells[0], "lock"):
			config["sharing"] = "lock"
		case strings.Contains(cells[0], "handed off"):
			config["sharing"] = "handoff"
		case strings.Contains(cells[0], "cooperative"):
			config["sharing"] = "warp"
		default:
			config["sharing"] = "exclusive"
		}
		threads := strings.ReplaceAll(cells[1], ",", "")
		add("P-IB", number, "rate", map[string]string{"size": "8", "threads": threads}, config, backend, "message_rate", cells[5], mmsg)
	case "Table 6":
		metric := "put_completion"
		if strings.HasSuffix(cells[0], "issue") || strings.HasSuffix(cells[0], "enqueue") {
			metric = "issue"
		}
		who := map[string]source{"NVSHMEM": {"nvshmem", map[string]string{"api": "public"}}, "GDAKI": {"ncclgin", map[string]string{"path": "gdaki"}},
			"IBRC": {"nvshmem", map[string]string{"path": "ibrc"}}}[strings.Fields(cells[0])[0]]
		for i, part := range []string{"_cycles", "_constant", "_r2"} {
			add("P-RoCE", number, "sm_clock", op, who.config, who.backend, metric+part, cells[1+i], []float64{1, us, 1}[i])
		}
	case "Table 7":
		for i, scope := range []string{"all", "qp-deepep", "qp", "all"} {
			metric := "put_completion"
			if head[1+i] == "RTT" {
				metric = "rtt"
			}
			add("P-RoCE", number, "op", op, map[string]string{"qps": cells[0], "scope": scope}, "nvshmem", metric, cells[1+i], us)
		}
	case "Tables 9-11":
		out = append(out, proxyFigures(t, head, cells, add, with, op)...)
	default:
		t.Fatalf("table %q is not known", title)
	}
	return out
}

type source struct {
	backend string
	config  map[string]string
}

// proxyFigures are those of the three tables about proxies.
func proxyFigures(t *testing.T, head, cells []string, add func(string, string, string, map[string]string, map[string]string, string, string, string, float64),
	with func(map[string]string, ...string) map[string]string, op map[string]string) []figure {
	t.Helper()
	who, ok := proxies[cells[0]]
	if !ok {
		t.Fatalf("proxies: row %q is not known", cells[0])
	}
	if head[1] == "workers" {
		for i, state := range []string{"cold", "warm"} {
			add("P-IB", "Tables 9-11", "rate", map[string]string{"cpu": state}, with(who.config, "workers", cells[1]), who.backend, "message_rate", cells[2+i], 1e6)
		}
		return nil
	}
	for i, metric := range []string{"put_completion", "rtt", "rtt_p99"} {
		cold, warm, _ := strings.Cut(cells[1+i], " / ")
		add("P-IB", "Tables 9-11", "op", with(op, "cpu", "cold"), who.config, who.backend, metric, cold, 1e-6)
		add("P-IB", "Tables 9-11", "op", with(op, "cpu", "warm"), who.config, who.backend, metric, warm, 1e-6)
	}
	return nil
}

var table3 = map[string]source{
	"mini-gda, inline":             {"minigda", map[string]string{"inline": "on", "order": ""}},
	"mini-gda, non-inline":         {"minigda", map[string]string{"inline": "off"}},
	"mini-gda, unordered (unsafe)": {"minigda", map[string]string{"order": "none"}},
	"GDAKI, inline":                {"ncclgin", map[string]string{"path": "gdaki", "inline": "on"}},
	"GDAKI, non-inline":            {"ncclgin", map[string]string{"path": "gdaki", "inline": "off"}},
	"NVSHMEM internal":             {"nvshmem", map[string]string{"path": "ibgda", "api": "internal"}},
	"NVSHMEM public":               {"nvshmem", map[string]string{"path": "ibgda", "api": "public"}},
	"NVSHMEM IBRC (proxy)":         {"nvshmem", map[string]string{"path": "ibrc"}},
	"NCCL GIN Proxy":               {"ncclgin", map[string]string{"path": "proxy"}},
	"mini-proxy, baseline":         {"miniproxy", map[string]string{"handoff": "baseline"}},
	"mini-proxy, tuned":            {"miniproxy", map[string]string{"handoff": "tuned"}},
}

var table4 = map[string]string{
	"none (unsafe control)":            "none",
	"GPU-scope fence (DOCA, GDAKI)":    "gpu-fence",
	"+ fenced doorbell record":         "gpu-fence+dbr",
	"GPU-scope release store (DeepEP)": "gpu-release",
	"system-scope release store":       "sys-release",
	"system-scope fence":               "sys-fence",
}

var proxies = map[string]source{
	"IBRC":                  {"nvshmem", map[string]string{"path": "ibrc"}},
	"GIN Proxy":             {"ncclgin", map[string]string{"path": "proxy"}},
	"mini-proxy baseline":   {"miniproxy", map[string]string{"handoff": "baseline"}},
	"mini-proxy tuned":      {"miniproxy", map[string]string{"handoff": "tuned"}},
	"mini-proxy B=1":        {"miniproxy", map[string]string{"batch": "1"}},
	"mini-proxy B=16":       {"miniproxy", map[string]string{"batch": "16"}},
	"UCCL-EP":               {"uccl-ep", nil},
	"MSCCL++ patched":       {"mscclpp", nil},
	"GIN Proxy, 4 contexts": {"ncclgin", map[string]string{"path": "proxy", "contexts": "4"}},
	"fabric-lib":            {"fabric-lib", nil},
}
