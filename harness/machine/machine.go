// Package machine reads what a run ran on: processors and their clocks, GPUs, RDMA devices and how they hang
// together. Package run puts the result into every record; gic doctor turns it into advice.
//
// Nothing here fails: what cannot be read is named in Machine.Absent with the reason. Values are in base units
// (B, Hz, B/s, W); names carry no unit suffix.
package machine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"gic/harness/record"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Reader reads one machine. The zero value reads this one; tests give it a fixture tree and a fake driver.
type Reader struct {
	// Root stands before /proc, /sys, /etc and /dev.
	Root string
	// NVML is the GPU driver's management library.
	NVML nvml.Interface
	// Command runs an optional tool and returns its output; nil runs the real one.
	Command func(ctx context.Context, name string, args ...string) ([]byte, error)
	// LookPath finds a program and Getenv an environment variable; nil asks this process' own.
	LookPath func(name string) (string, error)
	Getenv   func(name string) string
}

// Read reads this machine.
func Read(ctx context.Context) record.Machine { return Reader{}.Read(ctx) }

// Read reads the machine.
func (r Reader) Read(ctx context.Context) record.Machine {
	var n notes
	m := record.Machine{
		Hostname: r.text("/proc/sys/kernel/hostname"),
		Kernel:   r.text("/proc/sys/kernel/osrelease"),
		OS:       r.osName(),
		CPU:      r.cpu(&n),
	}
	gpus := r.gpus(&n)
	for _, g := range gpus {
		m.GPU = append(m.GPU, g)
	}
	for _, p := range r.rdma(ctx, gpus, &n) {
		m.RDMA = append(m.RDMA, p)
	}
	m.Absent = n.list
	return m
}

// notes collects what could not be read.
type notes struct{ list []string }

func (n *notes) add(format string, args ...any) {
	n.list = append(n.list, fmt.Sprintf(format, args...))
}

func (r Reader) path(p string) string { return filepath.Join("/", r.Root, p) }

// text is a file's content without surrounding blanks, "" when it cannot be read.
func (r Reader) text(p string) string {
	b, err := os.ReadFile(r.path(p))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.TrimRight(string(b), "\x00"))
}

// number is a file's content as an integer.
func (r Reader) number(p string) (int64, bool) {
	v, err := strconv.ParseInt(r.text(p), 0, 64)
	return v, err == nil
}

// list are the names in a folder that match a glob pattern, in natural order (2 before 10).
func (r Reader) list(p string) []string {
	found, _ := filepath.Glob(r.path(p)) // the only error is a bad pattern, and those are constants
	for i := range found {
		found[i] = filepath.Base(found[i])
	}
	sortNatural(found)
	return found
}

func (r Reader) exists(p string) bool {
	_, err := os.Stat(r.path(p))
	return err == nil
}

// real resolves links and returns the path as the machine sees it, without Root.
func (r Reader) real(p string) string {
	full, err := filepath.EvalSymlinks(r.path(p))
	if err != nil {
		return ""
	}
	root, err := filepath.EvalSymlinks(r.path("/"))
	if err != nil || root == "/" {
		return full
	}
	return strings.TrimPrefix(full, root)
}

// field is the value of "name: value" lines as in /proc.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		k, v, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func (r Reader) osName() string {
	for line := range strings.Lines(r.text("/etc/os-release")) {
		if v, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			return strings.Trim(strings.TrimSpace(v), `"'`)
		}
	}
	return ""
}

func (r Reader) command(ctx context.Context, name string, args ...string) ([]byte, error) {
	if r.Command != nil {
		return r.Command(ctx, name, args...)
	}
	return exec.CommandContext(ctx, name, args...).Output()
}

// Devices are the RDMA devices of this machine, by name.
func Devices() []string { return Reader{}.Devices() }

// Devices are the machine's RDMA devices, by name.
func (r Reader) Devices() []string { return r.list("/sys/class/infiniband/*") }
