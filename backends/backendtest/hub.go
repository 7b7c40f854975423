package backendtest

import (
	"context"
	"fmt"
	"sync"

	"gic/backends"
)

// Hub is the exchange among ranks that live in one process.
type Hub struct {
	mu     sync.Mutex
	n      int
	here   int
	next   *round
	broken chan struct{} // closed by Break
}

type round struct {
	parts [][]byte
	done  chan struct{}
}

// NewHub makes the exchange of n ranks.
func NewHub(n int) *Hub { return &Hub{n: n, next: newRound(n), broken: make(chan struct{})} }

// Break ends every exchange that waits, now and later, with backends.ErrCanceled: a rank has failed.
func (h *Hub) Break() {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.broken:
	default:
		close(h.broken)
	}
}

func newRound(n int) *round { return &round{parts: make([][]byte, n), done: make(chan struct{})} }

// Rank is the exchange as one rank sees it.
func (h *Hub) Rank(rank int) backends.Comm { return hubRank{h, rank} }

func (h *Hub) gather(ctx context.Context, rank int, mine []byte) ([][]byte, error) {
	canceled := fmt.Errorf("a rank failed: %w", backends.ErrCanceled)
	select {
	case <-h.broken: // for all ranks alike: the last to come must not find the others' parts and go on alone
		return nil, canceled
	default:
	}
	h.mu.Lock()
	r := h.next
	r.parts[rank] = append([]byte{}, mine...)
	if h.here++; h.here == h.n {
		h.here, h.next = 0, newRound(h.n)
		close(r.done)
	}
	h.mu.Unlock()
	select {
	case <-r.done:
		return r.parts, nil
	case <-h.broken:
		return nil, canceled
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type hubRank struct {
	hub  *Hub
	rank int
}

func (r hubRank) Allgather(ctx context.Context, mine []byte) ([][]byte, error) {
	return r.hub.gather(ctx, r.rank, mine)
}

func (r hubRank) Barrier(ctx context.Context) error {
	_, err := r.hub.gather(ctx, r.rank, nil)
	return err
}
