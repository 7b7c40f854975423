package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gic/backends"
)

// Profile is a NIC model of softnic, by the name that softnic_profile_find knows.
type Profile struct{ Name, Doc string }

// Profiles are the models that --nic-profile takes.
var Profiles = []Profile{
	{"none", "no model: as fast as this machine goes"},
	{"cx7-200", "ConnectX-7 at 200 Gb/s: 260 M msg/s, 24.8 GB/s, CQE 3.30 us after the doorbell (paper, P-IB)"},
}

func profileNames() string {
	names := make([]string, len(Profiles))
	for i, p := range Profiles {
		names[i] = p.Name
	}
	return strings.Join(names, "|")
}

// NICKeys are the keys of --nic soft.
func NICKeys() []backends.Key {
	return []backends.Key{
		{Name: "engine", Default: "cpu", Allowed: "cpu|gpu", Help: "who processes the queues: host threads, or a small kernel"},
		{Name: "profile", Default: "none", Allowed: profileNames(), Help: "NIC model; none is as fast as it goes"},
		{Name: "threads", Default: "1", Allowed: "1..64", Help: "engine threads per rank"},
		{Name: "watch", Default: "auto", Allowed: "auto|bell|dbr", Help: "what the engine polls: doorbell word or doorbell record; auto: the word, of CUDA threads the record"},
		{Name: "doorbell", Default: "host", Allowed: "host|gpu", Help: "where the doorbell word lives"},
		{Name: "sms", Default: "1", Allowed: "1..8", Help: "multiprocessors of engine=gpu"},
		{Name: "writes", Default: "runs", Allowed: "runs|strict", Help: "order between small writes of a queue pair with engine=gpu; runs: up to 8 bytes each may land together"},
		{Name: "queues", Default: "auto", Allowed: "auto|host|gpu", Help: "where send and completion queues live; auto: GPU memory with engine=gpu, else host memory"},
		{Name: "window", Default: "auto", Allowed: "auto|host|gpu", Help: "where the payload's window lives; auto: as queues"},
		{Name: "trace", Default: "off", Allowed: "off|on", Help: "keep every doorbell, WQE and CQE"},
	}
}

// ParseNIC reads --nic: "none", "soft", "soft:engine=cpu,threads=2" or the name of an RDMA device, and applies
// --nic-profile. devices are the RDMA devices of this machine.
func ParseNIC(text, profile string, devices []string) (NIC, error) {
	name, _, _ := strings.Cut(text, ":")
	nic := NIC{Kind: name}
	if name != "soft" {
		switch {
		case text == "none":
		case slices.Contains(devices, text):
			nic = NIC{Kind: "mlx5", Device: text}
		case len(devices) == 0:
			return NIC{}, fmt.Errorf("--nic %s is not known; known: soft, none (this machine has no RDMA device)", text)
		default:
			return NIC{}, fmt.Errorf("--nic %s is not known; known: soft, none, %s", text, strings.Join(devices, ", "))
		}
		if profile != "" {
			return NIC{}, fmt.Errorf("--nic-profile %s shapes the software NIC; it cannot go with --nic %s", profile, text)
		}
		return nic, nil
	}
	spec, err := ParseSpec(text)
	if err != nil {
		return NIC{}, fmt.Errorf("--nic %w", err)
	}
	if profile != "" {
		for _, s := range spec.Settings {
			if s.Key == "profile" {
				return NIC{}, fmt.Errorf("--nic-profile %s and --nic %s both give a profile", profile, text)
			}
		}
		spec.Settings = append(spec.Settings, Setting{"profile", []string{profile}})
	}
	settings, err := resolve("--nic soft", NICKeys(), spec.Settings)
	if err != nil {
		return NIC{}, err
	}
	nic.Config = map[string]string{}
	for _, s := range settings {
		if len(s.Values) > 1 {
			return NIC{}, fmt.Errorf("--nic soft: %s has %d values; one run has one NIC", s.Key, len(s.Values))
		}
		nic.Config[s.Key] = s.Values[0]
	}
	return nic, nil
}

// String gives the NIC in the form of --nic, without the keys that have their defaults.
func (n NIC) String() string {
	switch {
	case n.Kind == "mlx5":
		return n.Device
	case n.Kind != "soft":
		return n.Kind
	}
	spec := Spec{Name: "soft"}
	for _, k := range NICKeys() {
		if v, ok := n.Config[k.Name]; ok && v != k.Default {
			spec.Settings = append(spec.Settings, Setting{k.Name, []string{v}})
		}
	}
	return spec.String()
}

// nicPrefix marks the keys of a backend spec that are the NIC's: minigda:nic.engine=gpu,batch=16.
const nicPrefix = "nic."

// nics takes the NIC's keys out of a backend's spec and gives the NICs that the backend is to run on: the request's,
// with the values that the spec gives in place of its own.
func (r *Request) nics(spec Spec) (Spec, []NIC, error) {
	rest := Spec{Name: spec.Name}
	var own []Setting
	for _, s := range spec.Settings {
		if key, ok := strings.CutPrefix(s.Key, nicPrefix); ok {
			own = append(own, Setting{key, s.Values})
		} else {
			rest.Settings = append(rest.Settings, s)
		}
	}
	if own == nil {
		return spec, []NIC{r.NIC}, nil
	}
	if r.NIC.Kind != "soft" {
		return spec, nil, fmt.Errorf("backend %s: %s%s is a key of --nic soft; it cannot go with --nic %s", spec.Name, nicPrefix, own[0].Key, r.NIC)
	}
	keys := NICKeys()
	for i := range keys {
		keys[i].Default = r.NIC.Config[keys[i].Name]
	}
	settings, err := resolve("backend "+spec.Name+", --nic soft", keys, own)
	if err != nil {
		return spec, nil, err
	}
	if combinations(settings) > maxPoints {
		return spec, nil, fmt.Errorf("backend %s has more than %d NICs; sweep fewer values", spec.Name, maxPoints)
	}
	var nics []NIC
	err = product(settings, func(config map[string]string) error {
		nics = append(nics, NIC{Kind: r.NIC.Kind, Config: config})
		return nil
	})
	return rest, nics, err
}

// Equal says whether two NICs are asked for alike.
func (n NIC) Equal(o NIC) bool {
	return n.Kind == o.Kind && n.Device == o.Device && maps.Equal(n.Config, o.Config)
}
