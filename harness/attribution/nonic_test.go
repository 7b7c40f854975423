package attribution

import (
	"testing"

	"gic/harness/record"
	"gic/workloads"
)

// Without a NIC the raw stores are the floor: NVSHMEM's P2P, NCCL's LSA and DeepEP over NVLink are measured against them,
// each library's own choices found among the floor's rows; over a NIC they are not, and a double of DeepEP nowhere.
func TestRowsWithoutANICStandOnRawStores(t *testing.T) {
	run := newRun()
	run.Header.Defaults = map[string]map[string]string{"rawstore": {"order": "release", "scope": "thread", "copy": "auto", "bulk_from": "2048", "wait": "acquire"}}
	row := func(backend, nic string, config, created map[string]string, size string, us float64) {
		m, err := record.FromSamples("issue", "s", workloads.Time, []float64{us * 1e-6})
		if err != nil {
			t.Fatal(err)
		}
		m.Headline = true
		c := &record.Case{Type: "case", Workload: "op", Axes: map[string]string{"op": "put_signal", "size": size}, Backend: backend, Config: config,
			Created: created, NIC: nic, Device: "cuda", Ranks: 2, Status: record.OK, Metrics: []record.Metric{m}}
		c.ID = record.CaseID(c)
		run.Add(c)
	}
	for _, size := range []string{"8", "65536"} {
		row("rawstore", "none", map[string]string{}, nil, size, 1)
		row("rawstore", "none", map[string]string{"order": "fence"}, nil, size, 1.25)
		row("rawstore", "none", map[string]string{"order": "fence", "copy": "store"}, nil, size, 3.25)
		row("ncclgin", "none", map[string]string{"path": "auto"}, map[string]string{"path": "lsa"}, size, 4)
		row("nvshmem", "none", map[string]string{"path": "auto", "signals": "fenced"}, map[string]string{"path": "p2p"}, size, 5)
		row("deepep", "none", map[string]string{"library": "installed"}, map[string]string{"path": "nvlink"}, size, 6)
		row("deepep", "none", map[string]string{"library": "double"}, map[string]string{"path": "nvlink"}, size, 7)
		row("nvshmem", "soft", map[string]string{"path": "auto"}, map[string]string{"path": "ibgda"}, size, 8)
		row("deepep", "soft", map[string]string{"library": "installed"}, map[string]string{"path": "softnic"}, size, 9)
	}
	libraries, err := Libraries()
	if err != nil {
		t.Fatal(err)
	}
	gaps, unsplit := run.Gaps(libraries, nil, nil)
	got := map[string]int{}
	for _, g := range gaps {
		got[g.Library.Name+" on "+g.Floor.Backend()]++
		if g.Library.Name != "ncclgin-lsa" {
			continue
		}
		s, err := Ladder{}.Split(g)
		if err != nil {
			t.Fatal(err)
		}
		parts := map[Name]float64{}
		for _, p := range s.Parts {
			parts[p.Terms[0]] += p.Value.Seconds() * 1e6
		}
		// 8 bytes are stored either way: the row that was told so is the same row, and there is nothing to move.
		size, moved := g.Row.First().Axes["size"], 0.0
		if size == "65536" {
			moved = 2
		}
		if parts[Ordering] != 0.25 || parts[PayloadMovement] != moved {
			t.Errorf("size %s: ordering %g, payload movement %g; want 0.25 and %g", size, parts[Ordering], parts[PayloadMovement], moved)
		}
	}
	for _, want := range []string{"ncclgin-lsa on rawstore", "nvshmem-p2p on rawstore", "deepep-nvlink on rawstore"} {
		if got[want] != 2 {
			t.Errorf("%d gaps of %s, want 2; all: %v", got[want], want, got)
		}
	}
	if len(gaps) != 6 {
		t.Errorf("%d gaps, want 6: %v", len(gaps), got)
	}
	for _, u := range unsplit {
		if u.Row.First().NIC != "soft" {
			t.Errorf("%s is not split: %s", u.Row.Label(), u.Why)
		}
	}
}

// What copy=auto came to is a matter of who copies, what and where, as in the backend.
func TestCopyOfRawStores(t *testing.T) {
	defaults := map[string]map[string]string{"rawstore": {"scope": "thread", "copy": "auto", "bulk_from": "2048"}}
	for _, c := range []struct {
		device, scope, copy, size, want string
	}{
		{"cuda", "", "auto", "2048", "bulk"},
		{"cuda", "", "auto", "2047", "store"},
		{"cuda", "warp", "auto", "65536", "store"},
		{"cuda", "block", "", "65536", "store"},
		{"cuda", "block", "bulk", "65536", "bulk"},
		{"host", "thread", "auto", "65536", "store"},
	} {
		run := newRun()
		run.Header.Defaults = defaults
		config := map[string]string{}
		if c.scope != "" {
			config["scope"] = c.scope
		}
		if c.copy != "" {
			config["copy"] = c.copy
		}
		row := &record.Case{Type: "case", Workload: "op", Axes: map[string]string{"op": "put", "size": c.size}, Backend: "rawstore",
			Config: config, NIC: "none", Device: c.device, Ranks: 2, Status: record.OK}
		row.ID = record.CaseID(row)
		run.Add(row)
		if got := run.Rows[0].Config("copy"); got != c.want {
			t.Errorf("%+v: copy is %s", c, got)
		}
	}
}
