// Package calibrate fits a platform's constants from the records of a run: the floors' single operations, rates and
// goodput. Every constant says how many points it is from, how well they agree with it and over which range they were
// sampled; what the records cannot tell is refused, with one line each.
package calibrate

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"gic/harness/attribution/oracle"
	"gic/harness/record"
)

// Point is one measured value: the median over the process runs of one case.
type Point struct {
	Quantity   string
	Conditions oracle.Conditions
	Value      float64 // base unit
	Runs       int
}

// num is a numeric condition, NaN if there is none.
func (p *Point) num(key string) float64 {
	v, err := p.Conditions.Number(key)
	if err != nil {
		return math.NaN()
	}
	return v
}

// Result is the platform and what could not be fitted.
type Result struct {
	Platform *oracle.Platform
	Refused  []string // one line each
	Points   int
}

// Records collects what a fit needs of run files.
type Records struct {
	runs, hosts []string
	seen        map[string]string // nic and device, with the file that had them first
	values      map[string]*series
	order       []string
	clocks      []float64
	imported    bool
}

type series struct {
	point  Point
	values []float64
}

// NewRecords makes an empty collection.
func NewRecords() *Records {
	return &Records{seen: map[string]string{}, values: map[string]*series{}}
}

// Add takes the records of one file. Cases that are not ok are left out; so are those without the NIC's path (nic=none).
func (r *Records) Add(file string) error {
	var header *record.Header
	for rec, err := range record.ReadFile(file) {
		if err != nil {
			return err
		}
		switch rec := rec.(type) {
		case *record.Header:
			header = rec
			r.runs = append(r.runs, rec.ID)
			if !slices.Contains(r.hosts, rec.Host.Hostname) {
				r.hosts = append(r.hosts, rec.Host.Hostname)
			}
		case *record.Case:
			if header == nil {
				return fmt.Errorf("%s is no run file: it does not begin with a header", file)
			}
			if err := r.AddCase(file, rec); err != nil {
				return err
			}
		case *record.Bad:
			if header == nil {
				return fmt.Errorf("%s is no run file: %w", file, rec.Err)
			}
		}
	}
	if header == nil {
		return fmt.Errorf("%s is no run file: it is empty", file)
	}
	return nil
}

// AddCase takes one record.
func (r *Records) AddCase(file string, c *record.Case) error {
	unsafe := c.Status == record.Unsafe // order=none: its issue time is a constant of the control
	if c.Status != record.OK && !unsafe || c.NIC == "none" {
		return nil
	}
	for i := range c.Metrics {
		q, ok := oracle.QueryFor(c, c.Metrics[i].Name)
		if !ok || unsafe && q.Quantity != "issue" {
			continue
		}
		where := "nic=" + c.NIC + " device=" + c.Device
		if p := c.NICConfig["profile"]; p != "" && p != "none" {
			where += " profile=" + p
		}
		if len(r.seen) > 0 && r.seen[where] == "" {
			first := slices.Collect(maps.Keys(r.seen))[0]
			return fmt.Errorf("%s has records with %s, %s with %s: a platform is of one NIC and device", file, where, r.seen[first], first)
		}
		r.seen[where] = file
		r.imported = r.imported || c.Imported != nil
		r.add(q, c.Metrics[i].P50)
	}
	return nil
}

func (r *Records) add(q oracle.Query, value float64) {
	if !(value > 0) {
		return
	}
	if hz, err := q.Conditions.Number("clock"); err == nil {
		r.clocks = append(r.clocks, hz)
	}
	delete(q.Conditions, "clock") // the platform's range of clocks is a validity, not a point's key
	key := q.Quantity + " " + fmt.Sprint(map[string]string(q.Conditions))
	s := r.values[key]
	if s == nil {
		s = &series{point: Point{Quantity: q.Quantity, Conditions: q.Conditions}}
		r.values[key] = s
		r.order = append(r.order, key)
	}
	s.values = append(s.values, value)
}

// Points are the medians.
func (r *Records) Points() []*Point {
	var list []*Point
	for _, key := range r.order {
		s := r.values[key]
		slices.Sort(s.values)
		n := len(s.values)
		p := s.point
		p.Value, p.Runs = (s.values[(n-1)/2]+s.values[n/2])/2, n
		list = append(list, &p)
	}
	return list
}

// fit is one calibration under way.
type fit struct {
	*Result
	points []*Point
	source string
	clock  string
}

// Fit makes a platform of the records. It is an error if nothing at all can be fitted.
func (r *Records) Fit(name string) (*Result, error) {
	if len(r.runs) == 0 && len(r.values) == 0 {
		return nil, errors.New("no records")
	}
	f := &fit{Result: &Result{Platform: &oracle.Platform{Schema: oracle.Schema, Name: name}}, points: r.Points()}
	p := f.Platform
	f.Result.Points = len(f.points)
	f.source = "gic run " + strings.Join(r.runs, ", ")
	p.Source = f.source + " on " + strings.Join(r.hosts, ", ")
	for where := range r.seen {
		for _, kv := range strings.Fields(where) {
			switch k, v, _ := strings.Cut(kv, "="); k {
			case "nic":
				p.NIC = v
			case "device":
				p.Device = v
			}
		}
		p.About = "fitted from records with " + where
	}
	if r.imported {
		p.About += ", some of them imported: not measured by gic"
	}
	if len(r.clocks) > 0 {
		f.clock = span(slices.Min(r.clocks), slices.Max(r.clocks))
		p.Conditions = oracle.Conditions{"clock": ftoa(slices.Max(r.clocks))}
	}
	if q := words(f.points, "queue"); q != "" && !strings.Contains(q, "|") {
		if p.Conditions == nil {
			p.Conditions = oracle.Conditions{}
		}
		p.Conditions["queue"] = q
	}
	f.rates()
	f.workers()
	f.operations()
	f.scopes()
	f.ceilings()
	f.wire(p.NIC)
	if len(p.Constants) == 0 {
		return nil, fmt.Errorf("nothing can be fitted from %d points: %s", len(f.points), strings.Join(f.Refused, "; "))
	}
	order := map[string]int{}
	for i, n := range constantOrder {
		order[n] = i
	}
	slices.SortStableFunc(p.Constants, func(a, b *oracle.Constant) int { return order[a.Name] - order[b.Name] })
	return f.Result, nil
}

// constantOrder is the order in a file.
var constantOrder = []string{"issue", "issue_segment", "cqe", "fetch", "arrive", "completion", "notice", "scoped", "scoped_queue", "post", "ring", "wr",
	"wqe", "doorbell_wqe", "lock", "slot", "warp", "qp_rate", "nic_rate", "link", "header", "mtu"}

func (f *fit) refuse(format string, args ...any) {
	f.Refused = append(f.Refused, fmt.Sprintf(format, args...))
}

// add makes a constant. Its value is in base units; a time is written in ns.
func (f *fit) add(name string, selector map[string]string, value, deviation float64, how, quality string, valid map[string]string) {
	unit, scale := "1", 1.0
	switch name {
	case "qp_rate", "nic_rate":
		unit, scale = "msg/s", 1
	case "link":
		unit, scale = "B/s", 1
	case "header", "mtu":
		unit = "B"
	case "arrive":
	default:
		unit, scale = "ns", 1e-9
	}
	if valid == nil {
		valid = map[string]string{}
	}
	if f.clock != "" && slices.Contains(onSM, name) {
		valid["clock"] = f.clock
	}
	if len(valid) == 0 {
		valid = nil
	}
	k := &oracle.Constant{Name: name, For: selector, Value: round(value / scale), Unit: unit, Source: f.source, How: how, Valid: valid, Fit: quality}
	if deviation > 0 && !math.IsInf(deviation, 0) {
		low, high := round((value-2*deviation)/scale), round((value+2*deviation)/scale)
		k.Low, k.High = &low, &high
	}
	f.Platform.Constants = append(f.Platform.Constants, k)
}

// onSM are the constants that are code on an SM, and so depend on its clock.
var onSM = []string{"issue", "issue_segment", "completion", "notice", "scoped", "scoped_queue", "wqe", "doorbell_wqe", "lock", "slot", "warp", "qp_rate"}

func round(v float64) float64 {
	s, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 8, 64), 64)
	if err != nil {
		return v
	}
	return s
}

func ftoa(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// span is a validity.
func span(low, high float64) string {
	if low == high {
		return ftoa(low)
	}
	return ftoa(low) + ".." + ftoa(high)
}

// sampled is the range of a condition over points.
func sampled(points []*Point, key string) string {
	low, high := math.Inf(1), math.Inf(-1)
	for _, p := range points {
		if v := p.num(key); !math.IsNaN(v) {
			low, high = min(low, v), max(high, v)
		}
	}
	return span(low, high)
}

// words are the values of a textual condition over points, as a validity; "" where none states it.
func words(points []*Point, key string) string {
	var list []string
	for _, p := range points {
		if v := p.Conditions[key]; v != "" && !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	slices.Sort(list)
	return strings.Join(list, "|")
}

// where selects points.
func (f *fit) where(quantity string, conditions ...string) []*Point {
	var list []*Point
next:
	for _, p := range f.points {
		if p.Quantity != quantity {
			continue
		}
		for i := 0; i+1 < len(conditions); i += 2 {
			if p.Conditions[conditions[i]] != conditions[i+1] {
				continue next
			}
		}
		list = append(list, p)
	}
	return list
}
