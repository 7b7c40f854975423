package cli

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
	"golang.org/x/term"

	"gic/harness/record"
	"gic/harness/run"
)

// reporter shows where a run stands.
type reporter interface {
	update(run.Progress)
	close()
}

// newReporter gives a bar on a terminal and lines elsewhere.
func newReporter(w io.Writer, planned int) reporter {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		return newBar(f, planned)
	}
	return &lines{w: w, every: 2 * time.Second, last: time.Now()}
}

// lines writes one line every few seconds, and one for every case that is not as it should be.
type lines struct {
	w     io.Writer
	every time.Duration
	last  time.Time
}

func (l *lines) update(p run.Progress) {
	if text := trouble(p.Last); text != "" {
		fmt.Fprintln(l.w, text)
	}
	if now := time.Now(); now.Sub(l.last) >= l.every {
		l.last = now
		fmt.Fprintf(l.w, "%d/%d  %s\n", p.Done, p.Planned, what(p))
	}
}

func (l *lines) close() {}

// bar is one line that is drawn anew.
type bar struct {
	w    progress.Writer
	t    *progress.Tracker
	done chan struct{}
}

func newBar(f *os.File, planned int) *bar {
	b := &bar{w: progress.NewWriter(), t: &progress.Tracker{Total: int64(planned)}, done: make(chan struct{})}
	b.w.SetOutputWriter(f)
	b.w.SetMessageLength(52)
	b.w.SetTrackerLength(20)
	b.w.SetTrackerPosition(progress.PositionRight)
	b.w.SetUpdateFrequency(200 * time.Millisecond)
	b.w.SetStyle(progress.StyleBlocks)
	b.w.Style().Visibility.ETA = true
	b.w.Style().Visibility.Percentage = false
	b.w.AppendTracker(b.t)
	go func() {
		b.w.Render()
		close(b.done)
	}()
	return b
}

func (b *bar) update(p run.Progress) {
	b.t.UpdateMessage(what(p))
	b.t.SetValue(int64(min(p.Done, p.Planned-1))) // the last step ends the drawing; close does that
	if text := trouble(p.Last); text != "" {
		b.w.Log("%s", text)
	}
}

func (b *bar) close() {
	b.t.MarkAsDone()
	b.w.Stop()
	<-b.done
}

// what names the work at hand: "op minigda batch=16, run 2: size=64".
func what(p run.Progress) string {
	if p.Outer == nil {
		return ""
	}
	s := fmt.Sprintf("%s %s, run %d", p.Outer.Workload, p.Outer.Backend, p.Outer.Index+1)
	if p.Point != nil {
		s += ": " + pairs(p.Point)
	}
	return s
}

// trouble is the line for a case that did not go well, empty for one that did.
func trouble(c *record.Case) string {
	if c == nil {
		return ""
	}
	switch c.Status {
	case record.OK, record.Skipped, record.Unsafe:
		return ""
	}
	s := fmt.Sprintf("%s: %s %s %s, run %d", c.Status, c.Workload, c.Backend, pairs(c.Axes), c.Index+1)
	if c.Stage != "" {
		s += ", at " + c.Stage
	}
	if c.Reason != "" {
		s += ": " + strings.Join(strings.Fields(c.Reason), " ")
	}
	return s
}

func pairs(m map[string]string) string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, k+"="+m[k])
	}
	return strings.Join(list, ",")
}
