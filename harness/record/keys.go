package record

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"slices"
	"strconv"
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
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			kv = append(kv, KeyValue{name + "." + k, keys[k]})
		}
	}
	group("workload", c.Workload, c.Axes)
	group("backend", c.Backend, c.Config)
	group("nic", c.NIC, c.NICConfig)
	return append(kv, KeyValue{"device", c.Device}, KeyValue{"ranks", strconv.Itoa(c.Ranks)})
}

// CaseID is the stable name of a case: a hash of its keys without seed and index, 16 hex digits. Any key that
// differs gives another ID; the order in which keys were given does not matter.
func CaseID(c *Case) string {
	h := sha256.New()
	for _, kv := range identity(c) {
		// Lengths in front, so that no value can pose as the next key.
		io.WriteString(h, strconv.Itoa(len(kv.Key))+":"+kv.Key+strconv.Itoa(len(kv.Value))+":"+kv.Value)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
