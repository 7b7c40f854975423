package html

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gic/harness/record"
	"gic/harness/report"
	"gic/harness/report/reporttest"
	"gic/workloads"
)

var testOptions = Options{Methods: map[string]string{"op": "One device thread works on rank 1."}, Gic: "0.1.0"}

// render makes a page of records, with themselves as its raw data.
func render(tb testing.TB, records []record.Record) []byte {
	tb.Helper()
	p := New(testOptions)
	raw := p.Attach("run.jsonl", "the records")
	for _, rec := range records {
		p.Add(rec)
		if _, ok := rec.(*record.Bad); ok {
			continue
		}
		line, err := json.Marshal(rec)
		if err != nil {
			tb.Fatal(err)
		}
		raw.Write(append(line, '\n'))
	}
	var b bytes.Buffer
	if err := p.Render(&b); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// attached unpacks the file with this number from a page.
func attached(t *testing.T, page []byte, id string) []byte {
	t.Helper()
	m := regexp.MustCompile(`<div class="data" id="` + id + `">([A-Za-z0-9+/=]*)</div>`).FindSubmatch(page)
	if m == nil {
		t.Fatalf("the page holds no %s", id)
	}
	z, err := base64.StdEncoding.DecodeString(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(z))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// structure is what a page is made of: headings, titles of plots and why others are missing.
func structure(page []byte) []string {
	var out []string
	re := regexp.MustCompile(`<h([1-4])[^>]*>([^<]*)</h|<svg class="plot"[^>]*><title>([^<]*)<|<li><strong>([^<]*)</strong>: ([^<]*)<`)
	for _, m := range re.FindAllSubmatch(page, -1) {
		switch {
		case len(m[1]) > 0:
			out = append(out, "h"+string(m[1])+" "+string(m[2]))
		case len(m[3]) > 0:
			out = append(out, "plot "+string(m[3]))
		default:
			out = append(out, "missing "+string(m[4])+": "+string(m[5]))
		}
	}
	return out
}

func TestPageHasAllParts(t *testing.T) {
	page := render(t, reporttest.Run(6))
	want := []string{
		"h1 gic report: 20261129-173000-4f1c",
		"h2 Summary",
		"h3 Plots",
		"h4 Curves",
		"plot Latency against size: put_completion",
		"plot Latency against size: rtt",
		"plot Message rate against QPs: message_rate",
		"plot Message rate against threads: message_rate",
		"plot Message rate against batch: message_rate",
		"plot Goodput over size: goodput",
		"plot MoE dispatch and combine by tokens: dispatch",
		"plot MoE dispatch and combine by tokens: combine",
		"h4 Latency distribution",
		"plot Latency distribution: op put_completion size=8",
		"plot Latency distribution: op rtt size=8",
		"plot Latency distribution: op put_completion size=64",
		"plot Latency distribution: op rtt size=64",
		"plot Latency distribution: op put_completion size=512",
		"plot Latency distribution: op rtt size=512",
		"plot Latency distribution: op put_completion size=4096",
		"plot Latency distribution: op rtt size=4096",
		"h4 Gap to the floor",
		"plot Gap to the floor: op put_completion",
		"plot Gap to the floor: op rtt",
		"plot Gap to the floor: goodput goodput (1 of 2)",
		"plot Gap to the floor: goodput goodput (2 of 2)",
		"plot Gap to the floor: rate message_rate",
		"plot Gap to the floor: moe dispatch",
		"plot Gap to the floor: moe combine",
		"h4 Not drawn",
		"missing Latency distribution: of 6 more points: only the first 8 are drawn; p99 is in the tables, the samples are in the records",
		"h3 Tables", "h4 op", "h4 goodput", "h4 rate", "h4 moe",
		"h3 Skipped and not ok", "h3 Warnings and reasons", "h3 Method and machine", "h4 op: what is timed",
		"h2 Raw data",
	}
	if d := cmp.Diff(want, structure(page)); d != "" {
		t.Errorf("page (-want +got):\n%s", d)
	}
	for _, text := range []string{
		"nic=soft, device=host, oversubscribed: times of a software NIC",
		"built without CUDA", "rank 1 exited with signal 11", "no order between WQE and doorbell", "8 of 64 bytes wrong",
		"AMD Ryzen 7 7840U", "gpu.0.bar1.size", "rdma: no /sys/class/infiniband", "NCCL_DEBUG", "build/libminigda.so",
		"bars: 95 % interval of the median",
	} {
		if !bytes.Contains(page, []byte(text)) {
			t.Errorf("the page does not say %q", text)
		}
	}
}

// TestPageShowsCounters: what the NIC was asked for is there, closed, exact counts told from timed ones.
func TestPageShowsCounters(t *testing.T) {
	records := reporttest.Run(3)
	for _, rec := range records {
		if c, ok := rec.(*record.Case); ok && c.Workload == "goodput" && c.Counters != nil && c.Index == 2 {
			c.Counters[2].Value = 64 // declared exact
		}
	}
	page := New(Options{})
	for _, rec := range records {
		page.Add(rec)
	}
	page.build()
	got := map[string]counterTable{}
	for _, s := range page.run(0).Sections {
		table := *s.Counters
		table.Rows = table.Rows[:1]
		got[s.Workload] = table
	}
	exact := func(text string) counterCell { return counterCell{Text: text, Exact: true} }
	columns := []string{"messages", "wqes", "doorbells", "slot_waits"}
	for workload, want := range map[string]counterTable{
		"op": {Columns: columns, Zero: []string{"wqe_read"}, Rows: []counterRow{{
			Point: "size=8", Label: "minigda batch=1 qps=1", Where: "soft/host", Cells: []counterCell{exact("1000"), exact("1000"), exact("63"), {Text: "0..2"}},
		}}},
		"goodput": {Columns: columns, Zero: []string{"wqe_read"}, Varied: true, Rows: []counterRow{{
			Point: "size=8", Label: "minigda", Where: "soft/host",
			Cells: []counterCell{exact("1000"), exact("1000"), {Text: "63..64", Exact: true, Varied: true}, {Text: "0..2"}},
		}}},
	} {
		have := got[workload]
		have.Rows[0].Label = want.Rows[0].Label // others' tests are of labels
		if d := cmp.Diff(want, have); d != "" {
			t.Errorf("%s (-want +got):\n%s", workload, d)
		}
	}
	text := string(render(t, records))
	for _, s := range []string{`<details class="counters"><summary>`, `>=1000</td>`, `>0..2</td>`, `>=63..64 !</td>`, "Zero in all rows: wqe_read."} {
		if !strings.Contains(text, s) {
			t.Errorf("the page does not hold %q", s)
		}
	}
	var many []record.Record
	for i, rec := range reporttest.Run(1) {
		if c, ok := rec.(*record.Case); !ok || i == 1 {
			many = append(many, rec)
			for size := 10000; ok && size < 10000+maxCounterRows+5; size++ {
				d := *c
				d.Axes = maps.Clone(c.Axes)
				d.Axes["size"] = fmt.Sprint(size)
				d.ID = record.CaseID(&d)
				many = append(many, &d)
			}
		}
	}
	if text := string(render(t, many)); !strings.Contains(text, "and 6 more rows: the records have them") {
		t.Error("a long sweep fills the page with counters")
	}
}

// TestPageHoldsItsData reads the attached files back: the records byte by byte, and csv as gic show prints it.
func TestPageHoldsItsData(t *testing.T) {
	records := reporttest.Run(3)
	page := render(t, records)
	rep := report.New()
	n := 0
	for rec, err := range record.Read("attached", bytes.NewReader(attached(t, page, "file-1"))) {
		if err != nil {
			t.Fatal(err)
		}
		if bad, ok := rec.(*record.Bad); ok {
			t.Fatal(bad)
		}
		rep.Add(rec)
		n++
	}
	if n != len(records) {
		t.Errorf("%d records attached, want %d", n, len(records))
	}
	var want bytes.Buffer
	if err := rep.Render(&want, "csv", 0); err != nil {
		t.Fatal(err)
	}
	got := attached(t, page, "file-2")
	if d := cmp.Diff(want.String(), string(got)); d != "" {
		t.Errorf("csv (-want +got):\n%s", d)
	}
	if rows, err := csv.NewReader(bytes.NewReader(got)).ReadAll(); err != nil || len(rows) < 20 {
		t.Errorf("csv: %d rows, %v", len(rows), err)
	}
}

// TestMissingPlotsSayWhy takes away what plots need, one thing at a time.
func TestMissingPlotsSayWhy(t *testing.T) {
	keep := func(ok func(c *record.Case) bool) []record.Record {
		return slices.DeleteFunc(reporttest.Run(2), func(r record.Record) bool {
			c, isCase := r.(*record.Case)
			return isCase && !ok(c)
		})
	}
	tests := []struct {
		name    string
		records []record.Record
		want    []string
	}{
		{"nothing", reporttest.Run(2)[:1], []string{
			"missing Latency against size: no time was measured with a number for size",
			"missing Message rate against QPs: no rate was measured with a number for qps",
			"missing Message rate against threads: no rate was measured with a number for threads",
			"missing Message rate against batch: no rate was measured with a number for batch",
			"missing Goodput over size: no bandwidth of goodput was measured with a number for size",
			"missing MoE dispatch and combine by tokens: no time of moe was measured with a number for tokens",
			"missing Latency distribution: no headline time has several operations per process run",
			"missing Gap to the floor: no point has a verified floor and another row to compare with it",
		}},
		{"one size", keep(func(c *record.Case) bool { return c.Axes["size"] == "8" }), []string{
			"missing Latency against size: all cases have size=8", "missing Goodput over size: all cases have size=8",
		}},
		{"nothing equal", keep(func(c *record.Case) bool {
			return c.Workload == "op" && (c.Backend == "minigda" && c.Axes["size"] == "8" || c.Backend == "miniproxy" && c.Axes["size"] == "64")
		}), []string{"missing Latency against size: no case was measured at two values of size with everything else equal"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := structure(render(t, tt.records))
			for _, w := range tt.want {
				if !slices.Contains(got, w) {
					t.Errorf("the page does not say %q; it has\n%s", w, strings.Join(got, "\n"))
				}
			}
		})
	}
}

func TestBadRecordsAreNamed(t *testing.T) {
	records := reporttest.Run(2)
	records = append(records, &record.Bad{File: "run.jsonl", Line: 7, Torn: true, Err: errors.New("unexpected end of JSON input")})
	for i := range 150 {
		records = append(records, &record.Bad{File: "b.jsonl", Line: 1000 + i, Err: errors.New("key \"n\" cannot be a JSON string")})
	}
	page := string(render(t, records))
	for _, text := range []string{"run.jsonl:7", "b.jsonl:1000", "and 51 more"} {
		if !strings.Contains(page, text) {
			t.Errorf("the page does not say %q", text)
		}
	}
}

// hostile texts try to leave every context that a page has. xgic marks them.
var hostile = []string{
	`"><xgic onload="window.xgic=1">`, `</script><script>window.xgic=1</script><xgic>`, `</title></svg></div><xgic>`,
	`' xgic='1' onmouseover='window.xgic=1`, `" xgic="1" style="background:url(http://xgic.invalid/)`, `<!--<xgic>`, `]]><xgic>`,
	`javascript:window.xgic=1//`, `</style><xgic>`, "a\x00b\u202e<xgic>\n<xgic>", `{{.}}<xgic>`, `<img src=http://xgic.invalid onerror=window.xgic=1>`,
	`style="fill:#0072B2"<xgic>`, `url(#xgic);fill:<xgic>`, "\xff\xfe<xgic>",
}

// poison puts a hostile text wherever a record holds text.
func poison(records []record.Record, text string) {
	m := func(in map[string]string) map[string]string {
		out := map[string]string{text: text}
		maps.Copy(out, in)
		return out
	}
	for _, rec := range records {
		switch rec := rec.(type) {
		case *record.Header:
			rec.ID, rec.Gic, rec.Suite, rec.Launch = text, text, text, text
			rec.Command = []string{text}
			rec.Env = m(rec.Env)
			rec.Host.Hostname, rec.Host.OS, rec.Host.Kernel, rec.Host.Absent = text, text, text, []string{text}
			rec.Host.CPU = map[string]any{text: text, "model": text, "list": []any{text, map[string]any{text: text}}}
			rec.Host.GPU = []any{map[string]any{"name": text}}
		case *record.Case:
			rec.Workload += text
			rec.NIC, rec.Device = text, text
			rec.NICConfig, rec.Config = m(rec.NICConfig), m(rec.Config)
			axes := maps.Clone(rec.Axes)
			axes["op"+text] = text
			rec.Axes = axes
			if rec.Backend != "minigda" {
				rec.Backend += text
			}
			rec.Reason += text
			rec.Stage = text
			rec.Library = []record.Library{{Name: text, Version: text, Path: text, SHA256: text}}
			rec.Warnings = []workloads.Warning{{Code: text, Text: text}}
			for i := range rec.Metrics {
				rec.Metrics[i].Name += text
			}
			for i := range rec.Counters {
				rec.Counters[i].Name += text
			}
			rec.ID = record.CaseID(rec)
		}
	}
}

func TestHostileTextStaysText(t *testing.T) {
	for _, text := range hostile {
		records := reporttest.Run(2)
		poison(records, text)
		records = append(records, &record.Bad{File: text, Line: 1, Err: errors.New(text)})
		page := string(render(t, records))
		for _, tag := range []string{"<xgic", "<img", "<!--", "xgic='1'", `xgic="1"`} {
			if strings.Contains(page, tag) {
				at := strings.Index(page, tag)
				t.Errorf("%q: the page holds %s: %.200q", text, tag, page[max(at-100, 0):])
			}
		}
		if n := strings.Count(page, "<script"); n != 1 {
			t.Errorf("%q: %d scripts", text, n)
		}
		if n := strings.Count(page, "<svg class=\"plot\""); n < 10 {
			t.Errorf("%q: only %d plots", text, n)
		}
		var md bytes.Buffer
		p := New(testOptions)
		for _, rec := range records {
			p.Add(rec)
		}
		if err := p.Markdown(&md); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(md.String(), "<xgic") || strings.Contains(md.String(), "<img") {
			t.Errorf("%q: Markdown holds a tag", text)
		}
	}
}

// TestPageForbidsItselfTheNetwork looks for anything that a browser would load, and for the policy against it.
func TestPageForbidsItselfTheNetwork(t *testing.T) {
	page := string(render(t, reporttest.Run(2)))
	for _, re := range []string{`(?i)\ssrc\s*=`, `(?i)<link\b`, `(?i)@import`, `[^.]url\(`, `(?i)href="(?:[^#]|$)`, `(?i)<(?:iframe|object|embed|base|form)\b`} {
		if m := regexp.MustCompile(re).FindString(page); m != "" {
			t.Errorf("the page holds %q", m)
		}
	}
	if !strings.Contains(page, `content="default-src &#39;none&#39;;`) {
		t.Error("no content security policy")
	}
	for _, re := range []string{`\son\w+\s*=\s*"`} {
		if m := regexp.MustCompile(re).FindString(page); m != "" {
			t.Errorf("the page holds an inline handler: %q", m)
		}
	}
}

func TestTooLargeFilesAreLeftOut(t *testing.T) {
	a := &attachment{name: "run.jsonl", what: "the records"}
	a.gz = gzip.NewWriter(&a.buf)
	noise := make([]byte, 1<<20)
	x := uint64(1)
	for range 30 {
		for i := range noise {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
			noise[i] = byte(x)
		}
		if n, err := a.Write(noise); n != len(noise) || err != nil {
			t.Fatal(n, err)
		}
	}
	f, err := a.finish(0)
	if err != nil || !f.TooLarge || f.Base64 != "" || f.Size != "30 MiB" {
		t.Errorf("got %+v, %v", f, err)
	}
}

// BenchmarkReport10k is `gic report` of 10,000 records without reading them: it must stay under 5 s on two cores.
func BenchmarkReport10k(b *testing.B) {
	base := reporttest.Run(5)
	records := []record.Record{base[0]}
	for lap := 0; len(records) <= 10_000; lap++ {
		for _, r := range base[1:] {
			c := *r.(*record.Case)
			c.Axes = maps.Clone(c.Axes)
			c.Axes["lap"] = strings.Repeat("i", lap%7) + string(rune('a'+lap%26)) // another point
			c.Seed = uint64(lap)
			c.ID = record.CaseID(&c) + string(rune('a'+lap/182))
			records = append(records, &c)
		}
	}
	b.ResetTimer()
	for b.Loop() {
		b.SetBytes(int64(len(render(b, records))))
	}
	b.ReportMetric(float64(len(records)-1), "records")
}
