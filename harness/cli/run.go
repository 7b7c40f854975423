package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"gic/backends"
	"gic/backends/plugin"
	"gic/harness/plan"
	"gic/harness/record"
	"gic/harness/report"
	"gic/harness/results"
	"gic/harness/run"
)

// interruptible gives a context that the first signal ends; the second one ends gic at once.
func interruptible() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		signal.Notify(signals, syscall.SIGHUP)
	}
	done := make(chan struct{})
	go func() {
		select {
		case <-signals:
			cancel()
		case <-done:
			return
		}
		select {
		case <-signals:
			os.Exit(exitInterrupted)
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel()
	}
}

// silence is how long an agent that finds the request wrong waits before it ends: a launcher kills all others
// when one ends badly, and agent 0 has something to say.
const silence = 2 * time.Second

// checkLaunch holds the flags against what a launcher started.
func (r *runFlags) checkLaunch(launch run.Launch, launched bool) error {
	if n := r.ranks.value; launched && n != 0 && n != launch.Size {
		return usagef("--ranks %d is not the world size of %s; allowed: %d, or no --ranks", n, launch.Kind, launch.Size)
	}
	if n := r.inProcess.value; launched && n > 1 {
		return usagef("--ranks-in-process %d: %s starts a process for each rank; allowed: 1, or no launcher", n, launch.Kind)
	}
	if r.rendezvous != "" && !launched {
		return usagef("--rendezvous %s needs several ranks started by a launcher; allowed: mpirun, srun or torchrun, or no --rendezvous", r.rendezvous)
	}
	return nil
}

// run is gic run.
func (a *app) run(args []string) error {
	launch, launched, err := run.Discover(os.Environ())
	if err != nil {
		return usageError{err}
	}
	silent := launched && launch.Rank != 0
	if silent { // agent 0 speaks for all of them
		a.stdout, a.stderr = io.Discard, io.Discard
	}
	r, err := parseRun(args)
	if err == nil && r.help {
		return a.commandHelp("run")
	}
	if err == nil {
		err = r.checkLaunch(launch, launched)
	}
	if err != nil {
		if silent {
			time.Sleep(silence)
		}
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	err = a.runAs(ctx, r, args, launch, launched)
	if ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
		return exitError(exitInterrupted)
	}
	return err
}

// runAs does this process's part: all of it, or that of an agent.
func (a *app) runAs(ctx context.Context, r *runFlags, args []string, launch run.Launch, launched bool) error {
	if !launched {
		return a.measure(ctx, r, args, nil)
	}
	if r.dryRun {
		if launch.Rank != 0 {
			return nil
		}
		return a.dry(ctx, r, launch.Size)
	}
	rv, err := run.RendezvousFromEnv(os.Environ())
	if err != nil {
		return usageError{err}
	}
	if r.rendezvous != "" {
		rv.Address = r.rendezvous
	}
	rv.Machine = readMachine
	if launch.Rank != 0 {
		return run.Serve(ctx, launch, rv)
	}
	// The others meet first: when the request makes no sense, closing the cluster is what ends them.
	cluster, err := run.Gather(ctx, launch, rv)
	if err != nil {
		return asUsage(err)
	}
	defer cluster.Close()
	return a.measure(ctx, r, args, cluster)
}

// asUsage keeps what package run calls the caller's fault as a usage error.
func asUsage(err error) error {
	if errors.Is(err, run.ErrUsage) {
		return usageError{err}
	}
	return err
}

func (a *app) dry(ctx context.Context, r *runFlags, world int) error {
	p, _, err := r.request(ctx, world)
	if err != nil {
		return err
	}
	dryRun(a.stdout, p.Part(r.part.Part))
	return nil
}

// session is a run that is being measured.
type session struct {
	header record.Header
	plan   *plan.Plan
	cat    *catalog
	resume *run.Resume
	counts map[run.Key]record.Status // the last record of a case counts
	dir    string
	writer *record.Writer
}

// measure plans, measures, records and prints. cluster is nil without a launcher.
func (a *app) measure(ctx context.Context, r *runFlags, args []string, cluster *run.Cluster) error {
	world := 0
	if cluster != nil {
		world = cluster.Size()
	}
	var s *session
	var err error
	switch {
	case r.resume != "":
		s, err = reopen(ctx, r, world)
	case r.dryRun:
		return a.dry(ctx, r, world)
	default:
		s, err = create(ctx, r, args, cluster, world)
	}
	if err != nil {
		return err
	}
	defer s.writer.Close()
	part := s.plan.Part(r.part.Part)
	if cluster == nil && wantsMPS(part, cudaDevices()) {
		stop, err := startMPS(ctx)
		if err != nil {
			return err
		}
		defer func() {
			if err := stop(); err != nil {
				fmt.Fprintln(a.stderr, "gic:", err)
			}
		}()
	}
	if hashes, err := os.MkdirTemp("", "gic-hashes-"); err == nil { // without it every process reads the libraries
		defer os.RemoveAll(hashes)
		os.Setenv(plugin.HashesEnv, hashes)
		defer os.Unsetenv(plugin.HashesEnv)
	}
	if cluster == nil && keepsTraces(part) && os.Getenv(traceDirEnv) == "" {
		os.Setenv(traceDirEnv, s.dir)
		defer os.Unsetenv(traceDirEnv)
	}
	progress := newReporter(a.stderr, part.Records(), newLabels(s.cat))
	opt := run.Options{Workloads: workloadMap(), Plugin: s.cat.path, Cluster: cluster, Timeout: r.timeout,
		Resume: s.resume, Progress: progress.update}
	runErr := run.Run(ctx, *part, opt, func(c record.Case) error {
		if err := s.writer.Write(&c); err != nil {
			return err
		}
		s.counts[run.Key{ID: c.ID, Index: c.Index}] = c.Status
		return nil
	})
	progress.close()
	if err := s.writer.Close(); err != nil && runErr == nil {
		runErr = err
	}
	if runErr != nil && !isInterrupt(runErr) {
		return asUsage(runErr)
	}
	return a.finish(s, r, runErr != nil)
}

// traceDirEnv names the folder of the software NIC's traces. Without it they go into the run's own; under a launcher,
// where only one agent knows that folder, into the current one.
const traceDirEnv = "GIC_TRACE_DIR"

// keepsTraces says whether anything of a plan is traced.
func keepsTraces(p *plan.Plan) bool {
	return slices.ContainsFunc(p.Outers, func(o plan.Outer) bool { return o.NIC.Config["trace"] == "on" })
}

// folder names the folder of a run by what chose it.
func (r *runFlags) folder(dir string) string {
	if r.out == "" && os.Getenv(results.EnvDir) != "" {
		return "$" + results.EnvDir + ": " + dir
	}
	return "--out " + dir
}

// create starts a new run: its plan, its folder, its file with the header in it.
func create(ctx context.Context, r *runFlags, args []string, cluster *run.Cluster, world int) (*session, error) {
	now := time.Now()
	id := runID(now)
	dir := r.out
	if dir == "" {
		dir = filepath.Join(results.Open("").Dir, id)
	}
	file := filepath.Join(dir, record.FileName)
	if _, err := os.Lstat(file); err == nil {
		return nil, usagef("--out %s has a %s already; allowed: another folder, or --resume %s", dir, record.FileName, dir)
	}
	p, cat, err := r.request(ctx, world)
	if err != nil {
		return nil, err
	}
	s := &session{plan: p, cat: cat, dir: dir, counts: map[run.Key]record.Status{}}
	s.header = record.Header{ID: id, Time: now, Gic: Version(), Command: append([]string{"gic", "run"}, args...),
		Suite: p.Suite, Seed: p.Seed, Ranks: p.Ranks, RanksInProcess: p.InProcess, Repeat: p.Repeat, Cases: p.Records(), Launch: "local",
		Host: readMachine(), Env: recordedEnv(os.Environ())}
	s.header.Defaults, s.header.AxisDefaults = defaultsOf(p, cat)
	if cluster != nil {
		s.header.Launch, s.header.Hosts = cluster.Kind(), cluster.Hosts()
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, usagef("%s: %w", r.folder(dir), unwrapPath(err))
	}
	if s.writer, err = record.Create(file); err != nil {
		return nil, usagef("%s: %w", r.folder(dir), err)
	}
	if err := s.writer.Write(&s.header); err != nil {
		s.writer.Close()
		return nil, err
	}
	return s, nil
}

// defaultsOf tells what the keys of a plan's backends, as far as they are known here, and the axes of its workloads are
// when nobody sets them.
func defaultsOf(p *plan.Plan, cat *catalog) (keys, axes map[string]map[string]string) {
	keys, axes = map[string]map[string]string{}, map[string]map[string]string{}
	works := workloadMap()
	for i := range p.Outers {
		o := &p.Outers[i]
		if info := cat.infos[o.Backend]; info != nil && keys[o.Backend] == nil {
			keys[o.Backend] = plan.Defaults(info.Keys)
		}
		if w := works[o.Workload]; w != nil && axes[o.Workload] == nil {
			var list []backends.Key
			for _, a := range w.Axes() {
				list = append(list, a.Key)
			}
			axes[o.Workload] = plan.Defaults(list)
		}
	}
	return keys, axes
}

// runID is unique per run and sorts by time.
func runID(now time.Time) string {
	var b [3]byte
	_, _ = rand.Read(b[:]) // never fails
	return now.UTC().Format("20060102-150405") + "-" + hex.EncodeToString(b[:])
}

// finish prints the table, where the records are, and one line of counts. The table is made from the file, as
// gic show makes it: the two cannot differ.
func (a *app) finish(s *session, r *runFlags, interrupted bool) error {
	format := r.format.value
	file := filepath.Join(s.dir, record.FileName)
	rep, err := report.Load(file, lint)
	if err != nil {
		return err
	}
	if err := rep.Render(a.stdout, format, width); err != nil {
		return err
	}
	counts := map[record.Status]int{}
	for _, status := range s.counts {
		counts[status]++
	}
	// Only the table is for reading: what another program reads from stdout stays pure.
	to := a.stdout
	if format != "table" {
		to = a.stderr
	}
	fmt.Fprintf(to, "\n%s\n%s\n", file, summary(counts))
	if interrupted {
		fmt.Fprintf(a.stderr, "gic: interrupted; %d of %d records are kept, finish them with: gic run --resume %s\n",
			len(s.counts), s.plan.Records(), s.dir)
		return exitError(exitInterrupted)
	}
	if missing := s.plan.Records() - len(s.counts); missing > 0 {
		fmt.Fprintf(a.stderr, "gic: this was part %s; %d of %d records are there, measure the others with: gic run --resume %s\n",
			r.part, len(s.counts), s.plan.Records(), s.dir)
	}
	if counts[record.Failed]+counts[record.Timeout]+counts[record.Unverified] > 0 {
		return exitError(exitFailed)
	}
	return nil
}

// statuses in the order in which they are counted out.
var statuses = []record.Status{record.OK, record.Unsafe, record.Skipped, record.Unverified, record.Failed, record.Timeout}

// summary is "12 ok, 5 skipped".
func summary(counts map[record.Status]int) string {
	var parts []string
	for _, st := range statuses {
		if n := counts[st]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, st))
		}
	}
	if parts == nil {
		return "no records"
	}
	return strings.Join(parts, ", ")
}
