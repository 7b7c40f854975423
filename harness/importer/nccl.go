package importer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"strconv"
	"strings"

	"gic/harness/record"
	"gic/workloads"
)

// ncclVersion is the version of nccl-tests' JSON that is read: util.cu, JSON_FILE_VERSION.
const ncclVersion = 3

// ncclFile is a file of -J. Booleans are strings, a NaN is the string "nan", root is padded; env holds the whole
// environment and is looked at by Options.Env only.
type ncclFile struct {
	Version     number   `json:"version"`
	Args        []string `json:"args"`
	Env         []string `json:"env"`
	NCCLVersion number   `json:"nccl_version"`
	Config      struct {
		Threads    number       `json:"nthreads"`
		GPUs       number       `json:"ngpus"`
		Warmup     number       `json:"warmup_iters"`
		Iterations number       `json:"iterations"`
		Aggregated number       `json:"aggregated_iterations"`
		Graph      number       `json:"graph"`
		Blocking   boolean      `json:"blocking_collectives"`
		Devices    []ncclDevice `json:"devices"`
	} `json:"config"`
	Results     []ncclResult `json:"results"`
	OutOfBounds struct {
		Count number `json:"count"`
	} `json:"out_of_bounds"`
	Errors json.RawMessage `json:"errors"`
}

type ncclDevice struct {
	Rank number `json:"rank"`
	Host string `json:"hostname"`
	Info string `json:"device_info"`
}

type ncclResult struct {
	Size       number       `json:"size"`
	Count      number       `json:"count"`
	Type       string       `json:"type"`
	Redop      string       `json:"redop"`
	Root       number       `json:"root"`
	Out        *ncclTimes   `json:"out_of_place"`
	In         *ncclTimes   `json:"in_place"`
	OutPerIter *ncclPerIter `json:"out_of_place_per_iter"`
	InPerIter  *ncclPerIter `json:"in_place_per_iter"`
	Iterations number       `json:"actual_iterations"`
}

type ncclTimes struct {
	Time    number `json:"time"`
	CPUTime number `json:"cpu_time"`
	AlgBW   number `json:"alg_bw"`
	BusBW   number `json:"bus_bw"`
	Wrong   number `json:"nwrong"`
}

type ncclPerIter struct {
	Skipped number   `json:"skipped_iterations"`
	Times   []number `json:"times_us"`
}

func likeNCCL(data []byte) bool {
	json := bytes.Contains(data, []byte(`"nccl_version"`)) && bytes.Contains(data, []byte(`"results"`))
	return json || bytes.Contains(data, []byte("out-of-place")) && bytes.Contains(data, []byte("algbw"))
}

// parseNCCL reads nccl-tests: JSON, or the table of its stdout.
func (s *source) parseNCCL() {
	if !bytes.Contains(s.data, []byte(`"nccl_version"`)) {
		s.parseNCCLText()
		return
	}
	for _, d := range s.documents() {
		var f ncclFile
		if err := json.Unmarshal(d.raw, &f); err != nil {
			s.problem(d.line, "nccl-tests JSON: %v", err)
			continue
		}
		if !f.Version.present && f.Results == nil {
			s.note(d.line, "passed over: a JSON object without version and results")
			continue
		}
		if f.Version.int() != ncclVersion {
			s.problem(d.line, "nccl-tests JSON version %s is not read; allowed: %d", quote(f.Version.text), ncclVersion)
			continue
		}
		s.ncclFile(d.line, &f)
		s.process++
	}
}

func (s *source) ncclFile(line int, f *ncclFile) {
	if len(f.Args) == 0 {
		s.problem(line, "args is empty: it does not say which collective was run")
		return
	}
	c := ncclCase{name: strings.TrimSuffix(path.Base(f.Args[0]), "_perf"), ranks: len(f.Config.Devices), facts: map[string]any{}}
	c.name = strings.TrimSuffix(c.name, "_perf_mpi")
	flags := ncclFlags(f.Args[1:])
	c.config = flags
	for key, n := range map[string]number{
		"iterations": f.Config.Iterations, "warmup": f.Config.Warmup, "aggregated_iterations": f.Config.Aggregated,
	} {
		if n.present {
			c.facts[key] = n.int()
		}
	}
	if g := f.Config.Graph.int(); g > 0 {
		c.config["graph"] = strconv.Itoa(g)
	}
	if f.Config.Blocking {
		c.config["blocking"] = "true"
	}
	if v := f.NCCLVersion.int(); v > 0 {
		c.library = []record.Library{{Name: "nccl", Version: ncclVersionText(v)}}
	}
	s.ncclHost(f)
	if s.opt.Env != nil && len(f.Env) > 0 {
		if s.env == nil {
			s.env = map[string]string{}
		}
		maps.Copy(s.env, s.opt.Env(f.Env))
	}
	if n := f.OutOfBounds.Count; n.present && n.value > 0 {
		c.facts["out_of_bounds"] = n.value
	}
	for i := range f.Results {
		r := &f.Results[i]
		at := fmt.Sprintf("results[%d]", i)
		if r.Out == nil && r.In == nil {
			s.problem(line, "%s: has neither out_of_place nor in_place", at)
			continue
		}
		s.ncclSide(line, at+".out_of_place", c, r, r.Out, r.OutPerIter, false)
		s.ncclSide(line, at+".in_place", c, r, r.In, r.InPerIter, true)
	}
}

// ncclCase is what all results of one process run share.
type ncclCase struct {
	name    string
	ranks   int
	config  map[string]string
	facts   map[string]any
	library []record.Library
	// own is set where the table is gic's own export: whose row it is, and which metric's time.
	own    *reading
	metric string
}

// ncclSide takes the out-of-place or the in-place half of a result. A half that is null was not run.
func (s *source) ncclSide(line int, at string, c ncclCase, r *ncclResult, t *ncclTimes, per *ncclPerIter, inPlace bool) {
	if t == nil {
		return
	}
	size := r.Size.int()
	if size == 0 {
		s.problem(line, "%s: size is %s, not a positive integer", at, quote(r.Size.text))
		return
	}
	out := s.ncclReading(c, size, r.Type, r.Redop, strings.TrimSpace(r.Root.text), inPlace)
	out.line = line
	name, value := "time", t.Time
	if t.CPUTime.present {
		name, value = "cpu_time", t.CPUTime
	}
	us, ok := s.measured(line, at+"."+name, value)
	if !ok {
		return
	}
	out.metrics = append(out.metrics, seconds(name, true, us*1e-6))
	for _, bw := range []struct {
		name string
		n    number
	}{{"algbw", t.AlgBW}, {"busbw", t.BusBW}} {
		if bw.name == "busbw" && c.ranks == 1 && bw.n.value == 0 {
			continue // by its formula, a lone rank has none
		}
		v, ok := s.measured(line, at+"."+bw.name, bw.n)
		if !ok {
			return
		}
		out.metrics = append(out.metrics, bandwidth(bw.name, bw.name == "busbw", v*1e9))
	}
	if per != nil {
		m, ok := s.ncclIterations(line, at, per)
		if !ok {
			return
		}
		out.metrics = append(out.metrics, m)
	}
	if t.Wrong.present && t.Wrong.value != 0 {
		out.status, out.reason = record.Unverified, "nccl-tests counted "+t.Wrong.text+" wrong elements"
	}
	if n := r.Iterations.int(); n > 0 {
		out.facts = maps.Clone(out.facts)
		out.facts["iterations"] = n
	}
	s.add(out)
}

// ncclIterations are the times of single iterations (-I 1), each the slowest process's, without the skipped ones.
func (s *source) ncclIterations(line int, at string, per *ncclPerIter) (m workloads.Metric, ok bool) {
	skip := per.Skipped.int()
	if skip >= len(per.Times) {
		s.problem(line, "%s_per_iter: %d of %d times are skipped", at, skip, len(per.Times))
		return m, false
	}
	m = seconds("iteration", false)
	for i, n := range per.Times[skip:] {
		us, ok := s.measured(line, fmt.Sprintf("%s_per_iter.times_us[%d]", at, skip+i), n)
		if !ok {
			return m, false
		}
		m.Samples = append(m.Samples, us*1e-6)
	}
	return m, true
}

// ncclReading names a result in our words. An all-to-all counts the bytes of all peers, we count those of one.
func (s *source) ncclReading(c ncclCase, size int, typ, redop, root string, inPlace bool) reading {
	r := reading{
		workload: c.name, backend: "nccl-tests", device: "cuda", ranks: c.ranks, facts: c.facts, library: c.library,
		axes: map[string]string{"size": strconv.Itoa(size)}, config: maps.Clone(c.config),
	}
	if c.own != nil {
		r.backend, r.nic, r.device, r.config = c.own.backend, c.own.nic, c.own.device, c.own.config
		maps.Copy(r.axes, c.own.axes)
		return r
	}
	if r.config == nil {
		r.config = map[string]string{}
	}
	if c.name == "alltoall" && c.ranks > 0 && size%c.ranks == 0 {
		r.axes = map[string]string{"bytes": strconv.Itoa(size / c.ranks), "matrix": "uniform"}
	}
	r.config["in_place"] = strconv.FormatBool(inPlace)
	for key, v := range map[string]string{"type": typ, "redop": redop} {
		if v != "" && v != "none" {
			r.config[key] = v
		}
	}
	if root != "" && root != "-1" {
		r.axes["root"] = root
	}
	return r
}

// ncclFlags keeps the options that change what is measured.
func ncclFlags(args []string) map[string]string {
	known := map[string]string{
		"-D": "device_api", "--device_implementation": "device_api", "-V": "device_ctas", "--device_cta_count": "device_ctas",
		"-R": "local_register", "--local_register": "local_register",
	}
	out := map[string]string{}
	for i := 0; i < len(args); i++ {
		name, value, joined := strings.Cut(args[i], "=")
		key := known[name]
		if key == "" {
			continue
		}
		if !joined && i+1 < len(args) {
			i++
			value = args[i]
		}
		if value != "" {
			out[key] = value
		}
	}
	return out
}

// ncclVersionText undoes NCCL_VERSION_CODE.
func ncclVersionText(code int) string {
	if code < 10000 { // before 2.9
		return fmt.Sprintf("%d.%d.%d", code/1000, code/100%10, code%100)
	}
	return fmt.Sprintf("%d.%d.%d", code/10000, code/100%100, code%100)
}

func (s *source) ncclHost(f *ncclFile) {
	seen := map[string]bool{}
	for i, d := range f.Config.Devices {
		if i == 0 && d.Host != "" && s.host.Hostname == "unknown" {
			s.host.Hostname = d.Host
		}
		if d.Info != "" && d.Host == f.Config.Devices[0].Host && !seen[d.Rank.text] {
			seen[d.Rank.text] = true
			s.host.GPU = append(s.host.GPU, map[string]any{"name": d.Info})
		}
	}
}

// parseNCCLText reads the table that nccl-tests, and gic's own export, print: size, count, type, redop, root, then
// time, algbw, busbw and #wrong out of place and in place. It rounds, the JSON file does not.
func (s *source) parseNCCLText() {
	c := ncclCase{facts: map[string]any{"rounded": "as printed in a table"}}
	ranks := 0
	for line, text := range s.lines() {
		switch {
		case strings.HasPrefix(text, "# Collective test starting:"):
			c.name = strings.TrimSuffix(strings.TrimSpace(strings.TrimPrefix(text, "# Collective test starting:")), "_perf")
			ranks, s.process = 0, s.process+1
		case strings.HasPrefix(text, "#  Rank "):
			ranks++
		case strings.HasPrefix(text, "#"), strings.TrimSpace(text) == "":
			c = ncclComment(text, c)
		default:
			c.ranks = max(ranks, c.ranks)
			s.ncclRow(line, strings.Fields(text), c)
		}
		if s.fatal != nil {
			return
		}
	}
}

// ncclComment takes what gic's export says in comments: of which row of which workload a table is.
func ncclComment(text string, c ncclCase) ncclCase {
	head, row, ok := strings.Cut(strings.TrimPrefix(text, "# "), " row: ")
	words, label := strings.Fields(head), strings.Fields(row)
	if !ok || len(words) == 0 || len(label) == 0 {
		return c
	}
	own := &reading{workload: words[0], backend: label[0], axes: map[string]string{}, config: map[string]string{}}
	c = ncclCase{name: words[0], facts: c.facts, own: own}
	for _, w := range words[1:] {
		if k, v, _ := strings.Cut(w, "="); k == "ranks" {
			c.ranks, _ = strconv.Atoi(v)
		} else if v != "" {
			own.axes[k] = v
		}
	}
	for _, w := range label[1:] {
		switch k, v, _ := strings.Cut(w, "="); {
		case k == "nic":
			own.nic = v
		case k == "device":
			own.device = v
		case k == "metric":
			c.metric = v
		case v != "":
			own.config[k] = v
		}
	}
	return c
}

func (s *source) ncclRow(line int, f []string, c ncclCase) {
	if c.name == "" {
		s.passed(line, strings.Join(f, " "))
		return
	}
	if _, err := strconv.Atoi(f[0]); err != nil {
		s.passed(line, strings.Join(f, " "))
		return
	}
	if len(f) != 13 {
		s.problem(line, "a row of %d columns, not 13", len(f))
		return
	}
	size, ok := s.count(line, "size", f[0])
	if !ok {
		return
	}
	for i, half := range [][]string{f[5:9], f[9:13]} {
		if half[0] == "N/A" {
			continue
		}
		r := s.ncclReading(c, size, f[2], f[3], f[4], i == 1)
		r.line = line
		us, ok := s.quantity(line, "time", half[0])
		if !ok {
			continue
		}
		if c.own != nil {
			if m, ok := s.ownTime(line, c.metric, us, half); ok {
				r.metrics = append(r.metrics, m)
				s.add(r)
			}
			continue
		}
		r.metrics = append(r.metrics, seconds("time", true, us*1e-6))
		// Two decimals of GB/s are 0.00 for small sizes: rounded away, not measured as nothing.
		for j, name := range []string{"algbw", "busbw"} {
			if v, err := strconv.ParseFloat(half[1+j], 64); err == nil && v > 0 {
				r.metrics = append(r.metrics, bandwidth(name, name == "busbw", v*1e9))
			}
		}
		if w := half[3]; w != "N/A" && w != "0" {
			r.status, r.reason = record.Unverified, "nccl-tests counted "+w+" wrong elements"
		}
		s.add(r)
	}
}

// ownTime undoes what gic's export does to a metric: a rate becomes the time of one message, a bandwidth that of
// one transfer.
func (s *source) ownTime(line int, metric string, us float64, half []string) (workloads.Metric, bool) {
	switch metric {
	case "":
		s.problem(line, "a row of gic's export whose head names no metric")
		return workloads.Metric{}, false
	case "message_rate":
		return rate(metric, true, 1e6/us), true
	case "goodput":
		gbs, ok := s.quantity(line, "algbw", half[1])
		return bandwidth(metric, true, gbs*1e9), ok
	}
	return seconds(word(metric), true, us*1e-6), true
}
