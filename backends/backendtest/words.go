package backendtest

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"gic/backends"
	"gic/minigda/nictrace"
	"gic/workloads"
)

// wordPoints are all cases of a workload that has cases (conform), with one device thread and with four, without
// those in `had`; and with large payloads, many times, since an announcement that comes too early is seen only by who
// looks meanwhile.
func wordPoints(w workloads.Workload, ranks int, had []workloads.Point) []workloads.Point {
	var out []workloads.Point
	for _, a := range w.Axes() {
		if a.Name != "case" {
			continue
		}
		for c := range strings.SplitSeq(a.Allowed, "|") {
			for _, x := range [][3]string{{"1", "4096", "20"}, {"4", "4096", "20"}, {"1", "65536", "20"}} {
				p := base(w)
				p["case"], p["threads"], p["largest"], p["passes"] = c, x[0], x[1], x[2]
				same := func(q workloads.Point) bool { return maps.Equal(p, q) }
				if _, err := w.Prepare(p, ranks, 1); err == nil && !slices.ContainsFunc(had, same) {
					out = append(out, p)
				}
			}
		}
	}
	return out
}

// checkWord runs one case on the open ranks if the backend declares what it needs; false when it went wrong.
func (tr *trial) checkWord(when string, w workloads.Workload, p workloads.Point, ranks int) bool {
	job, err := tr.job(w, p, ranks)
	if err != nil {
		tr.errorf("%v", err)
		return false
	}
	return job.Needs()&^tr.cluster.info.Caps != 0 || tr.check(when+name(w, p), job) != nil
}

// setting is a key moved off its default.
type setting struct{ key, value string }

func (s setting) String() string { return s.key + "=" + s.value }

// checkWordsUnder runs all cases under one setting with four device threads: on the default configuration, so that
// they share what they can; where that is refused, on one that has room for them; where that is, too, with one.
func (tr *trial) checkWordsUnder(s setting) {
	for _, w := range tr.target.Workloads {
		if len(wordPoints(w, 2, nil)) == 0 {
			continue
		}
		if largest := tr.target.Largest[s.String()]; largest > 0 {
			tr.refusesLarger(s, w, largest)
		}
		for _, with := range []struct {
			threads string
			config  map[string]string
		}{{"4", nil}, {"4", tr.target.Threaded}, {"1", nil}} {
			before := len(tr.findings)
			if tr.wordsUnder(s, w, with.threads, with.config) || with.threads == "1" {
				break
			}
			tr.findings = tr.findings[:before]
		}
	}
}

// wordsUnder runs the cases; false when the first was refused as something that this configuration cannot do.
func (tr *trial) wordsUnder(s setting, w workloads.Workload, threads string, config map[string]string) bool {
	fresh, first := false, true
	for _, p := range wordPoints(w, 2, nil) {
		if p["threads"] != threads || p["largest"] != base(w)["largest"] || tr.hung {
			continue
		}
		if !fresh && !tr.openUnder(s, config) {
			return true
		}
		if tr.facts["unsafe"] != "" {
			return true // deliberately without the order that makes it correct
		}
		p["largest"], p["passes"] = "1024", "8" // what lies above depends on no setting, and there are many
		if largest := tr.target.Largest[s.String()]; largest > 0 {
			p["largest"] = strconv.Itoa(min(1024, largest))
		}
		tr.unsupported = false
		fresh = tr.checkWord(s.String()+": ", w, p, 2)
		if first && tr.unsupported {
			return false
		}
		first = false
	}
	return true
}

func (tr *trial) openUnder(s setting, config map[string]string) bool {
	if !tr.open(2, func(o *backends.Open) {
		maps.Copy(o.Config, config)
		o.Config[s.key] = s.value
	}) {
		return false
	}
	var err error
	if tr.facts, err = tr.cluster.ranks[0].Facts(); err != nil {
		tr.errorf("%v: facts: %v", s, err)
	}
	return err == nil
}

// refusesLarger: what a setting cannot carry is called a bad argument.
func (tr *trial) refusesLarger(s setting, w workloads.Workload, largest int) {
	p := base(w)
	p["largest"] = strconv.Itoa(largest + 1)
	job, err := tr.job(w, p, 2)
	if err != nil {
		tr.errorf("%v", err)
		return
	}
	if !tr.openUnder(s, nil) || tr.failed("window", tr.cluster.each(func(r *rank) error { return r.Window(job.WindowBytes()) })) {
		return
	}
	errs := tr.cluster.run(func(r *rank) error {
		run, err := job.Run(r.rank)
		if err == nil {
			_, err = r.Run(run)
		}
		return err
	})
	if !slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, syscall.EINVAL) }) {
		tr.errorf("%v: payloads of more than %d bytes: %v, want EINVAL", s, largest, errs)
	}
}

// checkSlowNIC runs all cases over a software NIC so slow that who does not wait for it is found out, and looks into
// its trace for fences.
//
// A NIC may send the write behind a read before the read has been answered; what keeps it back is the fence bit, or
// a driver that waits. Whether this NIC does so is not to decide the test: behind a read, a write of the same queue
// carries the bit or follows the read's CQE.
func checkSlowNIC(tr *trial) {
	_, traces := tr.target.NICConfig["trace"]
	_, profiles := tr.target.NICConfig["profile"]
	if tr.target.NIC != "soft" || !traces || !profiles {
		return
	}
	for _, threaded := range []bool{false, true} {
		for _, w := range tr.target.Workloads {
			tr.wordsOnSlowNIC(w, threaded)
		}
	}
}

// slowRanks: with three a rank has several peers, of which it may forget one.
const slowRanks = 3

func (tr *trial) wordsOnSlowNIC(w workloads.Workload, threaded bool) {
	fresh, dir := false, tr.t.TempDir()
	for _, p := range wordPoints(w, slowRanks, nil) {
		if isThreaded(p) != threaded || p["largest"] != base(w)["largest"] || tr.hung {
			continue
		}
		fenced := p["case"] == "fence_get" && !threaded && tr.target.NICConfig["engine"] != "gpu" // alone, for its trace, which a GPU engine does not keep
		open := func(o *backends.Open) {
			if threaded {
				maps.Copy(o.Config, tr.target.Threaded)
			}
			o.NICConfig = maps.Clone(o.NICConfig)
			o.NICConfig["profile"] = "slow"
			if fenced {
				o.NICConfig["trace"] = "on"
			}
		}
		if fenced {
			tr.t.Setenv("GIC_TRACE_DIR", dir)
		}
		if (!fresh || fenced) && !tr.open(slowRanks, open) {
			return
		}
		job, err := tr.job(w, p, slowRanks)
		if err != nil || job.Needs()&^tr.cluster.info.Caps != 0 {
			continue
		}
		fresh = tr.checkWord("slow NIC: ", w, p, slowRanks)
		if !fenced || !fresh {
			continue
		}
		tr.close() // saves the traces
		fresh = false
		found, _ := filepath.Glob(filepath.Join(dir, "*.trace")) // the pattern is well formed
		reads := 0
		for _, path := range found {
			reads += tr.fencesIn(path)
		}
		if len(found) < slowRanks || reads == 0 {
			tr.errorf("fence: %d traces of %d ranks with %d reads", len(found), slowRanks, reads)
		}
	}
}

// fencesIn looks for writes that nothing keeps behind the read before them.
func (tr *trial) fencesIn(path string) (reads int) {
	trace, err := nictrace.ReadFile(path)
	if err != nil {
		tr.errorf("fence: %v", err)
		return 0
	}
	reads, loose := unfenced(trace.Records)
	if loose > 0 {
		tr.errorf("fence: %d of %d gets: the put behind a fence has no fence bit and was posted before the get's CQE", loose, reads)
	}
	return reads
}

// unfenced counts the reads in a trace, and those whose next write on the same queue is neither fenced nor posted
// behind the read's CQE.
func unfenced(trace []nictrace.Record) (reads, loose int) {
	open := map[int]uint16{} // reads without a CQE: QP to index
	for i := range trace {
		r := &trace[i]
		read, is := open[r.QP]
		switch {
		case r.Kind == nictrace.WQE && r.Opcode == nictrace.RDMARead:
			reads++
			open[r.QP] = r.Index
		case r.Kind == nictrace.WQE && r.Opcode == nictrace.RDMAWrite && is:
			if r.FMCESE&nictrace.FenceMask == 0 {
				loose++
			}
			delete(open, r.QP)
		case r.Kind == nictrace.CQE && is && int16(r.Index-read) >= 0:
			delete(open, r.QP)
		}
	}
	return reads, loose
}
