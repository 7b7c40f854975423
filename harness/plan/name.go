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
	best, bestDist := "", len(name)/3+1
	for _, k := range known {
		if d := editDistance(name, k); d <= bestDist && (d < bestDist || best == "") && d < len(k) {
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

// editDistance counts insertions, deletions and substitutions.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diag
			if a[i] != b[j] {
				d++
			}
			diag = row[j+1]
			row[j+1] = min(d, diag+1, row[j]+1)
		}
	}
	return row[len(b)]
}
