package calibrate

import (
	"maps"
	"math"
	"slices"
	"strings"
)

// operations fits the single operations of the floors in one system: issue by ordering or hand-off, segments, the
// doorbell-to-CQE time, the fetch of a payload, and the part of it after which the peer sees the word.
func (f *fit) operations() {
	var points []*Point
	for _, q := range []string{"issue", "put_completion", "rtt"} {
		for _, backend := range []string{"minigda", "miniproxy"} {
			for _, p := range f.where(q, "backend", backend) {
				if b := p.num("batch"); q == "issue" && backend == "minigda" && b != 1 {
					continue // issue with more WQEs per doorbell is what rates are fitted from
				}
				if backend == "minigda" && p.Conditions["sharing"] != "" && p.Conditions["sharing"] != "exclusive" {
					continue
				}
				if scope := p.Conditions["scope"]; q == "put_completion" && scope != "" && scope != "qp" && p.num("qps") != 1 {
					continue // polls more than its own queue: see scopes
				}
				points = append(points, p)
			}
		}
	}
	if len(points) == 0 {
		f.refuse("issue, cqe: there are no records of the workload op with minigda or miniproxy")
		return
	}
	// All of them together tell most. Where the model does not describe that (a noisy round trip, say), less is tried.
	for _, quantities := range [][]string{{"issue", "put_completion", "rtt"}, {"issue", "put_completion"}, {"issue"}} {
		if f.operationsOf(slices.DeleteFunc(slices.Clone(points), func(p *Point) bool { return !slices.Contains(quantities, p.Quantity) })) {
			return
		}
	}
}

// operationsOf fits the points as one system; false: it does not describe them, which it has said.
func (f *fit) operationsOf(points []*Point) bool {
	if len(points) == 0 {
		return false
	}
	var s system
	known := f.knownWorker()
	hasGDA := slices.ContainsFunc(points, func(p *Point) bool {
		return p.Quantity == "put_completion" && p.Conditions["backend"] == "minigda"
	})
	sampledBy := map[string][]*Point{} // by unknown: the points that it is in
	var quantities []string
	for _, p := range points {
		proxy := p.Conditions["backend"] == "miniproxy"
		if proxy && (!hasGDA || math.IsNaN(known)) && p.Quantity != "issue" {
			continue
		}
		terms, value, ok := f.equation(p, known)
		if !ok {
			continue
		}
		s.add(value, terms)
		for name := range terms {
			sampledBy[name] = append(sampledBy[name], p)
		}
		if !slices.Contains(quantities, p.Quantity) {
			quantities = append(quantities, p.Quantity)
		}
	}
	x, ok := s.solve()
	if !ok {
		f.refuse("%s: %d points do not determine %d constants (%s); more sizes, orders or inline=on|off are needed", strings.Join(quantities, ", "), len(s.rows), len(s.names), strings.Join(s.names, ", "))
		return false
	}
	if x.rms > tooFar {
		f.refuse("%s together: the model does not describe the %d points, it is off by %.0f %% (root mean square), at most %.0f %% are taken", strings.Join(quantities, ", "), x.n, 100*x.rms, 100*tooFar)
		return false
	}
	f.keepOperations(x, sampledBy, hasGDA, known)
	return true
}

// scopes fits what each further queue adds to a completion of all of them.
func (f *fit) scopes() {
	list := f.where("put_completion", "backend", "minigda", "scope", "all")
	byVariant := map[string][]*Point{}
	for _, p := range list {
		key := p.Conditions["order"] + " " + p.Conditions["inline"] + " " + p.Conditions["batch"] + " " + p.Conditions["size"]
		byVariant[key] = append(byVariant[key], p)
	}
	best := ""
	for _, key := range slices.Sorted(maps.Keys(byVariant)) {
		if best == "" || len(distinct(byVariant[key], "queues")) > len(distinct(byVariant[best], "queues")) {
			best = key
		}
	}
	points := byVariant[best]
	if n := len(distinct(points, "queues")); n < 2 {
		f.refuse("scoped, scoped_queue: put_completion of minigda scope=all with %d numbers of queues; at least 2 are needed (minigda:scope=all,qps=1|8|32)", n)
		return
	}
	var s system
	for _, p := range points {
		s.add(p.Value, map[string]float64{"scoped": 1, "scoped_queue": p.num("queues")})
	}
	x, ok := s.solve()
	if !ok || x.rms > tooFar || x.value["scoped"] <= 0 || x.value["scoped_queue"] <= 0 {
		f.refuse("scoped, scoped_queue: put_completion of all queues does not grow with their number (%s)", sampled(points, "queues"))
		return
	}
	one := points[0].Conditions
	selector := map[string]string{"backend": "minigda", "scope": "all", "order": one["order"]}
	for _, name := range []string{"scoped", "scoped_queue"} {
		f.add(name, selector, x.value[name], x.deviation[name], "put_completion = scoped + scoped_queue * queues", x.quality(),
			map[string]string{"size": sampled(points, "size"), "queues": sampled(points, "queues"), "batch": sampled(points, "batch")})
	}
}

// knownWorker is post + wr as fitted from the rates, NaN without.
func (f *fit) knownWorker() float64 {
	sum, n := 0.0, 0
	for _, k := range f.Platform.Constants {
		switch k.Name {
		case "post", "wr":
			sum += k.Value * 1e-9
			n++
		case "ring":
			sum += k.Value * 1e-9 * f.rings()
		}
	}
	if n != 2 {
		return math.NaN()
	}
	return sum
}

// rings of the proxy in the single operations.
func (f *fit) rings() float64 {
	for _, p := range f.points {
		if n := p.num("rings"); p.Quantity == "put_completion" && !math.IsNaN(n) {
			return n
		}
	}
	return 0
}

// equation of a point: which unknowns its value is the sum of.
func (f *fit) equation(p *Point, worker float64) (terms map[string]float64, value float64, ok bool) {
	q := p.Conditions
	terms, value = map[string]float64{}, p.Value
	pointer := !inlined(p)
	variant := "handoff=" + q["handoff"]
	issue := variant
	if q["backend"] == "minigda" {
		issue = "order=" + q["order"] + ",inline=" + map[bool]string{true: "off", false: "on"}[pointer]
	} else if q["payload"] != "" {
		issue += ",payload=" + q["payload"]
	}
	terms["issue "+q["backend"]+" "+issue] = 1
	if q["backend"] == "minigda" && !pointer {
		if n := math.Ceil((p.num("size")+4)/16) - 1; n > 0 {
			terms["segment"] = n
		}
	}
	if p.Quantity == "issue" {
		return terms, value, true
	}
	if p.Quantity == "rtt" {
		value /= 2
		terms["arrive"] = 1
	} else {
		terms["cqe"] = 1
	}
	if pointer {
		if p.num("size") > smallest {
			return nil, 0, false // its time on the link is in it
		}
		terms["fetch"] = 1
	}
	if q["backend"] == "miniproxy" {
		value -= worker
		terms[map[string]string{"rtt": "notice ", "put_completion": "completion "}[p.Quantity]+variant] = 1
	}
	return terms, value, value > 0
}

// smallest is the largest payload by pointer that a latency counts as a small message of.
const smallest = 64

// inlined says whether the payload was in the WQE.
func inlined(p *Point) bool {
	switch p.Conditions["inline"] {
	case "on":
		return true
	case "off":
		return false
	}
	limit := p.num("inline_limit")
	if math.IsNaN(limit) {
		limit = 28
	}
	return p.num("size") <= limit
}

// stated adds a textual condition to a validity if points state it.
func stated(valid map[string]string, points []*Point, key string) {
	if v := words(points, key); v != "" {
		valid[key] = v
	}
}

func (f *fit) keepOperations(x *solution, sampledBy map[string][]*Point, hasGDA bool, worker float64) {
	quality := x.quality()
	for _, name := range slices.Sorted(maps.Keys(x.value)) {
		v, d := x.value[name], x.deviation[name]
		word := strings.Fields(name)
		valid := map[string]string{"size": sampled(sampledBy[name], "size")}
		if word[0] == "issue" && word[1] == "minigda" || word[0] == "segment" {
			stated(valid, sampledBy[name], "queue")
		}
		if word[0] == "completion" {
			stated(valid, sampledBy[name], "counter")
		}
		if strings.HasPrefix(name, "issue ") {
			if v <= 0 {
				f.refuse("issue of %s %s: the fit gives %.3g s, which is no time", word[1], word[2], v)
				continue
			}
			selector := map[string]string{"backend": word[1]}
			for _, kv := range strings.Split(word[2], ",") {
				key, value, _ := strings.Cut(kv, "=")
				selector[key] = value
			}
			f.add("issue", selector, v, d, "", quality, valid)
			continue
		}
		switch word[0] {
		case "segment", "cqe", "fetch":
			if v <= 0 {
				f.refuse("%s: the fit gives %.3g s, which is no time", word[0], v)
				continue
			}
			as := map[string]string{"segment": "issue_segment", "cqe": "cqe", "fetch": "fetch"}[word[0]]
			f.add(as, nil, v, d, "", quality, valid)
		case "arrive":
			if cqe := x.value["cqe"]; cqe > 0 && v > 0 {
				f.add("arrive", nil, v/cqe, d/cqe, "half a round trip less issue, over cqe", quality, valid)
			} else {
				f.refuse("arrive: the fit gives %.3g s of %.3g s", v, cqe)
			}
		case "completion", "notice":
			key, value, _ := strings.Cut(word[1], "=")
			f.add(word[0], map[string]string{"backend": "miniproxy", key: value}, v, d, "what remains beside the worker", quality, valid)
		}
	}
	if len(f.where("put_completion", "backend", "minigda")) == 0 {
		f.refuse("cqe, arrive, fetch: there is no put_completion of minigda, which alone tells them from a proxy's worker")
	}
	if _, segments := x.value["segment"]; !segments {
		f.refuse("issue_segment: there is no issue with more than 12 bytes of inline payload")
	}
	if _, fetch := x.value["fetch"]; !fetch && hasGDA {
		f.refuse("fetch: there is no put_completion with inline=off and at most %d bytes", smallest)
	}
	if math.IsNaN(worker) && slices.ContainsFunc(f.points, func(p *Point) bool { return p.Conditions["backend"] == "miniproxy" && p.Quantity == "put_completion" }) {
		f.refuse("completion, notice of miniproxy: its worker's post and wr are not known")
	}
}
