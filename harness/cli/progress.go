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

	"gic/backends"
	"gic/harness/plan"
	"gic/harness/record"
	"gic/harness/run"
)

// reporter shows where a run stands.
type reporter interface {
	update(run.Progress)
	close()
}

// newReporter gives a bar on a terminal and lines elsewhere.
func newReporter(w io.Writer, planned int, l labels) reporter {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		return newBar(f, planned, l)
	}
	return &lines{labels: l, w: w, every: 2 * time.Second, last: time.Now()}
}

// lines writes one line every few seconds, and one for every case that is not as it should be.
type lines struct {
	labels
	w     io.Writer
	every time.Duration
	last  time.Time
}

func (l *lines) update(p run.Progress) {
	if text := l.trouble(p.Last); text != "" {
		fmt.Fprintln(l.w, text)
	}
	if now := time.Now(); now.Sub(l.last) >= l.every {
		l.last = now
		fmt.Fprintf(l.w, "%d/%d  %s\n", p.Done, p.Planned, l.what(p))
	}
}

func (l *lines) close() {}

// bar is one line that is drawn anew.
type bar struct {
	labels
	w    progress.Writer
	t    *progress.Tracker
	done chan struct{}
	last int64
}

func newBar(f *os.File, planned int, l labels) *bar {
	b := &bar{labels: l, w: progress.NewWriter(), t: &progress.Tracker{Total: int64(planned)}, done: make(chan struct{})}
	b.w.SetOutputWriter(f)
	b.w.SetMessageLength(52)
	b.w.SetTrackerLength(20)
	b.w.SetTrackerPosition(progress.PositionRight)
	b.w.SetUpdateFrequency(500 * time.Millisecond) // drawing shares the CPUs with what is measured
	b.w.SetStyle(progress.StyleBlocks)
	b.w.Style().Visibility.ETA = true
	b.w.Style().Options.TimeInProgressPrecision = time.Second
	b.w.Style().Options.TimeDonePrecision = time.Second
	b.w.Style().Options.ETAPrecision = time.Second
	b.w.Style().Visibility.Percentage = false
	b.w.AppendTracker(b.t)
	go func() {
		b.w.Render()
		close(b.done)
	}()
	return b
}

func (b *bar) update(p run.Progress) {
	b.t.UpdateMessage(b.what(p))
	b.last = int64(p.Done)
	b.t.SetValue(int64(min(p.Done, p.Planned-1))) // the last step ends the drawing; close does that
	if text := b.trouble(p.Last); text != "" {
		b.w.Log("%s", text)
	}
}

func (b *bar) close() {
	b.t.UpdateMessage("measured")
	b.t.SetValue(b.last)
	b.t.MarkAsDone()
	b.w.Stop()
	<-b.done
}

// labels name cases in short: what has its default value is left out.
type labels struct {
	defaults map[string]map[string]string // of a workload's axes or a backend's keys, by its name
}

func newLabels(cat *catalog) labels {
	l := labels{map[string]map[string]string{}}
	for _, w := range workloadList() {
		keys := make([]backends.Key, 0, 8)
		for _, a := range w.Axes() {
			keys = append(keys, a.Key)
		}
		l.defaults[w.Name()] = plan.Defaults(keys)
	}
	for name, info := range cat.infos {
		l.defaults[name] = plan.Defaults(info.Keys)
	}
	return l
}

// of gives "op:size=64".
func (l labels) of(name string, values map[string]string) string {
	rest := map[string]string{}
	for k, v := range values {
		if d, ok := l.defaults[name][k]; !ok || d != v {
			rest[k] = v
		}
	}
	if len(rest) == 0 {
		return name
	}
	return name + ":" + pairs(rest)
}

// what names the work at hand: "op:size=64 on minigda:batch=16, process run 2".
func (l labels) what(p run.Progress) string {
	if p.Outer == nil {
		return ""
	}
	work := p.Outer.Workload
	if p.Point != nil {
		work = l.of(work, p.Point)
	}
	return fmt.Sprintf("%s on %s, process run %d", work, l.of(p.Outer.Backend, p.Outer.Config), p.Outer.Index+1)
}

// trouble is the line for a case that did not go well, empty for one that did.
func (l labels) trouble(c *record.Case) string {
	if c == nil {
		return ""
	}
	switch c.Status {
	case record.OK, record.Skipped, record.Unsafe:
		return ""
	}
	s := fmt.Sprintf("%s: %s on %s, process run %d", c.Status, l.of(c.Workload, c.Axes), l.of(c.Backend, c.Config), c.Index+1)
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
