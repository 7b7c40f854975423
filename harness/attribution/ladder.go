package attribution

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gic/harness/record"
)

// mostToggles bounds the choices whose every combination is looked up.
const mostToggles = 6

// Ladder turns the floor into the library one choice at a time. Each rung is the difference of two floor rows; where
// every combination of the choices was measured, a part is the mean of its differences over all orders (Shapley),
// else the differences in one order, else the difference of the choice alone.
type Ladder struct {
	// Order of the rungs, as terms or keys; those that are not named follow in the order of the vocabulary. Empty:
	// the mean over all orders where it can be had.
	Order []string
}

var _ Method = Ladder{}

// CheckOrder says whether an order names terms or floor keys.
func CheckOrder(order []string) error {
	for _, o := range order {
		known := slices.Contains(Names(), o)
		for _, t := range terms {
			known = known || slices.ContainsFunc(t.Floor, func(k Key) bool { return k.Name == o })
		}
		if !known {
			return fmt.Errorf("%q is neither a term nor a floor key; terms: %s", o, strings.Join(Names(), ", "))
		}
	}
	return nil
}

// Name of the method.
func (Ladder) Name() string { return "ladder" }

// climb is one ladder being built.
type climb struct {
	g       *Gap
	rows    []*Row // of the floor at the gap's place
	keys    []string
	toggles []Choice
	found   map[uint]*Row
}

// issueOnly says that a row is unsafe by its order on this NIC, but posts as it says: what issuing costs is still right.
// No order at all is no rung of anything.
func (w *Row) issueOnly(metric string) bool {
	return metric == "issue" && w.Status() == record.Unsafe && w.Config("order") != "none"
}

// Split gives the ladder of a gap.
func (l Ladder) Split(g *Gap) (*Split, error) {
	if _, _, _, ok := g.Times(); !ok {
		return nil, Blind("a row has no %s", g.Metric)
	}
	s := &Split{Method: l.Name(), Gap: g}
	c := &climb{g: g, found: map[uint]*Row{}}
	for _, w := range g.Run.Rows {
		if w.Backend() != g.Floor.Backend() || !w.SamePlace(g.Floor) {
			continue
		}
		if _, ok := w.Time(g.Metric); ok && (w.Status() == record.OK || w.issueOnly(g.Metric)) {
			c.rows = append(c.rows, w)
		}
	}
	c.keys = keysOf(c.rows, g.Floor.Backend())
	for _, choice := range g.choices() {
		if g.Floor.Config(choice.Key) == choice.Value {
			s.Same = append(s.Same, choice)
		} else {
			c.toggles = append(c.toggles, choice)
		}
	}
	l.sort(c.toggles, g.Floor.Backend())
	if len(c.toggles) <= mostToggles && c.complete() && len(l.Order) == 0 {
		c.shapley(s)
	} else {
		c.chain(s)
	}
	s.Covers = c.covers(s)
	if err := s.Close(); err != nil {
		return nil, err
	}
	c.inLibrary(s)
	return s, s.Check()
}

// sort puts the toggles into the order that was asked for.
func (l Ladder) sort(toggles []Choice, floor string) {
	at := func(c Choice) int {
		i := slices.IndexFunc(l.Order, func(o string) bool { return o == c.Key || o == string(termOfKey(floor, c.Key)) })
		if i < 0 {
			return len(l.Order)
		}
		return i
	}
	slices.SortStableFunc(toggles, func(a, b Choice) int { return at(a) - at(b) })
}

// at finds the floor row with the toggles of a mask set, nil if none was measured.
func (c *climb) at(mask uint) *Row {
	if w, ok := c.found[mask]; ok {
		return w
	}
	want := map[string]string{}
	for _, k := range c.keys {
		want[k] = c.g.Floor.Config(k)
	}
	for i, t := range c.toggles {
		if mask&(1<<i) != 0 {
			want[t.Key] = t.Value
		}
	}
	var found *Row
	if mask == 0 {
		found = c.g.Floor
	}
	for _, w := range c.rows {
		if found != nil {
			break
		}
		if !slices.ContainsFunc(c.keys, func(k string) bool { return w.Config(k) != want[k] }) {
			found = w
		}
	}
	c.found[mask] = found
	return found
}

// time is the floor's time with the toggles of a mask.
func (c *climb) time(mask uint) (Quantity, bool) {
	w := c.at(mask)
	if w == nil {
		return Quantity{}, false
	}
	return w.Time(c.g.Metric)
}

func (c *climb) complete() bool {
	for mask := range uint(1) << len(c.toggles) {
		if c.at(mask) == nil {
			return false
		}
	}
	return true
}

// marginals are the differences that a toggle makes on top of each combination of the others that was measured.
func (c *climb) marginals(i int) []Quantity {
	var out []Quantity
	if len(c.toggles) > mostToggles {
		return nil
	}
	for mask := range uint(1) << len(c.toggles) {
		if mask&(1<<i) != 0 {
			continue
		}
		with, ok1 := c.time(mask | 1<<i)
		without, ok2 := c.time(mask)
		if ok1 && ok2 {
			out = append(out, with.Sub(without))
		}
	}
	return out
}

// spread is the range of a toggle's differences; nil if there is one only.
func (c *climb) spread(i int, of string) *Spread {
	m := c.marginals(i)
	if len(m) < 2 {
		return nil
	}
	s := &Spread{Low: m[0].Value, High: m[0].Value, Of: of}
	for _, q := range m[1:] {
		s.Low, s.High = min(s.Low, q.Value), max(s.High, q.Value)
	}
	return s
}

// part makes the summand of a toggle.
func (c *climb) part(i int, q Quantity, how string) Part {
	t := c.toggles[i]
	return Part{
		Terms: []Name{termOfKey(c.g.Floor.Backend(), t.Key)}, Quantity: q,
		What: fmt.Sprintf("%s %s -> %s", t.Key, c.g.Floor.Config(t.Key), t.Value), How: how, Source: t.Source,
	}
}

// shapley gives each toggle the mean of its differences over all orders.
func (c *climb) shapley(s *Split) {
	n := len(c.toggles)
	orders := factorial(n)
	for i := range c.toggles {
		var sum Quantity
		for mask := range uint(1) << n {
			if mask&(1<<i) != 0 {
				continue
			}
			with, _ := c.time(mask | 1<<i)
			without, _ := c.time(mask)
			k := ones(mask)
			sum = sum.Add(with.Sub(without).Scale(factorial(k) * factorial(n-k-1) / orders))
		}
		how := fmt.Sprintf("mean over all %.0f orders of the rungs", orders)
		if n == 1 {
			how = c.difference(0, 1<<i)
		}
		p := c.part(i, sum, how)
		p.Spread = c.spread(i, fmt.Sprintf("all %.0f orders", orders))
		s.Parts = append(s.Parts, p)
	}
}

// difference says which two rows a rung is the difference of.
func (c *climb) difference(from, to uint) string {
	a, b := c.at(from), c.at(to)
	x, _ := a.Time(c.g.Metric)
	y, _ := b.Time(c.g.Metric)
	text := fmt.Sprintf("%s (%s) - %s (%s)", micro(y.Value), b.Source(), micro(x.Value), a.Source())
	if b.Status() == record.Unsafe || a.Status() == record.Unsafe {
		text += ", unsafe on this NIC: the time of issuing alone"
	}
	return text
}

// chain gives each toggle its difference in the order of the rungs, on top of the rungs before it, or alone where
// that combination was not measured.
func (c *climb) chain(s *Split) {
	mask := uint(0)
	for i, t := range c.toggles {
		bit := uint(1) << i
		before, ok1 := c.time(mask)
		after, ok2 := c.time(mask | bit)
		alone, ok3 := c.time(bit)
		base, _ := c.time(0)
		switch {
		case ok1 && ok2:
			how := c.difference(mask, mask|bit)
			if mask != 0 {
				how += ", on top of the rungs before"
			}
			p := c.part(i, after.Sub(before), how)
			p.Spread = c.spread(i, "the orders that were measured")
			s.Parts = append(s.Parts, p)
			mask |= bit
		case ok3:
			p := c.part(i, alone.Sub(base), c.difference(0, bit)+", alone: not measured together with the other rungs")
			s.Parts = append(s.Parts, p)
			s.Notes = append(s.Notes, Note{"alone", fmt.Sprintf("%s=%s was measured alone only: what it does together with the other choices is in the residual",
				t.Key, t.Value), "ladder"})
		default:
			s.Missing = append(s.Missing, t)
		}
	}
}

// covers are the terms that the ladder speaks of: those with a rung, those that are the same on both sides, and those
// that the floor has a key for and in which no difference is documented. A choice without a rung takes its term out.
// Messages and signals are the same where the NIC counted as many work requests per operation.
func (c *climb) covers(s *Split) []Name {
	var out []Name
	add := func(n Name) {
		if n != "" && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	floor := c.g.Floor.Backend()
	for _, t := range terms {
		if slices.ContainsFunc(t.Floor, func(k Key) bool { return k.Backend == floor }) {
			add(t.Name)
		}
	}
	theirs, ok1 := perMessage(c.g.Row, "wqes")
	ours, ok2 := perMessage(c.g.Floor, "wqes")
	if ok1 && ok2 && theirs == ours {
		add(SignalProtocol)
		add(Algorithm)
	}
	drop := func(n Name) { out = slices.DeleteFunc(out, func(o Name) bool { return o == n }) }
	drop(DoorbellPath) // the key says who rings, not how often
	for _, r := range c.g.Readings() {
		drop(r.Term)
	}
	for _, t := range s.Same {
		add(termOfKey(floor, t.Key))
	}
	for _, p := range s.Parts {
		for _, n := range p.Terms {
			add(n)
		}
	}
	for _, t := range s.Missing {
		drop(termOfKey(floor, t.Key))
	}
	return out
}

// swap is what a choice makes in the library itself: the library's time minus its time with the choice undone.
type swap struct {
	Quantity
	to, source string
}

// swaps finds rows of the same library that differ in one key only, and published differences of that kind.
func (g *Gap) swaps(c Choice) (swap, bool) {
	own, _ := g.Row.Time(g.Metric)
	undone := c.Undone
	if undone == nil {
		undone = map[string]string{c.Key: g.Floor.Config(c.Key)}
	}
	for _, w := range g.Run.Rows {
		if w == g.Row || w.Backend() != g.Row.Backend() || w.Status() != record.OK || !w.SamePlace(g.Row) {
			continue
		}
		differs := slices.ContainsFunc(keysOf([]*Row{w, g.Row}, w.Backend()), func(k string) bool {
			if v, ok := undone[k]; ok {
				return w.Config(k) != v || g.Row.Config(k) == v
			}
			return w.Config(k) != g.Row.Config(k)
		})
		if q, ok := w.Time(g.Metric); ok && !differs {
			to := g.Floor.Config(c.Key)
			if c.Undone != nil {
				to = strings.Join(sorted(undone), " ")
			}
			return swap{own.Sub(q), to, w.Source()}, true
		}
	}
	for _, w := range g.Run.Rows {
		e := w.First()
		if e.Workload != effectWorkload || e.Backend != g.Row.Backend() || e.Config[c.Key] == "" || e.Config[c.Key] == c.Value {
			continue
		}
		fits := true
		for k, v := range e.Config {
			fits = fits && (k == c.Key || g.Row.Config(k) == "" || g.Row.Config(k) == v)
		}
		for k, v := range e.Axes {
			fits = fits && g.Row.First().Axes[k] == v
		}
		if q, ok := w.Time(g.Metric + "_saved"); ok && fits {
			return swap{q, e.Config[c.Key], w.Source()}, true
		}
	}
	return swap{}, false
}

// effectWorkload are records of a published difference without its two ends.
const effectWorkload = "effect"

// inLibrary sets beside each part what the same choice makes in the library itself, where that is known. Where the
// two differ, the terms do not add, and the residual has a range.
func (c *climb) inLibrary(s *Split) {
	other := s.Residual.Value
	any := false
	for i := range s.Parts {
		p := &s.Parts[i]
		at := slices.IndexFunc(c.toggles, func(t Choice) bool { return strings.HasPrefix(p.What, t.Key+" ") })
		w, ok := c.g.swaps(c.toggles[at])
		if !ok {
			continue
		}
		any = true
		other += p.Value - w.Value
		low, high := min(p.Value, w.Value), max(p.Value, w.Value)
		if p.Spread != nil {
			low, high = min(low, p.Spread.Low), max(high, p.Spread.High)
		}
		p.Spread = &Spread{low, high, fmt.Sprintf("%s swapped in the library (to %s, %s)", micro(w.Value), w.to, w.source)}
		if !agree(p.Quantity, w.Quantity, 0) {
			why := "in the library part of it hides behind other work"
			if w.Value > p.Value {
				why = "in the library it costs more than on its own"
			}
			s.Notes = append(s.Notes, Note{"interaction", fmt.Sprintf(
				"%s is %s swapped on the floor (%s -> %s) and %s swapped in the library (%s -> %s): %s, so the terms do not add up; the residual is %s or %s",
				p.Terms[0], signedMicro(p.Value), c.g.Floor.Config(c.toggles[at].Key), c.toggles[at].Value, signedMicro(w.Value), c.toggles[at].Value, w.to,
				why, micro(s.Residual.Value), micro(s.Residual.Value+p.Value-w.Value)), "interaction"})
		}
	}
	if any {
		s.ResidualSpread = &Spread{min(other, s.Residual.Value), max(other, s.Residual.Value), "swapped on the floor or in the library"}
	}
}

// bounds is the interval of a quantity; an exact one has a point for it.
func (q Quantity) bounds() (low, high float64, ok bool) {
	if q.reps == nil && q.Runs == 0 {
		return q.Value.Seconds(), q.Value.Seconds(), true
	}
	return q.Interval()
}

// agree says whether two values of the same thing agree: their intervals overlap, or they are within tolerance of
// each other: 10 % of the larger, or least where that is more.
func agree(a, b Quantity, least Femto) bool {
	diff := a.Value - b.Value
	if diff < 0 {
		diff = -diff
	}
	limit := max(Femto(tolerance*math.Max(math.Abs(float64(a.Value)), math.Abs(float64(b.Value)))), least)
	if diff <= limit {
		return true
	}
	al, ah, ok1 := a.bounds()
	bl, bh, ok2 := b.bounds()
	return ok1 && ok2 && al <= bh && bl <= ah
}

// tolerance is how far apart two methods, or a planted cost and what was found, may lie where no interval says more.
const tolerance = 0.10

func factorial(n int) float64 {
	f := 1.0
	for i := 2; i <= n; i++ {
		f *= float64(i)
	}
	return f
}

func ones(mask uint) int {
	n := 0
	for ; mask != 0; mask &= mask - 1 {
		n++
	}
	return n
}
