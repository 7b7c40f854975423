package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"gic/backends"
	"gic/harness/plan"
	"gic/workloads/suites"
)

// catalog is what gic can name here: the backends it found and what they say of themselves.
type catalog struct {
	backends []found
	infos    map[string]*backends.Info
	// stale are the plugins, among those described, that were built for another version of gic.
	stale []error
}

// plugins are the backends of --backend-path, described.
type plugins struct {
	names []string // in the order given
	paths map[string]string
	infos map[string]*backends.Info
}

// describePlugins reads the files of --backend-path. One that cannot be described is a usage error.
func describePlugins(ctx context.Context, files []string) (*plugins, error) {
	p := &plugins{paths: map[string]string{}, infos: map[string]*backends.Info{}}
	for _, file := range files {
		abs, err := filepath.Abs(file)
		if err != nil {
			return nil, usagef("--backend-path %s: %w", file, err)
		}
		if info, err := os.Stat(abs); err != nil || !info.Mode().IsRegular() {
			return nil, usagef("--backend-path %s: no such file; a backend is a shared object (backends/README.md)", file)
		}
		info, err := describeFile(ctx, abs)
		if err != nil {
			return nil, usagef("--backend-path %s: %w", file, err)
		}
		if other, ok := p.paths[info.Name]; ok {
			return nil, usagef("--backend-path %s: backend %s is given twice, also by %s", file, info.Name, other)
		}
		p.names = append(p.names, info.Name)
		p.paths[info.Name] = abs
		p.infos[info.Name] = info
	}
	return p, nil
}

// loadCatalog finds the backends, those of the given plugins included, and describes those that want says yes to. A
// built-in backend that cannot be described is missing here.
func loadCatalog(ctx context.Context, given *plugins, want func(name string) bool) (*catalog, error) {
	c := &catalog{infos: maps.Clone(given.infos), backends: findBackends(given.paths)}
	infos := make([]*backends.Info, len(c.backends))
	errs := make([]error, len(c.backends))
	var wg sync.WaitGroup
	for i := range c.backends {
		b := &c.backends[i]
		if c.infos[b.name] != nil || b.missing != "" || !want(b.name) {
			continue
		}
		wg.Go(func() {
			if b.open != nil {
				info := b.open().Info()
				infos[i] = &info
				return
			}
			info, err := describeFile(ctx, b.path)
			if err != nil {
				b.missing = fmt.Sprintf("%s cannot be loaded: %s", filepath.Base(b.path), oneLine(err))
			}
			infos[i], errs[i] = info, err
		})
	}
	wg.Wait()
	for i, info := range infos {
		if info != nil {
			c.infos[c.backends[i].name] = info
		}
		if errors.As(errs[i], new(usageError)) {
			c.stale = append(c.stale, errs[i])
		}
	}
	return c, ctx.Err()
}

// fresh refuses a run with plugins of another version: unlike what a machine lacks, `make` mends that.
func (c *catalog) fresh() error {
	switch n := len(c.stale); n {
	case 0:
		return nil
	case 1:
		return c.stale[0]
	case 2:
		return usagef("%w; 1 more plugin is as unfit", c.stale[0])
	default:
		return usagef("%w; %d more plugins are as unfit", c.stale[0], n-1)
	}
}

// planBackends is the catalog as the plan wants it.
func (c *catalog) planBackends() []plan.Backend {
	list := make([]plan.Backend, len(c.backends))
	for i, b := range c.backends {
		list[i] = plan.Backend{Name: b.name, Info: c.infos[b.name], Missing: b.missing, Hidden: b.hidden}
	}
	return list
}

// path gives the plugin of a backend, "" for one that is part of gic.
func (c *catalog) path(name string) (string, error) {
	i := slices.IndexFunc(c.backends, func(b found) bool { return b.name == name })
	switch {
	case i < 0:
		return "", fmt.Errorf("backend %s is not known", name)
	case c.backends[i].missing != "":
		return "", fmt.Errorf("backend %s: %s", name, c.backends[i].missing)
	}
	return c.backends[i].path, nil
}

// probe asks a backend, in another process, whether each configuration can run here. When the question itself
// kills the process nothing is known beforehand: then the ranks will show it, and the record says how.
func (c *catalog) probe(ctx context.Context, name string, opens []backends.Open) []plan.Refusal {
	var answers []plan.Refusal
	path, err := c.path(name)
	if err == nil {
		err = ask(ctx, &answers, probeRequest{name, path, opens}, "probe")
	}
	if err != nil || len(answers) != len(opens) {
		return make([]plan.Refusal, len(opens))
	}
	return answers
}

// loadSuite reads a suite by name or from a file.
func loadSuite(name string) (*plan.Suite, error) {
	if slices.Contains(suites.Names(), name) {
		text, err := suites.Read(name)
		if err != nil {
			return nil, err
		}
		return plan.ParseSuite(name, text)
	}
	if !strings.ContainsAny(name, "/.") {
		return nil, usageError{fmt.Errorf("%w, or a YAML file", plan.UnknownName("suite", name, suites.Names(), ""))}
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, usagef("--suite %s: %w; known: %s, or a YAML file", name, unwrapPath(err), strings.Join(suites.Names(), ", "))
	}
	s, err := plan.ParseSuite(name, text)
	if err != nil {
		return nil, usageError{err}
	}
	return s, nil
}

// unwrapPath drops the path from an error that names it already.
func unwrapPath(err error) error {
	if pe, ok := err.(*os.PathError); ok {
		return pe.Err
	}
	return err
}
