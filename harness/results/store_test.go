package results

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gic/backends"
	"gic/harness/record"
	"gic/workloads"
)

var day0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func testCase(t *testing.T, size, batch, index int, rtt float64) *record.Case {
	t.Helper()
	m, err := record.FromSamples("rtt", "s", workloads.Time, []float64{rtt, rtt, rtt})
	if err != nil {
		t.Fatal(err)
	}
	m.Headline = true
	return &record.Case{
		Index: index, Workload: "op", Axes: map[string]string{"size": strconv.Itoa(size)}, Backend: "minigda",
		Config: map[string]string{"batch": strconv.Itoa(batch)}, NIC: "soft", Device: "host", Ranks: 2, Seed: 1, Start: day0,
		Status: record.OK, Metrics: []record.Metric{m}, Messages: 16,
		Counters: []backends.Counter{{Name: "doorbells", Unit: "1", Value: uint64(16 / batch), Exact: true}},
	}
}

// writeRun writes a run of the given day with the cases.
func writeRun(t *testing.T, dir string, day int, cases ...*record.Case) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, record.FileName)
	w, err := record.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	h := &record.Header{ID: fmt.Sprintf("day%02d", day), Time: day0.AddDate(0, 0, day), Gic: "test", Command: []string{"gic"}, Suite: "quick", Seed: 1,
		Ranks: 2, Repeat: 4, Cases: len(cases), Launch: "local", Host: record.Machine{Hostname: "node1", CPU: map[string]any{"model": "Test CPU"}}}
	for _, r := range append([]record.Record{h}, asRecords(cases)...) {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func asRecords(cases []*record.Case) (out []record.Record) {
	for _, c := range cases {
		out = append(out, c)
	}
	return out
}

func runCases(t *testing.T, rtt float64) (out []*record.Case) {
	for _, size := range []int{8, 64, 1024} {
		for _, batch := range []int{1, 16} {
			for index := range 4 {
				out = append(out, testCase(t, size, batch, index, rtt*(1+float64(size)/1000+float64(index)/100)))
			}
		}
	}
	return out
}

func mustFilter(t *testing.T, text string) *Filter {
	t.Helper()
	f, err := NewFilter(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestListFindsRunsAtAnyDepth(t *testing.T) {
	dir := t.TempDir()
	writeRun(t, filepath.Join(dir, "b"), 1, runCases(t, 1e-6)...)
	failed := runCases(t, 1e-6)
	failed[0].Status, failed[0].Reason, failed[0].Metrics = record.Failed, "crashed", nil
	writeRun(t, filepath.Join(dir, "a/deep/er"), 2, failed...)
	writeRun(t, filepath.Join(dir, baselineDir, "x"), 3, runCases(t, 1e-6)...)
	os.MkdirAll(filepath.Join(dir, "empty"), 0o755)
	os.WriteFile(filepath.Join(dir, "empty", record.FileName), nil, 0o644)
	files, err := Open(dir).Files()
	if err != nil {
		t.Fatal(err)
	}
	runs, err := List(files, mustFilter(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range runs {
		got = append(got, fmt.Sprintf("%s %d/%d %v %d bad", r.ID, r.Records, r.Planned, r.Cases, len(r.Bad)))
	}
	want := []string{" 0/0 map[] 1 bad", "day01 24/24 map[ok:6] 0 bad", "day02 24/24 map[failed:1 ok:5] 0 bad"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	runs, err = List(files, mustFilter(t, "status:failed"))
	if err != nil || len(runs) != 2 || runs[1].Records != 1 { // the file without a run is still told of
		t.Errorf("with a filter: %d runs, %v", len(runs), err)
	}
	if _, err := Open(filepath.Join(dir, "nope")).Files(); err == nil || !strings.Contains(err.Error(), EnvDir) {
		t.Errorf("a store that is not there: %v", err)
	}
}

// Whatever order a run measured in: numbers stand in theirs; a note names only what a cell really mixes; each table says
// whose figures it holds.
func TestQueryOfAShuffledRun(t *testing.T) {
	var cases []*record.Case
	for _, size := range []int{1024, 8, 64} {
		c := testCase(t, size, 1, 0, 1e-6)
		c.Axes["op"] = "put"
		cases = append(cases, c)
		rate := testCase(t, size, 1, 0, 1e-6)
		rate.Workload, rate.Axes["threads"] = "rate", "4"
		rate.Metrics[0].Name = "message_rate"
		cases = append(cases, rate)
		gpu := testCase(t, size, 1, 0, 1e-6)
		gpu.Device, gpu.Metrics[0].Name = "cuda", "issue"
		cases = append(cases, gpu)
	}
	path := writeRun(t, t.TempDir(), 0, cases...)
	a, err := (&Query{Col: "workload.size", Row: "backend", Stat: func(m *record.Metric) float64 { return m.P50 }}).Ask([]string{path})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]string{{"8"}, {"64"}, {"1024"}}, a.Metrics[0].ColValues); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
	if a.Notes != nil {
		t.Errorf("nothing is mixed, but %v", a.Notes)
	}
	if diff := cmp.Diff([]string{"soft/host", "soft/cuda"}, a.Places); diff != "" {
		t.Errorf("places (-want +got):\n%s", diff)
	}
	for _, g := range a.Metrics {
		if g.Alone != (g.Metric == "issue") {
			t.Errorf("%s: alone %v", g.Metric, g.Alone)
		}
	}
	if a, err = (&Query{Row: "backend", Stat: func(m *record.Metric) float64 { return m.P50 }}).Ask([]string{path}); err != nil ||
		len(a.Notes) != 1 || !strings.Contains(a.Notes[0], "different values of workload.size:") {
		t.Errorf("%v, notes %v; want workload.size alone", err, a.Notes)
	}
}

func TestQuery(t *testing.T) {
	dir := t.TempDir()
	path := writeRun(t, dir, 1, runCases(t, 1e-6)...)
	ask := func(q Query) *Answer {
		t.Helper()
		q.Stat = func(m *record.Metric) float64 { return m.P50 }
		if q.Filter == nil {
			q.Filter = mustFilter(t, "")
		}
		a, err := q.Ask([]string{path})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := ask(Query{Row: "workload.size@num", Col: "backend.batch@(16 1)"})
	g := a.Metrics[0]
	if diff := cmp.Diff([][]string{{"8"}, {"64"}, {"1024"}}, g.RowValues); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([][]string{{"16"}, {"1"}}, g.ColValues); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
	if c := g.Cells[0][0]; c.N != 4 || math.Abs(c.Median-1e-6*1.023) > 1e-15 || a.Notes != nil {
		t.Errorf("cell %+v, notes %v", c, a.Notes)
	}
	if a := ask(Query{Row: "workload.size"}); a.Metrics[0].Cells[0][0].N != 8 || len(a.Notes) != 1 || !strings.Contains(a.Notes[0], "backend.batch") {
		t.Errorf("mixed cells are not told: %v", a.Notes)
	}
	if a := ask(Query{Row: "workload.size", Ignore: "backend.batch"}); a.Notes != nil {
		t.Errorf("ignored keys are told: %v", a.Notes)
	}
	if a := ask(Query{}); len(a.Metrics[0].Cells) != 6 || a.Notes != nil {
		t.Errorf("by default there are %d rows, notes %v; want all 6 cases", len(a.Metrics[0].Cells), a.Notes)
	}
	if a := ask(Query{Filter: mustFilter(t, "workload.size:(8 OR 64) backend.batch:1")}); a.Records != 8 {
		t.Errorf("%d records match, want 8", a.Records)
	}
	for _, q := range []Query{{Row: "workload.sise"}, {Col: "@num"}, {Row: "workload.size@fast"}, {Ignore: "a("}} {
		q.Filter, q.Stat = mustFilter(t, ""), func(m *record.Metric) float64 { return m.P50 }
		if _, err := q.Ask([]string{path}); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v, want an error of one line", q, err)
		}
	}
}

func TestBaselines(t *testing.T) {
	dir := t.TempDir()
	s := Open(filepath.Join(dir, "store"))
	path := writeRun(t, filepath.Join(dir, "store", "run1"), 1, runCases(t, 1e-6)...)
	if _, err := s.Save("main", []string{path}, false, false, day0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save("kept", []string{path}, true, false, day0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save("main", []string{path}, false, false, day0); err == nil || !strings.Contains(err.Error(), "--replace") {
		t.Errorf("saving twice: %v", err)
	}
	if _, err := s.Save("main", []string{path}, false, true, day0); err != nil {
		t.Errorf("replacing: %v", err)
	}
	for _, name := range []string{"", "../x", "a/b", ".hidden", "a b", strings.Repeat("x", 101)} {
		if _, err := s.Save(name, []string{path}, false, false, day0); err == nil {
			t.Errorf("name %q is allowed", name)
		}
	}
	b, err := s.Baseline("main")
	if err != nil || b.Runs[0].ID != "day01" {
		t.Fatalf("baseline: %+v, %v", b, err)
	}
	// The store moves as a whole: references inside it still hold.
	moved := filepath.Join(dir, "moved")
	if err := os.Rename(filepath.Join(dir, "store"), moved); err != nil {
		t.Fatal(err)
	}
	s = Open(moved)
	if b, err = s.Baseline("main"); err != nil || b.Files()[0] != filepath.Join(moved, "run1", record.FileName) {
		t.Errorf("after a move: %v", err)
	}
	f, err := os.OpenFile(filepath.Join(moved, "run1", record.FileName), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString("{}\n")
	f.Close()
	if _, err = s.Baseline("main"); err == nil || !strings.Contains(err.Error(), "not what was saved") {
		t.Errorf("a changed run: %v", err)
	}
	if b, err = s.Baseline("kept"); err != nil {
		t.Errorf("a copy does not depend on the original: %v", err)
	}
	if _, err = s.Baseline("mian"); err == nil || !strings.Contains(err.Error(), "there are kept, main") {
		t.Errorf("an unknown name: %v", err)
	}
	if err := s.RemoveBaseline("kept"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(b.Files()[0]); err == nil {
		t.Error("the copies of a removed baseline are still there")
	}
	for text, want := range map[string]string{`{`: "unexpected end", `{"schema":"gic.baseline/9"}`: "gic.baseline/9", `{"schema":"gic.baseline/1","name":"other"}`: "other"} {
		os.WriteFile(filepath.Join(moved, baselineDir, "bad.json"), []byte(text), 0o644)
		if _, err := s.Baseline("bad"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("baseline file %s: %v, want %s", text, err, want)
		}
		if all, err := s.Baselines(); err == nil || len(all) != 1 {
			t.Errorf("a bad baseline among others: %d listed, %v", len(all), err)
		}
		if _, err := s.Prune(nil, 1, 0, day0); err == nil {
			t.Error("prune goes on although it cannot know what a baseline names")
		}
	}
}

func TestPrune(t *testing.T) {
	dir := t.TempDir()
	s := Open(dir)
	paths := map[int]string{}
	for day := 1; day <= 5; day++ {
		paths[day] = writeRun(t, filepath.Join(dir, fmt.Sprint(day)), day, runCases(t, 1e-6)...)
	}
	if _, err := s.Save("main", []string{paths[1]}, false, false, day0); err != nil {
		t.Fatal(err)
	}
	busyWriter, err := record.Append(paths[2])
	if err != nil {
		t.Fatal(err)
	}
	defer busyWriter.Close()
	os.WriteFile(filepath.Join(dir, "3", "notes.txt"), []byte("mine"), 0o644)
	decide := func(keep int, age time.Duration) (plan []Pruning, gone []string) {
		t.Helper()
		files, err := s.Files()
		if err != nil {
			t.Fatal(err)
		}
		runs, err := List(files, mustFilter(t, ""))
		if err != nil {
			t.Fatal(err)
		}
		if plan, err = s.Prune(runs, keep, age, day0.AddDate(0, 0, 6)); err != nil {
			t.Fatal(err)
		}
		for _, p := range plan {
			if p.Remove {
				gone = append(gone, p.ID)
			}
		}
		return plan, gone
	}
	if _, gone := decide(-1, 60*time.Hour); !slices.Equal(gone, []string{"day03"}) {
		t.Errorf("older than 60 h: %v, want day03 (day01 is a baseline, day02 is being written)", gone)
	}
	plan, gone := decide(1, 0)
	if !slices.Equal(gone, []string{"day04", "day03"}) {
		t.Errorf("all but one: %v, want day04, day03", gone)
	}
	for day := 1; day <= 5; day++ {
		if _, err := os.Stat(paths[day]); err != nil {
			t.Fatalf("deciding removed something: %v", err)
		}
	}
	for _, p := range plan {
		if err := Remove(p); err != nil {
			t.Error(err)
		}
	}
	for day, there := range map[int]bool{1: true, 2: true, 3: false, 4: false, 5: true} {
		if _, err := os.Stat(paths[day]); (err == nil) != there {
			t.Errorf("run of day %d: there %v, want %v", day, err == nil, there)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "3", "notes.txt")); err != nil {
		t.Error("a file that is not ours went with the run")
	}
	if _, err := os.Stat(filepath.Join(dir, "4")); err == nil {
		t.Error("an empty folder was left")
	}
}

func TestVerify(t *testing.T) {
	dir := t.TempDir()
	cases := runCases(t, 1e-6)
	path := writeRun(t, dir, 1, cases...)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
	for _, tc := range []struct {
		name string
		edit func([]string) []string
		want []string // problems hold these, in this order
	}{
		{"sound", func(l []string) []string { return l }, nil},
		{"torn", func(l []string) []string { return append(l[:len(l)-1], l[len(l)-1][:50]) }, []string{":25: torn last line", ":1: run day01 is incomplete: 23 of 24"}},
		{"twice", func(l []string) []string { return append(l, "\n", l[1]) }, []string{":26: process run 0 of case", "is on line 2 already"}},
		{"another p50", func(l []string) []string {
			var c map[string]any
			json.Unmarshal([]byte(l[3]), &c)
			m := c["metrics"].([]any)[0].(map[string]any)
			m["samples"].([]any)[0] = m["max"].(float64) / 2
			m["min"] = m["max"].(float64) / 2
			b, _ := json.Marshal(c)
			l[3] = string(b) + "\n"
			return l
		}, []string{":4: case op/minigda: metric rtt: mean is"}},
		{"another key", func(l []string) []string { l[4] = strings.Replace(l[4], `"batch":"1"`, `"batch":"2"`, 1); return l }, []string{":5: case op/minigda: id"}},
		{"NaN", func(l []string) []string { l[5] = strings.Replace(l[5], `"min":`, `"min":NaN,"x":`, 1); return l }, []string{":6: ", "incomplete"}},
		{"another schema", func(l []string) []string { l[0] = strings.Replace(l[0], "gic.run/1", "gic.run/2", 1); return l },
			[]string{`:1: schema "gic.run/2"`, ":2: from here on 24 lines"}},
		{"empty", func([]string) []string { return nil }, []string{": empty"}},
	} {
		if err := os.WriteFile(path, []byte(strings.Join(tc.edit(slices.Clone(lines)), "")), 0o644); err != nil {
			t.Fatal(err)
		}
		v, err := Verify([]string{path})
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(v.Problems, "\n")
		at := 0
		for _, w := range tc.want {
			i := strings.Index(all[at:], w)
			if i < 0 {
				t.Errorf("%s: no %q in:\n%s", tc.name, w, all)
				break
			}
			at += i
		}
		if (tc.want == nil) != (len(v.Problems) == 0) || tc.want != nil && !strings.Contains(all, path) {
			t.Errorf("%s: problems:\n%s", tc.name, all)
		}
	}
}

func TestVerifyFindsTheSameRunTwice(t *testing.T) {
	dir := t.TempDir()
	a := writeRun(t, filepath.Join(dir, "a"), 1, runCases(t, 1e-6)...)
	b := writeRun(t, filepath.Join(dir, "b"), 1, runCases(t, 1e-6)...)
	v, err := Verify([]string{a, b})
	if err != nil || len(v.Problems) != 1 || !strings.Contains(v.Problems[0], b+":1: run day01 is also in "+a) {
		t.Errorf("problems %v, %v", v, err)
	}
}

// Runs written at the same time are different files: none of them sees lines of another.
func TestConcurrentRunsDoNotMix(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() { writeRun(t, filepath.Join(dir, fmt.Sprint(i)), i, runCases(t, float64(i+1)*1e-6)...) })
	}
	wg.Wait()
	files, err := Open(dir).Files()
	if err != nil || len(files) != 6 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	v, err := Verify(files)
	if err != nil || len(v.Problems) > 0 || v.Runs != 6 || v.Records != 6*24 {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestHistory(t *testing.T) {
	dir := t.TempDir()
	for day := range 16 {
		rtt, batch := 1e-6*(1+0.001*float64(day*7%5)), 16
		if day >= 9 {
			rtt *= 1.3
		}
		if day >= 12 {
			batch = 1
		}
		var cases []*record.Case
		for index := range 4 {
			c := testCase(t, 8, 16, index, rtt)
			c.Counters[0].Value = uint64(16 / batch)
			cases = append(cases, c)
		}
		// Folders are not in time order.
		writeRun(t, filepath.Join(dir, fmt.Sprintf("%02d", (day*5)%16)), day, cases...)
	}
	files, err := Open(dir).Files()
	if err != nil {
		t.Fatal(err)
	}
	series, bad, err := History(files, HistoryOptions{Filter: mustFilter(t, "backend:minigda"), Alpha: 0.01, Seed: 1})
	if err != nil || bad != nil || len(series) != 2 {
		t.Fatalf("%d series, %v, %v", len(series), bad, err)
	}
	for i, want := range []struct {
		metric string
		at     int
		shift  float64
	}{{"rtt", 9, 0.3}, {"doorbells_per_message", 12, 15}} {
		s := series[i]
		if s.Metric != want.metric || len(s.Points) != 16 || len(s.Changes) != 1 || s.Changes[0].At != want.at ||
			math.Abs(Shift(s.Changes[0])-want.shift) > 0.01 {
			t.Errorf("%s: %d points, changes %+v; want %s at %d", s.Metric, len(s.Points), s.Changes, want.metric, want.at)
		}
		if !slices.IsSortedFunc(s.Points, func(a, b Point) int { return a.Time.Compare(b.Time) }) {
			t.Errorf("%s: points are not in time order", s.Metric)
		}
	}
}
