package results

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"gic/harness/record"
)

// BaselineSchema names the format of a baseline file.
const BaselineSchema = "gic.baseline/1"

// Baseline is a named set of runs to compare with: DIR/baselines/NAME.json. It refers to run files, with the hash
// of each, or holds copies of its own in DIR/baselines/NAME/.
type Baseline struct {
	Schema string         `json:"schema"`
	Name   string         `json:"name"`
	Time   time.Time      `json:"time"`
	Runs   []BaselineFile `json:"runs"`

	dir string // that paths are relative to
}

// BaselineFile is one run file of a baseline.
type BaselineFile struct {
	Path   string `json:"path"` // relative to the baselines folder, or absolute
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
	ID     string `json:"id"` // of the run
	Copied bool   `json:"copied,omitempty"`
}

var baselineName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

func checkName(name string) error {
	if !baselineName.MatchString(name) {
		return fmt.Errorf("baseline name %q is not allowed: letters, digits, dot, dash and underscore, a letter or digit first, at most 100", name)
	}
	return nil
}

func (s *Store) baselines() string { return filepath.Join(s.Dir, baselineDir) }

// Save makes a baseline of run files, as references, or with copies that do not depend on the originals. One of
// that name is an error unless replace. The file appears whole or not at all.
func (s *Store) Save(name string, files []string, copies, replace bool, now time.Time) (*Baseline, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	path := filepath.Join(s.baselines(), name+".json")
	if _, err := os.Stat(path); err == nil && !replace {
		return nil, fmt.Errorf("baseline %s exists in %s; --replace saves it anew, gic baseline rm %s removes it", name, s.baselines(), name)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("baseline %s: no run files given", name)
	}
	b := &Baseline{Schema: BaselineSchema, Name: name, Time: now.UTC(), dir: s.baselines()}
	own, err := s.stage(name, copies)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(own) // what was not moved to its place
	for i, file := range files {
		f, err := describe(file)
		if err != nil {
			return nil, fmt.Errorf("baseline %s: %w", name, err)
		}
		f.Path = relative(s.baselines(), file)
		if copies {
			f.Copied = true
			f.Path = filepath.Join(name, fmt.Sprintf("%d.jsonl", i))
			if err := copyFile(file, filepath.Join(own, fmt.Sprintf("%d.jsonl", i)), f.SHA256); err != nil {
				return nil, fmt.Errorf("baseline %s: %w", name, err)
			}
		}
		b.Runs = append(b.Runs, f)
	}
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("baseline %s: %w", name, err)
	}
	place := filepath.Join(s.baselines(), name)
	if err := os.RemoveAll(place); err != nil {
		return nil, fmt.Errorf("baseline %s: %w", name, err)
	}
	if copies {
		if err := os.Rename(own, place); err != nil {
			return nil, fmt.Errorf("baseline %s: %w", name, err)
		}
	}
	if err := writeWhole(path, append(text, '\n')); err != nil {
		return nil, fmt.Errorf("baseline %s: %w", name, err)
	}
	return b, nil
}

// stage makes the folder of baselines, and a temporary one for copies in it.
func (s *Store) stage(name string, copies bool) (string, error) {
	if err := os.MkdirAll(s.baselines(), 0o755); err != nil {
		return "", fmt.Errorf("baseline %s: %w", name, err)
	}
	if !copies {
		return "", nil
	}
	dir, err := os.MkdirTemp(s.baselines(), ".new-")
	if err != nil {
		return "", fmt.Errorf("baseline %s: %w", name, err)
	}
	return dir, os.Chmod(dir, 0o755)
}

// describe hashes a run file and finds its run.
func describe(file string) (BaselineFile, error) {
	b := BaselineFile{}
	for rec, err := range record.ReadFile(file) {
		if err != nil {
			return b, err
		}
		h, ok := rec.(*record.Header)
		if !ok {
			return b, fmt.Errorf("%s is no run file: it does not begin with a header", file)
		}
		b.ID = h.ID
		break
	}
	if b.ID == "" {
		return b, fmt.Errorf("%s is no run file: it is empty", file)
	}
	var err error
	b.SHA256, b.Bytes, err = hashFile(file)
	return b, err
}

func hashFile(file string) (sum string, bytes int64, err error) {
	f, err := os.Open(file)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := sha256.New()
	if bytes, err = io.Copy(h, f); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(h.Sum(nil)), bytes, nil
}

// copyFile copies a file that still has the hash.
func copyFile(from, to, sum string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if got := sha256.Sum256(text); hex.EncodeToString(got[:]) != sum {
		return fmt.Errorf("%s changed while it was copied", from)
	}
	return os.WriteFile(to, text, 0o644)
}

// writeWhole writes a file so that it appears with all its content.
func writeWhole(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func relative(dir, file string) string {
	d, f := absolute(dir), absolute(file)
	r, err := filepath.Rel(d, f)
	// A store that moves as a whole keeps its baselines; what lies elsewhere does not move with it.
	if err != nil || strings.HasPrefix(r, filepath.Join("..", "..")) {
		return f
	}
	return r
}

// Baseline reads a baseline and checks that its files are what they were.
func (s *Store) Baseline(name string) (*Baseline, error) {
	b, err := s.read(name)
	if err != nil {
		return nil, err
	}
	for i, f := range b.Runs {
		path := b.Files()[i]
		sum, _, err := hashFile(path)
		if err != nil {
			return nil, fmt.Errorf("baseline %s: %w", name, err)
		}
		if sum != f.SHA256 {
			return nil, fmt.Errorf("baseline %s: %s is not what was saved (sha256 %.12s, was %.12s); gic baseline save %s DIR --replace takes it as it is now",
				name, path, sum, f.SHA256, name)
		}
	}
	return b, nil
}

func (s *Store) read(name string) (*Baseline, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	path := filepath.Join(s.baselines(), name+".json")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		all, _ := s.Baselines()
		var known []string
		for _, b := range all {
			known = append(known, b.Name)
		}
		have := "there are none"
		if known != nil {
			have = "there are " + strings.Join(known, ", ")
		}
		return nil, fmt.Errorf("no baseline %q in %s; %s", name, s.baselines(), have)
	}
	if err != nil {
		return nil, fmt.Errorf("baseline %s: %w", name, err)
	}
	b := &Baseline{}
	if err := json.Unmarshal(text, b); err != nil {
		return nil, fmt.Errorf("baseline %s: %s: %w", name, path, err)
	}
	if b.Schema != BaselineSchema {
		return nil, fmt.Errorf("baseline %s: %s: schema %q is not one this gic reads (%s)", name, path, b.Schema, BaselineSchema)
	}
	if b.Name != name || len(b.Runs) == 0 {
		return nil, fmt.Errorf("baseline %s: %s: it names itself %q and holds %d runs", name, path, b.Name, len(b.Runs))
	}
	b.dir = s.baselines()
	return b, nil
}

// Files are the run files of a baseline.
func (b *Baseline) Files() []string {
	var out []string
	for _, f := range b.Runs {
		p := f.Path
		if !filepath.IsAbs(p) {
			p = filepath.Join(b.dir, p)
		}
		out = append(out, p)
	}
	return out
}

// Baselines lists all baselines by name. One that cannot be read is in the error; the others are there.
func (s *Store) Baselines() ([]*Baseline, error) {
	found, err := filepath.Glob(filepath.Join(escapeGlob(s.baselines()), "*.json"))
	if err != nil {
		return nil, fmt.Errorf("list baselines: %w", err)
	}
	slices.Sort(found)
	var out []*Baseline
	var bad []error
	for _, path := range found {
		b, err := s.read(strings.TrimSuffix(filepath.Base(path), ".json"))
		if err != nil {
			bad = append(bad, err)
			continue
		}
		out = append(out, b)
	}
	return out, errors.Join(bad...)
}

func escapeGlob(path string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(path)
}

// RemoveBaseline forgets a baseline, with its copies; runs that it refers to stay.
func (s *Store) RemoveBaseline(name string) error {
	if _, err := s.read(name); err != nil {
		return err
	}
	// The file goes first: copies without a name are garbage, a name without copies is a broken baseline.
	if err := os.Remove(filepath.Join(s.baselines(), name+".json")); err != nil {
		return fmt.Errorf("remove baseline %s: %w", name, err)
	}
	if err := os.RemoveAll(filepath.Join(s.baselines(), name)); err != nil {
		return fmt.Errorf("remove baseline %s: %w", name, err)
	}
	return nil
}

// named gives the baseline that refers to each file.
func (s *Store) named() (map[string]string, error) {
	all, err := s.Baselines()
	if err != nil {
		return nil, fmt.Errorf("prune: a baseline cannot be read, so nothing is removed: %w", err)
	}
	out := map[string]string{}
	for _, b := range all {
		for _, f := range b.Files() {
			out[absolute(f)] = b.Name
		}
	}
	return out, nil
}
