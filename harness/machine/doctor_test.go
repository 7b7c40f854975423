package machine

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDoctor(t *testing.T) {
	got := map[string]State{}
	var order []string
	checks := server(t).Doctor(context.Background(), Want{Threads: 6, Shm: 1})
	for _, c := range checks {
		if _, twice := got[c.Name]; twice {
			t.Errorf("%s is checked twice", c.Name)
		}
		got[c.Name] = c.State
		order = append(order, c.Name)
		if c.Found == "" || (c.State == OK) == (c.Get != "") || strings.Contains(c.Found+c.Get, "\n") {
			t.Errorf("%+v: want one line found, and how to get it only when it is not ok", c)
		}
	}
	want := map[string]State{
		"C++ compiler": OK, "CUDA compiler": Missing, "mpirun": Missing, "srun": Missing, "torchrun": Missing, "ibv_devinfo": Missing,
		"CPUs": Warn, "CPU governor": Warn, "memory lock limit": OK, "shared memory": OK,
		"GPU": OK, "GPU 0 state": Warn, "NCCL": OK, "NVSHMEM": Missing, "DeepEP": Missing, "libibverbs": OK, "libmlx5": Missing,
		"RDMA mlx5_0/1": Warn, "RDMA mlx5_1/1": Missing, "GPUDirect RDMA": OK, "PeerMappingOverride": OK,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("checks (-want +got):\n%s\nin order %v", d, order)
	}
	if _, err := json.Marshal(checks); err != nil {
		t.Error(err)
	}
}

func TestDoctorFindings(t *testing.T) {
	for _, c := range []struct {
		name, check string
		change      func(*Reader, *Want)
		state       State
		found, get  string
	}{
		{"enough CPUs", "CPUs", func(_ *Reader, w *Want) { w.Threads = 2 }, OK, "2.5 (allowed: 0-2,6, quota 2.5)", ""},
		{"too few CPUs", "CPUs", func(*Reader, *Want) {}, Warn, "2.5", "spins 6 threads"},
		{"no GPU", "GPU", func(r *Reader, _ *Want) { r.NVML = noDriver() }, Missing, "no NVIDIA driver here", "NVIDIA GPU"},
		{"shared memory too small", "shared memory", func(_ *Reader, w *Want) { w.Shm = 1 << 60 }, Warn, "free in /dev/shm", "1024 PiB|1.049e+06 TiB"},
		{"NCCL by variable", "NCCL", func(r *Reader, _ *Want) {
			r.Getenv = func(n string) string {
				return map[string]string{"NCCL_HOME": "/usr/local/lib/python3.12/site-packages/nvidia/nccl"}[n]
			}
		}, OK, "/usr/local/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2", ""},
		{"NCCL for gic alone", "NCCL", func(r *Reader, _ *Want) {
			r.Getenv = func(n string) string {
				return map[string]string{"NCCL_HOME": "/other", "GIC_NCCL_HOME": "/usr/local/lib/python3.12/site-packages/nvidia/nccl"}[n]
			}
		}, OK, "/usr/local/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2", ""},
		{"NVSHMEM of the python3 on PATH", "NVSHMEM", func(r *Reader, _ *Want) {
			r.Root = t.TempDir()
			for _, f := range []string{"/venv/bin/python3", "/venv/lib/python3.12/site-packages/nvidia/nvshmem/lib/libnvshmem_host.so.3"} {
				if err := os.MkdirAll(filepath.Dir(r.Root+f), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(r.Root+f, nil, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			r.Getenv = func(n string) string { return map[string]string{"PATH": "/sbin::/venv/bin"}[n] }
		}, OK, "/venv/lib/python3.12/site-packages/nvidia/nvshmem/lib/libnvshmem_host.so.3", ""},
		{"ACS", "RDMA mlx5_0/1", func(*Reader, *Want) {}, Warn, "ACS on 0000:3c:04.0=0x001d", "setpci"},
		{"link down", "RDMA mlx5_1/1", func(*Reader, *Want) {}, Missing, "DOWN, Ethernet, 200 Gb/sec", "link up"},
		{"empty machine", "RDMA device", func(r *Reader, _ *Want) { r.Root = t.TempDir() }, Missing, "none", "--nic soft"},
	} {
		r, w := server(t), Want{Threads: 6}
		c.change(&r, &w)
		var got *Check
		for _, k := range r.Doctor(context.Background(), w) {
			if k.Name == c.check {
				got = &k
			}
		}
		if got == nil {
			t.Errorf("%s: no check %q", c.name, c.check)
			continue
		}
		okGet := false
		for _, g := range strings.Split(c.get, "|") {
			okGet = okGet || strings.Contains(got.Get, g)
		}
		if got.State != c.state || !strings.Contains(got.Found, c.found) || !okGet {
			t.Errorf("%s: %+v, want %s with %q and %q", c.name, *got, c.state, c.found, c.get)
		}
	}
}

func TestSize(t *testing.T) {
	for b, want := range map[int64]string{0: "0 B", 8192: "8 KiB", 8 << 20: "8 MiB", 1536 << 20: "1.5 GiB", 3 << 40: "3 TiB"} {
		if got := size(b); got != want {
			t.Errorf("%d: %s, want %s", b, got, want)
		}
	}
}
