package plan

import (
	"fmt"
	"strconv"
	"strings"
)

// Setting is a key and the values it is swept over, in the order given.
type Setting struct {
	Key    string
	Values []string
}

// Spec is a name and its settings, as written on the command line: "NAME:key=v|v,key=v". A value may be a range
// of integers: "1..4" (every integer), "0..100+25" (steps of 25) or "8..64K*2" (each twice the one before); the
// end belongs to the range when a step hits it.
type Spec struct {
	Name     string
	Settings []Setting
}

// SyntaxError says where a spec stops making sense. Pos counts bytes from 0.
type SyntaxError struct {
	Text string
	Pos  int
	Msg  string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%q at character %d: %s", e.Text, e.Pos+1, e.Msg)
}

// maxValues bounds what one setting may expand to: more is a typing error, not an experiment.
const maxValues = 4096

// ParseSpec reads "NAME", "NAME:" or "NAME:key=v|v,key=v". Errors are of type *SyntaxError.
func ParseSpec(text string) (Spec, error) {
	name, rest, _ := strings.Cut(text, ":")
	if !isName(name) {
		return Spec{}, &SyntaxError{text, 0, fmt.Sprintf("%q is not a name; the form is NAME:key=v|v,key=v", name)}
	}
	settings, err := parseSettings(text, len(text)-len(rest))
	if err != nil {
		return Spec{}, err
	}
	return Spec{Name: name, Settings: settings}, nil
}

// parseSettings reads "key=v|v,key=v" from text[pos:]; nothing at all is no settings.
func parseSettings(text string, pos int) ([]Setting, error) {
	var settings []Setting
	if pos == len(text) {
		return nil, nil
	}
	for _, whole := range strings.Split(text[pos:], ",") {
		// White space around a part means nothing: a long spec may be printed, and pasted, over several lines.
		part := strings.TrimSpace(whole)
		next := pos + len(whole) + 1
		pos += strings.Index(whole, part)
		key, list, ok := strings.Cut(part, "=")
		switch {
		case !isName(key):
			return nil, &SyntaxError{text, pos, fmt.Sprintf("%q is not a key; the form is key=v|v", part)}
		case !ok:
			return nil, &SyntaxError{text, pos + len(key), fmt.Sprintf("no value for %q; the form is key=v|v", key)}
		}
		for _, s := range settings {
			if s.Key == key {
				return nil, &SyntaxError{text, pos, fmt.Sprintf("%q is given twice; several values are written %s=v|v", key, key)}
			}
		}
		s := Setting{Key: key}
		at := pos + len(key) + 1
		for _, v := range strings.Split(list, "|") {
			values, err := expandValue(v)
			if err == nil && len(s.Values)+len(values) > maxValues {
				err = fmt.Errorf("more than %d values for %q", maxValues, key)
			}
			if err != nil {
				return nil, &SyntaxError{text, at, err.Error()}
			}
			s.Values = append(s.Values, values...)
			at += len(v) + 1
		}
		settings = append(settings, s)
		pos = next
	}
	return settings, nil
}

// expandValue gives the values of one element: itself, or those of a range.
func expandValue(v string) ([]string, error) {
	if v == "" {
		return nil, fmt.Errorf("a value is empty")
	}
	lo, rest, ok := strings.Cut(v, "..")
	if !ok || lo == "" || lo[0] < '0' || lo[0] > '9' {
		return []string{v}, nil // "../trace.jsonl" and "a..b" are text
	}
	hi, op, step := rest, byte('+'), "1"
	if i := strings.IndexAny(rest, "*+"); i >= 0 {
		hi, op, step = rest[:i], rest[i], rest[i+1:]
	}
	from, err1 := ParseInt(lo)
	to, err2 := ParseInt(hi)
	by, err3 := ParseInt(step)
	if err1 != nil || err2 != nil || err3 != nil {
		return nil, fmt.Errorf("%q is not a range; ranges are 1..4, 0..100+25 and 8..64K*2", v)
	}
	switch {
	case from > to:
		return nil, fmt.Errorf("range %q is empty: %d is more than %d", v, from, to)
	case op == '+' && by < 1:
		return nil, fmt.Errorf("range %q has a step below 1", v)
	case op == '*' && (by < 2 || from < 1):
		return nil, fmt.Errorf("range %q must start at 1 or more and grow by a factor of 2 or more", v)
	}
	var values []string
	for n := from; n <= to; {
		if len(values) == maxValues {
			return nil, fmt.Errorf("range %q has more than %d values", v, maxValues)
		}
		values = append(values, strconv.FormatInt(n, 10))
		if op == '+' {
			n += by // cannot overflow: both are below 2^62
		} else if n > to/by {
			break
		} else {
			n *= by
		}
	}
	return values, nil
}

// ParseInt reads a non-negative integer with an optional binary suffix K, M or G, below 2^62.
func ParseInt(s string) (int64, error) {
	digits, shift := s, 0
	if s != "" {
		switch s[len(s)-1] {
		case 'K', 'k':
			shift = 10
		case 'M', 'm':
			shift = 20
		case 'G', 'g':
			shift = 30
		}
		if shift > 0 {
			digits = s[:len(s)-1]
		}
	}
	v, err := strconv.ParseUint(digits, 10, 62)
	if err != nil || v >= 1<<(62-shift) {
		return 0, fmt.Errorf("%q is not an integer", s)
	}
	return int64(v) << shift, nil
}

func isName(s string) bool {
	for i, c := range s {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || !(c >= '0' && c <= '9' || c == '-' || c == '.')) {
			return false
		}
	}
	return s != ""
}

// String gives the spec back in the form that ParseSpec reads.
func (s Spec) String() string {
	var b strings.Builder
	b.WriteString(s.Name)
	for i, set := range s.Settings {
		b.WriteByte(":,"[min(i, 1)])
		b.WriteString(set.Key + "=" + strings.Join(set.Values, "|"))
	}
	return b.String()
}
