package attribution

import (
	"math"
	"slices"
	"testing"

	"gic/harness/record"
)

// planted is a cost built into a floor that poses as a library, and where each method must find it, in nanoseconds.
type planted struct {
	name   string
	pose   Pose
	metric string
	ladder map[Name]float64
	counts map[Name]float64 // nil where the method must not see the row
}

// plants are the costs of the falsifiability test: an extra delay per post, a second doorbell, a wider quiet, a lock.
var plants = []planted{
	{"extra delay", Pose{"minigda", map[string]string{"plant": "delay"}}, "issue",
		map[Name]float64{Residual: plantDelay}, map[Name]float64{Residual: plantDelay}},
	{"extra delay, completion", Pose{"minigda", map[string]string{"plant": "delay"}}, "put_completion",
		map[Name]float64{Residual: plantDelay}, map[Name]float64{Residual: plantDelay}},
	// No floor key rings twice: the ladder leaves it in the residual, the counts see it.
	{"second doorbell", Pose{"minigda", map[string]string{"plant": "doorbell"}}, "issue",
		map[Name]float64{Residual: bellCost}, map[Name]float64{DoorbellPath: bellCost, Residual: 0}},
	{"wider quiet", Pose{"minigda", map[string]string{"scope": "all", "qps": "16", "plant": "quiet"}}, "put_completion",
		map[Name]float64{CompletionScope: 15 * pollCost, Residual: 0}, map[Name]float64{CompletionScope: 15 * pollCost, Residual: 0}},
	{"lock", Pose{"minigda", map[string]string{"sharing": "lock", "plant": "lock"}}, "issue",
		map[Name]float64{QueueSharing: 240, Residual: 0}, map[Name]float64{QueueSharing: 240, Residual: 0}},
	{"fence", Pose{"minigda", map[string]string{"order": "sys-release", "plant": "fence"}}, "issue",
		map[Name]float64{Ordering: 1670, Residual: 0}, map[Name]float64{Ordering: 1670, Residual: 0}},
	{"batch", Pose{"minigda", map[string]string{"batch": "16", "plant": "batch"}}, "message_rate",
		map[Name]float64{DoorbellBatching: -bellCost * 15 / 16, Residual: 0}, map[Name]float64{DoorbellBatching: -bellCost * 15 / 16, Residual: 0}},
}

// find says whether each cost was found in its term: within 10 % of what was planted, or within the stated interval.
// A term in which nothing was planted must be within 10 % of the largest cost of zero, or its interval hold zero.
func (p planted) find(t *testing.T, method string, s *Split, want map[Name]float64) {
	t.Helper()
	largest := 0.0
	for _, v := range want {
		largest = max(largest, math.Abs(v))
	}
	got := map[Name]Quantity{Residual: s.Residual}
	for _, part := range s.Parts {
		if len(part.Terms) == 1 {
			got[part.Terms[0]] = got[part.Terms[0]].Add(part.Quantity)
		}
	}
	for name := range want {
		if _, ok := got[name]; !ok && want[name] != 0 {
			t.Errorf("%s: %s gives %s no number", p.name, method, name)
		}
	}
	for name, q := range got {
		v := q.Value.Seconds() * 1e9
		limit := tolerance * max(math.Abs(want[name]), largest*tolerance)
		if want[name] == 0 {
			limit = tolerance * largest
		}
		low, high, ok := q.Interval()
		if math.Abs(v-want[name]) > limit && !(ok && low*1e9 <= want[name] && want[name] <= high*1e9) {
			t.Errorf("%s: %s finds %.0f ns (%.0f..%.0f) in %s, planted were %.0f", p.name, method, v, low*1e9, high*1e9, name, want[name])
		}
	}
}

// judged makes the gap of a pose in a run, and asks the methods.
func (p planted) judged(t *testing.T, run *Run) *Judgement {
	t.Helper()
	gaps, unsplit := run.Gaps(nil, []Pose{p.pose}, nil)
	i := slices.IndexFunc(gaps, func(g *Gap) bool { return g.Metric == p.metric })
	if i < 0 {
		t.Fatalf("%s: no gap in %s; not split: %+v", p.name, p.metric, unsplit)
	}
	j, err := Judge(gaps[i], Ladder{}, Counts{})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range j.Accounts {
		if a.Split == nil {
			t.Fatalf("%s: %s sees nothing: %s", p.name, a.Method, a.Blind)
		}
	}
	return j
}

// axesOf are the point that a metric is measured at.
func axesOf(metric string) (workload string, axes map[string]string) {
	if metric == "message_rate" {
		return "rate", map[string]string{"size": "8", "threads": "1"}
	}
	return "op", map[string]string{"op": "put", "size": "8"}
}

// Costs planted into synthetic records are found in their terms by each method that can see them, without noise and
// with that of real process runs.
func TestPlantedCosts(t *testing.T) {
	for _, noise := range []float64{0, 0.01} {
		floors := floorRows(t, 8, noise)
		for _, p := range plants {
			workload, axes := axesOf(p.metric)
			run := newRun(append(slices.Clone(floors), synthetic(t, "minigda", workload, axes, p.pose.Config, 8, noise))...)
			j := p.judged(t, run)
			p.find(t, j.Accounts[0].Method, j.Accounts[0].Split, p.ladder)
			p.find(t, j.Accounts[1].Method, j.Accounts[1].Split, p.counts)
			if j.Verdict == Inconsistent {
				t.Errorf("%s, noise %g: %s", p.name, noise, j.Sentence())
			}
		}
	}
}

// A method that is wrong about a term is found out: the verdict is inconsistent and names the term.
func TestVerdictNamesTheTerm(t *testing.T) {
	floors := floorRows(t, 1, 0)
	op := map[string]string{"op": "put", "size": "8"}
	lock := plants[slices.IndexFunc(plants, func(p planted) bool { return p.name == "lock" })]
	// In the posing row the lock costs three times what it costs uncontended: the ladder, which has such a rung, and
	// the counts, which multiply the uncontended cost, must differ in queue sharing.
	contended := synthetic(t, "minigda", "op", op, lock.pose.Config, 1, 0)
	rung := synthetic(t, "minigda", "op", op, map[string]string{"sharing": "lock", "qps": "4"}, 1, 0)
	scale := func(cases []*record.Case) {
		for i := range cases[0].Metrics {
			m := &cases[0].Metrics[i]
			if m.Name == "issue" {
				*m, _ = record.FromSamples("issue", "s", "time", []float64{(wqeCost + bellCost + 3*240) * 1e-9})
				m.Headline = true
			}
		}
	}
	contended[0].Config = map[string]string{"order": "gpu-fence", "sharing": "lock", "scope": "qp", "qps": "4", "batch": "1", "plant": "lock"}
	contended[0].ID = record.CaseID(contended[0])
	scale(contended)
	scale(rung)
	floors = slices.DeleteFunc(floors, func(g []*record.Case) bool {
		c := g[0].Config
		return c["sharing"] == "lock" && c["qps"] == "4" && c["order"] == "gpu-fence" && c["scope"] == "qp"
	})
	run := newRun(append(floors, contended, rung)...)
	pose := planted{name: "contended lock", pose: Pose{"minigda", map[string]string{"sharing": "lock", "plant": "lock"}}, metric: "issue"}
	j := pose.judged(t, run)
	if j.Verdict != Inconsistent || len(j.Disagree) == 0 || j.Disagree[0] != QueueSharing {
		t.Errorf("verdict %s, %v; want inconsistent in queue-sharing: %s", j.Verdict, j.Disagree, j.Sentence())
	}
}
