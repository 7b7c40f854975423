// Package report makes one model of a run's records and prints it: as a table for a terminal, as Markdown, csv,
// JSON, or in the columns of nccl-tests. `gic run` at its end and `gic show` later add the same records and
// print the same bytes; nothing but the records is looked at.
//
// Cases are grouped by workload and point (the values of its axes); the rows of a point are backends times
// configurations times NIC and device. A row's number is the median over its process runs (package stats). Each
// row stands beside the best floor of the same point, metric, NIC and device; rows that were skipped, failed or
// did not verify stay, with the reason.
package report

import (
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"

	"gic/harness/record"
	"gic/workloads"
)

// DefaultWidth is the width of a table when nothing else is asked for.
const DefaultWidth = 100

// minWidth is the narrowest table that still holds all columns.
const minWidth = 80

// floors are the backends that a row is compared with: rawstore where no NIC takes part, the others over one.
var floors = []string{"minigda", "miniproxy", "rawstore"}

// IsFloor says whether a backend is one of the floors.
func IsFloor(backend string) bool { return slices.Contains(floors, backend) }

// oversubscribed is the warning code, and the key in a record's host part, of rows with more threads than CPUs.
const oversubscribed = "oversubscribed"

// Report is a model of records. The zero value is not usable; see New.
type Report struct {
	runs []*run
	bad  []string
	file string // where the record being added stands; "" if not known
	line int
	// thin: raw samples are not kept, those kept already do not count.
	thin     bool
	all      bool // tables have skipped rows, too
	rawBytes int
	intern   map[string]string
	maps     map[string][]map[string]string // see shared
	// What records are expected to say; nil if nobody asked. See Expect.
	expect       func(c *record.Case, metric string) Expectation
	lint         Lint
	expectedFrom string
}

// run is the cases of one header.
type run struct {
	of       *Report
	header   *record.Header // nil for cases without one
	rows     []*row
	byID     map[string]*row
	records  int
	replaced int
	example  string           // of a replaced record
	imports  []*record.Header // of other runs, whose cases stand among the rows
}

// row is one case over its process runs.
type row struct {
	id                                string
	workload, backend, nic, device    string
	axes, config, nicConfig           map[string]string
	ranks                             int
	seed                              uint64
	samples                           []sample          // in the order of index
	parts                             []record.KeyValue // what tells this configuration from others
	label                             string            // backend and parts
	place                             string            // NIC and device with their configuration
	status                            record.Status
	reasons                           []reason
	warnings                          []workloads.Warning // without repeats of a code
	measured, checked, oversubscribed bool
	imported                          string // the file that it was taken from; "" for a row of ours
	mark                              string // of such a row, behind its label
}

// reason is why some process runs of a row are not ok.
type reason struct {
	status record.Status
	text   string
}

// sample is one process run of a row, reduced to what reports show.
type sample struct {
	file     string // "" if not known
	line     int
	index    int
	status   record.Status
	reason   string
	values   []value
	checked  bool   // the payload was compared, and right
	wrong    uint64 // bytes of the payload that differ
	warnings []workloads.Warning
	crowded  bool
}

// value is one metric of one process run.
type value struct {
	name, unit              string
	class                   workloads.Class
	headline                bool
	n                       int
	mean                    float64
	min, p50, p90, p99, max float64
	raw                     *rawSamples // nil where there is one sample, or where raw samples are not kept
	expected                *Expectation
}

// rawSamples are what percentiles over process runs are made of.
type rawSamples struct {
	samples    []float64
	hdr        string
	resolution float64
}

// maxRawBytes bounds the raw samples that a report keeps. Beyond it keeps none: all its percentiles are then made
// in the same way, from those of the process runs.
const maxRawBytes = 16 << 20

// keep takes the raw samples of a metric.
func (r *Report) keep(v *value, m *record.Metric) {
	if m.N < 2 || m.HDR == "" && len(m.Samples) == 0 {
		r.thin = r.thin || m.N > 1
		return
	}
	if r.rawBytes += len(m.HDR) + 8*len(m.Samples); r.thin || r.rawBytes > maxRawBytes {
		r.thin = true
		return
	}
	v.raw = &rawSamples{slices.Clone(m.Samples), strings.Clone(m.HDR), m.Resolution}
}

// New makes an empty report.
func New() *Report {
	return &Report{intern: map[string]string{}, maps: map[string][]map[string]string{}}
}

// All makes tables list the rows that were skipped, one by one, instead of naming them once.
func (r *Report) All() { r.all = true }

// Load reads all records of a run file or folder into a report, on which prepare is called before.
func Load(path string, prepare ...func(*Report)) (*Report, error) {
	files, err := record.Files(path)
	if err != nil {
		return nil, err
	}
	r := New()
	for _, f := range prepare {
		f(r)
	}
	for _, file := range files {
		for at, err := range ReadFile(file) {
			if err != nil {
				return nil, err
			}
			r.AddAt(file, at)
		}
	}
	return r, nil
}

// longFile is the size from which raw samples are not read: merging those of so many rows takes longer than all
// the rest of a table.
const longFile = 32 << 20

// ReadFile streams the records of a file as a report of it needs them: without raw samples if it is long.
func ReadFile(file string) iter.Seq2[record.Located, error] {
	if st, err := os.Stat(file); err == nil && st.Size() > longFile {
		return record.ReadSummaries(file, nil)
	}
	return record.ReadLines(file)
}

// Add adds a record: a header starts a run, cases belong to the header before them, a line that could not be
// read is named in the report. The record may be changed and reused afterwards, but for a Header.
func (r *Report) Add(rec record.Record) {
	switch rec := rec.(type) {
	case *record.Header:
		if n := len(r.runs); n > 0 && r.runs[n-1].header != nil && r.runs[n-1].header.ID == rec.ID {
			return // a resumed run goes on
		}
		if r.join(rec) {
			return
		}
		r.runs = append(r.runs, &run{of: r, header: rec, byID: map[string]*row{}})
	case *record.Case:
		if len(r.runs) == 0 {
			r.runs = append(r.runs, &run{of: r, byID: map[string]*row{}})
		}
		r.addCase(r.runs[len(r.runs)-1], rec)
		if r.lint != nil {
			r.lint.Add(len(r.runs)-1, rec)
		}
	case *record.Bad:
		r.bad = append(r.bad, rec.Error())
	}
}

// AddAt is Add for a record of a file.
func (r *Report) AddAt(file string, at record.Located) {
	r.file, r.line = file, at.Line
	r.Add(at.Record)
	r.file, r.line = "", 0
}

// place is a record in words, with file and line where they are known.
func (s *sample) place(w *row) string {
	text := fmt.Sprintf("%s of %s, process run %d", w.workload, w.backend, s.index)
	if s.file != "" {
		text = fmt.Sprintf("%s:%d: %s", s.file, s.line, text)
	}
	return text
}

// join puts imported cases into the tables of the run beside them, whichever comes first: they are there to be
// compared with it.
func (r *Report) join(h *record.Header) bool {
	if len(r.runs) == 0 || r.runs[len(r.runs)-1].header == nil {
		return false
	}
	u := r.runs[len(r.runs)-1]
	switch {
	case h.Imported != nil:
		u.imports = append(u.imports, h)
	case u.header.Imported != nil:
		u.imports, u.header = append(u.imports, u.header), h
	default:
		return false
	}
	return true
}

// own returns a copy of s that is shared by all equal strings of the report. A decoded string may hold its
// whole line in memory.
func (r *Report) own(s string) string {
	if t, ok := r.intern[s]; ok {
		return t
	}
	t := strings.Clone(s)
	r.intern[t] = t
	return t
}

func (r *Report) ownMap(m map[string]string) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[r.own(k)] = r.own(v)
	}
	return out
}

// shared returns a copy of m that is shared with equal maps of this kind: a run has many rows of few
// configurations.
func (r *Report) shared(kind string, m map[string]string) map[string]string {
	known := r.maps[kind]
	for _, k := range known {
		if maps.Equal(k, m) {
			return k
		}
	}
	own := r.ownMap(m)
	if len(known) < 64 {
		r.maps[r.own(kind)] = append(known, own)
	}
	return own
}

func (r *Report) addCase(u *run, c *record.Case) {
	u.records++
	key, imported := c.ID, ""
	if c.Imported != nil { // may be of the same case as a measured row
		imported = r.own(c.Imported.File)
		key += " " + imported
	}
	w := u.byID[key]
	if w == nil {
		w = &row{
			id: strings.Clone(c.ID), workload: r.own(c.Workload), backend: r.own(c.Backend), nic: r.own(c.NIC),
			device: r.own(c.Device), axes: r.ownMap(c.Axes), config: r.shared(c.Backend, c.Config),
			nicConfig: r.shared("", c.NICConfig), ranks: c.Ranks, seed: c.Seed,
			imported: imported,
		}
		u.byID[strings.Clone(key)] = w
		u.rows = append(u.rows, w)
	}
	s := r.sample(c)
	at, found := slices.BinarySearchFunc(w.samples, s.index, func(a sample, index int) int { return a.index - index })
	if found {
		if u.replaced++; u.replaced == 1 {
			u.example = s.place(w)
			if old := &w.samples[at]; old.file != "" {
				u.example += fmt.Sprintf(", already on %s:%d", old.file, old.line)
			}
		}
		w.samples[at] = s
		return
	}
	w.samples = slices.Insert(w.samples, at, s)
}

func (r *Report) sample(c *record.Case) sample {
	s := sample{file: r.own(r.file), line: r.line, index: c.Index, status: record.Status(r.own(string(c.Status))), crowded: crowded(c)}
	if c.Status != record.OK {
		s.reason = r.own(reasonText(c))
	}
	if v := c.Verify; v != nil {
		s.checked, s.wrong = v.Checked > 0 && v.Wrong == 0, v.Wrong
	}
	s.values = make([]value, len(c.Metrics))
	for i := range c.Metrics {
		m := &c.Metrics[i]
		s.values[i] = value{
			name: r.own(m.Name), unit: r.own(m.Unit), class: workloads.Class(r.own(string(m.Class))),
			headline: m.Headline, n: m.N, min: m.Min, p50: m.P50, p90: m.P90, p99: m.P99, max: m.Max,
			mean: m.Mean,
		}
		r.keep(&s.values[i], m)
		if r.expect != nil {
			e := r.expect(c, m.Name)
			s.values[i].expected = &e
		}
	}
	for _, w := range c.Warnings {
		s.warnings = append(s.warnings, workloads.Warning{Code: r.own(w.Code), Text: r.own(w.Text)})
	}
	return s
}

// crowded says whether more threads wanted to run than there were CPUs, as the run found.
func crowded(c *record.Case) bool {
	return c.Host[oversubscribed] == true ||
		slices.ContainsFunc(c.Warnings, func(w workloads.Warning) bool { return w.Code == oversubscribed })
}

// reasonText is why a record is not ok, in one line.
func reasonText(c *record.Case) string {
	text := c.Reason
	if c.Stage != "" && c.Status != record.Skipped && c.Status != record.Unsafe {
		text += " (stage " + c.Stage + ")"
	}
	if v := c.Verify; c.Status == record.Unverified && v != nil && v.Wrong > 0 && !strings.Contains(text, "bytes wrong") {
		text += fmt.Sprintf(": %d of %d bytes wrong", v.Wrong, v.Checked)
		if v.First != "" {
			text += ", first " + v.First
		}
	}
	return text
}

// renderers by format, in the order in which they are listed.
var renderers = []struct {
	format string
	render func(*Report, io.Writer, int) error
}{
	{"table", (*Report).renderTable},
	{"markdown", (*Report).renderMarkdown},
	{"csv", (*Report).renderCSV},
	{"json", (*Report).renderJSON},
	{"nccl-tests", (*Report).renderNCCL},
}

// Formats lists the formats of Render.
func Formats() []string {
	var f []string
	for _, r := range renderers {
		f = append(f, r.format)
	}
	return f
}

// CheckFormat says what is wrong with a format, nil if nothing is.
func CheckFormat(format string) error {
	if !slices.Contains(Formats(), format) {
		return fmt.Errorf("unknown format %q: use one of %s", format, strings.Join(Formats(), ", "))
	}
	return nil
}

// Render prints the report. No line of a table is longer than width, which is DefaultWidth if 0 and at least
// 80; the other formats do not depend on it.
func (r *Report) Render(w io.Writer, format string, width int) error {
	if err := CheckFormat(format); err != nil {
		return err
	}
	if width == 0 {
		width = DefaultWidth
	}
	for _, f := range renderers {
		if f.format == format {
			return f.render(r, w, max(width, minWidth))
		}
	}
	return nil
}

// Errors are the lines that could not be read, each with file and line.
func (r *Report) Errors() []string { return slices.Clone(r.bad) }

// Failed counts the cases that make a run fail: failed, timed out, not verified, or without a metric that they
// should have. Skipped and unsafe ones do not.
func (r *Report) Failed() int {
	n := 0
	for _, u := range r.runs {
		for _, s := range u.sections() {
			for _, p := range s.points {
				for i, w := range p.rows {
					missing := len(p.metrics) == 0 && w.emptyCell().missing
					for _, m := range p.metrics {
						missing = missing || m.cells[i].missing
					}
					if missing || w.status == record.Failed || w.status == record.Timeout || w.status == record.Unverified {
						n++
					}
				}
			}
		}
	}
	return n
}
