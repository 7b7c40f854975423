package attribution

import (
	_ "embed"
	"fmt"
	"html/template"
	"strings"
)

// HTML is a section of a report: the gaps of all runs in one table, and a waterfall with its numbers for each. Every
// text of a record is escaped. It is empty where no run has a gap to split.
func HTML(list []*Analysis) (template.HTML, error) {
	var runs []htmlRun
	for i, a := range list {
		if len(a.Judgements) > 0 {
			runs = append(runs, runHTML(a, i))
		}
	}
	if runs == nil {
		return "", nil
	}
	var b strings.Builder
	if err := sectionTemplate.Execute(&b, map[string]any{"Runs": runs, "Page": Page}); err != nil {
		return "", fmt.Errorf("render attribution: %w", err)
	}
	return template.HTML(b.String()), nil
}

//go:embed section.tmpl
var sectionText string

var sectionTemplate = template.Must(template.New("attribution").Parse(sectionText))

type (
	htmlRun struct {
		Title    string
		Claim    string
		Gaps     []htmlGap
		Effects  []htmlEffects
		Findings []Finding
	}
	htmlGap struct {
		ID, Name, Metric, Point, Unit            string
		Floor, Library, Gap, Explained, Residual string
		Differ                                   bool
		Steps                                    []htmlStep
		Height                                   int
		Remarks                                  []remark
	}
	// htmlStep is a line of a waterfall and its bar, in the units of the picture.
	htmlStep struct {
		Term, What, Value, Interval, Spread string
		X, Y, Width                         float64
		Total, Less                         bool
	}
	htmlEffects struct {
		Term  Name
		Lines []string
	}
)

// The picture of a waterfall: bars of one height below each other, as wide as the page gives.
const (
	barWidth  = 600.0
	barHeight = 16
	barSlot   = 22
)

func runHTML(a *Analysis, i int) htmlRun {
	r := htmlRun{Title: a.Title(), Claim: a.Claim(), Findings: a.Findings}
	for k, j := range a.Judgements {
		r.Gaps = append(r.Gaps, gapHTML(j, fmt.Sprintf("gap-%d-%d", i+1, k+1)))
	}
	for at := 0; at < len(a.Effects); {
		e := a.Effects[at]
		end := at + 1
		for end < len(a.Effects) && e.sameSeries(a.Effects[end]) {
			end++
		}
		if n := len(r.Effects); n == 0 || r.Effects[n-1].Term != e.Term {
			r.Effects = append(r.Effects, htmlEffects{Term: e.Term})
		}
		last := &r.Effects[len(r.Effects)-1]
		last.Lines = append(last.Lines, seriesText(a.Effects[at:end]))
		at = end
	}
	return r
}

func gapHTML(j *Judgement, id string) htmlGap {
	s := j.Ladder()
	p := printedOf(j, s)
	explained := int64(0)
	for _, v := range p.parts {
		explained += v
	}
	g := htmlGap{
		ID: id, Name: j.Gap.Name(), Metric: j.metric(), Point: j.Gap.Row.Point(), Unit: p.unit, Floor: p.print(p.floor), Library: p.print(p.library),
		Gap: p.signed(p.library - p.floor), Explained: p.signed(explained), Residual: p.signed(p.residual), Differ: j.Verdict == Inconsistent,
		Remarks: remarksOf(j, s, p),
	}
	floor, library := mustTimes(j)
	b := newBars(p, 0)
	x := func(v int64) float64 {
		if b.high == b.low {
			return 0
		}
		return float64(v-b.low) / float64(b.high-b.low) * barWidth
	}
	add := func(step htmlStep, from, to int64) {
		step.Less = to < from
		from, to = min(from, to), max(from, to)
		step.X, step.Width, step.Y = x(from), max(x(to)-x(from), 1), float64(len(g.Steps)*barSlot)
		g.Steps = append(g.Steps, step)
	}
	add(htmlStep{Term: "floor", What: j.Gap.Floor.Label() + from(j.Gap.Floor), Value: g.Floor, Interval: p.interval(floor, p.floor), Total: true}, 0, p.floor)
	at := p.floor
	if s != nil {
		for i, part := range s.Parts {
			add(htmlStep{Term: joinNames(part.Terms), What: part.What, Value: p.signed(p.parts[i]), Interval: p.interval(part.Quantity, p.parts[i]),
				Spread: p.spread(part.Spread)}, at, at+p.parts[i])
			at += p.parts[i]
		}
		add(htmlStep{Term: "residual", What: "not explained", Value: g.Residual, Interval: p.interval(s.Residual, p.residual), Spread: p.spread(s.ResidualSpread)}, at, p.library)
	}
	add(htmlStep{Term: "library", What: j.Gap.Row.Label() + from(j.Gap.Row), Value: g.Library, Interval: p.interval(library, p.library), Total: true}, 0, p.library)
	g.Height = len(g.Steps)*barSlot + 2
	return g
}

// BarHeight is used by the template.
func (htmlStep) BarHeight() int { return barHeight }

// BarWidth is used by the template.
func (htmlGap) BarWidth() int { return int(barWidth) }
