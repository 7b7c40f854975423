package attribution

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gic/harness/plan"
)

// Options say what is analysed and how.
type Options struct {
	Libraries []*Library // nil: the built-in ones
	Poses     []Pose
	// Keep says which rows are asked for; nil takes all. The other rows still serve as floors and rungs.
	Keep  func(*Row) bool
	Order []string
	// Methods beside the ladder and the counts.
	Methods []Method
}

// Analysis is everything that is said of one run.
type Analysis struct {
	Run        *Run
	Judgements []*Judgement
	Unsplit    []Unsplit
	// Projections are of libraries that have no row here.
	Projections []Projection
	Effects     []Effect
	Costs       []Cost
	Findings    []Finding
}

// Analyse splits every gap of a run by every method.
func Analyse(run *Run, o Options) (*Analysis, error) {
	libraries := o.Libraries
	if libraries == nil {
		var err error
		if libraries, err = Libraries(); err != nil {
			return nil, err
		}
	}
	if err := CheckOrder(o.Order); err != nil {
		return nil, err
	}
	run.libraries = libraries
	a := &Analysis{Run: run, Effects: run.Effects(o.Keep), Costs: run.Costs(), Findings: run.Lint(o.Keep)}
	methods := append([]Method{Ladder{Order: o.Order}, Counts{}}, o.Methods...)
	var gaps []*Gap
	gaps, a.Unsplit = run.Gaps(libraries, o.Poses, o.Keep)
	if o.Keep == nil {
		a.Projections = run.Projections(libraries, gaps)
	}
	for _, g := range gaps {
		j, err := Judge(g, methods...)
		if err != nil {
			return nil, err
		}
		a.Judgements = append(a.Judgements, j)
	}
	return a, nil
}

// Ladder is the ladder's account; nil if it sees nothing.
func (j *Judgement) Ladder() *Split {
	i := slices.IndexFunc(j.Accounts, func(a Account) bool { return a.Method == Ladder{}.Name() })
	if i < 0 {
		return nil
	}
	return j.Accounts[i].Split
}

// Readings are what the library's file says of the residual at this gap's metric.
func (g *Gap) Readings() []Remark {
	if g.Library == nil {
		return nil
	}
	var out []Remark
	for _, r := range g.Library.Remainder {
		if acts(nil, r.Metrics, g) {
			out = append(out, r)
		}
	}
	return out
}

// Eliminated is the range of the residual where a source assigns all of it to a remark's term. ok is false where none
// does, or where another documented choice has no rung.
func (s *Split) Eliminated(r Remark) (low, high Femto, ok bool) {
	if s == nil || !r.ByElimination {
		return 0, 0, false
	}
	for _, c := range s.Missing {
		if n := termOfKey(s.Gap.Floor.Backend(), c.Key); n != r.Term && !slices.Contains(r.Together, n) {
			return 0, 0, false
		}
	}
	if s.ResidualSpread != nil {
		return s.ResidualSpread.Low, s.ResidualSpread.High, true
	}
	return s.Residual.Value, s.Residual.Value, true
}

// Name of the library for people.
func (g *Gap) Name() string {
	if g.Library == nil {
		return g.Row.Label() + " (posing)"
	}
	var own []string
	c := g.Row.First()
	for _, kv := range sorted(c.Config) {
		k, v, _ := strings.Cut(kv, "=")
		if _, matched := g.Library.Match.Config[k]; !matched && g.Row.Run.tells(c.Backend, k, v) {
			own = append(own, kv)
		}
	}
	return strings.Join(append([]string{g.Library.Title}, own...), " ")
}

// MissingRungs is the command that measures the rungs that a run lacks; "" where nothing is missing or no command can
// (an imported row is not measured again).
func (j *Judgement) MissingRungs() string {
	s := j.Ladder()
	g := j.Gap
	if s == nil || len(s.Missing) == 0 || g.Row.Imported() {
		return ""
	}
	var keys []string
	choices := append(slices.Clone(s.Missing), toggled(s)...)
	for _, c := range choices {
		keys = append(keys, fmt.Sprintf("%s=%s|%s", c.Key, g.Floor.Config(c.Key), c.Value))
	}
	f := g.Floor.First()
	for _, k := range slices.Sorted(maps.Keys(f.Config)) { // the floor's own, so many queues say
		if g.Run.tells(f.Backend, k, f.Config[k]) && !slices.ContainsFunc(choices, func(c Choice) bool { return c.Key == k }) {
			keys = append(keys, k+"="+f.Config[k])
		}
	}
	var axes []string
	for _, kv := range sorted(f.Axes) {
		k, v, _ := strings.Cut(kv, "=")
		if def, known := g.Run.Header.AxisDefaults[f.Workload][k]; !known || v != def {
			axes = append(axes, kv)
		}
	}
	return fmt.Sprintf("gic run%s --workload '%s:%s' --backend '%s:%s'", g.place(), f.Workload, strings.Join(axes, ","),
		f.Backend, strings.Join(keys, ","))
}

// place are the flags of gic run that say where a gap's rows were measured.
func (g *Gap) place() string {
	c := g.Floor.First()
	flags := ""
	if c.Device != "host" {
		flags += " --device " + c.Device
	}
	var nic []string
	for _, k := range plan.NICKeys() {
		if v := c.NICConfig[k.Name]; k.Name != "profile" && k.Name != "trace" && v != "" && v != k.Default {
			nic = append(nic, k.Name+"="+v)
		}
	}
	switch {
	case c.NIC != "soft":
		flags += " --nic " + c.NIC
	case len(nic) > 0:
		flags += " --nic soft:" + strings.Join(nic, ",")
	}
	if p := c.NICConfig["profile"]; p != "" && p != "none" {
		flags += " --nic-profile " + p
	}
	if c.Ranks != 2 {
		flags += fmt.Sprintf(" --ranks %d", c.Ranks)
	}
	if c.Seed != 1 {
		flags += fmt.Sprintf(" --seed %d", c.Seed)
	}
	return flags
}

// toggled are the choices that have a rung already.
func toggled(s *Split) []Choice {
	var out []Choice
	for _, c := range s.Gap.choices() {
		if slices.ContainsFunc(s.Parts, func(p Part) bool { return strings.HasPrefix(p.What, c.Key+" ") }) {
			out = append(out, c)
		}
	}
	return out
}
