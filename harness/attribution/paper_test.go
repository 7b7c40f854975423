package attribution

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gic/harness/record"
)

// published loads a platform of results/paper and analyses it.
func published(t *testing.T, platform string) *Analysis {
	t.Helper()
	runs, err := Load([]string{filepath.Join("../../results/paper", platform, record.FileName)})
	if err != nil {
		t.Fatal(err)
	}
	a, err := Analyse(runs[0], Options{})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// judgement finds the gap of a library row.
func (a *Analysis) judgement(t *testing.T, name, metric, workload string) *Judgement {
	t.Helper()
	for _, j := range a.Judgements {
		if j.Gap.Name() == name && j.Gap.Metric == metric && j.Gap.Row.First().Workload == workload {
			return j
		}
	}
	t.Fatalf("%s: no gap of %q in %s of %s", a.Run.Platform(), name, metric, workload)
	return nil
}

func us(v float64) Femto { return ToFemto(v * 1e-6) }

// NVSHMEM's issue excess over mini-gda: 4.61 us, of which the fence is 0.52 us swapped on the floor and 0.16 us swapped
// in the library; the two do not agree, which is said; at least 4.0 us are queue management either way.
func TestNVSHMEMIssue(t *testing.T) {
	a := published(t, "P-IB")
	j := a.judgement(t, "NVSHMEM IBGDA api=public", "issue", "op")
	_, _, gap, _ := j.Gap.Times()
	if gap.Value != us(4.61) {
		t.Errorf("gap %v, want 4.61 us", gap.Value)
	}
	s := j.Ladder()
	if len(s.Parts) != 1 || !slices.Equal(s.Parts[0].Terms, []Name{Ordering}) || s.Parts[0].Value != us(0.52) {
		t.Fatalf("parts %+v, want ordering 0.52 us", s.Parts)
	}
	if sp := s.Parts[0].Spread; sp == nil || sp.Low != us(0.16) || sp.High != us(0.52) || !strings.Contains(sp.Of, "swapped in the library") {
		t.Errorf("spread %+v, want 0.16 to 0.52, swapped in the library", sp)
	}
	note := slices.IndexFunc(s.Notes, func(n Note) bool { return n.Code == "interaction" })
	if note < 0 || !strings.Contains(s.Notes[note].Text, "+0.52 us") || !strings.Contains(s.Notes[note].Text, "+0.16 us") {
		t.Errorf("notes %v do not flag the interaction", s.Notes)
	}
	readings := j.Gap.Readings()
	if len(readings) != 1 || readings[0].Term != QueueManagement {
		t.Fatalf("readings %v, want queue management", readings)
	}
	low, high, ok := s.Eliminated(readings[0])
	if !ok || low != us(4.09) || high != us(4.45) || low < us(4) {
		t.Errorf("queue management %v to %v (%v), want 4.09 to 4.45 us", low, high, ok)
	}
	var b strings.Builder
	if err := Text(&b, []*Analysis{a}, DefaultWidth); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{
		"ordering order gpu-fence -> threadfence +0.52 (0.16 to 0.52)", "queue-management+queue-sharing, 4.09 to 4.45 us by elimination",
		"+0.52 us swapped on the floor (gpu-fence -> threadfence) and +0.16 us swapped in the library (threadfence -> gpu-release)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the output does not say %q", want)
		}
	}
}

// effect finds what a choice changes.
func (a *Analysis) effect(t *testing.T, term Name, metric, stack, key, to string) Effect {
	t.Helper()
	var found []Effect
	for _, e := range a.Effects {
		if e.Term == term && e.Metric == metric && e.Key == key && e.ToWhat == to && strings.HasPrefix(e.Stack, stack) {
			found = append(found, e)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d effects of %s=%s on %s of %s, want one", len(found), key, to, metric, stack)
	}
	return found[0]
}

// An all-QP quiet adds 37 % at 16 and 93 % at 32 QPs per peer, against the same quiet at 1 QP per peer; the quiet of
// the used QP does not grow.
func TestCompletionScope(t *testing.T) {
	a := published(t, "P-RoCE")
	for qps, want := range map[string]float64{"16": 0.37, "32": 0.93} {
		e := a.effect(t, CompletionScope, "put_completion", "nvshmem api=public path=ibgda scope=all", "qps", qps)
		share, ok := e.Relative()
		if !ok || math.Abs(share-want) > 0.005 || e.FromWhat != "1" || e.From.Value != us(18.02) {
			t.Errorf("qps=%s: %+.3f of %v at qps=%s, want %+.2f of 18.02 us at 1", qps, share, e.From.Value, e.FromWhat, want)
		}
	}
	e := a.effect(t, ConnectionState, "put_completion", "nvshmem api=public path=ibgda scope=qp-deepep", "qps", "32")
	if e.Delta.Value != 0 {
		t.Errorf("the used QP's quiet grows by %v", e.Delta.Value)
	}
}

// Other conclusions of the paper as numbers.
func TestPaperConclusions(t *testing.T) {
	ib := published(t, "P-IB")
	ring := ib.effect(t, QueueSharing, "rtt", "miniproxy background=64", "ring_mode", "shared")
	if ring.From.Value != us(115) || ring.To.Value != us(2190) {
		t.Errorf("a shared ring: %v -> %v, want 115 -> 2190 us", ring.From.Value, ring.To.Value)
	}
	uccl := ib.judgement(t, "UCCL-EP sharing=shared", "rtt", "loaded").Ladder()
	if len(uccl.Parts) != 1 || uccl.Parts[0].Terms[0] != QueueSharing || uccl.Parts[0].Value != us(2190-115) || uccl.Residual.Value != us(7570-2190) {
		t.Errorf("UCCL-EP on a shared queue: %+v, residual %v", uccl.Parts, uccl.Residual.Value)
	}
	gin := ib.judgement(t, "NCCL GIN Proxy", "issue", "op").Ladder()
	if len(gin.Parts) != 1 || gin.Parts[0].Terms[0] != ProxyHandoff || gin.Parts[0].Value != us(2.14) || gin.Residual.Value != us(0.19) {
		t.Errorf("GIN Proxy: %+v, residual %v", gin.Parts, gin.Residual.Value)
	}
	gdaki := ib.judgement(t, "NCCL GIN GDAKI inline=off", "put_completion", "op").Ladder()
	if len(gdaki.Parts) != 1 || gdaki.Parts[0].Terms[0] != Placement || gdaki.Parts[0].Value != us(0.61) {
		t.Errorf("GDAKI by pointer: %+v", gdaki.Parts)
	}
	costs := map[string]float64{}
	for _, c := range ib.Costs {
		costs[c.Label()] = c.Value.Seconds() * 1e6
	}
	// a + d/B from 1.79 and 4.70 M msg/s; the worker's from 6.6 and 28.6 (warm).
	for unit, want := range map[string]float64{"wqe": 0.190, "doorbell": 0.369, "worker_post": 0.124, "worker_wr": 0.027, "cqe_poll": 0.03, "completion": 3.33, "order threadfence": 0.52, "enqueue baseline": 2.27} {
		if math.Abs(costs[unit]-want) > 0.001 {
			t.Errorf("unit cost of %s is %g us, want %g", unit, costs[unit], want)
		}
	}
	h100 := published(t, "P-H100")
	both := h100.effect(t, ConnectionState, "message_rate", "minigda burst=32 pattern=pairs role=both", "active", "32768")
	if r, _ := both.Relative(); math.Abs(r+0.51) > 0.005 {
		t.Errorf("sending and receiving over 32,768 connections: %+.3f, want -0.51", r)
	}
	roce := published(t, "P-RoCE")
	clock := roce.effect(t, SMClock, "issue", "nvshmem api=public", "SM clock", "502 MHz")
	if got := clock.From.Value.Seconds() * 1e6; math.Abs(got-(10313.0/1845+1.44)) > 0.001 {
		t.Errorf("NVSHMEM issue at 1845 MHz is %g us", got)
	}
}

// Every split of every published row sums to its gap, whatever the order of the rungs, in what is printed as well.
func TestSplitsSum(t *testing.T) {
	n := 0
	for _, platform := range []string{"P-IB", "P-GB200", "P-RoCE", "P-H100"} {
		for _, j := range published(t, platform).Judgements {
			for _, a := range j.Accounts {
				if a.Split == nil {
					continue
				}
				n++
				if err := a.Split.Check(); err != nil {
					t.Error(err)
				}
			}
			p := printedOf(j, j.Ladder())
			sum := p.floor + p.residual
			for _, v := range p.parts {
				sum += v
			}
			if sum != p.library {
				t.Errorf("%s: the printed numbers sum to %d, the library is %d", j.Gap.Title(), sum, p.library)
			}
		}
	}
	if n < 45 {
		t.Errorf("%d splits, the paper gives more", n)
	}
}

// The guidelines that the published rows do not keep are found, and only those.
func TestPaperFindings(t *testing.T) {
	for platform, want := range map[string][]string{
		"P-IB": {"unequal-queues", "loaded-without-carried"}, "P-GB200": {"unequal-queues", "created-not-asked", "loaded-without-carried", "warm-up"},
		"P-RoCE": {"missing-clocks"}, "P-H100": {"missing-clocks", "connections-without-role"},
	} {
		var got []string
		for _, f := range published(t, platform).Findings {
			if !slices.Contains(got, f.Code) {
				got = append(got, f.Code)
			}
			if len(f.Rows) == 0 || f.Text == "" {
				t.Errorf("%s: %s says nothing", platform, f.Code)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: findings %v, want %v", platform, got, want)
		}
	}
}

// A library file is read strictly; the built-in ones name terms, floor keys and sources.
func TestLibraryFiles(t *testing.T) {
	list, err := Libraries()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 8 {
		t.Errorf("%d libraries", len(list))
	}
	for text, want := range map[string]string{
		"name: a\ntitle: b\nmatch: {backend: c}\nfloor: minigda\ncolour: red":                                     "colour",
		"name: a\nmatch: {backend: c}\nfloor: minigda":                                                            `title ""`,
		"name: a\ntitle: b\nmatch: {backend: c}\nfloor: nic":                                                      `floor "nic"`,
		"name: a\ntitle: b\nmatch: {backend: c}\nfloor: minigda\nchoices: [{key: colour, value: x, source: [s]}]": `key "colour"`,
		"name: a\ntitle: b\nmatch: {backend: c}\nfloor: minigda\nchoices: [{key: order, value: gpu-fence}]":       "source",
		"name: a\ntitle: b\nmatch: {backend: c}\nfloor: minigda\ncounts: [{unit: luck, per_op: 1, source: [s]}]":  `unit "luck"`,
		"name: a\ntitle: b\nmatch: {backend: c}\nfloor: minigda\nremainder: [{term: luck, what: x, source: [s]}]": `term "luck"`,
		"name: a\ntitle: b\nmatch: {backend: c}\nfloor: minigda\nremainder: [{term: wire, what: x}]":              "no source",
		"name: a\ntitle: b\nmatch: {backend: c}\nfloor: minigda\nterms: {mode: luck}":                             `key mode: term "luck"`,
		"name: [": "library file x.yaml",
	} {
		if _, err := ParseLibrary("x.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want one line with %q", text, err, want)
		}
	}
}
