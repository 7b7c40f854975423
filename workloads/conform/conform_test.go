package conform

import (
	"slices"
	"strings"
	"testing"

	"gic/backends"
	"gic/workloads"
	"gic/workloads/worktest"
)

func small(axes ...string) []string {
	return append([]string{"largest", "30", "passes", "3"}, axes...)
}

func TestVerify(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			worktest.CheckVerify(t, worktest.Prepare(t, Workload{}, 2, small("case", c.name)...), 2, 0, 1)
		})
	}
}

func TestCases(t *testing.T) {
	tiny := func(axes ...string) []string { return append([]string{"largest", "13", "passes", "2"}, axes...) }
	for _, c := range cases {
		if c.name != "many" { // to the device half it is sizes, and long
			worktest.Case(t, c.name, worktest.Prepare(t, Workload{}, 2, tiny("case", c.name)...), 2)
		}
	}
	for _, c := range []string{"fetch_add", "quiet_get", "put_signal"} {
		worktest.Case(t, c+"_ranks_3_threads_2", worktest.Prepare(t, Workload{}, 3, tiny("case", c, "threads", "2")...), 3)
	}
}

// Scripts of every shape come to their end and lead to what is expected.
func TestScripts(t *testing.T) {
	for _, c := range cases {
		for _, shape := range [][4]string{{"2", "1", "4096", "20"}, {"3", "2", "8", "1"}, {"5", "3", "1000", "64"}, {"2", "1", "65536", "11"}} {
			ranks := int(shape[0][0] - '0')
			job := worktest.Prepare(t, Workload{}, ranks, "case", c.name, "threads", shape[1], "largest", shape[2], "passes", shape[3])
			windows, _ := worktest.Simulated(t, job, ranks)
			for rank, m := range windows {
				v, err := job.Verify(rank, m)
				if err != nil || v.Wrong != 0 || v.Checked == 0 {
					t.Errorf("%s with %v: rank %d: %+v, %v", c.name, shape, rank, v, err)
				}
			}
		}
	}
}

// A script that never ends is an error, not a hang.
func TestScriptWithoutEnd(t *testing.T) {
	job := worktest.Prepare(t, Workload{}, 2, small("case", "signal")...).(*job)
	job.script.steps[1][0] = job.script.steps[1][0][:len(job.script.steps[1][0])/2]
	windows := worktest.Filled(t, job, 2)
	_, err := job.Simulate([]workloads.Memory{windows[0], windows[1]})
	if err == nil || !strings.Contains(err.Error(), "case=signal waits for what never comes") {
		t.Errorf("error %v", err)
	}
}

// Every word of the contract is in a case, and no case needs more optional words than those it is about.
func TestNeeds(t *testing.T) {
	const base = backends.CapSignal | backends.CapWait | backends.CapQuiet
	want := map[string]backends.Caps{
		"sizes": backends.CapPut, "many": backends.CapPut, "each": backends.CapPut, "value": backends.CapPutValue, "signal": backends.CapPut,
		"put_signal": backends.CapPutSignal, "notify": backends.CapNotify, "get": backends.CapGet, "fetch_add": backends.CapFetchAdd,
		"fence": backends.CapPut | backends.CapFence, "fence_get": backends.CapPut | backends.CapFence | backends.CapGet,
		"flag":    backends.CapPut | backends.CapFence | backends.CapPutValue | backends.CapGPUVisible,
		"visible": backends.CapPut | backends.CapGPUVisible, "visible_get": backends.CapGet | backends.CapFlush | backends.CapGPUVisible,
		"flush": backends.CapPut | backends.CapFlush, "quiet": backends.CapPut, "quiet_get": backends.CapPut | backends.CapGet,
	}
	var all backends.Caps
	for _, c := range cases {
		needs := worktest.Prepare(t, Workload{}, 2, small("case", c.name)...).Needs()
		if needs != want[c.name]|base {
			t.Errorf("%s needs %v, expected %v", c.name, needs.Names(), (want[c.name] | base).Names())
		}
		all |= needs
	}
	if missing := (backends.CapNotify<<1 - 1) &^ all; missing != 0 {
		t.Errorf("no case needs %v", missing.Names())
	}
}

func TestOps(t *testing.T) {
	count := func(o workloads.Ops) map[backends.Op]uint64 {
		m := map[backends.Op]uint64{}
		for op, n := range o.Count {
			if n > 0 {
				m[backends.Op(op)] = n
			}
		}
		return m
	}
	// Two barriers are 2 signals to each peer; 3 passes with an acknowledgement each.
	for _, c := range []struct {
		name, ranks string
		want        map[backends.Op]uint64
		payload     uint64
	}{
		{"sizes", "2", map[backends.Op]uint64{backends.OpSignal: 2, backends.OpPut: 30}, 16 + 2*(1+2+3+4+7+8+9+11+12+13+16+27+28+29+30)},
		{"many", "3", map[backends.Op]uint64{backends.OpSignal: 4, backends.OpPut: 2 * 1280}, 32 + 2*20*(13*(8+13+1+29+3)-3)},
		{"each", "3", map[backends.Op]uint64{backends.OpSignal: 6, backends.OpPut: 60}, 48 + 4*(1+2+3+4+7+8+9+11+12+13+16+27+28+29+30)},
		{"value", "2", map[backends.Op]uint64{backends.OpSignal: 3, backends.OpPutValue: 10 + 6 + 4 + 3}, 24 + 10 + 12 + 16 + 24},
		{"put_signal", "2", map[backends.Op]uint64{backends.OpSignal: 5, backends.OpPutSignal: 3}, 40 + 30 + 29 + 1},
		{"notify", "2", map[backends.Op]uint64{backends.OpSignal: 5, backends.OpNotify: 3, backends.OpNotifyWord: 3}, 40 + 30 + 29 + 1 + 24},
		{"fetch_add", "2", map[backends.Op]uint64{backends.OpSignal: 2, backends.OpFetchAdd: 16 + 6}, 16 + 8*22},
		{"fence_get", "3", map[backends.Op]uint64{backends.OpSignal: 4, backends.OpPut: 6, backends.OpGet: 4}, 32 + 2*30 + 4*(29+1)},
		{"quiet_get", "3", map[backends.Op]uint64{backends.OpSignal: 5, backends.OpPut: 1, backends.OpGet: 1}, 40 + 60},
	} {
		ranks := int(c.ranks[0] - '0')
		ops := worktest.Prepare(t, Workload{}, ranks, small("case", c.name)...).Ops(ranks - 1)
		got := count(ops)
		for op := range backends.NumOps {
			if got[op] != c.want[op] {
				t.Errorf("%s: operation %d: %d, expected %d", c.name, op, got[op], c.want[op])
			}
		}
		if ops.PayloadBytes != c.payload {
			t.Errorf("%s: %d payload bytes, expected %d", c.name, ops.PayloadBytes, c.payload)
		}
	}
}

func TestPrepareErrors(t *testing.T) {
	w := Workload{}
	worktest.Errors(t, w, 1, "ranks=1 is not allowed: at least 2")
	worktest.Errors(t, w, 2, "case=put is not allowed: sizes|many|", "case", "put")
	for _, c := range [][3]string{
		{"threads", "0", "1..64"}, {"threads", "65", "1..64"}, {"largest", "7", "8..65536"}, {"largest", "1M", "8..65536"},
		{"passes", "0", "1..64"}, {"passes", "65", "1..64"}, {"passes", "x", "1..64"},
	} {
		worktest.Errors(t, w, 2, "conform: "+c[0]+"="+c[1]+" is not allowed: an integer in "+c[2], c[0], c[1])
	}
}

// The first wrong byte is told with the word that put it, or should have.
func TestFirstWrongByte(t *testing.T) {
	job := worktest.Prepare(t, Workload{}, 2, small("case", "put_signal")...).(*job)
	windows, _ := worktest.Simulated(t, job, 2)
	at := job.script.wants[1][slices.IndexFunc(job.script.wants[1], func(w want) bool { return w.at.area == seen })]
	for _, c := range []struct {
		at   uint64
		want string
	}{
		{job.words.Offset + 16, "signals of agent 0 of rank 0"},
		{job.offset(at.at), "payload 0 of put_signal by agent 0 of rank 0"},
		{job.target.Offset, "belongs to nothing"},
	} {
		m := append(worktest.Memory{}, windows[1]...) // Verify wipes the source
		m[c.at] ^= 1
		if v, err := job.Verify(1, m); err != nil || v.Wrong != 1 || !strings.Contains(v.First, c.want) {
			t.Errorf("byte %d: %+v, %v; expected one that is %q", c.at, v, err, c.want)
		}
	}
}

func TestSummarize(t *testing.T) {
	job := worktest.Prepare(t, Workload{}, 2, small()...)
	_, results := worktest.Simulated(t, job, 2)
	results[1].Series[0].Values[0] = 5000
	s, err := job.Summarize(results)
	if err != nil || len(s.Metrics) != 1 || s.Metrics[0].Samples[0] != 5e-6 || s.Metrics[0].Headline {
		t.Errorf("%+v, %v; expected the slowest rank's 5 us", s, err)
	}
	results[0].Series = nil
	if _, err := job.Summarize(results); err == nil {
		t.Error("no series, and no error")
	}
}
