package record

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func create(t *testing.T) (*Writer, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), FileName)
	w, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.f.Close() })
	return w, path
}

func contents(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestWriterRefusesAndGoesOn(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	w, path := create(t)
	with := func(f func(c *Case)) *Case {
		c := testCase(rng, 0)
		f(c)
		return c
	}
	for _, tc := range []struct {
		record Record
		want   string
	}{
		{with(func(c *Case) { c.Metrics[0].P50 = math.NaN() }), "metric issue: p50 is NaN"},
		{with(func(c *Case) { c.Metrics[0].Max = math.Inf(1) }), "metric issue: max is +Inf"},
		{with(func(c *Case) { c.Metrics[0].Samples[0] = -1 }), "metric issue: a sample is negative: -1"},
		{with(func(c *Case) { c.Metrics[0].P99 = 0 }), "out of order"},
		{with(func(c *Case) { c.Metrics[0].N = 2 }), "1 raw samples for n=2"},
		{with(func(c *Case) { c.Metrics[1].Samples = []float64{1} }), "histogram with 1 raw samples"},
		{with(func(c *Case) { c.Metrics[1].Name = "issue" }), "metric issue appears twice"},
		{with(func(c *Case) { c.Duration = math.NaN() }), "duration is NaN"},
		{with(func(c *Case) { c.Facts["gini"] = math.NaN() }), "unsupported value: NaN"},
		{with(func(c *Case) { c.Status = "fine" }), `status "fine" is not one of`},
		{with(func(c *Case) { c.Status = Failed }), "status failed without a reason"},
		{with(func(c *Case) { c.ID = "0123456789abcdef" }), "is not the hash"},
		{with(func(c *Case) { c.NIC = "" }), "must be named"},
		{with(func(c *Case) { c.Ranks = 0 }), "ranks 0 make no sense"},
		{&Header{Ranks: 1, Repeat: 1}, "run without an id"},
		{&Header{ID: "x", Schema: "gic.run/0", Ranks: 1, Repeat: 1}, "gic.run/0"},
		{&Bad{File: "f", Line: 3, Err: os.ErrInvalid}, "f:3"},
	} {
		if err := w.Write(tc.record); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want %q", err, tc.want)
		}
	}
	if got := contents(t, path); got != "" {
		t.Fatalf("refused records left %q", got)
	}
	if err := w.Write(testCase(rng, 3)); err != nil {
		t.Fatal(err)
	}
	if got := outline(t, strings.NewReader(contents(t, path))); len(got) != 1 || got[0] != "case 3" {
		t.Errorf("got %q", got)
	}
}

func TestWritersDoNotMix(t *testing.T) {
	w, path := create(t)
	if _, err := Create(path); err == nil {
		t.Error("an existing file was created again")
	}
	_, err := Append(path)
	if want := "write records: " + path + " is being written by another run"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Append(path)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	if _, err := Append(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("appended to a file that is not there")
	}
}

// At every byte at which an interrupted write may have ended: what was whole is read, what was torn is named,
// and a resumed run's records follow on their own lines.
func TestAppendAfterATornLine(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	small := &Case{Index: 1, Workload: "op", Backend: "fake", NIC: "none", Device: "host", Ranks: 2, Status: OK}
	before := lines(t, testHeader(), testCase(rng, 0))
	last := lines(t, small)
	for cut := range len(last) + 1 {
		path := filepath.Join(t.TempDir(), FileName)
		if err := os.WriteFile(path, append(bytes.Clone(before), last[:cut]...), 0o644); err != nil {
			t.Fatal(err)
		}
		w, err := Append(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(testCase(rng, 2)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		got := contents(t, path)
		if !strings.HasPrefix(got, string(before)+string(last[:cut])) {
			t.Fatalf("cut at %d: something was rewritten", cut)
		}
		want := []string{"run 20261129-172900-1a2b", "case 0"}
		switch {
		case cut >= len(last)-1: // only the newline was lost
			want = append(want, "case 1")
		case cut > 0:
			want = append(want, "run.jsonl:3: ...") // the decoder's words depend on the place
		}
		out := outline(t, strings.NewReader(got))
		for i, s := range out {
			if strings.HasPrefix(s, "run.jsonl:3: ") {
				out[i] = "run.jsonl:3: ..."
			}
		}
		if diff := cmp.Diff(append(want, "case 2"), out); diff != "" {
			t.Errorf("cut at %d (-want +got):\n%s", cut, diff)
		}
	}
}

func TestConcurrentWritesAreWholeLines(t *testing.T) {
	w, path := create(t)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				c := &Case{Index: g*50 + i, Workload: "op", Backend: "fake", NIC: "none", Device: "host", Ranks: 2, Status: OK}
				if err := w.Write(c); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, s := range outline(t, strings.NewReader(contents(t, path))) {
		seen[s] = true
	}
	for i := range 400 {
		if !seen[fmt.Sprintf("case %d", i)] {
			t.Fatalf("case %d is missing", i)
		}
	}
	if len(seen) != 400 {
		t.Errorf("%d different records, want 400", len(seen))
	}
}

// A write that stops inside a line must not be followed by another, which would be glued to it. The kernel's
// own limit on the file size makes the short write.
func TestWriterStopsAfterAShortWrite(t *testing.T) {
	if path := os.Getenv("GIC_TEST_SHORT_WRITE"); path != "" {
		shortWrite(t, path)
		return
	}
	path := filepath.Join(t.TempDir(), FileName)
	cmd := exec.Command("sh", "-c", `ulimit -f 8 && exec "$0" -test.run='^TestWriterStopsAfterAShortWrite$' -test.v`, os.Args[0])
	cmd.Env = append(os.Environ(), "GIC_TEST_SHORT_WRITE="+path)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := outline(t, strings.NewReader(contents(t, path)))
	if len(got) < 2 || got[len(got)-1] != fmt.Sprintf("run.jsonl:%d: torn last line, as of an interrupted run: not read", len(got)) {
		t.Fatalf("got %q", got)
	}
	for i, s := range got[:len(got)-1] {
		if s != fmt.Sprintf("case %d", i) {
			t.Errorf("record %d is %q", i, s)
		}
	}
}

func shortWrite(t *testing.T, path string) {
	w, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 100 {
		if err := w.Write(testCase(rng, i)); err != nil {
			again := w.Write(&Case{Workload: "op", Backend: "fake", NIC: "none", Device: "host", Ranks: 2, Status: OK})
			if again == nil || !strings.Contains(again.Error(), "earlier write stopped inside a line") {
				t.Errorf("after %v the next write gave %v", err, again)
			}
			return
		}
	}
	t.Error("no write failed")
}
