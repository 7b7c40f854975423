package replay

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"gic/harness/record"
)

// Served are the workloads whose kernels can be replayed.
var Served = []string{"op", "rate", "goodput", "alltoall", "moe"}

// Plan is a suite that measures traced rows again, each beside its replay, with what all of its rows share.
type Plan struct {
	Doc    string  `yaml:"doc"`
	Ranks  int     `yaml:"ranks"`
	Blocks []Block `yaml:"blocks"`

	Seed   uint64 `yaml:"-"`
	Device string `yaml:"-"`
	// NIC and Profile are as gic run takes them.
	NIC     string `yaml:"-"`
	Profile string `yaml:"-"`
	// Left are rows that were not taken, and why.
	Left []string `yaml:"-"`
}

// Block is one point.
type Block struct {
	Workload string   `yaml:"workload"`
	Backends []string `yaml:"backends"`
}

// NewPlan makes a plan of the traced cases among those of a run: of each row the first process run whose trace files
// are there and have the hashes that the record tells. floor is a backend spec that joins every point where no row has
// its backend, "" for none. The cases must share NIC, ranks, device and seed.
func NewPlan(cases []*record.Case, floor string) (*Plan, error) {
	p := &Plan{Doc: "rows measured again, each beside the replay of its trace"}
	points := map[string]*Block{}
	backends := map[string][]string{}
	seen := map[string]bool{}
	var first *record.Case
	for _, c := range cases {
		if c.Backend == Backend || seen[c.ID] {
			continue
		}
		name := fmt.Sprintf("%s of %s, process run %d", c.Backend, c.Workload, c.Index+1)
		switch {
		case c.Status != record.OK:
			p.Left = append(p.Left, fmt.Sprintf("%s: it is %s", name, c.Status))
			continue
		case !slices.Contains(Served, c.Workload):
			p.Left = append(p.Left, fmt.Sprintf("%s: replays are of %s", name, strings.Join(Served, ", ")))
			continue
		case !filepath.IsAbs(c.Created["trace"]) && !strings.HasSuffix(c.Created["trace"], ".trace"):
			p.Left = append(p.Left, name+": it was not traced")
			continue
		}
		if err := hashes(c); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if first == nil {
			first = c
		} else if err := sharing(first, c); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		seen[c.ID] = true
		point, err := spec(c.Workload, c.Axes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		row, err := spec(c.Backend, c.Config)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		again, err := replayOf(c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		b := points[point]
		if b == nil {
			b = &Block{Workload: point}
			points[point] = b
		}
		b.Backends = append(b.Backends, row, again)
		backends[point] = append(backends[point], c.Backend)
	}
	if first == nil {
		why := "no case"
		if len(p.Left) > 0 {
			why = p.Left[0]
		}
		return nil, fmt.Errorf("nothing to replay: %s; trace a run with --nic soft:trace=on", why)
	}
	floorName, _, _ := strings.Cut(floor, ":")
	for _, k := range slices.Sorted(maps.Keys(points)) {
		b := points[k]
		if floor != "" && !slices.Contains(backends[k], floorName) {
			b.Backends = append(b.Backends, floor)
		}
		p.Blocks = append(p.Blocks, *b)
	}
	p.share(first)
	return p, nil
}

// YAML is the plan as a suite for gic run --suite.
func (p *Plan) YAML() ([]byte, error) { return yaml.Marshal(p) }

func (p *Plan) share(c *record.Case) {
	p.Ranks, p.Seed, p.Device, p.NIC, p.Profile = c.Ranks, c.Seed, c.Device, c.NIC, c.NICConfig["profile"]
	var kv []string
	for _, k := range slices.Sorted(maps.Keys(c.NICConfig)) {
		if k != "trace" && k != "profile" && c.NICConfig[k] != "" {
			kv = append(kv, k+"="+c.NICConfig[k])
		}
	}
	if len(kv) > 0 {
		p.NIC += ":" + strings.Join(kv, ",")
	}
}

func sharing(a, b *record.Case) error {
	switch {
	case a.Ranks != b.Ranks:
		return fmt.Errorf("%d ranks, the one before %d; replay them apart", b.Ranks, a.Ranks)
	case a.Device != b.Device:
		return fmt.Errorf("device=%s, the one before %s; replay them apart", b.Device, a.Device)
	case a.Seed != b.Seed:
		return fmt.Errorf("seed %d, the one before %d; replay them apart", b.Seed, a.Seed)
	case a.NIC != b.NIC || !maps.Equal(a.NICConfig, b.NICConfig):
		return fmt.Errorf("another NIC than the one before; replay them apart")
	}
	return nil
}

// spec writes a name and its keys as on the command line.
func spec(name string, keys map[string]string) (string, error) {
	var kv []string
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		v := keys[k]
		if v == "" {
			continue
		}
		if strings.ContainsAny(v, ",|\n") {
			return "", fmt.Errorf("%s=%q cannot be written in a suite: it has a comma, a bar or a line end", k, v)
		}
		kv = append(kv, k+"="+v)
	}
	if len(kv) == 0 {
		return name, nil
	}
	return name + ":" + strings.Join(kv, ","), nil
}

// replayOf is the spec of a row's replay: its trace, and what the record tells beside it.
func replayOf(c *record.Case) (string, error) {
	trace, err := filepath.Abs(c.Created["trace"])
	if err != nil {
		return "", err
	}
	keys := map[string]string{"trace": trace, "of": Key(c)}
	for _, n := range c.Counters {
		if n.Name == "doorbells" && n.Value > 0 {
			keys["doorbells"] = strconv.FormatUint(n.Value, 10)
			if !n.Exact {
				keys["doorbells_timed"] = "on"
			}
		}
	}
	// The order before a doorbell stays the minimal one: no NIC sees it, so that it is the row's own code here.
	if c.Backend == "minigda" { // its keys mean what those of the replay mean
		keys["scope"] = c.Config["scope"]
		keys["stated_batch"] = c.Config["batch"]
		if c.Config["sharing"] == "warp" || c.Config["agent"] == "warp" {
			keys["lanes"] = "32"
		}
	}
	return spec(Backend, keys)
}

// hashes checks a record's trace files of all ranks.
func hashes(c *record.Case) error {
	for rank := range c.Ranks {
		key, hash := "trace", "trace.sha256"
		if rank > 0 {
			suffix := fmt.Sprintf(".rank%d", rank)
			key, hash = key+suffix, hash+suffix
		}
		path, want := c.Created[key], c.Created[hash]
		if path == "" || want == "" {
			return fmt.Errorf("the record has no trace and hash of rank %d", rank)
		}
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("trace of rank %d: %w", rank, err)
		}
		h := sha256.New()
		_, err = io.Copy(h, f)
		f.Close()
		if err != nil {
			return fmt.Errorf("trace of rank %d: %w", rank, err)
		}
		if got := hex.EncodeToString(h.Sum(nil)); got != want {
			return fmt.Errorf("trace of rank %d: %s is not the file of the record: its hash is %.12s..., recorded was %.12s", rank, path, got, want)
		}
	}
	return nil
}
