package cli

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// committed is the folder of all records in this repository: years of campaigns that no test made up.
const committed = "../../results"

// aCampaign is a large one of them, for commands that need not all be run on every record here.
const aCampaign = committed + "/2026-11-30-h200-nvshmem"

// Every command that reads records reads the committed ones: it says something, on lines that fit, without a value that is
// no number.
func TestCommittedResults(t *testing.T) {
	for _, tt := range []struct {
		args   []string
		status int
		fits   bool // the lines are for people
		dir    string
	}{
		{[]string{"show"}, exitOK, true, aCampaign},
		{[]string{"show", "--all"}, exitOK, true, committed},
		{[]string{"show", "--format", "csv"}, exitOK, false, aCampaign},
		{[]string{"show", "--format", "markdown"}, exitOK, false, aCampaign},
		{[]string{"show", "--format", "nccl-tests"}, exitOK, false, aCampaign},
		{[]string{"attribute"}, exitOK, true, committed},
		{[]string{"attribute", "--format", "brief"}, exitOK, true, aCampaign},
		{[]string{"results", "list"}, exitOK, true, committed},
		{[]string{"results", "query"}, exitOK, true, aCampaign},
		{[]string{"results", "verify"}, exitFailed, false, committed}, // some campaigns were cut, and it says so
		{[]string{"history", "backend:minigda workload:op"}, exitOK, true, aCampaign},
		{[]string{"export", "--format", "benchfmt"}, exitOK, false, aCampaign},
		{[]string{"export", "--format", "prometheus"}, exitOK, false, aCampaign},
	} {
		name := strings.Join(tt.args, " ")
		status, stdout, stderr := gic(t, append(tt.args, tt.dir)...)
		if status != tt.status || stderr != "" || stdout == "" {
			t.Errorf("gic %s: status %d, want %d; %d bytes, stderr %q", name, status, tt.status, len(stdout), stderr)
		}
		if tt.fits {
			narrow(t, name, stdout)
		}
		lines := bufio.NewScanner(strings.NewReader(stdout))
		lines.Buffer(nil, 1<<24)
		for lines.Scan() {
			line := lines.Text()
			for _, bad := range []string{"NaN", "%!", "<nil>", "map["} {
				if strings.Contains(line, bad) {
					t.Fatalf("gic %s: a line has %q: %s", name, bad, line)
				}
			}
			if name == "results verify" && !strings.Contains(line, " is incomplete: ") && !strings.Contains(line, " problems") {
				t.Errorf("gic %s: %s", name, line)
			}
		}
	}
}

// A record's id is the hash of its keys: also where a path in them was shortened before it was committed.
func TestCommittedPathsAreShort(t *testing.T) {
	err := filepath.WalkDir(committed, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d != nil && d.Name() == "local" {
				return fs.SkipDir
			}
			return err
		}
		if filepath.Ext(path) != ".jsonl" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, bad := range []string{`"/root/`, `"/home/`, `"/tmp/`, `"/work/`} {
			if i := bytes.Index(text, []byte(bad)); i >= 0 {
				t.Errorf("%s has a path of its machine: %s", path, fmt.Sprintf("%.60s", text[i:]))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
