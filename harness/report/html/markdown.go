package html

import (
	"fmt"
	"io"
	"strings"

	"gic/harness/report"
)

// Markdown writes the report as Markdown: the tables of package report, why plots are not there, and the method.
// Plots are files beside it, if asked for.
func (p *Page) Markdown(w io.Writer) error {
	p.build()
	fmt.Fprintf(w, "# %s\n\n", report.EscapeMarkdown(p.title()))
	if err := p.report.Render(w, "markdown", 0); err != nil {
		return fmt.Errorf("render report: %w", err)
	}
	for i := range p.view.Runs {
		d := p.facts(i)
		fmt.Fprintf(w, "\n## Method and machine of %s\n\n", report.EscapeMarkdown(d.Name))
		for _, m := range d.Methods {
			fmt.Fprintf(w, "- **%s**: %s\n", report.EscapeMarkdown(m.Workload), report.EscapeMarkdown(strings.Join(strings.Fields(m.Text), " ")))
		}
		for _, m := range d.Machines {
			fmt.Fprintf(w, "\n%s\n\n| | |\n|---|---|\n", report.EscapeMarkdown(m.Title))
			for _, kv := range m.Facts {
				fmt.Fprintf(w, "| %s | %s |\n", cellText(kv.Key), cellText(kv.Value))
			}
		}
		for _, l := range d.Libraries {
			fmt.Fprintf(w, "\nLibrary of %s: %s\n", report.EscapeMarkdown(l.Backend),
				report.EscapeMarkdown(strings.Join([]string{l.Name, l.Version, l.Path}, " ")))
		}
	}
	return nil
}

// cellText keeps text from ending a table's cell.
func cellText(s string) string { return strings.ReplaceAll(report.EscapeMarkdown(s), "|", `\|`) }
