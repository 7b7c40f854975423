package importer

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"gic/harness/record"
	"gic/workloads"
)

// A csv file has a head, then one line per value. gic's own (`--format csv`) has the median over the process runs
// of a row; one written by hand needs workload, backend, metric, value and unit, and may have index (the process
// run), nic, device, ranks, seed, status, reason and columns workload.AXIS, backend.KEY, nic.KEY, fact.NAME.

var (
	csvNeeds = []string{"workload", "backend", "metric", "unit"}
	csvMay   = []string{"value", "index", "nic", "device", "ranks", "seed", "status", "reason", "headline"}
	// csvOwn are the columns of gic's csv that are taken or implied beside those.
	csvOwn = []string{
		"n", "median", "p99", "min", "p90", "max", "samples", "run_min", "run_max", "ci_low", "ci_high", "class", "verified",
		"best_floor", "ratio", "gap", "warnings", "run",
	}
)

func likeCSV(data []byte) bool {
	head, _, _ := bytes.Cut(bytes.TrimPrefix(data, []byte("\ufeff")), []byte("\n"))
	cols := strings.Split(strings.TrimSpace(string(head)), ",")
	return slices.Contains(cols, "workload") && slices.Contains(cols, "metric")
}

// csvTable is the head of a file.
type csvTable struct {
	at    map[string]int
	keys  []string // columns of axes and of configurations
	facts []string // columns of facts
	long  bool     // gic's own
}

func (s *source) parseCSV() {
	r := csv.NewReader(bytes.NewReader(s.data))
	r.ReuseRecord = true
	r.FieldsPerRecord = -1
	head, err := r.Read()
	if err != nil {
		s.fatal = fmt.Errorf("csv: %w", err)
		return
	}
	t, err := csvHead(head)
	if err != nil {
		s.fatal = err
		return
	}
	width := len(head)
	for {
		row, err := r.Read()
		if err == io.EOF {
			return
		}
		var parse *csv.ParseError
		if errors.As(err, &parse) {
			s.problem(parse.Line, "csv: %v", parse.Err)
			if errors.Is(parse.Err, csv.ErrQuote) || errors.Is(parse.Err, csv.ErrBareQuote) {
				continue
			}
			return
		} else if err != nil {
			s.problem(0, "csv: %v", err)
			return
		}
		line, _ := r.FieldPos(0)
		if len(row) != width {
			s.problem(line, "%d columns, the head has %d", len(row), width)
			continue
		}
		s.csvRow(line, t, row)
		if s.fatal != nil {
			return
		}
	}
}

func csvHead(head []string) (*csvTable, error) {
	t := &csvTable{at: map[string]int{}}
	for i, name := range head {
		name = strings.TrimSpace(name)
		if _, twice := t.at[name]; twice {
			return nil, fmt.Errorf("column %q is there twice", name)
		}
		t.at[name] = i
		group, _, dotted := strings.Cut(name, ".")
		switch {
		case dotted && (group == "workload" || group == "backend" || group == "nic"):
			t.keys = append(t.keys, strings.Clone(name))
		case dotted && group == "fact":
			t.facts = append(t.facts, strings.Clone(name))
		case slices.Contains(csvNeeds, name), slices.Contains(csvMay, name), slices.Contains(csvOwn, name):
		default:
			return nil, fmt.Errorf("column %q is not known; allowed: %s, %s, workload.AXIS, backend.KEY, nic.KEY, fact.NAME", name,
				strings.Join(csvNeeds, ", "), strings.Join(csvMay, ", "))
		}
	}
	_, median := t.at["median"]
	_, value := t.at["value"]
	if t.long = median; median == value {
		return nil, errors.New("either a column value is needed, or median as in gic's csv")
	}
	for _, name := range csvNeeds {
		if _, ok := t.at[name]; !ok {
			return nil, fmt.Errorf("column %q is missing", name)
		}
	}
	return t, nil
}

func (s *source) csvRow(line int, t *csvTable, row []string) {
	get := func(name string) string {
		if i, ok := t.at[name]; ok {
			return strings.Clone(strings.TrimSpace(row[i]))
		}
		return ""
	}
	r := reading{
		line: line, workload: get("workload"), backend: get("backend"), axes: map[string]string{}, config: map[string]string{},
		facts: map[string]any{}, reason: get("reason"),
	}
	if r.workload == "" || r.backend == "" {
		s.problem(line, "workload %q and backend %q must be named", r.workload, r.backend)
		return
	}
	for _, name := range t.keys {
		if v := get(name); v != "" {
			if err := r.set(record.KeyValue{Key: name, Value: v}); err != nil {
				s.problem(line, "%v", err)
				return
			}
		}
	}
	for _, name := range []string{"nic", "device", "ranks"} {
		if v := get(name); v != "" {
			if err := r.setPlain(record.KeyValue{Key: name, Value: v}); err != nil {
				s.problem(line, "%v", err)
				return
			}
		}
	}
	r.facts = csvFacts(get)
	for _, name := range t.facts {
		if v := get(name); v != "" {
			r.facts[strings.TrimPrefix(name, "fact.")] = v
		}
	}
	if !s.csvIdentity(line, &r, get) {
		return
	}
	if r.status == record.OK || get("metric") != "" {
		if !s.csvMetrics(line, &r, t, get) {
			return
		}
	}
	s.add(r)
}

func csvFacts(get func(string) string) map[string]any {
	facts := map[string]any{}
	if n, err := strconv.Atoi(get("n")); err == nil && n > 0 {
		facts["process_runs"] = n // of which the value is the median
	}
	if run := get("run"); run != "" {
		facts["run"] = run
	}
	return facts
}

// csvIdentity takes process run, seed and status.
func (s *source) csvIdentity(line int, r *reading, get func(string) string) bool {
	s.process = 0
	if v := get("index"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			s.problem(line, "index is %s, not 0 or more", quote(v))
			return false
		}
		s.process = n
	}
	if v := get("seed"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			s.problem(line, "seed is %s, not an integer", quote(v))
			return false
		}
		r.seed = n
	}
	r.status = record.Status(get("status"))
	switch r.status {
	case "":
		r.status = record.OK
	case record.OK, record.Skipped, record.Failed, record.Timeout, record.Unverified, record.Unsafe:
	default:
		s.problem(line, "status %s is not one of ok, skipped, failed, timeout, unverified, unsafe", quote(string(r.status)))
		return false
	}
	if r.status == record.OK {
		r.reason = ""
	} else if r.reason == "" {
		s.problem(line, "status %s without a reason", r.status)
		return false
	}
	return true
}

func (s *source) csvMetrics(line int, r *reading, t *csvTable, get func(string) string) bool {
	name := get("metric")
	if !keyName.MatchString(name) || strings.Contains(name, ".") {
		s.problem(line, "metric %s is not lower-case letters, digits and _", quote(name))
		return false
	}
	u, ok := units[get("unit")]
	if !ok {
		s.problem(line, "unit %s of %s is not known; allowed: s, ms, us, ns, msg/s, Mpps, B/s, GB/s, MiB/s, Gb/s and the like",
			quote(get("unit")), name)
		return false
	}
	column, others := "value", []string(nil)
	if t.long {
		column, others = "median", []string{"p90", "p99"}
	}
	v, ok := s.quantity(line, name, get(column))
	if !ok {
		return false
	}
	// gic's csv does not say; beside a run, the run's own headlines count.
	headline := !t.long && get("headline") != "false"
	r.metrics = []workloads.Metric{u.metric(name, headline, v)}
	for _, p := range others {
		if text := get(p); text != "" {
			if v, ok = s.quantity(line, p, text); !ok {
				return false
			}
			r.metrics = append(r.metrics, u.metric(name+"_"+p, false, v))
		}
	}
	return true
}
