package attribution

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Markdown writes analyses as tables for a page or a merge request.
func Markdown(out io.Writer, list []*Analysis) error {
	w := bufio.NewWriter(out)
	row := func(cells ...string) {
		for i, c := range cells {
			cells[i] = strings.ReplaceAll(c, "|", "\\|")
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
	}
	for _, a := range list {
		fmt.Fprintf(w, "## %s\n\n", a.Title())
		if claim := a.Claim(); claim != "" {
			fmt.Fprintf(w, "**%s**\n\n", claim)
		}
		for _, j := range a.Judgements {
			markdownGap(w, row, j)
		}
		if len(a.Effects) > 0 {
			fmt.Fprintf(w, "### What one choice changes\n\n")
			row("term", "stack", "choice", "metric", "from, us", "to, us", "change, us", "")
			row("---", "---", "---", "---", "--:", "--:", "--:", "--:")
			for _, e := range a.Effects {
				from, to, share := "-", "-", ""
				if r, ok := e.Relative(); ok {
					from, to, share = number(float64(e.From.Value)/1e9), number(float64(e.To.Value)/1e9), percent(r)
				}
				row(string(e.Term), e.Stack, e.Change(), e.Metric, from, to, signedNumber(float64(e.Delta.Value)/1e9), share)
			}
			fmt.Fprintln(w)
		}
		for _, f := range a.Findings {
			fmt.Fprintf(w, "- **%s**: %s ([why](%s))\n", f.Code, f.Text, f.Anchor())
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

func markdownGap(w io.Writer, row func(...string), j *Judgement) {
	s := j.Ladder()
	p := printedOf(j, s)
	fmt.Fprintf(w, "### %s: %s, %s\n\n", j.Gap.Name(), j.what(), p.unit)
	row("", "", p.unit, "interval", "")
	row("---", "---", "--:", "---", "---")
	floor, library := mustTimes(j)
	row("floor", j.Gap.Floor.Label()+from(j.Gap.Floor), p.print(p.floor), p.interval(floor, p.floor), "")
	if s != nil {
		for i, part := range s.Parts {
			row(joinNames(part.Terms), part.What, p.signed(p.parts[i]), p.interval(part.Quantity, p.parts[i]), p.spread(part.Spread))
		}
		row("residual", "not explained", p.signed(p.residual), p.interval(s.Residual, p.residual), p.spread(s.ResidualSpread))
	}
	row("library", j.Gap.Row.Label()+from(j.Gap.Row), p.print(p.library), p.interval(library, p.library), "")
	fmt.Fprintf(w, "\nVerdict: %s.\n\n", j.Sentence())
	for _, r := range j.Gap.Readings() {
		fmt.Fprintf(w, "- The residual, by the sources: *%s*: %s (%s)\n", r.Term, r.What, strings.Join(r.Source, ", "))
	}
	for _, a := range j.Accounts {
		if a.Split == nil {
			continue
		}
		for _, n := range a.Split.Notes {
			fmt.Fprintf(w, "- **%s**: %s ([why](%s#%s))\n", n.Code, n.Text, Page, n.Anchor)
		}
	}
	fmt.Fprintln(w)
}
