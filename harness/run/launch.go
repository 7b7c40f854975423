package run

import (
	"context"
	"errors"
	"time"

	"gic/harness/record"
)

// Launch is what a launcher told this process.
type Launch struct {
	Kind                 string // mpirun, srun, torchrun
	Rank, Size           int
	LocalRank, LocalSize int    // -1 and 0 when the launcher does not say
	JobID                string // same for all ranks of the launch and for no other
}

// Discover reads the launcher's environment (os.Environ form). ok is false without a launcher, and when it
// started a single process: then gic starts its own ranks. Variables that contradict each other are an error.
func Discover(environ []string) (l Launch, ok bool, err error) { return Launch{}, false, nil }

// Rendezvous says how the processes of a launch find and trust each other. The zero value is right on one host.
type Rendezvous struct {
	// Address is HOST:PORT of agent 0 (--rendezvous, GIC_RENDEZVOUS). Needed when a launch spans hosts, except
	// under torchrun, which names MASTER_ADDR: there MASTER_PORT+1 is used.
	Address string
	// Interface limits agent 0 to the address of this network interface (GIC_SOCKET_IFNAME).
	Interface string
	// Token proves that a process belongs (GIC_TOKEN, or the content of the file GIC_TOKEN_FILE). Without one,
	// the processes of one host exchange a random one through a private file.
	Token string
	// Timeout bounds the meeting; 0 is 60 s.
	Timeout time.Duration
	// Machine describes the host of an agent that is not agent 0, for record.Header.Hosts; may be nil.
	Machine func() record.Machine
}

// RendezvousFromEnv fills a Rendezvous from GIC_RENDEZVOUS, GIC_SOCKET_IFNAME, GIC_TOKEN and GIC_TOKEN_FILE.
func RendezvousFromEnv(environ []string) (Rendezvous, error) { return Rendezvous{}, nil }

// Cluster is the agents of a run, one per rank, and the listener at which their rank processes meet.
type Cluster struct{}

// Local is a cluster of n ranks on this machine.
func Local(n int) (*Cluster, error) { return nil, errors.New("run: not built yet") }

// Gather is agent 0's cluster: it waits until every other agent has connected.
func Gather(ctx context.Context, l Launch, rv Rendezvous) (*Cluster, error) {
	return nil, errors.New("run: not built yet")
}

// Serve is the whole work of an agent that is not agent 0. It returns nil when agent 0 has finished, and an
// error when agent 0 is lost. It prints nothing.
func Serve(ctx context.Context, l Launch, rv Rendezvous) error {
	return errors.New("run: not built yet")
}

// Size is the number of ranks.
func (c *Cluster) Size() int { return 0 }

// Kind is local, mpirun, srun or torchrun: record.Header.Launch.
func (c *Cluster) Kind() string { return "local" }

// Hosts are the machines of the hosts other than this one.
func (c *Cluster) Hosts() []record.Machine { return nil }

// Close ends the agents.
func (c *Cluster) Close() error { return nil }
