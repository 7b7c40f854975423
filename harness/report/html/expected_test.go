package html

import (
	"bytes"
	"strings"
	"testing"

	"gic/harness/record"
	"gic/harness/report"
	"gic/workloads"
)

// The page has the column expected where it was asked for, and otherwise not.
func TestExpected(t *testing.T) {
	page := func(expect bool) string {
		t.Helper()
		p := New(Options{})
		if expect {
			p.Expect("of a <test>", func(c *record.Case, metric string) report.Expectation {
				if c.Backend == "miniproxy" {
					return report.Expectation{None: "unknown"}
				}
				return report.Expectation{Value: 1.25e-6}
			})
		}
		p.Add(&record.Header{ID: "p", Command: []string{"gic"}, Launch: "local", Ranks: 2, Repeat: 1, Cases: 2, Gic: "test"})
		for _, backend := range []string{"minigda", "miniproxy"} {
			m, err := record.FromSamples("issue", "s", workloads.Time, []float64{1e-6})
			if err != nil {
				t.Fatal(err)
			}
			m.Headline = true
			p.Add(&record.Case{ID: backend, Workload: "op", Backend: backend, NIC: "soft", Device: "host", Ranks: 2, Status: record.OK,
				Metrics: []record.Metric{m}, Verify: &workloads.Verification{Checked: 8}})
		}
		var b bytes.Buffer
		if err := p.Render(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	with, without := page(true), page(false)
	for _, want := range []string{`<th scope="col" class="num">expected</th>`, "Expected: of a &lt;test&gt;;", `colspan="10"`,
		`<td class="num">1.00</td><td class="num">1.25</td><td class="num">-</td>`, `<td class="num">1.00</td><td class="num">-</td><td class="num">-</td>`} {
		if !strings.Contains(with, want) {
			t.Errorf("the page has no %s", want)
		}
	}
	for _, no := range []string{"expected</th>", "Expected:", `colspan="10"`} {
		if strings.Contains(without, no) {
			t.Errorf("without Expect the page has %s", no)
		}
	}
}
