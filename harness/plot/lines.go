package plot

import (
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// area is the height of the axes with their labels.
const area = vg.Length(260)

// frame is what stands above and below the axes.
type frame struct {
	title, note block
	legend      legend
}

func newFrame(title, note string, l legend) frame {
	inner := width - 2*margin
	return frame{newBlock(title, bold(style(titleSize, colorText)), inner), newBlock(note, style(noteSize, colorMute), inner), l}
}

func (f frame) height(middle vg.Length) vg.Length {
	return 2*margin + f.title.height() + f.note.height() + margin + middle + f.legend.height()
}

// draw draws the frame and returns the canvas that is left in the middle.
func (f frame) draw(c draw.Canvas) draw.Canvas {
	c.FillPolygon(colorBack, []vg.Point{c.Min, {X: c.Max.X, Y: c.Min.Y}, c.Max, {X: c.Min.X, Y: c.Max.Y}})
	x, y := c.Min.X+margin, c.Max.Y-margin
	f.title.draw(c, x, y)
	y -= f.title.height()
	f.note.draw(c, x, y)
	y -= f.note.height() + margin
	f.legend.draw(c, x, c.Min.Y+margin+f.legend.height())
	return draw.Crop(c, margin, -margin-4, margin+f.legend.height(), y-c.Max.Y)
}

// entry is one line of a legend.
type entry struct {
	text string
	draw func(c draw.Canvas, from, to vg.Point) // a sample between two points
}

type legend []entry

const (
	sampleWidth = vg.Length(30)
	legendGap   = vg.Length(6)
)

// blocks breaks the entries for one or two columns.
func (l legend) blocks() ([]block, int) {
	sty := style(noteSize, colorText)
	half := (width-2*margin)/2 - sampleWidth - 2*legendGap
	columns := 2
	for _, e := range l {
		if sty.Width(e.text) > half {
			columns = 1
		}
	}
	wide := half
	if columns == 1 {
		wide = width - 2*margin - sampleWidth - legendGap
	}
	out := make([]block, len(l))
	for i, e := range l {
		out[i] = newBlock(e.text, sty, wide)
	}
	return out, columns
}

func (l legend) height() vg.Length {
	blocks, columns := l.blocks()
	var h vg.Length
	for i := 0; i < len(blocks); i += columns {
		row := vg.Length(0)
		for _, b := range blocks[i:min(i+columns, len(blocks))] {
			row = max(row, b.height())
		}
		h += row + 3
	}
	if h > 0 {
		h += legendGap
	}
	return h
}

func (l legend) draw(c draw.Canvas, x, y vg.Length) {
	blocks, columns := l.blocks()
	y -= legendGap
	for i := 0; i < len(blocks); i += columns {
		row := vg.Length(0)
		for j, b := range blocks[i:min(i+columns, len(blocks))] {
			at := x + vg.Length(j)*(width-2*margin)/2
			mid := y - b.style.Font.Size*0.6
			l[i+j].draw(c, vg.Point{X: at, Y: mid}, vg.Point{X: at + sampleWidth, Y: mid})
			b.draw(c, at+sampleWidth+legendGap, y)
			row = max(row, b.height())
		}
		y -= row + 3
	}
}

func (l *Lines) frame() frame {
	var leg legend
	rings := false
	for i, s := range l.Series {
		leg = append(leg, entry{s.Name, func(c draw.Canvas, from, to vg.Point) {
			c.StrokeLine2(seriesLine(i), from.X, from.Y, to.X, to.Y)
			c.DrawGlyphNoClip(seriesGlyph(i), vg.Point{X: (from.X + to.X) / 2, Y: from.Y})
		}})
		rings = rings || len(s.Rings) > 0
	}
	if rings && l.Ring != "" {
		leg = append(leg, entry{l.Ring, func(c draw.Canvas, from, to vg.Point) {
			c.DrawGlyphNoClip(ringStyle, vg.Point{X: (from.X + to.X) / 2, Y: from.Y})
		}})
	}
	return newFrame(l.Title, l.Note, leg)
}

var ringStyle = draw.GlyphStyle{Color: colorText, Radius: 6.5, Shape: draw.RingGlyph{}}

func (l *Lines) height() vg.Length { return l.frame().height(area) }

func (l *Lines) draw(c draw.Canvas) {
	inner := l.frame().draw(c)
	var xs, ys, data []float64
	for _, s := range l.Series {
		for _, pt := range s.Points {
			xs = append(xs, pt.X, pt.XLow, pt.XHigh)
			ys = append(ys, pt.Y, pt.Low, pt.High)
			data = append(data, pt.X)
		}
	}
	p := axes(l.X, l.Y, xs, ys, data)
	for i, s := range l.Series {
		p.Add(&line{s, i, len(l.Series), l.X.Scale, l.Y.Scale})
	}
	p.Draw(inner)
}

// axes makes an empty plot whose axes hold the values. Ticks of X prefer the places where there are data.
func axes(x, y Axis, xs, ys, data []float64) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	p.X.Min, p.X.Max = span(x, xs)
	p.Y.Min, p.Y.Max = span(y, ys)
	p.X.Tick.Marker = fixedTicks(xTicks(x, p.X.Min, p.X.Max, data))
	p.Y.Tick.Marker = fixedTicks(ticks(y, p.Y.Min, p.Y.Max))
	for _, a := range []struct {
		axis *plot.Axis
		def  Axis
	}{{&p.X, x}, {&p.Y, y}} {
		if a.def.Scale != Linear {
			a.axis.Scale = plot.LogScale{}
		}
		a.axis.Padding = 0
		a.axis.LineStyle = solid(colorMute, 0.8)
		a.axis.Tick.LineStyle = solid(colorMute, 0.8)
		a.axis.Tick.Length = 4
		a.axis.Label.Text = a.def.Label
		a.axis.Label.Padding = 3
		setText(&a.axis.Label.TextStyle, 12)
		setText(&a.axis.Tick.Label, tickSize)
	}
	g := plotter.NewGrid()
	g.Horizontal, g.Vertical = solid(colorGrid, 0.7), solid(colorGrid, 0.7)
	p.Add(g)
	return p
}

// setText keeps the alignment and rotation that an axis needs.
func setText(t *draw.TextStyle, size vg.Length) {
	t.Font = style(size, colorText).Font
	t.Color = colorText
	t.Handler = style(size, colorText).Handler
}

type fixedTicks []plot.Tick

func (t fixedTicks) Ticks(_, _ float64) []plot.Tick { return t }

// line draws a series. Intervals of several series at one X stand beside each other.
type line struct {
	Series
	index, of int
	x, y      Scale
}

func drawable(v float64, s Scale) bool {
	return !math.IsNaN(v) && !math.IsInf(v, 0) && (s == Linear || v > 0)
}

// Plot implements plot.Plotter.
func (l *line) Plot(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	shift := (vg.Length(l.index) - vg.Length(l.of-1)/2) * 1.3
	// An end that a logarithmic axis cannot show lies at its edge.
	clamp := func(v float64, a *plot.Axis) float64 { return min(max(v, a.Min), a.Max) }
	var pts []vg.Point
	sty := seriesLine(l.index)
	stroke := func() {
		if len(pts) > 1 {
			c.StrokeLines(sty, c.ClipLinesXY(pts)...)
		}
		pts = nil
	}
	for _, pt := range l.Points {
		if !drawable(pt.X, l.x) || !drawable(pt.Y, l.y) {
			stroke()
			continue
		}
		pts = append(pts, vg.Point{X: trX(pt.X) + shift, Y: trY(pt.Y)})
	}
	stroke()
	bar, cap := solid(sty.Color, 1), vg.Length(2.5)
	for _, pt := range l.Points {
		if !drawable(pt.X, l.x) || !drawable(pt.Y, l.y) {
			continue
		}
		x, y := trX(pt.X)+shift, trY(pt.Y)
		if pt.Low < pt.High {
			lo, hi := trY(clamp(pt.Low, &p.Y)), trY(clamp(pt.High, &p.Y))
			c.StrokeLine2(bar, x, lo, x, hi)
			c.StrokeLine2(bar, x-cap, lo, x+cap, lo)
			c.StrokeLine2(bar, x-cap, hi, x+cap, hi)
		}
		if pt.XLow < pt.XHigh {
			lo, hi := trX(clamp(pt.XLow, &p.X))+shift, trX(clamp(pt.XHigh, &p.X))+shift
			c.StrokeLine2(bar, lo, y, hi, y)
			c.StrokeLine2(bar, lo, y-cap, lo, y+cap)
			c.StrokeLine2(bar, hi, y-cap, hi, y+cap)
		}
		if !l.Bare || pt.XLow < pt.XHigh || pt.Low < pt.High {
			c.DrawGlyphNoClip(seriesGlyph(l.index), vg.Point{X: x, Y: y})
		}
	}
	for _, r := range l.Rings {
		if drawable(r.X, l.x) && drawable(r.Y, l.y) {
			c.DrawGlyphNoClip(ringStyle, vg.Point{X: trX(r.X) + shift, Y: trY(r.Y)})
		}
	}
}
