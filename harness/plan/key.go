package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gic/backends"
)

// ValueError is a key whose value is not allowed, or that does not exist.
type ValueError struct {
	Of      string // "workload op", "backend minigda", "--nic soft"
	Key     string
	Value   string // empty when the key itself is unknown
	Allowed string
}

func (e *ValueError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s has no key %q; it has: %s", e.Of, e.Key, e.Allowed)
	}
	return fmt.Sprintf("%s: %s=%s is not allowed; allowed: %s", e.Of, e.Key, e.Value, e.Allowed)
}

// Check holds a value against Key.Allowed and returns it in its one spelling: integers of a range in plain
// decimal, so that 64K and 65536 are the same case.
func Check(of string, key backends.Key, value string) (string, error) {
	bad := &ValueError{of, key.Name, value, key.Allowed}
	if key.Allowed == "" {
		return value, nil
	}
	words := strings.Split(key.Allowed, "|")
	if lo, hi, ok := intRange(words[0]); ok { // words may come behind a range
		v, err := ParseInt(value)
		if err == nil && v >= lo && v <= hi {
			return strconv.FormatInt(v, 10), nil
		}
		words = words[1:]
	}
	if !slices.Contains(words, value) {
		return "", bad
	}
	return value, nil
}

// intRange reads "1..256"; bounds may carry suffixes.
func intRange(allowed string) (lo, hi int64, ok bool) {
	a, b, ok := strings.Cut(allowed, "..")
	if !ok {
		return 0, 0, false
	}
	lo, err1 := ParseInt(a)
	hi, err2 := ParseInt(b)
	return lo, hi, err1 == nil && err2 == nil
}

// Defaults are the keys as they are in a case when nobody sets them. A default is written for people ("64K"); the
// case carries the one spelling. It may lie outside what a user may ask for ("" meaning none).
func Defaults(keys []backends.Key) map[string]string {
	m := make(map[string]string, len(keys))
	for _, k := range keys {
		m[k.Name] = k.Default
		if v, err := Check("", k, k.Default); err == nil {
			m[k.Name] = v
		}
	}
	return m
}

// resolve checks settings against the keys of what they are for and gives every key its values, defaults filled
// in, in the order of keys. A nil keys list (a backend that cannot be described here) takes the settings as
// they are.
func resolve(of string, keys []backends.Key, settings []Setting) ([]Setting, error) {
	if keys == nil {
		return settings, nil
	}
	defaults := Defaults(keys)
	out := make([]Setting, 0, len(keys))
	for _, k := range keys {
		out = append(out, Setting{k.Name, []string{defaults[k.Name]}})
	}
	for _, s := range settings {
		i := slices.IndexFunc(keys, func(k backends.Key) bool { return k.Name == s.Key })
		if i < 0 {
			return nil, unknownKey(of, keys, s.Key)
		}
		var values []string
		for _, v := range s.Values {
			v, err := Check(of, keys[i], v)
			if err != nil {
				return nil, err
			}
			if !slices.Contains(values, v) {
				values = append(values, v)
			}
		}
		out[i].Values = values
	}
	return out, nil
}

func unknownKey(of string, keys []backends.Key, name string) error {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.Name
	}
	return &ValueError{Of: of, Key: name, Allowed: strings.Join(names, ", ")}
}

// product calls f with every combination of the settings' values, the last setting varying fastest.
func product(settings []Setting, f func(map[string]string) error) error {
	at := make([]int, len(settings))
	for {
		m := make(map[string]string, len(settings))
		for i, s := range settings {
			m[s.Key] = s.Values[at[i]]
		}
		if err := f(m); err != nil {
			return err
		}
		i := len(settings) - 1
		for ; i >= 0; i-- {
			if at[i]++; at[i] < len(settings[i].Values) {
				break
			}
			at[i] = 0
		}
		if i < 0 {
			return nil
		}
	}
}

// combinations counts what product will call f with, up to a bound that is more than any plan may have.
func combinations(settings []Setting) int {
	n := 1
	for _, s := range settings {
		if n *= len(s.Values); n > maxPoints {
			return maxPoints + 1
		}
	}
	return n
}
