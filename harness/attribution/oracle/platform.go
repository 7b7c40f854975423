package oracle

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// Schema names the format of platform files.
const Schema = "gic.platform/1"

// Platform is a machine as the oracle knows it.
type Platform struct {
	Schema string `yaml:"schema" json:"schema"`
	Name   string `yaml:"name" json:"name"`
	About  string `yaml:"about" json:"about"`
	Source string `yaml:"source" json:"source"`
	// NIC and Device are what was measured: nic mlx5|soft|none|unknown, device cuda|host. A software NIC's or a
	// host thread's constants say nothing about hardware.
	NIC    string `yaml:"nic" json:"nic"`
	Device string `yaml:"device" json:"device"`
	// Conditions hold for every query that does not say otherwise.
	Conditions Conditions  `yaml:"conditions,omitempty" json:"conditions,omitempty"`
	Constants  []*Constant `yaml:"constants" json:"constants"`
	// Absent says why there is no constant of a name where one could be expected.
	Absent []Absence `yaml:"absent,omitempty" json:"absent,omitempty"`
}

// Absence is the reason for a constant that is not there.
type Absence struct {
	Name string            `yaml:"name" json:"name"`
	For  map[string]string `yaml:"for,omitempty" json:"for,omitempty"`
	Why  string            `yaml:"why" json:"why"`
}

// Constant is one number of a platform.
type Constant struct {
	Name string `yaml:"name" json:"name"`
	// For selects: the constant is meant where all of these conditions are given. Of several, the one with more
	// of them is taken.
	For   map[string]string `yaml:"for,omitempty" json:"for,omitempty"`
	Value float64           `yaml:"value" json:"value"`
	Unit  string            `yaml:"unit" json:"unit"`
	// Low and High are an interval around the value, where the calibration knows one.
	Low  *float64 `yaml:"low,omitempty" json:"low,omitempty"`
	High *float64 `yaml:"high,omitempty" json:"high,omitempty"`
	// Source says where it comes from, How by what arithmetic, Rows from which rows there.
	Source string   `yaml:"source" json:"source"`
	How    string   `yaml:"how,omitempty" json:"how,omitempty"`
	Rows   []string `yaml:"rows,omitempty" json:"rows,omitempty"`
	// Valid are the conditions under which it was measured: key -> a..b or v|v. A query that does not state the
	// key, or another value, gets no prediction.
	Valid map[string]string `yaml:"valid,omitempty" json:"valid,omitempty"`
	// Fit says how well a calibration's points agree with it.
	Fit string `yaml:"fit,omitempty" json:"fit,omitempty"`
}

// units by name: base unit and what it is multiplied by.
var units = map[string]struct {
	base  string
	scale float64
}{
	"s": {"s", 1}, "us": {"s", 1e-6}, "ns": {"s", 1e-9}, "B": {"B", 1}, "B/s": {"B/s", 1}, "GB/s": {"B/s", 1e9},
	"msg/s": {"msg/s", 1}, "Mmsg/s": {"msg/s", 1e6}, "cycles": {"cycles", 1}, "1": {"1", 1}, "x": {"1", 1}, "%": {"1", 0.01}, "QPs": {"QPs", 1},
}

// Base converts a value to its base unit.
func Base(value float64, unit string) (float64, string, error) {
	u, ok := units[unit]
	if !ok {
		return 0, "", fmt.Errorf("unit %q is not known; known: s, us, ns, B, B/s, GB/s, msg/s, Mmsg/s, cycles, QPs, x, %%, 1", unit)
	}
	return value * u.scale, u.base, nil
}

// names of the constants that the models use, and their base units.
var constantNames = map[string]string{
	"issue": "s", "issue_segment": "s", "cqe": "s", "cqe_host": "s", "fetch": "s", "completion": "s", "dc": "s",
	"arrive": "1", "notice": "s", "post": "s", "wr": "s", "ring": "s",
	"issue_cycles": "cycles", "issue_base": "s", "put_completion_cycles": "cycles", "put_completion_base": "s",
	"scoped": "s", "scoped_queue": "s", "scoped_rtt": "s",
	"wqe": "s", "doorbell_wqe": "s", "lock": "s", "slot": "s", "warp": "s",
	"qp_rate": "msg/s", "sm_rate": "msg/s", "nic_rate": "msg/s", "stack_rate": "msg/s", "connection_rate": "msg/s", "duplex_rate": "msg/s",
	"link": "B/s", "header": "B", "mtu": "B", "onset": "QPs", "exponent": "1",
}

// differences are the constants that may be negative.
var differences = []string{"cqe_host", "completion", "notice"}

// ID names a constant with its selector.
func (k *Constant) ID() string {
	if len(k.For) == 0 {
		return k.Name
	}
	return k.Name + "{" + pairs(k.For) + "}"
}

func (k *Constant) base() float64 {
	v, _, _ := Base(k.Value, k.Unit)
	return v
}

// Text is the value with its unit.
func (k *Constant) Text() string {
	if k.Unit == "1" || k.Unit == "x" {
		return fmt.Sprintf("%.4g", k.Value)
	}
	return fmt.Sprintf("%.4g %s", k.Value, k.Unit)
}

// invalid says why a constant may not be used under the conditions, "" if it may.
func (k *Constant) invalid(q Conditions) string {
	for _, key := range slices.Sorted(keys(k.Valid)) {
		switch value, stated := q[key]; {
		case !stated || value == "":
			return fmt.Sprintf("%s is not stated; valid for %s=%s", key, key, k.Valid[key])
		case !within(value, k.Valid[key]):
			return fmt.Sprintf("%s=%s is outside its validity %s=%s", key, value, key, k.Valid[key])
		}
	}
	return ""
}

func keys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// find returns the constant of a name that the conditions select, nil for none.
func (p *Platform) find(name string, q Conditions) *Constant {
	var best *Constant
next:
	for _, k := range p.Constants {
		if k.Name != name || best != nil && len(k.For) <= len(best.For) {
			continue
		}
		for key, v := range k.For {
			if q[key] != v {
				continue next
			}
		}
		best = k
	}
	return best
}

// why gives the platform's own reason for a missing constant.
func (p *Platform) why(name string, q Conditions) string {
next:
	for _, a := range p.Absent {
		for key, v := range a.For {
			if q[key] != v {
				continue next
			}
		}
		if a.Name == name {
			return ": " + a.Why
		}
	}
	return ""
}

// wanted says what of the query tells it apart from the constants of that name that there are.
func (p *Platform) wanted(name string, q Conditions) string {
	seen := map[string]string{}
	for _, k := range p.Constants {
		if k.Name == name {
			for key := range k.For {
				if v := q[key]; v != "" {
					seen[key] = v
				}
			}
		}
	}
	if len(seen) == 0 {
		return ""
	}
	return " for " + pairs(seen)
}

//go:embed platforms
var embedded embed.FS

// Names lists the platforms that come with gic.
func Names() []string {
	files, _ := fs.Glob(embedded, "platforms/*.yaml")
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(f, "platforms/"), ".yaml"))
	}
	return names
}

// Load returns an embedded platform by name, or reads a file. A text with a slash or a dot is a file's path.
func Load(nameOrPath string) (*Platform, error) {
	if slices.Contains(Names(), nameOrPath) {
		data, err := embedded.ReadFile("platforms/" + nameOrPath + ".yaml")
		if err != nil {
			return nil, err
		}
		return Parse(data)
	}
	if !strings.ContainsAny(nameOrPath, "/.") {
		return nil, fmt.Errorf("platform %q is not known; known: %s, or the path of a platform file", nameOrPath, strings.Join(Names(), ", "))
	}
	data, err := os.ReadFile(nameOrPath)
	if err != nil {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			return nil, fmt.Errorf("read platform %s: %w", nameOrPath, pe.Err)
		}
		return nil, fmt.Errorf("read platform: %w", err)
	}
	p, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", nameOrPath, err)
	}
	return p, nil
}

// Parse reads a platform file. Every fault is one line.
func Parse(data []byte) (*Platform, error) {
	p := &Platform{}
	if err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(p); err != nil {
		return nil, fmt.Errorf("platform file: %s", strings.Join(strings.Fields(yaml.FormatError(err, false, false)), " "))
	}
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("platform file: %w", err)
	}
	return p, nil
}

func (p *Platform) check() error {
	switch {
	case p.Schema != Schema:
		return fmt.Errorf("schema is %q, expected %q", p.Schema, Schema)
	case p.Name == "":
		return errors.New("name is empty")
	}
	for _, key := range slices.Sorted(keys(p.Conditions)) {
		if err := CheckKey(key); err != nil {
			return fmt.Errorf("conditions: %w", err)
		}
	}
	seen := map[string]bool{}
	for i, k := range p.Constants {
		if k == nil {
			return fmt.Errorf("constant %d is empty", i+1)
		}
		unit, known := constantNames[k.Name]
		_, base, err := Base(k.Value, k.Unit)
		switch {
		case !known:
			return fmt.Errorf("constant %d: name %q is not known; known: %s", i+1, k.Name, strings.Join(slices.Sorted(keys(constantNames)), ", "))
		case err != nil:
			return fmt.Errorf("constant %s: %w", k.ID(), err)
		case base != unit:
			return fmt.Errorf("constant %s: unit %q is of %s, expected of %s", k.ID(), k.Unit, base, unit)
		case math.IsNaN(k.Value) || math.IsInf(k.Value, 0):
			return fmt.Errorf("constant %s: value %v is not finite", k.ID(), k.Value)
		case k.Value < 0 && !slices.Contains(differences, k.Name):
			return fmt.Errorf("constant %s: value %v is negative", k.ID(), k.Value)
		case k.Low != nil && !(*k.Low <= k.Value), k.High != nil && !(k.Value <= *k.High):
			return fmt.Errorf("constant %s: value %v is not between low and high", k.ID(), k.Value)
		case k.Source == "":
			return fmt.Errorf("constant %s has no source", k.ID())
		case seen[k.ID()]:
			return fmt.Errorf("constant %s is given twice", k.ID())
		}
		seen[k.ID()] = true
		for _, m := range []map[string]string{k.For, k.Valid} {
			for _, key := range slices.Sorted(keys(m)) {
				if err := CheckKey(key); err != nil {
					return fmt.Errorf("constant %s: %w", k.ID(), err)
				}
			}
		}
		for _, key := range slices.Sorted(keys(k.Valid)) {
			if err := checkValid(k.Valid[key]); err != nil {
				return fmt.Errorf("constant %s: valid %s: %w", k.ID(), key, err)
			}
		}
	}
	return nil
}

func checkValid(v string) error {
	for alternative := range strings.SplitSeq(v, "|") {
		low, high, isRange := strings.Cut(alternative, "..")
		l, ok1 := parseNumber(low)
		h, ok2 := parseNumber(high)
		switch {
		case alternative == "":
			return fmt.Errorf("%q has an empty value; the forms are a..b and v|v", v)
		case isRange && (!ok1 || !ok2 || l > h):
			return fmt.Errorf("%q is not a range; the forms are a..b and v|v", alternative)
		}
	}
	return nil
}

// Marshal writes a platform as a file.
func (p *Platform) Marshal() ([]byte, error) {
	return yaml.MarshalWithOptions(p, yaml.Indent(2), yaml.IndentSequence(true))
}
