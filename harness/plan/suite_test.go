package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const goodSuite = `
doc: a suite
ranks: 3
repeat: 4
backends: [minigda, "miniproxy:handoff=tuned"]
libraries: [nvshmem]
blocks:
  - workload: op:op=put,size=8|64
  - workload: rate
    backends:
      - minigda:qps=1..4*2
`

func TestParseSuite(t *testing.T) {
	got, err := ParseSuite("s", []byte(goodSuite))
	if err != nil {
		t.Fatal(err)
	}
	want := &Suite{Name: "s", Doc: "a suite", Ranks: 3, Repeat: 4, Blocks: []Block{
		{Spec{"op", []Setting{{"op", []string{"put"}}, {"size", []string{"8", "64"}}}},
			[]Spec{{Name: "minigda"}, {"miniproxy", []Setting{{"handoff", []string{"tuned"}}}}, {Name: "nvshmem"}}},
		{Spec{Name: "rate"}, []Spec{{"minigda", []Setting{{"qps", []string{"1", "2", "4"}}}}, {Name: "nvshmem"}}},
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestParseSuiteErrors(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"empty", "", "the file is empty"},
		{"not yaml", "blocks: [", "line 1"},
		{"unknown field", "doc: x\nblock:\n  - workload: op\n", `line 2: unknown field "block"`},
		{"unknown inner field", "backends: [a]\nblocks:\n  - workload: op\n    axis: x\n", `line 4: unknown field "axis"`},
		{"twice", "ranks: 2\nranks: 3\n", "line 2"},
		{"bad type", "ranks: many\nblocks:\n  - workload: op\n", "line 1"},
		{"bad spec", "backends: [a]\nblocks:\n  - workload: op:size\n", `line 3: "op:size" at character 8: no value for "size"`},
		{"bad backend", "backends:\n  - a\n  - b:=1\nblocks:\n  - workload: op\n", "line 3"},
		{"map for a spec", "backends:\n  - a: {qps: 1}\nblocks:\n  - workload: op\n", "line 2: a text NAME:key=v|v,key=v is expected"},
		{"no blocks", "doc: x\n", "no blocks"},
		{"no workload", "blocks:\n  - backends: [a]\n", "block 1 has no workload"},
		{"no backends", "blocks:\n  - workload: op\n", "block 1 (op) has no backends"},
		{"negative", "ranks: -2\nbackends: [a]\nblocks:\n  - workload: op\n", "ranks: -2 is not allowed"},
		{"two documents", "backends: [a]\nblocks:\n  - workload: op\n---\ndoc: y\n", "more than one YAML document"},
	}
	for _, tt := range tests {
		_, err := ParseSuite("s.yaml", []byte(tt.text))
		if err == nil {
			t.Errorf("%s: no error", tt.name)
			continue
		}
		if msg := err.Error(); !strings.Contains(msg, tt.want) || !strings.HasPrefix(msg, "suite s.yaml: ") || strings.Contains(msg, "\n") {
			t.Errorf("%s: %q, want one line with %q", tt.name, msg, tt.want)
		}
	}
}

func FuzzParseSuite(f *testing.F) {
	f.Add(goodSuite)
	f.Add("blocks:\n  - workload: [a]\n")
	f.Add("backends: a\nblocks: {a: b}\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSuite("s", []byte(text))
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("the error has more than one line: %q", err)
			}
			return
		}
		for _, b := range s.Blocks {
			if b.Workload.Name == "" || len(b.Backends) == 0 {
				t.Fatalf("accepted a block %+v", b)
			}
		}
	})
}

func mustSpecs(t *testing.T, texts ...string) []Spec {
	t.Helper()
	var specs []Spec
	for _, s := range texts {
		spec, err := ParseSpec(s)
		if err != nil {
			t.Fatal(err)
		}
		specs = append(specs, spec)
	}
	return specs
}

func TestNarrow(t *testing.T) {
	s, err := ParseSuite("s", []byte(goodSuite))
	if err != nil {
		t.Fatal(err)
	}
	const op, rate = "op:op=put,size=8|64 <- ", "rate <- "
	tests := []struct {
		name         string
		works, backs []string
		join         string
		want         []string // "workload <- backend backend"
	}{
		{"all", nil, nil, "", []string{"op:op=put,size=8|64 <- minigda miniproxy:handoff=tuned nvshmem", "rate <- minigda:qps=1|2|4 nvshmem"}},
		{"one workload", []string{"rate"}, nil, "", []string{"rate <- minigda:qps=1|2|4 nvshmem"}},
		{"its axes", []string{"op:size=4K"}, nil, "", []string{"op:op=put,size=4K <- minigda miniproxy:handoff=tuned nvshmem"}},
		{"one backend", nil, []string{"minigda"}, "", []string{"op:op=put,size=8|64 <- minigda", "rate <- minigda:qps=1|2|4"}},
		{"its keys", nil, []string{"minigda:qps=9"}, "", []string{"op:op=put,size=8|64 <- minigda:qps=9", "rate <- minigda:qps=9"}},
		{"a new backend", []string{"rate"}, []string{"mine:a=1"}, "", []string{"rate <- mine:a=1"}},
		{"a new backend in every block", nil, []string{"mine"}, "", []string{op + "mine", rate + "mine"}},
		{"one of a single block", nil, []string{"miniproxy"}, "", []string{op + "miniproxy:handoff=tuned"}},
		{"each where the suite has it", nil, []string{"miniproxy", "nvshmem"}, "", []string{op + "miniproxy:handoff=tuned nvshmem", rate + "nvshmem"}},
		{"and a new one everywhere", nil, []string{"miniproxy", "mine"}, "", []string{op + "miniproxy:handoff=tuned mine", rate + "mine"}},
		{"beside all", nil, nil, "mine", []string{op + "minigda miniproxy:handoff=tuned nvshmem mine", rate + "minigda:qps=1|2|4 nvshmem mine"}},
		{"one that is there already", nil, nil, "miniproxy", []string{op + "minigda miniproxy:handoff=tuned nvshmem", rate + "minigda:qps=1|2|4 nvshmem"}},
		{"twice", []string{"rate"}, []string{"minigda:qps=9", "minigda:batch=2"}, "", []string{"rate <- minigda:qps=9 minigda:qps=1|2|4,batch=2"}},
	}
	for _, tt := range tests {
		n, err := s.Narrow(mustSpecs(t, tt.works...), mustSpecs(t, tt.backs...), mustSpecs(t, strings.Fields(tt.join)...))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var got []string
		for _, b := range n.Blocks {
			line := b.Workload.String() + " <-"
			for _, spec := range b.Backends {
				line += " " + spec.String()
			}
			got = append(got, line)
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
	for _, tt := range []struct {
		works, backs []string
		want         string
	}{
		{[]string{"moe"}, nil, `unknown workload "moe" in suite s; known: op, rate`},
		{[]string{"rate"}, []string{"miniproxy"}, "suite s has backend miniproxy with workload op only, not with rate"},
		{[]string{"rate"}, []string{"miniproxy", "minigda"}, "suite s has backend miniproxy with workload op only, not with rate"},
		{[]string{"op", "rate"}, []string{"miniproxy"}, "suite s has workload rate on other backends only, not on miniproxy"},
	} {
		if _, err := s.Narrow(mustSpecs(t, tt.works...), mustSpecs(t, tt.backs...), nil); err == nil || err.Error() != tt.want {
			t.Errorf("%v on %v: %v, want %s", tt.works, tt.backs, err, tt.want)
		}
	}
}
