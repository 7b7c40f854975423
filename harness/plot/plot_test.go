package plot

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image/color"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/plot"
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
		Changes: []Change{{At: 12, Before: 2, After: 2.6, Verdict: "worse"}, {At: 20, Before: 2.6, After: 1.8, Verdict: "better"}},
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

// TestEmptyAndOddFigures draws what has nothing or nonsense to show: it must come out well-formed and not panic.
func TestEmptyAndOddFigures(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	log := Axis{Scale: Log10}
	odd := []Point{{}, {X: nan, Y: 1}, {X: 1, Y: inf, Low: -inf, High: inf}, {X: -1, Y: -1}, {X: 1e300, Y: 1e-300}, {X: 1, Y: 1}}
	for name, f := range map[string]Figure{
		"no lines": &Lines{}, "no bars": &Bars{}, "no history": &History{},
		"no title":                &Lines{Series: []Series{{Points: []Point{{X: 1, Y: 1}}}}},
		"odd linear":              &Lines{Title: "t", Series: []Series{{Name: "s", Points: odd}}},
		"odd log":                 &Lines{Title: "t", X: log, Y: log, Series: []Series{{Name: "s", Points: odd}}},
		"odd log2":                &Lines{Title: "t", X: Axis{Scale: Log2}, Y: log, Series: []Series{{Name: "s", Points: odd}}},
		"one value":               &Lines{X: log, Y: Axis{Zero: true}, Series: []Series{{Points: []Point{{X: 5, Y: 0}}}}},
		"many series":             &Lines{Series: make([]Series, 40)},
		"odd bars":                &Bars{Parts: []string{"a"}, Groups: []Group{{Bars: []Bar{{Parts: []float64{nan, inf, -1, 3}, Low: -inf, High: nan}}}}},
		"zero bars":               &Bars{Groups: []Group{{Bars: []Bar{{Parts: []float64{0}}}}}},
		"one run":                 &History{Runs: []Measured{{Run: "a", Value: 1}}},
		"changes nowhere":         &History{Runs: []Measured{{Value: 1}, {Value: nan}}, Changes: []Change{{At: -1}, {At: 0}, {At: 2}, {At: 1, Before: nan}}},
		"endless words":           &Lines{Title: strings.Repeat("x", 5000), Note: strings.Repeat("y\x00\u202e\xff", 500)},
		"letters not in any font": &Bars{Title: "日本語 \U0001F600", Groups: []Group{{Title: "ü", Bars: []Bar{{Label: "العربية", Parts: []float64{1}}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			elements(t, Inline(f, "a description"))
			var b bytes.Buffer
			if err := SVG(&b, f); err != nil {
				t.Error(err)
			}
			elements(t, b.Bytes())
			if err := PNG(io.Discard, f); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestInlineEscapesAndThemes holds a figure within a page to its theme: every colour is a variable, whatever the
// texts are.
func TestInlineEscapesAndThemes(t *testing.T) {
	for _, text := range []string{`<script>alert(1)</script>`, `"><x y="`, `style="fill:#0072B2"`, `';}</style>`, `]]>`, `&lt;`, `\" style="x`} {
		l := figures()["lines"].(*Lines)
		l.Title, l.Note, l.Series[0].Name, l.X.Label = text, text, text, text
		b := Inline(l, text)
		count := elements(t, b)
		for tag := range count {
			if !strings.Contains(" svg title desc g path text ", " "+tag+" ") {
				t.Errorf("%q: element %s", text, tag)
			}
		}
		if count["title"] != 1 || count["desc"] != 1 {
			t.Errorf("%q: %v", text, count)
		}
		for _, m := range regexp.MustCompile(`<[a-z]+[^>]*style="([^"]*)"`).FindAllSubmatch(b, -1) {
			if bytes.ContainsRune(m[1], '#') {
				t.Fatalf("%q: a colour is no variable: %s", text, m[1])
			}
		}
	}
	for _, theme := range []string{Theme(), DarkTheme()} {
		for _, v := range variables {
			if !strings.Contains(theme, v+":#") {
				t.Errorf("theme lacks %s: %s", v, theme)
			}
		}
	}
}

func TestTicks(t *testing.T) {
	labels := func(ticks []plot.Tick) string {
		var l []string
		for _, k := range ticks {
			if k.Label != "" {
				l = append(l, k.Label)
			}
		}
		return strings.Join(l, " ")
	}
	bytesAxis := Axis{Scale: Log2, Bytes: true}
	tests := []struct {
		name string
		got  []plot.Tick
		want string
	}{
		{"linear", ticks(Axis{}, 0, 10.5), "0 2 4 6 8 10"},
		{"linear, small", ticks(Axis{}, 0, 0.0021), "0 0.0005 0.001 0.0015 0.002"},
		{"one decade", ticks(Axis{Scale: Log10}, 0.9, 12), "1 2 5 10"},
		{"four decades", ticks(Axis{Scale: Log10}, 0.5, 20000), "1 10 100 1000 10000"},
		{"many decades", ticks(Axis{Scale: Log10}, 1e-9, 1e9), "1e-9 1e-6 0.001 1 1000 1e6 1e9"},
		{"less than a decade", ticks(Axis{Scale: Log10}, 11, 19), "12 14 16 18"},
		{"sizes", ticks(bytesAxis, 8, 1<<20), "16 64 256 1K 4K 16K 64K 256K 1M"},
		{"where the data are", xTicks(bytesAxis, 7, 5000, []float64{8, 64, 512, 4096, 8}), "8 64 512 4K"},
		{"but not on each other", xTicks(bytesAxis, 8, 1<<20, []float64{1 << 10, 1025, 1 << 16}), "1K 64K"},
		{"odd sizes", xTicks(bytesAxis, 1, 20000, []float64{92, 7168, 7169}), "92 7K"},
	}
	for _, tt := range tests {
		if got := labels(tt.got); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestPaletteIsReadable measures contrast with the ground (WCAG 2.2, 1.4.11: 3:1) of both themes, and that series
// differ in more than colour.
func TestPaletteIsReadable(t *testing.T) {
	for i := range MaxSeries {
		c := palette[i]
		if r := contrast(c, colorBack); r < 3 {
			t.Errorf("light colour %d has contrast %.2f", i, r)
		}
		var d color.RGBA
		if _, err := fmt.Sscanf(dark[i], "#%02X%02X%02X", &d.R, &d.G, &d.B); err != nil {
			t.Fatal(err)
		}
		if r := contrast(d, color.RGBA{0x1c, 0x1e, 0x22, 0xff}); r < 3 {
			t.Errorf("dark colour %d has contrast %.2f", i, r)
		}
		for j := range i {
			if reflect.DeepEqual(dashes[i], dashes[j]) || reflect.TypeOf(glyphs[i]) == reflect.TypeOf(glyphs[j]) {
				t.Errorf("series %d and %d differ in colour alone", i, j)
			}
		}
	}
}

func contrast(a, b color.RGBA) float64 {
	light := func(c color.RGBA) float64 {
		f := func(v uint8) float64 {
			x := float64(v) / 255
			if x <= 0.04045 {
				return x / 12.92
			}
			return math.Pow((x+0.055)/1.055, 2.4)
		}
		return 0.2126*f(c.R) + 0.7152*f(c.G) + 0.0722*f(c.B)
	}
	x, y := light(a), light(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}
