package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"gic/harness/record"
	"gic/workloads"
)

// The columns of a table.
var columns = []string{"", "nic/dev", "median", "range", "p99", "ratio", "gap", "n", "check"}

// expectedColumn is where the column expected stands, if there is one.
const expectedColumn = 3

// columnNames are the columns of this report's tables.
func (r *Report) columnNames() []string {
	if r.expect == nil {
		return columns
	}
	return slices.Insert(slices.Clone(columns), expectedColumn, "expected")
}

const (
	whereColumn = 1
	minLabel    = 18 // narrowest first column, but for absurd numbers
	chunkLines  = 512
	placeholder = "\x01" // marks a line that is replaced by one over the full width
	bestMark    = "* "
	noMark      = "  "
)

// line is one line of a section's table: either the cells of a row, or text over the full width.
type line struct {
	row   *row
	mark  string   // before the label
	cells []string // columns but the first
	full  []string
}

func (r *Report) renderTable(out io.Writer, width int) error {
	w := bufio.NewWriter(out)
	for i, u := range r.runs {
		if i > 0 {
			fmt.Fprintln(w)
		}
		u.renderTable(w, width)
	}
	if len(r.runs) == 0 {
		fmt.Fprintln(w, "no records")
	}
	for _, b := range r.bad {
		writeWrapped(w, "error: "+b, width, "", "  ")
	}
	return w.Flush()
}

func writeWrapped(w io.Writer, s string, width int, first, rest string) {
	for _, l := range wrap(clean(s), width, first, rest) {
		fmt.Fprintln(w, l)
	}
}

func (u *run) renderTable(w io.Writer, width int) {
	sections := u.sections()
	n := newNotes(u)
	for _, l := range u.headLines() {
		writeWrapped(w, l, width, "", "  ")
	}
	if claim := u.claimLine(); claim != "" {
		writeWrapped(w, claim, width, "", "  ")
	}
	for _, l := range u.everyLines(n) {
		writeWrapped(w, l, width, "", "  ")
	}
	never := u.never(sections)
	// All tables of a run share their columns, so that the eye finds them.
	tables := make([][]line, len(sections))
	measured := false
	for i, s := range sections {
		tables[i] = s.lines(n, u.of.all, width)
		measured = measured || len(tables[i]) > 0
	}
	gutter := 2 // spaces between columns
	names := u.of.columnNames()
	widths, fits := columnWidths(tables, names, width, gutter)
	if !fits {
		gutter = 1
		widths, _ = columnWidths(tables, names, width, gutter)
	}
	for i, s := range sections {
		fmt.Fprintln(w)
		writeWrapped(w, s.head(), width, "", "    ")
		labels, keys := u.shorten(tables[i], widths[0]-len(noMark))
		for _, l := range keys {
			writeWrapped(w, l, width, "  ", "    ")
		}
		writeLines(w, tables[i], names, labels, widths, gutter)
		for _, l := range s.reach() {
			writeWrapped(w, l, width, "  ", "      ")
		}
		if !u.of.all {
			for _, l := range s.everywhereSkipped(n, never) {
				writeWrapped(w, l, width, "  ", "      ")
			}
		}
	}
	fmt.Fprintln(w)
	if l := u.neverRan(sections, never, n); l != "" {
		writeWrapped(w, l, width, "", "    ")
		fmt.Fprintln(w)
	}
	for _, l := range append(n.lines(), u.lintLines()...) {
		writeWrapped(w, l, width, "", "    ")
	}
	if measured {
		for _, l := range u.legend() {
			writeWrapped(w, l, width, "", "  ")
		}
	}
	u.writeHeadlines(w, sections, tables, n, width)
	for _, l := range u.totalLines() {
		writeWrapped(w, l, width, "", "  ")
	}
}

// floors are the names of those floors that have rows here.
func (u *run) floors() string {
	var names []string
	for _, name := range floors {
		if slices.ContainsFunc(u.rows, func(w *row) bool { return w.backend == name }) {
			names = append(names, name)
		}
	}
	return cmp.Or(strings.Join(names, ", "), "none here")
}

// legend says what the columns are.
func (u *run) legend() []string {
	lines := []string{
		"* best verified floor (" + u.floors() + ") of the same point, NIC and device; ratio and gap are to its median",
		"median, range: over process runs (n), of each one's median; p99: " + u.percentiles() + "; check: the payload",
	}
	if u.of.expect != nil {
		lines = append(lines, "expected: "+u.of.expectedFrom+"; -: no prediction, csv and json say why")
	}
	return lines
}

// percentiles says what p90 and p99 are of.
func (u *run) percentiles() string {
	if u.of.thin {
		return "median over process runs of each one's own p99, as there are too many samples to put together"
	}
	return "of the operations of all process runs together"
}

// head names a section and what all its points share.
func (s *section) head() string {
	parts := []string{s.workload + ":"}
	for _, kv := range s.common {
		parts = append(parts, kv.Key+"="+kv.Value)
	}
	if len(s.ranks) == 1 {
		parts = append(parts, fmt.Sprintf("ranks=%d", s.ranks[0]))
	}
	return strings.Join(parts, " ")
}

// lines lays out a section. Skipped rows are told below it, unless all are asked for.
func (s *section) lines(n *notes, all bool, width int) []line {
	everywhere := s.skippedEverywhere()
	var out []line
	for _, p := range s.points {
		before := len(out)
		shown := p.shown()
		for _, m := range shown {
			u := unitFor(m)
			out = append(out, line{full: wrap(clean(strings.TrimSpace(p.title+" ")+" "+m.heading(u)), width, "", "    ")})
			for _, c := range m.cells {
				if (all || !c.row.idle()) && !c.foreign() {
					out = append(out, c.line(m, u, n))
				}
			}
		}
		if len(shown) == 0 {
			out = append(out, p.unmeasured(n, all, width)...)
		}
		if all {
			continue
		}
		if l := p.skippedLine(everywhere, n, len(out) > before); l != "" {
			out = append(out, line{full: wrap(clean(l), width, "  ", "      ")})
		}
	}
	return out
}

// idle says that a row was skipped in all its process runs.
func (w *row) idle() bool { return w.status == record.Skipped && !w.measured }

// foreign says that the cell is of a metric that the row's backend, or the tool of an imported row, does not have.
func (c *cell) foreign() bool {
	return c.alien || c.row.imported != "" && c.runs == 0 && (c.row.status == record.OK || c.row.measured)
}

// unmeasured lists the rows of a point none of which brought a number, those that were skipped if all are asked for.
func (p *point) unmeasured(n *notes, all bool, width int) []line {
	var out []line
	for _, w := range p.rows {
		if w.idle() && !all {
			continue
		}
		if out == nil {
			out = append(out, line{full: wrap(clean(p.title+" nothing measured"), width, "", "    ")})
		}
		out = append(out, w.emptyCell().line(&comparison{}, unit{"", 1}, n))
	}
	return out
}

// line is one row in one metric.
func (c *cell) line(m *comparison, u unit, n *notes) line {
	w := c.row
	l := line{row: w, mark: noMark, cells: []string{clean(w.where()), "-", "-", "-", "-", "-", c.runsText(), ""}}
	t := l.cells
	if c.runs > 0 {
		t[1] = number(c.stats.Median / u.scale)
		if c.runs > 1 {
			t[2] = number(c.stats.Min/u.scale) + ".." + number(c.stats.Max/u.scale)
		}
		if c.perOp && m.class == workloads.Time {
			t[3] = number(c.p99 / u.scale)
		}
		switch {
		case c.best:
			l.mark, t[4], t[5] = bestMark, "best", ""
		case c.base != nil:
			t[4], t[5] = times(c.ratio()), signed(c.gap()/u.scale)
		}
	}
	t[7] = strings.TrimSpace(c.check() + " " + refText(n.of(w, c, m)))
	if n.expects {
		l.cells = slices.Insert(l.cells, expectedColumn-1, c.expectedText(u))
	}
	return l
}

// runsText is the number of process runs that the numbers come from, of all where some did not count.
func (c *cell) runsText() string {
	if c.runs == len(c.row.samples) {
		return fmt.Sprint(c.runs)
	}
	return fmt.Sprintf("%d/%d", c.runs, len(c.row.samples))
}

// check is the outcome of a row in one word: ok only where the payload was compared and right.
func (c *cell) check() string {
	w := c.row
	switch {
	case w.status == record.Unverified:
		return "BAD"
	case w.status != record.OK:
		return string(w.status)
	case c.missing:
		return "missing"
	case !w.checked:
		return "none"
	}
	return "ok"
}

// skippedEverywhere are the labels of rows that were skipped in every point of the section.
func (s *section) skippedEverywhere() map[string]bool {
	count := map[string]int{}
	for _, p := range s.points {
		for _, w := range p.rows {
			if w.idle() {
				count[w.label+"\x00"+w.where()]++
			}
		}
	}
	every := map[string]bool{}
	for label, k := range count {
		every[label] = k >= len(s.points)
	}
	return every
}

// skippedLine lists the rows of a point that were skipped here, but not everywhere.
func (p *point) skippedLine(everywhere map[string]bool, n *notes, titled bool) string {
	var parts []string
	for _, w := range p.rows {
		if w.idle() && !everywhere[w.label+"\x00"+w.where()] {
			parts = append(parts, w.label+" "+refText(n.of(w, nil, nil)))
		}
	}
	if parts == nil {
		return ""
	}
	title := p.title
	if title != "" {
		title += " "
	}
	if titled {
		title = ""
	}
	return title + "skipped: " + strings.Join(parts, ", ")
}

// refGroups names rows with what they refer to, those with the same together: "deepep, nvshmem [2]".
type refGroups struct {
	order []string // keys of rows
	refs  map[string][]int
}

func (g *refGroups) add(key string, refs []int) {
	if g.refs == nil {
		g.refs = map[string][]int{}
	}
	if g.refs[key] == nil {
		g.order = append(g.order, key)
	}
	for _, k := range refs {
		if !slices.Contains(g.refs[key], k) {
			g.refs[key] = append(g.refs[key], k)
		}
	}
}

func (g *refGroups) text() string {
	var texts []string
	labels := map[string][]string{}
	for _, key := range g.order {
		label, _, _ := strings.Cut(key, "\x00")
		t := refText(g.refs[key])
		if labels[t] == nil {
			texts = append(texts, t)
		}
		labels[t] = append(labels[t], label)
	}
	var parts []string
	for _, t := range texts {
		parts = append(parts, strings.Join(labels[t], ", ")+" "+t)
	}
	return strings.Join(parts, "; ")
}

// everywhereSkipped lists the rows that were skipped in all points, once, but for those that never ran.
func (s *section) everywhereSkipped(n *notes, never map[string]bool) []string {
	every := s.skippedEverywhere()
	var g refGroups
	for _, p := range s.points {
		for _, w := range p.rows {
			key := w.label + "\x00" + w.where()
			if w.idle() && every[key] && !never[key] {
				g.add(key, n.of(w, nil, nil))
			}
		}
	}
	if g.order == nil {
		return nil
	}
	what := "skipped in all " + plural(len(s.points), "point")
	if len(s.points) == 1 {
		what = "skipped"
	}
	return []string{what + ": " + g.text()}
}

// never are the rows that were skipped in all points of several workloads: they are told once.
func (u *run) never(sections []*section) map[string]bool {
	if len(sections) < 2 || u.of.all {
		return nil
	}
	count := map[string]int{}
	for _, s := range sections {
		for key, every := range s.skippedEverywhere() {
			if every {
				count[key]++
			}
		}
	}
	never := map[string]bool{}
	for key, k := range count {
		never[key] = k == len(sections)
	}
	return never
}

// neverRan tells them.
func (u *run) neverRan(sections []*section, never map[string]bool, n *notes) string {
	var g refGroups
	points := 0
	for _, s := range sections {
		points += len(s.points)
		for _, p := range s.points {
			for _, w := range p.rows {
				if key := w.label + "\x00" + w.where(); w.idle() && never[key] {
					g.add(key, n.of(w, nil, nil))
				}
			}
		}
	}
	if g.order == nil {
		return ""
	}
	return fmt.Sprintf("skipped in all %d points of all workloads: %s", points, g.text())
}

// columnWidths are the widths of all columns: what the others need, and for the first one what is left. fits
// says that no label is longer than that.
func columnWidths(tables [][]line, names []string, width, gutter int) (widths []int, fits bool) {
	widths = make([]int, len(names))
	for i, name := range names {
		widths[i] = textWidth(name)
	}
	seen := map[*row]bool{}
	for _, lines := range tables {
		for _, l := range lines {
			for i, c := range l.cells {
				widths[i+1] = max(widths[i+1], textWidth(c))
			}
			if l.row != nil && !seen[l.row] {
				seen[l.row] = true
				widths[0] = max(widths[0], len(noMark)+textWidth(clean(l.row.label)))
			}
		}
	}
	used := 0
	for _, n := range widths[1:] {
		used += n + gutter
	}
	fits = widths[0]+used <= width
	widths[0] = min(widths[0], max(width-used, minLabel))
	// What the numbers leave too little room for is wrapped; only absurd names and numbers get this far.
	for _, shrink := range []struct{ column, least int }{
		{whereColumn, len("soft/host")}, {len(names) - 1, len("timeout")}, {slices.Index(names, "range"), len("1.00e-10..")}, {0, 8},
	} {
		i := shrink.column
		if over := widths[0] + used - width; over > 0 {
			old := widths[i]
			widths[i] = max(old-over, min(old, shrink.least))
			if i > 0 {
				used -= old - widths[i]
			}
		}
	}
	return widths, fits
}

// writeLines renders lines as one table, chunks of it by all CPUs, since a long run has tens of thousands of
// lines.
func writeLines(w io.Writer, lines []line, names []string, labels map[*row]string, widths []int, gutter int) {
	if len(lines) == 0 {
		return
	}
	chunks := (len(lines) + chunkLines - 1) / chunkLines
	rendered := make([]string, chunks)
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range chunks {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			rendered[i] = renderChunk(lines[i*chunkLines:min((i+1)*chunkLines, len(lines))], names, labels, widths, gutter, i == 0)
		})
	}
	wg.Wait()
	for _, s := range rendered {
		io.WriteString(w, s)
		io.WriteString(w, "\n")
	}
}

func renderChunk(lines []line, names []string, labels map[*row]string, widths []int, gutter int, header bool) string {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", strings.Repeat(" ", gutter)
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	configs := make([]table.ColumnConfig, len(names))
	for i := range names {
		configs[i] = table.ColumnConfig{Number: i + 1, WidthMin: widths[i], WidthMax: math.MaxInt32}
		if i >= 2 && i < len(names)-1 {
			configs[i].Align, configs[i].AlignHeader = text.AlignRight, text.AlignRight
		}
	}
	t.SetColumnConfigs(configs)
	if header {
		t.AppendHeader(anyRow(names))
	}
	for i, l := range lines {
		if l.full != nil {
			t.AppendRow(table.Row{fmt.Sprintf("%s%d", placeholder, i)})
			continue
		}
		row := table.Row{fit(labels[l.row], widths[0], l.mark, "    ")}
		for i, c := range l.cells {
			row = append(row, fit(c, widths[i+1], "", ""))
		}
		t.AppendRow(row)
	}
	var b strings.Builder
	for s := range strings.SplitSeq(t.Render(), "\n") {
		if rest, ok := strings.CutPrefix(s, placeholder); ok {
			var i int
			fmt.Sscan(rest, &i)
			s = strings.Join(lines[i].full, "\n")
		}
		b.WriteString(strings.TrimRight(s, " "))
		b.WriteByte('\n')
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// fit wraps what is too long for its column.
func fit(s string, width int, first, rest string) string {
	s = clean(s)
	if textWidth(first)+textWidth(s) <= width {
		return first + s
	}
	s = strings.ReplaceAll(s, "..", ".. ") // a range breaks there
	return strings.Join(wrap(s, width, first, rest), "\n")
}

func anyRow(cells []string) table.Row {
	row := make(table.Row, len(cells))
	for i, c := range cells {
		row[i] = c
	}
	return row
}
