package record

import (
	"bytes"
	"slices"
	"strconv"
	"unicode/utf8"

	"gic/backends"
	"gic/workloads"
)

// decoder reads cases as our own Writer writes them: compact JSON, each key once, no escapes. Such a line is
// checked and decoded in one pass, with the strings that come again and again held once. Whatever else a line
// is, it is left to a general decoder, which also words all errors. Each goroutine has its own.
type decoder struct {
	lean bool // leave out what only raw samples tell

	b       []byte
	i       int
	bad     bool // the line is not of the plain form; nothing read since counts
	strings map[string]string
	pairs   []string
	samples []float64
}

// The strings that are held once: few and short ones.
const (
	maxIntern  = 48
	maxStrings = 1 << 14
)

func newDecoder(lean bool) *decoder { return &decoder{lean: lean, strings: map[string]string{}} }

// checkedSamples stands for samples that were checked and not kept.
var checkedSamples [MaxRaw]float64

// leave says that the line is not of the plain form.
func (d *decoder) leave() { d.bad = true }

// at takes one byte if it is next.
func (d *decoder) at(c byte) bool {
	if d.i < len(d.b) && d.b[d.i] == c {
		d.i++
		return true
	}
	return false
}

func (d *decoder) need(c byte) {
	if !d.at(c) {
		d.leave()
	}
}

// word takes a literal if it is next.
func (d *decoder) word(w string) bool {
	if len(d.b)-d.i >= len(w) && string(d.b[d.i:d.i+len(w)]) == w {
		d.i += len(w)
		return true
	}
	return false
}

// raw takes a string without escapes and returns what is between its quotes.
func (d *decoder) raw() []byte {
	d.need('"')
	if d.bad {
		return nil
	}
	start, high := d.i, false
	for d.i < len(d.b) {
		c := d.b[d.i]
		if c == '"' {
			text := d.b[start:d.i]
			d.i++
			if high && !utf8.Valid(text) {
				d.leave()
			}
			return text
		}
		if c == '\\' || c < ' ' {
			break
		}
		high = high || c >= utf8.RuneSelf
		d.i++
	}
	d.leave()
	return nil
}

func (d *decoder) text() string {
	b := d.raw()
	if len(b) > maxIntern {
		return string(b)
	}
	if s, ok := d.strings[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(d.strings) < maxStrings {
		d.strings[s] = s
	}
	return s
}

// number takes a JSON number and returns its text.
func (d *decoder) number() []byte {
	start := d.i
	d.at('-')
	digits := func() bool {
		from := d.i
		for d.i < len(d.b) && d.b[d.i] >= '0' && d.b[d.i] <= '9' {
			d.i++
		}
		return d.i > from
	}
	if !d.at('0') && !digits() {
		d.leave()
	}
	if d.at('.') && !digits() {
		d.leave()
	}
	if d.at('e') || d.at('E') {
		if !d.at('+') {
			d.at('-')
		}
		if !digits() {
			d.leave()
		}
	}
	return d.b[start:d.i]
}

func (d *decoder) float() float64 {
	v, err := strconv.ParseFloat(string(d.number()), 64)
	if err != nil {
		d.leave()
	}
	return v
}

func (d *decoder) uint() uint64 {
	v, err := strconv.ParseUint(string(d.number()), 10, 64)
	if err != nil {
		d.leave()
	}
	return v
}

func (d *decoder) int() int {
	v, err := strconv.ParseInt(string(d.number()), 10, strconv.IntSize)
	if err != nil {
		d.leave()
	}
	return int(v)
}

func (d *decoder) bool() bool {
	if d.word("true") {
		return true
	}
	if !d.word("false") {
		d.leave()
	}
	return false
}

// object calls value for each key. Keys come once, by the bit that value returns.
func (d *decoder) object(value func(key []byte) uint32) {
	d.need('{')
	if d.at('}') {
		return
	}
	seen := uint32(0)
	for !d.bad {
		key := d.raw()
		d.need(':')
		if d.bad {
			return
		}
		bit := value(key)
		if bit == 0 || seen&bit != 0 {
			d.leave()
			return
		}
		seen |= bit
		if d.at(',') {
			continue
		}
		d.need('}')
		return
	}
}

// array calls value for each element.
func (d *decoder) array(value func()) {
	d.need('[')
	if d.at(']') {
		return
	}
	for !d.bad {
		value()
		if d.at(',') {
			continue
		}
		d.need(']')
		return
	}
}

// texts takes a map of strings.
func (d *decoder) texts() map[string]string {
	if d.word("null") {
		return nil
	}
	d.pairs = d.pairs[:0]
	d.need('{')
	if !d.at('}') {
		for !d.bad {
			key := d.text()
			d.need(':')
			d.pairs = append(d.pairs, key, d.text())
			if !d.at(',') {
				d.need('}')
				break
			}
		}
	}
	m := make(map[string]string, len(d.pairs)/2)
	for i := 0; i+1 < len(d.pairs); i += 2 {
		m[d.pairs[i]] = d.pairs[i+1]
	}
	return m
}

// anyDepth bounds what the plain form nests.
const anyDepth = 16

func (d *decoder) any(depth int) any {
	if d.bad || d.i >= len(d.b) || depth > anyDepth {
		d.leave()
		return nil
	}
	switch d.b[d.i] {
	case '{':
		return d.anyMap(depth)
	case '[':
		out := []any{}
		d.array(func() { out = append(out, d.any(depth+1)) })
		return out
	case '"':
		return d.text()
	case 't', 'f':
		return d.bool()
	case 'n':
		if !d.word("null") {
			d.leave()
		}
		return nil
	}
	return d.float()
}

func (d *decoder) anyMap(depth int) map[string]any {
	if d.word("null") {
		return nil
	}
	m := map[string]any{}
	d.need('{')
	if d.at('}') {
		return m
	}
	for !d.bad {
		key := d.text()
		d.need(':')
		m[key] = d.any(depth + 1)
		if !d.at(',') {
			d.need('}')
			break
		}
	}
	return m
}

// plain decodes a line of the plain form; false leaves c undefined.
func (d *decoder) plain(line []byte, c *Case) bool {
	d.b, d.i, d.bad = bytes.TrimRight(line, " \t\r"), 0, false
	d.object(func(key []byte) uint32 { return d.caseKey(c, key) })
	ok := !d.bad && d.i == len(d.b)
	d.b = nil
	return ok
}

func (d *decoder) caseKey(c *Case, key []byte) uint32 {
	switch string(key) {
	case "type":
		c.Type = d.text()
		return 1 << 0
	case "id":
		c.ID = string(d.raw())
		return 1 << 1
	case "index":
		c.Index = d.int()
		return 1 << 2
	case "order":
		c.Order = d.int()
		return 1 << 3
	case "workload":
		c.Workload = d.text()
		return 1 << 4
	case "axes":
		c.Axes = d.texts()
		return 1 << 5
	case "backend":
		c.Backend = d.text()
		return 1 << 6
	case "config":
		c.Config = d.texts()
		return 1 << 7
	case "created":
		c.Created = d.texts()
		return 1 << 8
	case "library":
		c.Library = d.libraries()
		return 1 << 9
	case "nic":
		c.NIC = d.text()
		return 1 << 10
	case "nic_config":
		c.NICConfig = d.texts()
		return 1 << 11
	case "device":
		c.Device = d.text()
		return 1 << 12
	case "ranks":
		c.Ranks = d.int()
		return 1 << 13
	case "seed":
		c.Seed = d.uint()
		return 1 << 14
	case "start":
		from := d.i
		d.raw()
		if d.bad || c.Start.UnmarshalJSON(d.b[from:d.i]) != nil {
			d.leave()
		}
		return 1 << 15
	case "duration":
		c.Duration = d.float()
		return 1 << 16
	case "status":
		c.Status = Status(d.text())
		return 1 << 17
	case "reason":
		c.Reason = d.text()
		return 1 << 18
	case "stage":
		c.Stage = d.text()
		return 1 << 19
	case "metrics":
		c.Metrics = d.metrics()
		return 1 << 20
	case "counters":
		c.Counters = d.counters()
		return 1 << 21
	case "messages":
		c.Messages = d.uint()
		return 1 << 22
	case "expected":
		c.Expected = d.counts()
		return 1 << 23
	case "verify":
		c.Verify = d.verification()
		return 1 << 24
	case "facts":
		c.Facts = d.anyMap(0)
		return 1 << 25
	case "host":
		c.Host = d.anyMap(0)
		return 1 << 26
	case "warnings":
		c.Warnings = d.warnings()
		return 1 << 27
	}
	return 0 // also "imported": few records have it
}

func (d *decoder) metrics() []Metric {
	out := make([]Metric, 0, 4)
	d.array(func() {
		out = append(out, Metric{})
		m := &out[len(out)-1]
		d.object(func(key []byte) uint32 { return d.metricKey(m, key) })
	})
	return out
}

func (d *decoder) metricKey(m *Metric, key []byte) uint32 {
	switch string(key) {
	case "name":
		m.Name = d.text()
		return 1 << 0
	case "unit":
		m.Unit = d.text()
		return 1 << 1
	case "class":
		m.Class = workloads.Class(d.text())
		return 1 << 2
	case "headline":
		m.Headline = d.bool()
		return 1 << 3
	case "n":
		m.N = d.int()
		return 1 << 4
	case "samples":
		m.Samples = d.floats()
		return 1 << 5
	case "hdr":
		if b := d.raw(); !d.lean {
			m.HDR = string(b)
		} else if len(b) > 0 {
			m.HDR = "there"
		}
		return 1 << 6
	case "resolution":
		m.Resolution = d.float()
		return 1 << 7
	case "min":
		m.Min = d.float()
		return 1 << 8
	case "p50":
		m.P50 = d.float()
		return 1 << 9
	case "p90":
		m.P90 = d.float()
		return 1 << 10
	case "p99":
		m.P99 = d.float()
		return 1 << 11
	case "max":
		m.Max = d.float()
		return 1 << 12
	case "mean":
		m.Mean = d.float()
		return 1 << 13
	}
	return 0
}

// floats takes samples. A lean decoder only sees that they are what a measurement gives: not negative, finite.
func (d *decoder) floats() []float64 {
	d.samples = d.samples[:0]
	n := 0
	d.array(func() {
		if !d.lean {
			d.samples = append(d.samples, d.float())
			return
		}
		n++
		t := d.number()
		if len(t) == 0 || len(t) > 40 || n > MaxRaw || t[0] == '-' || large(t) {
			d.leave() // the value itself must be looked at
		}
	})
	if d.lean && !d.bad {
		return checkedSamples[:n:n]
	}
	return append(make([]float64, 0, len(d.samples)), d.samples...)
}

// large says whether a number may be: its exponent has more than two digits and no minus.
func large(t []byte) bool {
	for i := len(t) - 1; i >= 0; i-- {
		if t[i]|0x20 == 'e' {
			return t[i+1] != '-' && len(t)-i > 3
		}
	}
	return false
}

func (d *decoder) counters() []backends.Counter {
	out := make([]backends.Counter, 0, 8)
	d.array(func() {
		out = append(out, backends.Counter{})
		c := &out[len(out)-1]
		d.object(func(key []byte) uint32 {
			switch string(key) {
			case "name":
				c.Name = d.text()
				return 1
			case "unit":
				c.Unit = d.text()
				return 2
			case "value":
				c.Value = d.uint()
				return 4
			case "exact":
				c.Exact = d.bool()
				return 8
			}
			return 0
		})
	})
	return out
}

func (d *decoder) counts() map[string]uint64 {
	if d.word("null") {
		return nil
	}
	m := map[string]uint64{}
	d.need('{')
	if d.at('}') {
		return m
	}
	for !d.bad {
		key := d.text()
		d.need(':')
		m[key] = d.uint()
		if !d.at(',') {
			d.need('}')
			break
		}
	}
	return m
}

func (d *decoder) libraries() []Library {
	out := []Library{}
	d.array(func() {
		out = append(out, Library{})
		l := &out[len(out)-1]
		d.object(func(key []byte) uint32 {
			for i, f := range [...]struct {
				name string
				to   *string
			}{{"name", &l.Name}, {"version", &l.Version}, {"path", &l.Path}, {"sha256", &l.SHA256}} {
				if string(key) == f.name {
					*f.to = d.text()
					return 1 << i
				}
			}
			return 0
		})
	})
	return out
}

func (d *decoder) verification() *workloads.Verification {
	v := &workloads.Verification{}
	d.object(func(key []byte) uint32 {
		switch string(key) {
		case "checked":
			v.Checked = d.uint()
			return 1
		case "wrong":
			v.Wrong = d.uint()
			return 2
		case "first":
			v.First = d.text()
			return 4
		}
		return 0
	})
	return v
}

func (d *decoder) warnings() []workloads.Warning {
	out := []workloads.Warning{}
	d.array(func() {
		out = append(out, workloads.Warning{})
		w := &out[len(out)-1]
		d.object(func(key []byte) uint32 {
			switch string(key) {
			case "code":
				w.Code = d.text()
				return 1
			case "text":
				w.Text = d.text()
				return 2
			}
			return 0
		})
	})
	return out
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
