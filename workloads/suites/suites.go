// Package suites holds the suites that are part of gic. quick.yaml explains the format.
package suites

import (
	"embed"
)

//go:embed *.yaml
var files embed.FS

// Names lists the suites, the default first.
func Names() []string {
	return []string{"quick", "paper", "paper-gpu", "nvshmem", "ncclgin", "nvlink", "nvlink-softnic", "moe"}
}

// Read gives the YAML of a suite.
func Read(name string) ([]byte, error) { return files.ReadFile(name + ".yaml") }
