package cli

import (
	"errors"
	"fmt"
	"os"

	"gic/harness/record"
	"gic/harness/report"
)

type showFlags struct{ format oneOf }

func newShowFlags() (*flags, *showFlags) {
	f, s := newFlags("show"), &showFlags{format: oneOf{"table", formats}}
	f.group("Flags").Var(&s.format, "format", "how results are printed")
	return f, s
}

func (a *app) show(args []string) error {
	f, s := newShowFlags()
	if err := f.parse(args); err != nil {
		return err
	}
	if f.help {
		return a.commandHelp("show")
	}
	if f.all.NArg() == 0 {
		return usagef("show takes at least one DIR or FILE; runs are kept in results/local unless --out says otherwise")
	}
	var files []string
	for _, path := range f.all.Args() {
		list, err := record.Files(path)
		if err != nil {
			return usageError{err}
		}
		if len(list) == 0 {
			return usagef("%s holds no %s; allowed: a run's folder or file", path, record.FileName)
		}
		files = append(files, list...)
	}
	reports, err := a.readReports(files)
	if err != nil {
		return err
	}
	return report.Render(a.stdout, s.format.value, reports...)
}

// readReports reads files; lines that are no records are named on stderr and left out.
func (a *app) readReports(files []string) ([]*report.Report, error) {
	var reports []*report.Report
	for _, file := range files {
		var now *report.Report
		for rec, err := range record.ReadFile(file) {
			if err != nil {
				return nil, err
			}
			switch rec := rec.(type) {
			case *record.Header:
				now = report.New(*rec)
				reports = append(reports, now)
			case *record.Case:
				if now == nil {
					return nil, usagef("%s is no run file: its first line is not the run's header", file)
				}
				now.Add(rec)
			case *record.Bad:
				fmt.Fprintf(a.stderr, "gic: %s\n", oneLine(rec))
				var schema *record.SchemaError
				if now == nil && !errors.As(rec, &schema) {
					return nil, usagef("%s is no run file", file)
				}
			}
		}
		if now == nil {
			info, err := os.Stat(file)
			if err == nil && info.Size() == 0 {
				return nil, usagef("%s is empty", file)
			}
			return nil, usagef("%s holds no run", file)
		}
	}
	return reports, nil
}
