package record

import (
	"bytes"

	"gic/backends"
	"gic/workloads"
)

// decoder reads cases as our own Writer writes them: compact JSON, the keys in their order. Such a line is checked
// and decoded in one pass. Whatever else a line is, it is left to a general decoder, which also words all errors.
// Each goroutine has its own.
type decoder struct {
	scanner
	// lean leaves out what only raw samples tell, puts a case where the last one of its place was, and gives
	// equal parts of cases the same maps.
	lean *summary

	parts   *parts
	pairs   []string
	samples []float64
	// What the metrics and counters of the record before were called, by their place: mostly it is so again.
	metricNames  []metricNames
	counterNames []counterNames

	texted known[map[string]string]
	others known[map[string]any]
	counts known[map[string]uint64]
	loaded known[[]Library]
}

// parts are where a lean decoder puts what cases point to: all of a batch together, used again for another.
type parts struct {
	cases    []Case
	metrics  []Metric
	counters []backends.Counter
	warnings []workloads.Warning
	verified []workloads.Verification
}

// clear forgets what is there. Cases that grew out of a slice keep their part of the old one.
func (p *parts) clear() {
	p.cases, p.metrics, p.counters = p.cases[:0], p.metrics[:0], p.counters[:0]
	p.warnings, p.verified = p.warnings[:0], p.verified[:0]
}

// place gives a zero value in a slice of parts.
func place[T any](list *[]T) *T {
	var zero T
	*list = append(*list, zero)
	return &(*list)[len(*list)-1]
}

// newCase is a zero case.
func (d *decoder) newCase() *Case {
	if d.lean != nil {
		return place(&d.parts.cases)
	}
	return new(Case)
}

type (
	metricNames  struct{ name, unit, class string }
	counterNames struct{ name, unit string }
)

func newDecoder(lean *summary) *decoder {
	d := &decoder{lean: lean, parts: &parts{}}
	d.strings = map[string]string{}
	d.texted, d.others = known[map[string]string]{}, known[map[string]any]{}
	d.counts, d.loaded = known[map[string]uint64]{}, known[[]Library]{}
	return d
}

// known are parts of records by their JSON text, which come again and again.
type known[T any] map[string]T

// What is known is bounded in number, and in the length of each.
const (
	maxKnown     = 1 << 14
	maxKnownText = 4 << 10
)

// recall takes the value that starts here and ends at the first byte end, if it is known; text is it, to be
// remembered once it was read. JSON values say themselves where they end, so that a text that was read as a whole
// value is one wherever it stands.
func recall[T any](d *decoder, k known[T], end byte) (v T, text []byte, ok bool) {
	if d.lean == nil {
		return v, nil, false
	}
	n := bytes.IndexByte(d.b[d.i:min(len(d.b), d.i+maxKnownText)], end)
	if n < 0 {
		return v, nil, false
	}
	text = d.b[d.i : d.i+n+1]
	if v, ok = k[string(text)]; ok {
		d.i += len(text)
	}
	return v, text, ok
}

// remember keeps v if it was read from exactly the text, which began at from.
func remember[T any](d *decoder, k known[T], from int, text []byte, v T) {
	if text != nil && !d.bad && d.i-from == len(text) && len(k) < maxKnown {
		k[string(text)] = v
	}
}

// checkedSamples stands for samples that were checked and not kept.
var checkedSamples [MaxRaw]float64

// plain decodes a line of the plain form; false leaves c undefined. The keys are those of Case, in its order.
func (d *decoder) plain(line []byte, c *Case) bool {
	d.start(line)
	d.must(`{"type":"case","id":`)
	c.Type = "case"
	id, _ := d.raw()
	c.ID = string(id)
	d.must(`,"index":`)
	c.Index = d.int()
	d.must(`,"order":`)
	c.Order = d.int()
	d.identity(c)
	d.must(`,"start":`)
	from := d.i
	if _, plain := d.raw(); !plain || d.bad || c.Start.UnmarshalJSON(d.b[from:d.i]) != nil {
		d.leave()
		return false
	}
	d.must(`,"duration":`)
	c.Duration = d.float()
	d.must(`,"status":`)
	c.Status = Status(d.text())
	if d.has(`,"reason":`) {
		c.Reason = d.text()
	}
	if d.has(`,"stage":`) {
		c.Stage = d.text()
	}
	if d.bad {
		return false
	}
	d.outcome(c)
	if d.has(`,"imported":`) {
		c.Imported = d.origin()
	}
	d.need('}')
	ok := !d.bad && d.i == len(d.b)
	d.b = nil
	return ok
}

// identity takes what says which case it is.
func (d *decoder) identity(c *Case) {
	d.must(`,"workload":`)
	c.Workload = d.text()
	d.must(`,"axes":`)
	c.Axes = d.texts()
	d.must(`,"backend":`)
	c.Backend = d.text()
	d.must(`,"config":`)
	c.Config = d.texts()
	if d.has(`,"created":`) {
		c.Created = d.texts()
	}
	if d.has(`,"library":`) {
		c.Library = d.libraries()
	}
	d.must(`,"nic":`)
	c.NIC = d.text()
	if d.has(`,"nic_config":`) {
		c.NICConfig = d.texts()
	}
	d.must(`,"device":`)
	c.Device = d.text()
	d.must(`,"ranks":`)
	c.Ranks = d.int()
	d.must(`,"seed":`)
	c.Seed = d.uint()
}

// outcome takes what was measured and how.
func (d *decoder) outcome(c *Case) {
	if d.has(`,"metrics":`) {
		c.Metrics = d.metrics()
	}
	if d.has(`,"counters":`) {
		c.Counters = d.counters()
	}
	if d.has(`,"messages":`) {
		c.Messages = d.uint()
	}
	if d.has(`,"expected":`) {
		c.Expected = d.numbers()
	}
	if d.has(`,"verify":`) {
		c.Verify = d.verification()
	}
	if d.has(`,"facts":`) {
		c.Facts = d.values()
	}
	if d.has(`,"host":`) {
		c.Host = d.values()
	}
	if d.has(`,"warnings":`) {
		c.Warnings = d.warnings()
	}
}

// texts takes a map of strings.
func (d *decoder) texts() map[string]string {
	if d.has("null") {
		return nil
	}
	m, text, ok := recall(d, d.texted, '}')
	if ok {
		return m
	}
	from := d.i
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
	m = make(map[string]string, len(d.pairs)/2)
	for i := 0; i+1 < len(d.pairs); i += 2 {
		m[d.pairs[i]] = d.pairs[i+1]
	}
	remember(d, d.texted, from, text, m)
	return m
}

// values takes a map of anything.
func (d *decoder) values() map[string]any {
	m, text, ok := recall(d, d.others, '}')
	if ok {
		return m
	}
	from := d.i
	var wanted func(string) bool
	if d.lean != nil {
		wanted = d.lean.wanted
	}
	m = d.anyMap(0, wanted)
	remember(d, d.others, from, text, m)
	return m
}

// numbers takes a map of counts.
func (d *decoder) numbers() map[string]uint64 {
	if d.has("null") {
		return nil
	}
	m, text, ok := recall(d, d.counts, '}')
	if ok {
		return m
	}
	from := d.i
	m = map[string]uint64{}
	d.need('{')
	if !d.at('}') {
		for !d.bad {
			key := d.text()
			d.need(':')
			m[key] = d.uint()
			if !d.at(',') {
				d.need('}')
				break
			}
		}
	}
	remember(d, d.counts, from, text, m)
	return m
}

func (d *decoder) libraries() []Library {
	out, text, ok := recall(d, d.loaded, ']')
	if ok {
		return out
	}
	from := d.i
	out = []Library{}
	d.array(func() {
		var l Library
		d.must(`{"name":`)
		l.Name = d.text()
		for _, f := range [...]struct {
			key string
			to  *string
		}{{`,"version":`, &l.Version}, {`,"path":`, &l.Path}, {`,"sha256":`, &l.SHA256}} {
			if d.has(f.key) {
				*f.to = d.text()
			}
		}
		d.need('}')
		out = append(out, l)
	})
	remember(d, d.loaded, from, text, out)
	return out
}

// list takes an array of records that one turns up in, with its place in the array.
func list[T any](d *decoder, shared *[]T, one func(v *T, i int)) []T {
	var own []T
	to := &own
	if d.lean != nil {
		to = shared
	}
	start := len(*to)
	d.array(func() {
		v := place(to)
		one(v, len(*to)-1-start)
	})
	if *to == nil {
		*to = []T{}
	}
	return (*to)[start:len(*to):len(*to)]
}

// named gives the names that stood at place i before.
func named[T any](names *[]T, i int) *T {
	for len(*names) <= i {
		place(names)
	}
	return &(*names)[i]
}

func (d *decoder) metrics() []Metric {
	return list(d, &d.parts.metrics, func(m *Metric, i int) { d.metric(m, named(&d.metricNames, i)) })
}

func (d *decoder) metric(m *Metric, names *metricNames) {
	d.must(`{"name":`)
	m.Name = d.like(&names.name)
	d.must(`,"unit":`)
	m.Unit = d.like(&names.unit)
	d.must(`,"class":`)
	m.Class = workloads.Class(d.like(&names.class))
	if d.has(`,"headline":`) {
		m.Headline = d.bool()
	}
	d.must(`,"n":`)
	m.N = d.int()
	if d.has(`,"samples":`) {
		m.Samples = d.floats()
	}
	if d.has(`,"hdr":`) {
		if b, _ := d.raw(); d.lean == nil {
			m.HDR = string(b)
		} else if len(b) > 0 {
			m.HDR = "there"
		}
	}
	if d.has(`,"resolution":`) {
		m.Resolution = d.float()
	}
	// Of one sample, all are the same text.
	var before decimal
	last := 0.0
	next := func(key string) float64 {
		d.must(key)
		if n := d.i + len(before.text); before.text != nil && n < len(d.b) && (d.b[n] == ',' || d.b[n] == '}') &&
			bytes.Equal(d.b[d.i:n], before.text) {
			d.i = n
			return last
		}
		before = d.number()
		last = d.value(before)
		return last
	}
	m.Min, m.P50, m.P90 = next(`,"min":`), next(`,"p50":`), next(`,"p90":`)
	m.P99, m.Max, m.Mean = next(`,"p99":`), next(`,"max":`), next(`,"mean":`)
	d.need('}')
}

// floats takes samples. A lean decoder only sees that they are what a measurement gives: not negative, finite.
func (d *decoder) floats() []float64 {
	if d.lean == nil {
		d.samples = d.samples[:0]
		d.array(func() { d.samples = append(d.samples, d.float()) })
		return append(make([]float64, 0, len(d.samples)), d.samples...)
	}
	n := 0
	d.need('[')
	if d.at(']') {
		return checkedSamples[:0:0]
	}
	for !d.bad {
		v := d.number()
		if n++; d.bad || n > MaxRaw || v.text[0] == '-' || v.large() {
			break // the value itself must be looked at
		}
		if !d.at(',') {
			d.need(']')
			return checkedSamples[:n:n]
		}
	}
	d.leave()
	return nil
}

func (d *decoder) counters() []backends.Counter {
	return list(d, &d.parts.counters, func(c *backends.Counter, i int) {
		before := named(&d.counterNames, i)
		d.must(`{"name":`)
		c.Name = d.like(&before.name)
		d.must(`,"unit":`)
		c.Unit = d.like(&before.unit)
		d.must(`,"value":`)
		c.Value = d.uint()
		d.must(`,"exact":`)
		c.Exact = d.bool()
		d.need('}')
	})
}

func (d *decoder) verification() *workloads.Verification {
	v := &workloads.Verification{}
	if d.lean != nil {
		v = place(&d.parts.verified)
	}
	d.must(`{"checked":`)
	v.Checked = d.uint()
	d.must(`,"wrong":`)
	v.Wrong = d.uint()
	if d.has(`,"first":`) {
		v.First = d.text()
	}
	d.need('}')
	return v
}

func (d *decoder) origin() *Import {
	m := &Import{}
	d.must(`{"format":`)
	m.Format = d.text()
	d.must(`,"file":`)
	m.File = d.text()
	d.must(`,"sha256":`)
	m.SHA256 = d.text()
	if d.has(`,"line":`) {
		m.Line = d.int()
	}
	d.need('}')
	return m
}

func (d *decoder) warnings() []workloads.Warning {
	return list(d, &d.parts.warnings, func(w *workloads.Warning, _ int) {
		d.must(`{"code":`)
		w.Code = d.text()
		d.must(`,"text":`)
		w.Text = d.text()
		d.need('}')
	})
}
