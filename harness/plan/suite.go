package plan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// Suite is a named collection of blocks, read from YAML. Specs in it are written as on the command line.
type Suite struct {
	Name string
	// Doc is one line for `gic list`.
	Doc string
	// Ranks and Repeat are defaults that flags override; 0 leaves the default of the command.
	Ranks, Repeat int
	Blocks        []Block
}

// Block is one workload over its axes on several backend configurations: every combination becomes a case.
type Block struct {
	Workload Spec
	Backends []Spec
}

// yamlSpec is a spec in a suite file; its errors carry the line.
type yamlSpec struct{ Spec }

func (s *yamlSpec) UnmarshalYAML(node ast.Node) error {
	at := node.GetToken().Position
	str, ok := node.(*ast.StringNode)
	if !ok {
		return fmt.Errorf("line %d: a text NAME:key=v|v,key=v is expected, not a %s", at.Line, strings.ToLower(node.Type().String()))
	}
	spec, err := ParseSpec(str.Value)
	if err != nil {
		return fmt.Errorf("line %d: %w", at.Line, err)
	}
	s.Spec = spec
	return nil
}

// suiteFile is the schema of a suite; workloads/suites/quick.yaml explains it.
type suiteFile struct {
	Doc       string     `yaml:"doc"`
	Ranks     int        `yaml:"ranks"`
	Repeat    int        `yaml:"repeat"`
	Backends  []yamlSpec `yaml:"backends"`
	Libraries []yamlSpec `yaml:"libraries"`
	Blocks    []struct {
		Workload yamlSpec   `yaml:"workload"`
		Backends []yamlSpec `yaml:"backends"`
	} `yaml:"blocks"`
}

// ParseSuite reads a suite. An unknown field or a bad spec is an error of one line that names its line number.
func ParseSuite(name string, text []byte) (*Suite, error) {
	f, err := decodeSuite(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("suite %s: %s", name, yamlMessage(err))
	case f.Ranks < 0:
		return nil, fmt.Errorf("suite %s: ranks: %d is not allowed; allowed: 1 or more", name, f.Ranks)
	case f.Repeat < 0:
		return nil, fmt.Errorf("suite %s: repeat: %d is not allowed; allowed: 1 or more", name, f.Repeat)
	case len(f.Blocks) == 0:
		return nil, fmt.Errorf("suite %s: no blocks", name)
	}
	s := &Suite{Name: name, Doc: f.Doc, Ranks: f.Ranks, Repeat: f.Repeat}
	for i, b := range f.Blocks {
		if b.Workload.Name == "" {
			return nil, fmt.Errorf("suite %s: block %d has no workload", name, i+1)
		}
		list := b.Backends
		if len(list) == 0 {
			list = f.Backends
		}
		block := Block{Workload: b.Workload.Spec}
		for _, spec := range slices.Concat(list, f.Libraries) {
			block.Backends = append(block.Backends, spec.Spec)
		}
		if len(block.Backends) == 0 {
			return nil, fmt.Errorf("suite %s: block %d (%s) has no backends", name, i+1, b.Workload.Name)
		}
		s.Blocks = append(s.Blocks, block)
	}
	return s, nil
}

// decodeSuite reads the one document of a suite file.
func decodeSuite(text []byte) (f suiteFile, err error) {
	defer func() {
		// The library panics on some texts that are not YAML; testdata/fuzz has one.
		if recover() != nil {
			err = errors.New("this is not YAML")
		}
	}()
	d := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict())
	if err := d.Decode(&f); errors.Is(err, io.EOF) {
		return f, errors.New("the file is empty")
	} else if err != nil {
		return f, err
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return f, errors.New("more than one YAML document")
	}
	return f, nil
}

// yamlMessage puts the library's report, which quotes the file below the message, on one line.
func yamlMessage(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	if rest, ok := strings.CutPrefix(line, "["); ok { // "[3:5] unknown field ..."
		if pos, msg, ok := strings.Cut(rest, "] "); ok {
			row, _, _ := strings.Cut(pos, ":")
			if strings.HasPrefix(msg, "line ") {
				return msg
			}
			return "line " + row + ": " + msg
		}
	}
	return line
}

// Narrow keeps of a suite what the command line names. A workload spec keeps the blocks of that workload and
// replaces the axes it gives. A backend spec keeps that backend's rows, where the suite has them, and replaces the keys
// it gives; a backend that the suite has in no block at all joins every block. So each spec adds the same rows whatever
// stands beside it, and a block that is left without any falls out. An empty list keeps everything. join are backends
// that come to whatever is kept, unless the suite has them.
func (s *Suite) Narrow(works, backs, join []Spec) (*Suite, error) {
	for _, w := range works {
		if !slices.ContainsFunc(s.Blocks, func(b Block) bool { return b.Workload.Name == w.Name }) {
			return nil, UnknownName("workload", w.Name, s.workloadNames(), " in suite "+s.Name)
		}
	}
	joins := func(o Spec) bool { return len(s.workloadsOf(o.Name)) == 0 }
	out := *s
	out.Blocks = nil
	for _, b := range s.Blocks {
		variants := []Spec{b.Workload}
		if len(works) > 0 {
			variants = overlays([]Spec{b.Workload}, works)
		}
		list := slices.Clone(b.Backends)
		if len(backs) > 0 {
			list = overlays(b.Backends, backs)
		}
		for _, spec := range slices.Concat(backs, join) {
			if joins(spec) {
				list = append(list, spec)
			}
		}
		if len(list) == 0 {
			continue
		}
		for _, v := range variants {
			out.Blocks = append(out.Blocks, Block{v, list})
		}
	}
	// Each spec must have brought a row: the rest of what was asked for would hide that it is missing.
	for _, o := range backs {
		if len(out.workloadsOf(o.Name)) == 0 {
			return nil, fmt.Errorf("suite %s has backend %s with workload %s only, not with %s",
				s.Name, o.Name, strings.Join(s.workloadsOf(o.Name), ", "), specNames(works))
		}
	}
	for _, w := range works {
		if !slices.Contains(out.workloadNames(), w.Name) {
			return nil, fmt.Errorf("suite %s has workload %s on other backends only, not on %s", s.Name, w.Name, specNames(backs))
		}
	}
	return &out, nil
}

// specNames lists each name once.
func specNames(specs []Spec) string {
	var names []string
	for _, s := range specs {
		if !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
		}
	}
	return strings.Join(names, ", ")
}

// workloadsOf names the workloads that a backend has a row of.
func (s *Suite) workloadsOf(backend string) []string {
	var names []string
	for _, b := range s.Blocks {
		has := slices.ContainsFunc(b.Backends, func(o Spec) bool { return o.Name == backend })
		if has && !slices.Contains(names, b.Workload.Name) {
			names = append(names, b.Workload.Name)
		}
	}
	return names
}

func (s *Suite) workloadNames() []string {
	var names []string
	for _, b := range s.Blocks {
		if !slices.Contains(names, b.Workload.Name) {
			names = append(names, b.Workload.Name)
		}
	}
	return names
}

// overlays gives every base spec that an over spec names, with that spec's settings in place of its own.
func overlays(base, over []Spec) []Spec {
	var out []Spec
	for _, b := range base {
		for _, o := range over {
			if b.Name != o.Name {
				continue
			}
			v := Spec{Name: b.Name, Settings: slices.Clone(b.Settings)}
			for _, set := range o.Settings {
				if i := slices.IndexFunc(v.Settings, func(s Setting) bool { return s.Key == set.Key }); i >= 0 {
					v.Settings[i] = set
				} else {
					v.Settings = append(v.Settings, set)
				}
			}
			out = append(out, v)
		}
	}
	return out
}
