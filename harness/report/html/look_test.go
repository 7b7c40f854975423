package html

import (
	"os"
	"path/filepath"
	"testing"
)

// TestLook makes pictures of a report for people: GIC_LOOK is the report, GIC_PICTURES the folder for them.
func TestLook(t *testing.T) {
	page, dir := os.Getenv("GIC_LOOK"), os.Getenv("GIC_PICTURES")
	if page == "" || dir == "" {
		t.Skip("no GIC_LOOK and GIC_PICTURES: no pictures")
	}
	c := startChromium(t)
	for _, v := range []struct {
		name          string
		width, height int
		dark          bool
	}{{"desk", 1280, 900, false}, {"desk-dark", 1280, 900, true}, {"phone", 375, 800, false}, {"phone-dark", 375, 800, true}} {
		c.viewport(v.width, v.height, v.dark)
		c.open("file://" + page)
		var height int
		c.eval("document.documentElement.scrollHeight", &height)
		for y, i := 0, 0; y < height && i < 12; y, i = y+3*v.height/2, i+1 {
			c.shoot(filepath.Join(dir, v.name+"-"+string(rune('a'+i))+".png"), y, v.width, 3*v.height/2)
		}
		for _, s := range c.complaints("file://" + page) {
			t.Log(s)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "print.pdf"), c.pdf(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// shoot takes a part of the page.
func (c *chromium) shoot(path string, y, width, height int) {
	c.t.Helper()
	var shot struct{ Data []byte }
	c.call("Page.captureScreenshot", map[string]any{
		"captureBeyondViewport": true,
		"clip":                  map[string]any{"x": 0, "y": y, "width": width, "height": height, "scale": 1},
	}, &shot)
	if err := os.WriteFile(path, shot.Data, 0o644); err != nil {
		c.t.Fatal(err)
	}
}
