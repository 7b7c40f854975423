package report

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gic/harness/record"
	"gic/workloads"
)

// Over a software NIC the figures of CUDA threads alone are hardware's. Each metric says which it is, in every format
// for readers; what also has other rows says it on top alone.
func TestClaimOfTheDeviceAlone(t *testing.T) {
	const alone, soft = "issue, s (GPU alone)", "rtt, s (software NIC)"
	for _, tc := range []struct {
		name    string
		change  func(backend string, c *record.Case)
		claim   string
		metrics bool // marked
	}{
		{"cuda", func(_ string, c *record.Case) { c.Device = "cuda" },
			`nic=soft, device=cuda: figures marked "GPU alone" (op issue) are what the GPU does; the others are of a software NIC: they support no claim about hardware`, true},
		{"cuda, one crowded", func(backend string, c *record.Case) {
			if c.Device = "cuda"; strings.HasPrefix(backend, "minigda") {
				c.Host = map[string]any{"oversubscribed": true}
			}
		}, `the others are of a software NIC, and 1 case of 2 oversubscribed: they support no claim about hardware`, true},
		{"host", func(_ string, c *record.Case) { c.Device = "host" }, "they support no claim about hardware", false},
		{"both", func(backend string, c *record.Case) {
			if c.Device = "cuda"; strings.HasPrefix(backend, "minigda") {
				c.Device = "host"
			}
		}, "they support no claim about hardware, but for those of the GPU alone: op issue", false},
	} {
		records := rowsOf(workloads.Time, map[string][]float64{"minigda 1": {1}, "miniproxy 1": {2}}, func(backend string, c *record.Case) {
			c.NIC, c.Workload = "soft", "op"
			tc.change(backend, c)
			c.Metrics[0].Name = "issue"
			rtt := c.Metrics[0]
			rtt.Name = "rtt"
			c.Metrics = append(c.Metrics, rtt)
		})
		for _, format := range []string{"table", "markdown"} {
			out := strings.Join(strings.Fields(strings.ReplaceAll(render(t, records, format, 0), `\_`, "_")), " ")
			if !strings.Contains(out, tc.claim) {
				t.Errorf("%s: the claim %q is not in the %s:\n%s", tc.name, tc.claim, format, out)
			}
			if a, b := strings.Contains(out, alone), strings.Contains(out, soft); a != tc.metrics || b != tc.metrics {
				t.Errorf("%s: marked %v and %v in the %s:\n%s", tc.name, a, b, format, out)
			}
		}
		r := New()
		for _, rec := range records {
			r.Add(rec)
		}
		got := map[string]string{}
		for _, m := range r.View().Runs[0].Sections[0].Points[0].Metrics {
			got[m.Name] = m.Of
		}
		want := map[string]string{"issue": "", "rtt": ""}
		if tc.metrics {
			want = map[string]string{"issue": "GPU alone", "rtt": "software NIC"}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: view (-want +got):\n%s", tc.name, diff)
		}
	}
}

// The statement over numbers that are not those of hardware is there exactly when it must be.
func TestClaimLine(t *testing.T) {
	for _, tc := range []struct {
		nic, device string
		crowded     bool
		want        string
	}{
		{"soft cx7-200", "host", false, "nic=soft profile=cx7-200, device=host: times of a software NIC / host threads: they support no claim about hardware"},
		{"soft", "host", false, "nic=soft, device=host: times of a software NIC / host threads: they support no claim about hardware"},
		{"soft", "cuda", false, "nic=soft: times of a software NIC: they support no claim about hardware"},
		{"none", "host", false, "device=host: times of host threads: they support no claim about hardware"},
		{"mlx5", "cuda", true, "oversubscribed: times of too few CPUs: they support no claim about hardware"},
		{"mlx5", "cuda", false, ""},
	} {
		records := rowsOf(workloads.Time, map[string][]float64{"minigda 1": {1}}, func(_ string, c *record.Case) {
			c.Device = tc.device
			var profile string
			if c.NIC, profile, _ = strings.Cut(tc.nic, " "); profile != "" {
				c.NICConfig = map[string]string{"profile": profile}
			}
			if tc.crowded {
				c.Host = map[string]any{"oversubscribed": true}
			}
		})
		for _, format := range []string{"table", "markdown", "nccl-tests", "json"} {
			out := render(t, records, format, 0)
			if has := strings.Contains(strings.Join(strings.Fields(strings.NewReplacer("\\_", "_").Replace(out)), " "), tc.want); !has {
				t.Errorf("%s %s: no %q in\n%s", fmt.Sprint(tc.nic, tc.device), format, tc.want, out)
			}
			if has := strings.Contains(out, "no claim"); has != (tc.want != "") {
				t.Errorf("%v %s: %v", tc, format, has)
			}
		}
	}
}

// Backends that nothing runs on here are told once, with one reason for all of them; --all has each row.
func TestSkippedEverywhere(t *testing.T) {
	records := newSynth(1, 0).records[:1]
	add := func(workload, size, backend string, status record.Status, reason string) {
		c := &record.Case{
			Type: "case", Workload: workload, Axes: map[string]string{"size": size}, Backend: backend, Config: map[string]string{},
			NIC: "soft", Device: "host", Ranks: 2, Status: status, Reason: reason,
		}
		if status == record.OK {
			c.Verify = &workloads.Verification{Checked: 1}
			c.Metrics = []record.Metric{exact("m", workloads.Time, true, 1)}
		}
		c.ID = record.CaseID(c)
		records = append(records, c)
	}
	for _, workload := range []string{"op", "rate"} {
		for _, size := range []string{"8", "64"} {
			add(workload, size, "minigda", record.OK, "")
			for _, b := range []string{"deepep", "ncclgin", "nvshmem"} {
				add(workload, size, b, record.Skipped, b+" needs a CUDA device (v1.2)")
			}
			if workload == "rate" { // elsewhere it ran
				add(workload, size, "miniproxy", record.Skipped, "the proxy is away")
			} else {
				add(workload, size, "miniproxy", record.OK, "")
			}
		}
	}
	text := func(all bool) string {
		r := New()
		if all {
			r.All()
		}
		for _, rec := range records {
			r.Add(rec)
		}
		var b strings.Builder
		if err := r.Render(&b, "table", 200); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	short := text(false)
	for _, s := range []string{
		"\nskipped in all 4 points of all workloads: deepep, ncclgin, nvshmem [2]\n",
		"\n[2] skipped: deepep, ncclgin, nvshmem: needs a CUDA device (v1.2) (12 rows)\n",
		"\n  skipped in all 2 points: miniproxy [1]\n", "\n[1] skipped: the proxy is away (2 rows)\n",
	} {
		if strings.Count(short, s) != 1 {
			t.Errorf("%q is not there once:\n%s", s, short)
		}
	}
	long := text(true)
	if n := strings.Count(long, "skipped [1]") + strings.Count(long, "skipped [2]"); n != 14 || strings.Contains(long, "skipped in all") {
		t.Errorf("%d of 14 skipped rows are listed:\n%s", n, long)
	}
}

// A long table ends in short: each workload's first point, the best row of each backend.
func TestLongTablesEndInShort(t *testing.T) {
	records := newSynth(1, 0).records[:1]
	for i := range 10 {
		for _, b := range []string{"minigda", "miniproxy", "nvshmem"} {
			c := &record.Case{
				Type: "case", Workload: "op", Axes: map[string]string{"size": strconv.Itoa(8 << i)}, Backend: b, Config: map[string]string{},
				NIC: "soft", Device: "host", Ranks: 2, Status: record.OK, Verify: &workloads.Verification{Checked: 1},
				Metrics: []record.Metric{exact("m", workloads.Time, true, float64(len(b)))},
			}
			c.ID = record.CaseID(c)
			records = append(records, c)
		}
	}
	const line = "\n  op size=8 m, s: minigda 7.00, miniproxy 9.00 (1.29x), nvshmem 7.00 (1.00x)\n"
	if out := render(t, records, "table", 0); strings.Count(out, line) != 1 || !strings.Contains(out, "\nin short: ") {
		t.Errorf("no %q in:\n%s", line, out)
	}
	if out := render(t, records[:7], "table", 0); strings.Contains(out, "in short") {
		t.Errorf("a table that fits a screen is said twice:\n%s", out)
	}
}
