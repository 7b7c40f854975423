// Package results keeps runs: a tree of folders with one run.jsonl each, found, listed, asked, checked, thinned
// out, and named as baselines. Nothing in a run file is ever changed; runs that are written at the same time are
// different files.
package results

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gic/harness/record"
)

// DefaultDir is where runs are kept when nothing else is said.
const DefaultDir = "results/local"

// EnvDir names the folder of results instead.
const EnvDir = "GIC_RESULTS"

// baselineDir is the folder of baselines below the store.
const baselineDir = record.Baselines

// Store is a folder of runs.
type Store struct{ Dir string }

// Open gives the store in dir, or in $GIC_RESULTS, or in DefaultDir. It need not exist.
func Open(dir string) *Store {
	return &Store{filepath.Clean(cmp.Or(dir, os.Getenv(EnvDir), DefaultDir))}
}

// Files finds all run files below paths, at any depth, sorted; those of the store without paths. Baselines are
// no runs of their own.
func (s *Store) Files(paths ...string) ([]string, error) {
	if len(paths) == 0 {
		if _, err := os.Stat(s.Dir); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("no results in %s: gic run makes some; another folder is given as DIR or in %s", s.Dir, EnvDir)
		}
		paths = []string{s.Dir}
	}
	var files []string
	for _, p := range paths {
		st, err := os.Stat(p)
		if err != nil {
			return nil, fmt.Errorf("read results: %w", err)
		}
		if !st.IsDir() {
			files = append(files, filepath.Clean(p))
			continue
		}
		err = filepath.WalkDir(p, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && d.Name() == baselineDir && path != p:
				return filepath.SkipDir
			case !d.IsDir() && d.Name() == record.FileName:
				files = append(files, filepath.Clean(path))
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read results: %w", err)
		}
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

// Run is one run of a file, as it is listed.
type Run struct {
	Path    string                `json:"path"`
	ID      string                `json:"id"`
	Time    time.Time             `json:"time"`
	Gic     string                `json:"gic"`
	Suite   string                `json:"suite,omitempty"`
	Host    string                `json:"host"`
	CPU     string                `json:"cpu,omitempty"`
	GPU     string                `json:"gpu,omitempty"`
	Ranks   int                   `json:"ranks"`
	Repeat  int                   `json:"repeat"`
	Planned int                   `json:"planned"` // records
	Records int                   `json:"records"` // records that match
	Cases   map[record.Status]int `json:"cases"`   // cases by their worst status
	Bytes   int64                 `json:"bytes"`
	// Bad are the lines that are no records.
	Bad []string `json:"bad,omitempty"`
}

// severity orders statuses: a case has the worst of its process runs.
var severity = []record.Status{record.OK, record.Skipped, record.Unsafe, record.Unverified, record.Timeout, record.Failed}

// List reads the run files and gives one entry per run, oldest first. Runs in which no record matches are left
// out; a file that holds no run is an entry with an empty ID and its bad lines.
func List(files []string, f *Filter) ([]*Run, error) {
	var out []*Run
	for _, file := range files {
		runs, err := listFile(file, f)
		if err != nil {
			return nil, err
		}
		out = append(out, runs...)
	}
	slices.SortStableFunc(out, func(a, b *Run) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Path, b.Path)) })
	return out, nil
}

func listFile(file string, f *Filter) ([]*Run, error) {
	st, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	var runs []*Run
	var run *Run
	var header *record.Header
	var worst map[string]int
	var stray []string
	finish := func() {
		if run == nil {
			return
		}
		for _, s := range worst {
			run.Cases[severity[s]]++
		}
		if run.Records > 0 || f == nil || f.f == nil {
			runs = append(runs, run)
		}
		run = nil
	}
	for rec, err := range record.ReadFile(file) {
		if err != nil {
			return nil, err
		}
		switch rec := rec.(type) {
		case *record.Header:
			if run != nil && run.ID == rec.ID {
				continue // a resumed run goes on
			}
			finish()
			header, worst = rec, map[string]int{}
			run = newRun(file, rec)
			run.Bytes = st.Size()
		case *record.Case:
			if run == nil {
				stray = append(stray, file+": a case before any header")
				continue
			}
			if !f.Match(keysFor(f, header, rec)) {
				continue
			}
			run.Records++
			id := strings.Clone(rec.ID)
			worst[id] = max(worst[id], slices.Index(severity, rec.Status))
		case *record.Bad:
			if run == nil {
				stray = append(stray, oneLine(rec.Error()))
				continue
			}
			run.Bad = append(run.Bad, oneLine(rec.Error()))
		}
	}
	finish()
	if len(runs) == 0 && header == nil {
		if len(stray) == 0 {
			stray = []string{file + ": empty"}
		}
		return []*Run{{Path: file, Bytes: st.Size(), Bad: stray}}, nil
	}
	if len(runs) > 0 {
		runs[0].Bad = append(stray, runs[0].Bad...)
	}
	return runs, nil
}

func newRun(file string, h *record.Header) *Run {
	r := &Run{
		Path: file, ID: h.ID, Time: h.Time.UTC(), Gic: h.Gic, Suite: h.Suite, Host: h.Host.Hostname, Ranks: h.Ranks,
		Repeat: h.Repeat, Planned: h.Cases, Cases: map[record.Status]int{},
	}
	if v, ok := h.Host.CPU["model"].(string); ok {
		r.CPU = v
	}
	if n := len(h.Host.GPU); n > 0 {
		if g, ok := h.Host.GPU[0].(map[string]any); ok {
			r.GPU = fmt.Sprintf("%d x %v", n, g["name"])
		}
	}
	return r
}

// keysFor spares records without a filter the flattening.
func keysFor(f *Filter, h *record.Header, c *record.Case) []record.KeyValue {
	if f == nil || f.f == nil {
		return nil
	}
	return Keys(h, c)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Pruning is what prune would do, or did, with one run file.
type Pruning struct {
	Path   string `json:"path"`
	ID     string `json:"id"`
	Bytes  int64  `json:"bytes"`
	Remove bool   `json:"remove"`
	Why    string `json:"why"` // it stays, or goes
}

// Prune decides which of the runs go: all but the keep newest (keep < 0: no limit), and those older than the
// age (0: no limit) before now. Runs that a baseline names, that are being written, and files with lines that
// are no records stay. Nothing is removed; see Remove.
func (s *Store) Prune(runs []*Run, keep int, age time.Duration, now time.Time) ([]Pruning, error) {
	named, err := s.named()
	if err != nil {
		return nil, err
	}
	newest := slices.Clone(runs)
	slices.SortStableFunc(newest, func(a, b *Run) int { return b.Time.Compare(a.Time) })
	byFile := map[string]*Pruning{}
	var out []*Pruning
	for i, r := range newest {
		p := byFile[r.Path]
		if p == nil {
			p = &Pruning{Path: r.Path, ID: r.ID, Bytes: r.Bytes, Remove: true}
			byFile[r.Path] = p
			out = append(out, p)
		}
		stay := func(why string) { p.Remove, p.Why = false, why }
		old := age > 0 && now.Sub(r.Time) > age
		over := keep >= 0 && i >= keep
		switch name := named[absolute(r.Path)]; {
		case !p.Remove: // another run of the same file stays
		case name != "":
			stay("baseline " + name + " names it")
		case r.ID == "" || len(r.Bad) > 0:
			stay("it has lines that are no records; look at it first (gic results verify)")
		case !old && !over:
			stay("new enough")
		case busy(r.Path):
			stay("it is being written")
		case old:
			p.Why = fmt.Sprintf("older than %v", age)
		default:
			p.Why = fmt.Sprintf("not among the %d newest", keep)
		}
	}
	result := make([]Pruning, len(out))
	for i, p := range out {
		result[i] = *p
	}
	return result, nil
}

// Remove removes a run file, and its folder if nothing else is in it.
func Remove(p Pruning) error {
	if !p.Remove {
		return nil
	}
	if err := os.Remove(p.Path); err != nil {
		return fmt.Errorf("prune: %w", err)
	}
	// A folder with more in it stays; that is no error.
	_ = os.Remove(filepath.Dir(p.Path))
	return nil
}

// busy says whether a run file is locked by a writer.
func busy(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return true
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil
}

func absolute(path string) string {
	if a, err := filepath.Abs(path); err == nil {
		path = a
	}
	if r, err := filepath.EvalSymlinks(path); err == nil {
		path = r
	}
	return path
}
