package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"

	"gic/harness/record"
	"gic/workloads"
)

// ModelSchema names the format of Render's "json".
const ModelSchema = "gic.report/1"

type jsonCase struct {
	ID       string              `json:"id"`
	Label    string              `json:"label"` // of the row, as tables show it
	Keys     map[string]string   `json:"keys"`
	Status   record.Status       `json:"status"`
	Reason   string              `json:"reason,omitempty"`
	Error    string              `json:"error,omitempty"`
	Imported string              `json:"imported,omitempty"` // the file that the row was taken from
	Verified bool                `json:"verified"`
	Crowded  bool                `json:"oversubscribed"`
	Warnings []workloads.Warning `json:"warnings,omitempty"`
	Runs     int                 `json:"process_runs"`
	Metrics  []jsonMetric        `json:"metrics"`
}

// jsonMetric has the names and meanings of csv's columns; what does not exist is left out.
type jsonMetric struct {
	Metric   string          `json:"metric"`
	Unit     string          `json:"unit"`
	Class    workloads.Class `json:"class"`
	Headline bool            `json:"headline"`
	Error    string          `json:"error,omitempty"`
	N        int             `json:"n"`
	Samples  int             `json:"samples"`
	Median   *float64        `json:"median,omitempty"`
	RunMin   *float64        `json:"run_min,omitempty"`
	RunMax   *float64        `json:"run_max,omitempty"`
	Low      *float64        `json:"ci_low,omitempty"`
	High     *float64        `json:"ci_high,omitempty"`
	Min      *float64        `json:"min,omitempty"`
	P90      *float64        `json:"p90,omitempty"`
	P99      *float64        `json:"p99,omitempty"`
	Max      *float64        `json:"max,omitempty"`
	Best     bool            `json:"best_floor"`
	Ratio    *float64        `json:"ratio,omitempty"`
	Gap      *float64        `json:"gap,omitempty"`
	Expected *float64        `json:"expected,omitempty"`
	None     string          `json:"no_prediction,omitempty"`
}

// renderJSON writes one object; each case stands on a line of its own.
func (r *Report) renderJSON(out io.Writer, _ int) error {
	w := bufio.NewWriter(out)
	put := func(v any) {
		b, err := json.Marshal(v)
		if err != nil { // unreachable: the model holds strings and finite numbers, a header was JSON before
			b, _ = json.Marshal(err.Error())
		}
		w.Write(b)
	}
	fmt.Fprintf(w, "{\"schema\": %q,\n\"errors\": ", ModelSchema)
	put(append([]string{}, r.bad...))
	w.WriteString(",\n\"runs\": [")
	for i, u := range r.runs {
		if i > 0 {
			w.WriteString(",")
		}
		w.WriteString("{\"header\": ")
		put(u.header)
		sections := u.sections()
		w.WriteString(",\n\"claim\": ")
		put(u.claimLine())
		w.WriteString(",\n\"cases\": [")
		sep := "\n"
		for _, s := range sections {
			for _, p := range s.points {
				for i, row := range p.rows {
					w.WriteString(sep)
					sep = ",\n"
					put(row.json(p, i))
				}
			}
		}
		w.WriteString("\n]}")
	}
	w.WriteString("]}\n")
	return w.Flush()
}

func (w *row) json(p *point, at int) jsonCase {
	j := jsonCase{
		ID: w.id, Label: w.label, Keys: map[string]string{}, Status: w.status, Reason: w.reasonText(), Imported: w.imported, Verified: w.checked,
		Crowded: w.oversubscribed, Warnings: w.warnings, Runs: len(w.samples), Metrics: []jsonMetric{},
	}
	for _, kv := range w.keys() {
		j.Keys[kv.Key] = kv.Value
	}
	if c := w.emptyCell(); len(p.metrics) == 0 && c.missing {
		j.Error = c.missingText(&comparison{})
	}
	for _, m := range p.metrics {
		if c := m.cells[at]; c.runs > 0 || c.missing {
			j.Metrics = append(j.Metrics, c.json(m))
		}
	}
	return j
}

func (c *cell) json(m *comparison) jsonMetric {
	j := jsonMetric{
		Metric: m.name, Unit: m.unit, Class: m.class, Headline: m.headline, N: c.runs, Samples: c.ops, Best: c.best,
	}
	if c.missing {
		j.Error = c.missingText(m)
	}
	if c.runs == 0 {
		return j
	}
	finite := func(v float64) *float64 {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil
		}
		return &v
	}
	j.Median, j.RunMin, j.RunMax = finite(c.stats.Median), finite(c.stats.Min), finite(c.stats.Max)
	if c.stats.Bounded() {
		j.Low, j.High = &c.stats.Low, &c.stats.High
	}
	j.Min, j.Max = finite(c.min), finite(c.max)
	if c.perOp {
		j.P90, j.P99 = finite(c.p90), finite(c.p99)
	}
	j.Ratio, j.Gap = finite(c.ratio()), finite(c.gap())
	expected, none := c.expectation()
	j.Expected, j.None = finite(expected), none
	return j
}
