package record

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gic/harness/stats"
	"gic/workloads"
)

func TestFromSamplesKeepsFewAsTheyAre(t *testing.T) {
	in := []float64{3e-6, 1e-6, 2e-6}
	m, err := FromSamples("rtt", "s", workloads.Time, in)
	if err != nil {
		t.Fatal(err)
	}
	want := Metric{
		Name: "rtt", Unit: "s", Class: workloads.Time, N: 3, Samples: []float64{3e-6, 1e-6, 2e-6},
		Min: 1e-6, P50: 2e-6, P90: 3e-6, P99: 3e-6, Max: 3e-6, Mean: 2e-6,
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	in[0] = 99
	if m.Samples[0] != 3e-6 {
		t.Error("the metric shares the caller's samples")
	}
}

func TestFromSamplesSwitchesToHistogramAboveMaxRaw(t *testing.T) {
	for _, tc := range []struct {
		n   int
		raw bool
	}{{1, true}, {MaxRaw, true}, {MaxRaw + 1, false}} {
		m, err := FromSamples("rtt", "s", workloads.Time, slices.Repeat([]float64{1e-6}, tc.n))
		if err != nil {
			t.Fatal(err)
		}
		if got := m.HDR == ""; got != tc.raw || (len(m.Samples) == tc.n) != tc.raw || m.N != tc.n {
			t.Errorf("n=%d: raw=%v with %d samples, n=%d", tc.n, got, len(m.Samples), m.N)
		}
		if err := m.check(); err != nil {
			t.Errorf("n=%d: %v", tc.n, err)
		}
	}
}

// What is read back from a histogram is within its three digits of what was put in, at every percentile and
// over the whole range of values, from below a nanosecond to minutes, with zeros.
func TestHistogramKeepsThreeDigits(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for name, draw := range map[string]func() float64{
		"lognormal us": func() float64 { return 3e-6 * math.Exp(rng.NormFloat64()) },
		"heavy tail":   func() float64 { return 1e-9 / math.Pow(1-rng.Float64(), 3) },
		"constant":     func() float64 { return 5.25e-8 },
		"minutes":      func() float64 { return 200 * rng.Float64() },
		"with zeros":   func() float64 { return math.Floor(rng.Float64()*3) * 1e-7 },
	} {
		v := make([]float64, 5000)
		for i := range v {
			v[i] = draw()
		}
		m, err := FromSamples("rtt", "s", workloads.Time, v)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		d, err := Merge(m)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		slices.Sort(v)
		for _, p := range []float64{0.1, 1, 10, 50, 90, 99, 99.9, 100} {
			want := stats.Percentile(v, p)
			got := d.Percentile(p)
			if math.Abs(got-want) > 1.01e-3*want+m.Resolution/2 {
				t.Errorf("%s: p%v = %g, the samples say %g", name, p, got, want)
			}
		}
		if m.P50 != stats.Percentile(v, 50) || m.P90 != stats.Percentile(v, 90) || m.P99 != stats.Percentile(v, 99) {
			t.Errorf("%s: the summary is not that of the samples", name)
		}
		if d.N != len(v) || d.Min != v[0] || d.Max != v[len(v)-1] || d.Exact {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

func TestFromSamplesRefuses(t *testing.T) {
	for _, tc := range []struct {
		name, unit string
		class      workloads.Class
		samples    []float64
		want       string
	}{
		{"rtt", "s", workloads.Time, nil, "metric rtt: no samples"},
		{"rtt", "s", workloads.Time, []float64{1, math.NaN()}, "metric rtt: sample 1 of 2 is NaN"},
		{"rtt", "s", workloads.Time, []float64{math.Inf(1)}, "metric rtt: sample 0 of 1 is +Inf"},
		{"rtt", "s", workloads.Time, []float64{-1e-9}, "metric rtt: sample 0 of 1 is negative: -1e-09"},
		{"rtt", "us", workloads.Time, []float64{1}, `metric rtt: unit "us" of class time is not "s"`},
		{"rtt", "s", "latency", []float64{1}, `metric rtt: class "latency" is not one of time, rate, bandwidth, number`},
		{"loss", "%", workloads.Number, []float64{1}, `metric loss: unit "%" of class number is not "1"`},
		{"", "s", workloads.Time, []float64{1}, "metric without a name"},
		{"rtt", "s", workloads.Time, slices.Repeat([]float64{1e9}, 65), "too large for a histogram"},
	} {
		if _, err := FromSamples(tc.name, tc.unit, tc.class, tc.samples); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want %q", err, tc.want)
		}
	}
}

func TestMergePoolsSamples(t *testing.T) {
	metric := func(v ...float64) Metric { return mustMetric("rtt", "s", workloads.Time, v) }
	d, err := Merge(metric(1, 9), metric(2, 3, 4))
	if err != nil {
		t.Fatal(err)
	}
	if !d.Exact || d.N != 5 || d.Min != 1 || d.Max != 9 || d.Mean != 3.8 || d.Percentile(50) != 3 || d.Percentile(90) != 9 {
		t.Errorf("got %+v p50=%v p90=%v", d, d.Percentile(50), d.Percentile(90))
	}

	// Two modes of different weight: an average of percentiles would lie between them, where nothing is.
	low, high := slices.Repeat([]float64{1e-6}, 900), slices.Repeat([]float64{1e-3}, 100)
	mixed := metric(append(slices.Clone(low), high...)...)
	for _, parts := range [][]Metric{{metric(low...), metric(high...)}, {mixed}, {metric(high[:50]...), metric(low...), metric(high[50:]...)}} {
		d, err := Merge(parts...)
		if err != nil {
			t.Fatal(err)
		}
		if d.N != 1000 || d.Exact {
			t.Errorf("got %+v", d)
		}
		for p, want := range map[float64]float64{50: 1e-6, 90: 1e-6, 91: 1e-3, 99: 1e-3} {
			if got := d.Percentile(p); math.Abs(got-want) > 1e-3*want {
				t.Errorf("p%v = %g, want %g", p, got, want)
			}
		}
	}
}

// Histograms written in another resolution merge at the finer one.
func TestMergeRescales(t *testing.T) {
	fine := mustMetric("rtt", "s", workloads.Time, slices.Repeat([]float64{2e-6}, 100))
	coarse := fine
	h, err := histogram(slices.Repeat([]float64{5e-6}, 300), 1e-9)
	if err != nil {
		t.Fatal(err)
	}
	text, err := h.EncodeV2()
	if err != nil {
		t.Fatal(err)
	}
	coarse.HDR, coarse.Resolution, coarse.N, coarse.Max = string(text), 1e-9, 300, 5e-6
	d, err := Merge(coarse, fine)
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range map[float64]float64{25: 2e-6, 26: 5e-6} {
		if got := d.Percentile(p); math.Abs(got-want) > 1e-3*want {
			t.Errorf("p%v = %g, want %g", p, got, want)
		}
	}
}

func TestMergeRefuses(t *testing.T) {
	a := mustMetric("rtt", "s", workloads.Time, []float64{1})
	other := mustMetric("issue", "s", workloads.Time, []float64{1})
	long := mustMetric("rtt", "s", workloads.Time, slices.Repeat([]float64{1e-6}, 100))
	garbled, short, unscaled := long, long, long
	garbled.HDR = "AAAA" + long.HDR[4:]
	short.N = 99
	unscaled.Resolution = 0
	lost := a
	lost.Samples = nil
	for name, in := range map[string][]Metric{
		"nothing": nil, "two names": {a, other}, "garbled": {garbled}, "wrong n": {short}, "unscaled": {unscaled},
		"samples lost": {lost}, "garbled among good": {a, garbled},
	} {
		if d, err := Merge(in...); err == nil {
			t.Errorf("%s: got %+v", name, d)
		}
	}
}

func FuzzMerge(f *testing.F) {
	long := mustMetric("rtt", "s", workloads.Time, slices.Repeat([]float64{1e-6, 3e-6}, 100))
	f.Add(long.HDR, 1e-12, 200, 3e-6)
	f.Add("", 0.0, 0, 0.0)
	f.Fuzz(func(t *testing.T, hdr string, resolution float64, n int, top float64) {
		m := Metric{Name: "rtt", Unit: "s", Class: workloads.Time, N: n, HDR: hdr, Resolution: resolution}
		m.P50, m.P90, m.P99, m.Max, m.Mean = top, top, top, top, top
		if m.check() != nil {
			return // the reader refuses it
		}
		for _, in := range [][]Metric{{m}, {m, long}} {
			if d, err := Merge(in...); err == nil {
				if p := d.Percentile(50); math.IsNaN(p) || p < 0 {
					t.Errorf("p50 = %v", p)
				}
			}
		}
	})
}
