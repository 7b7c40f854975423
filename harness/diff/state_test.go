package diff

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gic/harness/record"
)

// Another build of a backend's own plugin is what a gate compares: a note. Two builds on one side are a mix, and another
// backend's plugin is a library like any.
func TestOtherBuildOfThePlugin(t *testing.T) {
	build := func(name string, builds ...string) func(*record.Case) bool {
		return func(c *record.Case) bool {
			hash := builds[c.Index%len(builds)]
			c.Library = []record.Library{{Name: name, Version: "1", SHA256: strings.Repeat(hash, 64)}}
			return true
		}
	}
	for _, tc := range []struct {
		name     string
		old, new func(*record.Case) bool
		refused  bool
	}{
		{"other build", build("libminigda", "a"), build("libminigda", "b"), false},
		{"mixed builds", build("libminigda", "a"), build("libminigda", "a", "b"), true},
		{"no build told", build("libminigda", "a"), nil, true},
		{"other plugin", build("libminiproxy", "a"), build("libminiproxy", "b"), true},
	} {
		dir := t.TempDir()
		a, b := newSynth("one", 1), newSynth("two", 2)
		a.change, b.change = tc.old, tc.new
		one, two := a.write(t, filepath.Join(dir, "a")), b.write(t, filepath.Join(dir, "b"))
		r, err := Compare(load(t, "OLD", one), load(t, "NEW", two), Options{Alpha: 0.05})
		if (err != nil) != tc.refused {
			t.Errorf("%s: %v", tc.name, err)
		}
		if tc.refused {
			continue
		}
		const told = "library.libminigda is 1 sha256:aaaaaaaaaaaa in OLD and 1 sha256:bbbbbbbbbbbb in NEW"
		if !slices.ContainsFunc(r.Notes, func(n Note) bool { return n.Code == "unlike" && strings.Contains(n.Text, told) }) {
			t.Errorf("%s: notes %v", tc.name, r.Notes)
		}
	}
}

// Across backends each side has its own plugin.
func TestPluginsOfOtherBackends(t *testing.T) {
	dir := t.TempDir()
	a := newSynth("one", 1)
	a.change = func(c *record.Case) bool {
		c.Library = []record.Library{{Name: "libminigda", SHA256: strings.Repeat("a", 64)}}
		return true
	}
	b := newSynth("two", 2)
	b.change = func(c *record.Case) bool {
		c.Backend = "miniproxy"
		c.Library = []record.Library{{Name: "libminiproxy", SHA256: strings.Repeat("b", 64)}}
		return true
	}
	one, two := a.write(t, filepath.Join(dir, "a")), b.write(t, filepath.Join(dir, "b"))
	o := Options{Alpha: 0.05, Across: []Across{{Key: "backend", Old: "minigda", New: "miniproxy", Values: true}}}
	if r, err := Compare(load(t, "OLD", one), load(t, "NEW", two), o); err != nil || r.Paired != 3 {
		t.Errorf("%v, want 3 pairs", err)
	}
}

// States that change results by themselves are refused, with the key and both values, unless allowed.
func TestUnlikeStates(t *testing.T) {
	gpu := func(name, driver string) func(*record.Header) {
		return func(h *record.Header) { h.Host.GPU = []any{map[string]any{"name": name, "driver": driver}} }
	}
	library := func(version string) func(*record.Case) bool {
		return func(c *record.Case) bool {
			c.Library = []record.Library{{Name: "nccl", Version: version, SHA256: strings.Repeat(version[:1], 64)}}
			return true
		}
	}
	for _, tc := range []struct {
		key              string
		oldH, newH       func(*record.Header)
		oldC, newC       func(*record.Case) bool
		oldText, newText string
	}{
		{key: "host.name", newH: func(h *record.Header) { h.Host.Hostname = "node2" }, oldText: "node1", newText: "node2"},
		{key: "host.cpu", newH: func(h *record.Header) { h.Host.CPU["model"] = "Other CPU" }, oldText: "Test CPU", newText: "Other CPU"},
		{key: "host.cpus", newH: func(h *record.Header) { h.Host.CPU["cpus"] = 4 }, oldText: "8", newText: "4"},
		{key: "host.gpu", oldH: gpu("H100", "1"), newH: gpu("H200", "1"), oldText: "H100", newText: "H200"},
		{key: "host.driver", oldH: gpu("H100", "550.1"), newH: gpu("H100", "560.2"), oldText: "550.1", newText: "560.2"},
		{key: "library.nccl", oldC: library("2.27"), newC: library("3.0"), oldText: "2.27 sha256:222222222222", newText: "3.0 sha256:333333333333"},
		{key: "seed", newC: func(c *record.Case) bool { c.Seed = 7; return true }, oldText: "1", newText: "7"},
		{key: "nic", newC: func(c *record.Case) bool { c.NIC = "mlx5"; return true }, oldText: "soft", newText: "mlx5"},
		{key: "nic.profile", newC: func(c *record.Case) bool { c.NICConfig["profile"] = "cx7-200"; return true }, oldText: "none", newText: "cx7-200"},
		{key: "device", newC: func(c *record.Case) bool { c.Device = "cuda"; return true }, oldText: "host", newText: "cuda"},
	} {
		t.Run(tc.key, func(t *testing.T) {
			dir := t.TempDir()
			a, b := newSynth("one", 1), newSynth("two", 2)
			a.header, b.header, a.change, b.change = tc.oldH, tc.newH, tc.oldC, tc.newC
			one, two := a.write(t, filepath.Join(dir, "a")), b.write(t, filepath.Join(dir, "b"))
			diffWith := func(o Options) (*Result, error) {
				o.Alpha = 0.05
				return Compare(load(t, "OLD", one), load(t, "NEW", two), o)
			}
			_, err := diffWith(Options{})
			var unlike *UnlikeError
			if !errors.As(err, &unlike) || len(unlike.Keys) != 1 {
				t.Fatalf("got %v, want one unlike key", err)
			}
			want := fmt.Sprintf("unlike states: %s is %s in OLD and %s in NEW", tc.key, tc.oldText, tc.newText)
			if line := unlike.Lines()[0]; !strings.HasPrefix(line, want) || !strings.HasSuffix(line, "--allow "+tc.key+" compares all the same") {
				t.Errorf("got  %s\nwant %s ...", line, want)
			}
			group, _, _ := strings.Cut(tc.key, ".")
			for _, o := range []Options{{Allow: []string{tc.key}}, {Allow: []string{group}}, {AllowAll: true}, {Across: []Across{{Key: tc.key}}}} {
				r, err := diffWith(o)
				if err != nil || r.Paired != 3 {
					t.Errorf("%+v: %v, want 3 pairs", o, err)
				}
			}
		})
	}
}
