package cli

import (
	"gic/harness/attribution/oracle"
	"gic/harness/attribution/oracle/scale"
	"gic/harness/record"
	"gic/harness/report"
)

// expecter is a report, or a page made of one.
type expecter interface {
	Expect(from string, of func(c *record.Case, metric string) report.Expectation)
}

// expect puts what a platform's constants predict beside the rows of a report.
func expect(rep expecter, nameOrPath string) error {
	p, err := oracle.Load(nameOrPath)
	if err != nil {
		return usageError{err}
	}
	from := "of platform " + p.Name + " by gic predict"
	if p.NIC == "soft" || p.Device == "host" {
		from += " (fitted with nic=" + p.NIC + ", device=" + p.Device + ")"
	}
	expectMoE := moeExpectation()
	rep.Expect(from, func(c *record.Case, metric string) report.Expectation {
		if c.Device != p.Device && p.Device != "" {
			return report.Expectation{None: "device=" + c.Device + ", the platform is of device=" + p.Device}
		}
		if c.Workload == "moe" && (metric == "dispatch" || metric == "combine") {
			return expectMoE(p, c, metric)
		}
		q, ok := oracle.QueryFor(c, metric)
		if !ok {
			return report.Expectation{None: "the oracle has no model of " + metric + " of " + c.Workload}
		}
		a := p.Predict(q)
		return report.Expectation{Value: a.Value, None: a.None}
	})
	return nil
}

// moeExpectation simulates the dispatch of records of moe, each case once. Measured times of combine contain a
// reduction, of which there is no model.
func moeExpectation() func(p *oracle.Platform, c *record.Case, metric string) report.Expectation {
	known := map[string]report.Expectation{}
	return func(p *oracle.Platform, c *record.Case, metric string) report.Expectation {
		if metric == "combine" {
			return report.Expectation{None: "combine is measured with the reduction, which has no model"}
		}
		if e, ok := known[c.ID]; ok && c.ID != "" {
			return e
		}
		e := dispatch(p, c)
		known[c.ID] = e
		return e
	}
}

func dispatch(p *oracle.Platform, c *record.Case) report.Expectation {
	m, err := scale.ForCase(c)
	if err != nil {
		return report.Expectation{None: err.Error()}
	}
	a, err := scale.Predict(p, m)
	if err != nil {
		return report.Expectation{None: err.Error()}
	}
	return report.Expectation{Value: a.Dispatch, None: a.None}
}
