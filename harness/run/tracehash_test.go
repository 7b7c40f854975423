package run

import (
	"os"
	"path/filepath"
	"testing"
)

func TestHashTrace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nic.trace")
	if err := os.WriteFile(path, []byte("abc"), 0o644); err != nil {
		t.Fatal(err)
	}
	const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // FIPS 180-4
	for trace, want := range map[string]string{path: abc, "off": "", "": "", "not saved: disk full": ""} {
		facts := map[string]string{"trace": trace}
		hashTrace(facts)
		if got := facts["trace.sha256"]; got != want {
			t.Errorf("trace=%q: hash %q, want %q", trace, got, want)
		}
	}
}
