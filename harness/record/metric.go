package record

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"gic/harness/stats"
	"gic/workloads"
)

// hdrDigits is the precision of a histogram: a value read back is within 1 part in 1000 of the one recorded,
// or within half of Resolution where that is coarser.
const hdrDigits = 3

// hdrMax is the largest histogram value in units of Resolution; more is refused, not clamped.
const hdrMax = int64(1) << 62

// classUnit is the base unit of each class, and what one unit of a histogram of it stands for. One resolution
// per class makes histograms of different runs mergeable count by count. A picosecond resolves one cycle of
// any clock in use, and 2^62 of them are 53 days.
var classUnit = map[workloads.Class]struct {
	unit       string
	resolution float64
}{
	workloads.Time:      {"s", 1e-12},
	workloads.Rate:      {"msg/s", 1e-3},
	workloads.Bandwidth: {"B/s", 1e-3},
	workloads.Number:    {"1", 1e-6},
}

// checkUnit refuses a class that is not known and a unit that is not the class's base unit.
func checkUnit(unit string, class workloads.Class) error {
	c, ok := classUnit[class]
	if !ok {
		return fmt.Errorf("class %q is not one of time, rate, bandwidth, number", class)
	}
	if unit != c.unit {
		return fmt.Errorf("unit %q of class %s is not %q", unit, class, c.unit)
	}
	return nil
}

// checkValue refuses what no measurement of ours can be.
func checkValue(what string, v float64) error {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return fmt.Errorf("%s is %v", what, v)
	}
	if v < 0 {
		return fmt.Errorf("%s is negative: %v", what, v)
	}
	return nil
}

// FromSamples makes the record of a metric: one value per operation or iteration where it is defined so, else
// exactly one. The summary is computed from the samples themselves (percentiles by nearest rank,
// stats.Percentile); up to MaxRaw of them are kept as they are, in the order given, more become a histogram of
// three significant digits. No samples, NaN, an infinite or a negative value, and a unit other than the
// class's base unit are errors. The samples are not changed and not kept.
func FromSamples(name, unit string, class workloads.Class, samples []float64) (Metric, error) {
	fail := func(err error) (Metric, error) { return Metric{}, fmt.Errorf("metric %s: %w", name, err) }
	if name == "" {
		return Metric{}, errors.New("metric without a name")
	}
	if err := checkUnit(unit, class); err != nil {
		return fail(err)
	}
	if len(samples) == 0 {
		return fail(errors.New("no samples"))
	}
	sum := 0.0
	for i, v := range samples {
		if err := checkValue(fmt.Sprintf("sample %d of %d", i, len(samples)), v); err != nil {
			return fail(err)
		}
		sum += v
	}
	sorted := slices.Clone(samples)
	slices.Sort(sorted)
	n := len(sorted)
	m := Metric{
		Name: name, Unit: unit, Class: class, N: n,
		Min: sorted[0], Max: sorted[n-1], Mean: sum / float64(n),
		P50: stats.Percentile(sorted, 50),
		P90: stats.Percentile(sorted, 90),
		P99: stats.Percentile(sorted, 99),
	}
	// Rounding of the sum must not put the mean outside the values; an overflow would make it infinite.
	m.Mean = min(max(m.Mean, m.Min), m.Max)
	if n <= MaxRaw {
		m.Samples = slices.Clone(samples)
		return m, nil
	}
	m.Resolution = classUnit[class].resolution
	h, err := histogram(sorted, m.Resolution)
	if err != nil {
		return fail(err)
	}
	text, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return fail(fmt.Errorf("encode histogram: %w", err))
	}
	m.HDR = string(text)
	return m, nil
}

// histogram counts ascending, checked values in units of resolution.
func histogram(sorted []float64, resolution float64) (*hdrhistogram.Histogram, error) {
	top := sorted[len(sorted)-1] / resolution
	if top >= float64(hdrMax) {
		return nil, fmt.Errorf("value %g is too large for a histogram in units of %g", sorted[len(sorted)-1], resolution)
	}
	h := hdrhistogram.New(1, max(int64(math.Round(top)), 2), hdrDigits)
	for _, v := range sorted {
		if err := h.RecordValue(int64(math.Round(v / resolution))); err != nil {
			return nil, fmt.Errorf("record %g: %w", v, err)
		}
	}
	return h, nil
}

// Distribution is the samples of one metric over one or more process runs, put together. It is exact as long
// as all parts hold raw samples; one part with a histogram makes the percentiles the histogram's (three
// significant digits).
type Distribution struct {
	N        int
	Min, Max float64
	Mean     float64
	Exact    bool

	sorted     []float64
	packed     *hdrhistogram.PackedHistogram
	resolution float64
}

// Merge puts the samples of the given metrics together, so that a percentile over process runs is one of the
// samples, not an average of percentiles. All must be of one name, unit and class. A histogram that cannot be
// read, or that does not hold as many values as the metric says, is an error.
func Merge(metrics ...Metric) (*Distribution, error) {
	if len(metrics) == 0 {
		return nil, errors.New("merge metrics: none given")
	}
	first := &metrics[0]
	d := &Distribution{Min: first.Min, Max: first.Max, Exact: true}
	raw := 0
	for i := range metrics {
		m := &metrics[i]
		if m.Name != first.Name || m.Unit != first.Unit || m.Class != first.Class {
			return nil, fmt.Errorf("merge metrics: %s (%s, %s) and %s (%s, %s) differ",
				first.Name, first.Class, first.Unit, m.Name, m.Class, m.Unit)
		}
		d.N += m.N
		d.Mean += m.Mean * float64(m.N)
		d.Min, d.Max = min(d.Min, m.Min), max(d.Max, m.Max)
		d.Exact = d.Exact && m.HDR == ""
		raw += len(m.Samples)
	}
	d.Mean = min(max(d.Mean/float64(d.N), d.Min), d.Max)
	if d.Exact {
		d.sorted = make([]float64, 0, raw)
		for i := range metrics {
			d.sorted = append(d.sorted, metrics[i].Samples...)
		}
		slices.Sort(d.sorted)
		if len(d.sorted) != d.N || d.N == 0 {
			return nil, fmt.Errorf("merge metric %s: %d samples for n=%d", first.Name, len(d.sorted), d.N)
		}
		return d, nil
	}
	if err := d.mergeHistograms(metrics); err != nil {
		return nil, fmt.Errorf("merge metric %s: %w", first.Name, err)
	}
	return d, nil
}

// mergeHistograms adds all parts into one histogram of the finest resolution among them.
func (d *Distribution) mergeHistograms(metrics []Metric) error {
	d.resolution = math.Inf(1)
	for i := range metrics {
		if metrics[i].HDR != "" {
			d.resolution = min(d.resolution, metrics[i].Resolution)
		}
	}
	if !(d.resolution > 0) || math.IsInf(d.resolution, 0) {
		return fmt.Errorf("histogram resolution is %g", d.resolution)
	}
	top := d.Max / d.resolution * 1.01 // a bucket's value may lie above the largest sample
	if !(top < float64(hdrMax)) {
		return fmt.Errorf("value %g is too large for a histogram in units of %g", d.Max, d.resolution)
	}
	add := func(v float64, n int64) error {
		return d.packed.RecordValues(int64(math.Round(v/d.resolution)), n)
	}
	for i := range metrics {
		m := &metrics[i]
		if m.HDR == "" {
			d.ensure(int64(top))
			for _, v := range m.Samples {
				if err := add(v, 1); err != nil {
					return err
				}
			}
			continue
		}
		p, err := hdrhistogram.DecodePacked([]byte(m.HDR))
		if err != nil {
			return fmt.Errorf("read histogram: %w", err)
		}
		if p.TotalCount() != int64(m.N) {
			return fmt.Errorf("the histogram holds %d values for n=%d", p.TotalCount(), m.N)
		}
		if d.packed == nil && len(metrics) == 1 {
			d.packed = p
			return nil
		}
		d.ensure(int64(top))
		p.ForEachBucket(func(value, count int64) bool {
			err = add(float64(value)*m.Resolution, count)
			return err == nil
		})
		if err != nil {
			return fmt.Errorf("merge histogram: %w", err)
		}
	}
	return nil
}

func (d *Distribution) ensure(top int64) {
	if d.packed == nil {
		d.packed = hdrhistogram.NewPacked(1, max(top, 2), hdrDigits)
	}
}

// Percentile returns the p-th percentile, 0 < p <= 100, by nearest rank.
func (d *Distribution) Percentile(p float64) float64 {
	if d.Exact {
		return stats.Percentile(d.sorted, p)
	}
	// The histogram answers with the top of its bucket, which may lie outside what was measured.
	v := float64(d.packed.ValueAtPercentile(p)) * d.resolution
	return min(max(v, d.Min), d.Max)
}
