package cli

import "gic/harness/plan"

// profiles lists the NIC models of softnic.
func profiles() []profileEntry {
	var list []profileEntry
	for _, p := range plan.Profiles {
		list = append(list, profileEntry{p.Name, p.Doc})
	}
	return list
}
