package cli

import (
	"time"

	"gic/harness/plan"
	"gic/harness/report"
	"gic/harness/run"
)

// runFlags are the flags of gic run.
type runFlags struct {
	*flags
	suite           string
	workloads       words
	backends        words
	backendPaths    words
	ranks, repeat   natural
	inProcess       natural // 0: gic decides
	seed            uint64
	device          oneOf
	nic, nicProfile string
	out, resume     string
	part            partFlag
	timeout         time.Duration
	rendezvous      string
	dryRun          bool
	format          oneOf
}

func newRunFlags() *runFlags {
	r := &runFlags{flags: newFlags("run"), ranks: natural{max: plan.MaxRanks}, repeat: natural{max: plan.MaxRepeat}, inProcess: natural{max: plan.MaxRanks},
		device: oneOf{"auto", []string{"auto", "host", "cuda"}}, format: oneOf{"table", report.Formats()}}
	g := r.group("What is measured")
	g.StringVar(&r.suite, "suite", "", "suite by `NAME` or YAML file; default quick, unless --workload is given")
	g.Var(&r.workloads, "workload", "workload and axes, 'W:axis=v|v,axis=v'; may be repeated. With --suite: only this workload of the suite, with these axes instead of its own")
	g.Var(&r.backends, "backend", "backend and keys, 'B:key=v|v,key=v'; may be repeated. With a suite: only the rows of these backends, with these keys instead of the suite's; one that the suite has nowhere joins every block")
	g.Var(&r.backendPaths, "backend-path", "load one more backend from the shared object `FILE`; may be repeated. It joins every block, unless --backend says what runs")
	g.Uint64Var(&r.seed, "seed", 1, "decides payload, routing and every shuffled order, an integer `N`; default 1")

	g = r.group("How often and where")
	g.Var(&r.ranks, "ranks", "ranks of every case; default 2 or the suite's, under a launcher its world size")
	g.Var(&r.inProcess, "ranks-in-process", "ranks that share a process, floors only; default 1, or where ranks share a GPU and MPS is not there, those of a GPU")
	g.Var(&r.repeat, "repeat", "process runs of every case, the unit of statistics; default 5 or the suite's")
	g.Var(&r.device, "device", "where device threads run: threads of this machine (host), CUDA (cuda), or CUDA where a GPU and a backend for it are (auto, the default)")
	g.StringVar(&r.nic, "nic", "soft", "the `NIC`: soft, soft:engine=cpu|gpu,threads=N,watch=auto|bell|dbr,doorbell=host|gpu, none, or an RDMA device; default soft")
	g.StringVar(&r.nicProfile, "nic-profile", "", "the model that shapes the software NIC, a `NAME` of `gic list profiles`")
	g.StringVar(&r.rendezvous, "rendezvous", "", "where agent 0 listens when a launcher started gic on several hosts, `HOST:PORT`")
	g.DurationVar(&r.timeout, "timeout", run.DefaultTimeout, "limit `D` of each point, 90s say; past it the case is recorded as timeout; default 60s")

	g = r.group("What becomes of it")
	g.StringVar(&r.out, "out", "", "write run.jsonl into the folder `DIR`; else <time>-<id> below $GIC_RESULTS or results/local")
	g.StringVar(&r.resume, "resume", "", "finish the run in `DIR`: measure what it lacks, and what failed or timed out again")
	g.Var(&r.part, "part", "measure only part `k/n` of the plan; the other parts go into the same run by --resume DIR --part")
	g.BoolVar(&r.dryRun, "dry-run", false, "print the plan and start nothing")
	g.Var(&r.format, "format", "print results as table (the default), markdown, csv, json or nccl-tests")
	return r
}

// parseRun reads the arguments of gic run as far as that needs no look at the machine.
func parseRun(args []string) (*runFlags, error) {
	r := newRunFlags()
	if err := r.parse(args); err != nil {
		return nil, err
	}
	if r.help {
		return r, nil
	}
	if n := r.all.NArg(); n > 0 {
		return nil, usagef("run takes no argument %q; a suite is given as --suite %[1]s, a workload as --workload %[1]s", r.all.Arg(0))
	}
	if r.timeout <= 0 {
		return nil, usagef("--timeout %v is not allowed; allowed: more than 0, 30s say", r.timeout)
	}
	if r.resume != "" {
		for _, name := range r.names() {
			switch name {
			case "--resume", "--part", "--format", "--timeout", "--rendezvous":
				continue
			}
			if r.all.Changed(name[2:]) {
				return nil, usagef("--resume %s takes %s from the run it finishes; allowed beside it: --part, --format, --timeout, --rendezvous", r.resume, name)
			}
		}
	}
	return r, nil
}

// specs parses the values of --workload or --backend.
func specs(flag string, values []string) ([]plan.Spec, error) {
	var list []plan.Spec
	for _, v := range values {
		s, err := plan.ParseSpec(v)
		if err != nil {
			return nil, usagef("--%s %w", flag, err)
		}
		list = append(list, s)
	}
	return list, nil
}
