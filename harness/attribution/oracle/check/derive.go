package check

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gic/harness/attribution/oracle"
)

// deriver makes the constants of a platform from rows. Every value comes through the identifiers that the
// constant then lists, so that nothing of a row gets in unseen.
type deriver struct {
	rows map[string]*Row
	p    *oracle.Platform
	errs []string
}

// valid is short for the conditions of validity.
type valid = map[string]string

// sel is short for a selector.
type sel = map[string]string

// from adds a constant that f makes of the values (base units) of the rows named by ids.
func (d *deriver) from(name string, selector sel, unit, how string, when valid, ids []string, f func(v []float64) float64) {
	values := make([]float64, len(ids))
	var where []string
	for i, id := range ids {
		r := d.rows[id]
		if r == nil {
			d.errs = append(d.errs, fmt.Sprintf("%s of %s: there is no row %s", name, d.p.Name, id))
			return
		}
		values[i] = r.Base()
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
	value := f(values) / scale
	value, _ = roundTo(value, 6)
	d.p.Constants = append(d.p.Constants, &oracle.Constant{
		Name: name, For: selector, Value: value, Unit: unit, Source: Paper + ", " + strings.Join(where, ", "),
		How: how, Rows: ids, Valid: when,
	})
}

// as adds a constant that is one row's value.
func (d *deriver) as(name string, selector sel, unit, how string, when valid, id string) {
	d.from(name, selector, unit, how, when, []string{id}, first)
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
func roundTo(v float64, digits int) (float64, bool) {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return v, false
	}
	scale := math.Pow(10, float64(digits)-math.Ceil(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale, true
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
		Conditions: oracle.Conditions{"clock": "1.98e9", "cpu": "xeon-6548y"}},
	"P-RoCE": {About: "2 nodes of 8 B200, 8 ConnectX-7 at 400 Gb/s RoCEv2, Xeon 8581C; the GPU rings the doorbell"},
	"P-H100": {About: "100 nodes of 4 H100, 4 ConnectX-7 at 200 Gb/s InfiniBand, Xeon 8460Y+; a host thread rings the doorbell",
		Conditions: oracle.Conditions{"cpu": "xeon-8460y"}},
	"P-GB200": {About: "2 nodes of 1 GB200, 1 ConnectX-7 at 400 Gb/s InfiniBand, Grace; the GPU rings the doorbell",
		Conditions: oracle.Conditions{"clock": "2.062e9", "cpu": "grace"}},
}

// Derive makes a platform from the rows.
func Derive(platform string, rows []*Row) (*oracle.Platform, error) {
	recipe := recipes[platform]
	if recipe == nil {
		return nil, fmt.Errorf("no recipe for platform %q", platform)
	}
	a := abouts[platform]
	d := &deriver{rows: map[string]*Row{}, p: &oracle.Platform{
		Schema: oracle.Schema, Name: platform, About: a.About, Conditions: a.Conditions, NIC: "mlx5", Device: "cuda",
		Source: Paper + ": its tables, with the arithmetic at each constant",
	}}
	for _, r := range rows {
		d.rows[r.ID] = r
	}
	recipe(d)
	if d.errs != nil {
		return nil, fmt.Errorf("derive %s: %s", platform, strings.Join(d.errs, "; "))
	}
	return d.p, nil
}
