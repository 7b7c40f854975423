package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gic/harness/record"
	"gic/workloads"
)

// notes numbers what stands under a table: reasons and warnings, each once, in the order of first mention.
type notes struct {
	list []*note
	byID map[string]*note
	// silent are warning codes that every measured row carries: they are said once on top instead.
	silent  map[string]bool
	expects bool // tables have the column expected
}

type note struct {
	number int
	text   string
	rows   map[*row]bool
	varied bool // other rows have the same warning with another text
	// A reason that begins with the name of its backend: what stands before and behind it, and all that have it.
	status, rest string
	backends     []string
}

func newNotes(u *run) *notes {
	n := &notes{byID: map[string]*note{}, silent: map[string]bool{}, expects: u.of.expect != nil}
	measured := 0
	carry := map[string]int{}
	for _, w := range u.rows {
		if !w.measured {
			continue
		}
		measured++
		for _, warn := range w.warnings {
			carry[warn.Code]++
		}
		if w.oversubscribed && !w.warns(oversubscribed) {
			carry[oversubscribed]++
		}
	}
	for code, rows := range carry {
		n.silent[code] = rows == measured
	}
	return n
}

func (w *row) warns(code string) bool {
	for _, warn := range w.warnings {
		if warn.Code == code {
			return true
		}
	}
	return false
}

// add gives the number of the note with this id, which gets the text if it is new.
func (n *notes) add(id, text string, w *row) int {
	at := n.byID[id]
	if at == nil {
		at = &note{number: len(n.list) + 1, text: clean(text), rows: map[*row]bool{}}
		n.byID[id] = at
		n.list = append(n.list, at)
	} else if !at.varied {
		at.varied = at.text != clean(text)
	}
	at.rows[w] = true
	return at.number
}

// of gives the numbers of all notes of a row and, if c is not nil, of its cell.
func (n *notes) of(w *row, c *cell, m *comparison) []int {
	var refs []int
	ref := func(id, text string) {
		if k := n.add(id, text, w); !slices.Contains(refs, k) {
			refs = append(refs, k)
		}
	}
	for _, r := range w.reasons {
		status := string(r.status)
		rest, named := strings.CutPrefix(r.text, w.backend+" ")
		if !named {
			ref(status+"\x00"+r.text, status+": "+r.text)
			continue
		}
		// "deepep needs a CUDA device" and "nvshmem needs a CUDA device" are one reason.
		id := status + "\x00\x00" + rest
		ref(id, status+": "+r.text)
		at := n.byID[id]
		at.status, at.rest, at.varied = status, clean(rest), false
		if b := clean(w.backend); !slices.Contains(at.backends, b) {
			at.backends = append(at.backends, b)
		}
	}
	if c != nil && c.missing {
		ref("missing\x00"+m.name, c.missingText(m))
	}
	if c != nil && c.unmerged != "" {
		ref("unmerged\x00"+c.unmerged, "p99 is the median over process runs of each one's own: "+c.unmerged)
	}
	for _, warn := range w.warnings {
		if !n.silent[warn.Code] {
			ref("warning\x00"+warn.Code, warn.Code+": "+warn.Text)
		}
	}
	if w.oversubscribed && !w.warns(oversubscribed) && !n.silent[oversubscribed] {
		ref("warning\x00"+oversubscribed, oversubscribed+": "+crowdedText)
	}
	return refs
}

// lines prints the list, numbered.
func (n *notes) lines() []string {
	out := n.texts()
	for i := range out {
		out[i] = fmt.Sprintf("[%d] %s", n.list[i].number, out[i])
	}
	return out
}

// texts are the full ones of the first row that has each note.
func (n *notes) texts() []string {
	var out []string
	for _, at := range n.list {
		text := at.text
		if len(at.backends) > 1 {
			text = at.status + ": " + strings.Join(at.backends, ", ") + ": " + at.rest
		}
		if len(at.rows) > 1 {
			text += fmt.Sprintf(" (%d rows", len(at.rows))
			if at.varied {
				text += ", this is the first"
			}
			text += ")"
		}
		out = append(out, text)
	}
	return out
}

func refText(refs []int) string {
	if len(refs) == 0 {
		return ""
	}
	slices.Sort(refs)
	var parts []string
	for i := 0; i < len(refs); {
		j := i
		for j+1 < len(refs) && refs[j+1] == refs[j]+1 {
			j++
		}
		switch {
		case j == i:
			parts = append(parts, fmt.Sprint(refs[i]))
		case j == i+1:
			parts = append(parts, fmt.Sprint(refs[i]), fmt.Sprint(refs[j]))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", refs[i], refs[j]))
		}
		i = j + 1
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// headLines say what the run is, on what machine.
func (u *run) headLines() []string {
	h := u.header
	if h == nil {
		return []string{"records without a header: the run and its machine are unknown"}
	}
	var a []string
	add := func(format string, args ...any) { a = append(a, fmt.Sprintf(format, args...)) }
	name := "gic run"
	if h.Suite != "" {
		name += " " + h.Suite
	}
	add("%s %s", name, h.ID)
	add("%s", h.Time.UTC().Format(time.DateTime+"Z"))
	add("%d ranks (%s)", h.Ranks, h.Launch)
	add("%s", plural(h.Repeat, "process run"))
	add("seed %d", h.Seed)
	lines := []string{strings.Join(a, ", "), "on " + machineText(&h.Host, len(h.Hosts)) + ", gic " + h.Gic}
	if h.Imported != nil {
		lines = nil
	}
	for _, o := range append([]*record.Header{h}, u.imports...) {
		if o.Imported != nil {
			lines = append(lines, importText(o))
		}
	}
	return lines
}

// importText names the files of an import; nothing of it was measured on this machine.
func importText(h *record.Header) string {
	var files []string
	for _, f := range h.Imported {
		files = append(files, f.File+" ("+f.Format+")")
	}
	const most = 4
	if n := len(files) - most; n > 0 {
		files = append(files[:most], fmt.Sprintf("%d more", n))
	}
	text := "gic import " + h.ID + ", not measured by gic: " + strings.Join(files, ", ")
	if h.Host.Hostname != "unknown" {
		text += ", of " + h.Host.Hostname
	}
	return text
}

func machineText(m *record.Machine, others int) string {
	a := []string{m.Hostname}
	if others > 0 {
		a[0] += fmt.Sprintf(" and %s", plural(others, "other host"))
	}
	cpu := func(key string) string {
		if v, ok := m.CPU[key]; ok {
			return fmt.Sprint(v)
		}
		return ""
	}
	if s := cpu("model"); s != "" {
		a = append(a, s)
	}
	if s := cpu("cpus"); s != "" {
		a = append(a, s+" CPUs allowed")
	} else if s := cpu("allowed"); s != "" {
		a = append(a, "CPUs allowed: "+s)
	}
	if s := cpu("governor"); s != "" && s != "unknown" {
		a = append(a, "governor "+s)
	}
	a = append(a, m.OS+" "+m.Kernel)
	if n := len(m.GPU); n > 0 {
		name := ""
		if g, ok := m.GPU[0].(map[string]any); ok && g["name"] != nil {
			name = " " + fmt.Sprint(g["name"])
		}
		a = append(a, fmt.Sprintf("%d x GPU%s", n, name))
	}
	return strings.Join(a, ", ")
}

// claimLine is the statement that must stand over numbers that are not those of hardware, "" if all are.
func (u *run) claimLine() string {
	var soft, host, crowded, measured, real int
	var profiles []string // models that shaped the software NIC
	for _, w := range u.rows {
		if !w.measured {
			continue
		}
		measured++
		s, h := w.nic == "soft", w.device == "host"
		if s {
			soft++
			if p := w.nicConfig["profile"]; p != "" && p != "none" && !slices.Contains(profiles, p) {
				profiles = append(profiles, p)
			}
		}
		if h {
			host++
		}
		if w.oversubscribed {
			crowded++
		}
		if !s && !h && !w.oversubscribed {
			real++
		}
	}
	if measured == real {
		return ""
	}
	var labels, times []string
	add := func(n int, label, what string) {
		if n > 0 {
			labels = append(labels, label)
			times = append(times, what)
		}
	}
	softLabel := "nic=soft"
	if len(profiles) > 0 {
		slices.Sort(profiles)
		softLabel += " profile=" + strings.Join(profiles, "|")
	}
	add(soft, softLabel, "a software NIC")
	add(host, "device=host", "host threads")
	add(crowded, "oversubscribed", "too few CPUs")
	own := u.onDevice()
	if own != nil && host == 0 && real == 0 && soft == measured {
		line := fmt.Sprintf("%s, device=cuda: figures marked %q (%s) are what the GPU does; the others are of a software NIC", softLabel, gpuAlone, strings.Join(own, "; "))
		if crowded > 0 {
			line += fmt.Sprintf(", and %s of %d oversubscribed", plural(crowded, "case"), measured)
		}
		return line + ": they support no claim about hardware"
	}
	of := "times"
	if real > 0 {
		of = "such rows are times"
	}
	line := fmt.Sprintf("%s: %s of %s: they support no claim about hardware", strings.Join(labels, ", "), of, strings.Join(times, " / "))
	if own != nil {
		line += ", but for those of the GPU alone: " + strings.Join(own, "; ")
	}
	return line
}

// What a metric of CUDA threads over a software NIC is of.
const (
	gpuAlone    = "GPU alone"
	emulatedNIC = "software NIC"
)

// of says behind the name of a metric whose figures these are where that is not the same for all metrics: those of
// CUDA threads over a software NIC are partly the GPU's own. It is "" for all others.
func (m *comparison) of() string {
	measured := false
	for _, c := range m.cells {
		if c.runs == 0 {
			continue
		}
		if c.row.nic != "soft" || c.row.device != "cuda" {
			return ""
		}
		measured = true
	}
	switch {
	case !measured:
		return ""
	case workloads.OnDevice(m.workload(), m.name):
		return gpuAlone
	}
	return emulatedNIC
}

func (m *comparison) workload() string {
	if len(m.cells) == 0 {
		return ""
	}
	return m.cells[0].row.workload
}

// heading names a metric and its unit, and whose figures they are.
func (m *comparison) heading(u unit) string {
	s := WithUnit(m.name, u.name)
	if of := m.of(); of != "" {
		s += " (" + of + ")"
	}
	return s
}

// onDevice names what CUDA threads over a software NIC have shown of themselves: "op issue".
func (u *run) onDevice() []string {
	var works []string
	names := map[string][]string{}
	for _, w := range u.rows {
		if !w.measured || w.nic != "soft" || w.device != "cuda" {
			continue
		}
		for _, s := range w.samples {
			for _, v := range s.values {
				if workloads.OnDevice(w.workload, v.name) && !slices.Contains(names[w.workload], v.name) {
					if names[w.workload] == nil {
						works = append(works, w.workload)
					}
					names[w.workload] = append(names[w.workload], v.name)
				}
			}
		}
	}
	var out []string
	for _, work := range works {
		slices.Sort(names[work])
		out = append(out, work+" "+strings.Join(names[work], ", "))
	}
	return out
}

// everyLines are the warnings that all measured rows share. Their texts may differ in numbers.
func (u *run) everyLines(n *notes) []string {
	var codes []string
	texts := map[string][]string{}
	for _, w := range u.rows {
		for _, warn := range w.warnings {
			if !w.measured || !n.silent[warn.Code] {
				continue
			}
			if texts[warn.Code] == nil {
				codes = append(codes, warn.Code)
			}
			if !slices.Contains(texts[warn.Code], warn.Text) && len(texts[warn.Code]) <= maxTexts {
				texts[warn.Code] = append(texts[warn.Code], warn.Text)
			}
		}
	}
	slices.Sort(codes)
	var out []string
	for _, code := range codes {
		list := texts[code]
		if len(list) > maxTexts {
			list = append(list[:maxTexts:maxTexts], "...")
		}
		out = append(out, fmt.Sprintf("every row: %s: %s", code, strings.Join(list, " / ")))
	}
	return out
}

// maxTexts is how many texts of one warning are said.
const maxTexts = 3

// totalLines say how complete the run is.
func (u *run) totalLines() []string {
	count := map[record.Status]int{}
	for _, w := range u.rows {
		count[w.status]++
	}
	parts := []string{}
	for _, s := range []record.Status{record.OK, record.Skipped, record.Unsafe, record.Unverified, record.Timeout, record.Failed} {
		if count[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[s], s))
		}
	}
	line := plural(len(u.rows), "case")
	if len(parts) > 0 {
		line += ": " + strings.Join(parts, ", ")
	}
	kept := u.records - u.replaced
	out := []string{line + "; " + plural(u.records, "record")}
	if h := u.header; h != nil {
		planned := h.Cases
		for _, o := range u.imports {
			planned += o.Cases
		}
		if kept < planned {
			out = append(out, fmt.Sprintf("incomplete: %d of %d planned records are there", kept, planned))
		}
	}
	if u.replaced > 0 {
		out = append(out, fmt.Sprintf("%s recorded again: the last counts (first: %s)", plural(u.replaced, "process run"), u.example))
	}
	return out
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
