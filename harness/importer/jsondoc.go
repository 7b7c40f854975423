package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
)

// document is one JSON object of a file.
type document struct {
	line int
	raw  json.RawMessage
}

// cheap is how far into a broken document the search goes back to its beginning, so that a document behind a
// stray brace is found. Beyond it the search goes on where the document broke: no file costs more than its size
// times this.
const cheap = 512

// documents finds the JSON objects in a file. Diagnostics that were glued before, between or behind them are
// noted and passed over: programs print to the same stdout. An object that is cut off or broken is a problem.
func (s *source) documents() []document {
	var docs []document
	line := lineCounter(s.data)
	read, pos := 0, 0 // read: all before it is dealt with
	junk := func(to int) {
		for text := range bytes.Lines(s.data[read:to]) {
			if t := bytes.TrimSpace(text); len(t) > 0 {
				s.passed(line(read), string(t))
			}
			read += len(text)
		}
	}
	for pos < len(s.data) {
		open := bytes.IndexByte(s.data[pos:], '{')
		if open < 0 {
			break
		}
		start := pos + open
		dec := json.NewDecoder(bytes.NewReader(s.data[start:]))
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if err == nil {
			junk(start)
			docs = append(docs, document{line(start), raw})
			pos = start + int(dec.InputOffset())
			read = pos
			continue
		}
		var syntax *json.SyntaxError
		if !errors.As(err, &syntax) { // nothing but the end was wrong
			junk(start)
			s.problem(line(start), "the JSON document that begins here is cut off at the end of the file")
			return docs
		}
		end := min(start+max(int(syntax.Offset), 1), len(s.data))
		if isObject(s.data[start:]) {
			s.problem(line(end-1), "JSON: %v", err)
		}
		if pos = start + 1; end-start > cheap {
			pos = end
		}
	}
	junk(len(s.data))
	return docs
}

// isObject says whether an object with a key begins here, and not just a brace in a text.
func isObject(data []byte) bool {
	rest := bytes.TrimLeft(data[1:min(len(data), 64)], " \t\r\n")
	return len(rest) > 0 && rest[0] == '"'
}

// lineCounter returns the line of an offset.
func lineCounter(data []byte) func(offset int) int {
	var ends []int
	for i, c := range data {
		if c == '\n' {
			ends = append(ends, i)
		}
	}
	return func(offset int) int { return 1 + sort.SearchInts(ends, offset) }
}

// number is a JSON number as tools write it: also as a string, "nan" among them, or null.
type number struct {
	value   float64
	present bool // not absent, not null
	text    string
}

func (n *number) UnmarshalJSON(b []byte) error {
	text := strings.TrimSpace(string(b))
	if text == "null" {
		return nil
	}
	if text[0] == '"' {
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
		text = strings.TrimSpace(text)
	}
	n.present, n.text = true, text
	v, err := strconv.ParseFloat(text, 64)
	if err != nil && !math.IsInf(v, 0) {
		v = math.NaN()
	}
	n.value = v
	return nil
}

// int gives a whole number, 0 if it is none.
func (n number) int() int {
	if !n.present || n.value != math.Trunc(n.value) || math.Abs(n.value) > 1<<53 {
		return 0
	}
	return int(n.value)
}

// measured reads a number that must be there and measured.
func (s *source) measured(line int, what string, n number) (float64, bool) {
	if !n.present {
		s.problem(line, "%s is missing", what)
		return 0, false
	}
	return s.quantity(line, what, n.text)
}

// boolean is a JSON boolean, also as a string.
type boolean bool

func (b *boolean) UnmarshalJSON(raw []byte) error {
	switch t := strings.Trim(string(raw), `"`); t {
	case "true":
		*b = true
	case "false", "null", "unchecked":
	default:
		return fmt.Errorf("%s is not true or false", quote(t))
	}
	return nil
}
