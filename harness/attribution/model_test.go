package attribution

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"gic/backends"
	"gic/harness/record"
	"gic/workloads"
)

// The machine of the tests: virtual times of a poster of work requests from its configuration, in nanoseconds, with
// costs that the methods must find. What a plant adds is known to the test alone.
const (
	wqeCost     = 190.0
	bellCost    = 370.0
	pollCost    = 540.0 // per queue that a quiet looks at
	nicCost     = 3300.0
	plantDelay  = 800.0 // plant=delay: library code per post
	hiddenFence = 150.0 // of a fence, behind a lock
)

var (
	orderCost = map[string]float64{"gpu-fence": 0, "gpu-release": 10, "threadfence": 520, "sys-release": 1670, "sys-fence": 1920}
	shareCost = map[string]float64{"exclusive": 0, "lock": 240, "handoff": 400, "warp": 150}
)

// modelDefaults are the defaults of the machine's floor.
func modelDefaults() map[string]string {
	return map[string]string{"order": "gpu-fence", "sharing": "exclusive", "scope": "qp", "qps": "1", "batch": "1", "plant": "none"}
}

// bells is how many doorbells a message is given.
func bells(config map[string]string) float64 {
	b, _ := strconv.ParseFloat(config["batch"], 64)
	n := 1 / b
	if config["plant"] == "doorbell" {
		n *= 2
	}
	return n
}

// virtual are the times of a configuration, by metric.
func virtual(config map[string]string, ranks int) map[string]float64 {
	qps, _ := strconv.ParseFloat(config["qps"], 64)
	post := wqeCost + bells(config)*(bellCost+orderCost[config["order"]]) + shareCost[config["sharing"]]
	if config["sharing"] == "lock" && config["order"] == "threadfence" {
		post -= hiddenFence
	}
	if config["plant"] == "delay" {
		post += plantDelay
	}
	polls := 1.0
	if config["scope"] == "all" {
		polls = qps * float64(ranks-1)
	}
	completion := post + nicCost + polls*pollCost
	return map[string]float64{"issue": post, "put_completion": completion, "rtt": 2 * (post + nicCost), "message": post}
}

// synthetic makes the records of one configuration at one point over process runs, each off by noise.
func synthetic(t testing.TB, backend, workload string, axes, config map[string]string, runs int, noise float64) []*record.Case {
	t.Helper()
	full := modelDefaults()
	for k, v := range config {
		full[k] = v
	}
	h := fnv.New64a()
	fmt.Fprint(h, backend, workload, axes, full)
	rng := rand.New(rand.NewPCG(h.Sum64(), 1))
	metrics := []string{"issue", "put_completion", "rtt"}
	if workload == "rate" {
		metrics = []string{"message_rate"}
	}
	const messages = 4800
	var out []*record.Case
	for index := range runs {
		c := &record.Case{
			Type: "case", Index: index, Workload: workload, Axes: axes, Backend: backend, Config: full, NIC: "soft", Device: "host", Ranks: 2, Seed: 1,
			Status: record.OK, Messages: messages, Counters: []backends.Counter{
				{Name: "wqes", Unit: "1", Value: messages, Exact: true},
				{Name: "doorbells", Unit: "1", Value: uint64(math.Round(messages * bells(full))), Exact: true},
			},
			Host: map[string]any{"cpu_frequency_max": 2e9},
		}
		times := virtual(full, 2)
		for _, name := range metrics {
			off := 1 + noise*rng.NormFloat64()
			class, unit, v := workloads.Time, "s", times[name]*1e-9*off
			if name == "message_rate" {
				class, unit, v = workloads.Rate, "msg/s", 1e9/(times["message"]*off)
			}
			m, err := record.FromSamples(name, unit, class, []float64{v})
			if err != nil {
				t.Fatal(err)
			}
			m.Headline = true
			c.Metrics = append(c.Metrics, m)
		}
		c.ID = record.CaseID(c)
		out = append(out, c)
	}
	return out
}

// newRun makes a run of records.
func newRun(groups ...[]*record.Case) *Run {
	run := &Run{File: "synthetic", Header: &record.Header{
		Type: "run", Schema: record.Schema, ID: "synthetic", Time: time.Unix(0, 0), Host: record.Machine{Hostname: "machine"},
		Defaults: map[string]map[string]string{"minigda": modelDefaults()},
	}}
	for _, g := range groups {
		for _, c := range g {
			run.Add(c)
		}
	}
	return run
}

// floorRows are the floor rows that all three methods need: every combination of the choices, the doorbell batch of one
// thread, a wide quiet over queues.
func floorRows(t testing.TB, runs int, noise float64) [][]*record.Case {
	op, one := map[string]string{"op": "put", "size": "8"}, map[string]string{"size": "8", "threads": "1"}
	var out [][]*record.Case
	for order := range orderCost {
		for sharing := range shareCost {
			for _, scope := range []string{"qp", "all"} {
				for _, qps := range []string{"1", "4", "16"} {
					if qps == "1" && scope == "all" || qps != "1" && sharing == "warp" {
						continue
					}
					out = append(out, synthetic(t, "minigda", "op", op, map[string]string{"order": order, "sharing": sharing, "scope": scope, "qps": qps}, runs, noise))
				}
			}
		}
	}
	out = append(out, synthetic(t, "minigda", "op", op, map[string]string{"scope": "all"}, runs, noise))
	for _, batch := range []string{"1", "4", "16"} {
		out = append(out, synthetic(t, "minigda", "rate", one, map[string]string{"batch": batch}, runs, noise))
	}
	return out
}
