package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"gic/harness/plan"
	"gic/workloads"
)

// width is the line length that everything printed keeps to.
const width = 100

// newTable gives the plain table of all listings: no frame, a rule under the header.
func newTable(w io.Writer, header ...any) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	style := table.StyleDefault
	style.Options = table.Options{SeparateHeader: len(header) > 0}
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Box.MiddleHorizontal = "-"
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	if len(header) > 0 {
		t.AppendHeader(table.Row(header))
	}
	t.SuppressTrailingSpaces()
	return t
}

// wrap breaks the lines of a text between words.
func wrap(s string, width int) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		parts := strings.Split(text.WrapSoft(l, width), "\n")
		for j := range parts {
			parts[j] = strings.TrimSpace(parts[j])
		}
		lines[i] = strings.Join(parts, "\n")
	}
	return strings.Join(lines, "\n")
}

// indent puts a margin before every line but the first.
func indent(s string, n int) string { return strings.ReplaceAll(s, "\n", "\n"+strings.Repeat(" ", n)) }

// planRow sums up what the plan does for one workload on one backend.
type planRow struct {
	workload, backend, skip string
	configs                 []string
	records, starts         int
}

// planRows groups the outers of a plan: by workload, those that run first.
func planRows(p *plan.Plan) []*planRow {
	var rows []*planRow
	for i := range p.Outers {
		o := &p.Outers[i]
		at := slices.IndexFunc(rows, func(x *planRow) bool {
			return x.workload == o.Workload && x.backend == o.Backend && x.skip == o.Skip
		})
		if at < 0 {
			at = len(rows)
			rows = append(rows, &planRow{workload: o.Workload, backend: o.Backend, skip: o.Skip})
		}
		x := rows[at]
		if c := pairs(o.Config); !slices.Contains(x.configs, c) {
			x.configs = append(x.configs, c)
		}
		x.records += len(o.Points)
		if o.Skip == "" {
			x.starts += p.Processes(o.Ranks)
		}
	}
	known := func(name string) (int, int) {
		w := slices.IndexFunc(workloadList(), func(w workloads.Workload) bool { return w.Name() == name })
		b := slices.IndexFunc(builtins, func(b builtin) bool { return b.name == name })
		return w, b
	}
	slices.SortStableFunc(rows, func(a, b *planRow) int {
		aw, _ := known(a.workload)
		bw, _ := known(b.workload)
		_, ab := known(a.backend)
		_, bb := known(b.backend)
		if aw != bw {
			return aw - bw
		}
		if (a.skip == "") != (b.skip == "") {
			return strings.Compare(a.skip, b.skip)
		}
		return ab - bb
	})
	return rows
}

// dryRun prints the plan.
func dryRun(w io.Writer, p *plan.Plan) {
	name := "suite " + p.Suite
	if p.Suite == "" {
		name = "from the command line"
	}
	if len(p.Outers) == 0 {
		fmt.Fprintf(w, "Plan %s: this part of it is empty.\n", name)
		return
	}
	var nics []string
	for i := range p.Outers {
		if n := p.Outers[i].NIC.String(); !slices.Contains(nics, n) {
			nics = append(nics, n)
		}
	}
	slices.Sort(nics)
	ranks := fmt.Sprintf("%d ranks", p.Ranks)
	if p.InProcess > 1 {
		ranks += fmt.Sprintf(" (%d in a process)", min(p.InProcess, p.Ranks))
	}
	fmt.Fprintf(w, "Plan %s: %s, %d process runs of every case, device=%s, nic=%s, seed=%d\n\n",
		name, ranks, p.Repeat, p.Outers[0].Device, strings.Join(nics, " / "), p.Seed)
	t := newTable(w, "workload", "backend", "configs", "records", "processes", "")
	t.SetColumnConfigs([]table.ColumnConfig{
		{Number: 3, Align: text.AlignRight, AlignHeader: text.AlignRight},
		{Number: 4, Align: text.AlignRight, AlignHeader: text.AlignRight},
		{Number: 5, Align: text.AlignRight, AlignHeader: text.AlignRight},
	})
	skipped := 0
	var reasons []string
	for _, x := range planRows(p) {
		note := ""
		if x.skip != "" {
			at := slices.Index(reasons, x.skip)
			if at < 0 {
				at = len(reasons)
				reasons = append(reasons, x.skip)
			}
			note = fmt.Sprintf("skipped [%d]", at+1)
			skipped += x.records
		}
		t.AppendRow(table.Row{x.workload, x.backend, len(x.configs), x.records, x.starts, note})
	}
	t.Render()
	for i, reason := range reasons {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "[%d] %s\n", i+1, indent(wrap(reason, width-4), 4))
	}
	fmt.Fprintf(w, "\n%d records to measure in %d rank processes, %d skipped: run.jsonl gets %d lines. Nothing was started.\n",
		p.Records()-skipped, p.Starts(), skipped, p.Records()+1)
}
