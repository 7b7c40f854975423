package calibrate

import (
	"fmt"
	"math"
	"slices"

	"gic/harness/attribution/oracle"
)

func quality(n int, worst float64) string {
	if n == 1 {
		return "1 point"
	}
	return fmt.Sprintf("%d points, largest distance %.2g %%", n, 100*worst)
}

// wire fits the link and what a packet costs beyond its payload from goodput that the link limits: 1/rate is linear in
// size and packets.
func (f *fit) wire(nic string) {
	mtu := 4096.0
	if nic == "soft" {
		mtu = 1 << 30 // softnic moves a message in one piece
	}
	// Of each size the best, whatever posted it.
	best := map[float64]*Point{}
	for _, p := range f.where("goodput") {
		if p.Conditions["senders"] != "" {
			continue
		}
		if b := best[p.num("size")]; b == nil || b.Value < p.Value {
			best[p.num("size")] = p
		}
	}
	top := 0.0
	for _, p := range best {
		top = max(top, p.Value)
	}
	var list []*Point
	for _, p := range best {
		if p.Value >= 0.5*top {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *Point) int { return int(a.num("size") - b.num("size")) })
	if len(list) < 2 {
		f.refuse("link, header: %d sizes of goodput reach half of the best; at least 2 are needed (goodput:size=4K..256K*4)", len(list))
		return
	}
	x, ok := wireFit(list, mtu, true)
	if ok && x.value["packet"] < 0 {
		f.refuse("header: the fit gives %.3g B per packet; taken as 0", x.value["packet"]/x.value["byte"])
		x, ok = wireFit(list, mtu, false)
	}
	if !ok || x.value["byte"] <= 0 || x.rms > tooFar {
		f.refuse("link, header: goodput of %d sizes does not fit bytes and packets", len(list))
		return
	}
	valid := map[string]string{"size": sampled(list, "size")}
	link := 1 / x.value["byte"]
	f.add("link", nil, link, x.deviation["byte"]*link*link, "1 / (time per byte)", x.quality(), with(valid))
	f.add("header", nil, x.value["packet"]*link, x.deviation["packet"]*link, "time per packet, as bytes", x.quality(), with(valid))
	source := "assumed: InfiniBand's largest path MTU"
	if nic == "soft" {
		source = "minigda/softnic: a message is moved in one piece"
	}
	f.Platform.Constants = append(f.Platform.Constants, &oracle.Constant{Name: "mtu", Value: mtu, Unit: "B", Source: source})
}

// wireFit fits the time of a message to its bytes and, if so, its packets.
func wireFit(list []*Point, mtu float64, packets bool) (*solution, bool) {
	var s system
	for _, p := range list {
		size := p.num("size")
		terms := map[string]float64{"byte": size}
		if packets {
			terms["packet"] = math.Max(1, math.Ceil(size/mtu))
		}
		s.add(size/p.Value, terms)
	}
	return s.solve()
}
