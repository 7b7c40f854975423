package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"gic/harness/record"
)

// valueColumns follow the case's keys in csv. n counts process runs; median, run_min, run_max and the interval
// are over their values; min, p90, p99 and max are of the samples inside process runs, all
// together (in a report with too many of them the percentiles are medians over process runs of each one's own),
// and empty (the percentiles) where there is one sample per process run. Values are in the base unit of the unit column.
var valueColumns = []string{
	"metric", "unit", "n", "median", "p99", "status", "reason",
	"min", "p90", "max", "samples", "run_min", "run_max", "ci_low", "ci_high", "class", "verified", "best_floor",
	"ratio", "gap", "warnings", "run",
}

// keys are the row's keys in the order of record.Flatten, without the process run's.
func (w *row) keys() []record.KeyValue {
	c := record.Case{
		Workload: w.workload, Axes: w.axes, Backend: w.backend, Config: w.config, NIC: w.nic, NICConfig: w.nicConfig,
		Device: w.device, Ranks: w.ranks, Seed: w.seed,
	}
	kv := record.Flatten(&c)
	return slices.DeleteFunc(kv, func(kv record.KeyValue) bool { return kv.Key == "index" })
}

// keyColumns are the keys of all rows: of each group the name first, then what it has, sorted.
func (r *Report) keyColumns() []string {
	seen := map[string]bool{}
	var names []string
	for _, u := range r.runs {
		for _, w := range u.rows {
			for _, kv := range w.keys() {
				if !seen[kv.Key] {
					seen[kv.Key] = true
					names = append(names, kv.Key)
				}
			}
		}
	}
	groups := []string{"workload", "backend", "nic", "device", "ranks", "seed"}
	group := func(name string) int {
		head, _, _ := strings.Cut(name, ".")
		return slices.Index(groups, head)
	}
	slices.SortFunc(names, func(a, b string) int {
		if d := group(a) - group(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return names
}

func (r *Report) renderCSV(out io.Writer, _ int) error {
	w := csv.NewWriter(out)
	names := r.keyColumns()
	at := map[string]int{}
	for i, name := range names {
		at[name] = i
	}
	more := []string{}
	if r.expect != nil {
		more = []string{"expected", "no_prediction"}
	}
	if err := w.Write(slices.Concat(names, valueColumns, more)); err != nil {
		return err
	}
	line := make([]string, len(names)+len(valueColumns)+len(more))
	for _, u := range r.runs {
		id := ""
		if u.header != nil {
			id = u.header.ID
		}
		for _, s := range u.sections() {
			for _, p := range s.points {
				for i, row := range p.rows {
					clear(line)
					for _, kv := range row.keys() {
						line[at[kv.Key]] = kv.Value
					}
					wrote := false
					for _, m := range p.metrics {
						c := m.cells[i]
						if c.runs == 0 && !c.missing {
							continue
						}
						wrote = true
						copy(line[len(names):], c.values(m, id))
						if r.expect != nil {
							copy(line[len(names)+len(valueColumns):], c.expectedValues())
						}
						if err := w.Write(line); err != nil {
							return err
						}
					}
					if !wrote {
						copy(line[len(names):], row.emptyCell().values(&comparison{}, id))
						if err := w.Write(line); err != nil {
							return err
						}
					}
				}
			}
		}
	}
	w.Flush()
	return w.Error()
}

// values are a cell's valueColumns.
func (c *cell) values(m *comparison, run string) []string {
	w := c.row
	v := make([]string, 0, len(valueColumns))
	add := func(s ...string) { v = append(v, s...) }
	per := func(x float64, have bool) string {
		if !have || math.IsNaN(x) || math.IsInf(x, 0) {
			return ""
		}
		return strconv.FormatFloat(x, 'g', -1, 64)
	}
	have := c.runs > 0
	status, why := w.status, w.reasonText()
	if c.missing && status == record.OK {
		status, why = record.Failed, c.missingText(m)
	}
	add(m.name, m.unit, strconv.Itoa(c.runs), per(c.stats.Median, have), per(c.p99, have && c.perOp), string(status), why)
	add(per(c.min, have), per(c.p90, have && c.perOp), per(c.max, have), strconv.Itoa(c.ops))
	add(per(c.stats.Min, have), per(c.stats.Max, have))
	add(per(c.stats.Low, c.stats.Bounded()), per(c.stats.High, c.stats.Bounded()))
	add(string(m.class), strconv.FormatBool(w.checked), strconv.FormatBool(c.best))
	add(per(c.ratio(), have), per(c.gap(), have), w.warningText(), run)
	return v
}

// expectedValues are the columns of an expectation.
func (c *cell) expectedValues() []string {
	v, none := c.expectation()
	if math.IsNaN(v) {
		return []string{"", none}
	}
	return []string{strconv.FormatFloat(v, 'g', -1, 64), ""}
}

// missingText says that a metric is not there in process runs that are ok.
func (c *cell) missingText(m *comparison) string {
	if m.name == "" {
		return "error: nothing was measured though the case is ok"
	}
	return fmt.Sprintf("error: metric %s is missing though the case is ok", m.name)
}

// reasonText joins why process runs are not ok.
func (w *row) reasonText() string {
	var parts []string
	for _, r := range w.reasons {
		text := r.text
		if r.status != w.status || len(w.reasons) > 1 {
			text = string(r.status) + ": " + text
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

func (w *row) warningText() string {
	var parts []string
	for _, warn := range w.warnings {
		parts = append(parts, warn.Code+": "+warn.Text)
	}
	if w.oversubscribed && !w.warns(oversubscribed) {
		parts = append(parts, oversubscribed+": "+crowdedText)
	}
	return strings.Join(parts, "; ")
}

const crowdedText = "more threads wanted to run than there were CPUs"
