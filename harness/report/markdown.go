package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// renderMarkdown prints what the table format prints, as Markdown with tables (GitHub's dialect).
func (r *Report) renderMarkdown(out io.Writer, _ int) error {
	w := bufio.NewWriter(out)
	for i, u := range r.runs {
		if i > 0 {
			fmt.Fprintln(w)
		}
		u.renderMarkdown(w)
	}
	if len(r.runs) == 0 {
		fmt.Fprintln(w, "no records")
	}
	for _, b := range r.bad {
		fmt.Fprintf(w, "\n**error:** %s\n", escape(b))
	}
	return w.Flush()
}

// escape keeps text of records from being read as markup.
func escape(s string) string {
	return strings.NewReplacer(
		`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "<", "&lt;", "[", `\[`, "]", `\]`,
	).Replace(clean(s))
}

func (u *run) renderMarkdown(w io.Writer) {
	sections := u.sections()
	n := newNotes(u)
	fmt.Fprintln(w, escape(strings.Join(u.headLines(), ", ")))
	if claim := u.claimLine(); claim != "" {
		fmt.Fprintf(w, "\n> **%s**\n", escape(claim))
	}
	for _, l := range u.everyLines(n) {
		fmt.Fprintf(w, "\n%s\n", escape(l))
	}
	never := u.never(sections)
	for _, s := range sections {
		fmt.Fprintf(w, "\n### %s\n", escape(s.workload))
		if _, common, _ := strings.Cut(s.head(), ": "); common != "" {
			fmt.Fprintf(w, "\nAll rows: %s\n", escape(common))
		}
		if t := s.markdownTable(n); t != "" {
			fmt.Fprintf(w, "\n%s\n", t)
		}
		for _, l := range append(s.reach(), s.everywhereSkipped(n, never)...) {
			fmt.Fprintf(w, "\n%s\n", escape(l))
		}
	}
	if l := u.neverRan(sections, never, n); l != "" {
		fmt.Fprintf(w, "\n%s\n", escape(l))
	}
	if lines := append(n.lines(), u.lintLines()...); lines != nil {
		fmt.Fprintln(w)
		for _, l := range lines {
			fmt.Fprintf(w, "- %s\n", escape(l))
		}
	}
	fmt.Fprintln(w)
	for _, l := range u.legend() {
		fmt.Fprintf(w, "%s. ", escape(l))
	}
	fmt.Fprintf(w, "\n\n%s\n", escape(strings.Join(u.totalLines(), "; ")))
}

func (s *section) markdownTable(n *notes) string {
	t := table.NewWriter()
	header := table.Row{"point", "metric", "row", "nic/dev", "median", "range", "p99", "ratio", "gap", "n", "check"}
	if n.expects {
		header = slices.Insert(header, expectedColumn+2, any("expected"))
	}
	t.AppendHeader(header)
	var configs []table.ColumnConfig
	for i := 5; i < len(header); i++ {
		configs = append(configs, table.ColumnConfig{Number: i, Align: text.AlignRight})
	}
	t.SetColumnConfigs(configs)
	everywhere := s.skippedEverywhere()
	add := func(title, metric string, l line) {
		label := escape(l.row.label)
		if l.mark == bestMark {
			label = "**" + label + "** (best floor)"
		}
		row := table.Row{escape(title), escape(metric), label}
		for _, c := range l.cells {
			row = append(row, escape(c))
		}
		t.AppendRow(row)
	}
	for _, p := range s.points {
		shown := p.shown()
		for _, m := range shown {
			u := unitFor(m)
			for _, c := range m.cells {
				if !c.row.idle() && !c.foreign() {
					add(p.title, m.heading(u), c.line(m, u, n))
				}
			}
		}
		for _, w := range p.rows {
			if w.idle() && !everywhere[w.label+"\x00"+w.where()] || !w.idle() && len(shown) == 0 {
				add(p.title, "-", w.emptyCell().line(&comparison{}, unit{"", 1}, n))
			}
		}
	}
	if t.Length() == 0 {
		return ""
	}
	return t.RenderMarkdown()
}
