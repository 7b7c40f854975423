package oracle

import (
	"fmt"
	"maps"

	"gic/harness/record"
)

// ofWorkload are the metrics of workloads that the oracle has models of.
var ofWorkload = map[string][]string{
	"op": {"issue", "put_completion", "rtt"}, "rate": {"message_rate"}, "goodput": {"goodput"},
}

// QueryFor asks for what a record measured, under the conditions of the record: what was created counts for more
// than what was asked for. false: the oracle has no model of that metric of that workload.
func QueryFor(c *record.Case, metric string) (Query, bool) {
	for _, m := range ofWorkload[c.Workload] {
		if m == metric {
			return Query{Quantity: metric, Conditions: CaseConditions(c)}, true
		}
	}
	return Query{}, false
}

// CaseConditions are the conditions of a record.
func CaseConditions(c *record.Case) Conditions {
	q := Conditions{}
	maps.Copy(q, c.Axes)
	maps.Copy(q, c.Config)
	q["backend"] = c.Backend
	// Of the created resources those that mean the same as a key: the order that auto became, the place of the
	// queues, blocks of threads.
	for from, to := range map[string]string{"order": "order", "queue": "queue", "kernel.blocks": "sms"} {
		if v := c.Created[from]; v != "" {
			q[to] = v
		}
	}
	if c.Workload == "op" {
		q["threads"] = "1"
		for k, v := range floorDefaults[c.Backend] { // an imported row names what differs from the floor's default
			if q[k] == "" || q[k] == "auto" {
				q[k] = v
			}
		}
	}
	if q["scope"] == "all" && q["queues"] == "" && (c.Backend == "minigda" || c.Backend == "miniproxy") {
		q["queues"] = q["qps"] // of one peer
	}
	if q["sms"] == "" {
		q["sms"] = q["threads"]
	}
	if hz, ok := c.Host["gpu_sm_clock"].([]any); ok && len(hz) > 0 && q["clock"] == "" {
		q["clock"] = fmt.Sprint(hz[0])
	}
	if c.Workload != "op" && (c.Ranks != 2 || q["pattern"] == "all") {
		q["senders"] = fmt.Sprint(c.Facts["senders"])
	}
	delete(q, "pattern") // of a stream: who sends to whom, which the number of senders says
	return q
}
