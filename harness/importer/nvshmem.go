package importer

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"

	"gic/workloads"
)

// NVSHMEM perftest prints tables (utils.cu, print_table_*), or lines &&&& PERF with
// NVSHMEM_MACHINE_READABLE_OUTPUT. GB is 1e9 bytes, MMPS 1e6 messages, latencies are us and means over the
// iterations. Point-to-point tests are of two PEs; of a collective the number is said by "mype:" lines at most.

func likeNVSHMEM(data []byte) bool {
	return bytes.Contains(data, []byte("&&&& PERF")) || bytes.Contains(data, []byte("size(B)")) ||
		bytes.Contains(data, []byte("| shmem_")) || bytes.Contains(data, []byte("| size (Bytes)"))
}

var (
	nvshmemName = regexp.MustCompile(`^#\s*([A-Za-z_][A-Za-z0-9_]*)\s*$`)
	nvshmemJob  = regexp.MustCompile(`^[a-z][A-Za-z0-9_]*$`)
	nvshmemPE   = regexp.MustCompile(`^mype: ?(\d+)`)
)

// nvshmemTable is the table being read.
type nvshmemTable struct {
	job, scope string
	columns    []string
}

func (s *source) parseNVSHMEM() {
	var t nvshmemTable
	pes := map[string]bool{}
	for line, text := range s.lines() {
		trimmed := strings.TrimSpace(text)
		name := nvshmemName.FindStringSubmatch(trimmed)
		pe := nvshmemPE.FindStringSubmatch(trimmed)
		switch {
		case trimmed == "" || strings.Trim(trimmed, "+-") == "":
		case pe != nil:
			if pes[pe[1]] { // a test begins anew
				clear(pes)
				s.process++
			}
			pes[pe[1]] = true
		case name != nil:
			t = nvshmemTable{job: name[1]}
		case strings.HasPrefix(trimmed, "&&&& PERF "):
			s.nvshmemPerf(line, strings.TrimPrefix(trimmed, "&&&& PERF "), len(pes))
		case strings.HasPrefix(trimmed, "size(B)"):
			t.columns = strings.Fields(strings.ReplaceAll(trimmed, " (", "("))
		case strings.HasPrefix(trimmed, "|"):
			s.nvshmemBoxed(line, trimmed, &t, len(pes))
		case t.columns != nil && trimmed[0] >= '0' && trimmed[0] <= '9':
			s.nvshmemRow(line, strings.Fields(trimmed), &t, len(pes))
		case nvshmemJob.MatchString(trimmed): // the name above machine-readable lines
		default:
			s.passed(line, text)
		}
		if s.fatal != nil {
			return
		}
	}
}

// nvshmemBoxed reads a line of the boxed tables that releases before 3 print.
func (s *source) nvshmemBoxed(line int, text string, t *nvshmemTable, pes int) {
	var cells []string
	for cell := range strings.SplitSeq(strings.Trim(text, "|"), "|") {
		cells = append(cells, strings.TrimSpace(cell))
	}
	switch {
	case len(cells) < 2:
		s.passed(line, text)
	case strings.HasPrefix(cells[0], "size"):
		t.columns = []string{"size(B)"}
		for _, c := range cells[1:] {
			name, unit, _ := strings.Cut(c, " ")
			t.columns = append(t.columns, name+"("+strings.Trim(unit, "()")+")")
		}
	case cells[0] != "" && (cells[0][0] < '0' || cells[0][0] > '9'):
		*t = nvshmemTable{job: cells[0], scope: cells[1]}
	case t.columns == nil:
		s.passed(line, text)
	default:
		s.nvshmemRow(line, cells, t, pes)
	}
}

// nvshmemRow reads a row: a size, texts (of which some may be empty), and numbers at the end.
func (s *source) nvshmemRow(line int, f []string, t *nvshmemTable, pes int) {
	texts, numbers := []string{}, []string{}
	for _, c := range t.columns[1:] {
		if strings.HasSuffix(c, ")") || c == "count" {
			numbers = append(numbers, c)
		} else {
			texts = append(texts, c)
		}
	}
	if len(f) > len(t.columns) || len(f) < 1+len(numbers) {
		s.problem(line, "a row of %d values under %d columns", len(f), len(t.columns))
		return
	}
	info := map[string]string{"scope": t.scope}
	values := f[1:]
	missing := len(t.columns) - len(f)
	pairs := map[string]string{}
	for _, c := range t.columns[1:] {
		isText := !strings.HasSuffix(c, ")") && c != "count"
		if isText && missing > 0 && c == texts[len(texts)-1] { // the scope of some tests is empty
			missing--
			continue
		}
		if len(values) == 0 {
			s.problem(line, "a row of %d values under %d columns", len(f), len(t.columns))
			return
		}
		if isText {
			info[c] = values[0]
		} else {
			pairs[c] = values[0]
		}
		values = values[1:]
	}
	r, ok := s.nvshmemReading(line, t.job, f[0], info, pes)
	if !ok {
		return
	}
	for _, c := range numbers {
		name, unitName, _ := strings.Cut(strings.TrimSuffix(c, ")"), "(")
		if name == "count" {
			continue
		}
		if !s.nvshmemMetric(line, &r, t.job, name, unitName, pairs[c]) {
			return
		}
	}
	s.add(r)
}

// nvshmemPerf reads job___subjob___size__N___metric value +unit.
func (s *source) nvshmemPerf(line int, text string, pes int) {
	parts := strings.Split(text, "___")
	if len(parts) != 4 {
		s.problem(line, "%s is not job___subjob___size__N___metric value unit", quote(text))
		return
	}
	size, ok := strings.CutPrefix(parts[2], "size__")
	f := strings.Fields(parts[3])
	if !ok || len(f) != 3 || len(f[2]) < 2 || f[2][0] != '+' && f[2][0] != '-' {
		s.problem(line, "%s is not job___subjob___size__N___metric value unit", quote(text))
		return
	}
	r, ok := s.nvshmemReading(line, parts[0], size, map[string]string{"scope": parts[1]}, pes)
	if ok && s.nvshmemMetric(line, &r, parts[0], f[0], f[2][1:], f[1]) {
		s.add(r)
	}
}

// nvshmemKind is what a test is in our words.
type nvshmemKind struct {
	workload, op string
	metric       string // of its latency
	headline     bool
	collective   bool
}

// nvshmemTest places a test by its name.
func nvshmemTest(job string) nvshmemKind {
	name := strings.TrimPrefix(job, "shmem_")
	op := "put"
	switch {
	case name != job && (strings.HasPrefix(name, "at_") || strings.HasPrefix(name, "atomic")):
		op = "atomic"
	case strings.HasPrefix(name, "g_") || strings.HasPrefix(name, "get_"):
		op = "read"
	case strings.HasPrefix(name, "sig_"):
		op = "signal"
	case strings.HasPrefix(name, "st_"):
		op = "store"
	}
	switch {
	case name == job && job != "Bandwidth" && job != "Latency": // collectives carry no shmem_
		w := job
		for _, cut := range []string{"_on_stream", "_device"} {
			w = strings.TrimSuffix(w, cut)
		}
		return nvshmemKind{workload: strings.TrimPrefix(w, "device_"), metric: "time", headline: true, collective: true}
	case op == "atomic" && name != "at_ping_lat":
		return nvshmemKind{workload: "op", op: op, metric: "latency", headline: true}
	case strings.Contains(name, "ping"):
		return nvshmemKind{workload: "op", op: op, metric: "rtt", headline: true}
	case op == "read":
		return nvshmemKind{workload: "op", op: op, metric: "completion", headline: true}
	}
	return nvshmemKind{workload: "op", op: op, metric: "put_completion", headline: true}
}

func (s *source) nvshmemReading(line int, job, size string, info map[string]string, pes int) (reading, bool) {
	n, ok := s.count(line, "size", strings.TrimSuffix(size, ".0"))
	if !ok {
		return reading{}, false
	}
	k := nvshmemTest(job)
	r := reading{
		line: line, workload: k.workload, backend: "nvshmem-perftest", device: "cuda", ranks: pes,
		axes: map[string]string{"size": strconv.Itoa(n)}, config: map[string]string{"test": job},
		facts: map[string]any{"statistic": "mean over iterations"},
	}
	if !k.collective {
		r.ranks = 2
		r.axes["op"] = k.op
		if strings.HasSuffix(job, "_bidi") {
			r.axes["pattern"] = "bidirectional"
		}
	}
	if job == "barrier_device" || job == "sync_device" {
		r.axes = map[string]string{"threads": strconv.Itoa(n)}
	}
	if k.workload == "alltoall" && pes > 0 && n%pes == 0 {
		r.axes = map[string]string{"bytes": strconv.Itoa(n / pes), "matrix": "uniform"}
	}
	for _, key := range []string{"scope", "type", "redop"} {
		if v := strings.ToLower(info[key]); v != "" && v != "none" {
			r.config[key] = v
		}
	}
	return r, true
}

// nvshmemMetric adds a value, and moves a bandwidth or rate to the workload of ours that has it.
func (s *source) nvshmemMetric(line int, r *reading, job, name, unitName, text string) bool {
	k := nvshmemTest(job)
	spelled := unitName
	if spelled == "GB" { // of the host tests, which mean a rate
		spelled = "GB/s"
	}
	u, ok := units[spelled]
	if !ok {
		s.problem(line, "unit %s of %s is not known", quote(unitName), name)
		return false
	}
	v, ok := s.quantity(line, name, text)
	if !ok {
		return false
	}
	if u.class != workloads.Time && !k.collective {
		r.workload = map[workloads.Class]string{workloads.Bandwidth: "goodput", workloads.Rate: "rate"}[u.class]
		if r.axes["op"] == "put" {
			delete(r.axes, "op")
		}
	}
	metric, headline := k.metric, k.headline
	switch {
	case u.class == workloads.Rate:
		metric = "message_rate"
	case u.class == workloads.Bandwidth && !k.collective:
		metric = "goodput"
	case u.class == workloads.Bandwidth:
		metric, headline = word(name), name == "busbw"
	case name == "min_lat":
		metric, headline = metric+"_min", false
	case name == "max_lat":
		metric, headline = metric+"_max", false
	}
	r.metrics = append(r.metrics, u.metric(metric, headline, v))
	return true
}
