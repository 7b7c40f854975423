package backendtest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"gic/backends"
)

var cases = []struct {
	name string
	run  func(*trial)
}{
	{"info", checkInfo},
	{"probe", checkProbe},
	{"window", checkWindow},
	{"workloads", checkWorkloads},
	{"configurations", checkConfigurations},
	{"slow NIC", checkSlowNIC},
	{"undeclared", checkUndeclared},
	{"counters repeat", checkRepeat},
	{"four ranks", checkFourRanks},
	{"ranks of one process", checkTogether},
	{"unknown workload", checkUnknownWorkload},
	{"stop", checkStop},
	{"deadline", checkDeadline},
	{"open fails on one rank", checkOpenFails},
}

// opCaps are the capabilities behind the operations of a message list.
var opCaps = [backends.NumOps]backends.Caps{
	backends.OpPut: backends.CapPut, backends.OpPutValue: backends.CapPutValue, backends.OpSignal: backends.CapSignal,
	backends.OpPutSignal: backends.CapPutSignal, backends.OpGet: backends.CapGet, backends.OpFetchAdd: backends.CapFetchAdd,
	backends.OpNotifyWord: backends.CapNotify, backends.OpNotify: backends.CapNotify,
}

func checkInfo(tr *trial) {
	if !tr.start(1) {
		return
	}
	info := tr.cluster.info
	if info.Name != tr.target.Name {
		tr.errorf("info: name %q, want %q", info.Name, tr.target.Name)
	}
	if info.Version == "" {
		tr.errorf("info: no version")
	}
	if info.Caps&(backends.CapHostDevice|backends.CapCUDADevice) == 0 {
		tr.errorf("info: no device declared")
	}
	if info.Caps&(backends.CapNICSoft|backends.CapNICMlx5|backends.CapNICNone) == 0 {
		tr.errorf("info: no NIC declared")
	}
	for _, k := range info.Keys {
		if k.Help == "" || strings.Contains(k.Help, "\n") {
			tr.errorf("info: key %s: help %q, want one line", k.Name, k.Help)
		}
		if !allows(k, k.Default) {
			tr.errorf("info: key %s: default %q is not in %q", k.Name, k.Default, k.Allowed)
		}
	}
	nic := info.Caps&(backends.CapNICSoft|backends.CapNICMlx5) != 0
	for op, l := range info.Lowering {
		// Whole operations are made of rows and counts.
		whole := info.Caps&backends.CapMoE != 0 && (backends.Op(op) == backends.OpPut || backends.Op(op) == backends.OpSignal)
		has, work := whole || info.Caps&opCaps[op] != 0, l.Writes+l.Reads+l.Atomics > 0
		if nic && has && !work {
			tr.errorf("info: operation %d is declared but lowered to nothing", op)
		}
		if !has && work {
			tr.errorf("info: operation %d is not declared but lowered to %+v", op, l)
		}
	}
}

// checkProbe: probe and open agree, and what is refused is named.
func checkProbe(tr *trial) {
	if !tr.start(1) {
		return
	}
	r := tr.cluster.ranks[0]
	if err := r.probe(tr.params(nil)); err != nil {
		tr.errorf("probe of the defaults: %v", err)
	}
	tr.noLeftovers(tr.cluster, "after probe")
	tr.refuses("an unknown key", tr.params(map[string]string{"no_such_key": "1"}), "no_such_key")
	for _, k := range tr.cluster.info.Keys {
		for _, v := range wrongValues(k) {
			tr.refuses("a wrong value", tr.params(map[string]string{k.Name: v}), k.Name, v)
		}
	}
	caps := tr.cluster.info.Caps
	for _, c := range []struct {
		cap         backends.Caps
		device, nic string
	}{
		{backends.CapHostDevice, "host", tr.target.NIC},
		{backends.CapCUDADevice, "cuda:0", tr.target.NIC},
		{backends.CapNICSoft, tr.target.Device, "soft"},
		{backends.CapNICNone, tr.target.Device, "none"},
		{backends.CapNICMlx5, tr.target.Device, "no_such_device"},
	} {
		o := tr.params(nil)
		if o.Device, o.NIC = c.device, c.nic; c.nic != "soft" {
			o.NICConfig = nil
		}
		if caps&c.cap == 0 {
			for call, err := range map[string]error{"probe": r.probe(o), "open": r.open(o)} {
				if !errors.Is(err, backends.ErrNotSupported) || strings.Contains(err.Error(), "\n") {
					tr.errorf("%s with device=%s nic=%s, which is not declared: %v, want one line of ErrNotSupported",
						call, c.device, c.nic, err)
				}
			}
		}
	}
	if err := r.open(tr.params(nil)); err != nil {
		tr.errorf("open after refusals, which probe allows: %v", err)
	}
}

// refuses checks that probe and open both call a configuration senseless and name what is wrong with it.
func (tr *trial) refuses(what string, o backends.Open, names ...string) {
	r := tr.cluster.ranks[0]
	for call, err := range map[string]error{"probe": r.probe(o), "open": r.open(o)} {
		if err == nil {
			tr.errorf("%s accepts %s: %s", call, what, strings.Join(names, "="))
			if err := r.Close(); err != nil {
				tr.errorf("close: %v", err)
			}
			continue
		}
		if errors.Is(err, backends.ErrNotSupported) || wrongErrno(err, syscall.EINVAL) {
			tr.errorf("%s of %s (%s): %v, want EINVAL", call, what, strings.Join(names, "="), err)
		}
		for _, n := range names {
			if !strings.Contains(err.Error(), n) || strings.Contains(err.Error(), "\n") {
				tr.errorf("%s of %s: error %q does not name %q in one line", call, what, err, n)
			}
		}
	}
}

// wrongErrno: the error carries an errno, and it is another one. Backends in Go need not carry any.
func wrongErrno(err error, want syscall.Errno) bool {
	var got syscall.Errno
	return errors.As(err, &got) && got != want
}

func checkWindow(tr *trial) {
	if !tr.open(2, nil) {
		return
	}
	const size = 3*4096 + 72
	c := tr.cluster
	if tr.failed("window", c.each(func(r *rank) error { return r.Window(size) })) {
		return
	}
	rng := rand.New(rand.NewPCG(7, 11))
	for _, r := range c.ranks {
		got := make([]byte, size)
		if err := r.Read(0, got); err != nil || !bytes.Equal(got, make([]byte, size)) {
			tr.errorf("rank %d: a new window is not all zero (%v)", r.rank, err)
		}
		want := make([]byte, size)
		for i := range want {
			want[i] = byte(rng.Uint32())
		}
		for _, part := range [][2]int{{0, 1}, {1, 4096}, {4097, 0}, {4097, size - 4097}} {
			if err := r.Write(uint64(part[0]), want[part[0]:part[0]+part[1]]); err != nil {
				tr.errorf("rank %d: write of %d bytes at %d: %v", r.rank, part[1], part[0], err)
			}
		}
		for _, bad := range []struct {
			at uint64
			n  int
		}{{size, 1}, {size - 4, 8}, {size + 1, 0}, {math.MaxUint64, 8}, {math.MaxUint64 - 7, 8}, {1 << 63, 1}, {0, size + 1}} {
			for call, err := range map[string]error{"write": r.Write(bad.at, make([]byte, bad.n)), "read": r.Read(bad.at, make([]byte, bad.n))} {
				if err == nil || errors.Is(err, backends.ErrNotSupported) || wrongErrno(err, syscall.ERANGE) {
					tr.errorf("rank %d: %s of %d bytes at %d of a window of %d: %v, want ERANGE", r.rank, call, bad.n, bad.at, size, err)
				}
			}
		}
		if err := r.Read(0, got); err != nil || !bytes.Equal(got, want) {
			tr.errorf("rank %d: read back other bytes than written (%v)", r.rank, err)
		}
	}
	// A second window replaces the first.
	if tr.failed("second window", c.each(func(r *rank) error { return r.Window(2 * size) })) {
		return
	}
	for _, r := range c.ranks {
		got := make([]byte, 2*size)
		if err := r.Read(0, got); err != nil || !bytes.Equal(got, make([]byte, 2*size)) {
			tr.errorf("rank %d: a second window is not all zero (%v)", r.rank, err)
		}
		facts, err := r.Facts()
		if err != nil || len(facts) == 0 {
			tr.errorf("rank %d: facts: %d of them, %v; want what was created", r.rank, len(facts), err)
		}
		for k := range facts {
			if k == "" {
				tr.errorf("rank %d: a fact without a name", r.rank)
			}
		}
	}
}

func checkUnknownWorkload(tr *trial) {
	if !tr.open(2, nil) {
		return
	}
	if tr.failed("window", tr.cluster.each(func(r *rank) error { return r.Window(4096) })) {
		return
	}
	for i, err := range tr.cluster.each(func(r *rank) error { _, err := r.Run(backends.Run{Workload: "no_such_workload"}); return err }) {
		if !errors.Is(err, backends.ErrNotSupported) || !strings.Contains(err.Error(), "no_such_workload") {
			tr.errorf("rank %d: run of an unknown workload: %v, want ErrNotSupported that names it", i, err)
		}
	}
}

// checkStop: a rank whose peer never comes ends when it is stopped, during a run and before one.
func checkStop(tr *trial) {
	for _, when := range []time.Duration{0, 100 * time.Millisecond} {
		if !tr.open(2, func(o *backends.Open) { o.Timeout = 10 * caseTimeout }) {
			return
		}
		run, ok := tr.lone()
		if !ok {
			return
		}
		r := tr.cluster.ranks[0]
		if when == 0 {
			r.Stop()
		} else {
			time.AfterFunc(when, r.Stop)
		}
		if _, err := r.Run(run); !errors.Is(err, backends.ErrCanceled) {
			tr.errorf("run of one rank alone, stopped %v after its start: %v, want ErrCanceled", when, err)
		}
	}
}

func checkDeadline(tr *trial) {
	if tr.target.NoSpin || !tr.open(2, func(o *backends.Open) { o.Timeout = 200 * time.Millisecond }) {
		return
	}
	run, ok := tr.lone()
	if !ok {
		return
	}
	if _, err := tr.cluster.ranks[0].Run(run); !errors.Is(err, backends.ErrTimeout) {
		tr.errorf("run of one rank alone, with a device deadline of 200ms: %v, want ErrTimeout", err)
	}
}

// lone prepares the first workload for a run in which rank 0 waits for a peer that does not run.
func (tr *trial) lone() (backends.Run, bool) {
	if len(tr.target.Workloads) == 0 {
		return backends.Run{}, false
	}
	job, err := tr.job(tr.target.Workloads[0], nil, 2)
	if err != nil {
		tr.errorf("%v", err)
		return backends.Run{}, false
	}
	if tr.failed("window", tr.cluster.each(func(r *rank) error { return r.Window(job.WindowBytes()) })) ||
		tr.failed("fill", tr.cluster.each(func(r *rank) error { return job.Fill(r.rank, r) })) {
		return backends.Run{}, false
	}
	run, err := job.Run(0)
	if err != nil {
		tr.errorf("%v", err)
		return backends.Run{}, false
	}
	return run, true
}

// checkOpenFails: when one rank cannot open, the others come back too, and nothing is left.
func checkOpenFails(tr *trial) {
	if !tr.start(2) {
		return
	}
	errs := tr.cluster.each(func(r *rank) error {
		if r.rank == 1 {
			return r.open(tr.params(map[string]string{"no_such_key": "1"}))
		}
		return r.open(tr.params(nil))
	})
	if errs[1] == nil {
		tr.errorf("rank 1 opens with an unknown key")
		return
	}
	if errs[0] == nil {
		tr.errorf("rank 0 opens although rank 1 never did: open is collective")
		return
	}
	tr.noLeftovers(tr.cluster, "after a failed open")
}

// allows says whether a value is among a key's allowed ones.
func allows(k backends.Key, v string) bool {
	if k.Allowed == "" {
		return true
	}
	if lo, hi, ok := bounds(k); ok {
		n, err := strconv.ParseInt(v, 10, 64)
		return err == nil && n >= lo && n <= hi
	}
	for a := range strings.SplitSeq(k.Allowed, "|") {
		if a == v {
			return true
		}
	}
	return false
}

// bounds reads "1..256".
func bounds(k backends.Key) (lo, hi int64, ok bool) {
	a, b, found := strings.Cut(k.Allowed, "..")
	lo, err1 := strconv.ParseInt(a, 10, 64)
	hi, err2 := strconv.ParseInt(b, 10, 64)
	return lo, hi, found && err1 == nil && err2 == nil
}

// wrongValues are values that a key does not allow.
func wrongValues(k backends.Key) []string {
	lo, hi, isRange := bounds(k)
	switch {
	case k.Allowed == "":
		return nil
	case isRange && lo > 0:
		return []string{fmt.Sprint(lo - 1), fmt.Sprint(hi + 1), "many", fmt.Sprint(lo) + "x", "-1"}
	case isRange:
		return []string{fmt.Sprint(hi + 1), "many", "1x", "-1"}
	}
	out := []string{"no_such_value", ""}
	if first, _, several := strings.Cut(k.Allowed, "|"); several {
		out = append(out, k.Allowed)
		if short := first[:len(first)-1]; short != "" {
			out = append(out, short, first+"x")
		}
	}
	return slices.DeleteFunc(out, func(v string) bool { return allows(k, v) })
}

// otherValues are allowed values besides the default: all of a set, a few of a range.
func otherValues(k backends.Key) []string {
	var out []string
	add := func(v string) {
		if v != k.Default && allows(k, v) {
			out = append(out, v)
		}
	}
	if lo, hi, ok := bounds(k); ok {
		add(fmt.Sprint(lo))
		add(fmt.Sprint(min(lo+2, hi)))
		add(fmt.Sprint(min(lo*2+2, hi)))
		return out
	}
	if k.Allowed != "" {
		for a := range strings.SplitSeq(k.Allowed, "|") {
			add(a)
		}
	}
	return out
}
