package cli

import (
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"gic/harness/attribution/oracle"
	"gic/harness/attribution/oracle/scale"
	"gic/harness/plan"
	"gic/workloads/moe"
)

// moeAxes are the axes of the workload, taken out of the settings; iterations and warmup change no prediction.
var moeAxes = []string{"model", "hidden", "experts", "topk", "tokens", "layout", "routing", "masked", "threads", "iterations", "warmup"}

// scaledAnswer is an answer with its question.
type scaledAnswer struct {
	Case string `json:"case"`
	*scale.Answer
	Experts int `json:"experts"`
}

func (a *app) predictMoE(p *predictFlags, platforms []*oracle.Platform, settings []oracle.Conditions) error {
	ranks := p.ranks
	if low, high, ok := strings.Cut(ranks, ".."); ok && !strings.ContainsAny(low, "|+*") && !strings.ContainsAny(high, "|+*") {
		ranks += "*2"
	}
	spec, err := plan.ParseSpec("ranks:ranks=" + ranks)
	if err != nil {
		return usagef("--ranks %s: %w", p.ranks, err)
	}
	var answers []scaledAnswer
	for _, pl := range platforms {
		for _, q := range settings {
			for _, text := range spec.Settings[0].Values {
				ranks, err := strconv.Atoi(text)
				if err != nil || ranks < 2 || ranks > 4096 {
					return usagef("--ranks %s is not allowed: 2..4096", text)
				}
				m, name, err := p.moe(q, ranks)
				if err != nil {
					return err
				}
				if ranks >= 1024 {
					fmt.Fprintf(a.stderr, "simulating %d ranks on %s\n", ranks, pl.Name)
				}
				answer, err := scale.Predict(pl, m)
				if err != nil {
					return usagef("moe: %w", err)
				}
				answers = append(answers, scaledAnswer{name, answer, m.Routing.Experts})
			}
		}
	}
	switch p.format.value {
	case "json":
		return a.printJSON(answers)
	case "csv":
		return a.moeCSV(answers)
	}
	for i, pl := range platforms {
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		a.printPlatform(pl)
		n := len(answers) / len(platforms)
		a.moeTable(answers[i*n:][:n], p.explain)
	}
	return nil
}

// moe makes the question of a combination of settings. Of a model with too few experts for the ranks there are more.
func (p *predictFlags) moe(q oracle.Conditions, ranks int) (*scale.MoE, string, error) {
	values := map[string]string{}
	rest := oracle.Conditions{}
	for k, v := range q {
		rest[k] = v
	}
	for _, axis := range (moe.Workload{}).Axes() {
		values[axis.Name] = axis.Default
	}
	name := []string{q["backend"]}
	for _, axis := range moeAxes {
		if v, given := q[axis]; given {
			values[axis] = v
			delete(rest, axis)
		}
	}
	for _, k := range settings(q) {
		if !strings.HasPrefix(k, "backend=") {
			name = append(name, k)
		}
	}
	delete(rest, "backend")
	for k := range rest {
		if err := oracle.CheckKey(k); err != nil {
			return nil, "", usagef("moe: %w; axes: %s", err, strings.Join(moeAxes, ", "))
		}
	}
	m, err := scale.FromAxes(values, ranks, p.seed, true)
	if err != nil {
		return nil, "", usagef("moe: %w", err)
	}
	m.Backend, m.Settings = q["backend"], rest
	return m, strings.Join(name, " "), nil
}

func (a *app) moeTable(answers []scaledAnswer, explain bool) {
	for i := 0; i < len(answers); {
		name := answers[i].Case
		fmt.Fprintf(a.stdout, "%s\n", indent(wrap("moe: "+name, width-4), 4))
		t := newTable(a.stdout, "ranks", "experts", "active", "slowdown", "dispatch", "combine", "messages", "events")
		var right []table.ColumnConfig
		for n := 1; n <= 8; n++ {
			right = append(right, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight})
		}
		t.SetColumnConfigs(right)
		first := answers[i]
		var notes []string
		for ; i < len(answers) && answers[i].Case == name; i++ {
			x := answers[i]
			slowdown, dispatch, combine := fmt.Sprintf("%.3g", x.Slowdown), oracle.Human(x.Dispatch, "s"), oracle.Human(x.Combine, "s")
			switch {
			case x.Bound:
				slowdown, dispatch, combine = "-", ">= "+dispatch, ">= "+combine
				notes = append(notes, fmt.Sprintf("ranks=%d: no prediction, but a bound without what active connections cost: %s", x.Ranks, x.None))
			case x.None != "":
				slowdown, dispatch, combine = "-", "-", "-"
				if n := "no prediction: " + x.None; !slices.Contains(notes, n) {
					notes = append(notes, n)
				}
			}
			row := table.Row{x.Ranks, x.Experts, x.Active, slowdown, dispatch, combine, x.Messages, x.Events}
			if x.None != "" && !x.Bound { // nothing was simulated
				row = table.Row{x.Ranks, x.Experts, "-", "-", "-", "-", "-", "-"}
			}
			t.AppendRow(row)
		}
		t.Render()
		for _, n := range notes {
			fmt.Fprintf(a.stdout, "  %s\n", indent(wrap(n, width-4), 4))
		}
		if explain {
			for _, u := range first.Used {
				line := u.ID() + " = " + u.Text() + "; " + u.Source
				if u.How != "" {
					line += ": " + u.How
				}
				fmt.Fprintf(a.stdout, "    %s\n", indent(wrap(line, width-6), 6))
			}
		}
		fmt.Fprintln(a.stdout)
	}
	fmt.Fprintln(a.stdout, wrap("dispatch: until the last rank has its last signal; combine: likewise, without the reduction. Copies of rows that stay and the experts' work are not in it. messages are dispatch's, signals included; events both halves'. active: connections that each NIC cycles through; slowdown: what they do to its time per message.", width))
}

func (a *app) moeCSV(answers []scaledAnswer) error {
	w := csv.NewWriter(a.stdout)
	w.Write([]string{"platform", "case", "ranks", "experts", "active", "slowdown", "dispatch", "combine", "messages", "bytes", "events", "bound", "no_prediction", "routing_hash"})
	for _, x := range answers {
		w.Write([]string{x.Platform, x.Case, fmt.Sprint(x.Ranks), fmt.Sprint(x.Experts), fmt.Sprint(x.Active), fmt.Sprint(x.Slowdown), fmt.Sprint(x.Dispatch),
			fmt.Sprint(x.Combine), fmt.Sprint(x.Messages), fmt.Sprint(x.Bytes), fmt.Sprint(x.Events), fmt.Sprint(x.Bound), x.None, x.Hash})
	}
	w.Flush()
	return w.Error()
}
