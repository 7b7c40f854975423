// Package attribution says where the time of a library row goes: how much of its distance to a floor is a choice
// that the floor can make, too, and how much is the library's own code.
//
//	T_library = T_floor + ordering + completion scope + ... + residual
//
// It looks at records only (package record), of one run at a time, so that a recorded run, an imported one and the
// published tables in results/paper are split in the same way. Three methods split the same gap independently:
//
//   - the ladder turns the floor into the library one choice at a time (Ladder);
//   - the replay posts the library's own NIC trace by the minimal path (package replay);
//   - counts times unit costs (Counts).
//
// Each gives a Split; Judge compares them and names the term in which they disagree. A disagreement is a result.
// The words are Terms, the same in code, output and docs/attribution.md.
package attribution

import (
	"errors"
	"fmt"
)

// Gap is the question: one library row in one metric, and the floor row it is measured against. Both are of one
// run, one point (workload, axes, ranks), one NIC and one device.
type Gap struct {
	Run     *Run
	Metric  string   // as in the records: "issue", "put_completion", ...
	Row     *Row     // the library's
	Floor   *Row     // where the split starts: the floor with its own choices
	Library *Library // what is documented of the library's choices; nil for a floor that poses as a library
	Notes   []Note   // on the comparison itself
}

// Times of the two rows and the gap between them. ok is false where a row does not have the metric.
func (g *Gap) Times() (library, floor, gap Quantity, ok bool) {
	library, ok = g.Row.Time(g.Metric)
	if !ok {
		return library, floor, gap, false
	}
	if floor, ok = g.Floor.Time(g.Metric); !ok {
		return library, floor, gap, false
	}
	return library, floor, library.Sub(floor), true
}

// Title names the gap in one line.
func (g *Gap) Title() string {
	return fmt.Sprintf("%s, %s of %s", g.Row.Label(), g.Metric, g.Row.Point())
}

// Part is one summand of a split.
type Part struct {
	// Terms are what the part is the sum of. Most parts are one term; a replay cannot tell the library's choices
	// apart and gives them as one part of many terms.
	Terms []Name
	Quantity
	What   string   // the choice: "gpu-fence -> threadfence"
	How    string   // how the number came about: rows, counts, unit costs
	Source []string // documentation of the choice: source lines, tables
	// Spread is the smallest and the largest value that the same part has in another order of the rungs, or in
	// another environment (swapped in the library instead of on the floor). Zero values: there is no other.
	Spread *Spread
}

// Spread is the range that a part covers depending on what else is already changed.
type Spread struct {
	Low, High Femto
	Of        string // "24 orders", "swapped in the library"
}

// Split is one method's account of a gap. Parts and Residual sum to the gap exactly.
type Split struct {
	Method   string
	Gap      *Gap
	Parts    []Part
	Residual Quantity
	// Covers are the terms that the method can see at all at this case; all others are in its residual. Judge
	// compares two methods only where both see.
	Covers []Name
	// Same are choices that the floor has already; Missing are those that no row gives a number for, which are
	// therefore in the residual.
	Same, Missing []Choice
	// ResidualSpread is the range of the residual over the other values of the parts; nil where there are none.
	ResidualSpread *Spread
	Notes          []Note
}

// Check says whether the parts and the residual sum to the gap.
func (s *Split) Check() error {
	_, _, gap, ok := s.Gap.Times()
	if !ok {
		return fmt.Errorf("%s: a row has no %s", s.Method, s.Gap.Metric)
	}
	sum := s.Residual.Value
	for _, p := range s.Parts {
		sum += p.Value
	}
	if sum != gap.Value {
		return fmt.Errorf("%s of %s: parts and residual sum to %v, the gap is %v", s.Method, s.Gap.Title(), sum, gap.Value)
	}
	return nil
}

// Close sets the residual so that the split sums to the gap.
func (s *Split) Close() error {
	_, _, rest, ok := s.Gap.Times()
	if !ok {
		return fmt.Errorf("%s: a row has no %s", s.Method, s.Gap.Metric)
	}
	for _, p := range s.Parts {
		rest = rest.Sub(p.Quantity)
	}
	s.Residual = rest
	return nil
}

// Note is a doubt or a remark that stands under a table. Anchor is a heading of docs/attribution.md.
type Note struct {
	Code, Text, Anchor string
}

// ErrBlind marks a case that a method cannot see; the error's text says what it would need.
var ErrBlind = errors.New("not seen")

// Blind makes an error that says what a method would need.
func Blind(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBlind, fmt.Sprintf(format, args...))
}

// Method is one way to split a gap. Implementations are Ladder, Counts and replay.Method.
type Method interface {
	Name() string
	// Split gives the method's account. The error wraps ErrBlind where this run does not hold what the method
	// needs; any other error is a defect of the records.
	Split(g *Gap) (*Split, error)
}
