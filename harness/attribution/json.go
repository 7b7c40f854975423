package attribution

import (
	"encoding/json"
	"io"
)

// The JSON form: every number in seconds, and how it came about. Femto writes all digits, so that parts and residual
// add up to the gap for a reader, too.
type (
	jsonRun struct {
		Run         string           `json:"run"`
		Platform    string           `json:"platform"`
		File        string           `json:"file"`
		Claim       string           `json:"no_claim,omitempty"`
		Gaps        []jsonGap        `json:"gaps"`
		Projections []jsonProjection `json:"choices_without_a_row,omitempty"`
		Unsplit     []jsonUnsplit    `json:"unsplit,omitempty"`
		Effects     []jsonEffect     `json:"effects,omitempty"`
		UnitCosts   []jsonCost       `json:"unit_costs,omitempty"`
		Findings    []jsonFinding    `json:"findings,omitempty"`
	}
	jsonRow struct {
		ID       string            `json:"id"`
		Workload string            `json:"workload"`
		Axes     map[string]string `json:"axes"`
		Backend  string            `json:"backend"`
		Config   map[string]string `json:"config"`
		NIC      string            `json:"nic"`
		Device   string            `json:"device"`
		Imported bool              `json:"imported,omitempty"`
		Source   string            `json:"source"`
	}
	jsonQuantity struct {
		Value Femto    `json:"value"`
		Low   *float64 `json:"low,omitempty"`
		High  *float64 `json:"high,omitempty"`
		Runs  int      `json:"process_runs,omitempty"`
		Basis string   `json:"basis"`
	}
	jsonSpread struct {
		Low  Femto  `json:"low"`
		High Femto  `json:"high"`
		Of   string `json:"of"`
	}
	jsonPart struct {
		Terms  []Name       `json:"terms"`
		Time   jsonQuantity `json:"time"`
		What   string       `json:"what,omitempty"`
		How    string       `json:"how"`
		Source []string     `json:"source,omitempty"`
		Spread *jsonSpread  `json:"spread,omitempty"`
	}
	jsonChoice struct {
		Term   Name     `json:"term"`
		Key    string   `json:"key"`
		Value  string   `json:"value"`
		What   string   `json:"what,omitempty"`
		Source []string `json:"source,omitempty"`
	}
	jsonSplit struct {
		Method         string        `json:"method"`
		Blind          string        `json:"not_seen,omitempty"`
		Parts          []jsonPart    `json:"parts,omitempty"`
		Residual       *jsonQuantity `json:"residual,omitempty"`
		ResidualSpread *jsonSpread   `json:"residual_spread,omitempty"`
		Covers         []Name        `json:"covers,omitempty"`
		Same           []jsonChoice  `json:"same,omitempty"`
		Missing        []jsonChoice  `json:"missing,omitempty"`
		Notes          []jsonNote    `json:"notes,omitempty"`
	}
	jsonNote struct {
		Code   string `json:"code"`
		Text   string `json:"text"`
		Anchor string `json:"page"`
	}
	jsonCompared struct {
		Terms  []Name       `json:"terms"`
		A      string       `json:"a"`
		B      string       `json:"b"`
		ValueA jsonQuantity `json:"time_a"`
		ValueB jsonQuantity `json:"time_b"`
		Agree  bool         `json:"agree"`
	}
	jsonReading struct {
		Terms  []Name      `json:"terms"`
		Time   *jsonSpread `json:"time_by_elimination,omitempty"`
		What   string      `json:"what"`
		Source []string    `json:"source"`
	}
	jsonGap struct {
		Library    string         `json:"library"`
		Metric     string         `json:"metric"`
		Row        jsonRow        `json:"row"`
		Floor      jsonRow        `json:"floor"`
		Time       jsonQuantity   `json:"library_time"`
		FloorTime  jsonQuantity   `json:"floor_time"`
		Gap        jsonQuantity   `json:"gap"`
		Methods    []jsonSplit    `json:"methods"`
		Readings   []jsonReading  `json:"residual_by_sources,omitempty"`
		Verdict    string         `json:"verdict"`
		Compared   []jsonCompared `json:"compared,omitempty"`
		Disagree   []Name         `json:"disagree,omitempty"`
		Why        string         `json:"why,omitempty"`
		Notes      []jsonNote     `json:"notes,omitempty"`
		MissingRun string         `json:"run_for_missing_rungs,omitempty"`
	}
	jsonProjection struct {
		Library string     `json:"library"`
		Metric  string     `json:"metric"`
		Floor   jsonRow    `json:"floor"`
		Parts   []jsonPart `json:"parts"`
	}
	jsonUnsplit struct {
		Row    jsonRow `json:"row"`
		Metric string  `json:"metric"`
		Why    string  `json:"why"`
	}
	jsonEffect struct {
		Term     Name          `json:"term"`
		Stack    string        `json:"stack"`
		Change   string        `json:"change"`
		Metric   string        `json:"metric"`
		Class    string        `json:"class"`
		From     *jsonQuantity `json:"from,omitempty"`
		To       *jsonQuantity `json:"to,omitempty"`
		Delta    jsonQuantity  `json:"change_time"`
		Relative *float64      `json:"relative_to_from,omitempty"`
		Sources  []string      `json:"sources"`
	}
	jsonCost struct {
		Unit    string       `json:"unit"`
		Variant string       `json:"variant,omitempty"`
		Term    Name         `json:"term"`
		Doc     string       `json:"doc"`
		Time    jsonQuantity `json:"time"`
		How     string       `json:"how"`
	}
	jsonFinding struct {
		Code string   `json:"code"`
		Text string   `json:"text"`
		Page string   `json:"page"`
		Rows []string `json:"rows"`
	}
)

// JSON writes analyses with every number and how it came about.
func JSON(out io.Writer, list []*Analysis) error {
	runs := []jsonRun{}
	for _, a := range list {
		runs = append(runs, runJSON(a))
	}
	e := json.NewEncoder(out)
	e.SetIndent("", " ")
	e.SetEscapeHTML(false)
	return e.Encode(map[string]any{"schema": "gic.attribution/1", "terms": Names(), "runs": runs})
}

func termsJSON(out io.Writer) error {
	type term struct {
		Name       Name     `json:"name"`
		Definition string   `json:"definition"`
		Measured   string   `json:"measured"`
		Floor      []string `json:"floor_keys"`
		FloorNote  string   `json:"floor_note,omitempty"`
		NotClaimed string   `json:"not_claimed"`
	}
	list := []term{}
	for _, t := range terms {
		x := term{t.Name, t.Definition, t.Measured, []string{}, t.FloorNote, t.NotClaimed}
		for _, k := range t.Floor {
			x.Floor = append(x.Floor, k.String())
		}
		list = append(list, x)
	}
	e := json.NewEncoder(out)
	e.SetIndent("", " ")
	e.SetEscapeHTML(false)
	return e.Encode(list)
}

func runJSON(a *Analysis) jsonRun {
	r := jsonRun{Platform: a.Run.Platform(), File: a.Run.File, Claim: a.Claim(), Gaps: []jsonGap{}}
	if a.Run.Header != nil {
		r.Run = a.Run.Header.ID
	}
	for _, j := range a.Judgements {
		r.Gaps = append(r.Gaps, gapJSON(j))
	}
	for _, p := range a.Projections {
		x := jsonProjection{p.Library.Title, p.Metric, rowJSON(p.Floor), nil}
		for _, part := range p.Parts {
			x.Parts = append(x.Parts, jsonPart{part.Terms, quantityJSON(part.Quantity), part.What, part.How, part.Source, nil})
		}
		r.Projections = append(r.Projections, x)
	}
	for _, u := range a.Unsplit {
		r.Unsplit = append(r.Unsplit, jsonUnsplit{rowJSON(u.Row), u.Metric, u.Why})
	}
	for _, e := range a.Effects {
		x := jsonEffect{Term: e.Term, Stack: e.Stack, Change: e.Change(), Metric: e.Metric, Class: string(e.Class), Delta: quantityJSON(e.Delta)}
		if rel, ok := e.Relative(); ok {
			from, to := quantityJSON(e.From), quantityJSON(e.To)
			x.From, x.To, x.Relative = &from, &to, &rel
		}
		for _, w := range []*Row{e.FromRow, e.ToRow} {
			if w != nil {
				x.Sources = append(x.Sources, w.Source())
			}
		}
		r.Effects = append(r.Effects, x)
	}
	for _, c := range a.Costs {
		r.UnitCosts = append(r.UnitCosts, jsonCost{c.Name, c.Variant, c.Term, c.Doc, quantityJSON(c.Quantity), c.How})
	}
	for _, f := range a.Findings {
		x := jsonFinding{Code: f.Code, Text: f.Text, Page: f.Anchor()}
		for _, w := range f.Rows {
			x.Rows = append(x.Rows, w.First().ID)
		}
		r.Findings = append(r.Findings, x)
	}
	return r
}

func gapJSON(j *Judgement) jsonGap {
	g := j.Gap
	library, floor, gap, _ := g.Times()
	x := jsonGap{
		Library: g.Name(), Metric: g.Metric, Row: rowJSON(g.Row), Floor: rowJSON(g.Floor), Time: quantityJSON(library),
		FloorTime: quantityJSON(floor), Gap: quantityJSON(gap), Verdict: j.Verdict, Disagree: j.Disagree, Why: j.Why,
		Notes: notesJSON(g.Notes), MissingRun: j.MissingRungs(),
	}
	for _, a := range j.Accounts {
		s := jsonSplit{Method: a.Method, Blind: a.Blind}
		if a.Split != nil {
			s = splitJSON(a.Split)
		}
		x.Methods = append(x.Methods, s)
	}
	for _, r := range g.Readings() {
		reading := jsonReading{Terms: append([]Name{r.Term}, r.Together...), What: r.What, Source: r.Source}
		if low, high, ok := j.Ladder().Eliminated(r); ok {
			reading.Time = &jsonSpread{low, high, "the whole residual"}
		}
		x.Readings = append(x.Readings, reading)
	}
	for _, c := range j.Compared {
		x.Compared = append(x.Compared, jsonCompared{c.Terms, c.A, c.B, quantityJSON(c.ValueA), quantityJSON(c.ValueB), c.Agree})
	}
	return x
}

func splitJSON(s *Split) jsonSplit {
	rest := quantityJSON(s.Residual)
	x := jsonSplit{Method: s.Method, Residual: &rest, ResidualSpread: spreadJSON(s.ResidualSpread), Covers: s.Covers, Notes: notesJSON(s.Notes)}
	for _, p := range s.Parts {
		x.Parts = append(x.Parts, jsonPart{p.Terms, quantityJSON(p.Quantity), p.What, p.How, p.Source, spreadJSON(p.Spread)})
	}
	choices := func(list []Choice) (out []jsonChoice) {
		for _, c := range list {
			out = append(out, jsonChoice{termOfKey(s.Gap.Floor.Backend(), c.Key), c.Key, c.Value, c.What, c.Source})
		}
		return out
	}
	x.Same, x.Missing = choices(s.Same), choices(s.Missing)
	return x
}

func notesJSON(notes []Note) (out []jsonNote) {
	for _, n := range notes {
		out = append(out, jsonNote{n.Code, n.Text, Page + "#" + n.Anchor})
	}
	return out
}

func spreadJSON(s *Spread) *jsonSpread {
	if s == nil {
		return nil
	}
	return &jsonSpread{s.Low, s.High, s.Of}
}

func quantityJSON(q Quantity) jsonQuantity {
	x := jsonQuantity{Value: q.Value, Runs: q.Runs, Basis: q.Basis()}
	if low, high, ok := q.Interval(); ok {
		x.Low, x.High = &low, &high
	}
	return x
}

func rowJSON(w *Row) jsonRow {
	c := w.First()
	return jsonRow{c.ID, c.Workload, c.Axes, c.Backend, c.Config, c.NIC, c.Device, w.Imported(), w.Source()}
}
