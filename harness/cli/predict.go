package cli

import (
	"encoding/csv"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"gic/harness/attribution/oracle"
	"gic/harness/plan"
)

const helpPredict = `Usage: gic predict [flags]
       gic predict --check [DIR]

Says what the floors, and what is known of the libraries, should take on a platform, from constants
with a source and conditions of validity. Outside them there is no prediction, but the reason.

  $ gic predict
  $ gic predict --workload 'op:size=8|64' --backend 'minigda:order=gpu-fence|sys-release' --explain
  $ gic predict --workload rate:threads=16,size=8 --backend 'minigda:qps=16,batch=1|16'
  $ gic predict --workload 'goodput:size=8..64K*8,threads=64' --backend minigda:qps=64,batch=16
  $ gic predict --platform P-RoCE --workload op --backend ncclgin:path=gdaki --at clock=1e9
  $ gic predict --platform P-H100 --quantity rate_kept --at 'pattern=alltoall,active=256..2048*2'
  $ gic predict --workload moe:model=deepseek-v3,tokens=128,layout=rank --ranks 8..64
  $ gic predict --constants --platform P-H100
  $ gic predict --check results/paper

Workloads and backends are written as for gic run. --at adds what only a platform varies: clock (of
the SMs, Hz), cpu (cold, warm: of a proxy's core), path and api of a library, queues, active, role.
moe is simulated, one NIC per rank. A platform is a name or the path of a file as gic calibrate
writes it. --check holds the platforms against every figure of the paper.
`

type predictFlags struct {
	platforms, workloads, backends words
	quantities                     words
	at, ranks                      string
	seed                           uint64
	format                         oneOf
	explain, check, constants      bool
}

func newPredictFlags() (*flags, *predictFlags) {
	f, p := newFlags("predict"), &predictFlags{format: oneOf{"table", []string{"table", "json", "csv"}}}
	g := f.group("Flags")
	g.Var(&p.platforms, "platform", "predict for platform `NAME|FILE`, default P-IB: "+strings.Join(oracle.Names(), ", ")+"; may be repeated")
	g.Var(&p.workloads, "workload", "predict workload `SPEC`: op, rate, goodput, moe; may be repeated")
	g.Var(&p.backends, "backend", "predict backend `SPEC`; may be repeated")
	g.Var(&p.quantities, "quantity", "predict `NAME` instead of what the workload measures; may be repeated: "+strings.Join(oracle.Quantities(), ", "))
	g.StringVar(&p.at, "at", "", "further conditions, `KEY=V|V,...`")
	g.StringVar(&p.ranks, "ranks", "4..256*4", "ranks of moe, `N|N` or a range; A..B doubles from A to B")
	g.Uint64Var(&p.seed, "seed", 1, "seed of moe's routing, `N`")
	g.Var(&p.format, "format", "how predictions are printed")
	g.BoolVar(&p.explain, "explain", false, "with every number its formula and constants")
	g.BoolVar(&p.constants, "constants", false, "list the platform's constants instead")
	g.BoolVar(&p.check, "check", false, "hold the platforms against the rows of a paper (DIR, default results/paper)")
	return f, p
}

func (a *app) predict(args []string) error {
	f, p := newPredictFlags()
	if err := f.parse(args); err != nil {
		return err
	}
	if f.help {
		return a.commandHelp("predict")
	}
	if p.check {
		return a.predictCheck(p, f.all.Args())
	}
	if f.all.NArg() > 0 {
		return usagef("predict takes no arguments but flags, got %q; workloads are given with --workload", f.all.Arg(0))
	}
	if len(p.platforms) == 0 {
		p.platforms = words{"P-IB"}
	}
	var platforms []*oracle.Platform
	for _, name := range p.platforms {
		pl, err := oracle.Load(name)
		if err != nil {
			return usageError{err}
		}
		platforms = append(platforms, pl)
	}
	if p.constants {
		return a.predictConstants(p, platforms)
	}
	requests, scaled, err := p.requests()
	if err != nil {
		return err
	}
	if len(scaled) > 0 {
		if len(requests) > 0 {
			return usagef("--workload moe is predicted by itself: leave the other workloads to another gic predict")
		}
		return a.predictMoE(p, platforms, scaled)
	}
	var list []*oracle.Prediction
	for _, pl := range platforms {
		for _, q := range requests {
			list = append(list, pl.Predict(q))
		}
	}
	return a.printPredictions(p, platforms, list)
}

// quantitiesOf are what a workload measures.
var quantitiesOf = map[string][]string{
	"op": {"issue", "put_completion", "rtt"}, "rate": {"message_rate"}, "goodput": {"goodput"},
}

// requests expands the flags. Settings of moe come back as they are, one per combination.
func (p *predictFlags) requests() (list []oracle.Query, scaled []oracle.Conditions, err error) {
	specs, backends, at, err := p.parse()
	if err != nil {
		return nil, nil, err
	}
	for _, w := range specs {
		points := combinations(w.Settings)
		for _, b := range backends {
			for _, point := range points {
				for _, config := range combinations(b.Settings) {
					for _, more := range at {
						q := oracle.Conditions{"backend": b.Name}
						for _, m := range []oracle.Conditions{point, config, more} {
							maps.Copy(q, m)
						}
						if w.Name == "moe" {
							scaled = append(scaled, q)
							continue
						}
						for _, quantity := range orDefault(p.quantities, quantitiesOf[w.Name]...) {
							list = append(list, oracle.Query{Quantity: quantity, Conditions: q.WithDefaults()})
						}
					}
				}
			}
		}
	}
	return list, scaled, nil
}

func (p *predictFlags) parse() (specs, backends []plan.Spec, at []oracle.Conditions, err error) {
	known := slices.Sorted(maps.Keys(quantitiesOf))
	known = append(known, "moe")
	for _, q := range p.quantities {
		if !slices.Contains(oracle.Quantities(), q) {
			return nil, nil, nil, usagef("--quantity: %w", plan.UnknownName("quantity", q, oracle.Quantities(), ""))
		}
	}
	standard := []string{"op", "rate", "goodput"}
	if len(p.quantities) > 0 {
		standard = []string{"rate"} // any: it only brings axes
	}
	for _, text := range orDefault(p.workloads, standard...) {
		s, err := plan.ParseSpec(text)
		if err != nil {
			return nil, nil, nil, usagef("--workload: %w", err)
		}
		if !slices.Contains(known, s.Name) {
			return nil, nil, nil, usagef("--workload: %w", plan.UnknownName("workload with a model", s.Name, known, ""))
		}
		if s.Name != "moe" {
			if err := checkKeys("--workload", s); err != nil {
				return nil, nil, nil, err
			}
		}
		specs = append(specs, s)
	}
	for _, text := range orDefault(p.backends, "minigda", "miniproxy") {
		s, err := plan.ParseSpec(text)
		if err != nil {
			return nil, nil, nil, usagef("--backend: %w", err)
		}
		if err := checkKeys("--backend", s); err != nil {
			return nil, nil, nil, err
		}
		backends = append(backends, s)
	}
	if p.at == "" {
		return specs, backends, []oracle.Conditions{nil}, nil
	}
	s, err := plan.ParseSpec("at:" + p.at)
	if err != nil {
		return nil, nil, nil, usagef("--at: %w", err)
	}
	if err := checkKeys("--at", s); err != nil {
		return nil, nil, nil, err
	}
	return specs, backends, combinations(s.Settings), nil
}

func orDefault(given words, otherwise ...string) []string {
	if len(given) > 0 {
		return given
	}
	return otherwise
}

func checkKeys(flag string, s plan.Spec) error {
	for _, x := range s.Settings {
		if err := oracle.CheckKey(x.Key); err != nil {
			return usagef("%s %s: %w", flag, s.Name, err)
		}
	}
	return nil
}

// combinations of all values of the settings, the last setting changing fastest; one empty one for none.
func combinations(settings []plan.Setting) []oracle.Conditions {
	list := []oracle.Conditions{{}}
	for _, s := range settings {
		var longer []oracle.Conditions
		for _, q := range list {
			for _, v := range s.Values {
				longer = append(longer, q.With(s.Key, v))
			}
		}
		list = longer
	}
	return list
}

func (a *app) printPredictions(p *predictFlags, platforms []*oracle.Platform, list []*oracle.Prediction) error {
	switch p.format.value {
	case "json":
		return a.printJSON(list)
	case "csv":
		return a.predictionsCSV(list)
	}
	for i, pl := range platforms {
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		a.printPlatform(pl)
		n := len(list) / len(platforms)
		if mine := list[i*n:][:n]; p.explain {
			a.explain(mine)
		} else {
			a.predictionTable(mine)
		}
	}
	return nil
}

// printPlatform says what the numbers are of.
func (a *app) printPlatform(p *oracle.Platform) {
	fmt.Fprintf(a.stdout, "%s\n", indent(wrap("platform "+p.Name+": "+p.About, width-2), 2))
	fmt.Fprintf(a.stdout, "  %s\n", indent(wrap("constants from "+p.Source, width-2), 2))
	if p.NIC == "soft" || p.Device == "host" {
		fmt.Fprintf(a.stdout, "  %s\n", indent(wrap("nic="+p.NIC+", device="+p.Device+": constants of a software NIC or of host threads support no claim about hardware", width-2), 2))
	}
	fmt.Fprintln(a.stdout)
}

// caseName is the backend and what was asked about it.
func caseName(q oracle.Conditions, hidden oracle.Conditions) string {
	parts := []string{q["backend"]}
	for _, k := range slices.Sorted(maps.Keys(q)) {
		if k != "backend" && hidden[k] != q[k] {
			parts = append(parts, k+"="+q[k])
		}
	}
	return strings.Join(parts, " ")
}

// common are the conditions that all predictions share.
func common(list []*oracle.Prediction) oracle.Conditions {
	shared := maps.Clone(list[0].Conditions)
	for _, p := range list[1:] {
		for k, v := range shared {
			if p.Conditions[k] != v {
				delete(shared, k)
			}
		}
	}
	delete(shared, "backend")
	return shared
}

const caseWidth = 30

func (a *app) predictionTable(list []*oracle.Prediction) {
	shared := common(list)
	if len(shared) > 0 {
		fmt.Fprintf(a.stdout, "all: %s\n\n", indent(wrap(strings.TrimSpace(caseName(shared.With("backend", ""), nil)), width-5), 5))
	}
	t := newTable(a.stdout, "case", "quantity", "expected", "from")
	right := table.ColumnConfig{Number: 3, Align: text.AlignRight, AlignHeader: text.AlignRight}
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 1, WidthMin: caseWidth}, {Number: 2, WidthMin: 14}, right})
	before := ""
	for _, p := range list {
		name := caseName(p.Conditions, shared)
		shown := name
		if name == before {
			shown = ""
		}
		before = name
		value, from := "-", "no prediction: "+p.None
		if p.OK() {
			value, from = oracle.Human(p.Value, p.Unit), p.Formula
		}
		t.AppendRow(table.Row{wrap(shown, caseWidth), p.Quantity, value, wrap(from, width-caseWidth-2-16-16)})
	}
	t.Render()
}

func (a *app) explain(list []*oracle.Prediction) {
	for i, p := range list {
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		head := caseName(p.Conditions, nil) + ", " + p.Quantity
		if p.OK() {
			head += ": " + oracle.Human(p.Value, p.Unit)
		}
		fmt.Fprintln(a.stdout, indent(wrap(head, width-4), 4))
		for _, l := range p.Explain() {
			fmt.Fprintf(a.stdout, "    %s\n", indent(wrap(l, width-6), 6))
		}
	}
}

func (a *app) predictionsCSV(list []*oracle.Prediction) error {
	w := csv.NewWriter(a.stdout)
	w.Write([]string{"platform", "quantity", "conditions", "value", "unit", "no_prediction", "formula", "numbers", "constants"})
	for _, p := range list {
		value := ""
		if p.OK() {
			value = strconv.FormatFloat(p.Value, 'g', -1, 64)
		}
		var used []string
		for _, u := range p.Used {
			used = append(used, u.ID())
		}
		w.Write([]string{p.Platform, p.Quantity, caseName(p.Conditions, nil), value, p.Unit, p.None, p.Formula, p.Numbers, strings.Join(used, "; ")})
	}
	w.Flush()
	return w.Error()
}

func (a *app) predictConstants(p *predictFlags, platforms []*oracle.Platform) error {
	if p.format.value == "json" {
		return a.printJSON(platforms)
	}
	if p.format.value == "csv" {
		return usagef("--constants prints a table or json")
	}
	for i, pl := range platforms {
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		a.printPlatform(pl)
		t := newTable(a.stdout, "constant", "value", "source, arithmetic, validity")
		t.SetColumnConfigs([]table.ColumnConfig{{}, {Number: 2, Align: text.AlignRight, AlignHeader: text.AlignRight}})
		for _, k := range pl.Constants {
			what := strings.TrimPrefix(k.Source, pl.Source+", ")
			for _, s := range []string{k.How, k.Fit} {
				if s != "" {
					what += "; " + s
				}
			}
			if len(k.Valid) > 0 {
				what += "; valid for " + strings.Join(settings(k.Valid), " ")
			}
			t.AppendRow(table.Row{wrap(strings.Join(append([]string{k.Name}, settings(k.For)...), " "), 30), k.Text(), wrap(what, width-48)})
		}
		t.Render()
	}
	return nil
}

// settings are key=value, sorted.
func settings(m map[string]string) []string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, k+"="+m[k])
	}
	return list
}
