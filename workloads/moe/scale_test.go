package moe

import (
	"testing"

	"gic/workloads/worktest"
)

// The published decode shape (hidden 7168, 128 tokens, top 8 of 256 experts) must stay feasible.
func BenchmarkPrepareAndVerify(b *testing.B) {
	for b.Loop() {
		job, err := Workload{}.Prepare(worktest.Default(Workload{}, "model", "deepseek-v3", "tokens", "128"), 8, 1)
		if err != nil {
			b.Fatal(err)
		}
		m := make(worktest.Memory, job.WindowBytes())
		if err := job.Fill(0, m); err != nil {
			b.Fatal(err)
		}
		if _, err := job.Run(0); err != nil {
			b.Fatal(err)
		}
		if _, err := job.Verify(0, m); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(m)), "window-B")
	}
}
