package report

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/text"

	"gic/harness/record"
)

// markImports gives rows that gic did not measure what stands behind their label: also the file, where rows of one
// backend are from several.
func (u *run) markImports(rows []*row) {
	files := map[string]map[string]bool{} // by backend
	for _, w := range u.rows {
		if w.imported != "" {
			if files[w.backend] == nil {
				files[w.backend] = map[string]bool{}
			}
			files[w.backend][w.imported] = true
		}
	}
	for _, w := range rows {
		switch {
		case w.imported == "":
			w.mark = ""
		case len(files[w.backend]) == 1:
			w.mark = " (imported)"
		default:
			w.mark = " (imported " + shortName(w.imported, files[w.backend]) + ")"
		}
	}
}

// shortName is a file's name without its folder, unless another of the files has the same.
func shortName(file string, files map[string]bool) string {
	base := filepath.Base(file)
	for o := range files {
		if o != file && filepath.Base(o) == base {
			return file
		}
	}
	return base
}

// labelRows gives every row its label: the backend, and of its configuration the keys that differ within scope
// or from the backend's default, where the header tells the defaults. Of the NIC's configuration likewise,
// over all backends.
func (u *run) labelRows(rows, scope []*row) {
	config := map[string]map[string]map[string]bool{} // backend, key, values
	nic := map[string]map[string]bool{}
	add := func(m map[string]map[string]bool, from map[string]string) {
		for k, v := range from {
			if m[k] == nil {
				m[k] = map[string]bool{}
			}
			m[k][v] = true
		}
	}
	for _, w := range scope {
		if config[w.backend] == nil {
			config[w.backend] = map[string]map[string]bool{}
		}
		add(config[w.backend], w.config)
		if w.nic != "none" {
			add(nic, w.nicConfig)
		}
	}
	u.markImports(rows)
	for _, w := range rows {
		w.parts = nil
		for _, k := range slices.Sorted(maps.Keys(w.config)) {
			if len(config[w.backend][k]) > 1 || u.changed(w.backend, k, w.config[k]) {
				w.parts = append(w.parts, record.KeyValue{Key: k, Value: w.config[k]})
			}
		}
		for _, k := range slices.Sorted(maps.Keys(w.nicConfig)) {
			if len(nic[k]) > 1 {
				w.parts = append(w.parts, record.KeyValue{Key: "nic." + k, Value: w.nicConfig[k]})
			}
		}
		w.label = w.backend
		for _, kv := range w.parts {
			w.label += " " + kv.Key + "=" + kv.Value
		}
		w.label += w.mark
	}
}

// shorten gives the labels of a section's lines as they fit into width columns. Where a backend's labels are
// too long for one line but its values alone are not, the keys are said once, in the returned lines, and the
// rows hold values in columns.
func (u *run) shorten(lines []line, width int) (labels map[*row]string, keys []string) {
	byBackend := map[string][]*row{}
	var order []string
	labels = map[*row]string{}
	for _, l := range lines {
		w := l.row
		if w == nil || labels[w] != "" {
			continue
		}
		labels[w] = w.label
		if byBackend[w.backend] == nil {
			order = append(order, w.backend)
		}
		byBackend[w.backend] = append(byBackend[w.backend], w)
	}
	for _, backend := range order {
		rows := byBackend[backend]
		long := slices.ContainsFunc(rows, func(w *row) bool { return textWidth(w.label) > width })
		if !long {
			continue
		}
		short, key := columned(rows, width)
		if short == nil {
			short, key = u.usual(rows)
		}
		if short == nil {
			continue
		}
		keys = append(keys, key)
		for i, w := range rows {
			labels[w] = short[i]
		}
	}
	return labels, keys
}

// partOf is what a row's label says of a key, "-" for nothing.
func partOf(w *row, key string) string {
	for _, kv := range w.parts {
		if kv.Key == key {
			return kv.Value
		}
	}
	return "-"
}

// sameAndVarying are the keys in the labels of rows of one backend: those that have one value, with it, and the others.
func sameAndVarying(rows []*row) (same, vary []string) {
	var names []string
	for _, w := range rows {
		for _, kv := range w.parts {
			if !slices.Contains(names, kv.Key) {
				names = append(names, kv.Key)
			}
		}
	}
	slices.Sort(names)
	for _, k := range names {
		first := partOf(rows[0], k)
		if slices.ContainsFunc(rows, func(w *row) bool { return partOf(w, k) != first }) {
			vary = append(vary, k)
		} else {
			same = append(same, k+"="+first)
		}
	}
	return same, vary
}

// columned labels rows of one backend with their values in columns, and says of which keys; nil if that is
// too wide as well.
func columned(rows []*row, width int) (labels []string, keys string) {
	labels = make([]string, len(rows))
	for i, w := range rows {
		labels[i] = w.backend
	}
	same, vary := sameAndVarying(rows)
	for _, k := range vary {
		wide := 0
		for _, w := range rows {
			wide = max(wide, textWidth(partOf(w, k)))
		}
		for i, w := range rows {
			labels[i] += " " + text.Pad(partOf(w, k), wide, ' ')
		}
	}
	for i := range labels {
		labels[i] = strings.TrimRight(labels[i], " ")
		labels[i] += rows[i].mark
		if textWidth(labels[i]) > width {
			return nil, ""
		}
	}
	keys = "rows of " + rows[0].backend
	if same != nil {
		keys += " (" + strings.Join(same, " ") + ")"
	}
	if vary != nil {
		keys += ": " + strings.Join(vary, ", ")
	}
	return labels, keys
}

// usual labels rows of one backend with what is not as usual: not the default of a key that any of them has, or not what
// most of them have. The usual is said once, in keys. nil if there is nothing to say of all.
func (u *run) usual(rows []*row) (labels []string, keys string) {
	same, vary := sameAndVarying(rows)
	common := map[string]string{}
	for _, k := range vary {
		count := map[string]int{}
		for _, w := range rows {
			count[partOf(w, k)]++
		}
		if count["-"] > 0 { // a row that does not have the key says nothing of it
			continue
		}
		for _, v := range slices.Sorted(maps.Keys(count)) {
			if count[v] > count[common[k]] {
				common[k] = v
			}
		}
		if u.header != nil {
			if def := u.header.Defaults[rows[0].backend][k]; count[def] > 0 {
				common[k] = def
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(common)) {
		same = append(same, k+"="+common[k])
	}
	if same == nil {
		return nil, ""
	}
	for _, w := range rows {
		label := w.backend
		for _, kv := range w.parts {
			if !slices.Contains(same, kv.Key+"="+kv.Value) {
				label += " " + kv.Key + "=" + kv.Value
			}
		}
		labels = append(labels, label+w.mark)
	}
	slices.Sort(same)
	return labels, "rows of " + rows[0].backend + ", where they do not say otherwise: " + strings.Join(same, " ")
}

// changed says whether the header tells that a key was given another value than its default.
func (u *run) changed(backend, key, value string) bool {
	if u.header == nil {
		return false
	}
	def, ok := u.header.Defaults[backend][key]
	return ok && def != value
}

// where is the NIC and device of a row, as a label.
func (w *row) where() string { return w.nic + "/" + w.device }

// clean makes text from a record safe for one line of a terminal: control characters and line breaks become
// spaces.
func clean(s string) string {
	if strings.IndexFunc(s, notPlain) < 0 {
		return s
	}
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) < 0 {
		return s
	}
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	return strings.Join(strings.Fields(s), " ")
}

// notPlain is true for all but printable ASCII.
func notPlain(r rune) bool { return r < ' ' || r > '~' }

// textWidth is the columns that clean text takes on a terminal. Nearly all of it is ASCII, where that is the
// length; the general answer is a hundred times as dear.
func textWidth(s string) int {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return text.StringWidth(s)
		}
	}
	return len(s)
}

// wrap breaks text into lines of at most width columns at spaces, the first behind first, the others behind
// rest. A word that is too long for a line is cut, after a comma or slash if there is one.
func wrap(s string, width int, first, rest string) []string {
	var lines []string
	line, room := first, width-textWidth(first)
	empty := true
	next := func() {
		lines = append(lines, strings.TrimRight(line, " "))
		line, room, empty = rest, width-textWidth(rest), true
	}
	for _, word := range strings.Fields(s) {
		n := textWidth(word)
		if !empty && n+1 > room {
			next()
		}
		for n > room && empty {
			head := cut(word, room)
			line += head
			word = word[len(head):]
			n = textWidth(word)
			empty = false
			next()
		}
		if word == "" {
			continue
		}
		if !empty {
			line += " "
			room--
		}
		line += word
		room -= n
		empty = false
	}
	if !empty || len(lines) == 0 {
		next()
	}
	return lines
}

// cut returns the longest beginning of word that fits into width columns, preferably up to a separator.
func cut(word string, width int) string {
	used, end, at := 0, 0, 0
	for i, r := range word {
		used += text.RuneWidth(r)
		if used > width {
			break
		}
		end = i + len(string(r))
		if strings.ContainsRune(",/;:=_-", r) {
			at = end
		}
	}
	if at > end/2 {
		return word[:at]
	}
	if end == 0 { // a rune wider than the column; a line longer than asked for beats an endless loop
		for _, r := range word {
			return word[:len(string(r))]
		}
	}
	return word[:end]
}

// sortedKeys lists a map by key.
func sortedKeys(m map[string]string) []record.KeyValue {
	out := make([]record.KeyValue, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, record.KeyValue{Key: k, Value: m[k]})
	}
	return out
}
