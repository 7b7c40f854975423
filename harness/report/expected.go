package report

import (
	"math"

	"gic/harness/record"
)

// Expectation is what a model says that a metric of a record should be.
type Expectation struct {
	Value float64 // in the metric's unit; meaningless if None
	None  string  // why there is none
}

// Expect adds the column expected to tables, and the keys expected and no_prediction to csv and json. It is asked once
// for every metric of every record added later; from says what it is of, as the legend has it.
func (r *Report) Expect(from string, of func(c *record.Case, metric string) Expectation) {
	r.expectedFrom, r.expect = from, of
}

func (c *cell) expectedText(u unit) string {
	if c.expected == nil || c.expected.None != "" {
		return "-"
	}
	return number(c.expected.Value / u.scale)
}

// expectation is the value for csv and json, and why there is none.
func (c *cell) expectation() (value float64, none string) {
	if c.expected == nil {
		return math.NaN(), ""
	}
	if c.expected.None != "" {
		return math.NaN(), c.expected.None
	}
	return c.expected.Value, ""
}
