package record

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// scanner takes JSON values one after the other from a line. What it does not understand sets bad, and nothing
// read since counts. It takes nothing that encoding/json refuses, and reads the rest as that does.
type scanner struct {
	b   []byte
	i   int
	bad bool

	strings map[string]string // those that come again and again are held once
	escaped []byte            // the last string with escapes, without them
}

// The strings that are held once: few and short ones.
const (
	maxIntern  = 48
	maxStrings = 1 << 14
)

func (s *scanner) start(line []byte) { s.b, s.i, s.bad = bytes.TrimRight(line, " \t\r"), 0, false }

// leave says that the line is not understood.
func (s *scanner) leave() { s.bad = true }

// at takes one byte if it is next.
func (s *scanner) at(c byte) bool {
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

func (s *scanner) need(c byte) {
	if !s.at(c) {
		s.leave()
	}
}

// has takes a literal if it is next.
func (s *scanner) has(w string) bool {
	if len(s.b)-s.i >= len(w) && string(s.b[s.i:s.i+len(w)]) == w {
		s.i += len(w)
		return true
	}
	return false
}

func (s *scanner) must(w string) {
	if !s.has(w) {
		s.leave()
	}
}

const (
	ones = 0x0101010101010101
	tops = 0x8080808080808080
)

// special marks, by their top bits, the bytes of w that are a quote, a backslash, a control character or not
// ASCII. A byte above such a one may be marked in error.
func special(w uint64) uint64 {
	quote, slash := w^(ones*'"'), w^(ones*'\\')
	return ((quote-ones)&^quote | (slash-ones)&^slash | (w - ones*' ') | w) & tops
}

// raw takes a string and returns its text, good until the next call. plain: it stands in the line as it is.
func (s *scanner) raw() (text []byte, plain bool) {
	s.need('"')
	if s.bad {
		return nil, false
	}
	start, i, high := s.i, s.i, false
	for {
		for i+8 <= len(s.b) && special(binary.LittleEndian.Uint64(s.b[i:])) == 0 {
			i += 8
		}
		// Up to the byte that stopped the loop, and past it unless it ends the string.
		for ; i < len(s.b); i++ {
			c := s.b[i]
			if c == '"' {
				text, s.i = s.b[start:i], i+1
				if high && !utf8.Valid(text) {
					s.leave()
				}
				return text, true
			}
			if c == '\\' {
				return s.unescape(start - 1), false
			}
			if c < ' ' {
				s.leave()
				return nil, false
			}
			if c >= utf8.RuneSelf {
				high = true
				i++
				break
			}
		}
		if i >= len(s.b) {
			s.leave()
			return nil, false
		}
	}
}

// unescape takes the string whose opening quote is at start.
func (s *scanner) unescape(start int) []byte {
	for i := start + 1; i < len(s.b); i++ {
		switch s.b[i] {
		case '\\':
			i++
		case '"':
			text, err := jsontext.AppendUnquote(s.escaped[:0], s.b[start:i+1])
			if err != nil {
				s.leave()
				return nil
			}
			s.escaped, s.i = text, i+1
			return text
		}
	}
	s.leave()
	return nil
}

func (s *scanner) text() string {
	b, _ := s.raw()
	return s.hold(b)
}

// hold makes a string of b, if possible one that is there already.
func (s *scanner) hold(b []byte) string {
	if len(b) > maxIntern {
		return string(b)
	}
	if t, ok := s.strings[string(b)]; ok {
		return t
	}
	t := string(b)
	if len(s.strings) < maxStrings {
		s.strings[t] = t
	}
	return t
}

// like is text where the string is probably the one of the record before, which it replaces.
func (s *scanner) like(before *string) string {
	if n := len(*before); n > 0 && len(s.b)-s.i >= n+2 && s.b[s.i] == '"' && s.b[s.i+n+1] == '"' &&
		string(s.b[s.i+1:s.i+n+1]) == *before {
		s.i += n + 2
		return *before
	}
	b, plain := s.raw()
	t := s.hold(b)
	if *before = ""; plain {
		*before = t // only such a one has no quote inside
	}
	return t
}

// eightDigits says whether all bytes of w are digits.
func eightDigits(w uint64) bool {
	const high, low = ones * 0xf0, ones * '0'
	return w&high == low && (w+ones*6)&high == low
}

// eight is the value of eight digits, the first in the lowest byte.
func eight(w uint64) uint64 {
	w = (w & (ones * 0x0f)) * (10<<8 | 1) >> 8
	w = (w & 0x00ff00ff00ff00ff) * (100<<16 | 1) >> 16
	return (w & 0x0000ffff0000ffff) * (10000<<32 | 1) >> 32
}

// digits takes at least one digit, and returns v with them behind it, as far as that fits.
func (s *scanner) digits(v uint64) uint64 {
	b, i := s.b, s.i
	for i+8 <= len(b) {
		w := binary.LittleEndian.Uint64(b[i:])
		if !eightDigits(w) {
			break
		}
		v = v*1e8 + eight(w)
		i += 8
	}
	for ; i < len(b) && b[i]-'0' <= 9; i++ {
		v = 10*v + uint64(b[i]-'0')
	}
	if i == s.i {
		s.leave()
	}
	s.i = i
	return v
}

// decimal is a JSON number in its parts.
type decimal struct {
	text     []byte
	digits   uint64 // all of them, without the point, if they are at most maxDigits
	fraction int    // how many of them are behind the point
	exponent []byte // with its sign
}

// maxDigits is how many digits fit a uint64, whatever they are.
const maxDigits = 19

// number takes a JSON number.
func (s *scanner) number() (n decimal) {
	start := s.i
	s.at('-')
	if !s.at('0') {
		n.digits = s.digits(0)
	}
	if s.at('.') {
		from := s.i
		n.digits = s.digits(n.digits)
		n.fraction = s.i - from
	}
	if s.at('e') || s.at('E') {
		from := s.i
		if !s.at('+') {
			s.at('-')
		}
		s.digits(0)
		n.exponent = s.b[from:s.i]
	}
	n.text = s.b[start:s.i]
	return n
}

func (s *scanner) float() float64 { return s.value(s.number()) }

func (s *scanner) value(n decimal) float64 {
	if v, ok := n.short(); ok {
		return v
	}
	v, err := strconv.ParseFloat(string(n.text), 64)
	if err != nil {
		s.leave()
	}
	return v
}

var powersOfTen = [...]float64{
	1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
}

// short is the value of a number whose digits and power of ten are each a float64 without rounding, so that one
// division or product of the two rounds as it must.
func (n *decimal) short() (float64, bool) {
	if len(n.text) > maxDigits || len(n.text) == 0 || n.text[0] == '-' || n.digits > 1<<53 {
		return 0, false
	}
	power := -n.fraction
	if n.exponent != nil {
		e, err := strconv.Atoi(string(n.exponent))
		if err != nil {
			return 0, false
		}
		power += e
	}
	switch {
	case power < -22 || power > 22:
		return 0, false
	case power < 0:
		return float64(n.digits) / powersOfTen[-power], true
	}
	return float64(n.digits) * powersOfTen[power], true
}

// large says whether a number may be too large for a float64: it is very long, or its exponent has more than two
// digits and no minus.
func (n *decimal) large() bool {
	return len(n.text) > 40 || len(n.exponent) > 2 && n.exponent[0] != '-'
}

func (s *scanner) uint() uint64 {
	v, from := uint64(0), s.i
	for s.i < len(s.b) && s.b[s.i]-'0' <= 9 {
		v = 10*v + uint64(s.b[s.i]-'0')
		s.i++
	}
	n := s.i - from
	if n == 0 || n > 1 && s.b[from] == '0' {
		s.leave()
	}
	if n > 19 { // may not fit
		u, err := strconv.ParseUint(string(s.b[from:s.i]), 10, 64)
		if err != nil {
			s.leave()
		}
		return u
	}
	return v
}

func (s *scanner) int() int {
	minus := s.at('-')
	v := s.uint()
	if v > math.MaxInt {
		s.leave() // also the smallest int, which nothing is
	}
	if minus {
		return -int(v)
	}
	return int(v)
}

func (s *scanner) bool() bool {
	if s.has("true") {
		return true
	}
	s.must("false")
	return false
}

// array calls value for each element.
func (s *scanner) array(value func()) {
	s.need('[')
	if s.at(']') {
		return
	}
	for !s.bad {
		value()
		if s.at(',') {
			continue
		}
		s.need(']')
		return
	}
}

// anyDepth bounds the nesting of what is read.
const anyDepth = 16

func (s *scanner) any(depth int) any {
	if s.bad || s.i >= len(s.b) || depth > anyDepth {
		s.leave()
		return nil
	}
	switch s.b[s.i] {
	case '{':
		return s.anyMap(depth, nil)
	case '[':
		out := []any{}
		s.array(func() { out = append(out, s.any(depth+1)) })
		return out
	case '"':
		return s.text()
	case 't', 'f':
		return s.bool()
	case 'n':
		s.must("null")
		return nil
	}
	return s.float()
}

// anyMap takes an object. Keys that are not wanted are left out of it; nil wants all.
func (s *scanner) anyMap(depth int, wanted func(key string) bool) map[string]any {
	if s.has("null") {
		return nil
	}
	m := map[string]any{}
	s.need('{')
	if s.at('}') {
		return m
	}
	for !s.bad {
		key := s.text()
		s.need(':')
		if wanted == nil || wanted(key) {
			m[key] = s.any(depth + 1)
		} else {
			s.pass(depth + 1)
		}
		if !s.at(',') {
			s.need('}')
			break
		}
	}
	return m
}

// pass takes what any takes, and forgets it.
func (s *scanner) pass(depth int) {
	if s.i < len(s.b) && depth <= anyDepth {
		switch c := s.b[s.i]; {
		case c == '"':
			s.raw()
			return
		case c == '[':
			s.array(func() { s.pass(depth + 1) })
			return
		case c-'0' <= 9:
			if n := s.number(); !n.large() {
				return
			}
			s.leave()
			return
		}
	}
	s.any(depth)
}
