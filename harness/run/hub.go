package run

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// hub is where rank processes and agents connect: one listener for a whole run.
type hub struct {
	l       net.Listener
	token   string
	address string
	agents  chan *arrival // agents that connect (buffered); nil when none are expected

	mu   sync.Mutex
	jobs map[string]func(arrival) // rank processes, by job
	wg   sync.WaitGroup
	done bool
}

type arrival struct {
	c *conn
	h hello
}

func newHub(listen, token string, agents chan *arrival) (*hub, error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", listen, err)
	}
	h := &hub{l: l, token: token, address: l.Addr().String(), agents: agents,
		jobs: map[string]func(arrival){}}
	h.wg.Add(1)
	go h.accept()
	return h, nil
}

func (h *hub) accept() {
	defer h.wg.Done()
	for {
		c, err := h.l.Accept()
		if err != nil {
			h.mu.Lock()
			done := h.done
			h.mu.Unlock()
			if done {
				return
			}
			time.Sleep(10 * time.Millisecond) // out of file descriptors, say: passing, and nothing to wait for
			continue
		}
		h.wg.Add(1)
		go func() {
			defer h.wg.Done()
			h.greet(c)
		}()
	}
}

// greet takes in one connection; whoever does not belong is dropped without a word.
func (h *hub) greet(nc net.Conn) {
	c, err := handshake(nc, h.token, true)
	if err != nil {
		return
	}
	_ = nc.SetReadDeadline(time.Now().Add(handshakeTimeout))
	m, err := c.recv()
	_ = nc.SetReadDeadline(time.Time{})
	if err != nil || m.Hello == nil {
		c.close()
		return
	}
	h.mu.Lock()
	deliver := h.jobs[m.Hello.Job]
	if m.Hello.Agent {
		deliver = nil
		if h.agents != nil {
			deliver = func(a arrival) {
				select {
				case h.agents <- &a:
				default: // far more than a launch has
					a.c.close()
				}
			}
		}
	}
	if h.done {
		deliver = nil
	}
	h.mu.Unlock()
	if deliver == nil {
		c.close()
		return
	}
	deliver(arrival{c, *m.Hello})
}

// expect has the rank processes of a job delivered; forget ends that.
func (h *hub) expect(job string, deliver func(arrival)) {
	h.mu.Lock()
	h.jobs[job] = deliver
	h.mu.Unlock()
}

func (h *hub) forget(job string) {
	h.mu.Lock()
	delete(h.jobs, job)
	h.mu.Unlock()
}

func (h *hub) close() {
	h.mu.Lock()
	h.done = true
	h.mu.Unlock()
	h.l.Close()
	h.wg.Wait()
}
