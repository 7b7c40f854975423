package machine

import "strings"

// How two PCIe devices reach each other, in the words of nvidia-smi topo.
const (
	PIX  = "PIX"  // at most one PCIe switch between them
	PXB  = "PXB"  // several PCIe switches, but no host bridge
	PHB  = "PHB"  // through a host bridge
	NODE = "NODE" // between host bridges of one NUMA node
	SYS  = "SYS"  // between NUMA nodes
)

// distance compares two real sysfs paths such as
// /sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0: each component below the root is one more bridge. "" when
// one is not known. The NUMA nodes decide only between different roots.
func distance(a, b string, nodeA, nodeB int) string {
	pa, pb := pciPath(a), pciPath(b)
	if len(pa) == 0 || len(pb) == 0 {
		return ""
	}
	common := 0
	for common < len(pa) && common < len(pb) && pa[common] == pb[common] {
		common++
	}
	switch {
	case common == 0 && nodeA >= 0 && nodeA == nodeB:
		return NODE
	case common == 0:
		return SYS
	case common == 1:
		return PHB
	}
	// Bridges below the common one: through one switch that is a downstream port on each side.
	if bridges := max(len(pa)-common-1, 0) + max(len(pb)-common-1, 0); bridges <= 2 {
		return PIX
	}
	return PXB
}

// pciPath is the chain of a device: host bridge first, then every bridge, then the device.
func pciPath(sysfs string) []string {
	var out []string
	for part := range strings.SplitSeq(sysfs, "/") {
		if strings.HasPrefix(part, "pci") && strings.Contains(part, ":") || len(out) > 0 && isPCIAddress(part) {
			out = append(out, part)
		}
	}
	return out
}

// isPCIAddress: 0000:01:00.0, or a longer domain as behind a VMD controller.
func isPCIAddress(s string) bool {
	parts := strings.Split(s, ":")
	return len(parts) == 3 && strings.Contains(parts[2], ".")
}
