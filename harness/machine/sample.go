package machine

import (
	"strconv"
	"strings"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// nvmlOnce keeps the driver's library open for Sample: opening it takes far longer than asking it.
var nvmlOnce = sync.OnceValue(func() nvml.Interface {
	lib := nvml.New()
	if lib.Init() != nvml.SUCCESS {
		return nil
	}
	return lib
})

// Sample reads what may move between two samples: CPUs this process may use, load, clocks. Keys: cpus (time this
// process gets, in CPUs), cpus_allowed, load1, runnable_threads (of the whole machine), cpu_frequency_min/max,
// governor, gpu_sm_clock, gpu_mem_clock, gpu_throttle, gpu_temperature, gpu_power, gpu_pcie_gen (lists by device index; a link that
// idles may be at a lower generation). A key that
// cannot be read is absent.
func Sample() map[string]any { return Reader{NVML: nvmlOnce()}.Sample() }

// Sample reads the machine's movable facts. NVML must have been initialised; nil reads no GPU.
func (r Reader) Sample() map[string]any {
	out := map[string]any{}
	allowed := r.allowed()
	if len(allowed) > 0 {
		quota, limited := r.quota()
		out["cpus_allowed"] = len(allowed)
		out["cpus"] = effective(len(allowed), quota, limited)
	}
	if f := strings.Fields(r.text("/proc/loadavg")); len(f) >= 4 {
		if load, err := strconv.ParseFloat(f[0], 64); err == nil {
			out["load1"] = load
		}
		if run, _, ok := strings.Cut(f[3], "/"); ok {
			if v, err := strconv.Atoi(run); err == nil {
				out["runnable_threads"] = v
			}
		}
	}
	if lo, hi, ok := r.frequency(allowed); ok {
		out["cpu_frequency_min"], out["cpu_frequency_max"] = lo, hi
	}
	if g := r.governor(allowed); g != "" {
		out["governor"] = g
	}
	if r.NVML != nil {
		r.sampleGPUs(out)
	}
	return out
}

func (r Reader) sampleGPUs(out map[string]any) {
	count, ret := r.NVML.DeviceGetCount()
	if ret != nvml.SUCCESS || count == 0 {
		return
	}
	sm, mem, temp := make([]float64, count), make([]float64, count), make([]float64, count)
	power, gen := make([]float64, count), make([]int, count)
	why := make([]string, count)
	for i := range count {
		d, ret := r.NVML.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue
		}
		if mhz, ret := d.GetClockInfo(nvml.CLOCK_SM); ret == nvml.SUCCESS {
			sm[i] = float64(mhz) * 1e6
		}
		if mhz, ret := d.GetClockInfo(nvml.CLOCK_MEM); ret == nvml.SUCCESS {
			mem[i] = float64(mhz) * 1e6
		}
		if t, ret := d.GetTemperature(nvml.TEMPERATURE_GPU); ret == nvml.SUCCESS {
			temp[i] = float64(t)
		}
		if mw, ret := d.GetPowerUsage(); ret == nvml.SUCCESS {
			power[i] = float64(mw) / 1e3
		}
		if v, ret := d.GetCurrPcieLinkGeneration(); ret == nvml.SUCCESS {
			gen[i] = v
		}
		if bits, ret := eventReasons(r.NVML, d); ret == nvml.SUCCESS {
			why[i] = strings.Join(throttle(bits), ", ")
		}
	}
	out["gpu_sm_clock"], out["gpu_mem_clock"], out["gpu_temperature"], out["gpu_throttle"] = sm, mem, temp, why
	out["gpu_power"], out["gpu_pcie_gen"] = power, gen
}
