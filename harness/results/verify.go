package results

import (
	"fmt"
	"math"

	"gic/harness/record"
)

// Verified is what Verify found in some run files.
type Verified struct {
	Files, Runs, Records int
	Problems             []string // each with file and line
}

// Verify reads run files as hard as it can: lines that are no records, torn lines and unknown schemas; IDs that
// are not the hash of the keys; summaries that are not those of their samples, and histograms that cannot be
// read or do not hold what they say; process runs recorded twice; a run that is in two files; fewer records than
// planned. Nothing is changed.
func Verify(files []string) (*Verified, error) {
	v := &Verified{}
	runs := map[string]string{} // ID to file
	for _, file := range files {
		v.Files++
		if err := v.file(file, runs); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func (v *Verified) file(file string, runs map[string]string) error {
	type place struct {
		id    string
		index int
	}
	var header *record.Header
	var seen map[place]int
	problem := func(line int, format string, args ...any) {
		v.Problems = append(v.Problems, fmt.Sprintf("%s:%d: ", file, line)+fmt.Sprintf(format, args...))
	}
	headerLine := 0
	finish := func() {
		if header != nil && len(seen) < header.Cases {
			problem(headerLine, "run %s is incomplete: %d of %d planned records (gic run --resume finishes it)", header.ID, len(seen), header.Cases)
		}
	}
	last, stray := 0, false
	for at, err := range record.ReadLines(file) {
		if err != nil {
			return err
		}
		last = at.Line
		switch rec := at.Record.(type) {
		case *record.Header:
			if header != nil && header.ID == rec.ID {
				continue // resumed
			}
			finish()
			header, headerLine, seen = rec, at.Line, map[place]int{}
			if other, ok := runs[rec.ID]; ok {
				problem(at.Line, "run %s is also in %s: together they count its process runs once", rec.ID, other)
			} else {
				runs[rec.ID] = file
				v.Runs++
			}
		case *record.Case:
			v.Records++
			if header == nil {
				if !stray {
					problem(at.Line, "a case before any header")
				}
				stray = true
				continue
			}
			if err := deepCheck(rec); err != nil {
				problem(at.Line, "%v", err)
			}
			p := place{rec.ID, rec.Index}
			if line, ok := seen[p]; ok {
				problem(at.Line, "process run %d of case %s (%s on %s) is on line %d already: the last counts", rec.Index, rec.ID, rec.Workload, rec.Backend, line)
			}
			seen[p] = at.Line
		case *record.Bad:
			v.Problems = append(v.Problems, oneLine(rec.Error()))
		}
	}
	if last == 0 {
		v.Problems = append(v.Problems, file+": empty: no run")
	}
	finish()
	return nil
}

// tolerance of a summary against its samples: the mean is a sum whose order may differ.
const tolerance = 1e-9

// deepCheck is record.Check and what that leaves out for speed.
func deepCheck(c *record.Case) error {
	if err := record.Check(c); err != nil {
		return err
	}
	for i := range c.Metrics {
		m := &c.Metrics[i]
		if m.HDR != "" {
			if _, err := record.Merge(*m); err != nil {
				return fmt.Errorf("case %s/%s: %w", c.Workload, c.Backend, err)
			}
			continue
		}
		want, err := record.FromSamples(m.Name, m.Unit, m.Class, m.Samples)
		if err != nil {
			return fmt.Errorf("case %s/%s: %w", c.Workload, c.Backend, err)
		}
		for _, x := range []struct {
			what      string
			got, want float64
		}{{"min", m.Min, want.Min}, {"p50", m.P50, want.P50}, {"p90", m.P90, want.P90}, {"p99", m.P99, want.P99},
			{"max", m.Max, want.Max}, {"mean", m.Mean, want.Mean}} {
			if math.Abs(x.got-x.want) > tolerance*math.Abs(x.want) {
				return fmt.Errorf("case %s/%s: metric %s: %s is %g, its samples make %g", c.Workload, c.Backend, m.Name, x.what, x.got, x.want)
			}
		}
	}
	return nil
}
