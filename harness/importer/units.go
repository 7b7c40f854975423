package importer

import (
	"strings"

	"gic/workloads"
)

// unit is a unit of a file in base units: a value times scale is in s, msg/s or B/s.
type unit struct {
	class workloads.Class
	base  string
	scale float64
}

// Units are spelled in many ways; what is not here is refused. MB and GB are powers of ten, MiB of two; a small b
// is a bit.
var units = spellings()

func spellings() map[string]unit {
	units := map[string]unit{}
	add := func(class workloads.Class, base string, scale float64, names ...string) {
		for _, n := range names {
			units[n] = unit{class, base, scale}
		}
	}
	add(workloads.Time, "s", 1, "s", "sec")
	add(workloads.Time, "s", 1e-3, "ms", "msec")
	add(workloads.Time, "s", 1e-6, "us", "usec", "µs")
	add(workloads.Time, "s", 1e-9, "ns", "nsec")
	add(workloads.Number, "1", 1, "1")
	add(workloads.Number, "1", 0.01, "%")
	for prefix, scale := range map[string]float64{"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "M ": 1e6, "k ": 1e3} {
		add(workloads.Rate, "msg/s", scale, prefix+"msg/s", prefix+"msg/sec", prefix+"msgs/s", prefix+"pps")
	}
	add(workloads.Rate, "msg/s", 1e6, "MMPS", "MMPs", "MMps")
	for prefix, scale := range map[string]float64{"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12} {
		add(workloads.Bandwidth, "B/s", scale, prefix+"B/s", prefix+"B/sec")
		add(workloads.Bandwidth, "B/s", scale/8, prefix+"b/s", prefix+"b/sec", prefix+"bit/s", prefix+"bps")
	}
	for prefix, scale := range map[string]float64{"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40} {
		add(workloads.Bandwidth, "B/s", scale, prefix+"B/s", prefix+"B/sec")
	}
	return units
}

func (u unit) metric(name string, headline bool, v ...float64) workloads.Metric {
	m := workloads.Metric{Name: name, Unit: u.base, Class: u.class, Headline: headline}
	for _, x := range v {
		m.Samples = append(m.Samples, x*u.scale)
	}
	return m
}

// word makes a name of a metric, an axis or a key from a text.
func word(text string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(text) {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "_"):
			b.WriteByte('_')
		}
	}
	w := strings.TrimRight(b.String(), "_")
	if w != "" && (w[0] < 'a' || w[0] > 'z') {
		w = "x" + w
	}
	return w
}
