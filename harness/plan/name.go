package plan

import (
	"fmt"
	"strings"
)

// UnknownName is the error for a name that is not among the known ones: it lists them and points at the
// nearest. where follows the kind, " in suite quick" say.
func UnknownName(kind, name string, known []string, where string) error {
	hint := ""
	if n := Nearest(name, known); n != "" {
		hint = fmt.Sprintf(" (did you mean %q?)", n)
	}
	return fmt.Errorf("unknown %s %q%s%s; known: %s", kind, name, where, hint, strings.Join(known, ", "))
}

// Nearest gives the known name that name was probably meant to be: within a third of its length in edits, or
// the only one it begins. Empty when none is near.
func Nearest(name string, known []string) string {
	best, bestDist := "", max(1, len(name)/3)+1
	for _, k := range known {
		if d := editDistance(name, k); d < bestDist && d < len(k) {
			best, bestDist = k, d
		}
	}
	if best != "" || name == "" {
		return best
	}
	for _, k := range known {
		if strings.HasPrefix(k, name) {
			if best != "" {
				return ""
			}
			best = k
		}
	}
	return best
}

// editDistance counts insertions, deletions, substitutions and swaps of neighbours.
func editDistance(a, b string) int {
	// Three rows of the table: before the last letter of a, at it, and the one being filled.
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			d := last[j-1]
			if a[i-1] != b[j-1] {
				d++
			}
			d = min(d, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, before[j-2]+1)
			}
			row[j] = d
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
