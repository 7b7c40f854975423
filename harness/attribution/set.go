package attribution

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gic/harness/record"
	"gic/workloads"
)

// Row is one configuration at one point over its process runs.
type Row struct {
	Run   *Run
	Cases []*record.Case // by process run; at least one
	times map[string]*Quantity
}

// Run is one run file.
type Run struct {
	File   string
	Header *record.Header
	Rows   []*Row
	// libraries say what the keys of their rows are about; nil until it is analysed.
	libraries []*Library
	Bad       []*record.Bad // lines that are no records; the others are not affected
	byID      map[string]*Row
	costs     []Cost
}

// Platform is the name of the machine that the run is of: its host name, or what an import says it is.
func (r *Run) Platform() string {
	if r.Header == nil {
		return ""
	}
	return r.Header.Host.Hostname
}

// Load reads run files, one Run each.
func Load(files []string) ([]*Run, error) {
	var runs []*Run
	for _, file := range files {
		run, err := load(file)
		if err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	return runs, nil
}

func load(file string) (*Run, error) {
	run := &Run{File: file}
	for rec, err := range record.ReadFile(file) {
		if err != nil {
			return nil, err
		}
		switch rec := rec.(type) {
		case *record.Header:
			if run.Header != nil {
				return nil, fmt.Errorf("%s: a second header: one run, one file", file)
			}
			run.Header = rec
		case *record.Case:
			if run.Header == nil {
				return nil, fmt.Errorf("%s is no run file: it does not begin with a header", file)
			}
			run.Add(rec)
		case *record.Bad:
			if run.Header == nil {
				return nil, fmt.Errorf("%s is no run file: %w", file, rec.Err)
			}
			run.Bad = append(run.Bad, rec)
		}
	}
	if run.Header == nil {
		return nil, fmt.Errorf("%s is no run file: it is empty", file)
	}
	return run, nil
}

// Add puts a record into its row.
func (r *Run) Add(c *record.Case) {
	id := c.ID
	if c.Imported != nil {
		id += c.Imported.File
	}
	if r.byID == nil {
		r.byID = map[string]*Row{}
	}
	w := r.byID[id]
	if w == nil {
		w = &Row{Run: r, times: map[string]*Quantity{}}
		r.byID[id] = w
		r.Rows = append(r.Rows, w)
	}
	w.Cases = append(w.Cases, c)
}

// First is a record of the row; all share its keys.
func (w *Row) First() *record.Case { return w.Cases[0] }

// Backend of the row.
func (w *Row) Backend() string { return w.First().Backend }

// Imported says that another tool, or a publication, gave the row.
func (w *Row) Imported() bool { return w.First().Imported != nil }

// Status is ok if any process run is; else that of the first.
func (w *Row) Status() record.Status {
	for _, c := range w.Cases {
		if c.Status == record.OK {
			return record.OK
		}
	}
	return w.First().Status
}

// Time is a metric of the row in seconds over its process runs: a time as it is, a rate as the time per message
// (its inverse), which is what adds up. ok is false where no process run has the metric, or it is neither.
// Process runs that are not ok count only if none is: a row that is unsafe as a whole still has a time, and its
// status says what it is worth.
func (w *Row) Time(metric string) (q Quantity, ok bool) {
	if have := w.times[metric]; have != nil {
		return *have, have.Runs > 0
	}
	status := w.Status()
	var values []float64
	for _, c := range w.Cases {
		if c.Status != status {
			continue
		}
		for i := range c.Metrics {
			m := &c.Metrics[i]
			switch {
			case m.Name != metric:
			case m.Class == workloads.Time:
				values = append(values, m.P50)
			case m.Class == workloads.Rate && m.P50 > 0:
				values = append(values, 1/m.P50)
			}
		}
	}
	if len(values) > 0 && (status == record.OK || status == record.Unsafe) {
		if v, err := FromRuns(w.key()+"/"+metric, values); err == nil {
			q = v
		}
	}
	w.times[metric] = &q
	return q, q.Runs > 0
}

func (w *Row) key() string {
	id := w.First().ID
	if w.Imported() {
		id += w.First().Imported.File
	}
	return id
}

// Metric is the first of the row's metrics of that name.
func (w *Row) Metric(name string) (*record.Metric, bool) {
	for _, c := range w.Cases {
		for i := range c.Metrics {
			if c.Metrics[i].Name == name {
				return &c.Metrics[i], true
			}
		}
	}
	return nil, false
}

// Metrics are the names of the row's metrics, headlines only if there are any.
func (w *Row) Metrics() []string {
	var all, headlines []string
	for _, c := range w.Cases {
		for i := range c.Metrics {
			m := &c.Metrics[i]
			if !slices.Contains(all, m.Name) {
				all = append(all, m.Name)
			}
			if m.Headline && !slices.Contains(headlines, m.Name) {
				headlines = append(headlines, m.Name)
			}
		}
	}
	if headlines != nil {
		return headlines
	}
	return all
}

// Config is the value of a configuration key as it really was: what was asked, with auto replaced by what was
// created, and the backend's default where the record does not say. "" where nothing is known.
func (w *Row) Config(key string) string {
	c := w.First()
	v, ok := c.Config[key]
	if !ok && w.Run != nil && w.Run.Header != nil {
		v = w.Run.Header.Defaults[c.Backend][key]
	}
	if v != "auto" {
		return v
	}
	if key == "copy" && c.Backend == "rawstore" {
		return w.copied()
	}
	if created, ok := c.Created[key]; ok && created != "auto" {
		return created
	}
	if key == "inline" {
		return w.inline()
	}
	return v
}

// copied resolves rawstore's copy=auto: bulk copies for a thread by itself on a GPU, from bulk_from bytes on.
func (w *Row) copied() string {
	size, err := workloads.Point(w.First().Axes).Int("size")
	from, err2 := strconv.Atoi(w.Config("bulk_from"))
	switch {
	case w.First().Device == "host" || w.Config("scope") != "thread":
		return "store"
	case err != nil || err2 != nil:
		return "auto"
	case size >= from:
		return "bulk"
	}
	return "store"
}

// inline resolves inline=auto by the size of the message.
func (w *Row) inline() string {
	c := w.First()
	size, err := workloads.Point(c.Axes).Int("size")
	limit := c.Created["inline_max"]
	if limit == "" {
		limit = c.Config["inline_limit"]
	}
	most, err2 := strconv.Atoi(limit)
	switch {
	case err != nil || err2 != nil:
		return "auto"
	case size <= most:
		return "on"
	}
	return "off"
}

// Label is the backend with what was asked of it beyond the defaults.
func (w *Row) Label() string {
	c := w.First()
	label := c.Backend
	for _, k := range slices.Sorted(maps.Keys(c.Config)) {
		if w.Run.tells(c.Backend, k, c.Config[k]) {
			label += " " + k + "=" + c.Config[k]
		}
	}
	return label
}

// tells says whether a key is worth saying: it is not the backend's default, or, where the defaults are not known, the
// rows of the backend differ in it.
func (r *Run) tells(backend, key, value string) bool {
	if r == nil || r.Header == nil {
		return true
	}
	if d, ok := r.Header.Defaults[backend]; ok {
		v, ok := d[key]
		return !ok || v != value
	}
	if len(r.Rows) > 0 && r.Rows[0].Imported() {
		return true
	}
	for _, w := range r.Rows {
		if c := w.First(); c.Backend == backend && c.Config[key] != value {
			return true
		}
	}
	return false
}

// Point names the work and where it was done: workload, axes, and what of the NIC and the device other rows of the
// workload have otherwise; without the axes that every row of the run has alike.
func (w *Row) Point() string {
	c := w.First()
	parts := []string{c.Workload}
	if c.Axes["op"] != "" && c.Workload == "op" {
		parts = nil // op=put says it all
	}
	for _, k := range slices.Sorted(maps.Keys(c.Axes)) {
		if k == "op" || k == "size" || w.Run == nil || w.Run.varies(c.Workload, k) {
			parts = append(parts, k+"="+c.Axes[k])
		}
	}
	return strings.Join(append(parts, w.where()...), " ")
}

// where is what of the NIC and the device differs among the rows of the workload.
func (w *Row) where() []string {
	if w.Run == nil {
		return nil
	}
	c := w.First()
	differs := func(value func(*record.Case) string) bool {
		return slices.ContainsFunc(w.Run.Rows, func(o *Row) bool {
			oc := o.First()
			return oc.Workload == c.Workload && value(oc) != value(c)
		})
	}
	var parts []string
	if differs(func(c *record.Case) string { return c.NIC }) {
		parts = append(parts, "nic="+c.NIC)
	}
	for _, k := range slices.Sorted(maps.Keys(c.NICConfig)) {
		if differs(func(c *record.Case) string { return c.NICConfig[k] }) {
			parts = append(parts, "nic."+k+"="+c.NICConfig[k])
		}
	}
	if differs(func(c *record.Case) string { return c.Device }) {
		parts = append(parts, "device="+c.Device)
	}
	return parts
}

// varies says whether an axis has several values among the rows of a workload.
func (r *Run) varies(workload, axis string) bool {
	first, seen := "", false
	for _, w := range r.Rows {
		c := w.First()
		if c.Workload != workload {
			continue
		}
		if v := c.Axes[axis]; !seen {
			first, seen = v, true
		} else if v != first {
			return true
		}
	}
	return false
}

// SamePlace says that two rows are of one point, NIC and device, so that their times may be subtracted.
func (w *Row) SamePlace(o *Row) bool {
	a, b := w.First(), o.First()
	return a.Workload == b.Workload && a.NIC == b.NIC && a.Device == b.Device && a.Ranks == b.Ranks && a.Seed == b.Seed &&
		maps.Equal(a.Axes, b.Axes) && maps.Equal(a.NICConfig, b.NICConfig)
}

// place is a key under which rows of one place stand; SamePlace decides.
func (w *Row) place() string {
	c := w.First()
	parts := []string{c.Workload, c.NIC, c.Device}
	return strings.Join(append(parts, sorted(c.Axes)...), "\x00")
}

// Source says where the row stands: the file and line that an imported row was taken from, else its case ID.
func (w *Row) Source() string {
	if m := w.First().Imported; m != nil {
		if t, ok := w.First().Facts["table"].(string); ok {
			return t
		}
		return fmt.Sprintf("%s:%d", m.File, m.Line)
	}
	return "case " + w.First().ID
}
