package plot

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// figures are one of each kind, with as hard a content as each kind takes.
func figures() map[string]Figure {
	lines := &Lines{
		Title: "op=put: round trip over message size", Note: "nic=soft device=host, n=5 process runs; bars: range of the process runs",
		X: Axis{Label: "message size, B", Scale: Log2, Bytes: true}, Y: Axis{Label: "rtt, us", Scale: Log10}, Ring: "first size at 90 % of the best",
	}
	for i := range MaxSeries {
		s := Series{Name: fmt.Sprintf("series %d with a fairly long configuration batch=%d qps=4", i, 1<<i)}
		for e := 3; e <= 16; e++ {
			x := math.Exp2(float64(e))
			y := (2 + float64(i)) * (1 + x/2000)
			s.Points = append(s.Points, Point{X: x, Y: y, Low: y * 0.9, High: y * 1.2})
		}
		s.Rings = []Ring{{X: 512, Y: s.Points[6].Y}}
		lines.Series = append(lines.Series, s)
	}
	bars := &Bars{
		Title: "Gap to the best floor: completion", Note: "nic=soft device=host, n=5; whiskers: range",
		X: Axis{Label: "completion, us"}, Parts: []string{"best floor", "gap above it"},
		Groups: []Group{
			{"op=put size=8", []Bar{{"minigda", "1.20", []float64{1.2, 0}, 1.1, 1.5}, {"miniproxy handoff=tuned", "3.40", []float64{1.2, 2.2}, 2.9, 3.9}}},
			{"op=read size=8", []Bar{{"minigda", "2.20", []float64{2.2, 0}, 2, 2.5}, {strings.Repeat("miniproxy handoff=baseline ", 6), "3.40", []float64{2.2, 1.2}, 3, 5}}},
		},
	}
	h := &History{
		Title: "rtt of minigda, op=put size=8", Note: "nic=soft device=host, n=5 process runs each; bars: 95 % interval",
		Y:       Axis{Label: "rtt, us"},
		Changes: []Change{{At: 12, Before: 2, After: 2.6, Worse: true}, {At: 20, Before: 2.6, After: 1.8}},
	}
	for i := range 30 {
		v := 2.0
		if i >= 12 {
			v = 2.6
		}
		if i >= 20 {
			v = 1.8
		}
		v += 0.05 * math.Sin(float64(i*i))
		h.Runs = append(h.Runs, Measured{
			Run: fmt.Sprintf("run-%d", i), Time: time.Date(2026, 11, 1+i, 4, 0, 0, 0, time.UTC), Value: v, Low: v - 0.1, High: v + 0.12,
		})
	}
	return map[string]Figure{"lines": lines, "bars": bars, "history": h}
}

// elements parses a document and counts what it is made of.
func elements(t *testing.T, b []byte) map[string]int {
	t.Helper()
	count := map[string]int{}
	d := xml.NewDecoder(bytes.NewReader(b))
	for {
		tok, err := d.Token()
		if err == io.EOF {
			return count
		}
		if err != nil {
			t.Fatalf("not well-formed: %v\n%.300s", err, b)
		}
		if e, ok := tok.(xml.StartElement); ok {
			count[e.Name.Local]++
			for _, a := range e.Attr {
				if strings.HasPrefix(a.Name.Local, "on") {
					t.Errorf("element %s has attribute %s", e.Name.Local, a.Name.Local)
				}
			}
		}
	}
}

func TestFiguresDraw(t *testing.T) {
	dir := os.Getenv("GIC_PLOTS") // for people to look at
	for name, f := range figures() {
		t.Run(name, func(t *testing.T) {
			var svg, img bytes.Buffer
			if err := SVG(&svg, f); err != nil {
				t.Fatal(err)
			}
			if err := PNG(&img, f); err != nil {
				t.Fatal(err)
			}
			if n := elements(t, svg.Bytes()); n["svg"] != 1 || n["path"] < 20 || n["text"] < 8 {
				t.Errorf("svg is made of %v", n)
			}
			m, err := png.Decode(bytes.NewReader(img.Bytes()))
			if err != nil {
				t.Fatal(err)
			}
			if b := m.Bounds(); b.Dx() != int(width)*pngDPI/72 || b.Dy() < 400 {
				t.Errorf("png is %v", b)
			}
			if dir != "" {
				os.WriteFile(filepath.Join(dir, name+".png"), img.Bytes(), 0o644)
				os.WriteFile(filepath.Join(dir, name+".svg"), svg.Bytes(), 0o644)
			}
		})
	}
}
