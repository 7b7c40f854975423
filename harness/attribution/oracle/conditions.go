package oracle

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Conditions say under what a quantity is asked for: keys and values as in records (size, batch, qps, threads,
// order, inline, sharing, scope, handoff, workers, ...) and those of the rows of results/paper (path, api, cpu,
// role, active, burst, sms), queues (all that a completion polls), clock (of the SMs, Hz) and processor.
type Conditions map[string]string

// inlineLimit is the floors' default: the largest payload that inline=auto puts into the WQE.
const inlineLimit = 28

// complete adds what follows from the other conditions or holds on the whole platform. Nothing that changes an
// answer is assumed: what is not stated stays so.
func (q Conditions) complete(p *Platform, quantity string) Conditions {
	out := Conditions{}
	maps.Copy(out, q)
	if quantity == "issue" || quantity == "put_completion" || quantity == "rtt" {
		// One operation at a time: one WQE per doorbell, and one worker has it.
		if out["batch"] == "" {
			out["batch"] = "1"
		}
		if out["workers"] == "" && out["backend"] == "miniproxy" {
			out["workers"] = "1"
		}
	}
	if out["order"] == "auto" {
		out["order"] = "gpu-fence" // what auto is on a NIC
	}
	if out["inline"] == "" || out["inline"] == "auto" {
		limit := float64(inlineLimit)
		if v, err := out.Number("inline_limit"); err == nil {
			limit = v
		}
		if size, err := out.Number("size"); err == nil {
			out["inline"] = "on"
			if size > limit {
				out["inline"] = "off"
			}
		}
	}
	for k, v := range p.Conditions {
		if out[k] == "" {
			out[k] = v
		}
	}
	return out
}

// floorDefaults are the values that a floor's backend has for what is not given. Two are the published floors' rather than
// gic's own: queues in GPU memory need no wider order than gpu-fence, and the tuned hand-over is a single posted store
// (gic's default, payload=ordered, puts a system-scope fence before it: ten times the time).
var floorDefaults = map[string]Conditions{
	"minigda":   {"order": "gpu-fence", "sharing": "exclusive", "batch": "1", "qps": "1"},
	"miniproxy": {"handoff": "tuned", "payload": "posted", "workers": "1", "batch": "16"},
}

// WithDefaults fills in what gic run would do where nothing is said: the floors' configuration, one thread, a
// block per thread, 8 bytes, and a proxy that was idle.
func (q Conditions) WithDefaults() Conditions {
	out := Conditions{"backend": "minigda", "size": "8", "threads": "1"}
	maps.Copy(out, q)
	for k, v := range floorDefaults[out["backend"]] {
		if out[k] == "" || out[k] == "auto" {
			out[k] = v
		}
	}
	if out["sms"] == "" {
		out["sms"] = out["threads"]
	}
	if out["backend"] == "miniproxy" && out["cpu"] == "" {
		out["cpu"] = "cold"
	}
	return out
}

// With replaces conditions: key, value, key, value...
func (q Conditions) With(pairs ...string) Conditions {
	if len(pairs) == 0 {
		return q
	}
	out := maps.Clone(q)
	for i := 0; i+1 < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

// Number is a numeric condition; sizes may carry the binary suffixes K, M and G.
func (q Conditions) Number(key string) (float64, error) {
	s, ok := q[key]
	if !ok || s == "" {
		return 0, fmt.Errorf("%s is not stated", key)
	}
	v, ok := parseNumber(s)
	if !ok {
		return 0, fmt.Errorf("%s=%s is not a number", key, s)
	}
	return v, nil
}

func parseNumber(s string) (float64, bool) {
	mult := 1.0
	if n := len(s); n > 1 {
		if i := strings.IndexByte("KMG", s[n-1]); i >= 0 {
			s, mult = s[:n-1], float64(uint64(1)<<(10*(i+1)))
		}
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || v-v != 0 { // infinities and NaN
		return 0, false
	}
	return v * mult, true
}

// within says whether a condition's value is in a validity: a..b, or v|v|v.
func within(value, valid string) bool {
	for alternative := range strings.SplitSeq(valid, "|") {
		low, high, isRange := strings.Cut(alternative, "..")
		if !isRange {
			a, ok1 := parseNumber(alternative)
			b, ok2 := parseNumber(value)
			if alternative == value || ok1 && ok2 && a == b {
				return true
			}
			continue
		}
		l, ok1 := parseNumber(low)
		h, ok2 := parseNumber(high)
		v, ok3 := parseNumber(value)
		if ok1 && ok2 && ok3 && v >= l && v <= h {
			return true
		}
	}
	return false
}

// conditionKeys are the keys that a model, a selector or a validity looks at.
var conditionKeys = []string{
	"active", "api", "backend", "batch", "burst", "clock", "counter", "cpu", "handoff", "inline", "inline_limit", "lock", "op", "order", "path", "pattern", "payload",
	"processor", "qps", "queue", "queues", "ring_mode", "rings", "role", "scope", "senders", "sharing", "size", "sms", "threads", "transport", "workers",
}

// withoutEffect are axes and keys of a run that change how something is measured, not what is expected.
var withoutEffect = []string{
	"depth", "iterations", "messages", "posts", "ring_depth", "rounds", "signal_every", "timer_check", "warmup",
}

// Keys lists the conditions that a prediction can depend on.
func Keys() []string { return slices.Clone(conditionKeys) }

// CheckKey says what is wrong with a condition's key, nil if nothing is.
func CheckKey(key string) error {
	if slices.Contains(conditionKeys, key) || slices.Contains(withoutEffect, key) {
		return nil
	}
	return fmt.Errorf("condition %q is not known; known: %s", key, strings.Join(conditionKeys, ", "))
}
