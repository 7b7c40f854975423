package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"gic/backends"
	"gic/harness/plan"
)

// Defaults of a run that neither flags nor suite decide.
const (
	defaultRanks  = 2
	defaultRepeat = 5
)

// request makes the plan that the flags ask for. world is the world size of a launcher, 0 without one.
func (r *runFlags) request(ctx context.Context, world int) (*plan.Plan, *catalog, error) {
	given, err := describePlugins(ctx, r.backendPaths)
	if err != nil {
		return nil, nil, err
	}
	suite, err := r.blocks(given.names)
	if err != nil {
		return nil, nil, err
	}
	ranks := cmp.Or(world, r.ranks.value, suite.Ranks, defaultRanks)
	nic, err := plan.ParseNIC(r.nic, r.nicProfile, rdmaDevices())
	if err != nil {
		return nil, nil, usageError{err}
	}
	named := map[string]bool{}
	for _, b := range suite.Blocks {
		for _, s := range b.Backends {
			named[s.Name] = true
		}
	}
	cat, err := loadCatalog(ctx, given, func(name string) bool { return named[name] })
	if err != nil {
		return nil, nil, err
	}
	if err := cat.fresh(); err != nil {
		return nil, nil, err
	}
	req := plan.Request{Suite: suite, Seed: r.seed, Ranks: ranks, Repeat: cmp.Or(r.repeat.value, suite.Repeat, defaultRepeat),
		NIC: nic, Workloads: workloadList(), Backends: cat.planBackends()}
	req.Device = r.pickDevice(ctx, cat, named, req)
	req.InProcess = r.inProcess.value
	if req.InProcess > ranks {
		return nil, nil, usagef("--ranks-in-process %d with %d ranks; allowed: 1..%d", req.InProcess, ranks, ranks)
	}
	if req.InProcess == 0 && req.Device == "cuda" && world == 0 {
		req.InProcess = ranksInProcess(ranks, cudaDevices())
	}
	if req.InProcess == 1 {
		req.InProcess = 0
	}
	req.Probe = func(name string, setups []plan.Setup) []plan.Refusal {
		return cat.refusals(ctx, name, setups, req)
	}
	p, err := plan.Expand(req)
	if err != nil {
		return nil, nil, usageError{err}
	}
	return p, cat, ctx.Err()
}

// blocks gives the suite that is asked for: a named one narrowed to what the flags say, or the workloads of the
// command line on the backends of the command line. loaded are the backends of --backend-path: without any --backend
// they stand beside what runs anyway.
func (r *runFlags) blocks(loaded []string) (*plan.Suite, error) {
	works, err := specs("workload", r.workloads)
	if err != nil {
		return nil, err
	}
	backs, err := specs("backend", r.backends)
	if err != nil {
		return nil, err
	}
	var join []plan.Spec
	for i, name := range loaded {
		switch asked := slices.ContainsFunc(backs, func(s plan.Spec) bool { return s.Name == name }); {
		case len(backs) == 0:
			join = append(join, plan.Spec{Name: name})
		case !asked:
			return nil, usagef("--backend-path %s: nothing asks for its backend; add --backend %s, or leave out every --backend", r.backendPaths[i], name)
		}
	}
	if r.suite == "" && len(works) > 0 {
		if len(backs) == 0 {
			for _, b := range builtins {
				if !b.hidden {
					backs = append(backs, plan.Spec{Name: b.name})
				}
			}
			for _, s := range join {
				if !slices.ContainsFunc(backs, func(b plan.Spec) bool { return b.Name == s.Name }) {
					backs = append(backs, s)
				}
			}
		}
		s := &plan.Suite{}
		for _, w := range works {
			s.Blocks = append(s.Blocks, plan.Block{Workload: w, Backends: backs})
		}
		return s, nil
	}
	name := r.suite
	if name == "" {
		name = "quick"
	}
	s, err := loadSuite(name)
	if err != nil {
		return nil, err
	}
	if s, err = s.Narrow(works, backs, join); err != nil {
		return nil, usageError{err}
	}
	return s, nil
}

// pickDevice resolves --device auto: cuda when some backend that is asked for really runs on it here.
func (r *runFlags) pickDevice(ctx context.Context, cat *catalog, named map[string]bool, req plan.Request) string {
	if r.device.value != "auto" {
		return r.device.value
	}
	req.Device = "cuda"
	for name, info := range cat.infos {
		if named[name] && info.Caps&backends.CapCUDADevice != 0 && cudaDevices() > 0 &&
			cat.refusals(ctx, name, []plan.Setup{{Config: plan.Defaults(info.Keys), NIC: req.NIC}}, req)[0].Reason == "" {
			return "cuda"
		}
	}
	return "host"
}

// refusals says why setups of a backend cannot run here.
func (c *catalog) refusals(ctx context.Context, name string, setups []plan.Setup, req plan.Request) []plan.Refusal {
	opens := make([]backends.Open, len(setups))
	device := req.Device
	if device == "cuda" {
		device = "cuda:0"
	}
	for i, s := range setups {
		nic := s.NIC.Kind
		if nic == "mlx5" {
			nic = s.NIC.Device
		}
		opens[i] = backends.Open{Ranks: req.Ranks, Job: "gic-probe", Device: device, NIC: nic,
			NICConfig: maps.Clone(s.NIC.Config), Config: s.Config, Timeout: childTimeout}
	}
	refusals := c.probe(ctx, name, opens)
	if info := c.infos[name]; info != nil {
		for i := range refusals {
			if refusals[i].Reason == "" {
				refusals[i].Reason = unserved(info, req.Device, req.NIC.Kind, req.InProcess)
			}
		}
	}
	return refusals
}

// unserved says what a backend does not declare of the device, the NIC and the processes that are asked for.
func unserved(info *backends.Info, device, nic string, inProcess int) string {
	device = "device=" + device
	nic = "nic=" + nic
	have := info.Caps.Names()
	switch {
	case !slices.Contains(have, device):
		return fmt.Sprintf("%s does not run with %s", info.Name, device)
	case !slices.Contains(have, nic):
		return fmt.Sprintf("%s does not run with %s", info.Name, nic)
	case inProcess > 1 && info.Caps&backends.CapRanksInProcess == 0:
		return fmt.Sprintf("ranks_in_process=%d: %s wants a process for each rank; give each a GPU, or install %s", inProcess, info.Name, mpsControl)
	}
	return ""
}

// isInterrupt says whether an error is the end of the context by a signal.
func isInterrupt(err error) bool { return errors.Is(err, context.Canceled) }
