package backendtest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"

	"gic/backends"
	"gic/workloads"
)

// small keeps the suite fast: the axes that only say how often, and shapes that fit a test. Axes that a workload
// does not have are left out.
var small = workloads.Point{
	"iterations": "20", "warmup": "2", "posts": "16", "rounds": "2", "timer_check": "2", "messages": "64",
	"tokens": "5", "hidden": "64", "experts": "8", "topk": "3", "model": "custom", "bytes": "1000", "size": "24",
}

// variants are the values besides those of small that each axis is tried with, one axis at a time.
var variants = map[string][]string{
	"op": {"put", "put_signal", "atomic", "read"}, "size": {"8", "4096", "65536"}, "threads": {"2", "4"},
	"pattern": {"pair", "all"}, "bytes": {"1", "8", "65536"}, "matrix": {"uniform", "skew:3"}, "layout": {"expert", "rank"},
	"routing": {"uniform", "hot:2", "power:1.2"}, "masked": {"0.5", "1"}, "tokens": {"1", "33"}, "topk": {"1"}, "warmup": {"0"},
}

// base is a workload's smallest point.
func base(w workloads.Workload) workloads.Point {
	p := workloads.Point{}
	for _, a := range w.Axes() {
		p[a.Name] = a.Default
		if v, ok := small[a.Name]; ok && allows(a.Key, v) {
			p[a.Name] = v
		}
	}
	return p
}

// points are the base and every variation of one axis; combinations that the workload refuses are left out.
func points(w workloads.Workload, ranks int) []workloads.Point {
	b := base(w)
	out := []workloads.Point{b}
	for _, a := range w.Axes() {
		for _, v := range variants[a.Name] {
			p := maps.Clone(b)
			if p[a.Name] = v; v == b[a.Name] {
				continue
			}
			if _, err := w.Prepare(p, ranks, 1); err == nil {
				out = append(out, p)
			}
		}
	}
	out = append(out, wordPoints(w, ranks, out)...)
	// Each operation also with a payload that is no single word.
	if _, ok := b["op"]; ok {
		for _, op := range variants["op"] {
			p := maps.Clone(b)
			p["op"], p["size"] = op, "8"
			if _, err := w.Prepare(p, ranks, 1); err == nil {
				out = append(out, p)
			}
		}
	}
	return out
}

func (tr *trial) job(w workloads.Workload, p workloads.Point, ranks int) (workloads.Job, error) {
	if p == nil {
		p = base(w)
	}
	job, err := w.Prepare(p, ranks, 42)
	if err != nil {
		return nil, fmt.Errorf("prepare %s: %w", name(w, p), err)
	}
	return job, nil
}

// name is the workload with the axes that differ from its base.
func name(w workloads.Workload, p workloads.Point) string {
	b := base(w)
	var diff []string
	for _, a := range w.Axes() {
		if p[a.Name] != b[a.Name] {
			diff = append(diff, a.Name+"="+p[a.Name])
		}
	}
	return strings.TrimSpace(w.Name() + " " + strings.Join(diff, " "))
}

// measured is what a checked run left behind on one rank.
type measured struct {
	before, after map[string]backends.Counter
	facts         map[string]string
}

// check runs one point on the open ranks and checks all there is to check: that it ends well, payload and guards,
// and the NIC's counts against the message list. It returns nil when the run itself failed.
func (tr *trial) check(what string, job workloads.Job) []measured {
	c := tr.cluster
	bad := func(call string, errs []error) bool { return tr.failed(what+": "+call, errs) }
	if bad("window", c.each(func(r *rank) error { return r.Window(job.WindowBytes()) })) ||
		bad("fill", c.each(func(r *rank) error { return job.Fill(r.rank, r) })) {
		return nil
	}
	out := make([]measured, len(c.ranks))
	counters := func(to func(*measured) *map[string]backends.Counter) bool {
		return bad("counters", c.each(func(r *rank) (err error) {
			list, err := r.Counters()
			m := map[string]backends.Counter{}
			for _, k := range list {
				m[k.Name] = k
			}
			*to(&out[r.rank]) = m
			return err
		}))
	}
	if counters(func(m *measured) *map[string]backends.Counter { return &m.before }) {
		return nil
	}
	results := make([]workloads.RankResult, len(c.ranks))
	errs := c.run(func(r *rank) error {
		run, err := job.Run(r.rank)
		if err == nil {
			results[r.rank].Series, err = r.Run(run)
		}
		return err
	})
	tr.refused = slices.ContainsFunc(errs, func(err error) bool {
		return errors.Is(err, syscall.EINVAL) || errors.Is(err, backends.ErrNotSupported)
	})
	tr.hung = tr.hung || slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, backends.ErrTimeout) })
	tr.unsupported = slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, backends.ErrNotSupported) })
	if bad("run", errs) {
		return nil
	}
	if counters(func(m *measured) *map[string]backends.Counter { return &m.after }) ||
		bad("facts", c.each(func(r *rank) (err error) { out[r.rank].facts, err = r.Facts(); return })) {
		return nil
	}
	if out[0].facts["unsafe"] != "" {
		return out // deliberately without the order that makes it correct
	}
	wrong := make([]string, len(c.ranks)) // a finding, but no reason to let the ranks go
	bad("verify", c.each(func(r *rank) error {
		v, err := job.Verify(r.rank, r)
		if err == nil && v.Wrong > 0 {
			wrong[r.rank] = fmt.Sprintf("%d of %d bytes are wrong: %s", v.Wrong, v.Checked, v.First)
		}
		results[r.rank].Verify = v
		return err
	}))
	for i, text := range wrong {
		if text != "" {
			tr.errorf("rank %d: %s: verify: %s", i, what, text)
		}
	}
	for i := range out {
		tr.counts(fmt.Sprintf("%s: rank %d", what, i), out[i], job.Ops(i))
	}
	if _, err := job.Summarize(results); err != nil {
		tr.errorf("%s: summarize: %v", what, err)
	}
	return out
}

// counts compares a rank's counters with its message list times the lowering.
func (tr *trial) counts(what string, m measured, ops workloads.Ops) {
	for name, b := range m.before {
		if a, ok := m.after[name]; !ok || a.Value < b.Value {
			tr.errorf("%s: counter %s went from %d to %d", what, name, b.Value, a.Value)
		}
	}
	if tr.target.NIC == "none" && len(m.after) == 0 {
		return // no NIC takes part, so none counts
	}
	var want [3]uint64
	for op, l := range tr.cluster.info.Lowering {
		want[0] += ops.Count[op] * l.Writes
		want[1] += ops.Count[op] * l.Reads
		want[2] += ops.Count[op] * l.Atomics
	}
	for i, name := range []string{"wqe_write", "wqe_read", "wqe_atomic"} {
		a, ok := m.after[name]
		if got := a.Value - m.before[name].Value; !ok || got != want[i] {
			tr.errorf("%s: counter %s moved by %d, the message list makes %d", what, name, got, want[i])
		}
	}
	if e, ok := m.after["error_cqes"]; ok && e.Value != 0 {
		tr.errorf("%s: %d error CQEs", what, e.Value)
	}
}

// sweep checks every point of every workload that the backend declares the capabilities for. A workload's points
// share a session, as in a run; those with several device threads have their own.
func (tr *trial) sweep(ranks int) {
	var used backends.Caps
	for _, w := range tr.target.Workloads {
		for _, threaded := range []bool{false, true} {
			if !tr.sweepWorkload(w, ranks, threaded, &used) {
				return
			}
		}
	}
	if tr.cluster != nil && !tr.hung {
		ops := tr.cluster.info.Caps & (backends.CapNotify<<1 - 1)
		if rest := (ops &^ used).Names(); len(rest) > 0 {
			tr.errorf("declared, but nothing here puts it to the test: %s; is conform among the workloads?", strings.Join(rest, ", "))
		}
	}
}

func (tr *trial) sweepWorkload(w workloads.Workload, ranks int, threaded bool, used *backends.Caps) bool {
	open := func() bool {
		return tr.open(ranks, func(o *backends.Open) {
			if threaded {
				maps.Copy(o.Config, tr.target.Threaded)
			}
		})
	}
	fresh := false
	for _, p := range points(w, ranks) {
		if threaded != isThreaded(p) || tr.hung {
			continue
		}
		if !fresh && !open() {
			return false
		}
		job, err := tr.job(w, p, ranks)
		if err != nil {
			tr.errorf("%v", err)
			return true
		}
		fresh = true
		if job.Needs()&^tr.cluster.info.Caps != 0 {
			continue
		}
		*used |= job.Needs()
		fresh = tr.check(name(w, p), job) != nil // a failed run may leave nothing to go on with
	}
	return true
}

// isThreaded: the point has several device threads per rank.
func isThreaded(p workloads.Point) bool { return p["threads"] != "" && p["threads"] != "1" }

func checkWorkloads(tr *trial) { tr.sweep(2) }
func checkFourRanks(tr *trial) {
	for _, w := range tr.target.Workloads {
		if !tr.open(4, nil) {
			return
		}
		job, err := tr.job(w, nil, 4)
		if err != nil {
			tr.errorf("%v", err)
			continue
		}
		if job.Needs()&^tr.cluster.info.Caps == 0 {
			tr.check("4 ranks: "+name(w, base(w)), job)
		}
		for _, p := range wordPoints(w, 4, nil) {
			if !isThreaded(p) && p["largest"] == base(w)["largest"] && !tr.hung {
				tr.checkWord("4 ranks: ", w, p, 4)
			}
		}
	}
}

// checkTogether: a backend that says so does its work with all ranks in one process, and leaves nothing of one session to
// the next.
func checkTogether(tr *trial) {
	if !tr.start(1) || tr.cluster.info.Caps&backends.CapRanksInProcess == 0 {
		return
	}
	for _, w := range tr.target.Workloads {
		if !tr.openTogether(2, 2, nil) {
			return
		}
		job, err := tr.job(w, nil, 2)
		if err != nil {
			tr.errorf("%v", err)
			continue
		}
		if job.Needs()&^tr.cluster.info.Caps == 0 {
			tr.check("2 ranks of one process: "+name(w, base(w)), job)
		}
	}
}

// checkConfigurations opens the backend with every key moved off its default, one at a time, and checks a few
// points under each. A value that probe calls senseless on its own (it needs another key) is left out.
func checkConfigurations(tr *trial) {
	if len(tr.target.Workloads) == 0 || !tr.start(1) {
		return
	}
	probe, params := tr.cluster.ranks[0].probe, tr.params
	var settings []setting
	for _, k := range tr.cluster.info.Keys {
		if _, fixed := tr.target.Config[k.Name]; fixed {
			continue
		}
		for _, v := range otherValues(k) {
			if err := probe(params(map[string]string{k.Name: v})); err == nil {
				settings = append(settings, setting{k.Name, v})
			} else if errors.Is(err, backends.ErrNotSupported) {
				tr.t.Logf("%s=%s: %v", k.Name, v, err)
			}
		}
	}
	for _, s := range settings {
		tr.checkSetting(s.key, s.value)
		tr.checkWordsUnder(s)
	}
}

// checkSetting runs the first workload, and the first that knows threads with two of them, under one setting.
func (tr *trial) checkSetting(key, value string) {
	var threads workloads.Workload
	for _, w := range tr.target.Workloads {
		if base(w)["threads"] != "" {
			threads = w
			break
		}
	}
	usable := tr.checkPoint(key, value, tr.target.Workloads[0], "1", false)
	if threads == nil {
		return
	}
	// A setting may group threads into agents of a whole warp and refuse less, or serve one thread only and say so.
	before := len(tr.findings)
	for _, n := range []string{"2", "64"} {
		// Several threads may be another configuration.
		if usable = tr.checkPoint(key, value, threads, n, usable && len(tr.target.Threaded) == 0); !tr.refused {
			return
		}
		text := strings.Join(tr.findings[before:], "; ")
		if strings.Contains(text, key) {
			tr.t.Logf("refused: %s", text)
			tr.findings = tr.findings[:before]
		}
	}
}

// checkPoint runs one point, in the session that is open (`goOn`) or a fresh one: true when that session can go on.
func (tr *trial) checkPoint(key, value string, w workloads.Workload, threads string, goOn bool) bool {
	tr.refused = false
	p := base(w)
	if _, ok := p["threads"]; ok {
		p["threads"] = threads
	}
	if !goOn && !tr.open(2, func(o *backends.Open) {
		if isThreaded(p) {
			maps.Copy(o.Config, tr.target.Threaded)
		}
		o.Config[key] = value
	}) {
		return false
	}
	job, err := tr.job(w, p, 2)
	if err != nil {
		tr.errorf("%v", err)
		return false
	}
	return job.Needs()&^tr.cluster.info.Caps != 0 || tr.check(fmt.Sprintf("%s=%s: %s", key, value, name(w, p)), job) != nil
}

// checkUndeclared: what a backend does not declare it refuses, rather than to do something else.
func checkUndeclared(tr *trial) {
	for _, w := range tr.target.Workloads {
		for _, p := range points(w, 2) {
			if isThreaded(p) { // the same words
				continue
			}
			job, err := tr.job(w, p, 2)
			if err != nil {
				tr.errorf("%v", err)
				continue
			}
			if tr.cluster == nil && !tr.start(2) {
				return
			}
			missing := job.Needs() &^ tr.cluster.info.Caps
			if missing == 0 {
				continue
			}
			if !tr.open(2, nil) {
				return
			}
			what := name(w, p)
			if tr.failed(what+": window", tr.cluster.each(func(r *rank) error { return r.Window(job.WindowBytes()) })) {
				continue
			}
			for i, err := range tr.cluster.run(func(r *rank) error {
				run, err := job.Run(r.rank)
				if err == nil {
					_, err = r.Run(run)
				}
				return err
			}) {
				// A rank without a part in it may well end.
				if i == 0 && !errors.Is(err, backends.ErrNotSupported) {
					tr.errorf("%s: rank %d: %v, want ErrNotSupported: %s is not declared", what, i, err,
						strings.Join(missing.Names(), ", "))
				}
			}
		}
	}
}

// checkRepeat: counters declared exact are the same when the same is done again in fresh processes.
func checkRepeat(tr *trial) {
	for _, w := range tr.target.Workloads {
		var runs [2][]measured
		for i := range runs {
			if !tr.open(2, nil) {
				return
			}
			job, err := tr.job(w, nil, 2)
			if err != nil {
				tr.errorf("%v", err)
				return
			}
			if job.Needs()&^tr.cluster.info.Caps != 0 {
				break
			}
			runs[i] = tr.check(w.Name(), job)
		}
		if runs[0] == nil || runs[1] == nil {
			continue
		}
		for rank, first := range runs[0] {
			for name, a := range first.after {
				b, ok := runs[1][rank].after[name]
				if a.Exact && (!ok || b.Value != a.Value) {
					tr.errorf("%s: rank %d: counter %s is declared exact, but was %d and then %d", w.Name(), rank, name, a.Value, b.Value)
				}
			}
		}
	}
}
