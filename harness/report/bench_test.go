package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"gic/harness/record"
)

// writeLong writes a run of n cases in three process runs each, of all workloads of the synthetic run.
func writeLong(tb testing.TB, n int) string {
	tb.Helper()
	base := quick()
	path := filepath.Join(tb.TempDir(), record.FileName)
	f, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	var buf bytes.Buffer
	put := func(r record.Record) {
		line, err := json.Marshal(r)
		if err != nil {
			tb.Fatal(err)
		}
		buf.Write(append(line, '\n'))
	}
	put(base[0])
	for lap, written := 0, 0; written < n; lap++ {
		for _, r := range base[1:] {
			c := *r.(*record.Case)
			if c.Status == record.Skipped || written == n {
				continue
			}
			// A new point for every lap, as a long sweep has them.
			c.Axes = with(c.Axes, "messages", strconv.Itoa(lap))
			c.ID = record.CaseID(&c)
			put(&c)
			written++
		}
	}
	if _, err := f.Write(buf.Bytes()); err != nil {
		tb.Fatal(err)
	}
	return path
}

// BenchmarkShow100k is `gic show` of 100,000 records: it must stay under 2 s on two cores.
func BenchmarkShow100k(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // as gic show does
	const n = 100_000
	path := writeLong(b, n)
	st, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	var read, rendered float64
	cpu := cpuSeconds(b)
	for range b.N {
		start := b.Elapsed()
		r, err := Load(path)
		if err != nil {
			b.Fatal(err)
		}
		mid := b.Elapsed()
		var out counter
		if err := r.Render(&out, "table", DefaultWidth); err != nil {
			b.Fatal(err)
		}
		if out.lines < n/3 {
			b.Fatalf("%d lines for %d rows", out.lines, n/3)
		}
		read += (mid - start).Seconds()
		rendered += (b.Elapsed() - mid).Seconds()
	}
	b.ReportMetric(read/float64(b.N), "s-read")
	b.ReportMetric(rendered/float64(b.N), "s-render")
	b.ReportMetric((cpuSeconds(b)-cpu)/float64(b.N), "s-cpu") // of all threads; does not depend on what else runs
	b.ReportMetric(float64(st.Size())/n, "B/record")
	fmt.Printf("gic show of %d records: %.2f s\n", n, b.Elapsed().Seconds()/float64(b.N))
}

func cpuSeconds(b *testing.B) float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// counter counts lines.
type counter struct{ lines int }

func (c *counter) Write(p []byte) (int, error) {
	c.lines += bytes.Count(p, []byte{'\n'})
	return len(p), nil
}

var _ io.Writer = (*counter)(nil)
