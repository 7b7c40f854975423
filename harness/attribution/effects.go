package attribution

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gic/harness/record"
	"gic/workloads"
)

// Effect is what one choice makes in one stack, everything else being equal: two rows that differ in one key, or a
// published difference. It needs no floor and no library file, and is never added to anything.
type Effect struct {
	Term     Name
	Run      *Run
	Stack    string // backend and what both rows share of its configuration
	Key      string // what differs: "order"
	FromWhat string // its values: "gpu-fence", "threadfence"
	ToWhat   string
	Metric   string
	Class    workloads.Class // of the metric; a rate's quantities are times per message, a bandwidth's times per byte
	From, To Quantity        // zero where only the difference is published
	Delta    Quantity
	FromRow  *Row
	ToRow    *Row
	Note     string
}

// Relative is the change as a share of where it starts: of the time, or of the rate; ok is false where that is not
// known.
func (e Effect) Relative() (float64, bool) {
	switch {
	case e.From.Value == 0 || e.To.Value == 0:
		return 0, false
	case e.Class == workloads.Time:
		return float64(e.Delta.Value) / float64(e.From.Value), true
	}
	return float64(e.From.Value)/float64(e.To.Value) - 1, true
}

func (e Effect) backend() string { return e.ToRow.Backend() }

// Change is the choice in words.
func (e Effect) Change() string {
	if e.FromWhat == "" {
		return e.Key + " -> " + e.ToWhat
	}
	return fmt.Sprintf("%s %s -> %s", e.Key, e.FromWhat, e.ToWhat)
}

// keyTerms says which term a key of any stack, or an axis of a workload, is about. Keys that are only a size, a
// length or a name are not there.
var keyTerms = map[string]Name{
	"backend.order": Ordering, "backend.sharing": QueueSharing, "backend.ring_mode": QueueSharing, "backend.syncwarp": QueueSharing,
	"backend.batch": DoorbellBatching, "backend.inline": Placement, "backend.queue": Placement, "backend.counter": Placement,
	"backend.doorbell": DoorbellPath, "backend.scope": CompletionScope, "backend.handoff": ProxyHandoff, "backend.payload": ProxyHandoff,
	"backend.workers": ProxyWorker, "workload.cpu": ProxyWorker, "backend.transport": ConnectionState, "backend.dci": ConnectionState,
	"workload.role": ConnectionState, "workload.active": ConnectionState, "workload.layout": Algorithm, "backend.api": QueueManagement,
	"backend.qps": ConnectionState,
}

// termOfOwn is what a key of a row, "backend.KEY" or "workload.AXIS", is about; "" where it is only a size or a name.
func (r *Run) termOfOwn(w *Row, key string) Name {
	if v := w.Config("scope"); key == "backend.scope" && (v == "qp" || v == "peer" || v == "all" || strings.HasPrefix(v, "qp-")) {
		return CompletionScope // others call the caller's scope so
	}
	if own, ok := strings.CutPrefix(key, "backend."); ok {
		if n := termOfKey(w.Backend(), own); n != "" {
			return n
		}
	}
	for _, l := range r.libraries {
		if l.Terms != nil && l.Matches(w) {
			if own, ok := strings.CutPrefix(key, "backend."); ok {
				if n, ok := l.Terms[own]; ok {
					return n
				}
			}
		}
	}
	return keyTerms[key]
}

// Effects finds all pairs of rows of a run that differ in one key, and the published differences.
func (r *Run) Effects(keep func(*Row) bool) []Effect {
	var out []Effect
	groups := map[string][]*Row{}
	var order []string
	for _, w := range r.Rows {
		if keep != nil && !keep(w) {
			continue
		}
		c := w.First()
		switch c.Workload {
		case effectWorkload:
			out = append(out, r.published(w)...)
			continue
		case clockWorkload:
			out = append(out, r.clocks(w)...)
			continue
		case "conform": // how long a test took is no measurement
			continue
		}
		if w.Status() != record.OK {
			continue
		}
		for _, key := range w.effectKeys() {
			id := w.without(key)
			if groups[id] == nil {
				order = append(order, id)
			}
			groups[id] = append(groups[id], w)
		}
	}
	for _, id := range order {
		key, _, _ := strings.Cut(id, "\x00")
		out = append(out, r.compare(groups[id], key)...)
	}
	at := func(e Effect) int { return slices.IndexFunc(terms, func(t Term) bool { return t.Name == e.Term }) }
	slices.SortStableFunc(out, func(a, b Effect) int {
		return cmp.Or(at(a)-at(b), strings.Compare(a.backend(), b.backend()))
	})
	return out
}

// effectKeys are the keys of a row that a term is about.
func (w *Row) effectKeys() []string {
	var out []string
	c := w.First()
	for _, k := range keysOf([]*Row{w}, c.Backend) {
		if w.Run.termOfOwn(w, "backend."+k) != "" && w.Config(k) != "" {
			out = append(out, "backend."+k)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(c.Axes)) {
		if _, ok := keyTerms["workload."+k]; ok {
			out = append(out, "workload."+k)
		}
	}
	return out
}

// without is the identity of a row but for one key.
func (w *Row) without(key string) string {
	c := w.First()
	parts := []string{key, c.Workload, c.Backend, c.NIC, c.Device, strconv.Itoa(c.Ranks)}
	for _, k := range slices.Sorted(maps.Keys(c.Axes)) {
		if "workload."+k != key {
			parts = append(parts, k+"="+c.Axes[k])
		}
	}
	for _, k := range keysOf([]*Row{w}, c.Backend) {
		if "backend."+k != key {
			parts = append(parts, k+"="+w.Config(k))
		}
	}
	return strings.Join(append(parts, sorted(c.NICConfig)...), "\x00")
}

// compare sets the rows of a group against its base: the default of the key, or the first of its values.
func (r *Run) compare(rows []*Row, key string) []Effect {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b *Row) int { return natural(value(a, key), value(b, key)) })
	rows = slices.CompactFunc(rows, func(a, b *Row) bool { return value(a, key) == value(b, key) })
	if len(rows) < 2 {
		return nil
	}
	base := rows[0]
	name := key[strings.Index(key, ".")+1:]
	if def := r.base(base.Backend(), name); def != "" {
		if i := slices.IndexFunc(rows, func(w *Row) bool { return value(w, key) == def }); i >= 0 {
			base = rows[i]
		}
	}
	if first, ok := preferred[key]; ok {
		if i := slices.IndexFunc(rows, func(w *Row) bool { return value(w, key) == first }); i >= 0 {
			base = rows[i]
		}
	}
	var out []Effect
	for _, metric := range base.Metrics() {
		from, class, ok := base.inverse(metric)
		if !ok || metric == "copy_bandwidth_large" { // the copy engine's, whatever the row's choices
			continue
		}
		for _, w := range rows {
			to, _, ok := w.inverse(metric)
			if !ok || w == base {
				continue
			}
			out = append(out, Effect{
				Term: termOfEffect(w, key, metric), Run: r, Stack: base.stack(key), Metric: metric, Class: class, From: from, To: to,
				Delta: to.Sub(from), Key: name, FromWhat: value(base, key), ToWhat: value(w, key), FromRow: base, ToRow: w,
			})
		}
	}
	return out
}

// inverse is a metric as a time: a rate as the time per message, a bandwidth as the time per byte.
func (w *Row) inverse(metric string) (Quantity, workloads.Class, bool) {
	m, ok := w.Metric(metric)
	if !ok || strings.HasSuffix(metric, "_p99") || strings.HasSuffix(metric, "_p90") {
		return Quantity{}, "", false
	}
	if m.Class != workloads.Bandwidth {
		q, ok := w.Time(metric)
		return q, m.Class, ok
	}
	var values []float64
	for _, c := range w.Cases {
		for i := range c.Metrics {
			if m := &c.Metrics[i]; m.Name == metric && m.P50 > 0 && c.Status == record.OK {
				values = append(values, 1/m.P50)
			}
		}
	}
	q, err := FromRuns(w.key()+"/"+metric, values)
	return q, m.Class, err == nil
}

// preferred are the values that a change starts from, where that is not the default or the smallest.
var preferred = map[string]string{
	"backend.ring_mode": "private", "backend.scope": "qp", "workload.cpu": "warm", "workload.role": "send", "workload.active": "few", "backend.api": "internal", "backend.level": "internal",
}

// termOfEffect is the term of a key; more queues under a quiet that waits for all of them are its scope.
func termOfEffect(w *Row, key, metric string) Name {
	scope := w.Config("scope")
	if w.Config("completion") != "" {
		scope = w.Config("completion")
	}
	if (key == "backend.qps" || key == "backend.rc") && metric == "put_completion" && (scope == "all" || scope == "peer") {
		return CompletionScope
	}
	return w.Run.termOfOwn(w, key)
}

// stack names the backend, its configuration but for a key, and the point.
func (w *Row) stack(key string) string {
	c := w.First()
	parts := []string{c.Backend}
	for _, k := range slices.Sorted(maps.Keys(c.Config)) {
		if "backend."+k == key {
			continue
		}
		if w.Run.tells(c.Backend, k, c.Config[k]) {
			parts = append(parts, k+"="+c.Config[k])
		}
	}
	for _, k := range slices.Sorted(maps.Keys(c.Axes)) {
		if "workload."+k != key && (w.Run == nil || w.Run.varies(c.Workload, k)) {
			parts = append(parts, k+"="+c.Axes[k])
		}
	}
	return strings.Join(append(parts, w.where()...), " ")
}

// published are the differences that a record gives without their two ends.
func (r *Run) published(w *Row) []Effect {
	c := w.First()
	var out []Effect
	for _, metric := range w.Metrics() {
		m, _ := w.Metric(metric)
		q, ok := w.Time(metric)
		if !ok || m.Class != workloads.Time {
			continue
		}
		base, kind := metric, ""
		for _, suffix := range []string{"_added_low", "_added_high", "_added", "_saved"} {
			if b, found := strings.CutSuffix(metric, suffix); found {
				base, kind = b, suffix
				break
			}
		}
		if kind == "" {
			continue
		}
		if kind == "_saved" {
			q = q.Scale(-1)
		}
		for _, k := range slices.Sorted(maps.Keys(c.Config)) {
			v, term := c.Config[k], r.termOfOwn(w, "backend."+k)
			if term == "" || len(c.Config) > 2 {
				continue
			}
			out = append(out, Effect{
				Term: term, Run: r, Stack: w.stack("backend." + k), Metric: base, Class: m.Class, Delta: q, Key: k, ToWhat: v, ToRow: w,
				Note: strings.TrimPrefix(strings.TrimPrefix(kind, "_added"), "_"),
			})
		}
	}
	return out
}

// clockWorkload are records of a fit T(f) = C/f + B: C in <metric>_cycles, B in <metric>_constant.
const clockWorkload = "sm_clock"

// validClocks are the ends of the published fits, in Hz. Outside them nothing is claimed.
var validClocks = [2]float64{1845e6, 502e6}

// clocks is what the clock of the multiprocessor makes between the two ends of a fit.
func (r *Run) clocks(w *Row) []Effect {
	var out []Effect
	for _, name := range w.Metrics() {
		metric, ok := strings.CutSuffix(name, "_cycles")
		if !ok {
			continue
		}
		cycles, _ := w.Metric(name)
		constant, ok := w.Time(metric + "_constant")
		if !ok {
			continue
		}
		at := func(f float64) Quantity { return constant.Add(Exact(cycles.P50 / f)) }
		from, to := at(validClocks[0]), at(validClocks[1])
		out = append(out, Effect{
			Term: SMClock, Run: r, Stack: w.Label(), Metric: metric, Class: workloads.Time, From: from, To: to, Delta: to.Sub(from),
			Key: "SM clock", FromWhat: "1845 MHz", ToWhat: "502 MHz", FromRow: w, ToRow: w,
			Note: fmt.Sprintf("%.0f cycles + %s", cycles.P50, micro(constant.Value)),
		})
	}
	return out
}

// natural orders numbers by value and before words.
func natural(a, b string) int {
	x, errA := strconv.ParseFloat(a, 64)
	y, errB := strconv.ParseFloat(b, 64)
	switch {
	case errA == nil && errB == nil:
		return cmp.Compare(x, y)
	case errA == nil:
		return -1
	case errB == nil:
		return 1
	}
	return strings.Compare(a, b)
}
