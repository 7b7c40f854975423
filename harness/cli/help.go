package cli

import (
	"fmt"
	"strings"

	"gic/harness/plan"
)

// Help texts. Every line that starts with "  $ gic" is run by a test.
const (
	helpTop = `gic runs the same communication work over several stacks, side by side, and says where the time
goes.

  $ gic run                        compare everything that runs here, quickly (under a minute)
  $ gic run --dry-run              see what that would do
  $ gic list                       workloads, backends and everything else that has a name
  $ gic doctor                     what this machine can run, and what is missing for the rest

Commands:
`
	helpRun = `Usage: gic run [flags]

Runs every workload point on every backend configuration in fresh rank processes, several times,
backends interleaved; checks what arrived; writes one record per point and process run to
DIR/run.jsonl; and prints the rows side by side. What cannot run here is a row with its reason.

  $ gic run
  $ gic run --suite paper --dry-run
  $ gic run --workload 'op:size=8|64|1K,op=put|put_signal'
  $ gic run --workload 'op:size=8..1K*2' --backend 'minigda:batch=1|16' --backend miniproxy
  $ gic run --suite quick --workload op --backend minigda
  $ gic run --workload op --nic soft:threads=2 --nic-profile cx7-200 --out results/local/cx7
  $ gic run --resume results/local/cx7
  $ mpirun -n 4 gic run --suite quick

A workload has axes, a backend has keys; ` + "`gic list`" + ` shows both. Several values are written v|v
(quote the | for the shell) or as a range: 1..4, 0..100+25, 8..64K*2. Every combination is measured.

Under mpirun, srun or torchrun every started gic becomes the agent of one rank; the first one plans,
writes and prints. Environment: GIC_PLUGIN_PATH folders with lib<backend>.so; GIC_RENDEZVOUS and
GIC_SOCKET_IFNAME where agents meet; GIC_TOKEN_FILE or GIC_TOKEN the secret they share.

Exit status: 0 all cases ok or skipped; 1 a case failed, timed out or could not be verified; 2 the
request makes no sense, nothing was started; 130 interrupted, the records so far are kept.
`
	helpList = `Usage: gic list [workloads|backends|suites|profiles|models]... [flags]

  $ gic list
  $ gic list workloads
  $ gic list backends --json
`
	helpShow = `Usage: gic show DIR|FILE... [flags]

Prints recorded results as gic run printed them, or in a form for other tools. Several runs are
shown one after the other; a folder without run.jsonl stands for all runs below it.

  $ gic show results/local
  $ gic show results/local --format csv
  $ gic show results/local/cx7/run.jsonl --format nccl-tests
  $ gic show results/local --platform P-IB

csv is one line per case and metric, every key of the case a column.
`
	helpDoctor = `Usage: gic doctor [flags]

Says what this machine can run, and for each backend the first thing that is missing and how to get
it. Starts no ranks.

  $ gic doctor
  $ gic doctor --json
`
	helpVersion = `Usage: gic version

  $ gic version
`
	helpHelp = `Usage: gic help [COMMAND]

  $ gic help run
`
)

// helpText gives the text of a command and the flags behind it, nil for none.
func helpText(name string) (string, *flags) {
	switch name {
	case "run":
		return helpRun, newRunFlags().flags
	case "list":
		f, _ := newListFlags()
		return helpList, f
	case "show":
		f, _ := newShowFlags()
		return helpShow, f
	case "attribute":
		f, _ := newAttributeFlags()
		return helpAttribute, f
	case "report":
		f, _ := newReportFlags()
		return helpReport, f
	case "import":
		f, _ := newImportFlags()
		return helpImport, f
	case "export":
		f, _ := newExportFlags()
		return helpExport, f
	case "diff":
		f, _ := newDiffFlags()
		return helpDiff, f
	case "history":
		f, _ := newHistoryFlags()
		return helpHistory, f
	case "baseline":
		return helpBaseline, nil
	case "results":
		return helpResults, nil
	case "replay":
		f, _ := newReplayFlags()
		return helpReplay, f
	case "trace":
		return helpTrace, nil
	case "predict":
		f, _ := newPredictFlags()
		return helpPredict, f
	case "calibrate":
		f, _ := newCalibrateFlags()
		return helpCalibrate, f
	case "doctor":
		f, _ := newDoctorFlags()
		return helpDoctor, f
	case "version":
		return helpVersion, nil
	}
	return helpHelp, nil
}

func (a *app) commandHelp(name string) error {
	text, f := helpText(name)
	fmt.Fprint(a.stdout, text)
	if f != nil {
		for _, g := range f.groups {
			f.all.AddFlagSet(g.set)
		}
		fmt.Fprint(a.stdout, f.usages())
	}
	return nil
}

func (a *app) help(args []string) error {
	if len(args) > 1 {
		return usagef("help takes one command, got %q", strings.Join(args, " "))
	}
	var known []string
	for _, c := range commands() {
		if !c.hidden {
			known = append(known, c.name)
		}
	}
	if len(args) == 1 && !strings.HasPrefix(args[0], "-") {
		for _, name := range known {
			if name == args[0] {
				return a.commandHelp(name)
			}
		}
		return usageError{plan.UnknownName("command", args[0], known, "")}
	}
	fmt.Fprint(a.stdout, helpTop)
	for _, c := range commands() {
		if !c.hidden {
			fmt.Fprintf(a.stdout, "  %-10s %s\n", c.name, c.short)
		}
	}
	fmt.Fprint(a.stdout, "\n`gic help COMMAND` and `gic COMMAND --help` say more.\n")
	return nil
}
