package run

import (
	"testing"

	"gic/harness/record"
)

// What a process run costs beside its measurement: two processes from start to end, one point of 8 bytes.
func BenchmarkProcessRun(b *testing.B) {
	c, err := Local(2)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	p := testPlan(2, "", "8")
	for b.Loop() {
		err := Run(b.Context(), p, Options{Workloads: testWorkloads(), Cluster: c}, func(c record.Case) error {
			if c.Status != record.OK {
				b.Errorf("%s: %s", c.Status, c.Reason)
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
