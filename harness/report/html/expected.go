package html

import (
	"gic/harness/record"
	"gic/harness/report"
)

// Expect adds the column expected to the page's tables; see report.Report. It comes before the first record.
func (p *Page) Expect(from string, of func(c *record.Case, metric string) report.Expectation) {
	p.report.Expect(from, of)
}
