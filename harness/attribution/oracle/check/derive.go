package check

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gic/harness/attribution/oracle"
)

// find returns the row that a pattern "platform|table|backend key=value ...|quantity" is of.
func (d *deriver) find(pattern string) (*Row, error) {
	part := strings.Split(pattern, "|")
	if len(part) != 4 {
		return nil, fmt.Errorf("pattern %q has not four parts", pattern)
	}
	words := strings.Fields(part[2])
	want := oracle.Conditions{}
	for i, w := range words {
		if k, v, ok := strings.Cut(w, "="); ok {
			want[k] = v
		} else if i == 0 {
			want["backend"] = w
		}
	}
	var found *Row
next:
	for _, r := range d.list {
		if r.Platform != part[0] || !strings.HasPrefix(r.Where, part[1]) || r.Quantity != part[3] {
			continue
		}
		for k, v := range want {
			if r.Conditions[k] != v {
				continue next
			}
		}
		if found != nil {
			return nil, fmt.Errorf("pattern %q is of %q and %q", pattern, found.ID, r.ID)
		}
		found = r
	}
	if found == nil {
		return nil, fmt.Errorf("there is no row %q", pattern)
	}
	return found, nil
}

// canonical is the identifier of a row's first print.
func canonical(r *Row) string {
	if r.Same != "" {
		return r.Same
	}
	return r.ID
}

// deriver makes the constants of a platform from rows. Every value comes through the identifiers that the
// constant then lists, so that nothing of a row gets in unseen.
type deriver struct {
	list []*Row
	p    *oracle.Platform
	errs []string
}

// valid is short for the conditions of validity.
type valid = map[string]string

// sel is short for a selector.
type sel = map[string]string

// from adds a constant that f makes of the values (base units) of the rows that the patterns are of.
func (d *deriver) from(name string, selector sel, unit, how string, when valid, patterns []string, f func(v []float64) float64) {
	values, ids := make([]float64, len(patterns)), make([]string, len(patterns))
	var where []string
	for i, pattern := range patterns {
		r, err := d.find(pattern)
		if err != nil {
			d.errs = append(d.errs, fmt.Sprintf("%s: %v", name, err))
			return
		}
		values[i], ids[i] = r.Base(), canonical(r)
		at := r.Where
		if r.Platform != d.p.Name {
			at += " (" + r.Platform + ")"
		}
		if !slices.Contains(where, at) {
			where = append(where, at)
		}
	}
	scale, _, err := oracle.Base(1, unit)
	if err != nil {
		d.errs = append(d.errs, err.Error())
		return
	}
	value := roundTo(f(values)/scale, 6)
	d.p.Constants = append(d.p.Constants, &oracle.Constant{
		Name: name, For: selector, Value: value, Unit: unit, Source: Paper + ", " + strings.Join(where, ", "),
		How: how, Rows: ids, Valid: when,
	})
}

// as adds a constant that is one row's value.
func (d *deriver) as(name string, selector sel, unit, how string, when valid, pattern string) {
	d.from(name, selector, unit, how, when, []string{pattern}, first)
}

// absent says why constants are missing.
func (d *deriver) absent(why string, list ...oracle.Absence) {
	for _, a := range list {
		a.Why = why
		d.p.Absent = append(d.p.Absent, a)
	}
}

func first(v []float64) float64 { return v[0] }

// roundTo rounds to significant digits: what a file shows is what is computed with.
func roundTo(v float64, digits int) float64 {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return v
	}
	scale := math.Pow(10, float64(digits)-math.Ceil(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}

// Paper is what the constants are from.
const Paper = "arXiv:2610.01380"

// merge joins conditions.
func merge(ms ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range ms {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}

var recipes = map[string]func(*deriver){
	"P-IB": deriveIB, "P-GB200": deriveGB200, "P-RoCE": deriveRoCE, "P-H100": deriveH100,
}

var abouts = map[string]oracle.Platform{
	"P-IB": {About: "4 nodes of 4 H200, 4 ConnectX-7 at 200 Gb/s InfiniBand, Xeon 6548Y+; the GPU rings the doorbell",
		Conditions: oracle.Conditions{"clock": "1.98e9", "queue": "gpu", "processor": "xeon-6548y"}},
	"P-RoCE": {About: "2 nodes of 8 B200, 8 ConnectX-7 at 400 Gb/s RoCEv2, Xeon 8581C; the GPU rings the doorbell"},
	"P-H100": {About: "100 nodes of 4 H100, 4 ConnectX-7 at 200 Gb/s InfiniBand, Xeon 8460Y+; a host thread rings the doorbell",
		Conditions: oracle.Conditions{"processor": "xeon-8460y"}},
	"P-GB200": {About: "2 nodes of 1 GB200, 1 ConnectX-7 at 400 Gb/s InfiniBand, Grace; the GPU rings the doorbell",
		Conditions: oracle.Conditions{"clock": "2.062e9", "queue": "gpu", "processor": "grace"}},
}

// Derive makes a platform from the rows.
func Derive(platform string, rows []*Row) (*oracle.Platform, error) {
	recipe := recipes[platform]
	if recipe == nil {
		return nil, fmt.Errorf("no recipe for platform %q", platform)
	}
	a := abouts[platform]
	d := &deriver{p: &oracle.Platform{
		Schema: oracle.Schema, Name: platform, About: a.About, Conditions: a.Conditions, NIC: "mlx5", Device: "cuda",
		Source: Paper + ": its tables, with the arithmetic at each constant",
	}}
	d.list = rows
	recipe(d)
	if d.errs != nil {
		return nil, fmt.Errorf("derive %s: %s", platform, strings.Join(d.errs, "; "))
	}
	return d.p, nil
}
