package machine

import (
	"os"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// VisibleEnv limits and orders the devices that CUDA shows a process.
const VisibleEnv = "CUDA_VISIBLE_DEVICES"

// CUDADevices are the identities of the GPUs that a CUDA process started here would see, in its order; none without a
// driver. NVML, unlike CUDA, shows all of the machine.
func CUDADevices() []string {
	list, set := os.LookupEnv(VisibleEnv)
	return visible(Reader{NVML: nvmlOnce()}.uuids(), list, set)
}

func (r Reader) uuids() []string {
	if r.NVML == nil {
		return nil
	}
	count, ret := r.NVML.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil
	}
	out := make([]string, count)
	for i := range out {
		if d, ret := r.NVML.DeviceGetHandleByIndex(i); ret == nvml.SUCCESS {
			out[i], _ = d.GetUUID() // "" stands for one that cannot be named
		}
	}
	return out
}

// visible applies VisibleEnv as CUDA does: indices or (beginnings of) identities, and what is behind one that names no
// device, or the same again, does not count.
func visible(uuids []string, list string, set bool) []string {
	if !set {
		return uuids
	}
	var out []string
	seen := map[int]bool{}
	for _, e := range strings.Split(list, ",") {
		e = strings.TrimSpace(e)
		if strings.HasPrefix(e, "MIG-") && len(uuids) > 0 { // a part of a GPU, which has a name of its own
			out = append(out, e)
			continue
		}
		at := -1
		if i, err := strconv.Atoi(e); err == nil && i >= 0 && i < len(uuids) {
			at = i
		}
		for i, u := range uuids {
			if at < 0 && strings.HasPrefix(e, "GPU-") && strings.HasPrefix(u, e) {
				at = i
			}
		}
		if at < 0 || seen[at] {
			break
		}
		seen[at] = true
		out = append(out, uuids[at])
	}
	return out
}
