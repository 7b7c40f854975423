package html

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// chromium is a headless browser, driven by its DevTools protocol over a pair of pipes: what it says of a page
// (errors, requests, layout) is data, not guessed from logs or times.
type chromium struct {
	t       *testing.T
	ctx     context.Context
	to      *os.File
	from    *bufio.Reader
	next    int
	session string
	events  []event // all that came, in order
}

type event struct {
	Method string
	Params json.RawMessage
}

// startChromium starts a browser that ends with the test. Without one the test is skipped, but on CI it fails.
func startChromium(t *testing.T) *chromium {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("no chromium, and CI=true: install the package chromium")
		}
		t.Skip("no chromium: the report is not looked at in a browser")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
		"--no-first-run", "--no-default-browser-check", "--mute-audio", "--hide-scrollbars",
		"--host-resolver-rules=MAP * ~NOTFOUND", "--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{inR, outW} // the protocol's descriptors 3 and 4
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	inR.Close()
	outW.Close()
	// A reader that waits wakes up when the browser, and with it the other end of the pipe, is gone.
	t.Cleanup(func() {
		cancel()
		cmd.Wait()
		inW.Close()
		outR.Close()
	})
	c := &chromium{t: t, ctx: ctx, to: inW, from: bufio.NewReaderSize(outR, 1<<20)}
	var target struct{ TargetID string }
	c.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	c.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	c.session = session.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		c.call(domain+".enable", nil, nil)
	}
	return c
}

type message struct {
	ID     int
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *struct{ Message string }
}

func (c *chromium) read() message {
	c.t.Helper()
	b, err := c.from.ReadBytes(0)
	if err != nil {
		if errors.Is(c.ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("no answer in time: %w", err)
		}
		c.t.Fatalf("read from chromium: %v", err)
	}
	var m message
	if err := json.Unmarshal(b[:len(b)-1], &m); err != nil {
		c.t.Fatalf("read from chromium: %v in %.200q", err, b)
	}
	if m.Method != "" {
		c.events = append(c.events, event{m.Method, m.Params})
	}
	return m
}

// call sends a command and waits for its answer.
func (c *chromium) call(method string, params map[string]any, result any) {
	c.t.Helper()
	c.next++
	command := map[string]any{"id": c.next, "method": method}
	if params != nil {
		command["params"] = params
	}
	if c.session != "" {
		command["sessionId"] = c.session
	}
	b, err := json.Marshal(command)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.to.Write(append(b, 0)); err != nil {
		c.t.Fatalf("write to chromium: %v", err)
	}
	for {
		m := c.read()
		if m.ID != c.next {
			continue
		}
		if m.Error != nil {
			c.t.Fatalf("%s: %s", method, m.Error.Message)
		}
		if result != nil {
			if err := json.Unmarshal(m.Result, result); err != nil {
				c.t.Fatalf("%s: %v", method, err)
			}
		}
		return
	}
}

// open loads a page and waits for its load event.
func (c *chromium) open(url string) {
	c.t.Helper()
	before := len(c.events)
	c.call("Page.navigate", map[string]any{"url": url}, nil)
	for {
		for _, e := range c.events[before:] {
			if e.Method == "Page.loadEventFired" {
				return
			}
		}
		before = len(c.events)
		c.read()
	}
}

// eval evaluates JavaScript, and waits for it if it is a promise.
func (c *chromium) eval(script string, result any) {
	c.t.Helper()
	var out struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	c.call("Runtime.evaluate", map[string]any{"expression": script, "returnByValue": true, "awaitPromise": true}, &out)
	if e := out.ExceptionDetails; e != nil {
		c.t.Fatalf("%s: %s %s", script, e.Text, e.Exception.Description)
	}
	if err := json.Unmarshal(out.Result.Value, result); err != nil {
		c.t.Fatalf("%s: %v in %s", script, err, out.Result.Value)
	}
}

// complaints are the errors that pages gave, and the requests for anything but the page itself.
func (c *chromium) complaints(page string) []string {
	var out []string
	for _, e := range c.events {
		var p struct {
			Type    string
			Args    []struct{ Value, Description any }
			Entry   struct{ Level, Text, URL string }
			Request struct{ URL string }

			ExceptionDetails struct {
				Text      string
				Exception struct{ Description string }
			}
		}
		if err := json.Unmarshal(e.Params, &p); err != nil {
			c.t.Fatalf("%s: %v", e.Method, err)
		}
		switch e.Method {
		case "Runtime.exceptionThrown":
			out = append(out, "exception: "+p.ExceptionDetails.Text+" "+p.ExceptionDetails.Exception.Description)
		case "Runtime.consoleAPICalled":
			out = append(out, fmt.Sprintf("console.%s: %v", p.Type, p.Args))
		case "Log.entryAdded":
			out = append(out, p.Entry.Level+": "+p.Entry.Text+" "+p.Entry.URL)
		case "Network.requestWillBeSent":
			if p.Request.URL != page && p.Request.URL != "about:blank" {
				out = append(out, "request: "+p.Request.URL)
			}
		}
	}
	return out
}

// viewport sets width, height and whether the page is dark.
func (c *chromium) viewport(width, height int, dark bool) {
	c.t.Helper()
	c.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
	}, nil)
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	c.call("Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}},
	}, nil)
}

// screenshot writes the whole page as a PNG.
func (c *chromium) screenshot(path string) {
	c.t.Helper()
	var shot struct{ Data []byte }
	c.call("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true}, &shot)
	if err := os.WriteFile(path, shot.Data, 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// pdf prints the page on A4.
func (c *chromium) pdf() []byte {
	c.t.Helper()
	var doc struct{ Data []byte }
	c.call("Page.printToPDF", map[string]any{"paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": true}, &doc)
	return doc.Data
}
