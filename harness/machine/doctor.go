package machine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// State is the outcome of one check.
type State string

// The outcomes. Warn: it works, but numbers suffer. Unknown: it cannot be told from here.
const (
	OK      State = "ok"
	Missing State = "missing"
	Warn    State = "warn"
	Unknown State = "unknown"
)

// Check is one thing that a run may want of this machine.
type Check struct {
	Name  string `json:"name"`
	State State  `json:"status"`
	Found string `json:"found"`         // what is there, or what is not
	Get   string `json:"get,omitempty"` // how to get it, when it is not ok
	For   string `json:"for,omitempty"` // who wants it
}

// Want is what the checks measure the machine against.
type Want struct {
	// Threads that spin at once in a default run: device threads, NIC workers and proxies of all ranks.
	Threads int
	// Shm is how many bytes of shared memory such a run takes.
	Shm int64
}

// Doctor checks this machine.
func Doctor(ctx context.Context, w Want) []Check { return Reader{}.Doctor(ctx, w) }

// Doctor checks a machine: tools, processors, memory, then GPU, libraries and RDMA.
func (r Reader) Doctor(ctx context.Context, w Want) []Check {
	var n notes
	gpus := r.gpus(&n)
	ports := r.rdma(ctx, gpus, &n)
	var out []Check
	out = append(out, r.tools()...)
	out = append(out, r.host(w)...)
	out = append(out, r.gpuChecks(gpus, n.list)...)
	out = append(out, r.libraryChecks()...)
	return append(out, r.rdmaChecks(gpus, ports)...)
}

func (r Reader) tools() []Check {
	tool := func(name, who, get string, names ...string) Check {
		for _, n := range names {
			if p, err := r.lookPath(n); err == nil {
				return Check{Name: name, State: OK, Found: p, For: who}
			}
		}
		return Check{Name: name, State: Missing, Found: "no " + strings.Join(names, " or ") + " in PATH", Get: get, For: who}
	}
	return []Check{
		tool("C++ compiler", "building the backends", "install g++ (Debian: apt install g++)", "c++", "g++", "clang++"),
		tool("CUDA compiler", "building with device=cuda", "make cuda-deps in the sources of gic, or install the CUDA toolkit and put its bin folder in PATH", "nvcc"),
		tool("mpirun", "ranks started by MPI", "install Open MPI (Debian: apt install openmpi-bin)", "mpirun"),
		tool("srun", "ranks started by Slurm", "run on a Slurm cluster", "srun"),
		tool("torchrun", "ranks started by torchrun", "activate a Python environment that has torch", "torchrun"),
		tool("ibv_devinfo", "the active MTU in records", "install ibverbs-utils", "ibv_devinfo"),
	}
}

func (r Reader) host(w Want) []Check {
	allowed := r.allowed()
	quota, limited := r.quota()
	cpus := effective(len(allowed), quota, limited)
	c := Check{Name: "CPUs", State: OK, For: "threads that spin", Found: fmt.Sprintf("%g (allowed: %s)", cpus, formatCPUs(allowed))}
	if limited {
		c.Found = fmt.Sprintf("%g (allowed: %s, quota %g)", cpus, formatCPUs(allowed), quota)
	}
	switch {
	case len(allowed) == 0:
		c.State, c.Found, c.Get = Unknown, "not in /proc/self/status", "run on Linux"
	case w.Threads > 0 && float64(w.Threads) > cpus:
		c.State = Warn
		c.Get = fmt.Sprintf("a default run spins %d threads: its times will be marked oversubscribed; use a machine, affinity "+
			"or quota with that many CPUs", w.Threads)
	}
	checks := []Check{c}

	gov := r.governor(allowed)
	c = Check{Name: "CPU governor", State: OK, Found: gov, For: "steady clocks"}
	switch {
	case gov == "":
		c.State, c.Found, c.Get = Unknown, "no cpufreq: the host or firmware decides", "ask who runs the host"
	case gov != "performance":
		c.State, c.Get = Warn, "cpupower frequency-set -g performance (as root)"
	}
	checks = append(checks, c)

	lock := r.memlock()
	c = Check{Name: "memory lock limit", State: OK, Found: lock, For: "registering memory with a NIC"}
	if v, err := strconv.ParseInt(lock, 10, 64); err == nil {
		c.Found = size(v)
		if v < 1<<30 {
			c.State, c.Get = Warn, "enough for the software NIC; for RDMA: ulimit -l unlimited, or memlock in /etc/security/limits.conf"
		}
	} else if lock == "" {
		c.State, c.Found, c.Get = Unknown, "not in /proc/self/limits", "ulimit -l"
	}
	checks = append(checks, c)

	c = Check{Name: "shared memory", State: OK, For: "windows and queues of the software NIC"}
	if free, err := r.shm(); err != nil {
		c.State, c.Found, c.Get = Missing, "/dev/shm: "+err.Error(), "mount a tmpfs on /dev/shm"
	} else {
		c.Found = size(free) + " free in /dev/shm"
		if free < w.Shm {
			c.State, c.Get = Warn, fmt.Sprintf("a default run takes %s: mount -o remount,size=... /dev/shm (docker: --shm-size)", size(w.Shm))
		}
	}
	return append(checks, c)
}

func (r Reader) shm() (free int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(r.path("/dev/shm"), &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * st.Bsize, nil
}

func (r Reader) gpuChecks(gpus []GPU, why []string) []Check {
	c := Check{Name: "GPU", State: OK, For: "device=cuda"}
	if len(gpus) == 0 {
		c.State, c.Found, c.Get = Missing, "none", "use a machine with an NVIDIA GPU and its driver"
		for _, w := range why {
			if text, ok := strings.CutPrefix(w, "gpu: "); ok {
				c.Found = text
			}
		}
		return []Check{c}
	}
	c.Found = fmt.Sprintf("%d x %s, driver %s (CUDA %s)", len(gpus), gpus[0].Name, gpus[0].Driver, gpus[0].CUDA)
	checks := []Check{c}
	for _, g := range gpus {
		name := fmt.Sprintf("GPU %d state", g.Index)
		var wrong []string
		for _, t := range g.Throttle {
			if t != "idle" {
				wrong = append(wrong, "clocks held by "+t)
			}
		}
		if g.MIG {
			wrong = append(wrong, "MIG is on")
		}
		if !g.Persistence {
			wrong = append(wrong, "persistence mode is off")
		}
		if g.ComputeMode == "prohibited" {
			wrong = append(wrong, "compute mode prohibits CUDA")
		}
		if len(wrong) == 0 {
			checks = append(checks, Check{Name: name, State: OK, For: "steady clocks",
				Found: fmt.Sprintf("SM clock %.0f of %.0f MHz", g.SMClock/1e6, g.SMClockMax/1e6)})
			continue
		}
		checks = append(checks, Check{Name: name, State: Warn, Found: strings.Join(wrong, ", "), For: "steady clocks",
			Get: "nvidia-smi -q -d PERFORMANCE,COMPUTE shows it; it is set by who runs the machine"})
	}
	return checks
}

func (r Reader) libraryChecks() []Check {
	var checks []Check
	for _, l := range []struct{ name, file, home, wheel, who, get string }{
		{"NCCL", "libnccl.so.2", "NCCL_HOME", "nvidia/nccl/lib", "backend ncclgin", "pip install nvidia-nccl-cu13, or set NCCL_HOME"},
		{"NVSHMEM", "libnvshmem_host.so.3", "NVSHMEM_HOME", "nvidia/nvshmem/lib", "backends nvshmem and deepep",
			"pip install nvidia-nvshmem-cu13==3.4.5, or set GIC_NVSHMEM_HOME"},
		{"DeepEP", "deep_ep/__init__.py", "", ".", "backend deepep",
			"install it into the active Python environment, or set GIC_PYTHON to the interpreter that has it"},
		{"libibverbs", "libibverbs.so.1", "", "", "nic=mlx5", "install rdma-core (Debian: apt install libibverbs1)"},
		{"libmlx5", "libmlx5.so.1", "", "", "nic=mlx5", "install rdma-core (Debian: apt install ibverbs-providers)"},
	} {
		c := Check{Name: l.name, State: OK, For: l.who}
		if c.Found = r.library(l.file, l.home, l.wheel); c.Found == "" {
			c.State, c.Found, c.Get = Missing, l.file+" not found", l.get
		}
		checks = append(checks, c)
	}
	return checks
}

// library looks where the backends' own probes look (backends/abi/probe.h): the installation an environment
// variable names, Python environments, the loader's folders.
func (r Reader) library(file, home, wheel string) string {
	var dirs []string
	h := r.env(home)
	if ours := r.env("GIC_" + home); home != "" && ours != "" { // what is meant for gic alone
		h = ours
	}
	if h != "" {
		dirs = append(dirs, h+"/lib", h+"/lib64", h)
	}
	if wheel != "" {
		for _, root := range []string{r.env("VIRTUAL_ENV"), r.env("CONDA_PREFIX"), r.pythonPrefix(), r.env("HOME") + "/.local", "/usr/local", "/usr"} {
			if root == "" {
				continue
			}
			dirs = append(dirs, root+"/lib/python3*/site-packages/"+wheel, root+"/lib/python3*/dist-packages/"+wheel,
				root+"/lib/python3/dist-packages/"+wheel)
		}
	}
	for d := range strings.SplitSeq(r.env("LD_LIBRARY_PATH"), ":") {
		if d != "" {
			dirs = append(dirs, d)
		}
	}
	dirs = append(dirs, "/usr/local/lib", "/usr/local/cuda/lib64", "/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/lib/*-linux-gnu", "/lib64")
	for _, d := range dirs {
		found, _ := filepath.Glob(r.path(filepath.Join(d, file)))
		if len(found) > 0 {
			return strings.TrimPrefix(found[0], strings.TrimSuffix(r.path("/"), "/"))
		}
	}
	return ""
}

// pythonPrefix is the prefix of the python3 that a shell would start: a virtual environment that is not activated is on
// PATH alone.
func (r Reader) pythonPrefix() string {
	for dir := range strings.SplitSeq(r.env("PATH"), ":") {
		if dir == "" {
			continue
		}
		if _, err := os.Stat(r.path(dir + "/python3")); err == nil {
			return filepath.Dir(dir)
		}
	}
	return ""
}

func (r Reader) rdmaChecks(gpus []GPU, ports []Port) []Check {
	c := Check{Name: "RDMA device", State: OK, For: "nic=mlx5"}
	if len(ports) == 0 {
		c.State, c.Found, c.Get = Missing, "none in /sys/class/infiniband", "the software NIC (--nic soft) needs none; else use a machine with a ConnectX"
		return []Check{c}
	}
	var checks []Check
	for _, p := range ports {
		checks = append(checks, portCheck(p))
	}
	if len(gpus) == 0 {
		return checks
	}
	d := ports[0].GPUDirect
	c = Check{Name: "GPUDirect RDMA", State: OK, For: "a NIC that reads and writes GPU memory"}
	switch {
	case d.Peermem != "":
		c.Found = "nvidia_peermem " + d.Peermem
	case d.OpenModule:
		c.Found = "dma-buf (open kernel modules)"
	default:
		c.State, c.Found, c.Get = Missing, "neither nvidia_peermem nor the open kernel modules", "modprobe nvidia_peermem (as root), or install the open kernel modules"
	}
	checks = append(checks, c)
	c = Check{Name: "PeerMappingOverride", State: OK, Found: d.PeerMappingOverride, For: "doorbells rung by the GPU"}
	switch d.PeerMappingOverride {
	case "1":
	case "":
		c.State, c.Found, c.Get = Unknown, "/proc/driver/nvidia/params cannot be read", "look at it as root"
	default:
		c.State, c.Get = Missing, `options nvidia NVreg_RegistryDwords="PeerMappingOverride=1;" in /etc/modprobe.d, then reload the driver`
	}
	return append(checks, c)
}

func portCheck(p Port) Check {
	c := Check{Name: fmt.Sprintf("RDMA %s/%d", p.Device, p.Port), State: OK, For: "nic=mlx5",
		Found: fmt.Sprintf("%s, %s, %s, firmware %s", p.State, p.LinkLayer, p.RateText, p.Firmware)}
	var best string
	for _, n := range p.GPUDistance {
		if best == "" || nearer(n.Path, best) {
			best = n.Path
		}
	}
	if best != "" {
		c.Found += ", nearest GPU " + best
	}
	relaxed := p.Relaxed != nil && !*p.Relaxed
	switch {
	case p.State != "ACTIVE":
		c.State, c.Get = Missing, "bring the link up: cable, switch port, subnet manager (InfiniBand) or ip link set up (RoCE)"
	case p.LinkLayer == "Ethernet" && !hasRoCEv2(p):
		c.State, c.Get = Warn, "no RoCE v2 address in its GID table: give "+p.Netdev+" an IP address"
	case len(p.ACS) > 0:
		c.State, c.Found = Warn, c.Found+", ACS on "+strings.Join(p.ACS, " ")
		c.Get = "ACS sends GPU-NIC traffic through the root: switch it off in firmware or with setpci"
	case best == NODE || best == SYS:
		c.State, c.Get = Warn, "no GPU shares a PCIe root with it: use a nearer NIC"
	case relaxed:
		c.State, c.Get = Warn, "PCIe relaxed ordering is off: switch it on in firmware"
	}
	return c
}

func nearer(a, b string) bool {
	rank := map[string]int{PIX: 0, PXB: 1, PHB: 2, NODE: 3, SYS: 4}
	return rank[a] < rank[b]
}

func hasRoCEv2(p Port) bool {
	for _, g := range p.GIDs {
		if g.Type == "RoCE v2" {
			return true
		}
	}
	return false
}

func (r Reader) env(name string) string {
	if name == "" {
		return ""
	}
	if r.Getenv != nil {
		return r.Getenv(name)
	}
	return os.Getenv(name)
}

func (r Reader) lookPath(name string) (string, error) {
	if r.LookPath != nil {
		return r.LookPath(name)
	}
	return exec.LookPath(name)
}

// size words a number of bytes.
func size(b int64) string {
	v, unit := float64(b), "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if v < 1024 {
			break
		}
		v, unit = v/1024, u
	}
	return strconv.FormatFloat(v, 'g', 4, 64) + " " + unit
}
