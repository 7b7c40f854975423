package cli

import (
	"os"
	"path/filepath"
	"slices"

	"gic/backends"
)

// builtin is a backend that gic knows by name.
type builtin struct {
	name, doc string
	// open gives a backend that is part of gic; nil for one in lib<name>.so.
	open func() backends.Backend
	// hidden backends join nothing unless asked for by name: they are for tests, or mean nothing by themselves.
	hidden bool
}

// builtins is the list to which a new backend is added. The order is that of tables.
var builtins = []builtin{
	{name: "minigda", doc: "floor: device threads build WQEs and ring the doorbell themselves"},
	{name: "miniproxy", doc: "floor: device threads hand descriptors to CPU workers that post"},
	{name: "rawstore", doc: "floor of nic=none: device threads store to the peer's memory themselves"},
	{name: "nvshmem", doc: "NVSHMEM: IBGDA, IBRC, NVLink"},
	{name: "ncclgin", doc: "NCCL GIN: GDAKI, Proxy, NVLink LSA"},
	{name: "deepep", doc: "DeepEP: dispatch and combine of mixture-of-experts"},
	{name: "replay", doc: "what another row asked of the NIC, from its traces, posted by the minimal path", hidden: true},
	{name: "fake", doc: "no stack at all: for tests of the harness", open: openFake, hidden: true},
}

// pluginPathEnv lists folders to search for lib<name>.so, before the folder of the gic executable. On a machine with a
// GPU each folder's cuda/ is searched before it.
const pluginPathEnv = "GIC_PLUGIN_PATH"

// found is where a backend's code is.
type found struct {
	builtin
	path string // of the plugin; empty for one that is part of gic
	// missing is set when the plugin's file is not there.
	missing string
}

// findBackends locates the built-in backends; files are the --backend-path ones, by the names they gave.
func findBackends(files map[string]string) []found {
	var list []found
	for _, b := range builtins {
		f := found{builtin: b}
		if path, ok := files[b.name]; ok {
			f.open, f.path = nil, path
		} else if b.open == nil {
			f.path, f.missing = findPlugin("lib" + b.name + ".so")
		}
		list = append(list, f)
	}
	var extra []string
	for name := range files {
		if !slices.ContainsFunc(list, func(f found) bool { return f.name == name }) {
			extra = append(extra, name)
		}
	}
	slices.Sort(extra)
	for _, name := range extra {
		list = append(list, found{builtin: builtin{name: name, doc: "from " + files[name]}, path: files[name]})
	}
	return list
}

// hasGPU says whether this machine has an NVIDIA driver. A variable for tests.
var hasGPU = func() bool {
	_, err := os.Stat("/dev/nvidiactl")
	return err == nil
}

// findPlugin gives the file's path, or why there is none. A folder's cuda/ holds the plugins whose device threads can be
// CUDA threads (`make cuda`); they come first where there is a GPU, and are not touched where there is none.
func findPlugin(file string) (path, missing string) {
	dirs := filepath.SplitList(os.Getenv(pluginPathEnv))
	if exe, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(exe); err == nil {
			exe = real
		}
		dirs = append(dirs, filepath.Dir(exe))
	}
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		places := []string{filepath.Join(dir, file)}
		if hasGPU() {
			places = slices.Insert(places, 0, filepath.Join(dir, "cuda", file))
		}
		for _, path := range places {
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				if abs, err := filepath.Abs(path); err == nil {
					path = abs
				}
				return path, ""
			}
		}
	}
	return "", file + " is neither beside gic nor in " + pluginPathEnv + " (`make` builds it)"
}
