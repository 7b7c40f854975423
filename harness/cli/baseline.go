package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"gic/harness/record"
	"gic/harness/results"
)

const helpBaseline = `Usage: gic baseline save NAME DIR... [flags]
       gic baseline list
       gic baseline rm NAME

Gives runs a name to compare with: gic diff NEW --baseline NAME. A baseline is a small file in
$GIC_RESULTS/baselines (results/local/baselines without it) that holds where the run files are and
their hashes; a run that was changed since is refused. --copy keeps copies beside it instead, which
do not depend on the originals. gic results prune keeps what a baseline names.

  $ gic baseline save main results/local/20260102-030405-abcdef
  $ gic baseline save nightly results/local --copy --replace
  $ gic baseline list
  $ gic baseline rm nightly
`

func (a *app) baseline(args []string) error {
	subs := []struct {
		name string
		run  func(*app, []string) error
	}{{"save", (*app).baselineSave}, {"list", (*app).baselineList}, {"rm", (*app).baselineRemove}}
	var known []string
	for _, s := range subs {
		known = append(known, s.name)
		if len(args) > 0 && args[0] == s.name {
			return s.run(a, args[1:])
		}
	}
	return a.noSub("baseline", args, known)
}

type baselineFlags struct {
	store         string
	copy, replace bool
	json          bool
}

func newBaselineFlags(sub string) (*flags, *baselineFlags) {
	f, b := newFlags("baseline "+sub), &baselineFlags{}
	g := f.group("Flags")
	g.StringVar(&b.store, "results", "", "where baselines are kept, `DIR`; else $GIC_RESULTS or results/local")
	switch sub {
	case "save":
		g.BoolVar(&b.copy, "copy", false, "keep copies of the run files")
		g.BoolVar(&b.replace, "replace", false, "save anew under a name that exists")
	case "list":
		g.BoolVar(&b.json, "json", false, "print JSON")
	}
	return f, b
}

func (a *app) baselineSave(args []string) error {
	f, b := newBaselineFlags("save")
	if err := f.parse(args); err != nil {
		return err
	}
	if f.help {
		return a.subHelp(helpBaseline, f)
	}
	if f.all.NArg() < 2 {
		return usagef("baseline save takes a NAME and at least one DIR or FILE, got %q", strings.Join(f.all.Args(), " "))
	}
	var files []string
	for _, path := range f.all.Args()[1:] {
		list, err := record.Files(path)
		if err != nil {
			return usageError{err}
		}
		files = append(files, list...)
	}
	saved, err := results.Open(b.store).Save(f.all.Arg(0), files, b.copy, b.replace, time.Now())
	if err != nil {
		return usageError{err}
	}
	fmt.Fprintf(a.stdout, "baseline %s: %s, kept as %s\n", saved.Name, plural(len(saved.Runs), "run"), keptAs(saved))
	return nil
}

func (a *app) baselineList(args []string) error {
	f, b := newBaselineFlags("list")
	if err := f.parse(args); err != nil {
		return err
	}
	if f.help {
		return a.subHelp(helpBaseline, f)
	}
	if f.all.NArg() > 0 {
		return usagef("baseline list takes no arguments, got %q", strings.Join(f.all.Args(), " "))
	}
	all, bad := results.Open(b.store).Baselines()
	if b.json {
		if all == nil {
			all = []*results.Baseline{}
		}
		if err := a.printJSON(all); err != nil {
			return err
		}
		return bad
	}
	t := newTable(a.stdout, "baseline", "saved", "runs", "kept as")
	for _, x := range all {
		t.AppendRow(table.Row{x.Name, x.Time.UTC().Format("2006-01-02 15:04"), len(x.Runs), keptAs(x)})
	}
	if len(all) > 0 {
		t.Render()
	} else {
		fmt.Fprintln(a.stdout, "no baselines")
	}
	return bad
}

func keptAs(b *results.Baseline) string {
	if b.Runs[0].Copied {
		return "copies"
	}
	return "references"
}

func (a *app) baselineRemove(args []string) error {
	f, b := newBaselineFlags("rm")
	if err := f.parse(args); err != nil {
		return err
	}
	if f.help {
		return a.subHelp(helpBaseline, f)
	}
	if f.all.NArg() != 1 {
		return usagef("baseline rm takes one NAME, got %q", strings.Join(f.all.Args(), " "))
	}
	if err := results.Open(b.store).RemoveBaseline(f.all.Arg(0)); err != nil {
		return usageError{err}
	}
	fmt.Fprintf(a.stdout, "removed baseline %s\n", f.all.Arg(0))
	return nil
}
