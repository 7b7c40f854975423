package diff

import (
	"io"
	"maps"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gic/harness/record"
)

func cpuSeconds(b *testing.B) float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// BenchmarkDiff compares two sets of 100,000 records (20,000 cases in 5 process runs each), from files to the
// printed table: lean records of 1.1 KiB, and such as a run on an H200 wrote, of 3.6 KiB. The aim is 3 s and 1 GiB.
func BenchmarkDiff(b *testing.B) {
	b.Run("lean", func(b *testing.B) { benchDiff(b, nil) })
	b.Run("h200", func(b *testing.B) { benchDiff(b, committed(b)) })
}

// committed are the measured cases of a committed run.
func committed(b *testing.B) (out []*record.Case) {
	for rec, err := range record.ReadFile("../../results/2026-11-29-h200/paper-gpu/run.jsonl") {
		if err != nil {
			b.Fatal(err)
		}
		if c, ok := rec.(*record.Case); ok && c.Index == 0 && c.Status == record.OK {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		b.Fatal("no cases")
	}
	return out
}

// like makes a case of the synthetic run one like a measured one, each the only one of its iterations.
func like(b *testing.B, c, measured *record.Case, iterations int) {
	noise := c.Metrics[0].P50 / 2e-6
	index, order, start := c.Index, c.Order, c.Start
	*c = *measured
	c.Index, c.Order, c.Start = index, order, start
	c.Axes = maps.Clone(measured.Axes)
	c.Axes["iterations"] = strconv.Itoa(iterations)
	c.Host = maps.Clone(measured.Host)
	c.Host["load1"] = noise
	c.Metrics = slices.Clone(measured.Metrics)
	for i := range c.Metrics {
		if m := &c.Metrics[i]; m.Samples != nil {
			scale(b, c, m.Name, noise)
		}
	}
}

func benchDiff(b *testing.B, measured []*record.Case) {
	dir := b.TempDir()
	var paths [2]string
	for i := range paths {
		s := newSynth([]string{"one", "two"}[i], uint64(i))
		s.cases, s.repeat = 20000, 5
		if n := len(measured); n > 0 {
			s.change = func(c *record.Case) bool {
				at := c.Order % s.cases
				like(b, c, measured[at%n], 1000+at/n)
				return true
			}
		}
		paths[i] = s.write(b, filepath.Join(dir, s.id))
	}
	var peak atomic.Uint64
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				peak.Store(max(peak.Load(), m.HeapInuse+m.StackInuse))
			}
		}
	}()
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(GCPercent)) // as the command does
	cpu := cpuSeconds(b)
	b.ResetTimer()
	for range b.N {
		old, new := load(b, "OLD"), load(b, "NEW")
		if err := Load(old, new, paths[:1], paths[1:], nil, nil); err != nil {
			b.Fatal(err)
		}
		r, err := Compare(old, new, Options{Alpha: 0.05})
		if err != nil {
			b.Fatal(err)
		}
		if r.Paired != 20000 {
			b.Fatalf("%d pairs", r.Paired)
		}
		if err := r.Render(io.Discard, "table", 100); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	close(stop)
	<-done
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/diff")
	b.ReportMetric((cpuSeconds(b)-cpu)/float64(b.N), "cpu-s/diff") // what a busy machine does not change
	b.ReportMetric(float64(peak.Load())/(1<<20), "MiB-peak")
}
