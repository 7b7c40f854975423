package check

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gic/harness/attribution/oracle"
	"gic/harness/record"
)

// notGiven is what the records say where the paper says nothing.
const notGiven = "not given"

// ReadRows reads the figures below a folder laid out as results/paper: a folder per platform with its run.jsonl.
func ReadRows(dir string) ([]*Row, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*", "run.jsonl"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s holds no PLATFORM/run.jsonl: the rows of the paper are in results/paper of the source tree", dir)
	}
	slices.Sort(files)
	r := reader{same: map[string]string{}, ids: map[string]bool{}}
	for _, file := range files {
		if err := r.read(file); err != nil {
			return nil, err
		}
	}
	return r.rows, nil
}

type reader struct {
	rows []*Row
	same map[string]string // first row by everything that tells a measurement from others
	ids  map[string]bool
}

func (r *reader) read(file string) error {
	var header *record.Header
	for rec, err := range record.ReadFile(file) {
		if err != nil {
			return err
		}
		switch rec := rec.(type) {
		case *record.Header:
			header = rec
			if err := r.link(header); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		case *record.Case:
			if header == nil {
				return fmt.Errorf("%s is no run file: it does not begin with a header", file)
			}
			for i := range rec.Metrics {
				r.add(header, rec, &rec.Metrics[i])
			}
		case *record.Bad:
			return rec
		}
	}
	return nil
}

// link makes a row of the line rate in Table 2.
func (r *reader) link(h *record.Header) error {
	text := ""
	if len(h.Host.RDMA) > 0 {
		if nic, ok := h.Host.RDMA[0].(map[string]any); ok {
			text, _ = nic["link"].(string)
		}
	}
	rate, _, ok := strings.Cut(text, " Gb/s")
	gbits, err := strconv.ParseFloat(rate, 64)
	if !ok || err != nil {
		return fmt.Errorf("link %q of %s is no rate in Gb/s", text, h.Host.Hostname)
	}
	r.rows = append(r.rows, &Row{
		ID: h.Host.Hostname + ", Table 2, link", Platform: h.Host.Hostname, Where: "Table 2", Workload: "platform",
		Quantity: "link", Value: gbits * 1e9 / 8, Unit: "B/s", Conditions: oracle.Conditions{},
	})
	return nil
}

func (r *reader) add(h *record.Header, c *record.Case, m *record.Metric) {
	table, _ := c.Facts["table"].(string)
	row := &Row{
		Platform: h.Host.Hostname, Where: table, Workload: c.Workload, Quantity: quantity(c.Workload, m.Name), Value: m.P50, Unit: m.Unit,
		Conditions: conditions(h, c, table),
	}
	row.ID = r.name(row, c, m)
	key := row.Platform + "\x00" + row.Quantity + "\x00" + fmt.Sprint(map[string]string(row.Conditions), row.Value)
	if first, seen := r.same[key]; seen {
		row.Same = first
	} else {
		r.same[key] = row.ID
	}
	r.rows = append(r.rows, row)
}

// quantity tells metrics of other work apart from those of the same name that the oracle has models of.
func quantity(workload, metric string) string {
	switch workload {
	case "op", "rate", "goodput", "connections", "sm_clock", "effect":
		return metric
	}
	return workload + "_" + metric
}

// defaulted are the keys that a row does not name because all rows of single operations have the floor's default.
// A rate's queues, batches and workers are never a default.
var defaulted = map[string][]string{
	"op": nil, // all
	"":   {"order", "inline", "transport", "doorbell", "queue", "scope", "handoff"},
}

// conditions of a case: its keys, the floors' defaults, and what the captions say.
func conditions(h *record.Header, c *record.Case, table string) oracle.Conditions {
	q := oracle.Conditions{"backend": c.Backend}
	keys, all := defaulted[c.Workload]
	if !all {
		keys = defaulted[""]
	}
	for k, v := range h.Defaults[c.Backend] {
		if all || slices.Contains(keys, k) {
			q[k] = v
		}
	}
	maps.Copy(q, c.Axes)
	maps.Copy(q, c.Config)
	for k, v := range q {
		if v == notGiven {
			delete(q, k)
		}
	}
	for _, x := range captions {
		if x.matches(table, c, q) {
			q[x.key] = x.value
		}
	}
	addQueues(q)
	return q
}

// caption is a condition that the paper gives for a whole table.
type caption struct {
	table, backend, key, value string
	proxies                    bool
	pattern                    string
	why                        string
}

var captions = []caption{
	{table: "Table 3", key: "cpu", value: "cold", proxies: true, why: "its figures are those of the cold columns of Table 9"},
	{table: "Fig. 10", key: "burst", value: "32", pattern: "pairs", why: "32 writes per connection visit unless varied"},
	{table: "text, proxies", backend: "nvshmem", key: "threads", value: "saturating", why: "the figure is a ceiling"},
	{table: "text, proxies", backend: "miniproxy", key: "threads", value: "saturating", why: "the figure is a ceiling"},
	{table: "Table 12", backend: "nvshmem", key: "threads", value: "saturating", why: "the table is of the best goodput"},
	{table: "Table 12", backend: "miniproxy", key: "threads", value: "saturating", why: "the table is of the best goodput"},
	{table: "Table 12", backend: "miniproxy", key: "workers", value: "8", why: "the one configuration of mini-proxy on P-GB200 in the paper"},
	{table: "Table 12", backend: "miniproxy", key: "batch", value: "16", why: "the same"},
	{table: "Table 13", backend: "nvshmem", key: "threads", value: "saturating", why: "the table is of ceilings"},
	{table: "text, payload", backend: "minigda", key: "threads", value: "saturating", why: "the sweep is of the best goodput"},
	{table: "text, rate", backend: "minigda", key: "threads", value: "saturating", why: "the figures are ceilings"},
}

func (x *caption) matches(table string, c *record.Case, q oracle.Conditions) bool {
	proxy := c.Backend == "miniproxy" || q["path"] == "proxy" || q["path"] == "ibrc"
	return strings.HasPrefix(table, x.table) && (x.backend == "" || x.backend == c.Backend) && (!x.proxies || proxy) &&
		(x.pattern == "" || x.pattern == q["pattern"]) && q[x.key] == ""
}

// addQueues counts the queues that a completion of all of them polls, where the row says them.
func addQueues(q oracle.Conditions) {
	rc, err := q.Number("qps")
	if err != nil || q["backend"] != "nvshmem" {
		return
	}
	dc := 0.0
	for _, key := range []string{"dci", "dci_created"} {
		if v, err := q.Number(key); err == nil {
			dc = max(dc, v)
		}
	}
	q["queues"] = strconv.FormatFloat(rc+dc, 'g', -1, 64)
}

// name is a row's identifier: where it stands and what of its own keys tells it apart.
func (r *reader) name(row *Row, c *record.Case, m *record.Metric) string {
	var parts []string
	own := oracle.Conditions{}
	maps.Copy(own, c.Axes)
	maps.Copy(own, c.Config)
	for _, k := range slices.Sorted(maps.Keys(own)) {
		switch v := own[k]; {
		case v == notGiven, k == "op" && v == "put", k == "size" && v == "8", k == "pattern" && v == "pairs":
		default:
			parts = append(parts, k+"="+v)
		}
	}
	id := row.Platform + ", " + row.Where + ", " + strings.Join(append([]string{c.Backend}, parts...), " ") + ", " + m.Name
	for n := 2; r.ids[id]; n++ {
		id = fmt.Sprintf("%s (%d)", strings.TrimSuffix(id, fmt.Sprintf(" (%d)", n-1)), n)
	}
	r.ids[id] = true
	return id
}
