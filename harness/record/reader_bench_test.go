package record

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"gic/workloads"
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

// BenchmarkDecode sets the ways of decoding one line side by side.
func BenchmarkDecode(b *testing.B) {
	c := testCase(rand.New(rand.NewPCG(1, 1)), 0)
	c.Metrics[1] = mustMetric("put_completion", "s", workloads.Time, latencies(rand.New(rand.NewPCG(1, 1)), 8, 3e-6))
	c.Type, c.ID = "case", CaseID(c)
	line, err := json.Marshal(c)
	if err != nil {
		b.Fatal(err)
	}
	spaced := bytes.Replace(line, []byte(`,"id":`), []byte(`, "id":`), 1) // is not of the plain form
	for _, way := range []struct {
		name string
		line []byte
		lean *summary
	}{{"general", spaced, nil}, {"plain", line, nil}, {"summary", line, &summary{}}} {
		b.Run(way.name, func(b *testing.B) {
			d := newDecoder(way.lean)
			b.ReportAllocs()
			for range b.N {
				d.parts.clear() // as for each batch
				if _, err := d.line(way.line); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
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
