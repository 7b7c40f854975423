package report

import (
	"slices"

	"gic/harness/record"
)

// Lint makes remarks on how well the rows of a run compare.
type Lint interface {
	// Add takes a record of a run, by its number. The record may be changed afterwards.
	Add(run int, c *record.Case)
	// Lines are printed under the tables of a run.
	Lines(run int) []string
}

// SetLint has the records added later looked at.
func (r *Report) SetLint(l Lint) { r.lint = l }

// lintLines are the remarks on a run.
func (u *run) lintLines() []string {
	if u.of.lint == nil {
		return nil
	}
	return u.of.lint.Lines(slices.Index(u.of.runs, u))
}
