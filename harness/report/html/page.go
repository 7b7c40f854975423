// Package html writes a report as one HTML file that needs nothing else: no network, no fonts, no scripts from
// elsewhere. Numbers are those of package report, figures those of package figures; the records travel along for
// download.
//
// Records may come from anywhere. Every text of theirs is escaped, and the page forbids itself (by its content
// security policy) all scripts but its own and all connections.
package html

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"

	"gic/harness/plot"
	"gic/harness/record"
	"gic/harness/report"
	"gic/harness/report/figures"
)

// Options are what a page says beside the records.
type Options struct {
	// Methods say, by workload, what is timed.
	Methods map[string]string
	// Gic is the version that writes the report.
	Gic string
	// Sections stand behind the runs, as they are; what they show of records is escaped already.
	Sections []Section
}

// Section is a part of the page that another package made.
type Section struct {
	ID, Title string // for the contents
	HTML      template.HTML
}

// AddSection adds a part behind the runs.
func (p *Page) AddSection(s Section) { p.options.Sections = append(p.options.Sections, s) }

// Page collects records and renders them.
type Page struct {
	options   Options
	report    *report.Report
	samples   figures.Samples
	libraries []libraries // per run
	counters  []tallies   // per run
	at        string      // file of the record being added, "" if not known
	line      int
	files     []*attachment

	view *report.View
	sets []*figures.Set
}

// New makes an empty page.
func New(o Options) *Page { return &Page{options: o, report: report.New()} }

// Add adds a record; see report.Report. It may not be called after Figures or Render.
func (p *Page) Add(rec record.Record) {
	p.report.AddAt(p.at, record.Located{Record: rec, Line: p.line})
	c, ok := rec.(*record.Case)
	if !ok {
		return
	}
	run := p.report.Runs() - 1
	p.samples.Add(run, c)
	for len(p.libraries) <= run {
		p.libraries, p.counters = append(p.libraries, libraries{}), append(p.counters, tallies{})
	}
	p.libraries[run].add(c)
	p.counters[run].add(c)
}

// AddAt is Add for a record of a file.
func (p *Page) AddAt(file string, at record.Located) {
	p.at, p.line = file, at.Line
	p.Add(at.Record)
	p.at, p.line = "", 0
}

// libraries are what the ranks of a run loaded, by backend, each once.
type libraries struct{ list []loaded }

type loaded struct {
	Backend string
	record.Library
}

func (l *libraries) add(c *record.Case) {
	for _, lib := range c.Library {
		known := false
		for _, k := range l.list {
			known = known || k.Backend == c.Backend && k.Library == lib
		}
		if !known && len(l.list) < maxList {
			l.list = append(l.list, loaded{strings.Clone(c.Backend), record.Library{
				Name: strings.Clone(lib.Name), Version: strings.Clone(lib.Version), Path: strings.Clone(lib.Path),
				SHA256: strings.Clone(lib.SHA256),
			}})
		}
	}
}

// maxList bounds lists that a sound run keeps short.
const maxList = 100

func (p *Page) build() {
	if p.view != nil {
		return
	}
	p.view = p.report.View()
	for i := range p.view.Runs {
		p.sets = append(p.sets, figures.Of(&p.view.Runs[i], &p.samples))
	}
}

// Figures are the figures of each run.
func (p *Page) Figures() []*figures.Set {
	p.build()
	return p.sets
}

//go:embed page.tmpl
var pageText string

//go:embed page.css
var styleText string

//go:embed page.js
var scriptText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// policy allows the page's own script, inline styles, and nothing from anywhere else.
func policy() string {
	sum := sha256.Sum256([]byte(scriptText))
	return "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-" +
		base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'"
}

// Render writes the page.
func (p *Page) Render(w io.Writer) error {
	p.build()
	csv := p.Attach("results.csv", "the numbers of all tables and more, one line per case and metric")
	if err := p.report.Render(csv, "csv", 0); err != nil {
		return fmt.Errorf("render report: %w", err)
	}
	data := pageData{
		Title: p.title(), Gic: p.options.Gic, Policy: policy(),
		Style: template.CSS(":root{" + plot.Theme() + "}\n@media (prefers-color-scheme: dark){@media not print{:root{" +
			plot.DarkTheme() + "}}}\n" + styleText),
		Script: template.JS(scriptText),
		Errors: p.view.Errors, Sections: p.options.Sections,
	}
	if n := len(data.Errors); n > maxList {
		data.Errors, data.MoreErrors = data.Errors[:maxList], n-maxList
	}
	for i := range p.view.Runs {
		data.Runs = append(data.Runs, p.run(i))
	}
	for i, a := range p.files {
		f, err := a.finish(i)
		if err != nil {
			return fmt.Errorf("render report: %w", err)
		}
		data.Files = append(data.Files, f)
	}
	if err := pageTemplate.Execute(w, data); err != nil {
		return fmt.Errorf("render report: %w", err)
	}
	return nil
}

func (p *Page) title() string {
	var names []string
	for _, u := range p.view.Runs {
		if u.Header != nil {
			names = append(names, report.Clean(u.Header.ID))
		}
	}
	switch n := len(names); {
	case n == 0:
		return "gic report"
	case n > 3:
		return fmt.Sprintf("gic report: %s and %d more runs", names[0], n-1)
	}
	return "gic report: " + strings.Join(names, ", ")
}
