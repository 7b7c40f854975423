package routing

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func config(spec string) Config {
	return Config{Ranks: 4, Tokens: 64, Experts: 32, TopK: 4, Spec: spec, Seed: 7}
}

func generate(t *testing.T, c Config) *Table {
	t.Helper()
	table, err := Generate(c)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// The hashes are part of the records: a change of one is a change of what every earlier run measured.
func TestHashes(t *testing.T) {
	masked := config("uniform")
	masked.Masked = 0.1
	for _, c := range []struct {
		Config
		want string
	}{
		{config("uniform"), "6d8d02ac03c6dace305f1826778dd1657bbed0443727f9fcda2faecdc18a6bf3"},
		{masked, "d35f6d795f2d0191208a67e150ccff96ea7656ba7a0916226e0fb1e46993cb3f"},
		{config("power:1.2"), "438d0ab8fce01c7b4fe005868e2d531dea44f58b69924b6f56bf055a09782485"},
		{config("lognormal:0.8"), "5084c3e8b5f3949bd5f8c5e021aa1c034937f52ac44af5228ded90d568c88233"},
		{config("hot:4"), "c46b48df4655bd1aa0ca349fafcdc560eaa4afdd07f5794b5ef2be7d465a3418"},
		{config("group:8/4"), "c86c0a95ca14fbc9056a4efc5609dbda72f4eea0b5f71518af1b03abdb234fc4"},
	} {
		if got := generate(t, c.Config).Hash(); got != c.want {
			t.Errorf("%s masked %g: %s, expected %s", c.Spec, c.Masked, got, c.want)
		}
		c.Seed++
		if generate(t, c.Config).Hash() == c.want {
			t.Errorf("%s: another seed gives the same table", c.Spec)
		}
	}
}

// A token's entries depend on its rank and number alone, not on how many others there are.
func TestTokensAreIndependent(t *testing.T) {
	a := config("lognormal:0.8")
	b := a
	b.Tokens = 5
	ta, tb := generate(t, a), generate(t, b)
	for rank := range a.Ranks {
		for token := range b.Tokens {
			ea, ga := ta.At(rank, token)
			eb, gb := tb.At(rank, token)
			if !slices.Equal(ea, eb) || !slices.Equal(ga, gb) {
				t.Errorf("rank %d token %d: %v %v and %v %v", rank, token, ea, ga, eb, gb)
			}
		}
	}
}

func TestEntriesAreDistinctAndGatesInRange(t *testing.T) {
	for _, spec := range []string{"uniform", "power:10", "lognormal:10", "hot:1000000", "group:8/2"} {
		c := config(spec)
		c.TopK = 8
		table := generate(t, c)
		for rank := range c.Ranks {
			for token := range c.Tokens {
				experts, gates := table.At(rank, token)
				sorted := slices.Sorted(slices.Values(experts))
				if len(slices.Compact(sorted)) != c.TopK || sorted[0] < 0 || int(sorted[c.TopK-1]) >= c.Experts {
					t.Fatalf("%s rank %d token %d: experts %v", spec, rank, token, experts)
				}
				for _, g := range gates {
					if g < 0.125 || g >= 0.25 || math.Float32bits(g)<<16 != 0 {
						t.Fatalf("%s rank %d token %d: gate %g", spec, rank, token, g)
					}
				}
			}
		}
	}
}

// The laws, on many tokens, against their own probabilities. With topk=1 an expert's share is its weight's.
func TestLaws(t *testing.T) {
	shares := func(spec string, ranks, experts int) []float64 {
		c := Config{Ranks: ranks, Tokens: 100000 / ranks, Experts: experts, TopK: 1, Spec: spec, Seed: 3}
		s := make([]float64, experts)
		for _, e := range generate(t, c).Expert {
			s[e] += 1 / float64(c.Tokens*ranks)
		}
		return s
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 4*math.Sqrt(want*(1-want)/100000) { // four standard deviations
			t.Errorf("%s: share %g, expected %g", what, got, want)
		}
	}
	for _, s := range shares("uniform", 4, 8) {
		near("uniform", s, 1.0/8)
	}
	for e, s := range shares("hot:3", 4, 8) {
		want := 1.0 / 12 // 2 experts of weight 3, 6 of weight 1
		if e < 2 {
			want = 3.0 / 12
		}
		near("hot:3", s, want)
	}
	power := shares("power:1", 4, 4)
	slices.SortFunc(power, func(a, b float64) int { return int(math.Copysign(1, b-a)) })
	for i, s := range power { // 1 + 1/2 + 1/3 + 1/4 = 25/12
		near("power:1", s, 12/(25*float64(i+1)))
	}
	if s := shares("power:0", 4, 8); slices.Max(s) > 0.13 || slices.Min(s) < 0.12 {
		t.Errorf("power:0 is not uniform: %v", s)
	}
	var mean, square float64
	logs := shares("lognormal:0.5", 1, 256)
	for _, s := range logs {
		mean += math.Log(s) / 256
	}
	for _, s := range logs {
		square += (math.Log(s) - mean) * (math.Log(s) - mean) / 256
	}
	// The standard deviation of the logarithms is sigma; 256 experts tell it to about 5 %.
	if sigma := math.Sqrt(square); sigma < 0.4 || sigma > 0.6 {
		t.Errorf("lognormal:0.5: the logarithms of the shares deviate by %g", sigma)
	}
}

func TestGroups(t *testing.T) {
	table := generate(t, config("group:8/2"))
	for i := 0; i < len(table.Expert); i += 4 {
		groups := map[int32]bool{}
		for _, e := range table.Expert[i : i+4] {
			groups[e/4] = true
		}
		if len(groups) > 2 {
			t.Fatalf("token %d uses %d groups", i/4, len(groups))
		}
	}
}

func TestMasked(t *testing.T) {
	for fraction, low := range map[float64]int{0: 0, 0.25: 220, 1: 1024} {
		c := config("uniform")
		c.Masked = fraction
		n := 0
		table := generate(t, c)
		for i, e := range table.Expert {
			if e == Masked {
				n++
				if table.Gate[i] != 0 {
					t.Fatalf("entry %d is masked and has the gate %g", i, table.Gate[i])
				}
			}
		}
		if high := int(fraction*1024) + 36; n < low || n > high || fraction == 0 && n > 0 {
			t.Errorf("masked %g: %d of 1024", fraction, n)
		}
	}
}

func TestStats(t *testing.T) {
	for _, c := range []struct {
		name    string
		experts []int32
		want    Stats
	}{
		{"even", []int32{0, 1, 2, 3, 0, 1, 2, 3}, Stats{8, 4, 1, 1, 0}},
		{"one expert", []int32{0, -1, 0, -1, 0, -1, 0, -1}, Stats{4, 4, 4, 2, 0.75}},
		{"nothing", []int32{-1, -1, -1, -1, -1, -1, -1, -1}, Stats{}},
		{"same rank", []int32{0, 1, 1, 0, 0, 1, -1, -1}, Stats{6, 3, 2, 2, 0.5}},
	} {
		table := &Table{Config: Config{Ranks: 2, Tokens: 2, Experts: 4, TopK: 2}, Expert: c.experts}
		if got := table.Stats(); got != c.want {
			t.Errorf("%s: %+v, expected %+v", c.name, got, c.want)
		}
	}
}

func TestMathIsRight(t *testing.T) {
	for x := 1e-9; x < 1e9; x *= 1.37 {
		if got, want := ln(x), math.Log(x); math.Abs(got-want) > 4e-16*max(1, math.Abs(want)) {
			t.Errorf("ln %g: %.17g, expected %.17g", x, got, want)
		}
	}
	for x := -100.0; x < 100; x += 0.37 {
		if got, want := exp(x), math.Exp(x); math.Abs(got-want) > 1e-15*want {
			t.Errorf("exp %g: %.17g, expected %.17g", x, got, want)
		}
	}
}

func TestTrace(t *testing.T) {
	c := Config{Ranks: 2, Tokens: 2, Experts: 4, TopK: 2}
	trace, err := c.readTrace(strings.NewReader("# rank 0\n0,1\n\n2 3\n-1 -1\r\n3\t-1 # last\nnot read\n"))
	if err != nil || !slices.Equal(trace, []int32{0, 1, 2, 3, -1, -1, 3, -1}) {
		t.Errorf("%v, %v", trace, err)
	}
	for _, bad := range []struct{ text, want string }{
		{"", "line 0: the file ends after 0 tokens, expected 4"},
		{"0 1\n2 3\n0 1\n", "line 3: the file ends after 3 tokens, expected 4"},
		{"0 1\n2\n", "line 2: 1 experts, expected topk=2"},
		{"0 4\n", `line 1: "4" is not allowed: an expert in 0..3, or -1`},
		{"0 -2\n", `line 1: "-2" is not allowed`},
		{"0 x\n", `line 1: "x" is not allowed`},
		{"0 99999999999999999999\n", "is not allowed"},
		{"1 1\n", "line 1: expert 1 twice"},
		{strings.Repeat("1", 2<<20), "line 1: bufio.Scanner: token too long"},
	} {
		if _, err := c.readTrace(strings.NewReader(bad.text)); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%.20q: error %v, expected %q", bad.text, err, bad.want)
		}
	}
	path := filepath.Join(t.TempDir(), "trace")
	if err := os.WriteFile(path, []byte("0 1\n2 3\n-1 -1\n3 -1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c.Spec = "trace:" + path
	if table := generate(t, c); !slices.Equal(table.Expert, trace) {
		t.Errorf("%v, expected %v", table.Expert, trace)
	}
}

func TestSpecErrors(t *testing.T) {
	for spec, want := range map[string]string{
		"":                "routing= is not allowed: uniform | ",
		"uniform:1":       "routing=uniform:1 is not allowed",
		"power":           "power takes a number in 0..10",
		"power:x":         "power takes a number in 0..10",
		"power:-1":        "power takes a number in 0..10",
		"power:NaN":       "power takes a number in 0..10",
		"lognormal:11":    "lognormal takes a number in 0..10",
		"hot:0.5":         "hot takes a number in 1..1e+06",
		"group:8":         "group:<groups>/<top>",
		"group:8/9":       "1 <= top <= groups",
		"group:0/0":       "1 <= top <= groups",
		"group:5/2":       "32 experts are not divisible into 5 groups",
		"group:16/1":      "1 groups of 2 experts are fewer than topk=4",
		"trace:":          "routing=trace: is not allowed",
		"trace:/nonesuch": "no such file",
	} {
		if _, err := Generate(config(spec)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, expected %q", spec, err, want)
		}
	}
}

func FuzzTrace(f *testing.F) {
	f.Add("0 1\n2 3\n-1 -1\n3 -1\n")
	f.Fuzz(func(t *testing.T, text string) {
		c := Config{Ranks: 2, Tokens: 2, Experts: 4, TopK: 2}
		trace, err := c.readTrace(strings.NewReader(text))
		if err == nil && (len(trace) != 8 || slices.Max(trace) > 3 || slices.Min(trace) < -1) {
			t.Errorf("%q: %v", text, trace)
		}
	})
}
