// Package oracle predicts what the floors (minigda, miniproxy) and what is known of the libraries should take on a
// platform: issue, put+completion, round trip, message rate, goodput, and how they change with doorbell batch,
// ordering, queues, completion scope, SM clock, proxy state and active connections.
//
// A Platform is a file of constants. Each constant has a source (a table of a paper, a run of gic), what it is for
// (the selector) and where it is valid. A Prediction names its formula and every constant in it; outside their
// validity there is no prediction, but the reason. Nothing is extrapolated.
//
// Package check holds the predictions against the rows of a paper, package calibrate fits a platform file from a
// run, package sim goes beyond one machine. Values are in base units (s, B, msg/s, B/s), as in records.
package oracle

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// The quantities that Predict knows, with their base units.
var quantities = []struct {
	name, unit string
	model      func(*calc)
}{
	{"issue", "s", modelIssue},
	{"put_completion", "s", modelPutCompletion},
	{"rtt", "s", modelRTT},
	{"message_rate", "msg/s", modelRate},
	{"goodput", "B/s", modelGoodput},
	{"goodput_peak", "B/s", modelPeak},
	{"knee_bytes", "B", modelKnee},
	{"rate_kept", "1", modelRelativeRate},
	{"break_even_bytes", "B", modelBreakEven},
}

// Quantities lists what Predict knows.
func Quantities() []string {
	var names []string
	for _, q := range quantities {
		names = append(names, q.name)
	}
	return names
}

// Query asks for one quantity under conditions.
type Query struct {
	Quantity   string
	Conditions Conditions
}

// Prediction is the answer to a query: a value and how it came about, or the reason why there is none.
type Prediction struct {
	Platform   string     `json:"platform"`
	Quantity   string     `json:"quantity"`
	Conditions Conditions `json:"conditions"`      // of the query, with defaults filled in
	Value      float64    `json:"value,omitempty"` // in Unit; 0 if None
	Unit       string     `json:"unit"`            // base unit
	// Low and High are where the value lies if its constants lie in their intervals, taken as independent; nil where
	// no constant has one.
	Low     *float64 `json:"low,omitempty"`
	High    *float64 `json:"high,omitempty"`
	Formula string   `json:"formula,omitempty"` // in names of constants and conditions
	Numbers string   `json:"numbers,omitempty"` // the formula with the constants' values
	Used    []*Use   `json:"constants,omitempty"`
	None    string   `json:"no_prediction,omitempty"` // why there is no value
}

// Use is a constant in a prediction.
type Use struct {
	*Constant
	As string `json:"as"` // its name in the formula
}

// OK says that there is a value.
func (p *Prediction) OK() bool { return p.None == "" }

// Predict answers a query from the constants of a platform.
func (p *Platform) Predict(q Query) *Prediction {
	r := p.predict(q)
	if r.OK() {
		r.spread(p, q)
	}
	return r
}

// spread puts the intervals of the constants into the prediction: each is moved to its ends by itself, and the halves of
// what that changes add up as squares.
func (r *Prediction) spread(p *Platform, q Query) {
	sum := 0.0
	for _, u := range r.Used {
		if u.Low == nil || u.High == nil {
			continue
		}
		low, high := p.with(u.Constant, *u.Low).predict(q), p.with(u.Constant, *u.High).predict(q)
		if !low.OK() || !high.OK() {
			return // the interval reaches where the model ends: nothing is said
		}
		sum += (high.Value - low.Value) * (high.Value - low.Value) / 4
	}
	if sum > 0 {
		half := math.Sqrt(sum)
		low, high := r.Value-half, r.Value+half
		r.Low, r.High = &low, &high
	}
}

// with is the platform with another value of one constant.
func (p *Platform) with(k *Constant, value float64) *Platform {
	moved := *k
	moved.Value, moved.Low, moved.High = value, nil, nil
	other := *p
	other.Constants = slices.Clone(p.Constants)
	other.Constants[slices.Index(other.Constants, k)] = &moved
	return &other
}

func (p *Platform) predict(q Query) *Prediction {
	r := &Prediction{Platform: p.Name, Quantity: q.Quantity, Conditions: q.Conditions}
	for _, m := range quantities {
		if m.name != q.Quantity {
			continue
		}
		r.Unit = m.unit
		c := &calc{platform: p, out: r, q: q.Conditions.complete(p, q.Quantity)}
		r.Conditions = c.q
		if op := c.q["op"]; op != "" && op != "put" {
			c.none("op=%s has no model, only put has", op)
		} else {
			m.model(c)
		}
		if c.reason != "" {
			r.None, r.Value, r.Formula, r.Used = c.reason, 0, "", nil
		} else {
			r.Numbers = c.numbers()
		}
		return r
	}
	r.None = fmt.Sprintf("the oracle has no model of %s", q.Quantity)
	return r
}

// Lookup gives constants by name, in base units, for a model that is not Predict's. reason says why one of them has
// no value under the conditions.
func (p *Platform) Lookup(q Conditions, names ...string) (values map[string]float64, used []*Use, reason string) {
	out := &Prediction{}
	c := &calc{platform: p, out: out, q: q.complete(p, "")}
	values = map[string]float64{}
	for _, name := range names {
		values[name] = c.use(name)
	}
	return values, out.Used, c.reason
}

// Has says whether there is a constant of that name for the conditions, valid or not.
func (p *Platform) Has(q Conditions, name string) bool { return p.find(name, q.complete(p, "")) != nil }

// calc is one evaluation: it looks up constants, remembers them, and stops at the first reason against a
// prediction.
type calc struct {
	platform *Platform
	q        Conditions
	out      *Prediction
	reason   string
}

// none gives up, unless that has happened already.
func (c *calc) none(format string, args ...any) {
	if c.reason == "" {
		c.reason = fmt.Sprintf(format, args...)
	}
}

func (c *calc) dead() bool { return c.reason != "" }

// has says whether the platform has a constant of that name for the conditions.
func (c *calc) has(name string, with ...string) bool {
	return c.platform.find(name, c.q.With(with...)) != nil
}

// use returns the value of a constant, 1 after a reason against the prediction. Pairs in with ("cpu", "warm")
// replace conditions of the query.
func (c *calc) use(name string, with ...string) float64 {
	if c.dead() {
		return 1
	}
	q := c.q.With(with...)
	k := c.platform.find(name, q)
	if k == nil {
		c.none("%s has no constant %s%s%s", c.platform.Name, name, c.platform.wanted(name, q), c.platform.why(name, q))
		return 1
	}
	if why := k.invalid(q); why != "" {
		c.none("%s: %s", k.ID(), why)
		return 1
	}
	as := name
	for i := 0; i+1 < len(with); i += 2 {
		if _, selects := k.For[with[i]]; selects {
			as += "[" + with[i+1] + "]"
		}
	}
	if !slices.ContainsFunc(c.out.Used, func(u *Use) bool { return u.Constant == k && u.As == as }) {
		c.out.Used = append(c.out.Used, &Use{k, as})
	}
	return k.base()
}

// num is a numeric condition that must be there.
func (c *calc) num(key string) float64 {
	if c.dead() {
		return 1
	}
	v, err := c.q.Number(key)
	if err != nil {
		c.none("%v", err)
		return 1
	}
	return v
}

// result ends an evaluation. Names in the formula are those of constants as use returned them and of conditions.
func (c *calc) result(v float64, formula string) {
	if c.dead() {
		return
	}
	if !(v > 0) || math.IsInf(v, 0) {
		c.none("the constants give %v: %s", v, formula)
		return
	}
	c.out.Value, c.out.Formula = v, formula
}

// numbers puts the values of constants and conditions into the formula.
func (c *calc) numbers() string {
	values := map[string]string{}
	for k, v := range c.q {
		values[k] = v
	}
	for _, u := range c.out.Used {
		values[u.As] = u.Text()
	}
	var b strings.Builder
	s := c.out.Formula
	for s != "" {
		n := 0
		for n < len(s) && isNameByte(s[n]) {
			n++
		}
		if n < len(s) && s[n] == '[' && n > 0 {
			if end := strings.IndexByte(s[n:], ']'); end > 0 {
				n += end + 1
			}
		}
		if n == 0 {
			b.WriteByte(s[0])
			s = s[1:]
			continue
		}
		if v, ok := values[s[:n]]; ok {
			b.WriteString(v)
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

func isNameByte(b byte) bool {
	return b == '_' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '.'
}

// Explain lists how a prediction came about, one line each.
func (p *Prediction) Explain() []string {
	if !p.OK() {
		return []string{"no prediction: " + p.None}
	}
	lines := []string{"= " + p.Formula}
	if p.Numbers != p.Formula {
		lines = append(lines, "= "+p.Numbers)
	}
	if p.Low != nil {
		lines = append(lines, fmt.Sprintf("between %s and %s by the intervals of the constants", Human(*p.Low, p.Unit), Human(*p.High, p.Unit)))
	}
	for _, u := range p.Used {
		line := fmt.Sprintf("%s = %s", u.ID(), u.Text())
		if u.Source != "" {
			line += "; " + u.Source
		}
		if u.How != "" {
			line += ": " + u.How
		}
		if len(u.Valid) > 0 {
			line += "; valid for " + pairs(u.Valid)
		}
		lines = append(lines, line)
	}
	return lines
}

func pairs(m map[string]string) string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, k+"="+m[k])
	}
	return strings.Join(list, " ")
}
