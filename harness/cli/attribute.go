package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"gic/harness/attribution"
	"gic/harness/attribution/replay"
	"gic/harness/report/html"
	"gic/harness/results"
)

const helpAttribute = `Usage: gic attribute DIR|FILE... [flags]

Splits the gap between each library row and the floor of its mechanism: ordering, sharing of queues,
doorbells, completion scope, placement, hand-off to a proxy, and what is left (library code). Three
methods split it independently, a ladder of floor rows, the replay of the library's NIC trace, and
counts times unit costs, and the verdict says where they differ. Every run is looked at on its own.

  $ gic attribute results/paper --format brief
  $ gic attribute results/paper --platform P-IB
  $ gic attribute results/paper --case 'backend:nvshmem workload:op'
  $ gic attribute results/local/a --as minigda:batch=16 --order doorbell-batching,ordering
  $ gic attribute results/paper --platform P-RoCE --format json
  $ gic attribute --terms

A floor row can pose as a library (--as): the floor's other rows then explain it. What each library
chooses is in harness/attribution/libraries; --library adds such a file. How to read the output, and
what not to claim from it: docs/attribution.md.

Exit status: 0 the gaps were split, also where methods disagree (that is a result); 2 the request
makes no sense, or nothing matches it.
`

type attributeFlags struct {
	platform, cases string
	order           string
	as, library     words
	format          oneOf
	terms           bool
}

func newAttributeFlags() (*flags, *attributeFlags) {
	f, a := newFlags("attribute"), &attributeFlags{format: oneOf{"table", attribution.Formats()}}
	g := f.group("Flags")
	g.StringVar(&a.platform, "platform", "", "only runs of this machine: `NAME` is its host name, or the platform of reference rows")
	g.StringVar(&a.cases, "case", "", "only rows that match `EXPR`, as in gic diff --filter; all rows still serve as floors")
	g.StringVar(&a.order, "order", "", "order of the rungs, `TERM,...` (or floor keys); without it the mean over all orders where it can be had")
	g.Var(&a.as, "as", "let rows of a floor pose as a library, `FLOOR:KEY=VALUE,...`; may be repeated")
	g.Var(&a.library, "library", "also use the library `FILE`; may be repeated")
	g.Var(&a.format, "format", "how it is printed; brief is one line per gap, json has every number and how it came about")
	g.BoolVar(&a.terms, "terms", false, "print the vocabulary and end")
	return f, a
}

func (a *app) attribute(args []string) error {
	f, flags := newAttributeFlags()
	if err := f.parse(args); err != nil {
		return err
	}
	if f.help {
		return a.commandHelp("attribute")
	}
	if flags.terms {
		return attribution.WriteTerms(a.stdout, flags.format.value, width)
	}
	if f.all.NArg() == 0 {
		return usagef("attribute takes at least one DIR or FILE; results/paper holds the published figures")
	}
	list, err := flags.analyse(a, f.all.Args())
	if err != nil {
		return err
	}
	return attribution.Render(a.stdout, list, flags.format.value, width)
}

// analyse reads the runs and splits their gaps.
func (f *attributeFlags) analyse(a *app, paths []string) ([]*attribution.Analysis, error) {
	options, err := f.options()
	if err != nil {
		return nil, err
	}
	files, err := recordFiles(paths)
	if err != nil {
		return nil, err
	}
	runs, err := attribution.Load(files)
	if err != nil {
		return nil, usageError{err}
	}
	for _, r := range runs {
		for _, b := range r.Bad {
			fmt.Fprintf(a.stderr, "gic: %s: left out\n", oneLine(b))
		}
	}
	if f.platform != "" {
		var known []string
		for _, r := range runs {
			known = append(known, r.Platform())
		}
		runs = slices.DeleteFunc(runs, func(r *attribution.Run) bool { return r.Platform() != f.platform })
		if len(runs) == 0 {
			slices.Sort(known)
			return nil, usagef("--platform %s: no run is of it; runs are of %s", f.platform, strings.Join(slices.Compact(known), ", "))
		}
	}
	for i, p := range options.Poses {
		if !p.Poses(runs) {
			return nil, usagef("--as %s: no row has that configuration", f.as[i])
		}
	}
	filter, err := results.NewFilter(f.cases)
	if err != nil {
		return nil, usagef("--case: %w", err)
	}
	kept := 0
	keep := func(w *attribution.Row) bool {
		ok := filter.Match(results.Keys(w.Run.Header, w.First()))
		if ok {
			kept++
		}
		return ok
	}
	if f.cases != "" {
		options.Keep = keep
	}
	var list []*attribution.Analysis
	for _, r := range runs {
		analysis, err := attribution.Analyse(r, options)
		if err != nil {
			return nil, err
		}
		list = append(list, analysis)
	}
	if u := filter.Unknown(); u != nil {
		return nil, usagef("--case: no record has %s; keys there: %s", strings.Join(u, ", "), strings.Join(filter.Known(), ", "))
	}
	if f.cases != "" && kept == 0 {
		return nil, usagef("--case %s: no record matches", f.cases)
	}
	return list, nil
}

// attributionMethods are those beside the ladder and the counts.
func attributionMethods() []attribution.Method { return []attribution.Method{replay.Method{}} }

// options turns flags into those of the analysis.
func (f *attributeFlags) options() (attribution.Options, error) {
	o := attribution.Options{Methods: attributionMethods()}
	if f.order != "" {
		o.Order = strings.Split(f.order, ",")
		if err := attribution.CheckOrder(o.Order); err != nil {
			return o, usagef("--order: %w", err)
		}
	}
	for _, text := range f.as {
		p, err := attribution.ParsePose(text)
		if err != nil {
			return o, usagef("--as: %w", err)
		}
		if !slices.Contains(attribution.Floors, p.Backend) {
			return o, usagef("--as %s: %s is no floor; allowed: %s", text, p.Backend, strings.Join(attribution.Floors, ", "))
		}
		o.Poses = append(o.Poses, p)
	}
	libraries, err := attribution.Libraries()
	if err != nil {
		return o, err
	}
	for _, file := range f.library {
		data, err := os.ReadFile(file)
		if err != nil {
			return o, usageError{fmt.Errorf("--library: %w", err)}
		}
		l, err := attribution.ParseLibrary(file, data)
		if err != nil {
			return o, usageError{err}
		}
		libraries = append([]*attribution.Library{l}, libraries...)
	}
	o.Libraries = libraries
	return o, nil
}

// mostAttributed bounds the run files that a report also splits: it keeps their records.
const mostAttributed = 64 << 20

// attributionSection gives a report the gaps of its runs, where there are any.
func attributionSection(page *html.Page, files []string) error {
	var bytes int64
	for _, file := range files {
		st, err := os.Stat(file)
		if err != nil {
			return usageError{fmt.Errorf("read records: %w", err)}
		}
		bytes += st.Size()
	}
	if bytes > mostAttributed {
		return nil
	}
	runs, err := attribution.Load(files)
	if err != nil {
		return usageError{err}
	}
	var list []*attribution.Analysis
	for _, r := range runs {
		analysis, err := attribution.Analyse(r, attribution.Options{Methods: attributionMethods()})
		if err != nil {
			return err
		}
		list = append(list, analysis)
	}
	text, err := attribution.HTML(list)
	if err != nil || text == "" {
		return err
	}
	page.AddSection(html.Section{ID: "attribution", Title: "Where the time goes", HTML: text})
	return nil
}
