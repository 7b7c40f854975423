package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"gic/backends"
	"gic/harness/plan"
	"gic/workloads"
	"gic/workloads/suites"
)

// What gic list prints, as it is in --json.
type (
	listing struct {
		Workloads []workloadEntry `json:"workloads,omitempty"`
		Backends  []backendEntry  `json:"backends,omitempty"`
		Suites    []suiteEntry    `json:"suites,omitempty"`
		Profiles  []profileEntry  `json:"profiles,omitempty"`
		Models    []modelEntry    `json:"models,omitempty"`
	}
	axisEntry struct {
		backends.Key
		Outer bool `json:"outer"`
	}
	workloadEntry struct {
		Name   string      `json:"name"`
		Doc    string      `json:"doc"`
		Method string      `json:"method"`
		Axes   []axisEntry `json:"axes"`
	}
	backendEntry struct {
		Name    string         `json:"name"`
		Doc     string         `json:"doc"`
		Version string         `json:"version,omitempty"`
		Path    string         `json:"path,omitempty"`
		Caps    []string       `json:"caps,omitempty"`
		Keys    []backends.Key `json:"keys,omitempty"`
		// Here is the outcome of the support probe with default keys on this machine: "ready" or the reason.
		Here string `json:"here"`
	}
	suiteEntry struct {
		Name   string   `json:"name"`
		Doc    string   `json:"doc"`
		Ranks  int      `json:"ranks"`
		Repeat int      `json:"repeat"`
		Blocks []string `json:"blocks"`
		// On are the backends of each block.
		On [][]string `json:"on"`
	}
	profileEntry struct {
		Name string `json:"name"`
		Doc  string `json:"doc"`
	}
	modelEntry struct {
		Name string `json:"name"`
		Doc  string `json:"doc"`
	}
)

// ready is the outcome of a probe that found nothing missing.
const ready = "ready"

var listSections = []string{"workloads", "backends", "suites", "profiles", "models"}

type listFlags struct {
	json         bool
	backendPaths words
}

func newListFlags() (*flags, *listFlags) {
	f, l := newFlags("list"), &listFlags{}
	g := f.group("Flags")
	g.BoolVar(&l.json, "json", false, "print JSON")
	g.Var(&l.backendPaths, "backend-path", "describe one more backend from a shared object `FILE`; may be repeated")
	return f, l
}

func (a *app) list(args []string) error {
	f, l := newListFlags()
	if err := f.parse(args); err != nil {
		return err
	}
	if f.help {
		return a.commandHelp("list")
	}
	want := map[string]bool{}
	for _, s := range f.all.Args() {
		known := false
		for _, k := range listSections {
			known = known || k == s
		}
		if !known {
			return usageError{plan.UnknownName("section", s, listSections, "")}
		}
		want[s] = true
	}
	if len(want) == 0 {
		for _, s := range listSections {
			want[s] = true
		}
	}
	ctx, stop := interruptible()
	defer stop()
	all, err := gather(ctx, want, l.backendPaths)
	if err != nil {
		return err
	}
	if l.json {
		e := json.NewEncoder(a.stdout)
		e.SetIndent("", "  ")
		return e.Encode(all)
	}
	all.print(a.stdout)
	return nil
}

// gather collects the sections that are wanted.
func gather(ctx context.Context, want map[string]bool, files []string) (*listing, error) {
	var l listing
	if want["workloads"] {
		for _, w := range workloadList() {
			l.Workloads = append(l.Workloads, describeWorkload(w))
		}
	}
	if want["backends"] {
		list, err := describeBackends(ctx, files)
		if err != nil {
			return nil, err
		}
		l.Backends = list
	}
	if want["suites"] {
		for _, name := range suites.Names() {
			s, err := loadSuite(name)
			if err != nil {
				return nil, err
			}
			e := suiteEntry{Name: name, Doc: s.Doc, Ranks: cmp.Or(s.Ranks, defaultRanks), Repeat: cmp.Or(s.Repeat, defaultRepeat)}
			for _, b := range s.Blocks {
				e.Blocks = append(e.Blocks, b.Workload.String())
				var on []string
				for _, spec := range b.Backends {
					on = append(on, spec.String())
				}
				e.On = append(e.On, on)
			}
			l.Suites = append(l.Suites, e)
		}
	}
	if want["profiles"] {
		l.Profiles = profiles()
	}
	if want["models"] {
		l.Models = models()
	}
	return &l, nil
}

func describeWorkload(w workloads.Workload) workloadEntry {
	e := workloadEntry{Name: w.Name(), Doc: w.Doc(), Method: w.Method()}
	for _, x := range w.Axes() {
		e.Axes = append(e.Axes, axisEntry{x.Key, x.Outer})
	}
	return e
}

// wrapSpec wraps a spec that does not fit behind its commas, where white space means nothing.
func wrapSpec(spec string, width int) string {
	if len(spec) > width {
		spec = strings.ReplaceAll(spec, ",", ", ")
	}
	return wrap(spec, width)
}

// describeBackends describes every backend and asks whether it can run here with its defaults.
func describeBackends(ctx context.Context, files []string) ([]backendEntry, error) {
	given, err := describePlugins(ctx, files)
	if err != nil {
		return nil, err
	}
	cat, err := loadCatalog(ctx, given, func(string) bool { return true })
	if err != nil {
		return nil, err
	}
	soft, err := plan.ParseNIC("soft", "", nil)
	if err != nil {
		return nil, err
	}
	none, err := plan.ParseNIC("none", "", nil)
	if err != nil {
		return nil, err
	}
	var list []backendEntry
	for _, b := range cat.backends {
		if b.hidden {
			continue
		}
		e := backendEntry{Name: b.name, Doc: b.doc, Path: b.path, Here: ready}
		if info := cat.infos[b.name]; info != nil {
			e.Version, e.Caps, e.Keys = info.Version, info.Caps.Names(), info.Keys
			device := "host"
			if info.Caps&backends.CapHostDevice == 0 {
				device = "cuda"
			}
			nic := soft
			if info.Caps&(backends.CapNICSoft|backends.CapNICNone) == backends.CapNICNone {
				nic = none
			}
			req := plan.Request{Ranks: defaultRanks, Device: device, NIC: nic}
			if reason := cat.refusals(ctx, b.name, []plan.Setup{{Config: plan.Defaults(info.Keys), NIC: nic}}, req)[0].Reason; reason != "" {
				e.Here = reason
			}
		} else {
			e.Here = b.missing
		}
		list = append(list, e)
	}
	return list, ctx.Err()
}

func (l *listing) print(w io.Writer) {
	sep := ""
	title := func(s string) {
		fmt.Fprintf(w, "%s%s\n\n", sep, s)
		sep = "\n"
	}
	if l.Workloads != nil {
		title("Workloads: --workload 'NAME:axis=v|v,axis=v'")
		for i, e := range l.Workloads {
			if i > 0 {
				fmt.Fprintln(w)
			}
			head(w, e.Name, e.Doc)
			keys := make([]backends.Key, len(e.Axes))
			for i, x := range e.Axes {
				keys[i] = x.Key
			}
			printKeys(w, "axis", keys)
		}
	}
	if l.Backends != nil {
		title("Backends: --backend 'NAME:key=v|v,key=v'")
		for i, e := range l.Backends {
			if i > 0 {
				fmt.Fprintln(w)
			}
			head(w, e.Name, e.Doc)
			field(w, "here", e.Here)
			if len(e.Caps) > 0 {
				field(w, "can", strings.Join(e.Caps, " "))
			}
			printKeys(w, "key", e.Keys)
		}
	}
	if l.Suites != nil {
		title("Suites: --suite NAME")
		for _, e := range l.Suites {
			head(w, e.Name, fmt.Sprintf("%s (%d ranks, %d process runs)", e.Doc, e.Ranks, e.Repeat))
			for i, b := range e.Blocks {
				fmt.Fprintf(w, "    %s\n", indent(wrapSpec(b, width-6), 6))
				var on []string
				for _, spec := range e.On[i] {
					on = append(on, wrapSpec(spec, width-9))
				}
				fmt.Fprintf(w, "      on %s\n", indent(wrap(strings.ReplaceAll(strings.Join(on, " "), "\n", " "), width-9), 9))
			}
		}
	}
	if l.Profiles != nil {
		title("NIC profiles: --nic-profile NAME")
		for _, e := range l.Profiles {
			head(w, e.Name, e.Doc)
		}
	}
	if l.Models != nil {
		title("Models: --workload moe:model=NAME")
		for _, e := range l.Models {
			head(w, e.Name, e.Doc)
		}
	}
}

// head prints a name and its line.
func head(w io.Writer, name, doc string) {
	fmt.Fprintf(w, "  %-16s  %s\n", name, indent(wrap(doc, width-20), 20))
}

// field prints a labelled text below a head.
func field(w io.Writer, label, value string) {
	fmt.Fprintf(w, "    %-4s  %s\n", label, indent(wrap(value, width-10), 10))
}

func printKeys(w io.Writer, label string, keys []backends.Key) {
	if len(keys) == 0 {
		return
	}
	var b strings.Builder
	t := newTable(&b, label, "default", "allowed", "")
	t.Style().Options.SeparateHeader = false
	for _, k := range keys {
		allowed := k.Allowed
		if allowed == "" {
			allowed = "text"
		}
		t.AppendRow(table.Row{k.Name, orDash(k.Default), wrap(strings.ReplaceAll(allowed, "|", " | "), 24), wrap(k.Help, 38)})
	}
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 1, WidthMin: 15}, {Number: 2, WidthMin: 8}, {Number: 3, WidthMin: 24}})
	t.Render()
	for _, line := range strings.Split(strings.TrimRight(b.String(), "\n"), "\n") {
		fmt.Fprintf(w, "    %s\n", strings.TrimRight(line, " "))
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
