package plot

import (
	"image/color"
	"strings"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	xfont "golang.org/x/image/font"
)

// MaxSeries is how many series a figure can tell apart.
const MaxSeries = 8

// palette is that of Okabe and Ito (Color Universal Design, 2008), the light ones darkened to a contrast of 3:1
// with white (WCAG 2.2, 1.4.11), in an order in which neighbours differ in lightness too.
var palette = [MaxSeries]color.RGBA{
	{0x00, 0x72, 0xb2, 0xff}, // blue
	{0xd5, 0x5e, 0x00, 0xff}, // vermilion
	{0x00, 0x85, 0x62, 0xff}, // bluish green
	{0xb4, 0x5d, 0x92, 0xff}, // reddish purple
	{0x55, 0x55, 0x55, 0xff}, // grey, for black
	{0x2f, 0x8f, 0xc4, 0xff}, // sky blue
	{0xa8, 0x74, 0x00, 0xff}, // orange
	{0x8c, 0x82, 0x00, 0xff}, // yellow
}

var (
	colorBack = color.RGBA{0xff, 0xff, 0xff, 0xff}
	colorText = color.RGBA{0x1a, 0x1a, 0x1a, 0xff}
	colorMute = color.RGBA{0x5a, 0x5a, 0x5b, 0xff}
	colorGrid = color.RGBA{0xdd, 0xdd, 0xde, 0xff}
)

var dashes = [MaxSeries][]vg.Length{
	nil, {6, 3}, {2, 2}, {8, 3, 2, 3}, {10, 4}, {4, 2, 1, 2, 1, 2}, {1, 2}, {12, 2, 2, 2},
}

var glyphs = [MaxSeries]draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, diamond{},
	draw.CrossGlyph{}, draw.RingGlyph{}, draw.BoxGlyph{}, draw.PlusGlyph{},
}

// diamond is a square on its corner.
type diamond struct{}

func (diamond) DrawGlyph(c *draw.Canvas, sty draw.GlyphStyle, pt vg.Point) {
	r := sty.Radius * 1.3
	c.FillPolygon(sty.Color, []vg.Point{
		{X: pt.X - r, Y: pt.Y}, {X: pt.X, Y: pt.Y + r}, {X: pt.X + r, Y: pt.Y}, {X: pt.X, Y: pt.Y - r},
	})
}

func seriesLine(i int) draw.LineStyle {
	i %= MaxSeries
	return draw.LineStyle{Color: palette[i], Width: 1.6, Dashes: dashes[i]}
}

func seriesGlyph(i int) draw.GlyphStyle {
	i %= MaxSeries
	return draw.GlyphStyle{Color: palette[i], Radius: 3, Shape: glyphs[i]}
}

func solid(c color.Color, w vg.Length) draw.LineStyle { return draw.LineStyle{Color: c, Width: w} }

// style is sans serif text, from above and the left.
func style(size vg.Length, c color.Color) text.Style {
	return text.Style{
		Color: c, Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: size},
		XAlign: text.XLeft, YAlign: text.YTop, Handler: text.Plain{Fonts: font.DefaultCache},
	}
}

func bold(s text.Style) text.Style {
	s.Font.Weight = xfont.WeightBold
	return s
}

const (
	titleSize = vg.Length(14)
	noteSize  = vg.Length(11)
	tickSize  = vg.Length(11)
	leading   = 1.25 // line height over font size
	margin    = vg.Length(8)
)

// block is text broken into lines of a width.
type block struct {
	style text.Style
	lines []string
}

func newBlock(s string, sty text.Style, wide vg.Length) block {
	return block{sty, wrap(s, sty, wide)}
}

func (b block) height() vg.Length {
	return vg.Length(len(b.lines)) * b.style.Font.Size * leading
}

// draw puts the block with its upper left corner at a point.
func (b block) draw(c draw.Canvas, x, y vg.Length) {
	for i, l := range b.lines {
		c.FillText(b.style, vg.Point{X: x, Y: y - vg.Length(i)*b.style.Font.Size*leading}, l)
	}
}

// wrap breaks text at spaces, and words that are too long anywhere.
func wrap(s string, sty text.Style, wide vg.Length) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		next := word
		if line != "" {
			next = line + " " + word
		}
		if sty.Width(next) <= wide {
			line = next
			continue
		}
		if line != "" {
			lines = append(lines, line)
		}
		line = word
		for sty.Width(line) > wide {
			head := cut(line, sty, wide)
			lines = append(lines, head)
			line = line[len(head):]
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// cut gives the longest beginning of a word that fits, at least one rune.
func cut(word string, sty text.Style, wide vg.Length) string {
	end := 0
	for i, r := range word {
		next := i + len(string(r))
		if end > 0 && sty.Width(word[:next]) > wide {
			break
		}
		end = next
	}
	return word[:end]
}
