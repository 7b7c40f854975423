// Package routing decides which experts each token goes to. The same configuration gives the same table on every
// platform: one counter-based generator (splitmix64), integer weights, and logarithm and exponential made of
// correctly rounded operations alone.
package routing

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Config says what is routed, and how.
type Config struct {
	Ranks   int
	Tokens  int // per rank
	Experts int // of all ranks; a multiple of Ranks, in blocks by rank
	TopK    int // experts per token
	// Spec is the law: uniform, power:<alpha>, lognormal:<sigma>, hot:<ratio>, group:<groups>/<top>, trace:<file>.
	Spec   string
	Masked float64 // probability that an entry is struck out
	Seed   uint64
}

// Masked is the expert of an entry that was struck out.
const Masked = -1

// Table is the routing of every token of every rank.
type Table struct {
	Config
	// Expert and Gate have Ranks x Tokens x TopK entries. A gate weight is a bf16 value in [1/8, 1/4), 0 where
	// masked; the weights of a token are not normalised.
	Expert []int32
	Gate   []float32
}

// Specs are the allowed forms of Config.Spec.
const Specs = "uniform | power:<alpha> | lognormal:<sigma> | hot:<ratio> | group:<groups>/<top> | trace:<file>"

// Generate makes the table.
func Generate(c Config) (*Table, error) {
	t := &Table{Config: c}
	n := c.Ranks * c.Tokens * c.TopK
	t.Expert, t.Gate = make([]int32, n), make([]float32, n)
	draw, err := c.law()
	if err != nil {
		return nil, err
	}
	masked := uint64(math.Round(c.Masked * 1e9))
	for rank := range c.Ranks {
		for token := range c.Tokens {
			r := newRandom(c.Seed, purposeToken, uint64(rank), uint64(token))
			experts, gates := t.At(rank, token)
			draw(r, rank*c.Tokens+token, experts)
			for k := range experts {
				gates[k] = float32(128+r.below(128)) / 1024
				if r.below(1e9) < masked {
					experts[k] = Masked
				}
				if experts[k] == Masked {
					gates[k] = 0
				}
			}
		}
	}
	return t, nil
}

// At returns the entries of one token.
func (t *Table) At(rank, token int) ([]int32, []float32) {
	first := (rank*t.Tokens + token) * t.TopK
	return t.Expert[first:][:t.TopK:t.TopK], t.Gate[first:][:t.TopK:t.TopK]
}

// Hash is the SHA-256 of the table in canonical bytes: ranks, tokens, experts and topk as 4 little-endian bytes
// each, then every entry as expert (4 bytes, two's complement) and gate (4 bytes, IEEE 754), both little-endian.
func (t *Table) Hash() string {
	buf := make([]byte, 0, 16+8*len(t.Expert))
	for _, v := range []int{t.Ranks, t.Tokens, t.Experts, t.TopK} {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(v))
	}
	for i, e := range t.Expert {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(e))
		buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(t.Gate[i]))
	}
	sum := sha256.Sum256(buf)
	return hex.EncodeToString(sum[:])
}

// Stats describes how uneven a table is.
type Stats struct {
	Assignments   int     // entries not masked
	Copies        int     // (token, rank) pairs: assignments without duplicates within a rank
	MaxMeanExpert float64 // load of the fullest expert over the mean; 0 without assignments
	MaxMeanRank   float64
	Gini          float64 // of the experts' loads: 0 even, towards 1 all on one
}

// Stats counts the table.
func (t *Table) Stats() Stats {
	var s Stats
	perRank := t.Experts / t.Ranks
	experts, ranks := make([]int, t.Experts), make([]int, t.Ranks)
	seen := make([]int, t.Ranks)
	for i, e := range t.Expert {
		if e == Masked {
			continue
		}
		s.Assignments++
		experts[e]++
		rank := int(e) / perRank
		ranks[rank]++
		if token := i/t.TopK + 1; seen[rank] != token {
			seen[rank] = token
			s.Copies++
		}
	}
	s.MaxMeanExpert, s.MaxMeanRank, s.Gini = maxMean(experts), maxMean(ranks), gini(experts)
	return s
}

func maxMean(loads []int) float64 {
	total := 0
	for _, v := range loads {
		total += v
	}
	if total == 0 {
		return 0
	}
	return float64(slices.Max(loads)) * float64(len(loads)) / float64(total)
}

// gini is half the mean absolute difference over the mean.
func gini(loads []int) float64 {
	sorted := slices.Sorted(slices.Values(loads))
	var total, weighted float64
	for i, v := range sorted {
		total += float64(v)
		weighted += float64(float64(i+1) * float64(v))
	}
	if total == 0 {
		return 0
	}
	n := float64(len(sorted))
	return 2*weighted/(n*total) - (n+1)/n
}

// law returns the function that fills one token's experts; `index` counts tokens over all ranks.
func (c Config) law() (func(r *random, index int, experts []int32), error) {
	kind, arg, has := strings.Cut(c.Spec, ":")
	number := func(low, high float64) (float64, error) {
		v, err := strconv.ParseFloat(arg, 64)
		if err != nil || !(v >= low && v <= high) {
			return 0, fmt.Errorf("routing=%s is not allowed: %s takes a number in %g..%g", c.Spec, kind, low, high)
		}
		return v, nil
	}
	weights := make([]float64, c.Experts)
	switch {
	case kind == "uniform" && !has:
		for e := range weights {
			weights[e] = 1
		}
	case kind == "power":
		alpha, err := number(0, 10)
		if err != nil {
			return nil, err
		}
		for i, e := range newRandom(c.Seed, purposeOrder).permutation(c.Experts) {
			weights[e] = exp(-float64(alpha * ln(float64(i+1))))
		}
	case kind == "lognormal":
		sigma, err := number(0, 10)
		if err != nil {
			return nil, err
		}
		r := newRandom(c.Seed, purposeOrder)
		for e := range weights {
			weights[e] = exp(float64(sigma * r.normal()))
		}
	case kind == "hot":
		ratio, err := number(1, 1e6)
		if err != nil {
			return nil, err
		}
		for e := range weights {
			weights[e] = 1
			if e < c.Experts/c.Ranks { // the experts of rank 0
				weights[e] = ratio
			}
		}
	case kind == "group":
		return c.grouped(arg)
	case kind == "trace" && arg != "":
		return c.traced(arg)
	default:
		return nil, fmt.Errorf("routing=%s is not allowed: %s", c.Spec, Specs)
	}
	s := newSampler(weights)
	return func(r *random, _ int, experts []int32) { s.draw(r, experts) }, nil
}

// grouped draws `top` of the groups, then experts of those groups alone.
func (c Config) grouped(arg string) (func(r *random, index int, experts []int32), error) {
	left, right, _ := strings.Cut(arg, "/")
	groups, err1 := strconv.Atoi(left)
	top, err2 := strconv.Atoi(right)
	switch {
	case err1 != nil || err2 != nil || groups < 1 || top < 1 || top > groups:
		return nil, fmt.Errorf("routing=%s is not allowed: group:<groups>/<top> with 1 <= top <= groups", c.Spec)
	case c.Experts%groups != 0:
		return nil, fmt.Errorf("routing=%s is not allowed: %d experts are not divisible into %d groups", c.Spec, c.Experts, groups)
	case c.TopK > top*(c.Experts/groups):
		return nil, fmt.Errorf("routing=%s is not allowed: %d groups of %d experts are fewer than topk=%d",
			c.Spec, top, c.Experts/groups, c.TopK)
	}
	size := c.Experts / groups
	return func(r *random, _ int, experts []int32) {
		chosen := r.permutation(groups)[:top]
		for k, i := range r.permutation(top * size)[:len(experts)] {
			experts[k] = int32(chosen[i/size]*size + i%size)
		}
	}, nil
}
