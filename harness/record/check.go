package record

import (
	"errors"
	"fmt"
	"slices"
)

// Record is one line of a run file: a *Header, a *Case, or a *Bad that could not be read as either.
type Record interface {
	check() error
}

// SchemaError is a run file of a format that this gic does not read.
type SchemaError struct {
	Schema string
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("schema %q is not one this gic reads (%s)", e.Schema, Schema)
}

// Bad is a line that is no record. The others of the file are not affected.
type Bad struct {
	File string
	Line int // from 1
	// Torn: the file ends inside this line, as an interrupted writer leaves it.
	Torn bool
	Err  error
}

func (b *Bad) Error() string {
	if b.Torn {
		return fmt.Sprintf("%s:%d: torn last line, as of an interrupted run: not read", b.File, b.Line)
	}
	return fmt.Sprintf("%s:%d: %v", b.File, b.Line, b.Err)
}

func (b *Bad) Unwrap() error { return b.Err }

func (b *Bad) check() error { return b }

var statuses = []Status{OK, Skipped, Failed, Timeout, Unverified, Unsafe}

// Check says what makes a record unfit to be written, with the value that is wrong; nil if it is fit: NaN,
// infinite and negative values, a metric whose parts contradict each other, an unknown status, a status other
// than ok without a reason, an ID that is not the hash of the keys. The Reader refuses all of these but the
// last, which costs more than all the others together.
func Check(r Record) error {
	if c, ok := r.(*Case); ok {
		if want := CaseID(c); c.ID != want {
			return fmt.Errorf("case %s/%s: id %q is not the hash %q of its keys", c.Workload, c.Backend, c.ID, want)
		}
	}
	return r.check()
}

func (h *Header) check() error {
	if h.Type != "run" {
		return fmt.Errorf("type %q of a header is not \"run\"", h.Type)
	}
	if h.Schema != Schema {
		return &SchemaError{h.Schema}
	}
	if h.ID == "" {
		return errors.New("run without an id")
	}
	if h.Command == nil || h.Launch == "" {
		return fmt.Errorf("run %s: command and launch must be given", h.ID)
	}
	if h.Ranks < 1 || h.Repeat < 1 || h.Cases < 0 {
		return fmt.Errorf("run %s: ranks %d, repeat %d, cases %d make no sense", h.ID, h.Ranks, h.Repeat, h.Cases)
	}
	return nil
}

func (c *Case) check() error {
	if c.Type != "case" {
		return fmt.Errorf("type %q of a case is not \"case\"", c.Type)
	}
	fail := func(format string, args ...any) error {
		return fmt.Errorf("case %s/%s: "+format, append([]any{c.Workload, c.Backend}, args...)...)
	}
	if c.Workload == "" || c.Backend == "" || c.NIC == "" || c.Device == "" {
		return fail("workload, backend, nic (%q) and device (%q) must be named", c.NIC, c.Device)
	}
	if c.ID == "" {
		return fail("no id")
	}
	if c.Index < 0 || c.Order < 0 || c.Ranks < 1 {
		return fail("index %d, order %d, ranks %d make no sense", c.Index, c.Order, c.Ranks)
	}
	if err := checkValue("duration", c.Duration); err != nil {
		return fail("%w", err)
	}
	if !slices.Contains(statuses, c.Status) {
		return fail("status %q is not one of %v", c.Status, statuses)
	}
	if m := c.Imported; m != nil && (m.Format == "" || m.File == "" || m.SHA256 == "" || m.Line < 0) {
		return fail("imported must name format (%q), file (%q) and sha256 (%q)", m.Format, m.File, m.SHA256)
	}
	if c.Status != OK && c.Reason == "" {
		return fail("status %s without a reason", c.Status)
	}
	for i := range c.Metrics {
		m := &c.Metrics[i]
		if err := m.check(); err != nil {
			return fail("metric %s: %w", m.Name, err)
		}
	}
	if twice, ok := repeats(c.Metrics); ok {
		return fail("metric %s appears twice", twice)
	}
	return nil
}

func (m *Metric) check() error {
	if err := checkUnit(m.Unit, m.Class); err != nil {
		return err
	}
	for _, v := range [...]struct {
		what  string
		value float64
	}{{"min", m.Min}, {"p50", m.P50}, {"p90", m.P90}, {"p99", m.P99}, {"max", m.Max}, {"mean", m.Mean}} {
		if err := checkValue(v.what, v.value); err != nil {
			return err
		}
	}
	for _, v := range m.Samples {
		if err := checkValue("a sample", v); err != nil {
			return err
		}
	}
	if !(m.Min <= m.P50 && m.P50 <= m.P90 && m.P90 <= m.P99 && m.P99 <= m.Max && m.Min <= m.Mean && m.Mean <= m.Max) {
		return fmt.Errorf("min %g, p50 %g, p90 %g, p99 %g, max %g, mean %g are out of order",
			m.Min, m.P50, m.P90, m.P99, m.Max, m.Mean)
	}
	if m.HDR != "" {
		if len(m.Samples) != 0 || !(m.Resolution > 0) || m.N < 1 {
			return fmt.Errorf("histogram with %d raw samples, resolution %g, n=%d", len(m.Samples), m.Resolution, m.N)
		}
		return nil
	}
	if m.N != len(m.Samples) || m.N < 1 || m.N > MaxRaw {
		return fmt.Errorf("%d raw samples for n=%d (at most %d are kept raw)", len(m.Samples), m.N, MaxRaw)
	}
	return nil
}

// trim takes the raw samples off a case that was checked with them.
func trim(c *Case) {
	for i := range c.Metrics {
		c.Metrics[i].Samples, c.Metrics[i].HDR = nil, ""
	}
}

// repeats says whether two metrics have one name, and which.
func repeats(metrics []Metric) (string, bool) {
	if len(metrics) <= 16 {
		for i := range metrics {
			for j := range i {
				if metrics[i].Name == metrics[j].Name {
					return metrics[i].Name, true
				}
			}
		}
		return "", false
	}
	names := make([]string, 0, len(metrics))
	for i := range metrics {
		names = append(names, metrics[i].Name)
	}
	slices.Sort(names)
	for i := 1; i < len(names); i++ {
		if names[i] == names[i-1] {
			return names[i], true
		}
	}
	return "", false
}
