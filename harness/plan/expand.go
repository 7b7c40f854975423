package plan

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"gic/backends"
	"gic/workloads"
)

// Backend is what the plan must know of a backend.
type Backend struct {
	Name string
	// Info is nil when the backend cannot be described here; Missing then says why.
	Info    *backends.Info
	Missing string
	// Hidden backends are not listed among the known ones.
	Hidden bool
}

// Request is what is asked of a run.
type Request struct {
	Suite         *Suite
	Seed          uint64
	Ranks, Repeat int
	NIC           NIC
	Device        string
	InProcess     int // ranks of a process; 0 and 1: each has its own
	Workloads     []workloads.Workload
	Backends      []Backend
	// Probe says for setups of one backend why each cannot run here. It is asked once per backend with all its
	// setups. Nil asks nothing.
	Probe func(backend string, setups []Setup) []Refusal
}

// Setup is a backend's configuration and the NIC under it.
type Setup struct {
	Config map[string]string
	NIC    NIC
}

// Refusal is why a configuration cannot run here; Reason is empty when it can. Invalid: it makes no sense on any
// machine.
type Refusal struct {
	Reason  string
	Invalid bool
}

// cell is one outer case before it is repeated: its points still in the order of the suite.
type cell struct {
	workload, backend string
	config            map[string]string
	nic               NIC
	group             string // workload and outer axes: what is compared with each other, and so run together
	points            []workloads.Point
	nonsense          []string // beside points: why no backend could run it
	lacks             []string // beside points: what this backend does not have
	skip              string   // why none of the cell runs here
	invalid           bool     // and that it would run nowhere
	seen              map[string]bool
}

// reason says why a point will not run, "" when it will. What would make the row run is said before what the
// backend, were it here, could not do.
func (c *cell) reason(i int) string {
	for _, r := range []string{c.nonsense[i], c.skip, c.lacks[i]} {
		if r != "" {
			return r
		}
	}
	return ""
}

func (c *cell) key() string { return c.group + " " + c.backend + " " + c.setup() }

// setup spells configuration and NIC in one way.
func (c *cell) setup() string { return mapKey(c.config) + " " + mapKey(c.nic.Config) }

// mapKey spells a map in one way.
func mapKey(m map[string]string) string {
	var b strings.Builder
	for i, k := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(k + "=" + m[k])
	}
	return b.String()
}

// Expand makes the plan of a request. Every case appears once however often the suite names it. What is known
// not to run here becomes one Outer with Skip set, for process run 0 only; everything else appears once per
// repeat. A plan in which nothing makes sense is an error.
func Expand(r Request) (*Plan, error) {
	if r.Ranks < 1 || r.Ranks > MaxRanks {
		return nil, fmt.Errorf("--ranks %d is not allowed; allowed: 1..%d", r.Ranks, MaxRanks)
	}
	if r.Repeat < 1 || r.Repeat > MaxRepeat {
		return nil, fmt.Errorf("--repeat %d is not allowed; allowed: 1..%d", r.Repeat, MaxRepeat)
	}
	cells, err := r.cells()
	if err != nil {
		return nil, err
	}
	if err := sensible(cells); err != nil {
		return nil, err // before anything is asked of a backend
	}
	r.probe(cells)
	if err := sensible(cells); err != nil {
		return nil, err
	}
	p := &Plan{Suite: r.Suite.Name, Seed: r.Seed, Ranks: r.Ranks, Repeat: r.Repeat, InProcess: r.InProcess}
	for _, c := range cells {
		p.Outers = append(p.Outers, r.skipped(c)...)
	}
	for i := range r.Repeat {
		p.Outers = append(p.Outers, r.processRuns(cells, i)...)
	}
	return p, nil
}

// Limits that catch typing errors.
const (
	MaxRanks  = 256
	MaxRepeat = 10000
	maxPoints = 1 << 20
)

func (r *Request) cells() ([]*cell, error) {
	var cells []*cell
	index := map[string]*cell{}
	count := 0
	for _, b := range r.Suite.Blocks {
		points, err := r.points(b.Workload)
		if err != nil {
			return nil, err
		}
		for _, spec := range b.Backends {
			spec, nics, err := r.nics(spec)
			if err != nil {
				return nil, err
			}
			back, settings, err := r.backend(spec)
			if err != nil {
				return nil, err
			}
			if count += combinations(settings) * len(nics) * len(points); count > maxPoints {
				return nil, fmt.Errorf("the plan has more than %d points; sweep fewer values", maxPoints)
			}
			err = product(settings, func(config map[string]string) error {
				for _, nic := range nics {
					for _, pt := range points {
						c := &cell{workload: b.Workload.Name, backend: spec.Name, config: config, nic: nic, group: pt.group}
						if old := index[c.key()]; old != nil {
							c = old
						} else {
							c.skip, c.seen = back.Missing, map[string]bool{}
							index[c.key()] = c
							cells = append(cells, c)
						}
						c.add(pt, back)
					}
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return cells, nil
}

// point is a combination of axis values with what its workload says of it.
type point struct {
	workloads.Point
	key, group string
	reason     string
	needs      backends.Caps
	whole      backends.Caps // instead: of a backend that has the job as operations of its own
}

func (c *cell) add(pt point, back Backend) {
	if c.seen[pt.key] {
		return
	}
	c.seen[pt.key] = true
	lacks := ""
	if back.Info != nil {
		whole := pt.whole != 0 && pt.whole&^back.Info.Caps == 0
		if missing := pt.needs &^ back.Info.Caps; missing != 0 && !whole {
			lacks = fmt.Sprintf("%s has no %s", back.Name, strings.Join(missing.Names(), ", "))
		}
	}
	c.points = append(c.points, pt.Point)
	c.nonsense = append(c.nonsense, pt.reason)
	c.lacks = append(c.lacks, lacks)
}

func (r *Request) points(spec Spec) ([]point, error) {
	w, err := r.workload(spec.Name)
	if err != nil {
		return nil, err
	}
	axes := w.Axes()
	keys := make([]backends.Key, len(axes))
	for i, a := range axes {
		keys[i] = a.Key
	}
	settings, err := resolve("workload "+spec.Name, keys, spec.Settings)
	if err != nil {
		return nil, err
	}
	if combinations(settings) > maxPoints {
		return nil, fmt.Errorf("workload %s has more than %d points; sweep fewer values", spec.Name, maxPoints)
	}
	var points []point
	err = product(settings, func(m map[string]string) error {
		pt := point{Point: m, key: mapKey(m), group: spec.Name}
		for _, a := range axes {
			if a.Outer {
				pt.group += "," + a.Name + "=" + m[a.Name]
			}
		}
		if job, err := w.Prepare(m, r.Ranks, r.Seed); err != nil {
			pt.reason = err.Error()
		} else {
			pt.needs, pt.whole = job.Needs(), workloads.WholeCaps(job)
		}
		points = append(points, pt)
		return nil
	})
	return points, err
}

func (r *Request) workload(name string) (workloads.Workload, error) {
	known := make([]string, len(r.Workloads))
	for i, w := range r.Workloads {
		if known[i] = w.Name(); known[i] == name {
			return w, nil
		}
	}
	return nil, UnknownName("workload", name, known, "")
}

func (r *Request) backend(spec Spec) (Backend, []Setting, error) {
	var known []string
	for _, b := range r.Backends {
		if b.Name != spec.Name {
			if !b.Hidden {
				known = append(known, b.Name)
			}
			continue
		}
		if b.Info == nil {
			return b, spec.Settings, nil
		}
		keys := b.Info.Keys
		if keys == nil {
			keys = []backends.Key{} // none, as opposed to not known
		}
		settings, err := resolve("backend "+spec.Name, keys, spec.Settings)
		return b, settings, err
	}
	return Backend{}, nil, UnknownName("backend", spec.Name, known, "")
}

// sensible refuses a plan in which no point makes sense: the first reason says what to change.
func sensible(cells []*cell) error {
	first := ""
	for _, c := range cells {
		for _, reason := range c.nonsense {
			if reason == "" && c.invalid {
				reason = c.backend + ": " + c.skip
			}
			if reason == "" {
				return nil
			}
			if first == "" {
				first = reason
			}
		}
	}
	return fmt.Errorf("nothing to run: %s", first)
}

// probe asks every backend once about all its configurations.
func (r *Request) probe(cells []*cell) {
	if r.Probe == nil {
		return
	}
	type entry struct {
		key   string
		cells []*cell
	}
	var names []string
	byBackend := map[string][]*entry{}
	for _, c := range cells {
		if c.skip != "" {
			continue
		}
		if byBackend[c.backend] == nil {
			names = append(names, c.backend)
		}
		key := c.setup()
		list := byBackend[c.backend]
		i := slices.IndexFunc(list, func(e *entry) bool { return e.key == key })
		if i < 0 {
			i = len(list)
			list = append(list, &entry{key: key})
		}
		list[i].cells = append(list[i].cells, c)
		byBackend[c.backend] = list
	}
	for _, name := range names {
		list := byBackend[name]
		setups := make([]Setup, len(list))
		for i, e := range list {
			setups[i] = Setup{e.cells[0].config, e.cells[0].nic}
		}
		for i, refusal := range r.Probe(name, setups) {
			for _, c := range list[i].cells {
				c.skip, c.invalid = refusal.Reason, refusal.Invalid
			}
		}
	}
}

func (r *Request) outer(c *cell, index int) Outer {
	return Outer{Workload: c.workload, Backend: c.backend, Config: c.config, NIC: c.nic, Device: r.Device,
		Ranks: r.Ranks, Index: index, Seed: r.Seed, Group: c.group}
}

// skipped gives the outers of a cell that will not run, one per reason, in the order of the suite.
func (r *Request) skipped(c *cell) []Outer {
	var outers []Outer
	for i, pt := range c.points {
		reason := c.reason(i)
		if reason == "" {
			continue
		}
		at := slices.IndexFunc(outers, func(o Outer) bool { return o.Skip == reason })
		if at < 0 {
			at = len(outers)
			outers = append(outers, r.outer(c, 0))
			outers[at].Skip = reason
		}
		outers[at].Points = append(outers[at].Points, pt)
	}
	return outers
}

// processRuns gives process run number index of every cell that can run. Those that are compared with each other
// stay together, so that a machine that drifts meets all of them alike; their order, the order of the groups and
// the order of the points are shuffled anew for each process run.
func (r *Request) processRuns(cells []*cell, index int) []Outer {
	var groups []string
	members := map[string][]Outer{}
	for _, c := range cells {
		o := r.outer(c, index)
		for i, pt := range c.points {
			if c.reason(i) == "" {
				o.Points = append(o.Points, pt)
			}
		}
		if len(o.Points) == 0 {
			continue
		}
		shuffle(r.random(index, c.key()), o.Points)
		if members[c.group] == nil {
			groups = append(groups, c.group)
		}
		members[c.group] = append(members[c.group], o)
	}
	shuffle(r.random(index, "groups"), groups)
	var outers []Outer
	for _, g := range groups {
		shuffle(r.random(index, "group "+g), members[g])
		outers = append(outers, members[g]...)
	}
	return outers
}

// random gives a generator that depends on the seed, the process run and what is shuffled, and on nothing else:
// adding a backend leaves the order of another's points as it was.
func (r *Request) random(index int, what string) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s", index, what)
	return rand.New(rand.NewPCG(r.Seed, h.Sum64()))
}

func shuffle[T any](rng *rand.Rand, s []T) {
	rng.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
}
