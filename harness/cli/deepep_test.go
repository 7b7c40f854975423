package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gic/harness/record"
)

// deepepRun runs the deepep backend with its test double and returns the records by layout, mode, dispatch, routing and
// masked. Nothing but the double is in the way: adapter, routing exchange and checks are those of the real library.
func deepepRun(t *testing.T, axes, config string, flags ...string) map[string]*record.Case {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	args := append([]string{"run", "--out", dir, "--nic", "none", "--device", "host", "--repeat", "1",
		"--workload", "moe:model=custom,hidden=2048,experts=8,topk=2,tokens=2,iterations=1,warmup=0," + axes,
		"--backend", "deepep:library=double,max_tokens=2," + config}, flags...)
	status, stdout, stderr := gic(t, args...)
	if status != exitOK && status != exitFailed {
		t.Fatalf("status %d\n%s%s", status, stdout, stderr)
	}
	_, cases := readRunFile(t, dir)
	out := map[string]*record.Case{}
	for _, c := range cases {
		key := strings.Join([]string{c.Axes["layout"], c.Config["mode"], c.Config["dispatch"], c.Config["fault"]}, " ")
		if c.Axes["routing"] != "uniform" {
			key += " trace"
		}
		if c.Axes["masked"] != "0" {
			key += " masked"
		}
		if c.Ranks != 2 {
			key += fmt.Sprintf(" ranks=%d", c.Ranks)
		}
		out[key] = c
	}
	return out
}

// problems are the warnings of a record that say something is wrong with what was received.
func problems(c *record.Case) string {
	var list []string
	for _, w := range c.Warnings {
		if w.Code == "unsafe" {
			list = append(list, w.Text)
		}
	}
	return strings.Join(list, "; ")
}

// Both formats and all modes, with rows for everybody, for one rank alone, and for nobody. No record of the double has a
// time or counts as ok, so that none can be compared with DeepEP's.
func TestDeepEPDouble(t *testing.T) {
	withPlugins(t)
	trace := filepath.Join(t.TempDir(), "trace") // everything to rank 0, one token nowhere
	if err := os.WriteFile(trace, []byte("0 1\n0 -1\n-1 -1\n1 0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	runs := deepepRun(t, "layout=expert|rank,masked=0|1,routing=uniform|trace:"+trace, "dispatch=bf16|fp8")
	for key, c := range deepepRun(t, "layout=rank", "mode=v2,dispatch=fp8") {
		runs[key] = c
	}
	for key, c := range deepepRun(t, "layout=expert|rank", "mode=auto", "--ranks", "4") {
		runs[key] = c
	}
	if len(runs) != 16+1+2 {
		t.Errorf("%d records, expected 19", len(runs))
	}
	for key, c := range runs {
		if c.Status != record.Unsafe || c.Reason != "library=double is a test double, not DeepEP" || len(c.Metrics) > 0 {
			t.Errorf("%s: %s: %s, %d metrics", key, c.Status, c.Reason, len(c.Metrics))
			continue
		}
		if p := problems(c); p != "" || c.Verify.Wrong > 0 || c.Verify.Checked == 0 {
			t.Errorf("%s: %+v %s", key, *c.Verify, p)
		}
		if len(c.Library) == 0 || c.Library[0].Name != "deep_ep" || c.Library[0].Version != "double" {
			t.Errorf("%s: libraries %+v", key, c.Library)
		}
		if c.Facts["routing_hash"] != c.Created["routing_hash"] {
			t.Errorf("%s: routing %v given, %v exchanged", key, c.Facts["routing_hash"], c.Created["routing_hash"])
		}
		format := map[string]float64{"expert bf16": 16 + 4096, "expert fp8": 16 + 2048 + 64, "rank bf16": 4 + 4096, "rank fp8": 4 + 2048 + 64}
		want := format[c.Axes["layout"]+" "+c.Config["dispatch"]]
		if c.Config["mode"] == "v2" {
			want += 3*16 + 16 - 4
		}
		if c.Facts["dispatch_message_bytes"] != want {
			t.Errorf("%s: messages of %v bytes, expected %v", key, c.Facts["dispatch_message_bytes"], want)
		}
	}
	// What lies in the record of one point must not come from another's.
	if c := runs["expert auto bf16 none"]; c.Created["sms"] != "" || c.Created["blocks"] != "4" {
		t.Errorf("layout=expert: created %v", c.Created)
	}
}

// Whatever goes wrong on one rank ends its case with a line that says what it was, and ends nothing else.
func TestDeepEPFaults(t *testing.T) {
	withPlugins(t)
	runs := deepepRun(t, "layout=expert", "fault=import|constructor|exit|routing|row|count|source|trap")
	for key, c := range deepepRun(t, "layout=rank", "fault=count|source|gate") {
		runs[key] = c
	}
	for key, want := range map[string]struct {
		status record.Status
		text   string
	}{
		"expert import":      {record.Skipped, "DeepEP does not import: libnvshmem_host.so.3: cannot open shared object file"},
		"expert constructor": {record.Failed, "rank 1: deepep: run: RuntimeError: Assertion error double.py: num_ranks > 0"},
		"expert exit":        {record.Failed, "rank 1 ended in run: exit status 255: WARN: init failed for transport: IBGDA"},
		"expert routing":     {record.Failed, "the ranks' routing tables together hash to"},
		"expert row":         {record.Unsafe, "payload: 1 of"},
		"expert count":       {record.Failed, "rank 1: expert 2 counts 2 rows"},
		"expert source":      {record.Failed, "for expert 2 rank 1 brought the tokens [2], the routing sends [1]"},
		"expert trap":        {record.Failed, "RuntimeError: CUDA error: unspecified launch failure"},
		"rank count":         {record.Failed, "the experts count [1, 0, 1, 1] rows, the routing sends [0, 0, 1, 1]"},
		"rank source":        {record.Failed, "rank 0 brought the tokens [2], the routing sends [1]"},
		"rank gate":          {record.Failed, "and gates [0.0, 0.318359375], expected [(-1, 0.0), (3, 0.1591796875)]"},
	} {
		layout, fault, _ := strings.Cut(key, " ")
		c := runs[layout+" auto bf16 "+fault]
		if c == nil {
			t.Errorf("%s: no record", key)
			continue
		}
		text := c.Reason
		if want.status == record.Unsafe {
			text = problems(c)
		}
		if c.Status != want.status || !strings.Contains(text, want.text) || strings.Contains(text, "\n") {
			t.Errorf("%s: %s: %q, expected %s with %q", key, c.Status, text, want.status, want.text)
		}
	}
}

// What cannot run, or makes no sense, is said in one line.
func TestDeepEPRefuses(t *testing.T) {
	withPlugins(t)
	// Every point of a sweep that does not fit is a row of its own; the others run.
	const rank, expert = "one row per (token, rank): layout=rank, not layout=expert", "one row per (token, expert): layout=expert, not layout=rank"
	for _, c := range []struct {
		axes, config string
		want         map[string]string // by the axis that is to blame
	}{
		{"layout=expert|rank,hidden=1024|2048,tokens=2|3,topk=2|12,experts=16", "mode=ll", map[string]string{
			"layout=rank": "mode=ll sends " + expert, "hidden=1024": "mode=ll is compiled for hidden=2048|2560|3072|4096|5120|6144|7168|8192, not 1024",
			"tokens=3": "tokens=3 exceeds max_tokens=2, for which the buffer is laid out", "topk=12": "mode=ll takes at most 11 experts per token, not topk=12"}},
		{"layout=expert|rank,hidden=64|2048", "mode=normal,dispatch=fp8", map[string]string{
			"layout=expert": "mode=normal sends " + rank, "hidden=64": "dispatch=fp8 wants hidden to be a multiple of 128, not 64"}},
		{"layout=expert", "mode=v2", map[string]string{"layout=expert": "mode=v2 sends " + rank}},
		{"layout=expert,tokens=1", "mode=ll,max_tokens=1", map[string]string{"tokens=1": "wants ranks x max_tokens to be a multiple of 4, not 2 x 1"}},
	} {
		dir := filepath.Join(t.TempDir(), "run")
		status, _, stderr := gic(t, "run", "--out", dir, "--nic", "none", "--device", "host", "--repeat", "1",
			"--workload", merged("moe:model=custom,hidden=2048,experts=8,topk=2,tokens=2,iterations=1,warmup=0", c.axes),
			"--backend", merged("deepep:library=double,max_tokens=2", c.config))
		if status != exitOK {
			t.Fatalf("%s %s: status %d\n%s", c.axes, c.config, status, stderr)
		}
		_, cases := readRunFile(t, dir)
		for _, got := range cases {
			want, blamed := record.Unsafe, false
			for axis, text := range c.want {
				if k, v, _ := strings.Cut(axis, "="); got.Axes[k] == v {
					want, blamed = record.Skipped, blamed || strings.Contains(got.Reason, text)
				}
			}
			if got.Status != want || want == record.Skipped && !blamed || problems(got) != "" {
				t.Errorf("%v on %s: %s: %q, expected %s", got.Axes, c.config, got.Status, got.Reason, want)
			}
		}
	}
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--backend", "deepep:fault=row", "--nic", "none"}, "deepep: fault=row: only with library=double"},
		{[]string{"--backend", "deepep:library=double,sms=3", "--nic", "none"}, "deepep: sms=3: want an even number"},
		{[]string{"--backend", "deepep:mode=fast", "--nic", "none"}, "mode=fast"},
	} {
		status, _, stderr := gic(t, append([]string{"run", "--device", "host", "--workload", "moe", "--repeat", "1"}, c.flags...)...)
		if status != exitUsage || !strings.Contains(stderr, c.want) || strings.Count(strings.TrimSpace(stderr), "\n") > 0 {
			t.Errorf("%v: status %d, %q, expected %d and one line with %q", c.flags, status, stderr, exitUsage, c.want)
		}
	}
	dir := filepath.Join(t.TempDir(), "run")
	status, _, stderr := gic(t, "run", "--out", dir, "--device", "host", "--repeat", "1", "--workload", "op", "--workload", "moe:tokens=2",
		"--backend", "deepep", "--backend", "deepep:library=double")
	if status != exitOK {
		t.Fatalf("status %d\n%s", status, stderr)
	}
	_, cases := readRunFile(t, dir)
	for _, c := range cases {
		want := "deepep needs a CUDA device; device=host has none"
		if c.Config["library"] == "double" {
			want = "library=double has no NIC: --nic none"
		}
		if c.Status != record.Skipped || !strings.Contains(c.Reason, want) {
			t.Errorf("%s on deepep: %s: %q, expected %q", c.Workload, c.Status, c.Reason, want)
		}
	}
}

// merged is a spec with settings put in place of its own.
func merged(spec, settings string) string {
	name, rest, _ := strings.Cut(spec, ":")
	var order []string
	values := map[string]string{}
	for _, kv := range strings.Split(rest+","+settings, ",") {
		k, v, _ := strings.Cut(kv, "=")
		if _, ok := values[k]; !ok {
			order = append(order, k)
		}
		values[k] = v
	}
	for i, k := range order {
		order[i] = k + "=" + values[k]
	}
	return name + ":" + strings.Join(order, ",")
}
