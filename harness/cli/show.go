package cli

import (
	"iter"
	"runtime/debug"

	"gic/harness/record"
	"gic/harness/report"
)

type showFlags struct {
	format   oneOf
	platform string
	all      bool
}

func newShowFlags() (*flags, *showFlags) {
	f, s := newFlags("show"), &showFlags{format: oneOf{"table", report.Formats()}}
	g := f.group("Flags")
	g.Var(&s.format, "format", "how results are printed")
	g.BoolVar(&s.all, "all", false, "list each skipped row in a table, instead of naming them once")
	g.StringVar(&s.platform, "platform", "", "with a column of what gic predict expects of platform `NAME|FILE`")
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
		return usagef("show takes at least one DIR or FILE; runs are kept in $GIC_RESULTS or results/local unless --out says otherwise")
	}
	files, err := recordFiles(f.all.Args())
	if err != nil {
		return err
	}
	// The records are read once and stay: collecting less often saves a third of the time of a large run.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	rep := report.New()
	lint(rep)
	if s.all {
		rep.All()
	}
	if s.platform != "" {
		if err := expect(rep, s.platform); err != nil {
			return err
		}
	}
	for _, file := range files {
		if err := addRun(rep.AddAt, file, report.ReadFile(file)); err != nil {
			return err
		}
	}
	return rep.Render(a.stdout, s.format.value, width)
}

// addRun hands the records of a file on, also lines that are no records; a file that holds no run at all is not
// what the user meant.
func addRun(add func(string, record.Located), file string, records iter.Seq2[record.Located, error]) error {
	header := false
	for at, err := range records {
		if err != nil {
			return err
		}
		switch rec := at.Record.(type) {
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
		add(file, at)
	}
	if !header {
		return usagef("%s is no run file: it is empty", file)
	}
	return nil
}
