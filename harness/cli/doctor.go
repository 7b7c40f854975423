package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"gic/harness/machine"
	"gic/harness/record"
)

type doctorFlags struct{ json bool }

func newDoctorFlags() (*flags, *doctorFlags) {
	f, d := newFlags("doctor"), &doctorFlags{}
	f.group("Flags").BoolVar(&d.json, "json", false, "print JSON")
	return f, d
}

// diagnosis is what gic doctor finds.
type diagnosis struct {
	Machine  record.Machine   `json:"machine"`
	Backends []backendVerdict `json:"backends"`
	Checks   []machine.Check  `json:"checks"`
}

type backendVerdict struct {
	Name string `json:"name"`
	Doc  string `json:"doc"`
	// Ready says whether it runs here; Why is then empty, else the first thing missing and how to get it.
	Ready bool   `json:"ready"`
	Why   string `json:"why,omitempty"`
}

// What a default run takes, for judging the machine: two ranks with a device thread and a NIC engine thread
// each, and their windows and queues.
var defaultWant = machine.Want{Threads: 4, Shm: 64 << 20}

func (a *app) doctor(args []string) error {
	f, d := newDoctorFlags()
	if err := f.parse(args); err != nil {
		return err
	}
	if f.help {
		return a.commandHelp("doctor")
	}
	if f.all.NArg() > 0 {
		return usagef("doctor takes no argument %q", f.all.Arg(0))
	}
	ctx, stop := interruptible()
	defer stop()
	list, err := describeBackends(ctx, nil)
	if err != nil {
		return err
	}
	diag := diagnosis{Machine: readMachine(), Checks: machine.Doctor(ctx, defaultWant)}
	for _, b := range list {
		v := backendVerdict{Name: b.Name, Doc: b.Doc, Ready: b.Here == ready, Why: b.Here}
		if v.Ready {
			v.Why = ""
		}
		diag.Backends = append(diag.Backends, v)
	}
	if d.json {
		e := json.NewEncoder(a.stdout)
		e.SetIndent("", "  ")
		return e.Encode(diag)
	}
	diag.print(a.stdout)
	return nil
}

func (d *diagnosis) print(w io.Writer) {
	fmt.Fprintf(w, "Backends\n\n")
	for _, b := range d.Backends {
		verdict := "runs here"
		if !b.Ready {
			verdict = "cannot run here: " + b.Why
		}
		head(w, b.Name, verdict)
	}
	fmt.Fprintf(w, "\nMachine\n\n")
	t := newTable(w)
	for _, c := range d.Checks {
		found := c.Found
		if c.Get != "" {
			found += "\n-> " + c.Get
			if c.For != "" {
				found += " (for " + c.For + ")"
			}
		}
		t.AppendRow(table.Row{"  " + c.Name, string(c.State), wrap(found, 68)})
	}
	t.Render()
	for _, port := range d.Machine.RDMA {
		printFacts(w, "RDMA port", port)
	}
	for _, gpu := range d.Machine.GPU {
		printFacts(w, "GPU", gpu)
	}
	if len(d.Machine.RDMA)+len(d.Machine.GPU) > 0 && len(d.Machine.Absent) > 0 { // else the checks have said it
		fmt.Fprintf(w, "\nNot readable here\n\n")
		for _, s := range d.Machine.Absent {
			fmt.Fprintf(w, "  %s\n", indent(wrap(s, width-4), 4))
		}
	}
}

// printFacts prints a section of the machine, whatever keys it has: the names are those of the records.
func printFacts(w io.Writer, title string, section any) {
	b, err := json.Marshal(section)
	if err != nil {
		return
	}
	var m map[string]any
	if json.Unmarshal(b, &m) != nil {
		return
	}
	fmt.Fprintf(w, "\n%s\n\n", title)
	t := newTable(w)
	for _, k := range slices.Sorted(maps.Keys(m)) {
		v, err := json.Marshal(m[k])
		if err != nil {
			continue
		}
		t.AppendRow(table.Row{"  " + k, wrap(strings.Trim(string(v), `"`), 66)})
	}
	t.Render()
}
