package attribution

import (
	"fmt"
	"slices"
	"strings"

	"gic/backends"
	"gic/harness/record"
)

// Counts explains a gap by how often each unit of work occurs: the difference of the counts times the cost of one.
// Counts are those that the NIC counted, where they are exact; else what the library's file documents.
type Counts struct{}

var _ Method = Counts{}

// Name of the method.
func (Counts) Name() string { return "counts x costs" }

// tally collects the parts of one gap.
type tally struct {
	g     *Gap
	s     *Split
	costs []Cost
}

// Split gives the account of a gap by counts.
func (c Counts) Split(g *Gap) (*Split, error) {
	if _, _, _, ok := g.Times(); !ok {
		return nil, Blind("a row has no %s", g.Metric)
	}
	switch g.Metric {
	case "issue", "put_completion", "message_rate":
	default:
		return nil, Blind("%s is not the cost of one post: what overlaps is not counted", g.Metric)
	}
	t := &tally{g: g, s: &Split{Method: c.Name(), Gap: g}}
	for _, cost := range g.Run.Costs() {
		if a, b := cost.Place.First(), g.Floor.First(); a.NIC == b.NIC && a.Device == b.Device && slices.Equal(sorted(a.NICConfig), sorted(b.NICConfig)) {
			t.costs = append(t.costs, cost)
		}
	}
	if len(t.costs) == 0 {
		return nil, Blind("no unit costs in this run: it needs floor rows of rate with threads=1 at two doorbell batches, of op at several orders")
	}
	if g.Floor.Backend() == "minigda" {
		t.requests()
		t.doorbells()
		t.order()
		t.sharing()
		t.quiet()
	} else {
		t.enqueue()
	}
	if len(t.s.Covers) == 0 {
		return nil, Blind("no count of this row is known: no NIC counted, and nothing is documented")
	}
	if err := t.s.Close(); err != nil {
		return nil, err
	}
	return t.s, t.s.Check()
}

// cost finds a unit cost.
func (t *tally) cost(name, variant string) (Cost, bool) {
	i := slices.IndexFunc(t.costs, func(c Cost) bool { return c.Name == name && c.Variant == variant })
	if i < 0 {
		return Cost{}, false
	}
	return t.costs[i], true
}

// add makes a part of a number of units. Terms that are covered with no difference have no part.
func (t *tally) add(term Name, n float64, what string, cost Quantity, how string, source []string) {
	if !slices.Contains(t.s.Covers, term) {
		t.s.Covers = append(t.s.Covers, term)
	}
	if n == 0 {
		return
	}
	t.s.Parts = append(t.s.Parts, Part{
		Terms: []Name{term}, Quantity: cost.Scale(n), What: what, How: how, Source: source,
	})
}

// perMessage is an exact counter of a row per operation of its message list; the same in every process run.
func perMessage(w *Row, name string) (float64, bool) {
	values, exact := perMessages(w, name)
	if len(values) == 0 || !exact || values[0] != values[len(values)-1] {
		return 0, false
	}
	return values[0], true
}

// perMessages is a counter of a row per operation, of each process run in ascending order, and whether it is declared
// exact.
func perMessages(w *Row, name string) (values []float64, exact bool) {
	exact = true
	for _, c := range w.Cases {
		i := slices.IndexFunc(c.Counters, func(k backends.Counter) bool { return k.Name == name })
		if i < 0 || c.Messages == 0 || c.Status != record.OK && c.Status != record.Unsafe {
			continue
		}
		exact = exact && c.Counters[i].Exact
		values = append(values, float64(c.Counters[i].Value)/float64(c.Messages))
	}
	slices.Sort(values)
	return values, exact
}

// documented is what the library's file says of a unit.
func (t *tally) documented(unit string) (Count, bool) {
	if t.g.Library == nil {
		return Count{}, false
	}
	i := slices.IndexFunc(t.g.Library.Counts, func(c Count) bool { return c.Unit == unit && acts(c.Workloads, c.Metrics, t.g) })
	if i < 0 {
		return Count{}, false
	}
	return t.g.Library.Counts[i], true
}

// counted is how often a unit occurs per operation in the library and on the floor, and where that is from.
func (t *tally) counted(counter, unit string, floorHas float64) (library, floor float64, from []string, ok bool) {
	a, exactA := perMessages(t.g.Row, counter)
	b, exactB := perMessages(t.g.Floor, counter)
	if len(a) > 0 && len(b) > 0 {
		what := "NIC counter " + counter
		for _, v := range []struct {
			values []float64
			exact  bool
		}{{a, exactA}, {b, exactB}} {
			if n := len(v.values); !v.exact {
				what += fmt.Sprintf(", timed: %s..%s of %d process runs", number(v.values[0]), number(v.values[n-1]), n)
			}
		}
		return a[len(a)/2], b[len(b)/2], []string{what}, true
	}
	d, ok := t.documented(unit)
	return d.PerOp, floorHas, append([]string{d.What}, d.Source...), ok
}

// requests counts work requests beyond the floor's.
func (t *tally) requests() {
	c, ok := t.cost("wqe", "")
	if !ok {
		return
	}
	library, floor, from, ok := t.counted("wqes", "wqe", 1)
	if !ok {
		return
	}
	term := SignalProtocol
	if w := t.g.Row.First().Workload; w == "moe" || w == "alltoall" {
		term = Algorithm
	}
	n := library - floor
	t.add(term, n, fmt.Sprintf("%s WQEs per operation against %s", number(library), number(floor)), c.Quantity,
		fmt.Sprintf("%s x %s per WQE", signedNumber(n), micro(c.Value)), from)
}

// doorbells counts doorbells: fewer than one per operation are a batch, more than one are the doorbell path.
func (t *tally) doorbells() {
	c, ok := t.cost("doorbell", "")
	if !ok {
		return
	}
	library, floor, from, ok := t.counted("doorbells", "doorbell", t.floorBells())
	if !ok {
		return
	}
	// The cost of a doorbell was measured with the default order; another order's extra is the ordering term's.
	batching := min(library, 1) - min(floor, 1)
	path := max(library, 1) - max(floor, 1)
	how := func(n float64) string { return fmt.Sprintf("%s x %s per doorbell", signedNumber(n), micro(c.Value)) }
	what := fmt.Sprintf("%s doorbells per operation against %s", number(library), number(floor))
	t.add(DoorbellBatching, batching, what, c.Quantity, how(batching), from)
	t.add(DoorbellPath, path, what, c.Quantity, how(path), from)
}

// floorBells is the number of doorbells per operation that the floor's batch means.
func (t *tally) floorBells() float64 {
	if b, ok := config(t.g.Floor, "batch"); ok && b > 0 {
		return 1 / b
	}
	return 1
}

// choice is the value of a floor's key that stands for the library.
func (t *tally) choice(key string) (Choice, bool) {
	list := t.g.choices()
	i := slices.IndexFunc(list, func(c Choice) bool { return c.Key == key })
	if i < 0 {
		return Choice{}, false
	}
	return list[i], true
}

// order counts what the library's order costs more per doorbell.
func (t *tally) order() {
	choice, ok := t.choice("order")
	if !ok {
		return
	}
	theirs, ok1 := t.cost("order", choice.Value)
	ours, ok2 := t.cost("order", t.g.Floor.Config("order"))
	if !ok1 || !ok2 {
		return
	}
	bells, _, _, ok := t.counted("doorbells", "doorbell", t.floorBells())
	if !ok {
		return
	}
	n := bells
	if choice.Value == t.g.Floor.Config("order") {
		n = 0
	}
	each := theirs.Sub(ours.Quantity)
	t.add(Ordering, n, fmt.Sprintf("order %s -> %s", t.g.Floor.Config("order"), choice.Value), each,
		fmt.Sprintf("%s doorbells x %s", number(bells), signedMicro(each.Value)), choice.Source)
}

// sharing counts locks and hand-offs of slots.
func (t *tally) sharing() {
	choice, chosen := t.choice("sharing")
	from := t.g.Floor.Config("sharing")
	if chosen && choice.Value == from {
		t.add(QueueSharing, 0, "", Quantity{}, "", nil)
		return
	}
	for _, unit := range []string{"lock", "handoff", "warp"} {
		n, source := 0.0, []string(nil)
		if d, ok := t.documented(unit); ok {
			n, source = d.PerOp, append([]string{d.What}, d.Source...)
		} else if chosen && choice.Value == unit && t.g.Row.First().Workload == "op" {
			n, source = 1, choice.Source
		}
		c, ok := t.cost(unit, "")
		if n == 0 || !ok || from != "exclusive" {
			continue
		}
		t.add(QueueSharing, n, fmt.Sprintf("%s %s per operation", number(n), unit), c.Quantity,
			fmt.Sprintf("%s x %s", number(n), micro(c.Value)), source)
	}
}

// quiet counts the queues that a wider completion looks at.
func (t *tally) quiet() {
	choice, chosen := t.choice("scope")
	if !chosen {
		return
	}
	if t.g.Metric != "put_completion" || choice.Value == t.g.Floor.Config("scope") {
		t.add(CompletionScope, 0, "", Quantity{}, "", nil)
		return
	}
	c, ok := t.cost("quiet_queue", "")
	qps, ok2 := config(t.g.Row, "qps")
	if !ok || !ok2 || choice.Value != "all" {
		return
	}
	n := qps*float64(max(t.g.Row.First().Ranks-1, 1)) - 1
	t.add(CompletionScope, n, fmt.Sprintf("%s queues more to look at", number(n)), c.Quantity,
		fmt.Sprintf("%s x %s per queue", number(n), micro(c.Value)), choice.Source)
}

// enqueue counts the hand-off to a proxy.
func (t *tally) enqueue() {
	choice, ok := t.choice("handoff")
	if !ok || t.g.Metric != "issue" {
		return
	}
	theirs, ok1 := t.cost("enqueue", choice.Value)
	ours, ok2 := t.cost("enqueue", t.g.Floor.Config("handoff"))
	if !ok1 || !ok2 {
		return
	}
	n := 1.0
	if choice.Value == t.g.Floor.Config("handoff") {
		n = 0
	}
	each := theirs.Sub(ours.Quantity)
	t.add(ProxyHandoff, n, fmt.Sprintf("hand-off %s -> %s", t.g.Floor.Config("handoff"), choice.Value), each,
		strings.Join([]string{"1 enqueue x", signedMicro(each.Value)}, " "), choice.Source)
}
