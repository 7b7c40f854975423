package calibrate

import (
	"math"
	"slices"
	"strings"
)

// smallRates are the message rates with the smallest payload that was sampled.
func (f *fit) smallRates(conditions ...string) []*Point {
	list := f.where("message_rate", conditions...)
	least := math.Inf(1)
	for _, p := range list {
		least = min(least, p.num("size"))
	}
	return slices.DeleteFunc(list, func(p *Point) bool { return p.num("size") != least || p.Conditions["senders"] != "" })
}

// rates fits a + d/B of one thread, then what sharing a queue adds.
func (f *fit) rates() {
	list := f.smallRates("backend", "minigda", "sharing", "exclusive", "threads", "1")
	byOrder := map[string][]*Point{}
	for _, p := range list {
		byOrder[p.Conditions["order"]] = append(byOrder[p.Conditions["order"]], p)
	}
	best := ""
	for order, points := range byOrder {
		if best == "" || len(points) > len(byOrder[best]) || len(points) == len(byOrder[best]) && order < best {
			best = order
		}
	}
	list = byOrder[best]
	batches := distinct(list, "batch")
	if len(batches) < 2 {
		f.refuse("wqe, doorbell_wqe: rates of one minigda thread with %d batch sizes; at least 2 are needed (rate:threads=1, minigda:batch=1|16)", len(batches))
		return
	}
	var s system
	for _, p := range list {
		s.add(1/p.Value, map[string]float64{"wqe": 1, "doorbell_wqe": 1 / p.num("batch")})
	}
	x, ok := s.solve()
	if !ok || x.rms > tooFar || x.value["wqe"] <= 0 || x.value["doorbell_wqe"] <= 0 {
		f.refuse("wqe, doorbell_wqe: the rates of batch=%s do not fit a + d/B with positive a and d", strings.Join(batches, "|"))
		return
	}
	valid := map[string]string{"size": sampled(list, "size"), "order": best, "batch": sampled(list, "batch"), "threads": f.linear(best, x)}
	stated(valid, list, "queue")
	backend := map[string]string{"backend": "minigda"}
	for name, how := range map[string]string{"wqe": "a of 1/rate = a + d/B, one thread", "doorbell_wqe": "d of 1/rate = a + d/B, one thread"} {
		f.add(name, backend, x.value[name], x.deviation[name], how, x.quality(), with(valid))
	}
	f.shared(best, x)
}

// distinct values of a condition, in order of size.
func distinct(points []*Point, key string) []string {
	var list []string
	for _, p := range points {
		if v := p.Conditions[key]; v != "" && !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	slices.SortFunc(list, func(a, b string) int { return len(a) - len(b) })
	return list
}

func with(m map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range m {
		out[k] = v
	}
	return out
}

func period(x *solution, batch float64) float64 {
	return x.value["wqe"] + x.value["doorbell_wqe"]/batch
}

// linear is the range of threads over which the rate is threads times that of one, within 15 %, or below it by more
// and thus a ceiling that is another constant's: the rows in between are not predicted.
func (f *fit) linear(order string, x *solution) string {
	points := f.smallRates("backend", "minigda", "sharing", "exclusive", "order", order)
	slices.SortFunc(points, func(a, b *Point) int { return int(a.num("threads") - b.num("threads")) })
	high := 1.0
	for _, p := range points {
		want := p.num("threads") / period(x, p.num("batch"))
		if p.Value < 0.85*want || p.Value > 1.15*want {
			break
		}
		high = p.num("threads")
	}
	return span(1, high)
}

// shared fits what one queue costs that several threads post to.
func (f *fit) shared(order string, x *solution) {
	backend := map[string]string{"backend": "minigda"}
	for _, c := range []struct {
		sharing, name, how string
		value              func(p *Point) float64
	}{
		{"lock", "lock", "1/rate - (a + d/B), a lock per WQE", func(p *Point) float64 { return 1/p.Value - period(x, p.num("batch")) }},
		{"handoff", "slot", "1/rate, slots handed off", func(p *Point) float64 { return 1 / p.Value }},
	} {
		list := f.smallRates("backend", "minigda", "sharing", c.sharing, "qps", "1", "order", order)
		list = slices.DeleteFunc(list, func(p *Point) bool { return p.num("threads") < 2 || p.Conditions["lock"] == "block" })
		if len(list) == 0 {
			f.refuse("%s: there is no rate of several threads with minigda sharing=%s and qps=1", c.name, c.sharing)
			continue
		}
		var values []float64
		for _, p := range list {
			values = append(values, c.value(p))
		}
		v, worst := middle(values)
		if v <= 0 {
			f.refuse("%s: threads that share a queue are faster than one alone (%.3g s per message less)", c.name, -v)
			continue
		}
		f.add(c.name, backend, v, 0, c.how, quality(len(values), worst),
			map[string]string{"size": sampled(list, "size"), "batch": sampled(list, "batch"), "threads": sampled(list, "threads")})
	}
}

// workers fits post/B + wr of a proxy's worker that always finds descriptors.
func (f *fit) workers() {
	list := f.smallRates("backend", "miniproxy", "workers", "1")
	best := 0.0
	for _, p := range list {
		best = max(best, p.num("threads"))
	}
	list = slices.DeleteFunc(list, func(p *Point) bool { return p.num("threads") != best || p.Conditions["handoff"] == "baseline" })
	batches := distinct(list, "batch")
	if len(batches) < 2 {
		f.refuse("post, wr: rates of miniproxy with one worker and %d batch sizes; at least 2 are needed (miniproxy:batch=1|16)", len(batches))
		return
	}
	rings := len(distinct(list, "rings")) > 1
	var s system
	for _, p := range list {
		terms := map[string]float64{"wr": 1, "post": 1 / p.num("batch")}
		if rings {
			terms["ring"] = p.num("rings") / p.num("batch")
		}
		s.add(1/p.Value, terms)
	}
	x, ok := s.solve()
	if !ok || x.rms > tooFar || x.value["post"] <= 0 || x.value["wr"] <= 0 || rings && x.value["ring"] < 0 {
		f.refuse("post, wr: the rates of batch=%s do not fit wr + post/B with positive post and wr", strings.Join(batches, "|"))
		return
	}
	for _, name := range s.names {
		valid := map[string]string{"size": sampled(list, "size"), "batch": sampled(list, "batch"), "workers": f.linearWorkers(x)}
		if r := sampled(list, "rings"); len(distinct(list, "rings")) > 0 {
			valid["rings"] = r
		}
		f.add(name, map[string]string{"backend": "miniproxy"}, x.value[name], x.deviation[name], name+" of 1/rate = wr + (post + ring * rings)/B", x.quality(), valid)
	}
}

// linearWorkers is the range of workers over which the rate is workers times that of one, within 15 %.
func (f *fit) linearWorkers(x *solution) string {
	points := f.smallRates("backend", "miniproxy")
	slices.SortFunc(points, func(a, b *Point) int { return int(a.num("workers") - b.num("workers")) })
	high := 1.0
	for _, p := range points {
		n := p.num("workers")
		if n <= 1 || p.Conditions["handoff"] == "baseline" {
			continue
		}
		post := x.value["post"]
		if ring, ok := x.value["ring"]; ok {
			post += ring * p.num("rings") / n
		}
		want := n / (x.value["wr"] + post/p.num("batch"))
		if !(p.Value > 0.85*want && p.Value < 1.15*want) {
			break
		}
		high = n
	}
	return span(1, high)
}

// ceilings fits the rate that more threads or larger batches no longer raise.
func (f *fit) ceilings() {
	f.queueCeiling()
	list := slices.DeleteFunc(f.smallRates("backend", "minigda"), func(p *Point) bool { return p.Conditions["sharing"] == "lock" || p.Conditions["sharing"] == "handoff" })
	var top []*Point
	best := 0.0
	for _, p := range list {
		best = max(best, p.Value)
	}
	for _, p := range list {
		if p.Value >= 0.95*best {
			top = append(top, p)
		}
	}
	supplies := len(distinct(top, "threads")) * len(distinct(top, "batch"))
	if len(top) < 2 || supplies < 2 {
		f.refuse("nic_rate: no two of %d rates with different threads or batches are within 5 %% of the best: no ceiling was reached", len(list))
		return
	}
	low, high := math.Inf(1), 0.0
	for _, p := range top {
		supply := p.num("threads") * p.num("batch")
		low, high = min(low, supply), max(high, supply)
	}
	if high < 1.5*low {
		f.refuse("nic_rate: the best rates are all of nearly the same number of threads and batch")
		return
	}
	var values []float64
	for _, p := range top {
		values = append(values, p.Value)
	}
	v, worst := middle(values)
	f.add("nic_rate", nil, v, 0, "rates within 5 % of the best, with different threads or batches", quality(len(values), worst), map[string]string{"size": sampled(top, "size")})
}

// queueCeiling fits one queue that warps post to together.
func (f *fit) queueCeiling() {
	backend := map[string]string{"backend": "minigda"}
	one := f.smallRates("backend", "minigda", "sharing", "warp", "qps", "1", "threads", "32")
	if len(one) > 0 {
		batch := one[0].num("batch")
		f.add("warp", backend, batch/one[0].Value, 0, "batch/rate of one warp", quality(1, 0), map[string]string{"size": sampled(one[:1], "size"), "batch": ftoa(batch)})
	} else {
		f.refuse("warp: there is no rate of one warp (threads=32) with minigda sharing=warp and qps=1")
	}
	many := f.smallRates("backend", "minigda", "sharing", "warp", "qps", "1")
	many = slices.DeleteFunc(many, func(p *Point) bool { return p.num("threads") < 64 })
	if len(many) == 0 {
		f.refuse("qp_rate: there is no rate of two warps or more (threads>=64) with minigda sharing=warp and qps=1")
		return
	}
	var values []float64
	for _, p := range many {
		values = append(values, p.Value)
	}
	f.add("qp_rate", backend, slices.Max(values), 0, "best rate of one queue, two warps or more", quality(len(values), 0),
		map[string]string{"size": sampled(many, "size"), "batch": sampled(many, "batch")})
}

// middle is the median, and the largest relative distance from it.
func middle(values []float64) (median, worst float64) {
	slices.Sort(values)
	n := len(values)
	median = (values[(n-1)/2] + values[n/2]) / 2
	for _, v := range values {
		worst = max(worst, math.Abs(v/median-1))
	}
	return median, worst
}
