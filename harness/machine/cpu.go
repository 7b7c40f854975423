package machine

import (
	"fmt"
	"math"
	"path"
	"strconv"
	"strings"
)

func (r Reader) cpu(n *notes) map[string]any {
	info := r.text("/proc/cpuinfo")
	out := map[string]any{}
	set := func(key, value, why string) {
		if value == "" {
			n.add("cpu %s: %s", key, why)
			return
		}
		out[key] = value
	}
	model := field(info, "model name")
	if model == "" { // arm64
		if impl := field(info, "CPU implementer"); impl != "" {
			model = "implementer " + impl + " part " + field(info, "CPU part")
		}
	}
	set("model", model, "not in /proc/cpuinfo")
	set("online", r.text("/sys/devices/system/cpu/online"), "no /sys/devices/system/cpu/online")
	allowed := r.allowed()
	set("allowed", formatCPUs(allowed), "not in /proc/self/status")
	quota, limited := r.quota()
	if limited {
		out["quota"] = quota
	}
	out["cpus"] = effective(len(allowed), quota, limited)
	set("memlock", r.memlock(), "not in /proc/self/limits")
	if nodes := r.numa(); len(nodes) > 0 {
		out["numa"] = nodes
	} else {
		n.add("cpu numa: no nodes in /sys/devices/system/node")
	}
	set("governor", r.governor(allowed), "no cpufreq in /sys/devices/system/cpu: the host or firmware decides")
	if lo, hi, ok := r.frequency(allowed); ok {
		out["frequency_min"], out["frequency_max"] = lo, hi
	} else {
		n.add("cpu frequency: neither cpufreq nor /proc/cpuinfo tells it")
	}
	if smt := r.text("/sys/devices/system/cpu/smt/active"); smt != "" {
		out["smt"] = smt == "1"
	}
	if iso := r.text("/sys/devices/system/cpu/isolated"); iso != "" {
		out["isolated"] = iso
	}
	if v := r.virtual(info); v != "" {
		out["virtual"] = v
	}
	mem := r.text("/proc/meminfo")
	if b, ok := kib(field(mem, "MemTotal")); ok {
		out["memory"] = b
	} else {
		n.add("memory: not in /proc/meminfo")
	}
	if b, ok := kib(field(mem, "MemAvailable")); ok {
		out["memory_available"] = b
	}
	out["iommu"] = r.iommu()
	return out
}

// allowed are the CPUs this process may run on: its affinity, which the kernel already cuts down to the cpuset.
func (r Reader) allowed() []int {
	return parseCPUs(field(r.text("/proc/self/status"), "Cpus_allowed_list"))
}

// effective is how many CPUs' worth of time this process gets.
func effective(allowed int, quota float64, limited bool) float64 {
	if limited {
		return math.Min(float64(allowed), quota)
	}
	return float64(allowed)
}

// quota is the tightest CPU limit of this process' cgroups, in CPUs.
func (r Reader) quota() (cpus float64, limited bool) {
	cpus = math.Inf(1)
	for line := range strings.Lines(r.text("/proc/self/cgroup")) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		v2 := parts[0] == "0" && parts[1] == ""
		v1 := false
		for c := range strings.SplitSeq(parts[1], ",") {
			v1 = v1 || c == "cpu"
		}
		if !v1 && !v2 {
			continue
		}
		for dir := path.Clean("/" + parts[2]); ; dir = path.Dir(dir) {
			if q, ok := r.quotaOf(v2, parts[1], dir); ok {
				cpus = math.Min(cpus, q)
			}
			if dir == "/" {
				break
			}
		}
	}
	if math.IsInf(cpus, 1) {
		return 0, false
	}
	return cpus, true
}

func (r Reader) quotaOf(v2 bool, controllers, dir string) (float64, bool) {
	var quota, period string
	if v2 {
		quota, period, _ = strings.Cut(r.text("/sys/fs/cgroup"+dir+"/cpu.max"), " ")
	} else {
		for _, mount := range []string{controllers, "cpu"} {
			base := "/sys/fs/cgroup/" + mount + dir
			if q := r.text(base + "/cpu.cfs_quota_us"); q != "" {
				quota, period = q, r.text(base+"/cpu.cfs_period_us")
				break
			}
		}
	}
	q, err1 := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err1 != nil || err2 != nil || q <= 0 || p <= 0 { // "max" or -1: no limit
		return 0, false
	}
	return q / p, true
}

// memlock is how much memory this process may pin: a number of bytes, or "unlimited".
func (r Reader) memlock() string {
	for line := range strings.Lines(r.text("/proc/self/limits")) {
		if rest, ok := strings.CutPrefix(line, "Max locked memory"); ok {
			if f := strings.Fields(rest); len(f) > 0 {
				return f[0]
			}
		}
	}
	return ""
}

// Node is one NUMA node.
type Node struct {
	Node   int    `json:"node"`
	CPUs   string `json:"cpus"`
	Memory int64  `json:"memory,omitempty"`
}

func (r Reader) numa() []Node {
	var out []Node
	for _, name := range r.list("/sys/devices/system/node/node[0-9]*") {
		id, err := strconv.Atoi(strings.TrimPrefix(name, "node"))
		if err != nil {
			continue
		}
		dir := "/sys/devices/system/node/" + name
		node := Node{Node: id, CPUs: r.text(dir + "/cpulist")}
		for line := range strings.Lines(r.text(dir + "/meminfo")) { // "Node 0 MemTotal: 1 kB"
			if _, v, ok := strings.Cut(line, "MemTotal:"); ok {
				node.Memory, _ = kib(v)
			}
		}
		out = append(out, node)
	}
	return out
}

func (r Reader) cpufreq(cpu int, file string) string {
	return r.text(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/cpufreq/%s", cpu, file))
}

func (r Reader) governor(allowed []int) string {
	values := map[int]string{}
	for _, c := range allowed {
		if g := r.cpufreq(c, "scaling_governor"); g != "" {
			values[c] = g
		}
	}
	if len(values) == 0 {
		return ""
	}
	return byValue(values)
}

// frequency is the range of the current frequencies of the allowed CPUs, in Hz.
func (r Reader) frequency(allowed []int) (lo, hi float64, ok bool) {
	lo = math.Inf(1)
	note := func(hz float64) { lo, hi, ok = math.Min(lo, hz), math.Max(hi, hz), true }
	for _, c := range allowed {
		if khz, err := strconv.ParseFloat(r.cpufreq(c, "scaling_cur_freq"), 64); err == nil {
			note(khz * 1e3)
		}
	}
	if ok {
		return lo, hi, true
	}
	want := map[int]bool{}
	for _, c := range allowed {
		want[c] = true
	}
	cpu := -1
	for line := range strings.Lines(r.text("/proc/cpuinfo")) {
		k, v, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(k) {
		case "processor":
			cpu, _ = strconv.Atoi(strings.TrimSpace(v))
		case "cpu MHz":
			if mhz, err := strconv.ParseFloat(strings.TrimSpace(v), 64); err == nil && want[cpu] {
				note(mhz * 1e6)
			}
		}
	}
	return lo, hi, ok
}

// virtual says what lies between this process and the hardware, "" for nothing visible.
func (r Reader) virtual(cpuinfo string) string {
	var out []string
	flags := " " + field(cpuinfo, "flags") + " "
	if strings.Contains(flags, " hypervisor ") {
		name := strings.TrimSpace(r.text("/sys/class/dmi/id/sys_vendor") + " " + r.text("/sys/class/dmi/id/product_name"))
		if name == "" {
			name = "virtual machine"
		}
		out = append(out, name)
	} else if t := r.text("/sys/hypervisor/type"); t != "" {
		out = append(out, t)
	}
	if r.exists("/.dockerenv") || r.exists("/run/.containerenv") {
		out = append(out, "container")
	}
	return strings.Join(out, ", ")
}

// iommu says how the IOMMU is set up: the kernel's words for it and whether devices are in groups.
func (r Reader) iommu() map[string]any {
	out := map[string]any{"groups": len(r.list("/sys/kernel/iommu_groups/*"))}
	var args []string
	for w := range strings.FieldsSeq(r.text("/proc/cmdline")) {
		k, _, _ := strings.Cut(w, "=")
		switch k {
		case "iommu", "intel_iommu", "amd_iommu", "iommu.passthrough", "iommu.strict", "pci":
			args = append(args, w)
		}
	}
	if len(args) > 0 {
		out["cmdline"] = strings.Join(args, " ")
	}
	return out
}

// kib reads "123 kB" as bytes.
func kib(s string) (int64, bool) {
	f := strings.Fields(s)
	if len(f) == 0 {
		return 0, false
	}
	v, err := strconv.ParseInt(f[0], 10, 64)
	return v << 10, err == nil
}
