package diff

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"gic/harness/record"
	"gic/harness/stats"
	"gic/workloads"
)

// costs are the counters of which fewer are better, the likeliest cause of a change of times first. Others say
// how the work was done (inline or not, say): a change of them is told, and is neither better nor worse.
var costs = []string{"doorbells", "cqes", "wqes", "descriptors", "payload_bytes", "wqe_bytes", "error_cqes"}

// perCase are the counters that count resources, not work.
var perCase = []string{"qps_used"}

// counterName is how a counter is called in verdicts and causes.
func counterName(name string) string {
	switch {
	case slices.Contains(perCase, name):
		return name
	case name == "payload_bytes":
		name = "bytes"
	}
	return name + "_per_message"
}

// compareCounters compares the counters that both sides have.
func (r *Result) compareCounters(p *Pair) {
	a, b := p.old.measured(), p.new.measured()
	if len(a) == 0 || len(b) == 0 {
		return
	}
	per := p.messages(a, b)
	p.Counters = make([]Counter, 0, len(p.old.counters))
	var bufA, bufB []ratio
	for i, info := range p.old.counters {
		j := slices.IndexFunc(p.new.counters, func(c counterInfo) bool { return c.name == info.name })
		if j < 0 {
			continue
		}
		x, okA := series(bufA, a, i, per.old, info.name)
		y, okB := series(bufB, b, j, per.new, info.name)
		if !okA || !okB {
			continue
		}
		bufA, bufB = x, y
		c := Counter{
			Name: counterName(info.name), OldCount: x[0].count, NewCount: y[0].count,
			cost: slices.Contains(costs, info.name), rank: slices.Index(costs, info.name),
		}
		if c.rank < 0 {
			c.rank = len(costs)
		}
		declared := info.exact && p.new.counters[j].exact
		c.Exact = declared && constant(x) && constant(y)
		if declared && !c.Exact {
			p.doubt("exact_varied", "a counter declared exact differs between process runs of the same case ("+c.Name+"): compared as a timed one")
		}
		if info.exact != p.new.counters[j].exact {
			p.doubt("exact_one_side", "a counter is exact on one side only ("+c.Name+"): compared as a timed one")
		}
		if c.Exact {
			r.judgeExact(&c, info.name, x[0], y[0])
		} else {
			judgeTimed(&c, x, y)
		}
		p.Counters = append(p.Counters, c)
	}
	slices.SortStableFunc(p.Counters, func(a, b Counter) int { return cmp.Or(a.rank-b.rank, cmp.Compare(a.Name, b.Name)) })
}

// ratio is a count over messages, kept exact.
type ratio struct{ count, messages uint64 }

func (x ratio) value() float64 { return float64(x.count) / float64(x.messages) }

// compare orders by value, without rounding.
func (x ratio) compare(y ratio) int {
	h1, l1 := bits.Mul64(x.count, y.messages)
	h2, l2 := bits.Mul64(y.count, x.messages)
	return cmp.Or(cmp.Compare(h1, h2), cmp.Compare(l1, l2))
}

// divisors give the messages of a process run of each side.
type divisors struct{ old, new func(*processRun) uint64 }

// messages chooses what counters are divided by: the messages of the record; for records that do not tell them,
// the same number for both sides where the work is the same, else the NIC operations of the message list.
func (p *Pair) messages(a, b []*processRun) divisors {
	own := func(x *processRun) uint64 { return x.messages }
	if a[0].messages > 0 && b[0].messages > 0 {
		return divisors{own, own}
	}
	same := !slices.ContainsFunc(p.Differs, func(kv record.KeyValue) bool {
		return kv.Key == "ranks" || len(kv.Key) >= 8 && kv.Key[:8] == "workload"
	})
	if same {
		n := max(a[0].messages, b[0].messages, min(a[0].expected, b[0].expected), 1)
		both := func(*processRun) uint64 { return n }
		return divisors{both, both}
	}
	expected := func(x *processRun) uint64 { return max(x.expected, 1) }
	return divisors{expected, expected}
}

// series lists a counter over process runs, in the place of buf; false if one does not have it.
func series(buf []ratio, runs []*processRun, at int, messages func(*processRun) uint64, name string) ([]ratio, bool) {
	out := slices.Grow(buf[:0], len(runs))[:len(runs)]
	for i, x := range runs {
		if at >= len(x.counts) || x.counts[at] == missing {
			return nil, false
		}
		out[i] = ratio{x.counts[at], max(messages(x), 1)}
		if slices.Contains(perCase, name) {
			out[i].messages = 1
		}
	}
	return out, true
}

func constant(x []ratio) bool {
	return !slices.ContainsFunc(x, func(y ratio) bool { return y.compare(x[0]) != 0 })
}

// judgeExact compares by equality.
func (r *Result) judgeExact(c *Counter, name string, x, y ratio) {
	c.Old, c.New = x.value(), y.value()
	order := y.compare(x)
	c.Changed = order != 0
	switch {
	case order == 0:
		c.Verdict = Same
	case !c.cost:
		c.Verdict = Unclear
	case order < 0:
		c.Verdict = Better
	case r.Options.allows("counter."+name) || c.Old > 0 && c.New/c.Old-1 <= r.Options.Thresholds["counter"]:
		c.Verdict, c.Accepted = Worse, true
	default:
		c.Verdict = Worse
	}
}

// judgeTimed compares by interval: a timed counter changed if the intervals of the medians do not meet, or with
// too few process runs for those, if the ranges do not. It decides nothing by itself.
func judgeTimed(c *Counter, x, y []ratio) {
	values := func(list []ratio) []float64 {
		out := make([]float64, len(list))
		for i, v := range list {
			out[i] = v.value()
		}
		return out
	}
	a, errA := stats.Summarize(values(x))
	b, errB := stats.Summarize(values(y))
	if errA != nil || errB != nil {
		c.Verdict = Incomparable
		return
	}
	c.Old, c.New = a.Median, b.Median
	span := func(s stats.Summary) [2]float64 {
		if s.Bounded() {
			return [2]float64{s.Low, s.High}
		}
		return [2]float64{s.Min, s.Max}
	}
	c.oldSpan, c.newSpan = span(a), span(b)
	up, down := c.newSpan[0] > c.oldSpan[1], c.newSpan[1] < c.oldSpan[0]
	switch {
	case len(x) < MinRuns || len(y) < MinRuns:
		c.Verdict = Unclear
	case !c.cost && (up || down):
		c.Verdict, c.Changed = Unclear, true
	case up:
		c.Verdict, c.Changed = Worse, true
	case down:
		c.Verdict, c.Changed = Better, true
	default:
		c.Verdict = Same
	}
}

// missingMetric is the reason of a metric that was measured and is not any more.
const missingMetric = "NEW does not have this metric"

// compareMetrics compares the metrics of a pair and says which are tested.
func (r *Result) compareMetrics(p *Pair) {
	a, b := p.old.measured(), p.new.measured()
	p.claims = true
	if crowd := func(x *processRun) bool { return x.crowded }; (slices.ContainsFunc(a, crowd) || slices.ContainsFunc(b, crowd)) &&
		!r.Options.allows("oversubscribed") {
		p.claims = false
	}
	work := ""
	for key, v := range p.old.work {
		if w, ok := p.new.work[key]; ok && w != v && (work == "" || key < work) {
			work = key
		}
	}
	common := func(m metricInfo) bool {
		return !p.imported() || slices.ContainsFunc(p.new.metrics, func(x metricInfo) bool { return x.name == m.name })
	}
	// Of an imported pair, what both tools measure is judged, whatever else a table would show.
	headline := slices.ContainsFunc(p.old.metrics, func(m metricInfo) bool { return m.headline && common(m) })
	if n := len(p.old.metrics); n > 0 {
		p.Metrics = make([]Metric, 0, n)
	}
	for i, info := range p.old.metrics {
		m := Metric{Name: info.name, Unit: info.unit, Class: info.class, Headline: info.headline || !headline, Adjusted: 1}
		j := slices.IndexFunc(p.new.metrics, func(x metricInfo) bool { return x.name == info.name })
		x := column(a, i)
		var y []float64
		if j >= 0 {
			y = column(b, j)
		}
		m.NOld, m.NNew = len(x), len(y)
		if len(x) > 0 && len(y) == 0 {
			m.Verdict, m.Why = Worse, missingMetric
			if p.imported() { // tools measure different things
				m.Verdict = Incomparable
				m.Headline = info.headline
			}
			m.Old, _ = stats.Summarize(x)
			m.Delta, m.P = math.NaN(), 1
			p.Metrics = append(p.Metrics, m)
			continue
		}
		var err error
		m.Comparison, err = stats.Compare(x, y)
		switch {
		case err != nil:
			m.Verdict, m.Why = Incomparable, err.Error()
		case p.new.metrics[j].unit != info.unit || p.new.metrics[j].class != info.class:
			m.Verdict, m.Why = Incomparable, fmt.Sprintf("unit %s and %s", info.unit, p.new.metrics[j].unit)
		case work != "":
			m.Verdict, m.Why = Incomparable, "not the same work: "+work+" differs"
			p.doubt("other_work", "not the same work: "+work+" differs")
		case math.IsNaN(m.Delta) && m.Old.Max == 0 && m.New.Max == 0:
			m.Verdict = Same
		case math.IsNaN(m.Delta):
			m.Verdict, m.Why = Incomparable, "a value of 0 has no ratio"
		case len(x) < MinRuns || len(y) < MinRuns:
			m.Verdict, m.Why = Unclear, "too few process runs"
		case !p.claims:
			m.Verdict, m.Why = Unclear, "oversubscribed"
		default:
			m.Tested = m.Headline || r.Options.AllMetrics
		}
		p.Metrics = append(p.Metrics, m)
	}
	if p.imported() {
		p.onlyNew(b)
	}
}

// onlyNew lists the metrics that OLD does not have.
func (p *Pair) onlyNew(b []*processRun) {
	for j, info := range p.new.metrics {
		y := column(b, j)
		if len(y) == 0 || slices.ContainsFunc(p.old.metrics, func(x metricInfo) bool { return x.name == info.name }) {
			continue
		}
		m := Metric{Name: info.name, Unit: info.unit, Class: info.class, Headline: info.headline, Adjusted: 1, NNew: len(y), Verdict: Incomparable, Why: "OLD does not have this metric"}
		m.New, _ = stats.Summarize(y)
		m.Delta, m.P = math.NaN(), 1
		p.Metrics = append(p.Metrics, m)
	}
}

func column(runs []*processRun, at int) []float64 {
	out := make([]float64, 0, len(runs))
	for _, x := range runs {
		if at < len(x.values) && !math.IsNaN(x.values[at]) {
			out = append(out, x.values[at])
		}
	}
	return out
}

// withinThreshold is the reason of a metric that differs, by less than matters.
const withinThreshold = "differs, within the threshold"

// decideMetric turns numbers into a verdict: worse or better if significant and beyond the threshold; the same
// if the whole interval is within it, or the difference is significant but within it; else unclear.
func (r *Result) decideMetric(m *Metric) {
	if m.Verdict != "" {
		return
	}
	if m.Class == workloads.Number {
		m.Verdict, m.Why = Unclear, "no direction of it is better"
		if m.Bounded() && m.Low == 0 && m.High == 0 {
			m.Verdict, m.Why = Same, ""
		}
		return
	}
	limit := r.Options.Thresholds[string(m.Class)]
	// For a rate to fall by a share is for a time to grow by share/(1-share): each class has its own threshold.
	loss := m.Delta
	if m.Class != workloads.Time {
		loss = -m.Delta
	}
	significant := m.Tested && m.Adjusted < r.Options.Alpha
	switch {
	case significant && loss > limit:
		m.Verdict = Worse
	case significant && loss < -limit:
		m.Verdict = Better
	case significant:
		m.Verdict, m.Why = Same, withinThreshold
	case m.Bounded() && m.Low >= -limit && m.High <= limit:
		m.Verdict = Same
	default:
		m.Verdict = Unclear
		if !m.Tested {
			m.Why = "not tested"
		}
	}
}
