package check

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"gic/harness/attribution/oracle"
)

// Render prints the table of errors within width: the sums, the misses with their causes, every held-out row, and
// why the others have no prediction.
func (t *Table) Render(out io.Writer, width int) error {
	w := bufio.NewWriter(out)
	line := func(s string) { fmt.Fprintln(w, wrap(s, width)) }
	counted := t.Constants + t.HeldOut + t.Outside + t.ReferenceHeldOut + t.Reference
	line(fmt.Sprintf("%d figures, %d of them second prints. %d give constants. Of the others that gic has a workload for, %d are held out and %d are outside the constants' validity; of experiments that it has none for (reference rows), %d are held out and %d have no prediction.",
		len(t.Outcomes), len(t.Outcomes)-counted, t.Constants, t.HeldOut, t.Outside, t.ReferenceHeldOut, t.Reference))
	line(fmt.Sprintf("all held out: median error %.1f %%, largest %.1f %% but for %d misses of more than %.0f %%", 100*t.Median, 100*t.Largest, len(t.Misses), 100*MissAbove))
	for _, o := range t.Misses {
		cause := o.Cause
		if cause == "" {
			cause = "no cause is known"
		}
		line(fmt.Sprintf("  miss %+.1f %%: %s: %s", 100*o.Error, o.ID, cause))
	}
	fmt.Fprintln(w)
	t.heldOut(w, width)
	fmt.Fprintln(w)
	line("No prediction, by reason:")
	t.reasons(w, width)
	return w.Flush()
}

// wrap breaks a text between words.
func wrap(s string, width int) string {
	lines := strings.Split(text.WrapSoft(s, width), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n")
}

func newTable(w io.Writer, header ...any) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	style := table.StyleDefault
	style.Options = table.Options{SeparateHeader: true}
	style.Box.PaddingLeft, style.Box.PaddingRight, style.Box.MiddleHorizontal = "", "  ", "-"
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	t.AppendHeader(table.Row(header))
	t.SuppressTrailingSpaces()
	return t
}

func (t *Table) heldOut(w io.Writer, width int) {
	tab := newTable(w, "held-out figure", "quantity", "paper", "predicted", "error")
	right := func(n int) table.ColumnConfig {
		return table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight}
	}
	tab.SetColumnConfigs([]table.ColumnConfig{{Number: 1, WidthMax: width - 62, WidthMaxEnforcer: text.WrapSoft}, right(3), right(4), right(5)})
	for _, o := range t.Outcomes {
		if o.Status != HeldOut || o.Same != "" {
			continue
		}
		mark := ""
		if math.Abs(o.Error) > MissAbove {
			mark = " miss"
		}
		id := strings.TrimSuffix(o.ID, ", "+o.Quantity)
		unit := o.Prediction.Unit
		tab.AppendRow(table.Row{id, o.Quantity, oracle.Human(o.Row.Base(), unit), oracle.Human(o.Prediction.Value, unit), fmt.Sprintf("%+.1f %%%s", 100*o.Error, mark)})
	}
	tab.Render()
}

// noModel stands for all quantities that the oracle has no model of.
const noModel = "the oracle has no model of"

// reasons lists why rows have no prediction, each reason once with the number of its rows.
func (t *Table) reasons(w io.Writer, width int) {
	count := map[string]int{}
	var order []string
	unknown := map[Status][]string{} // quantities without a model
	for _, o := range t.Outcomes {
		if o.Reason == "" || o.Same != "" {
			continue
		}
		reason := o.Reason
		if o.Prediction != nil && o.Prediction.Unit == "" {
			reason = noModel
			if !slices.Contains(unknown[o.Status], o.Quantity) {
				unknown[o.Status] = append(unknown[o.Status], o.Quantity)
			}
		}
		key := string(o.Status) + "\x00" + reason
		if count[key]++; count[key] == 1 {
			order = append(order, key)
		}
	}
	slices.SortStableFunc(order, func(a, b string) int { return count[b] - count[a] })
	tab := newTable(w, "rows", "status", "reason")
	tab.SetColumnConfigs([]table.ColumnConfig{{Number: 1, Align: text.AlignRight}, {}, {Number: 3, WidthMax: width - 19, WidthMaxEnforcer: text.WrapSoft}})
	for _, key := range order {
		status, reason, _ := strings.Cut(key, "\x00")
		if reason == noModel {
			reason += " " + strings.Join(unknown[Status(status)], ", ")
		}
		tab.AppendRow(table.Row{count[key], status, reason})
	}
	tab.Render()
}
