package html

import (
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"

	"gic/harness/plot"
	"gic/harness/record"
	"gic/harness/report"
	"gic/harness/report/figures"
)

// pageData is what the template sees.
type pageData struct {
	Title, Gic, Policy string
	Style              template.CSS
	Script             template.JS
	Errors             []string
	MoreErrors         int
	Runs               []runData
	Sections           []Section
	Files              []fileData
}

type runData struct {
	*report.RunView
	ID        string // prefix of ids
	Name      string
	Only      bool // the page holds this run alone
	Headlines []report.Headline
	Missing   []figures.Missing
	Figures   []figureGroup
	Sections  []sectionData
	Idle      []idle
	Methods   []method
	Machines  []machine
	Libraries []loaded
	Env       []record.KeyValue
	Command   string
}

type figureGroup struct {
	Kind    string
	Figures []figureData
}

type figureData struct {
	figures.Figure
	SVG template.HTML
}

type sectionData struct {
	*report.SectionView
	ID       string
	Counters *counterTable // nil if no row has any
}

// idle is why rows have no number or support no claim.
type idle struct {
	Status               record.Status
	Label, Where, Reason string
	Cells                int
}

type method struct{ Workload, Text string }

type machine struct {
	Title string
	Facts []record.KeyValue
}

// run is all that the page says of a run.
func (p *Page) run(i int) runData {
	d := p.facts(i)
	d.Missing, d.Figures = p.sets[i].Missing, groupFigures(p.sets[i].Figures)
	for j := range d.RunView.Sections {
		s := &d.RunView.Sections[j]
		section := sectionData{SectionView: s, ID: fmt.Sprintf("%s-table-%d", d.ID, j+1)}
		if i < len(p.counters) {
			section.Counters = p.counters[i].table(s)
		}
		d.Sections = append(d.Sections, section)
		d.Headlines = append(d.Headlines, s.Headlines()...)
	}
	d.Idle = idleRows(d.RunView)
	return d
}

// facts are what the run is and what it ran on.
func (p *Page) facts(i int) runData {
	v := &p.view.Runs[i]
	d := runData{RunView: v, Only: len(p.view.Runs) == 1, ID: fmt.Sprintf("run-%d", i+1), Name: "records without a header"}
	if h := v.Header; h != nil {
		d.Name = report.Clean(h.ID)
		d.Command = strings.Join(h.Command, " ")
		d.Machines = append(d.Machines, machine{"Coordinator: " + h.Host.Hostname, machineFacts(&h.Host)})
		for j := range h.Hosts {
			d.Machines = append(d.Machines, machine{"Host: " + h.Hosts[j].Hostname, machineFacts(&h.Hosts[j])})
		}
		for _, k := range slices.Sorted(maps.Keys(h.Env)) {
			d.Env = append(d.Env, record.KeyValue{Key: k, Value: h.Env[k]})
		}
	}
	for _, s := range v.Sections {
		if text := p.options.Methods[s.Workload]; text != "" {
			d.Methods = append(d.Methods, method{s.Workload, text})
		}
	}
	if i < len(p.libraries) {
		d.Libraries = p.libraries[i].list
	}
	return d
}

// groupFigures keeps figures of a kind together and draws them.
func groupFigures(list []figures.Figure) []figureGroup {
	var out []figureGroup
	for _, f := range list {
		at := slices.IndexFunc(out, func(g figureGroup) bool { return g.Kind == f.Kind })
		if at < 0 {
			at = len(out)
			out = append(out, figureGroup{Kind: f.Kind})
		}
		svg := template.HTML(plot.Inline(f.Plot, f.Text)) // escapes its texts itself
		out[at].Figures = append(out[at].Figures, figureData{f, svg})
	}
	return out
}

// idleRows counts rows that are not ok by what they are and why.
func idleRows(v *report.RunView) []idle {
	var out []idle
	at := map[idle]int{}
	for _, s := range v.Sections {
		for _, p := range s.Points {
			for i := range p.Rows {
				r := &p.Rows[i]
				if r.Status == record.OK {
					continue
				}
				key := idle{Status: r.Status, Label: r.Label, Where: r.Where, Reason: r.Reason}
				if _, ok := at[key]; !ok {
					at[key] = len(out)
					out = append(out, key)
				}
				out[at[key]].Cells++
			}
		}
	}
	// What failed comes before what was only skipped.
	order := []record.Status{record.Failed, record.Timeout, record.Unverified, record.Unsafe, record.Skipped}
	slices.SortStableFunc(out, func(a, b idle) int {
		return slices.Index(order, a.Status) - slices.Index(order, b.Status)
	})
	return out
}

// machineFacts lists a machine's facts under dotted names.
func machineFacts(m *record.Machine) []record.KeyValue {
	var out []record.KeyValue
	add := func(k, v string) {
		if v != "" {
			out = append(out, record.KeyValue{Key: k, Value: v})
		}
	}
	add("os", strings.TrimSpace(m.OS+" "+m.Kernel))
	flatten("cpu", any(m.CPU), add)
	flatten("gpu", any(m.GPU), add)
	flatten("rdma", any(m.RDMA), add)
	for _, a := range m.Absent {
		add("not read", a)
	}
	return out
}

func flatten(name string, v any, add func(k, v string)) {
	switch v := v.(type) {
	case nil:
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			flatten(name+"."+k, v[k], add)
		}
	case []any:
		simple := !slices.ContainsFunc(v, func(e any) bool {
			switch e.(type) {
			case map[string]any, []any:
				return true
			}
			return false
		})
		if simple {
			var parts []string
			for _, e := range v {
				parts = append(parts, scalar(e))
			}
			add(name, strings.Join(parts, ", "))
			return
		}
		for i, e := range v {
			flatten(fmt.Sprintf("%s.%d", name, i), e, add)
		}
	default:
		add(name, scalar(v))
	}
}

// scalar prints large whole numbers without an exponent.
func scalar(v any) string {
	if f, ok := v.(float64); ok && f == float64(int64(f)) {
		return fmt.Sprint(int64(f))
	}
	return fmt.Sprint(v)
}
