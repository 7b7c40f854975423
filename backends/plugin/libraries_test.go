package plugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMapped(t *testing.T) {
	site := filepath.Join(t.TempDir(), "lib", "site-packages")
	for _, f := range []string{"nvidia/nccl/lib/libnccl.so.2", "nvidia_nccl_cu12-2.28.9.dist-info/METADATA",
		"nvidia_nvshmem_cu12-3.4.5.dist-info/METADATA", "nvidia/nvshmem/lib/libnvshmem_host.so.3"} {
		p := filepath.Join(site, f)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(f), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	line := func(path string) string {
		return "7f0000000000-7f0000001000 r-xp 00000000 08:01 42                  " + path
	}
	maps := strings.Join([]string{
		line(site + "/nvidia/nccl/lib/libnccl.so.2"),
		line(site + "/nvidia/nccl/lib/libnccl.so.2"), // a second segment
		line(site + "/nvidia/nvshmem/lib/libnvshmem_host.so.3"),
		line("/no/such/libcuda.so.580.95.05"),
		line("/no/such/libmlx5.so.1.24.44.0"),
		line("/gone/libibverbs.so.1 (deleted)"),
		line("/usr/lib/x86_64-linux-gnu/libc.so.6"),
		line("/some where/libmine.so"),
		line("/some where/gic_nvshmem.so"), // what a plugin has loaded beside itself
		"7f0000000000-7f0000001000 rw-p 00000000 00:00 0",
	}, "\n")
	got, err := mapped(strings.NewReader(maps), map[string]string{"/some where/libmine.so": "0.1"})
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, l := range got {
		versions[l.Name] = l.Version
		if strings.HasPrefix(l.Path, site) != (l.SHA256 != "") {
			t.Errorf("%s: sha256 %q", l.Path, l.SHA256)
		}
	}
	want := map[string]string{"libnccl": "2.28.9", "libnvshmem_host": "3.4.5", "libcuda": "580.95.05",
		"libmlx5": "1.24.44.0", "libibverbs": "1", "libmine": "0.1", "gic_nvshmem": ""}
	if d := cmp.Diff(want, versions); d != "" {
		t.Errorf("versions (-want +got):\n%s", d)
	}
	if len(got) != len(want) {
		t.Errorf("%d libraries, want %d: %+v", len(got), len(want), got)
	}
}

// A file is read once for all processes of a run, and again when it was touched.
func TestKeptHashes(t *testing.T) {
	dir, kept := t.TempDir(), t.TempDir()
	lib := filepath.Join(dir, "lib.so")
	write := func(text string, at time.Time) {
		t.Helper()
		if err := os.WriteFile(lib, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(lib, at, at); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Unix(1e9, 0)
	write("one", now)
	one := hash(lib)
	t.Setenv(HashesEnv, kept)
	if got := hash(lib); got != one {
		t.Errorf("%s, want %s", got, one)
	}
	write("two", now) // the same size and time: what is kept is used
	if got := hash(lib); got != one {
		t.Errorf("the file was read again: %s", got)
	}
	write("two", now.Add(time.Second))
	two := hash(lib)
	if two == one || len(two) != len(one) {
		t.Errorf("a touched file has the hash %s", two)
	}
	files, err := os.ReadDir(kept)
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files { // a broken one is not believed
		if err := os.WriteFile(filepath.Join(kept, f.Name()), []byte("?"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := hash(lib); got != two {
		t.Errorf("%s, want %s", got, two)
	}
	t.Setenv(HashesEnv, filepath.Join(dir, "none"))
	if got := hash(lib); got != two {
		t.Errorf("without a folder: %s", got)
	}
}
