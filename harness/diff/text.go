package diff

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"gic/workloads"
)

// kind is the cause of a regression, or what became worse where none is known.
func (p *Pair) kind() string {
	if p.Cause != "" {
		return p.Cause
	}
	for _, m := range p.Metrics {
		if m.Verdict == Worse {
			return m.Name
		}
	}
	return string(p.Verdict)
}

// summary is a regression in one line, the cause first.
func (p *Pair) summary() string {
	if p.new == nil && p.Cause == "" {
		return p.Reason
	}
	if p.new == nil {
		return "missing: OLD is ok, NEW does not have this case"
	}
	if p.Old.Status != p.New.Status {
		return fmt.Sprintf("was %s, is %s: %s", p.Old.Status, p.New.Status, cmp.Or(p.Reason, "no reason given"))
	}
	var parts []string
	for _, c := range p.Counters {
		if c.Exact && c.Changed && c.cost {
			parts = append(parts, fmt.Sprintf("%s %s -> %s", c.Name, Number(c.Old), Number(c.New)))
		}
	}
	for _, m := range p.Metrics {
		if m.Verdict == Worse || m.Verdict == Better {
			parts = append(parts, fmt.Sprintf("%s %s", m.Name, cmp.Or(m.Why, percent(m.Delta))))
		}
	}
	return strings.Join(parts, ", ")
}

// lines is everything about a pair as text, one comparison a line.
func (p *Pair) lines() []string {
	var out []string
	for _, c := range p.Counters {
		if c.Exact {
			out = append(out, fmt.Sprintf("%s: %s -> %s %s", c.Name, Number(c.Old), Number(c.New), c.word()))
		}
	}
	for _, m := range p.Metrics {
		u := unitOf(&m)
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s: %s -> %s %s, %s%s, n=%d+%d, p=%s: %s %s", m.Name,
			value(m.Comparison.Old.Median, m.NOld, u), value(m.Comparison.New.Median, m.NNew, u), u.name, percent(m.Delta), spaced(m.interval()),
			m.NOld, m.NNew, pText(m.P), m.Verdict, parens(m.Why))))
	}
	if p.Reason != "" {
		out = append(out, "reason: "+p.Reason)
	}
	return out
}

func spaced(s string) string {
	if s == "-" {
		return ""
	}
	return " " + s
}

func parens(s string) string {
	if s == "" {
		return ""
	}
	return "(" + s + ")"
}

func (c *Counter) word() string {
	switch {
	case c.Accepted:
		return "worse, accepted"
	case c.Changed && c.Verdict == Unclear:
		return "changed"
	}
	return string(c.Verdict)
}

func (n Note) line() string {
	if n.Cases > 0 {
		return fmt.Sprintf("%s: %s (%s)", n.Code, n.Text, plural(n.Cases, "case"))
	}
	return n.Code + ": " + n.Text
}

type unit struct {
	name  string
	scale float64
}

// unitOf chooses the unit of a metric so that the smaller of its medians is at least 1.
func unitOf(m *Metric) unit {
	low := math.Inf(1)
	for _, v := range []float64{m.Comparison.Old.Median, m.Comparison.New.Median} {
		if v > 0 {
			low = min(low, v)
		}
	}
	pick := func(units ...unit) unit {
		for _, u := range units[:len(units)-1] {
			if low >= u.scale {
				return u
			}
		}
		return units[len(units)-1]
	}
	switch m.Class {
	case workloads.Time:
		return pick(unit{"s", 1}, unit{"ms", 1e-3}, unit{"us", 1e-6}, unit{"ns", 1e-9})
	case workloads.Rate:
		return pick(unit{"M msg/s", 1e6}, unit{"k msg/s", 1e3}, unit{"msg/s", 1})
	case workloads.Bandwidth:
		return pick(unit{"GB/s", 1e9}, unit{"MB/s", 1e6}, unit{"kB/s", 1e3}, unit{"B/s", 1})
	}
	return unit{m.Unit, 1}
}

func value(v float64, n int, u unit) string {
	if n == 0 {
		return "-"
	}
	return Number(v / u.scale)
}

// Number prints at least three digits.
func Number(v float64) string {
	a := math.Abs(v)
	digits := 0
	switch {
	case a == 0:
		return "0"
	case a >= 1e6 || a < 1e-4:
		return strconv.FormatFloat(v, 'g', 4, 64)
	case a < 9.995:
		digits = max(2, 2-int(math.Floor(math.Log10(a))))
	case a < 99.95:
		digits = 1
	}
	if v == math.Trunc(v) {
		digits = 0
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// word is the verdict on a metric for people. One that differs, by less than the threshold, is not called the same: its
// p says otherwise.
func (r *Result) word(m *Metric) string {
	if m.Why == withinThreshold {
		return fmt.Sprintf("within %g %%", math.Round(r.Options.Thresholds[string(m.Class)]*1e4)/100)
	}
	return string(m.Verdict)
}

func percent(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "-"
	}
	p := v * 100
	switch a := math.Abs(p); {
	case a >= 99.95:
		return fmt.Sprintf("%+.0f %%", p)
	case a >= 9.995:
		return fmt.Sprintf("%+.1f %%", p)
	}
	return fmt.Sprintf("%+.2f %%", p)
}

func (m *Metric) interval() string {
	if !m.Bounded() {
		return "-"
	}
	return "[" + strings.TrimSuffix(percent(m.Low), " %") + ", " + strings.TrimSuffix(percent(m.High), " %") + "]"
}

func pText(p float64) string {
	if p < 0.001 {
		return "<.001"
	}
	return strings.TrimPrefix(fmt.Sprintf("%.3f", p), "0")
}

// wrapped writes text in lines of at most width columns, all but the first indented.
func wrapped(w io.Writer, s string, width int, indent string) {
	lines := strings.Split(text.WrapSoft(oneLine(s), max(width-len(indent), 20)), "\n")
	for i, l := range lines {
		if i > 0 {
			l = indent + l
		}
		fmt.Fprintln(w, strings.TrimRight(l, " "))
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(printable(s)), " ") }

func (s *Set) line() string {
	parts := []string{s.Label + ": " + strings.Join(s.Paths, " ")}
	switch len(s.runs) {
	case 0:
	case 1:
		parts = append(parts, "run "+s.runs[0].id)
	default:
		parts = append(parts, plural(len(s.runs), "run"))
	}
	parts = append(parts, plural(len(s.cases), "case"), plural(s.Records, "record"))
	var versions []string
	for _, r := range s.runs {
		if r.imported == nil && !slices.Contains(versions, r.gic) {
			versions = append(versions, r.gic)
		}
	}
	if versions != nil {
		parts = append(parts, "gic "+strings.Join(versions, " | "))
	}
	if files := s.sources(); files != nil {
		parts = append(parts, "imported from "+values(files))
	}
	return strings.Join(parts, ", ")
}

func (r *Result) sharedLine() string {
	var parts []string
	for _, kv := range r.Shared {
		parts = append(parts, kv.Key+"="+kv.Value)
	}
	return strings.Join(parts, " ")
}

func (r *Result) acrossLine() string {
	if len(r.Options.Across) == 0 {
		return ""
	}
	values := []string{}
	for _, p := range r.Pairs {
		for _, kv := range p.Differs {
			if s := kv.Key + " " + kv.Value; !slices.Contains(values, s) && len(values) < 6 {
				values = append(values, s)
			}
		}
	}
	var keys []string
	for _, a := range r.Options.Across {
		keys = append(keys, a.String())
	}
	s := "across " + strings.Join(keys, ", ")
	if len(values) > 0 {
		s += ": " + strings.Join(values, "; ")
	}
	return s
}

// style is the plain one of all tables of gic.
func newTable(header ...any) table.Writer {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	t.AppendHeader(table.Row(header))
	return t
}

// tableRows bounds the rows that one table lays out: a table of everything would need all widths at once.
const tableRows = 1000

func (r *Result) renderTable(w io.Writer, width int) error {
	for _, l := range []string{r.Old.line(), r.New.line(), r.sharedLine(), r.acrossLine()} {
		if l != "" {
			wrapped(w, l, width, "  ")
		}
	}
	r.counterTable(w, width)
	r.metricTables(w, width)
	r.statusLines(w, width)
	r.groupTable(w)
	if len(r.Notes)+len(r.Hints)+len(r.Errors()) > 0 {
		fmt.Fprintln(w)
	}
	for i, n := range r.Notes {
		wrapped(w, fmt.Sprintf("[%d] %s", i+1, n.line()), width, "    ")
	}
	for _, h := range r.Hints {
		wrapped(w, "hint: "+h, width, "  ")
	}
	for _, e := range r.someErrors() {
		wrapped(w, "error: "+e, width, "  ")
	}
	fmt.Fprintln(w)
	for _, l := range r.conclusion() {
		wrapped(w, l, width, "  ")
	}
	return nil
}

// errorLines is how many unusable lines are named to a reader; JSON has them all.
const errorLines = 20

// someErrors are the first of Errors, and how many there are more.
func (r *Result) someErrors() []string {
	all := r.Errors()
	if len(all) <= errorLines {
		return all
	}
	return append(slices.Clone(all[:errorLines]), fmt.Sprintf("... and %d more such lines; gic results verify names them all", len(all)-errorLines))
}

// counterTable lists the exact counters that changed; those that did not are counted.
func (r *Result) counterTable(w io.Writer, width int) {
	t := newTable("", "old", "new", "change", "verdict")
	alignRight(t, 2, 4)
	equal, changed := 0, 0
	var names []string
	for _, p := range r.Pairs {
		first := true
		exact := false
		for _, c := range p.Counters {
			exact = exact || c.Exact
			if !c.Exact || !c.Changed {
				continue
			}
			if first {
				t.AppendRow(table.Row{heading})
				names = append(names, p.Name)
				first = false
				changed++
			}
			change := "-"
			if c.Old > 0 {
				change = percent(c.New/c.Old - 1)
			}
			t.AppendRow(table.Row{"  " + c.Name, Number(c.Old), Number(c.New), change, c.word()})
		}
		if first && exact {
			equal++
		}
	}
	if equal+changed == 0 {
		return
	}
	fmt.Fprintf(w, "\nexact counters: equal in %s, changed in %d\n", plural(equal, "case"), changed)
	if changed > 0 {
		render(w, t, names, width)
	}
}

func alignRight(t table.Writer, from, to int) {
	var c []table.ColumnConfig
	for i := from; i <= to; i++ {
		c = append(c, table.ColumnConfig{Number: i, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(c)
}

// heading marks a row that becomes a line over the full width.
const heading = "\x01"

// render prints a table; names are what its headings stand for.
func render(w io.Writer, t table.Writer, names []string, width int) {
	for l := range strings.SplitSeq(t.Render(), "\n") {
		if _, ok := strings.CutPrefix(l, heading); ok {
			wrapped(w, names[0], width, "    ")
			names = names[1:]
			continue
		}
		fmt.Fprintln(w, strings.TrimRight(l, " "))
	}
}

// metricTables lists the metrics of all compared pairs.
func (r *Result) metricTables(w io.Writer, width int) {
	var t table.Writer
	rows := 0
	var names []string
	flush := func() {
		if t != nil {
			fmt.Fprintln(w)
			render(w, t, names, width)
		}
		t, rows, names = nil, 0, nil
	}
	for _, p := range r.Pairs {
		refs := ""
		for _, n := range p.Notes {
			refs += fmt.Sprintf(" [%d]", n+1)
		}
		first := true
		for i := range p.Metrics {
			m := &p.Metrics[i]
			if !m.Headline && !r.Options.AllMetrics {
				continue
			}
			if t == nil {
				t = newTable("", "old", "new", "unit", "delta", "95 % interval", "p", "verdict")
				alignRight(t, 2, 3)
				t.SetColumnConfigs([]table.ColumnConfig{{Number: 2, Align: text.AlignRight, AlignHeader: text.AlignRight},
					{Number: 3, Align: text.AlignRight, AlignHeader: text.AlignRight}, {Number: 5, Align: text.AlignRight, AlignHeader: text.AlignRight},
					{Number: 6, Align: text.AlignRight, AlignHeader: text.AlignRight}})
			}
			if first {
				t.AppendRow(table.Row{heading})
				names = append(names, p.Name)
				first = false
			}
			u := unitOf(m)
			verdict := r.word(m)
			if m.Verdict == Worse || m.Verdict == Better {
				verdict = strings.ToUpper(verdict)
			}
			t.AppendRow(table.Row{"  " + oneLine(m.Name), value(m.Comparison.Old.Median, m.NOld, u), value(m.Comparison.New.Median, m.NNew, u),
				u.name, percent(m.Delta), m.interval(), pText(m.P), verdict + refs})
			rows++
		}
		if rows >= tableRows {
			flush()
		}
	}
	flush()
}

// statusLines lists the pairs that were settled without numbers, but for those skipped on both sides.
func (r *Result) statusLines(w io.Writer, width int) {
	var lines []string
	for _, p := range r.Pairs {
		if p.Metrics != nil || p.skipped() {
			continue
		}
		what := fmt.Sprintf("%s (%s)", cmp.Or(p.Reason, "only OLD has this case"), p.Old.Status)
		if p.New != nil {
			what = fmt.Sprintf("%s -> %s", p.Old.Status, p.New.Status)
			if p.Reason != "" {
				what += ": " + p.Reason
			}
		}
		lines = append(lines, fmt.Sprintf("%s  %s: %s", strings.ToUpper(string(p.Verdict)), p.Name, what))
	}
	if lines != nil {
		fmt.Fprintln(w)
	}
	for _, l := range lines {
		wrapped(w, l, width, "    ")
	}
}

func (r *Result) groupTable(w io.Writer) {
	if len(r.Groups) == 0 {
		return
	}
	t := newTable("geomean of new/old", "metric", "backend", "ratio", "cases")
	alignRight(t, 4, 5)
	for _, g := range r.Groups {
		t.AppendRow(table.Row{oneLine(g.Workload), oneLine(g.Metric), oneLine(g.Backend), fmt.Sprintf("%.3f", g.Ratio), g.Cases})
	}
	fmt.Fprintln(w)
	render(w, t, nil, 0)
}

// conclusion says how it ends, and why.
func (r *Result) conclusion() []string {
	count := r.Count()
	var parts []string
	for _, v := range []string{"same", "better", "worse", "unclear", "incomparable", "skipped"} {
		if count[v] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[v], v))
		}
	}
	line := plural(r.Paired, "pair")
	if gone := len(r.Pairs) - r.Paired; gone > 0 {
		line += fmt.Sprintf(", %d only in OLD", gone)
	}
	if len(r.Added) > 0 {
		line += fmt.Sprintf(", %d only in NEW", len(r.Added))
	}
	if parts != nil {
		line += ": " + strings.Join(parts, ", ")
	}
	out := []string{line + fmt.Sprintf("; %s at alpha %g (Holm)", plural(r.Tests, "test"), r.Options.Alpha)}
	bad := r.Regressions()
	const most = 10
	for i, p := range bad {
		if r.Paired == 0 {
			break // nothing was compared; that is what went wrong
		}
		if i == most {
			out = append(out, fmt.Sprintf("... and %d more regressions", len(bad)-most))
			break
		}
		s := "REGRESSION " + p.Name + ": " + p.summary()
		if p.Cause != "" {
			s += "; likely cause: " + p.Cause
		}
		out = append(out, s)
	}
	switch r.Exit() {
	case ExitNoPair:
		out = append(out, "no case pairs: nothing was compared")
	case ExitOK:
		out = append(out, "no regression")
	default:
		out = append(out, plural(len(bad), "regression"))
	}
	return out
}
