package calibrate

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// system is a linear least-squares problem in named unknowns. Every equation counts by its relative error, so that a
// long time does not outweigh short ones.
type system struct {
	names []string
	rows  []equation
}

type equation struct {
	terms map[string]float64
	value float64
}

func (s *system) add(value float64, terms map[string]float64) {
	for name := range terms {
		if !slices.Contains(s.names, name) {
			s.names = append(s.names, name)
		}
	}
	s.rows = append(s.rows, equation{terms, value})
}

// tooFar is the root mean square of the relative residuals from which on a fit is refused.
const tooFar = 0.25

// solution are the unknowns with their standard deviations (0 where there are as many equations as unknowns) and how
// well the equations hold.
type solution struct {
	value, deviation map[string]float64
	rms, worst       float64 // relative residuals: root mean square, largest
	n                int
}

// quality says how good the fit is, in words.
func (x *solution) quality() string {
	s := fmt.Sprintf("%d points for %d unknowns", x.n, len(x.value))
	if len(x.value) == 1 {
		s = fmt.Sprintf("%d points for 1 unknown", x.n)
	}
	if x.n > len(x.value) {
		s += fmt.Sprintf(", residuals: rms %.2g %%, largest %.2g %%", 100*x.rms, 100*x.worst)
	}
	return s
}

// solve returns false if the equations do not determine the unknowns.
func (s *system) solve() (*solution, bool) {
	slices.Sort(s.names)
	n, m := len(s.rows), len(s.names)
	if n < m || m == 0 {
		return nil, false
	}
	a, b := mat.NewDense(n, m, nil), mat.NewVecDense(n, nil)
	for i, e := range s.rows {
		for j, name := range s.names {
			a.Set(i, j, e.terms[name]/e.value)
		}
		b.SetVec(i, 1)
	}
	// Unknowns of very different sizes (a byte on the link, a message) are scaled to one, or the condition number
	// would say nothing.
	scale := make([]float64, m)
	for j := range scale {
		scale[j] = mat.Norm(a.ColView(j), 2)
		if scale[j] == 0 {
			return nil, false
		}
		for i := range n {
			a.Set(i, j, a.At(i, j)/scale[j])
		}
	}
	var qr mat.QR
	qr.Factorize(a)
	if qr.Cond() > 1e10 {
		return nil, false
	}
	var x mat.VecDense
	if err := qr.SolveVecTo(&x, false, b); err != nil {
		return nil, false
	}
	out := &solution{value: map[string]float64{}, deviation: map[string]float64{}, n: n}
	var residual mat.VecDense
	residual.MulVec(a, &x)
	residual.SubVec(&residual, b)
	for i := range n {
		out.worst = max(out.worst, math.Abs(residual.AtVec(i)))
	}
	out.rms = mat.Norm(&residual, 2) / math.Sqrt(float64(n))
	deviations := deviation(a, &residual, n, m)
	for j, name := range s.names {
		out.value[name] = x.AtVec(j) / scale[j]
		out.deviation[name] = deviations[j] / scale[j]
	}
	return out, true
}

// deviation of the unknowns: the square roots of the diagonal of sigma^2 (A'A)^-1.
func deviation(a *mat.Dense, residual *mat.VecDense, n, m int) []float64 {
	out := make([]float64, m)
	if n == m {
		return out
	}
	sigma := mat.Dot(residual, residual) / float64(n-m)
	var product, inverse mat.Dense
	product.Mul(a.T(), a)
	if err := inverse.Inverse(&product); err != nil {
		return out
	}
	for j := range out {
		out[j] = math.Sqrt(max(0, sigma*inverse.At(j, j)))
	}
	return out
}
