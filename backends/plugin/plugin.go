// Package plugin loads a backend that is a shared object (the C ABI of backends/abi/backend.h) and presents it
// as a backends.Backend. It is the only package of ours that uses cgo.
//
// A loaded plugin is never unloaded: its threads and thread-local state may outlive a session. The harness loads
// plugins only in a fresh process per rank, so a plugin that crashes takes nothing along.
package plugin

// The loader reads the backend only through the C structs below; Go never lays one out itself.

/*
#cgo CFLAGS: -I${SRCDIR}/../abi -Wall -Wextra -Werror
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>
#include "backend.h"

static int call_probe(const struct gic_backend *b, const struct gic_open *o) { return b->probe(o); }
static const char *missing_function(const struct gic_backend *b) {
	return !b->probe      ? "probe"
	       : !b->open     ? "open"
	       : !b->close    ? "close"
	       : !b->window   ? "window"
	       : !b->write    ? "write"
	       : !b->read     ? "read"
	       : !b->run      ? "run"
	       : !b->counters ? "counters"
	       : !b->facts    ? "facts"
	       : !b->last_error ? "last_error"
	                        : NULL;
}
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"unsafe"

	"gic/backends"
)

// The two lists of capabilities and operations are one: a difference does not compile.
var _ = [1]struct{}{}[(C.GIC_CAP_PUT^uint32(backends.CapPut))|
	(C.GIC_CAP_PUT_VALUE^uint32(backends.CapPutValue))|
	(C.GIC_CAP_PUT_SIGNAL^uint32(backends.CapPutSignal))|
	(C.GIC_CAP_SIGNAL^uint32(backends.CapSignal))|
	(C.GIC_CAP_WAIT^uint32(backends.CapWait))|
	(C.GIC_CAP_GET^uint32(backends.CapGet))|
	(C.GIC_CAP_FETCH_ADD^uint32(backends.CapFetchAdd))|
	(C.GIC_CAP_FENCE^uint32(backends.CapFence))|
	(C.GIC_CAP_FLUSH^uint32(backends.CapFlush))|
	(C.GIC_CAP_QUIET^uint32(backends.CapQuiet))|
	(C.GIC_CAP_GPU_VISIBLE^uint32(backends.CapGPUVisible))|
	(C.GIC_CAP_NOTIFY^uint32(backends.CapNotify))|
	(C.GIC_CAP_HOST_DEVICE^uint32(backends.CapHostDevice))|
	(C.GIC_CAP_CUDA_DEVICE^uint32(backends.CapCUDADevice))|
	(C.GIC_CAP_NIC_SOFT^uint32(backends.CapNICSoft))|
	(C.GIC_CAP_NIC_MLX5^uint32(backends.CapNICMlx5))|
	(C.GIC_CAP_NIC_NONE^uint32(backends.CapNICNone))|
	(C.GIC_CAP_RANKS_IN_PROCESS^uint32(backends.CapRanksInProcess))|
	(C.GIC_OP_COUNT^uint32(backends.NumOps))|
	(C.GIC_OP_PUT^uint32(backends.OpPut))|
	(C.GIC_OP_PUT_VALUE^uint32(backends.OpPutValue))|
	(C.GIC_OP_SIGNAL^uint32(backends.OpSignal))|
	(C.GIC_OP_PUT_SIGNAL^uint32(backends.OpPutSignal))|
	(C.GIC_OP_GET^uint32(backends.OpGet))|
	(C.GIC_OP_FETCH_ADD^uint32(backends.OpFetchAdd))|
	(C.GIC_OP_NOTIFY_WORD^uint32(backends.OpNotifyWord))|
	(C.GIC_OP_NOTIFY^uint32(backends.OpNotify))]

// Plugin is a loaded backend.
type Plugin struct {
	b    *C.struct_gic_backend
	info backends.Info
	path string
}

var _ backends.Backend = (*Plugin)(nil)

var (
	loadedMu sync.Mutex
	loaded   = map[string]*Plugin{} // by real path
)

// ErrVersion is in the error of a plugin that was built for another version of the ABI.
var ErrVersion = errors.New("was built for ABI")

// Tables is the version of what workloads and their kernels tell each other, the second half of the ABI's.
const Tables = C.GIC_ABI_TABLES

// ABI is the version that a plugin must have: that of the structs, and that of the workloads' tables.
func ABI() string { return fmt.Sprintf("%d.%d", C.GIC_ABI_STRUCTS, C.GIC_ABI_TABLES) }

// Load opens the shared object at path and checks that what it exports is a backend of this ABI version. Every
// error is one line that names the file and what is wrong with it.
func Load(path string) (backends.Backend, error) {
	p, err := load(path)
	if err != nil {
		return nil, fmt.Errorf("load backend %s: %w", path, err)
	}
	return p, nil
}

func load(path string) (*Plugin, error) {
	real, err := filepath.Abs(path)
	if err == nil {
		real, err = filepath.EvalSymlinks(real)
	}
	if err != nil {
		if os.IsNotExist(err) {
			return nil, fmt.Errorf("no such file")
		}
		return nil, err
	}
	loadedMu.Lock()
	defer loadedMu.Unlock()
	if p := loaded[real]; p != nil {
		return p, nil
	}

	// dlerror is per thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cpath, csym := C.CString(real), C.CString(C.GIC_BACKEND_SYMBOL)
	defer C.free(unsafe.Pointer(cpath))
	defer C.free(unsafe.Pointer(csym))
	lib := C.dlopen(cpath, C.RTLD_NOW|C.RTLD_LOCAL)
	if lib == nil {
		return nil, fmt.Errorf("%s", C.GoString(C.dlerror()))
	}
	sym := C.dlsym(lib, csym)
	if sym == nil {
		return nil, fmt.Errorf("no symbol %s: not a gic backend", C.GIC_BACKEND_SYMBOL)
	}
	p := &Plugin{b: (*C.struct_gic_backend)(sym), path: real}
	if err := p.read(); err != nil {
		return nil, err
	}
	loaded[real] = p
	return p, nil
}

// read checks the exported struct and copies what it says into info. The name, version, size and ABI number are
// the part of the struct that never moves, so a struct of another ABI is refused before anything else is read.
func (p *Plugin) read() error {
	b := p.b
	if b.name == nil || C.GoString(b.name) == "" {
		return fmt.Errorf("name is empty")
	}
	p.info.Name = C.GoString(b.name)
	if b.abi != C.GIC_ABI_VERSION {
		version := "?"
		if b.version != nil {
			version = C.GoString(b.version)
		}
		return fmt.Errorf("%s %s %w %d.%d, this gic wants %s: build it again (make)",
			p.info.Name, version, ErrVersion, uint32(b.abi)>>16, uint32(b.abi)&0xffff, ABI())
	}
	if b.struct_size != C.sizeof_struct_gic_backend {
		return fmt.Errorf("%s has struct_size %d, sizeof(struct gic_backend) is %d: rebuild it against this backend.h",
			p.info.Name, uint32(b.struct_size), C.sizeof_struct_gic_backend)
	}
	if b.version == nil {
		return fmt.Errorf("%s: version is NULL", p.info.Name)
	}
	p.info.Version = C.GoString(b.version)
	if f := C.missing_function(b); f != nil {
		return fmt.Errorf("%s: function %s is NULL", p.info.Name, C.GoString(f))
	}
	p.info.Caps = backends.Caps(b.caps)
	for i, l := range b.lowering {
		p.info.Lowering[i] = backends.Lowering{Writes: uint64(l.writes), Reads: uint64(l.reads), Atomics: uint64(l.atomics)}
	}
	if b.keys == nil && b.key_count > 0 {
		return fmt.Errorf("%s: keys is NULL but key_count is %d", p.info.Name, uint32(b.key_count))
	}
	seen := map[string]bool{}
	p.info.Keys = []backends.Key{}
	for i, k := range unsafe.Slice(b.keys, b.key_count) {
		if k.name == nil || k.value == nil || k.allowed == nil || k.help == nil {
			return fmt.Errorf("%s: key %d has a NULL name, value, allowed or help", p.info.Name, i)
		}
		key := backends.Key{Name: C.GoString(k.name), Default: C.GoString(k.value),
			Allowed: C.GoString(k.allowed), Help: C.GoString(k.help)}
		if key.Name == "" || seen[key.Name] {
			return fmt.Errorf("%s: key %d: name %q is empty or given twice", p.info.Name, i, key.Name)
		}
		seen[key.Name] = true
		p.info.Keys = append(p.info.Keys, key)
	}
	return nil
}

// Info says what the plugin declares. It survives a round trip through JSON, so a process that must not load
// plugins can have another one describe them.
func (p *Plugin) Info() backends.Info { return p.info }

// Path is the real path of the shared object.
func (p *Plugin) Path() string { return p.path }

// Probe asks the plugin whether it can run with these parameters here.
func (p *Plugin) Probe(o backends.Open) error {
	runtime.LockOSThread() // last_error is of the calling thread
	defer runtime.UnlockOSThread()
	var mem arena
	defer mem.free()
	stop := (*C.uint32_t)(mem.alloc(C.sizeof_uint32_t))
	co, err := mem.open(o, stop, nil)
	if err != nil {
		return fmt.Errorf("%s: probe: %w", p.info.Name, err)
	}
	return p.status("probe", C.call_probe(p.b, co), nil)
}
