package run

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gic/backends"
	"gic/harness/plan"
	"gic/harness/record"
	"gic/workloads"
)

// newCase is the record of a planned point before anything is known of it.
func newCase(o *plan.Outer, p workloads.Point) record.Case {
	c := record.Case{
		Type: "case", Index: o.Index, Workload: o.Workload, Axes: map[string]string{}, Backend: o.Backend,
		Config: map[string]string{}, NIC: o.NIC.Kind, NICConfig: maps.Clone(o.NIC.Config), Device: o.Device,
		Ranks: o.Ranks, Seed: o.Seed,
	}
	maps.Copy(c.Axes, p)
	maps.Copy(c.Config, o.Config)
	c.ID = record.CaseID(&c)
	return c
}

func setFailure(c *record.Case, f *failure) {
	c.Status, c.Reason, c.Stage = f.status, f.reason, f.stage
	if len(f.output) > 0 && f.status != record.Skipped {
		c.Facts = f.output
	}
}

// merge makes the record of a point that every rank came back from.
func (p *processRun) merge(it item, results []*pointResult) *record.Case {
	c := newCase(p.outer, it.point)
	c.Status = record.OK
	ranks := make([]workloads.RankResult, len(results))
	for i, r := range results {
		ranks[i] = workloads.RankResult{Series: r.Series, Counters: r.Counters, Verify: r.Verify}
	}
	c.Counters = sumCounters(results)
	v := sumVerify(results)
	c.Verify = &v
	unsafe := p.created(&c, results)
	if p.shared > 1 {
		c.Created["ranks_in_process"] = strconv.Itoa(min(p.shared, p.outer.Ranks))
	}
	p.hostFacts(&c, results)

	var ops workloads.Ops
	err := guard(func() error {
		for i := range results {
			o, times := it.job.Ops(i), uint64(workloads.Runs(it.job))
			for k, n := range o.Count {
				ops.Count[k] += times * n
			}
			ops.PayloadBytes += times * o.PayloadBytes
		}
		sum, err := it.job.Summarize(ranks)
		if err != nil {
			return err
		}
		return fill(&c, sum)
	})
	if err != nil {
		setFailure(&c, &failure{status: record.Failed, stage: "summarize", reason: err.Error()})
		return &c
	}
	wrong := checkRun(&c, ops, p.set.ranks[0].opened.Info)
	switch {
	case unsafe != "":
		c.Status, c.Reason = record.Unsafe, unsafe
		keepIssueOnly(&c)
		for _, w := range wrong {
			warn(&c, "unsafe", w)
		}
	case len(wrong) > 0:
		c.Status, c.Reason, c.Stage = record.Unverified, strings.Join(wrong, "; "), "verify"
	}
	return &c
}

// keepIssueOnly drops what an unsafe configuration cannot tell. Without an order before the doorbell nothing may be
// served while it is rung, so backends hold the NIC meanwhile: what the device spends on posting is true, as an issue
// time or as a rate of posts, and every time that waits for the NIC is that of the holding.
func keepIssueOnly(c *record.Case) {
	c.Metrics = slices.DeleteFunc(c.Metrics, func(m record.Metric) bool { return m.Name != "issue" && m.Name != "posting_rate" })
	for i := range c.Metrics {
		c.Metrics[i].Headline = true
	}
	c.Warnings = slices.DeleteFunc(c.Warnings, func(w workloads.Warning) bool { return w.Code == "timer_check" })
}

// fill takes over what the workload made of the results.
func fill(c *record.Case, sum workloads.Summary) error {
	for _, m := range sum.Metrics {
		rm, err := record.FromSamples(m.Name, m.Unit, m.Class, m.Samples)
		if err != nil {
			return err
		}
		rm.Headline = m.Headline
		c.Metrics = append(c.Metrics, rm)
	}
	if len(sum.Facts) > 0 {
		c.Facts = maps.Clone(sum.Facts)
	}
	c.Warnings = append(c.Warnings, sum.Warnings...)
	return nil
}

// The NIC counters that the message list predicts, by the names all backends use.
var proofCounters = [...]string{"wqe_write", "wqe_read", "wqe_atomic"}

// checkRun sets Messages and Expected and returns everything that keeps a record from being ok: wrong payload,
// and NIC counters that are not the message list times the backend's lowering (the path proof).
func checkRun(c *record.Case, ops workloads.Ops, info backends.Info) []string {
	var want [len(proofCounters)]uint64
	c.Messages = 0
	for op, n := range ops.Count {
		c.Messages += n
		l := info.Lowering[op]
		want[0] += n * l.Writes
		want[1] += n * l.Reads
		want[2] += n * l.Atomics
	}
	c.Expected = map[string]uint64{}
	got := map[string]uint64{}
	for _, k := range c.Counters {
		got[k.Name] = k.Value
	}
	var wrong []string
	for i, name := range proofCounters {
		c.Expected[name] = want[i]
		v, counted := got[name]
		switch {
		case !counted && c.NIC == "none": // no NIC took part
		case !counted:
			wrong = append(wrong, fmt.Sprintf("path proof: %s does not count %s, %d expected", c.Backend, name, want[i]))
		case v != want[i]:
			wrong = append(wrong, fmt.Sprintf("path proof: %s is %d, the message list makes %d", name, v, want[i]))
		}
	}
	if n := got["error_cqes"]; n > 0 {
		wrong = append(wrong, fmt.Sprintf("%d error CQEs", n))
	}
	switch v := c.Verify; {
	case v.Wrong > 0:
		wrong = append(wrong, fmt.Sprintf("payload: %d of %d bytes wrong, first: %s", v.Wrong, v.Checked, v.First))
	case v.Checked == 0 && ops.PayloadBytes > 0:
		wrong = append(wrong, fmt.Sprintf("payload: none of %d bytes was checked", ops.PayloadBytes))
	}
	return wrong
}

// sumCounters adds the ranks' counters; a sum is exact if every part is.
func sumCounters(results []*pointResult) []backends.Counter {
	var out []backends.Counter
	at := map[string]int{}
	for _, r := range results {
		for _, k := range r.Counters {
			i, ok := at[k.Name]
			if !ok {
				at[k.Name] = len(out)
				out = append(out, k)
				continue
			}
			out[i].Value += k.Value
			out[i].Exact = out[i].Exact && k.Exact
		}
	}
	return out
}

func sumVerify(results []*pointResult) workloads.Verification {
	var v workloads.Verification
	for i, r := range results {
		v.Checked += r.Verify.Checked
		v.Wrong += r.Verify.Wrong
		if v.First == "" && r.Verify.First != "" {
			v.First = fmt.Sprintf("rank %d: %s", i, r.Verify.First)
		}
	}
	return v
}

// created takes over what the sessions really made: rank 0's facts, and the others' where they differ. Facts of
// libraries become the record's libraries; the fact "unsafe" is returned.
func (p *processRun) created(c *record.Case, results []*pointResult) (unsafe string) {
	c.Created = map[string]string{}
	libs := map[string]*record.Library{}
	for rank, r := range results {
		for _, k := range slices.Sorted(maps.Keys(r.Facts)) {
			v := r.Facts[k]
			if k == "unsafe" {
				unsafe = v
				continue
			}
			if k == "runnable_threads" {
				continue // a fact of the sample
			}
			if rest, ok := strings.CutPrefix(k, "library."); ok {
				if rank == 0 {
					addLibrary(libs, rest, v)
				} else if v != results[0].Facts[k] {
					c.Created[fmt.Sprintf("%s.rank%d", k, rank)] = v
				}
				continue
			}
			if rank == 0 {
				c.Created[k] = v
			} else if was, ok := results[0].Facts[k]; !ok || was != v {
				c.Created[fmt.Sprintf("%s.rank%d", k, rank)] = v
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(libs)) {
		c.Library = append(c.Library, *libs[name])
	}
	if unsafe == "0" || unsafe == "false" {
		unsafe = ""
	}
	return unsafe
}

// addLibrary takes "<name>.version", "<name>.path" or "<name>.sha256"; the name may have dots.
func addLibrary(libs map[string]*record.Library, key, value string) {
	i := strings.LastIndexByte(key, '.')
	if i < 0 {
		return
	}
	name := key[:i]
	l := libs[name]
	if l == nil {
		l = &record.Library{Name: name}
		libs[name] = l
	}
	switch key[i+1:] {
	case "version":
		l.Version = value
	case "path":
		l.Path = value
	case "sha256":
		l.SHA256 = value
	}
}

// hostFacts takes over the machine's facts at the sample, and warns when a host had more runnable threads than
// CPUs: then times say more of the scheduler than of the backend.
func (p *processRun) hostFacts(c *record.Case, results []*pointResult) {
	type load struct{ threads, cpus int }
	loads := map[string]*load{}
	total := 0
	for i, r := range results {
		var m map[string]any
		if json.Unmarshal(r.Host, &m) == nil && i == 0 {
			c.Host = m
		}
		id := p.opt.Cluster.agents[i].host()
		if loads[id] == nil {
			loads[id] = &load{}
		}
		l := loads[id]
		if n, err := strconv.Atoi(r.Facts["runnable_threads"]); err == nil {
			l.threads += n
			total += n
		}
		if n, ok := m["cpus"].(float64); ok {
			l.cpus = max(l.cpus, int(n))
		}
		if b, ok := m["binding"].(string); ok && i == 0 && strings.HasPrefix(b, "bound") {
			warn(c, "bound", b)
		}
	}
	if c.Host == nil {
		c.Host = map[string]any{}
	}
	if total > 0 {
		c.Host["runnable_threads"] = total
	}
	for _, l := range loads {
		if l.cpus > 0 && l.threads > l.cpus {
			warn(c, "oversubscribed", fmt.Sprintf("%d runnable threads on %d CPUs", l.threads, l.cpus))
			c.Host["oversubscribed"] = true
			break
		}
	}
}

// capNames spells capabilities as backend.h does, without the prefix.
func capNames(c backends.Caps) string { return strings.Join(c.Names(), ", ") }
