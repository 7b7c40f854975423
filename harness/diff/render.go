package diff

import (
	"bufio"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"gic/harness/record"
)

var renderers = []struct {
	format string
	render func(*Result, io.Writer, int) error
}{
	{"table", (*Result).renderTable},
	{"markdown", (*Result).renderMarkdown},
	{"json", (*Result).renderJSON},
	{"junit", (*Result).renderJUnit},
	{"github", (*Result).renderGitHub},
}

// Formats lists the formats of Render.
func Formats() []string {
	var f []string
	for _, r := range renderers {
		f = append(f, r.format)
	}
	return f
}

// Render prints the diff. Only a table depends on width.
func (r *Result) Render(w io.Writer, format string, width int) error {
	for _, f := range renderers {
		if f.format == format {
			b := bufio.NewWriter(w)
			if err := f.render(r, b, width); err != nil {
				return err
			}
			return b.Flush()
		}
	}
	return fmt.Errorf("format %q is not one of %s", format, strings.Join(Formats(), ", "))
}

// The JSON form of a diff. Numbers that are not finite are null.
type (
	jsonDiff struct {
		Schema     string             `json:"schema"`
		Exit       int                `json:"exit"`
		Old        jsonSide           `json:"old"`
		New        jsonSide           `json:"new"`
		Across     []string           `json:"across,omitempty"`
		Allow      []string           `json:"allow,omitempty"`
		Alpha      float64            `json:"alpha"`
		Thresholds map[string]float64 `json:"thresholds"`
		Tests      int                `json:"tests"`
		Paired     int                `json:"paired"`
		Counts     map[string]int     `json:"counts"`
		Cases      []jsonPair         `json:"cases"`
		Added      []jsonCase         `json:"added,omitempty"`
		Geomeans   []jsonGroup        `json:"geomeans,omitempty"`
		Notes      []jsonNote         `json:"notes,omitempty"`
		Hints      []string           `json:"hints,omitempty"`
		Errors     []string           `json:"errors,omitempty"`
	}
	jsonSide struct {
		Paths   []string  `json:"paths"`
		Runs    []jsonRun `json:"runs"`
		Cases   int       `json:"cases"`
		Records int       `json:"records"`
	}
	jsonRun struct {
		ID   string    `json:"id"`
		Time time.Time `json:"time"`
		Gic  string    `json:"gic"`
	}
	jsonCase struct {
		Name   string            `json:"name"`
		ID     string            `json:"id"`
		Keys   map[string]string `json:"keys"`
		Status record.Status     `json:"status"`
		Reason string            `json:"reason,omitempty"`
		Runs   int               `json:"runs"`
	}
	jsonPair struct {
		Name       string            `json:"name"`
		Verdict    Verdict           `json:"verdict"`
		Regression bool              `json:"regression"`
		Cause      string            `json:"cause,omitempty"`
		Causes     []string          `json:"causes,omitempty"`
		Reason     string            `json:"reason,omitempty"`
		Differs    map[string]string `json:"differs,omitempty"`
		Old        *jsonCase         `json:"old"`
		New        *jsonCase         `json:"new"`
		Counters   []jsonCounter     `json:"counters,omitempty"`
		Metrics    []jsonMetric      `json:"metrics,omitempty"`
		Notes      []int             `json:"notes,omitempty"`
	}
	jsonCounter struct {
		Name     string  `json:"name"`
		Exact    bool    `json:"exact"`
		Old      float64 `json:"old"`
		New      float64 `json:"new"`
		OldCount uint64  `json:"old_count"`
		NewCount uint64  `json:"new_count"`
		Changed  bool    `json:"changed"`
		Accepted bool    `json:"accepted,omitempty"`
		Verdict  Verdict `json:"verdict"`
	}
	jsonSummary struct {
		N      int      `json:"n"`
		Median *float64 `json:"median"`
		Low    *float64 `json:"low"`
		High   *float64 `json:"high"`
	}
	jsonMetric struct {
		Name     string      `json:"name"`
		Unit     string      `json:"unit"`
		Class    string      `json:"class"`
		Headline bool        `json:"headline"`
		Old      jsonSummary `json:"old"`
		New      jsonSummary `json:"new"`
		Delta    *float64    `json:"delta"`
		Low      *float64    `json:"low"`
		High     *float64    `json:"high"`
		P        float64     `json:"p"`
		Adjusted *float64    `json:"p_adjusted"`
		Verdict  Verdict     `json:"verdict"`
		Why      string      `json:"why,omitempty"`
	}
	jsonGroup struct {
		Workload string   `json:"workload"`
		Backend  string   `json:"backend"`
		Metric   string   `json:"metric"`
		Ratio    *float64 `json:"ratio"`
		Cases    int      `json:"cases"`
	}
	jsonNote struct {
		Code  string `json:"code"`
		Text  string `json:"text"`
		Cases int    `json:"cases,omitempty"`
	}
)

// JSONSchema names the format of the JSON output.
const JSONSchema = "gic.diff/1"

func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

func (c *Case) json(name string) *jsonCase {
	if c == nil {
		return nil
	}
	return &jsonCase{name, c.ID, keyMap(c.Keys), c.Status, c.Reason, c.Runs}
}

func keyMap(kv []record.KeyValue) map[string]string {
	m := make(map[string]string, len(kv))
	for _, v := range kv {
		m[v.Key] = v.Value
	}
	return m
}

func (s *Set) json() jsonSide {
	j := jsonSide{Paths: s.Paths, Cases: len(s.cases), Records: s.Records}
	for _, r := range s.runs {
		j.Runs = append(j.Runs, jsonRun{r.id, r.time.UTC(), r.gic})
	}
	return j
}

func (r *Result) renderJSON(w io.Writer, _ int) error {
	d := jsonDiff{
		Schema: JSONSchema, Exit: r.Exit(), Old: r.Old.json(), New: r.New.json(), Allow: r.Options.Allow, Alpha: r.Options.Alpha,
		Thresholds: r.Options.Thresholds, Tests: r.Tests, Paired: r.Paired, Counts: r.Count(), Cases: []jsonPair{},
		Hints: r.Hints, Errors: r.Errors(),
	}
	for _, a := range r.Options.Across {
		d.Across = append(d.Across, a.String())
	}
	for _, p := range r.Pairs {
		d.Cases = append(d.Cases, p.json())
	}
	for _, p := range r.Added {
		d.Added = append(d.Added, *p.New.json(p.Name))
	}
	for _, g := range r.Groups {
		d.Geomeans = append(d.Geomeans, jsonGroup{g.Workload, g.Backend, g.Metric, finite(g.Ratio), g.Cases})
	}
	for _, n := range r.Notes {
		d.Notes = append(d.Notes, jsonNote(n))
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(d)
}

func (p *Pair) json() jsonPair {
	j := jsonPair{
		Name: p.Name, Verdict: p.Verdict, Regression: p.Regression, Cause: p.Cause, Causes: p.Causes, Reason: p.Reason,
		Old: p.Old.json(p.Name), New: p.New.json(p.Name), Notes: p.Notes,
	}
	if p.Differs != nil {
		j.Differs = keyMap(p.Differs)
	}
	for _, c := range p.Counters {
		j.Counters = append(j.Counters, jsonCounter{c.Name, c.Exact, c.Old, c.New, c.OldCount, c.NewCount, c.Changed, c.Accepted, c.Verdict})
	}
	for _, m := range p.Metrics {
		x := jsonMetric{
			Name: m.Name, Unit: m.Unit, Class: string(m.Class), Headline: m.Headline,
			Old:   jsonSummary{m.NOld, finite(m.Comparison.Old.Median), finite(m.Comparison.Old.Low), finite(m.Comparison.Old.High)},
			New:   jsonSummary{m.NNew, finite(m.Comparison.New.Median), finite(m.Comparison.New.Low), finite(m.Comparison.New.High)},
			Delta: finite(m.Delta), Low: finite(m.Low), High: finite(m.High), P: m.P, Verdict: m.Verdict, Why: m.Why,
		}
		if m.Tested {
			x.Adjusted = finite(m.Adjusted)
		}
		if m.NNew == 0 {
			x.New = jsonSummary{}
		}
		if m.NOld == 0 {
			x.Old = jsonSummary{}
		}
		j.Metrics = append(j.Metrics, x)
	}
	return j
}

// String is the form that ParseAcross reads.
func (a Across) String() string {
	if a.Values {
		return a.Key + "=" + a.Old + ":" + a.New
	}
	return a.Key
}

// Errors are the lines that could not be used on either side.
func (r *Result) Errors() []string { return slices.Concat(r.Old.Bad, r.New.Bad) }

// The JUnit form, as Ant and Jenkins read it: one suite, one test case per pair; a regression is a failure, what
// was skipped on both sides is skipped.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name       string          `xml:"name,attr"`
		Tests      int             `xml:"tests,attr"`
		Failures   int             `xml:"failures,attr"`
		Errors     int             `xml:"errors,attr"`
		Skipped    int             `xml:"skipped,attr"`
		Time       string          `xml:"time,attr"`
		Timestamp  string          `xml:"timestamp,attr"`
		Properties []junitProperty `xml:"properties>property,omitempty"`
		Cases      []junitCase     `xml:"testcase"`
		SystemOut  string          `xml:"system-out,omitempty"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Name      string        `xml:"name,attr"`
		Class     string        `xml:"classname,attr"`
		Time      string        `xml:"time,attr"`
		Skipped   *junitOutcome `xml:"skipped,omitempty"`
		Failure   *junitOutcome `xml:"failure,omitempty"`
		SystemOut string        `xml:"system-out,omitempty"`
	}
	junitOutcome struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)

func (r *Result) renderJUnit(w io.Writer, _ int) error {
	s := junitSuite{Name: "gic diff", Time: "0", Timestamp: r.New.latest().UTC().Format("2006-01-02T15:04:05")}
	for _, p := range []junitProperty{
		{"old", strings.Join(r.Old.Paths, " ")}, {"new", strings.Join(r.New.Paths, " ")},
		{"alpha", fmt.Sprint(r.Options.Alpha)}, {"tests", fmt.Sprint(r.Tests)}, {"exit", fmt.Sprint(r.Exit())},
	} {
		s.Properties = append(s.Properties, junitProperty{p.Name, printable(p.Value)})
	}
	for _, p := range r.Pairs {
		k := p.old
		c := junitCase{Name: printable(p.Name), Class: printable("gic." + k.workload + "." + k.backend), Time: "0"}
		if p.new != nil {
			c.SystemOut = printable(strings.Join(p.lines(), "\n"))
		}
		switch {
		case p.Regression:
			c.Failure = &junitOutcome{Message: printable(p.summary()), Type: printable(p.kind()), Text: c.SystemOut}
			c.SystemOut = ""
			s.Failures++
		case p.skipped():
			c.Skipped = &junitOutcome{Message: printable(p.Reason)}
			s.Skipped++
		}
		s.Cases = append(s.Cases, c)
	}
	s.Tests = len(s.Cases)
	if r.Paired == 0 {
		s.Errors = 1
		s.Tests++
		// A suite without a pair must not look green.
		s.Cases = append(s.Cases, junitCase{Name: "pairing", Class: "gic.diff", Time: "0",
			Failure: &junitOutcome{Message: "no case of OLD has a partner in NEW", Type: "no_pair", Text: printable(strings.Join(r.Hints, "\n"))}})
		s.Failures, s.Errors = s.Failures+1, 0
	}
	var out []string
	for _, n := range r.Notes {
		out = append(out, n.line())
	}
	s.SystemOut = printable(strings.Join(slices.Concat(out, r.Hints, r.someErrors()), "\n"))
	all := junitSuites{Name: "gic", Tests: s.Tests, Failures: s.Failures, Suites: []junitSuite{s}}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// printable replaces what XML 1.0 and terminals cannot hold.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r >= ' ' && r != 0x7f && r != 0xfffe && r != 0xffff {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(s, "?"))
}

func (s *Set) latest() time.Time {
	var t time.Time
	for _, r := range s.runs {
		if r.time.After(t) {
			t = r.time
		}
	}
	return t
}
