package attribution

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"gic/workloads"
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
	const ns = 1e6
	low := min(library.Value, floor.Value)
	switch top := max(library.Value, floor.Value); {
	case top < 100*ns:
		return scale{"ns", 1e6, 2}
	case top < 200*ns || low < 100*ns && top < 1000*ns: // the smaller of the two keeps three digits
		return scale{"ns", 1e6, 1}
	case low < 100*ns && top < 1e4*ns:
		return scale{"ns", 1e6, 0}
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

// interval is the interval of a quantity in the unit; "" if there is none. It holds what is printed of the quantity,
// which the sum of a waterfall may round to the other side.
func (s scale) interval(q Quantity, printed int64) string {
	low, high, ok := q.Interval()
	if !ok {
		return ""
	}
	return s.print(min(printed, s.round(ToFemto(low)))) + ".." + s.print(max(printed, s.round(ToFemto(high))))
}

func (s scale) spread(p *Spread) string {
	if p == nil || p.Low == p.High {
		return ""
	}
	return s.print(s.round(p.Low)) + " to " + s.print(s.round(p.High))
}

// printed are the numbers of a waterfall as they are printed: each step goes from one rounded level to the next, so that
// a reader who adds up the column gets the last line, and a residual of nothing is printed as nothing.
type printed struct {
	scale
	floor, library, residual int64
	parts                    []int64
}

func printedOf(j *Judgement, s *Split) printed {
	library, floor, _, _ := j.Gap.Times()
	p := printed{scale: scaleFor(j)}
	p.floor, p.library = p.round(floor.Value), p.round(library.Value)
	level := floor.Value
	if s != nil {
		for _, part := range s.Parts {
			p.parts = append(p.parts, p.round(level+part.Value)-p.round(level))
			level += part.Value
		}
	}
	p.residual = p.library - p.round(level)
	return p
}

// text writes an analysis as tables for a terminal.
type text struct {
	w     *bufio.Writer
	width int
	brief bool
}

// Text writes analyses for a terminal, one after the other.
func Text(out io.Writer, list []*Analysis, width int) error {
	return writeText(out, list, width, false)
}

// Brief writes one line per gap, and what the comparison does not keep.
func Brief(out io.Writer, list []*Analysis, width int) error {
	return writeText(out, list, width, true)
}

func writeText(out io.Writer, list []*Analysis, width int, brief bool) error {
	t := &text{w: bufio.NewWriter(out), width: width, brief: brief}
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
	if claim := a.Claim(); claim != "" {
		t.wrapped(claim, "", "  ")
	}
	if len(a.Judgements) > 0 {
		t.overview(a)
	} else if len(a.Unsplit) == 0 {
		t.line("")
		t.wrapped(a.Nothing(), "", "")
	}
	if t.brief {
		t.findings(a)
		return
	}
	for i, j := range a.Judgements {
		t.line("")
		t.waterfall(i+1, j)
	}
	t.unsplit(a)
	t.projections(a)
	t.effects(a)
	t.costs(a)
	t.findings(a)
}

// Nothing says why there is nothing to split.
func (a *Analysis) Nothing() string {
	var have []string
	floor := Floors[0]
	for _, w := range a.Run.Rows {
		if slices.Contains(Floors, w.Backend()) {
			floor = w.Backend()
		} else if _, _, is := identify(w, a.Run.libraries, nil); is && !slices.Contains(have, w.Backend()) {
			have = append(have, w.Backend())
		}
	}
	if have != nil {
		return fmt.Sprintf("No row of %s here has a time or a message rate: that is what adds up, and can be split.", strings.Join(have, ", "))
	}
	return fmt.Sprintf("No library row here. --as %s:KEY=VALUE lets a row of a floor pose as a library.", floor)
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

// Claim says what the rows cannot support, "" if they support what they say.
func (a *Analysis) Claim() string {
	var what, why []string
	add := func(is bool, w, y string) {
		if is {
			what, why = append(what, w), append(why, y)
		}
	}
	soft, host, crowded := false, false, false
	for _, w := range a.Run.Rows {
		soft, host = soft || w.First().NIC == "soft", host || w.First().Device == "host"
		for _, c := range w.Cases {
			crowded = crowded || c.Host["oversubscribed"] == true
			for _, warn := range c.Warnings {
				crowded = crowded || warn.Code == "oversubscribed"
			}
		}
	}
	add(soft, "nic=soft", "a software NIC has no wire")
	add(host, "device=host", "host threads are no GPU")
	add(crowded, "oversubscribed", "too few CPUs")
	if soft && !host && !crowded {
		return "nic=soft: completions, round trips and rates are a software NIC's, without a wire; issue times are the GPU's own"
	}
	if what == nil {
		return ""
	}
	return strings.Join(what, ", ") + ": " + strings.Join(why, ", ") + "; no claim about hardware follows from these times"
}

// overview is one line per gap, under the point that it is of.
func (t *text) overview(a *Analysis) {
	t.line("")
	head := "The gap of each library row to its floor: explained by choices that the floor can make, and the rest."
	if !t.brief {
		head += " [n] is the account below."
	}
	t.wrapped(head, "", "")
	rows := [][]string{{"", "", "floor", "library", "gap", "explained", "residual", ""}}
	var heads []string
	for i, j := range a.Judgements {
		s := j.Ladder()
		p := printedOf(j, s)
		explained := int64(0)
		for _, v := range p.parts {
			explained += v
		}
		mark := ""
		if j.Verdict == Inconsistent {
			mark = " methods differ"
		}
		heads = append(heads, j.Gap.Row.Point()+", floor "+j.Gap.Floor.Backend())
		rows = append(rows, []string{
			fmt.Sprintf("[%d] %s", i+1, j.Gap.Name()), j.metric(), p.print(p.floor), p.print(p.library), p.signed(p.library - p.floor),
			p.signed(explained), p.signed(p.residual), p.unit + mark,
		})
	}
	t.grouped(rows, heads, "llrrrrrl", "  ")
}

// metric is the metric with what it is made of.
func (j *Judgement) metric() string {
	if m, ok := j.Gap.Row.Metric(j.Gap.Metric); ok && m.Class == workloads.Rate {
		return "1/" + j.Gap.Metric
	}
	return j.Gap.Metric
}

// what is the metric and the point.
func (j *Judgement) what() string {
	return j.metric() + " of " + j.Gap.Row.Point()
}

// waterfall is the ladder of one gap, the other methods beside it, and what is to be said of it.
func (t *text) waterfall(n int, j *Judgement) {
	s := j.Ladder()
	p := printedOf(j, s)
	t.wrapped(fmt.Sprintf("[%d] %s: %s, %s", n, j.Gap.Name(), j.what(), p.unit), "", "    ")
	floorQ, libraryQ := mustTimes(j)
	bar := newBars(p, 22)
	rows := [][]string{{"floor", j.Gap.Floor.Label() + from(j.Gap.Floor), p.print(p.floor), p.interval(floorQ, p.floor), bar.total(p.floor)}}
	at := p.floor
	if s != nil {
		for i, part := range s.Parts {
			note := p.interval(part.Quantity, p.parts[i])
			if sp := p.spread(part.Spread); sp != "" {
				note = strings.TrimSpace(note + " (" + sp + ")")
			}
			rows = append(rows, []string{joinNames(part.Terms), part.What, p.signed(p.parts[i]), note, bar.step(at, at+p.parts[i])})
			at += p.parts[i]
		}
		note := p.interval(s.Residual, p.residual)
		if sp := p.spread(s.ResidualSpread); sp != "" {
			note = strings.TrimSpace(note + " (" + sp + ")")
		}
		rows = append(rows, []string{"residual", "not explained: library code and what has no rung", p.signed(p.residual), note, bar.step(at, at+p.residual)})
	}
	rows = append(rows, []string{"library", j.Gap.Row.Label() + from(j.Gap.Row), p.print(p.library), p.interval(libraryQ, p.library), bar.total(p.library)})
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
	for _, r := range remarksOf(j, s, p) {
		t.wrapped(r.Head+r.Body, "      ", "        ")
	}
}

// remark is one thing to be said of a gap.
type remark struct {
	Head, Body string
	Doubt      bool
	Anchor     string // on the method page, "" for none
}

// remarksOf is what is to be said under a waterfall, in the same words everywhere.
func remarksOf(j *Judgement, s *Split, p printed) []remark {
	var out []remark
	say := func(head, body string) { out = append(out, remark{Head: head, Body: body}) }
	if s != nil {
		var same []string
		for _, c := range s.Same {
			same = append(same, fmt.Sprintf("%s (%s=%s)", termOfKey(j.Gap.Floor.Backend(), c.Key), c.Key, c.Value))
		}
		if same != nil {
			say("same on both sides: ", strings.Join(same, ", "))
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
		say("the residual holds ", fmt.Sprintf("%s%s: %s [%s]", joinNames(append([]Name{r.Term}, r.Together...)), reading(s, r, p), r.What, strings.Join(r.Source, ", ")))
	}
	for _, a := range j.Accounts {
		switch {
		case a.Method == (Ladder{}).Name():
		case a.Split == nil && j.Gap.Row.Imported() && a.Method != (Counts{}).Name(): // a publication has no trace
		case a.Split == nil:
			say(a.Method+": ", a.Blind)
		default:
			say(a.Method+": ", account(a.Split, p))
		}
	}
	if len(j.Compared) > 0 {
		say("verdict: ", j.Sentence())
	}
	notes := slices.Clone(j.Gap.Notes)
	for _, a := range j.Accounts {
		if a.Split != nil {
			notes = append(notes, a.Split.Notes...)
		}
	}
	for _, n := range notes {
		anchor := Page + "#" + n.Anchor
		out = append(out, remark{"! ", fmt.Sprintf("%s: %s (%s)", n.Code, n.Text, anchor), true, anchor})
	}
	return out
}

// reading is the residual's number for a term that the source assigns all of it to. It holds only where no other
// documented choice is without a rung.
func reading(s *Split, r Remark, p printed) string {
	low, high, ok := s.Eliminated(r)
	if !ok {
		return ""
	}
	text := p.print(p.round(low))
	if low != high {
		text += " to " + p.print(p.round(high))
	}
	return fmt.Sprintf(", %s %s by elimination", text, p.unit)
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
