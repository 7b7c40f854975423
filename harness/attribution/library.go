package attribution

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// Library is what is documented of a library: which records are its rows, which floor stands beside it, and its
// choices in the floor's keys, each with its source. One file per library in libraries/; a user may bring more.
type Library struct {
	Name    string `yaml:"name"`
	Title   string `yaml:"title"`
	Version string `yaml:"version"` // that the sources were read in
	Match   Match  `yaml:"match"`
	// Floor is the backend of the floor of the same mechanism.
	Floor   string   `yaml:"floor"`
	Choices []Choice `yaml:"choices"`
	// Resources are the library's names for what the floor calls qps or workers: a row is compared with floor rows of
	// equal resources only.
	Resources map[string]string `yaml:"resources"`
	// Terms say what the library's own keys are about, where its rows differ in them.
	Terms map[string]Name `yaml:"terms"`
	// Counts is what one operation becomes where no NIC counted it.
	Counts []Count `yaml:"counts"`
	// Remainder is work that the sources show and that no floor key expresses: how to read the residual.
	Remainder []Remark `yaml:"remainder"`
}

// Match says which rows are the library's: a key that the row has, or that it says was created, must have one of the
// values.
type Match struct {
	Backend string              `yaml:"backend"`
	Config  map[string][]string `yaml:"config"`
	// Given are those of the keys that a row must have.
	Given []string `yaml:"given"`
}

// Choice is a setting of the floor that does what the library does.
type Choice struct {
	Key   string `yaml:"key"`
	Value string `yaml:"value"`
	// From is the library's own key that holds the value, where the row has it; it goes before Value.
	From string `yaml:"from"`
	What string `yaml:"what"`
	// Workloads and Metrics that it can act on; empty: all.
	Workloads []string `yaml:"workloads"`
	Metrics   []string `yaml:"metrics"`
	// When are values of the row's own keys, or of what was created, under which the choice is made ("*": whatever the
	// value); empty: always.
	When map[string]string `yaml:"when"`
	// Undone are values of the library's own keys that undo the choice: a row with these is what the choice costs in the
	// library itself.
	Undone map[string]string `yaml:"undone"`
	Source []string          `yaml:"source"`
}

// Count is how often a unit of work occurs in one operation.
type Count struct {
	Unit      string   `yaml:"unit"` // of Units
	PerOp     float64  `yaml:"per_op"`
	What      string   `yaml:"what"`
	Workloads []string `yaml:"workloads"`
	Metrics   []string `yaml:"metrics"`
	Source    []string `yaml:"source"`
}

// Remark is documented work without a number of its own.
type Remark struct {
	Term    Name     `yaml:"term"`
	What    string   `yaml:"what"`
	Metrics []string `yaml:"metrics"`
	// ByElimination: the source itself assigns all of the rest to this work, so that the residual may be read as it;
	// Together are terms of choices without a rung that it then holds as well.
	ByElimination bool     `yaml:"by_elimination"`
	Together      []Name   `yaml:"together"`
	Source        []string `yaml:"source"`
}

//go:embed libraries/*.yaml
var libraryFiles embed.FS

// Libraries reads the built-in library files, by name.
func Libraries() ([]*Library, error) {
	names, err := fs.Glob(libraryFiles, "libraries/*.yaml")
	if err != nil {
		return nil, err
	}
	var list []*Library
	for _, name := range names {
		data, err := libraryFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		l, err := ParseLibrary(path.Base(name), data)
		if err != nil {
			return nil, err
		}
		list = append(list, l)
	}
	return list, nil
}

// ParseLibrary reads a library file; an error names the file, what is wrong and what is allowed.
func ParseLibrary(file string, data []byte) (l *Library, err error) {
	defer func() {
		if p := recover(); p != nil { // of the YAML parser
			l, err = nil, fmt.Errorf("library file %s: cannot be read as YAML: %v", file, p)
		}
	}()
	l = &Library{}
	if err := yaml.UnmarshalWithOptions(data, l, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("library file %s: %s", file, strings.Join(strings.Fields(err.Error()), " "))
	}
	if err := l.check(); err != nil {
		return nil, fmt.Errorf("library file %s: %w", file, err)
	}
	return l, nil
}

func (l *Library) check() error {
	switch {
	case l.Name == "" || l.Title == "" || l.Match.Backend == "":
		return fmt.Errorf("name %q, title %q and match.backend %q must be given", l.Name, l.Title, l.Match.Backend)
	case !slices.Contains(Floors, l.Floor):
		return fmt.Errorf("floor %q is not one of %s", l.Floor, strings.Join(Floors, ", "))
	}
	for _, c := range l.Choices {
		if termOfKey(l.Floor, c.Key) == "" {
			return fmt.Errorf("key %q of a choice expresses no term with %s", c.Key, l.Floor)
		}
		if c.Value == "" && c.From == "" || len(c.Source) == 0 {
			return fmt.Errorf("choice of %s: value %q or from, and source, must be given", c.Key, c.Value)
		}
	}
	for _, k := range l.Match.Given {
		if l.Match.Config[k] == nil {
			return fmt.Errorf("match.given %q has no values in match.config", k)
		}
	}
	for k, n := range l.Terms {
		if _, err := TermOf(n); err != nil {
			return fmt.Errorf("key %s: %w", k, err)
		}
	}
	for _, c := range l.Counts {
		if _, ok := unitOf(c.Unit); !ok {
			return fmt.Errorf("unit %q is not one of %s", c.Unit, strings.Join(unitNames(), ", "))
		}
		if len(c.Source) == 0 || c.PerOp < 0 {
			return fmt.Errorf("count of %s: source must be given, per_op %g must not be negative", c.Unit, c.PerOp)
		}
	}
	for _, r := range l.Remainder {
		if _, err := TermOf(r.Term); err != nil {
			return err
		}
		for _, n := range r.Together {
			if _, err := TermOf(n); err != nil {
				return err
			}
		}
		if len(r.Source) == 0 {
			return fmt.Errorf("remainder %s has no source", r.Term)
		}
	}
	return nil
}

// Matches says whether a row is of the library.
func (l *Library) Matches(w *Row) bool {
	c := w.First()
	if c.Backend != l.Match.Backend {
		return false
	}
	for k, allowed := range l.Match.Config {
		if v := w.setting(k); v == "" && slices.Contains(l.Match.Given, k) || v != "" && !slices.Contains(allowed, v) {
			return false
		}
	}
	return true
}

// acts says whether an entry with these workloads and metrics acts on a gap.
func acts(workloads, metrics []string, g *Gap) bool {
	return (len(workloads) == 0 || slices.Contains(workloads, g.Row.First().Workload)) &&
		(len(metrics) == 0 || slices.Contains(metrics, g.Metric))
}

// made says whether a row makes the choice.
func (c Choice) made(w *Row) bool {
	for k, v := range c.When {
		if is := w.setting(k); is != v && !(v == "*" && is != "") {
			return false
		}
	}
	return true
}

// setting is what a row was configured with, or what it says was created.
func (w *Row) setting(key string) string {
	if v := w.Config(key); v != "" && v != "auto" {
		return v
	}
	return w.First().Created[key]
}

// choices are the settings of the floor that stand for the row at a gap: those of the library's file, the first that
// fits of each key; of a row that poses, its own configuration.
func (g *Gap) choices() []Choice {
	var out []Choice
	add := func(c Choice) {
		if !slices.ContainsFunc(out, func(o Choice) bool { return o.Key == c.Key }) {
			out = append(out, c)
		}
	}
	floor := g.Floor.Backend()
	if g.Library == nil || g.Row.Backend() == floor {
		for _, t := range terms {
			for _, k := range t.Floor {
				if v := g.Row.Config(k.Name); k.Backend == floor && v != "" && v != "auto" {
					add(Choice{Key: k.Name, Value: v, What: "the row's own configuration", Source: []string{g.Row.Source()}})
				}
			}
		}
	}
	if g.Library != nil {
		for _, c := range g.Library.Choices {
			if !acts(c.Workloads, c.Metrics, g) || !c.made(g.Row) {
				continue
			}
			if v := g.Row.Config(c.From); c.From != "" && v != "" && v != "auto" {
				c.Value = v
			}
			if c.Value != "" {
				add(c)
			}
		}
	}
	// Rungs stand in the order of the vocabulary.
	at := func(c Choice) int {
		return slices.IndexFunc(terms, func(t Term) bool { return t.Name == termOfKey(floor, c.Key) })
	}
	slices.SortStableFunc(out, func(a, b Choice) int { return at(a) - at(b) })
	return out
}
