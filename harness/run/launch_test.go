package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gic/harness/record"
)

func TestDiscover(t *testing.T) {
	parent := fmt.Sprintf("parent %d", os.Getppid())
	for _, tc := range []struct {
		name, env string
		want      Launch
		ok        bool
		err       string
	}{
		{"nothing", "HOME=/", Launch{Kind: "local", Size: 1, LocalRank: -1}, false, ""},
		{"open mpi", "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=55@1 PMIX_RANK=2",
			Launch{Kind: "mpirun", Rank: 2, Size: 4, LocalRank: 0, LocalSize: 2, JobID: "mpirun 55@1"}, true, ""},
		{"open mpi inside a slurm allocation", "SLURM_JOB_ID=9 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2 OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=8",
			Launch{Kind: "mpirun", Rank: 5, Size: 8, LocalRank: -1, JobID: "mpirun " + parent}, true, ""},
		{"one process of mpirun", "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1",
			Launch{Kind: "mpirun", Size: 1, LocalRank: -1, JobID: "mpirun " + parent}, false, ""},
		{"srun", "SLURM_JOB_ID=9 SLURM_STEP_ID=3 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_NTASKS=6 SLURM_LOCALID=1 SLURM_STEP_NUM_NODES=1",
			Launch{Kind: "srun", Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, JobID: "srun 9.3"}, true, ""},
		{"srun with pmi", "SLURM_JOB_ID=9 SLURM_STEP_ID=3 SLURM_PROCID=1 SLURM_NTASKS=2 PMI_RANK=1 PMI_SIZE=2",
			Launch{Kind: "srun", Rank: 1, Size: 2, LocalRank: -1, JobID: "srun 9.3"}, true, ""},
		{"shell of an allocation", "SLURM_JOB_ID=9 SLURM_NTASKS=4 SLURM_PROCID=0", Launch{Kind: "local", Size: 1, LocalRank: -1}, false, ""},
		{"batch script", "SLURM_JOB_ID=9 SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_STEP_ID=4294967291", Launch{Kind: "local", Size: 1, LocalRank: -1}, false, ""},
		{"interactive step", "SLURM_JOB_ID=9 SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_STEP_ID=4294967290 SLURM_STEP_NUM_TASKS=1", Launch{Kind: "local", Size: 1, LocalRank: -1}, false, ""},
		{"shell started by srun", "SLURM_JOB_ID=9 SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1",
			Launch{Kind: "srun", Size: 1, LocalRank: -1, JobID: "srun 9.0"}, false, ""},
		{"torchrun", "RANK=9 WORLD_SIZE=16 LOCAL_RANK=1 LOCAL_WORLD_SIZE=8 MASTER_ADDR=n0 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=x TORCHELASTIC_RESTART_COUNT=0",
			Launch{Kind: "torchrun", Rank: 9, Size: 16, LocalRank: 1, LocalSize: 8, JobID: "torchrun x n0 29500 0", Master: "n0:29501"}, true, ""},
		{"torchrun under mpirun, one per host", "RANK=9 WORLD_SIZE=16 TORCHELASTIC_RUN_ID=x OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 MASTER_ADDR=::1 MASTER_PORT=1",
			Launch{Kind: "torchrun", Rank: 9, Size: 16, LocalRank: -1, JobID: "torchrun x ::1 1", Master: "[::1]:2"}, true, ""},
		{"hydra", "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", Launch{Kind: "mpirun", Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, JobID: "mpirun " + parent}, true, ""},

		{"left-over RANK", "RANK=0 WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", Launch{}, false, "RANK=0 of 2 contradicts OMPI_COMM_WORLD_RANK=1"},
		{"two worlds", "RANK=0 WORLD_SIZE=8 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2", Launch{}, false, "contradicts"},
		{"pmix differs", "PMIX_RANK=0 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", Launch{}, false, "PMIX_RANK=0 contradicts OMPI_COMM_WORLD_RANK=1"},
		{"pmix alone", "PMIX_RANK=0", Launch{}, false, "no variable gives the number of ranks"},
		{"no size", "OMPI_COMM_WORLD_RANK=1", Launch{}, false, "OMPI_COMM_WORLD_SIZE is not set beside OMPI_COMM_WORLD_RANK"},
		{"no rank", "WORLD_SIZE=2", Launch{}, false, "RANK is not set beside WORLD_SIZE"},
		{"rank too large", "PMI_RANK=2 PMI_SIZE=2", Launch{}, false, "PMI_RANK=2 is not below PMI_SIZE=2"},
		{"no number", "PMI_RANK=a PMI_SIZE=2", Launch{}, false, "PMI_RANK=a is not an integer of at least 0"},
		{"negative", "PMI_RANK=-1 PMI_SIZE=2", Launch{}, false, "PMI_RANK=-1 is not an integer of at least 0"},
		{"local does not fit", "PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=3 MPI_LOCALNRANKS=2", Launch{}, false, "do not fit PMI_SIZE=2"},
		{"bad port", "RANK=0 WORLD_SIZE=2 MASTER_ADDR=n0 MASTER_PORT=65535", Launch{}, false, "MASTER_PORT=65535 is not a port"},
	} {
		got, ok, err := Discover(strings.Fields(tc.env))
		if tc.err != "" {
			if err == nil || !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), tc.err) || ok {
				t.Errorf("%s: error %v, want %q", tc.name, err, tc.err)
			}
			continue
		}
		if d := cmp.Diff(tc.want, got); d != "" || ok != tc.ok || err != nil {
			t.Errorf("%s: ok %v, error %v (-want +got):\n%s", tc.name, ok, err, d)
		}
	}
}

// launched is n processes of the test binary as a launcher would start them.
type launched struct {
	cmds []*exec.Cmd
	out  []*bytes.Buffer
	err  []*bytes.Buffer
	file string // agent 0's records
	tmp  string
}

// launch starts the processes; env gives the variables of a rank. A nil element leaves that rank out.
func launch(t *testing.T, n int, env func(rank int) []string) *launched {
	t.Helper()
	l := &launched{tmp: t.TempDir()}
	l.file = filepath.Join(l.tmp, "records")
	var base []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "GIC_") && !strings.HasPrefix(kv, "SLURM_") && !strings.HasPrefix(kv, "OMPI_") {
			base = append(base, kv)
		}
	}
	for r := range n {
		vars := env(r)
		cmd := exec.Command("/proc/self/exe", "gic-run", l.file)
		cmd.Env = append(append([]string{}, base...), append(vars, "TMPDIR="+l.tmp)...)
		out, errs := &bytes.Buffer{}, &bytes.Buffer{}
		cmd.Stdout, cmd.Stderr = out, errs
		cmd.WaitDelay = time.Second
		l.cmds, l.out, l.err = append(l.cmds, cmd), append(l.out, out), append(l.err, errs)
		if vars == nil {
			l.cmds[r] = nil
			continue
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, c := range l.cmds {
			if c != nil && c.ProcessState == nil {
				_ = c.Process.Kill()
				_ = c.Wait()
			}
		}
	})
	return l
}

// wait waits for all; texts of errors by rank, "" for success.
func (l *launched) wait(t *testing.T) []string {
	t.Helper()
	errs := make([]string, len(l.cmds))
	for r, c := range l.cmds {
		if c == nil {
			continue
		}
		if err := c.Wait(); err != nil {
			errs[r] = strings.TrimSpace(l.err[r].String()) + " (" + err.Error() + ")"
		}
		if s := l.out[r].String(); s != "" {
			t.Errorf("rank %d printed %q", r, s)
		}
	}
	return errs
}

func (l *launched) records(t *testing.T) []record.Case {
	t.Helper()
	b, err := os.ReadFile(l.file)
	if err != nil {
		t.Fatal(err)
	}
	var out []record.Case
	for line := range strings.Lines(string(b)) {
		var c record.Case
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}

func ompi(rank, size int) []string {
	return []string{fmt.Sprintf("OMPI_COMM_WORLD_RANK=%d", rank), fmt.Sprintf("OMPI_COMM_WORLD_SIZE=%d", size),
		fmt.Sprintf("OMPI_COMM_WORLD_LOCAL_RANK=%d", rank), fmt.Sprintf("OMPI_COMM_WORLD_LOCAL_SIZE=%d", size), "PMIX_NAMESPACE=test"}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func TestLaunchers(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	tokenFile := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		env  func(rank int) []string
	}{
		{"mpirun", func(r int) []string { return ompi(r, 3) }},
		{"srun", func(r int) []string {
			return []string{"SLURM_JOB_ID=1", "SLURM_STEP_ID=0", fmt.Sprint("SLURM_PROCID=", r), "SLURM_STEP_NUM_TASKS=3", "SLURM_STEP_NUM_NODES=1"}
		}},
		{"torchrun", func(r int) []string {
			return []string{fmt.Sprint("RANK=", r), "WORLD_SIZE=3", fmt.Sprint("LOCAL_RANK=", r), "LOCAL_WORLD_SIZE=3",
				"MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=none"}
		}},
		{"mpirun with an address and a token", func(r int) []string {
			return append(ompi(r, 3), fmt.Sprint("GIC_RENDEZVOUS=127.0.0.1:", port), "GIC_TOKEN_FILE="+tokenFile, "GIC_SOCKET_IFNAME=lo")
		}},
	} {
		l := launch(t, 3, tc.env)
		for r, e := range l.wait(t) {
			if e != "" {
				t.Errorf("%s: rank %d: %s", tc.name, r, e)
			}
		}
		got := l.records(t)
		if len(got) != 2 || got[0].Status != record.OK || got[1].Status != record.OK || got[0].Ranks != 3 {
			t.Errorf("%s: %+v", tc.name, got)
		}
		if left, _ := filepath.Glob(filepath.Join(l.tmp, "*gic-*")); len(left) > 0 {
			t.Errorf("%s: left behind: %v", tc.name, left)
		}
	}
}

func TestLaunchedRankFails(t *testing.T) {
	t.Parallel()
	l := launch(t, 2, func(r int) []string {
		return append(ompi(r, 2), "TEST_CONFIG=fault=crash,fault_rank=1,fault_when=size:8")
	})
	if errs := l.wait(t); errs[0] != "" || errs[1] != "" {
		t.Errorf("%q", errs)
	}
	got := l.records(t)
	if len(got) != 2 || got[0].Status != record.Failed || !strings.Contains(got[0].Reason, "rank 1 ended in run: signal SIGKILL") ||
		!strings.Contains(got[0].Reason, "fake: crash in run") || got[1].Status != record.OK {
		t.Errorf("%+v", got)
	}
}

func TestMissingRankIsNamed(t *testing.T) {
	t.Parallel()
	l := launch(t, 4, func(r int) []string {
		if r == 2 {
			return nil
		}
		return append(ompi(r, 4), "TEST_TIMEOUT=2s")
	})
	errs := l.wait(t)
	if !strings.Contains(errs[0], "rank 2 of 4 did not connect") {
		t.Errorf("rank 0: %q", errs[0])
	}
	for _, r := range []int{1, 3} {
		if !strings.Contains(errs[r], "rank 0 is lost") && errs[r] != "" {
			t.Errorf("rank %d: %q", r, errs[r])
		}
	}
}

func TestDifferentWorldsAreRefused(t *testing.T) {
	t.Parallel()
	l := launch(t, 2, func(r int) []string { return ompi(r, 2+r) }) // rank 1 believes in 3 ranks
	errs := l.wait(t)
	want := "rank 1 was told of 3 ranks, rank 0 of 2"
	if !strings.Contains(errs[0], want) || !strings.Contains(errs[1], want) {
		t.Errorf("%q", errs)
	}
}

func TestWrongTokenIsRefused(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	l := launch(t, 2, func(r int) []string {
		return append(ompi(r, 2), fmt.Sprint("GIC_RENDEZVOUS=127.0.0.1:", port), fmt.Sprint("GIC_TOKEN=secret", r), "TEST_TIMEOUT=5s")
	})
	errs := l.wait(t)
	if !strings.Contains(errs[0], "rank 1 of 2 did not connect") || !strings.Contains(errs[1], "token refused: GIC_TOKEN") {
		t.Errorf("%q", errs)
	}
}

func TestAgentsEndWithRankZero(t *testing.T) {
	t.Parallel()
	l := launch(t, 2, func(r int) []string { return append(ompi(r, 2), "TEST_CONFIG=fault=hang-deaf,fault_rank=1") })
	// Rank 1's process is there when its agent has a child.
	agent := l.cmds[1].Process.Pid
	deadline := time.Now().Add(time.Minute)
	for len(childrenOf(agent)) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("rank 1 was not started")
		}
		time.Sleep(time.Millisecond)
	}
	ranks := childrenOf(agent)
	if err := l.cmds[0].Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	errs := l.wait(t)
	if !strings.Contains(errs[1], "rank 0 is lost") {
		t.Errorf("agent 1: %q", errs[1])
	}
	for _, pid := range ranks {
		if syscall.Kill(pid, 0) == nil {
			t.Errorf("rank process %d outlived its agent", pid)
		}
	}
	removeStale() // what the killed coordinator has left
}

func TestMeeting(t *testing.T) {
	for _, tc := range []struct {
		name string
		l    Launch
		rv   Rendezvous
		want meeting
		file bool
		err  string
	}{
		{"one host", Launch{Size: 2, LocalSize: 2}, Rendezvous{}, meeting{}, true, ""},
		{"unknown hosts", Launch{Size: 2}, Rendezvous{}, meeting{}, true, ""},
		{"one host, address", Launch{Size: 2, LocalSize: 2}, Rendezvous{Address: "h:1"}, meeting{address: "h:1"}, true, ""},
		{"all given", Launch{Size: 2}, Rendezvous{Address: "h:1", Token: "t"}, meeting{address: "h:1", token: "t"}, false, ""},
		{"hosts, torchrun", Launch{Size: 4, LocalSize: 2, Master: "n0:29501"}, Rendezvous{Token: "t"}, meeting{address: "n0:29501", token: "t"}, false, ""},
		{"one host, torchrun", Launch{Size: 2, LocalSize: 2, Master: "n0:29501"}, Rendezvous{}, meeting{}, true, ""},
		{"hosts, no address", Launch{Size: 4, LocalSize: 2}, Rendezvous{Token: "t"}, meeting{}, false, "2 of 4 ranks are on this host: give the address"},
		{"hosts, no token", Launch{Size: 4, LocalSize: 2}, Rendezvous{Address: "h:1"}, meeting{}, false, "give all hosts the same GIC_TOKEN"},
		{"no port", Launch{Size: 2}, Rendezvous{Address: "h"}, meeting{}, false, "rendezvous h is not HOST:PORT"},
		{"port 0", Launch{Size: 2}, Rendezvous{Address: "h:0"}, meeting{}, false, "rendezvous h:0 is not HOST:PORT"},
	} {
		m, err := tc.rv.meeting(tc.l)
		if tc.err != "" {
			if !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: error %v, want %q", tc.name, err, tc.err)
			}
			continue
		}
		if err != nil || m.address != tc.want.address || m.token != tc.want.token || (m.file != "") != tc.file {
			t.Errorf("%s: %+v, error %v", tc.name, m, err)
		}
	}
}

func TestCardIsPrivate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "card")
	want := card{Address: "a:1", Token: "t", Size: 2}
	for range 2 { // over an older one too
		if err := writeCard(path, want); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := readCard(path); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := readCard(link); err == nil {
		t.Error("a link was followed")
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readCard(path); err == nil {
		t.Error("a file that others can read was trusted")
	}
}

func TestRendezvousFromEnv(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("  \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for env, want := range map[string]string{
		"GIC_RENDEZVOUS=host":      "rendezvous host is not HOST:PORT",
		"GIC_TOKEN_FILE=/no/where": "read GIC_TOKEN_FILE",
		"GIC_TOKEN_FILE=" + file:   "is empty",
	} {
		if _, err := RendezvousFromEnv([]string{env}); !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", env, err)
		}
	}
	rv := Rendezvous{Interface: "nosuch0"}
	if _, err := rv.listenAddress(meeting{}, true); !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "there are: ") {
		t.Errorf("unknown interface: %v", err)
	}
}

// Every kind of trouble of a handshake ends it on both sides.
func TestHandshake(t *testing.T) {
	t.Parallel()
	pair := func(server, client func(net.Conn) error) (error, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		var serr, cerr error
		var wg sync.WaitGroup
		wg.Go(func() {
			c, err := l.Accept()
			if err != nil {
				serr = err
				return
			}
			defer c.Close()
			serr = server(c)
		})
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		cerr = client(c)
		c.Close()
		wg.Wait()
		return serr, cerr
	}
	with := func(token string, server bool) func(net.Conn) error {
		return func(c net.Conn) error { return prove(c, token, server) }
	}
	if s, c := pair(with("a", true), with("a", false)); s != nil || c != nil {
		t.Errorf("same token: %v, %v", s, c)
	}
	if s, c := pair(with("a", true), with("b", false)); !errors.Is(s, errRefused) || !errors.Is(c, errRefused) {
		t.Errorf("different tokens: %v, %v", s, c)
	}
	// A server that does not know the token cannot pass for one that does.
	impostor := func(c net.Conn) error {
		buf := make([]byte, len(wireMagic)+nonceBytes)
		if _, err := c.Read(buf); err != nil {
			return err
		}
		_, err := c.Write(append(buf, bytes.Repeat([]byte{1}, 33)...))
		return err
	}
	if _, c := pair(impostor, with("a", false)); !errors.Is(c, errRefused) {
		t.Errorf("impostor: %v", c)
	}
	if s, _ := pair(with("a", true), func(c net.Conn) error {
		_, err := c.Write(bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 4))
		return err
	}); s == nil || !strings.Contains(s.Error(), "not a gic") {
		t.Errorf("another protocol: %v", s)
	}
}

func TestGatherEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l := Launch{Kind: "mpirun", Size: 2, LocalSize: 2, JobID: t.Name()}
	if _, err := Gather(ctx, l, Rendezvous{}); !errors.Is(err, context.Canceled) {
		t.Errorf("gather: %v", err)
	}
	l.Rank = 1
	if err := Serve(ctx, l, Rendezvous{}); !errors.Is(err, context.Canceled) {
		t.Errorf("serve: %v", err)
	}
}
