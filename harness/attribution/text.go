package attribution

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// DefaultWidth of a table.
const DefaultWidth = 100

// scale is a unit and the digits behind its point, the same for all numbers of one waterfall, so that what is printed
// adds up, too.
type scale struct {
	unit   string
	femto  float64 // of one unit
	digits int
}

// scaleFor chooses the unit of a gap by the library's time.
func scaleFor(j *Judgement) scale {
	library, floor, _, _ := j.Gap.Times()
	switch top := max(library.Value, floor.Value); {
	case top < 1e8: // 100 ns
		return scale{"ns", 1e6, 2}
	case top < 2e8:
		return scale{"ns", 1e6, 1}
	case top < 1e11:
		return scale{"us", 1e9, 2}
	case top < 1e12:
		return scale{"us", 1e9, 1}
	}
	return scale{"us", 1e9, 0}
}

// round is a time in the smallest printed step.
func (s scale) round(f Femto) int64 {
	return int64(math.Round(float64(f) / s.femto * math.Pow10(s.digits)))
}

// print writes a number of printed steps.
func (s scale) print(v int64) string {
	return fmt.Sprintf("%.*f", s.digits, float64(v)/math.Pow10(s.digits))
}

func (s scale) signed(v int64) string {
	if v > 0 {
		return "+" + s.print(v)
	}
	return s.print(v)
}

// interval is the interval of a quantity in the unit; "" if there is none.
func (s scale) interval(q Quantity) string {
	low, high, ok := q.Interval()
	if !ok {
		return ""
	}
	return s.print(s.round(ToFemto(low))) + ".." + s.print(s.round(ToFemto(high)))
}

func (s scale) spread(p *Spread) string {
	if p == nil || p.Low == p.High {
		return ""
	}
	return s.print(s.round(p.Low)) + " to " + s.print(s.round(p.High))
}

// printed are the numbers of a waterfall as they are printed: the residual takes what rounding leaves, so that a reader
// who adds up the column gets the last line.
type printed struct {
	scale
	floor, library, residual int64
	parts                    []int64
}

func printedOf(j *Judgement, s *Split) printed {
	library, floor, _, _ := j.Gap.Times()
	p := printed{scale: scaleFor(j)}
	p.floor, p.library = p.round(floor.Value), p.round(library.Value)
	p.residual = p.library - p.floor
	if s != nil {
		for _, part := range s.Parts {
			v := p.round(part.Value)
			p.parts = append(p.parts, v)
			p.residual -= v
		}
	}
	return p
}

// text writes an analysis as tables for a terminal.
type text struct {
	w     *bufio.Writer
	width int
	notes []string
}

// Text writes analyses for a terminal, one after the other.
func Text(out io.Writer, list []*Analysis, width int) error {
	t := &text{w: bufio.NewWriter(out), width: width}
	for i, a := range list {
		if i > 0 {
			t.line("")
		}
		t.analysis(a)
	}
	if len(list) == 0 {
		t.line("no records")
	}
	t.legend(list)
	return t.w.Flush()
}

func (t *text) line(s string) { fmt.Fprintln(t.w, strings.TrimRight(s, " ")) }

func (t *text) wrapped(s, first, rest string) {
	for _, l := range wrap(s, t.width, first, rest) {
		t.line(l)
	}
}

func (t *text) analysis(a *Analysis) {
	t.wrapped(a.Title(), "", "  ")
	if len(a.Judgements) > 0 {
		t.overview(a)
		t.notes = nil
		for i, j := range a.Judgements {
			t.line("")
			t.waterfall(i+1, j)
		}
	}
	t.unsplit(a)
	t.effects(a)
	t.costs(a)
	t.findings(a)
}

// Title says what the run is of.
func (a *Analysis) Title() string {
	h := a.Run.Header
	where := map[string]bool{}
	imported := false
	var places []string
	for _, w := range a.Run.Rows {
		c := w.First()
		p := fmt.Sprintf("nic=%s device=%s", c.NIC, c.Device)
		if !where[p] {
			where[p] = true
			places = append(places, p)
		}
		imported = imported || w.Imported()
	}
	title := fmt.Sprintf("%s: %s", a.Run.Platform(), strings.Join(places, ", "))
	if h != nil && h.Suite != "" {
		title += ", " + h.Suite
	}
	if imported {
		title += "; reference rows, not measured by gic"
	}
	return title
}

// overview is one line per gap.
func (t *text) overview(a *Analysis) {
	rows := [][]string{{"", "floor", "library", "gap", "explained", "residual", "", "verdict"}}
	for i, j := range a.Judgements {
		s := j.Ladder()
		p := printedOf(j, s)
		explained := int64(0)
		for _, v := range p.parts {
			explained += v
		}
		rows = append(rows, []string{
			fmt.Sprintf("[%d] %s, %s", i+1, j.Gap.Name(), j.what()), p.print(p.floor), p.print(p.library), p.signed(p.library - p.floor),
			p.signed(explained), p.signed(p.residual), p.unit, j.Verdict,
		})
	}
	t.line("")
	t.line("The gap of each library row to its floor, explained by choices that the floor can make, and the rest:")
	t.table(rows, "lrrrrrll", "  ")
}

// what is the metric and the point.
func (j *Judgement) what() string {
	g := j.Gap
	unit := ""
	if m, ok := g.Row.Metric(g.Metric); ok && m.Class == "rate" {
		unit = " (time per message)"
	}
	return g.Metric + unit + " of " + g.Row.Point()
}

// waterfall is the ladder of one gap, the other methods beside it, and what is to be said of it.
func (t *text) waterfall(n int, j *Judgement) {
	s := j.Ladder()
	p := printedOf(j, s)
	t.wrapped(fmt.Sprintf("[%d] %s: %s, %s", n, j.Gap.Name(), j.what(), p.unit), "", "    ")
	floorQ, libraryQ := mustTimes(j)
	bar := newBars(p, 22)
	rows := [][]string{{"floor", j.Gap.Floor.Label() + from(j.Gap.Floor), p.print(p.floor), p.interval(floorQ), bar.total(p.floor)}}
	at := p.floor
	if s != nil {
		for i, part := range s.Parts {
			note := p.interval(part.Quantity)
			if sp := p.spread(part.Spread); sp != "" {
				note = strings.TrimSpace(note + " (" + sp + ")")
			}
			rows = append(rows, []string{joinNames(part.Terms), part.What, p.signed(p.parts[i]), note, bar.step(at, at+p.parts[i])})
			at += p.parts[i]
		}
		note := p.interval(s.Residual)
		if sp := p.spread(s.ResidualSpread); sp != "" {
			note = strings.TrimSpace(note + " (" + sp + ")")
		}
		rows = append(rows, []string{"residual", "not explained: library code and what has no rung", p.signed(p.residual), note, bar.step(at, at+p.residual)})
	}
	rows = append(rows, []string{"library", j.Gap.Row.Label() + from(j.Gap.Row), p.print(p.library), p.interval(libraryQ), bar.total(p.library)})
	t.table(rows, "llrll", "    ")
	t.remarks(j, s, p)
}

func mustTimes(j *Judgement) (floor, library Quantity) {
	library, floor, _, _ = j.Gap.Times()
	return floor, library
}

// from says where an imported row is from.
func from(w *Row) string {
	if !w.Imported() {
		return ""
	}
	return " (" + w.Source() + ")"
}

// remarks are the lines under a waterfall.
func (t *text) remarks(j *Judgement, s *Split, p printed) {
	say := func(head, body string) { t.wrapped(head+body, "      ", "        ") }
	if s != nil {
		for _, c := range s.Same {
			say("same on both sides: ", fmt.Sprintf("%s (%s=%s)", termOfKey(j.Gap.Floor.Backend(), c.Key), c.Key, c.Value))
		}
		for _, c := range s.Missing {
			say("no rung for ", fmt.Sprintf("%s (%s %s -> %s): no such floor row here; it is in the residual. %s [%s]",
				termOfKey(j.Gap.Floor.Backend(), c.Key), c.Key, j.Gap.Floor.Config(c.Key), c.Value, sentence(c.What), strings.Join(c.Source, ", ")))
		}
		if cmd := j.MissingRungs(); cmd != "" {
			say("the missing rungs: ", cmd)
		}
	}
	for _, r := range j.Gap.Readings() {
		say("the residual, by the sources: ", fmt.Sprintf("%s%s: %s [%s]", r.Term, t.reading(s, r, p), r.What, strings.Join(r.Source, ", ")))
	}
	for _, a := range j.Accounts {
		if a.Method == (Ladder{}).Name() {
			continue
		}
		if a.Split == nil {
			say(a.Method+": ", "not seen: "+a.Blind)
			continue
		}
		say(a.Method+": ", account(a.Split, p))
	}
	say("verdict: ", j.Sentence())
	notes := slices.Clone(j.Gap.Notes)
	for _, a := range j.Accounts {
		if a.Split != nil {
			notes = append(notes, a.Split.Notes...)
		}
	}
	for _, n := range notes {
		say("! ", fmt.Sprintf("%s: %s (%s#%s)", n.Code, n.Text, Page, n.Anchor))
	}
}

// reading puts the number of the residual to a term that the sources name, where only one is named and every other
// documented difference has a number or none.
func (t *text) reading(s *Split, r Remark, p printed) string {
	if s == nil || len(s.Gap.Readings()) != 1 {
		return ""
	}
	if sp := p.spread(s.ResidualSpread); sp != "" {
		return fmt.Sprintf(" (%s %s, by elimination)", sp, p.unit)
	}
	return fmt.Sprintf(" (%s %s, by elimination)", p.print(p.residual), p.unit)
}

// account is another method's split in one line.
func account(s *Split, p printed) string {
	var parts []string
	for _, part := range s.Parts {
		parts = append(parts, fmt.Sprintf("%s %s (%s)", joinNames(part.Terms), p.signed(p.round(part.Value)), part.How))
	}
	if parts == nil {
		parts = []string{"no count differs"}
	}
	return strings.Join(parts, "; ") + "; residual " + p.signed(p.round(s.Residual.Value))
}

// Sentence is the verdict in words.
func (j *Judgement) Sentence() string {
	switch j.Verdict {
	case NotCompared:
		return fmt.Sprintf("%s: %s", j.Verdict, j.Why)
	case Inconsistent:
		var parts []string
		for _, c := range j.Compared {
			if !c.Agree {
				parts = append(parts, fmt.Sprintf("%s: %s says %s, %s says %s", joinNames(c.Terms), c.A, signedMicro(c.ValueA.Value), c.B, signedMicro(c.ValueB.Value)))
			}
		}
		return j.Verdict + " in " + strings.Join(parts, "; ")
	}
	var seen []string
	for _, c := range j.Compared {
		seen = append(seen, joinNames(c.Terms))
	}
	return j.Verdict + " in " + strings.Join(seen, ", ")
}

func joinNames(names []Name) string {
	var out []string
	for _, n := range names {
		out = append(out, string(n))
	}
	return strings.Join(out, "+")
}

// sentence makes a sentence of a text.
func sentence(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

// unsplit lists library rows without a floor, by reason.
func (t *text) unsplit(a *Analysis) {
	if len(a.Unsplit) == 0 {
		return
	}
	byWhy := map[string][]string{}
	var order []string
	for _, u := range a.Unsplit {
		if byWhy[u.Why] == nil {
			order = append(order, u.Why)
		}
		if name := u.Row.Backend() + " " + u.Row.First().Workload; !slices.Contains(byWhy[u.Why], name) {
			byWhy[u.Why] = append(byWhy[u.Why], name)
		}
	}
	t.line("")
	t.line("Not split:")
	for _, why := range order {
		t.wrapped(why+": "+list(byWhy[why], 4), "  ", "      ")
	}
}

// effects is what single choices cost, by term.
func (t *text) effects(a *Analysis) {
	if len(a.Effects) == 0 {
		return
	}
	t.line("")
	t.wrapped("What one choice changes, all else being equal (two rows that differ in one key; never added to anything; rates as time per message):", "", "")
	rows := [][]string{{"term", "stack", "choice", "metric", "from", "to", "change, us", ""}}
	last := Name("")
	for _, e := range a.Effects {
		from, to, share := "-", "-", ""
		if e.From.Value != 0 {
			from, to = number(float64(e.From.Value)/1e9), number(float64(e.To.Value)/1e9)
		}
		if r, ok := e.Relative(); ok {
			share = percent(r)
		}
		term := string(e.Term)
		if e.Term == last {
			term = ""
		}
		last = e.Term
		delta := signedNumber(float64(e.Delta.Value) / 1e9)
		if e.Note == "low" || e.Note == "high" {
			share = strings.TrimSpace(share + " " + e.Note)
		}
		rows = append(rows, []string{term, e.Stack, e.Change, e.Metric, from, to, delta, share})
	}
	t.table(rows, "llllrrrr", "  ")
}

func percent(r float64) string {
	if r >= 10 {
		return number(1+r) + "x"
	}
	return fmt.Sprintf("%+.0f %%", 100*r)
}

// costs is what one unit of work costs.
func (t *text) costs(a *Analysis) {
	if len(a.Costs) == 0 {
		return
	}
	t.line("")
	t.line("Unit costs of the floors, from this run:")
	rows := [][]string{{"unit", "us", "", "how"}}
	for _, c := range a.Costs {
		interval := ""
		if low, high, ok := c.Interval(); ok {
			interval = number(low*1e6) + ".." + number(high*1e6)
		}
		rows = append(rows, []string{c.Label(), number(float64(c.Value) / 1e9), interval, c.How})
	}
	t.table(rows, "lrll", "  ")
}

// findings are the guidelines that the comparison does not keep.
func (t *text) findings(a *Analysis) {
	if len(a.Findings) == 0 {
		return
	}
	t.line("")
	t.line("Before you compare:")
	for _, f := range a.Findings {
		t.wrapped(fmt.Sprintf("%s: %s (%s)", f.Code, f.Text, f.Anchor()), "  ", "      ")
	}
}

// legend says how to read it.
func (t *text) legend(list []*Analysis) {
	split, published := false, false
	for _, a := range list {
		split = split || len(a.Judgements) > 0
		for _, w := range a.Run.Rows {
			published = published || w.Imported()
		}
	}
	if !split {
		return
	}
	t.line("")
	text := "floor + terms + residual = library, exactly. a..b: 95 % bootstrap over process runs; (a to b): the same part in another " +
		"order of the rungs, or swapped in the library."
	if published {
		text += " No interval: one published figure is no sample."
	}
	t.wrapped(text+" Terms: gic attribute --terms; how to read and what not to claim: "+Page, "", "")
}
