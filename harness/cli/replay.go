package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gic/harness/attribution/replay"
	"gic/harness/record"
)

const helpReplay = `Usage: gic replay DIR|FILE... [flags]

Measures traced rows again, each beside its replay: the same kernel, while what its operations ask
of the NIC is what the trace says (queues, work requests, sizes, placement, flags, doorbells),
posted by the minimal path. What a row takes beyond its replay is that stack's own code; what the
replay takes beyond the floor are its choices, as far as a NIC sees them. gic attribute reads both.

  $ gic run --workload op:size=8 --backend minigda --backend minigda:batch=16 --nic soft:trace=on
  $ gic replay results/local/traced --out results/local/replayed
  $ gic attribute results/local/replayed

The suite that is run is written beside the first run file as replay.yaml. Of each row the first
process run that is ok is replayed; its trace must have the hash that the record tells.
`

type replayFlags struct {
	floor, out string
	nic        string
	repeat     natural
	write      bool
}

func newReplayFlags() (*flags, *replayFlags) {
	f, r := newFlags("replay"), &replayFlags{repeat: natural{max: 1000}}
	g := f.group("Flags")
	g.StringVar(&r.floor, "floor", "minigda", "backend and keys of the floor at every point where no traced row has it, `B:key=v`; none for no floor")
	g.StringVar(&r.nic, "nic", "", "measure on this `NIC`, as in gic run, instead of that of the traced rows")
	g.Var(&r.repeat, "repeat", "process runs of every case; default 5")
	g.StringVar(&r.out, "out", "", "write run.jsonl into the folder `DIR`; else as gic run does")
	g.BoolVar(&r.write, "write-only", false, "write replay.yaml, and run nothing")
	return f, r
}

// findTraces looks for traces that are not where the record says beside it: the run's folder may have moved.
func findTraces(c *record.Case, dir string) {
	for k, path := range c.Created {
		if k != "trace" && !strings.HasPrefix(k, "trace.rank") || !strings.HasSuffix(path, ".trace") {
			continue
		}
		if _, err := os.Stat(path); err != nil {
			if beside := filepath.Join(dir, filepath.Base(path)); exists(beside) {
				c.Created[k] = beside
			}
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// replay is gic replay.
func (a *app) replay(args []string) error {
	f, r := newReplayFlags()
	if err := f.parse(args); err != nil {
		return err
	}
	if f.help {
		return a.commandHelp("replay")
	}
	if f.all.NArg() == 0 {
		return usagef("replay takes at least one DIR or FILE of a run with --nic soft:trace=on")
	}
	var cases []*record.Case
	var beside string
	for _, path := range f.all.Args() {
		files, err := record.Files(path)
		if err != nil {
			return usageError{err}
		}
		for _, file := range files {
			if beside == "" {
				beside = filepath.Dir(file)
			}
			for rec, err := range record.ReadFile(file) {
				if err != nil {
					return usageError{err}
				}
				if c, ok := rec.(*record.Case); ok {
					findTraces(c, filepath.Dir(file))
					cases = append(cases, c)
				}
			}
		}
	}
	floor := r.floor
	if floor == "none" {
		floor = ""
	}
	p, err := replay.NewPlan(cases, floor)
	if err != nil {
		return usageError{err}
	}
	for _, why := range p.Left {
		fmt.Fprintf(a.stderr, "gic: not replayed: %s\n", why)
	}
	text, err := p.YAML()
	if err != nil {
		return err
	}
	suite := filepath.Join(beside, "replay.yaml")
	if err := os.WriteFile(suite, text, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", suite, err)
	}
	if r.nic != "" {
		p.NIC = r.nic
	}
	run := []string{"--suite", suite, "--seed", fmt.Sprint(p.Seed), "--device", p.Device, "--nic", p.NIC}
	if p.Profile != "" {
		run = append(run, "--nic-profile", p.Profile)
	}
	if r.repeat.value > 0 {
		run = append(run, "--repeat", fmt.Sprint(r.repeat.value))
	}
	if r.out != "" {
		run = append(run, "--out", r.out)
	}
	if r.write {
		fmt.Fprintf(a.stdout, "%s: %s; gic run", suite, plural(len(p.Blocks), "point"))
		for _, w := range run {
			fmt.Fprintf(a.stdout, " %s", w)
		}
		fmt.Fprintln(a.stdout)
		return nil
	}
	return a.run(run)
}
