package window_test

import (
	"bytes"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"gic/workloads"
	"gic/workloads/window"
	"gic/workloads/worktest"
)

func TestLayoutDoesNotOverlap(t *testing.T) {
	var l window.Layout
	words := l.Words(3)
	var areas []window.Slots
	for _, c := range []struct {
		count int
		size  uint64
	}{{1, 1}, {3, 13}, {0, 8}, {2, 0}, {5, 64}} {
		areas = append(areas, l.Slots(c.count, c.size))
	}
	m := make(worktest.Memory, l.Bytes())
	for i := range 3 {
		if err := words.Set(m, i, ^uint64(0)); err != nil {
			t.Fatal(err)
		}
	}
	end := words.At(3)
	for i, s := range areas {
		if s.Offset%64 != 0 || s.Offset < end+window.Guard {
			t.Errorf("area %d at %d, expected a multiple of 64 from %d on", i, s.Offset, end+window.Guard)
		}
		end = s.At(s.Count)
		if err := s.Fill(m, window.Source(1, i)); err != nil {
			t.Fatal(err)
		}
	}
	if end+window.Guard > l.Bytes() {
		t.Errorf("the last area ends at %d of %d bytes: no room for its guard", end, l.Bytes())
	}
	c := window.NewCheck(0, m)
	for i, s := range areas {
		if err := c.Slots("area", s, window.Source(1, i)); err != nil {
			t.Fatal(err)
		}
	}
	if c.Result.Wrong != 0 {
		t.Errorf("areas overlap: %+v", c.Result)
	}
}

// Areas are filled and checked in pieces; their borders must not show.
func TestLargeAreas(t *testing.T) {
	for _, c := range []struct {
		count int
		size  uint64
	}{{3, 1<<20 + 3}, {300000, 8}, {1, 5 << 20}} {
		var l window.Layout
		s := l.Slots(c.count, c.size)
		m := make(worktest.Memory, l.Bytes())
		if err := s.Fill(m, window.Source(1, 0)); err != nil {
			t.Fatal(err)
		}
		want := make([]byte, c.size)
		window.Pattern(1, 0, c.count-1, want)
		if !bytes.Equal(m[s.At(c.count-1):][:c.size], want) {
			t.Errorf("%d slots of %d bytes: the last one is not its pattern", c.count, c.size)
		}
		last := s.At(c.count-1) + c.size - 1
		m[last] ^= 0x80
		check := window.NewCheck(3, m)
		if err := check.Slots("area", s, window.Source(1, 0)); err != nil {
			t.Fatal(err)
		}
		if check.Result.Wrong != 1 || check.Result.Checked != l.Bytes() {
			t.Errorf("%d slots of %d bytes: %+v, expected 1 wrong of %d", c.count, c.size, check.Result, l.Bytes())
		}
	}
}

func TestFirstNamesThePlace(t *testing.T) {
	var l window.Layout
	l.Words(8)
	s := l.Slots(2, 8)
	m := make(worktest.Memory, l.Bytes())
	if err := s.Fill(m, window.Empty); err != nil {
		t.Fatal(err)
	}
	m[s.At(1)+2] = 0x11
	c := window.NewCheck(3, m)
	if err := c.Slots("target", s, window.Empty); err != nil {
		t.Fatal(err)
	}
	if want := "rank 3: target byte 10: 0x11, expected 0xa5"; c.Result.First != want {
		t.Errorf("%q, expected %q", c.Result.First, want)
	}
}

func TestPatternDependsOnEverything(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(4) {
		for rank := range 4 {
			for slot := range 16 {
				buf := make([]byte, 8)
				window.Pattern(seed, rank, slot, buf)
				seen[string(buf)] = true
			}
		}
	}
	if len(seen) != 4*4*16 {
		t.Errorf("%d different patterns of %d", len(seen), 4*4*16)
	}
	long, short := make([]byte, 21), make([]byte, 13)
	window.Pattern(1, 2, 3, long)
	window.Pattern(1, 2, 3, short)
	if !bytes.Equal(long[:13], short) {
		t.Error("a shorter pattern is not the start of a longer one")
	}
}

// The mixer is splitmix64's: values published with the reference code for seed 1234567.
func TestMix(t *testing.T) {
	state := uint64(1234567)
	for i, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423} {
		if got := window.Mix(state); got != want {
			t.Errorf("number %d: %d, expected %d", i, got, want)
		}
		state += 0x9e3779b97f4a7c15
	}
}

type broken struct{ err error }

func (b broken) Write(uint64, []byte) error { return b.err }
func (b broken) Read(uint64, []byte) error  { return b.err }

// An access that fails is an error, never a silent pass.
func TestMemoryErrors(t *testing.T) {
	var l window.Layout
	words, s := l.Words(2), l.Slots(2, 8)
	m := broken{errors.New("gone")}
	c := window.NewCheck(0, m)
	for name, err := range map[string]error{
		"Clear":      words.Clear(m),
		"Set":        words.Set(m, 0, 1),
		"SetBarrier": words.SetBarrier([]workloads.Memory{m, m}, 1),
		"Fill":       s.Fill(m, window.Empty),
		"Wipe":       s.Wipe(m),
		"Update":     s.Update(m, window.Source(1, 0), func(int, []byte) error { return nil }),
		"Guards":     c.Guards("area", s),
		"Slots":      c.Slots("area", s, window.Empty),
		"Word":       c.Word("word", 0, 0),
		"Copy":       window.Copy(m, 0, m, 8, 8),
	} {
		if !errors.Is(err, m.err) {
			t.Errorf("%s: error %v, expected %v", name, err, m.err)
		}
	}
}

// Every index once, with few and many bytes, whatever the processors.
func TestParallel(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	for _, n := range []int{0, 1, 2, 3, 4, 100} {
		for _, bytes := range []uint64{1, 1 << 20} {
			seen := make([]atomic.Int32, n)
			window.Parallel(n, bytes, func(i int) { seen[i].Add(1) })
			for i := range seen {
				if got := seen[i].Load(); got != 1 {
					t.Errorf("n=%d bytes=%d: %d calls of %d, expected 1", n, bytes, got, i)
				}
			}
		}
	}
}

// An area of several pieces of several slots: each slot's image is its own, made by whichever goroutine.
func TestSlotsOfManyPieces(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	var l window.Layout
	s := l.Slots(40, 1<<16)
	m := make(worktest.Memory, l.Bytes())
	image := func(i int, buf []byte) bool {
		window.Pattern(7, 1, i, buf)
		return i%5 != 0
	}
	if err := s.Fill(m, image); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, s.Size)
	for i := range s.Count {
		if !image(i, want) {
			want = bytes.Repeat([]byte{window.Filler}, len(want))
		}
		if !bytes.Equal(m[s.At(i):][:s.Size], want) {
			t.Errorf("slot %d is not its image", i)
		}
	}
	c := window.NewCheck(0, m)
	if err := c.Slots("area", s, image); err != nil || c.Result.Wrong != 0 {
		t.Errorf("check: %d wrong, %v", c.Result.Wrong, err)
	}
}

// failing takes `left` accesses, then no more.
type failing struct {
	worktest.Memory
	left *int
}

var errFailing = errors.New("no more")

func (f failing) Write(offset uint64, data []byte) error {
	if *f.left--; *f.left < 0 {
		return errFailing
	}
	return f.Memory.Write(offset, data)
}

// An area of 4 pieces whose memory fails at any of them: its error comes back, and nothing is left running.
func TestPieceThatFails(t *testing.T) {
	var l window.Layout
	s := l.Slots(4, 1<<20)
	m := make(worktest.Memory, l.Bytes())
	before := runtime.NumGoroutine()
	for left := range 2 + 4 { // two guards
		n := left
		if err := s.Fill(failing{m, &n}, window.Empty); !errors.Is(err, errFailing) {
			t.Errorf("failing at access %d: %v, expected %v", left, err, errFailing)
		}
	}
	n := 2 + 4
	if err := s.Fill(failing{m, &n}, window.Empty); err != nil {
		t.Error(err)
	}
	for tries := 0; runtime.NumGoroutine() > before; tries++ {
		if tries == 10000 {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
		time.Sleep(time.Millisecond)
	}
}
