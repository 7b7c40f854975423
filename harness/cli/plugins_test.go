package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"gic/backends"
	"gic/harness/attribution/oracle"
	"gic/harness/plan"
	"gic/harness/record"
	"gic/workloads/conform"
	"gic/workloads/suites"
)

func fullCatalog(t *testing.T) *catalog {
	t.Helper()
	withPlugins(t)
	cat, err := loadCatalog(context.Background(), &plugins{infos: map[string]*backends.Info{}}, func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range cat.backends {
		if cat.infos[b.name] == nil {
			t.Errorf("backend %s is not described: %s", b.name, b.missing)
		}
	}
	return cat
}

// TestNoKeyExistsTwice: what a case is called must say whether an axis of the work or a choice of the stack is
// meant.
func TestNoKeyExistsTwice(t *testing.T) {
	cat := fullCatalog(t)
	axes := map[string]string{}
	for _, w := range workloadList() {
		for _, a := range w.Axes() {
			axes[a.Name] = w.Name()
		}
	}
	for name, info := range cat.infos {
		seen := map[string]bool{}
		for _, k := range info.Keys {
			if w := axes[k.Name]; w != "" {
				t.Errorf("%q is an axis of workload %s and a key of backend %s", k.Name, w, name)
			}
			if seen[k.Name] {
				t.Errorf("%q is twice a key of backend %s", k.Name, name)
			}
			seen[k.Name] = true
		}
	}
}

func TestDefaultsAreAllowed(t *testing.T) {
	cat := fullCatalog(t)
	for name, info := range cat.infos {
		for _, k := range info.Keys {
			if _, err := plan.Check("backend "+name, k, k.Default); err != nil {
				t.Errorf("the default: %v", err)
			}
		}
	}
	for _, w := range workloadList() {
		for _, a := range w.Axes() {
			if _, err := plan.Check("workload "+w.Name(), a.Key, a.Default); err != nil {
				t.Errorf("the default: %v", err)
			}
		}
	}
}

// TestSuites: every suite makes sense with the real keys, and the placeholders have their rows.
func TestSuites(t *testing.T) {
	withPlugins(t)
	for _, name := range suites.Names() {
		for _, ranks := range []string{"2", "4"} {
			r, err := parseRun([]string{"--suite", name, "--ranks", ranks})
			if err != nil {
				t.Fatal(err)
			}
			p, _, err := r.request(context.Background(), 0)
			if err != nil {
				t.Errorf("suite %s, %s ranks: %v", name, ranks, err)
				continue
			}
			points := map[string]map[string]bool{} // of a backend
			for _, o := range p.Outers {
				if points[o.Backend] == nil {
					points[o.Backend] = map[string]bool{}
				}
				for _, pt := range o.Points {
					points[o.Backend][o.Workload+" "+pairs(pt)] = true
				}
				// What only CUDA threads can do is skipped without a GPU, in the suites that are for them.
				forGPU := slices.Contains([]string{"paper-gpu", "nvshmem", "ncclgin", "nvlink-softnic"}, name) && strings.Contains(o.Skip, "needs a CUDA device")
				if floor := o.Backend == "minigda" || o.Backend == "miniproxy"; floor && o.Skip != "" && !forGPU {
					t.Errorf("suite %s, %s ranks: %s on %s %s is skipped: %s", name, ranks, o.Workload, o.Backend, pairs(o.Config), o.Skip)
				}
			}
			libraries := []string{"nvshmem", "ncclgin", "deepep"}
			if slices.Contains(libraries, name) { // the suite of one of them
				libraries = []string{name}
			}
			if name == "nvlink-softnic" { // whose operations DeepEP does not have; its rows are apart
				libraries = []string{"nvshmem", "ncclgin"}
			}
			for _, library := range libraries {
				for floor := range points["minigda"] {
					if !points[library][floor] {
						t.Errorf("suite %s: %s has no row for %s", name, library, floor)
					}
				}
			}
		}
	}
}

// NVSHMEM's rows of nvlink fit the heap that they ask for, those with most tokens too.
func TestNvlinkHeap(t *testing.T) {
	withPlugins(t)
	r, err := parseRun([]string{"--suite", "nvlink"})
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := r.request(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	for _, o := range p.Outers {
		if o.Backend != "nvshmem" || o.Index > 0 {
			continue
		}
		heap, err := strconv.ParseUint(o.Config["heap"], 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		for _, pt := range o.Points {
			job, err := workloadMap()[o.Workload].Prepare(pt, o.Ranks, 1)
			if err != nil {
				t.Fatal(err)
			}
			if bytes := job.WindowBytes(); bytes > heap<<20 {
				t.Errorf("%s %s: a window of %d bytes, heap=%d MiB", o.Workload, pairs(pt), bytes, heap)
			}
			if tokens, err := strconv.Atoi(pt["tokens"]); err == nil && pt["layout"] == "expert" {
				most = max(most, tokens)
			}
		}
	}
	if most != 4096 {
		t.Errorf("rows per expert end at %d tokens, want 4096", most)
	}
}

// What the oracle believes of the floors' defaults is what the plugins declare.
func TestFloorDefaultsAreThoseOfTheFloors(t *testing.T) {
	cat := fullCatalog(t)
	for _, floor := range []string{"minigda", "miniproxy"} {
		declared := plan.Defaults(cat.infos[floor].Keys)
		checked := 0
		for k, v := range (oracle.Conditions{"backend": floor}).WithDefaults() {
			want, is := declared[k]
			if !is { // an axis of the workload, or the state of the machine
				continue
			}
			if want == "auto" && k == "order" { // the oracle's queues are in GPU memory
				want = "gpu-fence"
			}
			if k == "payload" { // the published hand-over is a single posted store
				want = "posted"
			}
			if checked++; v != want {
				t.Errorf("oracle: %s of %s is %q, the plugin says %q", k, floor, v, want)
			}
		}
		if checked < 3 {
			t.Errorf("only %d defaults of the oracle's %s were compared", checked, floor)
		}
	}
}

func TestNICProfilesAreThoseOfTheNIC(t *testing.T) {
	cat := fullCatalog(t)
	config := plan.Defaults(cat.infos["minigda"].Keys)
	for _, p := range append(slices.Clone(plan.Profiles), plan.Profile{Name: "no-such-model"}) {
		nic, err := plan.ParseNIC("soft", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		nic.Config["profile"] = p.Name
		req := plan.Request{Ranks: 2, Device: "host", NIC: nic}
		reason := cat.refusals(context.Background(), "minigda", []plan.Setup{{Config: config, NIC: nic}}, req)[0].Reason
		if known := p.Name != "no-such-model"; known != (reason == "") {
			t.Errorf("profile %s: minigda says %q", p.Name, reason)
		}
	}
}

func TestList(t *testing.T) {
	withPlugins(t)
	status, stdout, stderr := gic(t, "list")
	if status != exitOK || stderr != "" {
		t.Fatalf("status %d, stderr %q", status, stderr)
	}
	narrow(t, "gic list", stdout)
	status, text, _ := gic(t, "list", "--json")
	var l listing
	if err := json.Unmarshal([]byte(text), &l); status != exitOK || err != nil {
		t.Fatalf("status %d: %v", status, err)
	}
	var want []string
	for _, w := range l.Workloads {
		want = append(want, w.Name)
		for _, a := range w.Axes {
			want = append(want, a.Name)
		}
	}
	for _, b := range l.Backends {
		want = append(want, b.Name)
		for _, k := range b.Keys {
			want = append(want, k.Name)
		}
		if floor := strings.HasPrefix(b.Name, "mini") || b.Name == "rawstore"; floor && b.Here != ready || b.Here == "" {
			t.Errorf("backend %s here: %q", b.Name, b.Here)
		}
	}
	for _, name := range []string{"op", "rate", "goodput", "alltoall", "moe", "minigda", "miniproxy", "nvshmem", "ncclgin", "deepep", "quick", "paper", "cx7-200", "deepseek-v3"} {
		if !strings.Contains(stdout, "\n  "+name+" ") {
			t.Errorf("gic list has no %s", name)
		}
	}
	for _, name := range want {
		if !strings.Contains(stdout, "  "+name+" ") {
			t.Errorf("gic list does not show %s", name)
		}
	}
	for _, s := range l.Suites { // what --backend would pick from
		if len(s.On) != len(s.Blocks) || len(s.On[0]) == 0 {
			t.Errorf("suite %s: backends of %d blocks, of %d", s.Name, len(s.On), len(s.Blocks))
		}
	}
	if !strings.Contains(stdout, "\n    rate:threads=4\n      on minigda:qps=4,batch=16 miniproxy nvshmem") {
		t.Error("gic list does not say on what the blocks of suite quick run")
	}
	if strings.Contains(stdout, "fake") {
		t.Errorf("gic list shows the test backend")
	}
}

func TestDoctor(t *testing.T) {
	withPlugins(t)
	status, stdout, stderr := gic(t, "doctor")
	if status != exitOK || stderr != "" {
		t.Fatalf("status %d, stderr %q", status, stderr)
	}
	narrow(t, "gic doctor", stdout)
	status, text, _ := gic(t, "doctor", "--json")
	var d diagnosis
	if err := json.Unmarshal([]byte(text), &d); status != exitOK || err != nil {
		t.Fatalf("status %d: %v", status, err)
	}
	if len(d.Backends) < 5 || len(d.Checks) == 0 || d.Machine.Hostname == "" {
		t.Errorf("%d backends, %d checks, machine %q", len(d.Backends), len(d.Checks), d.Machine.Hostname)
	}
	for _, b := range d.Backends {
		if b.Ready == (b.Why != "") {
			t.Errorf("backend %s: ready %v, why %q", b.Name, b.Ready, b.Why)
		}
	}
	for _, c := range d.Checks {
		if c.State != "ok" && c.Get == "" {
			t.Errorf("check %s is %s and does not say what to do: %q", c.Name, c.State, c.Found)
		}
	}
}

// A plugin that kills its process when asked must not take gic along.
func TestPluginThatCrashes(t *testing.T) {
	cc, err := exec.LookPath("cc")
	needs(t, "a C compiler", err)
	dir := t.TempDir()
	src, so := filepath.Join(dir, "bad.c"), filepath.Join(dir, "libbad.so")
	text := "#include <signal.h>\n#include <unistd.h>\n__attribute__((constructor)) static void die(void) { kill(getpid(), SIGSEGV); }\n"
	if err := os.WriteFile(src, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-o", so, src).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	status, stdout, stderr := gic(t, "run", "--workload", "op", "--backend-path", so, "--backend", "bad")
	if status != exitUsage || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, so) || !strings.Contains(stderr, "its process died: SIGSEGV") {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}

// --backend-path alone puts a backend beside whatever runs; --backend picks, and leaves none out without a word.
func TestBackendsOfASuite(t *testing.T) {
	dir := t.TempDir()
	so, suite := filepath.Join(dir, "libmock.so"), filepath.Join(dir, "s.yaml")
	compileMock(t, so)
	text := "blocks:\n  - workload: op\n    backends: [fake]\n  - workload: rate\n    backends: [fake, minigda]\n"
	if err := os.WriteFile(suite, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv(pluginPathEnv, "")
	for _, tt := range []struct{ args, rows string }{
		{"", "op fake, rate fake, rate minigda"},
		{"--backend-path " + so, "op fake, op mock, rate fake, rate minigda, rate mock"},
		{"--backend-path " + so + " --backend mock", "op mock, rate mock"},
		{"--backend-path " + so + " --backend mock --backend minigda", "op mock, rate minigda, rate mock"},
		{"--backend minigda", "rate minigda"},
		{"--backend minigda --workload rate", "rate minigda"},
		{"--backend rawstore", "op rawstore, rate rawstore"},
	} {
		status, stdout, stderr := gic(t, append([]string{"run", "--dry-run", "--nic", "none", "--suite", suite}, strings.Fields(tt.args)...)...)
		rows := map[string]bool{}
		for line := range strings.Lines(stdout) {
			if f := strings.Fields(line); len(f) > 2 && (f[0] == "op" || f[0] == "rate") {
				rows[f[0]+" "+f[1]] = true
			}
		}
		if got := strings.Join(slices.Sorted(maps.Keys(rows)), ", "); status != exitOK || got != tt.rows {
			t.Errorf("%s: status %d, %s, want %s; stderr %q", tt.args, status, got, tt.rows, stderr)
		}
	}
	for _, tt := range []struct{ args, want string }{
		{"--suite " + suite + " --backend minigda --workload op", "suite " + suite + " has backend minigda with workload rate only, not with op"},
		{"--suite " + suite + " --backend fake --backend-path " + so, "--backend-path " + so + ": nothing asks for its backend; add --backend mock, or leave out every --backend"},
	} {
		status, stdout, stderr := gic(t, append([]string{"run", "--dry-run", "--nic", "none"}, strings.Fields(tt.args)...)...)
		if status != exitUsage || stdout != "" || stderr != "gic: "+tt.want+"\n" {
			t.Errorf("%s: status %d, stdout %q, stderr %q, want %s", tt.args, status, stdout, stderr, tt.want)
		}
	}
	// Without a suite it joins the backends that run anyway.
	status, stdout, stderr := gic(t, "run", "--dry-run", "--nic", "none", "--workload", "op", "--backend-path", so)
	if status != exitOK || !strings.Contains(stdout, " mock ") || !strings.Contains(stdout, " rawstore ") {
		t.Errorf("status %d, stderr %q:\n%s", status, stderr, stdout)
	}
}

func TestReasonsNameWhatIsNotDeclared(t *testing.T) {
	info := &backends.Info{Name: "b", Caps: backends.CapHostDevice | backends.CapNICSoft}
	tests := []struct {
		device, nic string
		inProcess   int
		want        string
	}{
		{"host", "soft", 0, ""},
		{"cuda", "soft", 0, "b does not run with device=cuda"},
		{"host", "none", 0, "b does not run with nic=none"},
		{"host", "mlx5", 0, "b does not run with nic=mlx5"},
		{"host", "soft", 2, "ranks_in_process=2: b wants a process for each rank; give each a GPU, or install nvidia-cuda-mps-control"},
	}
	for _, tt := range tests {
		if got := unserved(info, tt.device, tt.nic, tt.inProcess); got != tt.want {
			t.Errorf("unserved(%s, %s, %d) = %q, want %q", tt.device, tt.nic, tt.inProcess, got, tt.want)
		}
	}
}

// TestQuick is the main job on this machine, once.
func TestQuick(t *testing.T) {
	withPlugins(t)
	dir := filepath.Join(t.TempDir(), "out")
	status, stdout, stderr := gic(t, "run", "--repeat", "1", "--out", dir)
	if status != exitOK {
		t.Errorf("status %d, stderr %s", status, stderr)
	}
	narrow(t, "the table", stdout)
	_, cases := readRunFile(t, dir)
	rows := map[string]int{}
	for _, c := range cases {
		rows[fmt.Sprintf("%s %s %s", c.Workload, c.Backend, c.Status)]++
	}
	for _, w := range workloadList() {
		if (w == conform.Workload{}) {
			continue // in no suite
		}
		for _, floor := range []string{"minigda", "miniproxy"} {
			if rows[w.Name()+" "+floor+" ok"] == 0 {
				t.Errorf("no verified row of %s on %s: %v", w.Name(), floor, rows)
			}
		}
		for _, library := range []string{"nvshmem", "ncclgin", "deepep"} {
			if rows[w.Name()+" "+library+" skipped"]+rows[w.Name()+" "+library+" ok"] == 0 {
				t.Errorf("no row of %s on %s", w.Name(), library)
			}
		}
	}
	for _, c := range cases {
		if c.Status == record.OK && (c.Verify == nil || c.Verify.Checked == 0) {
			t.Errorf("%s on %s %s is ok without a check of its payload", c.Workload, c.Backend, pairs(c.Axes))
		}
	}
	noTraces(t)
}

// Keys that make no sense together are a usage error when nothing else is asked for.
func TestConfigurationsThatCannotBe(t *testing.T) {
	withPlugins(t)
	for _, tt := range []struct{ backend, reason string }{
		{"miniproxy:workers=8,rings=4", "workers=8 with rings=4"},
		{"miniproxy:ring_mode=shared,handoff=tuned", "a tuned ring has one producer"},
		{"miniproxy:depth=100", "depth=100: want a power of two"},
		{"minigda:depth=100", "depth=100"},
		{"minigda:batch=64,depth=64", "depth=64: batch=64"},
		{"minigda:lock=block", "lock=block with sharing=exclusive"},
		{"minigda:sharing=lock,lock=block,qps=64", "lock=block: 64 queue pairs to each of 2 ranks"},
	} {
		status, stdout, stderr := gic(t, "run", "--workload", "op", "--backend", tt.backend, "--dry-run")
		if status != exitUsage || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, tt.reason) {
			t.Errorf("%s: status %d, stdout %q, stderr %q, want one line with %q", tt.backend, status, stdout, stderr, tt.reason)
		}
		// Beside one that makes sense it is a row.
		status, stdout, stderr = gic(t, "run", "--workload", "op", "--backend", tt.backend, "--backend", "minigda", "--dry-run")
		if status != exitOK || !strings.Contains(stdout, tt.reason) {
			t.Errorf("%s beside minigda: status %d, stdout %q, stderr %q", tt.backend, status, stdout, stderr)
		}
	}
}

// Two ranks in one process do the floors' work as two processes do; a library's row says why it has none.
func TestRanksInProcess(t *testing.T) {
	withPlugins(t)
	dir := filepath.Join(t.TempDir(), "out")
	status, _, stderr := gic(t, "run", "--ranks-in-process", "2", "--repeat", "1", "--out", dir, "--backend", "minigda:sharing=exclusive|warp",
		"--backend", "miniproxy", "--backend", "nvshmem", "--device", "host",
		"--workload", "op:posts=32,rounds=2,iterations=20,warmup=2,timer_check=0", "--workload", "alltoall:iterations=5", "--workload", "conform")
	if status != exitOK {
		t.Fatalf("status %d, stderr %s", status, stderr)
	}
	header, cases := readRunFile(t, dir)
	if header.RanksInProcess != 2 {
		t.Errorf("the header says ranks_in_process=%d", header.RanksInProcess)
	}
	if header.Defaults["minigda"]["sharing"] != "exclusive" || header.AxisDefaults["op"]["places"] != "1" || header.AxisDefaults["rate"] != nil {
		t.Errorf("the header's defaults: %v, %v", header.Defaults, header.AxisDefaults)
	}
	ok := 0
	for _, c := range cases {
		switch {
		case c.Backend == "nvshmem":
			if c.Status != record.Skipped {
				t.Errorf("nvshmem: %s %s", c.Status, c.Reason)
			}
		case c.Status == record.OK && c.Verify.Checked > 0 && c.Created["ranks_in_process"] == "2":
			ok++
		case c.Status != record.Skipped:
			t.Errorf("%s on %s: %s %s, created %v", c.Workload, c.Backend, c.Status, c.Reason, c.Created)
		}
	}
	if ok < 8 {
		t.Errorf("%d rows are ok", ok)
	}
	noTraces(t)

	status, stdout, stderr := gic(t, "run", "--ranks-in-process", "3", "--dry-run")
	if want := "gic: --ranks-in-process 3 with 2 ranks; allowed: 1..2\n"; status != exitUsage || stdout != "" || stderr != want {
		t.Errorf("status %d, stdout %q, stderr %q, want %q", status, stdout, stderr, want)
	}
}

// A point over many places is one record of all of them: each checked, every queue met.
func TestPlaces(t *testing.T) {
	withPlugins(t)
	dir := filepath.Join(t.TempDir(), "out")
	status, _, stderr := gic(t, "run", "--repeat", "1", "--out", dir, "--device", "host", "--backend", "minigda:qps=3", "--backend", "miniproxy",
		"--workload", "op:places=6,posts=32,rounds=2,iterations=5,warmup=2,timer_check=0", "--workload", "rate:places=6,messages=32",
		"--workload", "rate:first_qp=2,messages=32", "--workload", "rate:first_qp=3,messages=32")
	if status != exitOK {
		t.Fatalf("status %d, stderr %s", status, stderr)
	}
	_, cases := readRunFile(t, dir)
	if len(cases) != 8 {
		t.Fatalf("%d records", len(cases))
	}
	for _, c := range cases {
		name := c.Workload + " on " + c.Backend + " first_qp=" + c.Axes["first_qp"] + " places=" + c.Axes["places"]
		used := int64(-1)
		for _, k := range c.Counters {
			if k.Name == "qps_used" {
				used = int64(k.Value)
			}
		}
		switch {
		case c.Axes["first_qp"] == "3" || c.Axes["first_qp"] == "2" && c.Backend == "miniproxy":
			want := map[string]string{"minigda": "first_qp=3: there are 3 to a peer", "miniproxy": "first_qp=" + c.Axes["first_qp"] + ": here agents do not choose their queue"}[c.Backend]
			if c.Status != record.Skipped || c.Reason != want {
				t.Errorf("%s: %s %q, want %q", name, c.Status, c.Reason, want)
			}
			continue
		case c.Status != record.OK:
			t.Errorf("%s: %s %s", name, c.Status, c.Reason)
			continue
		case c.Axes["places"] == "6":
			if n := c.Metrics[0].N; n != 6 || len(c.Metrics[0].Samples) != 6 {
				t.Errorf("%s: %d values of %s", name, n, c.Metrics[0].Name)
			}
		}
		if c.Backend != "minigda" {
			continue
		}
		var want any
		queues := int64(2) // of both ranks
		if c.Axes["places"] == "6" {
			want, queues = []any{0., 1., 2., 0., 1., 2.}, 6
		}
		if d := gocmp.Diff(want, c.Facts["place_queue"]); d != "" || used != queues {
			t.Errorf("%s: %d QPs used, want %d; queues (-want +got):\n%s", name, used, queues, d)
		}
	}
}

// Axes and keys that are each allowed but make no sense together are rows with their reason, not failures.
func TestCombinationsThatCannotBe(t *testing.T) {
	withPlugins(t)
	for _, tt := range []struct{ workload, backend, reason string }{
		{"rate:threads=8,messages=64", "minigda:qps=2", "8 device threads but qps=2"},
		{"rate:threads=8,messages=64", "minigda:sharing=warp", "not a positive multiple of the 32 lanes"},
		{"rate:threads=8,messages=64", "miniproxy:rings=2", "8 device threads for rings=2"},
	} {
		dir := filepath.Join(t.TempDir(), "out")
		status, _, stderr := gic(t, "run", "--workload", tt.workload, "--backend", tt.backend, "--repeat", "1", "--out", dir)
		if status != exitOK {
			t.Errorf("%s on %s: status %d, stderr %s", tt.workload, tt.backend, status, stderr)
			continue
		}
		if _, cases := readRunFile(t, dir); len(cases) != 1 || cases[0].Status != record.Skipped || !strings.Contains(cases[0].Reason, tt.reason) {
			t.Errorf("%s on %s: %+v, want skipped: %s", tt.workload, tt.backend, cases[0], tt.reason)
		}
	}
}
