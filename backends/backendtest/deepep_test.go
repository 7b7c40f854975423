package backendtest

import (
	"testing"

	"gic/backends"
	"gic/backends/plugin"
)

// DeepEP takes part with whole operations, which harness/cli puts to the test; this is all that every backend has. Its test
// double needs no GPU.
func TestDeepEP(t *testing.T) {
	path := Built(t, "libdeepep.so")
	TestBackend(t, Target{Name: "deepep", Open: func() (backends.Backend, error) { return plugin.Load(path) },
		Device: "host", NIC: "none", Config: map[string]string{"library": "double"}, NoSpin: true})
}
