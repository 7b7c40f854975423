package exporter

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"gic/harness/record"
)

// event is one of Chrome's trace events. Times are us.
type event struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	Cat   string         `json:"cat,omitempty"`
	Time  float64        `json:"ts"`
	Dur   *float64       `json:"dur,omitempty"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	ID    string         `json:"id,omitempty"`
	Scope string         `json:"s,omitempty"`
	Args  map[string]any `json:"args,omitempty"`
}

// traceWriter writes {"traceEvents": [...]} event by event.
type traceWriter struct {
	w   *bufio.Writer
	n   int
	err error
}

func newTraceWriter(out io.Writer) *traceWriter {
	t := &traceWriter{w: bufio.NewWriter(out)}
	t.w.WriteString(`{"displayTimeUnit":"ns","traceEvents":[`)
	return t
}

func (t *traceWriter) add(e event) {
	b, err := json.Marshal(e)
	if err != nil {
		t.err = err
		return
	}
	if t.n++; t.n > 1 {
		t.w.WriteByte(',')
	}
	t.w.WriteByte('\n')
	t.w.Write(b)
}

func (t *traceWriter) name(kind string, pid, tid int, name string) {
	t.add(event{Name: kind, Phase: "M", PID: pid, TID: tid, Args: map[string]any{"name": name}})
}

func (t *traceWriter) close() error {
	t.w.WriteString("\n]}\n")
	if t.err != nil {
		return fmt.Errorf("write trace: %w", t.err)
	}
	return t.w.Flush()
}

// writePerfetto shows a run as a process, each backend as a track, each process run of a case as a slice from its
// start for its duration, and the NIC's counters as counter tracks. A case that does not say when it ran (imports)
// stands at the run's beginning, for no time. Times are from the first start on.
func writePerfetto(out io.Writer, runs []Run) error {
	t := newTraceWriter(out)
	for i, run := range runs {
		pid := i + 1
		name := fmt.Sprintf("run %d", pid)
		if run.Header != nil {
			name = "gic run " + run.Header.ID
		}
		t.name("process_name", pid, 0, name)
		origin := firstStart(run)
		tracks := map[string]int{}
		for _, c := range run.Cases {
			tid := tracks[c.Backend]
			if tid == 0 {
				tid = len(tracks) + 1
				tracks[c.Backend] = tid
				t.name("thread_name", pid, tid, c.Backend)
			}
			at := 0.0
			if !c.Start.IsZero() {
				at = micros(c.Start.Sub(origin))
			}
			dur := c.Duration * 1e6
			t.add(event{Name: c.Workload + " " + string(c.Status), Phase: "X", Cat: c.Workload, Time: at, Dur: &dur, PID: pid, TID: tid, Args: caseArgs(c)})
			for _, n := range c.Counters {
				t.add(event{Name: c.Backend + " " + n.Name, Phase: "C", Time: at, PID: pid, Args: map[string]any{"value": n.Value}})
			}
		}
	}
	return t.close()
}

func micros(d time.Duration) float64 { return float64(d) / 1e3 }

func firstStart(run Run) time.Time {
	var first time.Time
	for _, c := range run.Cases {
		if !c.Start.IsZero() && (first.IsZero() || c.Start.Before(first)) {
			first = c.Start
		}
	}
	return first
}

func caseArgs(c *record.Case) map[string]any {
	args := map[string]any{}
	for _, kv := range record.Flatten(c) {
		args[kv.Key] = kv.Value
	}
	for i := range c.Metrics {
		m := &c.Metrics[i]
		args[m.Name+" p50 ("+m.Unit+")"] = m.P50
		if m.N > 1 {
			args[m.Name+" p99 ("+m.Unit+")"] = m.P99
		}
	}
	args["status"] = c.Status
	if c.Reason != "" {
		args["reason"] = c.Reason
	}
	if c.Imported != nil {
		args["imported"] = c.Imported.File
	}
	return args
}
