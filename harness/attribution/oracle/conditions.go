package oracle

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
)

// Conditions say under what a quantity is asked for: keys and values as in records (size, batch, qps, threads,
// order, inline, sharing, scope, handoff, workers, ...) and those that only a paper varies (stack, path, state,
// clock, role, connections, reuse, queues, sms).
type Conditions map[string]string

// defaults are what is meant when a condition is not given. The values of a floor are those of its backend.
var defaults = Conditions{"size": "8", "batch": "1", "qps": "1", "threads": "1", "stack": "minigda"}

var stackDefaults = map[string]Conditions{
	"minigda":   {"order": "gpu-fence", "sharing": "exclusive", "doorbell": "gpu"},
	"miniproxy": {"handoff": "tuned", "workers": "1", "state": "cold"},
}

// inlineLimit is the backends' default: the largest payload that inline=auto puts into the WQE.
const inlineLimit = 28

func (q Conditions) withDefaults(p *Platform) Conditions {
	out := maps.Clone(defaults)
	maps.Copy(out, q)
	for k, v := range stackDefaults[out["stack"]] {
		if out[k] == "" || out[k] == "auto" {
			out[k] = v
		}
	}
	if out["inline"] == "" || out["inline"] == "auto" {
		out["inline"] = "on"
		limit := float64(inlineLimit)
		if v, err := out.Number("inline_limit"); err == nil {
			limit = v
		}
		if size, err := out.Number("size"); err == nil && size > limit {
			out["inline"] = "off"
		}
	}
	if out["sms"] == "" {
		out["sms"] = out["threads"] // a block per thread, as the floors launch
	}
	for k, v := range p.Conditions {
		if out[k] == "" {
			out[k] = v
		}
	}
	return out
}

// with replaces conditions: key, value, key, value...
func (q Conditions) with(pairs ...string) Conditions {
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
