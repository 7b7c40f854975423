package backends

// capNames are the words of style and `gic list`, by bit.
var capNames = map[Caps]string{
	CapPut: "put", CapPutValue: "put_value", CapPutSignal: "put_signal", CapSignal: "signal", CapWait: "wait",
	CapGet: "get", CapFetchAdd: "fetch_add", CapFence: "fence", CapFlush: "flush", CapQuiet: "quiet",
	CapGPUVisible: "gpu_visible", CapNotify: "notify", CapMoE: "moe", CapHostDevice: "device=host", CapCUDADevice: "device=cuda",
	CapNICSoft: "nic=soft", CapNICMlx5: "nic=mlx5", CapNICNone: "nic=none",
	CapRanksInProcess: "ranks_in_process",
}

// Names lists the capabilities that are set, in the order of their bits; bits without a name are left out.
func (c Caps) Names() []string {
	var names []string
	for bit := Caps(1); bit != 0; bit <<= 1 {
		if n := capNames[bit]; c&bit != 0 && n != "" {
			names = append(names, n)
		}
	}
	return names
}
