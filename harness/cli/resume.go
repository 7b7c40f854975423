package cli

import (
	"context"
	"os"
	"path/filepath"

	"gic/harness/plan"
	"gic/harness/record"
	"gic/harness/run"
)

// reopen makes the plan of an earlier run again and takes from its file what is done.
func reopen(ctx context.Context, r *runFlags, world int) (*session, error) {
	file := filepath.Join(r.resume, record.FileName)
	if _, err := os.Stat(file); err != nil {
		return nil, usagef("--resume %s has no %s; allowed: the folder of a run", r.resume, record.FileName)
	}
	s := &session{dir: r.resume, resume: &run.Resume{Done: map[run.Key]bool{}}, counts: map[run.Key]record.Status{}}
	cases, err := s.readDone(file)
	if err != nil {
		return nil, err
	}
	if len(s.header.Command) < 2 || s.header.Command[1] != "run" {
		return nil, usagef("--resume %s: the header has no command of gic run", r.resume)
	}
	old, err := parseRun(s.header.Command[2:])
	if err != nil {
		return nil, usagef("--resume %s: its command: %w", r.resume, err)
	}
	if world != 0 && world != s.header.Ranks {
		return nil, usagef("--resume %s has %d ranks, the launcher has %d; allowed: the same number", r.resume, s.header.Ranks, world)
	}
	if here := readMachine().Hostname; here != s.header.Host.Hostname {
		return nil, usagef("--resume %s was measured on %s, this is %s; allowed: the same machine", r.resume, s.header.Host.Hostname, here)
	}
	old.ranks.value = s.header.Ranks // a launcher's world size is not in the command
	old.inProcess.value = max(1, s.header.RanksInProcess)
	if s.plan, s.cat, err = old.request(ctx, 0); err != nil {
		return nil, err
	}
	if err := s.samePlan(r.resume, cases); err != nil {
		return nil, err
	}
	if !r.all.Changed("timeout") {
		r.timeout = old.timeout
	}
	if s.writer, err = record.Append(file); err != nil {
		return nil, err
	}
	return s, nil
}

// readDone reads the header and the cases of the run; the last record of a case counts.
func (s *session) readDone(file string) ([]*record.Case, error) {
	var cases []*record.Case
	for rec, err := range record.ReadFile(file) {
		if err != nil {
			return nil, err
		}
		switch rec := rec.(type) {
		case *record.Header:
			if s.header.ID != "" {
				return nil, usagef("--resume: %s holds more than one run", file)
			}
			s.header = *rec
		case *record.Case:
			if s.header.ID == "" {
				return nil, usagef("--resume: %s is no run file: its first line is not the run's header", file)
			}
			cases = append(cases, rec)
			key := run.Key{ID: rec.ID, Index: rec.Index}
			s.counts[key] = rec.Status
			s.resume.Done[key] = rec.Status == record.OK || rec.Status == record.Skipped || rec.Status == record.Unsafe
			s.resume.Order = max(s.resume.Order, rec.Order+1)
		case *record.Bad:
			if !rec.Torn {
				return nil, usagef("--resume: %w", rec)
			}
		}
	}
	if s.header.ID == "" {
		return nil, usagef("--resume: %s holds no run", file)
	}
	return cases, nil
}

// samePlan refuses to go on when the plan has changed: the suite file, a workload or a backend is another one.
func (s *session) samePlan(dir string, cases []*record.Case) error {
	if n := s.plan.Records(); n != s.header.Cases {
		return usagef("--resume %s: the run had %d records to write, its command now gives %d; start a new run", dir, s.header.Cases, n)
	}
	planned := map[run.Key]bool{}
	for i := range s.plan.Outers {
		o := &s.plan.Outers[i]
		for _, pt := range o.Points {
			c := plannedCase(o, pt)
			planned[run.Key{ID: record.CaseID(&c), Index: o.Index}] = true
		}
	}
	for _, c := range cases {
		if !planned[run.Key{ID: c.ID, Index: c.Index}] {
			return usagef("--resume %s: its case %s %s %s is not in the plan of its command now; start a new run", dir, c.Workload, c.Backend, pairs(c.Axes))
		}
	}
	return nil
}

// plannedCase has the keys of the case that a point becomes.
func plannedCase(o *plan.Outer, pt map[string]string) record.Case {
	return record.Case{Workload: o.Workload, Axes: pt, Backend: o.Backend, Config: o.Config, NIC: o.NIC.Kind,
		NICConfig: o.NIC.Config, Device: o.Device, Ranks: o.Ranks, Seed: o.Seed}
}
