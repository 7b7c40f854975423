package diff

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// cell makes text safe inside a Markdown table.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;", "`", "'", "*", `\*`, "_", `\_`).Replace(oneLine(s))
}

// markdownRows bounds a Markdown table; step summaries are cut at 1 MiB.
const markdownRows = 500

func (r *Result) renderMarkdown(w io.Writer, _ int) error {
	head := "no regression"
	if r.Exit() == ExitRegression {
		head = plural(len(r.Regressions()), "regression")
	} else if r.Exit() == ExitNoPair {
		head = "nothing was compared"
	}
	fmt.Fprintf(w, "## gic diff: %s\n\n", head)
	for _, l := range []string{r.Old.line(), r.New.line(), r.sharedLine(), r.acrossLine()} {
		if l != "" {
			fmt.Fprintf(w, "- %s\n", cell(l))
		}
	}
	fmt.Fprintln(w)
	rows := 0
	for _, p := range r.Pairs {
		for _, c := range p.Counters {
			if !c.Exact || !c.Changed || rows >= markdownRows {
				continue
			}
			if rows == 0 {
				fmt.Fprint(w, "| case | exact counter | old | new | verdict |\n| --- | --- | ---: | ---: | --- |\n")
			}
			rows++
			fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", cell(p.Name), cell(c.Name), Number(c.Old), Number(c.New), c.word())
		}
	}
	if rows > 0 {
		fmt.Fprintln(w)
	}
	rows = 0
	for _, p := range r.Pairs {
		for i := range p.Metrics {
			m := &p.Metrics[i]
			if (!m.Headline && !r.Options.AllMetrics) || rows >= markdownRows {
				continue
			}
			if rows == 0 {
				fmt.Fprint(w, "| case | metric | old | new | unit | delta | 95 % interval | p | verdict |\n| --- | --- | ---: | ---: | --- | ---: | --- | ---: | --- |\n")
			}
			rows++
			u := unitOf(m)
			verdict := r.word(m)
			if m.Verdict == Worse || m.Verdict == Better {
				verdict = "**" + verdict + "**"
			}
			for _, n := range p.Notes {
				verdict += fmt.Sprintf(" [%d]", n+1)
			}
			fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", cell(p.Name), cell(m.Name), value(m.Comparison.Old.Median, m.NOld, u),
				value(m.Comparison.New.Median, m.NNew, u), u.name, percent(m.Delta), m.interval(), pText(m.P), verdict)
		}
	}
	if rows > 0 {
		fmt.Fprintln(w)
	}
	if rows >= markdownRows {
		fmt.Fprintf(w, "Only the first %d rows are shown.\n\n", markdownRows)
	}
	for _, p := range r.Pairs {
		if p.Metrics == nil && !p.skipped() {
			fmt.Fprintf(w, "- **%s** %s: %s\n", p.Verdict, cell(p.Name), cell(cmp.Or(p.Reason, string(p.Old.Status))))
		}
	}
	for i, n := range r.Notes {
		fmt.Fprintf(w, "- [%d] %s\n", i+1, cell(n.line()))
	}
	for _, l := range slices.Concat(r.Hints, r.someErrors()) {
		fmt.Fprintf(w, "- %s\n", cell(l))
	}
	fmt.Fprintln(w)
	for _, l := range r.conclusion() {
		fmt.Fprintf(w, "%s\n\n", cell(l))
	}
	return nil
}

// renderGitHub prints workflow commands that annotate a run, one per regression. The step summary is the
// Markdown form, which the command line appends to $GITHUB_STEP_SUMMARY.
func (r *Result) renderGitHub(w io.Writer, _ int) error {
	escape := func(s string) string {
		return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(oneLine(s))
	}
	for _, p := range r.Regressions() {
		fmt.Fprintf(w, "::error title=gic regression (%s)::%s\n", strings.NewReplacer(",", "%2C", ":", "%3A").Replace(escape(p.kind())),
			escape(p.Name+": "+p.summary()))
	}
	if r.Exit() == ExitNoPair {
		fmt.Fprintf(w, "::error title=gic diff::no case pairs: nothing was compared\n")
	}
	for _, e := range r.someErrors() {
		fmt.Fprintf(w, "::warning title=gic record::%s\n", escape(e))
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "::notice title=gic %s::%s\n", strings.NewReplacer(",", "%2C", ":", "%3A").Replace(escape(n.Code)), escape(n.line()))
	}
	for _, l := range r.conclusion() {
		fmt.Fprintln(w, strings.ReplaceAll(oneLine(l), "::", ": :"))
	}
	return nil
}
