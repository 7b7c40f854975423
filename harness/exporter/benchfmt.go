package exporter

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gic/harness/record"
	"gic/workloads"
)

// writeBenchfmt writes one line per process run, so that benchstat's n is ours, with the median of what a process
// run measured as its value:
//
//	BenchmarkOp/op=put/size=8/backend=minigda/batch=16/nic=soft/engine=cpu/device=host/ranks=2 1000 2.95e-06 rtt-sec/op
//
// The name holds the case's keys in the order of record.Flatten: axes, then backend and its configuration, then nic
// and its. Configuration lines say the machine; what differs from run to run (its ID, its time) is in comments,
// since benchstat compares within equal configurations only. A percentile is a unit of its own, p99-rtt-sec/op.
func writeBenchfmt(out io.Writer, runs []Run) error {
	w := bufio.NewWriter(out)
	for _, u := range benchUnits(runs) {
		fmt.Fprintf(w, "Unit %s better=%s\n", u.name, u.better)
	}
	for _, run := range runs {
		if h := run.Header; h != nil {
			fmt.Fprintf(w, "\n# gic run %s of %s\n", comment(h.ID), h.Time.UTC().Format("2006-01-02T15:04:05Z"))
			for _, f := range h.Imported {
				fmt.Fprintf(w, "# imported from %s (%s)\n", comment(f.File), comment(f.Format))
			}
			writeBenchConfig(w, &h.Host)
		}
		left := map[record.Status]int{}
		for _, c := range run.Cases {
			if c.Status != record.OK || len(c.Metrics) == 0 {
				left[c.Status]++
				continue
			}
			n := 1
			for i := range c.Metrics {
				n = max(n, c.Metrics[i].N)
			}
			fmt.Fprintf(w, "Benchmark%s %d", BenchName(c), n)
			for i := range c.Metrics {
				m := &c.Metrics[i]
				fmt.Fprintf(w, " %s %s", float(m.P50), benchUnit(m))
				if m.N > 1 {
					fmt.Fprintf(w, " %s p99-%s", float(m.P99), benchUnit(m))
				}
			}
			w.WriteByte('\n')
		}
		for _, s := range slices.Sorted(maps.Keys(left)) {
			fmt.Fprintf(w, "# %d records that are %s are not here\n", left[s], s)
		}
	}
	return w.Flush()
}

func float(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// comment keeps a text on one line that benchfmt cannot take for anything else.
func comment(s string) string { return strings.Join(strings.Fields(s), " ") }

type unitMeta struct{ name, better string }

// benchUnits are the units of all lines, in the order of their first use.
func benchUnits(runs []Run) []unitMeta {
	var units []unitMeta
	seen := map[string]bool{}
	add := func(name string, class workloads.Class) {
		if seen[name] {
			return
		}
		seen[name] = true
		if class == workloads.Number { // no direction of it is better
			return
		}
		better := "higher"
		if class == workloads.Time {
			better = "lower"
		}
		units = append(units, unitMeta{name, better})
	}
	for _, run := range runs {
		for _, c := range run.Cases {
			for i := range c.Metrics {
				if m := &c.Metrics[i]; c.Status == record.OK {
					add(benchUnit(m), m.Class)
					if m.N > 1 {
						add("p99-"+benchUnit(m), m.Class)
					}
				}
			}
		}
	}
	return units
}

// benchUnit is the unit of a metric, its name in front: a record has several of one class.
func benchUnit(m *record.Metric) string {
	base := map[workloads.Class]string{workloads.Time: "sec/op", workloads.Rate: "msg/s", workloads.Bandwidth: "B/s", workloads.Number: "1"}[m.Class]
	return m.Name + "-" + base
}

// BenchName is the name of a case without "Benchmark". A key that is there already, of another group, is written
// with its group in front; values are percent-encoded where a name could not hold them.
func BenchName(c *record.Case) string {
	var b strings.Builder
	seen := map[string]bool{"workload": true, "backend": true, "nic": true, "device": true, "ranks": true, "seed": true}
	first := c.Workload[0]
	if first >= 'a' && first <= 'z' && escape(c.Workload) == c.Workload {
		b.WriteString(strings.ToUpper(c.Workload[:1]) + c.Workload[1:])
	} else {
		b.WriteString("Work/workload=" + escape(c.Workload))
	}
	for _, kv := range record.Flatten(c) {
		group, key, dotted := strings.Cut(kv.Key, ".")
		switch {
		case kv.Key == "workload", kv.Key == "index", kv.Key == "seed" && c.Seed == 0:
			continue
		case !dotted:
			key = kv.Key
		case seen[key]:
			key = group + "." + key
		default:
			seen[key] = true
		}
		if kv.Key == "seed" {
			continue // the same for all cases of a run
		}
		b.WriteString("/" + key + "=" + escape(kv.Value))
	}
	return b.String()
}

// escape percent-encodes what ends a name or a part of it.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || c == '/' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// writeBenchConfig says the machine, as far as results of another must not be compared.
func writeBenchConfig(w io.Writer, m *record.Machine) {
	line := func(key, value string) {
		if value = comment(value); value != "" && value != "unknown" {
			fmt.Fprintf(w, "%s: %s\n", key, value)
		}
	}
	line("goos", m.OS)
	line("host", m.Hostname)
	if model, ok := m.CPU["model"].(string); ok {
		line("cpu", model)
	}
	if len(m.GPU) > 0 {
		if g, ok := m.GPU[0].(map[string]any); ok {
			if name, ok := g["name"].(string); ok {
				line("gpu", fmt.Sprintf("%d x %s", len(m.GPU), name))
			}
		}
	}
}
