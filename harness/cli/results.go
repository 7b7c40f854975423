package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"gic/harness/diff"
	"gic/harness/plan"
	"gic/harness/record"
	"gic/harness/results"
)

const helpResults = `Usage: gic results list   [DIR...] [--filter EXPR] [--json]
       gic results query  [DIR...] [--filter EXPR] [--row KEYS] [--col KEYS] [--ignore KEYS]
       gic results prune  [DIR...] --keep N | --older-than AGE [--filter EXPR] [--yes]
       gic results verify [DIR...]

Looks after a folder of runs: every run.jsonl below DIR, or below $GIC_RESULTS or results/local.

  $ gic results list --filter 'suite:quick backend:minigda'
  $ gic results query --filter 'workload:op backend:(minigda OR miniproxy)' --col backend
  $ gic results query results/local --filter 'workload:rate' --row workload.size@num --col run
  $ gic results prune --keep 20
  $ gic results verify

A filter is key:value, key:"value", key:/regexp/, key:(a OR b), joined by AND (or a space), OR, -
for not, and parentheses. Keys: workload, workload.AXIS, backend, backend.KEY, nic, nic.KEY, device,
ranks, seed, index, status, run, suite, host, gic, launch. A projection is a list of keys, each with
an order if wanted: key@num, key@alpha, key@(a b), which also leaves out the others.

prune says what it would remove and removes it with --yes: never what a baseline names, is being
written, or holds lines that are no records. verify exits with 1 if it finds a problem.
`

func (a *app) results(args []string) error {
	subs := []struct {
		name string
		run  func(*app, []string) error
	}{{"list", (*app).resultsList}, {"query", (*app).resultsQuery}, {"prune", (*app).resultsPrune}, {"verify", (*app).resultsVerify}}
	var known []string
	for _, s := range subs {
		known = append(known, s.name)
		if len(args) > 0 && args[0] == s.name {
			return s.run(a, args[1:])
		}
	}
	return a.noSub("results", args, known)
}

// noSub answers a command that needs another word and did not get a known one.
func (a *app) noSub(command string, args, known []string) error {
	switch {
	case len(args) == 0:
		return usagef("%s takes one of %s; gic %s --help says more", command, strings.Join(known, ", "), command)
	case args[0] == "-h" || args[0] == "--help":
		return a.commandHelp(command)
	case strings.HasPrefix(args[0], "-"):
		return usagef("%s takes one of %s first, got %s", command, strings.Join(known, ", "), args[0])
	}
	return usageError{plan.UnknownName(command+" command", args[0], known, "")}
}

// subHelp prints a command's text and the flags of one of its parts.
func (a *app) subHelp(text string, f *flags) error {
	fmt.Fprint(a.stdout, text)
	for _, g := range f.groups {
		f.all.AddFlagSet(g.set)
	}
	fmt.Fprint(a.stdout, f.usages())
	return nil
}

// storeFlags are those that all commands over the store share.
type storeFlags struct {
	filter string
	json   bool
}

func newStoreFlags(command string) (*flags, *storeFlags) {
	f, s := newFlags(command), &storeFlags{}
	g := f.group("Flags")
	g.StringVar(&s.filter, "filter", "", "only records that match `EXPR`")
	g.BoolVar(&s.json, "json", false, "print JSON")
	return f, s
}

// find gives the run files of the arguments, and the filter.
func (s *storeFlags) find(paths []string) ([]string, *results.Filter, error) {
	filter, err := results.NewFilter(s.filter)
	if err != nil {
		return nil, nil, usageError{err}
	}
	files, err := results.Open("").Files(paths...)
	if err != nil {
		for _, p := range paths {
			if _, missing := os.Stat(p); missing != nil && strings.Contains(p, ":") {
				return nil, nil, usagef("%s is no folder; a filter is given with --filter %s", p, "'"+p+"'")
			}
		}
		return nil, nil, usageError{err}
	}
	if len(files) == 0 && len(paths) == 0 {
		return nil, nil, usagef("no results in %s: gic run makes some; another folder is given as DIR or in %s", results.Open("").Dir, results.EnvDir)
	}
	if len(files) == 0 {
		return nil, nil, usagef("%s: no %s there or below", strings.Join(paths, " "), record.FileName)
	}
	return files, filter, nil
}

// checkFilter refuses a filter with a key that no record has.
func checkFilter(f *results.Filter) error {
	if u := f.Unknown(); u != nil {
		return usagef("--filter: no record has %s; keys: %s", strings.Join(u, ", "), strings.Join(f.Known(), ", "))
	}
	return nil
}

func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func (a *app) resultsList(args []string) error {
	f, s := newStoreFlags("results list")
	if err := f.parse(args); err != nil {
		return err
	}
	if f.help {
		return a.subHelp(helpResults, f)
	}
	files, filter, err := s.find(f.all.Args())
	if err != nil {
		return err
	}
	runs, err := results.List(files, filter)
	if err != nil {
		return err
	}
	if err := checkFilter(filter); err != nil {
		return err
	}
	if s.json {
		if runs == nil {
			runs = []*results.Run{}
		}
		return a.printJSON(runs)
	}
	a.printRuns(runs)
	return nil
}

func (a *app) printRuns(runs []*results.Run) {
	t := newTable(a.stdout, "run", "time", "suite", "ranks", "host", "records", "cases")
	const suite, hostMax = 12, 16
	id, host, records := len("run"), len("host"), len("records")
	for _, r := range runs {
		id, host = max(id, len(r.ID)), max(host, min(hostMax, utf8.RuneCountInString(r.Host)))
		records = max(records, len(recordsText(r)))
	}
	cases := width - (id + len("2006-01-02 15:04") + suite + len("ranks") + host + records + 2*7) // what is left
	t.SetColumnConfigs([]table.ColumnConfig{
		{Number: 4, Align: text.AlignRight}, {Number: 6, Align: text.AlignRight},
		{Number: 5, WidthMax: hostMax, WidthMaxEnforcer: text.WrapText}, {Number: 7, WidthMax: max(12, cases), WidthMaxEnforcer: text.WrapSoft}})
	var bad []string
	for _, r := range runs {
		bad = append(bad, r.Bad...)
		if r.ID == "" {
			continue
		}
		t.AppendRow(table.Row{r.ID, r.Time.UTC().Format("2006-01-02 15:04"), orDash(short(r.Suite, suite)), r.Ranks, r.Host, recordsText(r), statusText(r.Cases)})
	}
	t.Render()
	for _, r := range runs {
		if r.ID != "" {
			fmt.Fprintf(a.stdout, "%-*s  %s\n", id, r.ID, r.Path)
		}
	}
	for _, b := range bad {
		fmt.Fprintf(a.stdout, "error: %s\n", indent(wrap(b, width-7), 7))
	}
	fmt.Fprintln(a.stdout, plural(t.Length(), "run"))
}

// recordsText is the number of a run's records, and of those planned where some are missing.
func recordsText(r *results.Run) string {
	if r.Records < r.Planned {
		return fmt.Sprintf("%d/%d", r.Records, r.Planned)
	}
	return strconv.Itoa(r.Records)
}

// short cuts what is too long for a column: an import's suite is the title of a publication.
func short(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return strings.TrimSpace(string(r[:n-3])) + "..."
	}
	return s
}

func statusText(count map[record.Status]int) string {
	var parts []string
	for _, s := range []record.Status{record.OK, record.Skipped, record.Unsafe, record.Unverified, record.Timeout, record.Failed} {
		if count[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[s], s))
		}
	}
	return orDash(strings.Join(parts, ", "))
}

func (a *app) resultsQuery(args []string) error {
	f, s := newStoreFlags("results query")
	g := f.group("Layout")
	q := results.Query{}
	stat := oneOf{"p50", []string{"p50", "p90", "p99", "max", "mean"}}
	var metrics words
	g.StringVar(&q.Row, "row", "", "rows: projection `KEYS`; else all keys that vary")
	g.StringVar(&q.Col, "col", "", "columns: projection `KEYS`")
	g.StringVar(&q.Ignore, "ignore", "", "`KEYS` that may differ within a cell")
	g.Var(&metrics, "metric", "show metric `NAME`, not those that a run's table shows; may be repeated")
	g.Var(&stat, "stat", "what of a process run is taken")
	if err := f.parse(args); err != nil {
		return err
	}
	if f.help {
		return a.subHelp(helpResults, f)
	}
	files, filter, err := s.find(f.all.Args())
	if err != nil {
		return err
	}
	q.Filter, q.Metrics, q.Stat = filter, metrics, diff.Stats[stat.value]
	answer, err := q.Ask(files)
	if err != nil {
		return usageError{err}
	}
	if s.json {
		return a.printJSON(answer)
	}
	if answer.Records == 0 {
		return usagef("no record matches the filter %q in %s", s.filter, plural(len(files), "run file"))
	}
	if answer.Places != nil {
		fmt.Fprintf(a.stdout, "on %s\n", indent(wrap(placesText(answer), width-4), 4))
	}
	folded := false
	for _, g := range answer.Metrics {
		fmt.Fprintln(a.stdout)
		folded = a.printGrid(g) || folded
	}
	if folded {
		fmt.Fprintln(a.stdout, "row: all keys that vary, where they are too many for columns; --row picks some")
	}
	if len(answer.Metrics) == 0 {
		fmt.Fprintln(a.stdout, "no values in the records that match")
	}
	for _, n := range answer.Notes {
		fmt.Fprintf(a.stdout, "note: %s\n", indent(wrap(n, width-6), 6))
	}
	for _, b := range answer.Bad {
		fmt.Fprintf(a.stdout, "error: %s\n", indent(wrap(b, width-7), 7))
	}
	return nil
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// placesText says what the numbers are from, and what they are not.
func placesText(answer *results.Answer) string {
	soft, host := false, false
	for _, p := range answer.Places {
		nic, device, _ := strings.Cut(p, "/")
		soft, host = soft || nic == "soft", host || device == "host"
	}
	text := strings.Join(answer.Places, ", ")
	switch {
	case soft && host:
		text += ": times of a software NIC and of host threads support no claim about hardware"
	case soft:
		text += ": times of a software NIC support no claim about hardware"
	case host:
		text += ": times of host threads support no claim about hardware"
	}
	if soft && slices.ContainsFunc(answer.Metrics, func(g *results.Grid) bool { return g.Alone }) {
		text += ", but for those of the GPU alone"
	}
	return text
}

func (a *app) resultsPrune(args []string) error {
	f, s := newStoreFlags("results prune")
	g := f.group("What goes")
	var keep natural
	keep.max = 1 << 30
	var age, store string
	var yes bool
	g.Var(&keep, "keep", "keep the `N` newest of the runs that match")
	g.StringVar(&age, "older-than", "", "remove those older than `AGE`: 30d, 12h")
	g.StringVar(&store, "results", "", "where baselines are kept, `DIR`; else $GIC_RESULTS or results/local")
	g.BoolVar(&yes, "yes", false, "remove; without it nothing is touched")
	if err := f.parse(args); err != nil {
		return err
	}
	if f.help {
		return a.subHelp(helpResults, f)
	}
	limit, err := parseAge(age)
	if err != nil {
		return err
	}
	if keep.value == 0 && limit == 0 {
		return usagef("prune takes --keep N or --older-than AGE, or both: what is beyond either goes")
	}
	files, filter, err := s.find(f.all.Args())
	if err != nil {
		return err
	}
	runs, err := results.List(files, filter)
	if err != nil {
		return err
	}
	if err := checkFilter(filter); err != nil {
		return err
	}
	n := -1
	if keep.value > 0 {
		n = keep.value
	}
	plan, err := results.Open(store).Prune(runs, n, limit, time.Now())
	if err != nil {
		return err
	}
	return a.prune(plan, yes, s.json)
}

func (a *app) prune(plan []results.Pruning, yes, asJSON bool) error {
	gone, bytes := 0, int64(0)
	for _, p := range plan {
		if p.Remove {
			if yes {
				if err := results.Remove(p); err != nil {
					return err
				}
			}
			gone++
			bytes += p.Bytes
		}
	}
	if asJSON {
		return a.printJSON(plan)
	}
	what := "would remove"
	if yes {
		what = "removed"
	}
	for _, p := range plan {
		word := "keep"
		if p.Remove {
			word = what
		}
		fmt.Fprintf(a.stdout, "%-12s  %s: %s\n", word, p.Path, p.Why)
	}
	fmt.Fprintf(a.stdout, "%s %s (%.1f MB) of %d", what, plural(gone, "run file"), float64(bytes)/1e6, len(plan))
	if !yes && gone > 0 {
		fmt.Fprint(a.stdout, "; --yes does it")
	}
	fmt.Fprintln(a.stdout)
	return nil
}

// parseAge reads a duration that may be in days.
func parseAge(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	var d time.Duration
	var err error
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n float64
		n, err = strconv.ParseFloat(days, 64)
		d = time.Duration(n * 24 * float64(time.Hour))
		if !(n > 0 && n < 36500) {
			err = strconv.ErrRange
		}
	} else {
		d, err = time.ParseDuration(s)
	}
	if err != nil || d <= 0 {
		return 0, usagef("--older-than %s is not allowed; allowed: an age like 30d or 12h", s)
	}
	return d, nil
}

func (a *app) resultsVerify(args []string) error {
	f := newFlags("results verify")
	asJSON := false
	f.group("Flags").BoolVar(&asJSON, "json", false, "print JSON")
	if err := f.parse(args); err != nil {
		return err
	}
	if f.help {
		return a.subHelp(helpResults, f)
	}
	files, _, err := (&storeFlags{}).find(f.all.Args())
	if err != nil {
		return err
	}
	v, err := results.Verify(files)
	if err != nil {
		return err
	}
	if asJSON {
		if err := a.printJSON(v); err != nil {
			return err
		}
	} else {
		for _, p := range v.Problems {
			fmt.Fprintln(a.stdout, p)
		}
		fmt.Fprintf(a.stdout, "%s, %s, %s: %s\n", plural(v.Files, "file"), plural(v.Runs, "run"), plural(v.Records, "record"),
			plural(len(v.Problems), "problem"))
	}
	if len(v.Problems) > 0 {
		return exitError(exitFailed)
	}
	return nil
}
