package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gic/minigda/nictrace"
)

// tracesIn writes two traces of a put with a signal and a flush, the second with half the doorbells, and goes there.
func tracesIn(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	for _, batch := range []uint16{1, 2} {
		tr := &nictrace.Trace{Ranks: 2, Profile: "none", QPs: []nictrace.QP{{Number: 256, Depth: 64}, {Number: 257, Peer: 1, Depth: 64}}}
		add := func(r nictrace.Record) {
			r.Time = uint64(1000 + 40*len(tr.Records))
			tr.Records = append(tr.Records, r)
		}
		add(nictrace.Record{QP: -1, Kind: nictrace.Mark})
		for i := uint16(0); i < 6; i += batch {
			add(nictrace.Record{QP: 1, Kind: nictrace.Doorbell, Index: i + batch})
			for k := i; k < i+batch; k++ {
				w := nictrace.Record{QP: 1, Kind: nictrace.WQE, Index: k, Opcode: nictrace.RDMAWrite, DS: 3, Bytes: 8, Inline: true, Raddr: 0x7f0000000000 + 8*uint64(k)}
				if k%2 == 1 {
					w.Opcode, w.DS, w.Inline, w.Raddr, w.FMCESE = nictrace.AtomicFA, 4, false, 0x7f0000001000, nictrace.CQUpdate
				}
				add(w)
				if k%2 == 1 {
					add(nictrace.Record{QP: 1, Kind: nictrace.CQE, Index: k})
				}
			}
		}
		add(nictrace.Record{QP: -1, Kind: nictrace.Mark, Index: 1})
		var b bytes.Buffer
		if err := nictrace.Write(&b, tr); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile([]string{"one.trace", "two.trace"}[batch-1], b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTraceCommands(t *testing.T) {
	here, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	tracesIn(t)
	for _, c := range []struct {
		name   string
		status int
		args   []string
	}{
		{"trace-show", 0, []string{"show", "one.trace", "--limit", "8"}},
		{"trace-show-qp", 0, []string{"show", "two.trace", "--qp", "257", "--all"}},
		{"trace-stats", 0, []string{"stats", "one.trace", "two.trace"}},
		{"trace-diff", 1, []string{"diff", "one.trace", "two.trace"}},
		{"trace-same", 0, []string{"diff", "one.trace", "two.trace", "--ignore", "batches"}},
		{"trace-csv", 0, []string{"export", "one.trace", "--format", "csv"}},
		{"help-trace", 0, []string{"show", "-h"}},
	} {
		status, stdout, stderr := gic(t, append([]string{"trace"}, c.args...)...)
		if status != c.status || stderr != "" {
			t.Errorf("%s: status %d, want %d; stderr %q", c.name, status, c.status, stderr)
		}
		narrow(t, c.name, stdout)
		file := filepath.Join(here, c.name+".stdout")
		if *update {
			if err := os.WriteFile(file, []byte(stdout), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(want) != stdout {
			t.Errorf("%s: want\n%s\ngot\n%s", c.name, want, stdout)
		}
	}
	for _, args := range [][]string{{"stats", "one.trace", "--format", "json"}, {"diff", "one.trace", "two.trace", "--format", "json"},
		{"export", "one.trace", "--format", "json"}, {"export", "one.trace", "--format", "perfetto"}} {
		if _, stdout, stderr := gic(t, append([]string{"trace"}, args...)...); !json.Valid([]byte(stdout)) || stderr != "" {
			t.Errorf("%v: no JSON: %s%s", args, stdout, stderr)
		}
	}
	if status, stdout, _ := gic(t, "trace", "export", "one.trace", "--format", "csv", "-o", "out.csv"); status != 0 || stdout != "" {
		t.Errorf("-o: status %d, %q", status, stdout)
	}
	if b, err := os.ReadFile("out.csv"); err != nil || !strings.HasPrefix(string(b), "time_ns,") {
		t.Errorf("out.csv: %v %q", err, b)
	}
}

func TestTraceBadInput(t *testing.T) {
	tracesIn(t)
	good, err := os.ReadFile("one.trace")
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 4
	for name, b := range map[string][]byte{"cut": good[:len(good)-9], "flipped": flipped, "old": append([]byte("SNTRACE1"), good[8:]...), "text": []byte("hello, world\n")} {
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "takes one of show, stats, diff, export"},
		{[]string{"shwo"}, `did you mean "show"?`},
		{[]string{"show"}, "at least one FILE"},
		{[]string{"show", "none"}, "no such file"},
		{[]string{"show", "cut"}, "read trace cut: "},
		{[]string{"stats", "flipped"}, "read trace flipped: "},
		{[]string{"diff", "one.trace", "old"}, `version "1"; allowed: "2"`},
		{[]string{"export", "text", "--format", "csv"}, "not with SNTRACE2"},
		{[]string{"diff", "one.trace"}, "takes 2 FILEs, got 1"},
		{[]string{"diff", "one.trace", "two.trace", "--ignore", "time"}, "allowed: batches, addresses"},
		{[]string{"export", "one.trace"}, "one of perfetto, json, csv"},
		{[]string{"export", "one.trace", "--format", "xml"}, "allowed: perfetto, json, csv"},
		{[]string{"show", "one.trace", "--qp", "5"}, "no QP 5; known: 256, 257"},
		{[]string{"stats", "one.trace", "--limit", "5"}, "unknown flag --limit"},
	} {
		status, stdout, stderr := gic(t, append([]string{"trace"}, c.args...)...)
		if status != 2 || stdout != "" || !strings.Contains(stderr, c.want) || strings.Count(strings.TrimSpace(stderr), "\n") != 0 {
			t.Errorf("%v: status %d, stdout %q, stderr %q, want one line with %q", c.args, status, stdout, stderr, c.want)
		}
	}
}
