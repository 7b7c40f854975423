package cli

import (
	"os"
	"path/filepath"
	"testing"
)

// A folder's cuda/ comes first where there is a GPU, and only there; an earlier folder comes before a later one's cuda/.
func TestFindPluginPrefersCUDA(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	write := func(path ...string) string {
		p := filepath.Join(path...)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	both, bothCUDA := write(first, "libboth.so"), write(first, "cuda", "libboth.so")
	host := write(first, "libhost.so")
	write(second, "cuda", "libhost.so")
	onlyCUDA := write(second, "cuda", "libcuda_only.so")
	t.Setenv(pluginPathEnv, first+string(filepath.ListSeparator)+second)
	before := hasGPU
	t.Cleanup(func() { hasGPU = before })
	for _, c := range []struct {
		gpu        bool
		file, want string
	}{
		{false, "libboth.so", both}, {true, "libboth.so", bothCUDA},
		{false, "libhost.so", host}, {true, "libhost.so", host},
		{false, "libcuda_only.so", ""}, {true, "libcuda_only.so", onlyCUDA},
	} {
		hasGPU = func() bool { return c.gpu }
		got, missing := findPlugin(c.file)
		if got != c.want || (missing == "") != (c.want != "") {
			t.Errorf("gpu=%v %s: %q (%s), want %q", c.gpu, c.file, got, missing, c.want)
		}
	}
}
