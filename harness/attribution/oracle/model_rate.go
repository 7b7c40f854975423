package oracle

import (
	"math"
	"strconv"
	"strings"
)

func ftoa(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// bound is a limit on the message rate, with its formula.
type bound struct {
	rate    float64
	formula string
}

func modelRate(c *calc) {
	b := c.rate()
	c.resultOfAll(b.rate, b.formula)
}

// resultOfAll is the result of all sending ranks, each on a NIC of its own.
func (c *calc) resultOfAll(v float64, formula string) {
	if s := c.q["senders"]; s != "" && s != "1" {
		v, formula = v*c.num("senders"), "senders * "+formula
	}
	c.result(v, formula)
}

// lower takes the lower of two bounds, and keeps both in the formula.
func (b bound) lower(o bound) bound {
	return bound{math.Min(b.rate, o.rate), "min(" + b.formula + ", " + o.formula + ")"}
}

// rate is the rate at which one NIC's messages leave, as far as posting and the NIC limit it.
func (c *calc) rate() bound {
	if c.q["active"] != "" {
		return bound{c.use("connection_rate"), "connection_rate"}
	}
	if c.q["backend"] == "" {
		c.none("backend is not stated")
	}
	if c.has("stack_rate") {
		return bound{c.use("stack_rate"), "stack_rate"}
	}
	var b bound
	switch c.q["backend"] {
	case "minigda":
		b = c.gdaRate()
	case "miniproxy":
		post, formula := c.visit()
		if strings.Contains(formula, " ") {
			formula = "(" + formula + ")"
		}
		b = bound{c.num("workers") / (post/c.num("batch") + c.use("wr")), "workers / (" + formula + " / batch + wr)"}
	default:
		b = c.perQueue("qp_rate", 256)
	}
	if c.has("nic_rate") && b.formula != "nic_rate" {
		b = b.lower(bound{c.use("nic_rate"), "nic_rate"})
	}
	return b
}

// gdaRate is the rate of mini-gda's threads by how they share queues.
func (c *calc) gdaRate() bound {
	if c.q["threads"] == "saturating" {
		return bound{c.use("nic_rate"), "nic_rate"}
	}
	threads := c.num("threads")
	if c.q["sharing"] == "exclusive" {
		if threads > 1 && c.num("qps") < threads {
			c.none("threads=%v share qps=%v, which sharing=exclusive excludes", threads, c.q["qps"])
		}
		period, formula := c.period()
		b := bound{threads / period, "threads / (" + formula + ")"}
		if threads == 1 || !c.has("sm_rate") {
			return b
		}
		if sms := c.num("sms"); threads > sms {
			b = b.lower(bound{sms * c.use("sm_rate"), "sms * sm_rate"})
		}
		return b
	}
	if c.q["lock"] == "block" {
		c.none("lock=block: its constants are of a lock in GPU memory")
	}
	qps, batch := c.num("qps"), c.num("batch")
	switch c.q["sharing"] {
	case "lock":
		c.one("qps", qps)
		period, formula := c.period()
		return bound{1 / (period + c.use("lock")), "1 / (" + formula + " + lock)"}
	case "handoff":
		c.one("qps", qps)
		return bound{1 / c.use("slot"), "1 / slot"}
	case "warp":
		if threads/qps >= 64 {
			return c.perQueue("qp_rate", 64)
		}
		return bound{qps * batch / c.use("warp"), "qps * batch / warp"}
	}
	c.none("sharing=%q has no model", c.q["sharing"])
	return bound{}
}

// one refuses what was only measured with one.
func (c *calc) one(key string, v float64) {
	if v != 1 {
		c.none("%s=%v with sharing=%s: its constants are of one queue", key, v, c.q["sharing"])
	}
}

// perQueue is the ceiling of one queue, times the queues; it takes a number of threads per queue to reach it.
func (c *calc) perQueue(name string, least float64) bound {
	rate := c.use(name)
	if c.q["threads"] != "saturating" {
		if threads, qps := c.num("threads"), c.num("qps"); threads/qps < least {
			c.none("threads=%v on qps=%v: the ceiling of a queue takes %v threads each", threads, qps, least)
		}
	}
	return bound{c.num("qps") * rate, "qps * " + name}
}

// goodput at a size: what the rate gives, or the link with a header per packet.
func (c *calc) goodput(size float64, rate bound) (float64, string) {
	c.q = c.q.With("size", ftoa(size))
	packets := math.Max(1, math.Ceil(size/c.use("mtu")))
	link := bound{c.use("link") / (size + c.use("header")*packets), "link / (size + header * ceil(size / mtu))"}
	b := rate.lower(link)
	return size * b.rate, "size * " + b.formula
}

// smallRate is the message rate with the smallest payload, whatever the query's.
func (c *calc) smallRate() bound {
	q := c.q
	c.q = q.With("size", "8")
	b := c.rate()
	c.q = q
	return b
}

func modelGoodput(c *calc) { c.resultOfAll(c.goodput(c.num("size"), c.smallRate())) }

// modelPeak is the goodput of a long message.
func modelPeak(c *calc) { c.result(c.goodput(1<<20, c.smallRate())) }

// modelKnee is the first power of two that reaches 90 % of the best goodput.
func modelKnee(c *calc) {
	rate := c.smallRate()
	best, _ := c.goodput(1<<20, rate)
	formula := ""
	for size := 8.0; size <= 1<<20 && !c.dead(); size *= 2 {
		var v float64
		if v, formula = c.goodput(size, rate); v >= 0.9*best {
			c.result(size, "first size = 8, 16, 32, ... with "+formula+" >= 0.9 of that at 1 MiB")
			return
		}
	}
}

// modelRelativeRate is the rate with many active connections over that with few: a plateau, then a power law.
func modelRelativeRate(c *calc) {
	v, formula := c.connections(c.num("active"))
	c.result(v, formula)
}

func (c *calc) connections(n float64) (float64, string) {
	onset := c.use("onset")
	if n <= onset {
		return 1, "1 as active <= onset"
	}
	return math.Pow(n/onset, -c.use("exponent")), "(active / onset) ^ -exponent"
}
