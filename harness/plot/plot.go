// Package plot draws figures from plain data: lines with intervals (Lines), stacked bars (Bars) and a case over
// runs with its change points (History). It knows no records and computes no statistics; every number that it
// draws was given. The drawing is that of gonum.org/v1/plot, once for SVG and PNG.
//
// A figure says its units, what the numbers are of, and how many there are in its own title, note and axes, so
// that it can be cut out of its page. Series differ in colour, marker and dash, so that neither colour vision nor
// a colour printer is needed.
package plot

import (
	"bytes"
	"fmt"
	"io"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Scale is how an axis maps values.
type Scale int

// The scales. Values that are not positive cannot stand on a logarithmic axis and are left out there.
const (
	Linear Scale = iota
	Log10
	Log2 // ticks at powers of two
)

// Axis is one axis of a figure.
type Axis struct {
	Label string // with the unit, "one way, us"
	Scale Scale
	Bytes bool // ticks carry binary suffixes
	Zero  bool // a linear axis begins at zero
}

// Point is one value with its interval, Low <= Y <= High. Low == High is none. XLow and XHigh likewise.
type Point struct {
	X, Y, Low, High float64
	XLow, XHigh     float64
}

// Ring marks a place on a series.
type Ring struct{ X, Y float64 }

// Series is one line of a figure.
type Series struct {
	Name   string
	Points []Point // drawn in this order
	Rings  []Ring
	Bare   bool // no markers but at points with an interval: for dense curves
}

// Lines is a figure of lines over two axes.
type Lines struct {
	Title string // what is shown
	Note  string // on what, how many, what the intervals are
	X, Y  Axis
	// At most MaxSeries can be told apart.
	Series []Series
	// Ring is what rings mean, for the legend.
	Ring string
}

// Bar is one bar of stacked parts, from zero to the right.
type Bar struct {
	Label string
	Text  string    // behind the label: the number
	Parts []float64 // one for each of Bars.Parts; none is negative
	// Low and High bound the whole; equal is no interval.
	Low, High float64
}

// Group is bars that are compared with each other.
type Group struct {
	Title string
	Bars  []Bar
}

// Bars is a figure of stacked bars.
type Bars struct {
	Title, Note string
	X           Axis     // of the values; linear, from zero
	Parts       []string // what the parts of a bar are
	Groups      []Group
}

// Figure is Lines, Bars or History.
type Figure interface {
	Name() string // its title
	height() vg.Length
	draw(c draw.Canvas)
}

var (
	_ Figure = (*Lines)(nil)
	_ Figure = (*Bars)(nil)
	_ Figure = (*History)(nil)
)

// Name is the title.
func (l *Lines) Name() string { return l.Title }

// Name is the title.
func (b *Bars) Name() string { return b.Title }

// width of all figures, in points: text of 11 points stays readable on a telephone, and two stand side by side
// on a desk.
const width = vg.Length(420)

// pixels per inch of PNGs: 1750 pixels wide.
const pngDPI = 300

// SVG draws a figure as a document of its own, on white.
func SVG(w io.Writer, f Figure) error {
	_, err := w.Write(raw(f))
	return err
}

func raw(f Figure) []byte {
	c := vgsvg.NewWith(vgsvg.UseWH(width, f.height()))
	f.draw(draw.New(c))
	var b bytes.Buffer
	c.WriteTo(&b) // cannot fail into memory
	return b.Bytes()
}

// PNG draws a figure for slides and papers, on white.
func PNG(w io.Writer, f Figure) error {
	c := vgimg.NewWith(vgimg.UseWH(width, f.height()), vgimg.UseDPI(pngDPI))
	f.draw(draw.New(c))
	if _, err := (vgimg.PngCanvas{Canvas: c}).WriteTo(w); err != nil {
		return fmt.Errorf("write png of %s: %w", f.Name(), err)
	}
	return nil
}
