package check

import (
	"math"

	"gic/harness/attribution/oracle"
)

// The orderings of Table 4.
var orders = []string{"none", "gpu-fence", "gpu-fence+dbr", "gpu-release", "threadfence", "sys-release", "sys-fence"}

var (
	small     = valid{"size": "8"}
	smallGPU  = valid{"size": "8", "clock": "1.962e9..1.98e9"}
	onGPU     = valid{"queue": "gpu"} // of what the GPU writes itself
	smallGB   = valid{"size": "8", "clock": "2.062e9"}
	cold      = valid{"size": "8", "cpu": "cold", "processor": "xeon-6548y"}
	coldWarm  = valid{"size": "8", "cpu": "cold|warm", "processor": "xeon-6548y"}
	carried   = "carried over from P-IB, on the assumption that the same code at an SM clock within 5 % takes as long"
	gdaki     = sel{"backend": "ncclgin", "path": "gdaki"}
	ginProxy  = sel{"backend": "ncclgin", "path": "proxy"}
	ibrc      = sel{"backend": "nvshmem", "path": "ibrc"}
	public    = sel{"backend": "nvshmem", "path": "ibgda", "api": "public"}
	internal  = sel{"backend": "nvshmem", "path": "ibgda", "api": "internal"}
	baseline  = sel{"backend": "miniproxy", "handoff": "baseline"}
	tuned     = sel{"backend": "miniproxy", "handoff": "tuned"}
	miniproxy = sel{"backend": "miniproxy"}
	minigda   = sel{"backend": "minigda"}
	ibgda     = sel{"backend": "nvshmem", "path": "ibgda"}
)

// The rows of Table 3.
const (
	rowGDAKI    = "ncclgin path=gdaki inline=on"
	rowInternal = "nvshmem path=ibgda api=internal"
	rowPublic   = "nvshmem path=ibgda api=public"
	rowIBRC     = "nvshmem path=ibrc"
	rowGINProxy = "ncclgin path=proxy"
	rowBaseline = "miniproxy handoff=baseline"
)

// issues adds the issue times of a platform, all of them as printed.
func issues(d *deriver, gpu valid) {
	p := d.p.Name
	for _, o := range orders {
		d.as("issue", merge(minigda, sel{"order": o}), "us", "", merge(gpu, onGPU, valid{"size": "8..92"}), p+"|Table 4|minigda order="+o+"|issue")
	}
	d.as("issue", merge(gdaki, sel{"inline": "on"}), "us", "", gpu, p+"|Table 3|ncclgin path=gdaki inline=on|issue")
	for _, s := range []struct {
		selector sel
		row      string
	}{
		{internal, rowInternal}, {public, rowPublic}, {ibrc, rowIBRC}, {ginProxy, rowGINProxy},
		{baseline, rowBaseline},
	} {
		d.as("issue", s.selector, "us", "", gpu, p+"|Table 3|"+s.row+"|issue")
	}
	d.as("issue", tuned, "us", "a single posted store", merge(gpu, valid{"payload": "posted"}), p+"|Table 3|miniproxy handoff=tuned|issue")
}

func deriveIB(d *deriver) {
	issues(d, smallGPU)
	d.as("issue", merge(gdaki, sel{"inline": "off"}), "us", "", smallGPU, "P-IB|Table 3|ncclgin path=gdaki inline=off|issue")
	d.as("issue_segment", minigda, "us", "per further 16 B of inline payload", valid{"size": "8..92"}, "P-IB|Fig. 3|minigda|issue_per_16_bytes")
	d.as("cqe", nil, "us", "CQE visible after the doorbell store", valid{"size": "8..92"}, "P-IB|text, latency|minigda|doorbell_to_cqe")
	d.from("fetch", nil, "us", "put+completion - issue - cqe, payload by pointer", small,
		[]string{"P-IB|Table 3|minigda inline=off order=gpu-fence|put_completion", "P-IB|Table 4|minigda order=gpu-fence|issue", "P-IB|text, latency|minigda|doorbell_to_cqe"}, minus)
	d.as("dc", minigda, "us", "put+completion of DC over RC", small, "P-IB|text, latency|minigda transport=dc|put_completion_added")
	d.from("arrive", nil, "1", "(RTT / 2 - issue) / cqe of mini-gda inline: the part of the doorbell-to-CQE time after which the peer sees the word",
		small, []string{"P-IB|Table 3|minigda inline=on order=gpu-fence|rtt", "P-IB|Table 4|minigda order=gpu-fence|issue", "P-IB|text, latency|minigda|doorbell_to_cqe"},
		func(v []float64) float64 { return (v[0]/2 - v[1]) / v[2] })
	completions(d)
	notices(d)
	workers(d)
	rates(d)
	connections(d, "carried over from P-H100, the same NIC and link: ")
	wire(d, "P-IB|Table 2||link")
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
		[]string{"P-IB|Table 3|ncclgin path=gdaki inline=on|put_completion", "P-IB|Table 3|ncclgin path=gdaki inline=on|issue", "P-IB|text, latency|minigda|doorbell_to_cqe"}, minus)
	d.from("completion", internal, "us", "put+completion - issue - cqe", smallGPU,
		[]string{"P-IB|Table 3|nvshmem path=ibgda api=internal|put_completion", "P-IB|Table 3|nvshmem path=ibgda api=internal|issue", "P-IB|text, latency|minigda|doorbell_to_cqe"}, minus)
	d.from("completion", public, "us", "put+completion - issue - cqe", smallGPU,
		[]string{"P-IB|Table 3|nvshmem path=ibgda api=public|put_completion", "P-IB|Table 3|nvshmem path=ibgda api=public|issue", "P-IB|text, latency|minigda|doorbell_to_cqe"}, minus)
	d.from("completion", ibrc, "us", "put+completion - issue - cqe, cold: the worker is in it", coldWarm,
		[]string{"P-IB|Table 3|nvshmem path=ibrc|put_completion", "P-IB|Table 3|nvshmem path=ibrc|issue", "P-IB|text, latency|minigda|doorbell_to_cqe"}, minus)
	d.from("completion", ginProxy, "us", "put+completion - issue - cqe, cold: the worker is in it", coldWarm,
		[]string{"P-IB|Table 3|ncclgin path=proxy|put_completion", "P-IB|Table 3|ncclgin path=proxy|issue", "P-IB|text, latency|minigda|doorbell_to_cqe"}, minus)
	d.from("completion", baseline, "us", "put+completion - issue - cqe - (post + wr), cold: polling the counter over PCIe", coldWarm,
		[]string{"P-IB|Table 3|miniproxy handoff=baseline|put_completion", "P-IB|Table 3|miniproxy handoff=baseline|issue", "P-IB|text, latency|minigda|doorbell_to_cqe", "P-IB|Tables 9-11|miniproxy batch=1 cpu=cold|message_rate"},
		func(v []float64) float64 { return v[0] - v[1] - v[2] - 1/v[3] })
}

// notices are the stacks' own parts of half a round trip.
func notices(d *deriver) {
	word := []string{"P-IB|Table 3|minigda inline=on order=gpu-fence|rtt", "P-IB|Table 4|minigda order=gpu-fence|issue"}
	add := func(selector sel, row, how string, when valid, more ...string) {
		d.from("notice", selector, "us", "RTT / 2 - issue - arrive * cqe"+how, when,
			append(append([]string{"P-IB|Table 3|" + row + "|rtt", "P-IB|Table 3|" + row + "|issue"}, word...), more...),
			func(v []float64) float64 {
				t := v[0]/2 - v[1] - (v[2]/2 - v[3])
				for _, rate := range v[4:] {
					t -= 1 / rate
				}
				return t
			})
	}
	add(gdaki, rowGDAKI, "", smallGPU)
	add(public, rowPublic, "", smallGPU)
	add(ibrc, rowIBRC, ", cold: the worker is in it", coldWarm)
	add(ginProxy, rowGINProxy, ", cold: the worker is in it", coldWarm)
	add(baseline, rowBaseline, " - (post + wr), cold", coldWarm, "P-IB|Tables 9-11|miniproxy batch=1 cpu=cold|message_rate")
}

// workers is mini-proxy's worker: a post costs post + wr * batch.
func workers(d *deriver) {
	for _, state := range []string{"cold", "warm"} {
		when := merge(cold, valid{"cpu": state, "workers": "1", "batch": "1..16"})
		ids := []string{"P-IB|Tables 9-11|miniproxy batch=1 cpu=" + state + "|message_rate", "P-IB|Tables 9-11|miniproxy batch=16 cpu=" + state + "|message_rate"}
		d.from("post", merge(miniproxy, sel{"cpu": state}), "us", "(1/r1 - 1/r16) * 16/15", when, ids,
			func(v []float64) float64 { return (1/v[0] - 1/v[1]) * 16 / 15 })
		d.from("wr", merge(miniproxy, sel{"cpu": state}), "us", "1/r1 - post", when, ids,
			func(v []float64) float64 { return 1/v[0] - (1/v[0]-1/v[1])*16/15 })
	}
}

// rates are the costs of threads that post one after the other, and the ceilings.
func rates(d *deriver) {
	one := []string{"P-IB|Table 5|minigda threads=1 qps=1 batch=1|message_rate", "P-IB|Table 5|minigda threads=1 batch=16|message_rate"}
	when := merge(smallGPU, onGPU, valid{"order": "gpu-fence", "batch": "1..16"})
	d.from("doorbell_wqe", minigda, "us", "d = (1/r1 - 1/r16) * 16/15: what an ordered doorbell costs", when, one,
		func(v []float64) float64 { return (1/v[0] - 1/v[1]) * 16 / 15 })
	d.from("wqe", minigda, "us", "a = 1/r1 - d: what a WQE costs", when, one,
		func(v []float64) float64 { return 1/v[0] - (1/v[0]-1/v[1])*16/15 })
	d.from("lock", minigda, "us", "1/r - 1/r1: 32 threads, a doorbell lock per WQE", merge(smallGPU, onGPU, valid{"threads": "32", "batch": "1"}),
		[]string{"P-IB|Table 5|minigda sharing=lock|message_rate", "P-IB|Table 5|minigda threads=1 qps=1 batch=1|message_rate"}, func(v []float64) float64 { return 1/v[0] - 1/v[1] })
	d.from("slot", minigda, "us", "1/r: slots handed off from thread to thread", merge(smallGPU, onGPU, valid{"threads": "256", "batch": "32"}),
		[]string{"P-IB|Table 5|minigda sharing=handoff|message_rate"}, func(v []float64) float64 { return 1 / v[0] })
	d.from("warp", minigda, "us", "32/r: a warp reserves, builds and publishes 32 WQEs", merge(smallGPU, onGPU, valid{"batch": "32"}),
		[]string{"P-IB|Table 5|minigda sharing=warp threads=32|message_rate"}, func(v []float64) float64 { return 32 / v[0] })
	d.as("qp_rate", minigda, "Mmsg/s", "two warps or more", merge(smallGPU, onGPU, valid{"batch": "32"}), "P-IB|Table 5|minigda sharing=warp threads=256|message_rate")
	d.as("qp_rate", ibgda, "Mmsg/s", "one QP, 256 threads", smallGPU, "P-IB|Table 5|nvshmem qps=1|message_rate")
	d.as("sm_rate", minigda, "Mmsg/s", "64 threads of one SM", merge(smallGPU, onGPU, valid{"batch": "1..16"}), "P-IB|Table 5|minigda threads=64 sms=1|message_rate")
	d.as("nic_rate", nil, "Mmsg/s", "the NIC's ceiling", small, "P-IB|Table 5|minigda threads=64 sms=64|message_rate")
}

// wire is the link and what a packet costs on it beyond its payload.
func wire(d *deriver, link string) {
	d.as("link", nil, "GB/s", "line rate", nil, link)
	d.from("header", nil, "B", "(line rate / goodput - 1) * 4096 at 4,096 B, one packet", valid{"size": "8..1M"},
		[]string{"P-H100|Table 2||link", "P-H100|Fig. 10|minigda role=send size=4096|goodput"}, func(v []float64) float64 { return (v[0]/v[1] - 1) * 4096 })
	d.p.Constants = append(d.p.Constants, &oracle.Constant{Name: "mtu", Value: 4096, Unit: "B",
		Source: "InfiniBand Architecture Specification, volume 1: the largest path MTU"})
}

func deriveGB200(d *deriver) {
	issues(d, smallGB)
	d.from("issue", merge(gdaki, sel{"inline": "off"}), "us", "inline + what a pointer adds on P-IB; "+carried, smallGB,
		[]string{"P-GB200|Table 3|ncclgin path=gdaki inline=on|issue", "P-IB|Table 3|ncclgin path=gdaki inline=off|issue", "P-IB|Table 3|ncclgin path=gdaki inline=on|issue"},
		func(v []float64) float64 { return v[0] + v[1] - v[2] })
	cqe := []string{"P-GB200|Table 4|minigda order=none|put_completion", "P-GB200|Table 4|minigda order=none|issue"}
	d.from("cqe", nil, "us", "put+completion - issue of the unordered control", small, cqe, minus)
	d.from("cqe_host", nil, "us", "what queues in host memory change", small,
		[]string{"P-GB200|text, latency|minigda queue=host|put_completion_saved"}, func(v []float64) float64 { return -v[0] })
	d.from("fetch", nil, "us", carried, small,
		[]string{"P-IB|Table 3|minigda inline=off order=gpu-fence|put_completion", "P-IB|Table 4|minigda order=gpu-fence|issue", "P-IB|text, latency|minigda|doorbell_to_cqe"}, minus)
	d.from("arrive", nil, "1", "carried over from P-IB: the part of the doorbell-to-CQE time after which the peer sees the word", small,
		[]string{"P-IB|Table 3|minigda inline=on order=gpu-fence|rtt", "P-IB|Table 4|minigda order=gpu-fence|issue", "P-IB|text, latency|minigda|doorbell_to_cqe"},
		func(v []float64) float64 { return (v[0]/2 - v[1]) / v[2] })
	for _, s := range []struct {
		selector sel
		row      string
		rtt      bool
	}{{gdaki, rowGDAKI, true}, {internal, rowInternal, false}, {public, rowPublic, true}} {
		base := "P-IB|Table 3|" + s.row
		d.from("completion", s.selector, "us", carried, smallGB, []string{base + "|put_completion", base + "|issue", "P-IB|text, latency|minigda|doorbell_to_cqe"}, minus)
		if s.rtt {
			d.from("notice", s.selector, "us", carried, smallGB,
				[]string{base + "|rtt", base + "|issue", "P-IB|Table 3|minigda inline=on order=gpu-fence|rtt", "P-IB|Table 4|minigda order=gpu-fence|issue"},
				func(v []float64) float64 { return v[0]/2 - v[1] - (v[2]/2 - v[3]) })
		}
	}
	scope := merge(small, valid{"queues": "3..155"})
	pub := []string{"P-GB200|Table 8|nvshmem api=public queues=155|put_completion", "P-GB200|Table 8|nvshmem api=public queues=3|put_completion"}
	perQueue := func(v []float64) float64 { return (v[0] - v[1]) / (155 - 3) }
	d.from("scoped_queue", ibgda, "us", "(t(155) - t(3)) / 152, public call", scope, pub, perQueue)
	for _, s := range []struct {
		selector sel
		row      string
	}{{public, "public"}, {internal, "internal"}} {
		d.from("scoped", s.selector, "us", "t(3) - 3 * scoped_queue", scope,
			append([]string{"P-GB200|Table 8|nvshmem queues=3 api=" + s.row + "|put_completion"}, pub...), func(v []float64) float64 { return v[0] - 3*perQueue(v[1:]) })
	}
	d.absent("no CPU worker was timed on Grace alone; P-IB's are of a Xeon 6548Y+ in a stated clock state",
		oracle.Absence{Name: "completion", For: ibrc}, oracle.Absence{Name: "completion", For: ginProxy}, oracle.Absence{Name: "post", For: miniproxy},
		oracle.Absence{Name: "notice", For: ibrc}, oracle.Absence{Name: "notice", For: ginProxy})
	best := merge(small, valid{"threads": "saturating"})
	d.as("stack_rate", miniproxy, "Mmsg/s", "its best there", merge(best, valid{"workers": "8", "batch": "16"}), "P-GB200|text, proxies|miniproxy workers=8|message_rate")
	d.as("stack_rate", ibgda, "Mmsg/s", "its best there", best, "P-GB200|text, proxies|nvshmem path=ibgda|message_rate")
	wire(d, "P-GB200|Table 2||link")
}

func deriveRoCE(d *deriver) {
	clock := merge(small, valid{"clock": "502e6..1.845e9"})
	for _, s := range []struct {
		selector sel
		row      string
	}{{public, rowPublic}, {merge(gdaki, sel{"inline": "on"}), rowGDAKI}, {ibrc, rowIBRC}} {
		for _, q := range []string{"issue", "put_completion"} {
			d.as(q+"_cycles", s.selector, "cycles", "", clock, "P-RoCE|Table 6|"+s.row+"|"+q+"_cycles")
			d.as(q+"_base", s.selector, "us", "", clock, "P-RoCE|Table 6|"+s.row+"|"+q+"_constant")
		}
	}
	queues := merge(small, valid{"queues": "1..32"})
	ends := []string{"P-RoCE|Table 7|nvshmem queues=32 scope=all|put_completion", "P-RoCE|Table 7|nvshmem queues=1 scope=all|put_completion"}
	slope := func(v []float64) float64 { return (v[0] - v[1]) / 31 }
	d.from("scoped_queue", merge(public, sel{"scope": "all"}), "us", "(t(32) - t(1)) / 31", queues, ends, slope)
	d.from("scoped", merge(public, sel{"scope": "all"}), "us", "t(1) - scoped_queue", queues, ends,
		func(v []float64) float64 { return v[1] - slope(v) })
	for _, scope := range []string{"qp-deepep", "qp"} {
		d.as("scoped", merge(public, sel{"scope": scope}), "us", "one queue, whatever their number", queues, "P-RoCE|Table 7|nvshmem queues=1 scope="+scope+"|put_completion")
	}
	d.as("scoped_rtt", public, "us", "whatever the number of queues", queues, "P-RoCE|Table 7|nvshmem queues=1 scope=all|rtt")
	wire(d, "P-RoCE|Table 2||link")
}

func deriveH100(d *deriver) {
	pairs := merge(small, valid{"pattern": "pairs"})
	burst := merge(pairs, valid{"burst": "32"})
	d.as("connection_rate", merge(minigda, sel{"role": "send"}), "Mmsg/s", "flat", merge(burst, valid{"active": "1..32768"}), "P-H100|Fig. 10|minigda role=send|message_rate")
	d.from("connection_rate", merge(minigda, sel{"role": "both", "burst": "32"}), "Mmsg/s", "goodput / 8 B at 4,096 QPs", merge(burst, valid{"active": "4096"}),
		[]string{"P-H100|Fig. 10|minigda role=both size=8|goodput"}, func(v []float64) float64 { return v[0] / 8 })
	d.as("connection_rate", merge(minigda, sel{"burst": "8192"}), "Mmsg/s", "flat", merge(pairs, valid{"active": "1024..4096"}), "P-H100|Fig. 10|minigda burst=8192|message_rate_low")
	connections(d, "")
	d.as("nic_rate", nil, "Mmsg/s", "host thread rings for WQEs that the GPU built, 16 QPs", small, "P-H100|text, rate|minigda doorbell=host-thread|message_rate")
	wire(d, "P-H100|Table 2||link")
}

// connections is what many active connections cost a NIC of 200 Gb/s.
func connections(d *deriver, carried string) {
	alltoall := sel{"pattern": "alltoall"}
	when := valid{"active": "1..3000"}
	d.as("onset", alltoall, "QPs", carried+"fitted by the paper with 128 PEs", when, "P-H100|Fig. 10|minigda pattern=alltoall|onset_active")
	d.from("exponent", alltoall, "1", carried+"ln(1 - loss) / ln(onset / 3000)", when,
		[]string{"P-H100|Fig. 10|minigda pattern=alltoall|rate_loss", "P-H100|Fig. 10|minigda pattern=alltoall|onset_active"},
		func(v []float64) float64 { return math.Log(1-v[0]) / math.Log(v[1]/3000) })
	d.as("duplex_rate", alltoall, "Mmsg/s", carried+"of a NIC that sends and receives alike, with few connections", nil,
		"P-H100|Fig. 10|minigda active=few role=both|message_rate")
}
