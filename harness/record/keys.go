package record

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
)

// KeyValue is one key of a case and its value.
type KeyValue struct {
	Key, Value string
}

// Flatten gives the keys of a case in a fixed order, under the names that filters, csv columns and diffs use:
//
//	workload, workload.<axis>..., backend, backend.<key>..., nic, nic.<key>..., device, ranks, seed, index
//
// Keys of one group are sorted. What was found on the machine (libraries, clocks, what was created) is no key.
func Flatten(c *Case) []KeyValue {
	kv := identity(c)
	return append(kv, KeyValue{"seed", strconv.FormatUint(c.Seed, 10)}, KeyValue{"index", strconv.Itoa(c.Index)})
}

// identity are the keys that make a case what it is, whichever process run measured it.
func identity(c *Case) []KeyValue {
	kv := make([]KeyValue, 0, 8+len(c.Axes)+len(c.Config)+len(c.NICConfig))
	group := func(name, value string, keys map[string]string) {
		kv = append(kv, KeyValue{name, value})
		start := len(kv)
		for k, v := range keys {
			kv = append(kv, KeyValue{name + "." + k, v})
		}
		slices.SortFunc(kv[start:], func(a, b KeyValue) int { return strings.Compare(a.Key, b.Key) })
	}
	group("workload", c.Workload, c.Axes)
	group("backend", c.Backend, c.Config)
	group("nic", c.NIC, c.NICConfig)
	return append(kv, KeyValue{"device", c.Device}, KeyValue{"ranks", strconv.Itoa(c.Ranks)})
}

// CaseID is the stable name of a case: a hash of its keys without seed and index, 16 hex digits. Any key that
// differs gives another ID; the order in which keys were given does not matter.
func CaseID(c *Case) string { return hash(identity(c)) }

// Identity is what CaseID is made of, the keys of Flatten without seed and index, and that ID.
func Identity(c *Case) ([]KeyValue, string) {
	kv := identity(c)
	return kv, hash(kv)
}

// Complete adds keys that a case lacks to those of Identity, each at its place, and gives the ID that it has with them.
func Complete(keys, more []KeyValue) ([]KeyValue, string) {
	keys = slices.Clone(keys)
	for _, kv := range more {
		group, _, _ := strings.Cut(kv.Key, ".")
		at := slices.IndexFunc(keys, func(k KeyValue) bool { return k.Key == group }) + 1
		for at < len(keys) && strings.HasPrefix(keys[at].Key, group+".") && keys[at].Key < kv.Key {
			at++
		}
		keys = slices.Insert(keys, at, kv)
	}
	return keys, hash(keys)
}

func hash(keys []KeyValue) string {
	text := make([]byte, 0, 1024)
	for _, kv := range keys {
		// Lengths in front, so that no value can pose as the next key.
		for _, s := range [...]string{kv.Key, kv.Value} {
			text = append(append(strconv.AppendInt(text, int64(len(s)), 10), ':'), s...)
		}
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
