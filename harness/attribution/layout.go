package attribution

import (
	"strings"
	"unicode/utf8"
)

// table lays rows out in columns: align has l or r for each. What is too wide is wrapped in the widest text column.
func (t *text) table(rows [][]string, align, indent string) {
	widths := t.widths(rows, align, indent)
	for _, r := range rows {
		t.row(r, widths, align, indent)
	}
}

// widths are the widths of the columns: what they need, and less for the widest where that is too much.
func (t *text) widths(rows [][]string, align, indent string) []int {
	widths := make([]int, len(align))
	for _, r := range rows {
		for i, c := range r {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	total := len(indent)
	for _, w := range widths {
		total += w + 2
	}
	for total-2 > t.width {
		// Shrink the widest left-aligned column by what is over, but not below what is readable.
		widest := -1
		for i, w := range widths {
			if align[i] == 'l' && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		over := total - 2 - t.width
		if widest < 0 || widths[widest] <= 12 {
			break
		}
		// Not below the next widest at once, so that two wide columns share.
		next := 12
		for i, w := range widths {
			if i != widest && align[i] == 'l' && w < widths[widest] {
				next = max(next, w)
			}
		}
		cut := min(over, max(widths[widest]-next, 1))
		widths[widest] -= cut
		total -= cut
	}
	return widths
}

// grouped is a table whose rows, but for the first one, stand under heads.
func (t *text) grouped(rows [][]string, heads []string, align, indent string) {
	widths := t.widths(rows, align, indent)
	t.row(rows[0], widths, align, indent)
	for i, r := range rows[1:] {
		if i == 0 || heads[i] != heads[i-1] {
			t.wrapped(heads[i], "", "    ")
		}
		t.row(r, widths, align, indent)
	}
}

// row writes one row, over several lines where a cell is wrapped.
func (t *text) row(cells []string, widths []int, align, indent string) {
	lines := make([][]string, len(cells))
	height := 1
	for i, c := range cells {
		lines[i] = []string{c}
		if utf8.RuneCountInString(c) > widths[i] {
			lines[i] = wrap(c, widths[i], "", "  ")
		}
		height = max(height, len(lines[i]))
	}
	for k := range height {
		var b strings.Builder
		b.WriteString(indent)
		for i := range cells {
			c := ""
			if k < len(lines[i]) {
				c = lines[i][k]
			}
			pad := strings.Repeat(" ", max(widths[i]-utf8.RuneCountInString(c), 0))
			if align[i] == 'r' {
				b.WriteString(pad + c)
			} else {
				b.WriteString(c + pad)
			}
			if i < len(cells)-1 {
				b.WriteString("  ")
			}
		}
		t.line(b.String())
	}
}

// wrap breaks a text into lines of at most width columns; a word that is too long is cut.
func wrap(s string, width int, first, rest string) []string {
	var lines []string
	line, start := first, len(first)
	for _, word := range strings.Fields(s) {
		for {
			room := width - utf8.RuneCountInString(line)
			if len(line) > start {
				room--
			}
			n := utf8.RuneCountInString(word)
			if n <= room {
				if len(line) > start {
					line += " "
				}
				line += word
				break
			}
			if len(line) > start {
				lines, line, start = append(lines, line), rest, len(rest)
				continue
			}
			at := cutAt(word, max(room, 1))
			lines, line, start = append(lines, line+word[:at]), rest, len(rest)
			word = word[at:]
		}
	}
	return append(lines, line)
}

// cutAt is where to cut a word so that at most n columns stand before, behind a separator if there is one: a comma
// rather than another, since a command's spec may be broken there.
func cutAt(word string, n int) int {
	end, at, comma, used := 0, 0, 0, 0
	for i, r := range word {
		if used == n {
			break
		}
		used++
		end = i + utf8.RuneLen(r)
		if strings.ContainsRune(",/;:=_-", r) {
			at = end
		}
		if r == ',' {
			comma = end
		}
	}
	if comma > end/2 {
		return comma
	}
	if at > end/2 {
		return at
	}
	return end
}

// bars draws a waterfall in characters: totals from zero, steps where they happen.
type bars struct {
	low, high int64
	width     int
}

func newBars(p printed, width int) bars {
	b := bars{min(0, p.floor, p.library), max(0, p.floor, p.library), width}
	at := p.floor
	for _, v := range append(append([]int64{}, p.parts...), p.residual) {
		at += v
		b.low, b.high = min(b.low, at), max(b.high, at)
	}
	return b
}

func (b bars) column(v int64) int {
	if b.high == b.low {
		return 0
	}
	return int(float64(v-b.low)/float64(b.high-b.low)*float64(b.width) + 0.5)
}

func (b bars) total(v int64) string {
	from, to := b.column(min(0, v)), b.column(max(0, v))
	return strings.Repeat(" ", from) + strings.Repeat("=", to-from)
}

// step is + where time is added, - where it is taken away; a step too small for a column is a dot.
func (b bars) step(from, to int64) string {
	a, z, mark := b.column(from), b.column(to), "+"
	if to < from {
		a, z, mark = z, a, "-"
	}
	switch {
	case from == to:
		return ""
	case a == z:
		return strings.Repeat(" ", min(a, b.width-1)) + "."
	}
	return strings.Repeat(" ", a) + strings.Repeat(mark, z-a)
}
