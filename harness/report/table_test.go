package report

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gic/harness/record"
	"gic/workloads"
)

func TestRenderRefusesUnknownFormats(t *testing.T) {
	err := New().Render(&strings.Builder{}, "xml", 0)
	if want := `unknown format "xml": use one of table, markdown, csv, json, nccl-tests`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// What a run printed while it held its records, and what is printed from its file later, is the same.
func TestShowPrintsWhatTheRunPrinted(t *testing.T) {
	for name, records := range map[string][]record.Record{"quick": quick(), "trouble": trouble()} {
		dir := t.TempDir()
		w, err := record.Create(filepath.Join(dir, record.FileName))
		if err != nil {
			t.Fatal(err)
		}
		live := New()
		for _, r := range records {
			if err := w.Write(r); err != nil {
				t.Fatal(err)
			}
			live.Add(r)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		loaded, err := Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, format := range Formats() {
			var a, b, c strings.Builder
			for out, r := range map[*strings.Builder]*Report{&a: live, &b: loaded} {
				if err := r.Render(out, format, 0); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(a.String(), b.String()); diff != "" {
				t.Errorf("%s %s (-run +show):\n%s", name, format, diff)
			}
			if err := live.Render(&c, format, 0); err != nil || a.String() != c.String() {
				t.Errorf("%s %s: rendering twice differs (%v)", name, format, err)
			}
		}
	}
}

// The order in which the process runs of a case were made and written changes nothing but what depends on it by
// intent, the order of first mention.
func TestOrderOfCasesDoesNotMatter(t *testing.T) {
	records := quick()
	want := render(t, records, "csv", 0)
	rng := rand.New(rand.NewPCG(3, 3))
	for range 3 {
		shuffled := slices.Clone(records)
		tail := shuffled[1:]
		rng.Shuffle(len(tail), func(i, j int) { tail[i], tail[j] = tail[j], tail[i] })
		slices.SortStableFunc(tail, func(a, b record.Record) int {
			return strings.Index("op rate goodput alltoall moe", a.(*record.Case).Workload) -
				strings.Index("op rate goodput alltoall moe", b.(*record.Case).Workload)
		})
		if diff := cmp.Diff(want, render(t, shuffled, "csv", 0)); diff != "" {
			t.Errorf("(-planned +shuffled):\n%s", diff)
		}
	}
}

// No line of a table is longer than asked for, whatever the records hold: long names, values without spaces,
// wide characters, control characters, extreme numbers.
func TestTableFitsItsWidth(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for range 20 {
		records := randomRecords(rng)
		for _, width := range []int{80, 100, 133} {
			out := render(t, records, "table", width)
			for i, l := range strings.Split(out, "\n") {
				if n := textWidth(l); n > width {
					t.Fatalf("line %d is %d columns wide, asked for %d:\n%s\n%s", i+1, n, width, l, out)
				}
				if strings.IndexFunc(l, func(r rune) bool { return r < ' ' || r == 0x7f }) >= 0 || strings.HasSuffix(l, " ") {
					t.Fatalf("line %d has control characters or trailing spaces: %q", i+1, l)
				}
			}
		}
	}
}

func randomRecords(rng *rand.Rand) []record.Record {
	word := func() string {
		alphabet := []rune("abcdefgh/-_=., \t\n\x1b[1m|*`<界é")
		w := make([]rune, 1+rng.IntN(1<<rng.IntN(8)))
		for i := range w {
			w[i] = alphabet[rng.IntN(len(alphabet))]
		}
		return "w" + string(w)
	}
	pick := func(n int) []string {
		words := make([]string, n)
		for i := range words {
			words[i] = word()
		}
		return words
	}
	workload, backends, axis, keys, values, reasons := pick(2), append(pick(3), "minigda", "miniproxy"), pick(3), pick(4), append(pick(4), "8", "64K"), pick(3)
	any := func(s []string) string { return s[rng.IntN(len(s))] }
	s := newSynth(3, rng.IntN(200))
	if rng.IntN(3) == 0 {
		s.records = nil
	}
	for range 1 + rng.IntN(25) {
		axes, config := map[string]string{}, map[string]string{}
		for range rng.IntN(4) {
			axes[any(axis)] = any(values)
			config[any(keys)] = any(values)
		}
		class := []workloads.Class{workloads.Time, workloads.Rate, workloads.Bandwidth}[rng.IntN(3)]
		sp := spec{workload: any(workload), axes: axes, backend: any(backends), config: config}
		for i := range rng.IntN(3) {
			sp.metrics = append(sp.metrics, metricSpec{"m" + strconv.Itoa(i), class, math.Pow(10, 24*rng.Float64()-13), 1 + rng.IntN(5), rng.IntN(2) == 0})
		}
		status := []record.Status{record.OK, record.OK, record.Failed, record.Timeout, record.Unverified, record.Unsafe, record.Skipped}[rng.IntN(7)]
		sp.edit = func(c *record.Case) {
			if c.Status = status; status != record.OK && rng.IntN(2) == 0 {
				c.Reason, c.Stage = any(reasons), any(reasons)
				if rng.IntN(2) == 0 {
					c.Metrics = nil
				}
			} else {
				c.Status = record.OK
			}
			if rng.IntN(4) == 0 {
				c.Warnings = append(c.Warnings, workloads.Warning{Code: any(keys), Text: any(reasons)})
			}
			if rng.IntN(5) == 0 {
				c.NIC, c.Device = []string{"mlx5", "none", "unknown"}[rng.IntN(3)], "cuda"
			}
		}
		s.add(1+rng.IntN(4), sp)
	}
	if rng.IntN(3) == 0 {
		s.records = append(s.records, &record.Bad{File: word(), Line: 3, Err: errors.New(word())})
	}
	return s.records
}

// All formats render anything without a panic, csv and JSON stay readable, and every case is in them.
func TestEveryCaseIsInEveryMachineFormat(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range 12 {
		records := randomRecords(rng)
		ids := map[string]bool{}
		for _, r := range records {
			if c, ok := r.(*record.Case); ok {
				ids[c.ID] = true
			}
		}
		lines, err := csv.NewReader(strings.NewReader(render(t, records, "csv", 0))).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		at := slices.Index(lines[0], "metric")
		rows := map[string]bool{}
		for _, l := range lines[1:] {
			rows[strings.Join(l[:at], "\x00")] = true
		}
		if len(rows) != len(ids) {
			t.Errorf("csv has %d cases, want %d", len(rows), len(ids))
		}
		var doc struct {
			Runs []struct{ Cases []struct{ ID string } }
		}
		if err := json.Unmarshal([]byte(render(t, records, "json", 0)), &doc); err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, u := range doc.Runs {
			for _, c := range u.Cases {
				got[c.ID] = true
			}
		}
		if diff := cmp.Diff(ids, got); diff != "" {
			t.Errorf("JSON's cases (-want +got):\n%s", diff)
		}
		render(t, records, "markdown", 0)
		render(t, records, "nccl-tests", 0)
	}
}

// cells reads a csv line into a map.
func csvRows(t *testing.T, records []record.Record) []map[string]string {
	t.Helper()
	lines, err := csv.NewReader(strings.NewReader(render(t, records, "csv", 0))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]string
	for _, l := range lines[1:] {
		m := map[string]string{}
		for i, v := range l {
			m[lines[0][i]] = v
		}
		rows = append(rows, m)
	}
	return rows
}

// exact makes a metric of given process runs.
func exact(name string, class workloads.Class, headline bool, samples ...float64) record.Metric {
	m, err := record.FromSamples(name, unitOf[class], class, samples)
	if err != nil {
		panic(err)
	}
	m.Headline = headline
	return m
}

// rowsOf builds one point: for each row its process runs' values of one metric, all ok and checked.
func rowsOf(class workloads.Class, rows map[string][]float64, edit func(row string, c *record.Case)) []record.Record {
	records := newSynth(1, 0).records
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		backend, batch, _ := strings.Cut(name, " ")
		for i, v := range rows[name] {
			c := &record.Case{
				Type: "case", Index: i, Workload: "op", Axes: map[string]string{"size": "8"}, Backend: backend,
				Config: map[string]string{"batch": batch}, NIC: "soft", Device: "host", Ranks: 2, Status: record.OK,
				Verify:  &workloads.Verification{Checked: 1},
				Metrics: []record.Metric{exact("m", class, true, v)},
			}
			if edit != nil {
				edit(name, c)
			}
			c.ID = record.CaseID(c)
			records = append(records, c)
		}
	}
	return records
}

func TestBestFloorRatioAndGap(t *testing.T) {
	rows := map[string][]float64{
		"minigda 1": {4, 2, 3}, "minigda 16": {2, 2, 2}, "miniproxy": {10, 8, 9}, "nvshmem": {1, 1, 1},
	}
	type want struct{ best, ratio, gap string }
	check := func(what string, records []record.Record, wants map[string]want) {
		t.Helper()
		for _, r := range csvRows(t, records) {
			name := strings.TrimSpace(r["backend"] + " " + r["backend.batch"])
			got := want{r["best_floor"], r["ratio"], r["gap"]}
			if w := wants[name]; got != w {
				t.Errorf("%s: %s: got %+v, want %+v", what, name, got, w)
			}
		}
	}
	// A library may be better than every floor; it is no floor.
	check("time", rowsOf(workloads.Time, rows, nil), map[string]want{
		"minigda 1": {"false", "1.5", "1"}, "minigda 16": {"true", "1", "0"},
		"miniproxy": {"false", "4.5", "7"}, "nvshmem": {"false", "0.5", "-1"},
	})
	check("rate", rowsOf(workloads.Rate, rows, nil), map[string]want{
		"minigda 1": {"false", "0.3333333333333333", "-6"}, "minigda 16": {"false", "0.2222222222222222", "-7"},
		"miniproxy": {"true", "1", "0"}, "nvshmem": {"false", "0.1111111111111111", "-8"},
	})
	spoil := func(status record.Status) func(string, *record.Case) {
		return func(row string, c *record.Case) {
			if row == "minigda 16" && c.Index == 1 {
				c.Status, c.Reason = status, "because"
			}
		}
	}
	next := map[string]want{
		"minigda 1": {"true", "1", "0"}, "minigda 16": {"false", "0.6666666666666666", "-1"},
		"miniproxy": {"false", "3", "6"}, "nvshmem": {"false", "0.3333333333333333", "-2"},
	}
	for _, status := range []record.Status{record.Unsafe, record.Unverified, record.Failed, record.Timeout, record.Skipped} {
		check(string(status), rowsOf(workloads.Time, rows, spoil(status)), next)
	}
	check("unchecked", rowsOf(workloads.Time, rows, func(row string, c *record.Case) {
		if row == "minigda 16" {
			c.Verify = nil
		}
	}), next)
	check("wrong payload though ok", rowsOf(workloads.Time, rows, func(row string, c *record.Case) {
		if row == "minigda 16" {
			c.Verify.Wrong = 1
		}
	}), next)
	check("other NIC", rowsOf(workloads.Time, rows, func(row string, c *record.Case) {
		if row != "minigda 16" {
			c.NICConfig = map[string]string{"profile": "cx7-200"}
		}
	}), map[string]want{
		"minigda 1": {"true", "1", "0"}, "minigda 16": {"true", "1", "0"},
		"miniproxy": {"false", "3", "6"}, "nvshmem": {"false", "0.3333333333333333", "-2"},
	})
}

// A value that should be there and is not is an error, never a zero, and the row is not the best.
func TestMissingMetricIsAnError(t *testing.T) {
	records := rowsOf(workloads.Time, map[string][]float64{"minigda 1": {1, 1}, "minigda 2": {5, 5}}, func(row string, c *record.Case) {
		if row == "minigda 1" && c.Index == 1 {
			c.Metrics = nil
		}
	})
	for _, r := range csvRows(t, records) {
		if missing := r["backend.batch"] == "1"; (r["status"] == "failed") != missing || (r["best_floor"] == "true") == missing {
			t.Errorf("got %v", r)
		}
	}
	if out := render(t, records, "table", 0); !strings.Contains(out, "1/2  missing [1]") ||
		!strings.Contains(out, "[1] error: metric m is missing though the case is ok\n") {
		t.Error(out)
	}
}

// What one backend takes beside what all do has no row of the others, and is no error of theirs.
func TestMetricOfOneBackendAlone(t *testing.T) {
	records := rowsOf(workloads.Time, map[string][]float64{"minigda 1": {1}, "miniproxy": {2}}, func(row string, c *record.Case) {
		if row == "miniproxy" {
			own := c.Metrics[0]
			own.Name = "own"
			c.Metrics = append(c.Metrics, own)
		}
	})
	for _, r := range csvRows(t, records) {
		if r["status"] != "ok" || r["metric"] == "own" && r["backend"] != "miniproxy" {
			t.Errorf("got %v", r)
		}
	}
	if out := render(t, records, "table", 0); strings.Contains(out, "missing") || strings.Count(out, "miniproxy  soft/host") != 2 || strings.Count(out, "minigda    soft/host") != 1 {
		t.Error(out)
	}
}

func TestOKWithoutAnyMetricIsAnError(t *testing.T) {
	records := rowsOf(workloads.Time, map[string][]float64{"minigda 1": {1}}, func(_ string, c *record.Case) { c.Metrics = nil })
	const want = "error: nothing was measured though the case is ok"
	if r := csvRows(t, records)[0]; r["status"] != "failed" || r["reason"] != want || r["median"] != "" {
		t.Errorf("got %v", r)
	}
	for _, format := range []string{"table", "markdown", "json"} {
		if out := render(t, records, format, 0); !strings.Contains(out, want) {
			t.Errorf("%s: %s", format, out)
		}
	}
}

func TestStatisticsOfARow(t *testing.T) {
	records := newSynth(3, 0).records
	for i, v := range [][]float64{{1, 2, 3, 10}, {2, 4, 6, 20}, {3, 6, 9, 30}} {
		c := &record.Case{
			Type: "case", Index: i, Workload: "op", Backend: "x", NIC: "soft", Device: "host", Ranks: 2, Status: record.OK,
			Metrics: []record.Metric{exact("m", workloads.Time, true, v...)},
		}
		c.ID = record.CaseID(c)
		records = append(records, c)
	}
	got := csvRows(t, records)
	if len(got) != 1 {
		t.Fatal(got)
	}
	for k, want := range map[string]string{
		// Each process run's p50 is 2, 4, 6. p90 and p99 are of the 12 operations together, by nearest rank: the 11th
		// is 20, the 12th 30.
		"n": "3", "samples": "12", "median": "4", "run_min": "2", "run_max": "6", "min": "1", "max": "30",
		"p90": "20", "p99": "30", "ci_low": "", "ci_high": "", "unit": "s", "verified": "false",
	} {
		if got[0][k] != want {
			t.Errorf("%s = %q, want %q", k, got[0][k], want)
		}
	}
}

// Process runs that are not ok do not change a row's numbers.
func TestOnlyOKProcessRunsCount(t *testing.T) {
	rows := map[string][]float64{"minigda 1": {1, 2, 3, 100}}
	records := rowsOf(workloads.Time, rows, func(_ string, c *record.Case) {
		if c.Index == 3 {
			c.Status, c.Reason = record.Unverified, "payload differs"
		}
	})
	r := csvRows(t, records)[0]
	if r["median"] != "2" || r["n"] != "3" || r["run_max"] != "3" || r["status"] != "unverified" || r["reason"] != "payload differs" {
		t.Errorf("got %v", r)
	}
}

func TestUnits(t *testing.T) {
	for _, tc := range []struct {
		class  workloads.Class
		values []float64
		want   string
		texts  []string
	}{
		{workloads.Time, []float64{62e-9, 5e-6}, "ns", []string{"62.0", "5000"}},
		{workloads.Time, []float64{3.126e-6, 13.8e-6}, "us", []string{"3.13", "13.8"}},
		{workloads.Time, []float64{0.0021}, "ms", []string{"2.10"}},
		{workloads.Time, []float64{1.5}, "s", []string{"1.50"}},
		{workloads.Rate, []float64{4.7e6, 51e3}, "M msg/s", []string{"4.70", "0.0510"}},
		{workloads.Rate, []float64{900}, "k msg/s", []string{"0.900"}},
		{workloads.Bandwidth, []float64{46.1e9}, "GB/s", []string{"46.1"}},
		{workloads.Bandwidth, []float64{2e6}, "MB/s", []string{"2.00"}},
	} {
		m := &comparison{class: tc.class}
		for _, v := range tc.values {
			c := &cell{runs: 1}
			c.stats.Median = v
			m.cells = append(m.cells, c)
		}
		u := unitFor(m)
		if u.name != tc.want {
			t.Errorf("%v %v: %s, want %s", tc.class, tc.values, u.name, tc.want)
		}
		for i, v := range tc.values {
			if got := number(v / u.scale); got != tc.texts[i] {
				t.Errorf("%g in %s: %s, want %s", v, u.name, got, tc.texts[i])
			}
		}
	}
	for v, want := range map[float64]string{
		0: "0", 9.996: "10.0", 99.96: "100", 0.99951: "1.00", 12345.4: "12345", 123456: "1.23e5", 1e-4: "1.00e-4", -3.456: "-3.46",
		0.009996: "0.0100", 0.001: "0.00100",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%g) = %s, want %s", v, got, want)
		}
	}
}

func TestNumbersOfKeysAreSortedByValue(t *testing.T) {
	in := []string{"1M", "auto", "64K", "8", "1K", "16", "exact", "0.5", "nan", "inf"}
	slices.SortFunc(in, compareNatural)
	want := []string{"0.5", "8", "16", "1K", "64K", "1M", "auto", "exact", "inf", "nan"}
	if diff := cmp.Diff(want, in); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReachNamesTheFirstSize(t *testing.T) {
	records := newSynth(1, 0).records
	for i, size := range []string{"64K", "1K", "16K", "256K"} {
		c := &record.Case{
			Type: "case", Workload: "goodput", Axes: map[string]string{"size": size}, Backend: "minigda", NIC: "soft",
			Device: "host", Ranks: 2, Status: record.OK, Verify: &workloads.Verification{Checked: 1},
			Metrics: []record.Metric{exact("goodput", workloads.Bandwidth, true, []float64{9e9, 1e9, 8.9e9, 10e9}[i])},
		}
		c.ID = record.CaseID(c)
		records = append(records, c)
	}
	want := "first size to reach 90 % of the best goodput: minigda soft/host 64K (best 10.0 GB/s at 256K)\n"
	if out := render(t, records, "table", 0); !strings.Contains(out, want) {
		t.Errorf("no %q in\n%s", want, out)
	}
}

// Several runs stay apart; the same run going on after --resume does not become two; a case measured again is
// said to be.
func TestRunsAndRepeats(t *testing.T) {
	one := rowsOf(workloads.Time, map[string][]float64{"minigda 1": {1, 2, 3}}, nil)
	again := *one[0].(*record.Header)
	out := render(t, append(slices.Clone(one), &again, one[1]), "table", 0)
	if !strings.Contains(out, "1 process run recorded again: the last counts (first: op of minigda, process run 0)") ||
		strings.Count(out, again.ID) != 1 {
		t.Error(out)
	}
	other := again
	other.ID = "other"
	rows := csvRows(t, append(slices.Clone(one), append([]record.Record{&other}, one[1:]...)...))
	if len(rows) != 2 || rows[0]["run"] != again.ID || rows[1]["run"] != "other" || rows[0]["n"] != "3" || rows[1]["n"] != "3" {
		t.Errorf("got %v", rows)
	}
	if out := render(t, one[1:], "table", 0); !strings.Contains(out, "records without a header") {
		t.Error(out)
	}
	if out := render(t, nil, "table", 0); out != "no records\n" {
		t.Errorf("got %q", out)
	}
}

func TestBadLinesAreNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.jsonl")
	var data []byte
	for _, r := range rowsOf(workloads.Time, map[string][]float64{"minigda 1": {1}}, nil) {
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		data = append(append(data, line...), '\n')
	}
	data = append(append(data, "}\n"...), data[:30]...)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range Formats() {
		var b strings.Builder
		if err := r.Render(&b, format, 200); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"x.jsonl:3: invalid character", "x.jsonl:4: torn last line"} {
			if format != "csv" && !strings.Contains(b.String(), want) {
				t.Errorf("%s does not say %q:\n%s", format, want, b.String())
			}
		}
	}
	if errs := r.Errors(); len(errs) != 2 {
		t.Errorf("got %q", errs)
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a path that is not there was loaded")
	}
}

func TestFailed(t *testing.T) {
	count := func(records []record.Record) int {
		r := New()
		for _, rec := range records {
			r.Add(rec)
		}
		return r.Failed()
	}
	if got := count(quick()); got != 0 {
		t.Errorf("quick: %d", got)
	}
	// Two failed, one timed out, one unverified, one lacks a metric; unsafe and skipped are none.
	if got := count(trouble()); got != 5 {
		t.Errorf("trouble: %d, want 5", got)
	}
}

// Whatever a file holds, reading and printing it does not panic.
func FuzzShow(f *testing.F) {
	var seed []byte
	for _, r := range trouble() {
		line, err := json.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		if seed = append(append(seed, line...), '\n'); len(seed) > 20000 {
			break
		}
	}
	f.Add(seed)
	f.Add([]byte(`{"type":"case","id":"a","workload":"goodput","axes":{"size":"inf"},"backend":"minigda","nic":"x","device":"y","ranks":1,"status":"ok"}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := New()
		for rec, err := range record.Read("fuzz", strings.NewReader(string(in))) {
			if err != nil {
				t.Fatal(err)
			}
			r.Add(rec)
		}
		for _, format := range Formats() {
			if err := r.Render(&strings.Builder{}, format, 0); err != nil {
				t.Fatal(err)
			}
		}
	})
}
