// Package cli is the command line of gic. It is the only package that knows flags, and it holds the two lists of
// what gic is made of: the backends (backends.go) and the workloads (workloads.go).
//
// Results go to stdout, progress and errors to stderr. An error is one line; a usage error ends with status 2.
package cli

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"gic/harness/plan"
)

// Exit statuses.
const (
	exitOK          = 0
	exitFailed      = 1   // something failed, timed out or could not be verified
	exitUsage       = 2   // the request makes no sense; nothing was started
	exitInterrupted = 130 // by SIGINT or SIGTERM; the records so far are kept
)

// app is one invocation. An agent that is not to speak has nowhere to write.
type app struct {
	stdout, stderr io.Writer
}

// command is one word behind gic.
type command struct {
	name, short string
	hidden      bool
	run         func(a *app, args []string) error
}

// commands is a function, not a variable: help itself lists them.
func commands() []command {
	return []command{
		{name: "run", short: "measure: run the same work over several backends, side by side", run: (*app).run},
		{name: "list", short: "what there is: workloads, backends, suites, NIC profiles, models", run: (*app).list},
		{name: "show", short: "print recorded results again, as a table or for other tools", run: (*app).show},
		{name: "attribute", short: "say how much of a gap is a choice of the mechanism and how much is library", run: (*app).attribute},
		{name: "report", short: "write recorded results as one HTML file: tables, plots, method, data", run: (*app).report},
		{name: "import", short: "take the results of other tools as rows to compare with", run: (*app).importResults},
		{name: "export", short: "write recorded results for benchstat, Prometheus, Perfetto, spreadsheets", run: (*app).export},
		{name: "diff", short: "compare two sets of results, and say what became worse", run: (*app).diff},
		{name: "baseline", short: "give runs a name to compare with", run: (*app).baseline},
		{name: "history", short: "follow cases over runs, with change points", run: (*app).history},
		{name: "results", short: "look after a folder of runs: list, query, prune, verify", run: (*app).results},
		{name: "replay", short: "post what a row asked of the NIC by the minimal path, beside the row", run: (*app).replay},
		{name: "trace", short: "what a stack asked of the software NIC: show, stats, diff, export", run: (*app).trace},
		{name: "predict", short: "say what a platform should take, from constants with their sources", run: (*app).predict},
		{name: "calibrate", short: "fit a platform for gic predict from the records of runs", run: (*app).calibrate},
		{name: "doctor", short: "what this machine can run, and what is missing for the rest", run: (*app).doctor},
		{name: "help", short: "help for a command", run: (*app).help},
		{name: "version", short: "version of gic", run: (*app).version},
		{name: "rank", hidden: true, run: (*app).rank},
		{name: "describe", hidden: true, run: (*app).describe},
		{name: "probe", hidden: true, run: (*app).probe},
	}
}

// usageError is a request that makes no sense.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitError ends gic with a status when all has been said already.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// Run executes gic with the arguments behind the program's name and returns the exit status.
func Run(stdout, stderr io.Writer, args []string) int {
	a := &app{stdout: stdout, stderr: stderr}
	err := a.dispatch(args)
	var exit exitError
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return int(exit)
	case errors.As(err, &usage):
		fmt.Fprintf(a.stderr, "gic: %s\n", oneLine(err))
		return exitUsage
	}
	fmt.Fprintf(a.stderr, "gic: %s\n", oneLine(err))
	return exitFailed
}

// oneLine keeps an error that a library spread over lines on one.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func (a *app) dispatch(args []string) error {
	if len(args) == 0 {
		return a.help(nil)
	}
	name, rest := args[0], args[1:]
	switch name {
	case "-h", "--help":
		return a.help(nil)
	case "--version":
		return a.version(nil)
	}
	var known []string
	for _, c := range commands() {
		if c.name == name {
			return c.run(a, rest)
		}
		if !c.hidden {
			known = append(known, c.name)
		}
	}
	if strings.HasPrefix(name, "-") {
		return usagef("a command comes first: gic run %s; commands: %s", name, strings.Join(known, ", "))
	}
	return usageError{plan.UnknownName("command", name, known, "")}
}

func (a *app) version(args []string) error {
	if len(args) > 0 {
		return usagef("version takes no arguments, got %q", args[0])
	}
	fmt.Fprintf(a.stdout, "gic %s\n", Version())
	return nil
}

// release is set by a release build: -ldflags "-X gic/harness/cli.release=v1.2.3".
var release string

// Version of gic: the release, or the revision it was built from as far as the build knows it.
func Version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	version := "devel"
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			version += "-" + s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			version += "-dirty"
		}
	}
	return version
}
