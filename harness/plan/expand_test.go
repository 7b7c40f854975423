package plan

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gic/backends"
	"gic/workloads"
)

// toy is a workload with one outer and two inner axes; a=9 makes no sense, and b=get needs the capability.
type toy struct{ name string }

func (w toy) Name() string { return w.name }
func (toy) Doc() string    { return "" }
func (toy) Method() string { return "" }
func (toy) Axes() []workloads.Axis {
	return []workloads.Axis{
		{Key: backends.Key{Name: "a", Default: "1", Allowed: "1..64K"}},
		{Key: backends.Key{Name: "b", Default: "put", Allowed: "put|get"}},
		{Key: backends.Key{Name: "o", Default: "x", Allowed: "x|y"}, Outer: true},
	}
}

type toyJob struct {
	workloads.Job
	needs backends.Caps
}

func (j toyJob) Needs() backends.Caps { return j.needs }

func (toy) Prepare(p workloads.Point, ranks int, seed uint64) (workloads.Job, error) {
	if p["a"] == "9" || ranks < 2 {
		return nil, fmt.Errorf("a=%s with ranks=%d makes no sense", p["a"], ranks)
	}
	j := toyJob{needs: backends.CapPut}
	if p["b"] == "get" {
		j.needs |= backends.CapGet
	}
	return j, nil
}

func toyRequest(t *testing.T, seed uint64, blocks ...string) Request {
	t.Helper()
	key := backends.Key{Name: "q", Default: "1", Allowed: "1..64"}
	r := Request{Suite: &Suite{Name: "s"}, Seed: seed, Ranks: 2, Repeat: 3, Device: "host", NIC: NIC{Kind: "none"},
		Workloads: []workloads.Workload{toy{"w"}, toy{"v"}},
		Backends: []Backend{
			{Name: "full", Info: &backends.Info{Name: "full", Caps: backends.CapPut | backends.CapGet, Keys: []backends.Key{key}}},
			{Name: "puts", Info: &backends.Info{Name: "puts", Caps: backends.CapPut, Keys: []backends.Key{key}}},
			{Name: "absent", Missing: "no such file"},
		}}
	for _, b := range blocks { // "w:a=1|2 <- full puts"
		w, list, _ := strings.Cut(b, " <- ")
		r.Suite.Blocks = append(r.Suite.Blocks, Block{mustSpecs(t, w)[0], mustSpecs(t, strings.Fields(list)...)})
	}
	return r
}

func mustExpand(t *testing.T, r Request) *Plan {
	t.Helper()
	p, err := Expand(r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// records lists what the plan will record, in its order.
func records(p *Plan) []string {
	var list []string
	for _, o := range p.Outers {
		for _, pt := range o.Points {
			list = append(list, fmt.Sprintf("%s{%s} %s{%s} #%d %s", o.Workload, mapKey(pt), o.Backend, mapKey(o.Config), o.Index, o.Skip))
		}
	}
	return list
}

func sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}

func TestExpand(t *testing.T) {
	r := toyRequest(t, 1, "w:a=1|9 <- full:q=2 absent", "w:b=put|get <- puts")
	r.Repeat = 2
	got := sorted(records(mustExpand(t, r)))
	want := []string{
		"w{a=1,b=get,o=x} puts{q=1} #0 puts has no get",
		"w{a=1,b=put,o=x} absent{} #0 no such file",
		"w{a=1,b=put,o=x} full{q=2} #0 ",
		"w{a=1,b=put,o=x} full{q=2} #1 ",
		"w{a=1,b=put,o=x} puts{q=1} #0 ",
		"w{a=1,b=put,o=x} puts{q=1} #1 ",
		"w{a=9,b=put,o=x} absent{} #0 a=9 with ranks=2 makes no sense",
		"w{a=9,b=put,o=x} full{q=2} #0 a=9 with ranks=2 makes no sense",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestExpandErrors(t *testing.T) {
	tests := []struct {
		block, want string
		change      func(*Request)
	}{
		{"x <- full", `unknown workload "x"; known: w, v`, nil},
		{"w <- ful", `unknown backend "ful" (did you mean "full"?); known: full, puts, absent`, nil},
		{"w:c=1 <- full", `workload w has no key "c"; it has: a, b, o`, nil},
		{"w:a=0 <- full", `workload w: a=0 is not allowed; allowed: 1..64K`, nil},
		{"w:b=cat <- full", `workload w: b=cat is not allowed; allowed: put|get`, nil},
		{"w <- full:q=65", `backend full: q=65 is not allowed; allowed: 1..64`, nil},
		{"w <- full:r=1", `backend full has no key "r"; it has: q`, nil},
		{"w:a=9 <- full", `nothing to run: a=9 with ranks=2 makes no sense`, nil},
		{"w <- full", `nothing to run: a=1 with ranks=1 makes no sense`, func(r *Request) { r.Ranks = 1 }},
		{"w <- full", `--ranks 0 is not allowed`, func(r *Request) { r.Ranks = 0 }},
		{"w <- full", `--repeat 0 is not allowed`, func(r *Request) { r.Repeat = 0 }},
	}
	for _, tt := range tests {
		r := toyRequest(t, 1, tt.block)
		if tt.change != nil {
			tt.change(&r)
		}
		if _, err := Expand(r); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.block, err, tt.want)
		}
	}
	if _, err := Expand(toyRequest(t, 1, "w:a=1..4096 <- full:q=1..64 puts:q=1..64", "v:a=1..4096,b=put|get,o=x|y <- full:q=1..64")); err == nil || !strings.Contains(err.Error(), "more than 1048576 points") {
		t.Errorf("a plan that is too large: %v", err)
	}
}

// A backend of a block may run on a NIC of its own: nic.<key> of its spec, on what --nic gives.
func TestNICOfABackend(t *testing.T) {
	r := toyRequest(t, 1, "w:a=1|2 <- full:nic.engine=cpu|gpu,q=2 puts", "w:a=1 <- full:q=2")
	r.Repeat = 1
	nic, err := ParseNIC("soft:threads=2", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.NIC = nic
	var asked []string
	r.Probe = func(name string, setups []Setup) []Refusal {
		for _, s := range setups {
			asked = append(asked, fmt.Sprintf("%s{%s} %s", name, mapKey(s.Config), s.NIC))
		}
		return make([]Refusal, len(setups))
	}
	var got []string
	for _, o := range mustExpand(t, r).Outers {
		got = append(got, fmt.Sprintf("%s{%s} %s: %d points", o.Backend, mapKey(o.Config), o.NIC, len(o.Points)))
		if len(o.NIC.Config) != len(nic.Config) {
			t.Errorf("%s: NIC with the keys %v", o.Backend, o.NIC.Config)
		}
	}
	want := []string{
		"full{q=2} soft:engine=gpu,threads=2: 2 points", "full{q=2} soft:threads=2: 2 points", "puts{q=1} soft:threads=2: 2 points",
	}
	if d := cmp.Diff(want, sorted(got)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	want = []string{"full{q=2} soft:engine=gpu,threads=2", "full{q=2} soft:threads=2", "puts{q=1} soft:threads=2"}
	if d := cmp.Diff(want, sorted(asked)); d != "" {
		t.Errorf("asked (-want +got):\n%s", d)
	}
	for block, want := range map[string]string{
		"w <- full:nic.engine=fpga": "backend full, --nic soft: engine=fpga is not allowed; allowed: cpu|gpu",
		"w <- full:nic.speed=1":     `backend full, --nic soft has no key "speed"`,
	} {
		r := toyRequest(t, 1, block)
		r.NIC = nic
		if _, err := Expand(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", block, err, want)
		}
	}
	none := toyRequest(t, 1, "w <- full:nic.engine=gpu")
	if _, err := Expand(none); err == nil || err.Error() != "backend full: nic.engine is a key of --nic soft; it cannot go with --nic none" {
		t.Errorf("--nic none: error %v", err)
	}
}

func TestProbeIsAskedOncePerBackend(t *testing.T) {
	r := toyRequest(t, 1, "w:a=1..8 <- full:q=1|2 puts absent", "v:o=x|y <- full:q=2|3 puts")
	asked := map[string][]string{}
	r.Probe = func(name string, setups []Setup) []Refusal {
		refusals := make([]Refusal, len(setups))
		for i, s := range setups {
			asked[name] = append(asked[name], mapKey(s.Config))
			if s.Config["q"] == "3" {
				refusals[i] = Refusal{"three is too many", true}
			}
		}
		return refusals
	}
	p := mustExpand(t, r)
	want := map[string][]string{"full": {"q=1", "q=2", "q=3"}, "puts": {"q=1"}}
	if d := cmp.Diff(want, asked); d != "" {
		t.Errorf("asked (-want +got):\n%s", d)
	}
	for _, o := range p.Outers {
		if want := o.Config["q"] == "3"; want != (o.Skip == "three is too many") && o.Backend != "absent" {
			t.Errorf("%s{%s}: skip %q", o.Backend, mapKey(o.Config), o.Skip)
		}
	}
}

// A plan whose every configuration makes no sense is the caller's error; one that only cannot run here is not.
func TestPlanOfInvalidConfigurations(t *testing.T) {
	for invalid, want := range map[bool]string{true: "nothing to run: full: q and w clash", false: ""} {
		r := toyRequest(t, 1, "w:a=1|2 <- full:q=1|2")
		r.Probe = func(_ string, setups []Setup) []Refusal {
			return slices.Repeat([]Refusal{{"q and w clash", invalid}}, len(setups))
		}
		p, err := Expand(r)
		if got := fmt.Sprint(err); want != "" && got != want {
			t.Errorf("invalid %v: error %v, want %q", invalid, err, want)
		}
		if want == "" && (err != nil || len(p.Outers) != 2 || p.Outers[0].Skip != "q and w clash") {
			t.Errorf("invalid %v: %+v, %v", invalid, p, err)
		}
	}
}

// randomRequest makes a request of a few overlapping blocks.
func randomRequest(t *testing.T, rng *rand.Rand) Request {
	pick := func(list ...string) string {
		n := 1 + rng.IntN(len(list))
		rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		return strings.Join(list[:n], "|")
	}
	var blocks []string
	for range 1 + rng.IntN(4) {
		blocks = append(blocks, fmt.Sprintf("%s:a=1|%s,b=%s,o=%s <- full:q=%s puts:q=%s absent", pick("w", "v")[:1],
			pick("2", "4K", "4096", "9"), pick("put", "get"), pick("x", "y"), pick("1", "2", "3"), pick("1", "5")))
	}
	r := toyRequest(t, rng.Uint64(), blocks...)
	r.Repeat = 1 + rng.IntN(4)
	return r
}

// TestExpandProperties holds what every plan must be, over random requests.
func TestExpandProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		r := randomRequest(t, rng)
		p := mustExpand(t, r)
		if d := cmp.Diff(p, mustExpand(t, r)); d != "" {
			t.Fatalf("the same request gives another plan:\n%s", d)
		}
		list := records(p)
		if len(list) != p.Records() {
			t.Fatalf("Records() = %d, the plan has %d", p.Records(), len(list))
		}
		seen := map[string]int{}
		for _, l := range list {
			if seen[l]++; seen[l] > 1 {
				t.Fatalf("planned twice: %s", l)
			}
		}
		checkRepeats(t, p)
		checkGroups(t, p)
		other := r
		other.Seed++
		q := mustExpand(t, other)
		if d := cmp.Diff(sorted(list), sorted(records(q))); d != "" {
			t.Fatalf("another seed changes more than the order:\n%s", d)
		}
	}
}

// checkRepeats: what runs, runs once in every process run; what is skipped, is there once.
func checkRepeats(t *testing.T, p *Plan) {
	t.Helper()
	runs := map[string][]int{}
	for _, o := range p.Outers {
		if len(o.Points) == 0 {
			t.Fatalf("an outer without points: %+v", o)
		}
		for _, pt := range o.Points {
			key := fmt.Sprintf("%s{%s} %s{%s} %s", o.Workload, mapKey(pt), o.Backend, mapKey(o.Config), o.Skip)
			runs[key] = append(runs[key], o.Index)
		}
	}
	for key, indexes := range runs {
		want := []int{0}
		if strings.HasSuffix(key, "} ") {
			want = nil
			for i := range p.Repeat {
				want = append(want, i)
			}
		}
		if !slices.Equal(indexes, want) {
			t.Fatalf("%s is in process runs %v, want %v", key, indexes, want)
		}
	}
}

// checkGroups: within a process run, what is compared with each other (one workload at one outer point) runs
// side by side.
func checkGroups(t *testing.T, p *Plan) {
	t.Helper()
	closed := map[string]bool{}
	last := ""
	for _, o := range p.Outers {
		if o.Skip != "" {
			continue
		}
		group := fmt.Sprintf("%d %s o=%s", o.Index, o.Workload, o.Points[0]["o"])
		for _, pt := range o.Points {
			if pt["o"] != o.Points[0]["o"] {
				t.Fatalf("one process run holds two values of the outer axis: %+v", o)
			}
		}
		if group != last {
			if closed[group] {
				t.Fatalf("group %s is torn apart", group)
			}
			closed[last], last = true, group
		}
	}
}

func TestOrderIsShuffledPerProcessRun(t *testing.T) {
	r := toyRequest(t, 7, "w:a=1..8 <- full:q=1..8")
	r.Repeat = 2
	p := mustExpand(t, r)
	order := func(index int) (outers, points []string) {
		for _, o := range p.Outers {
			if o.Index != index {
				continue
			}
			outers = append(outers, o.Config["q"])
			if o.Backend == "full" && o.Config["q"] == "1" {
				for _, pt := range o.Points {
					points = append(points, pt["a"])
				}
			}
		}
		return outers, points
	}
	o0, p0 := order(0)
	o1, p1 := order(1)
	if slices.Equal(o0, o1) || slices.Equal(p0, p1) || slices.IsSorted(o0) && slices.IsSorted(o1) {
		t.Errorf("not shuffled: outers %v, %v; points %v, %v", o0, o1, p0, p1)
	}
	// Another backend in the plan leaves the order of these points as it was.
	with := toyRequest(t, 7, "w:a=1..8 <- full:q=1..8 puts")
	with.Repeat = 2
	p = mustExpand(t, with)
	if _, again := order(0); !slices.Equal(p0, again) {
		t.Errorf("the order of points depends on other backends: %v, then %v", p0, again)
	}
}

func TestEveryBackendConfigurationTakesEveryPlace(t *testing.T) {
	// Over many process runs no configuration is always early or always late.
	r := toyRequest(t, 3, "w <- full:q=1|2|3|4")
	r.Repeat = 400
	places := map[string]map[int]int{}
	at := 0
	for i, o := range mustExpand(t, r).Outers {
		if i%4 == 0 {
			at = 0
		}
		if places[o.Config["q"]] == nil {
			places[o.Config["q"]] = map[int]int{}
		}
		places[o.Config["q"]][at]++
		at++
	}
	for q, m := range places {
		for place := range 4 {
			if n := m[place]; n < 60 || n > 140 { // 100 expected; 60 and 140 are 4.6 sigma
				t.Errorf("q=%s runs %d times of 400 at place %d: %v", q, n, place, slices.Sorted(maps.Keys(m)))
			}
		}
	}
}
