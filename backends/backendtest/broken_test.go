package backendtest

import (
	"os"
	"strings"
	"testing"

	"gic/backends"
	"gic/backends/fake"
	"gic/backends/plugin"
	"gic/workloads"
	"gic/workloads/conform"
	"gic/workloads/op"
)

// brokenEnv says which word of the page's backend is wrong.
const brokenEnv = "GIC_BACKENDTEST_BROKEN"

// The suite must see each word that does not do what the contract says: the page's backend with one of them broken.
func TestSuiteFindsBrokenWords(t *testing.T) {
	lib := os.Getenv(tinyEnv)
	target := Target{Name: "tiny", Device: "host", NIC: "none", Workloads: []workloads.Workload{conform.Workload{}}}
	target.Open = func() (backends.Backend, error) { return plugin.Load(lib) }
	serveIfRank(t, target)
	cases := []struct{ name, right, wrong, want string }{
		{"put too long", "memcpy(h.windows[peer] + dst, h.window + src, n);",
			`memcpy(h.windows[peer] + dst, h.window + src, broken("put too long") ? (n + 3) / 4 * 4 : n);`, "(belongs to nothing)"},
		{"group without its 29 bytes", "put(peer, m.dst, m.src, m.bytes);",
			`if (!broken("group without its 29 bytes") || m.bytes != 29) put(peer, m.dst, m.src, m.bytes);`,
			"conform case=each: verify: "},
		{"whole value", "memcpy(h.windows[peer] + dst, &value, n);",
			`memcpy(h.windows[peer] + dst, &value, broken("whole value") ? 8 : n);`, "conform case=value: verify: "},
		{"signal twice", "__atomic_fetch_add(word(peer, sig), add, __ATOMIC_RELEASE);",
			`__atomic_fetch_add(word(peer, sig), broken("signal twice") && add == 255 ? 510 : add, __ATOMIC_RELEASE);`, "(signals of agent 0 of rank"},
		{"notify whole words", "put(peer, dst, src, n);\n            gic::store_release",
			"put(peer, dst, src, broken(\"notify whole words\") ? n / 8 * 8 : n);\n            gic::store_release", "conform case=notify: verify: "},
		{"short get", "memcpy(h.window + dst, h.windows[peer] + src, n);",
			`memcpy(h.window + dst, h.windows[peer] + src, broken("short get") ? n - 1 : n);`, "(a get of 1 bytes from rank"},
		{"new value", "*old_p = __atomic_fetch_add(word(peer, off), add, __ATOMIC_RELAXED);",
			`*old_p = __atomic_fetch_add(word(peer, off), add, __ATOMIC_RELAXED) + (broken("new value") ? add : 0);`,
			"(times that the old value 0 was given out)"},
		{"no fence", "int fence(uint32_t) { return gic::OK; }",
			`int fence(uint32_t) { return broken("no fence") ? gic::ERR_NOTSUP : gic::OK; }`, "conform case=fence: run: device thread 0: operation not supported"},
	}
	replace := []string{"struct Handle {", "inline bool broken(const char *what) {\n    const char *is = getenv(\"" + brokenEnv +
		"\");\n    return is && strcmp(is, what) == 0;\n}\nstruct Handle {"}
	for _, c := range cases {
		replace = append(replace, c.right, c.wrong)
	}
	if lib == "" {
		lib = tiny(t, replace...)
		t.Setenv(tinyEnv, lib)
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(brokenEnv, c.name)
			if got := strings.Join(find(t, target, checkWorkloads), "\n"); !strings.Contains(got, c.want) {
				t.Errorf("found\n%s\nwant %q", got, c.want)
			}
		})
	}
	t.Run("nothing", func(t *testing.T) {
		if got := find(t, target, checkWorkloads); len(got) > 0 {
			t.Errorf("nothing is broken, and found was\n%s", strings.Join(got, "\n"))
		}
	})
}

// declares is a backend that says something else of itself than it does.
type declares struct {
	backends.Backend
	caps backends.Caps
}

func (d declares) Info() backends.Info {
	info := d.Backend.Info()
	info.Caps = d.caps
	return info
}

// What is declared must be tested, and what is not must be refused.
func TestSuiteFindsWrongDeclarations(t *testing.T) {
	all := fake.New().Info().Caps
	target := fakeTarget(nil)
	less := target
	less.Name = "fake without get"
	less.Open = func() (backends.Backend, error) { return declares{fake.New(works...), all &^ backends.CapGet}, nil }
	serveIfRank(t, target)
	serveIfRank(t, less)
	untested := target
	untested.Workloads = []workloads.Workload{op.Workload{}}
	for _, c := range []struct {
		target Target
		run    func(*trial)
		want   string
	}{
		{untested, checkWorkloads, "declared, but nothing here puts it to the test: put_value, fence, gpu_visible"},
		{less, checkUndeclared, "conform case=get: rank 0: <nil>, want ErrNotSupported: get is not declared"},
	} {
		if got := strings.Join(find(t, c.target, c.run), "\n"); !strings.Contains(got, c.want) {
			t.Errorf("found\n%s\nwant %q", got, c.want)
		}
	}
}
