package importer

import (
	"bytes"
	"errors"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"

	"gic/harness/record"
	"gic/workloads"
)

// In benchfmt every line is one process run. A name of gic's export reads
// BenchmarkOp/op=put/size=8/backend=minigda/batch=16/nic=soft/engine=cpu/device=host/ranks=2: what stands behind
// backend= and nic= are their keys, what stands before are the axes. Of any other name the parts are axes and the
// backend is "benchmark".

func likeBenchfmt(data []byte) bool {
	for line := range bytes.Lines(data) {
		if bytes.HasPrefix(line, []byte("Benchmark")) && len(bytes.Fields(line)) >= 4 {
			return true
		}
	}
	return false
}

func (s *source) parseBenchfmt() {
	r := benchfmt.NewReader(bytes.NewReader(s.data), s.name)
	for r.Scan() {
		switch rec := r.Result().(type) {
		case *benchfmt.Result:
			s.process++
			s.benchfmtResult(rec)
		case *benchfmt.SyntaxError:
			s.problem(rec.Line, "%s", rec.Msg)
		}
		if s.fatal != nil {
			return
		}
	}
	if err := r.Err(); err != nil {
		s.problem(0, "%v", err)
	}
}

func (s *source) benchfmtResult(b *benchfmt.Result) {
	_, line := b.Pos()
	r, err := benchfmtName(b.Name)
	if err != nil {
		s.problem(line, "name %s: %v", quote(string(b.Name)), err)
		return
	}
	r.line = line
	r.facts["iterations"] = b.Iters
	if r.ranks == 0 {
		r.ranks = 1 // a Go benchmark is one process
	}
	for _, v := range b.Values {
		value, name := v.Value, v.Unit
		if v.OrigUnit != "" {
			value, name = v.OrigValue, v.OrigUnit
		}
		metric, u, ok := benchfmtUnit(name)
		if !ok {
			s.note(line, "%v %s is no time, rate or bandwidth: left out", value, name)
			continue
		}
		if !s.positive(line, name, value) {
			return
		}
		r.metrics = append(r.metrics, u.metric(metric, !strings.Contains(metric, "_p9"), value))
	}
	s.add(r)
}

// benchfmtUnit takes a unit apart: rtt-sec/op, p99-rtt-sec/op, ns/op, message_rate-msg/s.
func benchfmtUnit(name string) (metric string, u unit, ok bool) {
	head, last := "", name
	if i := strings.LastIndexByte(name, '-'); i >= 0 {
		head, last = name[:i], name[i+1:]
	}
	u, ok = units[strings.TrimSuffix(last, "/op")]
	if !ok {
		return "", unit{}, false
	}
	percentile := ""
	if p, rest, cut := strings.Cut(head, "-"); cut && len(p) > 1 && p[0] == 'p' && strings.Trim(p[1:], "0123456789") == "" {
		percentile, head = "_"+p, rest
	} else if len(head) > 1 && head[0] == 'p' && strings.Trim(head[1:], "0123456789") == "" {
		percentile, head = "_"+head, ""
	}
	if metric = word(head); metric == "" {
		metric = map[workloads.Class]string{workloads.Time: "time", workloads.Rate: "message_rate", workloads.Bandwidth: "bandwidth"}[u.class]
	}
	return metric + percentile, u, true
}

// benchfmtName takes a name apart. Values are percent-encoded where a name could not hold them.
func benchfmtName(name benchfmt.Name) (reading, error) {
	base, parts := name.Parts()
	r := reading{workload: string(base), backend: "benchmark", axes: map[string]string{}, config: map[string]string{}, facts: map[string]any{}}
	own := bytes.Contains(name.Full(), []byte("/backend=")) && bytes.Contains(name.Full(), []byte("/nic="))
	if own {
		r.workload = strings.ToLower(r.workload[:min(1, len(r.workload))]) + r.workload[min(1, len(r.workload)):]
	}
	group := "workload"
	for i, part := range parts {
		text := strings.TrimPrefix(string(part), "/")
		if strings.HasPrefix(string(part), "-") {
			r.config["gomaxprocs"] = text[1:]
			continue
		}
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			r.axes["sub"+strconv.Itoa(i+1)] = text
			continue
		}
		value, err := url.PathUnescape(value)
		if err != nil {
			return r, err
		}
		if !own {
			if key == "backend" {
				r.backend = value
			} else {
				r.axes[axisWord(key)] = value
			}
			continue
		}
		if err := r.ownPart(&group, key, value); err != nil {
			return r, err
		}
	}
	if r.workload == "" {
		return r, errors.New("no name behind Benchmark")
	}
	return r, nil
}

func axisWord(key string) string {
	if w := word(key); w != "" {
		return w
	}
	return "x"
}

// ownPart places a key of gic's export.
func (r *reading) ownPart(group *string, key, value string) error {
	switch key {
	case "workload":
		r.workload = value
	case "backend":
		r.backend, *group = value, "backend"
	case "seed":
		n, err := strconv.ParseUint(value, 10, 64)
		r.seed = n
		return err
	case "nic", "device", "ranks":
		if key == "nic" {
			*group = "nic"
		}
		return r.setPlain(record.KeyValue{Key: key, Value: value})
	default:
		if !strings.HasPrefix(key, "workload.") && !strings.HasPrefix(key, "backend.") && !strings.HasPrefix(key, "nic.") {
			key = *group + "." + key
		}
		return r.set(record.KeyValue{Key: key, Value: value})
	}
	return nil
}
