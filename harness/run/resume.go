package run

// Resume is what an earlier run has finished.
type Resume struct {
	// Done holds the cases that need no second measurement: ok, skipped or unsafe.
	Done map[Key]bool
	// Order is the next value of record.Case.Order.
	Order int
}

// Key names one planned record.
type Key struct {
	ID    string
	Index int
}
