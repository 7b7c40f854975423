package cli

import (
	"runtime/debug"

	"gic/harness/record"
	"gic/harness/report"
)

type showFlags struct{ format oneOf }

func newShowFlags() (*flags, *showFlags) {
	f, s := newFlags("show"), &showFlags{format: oneOf{"table", report.Formats()}}
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
	// The records are read once and stay: collecting less often saves a third of the time of a large run.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	rep := report.New()
	for _, file := range files {
		if err := readRun(rep, file); err != nil {
			return err
		}
	}
	return rep.Render(a.stdout, s.format.value, width)
}

// readRun adds a file to a report, which names lines that are no records; a file that holds no run at all is not
// what the user meant.
func readRun(rep *report.Report, file string) error {
	header := false
	for rec, err := range record.ReadFile(file) {
		if err != nil {
			return err
		}
		switch rec := rec.(type) {
		case *record.Header:
			header = true
		case *record.Case:
			if !header {
				return usagef("%s is no run file: it does not begin with a header", file)
			}
		case *record.Bad:
			if !header {
				return usagef("%s is no run file: %s", file, oneLine(rec.Err))
			}
		}
		rep.Add(rec)
	}
	if !header {
		return usagef("%s is no run file: it is empty", file)
	}
	return nil
}
