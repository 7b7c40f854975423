package attribution

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gic/backends"
	"gic/backends/fake"
	"gic/harness/plan"
	"gic/harness/record"
	"gic/harness/run"
	"gic/workloads"
	"gic/workloads/op"
	"gic/workloads/rate"
)

// The test binary is also the rank process of the runs below.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == run.RankArg {
		os.Exit(run.RankMain(run.RankOptions{
			Workloads: works(),
			Open: func(name, plugin string) (backends.Backend, error) {
				return machine{fake.New(op.Workload{}, rate.Workload{})}, nil
			},
		}))
	}
	os.Exit(m.Run())
}

func works() map[string]workloads.Workload {
	return map[string]workloads.Workload{"op": op.Workload{}, "rate": rate.Workload{}}
}

// machine carries the work out for real, payload and counters, and tells the virtual times of the model.
type machine struct{ *fake.Backend }

// Info is the fake's, under the floor's name and with the model's keys.
func (m machine) Info() backends.Info {
	i := m.Backend.Info()
	i.Name, i.Keys = "minigda", nil
	for k, v := range modelDefaults() {
		i.Keys = append(i.Keys, backends.Key{Name: k, Default: v})
	}
	return i
}

// fakes are parameters as the fake takes them: it does not know the model's keys.
func fakes(o backends.Open) backends.Open {
	o.Config = nil
	return o
}

func (m machine) Probe(o backends.Open) error { return m.Backend.Probe(fakes(o)) }

func (m machine) Open(ctx context.Context, o backends.Open) (backends.Session, error) {
	s, err := m.Backend.Open(ctx, fakes(o))
	if err != nil {
		return nil, err
	}
	return &virtualSession{Session: s, open: o}, nil
}

type virtualSession struct {
	backends.Session
	open backends.Open
}

// Run carries out the work and puts the model's times in place of the fake's, which mean nothing.
func (s *virtualSession) Run(r backends.Run) ([]backends.Series, error) {
	series, err := s.Session.Run(r)
	times := virtual(s.open.Config, s.open.Ranks)
	ns := map[string]float64{"issue": times["issue"], "completion": times["put_completion"], "rtt": times["rtt"]}
	for i := range series {
		v, isTime := ns[series[i].Name]
		for k := range series[i].Values {
			switch {
			case series[i].Name == "elapsed":
				series[i].Values[k] *= times["message"] / 1000 // the fake says 1000 ns per message
			case isTime:
				series[i].Values[k] = v
			}
		}
	}
	return series, err
}

// Counters adds the doorbells that the model rings for the requests that were counted.
func (s *virtualSession) Counters() ([]backends.Counter, error) {
	list, err := s.Session.Counters()
	i := slices.IndexFunc(list, func(c backends.Counter) bool { return c.Name == "wqes" })
	if err == nil && i >= 0 {
		n := uint64(float64(list[i].Value) * bells(s.open.Config))
		list = append(list, backends.Counter{Name: "doorbells", Unit: "1", Value: n, Exact: true})
	}
	return list, err
}

// plannedRun makes the plan of a run: configurations at a point, each in its own processes, twice.
func plannedRun(configs []map[string]string, workload string, point workloads.Point) []plan.Outer {
	w := works()[workload]
	full := workloads.Point{}
	for _, a := range w.Axes() {
		full[a.Name] = a.Default
	}
	maps.Copy(full, point)
	var out []plan.Outer
	for _, c := range configs {
		config := modelDefaults()
		maps.Copy(config, c)
		for index := range 2 {
			out = append(out, plan.Outer{Workload: workload, Backend: "minigda", Config: config, NIC: plan.NIC{Kind: "none"}, Device: "host", Ranks: 2,
				Seed: 1, Index: index, Points: []workloads.Point{full}})
		}
	}
	return out
}

// The same costs planted into a backend are found in the records that the whole path writes: plan, rank processes,
// message list, counters, verification, run file. Its times are virtual; no clock of this machine is in them.
func TestPlantedCostsInARun(t *testing.T) {
	put, one := workloads.Point{"op": "put", "size": "8", "iterations": "64", "posts": "64", "rounds": "2", "warmup": "8", "timer_check": "2"},
		workloads.Point{"size": "8", "threads": "1", "messages": "64", "warmup": "16"}
	ops := []map[string]string{{}, {"sharing": "lock"}, {"order": "sys-release"}, {"qps": "16"}, {"qps": "16", "scope": "all"}, {"qps": "4", "scope": "all"}}
	rates := []map[string]string{{}, {"batch": "16"}}
	for _, p := range plants {
		if p.metric == "message_rate" {
			rates = append(rates, p.pose.Config)
		} else if !slices.ContainsFunc(ops, func(c map[string]string) bool { return maps.Equal(c, p.pose.Config) }) {
			ops = append(ops, p.pose.Config)
		}
	}
	pl := plan.Plan{Seed: 1, Ranks: 2, Repeat: 2, Outers: append(plannedRun(ops, "op", put), plannedRun(rates, "rate", one)...)}
	file := filepath.Join(t.TempDir(), record.FileName)
	w, err := record.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	header := record.Header{Type: "run", Schema: record.Schema, ID: "planted", Time: time.Unix(0, 0), Gic: "test", Command: []string{"gic", "run"}, Launch: "local",
		Ranks: 2, Repeat: 2, Cases: pl.Records(), Host: record.Machine{Hostname: "machine", CPU: map[string]any{}},
		Defaults: map[string]map[string]string{"minigda": modelDefaults()}}
	if err := w.Write(&header); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	err = run.Run(ctx, pl, run.Options{Workloads: works()}, func(c record.Case) error {
		if c.Status != record.OK {
			return fmt.Errorf("%s %v: %s: %s", c.Workload, c.Config, c.Status, c.Reason)
		}
		return w.Write(&c)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	runs, err := Load([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range plants {
		j := p.judged(t, runs[0])
		p.find(t, j.Accounts[0].Method, j.Accounts[0].Split, p.ladder)
		p.find(t, j.Accounts[1].Method, j.Accounts[1].Split, p.counts)
		if j.Verdict == Inconsistent {
			t.Errorf("%s: %s", p.name, j.Sentence())
		}
	}
}
