package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"

	"gic/harness/record"
	"gic/workloads"
)

// What is expected stands beside what was measured in every format that has columns; without being asked for, nothing
// changes (the golden files hold that).
func TestExpected(t *testing.T) {
	s := newSynth(3, 2)
	for _, backend := range []string{"minigda", "miniproxy"} {
		s.add(3, spec{workload: "op", axes: map[string]string{"size": "8"}, backend: backend, config: map[string]string{},
			metrics: []metricSpec{{"issue", workloads.Time, 700e-9, 1, false}, {"rtt", workloads.Time, 6.85e-6, 1, false}}})
	}
	r := New()
	asked := map[string]int{}
	r.Expect("of a test", func(c *record.Case, metric string) Expectation {
		asked[c.Backend+" "+metric]++
		if c.Backend == "miniproxy" {
			return Expectation{None: "no such constant"}
		}
		return Expectation{Value: map[string]float64{"issue": 700e-9, "rtt": 6.85e-6}[metric]}
	})
	for _, rec := range s.records {
		r.Add(rec)
	}
	if asked["minigda issue"] != 3 || asked["miniproxy rtt"] != 3 {
		t.Errorf("asked %v, expected 3 times for every metric", asked)
	}
	render := func(format string) string {
		t.Helper()
		var b bytes.Buffer
		if err := r.Render(&b, format, 0); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	text := render("table")
	for _, want := range []string{"median  expected", "expected: of a test; -: no prediction, csv and json say why"} {
		if !strings.Contains(text, want) {
			t.Errorf("the table has no %q:\n%s", want, text)
		}
	}
	found := 0
	for line := range strings.Lines(text) {
		f := strings.Fields(strings.TrimPrefix(line, "* "))
		switch {
		case len(line)-1 > DefaultWidth:
			t.Errorf("%d columns: %s", len(line)-1, line)
		case len(f) > 3 && f[0] == "minigda" && f[1] == "soft/host" && (f[3] == "700" || f[3] == "6.85"),
			len(f) > 3 && f[0] == "miniproxy" && f[1] == "soft/host" && f[3] == "-":
			found++
		}
	}
	if found != 4 {
		t.Errorf("%d rows have what is expected in the third column, expected 4:\n%s", found, text)
	}
	rows, err := csv.NewReader(strings.NewReader(render("csv"))).ReadAll()
	if err != nil || len(rows) != 5 {
		t.Fatalf("%d csv rows, expected 5 (%v)", len(rows), err)
	}
	n := len(rows[0])
	if rows[0][n-2] != "expected" || rows[0][n-1] != "no_prediction" || rows[1][n-2] != "7e-07" || rows[1][n-1] != "" || rows[4][n-2] != "" || rows[4][n-1] != "no such constant" {
		t.Errorf("csv: %v, %v, %v", rows[0][n-2:], rows[1][n-2:], rows[4][n-2:])
	}
	var doc struct {
		Runs []struct {
			Cases []struct {
				Metrics []struct {
					Expected *float64 `json:"expected"`
					None     string   `json:"no_prediction"`
				} `json:"metrics"`
			} `json:"cases"`
		} `json:"runs"`
	}
	if err := json.Unmarshal([]byte(render("json")), &doc); err != nil {
		t.Fatal(err)
	}
	cases := doc.Runs[0].Cases
	if m := cases[0].Metrics[0]; m.Expected == nil || *m.Expected != 700e-9 {
		t.Errorf("json: %+v", m)
	}
	if m := cases[1].Metrics[0]; m.Expected != nil || m.None != "no such constant" {
		t.Errorf("json: %+v", m)
	}
	if md := render("markdown"); !strings.Contains(md, "| median | expected | range |") {
		t.Errorf("markdown:\n%s", md)
	}
}
