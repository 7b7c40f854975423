package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"

	"gic/harness/plot"
	"gic/harness/record"
	"gic/harness/report/figures"
	"gic/harness/report/html"
	"gic/harness/results"
)

const helpReport = `Usage: gic report DIR|FILE... [-o FILE] [flags]

Writes recorded results as one HTML file that needs nothing else: summary, tables with the numbers
of gic show, plots, skipped cells, method and machine, and the records themselves for download.

  $ gic report results/local
  $ gic report results/local/cx7 -o cx7.html --plots plots
  $ gic report results/local/cx7/run.jsonl --format markdown

A plot that the data do not support is not drawn, and the report says why. Without -o, HTML goes to
report.html and Markdown to the terminal; -o - is the terminal for both.
`

type reportFlags struct {
	format   oneOf
	output   string
	plots    string
	platform string
}

func newReportFlags() (*flags, *reportFlags) {
	f, r := newFlags("report"), &reportFlags{format: oneOf{"html", []string{"html", "markdown"}}}
	g := f.group("Flags")
	g.StringVarP(&r.output, "output", "o", "", "`FILE` to write, - for the terminal")
	g.Var(&r.format, "format", "html or markdown")
	g.StringVar(&r.plots, "plots", "", "`DIR` that also gets every plot, as SVG and PNG")
	g.StringVar(&r.platform, "platform", "", "with a column of what gic predict expects of platform `NAME|FILE`")
	return f, r
}

func (a *app) report(args []string) error {
	f, r := newReportFlags()
	if err := f.parse(args); err != nil {
		return err
	}
	if f.help {
		return a.commandHelp("report")
	}
	if f.all.NArg() == 0 {
		return usagef("report takes at least one DIR or FILE; runs are kept in $GIC_RESULTS or results/local unless --out says otherwise")
	}
	files, err := recordFiles(f.all.Args())
	if err != nil {
		return err
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // as in show
	page := html.New(html.Options{Methods: methods(), Gic: Version()})
	if r.platform != "" {
		if err := expect(page, r.platform); err != nil {
			return err
		}
	}
	for i, file := range files {
		if err := attachRun(page, file, attachmentName(file, i, len(files))); err != nil {
			return err
		}
	}
	if err := attributionSection(page, files); err != nil {
		return err
	}
	render := page.Render
	if r.format.value == "markdown" {
		render = page.Markdown
	}
	if r.plots != "" {
		if err := writePlots(page, r.plots); err != nil {
			return err
		}
	}
	output := r.output
	if output == "" {
		output = "-"
		if r.format.value == "html" {
			output = "report.html"
		}
	}
	if output == "-" {
		return render(a.stdout)
	}
	if err := writeFile(output, render); err != nil {
		return err
	}
	fmt.Fprintln(a.stdout, output)
	return nil
}

// recordFiles are the run files of paths, at least one of each.
func recordFiles(paths []string) ([]string, error) {
	var files []string
	for _, path := range paths {
		list, err := record.Files(path)
		if err != nil {
			return nil, usageError{err}
		}
		if len(list) == 0 {
			return nil, usagef("%s holds no %s; allowed: a run's folder or file", path, record.FileName)
		}
		files = append(files, list...)
	}
	return files, nil
}

// methods are what each workload says of its timing.
func methods() map[string]string {
	m := map[string]string{}
	for _, w := range workloadList() {
		m[w.Name()] = w.Method()
	}
	return m
}

// attachmentName names a run file for download; the folder tells runs apart.
func attachmentName(file string, i, of int) string {
	name := filepath.Base(file)
	if of == 1 {
		return name
	}
	return fmt.Sprintf("%d-%s-%s", i+1, filepath.Base(filepath.Dir(file)), name)
}

// attachRun reads a run file into a page and puts it into the page as it is.
func attachRun(page *html.Page, file, name string) error {
	f, err := os.Open(file)
	if err != nil {
		return usageError{fmt.Errorf("read records: %w", err)}
	}
	defer f.Close()
	whole := io.TeeReader(f, page.Attach(name, "the records of "+file+", as they are"))
	return addRun(page.AddAt, file, record.Lines(file, whole))
}

// writePlots writes every plot of a page into a folder.
func writePlots(page *html.Page, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write plots: %w", err)
	}
	sets := page.Figures()
	for i, set := range sets {
		prefix := ""
		if len(sets) > 1 {
			prefix = fmt.Sprintf("run-%d-", i+1)
		}
		for _, fig := range set.Figures {
			if err := writePlot(fig.Plot, filepath.Join(dir, prefix+fig.ID)); err != nil {
				return err
			}
		}
	}
	return nil
}

// writePlot writes a plot twice.
func writePlot(f plot.Figure, path string) error {
	if err := writeFile(path+".svg", func(w io.Writer) error { return plot.SVG(w, f) }); err != nil {
		return err
	}
	return writeFile(path+".png", func(w io.Writer) error { return plot.PNG(w, f) })
}

// plotHistory writes every series as a plot into a folder.
func plotHistory(series []*results.Series, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write plots: %w", err)
	}
	var set figures.Set
	for _, s := range series {
		set.Add(figures.History(s))
	}
	for _, fig := range set.Figures {
		if err := writePlot(fig.Plot, filepath.Join(dir, fig.ID)); err != nil {
			return err
		}
	}
	return nil
}
