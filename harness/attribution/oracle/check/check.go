// Package check holds the oracle against the rows of a paper: which of them the constants come from, which are
// predicted without having been looked at, and for which there is no prediction, and why.
package check

import (
	"fmt"
	"math"
	"slices"

	"gic/harness/attribution/oracle"
)

// Row is one figure of a paper.
type Row struct {
	ID         string
	Platform   string
	Workload   string // of the record
	Where      string // table or section
	Quantity   string
	Value      float64
	Unit       string
	Conditions oracle.Conditions
	// Same names the row that is the same measurement, printed a second time. Such rows are counted once.
	Same string
}

// Base is the value in its base unit.
func (r *Row) Base() float64 {
	v, _, err := oracle.Base(r.Value, r.Unit)
	if err != nil {
		panic(fmt.Sprintf("row %s: %v", r.ID, err)) // ReadRows has checked the units
	}
	return v
}

// Status of a row.
type Status string

// The statuses.
const (
	Constant Status = "constant" // a constant of some platform was derived from it
	HeldOut  Status = "held out" // predicted without it
	Outside  Status = "outside"  // no prediction; Reason says why
	// Reference is Outside, of an experiment that gic could not have measured itself.
	Reference Status = "reference"
)

// Outcome is what the oracle makes of one row.
type Outcome struct {
	*Row
	Status     Status
	Measured   bool // gic has a workload that measures it
	Prediction *oracle.Prediction
	Reason     string  // of Outside
	Error      float64 // predicted / paper - 1, of HeldOut
	Cause      string  // of a miss
}

// MissAbove is the error from which on a held-out row is listed as a miss, with its cause.
const MissAbove = 0.15

// Table is the outcome of all rows.
type Table struct {
	Outcomes []*Outcome
	// Counts of rows, duplicates left out. HeldOut and Outside are of experiments that gic has a workload for, the
	// other two of those that it has none for.
	Constants, HeldOut, Outside, ReferenceHeldOut, Reference int
	Median, Largest                                          float64 // of the errors' sizes; Largest without the misses
	Misses                                                   []*Outcome
}

// Run predicts every row from the platforms. measured says whether gic has a workload of that name.
func Run(rows []*Row, platforms map[string]*oracle.Platform, measured func(workload string) bool) *Table {
	constant := map[string]bool{}
	for _, p := range platforms {
		for _, k := range p.Constants {
			for _, id := range k.Rows {
				constant[id] = true
			}
		}
	}
	t := &Table{}
	var errors []float64
	for _, r := range rows {
		o := &Outcome{Row: r, Measured: measured(r.Workload)}
		t.Outcomes = append(t.Outcomes, o)
		o.judge(platforms[r.Platform], constant[r.ID] || r.Same != "" && constant[r.Same])
		if r.Same != "" {
			continue
		}
		switch o.Status {
		case Constant:
			t.Constants++
		case Outside:
			t.Outside++
		case Reference:
			t.Reference++
		case HeldOut:
			if o.Measured {
				t.HeldOut++
			} else {
				t.ReferenceHeldOut++
			}
			errors = append(errors, math.Abs(o.Error))
			if math.Abs(o.Error) > MissAbove {
				t.Misses = append(t.Misses, o)
			} else {
				t.Largest = max(t.Largest, math.Abs(o.Error))
			}
		}
	}
	if len(errors) > 0 {
		slices.Sort(errors)
		n := len(errors)
		t.Median = (errors[(n-1)/2] + errors[n/2]) / 2
	}
	return t
}

func (o *Outcome) judge(p *oracle.Platform, constant bool) {
	if constant {
		o.Status = Constant
		return
	}
	outside := Outside
	if !o.Measured {
		outside = Reference
	}
	if p == nil {
		o.Status, o.Reason = outside, "there is no platform "+o.Platform
		return
	}
	o.Prediction = p.Predict(oracle.Query{Quantity: o.Quantity, Conditions: o.Conditions})
	if !o.Prediction.OK() {
		o.Status, o.Reason = outside, o.Prediction.None
		return
	}
	o.Status = HeldOut
	o.Error = o.Prediction.Value/o.Row.Base() - 1
	if math.Abs(o.Error) > MissAbove {
		o.Cause = causes[o.ID]
	}
}
