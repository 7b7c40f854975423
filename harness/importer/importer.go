// Package importer reads what other tools print and makes reference rows of it: cases in the words of package
// record that stand in tables and diffs beside measured ones. Each names the file it was taken from
// (Case.Imported); gic measured and verified none of them, so that they are never a best floor.
//
// A format is a function from the bytes of a file to readings; what all formats share (units, process runs,
// problems with file and line) is in this package once. Nothing is guessed: what a file does not say is unknown,
// or comes from Options.Set. A value that is zero, negative, missing or no number is a Problem, never a 0.
package importer

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"gic/harness/record"
)

// maxFile bounds what is read into memory.
const maxFile = 1 << 30

// Auto is the format that is found out from the file.
const Auto = "auto"

// format is one way in which a tool writes results.
type format struct {
	name, doc string
	// like says whether a file looks like the format; two formats must not both like a file.
	like  func(data []byte) bool
	parse func(s *source)
}

// formats in the order in which they are listed.
func formats() []format {
	return []format{
		{"nccl-tests", "nccl-tests -J file (version 3), or its stdout table", likeNCCL, (*source).parseNCCL},
		{"perftest", "linux-rdma perftest: --out_json_file, or its stdout table", likePerftest, (*source).parsePerftest},
		{"nvshmem", "NVSHMEM perftest tables and &&&& PERF lines", likeNVSHMEM, (*source).parseNVSHMEM},
		{"deepep", "output of DeepEP's tests", likeDeepEP, (*source).parseDeepEP},
		{"collectivex", "CollectiveX case-attempt JSON", likeCollectiveX, (*source).parseCollectiveX},
		{"benchfmt", "Go benchmark format, as benchstat reads", likeBenchfmt, (*source).parseBenchfmt},
		{"csv", "gic's csv, or one line per value: workload,backend,metric,value,unit", likeCSV, (*source).parseCSV},
	}
}

// Formats lists the names of the formats, Auto last.
func Formats() []string {
	var names []string
	for _, f := range formats() {
		names = append(names, f.name)
	}
	return append(names, Auto)
}

// Describe says what a format is, in one line.
func Describe(name string) string {
	for _, f := range formats() {
		if f.name == name {
			return f.doc
		}
	}
	return "found out from the file"
}

// Options are what a user adds to a file.
type Options struct {
	// Format is one of Formats; "" means Auto.
	Format string
	// As is the backend's name in the records instead of the tool's.
	As string
	// Set gives keys (as in record.Flatten) that the file does not say. A key that it does say otherwise is an
	// error.
	Set []record.KeyValue
	// Env picks from an environment (os.Environ form) what may be kept. Without it nothing is: tools dump all.
	Env func([]string) map[string]string
}

// Problem is a place in a file, and what is wrong or remarkable there.
type Problem struct {
	File string
	Line int // from 1; 0 for the whole file
	Text string
}

func (p *Problem) Error() string {
	if p.Line == 0 {
		return p.File + ": " + p.Text
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text)
}

// Result is what a file holds.
type Result struct {
	Source record.Import
	// Cases in the order of the file, each process run of a case once, numbered from 0.
	Cases []*record.Case
	// Problems are results that could not be taken.
	Problems []*Problem
	// Notes are what was passed over: diagnostics among the results, quantities that are no time, rate or
	// bandwidth.
	Notes []*Problem
	// Env is the file's environment as far as Options.Env picks from it.
	Env map[string]string
	// Host is what the file says about the machine.
	Host record.Machine
}

// ReadFile reads a file. The error is for a file that is not of the format as a whole, or holds no result.
func ReadFile(path string, opt Options) (*Result, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("import: %w", err)
	}
	if st.IsDir() {
		return nil, fmt.Errorf("import %s: is a folder; allowed: a file", path)
	}
	if st.Size() > maxFile {
		return nil, fmt.Errorf("import %s: %d bytes are more than %d", path, st.Size(), maxFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("import: %w", err)
	}
	return Parse(path, data, opt)
}

// Parse reads the bytes of a file that messages and records call name.
func Parse(name string, data []byte, opt Options) (*Result, error) {
	f, err := choose(name, data, opt.Format)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	s := &source{
		name: name, data: bytes.TrimPrefix(data, []byte("\ufeff")), opt: opt, byKey: map[string]*pending{},
		imp: record.Import{Format: f.name, File: name, SHA256: hex.EncodeToString(sum[:])},
	}
	s.host = record.Machine{Hostname: "unknown", OS: "unknown", Kernel: "unknown"}
	f.parse(s)
	if s.fatal != nil {
		return nil, fmt.Errorf("import %s: %w", name, s.fatal)
	}
	r := &Result{Source: s.imp, Cases: s.finish(), Problems: s.problems, Notes: s.notes, Env: s.env, Host: s.host}
	if s.fatal != nil {
		return nil, fmt.Errorf("import %s: %w", name, s.fatal)
	}
	if len(r.Cases) == 0 {
		if len(r.Problems) > 0 {
			return r, fmt.Errorf("import %s: no result of %s could be taken: %s", name, f.name, at(r.Problems[0]))
		}
		return r, fmt.Errorf("import %s: holds no result of %s", name, f.name)
	}
	return r, nil
}

// at says where and what, without the file's name.
func at(p *Problem) string {
	if p.Line == 0 {
		return p.Text
	}
	return fmt.Sprintf("line %d: %s", p.Line, p.Text)
}

// choose finds the format by its name or by what the file looks like.
func choose(name string, data []byte, want string) (format, error) {
	list := formats()
	if want != "" && want != Auto {
		i := slices.IndexFunc(list, func(f format) bool { return f.name == want })
		if i < 0 {
			return format{}, fmt.Errorf("format %q is not one of %s", want, strings.Join(Formats(), ", "))
		}
		return list[i], nil
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return format{}, fmt.Errorf("import %s: is empty", name)
	}
	if bytes.Contains(data[:min(len(data), 200)], []byte(`"schema":"gic.run/`)) {
		return format{}, fmt.Errorf("import %s: is a run of gic already; `gic show` prints it", name)
	}
	var like []format
	var names []string
	for _, f := range list {
		if f.like(data) {
			like, names = append(like, f), append(names, f.name)
		}
	}
	switch len(like) {
	case 1:
		return like[0], nil
	case 0:
		return format{}, fmt.Errorf("import %s: looks like none of %s", name, strings.Join(Formats()[:len(list)], ", "))
	}
	return format{}, fmt.Errorf("import %s: looks like %s: say which", name, strings.Join(names, " and like "))
}

// CheckSet reads KEY=VALUE settings, keys named as in record.Flatten.
func CheckSet(settings []string) ([]record.KeyValue, error) {
	var out []record.KeyValue
	for _, text := range settings {
		key, value, ok := strings.Cut(text, "=")
		if !ok || value == "" {
			return nil, fmt.Errorf("setting %q is not KEY=VALUE", text)
		}
		kv := record.KeyValue{Key: key, Value: value}
		if err := (&reading{}).set(kv); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out, func(o record.KeyValue) bool { return o.Key == key }) {
			return nil, fmt.Errorf("setting %s is given twice", key)
		}
		out = append(out, kv)
	}
	return out, nil
}

var errRanks = errors.New("does not say the number of ranks: give ranks=N (--set ranks=N)")
