package diff

import (
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"gic/harness/record"
)

// xsd is as much of XML Schema as testdata/junit.xsd uses: global elements with a sequence of references and
// attributes of simple types.
type xsd struct {
	Elements []struct {
		Name string `xml:"name,attr"`
		Type struct {
			Mixed    bool `xml:"mixed,attr"`
			Sequence []struct {
				Ref string `xml:"ref,attr"`
				Min string `xml:"minOccurs,attr"`
				Max string `xml:"maxOccurs,attr"`
			} `xml:"sequence>element"`
			Attributes []struct {
				Name string `xml:"name,attr"`
				Type string `xml:"type,attr"`
				Use  string `xml:"use,attr"`
			} `xml:"attribute"`
		} `xml:"complexType"`
	} `xml:"element"`
}

type node struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Text     string     `xml:",chardata"`
	Children []node     `xml:",any"`
}

var simpleTypes = map[string]*regexp.Regexp{
	"xs:string":             regexp.MustCompile(`(?s).*`),
	"xs:decimal":            regexp.MustCompile(`^[+-]?[0-9]+(\.[0-9]+)?$`),
	"xs:nonNegativeInteger": regexp.MustCompile(`^[0-9]+$`),
	"xs:dateTime":           regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?$`),
}

// check validates a node against its declaration.
func (s *xsd) check(n node) error {
	name := n.XMLName.Local
	for _, e := range s.Elements {
		if e.Name != name {
			continue
		}
		if !e.Type.Mixed && strings.TrimSpace(n.Text) != "" {
			return fmt.Errorf("<%s> holds text %q", name, n.Text)
		}
		given := map[string]string{}
		for _, a := range n.Attrs {
			given[a.Name.Local] = a.Value
		}
		for _, a := range e.Type.Attributes {
			v, ok := given[a.Name]
			delete(given, a.Name)
			if !ok && a.Use == "required" {
				return fmt.Errorf("<%s> lacks %s", name, a.Name)
			}
			if ok && !simpleTypes[a.Type].MatchString(v) {
				return fmt.Errorf("<%s> %s=%q is no %s", name, a.Name, v, a.Type)
			}
		}
		for a := range given {
			return fmt.Errorf("<%s> has an attribute %s", name, a)
		}
		rest := n.Children
		for _, part := range e.Type.Sequence {
			count := 0
			for len(rest) > 0 && rest[0].XMLName.Local == part.Ref {
				if err := s.check(rest[0]); err != nil {
					return err
				}
				rest = rest[1:]
				count++
			}
			if most, err := strconv.Atoi(part.Max); err == nil && count > most {
				return fmt.Errorf("<%s> holds %d <%s>", name, count, part.Ref)
			}
			if least, err := strconv.Atoi(part.Min); err != nil || count < least {
				return fmt.Errorf("<%s> holds %d <%s>", name, count, part.Ref)
			}
		}
		if len(rest) > 0 {
			return fmt.Errorf("<%s> holds a <%s> there", name, rest[0].XMLName.Local)
		}
		return nil
	}
	return fmt.Errorf("no element <%s>", name)
}

func junitSchema(t *testing.T) *xsd {
	t.Helper()
	text, err := os.ReadFile("testdata/junit.xsd")
	if err != nil {
		t.Fatal(err)
	}
	var s xsd
	if err := xml.Unmarshal(text, &s); err != nil || len(s.Elements) != 10 {
		t.Fatalf("schema: %v, %d elements", err, len(s.Elements))
	}
	return &s
}

// The JUnit output of a diff with regressions, skipped cases and hostile text follows the schema, and counts right.
func TestJUnitFollowsTheSchema(t *testing.T) {
	s := junitSchema(t)
	dir := t.TempDir()
	a, b := newSynth("one", 1), newSynth("two", 2)
	a.cases, b.cases = 6, 6
	skip := func(c *record.Case) bool {
		if c.Axes["size"] == "16" {
			c.Status, c.Reason, c.Metrics, c.Counters = record.Skipped, "no <device> & \x01 \x1b[31m \xff", nil, nil
		}
		return true
	}
	a.change = skip
	b.change = func(c *record.Case) bool {
		if first(c) {
			counter(c, "doorbells").Value = 1000
		}
		if c.Axes["size"] == "32" {
			c.Status, c.Reason, c.Stage, c.Metrics, c.Counters = record.Failed, `crashed ]]> "here"`, "run", nil, nil
		}
		return skip(c) && c.Axes["size"] != "64"
	}
	one, two := a.write(t, filepath.Join(dir, "a")), b.write(t, filepath.Join(dir, "b"))
	for _, tc := range []struct {
		name                     string
		old, new                 string
		allow                    bool
		tests, failures, skipped string
	}{
		{"regressions", one, two, false, "6", "3", "1"},
		{"clean", one, one, false, "6", "0", "1"},
	} {
		r, err := Compare(load(t, "OLD", tc.old), load(t, "NEW", tc.new), Options{Alpha: 0.05})
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := r.Render(&out, "junit", 0); err != nil {
			t.Fatal(err)
		}
		var n node
		if err := xml.Unmarshal([]byte(out.String()), &n); err != nil {
			t.Fatalf("%s: %v\n%s", tc.name, err, out.String())
		}
		if err := s.check(n); err != nil {
			t.Errorf("%s: %v\n%s", tc.name, err, out.String())
		}
		suite := n.Children[0]
		got := map[string]string{}
		for _, x := range suite.Attrs {
			got[x.Name.Local] = x.Value
		}
		if got["tests"] != tc.tests || got["failures"] != tc.failures || got["skipped"] != tc.skipped {
			t.Errorf("%s: tests %s, failures %s, skipped %s; want %s, %s, %s", tc.name, got["tests"], got["failures"], got["skipped"], tc.tests, tc.failures, tc.skipped)
		}
		if path, err := exec.LookPath("xmllint"); err == nil { // a second opinion where there is one
			cmd := exec.Command(path, "--noout", "--schema", "testdata/junit.xsd", "-")
			cmd.Stdin = strings.NewReader(out.String())
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: xmllint: %v\n%s", tc.name, err, text)
			}
		}
	}
}

// The check itself must refuse what is wrong, or the test above says nothing.
func TestJUnitCheckRefuses(t *testing.T) {
	s := junitSchema(t)
	suite := func(inner string) string {
		return `<testsuites><testsuite name="x" tests="1" failures="0" errors="0">` + inner + `</testsuite></testsuites>`
	}
	for _, text := range []string{
		`<suites/>`, `<testsuites name="x" color="red"/>`, `<testsuites tests="-1"/>`, `<testsuites>text</testsuites>`,
		`<testsuites><testsuite name="x" tests="1" failures="0"/></testsuites>`,
		suite(`<testcase name="a"/>`), suite(`<testcase name="a" classname="b" time="fast"/>`),
		suite(`<system-out/><testcase name="a" classname="b"/>`), suite(`<testcase name="a" classname="b"><failed/></testcase>`),
		suite(`<testcase name="a" classname="b"><skipped/><skipped/></testcase>`),
		`<testsuites><testsuite name="x" tests="1" failures="0" errors="0" timestamp="yesterday"/></testsuites>`,
	} {
		var n node
		if err := xml.NewDecoder(io.LimitReader(strings.NewReader(text), 1<<20)).Decode(&n); err != nil {
			t.Fatal(err)
		}
		if s.check(n) == nil {
			t.Errorf("accepted: %s", text)
		}
	}
	var n node
	if err := xml.Unmarshal([]byte(suite(`<testcase name="a" classname="b"><skipped message="m"/></testcase>`)), &n); err != nil || s.check(n) != nil {
		t.Errorf("refused what is right: %v", s.check(n))
	}
}
