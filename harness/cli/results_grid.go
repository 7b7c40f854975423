package cli

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"gic/harness/diff"
	"gic/harness/record"
	"gic/harness/report"
	"gic/harness/results"
	"gic/workloads"
)

// printGrid prints one metric: row keys, folded into one column where they do not fit, then a column per value of the
// column keys.
func (a *app) printGrid(g *results.Grid) (folded bool) {
	low := math.Inf(1)
	for _, line := range g.Cells {
		for _, c := range line {
			if c != nil && c.Median > 0 {
				low = min(low, c.Median)
			}
		}
	}
	unit, scale := humanUnit(g.Class, g.Unit, low)
	alone := ""
	if g.Alone {
		alone = " (GPU alone)"
	}
	if unit == "1" {
		unit = ""
	}
	fmt.Fprintf(a.stdout, "%s%s: median over process runs, ± half of the 95 %% interval, process runs\n", report.WithUnit(g.Metric, unit), alone)
	label := 0
	g, label = fold(g, scale)
	header := make([]any, 0, len(g.Rows)+len(g.ColValues))
	for _, k := range g.Rows {
		header = append(header, k)
	}
	for _, v := range g.ColValues {
		header = append(header, cmp.Or(strings.TrimSpace(strings.Join(v, " ")), noKey(len(v))))
	}
	t := newTable(a.stdout, header...)
	var configs []table.ColumnConfig
	for i := range g.ColValues {
		configs = append(configs, table.ColumnConfig{Number: len(g.Rows) + i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight, AlignFooter: text.AlignRight})
	}
	if label > 0 {
		configs = append(configs, table.ColumnConfig{Number: 1, WidthMax: label, WidthMaxEnforcer: text.WrapSoft})
	}
	t.SetColumnConfigs(configs)
	for i, line := range g.Cells {
		row := table.Row{}
		for _, v := range g.RowValues[i] {
			row = append(row, v)
		}
		for _, c := range line {
			row = append(row, cellText(c, scale))
		}
		t.AppendRow(row)
	}
	if len(g.Cells) > 1 && slices.ContainsFunc(g.Geomean, func(v float64) bool { return !math.IsNaN(v) }) {
		row := make(table.Row, max(len(g.Rows), 1))
		for i := range row {
			row[i] = ""
		}
		row[0] = "geomean"
		for i, v := range g.Geomean {
			if len(g.Rows) == 0 && i == 0 {
				continue
			}
			if math.IsNaN(v) {
				row = append(row, "-")
			} else {
				row = append(row, diff.Number(v/scale))
			}
		}
		t.AppendRow(row)
	}
	t.Render()
	return label > 0
}

// fold puts the keys of the rows of a table that would not fit into one column of the width that is left; 0 where it
// fits as it is.
func fold(g *results.Grid, scale float64) (*results.Grid, int) {
	keys, values := 0, 0
	for i, k := range g.Rows {
		w := utf8.RuneCountInString(k)
		for _, row := range g.RowValues {
			w = max(w, utf8.RuneCountInString(row[i]))
		}
		keys += w + 2
	}
	for j, v := range g.ColValues {
		w := utf8.RuneCountInString(cmp.Or(strings.TrimSpace(strings.Join(v, " ")), noKey(len(v))))
		for i := range g.Cells {
			w = max(w, utf8.RuneCountInString(cellText(g.Cells[i][j], scale)))
		}
		values += w + 2
	}
	if len(g.Rows) < 2 || keys+values <= width {
		return g, 0
	}
	folded := *g
	folded.Rows, folded.RowValues = []string{"row"}, nil
	for _, row := range g.RowValues {
		var parts []string
		for i, v := range row {
			if v != "" {
				parts = append(parts, strings.TrimPrefix(strings.TrimPrefix(g.Rows[i], "workload."), "backend.")+"="+v) // as tables do
			}
		}
		folded.RowValues = append(folded.RowValues, []string{strings.Join(parts, " ")})
	}
	return &folded, max(24, width-values-2)
}

// noKey heads a column of records that do not have its keys; without keys there is but one column.
func noKey(keys int) string {
	if keys == 0 {
		return ""
	}
	return "(none)"
}

func cellText(c *results.Cell, scale float64) string {
	if c == nil {
		return "-"
	}
	s := diff.Number(c.Median / scale)
	if c.Low != nil && c.Median > 0 {
		s += fmt.Sprintf(" ±%.0f%%", 100*max(*c.High-c.Median, c.Median-*c.Low)/c.Median)
	}
	s += fmt.Sprintf(" n=%d", c.N)
	if c.Status != record.OK {
		s += " " + string(c.Status)
	}
	return s
}

// humanUnit chooses a unit in which the smallest value is at least 1.
func humanUnit(class workloads.Class, unit string, low float64) (string, float64) {
	var units []struct {
		name  string
		scale float64
	}
	add := func(name string, scale float64) {
		units = append(units, struct {
			name  string
			scale float64
		}{name, scale})
	}
	switch class {
	case workloads.Time:
		add("s", 1)
		add("ms", 1e-3)
		add("us", 1e-6)
		add("ns", 1e-9)
	case workloads.Rate:
		add("M msg/s", 1e6)
		add("k msg/s", 1e3)
		add("msg/s", 1)
	case workloads.Bandwidth:
		add("GB/s", 1e9)
		add("MB/s", 1e6)
		add("kB/s", 1e3)
		add("B/s", 1)
	default:
		return unit, 1
	}
	for _, u := range units {
		if low >= u.scale && !math.IsInf(low, 1) {
			return u.name, u.scale
		}
	}
	last := units[len(units)-1]
	return last.name, last.scale
}
