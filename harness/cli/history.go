package cli

import (
	"fmt"
	"math"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"gic/harness/diff"
	"gic/harness/results"
	"gic/workloads"
)

const helpHistory = `Usage: gic history FILTER [DIR...] [flags]

Follows cases over the runs below DIR ($GIC_RESULTS or results/local without one), oldest first: per
run the median over its process runs. Change points are marked: the best split of the series, by
ranks, if fewer than alpha of 1999 shuffled series have one as clear; then within both parts. Fewer
than 10 runs cannot show one at the default. An exact counter is marked wherever it is not what it
was before.

  $ gic history 'workload:op workload.op:put workload.size:8 backend:minigda'
  $ gic history 'workload:rate backend:minigda' results/nightly --metric message_rate
  $ gic history 'workload:goodput backend:minigda' results/nightly --plots plots
`

type historyFlags struct {
	metrics words
	alpha   fraction
	seed    uint64
	json    bool
	plots   string
}

func newHistoryFlags() (*flags, *historyFlags) {
	f, h := newFlags("history"), &historyFlags{alpha: fraction{0.01}, seed: 1}
	g := f.group("Flags")
	g.Var(&h.metrics, "metric", "follow metric or counter `NAME` (doorbells_per_message); may be repeated")
	g.Var(&h.alpha, "alpha", "chance of a false change point, `P`, per search")
	g.Uint64Var(&h.seed, "seed", 1, "seed of the shuffles, `N`")
	g.BoolVar(&h.json, "json", false, "print JSON")
	g.StringVar(&h.plots, "plots", "", "`DIR` that gets every series as a plot, SVG and PNG")
	return f, h
}

func (a *app) history(args []string) error {
	f, h := newHistoryFlags()
	if err := f.parse(args); err != nil {
		return err
	}
	if f.help {
		return a.commandHelp("history")
	}
	if f.all.NArg() == 0 {
		return usagef("history takes a FILTER first, like 'workload:op backend:minigda', or '*' for everything")
	}
	s := storeFlags{filter: f.all.Arg(0)}
	files, filter, err := s.find(f.all.Args()[1:])
	if err != nil {
		return err
	}
	series, bad, err := results.History(files, results.HistoryOptions{Filter: filter, Metrics: h.metrics, Alpha: h.alpha.value, Seed: h.seed})
	if err != nil {
		return err
	}
	if err := checkFilter(filter); err != nil {
		return err
	}
	if h.plots != "" {
		if err := plotHistory(series, h.plots); err != nil {
			return err
		}
	}
	if h.json {
		if series == nil {
			series = []*results.Series{}
		}
		return a.printJSON(series)
	}
	if len(series) == 0 {
		return usagef("no record that is ok matches %q in %s", s.filter, plural(len(files), "run file"))
	}
	for i, x := range series {
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		a.printSeries(x)
	}
	for _, b := range bad {
		fmt.Fprintf(a.stdout, "error: %s\n", indent(wrap(b, width-7), 7))
	}
	return nil
}

func (a *app) printSeries(s *results.Series) {
	low := math.Inf(1)
	for _, p := range s.Points {
		if p.Median > 0 {
			low = min(low, p.Median)
		}
	}
	unit, scale := humanUnit(s.Class, s.Unit, low)
	title := s.Name + ": " + s.Metric
	if unit != "1" {
		title += ", " + unit
	}
	var nic, device, workload string
	for _, kv := range s.Keys {
		switch kv.Key {
		case "nic":
			nic = kv.Value
		case "device":
			device = kv.Value
		case "workload":
			workload = kv.Value
		}
	}
	title += " (" + nic + "/" + device
	if nic == "soft" && device == "cuda" && workloads.OnDevice(workload, s.Metric) {
		title += ", GPU alone"
	}
	title += ")"
	fmt.Fprintf(a.stdout, "%s\n", indent(wrap(title, width-4), 4))
	t := newTable(a.stdout, "run", "time", "gic", "median", "interval", "n", "")
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 3, WidthMax: 20, WidthMaxEnforcer: text.WrapText},
		{Number: 4, Align: text.AlignRight, AlignHeader: text.AlignRight}, {Number: 6, Align: text.AlignRight, AlignHeader: text.AlignRight}})
	for i, p := range s.Points {
		interval := "-"
		if p.Low != nil {
			interval = diff.Number(*p.Low/scale) + ".." + diff.Number(*p.High/scale)
		}
		mark := ""
		if c, ok := s.Change(i); ok {
			mark = "<- change"
			if d := results.Shift(c); !math.IsNaN(d) {
				mark += fmt.Sprintf(" %+.1f %%", 100*d)
			}
			if c.P > 0 {
				mark += fmt.Sprintf(" p=%.4f", c.P)
			}
		}
		t.AppendRow(table.Row{p.Run, p.Time.UTC().Format("2006-01-02 15:04"), strings.TrimSpace(p.Gic), diff.Number(p.Median / scale), interval, p.N, mark})
	}
	t.Render()
}
