package run

import (
	"context"
	"fmt"
	"time"

	"gic/harness/plan"
	"gic/harness/record"
	"gic/workloads"
)

// Run measures the plan and hands every record to sink, in measuring order, as soon as it is known. An error of
// sink ends the run. When ctx ends, the current point is stopped and its processes removed, and the error is
// ctx's: the records handed out so far are good and Resume can finish the rest.
func Run(ctx context.Context, p plan.Plan, opt Options, sink func(record.Case) error) error {
	if opt.Timeout <= 0 {
		opt.Timeout = DefaultTimeout
	}
	if opt.Grace <= 0 {
		opt.Grace = DefaultGrace
	}
	if opt.Restarts <= 0 {
		opt.Restarts = DefaultRestarts
	}
	if opt.Cluster == nil {
		c, err := Local(neededRanks(&p))
		if err != nil {
			return err
		}
		defer c.Close()
		opt.Cluster = c
	}
	if err := check(&p, opt.Cluster); err != nil {
		return err
	}
	r := &runner{opt: &opt, sink: sink, shared: p.InProcess}
	for i := range p.Outers {
		r.planned += max(1, len(p.Outers[i].Points))
	}
	if opt.Resume != nil {
		r.order = opt.Resume.Order
	}
	for i := range p.Outers {
		if err := r.outer(ctx, &p.Outers[i]); err != nil {
			return err
		}
	}
	return nil
}

func neededRanks(p *plan.Plan) int {
	n := p.Ranks
	for i := range p.Outers {
		n = max(n, p.Outers[i].Ranks)
	}
	return n
}

// check refuses what the cluster cannot do before anything is measured.
func check(p *plan.Plan, c *Cluster) error {
	if p.InProcess > 1 && c.Kind() != "local" {
		return fmt.Errorf("%w: %d ranks in a process: %s starts a process per rank", ErrUsage, p.InProcess, c.Kind())
	}
	for i := range p.Outers {
		o := &p.Outers[i]
		switch {
		case o.Ranks < 1 || o.Ranks > c.Size():
			return fmt.Errorf("%w: %d ranks asked, allowed: 1..%d (%s)", ErrUsage, o.Ranks, c.Size(), c.Kind())
		case o.NIC.Kind != "mlx5" && c.spansHosts(o.Ranks):
			return fmt.Errorf("%w: nic=%s is for the ranks of one host, this launch spans several", ErrUsage, o.NIC.Kind)
		}
	}
	return nil
}

// runner is a Run under way.
type runner struct {
	opt           *Options
	sink          func(record.Case) error
	done, planned int
	order         int
	shared        int // ranks of a process
}

// item is one planned point of an outer.
type item struct {
	point workloads.Point
	job   workloads.Job
}

func (r *runner) progress(o *plan.Outer, p workloads.Point, last *record.Case) {
	if r.opt.Progress != nil {
		r.opt.Progress(Progress{Done: r.done, Planned: r.planned, Outer: o, Point: p, Last: last})
	}
}

// emit hands out a record, numbered in the order of measuring.
func (r *runner) emit(o *plan.Outer, c *record.Case) error {
	c.Order = r.order
	r.order++
	r.done++
	if err := r.sink(*c); err != nil {
		return fmt.Errorf("keep record: %w", err)
	}
	r.progress(o, nil, c)
	return nil
}

// outer measures one outer: each of its points gives one record, unless ctx ends first.
func (r *runner) outer(ctx context.Context, o *plan.Outer) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.progress(o, nil, nil)
	items, err := r.prepare(o)
	if err != nil {
		return err
	}
	plugin := ""
	if len(items) > 0 && r.opt.Plugin != nil {
		if plugin, err = r.opt.Plugin(o.Backend); err != nil {
			return r.fail(o, items, &failure{status: record.Failed, stage: "plugin", reason: err.Error()})
		}
	}
	var last *failure
	for restarts := 0; len(items) > 0; restarts++ {
		// A rank that refused its part of a point says nothing against the other points.
		if last != nil && last.status == record.Skipped {
			restarts--
		}
		if restarts > r.opt.Restarts {
			return r.fail(o, items, &failure{status: record.Failed, stage: "start",
				reason: fmt.Sprintf("not run: %d process sets of this case were lost before, the last one: %s", restarts, last.reason)})
		}
		pr := &processRun{runner: r, outer: o, plugin: plugin, earlier: last}
		items, last, err = pr.measure(ctx, items)
		if err != nil {
			return err
		}
	}
	return nil
}

// prepare makes the jobs of the points that are still to be measured. What cannot be prepared or is known not to
// run is recorded here.
func (r *runner) prepare(o *plan.Outer) ([]item, error) {
	points := o.Points
	if len(points) == 0 { // a row without a point of its own
		points = []workloads.Point{nil}
	}
	work := r.opt.Workloads[o.Workload]
	var items []item
	for _, p := range points {
		it := item{point: p}
		c := newCase(o, p)
		if r.opt.Resume != nil && r.opt.Resume.Done[Key{c.ID, c.Index}] {
			r.done++
			continue
		}
		var f *failure
		switch {
		case o.Skip != "":
			f = &failure{status: record.Skipped, reason: o.Skip}
		case p == nil:
			f = &failure{status: record.Failed, stage: "prepare", reason: "the plan gives no point to measure"}
		case work == nil:
			f = &failure{status: record.Failed, stage: "prepare", reason: fmt.Sprintf("workload %s is not known", o.Workload)}
		default:
			err := guard(func() (err error) {
				it.job, err = work.Prepare(p, o.Ranks, o.Seed)
				return err
			})
			if err != nil {
				f = &failure{status: record.Failed, stage: "prepare", reason: err.Error()}
			}
		}
		if f == nil {
			items = append(items, it)
			continue
		}
		if err := r.fail(o, []item{it}, f); err != nil {
			return nil, err
		}
	}
	return items, nil
}

// fail records that none of the items could be measured.
func (r *runner) fail(o *plan.Outer, items []item, f *failure) error {
	for _, it := range items {
		c := newCase(o, it.point)
		c.Start = time.Now().UTC()
		setFailure(&c, f)
		if err := r.emit(o, &c); err != nil {
			return err
		}
	}
	return nil
}

// processRun is one set of rank processes measuring points of an outer.
type processRun struct {
	*runner
	outer   *plan.Outer
	plugin  string
	earlier *failure // what took the previous set of this outer down; nil for the first
	set     *set
	held    *record.Case // the latest record: handed out when it is known what followed it
}

// measure measures as many items as one set of processes can. It returns those left for another set, and what
// took this one down.
func (p *processRun) measure(ctx context.Context, items []item) (rest []item, f *failure, err error) {
	o := p.outer
	p.set = newSet(p.opt.Cluster, o.Ranks, p.shared, p.opt)
	defer p.set.remove(nil) // whatever happens
	f = p.set.start(ctx, p.openOrder())
	if f != nil {
		p.set.remove(f)
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		return nil, f, p.fail(o, items, f)
	}
	if items, err = p.able(items); err != nil || len(items) == 0 {
		p.set.end(ctx)
		return nil, nil, err
	}
	if rest, f, err = p.window(ctx, items); f != nil || err != nil {
		return rest, f, err
	}
	for i, it := range items {
		p.progress(o, it.point, nil)
		at := time.Now()
		results, f := p.set.point(ctx, pointOrder{Point: it.point})
		if f != nil && f.status == record.Skipped && p.set.allSkipped() {
			c := newCase(o, it.point)
			c.Start, c.Duration = at.UTC(), time.Since(at).Seconds()
			setFailure(&c, f)
			if err := p.hold(&c); err != nil {
				return nil, nil, err
			}
			continue
		}
		if f != nil {
			return p.lost(ctx, it, items[i+1:], at, f)
		}
		c := p.merge(it, results)
		c.Start, c.Duration = at.UTC(), time.Since(at).Seconds()
		if err := p.hold(c); err != nil {
			return nil, nil, err
		}
	}
	f = p.set.end(ctx)
	if f != nil && ctx.Err() == nil {
		warn(p.held, "close", "after the measurement: "+f.reason)
	}
	if err := p.release(); err != nil {
		return nil, nil, err
	}
	return nil, nil, ctx.Err()
}

func (p *processRun) openOrder() openOrder {
	o := p.outer
	nic := o.NIC.Kind
	if nic == "mlx5" {
		nic = o.NIC.Device
	}
	return openOrder{Ranks: o.Ranks, Backend: o.Backend, Plugin: p.plugin, Device: o.Device, NIC: nic,
		NICConfig: o.NIC.Config, Config: o.Config, Workload: o.Workload, Seed: o.Seed, InProcess: p.set.shared,
		Timeout: p.opt.Timeout, Spin: p.opt.Timeout / 10 * 9}
}

// able records the points that need what the backend does not have, and returns the others.
func (p *processRun) able(items []item) ([]item, error) {
	info := p.set.ranks[0].opened.Info
	var rest []item
	for _, it := range items {
		it.job = workloads.For(it.job, info.Caps)
		missing := it.job.Needs() &^ info.Caps
		if missing == 0 {
			rest = append(rest, it)
			continue
		}
		f := &failure{status: record.Skipped, reason: fmt.Sprintf("%s has no %s", p.outer.Backend, capNames(missing))}
		if err := p.fail(p.outer, []item{it}, f); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// window allocates the largest window needed. When that fails, the points that need one so large are given up,
// and the smaller ones may try again.
func (p *processRun) window(ctx context.Context, items []item) ([]item, *failure, error) {
	bytes := uint64(0)
	for _, it := range items {
		bytes = max(bytes, it.job.WindowBytes())
	}
	f := p.set.window(ctx, bytes)
	if f == nil {
		return nil, nil, nil
	}
	p.set.remove(f)
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	f.reason += fmt.Sprintf(" (window of %d bytes)", bytes)
	var rest, largest []item
	for _, it := range items {
		if it.job.WindowBytes() == bytes {
			largest = append(largest, it)
		} else {
			rest = append(rest, it)
		}
	}
	return rest, f, p.fail(p.outer, largest, f)
}

// lost records the point that took the set down; the rest is for another set.
func (p *processRun) lost(ctx context.Context, it item, rest []item, at time.Time, f *failure) ([]item, *failure, error) {
	p.set.remove(f)
	if err := p.release(); err != nil {
		return nil, nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	c := newCase(p.outer, it.point)
	c.Start, c.Duration = at.UTC(), time.Since(at).Seconds()
	setFailure(&c, f)
	p.note(&c)
	return rest, f, p.emit(p.outer, &c)
}

// hold keeps a record until the next one is there, or the set has ended: only then it is known whether the
// processes survived it.
func (p *processRun) hold(c *record.Case) error {
	p.note(c)
	if err := p.release(); err != nil {
		return err
	}
	p.held = c
	return nil
}

func (p *processRun) release() error {
	c := p.held
	p.held = nil
	if c == nil {
		return nil
	}
	return p.emit(p.outer, c)
}

// note says that a record was not measured with the first set of processes.
func (p *processRun) note(c *record.Case) {
	if p.earlier != nil {
		warn(c, "restarted", "measured in fresh processes after an earlier point of this sweep was lost: "+p.earlier.reason)
	}
}

func warn(c *record.Case, code, text string) {
	if c != nil {
		c.Warnings = append(c.Warnings, workloads.Warning{Code: code, Text: text})
	}
}
