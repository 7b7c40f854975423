package machine

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// plant writes a fixture tree into a fresh folder and returns it. Colons in PCI addresses and links are why the
// fixture is one text file: "-- path --" starts a file, "-- path -> target --" is a link, "-- path (hex) --" a
// binary file.
func plant(t *testing.T, fixture string) string {
	t.Helper()
	text, err := os.ReadFile(fixture)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	_, rest, _ := strings.Cut("\n"+string(text), "\n-- ")
	for section := range strings.SplitSeq(rest, "\n-- ") {
		head, body, _ := strings.Cut(section, "\n")
		head = strings.TrimSuffix(head, " --")
		path, target, isLink := strings.Cut(head, " -> ")
		path, isHex := strings.CutSuffix(path, " (hex)")
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		data := []byte(body + "\n")
		if isHex {
			if data, err = hex.DecodeString(strings.Join(strings.Fields(body), "")); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
		}
		if isLink {
			err = os.Symlink(target, full)
		} else {
			err = os.WriteFile(full, data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}
