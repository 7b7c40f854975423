package plot

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	groupSlot = vg.Length(19) // a group's title
	barText   = vg.Length(16) // a bar's label
	barThick  = vg.Length(11)
	barSlot   = barText + barThick + 4
	axisRoom  = vg.Length(34) // ticks and label of the axis
)

// fillings of the parts: they differ in lightness and hatching as well as in colour.
var fillings = []struct {
	color color.RGBA
	hatch bool
}{
	{palette[0], false}, {palette[1], true}, {palette[2], false}, {palette[3], true},
	{palette[4], false}, {palette[5], true}, {palette[6], false}, {palette[7], true},
}

// fill draws a rectangle of a part.
func fill(c draw.Canvas, part int, r vg.Rectangle) {
	f := fillings[part%len(fillings)]
	corners := []vg.Point{r.Min, {X: r.Max.X, Y: r.Min.Y}, r.Max, {X: r.Min.X, Y: r.Max.Y}}
	if !f.hatch {
		c.FillPolygon(f.color, corners)
		return
	}
	sty := solid(f.color, 1)
	h := r.Max.Y - r.Min.Y
	for x := r.Min.X - h; x < r.Max.X; x += 4 {
		// From the lower to the upper edge, cut at the sides.
		from, to := vg.Length(0), h
		if x < r.Min.X {
			from = r.Min.X - x
		}
		if x+h > r.Max.X {
			to = r.Max.X - x
		}
		if from < to {
			c.StrokeLine2(sty, x+from, r.Min.Y+from, x+to, r.Min.Y+to)
		}
	}
	c.StrokeLines(sty, append(corners, r.Min))
}

func (b *Bars) frame() frame {
	var leg legend
	for i, name := range b.Parts {
		leg = append(leg, entry{name, func(c draw.Canvas, from, to vg.Point) {
			fill(c, i, vg.Rectangle{Min: vg.Point{X: from.X, Y: from.Y - 4}, Max: vg.Point{X: to.X, Y: to.Y + 4}})
		}})
	}
	return newFrame(b.Title, b.Note, leg)
}

func (b *Bars) slots() vg.Length {
	var h vg.Length
	for _, g := range b.Groups {
		h += g.slot() + vg.Length(len(g.Bars))*barSlot
	}
	return h
}

func (g Group) slot() vg.Length {
	if g.Title == "" {
		return 6
	}
	return groupSlot
}

func (b *Bars) height() vg.Length { return b.frame().height(b.slots() + axisRoom) }

func (b *Bars) draw(c draw.Canvas) {
	inner := b.frame().draw(c)
	values := []float64{0}
	for _, g := range b.Groups {
		for _, bar := range g.Bars {
			sum := 0.0
			for _, v := range bar.Parts {
				sum += v
			}
			values = append(values, sum, bar.High)
		}
	}
	x := b.X
	x.Scale, x.Zero = Linear, true
	p := axes(x, Axis{}, values, nil, nil)
	p.Y.Min, p.Y.Max = 0, 1
	p.HideY()
	p.X.Tick.Marker = fixedTicks(linear(p.X.Min, p.X.Max))
	p.Add(&barPlotter{b})
	p.Draw(draw.Crop(inner, 6, -14, 0, 0))
}

type barPlotter struct{ *Bars }

// Plot implements plot.Plotter.
func (b *barPlotter) Plot(c draw.Canvas, p *plot.Plot) {
	trX, _ := p.Transforms(&c)
	label, number := style(noteSize, colorText), bold(style(noteSize, colorText))
	y := c.Max.Y
	for _, g := range b.Groups {
		if g.Title != "" {
			c.FillText(bold(style(noteSize, colorMute)), vg.Point{X: c.Min.X, Y: y - 4}, fitText(g.Title, number, c.Max.X-c.Min.X))
		}
		y -= g.slot()
		for _, bar := range g.Bars {
			room := c.Max.X - c.Min.X - number.Width(bar.Text) - 10
			text := fitText(bar.Label, label, room)
			c.FillText(label, vg.Point{X: c.Min.X + 3, Y: y - 1}, text)
			c.FillText(number, vg.Point{X: c.Min.X + 3 + label.Width(text+"  "), Y: y - 1}, bar.Text)
			top := y - barText
			from := 0.0
			for i, v := range bar.Parts {
				if v > 0 && !math.IsInf(v, 0) {
					fill(c, i, vg.Rectangle{
						Min: vg.Point{X: trX(from), Y: top - barThick}, Max: vg.Point{X: trX(from + v), Y: top},
					})
					from += v
				}
			}
			if bar.Low < bar.High {
				mid, lo, hi := top-barThick/2, trX(bar.Low), trX(bar.High)
				// A light line beneath, so that the bar's own colour does not hide it.
				for _, sty := range []draw.LineStyle{solid(colorBack, 3.4), solid(colorText, 1.2)} {
					c.StrokeLine2(sty, lo, mid, hi, mid)
					c.StrokeLine2(sty, lo, mid-3, lo, mid+3)
					c.StrokeLine2(sty, hi, mid-3, hi, mid+3)
				}
			}
			y -= barSlot
		}
	}
}

// fitText cuts text that is too wide and says so with dots.
func fitText(s string, sty draw.TextStyle, wide vg.Length) string {
	if sty.Width(s) <= wide {
		return s
	}
	return cut(s, sty, max(wide-sty.Width("..."), 1)) + "..."
}
