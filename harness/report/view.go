package report

import (
	"slices"

	"gic/harness/record"
	"gic/workloads"
)

// View is the model for renderers outside this package, such as HTML pages: the texts are those that tables
// show, the numbers those of csv. Texts are as records gave them, to be escaped by the renderer.
type View struct {
	Runs   []RunView
	Errors []string // lines that could not be read, each with file and line
}

// RunView is one run.
type RunView struct {
	Number int            // from 0, in the order of the records
	Header *record.Header // nil for records without one
	// Head says what the run is and on what machine, Claim what the numbers do not support ("" if they are those
	// of hardware), Every which warnings all rows share, Totals how complete the run is.
	Head  []string
	Claim string
	// Percentiles says what p90 and p99 are of.
	Percentiles string
	Expected    string // what Report.Expect's numbers are of, "" without it
	Every       []string
	Totals      []string
	Statuses    []StatusCount
	Sections    []SectionView
	Never       string   // the rows that were skipped in all points of several workloads, "" for none
	Notes       []string // footnotes; the first is [1]
}

// StatusCount is how many cases have a status.
type StatusCount struct {
	Status record.Status
	Cases  int
}

// SectionView is one workload of a run.
type SectionView struct {
	Workload string
	Common   []record.KeyValue // axes with one value over all points
	Ranks    []int
	Points   []PointView
	Below    []string // lines under the table: goodput's knees, rows that were skipped in all of its points
}

// PointView is one point of a workload: rows that do the same work.
type PointView struct {
	Title   string // the axes that vary, "" if none does
	Axes    map[string]string
	Ranks   int
	Metrics []MetricView
	Rows    []RowView // all rows, also those without a number
	Skipped string    // rows that were skipped here but not everywhere, "" for none
}

// MetricView is one metric of a point over its rows.
type MetricView struct {
	Name, Base string // Base is the unit of the values: s, msg/s, B/s
	Class      workloads.Class
	Unit       string // of the texts
	// Of says whose figures these are, of CUDA threads over a software NIC: "GPU alone" or "software NIC". Else "".
	Of    string
	Shown bool // tables show it; the texts are there
	Cells []CellView
}

// RowView is what one case is.
type RowView struct {
	ID, Label, Backend, NIC, Device, Where string            // Where is NIC/device
	Parts                                  []record.KeyValue // what Label holds behind the backend
	Keys                                   []record.KeyValue // as record.Flatten, without the process run
	Mark                                   string            // behind the label of an imported row, else ""
	Imported                               string            // the file that the row was taken from, "" for a measured one
	Status                                 record.Status
	Reason                                 string
	Runs                                   int // process runs, of any status
	Measured, Verified, Oversubscribed     bool
}

// CellView is one row in one metric. A cell without N has no numbers.
type CellView struct {
	Row  *RowView
	Text CellText
	Best bool // the best verified floor of its place
	// Alone: CUDA threads measured themselves, so that the figure is of hardware whatever the NIC is.
	Alone bool
	// Floor is the median of the best floor, 0 if there is none to compare with.
	Floor float64
	N     int // process runs behind the numbers
	Ops   int // samples inside them
	PerOp bool
	// Over process runs.
	Median, RunMin, RunMax float64
	Low, High              float64 // 95 % interval of the median, if Bounded
	Bounded                bool
	// Over the samples inside process runs, if PerOp.
	Min, P90, P99, Max float64
}

// CellText is a cell as tables show it.
type CellText struct {
	Where, Median, Range, P99, Ratio, Gap, N, Check string
	Expected                                        string // "" without Report.Expect
}

// Interval is the spread to draw around the median: its 95 % interval, or the range of the process runs where
// there are too few for one.
func (c *CellView) Interval() (low, high float64) {
	if c.Bounded {
		return c.Low, c.High
	}
	return c.RunMin, c.RunMax
}

// Runs is the number of runs so far. A case is counted to the last one.
func (r *Report) Runs() int { return len(r.runs) }

// View builds the model.
func (r *Report) View() *View {
	v := &View{Errors: r.Errors()}
	for i, u := range r.runs {
		v.Runs = append(v.Runs, u.view())
		v.Runs[i].Number = i
	}
	return v
}

func (u *run) view() RunView {
	sections := u.sections()
	n := newNotes(u)
	v := RunView{Header: u.header, Head: u.headLines(), Claim: u.claimLine(), Percentiles: u.percentiles(), Expected: u.of.expectedFrom, Every: u.everyLines(n)}
	never := u.never(sections)
	for _, s := range sections {
		v.Sections = append(v.Sections, s.view(n, never))
	}
	v.Never = u.neverRan(sections, never, n)
	v.Notes, v.Totals = n.texts(), u.totalLines()
	for _, status := range severity {
		k := 0
		for _, w := range u.rows {
			if w.status == status {
				k++
			}
		}
		if k > 0 {
			v.Statuses = append(v.Statuses, StatusCount{status, k})
		}
	}
	return v
}

// view visits rows in the order of the table format, so that the numbers of notes are the same.
func (s *section) view(n *notes, never map[string]bool) SectionView {
	v := SectionView{Workload: s.workload, Common: s.common, Ranks: s.ranks}
	everywhere := s.skippedEverywhere()
	for _, p := range s.points {
		v.Points = append(v.Points, p.view(everywhere, n))
	}
	v.Below = append(s.reach(), s.everywhereSkipped(n, never)...)
	return v
}

func (p *point) view(everywhere map[string]bool, n *notes) PointView {
	v := PointView{Title: p.title, Axes: p.axes, Ranks: p.ranks, Rows: make([]RowView, len(p.rows))}
	for i, w := range p.rows {
		v.Rows[i] = w.view()
	}
	shown := p.shown()
	for _, m := range p.metrics {
		u := unitFor(m)
		mv := MetricView{Name: m.name, Base: m.unit, Class: m.class, Unit: u.name, Of: m.of(), Shown: slices.Contains(shown, m)}
		for i, c := range m.cells {
			cv := c.view(&v.Rows[i])
			cv.Alone = c.row.device == "cuda" && workloads.OnDevice(c.row.workload, m.name)
			if mv.Shown && !c.row.idle() && !c.foreign() {
				cv.Text = textOf(c.line(m, u, n))
			}
			mv.Cells = append(mv.Cells, cv)
		}
		v.Metrics = append(v.Metrics, mv)
	}
	if len(shown) == 0 && slices.ContainsFunc(p.rows, func(w *row) bool { return !w.idle() }) {
		mv := MetricView{Name: "nothing measured", Shown: true}
		for i, w := range p.rows {
			cv := CellView{Row: &v.Rows[i]}
			if !w.idle() {
				cv.Text = textOf(w.emptyCell().line(&comparison{}, unit{"", 1}, n))
			}
			mv.Cells = append(mv.Cells, cv)
		}
		v.Metrics = append(v.Metrics, mv)
	}
	v.Skipped = p.skippedLine(everywhere, n, true)
	return v
}

func (w *row) view() RowView {
	return RowView{
		ID: w.id, Label: w.label, Backend: w.backend, NIC: w.nic, Device: w.device, Where: w.where(), Parts: w.parts, Mark: w.mark, Imported: w.imported,
		Keys: w.keys(), Status: w.status, Reason: w.reasonText(), Runs: len(w.samples), Measured: w.measured,
		Verified: w.checked, Oversubscribed: w.oversubscribed,
	}
}

func (c *cell) view(row *RowView) CellView {
	v := CellView{
		Row: row, Best: c.best, N: c.runs, Ops: c.ops, PerOp: c.perOp, Median: c.stats.Median, RunMin: c.stats.Min,
		RunMax: c.stats.Max, Min: c.min, P90: c.p90, P99: c.p99, Max: c.max,
	}
	if c.runs > 0 && c.stats.Bounded() {
		v.Low, v.High, v.Bounded = c.stats.Low, c.stats.High, true
	}
	if c.base != nil {
		v.Floor = c.base.stats.Median
	}
	return v
}

func textOf(l line) CellText {
	t := l.cells
	if len(t) == len(columns) { // the first column is the label, so that one more is there
		text := textOf(line{cells: slices.Delete(slices.Clone(t), expectedColumn-1, expectedColumn)})
		text.Expected = t[expectedColumn-1]
		return text
	}
	return CellText{Where: t[0], Median: t[1], Range: t[2], P99: t[3], Ratio: t[4], Gap: t[5], N: t[6], Check: t[7]}
}

// Unit is the unit in which tables would show values between low and high, and what to divide them by.
func Unit(class workloads.Class, base string, low, high float64) (name string, scale float64) {
	u := unitBetween(class, base, low, high)
	return u.name, u.scale
}

// Number prints a value as tables do: three digits.
func Number(v float64) string { return number(v) }

// ParseNumber reads an axis value that is a number, with a binary suffix or not.
func ParseNumber(s string) (float64, bool) { return parseNumber(s) }

// Clean makes text of a record one printable line.
func Clean(s string) string { return clean(s) }

// EscapeMarkdown keeps text of records from being read as markup.
func EscapeMarkdown(s string) string { return escape(s) }
