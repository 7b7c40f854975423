package attribution

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gic/harness/record"
	"gic/workloads"
)

// Unit is a piece of work that every stack does in some number.
type Unit struct {
	Name string
	Term Name
	Doc  string // what one of it is, and which rows give its cost
}

var units = []Unit{
	{"wqe", SignalProtocol, "one work request built and posted: a of a + d/B over the doorbell batch B, rate of one thread on one queue"},
	{"doorbell", DoorbellPath, "one ordered doorbell record and doorbell: d of the same fit"},
	{"order", Ordering, "what an order costs per doorbell beyond the floor's default: issue time, rows that differ in the order alone"},
	{"inline16", Placement, "16 more bytes in the work request: slope of issue over size with inline=on"},
	{"lock", QueueSharing, "taking and giving an uncontended lock: issue with sharing=lock minus sharing=exclusive"},
	{"handoff", QueueSharing, "reserving and publishing a slot in order, uncontended: issue with sharing=handoff minus sharing=exclusive"},
	{"warp", QueueSharing, "a post by a cooperating warp of one thread: issue with sharing=warp minus sharing=exclusive"},
	{"completion", Wire, "from the doorbell to the completion seen: put_completion minus issue of the floor's defaults; NIC, link and poll together"},
	{"cqe_poll", Wire, "polling and consuming one CQE: completion minus the time until the CQE is visible, where that was measured"},
	{"quiet_queue", CompletionScope, "one more queue that a quiet of scope=all looks at: slope of put_completion over qps"},
	{"enqueue", ProxyHandoff, "giving one descriptor to a proxy: issue of miniproxy, by hand-off"},
	{"worker_post", ProxyWorker, "one doorbell of a proxy's worker: d of a + d/B over its batch, one worker"},
	{"worker_wr", ProxyWorker, "one descriptor turned into a work request by the worker: a of the same fit"},
}

func unitOf(name string) (Unit, bool) {
	i := slices.IndexFunc(units, func(u Unit) bool { return u.Name == name })
	if i < 0 {
		return Unit{}, false
	}
	return units[i], true
}

func unitNames() []string {
	var out []string
	for _, u := range units {
		out = append(out, u.Name)
	}
	return out
}

// Cost is what one unit costs in a run.
type Cost struct {
	Unit
	Variant string // of an order or a hand-off: its value
	Quantity
	How   string
	Place *Row // a row of the place that it holds at
}

// Label is the unit with its variant.
func (c Cost) Label() string {
	if c.Variant == "" {
		return c.Name
	}
	return c.Name + " " + c.Variant
}

// Costs are the unit costs that a run's floor rows give, for each NIC and device.
func (r *Run) Costs() []Cost {
	if r.costs == nil {
		r.costs = r.estimate()
	}
	return r.costs
}

// estimate derives all unit costs.
func (r *Run) estimate() []Cost {
	out := []Cost{}
	for _, group := range r.places() {
		out = append(out, batchFit(group, "minigda", "wqe", "doorbell")...)
		out = append(out, batchFit(group, "miniproxy", "worker_wr", "worker_post")...)
		out = append(out, orderCosts(group)...)
		out = append(out, sharingCosts(group)...)
		out = append(out, slopes(group)...)
		out = append(out, enqueueCosts(group)...)
		out = append(out, r.completionCosts(group)...)
	}
	return out
}

// places are the floor rows of a run by NIC, NIC configuration and device.
func (r *Run) places() [][]*Row {
	byPlace := map[string][]*Row{}
	var order []string
	for _, w := range r.Rows {
		if !slices.Contains(Floors, w.Backend()) {
			continue
		}
		c := w.First()
		key := c.NIC + "/" + c.Device + "/" + fmt.Sprint(sorted(c.NICConfig))
		if byPlace[key] == nil {
			order = append(order, key)
		}
		byPlace[key] = append(byPlace[key], w)
	}
	var out [][]*Row
	for _, k := range order {
		out = append(out, byPlace[k])
	}
	return out
}

func sorted(m map[string]string) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return out
}

// series groups rows that differ in one key or axis only, and have a metric; the largest group that spans at least
// two values, the fastest of equal ones. except is "backend.KEY" or "workload.AXIS".
func series(rows []*Row, except, metric string, fits func(*Row) bool) []*Row {
	groups := map[string][]*Row{}
	keys := map[string][]string{}
	for _, backend := range Floors {
		keys[backend] = keysOf(rows, backend)
	}
	for _, w := range rows {
		if !fits(w) {
			continue
		}
		if _, ok := w.Time(metric); !ok {
			continue
		}
		c := w.First()
		key := []string{c.Workload, strconv.Itoa(c.Ranks)}
		for _, k := range slices.Sorted(maps.Keys(c.Axes)) {
			if "workload."+k != except {
				key = append(key, k+"="+c.Axes[k])
			}
		}
		for _, k := range keys[c.Backend] {
			if "backend."+k != except {
				key = append(key, k+"="+w.Config(k))
			}
		}
		id := strings.Join(key, "\x00")
		v := value(w, except)
		if !slices.ContainsFunc(groups[id], func(o *Row) bool { return value(o, except) == v }) {
			groups[id] = append(groups[id], w)
		}
	}
	var best []*Row
	for _, id := range slices.Sorted(maps.Keys(groups)) {
		if g := groups[id]; len(g) >= 2 && len(g) > len(best) {
			best = g
		}
	}
	return best
}

// value is what a row has of "backend.KEY" or "workload.AXIS".
func value(w *Row, name string) string {
	if k, ok := strings.CutPrefix(name, "backend."); ok {
		return w.Config(k)
	}
	return w.First().Axes[strings.TrimPrefix(name, "workload.")]
}

// fit is a least-squares line through times over x: the estimates are sums of the times, so that their intervals
// follow.
func fit(rows []*Row, metric string, x func(*Row) (float64, bool)) (intercept, slope Quantity, ok bool) {
	var xs []float64
	var ys []Quantity
	for _, w := range rows {
		v, good := x(w)
		y, _ := w.Time(metric)
		if good {
			xs, ys = append(xs, v), append(ys, y)
		}
	}
	mean, n := 0.0, float64(len(xs))
	for _, v := range xs {
		mean += v / n
	}
	sxx := 0.0
	for _, v := range xs {
		sxx += (v - mean) * (v - mean)
	}
	if len(xs) < 2 || sxx == 0 {
		return intercept, slope, false
	}
	for i, v := range xs {
		b := (v - mean) / sxx
		slope = slope.Add(ys[i].Scale(b))
		intercept = intercept.Add(ys[i].Scale(1/n - b*mean))
	}
	return intercept, slope, true
}

func axis(w *Row, name string) (float64, bool) {
	v, err := workloads.Point(w.First().Axes).Int(name)
	return float64(v), err == nil
}

func config(w *Row, name string) (float64, bool) {
	v, err := strconv.ParseFloat(w.Config(name), 64)
	return v, err == nil
}

// listed names the rows of an estimate.
func listed(rows []*Row, metric, except string) string {
	var parts []string
	for _, w := range rows {
		q, _ := w.Time(metric)
		parts = append(parts, fmt.Sprintf("%s=%s %s", except[strings.Index(except, ".")+1:], value(w, except), micro(q.Value)))
	}
	return strings.Join(parts, ", ") + ", " + rows[0].Source()
}

func ok(w *Row) bool { return w.Status() == record.OK }

// batchFit gives the cost per request and per doorbell of one poster.
func batchFit(rows []*Row, backend, perRequest, perDoorbell string) []Cost {
	one := func(w *Row) bool {
		c := w.First()
		if !ok(w) || c.Backend != backend || c.Workload != "rate" {
			return false
		}
		if backend == "miniproxy" {
			return w.Config("workers") == "1" && c.Axes["cpu"] != "cold"
		}
		return c.Axes["threads"] == "1" && w.Config("qps") == "1"
	}
	group := series(rows, "backend.batch", "message_rate", one)
	a, d, good := fit(group, "message_rate", func(w *Row) (float64, bool) {
		b, ok := config(w, "batch")
		return 1 / b, ok && b > 0
	})
	if !good {
		return nil
	}
	how := fmt.Sprintf("time per message = a + d/B: %s", listed(group, "message_rate", "backend.batch"))
	req, _ := unitOf(perRequest)
	bell, _ := unitOf(perDoorbell)
	return []Cost{{req, "", a, how, group[0]}, {bell, "", d, how, group[0]}}
}

// orderCosts gives what each order costs per doorbell beyond the default one.
func orderCosts(rows []*Row) []Cost {
	group := series(rows, "backend.order", "issue", func(w *Row) bool {
		return w.Backend() == "minigda" && w.First().Workload == "op" && w.Config("batch") == "1"
	})
	base := ""
	if len(group) > 0 {
		base = group[0].Run.base("minigda", "order")
	}
	i := slices.IndexFunc(group, func(w *Row) bool { return w.Config("order") == base })
	if i < 0 {
		i = slices.IndexFunc(group, func(w *Row) bool { return w.Config("order") == "gpu-fence" })
	}
	if i < 0 {
		return nil
	}
	from, _ := group[i].Time("issue")
	var out []Cost
	unit, _ := unitOf("order")
	for k, w := range group {
		if q, _ := w.Time("issue"); k != i && w.Config("order") != "none" {
			how := fmt.Sprintf("issue %s (%s) - %s (%s, %s)", micro(q.Value), w.Source(), micro(from.Value), group[i].Config("order"), group[i].Source())
			if w.Status() == record.Unsafe {
				how += ", unsafe on this NIC"
			}
			out = append(out, Cost{unit, w.Config("order"), q.Sub(from), how, w})
		}
	}
	return append(out, Cost{unit, group[i].Config("order"), Exact(0), "the order of the other floor rows", group[i]})
}

// sharingCosts gives what sharing a queue costs where nobody contends for it.
func sharingCosts(rows []*Row) []Cost {
	group := series(rows, "backend.sharing", "issue", func(w *Row) bool {
		return ok(w) && w.Backend() == "minigda" && w.First().Workload == "op"
	})
	i := slices.IndexFunc(group, func(w *Row) bool { return w.Config("sharing") == "exclusive" })
	if i < 0 {
		return nil
	}
	base, _ := group[i].Time("issue")
	var out []Cost
	for k, w := range group {
		if unit, known := unitOf(w.Config("sharing")); k != i && known {
			q, _ := w.Time("issue")
			how := fmt.Sprintf("issue %s (%s) - %s (%s)", micro(q.Value), w.Source(), micro(base.Value), group[i].Source())
			out = append(out, Cost{unit, "", q.Sub(base), how, w})
		}
	}
	return out
}

// slopes gives the costs per 16 bytes in the work request and per queue of a wide quiet.
func slopes(rows []*Row) []Cost {
	var out []Cost
	inline := series(rows, "workload.size", "issue", func(w *Row) bool {
		return ok(w) && w.Backend() == "minigda" && w.First().Workload == "op" && w.Config("inline") == "on"
	})
	if _, b, good := fit(inline, "issue", func(w *Row) (float64, bool) { return axis(w, "size") }); good {
		unit, _ := unitOf("inline16")
		out = append(out, Cost{unit, "", b.Scale(16), "slope of issue over size: " + listed(inline, "issue", "workload.size"), inline[0]})
	}
	quiet := series(rows, "backend.qps", "put_completion", func(w *Row) bool {
		return ok(w) && w.Backend() == "minigda" && w.First().Workload == "op" && w.Config("scope") == "all"
	})
	if _, b, good := fit(quiet, "put_completion", func(w *Row) (float64, bool) { return config(w, "qps") }); good {
		unit, _ := unitOf("quiet_queue")
		peers := float64(max(quiet[0].First().Ranks-1, 1))
		out = append(out, Cost{unit, "", b.Scale(1 / peers), "slope of put_completion over qps: " + listed(quiet, "put_completion", "backend.qps"), quiet[0]})
	}
	return out
}

// enqueueCosts gives what each hand-off costs.
func enqueueCosts(rows []*Row) []Cost {
	var out []Cost
	unit, _ := unitOf("enqueue")
	group := series(rows, "backend.handoff", "issue", func(w *Row) bool {
		return ok(w) && w.Backend() == "miniproxy" && w.First().Workload == "op"
	})
	for _, w := range group {
		q, _ := w.Time("issue")
		out = append(out, Cost{unit, w.Config("handoff"), q, "issue, " + w.Source(), w})
	}
	return out
}

// completionCosts gives what completion adds to issue, and what of it is the poll where a row says when the CQE is
// visible.
func (r *Run) completionCosts(rows []*Row) []Cost {
	var plain, visible *Row
	for _, w := range rows {
		c := w.First()
		if c.Backend != "minigda" || c.Workload != "op" || !ok(w) {
			continue
		}
		if _, has := w.Time("doorbell_to_cqe"); has && visible == nil {
			visible = w
		}
		if _, has := w.Time("put_completion"); has && plain == nil && r.atDefaults(w) {
			plain = w
		}
	}
	if plain == nil {
		return nil
	}
	whole, _ := plain.Time("put_completion")
	issue, has := plain.Time("issue")
	if !has {
		return nil
	}
	unit, _ := unitOf("completion")
	rest := whole.Sub(issue)
	out := []Cost{{unit, "", rest, fmt.Sprintf("put_completion %s - issue %s, %s", micro(whole.Value), micro(issue.Value), plain.Source()), plain}}
	if visible != nil {
		q, _ := visible.Time("doorbell_to_cqe")
		poll, _ := unitOf("cqe_poll")
		out = append(out, Cost{poll, "", rest.Sub(q), fmt.Sprintf("%s - %s until the CQE is visible, %s", micro(rest.Value), micro(q.Value), visible.Source()), visible})
	}
	return out
}
