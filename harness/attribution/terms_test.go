package attribution

import (
	"strings"
	"testing"
)

// A term says all five things, and no floor key stands for two terms.
func TestTermsAreComplete(t *testing.T) {
	seen, keys := map[Name]bool{}, map[Key]Name{}
	for _, term := range Terms() {
		if seen[term.Name] {
			t.Errorf("%s is there twice", term.Name)
		}
		seen[term.Name] = true
		for what, text := range map[string]string{
			"title": term.Title, "definition": term.Definition, "measured": term.Measured, "not claimed": term.NotClaimed,
		} {
			if strings.TrimSpace(text) == "" || strings.Contains(text, "|") {
				t.Errorf("%s: %s is %q", term.Name, what, text)
			}
		}
		if len(term.Floor) == 0 && term.FloorNote == "" {
			t.Errorf("%s names no floor key and does not say why", term.Name)
		}
		for _, k := range term.Floor {
			if other, ok := keys[k]; ok {
				t.Errorf("key %s stands for %s and %s", k, other, term.Name)
			}
			keys[k] = term.Name
			if got := termOfKey(k.Backend, k.Name); got != term.Name {
				t.Errorf("key %s is of %s, want %s", k, got, term.Name)
			}
		}
		if got, err := TermOf(term.Name); err != nil || got.Title != term.Title {
			t.Errorf("TermOf(%s) = %v, %v", term.Name, got, err)
		}
	}
	if _, err := TermOf("luck"); err == nil || !strings.Contains(err.Error(), "ordering, queue-sharing") {
		t.Errorf("unknown term: %v", err)
	}
	if got := termOfKey("minigda", "qps"); got != "" {
		t.Errorf("qps is of term %s; it is a resource", got)
	}
}
