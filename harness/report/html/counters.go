package html

import (
	"fmt"
	"slices"
	"strings"

	"gic/harness/record"
	"gic/harness/report"
)

// tallies are what the NIC was asked for in the cases of a run, by the ID of the case.
type tallies struct {
	byCase map[string][]tally
	names  map[string]string // each once: decoded strings may hold their whole line
}

// tally is one counter of a case over its process runs.
type tally struct {
	name      string
	exact     bool // declared so in all of them
	low, high uint64
	runs      int
}

// messagesName heads the column of the messages that the counters are of.
const messagesName = "messages"

func (t *tallies) add(c *record.Case) {
	if len(c.Counters) == 0 || c.Imported != nil {
		return
	}
	if t.byCase == nil {
		t.byCase, t.names = map[string][]tally{}, map[string]string{}
	}
	list := t.byCase[c.ID]
	count := func(name string, value uint64, exact bool) {
		at := slices.IndexFunc(list, func(x tally) bool { return x.name == name })
		if at < 0 {
			own, ok := t.names[name]
			if !ok {
				own = strings.Clone(name)
				t.names[own] = own
			}
			list = append(list, tally{own, exact, value, value, 1})
			return
		}
		x := &list[at]
		x.exact, x.low, x.high, x.runs = x.exact && exact, min(x.low, value), max(x.high, value), x.runs+1
	}
	if c.Messages > 0 {
		count(messagesName, c.Messages, true)
	}
	for _, n := range c.Counters {
		count(n.Name, n.Value, n.Exact)
	}
	t.byCase[strings.Clone(c.ID)] = list
}

// counterTable is the counters of a workload's rows.
type counterTable struct {
	Columns []string
	Rows    []counterRow
	Zero    []string // counters that are zero in all rows
	More    int      // rows that are left out
	Varied  bool     // some cell is
}

type counterRow struct {
	Point, Label, Where string
	Cells               []counterCell
}

// counterCell is a count of one process run, or its range over all. Varied is an exact one that is not the same in
// all of them.
type counterCell struct {
	Text          string
	Exact, Varied bool
}

// maxCounterRows keeps a long sweep from filling the page; the records have them all.
const maxCounterRows = 200

// table lays out the counters of a section; nil if there are none.
func (t *tallies) table(s *report.SectionView) *counterTable {
	out := &counterTable{}
	type counted struct {
		row  counterRow
		list []tally
	}
	var rows []counted
	used := map[string]bool{}
	var names []string
	for i := range s.Points {
		p := &s.Points[i]
		for j := range p.Rows {
			list := t.byCase[p.Rows[j].ID]
			if list == nil || p.Rows[j].Imported != "" {
				continue
			}
			for _, x := range list {
				if _, ok := used[x.name]; !ok {
					names = append(names, x.name)
				}
				used[x.name] = used[x.name] || x.high > 0
			}
			if len(rows) == maxCounterRows {
				out.More++
				continue
			}
			rows = append(rows, counted{counterRow{Point: p.Title, Label: p.Rows[j].Label, Where: p.Rows[j].Where}, list})
		}
	}
	if rows == nil {
		return nil
	}
	for _, name := range names {
		if used[name] {
			out.Columns = append(out.Columns, name)
		} else {
			out.Zero = append(out.Zero, name)
		}
	}
	for _, r := range rows {
		for _, name := range out.Columns {
			cell := counterCell{Text: "-"}
			if at := slices.IndexFunc(r.list, func(x tally) bool { return x.name == name }); at >= 0 {
				cell = r.list[at].cell()
				out.Varied = out.Varied || cell.Varied
			}
			r.row.Cells = append(r.row.Cells, cell)
		}
		out.Rows = append(out.Rows, r.row)
	}
	return out
}

func (x *tally) cell() counterCell {
	c := counterCell{Text: fmt.Sprint(x.low), Exact: x.exact, Varied: x.exact && x.low != x.high}
	if x.low != x.high {
		c.Text += ".." + fmt.Sprint(x.high)
	}
	return c
}
