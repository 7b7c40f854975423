package record

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"testing"
)

func BenchmarkRead(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	var buf bytes.Buffer
	const n = 10000
	for i := range n {
		c := testCase(rng, i)
		c.Type, c.ID = "case", CaseID(c)
		line, err := json.Marshal(c)
		if err != nil {
			b.Fatal(err)
		}
		buf.Write(append(line, '\n'))
	}
	b.SetBytes(int64(buf.Len()))
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		got := 0
		for rec, err := range Read("bench", bytes.NewReader(buf.Bytes())) {
			if _, ok := rec.(*Case); !ok || err != nil {
				b.Fatal(rec, err)
			}
			got++
		}
		if got != n {
			b.Fatalf("read %d of %d", got, n)
		}
	}
	b.ReportMetric(float64(buf.Len())/n, "B/record")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/record")
}

func BenchmarkMergeTwo(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	x, y := testCase(rng, 0).Metrics[1], testCase(rng, 1).Metrics[1]
	b.ReportMetric(float64(len(x.HDR)), "B/histogram")
	for range b.N {
		if _, err := Merge(x, y); err != nil {
			b.Fatal(err)
		}
	}
}
