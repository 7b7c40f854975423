package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"gic/harness/record"
	"gic/workloads"
)

// renderNCCL prints the workloads that have a size in the columns of nccl-tests, one table per row and metric,
// so that what reads those can read this. Times are medians over process runs. Everything else is in comment
// lines. There is no in-place variant: its columns say N/A.
func (r *Report) renderNCCL(out io.Writer, _ int) error {
	w := bufio.NewWriter(out)
	for _, u := range r.runs {
		sections := u.sections()
		for _, l := range u.headLines() {
			fmt.Fprintf(w, "# %s\n", clean(l))
		}
		if claim := u.claimLine(); claim != "" {
			fmt.Fprintf(w, "# %s\n", clean(claim))
		}
		for _, s := range sections {
			s.renderNCCL(w)
		}
	}
	for _, b := range r.bad {
		fmt.Fprintf(w, "# error: %s\n", clean(b))
	}
	return w.Flush()
}

// ncclTable is the lines of one row (but for the size) in one metric.
type ncclTable struct {
	title string
	lines []string
	sum   float64 // of the bus bandwidths
	count int
	wrong uint64
}

func (s *section) renderNCCL(w io.Writer) {
	var order []*ncclTable
	byTitle := map[string]*ncclTable{}
	sized := false
	for _, p := range s.points {
		size, ok := sizeOf(s.workload, p)
		if !ok {
			continue
		}
		sized = true
		others := otherAxes(p, size.axis)
		for i, row := range p.rows {
			base := fmt.Sprintf("%s%s ranks=%d row: %s nic=%s device=%s", s.workload, others, p.ranks, row.label, row.nic, row.device)
			add := func(metric, line string) *ncclTable {
				title := base + metric
				t := byTitle[title]
				if t == nil {
					t = &ncclTable{title: title}
					byTitle[title] = t
					order = append(order, t)
				}
				t.lines = append(t.lines, line)
				return t
			}
			for _, m := range p.ncclMetrics(s.workload) {
				if c := m.cells[i]; c.runs > 0 {
					line, busbw := size.line(c, m)
					t := add(" metric="+m.name, line)
					t.sum += busbw
					t.count++
					t.wrong += row.wrong()
				}
			}
			if row.status != record.OK {
				add("", fmt.Sprintf("# size %s: %s: %s", p.axes[size.axis], row.status, clean(row.reasonText())))
			}
		}
	}
	if !sized {
		fmt.Fprintf(w, "#\n# %s: has no message size, see the other formats\n", clean(s.workload))
	}
	for _, t := range order {
		t.write(w)
	}
}

func (t *ncclTable) write(w io.Writer) {
	fmt.Fprintf(w, "#\n# %s\n", clean(t.title))
	if t.count > 0 {
		const columns = "#%11s  %12s  %8s  %6s  %6s  %8s  %6s  %6s  %6s  %8s  %6s  %6s  %6s\n"
		fmt.Fprintf(w, "#%11s  %12s  %8s  %6s  %6s  %32s  %32s\n", "", "", "", "", "", "out-of-place          ", "in-place            ")
		fmt.Fprintf(w, columns, "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong")
		fmt.Fprintf(w, columns, "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "")
	}
	for _, l := range t.lines {
		fmt.Fprintln(w, l)
	}
	if t.count > 0 {
		verdict := "OK"
		if t.wrong > 0 {
			verdict = "FAILED"
		}
		fmt.Fprintf(w, "# Out of bounds values : %d %s\n", t.wrong, verdict)
		fmt.Fprintf(w, "# Avg bus bandwidth    : %.6g\n", t.sum/float64(t.count))
	}
}

// ncclSize is what nccl-tests calls the size of a point.
type ncclSize struct {
	axis         string
	bytes, count float64 // bytes a rank sends; elements (of one byte) to one peer
	factor       float64 // bus bandwidth over algorithm bandwidth
}

// sizeOf reads the size of a point. An all-to-all sends its bytes to every rank, itself counted as nccl-tests
// does; with an uneven matrix there is no one size.
func sizeOf(workload string, p *point) (ncclSize, bool) {
	if v, ok := parseNumber(p.axes["size"]); ok {
		return ncclSize{"size", v, v, 1}, true
	}
	if v, ok := parseNumber(p.axes["bytes"]); ok && workload == "alltoall" && p.axes["matrix"] == "uniform" {
		n := float64(p.ranks)
		return ncclSize{"bytes", v * n, v, (n - 1) / n}, true
	}
	return ncclSize{}, false
}

// ncclMetrics are the metrics whose time is that of one transfer. A time to issue or of a round trip is not; of
// an all-to-all, whose bandwidths follow from the time, only the time is taken.
func (p *point) ncclMetrics(workload string) []*comparison {
	var out []*comparison
	for _, m := range p.shown() {
		if m.name == "issue" || m.name == "rtt" || workload == "alltoall" && m.class != workloads.Time {
			continue
		}
		out = append(out, m)
	}
	return out
}

func (z ncclSize) line(c *cell, m *comparison) (line string, busbw float64) {
	var seconds float64
	switch v := c.stats.Median; {
	case m.class == workloads.Time:
		seconds = v
	case v == 0:
	case m.class == workloads.Rate:
		seconds = 1 / v
	default:
		seconds = z.bytes / v
	}
	algbw := 0.0
	if seconds > 0 {
		algbw = z.bytes / seconds / 1e9
	}
	wrong := "N/A"
	if c.row.checked || c.row.wrong() > 0 {
		wrong = fmt.Sprint(c.row.wrong())
	}
	busbw = algbw * z.factor
	return fmt.Sprintf("%12.0f  %12.0f  %8s  %6s  %6d  %8s  %6.2f  %6.2f  %6s  %8s  %6s  %6s  %6s", z.bytes, z.count, "uint8", "none", -1,
		ncclTime(seconds*1e6), algbw, busbw, wrong, "N/A", "N/A", "N/A", "N/A"), busbw
}

// ncclTime prints microseconds with as many decimals as nccl-tests does.
func ncclTime(us float64) string {
	switch {
	case us >= 10000:
		return fmt.Sprintf("%.0f", us)
	case us >= 100:
		return fmt.Sprintf("%.1f", us)
	}
	return fmt.Sprintf("%.2f", us)
}

// wrong is the bytes that differed over all process runs.
func (w *row) wrong() uint64 {
	var sum uint64
	for i := range w.samples {
		sum += w.samples[i].wrong
	}
	return sum
}

// otherAxes are all axes but the size, since there is no section head here.
func otherAxes(p *point, size string) string {
	var b strings.Builder
	for _, kv := range sortedKeys(p.axes) {
		if kv.Key != size {
			b.WriteString(" " + kv.Key + "=" + kv.Value)
		}
	}
	return b.String()
}
