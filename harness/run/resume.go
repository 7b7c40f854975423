package run

import "gic/harness/record"

// Resume is what an earlier run has finished.
type Resume struct {
	// Done holds the cases that need no second measurement.
	Done map[Key]bool
	// Order is the next value of record.Case.Order.
	Order int
}

// Key names one planned record.
type Key struct {
	ID    string
	Index int
}

// Add takes in a record of the earlier run, in the order of its file: of several records of one key the last one
// counts. What was ok, skipped or deliberately unsafe is finished; what failed, hung or could not be verified is
// measured again.
func (r *Resume) Add(c *record.Case) {
	if r.Done == nil {
		r.Done = map[Key]bool{}
	}
	switch c.Status {
	case record.OK, record.Skipped, record.Unsafe:
		r.Done[Key{c.ID, c.Index}] = true
	default:
		delete(r.Done, Key{c.ID, c.Index})
	}
	r.Order = max(r.Order, c.Order+1)
}
