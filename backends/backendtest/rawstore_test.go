package backendtest

import (
	"testing"

	"gic/backends"
	"gic/backends/plugin"
)

// The floor of nic=none: on this machine through shared memory, with GIC_TEST_DEVICE=cuda:N in GPU memory.
func TestRawstore(t *testing.T) {
	path := Built(t, "librawstore.so")
	TestBackend(t, Target{Name: "rawstore", Open: func() (backends.Backend, error) { return plugin.Load(path) },
		Device: device(), NIC: "none", Workloads: works})
}
