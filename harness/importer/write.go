package importer

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"gic/harness/record"
)

// Join makes the records of one run of results: a header, then the cases. Of a case that several files hold, each
// file is a process run of its own; they are numbered in the order of the files.
func Join(results []*Result, header record.Header) (*record.Header, []*record.Case) {
	h := header
	h.Launch, h.Ranks, h.Repeat = "import", 1, 1
	next := map[string]int{}
	var cases []*record.Case
	for i, r := range results {
		h.Imported = append(h.Imported, r.Source)
		if i == 0 {
			h.Host = r.Host
		} else if r.Host.Hostname != "unknown" {
			h.Hosts = append(h.Hosts, r.Host)
		}
		if len(r.Env) > 0 {
			if h.Env == nil {
				h.Env = map[string]string{}
			}
			maps.Copy(h.Env, r.Env)
		}
		for _, c := range r.Cases {
			c.Index = next[c.ID]
			next[c.ID]++
			c.Order = len(cases)
			h.Ranks, h.Repeat = max(h.Ranks, c.Ranks), max(h.Repeat, c.Index+1)
			cases = append(cases, c)
		}
	}
	h.Cases = len(cases)
	return &h, cases
}

// Write makes a new run file of results in a folder and returns its path. The header needs Command and Gic; its
// ID and Time are filled in where they are empty.
func Write(dir string, results []*Result, header record.Header) (string, error) {
	if header.Time.IsZero() {
		header.Time = time.Now().UTC().Truncate(time.Second)
	}
	if header.ID == "" {
		header.ID = NewID(header.Time)
	}
	h, cases := Join(results, header)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("import: %w", err)
	}
	path := filepath.Join(dir, record.FileName)
	w, err := record.Create(path)
	if errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("import: %s is there already: choose another folder", path)
	} else if err != nil {
		return "", err
	}
	err = w.Write(h)
	for _, c := range cases {
		if err == nil {
			err = w.Write(c)
		}
	}
	return path, errors.Join(err, w.Close())
}

// NewID names a run by its time and four random digits.
func NewID(t time.Time) string {
	var b [2]byte
	rand.Read(b[:])
	return t.UTC().Format("20060102-150405") + "-" + hex.EncodeToString(b[:])
}
