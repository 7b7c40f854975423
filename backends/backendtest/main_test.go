package backendtest

import (
	"fmt"
	"os"
	"testing"

	"gic/backends/plugin"
)

// The ranks of all trials are processes that tell the hashes of their libraries: as in a run, one reads them for all.
func TestMain(m *testing.M) { os.Exit(withHashes(m.Run)) }

func withHashes(run func() int) int {
	if os.Getenv(plugin.HashesEnv) != "" { // a rank's
		return run()
	}
	dir, err := os.MkdirTemp("", "gic-hashes-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	os.Setenv(plugin.HashesEnv, dir)
	return run()
}
