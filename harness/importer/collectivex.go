package importer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"gic/harness/record"
	"gic/workloads/moe"
)

// cxFile is a CollectiveX case-attempt. Its times are us over cross-rank maxima; a component says by its
// availability whether it was measured.
type cxFile struct {
	Version   number    `json:"version"`
	Type      string    `json:"record_type"`
	Generated time.Time `json:"generated_at"`
	Identity  struct {
		CaseID  string `json:"case_id"`
		Factors struct {
			Case map[string]any `json:"case"`
			SKU  string         `json:"sku"`
		} `json:"case_factors"`
	} `json:"identity"`
	Measurement struct {
		CombineDtype  string         `json:"combine_dtype"`
		DispatchDtype string         `json:"dispatch_dtype"`
		Rows          []cxRow        `json:"rows"`
		Sampling      map[string]any `json:"sampling"`
	} `json:"measurement"`
	Implementation struct {
		Name       string `json:"name"`
		Generation string `json:"kernel_generation"`
		Library    any    `json:"library_version"`
		Maturity   string `json:"maturity"`
	} `json:"implementation"`
	Topology struct {
		WorldSize number `json:"world_size"`
		Device    string `json:"device_product"`
		Scope     string `json:"scope"`
		Transport string `json:"transport"`
		ScaleUp   string `json:"scale_up_transport"`
		ScaleOut  string `json:"scale_out_transport"`
	} `json:"topology"`
	Outcome struct {
		Status  string   `json:"status"`
		Reasons []string `json:"reasons"`
	} `json:"outcome"`
}

type cxRow struct {
	Tokens     number                 `json:"tokens_per_rank"`
	Components map[string]cxComponent `json:"components"`
	RankMin    map[string]cxComponent `json:"cross_rank_min_us"`
	Spread     *cxComponent           `json:"cross_rank_spread_us"`
	Correct    struct {
		Passed *bool `json:"passed"`
	} `json:"correctness"`
}

type cxComponent struct {
	Availability string            `json:"availability"`
	Percentiles  map[string]number `json:"percentiles_us"`
	Count        number            `json:"sample_count"`
}

func likeCollectiveX(data []byte) bool {
	return bytes.Contains(data, []byte(`"case-attempt"`)) && bytes.Contains(data, []byte(`"record_type"`))
}

func (s *source) parseCollectiveX() {
	for _, d := range s.documents() {
		var f cxFile
		if err := json.Unmarshal(d.raw, &f); err != nil {
			s.problem(d.line, "CollectiveX JSON: %v", err)
			continue
		}
		if f.Type != "case-attempt" {
			s.note(d.line, "passed over: record_type %s is not case-attempt", quote(f.Type))
			continue
		}
		s.cxFile(d.line, &f)
		s.process++
		if s.fatal != nil {
			return
		}
	}
}

func (s *source) cxFile(line int, f *cxFile) {
	base, err := s.cxReading(f)
	if err != nil {
		s.problem(line, "%v", err)
		return
	}
	base.line = line
	if len(f.Measurement.Rows) == 0 { // a cell that was classified instead of measured
		base.status, base.reason = record.Failed, "CollectiveX: "+f.Outcome.Status
		if strings.Contains(f.Outcome.Status, "unsupported") || strings.Contains(f.Outcome.Status, "skip") {
			base.status = record.Skipped
		}
		if len(f.Outcome.Reasons) > 0 {
			base.reason += ": " + strings.Join(f.Outcome.Reasons, "; ")
		}
		if f.Outcome.Status == "" || f.Outcome.Status == "success" {
			s.problem(line, "measurement.rows is empty though the outcome is %s", quote(f.Outcome.Status))
			return
		}
		s.add(base)
		return
	}
	for i := range f.Measurement.Rows {
		s.cxRow(line, fmt.Sprintf("measurement.rows[%d]", i), f, &f.Measurement.Rows[i], base)
		if s.fatal != nil {
			return
		}
	}
}

// cxReading takes what all rows of a file share.
func (s *source) cxReading(f *cxFile) (reading, error) {
	c := f.Identity.Factors.Case
	text := func(key string) string {
		switch v := c[key].(type) {
		case string:
			return v
		case float64:
			return strconv.FormatFloat(v, 'f', -1, 64)
		}
		return ""
	}
	name := f.Implementation.Name
	if name == "" {
		name = text("backend")
	}
	if name == "" {
		return reading{}, fmt.Errorf("neither implementation.name nor the case says the backend")
	}
	r := reading{
		workload: "moe", backend: "collectivex/" + name, device: "cuda", ranks: f.Topology.WorldSize.int(), start: f.Generated,
		axes: map[string]string{}, config: map[string]string{},
		facts: map[string]any{"statistic": "p50 over iterations of the slowest rank", "case_id": f.Identity.CaseID, "schema_version": f.Version.text},
	}
	if r.ranks == 0 {
		r.ranks, _ = strconv.Atoi(text("ep"))
	}
	if strings.HasPrefix(strings.ToLower(f.Topology.Device), "mi") {
		r.device = "unknown" // not CUDA
	}
	for axis, key := range map[string]string{"hidden": "hidden", "experts": "experts", "topk": "topk", "routing": "routing"} {
		if v := text(key); v != "" {
			r.axes[axis] = v
		}
	}
	nameModel(r.axes)
	if w := text("workload"); slices.ContainsFunc(moe.Models(), func(m moe.Model) bool { return m.Name == w }) && r.axes["model"] == "" {
		r.axes["model"] = w
	}
	for key, v := range map[string]string{
		"mode": text("mode"), "precision": text("precision"), "phase": text("phase"), "dispatch": f.Measurement.DispatchDtype,
		"combine": f.Measurement.CombineDtype, "kernel": f.Implementation.Generation,
	} {
		if v != "" {
			r.config[key] = v
		}
	}
	if v, ok := f.Implementation.Library.(string); ok && v != "" {
		r.library = []record.Library{{Name: name, Version: v}}
	}
	// Everything inside one NVLink domain: no NIC had a part.
	if t := f.Topology; t.Scope == "scale-up" && t.ScaleOut == "" && (t.ScaleUp == "nvlink" || t.ScaleUp == "mnnvl") {
		r.nic = "none"
	}
	for key, v := range map[string]string{"sku": f.Identity.Factors.SKU, "maturity": f.Implementation.Maturity, "transport": f.Topology.Transport} {
		if v != "" {
			r.facts[key] = v
		}
	}
	if d := f.Topology.Device; d != "" && s.host.GPU == nil {
		s.host.GPU = []any{map[string]any{"name": d}}
	}
	return r, nil
}

// cxRow takes one number of tokens. Derived sums of percentiles are no measurement and left out.
func (s *source) cxRow(line int, at string, f *cxFile, row *cxRow, r reading) {
	tokens := row.Tokens.int()
	if tokens < 1 {
		s.problem(line, "%s.tokens_per_rank is %s, not a positive integer", at, quote(row.Tokens.text))
		return
	}
	r.axes, r.facts = maps.Clone(r.axes), maps.Clone(r.facts)
	r.axes["tokens"] = strconv.Itoa(tokens)
	take := func(where, name string, c cxComponent, headline bool) bool {
		if c.Availability != "measured" {
			return true
		}
		r.facts[name+"_samples"] = c.Count.int()
		p50, ok := s.measured(line, at+"."+where+".p50", c.Percentiles["p50"])
		if !ok {
			return false
		}
		r.metrics = append(r.metrics, seconds(name, headline, p50*1e-6))
		for _, p := range []string{"p90", "p95", "p99"} {
			n, there := c.Percentiles[p]
			if !there || !n.present { // too few samples for a tail
				continue
			}
			v, ok := s.measured(line, at+"."+where+"."+p, n)
			if !ok {
				return false
			}
			r.metrics = append(r.metrics, seconds(name+"_"+p, false, v*1e-6))
		}
		return true
	}
	for _, name := range slices.Sorted(maps.Keys(row.Components)) {
		if !take("components."+name, word(name), row.Components[name], name == "dispatch" || name == "combine" || name == "roundtrip" || name == "pair_period") {
			return
		}
	}
	for _, name := range slices.Sorted(maps.Keys(row.RankMin)) {
		if !take("cross_rank_min_us."+name, word(name)+"_fastest_rank", row.RankMin[name], false) {
			return
		}
	}
	if row.Spread != nil && row.Spread.Percentiles["p50"].value > 0 { // ranks in step have none
		if !take("cross_rank_spread_us", "rank_spread", *row.Spread, false) {
			return
		}
	}
	if len(r.metrics) == 0 {
		s.problem(line, "%s: no component was measured", at)
		return
	}
	if p := row.Correct.Passed; p != nil && !*p || f.Outcome.Status != "success" {
		r.status, r.reason = record.Unverified, "CollectiveX: "+f.Outcome.Status
		if len(f.Outcome.Reasons) > 0 {
			r.reason += ": " + strings.Join(f.Outcome.Reasons, "; ")
		}
	}
	s.add(r)
}
