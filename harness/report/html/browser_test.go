package html

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gic/harness/record"
	"gic/harness/report/reporttest"
)

// TestPageInABrowser opens reports in Chromium: nothing complains, nothing is loaded, nothing is missing, nothing
// sticks out of a telephone, the dark theme is dark, the download is the file.
func TestPageInABrowser(t *testing.T) {
	c := startChromium(t)
	dir := t.TempDir()
	page := render(t, reporttest.Run(6))
	path := filepath.Join(dir, "report.html")
	if err := os.WriteFile(path, page, 0o644); err != nil {
		t.Fatal(err)
	}
	url := "file://" + path
	for _, v := range []struct {
		name          string
		width, height int
		dark          bool
	}{{"desk", 1280, 900, false}, {"desk-dark", 1280, 900, true}, {"phone", 360, 740, false}, {"phone-dark", 360, 740, true}} {
		c.viewport(v.width, v.height, v.dark)
		c.open(url)
		c.checkLayout(v.name, v.width)
		c.eval(`document.querySelectorAll("details").forEach(d => d.open = true); 1`, new(int))
		c.checkLayout(v.name+", all open", v.width)
		c.eval(`document.querySelectorAll("details").forEach(d => d.open = false); 1`, new(int))
		c.checkTheme(v.name, v.dark)
		if pictures := os.Getenv("GIC_PICTURES"); pictures != "" { // for people to look at
			c.screenshot(filepath.Join(pictures, v.name+".png"))
		}
	}
	c.checkDownload(attached(t, page, "file-1"))
	for _, s := range c.complaints(url) {
		t.Error(s)
	}
	if pdf := c.pdf(); !bytes.HasPrefix(pdf, []byte("%PDF-")) || bytes.Count(pdf, []byte("/Type /Page\n")) < 3 {
		t.Errorf("printing gave %d bytes", len(pdf))
	} else if pictures := os.Getenv("GIC_PICTURES"); pictures != "" {
		os.WriteFile(filepath.Join(pictures, "print.pdf"), pdf, 0o644)
	}
}

// checkLayout looks for what must be there and for what is wider than its place.
func (c *chromium) checkLayout(name string, width int) {
	c.t.Helper()
	var got struct {
		Width               int
		Plots, Tables, Rows int
		Empty, Untitled     int
		Broken, Wide, Off   []string
	}
	c.eval(`(() => {
		const all = (q) => [...document.querySelectorAll(q)];
		const size = (e) => e.getBoundingClientRect();
		return {
			width: document.documentElement.scrollWidth,
			plots: all("svg.plot").length, tables: all("table.results").length, rows: all("table.results tbody tr").length,
			empty: all("svg.plot").filter((e) => size(e).width < 200 || size(e).height < 100 || e.querySelectorAll("text").length < 6).length,
			untitled: all('svg.plot, [role="region"]').filter((e) => !(e.getAttribute("aria-label") || e.querySelector("title")?.textContent)).length,
			broken: all('a[href^="#"]').map((a) => a.getAttribute("href")).filter((h) => !document.getElementById(h.slice(1))),
			wide: all("svg.plot text").filter((e) => {
				const t = size(e), s = size(e.closest("svg"));
				return t.left < s.left - 1 || t.right > s.right + 1 || t.top < s.top - 1 || t.bottom > s.bottom + 1;
			}).map((e) => e.textContent),
			off: all(".fit").filter((e) => size(e).width > 0 && size(e).right > innerWidth).map((e) => e.textContent),
		};
	})()`, &got)
	if got.Width > width {
		c.t.Errorf("%s: the page is %d wide, the screen %d", name, got.Width, width)
	}
	if got.Plots < 20 || got.Tables != 4 || got.Rows < 40 {
		c.t.Errorf("%s: %d plots, %d tables with %d rows", name, got.Plots, got.Tables, got.Rows)
	}
	if got.Empty > 0 || got.Untitled > 0 {
		c.t.Errorf("%s: %d plots are empty, %d parts have no name for screen readers", name, got.Empty, got.Untitled)
	}
	if len(got.Off) > 0 {
		c.t.Errorf("%s: headings of tables run off the screen: %q", name, got.Off)
	}
	if len(got.Broken) > 0 || len(got.Wide) > 0 {
		c.t.Errorf("%s: links to nothing: %q; text outside its plot: %q", name, got.Broken, got.Wide)
	}
}

// checkTheme measures the contrast of text (WCAG 2.2: 4.5) and of the lines of plots (3) as they are painted.
func (c *chromium) checkTheme(name string, dark bool) {
	c.t.Helper()
	var got struct {
		Back      float64
		Low, None []string
	}
	c.eval(`(() => {
		const parse = (s) => (s.match(/[\d.]+/g) || []).map(Number);
		const light = (s) => {
			const [r, g, b] = parse(s).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
			return 0.2126 * r + 0.7152 * g + 0.0722 * b;
		};
		const ground = (e) => {
			for (; e; e = e.parentElement) {
				const c = getComputedStyle(e).backgroundColor;
				if (parse(c).length === 3 || parse(c)[3] === 1) return c;
			}
			return "rgb(255, 255, 255)";
		};
		const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
		const low = new Set(), none = new Set();
		for (const e of document.querySelectorAll("p, li, th, td, a, h1, h2, h3, h4, summary, figcaption, caption, button, svg.plot text")) {
			const style = getComputedStyle(e), color = e.matches("text") ? style.fill : style.color;
			if (contrast(color, ground(e)) < 4.5) low.add(e.tagName + " " + color + " on " + ground(e));
		}
		const grid = getComputedStyle(document.documentElement).getPropertyValue("--plot-grid").trim();
		const probe = document.body.appendChild(document.createElement("i"));
		probe.style.color = grid;
		const gridColor = getComputedStyle(probe).color;
		probe.remove();
		for (const e of document.querySelectorAll("svg.plot path")) {
			const style = getComputedStyle(e), card = ground(e);
			const color = style.stroke !== "none" ? style.stroke : style.fill;
			if (color === "none" || color === gridColor || color === card) continue;
			if (contrast(color, card) < 3) none.add(color + " on " + card);
		}
		return { back: light(ground(document.body)), low: [...low], none: [...none] };
	})()`, &got)
	if dark != (got.Back < 0.2) {
		c.t.Errorf("%s: the ground has luminance %.2f", name, got.Back)
	}
	if len(got.Low) > 0 || len(got.None) > 0 {
		c.t.Errorf("%s: text of low contrast: %q; lines: %q", name, got.Low, got.None)
	}
}

// checkDownload unpacks the first file as the button does.
func (c *chromium) checkDownload(want []byte) {
	c.t.Helper()
	var got string
	c.eval(`unpack("file-1").then(({ blob }) => blob.text())`, &got)
	if got != string(want) {
		c.t.Errorf("the download has %d bytes, want %d", len(got), len(want))
	}
	var hidden int
	c.eval(`document.querySelectorAll("button[hidden]").length`, &hidden)
	if hidden > 0 {
		c.t.Errorf("%d buttons stay hidden", hidden)
	}
}

// TestHostilePageInABrowser opens pages whose every text is hostile: none becomes an element, an attribute, a
// script or a request.
func TestHostilePageInABrowser(t *testing.T) {
	c := startChromium(t)
	path := filepath.Join(t.TempDir(), "report.html")
	for _, text := range hostile {
		records := reporttest.Run(1)
		poison(records, text)
		records = append(records, &record.Bad{File: text, Line: 1, Err: errors.New(text)})
		if err := os.WriteFile(path, render(t, records), 0o644); err != nil {
			t.Fatal(err)
		}
		c.events = nil
		c.open("file://" + path)
		var got struct {
			Ran      bool
			Elements int
			Scripts  int
		}
		c.eval(`({ ran: "xgic" in window, elements: document.querySelectorAll("xgic, [xgic], img, [onload], [onerror], [onmouseover]").length,
			scripts: document.scripts.length })`, &got)
		if got.Ran || got.Elements > 0 || got.Scripts != 1 {
			t.Errorf("%q: %+v", text, got)
		}
		if s := c.complaints("file://" + path); len(s) > 0 {
			t.Errorf("%q: %s", text, strings.Join(s, "; "))
		}
	}
}
