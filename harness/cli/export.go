package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"gic/harness/exporter"
	"gic/harness/record"
	"gic/minigda/nictrace"
)

const helpExport = `Usage: gic export --format FORMAT DIR|FILE... [flags]

Writes recorded results for other tools.

  $ gic export --format benchfmt results/local/cx7 -o new.txt
  $ gic export --format prometheus results/local/cx7 -o /var/lib/node_exporter/gic.prom
  $ gic export --format perfetto results/local/cx7 -o trace.json
  $ gic export --format csv results/local

benchfmt has one line per process run: ` + "`benchstat old.txt new.txt`" + ` counts them as gic does.
prometheus is for a textfile collector. perfetto opens in ui.perfetto.dev; given a trace file of the
software NIC (a session's nic.trace) it shows each QP's doorbells and WQEs. csv and nccl-tests are
those of gic show.
`

type exportFlags struct {
	format oneOf
	out    string
}

func newExportFlags() (*flags, *exportFlags) {
	f, e := newFlags("export"), &exportFlags{format: oneOf{"", exporter.Formats()}}
	g := f.group("Flags")
	g.Var(&e.format, "format", "what to write")
	g.StringVarP(&e.out, "output", "o", "", "write to `FILE` instead of stdout, all of it or nothing")
	return f, e
}

// export is gic export.
func (a *app) export(args []string) error {
	f, e := newExportFlags()
	if err := f.parse(args); err != nil {
		return err
	}
	if f.help {
		return a.commandHelp("export")
	}
	if e.format.value == "" {
		return usagef("export needs --format: one of %s", strings.Join(exporter.Formats(), ", "))
	}
	if f.all.NArg() == 0 {
		return usagef("export takes at least one DIR or FILE; runs are kept in $GIC_RESULTS or results/local unless --out says otherwise")
	}
	write, err := a.exportOf(e.format.value, f.all.Args())
	if err != nil {
		return err
	}
	if e.out == "" {
		return write(a.stdout)
	}
	return writeFile(e.out, write)
}

// exportOf reads what is to be exported and returns what writes it.
func (a *app) exportOf(format string, paths []string) (func(io.Writer) error, error) {
	if exporter.IsTrace(paths[0]) {
		switch {
		case format != "perfetto":
			return nil, usagef("%s is a NIC trace, which --format %s cannot show; allowed: perfetto", paths[0], format)
		case len(paths) > 1:
			return nil, usagef("a NIC trace is exported alone, got %d files", len(paths))
		}
		t, err := nictrace.ReadFile(paths[0])
		if err != nil {
			return nil, usageError{err}
		}
		return func(w io.Writer) error { return exporter.WriteTrace(w, t) }, nil
	}
	var files []string
	for _, path := range paths {
		list, err := record.Files(path)
		if err != nil {
			return nil, usageError{err}
		}
		files = append(files, list...)
	}
	runs, bad, err := exporter.Load(files)
	if err != nil {
		return nil, usageError{err}
	}
	for _, b := range bad {
		fmt.Fprintf(a.stderr, "gic: %s\n", oneLine(b))
	}
	return func(w io.Writer) error {
		if err := exporter.Write(w, format, runs); err != nil {
			return err
		}
		if len(bad) > 0 {
			return exitError(exitFailed)
		}
		return nil
	}, nil
}

// writeFile writes a file beside its place and moves it there, so that a reader (a collector, say) never sees half
// of it. A file for which records were missing is written as well; its error is kept. A place where nothing can be
// written is a usage error.
func writeFile(path string, write func(io.Writer) error) error {
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() { // a pipe, /dev/stdout
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return usagef("write %s: %w", path, unwrapPath(err))
		}
		return errors.Join(write(f), f.Close())
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return usagef("write %s: %w", path, unwrapPath(err))
	}
	defer os.Remove(f.Name())
	werr := write(f)
	var exit exitError
	if werr != nil && !errors.As(werr, &exit) {
		f.Close()
		return werr
	}
	if err := errors.Join(f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return werr
}
