package importer

import (
	"bytes"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gic/workloads"
	"gic/workloads/moe"
)

// DeepEP's tests print one line per rank: an average time in us and a logical bandwidth (local traffic included
// unless told otherwise). An operation is over when its last rank is, so that a row is the slowest rank's time and
// the lowest bandwidth.

func likeDeepEP(data []byte) bool {
	for _, mark := range []string{"[tuning] ", "] Dispatch + combine bandwidth:", "] Dispatch bandwidth:", " | dispatch: "} {
		if bytes.Contains(data, []byte(mark)) {
			return true
		}
	}
	return false
}

const num = `([-+.0-9a-zA-Z]+)`

var (
	deepepBoth   = regexp.MustCompile(`\[rank (\d+)\] Dispatch \+ combine bandwidth: ` + num + ` GB/s, avg_t=` + num + ` us, min_t=` + num + ` us, max_t=` + num + ` us`)
	deepepEach   = regexp.MustCompile(`\[rank (\d+)\] Dispatch bandwidth: ` + num + ` GB/s, avg_t=` + num + ` us \| Combine bandwidth: ` + num + ` GB/s, avg_t=` + num + ` us`)
	deepepHalves = regexp.MustCompile(`\[rank (\d+)\] Dispatch send/recv time: ` + num + ` \+ ` + num + ` us \| Combine send/recv time: ` + num + ` \+ ` + num + ` us`)
	deepepTuned  = regexp.MustCompile(`^\[tuning\] Best (dispatch|combine)(?: \((FP8|BF16)\))?: SMs (\d+), NVL chunk (\w+)(?:, RDMA chunk (\d+))?[:,] (.*)$`)
	deepepNVL    = regexp.MustCompile(`^` + num + ` GB/s \(NVL\), t: ` + num + ` us$`)
	deepepRDMA   = regexp.MustCompile(`^` + num + ` \+ ` + num + ` us, ` + num + ` GB/s \(RDMA\), ` + num + ` GB/s \(NVL\)$`)
	deepepEP     = regexp.MustCompile(`EP: +(\d+)/ *(\d+) \| ([a-z ]+): ` + num + ` GB/s \(SO\), ` + num + ` GB/s \(SU\), ` + num + ` us, ` + num + ` bytes \| (copy|reduce): ` + num + ` GB/s, ` + num + ` us`)
	deepepKV     = regexp.MustCompile(`([a-z][a-z0-9_]*)=([A-Za-z0-9.]+)`)
	deepepShape  = regexp.MustCompile(`^> (Ranks|Experts|Tokens|#SM): `)
	deepepDigits = regexp.MustCompile(`\d+`)
)

// deepepRun collects what the ranks print about one configuration.
type deepepRun struct {
	s      *source
	ranks  int
	axes   map[string]string
	config map[string]string
	facts  map[string]any
	groups []*deepepGroup
}

// deepepGroup is one row: its values by metric and rank.
type deepepGroup struct {
	key     string
	line    int
	axes    map[string]string
	config  map[string]string
	facts   map[string]any
	metrics []string
	values  map[string]map[int][]float64
	make    map[string]func(name string, headline bool, v ...float64) workloads.Metric
	seen    map[int]bool
}

func (s *source) parseDeepEP() {
	d := &deepepRun{s: s, axes: map[string]string{}, config: map[string]string{}, facts: map[string]any{}}
	for line, text := range s.lines() {
		d.line(line, strings.TrimSpace(text))
	}
	d.flush()
}

func (d *deepepRun) line(line int, text string) {
	found := false
	for _, p := range []struct {
		re   *regexp.Regexp
		take func(line int, m []string)
	}{{deepepBoth, d.both}, {deepepEach, d.each}, {deepepHalves, d.halves}, {deepepEP, d.elastic}, {deepepTuned, d.tuned}} {
		for _, m := range p.re.FindAllStringSubmatch(text, -1) {
			found = true
			p.take(line, m)
		}
	}
	switch {
	case found || text == "":
	case strings.HasPrefix(text, "[config] "):
		d.flush()
		d.s.process++
		d.shape(deepepKV.FindAllStringSubmatch(text, -1))
	case text == "Config:":
		d.flush()
		d.s.process++
		d.axes, d.ranks = map[string]string{}, 0
	case deepepShape.MatchString(text):
		d.elasticShape(text)
	case strings.HasPrefix(text, "> Testing with "):
		d.config = map[string]string{}
		for _, kv := range deepepKV.FindAllStringSubmatch(text, -1) {
			d.config[kv[1]] = strings.ToLower(kv[2])
		}
	case strings.HasPrefix(text, "[tuning] Best"), strings.Contains(text, "Dispatch bandwidth"),
		strings.Contains(text, "Dispatch + combine"), strings.Contains(text, "send/recv time"), strings.Contains(text, " GB/s (SU)"):
		d.s.problem(line, "a result of unknown form: %s", quote(text))
	case strings.HasPrefix(text, "[tuning] "), strings.HasPrefix(text, "[testing] "), strings.HasPrefix(text, "[layout] "),
		strings.HasPrefix(text, "Testing with seed"), strings.HasPrefix(text, "Running all test cases"),
		strings.HasPrefix(text, "Allocating buffer"), strings.HasPrefix(text, "ref_hash="):
	default:
		d.s.passed(line, text)
	}
}

// shape reads num_tokens=.., hidden=.., num_topk=.. of the older tests.
func (d *deepepRun) shape(kv [][]string) {
	d.axes = map[string]string{}
	for _, m := range kv {
		if axis := map[string]string{"num_tokens": "tokens", "hidden": "hidden", "num_topk": "topk", "num_experts": "experts"}[m[1]]; axis != "" {
			d.axes[axis] = m[2]
		}
	}
	nameModel(d.axes)
}

// elasticShape reads the lines under "Config:".
func (d *deepepRun) elasticShape(text string) {
	n := deepepDigits.FindAllString(text, -1)
	switch {
	case strings.HasPrefix(text, "> Ranks") && len(n) == 2:
		out, _ := strconv.Atoi(n[0])
		up, _ := strconv.Atoi(n[1])
		if d.ranks = out * up; d.ranks < 1 || d.ranks > 1<<20 {
			d.ranks = 0
		}
		d.facts["scaleout_ranks"], d.facts["scaleup_ranks"] = out, up
	case strings.HasPrefix(text, "> Experts") && len(n) == 2:
		d.axes["topk"], d.axes["experts"] = n[0], n[1]
	case strings.HasPrefix(text, "> Tokens") && len(n) == 3:
		d.axes["tokens"], d.axes["hidden"] = n[1], n[2] // ranks hold a few less than the most
		nameModel(d.axes)
	case strings.HasPrefix(text, "> #SM") && len(n) >= 2:
		d.facts["sms"], d.facts["qps"] = n[0], n[1]
	}
}

// nameModel puts the name of a published shape in the place of its three numbers, as the axis of ours does.
func nameModel(axes map[string]string) {
	for _, m := range moe.Models() {
		if axes["hidden"] == strconv.Itoa(m.Hidden) && axes["experts"] == strconv.Itoa(m.Experts) && axes["topk"] == strconv.Itoa(m.TopK) {
			axes["model"] = m.Name
			for _, k := range []string{"hidden", "experts", "topk"} {
				delete(axes, k)
			}
			return
		}
	}
}

// group finds the row of a configuration.
func (d *deepepRun) group(line int, config map[string]string) *deepepGroup {
	var key strings.Builder
	for _, k := range slices.Sorted(maps.Keys(config)) {
		key.WriteString(k + "=" + config[k] + " ")
	}
	for _, g := range d.groups {
		if g.key == key.String() {
			return g
		}
	}
	g := &deepepGroup{
		key: key.String(), line: line, axes: maps.Clone(d.axes), config: maps.Clone(config), facts: maps.Clone(d.facts),
		values: map[string]map[int][]float64{}, seen: map[int]bool{},
		make: map[string]func(string, bool, ...float64) workloads.Metric{},
	}
	d.groups = append(d.groups, g)
	return g
}

// put adds a value of a rank in base units.
func (g *deepepGroup) put(name string, rank int, v float64, make func(string, bool, ...float64) workloads.Metric) {
	if g.values[name] == nil {
		g.metrics = append(g.metrics, name)
		g.values[name], g.make[name] = map[int][]float64{}, make
	}
	g.values[name][rank] = append(g.values[name][rank], v)
	g.seen[rank] = true
}

// us and gbs add a measured value, named as it is in the line.
func (d *deepepRun) us(line int, g *deepepGroup, name, rank, text string) {
	if v, ok := d.s.quantity(line, name, text); ok {
		r, _ := strconv.Atoi(rank)
		g.put(name, r, v*1e-6, seconds)
	}
}

func (d *deepepRun) gbs(line int, g *deepepGroup, name, rank, text string) {
	if v, ok := d.s.quantity(line, name, text); ok {
		r, _ := strconv.Atoi(rank)
		g.put(name, r, v*1e9, bandwidth)
	}
}

func (d *deepepRun) both(line int, m []string) {
	g := d.group(line, map[string]string{"mode": "low_latency"})
	d.gbs(line, g, "dispatch_combine_bandwidth", m[1], m[2])
	d.us(line, g, "dispatch_combine", m[1], m[3])
	d.us(line, g, "dispatch_combine_min", m[1], m[4])
	d.us(line, g, "dispatch_combine_max", m[1], m[5])
}

func (d *deepepRun) each(line int, m []string) {
	g := d.group(line, map[string]string{"mode": "low_latency"})
	d.gbs(line, g, "dispatch_bandwidth", m[1], m[2])
	d.us(line, g, "dispatch", m[1], m[3])
	d.gbs(line, g, "combine_bandwidth", m[1], m[4])
	d.us(line, g, "combine", m[1], m[5])
}

func (d *deepepRun) halves(line int, m []string) {
	g := d.group(line, map[string]string{"mode": "low_latency"})
	for i, name := range []string{"dispatch_send", "dispatch_recv", "combine_send", "combine_recv"} {
		d.us(line, g, name, m[1], m[2+i])
	}
}

func (d *deepepRun) elastic(line int, m []string) {
	g := d.group(line, d.config)
	if n, err := strconv.Atoi(m[2]); err == nil && d.ranks == 0 {
		d.ranks = n
	}
	op := word(m[3])
	d.us(line, g, op, m[1], m[6])
	// Whole GB/s are printed: 0 is no traffic of that kind, or less than half a GB/s.
	for i, kind := range []string{"_scaleout_bandwidth", "_scaleup_bandwidth"} {
		if m[4+i] != "0" {
			d.gbs(line, g, op+kind, m[1], m[4+i])
		}
	}
	d.us(line, g, op+"_"+m[8], m[1], m[10])
}

func (d *deepepRun) tuned(line int, m []string) {
	dtype := strings.ToLower(m[2])
	if dtype == "" {
		dtype = "bf16" // combine has no other
	}
	mode := "normal"
	g := d.group(line, map[string]string{"mode": mode, "dtype": dtype, "sms": m[3]})
	g.facts[m[1]+"_nvl_chunk"] = m[4]
	if m[5] != "" {
		g.facts[m[1]+"_rdma_chunk"] = m[5]
	}
	if v := deepepNVL.FindStringSubmatch(m[6]); v != nil {
		d.gbs(line, g, m[1]+"_nvl_bandwidth", "0", v[1])
		d.us(line, g, m[1], "0", v[2])
	} else if v := deepepRDMA.FindStringSubmatch(m[6]); v != nil {
		d.us(line, g, m[1]+"_notify", "0", v[1])
		d.us(line, g, m[1], "0", v[2])
		d.gbs(line, g, m[1]+"_rdma_bandwidth", "0", v[3])
		d.gbs(line, g, m[1]+"_nvl_bandwidth", "0", v[4])
	} else {
		d.s.problem(line, "a result of unknown form: %s", quote(m[6]))
	}
	g.seen = map[int]bool{} // only local rank 0 prints these
}

// flush makes rows of what was collected.
func (d *deepepRun) flush() {
	for _, g := range d.groups {
		ranks := d.ranks
		if ranks == 0 {
			ranks = len(g.seen)
		}
		g.facts["reduced"] = "slowest rank"
		g.facts["ranks_seen"] = len(g.seen)
		r := reading{
			line: g.line, workload: "moe", backend: "deepep-test", device: "cuda", ranks: ranks, axes: g.axes, config: g.config,
			facts: g.facts,
		}
		for _, name := range g.metrics {
			if n := len(g.values[name]); n < len(g.seen) {
				d.s.problem(g.line, "%s: %d of %d ranks gave a value, so that the slowest is not known", name, n, len(g.seen))
				continue
			}
			m := g.make[name](name, name == "dispatch" || name == "combine")
			m.Samples = slowest(g.values[name], m.Class)
			r.metrics = append(r.metrics, m)
		}
		if len(r.metrics) > 0 {
			d.s.add(r)
		}
	}
	d.groups = nil
}

// slowest joins the ranks' values, repetition by repetition.
func slowest(byRank map[int][]float64, class workloads.Class) []float64 {
	var out []float64
	for i := 0; ; i++ {
		var v float64
		some := false
		for _, values := range byRank {
			switch {
			case i >= len(values):
			case !some:
				v, some = values[i], true
			case class == workloads.Time:
				v = max(v, values[i])
			default:
				v = min(v, values[i])
			}
		}
		if !some {
			return out
		}
		out = append(out, v)
	}
}
