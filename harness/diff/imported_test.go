package diff

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gic/harness/importer"
	"gic/harness/record"
)

// reference makes a run of what another tool printed.
func reference(t *testing.T, name, text string, settings ...string) string {
	t.Helper()
	return referenceOf(t, name, text, nil, settings...)
}

// referenceOf is reference with a change of what was imported.
func referenceOf(t *testing.T, name, text string, change func(*importer.Result), settings ...string) string {
	t.Helper()
	set, err := importer.CheckSet(settings)
	if err != nil {
		t.Fatal(err)
	}
	r, err := importer.Parse(name, []byte(text), importer.Options{Set: set})
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	path, err := importer.Write(filepath.Join(t.TempDir(), "ref"), []*importer.Result{r}, record.Header{Gic: "test", Command: []string{"gic", "import"}})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// benchText is eight process runs of the first case of a synthetic run, at a round trip of us.
func benchText(runs int, us float64, keys string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "goos: linux\n")
	for i := range runs {
		fmt.Fprintf(&b, "BenchmarkOp/op=put/size=8/backend=minigda%s/nic=soft/engine=cpu/device=host/ranks=2 1000 %g rtt-sec/op\n",
			keys, us*1e-6*(1+0.001*float64(i)))
	}
	return b.String()
}

const perftestText = `                    RDMA_Write Latency Test
 Number of qps   : 1		Transport type : IB
 Connection type : RC		Using SRQ      : OFF
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 8       1000          0.78           6.24         0.82     	       0.84        	0.11   		1.05    		3.50
`

const ncclText = `# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 2 minBytes 8 maxBytes 1048576 step: 131072(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0 unalign: 0
#
# Using devices
#  Rank  0 Group  0 Pid   4100 on     node1 device  0 [0000:19:00] NVIDIA H200
#  Rank  1 Group  0 Pid   4100 on     node1 device  1 [0000:2d:00] NVIDIA H200
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1     7.25    0.00    0.00       0     7.12    0.00    0.00       0
`

// outOfPlace keeps one of the two rows that a line of nccl-tests makes.
func outOfPlace(r *importer.Result) {
	r.Cases = slices.DeleteFunc(r.Cases, func(c *record.Case) bool { return c.Config["in_place"] == "true" })
}

func measuredRun(t *testing.T, change func(c *record.Case) bool) string {
	s := newSynth("measured", 7)
	s.change = change
	return s.write(t, filepath.Join(t.TempDir(), "measured"))
}

func compareFiles(t *testing.T, old, new string, o Options) (*Result, error) {
	t.Helper()
	o.Alpha = 0.05
	return Compare(load(t, "OLD", old), load(t, "NEW", new), o)
}

func rendered(t *testing.T, r *Result, format string) string {
	t.Helper()
	var b strings.Builder
	if err := r.Render(&b, format, 100); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func metricOf(p *Pair, name string) Metric {
	for _, m := range p.Metrics {
		if m.Name == name {
			return m
		}
	}
	return Metric{}
}

// TestImportedPairs holds each kind of reference against a measured run, on both sides of the diff.
func TestImportedPairs(t *testing.T) {
	one := func(c *record.Case) bool { return first(c) }
	reduce := func(c *record.Case) bool {
		c.Workload, c.Axes, c.Device = "all_reduce", map[string]string{"size": "8"}, "cuda"
		for i := range c.Metrics {
			if c.Metrics[i].Name == "rtt" {
				c.Metrics[i].Name = "time"
			}
		}
		return c.Order%3 == 0
	}
	across := Options{Across: []Across{{Key: "backend"}}}
	for _, x := range []struct {
		name, reference, metric string
		change                  func(*record.Case) bool
		options                 Options
		old, new                Verdict // of the metric, with the reference as OLD and as NEW
		silent                  string
	}{
		{"benchfmt faster", benchText(8, 1, "/batch=16"), "rtt", one, Options{}, Worse, Better, "workload.iterations, backend.qps, nic.profile"},
		{"benchfmt slower", benchText(8, 4, "/batch=16"), "rtt", one, Options{}, Better, Worse, "workload.iterations, backend.qps, nic.profile"},
		{"benchfmt of three runs", benchText(3, 1, "/batch=16"), "rtt", one, Options{}, Unclear, Unclear, "nic.profile"},
		{"perftest", perftestText, "one_way", one, across, Unclear, Unclear, "nic, "},
		{"nccl-tests", ncclText, "time", reduce, across, Unclear, Unclear, "nic, "},
	} {
		t.Run(x.name, func(t *testing.T) {
			ref, ours := referenceOf(t, "ref.txt", x.reference, outOfPlace), measuredRun(t, x.change)
			for _, side := range []struct {
				old, new, mark string
				want           Verdict
			}{{ref, ours, "(OLD imported)", x.old}, {ours, ref, "(NEW imported)", x.new}} {
				r, err := compareFiles(t, side.old, side.new, x.options)
				if err != nil {
					t.Fatal(err)
				}
				if r.Paired != 1 {
					t.Fatalf("%s: %d pairs\n%s", side.mark, r.Paired, rendered(t, r, "table"))
				}
				p := r.Pairs[slices.IndexFunc(r.Pairs, func(p *Pair) bool { return p.Old != nil && p.New != nil })]
				if m := metricOf(p, x.metric); m.Verdict != side.want {
					t.Errorf("%s: %s is %q (%s), want %s", side.mark, x.metric, m.Verdict, m.Why, side.want)
				}
				for _, name := range []string{"message_rate"} {
					if m := metricOf(p, name); m.Verdict != Incomparable {
						t.Errorf("%s: %s, of one side only, is %q", side.mark, name, m.Verdict)
					}
				}
				if p.Cause != "" {
					t.Errorf("cause %q of a pair without counters", p.Cause)
				}
				if r.Exit() == ExitRegression != (side.want == Worse) {
					t.Errorf("%s: exit %d", side.mark, r.Exit())
				}
				if !slices.ContainsFunc(r.Notes, func(n Note) bool { return n.Code == "imported" && strings.Contains(n.Text, x.silent) }) {
					t.Errorf("no note says %q: %v", x.silent, r.Notes)
				}
				for _, f := range Formats() {
					if text := rendered(t, r, f); !strings.Contains(text, "imported") {
						t.Errorf("%s does not say what is imported:\n%s", f, text)
					}
				}
				if text := rendered(t, r, "table"); !strings.Contains(text, side.mark) || !strings.Contains(text, "ref.txt") {
					t.Errorf("the table misses %s or the file:\n%s", side.mark, text)
				}
			}
		})
	}
}

// TestImportedSays holds what a reference says to what was measured.
func TestImportedSays(t *testing.T) {
	ours := measuredRun(t, func(c *record.Case) bool { return first(c) })
	cpu := func(r *importer.Result) { r.Host.CPU = map[string]any{"model": "Other CPU"} }
	var unlike *UnlikeError
	if _, err := compareFiles(t, referenceOf(t, "b", benchText(8, 2, "/batch=16"), cpu), ours, Options{}); !errors.As(err, &unlike) ||
		unlike.Keys[0].Key != "host.cpu" {
		t.Errorf("another CPU: %v", err)
	}
	other := strings.ReplaceAll(benchText(8, 2, "/batch=16"), "nic=soft", "nic=mlx5")
	if _, err := compareFiles(t, reference(t, "b", other), ours, Options{}); !errors.As(err, &unlike) || unlike.Keys[0].Key != "nic" {
		t.Errorf("another NIC: %v", err)
	}
	r, err := compareFiles(t, reference(t, "b", benchText(8, 2, "/batch=1")), ours, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Exit() != ExitNoPair || len(r.Hints) != 1 || !strings.Contains(r.Hints[0], "backend.batch") {
		t.Errorf("another batch: exit %d, hints %q", r.Exit(), r.Hints)
	}
}

// TestImportedAmbiguous: a choice is named, not made; and nothing is missing for it.
func TestImportedAmbiguous(t *testing.T) {
	batches := func(c *record.Case) bool {
		if !first(c) {
			c.Axes["size"], c.Config["batch"] = "8", "32"
			return c.Axes["iterations"] == "1000" && c.Order%3 == 1
		}
		return true
	}
	ref, ours := reference(t, "b", benchText(8, 2, "")), measuredRun(t, batches)
	for _, side := range [][2]string{{ref, ours}, {ours, ref}} {
		r, err := compareFiles(t, side[0], side[1], Options{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Exit() != ExitNoPair {
			t.Errorf("exit %d:\n%s", r.Exit(), rendered(t, r, "table"))
		}
		for _, p := range r.Pairs {
			if p.Verdict != Incomparable || p.Regression || !strings.Contains(p.Reason, "fits") {
				t.Errorf("%s is %s: %q", p.Name, p.Verdict, p.Reason)
			}
		}
	}
	r, err := compareFiles(t, ref, ours, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if want := "fits 2 cases of NEW, which differ in backend.batch (16 | 32)"; !strings.Contains(r.Pairs[0].Reason, want) {
		t.Errorf("reason %q does not say %q", r.Pairs[0].Reason, want)
	}
	// Two rows of a table fit one case.
	reduce := func(c *record.Case) bool {
		c.Workload, c.Axes, c.Device = "all_reduce", map[string]string{"size": "8"}, "cuda"
		return c.Order%3 == 0
	}
	r, err = compareFiles(t, reference(t, "n", ncclText), measuredRun(t, reduce), Options{Across: []Across{{Key: "backend"}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Pairs) != 2 || r.Paired != 0 || !strings.Contains(r.Pairs[0].Reason, "2 rows fit the same case") || !strings.Contains(r.Pairs[0].Reason, "backend.in_place") {
		t.Errorf("two rows for one case:\n%s", rendered(t, r, "table"))
	}
}

// TestImportedBeside: a reference in the folder of a run is a case of its own, also with the very same keys.
func TestImportedBeside(t *testing.T) {
	keys := []string{"workload.iterations=1000", "backend.qps=1", "nic.profile=none"}
	ref := reference(t, "b", benchText(8, 2, "/batch=16"), keys...)
	ours := measuredRun(t, func(c *record.Case) bool { return first(c) })
	r, err := Compare(load(t, "OLD", ours, ref), load(t, "NEW", ours), Options{Alpha: 0.05})
	if err != nil {
		t.Fatal(err)
	}
	if r.Paired != 2 || r.Exit() != ExitOK {
		t.Errorf("%d pairs, exit %d:\n%s", r.Paired, r.Exit(), rendered(t, r, "table"))
	}
}
