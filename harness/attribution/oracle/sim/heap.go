package sim

// heap holds at most one coming event per source, the earliest first; ties go to the lower source.
type heap struct{ items []item }

type item struct {
	at     Time
	source int32
}

func (a item) before(b item) bool { return a.at < b.at || a.at == b.at && a.source < b.source }

const arity = 4

func (h *heap) init(sources int) { h.items = make([]item, 0, sources) }

func (h *heap) top() (Time, int32, bool) {
	if len(h.items) == 0 {
		return 0, 0, false
	}
	return h.items[0].at, h.items[0].source, true
}

func (h *heap) push(at Time, source int32) {
	x := item{at, source}
	h.items = append(h.items, x)
	i := len(h.items) - 1
	for i > 0 {
		up := (i - 1) / arity
		if !x.before(h.items[up]) {
			break
		}
		h.items[i] = h.items[up]
		i = up
	}
	h.items[i] = x
}

// replace gives the first event's source a later event.
func (h *heap) replace(at Time) { h.sink(item{at, h.items[0].source}) }

// pop removes the first event.
func (h *heap) pop() {
	n := len(h.items) - 1
	x := h.items[n]
	if h.items = h.items[:n]; n > 0 {
		h.sink(x)
	}
}

// sink puts x in the place of the first item.
func (h *heap) sink(x item) {
	items := h.items
	i := 0
	for {
		first := i*arity + 1
		if first >= len(items) {
			break
		}
		least := first
		for c := first + 1; c < min(first+arity, len(items)); c++ {
			if items[c].before(items[least]) {
				least = c
			}
		}
		if !items[least].before(x) {
			break
		}
		items[i] = items[least]
		i = least
	}
	items[i] = x
}

// fifo is a queue in a ring that grows.
type fifo[T any] struct {
	ring        []T // length a power of two, or none
	first, size int
}

func (q *fifo[T]) len() int  { return q.size }
func (q *fifo[T]) front() *T { return &q.ring[q.first] }

func (q *fifo[T]) push(v T) {
	if q.size == len(q.ring) {
		bigger := make([]T, max(8, 2*len(q.ring)))
		n := copy(bigger, q.ring[q.first:])
		copy(bigger[n:], q.ring[:q.first])
		q.ring, q.first = bigger, 0
	}
	q.ring[(q.first+q.size)&(len(q.ring)-1)] = v
	q.size++
}

func (q *fifo[T]) drop() {
	q.first = (q.first + 1) & (len(q.ring) - 1)
	q.size--
}
