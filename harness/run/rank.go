package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gic/backends"
	"gic/harness/machine"
	"gic/workloads"
)

// orderFD is where a rank process finds its startOrder.
const orderFD = 3

// RankMain is a rank process from start to end, mostly of one rank; it returns the exit status.
func RankMain(opt RankOptions) int {
	order, err := readOrder()
	if err != nil {
		fmt.Fprintf(os.Stderr, "gic %s is started by gic run only: %v\n", RankArg, err)
		return 2
	}
	var ranks []*rank
	for i := range 1 + order.More {
		mine := order
		mine.Rank += i
		c, err := dial(order.Address, order.Token, hello{Rank: mine.Rank, Job: order.Job})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		ranks = append(ranks, &rank{opt: &opt, order: mine, c: c, ctx: ctx, cancel: cancel,
			orders: make(chan message, 8), answers: make(chan *gather, 8)})
	}
	var others sync.WaitGroup
	for _, r := range ranks[1:] {
		go r.read()
		others.Go(r.main)
	}
	go ranks[0].read()
	ranks[0].main()
	others.Wait()
	return 0
}

// main is one rank of the process. One thread makes all calls into its backend (the C ABI promises it), and CUDA's
// current device is its.
func (r *rank) main() {
	runtime.LockOSThread()
	r.serve()
}

func readOrder() (startOrder, error) {
	var o startOrder
	var st unix.Stat_t
	if unix.Fstat(orderFD, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return o, errors.New("no order")
	}
	f := os.NewFile(orderFD, "order")
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return o, err
	}
	return o, json.Unmarshal(b, &o)
}

// rank is the state of a rank process. The main goroutine carries out orders; the reader takes messages.
type rank struct {
	opt    *RankOptions
	moved  map[string]uint64 // by the RDMA ports during the last run
	before map[string]any    // the GPUs' clocks before it
	order  startOrder
	c      *conn
	ctx    context.Context // ends at the stop word
	cancel context.CancelCauseFunc

	orders  chan message
	answers chan *gather

	mu      sync.Mutex
	session backends.Session // for Stop

	open  *openOrder
	work  workloads.Workload
	info  backends.Info
	epoch int // of the order being carried out
	seq   int // of its next exchange
}

// read ends the process when the coordinator is gone: nobody is left to take a result.
func (r *rank) read() {
	for {
		m, err := r.c.recv()
		if err != nil {
			os.Exit(1)
		}
		switch {
		case m.Stop:
			r.stop()
			r.orders <- m
		case m.Gather != nil:
			select {
			case r.answers <- m.Gather:
			case <-r.ctx.Done(): // nobody waits for it any more
			}
		default:
			r.orders <- m
		}
	}
}

// stop ends what the main goroutine is doing: exchanges by the context, device spins by the session.
func (r *rank) stop() {
	r.cancel(backends.ErrCanceled)
	r.mu.Lock() // close waits: a session is not stopped while it is closed
	defer r.mu.Unlock()
	if r.session != nil {
		r.session.Stop()
	}
}

func (r *rank) tell(m message) {
	if err := r.c.send(m); err != nil {
		os.Exit(1)
	}
}

func (r *rank) stage(name string) { r.tell(message{Stage: name}) }

// serve carries out orders until told to end.
func (r *rank) serve() {
	for m := range r.orders {
		switch {
		case m.Stop:
			r.close()
			return
		case m.End != nil:
			r.epoch, r.seq = m.End.Epoch, 0
			r.close()
			return
		case m.Open != nil:
			r.report(m.Open.Epoch, "open", func() error { return r.doOpen(m.Open) }, func() message {
				return message{Opened: &opened{Info: r.info}}
			})
		case m.Window != nil:
			r.report(m.Window.Epoch, "window", func() error { return r.session.Window(m.Window.Bytes) }, func() message {
				return message{Ready: true}
			})
		case m.Point != nil:
			r.epoch, r.seq = m.Point.Epoch, 0
			res := r.point(m.Point.Point)
			r.tell(message{Result: res})
		}
	}
}

// report does a step under its stage's name, and tells the outcome.
func (r *rank) report(epoch int, stage string, do func() error, ok func() message) {
	r.epoch, r.seq = epoch, 0
	r.stage(stage)
	if err := guard(do); err != nil {
		r.tell(message{Err: newRankError(stage, err)})
		return
	}
	r.tell(ok())
}

// guard turns a panic of Go code (a workload's, say) into an error: the row must tell, not the user's terminal.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f()
}

func (r *rank) doOpen(o *openOrder) error {
	r.open = o
	r.work = r.opt.Workloads[o.Workload]
	if r.work == nil {
		return fmt.Errorf("workload %s is not known to the rank process", o.Workload)
	}
	b, err := r.opt.Open(o.Backend, o.Plugin)
	if err != nil {
		return err
	}
	s, err := b.Open(r.ctx, backends.Open{
		Rank: r.order.Rank, Ranks: o.Ranks, Job: r.order.Job,
		Device: r.device(), NIC: o.NIC, NICConfig: o.NICConfig, Config: o.Config,
		Comm: (*comm)(r), Timeout: o.Spin,
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.session = s
	r.mu.Unlock()
	if r.ctx.Err() != nil { // the stop word came while there was no session to stop
		s.Stop()
	}
	r.info = b.Info()
	return nil
}

// device spreads the rank processes of this host over the GPUs.
func (r *rank) device() string {
	if r.open.Device != "cuda" {
		return r.open.Device
	}
	n := r.open.LocalRank / max(1, r.open.InProcess)
	if r.opt.GPUs != nil {
		if gpus := r.opt.GPUs(); gpus > 0 {
			n %= gpus
		}
	}
	return fmt.Sprintf("cuda:%d", n)
}

func (r *rank) close() {
	r.mu.Lock()
	s := r.session
	r.session = nil // Stop is of no use to a session being closed
	r.mu.Unlock()
	if s == nil {
		return
	}
	r.stage("close")
	if err := guard(s.Close); err != nil {
		fmt.Fprintln(os.Stderr, "close:", err)
		os.Exit(1)
	}
}

// point measures one point.
func (r *rank) point(p workloads.Point) *pointResult {
	res := &pointResult{}
	r.moved, r.before = nil, nil
	stage := ""
	// step carries out a part of the point under its name.
	step := func(name string, do func() error) error {
		stage = name
		r.stage(name)
		if r.ctx.Err() != nil {
			return context.Cause(r.ctx)
		}
		return do()
	}
	err := guard(func() error {
		var job workloads.Job
		var before, after []backends.Counter
		var ports map[string]uint64
		if err := steps(step, []named{
			{"prepare", func() (err error) {
				if job, err = r.work.Prepare(p, r.open.Ranks, r.open.Seed); err != nil {
					return err
				}
				job = workloads.For(job, r.info.Caps)
				return nil
			}},
			{"counters", func() (err error) {
				ports = r.ports()
				before, err = r.session.Counters()
				return err
			}},
		}); err != nil {
			return err
		}
		for i := range workloads.Runs(job) {
			if err := r.once(step, job, i, res); err != nil {
				return err
			}
		}
		if err := steps(step, []named{
			{"counters", func() (err error) {
				r.moved = machine.CounterDelta(ports, r.ports())
				after, err = r.session.Counters()
				return err
			}},
			{"facts", func() (err error) {
				if res.Facts, err = r.session.Facts(); err == nil {
					hashTrace(res.Facts)
				}
				return err
			}},
		}); err != nil {
			return err
		}
		var err error
		res.Counters, err = subtract(after, before)
		return err
	})
	debug.SetGCPercent(gcPercent)
	if err != nil {
		res.Err = newRankError(stage, err)
	}
	res.Host = r.sample()
	return res
}

// named is a step with the name that a failure in it is reported under.
type named struct {
	name string
	do   func() error
}

func steps(step func(string, func() error) error, list []named) error {
	for _, s := range list {
		if err := step(s.name, s.do); err != nil {
			return err
		}
	}
	return nil
}

// once carries out run i of a job and checks what it did. The barriers make the ranks start together, and keep each from
// checking its window while a peer still writes to it.
func (r *rank) once(step func(string, func() error) error, job workloads.Job, i int, res *pointResult) error {
	me := r.order.Rank
	var in backends.Run
	return steps(step, []named{
		{"prepare", func() (err error) {
			if s, ok := job.(workloads.Sweep); ok {
				in, err = s.RunAt(me, i)
			} else {
				in, err = job.Run(me)
			}
			return err
		}},
		{"fill", func() error { return job.Fill(me, r.session) }},
		{"collect", func() error {
			// No garbage collection of this process may fall into the run.
			runtime.GC()
			debug.SetGCPercent(-1)
			return nil
		}},
		{"sample", func() error {
			if i == 0 {
				r.before = r.clocks()
			}
			return nil
		}},
		{"barrier before run", func() error { return (*comm)(r).Barrier(r.ctx) }},
		{"run", func() error {
			series, err := r.session.Run(in)
			res.add(series)
			return err
		}},
		{"barrier after run", func() error { return (*comm)(r).Barrier(r.ctx) }},
		{"verify", func() error {
			v, err := job.Verify(me, r.session)
			res.Verify.Checked += v.Checked
			res.Verify.Wrong += v.Wrong
			if res.Verify.First == "" {
				res.Verify.First = v.First
			}
			return err
		}},
	})
}

// add puts a run's series behind those of the runs before it.
func (p *pointResult) add(series []backends.Series) {
	for _, s := range series {
		if i := slices.IndexFunc(p.Series, func(x backends.Series) bool { return x.Name == s.Name }); i >= 0 {
			p.Series[i].Values = append(slices.Clip(p.Series[i].Values), s.Values...)
		} else {
			p.Series = append(p.Series, s)
		}
	}
}

// gcPercent is Go's default.
const gcPercent = 100

// subtract gives what a run alone has counted.
func subtract(after, before []backends.Counter) ([]backends.Counter, error) {
	was := make(map[string]uint64, len(before))
	for _, c := range before {
		was[c.Name] = c.Value
	}
	out := make([]backends.Counter, len(after))
	for i, c := range after {
		if c.Value < was[c.Name] {
			return nil, fmt.Errorf("counter %s went back from %d to %d", c.Name, was[c.Name], c.Value)
		}
		c.Value -= was[c.Name]
		out[i] = c
	}
	return out, nil
}

func (r *rank) ports() map[string]uint64 {
	if r.opt.Ports == nil {
		return nil
	}
	return r.opt.Ports()
}

// clocks are the GPUs' facts of a sample, to stand beside those after the run.
func (r *rank) clocks() map[string]any {
	m := map[string]any{}
	if r.opt.Sample != nil {
		for k, v := range r.opt.Sample() {
			if strings.HasPrefix(k, "gpu_") {
				m[k+"_before"] = v
			}
		}
	}
	return m
}

func (r *rank) sample() []byte {
	m := map[string]any{}
	if r.opt.Sample != nil {
		m = r.opt.Sample()
	}
	maps.Copy(m, r.before)
	if n := allowedCPUs(); n > 0 {
		m["cpus"] = n
	}
	if r.order.Binding != "" {
		m["binding"] = r.order.Binding
	}
	if len(r.moved) > 0 {
		m["rdma_ports"] = r.moved
	}
	return jsonObject(m)
}

// comm is the exchange among the ranks, through the coordinator.
type comm rank

var _ backends.Comm = (*comm)(nil)

func (c *comm) Allgather(ctx context.Context, mine []byte) ([][]byte, error) {
	if len(mine) == 0 {
		if err := c.Barrier(ctx); err != nil {
			return nil, err
		}
		return make([][]byte, c.open.Ranks), nil
	}
	a, err := c.exchange(ctx, mine)
	if err != nil {
		return nil, fmt.Errorf("allgather: %w", err)
	}
	return a.All, nil
}

func (c *comm) Barrier(ctx context.Context) error {
	if _, err := c.exchange(ctx, nil); err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	return nil
}

// exchange sends this rank's part and waits for the answer. The coordinator answers in any case, naming who is
// missing; the deadline here is for a coordinator that is lost without its connection breaking.
func (c *comm) exchange(ctx context.Context, mine []byte) (*gather, error) {
	r := (*rank)(c)
	if err := context.Cause(r.ctx); err != nil {
		return nil, err
	}
	g := gather{Epoch: r.epoch, Seq: r.seq, Data: mine}
	r.seq++
	r.tell(message{Gather: &g})
	t := time.NewTimer(2 * r.open.Timeout)
	defer t.Stop()
	for {
		select {
		case a := <-r.answers:
			if a.Epoch != g.Epoch || a.Seq != g.Seq {
				continue // of an exchange that was given up
			}
			if a.Err != "" {
				return nil, fmt.Errorf("%w: %s", backends.ErrCanceled, a.Err)
			}
			return a, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-r.ctx.Done():
			return nil, context.Cause(r.ctx)
		case <-t.C:
			return nil, fmt.Errorf("%w: no answer of the coordinator within %v", backends.ErrTimeout, 2*r.open.Timeout)
		}
	}
}
