package oracle

import "math"

// isProxy says that a CPU posts for the stack.
func (c *calc) isProxy() bool {
	return c.q["backend"] == "miniproxy" || c.q["path"] == "proxy" || c.q["path"] == "ibrc"
}

// clocked evaluates T(f) = C/f + B if the platform has that for the sequence.
func (c *calc) clocked(sequence string) bool {
	if !c.has(sequence + "_cycles") {
		return false
	}
	cycles, base, clock := c.use(sequence+"_cycles"), c.use(sequence+"_base"), c.num("clock")
	if !c.dead() && clock <= 0 {
		c.none("clock=%s is not a frequency", c.q["clock"])
	}
	c.result(cycles/clock+base, sequence+"_cycles / clock + "+sequence+"_base")
	return true
}

// issueTime is what the posting thread spends on one operation, and its formula.
func (c *calc) issueTime() (float64, string) {
	if c.q["backend"] != "minigda" {
		return c.use("issue"), "issue"
	}
	if batch := c.num("batch"); batch != 1 {
		return c.period()
	}
	v, formula := c.use("issue"), "issue"
	if more := c.inlineSegments(); more > 0 {
		c.out.Conditions = c.q.With("segments", ftoa(more))
		c.q = c.out.Conditions
		v, formula = v+more*c.use("issue_segment"), formula+" + segments * issue_segment"
	}
	return v, formula
}

// inlineSegments are the 16-byte segments of an inline payload beyond the one that a pointer would take; 4 bytes
// of it are the length.
func (c *calc) inlineSegments() float64 {
	if c.q["inline"] != "on" {
		return 0
	}
	return math.Ceil((c.num("size")+4)/16) - 1
}

// period is the time per operation of one thread that posts batch after batch: a + d/B.
func (c *calc) period() (float64, string) {
	return c.use("wqe") + c.use("doorbell_wqe")/c.num("batch"), "wqe + doorbell_wqe / batch"
}

func modelIssue(c *calc) {
	if c.clocked("issue") {
		return
	}
	c.result(c.issueTime())
}

// worker is the time until a CPU worker has posted one descriptor that finds it idle.
func (c *calc) worker() (float64, string) {
	if c.q["backend"] == "miniproxy" {
		post, formula := c.visit()
		return post + c.use("wr"), " + " + formula + " + wr"
	}
	if c.isProxy() && c.q["cpu"] == "warm" {
		// A library's worker is in its completion constant, which is of the cold state: what warming up changes is
		// what it changes for mini-proxy's worker.
		floor := []string{"backend", "miniproxy", "cpu", "cold", "workers", "1"}
		cold := c.use("post", floor...)
		floor[3] = "warm"
		return c.use("post", floor...) - cold, " - (post[miniproxy][cold] - post[miniproxy][warm])"
	}
	return 0, ""
}

// visit is what a worker spends on one round over its rings and one doorbell, without the work requests.
func (c *calc) visit() (float64, string) {
	if c.q["ring_mode"] == "shared" {
		c.none("ring_mode=shared: its constants are of rings with one producer each")
	}
	post, formula := c.use("post"), "post"
	if c.has("ring") {
		post, formula = post+c.use("ring")*c.num("rings")/c.num("workers"), "post + ring * rings / workers"
	}
	return post, formula
}

func modelPutCompletion(c *calc) {
	if c.q["queues"] != "" && c.has("scoped") {
		v, formula := c.use("scoped"), "scoped"
		if c.has("scoped_queue") {
			v, formula = v+c.use("scoped_queue")*c.num("queues"), "scoped + scoped_queue * queues"
		}
		c.result(v, formula)
		return
	}
	if scope := c.q["scope"]; scope != "" && scope != "qp" && c.q["qps"] != "" && c.q["qps"] != "1" {
		c.none("scope=%s of qps=%s: what polling several queues adds is no constant of %s", scope, c.q["qps"], c.platform.Name)
		return
	}
	if c.clocked("put_completion") {
		return
	}
	hostQueue := c.q["queue"] == "host" && !c.isProxy() && c.has("cqe_host")
	if hostQueue { // known as a difference in all
		c.q = c.q.With("queue", "gpu")
	}
	v, formula := c.issueTime()
	w, worker := c.worker()
	v, formula = v+w+c.use("cqe"), formula+worker+" + cqe"
	for _, extra := range []struct {
		when bool
		name string
	}{
		{hostQueue, "cqe_host"},
		{c.q["inline"] == "off", "fetch"},
		{c.q["transport"] == "dc", "dc"},
		{c.ownCompletion(), "completion"},
	} {
		if extra.when {
			v, formula = v+c.use(extra.name), formula+" + "+extra.name
		}
	}
	c.result(v, formula)
}

// ownCompletion says whether the stack spends time of its own on completions. Of the floors that is known only
// where a constant says so: mini-gda and tuned mini-proxy poll one word.
func (c *calc) ownCompletion() bool {
	if c.q["backend"] == "miniproxy" && c.q["counter"] == "host" && c.q["handoff"] == "tuned" && !c.has("completion") {
		c.none("counter=host: that of a tuned hand-off is in GPU memory where its constants are from")
	}
	if c.q["backend"] == "minigda" || c.q["backend"] == "miniproxy" && c.q["handoff"] == "tuned" {
		return c.has("completion")
	}
	return true
}

func modelRTT(c *calc) {
	if c.q["queues"] != "" && c.has("scoped_rtt") {
		c.result(c.use("scoped_rtt"), "scoped_rtt")
		return
	}
	v, formula := c.issueTime()
	w, worker := c.worker()
	v, formula = v+w+c.use("arrive")*c.use("cqe"), formula+worker+" + arrive * cqe"
	if c.q["inline"] == "off" {
		v, formula = v+c.use("fetch"), formula+" + fetch"
	}
	if c.ownNotice() {
		v, formula = v+c.use("notice"), formula+" + notice"
	}
	c.result(2*v, "2 * ("+formula+")")
}

// ownNotice says whether the stack spends time of its own on telling and seeing that something came. The floors
// poll the data word, but for mini-proxy's baseline.
func (c *calc) ownNotice() bool {
	if c.q["backend"] == "minigda" || c.q["backend"] == "miniproxy" && c.q["handoff"] == "tuned" {
		return c.has("notice")
	}
	return true
}

// modelBreakEven is the payload from which on inlining it saves nothing.
func modelBreakEven(c *calc) {
	c.result(12+16*c.use("fetch", "size", "8")/c.use("issue_segment", "size", "12"), "12 + 16 * fetch / issue_segment")
}
