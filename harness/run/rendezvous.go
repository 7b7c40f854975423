package run

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"gic/harness/record"
)

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

// pollInterval is how often an agent looks for agent 0 while they meet, once per run.
const pollInterval = 10 * time.Millisecond

// departTimeout is how long an interrupted agent waits for agent 0, which is most likely interrupted too.
const departTimeout = 5 * time.Second

// RendezvousFromEnv fills a Rendezvous from GIC_RENDEZVOUS, GIC_SOCKET_IFNAME, GIC_TOKEN and GIC_TOKEN_FILE.
func RendezvousFromEnv(environ []string) (Rendezvous, error) {
	env := envMap(environ)
	rv := Rendezvous{Address: env["GIC_RENDEZVOUS"], Interface: env["GIC_SOCKET_IFNAME"], Token: env["GIC_TOKEN"]}
	if path := env["GIC_TOKEN_FILE"]; path != "" && rv.Token == "" {
		b, err := os.ReadFile(path)
		if err != nil {
			return rv, fmt.Errorf("%w: read GIC_TOKEN_FILE: %w", ErrUsage, err)
		}
		if rv.Token = strings.TrimSpace(string(b)); rv.Token == "" {
			return rv, fmt.Errorf("%w: GIC_TOKEN_FILE=%s is empty", ErrUsage, path)
		}
	}
	if rv.Address != "" {
		if _, _, err := net.SplitHostPort(rv.Address); err != nil {
			return rv, fmt.Errorf("%w: rendezvous %s is not HOST:PORT", ErrUsage, rv.Address)
		}
	}
	return rv, nil
}

// meeting is a Rendezvous made concrete for a launch.
type meeting struct {
	address string // fixed address of agent 0; "" when the file tells it
	token   string // "" when the file tells it
	file    string // "" when neither is needed
	timeout time.Duration
}

func (rv *Rendezvous) meeting(l Launch) (meeting, error) {
	m := meeting{address: rv.Address, token: rv.Token, timeout: rv.Timeout}
	if m.timeout <= 0 {
		m.timeout = DefaultTimeout
	}
	if m.address != "" {
		host, port, err := net.SplitHostPort(m.address)
		if err != nil || host == "" || port == "" || port == "0" {
			return m, fmt.Errorf("%w: rendezvous %s is not HOST:PORT", ErrUsage, m.address)
		}
	}
	oneHost := l.LocalSize == l.Size
	if l.LocalSize > 0 && !oneHost {
		if m.address == "" {
			m.address = l.Master
		}
		if m.address == "" {
			return m, fmt.Errorf("%w: %d of %d ranks are on this host: give the address of rank 0 as --rendezvous HOST:PORT or GIC_RENDEZVOUS", ErrUsage, l.LocalSize, l.Size)
		}
		if m.token == "" {
			return m, fmt.Errorf("%w: %d of %d ranks are on this host: give all hosts the same GIC_TOKEN or GIC_TOKEN_FILE", ErrUsage, l.LocalSize, l.Size)
		}
	}
	if m.address == "" || m.token == "" {
		sum := sha256.Sum256([]byte(l.JobID))
		m.file = filepath.Join(os.TempDir(), fmt.Sprintf("gic-%d-%x.rendezvous", os.Getuid(), sum[:8]))
	}
	return m, nil
}

// card is the content of the rendezvous file.
type card struct {
	Address string `json:"address"`
	Token   string `json:"token"`
	Size    int    `json:"size"`
}

// writeCard makes the file in one step, readable by this user only.
func writeCard(path string, c card) error {
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".gic-*") // mode 0600, never an existing file
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// readCard trusts only a plain file of this user's that nobody else can read or write: the folder is everybody's.
func readCard(path string) (card, error) {
	var c card
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return c, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return c, err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || !st.Mode().IsRegular() || int(sys.Uid) != os.Getuid() || st.Mode().Perm()&0o077 != 0 {
		return c, fmt.Errorf("%s is not a private file of this user", path)
	}
	err = json.NewDecoder(f).Decode(&c)
	return c, err
}

// listenAddress is where agent 0 listens: at the interface or address asked for, else at loopback.
func (rv *Rendezvous) listenAddress(m meeting, oneHost bool) (string, error) {
	host, port := "127.0.0.1", "0"
	if m.address != "" {
		host, port, _ = net.SplitHostPort(m.address)
		// Many systems resolve their own name to loopback, where other hosts cannot come.
		if ip, err := net.ResolveIPAddr("ip", host); err == nil && ip.IP.IsLoopback() && !oneHost {
			host = ""
		}
	}
	if rv.Interface == "" {
		return net.JoinHostPort(host, port), nil
	}
	ifi, err := net.InterfaceByName(rv.Interface)
	if err != nil {
		var known []string
		all, _ := net.Interfaces()
		for _, i := range all {
			known = append(known, i.Name)
		}
		return "", fmt.Errorf("%w: GIC_SOCKET_IFNAME=%s is no network interface; there are: %s", ErrUsage, rv.Interface, strings.Join(known, ", "))
	}
	addrs, err := ifi.Addrs()
	if err != nil {
		return "", fmt.Errorf("addresses of %s: %w", rv.Interface, err)
	}
	best := ""
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() && (best == "" || n.IP.To4() != nil) {
			best = n.IP.String()
		}
	}
	if best == "" {
		return "", fmt.Errorf("%w: GIC_SOCKET_IFNAME=%s has no address", ErrUsage, rv.Interface)
	}
	return net.JoinHostPort(best, port), nil
}

// Gather is agent 0's cluster: it waits until every other agent has connected.
func Gather(ctx context.Context, l Launch, rv Rendezvous) (*Cluster, error) {
	m, err := rv.meeting(l)
	if err != nil {
		return nil, err
	}
	binding := unbind(os.Environ())
	listen, err := rv.listenAddress(m, l.LocalSize == l.Size)
	if err != nil {
		return nil, err
	}
	token := m.token
	if token == "" {
		token = newToken()
	}
	names, err := newJobNames()
	if err != nil {
		return nil, err
	}
	arrivals := make(chan *arrival, 2*l.Size)
	h, err := newHub(listen, token, arrivals)
	if err != nil {
		names.close()
		return nil, err
	}
	if m.file != "" {
		if err := writeCard(m.file, card{Address: h.address, Token: token, Size: l.Size}); err != nil {
			h.close()
			names.close()
			return nil, fmt.Errorf("write rendezvous file: %w", err)
		}
		// Once all have come nobody needs it, and a later run of the same launch must not find it.
		defer os.Remove(m.file)
	}
	own := hostID()
	c := &Cluster{kind: l.Kind, hub: h, names: names, binding: binding, agents: make([]agent, l.Size)}
	c.agents[0] = newLocalAgent(own)
	hellos, err := c.meet(ctx, l, m, arrivals)
	if err != nil {
		for _, a := range c.agents {
			if a != nil {
				a.close()
			}
		}
		h.close()
		names.close()
		return nil, err
	}
	c.hosts = otherHosts(hellos, own)
	return c, nil
}

// meet takes in the agents as they come, in any order.
func (c *Cluster) meet(ctx context.Context, l Launch, m meeting, arrivals <-chan *arrival) ([]hello, error) {
	hellos := make([]hello, l.Size)
	deadline := time.NewTimer(m.timeout)
	defer deadline.Stop()
	for missing := l.Size - 1; missing > 0; missing-- {
		select {
		case a := <-arrivals:
			refuse := ""
			switch {
			case a.h.Size != l.Size:
				refuse = fmt.Sprintf("rank %d was told of %d ranks, rank 0 of %d", a.h.Rank, a.h.Size, l.Size)
			case a.h.Rank < 1 || a.h.Rank >= l.Size:
				refuse = fmt.Sprintf("rank %d is not in 1..%d", a.h.Rank, l.Size-1)
			case c.agents[a.h.Rank] != nil:
				refuse = fmt.Sprintf("rank %d came twice", a.h.Rank)
			}
			if refuse != "" {
				_ = a.c.send(message{Refuse: refuse})
				a.c.close()
				return nil, fmt.Errorf("%w: %s", ErrUsage, refuse)
			}
			c.agents[a.h.Rank] = newRemoteAgent(*a)
			hellos[a.h.Rank] = a.h
		case <-deadline.C:
			var absent []string
			for r := 1; r < l.Size; r++ {
				if c.agents[r] == nil {
					absent = append(absent, fmt.Sprint(r))
				}
			}
			return nil, fmt.Errorf("rank %s of %d did not connect to %s within %v%s",
				strings.Join(absent, ", "), l.Size, c.hub.address, m.timeout, severalHosts(m))
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return hellos, nil
}

// Serve is the whole work of an agent that is not agent 0. It returns nil when agent 0 has finished, and an
// error when agent 0 is lost or ctx ends; its processes are gone by then. It prints nothing.
func Serve(ctx context.Context, l Launch, rv Rendezvous) error {
	m, err := rv.meeting(l)
	if err != nil {
		return err
	}
	h := hello{Agent: true, Rank: l.Rank, Size: l.Size, Host: hostID()}
	h.Hostname, _ = os.Hostname()
	binding := unbind(os.Environ())
	if rv.Machine != nil {
		if h.Machine, err = json.Marshal(rv.Machine()); err != nil {
			return fmt.Errorf("describe machine: %w", err)
		}
	}
	c, at, err := m.join(ctx, h)
	if err != nil {
		return err
	}
	defer c.close()
	return serveAgent(ctx, c, newLocalAgent(h.Host), startOrder{Address: at.Address, Token: at.Token, Binding: binding})
}

// join looks for agent 0 until it answers. A file of an earlier launch leads nowhere, or to one that refuses:
// with a file every error is tried again until the deadline; with a given token a refusal is final.
func (m *meeting) join(ctx context.Context, h hello) (*conn, card, error) {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		address, token, err := m.address, m.token, error(nil)
		if m.file != "" {
			var cd card
			if cd, err = readCard(m.file); err == nil {
				if address == "" {
					address = cd.Address
				}
				if token == "" {
					token = cd.Token
				}
			}
		}
		if err == nil {
			var c *conn
			if c, err = dial(address, token, h); err == nil {
				return c, card{Address: address, Token: token}, nil
			}
			if errors.Is(err, errRefused) && m.token != "" {
				return nil, card{}, fmt.Errorf("rank %d: %w: GIC_TOKEN or GIC_TOKEN_FILE differs from rank 0's", h.Rank, err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				return nil, card{}, fmt.Errorf("rank %d did not find rank 0 within %v%s: %w", h.Rank, m.timeout, severalHosts(*m), err)
			}
			return nil, card{}, context.Cause(ctx)
		}
	}
}

// severalHosts is a hint for a meeting through a file, which hosts do not share.
func severalHosts(m meeting) string {
	if m.file == "" {
		return ""
	}
	return " (ranks on several hosts need --rendezvous HOST:PORT, or GIC_RENDEZVOUS, and the same GIC_TOKEN)"
}

// serveAgent carries out agent 0's orders until told to finish. Its rank processes go where it went itself.
func serveAgent(ctx context.Context, c *conn, local *localAgent, own startOrder) error {
	// A launcher signals all its processes at once, and kills the rest soon after the first has gone. So the
	// agent stays for the coordinator to stop the ranks and finish, and goes by itself only if it does not.
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(departTimeout, c.close) })
	defer stop()
	jobs := map[string]bool{}
	exits := make(chan exit, 16)
	defer func() {
		// Nothing survives the agent: processes first, then what they shared.
		local.killAll()
		for range len(jobs) {
			e := <-exits
			local.clean(e.Job)
		}
	}()
	msgs := make(chan message)
	lost := make(chan error, 1)
	quit := make(chan struct{})
	defer close(quit)
	go func() {
		for {
			m, err := c.recv()
			if err != nil {
				lost <- err
				return
			}
			select {
			case msgs <- m:
			case <-quit:
				return
			}
		}
	}()
	for {
		select {
		case err := <-lost:
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("rank 0 is lost: %w", err)
		case e := <-exits:
			delete(jobs, e.Job)
			_ = c.send(message{Exit: &e})
		case m := <-msgs:
			switch {
			case m.Finish:
				return context.Cause(ctx)
			case m.Refuse != "":
				return fmt.Errorf("%w: %s", ErrUsage, m.Refuse)
			case m.Start != nil:
				m.Start.Address, m.Start.Token, m.Start.Binding = own.Address, own.Token, own.Binding
				if err := local.start(*m.Start, func(e exit) { exits <- e }); err != nil {
					_ = c.send(message{Exit: &exit{Job: m.Start.Job, Rank: m.Start.Rank, Status: err.Error()}})
				} else {
					jobs[m.Start.Job] = true
				}
			case m.Kill != "":
				local.kill(m.Kill)
			case m.Clean != "":
				local.clean(m.Clean)
			}
		}
	}
}

// killAll ends every process group.
func (a *localAgent) killAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, pid := range a.running {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
}
