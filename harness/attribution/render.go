package attribution

import (
	"fmt"
	"io"
	"strings"
)

// Formats that Render knows.
func Formats() []string { return []string{"table", "brief", "json", "markdown"} }

// Render writes analyses in a format.
func Render(out io.Writer, list []*Analysis, format string, width int) error {
	switch format {
	case "table":
		return Text(out, list, width)
	case "brief":
		return Brief(out, list, width)
	case "json":
		return JSON(out, list)
	case "markdown":
		return Markdown(out, list)
	}
	return fmt.Errorf("format %q is not one of %s", format, strings.Join(Formats(), ", "))
}

// WriteTerms writes the vocabulary.
func WriteTerms(out io.Writer, format string, width int) error {
	switch format {
	case "markdown":
		_, err := io.WriteString(out, TermsMarkdown())
		return err
	case "json":
		return termsJSON(out)
	}
	for i, t := range terms {
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "%s\n", t.Name)
		for _, l := range []struct{ head, body string }{
			{"what", t.Definition}, {"measured", t.Measured}, {"floor", t.floorText()}, {"not claimed", t.NotClaimed},
		} {
			for k, line := range wrap(l.body, width-15, "", "") {
				head := ""
				if k == 0 {
					head = l.head
				}
				fmt.Fprintf(out, "  %-13s%s\n", head, line)
			}
		}
	}
	return nil
}

// floorText says which floor keys express a term.
func (t Term) floorText() string {
	var parts []string
	for _, k := range t.Floor {
		parts = append(parts, k.String())
	}
	if t.FloorNote != "" {
		parts = append(parts, t.FloorNote)
	}
	return strings.Join(parts, ", ")
}

// TermsMarkdown is the vocabulary as it stands in docs/attribution.md.
func TermsMarkdown() string {
	var b strings.Builder
	for _, t := range terms {
		fmt.Fprintf(&b, "### %s\n\n%s\n\n", t.Name, paragraph(t.Definition, "", ""))
		fmt.Fprintf(&b, "%s\n", paragraph(t.Measured, "- *Measured*: ", "  "))
		fmt.Fprintf(&b, "%s\n", paragraph(t.floorMarkdown(), "- *Floor key*: ", "  "))
		fmt.Fprintf(&b, "%s\n\n", paragraph(t.NotClaimed, "- *Not to be claimed*: ", "  "))
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// paragraph wraps a text as the pages of this project are.
func paragraph(s, first, rest string) string { return strings.Join(wrap(s, 118, first, rest), "\n") }

func (t Term) floorMarkdown() string {
	var parts []string
	for _, k := range t.Floor {
		parts = append(parts, "`"+k.String()+"`")
	}
	if t.FloorNote != "" {
		parts = append(parts, t.FloorNote)
	}
	return strings.Join(parts, ", ")
}
