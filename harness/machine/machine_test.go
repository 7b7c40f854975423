package machine

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gic/harness/record"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// noDriver is a machine without libnvidia-ml.
func noDriver() nvml.Interface {
	return &mock.Interface{InitFunc: func() nvml.Return { return nvml.ERROR_LIBRARY_NOT_FOUND }}
}

// driver shows the given devices.
func driver(devices ...nvml.Device) nvml.Interface {
	return &mock.Interface{
		InitFunc:        func() nvml.Return { return nvml.SUCCESS },
		ShutdownFunc:    func() nvml.Return { return nvml.SUCCESS },
		ErrorStringFunc: func(r nvml.Return) string { return "code " + r.Error() },
		ExtensionsFunc: func() nvml.ExtendedInterface {
			return &mock.ExtendedInterface{LookupSymbolFunc: func(string) error { return nil }}
		},
		DeviceGetCountFunc:             func() (int, nvml.Return) { return len(devices), nvml.SUCCESS },
		DeviceGetHandleByIndexFunc:     func(i int) (nvml.Device, nvml.Return) { return devices[i], nvml.SUCCESS },
		SystemGetDriverVersionFunc:     func() (string, nvml.Return) { return "580.95.05", nvml.SUCCESS },
		SystemGetCudaDriverVersionFunc: func() (int, nvml.Return) { return 13000, nvml.SUCCESS },
	}
}

func h200(bus uint32, links int) *mock.Device {
	mhz := func(v map[nvml.ClockType]uint32) func(nvml.ClockType) (uint32, nvml.Return) {
		return func(c nvml.ClockType) (uint32, nvml.Return) { return v[c], nvml.SUCCESS }
	}
	num := func(v int) func() (int, nvml.Return) { return func() (int, nvml.Return) { return v, nvml.SUCCESS } }
	return &mock.Device{
		GetNameFunc:                      func() (string, nvml.Return) { return "NVIDIA H200", nvml.SUCCESS },
		GetUUIDFunc:                      func() (string, nvml.Return) { return "GPU-0", nvml.SUCCESS },
		GetCudaComputeCapabilityFunc:     func() (int, int, nvml.Return) { return 9, 0, nvml.SUCCESS },
		GetMemoryInfoFunc:                func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: 150 << 30}, nvml.SUCCESS },
		GetBAR1MemoryInfoFunc:            func() (nvml.BAR1Memory, nvml.Return) { return nvml.BAR1Memory{Bar1Total: 256 << 30}, nvml.SUCCESS },
		GetClockInfoFunc:                 mhz(map[nvml.ClockType]uint32{nvml.CLOCK_SM: 1785, nvml.CLOCK_MEM: 3201}),
		GetMaxClockInfoFunc:              mhz(map[nvml.ClockType]uint32{nvml.CLOCK_SM: 1980, nvml.CLOCK_MEM: 3201}),
		GetCurrentClocksEventReasonsFunc: func() (uint64, nvml.Return) { return nvml.ClocksEventReasonSwPowerCap | 1<<20, nvml.SUCCESS },
		GetPowerUsageFunc:                func() (uint32, nvml.Return) { return 118500, nvml.SUCCESS },
		GetEnforcedPowerLimitFunc:        func() (uint32, nvml.Return) { return 700000, nvml.SUCCESS },
		GetTemperatureFunc:               func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 33, nvml.SUCCESS },
		GetPersistenceModeFunc:           func() (nvml.EnableState, nvml.Return) { return nvml.FEATURE_ENABLED, nvml.SUCCESS },
		GetMigModeFunc:                   func() (int, int, nvml.Return) { return 0, 0, nvml.ERROR_NOT_SUPPORTED },
		GetEccModeFunc: func() (nvml.EnableState, nvml.EnableState, nvml.Return) {
			return nvml.FEATURE_ENABLED, nvml.FEATURE_ENABLED, nvml.SUCCESS
		},
		GetTotalEccErrorsFunc: func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) { return 3, nvml.SUCCESS },
		GetNvLinkVersionFunc:  func(int) (uint32, nvml.Return) { return 4, nvml.SUCCESS },
		GetNvLinkRemoteDeviceTypeFunc: func(int) (nvml.IntNvLinkDeviceType, nvml.Return) {
			return nvml.NVLINK_DEVICE_TYPE_SWITCH, nvml.SUCCESS
		},
		GetComputeModeFunc:            func() (nvml.ComputeMode, nvml.Return) { return nvml.COMPUTEMODE_DEFAULT, nvml.SUCCESS },
		GetCurrPcieLinkGenerationFunc: num(5),
		GetMaxPcieLinkGenerationFunc:  num(5),
		GetCurrPcieLinkWidthFunc:      num(16),
		GetMaxPcieLinkWidthFunc:       func() (int, nvml.Return) { return 0, nvml.ERROR_UNKNOWN },
		GetNvLinkStateFunc: func(l int) (nvml.EnableState, nvml.Return) {
			if l >= 18 {
				return 0, nvml.ERROR_INVALID_ARGUMENT
			}
			if l < links {
				return nvml.FEATURE_ENABLED, nvml.SUCCESS
			}
			return nvml.FEATURE_DISABLED, nvml.SUCCESS
		},
		GetPciInfoFunc: func() (nvml.PciInfo, nvml.Return) { return nvml.PciInfo{Bus: bus}, nvml.SUCCESS },
		GetTopologyCommonAncestorFunc: func(nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) {
			return nvml.TOPOLOGY_SYSTEM, nvml.SUCCESS
		},
		GetP2PStatusFunc: func(nvml.Device, nvml.GpuP2PCapsIndex) (nvml.GpuP2PStatus, nvml.Return) {
			return nvml.P2P_STATUS_OK, nvml.SUCCESS
		},
	}
}

func devinfo(_ context.Context, name string, args ...string) ([]byte, error) {
	if name != "ibv_devinfo" || args[1] != "mlx5_0" {
		return nil, errors.New("no such tool")
	}
	return []byte("hca_id: mlx5_0\n\tport:\t1\n\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\tmax_mtu:\t\t4096 (5)\n\t\tactive_mtu:\t\t4096 (5)\n"), nil
}

func server(t *testing.T) Reader {
	return Reader{Root: plant(t, "testdata/server.tree"), NVML: driver(h200(0x3d, 18)), Command: devinfo,
		LookPath: func(n string) (string, error) {
			if n == "g++" {
				return "/usr/bin/g++", nil
			}
			return "", os.ErrNotExist
		},
		Getenv: func(string) string { return "" }}
}

func TestCPU(t *testing.T) {
	m := server(t).Read(context.Background())
	if m.Hostname != "gpu-node-7" || m.Kernel != "6.8.0-60-generic" || m.OS != "Ubuntu 24.04.2 LTS" {
		t.Errorf("identity: %q %q %q", m.Hostname, m.Kernel, m.OS)
	}
	want := map[string]any{
		"model": "Intel(R) Xeon(R) Platinum 8480C", "online": "0-7", "allowed": "0-2,6",
		"quota": 2.5, "cpus": 2.5, // the parent cgroup's limit counts
		"memlock": "unlimited", "governor": "performance on 0-2, powersave on 6",
		"frequency_min": 2e9, "frequency_max": 3.8e9, "smt": true,
		"memory": int64(2113373708) << 10, "memory_available": int64(2037642608) << 10,
		"numa":  []Node{{0, "0-3", 1056686854 << 10}, {1, "4-7", 1056686854 << 10}},
		"iommu": map[string]any{"groups": 2, "cmdline": "intel_iommu=on iommu=pt pci=realloc"},
	}
	if d := cmp.Diff(want, m.CPU); d != "" {
		t.Errorf("cpu (-want +got):\n%s", d)
	}
}

func TestGPU(t *testing.T) {
	r := server(t)
	r.NVML = driver(h200(0x3d, 18), h200(0x99, 0))
	var n notes
	got := r.gpus(&n)
	want := GPU{Index: 0, Name: "NVIDIA H200", UUID: "GPU-0", PCI: "0000:3d:00.0", Driver: "580.95.05", CUDA: "13.0",
		Capability: "9.0", Memory: 150 << 30, BAR1: 256 << 30, SMClock: 1785e6, SMClockMax: 1980e6, MemClock: 3201e6, MemClockMax: 3201e6,
		Throttle: []string{"power cap", "unknown 0x100000"}, Power: 118.5, PowerLimit: 700, Temperature: 33, Persistence: true,
		ComputeMode: "default", PCIe: PCIeLink{Gen: 5, GenMax: 5, Width: 16}, NVLinks: 18, NUMANode: 0,
		NVLink: &NVLink{Present: 18, Active: 18, Version: 4, Remote: "switch"}, ECC: true, ECCErrors: 3,
		Peers: []GPULink{{1, SYS, true}}}
	if d := cmp.Diff(want, got[0], cmpopts.IgnoreUnexported(GPU{})); d != "" {
		t.Errorf("gpu 0 (-want +got):\n%s", d)
	}
	if n := got[1].NVLink; n == nil || n.Active != 0 || len(n.Down) != 18 || n.Version != 0 || n.Remote != "" {
		t.Errorf("gpu 1: NVLink %+v, expected 18 that are down", n)
	}
	if got[1].NVLinks != 0 || got[1].NUMANode != -1 {
		t.Errorf("gpu 1: %d NVLinks, node %d", got[1].NVLinks, got[1].NUMANode)
	}
	if text := strings.Join(n.list, "\n"); !strings.Contains(text, "gpu 0 pcie max width: code ") {
		t.Errorf("the unread width is not named: %s", text)
	}
}

// Links of one GPU may lead to different ends, and a GPU may have none.
func TestNVLinkStates(t *testing.T) {
	d := h200(0x3d, 4)
	d.GetNvLinkRemoteDeviceTypeFunc = func(l int) (nvml.IntNvLinkDeviceType, nvml.Return) {
		return map[bool]nvml.IntNvLinkDeviceType{true: nvml.NVLINK_DEVICE_TYPE_GPU, false: nvml.NVLINK_DEVICE_TYPE_SWITCH}[l == 2], nvml.SUCCESS
	}
	n := nvlink(d)
	if n.Active != 4 || n.Present != 18 || n.Remote != "mixed" || len(n.Down) != 14 || n.Down[0] != 4 {
		t.Errorf("%+v, expected 4 of 18 active with mixed ends", n)
	}
	d.GetNvLinkStateFunc = func(int) (nvml.EnableState, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
	if n := nvlink(d); n != nil {
		t.Errorf("a GPU without NVLink: %+v", n)
	}
}

func TestMPSDaemon(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"tmp/nvidia-mps", "run/mps"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r := Reader{Root: root, Getenv: func(string) string { return "" }}
	if got := r.mps(); got != "" {
		t.Errorf("no daemon: %q", got)
	}
	if err := os.WriteFile(filepath.Join(root, "tmp/nvidia-mps/control"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := r.mps(); got != "/tmp/nvidia-mps" {
		t.Errorf("daemon at the usual place: %q", got)
	}
	// The variable says where the children look, whatever runs elsewhere.
	r.Getenv = func(string) string { return "/run/mps" }
	if got := r.mps(); got != "" {
		t.Errorf("none where the variable points: %q", got)
	}
}

// A driver older than the throttle function must not be asked for it.
func TestGPUOldDriver(t *testing.T) {
	r := server(t)
	d := h200(0x3d, 0)
	d.GetCurrentClocksEventReasonsFunc = func() (uint64, nvml.Return) { panic("called a function the driver lacks") }
	lib := driver(d).(*mock.Interface)
	lib.ExtensionsFunc = func() nvml.ExtendedInterface {
		return &mock.ExtendedInterface{LookupSymbolFunc: func(string) error { return errors.New("no such symbol") }}
	}
	r.NVML = lib
	m := r.Read(context.Background())
	if text := strings.Join(m.Absent, "\n"); !strings.Contains(text, "gpu 0 throttle reasons: ") {
		t.Errorf("absent: %s", text)
	}
}

func TestNoGPU(t *testing.T) {
	r := server(t)
	r.NVML = noDriver()
	m := r.Read(context.Background())
	if len(m.GPU) != 0 || !strings.Contains(strings.Join(m.Absent, "\n"), "gpu: no NVIDIA driver here (libnvidia-ml.so.1 not found)") {
		t.Errorf("gpu %v, absent %q", m.GPU, m.Absent)
	}
	r.NVML = driver()
	if m = r.Read(context.Background()); !strings.Contains(strings.Join(m.Absent, "\n"), "shows no device") {
		t.Errorf("a driver without devices: absent %q", m.Absent)
	}
}

func TestRDMA(t *testing.T) {
	r := server(t)
	var n notes
	got := r.rdma(context.Background(), r.gpus(&n), &n)
	on, off := true, false
	direct := Direct{Peermem: "580.95.05", OpenModule: true, PeerMappingOverride: "1"}
	want := []Port{{
		Device: "mlx5_0", Port: 1, Driver: "mlx5_core", Type: "MT4129", Firmware: "28.39.3560", Board: "MT_0000000838",
		NodeGUID: "946d:ae03:0031:c9d4", State: "ACTIVE", PhysState: "LinkUp", LinkLayer: "InfiniBand", Rate: 50e9,
		RateText: "400 Gb/sec (4X NDR)", MTU: 4096, Netdev: "ibp62s0", LID: "0x21", PKeys: []string{"0xffff", "0x8001"},
		GIDs: []GID{{Index: 0, GID: "fe80:0000:0000:0000:946d:ae03:0031:c9d4", Type: "IB/RoCE v1"}},
		PCI:  "0000:3e:00.0", PCILink: "32.0 GT/s x16", PCILinkMax: "32.0 GT/s x16", NUMANode: 0,
		Relaxed: &on, MaxReadReq: 512, ACS: []string{"0000:3c:04.0=0x001d"}, IOMMU: "identity",
		GPUDistance: []Near{{0, PIX}}, GPUDirect: direct,
	}, {
		Device: "mlx5_1", Port: 1, Driver: "mlx5_core", Type: "MT4129", Firmware: "28.39.3560", Board: "MT_0000000838",
		NodeGUID: "946d:ae03:0031:c9e8", State: "DOWN", PhysState: "Disabled", LinkLayer: "Ethernet", Rate: 25e9,
		RateText: "200 Gb/sec (4X HDR)", NetdevMTU: 9000, Netdev: "ens11np0", LID: "0x0", PKeys: []string{"0xffff"},
		GIDs: []GID{
			{0, "fe80:0000:0000:0000:966d:aeff:fe31:c9e8", "IB/RoCE v1", "ens11np0"},
			{1, "fe80:0000:0000:0000:966d:aeff:fe31:c9e8", "RoCE v2", "ens11np0"},
			{2, "0000:0000:0000:0000:0000:ffff:0a00:0005", "IB/RoCE v1", "ens11np0"},
			{10, "0000:0000:0000:0000:0000:ffff:0a00:0005", "RoCE v2", "ens11np0"},
		},
		PCI: "0000:af:00.0", PCILink: "32.0 GT/s x8", PCILinkMax: "32.0 GT/s x16", NUMANode: 1,
		Relaxed: &off, MaxReadReq: 4096, IOMMU: "identity", GPUDistance: []Near{{0, SYS}}, GPUDirect: direct,
	}}
	if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Port{})); d != "" {
		t.Errorf("ports (-want +got):\n%s", d)
	}
	text := strings.Join(n.list, "\n")
	for _, w := range []string{"mlx5_1/1 mtu: only ibv_devinfo tells it: no such tool", "mlx5_1 acs of 0000:ae:00.0: only root"} {
		if !strings.Contains(text, w) {
			t.Errorf("absent lacks %q:\n%s", w, text)
		}
	}
	if d := cmp.Diff([]string{"mlx5_0", "mlx5_1"}, r.Devices()); d != "" {
		t.Errorf("devices (-want +got):\n%s", d)
	}
}

// Every file taken away in turn: nothing fails, and Absent or a missing field is all that changes.
func TestAnythingMayBeMissing(t *testing.T) {
	full := plant(t, "testdata/server.tree")
	r := server(t)
	var files []string
	err := filepath.WalkDir(full, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Root = full
	for _, f := range files {
		gone := f + ".gone"
		if err := os.Rename(f, gone); err != nil {
			t.Fatal(err)
		}
		m := r.Read(context.Background())
		if _, err := json.Marshal(m); err != nil {
			t.Errorf("without %s: %v", f, err)
		}
		r.Sample()
		r.Doctor(context.Background(), Want{Threads: 6})
		if err := os.Rename(gone, f); err != nil {
			t.Fatal(err)
		}
	}
	empty := Reader{Root: t.TempDir(), NVML: noDriver(), Getenv: func(string) string { return "" }}
	m := empty.Read(context.Background())
	if len(m.Absent) < 8 {
		t.Errorf("an empty machine names only %d absent things: %q", len(m.Absent), m.Absent)
	}
	var back record.Machine
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
}

func TestDistance(t *testing.T) {
	const sys = "/sys/devices/"
	for _, c := range []struct {
		name, a, b   string
		nodeA, nodeB int
		want         string
	}{
		{"same switch", "pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:00.0/0000:3d:00.0", "pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:04.0/0000:3e:00.0", 0, 0, PIX},
		{"two functions of one device", "pci0000:3a/0000:3a:00.0/0000:3b:00.0", "pci0000:3a/0000:3a:00.0/0000:3b:00.1", 0, 0, PIX},
		{"nested switches", "pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:00.0/0000:3d:00.0/0000:3e:00.0/0000:3f:00.0", "pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:04.0/0000:40:00.0", 0, 0, PXB},
		{"two root ports", "pci0000:3a/0000:3a:00.0/0000:3b:00.0", "pci0000:3a/0000:3a:02.0/0000:3c:00.0", 0, 0, PHB},
		{"two host bridges, one node", "pci0000:3a/0000:3a:00.0/0000:3b:00.0", "pci0000:5d/0000:5d:00.0/0000:5e:00.0", 0, 0, NODE},
		{"two nodes", "pci0000:3a/0000:3a:00.0/0000:3b:00.0", "pci0000:ae/0000:ae:00.0/0000:af:00.0", 0, 1, SYS},
		{"node unknown", "pci0000:3a/0000:3a:00.0/0000:3b:00.0", "pci0000:ae/0000:ae:00.0/0000:af:00.0", -1, -1, SYS},
		{"behind VMD", "pci0000:c9/0000:c9:00.5/pci10000:80/10000:80:01.0/10000:81:00.0", "pci0000:c9/0000:c9:00.5/pci10000:80/10000:80:01.0/10000:82:00.0", 0, 0, PIX},
		{"not PCI", "virtual/net/lo", "pci0000:3a/0000:3a:00.0/0000:3b:00.0", 0, 0, ""},
	} {
		if got := distance(sys+c.a, sys+c.b, c.nodeA, c.nodeB); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if got := distance(sys+c.b, sys+c.a, c.nodeB, c.nodeA); got != c.want {
			t.Errorf("%s, turned around: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestPortCounters(t *testing.T) {
	r := server(t)
	before := r.PortCounters()
	want := map[string]uint64{"mlx5_0/1/port_xmit_data": 123456789, "mlx5_0/1/port_rcv_data": 42, "mlx5_0/1/out_of_sequence": 0,
		"mlx5_1/1/port_xmit_data": 7, "mlx5_1/1/np_cnp_sent": 3}
	if d := cmp.Diff(want, before); d != "" {
		t.Errorf("counters (-want +got):\n%s", d)
	}
	after := map[string]uint64{"mlx5_0/1/port_xmit_data": 123456800, "mlx5_0/1/port_rcv_data": 0, "mlx5_0/1/out_of_sequence": 0, "new": 5}
	if d := cmp.Diff(map[string]uint64{"mlx5_0/1/port_xmit_data": 11}, CounterDelta(before, after)); d != "" {
		t.Errorf("delta (-want +got):\n%s", d)
	}
}

func TestSample(t *testing.T) {
	got := server(t).Sample()
	want := map[string]any{"cpus_allowed": 4, "cpus": 2.5, "load1": 3.5, "runnable_threads": 5, "cpu_frequency_min": 2e9,
		"cpu_frequency_max": 3.8e9, "governor": "performance on 0-2, powersave on 6", "gpu_sm_clock": []float64{1785e6},
		"gpu_mem_clock": []float64{3201e6}, "gpu_temperature": []float64{33}, "gpu_throttle": []string{"power cap, unknown 0x100000"},
		"gpu_power": []float64{118.5}, "gpu_pcie_gen": []int{5}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("sample (-want +got):\n%s", d)
	}
}

func TestQuotaV1(t *testing.T) {
	root := t.TempDir()
	for p, text := range map[string]string{
		"proc/self/cgroup": "4:memory:/a\n3:cpu,cpuacct:/a/b\n0::/\n",
		"sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us":  "-1\n",
		"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us":    "150000\n",
		"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us":   "50000\n",
		"sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us": "100000\n",
	} {
		full := filepath.Join(root, p)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if q, ok := (Reader{Root: root}).quota(); !ok || q != 3 {
		t.Errorf("quota %v %v, want 3", q, ok)
	}
}

func TestCPULists(t *testing.T) {
	for s, want := range map[string]string{"0": "0", "0-3": "0-3", "0,1,2,8-9,11": "0-2,8-9,11", "": "", "x": ""} {
		if got := formatCPUs(parseCPUs(s)); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
	names := []string{"mlx5_10", "mlx5_2", "mlx5_1", "ib"}
	sortNatural(names)
	if d := cmp.Diff([]string{"ib", "mlx5_1", "mlx5_2", "mlx5_10"}, names); d != "" {
		t.Errorf("order (-want +got):\n%s", d)
	}
}

func FuzzPCIConfig(f *testing.F) {
	f.Add(make([]byte, 4096))
	loop := make([]byte, 4096)
	loop[capabilities], loop[0x40], loop[0x41] = 0x40, 5, 0x40 // a capability that points at itself
	loop[0x103], loop[0x102] = 0x10, 0x01                      // and an extended one
	f.Add(loop)
	f.Fuzz(func(t *testing.T, b []byte) {
		config(b).deviceControl()
		config(b).acsControl()
	})
}
