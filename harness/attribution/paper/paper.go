// Package paper makes records of the published tables in results/paper: one csv file per table and platform, one
// line per figure, read by package importer as any csv is, and paper.yaml with the platforms (Table 2). The
// committed run.jsonl files are what it gives; a test holds them against each other and against the tables.
//
//	go test ./harness/attribution/paper -update    # writes the run.jsonl files anew
package paper

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/goccy/go-yaml"

	"gic/harness/importer"
	"gic/harness/record"
)

// Sheet is paper.yaml.
type Sheet struct {
	Paper     string                       `yaml:"paper"`
	Time      time.Time                    `yaml:"time"`
	Statistic string                       `yaml:"statistic"`
	Defaults  map[string]map[string]string `yaml:"defaults"`
	Platforms map[string]Platform          `yaml:"platforms"`
}

// Platform is a column of Table 2.
type Platform struct {
	Nodes          int    `yaml:"nodes"`
	GPUs           int    `yaml:"gpus_per_node"`
	GPU            string `yaml:"gpu"`
	CPU            string `yaml:"cpu"`
	NICs           int    `yaml:"nics_per_node"`
	NIC            string `yaml:"nic"`
	Link           string `yaml:"link"`
	Driver         string `yaml:"driver"`
	CUDA           string `yaml:"cuda"`
	NVSHMEM        string `yaml:"nvshmem"`
	NCCL           string `yaml:"nccl"`
	DoorbellWriter string `yaml:"doorbell_writer"`
}

// Read reads paper.yaml of a folder laid out as results/paper.
func Read(dir string) (*Sheet, error) {
	file := filepath.Join(dir, "paper.yaml")
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read paper: %w", err)
	}
	s := &Sheet{}
	if err := yaml.UnmarshalWithOptions(data, s, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return s, nil
}

// Names lists the platforms.
func (s *Sheet) Names() []string { return slices.Sorted(maps.Keys(s.Platforms)) }

// settings are what holds for all of the paper's rows.
func settings() []record.KeyValue {
	return []record.KeyValue{{Key: "nic", Value: "mlx5"}, {Key: "device", Value: "cuda"}}
}

// Run makes the records of one platform from the csv files of its folder. name is what the records call the
// folder: results/paper.
func (s *Sheet) Run(dir, name, platform string) (*record.Header, []*record.Case, error) {
	p, ok := s.Platforms[platform]
	if !ok {
		return nil, nil, fmt.Errorf("platform %q is not one of %v", platform, s.Names())
	}
	files, err := filepath.Glob(filepath.Join(dir, platform, "*.csv"))
	if err != nil || len(files) == 0 {
		return nil, nil, fmt.Errorf("%s holds no csv files (%v)", filepath.Join(dir, platform), err)
	}
	slices.Sort(files)
	var results []*importer.Result
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, fmt.Errorf("read paper: %w", err)
		}
		r, err := importer.Parse(path.Join(name, platform, filepath.Base(file)), data, importer.Options{Format: "csv", Set: settings()})
		if err != nil {
			return nil, nil, err
		}
		if len(r.Problems)+len(r.Notes) > 0 {
			return nil, nil, slices.Concat(r.Problems, r.Notes)[0]
		}
		results = append(results, r)
	}
	seen := map[string]string{}
	for _, r := range results {
		for _, c := range r.Cases {
			if other, twice := seen[c.ID]; twice {
				return nil, nil, fmt.Errorf("%s and %s hold the same case; a published figure is not a process run", other, r.Source.File)
			}
			seen[c.ID] = r.Source.File
			c.Facts["statistic"] = s.Statistic
		}
	}
	h, cases := importer.Join(results, record.Header{
		Type: "run", Schema: record.Schema, ID: "paper-" + platform, Time: s.Time, Gic: "reference", Suite: s.Paper,
		Command: []string{"gic", "import", "--from", "csv", path.Join(name, platform)}, Defaults: s.Defaults,
	})
	h.Host = p.machine(platform)
	return h, cases, nil
}

// machine is the platform as a record says it.
func (p Platform) machine(name string) record.Machine {
	m := record.Machine{
		Hostname: name, OS: "unknown", Kernel: "unknown",
		CPU: map[string]any{"model": p.CPU, "nodes": strconv.Itoa(p.Nodes)},
	}
	for range p.GPUs {
		m.GPU = append(m.GPU, map[string]any{"name": p.GPU, "driver": p.Driver, "cuda": p.CUDA})
	}
	for range p.NICs {
		m.RDMA = append(m.RDMA, map[string]any{"name": p.NIC, "link": p.Link, "doorbell_writer": p.DoorbellWriter})
	}
	m.CPU["nvshmem"], m.CPU["nccl"] = p.NVSHMEM, p.NCCL
	return m
}
