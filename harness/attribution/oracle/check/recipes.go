package check

import (
	"math"

	"gic/harness/attribution/oracle"
)

// The orderings of Table 4.
var orders = []string{"none", "gpu-fence", "dbrec-fence", "gpu-release", "threadfence", "sys-release", "sys-fence"}

var (
	small     = valid{"size": "8"}
	smallGPU  = valid{"size": "8", "clock": "1.962e9..1.98e9"}
	smallGB   = valid{"size": "8", "clock": "2.062e9"}
	cold      = valid{"size": "8", "state": "cold", "cpu": "xeon-6548y"}
	coldWarm  = valid{"size": "8", "state": "cold|warm", "cpu": "xeon-6548y"}
	carried   = "carried over from P-IB, on the assumption that the same code at an SM clock within 5 % takes as long"
	gdaki     = sel{"stack": "ncclgin", "path": "gdaki"}
	ginProxy  = sel{"stack": "ncclgin", "path": "proxy"}
	ibrc      = sel{"stack": "nvshmem", "path": "ibrc"}
	public    = sel{"stack": "nvshmem", "path": "public"}
	internal  = sel{"stack": "nvshmem", "path": "internal"}
	baseline  = sel{"stack": "miniproxy", "handoff": "baseline"}
	tuned     = sel{"stack": "miniproxy", "handoff": "tuned"}
	miniproxy = sel{"stack": "miniproxy"}
	minigda   = sel{"stack": "minigda"}
	nvshmem   = sel{"stack": "nvshmem"}
)

// issues adds the issue times of a platform, all of them as printed.
func issues(d *deriver, gpu valid) {
	p := d.p.Name
	for _, o := range orders {
		d.as("issue", merge(minigda, sel{"order": o}), "us", "", merge(gpu, valid{"size": "8..92"}), "t4/"+p+"/"+o+"/issue")
	}
	d.as("issue", merge(gdaki, sel{"inline": "on"}), "us", "", gpu, "t3/"+p+"/gdaki-inline/issue")
	for _, s := range []struct {
		selector sel
		row      string
	}{
		{internal, "nvshmem-internal"}, {public, "nvshmem-public"}, {ibrc, "ibrc"}, {ginProxy, "gin-proxy"},
		{baseline, "miniproxy-baseline"}, {tuned, "miniproxy-tuned"},
	} {
		d.as("issue", s.selector, "us", "", gpu, "t3/"+p+"/"+s.row+"/issue")
	}
}

func deriveIB(d *deriver) {
	issues(d, smallGPU)
	d.as("issue", merge(gdaki, sel{"inline": "off"}), "us", "", smallGPU, "t3/P-IB/gdaki-pointer/issue")
	d.as("issue_segment", minigda, "us", "per further 16 B of inline payload", valid{"size": "8..92"}, "fig3/segment")
	d.as("cqe", nil, "us", "CQE visible after the doorbell store", valid{"size": "8..92"}, "text/cqe")
	d.from("fetch", nil, "us", "put+completion - issue - cqe, payload by pointer", small,
		[]string{"t3/P-IB/minigda-pointer/put_completion", "t4/P-IB/gpu-fence/issue", "text/cqe"}, minus)
	d.as("dc", minigda, "us", "put+completion of DC over RC", small, "text/dc")
	d.from("arrive", nil, "1", "(RTT / 2 - issue) / cqe of mini-gda inline: the part of the doorbell-to-CQE time after which the peer sees the word",
		small, []string{"t3/P-IB/minigda-inline/rtt", "t4/P-IB/gpu-fence/issue", "text/cqe"},
		func(v []float64) float64 { return (v[0]/2 - v[1]) / v[2] })
	completions(d)
	notices(d)
	workers(d)
	rates(d)
	wire(d, "t2/P-IB/link")
}

func minus(v []float64) float64 {
	for _, x := range v[1:] {
		v[0] -= x
	}
	return v[0]
}

// completions are the stacks' own parts of put+completion.
func completions(d *deriver) {
	d.from("completion", gdaki, "us", "put+completion - issue - cqe, inline", smallGPU,
		[]string{"t3/P-IB/gdaki-inline/put_completion", "t3/P-IB/gdaki-inline/issue", "text/cqe"}, minus)
	d.from("completion", internal, "us", "put+completion - issue - cqe", smallGPU,
		[]string{"t3/P-IB/nvshmem-internal/put_completion", "t3/P-IB/nvshmem-internal/issue", "text/cqe"}, minus)
	d.from("completion", public, "us", "put+completion - issue - cqe", smallGPU,
		[]string{"t3/P-IB/nvshmem-public/put_completion", "t3/P-IB/nvshmem-public/issue", "text/cqe"}, minus)
	d.from("completion", ibrc, "us", "put+completion - issue - cqe, cold: the worker is in it", coldWarm,
		[]string{"t3/P-IB/ibrc/put_completion", "t3/P-IB/ibrc/issue", "text/cqe"}, minus)
	d.from("completion", ginProxy, "us", "put+completion - issue - cqe, cold: the worker is in it", coldWarm,
		[]string{"t3/P-IB/gin-proxy/put_completion", "t3/P-IB/gin-proxy/issue", "text/cqe"}, minus)
	d.from("completion", baseline, "us", "put+completion - issue - cqe - (post + wr), cold: polling the counter over PCIe", coldWarm,
		[]string{"t3/P-IB/miniproxy-baseline/put_completion", "t3/P-IB/miniproxy-baseline/issue", "text/cqe", "t10/miniproxy/b1/cold"},
		func(v []float64) float64 { return v[0] - v[1] - v[2] - 1/v[3] })
}

// notices are the stacks' own parts of half a round trip.
func notices(d *deriver) {
	word := []string{"t3/P-IB/minigda-inline/rtt", "t4/P-IB/gpu-fence/issue"}
	add := func(selector sel, row, how string, when valid, more ...string) {
		d.from("notice", selector, "us", "RTT / 2 - issue - arrive * cqe"+how, when,
			append(append([]string{"t3/P-IB/" + row + "/rtt", "t3/P-IB/" + row + "/issue"}, word...), more...),
			func(v []float64) float64 {
				t := v[0]/2 - v[1] - (v[2]/2 - v[3])
				for _, rate := range v[4:] {
					t -= 1 / rate
				}
				return t
			})
	}
	add(gdaki, "gdaki-inline", "", smallGPU)
	add(public, "nvshmem-public", "", smallGPU)
	add(ibrc, "ibrc", ", cold: the worker is in it", coldWarm)
	add(ginProxy, "gin-proxy", ", cold: the worker is in it", coldWarm)
	add(baseline, "miniproxy-baseline", " - (post + wr), cold", coldWarm, "t10/miniproxy/b1/cold")
}

// workers is mini-proxy's worker: a post costs post + wr * batch.
func workers(d *deriver) {
	for _, state := range []string{"cold", "warm"} {
		when := merge(cold, valid{"state": state, "workers": "1", "batch": "1..16"})
		ids := []string{"t10/miniproxy/b1/" + state, "t10/miniproxy/b16/" + state}
		d.from("post", merge(miniproxy, sel{"state": state}), "us", "(1/r1 - 1/r16) * 16/15", when, ids,
			func(v []float64) float64 { return (1/v[0] - 1/v[1]) * 16 / 15 })
		d.from("wr", merge(miniproxy, sel{"state": state}), "us", "1/r1 - post", when, ids,
			func(v []float64) float64 { return 1/v[0] - (1/v[0]-1/v[1])*16/15 })
	}
}

// rates are the costs of threads that post one after the other, and the ceilings.
func rates(d *deriver) {
	one := []string{"t5/minigda/1x1", "t5/minigda/1x1b16"}
	when := merge(smallGPU, valid{"order": "gpu-fence", "batch": "1..16"})
	d.from("doorbell_wqe", minigda, "us", "d = (1/r1 - 1/r16) * 16/15: what an ordered doorbell costs", when, one,
		func(v []float64) float64 { return (1/v[0] - 1/v[1]) * 16 / 15 })
	d.from("wqe", minigda, "us", "a = 1/r1 - d: what a WQE costs", when, one,
		func(v []float64) float64 { return 1/v[0] - (1/v[0]-1/v[1])*16/15 })
	d.from("lock", minigda, "us", "1/r - 1/r1: 32 threads, a doorbell lock per WQE", merge(smallGPU, valid{"threads": "32", "batch": "1"}),
		[]string{"t5/minigda/lock", "t5/minigda/1x1"}, func(v []float64) float64 { return 1/v[0] - 1/v[1] })
	d.from("slot", minigda, "us", "1/r: slots handed off from thread to thread", merge(smallGPU, valid{"threads": "256", "batch": "32"}),
		[]string{"t5/minigda/handoff"}, func(v []float64) float64 { return 1 / v[0] })
	d.from("warp", minigda, "us", "32/r: a warp reserves, builds and publishes 32 WQEs", merge(smallGPU, valid{"batch": "32"}),
		[]string{"t5/minigda/warp"}, func(v []float64) float64 { return 32 / v[0] })
	d.as("qp_rate", minigda, "Mmsg/s", "two warps or more", merge(smallGPU, valid{"batch": "32"}), "t5/minigda/warps")
	d.as("qp_rate", public, "Mmsg/s", "IBGDA, one QP", merge(smallGPU, valid{"batch": "32"}), "t5/nvshmem/1qp")
	d.as("sm_rate", minigda, "Mmsg/s", "64 threads of one SM", merge(smallGPU, valid{"batch": "1..16"}), "t5/minigda/64x64b16sm1")
	d.as("nic_rate", nil, "Mmsg/s", "the NIC's ceiling", small, "t5/minigda/64x64b16")
}

// wire is the link and what a packet costs on it beyond its payload.
func wire(d *deriver, link string) {
	d.as("link", nil, "GB/s", "line rate", nil, link)
	d.from("header", nil, "B", "(line rate / goodput - 1) * 4096 at 4,096 B, one packet", valid{"size": "8..1M"},
		[]string{"t2/P-H100/link", "t16/send/4096"}, func(v []float64) float64 { return (v[0]/v[1] - 1) * 4096 })
	d.as("mtu", nil, "B", "largest payload of a packet", nil, "t2/mtu")
}

func deriveGB200(d *deriver) {
	issues(d, smallGB)
	d.from("issue", merge(gdaki, sel{"inline": "off"}), "us", "inline + what a pointer adds on P-IB; "+carried, smallGB,
		[]string{"t3/P-GB200/gdaki-inline/issue", "t3/P-IB/gdaki-pointer/issue", "t3/P-IB/gdaki-inline/issue"},
		func(v []float64) float64 { return v[0] + v[1] - v[2] })
	cqe := []string{"t4/P-GB200/none/put_completion", "t4/P-GB200/none/issue"}
	d.from("cqe", nil, "us", "put+completion - issue of the unordered control", small, cqe, minus)
	d.as("cqe_host", nil, "us", "what queues in host memory change", small, "text/host-queue")
	d.from("fetch", nil, "us", carried, small,
		[]string{"t3/P-IB/minigda-pointer/put_completion", "t4/P-IB/gpu-fence/issue", "text/cqe"}, minus)
	d.from("arrive", nil, "1", "carried over from P-IB: the part of the doorbell-to-CQE time after which the peer sees the word", small,
		[]string{"t3/P-IB/minigda-inline/rtt", "t4/P-IB/gpu-fence/issue", "text/cqe"},
		func(v []float64) float64 { return (v[0]/2 - v[1]) / v[2] })
	for _, s := range []struct {
		selector sel
		row      string
		rtt      bool
	}{{gdaki, "gdaki-inline", true}, {internal, "nvshmem-internal", false}, {public, "nvshmem-public", true}} {
		base := "t3/P-IB/" + s.row
		d.from("completion", s.selector, "us", carried, smallGB, []string{base + "/put_completion", base + "/issue", "text/cqe"}, minus)
		if s.rtt {
			d.from("notice", s.selector, "us", carried, smallGB,
				[]string{base + "/rtt", base + "/issue", "t3/P-IB/minigda-inline/rtt", "t4/P-IB/gpu-fence/issue"},
				func(v []float64) float64 { return v[0]/2 - v[1] - (v[2]/2 - v[3]) })
		}
	}
	scope := merge(small, valid{"queues": "3..155"})
	pub := []string{"t8/dci153/public", "t8/rc2/public"}
	perQueue := func(v []float64) float64 { return (v[0] - v[1]) / (155 - 3) }
	d.from("scoped_queue", merge(nvshmem, sel{"scope": "all"}), "us", "(t(155) - t(3)) / 152, public call", scope, pub, perQueue)
	for _, s := range []struct {
		selector sel
		row      string
	}{{public, "public"}, {internal, "internal"}} {
		d.from("scoped", merge(s.selector, sel{"scope": "all"}), "us", "t(3) - 3 * scoped_queue", scope,
			append([]string{"t8/rc2/" + s.row}, pub...), func(v []float64) float64 { return v[0] - 3*perQueue(v[1:]) })
	}
	d.absent("no CPU worker was timed on Grace alone; P-IB's are of a Xeon 6548Y+ in a stated clock state",
		oracle.Absence{Name: "completion", For: ibrc}, oracle.Absence{Name: "completion", For: ginProxy}, oracle.Absence{Name: "post", For: miniproxy},
		oracle.Absence{Name: "notice", For: ibrc}, oracle.Absence{Name: "notice", For: ginProxy})
	d.as("stack_rate", merge(miniproxy, sel{"workers": "8", "batch": "16"}), "Mmsg/s", "", small, "t10/P-GB200/miniproxy")
	d.as("stack_rate", merge(public, sel{"threads": "saturating"}), "Mmsg/s", "IBGDA", small, "t10/P-GB200/nvshmem")
	wire(d, "t2/P-GB200/link")
}

func deriveRoCE(d *deriver) {
	clock := merge(small, valid{"clock": "502e6..1.845e9"})
	for _, s := range []struct {
		selector sel
		row      string
	}{{public, "nvshmem"}, {merge(gdaki, sel{"inline": "on"}), "gdaki"}, {ibrc, "ibrc"}} {
		for _, q := range []string{"issue", "put_completion"} {
			d.as(q+"_cycles", s.selector, "cycles", "", clock, "t6/"+s.row+"/"+q+"/cycles")
			d.as(q+"_base", s.selector, "us", "", clock, "t6/"+s.row+"/"+q+"/base")
		}
	}
	queues := merge(small, valid{"queues": "1..32"})
	ends := []string{"t7/32/all", "t7/1/all"}
	slope := func(v []float64) float64 { return (v[0] - v[1]) / 31 }
	d.from("scoped_queue", merge(public, sel{"scope": "all"}), "us", "(t(32) - t(1)) / 31", queues, ends, slope)
	d.from("scoped", merge(public, sel{"scope": "all"}), "us", "t(1) - scoped_queue", queues, ends,
		func(v []float64) float64 { return v[1] - slope(v) })
	for _, b := range []struct{ build, row string }{{"deepep-port", "port"}, {"stock", "stock"}} {
		d.as("scoped", merge(public, sel{"scope": "qp", "build": b.build}), "us", "one queue, whatever their number", queues, "t7/1/"+b.row)
	}
	d.as("scoped_rtt", public, "us", "whatever the number of queues", queues, "t7/1/rtt")
	wire(d, "t2/P-RoCE/link")
}

func deriveH100(d *deriver) {
	burst := merge(small, valid{"reuse": "32"})
	d.as("connection_rate", merge(minigda, sel{"role": "send", "reuse": "32"}), "Mmsg/s", "flat", merge(burst, valid{"connections": "1..32768"}), "fig10/send")
	d.from("connection_rate", merge(minigda, sel{"role": "both", "reuse": "32"}), "Mmsg/s", "goodput / 8 B at 4,096 QPs", merge(burst, valid{"connections": "4096"}),
		[]string{"t16/both/8"}, func(v []float64) float64 { return v[0] / 8 })
	d.as("connection_rate", merge(minigda, sel{"role": "both", "reuse": "8192"}), "Mmsg/s", "flat", merge(small, valid{"connections": "1024..4096"}), "t15/reuse8192/1024")
	alltoall := sel{"pattern": "alltoall", "queue": "gpu", "service": "rc"}
	when := valid{"connections": "1..2976", "reuse": "32"}
	d.as("onset", alltoall, "QPs", "fitted by the paper with 128 PEs", when, "a2a/onset")
	d.from("exponent", alltoall, "1", "ln(r) / ln(onset / 2976)", when, []string{"t15/gpu/2976", "a2a/onset"},
		func(v []float64) float64 { return math.Log(v[0]) / math.Log(v[1]/2976) })
	d.as("nic_rate", nil, "Mmsg/s", "host thread rings for WQEs that the GPU built, 16 QPs", small, "t5/forwarded/P-H100")
	wire(d, "t2/P-H100/link")
}
