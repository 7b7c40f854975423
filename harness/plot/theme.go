package plot

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image/color"
	"strings"
)

// variables are the CSS variables that stand for the colours of a figure in a page, so that it follows the
// page's theme. See Inline.
var variables = func() map[string]string {
	m := map[string]string{
		hex(colorBack): "--plot-back", hex(colorText): "--plot-text", hex(colorMute): "--plot-mute", hex(colorGrid): "--plot-grid",
	}
	for i, c := range palette {
		m[hex(c)] = fmt.Sprintf("--plot-%d", i+1)
	}
	return m
}()

func hex(c color.RGBA) string { return fmt.Sprintf("#%02X%02X%02X", c.R, c.G, c.B) }

// Theme is the CSS that gives the variables of Inline their light values, as declarations.
func Theme() string {
	var b strings.Builder
	for i, c := range palette {
		fmt.Fprintf(&b, "--plot-%d:%s;", i+1, hex(c))
	}
	fmt.Fprintf(&b, "--plot-back:#FFFFFF;--plot-text:%s;--plot-mute:%s;--plot-grid:%s;", hex(colorText), hex(colorMute), hex(colorGrid))
	return b.String()
}

// dark are palette's counterparts on a dark ground, with a contrast of 3:1 or more.
var dark = [MaxSeries]string{"#56B4E9", "#FF8A3D", "#2CC79A", "#E79BC6", "#C4C4C4", "#8CD3FF", "#E6A417", "#E5DA45"}

// DarkTheme is Theme for a dark page.
func DarkTheme() string {
	var b strings.Builder
	for i, c := range dark {
		fmt.Fprintf(&b, "--plot-%d:%s;", i+1, c)
	}
	b.WriteString("--plot-back:#1C1E22;--plot-text:#E8E8E8;--plot-mute:#A8A8A8;--plot-grid:#3A3D42;")
	return b.String()
}

// Inline draws a figure as an svg element for an HTML page: colours are CSS variables (Theme), it is as wide as
// its place, and its title and description are there for screen readers. Text is escaped.
func Inline(f Figure, description string) []byte {
	b := raw(f)
	at := bytes.Index(b, []byte("<svg"))
	end := bytes.IndexByte(b[at:], '>') + at + 1
	var out bytes.Buffer
	out.Grow(len(b) + 1024)
	fmt.Fprintf(&out, `<svg class="plot" role="img" viewBox="0 0 %.5g %.5g" xmlns="http://www.w3.org/2000/svg">`,
		float64(width), float64(f.height()))
	out.WriteString("<title>")
	xml.EscapeText(&out, []byte(f.Name()))
	out.WriteString("</title><desc>")
	xml.EscapeText(&out, []byte(description))
	out.WriteString("</desc>")
	out.Write(themed(b[end:]))
	return out.Bytes()
}

// themed replaces colours within style attributes. Text cannot pose as one: svgo escapes quotes and "<", so that
// style=" appears in tags alone.
func themed(b []byte) []byte {
	const open = `style="`
	var out bytes.Buffer
	out.Grow(len(b) * 3 / 2)
	for {
		at := bytes.Index(b, []byte(open))
		if at < 0 {
			out.Write(b)
			return out.Bytes()
		}
		at += len(open)
		end := at + bytes.IndexByte(b[at:], '"')
		out.Write(b[:at])
		writeStyle(&out, string(b[at:end]))
		b = b[end:]
	}
}

func writeStyle(out *bytes.Buffer, style string) {
	isText := false
	painted := false
	for i, decl := range strings.Split(style, ";") {
		key, value, _ := strings.Cut(decl, ":")
		switch key {
		case "font-family":
			isText = true
			continue // the page's
		case "font-variant", "font-style":
			continue
		case "font-weight":
			if value == "normal" {
				continue
			}
		case "fill", "stroke":
			painted = true
			if v := variables[value]; v != "" {
				value = "var(" + v + ")"
			}
		}
		if out.Bytes()[out.Len()-1] != '"' && i > 0 {
			out.WriteByte(';')
		}
		out.WriteString(key + ":" + value)
	}
	if isText && !painted { // SVG paints black what says nothing
		out.WriteString(";fill:var(--plot-text)")
	}
}
