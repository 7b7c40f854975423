package cli

import (
	"gic/harness/attribution/oracle"
	"gic/harness/record"
	"gic/harness/report"
)

// expect puts what a platform's constants predict beside the rows of a report.
func expect(rep *report.Report, nameOrPath string) error {
	p, err := oracle.Load(nameOrPath)
	if err != nil {
		return usageError{err}
	}
	from := "of platform " + p.Name + " by gic predict"
	if p.NIC == "soft" || p.Device == "host" {
		from += " (fitted with nic=" + p.NIC + ", device=" + p.Device + ")"
	}
	rep.Expect(from, func(c *record.Case, metric string) report.Expectation {
		q, ok := oracle.QueryFor(c, metric)
		if !ok {
			return report.Expectation{None: "the oracle has no model of " + metric + " of " + c.Workload}
		}
		a := p.Predict(q)
		return report.Expectation{Value: a.Value, None: a.None}
	})
	return nil
}
