// Package window lays out a rank's window and proves what arrived in it: data areas between guard bytes, seeded
// patterns, filler where data is to come, and the check that compares every byte after a run.
package window

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"

	"gic/workloads"
)

// Guard is the least number of guard bytes before and after each area.
const Guard = 64

// What the bytes hold that no run may touch, and those it is to overwrite.
const (
	GuardByte = 0x5C
	Filler    = 0xA5
)

const (
	align = 64
	chunk = 1 << 20 // largest single access of Memory
)

// Layout assigns offsets from the start of a window upwards.
type Layout struct{ end uint64 }

// Bytes is the window that holds everything assigned so far.
func (l *Layout) Bytes() uint64 { return l.end }

// Words assigns n 8-byte words of signals or counters, zero before a run, and returns their offset.
func (l *Layout) Words(n int) Words {
	w := Words{Offset: l.end, Count: n}
	l.end = roundUp(l.end+8*uint64(n), align)
	return w
}

// Words are consecutive 8-byte words.
type Words struct {
	Offset uint64
	Count  int
}

// At is the offset of a word.
func (w Words) At(i int) uint64 { return w.Offset + 8*uint64(i) }

// Clear zeroes the words.
func (w Words) Clear(m workloads.Memory) error {
	return constant(w.Offset, 8*uint64(w.Count), 0, m.Write)
}

// Set writes a word.
func (w Words) Set(m workloads.Memory, i int, value uint64) error {
	return m.Write(w.At(i), binary.LittleEndian.AppendUint64(nil, value))
}

// SetBarrier leaves the words as `calls` of the in-kernel barrier do: one word per rank, its own untouched.
func (w Words) SetBarrier(windows []workloads.Memory, calls int) error {
	for rank, m := range windows {
		for i := range windows {
			if i == rank {
				continue
			}
			if err := w.Set(m, i, uint64(calls)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Slots is an area of Count slots of Size payload bytes, Stride bytes apart, with guards on both sides.
type Slots struct {
	Offset       uint64
	Count        int
	Size, Stride uint64
}

// Slots assigns an area. A slot begins at a multiple of 8 bytes, the area at one of 64.
func (l *Layout) Slots(count int, size uint64) Slots {
	s := Slots{Offset: l.end + Guard, Count: count, Size: size, Stride: roundUp(size, 8)}
	l.end = roundUp(s.end(), align) + Guard
	return s
}

// At is the offset of slot i.
func (s Slots) At(i int) uint64 { return s.Offset + uint64(i)*s.Stride }

func (s Slots) end() uint64 { return s.Offset + uint64(s.Count)*s.Stride }

// guards are the two ranges around the area.
func (s Slots) guards() [2][2]uint64 {
	end := roundUp(s.end(), align) + Guard
	return [2][2]uint64{{s.Offset - Guard, s.Offset}, {s.end(), end}}
}

// Image writes what slot i holds into buf (Size bytes); false means filler. Slots are asked for by several goroutines at
// once: images of a GPU's windows take longer to make than to move.
type Image func(i int, buf []byte) bool

// Empty is an area that nothing was written to.
func Empty(int, []byte) bool { return false }

// Fill writes the area's image and its guards.
func (s Slots) Fill(m workloads.Memory, image Image) error {
	for _, g := range s.guards() {
		if err := constant(g[0], g[1]-g[0], GuardByte, m.Write); err != nil {
			return err
		}
	}
	return s.each(image, m.Write)
}

// Wipe zeroes the area and leaves the guards.
func (s Slots) Wipe(m workloads.Memory) error {
	return constant(s.Offset, s.end()-s.Offset, 0, m.Write)
}

// Update reads new contents for the slots that image fills and writes them: image alone decides which, and `read`
// may leave its bytes as they are.
func (s Slots) Update(m workloads.Memory, image Image, read func(i int, buf []byte) error) error {
	buf := make([]byte, s.Size)
	for i := range s.Count {
		if !image(i, buf) {
			continue
		}
		if err := read(i, buf); err != nil {
			return err
		}
		if err := m.Write(s.At(i), buf); err != nil {
			return err
		}
	}
	return nil
}

// each hands out the image of the whole area, padding included, in pieces of about a chunk. The next one is made while
// one is used.
func (s Slots) each(image Image, use func(offset uint64, data []byte) error) error {
	if s.Stride == 0 || s.Count == 0 {
		return nil
	}
	per := int(max(1, chunk/s.Stride))
	if s.Count <= per {
		return use(s.At(0), s.image(image, 0, make([]byte, uint64(s.Count)*s.Stride)))
	}
	type piece struct {
		offset uint64
		data   []byte
	}
	free, made := make(chan []byte, 2), make(chan piece, 1)
	for range cap(free) {
		free <- make([]byte, uint64(per)*s.Stride)
	}
	go func() {
		defer close(made)
		for first := 0; first < s.Count; first += per {
			n := min(per, s.Count-first)
			buf, ok := <-free
			if !ok {
				return
			}
			made <- piece{s.At(first), s.image(image, first, buf[:uint64(n)*s.Stride])}
		}
	}()
	for p := range made {
		if err := use(p.offset, p.data); err != nil {
			close(free)
			for range made { // until the other side has ended
			}
			return err
		}
		free <- p.data[:cap(p.data)]
	}
	return nil
}

// image makes the slots from `first` on that data has room for.
func (s Slots) image(image Image, first int, data []byte) []byte {
	Parallel(len(data)/int(s.Stride), s.Stride, func(i int) {
		slot := data[uint64(i)*s.Stride:][:s.Stride]
		if !image(first+i, slot[:s.Size]) {
			fill(slot[:s.Size], Filler)
		}
		fill(slot[s.Size:], Filler)
	})
	return data
}

// Parallel calls do(0) to do(n-1) on as many goroutines as there are processors, and returns when all have returned. Each
// call makes about so many bytes: of few in all there is one goroutine.
func Parallel(n int, bytes uint64, do func(i int)) {
	workers := min(n, runtime.GOMAXPROCS(0))
	if uint64(n)*bytes < chunk/16 {
		workers = 1
	}
	var wg sync.WaitGroup
	for w := 1; w < workers; w++ {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				do(i)
			}
		})
	}
	for i := 0; i < n; i += max(1, workers) {
		do(i)
	}
	wg.Wait()
}

// Check compares a rank's window with what it must hold.
type Check struct {
	Result workloads.Verification
	m      workloads.Memory
	rank   int
	buf    []byte
	// firstAt is where in its piece the first mismatch was.
	firstAt int
}

// NewCheck starts a check of one rank's window.
func NewCheck(rank int, m workloads.Memory) *Check { return &Check{m: m, rank: rank} }

// Slots compares an area, its padding and its guards; name tells it in the first mismatch.
func (c *Check) Slots(name string, s Slots, image Image) error {
	if err := c.Guards(name, s); err != nil {
		return err
	}
	return s.each(image, func(offset uint64, want []byte) error {
		return c.compare(name, s.Offset, offset, want)
	})
}

// Guards compares the guards alone.
func (c *Check) Guards(name string, s Slots) error {
	for _, g := range s.guards() {
		err := constant(g[0], g[1]-g[0], GuardByte, func(offset uint64, want []byte) error {
			return c.compare(name+" guard", g[0], offset, want)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Word compares an 8-byte word.
func (c *Check) Word(name string, offset, want uint64) error {
	return c.compare(name, offset, offset, binary.LittleEndian.AppendUint64(nil, want))
}

// Bytes compares a run of bytes; what tells in the first mismatch whose byte i is.
func (c *Check) Bytes(name string, offset uint64, want []byte, what func(i int) string) error {
	for at := 0; at < len(want); at += chunk {
		good := c.Result.Wrong == 0
		if err := c.compare(name, offset, offset+uint64(at), want[at:min(at+chunk, len(want))]); err != nil {
			return err
		}
		if good && c.Result.Wrong > 0 {
			c.Result.First += " (" + what(at+c.firstAt) + ")"
		}
	}
	return nil
}

func (c *Check) compare(name string, start, offset uint64, want []byte) error {
	if len(c.buf) < len(want) {
		c.buf = make([]byte, len(want))
	}
	got := c.buf[:len(want)]
	if err := c.m.Read(offset, got); err != nil {
		return err
	}
	c.Result.Checked += uint64(len(want))
	if bytes.Equal(got, want) {
		return nil
	}
	for i := range want {
		if got[i] == want[i] {
			continue
		}
		if c.Result.Wrong == 0 {
			c.firstAt = i
			c.Result.First = fmt.Sprintf("rank %d: %s byte %d: 0x%02x, expected 0x%02x",
				c.rank, name, offset+uint64(i)-start, got[i], want[i])
		}
		c.Result.Wrong++
	}
	return nil
}

// Mix is splitmix64's output function: a bijection that turns a counter into uniform bits, the same on every
// platform.
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Pattern is the payload of one slot of one rank: bytes that depend on all three.
func Pattern(seed uint64, rank, slot int, buf []byte) {
	key := Mix(Mix(Mix(seed)+uint64(rank)) + uint64(slot))
	var word [8]byte
	for i := 0; len(buf) > 0; i++ {
		binary.LittleEndian.PutUint64(word[:], Mix(key+uint64(i)))
		buf = buf[copy(buf, word[:]):]
	}
}

// Source is the image of rank's own source area.
func Source(seed uint64, rank int) Image {
	return func(i int, buf []byte) bool {
		Pattern(seed, rank, i, buf)
		return true
	}
}

// Copy moves n bytes between two windows.
func Copy(to workloads.Memory, dst uint64, from workloads.Memory, src, n uint64) error {
	buf := make([]byte, n)
	if err := from.Read(src, buf); err != nil {
		return err
	}
	return to.Write(dst, buf)
}

// Constant hands out n bytes of one value in pieces of at most a chunk.
func constant(offset, n uint64, value byte, use func(offset uint64, data []byte) error) error {
	buf := make([]byte, min(n, chunk))
	fill(buf, value)
	for n > 0 {
		k := min(n, chunk)
		if err := use(offset, buf[:k]); err != nil {
			return err
		}
		offset += k
		n -= k
	}
	return nil
}

func fill(buf []byte, value byte) {
	if len(buf) == 0 {
		return
	}
	buf[0] = value
	for n := 1; n < len(buf); n *= 2 {
		copy(buf[n:], buf[:n])
	}
}

func roundUp(n, to uint64) uint64 { return (n + to - 1) / to * to }
