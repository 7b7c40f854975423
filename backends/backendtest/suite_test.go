package backendtest

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"gic/backends"
	"gic/backends/fake"
	"gic/backends/plugin"
	"gic/workloads"
	"gic/workloads/alltoall"
	"gic/workloads/caller"
	"gic/workloads/conform"
	"gic/workloads/goodput"
	"gic/workloads/moe"
	"gic/workloads/op"
	"gic/workloads/rate"
)

var works = []workloads.Workload{op.Workload{}, rate.Workload{}, goodput.Workload{}, alltoall.Workload{}, moe.Workload{},
	conform.Workload{}}

// called adds the workload that only some have device code for.
func called(t Target) Target {
	t.Workloads = append(slices.Clone(works), caller.Workload{})
	return t
}

// floors are called, too, and put what inline=on asks for into the WQE, whatever its size; the libraries' key of that name
// is about single words.
func floors(t Target) Target {
	t.Largest = map[string]int{"inline=on": 972}
	return called(t)
}

func fakeTarget(config map[string]string) Target {
	return Target{Name: "fake", Open: func() (backends.Backend, error) { return fake.New(works...), nil },
		Device: "host", NIC: "none", Config: config, Workloads: works, NoSpin: true}
}

func TestFake(t *testing.T) {
	// fault and its companions are there to fail.
	TestBackend(t, fakeTarget(map[string]string{"fault": "none", "fault_rank": "0", "fault_call": "run", "fault_when": ""}))
}

// device is where the floors' device threads run: threads of this machine, or with GIC_TEST_DEVICE=cuda:N a GPU
// (and plugins of `make cuda` in GIC_BUILD; ranks share the GPU, so MPS must run).
func device() string {
	if d := os.Getenv("GIC_TEST_DEVICE"); d != "" {
		return d
	}
	return "host"
}

// nicConfig is the software NIC's, with what GIC_TEST_NIC gives ("engine=gpu,sms=2") in place of its own.
func nicConfig() map[string]string {
	config := map[string]string{"engine": "cpu", "profile": "none", "threads": "1", "watch": "auto", "doorbell": "host", "trace": "off"}
	for kv := range strings.SplitSeq(os.Getenv("GIC_TEST_NIC"), ",") {
		if key, value, ok := strings.Cut(kv, "="); ok {
			config[key] = value
		}
	}
	return config
}

func softTarget(t *testing.T, name string, threaded map[string]string) Target {
	path := Built(t, "lib"+name+".so")
	return Target{Name: name, Open: func() (backends.Backend, error) { return plugin.Load(path) }, Device: device(), NIC: "soft",
		NICConfig: nicConfig(),
		Threaded:  threaded, Workloads: works}
}

func TestMinigda(t *testing.T) {
	TestBackend(t, floors(softTarget(t, "minigda", map[string]string{"qps": "4"}))) // exclusive queues: one per device thread
}

// inBlock asks for all device threads in one block of a GPU.
type inBlock struct{ workloads.Workload }

func (w inBlock) Axes() []workloads.Axis {
	axes := w.Workload.Axes()
	for i := range axes {
		if axes[i].Name == "placement" && device() != "host" {
			axes[i].Default = "warps"
		}
	}
	return axes
}

// Queue pairs whose lock or turn lies in the memory of a block; of warps as well, which then are agents.
func TestMinigdaBlock(t *testing.T) {
	target := softTarget(t, "minigda", nil)
	serveIfRank(t, target)
	w := inBlock{conform.Workload{}}
	for _, sharing := range []string{"lock", "handoff", "warp"} {
		for _, batch := range []string{"1", "4"} {
			t.Run(sharing+" batch "+batch, func(t *testing.T) {
				target.Config = map[string]string{"sharing": sharing, "lock": "block", "batch": batch, "qps": "2"}
				points := wordPoints(w, 2, nil)
				for _, finding := range find(t, target, func(tr *trial) {
					if !tr.open(2, nil) {
						return
					}
					for _, p := range points {
						if !tr.checkWord("", w, p, 2) {
							return
						}
					}
				}) {
					t.Error(finding)
				}
			})
		}
	}
}

func TestMiniproxy(t *testing.T) { TestBackend(t, floors(softTarget(t, "miniproxy", nil))) }

// Agents of a warp, with a ring each and in rings that they share.
func TestMiniproxyWarp(t *testing.T) {
	target := softTarget(t, "miniproxy", nil)
	serveIfRank(t, target)
	for _, config := range []map[string]string{
		{"agent": "warp"},
		{"agent": "warp", "handoff": "baseline", "ring_mode": "shared", "rings": "2", "ring_depth": "64"},
	} {
		t.Run(strings.Join(slices.Sorted(maps.Values(config)), " "), func(t *testing.T) {
			target.Config = config
			for _, finding := range find(t, target, func(tr *trial) {
				if !tr.open(2, nil) {
					return
				}
				for _, p := range wordPoints(conform.Workload{}, 2, nil) {
					if !tr.checkWord("", conform.Workload{}, p, 2) {
						return
					}
				}
			}) {
				t.Error(finding)
			}
		})
	}
}

// NVSHMEM needs a GPU, and a build of `make cuda` in GIC_BUILD. Its heap does not grow with the window, and fault is
// there to fail.
func TestNVSHMEM(t *testing.T) {
	if device() == "host" {
		t.Skip("needs a GPU: set GIC_TEST_DEVICE=cuda:N")
	}
	target := softTarget(t, "nvshmem", nil)
	target.Config = map[string]string{"heap": "256", "fault": "none"}
	TestBackend(t, called(target))
}

// findInOp is what a run of op with so many bytes on two ranks finds.
func findInOp(t *testing.T, target Target, size string) string {
	point := base(op.Workload{})
	point["size"] = size
	return strings.Join(find(t, target, func(tr *trial) {
		if job, err := tr.job(op.Workload{}, point, 2); err != nil {
			tr.errorf("%v", err)
		} else if tr.open(2, nil) {
			tr.check("op", job)
		}
	}), "\n")
}

// An error CQE is no hang, whoever posted: the run fails and says which syndrome the NIC gave, and so does the next one.
func TestNVSHMEMFault(t *testing.T) {
	if device() == "host" {
		t.Skip("needs a GPU: set GIC_TEST_DEVICE=cuda:N")
	}
	target := softTarget(t, "nvshmem", nil)
	serveIfRank(t, target)
	paths := []string{"ibgda", "ibrc"}
	if target.NICConfig["engine"] == "gpu" {
		paths = paths[:1] // the proxy thread reaches no queue of the GPU's
	}
	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			target.Config = map[string]string{"heap": "64", "path": path, "fault": "withdraw"}
			found := findInOp(t, target, "24")
			if !strings.Contains(found, "syndrome 0x13") {
				t.Errorf("found\n%s\nwant an error CQE with syndrome 0x13 (remote access)", found)
			}
		})
	}
}

// NCCL likewise. Its counters of completion=counter and an agent of many lanes are among its keys.
func TestNCCLGIN(t *testing.T) {
	if device() == "host" {
		t.Skip("needs a GPU: set GIC_TEST_DEVICE=cuda:N")
	}
	target := softTarget(t, "ncclgin", nil)
	target.Config = map[string]string{"path": "auto", "fault": "none"}
	TestBackend(t, called(target))
}

// As for NVSHMEM; NCCL's device code, which waits for ever behind an error, is seen to its end: at its own depth it waits for
// a slot there, with a deep queue for its flush.
func TestNCCLGINFault(t *testing.T) {
	if device() == "host" {
		t.Skip("needs a GPU: set GIC_TEST_DEVICE=cuda:N")
	}
	target := softTarget(t, "ncclgin", nil)
	serveIfRank(t, target)
	// A put by pointer fails at its own source, which is withdrawn too; a value, which inline=on makes of a single word, and
	// NCCL's proxy name the peer's memory alone.
	cases := []struct {
		syndrome, size string
		config         map[string]string
	}{
		{"0x04", "24", map[string]string{"path": "gdaki", "depth": "128"}},
		{"0x13", "8", map[string]string{"path": "gdaki", "depth": "32768", "inline": "on"}},
		{"0x04", "24", map[string]string{"path": "gdaki", "completion": "counter"}},
		{"0x13", "24", map[string]string{"path": "proxy"}},
	}
	if target.NICConfig["engine"] == "gpu" {
		cases = cases[:3] // NCCL's thread reaches no queue of the GPU's
	}
	for _, c := range cases {
		t.Run(strings.Join(slices.Sorted(maps.Values(c.config)), " "), func(t *testing.T) {
			target.Config = maps.Clone(c.config)
			target.Config["fault"] = "withdraw"
			found := findInOp(t, target, c.size)
			if !strings.Contains(found, "syndrome "+c.syndrome) || strings.Contains(found, "did not end") || strings.Contains(found, "killed") {
				t.Errorf("found\n%s\nwant an error CQE with syndrome %s, and no kernel that had to be killed", found, c.syndrome)
			}
		})
	}
}

// The suite must see what is wrong with a backend: each fault of fake is found by the case that looks for it.
func TestSuiteFindsFaults(t *testing.T) {
	faulty := func(fault, call string) map[string]string {
		return map[string]string{"fault": fault, "fault_rank": "1", "fault_call": call, "fault_when": ""}
	}
	serveIfRank(t, fakeTarget(nil))
	for _, c := range []struct {
		fault, call string
		run         func(*trial)
		want        string
	}{
		{"corrupt", "run", checkFourRanks, "bytes are wrong"},
		{"miscount", "run", checkFourRanks, "counter wqe_write moved by"},
		{"error", "run", checkFourRanks, "rank 1: 4 ranks: op: run: fake: run: fault=error"},
		{"skip", "run", checkFourRanks, "run with fault=skip"},
		{"crash", "window", checkWindow, "rank 1: window: the rank's process ended in window (signal: killed)"},
		{"error", "open", checkWindow, "rank 1: open: fake: open: fault=error"},
		{"error", "close", checkWindow, "rank 1: close: fake: close: fault=error"},
		{"skip", "facts", checkWindow, "rank 1: facts: 0 of them"},
		{"error", "close", checkWindow, "after close /dev/shm still holds gic-bt"},
	} {
		t.Run(c.fault+" "+c.call, func(t *testing.T) {
			got := strings.Join(find(t, fakeTarget(faulty(c.fault, c.call)), c.run), "\n")
			if !strings.Contains(got, c.want) {
				t.Errorf("fault=%s in %s: found\n%s\nwant %q", c.fault, c.call, got, c.want)
			}
		})
	}
}
