package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"gic/harness/exporter"
	"gic/harness/trace"
	"gic/minigda/nictrace"
)

const helpTrace = `Usage: gic trace show|stats FILE... [flags]
       gic trace diff OLD NEW [flags]
       gic trace export FILE --format perfetto|json|csv [flags]

What a stack asked of the software NIC, one file per rank and run. gic run keeps them with
--nic soft:trace=on, in the run's folder or in GIC_TRACE_DIR; the record of a case names its file
and the file's hash.

  $ gic trace show job-nic0-0.trace --limit 40
  $ gic trace stats job-nic0-0.trace job-nic1-0.trace
  $ gic trace diff old-nic0-0.trace new-nic0-0.trace --ignore batches
  $ gic trace export job-nic0-0.trace --format perfetto -o trace.json

A trace also holds what was asked before and after the run (a library's own start, say); without
--all it is the run alone that counts, from one reading of the NIC's counters to the next. diff
compares QPs, the WQEs of each in order, and how many each doorbell announced; not times.

Exit status: 0; of diff 1 where they differ; 2 a file that is no whole trace, or another request
that makes no sense.
`

func (a *app) trace(args []string) error {
	subs := []struct {
		name string
		run  func(*app, []string) error
	}{{"show", (*app).traceShow}, {"stats", (*app).traceStats}, {"diff", (*app).traceDiff}, {"export", (*app).traceExport}}
	var known []string
	for _, s := range subs {
		known = append(known, s.name)
		if len(args) > 0 && args[0] == s.name {
			return s.run(a, args[1:])
		}
	}
	return a.noSub("trace", args, known)
}

type traceFlags struct {
	all    bool
	qp     uint32
	limit  uint
	ignore []string
	format oneOf
	out    string
}

func newTraceFlags(sub string) (*flags, *traceFlags) {
	f, t := newFlags("trace "+sub), &traceFlags{}
	g := f.group("Flags")
	g.BoolVar(&t.all, "all", false, "all that was traced, not the run alone")
	switch sub {
	case "show":
		g.Uint32Var(&t.qp, "qp", 0, "only the QP of this `NUMBER`")
		g.UintVar(&t.limit, "limit", 0, "stop after so many lines of a file, `N`; 0 for all")
	case "stats":
		t.format = oneOf{"table", []string{"table", "json"}}
		g.Var(&t.format, "format", "table or json")
	case "diff":
		g.StringSliceVar(&t.ignore, "ignore", nil, "what does not matter, `WORDS`: batches, addresses")
		t.format = oneOf{"text", []string{"text", "json"}}
		g.Var(&t.format, "format", "text or json")
	case "export":
		t.format = oneOf{"", []string{"perfetto", "json", "csv"}}
		g.Var(&t.format, "format", "perfetto (for ui.perfetto.dev; always all), json or csv")
		g.StringVarP(&t.out, "output", "o", "", "write to `FILE` instead of stdout, all of it or nothing")
	}
	return f, t
}

// traced is a trace file that was read.
type traced struct {
	file    string
	trace   *nictrace.Trace
	records []nictrace.Record // those that count
}

// traceArgs parses and reads the files; nil without an error: help was shown.
func (a *app) traceArgs(sub string, args []string, least, most int) (*traceFlags, []traced, error) {
	f, t := newTraceFlags(sub)
	if err := f.parse(args); err != nil {
		return nil, nil, err
	}
	if f.help {
		return nil, nil, a.subHelp(helpTrace, f)
	}
	n := f.all.NArg()
	switch {
	case least == most && n != least:
		return nil, nil, usagef("trace %s takes %s, got %d", sub, plural(least, "FILE"), n)
	case n < least:
		return nil, nil, usagef("trace %s takes at least one FILE", sub)
	}
	var list []traced
	for _, file := range f.all.Args() {
		tr, err := nictrace.ReadFile(file)
		if err != nil {
			return nil, nil, usageError{err}
		}
		x := traced{file, tr, tr.LastRun()}
		if t.all {
			x.records = tr.Records
		}
		list = append(list, x)
		if tr.Lost > 0 {
			fmt.Fprintf(a.stderr, "gic: %s: the trace was full: %d records are missing at its end\n", file, tr.Lost)
		}
	}
	return t, list, nil
}

func (a *app) traceShow(args []string) error {
	t, list, err := a.traceArgs("show", args, 1, 0)
	if err != nil || list == nil {
		return err
	}
	for i, x := range list {
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		if err := a.showTrace(x, t); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) showTrace(x traced, t *traceFlags) error {
	tr := x.trace
	if t.qp != 0 && !hasQP(tr, t.qp) {
		return usagef("%s has no QP %d; known: %s", x.file, t.qp, qpNumbers(tr))
	}
	fmt.Fprintf(a.stdout, "%s: rank %d of %d, %s, profile %s\n", x.file, tr.Rank, tr.Ranks, plural(len(tr.QPs), "QP"), tr.Profile)
	var start uint64
	shown, left := uint(0), 0
	for i := range x.records {
		r := &x.records[i]
		if i == 0 {
			start = r.Time
		}
		if t.qp != 0 && (r.QP < 0 || tr.QPs[r.QP].Number != t.qp) {
			continue
		}
		if t.limit != 0 && shown == t.limit {
			left++
			continue
		}
		shown++
		who := "NIC"
		if r.QP >= 0 {
			who = fmt.Sprintf("QP %d to rank %d", tr.QPs[r.QP].Number, tr.QPs[r.QP].Peer)
		}
		fmt.Fprintf(a.stdout, "%12.3f us  %-19s  %s\n", float64(int64(r.Time-start))/1e3, who, trace.Words(tr, r))
	}
	if left > 0 {
		fmt.Fprintf(a.stdout, "... and %d more\n", left)
	}
	return nil
}

func hasQP(tr *nictrace.Trace, number uint32) bool {
	for _, q := range tr.QPs {
		if q.Number == number {
			return true
		}
	}
	return false
}

func qpNumbers(tr *nictrace.Trace) string {
	var s []string
	for _, q := range tr.QPs {
		s = append(s, fmt.Sprint(q.Number))
	}
	return strings.Join(s, ", ")
}

func (a *app) traceStats(args []string) error {
	t, list, err := a.traceArgs("stats", args, 1, 0)
	if err != nil || list == nil {
		return err
	}
	type fileStats struct {
		File  string        `json:"file"`
		Rank  uint32        `json:"rank"`
		Total trace.Stats   `json:"total"`
		QPs   []trace.Stats `json:"qps"`
	}
	var all []fileStats
	for _, x := range list {
		qps, total := trace.Count(x.trace, x.records)
		all = append(all, fileStats{x.file, x.trace.Rank, total, qps})
	}
	if t.format.value == "json" {
		return a.printJSON(all)
	}
	for i, s := range all {
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		fmt.Fprintf(a.stdout, "%s: rank %d\n\n", s.File, s.Rank)
		a.printStats(s.QPs, s.Total)
	}
	return nil
}

func (a *app) printStats(qps []trace.Stats, total trace.Stats) {
	t := newTable(a.stdout, "", "WQEs", "signaled", "fenced", "doorbells", "CQEs", "inline", "WQE bytes", "payload")
	row := func(name string, s *trace.Stats) {
		inline := "-"
		if s.Writes > 0 {
			inline = fmt.Sprintf("%.0f%%", 100*s.InlineShare())
		}
		t.AppendRow(table.Row{name, s.WQEs, s.Signaled, s.Fenced, s.Doorbells, s.CQEs, inline, s.WQEBytes, s.Payload})
	}
	for i := range qps {
		row(fmt.Sprintf("QP %d to rank %d", qps[i].QP, qps[i].Peer), &qps[i])
	}
	row("all", &total)
	t.Render()
	if len(total.Shapes) > 0 {
		fmt.Fprintln(a.stdout)
		t = newTable(a.stdout, "WQEs", "opcode", "bytes", "payload")
		for _, s := range total.Shapes {
			place := "-"
			if s.Opcode == nictrace.OpcodeName(nictrace.RDMAWrite) {
				place = "pointer"
				if s.Inline {
					place = "inline"
				}
			}
			t.AppendRow(table.Row{s.WQEs, s.Opcode, s.Bytes, place})
		}
		t.Render()
	}
	if len(total.Batches) > 0 {
		fmt.Fprintln(a.stdout)
		t = newTable(a.stdout, "doorbells", "WQEs each", "")
		most := uint64(1)
		for _, b := range total.Batches {
			most = max(most, b.Doorbells)
		}
		for _, b := range total.Batches {
			t.AppendRow(table.Row{b.Doorbells, b.WQEs, strings.Repeat("#", int((b.Doorbells*40+most-1)/most))})
		}
		t.Render()
	}
}

func (a *app) traceDiff(args []string) error {
	t, list, err := a.traceArgs("diff", args, 2, 2)
	if err != nil || list == nil {
		return err
	}
	var ignore trace.DiffOptions
	for _, w := range t.ignore {
		switch w {
		case "batches":
			ignore.Batches = true
		case "addresses":
			ignore.Addresses = true
		default:
			return usagef("--ignore %s is not allowed; allowed: batches, addresses", w)
		}
	}
	found := trace.Diff(list[0].trace, list[1].trace, list[0].records, list[1].records, ignore)
	if t.format.value == "json" {
		if found == nil {
			found = []trace.Difference{}
		}
		if err := a.printJSON(found); err != nil {
			return err
		}
	} else if len(found) == 0 {
		fmt.Fprintln(a.stdout, "the same was asked of both NICs")
	}
	if t.format.value == "text" {
		for _, d := range found {
			fmt.Fprintf(a.stdout, "%s: %s\n", d.Where, d.What)
		}
	}
	if len(found) > 0 {
		return exitError(exitFailed)
	}
	return nil
}

func (a *app) traceExport(args []string) error {
	t, list, err := a.traceArgs("export", args, 1, 1)
	if err != nil || list == nil {
		return err
	}
	x := list[0]
	var write func(io.Writer) error
	switch t.format.value {
	case "perfetto":
		write = func(w io.Writer) error { return exporter.WriteTrace(w, x.trace) }
	case "json":
		write = func(w io.Writer) error { return trace.WriteJSON(w, x.trace, x.records) }
	case "csv":
		write = func(w io.Writer) error { return trace.WriteCSV(w, x.trace, x.records) }
	default:
		return usagef("trace export needs --format: one of perfetto, json, csv")
	}
	if t.out == "" {
		return write(a.stdout)
	}
	return writeFile(t.out, write)
}
