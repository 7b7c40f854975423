package cli

import (
	"encoding/csv"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gic/harness/attribution/oracle"
)

const paperRows = "../../results/paper"

func TestPredictGolden(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
	}{
		{"help-predict", []string{"predict", "--help"}},
		{"help-calibrate", []string{"calibrate", "--help"}},
		{"predict", []string{"predict"}},
		{"predict-explain", []string{"predict", "--workload", "op:size=8|64", "--backend", "minigda:order=sys-release", "--backend", "nvshmem:path=ibgda,api=public", "--explain"}},
		{"predict-none", []string{"predict", "--platform", "P-RoCE", "--workload", "op", "--backend", "nvshmem:path=ibgda,api=public", "--at", "clock=1e9|2e9"}},
		{"predict-connections", []string{"predict", "--platform", "P-H100", "--quantity", "rate_kept", "--quantity", "message_rate", "--at", "pattern=alltoall|pairs,active=1024..4096*2,role=send,burst=32", "--backend", "minigda"}},
		{"predict-moe", []string{"predict", "--workload", "moe:model=deepseek-v3,tokens=16,layout=rank", "--backend", "minigda:batch=16,qps=1|500", "--ranks", "4|16", "--explain"}},
		{"predict-moe-none", []string{"predict", "--workload", "moe:tokens=8", "--backend", "minigda", "--backend", "miniproxy:workers=2", "--ranks", "4..16", "--platform", "P-RoCE", "--platform", "P-IB"}},
		{"predict-constants", []string{"predict", "--constants", "--platform", "P-H100"}},
		{"predict-check", []string{"predict", "--check", paperRows}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, stdout, stderr := gic(t, tt.args...)
			if status != 0 || stderr != "" {
				t.Fatalf("status %d, stderr %q", status, stderr)
			}
			narrow(t, tt.name, stdout)
			golden(t, tt.name, stdout)
		})
	}
}

// Nonsense is one line and status 2.
func TestPredictRefuses(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	head := "schema: gic.platform/1\nname: x\n"
	constant := func(fields string) string { return head + "constants:\n  - name: cqe\n" + fields }
	for _, tt := range []struct {
		want string
		args []string
	}{
		{`platform "P-XX" is not known; known: P-GB200, P-H100, P-IB, P-RoCE, or the path of a platform file`, []string{"--platform", "P-XX"}},
		{"no such file", []string{"--platform", filepath.Join(dir, "none.yaml")}},
		{`schema is "", expected "gic.platform/1"`, []string{"--platform", write("a.yaml", "name: x\n")}},
		{"name is empty", []string{"--platform", write("b.yaml", "schema: gic.platform/1\n")}},
		{"unknown field", []string{"--platform", write("c.yaml", head+"colour: blue\n")}},
		{`constant 1: name "speed" is not known`, []string{"--platform", write("d.yaml", head+"constants:\n  - name: speed\n    value: 1\n    unit: s\n    source: me\n")}},
		{`unit "parsec" is not known`, []string{"--platform", write("e.yaml", constant("    value: 1\n    unit: parsec\n    source: me\n"))}},
		{`unit "B" is of B, expected of s`, []string{"--platform", write("f.yaml", constant("    value: 1\n    unit: B\n    source: me\n"))}},
		{"has no source", []string{"--platform", write("g.yaml", constant("    value: 1\n    unit: us\n"))}},
		{"value -1 is negative", []string{"--platform", write("h.yaml", constant("    value: -1\n    unit: us\n    source: me\n"))}},
		{`valid size: "9..8" is not a range`, []string{"--platform", write("i.yaml", constant("    value: 1\n    unit: us\n    source: me\n    valid: {size: 9..8}\n"))}},
		{`constant cqe: condition "siez" is not known`, []string{"--platform", write("k.yaml", constant("    value: 1\n    unit: us\n    source: me\n    valid: {siez: 8..9}\n"))}},
		{"value 1 is not between low and high", []string{"--platform", write("l.yaml", constant("    value: 1\n    low: 2\n    high: 3\n    unit: us\n    source: me\n"))}},
		{"is given twice", []string{"--platform", write("j.yaml", constant("    value: 1\n    unit: us\n    source: me\n  - name: cqe\n    value: 2\n    unit: us\n    source: me\n"))}},
		{`unknown quantity "speed"`, []string{"--quantity", "speed"}},
		{`unknown workload with a model "ops"`, []string{"--workload", "ops"}},
		{`condition "sise" is not known`, []string{"--workload", "op:sise=8"}},
		{`condition "colour" is not known`, []string{"--backend", "minigda:colour=red"}},
		{`condition "frequency" is not known`, []string{"--at", "frequency=1e9"}},
		{"no value for", []string{"--at", "clock"}},
		{"takes no arguments but flags", []string{"issue"}},
		{"--ranks 8192 is not allowed: 2..4096", []string{"--workload", "moe", "--ranks", "8192"}},
		{"--ranks 4..x", []string{"--workload", "moe", "--ranks", "4..x"}},
		{"--ranks 1 is not allowed: 2..4096", []string{"--workload", "moe", "--ranks", "1"}},
		{"layout=tree is not allowed: expert|rank", []string{"--workload", "moe:layout=tree", "--ranks", "4"}},
		{"moe: experts=6 is not allowed: a multiple of ranks=4", []string{"--workload", "moe:experts=6", "--ranks", "4"}},
		{"model=gpt is none that gic list models has", []string{"--workload", "moe:model=gpt", "--ranks", "4"}},
		{"routing=zipf is not allowed", []string{"--workload", "moe:routing=zipf", "--ranks", "4"}},
		{"leave the other workloads", []string{"--workload", "moe", "--workload", "op"}},
		{"holds no PLATFORM/run.jsonl", []string{"--check", dir}},
		{"--check prints a table or json", []string{"--check", paperRows, "--format", "csv"}},
	} {
		status, stdout, stderr := gic(t, append([]string{"predict"}, tt.args...)...)
		if status != exitUsage || stdout != "" || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("gic predict %q: status %d, stdout %q, stderr %q, expected one line with %q", tt.args, status, stdout, stderr, tt.want)
		}
	}
	for want, args := range map[string][]string{
		"calibrate takes at least one DIR or FILE": {"-o", "x.yaml"},
		"calibrate needs --output FILE":            {paperRows},
		"a platform is of one NIC and device":      {paperRows + "/P-IB", "../../results/2026-11-29-h200/paper-gpu", "-o", filepath.Join(dir, "x.yaml")},
	} {
		status, _, stderr := gic(t, append([]string{"calibrate"}, args...)...)
		if status != exitUsage || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("gic calibrate %q: status %d, stderr %q, expected one line with %q", args, status, stderr, want)
		}
	}
}

// The forms for programs hold what the table holds, and every number says its formula and constants.
func TestPredictFormats(t *testing.T) {
	args := []string{"predict", "--workload", "op", "--workload", "rate:threads=1|64", "--backend", "minigda:qps=64,batch=16", "--backend", "miniproxy"}
	_, out, _ := gic(t, append(args, "--format", "json")...)
	var list []oracle.Prediction
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 10 {
		t.Fatalf("%d predictions, expected 10", len(list))
	}
	for _, p := range list {
		switch {
		case p.OK() && (p.Value <= 0 || p.Formula == "" || p.Numbers == "" || len(p.Used) == 0):
			t.Errorf("a number without how it came about: %+v", p)
		case !p.OK() && (p.Value != 0 || len(p.Used) > 0):
			t.Errorf("no prediction, but a number: %+v", p)
		}
		for _, u := range p.Used {
			if u.Source == "" {
				t.Errorf("%s has no source", u.ID())
			}
		}
	}
	_, out, _ = gic(t, append(args, "--format", "csv")...)
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil || len(rows) != 11 {
		t.Fatalf("%d csv rows, expected 11 (%v)", len(rows), err)
	}
}

// Records that were really measured calibrate, and the platform says what they are of.
func TestCalibrateRecords(t *testing.T) {
	file := filepath.Join(t.TempDir(), "h200.yaml")
	status, stdout, stderr := gic(t, "calibrate", "../../results/2026-11-29-h200/paper-gpu", "-o", file)
	if status != 0 || !strings.HasPrefix(stderr, "wrote ") {
		t.Fatalf("status %d, stderr %q", status, stderr)
	}
	narrow(t, "calibrate", stdout)
	p, err := oracle.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if p.Name != "h200" || p.NIC != "soft" || p.Device != "cuda" || !strings.Contains(stdout, "support no claim about") {
		t.Errorf("name=%s nic=%s device=%s\n%s", p.Name, p.NIC, p.Device, stdout)
	}
	status, stdout, _ = gic(t, "predict", "--platform", file, "--workload", "op", "--backend", "minigda:order=sys-release,inline=off")
	if status != 0 || !strings.Contains(stdout, "issue") || !strings.Contains(stdout, "support no claim about") {
		t.Errorf("status %d\n%s", status, stdout)
	}
}

// gic show --platform puts the prediction beside each row, or the reason why there is none.
func TestShowExpected(t *testing.T) {
	status, out, stderr := gic(t, "show", paperRows+"/P-IB", "--platform", "P-IB", "--format", "csv")
	if status != 0 {
		t.Fatalf("status %d, stderr %q", status, stderr)
	}
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	for i, name := range rows[0] {
		at[name] = i
	}
	want := map[string]float64{ // order and metric to what is expected
		"sys-fence put_completion": 5.92e-6, "none put_completion": 3.49e-6, "threadfence issue": 1.22e-6,
	}
	seen := 0
	for _, row := range rows[1:] {
		expected, none := row[at["expected"]], row[at["no_prediction"]]
		if (expected == "") == (none == "") {
			t.Errorf("%s %s %s: expected %q, no prediction %q: one of them must be there", row[at["workload"]], row[at["backend"]], row[at["metric"]], expected, none)
		}
		if row[at["backend"]] != "minigda" || row[at["workload"]] != "op" || row[at["workload.size"]] != "8" {
			continue
		}
		v, ok := want[row[at["backend.order"]]+" "+row[at["metric"]]]
		if !ok {
			continue
		}
		seen++
		if got, err := strconv.ParseFloat(expected, 64); err != nil || math.Abs(got/v-1) > 1e-9 {
			t.Errorf("order=%s %s: expected %q, want %g", row[at["backend.order"]], row[at["metric"]], expected, v)
		}
	}
	if seen < len(want) {
		t.Errorf("%d rows found, want %d", seen, len(want))
	}
	status, out, _ = gic(t, "report", paperRows+"/P-IB", "--platform", "P-IB", "-o", "-")
	if status != 0 || !strings.Contains(out, `<th scope="col" class="num">expected</th>`) {
		t.Errorf("gic report --platform: status %d, no column expected", status)
	}
	_, out, _ = gic(t, "show", paperRows+"/P-IB", "--platform", "P-IB")
	narrow(t, "show --platform", out)
	if status, _, stderr := gic(t, "show", paperRows+"/P-IB", "--platform", "P-XX"); status != exitUsage || !strings.Contains(stderr, `platform "P-XX" is not known`) {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
}

// A range of ranks without a step doubles: nobody wants every number from 4 to 4096.
func TestPredictRanks(t *testing.T) {
	_, out, _ := gic(t, "predict", "--workload", "moe:tokens=1", "--backend", "minigda", "--ranks", "4..32", "--format", "csv")
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil || len(rows) != 5 {
		t.Fatalf("%d rows (%v), expected a head and 4, 8, 16, 32\n%s", len(rows), err, out)
	}
	for i, want := range []string{"4", "8", "16", "32"} {
		if rows[i+1][2] != want {
			t.Errorf("row %d is of %s ranks, expected %s", i+1, rows[i+1][2], want)
		}
	}
}
