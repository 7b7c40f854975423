package machine

import (
	"fmt"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// GPU is one CUDA device. A zero field is one the driver did not tell; Machine.Absent says which.
type GPU struct {
	Index       int       `json:"index"`
	Name        string    `json:"name"`
	UUID        string    `json:"uuid"`
	PCI         string    `json:"pci"`
	Driver      string    `json:"driver"`
	CUDA        string    `json:"cuda"` // newest CUDA the driver serves
	Capability  string    `json:"capability"`
	Memory      uint64    `json:"memory"`
	BAR1        uint64    `json:"bar1,omitempty"`
	SMClock     float64   `json:"sm_clock"`
	SMClockMax  float64   `json:"sm_clock_max"`
	MemClock    float64   `json:"mem_clock"`
	MemClockMax float64   `json:"mem_clock_max"`
	Throttle    []string  `json:"throttle"`
	Power       float64   `json:"power,omitempty"`
	PowerLimit  float64   `json:"power_limit,omitempty"`
	Temperature float64   `json:"temperature,omitempty"` // degrees Celsius
	Persistence bool      `json:"persistence"`
	MIG         bool      `json:"mig"`
	ECC         bool      `json:"ecc"`
	ECCErrors   uint64    `json:"ecc_errors,omitempty"` // uncorrected ones since the driver was loaded
	MPS         string    `json:"mps,omitempty"`        // folder in which a control daemon of MPS answers; "" is none
	ComputeMode string    `json:"compute_mode,omitempty"`
	PCIe        PCIeLink  `json:"pcie"`
	NVLinks     int       `json:"nvlinks"` // active ones
	NVLink      *NVLink   `json:"nvlink,omitempty"`
	NUMANode    int       `json:"numa_node"`
	Peers       []GPULink `json:"peers,omitempty"`
	sysfs       string    // real path below /sys/devices
}

// PCIeLink is a PCIe link as it is and as it could be.
type PCIeLink struct {
	Gen      int `json:"gen,omitempty"`
	GenMax   int `json:"gen_max,omitempty"`
	Width    int `json:"width,omitempty"`
	WidthMax int `json:"width_max,omitempty"`
}

// NVLink is the state of a GPU's NVLinks.
type NVLink struct {
	Present int    `json:"present"` // links that the driver knows
	Active  int    `json:"active"`
	Down    []int  `json:"down,omitempty"` // those present that are not active
	Version uint32 `json:"version,omitempty"`
	Remote  string `json:"remote,omitempty"` // what is at the other ends: switch, gpu, ... ("mixed" when they differ)
}

// GPULink is how one GPU reaches another: over PCIe by the words of nvidia-smi topo, and whether over NVLink.
type GPULink struct {
	Index  int    `json:"index"`
	Path   string `json:"path,omitempty"`
	NVLink bool   `json:"nvlink"`
}

// withNVML runs f between the library's init and shutdown.
func (r Reader) withNVML(f func(nvml.Interface)) error {
	lib := r.NVML
	if lib == nil {
		lib = nvml.New()
	}
	if ret := lib.Init(); ret != nvml.SUCCESS {
		if ret == nvml.ERROR_LIBRARY_NOT_FOUND {
			return fmt.Errorf("no NVIDIA driver here (libnvidia-ml.so.1 not found)")
		}
		return fmt.Errorf("NVIDIA driver: %s", describe(lib, ret))
	}
	defer lib.Shutdown()
	f(lib)
	return nil
}

// describe words a result without asking a library that may not be loaded.
func describe(lib nvml.Interface, ret nvml.Return) string {
	if ret == nvml.ERROR_LIBRARY_NOT_FOUND || ret == nvml.ERROR_FUNCTION_NOT_FOUND {
		return ret.Error()
	}
	return lib.ErrorString(ret)
}

func (r Reader) gpus(n *notes) []GPU {
	var out []GPU
	err := r.withNVML(func(lib nvml.Interface) {
		count, ret := lib.DeviceGetCount()
		if ret != nvml.SUCCESS {
			n.add("gpu: count devices: %s", describe(lib, ret))
			return
		}
		if count == 0 {
			n.add("gpu: the driver is loaded but shows no device")
		}
		var handles []nvml.Device
		for i := range count {
			d, ret := lib.DeviceGetHandleByIndex(i)
			if ret != nvml.SUCCESS {
				n.add("gpu %d: %s", i, describe(lib, ret))
				continue
			}
			handles = append(handles, d)
			out = append(out, r.gpu(lib, i, d, n))
		}
		for i := range out {
			for j := range out {
				if i != j {
					out[i].Peers = append(out[i].Peers, link(handles[i], handles[j], out[j].Index))
				}
			}
		}
	})
	if err != nil {
		n.add("gpu: %v", err)
	}
	return out
}

func (r Reader) gpu(lib nvml.Interface, index int, d nvml.Device, n *notes) GPU {
	g := GPU{Index: index, NUMANode: -1}
	ok := func(what string, ret nvml.Return) bool {
		if ret != nvml.SUCCESS {
			n.add("gpu %d %s: %s", index, what, describe(lib, ret))
		}
		return ret == nvml.SUCCESS
	}
	clock := func(what string, f func(nvml.ClockType) (uint32, nvml.Return), t nvml.ClockType) float64 {
		mhz, ret := f(t)
		if !ok(what, ret) {
			return 0
		}
		return float64(mhz) * 1e6
	}
	var ret nvml.Return
	g.Name, ret = d.GetName()
	ok("name", ret)
	g.UUID, ret = d.GetUUID()
	ok("uuid", ret)
	g.Driver, ret = lib.SystemGetDriverVersion()
	ok("driver", ret)
	if v, ret := lib.SystemGetCudaDriverVersion(); ok("cuda", ret) {
		g.CUDA = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	}
	if major, minor, ret := d.GetCudaComputeCapability(); ok("capability", ret) {
		g.Capability = fmt.Sprintf("%d.%d", major, minor)
	}
	if m, ret := d.GetMemoryInfo(); ok("memory", ret) {
		g.Memory = m.Total
	}
	if m, ret := d.GetBAR1MemoryInfo(); ok("bar1", ret) {
		g.BAR1 = m.Bar1Total
	}
	g.SMClock = clock("sm clock", d.GetClockInfo, nvml.CLOCK_SM)
	g.SMClockMax = clock("max sm clock", d.GetMaxClockInfo, nvml.CLOCK_SM)
	g.MemClock = clock("memory clock", d.GetClockInfo, nvml.CLOCK_MEM)
	g.MemClockMax = clock("max memory clock", d.GetMaxClockInfo, nvml.CLOCK_MEM)
	if bits, ret := eventReasons(lib, d); ok("throttle reasons", ret) {
		g.Throttle = throttle(bits)
	}
	if mw, ret := d.GetPowerUsage(); ok("power", ret) {
		g.Power = float64(mw) / 1e3
	}
	if mw, ret := d.GetEnforcedPowerLimit(); ok("power limit", ret) {
		g.PowerLimit = float64(mw) / 1e3
	}
	if t, ret := d.GetTemperature(nvml.TEMPERATURE_GPU); ok("temperature", ret) {
		g.Temperature = float64(t)
	}
	if p, ret := d.GetPersistenceMode(); ok("persistence", ret) {
		g.Persistence = p == nvml.FEATURE_ENABLED
	}
	if cur, _, ret := d.GetMigMode(); ret != nvml.ERROR_NOT_SUPPORTED && ok("mig", ret) {
		g.MIG = cur == nvml.DEVICE_MIG_ENABLE
	}
	if cur, _, ret := d.GetEccMode(); ret != nvml.ERROR_NOT_SUPPORTED && ok("ecc", ret) {
		g.ECC = cur == nvml.FEATURE_ENABLED
	}
	if g.ECC {
		if n, ret := d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC); ok("ecc errors", ret) {
			g.ECCErrors = n
		}
	}
	g.MPS = r.mps()
	if m, ret := d.GetComputeMode(); ok("compute mode", ret) {
		g.ComputeMode = computeMode(m)
	}
	for _, l := range []struct {
		what string
		get  func() (int, nvml.Return)
		to   *int
	}{
		{"pcie gen", d.GetCurrPcieLinkGeneration, &g.PCIe.Gen},
		{"pcie max gen", d.GetMaxPcieLinkGeneration, &g.PCIe.GenMax},
		{"pcie width", d.GetCurrPcieLinkWidth, &g.PCIe.Width},
		{"pcie max width", d.GetMaxPcieLinkWidth, &g.PCIe.WidthMax},
	} {
		if v, ret := l.get(); ok(l.what, ret) {
			*l.to = v
		}
	}
	if g.NVLink = nvlink(d); g.NVLink != nil {
		g.NVLinks = g.NVLink.Active
	}
	if pci, ret := d.GetPciInfo(); ok("pci", ret) {
		g.PCI = fmt.Sprintf("%04x:%02x:%02x.0", pci.Domain, pci.Bus, pci.Device)
		g.sysfs = r.real("/sys/bus/pci/devices/" + g.PCI)
		if node, ok := r.number("/sys/bus/pci/devices/" + g.PCI + "/numa_node"); ok {
			g.NUMANode = int(node)
		}
	}
	return g
}

// nvlink reads the links of a GPU; nil when it has none.
func nvlink(d nvml.Device) *NVLink {
	var n NVLink
	for l := range int(nvml.NVLINK_MAX_LINKS) {
		state, ret := d.GetNvLinkState(l)
		if ret != nvml.SUCCESS {
			continue
		}
		n.Present++
		if state != nvml.FEATURE_ENABLED {
			n.Down = append(n.Down, l)
			continue
		}
		n.Active++
		if v, ret := d.GetNvLinkVersion(l); ret == nvml.SUCCESS {
			n.Version = v
		}
		if kind, ret := d.GetNvLinkRemoteDeviceType(l); ret == nvml.SUCCESS {
			word := remoteWord(kind)
			if n.Remote != "" && n.Remote != word {
				word = "mixed"
			}
			n.Remote = word
		}
	}
	if n.Present == 0 {
		return nil
	}
	return &n
}

func remoteWord(kind nvml.IntNvLinkDeviceType) string {
	switch kind {
	case nvml.NVLINK_DEVICE_TYPE_GPU:
		return "gpu"
	case nvml.NVLINK_DEVICE_TYPE_SWITCH:
		return "switch"
	case nvml.NVLINK_DEVICE_TYPE_IBMNPU:
		return "npu"
	}
	return "unknown"
}

// mps is the folder of a control daemon of CUDA's Multi-Process Service that this process' children would meet.
func (r Reader) mps() string {
	dir := "/tmp/nvidia-mps"
	if own := r.env("CUDA_MPS_PIPE_DIRECTORY"); own != "" {
		dir = own
	}
	if r.exists(dir + "/control") {
		return dir
	}
	return ""
}

// eventReasons asks for what holds the clocks down. Drivers before 535 lack the function, and calling one that
// the library lacks ends the process.
func eventReasons(lib nvml.Interface, d nvml.Device) (uint64, nvml.Return) {
	if err := lib.Extensions().LookupSymbol("nvmlDeviceGetCurrentClocksEventReasons"); err != nil {
		return 0, nvml.ERROR_FUNCTION_NOT_FOUND
	}
	return d.GetCurrentClocksEventReasons()
}

func link(a, b nvml.Device, index int) GPULink {
	l := GPULink{Index: index}
	if level, ret := a.GetTopologyCommonAncestor(b); ret == nvml.SUCCESS {
		l.Path = map[nvml.GpuTopologyLevel]string{
			nvml.TOPOLOGY_INTERNAL: "board", nvml.TOPOLOGY_SINGLE: PIX, nvml.TOPOLOGY_MULTIPLE: PXB,
			nvml.TOPOLOGY_HOSTBRIDGE: PHB, nvml.TOPOLOGY_NODE: NODE, nvml.TOPOLOGY_SYSTEM: SYS,
		}[level]
	}
	if status, ret := a.GetP2PStatus(b, nvml.P2P_CAPS_INDEX_NVLINK); ret == nvml.SUCCESS {
		l.NVLink = status == nvml.P2P_STATUS_OK
	}
	return l
}

// throttle words the reasons that hold the clocks down now; empty means none.
func throttle(bits uint64) []string {
	out := []string{}
	for _, reason := range []struct {
		bit  uint64
		word string
	}{
		{nvml.ClocksEventReasonGpuIdle, "idle"},
		{nvml.ClocksEventReasonApplicationsClocksSetting, "application clocks"},
		{nvml.ClocksEventReasonSwPowerCap, "power cap"},
		{nvml.ClocksThrottleReasonHwSlowdown, "hardware slowdown"},
		{nvml.ClocksEventReasonSyncBoost, "sync boost"},
		{nvml.ClocksEventReasonSwThermalSlowdown, "thermal (software)"},
		{nvml.ClocksThrottleReasonHwThermalSlowdown, "thermal (hardware)"},
		{nvml.ClocksThrottleReasonHwPowerBrakeSlowdown, "power brake"},
		{nvml.ClocksEventReasonDisplayClockSetting, "display clocks"},
		{nvml.ClocksEventReasonBoardLimit, "board limit"},
		{nvml.ClocksEventReasonReliability, "reliability"},
	} {
		if bits&reason.bit != 0 {
			out = append(out, reason.word)
			bits &^= reason.bit
		}
	}
	if bits != 0 {
		out = append(out, fmt.Sprintf("unknown %#x", bits))
	}
	return out
}

func computeMode(m nvml.ComputeMode) string {
	switch m {
	case nvml.COMPUTEMODE_DEFAULT:
		return "default"
	case nvml.COMPUTEMODE_PROHIBITED:
		return "prohibited"
	case nvml.COMPUTEMODE_EXCLUSIVE_PROCESS:
		return "exclusive process"
	}
	return strings.ToLower(fmt.Sprintf("mode %d", int(m)))
}
