package plugin

/*
#include <stdlib.h>
#include "backend.h"
*/
import "C"

import (
	"fmt"
	"sort"
	"strings"
	"unsafe"

	"gic/backends"
)

// arena is C memory that is freed together: whatever a plugin is handed lives here, never in Go's heap.
type arena struct {
	blocks []unsafe.Pointer
	bad    string // the first string that C cannot hold
}

func (a *arena) alloc(bytes uintptr) unsafe.Pointer {
	p := C.calloc(1, C.size_t(max(bytes, 1)))
	if p == nil {
		panic(fmt.Sprintf("plugin: out of C memory allocating %d bytes", bytes))
	}
	a.blocks = append(a.blocks, p)
	return p
}

func (a *arena) free() {
	for _, p := range a.blocks {
		C.free(p)
	}
	a.blocks = nil
}

func (a *arena) string(s string) *C.char {
	if strings.IndexByte(s, 0) >= 0 && a.bad == "" {
		a.bad = s
	}
	p := C.CString(s)
	a.blocks = append(a.blocks, unsafe.Pointer(p))
	return p
}

func (a *arena) bytes(b []byte) unsafe.Pointer {
	p := a.alloc(uintptr(len(b)))
	copy(unsafe.Slice((*byte)(p), len(b)), b)
	return p
}

// kvs lays out a map as an array of gic_kv, sorted by key so that a plugin sees the same order every time.
func (a *arena) kvs(m map[string]string) (*C.struct_gic_kv, C.uint32_t) {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	p := (*C.struct_gic_kv)(a.alloc(uintptr(len(m)) * C.sizeof_struct_gic_kv))
	for i, kv := range unsafe.Slice(p, len(m)) {
		kv.key, kv.value = a.string(keys[i]), a.string(m[keys[i]])
		unsafe.Slice(p, len(m))[i] = kv
	}
	return p, C.uint32_t(len(m))
}

func (a *arena) check() error {
	if a.bad != "" {
		return fmt.Errorf("%q contains a NUL byte", a.bad)
	}
	return nil
}

func (a *arena) open(o backends.Open, stop *C.uint32_t, comm *C.struct_gic_comm) (*C.struct_gic_open, error) {
	if o.Ranks < 1 || o.Rank < 0 || o.Rank >= o.Ranks {
		return nil, fmt.Errorf("rank %d of %d ranks does not exist", o.Rank, o.Ranks)
	}
	if o.Timeout < 0 {
		return nil, fmt.Errorf("timeout %v is negative", o.Timeout)
	}
	c := (*C.struct_gic_open)(a.alloc(C.sizeof_struct_gic_open))
	c.struct_size = C.sizeof_struct_gic_open
	c.rank, c.nranks = C.int32_t(o.Rank), C.int32_t(o.Ranks)
	c.job, c.device, c.nic = a.string(o.Job), a.string(o.Device), a.string(o.NIC)
	c.nic_config, c.nic_config_count = a.kvs(o.NICConfig)
	c.config, c.config_count = a.kvs(o.Config)
	c.comm, c.stop = comm, stop
	c.timeout_ns = C.uint64_t(o.Timeout.Nanoseconds())
	return c, a.check()
}

func (a *arena) run(r backends.Run) (*C.struct_gic_run, error) {
	c := (*C.struct_gic_run)(a.alloc(C.sizeof_struct_gic_run))
	c.struct_size = C.sizeof_struct_gic_run
	c.workload = a.string(r.Workload)
	c.args, c.arg_count = a.kvs(r.Args)
	c.blobs = (*C.struct_gic_blob)(a.alloc(uintptr(len(r.Blobs)) * C.sizeof_struct_gic_blob))
	c.blob_count = C.uint32_t(len(r.Blobs))
	blobs := unsafe.Slice(c.blobs, len(r.Blobs))
	for i, b := range r.Blobs {
		blobs[i].name, blobs[i].data, blobs[i].bytes = a.string(b.Name), a.bytes(b.Data), C.size_t(len(b.Data))
	}
	return c, a.check()
}

// goSeries copies a plugin's result out, one bulk copy per series.
func goSeries(res *C.struct_gic_result) ([]backends.Series, error) {
	if res.series == nil && res.series_count > 0 {
		return nil, fmt.Errorf("series is NULL but series_count is %d", uint32(res.series_count))
	}
	out := make([]backends.Series, res.series_count)
	for i, s := range unsafe.Slice(res.series, res.series_count) {
		if s.name == nil || s.unit == nil || (s.values == nil && s.count > 0) {
			return nil, fmt.Errorf("series %d has a NULL name, unit or values", i)
		}
		out[i] = backends.Series{Name: C.GoString(s.name), Unit: C.GoString(s.unit), Values: make([]float64, s.count)}
		copy(out[i].Values, unsafe.Slice((*float64)(unsafe.Pointer(s.values)), s.count))
	}
	return out, nil
}

func goCounters(list *C.struct_gic_counter, n C.uint32_t) ([]backends.Counter, error) {
	if list == nil && n > 0 {
		return nil, fmt.Errorf("counters is NULL but the count is %d", uint32(n))
	}
	out := make([]backends.Counter, n)
	for i, c := range unsafe.Slice(list, n) {
		if c.name == nil || c.unit == nil {
			return nil, fmt.Errorf("counter %d has a NULL name or unit", i)
		}
		out[i] = backends.Counter{Name: C.GoString(c.name), Unit: C.GoString(c.unit), Value: uint64(c.value), Exact: c.exact != 0}
	}
	return out, nil
}

func goFacts(list *C.struct_gic_kv, n C.uint32_t) (map[string]string, error) {
	if list == nil && n > 0 {
		return nil, fmt.Errorf("facts is NULL but the count is %d", uint32(n))
	}
	out := make(map[string]string, n)
	for i, kv := range unsafe.Slice(list, n) {
		if kv.key == nil || kv.value == nil {
			return nil, fmt.Errorf("fact %d has a NULL key or value", i)
		}
		out[C.GoString(kv.key)] = C.GoString(kv.value)
	}
	return out, nil
}
