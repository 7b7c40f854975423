package routing

import (
	"math"
	"math/bits"
	"sort"

	"gic/workloads/window"
)

// Streams of one seed that must not share numbers.
const (
	purposeToken uint64 = iota + 1
	purposeOrder
)

// random is splitmix64: a Weyl sequence through a bijective mixer.
type random struct{ state uint64 }

func newRandom(seed uint64, key ...uint64) *random {
	state := window.Mix(seed)
	for _, k := range key {
		state = window.Mix(state + k)
	}
	return &random{state}
}

func (r *random) next() uint64 {
	v := window.Mix(r.state)
	r.state += 0x9e3779b97f4a7c15
	return v
}

// below is uniform in [0, n), without bias (Lemire's multiplication with rejection).
func (r *random) below(n uint64) uint64 {
	for {
		high, low := bits.Mul64(r.next(), n)
		if low >= -n%n {
			return high
		}
	}
}

// permutation of 0..n-1 (Fisher and Yates).
func (r *random) permutation(n int) []int {
	p := make([]int, n)
	for i := range p {
		k := int(r.below(uint64(i + 1)))
		p[i] = p[k]
		p[k] = i
	}
	return p
}

// normal is standard normal (Marsaglia's polar method).
func (r *random) normal() float64 {
	for {
		u := float64(int64(r.next())>>11) / (1 << 52)
		v := float64(int64(r.next())>>11) / (1 << 52)
		s := float64(u*u) + float64(v*v)
		if s > 0 && s < 1 {
			return float64(u * math.Sqrt(float64(-2*ln(s))/s))
		}
	}
}

// The conversions to float64 around products forbid fused multiply-adds (Go specification, floating-point
// operators), so that every step is rounded alike everywhere. math.Log and math.Exp promise no such thing.

const ln2High, ln2Low = 6.93147180369123816490e-01, 1.90821492927058770002e-10 // their sum is ln 2

// ln of a positive normal number.
func ln(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m *= 2
		e--
	}
	s := (m - 1) / (m + 1)
	s2 := float64(s * s)
	sum := 0.0
	for k := 25; k >= 1; k -= 2 {
		sum = float64(sum*s2) + 1/float64(k)
	}
	return float64(float64(e)*ln2High) + (float64(2*s*sum) + float64(float64(e)*ln2Low))
}

// exp of a number within the range of normal results.
func exp(x float64) float64 {
	k := math.Floor(float64(x/(ln2High+ln2Low)) + 0.5)
	r := x - float64(k*ln2High) - float64(k*ln2Low)
	sum := 1.0
	for i := 18; i >= 1; i-- {
		sum = 1 + float64(float64(r/float64(i))*sum)
	}
	return math.Ldexp(sum, int(k))
}

// sampler draws without replacement, each time in proportion to the weights of what is left.
type sampler struct {
	weights []uint64
	sums    []uint64 // sums[i] = weights[0] + ... + weights[i]
}

// newSampler scales positive weights to integers, the largest to 2^32, none below 1.
func newSampler(weights []float64) *sampler {
	top := 0.0
	for _, w := range weights {
		top = max(top, w)
	}
	s := &sampler{}
	sum := uint64(0)
	for _, w := range weights {
		v := max(1, uint64(math.Round(float64(w/top)*(1<<32))))
		sum += v
		s.weights, s.sums = append(s.weights, v), append(s.sums, sum)
	}
	return s
}

func (s *sampler) draw(r *random, out []int32) {
	for k := range out {
		out[k] = s.one(r, out[:k])
	}
}

// one draws an expert not in taken. Most draws hit a free one at once; where the taken ones hold nearly all the
// weight, what is left is summed up instead.
func (s *sampler) one(r *random, taken []int32) int32 {
	total := s.sums[len(s.sums)-1]
	for range 8 {
		v := r.below(total)
		e := int32(sort.Search(len(s.sums), func(i int) bool { return s.sums[i] > v }))
		if !contains(taken, e) {
			return e
		}
	}
	for _, e := range taken {
		total -= s.weights[e]
	}
	v := r.below(total)
	for e, w := range s.weights {
		if contains(taken, int32(e)) {
			continue
		}
		if v < w {
			return int32(e)
		}
		v -= w
	}
	panic("routing: weights do not add up")
}

func contains(taken []int32, e int32) bool {
	for _, t := range taken {
		if t == e {
			return true
		}
	}
	return false
}
