package importer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"

	"gic/workloads"
)

// linux-rdma perftest posts from the CPU. Its latency is half a round trip for writes and sends and a whole one for
// reads and atomics (perftest_parameters.c, rtt_factor); MiB is 2^20 bytes, Gb 1e9 bits, Mpps 1e6 messages. It is
// two processes.

func likePerftest(data []byte) bool {
	text := bytes.Contains(data, []byte("#bytes")) && bytes.Contains(data, []byte("#iterations"))
	return text || bytes.Contains(data, []byte(`"test_info"`)) && bytes.Contains(data, []byte(`"results"`))
}

// parsePerftest reads the JSON of --out_json or what a test prints.
func (s *source) parsePerftest() {
	if bytes.Contains(s.data, []byte(`"test_info"`)) {
		s.parsePerftestJSON()
		return
	}
	s.parsePerftestText()
}

// perftestRun is what a test says about itself.
type perftestRun struct {
	title string
	info  map[string]string // by the names of the text output, lower case
}

// perftestKeys are what it says that is the row's configuration.
var perftestKeys = map[string]string{
	"number of qps": "qps", "number_of_qps": "qps",
	"connection type": "connection", "connection_type": "connection",
	"using srq": "srq", "using_srq": "srq",
	"tx depth": "tx_depth", "tx_depth": "tx_depth",
	"post list": "post_list", "post_list": "post_list",
	"cq moderation": "cq_moderation", "cq_moderation": "cq_moderation",
	"max inline data": "inline", "max_inline_data": "inline",
	"outstand reads": "outstanding_reads", "outstand_reads": "outstanding_reads",
	"mtu": "mtu", "link type": "link", "link_type": "link",
}

// perftestVerbs are tried in order; the last words say which operation of ours it is.
var perftestVerbs = []struct{ verb, op string }{
	{"rdma write imm", "put_imm"}, {"rdma write", "put"}, {"rdma read", "read"}, {"send imm", "send_imm"}, {"send", "send"},
	{"atomic", "atomic"},
}

// reading starts the row of a result. bw says whether the result is a bandwidth.
func (p *perftestRun) reading(bw bool) (reading, error) {
	title := strings.ToLower(strings.ReplaceAll(p.title, "_", " "))
	op := ""
	for _, v := range perftestVerbs {
		if strings.HasPrefix(title, v.verb) {
			op = v.op
			break
		}
	}
	if op == "" {
		return reading{}, fmt.Errorf("test %s is not one of RDMA_Write, RDMA_Read, Send, Atomic", quote(p.title))
	}
	r := reading{
		backend: "perftest", device: "host", ranks: 2, axes: map[string]string{}, config: map[string]string{}, facts: map[string]any{},
	}
	if !bw || op != "put" { // goodput and rate of ours are of puts
		r.axes["op"] = op
	}
	for from, key := range perftestKeys {
		if v := p.info[from]; v != "" {
			r.config[key] = strings.ToLower(strings.TrimSuffix(v, "[B]"))
		}
	}
	if strings.Contains(title, "cmp and swap") {
		r.config["atomic"] = "compare_swap"
	} else if strings.Contains(title, "fetch and add") {
		r.config["atomic"] = "fetch_add"
	}
	if strings.Contains(title, "bidirectional") {
		r.axes["pattern"] = "bidirectional"
	}
	if d := p.info["device"]; d != "" {
		r.facts["nic_device"] = d
		if strings.HasPrefix(d, "mlx5_") {
			r.nic = "mlx5"
		}
	}
	for _, key := range []string{"cuda_device"} {
		if v := p.info[key]; v != "" {
			r.facts[key] = v
		}
	}
	return r, nil
}

// perftestBW makes the rows of a bandwidth result: one of goodput, one of rate. scale is bytes per unit.
func (s *source) perftestBW(line int, p *perftestRun, size int, v map[string]float64, scale float64) {
	r, err := p.reading(true)
	if err != nil {
		s.problem(line, "%v", err)
		return
	}
	r.line = line
	r.axes["size"] = strconv.Itoa(size)
	if n := v["iterations"]; n > 0 {
		r.facts["iterations"] = n
	}
	if bw, mr := v["bw"]*scale, v["rate"]*1e6; bw > 0 && mr > 0 {
		if slack := perftestSlack(v); math.Abs(bw/(mr*float64(size))-1) > slack {
			r.warnings = []workloads.Warning{{Code: "unit_check", Text: fmt.Sprintf(
				"%.6g B/s and %.6g msg/s of %d B do not fit together", bw, mr, size)}}
		}
	}
	goodput := r
	goodput.workload = "goodput"
	goodput.metrics = []workloads.Metric{bandwidth("goodput", true, v["bw"]*scale)}
	if peak := v["peak"]; peak > 0 { // 0 with -N or a duration: it was not looked for
		goodput.metrics = append(goodput.metrics, bandwidth("goodput_peak", false, peak*scale))
	}
	s.add(goodput)
	if mr := v["rate"]; mr > 0 && s.fatal == nil {
		r.workload, r.axes, r.config = "rate", maps.Clone(r.axes), maps.Clone(r.config)
		r.metrics = []workloads.Metric{rate("message_rate", true, mr*1e6)}
		s.add(r)
	}
}

// perftestSlack is how far bandwidth and rate may be apart through rounding: two and six decimals.
func perftestSlack(v map[string]float64) float64 { return 0.01 + 0.005/v["bw"] + 5e-7/v["rate"] }

// perftestLatency makes the row of a latency result, in microseconds.
func (s *source) perftestLatency(line int, p *perftestRun, size int, us map[string]float64) {
	r, err := p.reading(false)
	if err != nil {
		s.problem(line, "%v", err)
		return
	}
	r.line, r.workload = line, "op"
	r.axes["size"] = strconv.Itoa(size)
	name, what := "one_way", "half a round trip"
	if op := r.axes["op"]; op == "read" || op == "atomic" {
		name, what = "completion", "post to completion, a whole round trip"
	}
	r.facts["latency_is"] = what
	if n := us["iterations"]; n > 0 {
		r.facts["iterations"] = n
	}
	// The median is the row's value, as of our process runs; without one it is the mean.
	head := "t_typical"
	if us[head] == 0 {
		head = "t_avg"
	}
	if us[head] == 0 {
		s.problem(line, "neither t_typical nor t_avg is given")
		return
	}
	r.facts["statistic"] = head
	r.metrics = append(r.metrics, seconds(name, true, us[head]*1e-6))
	for _, stat := range []struct{ from, suffix string }{
		{"t_avg", "_mean"}, {"t_min", "_min"}, {"p99", "_p99"}, {"p99.9", "_p99_9"}, {"t_max", "_max"},
	} {
		if v := us[stat.from]; v > 0 && stat.from != head {
			r.metrics = append(r.metrics, seconds(name+stat.suffix, false, v*1e-6))
		}
	}
	if v := us["tps"]; v > 0 {
		r.metrics = append(r.metrics, rate("transactions", false, v))
	}
	s.add(r)
}

// perftestColumns are the columns of the tables by how their heads begin; [..] behind is the unit.
var perftestColumns = []struct{ head, key string }{
	{"#bytes", "size"}, {"#iterations", "iterations"}, {"#sl", "sl"},
	{"BW peak", "peak"}, {"BW average", "bw"}, {"MsgRate Port1", ""}, {"MsgRate Port2", ""}, {"MsgRate", "rate"},
	{"BW Port1", ""}, {"BW Port2", ""},
	{"t_min", "t_min"}, {"t_max", "t_max"}, {"t_typical", "t_typical"}, {"t_avg", "t_avg"}, {"t_stdev", ""},
	{"99% percentile", "p99"}, {"99.9% percentile", "p99.9"}, {"tps average", "tps"}, {"CPU_Util", ""},
}

type perftestColumn struct{ key, name, unit string }

// perftestHead reads the head of a table; nil if it is none.
func perftestHead(text string) ([]perftestColumn, error) {
	rest := strings.TrimSpace(text)
	if !strings.HasPrefix(rest, "#bytes") {
		return nil, nil
	}
	var cols []perftestColumn
next:
	for rest != "" {
		for _, c := range perftestColumns {
			after, ok := strings.CutPrefix(rest, c.head)
			if !ok {
				continue
			}
			col := perftestColumn{key: c.key, name: c.head}
			if after, ok = strings.CutPrefix(after, "["); ok {
				if col.unit, after, ok = strings.Cut(after, "]"); !ok {
					return nil, fmt.Errorf("unit of column %s has no end", c.head)
				}
			} else {
				after = strings.TrimPrefix(rest, c.head)
			}
			cols = append(cols, col)
			rest = strings.TrimSpace(after)
			continue next
		}
		return nil, fmt.Errorf("column %s is not known", quote(rest))
	}
	return cols, nil
}

// perftestScale is bytes per second of a unit of a bandwidth. The tool's MB is its MiB: it divides by 0x100000.
var perftestScale = map[string]float64{"MiB/sec": 1 << 20, "MB/sec": 1 << 20, "Gb/sec": 125e6}

func (s *source) parsePerftestText() {
	run := &perftestRun{info: map[string]string{}}
	var cols []perftestColumn
	for line, text := range s.lines() {
		trimmed := strings.TrimSpace(text)
		head, err := perftestHead(text)
		switch {
		case err != nil:
			s.problem(line, "%v", err)
			cols = nil
		case head != nil:
			cols = head
		case trimmed == "" || strings.Trim(trimmed, "-") == "", trimmed[0] == '*' && strings.HasSuffix(trimmed, "*"):
		case strings.HasSuffix(trimmed, " Test") && !strings.Contains(trimmed, ":"):
			run = &perftestRun{title: strings.TrimSuffix(trimmed, " Test"), info: map[string]string{}}
			cols = nil
			s.process++
		case perftestInfo(text, run.info):
		case cols != nil && trimmed[0] >= '0' && trimmed[0] <= '9':
			s.perftestRow(line, strings.Fields(trimmed), cols, run)
		default:
			s.passed(line, text)
		}
		if s.fatal != nil {
			return
		}
	}
}

// perftestInfo reads a line of "name : value" pairs, two at most, separated by tabs.
func perftestInfo(text string, info map[string]string) bool {
	if !strings.HasPrefix(text, " ") || !strings.Contains(text, ":") {
		return false
	}
	for part := range strings.SplitSeq(text, "\t\t") {
		if name, value, ok := strings.Cut(part, " : "); ok {
			info[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
		} else if name, value, ok := strings.Cut(part, "\t : "); ok {
			info[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
		}
	}
	return true
}

func (s *source) perftestRow(line int, f []string, cols []perftestColumn, run *perftestRun) {
	if len(f) != len(cols) {
		s.problem(line, "a row of %d values under %d columns", len(f), len(cols))
		return
	}
	if run.title == "" {
		s.problem(line, "a result without the test's name above it")
		return
	}
	v := map[string]float64{}
	scale, size := 0.0, 0
	for i, c := range cols {
		ok := true
		switch c.key {
		case "":
		case "size":
			size, ok = s.count(line, c.name, f[i])
		case "iterations", "sl":
			v[c.key], _ = strconv.ParseFloat(f[i], 64)
		case "peak":
			if v[c.key], ok = 0, f[i] == "0.00" || f[i] == "0.000000"; !ok {
				v[c.key], ok = s.quantity(line, c.name, f[i])
			}
		case "bw":
			if scale = perftestScale[c.unit]; scale == 0 {
				s.problem(line, "unit %s of %s is not MiB/sec or Gb/sec", quote(c.unit), c.name)
				return
			}
			v[c.key], ok = s.quantity(line, c.name, f[i])
		case "rate":
			v[c.key], ok = s.quantity(line, c.name, f[i])
		default:
			if c.key != "tps" && c.unit != "usec" {
				s.problem(line, "unit %s of %s is not usec", quote(c.unit), c.name)
				return
			}
			v[c.key], ok = s.quantity(line, c.name, f[i])
		}
		if !ok {
			return
		}
	}
	if scale > 0 {
		s.perftestBW(line, run, size, v, scale)
		return
	}
	s.perftestLatency(line, run, size, v)
}

// parsePerftestJSON reads files of --out_json: test_info and results of one size. The bandwidth's unit is not in
// the file; the message rate tells it.
func (s *source) parsePerftestJSON() {
	for _, d := range s.documents() {
		var f struct {
			Info    map[string]any    `json:"test_info"`
			Results map[string]number `json:"results"`
		}
		if err := json.Unmarshal(d.raw, &f); err != nil {
			s.problem(d.line, "perftest JSON: %v", err)
			continue
		}
		if f.Info == nil || f.Results == nil {
			s.note(d.line, "passed over: a JSON object without test_info and results")
			continue
		}
		run := &perftestRun{info: map[string]string{}}
		for k, v := range f.Info {
			run.info[strings.ToLower(strings.ReplaceAll(k, "Device", "device"))] = fmt.Sprint(v)
		}
		run.title = run.info["test"]
		s.perftestResult(d.line, run, f.Results)
		s.process++
		if s.fatal != nil {
			return
		}
	}
}

func (s *source) perftestResult(line int, run *perftestRun, f map[string]number) {
	size := f["MsgSize"].int()
	if size < 1 {
		s.problem(line, "results.MsgSize is %s, not a positive integer", quote(f["MsgSize"].text))
		return
	}
	v := map[string]float64{"iterations": float64(f["n_iterations"].int())}
	take := func(keys map[string]string) bool {
		for from, key := range keys {
			if n, there := f[from]; there {
				x, ok := s.measured(line, "results."+from, n)
				if !ok {
					return false
				}
				v[key] = x
			}
		}
		return true
	}
	if _, bw := f["BW_average"]; !bw {
		if take(map[string]string{
			"t_min": "t_min", "t_max": "t_max", "t_typical": "t_typical", "t_avg": "t_avg", "percentile_99": "p99",
			"percentile_99.9": "p99.9", "tps_average": "tps",
		}) {
			s.perftestLatency(line, run, size, v)
		}
		return
	}
	if peak := f["BW_peak"]; peak.present && peak.value != 0 {
		v["peak"] = peak.value
		if !s.positive(line, "results.BW_peak", peak.value) {
			return
		}
	}
	if !take(map[string]string{"BW_average": "bw", "MsgRate": "rate"}) {
		return
	}
	scale, err := perftestUnit(size, v)
	if err != nil {
		s.problem(line, "%v", err)
		return
	}
	s.perftestBW(line, run, size, v, scale)
}

// perftestUnit finds the unit in which size times rate is the bandwidth.
func perftestUnit(size int, v map[string]float64) (float64, error) {
	if v["rate"] == 0 {
		return 0, fmt.Errorf("results.MsgRate is missing: without it the unit of BW_average cannot be told")
	}
	var fit []float64
	for _, scale := range []float64{1 << 20, 125e6} {
		want := v["rate"] * 1e6 * float64(size) / scale
		if math.Abs(v["bw"]/want-1) <= perftestSlack(v) {
			fit = append(fit, scale)
		}
	}
	switch len(fit) {
	case 1:
		return fit[0], nil
	case 0:
		return 0, fmt.Errorf("results.BW_average %g and MsgRate %g of %d bytes fit neither MiB/sec nor Gb/sec", v["bw"], v["rate"], size)
	}
	return 0, fmt.Errorf("results.BW_average %g has too few digits to tell MiB/sec from Gb/sec", v["bw"])
}
