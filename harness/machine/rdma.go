package machine

import (
	"context"
	"fmt"
	"net/netip"
	"path"
	"strconv"
	"strings"
)

// Port is one port of one RDMA device. A zero field is one that could not be read; Machine.Absent says which.
type Port struct {
	Device      string   `json:"device"`
	Port        int      `json:"port"`
	Driver      string   `json:"driver,omitempty"`
	Type        string   `json:"type,omitempty"` // "MT4129"
	Firmware    string   `json:"firmware"`
	Board       string   `json:"board,omitempty"`
	NodeGUID    string   `json:"node_guid"`
	State       string   `json:"state"`
	PhysState   string   `json:"phys_state,omitempty"`
	LinkLayer   string   `json:"link_layer"`
	Rate        float64  `json:"rate"` // of the link, B/s
	RateText    string   `json:"rate_text"`
	MTU         int      `json:"mtu,omitempty"`        // of the path, as verbs report it
	NetdevMTU   int      `json:"netdev_mtu,omitempty"` // RoCE: of the Ethernet interface
	Netdev      string   `json:"netdev,omitempty"`
	LID         string   `json:"lid,omitempty"`
	SL          int      `json:"sl"`    // that the port was given for talking to the subnet manager
	PKeys       []string `json:"pkeys"` // by index, without the empty ones
	GIDs        []GID    `json:"gids"`
	PCI         string   `json:"pci"`
	PCILink     string   `json:"pci_link,omitempty"`     // "32.0 GT/s x16"
	PCILinkMax  string   `json:"pci_link_max,omitempty"` // what the device could do
	NUMANode    int      `json:"numa_node"`
	Relaxed     *bool    `json:"relaxed_ordering,omitempty"` // enabled in the device's PCIe control register
	MaxReadReq  int      `json:"max_read_request,omitempty"` // B
	ACS         []string `json:"acs,omitempty"`              // bridges above with access control services on
	IOMMU       string   `json:"iommu,omitempty"`            // type of the device's IOMMU group
	GPUDistance []Near   `json:"gpu_distance,omitempty"`
	GPUDirect   Direct   `json:"gpu_direct"`
	sysfs       string
}

// GID is one entry of a port's GID table.
type GID struct {
	Index int    `json:"index"`
	GID   string `json:"gid"`
	Type  string `json:"type,omitempty"` // "IB/RoCE v1", "RoCE v2"
	Dev   string `json:"netdev,omitempty"`
}

// Near is how far one GPU is from the device over PCIe.
type Near struct {
	GPU  int    `json:"gpu"`
	Path string `json:"path"`
}

// Direct is what lets a NIC reach GPU memory, and a GPU reach a NIC's doorbells.
type Direct struct {
	Peermem string `json:"peermem,omitempty"` // version of the loaded nvidia_peermem or nv_peer_mem
	// OpenModule: the driver's open kernel modules, which can export GPU memory as a dma-buf.
	OpenModule bool `json:"open_module"`
	GDRCopy    bool `json:"gdrcopy"`
	// PeerMappingOverride=1 lets a GPU map a NIC's doorbell page; "" when the driver does not tell.
	PeerMappingOverride string `json:"peer_mapping_override,omitempty"`
}

func (r Reader) rdma(ctx context.Context, gpus []GPU, n *notes) []Port {
	devices := r.Devices()
	if len(devices) == 0 {
		n.add("rdma: no device in /sys/class/infiniband")
		return nil
	}
	direct := r.direct()
	var out []Port
	for _, d := range devices {
		ports := r.list("/sys/class/infiniband/" + d + "/ports/*")
		if len(ports) == 0 {
			n.add("rdma %s: no ports", d)
		}
		for _, p := range ports {
			num, err := strconv.Atoi(p)
			if err != nil {
				continue
			}
			port := r.port(ctx, d, num, n)
			port.GPUDirect = direct
			for _, g := range gpus {
				if word := distance(g.sysfs, port.sysfs, g.NUMANode, port.NUMANode); word != "" {
					port.GPUDistance = append(port.GPUDistance, Near{g.Index, word})
				}
			}
			out = append(out, port)
		}
	}
	return out
}

func (r Reader) port(ctx context.Context, device string, num int, n *notes) Port {
	dev := "/sys/class/infiniband/" + device
	dir := fmt.Sprintf("%s/ports/%d", dev, num)
	must := func(what, file string) string {
		v := r.text(file)
		if v == "" {
			n.add("rdma %s/%d %s: cannot read %s", device, num, what, file)
		}
		return v
	}
	p := Port{
		Device: device, Port: num,
		Driver:    path.Base(r.real(dev + "/device/driver")),
		Type:      r.text(dev + "/hca_type"),
		Firmware:  must("firmware", dev+"/fw_ver"),
		Board:     r.text(dev + "/board_id"),
		NodeGUID:  must("node guid", dev+"/node_guid"),
		State:     afterColon(must("state", dir+"/state")),
		PhysState: afterColon(r.text(dir + "/phys_state")),
		LinkLayer: must("link layer", dir+"/link_layer"),
		RateText:  must("rate", dir+"/rate"),
		LID:       r.text(dir + "/lid"),
		NUMANode:  -1,
		PKeys:     []string{},
		GIDs:      r.gids(dir),
	}
	if p.Driver == "." {
		p.Driver = ""
	}
	p.Rate = rate(p.RateText)
	if sl, ok := r.number(dir + "/sm_sl"); ok {
		p.SL = int(sl)
	}
	for _, i := range r.list(dir + "/pkeys/*") {
		if k := r.text(dir + "/pkeys/" + i); k != "" && k != "0x0000" {
			p.PKeys = append(p.PKeys, k)
		}
	}
	r.netdev(&p, dev, num, n)
	r.mtu(ctx, &p, n)
	r.pci(&p, dev, n)
	return p
}

// gids lists the entries of a GID table that are set.
func (r Reader) gids(dir string) []GID {
	out := []GID{}
	for _, i := range r.list(dir + "/gids/*") {
		addr, err := netip.ParseAddr(r.text(dir + "/gids/" + i))
		index, err2 := strconv.Atoi(i)
		if err != nil || err2 != nil || addr.IsUnspecified() {
			continue
		}
		// A GID made of a prefix alone is an empty slot of an InfiniBand table.
		raw := addr.As16()
		if [8]byte(raw[8:]) == [8]byte{} {
			continue
		}
		out = append(out, GID{Index: index, GID: r.text(dir + "/gids/" + i),
			Type: r.text(dir + "/gid_attrs/types/" + i), Dev: r.text(dir + "/gid_attrs/ndevs/" + i)})
	}
	return out
}

// netdev finds the interface of a port: the one its GIDs belong to, else the device's interface of that port.
func (r Reader) netdev(p *Port, dev string, num int, n *notes) {
	for _, g := range p.GIDs {
		if g.Dev != "" {
			p.Netdev = g.Dev
			break
		}
	}
	if p.Netdev == "" {
		for _, name := range r.list(dev + "/device/net/*") {
			if id, ok := r.number(dev + "/device/net/" + name + "/dev_port"); !ok || int(id) == num-1 {
				p.Netdev = name
				break
			}
		}
	}
	if p.Netdev == "" {
		n.add("rdma %s/%d netdev: none belongs to it", p.Device, num)
		return
	}
	if p.LinkLayer == "Ethernet" {
		if mtu, ok := r.number("/sys/class/net/" + p.Netdev + "/mtu"); ok {
			p.NetdevMTU = int(mtu)
		} else {
			n.add("rdma %s/%d netdev mtu: cannot read it of %s", p.Device, num, p.Netdev)
		}
	}
}

// mtu asks ibv_devinfo: sysfs does not hold a port's active MTU.
func (r Reader) mtu(ctx context.Context, p *Port, n *notes) {
	text, err := r.command(ctx, "ibv_devinfo", "-d", p.Device, "-i", strconv.Itoa(p.Port))
	if err == nil {
		if f := strings.Fields(field(string(text), "active_mtu")); len(f) > 0 {
			if p.MTU, err = strconv.Atoi(f[0]); err == nil {
				return
			}
		}
		err = fmt.Errorf("it shows no active_mtu")
	}
	n.add("rdma %s/%d mtu: only ibv_devinfo tells it: %v", p.Device, p.Port, err)
}

func (r Reader) pci(p *Port, dev string, n *notes) {
	p.sysfs = r.real(dev + "/device")
	if len(pciPath(p.sysfs)) == 0 {
		n.add("rdma %s pci: not a PCIe device", p.Device)
		return
	}
	p.PCI = path.Base(p.sysfs)
	if node, ok := r.number(dev + "/device/numa_node"); ok {
		p.NUMANode = int(node)
	}
	link := func(which string) string {
		speed, width := r.text(dev+"/device/"+which+"_link_speed"), r.text(dev+"/device/"+which+"_link_width")
		if speed == "" || width == "" {
			return ""
		}
		return strings.TrimSuffix(speed, " PCIe") + " x" + width
	}
	p.PCILink, p.PCILinkMax = link("current"), link("max")
	if p.PCILink == "" {
		n.add("rdma %s pci link: cannot read current_link_speed and current_link_width", p.Device)
	}
	p.IOMMU = r.text(dev + "/device/iommu_group/type")
	if c, err := r.config(p.sysfs); err != nil {
		n.add("rdma %s relaxed ordering: %v", p.Device, err)
	} else if ctl, ok := c.deviceControl(); ok {
		on := ctl&devctlRelaxed != 0
		p.Relaxed = &on
		p.MaxReadReq = 128 << (ctl >> 12 & 7)
	} else {
		n.add("rdma %s relaxed ordering: no PCIe capability in its configuration space", p.Device)
	}
	r.acs(p, n)
}

// acs lists the bridges above a device whose access control services redirect peer-to-peer traffic up to the
// root, which halves or forbids what a GPU and a NIC send each other.
func (r Reader) acs(p *Port, n *notes) {
	for dir := path.Dir(p.sysfs); isPCIAddress(path.Base(dir)); dir = path.Dir(dir) {
		c, err := r.config(dir)
		if err != nil {
			n.add("rdma %s acs of %s: %v", p.Device, path.Base(dir), err)
			return
		}
		if ctl, ok := c.acsControl(); ok && ctl != 0 {
			p.ACS = append(p.ACS, fmt.Sprintf("%s=%#04x", path.Base(dir), ctl))
		}
	}
}

func (r Reader) direct() Direct {
	d := Direct{
		OpenModule: strings.Contains(r.text("/proc/driver/nvidia/version"), "Open Kernel Module"),
		GDRCopy:    r.exists("/dev/gdrdrv"),
	}
	for _, module := range []string{"nvidia_peermem", "nv_peer_mem"} {
		if r.exists("/sys/module/" + module) {
			if d.Peermem = r.text("/sys/module/" + module + "/version"); d.Peermem == "" {
				d.Peermem = "loaded"
			}
			break
		}
	}
	if params := r.text("/proc/driver/nvidia/params"); params != "" {
		d.PeerMappingOverride = "0"
		dwords := strings.Trim(field(params, "RegistryDwords"), `"`)
		for kv := range strings.SplitSeq(dwords, ";") {
			if k, v, ok := strings.Cut(kv, "="); ok && strings.TrimSpace(k) == "PeerMappingOverride" {
				d.PeerMappingOverride = strings.TrimSpace(v)
			}
		}
	}
	return d
}

// afterColon turns "4: ACTIVE" into "ACTIVE".
func afterColon(s string) string {
	if _, v, ok := strings.Cut(s, ":"); ok {
		return strings.TrimSpace(v)
	}
	return s
}

// rate reads "400 Gb/sec (4X NDR)" as bytes per second.
func rate(s string) float64 {
	f := strings.Fields(s)
	if len(f) < 2 || f[1] != "Gb/sec" {
		return 0
	}
	v, err := strconv.ParseFloat(f[0], 64)
	if err != nil {
		return 0
	}
	return v * 1e9 / 8
}

// PortCounters reads the counters of every RDMA port, as "mlx5_0/1/port_xmit_data". The unit is the device's
// (port_xmit_data counts 4-byte words). Empty where there is no device.
func PortCounters() map[string]uint64 { return Reader{}.PortCounters() }

// PortCounters reads the counters of every RDMA port of the machine.
func (r Reader) PortCounters() map[string]uint64 {
	out := map[string]uint64{}
	for _, d := range r.Devices() {
		for _, p := range r.list("/sys/class/infiniband/" + d + "/ports/*") {
			for _, kind := range []string{"counters", "hw_counters"} {
				dir := "/sys/class/infiniband/" + d + "/ports/" + p + "/" + kind + "/"
				for _, c := range r.list(dir + "*") {
					if v, err := strconv.ParseUint(r.text(dir+c), 10, 64); err == nil && c != "lifespan" {
						out[d+"/"+p+"/"+c] = v
					}
				}
			}
		}
	}
	return out
}

// CounterDelta is what moved between two snapshots; a counter that did not move is left out, and so is one that
// went down (it was reset).
func CounterDelta(before, after map[string]uint64) map[string]uint64 {
	out := map[string]uint64{}
	for k, v := range after {
		if b, ok := before[k]; ok && v > b {
			out[k] = v - b
		}
	}
	return out
}
