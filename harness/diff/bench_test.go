package diff

import (
	"io"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func cpuSeconds(b *testing.B) float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// BenchmarkDiff compares two sets of 100,000 records (20,000 cases in 5 process runs each), from files to the
// printed table. The aim is 3 s and 1 GiB.
func BenchmarkDiff(b *testing.B) {
	dir := b.TempDir()
	var paths [2]string
	for i := range paths {
		s := newSynth([]string{"one", "two"}[i], uint64(i))
		s.cases, s.repeat = 20000, 5
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
