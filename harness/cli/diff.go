package cli

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"gic/harness/diff"
	"gic/harness/results"
)

const helpDiff = `Usage: gic diff OLD NEW [flags]
       gic diff NEW --baseline NAME [flags]

Compares two sets of results, case by case: OLD and NEW are a run's folder or file, or a folder of
runs, which then count together. First come the NIC counters declared exact, per message: they are
compared by equality, and one that grows is a regression on the noisiest machine. Then times, rates
and bandwidths, by the median over process runs: Mann-Whitney, adjusted by Holm over all tests of
the diff. A regression is worse by more than the threshold and significant, with at least 4 process
runs on each side; also a case that was ok and is not any more, or is missing.

  $ gic diff results/local/old results/local/new
  $ gic diff results/local/new --baseline main --format markdown
  $ gic diff results/local/a results/local/c --across backend.batch
  $ gic diff results/local/a results/local/a --across backend=minigda:miniproxy
  $ gic diff results/local/a results/local/b --filter 'workload:op -status:skipped'
  $ gic diff results/local/a results/local/b --threshold time=3%,rate=10% --alpha 0.01

States that change results by themselves must be alike: host.name, host.cpu, host.cpus, host.gpu,
host.driver, nic and nic.KEY, device, ranks_in_process, library.NAME, seed. --allow KEY compares all
the same. A case that lacks an axis or a key which came later has its default there.
Rows that gic import made pair by the keys that their file says; what it does not say is a footnote.

Exit status: 0 nothing is worse; 1 a regression; 2 the request makes no sense, or the states are
unlike; 3 no case pairs.
`

type diffFlags struct {
	across, allow words
	threshold     string
	alpha         fraction
	filter        string
	filterOld     string
	filterNew     string
	format        oneOf
	stat          oneOf
	baseline      string
	store         string
	force, all    bool
}

func newDiffFlags() (*flags, *diffFlags) {
	f := newFlags("diff")
	d := &diffFlags{
		format: oneOf{"table", diff.Formats()}, stat: oneOf{"p50", []string{"p50", "p90", "p99", "max", "mean"}},
		alpha: fraction{0.05},
	}
	what := f.group("What is compared")
	what.Var(&d.across, "across", "pair cases that differ in `KEY`, or in KEY=OLD:NEW; may be repeated")
	what.StringVar(&d.filter, "filter", "", "only cases that match, on both sides: `EXPR` as in benchstat")
	what.StringVar(&d.filterOld, "filter-old", "", "likewise on the old side only, `EXPR`")
	what.StringVar(&d.filterNew, "filter-new", "", "likewise on the new side only, `EXPR`")
	what.StringVar(&d.baseline, "baseline", "", "take OLD from the baseline `NAME` (gic baseline save)")
	what.StringVar(&d.store, "results", "", "where baselines are kept, `DIR`; else $GIC_RESULTS or results/local")
	what.Var(&d.allow, "allow", "compare although `KEY` or a group of keys is unlike; \"oversubscribed\" judges such rows, counter.NAME lets a counter grow; may be repeated")
	what.BoolVar(&d.force, "force", false, "compare whatever is unlike")
	how := f.group("How it is judged")
	how.StringVar(&d.threshold, "threshold", "", "changes up to this are the same: `CLASS=N%,...` with time, rate, bandwidth (5 % each), counter (0)")
	how.Var(&d.alpha, "alpha", "chance of a false alarm, `P`, for the whole diff")
	how.Var(&d.stat, "stat", "what of a process run is compared")
	how.BoolVar(&d.all, "all-metrics", false, "judge all metrics, not only those that the table of a run shows")
	how.Var(&d.format, "format", "how the diff is printed; github annotates a workflow and adds to $GITHUB_STEP_SUMMARY")
	return f, d
}

// fraction is a flag that takes a number between 0 and 1.
type fraction struct{ value float64 }

func (p *fraction) String() string { return strconv.FormatFloat(p.value, 'g', -1, 64) }
func (p *fraction) Type() string   { return "P" }
func (p *fraction) Set(v string) error {
	f, err := strconv.ParseFloat(v, 64)
	if err != nil || !(f > 0 && f < 1) {
		return errors.New("allowed: a number between 0 and 1")
	}
	p.value = f
	return nil
}

// parseThresholds reads time=5%,rate=0.1 on top of the defaults.
func parseThresholds(text string) (map[string]float64, error) {
	t := diff.DefaultThresholds()
	if text == "" {
		return t, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		class, v, ok := strings.Cut(part, "=")
		if _, known := t[class]; !ok || !known {
			return nil, usagef("--threshold %s: %q is not CLASS=N%%; classes: time, rate, bandwidth, counter", text, part)
		}
		number, isPercent := strings.CutSuffix(v, "%")
		f, err := strconv.ParseFloat(number, 64)
		if isPercent {
			f /= 100
		}
		if err != nil || !(f >= 0 && f <= 100) {
			return nil, usagef("--threshold %s: %q is not allowed; allowed: a percentage like 5%%, or a share like 0.05", text, v)
		}
		t[class] = f
	}
	return t, nil
}

// options turns flags into those of the diff.
func (d *diffFlags) options() (diff.Options, error) {
	o := diff.Options{Allow: d.allow, AllowAll: d.force, Alpha: d.alpha.value, AllMetrics: d.all}
	var err error
	if o.Thresholds, err = parseThresholds(d.threshold); err != nil {
		return o, err
	}
	for _, k := range d.across {
		a, err := diff.ParseAcross(k)
		if err != nil {
			return o, usagef("--across: %w", err)
		}
		o.Across = append(o.Across, a)
	}
	return o, nil
}

// sides says where OLD and NEW are.
func (d *diffFlags) sides(args []string) (old, new []string, err error) {
	if d.baseline == "" {
		if len(args) != 2 {
			return nil, nil, usagef("diff takes two sets of results, OLD and NEW (or NEW and --baseline NAME); got %s", countArgs(args))
		}
		return args[:1], args[1:], nil
	}
	if len(args) != 1 {
		return nil, nil, usagef("diff with --baseline takes one set of results, NEW; got %s", countArgs(args))
	}
	b, err := results.Open(d.store).Baseline(d.baseline)
	if err != nil {
		return nil, nil, usageError{err}
	}
	return b.Files(), args, nil
}

func countArgs(args []string) string {
	if len(args) == 0 {
		return "none"
	}
	return fmt.Sprintf("%d: %s", len(args), strings.Join(args, " "))
}

func (a *app) diff(args []string) error {
	f, d := newDiffFlags()
	if err := f.parse(args); err != nil {
		return err
	}
	if f.help {
		return a.commandHelp("diff")
	}
	o, err := d.options()
	if err != nil {
		return err
	}
	oldPaths, newPaths, err := d.sides(f.all.Args())
	if err != nil {
		return err
	}
	r, err := d.compare(oldPaths, newPaths, o)
	var unlike *diff.UnlikeError
	switch {
	case errors.As(err, &unlike):
		for _, l := range unlike.Lines() {
			fmt.Fprintf(a.stderr, "gic: %s\n", l)
		}
		return exitError(exitUsage)
	case err != nil:
		return err
	}
	if err := r.Render(a.stdout, d.format.value, width); err != nil {
		return err
	}
	if d.format.value == "github" {
		if err := stepSummary(r); err != nil {
			return err
		}
	}
	if status := r.Exit(); status != exitOK {
		return exitError(status)
	}
	return nil
}

// compare reads both sides and compares them. What can go wrong is the request's fault.
func (d *diffFlags) compare(oldPaths, newPaths []string, o diff.Options) (*diff.Result, error) {
	defer debug.SetGCPercent(debug.SetGCPercent(diff.GCPercent))
	var filters [2]*results.Filter
	for i, own := range []string{d.filterOld, d.filterNew} {
		text := strings.TrimSpace(d.filter)
		if own = strings.TrimSpace(own); text != "" && own != "" {
			text = "(" + text + ") (" + own + ")"
		} else {
			text += own
		}
		if text == "" {
			continue
		}
		var err error
		if filters[i], err = results.NewFilter(text); err != nil {
			return nil, usageError{err}
		}
	}
	old, err := diff.NewSet("OLD", d.stat.value)
	if err != nil {
		return nil, usageError{err}
	}
	new, err := diff.NewSet("NEW", d.stat.value)
	if err != nil {
		return nil, usageError{err}
	}
	if err := diff.Load(old, new, oldPaths, newPaths, filters[0], filters[1]); err != nil {
		return nil, usageError{err}
	}
	for i, s := range []*diff.Set{old, new} {
		if u := filters[i].Unknown(); u != nil {
			return nil, usagef("--filter: no record of %s has %s; keys there: %s", s.Label, strings.Join(u, ", "), strings.Join(filters[i].Known(), ", "))
		}
	}
	r, err := diff.Compare(old, new, o)
	var unlike *diff.UnlikeError
	if err != nil && !errors.As(err, &unlike) {
		return nil, usageError{err}
	}
	return r, err
}

// stepSummary appends the Markdown form to the file that GitHub names.
func stepSummary(r *diff.Result) error {
	path := os.Getenv("GITHUB_STEP_SUMMARY")
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("write step summary: %w", err)
	}
	err = r.Render(f, "markdown", width)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write step summary: %w", err)
	}
	return nil
}
