// Package worktest checks workloads: it runs a job in memory through its Simulator, corrupts what came out byte
// by byte, and writes the case files from which the kernel test (../kerneltest) runs the device half.
package worktest

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gic/backends"
	"gic/workloads"
)

var update = flag.Bool("update", false, "write the case files anew")

// Memory is a window in this process.
type Memory []byte

// Write copies into the window.
func (m Memory) Write(offset uint64, data []byte) error {
	if err := m.inside(offset, data); err != nil {
		return err
	}
	copy(m[offset:], data)
	return nil
}

// Read copies out of the window.
func (m Memory) Read(offset uint64, data []byte) error {
	if err := m.inside(offset, data); err != nil {
		return err
	}
	copy(data, m[offset:])
	return nil
}

func (m Memory) inside(offset uint64, data []byte) error {
	if n := uint64(len(m)); offset > n || uint64(len(data)) > n-offset {
		return fmt.Errorf("%d bytes at %d are outside the window of %d", len(data), offset, n)
	}
	return nil
}

// Default is the point of a workload's default axes, with those given as name, value, name, value, ... replaced.
func Default(w workloads.Workload, axes ...string) workloads.Point {
	p := workloads.Point{}
	for _, a := range w.Axes() {
		p[a.Name] = a.Default
	}
	for i := 0; i < len(axes); i += 2 {
		if _, ok := p[axes[i]]; !ok {
			panic("worktest: no axis " + axes[i])
		}
		p[axes[i]] = axes[i+1]
	}
	return p
}

// Prepare makes a job or ends the test.
func Prepare(t *testing.T, w workloads.Workload, ranks int, axes ...string) workloads.Job {
	t.Helper()
	job, err := w.Prepare(Default(w, axes...), ranks, 1)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// Filled returns every rank's window before the run.
func Filled(t *testing.T, job workloads.Job, ranks int) []Memory {
	t.Helper()
	windows := make([]Memory, ranks)
	for rank := range windows {
		windows[rank] = make(Memory, job.WindowBytes())
		if err := job.Fill(rank, windows[rank]); err != nil {
			t.Fatal(err)
		}
	}
	return windows
}

// Simulated returns every rank's window and result after a simulated run.
func Simulated(t *testing.T, job workloads.Job, ranks int) ([]Memory, []workloads.RankResult) {
	t.Helper()
	windows := Filled(t, job, ranks)
	memories := make([]workloads.Memory, ranks)
	for rank := range memories {
		memories[rank] = windows[rank]
	}
	results, err := job.(workloads.Simulator).Simulate(memories)
	if err != nil {
		t.Fatal(err)
	}
	return windows, results
}

func verify(t *testing.T, job workloads.Job, rank int, m Memory) workloads.Verification {
	t.Helper()
	v, err := job.Verify(rank, Memory(bytes.Clone(m))) // it wipes the sources
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// CheckVerify proves that verification accepts a right run and no other: windows that nothing was sent to are
// refused at the ranks that receive; of a right window with every byte flipped each byte that is compared is
// found; and so is a single flipped one, tried for a part of the bytes. It is for small windows.
func CheckVerify(t *testing.T, job workloads.Job, ranks int, receivers ...int) {
	t.Helper()
	before := Filled(t, job, ranks)
	for _, rank := range receivers {
		if v := verify(t, job, rank, before[rank]); v.Wrong == 0 {
			t.Errorf("rank %d: nothing arrived, and nothing was found wrong", rank)
		}
	}
	windows, _ := Simulated(t, job, ranks)
	for rank, m := range windows {
		v := verify(t, job, rank, m)
		if v.Wrong != 0 || v.Checked == 0 || v.First != "" {
			t.Errorf("rank %d: a right run gives %+v", rank, v)
			continue
		}
		checkFlips(t, job, rank, m, v.Checked)
	}
}

func checkFlips(t *testing.T, job workloads.Job, rank int, m Memory, checked uint64) {
	t.Helper()
	flipped := Memory(bytes.Clone(m))
	for i := range flipped {
		flipped[i] ^= 1
	}
	if v := verify(t, job, rank, flipped); v.Wrong != checked {
		t.Errorf("rank %d: %d bytes are compared, but %d are found when all are flipped", rank, checked, v.Wrong)
	}
	const step = 13
	tried, found := uint64(0), uint64(0)
	for i := rank % step; i < len(m); i += step {
		m[i] ^= 1
		v := verify(t, job, rank, m)
		m[i] ^= 1
		tried++
		if v.Wrong > 1 || v.Wrong == 1 && v.First == "" {
			t.Errorf("rank %d: byte %d flipped gives %+v", rank, i, v)
		}
		found += v.Wrong
	}
	// Sources and words that no check needs are not compared: about as many of the tried bytes as of all.
	if want := checked * tried / uint64(len(m)); found+found/4 < want || found == 0 {
		t.Errorf("rank %d: of %d single flips %d are found, expected about %d", rank, tried, found, want)
	}
}

// Errors checks that Prepare refuses a point, with an error that contains `text`. Axes as in Default.
func Errors(t *testing.T, w workloads.Workload, ranks int, text string, axes ...string) {
	t.Helper()
	_, err := w.Prepare(Default(w, axes...), ranks, 1)
	if err == nil || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "\n") {
		t.Errorf("ranks=%d %v: error %v, expected one line with %q", ranks, axes, err, text)
	}
}

// Case compares testdata/<name>.case with the job, or writes it with -update. The kernel test runs the device
// half on the inputs in the file and expects the operations, windows and series in it.
func Case(t *testing.T, name string, job workloads.Job, ranks int) {
	t.Helper()
	var b bytes.Buffer
	before := Filled(t, job, ranks)
	after, results := Simulated(t, job, ranks)
	for rank := range ranks {
		run, err := job.Run(rank)
		if err != nil {
			t.Fatal(err)
		}
		if rank == 0 {
			fmt.Fprintf(&b, "workload %s\nranks %d\nwindow %d\n", run.Workload, ranks, job.WindowBytes())
		}
		fmt.Fprintf(&b, "rank %d\n", rank)
		for _, key := range slices.Sorted(maps.Keys(run.Args)) {
			if !strings.HasPrefix(key, "axis.") {
				fmt.Fprintf(&b, "arg %s %s\n", key, run.Args[key])
			}
		}
		for _, blob := range run.Blobs {
			fmt.Fprintf(&b, "blob %s %s\n", blob.Name, hex.EncodeToString(blob.Data))
		}
		ops := job.Ops(rank)
		fmt.Fprint(&b, "ops")
		for op := range backends.NumOps {
			fmt.Fprintf(&b, " %d", ops.Count[op])
		}
		fmt.Fprintf(&b, "\npayload %d\n", ops.PayloadBytes)
		for _, s := range results[rank].Series {
			fmt.Fprintf(&b, "series %s %d\n", s.Name, len(s.Values))
		}
		dump(&b, "before", before[rank], make(Memory, len(before[rank])))
		dump(&b, "after", after[rank], before[rank])
	}
	path := filepath.Join("testdata", name+".case")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, b.Bytes()) {
		t.Errorf("%s is not what the job gives now; if that is meant, run go test -update and the kernel test", path)
	}
}

// dump writes the 32-byte pieces in which m differs from base.
func dump(b *bytes.Buffer, word string, m, base Memory) {
	const piece = 32
	for i := 0; i < len(m); i += piece {
		end := min(i+piece, len(m))
		if !bytes.Equal(m[i:end], base[i:end]) {
			fmt.Fprintf(b, "%s %d %s\n", word, i, hex.EncodeToString(m[i:end]))
		}
	}
}
