package plot

import (
	"fmt"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Measured is a case in one run.
type Measured struct {
	Run              string
	Time             time.Time
	Value, Low, High float64 // Low == High: no interval
}

// Change is a change point: from runs[At] on, the level is another one. Levels are in the unit of the values.
type Change struct {
	At            int
	Before, After float64
	Worse         bool
}

// History is a case over runs, oldest first, equally spaced: what counts is which run brought a change, and runs
// come in bursts.
type History struct {
	Title, Note string
	Y           Axis
	Runs        []Measured
	Changes     []Change
}

// Name is the title.
func (h *History) Name() string { return h.Title }

func (h *History) frame() frame {
	leg := legend{{"run", func(c draw.Canvas, from, to vg.Point) {
		c.StrokeLine2(seriesLine(0), from.X, from.Y, to.X, to.Y)
		c.DrawGlyphNoClip(seriesGlyph(0), vg.Point{X: (from.X + to.X) / 2, Y: from.Y})
	}}}
	for i, ch := range h.Changes {
		leg = append(leg, entry{fmt.Sprintf("%c: %s", mark(i), h.describe(ch)), func(c draw.Canvas, from, to vg.Point) {
			c.StrokeLine2(changeStyle(ch), from.X, from.Y, to.X, to.Y)
		}})
	}
	return newFrame(h.Title, h.Note, leg)
}

// mark is the letter of a change point; after Z they repeat.
func mark(i int) rune { return rune('A' + i%26) }

func (h *History) describe(ch Change) string {
	s := "change"
	if ch.At >= 0 && ch.At < len(h.Runs) {
		r := h.Runs[ch.At]
		s = "since " + r.Run
		if !r.Time.IsZero() {
			s += " (" + r.Time.UTC().Format("2006-01-02 15:04") + "Z)"
		}
	}
	s += fmt.Sprintf(": %.3g to %.3g", ch.Before, ch.After)
	if ch.Before != 0 {
		s += fmt.Sprintf(" (%+.1f %%)", 100*(ch.After/ch.Before-1))
	}
	if ch.Worse {
		return s + ", worse"
	}
	return s + ", better"
}

func changeStyle(ch Change) draw.LineStyle {
	if ch.Worse {
		return draw.LineStyle{Color: palette[1], Width: 1.4, Dashes: []vg.Length{5, 3}}
	}
	return draw.LineStyle{Color: palette[2], Width: 1.4, Dashes: []vg.Length{2, 2}}
}

func (h *History) height() vg.Length { return h.frame().height(area) }

func (h *History) draw(c draw.Canvas) {
	inner := h.frame().draw(c)
	s := Series{}
	var xs, ys []float64
	for i, r := range h.Runs {
		s.Points = append(s.Points, Point{X: float64(i), Y: r.Value, Low: r.Low, High: r.High})
		xs = append(xs, float64(i))
		ys = append(ys, r.Value)
		if r.Low < r.High {
			ys = append(ys, r.Low, r.High)
		}
	}
	p := axes(Axis{Label: "run, by time"}, h.Y, xs, ys, nil)
	p.X.Min, p.X.Max = -0.5, max(float64(len(h.Runs))-0.5, 0.5)
	p.X.Tick.Marker = fixedTicks(h.dates())
	p.Add(&changes{h})
	p.Add(&line{s, 0, 1, Linear, h.Y.Scale})
	p.Draw(inner)
}

// dates labels at most five runs, the first and last among them.
func (h *History) dates() []plot.Tick {
	n := len(h.Runs)
	var out []plot.Tick
	labels := min(n, 5)
	next := 0
	for i, r := range h.Runs {
		t := plot.Tick{Value: float64(i)}
		if labels == 1 || next < labels && i == next*(n-1)/(labels-1) {
			t.Label = r.Run
			if !r.Time.IsZero() {
				t.Label = r.Time.UTC().Format("2006-01-02")
			}
			next++
		} else if n > 60 {
			continue
		}
		out = append(out, t)
	}
	return out
}

// changes draws the change points: a line between the two runs, and the levels on either side.
type changes struct{ *History }

// Plot implements plot.Plotter.
func (h *changes) Plot(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	for i, ch := range h.Changes {
		if ch.At <= 0 || ch.At >= len(h.Runs) {
			continue
		}
		x := trX(float64(ch.At) - 0.5)
		sty := changeStyle(ch)
		c.StrokeLine2(sty, x, c.Min.Y, x, c.Max.Y)
		c.FillText(bold(style(noteSize, colorText)), vg.Point{X: x + 3, Y: c.Max.Y - 1}, string(mark(i)))
		from, to := 0, len(h.Runs)-1
		if i > 0 {
			from = h.Changes[i-1].At
		}
		if i+1 < len(h.Changes) {
			to = h.Changes[i+1].At - 1
		}
		level := func(v float64, a, b float64) {
			if drawable(v, h.Y.Scale) {
				pts := []vg.Point{{X: trX(a), Y: trY(v)}, {X: trX(b), Y: trY(v)}}
				c.StrokeLines(solid(colorMute, 0.9), c.ClipLinesXY(pts)...)
			}
		}
		level(ch.Before, float64(from)-0.5, float64(ch.At)-0.5)
		level(ch.After, float64(ch.At)-0.5, float64(to)+0.5)
	}
}
