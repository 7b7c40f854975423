package exporter

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"gic/harness/record"
	"gic/harness/stats"
	"gic/workloads"
)

// family is one metric of Prometheus: its lines stand together, under one HELP and TYPE.
type family struct {
	name, help string
	lines      strings.Builder
}

// writePrometheus writes gauges in base units for a textfile collector: the median over process runs of what each
// measured, and the largest and smallest process run. Keys of a case are labels: axes as axis_KEY, those of the
// backend as backend_KEY, those of the NIC as nic_KEY.
func writePrometheus(out io.Writer, runs []Run) error {
	p := &prometheus{
		byClass: map[workloads.Class]*family{
			workloads.Time:      {name: "gic_time_seconds", help: "Time of a metric, over process runs."},
			workloads.Rate:      {name: "gic_rate_messages_per_second", help: "Message rate, over process runs."},
			workloads.Bandwidth: {name: "gic_bandwidth_bytes_per_second", help: "Bandwidth, over process runs."},
			workloads.Number:    {name: "gic_number", help: "Share or count of a metric, over process runs."},
		},
		runs:   &family{name: "gic_case_process_runs", help: "Process runs of a case by status."},
		exact:  &family{name: "gic_counter", help: "NIC counter of the last process run; exact ones depend on the case alone."},
		info:   &family{name: "gic_run_info", help: "A run that these numbers are from."},
		when:   &family{name: "gic_run_start_timestamp_seconds", help: "When the run was started."},
		labels: map[string]string{},
	}
	for i := range runs {
		if err := p.run(&runs[i]); err != nil {
			return err
		}
	}
	w := bufio.NewWriter(out)
	for _, f := range []*family{
		p.byClass[workloads.Time], p.byClass[workloads.Rate], p.byClass[workloads.Bandwidth], p.byClass[workloads.Number], p.runs, p.exact, p.info, p.when,
	} {
		if f.lines.Len() > 0 {
			fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s gauge\n%s", f.name, f.help, f.name, f.lines.String())
		}
	}
	return w.Flush()
}

type prometheus struct {
	byClass                 map[workloads.Class]*family
	runs, exact, info, when *family
	labels                  map[string]string // label to the key it stands for
}

// caseRuns are the process runs of one case.
type caseRuns struct {
	first  *record.Case
	labels string
	counts map[record.Status]int
	names  []string
	unit   map[string]workloads.Class
	values map[string][]float64
	last   *record.Case
}

func (p *prometheus) run(run *Run) error {
	id := ""
	if h := run.Header; h != nil {
		id = h.ID
		fmt.Fprintf(&p.info.lines, "gic_run_info{%s,%s,%s,%s} 1\n",
			label("run", h.ID), label("gic", h.Gic), label("suite", h.Suite), label("host", h.Host.Hostname))
		fmt.Fprintf(&p.when.lines, "gic_run_start_timestamp_seconds{%s} %s\n", label("run", h.ID), float(float64(h.Time.UnixMilli())/1e3))
	}
	byID := map[string]*caseRuns{}
	var order []*caseRuns
	for _, c := range run.Cases {
		key := c.ID
		if c.Imported != nil {
			key += c.Imported.File
		}
		r := byID[key]
		if r == nil {
			labels, err := p.caseLabels(c, id)
			if err != nil {
				return err
			}
			r = &caseRuns{
				first: c, labels: labels, counts: map[record.Status]int{}, unit: map[string]workloads.Class{},
				values: map[string][]float64{},
			}
			byID[key] = r
			order = append(order, r)
		}
		r.counts[c.Status]++
		if c.Status != record.OK {
			continue
		}
		r.last = c
		for i := range c.Metrics {
			m := &c.Metrics[i]
			if r.values[m.Name] == nil {
				r.names = append(r.names, m.Name)
				r.unit[m.Name] = m.Class
			}
			r.values[m.Name] = append(r.values[m.Name], m.P50)
		}
	}
	for _, r := range order {
		p.caseLines(r)
	}
	return nil
}

func (p *prometheus) caseLines(r *caseRuns) {
	for _, name := range r.names {
		s, err := stats.Summarize(r.values[name])
		if err != nil {
			continue // records hold finite numbers
		}
		f := p.byClass[r.unit[name]]
		for _, stat := range []struct {
			name  string
			value float64
		}{{"median", s.Median}, {"min", s.Min}, {"max", s.Max}} {
			fmt.Fprintf(&f.lines, "%s{%s,%s,%s} %s\n", f.name, r.labels, label("metric", name), label("stat", stat.name), float(stat.value))
		}
	}
	for _, status := range []record.Status{record.OK, record.Skipped, record.Failed, record.Timeout, record.Unverified, record.Unsafe} {
		if n := r.counts[status]; n > 0 {
			fmt.Fprintf(&p.runs.lines, "%s{%s,%s} %d\n", p.runs.name, r.labels, label("status", string(status)), n)
		}
	}
	if r.last == nil {
		return
	}
	for _, c := range r.last.Counters {
		fmt.Fprintf(&p.exact.lines, "%s{%s,%s,%s,%s} %d\n", p.exact.name, r.labels, label("counter", c.Name), label("unit", c.Unit),
			label("exact", fmt.Sprint(c.Exact)), c.Value)
	}
}

// caseLabels writes the keys of a case as labels. Two keys that become one label are an error, not one lost key.
func (p *prometheus) caseLabels(c *record.Case, run string) (string, error) {
	var parts []string
	for _, kv := range record.Flatten(c) {
		if kv.Key == "index" {
			continue
		}
		name := kv.Key
		if axis, ok := strings.CutPrefix(name, "workload."); ok {
			name = "axis." + axis
		}
		name = strings.ReplaceAll(name, ".", "_")
		if have, ok := p.labels[name]; ok && have != kv.Key {
			return "", fmt.Errorf("keys %s and %s are one label of Prometheus, %s", have, kv.Key, name)
		}
		p.labels[name] = kv.Key
		parts = append(parts, label(name, kv.Value))
	}
	imported := ""
	if c.Imported != nil {
		imported = c.Imported.File
	}
	return strings.Join(append(parts, label("imported", imported), label("run", run)), ","), nil
}

var labelEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// label writes a label; what is no UTF-8 becomes the replacement character, which the format demands.
func label(name, value string) string {
	return name + `="` + labelEscaper.Replace(strings.ToValidUTF8(value, "\ufffd")) + `"`
}
