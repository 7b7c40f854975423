package backendtest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gic/backends"
	"gic/backends/plugin"
)

// probeEnv turns TestPlaceholderProbe into the process that probes: "library device key=value".
const probeEnv = "GIC_BACKENDTEST_PROBE"

// openEnv: the probe may find nothing.
const openEnv = "GIC_BACKENDTEST_OPEN"

// TestPlaceholderProbe is the child of TestPlaceholders: what is installed is read from the environment, which the
// loader looks at only when a process starts.
func TestPlaceholderProbe(t *testing.T) {
	path, rest, ok := strings.Cut(os.Getenv(probeEnv), " ")
	device, config, _ := strings.Cut(rest, " ")
	if !ok {
		t.Skip("the child of TestPlaceholders")
	}
	b, err := plugin.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	// A backend that has device code in another build has its keys in this one, so that suites can name them.
	// DeepEP's works in every build: it has a double.
	works := strings.Contains(path, "libdeepep")
	info := b.Info()
	if !works && (info.Caps != 0 || (len(info.Keys) == 0) != (info.Lowering == [backends.NumOps]backends.Lowering{})) {
		t.Errorf("it declares %+v, although nothing of it works", info)
	}
	o := backends.Open{Ranks: 1, Job: "gic-bt", Device: device, NIC: "soft", Comm: NewHub(1).Rank(0)}
	o.Config = map[string]string{"no_such_key": "1"}
	if err := b.Probe(o); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "no_such_key") {
		t.Errorf("probe with an unknown key: %v", err)
	}
	o.Config = nil
	if key, value, ok := strings.Cut(config, "="); ok {
		o.Config = map[string]string{key: value}
	}
	probe := b.Probe(o)
	_, open := b.Open(t.Context(), o)
	if os.Getenv(openEnv) != "" && probe == nil {
		probe = open // what is found out by loading alone
	}
	for call, err := range map[string]error{"probe": probe, "open": open} {
		if !errors.Is(err, backends.ErrNotSupported) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line of ErrNotSupported", call, err)
		}
	}
	if probe.Error() != open.Error() {
		t.Errorf("probe says %q, open %q", probe, open)
	}
	t.Logf("reason: %v", probe)
}

// The placeholders name the first thing missing, whatever else is missing too.
func TestPlaceholders(t *testing.T) {
	if os.Getenv(probeEnv) != "" {
		t.Skip("the parent of TestPlaceholderProbe")
	}
	cuda := install(t, "testdata/fakecuda.c", "libcuda.so.1")
	empty := t.TempDir()
	with := func(lib string, file string, flags ...string) string { return install(t, lib, file, flags...) }
	const fake = "testdata/fakelib.c"
	nvshmem := func(flags ...string) string { return with(fake, "libnvshmem_host.so.3", flags...) }
	nccl := func(flags ...string) string { return with(fake, "libnccl.so.2", flags...) }
	bare := environment(t)
	python := environment(t, "torch/__init__.py")
	whole := environment(t, "torch/__init__.py", "deep_ep/__init__.py", "deep_ep/buffer.py", "deep_ep-1.2.1+abc.dist-info/METADATA")
	second := environment(t, "torch/__init__.py", "deep_ep/__init__.py", "deep_ep/buffers/elastic.py", "deep_ep/buffers/legacy.py",
		"deep_ep-2.1.0.dist-info/METADATA", "nvidia_nccl_cu13-2.28.9.dist-info/METADATA", "nvidia_nvshmem_cu13-3.5.19.dist-info/METADATA")
	broken := t.TempDir()
	touch(t, filepath.Join(broken, "bin", "python3"))

	// What this machine has installed itself cannot be hidden from the loader: such rows are left out.
	cache, _ := exec.Command("/sbin/ldconfig", "-p").Output() // no ldconfig: nothing is known to be installed
	installed := func(want string) bool {
		for needle, file := range map[string]string{"no NVIDIA driver": "libcuda.so.1", "libcuda.so.1 not found": "libcuda.so.1",
			"NVSHMEM not found": "libnvshmem_host.so.3", "NCCL not found": "libnccl.so.2"} {
			if strings.Contains(want, needle) && strings.Contains(string(cache), file) {
				return true
			}
		}
		python := 0
		for _, prefix := range []string{"/usr", "/usr/local"} {
			for _, name := range []string{"torch", "deep_ep*", "nvidia"} {
				found, _ := filepath.Glob(prefix + "/lib/python3*/*-packages/" + name) // the pattern is well formed
				python += len(found)
			}
		}
		return strings.Contains(want, "not found") && python > 0
	}

	gpu := []string{"LD_LIBRARY_PATH=" + cuda, "GIC_FAKE_CUDA_DEVICES=2"}
	for _, c := range []struct {
		name, device string
		env          []string
		want         string
	}{
		{"nvshmem", "host", nil, "nvshmem needs a CUDA device; device=host has none (and this machine has no NVIDIA driver"},
		{"ncclgin", "host", gpu, "ncclgin needs a CUDA device; device=host has none"},
		{"deepep", "cuda:0", nil, "no CUDA driver: libcuda.so.1 not found; install the NVIDIA driver"},
		{"nvshmem", "cuda:0", gpu[:1], "no CUDA device: the driver answers 100 (no CUDA-capable device is detected)"},
		{"nvshmem", "cuda:2", gpu, "no CUDA device 2: the driver shows 2"},
		{"nvshmem", "cuda:1", gpu, "NVSHMEM not found (libnvshmem_host.so.3): pip install"},
		{"nvshmem", "cuda:1", append(gpu, "NVSHMEM_HOME="+nvshmem()), "does not tell its version"},
		{"nvshmem", "cuda:1", append(gpu, "NVSHMEM_HOME="+nvshmem("-DNVSHMEM_PATCH=4")), "NVSHMEM 3.4.4 (" + os.TempDir()},
		{"nvshmem", "cuda:1", append(gpu, "NVSHMEM_HOME="+nvshmem("-DNVSHMEM_PATCH=6")), "is not accepted: want 3.4.5 (GIC_NVSHMEM_FORCE=1 tries it)"},
		{"nvshmem", "cuda:1", append(gpu, "GIC_NVSHMEM_FORCE=1", "NVSHMEM_HOME="+nvshmem("-DNVSHMEM_PATCH=6")), "has no device code"},
		{"nvshmem", "cuda:1", append(gpu, "NVSHMEM_HOME="+nvshmem("-DNVSHMEM_PATCH=5")), "has no device code"},
		{"nvshmem", "cuda:1", append(gpu, "NVSHMEM_HOME="+nvshmem("-DNVSHMEM_PATCH=4"), "GIC_NVSHMEM_HOME="+nvshmem("-DNVSHMEM_PATCH=5")), "has no device code"},
		{"ncclgin", "cuda:0", gpu, "NCCL not found (libnccl.so.2): pip install"},
		{"ncclgin", "cuda:0", append(gpu, "NCCL_HOME="+nccl("-DNCCL=22703")), "NCCL 2.27.3"},
		{"ncclgin", "cuda:0", append(gpu, "NCCL_HOME="+nccl("-DNCCL=22808")), "is not accepted: want 2.28.9 (GIC_NCCL_FORCE=1 tries it)"},
		{"ncclgin", "cuda:0", append(gpu, "NCCL_HOME="+nccl("-DNCCL=23007")), "NCCL 2.30.7 ("},
		{"ncclgin", "cuda:0", append(gpu, "GIC_NCCL_FORCE=1", "NCCL_HOME="+nccl("-DNCCL=23007")), "has no device code"},
		{"ncclgin", "cuda:0", append(gpu, "NCCL_HOME="+nccl("-DNCCL=22809")), "has no device code"},
		{"deepep", "host", gpu, "deepep needs a CUDA device; device=host has none"},
		{"deepep", "cuda:0", append(gpu, "VIRTUAL_ENV="+bare), "PyTorch not found by " + bare},
		{"deepep", "cuda:0", append(gpu, "VIRTUAL_ENV="+python), "DeepEP not found (Python package deep_ep) by " + python},
		{"deepep", "cuda:0", append(gpu, "VIRTUAL_ENV="+empty), "no Python in VIRTUAL_ENV=" + empty + ": bin/python3 is not there"},
		{"deepep", "cuda:0", append(gpu, "VIRTUAL_ENV="+python, "GIC_PYTHON="+broken+"/bin/python3"), "no Python at GIC_PYTHON=" + broken},
		{"deepep", "cuda:0", append(gpu, "GIC_PYTHON=/bin/true"), "/bin/true is no Python: it does not tell its own path"},
		{"deepep", "cuda:0", append(gpu, "GIC_PYTHON=/bin/false"), "Python does not run: /bin/false ends with status 1"},
		// Over a software NIC of the wrong kind; what is there of a second version lacks more.
		{"deepep", "cuda:0", append(gpu, "VIRTUAL_ENV="+whole), "engine=cpu: DeepEP orders its work requests for the GPU alone"},
		{"deepep", "cuda:0", append(gpu, "VIRTUAL_ENV="+second), "NVSHMEM 3.5.19 is too new for mode=ll of deep_ep 2.1.0 over a NIC"},
		{"deepep mode=v2", "cuda:0", append(gpu, "VIRTUAL_ENV="+second), "NCCL 2.28.9 is too old for mode=v2: want at least 2.30.4"},
		{"deepep mode=v2", "cuda:0", append(gpu, "VIRTUAL_ENV="+whole), "deep_ep 1.2.1+abc has no ElasticBuffer: mode=v2 wants DeepEP 2"},
		{"deepep mode=normal", "cuda:0", append(gpu, "VIRTUAL_ENV="+whole), "mode=normal moves rows over NVLink here: --nic none"},
	} {
		if installed(c.want) {
			t.Logf("%s: this machine has what %q is about", c.name, c.want)
			continue
		}
		name, config, _ := strings.Cut(c.name, " ")
		lib, err := filepath.Abs(Built(t, "lib"+name+".so"))
		if err != nil {
			t.Fatal(err)
		}
		if reason := refusal(t, lib+" "+c.device+" "+config, empty, c.env); !strings.Contains(reason, c.want) {
			t.Errorf("%s device=%s with %v: %q, want %q", c.name, c.device, c.env, reason, c.want)
		}
	}
}

// refusal is what a child says that probes `what`, with nothing of this machine's own installations: they must not decide
// the test.
func refusal(t *testing.T, what, empty string, env []string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestPlaceholderProbe$", "-test.v")
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + empty, "LD_LIBRARY_PATH=" + empty, probeEnv + "=" + what,
		"GORACE=atexit_sleep_ms=0"}, env...) // a second per process otherwise
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "reason: ") {
		t.Errorf("%s with %v: %v\n%s", what, env, err, out)
		return ""
	}
	_, reason, _ := strings.Cut(string(out), "reason: ")
	reason, _, _ = strings.Cut(reason, "\n")
	return reason
}

// NCCL's device code reads what its library writes, so the two must be of one release, and no force helps: whoever opens is
// told in one line, before anything of the other half runs. So it is where that half was left from an older build.
func TestNCCLHeaders(t *testing.T) {
	if os.Getenv(probeEnv) != "" {
		t.Skip("the parent of TestPlaceholderProbe")
	}
	dir := t.TempDir()
	built, err := os.ReadFile(Built(t, "libncclgin.so"))
	if err != nil {
		t.Fatal(err)
	}
	lib := filepath.Join(dir, "libncclgin.so")
	if err := os.WriteFile(lib, built, 0o755); err != nil {
		t.Fatal(err)
	}
	cuda := install(t, "testdata/fakecuda.c", "libcuda.so.1")
	nccl := install(t, "testdata/fakelib.c", "libnccl.so.2", "-DNCCL=23007")
	for _, c := range []struct {
		flags []string
		want  []string
	}{
		{[]string{"-DHEADERS=22809"}, []string{"NCCL 2.30.7 (", "compiled with the headers of 2.28.9", "make NCCL_HOME="}},
		{[]string{"-DHEADERS=23007", "-DABI=1"}, []string{"gic_ncclgin.so was built for version 0.1 of the ABI, this ncclgin plugin for ", "run make again"}},
	} {
		if err := os.Rename(Compile(t, "testdata/fakehalf.c", c.flags...), filepath.Join(dir, "gic_ncclgin.so")); err != nil {
			t.Fatal(err)
		}
		reason := refusal(t, lib+" cuda:0 ", t.TempDir(), []string{openEnv + "=1", "GIC_NCCL_FORCE=1", "GIC_FAKE_CUDA_DEVICES=1",
			"LD_LIBRARY_PATH=" + cuda, "NCCL_HOME=" + nccl})
		for _, want := range c.want {
			if !strings.Contains(reason, want) {
				t.Errorf("%q, want %q", reason, want)
			}
		}
	}
}

// install compiles a library into a folder of its own under the given name.
func install(t *testing.T, source, file string, flags ...string) string {
	t.Helper()
	built := Compile(t, source, flags...)
	dir := filepath.Join(filepath.Dir(built), "installed")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(built, filepath.Join(dir, file)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

// environment makes a virtual environment of Python with these files among its packages.
func environment(t *testing.T, packages ...string) string {
	t.Helper()
	// What a shim of a version manager would start depends on HOME.
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		Need(t, "python3")
	}
	dir := t.TempDir()
	if out, err := exec.Command(strings.TrimSpace(string(out)), "-m", "venv", "--without-pip", dir).CombinedOutput(); err != nil {
		t.Fatalf("make a virtual environment: %v\n%s", err, out)
	}
	sites, err := filepath.Glob(filepath.Join(dir, "lib", "python3*", "site-packages"))
	if err != nil || len(sites) != 1 {
		t.Fatalf("site-packages of %s: %v %v", dir, sites, err)
	}
	for _, p := range packages {
		text := ""
		if name, version, ok := strings.Cut(strings.TrimSuffix(filepath.Dir(p), ".dist-info"), "-"); ok {
			text = "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n"
		}
		touch(t, filepath.Join(sites[0], p))
		if err := os.WriteFile(filepath.Join(sites[0], p), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
