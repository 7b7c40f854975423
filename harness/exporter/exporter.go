// Package exporter writes records in the formats of other tools: benchstat's, Prometheus's textfile collector's,
// Chrome's and Perfetto's traces; csv and the columns of nccl-tests are package report's.
package exporter

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"gic/harness/record"
	"gic/harness/report"
	"gic/minigda/nictrace"
)

// exporters by format, in the order in which they are listed.
var exporters = []struct {
	format, doc string
	write       func(w io.Writer, runs []Run) error
}{
	{"benchfmt", "Go benchmark format, one line per process run: what benchstat reads", writeBenchfmt},
	{"csv", "one line per case and metric, every key a column", rendered("csv")},
	{"nccl-tests", "the columns of nccl-tests", rendered("nccl-tests")},
	{"prometheus", "text of a textfile collector: medians over process runs", writePrometheus},
	{"perfetto", "Chrome trace-event JSON: when which backend ran what", writePerfetto},
}

// Formats lists the formats of Write.
func Formats() []string {
	var names []string
	for _, e := range exporters {
		names = append(names, e.format)
	}
	return names
}

// Describe says what a format is, in one line.
func Describe(format string) string {
	for _, e := range exporters {
		if e.format == format {
			return e.doc
		}
	}
	return ""
}

// Run is a header and the cases behind it, each process run of a case once.
type Run struct {
	Header *record.Header // nil for cases without one
	Cases  []*record.Case
}

// Load reads the runs of files. Lines that are no records are returned beside them; the error is for a file that
// cannot be read or holds no run.
func Load(files []string) (runs []Run, bad []*record.Bad, err error) {
	for _, file := range files {
		if IsTrace(file) {
			return nil, nil, fmt.Errorf("%s is a NIC trace: it can be exported to perfetto only, alone", file)
		}
		n := len(runs)
		for rec, err := range record.ReadFile(file) {
			if err != nil {
				return nil, nil, err
			}
			switch rec := rec.(type) {
			case *record.Header:
				if k := len(runs); k > n && runs[k-1].Header != nil && runs[k-1].Header.ID == rec.ID {
					continue // a resumed run goes on
				}
				runs = append(runs, Run{Header: rec})
			case *record.Case:
				if len(runs) == n {
					return nil, nil, fmt.Errorf("%s is no run file: it does not begin with a header", file)
				}
				runs[len(runs)-1].Cases = append(runs[len(runs)-1].Cases, rec)
			case *record.Bad:
				if len(runs) == n {
					return nil, nil, fmt.Errorf("%s is no run file: %v", file, rec.Err)
				}
				bad = append(bad, rec)
			}
		}
		if len(runs) == n {
			return nil, nil, fmt.Errorf("%s is no run file: it is empty", file)
		}
	}
	for i := range runs {
		runs[i].Cases = last(runs[i].Cases)
	}
	return runs, bad, nil
}

// head is the beginning of a file, to tell what it is; empty if it cannot be read.
func head(file string) []byte {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, len(nictrace.Magic))
	n, _ := io.ReadFull(f, b)
	return b[:n]
}

// last keeps of a process run that was recorded again, by a resumed run, the last record, in the first one's place.
func last(cases []*record.Case) []*record.Case {
	type key struct {
		id    string
		index int
	}
	at := make(map[key]int, len(cases))
	out := cases[:0:0]
	for _, c := range cases {
		k := key{c.ID, c.Index}
		if i, ok := at[k]; ok {
			out[i] = c
			continue
		}
		at[k] = len(out)
		out = append(out, c)
	}
	return out
}

// Write exports runs.
func Write(w io.Writer, format string, runs []Run) error {
	i := slices.IndexFunc(exporters, func(e struct {
		format, doc string
		write       func(w io.Writer, runs []Run) error
	}) bool {
		return e.format == format
	})
	if i < 0 {
		return fmt.Errorf("unknown format %q: use one of %s", format, strings.Join(Formats(), ", "))
	}
	return exporters[i].write(w, runs)
}

// rendered is a format of package report.
func rendered(format string) func(io.Writer, []Run) error {
	return func(w io.Writer, runs []Run) error {
		r := report.New()
		for _, run := range runs {
			if run.Header != nil {
				r.Add(run.Header)
			}
			for _, c := range run.Cases {
				r.Add(c)
			}
		}
		return r.Render(w, format, 0)
	}
}
